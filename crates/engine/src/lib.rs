//! The decisions, pure and synchronous: same inputs, same bytes.
//!
//! - [`ask`]: what a caller sends, read from its canonical text, with the action in it frozen;
//! - [`snapshot`]: everything a decision may look at, immutable, with a revision;
//! - [`issuers`]: whose tokens are worth something, with their keys;
//! - [`request_keys`]: by which keys agents sign their requests;
//! - [`judge()`]: one ask against a snapshot;
//! - [`delegation`]: in whose name an agent asks, and what that takes away;
//! - [`provenance`]: what a signed token says about the source of an ask;
//! - [`approvals`]: what a judgement becomes when people have approved, and how they vote;
//! - [`quotas`]: how many calls are allowed, and counting them;
//! - [`rules`]: when a containment rule is due;
//! - [`runs`]: what runs have seen;
//! - [`budgets`]: what things cost, and whether there is enough;
//! - [`facts`]: what an ask was judged by, in records that are found by their digest;
//! - `recorded_parameters`: what an entry records of the parameters;
//! - [`decision`]: the bytes of a decision: the body of its ledger entry and the answer to the caller;
//! - [`replay`]: recorded decisions, judged again by other policies;
//! - [`search`]: what decisions are found by;
//! - [`salt`]: what keeps an erased body from being guessed;
//! - [`EntryKind`]: what can be recorded, in one word each; [`proposal`]: what somebody wants recorded;
//! - [`apply()`]: one batch of proposals onto the books.
//!
//! There is no I/O here, no clock and no randomness: time and ids are arguments.

pub mod apply;
pub mod approvals;
pub mod ask;
pub mod budgets;
pub mod decision;
pub mod delegation;
mod entry_kind;
pub mod facts;
pub mod issuers;
pub mod judge;
pub mod proposal;
pub mod provenance;
pub mod quotas;
mod recorded_parameters;
pub mod replay;
pub mod request_keys;
pub mod rules;
pub mod runs;
pub mod salt;
pub mod search;
pub mod snapshot;

pub use apply::{Applied, BatchTime, Books, Conflict, Disposition, Found, apply};
pub use ask::{Ask, AskError, FrozenAction, Mode};
pub use decision::{Decided, DryRun};
pub use delegation::Delegation;
pub use entry_kind::EntryKind;
pub use issuers::{Issuers, RegisteredIssuer};
pub use judge::{Judgement, LookedUpFacts, Refusal, judge};
pub use proposal::{NamedRequest, Proposal, ProposedDecision, ProposedEntry, Records, RepeatRule, Wording};
pub use provenance::{Provenance, ProvenanceError};
pub use request_keys::{RequestKeys, SigningKeys};
pub use salt::Salt;
pub use snapshot::{Credential, Recompiled, Snapshot, TenantSnapshot};
