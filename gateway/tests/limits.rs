//! Token buckets: what they admit, what they refuse, and what a refusal promises about later.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/stage.rs"]
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::http::StatusCode;
use futures_util::future::join_all;
use gateway::http::Refusal;
use gateway::limits::{Asking, Limits, Local, Tokens, Whose};
use model::{Agent, AgentId, Bucket, LimitTerms, SlashFreeName, Tenant, TenantId, Timestamp};
use proptest::prelude::*;
use serde_json::{Value, json};
use stage::{Stage, asking as asking_for, changing, injected, named, reading};
use std::time::{Duration, Instant};
use store::faults::{At, Fault};
use support::{BEGINNING, until};

#[expect(clippy::unnecessary_wraps, reason = "agents and tenants have one or none")]
fn bucket(capacity: u32, refill_per_second: f64) -> Option<Bucket> {
    Some(Bucket::new(capacity, refill_per_second).unwrap())
}

fn tenant(bucket: Option<Bucket>) -> Tenant {
    let tenant = json!({"id": TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "bucket": bucket,
        "status": "active", "created_at": BEGINNING});
    serde_json::from_value(tenant).unwrap()
}

fn agent(id: u8, bucket: Option<Bucket>) -> Agent {
    let agent = json!({"id": AgentId::from_bytes([id; 16]), "tenant": TenantId::from_bytes([1; 16]), "name": "builder",
        "environment": null, "team": null, "owner": null, "risk_tier": "low", "tools": "all", "attributes": {},
        "bucket": bucket, "status": "active", "created_at": BEGINNING});
    serde_json::from_value(agent).unwrap()
}

fn after(millis: i64) -> Timestamp {
    BEGINNING.plus_millis(millis)
}

const fn asking<'a>(tenant: &'a Tenant, agent: &'a Agent) -> Asking<'a> {
    Asking {
        tenant,
        agent,
        tool: "github",
    }
}

/// An agent's bucket alone, and its asks.
struct Alone {
    limits: Local,
    tenant: Tenant,
    agent: Agent,
}

impl Alone {
    fn with(capacity: u32, refill_per_second: f64) -> Self {
        Self {
            limits: Local::new(),
            tenant: tenant(None),
            agent: agent(1, bucket(capacity, refill_per_second)),
        }
    }

    fn resize(&mut self, capacity: u32, refill_per_second: f64) {
        self.agent.limits.bucket = bucket(capacity, refill_per_second);
    }

    fn ask(&self, millis: i64) -> Result<(), Refusal> {
        self.limits
            .take(&asking(&self.tenant, &self.agent), after(millis))
    }

    fn passes(&self, millis: i64) -> bool {
        self.ask(millis).is_ok()
    }

    fn drain(&self, millis: i64) -> u32 {
        drain(&self.limits, &asking(&self.tenant, &self.agent), after(millis))
    }
}

/// How many asks pass at this moment.
fn drain(limits: &Local, asking: &Asking<'_>, now: Timestamp) -> u32 {
    let passed = (0..10_000).take_while(|_| limits.take(asking, now).is_ok());
    u32::try_from(passed.count()).unwrap()
}

/// The headers of a 429: how long to wait, the policy, and what is left.
fn headers(refusal: &Refusal) -> (i64, String, String) {
    let response = refusal.render("r");
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    let text = |name: &str| response.headers()[name].to_str().unwrap().to_owned();
    (
        text("retry-after").parse().unwrap(),
        text("ratelimit-policy"),
        text("ratelimit"),
    )
}

#[test]
fn a_bucket_admits_its_capacity_and_then_what_comes_back() {
    let alone = Alone::with(10, 4.0);
    assert_eq!(alone.drain(0), 10);
    assert!(!alone.passes(249));
    assert!(alone.passes(250));
    assert_eq!(alone.drain(1_250), 4);
    assert_eq!(alone.drain(3_600_000), 10, "no more than fits");
}

#[test]
fn a_bucket_that_never_refills_admits_its_capacity_once() {
    let mut alone = Alone::with(3, 0.0);
    assert_eq!(alone.drain(0), 3);
    let refused = alone.ask(86_400_000).unwrap_err();
    assert_eq!(
        refused.detail(),
        "the agent's bucket of 3 asks is empty; it does not refill: have its `refill_per_second` raised"
    );
    let refused = refused.render("r");
    let header = |name: &str| refused.headers().get(name).map(|value| value.to_str().unwrap());
    assert_eq!(
        ["retry-after", "ratelimit-policy", "ratelimit"].map(header),
        [Some("86400"), Some("\"agent\";q=3"), Some("\"agent\";r=0")],
        "waiting does not help"
    );
    alone.resize(1_000, 0.0);
    assert_eq!(alone.drain(86_400_000), 0, "nor does more room");
    alone.resize(1_000, 1.0);
    assert_eq!(alone.drain(86_400_000), 0);
    assert_eq!(alone.drain(86_401_000), 1);
}

#[test]
fn what_takes_more_than_thirty_years_to_come_back_has_no_window() {
    let alone = Alone::with(2, 1e-9);
    assert_eq!(alone.drain(0), 2);
    let (wait, policy, left) = headers(&alone.ask(0).unwrap_err());
    // One of the two comes back a little earlier than that.
    assert_eq!(
        (wait, policy.as_str(), left.as_str()),
        (999_999_000, "\"agent\";q=2", "\"agent\";r=0;t=999999000")
    );
}

