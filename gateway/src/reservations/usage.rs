//! `POST /v1/usage`: something was used that had not been held. It has happened, so it counts as far as budgets allow it to, and
//! what they do not cover is told.

use super::check_granted;
use crate::budgets::moving::Answer;
use crate::gateway::Gateway;
use crate::http::idempotency::Repeatable;
use crate::http::{AgentCaller, Code, Refusal};
use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use engine::budgets::cost::Cost;
use engine::budgets::moves::Move;
use model::budget::Subject;
use model::{Amount, Name, SlashFreeName, Unit};
use serde::Deserialize;
use std::sync::Arc;

/// What was used.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Body {
    unit: Unit,
    amount: Amount,
    tool: Option<SlashFreeName>,
    run_id: Option<Name>,
    parent_run_id: Option<Name>,
}

/// Charges it.
pub async fn record(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    request: Repeatable<Body>,
) -> Result<Answer, Refusal> {
    let body = &request.body;
    let repeat = request.repeat(caller.tenant, *caller.agent.id.as_bytes());
    let used = gateway.move_budgets(None, caller.tenant, repeat.clone(), |tenant| {
        let agent = caller.refresh(tenant, gateway.clock.now())?;
        check_granted(tenant, &agent, body.tool.as_ref())?;
        Ok(Move::Use(Cost {
            subject: Subject {
                tool: body.tool.clone(),
                run_id: body.run_id.clone(),
                parent_run_id: body.parent_run_id.clone(),
                ..Subject::of_agent(&agent)
            },
            unit: body.unit.clone(),
            amount: body.amount,
        }))
    });
    let answer = match used.await {
        Ok(answer) => answer,
        // The same request may have told it while the tool was granted.
        Err(refusal) if refusal.code() == Code::Forbidden => {
            caller.check(&gateway)?;
            gateway.answered_before(repeat.as_ref()).await?.ok_or(refusal)?
        }
        Err(refusal) => return Err(refusal),
    };
    Ok(Answer(StatusCode::CREATED, answer))
}
