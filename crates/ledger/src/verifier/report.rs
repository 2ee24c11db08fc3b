//! What has been verified, in the words of a report.

use std::fmt;

use canon::Digest;

use crate::Head;

/// What the first entry was checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It is the first entry of its chain.
    Genesis,
    /// It follows a head that the verifier was given.
    Head(Head),
    /// Against nothing: it names an entry before it that was not seen.
    None {
        /// Hash of the entry that was not seen.
        prev: Digest,
    },
}

impl fmt::Display for Anchor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Genesis => f.write_str("from genesis"),
            Self::Head(head) => write!(f, "from the known head {} with `{}`", head.seq, head.hash),
            Self::None { prev } => write!(f, "not anchored: begins after an entry with hash `{prev}`"),
        }
    }
}

/// What has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Whose chain it is.
    pub tenant: String,
    /// How many entries were checked.
    pub checked: u64,
    /// How many of them have no body any more.
    pub erased: u64,
    /// `seq` of the first.
    pub first: u64,
    /// What the first was checked against.
    pub anchor: Anchor,
    /// Where the chain ends.
    pub head: Head,
}

impl Report {
    /// This report, where so many bodies were left out by whoever made the file, and not erased.
    pub(crate) const fn without(mut self, left_out: u64) -> Self {
        self.erased -= left_out;
        self
    }
}
