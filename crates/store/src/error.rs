//! What can go wrong in storage, by what the caller has to do about it.

/// The source of an error in a backend, kept whole for the log.
pub type Source = Box<dyn std::error::Error + Send + Sync>;

/// A turn was over before its batch was written: a server ends one that stands idle for too long, a session may be ended
/// for another reason, and a connection may be lost. Nothing of it is written, and in another turn all may be well. It
/// is the cause of [`StoreError::Unavailable`] and of [`CommitError::NotWritten`].
#[derive(Debug, thiserror::Error)]
#[error("the turn was over before its batch was written")]
pub struct TurnOver(#[source] pub Source);

/// Why something could not be read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database did not answer: gone, locked, out of space, or too slow.
    #[error("the database is not available")]
    Unavailable(#[source] Source),
    /// The database answered with something that this program never wrote.
    #[error("the database holds something unreadable: {what}")]
    Corrupt {
        /// Which row, and what is wrong with it.
        what: String,
    },
}

impl StoreError {
    /// Whether the turn in which it was asked was over.
    pub fn is_turn_over(&self) -> bool {
        matches!(self, Self::Unavailable(source) if source.is::<TurnOver>())
    }
}

/// Why a batch was not written, or may not have been.
#[derive(Debug, thiserror::Error)]
pub enum CommitError {
    /// A tenant's head is not the one that the batch advances from: somebody else wrote in between. Nothing was
    /// written.
    #[error("another writer has advanced the ledger of {tenant}")]
    HeadMoved {
        /// Whose.
        tenant: model::TenantId,
    },
    /// A request id, an outcome or the key of an answer in the batch was recorded before. Nothing was written: look them up,
    /// and make the batch again.
    #[error("a request, an outcome or an answer in the batch was recorded before")]
    AlreadyRecorded,
    /// Nothing was written.
    #[error("the batch was not written")]
    NotWritten(#[source] Source),
    /// The batch may have been written or not: only reading back tells.
    #[error("whether the batch was written is not known")]
    Unknown(#[source] Source),
}

impl CommitError {
    /// Whether the turn was over before the batch was written.
    pub fn is_turn_over(&self) -> bool {
        matches!(self, Self::NotWritten(source) if source.is::<TurnOver>())
    }
}
