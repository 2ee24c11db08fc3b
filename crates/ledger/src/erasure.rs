//! Which bodies can be erased: what agents asked, and what came of it. All other entries say who could do what, and which
//! ledgers and keys there are; without them the rest cannot be understood, so they stay for good.
//!
//! Every verifier goes by this list. Otherwise whoever can write the database could take any entry away, and append one
//! that says that it was erased.

/// The kinds of the entries whose bodies can be erased. Each of these bodies has a salt, so that what it told cannot be
/// guessed from its digest.
pub const ERASABLE_KINDS: [&str; 4] = ["decision", "outcome_reported", "run_observed", "approval_refused"];

/// Whether the body of an entry of this kind can be erased.
pub fn is_erasable(kind: &str) -> bool {
    ERASABLE_KINDS.contains(&kind)
}
