//! A store that fails on command: for tests of what stands on a store.
//!
//! For every durable write there are two bad ends, that it did not happen and that it happened and nobody was told; and
//! a caller must be right after both. This is a wrapper and not a fake: what it does not spoil goes to a real backend.

mod gate;

use crate::{
    ApprovalFilter, Approvals, Batch, BlockClaim, BucketKey, Buckets, BudgetFilter, BudgetPlace, Budgets,
    ChainPosition, ChangedTenant, CommitError, Counters, DecisionFilter, Directories, Ending, FoundBalances,
    FoundRequest, IndexedBlock, Journal, Lease, OpenBudgets, Part, Posting, Recorded, Records, ReplyKey,
    ReplyRow, RequestKey, ReservationFilter, SearchIndex, Store, StoreError, StoredDecision, StoredEntry,
    StoredTenant, Swept, Turn, TurnOver, Wanted, WantedBalances, WantedBudgets, WantedReservations,
};
use async_trait::async_trait;
use canon::Digest;
use gate::Gate;
use ledger::{Head, Tip};
use model::{
    Approval, ApprovalId, Bucket, Budget, BudgetId, Counter, DecisionId, Name, Reservation, ReservationId,
    RunLink, RunTaint, TenantId, Timestamp,
};
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;

/// What becomes of one commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It goes through.
    Pass,
    /// It goes through after a while.
    Delay(Duration),
    /// It goes through when it is let go, see [`FaultyStore::let_go`].
    Hold,
    /// It is not written, and says so.
    Lose,
    /// It is not written, because its turn was over before.
    LoseTurn,
    /// It is not written, and says that it does not know.
    LoseUnknown,
    /// It is written, and says that it does not know.
    KeepButReportUnknown,
    /// It is not written, because somebody else was faster.
    HeadMoved,
}

/// What stands beside entries and is found damaged, see [`FaultyStore::damage`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Damaged {
    /// The hashes of subtrees, of whichever entries.
    Nodes,
    /// Whether the outcome of this decision is remembered.
    OutcomeOf(DecisionId),
    /// What stands where ledgers end.
    Endings,
    /// The ends of ledgers and the edges of their trees.
    Tips,
}

/// The cause in the errors that it makes.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("a fault was planned")]
pub struct Planned;

