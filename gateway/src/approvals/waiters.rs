//! Who waits for people, and is notified when an approval of the tenant may have changed, to look again then.
//!
//! They are notified of changes of this gateway. What others change is seen by looking now and then. Nothing rests on
//! it: who is not notified is only slower.

use crate::locks::lock;
use model::TenantId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Instant;

/// How many requests may wait at once. One more is answered at once.
const WAITING_MAX: usize = 1_000;
/// How many of them may be one tenant's, so that one tenant's agents do not take all places.
const WAITING_OF_TENANT_MAX: usize = 250;
/// How often those who wait look without having heard anything: an approval may have been given on another gateway.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// All who wait. A clone has the same ones.
#[derive(Clone, Default)]
pub struct Waiters(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Held for as long as it takes to count or to wake, never across an `await`.
    waiting: Mutex<Waiting>,
    /// Nobody may wait any more.
    is_closed: AtomicBool,
}

/// How many wait.
#[derive(Default)]
struct Waiting {
    all: usize,
    /// Of each tenant of which somebody does.
    of_tenant: HashMap<TenantId, OfTenant>,
}

/// Those who wait in one tenant.
#[derive(Default)]
struct OfTenant {
    count: usize,
    changed: Arc<Notify>,
}

/// The next time that those who wait in a tenant are notified.
pub struct Notification<'t>(Notified<'t>);

/// Somebody who waits. Dropping it gives the place back.
pub struct Waiter {
    waiters: Waiters,
    tenant: TenantId,
    changed: Arc<Notify>,
}

impl Waiters {
    /// Wakes everybody who waits in this tenant.
    pub fn notify(&self, tenant: TenantId) {
        if let Some(here) = self.waiting().of_tenant.get(&tenant) {
            here.changed.notify_waiters();
        }
    }

    /// Wakes everybody who waits, and lets nobody wait any more: the gateway is stopping.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        for here in self.waiting().of_tenant.values() {
            here.changed.notify_waiters();
        }
    }

    /// Whether nobody may wait any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::SeqCst)
    }

    /// One more who waits; none if too many do, of this tenant or of all.
    pub fn register(&self, tenant: TenantId) -> Option<Waiter> {
        let mut waiting = self.waiting();
        let of_tenant = waiting.of_tenant.get(&tenant).map_or(0, |here| here.count);
        if waiting.all >= WAITING_MAX || of_tenant >= WAITING_OF_TENANT_MAX {
            return None;
        }
        waiting.all += 1;
        let here = waiting.of_tenant.entry(tenant).or_default();
        here.count += 1;
        Some(Waiter {
            waiters: self.clone(),
            tenant,
            changed: Arc::clone(&here.changed),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0.waiting)
    }
}

impl Waiter {
    /// The next time that it is notified, from this call on: take it before you look.
    pub fn notified(&self) -> Notification<'_> {
        Notification(self.changed.notified())
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.waiters.waiting();
        waiting.all -= 1;
        if let Some(here) = waiting.of_tenant.get_mut(&self.tenant) {
            here.count -= 1;
            if here.count == 0 {
                waiting.of_tenant.remove(&self.tenant);
            }
        }
    }
}

impl Notification<'_> {
    /// Waits for it, but not beyond this time, and not for long without a look.
    pub async fn until(self, end: Instant) {
        let look = Instant::now() + LOOK_PAUSE;
        // It was notified, or it is time to look: both are the same to whoever waits.
        let _ = tokio::time::timeout_at(end.min(look), self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const OTHER: TenantId = TenantId::from_bytes([0xff; 16]);

    fn registered(waiters: &Waiters, tenant: TenantId, count: usize) -> Vec<Waiter> {
        (0..count).map(|_| waiters.register(tenant).unwrap()).collect()
    }

    #[test]
    fn places_are_bounded_for_a_tenant_and_in_all_and_are_given_back() {
        let waiters = Waiters::default();
        let mut all = Vec::new();
        for tenant in 1..=u8::try_from(WAITING_MAX / WAITING_OF_TENANT_MAX).unwrap() {
            let tenant = TenantId::from_bytes([tenant; 16]);
            assert!(
                waiters.register(OTHER).is_some(),
                "one tenant does not take all places"
            );
            all.extend(registered(&waiters, tenant, WAITING_OF_TENANT_MAX));
            assert!(waiters.register(tenant).is_none());
        }
        assert!(waiters.register(OTHER).is_none());
        all.pop();
        assert!(waiters.register(OTHER).is_some());
        drop(all);
        let waiting = waiters.waiting();
        assert_eq!((waiting.all, waiting.of_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn waiters_of_the_tenant_are_notified_and_no_others() {
        let (waiters, long) = (Waiters::default(), Instant::now() + Duration::from_mins(1));
        let ours = TenantId::from_bytes([1; 16]);
        let (first, second) = (waiters.register(ours).unwrap(), waiters.register(ours).unwrap());
        let theirs = waiters.register(OTHER).unwrap();
        let notifications = [first.notified(), second.notified(), theirs.notified()];
        waiters.notify(ours);
        let heard = notifications.map(|notification| notification.until(long).now_or_never().is_some());
        assert_eq!(heard, [true, true, false]);
        drop(first);
        let notification = second.notified();
        waiters.notify(ours);
        assert!(notification.until(long).now_or_never().is_some());
    }

    #[tokio::test]
    async fn whoever_waits_hears_that_nobody_may_any_more() {
        let waiters = Waiters::default();
        let waiter = waiters.register(OTHER).unwrap();
        let (notification, long) = (waiter.notified(), Instant::now() + Duration::from_mins(1));
        assert!(!waiters.is_closed());
        waiters.clone().close();
        assert!(waiters.is_closed());
        let heard = tokio::time::timeout(LOOK_PAUSE / 10, notification.until(long)).await;
        assert!(heard.is_ok());
    }
}
