//! Limits. Token buckets, of a tenant, of an agent, and of a tool as far as one of them uses it: all are looked at before any is
//! taken from.
//!
//! - [`Local`]: buckets of this gateway alone; with N gateways there are N of each;
//! - `shared`: one bucket for all gateways, for tenants that set `limits.shared`;
//! - [`quota`]: what callers are told of quotas, which are counted in the commit (`engine::quotas`).

mod local;
mod passing;
pub mod quota;
mod shared;
mod to_the_end;

pub use local::Local;

use crate::http::{Code, Refusal};
use axum::http::{HeaderName, HeaderValue, header};
use model::{Agent, AgentId, Bucket, LimitTerms, SlashFreeName, Tenant, TenantId, Timestamp};
use shared::{Shared, Want};
use std::sync::Arc;
use store::{Lease, Store, StoreError};

const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
/// What a caller is told to wait where waiting does not help, and in how many seconds a bucket is told to be full that
/// never refills.
const NEVER_REFILLS_SECONDS: u64 = 86_400;
/// A wait that is longer than this, thirty years, is one without end, and so is a window.
const WAIT_SECONDS_MAX: f64 = 1e9;
/// A clock that is behind by more than this was set back, and buckets refill from there. What is less may be threads
/// that read it one after the other and come here the other way round: were the earlier time taken then, each of them
/// would gain something.
pub(crate) const OUT_OF_ORDER_MILLIS: i64 = 5_000;

/// What may be missing of a whole token: sums of many small refills lose a little, and nobody should wait for that.
const ROUNDING: f64 = 1e-6;

/// Who asks, and for which tool.
#[derive(Debug, Clone, Copy)]
pub struct Asking<'a> {
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The agent.
    pub agent: &'a Agent,
    /// The tool.
    pub tool: &'a str,
}

impl Asking<'_> {
    /// The buckets that this takes from. What others do with a tool that the agent has no grant for is none of its
    /// business: it takes nothing from the tenant's bucket for that, and is not told when that is empty. A trap is no
    /// exception, so nobody tells one by its bucket.
    fn buckets(&self) -> impl Iterator<Item = (Owner, Bucket)> {
        let (tenant, agent) = (self.tenant, self.agent);
        let (of_tenant, of_agent) = (Whose::Tenant(tenant.id), Whose::Agent(agent.id));
        let of_tool = of_tenant.tool_bucket(&tenant.limits, self.tool);
        let buckets = [
            of_tenant.own_bucket(&tenant.limits),
            of_agent.own_bucket(&agent.limits),
            of_tool.filter(|_| agent.tools.includes(self.tool)),
            of_agent.tool_bucket(&agent.limits, self.tool),
        ];
        buckets.into_iter().flatten()
    }
}

/// Who has buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Whose {
    /// A tenant, for all of its agents together.
    Tenant(TenantId),
    /// An agent.
    Agent(AgentId),
}

impl Whose {
    /// All buckets that these limits give: the one that every ask takes from, and behind it those of tools, in their
    /// order.
    fn buckets(self, limits: &LimitTerms) -> impl Iterator<Item = (Owner, Bucket)> {
        let of_tools = limits.tool_buckets.iter();
        let of_tools = of_tools.map(move |(tool, size)| (self.owner(Some(tool)), *size));
        self.own_bucket(limits).into_iter().chain(of_tools)
    }

    /// The bucket that every ask takes from.
    fn own_bucket(self, limits: &LimitTerms) -> Option<(Owner, Bucket)> {
        limits.bucket.map(|size| (self.owner(None), size))
    }

    /// The bucket that asks for this tool take from, too.
    fn tool_bucket(self, limits: &LimitTerms, tool: &str) -> Option<(Owner, Bucket)> {
        let (tool, size) = limits.tool_buckets.get_key_value(tool)?;
        Some((self.owner(Some(tool)), *size))
    }

