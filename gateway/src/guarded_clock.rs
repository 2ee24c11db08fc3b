//! Clocks that do not follow jumps ahead of the machine's clock at once, for what jobs do for good.
//!
//! A machine that comes up with a clock that is years ahead would have everything erased in a minute that is to be kept
//! for years. These go on as fast as time does, and are never ahead of the clock. They follow a clock that was set
//! ahead as far as that has been ahead for a whole hour, for minutes where what is taken is only written down, or for
//! days where callers were promised those, and one that was set back at once, because then less is old. Where a gateway
//! begins, those for what is erased or forgotten know no time, and what was recorded tells them none: that may have
//! been recorded while the clock was ahead. The one for what is written down begins with the clock, because lists tell
//! of that. Nothing that callers are told goes by them.

use model::Timestamp;
use std::time::{Duration, Instant};

/// How long the clock has to be ahead before it is followed. A machine that slept is an hour late with what it erases.
const BELIEVED_AFTER: Duration = Duration::from_hours(1);
/// The same for what has ended and is only to be written down: until then whoever uses it sees that it has ended.
const BELIEVED_SOON_AFTER: Duration = Duration::from_mins(5);

/// What time it is at least, by a clock that may be wrong.
#[derive(Debug)]
pub struct GuardedClock {
    /// How long the clock has to be ahead before it is followed.
    believed_after: Duration,
    /// The same from when on it was followed once.
    believed_later_after: Duration,
    /// What it was when it last followed the clock.
    at: Timestamp,
    /// When that was.
    since: Instant,
    /// How many milliseconds the clock has been ahead at least, and since when.
    ahead: Option<(i64, Instant)>,
}

impl GuardedClock {
    /// The clock of a gateway that begins: it shows a time long ago, so that nothing is old before the clock is believed.
    pub const fn begin(instant: Instant) -> Self {
        Self::begin_for(instant, BELIEVED_AFTER)
    }

    /// The same for what is promised to be kept for so long: what was recorded by a clock that was days behind is not
    /// old because that is set right. Only what a clock says that has been ahead for so long makes it old.
    pub const fn begin_for(instant: Instant, kept: Duration) -> Self {
        Self {
            believed_after: BELIEVED_AFTER,
            believed_later_after: kept,
            at: Timestamp::from_millis(0),
            since: instant,
            ahead: None,
        }
    }

    /// A clock for what has ended and is only to be written down. It begins with this time, and follows after minutes.
    pub const fn begin_with(clock: Timestamp, instant: Instant) -> Self {
        Self {
            believed_after: BELIEVED_SOON_AFTER,
            believed_later_after: BELIEVED_SOON_AFTER,
            at: clock,
            since: instant,
            ahead: None,
        }
    }

    /// Follows the clock, as far as this time.
    const fn follow(&mut self, at: Timestamp, since: Instant) {
        self.at = at;
        self.since = since;
        self.ahead = None;
        self.believed_after = self.believed_later_after;
    }

