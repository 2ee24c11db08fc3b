//! Balances counted again from the entries of a chain, one by one: what is stored must be what the entries come to.
//!
//! Counting follows what happened (this much was put in, held, charged) and not what entries say that it led to; that is
//! compared with at every step. So an entry whose balances do not follow from those before it is found, too.
//!
//! What an erased body held or charged is gone with it. Every balance goes on from what the next entry tells of it, and is said
//! not to be counted up to there.

use crate::entry_kind::EntryKind;
use model::{Amount, Budget, BudgetId};
use serde::Deserialize;
use std::collections::BTreeMap;

/// Balances as far as they were counted.
#[derive(Debug, Default)]
pub struct Recount {
    accounts: BTreeMap<BudgetId, Account>,
    /// The first entry that cannot be read.
    unreadable: Option<u64>,
}

/// What is known of one budget.
#[derive(Debug, Default)]
struct Account {
    counted: Counted,
    /// Whether entries were passed that cannot be read any more and may have moved it.
    is_open: bool,
    /// The entry whose balance was last taken as it is told, because of such entries before it.
    taken_from: Option<u64>,
    /// The first entry that tells another balance. What comes after it says nothing more.
    odd: Option<u64>,
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
    /// The body of an entry about budgets cannot be read, and was not erased.
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

/// A budget that could not be counted all the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uncounted {
    /// Which.
    pub budget: BudgetId,
    /// The entry from which on it is counted; none if nothing tells of it after what was erased.
    pub from: Option<u64>,
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
    carried: Option<Amount>,
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
    /// Counts one entry; its body is none if it was erased. Those of a tenant come in order.
    pub fn entry(&mut self, seq: u64, kind: &str, body: Option<&str>) {
        let Some(kind) = EntryKind::ALL.iter().find(|known| known.as_str() == kind) else {
            return;
        };
        if !may_be_about_budgets(*kind, body) {
            return;
        }
        let Some(body) = body else {
            self.lose_count();
            return;
        };
        let body = serde_json::from_str::<Body>(body).ok();
        if body.and_then(|body| self.count(seq, *kind, &body)).is_none() {
            self.unreadable.get_or_insert(seq);
            self.lose_count();
        }
    }

    /// Something has happened, and nobody knows to which budgets.
    fn lose_count(&mut self) {
        for account in self.accounts.values_mut() {
            account.is_open = true;
        }
    }

    /// Counts what a body says; none if it lacks a member.
    fn count(&mut self, seq: u64, kind: EntryKind, body: &Body) -> Option<()> {
        match (kind, &body.budget) {
            (_, Some(budget)) => self.change(seq, kind, body, budget),
            // What an agent wrote may look like a member of the body from afar.
            (EntryKind::Decision, None) if body.reservation.is_none() => {}
            (EntryKind::OutcomeReported, None) if body.settled.is_none() => {}
            (EntryKind::BudgetRolledOver, None) if body.carried.is_none() => {
                self.take(seq, &body.balances, Counted::roll_over_with_holds);
            }
            (EntryKind::BudgetRolledOver, None) => self.take(seq, &body.balances, Counted::roll_over),
            (kind, None) => {
                let step = step(kind, body)?;
                self.take(seq, &body.balances, |counted| counted.take(&step));
            }
        }
        Some(())
    }

    /// What people did to a budget.
    fn change(&mut self, seq: u64, kind: EntryKind, body: &Body, after: &Budget) {
        let amount = body.amount.map(|amount| i128::from(amount.get()));
        let account = self.accounts.entry(after.id).or_default();
        let counted = &mut account.counted;
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
        account.compare_told(seq, Counted::of(after));
    }

    /// The same step in each of these budgets.
    fn take(&mut self, seq: u64, balances: &[Told], step: impl Fn(&mut Counted)) {
        for told in balances {
            let account = self.accounts.entry(told.budget).or_default();
            step(&mut account.counted);
            account.compare_told(seq, told.balance(account.counted.allotment));
        }
    }

    /// How many budgets there are.
    pub fn len(&self) -> usize {
        self.accounts.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.accounts.is_empty()
    }

