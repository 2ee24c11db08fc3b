//! The follower: keeps the snapshot up to date with what other gateways, or a commit of unknown outcome, have written.
//!
//! It compares revisions and loads only the tenants that have moved. It never decides anything: a decision that was judged
//! by an older revision is turned back in the commit, however late the follower is. What it bounds is everything that is
//! answered without a commit, and who is let in.

use crate::metrics::Metrics;
use crate::snapshot::SnapshotCell;
use crate::start::{self, StartError};
use model::TenantId;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// How often revisions are compared where other programs write to the store, besides whenever they announce a change.
const PERIOD: Duration = Duration::from_millis(500);
/// How long it waits before it asks a store again that did not answer.
const PAUSE: Duration = Duration::from_millis(200);
/// How many tenants are loaded at once.
const LOAD_MAX: usize = 64;

/// The handle to the follower, which ends when the last one is dropped.
pub struct Follower {
    wake: Arc<Notify>,
    task: JoinHandle<()>,
}

/// What the task works with.
pub struct Following {
    /// What is followed.
    pub store: Arc<dyn Store>,
    /// What is kept up to date.
    pub snapshot: Arc<SnapshotCell>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What wakes it before its time.
    pub wake: Arc<Notify>,
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
        let mut failing = false;
        loop {
            match self.catch_up().await {
                Ok(()) if failing => {
                    tracing::info!("changes are being followed again");
                    failing = false;
                }
                Ok(()) => {}
                Err(error) => {
                    if !failing {
                        tracing::error!(
                            error = &error as &dyn std::error::Error,
                            "changes cannot be followed"
                        );
                    }
                    failing = true;
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            }
            self.rest().await;
        }
    }

    /// Waits until there may be something to do.
    async fn rest(&self) {
        let announced = async {
            // Whoever cannot listen still looks every so often.
            if self.store.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        };
        let period = async {
            if self.store.is_shared() {
                tokio::time::sleep(PERIOD).await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = announced => {}
            () = period => {}
            () = self.wake.notified() => {}
        }
    }

    /// Loads every tenant that has moved, until none has.
    async fn catch_up(&self) -> Result<(), StartError> {
        while !self.load_moved().await? {}
        Ok(())
    }

    /// Loads every tenant that has moved. Returns false if other base policies were put in force meanwhile, so that it has to
    /// be done again.
    async fn load_moved(&self) -> Result<bool, StartError> {
        let began = Instant::now();
        let revisions = self.store.revisions().await?;
        let behind: Vec<TenantId> = {
            let snapshot = self.snapshot.load();
            let moved = |(tenant, revision): &(TenantId, u64)| {
                snapshot
                    .tenant(*tenant)
                    .is_none_or(|known| known.revision < *revision)
            };
            revisions
                .iter()
                .filter(|row| moved(row))
                .map(|(tenant, _)| *tenant)
                .collect()
        };
        for some in behind.chunks(LOAD_MAX) {
            let stored = self.store.load(Some(some)).await?;
            let compiler = Arc::clone(self.snapshot.load().compiler());
            // Compiling takes long with many policies or tools, and nobody here waits for a decision.
            let restoring = tokio::task::spawn_blocking(move || {
                let tenants = stored.into_iter().map(|tenant| start::restore(&compiler, tenant));
                tenants.collect::<Result<Vec<_>, _>>()
            });
            let tenants = restoring.await.map_err(|_| StartError::Panicked)??;
            if !self.snapshot.adopt(tenants).await {
                return Ok(false);
            }
        }
        self.snapshot.confirm(began);
        if behind.contains(&TenantId::SYSTEM) {
            self.compare_base();
        }
        Ok(true)
    }

    /// Notes whether this gateway serves with other base policies than were last put in force on any.
    fn compare_base(&self) {
        let snapshot = self.snapshot.load();
        let system = snapshot.tenant(TenantId::SYSTEM);
        let last = system.and_then(|system| system.directory.base.as_ref());
        let differs = last.is_some_and(|last| last.digest != snapshot.base_digest());
        self.metrics.set_base_differs(differs);
        if differs {
            tracing::warn!(
                here = %snapshot.base_digest(),
                "another gateway has put other base policies in force; reload the file here too"
            );
        }
    }
}
