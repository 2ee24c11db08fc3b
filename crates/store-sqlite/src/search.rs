//! Searching decisions: from the newest backwards, a stretch of the ledger at a time.
//!
//! No index serves these filters, because every index is paid for by every commit. A stretch is one short statement,
//! so a search that finds little neither holds up the checkpoints with an old read transaction nor one of the readers
//! for long; the time limit of all reads ends one that would go through millions.

use crate::decode::Place;
use crate::records::DecisionColumns;
use crate::{entry, unavailable};
use model::{Name, ReasonCode, TenantId};
use sqlx::SqlitePool;
use store::{DecisionFilter, StoreError, StoredDecision};

/// How many entries one statement looks at: some tens of milliseconds when bodies are searched.
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
    /// A pattern for LIKE that lets through all that [`contains`] does.
    pattern: Option<String>,
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
            pattern: filter.text.as_deref().map(pattern),
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

/// LIKE knows the case of ASCII only, so every other character stands for anything here and is compared afterwards.
fn pattern(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len() + 2);
    pattern.push('%');
    for character in text.chars() {
        match character {
            '%' | '_' | '\\' => pattern.extend(['\\', character]),
            // In lower case the Kelvin sign is a `k`, and the Turkish `İ` begins with an `i`.
            'k' | 'K' | 'i' | 'I' => pattern.push('%'),
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
    let text = filter.text.as_deref().map(str::to_lowercase);
    let before = before_seq
        .and_then(|seq| i64::try_from(seq).ok())
        .unwrap_or(i64::MAX);
    let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
    let first = entry::number(tenant_no, 0).ok_or_else(|| full(tenant_no))?;
    let mut end = first + before.min(head_seq + 1);
    let mut found = Vec::new();
    while end > first && found.len() < wanted {
        let start = first.max(end - STRETCH);
        let mut rest = end;
        // A stretch is read again from where a page of it ended if the text took out some of the page.
        loop {
            let rows = stretch(readers, &columns, start, rest, limit).await?;
            let is_last_page = rows.len() < wanted;
            rest = rows.last().map_or(start, |row| row.entry);
            let matching = rows
                .into_iter()
                .filter(|row| text.as_deref().is_none_or(|text| contains(&row.body, text)));
            for row in matching.take(wanted - found.len()) {
                found.push(row.decode()?);
            }
            if is_last_page || found.len() == wanted {
                break;
            }
        }
        end = start;
    }
    Ok(found)
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
    .map_err(unavailable)?;
    Ok(row.map(|row| (row.tenant_no, row.head_seq)))
}

/// Decisions from `start` on and before `end`, the newest first.
async fn stretch(
    readers: &SqlitePool,
    columns: &Columns,
    start: i64,
    end: i64,
    limit: u32,
) -> Result<Vec<DecisionColumns>, StoreError> {
    sqlx::query_as!(
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
               audit_events.body
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
             AND (?10 IS NULL OR audit_events.body LIKE ?10 ESCAPE '\')
           ORDER BY decisions.entry DESC
           LIMIT ?11"#,
        start,
        end,
        columns.agent,
        columns.tool,
        columns.action,
        columns.reasons,
        columns.run_id,
        columns.from,
        columns.to,
        columns.pattern,
        limit,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)
}

fn full(tenant_no: i64) -> StoreError {
    let place = Place {
        table: "tenants",
        row: tenant_no,
    };
    place.corrupt("tenant_no", "is beyond what an entry can be numbered by")
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

    #[test]
    fn a_pattern_takes_wildcards_literally_and_lets_other_scripts_through() {
        assert_eq!(pattern("100%_a\\b"), "%100\\%\\_a\\\\b%");
        assert_eq!(pattern("Zoë"), "%Zo%%");
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
