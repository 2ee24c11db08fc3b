//! Reading entries with what stands at their places, in one statement: what a verifier compares.
//!
//! All three tables are clustered by the entry, so each row is found where the one before it was.

use crate::decode::RowLabel;
use crate::packed::{self, RowValues};
use crate::records::{DecisionColumns, body, erased};
use crate::{entry, in_room, weighed};
use model::{TenantId, Timestamp};
use sqlx::SqlitePool;
use store::{Recorded, Room, StoreError, StoredEntry};

/// What is stored at the place of an entry, its own row included.
struct Columns {
    entry: i64,
    kind: String,
    at: i64,
    prev: Vec<u8>,
    hash: Vec<u8>,
    body: String,
    nodes: Vec<u8>,
    erased_body: Option<Vec<u8>>,
    erased_by: Option<i64>,
    packed: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
    agent: Option<Vec<u8>>,
    tool: Option<String>,
    action: Option<String>,
    reason: Option<String>,
    run_id: Option<String>,
    ask: Option<Vec<u8>>,
    bytes: Option<Vec<u8>>,
}

/// At most `limit` entries from `from_seq` on, in order.
pub(crate) async fn read(
    readers: &SqlitePool,
    tenant: TenantId,
    from_seq: u64,
    limit: u32,
) -> Result<Vec<Recorded>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    // A `seq` beyond the last possible one finds nothing, as it should.
    let from_seq = i64::try_from(from_seq).unwrap_or(i64::MAX).min(entry::SEQ_MAX);
    let rows = sqlx::query_as!(
        Columns,
        r#"SELECT
               audit_events.entry,
               audit_events.kind,
               audit_events.at,
               audit_events.prev,
               audit_events.hash,
               audit_events.body,
               audit_events.nodes,
               audit_events.erased_body,
               audit_events.erased_by,
               audit_events.packed,
               decisions.id AS "id?",
               decisions.agent AS "agent?",
               decisions.tool AS "tool?",
               decisions.action AS "action?",
               decisions.reason AS "reason?",
               decisions.run_id,
               decisions.ask,
               receipts.bytes AS "bytes?"
           FROM tenants
           CROSS JOIN audit_events
               ON audit_events.entry BETWEEN (tenants.tenant_no << 40) + ?2 AND (tenants.tenant_no << 40) + ?3
           LEFT JOIN decisions
               ON decisions.entry = audit_events.entry
           LEFT JOIN receipts
               ON receipts.entry = audit_events.entry
           WHERE tenants.tenant_id = ?1
           ORDER BY audit_events.entry
           LIMIT ?4"#,
        tenant_id,
        from_seq,
        entry::SEQ_MAX,
        limit,
    )
    .fetch(readers);
    let decode = |row: Columns| row.decode(tenant).map(weighed);
    in_room(rows, &mut Room::default(), decode).await
}

impl Columns {
    fn decode(self, tenant: TenantId) -> Result<Recorded, StoreError> {
        let label = RowLabel {
            table: "audit_events",
            row: self.entry,
        };
        let values = RowValues {
            tenant,
            at: Timestamp::from_millis(self.at),
            prev: label.digest("prev", self.prev)?,
            hash: label.digest("hash", self.hash.clone())?,
        };
        let body = body(label, self.body, self.packed.as_deref())?;
        let receipt = self.bytes.map(|bytes| packed::answer(bytes, &body, &values));
        let decision = match (self.id, self.agent, self.tool, self.action, self.reason) {
            (Some(id), Some(agent), Some(tool), Some(action), Some(reason)) => Some(DecisionColumns {
                entry: self.entry,
                id,
                agent,
                tool,
                action,
                reason,
                run_id: self.run_id,
                ask: self.ask,
                at: self.at,
                hash: self.hash,
                body: body.clone(),
                packed: None,
            }),
            // No row: what is written with each decision is missing.
            _ => None,
        };
        Ok(Recorded {
            entry: StoredEntry {
                seq: entry::seq(self.entry),
                kind: self.kind,
                at: values.at,
                prev: values.prev,
                hash: values.hash,
                body,
                nodes: self.nodes,
                erased: erased(label, self.erased_body, self.erased_by)?,
            },
            decision: decision.map(DecisionColumns::decode).transpose()?,
            receipt,
        })
    }
}
