//! One look at the store for all who ask for the same at once.
//!
//! Whoever needs no credential could have as many of them as there are connections, and keep the readers of the store from what asks look up.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::Mutex;

/// A look that several share.
#[derive(Debug)]
pub struct Look<T> {
    /// The last one that was finished, and when it began.
    last: Arc<Mutex<Option<(Instant, T)>>>,
}

impl<T: Clone + Send + 'static> Look<T> {
    /// Before the first one.
    pub fn none() -> Self {
        Self {
            last: Arc::new(Mutex::new(None)),
        }
    }

    /// What is seen now. Nobody is given what was seen before they asked, and the next look waits for this one, also if nobody waits for it any more.
    pub async fn at(&self, look: impl Future<Output = T> + Send + 'static) -> T {
        let asked = Instant::now();
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((began, seen)) = &*last
            && *began >= asked
        {
            return seen.clone();
        }
        let looking = tokio::spawn(async move {
            let began = Instant::now();
            let seen = look.await;
            *last = Some((began, seen.clone()));
            seen
        });
        let seen = looking.await;
        seen.unwrap_or_else(|error| resume_unwind(error.into_panic()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::task::yield_now;

    /// Counts the looks that were begun.
    #[derive(Default, Clone)]
    struct Eye(Arc<AtomicUsize>);

    impl Eye {
        async fn see(self) -> usize {
            let looks = self.0.fetch_add(1, Ordering::SeqCst) + 1;
            yield_now().await;
            looks
        }

        fn looks(&self) -> usize {
            self.0.load(Ordering::SeqCst)
        }
    }

    #[tokio::test]
    async fn whoever_asks_at_once_shares_a_look_and_whoever_comes_later_has_another() {
        let (look, eye) = (Look::none(), Eye::default());
        let seen = join_all((0..100).map(|_| look.at(eye.clone().see()))).await;
        // The first may have begun before the others had asked.
        let looks = eye.looks();
        assert!(
            looks <= 2 && seen[1..].iter().all(|seen| *seen == looks),
            "{seen:?}"
        );
        assert_eq!(look.at(eye.see()).await, looks + 1);
    }

    #[tokio::test]
    async fn a_look_that_nobody_waits_for_any_more_is_finished_before_the_next() {
        let (look, eye) = (Look::none(), Eye::default());
        for _ in 0..10 {
            assert!(look.at(eye.clone().see()).now_or_never().is_none());
        }
        assert!(look.at(eye.see()).await <= 2);
    }
}
