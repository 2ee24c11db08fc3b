//! Which base policies were put in force last, on whatever gateway. What they say stands in the ledger.

use crate::time::Timestamp;
use canon::Digest;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The base policies that were put in force last. There is one such noun, in the directory of the system tenant; a gateway
/// whose own base policies have another digest serves with others than its neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseInForce {
    /// The digest of the policies.
    pub digest: Digest,
    /// When they were put in force.
    pub since: Timestamp,
    /// Their text, if a gateway put them in force while it served: then all others do so as well. What one starts with
    /// is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cedar: Option<Arc<str>>,
}
