//! `POST /v1/reservations/{id}/commit`, `/release` and `/extend`: what becomes of what is held.

use super::create::{check_none_stopped, check_ttl};
use super::{check_granted, check_granted_to_delegators, check_standing};
use crate::budgets::moving::Answer;
use crate::gateway::Gateway;
use crate::http::idempotency::Repeatable;
use crate::http::{AgentCaller, Code, Refusal};
use crate::reader::before_change;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use bytes::Bytes;
use engine::budgets::moves::{Move, Repeat, SettleStep};
use model::{AgentId, Estimate, Name, ReservationId, SlashFreeName, TenantId};
use serde::Deserialize;
use std::sync::Arc;
use store::{Store, StoreError};

/// What was spent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitBody {
    actual: Estimate,
}

/// Nothing to say.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReleaseBody {}

/// How long it is held, from now on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExtendBody {
    ttl_ms: u64,
}

/// What a reservation is for, of what can be stopped.
struct HeldFor {
    /// Its run, and the one that started that.
    runs: Vec<Name>,
    tool: Option<SlashFreeName>,
}

/// Charges what was spent and gives back the rest.
pub async fn commit(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Path(id): Path<String>,
    request: Repeatable<CommitBody>,
) -> Result<Answer, Refusal> {
    let Estimate { unit, amount } = &request.body.actual;
    let step = SettleStep::Commit(unit.clone(), *amount);
    gateway.settle(&caller, &id, &request, step).await
}

/// Gives back everything.
pub async fn release(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Path(id): Path<String>,
    request: Repeatable<ReleaseBody>,
) -> Result<Answer, Refusal> {
    gateway.settle(&caller, &id, &request, SettleStep::Release).await
}

/// Holds it longer, unless it is for what was stopped meanwhile, or with a tool that the agent, or one in whose name it
/// asks, may not use any more.
pub async fn extend(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Path(id): Path<String>,
    request: Repeatable<ExtendBody>,
) -> Result<Answer, Refusal> {
    let step = SettleStep::Extend(check_ttl(request.body.ttl_ms)?);
    gateway.settle(&caller, &id, &request, step).await
}

impl Gateway {
    async fn settle<T>(
        &self,
        caller: &AgentCaller,
        id: &str,
        request: &Repeatable<T>,
        step: SettleStep,
    ) -> Result<Answer, Refusal> {
        let id: ReservationId = id.parse().map_err(|_| Refusal::not_found("reservation", id))?;
        let repeat = request.repeat(caller.tenant, *caller.agent.id.as_bytes());
        let held = match step {
            SettleStep::Extend(_) => {
                let (store, tenant, agent) = (Arc::clone(&self.store), caller.tenant, caller.agent.id);
                let look = async move { held_by(&*store, tenant, agent, id).await };
                before_change(self, caller, look).await??
            }
            SettleStep::Commit(..) | SettleStep::Release => None,
        };
        let settled = self.move_budgets(None, caller.tenant, repeat.clone(), |tenant| {
            let agent = caller.refresh(tenant, self.clock.now())?;
            if matches!(step, SettleStep::Extend(_)) {
                check_standing(tenant, caller)?;
            }
            if let Some(held) = &held {
                check_none_stopped(&tenant.directory, &held.runs, held.tool.as_ref())?;
                check_granted(tenant, &agent, held.tool.as_ref())?;
                check_granted_to_delegators(tenant, caller, held.tool.as_ref())?;
            }
            Ok(Move::Settle {
                id,
                agent: agent.id,
                step: step.clone(),
            })
        });
        let answer = match (settled.await, &held) {
            (Err(refusal), Some(held)) if refusal.code() == Code::Forbidden => {
                let before = self.held_longer_before(caller, held, repeat.as_ref()).await?;
                before.ok_or(refusal)?
            }
            (settled, _) => settled?,
        };
        Ok(Answer(StatusCode::OK, answer))
    }

    /// What was answered to the same request, which may have held it longer while the tool was granted. For what was
    /// stopped, there is a refusal.
    async fn held_longer_before(
        &self,
        caller: &AgentCaller,
        held: &HeldFor,
        repeat: Option<&Repeat>,
    ) -> Result<Option<Bytes>, Refusal> {
        caller.check(self)?;
        let tenant = self.tenant(caller.tenant)?;
        check_standing(&tenant, caller)?;
        check_none_stopped(&tenant.directory, &held.runs, held.tool.as_ref())?;
        self.answered_before(repeat).await
    }
}

/// What the reservation of an agent with this id is for, if it has one. That can be read beforehand: it never changes,
/// and a run has its parent for good.
async fn held_by(
    store: &dyn Store,
    tenant: TenantId,
    agent: AgentId,
    id: ReservationId,
) -> Result<Option<HeldFor>, StoreError> {
    let found = store.reservation(tenant, id).await?;
    let Some(held) = found.filter(|held| held.agent == agent) else {
        return Ok(None);
    };
    let parent = match &held.run_id {
        Some(run) => parent_of(store, tenant, run).await?,
        None => None,
    };
    Ok(Some(HeldFor {
        runs: held.run_id.into_iter().chain(parent).collect(),
        tool: held.tool,
    }))
}

/// The run that started another, if something that counts against budgets has named it.
async fn parent_of(store: &dyn Store, tenant: TenantId, run: &Name) -> Result<Option<Name>, StoreError> {
    let links = store.run_links(&[(tenant, run.clone())]).await?;
    let link = links.into_iter().find(|(_, link)| link.run_id == *run);
    Ok(link.map(|(_, link)| link.parent))
}
