//! How much work a question may be, counted in steps before it is done: whoever answers many on one thread gives each a
//! little fuel, and has those that would need more answered elsewhere. What is counted follows from the question and the
//! policies alone, so it is the same however busy the machine is.
//!
//! A step is what a pattern takes for one character of a text, about a nanosecond. All else counts as so many as it takes
//! nanoseconds, within a factor of two: a policy that is found 64, where it is evaluated 64 more, and as many in each ruling
//! that is made with it; each of its obligations 32 in each ruling, and a part of its condition 32; and a team of
//! whoever is asked about 512 (`case`).
//!
//! Where the fuel does not suffice, policies are not evaluated and parameters not checked, so nothing that is said then is
//! an answer: whoever gives fuel has to ask whether it was used up before looking at anything else.
//!
//! There is also fuel for as long as somebody says so, for work that may take as long as it does, but goes on in turns
//! and not for nobody.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How many steps have their turn on a thread that others wait for: two milliseconds of it, about. A pattern of thirty
/// characters about a text of ten kilobytes is a seventh of that.
const WORKER_STEPS: u64 = 1 << 21;
/// How many steps an ask has that is little work: a quarter of a millisecond.
const SHORT_ASK_STEPS: u64 = 1 << 18;
/// How many steps of the check of parameters are one of those.
const CHECK_STEPS: u64 = 4;

/// The fuel that is left. It is used up for good by the first piece of work that would need more than there is.
pub struct Fuel {
    given: u64,
    // They are one question's, which is answered on one thread, and atomic only so that a question may be sent to one.
    left: AtomicU64,
    is_used_up: AtomicBool,
    /// Asked for each piece of work that would need more than there is; none where that uses it up.
    goes_on: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

impl fmt::Debug for Fuel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fuel")
            .field("given", &self.given)
            .field("left", &self.left)
            .field("is_used_up", &self.is_used_up)
            .finish_non_exhaustive()
    }
}

impl Fuel {
    /// As much as one ask may take of a thread that others wait for.
    pub const fn for_a_worker() -> Self {
        Self::of(WORKER_STEPS)
    }

    /// As much as an ask takes that is little work.
    pub const fn for_a_short_ask() -> Self {
        Self::of(SHORT_ASK_STEPS)
    }

    /// Whatever it takes, as long as this says so, which is asked before each piece of work: it may wait, or say that
    /// nobody wants to know any more. Then it is used up for good.
    pub fn while_it_goes_on(goes_on: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        // There is never enough, so the question comes up each time, and nobody else's fuel is looked at more closely.
        Self {
            goes_on: Some(Box::new(goes_on)),
            ..Self::of(0)
        }
    }

    const fn of(given: u64) -> Self {
        Self {
            given,
            left: AtomicU64::new(given),
            is_used_up: AtomicBool::new(false),
            goes_on: None,
        }
    }

    /// Whether it was given for an ask that is little work.
    pub const fn is_for_a_short_ask(&self) -> bool {
        self.given == SHORT_ASK_STEPS
    }

    /// How many steps were taken: those that were done, and not what there was too little for.
    pub(crate) fn taken(&self) -> u64 {
        self.given - self.left()
    }

    /// How many steps whoever asks is charged with: those that were taken; or all that were given, where something
    /// needed more. That may have been counted one by one until it was too much, as the check of parameters is.
    pub fn charged(&self) -> u64 {
        if self.is_used_up() {
            self.given
        } else {
            self.taken()
        }
    }

    /// Whether whoever asks is charged with less than an ask has that is little work.
    pub fn suits_a_short_ask(&self) -> bool {
        self.charged() < SHORT_ASK_STEPS
    }

    /// Whether something needed more than there was, so that nothing that was said is an answer.
    pub fn is_used_up(&self) -> bool {
        self.is_used_up.load(Ordering::Relaxed)
    }

    /// Takes what so many steps need. Returns whether there was more than that.
    pub fn take(&self, steps: u64) -> bool {
        let left = self.left();
        if steps >= left || self.is_used_up() {
            return self.takes_more();
        }
        self.left.store(left - steps, Ordering::Relaxed);
        true
    }

    /// Whether there is more than was counted. It is used up if not.
    #[cold]
    fn takes_more(&self) -> bool {
        let has_more = !self.is_used_up() && self.goes_on.as_ref().is_some_and(|goes_on| goes_on());
        if !has_more {
            self.is_used_up.store(true, Ordering::Relaxed);
        }
        has_more
    }

    /// Takes what so many steps of the check of parameters need. Returns whether there was more than that.
    pub(crate) fn take_for_check(&self, steps: usize) -> bool {
        self.take(steps as u64 / CHECK_STEPS)
    }

    /// How many steps the check of parameters may take.
    pub(crate) fn check_steps(&self) -> usize {
        if self.is_used_up() {
            return 0;
        }
        if self.goes_on.is_some() {
            return usize::MAX;
        }
        usize::try_from(self.left().saturating_mul(CHECK_STEPS)).unwrap_or(usize::MAX)
    }

    fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn what_needs_more_than_there_is_uses_it_up_for_good() {
        let fuel = Fuel::for_a_worker();
        assert!(fuel.take(WORKER_STEPS - 10) && fuel.take_for_check(9 * 4));
        assert!(!fuel.is_used_up());
        assert_eq!(fuel.check_steps(), 4);
        assert!(!fuel.suits_a_short_ask() && fuel.taken() == WORKER_STEPS - 1);
        assert_eq!(fuel.charged(), WORKER_STEPS - 1);
        assert!(!fuel.take(1) && fuel.is_used_up());
        assert!(!fuel.take(0) && fuel.is_used_up());
        assert_eq!((fuel.taken(), fuel.check_steps()), (WORKER_STEPS - 1, 0));
        assert_eq!(fuel.charged(), WORKER_STEPS);
        let short = Fuel::for_a_short_ask();
        assert!(short.suits_a_short_ask() && !short.take(SHORT_ASK_STEPS));
        assert!(!short.suits_a_short_ask() && short.taken() == 0);
    }

    #[test]
    fn what_goes_on_has_whatever_it_takes_until_somebody_says_that_it_does_not() {
        let said = Arc::new(AtomicBool::new(true));
        let asked = Arc::clone(&said);
        let fuel = Fuel::while_it_goes_on(move || asked.load(Ordering::Relaxed));
        for _ in 0..2 {
            assert!(fuel.take(0) && fuel.take(u64::MAX) && fuel.take_for_check(usize::MAX));
            assert!(!fuel.is_used_up() && fuel.check_steps() == usize::MAX);
        }
        said.store(false, Ordering::Relaxed);
        assert!(!fuel.is_used_up());
        assert!(!fuel.take(0) && fuel.is_used_up());
        said.store(true, Ordering::Relaxed);
        assert!(!fuel.take(0) && fuel.check_steps() == 0);
    }
}