#[test]
fn a_refusal_has_the_three_headers() {
    let alone = Alone::with(2, 0.5);
    assert_eq!(alone.drain(0), 2);
    let refusal = alone.ask(0).unwrap_err();
    let (wait, policy, left) = headers(&refusal);
    assert_eq!(
        (wait, policy.as_str(), left.as_str()),
        (2, "\"agent\";q=2;w=4", "\"agent\";r=0;t=2")
    );
    assert!(
        refusal
            .to_problem("r")
            .contains("the agent's bucket of 2 asks is empty; ask again in 2 s")
    );
    assert!(!alone.passes(1_999));
    assert!(alone.passes(2_000));
}

#[test]
fn a_tenant_that_refuses_takes_nothing_from_its_agent() {
    let limits = Local::new();
    let (mut tenant, agent) = (tenant(bucket(1, 0.0)), agent(1, bucket(5, 0.0)));
    limits.take(&asking(&tenant, &agent), BEGINNING).unwrap();
    for _ in 0..10 {
        let (.., left) = headers(&limits.take(&asking(&tenant, &agent), BEGINNING).unwrap_err());
        assert!(left.starts_with("\"tenant\";"), "{left}");
    }
    tenant.limits.bucket = None;
    assert_eq!(drain(&limits, &asking(&tenant, &agent), BEGINNING), 4);
}

#[test]
fn an_agent_that_is_refused_takes_nothing_from_its_tenant() {
    let limits = Local::new();
    let (tenant, greedy, modest) = (
        tenant(bucket(5, 0.0)),
        agent(1, bucket(1, 0.0)),
        agent(2, bucket(9, 0.0)),
    );
    limits.take(&asking(&tenant, &greedy), BEGINNING).unwrap();
    for _ in 0..10 {
        assert!(limits.take(&asking(&tenant, &greedy), BEGINNING).is_err());
    }
    assert_eq!(drain(&limits, &asking(&tenant, &modest), BEGINNING), 4);
}

#[test]
fn looking_takes_nothing() {
    let alone = Alone::with(1, 0.0);
    for _ in 0..5 {
        alone
            .limits
            .peek(&asking(&alone.tenant, &alone.agent), BEGINNING)
            .unwrap();
    }
    assert!(alone.passes(0));
    assert!(
        alone
            .limits
            .peek(&asking(&alone.tenant, &alone.agent), BEGINNING)
            .is_err()
    );
}

#[test]
fn a_smaller_bucket_counts_at_once_and_a_larger_one_is_not_a_present() {
    let mut alone = Alone::with(10, 1.0);
    assert_eq!((0..4).filter(|_| alone.passes(0)).count(), 4);
    alone.resize(2, 1.0);
    assert_eq!(alone.drain(0), 2);
    alone.resize(100, 1.0);
    assert_eq!(alone.drain(0), 0, "nobody gets the difference for nothing");
    assert_eq!(alone.drain(3_000), 3);
}

#[test]
fn an_empty_bucket_refills_as_it_was_set_last_though_nobody_has_passed_since() {
    let mut alone = Alone::with(3, 0.0);
    assert_eq!(alone.drain(0), 3);
    alone.resize(3, 100.0);
    let (wait, ..) = headers(&alone.ask(10_000).unwrap_err());
    assert_eq!(wait, 1, "what never came back before does not come at once");
    assert_eq!(alone.drain(11_000), 3);

    let mut alone = Alone::with(10, 10.0);
    assert_eq!(alone.drain(0), 10);
    alone.resize(10, 0.0);
    alone
        .limits
        .peek(&asking(&alone.tenant, &alone.agent), after(500))
        .unwrap();
    assert_eq!(
        alone.drain(3_000),
        5,
        "what has come back until somebody looked stays"
    );
}

#[test]
fn a_clock_that_is_set_back_gives_nothing() {
    let alone = Alone::with(5, 1.0);
    assert_eq!(alone.drain(10_000), 5);
    for millis in [9_000, 0, -3_600_000] {
        assert!(!alone.passes(millis), "{millis}");
    }
    assert_eq!(alone.drain(-3_598_000), 2, "and it refills from there");
}

#[test]
fn a_clock_that_was_ahead_for_a_moment_starves_nobody() {
    for ahead in [1_500, 3_600_000] {
        let alone = Alone::with(5, 0.25);
        assert_eq!(alone.drain(ahead), 5);
        let (wait, ..) = headers(&alone.ask(0).unwrap_err());
        assert!(wait <= 6, "told to wait {wait} s");
        assert!(!alone.passes((wait - 1) * 1_000), "{ahead}");
        assert!(alone.passes(wait * 1_000), "{ahead}: told to wait {wait} s");
    }
}

#[test]
fn whoever_comes_a_little_out_of_order_gains_nothing() {
    let alone = Alone::with(5, 1.0);
    assert_eq!(alone.drain(0), 5);
    let in_turn = (1..=10_000).flat_map(|millis| [millis, millis - 1]);
    assert_eq!(in_turn.filter(|&millis| alone.passes(millis)).count(), 10);
}

