//! Buckets that several gateways share: each gateway takes tokens out of the store in advance, and admits from what
//! it was lent without asking anybody.
//!
//! What all of them admit together is never more than the bucket is refilled with, because a token is in the store or
//! with one gateway, and what is with a gateway that ends is lost. A bucket fills up in the store also while some of it
//! is lent, so a burst can be larger than the bucket by what its gateways have left. Tokens that were lent and lie
//! unused for `IDLE_MAX` are given back to the store, for the other gateways. So is what was lent of a bucket that has
//! another size by now, before more of it is lent.

use super::to_the_end::ToTheEnd;
use super::{IfEnough, Lacking, Level, Owner, Remaining, Short, Tokens, Whose, refusal_of_last};
use crate::http::Refusal;
use crate::locks::lock;
use model::{Bucket, Tenant, TenantId, Timestamp};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use store::{BucketKey, Lease, Store, StoreError, Wanted};

/// The part of a bucket that is lent at once: large enough that few asks wait for a lease, small enough that tokens do not
/// pile up where nobody asks.
const SHARE: u32 = 16;
/// More than this is never lent at once.
const LEASE_MAX: u32 = 256;
/// How long tokens may lie about before they are given back.
const IDLE_MAX: Duration = Duration::from_secs(1);
/// How many buckets are given their tokens back in one write: few enough that whoever leases from one of them, or
/// commits, does not notice.
const GIVEN_BACK_AT_ONCE_MAX: usize = 256;
/// For how long a round begins writes that give tokens back: other jobs wait for it.
const GIVE_BACK: Duration = Duration::from_millis(100);
/// How long a bucket that had too few tokens is not asked again at most, in case others give some back to it.
const EMPTY_MAX: Duration = Duration::from_millis(250);
/// How many leases of this gateway wait for each other by chance.
const DOORS: usize = 64;

/// A bucket that tokens are wanted from.
#[derive(Debug, Clone)]
pub(super) struct Want {
    pub(super) tenant: TenantId,
    pub(super) owner: Owner,
    pub(super) size: Bucket,
    /// How many tokens the ask needs.
    pub(super) cost: u32,
}

impl Want {
    /// What an ask takes out of an owner's bucket.
    pub(super) fn of(tenant: &Tenant, owner: Owner, size: Bucket) -> Self {
        Self {
            tenant: tenant.id,
            owner,
            size,
            cost: size.cost(),
        }
    }
}

/// Tokens that were lent and not used yet.
#[derive(Debug, Clone, Copy)]
struct Stock {
    tenant: TenantId,
    size: Bucket,
    tokens: u32,
    used: Instant,
}

impl Stock {
    /// Whether nobody has asked for it in a while.
    fn is_idle(&self) -> bool {
        self.used.elapsed() >= IDLE_MAX
    }
}

/// A lease that came to nothing.
#[derive(Debug, Clone, Copy)]
struct Empty {
    size: Bucket,
    /// How many tokens were wanted at least.
    least: u32,
    lease: Lease,
    /// Before the store was asked, so that it is not taken for empty when it has enough again.
    asked: Instant,
}

impl Empty {
    /// Whether there are too few tokens still.
    fn holds(&self) -> bool {
        let wait = self.lease.wait.unwrap_or(EMPTY_MAX);
        self.asked.elapsed() < wait.min(EMPTY_MAX)
    }
}

/// What this gateway was lent.
pub(super) struct Shared {
    store: Arc<dyn Store>,
    /// Held for a few look-ups at a time and never across an `await`.
    stocks: Mutex<HashMap<Owner, Stock>>,
    /// Which buckets need not be asked for a moment: each time is a write to the store, and who loops against an empty one would
    /// have one for every ask. Held for a look-up at a time and never across an `await`.
    empty: Mutex<HashMap<Owner, Empty>>,
    /// Whether the store took the tokens that it was given back last.
    gives_back: AtomicBool,
    /// One lease at a time for a bucket: those who wait find what the first one was lent.
    doors: [Arc<tokio::sync::Mutex<()>>; DOORS],
    hasher: RandomState,
}

