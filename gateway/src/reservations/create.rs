//! `POST /v1/reservations`: holds an amount in every budget that it counts against, or in none.

use super::{check_granted, check_granted_to_delegators, check_standing};
use crate::budgets::moving::Answer;
use crate::gateway::Gateway;
use crate::http::idempotency::Repeatable;
use crate::http::{AgentCaller, Code, Location, Refusal};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use engine::TenantSnapshot;
use engine::budgets::cost::{Cost, Hold};
use engine::budgets::moves::Move;
use model::budget::Subject;
use model::reservation::{TTL_MS, TTL_MS_DEFAULT};
use model::{Amount, Directory, Name, ReservationId, SlashFreeName, Unit};
use serde::Deserialize;
use std::sync::Arc;

/// What is to be held.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    unit: Unit,
    amount: Amount,
    ttl_ms: Option<u64>,
    tool: Option<SlashFreeName>,
    #[serde(default, deserialize_with = "model::name::new_segment_if_any")]
    run_id: Option<Name>,
    #[serde(default, deserialize_with = "model::name::new_segment_if_any")]
    parent_run_id: Option<Name>,
}

impl Body {
    /// Nothing is held for what was stopped: the agent, those in whose name it asks, the run, the one that started it,
    /// or the tool.
    fn check_standing(&self, tenant: &TenantSnapshot, caller: &AgentCaller) -> Result<(), Refusal> {
        check_standing(tenant, caller)?;
        let runs = [&self.run_id, &self.parent_run_id].into_iter().flatten();
        check_none_stopped(&tenant.directory, runs, self.tool.as_ref())
    }
}

/// Holds it.
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    request: Repeatable<Body>,
) -> Result<(Option<Location>, Answer), Refusal> {
    let body = &request.body;
    let ttl_ms = check_ttl(body.ttl_ms.unwrap_or(TTL_MS_DEFAULT))?;
    let repeat = request.repeat(caller.tenant, *caller.agent.id.as_bytes());
    let held = gateway.move_budgets(None, caller.tenant, repeat.clone(), |tenant| {
        body.check_standing(tenant, &caller)?;
        let agent = caller.refresh(tenant, gateway.clock.now())?;
        check_granted(tenant, &agent, body.tool.as_ref())?;
        check_granted_to_delegators(tenant, &caller, body.tool.as_ref())?;
        Ok(Move::Reserve(Hold {
            id: ReservationId::new(gateway.clock.now(), &*gateway.entropy),
            cost: Cost {
                subject: Subject {
                    tool: body.tool.clone(),
                    run_id: body.run_id.clone(),
                    parent_run_id: body.parent_run_id.clone(),
                    ..Subject::of_agent(&agent)
                },
                unit: body.unit.clone(),
                amount: body.amount,
            },
            ttl_ms,
            decision_id: None,
        }))
    });
    let answer = match held.await {
        Ok(answer) => answer,
        // The same request may have held it while the tool was granted.
        Err(refusal) if refusal.code() == Code::Forbidden => {
            caller.check(&gateway)?;
            let tenant = gateway.tenant(caller.tenant)?;
            body.check_standing(&tenant, &caller)?;
            gateway.answered_before(repeat.as_ref()).await?.ok_or(refusal)?
        }
        Err(refusal) => return Err(refusal),
    };
    let location = Location::of_answer("/v1/reservations", &answer);
    Ok((location, Answer(StatusCode::CREATED, answer)))
}

/// Refuses to hold something for a run or a tool that was stopped.
pub(super) fn check_none_stopped<'n>(
    directory: &Directory,
    runs: impl IntoIterator<Item = &'n Name>,
    tool: Option<&'n SlashFreeName>,
) -> Result<(), Refusal> {
    let runs = runs.into_iter();
    let runs = runs.filter_map(|run| Some((run.as_str(), &directory.runs.get(run)?.standing)));
    let tool = tool.into_iter();
    let tool = tool.filter_map(|tool| Some((tool.as_str(), &directory.tools.get(tool)?.standing)));
    match runs.chain(tool).find(|(_, standing)| !standing.is_active()) {
        None => Ok(()),
        Some((name, standing)) => {
            let detail = format!("`{name}` is {}, so nothing is held for it", standing.as_str());
            Err(Refusal::new(Code::Forbidden, detail))
        }
    }
}

/// How long something is held.
pub(super) fn check_ttl(ttl_ms: u64) -> Result<u64, Refusal> {
    if TTL_MS.contains(&ttl_ms) {
        return Ok(ttl_ms);
    }
    let (least, most) = (TTL_MS.start(), TTL_MS.end());
    let detail = format!("`/ttl_ms`: should be from {least} to {most} milliseconds");
    Err(Refusal::new(Code::InvalidField, detail))
}
