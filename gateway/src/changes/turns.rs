//! Who changes directories now: one at a time in each tenant, so that two do not make each other start again.
//!
//! It is no more than that. What keeps a change from being made to another directory than it was worked out on is its revision. A
//! tenant's turn is long where its policies are compiled, so nobody in another tenant waits for it; only while the base policies are
//! replaced, which are everybody's, nothing else changes.

use model::TenantId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{OwnedMutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The turns of tenants, and the one of everybody.
#[derive(Default)]
pub struct Turns {
    /// Held by whoever changes a tenant during its turn. A tenant is here from its first change on.
    tenants: Mutex<HashMap<TenantId, Arc<tokio::sync::Mutex<()>>>>,
    /// Held by those who change tenants, together, and alone by whoever replaces the base policies. Comes after the turn of a tenant.
    all: RwLock<()>,
}

/// A turn to change a tenant, until it is dropped.
#[must_use = "a turn is had as long as it is held"]
pub struct Turn<'a> {
    _tenant: OwnedMutexGuard<()>,
    _all: RwLockReadGuard<'a, ()>,
}

impl Turns {
    /// Waits for the turn of a tenant.
    pub async fn of(&self, tenant: TenantId) -> Turn<'_> {
        let turn = Arc::clone(
            self.tenants
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .entry(tenant)
                .or_default(),
        );
        Turn {
            _tenant: turn.lock_owned().await,
            _all: self.all.read().await,
        }
    }

    /// Waits until nobody changes anything.
    pub async fn of_all(&self) -> RwLockWriteGuard<'_, ()> {
        self.all.write().await
    }
}
