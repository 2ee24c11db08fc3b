//! Runs that were stopped. A run is whatever its agents call one; those that nobody stopped are not registered.

use crate::name::Name;
use crate::standing::Standing;
use serde::{Deserialize, Serialize};

/// How many runs of a tenant may be frozen at once. All of them are kept in memory.
pub const FROZEN_RUNS_MAX: usize = 10_000;
/// How many runs of a tenant may be revoked. They are kept in memory, too, and never fewer, because a revocation is for good.
pub const REVOKED_RUNS_MAX: usize = 100_000;

/// A run that may not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoppedRun {
    /// What its agents call it.
    pub run_id: Name,
    /// Since when it is stopped, and why.
    #[serde(flatten)]
    pub standing: Standing,
}
