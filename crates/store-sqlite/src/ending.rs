//! Reading where a ledger ends, with what is stored where no commit can have put it, in one statement: so nobody writes
//! in between.
//!
//! Each look-up finds at most one row, by the number that its table is clustered by.

use crate::decode::RowLabel;
use crate::{entry, unread_record};
use ledger::Head;
use model::{TenantId, Timestamp};
use sqlx::SqlitePool;
use store::{Ending, StoreError};

/// The end of a tenant's ledger; none if there is no such tenant.
pub(crate) async fn read(readers: &SqlitePool, tenant: TenantId) -> Result<Option<Ending>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let row = sqlx::query_as!(
        Row,
        r#"SELECT
               tenants.tenant_no AS "tenant_no!",
               tenants.head_seq AS "head_seq!",
               tenants.head_hash AS "head_hash!",
               tenants.head_at AS "head_at!",
               (SELECT audit_events.at
                FROM audit_events
                WHERE audit_events.entry = (tenants.tenant_no << 40) + tenants.head_seq
               ) AS "entry_at?: i64",
               COALESCE(
                   (SELECT audit_events.entry
                    FROM audit_events
                    WHERE audit_events.entry = tenants.tenant_no << 40),
                   (SELECT audit_events.entry
                    FROM audit_events
                    WHERE audit_events.entry > (tenants.tenant_no << 40) + tenants.head_seq
                      AND audit_events.entry <= (tenants.tenant_no << 40) + ?2
                    ORDER BY audit_events.entry
                    LIMIT 1)
               ) AS "stray_entry?: i64",
               COALESCE(
                   (SELECT decisions.entry
                    FROM decisions
                    WHERE decisions.entry = tenants.tenant_no << 40),
                   (SELECT decisions.entry
                    FROM decisions
                    WHERE decisions.entry > (tenants.tenant_no << 40) + tenants.head_seq
                      AND decisions.entry <= (tenants.tenant_no << 40) + ?2
                    ORDER BY decisions.entry
                    LIMIT 1)
               ) AS "stray_decision?: i64",
               COALESCE(
                   (SELECT receipts.entry
                    FROM receipts
                    WHERE receipts.entry = tenants.tenant_no << 40),
                   (SELECT receipts.entry
                    FROM receipts
                    WHERE receipts.entry > (tenants.tenant_no << 40) + tenants.head_seq
                      AND receipts.entry <= (tenants.tenant_no << 40) + ?2
                    ORDER BY receipts.entry
                    LIMIT 1)
               ) AS "stray_receipt?: i64"
           FROM tenants
           WHERE tenants.tenant_id = ?1"#,
        tenant_id,
        entry::SEQ_MAX,
    )
    .fetch_optional(readers)
    .await
    .map_err(unread_record)?;
    row.map(Row::decode).transpose()
}

/// The row of a tenant, and what was found by it.
struct Row {
    tenant_no: i64,
    head_seq: i64,
    head_hash: Vec<u8>,
    head_at: i64,
    entry_at: Option<i64>,
    stray_entry: Option<i64>,
    stray_decision: Option<i64>,
    stray_receipt: Option<i64>,
}

impl Row {
    fn decode(self) -> Result<Ending, StoreError> {
        let label = RowLabel {
            table: "tenants",
            row: self.tenant_no,
        };
        let answers = [self.stray_decision, self.stray_receipt];
        Ok(Ending {
            head: Head {
                seq: label.unsigned("head_seq", self.head_seq)?,
                hash: label.digest("head_hash", self.head_hash)?,
            },
            head_at: Timestamp::from_millis(self.head_at),
            entry_at: self.entry_at.map(Timestamp::from_millis),
            stray_entry: self.stray_entry.map(entry::seq),
            stray_answer: answers.into_iter().flatten().map(entry::seq).min(),
        })
    }
}
