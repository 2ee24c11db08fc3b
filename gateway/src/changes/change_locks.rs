//! Who changes directories now: one at a time in each tenant, so that two do not make each other start again.
//!
//! It is no more than that. What keeps a change from being made to another directory than it was worked out on is its
//! revision. A tenant is locked for long where its policies are compiled, so nobody in another tenant waits for it;
//! only while the base policies are replaced, which are everybody's, and others have come in between again and again,
//! nothing else is compiled. Compiling goes on when its caller hangs up, so it keeps the lock ([`ChangeLock::kept`]):
//! nobody has more than one core at work, however often they ask. So does a look whether a tenant has been changed, and
//! nobody has all the places for these.
//!
//! What has to hold at once, a freeze for instance, has a lock of its own in each tenant, so that it waits for nothing
//! that is compiled, whoever's it is. Whatever is worked out meanwhile starts again. Those who wait in turn have a
//! bound. What has to hold at once has none, because none of it takes long: nobody keeps a freeze away by changing
//! much. Only whoever sets limits waits first for others in the tenant that do, in a line with the same bound. Who
//! hangs up in that line leaves it; what has begun is finished, so there is one at a time.

use crate::http::Refusal;
use crate::locks::lock;
use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{
    OwnedMutexGuard, OwnedSemaphorePermit, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore,
};

/// How many wait for the lock of a tenant, or to set limits there: as many as changes wait to be recorded. Each has
/// what it was sent in memory.
const WAITING_MAX: usize = 256;

/// How many look at once whether a tenant is still what a change that changes nothing was worked out on. Each takes a
/// turn, as a commit does, and may wait in it for another gateway that stands still: on PostgreSQL there are eight for
/// all tenants, so that half of them are left to commits.
const LOOKS_MAX: usize = 4;

/// Those who change a tenant in the same order, or who set its limits.
#[derive(Clone)]
struct Lane {
    /// Held by whoever does so.
    lock: Arc<tokio::sync::Mutex<()>>,
    /// The places for those who wait, but for changes at once.
    waiting: Arc<Semaphore>,
}

impl Lane {
    /// Waits for the lock. Where too many wait for it already, it is refused.
    async fn in_turn(self) -> Result<OwnedMutexGuard<()>, Refusal> {
        let Self { lock, waiting } = self;
        let _waiting = waiting.try_acquire().map_err(|_| Refusal::overloaded())?;
        Ok(lock.lock_owned().await)
    }
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            lock: Arc::default(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }
}

/// The locks of tenants, and the one of everybody.
pub struct ChangeLocks {
    /// Held by whoever changes a tenant. A tenant is here from its first change on.
    tenants: Mutex<HashMap<(TenantId, Order), Lane>>,
    /// Held by those who change tenants in turn, together, and alone by whoever replaces the base policies. Taken after
    /// the lock of a tenant.
    all: RwLock<()>,
    /// Held by whoever sets limits of a tenant until its buckets go by them, and taken first. A tenant is here from its
    /// first limits on.
    limits: Mutex<HashMap<TenantId, Lane>>,
    /// Acquired by those who look, and taken last.
    looks: Arc<Semaphore>,
}

impl Default for ChangeLocks {
    fn default() -> Self {
        Self {
            tenants: Mutex::default(),
            all: RwLock::default(),
            limits: Mutex::default(),
            looks: Arc::new(Semaphore::new(LOOKS_MAX)),
        }
    }
}

/// Whom a change waits for, of those in the same tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// For those that came before it.
    InTurn,
    /// Only for other changes at once. Also taken, beside its own lock, by a change in turn that was turned back often,
    /// for one attempt. Nobody who holds this lock compiles.
    AtOnce,
}

/// The right to change a tenant, until it is dropped.
#[must_use = "a tenant is locked as long as this is held"]
pub struct ChangeLock<'a> {
    tenant: Arc<OwnedMutexGuard<()>>,
    /// Not held by what has to hold at once: this waits behind whoever waits for all the others.
    _all: Option<RwLockReadGuard<'a, ()>>,
}

/// What keeps others in the same tenant waiting, also when the lock was dropped.
pub struct KeptLock(#[expect(dead_code, reason = "it is there to be dropped")] Arc<OwnedMutexGuard<()>>);

impl ChangeLock<'_> {
    /// Something to be dropped by whatever goes on without its caller.
    pub fn kept(&self) -> KeptLock {
        KeptLock(Arc::clone(&self.tenant))
    }
}

