//! Who waits for people, and is notified when an approval of the tenant may have changed, to look again then.
//!
//! They are notified of changes of this gateway. What others change is seen by looking now and then. Nothing rests on
//! it: who is not notified is only slower. So is who finds no place among those who are: it waits as long, and looks
//! less often.

use crate::fairness_key::FairnessKey;
use crate::http::caller::CallerId;
use crate::locks::lock;
use model::TenantId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// How many of those who wait have a place: they are notified, and look often besides. Others wait without.
const PLACES_MAX: usize = 1_000;
/// How many places the agents of one tenant may have, and how many its people. They leave as many as they have, so that
/// a few tenants do not take all.
const PLACES_OF_SHARE_MAX: usize = 250;
/// How many of these one caller may have, so that one agent does not take those of all.
const PLACES_OF_CALLER_MAX: usize = PLACES_OF_SHARE_MAX / 8;
/// How often those with a place look without having heard anything: an approval may have been given on another gateway.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// How often those without a place look. Answered at once, they would ask again at once.
const LOOK_PAUSE_WITHOUT_PLACE: Duration = Duration::from_secs(10);

/// All who wait. A clone has the same ones.
#[derive(Clone, Default)]
pub struct Waiters(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Held for as long as it takes to count or to wake, never across an `await`.
    places: Mutex<Places>,
    /// What those hear who have no place: that the gateway is stopping, and nothing else.
    closing: Arc<Notify>,
    /// Nobody may wait any more.
    is_closed: AtomicBool,
}

/// Who has places.
#[derive(Default)]
struct Places {
    taken: usize,
    /// Of each share of which somebody has one.
    shares: HashMap<FairnessKey, Share>,
}

/// Those of one share who have places.
#[derive(Default)]
struct Share {
    taken: usize,
    /// How many of them each caller has. Who has none is not here.
    of_callers: HashMap<CallerId, usize>,
    changed: Arc<Notify>,
}

/// The next time that somebody who waits is notified.
pub struct Notification<'w> {
    notified: Notified<'w>,
    look_pause: Duration,
}

/// Somebody who waits. Dropping it gives the place back, if it has one.
pub struct Waiter {
    changed: Arc<Notify>,
    place: Option<Place>,
}

/// A place of this caller's, until it is dropped.
struct Place {
    waiters: Waiters,
    key: FairnessKey,
    caller: CallerId,
}

impl Waiters {
    /// Wakes everybody who has a place and waits in this tenant.
    pub fn notify(&self, tenant: TenantId) {
        let places = self.places();
        for key in [FairnessKey::agents_of(tenant), FairnessKey::people_of(tenant)] {
            if let Some(share) = places.shares.get(&key) {
                share.changed.notify_waiters();
            }
        }
    }

    /// Wakes everybody who waits, and lets nobody wait any more: the gateway is stopping.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        for share in self.places().shares.values() {
            share.changed.notify_waiters();
        }
        self.0.closing.notify_waiters();
    }

    /// Whether nobody may wait any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::SeqCst)
    }

    /// One more who waits: with a place, unless there is none for this caller.
    pub fn register(&self, key: FairnessKey, caller: CallerId) -> Waiter {
        let changed = self.places().take(key, &caller);
        match changed {
            Some(changed) => Waiter {
                changed,
                place: Some(Place {
                    waiters: self.clone(),
                    key,
                    caller,
                }),
            },
            None => Waiter {
                changed: Arc::clone(&self.0.closing),
                place: None,
            },
        }
    }

    fn places(&self) -> MutexGuard<'_, Places> {
        lock(&self.0.places)
    }
}

impl Places {
    /// Takes a place, and returns what those who have one there are notified by; none if there are too many, of this
    /// caller, of this share or of all.
    fn take(&mut self, key: FairnessKey, caller: &CallerId) -> Option<Arc<Notify>> {
        let share = self.shares.get(&key);
        let of_share = share.map_or(0, |share| share.taken);
        let of_caller = share.and_then(|share| share.of_callers.get(caller).copied());
        let left = PLACES_MAX - self.taken;
        if of_share >= PLACES_OF_SHARE_MAX.min(left) || of_caller.unwrap_or(0) >= PLACES_OF_CALLER_MAX {
            return None;
        }
        self.taken += 1;
        let share = self.shares.entry(key).or_default();
        share.taken += 1;
        *share.of_callers.entry(caller.clone()).or_default() += 1;
        Some(Arc::clone(&share.changed))
    }

    /// Gives a place back.
    fn give_back(&mut self, key: FairnessKey, caller: &CallerId) {
        self.taken -= 1;
        let Some(share) = self.shares.get_mut(&key) else {
            return;
        };
        share.taken -= 1;
        if let Some(taken) = share.of_callers.get_mut(caller) {
            *taken -= 1;
            if *taken == 0 {
                share.of_callers.remove(caller);
            }
        }
        if share.taken == 0 {
            self.shares.remove(&key);
        }
    }
}

