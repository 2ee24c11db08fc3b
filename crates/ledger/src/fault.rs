//! What can be wrong with a chain, in words for whoever verifies it.

use canon::Digest;

use crate::merkle::ProofFault;
use crate::range::EntryRange;
use crate::receipt::ReceiptFault;
use crate::{Head, Malformed, Moment, Untrusted};

/// The first fault of a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("entry {seq}: {what}")]
pub struct Broken {
    /// `seq` of the entry; if the line cannot be read, the one that was due.
    pub seq: u64,
    /// What is wrong.
    pub what: Fault,
    /// The last entry that was right: whatever happened, happened after it. `None` if there is none.
    pub since: Option<LastGood>,
}

/// An entry up to which everything was right.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastGood {
    /// Its place.
    pub seq: u64,
    /// When it was recorded.
    pub at: Moment,
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
        /// The place that was due. Behind the last number that there is, it is none that an entry can name.
        expected: u128,
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
    /// The body is gone, and no erasure takes it away, whatever another entry says.
    #[error("the body is gone, and an entry of the kind `{kind}` is never erased")]
    NeverErased {
        /// Of which kind the entry is.
        kind: String,
    },
    /// The time is not one, or time runs backwards.
    #[error("time is `{found}`, which does not follow the time of the entry before")]
    Time {
        /// What the entry says.
        found: String,
    },
    /// What is stored of the tree with the entry is not what the entries make.
    #[error("the hashes of the tree that are stored with the entry are not those of the entries")]
    Subtrees,
    /// The entries up to here are not those of a checkpoint: the ledger was rewritten.
    #[error(
        "the tree of {size} entries has the root `{found}`, but a checkpoint says `{expected}`: {}",
        last_agreed(*agreed)
    )]
    Root {
        /// How many entries.
        size: u64,
        /// The root that the checkpoint names.
        expected: Digest,
        /// The root of the tree.
        found: Digest,
        /// The size of the last checkpoint that was met and agrees.
        agreed: Option<u64>,
    },
    /// A checkpoint is not to be believed.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// A receipt proves nothing.
    #[error(transparent)]
    Receipt(#[from] ReceiptFault),
    /// An answer stands beside an entry that is not its own.
    #[error(
        "the receipt of the answer names the entry `{found}`, but it stands beside the entry `{expected}`"
    )]
    OtherEntry {
        /// Hash of the entry that it stands beside.
        expected: Digest,
        /// Hash of the entry that its receipt names.
        found: Digest,
    },
    /// The entry tells of another answer.
    #[error("the answer hashes to `{computed}`, but {}", recorded_answer(recorded.as_ref()))]
    OtherAnswer {
        /// What the body of the entry names as `answer_hash`.
        recorded: Option<Digest>,
        /// What the answer hashes to.
        computed: Digest,
    },
    /// A line stands where it has no place.
    #[error("{0}")]
    Misplaced(&'static str),
}

fn last_agreed(agreed: Option<u64>) -> String {
    match agreed {
        Some(size) => {
            format!("what was changed stands behind entry {size}, up to where another checkpoint agrees")
        }
        None => "no earlier checkpoint says from where on".to_owned(),
    }
}

fn recorded_answer(recorded: Option<&Digest>) -> String {
    match recorded {
        Some(recorded) => format!("the body of its entry names the answer `{recorded}`"),
        None => "the body of its entry names none".to_owned(),
    }
}

/// Why there is no report.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unverified {
    /// Nothing was checked, and nothing is not proof.
    #[error("there is no entry to verify")]
    Empty,
    /// An entry is wrong.
    #[error(transparent)]
    Broken(Box<Broken>),
    /// The entries are a chain, but it does not end where it must: its tail is missing, or it is another chain.
    #[error("the chain ends at {} with `{}`, but {} with `{}` was expected", found.seq, found.hash, expected.seq, expected.hash)]
    Head {
        /// Where it must end.
        expected: Head,
        /// Where it ends.
        found: Head,
    },
    /// A checkpoint knows of more entries: the tail was cut off.
    #[error("the chain ends at {found}, but a checkpoint has {held} entries: its tail is missing")]
    Cut {
        /// How many entries the checkpoint has.
        held: u64,
        /// Where the chain ends.
        found: u64,
    },
    /// Nothing that was given could be compared with a checkpoint.
    #[error("the checkpoint of {size} entries cannot be compared with entries from {first} on")]
    NotCompared {
        /// The size of the checkpoint.
        size: u64,
        /// The first entry that was given.
        first: u64,
    },
    /// The checkpoint at the end does not continue the entries.
    #[error("the checkpoint at the end does not continue the entries: {0}")]
    End(#[from] ProofFault),
    /// Keys were given, and there is nothing that they could have signed, or nothing that reaches to the last entry.
    #[error("there is no checkpoint of all these entries, so they are not signed")]
    Unsigned,
    /// A body is gone, and no entry says who took it out.
    #[error("entry {seq}: the body is gone, and no entry tells of its erasure ({count} such entries)")]
    Untold {
        /// The first such entry.
        seq: u64,
        /// How many there are.
        count: u64,
    },
    /// Not the entries that were asked for.
    #[error("the entries are {first} to {last}, but {expected} were asked for")]
    Range {
        /// What was asked for.
        expected: EntryRange,
        /// The first that was given.
        first: u64,
        /// The last that was given.
        last: u64,
    },
}

impl From<Broken> for Unverified {
    fn from(broken: Broken) -> Self {
        Self::Broken(Box::new(broken))
    }
}
