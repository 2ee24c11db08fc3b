//! What stands beside a chain and changes: approvals, what runs have seen, what was counted of quotas, budgets and what
//! is held in them, which run started which, and answers that are given again. It is as it is at the end of the chain,
//! and goes over with the entries, a page with each commit.

use canon::Digest;
use model::{ApprovalId, BudgetId, Name, ReservationId, TenantId, Timestamp};
use store::{ApprovalFilter, Batch, BudgetFilter, ReplyKey, ReplyRow, ReservationFilter, Store, StoreError};

/// How far a tenant's rows have gone over.
#[derive(Default)]
pub(super) struct Beside {
    approvals: Cursor<ApprovalId>,
    runs: Cursor<Name>,
    counters: Cursor<Digest>,
    budgets: Cursor<BudgetId>,
    reservations: Cursor<ReservationId>,
    links: Cursor<Name>,
    replies: Cursor<ReplyKey>,
    answers: Answers,
}

/// How many answers there are, and when the last one was given. An answer to a request that changed nothing leaves no
/// other row, so these two show that somebody still writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Answers {
    count: u64,
    last_at: Timestamp,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            count: 0,
            last_at: Timestamp::from_millis(0),
        }
    }
}

impl Answers {
    /// What a store has of a tenant, read in pages of so many.
    pub(super) async fn read(store: &dyn Store, tenant: TenantId, limit: u32) -> Result<Self, StoreError> {
        let (mut answers, mut last) = (Self::default(), None);
        loop {
            let page = store.replies_after(tenant, last.as_ref(), limit).await?;
            answers.add(&page);
            match page.last() {
                Some(reply) => last = Some(reply.key.clone()),
                None => return Ok(answers),
            }
        }
    }

    fn add(&mut self, page: &[ReplyRow]) {
        self.count += page.len() as u64;
        self.last_at = page
            .iter()
            .map(|reply| reply.at)
            .fold(self.last_at, Timestamp::max);
    }
}

/// Behind which row to go on.
enum Cursor<K> {
    After(Option<K>),
    Done,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self::After(None)
    }
}

impl<K> Cursor<K> {
    /// Goes on behind this row, if there is one to go on behind.
    fn of(next: Option<K>) -> Self {
        next.map_or(Self::Done, |last| Self::After(Some(last)))
    }

    /// Goes on behind the last row of a page; a page that is not full was the last one.
    fn advance(&mut self, rows: usize, limit: u32, last: Option<K>) {
        *self = match last {
            Some(last) if rows >= limit as usize => Self::After(Some(last)),
            _ => Self::Done,
        };
    }
}

impl Beside {
    /// Whether everything has gone over.
    pub(super) const fn is_done(&self) -> bool {
        matches!(
            (&self.approvals, &self.runs, &self.counters),
            (Cursor::Done, Cursor::Done, Cursor::Done)
        ) && matches!(
            (&self.budgets, &self.reservations, &self.links, &self.replies),
            (Cursor::Done, Cursor::Done, Cursor::Done, Cursor::Done)
        )
    }

    /// Adds the next page of each kind to a batch.
    pub(super) async fn add_page(
        &mut self,
        from: &dyn Store,
        tenant: TenantId,
        limit: u32,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        self.add_approvals(from, tenant, limit, batch).await?;
        if let Cursor::After(last) = &self.runs {
            let page = from.runs_after(tenant, last.as_ref(), limit).await?;
            let last = page.last().map(|run| run.run_id.clone());
            self.runs.advance(page.len(), limit, last);
            batch.runs.extend(page.into_iter().map(|run| (tenant, run)));
        }
        if let Cursor::After(last) = &self.counters {
            let page = from.counters_after(tenant, *last, limit).await?;
            let last = page.last().map(|counter| counter.key);
            self.counters.advance(page.len(), limit, last);
            batch
                .counters
                .extend(page.into_iter().map(|counter| (tenant, counter)));
        }
        self.add_budgets(from, tenant, limit, batch).await
    }

    /// How many entries may go over with a page, of at most so many.
    // INVARIANT: there are no fewer entries than pages, except of answers, so that none is left for the last commit,
    // which would have them all. Approvals, budgets, what is held, runs and their links come of an entry each, and of
    // one come fewer counters than are on a page.
    pub(super) const fn entries_max(&self, limit: u32) -> u32 {
        if self.is_done() { limit } else { 1 }
    }

    /// Which answers have gone over.
    pub(super) const fn answers(&self) -> Answers {
        self.answers
    }

    /// Adds the next page of approvals.
    async fn add_approvals(
        &mut self,
        from: &dyn Store,
        tenant: TenantId,
        limit: u32,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        if let Cursor::After(last) = &self.approvals {
            let filter = ApprovalFilter::default();
            let page = from.approvals(tenant, &filter, *last, limit).await?;
            self.approvals = Cursor::of(page.next);
            let rows = page.found.into_iter().map(|approval| (tenant, approval));
            batch.approvals.extend(rows);
        }
        Ok(())
    }

    async fn add_budgets(
        &mut self,
        from: &dyn Store,
        tenant: TenantId,
        limit: u32,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let rows = &mut batch.budgets;
        if let Cursor::After(last) = &self.budgets {
            let filter = BudgetFilter::default();
            let page = from.list_budgets(tenant, &filter, *last, limit).await?;
            self.budgets = Cursor::of(page.next);
            rows.budgets
                .extend(page.found.into_iter().map(|budget| (tenant, budget)));
        }
        if let Cursor::After(last) = &self.reservations {
            let filter = ReservationFilter::default();
            let page = from.list_reservations(tenant, &filter, *last, limit).await?;
            self.reservations = Cursor::of(page.next);
            rows.reservations
                .extend(page.found.into_iter().map(|held| (tenant, held)));
        }
        if let Cursor::After(last) = &self.links {
            let page = from.run_links_after(tenant, last.as_ref(), limit).await?;
            let last = page.last().map(|link| link.run_id.clone());
            self.links.advance(page.len(), limit, last);
            rows.links.extend(page.into_iter().map(|link| (tenant, link)));
        }
        if let Cursor::After(last) = &self.replies {
            let page = from.replies_after(tenant, last.as_ref(), limit).await?;
            let last = page.last().map(|reply| reply.key.clone());
            self.replies.advance(page.len(), limit, last);
            self.answers.add(&page);
            rows.replies.extend(page);
        }
        Ok(())
    }
}
