//! What storage promises. The promises are traits; a backend is a crate that keeps them and passes [`conformance`].
//!
//! - [`Directories`]: what the snapshot is loaded from;
//! - [`Journal`] and [`Turn`]: the one way to write anything, a batch at a time;
//! - [`Records`]: reading back what was decided;
//! - [`SearchIndex`]: finding decisions without wading through them;
//! - [`Approvals`]: what people are asked and have said;
//! - [`Counters`]: what was counted of quotas;
//! - [`Budgets`]: what may be spent, and what of it is held;
//! - [`Buckets`]: token buckets that several gateways share.
//!
//! [`faults`] is a store that fails on command, for tests of what stands on one: a new promise enters it, too.
//!
//! There is no SQL here and no policy. Backends share no code with each other.

mod approvals;
pub mod batch;
mod buckets;
mod budgets;
pub mod conformance;
mod counters;
mod error;
pub mod faults;
mod lists;
mod records;
mod search;
mod sweep;

pub use approvals::{ApprovalFilter, Approvals};
pub use batch::{
    Advance, Batch, ContentRow, DecisionRow, EntryRow, ErasureRow, FoundRequest, MalformedBatch, OutcomeRow,
    RequestKey,
};
pub use buckets::{BucketKey, Buckets, CLOCK_BACK_MAX_MILLIS, Lease, Wanted};
pub use budgets::{
    BudgetFilter, BudgetPlace, BudgetRows, Budgets, FoundBalances, OpenBudgets, ReplyKey, ReplyRow,
    ReservationFilter, WantedBalances, WantedBudgets, WantedReservations,
};
pub use counters::Counters;
pub use error::{CommitError, Source, StoreError, TurnOver};
pub use lists::{BYTES_AT_ONCE, Bulk, LOOKED_AT_MAX, Part, Room, is_used_up};
pub use records::{DecisionFilter, Ending, Erased, Recorded, StoredDecision, StoredEntry};
pub use search::{BlockClaim, IndexedBlock, Posting, SearchIndex};
pub use sweep::{Sweep, SweepRound, Swept};

use async_trait::async_trait;
use canon::Digest;
use ledger::{Head, Tip};
use model::{
    Approval, ApprovalId, Budget, Counter, DecisionId, Name, Noun, NounKind, Reservation, RunLink, RunTaint,
    TenantId, Timestamp,
};
use std::collections::HashMap;
use std::sync::Arc;

/// The position of a tenant's chain: the end of its ledger, and how often its directory has changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPosition {
    /// The end of its ledger, chain and tree.
    pub tip: Tip,
    /// When its last entry was recorded.
    pub at: Timestamp,
    /// How many changes its directory has seen.
    pub revision: u64,
}

impl ChainPosition {
    /// The position of a chain that has never been written.
    pub const GENESIS: Self = Self {
        tip: Tip::GENESIS,
        at: Timestamp::from_millis(0),
        revision: 0,
    };

    /// The end of its chain.
    pub const fn head(&self) -> Head {
        self.tip.head()
    }
}

/// One tenant as storage holds it.
#[derive(Debug)]
pub struct StoredTenant {
    /// Which.
    pub tenant: TenantId,
    /// Where it stands.
    pub position: ChainPosition,
    /// Its nouns, its [`Noun::Tenant`] among them.
    pub nouns: Vec<Noun>,
}

/// What has changed of a tenant since a revision that somebody knows.
#[derive(Debug)]
pub struct ChangedTenant {
    /// Which.
    pub tenant: TenantId,
    /// Where it stands.
    pub position: ChainPosition,
    /// What became of each noun that was put or taken away, each once and in no order.
    pub nouns: Vec<ChangedNoun>,
}

/// What became of a noun that was put or taken away.
#[derive(Debug)]
pub enum ChangedNoun {
    /// It is there, as it is now.
    There(Noun),
    /// It is not there any more. It may have come and gone since.
    Gone {
        /// Its kind.
        kind: NounKind,
        /// Its id among the nouns of its kind and tenant, as [`Noun::id`] gives it.
        id: String,
    },
}

/// What the snapshot is loaded from, and how it is kept up to date.
///
/// Consistency: what [`load`](Self::load) and [`changes`](Self::changes) return is the state after some commit, whole,
/// for all tenants alike. Durability: it reads nothing that a crash could take back. Concurrency: any number of calls
/// at once. Errors: all are [`StoreError`]; none changes anything.
#[async_trait]
pub trait Directories: Send + Sync {
    /// Tenants with where they stand and their nouns: those named, as far as they exist, or all.
    async fn load(&self, only: Option<&[TenantId]>) -> Result<Vec<StoredTenant>, StoreError>;

    /// What has changed of these tenants since the revisions at which they are known. A tenant is left out where the
    /// store does not remember all of it, and one that it does not have: whoever follows has to [`load`](Self::load)
    /// those.
    async fn changes(&self, known: &[(TenantId, u64)]) -> Result<Vec<ChangedTenant>, StoreError>;

    /// The revision of every tenant: what tells which of them have moved.
    async fn revisions(&self) -> Result<Vec<(TenantId, u64)>, StoreError>;

