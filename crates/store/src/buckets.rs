//! Token buckets that several gateways share: tokens are lent in advance, so that nobody asks the store for every ask.

use crate::StoreError;
use async_trait::async_trait;
use model::{Bucket, TenantId};
use std::time::Duration;

/// How many milliseconds the clock of a store may be behind when a bucket was last asked and be waited for: whatever
/// keeps a clock right sets it back by less.
pub const CLOCK_BACK_MAX_MILLIS: i64 = 5_000;

/// Which bucket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct BucketKey {
    /// Whose tenant's.
    pub tenant: TenantId,
    /// Whose within the tenant: a name that callers agree on among themselves.
    pub owner: String,
}

/// How many tokens a lease is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// With fewer than these nothing can be begun: then none are lent.
    pub least: u32,
    /// More than these would lie about.
    pub most: u32,
}

/// What a lease came to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Lease {
    /// How many tokens were lent; 0 if fewer than the least were there.
    pub granted: u32,
    /// How many are left in the bucket.
    pub left: f64,
    /// How long until the least that was wanted is there: zero if it was granted, none if it never will be.
    pub wait: Option<Duration>,
}

impl Lease {
    /// The lease that left so much in a bucket of this size.
    pub fn new(size: Bucket, wanted: Wanted, granted: u32, left: f64) -> Self {
        let wait = if granted > 0 {
            Some(Duration::ZERO)
        } else if wanted.least > size.capacity() {
            None
        } else {
            let missing = f64::from(wanted.least) - left;
            Duration::try_from_secs_f64(missing.max(0.0) / size.refill_per_second()).ok()
        };
        Self { granted, left, wait }
    }
}

/// Leases of whole tokens.
///
/// Consistency: what all callers together are lent of a bucket, less what they gave back, is never more than its
/// capacity and what it was refilled with since it was first asked for. Time is the store's own, one clock for all
/// callers. One that is set back by no more than [`CLOCK_BACK_MAX_MILLIS`] refills nothing until it has caught up. By
/// one that is set back further, a bucket refills from when it is next asked or given a size, which may be the one that
/// it has: what it was refilled with while the clock was ahead stays in it, and comes on top. Durability: a lease
/// survives the loss of power before it is returned. Concurrency: any number of calls at once; those for one bucket
/// wait for each other. Errors: [`StoreError`]; a lease may have been taken then, and its tokens are lost until they
/// are refilled.
#[async_trait]
pub trait Buckets: Send + Sync {
    /// Takes tokens out of a bucket: as many as there are, if they are not fewer than the least that is wanted, and at most
    /// the most. A bucket that was never asked for is full. Another size than before counts from now on: until now the
    /// bucket has refilled by the one before.
    async fn lease(&self, key: &BucketKey, size: Bucket, wanted: Wanted) -> Result<Lease, StoreError>;

    /// Buckets have these sizes from now on, also before anything is lent of them. What was in them stays, as far as it
    /// fits. A bucket that was never asked for is full, whatever size it has.
    async fn resize(&self, sizes: &[(BucketKey, Bucket)]) -> Result<(), StoreError>;

    /// How many tokens are in buckets of these sizes, one number for each, in their order: what leases would find.
    /// Nothing is written. A bucket that was never asked for is full.
    async fn left(&self, sizes: &[(BucketKey, Bucket)]) -> Result<Vec<f64>, StoreError>;

    /// Puts tokens back that were lent and not used, those of all these buckets in one write. Each of them is named once.
    /// What does not fit into a bucket as it is now is lost. After an error nobody knows whether they are there again.
    async fn give_back(&self, tokens: &[(BucketKey, u32)]) -> Result<(), StoreError>;

    /// Forgets buckets that are full again, which changes nothing about them, and returns how many: at most as many as
    /// can be forgotten in a moment. No more are looked at than takes a moment, too: the next call goes on there, and
    /// begins anew behind the last of all buckets.
    async fn forget_full(&self) -> Result<u64, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(refill_per_second: f64, least: u32, granted: u32, left: f64) -> Option<Duration> {
        let size = Bucket::new(10, refill_per_second).unwrap();
        Lease::new(size, Wanted { least, most: 20 }, granted, left).wait
    }

    #[test]
    fn whoever_got_nothing_is_told_how_long_to_wait() {
        assert_eq!(wait(2.0, 4, 0, 1.0), Some(Duration::from_millis(1_500)));
        assert_eq!(wait(2.0, 4, 5, 0.0), Some(Duration::ZERO));
    }

    #[test]
    fn what_never_comes_is_not_waited_for() {
        assert_eq!(wait(0.0, 4, 0, 1.0), None);
        assert_eq!(wait(2.0, 11, 0, 10.0), None);
        assert_eq!(
            wait(f64::MIN_POSITIVE, 4, 0, 1.0),
            None,
            "longer than a time can be written"
        );
    }
}