    /// What time it is, when the clock says this.
    pub fn now(&mut self, clock: Timestamp, instant: Instant) -> Timestamp {
        let passed = instant.saturating_duration_since(self.since).as_millis();
        let passed = i64::try_from(passed).unwrap_or(i64::MAX);
        let now = self.at.plus_millis(passed);
        let ahead = clock.millis() - now.millis();
        if ahead <= 0 {
            self.follow(clock, instant);
            return clock;
        }
        let (least, first) = self.ahead.unwrap_or((ahead, instant));
        let least = least.min(ahead);
        self.ahead = Some((least, first));
        if instant.saturating_duration_since(first) < self.believed_after {
            return now;
        }
        self.follow(now.plus_millis(least), instant);
        self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: i64 = 60_000;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    /// What times are told from.
    const ZERO: i64 = 50 * YEAR;
    /// When machines start.
    const START: i64 = -2 * HOUR;

    /// A machine: what its clock shows beyond the time that it is, and what time that is.
    struct Machine {
        guarded: GuardedClock,
        start: Instant,
        time: i64,
        wrong: i64,
    }

    impl Machine {
        fn begin() -> Self {
            let start = Instant::now();
            Self {
                guarded: GuardedClock::begin(start),
                start,
                time: START,
                wrong: 0,
            }
        }

        /// One that writes down what has ended.
        fn begin_with_the_clock() -> Self {
            let machine = Self::begin();
            let clock = Timestamp::from_millis(ZERO + START);
            let guarded = GuardedClock::begin_with(clock, machine.start);
            Self { guarded, ..machine }
        }

        /// One that has run for long.
        fn believed() -> Self {
            let mut machine = Self::begin();
            machine.run(-START);
            machine
        }

        /// Asks every minute for so long. Returns what it is told last.
        fn run(&mut self, millis: i64) -> i64 {
            let end = self.time + millis;
            while self.time < end {
                self.time += MINUTE;
                self.now();
            }
            self.now()
        }

        fn now(&mut self) -> i64 {
            let passed = Duration::from_millis((self.time - START).unsigned_abs());
            let clock = Timestamp::from_millis(ZERO + self.time + self.wrong);
            self.guarded.now(clock, self.start + passed).millis() - ZERO
        }
    }

    #[test]
    fn it_is_what_the_clock_says_that_goes_as_time_does() {
        let mut machine = Machine::believed();
        assert_eq!(machine.now(), 0);
        assert_eq!(machine.run(3 * DAY), 3 * DAY);
    }

    #[test]
    fn a_clock_that_jumps_ahead_is_believed_after_an_hour() {
        let mut machine = Machine::believed();
        machine.run(30 * MINUTE);
        machine.wrong = 2 * YEAR;
        assert_eq!(machine.run(59 * MINUTE), 89 * MINUTE);
        assert_eq!(machine.run(2 * MINUTE), 91 * MINUTE + 2 * YEAR);
    }

    #[test]
    fn a_clock_that_is_ahead_for_less_than_an_hour_is_never_believed() {
        let mut machine = Machine::believed();
        for round in 1..=5 {
            machine.wrong = 2 * YEAR;
            assert_eq!(machine.run(50 * MINUTE), (round * 60 - 10) * MINUTE);
            machine.wrong = 0;
            assert_eq!(machine.run(10 * MINUTE), round * 60 * MINUTE);
        }
        // It is followed as far as it was ahead for the whole of an hour.
        machine.wrong = 5 * MINUTE;
        machine.run(50 * MINUTE);
        machine.wrong = 2 * YEAR;
        assert_eq!(machine.run(15 * MINUTE), 5 * HOUR + 70 * MINUTE);
    }

    #[test]
    fn a_clock_that_is_set_back_is_followed_at_once() {
        let mut machine = Machine::believed();
        machine.wrong = -YEAR;
        assert_eq!(machine.run(MINUTE), MINUTE - YEAR);
    }

    #[test]
    fn what_is_only_written_down_waits_for_minutes_and_not_for_a_start() {
        let mut machine = Machine::begin_with_the_clock();
        assert_eq!(machine.now(), START);
        for round in 1..=5 {
            machine.wrong = 2 * YEAR;
            assert_eq!(machine.run(4 * MINUTE), START + (round * 6 - 2) * MINUTE);
            machine.wrong = 0;
            assert_eq!(machine.run(2 * MINUTE), START + round * 6 * MINUTE);
        }
        machine.wrong = 2 * YEAR;
        assert_eq!(machine.run(7 * MINUTE), START + 37 * MINUTE + 2 * YEAR);
        machine.wrong = -YEAR;
        assert_eq!(machine.run(MINUTE), START + 38 * MINUTE - YEAR);
    }

    #[test]
    fn what_is_promised_for_days_waits_for_days_behind_a_jump_and_for_an_hour_at_a_start() {
        let mut machine = Machine::begin();
        machine.guarded = GuardedClock::begin_for(machine.start, Duration::from_hours(72));
        assert_eq!(machine.run(59 * MINUTE), 59 * MINUTE - ZERO);
        assert_eq!(machine.run(61 * MINUTE), 0);
        machine.wrong = 2 * DAY;
        assert_eq!(machine.run(71 * HOUR), 71 * HOUR);
        assert_eq!(machine.run(2 * HOUR), 73 * HOUR + 2 * DAY);
        machine.wrong = 0;
        assert_eq!(machine.run(HOUR), 74 * HOUR);
    }

    #[test]
    fn a_gateway_that_begins_while_the_clock_is_ahead_waits_an_hour() {
        let mut machine = Machine::begin();
        machine.wrong = 2 * YEAR;
        assert_eq!(machine.run(59 * MINUTE), 59 * MINUTE - ZERO);
        machine.wrong = 0;
        assert_eq!(machine.run(2 * MINUTE), START + 61 * MINUTE);
    }
}
