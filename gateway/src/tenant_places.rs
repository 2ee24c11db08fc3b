//! Places for what may stay for long, so many in all and so many of one tenant. Nobody waits here: whoever finds none
//! is refused.

use crate::locks::lock;
use model::TenantId;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The places.
#[derive(Debug)]
pub struct TenantPlaces {
    all_max: usize,
    of_tenant_max: usize,
    /// How many are taken. It is written while `of` is held, and read without.
    taken: AtomicUsize,
    /// How many each tenant has. Who has none is not here.
    of: Mutex<HashMap<TenantId, usize>>,
}

/// A place of a tenant. Dropping it gives the place back.
#[derive(Debug)]
#[must_use = "a place is had as long as it is held"]
pub struct TenantPlace {
    places: Arc<TenantPlaces>,
    tenant: TenantId,
}

impl TenantPlaces {
    /// So many places, and so many of one tenant.
    pub fn new(all_max: usize, of_tenant_max: usize) -> Self {
        Self {
            all_max,
            of_tenant_max,
            taken: AtomicUsize::new(0),
            of: Mutex::default(),
        }
    }

    /// A place for this tenant; `None` if it has as many as it may, or all are taken.
    pub fn take(self: &Arc<Self>, tenant: TenantId) -> Option<TenantPlace> {
        let mut of = lock(&self.of);
        let of_tenant = of.get(&tenant).copied().unwrap_or_default();
        if self.taken() >= self.all_max || of_tenant >= self.of_tenant_max {
            return None;
        }
        // INVARIANT: it is written under the lock only, so what was compared still holds.
        self.taken.fetch_add(1, Ordering::Relaxed);
        of.insert(tenant, of_tenant + 1);
        let places = Arc::clone(self);
        Some(TenantPlace { places, tenant })
    }

    /// How many are taken.
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Whether this tenant has one.
    pub fn has_one(&self, tenant: TenantId) -> bool {
        lock(&self.of).contains_key(&tenant)
    }
}

impl TenantPlace {
    /// Whose it is.
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }
}

impl Drop for TenantPlace {
    fn drop(&mut self) {
        let mut of = lock(&self.places.of);
        self.places.taken.fetch_sub(1, Ordering::Relaxed);
        if let Some(of_tenant) = of.get_mut(&self.tenant) {
            *of_tenant -= 1;
            if *of_tenant == 0 {
                of.remove(&self.tenant);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_has_its_part_at_most_and_places_are_given_back() {
        let [one, two, three] = [1, 2, 3].map(|byte| TenantId::from_bytes([byte; 16]));
        let places = Arc::new(TenantPlaces::new(3, 2));
        let first = places.take(one).unwrap();
        let second = places.take(one).unwrap();
        assert!(places.take(one).is_none(), "it has as many as it may");
        let third = places.take(two).unwrap();
        assert_eq!((third.tenant(), places.taken()), (two, 3));
        assert!(places.take(three).is_none(), "all are taken");
        drop(first);
        assert!(places.has_one(one));
        let fourth = places.take(three).unwrap();
        drop((second, third, fourth));
        assert_eq!(places.taken(), 0);
        assert!(lock(&places.of).is_empty());
    }
}
