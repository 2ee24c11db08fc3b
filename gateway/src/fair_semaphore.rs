//! A semaphore of which each tenant has a share, before what many may want at once.
//!
//! A gateway has eight. None knows of the others, so what one bounds goes on beside what another one does.
//!
//! Five have one permit each, because what is behind them takes a core for a while, and the other cores are for those
//! who ask:
//! - drafts of policies, which are laid out, validated, tried or compiled as candidates before they are anybody's, and
//!   what policies can speak of;
//! - long bodies with policies, which are read;
//! - searches for what is permitted;
//! - ledgers that are read in parts;
//! - long answers, which are written.
//!
//! Of each share one at most waits for the permit, and its others wait behind that one, so that whoever has many does
//! not stand before everybody else. A set of policies may take tens of seconds, so other tenants come in between. Asks
//! that take long to be judged have as many permits as half of the cores, and wait in the same way.
//!
//! Another one is before the readers of the store: a few lists, searches and single things are read at once, so that
//! there are readers left for what asks look up. The share of each tenant is as many, so whoever is alone has all of
//! these places, and whoever comes later is behind one turn of another. Its agents and its people are as two tenants
//! there: who has to stop an agent does not wait behind it.
//!
//! What asks look up has one as well, with as many places, and two at least: an approval may be large, a batch names a
//! hundred, and whoever waits for a reader itself waits behind all of them, whosever they are.

use crate::fairness_key::FairnessKey;
use crate::http::{Code, Refusal};
use crate::locks::lock;
use axum::http::{HeaderValue, header};
use std::collections::HashMap;
use std::num::NonZero;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout_at;

/// How long one waits for those before it. Most take milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How many of a tenant wait at once. Each has a body in memory, or what an answer is made of.
const WAITING_MAX: usize = 32;
/// How many of a tenant whose asks take long wait at once. Their bodies have bounded room of their own.
const LONG_ASKS_WAITING_MAX: usize = 256;
/// How many of a tenant who only read wait at once: they have no bodies, and most are done within a millisecond.
const READS_WAITING_MAX: usize = 256;
/// How many of the readers of a store are left to others: for what asks look up, and for ledgers that are read in
/// parts.
const READERS_LEFT: usize = 2;
/// When to ask again that was told that there are others, in seconds.
pub(crate) const BUSY_RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// A semaphore, and the share that each tenant has of it.
#[derive(Debug)]
pub struct FairSemaphore {
    permits: Arc<Semaphore>,
    /// How many permits one share has or waits for.
    share_max: usize,
    /// How many of a share wait to be among those.
    waiting_max: usize,
    /// Who of a share may wait for a permit or have one, and who may wait for that. A share is here from its first use on.
    shares: Mutex<HashMap<FairnessKey, Share>>,
    wait_max: Duration,
    /// What is told to whoever finds too many before it.
    busy: &'static str,
}

#[derive(Debug, Clone)]
struct Share {
    permits: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// A permit of the semaphore, and its part of the share, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _of_share: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl FairSemaphore {
    /// For drafts of policies.
    pub fn for_drafts() -> Self {
        Self::new("this gateway works on other drafts of policies; try again when they are done")
    }

