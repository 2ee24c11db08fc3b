//! A signal of the load: whether so many wait for decisions that whatever nobody waits for should step back.
//!
//! A batch is what has come while the one before was written, so its size says how many wait, without a look at the
//! clock of anybody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// So many proposals in a batch are a high load: one caller makes batches of one, and only dozens who never rest make
/// larger ones.
const HIGH: usize = 24;
/// How long it is believed to last: some hundred commits.
const LASTS: Duration = Duration::from_millis(250);
/// How long after a batch somebody is believed to ask again: one in a second is left alone with its wait, dozens are not.
const ASKED: Duration = Duration::from_millis(20);

/// What the last batches say.
#[derive(Debug)]
pub struct LoadSignal {
    start: Instant,
    /// Until when the load is high, in milliseconds from the start.
    until: AtomicU64,
    /// Until when somebody is believed to ask, the same way.
    asked_until: AtomicU64,
}

impl Default for LoadSignal {
    fn default() -> Self {
        Self {
            start: Instant::now(),
            until: AtomicU64::new(0),
            asked_until: AtomicU64::new(0),
        }
    }
}

impl LoadSignal {
    /// Notes a batch with so many proposals of callers. One without any says nothing.
    pub(super) fn note(&self, proposals: usize) {
        if proposals == 0 {
            return;
        }
        let now = self.millis();
        self.asked_until.store(now + millis(ASKED), Ordering::Relaxed);
        if proposals >= HIGH {
            self.until.store(now + millis(LASTS), Ordering::Relaxed);
        }
    }

    /// One that says so whenever it is asked.
    #[cfg(test)]
    pub(crate) fn asked_for_good() -> Self {
        let load = Self {
            // Until that hour is over, no time passes for it.
            start: Instant::now() + Duration::from_hours(1),
            ..Self::default()
        };
        load.note(1);
        load
    }

    /// Whether anybody asks, so that whatever nobody waits for should not be in the way.
    pub fn is_asked(&self) -> bool {
        self.millis() < self.asked_until.load(Ordering::Relaxed)
    }

    /// Whether the load is high now.
    pub(super) fn is_high(&self) -> bool {
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

    const HOUR: Duration = Duration::from_hours(1);

    /// One for which no time passes before a test says so.
    fn standing() -> LoadSignal {
        LoadSignal {
            start: Instant::now() + HOUR,
            ..LoadSignal::default()
        }
    }

    /// Lets so much time pass, once.
    fn pass(load: &mut LoadSignal, time: Duration) {
        load.start = load.start.checked_sub(HOUR + time).unwrap();
    }

    #[test]
    fn a_high_load_is_noticed_and_ends_by_itself() {
        let mut load = standing();
        assert!(!load.is_high());
        load.note(HIGH - 1);
        assert!(!load.is_high());
        load.note(HIGH);
        assert!(load.is_high());
        pass(&mut load, 2 * LASTS);
        assert!(!load.is_high());
    }

    #[test]
    fn one_who_asks_is_noticed_and_forgotten() {
        let mut load = standing();
        assert!(!load.is_asked());
        load.note(1);
        assert!(load.is_asked());
        pass(&mut load, 2 * ASKED);
        assert!(!load.is_asked());
    }
}
