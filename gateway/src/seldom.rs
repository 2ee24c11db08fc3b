//! Lines of the log that would come with every batch or every ask while the disk is full or the store is away: the
//! first at once, and then one a second at most, with how many were left out.
//!
//! It writes nothing itself, and does not look at what the lines say.

use std::time::{Duration, Instant};

/// How long nothing more is said behind a line.
const QUIET: Duration = Duration::from_secs(1);

/// When such a line was written last.
#[derive(Debug)]
pub(crate) struct Seldom {
    written: Option<Instant>,
    left_out: u64,
}

impl Seldom {
    /// Nothing was written yet.
    pub(crate) const fn new() -> Self {
        Self {
            written: None,
            left_out: 0,
        }
    }

    /// If a line may be written now, how many were left out since the one before.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        let is_quiet = |written: Instant| now.saturating_duration_since(written) < QUIET;
        if self.written.is_some_and(is_quiet) {
            self.left_out += 1;
            return None;
        }
        self.written = Some(now);
        Some(std::mem::take(&mut self.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_is_written_at_once_and_then_one_a_second_with_what_was_left_out() {
        let (mut seldom, begin) = (Seldom::new(), Instant::now());
        let mut admit = |millis| seldom.admit(begin + Duration::from_millis(millis));
        assert_eq!(admit(0), Some(0));
        for millis in [1, 10, 999] {
            assert_eq!(admit(millis), None, "{millis}");
        }
        assert_eq!(admit(1_000), Some(3));
        assert_eq!(admit(1_500), None);
        assert_eq!(admit(60_000), Some(1));
        assert_eq!(admit(61_000), Some(0));
    }
}
