//! Budgets: what may be spent of one unit in one scope, and how that changes.
//!
//! - [`scope`]: what a budget is for, and which budgets something counts against;
//! - [`ancestry`]: which run started which;
//! - [`period`]: how often one begins anew;
//! - [`charge`]: how what was really spent is split into what budgets cover and what they do not.
//!
//! A budget holds four amounts: allocated, reserved, used and uncovered. Of what was used, as much as the rest does not leave
//! room for is debt, and the other part is spent: so `remaining = allocated − reserved − spent − debt` holds by construction,
//! and new money pays debt without anybody moving it. Every change is a method that returns the changed budget; nothing is
//! changed where a sum would leave the range of [`Amount`].

pub mod ancestry;
pub mod charge;
pub mod period;
pub mod scope;
#[cfg(test)]
mod tests;

pub use ancestry::RunLink;
pub use charge::{Charge, Overage};
pub use period::Period;
pub use scope::{InvalidScope, SCOPES_MAX, Scope, Subject};

use crate::amount::{Amount, AmountOverflow, Unit};
use crate::id::BudgetId;
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The shares of what is allocated, in percent, that are told of when they are reached.
const THRESHOLDS: [u8; 3] = [50, 80, 100];

/// What may become of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetStatus {
    /// It is in use.
    Active,
    /// Nothing is reserved in it until it is unfrozen. What is held there can be settled.
    Frozen,
    /// It is out of use for good. What is held there can be settled.
    Closed,
}

impl BudgetStatus {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Frozen => "frozen",
            Self::Closed => "closed",
        }
    }
}

/// What somebody makes a budget of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// What it is for.
    pub scope: Scope,
    /// What it is counted in.
    pub unit: Unit,
    /// What there is, in each period if it has one.
    pub allocated: Amount,
    /// What becomes of spending beyond what was reserved.
    pub overage: Overage,
    /// How far below zero that may lead.
    pub overdraft_limit: Amount,
    /// How often it begins anew; never if absent.
    pub period: Option<Period>,
}

/// A budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Its id.
    pub id: BudgetId,
    /// What it is for.
    pub scope: Scope,
    /// What it is counted in.
    pub unit: Unit,
    /// What a new period begins with.
    pub allotment: Amount,
    /// What there is now.
    pub allocated: Amount,
    /// What is held for what has not been settled yet.
    pub reserved: Amount,
    /// What was used of it, debt included.
    pub used: Amount,
    /// What was spent and could not be covered by every budget that it counted against.
    pub uncovered: Amount,
    /// What becomes of spending beyond what was reserved.
    pub overage: Overage,
    /// How far below zero that may lead.
    pub overdraft_limit: Amount,
    /// How often it begins anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// When its period began; when it was made if it has none.
    pub period_start: Timestamp,
    /// What has become of it.
    pub status: BudgetStatus,
    /// When it was made.
    pub created_at: Timestamp,
}

/// Why nothing can be reserved in a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lack {
    /// It is frozen.
    Frozen,
    /// There is not enough left.
    Exceeded,
}

/// Why a budget does not change like this.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// A sum is too large.
    #[error(transparent)]
    Overflow(#[from] AmountOverflow),
    /// More would be taken away than is left.
    #[error("only {remaining} is left, because the rest is held or used; take less, or release what is held")]
    Exceeded {
        /// What is left.
        remaining: i64,
    },
    /// Nothing is left that could be taken away.
    #[error(
        "nothing is left to take, because all of it is held or used; fund the budget, or have what is held settled first"
    )]
    NothingLeft,
    /// It would begin anew with less than is held.
    #[error("{held} is held; reset the budget to at least that, or have what is held settled first")]
    Held {
        /// What is held.
        held: Amount,
    },
    /// It is closed.
    #[error("the budget is closed, and that is for good; make another one")]
    Closed,
}

impl Budget {
    /// A new budget.
    pub fn new(id: BudgetId, terms: Terms, now: Timestamp) -> Self {
        Self {
            id,
            scope: terms.scope,
            unit: terms.unit,
            allotment: terms.allocated,
            allocated: terms.allocated,
            reserved: Amount::ZERO,
            used: Amount::ZERO,
            uncovered: Amount::ZERO,
            overage: terms.overage,
            overdraft_limit: terms.overdraft_limit,
            period: terms.period,
            period_start: terms.period.map_or(now, |period| period.start(now)),
            status: BudgetStatus::Active,
            created_at: now,
        }
    }

