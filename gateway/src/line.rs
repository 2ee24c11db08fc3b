//! Lines before what many may want at once.
//!
//! One is before work that takes a core for a while: drafts of policies, which are laid out, validated, tried or compiled as candidates before they
//! are anybody's, what policies can speak of, searches for what is permitted, and ledgers that are read whole. One is worked on at a time, because
//! the other cores are for those who ask. Of each tenant one at most stands in line, so that whoever has many does not stand before everybody else.
//!
//! Another one is before the readers of the store: a few lists, searches and single things are read at once, so that there are readers left for what asks
//! look up. Of each tenant as many stand in line, so whoever is alone has all of these places, and whoever comes later is behind one turn of another. Its
//! agents and its people are as two tenants there: who has to stop an agent does not wait behind it.

use crate::http::{Code, Refusal};
use crate::locks::lock;
use crate::party::Party;
use axum::http::{HeaderValue, header};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long one waits for those before it. Most take milliseconds.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// How many of a tenant wait at once. Each has a body in memory.
const WAITING_MAX: usize = 32;
/// How many of a tenant who only read wait at once: they have no bodies, and most are done within a millisecond.
const READS_WAITING_MAX: usize = 256;
/// How many of the readers of a store are left to others: one for a ledger that is read whole, and one for what asks look up.
const READERS_LEFT: usize = 2;
/// When to ask again that was told that there are others, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// A line, and the places that it leads to.
#[derive(Debug)]
pub struct Line {
    places: Arc<Semaphore>,
    /// How many places there are, and how many of a tenant stand in line or have one.
    at_once: usize,
    /// How many of a tenant wait.
    waiting_max: usize,
    /// Who of a party may stand in line, and who may wait for that. A party is here from its first time on.
    parties: Mutex<HashMap<Party, OfParty>>,
    wait_max: Duration,
    /// What is told to whom the line is too long.
    busy: &'static str,
}

#[derive(Debug, Clone)]
struct OfParty {
    in_line: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// The right to a place, and to stand in line for it, until it is dropped.
#[derive(Debug)]
pub struct Permit {
    _of_party: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

impl Line {
    /// A line for drafts of policies.
    pub fn of_drafts() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway works on other drafts of policies; try again when they are done",
        )
    }

    /// A line for searches.
    pub fn of_searches() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway works on other searches; try again when they are done",
        )
    }

    /// A line for those who verify, export and take evidence.
    pub fn of_readings() -> Self {
        Self::waiting(
            WAIT_MAX,
            "this gateway reads other ledgers; try again when they are done",
        )
    }

    /// A line for those who read something of a store with so many readers.
    pub fn of_reads(readers: usize) -> Self {
        let at_once = readers.saturating_sub(READERS_LEFT).max(1);
        Self {
            places: Arc::new(Semaphore::new(at_once)),
            at_once,
            waiting_max: READS_WAITING_MAX,
            ..Self::waiting(
                WAIT_MAX,
                "this gateway reads much for others; try again when that is done",
            )
        }
    }

    fn waiting(wait_max: Duration, busy: &'static str) -> Self {
        Self {
            places: Arc::new(Semaphore::new(1)),
            at_once: 1,
            waiting_max: WAITING_MAX,
            parties: Mutex::default(),
            wait_max,
            busy,
        }
    }

    /// A place, to be kept until the work is done, also if nobody waits for it any more.
    pub async fn place(&self, party: impl Into<Party>) -> Result<Permit, Refusal> {
        let OfParty { in_line, waiting } = self.of_party(party.into());
        let _waiting = waiting.try_acquire_owned().map_err(|_| self.too_long())?;
        let permit = async {
            Permit {
                _of_party: acquire(in_line).await,
                _of_all: acquire(Arc::clone(&self.places)).await,
            }
        };
        tokio::time::timeout(self.wait_max, permit)
            .await
            .map_err(|_| self.too_long())
    }

    /// A place for the next part of work that has begun, for which it waits as long as it takes. It gives the place back after each part.
    pub async fn place_for_part(&self, party: impl Into<Party>) -> Permit {
        let OfParty { in_line, .. } = self.of_party(party.into());
        Permit {
            _of_party: acquire(in_line).await,
            _of_all: acquire(Arc::clone(&self.places)).await,
        }
    }

    fn of_party(&self, party: Party) -> OfParty {
        let mut parties = lock(&self.parties);
        let of_party = parties.entry(party).or_insert_with(|| OfParty {
            in_line: Arc::new(Semaphore::new(self.at_once)),
            waiting: Arc::new(Semaphore::new(self.waiting_max)),
        });
        of_party.clone()
    }

    fn too_long(&self) -> Refusal {
        Refusal::new(Code::Overloaded, self.busy).with_header(header::RETRY_AFTER, RETRY_AFTER)
    }
}

