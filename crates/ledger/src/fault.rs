//! What can be wrong with a chain, in words for whoever verifies it.

use canon::Digest;

use crate::{Head, Malformed};

/// The first fault of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq}: {what}")]
pub struct Broken {
    /// `seq` of the entry; if the line cannot be read, the one that was due.
    pub seq: u64,
    /// What is wrong.
    pub what: Fault,
}

/// What can be wrong with an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// Not a line of an export.
    #[error("line is not that of an export: {0}")]
    Malformed(#[from] Malformed),
    /// An entry of another chain.
    #[error("tenant is `{found}`, but the chain is that of `{expected}`")]
    Tenant {
        /// Whose chain it is.
        expected: String,
        /// Whom the entry names.
        found: String,
    },
    /// An entry is missing, stands twice or is out of order.
    #[error("seq is {found}, but {expected} is due: an entry is missing, repeated or out of order")]
    Seq {
        /// The place that was due.
        expected: u64,
        /// The place the entry names.
        found: u64,
    },
    /// The entry does not follow the one before it.
    #[error("prev is `{found}`, but the entry before has the hash `{expected}`")]
    Prev {
        /// Hash of the entry before.
        expected: Digest,
        /// What the entry names.
        found: Digest,
    },
    /// The header is not the one that was hashed.
    #[error("recorded hash is `{recorded}`, but the header hashes to `{computed}`")]
    Hash {
        /// What the entry says.
        recorded: Digest,
        /// What its header hashes to.
        computed: Digest,
    },
    /// The body is not the one that was recorded.
    #[error("the header records the body `{recorded}`, but the body hashes to `{computed}`")]
    Body {
        /// What the header says.
        recorded: Digest,
        /// What the body hashes to.
        computed: Digest,
    },
    /// The body could be read in more than one way, or is not JSON at all.
    #[error("body is not canonical JSON")]
    BodyNotCanonical,
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unverified {
    /// Nothing was checked, and nothing is not proof.
    #[error("there is no entry to verify")]
    Empty,
    /// An entry is wrong.
    #[error(transparent)]
    Broken(#[from] Broken),
    /// The entries are a chain, but it does not end where it must: its tail is missing, or it is another chain.
    #[error("the chain ends at {} with `{}`, but {} with `{}` was expected", found.seq, found.hash, expected.seq, expected.hash)]
    Head {
        /// Where it must end.
        expected: Head,
        /// Where it ends.
        found: Head,
    },
}
