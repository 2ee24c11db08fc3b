//! The snapshot in force: read without a lock, replaced whole.
//!
//! Two put snapshots in force: the sequencer after a commit, and the follower when another gateway has changed something.
//! Both give whole tenants with their revisions, and the later revision stays, whoever comes first. While the sequencer
//! replaces the base policies, and with them the policies of all tenants, the follower waits; what it has compiled under
//! the ones before is not put in force.

use crate::uptime::Uptime;
use arc_swap::{ArcSwap, Guard};
use engine::{Snapshot, TenantSnapshot};
use ledger::Head;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};

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
    /// The tenants of which the store has lost changes that are in force here, until a restart: the next change there may have the number of one
    /// that was lost, so numbers that match again say nothing.
    lost: Mutex<BTreeSet<TenantId>>,
    /// Where the chain of each tenant ended at some time when it had all changes that are in force here.
    ends: Mutex<Ends>,
    /// Whether the store may have lost something.
    is_doubted: AtomicBool,
    /// Tells when another database has taken the place of the one before.
    databases: watch::Sender<()>,
}

/// Where chains ended when they had all changes that were in force here.
#[derive(Default)]
struct Ends {
    /// In the database that a look has found last.
    known: BTreeMap<TenantId, Head>,
    /// Noted since that look. They may come from another database, so they replace those in `known`, and one another, only after the next look has
    /// found the same database.
    since: BTreeMap<TenantId, Vec<Head>>,
}

impl Ends {
    /// Those noted since.
    fn noted(&self) -> impl Iterator<Item = (TenantId, Head)> {
        let since = self.since.iter();
        since.flat_map(|(tenant, ends)| ends.iter().map(move |end| (*tenant, *end)))
    }
}

/// Until when what is known of a tenant, and of what everybody depends on, was the state of the store. Whoever answers by memory asks for it before
/// looking at anything, and how old it is when the answer is there: a gateway that stood still in between may know by now what was not looked at.
#[derive(Debug, Clone, Copy)]
pub struct Known {
    tenant: TenantId,
    /// None where nobody else writes.
    until: Option<Uptime>,
}

impl Known {
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

/// A time that many read and one moves, and which tenants it does not hold for. It goes on while the machine sleeps, because others do not.
struct Confirmed {
    /// The milliseconds of an [`Uptime`].
    at: AtomicU64,
    /// The tenants that have moved since and are not loaded yet, and until when what is known of them was the state of the store.
    behind: Mutex<BTreeMap<TenantId, Uptime>>,
    /// Whether there are any.
    are_behind: AtomicBool,
}

impl Confirmed {
    fn at(&self) -> Uptime {
        Uptime::from_millis(self.at.load(Ordering::Acquire))
    }

    /// Until when what is known of all of these was the state of the store. What is loaded afterwards is no older than that.
    fn until<const N: usize>(&self, tenants: [TenantId; N]) -> Uptime {
        // First: who is behind is noted before this is moved on.
        let at = self.at();
        if !self.are_behind.load(Ordering::Acquire) {
            return at;
        }
        let behind = self.behind();
        let untils = tenants.map(|tenant| behind.get(&tenant).copied().unwrap_or(at));
        untils.into_iter().min().unwrap_or(at)
    }

