//! Until when what is in force here was the state of the store, where others write to it.
//!
//! The follower says so each time it has compared the two. How old is too old is not decided here but in
//! `crate::may_answer`.

use crate::locks::lock;
use crate::uptime::Uptime;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Until when what is known of a tenant, and of what everybody depends on, was the state of the store. Whoever answers
/// by memory asks for it before looking at anything, and how old it is when the answer is there: a gateway that stood
/// still in between may know by now what was not looked at.
#[derive(Debug, Clone, Copy)]
pub struct AsOf {
    tenant: TenantId,
    /// None where nobody else writes.
    until: Option<Uptime>,
}

impl AsOf {
    /// Of a tenant, by what is known of all; `freshness` is none where nobody else writes.
    pub(super) fn new(tenant: TenantId, freshness: Option<&Freshness>) -> Self {
        Self {
            tenant,
            until: freshness.map(|freshness| freshness.until([TenantId::SYSTEM, tenant])),
        }
    }

    /// Of whom.
    pub const fn tenant(self) -> TenantId {
        self.tenant
    }

    /// How long ago that is.
    pub fn age(self) -> Duration {
        self.until
            .map_or(Duration::ZERO, |until| Uptime::now().since(until))
    }
}

/// A time that many read and one moves, and which tenants it does not hold for. It goes on while the machine sleeps,
/// because others do not.
pub(super) struct Freshness {
    /// When what is in force was last known to be the state of the store: the milliseconds of an [`Uptime`].
    at: AtomicU64,
    /// The tenants that have moved since and are not loaded yet, and until when what is known of them was the state of the store.
    behind: Mutex<BTreeMap<TenantId, Uptime>>,
    /// Whether there are any.
    are_behind: AtomicBool,
}

impl Freshness {
    /// Of what was the state of the store at this time or later.
    pub(super) fn new(read_at: Uptime) -> Self {
        Self {
            at: AtomicU64::new(read_at.millis()),
            behind: Mutex::default(),
            are_behind: AtomicBool::new(false),
        }
    }

    fn at(&self) -> Uptime {
        Uptime::from_millis(self.at.load(Ordering::Acquire))
    }

    /// Until when what is known of all of these was the state of the store. What is loaded afterwards is no older than that.
    pub(super) fn until<const N: usize>(&self, tenants: [TenantId; N]) -> Uptime {
        // First: who is behind is noted before this is moved on.
        let at = self.at();
        if !self.are_behind.load(Ordering::Acquire) {
            return at;
        }
        let behind = lock(&self.behind);
        let untils = tenants.map(|tenant| behind.get(&tenant).copied().unwrap_or(at));
        untils.into_iter().min().unwrap_or(at)
    }

    /// Notes that at this time what is in force was the state of the store, but for these tenants.
    pub(super) fn confirm(&self, at: Uptime, behind: &[TenantId]) {
        let behind: BTreeSet<_> = behind.iter().copied().collect();
        let before = self.at();
        let mut known = lock(&self.behind);
        known.retain(|tenant, _| behind.contains(tenant));
        for tenant in behind {
            known.entry(tenant).or_insert(before);
        }
        self.are_behind.store(!known.is_empty(), Ordering::Release);
        self.at.store(at.millis(), Ordering::Release);
    }

    /// Notes that what is in force of a tenant was read from the store at this time or later.
    pub(super) fn loaded(&self, tenant: TenantId, read_at: Uptime) {
        if let Some(until) = lock(&self.behind).get_mut(&tenant) {
            *until = read_at.max(*until);
        }
    }

    /// The tenants that have moved and are not loaded yet.
    pub(super) fn behind(&self) -> Vec<TenantId> {
        lock(&self.behind).keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR_MILLIS: u64 = 60 * 60 * 1_000;
    const TENANT: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[test]
    fn what_was_known_before_a_machine_slept_is_as_old_as_that_is_long_ago() {
        let freshness = Freshness::new(Uptime::from_millis(1_000));
        let age = |tenant, millis: u64| Uptime::from_millis(millis).since(freshness.until([tenant]));
        assert_eq!(age(TENANT, 1_500), Duration::from_millis(500));
        let woken = 1_500 + HOUR_MILLIS;
        assert_eq!(age(TENANT, woken), Duration::from_millis(500 + HOUR_MILLIS));
        // One look at the store makes it young again, but for whoever has moved meanwhile.
        freshness.confirm(Uptime::from_millis(woken), &[OTHER]);
        for tenant in [TENANT, TenantId::SYSTEM] {
            assert_eq!(age(tenant, woken + 20), Duration::from_millis(20));
        }
        assert_eq!(age(OTHER, woken + 20), Duration::from_millis(520 + HOUR_MILLIS));
        freshness.confirm(Uptime::from_millis(woken + 30), &[]);
        assert_eq!(age(OTHER, woken + 30), Duration::ZERO);
    }

    #[test]
    fn what_was_known_before_something_was_looked_at_is_no_younger_for_what_is_known_since() {
        let freshness = Freshness::new(Uptime::from_millis(1_000));
        let until = |tenant| AsOf::new(tenant, Some(&freshness)).until.map(Uptime::millis);
        let before = AsOf::new(TENANT, Some(&freshness));
        freshness.confirm(Uptime::from_millis(2_000), &[OTHER]);
        assert_eq!(before.until.map(Uptime::millis), Some(1_000));
        assert_eq!([TENANT, OTHER].map(until), [Some(2_000), Some(1_000)]);
        // What everybody depends on has moved on, and is not loaded.
        freshness.confirm(Uptime::from_millis(3_000), &[TenantId::SYSTEM]);
        assert_eq!([TENANT, OTHER].map(until), [Some(2_000); 2]);
        freshness.confirm(Uptime::from_millis(4_000), &[]);
        assert_eq!([TENANT, OTHER].map(until), [Some(4_000); 2]);
    }
}
