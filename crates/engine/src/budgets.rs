//! Budgets in a batch: what is known of them, and how they move with its proposals.
//!
//! - [`cost`]: a decision that reserves, and what its records say;
//! - [`moves`]: everything else that moves a budget, and why it may not;
//! - [`recount`]: balances counted again from the ledger;
//! - [`report`]: an outcome that settles what was reserved;
//! - [`shown`], `entries`: what answers and entries say about it.
//!
//! What a batch needs is read once before it, and written once after it: each budget and reservation that moved as it is in the
//! end. In between, every proposal sees what those before it did. A step is worked out for all budgets it touches before any of
//! them is changed, so it happens in every one or in none.

pub mod cost;
pub(crate) mod entries;
pub mod moves;
pub mod recount;
pub mod report;
pub mod shown;

use crate::entry_kind::EntryKind;
use crate::proposal::ProposedEntry;
use cost::Cost;
use model::budget::{Subject, ancestry};
use model::{
    Amount, Budget, BudgetId, Charge, Name, Reservation, ReservationId, RunLink, Scope, TenantId, Timestamp,
    Unit,
};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use store::{BudgetRows, ReplyKey, ReplyRow};

/// What storage knew of budgets before a batch, and what has become of it since.
#[derive(Default)]
pub struct KnownBudgets {
    budgets: BTreeMap<(TenantId, BudgetId), Budget>,
    /// The budgets that are not closed, by what they are for.
    open: BTreeMap<(TenantId, Scope, Unit), BudgetId>,
    reservations: BTreeMap<(TenantId, ReservationId), Reservation>,
    parents: HashMap<(TenantId, Name), Name>,
    /// The parents that were reckoned with when budgets were looked up, of runs that had none.
    foretold: HashMap<(TenantId, Name), Name>,
    /// Those of them of which the batch tells another parent.
    unreckoned: HashSet<(TenantId, Name)>,
    replies: HashMap<ReplyKey, ReplyRow>,
    /// The tenants that have a budget that is not closed, as far as it matters.
    budgeted: HashSet<TenantId>,
    moved_budgets: BTreeSet<(TenantId, BudgetId)>,
    moved_reservations: BTreeSet<(TenantId, ReservationId)>,
    new_links: Vec<(TenantId, RunLink)>,
    new_replies: Vec<ReplyRow>,
}

/// What was found in storage.
#[derive(Default)]
pub struct FoundBudgets {
    /// Budgets, each once.
    pub budgets: Vec<(TenantId, Budget)>,
    /// Reservations, each once.
    pub reservations: Vec<(TenantId, Reservation)>,
    /// Which run started which.
    pub links: Vec<(TenantId, RunLink)>,
    /// Which run will have started which once the batch has said so, as far as the budgets of those are here. May be empty
    /// where every budget of the tenant is here, or it has none.
    pub foretold: Vec<(TenantId, RunLink)>,
    /// Answers that were given.
    pub replies: Vec<ReplyRow>,
    /// Tenants that have a budget that is not closed. Those that have one in `budgets` need not be here.
    pub budgeted: Vec<TenantId>,
}

impl KnownBudgets {
    /// Takes in what was found.
    pub fn learn_all(&mut self, found: FoundBudgets) {
        for (tenant, budget) in found.budgets {
            self.learn(tenant, budget);
        }
        let reservations = found.reservations.into_iter();
        self.reservations
            .extend(reservations.map(|(tenant, reservation)| ((tenant, reservation.id), reservation)));
        let links = found.links.into_iter();
        self.parents
            .extend(links.map(|(tenant, link)| ((tenant, link.run_id), link.parent)));
        let foretold = found.foretold.into_iter();
        self.foretold
            .extend(foretold.map(|(tenant, link)| ((tenant, link.run_id), link.parent)));
        let replies = found.replies.into_iter();
        self.replies
            .extend(replies.map(|reply| (reply.key.clone(), reply)));
        self.budgeted.extend(found.budgeted);
    }

    /// Whether a tenant is known to have a budget that is not closed.
    pub fn is_budgeted(&self, tenant: TenantId) -> bool {
        self.budgeted.contains(&tenant)
    }

    /// A tenant's budgets, as far as they are known.
    pub fn budgets(&self, tenant: TenantId) -> impl Iterator<Item = &Budget> {
        let of_tenant = self.budgets.iter().filter(move |((of, _), _)| *of == tenant);
        of_tenant.map(|(_, budget)| budget)
    }

    /// One budget.
    pub fn budget(&self, tenant: TenantId, id: BudgetId) -> Option<&Budget> {
        self.budgets.get(&(tenant, id))
    }

    fn learn(&mut self, tenant: TenantId, budget: Budget) {
        let place = (tenant, budget.scope.clone(), budget.unit.clone());
        if budget.status == model::budget::BudgetStatus::Closed {
            if self.open.get(&place) == Some(&budget.id) {
                self.open.remove(&place);
            }
        } else {
            self.open.insert(place, budget.id);
            self.budgeted.insert(tenant);
        }
        self.budgets.insert((tenant, budget.id), budget);
    }

    /// The runs that something counts against: its own and those that started it, the outermost first.
    pub fn ancestry(&self, tenant: TenantId, subject: &Subject) -> Vec<Name> {
        let Some(run_id) = subject.run() else {
            return Vec::new();
        };
        let parent_of = |run: &Name| self.parents.get(&(tenant, run.clone()));
        ancestry::of(run_id, subject.parent_run_id.as_ref(), parent_of)
    }

