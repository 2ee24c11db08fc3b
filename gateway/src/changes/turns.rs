//! Who changes directories now: one at a time in each tenant, so that two do not make each other start again.
//!
//! It is no more than that. What keeps a change from being made to another directory than it was worked out on is its revision. A
//! tenant's turn is long where its policies are compiled, so nobody in another tenant waits for it; only while the base policies are
//! replaced, which are everybody's, and others have come in between again and again, nothing else is compiled. Compiling goes on when its caller hangs up, so it keeps the turn ([`Turn::kept`]):
//! nobody has more than one core at work, however often they ask.
//!
//! What has to hold at once, a freeze for instance, has a turn of its own in each tenant, so that it waits for nothing that is compiled,
//! whoever's it is. Whatever is worked out meanwhile starts again. Those who wait in turn have a bound. What has to hold at once has none, because none
//! of it takes long: nobody keeps a freeze away by changing much.

use crate::http::Refusal;
use crate::locks::lock;
use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tokio::sync::{OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, Semaphore};

/// How many wait for a turn in a tenant: as many as changes wait to be recorded. Each has what it was sent in memory.
const WAITING_MAX: usize = 256;

/// Those who change a tenant in the same order.
#[derive(Clone)]
struct Lane {
    /// Held by whoever has the turn.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// The places for those who wait, of changes in turn.
    waiting: Arc<Semaphore>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            turn: Arc::default(),
            waiting: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }
}

/// The turns of tenants, and the one of everybody.
#[derive(Default)]
pub struct Turns {
    /// Held by whoever changes a tenant during such a turn. A tenant is here from its first change on.
    tenants: Mutex<HashMap<(TenantId, Order), Lane>>,
    /// Held by those who change tenants in turn, together, and alone by whoever replaces the base policies. Comes after the turn of a tenant.
    all: RwLock<()>,
}

/// Whom a change waits for, of those in the same tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Order {
    /// For those that came before it.
    InTurn,
    /// Only for other changes at once. Also taken, beside its own turn, by a change in turn that was turned back often, for one attempt. Nobody who
    /// holds this turn compiles.
    AtOnce,
}

/// A turn to change a tenant, until it is dropped.
#[must_use = "a turn is had as long as it is held"]
pub struct Turn<'a> {
    tenant: Arc<OwnedMutexGuard<()>>,
    /// Not held by what has to hold at once: this waits behind whoever waits for all the others.
    _all: Option<RwLockReadGuard<'a, ()>>,
}

/// What keeps others in the same tenant waiting, also when the turn was given up.
pub struct Kept(#[expect(dead_code, reason = "it is there to be dropped")] Arc<OwnedMutexGuard<()>>);

impl Turn<'_> {
    /// Something to be dropped by whatever goes on without its caller.
    pub fn kept(&self) -> Kept {
        Kept(Arc::clone(&self.tenant))
    }
}

impl Turns {
    /// Waits for a turn in a tenant. Where too many wait for one already, there is none.
    pub async fn of(&self, tenant: TenantId, order: Order) -> Result<Turn<'_>, Refusal> {
        let Lane { turn, waiting } = self.lane(tenant, order);
        match order {
            Order::InTurn => {
                let waiting = waiting.try_acquire().map_err(|_| Refusal::overloaded())?;
                let tenant = Arc::new(turn.lock_owned().await);
                drop(waiting);
                Ok(Turn {
                    tenant,
                    _all: Some(self.all.read().await),
                })
            }
            Order::AtOnce => Ok(Turn {
                tenant: Arc::new(turn.lock_owned().await),
                _all: None,
            }),
        }
    }

    fn lane(&self, tenant: TenantId, order: Order) -> Lane {
        let mut lanes = lock(&self.tenants);
        lanes.entry((tenant, order)).or_default().clone()
    }

    /// Waits until nobody changes anything in turn.
    pub async fn of_all(&self) -> RwLockWriteGuard<'_, ()> {
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
    async fn a_turn_is_kept_by_what_goes_on_without_its_caller_and_nobody_elses_is() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let turns = Turns::default();
        let turn = turns.of(one, Order::InTurn).await.unwrap();
        let kept = turn.kept();
        drop(turn);
        let next = tokio::time::timeout(Duration::from_millis(50), turns.of(one, Order::InTurn));
        assert!(next.await.is_err());
        drop(turns.of(other, Order::InTurn).await.unwrap());
        drop(kept);
        drop(turns.of(one, Order::InTurn).await.unwrap());
    }

    #[tokio::test]
    async fn what_has_to_hold_at_once_waits_only_for_its_like() {
        let one = TenantId::from_bytes([1; 16]);
        let turns = Turns::default();
        let _compiling = turns.of(one, Order::InTurn).await.unwrap();
        let freeze = turns.of(one, Order::AtOnce).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(50), turns.of(one, Order::AtOnce));
        assert!(next.await.is_err());
        drop(freeze);
        drop(turns.of(one, Order::AtOnce).await.unwrap());
    }

    #[tokio::test]
    async fn what_has_to_hold_at_once_waits_for_nobody_who_waits_for_all() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let turns = Turns::default();
        let compiling = turns.of(one, Order::InTurn).await.unwrap();
        let mut reload = pin!(turns.of_all());
        let waits = tokio::time::timeout(Duration::from_millis(50), &mut reload);
        assert!(waits.await.is_err());
        let next = tokio::time::timeout(Duration::from_millis(50), turns.of(other, Order::InTurn));
        assert!(next.await.is_err());
        drop(turns.of(one, Order::AtOnce).await.unwrap());
        drop(compiling);
        let _reload = reload.await;
        drop(turns.of(other, Order::AtOnce).await.unwrap());
    }

    #[tokio::test]
    async fn so_many_wait_in_a_tenant_and_no_more_and_what_has_to_hold_at_once_does_not_stand_behind_them() {
        let [one, other] = [1, 2].map(|id| TenantId::from_bytes([id; 16]));
        let turns = Turns::default();
        let turn = turns.of(one, Order::InTurn).await.unwrap();
        let mut waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| Box::pin(turns.of(one, Order::InTurn)))
            .collect();
        for next in &mut waiting {
            assert!(next.as_mut().now_or_never().is_none());
        }
        let Err(refusal) = turns.of(one, Order::InTurn).await else {
            panic!("one more waits")
        };
        assert_eq!(refusal.code(), Code::Overloaded);
        drop(turns.of(one, Order::AtOnce).await.unwrap());
        drop(turns.of(other, Order::InTurn).await.unwrap());
        drop(turn);
        drop(waiting.remove(0).await.unwrap());
        drop(waiting);
        drop(turns.of(one, Order::InTurn).await.unwrap());
    }
}