    /// Everything that does not add up, of each budget the first: in the entries, and between them and what is stored.
    pub fn compare(&self, stored: &[Budget]) -> Vec<Mismatch> {
        let mut mismatches: Vec<_> = self.unreadable.map(Mismatch::Unreadable).into_iter().collect();
        let odd = self.accounts.iter().filter_map(|(budget, account)| {
            let (seq, budget) = (account.odd?, *budget);
            Some(Mismatch::Entry { seq, budget })
        });
        mismatches.extend(odd);
        for budget in stored {
            match self.accounts.get(&budget.id) {
                None => mismatches.push(Mismatch::NotRecorded(budget.id)),
                Some(account) if account.odd.is_none() && !account.comes_to(Counted::of(budget)) => {
                    mismatches.push(Mismatch::Stored {
                        budget: budget.id,
                        counted: account.counted.to_string(),
                    });
                }
                Some(_) => {}
            }
        }
        let is_stored = |id: &BudgetId| stored.iter().any(|budget| budget.id == *id);
        let missing = self.accounts.keys().filter(|id| !is_stored(id));
        mismatches.extend(missing.map(|id| Mismatch::NotStored(*id)));
        mismatches
    }

    /// The budgets that could not be counted all the way, because bodies were erased or cannot be read.
    pub fn uncounted(&self) -> impl Iterator<Item = Uncounted> {
        self.accounts.iter().filter_map(|(budget, account)| {
            let from = account.taken_from.filter(|_| !account.is_open);
            (account.is_open || from.is_some()).then_some(Uncounted {
                budget: *budget,
                from,
            })
        })
    }
}

impl Account {
    /// Whether this is what the entries come to, as far as they can be read.
    fn comes_to(&self, balance: Counted) -> bool {
        let counted = if self.is_open {
            self.counted.moved_like(&balance)
        } else {
            self.counted
        };
        counted == balance
    }

    /// Compares with what an entry tells. Where the count was lost, it goes on from that.
    fn compare_told(&mut self, seq: u64, told: Counted) {
        if !self.comes_to(told) {
            self.odd.get_or_insert(seq);
        }
        if self.is_open {
            self.counted = self.counted.moved_like(&told);
            self.taken_from = Some(seq);
            self.is_open = false;
        }
    }
}

impl Told {
    /// The balance, with an allotment, which entries about moves do not tell.
    fn balance(&self, allotment: i128) -> Counted {
        let wide = |amount: Amount| i128::from(amount.get());
        Counted {
            allotment,
            allocated: wide(self.allocated),
            reserved: wide(self.reserved),
            used: wide(self.spent) + wide(self.debt),
            uncovered: wide(self.uncovered),
        }
    }
}

/// Whether an entry of this kind may have to do with balances. Of decisions and outcomes most have not, and those whose bodies
/// were erased may.
fn may_be_about_budgets(kind: EntryKind, body: Option<&str>) -> bool {
    let has = |member: &str| body.is_none_or(|body| body.contains(member));
    match kind {
        EntryKind::Decision => has("\"reservation\":{"),
        EntryKind::OutcomeReported => has("\"settled\":{"),
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

    /// What was used beyond what there was is carried into the new period.
    fn roll_over(&mut self) {
        self.begin_with((self.used - self.allocated).max(0));
    }

    /// The same where the entry does not say what was carried: in such a ledger what was held made debt, too.
    fn roll_over_with_holds(&mut self) {
        let debt = (self.reserved + self.used - self.allocated).max(0);
        self.begin_with(debt.min(self.used));
    }

    /// A new period, of which so much is used.
    const fn begin_with(&mut self, carried: i128) {
        self.used = carried;
        self.uncovered = 0;
        self.allocated = self.allotment;
    }

    /// This, with what agents have moved as in another balance. What people have put in is told by entries that are never erased.
    const fn moved_like(&self, other: &Self) -> Self {
        Self {
            allotment: self.allotment,
            allocated: self.allocated,
            reserved: other.reserved,
            used: other.used,
            uncovered: other.uncovered,
        }
    }
}

impl std::fmt::Display for Uncounted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { budget, from } = self;
        match from {
            Some(seq) => write!(
                f,
                "{budget} is counted from entry {seq} on: bodies before it were erased or cannot be read"
            ),
            None => write!(
                f,
                "{budget} is not counted to the end: bodies after the last entry that tells of it were erased or cannot be read"
            ),
        }
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
