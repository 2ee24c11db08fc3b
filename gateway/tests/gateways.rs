//! Several gateways over one PostgreSQL database: one chain, one answer to a request, one bucket, and what one of them
//! changes is in force on the others.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use futures_util::future::join_all;
use gateway::app::App;
use gateway::cli::operator_key;
use gateway::gateway::{FixedBounds, Gateway, Options};
use gateway::start::{self, Ingredients};
use ledger::Head;
use model::time::ManualClock;
use model::{ApprovalId, Role, Secret, SecretKind, SystemEntropy, TenantId};
use policy::BasePolicies;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use std::collections::HashSet;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::Store;
use store::faults::{At, Fault, FaultyStore};
use support::hand::Hand;
use support::home::{self, Home};
use support::tenancy::{ENTRIES, Tenancy, injected, merging, reading};
use support::{BASE_FILE, BEGINNING, Reply, World, patient, signing_key};

/// What one gateway changes is in force on the others within two seconds; a machine that does much else may take longer.
const IN_FORCE_WITHIN: Duration = Duration::from_mins(1);
/// How long a database that stands still is waited for.
const PATIENCE: Duration = Duration::from_mins(1);

/// Three gateways and a tenant.
struct Cluster {
    worlds: Vec<Arc<World>>,
    tenancy: Tenancy,
    operator: Secret,
}

impl Cluster {
    async fn new() -> Self {
        let home = Arc::new(Home::Database(home::database().await));
        let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        let mut worlds = Vec::new();
        for _ in 0..3 {
            let clock = Arc::new(ManualClock::at(BEGINNING));
            // Some tests wait until a gateway knows no more what the others have changed.
            let world = World::join_as_told(Arc::clone(&home), &operator, clock, Options::default()).await;
            worlds.push(Arc::new(world));
        }
        let tenancy = worlds[0].tenancy("acme").await;
        let cluster = Self {
            worlds,
            tenancy,
            operator,
        };
        cluster.until_all_know(&cluster.tenancy.other_token).await;
        cluster
    }

    /// Waits until every gateway lets this credential in.
    async fn until_all_know(&self, credential: &str) {
        for world in &self.worlds {
            eventually(|| async { world.get("/v1/whoami", credential).await.status == 200 }).await;
        }
    }

    /// What the agent is told on this gateway. The ask has an id, so that it is the same one however often it is made.
    async fn ask(&self, at: usize, ask: &Value) -> Reply {
        answered(|| self.worlds[at].post("/v1/authorize", &self.tenancy.token, ask)).await
    }

    async fn verify(&self) -> Value {
        let range = json!({});
        let verified = || self.worlds[0].post("/v1/ledger/verify", &self.tenancy.auditor, &range);
        let verified = answered(verified).await.expect(200);
        assert_eq!(verified["verified"], true, "{verified}");
        verified
    }

    /// One more gateway, which can be kept from learning what the others change.
    async fn join(&self, options: Options) -> (World, Arc<FaultyStore<dyn Store>>) {
        self.join_with(options, None).await
    }

    /// One more gateway, as of [`Self::join`], which reads its base policies again from this file.
    async fn join_with(
        &self,
        options: Options,
        base_file: Option<PathBuf>,
    ) -> (World, Arc<FaultyStore<dyn Store>>) {
        let home = &self.worlds[0].home;
        let clock = &self.worlds[0].clock;
        let faults = Arc::new(FaultyStore::new(home.open().await));
        let ingredients = Ingredients {
            store: faults.clone(),
            clock: clock.clone(),
            entropy: Arc::new(SystemEntropy),
            signing_key: signing_key(),
            base_policies: BasePolicies::shipped(),
            base_file,
            options,
        };
        let (gateway, _) = start::start(ingredients).await.unwrap();
        let world = World {
            app: App::new(&gateway),
            gateway,
            store: faults.clone(),
            clock: clock.clone(),
            operator: self.operator.reveal().to_owned(),
            home: Arc::clone(home),
        };
        (world, faults)
    }

    /// Gives the agent a bucket of so many tokens that never refills and that all gateways share.
    async fn share_bucket(&self, capacity: u32) {
        let Tenancy { id, agent, .. } = &self.tenancy;
        let settings = json!({"settings": {"limits": {"shared": true}}});
        self.change(0, "PATCH", &format!("/v1/tenants/{id}"), &settings)
            .await;
        let bucket = json!({"bucket": {"capacity": capacity, "refill_per_second": 0}});
        self.change(0, "PUT", &format!("/v1/agents/{agent}/quota"), &bucket)
            .await;
        for world in &self.worlds {
            eventually(|| async {
                let tenant = world.gateway.tenant(*id).unwrap();
                tenant.directory.agents[agent].limits.bucket.is_some()
            })
            .await;
        }
    }

    /// Has this gateway read its base policies again.
    async fn reload(&self, world: &World) -> Reply {
        let call = world.call("POST", "/v1/policies/reload", self.operator.reveal());
        call.send().await
    }

    /// A change of the operator's, made on this gateway.
    async fn change(&self, at: usize, method: &str, path: &str, body: &Value) -> Value {
        let reply = self.worlds[at]
            .call(method, path, self.operator.reveal())
            .tenant(self.tenancy.id)
            .json(body)
            .send()
            .await;
        assert!(reply.status.is_success(), "{path}: {}", reply.text());
        reply.json()
    }
}

