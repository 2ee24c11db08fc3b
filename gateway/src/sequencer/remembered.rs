//! What is remembered of a tenant's budgets, so that a batch need not read what the ones before it read and wrote.
//!
//! It is right where the tenant was left, and nowhere else: whatever moves a budget moves the head of the chain, too.
//! [`Footprints`](super::footprints::Footprints) keep it beside that position, and both are forgotten together. That
//! something is not there is remembered as nothing, because to know that there is none is not the same as not to know.

use model::budget::{BudgetStatus, Subject, ancestry};
use model::{
    Budget, BudgetId, Name, Reservation, ReservationId, ReservationStatus, RunLink, Scope, Timestamp, Unit,
};
use std::cell::RefCell;
use std::collections::HashMap;

/// What a budget is for, and what it is counted in.
pub(super) type ScopeAndUnit = (Scope, Unit);

/// The first end where no reservation is held: later than any time.
pub(super) const NEVER: Timestamp = Timestamp::from_millis(i64::MAX);

/// It is not remembered: neither the thing nor that there is none.
#[derive(Debug)]
pub(super) struct NotRemembered;

/// What is remembered of one tenant.
#[derive(Default)]
pub(super) struct Remembered {
    budgets: HashMap<BudgetId, Option<Budget>>,
    /// The budgets that are not closed.
    open: HashMap<ScopeAndUnit, Option<BudgetId>>,
    /// Whether there is any that is not closed.
    is_budgeted: Option<bool>,
    reservations: HashMap<ReservationId, Option<Reservation>>,
    /// Which run started which.
    parents: HashMap<Name, Option<Name>>,
    /// No reservation that is held ends before this. It is not moved back when the one that does is settled: then it is looked
    /// for again when the time has come.
    first_end: Option<Timestamp>,
}

impl Remembered {
    /// How much it is, in things that have about the same size.
    pub(super) fn size(&self) -> usize {
        self.budgets.len() + self.open.len() + self.reservations.len() + self.parents.len()
    }

    /// Whether it is known that no reservation that is held ends by then.
    pub(super) fn has_none_due(&self, by: Timestamp) -> bool {
        self.first_end.is_some_and(|first| first > by)
    }

    /// Whether there is a budget that is not closed.
    pub(super) fn is_budgeted(&self) -> Result<bool, NotRemembered> {
        self.is_budgeted.ok_or(NotRemembered)
    }

    /// The runs that something counts against, the outermost first; or those of which it is not known who started them.
    pub(super) fn ancestry(&self, subject: &Subject) -> Result<Vec<Name>, Vec<Name>> {
        let Some(run_id) = subject.run() else {
            return Ok(Vec::new());
        };
        let unknown = RefCell::new(Vec::new());
        let parent_of = |run: &Name| {
            let parent = self.parents.get(run);
            if parent.is_none() {
                unknown.borrow_mut().push(run.clone());
            }
            parent?.as_ref()
        };
        let ancestry = ancestry::of(run_id, subject.parent_run_id.as_ref(), parent_of);
        let unknown = unknown.into_inner();
        if unknown.is_empty() {
            Ok(ancestry)
        } else {
            Err(unknown)
        }
    }