    /// Which database answers, as a text to compare: it stays the same as long as nothing takes its place, such as a
    /// standby or a backup. It may change without that, as when the server starts again.
    async fn incarnation(&self) -> Result<String, StoreError>;

    /// Whether other programs write to the same database, so that revisions move without anybody here.
    fn is_shared(&self) -> bool;

    /// Returns when another program has said that it changed a directory; may return without cause. Where
    /// nobody else writes it never returns. Not every change is announced: whoever waits here also looks at
    /// [`revisions`](Self::revisions) now and then.
    async fn changed(&self) -> Result<(), StoreError>;
}

/// The one way to write: take the turn, see where things stand, commit; or append, where one knows already.
///
/// Consistency: between [`begin`](Self::begin) and the end of the turn nobody else moves the heads of its tenants, in this
/// program or another. Concurrency: a call waits for the turns before it, in bounded time. Errors of `begin`:
/// [`StoreError`]; nothing was written.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Takes the turn to write to these tenants.
    async fn begin(&self, tenants: &[TenantId]) -> Result<Box<dyn Turn>, StoreError>;

    /// Writes a batch that was made without a turn, from where its tenants are thought to stand. It is written only if that
    /// is where they do; otherwise [`CommitError::HeadMoved`], and the batch has to be made again in a turn. Everything else
    /// is promised as by [`Turn::commit`].
    ///
    /// It saves round trips where the database is another program, and nothing where it is not.
    async fn append(&self, batch: &Batch) -> Result<(), CommitError> {
        commit_in_turn(self, batch).await
    }
}

/// Takes the turn for the tenants of a batch and commits it in that.
pub async fn commit_in_turn(journal: &(impl Journal + ?Sized), batch: &Batch) -> Result<(), CommitError> {
    let tenants: Vec<_> = batch.advances.iter().map(|advance| advance.tenant).collect();
    let turn = journal.begin(&tenants).await;
    let turn = turn.map_err(|error| CommitError::NotWritten(Box::new(error)))?;
    turn.commit(batch).await
}

/// The turn to write. Dropping it gives the turn back, and nothing was written.
///
/// Consistency: a batch is there whole or not at all, and only if every tenant in it still has the head it advances
/// from. Durability: when [`commit`](Self::commit) returns `Ok`, the batch survives the loss of power. Cancellation: a
/// commit whose caller goes away is there whole or not at all. Errors: [`CommitError`] says whether the batch may have
/// landed.
#[async_trait]
pub trait Turn: Send {
    /// Where each of the tenants stands. One that was never written is missing.
    fn positions(&self) -> &HashMap<TenantId, ChainPosition>;