    /// The budget as storage keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("a budget has only string keys")
    }

    /// The budget that was kept so.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// What is left: below zero when more was used than there is.
    pub const fn remaining(&self) -> i64 {
        // Three numbers below 2^53: no sum of them leaves 64 bits.
        self.allocated.get() - self.reserved.get() - self.used.get()
    }

    /// What was used beyond what there is.
    pub fn debt(&self) -> Amount {
        Amount::clamped(-self.remaining()).min(self.used)
    }

    /// What the next period begins with as used: what was used beyond what there was. What is held may come back, so it
    /// is no debt yet.
    pub fn carried(&self) -> Amount {
        self.used.minus_or_zero(self.allocated)
    }

    /// What was used within what there is.
    pub fn spent(&self) -> Amount {
        self.used.minus_or_zero(self.debt())
    }

    /// Whether this much can be reserved.
    pub fn check_reserve(&self, amount: Amount) -> Result<(), Lack> {
        match self.status {
            BudgetStatus::Active if self.remaining() >= amount.get() => Ok(()),
            BudgetStatus::Active => Err(Lack::Exceeded),
            BudgetStatus::Frozen | BudgetStatus::Closed => Err(Lack::Frozen),
        }
    }

    /// After this much was reserved. Whether it can be is another question: [`Self::check_reserve`].
    pub fn hold(&self, amount: Amount) -> Result<Self, AmountOverflow> {
        Ok(Self {
            reserved: self.reserved.plus(amount)?,
            ..self.clone()
        })
    }

    /// After what was held is settled by a charge. What has happened is never refused: once more is uncovered than can be told,
    /// the largest amount is.
    #[must_use]
    pub fn settle(&self, held: Amount, charge: Charge) -> Self {
        Self {
            // INVARIANT: whatever is settled was held here before, and no more is charged than there is room for.
            reserved: self.reserved.minus_or_zero(held),
            used: self.used.plus_or_max(charge.charged),
            uncovered: self.uncovered.plus_or_max(charge.uncovered()),
            ..self.clone()
        }
    }

    /// After more was put in. It pays debt.
    pub fn fund(&self, amount: Amount) -> Result<Self, BudgetError> {
        self.check_open()?;
        Ok(Self {
            allocated: self.allocated.plus(amount)?,
            ..self.clone()
        })
    }

    /// After some was taken out again, of what is left.
    pub fn debit(&self, amount: Amount) -> Result<Self, BudgetError> {
        self.check_open()?;
        let left = self.allocated.minus(amount).map(|allocated| Self {
            allocated,
            ..self.clone()
        });
        let exceeded = match self.remaining() {
            remaining @ 1.. => BudgetError::Exceeded { remaining },
            _ => BudgetError::NothingLeft,
        };
        left.filter(|left| left.remaining() >= 0).ok_or(exceeded)
    }

    /// After it began anew: nothing is used, and what is held stays held. With `allocated` that is what there is from now on, in
    /// this period and the next ones.
    pub fn reset(&self, allocated: Option<Amount>) -> Result<Self, BudgetError> {
        self.check_open()?;
        let allotment = allocated.unwrap_or(self.allotment);
        let after = Self {
            allotment,
            allocated: allotment,
            used: Amount::ZERO,
            uncovered: Amount::ZERO,
            ..self.clone()
        };
        if after.remaining() < 0 {
            return Err(BudgetError::Held { held: self.reserved });
        }
        Ok(after)
    }

    /// After it was frozen; none if it is.
    pub fn freeze(&self) -> Result<Option<Self>, BudgetError> {
        self.check_open()?;
        Ok(self.with_status(BudgetStatus::Frozen))
    }

    /// After it was unfrozen; none if it is not frozen.
    pub fn unfreeze(&self) -> Result<Option<Self>, BudgetError> {
        self.check_open()?;
        Ok(self.with_status(BudgetStatus::Active))
    }

    /// After it was closed; none if it is.
    pub fn close(&self) -> Option<Self> {
        self.with_status(BudgetStatus::Closed)
    }

    fn with_status(&self, status: BudgetStatus) -> Option<Self> {
        (self.status != status).then(|| Self {
            status,
            ..self.clone()
        })
    }

    fn check_open(&self) -> Result<(), BudgetError> {
        match self.status {
            BudgetStatus::Active | BudgetStatus::Frozen => Ok(()),
            BudgetStatus::Closed => Err(BudgetError::Closed),
        }
    }

    /// How many of its periods begin after the one that it is in, up to the one that `now` is in; none if it has no period.
    pub fn periods_until(&self, now: Timestamp) -> i64 {
        let period = self.period;
        period.map_or(0, |period| period.begun_between(self.period_start, now))
    }

    /// The budget in the period that `now` is in; none if that has begun already. What was used beyond what there was is carried
    /// over, and what is held stays held; what was put in beyond the allotment is not. Periods that have passed meanwhile pay
    /// debt with their allotment, as if somebody had looked at the budget in each of them.
    pub fn roll_over(&self, now: Timestamp) -> Option<Self> {
        let start = self.period?.start(now);
        if start <= self.period_start || self.status == BudgetStatus::Closed {
            return None;
        }
        let passed = self.periods_until(start) - 1;
        let paid = Amount::clamped(self.allotment.get().saturating_mul(passed));
        Some(Self {
            allocated: self.allotment,
            used: self.carried().minus_or_zero(paid),
            uncovered: Amount::ZERO,
            period_start: start,
            ..self.clone()
        })
    }

    /// The thresholds that were reached since `before`, in percent.
    pub fn reached_since(&self, before: &Self) -> impl Iterator<Item = u8> {
        self.reached_above(before.used_percent())
    }

    /// The thresholds that are reached, in percent: where a period has just begun, by what was carried into it.
    pub fn reached(&self) -> impl Iterator<Item = u8> {
        self.reached_above(0)
    }

    fn reached_above(&self, percent: i128) -> impl Iterator<Item = u8> {
        let new = percent + 1..=self.used_percent();
        let thresholds = THRESHOLDS.into_iter();
        thresholds.filter(move |threshold| new.contains(&i128::from(*threshold)))
    }

    /// The share of what is allocated that is used.
    fn used_percent(&self) -> i128 {
        let used = i128::from(self.used.get()) * 100;
        used.checked_div(self.allocated.get().into()).unwrap_or(0)
    }
}