    fn owner(self, tool: Option<&SlashFreeName>) -> Owner {
        Owner {
            whose: self,
            tool: tool.cloned(),
        }
    }
}

/// Whose bucket it is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Owner {
    whose: Whose,
    /// For which tool, unless every ask takes from it.
    tool: Option<SlashFreeName>,
}

impl Owner {
    /// The name of the policy in the headers.
    const fn as_str(&self) -> &'static str {
        match (self.whose, self.tool.is_some()) {
            (Whose::Tenant(_), false) => "tenant",
            (Whose::Agent(_), false) => "agent",
            (Whose::Tenant(_), true) => "tenant-tool",
            (Whose::Agent(_), true) => "agent-tool",
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
            at: known.map_or(now, |level| level.refills_from(now)),
            size,
        }
    }

    /// From when on it refills, when it is looked at now.
    fn refills_from(&self, now: Timestamp) -> Timestamp {
        if self.at.millis() - now.millis() > OUT_OF_ORDER_MILLIS {
            now
        } else {
            self.at.max(now)
        }
    }

    fn gained_until(&self, now: Timestamp) -> f64 {
        let passed = now.millis() - self.at.millis();
        let seconds = match u32::try_from(passed) {
            Ok(millis) => f64::from(millis) / 1_000.0,
            // A clock that was set back gives nothing, rather than taking tokens away.
            Err(_) if passed < 0 => 0.0,
            // So much later, parts of a second do not matter.
            Err(_) => f64::from(u32::try_from(passed / 1_000).unwrap_or(u32::MAX)),
        };
        seconds * self.size.refill_per_second()
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

    /// Whole seconds from now until there are this many tokens, rounded up: never earlier than true. `None`: there never are.
    fn seconds_until(&self, tokens: f64, now: Timestamp) -> Option<u64> {
        let missing = tokens - self.tokens - ROUNDING;
        if missing <= 0.0 {
            return Some(0);
        }
        // A clock that is a little behind has to catch up first.
        let behind = u32::try_from(self.at.millis() - now.millis()).unwrap_or_default();
        whole_seconds(missing / self.size.refill_per_second() + f64::from(behind) / 1_000.0)
    }
}

/// A wait, or a window, in whole seconds, rounded up; none if it is one without end.
fn whole_seconds(wait: f64) -> Option<u64> {
    let seconds = wait.ceil();
    (seconds < WAIT_SECONDS_MAX).then(|| whole(seconds).max(1))
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
    /// Whole seconds until it is full; a day where it never will be.
    pub full_in_seconds: u64,
}

impl Remaining {
    fn of(level: &Level, now: Timestamp) -> Self {
        let full_in = level.seconds_until(f64::from(level.size.capacity()), now);
        Self {
            tokens: level.whole_tokens(),
            full_in_seconds: full_in.unwrap_or(NEVER_REFILLS_SECONDS),
        }
    }
}

/// How full the buckets of one owner are.
#[derive(Debug, Default)]
pub struct BucketsLeft {
    /// The one that every ask takes from.
    pub own: Option<Remaining>,
    /// Those that asks for one tool take from, too, in the order of the tools.
    pub tools: Vec<(SlashFreeName, Bucket, Remaining)>,
}

/// All buckets.
pub struct Limits {
    local: Local,
    shared: Arc<Shared>,
}

/// Whether all buckets have what an ask costs.
pub enum Tokens {
    /// They have.
    Enough,
    /// Of shared buckets too few tokens are here: more have to be lent first, with [`Limits::fill`], or looked for,
    /// with [`Limits::check`].
    Short(Short),
}

/// Where tokens are missing.
pub struct Short(Vec<Want>);

/// What is done with the tokens that an ask costs, if there are enough of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfEnough {
    Take,
    Leave,
}

