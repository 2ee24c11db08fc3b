//! What lets others have their turn on the thread of whoever works on many asks. A check of one ask may take a fifth of a second, and a hundred of them
//! are no reason to keep a worker from everybody else for so long.

use std::time::{Duration, Instant};

/// How long one works without giving others their turn. It is not each time that little was done: behind a turn that was given away there may be
/// dozens of others, and what was judged becomes old meanwhile.
const WORK_MAX: Duration = Duration::from_millis(1);

/// Gives others their turn once in a while.
pub(crate) struct Breather(Instant);

impl Breather {
    /// From now on.
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Gives them their turn if it is long since they had it.
    pub(crate) async fn take(&mut self) {
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
        let mut breather = Breather(Instant::now() + Duration::from_mins(1));
        assert!(breather.take().now_or_never().is_some());
        breather.0 = Instant::now().checked_sub(WORK_MAX).unwrap();
        assert!(breather.take().now_or_never().is_none());
        breather.take().await;
        assert!(breather.0.elapsed() < Duration::from_mins(1));
    }
}
