//! Whether so many wait for decisions that whatever nobody waits for should step back.
//!
//! A batch is what has come while the one before was written, so its size says how many wait, without a look at the clock of anybody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So many proposals in a batch are a press: one caller makes batches of one, and only dozens who never rest make larger ones.
const PRESS: usize = 24;
/// How long it is believed to last: some hundred commits.
const LASTS: Duration = Duration::from_millis(250);

/// What the last batches say.
#[derive(Debug)]
pub(super) struct Press {
    start: Instant,
    /// Until when, in milliseconds from the start.
    until: AtomicU64,
}

impl Default for Press {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: AtomicU64::new(0),
        }
    }
}

impl Press {
    /// Notes a batch.
    pub(super) fn note(&self, proposals: usize) {
        if proposals >= PRESS {
            self.until.store(self.millis() + millis(LASTS), Ordering::Relaxed);
        }
    }

    /// Whether there is one now.
    pub(super) fn is_on(&self) -> bool {
        self.millis() < self.until.load(Ordering::Relaxed)
    }

    fn millis(&self) -> u64 {
        millis(self.start.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_press_is_noticed_and_ends_by_itself() {
        let mut press = Press::default();
        assert!(!press.is_on());
        press.note(PRESS - 1);
        assert!(!press.is_on());
        press.note(PRESS);
        assert!(press.is_on());
        press.start = press.start.checked_sub(2 * LASTS).unwrap();
        assert!(!press.is_on());
    }
}
