//! The bell that rings when an approval may have changed: whoever waits for people looks again then.
//!
//! It rings for changes of this gateway. What others change is seen by looking now and then. Nothing rests on it: who
//! does not hear it is only slower.

use model::TenantId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    changed: Notify,
    /// Held for as long as it takes to count, never across an `await`.
    waiting: Mutex<Waiting>,
    /// Nobody may wait any more.
    is_closed: AtomicBool,
}

/// How many wait.
#[derive(Default)]
struct Waiting {
    all: usize,
    /// Of each tenant of which somebody does.
    of_tenant: HashMap<TenantId, usize>,
}

/// The next time that it rings.
pub struct Rung<'b>(Notified<'b>);

/// The right to wait. Dropping it gives the place back.
pub struct Ticket {
    bell: Bell,
    tenant: TenantId,
}

impl Bell {
    /// Wakes everybody who waits.
    pub fn ring(&self) {
        self.0.changed.notify_waiters();
    }

    /// Wakes everybody who waits, and lets nobody wait any more: the gateway is stopping.
    pub fn close(&self) {
        self.0.is_closed.store(true, Ordering::SeqCst);
        self.ring();
    }

    /// Whether nobody may wait any more.
    pub fn is_closed(&self) -> bool {
        self.0.is_closed.load(Ordering::SeqCst)
    }

    /// The right to wait; none if too many do, of this tenant or of all.
    pub fn ticket(&self, tenant: TenantId) -> Option<Ticket> {
        let mut waiting = self.waiting();
        let of_tenant = waiting.of_tenant.get(&tenant).copied().unwrap_or(0);
        if waiting.all >= WAITING_MAX || of_tenant >= WAITING_OF_TENANT_MAX {
            return None;
        }
        waiting.all += 1;
        waiting.of_tenant.insert(tenant, of_tenant + 1);
        Some(Ticket {
            bell: self.clone(),
            tenant,
        })
    }

    /// The next time that it rings, from this call on: take it before you look.
    pub fn rung(&self) -> Rung<'_> {
        Rung(self.0.changed.notified())
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut waiting = self.bell.waiting();
        waiting.all -= 1;
        let left = waiting.of_tenant.remove(&self.tenant).unwrap_or(0);
        // This one is still counted.
        if left > 1 {
            waiting.of_tenant.insert(self.tenant, left - 1);
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
    async fn whoever_waits_hears_that_nobody_may_any_more() {
        let bell = Bell::default();
        let (rung, long) = (bell.rung(), Instant::now() + Duration::from_mins(1));
        assert!(!bell.is_closed());
        bell.clone().close();
        assert!(bell.is_closed());
        let heard = tokio::time::timeout(LOOK_PAUSE / 10, rung.until(long)).await;
        assert!(heard.is_ok());
    }
}