impl Waiter {
    /// The next time that it is notified, from this call on: take it before you look.
    pub fn notified(&self) -> Notification<'_> {
        Notification {
            notified: self.changed.notified(),
            look_pause: if self.place.is_some() {
                LOOK_PAUSE
            } else {
                LOOK_PAUSE_WITHOUT_PLACE
            },
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiters.places().give_back(self.key, &self.caller);
    }
}

impl Notification<'_> {
    /// Waits for it, but not beyond this time, and not for long without a look.
    pub async fn until(self, end: Instant) {
        let look = Instant::now() + self.look_pause;
        // It was notified, or it is time to look: both are the same to whoever waits.
        let _ = tokio::time::timeout_at(end.min(look), self.notified).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;
    use model::AgentId;
    use std::pin::pin;

    const OURS: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([0xff; 16]);

    /// Waits as this agent of a tenant.
    fn agent_waits(waiters: &Waiters, tenant: TenantId, agent: u128) -> Waiter {
        caller_waits(waiters, FairnessKey::agents_of(tenant), agent)
    }

    /// Waits as one of many callers who have a share together.
    fn caller_waits(waiters: &Waiters, key: FairnessKey, caller: u128) -> Waiter {
        let caller = AgentId::from_bytes(caller.to_be_bytes());
        waiters.register(key, CallerId::Agent(caller))
    }

    /// All of these who find a place, until one finds none.
    fn placed(waiting: impl Iterator<Item = Waiter>) -> Vec<Waiter> {
        waiting.take_while(|waiter| waiter.place.is_some()).collect()
    }

    #[test]
    fn places_are_bounded_for_agents_and_people_of_a_tenant_and_in_all_and_are_given_back() {
        let waiters = Waiters::default();
        let mut all = Vec::new();
        for (tenant, taken) in [(OURS, [250, 250]), (OTHER, [250, 125])] {
            let keys = [FairnessKey::agents_of(tenant), FairnessKey::people_of(tenant)];
            let found = keys.map(|key| placed((0..).map(|caller| caller_waits(&waiters, key, caller))));
            assert_eq!(found.each_ref().map(Vec::len), taken);
            all.extend(found);
        }
        let third = TenantId::from_bytes([3; 16]);
        let late = agent_waits(&waiters, third, 1);
        assert!(late.place.is_some(), "a few tenants do not take all places");
        drop((all, late));
        let places = waiters.places();
        assert_eq!((places.taken, places.shares.len()), (0, 0));
    }

    #[test]
    fn one_caller_leaves_places_to_the_others_of_its_share() {
        let waiters = Waiters::default();
        let mut greedy = placed((0..).map(|_| agent_waits(&waiters, OURS, 1)));
        assert_eq!(greedy.len(), 31);
        assert!(agent_waits(&waiters, OURS, 2).place.is_some());
        greedy.pop();
        assert!(agent_waits(&waiters, OURS, 1).place.is_some());
    }

    #[tokio::test]
    async fn whoever_has_no_place_hears_nothing_but_that_nobody_may_wait_any_more() {
        let (waiters, long) = (Waiters::default(), Instant::now() + Duration::from_mins(1));
        let _greedy = placed((0..).map(|_| agent_waits(&waiters, OURS, 1)));
        let waiter = agent_waits(&waiters, OURS, 1);
        let mut waits = pin!(waiter.notified().until(long));
        waiters.notify(OURS);
        assert!(waits.as_mut().now_or_never().is_none());
        waiters.close();
        assert!(waits.now_or_never().is_some());
    }

    #[tokio::test]
    async fn waiters_of_the_tenant_are_notified_and_no_others() {
        let (waiters, long) = (Waiters::default(), Instant::now() + Duration::from_mins(1));
        let first = agent_waits(&waiters, OURS, 1);
        let second = caller_waits(&waiters, FairnessKey::people_of(OURS), 2);
        let theirs = agent_waits(&waiters, OTHER, 1);
        let notifications = [first.notified(), second.notified(), theirs.notified()];
        waiters.notify(OURS);
        let heard = notifications.map(|notification| notification.until(long).now_or_never().is_some());
        assert_eq!(heard, [true, true, false]);
        drop(first);
        let notification = second.notified();
        waiters.notify(OURS);
        assert!(notification.until(long).now_or_never().is_some());
    }

    #[tokio::test]
    async fn whoever_waits_hears_that_nobody_may_any_more() {
        let waiters = Waiters::default();
        let waiter = agent_waits(&waiters, OTHER, 1);
        let (notification, long) = (waiter.notified(), Instant::now() + Duration::from_mins(1));
        assert!(!waiters.is_closed());
        waiters.clone().close();
        assert!(waiters.is_closed());
        let heard = tokio::time::timeout(LOOK_PAUSE / 10, notification.until(long)).await;
        assert!(heard.is_ok());
    }
}
