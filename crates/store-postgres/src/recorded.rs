//! Reading entries with what stands at their places, in one statement: what a verifier compares.

use crate::connections::Connections;
use crate::decode::{RowLabel, uuid};
use crate::records::{DecisionColumns, erased, from};
use model::{TenantId, Timestamp};
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{Recorded, Room, StoreError, StoredEntry};

/// What is stored at the place of an entry, its own row included.
struct Columns {
    seq: i64,
    kind: String,
    at: i64,
    prev: Vec<u8>,
    hash: Vec<u8>,
    body: String,
    nodes: Vec<u8>,
    erased_body: Option<Vec<u8>>,
    erased_by: Option<i64>,
    id: Option<Uuid>,
    agent: Option<Uuid>,
    tool: Option<String>,
    action: Option<String>,
    reason: Option<String>,
    run_id: Option<String>,
    ask: Option<Vec<u8>>,
    bytes: Option<Vec<u8>>,
}

/// At most `limit` entries from `from_seq` on, in order. Subqueries for the reason that the module `records` has.
pub(crate) async fn read(
    readers: &Arc<Connections>,
    tenant: TenantId,
    from_seq: u64,
    limit: u32,
) -> Result<Vec<Recorded>, StoreError> {
    let query = || {
        sqlx::query_as!(
            Columns,
            r#"SELECT
                 entry.seq,
                 entry.kind,
                 entry.at,
                 entry.prev,
                 entry.hash,
                 entry.body,
                 entry.nodes,
                 entry.erased_body,
                 entry.erased_by,
                 decision.id AS "id?",
                 decision.agent AS "agent?",
                 decision.tool AS "tool?",
                 decision.action AS "action?",
                 decision.reason AS "reason?",
                 decision.run_id AS "run_id?",
                 decision.ask AS "ask?",
                 receipt.bytes AS "bytes?"
             FROM audit_events AS entry
             LEFT JOIN LATERAL (
                 SELECT id, agent, tool, action, reason, run_id, ask
                 FROM decisions
                 WHERE decisions.tenant_id = entry.tenant_id
                   AND decisions.seq = entry.seq
                 LIMIT 1
             ) AS decision ON true
             LEFT JOIN LATERAL (
                 SELECT bytes
                 FROM receipts
                 WHERE receipts.tenant_id = entry.tenant_id
                   AND receipts.seq = entry.seq
                 LIMIT 1
             ) AS receipt ON true
             WHERE entry.tenant_id = $1
               AND entry.seq >= $2
             ORDER BY entry.seq
             LIMIT $3"#,
            uuid(tenant),
            from(from_seq),
            i64::from(limit),
        )
    };
    let mut room = Room::default();
    let rows = readers.read_in_room(query, &mut room, Columns::bytes).await?;
    rows.into_iter().map(|row| row.decode(tenant)).collect()
}

impl Columns {
    /// The bytes of its body, which is there twice when that of a decision is read, and of its answer.
    fn bytes(&self) -> usize {
        let times = if self.id.is_some() { 2 } else { 1 };
        times * self.body.len() + self.bytes.as_ref().map_or(0, Vec::len)
    }

    fn decode(self, tenant: TenantId) -> Result<Recorded, StoreError> {
        let label = RowLabel {
            table: "audit_events",
            tenant,
            seq: Some(self.seq),
        };
        let decision = match (self.id, self.agent, self.tool, self.action, self.reason) {
            (Some(id), Some(agent), Some(tool), Some(action), Some(reason)) => Some(DecisionColumns {
                seq: self.seq,
                id,
                agent,
                tool,
                action,
                reason,
                run_id: self.run_id,
                ask: self.ask,
                at: self.at,
                hash: self.hash.clone(),
                body: self.body.clone(),
            }),
            // No row: what is written with each decision is missing.
            _ => None,
        };
        Ok(Recorded {
            entry: StoredEntry {
                seq: label.unsigned("seq", self.seq)?,
                kind: self.kind,
                at: Timestamp::from_millis(self.at),
                prev: label.digest("prev", &self.prev)?,
                hash: label.digest("hash", &self.hash)?,
                body: self.body,
                nodes: self.nodes,
                erased: erased(label, self.erased_body, self.erased_by)?,
            },
            decision: decision.map(|columns| columns.decode(tenant)).transpose()?,
            receipt: self.bytes,
        })
    }
}
