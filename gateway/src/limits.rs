//! Token buckets: of a tenant and of an agent. All are looked at before any is taken from.
//!
//! - [`Local`]: buckets of this gateway alone; with N gateways there are N of each;
//! - `shared`: one bucket for all gateways, for tenants that set `limits.shared`.

mod local;
mod shared;

pub use local::Local;

use crate::http::{Code, Refusal};
use axum::http::{HeaderName, HeaderValue, header};
use model::{Agent, AgentId, Bucket, Tenant, TenantId, Timestamp};
use shared::{Shared, Shortage};
use std::sync::Arc;
use std::time::Duration;
use store::{Lease, Store, StoreError};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// What a caller is told to wait when a bucket never refills.
const NEVER_REFILLS_SECONDS: u64 = 86_400;

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

/// How full a bucket is, for those who ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Remaining {
    /// Whole tokens in it.
    pub tokens: u64,
    /// Whole seconds until it is full.
    pub full_in_seconds: u64,
}

impl Remaining {
    fn of(level: &Level) -> Self {
        Self {
            tokens: level.whole_tokens(),
            full_in_seconds: level.seconds_until(f64::from(level.size.capacity())),
        }
    }
}

/// All buckets.
pub struct Limits {
    local: Local,
    shared: Shared,
}

/// Whether an ask may pass.
pub enum Admission {
    /// It may.
    Admitted,
    /// Tokens have to be lent first, with [`Limits::fill`].
    Short(Short),
}

/// Where tokens are missing.
pub struct Short(Vec<Shortage>);

impl Limits {
    /// All buckets full; those that are shared are in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            local: Local::new(),
            shared: Shared::new(store),
        }
    }

    /// Takes `cost` tokens from every bucket that applies, or from none.
    pub fn admit(
        &self,
        tenant: &Tenant,
        agent: &Agent,
        cost: u32,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        if tenant.settings.limits.shared {
            return Ok(self.shared.pass(&wanted(tenant, agent, cost), true));
        }
        self.local
            .admit(tenant, agent, cost, now)
            .map(|()| Admission::Admitted)
    }

    /// Whether [`admit`](Self::admit) would let it pass. Takes nothing.
    pub fn probe(
        &self,
        tenant: &Tenant,
        agent: &Agent,
        cost: u32,
        now: Timestamp,
    ) -> Result<Admission, Refusal> {
        if tenant.settings.limits.shared {
            return Ok(self.shared.pass(&wanted(tenant, agent, cost), false));
        }
        self.local
            .probe(tenant, agent, cost, now)
            .map(|()| Admission::Admitted)
    }

    /// Has tokens of shared buckets lent; a refusal if there are none.
    pub async fn fill(&self, short: &Short) -> Result<(), Refusal> {
        self.shared.fill(&short.0).await
    }

    /// Gives back what was lent and nobody has asked for in a while. To be called every now and then.
    pub async fn give_back_idle(&self) -> Result<(), StoreError> {
        self.shared.give_back_idle().await
    }

    /// How full an agent's own bucket is.
    pub async fn agent_remaining(
        &self,
        tenant: &Tenant,
        agent: &Agent,
        now: Timestamp,
    ) -> Result<Option<Remaining>, StoreError> {
        match agent.bucket {
            Some(size) if tenant.settings.limits.shared => {
                let want = Shortage::of(tenant, Owner::Agent(agent.id), size, 0);
                self.shared.remaining(&want).await.map(Some)
            }
            _ => Ok(self.local.agent_remaining(agent, now)),
        }
    }

    /// How full a tenant's bucket is.
    pub async fn tenant_remaining(
        &self,
        tenant: &Tenant,
        now: Timestamp,
    ) -> Result<Option<Remaining>, StoreError> {
        match tenant.bucket {
            Some(size) if tenant.settings.limits.shared => {
                let want = Shortage::of(tenant, Owner::Tenant(tenant.id), size, 0);
                self.shared.remaining(&want).await.map(Some)
            }
            _ => Ok(self.local.tenant_remaining(tenant, now)),
        }
    }
}

/// The buckets that an ask takes from.
fn wanted(tenant: &Tenant, agent: &Agent, cost: u32) -> Vec<Shortage> {
    let buckets = [
        (Owner::Tenant(tenant.id), tenant.bucket),
        (Owner::Agent(agent.id), agent.bucket),
    ];
    let want = |(owner, size): (Owner, Option<Bucket>)| Some(Shortage::of(tenant, owner, size?, cost));
    buckets.into_iter().filter_map(want).collect()
}

/// The refusal of a bucket that could not lend enough.
fn limited_by_lease(owner: Owner, size: Bucket, lease: Lease) -> Refusal {
    let level = Level {
        tokens: lease.left,
        at: Timestamp::from_millis(0),
        size,
    };
    let wait = lease.wait.unwrap_or(Duration::from_secs(NEVER_REFILLS_SECONDS));
    limited(
        owner,
        &level,
        whole(wait.as_secs_f64().ceil()).clamp(1, NEVER_REFILLS_SECONDS),
    )
}

/// The refusal, with the headers of RFC 9110 and of the IETF draft on rate limit headers.
fn limited(owner: Owner, level: &Level, wait: u64) -> Refusal {
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
