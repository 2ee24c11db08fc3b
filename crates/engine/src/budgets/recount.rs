//! Balances counted again from the entries of a chain, one by one: what is stored must be what the entries come to.
//!
//! Counting follows what happened (this much was put in, held, charged) and not what entries say that it led to; that is
//! compared with at every step. So an entry whose balances do not follow from those before it is found, too.
//!
//! - `holds`: what is held, and that it is stored and settled as it was;
//! - `terms`: what a budget is beside its balance, and what it is looked for by.
//!
//! What is stored may be read while entries follow. Then a budget has to be what it was at one of them.
//!
//! What an erased body held or charged is gone with it. Every balance goes on from what the next entry tells of it, and is said
//! not to be counted up to there.

mod holds;
mod terms;

use crate::entry_kind::EntryKind;
use holds::{Holds, Unlike};
use ledger::is_erasable;
use model::{AgentId, Amount, Budget, BudgetId, Reservation, ReservationId, Timestamp};
use serde::Deserialize;
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use store::BudgetPlace;

/// Balances as far as they were counted.
#[derive(Debug, Default)]
pub struct Recount {
    accounts: BTreeMap<BudgetId, Account>,
    holds: Holds,
    /// The first entry that cannot be read.
    unreadable: Option<u64>,
    /// After which entry budgets were read as they are stored, if entries may have followed meanwhile.
    read_after: Option<u64>,
}