async fn acquire(line: Arc<Semaphore>) -> OwnedSemaphorePermit {
    line.acquire_owned().await.expect("the semaphore is never closed")
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use std::pin::{Pin, pin};

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[tokio::test]
    async fn a_draft_waits_for_the_one_before_it_and_not_for_ever() {
        let drafts = Line::waiting(Duration::ZERO, "busy");
        let place = drafts.place(ONE).await.unwrap();
        for tenant in [ONE, OTHER] {
            assert_eq!(drafts.place(tenant).await.unwrap_err().code(), Code::Overloaded);
        }
        drop(place);
        drop(drafts.place(OTHER).await.unwrap());
    }

    #[tokio::test]
    async fn many_drafts_of_one_tenant_are_one_in_line() {
        let drafts = Line::of_drafts();
        let first = drafts.place(ONE).await.unwrap();
        let (second, third) = (drafts.place(ONE), drafts.place(ONE));
        let other = drafts.place(OTHER);
        let (mut second, mut third, mut other) = (pin!(second), pin!(third), pin!(other));
        assert!(now(second.as_mut()).await.is_none());
        assert!(now(third.as_mut()).await.is_none());
        assert!(now(other.as_mut()).await.is_none());
        drop(first);
        // The second of the same tenant gets into line only now, and the third not before that one is done.
        let place = now(other.as_mut()).await.unwrap();
        assert!(now(second.as_mut()).await.is_none());
        drop(place);
        let place = now(second.as_mut()).await.unwrap();
        assert!(now(third.as_mut()).await.is_none());
        drop(place);
        drop(now(third.as_mut()).await.unwrap());
    }

    #[tokio::test]
    async fn so_many_of_a_tenant_wait_and_no_more() {
        let line = Line::of_searches();
        let place = line.place(ONE).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(line.place(ONE))).collect();
        for place in &mut waiting {
            assert!(now(place.as_mut()).await.is_none());
        }
        assert_eq!(line.place(ONE).await.unwrap_err().code(), Code::Overloaded);
        drop(waiting);
        drop(place);
        drop(line.place(ONE).await.unwrap());
    }

    #[tokio::test]
    async fn a_few_are_read_at_once_and_tenants_take_turns() {
        let reads = Line::of_reads(READERS_LEFT + 2);
        let first = reads.place(ONE).await.unwrap();
        let second = reads.place(ONE).await.unwrap();
        let (third, other) = (reads.place(ONE), reads.place(OTHER));
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
            let reads = Line::of_reads(readers);
            let place = reads.place(ONE).await.unwrap();
            let other = reads.place(OTHER);
            let mut other = pin!(other);
            assert!(now(other.as_mut()).await.is_none());
            drop(place);
            drop(now(other.as_mut()).await.unwrap());
        }
    }

    /// The place, if it is to be had without waiting.
    async fn now(place: Pin<&mut impl Future<Output = Result<Permit, Refusal>>>) -> Option<Permit> {
        tokio::time::timeout(Duration::ZERO, place).await.ok()?.ok()
    }
}
