//! How anything that moves budgets is recorded, and what a caller is told who may not move them.

use crate::changes::By;
use crate::directory::check_in_use;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use crate::sequencer::CommitStatus;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::budgets::cost::{Lacking, Where};
use engine::budgets::moves::{BudgetConflict, BudgetMove, Move, Repeat};
use engine::proposal::Intent;
use engine::{Conflict, Proposal, TenantSnapshot};
use model::TenantId;
use model::budget::BudgetError;
use serde_json::json;

/// An answer whose bytes are on disk, or were when they were given first.
pub struct Answer(pub StatusCode, pub Bytes);

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        (self.0, [(header::CONTENT_TYPE, json)], self.1).into_response()
    }
}

/// A proposal that budgets move.
pub(super) fn proposal(tenant: &TenantSnapshot, what: Move, repeat: Option<Repeat>) -> Proposal {
    Proposal::of(tenant, Intent::Budget(Box::new(BudgetMove { what, repeat })))
}

impl Gateway {
    /// Makes a move and returns the answer to whoever asked for it. `make` may be called more than once, each time with the
    /// directory as it is, and looks whether an agent may still do it; of anybody else, whom `by` names, that is looked at
    /// before. A tenant that is gone has no budgets.
    pub(crate) async fn move_budgets(
        &self,
        by: Option<By<'_>>,
        tenant: TenantId,
        repeat: Option<Repeat>,
        make: impl Fn(&TenantSnapshot) -> Result<Move, Refusal>,
    ) -> Result<Bytes, Refusal> {
        let moving = self.record_current(by, move |snapshot| {
            let known = crate::gateway::tenant(snapshot, tenant)?;
            let what = make(known)?;
            check_in_use(&known.directory.tenant)?;
            Ok(proposal(known, what, repeat.clone()))
        });
        match moving.await? {
            CommitStatus::Recorded(proof) => Ok(proof.into_answer()),
            CommitStatus::Repeated(answer) => Ok(answer),
            CommitStatus::Conflict(Conflict::Budget(conflict)) => Err((*conflict).into()),
            CommitStatus::Conflict(_) => {
                let detail = "this key was used for another request; a new request needs a new key";
                Err(Refusal::new(Code::IdempotencyKeyReused, detail))
            }
        }
    }

    /// The answer that was given to the same request before, if it is still known. Who must not be given an earlier answer is
    /// refused before this is asked.
    pub(crate) async fn answered_before(&self, repeat: Option<&Repeat>) -> Result<Option<Bytes>, Refusal> {
        let Some(Repeat { key, request }) = repeat else {
            return Ok(None);
        };
        let found = self.store.reply(key).await?;
        let same = found.filter(|reply| reply.request == *request);
        Ok(same.map(|reply| reply.bytes))
    }
}

impl From<BudgetConflict> for Refusal {
    fn from(conflict: BudgetConflict) -> Self {
        match conflict {
            BudgetConflict::NoBudget => Self::new(Code::NotFound, "there is no such budget"),
            BudgetConflict::NoReservation => Self::new(Code::NotFound, "there is no such reservation"),
            BudgetConflict::ScopeTaken(id, scope) => Self::new(
                Code::BudgetExists,
                format!("`{id}` is the budget of the {scope} in this unit; change it, or close it first"),
            ),
            BudgetConflict::Lacking(lacking) => lacking.into(),
            BudgetConflict::Budget(place, error) => changed(&place, error),
            BudgetConflict::Expired(at) => Self::new(
                Code::ReservationExpired,
                format!(
                    "the reservation ended at {at}, and what it held was given back; report what was spent as `actual` with the outcome of its decision, or if it has none with `POST /v1/usage`"
                ),
            ),
            BudgetConflict::Settled(status) => Self::new(
                Code::ReservationSettled,
                format!(
                    "the reservation is {} already, and that is final",
                    status.as_str()
                ),
            ),
            BudgetConflict::OtherAmount(before) => Self::new(
                Code::AmountMismatch,
                format!("the reservation was committed with {before}, and is committed once"),
            ),
            BudgetConflict::OtherUnit(unit) => Self::new(
                Code::UnitMismatch,
                format!("the reservation is in `{unit}`; send the amount in that unit"),
            ),
            BudgetConflict::NotOverdue => Self::new(Code::Conflict, "the reservation has not expired"),
        }
    }
}

impl From<Lacking> for Refusal {
    fn from(lacking: Lacking) -> Self {
        let detail = format!("{lacking}. {}", lacking.advice());
        match lacking {
            Lacking::NotFound { .. } => Self::new(Code::BudgetNotFound, detail),
            Lacking::Frozen(place) => located(Self::new(Code::BudgetFrozen, detail), &place),
            Lacking::Exceeded(place) => located(Self::new(Code::BudgetExceeded, detail), &place),
            Lacking::MoreThanHeld { place, held, .. } => {
                located(Self::new(Code::BudgetExceeded, detail), &place).with_member("held", json!(held))
            }
            Lacking::Overflow(_) => Self::new(Code::AmountOverflow, detail),
        }
    }
}

/// A refusal to change a budget.
fn changed(place: &Where, error: BudgetError) -> Refusal {
    let refusal = |code| Refusal::new(code, error.to_string());
    match error {
        BudgetError::Overflow(_) => refusal(Code::AmountOverflow),
        BudgetError::Exceeded { .. } | BudgetError::NothingLeft => {
            located(refusal(Code::BudgetExceeded), place)
        }
        BudgetError::Held { held } => {
            located(refusal(Code::BudgetExceeded), place).with_member("held", json!(held))
        }
        BudgetError::Closed => refusal(Code::Conflict),
    }
}

/// With the members that programs read: which budget, how much was wanted and how much there is.
fn located(refusal: Refusal, place: &Where) -> Refusal {
    refusal
        .with_member("budget_id", json!(place.budget))
        .with_member("remaining", json!(place.remaining))
        .with_member("requested", json!(place.requested))
        .with_member("scope", json!(place.scope))
        .with_member("unit", json!(place.unit))
}
