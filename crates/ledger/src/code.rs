//! One word for each thing that can be found: the same in every verifier, whatever sentence it says about it. The words are
//! listed in `docs/receipt-format.md`.

use crate::fault::{Fault, Unverified};
use crate::key::MalformedKey;
use crate::merkle::ProofFault;
use crate::note::NoteFault;
use crate::range::InvalidRange;
use crate::receipt::ReceiptFault;
use crate::tlog_proof::Unproven;
use crate::trust::{MalformedKeySet, Untrusted};
use crate::witness::Uncosigned;

impl InvalidRange {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        "invalid_range"
    }
}

impl MalformedKey {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        "malformed_key"
    }
}

impl MalformedKeySet {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        "malformed_keys"
    }
}

impl NoteFault {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_note",
            Self::UnknownKey => "unknown_key",
            Self::BadSignature(_) => "bad_signature",
        }
    }
}

impl ProofFault {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::NotIncluded { .. } => "not_included",
            Self::NotBefore { .. } => "not_before",
            Self::WrongLength { .. } => "wrong_proof_length",
            Self::WrongRoot { .. } => "wrong_root",
        }
    }
}

impl Untrusted {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Note(fault) => fault.code(),
            Self::Checkpoint(_) => "malformed_checkpoint",
            Self::WrongOrigin { .. } => "wrong_origin",
            Self::TooFewWitnesses { .. } => "too_few_witnesses",
            Self::KeyEnded { .. } => "key_not_valid",
        }
    }
}

impl ReceiptFault {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Ambiguous(_) => "malformed_answer",
            Self::Malformed(_) => "malformed_receipt",
            Self::Hash { .. } => "wrong_hash",
            Self::Path(fault) => fault.code(),
            Self::UnknownKey(_) => "unknown_key",
            Self::KeyNotValid { .. } => "key_not_valid",
            Self::BadSignature(_) => "bad_signature",
        }
    }
}

impl Unproven {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Header(_) => "malformed_proof",
            Self::Untrusted(fault) => fault.code(),
            Self::Proof(fault) => fault.code(),
            Self::WrongIndex { .. } => "wrong_seq",
            Self::WrongTenant { .. } => "wrong_tenant",
        }
    }
}

impl Uncosigned {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed_request",
            Self::NotSigned(fault) => fault.code(),
            Self::NotACheckpoint(_) => "malformed_checkpoint",
            Self::Inverted { .. } => "not_before",
            Self::OtherSize { .. } => "other_size",
            Self::Fork(_) => "wrong_root",
            Self::Inconsistent(fault) => fault.code(),
        }
    }
}

impl Fault {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Malformed(_) | Self::Misplaced(_) => "malformed_line",
            Self::Tenant { .. } => "wrong_tenant",
            Self::Seq { .. } => "wrong_seq",
            Self::Prev { .. } => "wrong_prev",
            Self::Hash { .. } => "wrong_hash",
            Self::Body { .. } => "wrong_body",
            Self::BodyNotCanonical => "body_not_canonical",
            Self::NeverErased { .. } => "untold",
            Self::Time { .. } => "wrong_time",
            Self::Subtrees => "wrong_subtrees",
            Self::Root { .. } => "wrong_root",
            Self::Untrusted(fault) => fault.code(),
            Self::Receipt(fault) => fault.code(),
            Self::OtherEntry { .. } => "other_entry",
            Self::OtherAnswer { .. } => "other_answer",
        }
    }
}

impl Unverified {
    /// What was found, in one word.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Broken(broken) => broken.what.code(),
            Self::Head { .. } => "wrong_head",
            Self::Cut { .. } => "cut",
            Self::NotCompared { .. } => "not_compared",
            Self::End(fault) => fault.code(),
            Self::Unsigned => "unsigned",
            Self::Untold { .. } => "untold",
            Self::Range { .. } => "wrong_range",
        }
    }

    /// Where it was found; `None` if it is about the whole.
    pub const fn seq(&self) -> Option<u64> {
        match self {
            Self::Broken(broken) => Some(broken.seq),
            Self::Untold { seq, .. } => Some(*seq),
            _ => None,
        }
    }
}
