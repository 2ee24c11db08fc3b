//! What answers say about budgets, reservations and usage.

use super::cost::BudgetPart;
use model::{Amount, Budget, BudgetId, Charge, Period, Reservation, ReservationId, Scope, Timestamp, Unit};
use serde::Serialize;

/// A balance as answers tell it.
#[derive(Debug, Serialize)]
pub struct Balance<'b> {
    budget_id: BudgetId,
    scope: &'b Scope,
    unit: &'b Unit,
    allocated: Amount,
    remaining: i64,
    reserved: Amount,
    spent: Amount,
    debt: Amount,
    uncovered: Amount,
}

impl<'b> Balance<'b> {
    /// The balance of a budget.
    pub fn of(budget: &'b Budget) -> Self {
        Self {
            budget_id: budget.id,
            scope: &budget.scope,
            unit: &budget.unit,
            allocated: budget.allocated,
            remaining: budget.remaining(),
            reserved: budget.reserved,
            spent: budget.spent(),
            debt: budget.debt(),
            uncovered: budget.uncovered,
        }
    }
}

/// A budget as answers tell it.
#[derive(Debug, Serialize)]
pub struct BudgetShown<'b> {
    id: BudgetId,
    status: &'static str,
    scope: &'b Scope,
    unit: &'b Unit,
    allocated: Amount,
    remaining: i64,
    reserved: Amount,
    spent: Amount,
    debt: Amount,
    uncovered: Amount,
    overage: model::Overage,
    overdraft_limit: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    period: Option<Period>,
    #[serde(skip_serializing_if = "Option::is_none")]
    period_start: Option<Timestamp>,
    created_at: Timestamp,
}

impl<'b> BudgetShown<'b> {
    /// The whole of a budget.
    pub fn of(budget: &'b Budget) -> Self {
        Self {
            id: budget.id,
            status: budget.status.as_str(),
            scope: &budget.scope,
            unit: &budget.unit,
            allocated: budget.allocated,
            remaining: budget.remaining(),
            reserved: budget.reserved,
            spent: budget.spent(),
            debt: budget.debt(),
            uncovered: budget.uncovered,
            overage: budget.overage,
            overdraft_limit: budget.overdraft_limit,
            period: budget.period,
            period_start: budget.period.map(|_| budget.period_start),
            created_at: budget.created_at,
        }
    }
}

/// A reservation as answers tell it.
#[derive(Debug, Serialize)]
pub struct ReservationShown<'r> {
    id: ReservationId,
    status: &'static str,
    unit: &'r Unit,
    amount: Amount,
    #[serde(skip_serializing_if = "Option::is_none")]
    actual: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    charged: Option<Amount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    uncovered: Option<Amount>,
    agent: model::AgentId,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'r str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_id: Option<model::DecisionId>,
    created_at: Timestamp,
    expires_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    balances: Option<Vec<Balance<'r>>>,
}

impl<'r> ReservationShown<'r> {
    /// A reservation at a time.
    pub fn of(reservation: &'r Reservation, now: Timestamp) -> Self {
        Self {
            id: reservation.id,
            status: reservation.status_at(now).as_str(),
            unit: &reservation.unit,
            amount: reservation.amount,
            actual: reservation.charge.map(|charge| charge.actual),
            charged: reservation.charge.map(|charge| charge.charged),
            uncovered: reservation.charge.map(Charge::uncovered),
            agent: reservation.agent,
            tool: reservation.tool.as_ref().map(model::SlashFreeName::as_str),
            run_id: reservation.run_id.as_ref().map(model::Name::as_str),
            decision_id: reservation.decision_id,
            created_at: reservation.created_at,
            expires_at: reservation.expires_at,
            balances: None,
        }
    }

    /// With the budgets that it is held in.
    pub(super) fn with<'b: 'r>(mut self, budgets: impl IntoIterator<Item = &'b Budget>) -> Self {
        self.balances = Some(budgets.into_iter().map(Balance::of).collect());
        self
    }
}

/// What was used, as the answer tells it.
#[derive(Debug, Serialize)]
pub(super) struct UsageShown<'b> {
    unit: &'b Unit,
    amount: Amount,
    charged: Amount,
    uncovered: Amount,
    balances: Vec<Balance<'b>>,
}

impl<'b> UsageShown<'b> {
    pub(super) fn of(unit: &'b Unit, charge: Charge, budgets: &'b [Budget]) -> Self {
        Self {
            unit,
            amount: charge.actual,
            charged: charge.charged,
            uncovered: charge.uncovered(),
            balances: budgets.iter().map(Balance::of).collect(),
        }
    }
}

/// The members of the answer to an ask.
#[derive(Debug, Serialize)]
pub(crate) struct AnswerPart<'p> {
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<Held<'p>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    balances: Vec<Balance<'p>>,
}

#[derive(Debug, Serialize)]
struct Held<'p> {
    id: ReservationId,
    unit: &'p Unit,
    amount: Amount,
    expires_at: Timestamp,
}

impl<'p> AnswerPart<'p> {
    pub(super) fn of(part: &'p BudgetPart) -> Self {
        let held = |reservation: &'p Reservation| Held {
            id: reservation.id,
            unit: &reservation.unit,
            amount: reservation.amount,
            expires_at: reservation.expires_at,
        };
        Self {
            reservation: part.reservation.as_ref().map(held),
            balances: part.balances.iter().map(Balance::of).collect(),
        }
    }
}

/// JSON for a caller.
pub(super) fn json(value: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(value)
        .expect("strings and numbers always serialize")
        .into()
}
