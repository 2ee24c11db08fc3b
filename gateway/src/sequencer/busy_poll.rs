//! Whether to keep looking for a moment before going to sleep.
//!
//! Who sleeps has to be woken: by a system call of whoever has something, and on a core that is halted meanwhile, which
//! a virtual machine takes its time to leave (docs/decisions/0051-awake-where-somebody-comes-soon.md). Where the next
//! one comes within that, it costs less to stay awake. So the queue is looked at for a moment first, and in between
//! everybody else is let on this core; but only if the last wait was a short one, so that a gateway that is asked now
//! and then sleeps as before. Hypervisors do the same before they halt a core (halt polling in Linux's KVM).

use std::num::NonZero;
use std::time::{Duration, Instant};

/// For how long it is looked: what a caller takes who asks again at once, and some.
const LOOKS_FOR: Duration = Duration::from_micros(250);

/// What the last wait says.
#[derive(Debug)]
pub(super) struct BusyPoll {
    /// Whether there is another core for whoever is waited for.
    is_possible: bool,
    was_short: bool,
}

impl BusyPoll {
    /// One that sleeps at first. With less than two cores, or the time of two, it always does.
    pub(super) fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self {
            is_possible: cores > 1,
            was_short: false,
        }
    }

    /// Looks until something is there, for as long as that is worth it. It blocks its thread, and nothing else.
    pub(super) fn look(&self, is_there: impl Fn() -> bool) {
        if !self.is_worth_it() {
            return;
        }
        let began = Instant::now();
        while !is_there() && began.elapsed() < LOOKS_FOR {
            std::thread::yield_now();
        }
    }

    /// Notes how long was waited until something was there.
    pub(super) fn note(&mut self, waited: Duration) {
        self.was_short = waited <= LOOKS_FOR;
    }

    const fn is_worth_it(&self) -> bool {
        self.is_possible && self.was_short
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn of_two_cores() -> BusyPoll {
        BusyPoll {
            is_possible: true,
            was_short: false,
        }
    }

    /// How often it looks if something is there at the third time.
    fn looks(poll: &BusyPoll) -> u32 {
        let count = Cell::new(0);
        poll.look(|| {
            count.set(count.get() + 1);
            count.get() == 3
        });
        count.get()
    }

    #[test]
    fn it_looks_only_where_the_last_wait_was_short() {
        let mut poll = of_two_cores();
        assert_eq!(looks(&poll), 0);
        poll.note(LOOKS_FOR);
        // Where much else is done it may get to look only once in all that time, but not always.
        assert!((0..100).any(|_| looks(&poll) == 3));
        poll.note(LOOKS_FOR + Duration::from_nanos(1));
        assert_eq!(looks(&poll), 0);
    }

    #[test]
    fn it_goes_to_sleep_where_nobody_comes() {
        let mut poll = of_two_cores();
        poll.note(Duration::ZERO);
        // That this returns is the point.
        poll.look(|| false);
    }

    #[test]
    fn on_one_core_it_sleeps_at_once() {
        let mut poll = of_two_cores();
        poll.is_possible = false;
        poll.note(Duration::ZERO);
        assert_eq!(looks(&poll), 0);
    }
}
