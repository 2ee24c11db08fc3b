//! Streams of ledgers as they grow, and how they hear of new entries.
//!
//! The sequencer says where a chain ends now, and no more: it copies nothing and waits for nobody. A stream reads the
//! store by itself, a page at a time, so the slowest reader costs a page of memory and delays nothing. What other
//! gateways write is not announced here; streams find it by looking now and then.
//!
//! - [`stream`]: `GET /v1/events`.

mod page;
pub mod stream;

use crate::locks::lock;
use crate::tenant_places::{TenantPlace, TenantPlaces};
use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use store::Advance;
use tokio::sync::watch;

/// How many streams there may be at once.
const STREAMS_MAX: usize = 256;
/// How many of them may be of one tenant, so that one tenant's auditors do not take all places.
const STREAMS_OF_TENANT_MAX: usize = 32;

/// Tells streams that there is something new.
pub struct Live {
    /// Held for as long as it takes to look something up, never across an `await`.
    chains: Mutex<Chains>,
    /// Those of the streams, which are taken and given back while the chains are held. How many are taken is what a
    /// commit looks at before it takes the lock.
    places: Arc<TenantPlaces>,
}

#[derive(Default)]
struct Chains {
    /// Where those end of which there are streams.
    subscribed: HashMap<TenantId, watch::Sender<u64>>,
    /// There may be no stream any more.
    is_closed: bool,
}

/// Why there is no place for a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// There are as many as there may be.
    Full,
    /// The gateway is stopping.
    Closed,
}

/// What a stream hears.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Heard {
    /// The chain has grown, or it is time to look.
    Look,
    /// The gateway is stopping, or no stream has a place for the chain any more.
    Closed,
}

/// The place of a stream. Dropping it gives the place back.
pub(crate) struct Place {
    live: Arc<Live>,
    tenant: TenantId,
    /// None once it is given back.
    taken: Option<TenantPlace>,
}

/// By which a stream hears of a chain, for as long as it has its place.
pub(crate) struct Subscription {
    end: watch::Receiver<u64>,
}

impl Default for Live {
    fn default() -> Self {
        Self {
            chains: Mutex::default(),
            places: Arc::new(TenantPlaces::new(STREAMS_MAX, STREAMS_OF_TENANT_MAX)),
        }
    }
}

impl Live {
    /// Notes that chains have grown. Streams wake by themselves.
    pub fn grown(&self, advances: &[Advance]) {
        if self.streams() == 0 {
            return;
        }
        let chains = self.lock();
        for advance in advances {
            if let Some(end) = chains.subscribed.get(&advance.tenant) {
                end.send_replace(advance.to.head().seq);
            }
        }
    }

    /// Ends every stream, and lets nobody begin one.
    pub fn close(&self) {
        let mut chains = self.lock();
        chains.is_closed = true;
        chains.subscribed.clear();
    }

    /// How many streams there are.
    pub fn streams(&self) -> usize {
        self.places.taken()
    }

    /// A place for a stream of a tenant's chain. Take it before you read, so that nothing comes in between unheard.
    pub(crate) fn subscribe(self: &Arc<Self>, tenant: TenantId) -> Result<(Place, Subscription), NoPlace> {
        let mut chains = self.lock();
        if chains.is_closed {
            return Err(NoPlace::Closed);
        }
        let taken = Some(self.places.take(tenant).ok_or(NoPlace::Full)?);
        let end = chains.subscribed.entry(tenant);
        let end = end.or_insert_with(|| watch::channel(0).0).subscribe();
        let live = Arc::clone(self);
        Ok((Place { live, tenant, taken }, Subscription { end }))
    }

    fn lock(&self) -> MutexGuard<'_, Chains> {
        lock(&self.chains)
    }
}

impl Subscription {
    /// Waits until the chain has grown, but not for longer than this.
    pub(crate) async fn hear(&mut self, within: Duration) -> Heard {
        match tokio::time::timeout(within, self.end.changed()).await {
            Ok(Err(_)) => Heard::Closed,
            Ok(Ok(())) | Err(_) => Heard::Look,
        }
    }

    /// Whether the gateway is stopping, if there is a place.
    pub(crate) fn is_closed(&self) -> bool {
        self.end.has_changed().is_err()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut chains = self.live.lock();
        drop(self.taken.take());
        if !self.live.places.has_one(self.tenant) {
            chains.subscribed.remove(&self.tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use ledger::merkle::Frontier;
    use ledger::{Head, Tip};

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const TWO: TenantId = TenantId::from_bytes([2; 16]);
    const LONG: Duration = Duration::from_mins(1);
    const SHORT: Duration = Duration::from_millis(100);

    fn advance(tenant: TenantId, seq: u64) -> Advance {
        let tree = Frontier::new(seq, vec![Digest::ZERO; seq.count_ones() as usize]);
        let hash = Digest::of(b"entry");
        Advance {
            tenant,
            from: Head::GENESIS,
            to: Tip::new(Head { seq, hash }, tree.unwrap()).unwrap(),
            revision: 0,
        }
    }

    fn places(live: &Arc<Live>, tenant: TenantId, count: usize) -> Vec<(Place, Subscription)> {
        (0..count)
            .map(|_| live.subscribe(tenant).unwrap_or_else(|why| panic!("{why:?}")))
            .collect()
    }

    #[tokio::test]
    async fn a_stream_hears_of_its_own_chain_only() {
        let live = Arc::new(Live::default());
        let (_place, mut one) = live.subscribe(ONE).ok().unwrap();
        let (_other, mut two) = live.subscribe(TWO).ok().unwrap();
        live.grown(&[advance(ONE, 1)]);
        let heard = tokio::time::timeout(SHORT, one.hear(LONG)).await;
        assert_eq!(heard, Ok(Heard::Look));
        let unheard = tokio::time::timeout(SHORT, two.hear(LONG)).await;
        assert!(unheard.is_err());
        assert_eq!(two.hear(SHORT).await, Heard::Look);
    }

    #[test]
    fn places_are_bounded_for_a_tenant_and_in_all_and_are_given_back() {
        let live = Arc::new(Live::default());
        let mut all = places(&live, ONE, STREAMS_OF_TENANT_MAX);
        assert_eq!(live.subscribe(ONE).err(), Some(NoPlace::Full));
        for tenant in 2..=u8::try_from(STREAMS_MAX / STREAMS_OF_TENANT_MAX).unwrap() {
            all.extend(places(
                &live,
                TenantId::from_bytes([tenant; 16]),
                STREAMS_OF_TENANT_MAX,
            ));
        }
        let other = TenantId::from_bytes([0xff; 16]);
        assert_eq!(live.subscribe(other).err(), Some(NoPlace::Full));
        all.pop();
        assert!(live.subscribe(other).is_ok());
        drop(all);
        assert_eq!(live.streams(), 0);
        assert!(live.lock().subscribed.is_empty());
    }

    #[tokio::test]
    async fn nobody_subscribes_to_a_gateway_that_stops() {
        let live = Arc::new(Live::default());
        let (_place, mut subscription) = live.subscribe(ONE).ok().unwrap();
        assert!(!subscription.is_closed());
        live.close();
        assert!(subscription.is_closed());
        assert_eq!(subscription.hear(LONG).await, Heard::Closed);
        assert_eq!(live.subscribe(ONE).err(), Some(NoPlace::Closed));
    }
}
