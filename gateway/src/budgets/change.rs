//! `POST /v1/budgets/{id}/fund`, `/debit`, `/reset`, `/freeze`, `/unfreeze` and `/close`: people change a budget.

use super::moving::Answer;
use crate::gateway::Gateway;
use crate::http::idempotency::{Repeatable, holder_bytes};
use crate::http::{Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::budgets::moves::{BudgetChange, Move};
use model::{Amount, BudgetId, Name};
use serde::Deserialize;
use std::sync::Arc;

/// How much is put in or taken out, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmountBody {
    amount: Amount,
    reason: Option<Name>,
}

/// What there is from now on, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    allocated: Option<Amount>,
    reason: Option<Name>,
}

/// Why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyBody {
    reason: Option<Name>,
}

/// What the six of them share.
type Gate = State<Arc<Gateway>>;
type Who = Extension<TenantCaller>;

/// Puts more in.
pub async fn fund(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<AmountBody>,
) -> Result<Answer, Refusal> {
    let AmountBody { amount, reason } = &request.body;
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Fund(*amount),
        reason.as_ref(),
    )
    .await
}

/// Takes some out.
pub async fn debit(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<AmountBody>,
) -> Result<Answer, Refusal> {
    let AmountBody { amount, reason } = &request.body;
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Debit(*amount),
        reason.as_ref(),
    )
    .await
}

/// Lets it begin anew.
pub async fn reset(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<ResetBody>,
) -> Result<Answer, Refusal> {
    let ResetBody { allocated, reason } = &request.body;
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Reset(*allocated),
        reason.as_ref(),
    )
    .await
}

/// Takes it out of use for a while.
pub async fn freeze(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<WhyBody>,
) -> Result<Answer, Refusal> {
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Freeze,
        request.body.reason.as_ref(),
    )
    .await
}

/// Takes it into use again.
pub async fn unfreeze(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<WhyBody>,
) -> Result<Answer, Refusal> {
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Unfreeze,
        request.body.reason.as_ref(),
    )
    .await
}

/// Takes it out of use for good.
pub async fn close(
    gate: Gate,
    who: Who,
    id: Path<String>,
    request: Repeatable<WhyBody>,
) -> Result<Answer, Refusal> {
    change(
        gate,
        who,
        id,
        &request,
        BudgetChange::Close,
        request.body.reason.as_ref(),
    )
    .await
}

async fn change<T>(
    State(gateway): Gate,
    Extension(caller): Who,
    Path(id): Path<String>,
    request: &Repeatable<T>,
    change: BudgetChange,
    reason: Option<&Name>,
) -> Result<Answer, Refusal> {
    let id: BudgetId = id.parse().map_err(|_| Refusal::not_found("budget", &id))?;
    let repeat = request.repeat(caller.tenant, holder_bytes(&caller.holder));
    let changed = gateway.move_budgets(caller.tenant, repeat, |_| {
        Ok(Move::Change {
            id,
            change,
            reason: reason.map(ToString::to_string),
            by: caller.holder.by().told(),
        })
    });
    Ok(Answer(StatusCode::OK, changed.await?))
}