/// What is known of one budget.
#[derive(Debug, Clone, Default)]
struct Account {
    counted: Counted,
    /// The budget as people and its periods have left it; none if no entry tells that it was made. Its amounts are
    /// those that it was made with: they are counted apart.
    told: Option<Budget>,
    /// Whether entries were passed that cannot be read any more and may have moved it.
    is_open: bool,
    /// The entry whose balance was last taken as it is told, because of such entries before it.
    taken_from: Option<u64>,
    /// What the first entry tells that does not follow. What comes after it says nothing more.
    odd: Option<Mismatch>,
    /// The account before each entry that the store may not have had when it was read: the stored budget may be as any
    /// of these. They have none of their own.
    earlier: Vec<Self>,
    /// Whether the first entry that tells of it came while what is stored may have been read.
    is_new: bool,
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
    /// The body of an entry about budgets cannot be read, and was not erased; or it is gone, and is of a kind that is
    /// never erased.
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
    /// An entry tells of other terms or another status than those before it lead to.
    #[error("entry {seq} tells other terms of {budget} than the entries come to: {told}")]
    Terms {
        /// Which.
        seq: u64,
        /// Of which budget.
        budget: BudgetId,
        /// What they come to, where it is unlike.
        told: String,
    },
    /// An entry settles another amount than was held, or in other budgets.
    #[error("entry {seq} settles {reservation} otherwise than it was held in {budget}")]
    Hold {
        /// Which.
        seq: u64,
        /// In which budget.
        budget: BudgetId,
        /// What was held there.
        reservation: ReservationId,
    },
    /// The store holds another balance than the entries come to.
    #[error("the stored balance of {budget} is not what the entries come to: {counted}")]
    Stored {
        /// Of which budget.
        budget: BudgetId,
        /// What they come to.
        counted: String,
    },
    /// The store holds other terms or another status than the entries tell.
    #[error("the stored terms of {budget} are not what the entries come to: {told}")]
    StoredTerms {
        /// Of which budget.
        budget: BudgetId,
        /// What they come to, where it is unlike.
        told: String,
    },
    /// The store looks for a budget by something else than the entries tell.
    #[error("the columns of {budget} are not what the entries come to: {told}")]
    Misplaced {
        /// Which.
        budget: BudgetId,
        /// What they come to, where it is unlike.
        told: String,
    },
    /// The store holds something else for a reservation than the entries tell, or it is held in only one of the two.
    #[error("what is stored of {reservation} is not what the entries come to: {told} held")]
    StoredHold {
        /// Which.
        reservation: ReservationId,
        /// How much is held as they tell it.
        told: Amount,
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
struct BudgetBody {
    #[serde(default)]
    agent: Option<AgentId>,
    #[serde(default)]
    budget: Option<Budget>,
    #[serde(default)]
    balances: Vec<StatedBalance>,
    #[serde(default)]
    amount: Option<Amount>,
    #[serde(default)]
    carried: Option<Amount>,
    #[serde(default)]
    periods: Option<i64>,
    #[serde(default)]
    period_start: Option<Timestamp>,
    #[serde(default)]
    charged: Option<Amount>,
    #[serde(default)]
    uncovered: Option<Amount>,
    #[serde(default)]
    reservation: Option<ReservationBody>,
    #[serde(default)]
    settled: Option<SettledBody>,
}

/// What an entry says that one budget has after it.
#[derive(Deserialize)]
struct StatedBalance {
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
enum ReservationBody {
    Made { id: ReservationId, amount: Amount },
    Named(ReservationId),
}

#[derive(Deserialize)]
struct SettledBody {
    #[serde(default)]
    reservation: Option<ReservationId>,
    held: Amount,
    charged: Amount,
    uncovered: Amount,
}

/// What an entry does to each budget that it names.
#[derive(Default)]
struct Delta {
    reserved: i128,
    used: i128,
    uncovered: i128,
}

impl Recount {
    /// Counts from nothing. What is stored as held was read when the entry `holds` was the last one, or later, and the
    /// budgets when `budgets` was, or later; both no later than the last one that is counted. So a budget may be stored
    /// as it was at any entry from `budgets` on. Of what is held nothing is compared that others after `holds` have
    /// moved.
    pub fn of_what_was_read_after(holds: u64, budgets: u64) -> Self {
        Self {
            holds: Holds::read_after(holds),
            read_after: Some(budgets),
            ..Self::default()
        }
    }

    /// Counts one entry; its body is none if it is gone. Those of a tenant come in order.
    pub fn entry(&mut self, seq: u64, kind: &str, body: Option<&str>) {
        let Some(kind) = EntryKind::from_word(kind) else {
            return;
        };
        if !may_be_about_budgets(kind, body) {
            return;
        }
        let Some(body) = body else {
            // INVARIANT: only what agents asked and what came of it is erased. Another body that is gone was taken away,
            // and the count would go on from whatever the next entry tells.
            if !is_erasable(kind.as_str()) {
                self.unreadable.get_or_insert(seq);
            }
            self.lose_count();
            return;
        };
        let body = serde_json::from_str::<BudgetBody>(body).ok();
        if body.and_then(|body| self.count(seq, kind, &body)).is_none() {
            self.unreadable.get_or_insert(seq);
            self.lose_count();
        }
    }

    /// Something has happened, and nobody knows to which budgets.
    fn lose_count(&mut self) {
        self.holds.lose_count();
        for account in self.accounts.values_mut() {
            account.is_open = true;
        }
    }

    /// Counts what a body says; none if it lacks a member.
    fn count(&mut self, seq: u64, kind: EntryKind, body: &BudgetBody) -> Option<()> {
        match (kind, &body.budget) {
            (_, Some(budget)) => self.change(seq, kind, body, budget),
            // What an agent wrote may look like a member of the body from afar.
            (EntryKind::Decision, None) if body.reservation.is_none() => {}
            (EntryKind::OutcomeReported, None) if body.settled.is_none() => {}
            (EntryKind::BudgetRolledOver, None) => self.roll_over(seq, body),
            (kind, None) => {
                let delta = delta(kind, body)?;
                if let Some(unlike) = self.holds.follow(seq, kind, body) {
                    self.note_unlike(seq, &unlike);
                }
                self.take(seq, &body.balances, &delta);
            }
        }
        Some(())
    }

    /// The account of a budget that an entry is about to move. What it was before stays where it may have been read so.
    fn account(&mut self, seq: u64, budget: BudgetId) -> &mut Account {
        let may_be_read = self.read_after.is_some_and(|read| read < seq);
        match self.accounts.entry(budget) {
            Entry::Vacant(vacant) => vacant.insert(Account {
                is_new: may_be_read,
                ..Account::default()
            }),
            Entry::Occupied(occupied) => {
                let account = occupied.into_mut();
                if may_be_read {
                    account.keep();
                }
                account
            }
        }
    }

    /// What people did to a budget.
    fn change(&mut self, seq: u64, kind: EntryKind, body: &BudgetBody, after: &Budget) {
        let amount = body.amount.map(|amount| i128::from(amount.get()));
        let account = self.account(seq, after.id);
        account.compare_terms(seq, kind, after);
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
        account.compare_told(seq, after.id, Counted::of(after));
    }

    /// Moves each of these budgets by this.
    fn take(&mut self, seq: u64, balances: &[StatedBalance], delta: &Delta) {
        for told in balances {
            let account = self.account(seq, told.budget);
            account.counted.take(delta);
            account.compare_told(seq, told.budget, told.balance(account.counted.allotment));
        }
    }

    /// New periods began in each of these budgets.
    fn roll_over(&mut self, seq: u64, body: &BudgetBody) {
        for told in &body.balances {
            let account = self.account(seq, told.budget);
            account.roll_over(body);
            account.compare_told(seq, told.budget, told.balance(account.counted.allotment));
        }
    }

    /// An entry does not settle something as it was held in these budgets.
    fn note_unlike(&mut self, seq: u64, unlike: &Unlike) {
        for id in &unlike.budgets {
            if let Some(account) = self.accounts.get_mut(id) {
                account.odd.get_or_insert(Mismatch::Hold {
                    seq,
                    budget: *id,
                    reservation: unlike.reservation,
                });
            }
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
        mismatches.extend(self.accounts.values().filter_map(|account| account.odd.clone()));
        for budget in stored {
            match self.accounts.get(&budget.id) {
                None => mismatches.push(Mismatch::NotRecorded(budget.id)),
                Some(account) => mismatches.extend(account.compare_stored(budget)),
            }
        }
        let found: BTreeSet<_> = stored.iter().map(|budget| budget.id).collect();
        let missing = self.accounts.iter().filter(|(id, account)| {
            // One that was made meanwhile may have been read past.
            !found.contains(id) && !account.is_new
        });
        mismatches.extend(missing.map(|(id, _)| Mismatch::NotStored(*id)));
        mismatches
    }

    /// By what budgets are looked for otherwise than entries tell, each by what stands in its own row; nothing is said
    /// of one whose entries are odd.
    pub fn compare_places(&self, stored: &[Budget], places: &[BudgetPlace]) -> Vec<Mismatch> {
        let misplaced = stored.iter().zip(places).filter_map(|(stored, place)| {
            let account = self.accounts.get(&stored.id);
            let account = account.filter(|account| account.odd.is_none())?;
            let told = account.misplaced(place)?;
            let was_there = |before: &Account| before.misplaced(place).is_none();
            let budget = stored.id;
            (!account.earlier.iter().any(was_there)).then_some(Mismatch::Misplaced { budget, told })
        });
        misplaced.collect()
    }

    /// What is stored as held, which is all that is, otherwise than entries tell.
    pub fn compare_holds(&self, stored: &[Reservation]) -> Vec<Mismatch> {
        self.holds.compare(stored)
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
        if self.is_open {
            // Outcomes only add to these, and what takes from them is told by entries that are never erased.
            let is_less = balance.used < self.counted.used || balance.uncovered < self.counted.uncovered;
            return !is_less && self.counted.moved_like(&balance) == balance;
        }
        self.counted == balance
    }

    /// Keeps what it is as what it was.
    fn keep(&mut self) {
        let mut earlier = std::mem::take(&mut self.earlier);
        earlier.push(self.clone());
        self.earlier = earlier;
    }

    /// In what a stored budget is not what the entries come to, whenever it was read; nothing more is said where one of
    /// them is odd.
    fn compare_stored(&self, stored: &Budget) -> Option<Mismatch> {
        let was_so = |before: &Self| before.unlike(stored).is_none();
        if self.odd.is_some() || self.earlier.iter().any(was_so) {
            return None;
        }
        self.unlike(stored)
    }

    /// By what a budget is looked for otherwise than entries tell of it; none as well if none tells that it was made.
    fn misplaced(&self, place: &BudgetPlace) -> Option<String> {
        terms::misplaced(self.told.as_ref()?, place)
    }

    /// In what a stored budget is not what the entries come to by now.
    fn unlike(&self, stored: &Budget) -> Option<Mismatch> {
        let budget = stored.id;
        if !self.comes_to(Counted::of(stored)) {
            let counted = self.counted.to_string();
            return Some(Mismatch::Stored { budget, counted });
        }
        let told = terms::unlike(self.told.as_ref()?, stored)?;
        Some(Mismatch::StoredTerms { budget, told })
    }

    /// Follows what people did to a budget, but for its balance, and compares with what an entry tells of it.
    fn compare_terms(&mut self, seq: u64, kind: EntryKind, after: &Budget) {
        if kind == EntryKind::BudgetCreated {
            self.told = Some(after.clone());
        }
        let Some(told) = &mut self.told else { return };
        told.status = terms::status_after(kind).unwrap_or(told.status);
        if let Some(told) = terms::unlike(told, after) {
            let budget = after.id;
            self.odd.get_or_insert(Mismatch::Terms { seq, budget, told });
        }
    }

    /// New periods began. What they have left of debt goes by the rule of the version that wrote the entry.
    fn roll_over(&mut self, body: &BudgetBody) {
        let begun = body.period_start.and_then(|start| self.begin(start));
        match (body.carried, body.periods) {
            // What was held then is not known, and nothing held leaves the least debt.
            (None, _) if self.is_open => self.counted.roll_over(1),
            (None, _) => self.counted.roll_over_with_holds(),
            (Some(_), None) => self.counted.roll_over(1),
            // That a number is told says that each period has paid; how many there were, the calendar says.
            (Some(_), Some(told)) => self.counted.roll_over(begun.unwrap_or(told)),
        }
    }

    /// The budget is in the period from now on that begins then. Returns how many have begun, if it is known in which one it was.
    fn begin(&mut self, start: Timestamp) -> Option<i64> {
        let told = self.told.as_mut()?;
        let begun = told.periods_until(start);
        told.period_start = start;
        Some(begun)
    }

    /// Compares with what an entry tells. Where the count was lost, it goes on from that.
    fn compare_told(&mut self, seq: u64, budget: BudgetId, told: Counted) {
        if !self.comes_to(told) {
            self.odd.get_or_insert(Mismatch::Entry { seq, budget });
        }
        if self.is_open {
            self.counted = self.counted.moved_like(&told);
            self.taken_from = Some(seq);
            self.is_open = false;
        }
    }
}

impl StatedBalance {
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
fn delta(kind: EntryKind, body: &BudgetBody) -> Option<Delta> {
    let wide = |amount: Amount| i128::from(amount.get());
    let charge = || Some((wide(body.charged?), wide(body.uncovered?)));
    Some(match kind {
        EntryKind::Decision => match &body.reservation {
            Some(ReservationBody::Made { amount, .. }) => Delta {
                reserved: wide(*amount),
                ..Delta::default()
            },
            _ => return None,
        },
        EntryKind::ReservationCreated => Delta {
            reserved: wide(body.amount?),
            ..Delta::default()
        },
        EntryKind::ReservationReleased | EntryKind::ReservationExpired => Delta {
            reserved: -wide(body.amount?),
            ..Delta::default()
        },
        EntryKind::ReservationCommitted => {
            let (used, uncovered) = charge()?;
            Delta {
                reserved: -wide(body.amount?),
                used,
                uncovered,
            }
        }
        EntryKind::UsageRecorded => {
            let (used, uncovered) = charge()?;
            Delta {
                reserved: 0,
                used,
                uncovered,
            }
        }
        EntryKind::OutcomeReported => {
            let settled = body.settled.as_ref()?;
            Delta {
                reserved: -wide(settled.held),
                used: wide(settled.charged),
                uncovered: wide(settled.uncovered),
            }
        }
        // They tell of balances and change none.
        _ => Delta::default(),
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

    fn take(&mut self, delta: &Delta) {
        self.reserved += delta.reserved;
        self.used += delta.used;
        self.uncovered = (self.uncovered + delta.uncovered).min(Amount::MAX.get().into());
    }

    /// What was used beyond what there was is carried into the last of so many periods, without what those before it have paid.
    fn roll_over(&mut self, periods: i64) {
        let paid = self.allotment * (i128::from(periods) - 1);
        let carried = (self.used - self.allocated).max(0) - paid;
        self.begin_with(carried.max(0));
    }

    /// Begins a period as `roll_over` does, where the entry does not say what was carried: in such a ledger what was
    /// held made debt, too, and one period paid.
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