    /// The budgets that a cost counts against, the widest first.
    fn budgets_of(&self, tenant: TenantId, cost: &Cost) -> Vec<&Budget> {
        let scopes = cost
            .subject
            .scopes(&self.ancestry(tenant, &cost.subject))
            .into_iter();
        let open = scopes.filter_map(|scope| self.open.get(&(tenant, scope, cost.unit.clone())));
        open.filter_map(|id| self.budgets.get(&(tenant, *id))).collect()
    }

    /// The budgets with these ids, in this order.
    ///
    /// INVARIANT: whoever looks a reservation up for a batch looks up its budgets, too.
    fn with_ids(&self, tenant: TenantId, ids: &[BudgetId]) -> Vec<&Budget> {
        let found = ids.iter().map(|id| self.budgets.get(&(tenant, *id)));
        found.flatten().collect()
    }

    /// Writes down how budgets are from now on. Returns the entries that tell which thresholds were reached.
    fn put(&mut self, tenant: TenantId, budgets: &[Budget]) -> Vec<ProposedEntry> {
        let mut entries = Vec::new();
        for budget in budgets {
            let key = (tenant, budget.id);
            self.moved_budgets.insert(key);
            let Some(before) = self.budgets.get_mut(&key) else {
                self.learn(tenant, budget.clone());
                continue;
            };
            let reached = budget.reached_since(before);
            entries.extend(reached.map(|percent| entries::threshold(budget, percent)));
            // What it is for never changes. So unless its status does, it is known where it is looked for.
            if before.status == budget.status {
                before.clone_from(budget);
            } else {
                self.learn(tenant, budget.clone());
            }
        }
        entries
    }

    fn put_reservation(&mut self, tenant: TenantId, reservation: Reservation) {
        self.moved_reservations.insert((tenant, reservation.id));
        self.reservations.insert((tenant, reservation.id), reservation);
    }

    /// Whether a cost is of a run that has the parents that were reckoned with. It is not where it tells of another one: the
    /// budgets of that may be unknown to whatever counts against them behind it in the batch. That is made again with it.
    pub(crate) fn reckoned_with(&mut self, tenant: TenantId, cost: &Cost) -> bool {
        if let (Some(run_id), Some(parent)) = (&cost.subject.run_id, cost.subject.parent()) {
            let run = (tenant, run_id.clone());
            let foretold = self.foretold.get(&run);
            if !self.parents.contains_key(&run) && foretold.is_some_and(|foretold| foretold != parent) {
                self.unreckoned.insert(run);
            }
        }
        if self.unreckoned.is_empty() {
            return true;
        }
        let mut runs = self.ancestry(tenant, &cost.subject).into_iter();
        !runs.any(|run| self.unreckoned.contains(&(tenant, run)))
    }

    /// Notes which run started the one that a cost counts against, if that is new.
    ///
    /// INVARIANT: the entry of the decision, reservation or usage that said so names both, and who has said it.
    fn note_link(&mut self, tenant: TenantId, cost: &Cost) {
        if let (Some(run_id), Some(parent)) = (&cost.subject.run_id, cost.subject.parent())
            && !self.parents.contains_key(&(tenant, run_id.clone()))
        {
            self.parents.insert((tenant, run_id.clone()), parent.clone());
            let link = RunLink {
                run_id: run_id.clone(),
                parent: parent.clone(),
            };
            self.new_links.push((tenant, link));
        }
    }

    /// Brings to `now` of its tenant what is known: new periods begin, and what should have ended has. Returns the
    /// entries that tell of it.
    pub fn bring_to(&mut self, now: impl Fn(TenantId) -> Timestamp) -> Vec<(TenantId, ProposedEntry)> {
        let mut entries = Vec::new();
        let rolled: Vec<_> = self
            .budgets
            .iter()
            .filter_map(|((tenant, _), budget)| {
                let after = budget.roll_over(now(*tenant))?;
                Some((*tenant, budget.periods_until(after.period_start), after))
            })
            .collect();
        for (tenant, periods, budget) in rolled {
            entries.push((tenant, entries::rolled_over(&budget, periods)));
            // What was carried counts in the new period like what is spent in it, and is passed by nothing that comes after it.
            let carried = budget.reached();
            entries.extend(carried.map(|percent| (tenant, entries::threshold(&budget, percent))));
            self.moved_budgets.insert((tenant, budget.id));
            self.learn(tenant, budget);
        }
        let expired: Vec<_> = self
            .reservations
            .iter()
            .filter_map(|((tenant, _), reservation)| Some((*tenant, reservation.expire(now(*tenant))?)))
            .collect();
        for (tenant, reservation) in expired {
            let after = self.settled(tenant, &reservation.budgets, reservation.amount, Charge::NOTHING);
            entries.push((
                tenant,
                entries::reservation_moved(EntryKind::ReservationExpired, &reservation, None, &after),
            ));
            self.put(tenant, &after);
            self.put_reservation(tenant, reservation);
        }
        entries
    }

    /// These budgets after what was held in them is settled by a charge.
    fn settled(&self, tenant: TenantId, ids: &[BudgetId], held: Amount, charge: Charge) -> Vec<Budget> {
        let budgets = self.with_ids(tenant, ids).into_iter();
        budgets.map(|budget| budget.settle(held, charge)).collect()
    }

    /// Everything that has changed, as it is in the end.
    pub(crate) fn into_rows(self) -> BudgetRows {
        let budgets = self.moved_budgets.iter();
        let reservations = self.moved_reservations.iter();
        BudgetRows {
            budgets: budgets
                .filter_map(|key| Some((key.0, self.budgets.get(key)?.clone())))
                .collect(),
            reservations: reservations
                .filter_map(|key| Some((key.0, self.reservations.get(key)?.clone())))
                .collect(),
            links: self.new_links,
            replies: self.new_replies,
        }
    }
}