macro_rules! places {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Where whoever uses the store can be held, see [`FaultyStore::hold_at`].
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum At { $($(#[$doc])* $name,)* }

        impl At {
            /// How many there are.
            const COUNT: usize = [$(Self::$name,)*].len();
        }
    };
}

places! {
    /// Before approvals are listed.
    Lists,
    /// Before entries or the size of the database are read.
    Entries,
    /// Before an approval is looked up.
    Approvals,
    /// Before a receipt is looked up.
    Receipts,
    /// When something of a bucket was lent, before it is told.
    Leases,
    /// When tokens were given back, before it is told.
    GiveBacks,
    /// When directories were read whole, before it is told.
    Loads,
    /// When budgets were listed, where there are some, before it is told.
    Budgets,
    /// When what has changed of directories was read, before it is told.
    Changes,
    /// Before blocks are taken out of the search index.
    Taking,
}

/// A store, and what is to become of the next commits to it.
#[derive(Debug)]
pub struct FaultyStore<S: ?Sized> {
    faults: Arc<Faults>,
    inner: Arc<S>,
}

/// What fails, who is held and what was counted, also in the store for work in the background.
#[derive(Debug, Default)]
struct Faults {
    plan: Plan,
    reads_fail: AtomicBool,
    turns: AtomicUsize,
    leases: AtomicUsize,
    give_backs: AtomicUsize,
    bucket_reads: AtomicUsize,
    directories_read: AtomicUsize,
    reservation_reads: AtomicUsize,
    approval_reads: AtomicUsize,
    most_contents: AtomicUsize,
    /// One for each [`At`], in that order.
    gates: [Gate; At::COUNT],
    /// Whose search index cannot be read. Locked for a look.
    unindexed: Mutex<Option<TenantId>>,
    /// What is found damaged, and by how many more reads. Locked for a look.
    damaged: Mutex<Option<(Damaged, usize)>>,
}

impl<S: Store + ?Sized> FaultyStore<S> {
    /// A store that passes everything on until it is told otherwise.
    pub fn new(inner: Arc<S>) -> Self {
        Self {
            faults: Arc::default(),
            inner,
        }
    }

    /// Adds to what is to become of the next commits, one after the other. The ones after that pass.
    pub fn plan(&self, faults: impl IntoIterator<Item = Fault>) {
        self.faults.plan.lock().extend(faults);
    }

    /// Forgets what was planned and has not come to pass, and who was let go without being held.
    pub fn forget_plan(&self) {
        self.faults.plan.lock().clear();
        self.faults.plan.go.forget_permits(usize::MAX);
    }

    /// How many commits are held now.
    pub fn held(&self) -> usize {
        self.faults.plan.held.load(Ordering::SeqCst)
    }

    /// Lets one commit go: one that is held, or the next one that would be.
    pub fn let_go(&self) {
        self.faults.plan.go.add_permits(1);
    }

    /// How many bytes the bodies of entries have in the largest commit so far.
    pub fn largest_commit(&self) -> usize {
        self.faults.plan.largest.load(Ordering::SeqCst)
    }

    /// Makes everything but commits fail from now on, or nothing.
    pub fn fail_reads(&self, fail: bool) {
        self.faults.reads_fail.store(fail, Ordering::SeqCst);
    }

    /// How many turns were taken so far. Who appends takes none.
    pub fn turns(&self) -> usize {
        self.faults.turns.load(Ordering::SeqCst)
    }

    /// How often directories were read whole so far.
    pub fn directories_read(&self) -> usize {
        self.faults.directories_read.load(Ordering::SeqCst)
    }

    /// How many leases buckets were asked for so far.
    pub fn leases(&self) -> usize {
        self.faults.leases.load(Ordering::SeqCst)
    }

    /// How often tokens were given back so far, of however many buckets.
    pub fn give_backs(&self) -> usize {
        self.faults.give_backs.load(Ordering::SeqCst)
    }

    /// How often it was asked what is left in buckets so far, in however many.
    pub fn bucket_reads(&self) -> usize {
        self.faults.bucket_reads.load(Ordering::SeqCst)
    }

    /// Holds whoever comes here from now on, or lets everybody go.
    pub fn hold_at(&self, at: At, hold: bool) {
        self.faults.gate(at).is_closed.send_replace(hold);
    }

    /// How many are held here now.
    pub fn held_at(&self, at: At) -> usize {
        self.faults.gate(at).held.load(Ordering::SeqCst)
    }

    /// How often budgets were listed so far, where there were some.
    pub fn budgets_listed(&self) -> usize {
        self.faults.gate(At::Budgets).reached.load(Ordering::SeqCst)
    }

    /// Makes whoever asks which blocks of this tenant are in the search index fail from now on, or nobody.
    pub fn fail_index_of(&self, tenant: Option<TenantId>) {
        *self
            .faults
            .unindexed
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = tenant;
    }

    /// Has something found damaged from now on, or nothing.
    pub fn damage(&self, what: Option<Damaged>) {
        *self.faults.damaged.lock().unwrap_or_else(PoisonError::into_inner) =
            what.map(|what| (what, usize::MAX));
    }

    /// Has something found damaged by the next read of it, and by no other.
    pub fn damage_once(&self, what: Damaged) {
        *self.faults.damaged.lock().unwrap_or_else(PoisonError::into_inner) = Some((what, 1));
    }

    /// How often turns were asked for reservations so far.
    pub fn reservation_reads(&self) -> usize {
        self.faults.reservation_reads.load(Ordering::SeqCst)
    }

    /// How often one approval was asked for so far, outside of turns.
    pub fn approval_reads(&self) -> usize {
        self.faults.approval_reads.load(Ordering::SeqCst)
    }

    /// How many contents one call has asked for so far, at most.
    pub fn most_contents(&self) -> usize {
        self.faults.most_contents.load(Ordering::SeqCst)
    }

    /// The store behind it.
    pub const fn inner(&self) -> &Arc<S> {
        &self.inner
    }

    fn read(&self) -> Result<&S, StoreError> {
        self.faults.check_reads()?;
        Ok(&self.inner)
    }

    fn index_of(&self, tenant: TenantId) -> Result<&S, StoreError> {
        let unindexed = *self
            .faults
            .unindexed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if unindexed == Some(tenant) {
            return Err(StoreError::Unavailable(Box::new(Planned)));
        }
        self.read()
    }
}

impl Faults {
    const fn gate(&self, at: At) -> &Gate {
        &self.gates[at as usize]
    }

    /// Waits until nobody is held here.
    async fn pass(&self, at: At) {
        self.gate(at).pass().await;
    }

    /// Fails where everything but commits does.
    fn check_reads(&self) -> Result<(), StoreError> {
        if self.reads_fail.load(Ordering::SeqCst) {
            return Err(StoreError::Unavailable(Box::new(Planned)));
        }
        Ok(())
    }

    /// Fails where what is found damaged is among what is read.
    fn fail_if_damaged(&self, is_read: impl FnOnce(Damaged) -> bool) -> Result<(), StoreError> {
        let mut damaged = self.damaged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((what, reads)) = &mut *damaged
            && *reads > 0
            && is_read(*what)
        {
            *reads -= 1;
            return Err(StoreError::Corrupt {
                what: Planned.to_string(),
            });
        }
        Ok(())
    }
}

/// What is to become of the next commits, the gate that some of them are held at, and how large the largest was.
#[derive(Debug)]
struct Plan {
    // INVARIANT: never locked across an await.
    faults: Mutex<VecDeque<Fault>>,
    held: AtomicUsize,
    /// Has a permit for each commit that was let go.
    go: Semaphore,
    largest: AtomicUsize,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            faults: Mutex::default(),
            held: AtomicUsize::new(0),
            go: Semaphore::new(0),
            largest: AtomicUsize::new(0),
        }
    }
}

