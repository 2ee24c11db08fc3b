//! Buckets of this gateway alone: in memory, and only while they are not full, so an idle agent costs nothing.

use super::{Asking, IfEnough, Lacking, Level, Owner, Remaining, refusal_of_last};
use crate::http::Refusal;
use crate::locks::lock;
use model::{Bucket, Timestamp};
use std::collections::HashMap;
use std::sync::Mutex;

/// Buckets in memory before the full ones among them are looked for and forgotten.
const SWEEP_AT_LEAST: usize = 4_096;

/// All buckets that are not full.
pub struct Local {
    /// Held for a few look-ups at a time and never across an `await`.
    levels: Mutex<Levels>,
}

struct Levels {
    known: HashMap<Owner, Level>,
    /// How many there may be before the full ones among them are forgotten.
    sweep_at: usize,
}

impl Levels {
    /// The level of a bucket now. One that was set anew has refilled by its old size until somebody looks at it.
    fn now(&mut self, owner: &Owner, size: Bucket, now: Timestamp) -> Level {
        let Some(known) = self.known.get_mut(owner) else {
            return Level::now(None, size, now);
        };
        let level = Level::now(Some(&*known), size, now);
        // Both are kept also where nothing is taken: whoever is refused waits for what comes back by the new size, and
        // from a clock that was set back.
        if known.size == size {
            known.at = known.at.min(level.at);
        } else {
            *known = level;
        }
        level
    }

    fn keep(&mut self, taken: Vec<(Owner, Level)>, now: Timestamp) {
        self.known.extend(taken);
        if self.known.len() >= self.sweep_at {
            self.forget_full(now);
        }
    }

    fn forget_full(&mut self, now: Timestamp) {
        self.known.retain(|_, level| !level.is_full_at(now));
        // Looking at all of them again is worth it only when there are twice as many.
        self.sweep_at = SWEEP_AT_LEAST.max(self.known.len() * 2);
        self.known.shrink_to(self.sweep_at);
    }
}

impl Default for Local {
    fn default() -> Self {
        Self::new()
    }
}

impl Local {
    /// All buckets full.
    pub fn new() -> Self {
        Self {
            levels: Mutex::new(Levels {
                known: HashMap::new(),
                sweep_at: SWEEP_AT_LEAST,
            }),
        }
    }

    /// Takes what an ask costs from every bucket that applies, or from none.
    pub fn take(&self, asking: &Asking<'_>, now: Timestamp) -> Result<(), Refusal> {
        self.pass(asking, now, IfEnough::Take)
    }

    /// Whether [`take`](Self::take) would find enough. Takes nothing.
    pub fn peek(&self, asking: &Asking<'_>, now: Timestamp) -> Result<(), Refusal> {
        self.pass(asking, now, IfEnough::Leave)
    }

    /// How full a bucket is.
    pub(super) fn remaining(&self, owner: &Owner, size: Bucket, now: Timestamp) -> Remaining {
        let mut levels = lock(&self.levels);
        Remaining::of(&levels.now(owner, size, now), now)
    }

    /// Forgets buckets that are full again, and returns how many. Asks do it only while there are more and more of
    /// them, so it is to be called every now and then.
    pub fn forget_full(&self, now: Timestamp) -> usize {
        let mut levels = lock(&self.levels);
        let before = levels.known.len();
        levels.forget_full(now);
        before - levels.known.len()
    }

    fn pass(&self, asking: &Asking<'_>, now: Timestamp, if_enough: IfEnough) -> Result<(), Refusal> {
        let mut buckets = asking.buckets().peekable();
        if buckets.peek().is_none() {
            return Ok(());
        }
        let mut levels = lock(&self.levels);
        let (mut taken, mut lacking) = (Vec::with_capacity(2), Vec::new());
        for (owner, size) in buckets {
            let mut level = levels.now(&owner, size, now);
            let cost = f64::from(size.cost());
            if level.has(cost) {
                level.tokens -= cost;
                taken.push((owner, level));
            } else {
                let wait = level.seconds_until(cost, now);
                lacking.push(Lacking { owner, level, wait });
            }
        }
        if let Some(refusal) = refusal_of_last(lacking) {
            return Err(refusal);
        }
        if if_enough == IfEnough::Take {
            levels.keep(taken, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Whose;
    use model::AgentId;

    fn owner(number: u128) -> Owner {
        Owner {
            whose: Whose::Agent(AgentId::from_bytes(number.to_be_bytes())),
            tool: None,
        }
    }

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        let size = Bucket::new(1, 1.0).expect("one token a second is a bucket");
        let level = |at| Level {
            tokens: 0.0,
            at: Timestamp::from_millis(at),
            size,
        };
        let mut levels = Levels {
            known: HashMap::new(),
            sweep_at: SWEEP_AT_LEAST,
        };
        let all = (0..SWEEP_AT_LEAST as u128 - 1)
            .map(|number| (owner(number), level(0)))
            .collect();
        levels.keep(all, Timestamp::from_millis(0));
        assert_eq!(levels.known.len(), SWEEP_AT_LEAST - 1);
        levels.keep(
            vec![(owner(u128::MAX), level(2_000))],
            Timestamp::from_millis(2_000),
        );
        assert_eq!(levels.known.len(), 1);
    }

    #[test]
    fn a_bucket_that_refills_over_months_has_its_token_then() {
        const DAY_MILLIS: i64 = 86_400_000;
        let size = Bucket::new(1, 1.0 / 5_184_000.0).expect("one token in 60 days is a bucket");
        let empty = Level {
            tokens: 0.0,
            at: Timestamp::from_millis(0),
            size,
        };
        let after = |days| Timestamp::from_millis(days * DAY_MILLIS);
        for (days, has_one) in [(49, false), (59, false), (60, true), (73_000, true)] {
            let level = Level::now(Some(&empty), size, after(days));
            assert_eq!(level.has(1.0), has_one, "{days} days: {level:?}");
        }
        assert!(!empty.is_full_at(after(59)) && empty.is_full_at(after(61)));
        // The last of it is rounding.
        let early = Level::now(Some(&empty), size, after(50));
        assert_eq!(early.seconds_until(1.0, after(50)), Some(10 * 86_400 - 5));
        let behind = Level::now(Some(&empty), size, after(-60));
        assert_eq!(behind.tokens.to_bits(), 0.0_f64.to_bits());
    }

    #[test]
    fn many_at_once_are_forgotten_and_leave_no_room_behind() {
        let size = Bucket::new(1, 1.0).expect("one token a second is a bucket");
        let at = Timestamp::from_millis;
        let empty = Level {
            tokens: 0.0,
            at: at(0),
            size,
        };
        let limits = Local::new();
        let all = (0..10_000).map(|number| (owner(number), empty));
        let mut levels = limits.levels.lock().expect("nobody panics with it");
        levels.keep(all.collect(), at(0));
        assert_eq!((levels.known.len(), levels.sweep_at), (10_000, 20_000));
        drop(levels);
        assert_eq!(limits.forget_full(at(999)), 0);
        assert_eq!(limits.forget_full(at(1_000)), 10_000);
        let levels = limits.levels.lock().expect("nobody panics with it");
        assert_eq!((levels.known.len(), levels.sweep_at), (0, SWEEP_AT_LEAST));
        assert!(levels.known.capacity() < 10_000);
    }
}
