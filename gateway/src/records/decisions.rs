//! `GET /v1/decisions` and `GET /v1/decisions/{id}`: what was decided, newest first.
//!
//! A decision is shown as its ledger entry tells it. Parameters are not in there, only their digest.

use super::reader::Reader;
use crate::gateway::Gateway;
use crate::http::query::{ListQuery, invalid};
use crate::http::{Json, Page, Refusal};
use axum::extract::{Path, State};
use canon::Digest;
use model::{AgentId, DecisionId, Name, ReasonCode, Timestamp, Verdict};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::sync::Arc;
use store::{DecisionFilter, StoredDecision};

/// The longest text that is searched for, in bytes.
const TEXT_BYTES_MAX: usize = 256;

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
    #[serde(flatten)]
    body: Map<String, Value>,
}

/// Lists decisions.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    query: ListQuery<Filter>,
) -> Result<Json<Page<Decision>>, Refusal> {
    let limit = query.page.limit()?;
    let before = query.page.after()?;
    let filter = query.filter.into_filter()?;
    let Some(filter) = only_own(filter, reader) else {
        return Ok(Json(Page::of([].into_iter(), limit, key, keep)));
    };
    // One more than the page holds tells whether there is a next one.
    let wanted = u32::try_from(limit + 1).unwrap_or(u32::MAX);
    let found = gateway
        .store
        .decisions(reader.tenant, &filter, before, wanted)
        .await?;
    let found = found.iter().map(Decision::of).collect::<Result<Vec<_>, _>>()?;
    Ok(Json(Page::of(found.into_iter(), limit, key, keep)))
}

/// Shows one decision.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Json<Decision>, Refusal> {
    let decision = reader.decision(&*gateway.store, &id).await?;
    Decision::of(&decision).map(Json)
}

fn key(decision: &Decision) -> String {
    decision.seq.to_string()
}

fn keep(decision: Decision) -> Decision {
    decision
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
    fn into_filter(self) -> Result<DecisionFilter, Refusal> {
        if let (Some(from), Some(to)) = (self.from, self.to)
            && from >= to
        {
            return Err(invalid(format!(
                "`from` is not before `to`: there is no time from `{from}` to before `{to}`"
            )));
        }
        if self
            .q
            .as_ref()
            .is_some_and(|text| !(1..=TEXT_BYTES_MAX).contains(&text.len()))
        {
            return Err(invalid(format!("`q` is a text of 1 to {TEXT_BYTES_MAX} bytes")));
        }
        Ok(DecisionFilter {
            agent: self.agent,
            tool: self.tool,
            action: self.action,
            verdict: self.decision,
            reason: self.reason_code,
            run_id: self.run_id,
            from: self.from,
            to: self.to,
            text: self.q,
        })
    }
}

impl Decision {
    fn of(stored: &StoredDecision) -> Result<Self, Refusal> {
        let mut body: Map<String, Value> = serde_json::from_str(&stored.body).map_err(|error| {
            tracing::error!(%error, seq = stored.seq, "the entry of a decision could not be read");
            Refusal::ledger_unavailable()
        })?;
        // The columns say the same; `/v1/ledger/verify` checks that they do.
        for member in ["decision_id", "seq", "at", "hash"] {
            body.remove(member);
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
