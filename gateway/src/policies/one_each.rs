//! Long work of which a tenant has one at a time, so that whoever begins it again and again leaves the others their
//! turns. Nobody waits here: a second one is refused.

use crate::locks::lock;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

/// The tenants that have some now.
#[derive(Debug, Default)]
pub struct OneEach(Tenants);

/// Locked to add one or to take one away.
type Tenants = Arc<Mutex<BTreeSet<TenantId>>>;

/// The work of a tenant. Until this is dropped it begins no other.
#[derive(Debug)]
pub struct Begun {
    tenant: TenantId,
    tenants: Tenants,
}

impl OneEach {
    /// Begins it; `None` if the tenant has begun it already.
    pub fn begin(&self, tenant: TenantId) -> Option<Begun> {
        let is_first = lock(&self.0).insert(tenant);
        is_first.then(|| Begun {
            tenant,
            tenants: Arc::clone(&self.0),
        })
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        lock(&self.tenants).remove(&self.tenant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_begins_again_when_it_has_ended_and_others_do_not_wait_for_it() {
        let [one, other] = [1, 2].map(|byte| TenantId::from_bytes([byte; 16]));
        let each = OneEach::default();
        let begun = each.begin(one).unwrap();
        assert!(each.begin(one).is_none());
        let others = each.begin(other).unwrap();
        drop(begun);
        assert!(each.begin(other).is_none());
        let again = each.begin(one).unwrap();
        drop((again, others));
        assert!(each.begin(other).is_some());
    }
}