impl ChangeLocks {
    /// Waits for the lock of a tenant. Where too many wait for it already, it is refused.
    pub async fn lock(&self, tenant: TenantId, order: Order) -> Result<ChangeLock<'_>, Refusal> {
        let lane = self.lane(tenant, order);
        match order {
            Order::InTurn => Ok(ChangeLock {
                tenant: Arc::new(lane.in_turn().await?),
                _all: Some(self.all.read().await),
            }),
            Order::AtOnce => Ok(ChangeLock {
                tenant: Arc::new(lane.lock.lock_owned().await),
                _all: None,
            }),
        }
    }

    fn lane(&self, tenant: TenantId, order: Order) -> Lane {
        let mut lanes = lock(&self.tenants);
        lanes.entry((tenant, order)).or_default().clone()
    }

    /// Waits until nobody sets limits of a tenant. Callers of whom one after the other hangs up leave one change behind,
    /// and no crowd of them. Where too many wait already, it is refused.
    pub async fn lock_limits(&self, tenant: TenantId) -> Result<OwnedMutexGuard<()>, Refusal> {
        let lane = lock(&self.limits).entry(tenant).or_default().clone();
        lane.in_turn().await
    }

    /// Waits until few enough look at the store whether a tenant has been changed. To be kept by the look itself, which
    /// goes on in the store without its caller.
    pub async fn look(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.looks).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    /// Waits until nobody changes anything in turn.
    pub async fn lock_all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Code;
    use futures_util::FutureExt;
    use std::pin::pin;
    use std::time::Duration;

    #[tokio::test]
    async fn a_lock_is_kept_by_what_goes_on_without_its_caller_and_nobody_elses_is() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let locks = ChangeLocks::default();
        let held = locks.lock(one, Order::InTurn).await.unwrap();
        let kept = held.kept();
        drop(held);
        let next = tokio::time::timeout(Duration::from_millis(50), locks.lock(one, Order::InTurn));
        assert!(next.await.is_err());
        drop(locks.lock(other, Order::InTurn).await.unwrap());
        drop(kept);
        drop(locks.lock(one, Order::InTurn).await.unwrap());
    }

    #[tokio::test]
    async fn what_has_to_hold_at_once_waits_only_for_its_like() {
        let one = TenantId::from_bytes([1; 16]);
        let locks = ChangeLocks::default();
        let _compiling = locks.lock(one, Order::InTurn).await.unwrap();
        let freeze = locks.lock(one, Order::AtOnce).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), locks.lock(one, Order::AtOnce));
        assert!(next.await.is_err());
        drop(freeze);
        drop(locks.lock(one, Order::AtOnce).await.unwrap());
    }

    #[tokio::test]
    async fn limits_of_a_tenant_are_set_one_after_the_other_and_nobody_else_waits_for_that() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let locks = ChangeLocks::default();
        let setting = locks.lock_limits(one).await.unwrap();
        assert!(locks.lock_limits(one).now_or_never().is_none());
        drop(locks.lock_limits(other).await.unwrap());
        drop(locks.lock(one, Order::AtOnce).await.unwrap());
        drop(setting);
        drop(locks.lock_limits(one).await.unwrap());
    }

    #[tokio::test]
    async fn so_many_wait_to_set_limits_of_a_tenant_and_no_more_and_whoever_leaves_gives_the_place_back() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let locks = ChangeLocks::default();
        let setting = locks.lock_limits(one).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(locks.lock_limits(one)))
            .collect();
        for next in &mut waiting {
            assert!(next.as_mut().now_or_never().is_none());
        }
        let refusal = locks.lock_limits(one).await.expect_err("one more waits");
        assert_eq!(refusal.code(), Code::Overloaded);
        drop(locks.lock_limits(other).await.unwrap());
        for order in [Order::InTurn, Order::AtOnce] {
            drop(locks.lock(one, order).await.unwrap());
        }
        drop(waiting.pop());
        assert!(locks.lock_limits(one).now_or_never().is_none());
        drop(setting);
        drop(waiting.remove(0).await.unwrap());
        drop(waiting);
        drop(locks.lock_limits(one).await.unwrap());
    }

    #[tokio::test]
    async fn what_has_to_hold_at_once_waits_for_nobody_who_waits_for_all() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let locks = ChangeLocks::default();
        let compiling = locks.lock(one, Order::InTurn).await.unwrap();
        let mut reload = pin!(locks.lock_all());
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut reload);
        assert!(waits.await.is_err());
        let next = tokio::time::timeout(Duration::from_millis(50), locks.lock(other, Order::InTurn));
        assert!(next.await.is_err());
        drop(locks.lock(one, Order::AtOnce).await.unwrap());
        drop(compiling);
        let _reload = reload.await;
        drop(locks.lock(other, Order::AtOnce).await.unwrap());
    }

    #[tokio::test]
    async fn so_many_wait_in_a_tenant_and_no_more_and_what_has_to_hold_at_once_does_not_stand_behind_them() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let locks = ChangeLocks::default();
        let held = locks.lock(one, Order::InTurn).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(locks.lock(one, Order::InTurn)))
            .collect();
        for next in &mut waiting {
            assert!(next.as_mut().now_or_never().is_none());
        }
        let Err(refusal) = locks.lock(one, Order::InTurn).await else {
            panic!("one more waits")
        };
        assert_eq!(refusal.code(), Code::Overloaded);
        drop(locks.lock(one, Order::AtOnce).await.unwrap());
        drop(locks.lock(other, Order::InTurn).await.unwrap());
        drop(held);
        drop(waiting.remove(0).await.unwrap());
        drop(waiting);
        drop(locks.lock(one, Order::InTurn).await.unwrap());
    }
}
