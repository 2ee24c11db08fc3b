//! Reading where a ledger ends, with what is stored where no commit can have put it, in one statement: so nobody writes
//! in between.
//!
//! Each look-up finds at most one row, by the primary key of its table.

use crate::connections::Connections;
use crate::decode::{self, uuid};
use ledger::Head;
use model::{TenantId, Timestamp};
use std::sync::Arc;
use store::{Ending, StoreError};

/// The row of a tenant, and what was found by it.
struct Columns {
    head_seq: i64,
    head_hash: Vec<u8>,
    head_at: i64,
    entry_at: Option<i64>,
    stray_entry: Option<i64>,
    stray_decision: Option<i64>,
    stray_receipt: Option<i64>,
}

/// The end of a tenant's ledger; none if there is no such tenant.
pub(crate) async fn read(readers: &Arc<Connections>, tenant: TenantId) -> Result<Option<Ending>, StoreError> {
    let query = || {
        sqlx::query_as!(
            Columns,
            r#"SELECT
                 tenants.head_seq,
                 tenants.head_hash,
                 tenants.head_at,
                 (SELECT audit_events.at
                  FROM audit_events
                  WHERE audit_events.tenant_id = tenants.tenant_id
                    AND audit_events.seq = tenants.head_seq
                 ) AS "entry_at?",
                 COALESCE(
                     (SELECT audit_events.seq
                      FROM audit_events
                      WHERE audit_events.tenant_id = tenants.tenant_id
                        AND audit_events.seq < 1
                      ORDER BY audit_events.seq
                      LIMIT 1),
                     (SELECT audit_events.seq
                      FROM audit_events
                      WHERE audit_events.tenant_id = tenants.tenant_id
                        AND audit_events.seq > tenants.head_seq
                      ORDER BY audit_events.seq
                      LIMIT 1)
                 ) AS "stray_entry?",
                 COALESCE(
                     (SELECT decisions.seq
                      FROM decisions
                      WHERE decisions.tenant_id = tenants.tenant_id
                        AND decisions.seq < 1
                      ORDER BY decisions.seq
                      LIMIT 1),
                     (SELECT decisions.seq
                      FROM decisions
                      WHERE decisions.tenant_id = tenants.tenant_id
                        AND decisions.seq > tenants.head_seq
                      ORDER BY decisions.seq
                      LIMIT 1)
                 ) AS "stray_decision?",
                 COALESCE(
                     (SELECT receipts.seq
                      FROM receipts
                      WHERE receipts.tenant_id = tenants.tenant_id
                        AND receipts.seq < 1
                      ORDER BY receipts.seq
                      LIMIT 1),
                     (SELECT receipts.seq
                      FROM receipts
                      WHERE receipts.tenant_id = tenants.tenant_id
                        AND receipts.seq > tenants.head_seq
                      ORDER BY receipts.seq
                      LIMIT 1)
                 ) AS "stray_receipt?"
             FROM tenants
             WHERE tenants.tenant_id = $1"#,
            uuid(tenant),
        )
    };
    let row = readers.read(query).await?.pop();
    row.map(|row| row.decode(tenant)).transpose()
}

impl Columns {
    fn decode(self, tenant: TenantId) -> Result<Ending, StoreError> {
        let label = decode::RowLabel {
            table: "tenants",
            tenant,
            seq: None,
        };
        // One below 0 stands before the first, as 0 does.
        let seq = |seq: i64| u64::try_from(seq).unwrap_or(0);
        let answers = [self.stray_decision, self.stray_receipt];
        Ok(Ending {
            head: Head {
                seq: label.unsigned("head_seq", self.head_seq)?,
                hash: label.digest("head_hash", &self.head_hash)?,
            },
            head_at: Timestamp::from_millis(self.head_at),
            entry_at: self.entry_at.map(Timestamp::from_millis),
            stray_entry: self.stray_entry.map(seq),
            stray_answer: answers.into_iter().flatten().map(seq).min(),
        })
    }
}
