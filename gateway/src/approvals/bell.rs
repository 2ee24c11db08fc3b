//! The bell that rings when an approval of a tenant may have changed: whoever waits for people there looks again then.
//!
//! It rings for changes of this gateway. What others change is seen by looking now and then. Nothing rests on it: who
//! does not hear it is only slower.

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

/// The bell. A clone of it is the same one.
#[derive(Clone, Default)]
pub struct Bell(Arc<Shared>);

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

/// The next time that it rings for a tenant.
pub struct Rung<'t>(Notified<'t>);

/// The right to wait. Dropping it gives the place back.
pub struct Ticket {
    bell: Bell,
    tenant: TenantId,
    changed: Arc<Notify>,
}

impl Bell {
    /// Wakes everybody who waits in this tenant.
    pub fn ring(&self, tenant: TenantId) {
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

    /// The right to wait; none if too many do, of this tenant or of all.
    pub fn ticket(&self, tenant: TenantId) -> Option<Ticket> {
        let mut waiting = self.waiting();
        let of_tenant = waiting.of_tenant.get(&tenant).map_or(0, |here| here.count);
        if waiting.all >= WAITING_MAX || of_tenant >= WAITING_OF_TENANT_MAX {
            return None;
        }
        waiting.all += 1;
        let here = waiting.of_tenant.entry(tenant).or_default();
        here.count += 1;
        Some(Ticket {
            bell: self.clone(),
            tenant,
            changed: Arc::clone(&here.changed),
        })
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        lock(&self.0.waiting)
    }
}

impl Ticket {
    /// The next time that it rings, from this call on: take it before you look.
    pub fn rung(&self) -> Rung<'_> {
        Rung(self.changed.notified())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.bell.waiting();
        waiting.all -= 1;
        if let Some(here) = waiting.of_tenant.get_mut(&self.tenant) {
            here.count -= 1;
            if here.count == 0 {
                waiting.of_tenant.remove(&self.tenant);
            }
        }
    }
}

impl Rung<'_> {
    /// Waits for it, but not beyond this time, and not for long without a look.
    pub async fn until(self, end: Instant) {
        let look = Instant::now() + LOOK_PAUSE;
        // It rang, or it is time to look: both are the same to whoever waits.
        let _ = tokio::time::timeout_at(end.min(look), self.0).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    const OTHER: TenantId = TenantId::from_bytes([0xff; 16]);

    fn tickets(bell: &Bell, tenant: TenantId, count: usize) -> Vec<Ticket> {
        (0..count).map(|_| bell.ticket(tenant).unwrap()).collect()
    }

    #[test]
    fn places_are_bounded_for_a_tenant_and_in_all_and_are_given_back() {
        let bell = Bell::default();
        let mut all = Vec::new();
        for tenant in 1..=u8::try_from(WAITING_MAX / WAITING_OF_TENANT_MAX).unwrap() {
            let tenant = TenantId::from_bytes([tenant; 16]);
            assert!(
                bell.ticket(OTHER).is_some(),
                "one tenant does not take all places"
            );
            all.extend(tickets(&bell, tenant, WAITING_OF_TENANT_MAX));
            assert!(bell.ticket(tenant).is_none());
        }
        assert!(bell.ticket(OTHER).is_none());
        all.pop();
        assert!(bell.ticket(OTHER).is_some());
        drop(all);
        let waiting = bell.waiting();
        assert_eq!((waiting.all, waiting.of_tenant.len()), (0, 0));
    }

    #[tokio::test]
    async fn it_rings_for_those_who_wait_in_the_tenant_and_for_nobody_else() {
        let (bell, long) = (Bell::default(), Instant::now() + Duration::from_mins(1));
        let ours = TenantId::from_bytes([1; 16]);
        let (first, second) = (bell.ticket(ours).unwrap(), bell.ticket(ours).unwrap());
        let theirs = bell.ticket(OTHER).unwrap();
        let rings = [first.rung(), second.rung(), theirs.rung()];
        bell.ring(ours);
        let heard = rings.map(|rung| rung.until(long).now_or_never().is_some());
        assert_eq!(heard, [true, true, false]);
        drop(first);
        let rung = second.rung();
        bell.ring(ours);
        assert!(rung.until(long).now_or_never().is_some());
    }

    #[tokio::test]
    async fn whoever_waits_hears_that_nobody_may_any_more() {
        let bell = Bell::default();
        let ticket = bell.ticket(OTHER).unwrap();
        let (rung, long) = (ticket.rung(), Instant::now() + Duration::from_mins(1));
        assert!(!bell.is_closed());
        bell.clone().close();
        assert!(bell.is_closed());
        let heard = tokio::time::timeout(LOOK_PAUSE / 10, rung.until(long)).await;
        assert!(heard.is_ok());
    }
}
