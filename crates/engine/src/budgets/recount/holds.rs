//! What is held while entries are counted, reservation by reservation: each has to be settled as it was held.
//!
//! What an erased decision held is not known, nor what an erased outcome settled. Neither is called wrong.

use super::{Body, Held};
use crate::entry_kind::EntryKind;
use model::{Amount, BudgetId, ReservationId};
use std::collections::BTreeMap;

/// What is held and not settled yet.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// With what an erased outcome has settled.
    open: BTreeMap<ReservationId, Hold>,
    /// Whether entries were passed that cannot be read any more, and may have held or settled something.
    is_incomplete: bool,
}

/// How much is held, and in which budgets.
#[derive(Debug, PartialEq, Eq)]
struct Hold {
    amount: Amount,
    budgets: Vec<BudgetId>,
}

/// A reservation that is settled otherwise than it was held.
pub(super) struct Unlike {
    /// Which.
    pub(super) reservation: ReservationId,
    /// Where it was held, and where it is settled.
    pub(super) budgets: Vec<BudgetId>,
}

impl Holds {
    /// An entry is passed that cannot be read any more.
    pub(super) const fn lose_count(&mut self) {
        self.is_incomplete = true;
    }

    /// Follows an entry that moves what is held. Returns what it does not settle as it was held.
    pub(super) fn follow(&mut self, kind: EntryKind, body: &Body) -> Option<Unlike> {
        let hold = |amount| Hold {
            amount,
            budgets: body.balances.iter().map(|told| told.budget).collect(),
        };
        match (kind, &body.reservation) {
            (EntryKind::Decision, Some(Held::Made { id, amount })) => {
                self.open.insert(*id, hold(*amount));
                None
            }
            (EntryKind::ReservationCreated, Some(Held::Named(id))) => {
                self.open.insert(*id, hold(body.amount?));
                None
            }
            (
                EntryKind::ReservationCommitted
                | EntryKind::ReservationReleased
                | EntryKind::ReservationExpired,
                Some(Held::Named(id)),
            ) => self.settle(*id, hold(body.amount?)),
            (EntryKind::OutcomeReported, _) => {
                let settled = body.settled.as_ref()?;
                self.settle(settled.reservation?, hold(settled.held))
            }
            _ => None,
        }
    }

    fn settle(&mut self, reservation: ReservationId, settled: Hold) -> Option<Unlike> {
        let held = self.open.remove(&reservation);
        // An outcome that comes after the end of its reservation settles nothing of it.
        let is_late = settled.amount == Amount::ZERO;
        let fits = match &held {
            Some(held) => *held == settled || (is_late && self.is_incomplete),
            None => is_late || self.is_incomplete,
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
}
