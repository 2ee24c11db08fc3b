//! What is written and asked of budgets, reservations, and the answers that are given again.

use crate::{Part, StoreError};
use async_trait::async_trait;
use canon::Digest;
use model::budget::BudgetStatus;
use model::{
    AgentId, Budget, BudgetId, Name, Reservation, ReservationId, ReservationStatus, RunLink, Scope, TenantId,
    Timestamp, Unit,
};

/// What one commit writes of budgets. Nothing is in it twice.
#[derive(Debug, Default)]
pub struct BudgetRows {
    /// Budgets as they are from now on.
    pub budgets: Vec<(TenantId, Budget)>,
    /// Reservations as they are from now on.
    pub reservations: Vec<(TenantId, Reservation)>,
    /// Which run started which. What is known of a run already is left as it is.
    pub links: Vec<(TenantId, RunLink)>,
    /// Answers that are given again to whoever repeats the request. What was so already moves nothing, so an answer may
    /// be of a tenant that the batch does not advance.
    pub replies: Vec<ReplyRow>,
}

impl BudgetRows {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        self.budgets.is_empty()
            && self.reservations.is_empty()
            && self.links.is_empty()
            && self.replies.is_empty()
    }

    /// Whose rows these are, but for answers, in no particular order, and perhaps more than once.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = TenantId> {
        let budgets = self.budgets.iter().map(|(tenant, _)| *tenant);
        let reservations = self.reservations.iter().map(|(tenant, _)| *tenant);
        let links = self.links.iter().map(|(tenant, _)| *tenant);
        budgets.chain(reservations).chain(links)
    }
}

/// By what a budget is looked for: what stands beside it in its row. It is what the budget says of itself, unless
/// somebody has changed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetPlace {
    /// Which budget.
    pub id: BudgetId,
    /// The key of its scope.
    pub scope: String,
    /// The name of its unit.
    pub unit: String,
    /// Whether it is not closed.
    pub is_open: bool,
}

impl BudgetPlace {
    /// By what this budget should be looked for.
    pub fn of(budget: &Budget) -> Self {
        Self {
            id: budget.id,
            scope: budget.scope.key(),
            unit: budget.unit.to_string(),
            is_open: budget.status != BudgetStatus::Closed,
        }
    }
}

/// What a caller calls one of its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ReplyKey {
    /// The tenant.
    pub tenant: TenantId,
    /// The bytes of the caller's id: an agent's or a key's.
    pub caller: [u8; 16],
    /// The caller's own id for the request.
    pub key: Name,
}

/// An answer that is given again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReplyRow {
    /// To which request.
    pub key: ReplyKey,
    /// What makes it the same request again: the digest of what was asked of which endpoint.
    pub request: Digest,
    /// The exact bytes.
    pub bytes: bytes::Bytes,
    /// When it was given.
    pub at: Timestamp,
}

/// Which budgets are looked for.
#[derive(Debug, Default)]
pub struct WantedBudgets {
    /// These, whatever has become of them.
    pub ids: Vec<(TenantId, BudgetId)>,
    /// Those of these scopes that are not closed; without a unit those of every unit.
    pub scopes: Vec<(TenantId, Scope, Option<Unit>)>,
}

/// Which reservations are looked for.
#[derive(Debug)]
pub struct WantedReservations {
    /// These, whatever has become of them.
    pub ids: Vec<(TenantId, ReservationId)>,
    /// And of these tenants those that are active and should not be any more.
    pub tenants: Vec<TenantId>,
    /// Because their time was over then.
    pub ended_by: Timestamp,
    /// How many of those at most.
    pub limit: u32,
}

/// Which budgets of a tenant are looked at as they are now.
#[derive(Debug)]
pub struct WantedBalances {
    /// Whose.
    pub tenant: TenantId,
    /// These, whatever has become of them.
    pub ids: Vec<BudgetId>,
    /// Those of these scopes that are not closed; without a unit those of every unit.
    pub scopes: Vec<(Scope, Option<Unit>)>,
    /// What should have ended had done so by then.
    pub ended_by: Timestamp,
    /// How much of that at most.
    pub overdue_max: u32,
}

/// Which budgets of a tenant to list that are not closed: by what they are for, and those for the same by unit.
#[derive(Debug)]
pub struct OpenBudgets {
    /// Whose.
    pub tenant: TenantId,
    /// Those of these scopes, in this order.
    pub scopes: Vec<Scope>,
    /// In this unit; in every one if absent.
    pub unit: Option<Unit>,
    /// Of the first scope only those in units behind this one.
    pub after: Option<Unit>,
    /// How many at most.
    pub limit: u32,
}

