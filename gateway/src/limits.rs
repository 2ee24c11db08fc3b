//! Token buckets: of a tenant and of an agent. All are looked at before any is taken from.
//!
//! A bucket is in memory, on this gateway alone, and only while it is not full: an idle agent costs nothing.

use crate::http::{Code, Refusal};
use axum::http::{HeaderName, HeaderValue, header};
use model::{Agent, AgentId, Bucket, Tenant, TenantId, Timestamp};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// What a caller is told to wait when a bucket never refills.
const NEVER_REFILLS_SECONDS: u64 = 86_400;
/// Buckets in memory before the full ones among them are looked for and forgotten.
const SWEEP_AT_LEAST: usize = 4_096;

/// What may be missing of a whole token: sums of many small refills lose a little, and nobody should wait for that.
const ROUNDING: f64 = 1e-6;

/// Whose bucket it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Owner {
    Tenant(TenantId),
    Agent(AgentId),
}

impl Owner {
    /// The name of the policy in the headers.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant(_) => "tenant",
            Self::Agent(_) => "agent",
        }
    }
}

/// How full a bucket was, and when.
#[derive(Debug, Clone, Copy)]
struct Level {
    tokens: f64,
    at: Timestamp,
    size: Bucket,
}

impl Level {
    /// The level of a bucket of this size at this time. A size that was changed counts from now on.
    fn now(known: Option<&Self>, size: Bucket, now: Timestamp) -> Self {
        let capacity = f64::from(size.capacity());
        let tokens = known.map_or(capacity, |level| level.tokens + level.gained_until(now));
        Self {
            tokens: tokens.min(capacity),
            at: known.map_or(now, |level| level.at.max(now)),
            size,
        }
    }

    fn gained_until(&self, now: Timestamp) -> f64 {
        // A clock that was set back gives nothing, rather than taking tokens away.
        let millis = u32::try_from(now.millis() - self.at.millis()).unwrap_or(if now > self.at {
            u32::MAX
        } else {
            0
        });
        f64::from(millis) / 1_000.0 * self.size.refill_per_second()
    }

    fn is_full_at(&self, now: Timestamp) -> bool {
        self.tokens + self.gained_until(now) >= f64::from(self.size.capacity())
    }

    fn has(&self, tokens: f64) -> bool {
        self.tokens + ROUNDING >= tokens
    }

    fn whole_tokens(&self) -> u64 {
        whole(self.tokens + ROUNDING)
    }

    /// Whole seconds until there are this many tokens, rounded up: never earlier than true.
    fn seconds_until(&self, tokens: f64) -> u64 {
        let refill = self.size.refill_per_second();
        let missing = tokens - self.tokens - ROUNDING;
        if missing <= 0.0 {
            return 0;
        }
        let seconds = (missing / refill).ceil();
        if seconds < 1e9 {
            whole(seconds).max(1)
        } else {
            NEVER_REFILLS_SECONDS
        }
    }
}

/// A float that is known to be small, not negative and whole.
fn whole(number: f64) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the callers bound it; a cast saturates in any case"
    )]
    let whole = number as u64;
    whole
}

/// All buckets that are not full.
pub struct Limits {
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

/// How full a bucket is, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Whole tokens in it.
    pub tokens: u64,
    /// Whole seconds until it is full.
    pub full_in_seconds: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self::new()
    }
}

impl Limits {
    /// All buckets full.
    pub fn new() -> Self {
        Self {
            levels: Mutex::new(Levels {
                known: HashMap::new(),
                sweep_at: SWEEP_AT_LEAST,
            }),
        }
    }

    /// Takes `cost` tokens from every bucket that applies, or from none.
    pub fn admit(&self, tenant: &Tenant, agent: &Agent, cost: u32, now: Timestamp) -> Result<(), Refusal> {
        self.pass(tenant, agent, cost, now, true)
    }

    /// Whether [`admit`](Self::admit) would let it pass. Takes nothing.
    pub fn probe(&self, tenant: &Tenant, agent: &Agent, cost: u32, now: Timestamp) -> Result<(), Refusal> {
        self.pass(tenant, agent, cost, now, false)
    }

    /// How full an agent's own bucket is.
    pub fn agent_remaining(&self, agent: &Agent, now: Timestamp) -> Option<Remaining> {
        agent
            .bucket
            .map(|size| self.remaining(Owner::Agent(agent.id), size, now))
    }

    /// How full a tenant's bucket is.
    pub fn tenant_remaining(&self, tenant: &Tenant, now: Timestamp) -> Option<Remaining> {
        tenant
            .bucket
            .map(|size| self.remaining(Owner::Tenant(tenant.id), size, now))
    }

    fn remaining(&self, owner: Owner, size: Bucket, now: Timestamp) -> Remaining {
        let levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let level = Level::now(levels.known.get(&owner), size, now);
        Remaining {
            tokens: level.whole_tokens(),
            full_in_seconds: level.seconds_until(f64::from(size.capacity())),
        }
    }

    fn pass(
        &self,
        tenant: &Tenant,
        agent: &Agent,
        cost: u32,
        now: Timestamp,
        take: bool,
    ) -> Result<(), Refusal> {
        let sizes = [
            (Owner::Tenant(tenant.id), tenant.bucket),
            (Owner::Agent(agent.id), agent.bucket),
        ];
        if sizes.iter().all(|(_, size)| size.is_none()) {
            return Ok(());
        }
        let cost = f64::from(cost);
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        let mut taken = Vec::with_capacity(sizes.len());
        for (owner, size) in sizes {
            let Some(size) = size else { continue };
            let mut level = Level::now(levels.known.get(&owner), size, now);
            if !level.has(cost) {
                return Err(limited(owner, &level, cost));
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

/// The refusal, with the headers of RFC 9110 and of the IETF draft on rate limit headers.
fn limited(owner: Owner, level: &Level, cost: f64) -> Refusal {
    let wait = level.seconds_until(cost);
    let capacity = level.size.capacity();
    let window = level.size.refill_per_second().recip() * f64::from(capacity);
    let window = if window.is_finite() {
        whole(window.ceil()).max(1)
    } else {
        NEVER_REFILLS_SECONDS
    };
    let name = owner.as_str();
    let text = |text: String| HeaderValue::from_str(&text).expect("digits and plain words are visible ASCII");
    Refusal::new(
        Code::RateLimited,
        format!("the {name}'s bucket of {capacity} asks is empty; ask again in {wait} s"),
    )
    .with_header(header::RETRY_AFTER, HeaderValue::from(wait))
    .with_header(
        RATE_LIMIT_POLICY,
        text(format!("\"{name}\";q={capacity};w={window}")),
    )
    .with_header(
        RATE_LIMIT,
        text(format!("\"{name}\";r={};t={wait}", level.whole_tokens())),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

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
