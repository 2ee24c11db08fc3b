//! Searching decisions: from the newest backwards, a stretch of the ledger at a time.
//!
//! No index of this file serves these filters, because every index is paid for by every commit; `index` is another
//! file. A stretch is one short statement, so a search that finds little neither holds up the checkpoints with an old
//! read transaction nor one of the readers for long; the time limit of all reads ends one that would go through
//! millions.

use crate::decode::RowLabel;
use crate::records::DecisionColumns;
use crate::{entry, in_room, unread_record, weighed};
use model::{Name, ReasonCode, TenantId};
use sqlx::SqlitePool;
use std::ops::Range;
use store::{DecisionFilter, Room, StoreError, StoredDecision};

/// How many entries one statement looks at: some milliseconds.
const STRETCH: i64 = 10_000;

/// A filter as columns can be compared with it.
struct Columns {
    agent: Option<Vec<u8>>,
    tool: Option<String>,
    action: Option<String>,
    /// A JSON array of reason codes.
    reasons: Option<String>,
    run_id: Option<String>,
    from: Option<i64>,
    to: Option<i64>,
}

impl Columns {
    fn of(filter: &DecisionFilter) -> Self {
        let text = |name: &Option<Name>| name.as_ref().map(|name| name.as_str().to_owned());
        Self {
            agent: filter.agent.map(|agent| agent.as_bytes().to_vec()),
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
fn reasons(filter: &DecisionFilter) -> Option<String> {
    if filter.verdict.is_none() && filter.reason.is_none() {
        return None;
    }
    let fits = |code: &&ReasonCode| {
        filter.verdict.is_none_or(|verdict| code.verdict() == verdict)
            && filter.reason.is_none_or(|reason| **code == reason)
    };
    let words: Vec<_> = ReasonCode::ALL
        .iter()
        .filter(fits)
        .map(|code| format!("\"{}\"", code.as_str()))
        .collect();
    Some(format!("[{}]", words.join(",")))
}

/// Decisions that match, newest first.
pub(crate) async fn decisions(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &DecisionFilter,
    before_seq: Option<u64>,
    limit: u32,
) -> Result<Vec<StoredDecision>, StoreError> {
    let Some((tenant_no, head_seq)) = range(readers, tenant).await? else {
        return Ok(Vec::new());
    };
    let columns = Columns::of(filter);
    let before = before_seq
        .and_then(|seq| i64::try_from(seq).ok())
        .unwrap_or(i64::MAX);
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let first = entry::number(tenant_no, 0).ok_or_else(|| full(tenant_no))?;
    let after = filter
        .after_seq
        .map_or(0, |seq| i64::try_from(seq).unwrap_or(i64::MAX));
    let mut end = first + before.min(head_seq + 1);
    let first = first.saturating_add(after).saturating_add(1);
    let (mut found, mut room) = (Vec::new(), Room::default());
    while end > first && found.len() < wanted && room.is_left() {
        let start = first.max(end - STRETCH);
        let left = u32::try_from(wanted - found.len()).unwrap_or(limit);
        found.extend(stretch(readers, &columns, start..end, left, &mut room).await?);
        end = start;
    }
    Ok(found)
}

/// The decisions among these entries, newest first.
pub(crate) async fn decisions_at(
    readers: &SqlitePool,
    tenant: TenantId,
    seqs: &[u64],
) -> Result<Vec<StoredDecision>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    // A larger one would be an entry of the next tenant.
    let seqs = seqs.iter().filter(|seq| **seq <= entry::SEQ_MAX.cast_unsigned());
    let seqs: Vec<String> = seqs.map(ToString::to_string).collect();
    let seqs = format!("[{}]", seqs.join(","));
    // CROSS JOIN keeps the order: from the entries that are asked for to the rows, each by its primary key.
    let rows = sqlx::query_as!(
        DecisionColumns,
        "SELECT
             decisions.entry,
             decisions.id,
             decisions.agent,
             decisions.tool,
             decisions.action,
             decisions.reason,
             decisions.run_id,
             decisions.ask,
             audit_events.at,
             audit_events.hash,
             audit_events.body,
             audit_events.packed
         FROM tenants
         CROSS JOIN json_each(?2) AS asked
         CROSS JOIN decisions
             ON decisions.entry = (tenants.tenant_no << 40) + asked.value
         CROSS JOIN audit_events
             ON audit_events.entry = decisions.entry
         WHERE tenants.tenant_id = ?1
         ORDER BY decisions.entry DESC",
        tenant_id,
        seqs,
    )
    .fetch(readers);
    in_room(rows, &mut Room::default(), weighed_decision).await
}

/// A tenant's number, and the last `seq` of its chain.
async fn range(readers: &SqlitePool, tenant: TenantId) -> Result<Option<(i64, i64)>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let row = sqlx::query!(
        "SELECT tenant_no, head_seq FROM tenants WHERE tenant_id = ?1",
        tenant_id
    )
    .fetch_optional(readers)
    .await
    .map_err(unread_record)?;
    Ok(row.map(|row| (row.tenant_no, row.head_seq)))
}

fn weighed_decision(row: DecisionColumns) -> Result<(StoredDecision, usize), StoreError> {
    row.decode().map(weighed)
}

/// Decisions among these entries, the newest first.
async fn stretch(
    readers: &SqlitePool,
    columns: &Columns,
    entries: Range<i64>,
    limit: u32,
    room: &mut Room,
) -> Result<Vec<StoredDecision>, StoreError> {
    let rows = sqlx::query_as!(
        DecisionColumns,
        r#"SELECT
               decisions.entry,
               decisions.id,
               decisions.agent,
               decisions.tool,
               decisions.action,
               decisions.reason,
               decisions.run_id,
               decisions.ask,
               audit_events.at,
               audit_events.hash,
               audit_events.body,
               audit_events.packed
           FROM decisions
           CROSS JOIN audit_events
               ON audit_events.entry = decisions.entry
           WHERE decisions.entry >= ?1
             AND decisions.entry < ?2
             AND (?3 IS NULL OR decisions.agent = ?3)
             AND (?4 IS NULL OR decisions.tool = ?4)
             AND (?5 IS NULL OR decisions.action = ?5)
             AND (?6 IS NULL OR decisions.reason IN (SELECT value FROM json_each(?6)))
             AND (?7 IS NULL OR decisions.run_id = ?7)
             AND (?8 IS NULL OR audit_events.at >= ?8)
             AND (?9 IS NULL OR audit_events.at < ?9)
           ORDER BY decisions.entry DESC
           LIMIT ?10"#,
        entries.start,
        entries.end,
        columns.agent,
        columns.tool,
        columns.action,
        columns.reasons,
        columns.run_id,
        columns.from,
        columns.to,
        limit,
    )
    .fetch(readers);
    in_room(rows, room, weighed_decision).await
}

fn full(tenant_no: i64) -> StoreError {
    let label = RowLabel {
        table: "tenants",
        row: tenant_no,
    };
    label.corrupt("tenant_no", "is beyond what an entry can be numbered by")
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
        assert_eq!(reasons(&filter).as_deref(), Some("[\"unknown_tool\"]"));
        filter.verdict = Some(Verdict::Allow);
        assert_eq!(reasons(&filter).as_deref(), Some("[]"));
    }
}
