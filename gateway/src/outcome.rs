//! `POST /v1/decisions/{id}/outcome`: an agent says what became of a decision, once; and what it really cost.

use crate::changes;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Created, Json, Refusal};
use crate::reader::before_change;
use crate::reservations::may_use;
use crate::sequencer::{CommitProof, CommitStatus};
use axum::Extension;
use axum::extract::{Path, State};
use canon::Digest;
use engine::budgets::cost::Cost;
use engine::budgets::moves::BudgetConflict;
use engine::budgets::report::{self, OutcomeStatus, Settling};
use engine::proposal::Intent;
use engine::{Conflict, Proposal, Salt};
use model::budget::Subject;
use model::{
    Amount, DecisionId, Estimate, Name, ReasonCode, ReservationId, SlashFreeName, Timestamp, Unit, Verdict,
};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;
use store::StoredDecision;

/// What an agent reports.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    status: OutcomeStatus,
    executed_hash: Option<Digest>,
    output_hash: Option<Digest>,
    actual: Option<Estimate>,
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
    /// What became of the reservation.
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Box<RawValue>>,
    /// The budgets that it counts against, as they are afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    balances: Option<Box<RawValue>>,
}

/// What was settled, as the engine tells it.
#[derive(Default, Deserialize)]
struct Settled {
    reservation: Option<Box<RawValue>>,
    balances: Option<Box<RawValue>>,
}

/// The members of a decision's body that a report is about.
#[derive(Deserialize)]
struct Decided {
    action_hash: Digest,
    reservation: Option<Reserved>,
    parent_run_id: Option<Name>,
    estimate: Option<Estimated>,
    /// Whether the tool was a trap.
    #[serde(default)]
    canary: bool,
    /// What would have been decided, where that was only observed.
    would_have: Option<WouldHave>,
}

/// What an ask that was only observed would have been answered.
#[derive(Deserialize)]
struct WouldHave {
    reason_code: ReasonCode,
}

/// What the ask said it may cost; the amount is a text there.
#[derive(Deserialize)]
struct Estimated {
    unit: Unit,
    amount: String,
}

#[derive(Deserialize)]
struct Reserved {
    id: ReservationId,
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
    let (store, tenant) = (Arc::clone(&gateway.store), caller.tenant);
    let look = async move { store.decision(tenant, id).await };
    let decision = before_change(&gateway, &caller, look).await??;
    let decision = decision
        .filter(|decision| decision.agent == caller.agent.id)
        .ok_or_else(not_found)?;
    let decided = Decided::of(&decision)?;
    // An action that was not allowed and was carried out all the same is the worst mismatch of all.
    let executed = outcome.status.was_executed();
    let mismatch = outcome
        .executed_hash
        .is_some_and(|executed| executed != decided.action_hash)
        || executed && decision.reason.verdict() != Verdict::Allow;
    let report = outcome.report(&caller, id, mismatch, Salt::new(&*gateway.entropy));
    let had_tool = decided.shows_grant(decision.reason);
    let settling = outcome.settling(&caller, &decision, decided, &report);
    gateway
        .record_outcome(&caller, &report, settling, had_tool)
        .await
        .map(Created)
}

impl Outcome {
    fn check(&self) -> Result<(), Refusal> {
        if self.status.was_executed() && self.executed_hash.is_none() {
            let detail = "`executed_hash` is needed unless `status` is `not_executed`";
            return Err(Refusal::new(Code::InvalidField, detail));
        }
        Ok(())
    }

    fn report(&self, caller: &AgentCaller, id: DecisionId, mismatch: bool, salt: Salt) -> report::Outcome {
        let actual = self.actual.as_ref();
        report::Outcome {
            decision_id: id,
            agent: caller.agent.id,
            actual: actual.map(|actual| (actual.unit.clone(), actual.amount)),
            executed_hash: self.executed_hash,
            mismatch,
            output_hash: self.output_hash,
            status: self.status,
            salt,
        }
    }

    /// What it has to do with budgets: the reservation of the decision, or what was spent without one.
    fn settling(
        &self,
        caller: &AgentCaller,
        decision: &StoredDecision,
        decided: Decided,
        report: &report::Outcome,
    ) -> Option<Settling> {
        let reservation = decided.reservation.as_ref().map(|reserved| reserved.id);
        let estimated = || decided.estimated().filter(|_| self.status.was_executed());
        let spent = self.actual.clone().or_else(estimated);
        let unreserved = spent.filter(|_| reservation.is_none());
        if reservation.is_none() && unreserved.is_none() {
            return None;
        }
        let cost = unreserved.map(|spent| Cost {
            subject: Subject {
                tool: SlashFreeName::new(decision.tool.as_str()).ok(),
                run_id: decision.run_id.clone(),
                parent_run_id: decided.parent_run_id,
                ..Subject::of_agent(&caller.agent)
            },
            unit: spent.unit,
            amount: spent.amount,
        });
        Some(Settling {
            outcome: report.clone(),
            reservation,
            cost,
        })
    }
}