/// What is known of them, all of it as it was after one commit.
#[derive(Debug, Default)]
pub struct FoundBalances {
    /// Those that are there, each once.
    pub budgets: Vec<Budget>,
    /// The tenant's reservations that are active and should not be any more: what these hold is not held.
    pub overdue: Vec<Reservation>,
    /// Whether the tenant has any budget that is not closed.
    pub is_budgeted: bool,
}

/// Which budgets to list. What is absent matches all.
#[derive(Debug, Clone, Default)]
pub struct BudgetFilter {
    /// In this unit.
    pub unit: Option<Unit>,
    /// Whether it is not closed.
    pub is_open: Option<bool>,
}

/// Which reservations to list. What is absent matches all.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReservationFilter {
    /// As far as this, as it was written down last.
    pub status: Option<ReservationStatus>,
    /// Of this agent.
    pub agent: Option<AgentId>,
}

/// Reading budgets and reservations. They are written in the commit of the entry that tells of them:
/// [`Batch::budgets`](crate::Batch).
///
/// Consistency: each call sees the state after some commit, and never less than any commit that returned before the call.
/// Who reserves or settles reads in the turn: [`Turn::find_budgets`](crate::Turn::find_budgets) and what stands beside it.
/// Of one scope and unit there is never more than one budget that is not closed: a batch that would make a second is not
/// written. Concurrency: any number of calls at once, none of which holds up a commit. Errors: [`StoreError`]; absence is
/// `None`, or missing.
#[async_trait]
pub trait Budgets: Send + Sync {
    /// These budgets with what they hold beyond its time, in no particular order. Both are of one moment: who read the
    /// one after the other would see a reservation in neither or in both that ended in between.
    async fn balances(&self, wanted: &WantedBalances) -> Result<FoundBalances, StoreError>;

    /// Budgets that match a filter, newest first, with an id below `before` where given, at most `limit`. All, and all
    /// that are not closed, are found at once. Where closed ones are looked for, or those in one unit, they are looked
    /// for among the next [`LOOKED_AT_MAX`](crate::LOOKED_AT_MAX), of the open ones where only these are wanted.
    async fn list_budgets(
        &self,
        tenant: TenantId,
        filter: &BudgetFilter,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Part<Budget, BudgetId>, StoreError>;

    /// By what all budgets are looked for, newest first, with an id below `before` where given, at most `limit`.
    async fn budget_places(
        &self,
        tenant: TenantId,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Vec<BudgetPlace>, StoreError>;

    /// Budgets that are not closed, those of one scope after those of the other, and of each by the bytes of their units. No more
    /// of a scope are read than are wanted in all, however many there are.
    async fn open_budgets(&self, wanted: &OpenBudgets) -> Result<Vec<Budget>, StoreError>;

    /// Who started these runs, and who started those, and so on upwards, in no particular order.
    async fn run_links(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunLink)>, StoreError>;

    /// Which run of a tenant started which, in the order of the runs, those behind `after`, at most `limit`.
    async fn run_links_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunLink>, StoreError>;

    /// The answer that was given to this request.
    async fn reply(&self, key: &ReplyKey) -> Result<Option<ReplyRow>, StoreError>;

    /// The answers that a tenant's callers were given, by caller and key, those behind `after`, at most `limit`.
    async fn replies_after(
        &self,
        tenant: TenantId,
        after: Option<&ReplyKey>,
        limit: u32,
    ) -> Result<Vec<ReplyRow>, StoreError>;

    /// Forgets answers that were given before this, the oldest first, some at a time; how many it were. It holds up a
    /// commit for no longer than a small batch does. Who repeats such a request makes a new one.
    async fn forget_replies(&self, before: Timestamp) -> Result<u64, StoreError>;

    /// How many budgets of a tenant are not closed.
    async fn count_budgets(&self, tenant: TenantId) -> Result<u64, StoreError>;

    /// One reservation.
    async fn reservation(
        &self,
        tenant: TenantId,
        id: ReservationId,
    ) -> Result<Option<Reservation>, StoreError>;

    /// Reservations that match a filter, newest first, with an id below `before` where given, at most `limit`. Where
    /// those of an agent or with a status are looked for, they are looked for among the next
    /// [`LOOKED_AT_MAX`](crate::LOOKED_AT_MAX). If no more than so many are active, the active ones are found wherever
    /// they are.
    async fn list_reservations(
        &self,
        tenant: TenantId,
        filter: &ReservationFilter,
        before: Option<ReservationId>,
        limit: u32,
    ) -> Result<Part<Reservation, ReservationId>, StoreError>;

    /// Reservations of all tenants but these that are active and whose time was over by `ended_by`, at most `limit`:
    /// those whose time was over first, in this order.
    async fn overdue_reservations(
        &self,
        except: &[TenantId],
        ended_by: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ReservationId)>, StoreError>;
}