impl Shared {
    pub(super) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            stocks: Mutex::default(),
            empty: Mutex::default(),
            gives_back: AtomicBool::new(true),
            doors: std::array::from_fn(|_| Arc::default()),
            hasher: RandomState::new(),
        }
    }

    /// Whether all of these buckets have enough here; if not, nothing is taken.
    pub(super) fn pass(&self, wanted: &[Want], if_enough: IfEnough) -> Tokens {
        let mut stocks = lock(&self.stocks);
        let short = |want: &&Want| tokens(&stocks, want) < want.cost;
        let missing: Vec<Want> = wanted.iter().filter(short).cloned().collect();
        if !missing.is_empty() {
            return Tokens::Short(Short(missing));
        }
        if if_enough == IfEnough::Take {
            let now = Instant::now();
            for want in wanted {
                if let Some(stock) = stocks.get_mut(&want.owner) {
                    stock.tokens -= want.cost;
                    stock.used = now;
                }
            }
        }
        Tokens::Enough
    }

    /// Has tokens lent, so that there are enough; a refusal if there are not.
    pub(super) async fn fill(self: &Arc<Self>, missing: &[Want]) -> Result<(), Refusal> {
        let mut lacking = Vec::new();
        for want in missing {
            if let Some(lease) = self.lend(want).await? {
                lacking.push(Lacking::of_lease(want.owner.clone(), want.size, lease));
            }
        }
        refusal_of_last(lacking).map_or(Ok(()), Err)
    }

    /// Refuses what one of these buckets has too few tokens for. Nothing is lent: whoever only looks takes nothing from
    /// other gateways.
    pub(super) async fn check(&self, missing: &[Want]) -> Result<(), Refusal> {
        let left = self.left(missing).await?;
        let mut lacking = Vec::new();
        for (want, left) in missing.iter().zip(left) {
            if left < f64::from(want.cost) {
                let wanted = Wanted {
                    least: want.cost,
                    most: want.cost,
                };
                let lease = Lease::new(want.size, wanted, 0, left);
                lacking.push(Lacking::of_lease(want.owner.clone(), want.size, lease));
            }
        }
        refusal_of_last(lacking).map_or(Ok(()), Err)
    }

    /// Has tokens of one bucket lent, so that there are enough; if there are not, what became of the lease. A caller
    /// that hangs up while the store is asked changes nothing: what it lends is kept, because it is nowhere else. One
    /// that only waits for others leaves nothing behind.
    async fn lend(self: &Arc<Self>, want: &Want) -> Result<Option<Lease>, StoreError> {
        let door = Arc::clone(&self.doors[self.door(&want.owner)]);
        let one_at_a_time = door.lock_owned().await;
        let there = tokens(&lock(&self.stocks), want);
        if there >= want.cost {
            return Ok(None);
        }
        let missing = want.cost - there;
        if let Some(empty) = self.known_empty(want, missing) {
            return Ok(Some(empty.lease));
        }
        let (shared, want) = (Arc::clone(self), want.clone());
        let leasing = ToTheEnd::new(async move {
            let lease = shared.lease(&want, missing).await;
            drop(one_at_a_time);
            lease
        });
        leasing.await
    }

    /// Asks the store for so many tokens at least, and keeps what it lends; if it lends none, what became of the lease.
    /// To be called by one at a time for a bucket.
    async fn lease(&self, want: &Want, missing: u32) -> Result<Option<Lease>, StoreError> {
        let share = (want.size.capacity() / SHARE).clamp(1, LEASE_MAX);
        let wanted = Wanted {
            least: missing,
            most: missing.max(share),
        };
        let key = key(want.tenant, &want.owner);
        if let Some(stock) = self.take_of_other_size(want) {
            // Nobody knows whether it was given back where this fails, so it is not given back twice.
            self.store.give_back(&[(key.clone(), stock.tokens)]).await?;
        }
        let asked = Instant::now();
        let lease = self.store.lease(&key, want.size, wanted).await?;
        if lease.granted > 0 {
            self.keep(want, lease.granted);
            return Ok(None);
        }
        let empty = Empty {
            size: want.size,
            least: missing,
            lease,
            asked,
        };
        let mut known = lock(&self.empty);
        known.insert(want.owner.clone(), empty);
        Ok(Some(lease))
    }

    /// Takes out what was lent of a bucket while it had another size: nobody uses that any more.
    fn take_of_other_size(&self, want: &Want) -> Option<Stock> {
        let mut stocks = lock(&self.stocks);
        let is_other = stocks
            .get(&want.owner)
            .is_some_and(|stock| stock.size != want.size);
        let stock = is_other.then(|| stocks.remove(&want.owner)).flatten();
        stock.filter(|stock| stock.tokens > 0)
    }

    /// What the store has said a moment ago of a bucket that has too few tokens.
    fn known_empty(&self, want: &Want, missing: u32) -> Option<Empty> {
        let known = lock(&self.empty);
        let empty = known.get(&want.owner).copied();
        empty.filter(|empty| empty.size == want.size && empty.least == missing && empty.holds())
    }

    /// Buckets of a tenant have these sizes from now on, also before anything is lent of them.
    pub(super) async fn resize(
        &self,
        tenant: TenantId,
        sizes: impl Iterator<Item = (Owner, Bucket)> + Send,
    ) -> Result<(), StoreError> {
        let sizes: Vec<_> = sizes.map(|(owner, size)| (key(tenant, &owner), size)).collect();
        if sizes.is_empty() {
            return Ok(());
        }
        self.store.resize(&sizes).await
    }

    /// How full these buckets are, in their order.
    pub(super) async fn remaining(&self, wanted: &[Want]) -> Result<Vec<Remaining>, StoreError> {
        let left = self.left(wanted).await?;
        let remaining = wanted.iter().zip(left).map(|(want, tokens)| {
            let level = Level {
                tokens,
                at: Timestamp::from_millis(0),
                size: want.size,
            };
            Remaining::of(&level, level.at)
        });
        Ok(remaining.collect())
    }

    /// How many tokens these buckets have, in their order: in the store, and lent to this gateway, whatever size they
    /// had then. The store is asked once, and nothing is written.
    async fn left(&self, wanted: &[Want]) -> Result<Vec<f64>, StoreError> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let with_size = |want: &Want| (key(want.tenant, &want.owner), want.size);
        let sizes: Vec<_> = wanted.iter().map(with_size).collect();
        let stored = self.store.left(&sizes).await?;
        let stocks = lock(&self.stocks);
        let left = wanted.iter().zip(stored).map(|(want, stored)| {
            let here = stocks.get(&want.owner).map_or(0, |stock| stock.tokens);
            (stored + f64::from(here)).min(f64::from(want.size.capacity()))
        });
        Ok(left.collect())
    }

    /// Gives back what nobody has asked for in a while, some hundred buckets at a time. What there is no time for, and
    /// what comes behind a write that fails, stays for another round, and serves whoever asks here meanwhile.
    pub(super) async fn give_back_idle(&self) -> Result<(), StoreError> {
        self.forget_empty();
        let (began, idle) = (Instant::now(), self.idle());
        let mut rest = idle.as_slice();
        while !rest.is_empty() {
            let (owners, later) = rest.split_at(self.given_back_at_once().min(rest.len()));
            rest = later;
            let unused = self.take_idle(owners);
            if unused.is_empty() {
                continue;
            }
            // Nobody knows whether these were given back where this fails, so they are not given back twice.
            let given_back = self.store.give_back(&unused).await;
            self.gives_back.store(given_back.is_ok(), Ordering::Relaxed);
            given_back?;
            if began.elapsed() >= GIVE_BACK {
                break;
            }
        }
        Ok(())
    }

    /// How many buckets are given their tokens back in the next write. Behind one that failed, a bucket goes alone:
    /// what is given to a store that is away is lost.
    fn given_back_at_once(&self) -> usize {
        if self.gives_back.load(Ordering::Relaxed) {
            GIVEN_BACK_AT_ONCE_MAX
        } else {
            1
        }
    }

    /// Whose tokens nobody has asked for in a while, the longest while first. Of whom nothing is left is forgotten.
    fn idle(&self) -> Vec<Owner> {
        let mut stocks = lock(&self.stocks);
        stocks.retain(|_, stock| stock.tokens > 0 || !stock.is_idle());
        let idle = stocks.iter().filter(|(_, stock)| stock.is_idle());
        let mut idle: Vec<_> = idle.map(|(owner, stock)| (stock.used, owner.clone())).collect();
        drop(stocks);
        idle.sort_unstable_by_key(|(used, _)| *used);
        idle.into_iter().map(|(_, owner)| owner).collect()
    }

    /// Takes out what these have left, unless somebody has asked for it meanwhile.
    fn take_idle(&self, owners: &[Owner]) -> Vec<(BucketKey, u32)> {
        let mut stocks = lock(&self.stocks);
        let mut unused = Vec::with_capacity(owners.len());
        for owner in owners {
            if stocks.get(owner).is_some_and(Stock::is_idle)
                && let Some(stock) = stocks.remove(owner)
            {
                unused.push((key(stock.tenant, owner), stock.tokens));
            }
        }
        unused
    }

    /// Forgets what was said of buckets that are to be asked again by now.
    fn forget_empty(&self) {
        let mut known = lock(&self.empty);
        known.retain(|_, empty| empty.holds());
    }

    fn keep(&self, want: &Want, granted: u32) {
        let mut stocks = lock(&self.stocks);
        let there = tokens(&stocks, want);
        let stock = Stock {
            tenant: want.tenant,
            size: want.size,
            tokens: there + granted,
            used: Instant::now(),
        };
        stocks.insert(want.owner.clone(), stock);
    }

    fn door(&self, owner: &Owner) -> usize {
        let hash = self.hasher.hash_one(owner);
        usize::try_from(hash % DOORS as u64).unwrap_or_default()
    }
}

/// What is left of what was lent. Tokens of a bucket that has another size by now count no more.
fn tokens(stocks: &HashMap<Owner, Stock>, want: &Want) -> u32 {
    let stock = stocks.get(&want.owner).filter(|stock| stock.size == want.size);
    stock.map_or(0, |stock| stock.tokens)
}

fn key(tenant: TenantId, owner: &Owner) -> BucketKey {
    let mut name = match owner.whose {
        Whose::Tenant(_) => "tenant".to_owned(),
        Whose::Agent(agent) => format!("agent/{agent}"),
    };
    if let Some(tool) = &owner.tool {
        name.push_str("/tool/");
        name.push_str(tool.as_str());
    }
    BucketKey { tenant, owner: name }
}
