//! Searching decisions: from the newest backwards, a stretch of the ledger at a time.
//!
//! No index of these tables serves these filters, because every index is paid for by every commit; `index` has tables
//! of its own. A stretch is one short statement, so a search that finds little neither keeps old versions of rows alive
//! nor one of the readers busy for long; the time limit of all reads ends one that would go through millions.

use crate::connections::Connections;
use crate::decode::uuid;
use crate::records::DecisionColumns;
use model::{Name, ReasonCode, TenantId};
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{DecisionFilter, Room, StoreError, StoredDecision};

/// How many entries one statement looks at: some milliseconds.
const STRETCH: i64 = 10_000;

/// A filter as columns can be compared with it.
struct Columns {
    agent: Option<Uuid>,
    tool: Option<String>,
    action: Option<String>,
    reasons: Option<Vec<String>>,
    run_id: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
}

impl Columns {
    fn of(filter: &DecisionFilter) -> Self {
        let text = |name: &Option<Name>| name.as_ref().map(|name| name.as_str().to_owned());
        Self {
            agent: filter.agent.map(|agent| Uuid::from_bytes(*agent.as_bytes())),
            tool: text(&filter.tool),
            action: text(&filter.action),
            reasons: reasons(filter),
            run_id: text(&filter.run_id),
            from: filter.from.map(model::Timestamp::millis),
            to: filter.to.map(model::Timestamp::millis),
        }
    }
}

/// The codes that fit both the verdict and the reason of a filter; none if it names neither.
fn reasons(filter: &DecisionFilter) -> Option<Vec<String>> {
    if filter.verdict.is_none() && filter.reason.is_none() {
        return None;
    }
    let fits = |code: &&ReasonCode| {
        filter.verdict.is_none_or(|verdict| code.verdict() == verdict)
            && filter.reason.is_none_or(|reason| **code == reason)
    };
    let codes = ReasonCode::ALL.iter().filter(fits);
    Some(codes.map(|code| code.as_str().to_owned()).collect())
}

/// Decisions that match, newest first.
pub(crate) async fn decisions(
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &DecisionFilter,
    before_seq: Option<u64>,
    limit: u32,
) -> Result<Vec<StoredDecision>, StoreError> {
    let Some(head_seq) = head_seq(readers, tenant).await? else {
        return Ok(Vec::new());
    };
    let columns = Columns::of(filter);
    let before = before_seq
        .and_then(|seq| i64::try_from(seq).ok())
        .unwrap_or(i64::MAX);
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let after = filter
        .after_seq
        .map_or(0, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let first = after.saturating_add(1);
    let mut end = before.min(head_seq.saturating_add(1));
    let (mut found, mut room) = (Vec::new(), Room::default());
    while end > first && found.len() < wanted && room.is_left() {
        let start = first.max(end - STRETCH);
        let left = u32::try_from(wanted - found.len()).unwrap_or(limit);
        for row in stretch(readers, tenant, &columns, start..end, left, &mut room).await? {
            found.push(row.decode(tenant)?);
        }
        end = start;
    }
    Ok(found)
}

/// The decisions among these entries, newest first.
pub(crate) async fn decisions_at(
    readers: &Arc<Connections>,
    tenant: TenantId,
    seqs: &[u64],
) -> Result<Vec<StoredDecision>, StoreError> {
    let seqs: Vec<i64> = seqs.iter().filter_map(|seq| i64::try_from(*seq).ok()).collect();
    let query = || {
        sqlx::query_as!(
            DecisionColumns,
            "SELECT
                 decisions.seq,
                 decisions.id,
                 decisions.agent,
                 decisions.tool,
                 decisions.action,
                 decisions.reason,
                 decisions.run_id,
                 decisions.ask,
                 entry.at,
                 entry.hash,
                 entry.body
             FROM decisions
             CROSS JOIN LATERAL (
                 SELECT at, hash, body
                 FROM audit_events
                 WHERE audit_events.tenant_id = decisions.tenant_id
                   AND audit_events.seq = decisions.seq
                 LIMIT 1
             ) AS entry
             WHERE decisions.tenant_id = $1
               AND decisions.seq = ANY ($2::bigint[])
             ORDER BY decisions.seq DESC",
            uuid(tenant),
            &seqs,
        )
    };
    let mut room = Room::default();
    let rows = readers
        .read_in_room(query, &mut room, DecisionColumns::bytes)
        .await?;
    rows.into_iter().map(|row| row.decode(tenant)).collect()
}

/// The last `seq` of a tenant's chain.
async fn head_seq(readers: &Arc<Connections>, tenant: TenantId) -> Result<Option<i64>, StoreError> {
    let query = || sqlx::query!("SELECT head_seq FROM tenants WHERE tenant_id = $1", uuid(tenant));
    let row = readers.read(query).await?.pop();
    Ok(row.map(|row| row.head_seq))
}

/// Decisions with a `seq` in a range, the newest first.
async fn stretch(
    readers: &Arc<Connections>,
    tenant: TenantId,
    columns: &Columns,
    seqs: std::ops::Range<i64>,
    limit: u32,
    room: &mut Room,
) -> Result<Vec<DecisionColumns>, StoreError> {
    let query = || {
        sqlx::query_as!(
            DecisionColumns,
            r#"SELECT
               decisions.seq,
               decisions.id,
               decisions.agent,
               decisions.tool,
               decisions.action,
               decisions.reason,
               decisions.run_id,
               decisions.ask,
               entry.at,
               entry.hash,
               entry.body
           FROM decisions
           CROSS JOIN LATERAL (
               SELECT at, hash, body
               FROM audit_events
               WHERE audit_events.tenant_id = decisions.tenant_id
                 AND audit_events.seq = decisions.seq
               LIMIT 1
           ) AS entry
           WHERE decisions.tenant_id = $1
             AND decisions.seq >= $2
             AND decisions.seq < $3
             AND ($4::uuid IS NULL OR decisions.agent = $4)
             AND ($5::text IS NULL OR decisions.tool = $5)
             AND ($6::text IS NULL OR decisions.action = $6)
             AND ($7::text[] IS NULL OR decisions.reason = ANY ($7))
             AND ($8::text IS NULL OR decisions.run_id = $8)
             AND ($9::bigint IS NULL OR entry.at >= $9)
             AND ($10::bigint IS NULL OR entry.at < $10)
           ORDER BY decisions.seq DESC
           LIMIT $11"#,
            uuid(tenant),
            seqs.start,
            seqs.end,
            columns.agent,
            columns.tool.as_deref(),
            columns.action.as_deref(),
            columns.reasons.as_deref(),
            columns.run_id.as_deref(),
            columns.from,
            columns.to,
            i64::from(limit),
        )
    };
    readers.read_in_room(query, room, DecisionColumns::bytes).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Verdict;

    #[test]
    fn a_verdict_and_a_reason_that_exclude_each_other_match_nothing() {
        let mut filter = DecisionFilter::default();
        assert_eq!(reasons(&filter), None);
        filter.reason = Some(ReasonCode::UnknownTool);
        assert_eq!(reasons(&filter), Some(vec!["unknown_tool".to_owned()]));
        filter.verdict = Some(Verdict::Allow);
        assert_eq!(reasons(&filter), Some(vec![]));
    }
}