impl Decided {
    fn of(stored: &StoredDecision) -> Result<Self, Refusal> {
        serde_json::from_str(&stored.body).map_err(|error| {
            // In the words of the parser it could quote what is in it.
            let (seq, at) = (stored.seq, error.column());
            tracing::error!(seq, at, "the entry of a decision could not be read, at byte {at}");
            Refusal::ledger_unavailable()
        })
    }

    /// Whether it shows, with this reason, that the agent had a grant for the tool then. What is decided before that is
    /// looked at does not.
    fn shows_grant(&self, reason: ReasonCode) -> bool {
        let found = self.would_have.as_ref().map_or(reason, |found| found.reason_code);
        found.shows_grant() && !self.canary
    }

    /// What the ask said that it costs. Whoever carries it out and says nothing else is charged that, whatever the decision was.
    fn estimated(&self) -> Option<Estimate> {
        let estimate = self.estimate.as_ref()?;
        let amount = estimate.amount.parse::<i64>().ok()?;
        Some(Estimate {
            amount: Amount::new(amount).ok()?,
            unit: estimate.unit.clone(),
        })
    }
}

impl Gateway {
    /// Records it. `had_tool` says whether the decision shows that the agent had a grant for its tool.
    async fn record_outcome(
        &self,
        caller: &AgentCaller,
        report: &report::Outcome,
        settling: Option<Settling>,
        had_tool: bool,
    ) -> Result<Reported, Refusal> {
        let id = report.decision_id;
        let recording = self.record_current(None, |snapshot| {
            let tenant = crate::gateway::tenant(snapshot, caller.tenant)?;
            let agent = caller.refresh(tenant, self.clock.now())?;
            let mut settling = settling.clone();
            if let Some(cost) = settling.as_mut().and_then(|settling| settling.cost.as_mut()) {
                // The team that the agent is in now: its budgets are those of this revision.
                cost.subject.team.clone_from(&agent.team);
                // What a tool has is for those who may use it, and an ask that is denied makes nobody one of them. What
                // was spent while the tool was granted counts, however late it is told.
                let tool = cost.subject.tool.take();
                cost.subject.tool = tool.filter(|tool| had_tool || may_use(tenant, &agent, tool));
            }
            let outcome = Intent::Outcome {
                entry: report.entry(),
                decision: id,
                mismatch: report.mismatch,
                settling: settling.map(Box::new),
            };
            Ok(Proposal::of(tenant, outcome))
        });
        match recording.await? {
            CommitStatus::Recorded(proof) => Reported::of(report, proof),
            // What was reported before has its answer, whatever amount or unit this one names.
            CommitStatus::Conflict(Conflict::Budget(_))
                if !self.store.outcomes_of(caller.tenant, &[id]).await?.is_empty() =>
            {
                Err(self.reported_before(caller, id).await)
            }
            CommitStatus::Conflict(Conflict::Budget(conflict)) => Err(match *conflict {
                // It has gone with its decision, which was erased a moment ago.
                BudgetConflict::NoReservation => Refusal::not_found("decision", &id.to_string()),
                conflict => Refusal::from(conflict),
            }),
            CommitStatus::Conflict(Conflict::OutcomeReported) => Err(self.reported_before(caller, id).await),
            CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => Err(changes::unexpected()),
        }
    }

    /// Why no outcome of a decision is recorded any more: there is one, or the decision was erased a moment ago. Also
    /// why that could not be found out.
    async fn reported_before(&self, caller: &AgentCaller, id: DecisionId) -> Refusal {
        let (store, tenant) = (Arc::clone(&self.store), caller.tenant);
        let look = async move { store.decision(tenant, id).await };
        let found = before_change(self, caller, look).await;
        match found.and_then(|found| found.map_err(Refusal::from)) {
            Ok(Some(_)) => {
                let detail = format!("an outcome of `{id}` was reported before, and there is only one");
                Refusal::new(Code::OutcomeReported, detail)
            }
            Ok(None) => Refusal::not_found("decision", &id.to_string()),
            Err(refusal) => refusal,
        }
    }
}

impl Reported {
    fn of(report: &report::Outcome, proof: CommitProof) -> Result<Self, Refusal> {
        let (head, at) = (*proof.head(), proof.at());
        let told = proof.into_answer();
        let settled = if told.is_empty() {
            Settled::default()
        } else {
            // INVARIANT: the engine wrote it a moment ago.
            serde_json::from_slice(&told).map_err(|error| {
                let (seq, at) = (head.seq, error.column());
                tracing::error!(
                    seq,
                    at,
                    "what an outcome has settled could not be read, at byte {at}"
                );
                Refusal::ledger_unavailable()
            })?
        };
        Ok(Self {
            decision_id: report.decision_id,
            status: report.status.as_str(),
            mismatch: report.mismatch,
            seq: head.seq,
            at,
            hash: head.hash,
            reservation: settled.reservation,
            balances: settled.balances,
        })
    }
}
