//! Where this gateway has left the chains that it writes, so that it need not ask when it is the only one who does.
//!
//! What is remembered is a guess: storage refuses a batch that is made from a position at which its tenant does not
//! stand any more. So a wrong one costs a round trip and never an entry. What is remembered of a tenant's budgets
//! stands beside the position that it is right at. Chains only grow. One that is shorter than it was left, or ends
//! otherwise at the same length, tells that the store has lost what this gateway has written.

use super::remembered::{NotRemembered, Remembered};
use model::TenantId;
use std::collections::HashMap;
use store::{BudgetRows, ChainPosition, ErasureRow};

/// How many tenants are remembered. With more than these at once every batch has many of them and needs a turn anyway.
const TENANTS_MAX: usize = 1_024;
/// How much is remembered of the budgets of all of them, in things of some hundred bytes. More than is held at once where
/// thousands of reservations a second are settled within some seconds.
const REMEMBERED_MAX: usize = 65_536;

/// Where a tenant was left.
struct Footprint {
    position: ChainPosition,
    /// What is known of its budgets at that position.
    remembered: Remembered,
    /// Whether nobody else had written to it since the time before. Only then is it worth guessing that it is so again: where
    /// several gateways write in turn, most guesses would be wrong.
    is_ours: bool,
}

impl Footprint {
    fn at(position: ChainPosition) -> Self {
        Self {
            position,
            remembered: Remembered::default(),
            is_ours: false,
        }
    }

    /// Whether the store has lost entries of a tenant that was left here and stands there now. That a chain has grown
    /// again since, to more than it was, is not seen.
    fn is_ahead_of(&self, now: &ChainPosition) -> bool {
        let (left, now) = (self.position.head(), now.head());
        now.seq < left.seq || (now.seq == left.seq && now.hash != left.hash)
    }
}

/// Where tenants were left.
#[derive(Default)]
pub(super) struct Footprints(HashMap<TenantId, Footprint>);

impl Footprints {
    /// Where these tenants stand if nobody else has written to them; none if that is not to be expected.
    pub(super) fn positions(&self, tenants: &[TenantId]) -> Option<HashMap<TenantId, ChainPosition>> {
        let position = |tenant: &TenantId| {
            let footprint = self.0.get(tenant).filter(|footprint| footprint.is_ours)?;
            Some((*tenant, footprint.position.clone()))
        };
        tenants.iter().map(position).collect()
    }

    /// Compares where tenants were left with where they turned out to stand. What is read of their budgets from then on can be
    /// remembered. Returns one of those whose entries the store has lost, if there are any.
    pub(super) fn compare(
        &mut self,
        tenants: &[TenantId],
        positions: &HashMap<TenantId, ChainPosition>,
    ) -> Option<TenantId> {
        const GENESIS: &ChainPosition = &ChainPosition::GENESIS;
        self.bound(tenants);
        self.bound_remembered();
        let mut lost = None;
        for tenant in tenants {
            let position = positions.get(tenant).unwrap_or(GENESIS);
            match self.0.get_mut(tenant) {
                Some(footprint) if footprint.position == *position => footprint.is_ours = true,
                // INVARIANT: what is remembered is as it was at this position, so it is forgotten where the position is
                // another one.
                before => {
                    if before.is_some_and(|footprint| footprint.is_ahead_of(position)) {
                        lost = Some(*tenant);
                    }
                    self.0.insert(*tenant, Footprint::at(position.clone()));
                }
            }
        }
        lost
    }

