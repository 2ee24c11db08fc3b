//! Searching decisions: from the newest backwards, a stretch of the ledger at a time.
//!
//! No index serves these filters, because every index is paid for by every commit. A stretch is one short statement,
//! so a search that finds little neither keeps old versions of rows alive nor one of the readers busy for long; the time
//! limit of all reads ends one that would go through millions.

use crate::connections::Connections;
use crate::decode::uuid;
use crate::records::DecisionColumns;
use model::{Name, ReasonCode, TenantId};
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{DecisionFilter, StoreError, StoredDecision};

/// How many entries one statement looks at: some tens of milliseconds when bodies are searched.
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
    /// A pattern for ILIKE that lets through all that [`contains`] does.
    pattern: Option<String>,
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
            pattern: filter.text.as_deref().map(pattern),
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

/// Bodies are compared byte by byte, so ILIKE knows the case of ASCII only. Every other character stands for anything here
/// and is compared afterwards.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for character in text.chars() {
        match character {
            '%' | '_' | '\\' => pattern.extend(['\\', character]),
            // In lower case the Kelvin sign is a `k`, and the Turkish `İ` begins with an `i`. No text of PostgreSQL's has a NUL.
            'k' | 'K' | 'i' | 'I' | '\0' => pattern.push('%'),
            _ if character.is_ascii() => pattern.push(character),
            _ => pattern.push('%'),
        }
    }
    pattern.push('%');
    pattern
}

/// Whether a body holds a text that is given in lower case.
fn contains(body: &str, lowercase: &str) -> bool {
    body.to_lowercase().contains(lowercase)
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
    let text = filter.text.as_deref().map(str::to_lowercase);
    let before = before_seq
        .and_then(|seq| i64::try_from(seq).ok())
        .unwrap_or(i64::MAX);
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut end = before.min(head_seq.saturating_add(1));
    let mut found = Vec::new();
    while end > 0 && found.len() < wanted {
        let start = 0.max(end - STRETCH);
        let mut rest = end;
        // A stretch is read again from where a page of it ended if the text took out some of the page.
        loop {
            let rows = stretch(readers, tenant, &columns, start..rest, limit).await?;
            let is_last_page = rows.len() < wanted;
            rest = rows.last().map_or(start, |row| row.seq);
            let matching = rows
                .into_iter()
                .filter(|row| text.as_deref().is_none_or(|text| contains(&row.body, text)));
            for row in matching.take(wanted - found.len()) {
                found.push(row.decode(tenant)?);
            }
            if is_last_page || found.len() == wanted {
                break;
            }
        }
        end = start;
    }
    Ok(found)
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
               audit_events.at,
               audit_events.hash,
               audit_events.body
           FROM decisions
           JOIN audit_events
               ON audit_events.tenant_id = decisions.tenant_id
              AND audit_events.seq = decisions.seq
           WHERE decisions.tenant_id = $1
             AND decisions.seq >= $2
             AND decisions.seq < $3
             AND ($4::uuid IS NULL OR decisions.agent = $4)
             AND ($5::text IS NULL OR decisions.tool = $5)
             AND ($6::text IS NULL OR decisions.action = $6)
             AND ($7::text[] IS NULL OR decisions.reason = ANY ($7))
             AND ($8::text IS NULL OR decisions.run_id = $8)
             AND ($9::bigint IS NULL OR audit_events.at >= $9)
             AND ($10::bigint IS NULL OR audit_events.at < $10)
             AND ($11::text IS NULL OR audit_events.body ILIKE $11 ESCAPE '\')
           ORDER BY decisions.seq DESC
           LIMIT $12"#,
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
            columns.pattern.as_deref(),
            i64::from(limit),
        )
    };
    readers.read(query).await
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

    #[test]
    fn a_pattern_takes_wildcards_literally_and_lets_other_scripts_through() {
        assert_eq!(pattern("100%_a\\b"), "%100\\%\\_a\\\\b%");
        assert_eq!(pattern("Zoë\0"), "%Zo%%%");
    }

    #[test]
    fn only_i_and_k_are_lower_cases_of_other_scripts() {
        let foreign = (char::MIN..=char::MAX).filter(|character| !character.is_ascii());
        let mut ascii: Vec<char> = foreign
            .flat_map(char::to_lowercase)
            .filter(char::is_ascii)
            .collect();
        ascii.sort_unstable();
        assert_eq!(ascii, ['i', 'k']);
    }

    #[test]
    fn a_text_is_found_whatever_its_case() {
        assert!(contains("{\"a\":\"ÄRGER\"}", "ärger"));
        assert!(contains("\u{212A}elvin", "kelvin"));
        assert!(!contains("{}", "a"));
    }
}