impl Plan {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Fault>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is to become of a commit. One that writes nothing only asks whether the ledger can be written, and was not
    /// planned for.
    fn next(&self, batch: &Batch) -> Fault {
        if writes_nothing(batch) {
            return Fault::Pass;
        }
        let entries = batch.entries.iter();
        let bodies: usize = entries.map(|entry| entry.body.as_bytes().len()).sum();
        self.largest.fetch_max(bodies, Ordering::SeqCst);
        self.lock().pop_front().unwrap_or(Fault::Pass)
    }

    /// Whether the next commit is to be held. Whoever asks holds it, and after that it goes through.
    fn takes_hold(&self) -> bool {
        let mut faults = self.lock();
        let next = faults.front_mut().filter(|next| **next == Fault::Hold);
        next.is_some_and(|next| {
            *next = Fault::Pass;
            true
        })
    }

    /// Waits until it is let go.
    async fn hold(&self) {
        self.held.fetch_add(1, Ordering::SeqCst);
        let let_go = self.go.acquire().await;
        let_go.expect("nobody closes it").forget();
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

fn writes_nothing(batch: &Batch) -> bool {
    let Batch {
        advances,
        entries,
        decisions,
        outcomes,
        writes,
        runs,
        counters,
        approvals,
        budgets,
        contents,
        erasures,
    } = batch;
    let no_entries = advances.is_empty() && entries.is_empty();
    let no_rows = decisions.is_empty() && outcomes.is_empty() && contents.is_empty();
    let no_changes = writes.is_empty() && runs.is_empty() && counters.is_empty();
    let no_moves = approvals.is_empty() && budgets.is_empty() && erasures.is_empty();
    no_entries && no_rows && no_changes && no_moves
}

#[async_trait]
impl<S: Store + ?Sized> Directories for FaultyStore<S> {
    async fn load(&self, only: Option<&[TenantId]>) -> Result<Vec<StoredTenant>, StoreError> {
        self.faults.directories_read.fetch_add(1, Ordering::SeqCst);
        let stored = self.read()?.load(only).await;
        self.faults.pass(At::Loads).await;
        stored
    }

    async fn changes(&self, known: &[(TenantId, u64)]) -> Result<Vec<ChangedTenant>, StoreError> {
        let changed = self.read()?.changes(known).await;
        self.faults.pass(At::Changes).await;
        changed
    }

    async fn revisions(&self) -> Result<Vec<(TenantId, u64)>, StoreError> {
        self.read()?.revisions().await
    }

    async fn incarnation(&self) -> Result<String, StoreError> {
        self.read()?.incarnation().await
    }

    fn is_shared(&self) -> bool {
        self.inner.is_shared()
    }

    async fn changed(&self) -> Result<(), StoreError> {
        self.inner.changed().await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Journal for FaultyStore<S> {
    async fn begin(&self, tenants: &[TenantId]) -> Result<Box<dyn Turn>, StoreError> {
        // Before its turn: a server ends one that stands idle.
        if !tenants.is_empty() && self.faults.plan.takes_hold() {
            self.faults.plan.hold().await;
        }
        let inner = self.read()?.begin(tenants).await?;
        self.faults.turns.fetch_add(1, Ordering::SeqCst);
        Ok(Box::new(FaultyTurn {
            inner,
            faults: Arc::clone(&self.faults),
        }))
    }

    async fn append(&self, batch: &Batch) -> Result<(), CommitError> {
        spoil(&self.faults.plan, batch, self.inner.append(batch)).await
    }
}

/// Writes a batch, if that is what is to become of it.
async fn spoil(
    plan: &Plan,
    batch: &Batch,
    write: impl Future<Output = Result<(), CommitError>> + Send,
) -> Result<(), CommitError> {
    match plan.next(batch) {
        Fault::Pass => write.await,
        Fault::Hold => {
            plan.hold().await;
            write.await
        }
        Fault::Delay(time) => {
            tokio::time::sleep(time).await;
            write.await
        }
        Fault::Lose => Err(CommitError::NotWritten(Box::new(Planned))),
        Fault::LoseTurn => Err(CommitError::NotWritten(Box::new(TurnOver(Box::new(Planned))))),
        Fault::LoseUnknown => Err(CommitError::Unknown(Box::new(Planned))),
        Fault::KeepButReportUnknown => {
            write.await?;
            Err(CommitError::Unknown(Box::new(Planned)))
        }
        Fault::HeadMoved => Err(batch.advances.first().map_or_else(
            || CommitError::NotWritten(Box::new(Planned)),
            |advance| CommitError::HeadMoved {
                tenant: advance.tenant,
            },
        )),
    }
}

/// A turn whose commit ends as planned.
struct FaultyTurn {
    inner: Box<dyn Turn>,
    faults: Arc<Faults>,
}

#[async_trait]
impl Turn for FaultyTurn {
    fn positions(&self) -> &HashMap<TenantId, ChainPosition> {
        self.inner.positions()
    }

    async fn find_requests(&mut self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_requests(keys).await
    }

    async fn find_outcomes(
        &mut self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_outcomes(decisions).await
    }

    async fn find_erased(&mut self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, u64)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_erased(entries).await
    }

    async fn find_approvals(
        &mut self,
        approvals: &[(TenantId, ApprovalId)],
    ) -> Result<Vec<(TenantId, Approval)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_approvals(approvals).await
    }

    async fn find_runs(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_runs(runs).await
    }

    async fn find_counters(
        &mut self,
        keys: &[(TenantId, Digest)],
    ) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_counters(keys).await
    }

    async fn find_budgets(&mut self, wanted: &WantedBudgets) -> Result<Vec<(TenantId, Budget)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_budgets(wanted).await
    }

