//! Yielding to others on the thread of whoever works on many asks. A check of one ask may take two milliseconds, and
//! a hundred of them are no reason to keep a worker from everybody else for so long.

use futures_util::task::AtomicWaker;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// How long one works without giving others their turn. It is not each time that little was done: behind a turn that
/// was given away there may be dozens of others, and what was judged becomes old meanwhile.
pub(crate) const WORK_MAX: Duration = Duration::from_millis(1);

/// Yields to others once in a while.
pub(crate) struct Yielder(Instant);

impl Yielder {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Does this, and notes whenever others have their turn: where it waits, if nobody but the runtime polls it.
    pub(crate) async fn watch<T>(&mut self, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        let mut has_waited = false;
        poll_fn(|context| {
            if has_waited {
                self.0 = Instant::now();
            }
            let done = work.as_mut().poll(context);
            has_waited = done.is_pending();
            done
        })
        .await
    }

    /// Yields if it is long since others had their turn.
    pub(crate) async fn yield_if_due(&mut self) {
        if self.0.elapsed() >= WORK_MAX {
            others_first().await;
            self.0 = Instant::now();
        }
    }
}

/// How often a turn is asked for that comes at once.
const TRIES_MAX: u32 = 3;

/// Lets everybody go on who can. That of tokio alone goes on when it is polled again, and hyper polls again at once where
/// more has been sent ahead.
pub(crate) async fn others_first() {
    let turn = Arc::new(Turn::default());
    let waker = Waker::from(Arc::clone(&turn));
    let (mut tries, mut is_asked_for) = (0, false);
    poll_fn(|context| {
        turn.waiting.register(context.waker());
        if turn.has_come.load(Ordering::Acquire) {
            return Poll::Ready(());
        }
        if !is_asked_for {
            // It is done with when it has left the waker with the runtime.
            let asking = pin!(tokio::task::yield_now());
            let _ = asking.poll(&mut Context::from_waker(&waker));
            // Where another thread has taken the place of this one among the workers, it comes at once, and nobody has
            // gone on. The next poll is a worker's, if there are any.
            tries += 1;
            is_asked_for = tries == TRIES_MAX || !turn.has_come.swap(false, Ordering::AcqRel);
        }
        Poll::Pending
    })
    .await;
}

/// The next turn of a task that has let others go first.
#[derive(Default)]
struct Turn {
    has_come: AtomicBool,
    waiting: AtomicWaker,
}

impl Wake for Turn {
    fn wake(self: Arc<Self>) {
        self.has_come.store(true, Ordering::Release);
        self.waiting.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn others_have_their_turn_when_it_is_long_since_they_had_it() {
        let mut yielder = Yielder(Instant::now() + Duration::from_mins(1));
        assert!(yielder.yield_if_due().now_or_never().is_some());
        yielder.0 = Instant::now().checked_sub(WORK_MAX).unwrap();
        assert!(yielder.yield_if_due().now_or_never().is_none());
        yielder.yield_if_due().await;
        assert!(yielder.0.elapsed() < Duration::from_mins(1));
    }

    #[tokio::test]
    async fn who_is_polled_again_at_once_has_its_turn_no_sooner() {
        let mut others = Box::pin(others_first());
        for _ in 0..3 {
            assert!(others.as_mut().now_or_never().is_none());
        }
        others.await;
    }
}