/// The answer to a call that may be made again, and how often it was refused before: where one commit stands still,
/// those who wait for it are told after a while that the ledger is not available.
async fn repeated<F: Future<Output = Reply>>(call: impl Fn() -> F) -> (Reply, usize) {
    let patience = Instant::now() + PATIENCE;
    let mut refused = 0;
    loop {
        let reply = call().await;
        let stood_still = reply.status == 503 && reply.json()["code"] == "ledger_unavailable";
        if !stood_still || Instant::now() >= patience {
            return (reply, refused);
        }
        refused += 1;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The answer to a call that may be made again.
async fn answered<F: Future<Output = Reply>>(call: impl Fn() -> F) -> Reply {
    repeated(call).await.0
}

/// Waits until it is so, which has to be soon.
async fn eventually<F: Future<Output = bool>>(so: impl Fn() -> F) {
    let deadline = Instant::now() + IN_FORCE_WITHIN;
    while !so().await {
        assert!(Instant::now() < deadline, "not within {IN_FORCE_WITHIN:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gateways_that_bring_along_one_operator_key_record_it_once() {
    let cluster = Cluster::new().await;
    let brought = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
    let installing = cluster
        .worlds
        .iter()
        .map(|world| operator_key::install(&world.gateway, brought.digest(), "brought"));
    for installed in join_all(installing).await {
        installed.unwrap();
    }
    let keys = cluster.worlds[0].get("/v1/keys", cluster.operator.reveal()).await;
    let keys = keys.expect(200);
    let items = keys["items"].as_array().unwrap();
    let brought: Vec<_> = items.iter().filter(|key| key["name"] == "brought").collect();
    assert_eq!(brought.len(), 1, "{keys}");
}

/// Each has seen that there is none before any of them has recorded one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_gateways_that_are_started_together_one_makes_the_first_operator_key() {
    let home = home::database().await;
    let home = Home::Database(home);
    let mut gateways = Vec::new();
    for _ in 0..3 {
        let ingredients = Ingredients {
            store: home.open().await,
            clock: Arc::new(ManualClock::at(BEGINNING)),
            entropy: Arc::new(SystemEntropy),
            signing_key: signing_key(),
            base_policies: BasePolicies::shipped(),
            base_file: None,
            options: Options::default(),
        };
        gateways.push(start::start(ingredients).await.unwrap().0);
    }
    let shown = std::sync::Mutex::new(Vec::new());
    let show = |key: &str| {
        shown.lock().unwrap().push(key.to_owned());
        Ok(())
    };
    let making = gateways
        .iter()
        .map(|gateway| operator_key::ensure(gateway, None, show));
    for made in join_all(making).await {
        made.unwrap();
    }
    let shown = shown.into_inner().unwrap();
    assert_eq!(shown.len(), 3);
    let keys = |gateway: &Gateway| {
        let system = gateway.tenant(TenantId::SYSTEM).unwrap();
        let digests = system.directory.keys.values().map(|key| key.digest);
        digests.collect::<Vec<_>>()
    };
    for gateway in &gateways {
        eventually(|| async { !keys(gateway).is_empty() }).await;
        let keys = keys(gateway);
        assert_eq!(keys.len(), 1);
        assert!(shown.iter().any(|key| Digest::of(key.as_bytes()) == keys[0]));
    }
}

fn named(mut ask: Value, request_id: &str) -> Value {
    ask["request_id"] = json!(request_id);
    ask
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_gateways_write_one_chain_without_fork_or_gap() {
    let cluster = Arc::new(Cluster::new().await);
    let before = cluster.verify().await["head"]["seq"].as_u64().unwrap();
    let callers = (0..12).map(|caller| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            let mut seqs = Vec::new();
            for turn in 0..25 {
                let ask = named(reading(), &format!("call-{caller}-{turn}"));
                let answer = cluster.ask(caller % 3, &ask).await.expect(200);
                seqs.push(answer["receipt"]["seq"].as_u64().unwrap());
            }
            seqs
        })
    });
    let seqs: Vec<u64> = join_all(callers)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    let distinct: HashSet<u64> = seqs.iter().copied().collect();
    assert_eq!((seqs.len(), distinct.len()), (300, 300));
    let after = cluster.verify().await;
    assert_eq!(after["head"]["seq"], before + 300);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_request_sent_to_all_gateways_at_once_has_one_answer() {
    let cluster = Cluster::new().await;
    let before = cluster.verify().await["checked"].as_u64().unwrap();
    for round in 0..20 {
        let ask = named(reading(), &format!("call-{round}"));
        let replies = join_all((0..3).map(|at| cluster.ask(at, &ask))).await;
        for reply in &replies {
            reply.expect(200);
            assert_eq!(reply.bytes, replies[0].bytes);
        }
        let other = named(injected(), &format!("call-{round}"));
        for at in 0..3 {
            let reused = cluster.ask(at, &other).await;
            reused.problem(422, "idempotency_key_reused");
        }
    }
    assert_eq!(cluster.verify().await["checked"], before + 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gateway_has_answered_the_others_answer_though_they_would_refuse_it_now() {
    let cluster = Cluster::new().await;
    let mut fresh = reading();
    fresh["agent"] = json!({"environment": "staging"});
    let ask = named(fresh.clone(), "call-1");
    let first = cluster.ask(0, &ask).await;
    first.expect(200);
    let path = format!("/v1/agents/{}", cluster.tenancy.agent);
    let moved = json!({"environment": "production"});
    cluster.change(0, "PATCH", &path, &moved).await;
    for at in 0..3 {
        eventually(|| async { cluster.ask(at, &fresh).await.status == 403 }).await;
        let again = cluster.ask(at, &ask).await;
        again.expect(200);
        assert_eq!(again.bytes, first.bytes);
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gateway_has_allowed_no_other_allows_again_without_the_grant() {
    let cluster = Cluster::new().await;
    let ask = named(reading(), "call-1");
    assert_eq!(cluster.ask(0, &ask).await.expect(200)["decision"], "allow");
    let agent = cluster.tenancy.agent;
    let path = format!("/v1/agents/{agent}");
    cluster.change(0, "PATCH", &path, &json!({"tools": []})).await;
    for (at, world) in cluster.worlds.iter().enumerate() {
        let knows = || async {
            let tenant = world.gateway.tenant(cluster.tenancy.id).unwrap();
            !tenant.directory.agents[&agent].tools.includes("github")
        };
        eventually(knows).await;
        let again = cluster.ask(at, &ask).await.expect(200);
        assert_eq!(again["reason_code"], "tool_not_granted", "{at}");
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_gateway_records_is_followed_on_the_others() {
    let cluster = Cluster::new().await;
    let (reading_it, auditor) = (Arc::clone(&cluster.worlds[1]), cluster.tenancy.auditor.clone());
    // Whenever the stream looks where the chain ends.
    let next = cluster.verify().await["head"]["seq"].as_u64().unwrap() + 1;
    let followed = tokio::spawn(async move {
        let path = format!("/v1/events?kind=decision&limit=2&from_seq={next}");
        reading_it.get(&path, &auditor).await
    });
    let is_followed = || async { cluster.worlds[1].gateway.live.streams() == 1 };
    eventually(is_followed).await;
    for at in [0, 2] {
        let asked = cluster.worlds[at]
            .authorize(&cluster.tenancy.token, &reading())
            .await;
        asked.expect(200);
    }
    let followed = tokio::time::timeout(IN_FORCE_WITHIN, followed)
        .await
        .unwrap()
        .unwrap();
    let followed = followed.text();
    assert_eq!(followed.matches("data: ").count(), 2, "{followed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_on_one_gateway_holds_on_all_from_the_next_decision_on() {
    let cluster = Cluster::new().await;
    let agent = cluster.tenancy.agent;
    for verb in ["freeze", "unfreeze", "freeze"] {
        let path = format!("/v1/agents/{agent}/{verb}");
        cluster
            .change(0, "POST", &path, &json!({"reason": "a test"}))
            .await;
        // No gateway has to have heard of it: what it judged before is turned back when it is to be recorded.
        for world in &cluster.worlds[1..] {
            let answer = world
                .post("/v1/authorize", &cluster.tenancy.token, &reading())
                .await
                .expect(200);
            let expected = if verb == "freeze" { "deny" } else { "allow" };
            assert_eq!(answer["decision"], expected, "{verb}: {answer}");
        }
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_approval_is_spent_once_whichever_gateway_is_asked() {
    let cluster = Cluster::new().await;
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let key = cluster.change(0, "POST", "/v1/keys", &key).await;
    let ann = key["key"].as_str().unwrap();
    cluster.until_all_know(ann).await;
    let ask = json!({
        "tool_call": {"tool": "github", "action": "create_issue", "parameters": {}},
        "context": {"source_trust": "semi_trusted_customer"},
    });
    for round in 0..10 {
        let first = named(ask.clone(), &format!("ask-{round}"));
        let asked = cluster.ask(round % 3, &first).await.expect(200);
        let id = asked["approval"]["id"].as_str().unwrap();
        let vote = format!("/v1/approvals/{id}/approve");
        let reason = json!({"reason": "a test"});
        let world = &cluster.worlds[(round + 1) % 3];
        let (voted, refused) = repeated(|| world.post(&vote, ann, &reason)).await;
        // What was refused may have been recorded all the same.
        if refused == 0 || voted.status != 409 {
            voted.expect(200);
        }
        let retries = (0..9).map(|at| {
            let mut retry = named(ask.clone(), &format!("retry-{round}-{at}"));
            retry["approval_id"] = json!(id);
            let cluster = &cluster;
            async move { cluster.ask(at % 3, &retry).await }
        });
        let retries = join_all(retries).await;
        let (allowed, refused): (Vec<_>, Vec<_>) = retries.iter().partition(|reply| reply.status == 200);
        assert_eq!(allowed.len(), 1, "round {round}");
        assert_eq!(allowed[0].expect(200)["reason_code"], "approval_granted");
        for reply in refused {
            reply.problem(409, "approval_not_usable");
        }
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_containment_rule_fires_once_whichever_gateway_looks() {
    let cluster = Cluster::new().await;
    let rule = json!({"trigger": "denials", "effect": "alert", "count": 3, "window_seconds": 600});
    cluster.change(0, "PUT", "/v1/rules/denied", &rule).await;
    let path = "/v1/audit/events?kind=alert_raised";
    for round in 1..=5 {
        for at in 0..3 {
            let answer = cluster.worlds[at]
                .post("/v1/authorize", &cluster.tenancy.token, &injected())
                .await
                .expect(200);
            assert_eq!(answer["decision"], "deny");
        }
        // Those who look by themselves every quarter of a second look, too.
        for _ in 0..3 {
            join_all(cluster.worlds.iter().map(|world| world.gateway.contain())).await;
        }
        let alerts = || async {
            let reply = cluster.worlds[0].get(path, &cluster.tenancy.auditor).await;
            reply.expect(200)["items"].as_array().unwrap().clone()
        };
        eventually(|| async { alerts().await.len() >= round }).await;
        let alerts = alerts().await;
        assert_eq!(alerts.len(), round, "{alerts:?}");
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn budgets_are_exact_whichever_gateway_is_asked() {
    let cluster = Arc::new(Cluster::new().await);
    let budget = json!({"scope": {"agent": cluster.tenancy.agent}, "unit": "CREDITS", "allocated": 100});
    cluster.change(0, "POST", "/v1/budgets", &budget).await;
    let callers = (0..12).map(|caller| {
        let cluster = Arc::clone(&cluster);
        tokio::spawn(async move {
            let mut allowed = Vec::new();
            for turn in 0..12 {
                let mut ask = named(reading(), &format!("call-{caller}-{turn}"));
                ask["estimate"] = json!({"unit": "CREDITS", "amount": 1});
                let answer = cluster.ask(caller % 3, &ask).await.expect(200);
                if answer["decision"] == "allow" {
                    allowed.push(answer["reservation"]["id"].as_str().unwrap().to_owned());
                } else {
                    assert_eq!(answer["reason_code"], "budget_exceeded");
                }
            }
            allowed
        })
    });
    let held: Vec<String> = join_all(callers)
        .await
        .into_iter()
        .flat_map(Result::unwrap)
        .collect();
    assert_eq!(held.len(), 100);
    let commit = json!({"actual": {"unit": "CREDITS", "amount": 1}});
    let commits = held.iter().enumerate().map(|(at, id)| {
        let path = format!("/v1/reservations/{id}/commit");
        let (world, token, commit) = (&cluster.worlds[at % 3], &cluster.tenancy.token, &commit);
        async move {
            let call = || {
                let call = world.call("POST", &path, token).json(commit);
                call.header("idempotency-key", format!("commit-{at}"))
            };
            answered(|| call().send()).await.expect(200)
        }
    });
    join_all(commits).await;
    let page = answered(|| cluster.worlds[1].get("/v1/balances", &cluster.tenancy.token)).await;
    let page = page.expect(200);
    let left = &page["items"][0];
    assert_eq!(
        (&left["remaining"], &left["reserved"], &left["spent"]),
        (&json!(0), &json!(0), &json!(100))
    );
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_in_force_everywhere_soon_also_where_nobody_decides() {
    let cluster = Cluster::new().await;
    let [first, second, third] = &cluster.worlds[..] else {
        panic!("three gateways");
    };
    let key = first.add_key(cluster.tenancy.id, Role::Auditor).await;
    cluster.until_all_know(&key).await;

    let path = format!("/v1/agents/{}/tokens", cluster.tenancy.agent);
    let token = cluster.change(1, "POST", &path, &json!({})).await;
    let secret = token["token"].as_str().unwrap();
    cluster.until_all_know(secret).await;
    let path = format!("{path}/{}", token["id"].as_str().unwrap());
    let gone = second
        .call("DELETE", &path, cluster.operator.reveal())
        .tenant(cluster.tenancy.id)
        .send()
        .await;
    assert_eq!(gone.status, 204, "{}", gone.text());
    for world in [first, third] {
        eventually(|| async { world.get("/v1/whoami", secret).await.status == 401 }).await;
    }

    let tenant = third
        .post(
            "/v1/tenants",
            cluster.operator.reveal(),
            &json!({"name": "globex"}),
        )
        .await
        .expect(201);
    let path = format!("/v1/tenants/{}", tenant["id"].as_str().unwrap());
    for world in [first, second] {
        eventually(|| async { world.get(&path, cluster.operator.reveal()).await.status == 200 }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_that_one_gateway_puts_in_force_is_in_force_on_the_others_soon() {
    let cluster = Cluster::new().await;
    let mut trying = support::tenancy::ask("create_issue", "trusted_internal_unsigned");
    // A dry run is not recorded, so nothing turns it back: it is answered by what this gateway knows.
    trying["mode"] = json!("dry_run");
    let until_all_say = async |decision: &str| {
        for world in &cluster.worlds {
            eventually(|| async {
                let tried = world.post("/v1/authorize", &cluster.tenancy.token, &trying).await;
                tried.expect(200)["decision"] == decision
            })
            .await;
        }
    };
    until_all_say("allow").await;
    let cedar = r#"@id("none") forbid (principal, action == Action::"github/create_issue", resource);"#;
    let path = "/v1/policies/issues";
    cluster.change(0, "PUT", path, &json!({"cedar": cedar})).await;
    until_all_say("deny").await;
    let digests: HashSet<_> = cluster
        .worlds
        .iter()
        .map(|world| {
            world
                .gateway
                .tenant(cluster.tenancy.id)
                .unwrap()
                .policies
                .digest()
        })
        .collect();
    assert_eq!(digests.len(), 1, "all by the same policies");
    cluster.change(2, "PUT", path, &json!({"cedar": ""})).await;
    until_all_say("allow").await;
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_gateways_that_change_the_same_thing_do_not_lose_a_change() {
    let cluster = Cluster::new().await;
    let changes = (0..30).map(|number| {
        let (method, path) = ("PUT", format!("/v1/teams/team-{number}"));
        let cluster = &cluster;
        async move { cluster.change(number % 3, method, &path, &json!({})).await }
    });
    join_all(changes).await;
    for world in &cluster.worlds {
        eventually(|| async {
            let tenant = world.gateway.tenant(cluster.tenancy.id).unwrap();
            tenant.directory.teams.len() == 30
        })
        .await;
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_wrote_alone_goes_on_when_another_one_has_changed_the_directory() {
    let cluster = Cluster::new().await;
    let token = cluster.tenancy.token.as_str();
    for round in 0..3 {
        for _ in 0..4 {
            let reply = cluster.worlds[0].post("/v1/authorize", token, &reading()).await;
            reply.expect(200);
        }
        let team = format!("/v1/teams/team-{round}");
        cluster.change(1, "PUT", &team, &json!({})).await;
        eventually(|| async {
            let tenant = cluster.worlds[0].gateway.tenant(cluster.tenancy.id).unwrap();
            tenant.directory.teams.len() == round + 1
        })
        .await;
        let reply = cluster.worlds[0].post("/v1/authorize", token, &reading()).await;
        reply.expect(200);
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_quota_allows_its_limit_whatever_gateway_is_asked() {
    let cluster = Cluster::new().await;
    let path = format!("/v1/agents/{}/quota", cluster.tenancy.agent);
    let quotas = json!({"quotas": [{"window": "month", "limit": 40}, {"window": "run", "limit": 50}]});
    cluster.change(0, "PUT", &path, &quotas).await;
    let token = cluster.tenancy.token.as_str();
    let asks = (0..120).map(|number| {
        let world = &cluster.worlds[number % 3];
        let ask = named(reading(), &format!("call-{number}"));
        async move { world.post("/v1/authorize", token, &ask).await.status.as_u16() }
    });
    let statuses = join_all(asks).await;
    let refused = statuses.iter().filter(|status| **status == 429).count();
    let allowed = statuses.iter().filter(|status| **status == 200).count();
    // Whoever was turned back too often has been told so, and has not been counted.
    assert!(
        statuses.iter().all(|status| [200, 429, 503].contains(status)),
        "{statuses:?}"
    );
    assert!(allowed == 40 || refused == 0, "{statuses:?}");
    for world in &cluster.worlds {
        let view = world
            .get("/v1/quota?run_id=run-get_file", token)
            .await
            .expect(200);
        assert_eq!(view["quotas"][0]["used"], allowed);
        assert_eq!(view["quotas"][1]["used"], allowed);
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_took_the_last_of_a_quota_is_answered_alike_whatever_gateway_is_asked_again() {
    let cluster = Cluster::new().await;
    let path = format!("/v1/agents/{}/quota", cluster.tenancy.agent);
    let quotas = json!({"quotas": [{"window": "month", "limit": 1}]});
    cluster.change(0, "PUT", &path, &quotas).await;
    let ask = named(reading(), "call-1");
    let first = cluster.ask(0, &ask).await;
    assert_eq!(first.expect(200)["decision"], "allow");
    for at in 1..3 {
        let again = cluster.ask(at, &ask).await;
        again.expect(200);
        assert_eq!(again.bytes, first.bytes);
    }
    let other = cluster.ask(1, &named(reading(), "call-2")).await;
    other.problem(429, "quota_exceeded");
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shared_bucket_admits_what_it_holds_whatever_gateway_is_asked() {
    let cluster = Cluster::new().await;
    cluster.share_bucket(50).await;
    let token = cluster.tenancy.token.as_str();
    let asks = (0..120).map(|number| {
        let world = &cluster.worlds[number % 3];
        let ask = named(reading(), &format!("call-{number}"));
        async move {
            let (reply, refused) = repeated(|| world.post("/v1/authorize", token, &ask)).await;
            (reply.status.as_u16(), refused)
        }
    });
    let (statuses, refused): (Vec<_>, Vec<_>) = join_all(asks).await.into_iter().unzip();
    let admitted = statuses.iter().filter(|status| **status == 200).count();
    assert!(
        statuses.iter().all(|status| [200, 429].contains(status)),
        "{statuses:?}"
    );
    // Whoever was admitted and then refused because the ledger stood still has used a token up.
    let mut lost: usize = refused.iter().sum();
    // What one gateway was lent and did not use is given back before the others are asked again.
    let mut later = 0;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(2_100)).await;
        for world in &cluster.worlds {
            loop {
                let ask = named(reading(), &format!("later-{later}"));
                let (reply, refused) = repeated(|| world.post("/v1/authorize", token, &ask)).await;
                lost += refused;
                if reply.status != 200 {
                    reply.problem(429, "rate_limited");
                    break;
                }
                later += 1;
            }
        }
    }
    let passed = admitted + later;
    assert!(passed <= 50 && passed + lost >= 50, "{passed}, {lost} lost");
    let left = answered(|| cluster.worlds[1].get("/v1/quota", token)).await;
    let left = left.expect(200);
    assert_eq!(left["remaining"]["tokens"], 0, "{left}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_looks_at_a_shared_bucket_leaves_it_to_the_other_gateways() {
    let cluster = Cluster::new().await;
    cluster.share_bucket(1).await;
    let token = cluster.tenancy.token.as_str();
    let (probe, ask) = ("/v1/quota/probe?tool=github&action=get_file", reading());
    for world in &cluster.worlds {
        let told = answered(|| world.get(probe, token)).await.expect(200);
        assert_eq!(told, json!({"passes": true}));
        let decided = answered(|| world.post("/v1/decide", token, &ask)).await;
        assert_eq!(decided.expect(200)["decision"], "allow");
    }
    let ask = named(ask, "call-1");
    let (reply, refused) = repeated(|| cluster.worlds[1].post("/v1/authorize", token, &ask)).await;
    // Where the ledger stood still, the token may be used up.
    assert!(reply.status == 200 || refused > 0, "{}", reply.text());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_in_a_chain_does_not_run_backwards_though_clocks_differ_by_a_minute() {
    let cluster = Cluster::new().await;
    cluster.worlds[0].clock.advance_millis(60_000);
    for turn in 0..9 {
        let world = &cluster.worlds[turn % 3];
        world
            .post("/v1/authorize", &cluster.tenancy.token, &reading())
            .await
            .expect(200);
    }
    let store = &cluster.worlds[0].store;
    let entries = store.entries(cluster.tenancy.id, 1, 1_000).await.unwrap();
    assert!(entries.is_sorted_by_key(|entry| entry.at));
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_held_is_held_as_long_as_it_should_be_though_clocks_differ_by_a_minute() {
    let cluster = Cluster::new().await;
    let budget = json!({"scope": {}, "unit": "CREDITS", "allocated": 10});
    cluster.change(0, "POST", "/v1/budgets", &budget).await;
    let [ahead, behind, _] = &cluster.worlds[..] else {
        panic!("three gateways");
    };
    ahead.clock.advance_millis(60_000);
    let first = named(reading(), "first");
    cluster.ask(0, &first).await.expect(200);
    let post = async |world: &World, path: &str, key: &str, body: &Value| {
        let call = || {
            let call = world.call("POST", path, &cluster.tenancy.token).json(body);
            call.header("idempotency-key", key).send()
        };
        answered(call).await
    };
    let all = json!({"unit": "CREDITS", "amount": 10, "ttl_ms": 30_000});
    let commit = json!({"actual": {"unit": "CREDITS", "amount": 0}});
    for (key, waits, status) in [("in time", 34_999, 200), ("late", 35_000, 410)] {
        let held = post(behind, "/v1/reservations", key, &all).await.expect(201);
        let path = format!("/v1/reservations/{}/commit", held["id"].as_str().unwrap());
        ahead.clock.advance_millis(waits);
        let key = format!("commit {key}");
        let settled = post(ahead, &path, &key, &commit).await;
        settled.expect(status);
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_cannot_learn_of_changes_fails_closed_and_comes_back() {
    let cluster = Cluster::new().await;
    let (deaf, faults) = cluster.join(Options::default()).await;
    let known = named(reading(), "call-1");
    deaf.post("/v1/authorize", &cluster.tenancy.token, &known)
        .await
        .expect(200);
    faults.fail_reads(true);
    let bound = FixedBounds::default().snapshot_age_max;
    tokio::time::sleep(bound + Duration::from_millis(100)).await;
    // Also what it could answer from memory.
    for path in ["/v1/whoami", "/v1/quota"] {
        deaf.get(path, &cluster.tenancy.token)
            .await
            .problem(503, "ledger_unavailable");
    }
    deaf.post("/v1/authorize", &cluster.tenancy.token, &known)
        .await
        .problem(503, "ledger_unavailable");
    let detail = deaf.get("/readyz", "").await.problem(503, "ledger_unavailable");
    assert!(detail.contains("what others have changed"), "{detail}");
    faults.fail_reads(false);
    eventually(|| async { deaf.get("/readyz", "").await.status == 200 }).await;
    deaf.post("/v1/authorize", &cluster.tenancy.token, &known)
        .await
        .expect(200);
}

/// When its head came, the gateway still knew what the others had changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_whose_body_comes_late_is_not_answered_by_what_is_known_no_more() {
    let cluster = Cluster::new().await;
    let options = Options {
        bounds: FixedBounds {
            body_time_max: PATIENCE,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let bound = options.bounds.snapshot_age_max;
    let (deaf, faults) = cluster.join(options).await;
    let token = &cluster.tenancy.token;
    let known = named(reading(), "call-1");
    let ask = || deaf.post("/v1/authorize", token, &known);
    assert_eq!(answered(ask).await.expect(200)["decision"], "allow");
    let hold = async |path: &str, body: &Value| deaf.call("POST", path, token).json(body).hold().await;
    let alone = hold("/v1/authorize", &known).await;
    let batch = hold("/v1/authorize/batch", &json!({"asks": [known]})).await;
    faults.fail_reads(true);
    let path = format!("/v1/agents/{}/freeze", cluster.tenancy.agent);
    let because = json!({"reason": "a test"});
    cluster.change(0, "POST", &path, &because).await;
    tokio::time::sleep(bound + Duration::from_millis(100)).await;
    let refused = alone.finish().await.expect(503);
    assert_eq!(refused["code"], "ledger_unavailable");
    let refused = batch.finish().await.expect(200);
    assert_eq!(refused["answers"][0]["code"], "ledger_unavailable", "{refused}");
    faults.fail_reads(false);
    assert_eq!(answered(ask).await.expect(200)["reason_code"], "agent_frozen");
    cluster.verify().await;
}

/// Their key is in another tenant than the one whose revision the commit compares.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_operators_have_begun_is_not_recorded_where_it_is_not_known_whether_their_key_still_works() {
    let cluster = Cluster::new().await;
    let options = Options {
        bounds: FixedBounds {
            body_time_max: PATIENCE,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let bound = options.bounds.snapshot_age_max;
    let (deaf, faults) = cluster.join(options).await;
    let (world, tenant) = (&cluster.worlds[0], cluster.tenancy.id);
    let operator = cluster.operator.reveal();
    let budget = json!({"scope": {}, "unit": "CREDITS", "allocated": 100});
    let budget = cluster.change(0, "POST", "/v1/budgets", &budget).await;
    cluster.ask(0, &named(reading(), "call-1")).await.expect(200);
    let second = json!({"name": "second", "role": "operator"});
    let second = world.post("/v1/keys", operator, &second).await.expect(201);
    let key = second["key"].as_str().unwrap();
    eventually(|| async { deaf.get("/v1/keys", key).await.status == 200 }).await;

    let debit = format!("/v1/budgets/{}/debit", budget["id"].as_str().unwrap());
    let wanted = [
        (debit.as_str(), json!({"amount": 1})),
        ("/v1/ledger/erase", json!({"agent": cluster.tenancy.agent})),
    ];
    let call = |path: &str, body: &Value| deaf.call("POST", path, key).tenant(tenant).json(body);
    let mut begun = Vec::new();
    for (path, body) in &wanted {
        begun.push(call(path, body).hold().await);
    }
    let before = deaf.store.head(tenant).await.unwrap();
    faults.hold_at(At::Changes, true);
    let path = format!("/v1/keys/{}", second["id"].as_str().unwrap());
    let deleted = world.call("DELETE", &path, operator).send().await;
    deleted.expect(204);
    eventually(|| async { deaf.gateway.snapshot.age() > bound }).await;
    for begun in begun {
        let refused = begun.finish().await.expect(503);
        assert_eq!(refused["code"], "ledger_unavailable");
    }
    assert_eq!(deaf.store.head(tenant).await.unwrap(), before);

    faults.hold_at(At::Changes, false);
    for (path, body) in &wanted {
        let again = answered(|| call(path, body).send()).await;
        again.problem(401, "invalid_token");
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_freeze_is_made_where_another_gateway_has_just_lifted_it() {
    let cluster = Cluster::new().await;
    let (deaf, faults) = cluster.join(patient(Options::default())).await;
    let agent = cluster.tenancy.agent;
    let path = |verb: &str| format!("/v1/agents/{agent}/{verb}");
    let because = json!({"reason": "a test"});
    cluster.change(0, "POST", &path("freeze"), &because).await;
    let knows = || async {
        let tenant = deaf.gateway.tenant(cluster.tenancy.id).unwrap();
        !tenant.directory.agents[&agent].standing.is_active()
    };
    eventually(knows).await;
    faults.fail_reads(true);
    cluster.change(0, "POST", &path("unfreeze"), &because).await;
    let path = path("freeze");
    let freeze = || {
        let call = deaf.call("POST", &path, cluster.operator.reveal());
        call.tenant(cluster.tenancy.id).json(&because).send()
    };
    // All that it knows is that the agent is frozen already.
    assert!(knows().await);
    freeze().await.problem(503, "ledger_unavailable");
    faults.fail_reads(false);
    answered(freeze).await.expect(200);
    for world in cluster.worlds.iter().map(|world| &**world).chain([&deaf]) {
        let (token, ask) = (&cluster.tenancy.token, reading());
        let asked = answered(|| world.post("/v1/authorize", token, &ask)).await;
        assert_eq!(asked.expect(200)["reason_code"], "agent_frozen");
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reload_is_made_where_another_gateway_has_just_reloaded_something_else() {
    const READ: &str = r#"@id("read") permit (principal, action in Action::"read", resource);"#;
    let cluster = Cluster::new().await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("base.cedar");
    std::fs::write(&file, READ).unwrap();
    let options = || patient(Options::default());
    let (deaf, faults) = cluster.join_with(options(), Some(BASE_FILE.into())).await;
    let (other, _) = cluster.join_with(options(), Some(file)).await;
    for _ in 0..2 {
        let reloaded = answered(|| cluster.reload(&deaf)).await.expect(200);
        assert_eq!(reloaded["changed"], false, "{reloaded}");
    }
    faults.fail_reads(true);
    answered(|| cluster.reload(&other)).await.expect(200);
    let shipped = BasePolicies::shipped().digest();
    assert_ne!(other.gateway.snapshot.load().base_digest(), shipped);
    // All that it knows is that what its file says is in force for everybody already.
    assert_eq!(deaf.gateway.snapshot.load().base_digest(), shipped);
    let blind = cluster.reload(&deaf).await;
    blind.problem(503, "ledger_unavailable");
    faults.fail_reads(false);
    answered(|| cluster.reload(&deaf)).await.expect(200);
    for world in cluster.worlds.iter().map(|world| &**world).chain([&deaf, &other]) {
        eventually(|| async { world.gateway.snapshot.load().base_digest() == shipped }).await;
    }
    cluster.verify().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_two_gateways_would_erase_is_told_once() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let cluster = Cluster::new().await;
    let (late, faults) = cluster.join(patient(Options::default())).await;
    for number in 0..3 {
        let ask = named(reading(), &format!("call-{number}"));
        cluster.ask(0, &ask).await.expect(200);
    }
    let tenant = format!("/v1/tenants/{}", cluster.tenancy.id);
    let settings = json!({"settings": {"erase_after_days": 1}});
    cluster.change(0, "PATCH", &tenant, &settings).await;
    eventually(|| async {
        let tenant = late.gateway.tenant(cluster.tenancy.id).unwrap();
        tenant.directory.tenant.settings.erase_after_days.is_some()
    })
    .await;
    late.clock.advance_millis(3 * DAY_MS);
    faults.plan([Fault::Hold]);
    let now = late.gateway.clock.now();
    let (late_one, ()) = tokio::join!(late.gateway.erase_old(now), async {
        eventually(|| async { faults.held() == 1 }).await;
        eventually(|| async { cluster.worlds[0].gateway.erase_old(now).await.erased == 3 }).await;
        faults.let_go();
    });
    assert_eq!(late_one.erased, 0, "it tells of what another one has erased");
    let entries = late.store.entries(cluster.tenancy.id, 1, 1_000).await.unwrap();
    let told = entries.iter().filter(|entry| entry.kind == "bodies_erased");
    assert_eq!(told.count(), 1);
    cluster.verify().await;
}

/// Puts something into a directory that this version cannot read, as a newer one may write it during an upgrade. It is
/// part of the next change.
async fn spoil(stranger: &mut sqlx::PgConnection, tenant: TenantId) {
    let id = format!("{:032x}", u128::from_be_bytes(*tenant.as_bytes()));
    let unreadable = format!(
        "INSERT INTO directory VALUES ('{id}', 'agent', 'agt_later', NULL, '{{}}');
         INSERT INTO directory_changes (tenant_id, revision, kind, id, since)
         SELECT tenant_id, revision + 1, 'agent', 'agt_later', revision FROM tenants WHERE tenant_id = '{id}'"
    );
    sqlx::raw_sql(AssertSqlSafe(unreadable))
        .execute(stranger)
        .await
        .unwrap();
}

/// Takes it out again.
async fn mend(stranger: &mut sqlx::PgConnection) {
    sqlx::raw_sql("DELETE FROM directory WHERE id = 'agt_later'")
        .execute(stranger)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_whose_changes_cannot_be_read_are_refused_and_no_others() {
    let cluster = Cluster::new().await;
    let [first, second, _] = &cluster.worlds[..] else {
        panic!("there are three");
    };
    let Home::Database(database) = &*first.home else {
        panic!("they share a database");
    };
    let mut stranger = database.stranger().await;
    let mut unreadable = Vec::new();
    // More than there are loaders.
    for name in ["globex", "initech", "umbrella"] {
        let other = first.tenancy(name).await;
        cluster.until_all_know(&other.other_token).await;
        spoil(&mut stranger, other.id).await;
        let path = format!("/v1/agents/{}/freeze", other.other_agent);
        let freeze = first.call("POST", &path, cluster.operator.reveal());
        let freeze = freeze.tenant(other.id).json(&json!({"reason": "odd"}));
        freeze.send().await.expect(200);
        eventually(|| async { second.get("/v1/whoami", &other.token).await.status == 503 }).await;
        unreadable.push(other);
    }

    // Others are known as well as before, and what is changed of them is in force.
    assert_eq!(second.get("/readyz", "").await.status, 200);
    let path = format!("/v1/agents/{}/freeze", cluster.tenancy.agent);
    cluster.change(0, "POST", &path, &json!({"reason": "odd"})).await;
    let is_denied = || async {
        let ask = reading();
        let answer = second.post("/v1/authorize", &cluster.tenancy.token, &ask).await;
        answer.status == 200 && answer.json()["reason_code"] == "agent_frozen"
    };
    eventually(is_denied).await;

    mend(&mut stranger).await;
    for other in unreadable {
        eventually(|| async { second.get("/v1/whoami", &other.token).await.status == 200 }).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_stood_in_line_is_not_told_of_a_tenant_whose_changes_cannot_be_read_any_more() {
    let cluster = Cluster::new().await;
    let [first, second, _] = &cluster.worlds[..] else {
        panic!("there are three");
    };
    let Home::Database(database) = &*first.home else {
        panic!("they share a database");
    };
    let place = second
        .gateway
        .ledger_chunks
        .acquire_for_part(cluster.tenancy.id)
        .await;
    let verify = second.call("POST", "/v1/ledger/verify", cluster.operator.reveal());
    let verify = verify.tenant(cluster.tenancy.id).json(&json!({}));
    let mut verified = pin!(verify.send());
    let early = tokio::time::timeout(Duration::from_millis(500), verified.as_mut()).await;
    assert!(early.is_err(), "it does not wait for its turn");
    spoil(&mut database.stranger().await, cluster.tenancy.id).await;
    let path = format!("/v1/agents/{}/freeze", cluster.tenancy.other_agent);
    cluster.change(0, "POST", &path, &json!({"reason": "odd"})).await;
    let token = &cluster.tenancy.token;
    eventually(|| async { second.get("/v1/whoami", token).await.status == 503 }).await;
    drop(place);
    verified.await.problem(503, "ledger_unavailable");
}

/// It says who operates the gateways and which keys sign.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_cannot_read_what_is_everybodys_answers_nobody() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[1];
    let Home::Database(database) = &*world.home else {
        panic!("they share a database");
    };
    let mut stranger = database.stranger().await;
    spoil(&mut stranger, TenantId::SYSTEM).await;
    let more = format!(
        "UPDATE tenants SET revision = revision + 1 WHERE tenant_id = '{:032x}'",
        0
    );
    sqlx::raw_sql(AssertSqlSafe(more))
        .execute(&mut stranger)
        .await
        .unwrap();
    let token = &cluster.tenancy.token;
    eventually(|| async { world.get("/v1/whoami", token).await.status == 503 }).await;
    assert_eq!(world.get("/readyz", "").await.status, 503);
    mend(&mut stranger).await;
    eventually(|| async { world.get("/v1/whoami", token).await.status == 200 }).await;
}

/// Has the database say that a tenant has seen so many changes more.
async fn move_revision(stranger: &mut sqlx::PgConnection, tenant: TenantId, by: i64) {
    let id = format!("{:032x}", u128::from_be_bytes(*tenant.as_bytes()));
    let moved = format!("UPDATE tenants SET revision = revision + ({by}) WHERE tenant_id = '{id}'");
    sqlx::raw_sql(AssertSqlSafe(moved))
        .execute(stranger)
        .await
        .unwrap();
}

/// A database that took over without the last commit: what it says of a tenant later may be another change with the same number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_changes_the_database_has_lost_is_refused() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[1];
    let other = cluster.worlds[0].tenancy("globex").await;
    let path = format!("/v1/tenants/{}", other.id);
    let freeze = async |world: &World| {
        let path = format!("{path}/freeze");
        let because = json!({"reason": "a test"});
        world.post(&path, cluster.operator.reveal(), &because).await
    };
    freeze(&cluster.worlds[0]).await.expect(200);
    let is_frozen = || async {
        let known = world.gateway.tenant(other.id);
        known.is_ok_and(|known| !known.directory.tenant.standing.is_active())
    };
    eventually(is_frozen).await;
    let Home::Database(database) = &*world.home else {
        panic!("they share a database");
    };
    let mut stranger = database.stranger().await;
    move_revision(&mut stranger, other.id, -1).await;
    // It is frozen as far as this gateway knows, and not in the database.
    freeze(world).await.problem(503, "ledger_unavailable");
    eventually(|| async { world.get("/v1/whoami", &other.token).await.status == 503 }).await;
    world.get("/v1/whoami", &cluster.tenancy.token).await.expect(200);
    for path in [path.clone(), format!("{path}/quota")] {
        let shown = world.get(&path, cluster.operator.reveal()).await;
        shown.problem(503, "ledger_unavailable");
    }
    let head = world.store.head(other.id).await.unwrap();

    // Another change has got the number of the one that was lost, and then one is made that has a number of its own.
    for later in ["initech", "umbrella"] {
        move_revision(&mut stranger, other.id, 1).await;
        let call = world.call("PATCH", &path, cluster.operator.reveal());
        let patched = call.json(&json!({"settings": {"erase_after_days": 1}})).send();
        patched.await.problem(503, "ledger_unavailable");
        freeze(world).await.problem(503, "ledger_unavailable");
        assert_eq!(world.store.head(other.id).await.unwrap(), head);
        let later = cluster.worlds[0].tenancy(later).await;
        // Who knows of this has looked since.
        cluster.until_all_know(&later.other_token).await;
        let refused = world.get("/v1/whoami", &other.token).await;
        refused.problem(503, "ledger_unavailable");
    }
}

/// However lately the gateway has compared what it knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_asks_where_changes_are_lost_is_told_so_as_soon_as_that_is_known() {
    let cluster = Cluster::new().await;
    let (world, _) = cluster.join(patient(Options::default())).await;
    let id = cluster.tenancy.id;
    let Home::Database(database) = &*world.home else {
        panic!("they share a database");
    };
    move_revision(&mut database.stranger().await, id, -1).await;
    eventually(|| async { world.gateway.snapshot.continuity.has_lost(id) }).await;
    let token = &cluster.tenancy.token;
    let told = [
        world.post("/v1/authorize", token, &reading()).await,
        world.get("/v1/whoami", token).await,
    ];
    for told in told {
        let detail = told.problem(503, "ledger_unavailable");
        assert!(detail.contains("has lost changes of this tenant"), "{detail}");
    }
}

/// What is known of that tenant is not compared any more, so it only grows older.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_to_try_again_where_changes_of_the_system_tenant_are_lost() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[1];
    let Home::Database(database) = &*world.home else {
        panic!("they share a database");
    };
    move_revision(&mut database.stranger().await, TenantId::SYSTEM, -1).await;
    eventually(|| async { world.gateway.snapshot.continuity.has_lost(TenantId::SYSTEM) }).await;
    let token = &cluster.tenancy.token;
    eventually(|| async { world.get("/v1/whoami", token).await.status == 503 }).await;
    let told = [
        world.get("/v1/whoami", token).await,
        world.post("/v1/authorize", token, &reading()).await,
        world.get("/readyz", "").await,
    ];
    for told in told {
        let detail = told.problem(503, "ledger_unavailable");
        assert!(detail.contains("of the system tenant"), "{detail}");
        assert_eq!(told.headers.get("retry-after"), None);
    }
}

/// That a gateway has a tenant in force as it is in the store.
async fn assert_is_as_stored(world: &World, tenant: TenantId) {
    let stored = world.store.load(Some(&[tenant])).await.unwrap().remove(0);
    let known = world.gateway.tenant(tenant).unwrap();
    assert_eq!(known.revision, stored.position.revision);
    let directory = &known.directory;
    for noun in &stored.nouns {
        let known = directory.noun(noun.kind(), &noun.id()).map(|noun| noun.to_json());
        assert_eq!(known, Some(noun.to_json()));
    }
    let known = [
        directory.agents.len(),
        directory.tokens.len(),
        directory.keys.len(),
        directory.teams.len(),
        directory.users.len(),
        directory.tools.len(),
        directory.policies.len(),
    ];
    // Beside them there is the tenant itself.
    assert_eq!(known.iter().sum::<usize>() + 1, stored.nouns.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_changed_is_followed_without_reading_the_whole_directory() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(Options::default()).await;
    let Tenancy { id, agent, token, .. } = &cluster.tenancy;
    let forbidding =
        json!({"name": "no-reads", "cedar": "@id(\"no\") forbid (principal, action, resource);"});
    let key = json!({"name": "for a while", "role": "auditor"});
    let is_followed = || async {
        let (there, here) = (cluster.worlds[0].gateway.tenant(*id), world.gateway.tenant(*id));
        there.unwrap().revision == here.unwrap().revision
    };
    let read = faults.directories_read();
    let made = cluster.change(0, "POST", "/v1/keys", &key).await;
    cluster.change(0, "PUT", "/v1/teams/reviewers", &json!({})).await;
    cluster.change(0, "POST", "/v1/policies", &forbidding).await;
    eventually(is_followed).await;
    let (secret, ask) = (made["key"].as_str().unwrap(), reading());
    world.get("/v1/whoami", secret).await.expect(200);
    let denied = answered(|| world.post("/v1/authorize", token, &ask)).await;
    assert_eq!(denied.expect(200)["decision"], "deny");

    // Several changes that it hears of at once, of which one takes another back.
    faults.fail_reads(true);
    cluster.change(0, "PUT", "/v1/users/ann", &json!({})).await;
    let key = format!("/v1/keys/{}", made["id"].as_str().unwrap());
    for gone in [
        "/v1/users/ann",
        &key,
        "/v1/teams/reviewers",
        "/v1/policies/no-reads",
    ] {
        let delete = cluster.worlds[0].call("DELETE", gone, cluster.operator.reveal());
        delete.tenant(*id).send().await.expect(204);
    }
    let agent = format!("/v1/agents/{agent}");
    cluster
        .change(0, "PATCH", &agent, &json!({"name": "renamed"}))
        .await;
    faults.fail_reads(false);
    eventually(is_followed).await;
    world
        .get("/v1/whoami", secret)
        .await
        .problem(401, "invalid_token");
    let allowed = answered(|| world.post("/v1/authorize", token, &ask)).await;
    assert_eq!(allowed.expect(200)["decision"], "allow");
    assert_eq!(faults.directories_read(), read);
    assert_is_as_stored(&world, *id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_of_a_tenant_of_which_something_is_lost_is_read_whole() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(Options::default()).await;
    let id = cluster.tenancy.id;
    let continuity = &world.gateway.snapshot.continuity;
    // An entry that the database does not have, though it was in force here. Of two ends the later is kept.
    let end = Head {
        seq: 1_000_000,
        hash: Digest::of(b"lost"),
    };
    continuity.note_end(id, end);
    let read = faults.directories_read();
    cluster.change(0, "PUT", "/v1/users/ann", &json!({})).await;
    eventually(|| async { faults.directories_read() > read }).await;
    eventually(|| async { continuity.has_lost(id) }).await;
}

/// Another database may lack what is known here, and then nothing of it leads on from that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_has_changed_is_read_whole_where_another_database_took_over_meanwhile() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(Options::default()).await;
    let id = cluster.tenancy.id;
    let mut hand = Hand::on(&world.home, id).await;
    let is_followed = || async {
        let (there, here) = (cluster.worlds[0].gateway.tenant(id), world.gateway.tenant(id));
        there.unwrap().revision == here.unwrap().revision
    };
    eventually(is_followed).await;
    let read = faults.directories_read();
    for (user, is_another) in [("/v1/users/ann", false), ("/v1/users/ben", true)] {
        faults.hold_at(At::Changes, true);
        cluster.change(0, "PUT", user, &json!({})).await;
        eventually(|| async { faults.held_at(At::Changes) > 0 }).await;
        if is_another {
            // The table is in another file, as that of another database would be.
            hand.run("VACUUM FULL tenants").await;
        }
        faults.hold_at(At::Changes, false);
        eventually(is_followed).await;
        assert_eq!(faults.directories_read() > read, is_another, "{user}");
    }
    assert_is_as_stored(&world, id).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_read_of_a_database_is_looked_for_in_the_one_that_took_over_meanwhile() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(Options::default()).await;
    let continuity = &world.gateway.snapshot.continuity;
    faults.hold_at(At::Loads, true);
    let body = json!({"name": "globex"});
    let made = cluster.worlds[0].post("/v1/tenants", cluster.operator.reveal(), &body);
    let new: TenantId = made.await.expect(201)["id"].as_str().unwrap().parse().unwrap();
    // It is read by itself, and so is the system's, which has moved with it.
    eventually(|| async { faults.held_at(At::Loads) > 1 }).await;
    // Its only entry is another one there.
    let mut hand = Hand::on(&world.home, new).await;
    hand.disarm().await;
    let another = "UPDATE audit_events SET hash = sha256(hash) WHERE ITS;
         UPDATE tenants SET head_hash = sha256(head_hash) WHERE MINE";
    hand.run(another).await;
    let mut databases = continuity.databases();
    hand.run("VACUUM FULL tenants").await;
    let found = tokio::time::timeout(IN_FORCE_WITHIN, databases.changed()).await;
    found.unwrap().unwrap();
    // Whoever sees this change has compared what was in force when the other database was found.
    cluster.change(0, "PUT", "/v1/users/ann", &json!({})).await;
    let id = cluster.tenancy.id;
    eventually(|| async {
        let (there, here) = (cluster.worlds[0].gateway.tenant(id), world.gateway.tenant(id));
        there.unwrap().revision == here.unwrap().revision
    })
    .await;
    assert!(!continuity.has_lost(new));
    faults.hold_at(At::Loads, false);
    eventually(|| async { continuity.has_lost(new) }).await;
}

/// A database that took over without the last change, and in which another one has its number already when this gateway looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_is_another_one_by_now_is_lost_though_it_has_the_same_number() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[1];
    let other = cluster.worlds[0].tenancy("globex").await;
    cluster.until_all_know(&other.other_token).await;
    let mut hand = Hand::on(&world.home, other.id).await;
    hand.disarm().await;
    let last = world.store.head(other.id).await.unwrap().seq;
    let another = format!(
        "UPDATE audit_events SET hash = sha256(hash) WHERE ITS AND seq = {last};
         UPDATE tenants SET head_hash = sha256(head_hash) WHERE MINE"
    );
    hand.run(&another).await;
    // Everything that is in force is as the database says it is, by its number.
    let later = cluster.worlds[0].tenancy("initech").await;
    cluster.until_all_know(&later.other_token).await;
    assert!(!world.gateway.snapshot.continuity.has_lost(other.id));
    // The table is in another file, as that of another database would be.
    hand.run("VACUUM FULL tenants").await;
    eventually(|| async { world.gateway.snapshot.continuity.has_lost(other.id) }).await;
    eventually(|| async { world.get("/v1/whoami", &other.token).await.status == 503 }).await;
    world.get("/v1/whoami", &later.other_token).await.expect(200);
    let (freeze, because) = (
        format!("/v1/tenants/{}/freeze", other.id),
        json!({"reason": "a test"}),
    );
    let frozen = world.post(&freeze, cluster.operator.reveal(), &because);
    frozen.await.problem(503, "ledger_unavailable");
}

/// What cannot be written down of one tenant is more than is written down at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tenant_whose_changes_are_lost_keeps_no_approval_of_others_open() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[1];
    let other = cluster.worlds[0].tenancy("globex").await;
    cluster.until_all_know(&other.other_token).await;
    let merge = merging();
    let ask = async |token: &str| {
        let answer = answered(|| world.post("/v1/authorize", token, &merge)).await;
        assert_eq!(answer.expect(200)["decision"], "require_approval");
    };
    for _ in 0..33 {
        ask(&other.token).await;
    }
    world.clock.advance_millis(1);
    ask(&cluster.tenancy.token).await;
    let Home::Database(database) = &*world.home else {
        panic!("they share a database");
    };
    move_revision(&mut database.stranger().await, other.id, -1).await;
    eventually(|| async { world.gateway.snapshot.continuity.has_lost(other.id) }).await;
    world.clock.advance_millis(2 * 60 * 60 * 1_000);
    let expired = || async {
        // The job does not follow such a clock at once.
        let gateway = &world.gateway;
        let _ = gateway.expire_approvals(gateway.clock.now()).await;
        let reply = world
            .get("/v1/approvals?status=expired", &cluster.tenancy.auditor)
            .await;
        reply.status == 200
            && reply.json()["items"]
                .as_array()
                .is_some_and(|items| items.len() == 1)
    };
    eventually(expired).await;
}

/// A hand on a database that may lose what a tenant records from now on.
async fn saved(world: &World, tenant: TenantId) -> Hand {
    let mut hand = Hand::on(&world.home, tenant).await;
    hand.disarm().await;
    hand.run("CREATE TABLE saved AS SELECT * FROM tenants WHERE MINE")
        .await;
    hand
}

/// Has it lose all of that: it took over without the last entries, and with them what they were the first to name.
async fn lose(hand: &mut Hand) {
    lose_behind(hand, ENTRIES).await;
}

/// The same, where the ledger had so many entries when it was saved.
async fn lose_behind(hand: &mut Hand, entries: u64) {
    let tables = ["audit_events", "decisions", "receipts", "requests"];
    let cut = tables.map(|table| format!("DELETE FROM {table} WHERE entry > #{entries} AND ITS;"));
    let back = "DELETE FROM contents WHERE ITS;
         UPDATE tenants SET (head_seq, head_hash, head_at, edge) =
             (SELECT head_seq, head_hash, head_at, edge FROM saved) WHERE MINE";
    hand.run(&format!("{} {back}", cut.concat())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_database_has_lost_is_stored_again_and_not_answered_again() {
    let home = Arc::new(Home::Database(home::database().await));
    let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
    let clock = Arc::new(ManualClock::at(BEGINNING));
    let world = World::join(home, &operator, clock, Options::default()).await;
    let tenancy = world.tenancy("acme").await;
    let mut hand = saved(&world, tenancy.id).await;
    let token = &tenancy.token;
    let (known, new) = (named(reading(), "call-1"), named(reading(), "call-2"));
    let lost = world.authorize(token, &known).await.json();
    // From then on it takes no turn.
    for _ in 0..3 {
        world.authorize(token, &reading()).await;
    }
    lose(&mut hand).await;

    let ask = || world.post("/v1/authorize", token, &new);
    assert_eq!(answered(ask).await.expect(200)["receipt"]["seq"], ENTRIES + 1);
    let entries = world.store.entries(tenancy.id, ENTRIES + 1, 1).await.unwrap();
    let digests = engine::facts::named(&entries[0].body);
    let stored = world.store.contents(tenancy.id, &digests).await.unwrap();
    let distinct: HashSet<_> = digests.iter().collect();
    assert!(!distinct.is_empty(), "{}", entries[0].body);
    assert_eq!(stored.len(), distinct.len());
    let repeat = || world.post("/v1/authorize", token, &known);
    let repeated = answered(repeat).await;
    assert_eq!(repeated.expect(200)["receipt"]["seq"], ENTRIES + 2);
    assert_ne!(repeated.expect(200)["decision_id"], lost["decision_id"]);
    assert_eq!(answered(repeat).await.bytes, repeated.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_judged_before_the_database_has_lost_something_is_not_recorded() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(patient(Options::default())).await;
    let token = &cluster.tenancy.token;
    let mut hand = saved(&world, cluster.tenancy.id).await;
    // From then on what such an ask names is known to be stored.
    for _ in 0..4 {
        world.authorize(token, &reading()).await;
    }
    let mut looks_up = reading();
    looks_up["approval_id"] = json!(ApprovalId::new(BEGINNING, &SystemEntropy).to_string());
    let asks = json!({"asks": [reading(), looks_up]});
    faults.hold_at(At::Approvals, true);
    let (batch, ()) = tokio::join!(world.post("/v1/authorize/batch", token, &asks), async {
        eventually(|| async { faults.held_at(At::Approvals) == 1 }).await;
        lose(&mut hand).await;
        let other = named(injected(), "call-1");
        let asked = answered(|| world.post("/v1/authorize", token, &other)).await;
        assert_eq!(asked.expect(200)["receipt"]["seq"], ENTRIES + 1);
        faults.hold_at(At::Approvals, false);
    });
    batch.problem(503, "ledger_unavailable");
}

/// Also where the ledger is longer again before the rules are looked at.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_count_what_is_there_and_nothing_of_what_the_database_has_lost() {
    let home = Arc::new(Home::Database(home::database().await));
    let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
    let clock = Arc::new(ManualClock::at(BEGINNING));
    let world = World::join(home, &operator, clock, Options::default()).await;
    let tenancy = world.tenancy("acme").await;
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let rule = json!({"trigger": "denials", "effect": "alert", "count": 3, "window_seconds": 600});
    let put = world.call("PUT", "/v1/rules/denied", &admin).json(&rule);
    put.send().await.expect(201);
    let entries = world.store.head(tenancy.id).await.unwrap().seq;
    let mut hand = saved(&world, tenancy.id).await;
    for ask in [injected(), injected(), reading(), reading()] {
        world.authorize(&tenancy.token, &ask).await.expect(200);
    }
    world.gateway.contain().await;
    lose_behind(&mut hand, entries).await;

    let (denied, allowed) = (injected(), reading());
    let (token, other) = (&tenancy.token, &tenancy.other_token);
    let asks = [
        (other, &denied),
        (other, &denied),
        (other, &denied),
        (other, &allowed),
        (token, &denied),
    ];
    for (token, ask) in asks {
        let asked = answered(|| world.post("/v1/authorize", token, ask)).await;
        asked.expect(200);
    }
    let alerts = || async {
        world.gateway.contain().await;
        let path = "/v1/audit/events?kind=alert_raised";
        let reply = world.get(path, &tenancy.auditor).await;
        reply.expect(200)["items"].as_array().unwrap().clone()
    };
    eventually(|| async { !alerts().await.is_empty() }).await;
    let alerts = alerts().await;
    let evidence: Vec<_> = alerts.iter().map(|alert| &alert["body"]["evidence"]).collect();
    assert_eq!(evidence, [&json!([entries + 1, entries + 2, entries + 3])]);
}

/// Another gateway was faster to write to the database that took over, so the chain is longer than this one has left it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_another_database_may_lack_is_stored_again_though_its_chain_is_longer() {
    let cluster = Cluster::new().await;
    let world = &cluster.worlds[0];
    let tenancy = &cluster.tenancy;
    for at in [0, 0, 0, 1] {
        cluster.ask(at, &reading()).await.expect(200);
    }
    let mut hand = Hand::on(&world.home, tenancy.id).await;
    hand.disarm().await;
    hand.run("DELETE FROM contents WHERE ITS").await;
    // The table is in another file, as that of another database would be.
    hand.run("VACUUM FULL tenants").await;
    // Also where nobody asks.
    eventually(|| async { world.gateway.sequencer.losses() > 0 }).await;

    let answer = cluster.ask(0, &reading()).await.expect(200);
    let seq = answer["receipt"]["seq"].as_u64().unwrap();
    let entries = world.store.entries(tenancy.id, seq, 1).await.unwrap();
    let digests = engine::facts::named(&entries[0].body);
    let stored = world.store.contents(tenancy.id, &digests).await.unwrap();
    let distinct: HashSet<_> = digests.iter().collect();
    assert!(!distinct.is_empty(), "{}", entries[0].body);
    assert_eq!(stored.len(), distinct.len());
}

/// It may have been judged by a state from before the signing key was replaced, and nobody is to sign by that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_to_be_recorded_is_refused_once_it_is_not_known_what_others_have_changed() {
    let cluster = Cluster::new().await;
    let (world, faults) = cluster.join(Options::default()).await;
    let token = &cluster.tenancy.token;
    let unnamed = reading();
    // From then on it takes no turn.
    for _ in 0..4 {
        answered(|| world.post("/v1/authorize", token, &unnamed))
            .await
            .expect(200);
    }
    let (first, second) = (named(reading(), "first"), named(reading(), "second"));
    faults.plan([Fault::Hold]);
    let first = world.post("/v1/authorize", token, &first);
    let waits = async {
        eventually(|| async { faults.held() == 1 }).await;
        world.post("/v1/authorize", token, &second).await
    };
    let standing_still = async {
        eventually(|| async { world.gateway.sequencer.waiting() == 1 }).await;
        faults.fail_reads(true);
        let bound = world.gateway.options.bounds.snapshot_age_max;
        eventually(|| async { world.gateway.snapshot.age() > bound }).await;
        faults.let_go();
    };
    let (_, waited, ()) = tokio::join!(first, waits, standing_still);
    let detail = waited.problem(503, "ledger_unavailable");
    assert!(detail.contains("what others have changed"), "{detail}");

    faults.fail_reads(false);
    let again = || world.post("/v1/authorize", token, &second);
    assert_eq!(answered(again).await.expect(200)["decision"], "allow");
    cluster.verify().await;
}

/// Whoever waits for announcements waits on one connection, which is asked whether it is alive and made once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_gateway_listens_on_one_connection_and_sees_that_it_is_alive() {
    let cluster = Cluster::new().await;
    let Home::Database(database) = &*cluster.worlds[0].home else {
        panic!("they share a database");
    };
    let listening = async || -> Vec<(i32, String)> {
        let rows = sqlx::query_as(
            "SELECT pid, query FROM pg_stat_activity WHERE datname = current_database()
             AND (query LIKE 'LISTEN%' OR query = 'SELECT') ORDER BY pid",
        );
        rows.fetch_all(&mut database.stranger().await).await.unwrap()
    };
    let patience = Instant::now() + PATIENCE;
    let mut are_asked = false;
    while !are_asked {
        assert!(Instant::now() < patience, "nobody is asked whether it is alive");
        // One that was asked while the database stood still is made anew.
        eventually(|| async { listening().await.len() == cluster.worlds.len() }).await;
        let made = listening().await;
        let asked: Vec<_> = made
            .into_iter()
            .map(|(pid, _)| (pid, "SELECT".to_owned()))
            .collect();
        let until_asked = async {
            while listening().await != asked {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Three times as long as they may be silent.
        let waited = tokio::time::timeout(Duration::from_secs(15), until_asked).await;
        are_asked = waited.is_ok();
    }
}