impl Limits {
    /// All buckets full; those that are shared are in this store.
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            local: Local::new(),
            shared: Arc::new(Shared::new(store)),
        }
    }

    /// Takes what an ask costs from every bucket that applies, or from none.
    pub fn take(&self, asking: &Asking<'_>, now: Timestamp) -> Result<Tokens, Refusal> {
        if asking.tenant.settings.limits.shared {
            return Ok(self.shared.pass(&wanted(asking), IfEnough::Take));
        }
        self.local.take(asking, now).map(|()| Tokens::Enough)
    }

    /// What [`take`](Self::take) would find. Takes nothing.
    pub fn peek(&self, asking: &Asking<'_>, now: Timestamp) -> Result<Tokens, Refusal> {
        if asking.tenant.settings.limits.shared {
            return Ok(self.shared.pass(&wanted(asking), IfEnough::Leave));
        }
        self.local.peek(asking, now).map(|()| Tokens::Enough)
    }

    /// Has tokens of shared buckets lent; a refusal if there are none.
    pub async fn fill(&self, short: &Short) -> Result<(), Refusal> {
        self.shared.fill(&short.0).await
    }

    /// A refusal if shared buckets have too few tokens to be lent. Unlike [`fill`](Self::fill) it has none lent.
    pub async fn check(&self, short: &Short) -> Result<(), Refusal> {
        self.shared.check(&short.0).await
    }

    /// Gives back what was lent and nobody has asked for in a while. To be called every now and then.
    pub async fn give_back_idle(&self) -> Result<(), StoreError> {
        self.shared.give_back_idle().await
    }

    /// Forgets buckets of this gateway alone that are full again. To be called every now and then.
    pub fn forget_full(&self, now: Timestamp) {
        self.local.forget_full(now);
    }

    /// Has the shared buckets of a tenant, or of an agent of it, refill by the sizes that these limits give them now.
    /// Those of this gateway alone do when somebody looks at them.
    pub async fn resize(&self, tenant: &Tenant, whose: Whose, limits: &LimitTerms) -> Result<(), StoreError> {
        if tenant.settings.limits.shared {
            return self.shared.resize(tenant.id, whose.buckets(limits)).await;
        }
        Ok(())
    }

    /// How full the buckets of a tenant, or of an agent of it, are.
    pub async fn left(
        &self,
        tenant: &Tenant,
        whose: Whose,
        limits: &LimitTerms,
        now: Timestamp,
    ) -> Result<BucketsLeft, StoreError> {
        let buckets: Vec<_> = whose.buckets(limits).collect();
        let remaining = self.remaining(tenant, &buckets, now).await?;
        let mut left = BucketsLeft::default();
        for ((owner, size), remaining) in buckets.into_iter().zip(remaining) {
            match owner.tool {
                Some(tool) => left.tools.push((tool, size, remaining)),
                None => left.own = Some(remaining),
            }
        }
        Ok(left)
    }

    /// How full these buckets of a tenant are, in their order.
    async fn remaining(
        &self,
        tenant: &Tenant,
        buckets: &[(Owner, Bucket)],
        now: Timestamp,
    ) -> Result<Vec<Remaining>, StoreError> {
        if tenant.settings.limits.shared {
            let want = |(owner, size): &(Owner, Bucket)| Want::of(tenant, owner.clone(), *size);
            let wanted: Vec<_> = buckets.iter().map(want).collect();
            return self.shared.remaining(&wanted).await;
        }
        let remaining = |(owner, size): &(Owner, Bucket)| self.local.remaining(owner, *size, now);
        Ok(buckets.iter().map(remaining).collect())
    }
}

/// The buckets that an ask takes from.
fn wanted(asking: &Asking<'_>) -> Vec<Want> {
    let want = |(owner, size)| Want::of(asking.tenant, owner, size);
    asking.buckets().map(want).collect()
}

/// A bucket that has too few tokens for an ask.
struct Lacking {
    owner: Owner,
    level: Level,
    /// Whole seconds until it has enough; `None` if it never has.
    wait: Option<u64>,
}

