//! The thread for work that nobody waits for: verifying ledgers, and indexing them for search.
//!
//! It has the lowest priority that there is, a runtime of its own and connections of its own, so it has what the others leave of the
//! cores, and nobody finds a worker of theirs in the middle of a thousand hashes.
//!
//! What belongs here only reads the ledger, and holds nothing for long that an ask needs: it may be stopped anywhere for want of a core,
//! and whoever waited for it would be stopped with it. So what takes the turn to write, changes the directory, or gives back what asks
//! may use is not done here, however little it matters when.

use std::io;
use std::sync::Arc;
use store::Store;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// The thread. It ends when this is dropped.
pub struct Behind {
    /// The store, for what is done on the thread and nowhere else.
    pub store: Arc<dyn Store>,
    runtime: Handle,
    /// Whether the thread is to end.
    stop: watch::Sender<bool>,
}

impl Behind {
    /// Starts the thread, with nothing to do.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(store: &dyn Store) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, mut told) = watch::channel(false);
        std::thread::Builder::new()
            .name("behind".to_owned())
            .spawn(move || {
                step_back();
                // An error means that nobody can say it any more, which is a reason to end as well.
                let _ = runtime.block_on(told.wait_for(|stop| *stop));
                // What is under way goes where it waits. Only then is it known that the thread has ended.
                drop(runtime);
                drop(told);
            })?;
        Ok(Self {
            store: store.behind(),
            runtime: handle,
            stop,
        })
    }

    /// Has something done on the thread. When that ends, it is broken off where it waits.
    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.runtime.spawn(work);
    }

    /// Ends the thread as soon as what it does has to wait for something.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns when the thread has ended.
    pub async fn ended(&self) {
        self.stop.closed().await;
    }
}

/// Lets whoever waits for this core have it, in the middle of work that takes long.
///
/// Little priority is a small share of the time and no promise to step aside: a thread that has a core may keep it for milliseconds while
/// another one that came meanwhile waits for it.
pub fn give_way() {
    std::thread::yield_now();
}

/// Gives this thread the lowest priority, and with it all that it will start.
#[cfg(target_os = "linux")]
fn step_back() {
    /// From −20, who comes first, to this.
    const LAST: i32 = 19;
    if let Err(error) = rustix::process::nice(LAST) {
        tracing::debug!(%error, "work that nobody waits for has the priority of all other: {error}");
    }
}

/// Elsewhere a priority is that of the process, with everybody who answers in it.
#[cfg(not(target_os = "linux"))]
fn step_back() {
    tracing::debug!("work that nobody waits for has the priority of all other");
}
