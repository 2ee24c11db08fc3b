//! How long the machine has been up, with the time that it slept.
//!
//! An `Instant` stands still while a machine is suspended, and what was known before that would seem to be known still.
//! What is answered from memory goes by this. It knows nothing of the time of day, and nothing of what a host does to
//! its guests without their knowing.

use std::time::Duration;

/// How long the machine has been up at some moment, in whole milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Uptime(u64);

impl Uptime {
    /// So many milliseconds.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// How long it is now.
    pub fn now() -> Self {
        Self(u64::try_from(read().as_millis()).unwrap_or(u64::MAX))
    }

    /// How many milliseconds that is.
    pub const fn millis(self) -> u64 {
        self.0
    }

    /// How long after that moment this one is; no time if it is not.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(target_os = "linux")]
fn read() -> Duration {
    use rustix::time::{ClockId, clock_gettime};
    let passed = Duration::try_from(clock_gettime(ClockId::Boottime));
    passed.expect("this clock never shows less than nothing")
}

/// Elsewhere nobody tells how long a machine slept.
#[cfg(not(target_os = "linux"))]
fn read() -> Duration {
    use std::{sync::LazyLock, time::Instant};
    static BEGINNING: LazyLock<Instant> = LazyLock::new(Instant::now);
    BEGINNING.elapsed()
}
