//! The snapshot in force: read without a lock, replaced whole.
//!
//! Two put snapshots in force: the sequencer after a commit, and the follower when another gateway has changed something.
//! Both give whole tenants with their revisions, and the later revision stays, whoever comes first. While the sequencer
//! replaces the base policies, and with them the policies of all tenants, the follower waits; what it has compiled under
//! the ones before is not put in force.

use arc_swap::{ArcSwap, Guard};
use engine::{Snapshot, TenantSnapshot};
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
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
    /// When it was last known to be the state of the store; none where nobody else writes.
    confirmed: Option<Confirmed>,
}

/// A time that many read and one moves, and which tenants it does not hold for.
struct Confirmed {
    start: Instant,
    /// Milliseconds since the start.
    after: AtomicU64,
    /// The tenants that have moved since and are not loaded yet, and until when what is known of them was the state of the store.
    behind: Mutex<BTreeMap<TenantId, Instant>>,
    /// Whether there are any.
    are_behind: AtomicBool,
}

impl Confirmed {
    fn at(&self) -> Instant {
        self.start + Duration::from_millis(self.after.load(Ordering::Relaxed))
    }

    fn behind(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantId, Instant>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotCell {
    /// A cell that holds this snapshot, which was the state of the store at `read_at` or later. `is_shared` says whether others write to
    /// the store.
    pub fn new(snapshot: Snapshot, read_at: Instant, is_shared: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(snapshot),
            adopting: tokio::sync::Mutex::new(()),
            replacing: Mutex::new(()),
            replaced: Notify::new(),
            confirmed: is_shared.then(|| Confirmed {
                start: read_at,
                after: AtomicU64::new(0),
                behind: Mutex::default(),
                are_behind: AtomicBool::new(false),
            }),
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
        let replacing = self.lock();
        if Arc::ptr_eq(&self.current.load(), before) {
            self.current.store(Arc::new(after.clone()));
        } else {
            // INVARIANT: other base policies are published by who holds `adopting`, and then nobody came in between.
            debug_assert_eq!(before.base_digest(), after.base_digest());
            let tenants = changed.iter().filter_map(|tenant| after.tenant(*tenant));
            self.replace(tenants.map(|tenant| TenantSnapshot::clone(tenant)));
        }
        drop(replacing);
        self.replaced.notify_waiters();
    }

    /// Puts a tenant in force as it was read from the store, at `read_at` or later, unless a later one is. Returns false, and changes
    /// nothing, if it was compiled under other base policies than those in force.
    pub async fn adopt(&self, tenant: TenantSnapshot, read_at: Instant) -> bool {
        let _adopting = self.adopting.lock().await;
        if tenant.policies.base_digest() != self.load().base_digest() {
            return false;
        }
        if let Some(confirmed) = &self.confirmed
            && let Some(until) = confirmed.behind().get_mut(&tenant.directory.tenant.id)
        {
            *until = read_at.max(*until);
        }
        let replacing = self.lock();
        self.replace([tenant]);
        drop(replacing);
        self.replaced.notify_waiters();
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
    pub fn confirm(&self, at: Instant, behind: &[TenantId]) {
        let Some(confirmed) = &self.confirmed else { return };
        let before = confirmed.at();
        let mut known = confirmed.behind();
        known.retain(|tenant, _| behind.contains(tenant));
        for tenant in behind {
            known.entry(*tenant).or_insert(before);
        }
        confirmed.are_behind.store(!known.is_empty(), Ordering::Relaxed);
        let after = at.saturating_duration_since(confirmed.start).as_millis();
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        confirmed.after.store(after, Ordering::Relaxed);
    }

    /// How long ago what everybody depends on was last known to be the state of the store: which tenants are behind, and the system tenant,
    /// which has the operators and the keys that sign.
    pub fn age(&self) -> Duration {
        self.age_of(TenantId::SYSTEM)
    }

    /// How long ago what is known of a tenant was last known to be the state of the store.
    pub fn age_of(&self, tenant: TenantId) -> Duration {
        let until = self.confirmed.as_ref().and_then(|confirmed| {
            let are_behind = confirmed.are_behind.load(Ordering::Relaxed);
            are_behind
                .then(|| confirmed.behind().get(&tenant).copied())
                .flatten()
        });
        let confirmed = || self.confirmed.as_ref().map(Confirmed::at);
        until
            .or_else(confirmed)
            .map_or(Duration::ZERO, |until| until.elapsed())
    }

    fn replace(&self, tenants: impl IntoIterator<Item = TenantSnapshot>) {
        let mut next = Snapshot::clone(&self.current.load());
        for tenant in tenants {
            let known = next.tenant(tenant.directory.tenant.id);
            if known.is_none_or(|known| known.revision < tenant.revision) {
                next.insert(tenant);
            }
        }
        self.current.store(Arc::new(next));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
