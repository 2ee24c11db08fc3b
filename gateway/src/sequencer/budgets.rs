//! What has to be known about the budgets of a batch before it is applied: remembered, or read in the turn.
//!
//! Whatever is read is remembered first, and a batch is told what is remembered: so there is one way to it.

use super::ENDED_AT_ONCE_MAX;
use super::footprints::Footprints;
use super::overdue::{self, Ends, ended_by};
use super::remembered::{NEVER, NotRemembered, Remembered, ScopeAndUnit};
use super::times::Times;
use engine::Proposal;
use engine::budgets::cost::Cost;
use engine::budgets::moves::{BudgetMove, Move};
use engine::budgets::{FoundBudgets, KnownBudgets};
use engine::proposal::Intent;
use model::{BudgetId, Name, ReservationId, RunLink, Scope, TenantId};
use std::collections::HashMap;
use store::{ReplyKey, StoreError, Turn, WantedBudgets, WantedReservations};

/// A reservation of a tenant.
type Held = (TenantId, ReservationId);

/// By run, the parent that a cost of the batch names first; only for runs whose parent is not remembered.
type ToldParents<'p> = HashMap<(TenantId, &'p Name), &'p Name>;

/// What proposals have to do with budgets.
#[derive(Default)]
pub(super) struct WantedMoves<'p> {
    /// What counts against budgets that have to be found.
    costs: Vec<(TenantId, &'p Cost)>,
    budgets: Vec<(TenantId, BudgetId)>,
    /// What budgets are for that have to be found by that.
    scopes: Vec<(TenantId, ScopeAndUnit)>,
    reservations: Vec<Held>,
    keys: Vec<ReplyKey>,
    /// Those of which something is judged by what budgets have, so that overdue reservations must not count any more.
    tenants: Vec<TenantId>,
}

impl<'p> WantedMoves<'p> {
    /// What these proposals have to do with budgets.
    pub(super) fn of(proposals: &'p [Proposal]) -> Self {
        let mut wanted = Self::default();
        for proposal in proposals {
            let tenant = proposal.tenant;
            match &proposal.intent {
                Intent::Decision(decision) => {
                    let Some(costed) = decision.records.costed() else {
                        continue;
                    };
                    wanted.costs.push((tenant, &costed.hold.cost));
                }
                Intent::Outcome { settling, .. } => {
                    let Some(settling) = settling else { continue };
                    let costs = settling.cost.iter().map(|cost| (tenant, cost));
                    wanted.costs.extend(costs);
                    let held = settling.reservation.iter().map(|id| (tenant, *id));
                    wanted.reservations.extend(held);
                }
                Intent::Budget(change) => wanted.add(tenant, change),
                _ => continue,
            }
            if is_judged(&proposal.intent) {
                wanted.tenants.push(tenant);
            }
        }
        wanted.tenants.sort_unstable();
        wanted.tenants.dedup();
        wanted
    }

    fn add(&mut self, tenant: TenantId, change: &'p BudgetMove) {
        let keys = change.repeat.iter().map(|repeat| repeat.key.clone());
        self.keys.extend(keys);
        match &change.what {
            Move::Create { budget, .. } => {
                let scope = (budget.scope.clone(), budget.unit.clone());
                self.scopes.push((tenant, scope));
            }
            Move::Change { id, .. } => self.budgets.push((tenant, *id)),
            Move::Reserve(hold) => self.costs.push((tenant, &hold.cost)),
            Move::Use(cost) => self.costs.push((tenant, cost)),
            Move::Settle { id, .. } | Move::Expire(id) => self.reservations.push((tenant, *id)),
        }
    }

    /// What callers have named their requests.
    pub(super) fn keys(&self) -> &[ReplyKey] {
        &self.keys
    }

    /// All of it, if all is remembered and no tenant of which something is judged by what budgets have may hold overdue
    /// reservations.
    pub(super) fn recall(
        &self,
        footprints: &Footprints,
        times: Times<'_>,
    ) -> Result<KnownBudgets, NotRemembered> {
        if !self.with_overdue(footprints, times).is_empty() {
            return Err(NotRemembered);
        }
        self.recall_with(footprints, &[])
    }

