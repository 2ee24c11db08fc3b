//! The follower: keeps the snapshot up to date with what other gateways, or a commit of unknown outcome, have written.
//!
//! It compares revisions and loads only the tenants that have moved, and of those what has changed where the store
//! remembers that. It never decides anything: a decision that was judged by an older revision is turned back in the
//! commit, however late the follower is. What it bounds is everything that is answered without a commit, who is let in,
//! and how old the state of the system tenant may be that decisions are recorded by: no revision tells of that.
//!
//! What cannot be loaded, or takes long, is one tenant's matter: others are compared meanwhile, and only those whose
//! changes have been missing for too long are refused ([`SnapshotCell::age_of`]). Where several that were read together
//! could not be, each is read by itself from then on, because one of them may be the reason; and so is one whose
//! policies took long to compile. The system tenant, without which nobody is let in, is read beside all others.

mod changes;
mod displaced;
mod loaders;

use crate::locks::lock;
use crate::metrics::Metrics;
use crate::snapshot::SnapshotCell;
use crate::start::{self, StartError};
use crate::uptime::Uptime;
use changes::Made;
use displaced::WentBack;
use engine::TenantSnapshot;
use ledger::Head;
use loaders::{Busy, Load, Waiting};
use model::TenantId;
use policy::Compiler;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use store::{ChangedTenant, Store, StoreError};
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};

/// How often revisions are compared where other programs write to the store, besides whenever they announce a change.
const PERIOD: Duration = Duration::from_millis(500);
/// How long it waits before it asks a store again that did not answer, or for a tenant again that could not be loaded.
const PAUSE: Duration = Duration::from_millis(200);
/// How long the policies of a tenant may take to compile that is loaded together with others, which wait for it.
const COMPILE_TIME_MAX: Duration = Duration::from_millis(100);

/// The handle to the follower, which ends when the last one is dropped.
pub struct Follower {
    wake: Arc<Notify>,
    task: JoinHandle<()>,
}

/// What the task works with.
pub struct Following {
    /// What is followed.
    store: Arc<dyn Store>,
    /// What is kept up to date.
    snapshot: Arc<SnapshotCell>,
    /// What is counted.
    metrics: Arc<Metrics>,
    /// What wakes it before its time.
    wake: Arc<Notify>,
    /// Which database what is in force was read from, or was compared with since.
    incarnation: Mutex<String>,
    /// Which database a look has found last, compared or not.
    found: Mutex<String>,
    /// The tenants that are being loaded, and those that are better loaded by themselves.
    in_hand: Mutex<InHand>,
    /// From when on each is tried again, by itself, that could not be loaded the last time.
    retry_at: Mutex<BTreeMap<TenantId, Instant>>,
    /// Those of which the log says that they cannot be followed.
    told_failing: Mutex<BTreeSet<TenantId>>,
}

impl Following {
    /// Keeps a snapshot up to date with a store, and looks before its time when it is woken. `incarnation` is that of
    /// the store from before the snapshot was read.
    pub fn new(
        store: &Arc<dyn Store>,
        incarnation: String,
        snapshot: &Arc<SnapshotCell>,
        metrics: &Arc<Metrics>,
        wake: Arc<Notify>,
    ) -> Self {
        Self {
            store: Arc::clone(store),
            snapshot: Arc::clone(snapshot),
            metrics: Arc::clone(metrics),
            wake,
            found: Mutex::new(incarnation.clone()),
            incarnation: Mutex::new(incarnation),
            in_hand: Mutex::default(),
            retry_at: Mutex::default(),
            told_failing: Mutex::default(),
        }
    }
}

/// What loaders have, and what they have found.
#[derive(Default)]
struct InHand {
    /// The tenants that are being loaded.
    tenants: BTreeSet<TenantId>,
    /// Those among them that are loaded by themselves, each by a loader.
    apart: BTreeSet<TenantId>,
    /// Those whose policies took long to compile, the last time.
    slow: BTreeSet<TenantId>,
}

impl Follower {
    /// Starts the task.
    pub fn start(following: Following) -> Self {
        let wake = Arc::clone(&following.wake);
        let task = tokio::spawn(following.run());
        Self { wake, task }
    }