    /// The receipts of those of these requests that were recorded before, in no particular order.
    async fn find_requests(&mut self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError>;

    /// Which of these decisions have an outcome already, or were erased: none of them gets one any more.
    async fn find_outcomes(
        &mut self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError>;

    /// Those of these entries whose bodies are erased, in no particular order.
    async fn find_erased(&mut self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, u64)>, StoreError>;

    /// These approvals as they are now, in no particular order. One that is not there is missing.
    async fn find_approvals(
        &mut self,
        approvals: &[(TenantId, ApprovalId)],
    ) -> Result<Vec<(TenantId, Approval)>, StoreError>;

    /// These runs as they are now, in no particular order. One that is not there is missing.
    async fn find_runs(&mut self, runs: &[(TenantId, Name)])
    -> Result<Vec<(TenantId, RunTaint)>, StoreError>;

    /// These counters as they are now, in no particular order. One that was never written is missing.
    async fn find_counters(
        &mut self,
        keys: &[(TenantId, Digest)],
    ) -> Result<Vec<(TenantId, Counter)>, StoreError>;

    /// These budgets as they are now, in no particular order. One that is not there is missing.
    async fn find_budgets(&mut self, wanted: &WantedBudgets) -> Result<Vec<(TenantId, Budget)>, StoreError>;

    /// These reservations as they are now, each once, in no particular order.
    async fn find_reservations(
        &mut self,
        wanted: &WantedReservations,
    ) -> Result<Vec<(TenantId, Reservation)>, StoreError>;

    /// For each of these tenants, the earliest end, later than `after`, of a reservation that it holds. A tenant
    /// without one is missing.
    async fn find_first_ends(
        &mut self,
        tenants: &[TenantId],
        after: Timestamp,
    ) -> Result<Vec<(TenantId, Timestamp)>, StoreError>;

    /// Those of these tenants that have a budget that is not closed.
    async fn have_budgets(&mut self, tenants: &[TenantId]) -> Result<Vec<TenantId>, StoreError>;

    /// Who started these runs, and who started those, and so on upwards, in no particular order.
    async fn find_run_links(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunLink)>, StoreError>;

    /// The answers that were given to these requests, in no particular order.
    async fn find_replies(&mut self, keys: &[ReplyKey]) -> Result<Vec<ReplyRow>, StoreError>;

    /// Writes a batch and ends the turn. Whoever has not looked for requests, outcomes and answers beforehand is told by
    /// [`CommitError::AlreadyRecorded`] that one of the batch is there already.
    async fn commit(self: Box<Self>, batch: &Batch) -> Result<(), CommitError>;
}

/// Reading back what was recorded.
///
/// Consistency: each call sees the state after some commit, and never less than any commit that returned before the
/// call. Concurrency: any number of calls at once, none of which holds up a commit. Bounds: every call that can find
/// many has a limit, and none keeps a read transaction open between calls. One that reads bodies also ends behind the
/// row with which they come to [`BYTES_AT_ONCE`]: there may be more, and [`is_used_up`] tells. Errors: [`StoreError`];
/// absence is `None`.
#[async_trait]
pub trait Records: Send + Sync {
    /// Where a tenant's chain ends, as the last commit wrote it down beside the chain; [`Head::GENESIS`] if there is no
    /// such tenant.
    async fn head(&self, tenant: TenantId) -> Result<Head, StoreError>;

    /// Where a tenant's ledger ends, chain and tree, as the last commit wrote it down; [`Tip::GENESIS`] if there is no such
    /// tenant.
    async fn tip(&self, tenant: TenantId) -> Result<Tip, StoreError>;

    /// What a verifier compares where it has come to the end of a tenant's ledger; none if there is no such tenant.
    /// Somebody may have written to it meanwhile: this is the end that it has now.
    async fn ending(&self, tenant: TenantId) -> Result<Option<Ending>, StoreError>;

    /// Entries of a tenant's chain from `from_seq` on, in order, at most `limit`.
    async fn entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError>;

    /// The heads that these chains had when these entries were their last, in no particular order. An entry that is not
    /// there is missing.
    async fn heads_at(&self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, Head)>, StoreError>;

    /// What these entries add to the tree of a tenant's ledger, in no particular order. An entry that is not there is missing.
    async fn nodes(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<(u64, Vec<u8>)>, StoreError>;

    /// One decision.
    async fn decision(&self, tenant: TenantId, id: DecisionId) -> Result<Option<StoredDecision>, StoreError>;

    /// Decisions that match a filter, newest first, with a `seq` below `before_seq` where given, at most `limit`.
    async fn decisions(
        &self,
        tenant: TenantId,
        filter: &DecisionFilter,
        before_seq: Option<u64>,
        limit: u32,
    ) -> Result<Vec<StoredDecision>, StoreError>;

    /// Entries of a tenant's chain from `from_seq` on with what stands at their places, in order, at most `limit`: all that a
    /// verifier compares. What is erased meanwhile is there as a whole, or gone as a whole.
    async fn recorded(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<Recorded>, StoreError>;

    /// The exact bytes that were handed to the caller.
    async fn receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError>;

    /// What was answered to a request that was recorded before. However many ask for that at once, a commit waits for
    /// one of them at most, which is why it is not asked in a turn of its own.
    async fn answered_request(&self, key: &RequestKey) -> Result<Option<FoundRequest>, StoreError>;

    /// Those of the contents with these digests that were written, in no particular order.
    async fn contents(
        &self,
        tenant: TenantId,
        digests: &[Digest],
    ) -> Result<Vec<(Digest, Vec<u8>)>, StoreError>;

    /// What these runs have seen. One of which nothing is kept is missing.
    async fn runs(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunTaint)>, StoreError>;

    /// What a tenant's runs have seen, in the order of their names, those behind `after`, at most `limit`.
    async fn runs_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunTaint>, StoreError>;

    /// The decisions among these entries, newest first. An entry that is none is left out. At most a thousand.
    async fn decisions_at(&self, tenant: TenantId, seqs: &[u64]) -> Result<Vec<StoredDecision>, StoreError>;

    /// The `seq`s of the entries that tell what became of these decisions, going up: of the outcome, or of the erasure.
    /// A decision with neither is left out.
    async fn outcomes_of(&self, tenant: TenantId, decisions: &[DecisionId]) -> Result<Vec<u64>, StoreError>;

    /// The size of the database in bytes, for the metrics.
    async fn size_bytes(&self) -> Result<u64, StoreError>;
}

/// A backend: all promises together.
#[async_trait]
pub trait Store:
    Directories + Journal + Records + SearchIndex + Approvals + Counters + Budgets + Buckets
{
    /// This store for work that nobody waits for: what is read and indexed through it takes no connection from those who
    /// read for somebody, and none that it has opened is ever theirs. It is for one thread with a runtime of its own, whose
    /// priority is that of the threads that its connections need. Closing the store closes it too. Errors: as of the store.
    fn background(&self) -> Arc<dyn Store>;

    /// How many reads are done at once for those who wait for them. What is asked for beyond that waits for one of
    /// them, and not for ever.
    fn readers(&self) -> usize;

    /// Fails from the moment on at which the store has noticed that what is committed to it would not be found again:
    /// its files were deleted or replaced, say, or could not be synced; that another gateway may be at work on it; or
    /// that it would notice neither any more. It does not wait for the database, and does not end before the process.
    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Closes it after what is being written. What is asked of it afterwards is refused. Closing twice does nothing.
    async fn close(&self);
}
