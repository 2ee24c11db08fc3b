//! Work that is done once for all who want its result at the same time.
//!
//! Whoever needs no credential could start as much of it as there are connections, and keep the readers of the store
//! from what asks look up.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;

/// Runs one piece of work at a time, and gives its result to all who wait for one.
#[derive(Debug)]
pub struct SingleFlight<T> {
    /// The last result, and when the run began that gave it.
    last: Arc<Mutex<Option<(Instant, T)>>>,
}

impl<T: Clone + Send + 'static> SingleFlight<T> {
    /// Nothing runs yet.
    pub fn idle() -> Self {
        Self {
            last: Arc::new(Mutex::new(None)),
        }
    }

    /// What the work gives now. Nobody is given the result of a run that began before they asked, and the next run
    /// waits for this one, also if nobody waits for it any more.
    pub async fn run(&self, work: impl Future<Output = T> + Send + 'static) -> T {
        let asked = Instant::now();
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((began, result)) = &*last
            && *began >= asked
        {
            return result.clone();
        }
        let running = tokio::spawn(async move {
            let began = Instant::now();
            let result = work.await;
            *last = Some((began, result.clone()));
            result
        });
        let result = running.await;
        result.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    /// Counts the runs that were begun.
    #[derive(Default, Clone)]
    struct Work(Arc<AtomicUsize>);

    impl Work {
        async fn run(self) -> usize {
            let runs = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            yield_now().await;
            runs
        }

        fn runs(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn a_run_is_shared_by_all_who_ask_at_once_and_not_by_whoever_comes_later() {
        let (flight, work) = (SingleFlight::idle(), Work::default());
        let result = join_all((0..100).map(|_| flight.run(work.clone().run()))).await;
        // The first may have begun before the others had asked.
        let runs = work.runs();
        assert!(
            runs <= 2 && result[1..].iter().all(|result| *result == runs),
            "{result:?}"
        );
        assert_eq!(flight.run(work.run()).await, runs + 1);
    }

    #[tokio::test]
    async fn a_run_that_nobody_waits_for_any_more_is_finished_before_the_next() {
        let (flight, work) = (SingleFlight::idle(), Work::default());
        for _ in 0..10 {
            assert!(flight.run(work.clone().run()).now_or_never().is_none());
        }
        assert!(flight.run(work.run()).await <= 2);
    }
}
