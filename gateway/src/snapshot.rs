//! The snapshot in force: read without a lock, replaced whole.
//!
//! Two put snapshots in force: the sequencer after a commit, and the follower when another gateway has changed something.
//! Both give whole tenants with their revisions, and the later revision stays, whoever comes first. While the sequencer
//! replaces the base policies, and with them the policies of all tenants, the follower waits; what it has compiled under
//! the ones before is not put in force.
//!
//! Not here: how old it is ([`AsOf`]), and whether the database still has every change in it ([`Continuity`]).

mod continuity;
mod freshness;

pub use continuity::Continuity;
pub use freshness::AsOf;

use crate::locks::lock;
use crate::uptime::Uptime;
use arc_swap::{ArcSwap, Guard};
use engine::{Snapshot, TenantSnapshot};
use freshness::Freshness;
use model::TenantId;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Holds the snapshot in force.
pub struct SnapshotCell {
    current: ArcSwap<Snapshot>,
    /// Held by the follower while it adopts tenants, and by the sequencer from before it looks at the snapshot until other base
    /// policies are in force or not. Comes before `replacing`.
    adopting: tokio::sync::Mutex<()>,
    /// Held while one snapshot is replaced by the next, never across an `await`.
    replacing: Mutex<()>,
    replaced: Notify,
    /// How old it is; none where nobody else writes.
    freshness: Option<Freshness>,
    /// Whether the database still has all changes that are in force.
    pub continuity: Continuity,
}

impl SnapshotCell {
    /// A cell that holds this snapshot, which was the state of the store at `read_at` or later. `is_shared` says
    /// whether others write to the store.
    pub fn new(snapshot: Snapshot, read_at: Uptime, is_shared: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(snapshot),
            adopting: tokio::sync::Mutex::new(()),
            replacing: Mutex::new(()),
            replaced: Notify::new(),
            freshness: is_shared.then(|| Freshness::new(read_at)),
            continuity: Continuity::new(is_shared),
        }
    }

    /// The snapshot in force. Do not hold it across an `await`: it pins a slot that others need.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// The snapshot in force, to keep.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Keeps the follower from putting anything in force. Whoever puts other base policies in force holds it from before it
    /// loads the snapshot until it has published the next one.
    pub async fn hold(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.adopting.lock().await
    }

    /// Puts in force what was made of `before` by changing some tenants.
    pub fn publish(&self, before: &Arc<Snapshot>, after: &Snapshot, changed: &BTreeSet<TenantId>) {
        let replacing = lock(&self.replacing);
        if Arc::ptr_eq(&self.current.load(), before) {
            self.current.store(Arc::new(after.clone()));
        } else {
            // INVARIANT: other base policies are published by who holds `adopting`, and then nobody came in between.
            debug_assert_eq!(before.base_digest(), after.base_digest());
            let tenants = changed.iter().filter_map(|tenant| after.tenant(*tenant));
            let tenants = tenants.map(|tenant| TenantSnapshot::clone(tenant));
            let next = with(&self.current.load(), tenants);
            self.current.store(Arc::new(next));
        }
        drop(replacing);
        self.replaced.notify_waiters();
    }

    /// Puts a tenant in force as it was read from the store, at `read_at` or later, unless a later one is. Returns
    /// false, and changes nothing, if it was compiled under other base policies than those in force.
    pub async fn adopt(&self, tenant: TenantSnapshot, read_at: Uptime) -> bool {
        let _adopting = self.adopting.lock().await;
        if tenant.policies.base_digest() != self.load().base_digest() {
            return false;
        }
        // The next snapshot is made before it is put in force, because the sequencer would wait for it.
        let id = tenant.directory.tenant.id;
        let before = self.load_full();
        self.publish(&before, &with(&before, [tenant]), &BTreeSet::from([id]));
        // Not before it is in force: whoever loads it after it was asked how old it is would have the one before.
        if let Some(freshness) = &self.freshness {
            freshness.loaded(id, read_at);
        }
        true
    }

    /// Waits until a tenant's directory has reached a revision; false if it does not in this time.
    pub async fn reaches(&self, tenant: TenantId, revision: u64, within: Duration) -> bool {
        let reached = async {
            loop {
                let replaced = self.replaced.notified();
                if self.load().revision(tenant) >= revision {
                    return;
                }
                replaced.await;
            }
        };
        tokio::time::timeout(within, reached).await.is_ok()
    }

    /// Notes that at this time it was the state of the store, but for these tenants.
    pub fn confirm(&self, at: Uptime, behind: &[TenantId]) {
        if let Some(freshness) = &self.freshness {
            freshness.confirm(at, behind);
        }
    }

    /// The tenants of which something else may be in force here than what the store has, as far as was looked: it has
    /// moved on, or has lost changes.
    pub fn behind(&self) -> Vec<TenantId> {
        let freshness = self.freshness.as_ref();
        freshness.map_or_else(Vec::new, Freshness::behind)
    }

    /// Until when what is known of a tenant, and of what everybody depends on, was the state of the store.
    pub fn as_of(&self, tenant: TenantId) -> AsOf {
        AsOf::new(tenant, self.freshness.as_ref())
    }

    /// How long ago what everybody depends on was last known to be the state of the store: which tenants are behind,
    /// and the system tenant, which has the operators and the keys that sign.
    pub fn age(&self) -> Duration {
        self.age_of(TenantId::SYSTEM)
    }

    /// How long ago what is known of a tenant was last known to be the state of the store.
    pub fn age_of(&self, tenant: TenantId) -> Duration {
        self.age_at(tenant, Uptime::now)
    }

    fn age_at(&self, tenant: TenantId, now: impl FnOnce() -> Uptime) -> Duration {
        let until = self.freshness.as_ref().map(|freshness| freshness.until([tenant]));
        until.map_or(Duration::ZERO, |until| now().since(until))
    }
}

/// What a snapshot is with these tenants, but for those of which it has a later state.
fn with(snapshot: &Snapshot, tenants: impl IntoIterator<Item = TenantSnapshot>) -> Snapshot {
    let mut next = snapshot.clone();
    for tenant in tenants {
        let known = next.tenant(tenant.directory.tenant.id);
        if known.is_none_or(|known| known.revision < tenant.revision) {
            next.insert(tenant);
        }
    }
    next
}

#[cfg(test)]
mod tests {
    use super::*;
    use policy::{BasePolicies, Compiler};

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    #[test]
    fn what_nobody_else_writes_has_no_age() {
        let compiler = Compiler::new(BasePolicies::parse("").unwrap());
        let snapshot = Snapshot::new(Arc::new(compiler));
        let cell = SnapshotCell::new(snapshot, Uptime::from_millis(1_000), false);
        let no_clock = || -> Uptime { panic!("the clock was read") };
        assert_eq!(cell.age_at(TENANT, no_clock), Duration::ZERO);
        assert_eq!(cell.as_of(TENANT).age(), Duration::ZERO);
    }
}