    /// All of it, after what is not remembered was read, and when overdue reservations are ended. [`NotRemembered`]
    /// only if something was forgotten meanwhile.
    pub(super) async fn find(
        &self,
        turn: &mut dyn Turn,
        footprints: &mut Footprints,
        times: Times<'_>,
    ) -> Result<Result<(KnownBudgets, Ends), NotRemembered>, StoreError> {
        self.read_links(turn, footprints).await?;
        let (overdue, ends) = self.read_reservations(turn, footprints, times).await?;
        self.read_budgets(turn, footprints, &overdue).await?;
        let known = self.recall_with(footprints, &overdue);
        Ok(known.map(|known| (known, ends)))
    }

    /// What is remembered of all of it, and of these overdue reservations.
    fn recall_with(&self, footprints: &Footprints, overdue: &[Held]) -> Result<KnownBudgets, NotRemembered> {
        let mut found = FoundBudgets::default();
        let mut ids = self.budgets.clone();
        let told = self.told_parents(footprints);
        found
            .foretold
            .extend(told.iter().map(|((tenant, run_id), parent)| {
                let (run_id, parent) = (Name::clone(run_id), Name::clone(parent));
                (*tenant, RunLink { run_id, parent })
            }));
        for (tenant, cost) in &self.costs {
            let remembered = footprints.remembered(*tenant)?;
            let ancestry = remembered.ancestry(&cost.subject).map_err(|_| NotRemembered)?;
            let later = told_ancestry(remembered, (*tenant, cost), &told);
            for scope in scopes_of(cost, &ancestry, later) {
                ids.extend(remembered.open(&scope)?.map(|id| (*tenant, id)));
            }
            if remembered.is_budgeted()? {
                found.budgeted.push(*tenant);
            }
            let links = remembered.links(ancestry);
            found.links.extend(links.map(|link| (*tenant, link)));
        }
        for (tenant, scope) in &self.scopes {
            let open = footprints.remembered(*tenant)?.open(scope)?;
            ids.extend(open.map(|id| (*tenant, id)));
        }
        for held in each_once(self.reservations.iter().chain(overdue).copied()) {
            let (tenant, id) = held;
            if let Some(reservation) = footprints.remembered(tenant)?.reservation(id)? {
                ids.extend(reservation.budgets.iter().map(|id| (tenant, *id)));
                found.reservations.push((tenant, reservation.clone()));
            }
        }
        for (tenant, id) in each_once(ids) {
            let budget = footprints.remembered(tenant)?.budget(id)?;
            found
                .budgets
                .extend(budget.map(|budget| (tenant, budget.clone())));
        }
        let mut known = KnownBudgets::default();
        known.learn_all(found);
        Ok(known)
    }

