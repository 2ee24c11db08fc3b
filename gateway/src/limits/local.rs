//! Buckets of this gateway alone: in memory, and only while they are not full, so an idle agent costs nothing.

use super::{Asking, Level, Owner, Remaining, limited};
use crate::http::Refusal;
use model::{Agent, Bucket, Tenant, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

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
    fn keep(&mut self, taken: Vec<(Owner, Level)>, now: Timestamp) {
        self.known.extend(taken);
        if self.known.len() >= self.sweep_at {
            self.known.retain(|_, level| !level.is_full_at(now));
            // Looking at all of them again is worth it only when there are twice as many.
            self.sweep_at = SWEEP_AT_LEAST.max(self.known.len() * 2);
        }
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
    pub fn admit(&self, asking: &Asking<'_>, now: Timestamp) -> Result<(), Refusal> {
        self.pass(asking, now, true)
    }

    /// Whether [`admit`](Self::admit) would let it pass. Takes nothing.
    pub fn probe(&self, asking: &Asking<'_>, now: Timestamp) -> Result<(), Refusal> {
        self.pass(asking, now, false)
    }

    /// How full an agent's own bucket is.
    pub fn agent_remaining(&self, agent: &Agent, now: Timestamp) -> Option<Remaining> {
        let size = agent.limits.bucket?;
        Some(self.remaining(&Owner::Agent(agent.id), size, now))
    }

    /// How full a tenant's own bucket is.
    pub fn tenant_remaining(&self, tenant: &Tenant, now: Timestamp) -> Option<Remaining> {
        let size = tenant.limits.bucket?;
        Some(self.remaining(&Owner::Tenant(tenant.id), size, now))
    }

    pub(super) fn remaining(&self, owner: &Owner, size: Bucket, now: Timestamp) -> Remaining {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        Remaining::of(&Level::now(levels.known.get(owner), size, now))
    }

    fn pass(&self, asking: &Asking<'_>, now: Timestamp, take: bool) -> Result<(), Refusal> {
        let mut buckets = asking.buckets().peekable();
        if buckets.peek().is_none() {
            return Ok(());
        }
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::with_capacity(2);
        for (owner, size) in buckets {
            let mut level = Level::now(levels.known.get(&owner), size, now);
            let cost = f64::from(size.cost());
            if !level.has(cost) {
                return Err(limited(&owner, &level, level.seconds_until(cost)));
            }
            level.tokens -= cost;
            taken.push((owner, level));
        }
        if take {
            levels.keep(taken, now);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::AgentId;

    #[test]
    fn buckets_that_are_full_again_are_forgotten() {
        let size = Bucket::new(1, 1.0).expect("one token a second is a bucket");
        let level = |at| Level {
            tokens: 0.0,
            at: Timestamp::from_millis(at),
            size,
        };
        let owner = |number: u128| Owner::Agent(AgentId::from_bytes(number.to_be_bytes()));
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
}