impl Lacking {
    /// One that could not lend enough.
    fn of_lease(owner: Owner, size: Bucket, lease: Lease) -> Self {
        let level = Level {
            tokens: lease.left,
            at: Timestamp::from_millis(0),
            size,
        };
        Self {
            owner,
            level,
            wait: lease.wait.and_then(|wait| whole_seconds(wait.as_secs_f64())),
        }
    }
}

/// The refusal of the one among these that has enough last, so that nobody is told to come back too early; of two at
/// once, of the first.
fn refusal_of_last(lacking: Vec<Lacking>) -> Option<Refusal> {
    let in_turn = lacking.into_iter().rev();
    let last = in_turn.max_by_key(|lacking| lacking.wait.unwrap_or(u64::MAX));
    last.map(|lacking| limited(&lacking))
}

/// A limit, in the words of the IETF draft on rate limit headers.
struct RateLimit<'t> {
    /// What the limit is called.
    name: &'t str,
    /// How much it lets pass (`q`).
    quota: u64,
    /// In how many seconds that comes back (`w`); none if it never does, or in more than thirty years.
    window: Option<u64>,
    /// How much is left (`r`).
    left: u64,
    /// Whole seconds to wait (`t`); none if waiting does not help.
    wait: Option<u64>,
}

impl RateLimit<'_> {
    /// The refusal with those headers, and with how long to wait: in the header of RFC 9110 always, because that is the
    /// contract, and in the problem where waiting helps.
    fn with(&self, refusal: Refusal) -> Refusal {
        let refusal = match self.wait {
            Some(seconds) => refusal.with_retry_after(seconds),
            None => refusal.with_header(header::RETRY_AFTER, HeaderValue::from(NEVER_REFILLS_SECONDS)),
        };
        refusal
            .with_header(RATE_LIMIT_POLICY, self.policy_header())
            .with_header(RATE_LIMIT, self.limit_header())
    }

    /// How much it lets pass, and in how many seconds that comes back.
    fn policy_header(&self) -> HeaderValue {
        let window = self.window.map(|seconds| format!(";w={seconds}"));
        let window = window.unwrap_or_default();
        plain_header(&format!("\"{}\";q={}{window}", self.name, self.quota))
    }

    /// How much is left, and how many seconds to wait.
    fn limit_header(&self) -> HeaderValue {
        let wait = self.wait.map(|seconds| format!(";t={seconds}"));
        let wait = wait.unwrap_or_default();
        plain_header(&format!("\"{}\";r={}{wait}", self.name, self.left))
    }
}

/// A header of digits and plain words.
fn plain_header(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).expect("digits and plain words are visible ASCII")
}

/// The refusal of an ask that a bucket has too few tokens for.
fn limited(lacking: &Lacking) -> Refusal {
    let Lacking { owner, level, wait } = lacking;
    let capacity = level.size.capacity();
    let window = level.size.refill_per_second().recip() * f64::from(capacity);
    let whose = match owner.whose {
        Whose::Tenant(_) => "tenant",
        Whose::Agent(_) => "agent",
    };
    let tool = owner.tool.as_ref().map(|tool| format!(" for `{tool}`"));
    let tool = tool.unwrap_or_default();
    let holds = match level.size.cost() {
        1 => format!("of {capacity} asks is empty"),
        cost => format!("of {capacity} tokens has fewer than the {cost} that an ask takes"),
    };
    let advice = match wait {
        Some(seconds) => format!("ask again in {seconds} s"),
        None => "it does not refill: have its `refill_per_second` raised".to_owned(),
    };
    let limit = RateLimit {
        name: owner.as_str(),
        quota: u64::from(capacity),
        window: whole_seconds(window),
        left: level.whole_tokens(),
        wait: *wait,
    };
    limit.with(Refusal::new(
        Code::RateLimited,
        format!("the {whose}'s bucket{tool} {holds}; {advice}"),
    ))
}
