//! `POST /v1/decisions/{id}/outcome`: an agent says what became of a decision, once.

use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Created, Json, Refusal};
use crate::sequencer::Recorded;
use axum::Extension;
use axum::extract::{Path, State};
use canon::{Digest, ObjectWriter};
use engine::proposal::Happening;
use engine::{Conflict, EntryKind, Proposal, ProposedEntry};
use model::{DecisionId, Timestamp, Verdict};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How often the entry is proposed again because the directory moved in between.
const ATTEMPTS_MAX: usize = 8;

/// What became of the action.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It was done.
    Succeeded,
    /// It was tried.
    Failed,
    /// It was not even tried.
    NotExecuted,
}

impl Status {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::NotExecuted => "not_executed",
        }
    }
}

/// What an agent reports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    status: Status,
    executed_hash: Option<Digest>,
    output_hash: Option<Digest>,
    actual: Option<engine::ask::Estimate>,
}

/// Where the report stands in the ledger.
#[derive(Debug, Serialize)]
pub struct Reported {
    decision_id: DecisionId,
    status: &'static str,
    /// Whether what was carried out is not what was decided.
    mismatch: bool,
    seq: u64,
    at: Timestamp,
    hash: Digest,
}

/// The one member of a decision's body that a report is compared with.
#[derive(Deserialize)]
struct Decided {
    action_hash: Digest,
}

/// Records what became of a decision of the caller's own.
pub async fn report(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Path(id): Path<String>,
    Json(outcome): Json<Outcome>,
) -> Result<Created<Reported>, Refusal> {
    outcome.check()?;
    let not_found = || Refusal::not_found("decision", &id);
    let id: DecisionId = id.parse().map_err(|_| not_found())?;
    let decision = gateway.store.decision(caller.tenant, id).await?;
    let decision = decision
        .filter(|decision| decision.agent == caller.agent.id)
        .ok_or_else(not_found)?;
    let decided: Decided = serde_json::from_str(&decision.body).map_err(|_| Refusal::ledger_unavailable())?;
    // An action that was not allowed and was carried out all the same is the worst mismatch of all.
    let executed = !matches!(outcome.status, Status::NotExecuted);
    let mismatch = outcome
        .executed_hash
        .is_some_and(|executed| executed != decided.action_hash)
        || executed && decision.reason.verdict() != Verdict::Allow;
    if mismatch {
        gateway.metrics.count_mismatch();
    }
    gateway
        .record_outcome(&caller, id, &outcome, mismatch)
        .await
        .map(Created)
}

impl Outcome {
    fn check(&self) -> Result<(), Refusal> {
        let executed = !matches!(self.status, Status::NotExecuted);
        if executed && self.executed_hash.is_none() {
            let detail = "`executed_hash` is needed unless `status` is `not_executed`";
            return Err(Refusal::new(Code::InvalidField, detail));
        }
        if self
            .actual
            .as_ref()
            .is_some_and(|actual| actual.amount < 0 || actual.unit.is_empty())
        {
            return Err(Refusal::new(
                Code::InvalidField,
                "`actual` needs a unit and an amount that is not negative",
            ));
        }
        Ok(())
    }

    fn entry(&self, caller: &AgentCaller, id: DecisionId, mismatch: bool) -> ProposedEntry {
        let mut body = ObjectWriter::new();
        if let Some(actual) = &self.actual {
            body.object("actual", |member| {
                // As a string: an amount may be larger than a JSON number can hold exactly.
                member.string("amount", &actual.amount.to_string());
                member.string("unit", &actual.unit);
            });
        }
        body.string("agent", &caller.agent.id.to_string());
        body.string("decision_id", &id.to_string());
        if let Some(executed) = &self.executed_hash {
            body.digest("executed_hash", executed);
        }
        body.boolean("mismatch", mismatch);
        if let Some(output) = &self.output_hash {
            body.digest("output_hash", output);
        }
        body.string("status", self.status.as_str());
        ProposedEntry::new(EntryKind::OutcomeReported, body.finish())
    }
}

impl Gateway {
    async fn record_outcome(
        &self,
        caller: &AgentCaller,
        id: DecisionId,
        outcome: &Outcome,
        mismatch: bool,
    ) -> Result<Reported, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let tenant = self.tenant(caller.tenant)?;
            let proposal = Proposal {
                tenant: caller.tenant,
                revision: tenant.revision,
                base: tenant.policies.base_digest(),
                what: Happening::Outcome {
                    entry: outcome.entry(caller, id, mismatch),
                    decision: id,
                },
            };
            match self.sequencer.record(proposal).await? {
                Recorded::Now(receipt) => {
                    return Ok(Reported {
                        decision_id: id,
                        status: outcome.status.as_str(),
                        mismatch,
                        seq: receipt.head().seq,
                        at: receipt.at(),
                        hash: receipt.head().hash,
                    });
                }
                Recorded::Not(Conflict::DirectoryMoved { .. }) => {}
                Recorded::Before(_) | Recorded::Not(_) => {
                    let detail = format!("an outcome of `{id}` was reported before, and there is only one");
                    return Err(Refusal::new(Code::OutcomeReported, detail));
                }
            }
        }
        Err(Refusal::overloaded())
    }
}