    /// Notes where a committed batch leaves its tenants, and what it wrote of budgets.
    pub(super) fn note(
        &mut self,
        tenants: &[TenantId],
        position: impl Fn(TenantId) -> ChainPosition,
        written: &BudgetRows,
    ) {
        self.bound(tenants);
        for tenant in tenants {
            let position = position(*tenant);
            match self.0.get_mut(tenant) {
                Some(footprint) => footprint.position = position,
                None => drop(self.0.insert(*tenant, Footprint::at(position))),
            }
        }
        if written.is_empty() {
            return;
        }
        self.bound_remembered();
        for (tenant, budget) in &written.budgets {
            self.learn(*tenant, |remembered| remembered.put_budget(budget.clone()));
        }
        for (tenant, reservation) in &written.reservations {
            self.learn(*tenant, |remembered| remembered.put_reservation(reservation));
        }
        for (tenant, link) in &written.links {
            self.learn(*tenant, |remembered| remembered.put_link(link));
        }
    }

    /// Forgets what was erased.
    pub(super) fn forget_erased(&mut self, erasures: &[ErasureRow]) {
        for row in erasures {
            if let Some(id) = row.reservation {
                self.learn(row.tenant, |remembered| remembered.forget_reservation(id));
            }
        }
    }

    /// What is remembered of a tenant's budgets at the position at which it was left.
    pub(super) fn remembered(&self, tenant: TenantId) -> Result<&Remembered, NotRemembered> {
        let footprint = self.0.get(&tenant).ok_or(NotRemembered)?;
        Ok(&footprint.remembered)
    }

    /// Adds to it what is known at that position.
    pub(super) fn learn(&mut self, tenant: TenantId, learn: impl FnOnce(&mut Remembered)) {
        if let Some(footprint) = self.0.get_mut(&tenant) {
            learn(&mut footprint.remembered);
        }
    }

    /// Whether nobody else had written to a tenant since the time before.
    pub(super) fn is_ours(&self, tenant: TenantId) -> bool {
        self.0.get(&tenant).is_some_and(|footprint| footprint.is_ours)
    }

    /// Makes room for these tenants.
    fn bound(&mut self, tenants: &[TenantId]) {
        let new = tenants
            .iter()
            .filter(|tenant| !self.0.contains_key(tenant))
            .count();
        if self.0.len() + new > TENANTS_MAX {
            self.0.clear();
        }
    }

    /// Forgets budgets, and no positions, where they have become too much.
    fn bound_remembered(&mut self) {
        let sizes = self.0.values().map(|footprint| footprint.remembered.size());
        if sizes.sum::<usize>() > REMEMBERED_MAX {
            for footprint in self.0.values_mut() {
                footprint.remembered = Remembered::default();
            }
        }
    }

    /// Forgets when the first reservation of these tenants ends, so that those that should have ended are read again.
    pub(super) fn forget_ends(&mut self, tenants: &[TenantId]) {
        for tenant in tenants {
            self.learn(*tenant, Remembered::forget_first_end);
        }
    }

    /// Guesses no more where anybody stands.
    pub(super) fn doubt_all(&mut self) {
        for footprint in self.0.values_mut() {
            footprint.is_ours = false;
            footprint.remembered = Remembered::default();
        }
    }

