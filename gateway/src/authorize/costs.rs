//! What an ask costs: whom it counts against, and what is held for it when it is allowed.
//!
//! Whom it counts against comes from the credential and the registry. What an ask says itself is its run, and a run adds budgets
//! and takes none away.

use super::JudgedAsk;
use crate::gateway::Gateway;
use crate::http::Refusal;
use engine::budgets::cost::{Cost, Costed, Hold};
use engine::budgets::{FoundBudgets, KnownBudgets};
use engine::{Ask, Mode, Salt};
use model::budget::Subject;
use model::reservation::TTL_MS_DEFAULT;
use model::{Agent, DecisionId, ReservationId, TenantId, Unit, Verdict};
use std::sync::Arc;

/// What an ask costs, if it says so.
pub(super) fn cost(agent: &Agent, ask: &Ask) -> Option<Cost> {
    let estimate = ask.estimate.as_ref()?;
    Some(Cost {
        subject: Subject {
            tool: Some(ask.action.tool.clone()),
            run_id: ask.run_id.clone(),
            parent_run_id: ask.parent_run_id.clone(),
            ..Subject::of_agent(agent)
        },
        unit: estimate.unit.clone(),
        amount: estimate.amount,
    })
}

impl JudgedAsk<'_> {
    /// The hold that is made when the decision is recorded, with what its records are made of. `None` unless it is an
    /// enforced allow with an estimate.
    pub(super) fn costed(
        &self,
        id: DecisionId,
        reservation: ReservationId,
        salt: Salt,
    ) -> Option<Box<Costed>> {
        if self.judgement.verdict() != Verdict::Allow || self.ask.mode != Mode::Enforce {
            return None;
        }
        let hold = Hold {
            id: reservation,
            cost: cost(self.agent, self.ask)?,
            ttl_ms: self.ask.ttl_ms.unwrap_or(TTL_MS_DEFAULT),
            decision_id: Some(id),
        };
        Some(Box::new(Costed {
            hold,
            ask: Arc::clone(self.ask),
            agent: Arc::clone(self.agent),
            judgement: self.judgement.clone(),
            tenant: Arc::clone(self.tenant),
            now: self.now,
            salt,
        }))
    }
}

impl Gateway {
    /// The budgets that something counts against in a unit, as they are now.
    pub(crate) async fn budgets_for(
        &self,
        tenant: TenantId,
        subject: &Subject,
        unit: &Unit,
    ) -> Result<KnownBudgets, Refusal> {
        let mut known = self.ancestry_of(tenant, subject).await?;
        let scopes = subject.scopes(&known.ancestry(tenant, subject)).into_iter();
        let scopes = scopes.map(|scope| (scope, Some(unit.clone()))).collect();
        self.look_at(tenant, (Vec::new(), scopes), &mut known).await?;
        Ok(known)
    }

    /// What is known of the runs that something counts against, and nothing else. A run is linked once and never again,
    /// so this may be read before the rest.
    pub(crate) async fn ancestry_of(
        &self,
        tenant: TenantId,
        subject: &Subject,
    ) -> Result<KnownBudgets, Refusal> {
        let mut known = KnownBudgets::default();
        let named = [&subject.run_id, &subject.parent_run_id].into_iter().flatten();
        let runs: Vec<_> = named.map(|run| (tenant, run.clone())).collect();
        if !runs.is_empty() {
            known.learn_all(FoundBudgets {
                links: self.store.run_links(&runs).await?,
                ..FoundBudgets::default()
            });
        }
        Ok(known)
    }
}