    /// For asks that take long to be judged: half of the cores have one each, because the others are for those who ask.
    pub fn for_long_asks() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            permits: Arc::new(Semaphore::new((cores / 2).max(1))),
            waiting_max: LONG_ASKS_WAITING_MAX,
            ..Self::new(
                "this gateway judges other asks that take long; try again when they are done, with shorter parameters or policies that look less at long texts",
            )
        }
    }

    /// For long bodies with policies that are to be read. Each waits as long as it takes, so nobody is ever told that
    /// there are too many.
    pub fn for_long_bodies() -> Self {
        Self::new("this gateway reads other long bodies with policies; try again when they are done")
    }

    /// For searches.
    pub fn for_searches() -> Self {
        Self::new("this gateway works on other searches; try again when they are done")
    }

    /// For long answers that are to be written.
    pub fn for_long_answers() -> Self {
        Self::new("this gateway writes other long answers; try again when they are done")
    }

    /// For those who verify, export, follow or replay ledgers, erase in them, and take evidence or bundles of entries.
    pub fn for_ledger_chunks() -> Self {
        Self::new("this gateway reads other ledgers; try again when they are done")
    }

    /// For those who read something of a store with so many readers.
    pub fn for_reads(readers: usize) -> Self {
        let share_max = readers.saturating_sub(READERS_LEFT).max(1);
        Self {
            permits: Arc::new(Semaphore::new(share_max)),
            share_max,
            waiting_max: READS_WAITING_MAX,
            ..Self::new("this gateway reads much for others; try again when that is done")
        }
    }

    /// For asks that have something looked up in a store with so many readers: as many at once as lists and searches,
    /// and no fewer than these leave. So many of a share wait as there are places for asks; their bodies have bounded
    /// room of their own.
    pub fn for_look_ups(readers: usize, places: usize) -> Self {
        let share_max = readers.saturating_sub(READERS_LEFT).max(READERS_LEFT);
        Self {
            permits: Arc::new(Semaphore::new(share_max)),
            share_max,
            waiting_max: places,
            ..Self::new("this gateway looks up much for other asks; try again when that is done")
        }
    }

    /// With one permit for all, unless the caller puts others. This is told to whoever finds too many before it.
    fn new(busy: &'static str) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(1)),
            share_max: 1,
            waiting_max: WAITING_MAX,
            shares: Mutex::default(),
            wait_max: WAIT_MAX,
            busy,
        }
    }

    /// A permit, to be kept until the work is done, also if nobody waits for it any more.
    pub async fn acquire(&self, key: impl Into<FairnessKey>) -> Result<Permit, Refusal> {
        let Share { permits, waiting } = self.share_of(key.into());
        let _waiting = waiting.try_acquire_owned().map_err(|_| self.too_many())?;
        let permit = async {
            Permit {
                _of_share: acquire_owned(permits).await,
                _of_all: acquire_owned(Arc::clone(&self.permits)).await,
            }
        };
        tokio::time::timeout(self.wait_max, permit)
            .await
            .map_err(|_| self.too_many())
    }

    /// A permit, as [`acquire`](Self::acquire) gives it, for whoever waits no longer than this.
    pub async fn acquire_until(
        &self,
        key: impl Into<FairnessKey>,
        deadline: Option<Instant>,
    ) -> Result<Permit, Refusal> {
        let permit = self.acquire(key);
        match deadline {
            Some(deadline) => timeout_at(deadline.into(), permit)
                .await
                .unwrap_or_else(|_| Err(Refusal::deadline_exceeded())),
            None => permit.await,
        }
    }

    /// A permit for the next part of work that has begun, for which it waits as long as it takes. It gives the permit
    /// back after each part.
    pub async fn acquire_for_part(&self, key: impl Into<FairnessKey>) -> Permit {
        let Share { permits, .. } = self.share_of(key.into());
        Permit {
            _of_share: acquire_owned(permits).await,
            _of_all: acquire_owned(Arc::clone(&self.permits)).await,
        }
    }

    /// The permit, when others that wait have had it: for work that has begun and takes long. It keeps its part of the
    /// share, so nobody else of the same share comes in between.
    pub async fn pass(&self, permit: Permit) -> Permit {
        let Permit {
            _of_share: of_share,
            _of_all: of_all,
        } = permit;
        drop(of_all);
        Permit {
            _of_share: of_share,
            _of_all: acquire_owned(Arc::clone(&self.permits)).await,
        }
    }

    /// How many of a share wait.
    pub fn waiting_of(&self, key: impl Into<FairnessKey>) -> usize {
        self.waiting_max - self.share_of(key.into()).waiting.available_permits()
    }

    fn share_of(&self, key: FairnessKey) -> Share {
        let mut shares = lock(&self.shares);
        let share = shares.entry(key).or_insert_with(|| Share {
            permits: Arc::new(Semaphore::new(self.share_max)),
            waiting: Arc::new(Semaphore::new(self.waiting_max)),
        });
        share.clone()
    }

    fn too_many(&self) -> Refusal {
        Refusal::new(Code::Overloaded, self.busy).with_header(header::RETRY_AFTER, BUSY_RETRY_AFTER)
    }
}