    /// The parents that this batch tells of, of each run the first. A later cost of the batch counts against the
    /// budgets of these parents, too, and it may be in another unit than the cost that told of them. If nothing comes of that
    /// one, and the next one tells of another parent, it is made again.
    fn told_parents(&self, footprints: &Footprints) -> ToldParents<'p> {
        let mut told = HashMap::new();
        for (tenant, cost) in &self.costs {
            if let (Some(run), Some(parent)) = (&cost.subject.run_id, cost.subject.parent())
                && footprints.remembered(*tenant).is_ok_and(|remembered| {
                    remembered.parent(run).is_none() && remembered.is_budgeted().unwrap_or(true)
                })
            {
                told.entry((*tenant, run)).or_insert(parent);
            }
        }
        told
    }

    /// The tenants that may hold reservations that are overdue by the time of their chain.
    fn with_overdue(&self, footprints: &Footprints, times: Times<'_>) -> Vec<TenantId> {
        let has_none = |tenant: &TenantId| {
            let (remembered, by) = (footprints.remembered(*tenant), ended_by(times.of(*tenant)));
            remembered.is_ok_and(|remembered| remembered.has_none_due(by))
        };
        let tenants = self.tenants.iter().copied();
        tenants.filter(|tenant| !has_none(tenant)).collect()
    }

    /// Reads who started the runs that something counts against.
    async fn read_links(&self, turn: &mut dyn Turn, footprints: &mut Footprints) -> Result<(), StoreError> {
        let unknown = |(tenant, cost): &(TenantId, &Cost)| {
            let ancestry = footprints.remembered(*tenant).ok()?.ancestry(&cost.subject);
            let runs = ancestry.err()?.into_iter();
            Some(runs.map(|run| (*tenant, run)).collect::<Vec<_>>())
        };
        let runs = each_once(self.costs.iter().filter_map(unknown).flatten());
        if runs.is_empty() {
            return Ok(());
        }
        for (tenant, link) in turn.find_run_links(&runs).await? {
            footprints.learn(tenant, |remembered| remembered.put_link(&link));
        }
        for (tenant, run) in runs {
            footprints.learn(tenant, |remembered| remembered.mark_read_ancestry(run));
        }
        Ok(())
    }

    /// Reads the reservations that are settled, and the overdue ones of tenants of which something is judged by what
    /// budgets have. Returns the overdue ones, and when they are ended.
    async fn read_reservations(
        &self,
        turn: &mut dyn Turn,
        footprints: &mut Footprints,
        times: Times<'_>,
    ) -> Result<(Vec<Held>, Ends), StoreError> {
        let is_unknown = |(tenant, id): &Held| {
            let remembered = footprints.remembered(*tenant);
            remembered
                .and_then(|remembered| remembered.reservation(*id))
                .is_err()
        };
        let tenants = self.with_overdue(footprints, times);
        let wanted = WantedReservations {
            ids: each_once(self.reservations.iter().copied().filter(is_unknown)),
            ended_by: ended_by(times.latest(&tenants)),
            tenants,
            limit: ENDED_AT_ONCE_MAX,
        };
        if wanted.ids.is_empty() && wanted.tenants.is_empty() {
            return Ok((Vec::new(), Ends::WithBatch));
        }
        let (found, ends) = overdue::read(turn, &wanted, times).await?;
        let mut overdue = Vec::new();
        for (tenant, reservation) in found {
            if reservation.is_overdue(times.of(tenant)) {
                overdue.push((tenant, reservation.id));
            }
            footprints.learn(tenant, |remembered| remembered.learn_reservation(reservation));
        }
        for (tenant, id) in &wanted.ids {
            footprints.learn(*tenant, |remembered| remembered.mark_read_reservation(*id));
        }
        if ends == Ends::WithBatch {
            read_first_ends(turn, footprints, &wanted.tenants, times).await?;
        }
        Ok((overdue, ends))
    }

    /// Reads the budgets that it is about, and that these reservations are held in.
    async fn read_budgets(
        &self,
        turn: &mut dyn Turn,
        footprints: &mut Footprints,
        overdue: &[Held],
    ) -> Result<(), StoreError> {
        let ids = self.unknown_ids(footprints, overdue);
        let unknown = self.unknown_scopes(footprints);
        if !ids.is_empty() || !unknown.is_empty() {
            let scopes = unknown.iter().cloned();
            let scopes = scopes.map(|(tenant, (scope, unit))| (tenant, scope, Some(unit)));
            let wanted = WantedBudgets {
                scopes: scopes.collect(),
                ids,
            };
            for (tenant, budget) in turn.find_budgets(&wanted).await? {
                footprints.learn(tenant, |remembered| remembered.put_budget(budget));
            }
            for (tenant, id) in wanted.ids {
                footprints.learn(tenant, |remembered| remembered.mark_read_budget(id));
            }
            for (tenant, scope) in unknown {
                footprints.learn(tenant, |remembered| remembered.mark_read_open(scope));
            }
        }
        self.read_if_budgeted(turn, footprints).await
    }

    /// The budgets that are asked for by id, or that reservations are held in.
    fn unknown_ids(&self, footprints: &Footprints, overdue: &[Held]) -> Vec<(TenantId, BudgetId)> {
        let mut ids = self.budgets.clone();
        for (tenant, id) in self.reservations.iter().chain(overdue) {
            let found = footprints
                .remembered(*tenant)
                .and_then(|remembered| remembered.reservation(*id));
            if let Ok(Some(reservation)) = found {
                ids.extend(reservation.budgets.iter().map(|id| (*tenant, *id)));
            }
        }
        ids.retain(|(tenant, id)| {
            let remembered = footprints.remembered(*tenant);
            remembered.and_then(|remembered| remembered.budget(*id)).is_err()
        });
        each_once(ids)
    }

    /// What the budgets are for that are to be found by that, and of which it is not remembered whether one is open.
    fn unknown_scopes(&self, footprints: &Footprints) -> Vec<(TenantId, ScopeAndUnit)> {
        let mut wanted = self.scopes.clone();
        let told = self.told_parents(footprints);
        for (tenant, cost) in &self.costs {
            let Ok(remembered) = footprints.remembered(*tenant) else {
                continue;
            };
            let ancestry = remembered.ancestry(&cost.subject).unwrap_or_default();
            let later = told_ancestry(remembered, (*tenant, cost), &told);
            wanted.extend(scopes_of(cost, &ancestry, later).map(|scope| (*tenant, scope)));
        }
        wanted.retain(|(tenant, scope)| {
            let remembered = footprints.remembered(*tenant);
            remembered.and_then(|remembered| remembered.open(scope)).is_err()
        });
        each_once(wanted)
    }

    /// Reads whether tenants have any budget, where none was found.
    async fn read_if_budgeted(
        &self,
        turn: &mut dyn Turn,
        footprints: &mut Footprints,
    ) -> Result<(), StoreError> {
        let costs = self.costs.iter().map(|(tenant, _)| *tenant);
        let is_unknown = |tenant: &TenantId| {
            let remembered = footprints.remembered(*tenant);
            remembered.and_then(Remembered::is_budgeted).is_err()
        };
        let unknown = each_once(costs.filter(is_unknown));
        if unknown.is_empty() {
            return Ok(());
        }
        let budgeted = turn.have_budgets(&unknown).await?;
        for tenant in unknown {
            let is_budgeted = budgeted.contains(&tenant);
            footprints.learn(tenant, |remembered| remembered.learn_if_budgeted(is_budgeted));
        }
        Ok(())
    }
}