    /// Guesses no more where these tenants stand, because nobody knows. Where they were left is what they are compared with.
    pub(super) fn doubt(&mut self, tenants: impl IntoIterator<Item = TenantId>) {
        for tenant in tenants {
            if let Some(footprint) = self.0.get_mut(&tenant) {
                footprint.is_ours = false;
                footprint.remembered = Remembered::default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use ledger::NewEntry;
    use model::budget::Subject;
    use model::{AgentId, Name};

    const TENANT: TenantId = TenantId::SYSTEM;

    fn at(seq: u64) -> HashMap<TenantId, ChainPosition> {
        let mut position = ChainPosition::GENESIS;
        position.revision = seq;
        HashMap::from([(TENANT, position)])
    }

    /// A batch was made from one position and left its tenant at another.
    fn write(footprints: &mut Footprints, from: u64, to: u64) {
        footprints.compare(&[TENANT], &at(from));
        footprints.note(
            &[TENANT],
            |tenant| at(to)[&tenant].clone(),
            &BudgetRows::default(),
        );
    }

    #[test]
    fn a_position_is_guessed_when_it_was_found_as_it_was_left() {
        let mut footprints = Footprints::default();
        assert_eq!(footprints.positions(&[TENANT]), None);
        write(&mut footprints, 3, 5);
        assert_eq!(footprints.positions(&[TENANT]), None);
        write(&mut footprints, 5, 7);
        assert_eq!(footprints.positions(&[TENANT]), Some(at(7)));
        assert_eq!(
            footprints.positions(&[TENANT, TenantId::from_bytes([7; 16])]),
            None
        );
    }

    #[test]
    fn a_position_is_not_guessed_while_others_write_there() {
        let mut footprints = Footprints::default();
        write(&mut footprints, 3, 5);
        write(&mut footprints, 5, 7);
        write(&mut footprints, 9, 12);
        assert_eq!(footprints.positions(&[TENANT]), None);
        write(&mut footprints, 12, 13);
        assert_eq!(footprints.positions(&[TENANT]), Some(at(13)));
    }

    #[test]
    fn a_position_before_the_one_that_was_left_tells_that_entries_are_lost() {
        /// The positions of a chain after each of its entries.
        fn chain(name: &str) -> Vec<HashMap<TenantId, ChainPosition>> {
            let mut position = ChainPosition::GENESIS;
            let entry = NewEntry {
                tenant: "tnt_1",
                kind: name,
                at: "2026-07-01T12:00:00.000Z",
                body: Digest::of(b"{}"),
            };
            let grown = (0..3).map(|_| {
                position.tip.append(&entry, &mut String::new());
                HashMap::from([(TENANT, position.clone())])
            });
            grown.collect()
        }
        let (ours, theirs) = (chain("ours"), chain("theirs"));
        for (found, is_lost) in [
            (&ours[0], true),
            (&ours[1], false),
            (&ours[2], false),
            (&theirs[1], true),
            (&HashMap::new(), true),
        ] {
            let mut footprints = Footprints::default();
            footprints.compare(&[TENANT], &ours[0]);
            footprints.note(
                &[TENANT],
                |tenant| ours[1][&tenant].clone(),
                &BudgetRows::default(),
            );
            footprints.doubt([TENANT]);
            assert_eq!(footprints.positions(&[TENANT]), None);
            let lost = footprints.compare(&[TENANT], found);
            assert_eq!(lost.is_some(), is_lost, "{found:?}");
            assert_eq!(footprints.compare(&[TENANT], found), None, "it is told once");
        }
    }

    #[test]
    fn no_more_tenants_are_remembered_than_the_bound() {
        let mut footprints = Footprints::default();
        for number in 0..2 * TENANTS_MAX as u128 {
            let tenant = TenantId::from_bytes(number.to_be_bytes());
            footprints.note(&[tenant], |_| ChainPosition::GENESIS, &BudgetRows::default());
            assert!(footprints.0.len() <= TENANTS_MAX);
        }
    }

    #[test]
    fn no_more_of_budgets_is_remembered_than_the_bound() {
        let mut footprints = Footprints::default();
        write(&mut footprints, 3, 5);
        footprints.compare(&[TENANT], &at(5));
        let remembers_run = |footprints: &Footprints, number: usize| {
            let run_id = Name::new(&number.to_string()).unwrap();
            let subject = Subject {
                team: None,
                agent: AgentId::from_bytes([1; 16]),
                tool: None,
                run_id: Some(run_id),
                parent_run_id: None,
            };
            footprints.remembered(TENANT).unwrap().ancestry(&subject).is_ok()
        };
        for number in 0..=REMEMBERED_MAX {
            let run = Name::new(&number.to_string()).unwrap();
            footprints.learn(TENANT, |remembered| remembered.mark_read_ancestry(run));
        }
        assert!(remembers_run(&footprints, 0));
        footprints.compare(&[TENANT], &at(5));
        assert!(!remembers_run(&footprints, 0));
        assert!(
            footprints.is_ours(TENANT),
            "the position is remembered all the same"
        );
    }
}
