//! `GET /v1/decisions` and `GET /v1/decisions/{id}`: what was decided, newest first.
//!
//! A decision is shown as its ledger entry tells it. Parameters are not in there, only their digest.

use crate::gateway::Gateway;
use crate::http::query::{ListQuery, invalid};
use crate::http::{Json, Page, Refusal};
use crate::reader::Reader;
use crate::records::times::first_since;
use crate::search::page::{self, Found, Wanted};
use axum::extract::{Path, State};
use canon::Digest;
use model::{AgentId, DecisionId, Name, ReasonCode, TenantId, Timestamp, Verdict};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use store::{DecisionFilter, Store, StoredDecision};

/// The longest text that is searched for, in bytes.
const TEXT_BYTES_MAX: usize = 256;

/// What an agent does not learn: which tools are traps, what policies on trial would have said, and how users, teams,
/// agents and tools are registered. Records have no salt: whoever guesses what is in one sees by its digest that it
/// is so.
const HIDDEN_FROM_AGENTS: [&str; 6] = ["canary", "delegators", "facts", "granted", "shadow", "user_teams"];

/// Which decisions to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    agent: Option<AgentId>,
    tool: Option<Name>,
    action: Option<Name>,
    decision: Option<Verdict>,
    reason_code: Option<ReasonCode>,
    run_id: Option<Name>,
    user: Option<Name>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    q: Option<String>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// A decision: what its entry says, and where the entry stands.
#[derive(Debug, Serialize)]
pub struct Decision {
    #[serde(rename = "decision_id")]
    id: DecisionId,
    seq: u64,
    at: Timestamp,
    hash: Digest,
    /// The members are as they were hashed: an agent may have made them large, and as trees they are many times that.
    #[serde(flatten)]
    body: BTreeMap<String, Box<RawValue>>,
}

/// Lists decisions. What it looks at is fixed now: what is recorded meanwhile belongs to no page.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    query: ListQuery<Filter>,
) -> Result<Json<Page<Decision>>, Refusal> {
    let limit = query.page.limit()?;
    let before: Option<u64> = query.page.after()?;
    let times = query.filter.times()?;
    let words = query.filter.words()?;
    let user = query.filter.user.clone();
    let Some(filter) = only_own(query.filter.into_filter(), reader) else {
        return Ok(Json(Page::empty()));
    };
    let store = &*gateway.store;
    let wanted = Wanted {
        filter,
        user,
        words,
        seqs: seqs(store, reader.tenant, times, before).await?,
        limit,
    };
    let Found { decisions, next } = page::find(store, reader.tenant, wanted).await?;
    let items = decisions.iter().map(|decision| Decision::of(decision, reader));
    let items = items.collect::<Result<_, _>>()?;
    Ok(Json(Page {
        items,
        next_cursor: next.map(|seq| seq.to_string()),
    }))
}

/// The entries that were recorded in a time, before the one where the last page ended.
async fn seqs(
    store: &dyn Store,
    tenant: TenantId,
    (from, to): (Option<Timestamp>, Option<Timestamp>),
    before: Option<u64>,
) -> Result<Range<u64>, Refusal> {
    let head = store.head(tenant).await?.seq;
    let start = match from {
        None => 1,
        Some(from) => first_since(store, tenant, head, from).await?,
    };
    let end = match to {
        None => head + 1,
        Some(to) => first_since(store, tenant, head, to).await?,
    };
    Ok(start..end.min(before.unwrap_or(u64::MAX)))
}

/// Shows one decision.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Json<Decision>, Refusal> {
    let decision = reader.decision(&*gateway.store, &id).await?;
    Decision::of(&decision, reader).map(Json)
}

/// The filter as far as this reader may see; `None` if nothing is left of it.
fn only_own(filter: DecisionFilter, reader: Reader) -> Option<DecisionFilter> {
    match filter.agent {
        Some(asked) if !reader.may_read(asked) => None,
        asked => Some(DecisionFilter {
            agent: reader.agent.or(asked),
            ..filter
        }),
    }
}

impl Filter {
    fn times(&self) -> Result<(Option<Timestamp>, Option<Timestamp>), Refusal> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            return Err(invalid(format!(
                "`from` is not before `to`: there is no time from `{from}` to before `{to}`"
            )));
        }
        Ok((self.from, self.to))
    }

    fn words(&self) -> Result<Vec<String>, Refusal> {
        let Some(text) = &self.q else {
            return Ok(Vec::new());
        };
        if !(1..=TEXT_BYTES_MAX).contains(&text.len()) {
            return Err(invalid(format!("`q` is a text of 1 to {TEXT_BYTES_MAX} bytes")));
        }
        let words = engine::search::words(text);
        if words.is_empty() {
            return Err(invalid(
                "`q` has no letter and no digit, so there is nothing to look for",
            ));
        }
        Ok(words)
    }

    fn into_filter(self) -> DecisionFilter {
        DecisionFilter {
            agent: self.agent,
            tool: self.tool,
            action: self.action,
            verdict: self.decision,
            reason: self.reason_code,
            run_id: self.run_id,
            ..DecisionFilter::default()
        }
    }
}

impl Decision {
    fn of(stored: &StoredDecision, reader: Reader) -> Result<Self, Refusal> {
        let body = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(&stored.body);
        let mut body = body.map_err(|error| {
            // In the words of the parser it could quote what is in it.
            let (seq, at) = (stored.seq, error.column());
            tracing::error!(seq, at, "the entry of a decision could not be read, at byte {at}");
            Refusal::ledger_unavailable()
        })?;
        // The columns say the same; `/v1/ledger/verify` checks that they do. The salt says nothing.
        for member in ["decision_id", "seq", "at", "hash", "salt"] {
            body.remove(member);
        }
        if reader.agent.is_some() {
            for member in HIDDEN_FROM_AGENTS {
                body.remove(member);
            }
        }
        Ok(Self {
            id: stored.id,
            seq: stored.seq,
            at: stored.at,
            hash: stored.hash,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: AgentId = AgentId::from_bytes([1; 16]);
    const OTHER: AgentId = AgentId::from_bytes([2; 16]);

    const NOTHING: &str = "nothing is left of the filter";

    fn seen(agent: Option<AgentId>, asked: Option<AgentId>) -> Result<Option<AgentId>, &'static str> {
        let reader = Reader {
            tenant: model::TenantId::SYSTEM,
            agent,
        };
        let filter = DecisionFilter {
            agent: asked,
            ..DecisionFilter::default()
        };
        only_own(filter, reader).map(|filter| filter.agent).ok_or(NOTHING)
    }

    #[test]
    fn an_agent_sees_its_own_whatever_it_asks_for() {
        assert_eq!(seen(Some(OWN), None), Ok(Some(OWN)));
        assert_eq!(seen(Some(OWN), Some(OWN)), Ok(Some(OWN)));
        assert_eq!(seen(Some(OWN), Some(OTHER)), Err(NOTHING));
    }

    #[test]
    fn an_auditor_sees_whose_it_asks_for() {
        assert_eq!(seen(None, None), Ok(None));
        assert_eq!(seen(None, Some(OTHER)), Ok(Some(OTHER)));
    }
}
