//! Balances counted again from the entries of a chain, one by one: what is stored must be what the entries come to.
//!
//! Counting follows what happened (this much was put in, held, charged) and not what entries say that it led to; that is
//! compared with at every step. So an entry whose balances do not follow from those before it is found, too.

use crate::entry_kind::EntryKind;
use model::{Amount, Budget, BudgetId};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Balances as far as they were counted.
#[derive(Debug, Default)]
pub struct Recount {
    counted: BTreeMap<BudgetId, Counted>,
}

/// One balance. Wider than amounts, so that nonsense in a ledger is found and does not overflow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counted {
    allotment: i128,
    allocated: i128,
    reserved: i128,
    used: i128,
    uncovered: i128,
}

/// What does not add up.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Mismatch {
    /// The body of an entry about budgets is not there any more, or cannot be read.
    #[error("entry {0} is about budgets and cannot be read, so balances cannot be counted")]
    Unreadable(u64),
    /// An entry tells another balance than those before it come to.
    #[error("entry {seq} tells another balance of {budget} than the entries come to")]
    Entry {
        /// Which.
        seq: u64,
        /// Of which budget.
        budget: BudgetId,
    },
    /// The store holds another balance than the entries come to.
    #[error("the stored balance of {budget} is not what the entries come to: {counted}")]
    Stored {
        /// Of which budget.
        budget: BudgetId,
        /// What they come to.
        counted: String,
    },
    /// The entries tell of a budget that is not stored.
    #[error("{0} is in the ledger and not in the store")]
    NotStored(BudgetId),
    /// A budget is stored that no entry tells of.
    #[error("{0} is in the store and not in the ledger")]
    NotRecorded(BudgetId),
}

/// The members of bodies that are about budgets.
#[derive(Deserialize)]
struct Body {
    #[serde(default)]
    budget: Option<Budget>,
    #[serde(default)]
    balances: Vec<Told>,
    #[serde(default)]
    amount: Option<Amount>,
    #[serde(default)]
    charged: Option<Amount>,
    #[serde(default)]
    uncovered: Option<Amount>,
    #[serde(default)]
    reservation: Option<Held>,
    #[serde(default)]
    settled: Option<Settled>,
}

#[derive(Deserialize)]
struct Told {
    budget: BudgetId,
    allocated: Amount,
    reserved: Amount,
    spent: Amount,
    debt: Amount,
    uncovered: Amount,
}

/// The reservation of a decision, or the id of one.
#[derive(Deserialize)]
#[serde(untagged)]
enum Held {
    Amount { amount: Amount },
    Id(serde::de::IgnoredAny),
}

#[derive(Deserialize)]
struct Settled {
    held: Amount,
    charged: Amount,
    uncovered: Amount,
}

/// What an entry does to each budget that it names.
#[derive(Default)]
struct Step {
    reserved: i128,
    used: i128,
    uncovered: i128,
}

impl Recount {
    /// Counts one entry. Those of a tenant come in order.
    pub fn entry(&mut self, seq: u64, kind: &str, body: &str) -> Result<(), Mismatch> {
        let Some(kind) = EntryKind::ALL.iter().find(|known| known.as_str() == kind) else {
            return Ok(());
        };
        if !is_about_budgets(*kind, body) {
            return Ok(());
        }
        let body: Body = serde_json::from_str(body).map_err(|_| Mismatch::Unreadable(seq))?;
        match (kind, &body.budget) {
            (_, Some(budget)) => self.change(seq, *kind, &body, budget),
            (EntryKind::BudgetRolledOver, None) => {
                for told in &body.balances {
                    self.counted.entry(told.budget).or_default().roll_over();
                }
                self.compare_told(seq, &body.balances)
            }
            (kind, None) => {
                let step = step(*kind, &body).ok_or(Mismatch::Unreadable(seq))?;
                for told in &body.balances {
                    self.counted.entry(told.budget).or_default().take(&step);
                }
                self.compare_told(seq, &body.balances)
            }
        }
    }

    /// What people did to a budget.
    fn change(&mut self, seq: u64, kind: EntryKind, body: &Body, after: &Budget) -> Result<(), Mismatch> {
        let amount = body.amount.map(|amount| i128::from(amount.get()));
        let counted = self.counted.entry(after.id).or_default();
        match (kind, amount) {
            (EntryKind::BudgetCreated, _) => {
                let allocated = i128::from(after.allotment.get());
                *counted = Counted {
                    allotment: allocated,
                    allocated,
                    ..Counted::default()
                };
            }
            (EntryKind::BudgetFunded, Some(amount)) => counted.allocated += amount,
            (EntryKind::BudgetDebited, Some(amount)) => counted.allocated -= amount,
            (EntryKind::BudgetReset, amount) => {
                counted.allotment = amount.unwrap_or(counted.allotment);
                counted.allocated = counted.allotment;
                (counted.used, counted.uncovered) = (0, 0);
            }
            _ => {}
        }
        if *counted == Counted::of(after) {
            Ok(())
        } else {
            Err(Mismatch::Entry {
                seq,
                budget: after.id,
            })
        }
    }

