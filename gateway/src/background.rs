//! The background thread, for work that nobody waits for: verifying ledgers, and indexing them for search.
//!
//! It has the lowest priority that there is, a runtime of its own and connections of its own, so it has what the others
//! leave of the cores, and nobody finds a worker of theirs in the middle of a thousand hashes. One waits for it, and
//! not without an end: whoever verifies a ledger of which the watch knows a fault.
//!
//! What belongs here only reads the ledger, and holds nothing for long that an ask needs: it may be stopped anywhere
//! for want of a core, and whoever waited for it would be stopped with it. So what takes the turn to write, changes the
//! directory, or gives back what asks may use is not done here, however little it matters when.

use crate::fair_semaphore::{FairSemaphore, Permit};
use crate::runtimes;
use crate::sequencer::LoadSignal;
use model::TenantId;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use tokio::runtime::{Builder, Handle};
use tokio::sync::watch;

/// How long the thread works at a stretch while somebody asks for decisions.
const STRETCH: Duration = Duration::from_micros(200);
/// How long a break is: most of the time the core is free.
const BREAK: Duration = Duration::from_micros(600);
/// Rows that are read at once, some hundred kilobytes: to read them takes some milliseconds of its thread.
const PAGE: u32 = 256;
/// Rows that are read at once while somebody asks: as much work as a stretch.
const PAGE_SMALL: u32 = 32;

/// The thread. It ends when this is dropped.
pub struct Background {
    /// The store, for what is done on the thread and nowhere else.
    pub store: Arc<dyn Store>,
    runtime: Handle,
    /// Whether the thread is to end.
    stop: watch::Sender<bool>,
}

impl Background {
    /// Starts the thread, with nothing to do.
    ///
    /// # Errors
    /// There can be no more threads.
    pub fn start(store: &dyn Store) -> io::Result<Self> {
        let thread = std::thread::Builder::new().name("background".to_owned());
        let mut builder = Builder::new_current_thread();
        // What blocks is done on a thread of its own, which is made before this one steps back.
        builder.on_thread_start(step_back);
        let (stop, mut stop_requested) = watch::channel(false);
        let runtime = runtimes::start(thread, builder, move |runtime| {
            step_back();
            // An error means that nobody can say it any more, which is a reason to end as well.
            let _ = runtime.block_on(stop_requested.wait_for(|stop| *stop));
            // What is under way goes where it waits. Only then is it known that the thread has ended.
            drop(runtime);
            drop(stop_requested);
        })?;
        Ok(Self {
            store: store.background(),
            runtime,
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

/// How work that takes long lets others have the core in the middle of it.
///
/// Little priority is a small share of the time and no promise to step aside: a thread that has a core may keep it for
/// milliseconds while another one that came meanwhile waits for it. And to offer the core is not enough, because a core
/// with a thread is not an idle one: whoever is woken is put beside those who are busy on the other. So while somebody
/// asks for decisions the background thread leaves its core, often and for most of the time.
#[derive(Clone, Copy)]
pub struct Breaks<'g> {
    /// Who knows whether somebody asks; nobody, where the work is somebody's who waits for it.
    load: Option<&'g LoadSignal>,
    /// What such work acquires again for each part, and of which tenant it is; none, where there are no others.
    semaphore: Option<(&'g FairSemaphore, TenantId)>,
    /// When the last break ended.
    worked_since: Instant,
}

impl<'g> Breaks<'g> {
    /// For work that somebody waits for. It offers its core, and goes on if nobody wants it.
    pub fn short() -> Self {
        Self {
            load: None,
            semaphore: None,
            worked_since: Instant::now(),
        }
    }

    /// For work that somebody waits for, where many may have such work done: a page of one tenant's, then a page of another's.
    pub fn in_line(semaphore: &'g FairSemaphore, tenant: TenantId) -> Self {
        Self {
            semaphore: Some((semaphore, tenant)),
            ..Self::short()
        }
    }

    /// For work on the background thread. A break stops the whole thread, so it is for no other.
    pub fn long(load: &'g LoadSignal) -> Self {
        Self {
            load: Some(load),
            semaphore: None,
            worked_since: Instant::now(),
        }
    }

    /// The place for the next page, to be kept until that is done.
    pub async fn place(&self) -> Option<Permit> {
        let (semaphore, tenant) = self.semaphore?;
        Some(semaphore.acquire_for_part(tenant).await)
    }

    /// How many rows to read at once: reading has no breaks.
    pub fn page(&self) -> u32 {
        if self.is_in_the_way() { PAGE_SMALL } else { PAGE }
    }

    /// To be called after every row. Makes a break if it is time for one.
    pub fn give_way(&mut self) {
        if self.is_in_the_way() && self.worked_since.elapsed() >= STRETCH {
            std::thread::sleep(BREAK);
            self.worked_since = Instant::now();
        } else {
            std::thread::yield_now();
        }
    }

    fn is_in_the_way(&self) -> bool {
        self.load.is_some_and(LoadSignal::is_asked)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Breaks whose next one is due.
    fn due(breaks: Breaks<'_>) -> Breaks<'_> {
        let worked_since = breaks.worked_since.checked_sub(STRETCH);
        Breaks {
            worked_since: worked_since.expect("the machine has run for longer"),
            ..breaks
        }
    }

    fn makes_a_break(mut breaks: Breaks<'_>) -> bool {
        let before = breaks.worked_since;
        breaks.give_way();
        breaks.worked_since != before
    }

    #[test]
    fn the_core_is_left_while_somebody_asks() {
        let load = LoadSignal::asked_for_good();
        let breaks = Breaks::long(&load);
        assert_eq!(breaks.page(), PAGE_SMALL);
        assert!(makes_a_break(due(breaks)));
    }

    #[test]
    fn nobody_who_is_alone_or_waited_for_makes_breaks() {
        let nobody = LoadSignal::default();
        for breaks in [Breaks::long(&nobody), Breaks::short()] {
            assert_eq!(breaks.page(), PAGE);
            assert!(!makes_a_break(due(breaks)));
        }
    }
}