    async fn find_reservations(
        &mut self,
        wanted: &WantedReservations,
    ) -> Result<Vec<(TenantId, Reservation)>, StoreError> {
        self.faults.check_reads()?;
        self.faults.reservation_reads.fetch_add(1, Ordering::SeqCst);
        self.inner.find_reservations(wanted).await
    }

    async fn find_first_ends(
        &mut self,
        tenants: &[TenantId],
        after: Timestamp,
    ) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_first_ends(tenants, after).await
    }

    async fn have_budgets(&mut self, tenants: &[TenantId]) -> Result<Vec<TenantId>, StoreError> {
        self.faults.check_reads()?;
        self.inner.have_budgets(tenants).await
    }

    async fn find_run_links(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_run_links(runs).await
    }

    async fn find_replies(&mut self, keys: &[ReplyKey]) -> Result<Vec<ReplyRow>, StoreError> {
        self.faults.check_reads()?;
        self.inner.find_replies(keys).await
    }

    async fn commit(self: Box<Self>, batch: &Batch) -> Result<(), CommitError> {
        spoil(&self.faults.plan, batch, self.inner.commit(batch)).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Records for FaultyStore<S> {
    async fn head(&self, tenant: TenantId) -> Result<Head, StoreError> {
        self.read()?.head(tenant).await
    }

    async fn heads_at(&self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, Head)>, StoreError> {
        self.read()?.heads_at(entries).await
    }

    async fn nodes(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, StoreError> {
        self.faults.fail_if_damaged(|damaged| damaged == Damaged::Nodes)?;
        self.read()?.nodes(tenant, seqs).await
    }

    async fn tip(&self, tenant: TenantId) -> Result<Tip, StoreError> {
        self.faults.fail_if_damaged(|damaged| damaged == Damaged::Tips)?;
        self.read()?.tip(tenant).await
    }

    async fn ending(&self, tenant: TenantId) -> Result<Option<Ending>, StoreError> {
        self.faults
            .fail_if_damaged(|damaged| damaged == Damaged::Endings)?;
        self.read()?.ending(tenant).await
    }

    async fn entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError> {
        self.faults.pass(At::Entries).await;
        self.read()?.entries(tenant, from_seq, limit).await
    }

    async fn decision(&self, tenant: TenantId, id: DecisionId) -> Result<Option<StoredDecision>, StoreError> {
        self.read()?.decision(tenant, id).await
    }

    async fn decisions(
        &self,
        tenant: TenantId,
        filter: &DecisionFilter,
        before_seq: Option<u64>,
        limit: u32,
    ) -> Result<Vec<StoredDecision>, StoreError> {
        self.read()?.decisions(tenant, filter, before_seq, limit).await
    }

    async fn recorded(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, StoreError> {
        self.read()?.recorded(tenant, from_seq, limit).await
    }

    async fn receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError> {
        self.faults.pass(At::Receipts).await;
        self.read()?.receipt(tenant, id).await
    }

    async fn answered_request(&self, key: &RequestKey) -> Result<Option<FoundRequest>, StoreError> {
        self.read()?.answered_request(key).await
    }

    async fn contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        self.faults
            .most_contents
            .fetch_max(digests.len(), Ordering::SeqCst);
        self.read()?.contents(tenant, digests).await
    }

    async fn runs(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        self.read()?.runs(runs).await
    }

    async fn decisions_at(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<StoredDecision>, StoreError> {
        self.read()?.decisions_at(tenant, seqs).await
    }

    async fn runs_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunTaint>, StoreError> {
        self.read()?.runs_after(tenant, after, limit).await
    }

    async fn outcomes_of(&self, tenant: TenantId, decisions: &[DecisionId]) -> Result<Vec<u64>, StoreError> {
        self.faults.fail_if_damaged(
            |damaged| matches!(damaged, Damaged::OutcomeOf(decision) if decisions.contains(&decision)),
        )?;
        self.read()?.outcomes_of(tenant, decisions).await
    }

    async fn size_bytes(&self) -> Result<u64, StoreError> {
        self.faults.pass(At::Entries).await;
        self.read()?.size_bytes().await
    }
}

#[async_trait]
impl<S: Store + ?Sized> SearchIndex for FaultyStore<S> {
    async fn indexed(
        &self,
        tenant: TenantId,
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<IndexedBlock>, StoreError> {
        self.index_of(tenant)?.indexed(tenant, blocks).await
    }

    async fn postings(
        &self,
        tenant: TenantId,
        terms: &[u64],
        blocks: RangeInclusive<u64>,
    ) -> Result<Vec<(u64, Posting)>, StoreError> {
        self.read()?.postings(tenant, terms, blocks).await
    }

    async fn claim_block(
        &self,
        tenant: TenantId,
        block: u64,
        claim: &BlockClaim,
    ) -> Result<bool, StoreError> {
        self.read()?.claim_block(tenant, block, claim).await
    }

    async fn take_blocks(
        &self,
        tenant: TenantId,
        blocks: &BTreeSet<u64>,
        claim: &BlockClaim,
    ) -> Result<(), StoreError> {
        self.faults.pass(At::Taking).await;
        self.read()?.take_blocks(tenant, blocks, claim).await
    }

    async fn put_block(
        &self,
        tenant: TenantId,
        block: &IndexedBlock,
        postings: &[Posting],
    ) -> Result<bool, StoreError> {
        self.read()?.put_block(tenant, block, postings).await
    }

    async fn release_block(&self, tenant: TenantId, block: u64, token: i64) -> Result<(), StoreError> {
        self.read()?.release_block(tenant, block, token).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Approvals for FaultyStore<S> {
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        self.faults.approval_reads.fetch_add(1, Ordering::SeqCst);
        self.faults.pass(At::Approvals).await;
        self.read()?.approval(tenant, id).await
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        before: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Part<Approval, ApprovalId>, StoreError> {
        self.faults.pass(At::Lists).await;
        self.read()?.approvals(tenant, filter, before, limit).await
    }

    async fn overdue_approvals(
        &self,
        except: &[TenantId],
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ApprovalId)>, StoreError> {
        self.read()?.overdue_approvals(except, now, limit).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Counters for FaultyStore<S> {
    async fn counters(&self, keys: &[(TenantId, Digest)]) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        self.read()?.counters(keys).await
    }

    async fn counters_after(
        &self,
        tenant: TenantId,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<Counter>, StoreError> {
        self.read()?.counters_after(tenant, after, limit).await
    }

    async fn forget_counters(&self, before: Timestamp) -> Result<Swept, StoreError> {
        self.read()?.forget_counters(before).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Buckets for FaultyStore<S> {
    async fn lease(&self, key: &BucketKey, size: Bucket, wanted: Wanted) -> Result<Lease, StoreError> {
        self.faults.leases.fetch_add(1, Ordering::SeqCst);
        let lease = self.read()?.lease(key, size, wanted).await;
        self.faults.pass(At::Leases).await;
        lease
    }

    async fn left(&self, sizes: &[(BucketKey, Bucket)]) -> Result<Vec<f64>, StoreError> {
        self.faults.bucket_reads.fetch_add(1, Ordering::SeqCst);
        self.read()?.left(sizes).await
    }

    async fn resize(&self, sizes: &[(BucketKey, Bucket)]) -> Result<(), StoreError> {
        self.read()?.resize(sizes).await
    }

    async fn give_back(&self, tokens: &[(BucketKey, u32)]) -> Result<(), StoreError> {
        self.faults.give_backs.fetch_add(1, Ordering::SeqCst);
        let given_back = self.read()?.give_back(tokens).await;
        self.faults.pass(At::GiveBacks).await;
        given_back
    }

    async fn forget_full(&self) -> Result<u64, StoreError> {
        self.read()?.forget_full().await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Budgets for FaultyStore<S> {
    async fn balances(&self, wanted: &WantedBalances) -> Result<FoundBalances, StoreError> {
        self.read()?.balances(wanted).await
    }

    async fn list_budgets(
        &self,
        tenant: TenantId,
        filter: &BudgetFilter,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Part<Budget, BudgetId>, StoreError> {
        let listed = self.read()?.list_budgets(tenant, filter, before, limit).await?;
        if !listed.found.is_empty() {
            self.faults.pass(At::Budgets).await;
        }
        Ok(listed)
    }

    async fn budget_places(
        &self,
        tenant: TenantId,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Vec<BudgetPlace>, StoreError> {
        self.read()?.budget_places(tenant, before, limit).await
    }

    async fn open_budgets(&self, wanted: &OpenBudgets) -> Result<Vec<Budget>, StoreError> {
        self.read()?.open_budgets(wanted).await
    }

    async fn run_links(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        self.read()?.run_links(runs).await
    }

    async fn run_links_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunLink>, StoreError> {
        self.read()?.run_links_after(tenant, after, limit).await
    }

    async fn reply(&self, key: &ReplyKey) -> Result<Option<ReplyRow>, StoreError> {
        self.read()?.reply(key).await
    }

    async fn replies_after(
        &self,
        tenant: TenantId,
        after: Option<&ReplyKey>,
        limit: u32,
    ) -> Result<Vec<ReplyRow>, StoreError> {
        self.read()?.replies_after(tenant, after, limit).await
    }

    async fn forget_replies(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.read()?.forget_replies(before).await
    }

    async fn count_budgets(&self, tenant: TenantId) -> Result<u64, StoreError> {
        self.read()?.count_budgets(tenant).await
    }

    async fn reservation(
        &self,
        tenant: TenantId,
        id: ReservationId,
    ) -> Result<Option<Reservation>, StoreError> {
        self.read()?.reservation(tenant, id).await
    }

    async fn list_reservations(
        &self,
        tenant: TenantId,
        filter: &ReservationFilter,
        before: Option<ReservationId>,
        limit: u32,
    ) -> Result<Part<Reservation, ReservationId>, StoreError> {
        self.read()?
            .list_reservations(tenant, filter, before, limit)
            .await
    }

    async fn overdue_reservations(
        &self,
        except: &[TenantId],
        ended_by: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
        self.read()?.overdue_reservations(except, ended_by, limit).await
    }
}

#[async_trait]
impl<S: Store + ?Sized> Store for FaultyStore<S> {
    fn background(&self) -> Arc<dyn Store> {
        Arc::new(FaultyStore {
            faults: Arc::clone(&self.faults),
            inner: self.inner.background(),
        })
    }

    fn readers(&self) -> usize {
        self.inner.readers()
    }

    fn check(&self) -> Result<(), StoreError> {
        self.inner.check()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ContentRow;
    use bytes::Bytes;

    fn batch() -> Batch {
        let row = ContentRow {
            tenant: TenantId::SYSTEM,
            digest: Digest::ZERO,
            bytes: Bytes::new(),
        };
        Batch {
            contents: vec![row],
            ..Batch::default()
        }
    }

    #[tokio::test]
    async fn a_commit_is_held_until_it_is_let_go() {
        let (plan, batch, written) = (Plan::default(), batch(), AtomicBool::new(false));
        plan.lock().push_back(Fault::Hold);
        let write = async {
            written.store(true, Ordering::SeqCst);
            Ok(())
        };
        let letting_go = async {
            while plan.held.load(Ordering::SeqCst) == 0 {
                tokio::task::yield_now().await;
            }
            assert!(!written.load(Ordering::SeqCst));
            plan.go.add_permits(1);
        };
        let (outcome, ()) = tokio::join!(spoil(&plan, &batch, write), letting_go);
        assert!(outcome.is_ok() && written.load(Ordering::SeqCst));
        assert_eq!(plan.held.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn a_commit_that_was_held_before_its_turn_goes_through() {
        let plan = Plan::default();
        plan.lock().extend([Fault::Hold, Fault::Lose]);
        assert!(plan.takes_hold());
        assert!(!plan.takes_hold());
        assert!(spoil(&plan, &batch(), async { Ok(()) }).await.is_ok());
        assert!(spoil(&plan, &batch(), async { Ok(()) }).await.is_err());
    }

    #[tokio::test]
    async fn an_empty_batch_uses_up_no_fault() {
        let plan = Plan::default();
        plan.lock().push_back(Fault::Lose);
        let nothing = Batch::default();
        assert!(spoil(&plan, &nothing, async { Ok(()) }).await.is_ok());
        assert!(spoil(&plan, &batch(), async { Ok(()) }).await.is_err());
    }
}