    /// The runs that something counts against once others have parents that are `told`, the outermost first; as far as
    /// it is known who started them.
    pub(super) fn ancestry_with<'k>(
        &'k self,
        subject: &Subject,
        told: impl Fn(&Name) -> Option<&'k Name>,
    ) -> Vec<Name> {
        let Some(run_id) = subject.run() else {
            return Vec::new();
        };
        let parent_of = |run: &Name| self.parent(run).or_else(|| told(run));
        ancestry::of(run_id, subject.parent_run_id.as_ref(), parent_of)
    }

    /// The run that started this one, if that is remembered.
    pub(super) fn parent(&self, run: &Name) -> Option<&Name> {
        self.parents.get(run)?.as_ref()
    }

    /// Which budget is open for this.
    pub(super) fn open(&self, scope: &ScopeAndUnit) -> Result<Option<BudgetId>, NotRemembered> {
        self.open.get(scope).copied().ok_or(NotRemembered)
    }

    /// One budget.
    pub(super) fn budget(&self, id: BudgetId) -> Result<Option<&Budget>, NotRemembered> {
        self.budgets.get(&id).map(Option::as_ref).ok_or(NotRemembered)
    }

    /// One reservation.
    pub(super) fn reservation(&self, id: ReservationId) -> Result<Option<&Reservation>, NotRemembered> {
        self.reservations
            .get(&id)
            .map(Option::as_ref)
            .ok_or(NotRemembered)
    }

    /// Who started these runs, as far as anybody did.
    pub(super) fn links(&self, ancestry: Vec<Name>) -> impl Iterator<Item = RunLink> {
        ancestry.into_iter().filter_map(|run_id| {
            let parent = self.parents.get(&run_id)?.clone()?;
            Some(RunLink { run_id, parent })
        })
    }

    /// Notes that all links were read from this run upwards, as far as an ancestry goes: where they end, no run is above.
    pub(super) fn mark_read_ancestry(&mut self, mut run: Name) {
        for _ in 0..ancestry::RUNS_MAX {
            match self.parents.entry(run).or_default() {
                Some(parent) => run = parent.clone(),
                None => break,
            }
        }
    }

    /// Notes a reservation that was read, whatever has become of it.
    pub(super) fn learn_reservation(&mut self, reservation: Reservation) {
        self.reservations.insert(reservation.id, Some(reservation));
    }

    /// Notes that this reservation was read: if it is not known by now, there is none.
    pub(super) fn mark_read_reservation(&mut self, id: ReservationId) {
        self.reservations.entry(id).or_default();
    }

    /// Forgets a reservation.
    pub(super) fn forget_reservation(&mut self, id: ReservationId) {
        self.reservations.remove(&id);
    }

    /// Notes when the first of all reservations ends that are held.
    pub(super) const fn learn_first_end(&mut self, first: Timestamp) {
        self.first_end = Some(first);
    }

    /// Forgets it: one that has ended already may still be held.
    pub(super) const fn forget_first_end(&mut self) {
        self.first_end = None;
    }

    /// Notes that this budget was read: if it is not known by now, there is none.
    pub(super) fn mark_read_budget(&mut self, id: BudgetId) {
        self.budgets.entry(id).or_default();
    }

    /// Notes that the budget that is open for this was read: if none is known by now, there is none.
    pub(super) fn mark_read_open(&mut self, scope: ScopeAndUnit) {
        self.open.entry(scope).or_default();
    }

    /// Notes whether there is a budget that is not closed.
    pub(super) const fn learn_if_budgeted(&mut self, is_budgeted: bool) {
        self.is_budgeted = Some(is_budgeted);
    }

    /// Notes how a budget is from now on.
    pub(super) fn put_budget(&mut self, budget: Budget) {
        let scope = (budget.scope.clone(), budget.unit.clone());
        if budget.status == BudgetStatus::Closed {
            if self.open.get(&scope) == Some(&Some(budget.id)) {
                self.open.insert(scope, None);
                // Others may be open that nobody has asked for.
                self.is_budgeted = None;
            }
        } else {
            self.open.insert(scope, Some(budget.id));
            self.is_budgeted = Some(true);
        }
        self.budgets.insert(budget.id, Some(budget));
    }

    /// Notes how a reservation is from now on. What is settled is hardly asked for again.
    pub(super) fn put_reservation(&mut self, reservation: &Reservation) {
        if reservation.status == ReservationStatus::Active {
            self.first_end = self.first_end.map(|first| first.min(reservation.expires_at));
            self.reservations
                .insert(reservation.id, Some(reservation.clone()));
        } else {
            self.reservations.remove(&reservation.id);
        }
    }

    /// Notes which run started which.
    pub(super) fn put_link(&mut self, link: &RunLink) {
        self.parents
            .insert(link.run_id.clone(), Some(link.parent.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::AgentId;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn subject(run: &str, parent: Option<&str>) -> Subject {
        Subject {
            team: None,
            agent: AgentId::from_bytes([1; 16]),
            tool: None,
            run_id: Some(name(run)),
            parent_run_id: parent.map(name),
        }
    }

    #[test]
    fn an_ancestry_is_known_when_every_link_of_it_is() {
        let mut remembered = Remembered::default();
        let of = |remembered: &Remembered, run, parent| remembered.ancestry(&subject(run, parent));
        assert_eq!(of(&remembered, "c", None), Err(vec![name("c")]));
        remembered.put_link(&RunLink {
            run_id: name("c"),
            parent: name("b"),
        });
        assert_eq!(of(&remembered, "c", None), Err(vec![name("b")]));
        remembered.mark_read_ancestry(name("c"));
        assert_eq!(of(&remembered, "c", None), Ok(vec![name("b"), name("c")]));
        assert_eq!(of(&remembered, "c", Some("x")), Err(vec![name("x")]));
        assert_eq!(of(&remembered, "b", Some("b")), Ok(vec![name("b")]));
        let of_parent = Subject {
            run_id: None,
            ..subject("x", Some("c"))
        };
        assert_eq!(remembered.ancestry(&of_parent), Ok(vec![name("b"), name("c")]));
    }

    #[test]
    fn an_ancestry_goes_on_with_what_is_told_where_no_parent_is_known() {
        let mut remembered = Remembered::default();
        remembered.put_link(&RunLink {
            run_id: name("c"),
            parent: name("b"),
        });
        remembered.mark_read_ancestry(name("c"));
        let told = HashMap::from([(name("b"), name("a")), (name("c"), name("x"))]);
        let of = |run, parent| remembered.ancestry_with(&subject(run, parent), |run| told.get(run));
        assert_eq!(of("c", None), [name("a"), name("b"), name("c")]);
        assert_eq!(of("d", Some("b")), [name("a"), name("b"), name("d")]);
        assert_eq!(of("e", None), [name("e")]);
    }

    #[test]
    fn none_is_due_before_the_first_end_and_only_if_that_is_known() {
        let at = Timestamp::from_millis;
        let mut remembered = Remembered::default();
        assert!(!remembered.has_none_due(at(1)));
        remembered.learn_first_end(at(5));
        assert!(remembered.has_none_due(at(4)));
        assert!(!remembered.has_none_due(at(5)));
        remembered.learn_first_end(NEVER);
        assert!(remembered.has_none_due(at(1_000_000)));
    }
}
