//! The log as mathematics: entry, chain, tree, verification.
//!
//! A tenant's ledger is a chain of entries with `seq` 1, 2, 3… Each has a header that names the tenant, the place, the
//! kind, the time, the hash of the entry before and the digest of the body; its hash is the SHA-256 of that header. The
//! body stands apart from the header, so that a body can be erased and the chain still verifies.
//!
//! This crate computes and checks; it does not read files, clocks or databases, and does not know what bodies say. What it
//! writes for strangers is specified in `docs/receipt-format.md`.
//!
//! - [`link`]: the head after one more entry; [`Tip`]: the same for chain and tree together
//! - [`merkle`]: the tree over the entries, its roots and its proofs
//! - [`Entry`]: a stored entry, written as and read from one line of an export
//! - [`Verifier`]: whether entries form a chain, one at a time in constant memory; [`export`]: the same for a file that
//!   brings its answers and its checkpoint
//! - [`ERASABLE_KINDS`]: which bodies can be erased
//! - [`SigningKey`], [`VerifierKey`], [`Note`], [`Checkpoint`]: what is signed, as C2SP has it; [`TrustPolicy`]: who is
//!   believed
//! - [`receipt`]: answers that verify the moment they arrive, for one signature a commit
//! - [`tlog_proof`], [`witness`], [`tile`]: an entry's proof, what witnesses are asked, a log as files

mod checkpoint;
mod code;
mod encoding;
mod entry;
mod erasure;
pub mod export;
mod fault;
mod header;
mod key;
mod line;
pub mod merkle;
mod moment;
mod note;
mod range;
mod reader;
pub mod receipt;
pub mod tile;
mod tip;
pub mod tlog_proof;
mod trust;
mod verifier;
pub mod witness;

pub use crate::checkpoint::{Checkpoint, MalformedCheckpoint};
pub use crate::entry::{EntryHeader, Head, link};
pub use crate::erasure::{ERASABLE_KINDS, is_erasable};
pub use crate::fault::{Broken, Fault, LastGood, Unverified};
pub use crate::key::{
    KEY_NAME_BYTES_MAX, KeyId, MalformedKey, SECRET_PREFIX, SignatureKind, SigningKey, VerifierKey,
};
pub use crate::line::Entry;
pub use crate::moment::{MalformedMoment, Moment};
pub use crate::note::{NOTE_BYTES_MAX, Note, NoteFault, NoteSignature, SIGNATURES_MAX, Signed};
pub use crate::range::{EntryRange, InvalidRange};
pub use crate::reader::Malformed;
pub use crate::tip::{Appended, NewEntry, Tip};
pub use crate::trust::{
    KeySet, MalformedKeySet, PublishedKey, TrustPolicy, TrustedCheckpoint, Untrusted, Witnessed,
};
pub use crate::verifier::{Anchor, Report, Verifier};
