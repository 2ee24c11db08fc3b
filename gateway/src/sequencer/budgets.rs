//! What storage has to be asked about the budgets of a batch, in the turn, before it is applied.

use engine::Proposal;
use engine::budgets::cost::Cost;
use engine::budgets::moves::{BudgetMove, Move};
use engine::budgets::{FoundBudgets, KnownBudgets};
use engine::proposal::Happening;
use model::reservation::GRACE_MS;
use model::{BudgetId, Name, ReservationId, Scope, TenantId, Timestamp, Unit};
use store::{ReplyKey, StoreError, Turn, WantedBudgets, WantedReservations};

/// How many reservations of its tenants are ended with a batch whose time is over. The others are ended with the next ones, or
/// by the job.
const OVERDUE_MAX: u32 = 64;

/// What proposals have to do with budgets.
#[derive(Default)]
pub(super) struct WantedMoves<'p> {
    /// What counts against budgets that have to be found.
    costs: Vec<(TenantId, &'p Cost)>,
    budgets: Vec<(TenantId, BudgetId)>,
    scopes: Vec<(TenantId, Scope, Option<Unit>)>,
    reservations: Vec<(TenantId, ReservationId)>,
    keys: Vec<ReplyKey>,
    tenants: Vec<TenantId>,
}

impl<'p> WantedMoves<'p> {
    /// What these proposals have to do with budgets.
    pub(super) fn of(proposals: &'p [Proposal]) -> Self {
        let mut wanted = Self::default();
        for proposal in proposals {
            let tenant = proposal.tenant;
            match &proposal.what {
                Happening::Decision(decision) => {
                    let Some(costed) = &decision.costed else { continue };
                    wanted.costs.push((tenant, &costed.hold.cost));
                }
                Happening::Outcome { settling, .. } => {
                    let Some(settling) = settling else { continue };
                    let costs = settling.cost.iter().map(|cost| (tenant, cost));
                    wanted.costs.extend(costs);
                    let held = settling.reservation.iter().map(|id| (tenant, *id));
                    wanted.reservations.extend(held);
                }
                Happening::Budget(change) => wanted.add(tenant, change),
                _ => continue,
            }
            wanted.tenants.push(tenant);
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
                let scope = (tenant, budget.scope.clone(), Some(budget.unit.clone()));
                self.scopes.push(scope);
            }
            Move::Change { id, .. } => self.budgets.push((tenant, *id)),
            Move::Reserve(hold) => self.costs.push((tenant, &hold.cost)),
            Move::Use(cost) => self.costs.push((tenant, cost)),
            Move::Settle { id, .. } | Move::Expire(id) => self.reservations.push((tenant, *id)),
        }
    }

    /// Whether they have nothing to do with any.
    pub(super) const fn is_nothing(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Looks it up.
    pub(super) async fn find(&self, turn: &mut dyn Turn, now: Timestamp) -> Result<KnownBudgets, StoreError> {
        let mut known = KnownBudgets::default();
        if self.is_nothing() {
            return Ok(known);
        }
        let mut found = FoundBudgets::default();
        let runs = self.runs();
        if !runs.is_empty() {
            found.links = turn.find_run_links(&runs).await?;
        }
        if !self.keys.is_empty() {
            found.replies = turn.find_replies(&self.keys).await?;
        }
        let wanted = WantedReservations {
            ids: self.reservations.clone(),
            tenants: self.tenants.clone(),
            ended_by: now.plus_millis(-GRACE_MS),
            limit: OVERDUE_MAX,
        };
        found.reservations = turn.find_reservations(&wanted).await?;
        let held = found.reservations.iter();
        let held = held.flat_map(|(tenant, held)| held.budgets.iter().map(|id| (*tenant, *id)));
        let ids = held.chain(self.budgets.iter().copied()).collect();
        known.learn_all(found);
        self.find_budgets(turn, ids, &mut known).await?;
        Ok(known)
    }

    async fn find_budgets(
        &self,
        turn: &mut dyn Turn,
        mut ids: Vec<(TenantId, BudgetId)>,
        known: &mut KnownBudgets,
    ) -> Result<(), StoreError> {
        ids.sort_unstable();
        ids.dedup();
        let mut scopes = self.scopes.clone();
        for (tenant, cost) in &self.costs {
            let line = known.line(*tenant, &cost.subject);
            let of_cost = cost.subject.scopes(&line).into_iter();
            scopes.extend(of_cost.map(|scope| (*tenant, scope, Some(cost.unit.clone()))));
        }
        scopes.sort_unstable();
        scopes.dedup();
        let budgets = turn.find_budgets(&WantedBudgets { ids, scopes }).await?;
        known.learn_all(FoundBudgets {
            budgets,
            ..FoundBudgets::default()
        });
        // Whether a tenant has any matters only where none was found.
        let costs = self.costs.iter().map(|(tenant, _)| *tenant);
        let mut without: Vec<_> = costs.filter(|tenant| !known.is_budgeted(*tenant)).collect();
        without.dedup();
        if !without.is_empty() {
            let budgeted = turn.have_budgets(&without).await?;
            known.learn_all(FoundBudgets {
                budgeted,
                ..FoundBudgets::default()
            });
        }
        Ok(())
    }

    /// The runs that something counts against, and those that they say started them.
    fn runs(&self) -> Vec<(TenantId, Name)> {
        let named = |(tenant, cost): &(TenantId, &Cost)| {
            let subject = &cost.subject;
            let names = [subject.run_id.clone(), subject.parent_run_id.clone()];
            names.map(|name| Some((*tenant, name?)))
        };
        let mut runs: Vec<_> = self.costs.iter().flat_map(named).flatten().collect();
        runs.sort_unstable();
        runs.dedup();
        runs
    }
}
