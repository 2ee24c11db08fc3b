//! What storage promises. The promises are traits; a backend is a crate that keeps them and passes [`conformance`].
//!
//! - [`Directories`]: what the snapshot is loaded from;
//! - [`Journal`]: the one way to write anything, a batch at a time;
//! - [`Records`]: reading back what was decided.
//!
//! There is no SQL here and no policy. Backends share no code with each other.

pub mod batch;
pub mod conformance;
mod error;
pub mod faults;
mod records;

pub use batch::{
    Advance, Batch, DecisionRow, EntryRow, FoundRequest, MalformedBatch, OutcomeRow, RequestKey,
};
pub use error::{CommitError, StoreError};
pub use records::{DecisionFilter, StoredDecision, StoredEntry};

use async_trait::async_trait;
use ledger::Head;
use model::{DecisionId, Noun, TenantId};

/// One tenant as storage holds it.
#[derive(Debug)]
pub struct StoredTenant {
    /// Which.
    pub tenant: TenantId,
    /// The end of its chain.
    pub head: Head,
    /// How many changes its directory has seen.
    pub revision: u64,
    /// Its nouns, its [`Noun::Tenant`] among them.
    pub nouns: Vec<Noun>,
}

/// What the snapshot is loaded from.
///
/// Consistency: what [`load`](Self::load) returns is the state after some commit, whole, for all tenants alike.
/// Durability: it reads nothing that a crash could take back. Concurrency: any number of calls at once.
/// Errors: all are [`StoreError`]; none changes anything.
#[async_trait]
pub trait Directories: Send + Sync {
    /// Every tenant, with its head, its revision and its nouns.
    async fn load(&self) -> Result<Vec<StoredTenant>, StoreError>;
}

/// The one way to write.
///
/// Consistency: a batch is there whole or not at all, and only if every tenant in it still has the head it advances
/// from. Durability: when [`commit`](Self::commit) returns `Ok`, the batch survives the loss of power. Concurrency: one
/// commit at a time; a call waits for the one before. Cancellation: a commit that has begun runs to its end, also when
/// the caller goes away. Errors: [`CommitError`] says whether the batch may have landed.
#[async_trait]
pub trait Journal: Send + Sync {
    /// Writes a batch.
    async fn commit(&self, batch: &Batch) -> Result<(), CommitError>;

    /// The receipts of those of these requests that were recorded before, in no particular order.
    async fn find_requests(&self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError>;

    /// Which of these decisions have an outcome already.
    async fn find_outcomes(
        &self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError>;
}

/// Reading back what was recorded.
///
/// Consistency: each call sees the state after some commit, and never less than any commit that returned before the call.
/// Concurrency: any number of calls at once, none of which holds up a commit. Bounds: every call that can find
/// many has a limit, and none keeps a read transaction open between calls. Errors: [`StoreError`]; absence is `None`.
#[async_trait]
pub trait Records: Send + Sync {
    /// Where a tenant's chain ends, as the last commit wrote it down beside the chain; [`Head::GENESIS`] if there is no
    /// such tenant.
    async fn head(&self, tenant: TenantId) -> Result<Head, StoreError>;

    /// Entries of a tenant's chain from `from_seq` on, in order, at most `limit`.
    async fn entries(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<StoredEntry>, StoreError>;

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

    /// The decisions and receipts with a `seq` of `from_seq` or more, in order, at most `limit`: what a verifier
    /// compares with the entries.
    async fn receipts(
        &self,
        tenant: TenantId,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<(StoredDecision, Vec<u8>)>, StoreError>;

    /// The exact bytes that were handed to the caller.
    async fn receipt(&self, tenant: TenantId, id: DecisionId) -> Result<Option<Vec<u8>>, StoreError>;

    /// The size of the database in bytes, for the metrics.
    async fn size_bytes(&self) -> Result<u64, StoreError>;
}

/// A backend: all promises together.
pub trait Store: Directories + Journal + Records {}

impl<T: Directories + Journal + Records> Store for T {}