    /// Makes it look now.
    pub fn wake(&self) {
        self.wake.notify_one();
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Following {
    async fn run(self) {
        let this = Arc::new(self);
        // Ended with this task.
        let mut loading = JoinSet::new();
        let mut announced = pin!(this.announced());
        let mut is_cut_off = false;
        loop {
            match this.look(&mut loading).await {
                Ok(()) if is_cut_off => {
                    tracing::info!("changes are being followed again");
                    is_cut_off = false;
                }
                Ok(()) => {}
                Err(error) => {
                    if !is_cut_off {
                        tracing::error!(error = &error as &dyn Error, "changes cannot be followed");
                    }
                    is_cut_off = true;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            tokio::select! {
                () = &mut announced => announced.set(this.announced()),
                () = this.period() => {}
                () = this.wake.notified() => {}
                () = this.pause() => {}
                Some(_) = loading.join_next() => {}
            }
        }
    }

    /// Waits until another gateway has announced a change. It is waited for across rounds, because the connection that
    /// listens is made, and looked after, by who waits.
    async fn announced(&self) {
        while self.store.changed().await.is_err() {
            // Whoever cannot listen still looks every so often.
            tokio::time::sleep(PERIOD).await;
        }
    }

    /// Waits until it is time to look, announced or not.
    async fn period(&self) {
        if self.store.is_shared() {
            tokio::time::sleep(PERIOD).await;
        } else {
            std::future::pending::<()>().await;
        }
    }

    /// Waits until it is time to try one again that could not be loaded, if there is any.
    async fn pause(&self) {
        let next = self.retry_at().values().min().copied();
        match next {
            // One may be due for which there was no loader.
            Some(next) => tokio::time::sleep_until((Instant::now() + PAUSE).max(next).into()).await,
            None => std::future::pending::<()>().await,
        }
    }

    /// Compares revisions, and has tenants loaded that have moved. One that takes long holds up nobody but those who
    /// are loaded with it.
    async fn look(self: &Arc<Self>, loading: &mut JoinSet<()>) -> Result<(), StoreError> {
        let known = self.snapshot.load_full();
        let began = Uptime::now();
        let revisions = self.store.revisions().await?;
        let mut gone_back = tenants(&revisions, |tenant, revision| known.revision(tenant) > revision);
        // Asked behind the revisions: so they were read from the database that is looked at here, or from one before it.
        gone_back.extend(self.displaced().await?);
        gone_back.sort_unstable();
        gone_back.dedup();
        for tenant in gone_back
            .iter()
            .filter(|tenant| !self.snapshot.continuity.has_lost(**tenant))
        {
            tracing::error!(%tenant, error = &WentBack as &dyn Error, "changes of a tenant cannot be followed");
        }
        let lost = self.snapshot.continuity.lose(&gone_back);
        let behind = {
            let known = self.snapshot.load();
            tenants(&revisions, |tenant, revision| {
                lost.binary_search(&tenant).is_err()
                    && known.tenant(tenant).is_none_or(|known| known.revision < revision)
            })
        };
        self.snapshot.confirm(began, &[lost, behind.clone()].concat());
        let are_behind: BTreeSet<_> = behind.iter().collect();
        self.retry_at().retain(|tenant, _| are_behind.contains(tenant));
        let busy = self.busy(loading);
        for load in loaders::next(self.waiting(&behind), busy) {
            self.spawn_load(load, loading);
        }
        Ok(())
    }

    /// How many loaders have something to do, besides that of the system tenant.
    fn busy(&self, loading: &JoinSet<()>) -> Busy {
        let in_hand = self.in_hand();
        let has_system = in_hand.tenants.contains(&TenantId::SYSTEM);
        Busy {
            all: loading.len().saturating_sub(usize::from(has_system)),
            apart: in_hand.apart.len(),
        }
    }

    /// Those of these tenants that no loader has and whose turn it is.
    fn waiting(&self, behind: &[TenantId]) -> Vec<Waiting> {
        let (in_hand, retry_at) = (self.in_hand(), self.retry_at());
        let now = Instant::now();
        let free = behind.iter().filter(|tenant| !in_hand.tenants.contains(tenant));
        let waiting = free.map(|tenant| {
            let again = retry_at.get(tenant).copied();
            let known_until = || now.checked_sub(self.snapshot.age_of(*tenant)).unwrap_or(now);
            Waiting {
                tenant: *tenant,
                since: again.unwrap_or_else(known_until),
                is_apart: again.is_some() || in_hand.slow.contains(tenant),
            }
        });
        waiting.filter(|waiting| waiting.since <= now).collect()
    }

    fn spawn_load(self: &Arc<Self>, load: Load, loading: &mut JoinSet<()>) {
        let mut in_hand = self.in_hand();
        in_hand.tenants.extend(&load.tenants);
        if load.is_apart {
            in_hand.apart.extend(&load.tenants);
        }
        drop(in_hand);
        loading.spawn(Arc::clone(self).load(load.tenants));
    }

    /// Loads some tenants and puts each in force. What fails is tried again later, by itself.
    async fn load(self: Arc<Self>, some: Vec<TenantId>) {
        match (self.bring_up_to_date(&some).await, &some[..]) {
            (Ok(()), _) => {}
            (Err(error), [_]) => self.fail(&some, &error),
            // Whose matter it is shows when each is read by itself.
            (Err(_), _) => self.try_again(&some, Instant::now()),
        }
        if some.contains(&TenantId::SYSTEM) {
            self.compare_base();
        }
        let mut in_hand = self.in_hand();
        in_hand.tenants.retain(|tenant| !some.contains(tenant));
        in_hand.apart.retain(|tenant| !some.contains(tenant));
    }

    /// Puts some tenants in force as they are in the store: those of which it remembers what has changed are brought on
    /// from what is known of them, and the others are read whole.
    async fn bring_up_to_date(&self, some: &[TenantId]) -> Result<(), StoreError> {
        let began = Uptime::now();
        let incarnation = self.incarnation().clone();
        let mut whole: BTreeSet<_> = some.iter().copied().collect();
        for (before, changed) in self.changes(some, &incarnation).await? {
            whole.remove(&changed.tenant);
            let (tenant, end) = (changed.tenant, changed.position.head());
            let make = move |compiler: &Compiler| changes::bring_on(compiler, &before, changed);
            self.put_in_force(tenant, end, began, make).await;
        }
        let whole: Vec<_> = whole.into_iter().collect();
        let stored = match &whole[..] {
            [] => Vec::new(),
            whole => self.store.load(Some(whole)).await?,
        };
        for stored in stored {
            let (tenant, end) = (stored.tenant, stored.position.head());
            let make = move |compiler: &Compiler| {
                let tenant = start::restore(compiler, stored)?;
                Ok(Made {
                    tenant,
                    was_compiled: true,
                })
            };
            self.put_in_force(tenant, end, began, make).await;
        }
        // A look has found another database meanwhile. What was read from the one before may not be in that.
        if *self.incarnation() != incarnation {
            self.snapshot.continuity.doubt();
        }
        Ok(())
    }

    /// What has changed of tenants, each with the state that it has changed from. Whoever could not be loaded the last
    /// time is left out: what is read whole depends on nothing that is known.
    async fn changes(
        &self,
        some: &[TenantId],
        incarnation: &str,
    ) -> Result<Vec<(Arc<TenantSnapshot>, ChangedTenant)>, StoreError> {
        let known = self.snapshot.load_full();
        let revisions: Vec<_> = {
            let retry_at = self.retry_at();
            let sound = some.iter().filter(|tenant| !retry_at.contains_key(tenant));
            let revisions = sound.map(|tenant| (*tenant, known.revision(*tenant)));
            revisions.filter(|(_, revision)| *revision > 0).collect()
        };
        if revisions.is_empty() {
            return Ok(Vec::new());
        }
        let changed = self.store.changes(&revisions).await?;
        // Asked behind them: so they were read from this database. Of another one, which may lack what is known,
        // nothing leads on from that.
        if changed.is_empty() || self.store.incarnation().await? != incarnation {
            return Ok(Vec::new());
        }
        let tenants = changed.iter().map(|changed| changed.tenant).collect();
        let lost = self.missing(&self.snapshot.continuity.ends_of(&tenants)).await?;
        if !lost.is_empty() {
            self.snapshot.continuity.doubt();
        }
        let sound = changed
            .into_iter()
            .filter(|changed| !lost.contains(&changed.tenant));
        Ok(sound
            .filter_map(|changed| Some((Arc::clone(known.tenant(changed.tenant)?), changed)))
            .collect())
    }

    /// Puts a tenant in force that was read from the store at this time or later, when its chain ended there.
    async fn put_in_force(
        &self,
        tenant: TenantId,
        end: Head,
        read_at: Uptime,
        make: impl FnOnce(&Compiler) -> Result<Made, StartError> + Send + 'static,
    ) {
        let compiler = Arc::clone(self.snapshot.load().compiler());
        // Compiling takes long with many policies or tools, and nobody here waits for a decision.
        let began = Instant::now();
        let restoring = tokio::task::spawn_blocking(move || make(&compiler));
        let restored = restoring.await.map_err(StartError::Panicked).flatten();
        if restored.as_ref().map_or(true, |restored| restored.was_compiled) {
            self.note_time(tenant, began.elapsed());
        }
        match restored {
            Ok(restored) => {
                // Where other base policies were put in force meanwhile nothing is, and the next round finds it behind.
                if self.snapshot.adopt(restored.tenant, read_at).await {
                    self.snapshot.continuity.note_end(tenant, end);
                }
                self.told_failing().remove(&tenant);
                self.retry_at().remove(&tenant);
            }
            Err(error) => self.fail(&[tenant], &error),
        }
    }

    /// Notes whether a tenant's policies took so long to compile that it is better loaded by itself.
    fn note_time(&self, tenant: TenantId, compiling: Duration) {
        let slow = &mut self.in_hand().slow;
        if compiling > COMPILE_TIME_MAX {
            slow.insert(tenant);
        } else {
            slow.remove(&tenant);
        }
    }

    /// Notes that tenants cannot be loaded, and why.
    fn fail(&self, tenants: &[TenantId], error: &(dyn Error + 'static)) {
        self.complain(tenants, error);
        self.try_again(tenants, Instant::now() + PAUSE);
    }

    fn try_again(&self, tenants: &[TenantId], at: Instant) {
        self.retry_at().extend(tenants.iter().map(|tenant| (*tenant, at)));
    }

    /// Says once what is wrong with tenants that cannot be loaded.
    fn complain(&self, tenants: &[TenantId], error: &(dyn Error + 'static)) {
        let mut told_failing = self.told_failing();
        for tenant in tenants.iter().filter(|tenant| !told_failing.contains(tenant)) {
            tracing::error!(%tenant, error, "changes of a tenant cannot be followed");
        }
        told_failing.extend(tenants);
    }

    fn in_hand(&self) -> MutexGuard<'_, InHand> {
        lock(&self.in_hand)
    }

    fn retry_at(&self) -> MutexGuard<'_, BTreeMap<TenantId, Instant>> {
        lock(&self.retry_at)
    }

    fn told_failing(&self) -> MutexGuard<'_, BTreeSet<TenantId>> {
        lock(&self.told_failing)
    }

    /// Notes whether this gateway serves with other base policies than were last put in force on any.
    fn compare_base(&self) {
        let snapshot = self.snapshot.load();
        let system = snapshot.tenant(TenantId::SYSTEM);
        let last = system.and_then(|system| system.directory.base.as_ref());
        let differs = last.filter(|last| last.digest != snapshot.base_digest());
        // What was reloaded is taken over here, too.
        if differs.is_some_and(|last| last.cedar.is_none()) {
            tracing::warn!(
                here = %snapshot.base_digest(),
                "another gateway was started with other base policies; reload one of them for all, or start it with those of the others"
            );
        }
        // Behind what is said of it: whoever sees the metric finds that in the log.
        self.metrics.set_base_differs(differs.is_some());
    }
}

/// The tenants of which this holds, by their revisions in the store.
fn tenants(revisions: &[(TenantId, u64)], holds: impl Fn(TenantId, u64) -> bool) -> Vec<TenantId> {
    let found = revisions
        .iter()
        .filter(|(tenant, revision)| holds(*tenant, *revision));
    found.map(|(tenant, _)| *tenant).collect()
}