#[test]
fn of_two_empty_buckets_the_one_that_opens_last_is_told() {
    let limits = Local::new();
    let (tenant, agent) = (tenant(bucket(1, 1.0)), agent(1, bucket(1, 0.01)));
    let ask = |millis| limits.take(&asking(&tenant, &agent), after(millis));
    ask(0).unwrap();
    let (wait, _, left) = headers(&ask(0).unwrap_err());
    assert_eq!((wait, left.as_str()), (100, "\"agent\";r=0;t=100"));
    ask(100_000).unwrap();
}

#[test]
fn two_cores_cannot_take_the_same_token() {
    let alone = Alone::with(10, 0.0);
    let admitted: usize = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..64)
            .map(|_| scope.spawn(|| usize::from(alone.passes(0))))
            .collect();
        callers.into_iter().map(|caller| caller.join().unwrap()).sum()
    });
    assert_eq!(admitted, 10);
}

#[test]
fn buckets_that_are_full_again_are_forgotten_and_nobody_notices() {
    let limits = Local::new();
    let tenant = tenant(None);
    let agents = |n: u16| {
        let [high, low] = n.to_be_bytes();
        let mut agent = agent(0, bucket(2, 1.0));
        agent.id = AgentId::from_bytes([high, low, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        agent
    };
    for n in 0..20_000 {
        // Each comes when the one before is full again, so all but the last few are forgotten.
        limits
            .take(&asking(&tenant, &agents(n)), after(i64::from(n) * 1_000))
            .unwrap();
    }
    let left = |n, millis| drain(&limits, &asking(&tenant, &agents(n)), after(millis));
    assert_eq!((left(0, 20_000_000), left(19_999, 19_999_000)), (2, 1));
    // And all that came at one moment, by the job that looks for them.
    let moment = 30_000_000;
    limits.forget_full(after(moment));
    for n in 0..20_000 {
        limits.take(&asking(&tenant, &agents(n)), after(moment)).unwrap();
    }
    assert_eq!(limits.forget_full(after(moment + 999)), 0);
    assert_eq!(limits.forget_full(after(moment + 1_000)), 20_000);
    assert_eq!(left(0, moment + 1_000), 2);
}

proptest! {
    /// The bucket is large enough never to be full between two asks, so nothing that comes back is lost.
    #[test]
    fn over_any_time_a_bucket_admits_exactly_its_capacity_and_what_came_back(
        capacity in 10_u32..50,
        refill in 1_u32..200,
        per in prop::sample::select(vec![1_u32, 2, 3, 7, 10]),
        seconds in 1_u32..20,
        step_ms in 1_i64..40,
    ) {
        let rate = f64::from(refill) / f64::from(per);
        let alone = Alone::with(capacity, rate);
        let end = i64::from(seconds) * 1_000;
        let mut admitted = 0_u32;
        let mut now = 0;
        while now < end {
            admitted += alone.drain(now);
            now += step_ms;
        }
        admitted += alone.drain(end);
        prop_assert_eq!(admitted, capacity + refill * seconds / per);
    }

    #[test]
    fn whoever_waits_as_told_passes(
        capacity in 1_u32..20,
        refill in 1_u32..5_000,
        of_all in 1_u32..20,
        refill_of_all in 1_u32..5_000,
        millis in prop::collection::vec(0_i64..3_000, 1..40),
    ) {
        let mut alone = Alone::with(capacity, f64::from(refill) / 1_000.0);
        alone.tenant = tenant(bucket(of_all, f64::from(refill_of_all) / 1_000.0));
        let mut now = 0;
        for pause in millis {
            now += pause;
            alone.drain(now);
            let (wait, ..) = headers(&alone.ask(now).unwrap_err());
            prop_assert!(!alone.passes(now + (wait - 1) * 1_000), "it could have come a second earlier");
            now += wait * 1_000;
            prop_assert!(alone.passes(now), "told to wait {wait} s");
        }
    }
}

#[tokio::test]
async fn an_empty_bucket_refuses_and_records_nothing() {
    let stage = Stage::set().await;
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    stage
        .admin(
            "PUT",
            &quota,
            &json!({"bucket": {"capacity": 3, "refill_per_second": 0.25}}),
        )
        .await
        .expect(200);
    stage.ask(&named(changing(), "call-1")).await.expect(200);
    // A denial costs as much as an allow.
    stage.ask(&injected()).await.expect(200);
    stage.ask(&reading()).await.expect(200);

    let head = stage.head().await;
    let refused = stage.ask(&reading()).await;
    refused.problem(429, "rate_limited");
    assert_eq!(refused.headers["retry-after"], "4");
    assert_eq!(refused.headers["ratelimit-policy"], "\"agent\";q=3;w=12");
    assert_eq!(refused.headers["ratelimit"], "\"agent\";r=0;t=4");
    assert_eq!(stage.head().await, head);

    // What was answered before is answered again, whatever the bucket holds.
    stage.ask(&named(changing(), "call-1")).await.expect(200);
    stage.clock.advance_millis(3_999);
    stage.ask(&reading()).await.problem(429, "rate_limited");
    stage.clock.advance_millis(1);
    stage.ask(&reading()).await.expect(200);
}

#[tokio::test]
async fn a_bucket_of_any_kind_refills_as_it_was_set_from_then_on() {
    let stage = Stage::set().await;
    let agent = format!("/v1/agents/{}/quota", stage.agent.id);
    let tenant = format!("/v1/tenants/{}/quota", stage.tenant);
    let own: fn(Value) -> Value = |bucket| json!({"bucket": bucket});
    let of_tool: fn(Value) -> Value = |bucket| json!({"tools": {"github": bucket}});
    for (quota, body) in [
        (&agent, own),
        (&agent, of_tool),
        (&tenant, own),
        (&tenant, of_tool),
    ] {
        let set = async |refill: u32| {
            let body = body(json!({"capacity": 3, "refill_per_second": refill}));
            stage.admin("PUT", quota, &body).await.expect(200);
        };
        let pass = async || {
            for _ in 0..3 {
                stage.ask(&reading()).await.expect(200);
            }
            stage.ask(&reading()).await
        };
        set(0).await;
        pass().await.problem(429, "rate_limited");
        stage.clock.advance_millis(10_000);
        set(100).await;
        let refused = stage.ask(&reading()).await;
        refused.problem(429, "rate_limited");
        assert_eq!(refused.headers["retry-after"], "1");
        stage.clock.advance_millis(1_000);
        pass().await.problem(429, "rate_limited");
        set(0).await;
        stage.clock.advance_millis(3_000);
        stage.ask(&reading()).await.problem(429, "rate_limited");
        stage.admin("PUT", quota, &json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_tenant_shares_one_bucket_among_its_agents() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "reviewer", "tools": "all"})).await;
    let quota = format!("/v1/tenants/{}/quota", stage.tenant);
    let body = json!({"bucket": {"capacity": 2, "refill_per_second": 1}});
    stage
        .call("PUT", &quota, &stage.operator)
        .json(&body)
        .send()
        .await
        .expect(200);
    stage.ask(&reading()).await.expect(200);
    stage
        .post("/v1/authorize", &other.token, &reading())
        .await
        .expect(200);
    let refused = stage.post("/v1/authorize", &other.token, &reading()).await;
    assert_eq!(
        refused.problem(429, "rate_limited"),
        "the tenant's bucket of 2 asks is empty; ask again in 1 s"
    );
}

#[tokio::test]
async fn whoever_has_no_grant_for_a_tool_takes_nothing_from_the_tenants_bucket_for_it() {
    let stage = sharing(&Value::Null, &Value::Null).await;
    let tenant = format!("/v1/tenants/{}", stage.tenant);
    let few = stage.hire(json!({"name": "few", "tools": ["github"]})).await;
    let storing = asking_for("vault", "store", "trusted_internal_unsigned");
    let of_vault = "/v1/quota/probe?tool=vault&action=store";
    let deny = async || {
        for mode in ["enforce", "dry_run"] {
            let mut ask = storing.clone();
            ask["mode"] = json!(mode);
            let answer = stage.post("/v1/authorize", &few.token, &ask).await.expect(200);
            assert_eq!(answer["reason_code"], "tool_not_granted");
        }
        let probe = stage.get(of_vault, &few.token).await.expect(200);
        assert_eq!(probe, json!({"passes": true}));
    };
    for shared in [true, false] {
        let settings = json!({"settings": {"limits": {"shared": shared}}});
        stage.admin("PATCH", &tenant, &settings).await.expect(200);
        let limits = json!({"tools": {"vault": {"capacity": 1, "refill_per_second": 0}}});
        let quota = format!("{tenant}/quota");
        stage.admin("PUT", &quota, &limits).await.expect(200);
        deny().await;
        stage.ask(&storing).await.expect(200);
        let refused = stage.ask(&storing).await;
        let detail = refused.problem(429, "rate_limited");
        assert!(detail.starts_with("the tenant's bucket for `vault` "), "{detail}");
        let probe = stage.get(of_vault, &stage.agent.token).await.expect(200);
        assert_eq!(probe["code"], "rate_limited");
        deny().await;
    }
}

/// How many agents have tokens that lie about: more than are given back in one write.
const IDLE: usize = 300;
/// How many buckets are given their tokens back in one write.
const AT_ONCE: usize = 256;

/// Agents of a tenant with shared buckets, each of which has asked once and not again for a while: of the ten tokens that
/// were lent for each, nine lie about.
struct Idle {
    stage: Stage,
    limits: Limits,
    tenant: Tenant,
    /// In the order in which they have asked.
    agents: Vec<Agent>,
}

impl Idle {
    async fn new() -> Self {
        let stage = Stage::set().await;
        let mut tenant = tenant(None);
        tenant.settings.limits.shared = true;
        let limits = Limits::new(stage.faults.clone());
        let agents: Vec<_> = (0..IDLE)
            .map(|number| {
                let mut id = [0; 16];
                id[..8].copy_from_slice(&number.to_be_bytes());
                let mut agent = agent(0, bucket(160, 0.0));
                agent.id = AgentId::from_bytes(id);
                agent
            })
            .collect();
        for agent in &agents {
            let asking = asking(&tenant, agent);
            let Tokens::Short(short) = limits.take(&asking, BEGINNING).unwrap() else {
                panic!("nothing was lent yet")
            };
            limits.fill(&short).await.unwrap();
            let taken = limits.take(&asking, BEGINNING).unwrap();
            assert!(matches!(taken, Tokens::Enough));
        }
        tokio::time::sleep(Duration::from_millis(1_100)).await;
        Self {
            stage,
            limits,
            tenant,
            agents,
        }
    }

    /// How many buckets have back what was not used.
    async fn given_back(&self) -> usize {
        let elsewhere = Limits::new(self.stage.faults.clone());
        let mut given_back = 0;
        for agent in &self.agents {
            let whose = Whose::Agent(agent.id);
            let left = elsewhere
                .left(&self.tenant, whose, &agent.limits, BEGINNING)
                .await;
            match left.unwrap().own.unwrap().tokens {
                150 => {}
                159 => given_back += 1,
                odd => panic!("{odd} tokens are left"),
            }
        }
        given_back
    }

    /// Whether an ask of this agent would be served by what lies about.
    fn serves(&self, agent: usize) -> bool {
        let asking = asking(&self.tenant, &self.agents[agent]);
        let tokens = self.limits.peek(&asking, BEGINNING).unwrap();
        matches!(tokens, Tokens::Enough)
    }
}

#[tokio::test]
async fn what_lies_about_of_many_buckets_is_given_back_in_few_writes() {
    let idle = Idle::new().await;
    // Where the first write takes long, the second one is left to the next round.
    for _ in 0..2 {
        idle.limits.give_back_idle().await.unwrap();
    }
    assert_eq!(idle.stage.faults.give_backs(), 2);
    assert_eq!(idle.given_back().await, IDLE);
}

#[tokio::test]
async fn a_round_ends_behind_a_slow_write_and_what_was_not_given_back_serves_until_the_next_one() {
    let idle = Idle::new().await;
    let faults = &idle.stage.faults;
    faults.hold_at(At::GiveBacks, true);
    let slow = async {
        until(|| faults.held_at(At::GiveBacks) == 1).await;
        // Longer than a round gives tokens back.
        tokio::time::sleep(Duration::from_millis(150)).await;
        faults.hold_at(At::GiveBacks, false);
    };
    let (given_back, ()) = tokio::join!(idle.limits.give_back_idle(), slow);
    given_back.unwrap();
    assert_eq!((faults.give_backs(), idle.given_back().await), (1, AT_ONCE));
    // Who has asked last is the last one.
    assert!(!idle.serves(AT_ONCE - 1) && idle.serves(AT_ONCE));
    idle.limits.give_back_idle().await.unwrap();
    assert_eq!((faults.give_backs(), idle.given_back().await), (2, IDLE));
}

#[tokio::test]
async fn what_could_not_be_given_back_is_not_given_back_twice_and_the_rest_is_not_lost() {
    let idle = Idle::new().await;
    idle.stage.faults.fail_reads(true);
    idle.limits.give_back_idle().await.unwrap_err();
    assert!(!idle.serves(AT_ONCE - 1) && idle.serves(AT_ONCE));
    // Behind a write that failed, one bucket is tried alone.
    idle.limits.give_back_idle().await.unwrap_err();
    assert!(!idle.serves(AT_ONCE) && idle.serves(AT_ONCE + 1));
    idle.stage.faults.fail_reads(false);
    // Where a write takes long, the next one is left to the next round.
    for _ in 0..2 {
        idle.limits.give_back_idle().await.unwrap();
    }
    // The one that was tried alone, and the others together.
    assert_eq!(idle.stage.faults.give_backs(), 4);
    assert_eq!(idle.given_back().await, IDLE - AT_ONCE - 1);
}

/// A tenant whose buckets, and whose agent's, gateways share.
async fn sharing(of_tenant: &Value, of_agent: &Value) -> Stage {
    let stage = Stage::set().await;
    let tenant = format!("/v1/tenants/{}", stage.tenant);
    let settings = json!({"settings": {"limits": {"shared": true}}});
    stage.admin("PATCH", &tenant, &settings).await.expect(200);
    let quota = format!("{tenant}/quota");
    let call = stage.call("PUT", &quota, &stage.operator);
    call.json(&json!({"bucket": of_tenant})).send().await.expect(200);
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    let body = json!({"bucket": of_agent});
    stage.admin("PUT", &quota, &body).await.expect(200);
    stage
}

/// The clock of these is the store's.
#[tokio::test]
async fn a_shared_bucket_refills_as_it_was_set_from_then_on() {
    const REFILL: f64 = 10.0;
    let size = |refill: f64| json!({"capacity": 16, "refill_per_second": refill});
    let stage = sharing(&Value::Null, &Value::Null).await;
    let agent = format!("/v1/agents/{}/quota", stage.agent.id);
    let tenant = format!("/v1/tenants/{}/quota", stage.tenant);
    let own: fn(Value) -> Value = |bucket| json!({"bucket": bucket});
    let of_tool: fn(Value) -> Value = |bucket| json!({"tools": {"github": bucket}});
    for (quota, body, place) in [
        (&agent, own, "/remaining/tokens"),
        (&agent, of_tool, "/tools/github/remaining/tokens"),
        (&tenant, own, "/remaining/tokens"),
        (&tenant, of_tool, "/tools/github/remaining/tokens"),
    ] {
        let left = |view: &Value| view.pointer(place).unwrap().as_f64().unwrap();
        let set = async |refill: f64| {
            let view = stage.admin("PUT", quota, &body(size(refill))).await;
            left(&view.expect(200))
        };
        set(0.0).await;
        for _ in 0..16 {
            stage.ask(&reading()).await.expect(200);
        }
        tokio::time::sleep(Duration::from_millis(600)).await;
        let began = Instant::now();
        let raised = set(REFILL).await;
        // The clock of a store may count in milliseconds.
        let most = REFILL * (began.elapsed().as_secs_f64() + 0.001);
        assert!(raised <= most, "{quota}: {raised} of {most}");
        // Nobody asks meanwhile.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let lowered = set(0.0).await;
        assert!(lowered >= 2.0, "{quota}: what has come back stays, not {lowered}");
        stage.admin("PUT", quota, &json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_shared_bucket_refills_as_it_was_set_though_whoever_set_it_has_hung_up() {
    let size =
        |capacity: u32, refill: u32| json!({"bucket": {"capacity": capacity, "refill_per_second": refill}});
    let stage = sharing(&Value::Null, &Value::Null).await;
    let agent = format!("/v1/agents/{}/quota", stage.agent.id);
    let tenant = format!("/v1/tenants/{}/quota", stage.tenant);
    for quota in [&agent, &tenant] {
        // It is empty before it refills, and too large to be full soon.
        stage.admin("PUT", quota, &size(16, 0)).await.expect(200);
        for _ in 0..16 {
            stage.ask(&reading()).await.expect(200);
        }
        stage.admin("PUT", quota, &size(1_000_000, 100)).await.expect(200);
        stage.faults.plan([Fault::Hold]);
        let call = stage.call("PUT", quota, &stage.operator).tenant(stage.tenant);
        let lowering = call.json(&size(1_000_000, 0)).respond();
        tokio::select! {
            biased;
            // Not through a socket, as for a lease.
            reply = lowering => panic!("it was answered: {reply:?}"),
            () = until(|| stage.faults.held() == 1) => {}
        }
        stage.faults.let_go();
        let left = async || {
            let call = stage.call("GET", quota, &stage.operator).tenant(stage.tenant);
            let shown = call.send().await.expect(200);
            shown["remaining"]["tokens"].as_u64().unwrap()
        };
        let refills = async || {
            let before = left().await;
            tokio::time::sleep(Duration::from_millis(50)).await;
            left().await > before
        };
        let mut looks = 0;
        while refills().await {
            looks += 1;
            assert!(looks < 200, "{quota}: it goes on refilling as before");
        }
        stage.admin("PUT", quota, &json!({})).await.expect(200);
    }
}

#[tokio::test]
async fn a_shared_bucket_that_is_set_anew_keeps_what_was_lent_of_it() {
    let bucket = |capacity: u32| json!({"capacity": capacity, "refill_per_second": 0});
    let stage = sharing(&Value::Null, &bucket(4_096)).await;
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    let left = async || {
        let shown = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
        shown["remaining"]["tokens"].as_u64().unwrap()
    };
    stage.ask(&reading()).await.expect(200);
    assert_eq!(left().await, 4_095);
    for (capacity, kept) in [(5_000, 4_095), (100, 100)] {
        let body = json!({"bucket": bucket(capacity)});
        let view = stage.admin("PUT", &quota, &body).await.expect(200);
        assert_eq!(view["remaining"]["tokens"].as_u64(), Some(kept));
        stage.ask(&reading()).await.expect(200);
        assert_eq!(left().await, kept - 1);
    }
}

#[tokio::test]
async fn of_two_empty_shared_buckets_the_one_that_opens_last_is_told_however_late() {
    let stage = sharing(
        &json!({"capacity": 1, "refill_per_second": 0.001}),
        &json!({"capacity": 1, "refill_per_second": 0.000_005}),
    )
    .await;
    stage.ask(&reading()).await.expect(200);
    let refused = stage.ask(&reading()).await;
    let detail = refused.problem(429, "rate_limited");
    assert!(detail.starts_with("the agent's bucket "), "{detail}");
    let (wait, told) = (refused.headers["retry-after"].to_str().unwrap(), refused.json());
    assert_eq!(told["retry_after_seconds"].to_string(), wait);
    let wait: u64 = wait.parse().unwrap();
    assert!((190_000..=200_000).contains(&wait), "{wait}");
}

#[tokio::test]
async fn whoever_loops_against_an_empty_shared_bucket_costs_the_store_few_leases() {
    let stage = sharing(&Value::Null, &json!({"capacity": 1, "refill_per_second": 0})).await;
    stage.ask(&reading()).await.expect(200);
    let (began, before) = (Instant::now(), stage.faults.leases());
    for _ in 0..200 {
        let refused = stage.ask(&reading()).await;
        refused.problem(429, "rate_limited");
        // Waiting does not help.
        assert_eq!(refused.headers["retry-after"], "86400");
        assert_eq!(refused.json()["retry_after_seconds"], Value::Null);
    }
    let leases = u128::try_from(stage.faults.leases() - before).unwrap();
    let most = began.elapsed().as_millis() / 250 + 1;
    assert!(leases <= most, "{leases} of {most}");
}

#[tokio::test]
async fn a_lease_for_a_caller_that_hung_up_serves_the_next_ask() {
    let stage = sharing(&Value::Null, &json!({"capacity": 32, "refill_per_second": 0})).await;
    let left = async || {
        let shown = stage.get("/v1/quota", &stage.agent.token).await.expect(200);
        shown["remaining"]["tokens"].as_u64().unwrap()
    };
    stage.faults.hold_at(At::Leases, true);
    let ask = reading();
    tokio::select! {
        biased;
        // Not through a socket, behind which an ask is answered whether somebody waits for it or not.
        reply = stage.call("POST", "/v1/authorize", &stage.agent.token).json(&ask).respond() => panic!("it was answered: {reply:?}"),
        () = async {
            while stage.faults.held_at(At::Leases) == 0 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    stage.faults.hold_at(At::Leases, false);
    while stage.faults.held_at(At::Leases) > 0 {
        tokio::task::yield_now().await;
    }
    stage.ask(&ask).await.expect(200);
    assert_eq!(left().await, 31, "only what was answered took a token");
}

#[tokio::test]
async fn whoever_hangs_up_while_others_ask_for_a_lease_asks_for_none() {
    // So few that one is lent at a time.
    let stage = sharing(&Value::Null, &json!({"capacity": 16, "refill_per_second": 0})).await;
    let (ask, before) = (reading(), stage.faults.leases());
    let call = || {
        let call = stage.call("POST", "/v1/authorize", &stage.agent.token);
        call.json(&ask).respond()
    };
    let a_while = async || {
        for _ in 0..1_000 {
            tokio::task::yield_now().await;
        }
    };
    stage.faults.hold_at(At::Leases, true);
    let mut first = std::pin::pin!(call());
    tokio::select! {
        biased;
        reply = &mut first => panic!("it was answered: {reply:?}"),
        () = async {
            while stage.faults.held_at(At::Leases) == 0 {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    tokio::select! {
        biased;
        reply = call() => panic!("it was answered: {reply:?}"),
        () = a_while() => {}
    }
    stage.faults.hold_at(At::Leases, false);
    assert_eq!(first.await.status(), StatusCode::OK);
    a_while().await;
    assert_eq!(stage.faults.leases() - before, 1);
}

/// So few that one is lent at a time, and each ask of the batch has one lent.
#[tokio::test]
async fn a_batch_that_has_its_tokens_lent_one_by_one_is_one_commit_in_the_order_of_its_asks() {
    let stage = sharing(&Value::Null, &json!({"capacity": 16, "refill_per_second": 0})).await;
    let (head, before) = (stage.head().await, commits(&stage).await);
    let asks = [(); 16].map(|()| reading());
    let batch = json!({"asks": asks});
    let answers = stage.post("/v1/authorize/batch", &stage.agent.token, &batch);
    let answers = answers.await.expect(200)["answers"].clone();
    let seqs = answers.as_array().unwrap().iter();
    let seqs: Vec<_> = seqs.map(|answer| answer["receipt"]["seq"].as_u64()).collect();
    let in_order: Vec<_> = (head.seq + 1..=head.seq + 16).map(Some).collect();
    assert_eq!(seqs, in_order, "{answers}");
    assert_eq!(commits(&stage).await, before + 1);
    stage.ask(&reading()).await.problem(429, "rate_limited");
}

/// How many commits there have been.
async fn commits(stage: &Stage) -> u64 {
    let metrics = stage.get("/metrics", "").await.text();
    let mut lines = metrics.lines();
    let count = lines.find_map(|line| line.strip_prefix("countersign_commit_seconds_count "));
    count.unwrap().parse().unwrap()
}

#[tokio::test]
async fn whoever_looks_at_shared_buckets_has_nothing_written() {
    let stage = sharing(&Value::Null, &json!({"capacity": 1, "refill_per_second": 0})).await;
    let token = &stage.agent.token;
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    let batch = json!({"asks": [dry]});
    let look = async || {
        let before = stage.faults.leases();
        let shown = stage.get("/v1/quota", token).await.expect(200);
        let probe = "/v1/quota/probe?tool=github&action=get_file";
        let probe = stage.get(probe, token).await.expect(200);
        let batch = stage.post("/v1/authorize/batch", token, &batch).await.expect(200);
        let decided = stage.post("/v1/decide", token, &reading()).await;
        assert_eq!(stage.faults.leases(), before);
        (
            shown["remaining"]["tokens"].clone(),
            probe,
            batch["answers"][0]["code"].clone(),
            decided,
        )
    };
    for _ in 0..5 {
        let (left, probe, in_batch, decided) = look().await;
        assert_eq!(
            (left, probe, in_batch),
            (json!(1), json!({"passes": true}), Value::Null)
        );
        assert_eq!(decided.expect(200)["decision"], "allow");
    }
    stage.ask(&reading()).await.expect(200);
    let detail = stage.ask(&reading()).await.problem(429, "rate_limited");
    let refused = json!({"passes": false, "code": "rate_limited", "detail": detail});
    for _ in 0..5 {
        let (left, probe, in_batch, decided) = look().await;
        assert_eq!(
            (left, &probe, in_batch),
            (json!(0), &refused, json!("rate_limited"))
        );
        assert_eq!(decided.problem(429, "rate_limited"), detail);
        assert_eq!(decided.headers["retry-after"], "86400");
    }
}

/// Whoever shows them, and whoever looks whether an ask would pass. Ten tokens are lent of each, and one is used.
#[tokio::test]
async fn what_is_left_in_any_number_of_shared_buckets_is_read_at_once() {
    let stage = Stage::set().await;
    let mut tenant = tenant(bucket(160, 0.0));
    tenant.settings.limits.shared = true;
    let mut agent = agent(1, bucket(160, 0.0));
    let tools = [("deploy", 7), ("github", 160), ("vault", 1)].map(|(tool, capacity)| {
        let size = Bucket::new(capacity, 0.0).unwrap();
        (SlashFreeName::new(tool).unwrap(), size)
    });
    agent.limits.tool_buckets = tools.into();
    let asking = asking(&tenant, &agent);
    let limits = Limits::new(stage.faults.clone());
    let Tokens::Short(short) = limits.take(&asking, BEGINNING).unwrap() else {
        panic!("nothing was lent yet")
    };
    limits.fill(&short).await.unwrap();
    let taken = limits.take(&asking, BEGINNING).unwrap();
    assert!(matches!(taken, Tokens::Enough));
    let elsewhere = Limits::new(stage.faults.clone());
    let whose = Whose::Agent(agent.id);
    for (limits, tokens) in [(&limits, [159_u64, 7, 159, 1]), (&elsewhere, [150, 7, 150, 1])] {
        let before = stage.faults.bucket_reads();
        let left = limits.left(&tenant, whose, &agent.limits, BEGINNING).await;
        let left = left.unwrap();
        let of_tools = left.tools.iter().map(|(_, _, remaining)| remaining.tokens);
        let own = left.own.iter().map(|remaining| remaining.tokens);
        assert_eq!(own.chain(of_tools).collect::<Vec<_>>(), tokens);
        assert_eq!(stage.faults.bucket_reads(), before + 1);
    }
    let before = stage.faults.bucket_reads();
    let Tokens::Short(short) = elsewhere.peek(&asking, BEGINNING).unwrap() else {
        panic!("nothing was lent to this one")
    };
    elsewhere.check(&short).await.unwrap();
    assert_eq!(stage.faults.bucket_reads(), before + 1);
    // Where there are none, nobody asks.
    let none = LimitTerms::default();
    let left = limits.left(&tenant, whose, &none, BEGINNING).await.unwrap();
    assert!(left.own.is_none() && left.tools.is_empty());
    assert_eq!(stage.faults.bucket_reads(), before + 1);
}

/// Also in between, when a bucket that was empty a moment ago is not asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_at_once_pass_a_shared_bucket_as_often_as_it_holds_and_what_came_back() {
    const CAPACITY: u32 = 64;
    const REFILL: u32 = 4;
    let bucket = json!({"capacity": CAPACITY, "refill_per_second": REFILL});
    let stage = sharing(&Value::Null, &bucket).await;
    let held_after = |time: Duration| f64::from(CAPACITY) + f64::from(REFILL) * time.as_secs_f64();
    let wave = async |asks: u32| {
        let asks = (0..asks).map(|_| async { stage.ask(&reading()).await.status.as_u16() });
        let statuses = join_all(asks).await;
        assert!(
            statuses.iter().all(|status| [200, 429].contains(status)),
            "{statuses:?}"
        );
        statuses.iter().filter(|status| **status == 200).count()
    };
    let before = Instant::now();
    let mut passed = wave(CAPACITY).await;
    let first = Instant::now();
    while first.elapsed() < Duration::from_millis(1_500) {
        passed += wave(8).await;
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let least = held_after(first.elapsed()) - 1.0;
    // Where a wave takes as long as a token to come back, none is ever without one.
    for _ in 0..20 {
        match wave(8).await {
            0 => break,
            some => passed += some,
        }
    }
    let most = held_after(before.elapsed()) + 1.0;
    let passed = f64::from(u32::try_from(passed).unwrap());
    assert!((least..=most).contains(&passed), "{least} to {most}: {passed}");
}

#[tokio::test]
async fn whom_a_bucket_refuses_costs_the_store_nothing() {
    let stage = Stage::set().await;
    let settings = json!({"settings": {"limits": {"shared": true}}});
    let path = format!("/v1/tenants/{}", stage.tenant);
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    let bucket = json!({"bucket": {"capacity": 1, "refill_per_second": 0.001}});
    stage.admin("PUT", &quota, &bucket).await.expect(200);
    stage.ask(&reading()).await.expect(200);
    stage.faults.fail_reads(true);
    let mut approved = reading();
    approved["approval_id"] = json!("apr_00000000000000000000000001");
    let mut dry = reading();
    dry["mode"] = json!("dry_run");
    for ask in [&approved, &dry] {
        stage.ask(ask).await.problem(429, "rate_limited");
    }
    stage.faults.fail_reads(false);

    let shared = stage.call("PATCH", &path, &stage.operator).json(&settings);
    shared.send().await.expect(200);
    // Of a shared bucket only the store knows whether it has any to lend.
    stage.ask(&reading()).await.expect(200);
    for ask in [&approved, &dry] {
        stage.ask(ask).await.problem(429, "rate_limited");
    }
}

#[tokio::test]
async fn each_ask_of_a_batch_takes_its_token() {
    let stage = Stage::set().await;
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    stage
        .admin(
            "PUT",
            &quota,
            &json!({"bucket": {"capacity": 2, "refill_per_second": 1}}),
        )
        .await
        .expect(200);
    let batch = json!({"asks": [reading(), reading(), reading()]});
    let answers = stage
        .post("/v1/authorize/batch", &stage.agent.token, &batch)
        .await
        .expect(200);
    assert_eq!(answers["answers"][1]["decision"], "allow");
    assert_eq!(answers["answers"][2]["code"], "rate_limited");
    assert_eq!(answers["answers"][2]["retry_after_seconds"], 1);
    assert_eq!(stage.count("decision").await, 2);
}