/// Reads when the next reservation ends of each tenant whose overdue ones were read. Where others write in turn it would be
/// forgotten before it is of use.
async fn read_first_ends(
    turn: &mut dyn Turn,
    footprints: &mut Footprints,
    read: &[TenantId],
    times: Times<'_>,
) -> Result<(), StoreError> {
    let ours = read.iter().copied().filter(|tenant| footprints.is_ours(*tenant));
    let ours: Vec<_> = ours.collect();
    if ours.is_empty() {
        return Ok(());
    }
    // A later time would leave out what a chain that is behind holds until then. An end that is too early for one that
    // is ahead costs a look.
    let after = ended_by(times.earliest(&ours));
    let first_ends = turn.find_first_ends(&ours, after).await?;
    for tenant in ours {
        let first = first_ends.iter().find(|(of, _)| *of == tenant);
        let first = first.map_or(NEVER, |(_, first)| *first);
        footprints.learn(tenant, |remembered| remembered.learn_first_end(first));
    }
    Ok(())
}

/// Whether what budgets have matters to something that has to do with them.
const fn is_judged(intent: &Intent) -> bool {
    !matches!(intent, Intent::Budget(change) if matches!(change.what, Move::Expire(_)))
}

/// The runs that a cost counts against once the parents are noted that its batch tells of; none if it tells of none.
fn told_ancestry(
    remembered: &Remembered,
    (tenant, cost): (TenantId, &Cost),
    told: &ToldParents<'_>,
) -> Vec<Name> {
    if told.is_empty() {
        return Vec::new();
    }
    remembered.ancestry_with(&cost.subject, |run| told.get(&(tenant, run)).copied())
}

/// What the budgets are for that a cost counts against, by its ancestry and by the one that it has `later` in its batch.
fn scopes_of<'c>(
    cost: &'c Cost,
    ancestry: &[Name],
    later: Vec<Name>,
) -> impl Iterator<Item = ScopeAndUnit> + use<'c> {
    let scopes = cost.subject.scopes(ancestry).into_iter();
    let scopes = scopes.chain(later.into_iter().map(Scope::of_run));
    scopes.map(|scope| (scope, cost.unit.clone()))
}

fn each_once<T: Ord>(items: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut items: Vec<_> = items.into_iter().collect();
    items.sort_unstable();
    items.dedup();
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Timestamp;
    use store::{ChainPosition, Journal as _};
    use store_sqlite::SqliteStore;

    #[tokio::test]
    async fn what_is_forgotten_while_the_rest_is_read_is_not_taken_for_nothing() {
        const TENANT: TenantId = TenantId::SYSTEM;
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let mut turn = store.begin(&[TENANT]).await.unwrap();
        let positions = HashMap::from([(TENANT, ChainPosition::GENESIS)]);
        let times = Times::new(Timestamp::from_millis(0), &positions);
        let wanted = WantedMoves {
            reservations: vec![(TENANT, ReservationId::from_bytes([7; 16]))],
            ..WantedMoves::default()
        };
        // There is no room for what is read, as if it had been forgotten again.
        let mut footprints = Footprints::default();
        let found = wanted.find(&mut *turn, &mut footprints, times).await.unwrap();
        assert!(found.is_err());
        footprints.compare(&[TENANT], &positions);
        let found = wanted.find(&mut *turn, &mut footprints, times).await.unwrap();
        assert!(found.is_ok());
    }
}
