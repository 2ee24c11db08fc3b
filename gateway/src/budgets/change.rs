//! `POST /v1/budgets/{id}/fund`, `/debit`, `/reset`, `/freeze`, `/unfreeze` and `/close`: people change a budget.

use super::moving::Answer;
use crate::directory::standing::Reason;
use crate::gateway::Gateway;
use crate::http::idempotency::{Repeatable, holder_bytes};
use crate::http::{Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::budgets::moves::{BudgetChange, Move};
use model::{Amount, BudgetId};
use serde::Deserialize;
use std::sync::Arc;

/// How much is put in or taken out, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AmountBody {
    amount: Amount,
    reason: Option<Reason>,
}

/// What there is from now on, and why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResetBody {
    allocated: Option<Amount>,
    reason: Option<Reason>,
}

/// Why.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WhyBody {
    reason: Option<Reason>,
}

/// Who wants which budget changed.
type Wanted = (State<Arc<Gateway>>, Extension<TenantCaller>, Path<String>);

/// Puts more in.
pub async fn fund(wanted: Wanted, asked: Repeatable<AmountBody>) -> Result<Answer, Refusal> {
    let AmountBody { amount, reason } = &asked.body;
    change(wanted, &asked, BudgetChange::Fund(*amount), reason.as_ref()).await
}

/// Takes some out.
pub async fn debit(wanted: Wanted, asked: Repeatable<AmountBody>) -> Result<Answer, Refusal> {
    let AmountBody { amount, reason } = &asked.body;
    change(wanted, &asked, BudgetChange::Debit(*amount), reason.as_ref()).await
}

/// Lets it begin anew.
pub async fn reset(wanted: Wanted, asked: Repeatable<ResetBody>) -> Result<Answer, Refusal> {
    let ResetBody { allocated, reason } = &asked.body;
    change(wanted, &asked, BudgetChange::Reset(*allocated), reason.as_ref()).await
}

/// Takes it out of use for a while.
pub async fn freeze(wanted: Wanted, asked: Repeatable<WhyBody>) -> Result<Answer, Refusal> {
    change(wanted, &asked, BudgetChange::Freeze, asked.body.reason.as_ref()).await
}

/// Takes it into use again.
pub async fn unfreeze(wanted: Wanted, asked: Repeatable<WhyBody>) -> Result<Answer, Refusal> {
    change(wanted, &asked, BudgetChange::Unfreeze, asked.body.reason.as_ref()).await
}

/// Takes it out of use for good.
pub async fn close(wanted: Wanted, asked: Repeatable<WhyBody>) -> Result<Answer, Refusal> {
    change(wanted, &asked, BudgetChange::Close, asked.body.reason.as_ref()).await
}

async fn change<T>(
    (State(gateway), Extension(caller), Path(id)): Wanted,
    asked: &Repeatable<T>,
    change: BudgetChange,
    reason: Option<&Reason>,
) -> Result<Answer, Refusal> {
    let id: BudgetId = id.parse().map_err(|_| Refusal::not_found("budget", &id))?;
    let repeat = asked.repeat(caller.tenant(), holder_bytes(caller.holder()));
    let by = caller.holder().by();
    let changed = gateway.move_budgets(Some(by), caller.tenant(), repeat, |_| {
        Ok(Move::Change {
            id,
            change,
            reason: reason.map(|reason| reason.as_str().to_owned()),
            by: by.to_json(),
        })
    });
    Ok(Answer(StatusCode::OK, changed.await?))
}
