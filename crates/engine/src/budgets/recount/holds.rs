//! What is held while entries are counted, reservation by reservation: each has to be settled as it was held.
//!
//! What an erased decision held is not known, nor what an erased outcome settled. Neither is called wrong.

use super::{BudgetBody, Mismatch, ReservationBody};
use crate::entry_kind::EntryKind;
use model::{AgentId, Amount, BudgetId, Reservation, ReservationId, ReservationStatus};
use std::collections::{BTreeMap, BTreeSet};

/// What is held and not settled yet.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// With what an erased outcome has settled.
    open: BTreeMap<ReservationId, HeldAmount>,
    /// How many entries were passed that cannot be read any more, and may have held or settled something.
    lost: u64,
    /// After which entry it was read what is stored as held, if entries may have followed meanwhile.
    read_after: Option<u64>,
    /// What those have moved.
    moving: BTreeSet<ReservationId>,
}

/// How much is held, and in which budgets.
#[derive(Debug)]
struct HeldAmount {
    amount: Amount,
    budgets: Vec<BudgetId>,
    /// By which agent, if that is told.
    agent: Option<AgentId>,
    /// How many entries had been passed when it was held that cannot be read. Where there are more now, one of them may
    /// have settled it.
    lost_before: u64,
}

/// A reservation that is settled otherwise than it was held.
pub(super) struct Unlike {
    /// Which.
    pub(super) reservation: ReservationId,
    /// Where it was held, and where it is settled.
    pub(super) budgets: Vec<BudgetId>,
}

impl Holds {
    /// Nothing yet; what is stored is read after this entry.
    pub(super) fn read_after(seq: u64) -> Self {
        Self {
            read_after: Some(seq),
            ..Self::default()
        }
    }

    /// An entry is passed that cannot be read any more.
    pub(super) const fn lose_count(&mut self) {
        self.lost += 1;
    }

    /// Follows an entry that moves what is held. Returns what it does not settle as it was held.
    pub(super) fn follow(&mut self, seq: u64, kind: EntryKind, body: &BudgetBody) -> Option<Unlike> {
        if self.read_after.is_some_and(|read| read < seq) {
            self.moving.extend(moved(body));
        }
        let lost_before = self.lost;
        let hold = |amount| HeldAmount {
            amount,
            budgets: body.balances.iter().map(|told| told.budget).collect(),
            agent: body.agent,
            lost_before,
        };
        match (kind, &body.reservation) {
            (EntryKind::Decision, Some(ReservationBody::Made { id, amount })) => {
                self.open.insert(*id, hold(*amount));
                None
            }
            (EntryKind::ReservationCreated, Some(ReservationBody::Named(id))) => {
                self.open.insert(*id, hold(body.amount?));
                None
            }
            (
                EntryKind::ReservationCommitted
                | EntryKind::ReservationReleased
                | EntryKind::ReservationExpired,
                Some(ReservationBody::Named(id)),
            ) => self.settle(*id, hold(body.amount?)),
            (EntryKind::OutcomeReported, _) => {
                let settled = body.settled.as_ref()?;
                self.settle(settled.reservation?, hold(settled.held))
            }
            _ => None,
        }
    }

    fn settle(&mut self, reservation: ReservationId, settled: HeldAmount) -> Option<Unlike> {
        let held = self.open.remove(&reservation);
        // An outcome that comes after the end of its reservation settles nothing of it.
        let is_late = settled.amount == Amount::ZERO;
        let fits = match &held {
            Some(held) => held.is_as_much_as(&settled) || (is_late && self.lost > 0),
            None => is_late || self.lost > 0,
        };
        if fits {
            return None;
        }
        let held = held.into_iter().flat_map(|held| held.budgets);
        Some(Unlike {
            reservation,
            budgets: held.chain(settled.budgets).collect(),
        })
    }

    /// What is stored as held otherwise than entries tell, and what they tell that is not stored. What an erased entry
    /// may have settled is not missed, nor is a hold that was made by a decision called wrong where that may have been
    /// erased; and of what was moved while it was read nothing is said.
    pub(super) fn compare(&self, stored: &[Reservation]) -> Vec<Mismatch> {
        let is_unlike = |held: &&Reservation| match self.open.get(&held.id) {
            Some(told) => !told.is_stored_as(held),
            None => self.lost == 0 || held.decision_id.is_none(),
        };
        let unlike = stored.iter().filter(is_unlike).map(|held| held.id);
        let found: BTreeSet<_> = stored.iter().map(|held| held.id).collect();
        let sure = self.open.iter().filter(|(_, told)| told.lost_before == self.lost);
        let missing = sure.map(|(id, _)| *id).filter(|id| !found.contains(id));
        let settled = unlike.chain(missing).filter(|id| !self.moving.contains(id));
        let mismatches = settled.map(|reservation| {
            let told = self.open.get(&reservation);
            let told = told.map_or(Amount::ZERO, |told| told.amount);
            Mismatch::StoredHold { reservation, told }
        });
        mismatches.collect()
    }
}

/// The reservation that an entry is about, if it is about one.
fn moved(body: &BudgetBody) -> Option<ReservationId> {
    match &body.reservation {
        Some(ReservationBody::Made { id, .. } | ReservationBody::Named(id)) => Some(*id),
        None => body.settled.as_ref()?.reservation,
    }
}

impl HeldAmount {
    fn is_as_much_as(&self, other: &Self) -> bool {
        self.amount == other.amount && self.budgets == other.budgets
    }

    fn is_stored_as(&self, stored: &Reservation) -> bool {
        stored.status == ReservationStatus::Active
            && stored.amount == self.amount
            && stored.budgets == self.budgets
            && self.agent.is_none_or(|agent| agent == stored.agent)
    }
}