async fn acquire_owned(semaphore: Arc<Semaphore>) -> OwnedSemaphorePermit {
    semaphore
        .acquire_owned()
        .await
        .expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use std::pin::{Pin, pin};
    use tokio::time::timeout;

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[tokio::test]
    async fn a_draft_waits_for_the_one_before_it_and_not_for_ever() {
        let drafts = FairSemaphore {
            wait_max: Duration::ZERO,
            ..FairSemaphore::new("busy")
        };
        let place = drafts.acquire(ONE).await.unwrap();
        for tenant in [ONE, OTHER] {
            assert_eq!(drafts.acquire(tenant).await.unwrap_err().code(), Code::Overloaded);
        }
        drop(place);
        drop(drafts.acquire(OTHER).await.unwrap());
    }

    #[tokio::test]
    async fn many_drafts_of_one_tenant_wait_as_one() {
        let drafts = FairSemaphore::for_drafts();
        let first = drafts.acquire(ONE).await.unwrap();
        let (second, third) = (drafts.acquire(ONE), drafts.acquire(ONE));
        let other = drafts.acquire(OTHER);
        let (mut second, mut third, mut other) = (pin!(second), pin!(third), pin!(other));
        assert!(now(second.as_mut()).await.is_none());
        assert!(now(third.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        drop(first);
        // The second of the same tenant waits for a permit of all only now, and the third not before that one is done.
        let place = now(other.as_mut()).await.unwrap();
        assert!(now(second.as_mut()).await.is_none());
        drop(place);
        let place = now(second.as_mut()).await.unwrap();
        assert!(now(third.as_mut()).await.is_none());
        drop(place);
        drop(now(third.as_mut()).await.unwrap());
    }

    #[tokio::test]
    async fn what_takes_long_lets_other_tenants_come_in_between_and_nobody_of_its_own() {
        let drafts = FairSemaphore::for_drafts();
        let first = drafts.acquire(ONE).await.unwrap();
        let (second, other) = (drafts.acquire(ONE), drafts.acquire(OTHER));
        let (mut second, mut other) = (pin!(second), pin!(other));
        assert!(now(second.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        let mut again = pin!(drafts.pass(first));
        assert!(timeout(Duration::ZERO, again.as_mut()).await.is_err());
        let place = now(other.as_mut()).await.unwrap();
        assert!(timeout(Duration::ZERO, again.as_mut()).await.is_err());
        drop(place);
        assert!(now(second.as_mut()).await.is_none());
        let first = timeout(Duration::ZERO, again.as_mut()).await.unwrap();
        // Where nobody else waits it goes on at once.
        let first = timeout(Duration::ZERO, drafts.pass(first)).await.unwrap();
        assert!(now(second.as_mut()).await.is_none());
        drop(first);
        drop(now(second.as_mut()).await.unwrap());
    }

    #[tokio::test]
    async fn so_many_of_a_tenant_wait_and_no_more() {
        let searches = FairSemaphore::for_searches();
        let place = searches.acquire(ONE).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(searches.acquire(ONE)))
            .collect();
        for place in &mut waiting {
            assert!(now(place.as_mut()).await.is_none());
        }
        assert_eq!(searches.acquire(ONE).await.unwrap_err().code(), Code::Overloaded);
        drop(waiting);
        drop(place);
        drop(searches.acquire(ONE).await.unwrap());
    }

    #[tokio::test]
    async fn a_few_are_read_at_once_and_tenants_take_turns() {
        let reads = FairSemaphore::for_reads(READERS_LEFT + 2);
        let first = reads.acquire(ONE).await.unwrap();
        let second = reads.acquire(ONE).await.unwrap();
        let (third, other) = (reads.acquire(ONE), reads.acquire(OTHER));
        let (mut third, mut other) = (pin!(third), pin!(other));
        assert!(now(third.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        drop(first);
        let place = now(other.as_mut()).await.unwrap();
        assert!(now(third.as_mut()).await.is_none());
        drop(second);
        drop(now(third.as_mut()).await.unwrap());
        drop(place);
    }

    #[tokio::test]
    async fn where_there_are_few_readers_one_is_read_at_a_time() {
        for readers in 0..=READERS_LEFT {
            let reads = FairSemaphore::for_reads(readers);
            let place = reads.acquire(ONE).await.unwrap();
            let other = reads.acquire(OTHER);
            let mut other = pin!(other);
            assert!(now(other.as_mut()).await.is_none());
            drop(place);
            drop(now(other.as_mut()).await.unwrap());
        }
    }

    #[tokio::test]
    async fn what_asks_look_up_waits_for_a_turn_and_whoever_goes_away_leaves_its_place() {
        let look_ups = FairSemaphore::for_look_ups(4, 2);
        let first = look_ups.acquire(ONE).await.unwrap();
        let second = look_ups.acquire(ONE).await.unwrap();
        let (mut gone, mut third) = (Box::pin(look_ups.acquire(ONE)), pin!(look_ups.acquire(ONE)));
        let mut other = pin!(look_ups.acquire(OTHER));
        assert!(now(gone.as_mut()).await.is_none());
        assert!(now(third.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        assert_eq!((look_ups.waiting_of(ONE), look_ups.waiting_of(OTHER)), (2, 1));
        assert_eq!(look_ups.acquire(ONE).await.unwrap_err().code(), Code::Overloaded);
        drop(gone);
        assert_eq!(look_ups.waiting_of(ONE), 1);
        drop(first);
        let place = now(other.as_mut()).await.unwrap();
        assert!(now(third.as_mut()).await.is_none());
        drop(place);
        drop(now(third.as_mut()).await.unwrap());
        assert_eq!((look_ups.waiting_of(ONE), look_ups.waiting_of(OTHER)), (0, 0));
        drop(second);
    }

    /// The permit, if it is to be had without waiting.
    async fn now(place: Pin<&mut impl Future<Output = Result<Permit, Refusal>>>) -> Option<Permit> {
        tokio::time::timeout(Duration::ZERO, place).await.ok()?.ok()
    }
}