    fn behind(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantId, Uptime>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SnapshotCell {
    /// A cell that holds this snapshot, which was the state of the store at `read_at` or later. `is_shared` says whether others write to
    /// the store.
    pub fn new(snapshot: Snapshot, read_at: Uptime, is_shared: bool) -> Self {
        Self {
            current: ArcSwap::from_pointee(snapshot),
            adopting: tokio::sync::Mutex::new(()),
            replacing: Mutex::new(()),
            replaced: Notify::new(),
            confirmed: is_shared.then(|| Confirmed {
                at: AtomicU64::new(read_at.millis()),
                behind: Mutex::default(),
                are_behind: AtomicBool::new(false),
            }),
            lost: Mutex::default(),
            ends: Mutex::default(),
            is_doubted: AtomicBool::new(false),
            databases: watch::Sender::new(()),
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
            let tenants = tenants.map(|tenant| TenantSnapshot::clone(tenant));
            let next = with(&self.current.load(), tenants);
            self.current.store(Arc::new(next));
        }
        drop(replacing);
        self.replaced.notify_waiters();
    }

    /// Puts a tenant in force as it was read from the store, at `read_at` or later, unless a later one is. Returns false, and changes
    /// nothing, if it was compiled under other base policies than those in force.
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
        if let Some(confirmed) = &self.confirmed
            && let Some(until) = confirmed.behind().get_mut(&id)
        {
            *until = read_at.max(*until);
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
        let Some(confirmed) = &self.confirmed else { return };
        let behind: BTreeSet<_> = behind.iter().copied().collect();
        let before = confirmed.at();
        let mut known = confirmed.behind();
        known.retain(|tenant, _| behind.contains(tenant));
        for tenant in behind {
            known.entry(tenant).or_insert(before);
        }
        confirmed.are_behind.store(!known.is_empty(), Ordering::Release);
        confirmed.at.store(at.millis(), Ordering::Release);
    }

    /// Notes that the store has lost changes of these tenants. Returns all of which it has, in order.
    pub fn lose(&self, tenants: &[TenantId]) -> Vec<TenantId> {
        let mut lost = self.lost();
        lost.extend(tenants);
        lost.iter().copied().collect()
    }

    /// Whether the store has lost changes of a tenant that are in force here: nothing is changed from what is not there.
    pub fn has_lost(&self, tenant: TenantId) -> bool {
        self.lost().contains(&tenant)
    }

    /// Notes that a tenant's chain, which has all changes that are in force here, ends there.
    pub fn note_end(&self, tenant: TenantId, end: Head) {
        let mut ends = self.ends();
        let noted = ends.since.entry(tenant).or_default();
        // Where nobody else writes nobody looks without cause, so they would become ever more.
        if self.confirmed.is_none() {
            noted.retain(|noted| noted.seq > end.seq);
        }
        if self.confirmed.is_some() || noted.is_empty() {
            noted.push(end);
        }
    }

    /// What was noted since a look has found the database.
    pub fn ends_since(&self) -> Vec<(TenantId, Head)> {
        let ends = self.ends();
        ends.noted().collect()
    }

    /// Notes that these of the ends noted since are in the database that a look has found.
    pub fn know_ends(&self, noted: &[(TenantId, Head)]) {
        let mut ends = self.ends();
        for (tenant, end) in noted {
            let known = ends.known.entry(*tenant).or_insert(*end);
            // What was read a while ago may be noted late.
            if known.seq < end.seq {
                *known = *end;
            }
            if let Some(ends) = ends.since.get_mut(tenant) {
                ends.retain(|noted| noted != end);
            }
        }
        ends.since.retain(|_, ends| !ends.is_empty());
    }

    /// Entries that chains have as long as the store has lost none of the changes that are in force here. Where nothing was ever changed there is none.
    pub fn ends_to_compare(&self) -> Vec<(TenantId, Head)> {
        let ends = self.ends();
        let known = ends.known.iter().map(|(tenant, end)| (*tenant, *end));
        let all = known.chain(ends.noted());
        all.filter(|(_, end)| end.seq > 0).collect()
    }

    /// Those of [`Self::ends_to_compare`] that are of these tenants.
    pub fn ends_of(&self, tenants: &BTreeSet<TenantId>) -> Vec<(TenantId, Head)> {
        let ends = self.ends();
        let of = |tenant: &TenantId| {
            let since = ends.since.get(tenant).into_iter().flatten();
            let all = ends.known.get(tenant).into_iter().chain(since);
            all.filter(|end| end.seq > 0)
                .map(|end| (*tenant, *end))
                .collect::<Vec<_>>()
        };
        tenants.iter().flat_map(of).collect()
    }

    /// Notes that another database has taken the place of the one before, which may lack what was committed to that.
    pub fn note_another_database(&self) {
        self.databases.send_replace(());
    }

    /// Hears of every database that takes the place of another one from now on.
    pub fn databases(&self) -> watch::Receiver<()> {
        self.databases.subscribe()
    }

    /// Notes that the store may have lost something, to be looked at.
    pub fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    /// Whether the store may have lost something since this was asked last.
    pub fn take_doubt(&self) -> bool {
        self.is_doubted.swap(false, Ordering::Relaxed)
    }

    /// The tenants of which something else may be in force here than what the store has, as far as was looked: it has moved on, or has lost
    /// changes.
    pub fn behind(&self) -> Vec<TenantId> {
        let confirmed = self.confirmed.as_ref();
        confirmed.map_or_else(Vec::new, |confirmed| confirmed.behind().keys().copied().collect())
    }

    /// Until when what is known of a tenant, and of what everybody depends on, was the state of the store.
    pub fn known(&self, tenant: TenantId) -> Known {
        let confirmed = self.confirmed.as_ref();
        Known {
            tenant,
            until: confirmed.map(|confirmed| confirmed.until([TenantId::SYSTEM, tenant])),
        }
    }

    /// How long ago what everybody depends on was last known to be the state of the store: which tenants are behind, and the system tenant,
    /// which has the operators and the keys that sign.
    pub fn age(&self) -> Duration {
        self.age_of(TenantId::SYSTEM)
    }

    /// How long ago what is known of a tenant was last known to be the state of the store.
    pub fn age_of(&self, tenant: TenantId) -> Duration {
        self.age_at(tenant, Uptime::now)
    }

    fn age_at(&self, tenant: TenantId, now: impl FnOnce() -> Uptime) -> Duration {
        let until = self.confirmed.as_ref().map(|confirmed| confirmed.until([tenant]));
        until.map_or(Duration::ZERO, |until| now().since(until))
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> std::sync::MutexGuard<'_, BTreeSet<TenantId>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.replacing.lock().unwrap_or_else(PoisonError::into_inner)
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

    const HOUR_MILLIS: u64 = 60 * 60 * 1_000;
    const TENANT: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    /// A cell that was the state of the store when the machine had been up for so long.
    fn cell(millis: u64, is_shared: bool) -> SnapshotCell {
        let compiler = Compiler::new(BasePolicies::parse("").unwrap());
        let snapshot = Snapshot::new(Arc::new(compiler));
        SnapshotCell::new(snapshot, Uptime::from_millis(millis), is_shared)
    }

    #[test]
    fn what_was_known_before_a_machine_slept_is_as_old_as_that_is_long_ago() {
        let cell = cell(1_000, true);
        let age = |tenant, millis: u64| cell.age_at(tenant, || Uptime::from_millis(millis));
        assert_eq!(age(TENANT, 1_500), Duration::from_millis(500));
        let woken = 1_500 + HOUR_MILLIS;
        assert_eq!(age(TENANT, woken), Duration::from_millis(500 + HOUR_MILLIS));
        // One look at the store makes it young again, but for whoever has moved meanwhile.
        cell.confirm(Uptime::from_millis(woken), &[OTHER]);
        for tenant in [TENANT, TenantId::SYSTEM] {
            assert_eq!(age(tenant, woken + 20), Duration::from_millis(20));
        }
        assert_eq!(age(OTHER, woken + 20), Duration::from_millis(520 + HOUR_MILLIS));
        cell.confirm(Uptime::from_millis(woken + 30), &[]);
        assert_eq!(age(OTHER, woken + 30), Duration::ZERO);
    }

    #[test]
    fn what_was_known_before_something_was_looked_at_is_no_younger_for_what_is_known_since() {
        let cell = cell(1_000, true);
        let untils = || [TENANT, OTHER].map(|tenant| cell.known(tenant).until.map(Uptime::millis));
        let before = cell.known(TENANT);
        cell.confirm(Uptime::from_millis(2_000), &[OTHER]);
        assert_eq!(before.until.map(Uptime::millis), Some(1_000));
        assert_eq!(untils(), [Some(2_000), Some(1_000)]);
        // What everybody depends on has moved on, and is not loaded.
        cell.confirm(Uptime::from_millis(3_000), &[TenantId::SYSTEM]);
        assert_eq!(untils(), [Some(2_000); 2]);
        cell.confirm(Uptime::from_millis(4_000), &[]);
        assert_eq!(untils(), [Some(4_000); 2]);
    }

    #[test]
    fn of_the_ends_of_a_chain_the_last_is_compared() {
        let cell = cell(1_000, true);
        let end = |seq, byte: u8| Head {
            seq,
            hash: canon::Digest::of(&[byte]),
        };
        cell.note_end(OTHER, Head::GENESIS);
        let noted = [end(3, 1), end(5, 2), end(4, 3)];
        for end in noted {
            cell.note_end(TENANT, end);
        }
        // Each may be of another database.
        assert_eq!(cell.ends_to_compare(), noted.map(|end| (TENANT, end)));
        for late in [None, Some(end(4, 4))] {
            if let Some(late) = late {
                cell.note_end(TENANT, late);
            }
            cell.know_ends(&cell.ends_since());
            assert_eq!(cell.ends_to_compare(), [(TENANT, end(5, 2))]);
        }
        cell.note_end(TENANT, end(7, 5));
        assert_eq!(cell.ends_to_compare(), [(TENANT, end(5, 2)), (TENANT, end(7, 5))]);
        cell.know_ends(&cell.ends_since());
        assert_eq!(cell.ends_to_compare(), [(TENANT, end(7, 5))]);
    }

    #[test]
    fn what_nobody_else_writes_has_no_age() {
        let no_clock = || -> Uptime { panic!("the clock was read") };
        assert_eq!(cell(1_000, false).age_at(TENANT, no_clock), Duration::ZERO);
        assert_eq!(cell(1_000, false).known(TENANT).age(), Duration::ZERO);
    }
}
