//! Yielding to others on the thread of whoever works on many asks. A check of one ask may take a fifth of a second, and
//! a hundred of them are no reason to keep a worker from everybody else for so long.

use std::time::{Duration, Instant};

/// How long one works without giving others their turn. It is not each time that little was done: behind a turn that
/// was given away there may be dozens of others, and what was judged becomes old meanwhile.
const WORK_MAX: Duration = Duration::from_millis(1);

/// Yields to others once in a while.
pub(crate) struct Yielder(Instant);

impl Yielder {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Yields if it is long since it did.
    pub(crate) async fn yield_if_due(&mut self) {
        if self.0.elapsed() >= WORK_MAX {
            tokio::task::yield_now().await;
            self.0 = Instant::now();
        }
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
}
