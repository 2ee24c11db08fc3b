//! Charges: how what was really spent is split into what budgets cover and what they do not.
//!
//! One charge counts against several budgets, and is the same in all of them: what the tightest cannot cover is uncovered in
//! every one. So what was used and what was not covered add up along the tree, whatever the limits at its levels.

use super::Budget;
use crate::amount::Amount;
use serde::{Deserialize, Serialize};

/// What becomes of spending beyond what was reserved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Overage {
    /// A commit of it is refused, and nothing moves. Of what an outcome tells as much is charged as is left.
    Reject,
    /// As much of it is charged as is left.
    AllowIfAvailable,
    /// As much of it is charged as is left, and then down to the overdraft limit below zero.
    AllowWithOverdraft,
}

/// What was spent, and what of it budgets cover.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Charge {
    /// What was spent.
    pub actual: Amount,
    /// What of it the budgets cover.
    pub charged: Amount,
}

/// The budget that refuses a charge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused<'b>(pub &'b Budget);

impl Charge {
    /// Nothing was spent.
    pub const NOTHING: Self = Self {
        actual: Amount::ZERO,
        charged: Amount::ZERO,
    };

    /// What was spent and is not covered.
    pub fn uncovered(self) -> Amount {
        self.actual.minus_or_zero(self.charged)
    }

    /// The charge of `actual` where `held` was reserved in each of these budgets; none if nothing is held there, or no
    /// more. A budget that rejects overage refuses what is more than was held, or, without a reservation, more than is
    /// left.
    pub fn of<'b>(
        budgets: impl IntoIterator<Item = &'b Budget>,
        held: Option<Amount>,
        actual: Amount,
    ) -> Result<Self, Refused<'b>> {
        let mut charged = actual;
        for budget in budgets {
            if budget.overage == Overage::Reject && actual > budget.room_without_overage(held) {
                return Err(Refused(budget));
            }
            charged = charged.min(budget.room(held));
        }
        Ok(Self { actual, charged })
    }

    /// The charge of `actual` where it is known to have been spent and nobody can refuse it: what was held and what is
    /// left beyond it covers it, whatever the overage is.
    pub fn reported<'b>(
        budgets: impl IntoIterator<Item = &'b Budget>,
        held: Option<Amount>,
        actual: Amount,
    ) -> Self {
        let rooms = budgets.into_iter().map(|budget| budget.room(held));
        let charged = rooms.fold(actual, Amount::min);
        Self { actual, charged }
    }
}

impl Budget {
    /// What can be charged here at most, of which `held` was reserved.
    fn room(&self, held: Option<Amount>) -> Amount {
        let overdraft = match self.overage {
            Overage::AllowWithOverdraft => self.overdraft_limit.get(),
            Overage::Reject | Overage::AllowIfAvailable => 0,
        };
        let left = Amount::clamped(held.unwrap_or_default().get() + (self.remaining() + overdraft).max(0));
        // With an overdraft there could be more room than an amount can tell of as used.
        left.min(Amount::MAX.minus_or_zero(self.used))
    }

    /// What can be charged here without overage: what was reserved, also if that was nothing.
    fn room_without_overage(&self, held: Option<Amount>) -> Amount {
        held.unwrap_or_else(|| Amount::clamped(self.remaining()))
    }
}
