//! What was counted of quotas.

use crate::{StoreError, Swept};
use async_trait::async_trait;
use canon::Digest;
use model::{Counter, TenantId, Timestamp};

/// Reading counters back, and forgetting old ones. They are written by the commit of what they count, and read as they
/// stand at the head by [`Turn::find_counters`](crate::Turn::find_counters).
///
/// Consistency: a call sees the state after some commit. Concurrency: any number of calls at once, none of which holds
/// up a commit for longer than a small batch does. Errors: [`StoreError`]; nothing was changed.
#[async_trait]
pub trait Counters: Send + Sync {
    /// These counters, in no particular order. One that was never written is missing.
    async fn counters(&self, keys: &[(TenantId, Digest)]) -> Result<Vec<(TenantId, Counter)>, StoreError>;

    /// A tenant's counters in the order of their keys, those behind `after`, at most `limit`.
    async fn counters_after(
        &self,
        tenant: TenantId,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<Counter>, StoreError>;

    /// Forgets counters that nothing was counted in since `before`. No more are looked at than takes a moment: the next
    /// call goes on there, and begins anew behind the last of all counters. So none may be found although there are
    /// some. Commits wait for what is deleted, and not for what is looked at. A window of the calendar that ended
    /// before that counts from nothing anyway, and a run that was quiet for so long begins anew.
    async fn forget_counters(&self, before: Timestamp) -> Result<Swept, StoreError>;
}
