//! What stands beside a chain and changes: approvals, what runs have seen, what was counted of quotas, budgets and what is held in
//! them, which run started which, and answers that are given again. It is as it is at the end of the chain, and goes over with the entries, a page with each commit.

use canon::Digest;
use model::{ApprovalId, BudgetId, Name, ReservationId, TenantId};
use store::{ApprovalFilter, Batch, BudgetFilter, ReplyKey, ReservationFilter, Store, StoreError};

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

    /// How many entries may go over with the page that a batch has, of at most so many.
    // INVARIANT: each approval has an entry of its own. While no commit takes more entries than approvals, there are entries left for all
    // that are to come, of which large ones are few on a page; otherwise the last commit would have them all.
    pub(super) fn entries_max(&self, batch: &Batch, limit: u32) -> u32 {
        if matches!(self.approvals, Cursor::Done) {
            return limit;
        }
        let approvals = u32::try_from(batch.approvals.len()).unwrap_or(limit);
        approvals.clamp(1, limit)
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
            let last = page.last().map(|budget| budget.id);
            self.budgets.advance(page.len(), limit, last);
            rows.budgets
                .extend(page.into_iter().map(|budget| (tenant, budget)));
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
            rows.replies.extend(page);
        }
        Ok(())
    }
}
