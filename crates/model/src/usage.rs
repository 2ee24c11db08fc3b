//! Usage: how much is used of what an ask counts against, as policies see it.
//!
//! An ask counts against several budgets and quotas. What policies see of budgets is the tightest, and of quotas the tightest of
//! each window: that is the one that will say no first. Values are as of a moment ago, and nothing is held by looking at them.

use crate::amount::{AMOUNT_MAX, Amount, Estimate};
use crate::budget::Budget;
use crate::quota::Window;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is used of a budget.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetUsage {
    /// What there is.
    pub allocated: Amount,
    /// What is left: below zero when more was used than there is.
    pub remaining: i64,
    /// What was used within what there is.
    pub spent: Amount,
}

/// What is used of a quota.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallsUsage {
    /// How many calls are allowed in the window.
    pub limit: u64,
    /// How many there were.
    pub used: u64,
}

/// How much is used of what an ask counts against. As canonical JSON its members stand in the order in which they stand here.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Usage {
    /// The tightest of the budgets in the unit of the estimate, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetUsage>,
    /// The tightest of the quotas of each window that has any.
    #[serde(default)]
    pub calls: BTreeMap<Window, CallsUsage>,
    /// What the ask says it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}

impl BudgetUsage {
    /// What is used of the tightest of these; none if there are none. Of two that have the same left it is the first.
    pub fn tightest<'b>(budgets: impl IntoIterator<Item = &'b Budget>) -> Option<Self> {
        let tightest = budgets.into_iter().min_by_key(|budget| budget.remaining())?;
        Some(Self {
            allocated: tightest.allocated,
            // JSON keeps no more of it exact, and no policy cares how far beyond that it is.
            remaining: tightest.remaining().max(-AMOUNT_MAX),
            spent: tightest.spent(),
        })
    }
}

impl CallsUsage {
    /// How many more calls are allowed.
    pub const fn left(self) -> u64 {
        self.limit.saturating_sub(self.used)
    }
}

impl Usage {
    /// Notes a quota of this window. The one that has the least left counts.
    pub fn note(&mut self, window: Window, calls: CallsUsage) {
        let noted = self.calls.entry(window).or_insert(calls);
        if calls.left() < noted.left() {
            *noted = calls;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::budget::{Overage, Terms};
    use crate::{BudgetId, Scope, Timestamp, Unit};

    fn budget(allocated: i64, used: i64) -> Budget {
        let terms = Terms {
            scope: Scope::default(),
            unit: Unit::new("TOKENS").unwrap(),
            allocated: Amount::clamped(allocated),
            overage: Overage::AllowWithOverdraft,
            overdraft_limit: Amount::MAX,
            period: None,
        };
        Budget {
            used: Amount::clamped(used),
            ..Budget::new(BudgetId::from_bytes([1; 16]), terms, Timestamp::from_millis(0))
        }
    }

    #[test]
    fn of_several_budgets_the_one_with_the_least_left_counts() {
        assert_eq!(BudgetUsage::tightest([]), None);
        let (wide, narrow) = (budget(1_000, 900), budget(60, 10));
        let seen = BudgetUsage::tightest([&wide, &narrow]).unwrap();
        assert_eq!((seen.remaining, seen.spent.get()), (50, 10));
        let indebted = budget(60, 100);
        let seen = BudgetUsage::tightest([&wide, &narrow, &indebted]).unwrap();
        assert_eq!((seen.remaining, seen.spent.get()), (-40, 60));
    }

    #[test]
    fn of_several_quotas_of_a_window_the_one_with_the_least_left_counts() {
        let mut usage = Usage::default();
        let calls = |limit, used| CallsUsage { limit, used };
        usage.note(Window::Day, calls(100, 50));
        usage.note(Window::Day, calls(1_000, 990));
        usage.note(Window::Day, calls(20, 5));
        usage.note(Window::Run, calls(5, 9));
        assert_eq!(usage.calls[&Window::Day], calls(1_000, 990));
        assert_eq!(usage.calls[&Window::Run].left(), 0);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let mut usage = Usage {
            budget: BudgetUsage::tightest([&budget(0, crate::amount::AMOUNT_MAX)]),
            estimate: Some(Estimate {
                unit: Unit::new("TOKENS").unwrap(),
                amount: Amount::MAX,
            }),
            ..Usage::default()
        };
        usage.note(Window::Minute, CallsUsage { limit: 1, used: 0 });
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), usage);
        assert!(serde_json::from_str::<Usage>(r#"{"budgets":{}}"#).is_err());
    }
}