    fn compare_told(&self, seq: u64, balances: &[Told]) -> Result<(), Mismatch> {
        let odd = balances.iter().find(|told| {
            self.counted
                .get(&told.budget)
                .is_none_or(|counted| !counted.is(told))
        });
        odd.map_or(Ok(()), |told| {
            Err(Mismatch::Entry {
                seq,
                budget: told.budget,
            })
        })
    }

    /// How many budgets there are.
    pub fn len(&self) -> usize {
        self.counted.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.counted.is_empty()
    }

    /// Everything in which what is stored differs from what the entries come to.
    pub fn compare(&self, stored: &[Budget]) -> Vec<Mismatch> {
        let mut mismatches = Vec::new();
        for budget in stored {
            match self.counted.get(&budget.id) {
                None => mismatches.push(Mismatch::NotRecorded(budget.id)),
                Some(counted) if *counted != Counted::of(budget) => mismatches.push(Mismatch::Stored {
                    budget: budget.id,
                    counted: counted.to_string(),
                }),
                Some(_) => {}
            }
        }
        let is_stored = |id: &BudgetId| stored.iter().any(|budget| budget.id == *id);
        let missing = self.counted.keys().filter(|id| !is_stored(id));
        mismatches.extend(missing.map(|id| Mismatch::NotStored(*id)));
        mismatches
    }
}

/// Whether an entry of this kind has to do with balances. Of decisions and outcomes only those that say so; their bodies may have
/// been erased, and then a reservation that was held by them is missed later.
fn is_about_budgets(kind: EntryKind, body: &str) -> bool {
    match kind {
        EntryKind::Decision => body.contains("\"reservation\":{"),
        EntryKind::OutcomeReported => body.contains("\"settled\":{"),
        kind => {
            let word = kind.as_str();
            ["budget_", "reservation_", "usage_"]
                .iter()
                .any(|beginning| word.starts_with(beginning))
        }
    }
}

/// What an entry does to the budgets in its balances; none if it lacks a member.
fn step(kind: EntryKind, body: &Body) -> Option<Step> {
    let wide = |amount: Amount| i128::from(amount.get());
    let charge = || Some((wide(body.charged?), wide(body.uncovered?)));
    Some(match kind {
        EntryKind::Decision => match &body.reservation {
            Some(Held::Amount { amount }) => Step {
                reserved: wide(*amount),
                ..Step::default()
            },
            _ => return None,
        },
        EntryKind::ReservationCreated => Step {
            reserved: wide(body.amount?),
            ..Step::default()
        },
        EntryKind::ReservationReleased | EntryKind::ReservationExpired => Step {
            reserved: -wide(body.amount?),
            ..Step::default()
        },
        EntryKind::ReservationCommitted => {
            let (used, uncovered) = charge()?;
            Step {
                reserved: -wide(body.amount?),
                used,
                uncovered,
            }
        }
        EntryKind::UsageRecorded => {
            let (used, uncovered) = charge()?;
            Step {
                reserved: 0,
                used,
                uncovered,
            }
        }
        EntryKind::OutcomeReported => {
            let settled = body.settled.as_ref()?;
            Step {
                reserved: -wide(settled.held),
                used: wide(settled.charged),
                uncovered: wide(settled.uncovered),
            }
        }
        // They tell of balances and change none.
        _ => Step::default(),
    })
}

impl Counted {
    fn of(budget: &Budget) -> Self {
        let wide = |amount: Amount| i128::from(amount.get());
        Self {
            allotment: wide(budget.allotment),
            allocated: wide(budget.allocated),
            reserved: wide(budget.reserved),
            used: wide(budget.used),
            uncovered: wide(budget.uncovered),
        }
    }

    fn take(&mut self, step: &Step) {
        self.reserved += step.reserved;
        self.used += step.used;
        self.uncovered = (self.uncovered + step.uncovered).min(Amount::MAX.get().into());
    }

    /// Debt is carried into the new period.
    fn roll_over(&mut self) {
        let debt = (self.reserved + self.used - self.allocated).max(0);
        self.used = debt.min(self.used);
        self.uncovered = 0;
        self.allocated = self.allotment;
    }

    fn is(&self, told: &Told) -> bool {
        let wide = |amount: Amount| i128::from(amount.get());
        self.allocated == wide(told.allocated)
            && self.reserved == wide(told.reserved)
            && self.used == wide(told.spent) + wide(told.debt)
            && self.uncovered == wide(told.uncovered)
    }
}

impl std::fmt::Display for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            allocated,
            reserved,
            used,
            uncovered,
            ..
        } = self;
        write!(
            f,
            "allocated {allocated}, reserved {reserved}, used {used}, uncovered {uncovered}"
        )
    }
}
