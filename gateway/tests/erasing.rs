//! What agents did is erased, and the ledger verifies all the same; what was only taken away is noticed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use engine::search::BLOCK;
use gateway::cli;
use model::{Role, TenantId, Timestamp};
use serde_json::{Value, json};
use stage::Stage;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::faults::{At, Fault};
use store::{BlockClaim, Store};
use support::hand::Hand;
use support::tenancy::{ENTRIES, Tenancy, ask, merging, reading};
use support::{Reply, World, until};
use tokio::task::JoinHandle;

/// A tenant with an admin.
struct Scene {
    world: World,
    tenancy: Tenancy,
    admin: String,
}

impl Scene {
    async fn new() -> Self {
        let world = World::start().await;
        let tenancy = world.tenancy("acme").await;
        let admin = world.add_key(tenancy.id, Role::Admin).await;
        Self {
            world,
            tenancy,
            admin,
        }
    }

    /// A decision for this user; its answer.
    async fn decide(&self, user: &str, request_id: &str) -> Value {
        let mut ask = reading();
        ask["user"] = json!({"id": user});
        ask["request_id"] = json!(request_id);
        self.world.authorize(&self.tenancy.token, &ask).await.json()
    }

    /// Has the tenant's bodies erased by themselves once they are a day old.
    async fn erase_after_a_day(&self) {
        let path = format!("/v1/tenants/{}", self.tenancy.id);
        let settings = json!({"settings": {"erase_after_days": 1}});
        let change = self.world.call("PATCH", &path, &self.world.operator);
        change.json(&settings).send().await.expect(200);
    }

    async fn erase(&self, what: &Value) -> Value {
        self.world
            .post("/v1/ledger/erase", &self.admin, what)
            .await
            .expect(200)
    }

    async fn verify(&self) -> Value {
        let verified = self
            .world
            .post("/v1/ledger/verify", &self.tenancy.auditor, &json!({}))
            .await;
        verified.expect(200)
    }

    async fn entry(&self, seq: u64) -> Value {
        let path = format!("/v1/audit/events?from_seq={seq}&limit=1");
        let list = self.world.get(&path, &self.tenancy.auditor).await.expect(200);
        list["items"][0].clone()
    }

    async fn get(&self, path: &str) -> support::Reply {
        self.world.get(path, &self.tenancy.auditor).await
    }

    /// The digest of an entry's body as its header has it, in SQL.
    async fn digest(&self, seq: u64) -> String {
        let exported = self.get("/v1/ledger/export").await.text();
        let mut lines = exported.lines().filter(|line| line.starts_with("{\"header\":"));
        let line = lines.nth(usize::try_from(seq).unwrap() - 1).unwrap();
        let header: Value = serde_json::from_str::<Value>(line).unwrap()["header"].clone();
        assert_eq!(header["seq"], seq);
        let digits = header["body"].as_str().unwrap().trim_start_matches("sha256:");
        if support::home::is_postgres() {
            format!("decode('{digits}', 'hex')")
        } else {
            format!("unhex('{digits}')")
        }
    }

    /// Where the chain ends.
    async fn head(&self) -> u64 {
        self.get("/v1/ledger/head").await.expect(200)["seq"]
            .as_u64()
            .unwrap()
    }
}

fn id(answer: &Value) -> &str {
    answer["decision_id"].as_str().unwrap()
}

#[tokio::test]
async fn what_was_done_for_a_user_is_gone_everywhere_and_the_ledger_verifies() {
    let scene = Scene::new().await;
    let hers = scene.decide("jane", "call-1").await;
    let his = scene.decide("john", "call-2").await;
    let outcome = json!({"status": "succeeded", "executed_hash": hers["action_hash"]});
    let path = format!("/v1/decisions/{}/outcome", id(&hers));
    scene
        .world
        .post(&path, &scene.tenancy.token, &outcome)
        .await
        .expect(201);
    let before = scene.entry(ENTRIES + 2).await;
    let erased = scene.erase(&json!({"user": "jane"})).await;
    assert_eq!(erased, json!({"erased": 2, "waiting": 0, "done": true}));

    let after = scene.entry(ENTRIES + 2).await;
    assert_eq!((&after["body"], &after["hash"]), (&Value::Null, &before["hash"]));
    let told = scene.entry(ENTRIES + 5).await;
    assert_eq!(told["kind"], "bodies_erased");
    assert_eq!(told["body"]["chosen_by"], "user");
    assert_eq!(
        told["body"]["seqs"],
        json!([[ENTRIES + 2, ENTRIES + 2], [ENTRIES + 4, ENTRIES + 4]])
    );
    for path in ["/v1/decisions/", "/v1/receipts/"] {
        scene
            .get(&format!("{path}{}", id(&hers)))
            .await
            .problem(404, "not_found");
        scene.get(&format!("{path}{}", id(&his))).await.expect(200);
    }
    let listed = scene.get("/v1/decisions?user=jane").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    assert_eq!(scene.verify().await["verified"], true);

    let export = scene.get("/v1/ledger/export").await;
    assert!(!export.text().contains("jane"), "{}", export.text());
    let report = cli::verify::verify(&mut export.bytes.as_slice()).unwrap();
    assert_eq!(
        report.erased, 2,
        "an auditor with the file alone sees that they are gone, and no more"
    );
}

#[tokio::test]
async fn erasing_again_erases_nothing_and_a_repeated_ask_is_a_new_one() {
    let scene = Scene::new().await;
    let first = scene.decide("jane", "call-1").await;
    let what = json!({"agent": scene.tenancy.agent});
    assert_eq!(scene.erase(&what).await["erased"], 1);
    let head = scene.head().await;
    assert_eq!(scene.erase(&what).await["erased"], 0);
    assert_eq!(scene.head().await, head, "nothing was erased, so nothing is told");
    let second = scene.decide("jane", "call-1").await;
    assert_ne!(id(&first), id(&second));
    assert_eq!(scene.erase(&json!({"seq": head + 1})).await["erased"], 1);
    assert_eq!(scene.verify().await["verified"], true);
}

/// Otherwise what was spent could be reported again.
#[tokio::test]
async fn an_outcome_that_was_erased_alone_is_not_reported_again() {
    let scene = Scene::new().await;
    let hers = scene.decide("jane", "call-1").await;
    let outcome = json!({"status": "succeeded", "executed_hash": hers["action_hash"]});
    let path = format!("/v1/decisions/{}/outcome", id(&hers));
    let report = || scene.world.post(&path, &scene.tenancy.token, &outcome);
    let seq = report().await.expect(201)["seq"].clone();
    let erased = scene.erase(&json!({"seq": seq})).await;
    assert_eq!(erased, json!({"erased": 1, "waiting": 0, "done": true}));
    report().await.problem(409, "outcome_reported");

    // With its decision, it is not told any more that there was one.
    assert_eq!(scene.erase(&json!({"user": "jane"})).await["erased"], 1);
    report().await.problem(404, "not_found");
    assert_eq!(scene.verify().await["verified"], true);
}

/// What leads to an outcome stands in no chain.
#[tokio::test]
async fn a_row_that_leads_from_a_decision_to_something_else_erases_nothing_else() {
    const TOOL_PUT: u64 = 3;
    let scene = Scene::new().await;
    let hers = scene.decide("jane", "call-1").await;
    let outcome = json!({"status": "succeeded", "executed_hash": hers["action_hash"]});
    let path = format!("/v1/decisions/{}/outcome", id(&hers));
    let reported = scene.world.post(&path, &scene.tenancy.token, &outcome).await;
    let seq = reported.expect(201)["seq"].clone();
    let before = scene.entry(TOOL_PUT).await;
    assert_eq!(before["kind"], "tool_put");
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.run(&format!(
        "UPDATE outcomes SET entry = #{TOOL_PUT} WHERE entry = #{seq}"
    ))
    .await;
    assert_eq!(
        scene.erase(&json!({"agent": scene.tenancy.agent})).await["erased"],
        2
    );
    assert_eq!(scene.entry(TOOL_PUT).await, before);
    assert_eq!(scene.verify().await["verified"], true);
}

#[tokio::test]
async fn what_is_old_is_erased_and_what_is_not_stays() {
    let scene = Scene::new().await;
    let old = scene.decide("jane", "call-1").await;
    scene.world.clock.advance_millis(29 * 24 * 60 * 60 * 1_000);
    let new = scene.decide("jane", "call-2").await;
    scene.world.clock.advance_millis(2 * 24 * 60 * 60 * 1_000);
    assert_eq!(scene.erase(&json!({"older_than_days": 30})).await["erased"], 1);
    scene
        .get(&format!("/v1/decisions/{}", id(&old)))
        .await
        .problem(404, "not_found");
    scene
        .get(&format!("/v1/decisions/{}", id(&new)))
        .await
        .expect(200);
    assert_eq!(scene.verify().await["verified"], true);
}

#[tokio::test]
async fn what_a_tenant_does_not_want_to_keep_is_erased_by_itself_and_only_its_own() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    let other = scene.world.tenancy("other").await;
    scene.world.authorize(&other.token, &reading()).await;
    let path = format!("/v1/tenants/{}", scene.tenancy.id);
    let set = |settings: Value| {
        let (world, path) = (&scene.world, &path);
        let body = json!({"settings": settings});
        async move {
            world
                .call("PATCH", path, &world.operator)
                .json(&body)
                .send()
                .await
        }
    };
    let patient = json!({"approvals": {"expire_after_seconds": 7 * DAY_MS / 1_000}});
    set(patient).await.expect(200);
    let old = scene.decide("jane", "call-1").await;
    let asked = scene
        .world
        .authorize(&scene.tenancy.token, &merging())
        .await
        .json();
    let gateway = &scene.world.gateway;
    scene.world.clock.advance_millis(2 * DAY_MS);
    let new = scene.decide("jane", "call-2").await;
    assert_eq!(
        gateway.erase_old(gateway.clock.now()).await.erased,
        0,
        "nobody has asked for it"
    );
    set(json!({"erase_after_days": 0}))
        .await
        .problem(400, "invalid_field");
    let shown = set(json!({"erase_after_days": 1})).await.expect(200);
    assert_eq!(shown["settings"]["erase_after_days"], 1);
    assert_eq!(gateway.erase_old(gateway.clock.now()).await.erased, 1);
    assert_eq!(gateway.erase_old(gateway.clock.now()).await.erased, 0);
    scene
        .get(&format!("/v1/decisions/{}", id(&old)))
        .await
        .problem(404, "not_found");
    for kept in [&new, &asked] {
        scene
            .get(&format!("/v1/decisions/{}", id(kept)))
            .await
            .expect(200);
    }
    let told = scene.entry(scene.head().await).await;
    assert_eq!(told["kind"], "bodies_erased");
    assert_eq!(told["body"]["by"], json!({"setting": "erase_after_days"}));
    assert_eq!(told["body"]["chosen_by"], json!({"older_than_days": 1}));

    // What people were asked goes when they are asked no more, and the rest when its time has come.
    scene.world.clock.advance_millis(8 * DAY_MS);
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    assert_eq!(gateway.erase_old(gateway.clock.now()).await.erased, 2);
    scene
        .get(&format!("/v1/decisions/{}", id(&new)))
        .await
        .problem(404, "not_found");
    assert_eq!(scene.verify().await["verified"], true);
    let theirs = scene.world.get("/v1/decisions", &other.auditor).await.expect(200);
    assert_eq!(theirs["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_setting_that_is_taken_back_keeps_the_rest_and_nobody_waits_for_a_long_ledger() {
    let scene = Scene::new().await;
    // Ledgers are worked on by the age of their tenants.
    scene.world.clock.advance_millis(1);
    let other = scene.world.tenancy("other").await;
    let asks = json!({"asks": vec![reading(); 100]});
    for _ in 0..6 {
        scene
            .world
            .post("/v1/authorize/batch", &scene.tenancy.token, &asks)
            .await
            .expect(200);
    }
    scene.world.authorize(&other.token, &reading()).await;
    scene.world.clock.advance_millis(2 * 24 * 60 * 60 * 1_000);
    let set = async |tenant, days: u32| {
        let path = format!("/v1/tenants/{tenant}");
        let settings = json!({"settings": {"erase_after_days": days}});
        let change = scene.world.call("PATCH", &path, &scene.world.operator);
        change.json(&settings).send().await.expect(200);
    };
    for tenant in [scene.tenancy.id, other.id] {
        set(tenant, 1).await;
    }
    let gateway = &scene.world.gateway;
    let first = gateway.erase_old_for(gateway.clock.now(), Duration::ZERO).await;
    assert!(
        !first.is_all && (2..600).contains(&first.erased),
        "{}",
        first.erased
    );
    let theirs = scene.world.get("/v1/decisions", &other.auditor).await.expect(200);
    assert_eq!(theirs["items"], json!([]));

    set(scene.tenancy.id, 365).await;
    let second = gateway.erase_old(gateway.clock.now()).await;
    assert_eq!((second.erased, second.is_all), (0, true));
    set(scene.tenancy.id, 1).await;
    let mut erased = first.erased;
    loop {
        let round = gateway.erase_old(gateway.clock.now()).await;
        erased += round.erased;
        if round.is_all {
            break;
        }
    }
    assert_eq!(erased, 601);
}

#[tokio::test]
async fn what_is_old_goes_on_being_erased_after_a_commit_and_is_told_until_it_is_gone() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    let asks = json!({"asks": vec![reading(); 100]});
    for _ in 0..8 {
        let answers = scene
            .world
            .post("/v1/authorize/batch", &scene.tenancy.token, &asks);
        answers.await.expect(200);
    }
    scene.world.clock.advance_millis(3 * DAY_MS);
    scene.erase_after_a_day().await;
    let gateway = &scene.world.gateway;
    let is_told = async |seconds: u64| {
        let metrics = scene.world.get("/metrics", "").await.text();
        let line = format!("countersign_erasure_behind_seconds {seconds}");
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    };
    is_told(0).await;
    let first = gateway.erase_old_for(gateway.clock.now(), Duration::ZERO).await;
    assert!(!first.is_all && first.erased > 0);
    is_told(2 * 24 * 60 * 60).await;
    // While many wait for decisions it is one commit at a time.
    until(|| !gateway.sequencer.is_under_load()).await;
    let rest = gateway.erase_old_for(gateway.clock.now(), Duration::MAX).await;
    assert_eq!((first.erased + rest.erased, rest.is_all), (800, true));
    is_told(0).await;
}

/// It would keep those of all other tenants waiting.
#[tokio::test]
async fn what_is_erased_by_itself_does_not_wait_behind_the_tenants_own_crowd() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    scene.decide("jane", "call-1").await;
    scene.world.clock.advance_millis(2 * DAY_MS);
    scene.erase_after_a_day().await;
    let gateway = Arc::clone(&scene.world.gateway);
    let first = gateway.ledger_chunks.acquire_for_part(scene.tenancy.id).await;
    let mut behind = pin!(gateway.ledger_chunks.acquire_for_part(scene.tenancy.id));
    assert!(
        tokio::time::timeout(Duration::ZERO, behind.as_mut())
            .await
            .is_err()
    );
    // From here on the turn of the tenant is that of the one behind, which does nothing with it.
    drop(first);
    let job = tokio::spawn({
        let gateway = Arc::clone(&gateway);
        async move { gateway.erase_old(gateway.clock.now()).await.erased }
    });
    until(|| job.is_finished()).await;
    assert_eq!(job.await.unwrap(), 1);
}

/// As where a standby takes over that lacks the last commits.
#[tokio::test]
async fn what_was_erased_by_itself_and_is_there_again_in_another_database_is_erased_again() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    let old = scene.decide("jane", "call-1").await;
    let seq = &old["receipt"]["seq"];
    scene.world.clock.advance_millis(2 * DAY_MS);
    scene.erase_after_a_day().await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    let save = format!("CREATE TABLE saved AS SELECT * FROM audit_events WHERE entry = #{seq} AND ITS");
    hand.run(&save).await;
    let gateway = &scene.world.gateway;
    let erase = async || gateway.erase_old(gateway.clock.now()).await.erased;
    assert_eq!((erase().await, erase().await), (1, 0));

    let back = format!(
        "DELETE FROM audit_events WHERE entry = #{seq} AND ITS;
         INSERT INTO audit_events SELECT * FROM saved"
    );
    hand.run(&back).await;
    gateway.snapshot.continuity.note_another_database();
    assert_eq!((erase().await, erase().await), (1, 0));
    let seq = seq.as_u64().unwrap();
    assert_eq!(scene.entry(seq).await["body"], Value::Null);
}

#[tokio::test]
async fn a_gateway_that_is_told_to_stop_erases_nothing_more_by_itself() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let scene = Scene::new().await;
    scene.decide("jane", "call-1").await;
    scene.world.clock.advance_millis(2 * DAY_MS);
    scene.erase_after_a_day().await;
    let gateway = &scene.world.gateway;
    gateway.approval_waiters.close();
    assert_eq!(gateway.erase_old(gateway.clock.now()).await.erased, 0);
}

/// It was there when it was looked for, and is not when its receipt is.
#[tokio::test]
async fn a_receipt_that_is_asked_for_while_its_decision_is_erased_is_not_found() {
    let stage = Stage::set().await;
    let answer = stage.ask(&stage::reading()).await.expect(200);
    let path = format!("/v1/receipts/{}", id(&answer));
    stage.faults.hold_at(At::Receipts, true);
    let (receipt, ()) = tokio::join!(stage.get(&path, &stage.agent.token), async {
        until(|| stage.faults.held_at(At::Receipts) == 1).await;
        let what = json!({"agent": stage.agent.id});
        let erased = stage.admin("POST", "/v1/ledger/erase", &what).await;
        assert_eq!(erased.expect(200)["erased"], 1);
        stage.faults.hold_at(At::Receipts, false);
    });
    assert_eq!(receipt.expect(404)["code"], "not_found");
}

/// What becomes of a decision behind that may be its erasure, which tells of no run: evidence that ended with it would
/// not verify. An outcome stands for it here.
#[tokio::test]
async fn evidence_of_a_run_ends_before_what_is_recorded_while_its_decisions_are_found() {
    const TEXT_BYTES: usize = 200_000;
    let stage = Stage::set().await;
    let tenancy = stage.tenancy("other").await;
    // More than are found at once, so that the first one is found after the last one has been looked at.
    let mut large = reading();
    large["context"]["attributes"] = json!({"text": "x".repeat(TEXT_BYTES)});
    let first = stage.authorize(&tenancy.token, &large).await.json();
    for _ in 0..2 * store::BYTES_AT_ONCE / TEXT_BYTES {
        stage.authorize(&tenancy.token, &large).await;
    }
    let mut last = merging();
    last["trace"] = large["trace"].clone();
    let last = stage.authorize(&tenancy.token, &last).await.json();
    let path = format!("/v1/decisions/{}/outcome", id(&first));
    stage.faults.hold_at(At::Approvals, true);
    let evidence = stage.get("/v1/ledger/evidence?run_id=run-get_file", &tenancy.auditor);
    let (evidence, ()) = tokio::join!(evidence, async {
        until(|| stage.faults.held_at(At::Approvals) == 1).await;
        let outcome = json!({"status": "succeeded", "executed_hash": first["action_hash"]});
        let reported = stage.post(&path, &tenancy.token, &outcome).await;
        reported.expect(201);
        stage.faults.hold_at(At::Approvals, false);
    });
    assert_eq!(evidence.status, 200);
    let end = format!("\"to_seq\": {}", last["receipt"]["seq"]);
    assert!(String::from_utf8_lossy(&evidence.bytes).contains(&end), "{end}");
}

/// What is gone by then is gone, so nobody is told that nothing was done.
#[tokio::test]
async fn erasing_that_is_stopped_in_the_middle_says_how_far_it_has_come() {
    let stage = Stage::set().await;
    let asks = json!({"asks": vec![stage::reading(); 100]});
    for _ in 0..6 {
        let answers = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
        answers.await.expect(200);
    }
    let erase = async |from_seq: &Value| {
        let what = json!({"agent": stage.agent.id, "from_seq": from_seq});
        stage.admin("POST", "/v1/ledger/erase", &what).await
    };
    stage.faults.plan([Fault::Pass, Fault::Lose]);
    let first = erase(&json!(1)).await.expect(200);
    let (erased, next) = (first["erased"].as_u64().unwrap(), &first["next_seq"]);
    assert!((256..600).contains(&erased) && next.is_u64(), "{first}");
    assert_eq!(first["done"], false);
    // A call that has erased nothing is refused.
    stage.faults.plan([Fault::Lose]);
    erase(next).await.problem(503, "ledger_unavailable");
    let rest = erase(next).await.expect(200);
    assert_eq!(rest, json!({"erased": 600 - erased, "waiting": 0, "done": true}));
    stage.ask(&stage::reading()).await.expect(200);
}

/// Whoever hangs up ends nothing, and could begin it again and again.
#[tokio::test]
async fn a_tenant_erases_once_at_a_time_in_the_line_of_those_who_read_ledgers() {
    let stage = Arc::new(Stage::set().await);
    stage.ask(&stage::reading()).await.expect(200);
    let place = stage
        .gateway
        .ledger_chunks
        .acquire_for_part(TenantId::SYSTEM)
        .await;
    let mut calls = vec![erasing(&stage), erasing(&stage)];
    until(|| calls.iter().any(JoinHandle::is_finished)).await;
    let refused = calls.iter().position(JoinHandle::is_finished).unwrap();
    assert_busy(&calls.swap_remove(refused).await.unwrap());
    calls[0].abort();
    assert_busy(&erasing(&stage).await.unwrap());
    drop(place);
    until(|| stage.gateway.erasures_of.begin(stage.tenant).is_some()).await;
    let nothing = json!({"erased": 0, "waiting": 0, "done": true});
    assert_eq!(erasing(&stage).await.unwrap().expect(200), nothing);
    assert_eq!(stage.count("bodies_erased").await, 1);
}

/// Everybody else in a commit waits for the bodies to go.
#[tokio::test]
async fn an_erasure_waits_until_the_one_before_is_recorded_and_nobody_else_does() {
    let stage = Arc::new(Stage::set().await);
    stage.ask(&stage::reading()).await.expect(200);
    let before = stage.gateway.erasing.lock().await;
    let erasing = erasing(&stage);
    tokio::time::sleep(Duration::from_millis(300)).await;
    stage.ask(&stage::reading()).await.expect(200);
    assert!(!erasing.is_finished(), "it was recorded beside another one");
    assert_eq!(stage.count("bodies_erased").await, 0);
    let claim = BlockClaim {
        token: 7,
        now: support::BEGINNING,
        until: support::BEGINNING.plus_millis(60_000),
        by_force: false,
    };
    let claimed = stage.store.claim_block(stage.tenant, 0, &claim).await.unwrap();
    assert!(claimed, "it held a block of the index before its turn");
    drop(before);
    assert_eq!(erasing.await.unwrap().expect(200)["done"], true);
    assert_eq!(stage.count("bodies_erased").await, 1);
}

/// It has a digest of what was decided.
#[tokio::test]
async fn an_outcome_that_is_reported_while_its_decision_is_erased_is_erased_with_it() {
    let stage = Arc::new(Stage::set().await);
    let answer = stage.ask(&stage::reading()).await.expect(200);
    stage.faults.hold_at(At::Taking, true);
    let erasing = erasing(&stage);
    // By then it has looked for what was reported.
    until(|| stage.faults.held_at(At::Taking) == 1).await;
    report(&stage, &answer).await.expect(201);
    stage.faults.hold_at(At::Taking, false);
    let both = json!({"erased": 2, "waiting": 0, "done": true});
    assert_eq!(erasing.await.unwrap().expect(200), both);
    assert_eq!(stage.count("bodies_erased").await, 1);
    assert_untold(&stage, &answer).await;
    report(&stage, &answer).await.problem(404, "not_found");
}

/// Each attempt finds one more, and there are more of them than a change of the directory is given.
#[tokio::test]
async fn outcomes_that_are_reported_one_after_the_other_do_not_keep_their_decisions_from_being_erased() {
    let stage = Arc::new(Stage::set().await);
    let mut answers = Vec::new();
    for _ in 0..10 {
        answers.push(stage.ask(&stage::reading()).await.expect(200));
    }
    stage.faults.hold_at(At::Taking, true);
    let erasing = erasing(&stage);
    for answer in &answers {
        // By then this attempt has looked for what was reported.
        until(|| stage.faults.held_at(At::Taking) == 1).await;
        report(&stage, answer).await.expect(201);
        stage.faults.hold_at(At::Taking, false);
        // Behind this attempt and before the next one.
        let turn = stage.gateway.erasing.lock().await;
        stage.faults.hold_at(At::Taking, true);
        drop(turn);
    }
    stage.faults.hold_at(At::Taking, false);
    let all = json!({"erased": 20, "waiting": 0, "done": true});
    assert_eq!(erasing.await.unwrap().expect(200), all);
    assert_eq!(stage.count("bodies_erased").await, 1);
    for answer in &answers {
        assert_untold(&stage, answer).await;
    }
}

/// Otherwise it would stay, and what was spent would be charged once more with each that follows.
#[tokio::test]
async fn an_outcome_that_waits_behind_the_erasure_of_its_decision_is_not_recorded() {
    let stage = Arc::new(Stage::set().await);
    let answer = stage.ask(&stage::reading()).await.expect(200);
    stage.faults.plan([Fault::Hold]);
    let erasing = erasing(&stage);
    until(|| stage.faults.held() == 1).await;
    let (reported, ()) = tokio::join!(report(&stage, &answer), async {
        // By then it has found the decision.
        until(|| stage.gateway.sequencer.waiting() == 1).await;
        stage.faults.let_go();
    });
    reported.problem(404, "not_found");
    assert_eq!(erasing.await.unwrap().expect(200)["erased"], 1);
    assert_eq!(stage.count("outcome_reported").await, 0);
    assert_untold(&stage, &answer).await;
}

/// Says that what was decided was carried out.
async fn report(stage: &Stage, answer: &Value) -> Reply {
    let path = format!("/v1/decisions/{}/outcome", id(answer));
    let outcome = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
    stage.post(&path, &stage.agent.token, &outcome).await
}

/// Fails if anything in the ledger has the digest of what was decided, or if it does not verify.
async fn assert_untold(stage: &Stage, answer: &Value) {
    let digest = answer["action_hash"].as_str().unwrap();
    for entry in stage.entries().await {
        assert!(!entry.body.contains(digest), "{}: {}", entry.seq, entry.body);
    }
    let verified = stage.admin("POST", "/v1/ledger/verify", &json!({})).await;
    assert_eq!(verified.expect(200)["verified"], true);
}

/// Whoever erases what the agent has done.
fn erasing(stage: &Arc<Stage>) -> JoinHandle<Reply> {
    let stage = Arc::clone(stage);
    tokio::spawn(async move {
        let what = json!({"agent": stage.agent.id});
        stage.admin("POST", "/v1/ledger/erase", &what).await
    })
}

fn assert_busy(reply: &Reply) {
    assert_eq!(reply.expect(503)["code"], "overloaded");
    assert_eq!(reply.headers["retry-after"], "5");
}

/// Whoever erases it again, as it was told to, finds nothing to erase.
#[tokio::test]
async fn what_was_erased_and_nobody_was_told_is_not_answered_again() {
    let stage = Stage::set().await;
    let mut ask = stage::reading();
    ask["request_id"] = json!("call-1");
    let first = stage.ask(&ask).await.expect(200);
    let what = json!({"agent": stage.agent.id});
    let erase = async || stage.admin("POST", "/v1/ledger/erase", &what).await;
    stage.faults.plan([Fault::KeepButReportUnknown]);
    assert_eq!(erase().await.expect(503)["code"], "ledger_unavailable");
    let nothing = json!({"erased": 0, "waiting": 0, "done": true});
    assert_eq!(erase().await.expect(200), nothing);
    let again = stage.ask(&ask).await.expect(200);
    assert_ne!(again["decision_id"], first["decision_id"]);
}

/// However long it takes until its blocks of the index are taken out once more.
#[tokio::test]
async fn what_was_erased_is_not_answered_again_while_the_index_is_worked_on() {
    let stage = Arc::new(Stage::set().await);
    let ask = stage::named(stage::reading(), "call-1");
    let first = stage.ask(&ask).await.expect(200);
    stage.faults.plan([Fault::Hold]);
    let erasing = erasing(&stage);
    // By then it has taken them out for the first time.
    until(|| stage.faults.held() == 1).await;
    stage.faults.hold_at(At::Taking, true);
    stage.faults.let_go();
    until(|| stage.faults.held_at(At::Taking) == 1).await;
    let again = stage.ask(&ask).await.expect(200);
    assert_ne!(again["decision_id"], first["decision_id"]);
    stage.faults.hold_at(At::Taking, false);
    assert_eq!(erasing.await.unwrap().expect(200)["erased"], 1);
}

#[tokio::test]
async fn what_people_are_asked_about_waits_until_they_have_answered() {
    let scene = Scene::new().await;
    let asked = scene
        .world
        .authorize(&scene.tenancy.token, &merging())
        .await
        .json();
    assert_eq!(asked["decision"], "require_approval");
    let what = json!({"agent": scene.tenancy.agent});
    let erased = scene.erase(&what).await;
    assert_eq!((&erased["erased"], &erased["waiting"]), (&json!(0), &json!(1)));
    scene.world.clock.advance_millis(400 * 24 * 60 * 60 * 1_000);
    let gateway = &scene.world.gateway;
    gateway.expire_approvals(gateway.clock.now()).await.unwrap();
    let erased = scene.erase(&what).await;
    assert_eq!((&erased["erased"], &erased["waiting"]), (&json!(1), &json!(0)));
    let path = format!("/v1/approvals/{}", asked["approval"]["id"].as_str().unwrap());
    scene.get(&path).await.problem(404, "not_found");
}

/// Votes stay, and a digest of what can be guessed tells what it was.
#[tokio::test]
async fn what_people_approved_for_a_user_is_gone_with_its_digest_and_so_is_an_attempt_to_misuse_it() {
    let stage = Stage::set().await;
    let ann = json!({"teams": []});
    stage.admin("PUT", "/v1/users/ann", &ann).await.expect(201);
    let key = async |role: &str| {
        let body = json!({"name": role, "role": role, "user": "ann"});
        let key = stage.admin("POST", "/v1/keys", &body).await.expect(201);
        key["key"].as_str().unwrap().to_owned()
    };
    let (approver, auditor) = (key("approver").await, key("auditor").await);
    let mut merge = stage::asking("github", "merge_pull_request", "trusted_internal_unsigned");
    merge["tool_call"]["parameters"] = json!({"number": 42, "base_branch": "main"});
    merge["user"] = json!({"id": "jane"});
    let asked = stage.ask(&merge).await.expect(200);
    let approval = &asked["approval"]["id"];
    let path = format!("/v1/approvals/{}/approve", approval.as_str().unwrap());
    let vote = json!({"reason": "a test"});
    stage.post(&path, &approver, &vote).await.expect(200);
    merge["approval_id"] = approval.clone();
    let mut other = merge.clone();
    other["tool_call"]["parameters"]["number"] = json!(43);
    stage.ask(&other).await.problem(409, "approval_not_usable");
    let used = stage.ask(&merge).await.expect(200);
    assert_eq!(used["reason_code"], "approval_granted");

    let what = json!({"user": "jane"});
    let erased = stage.admin("POST", "/v1/ledger/erase", &what).await.expect(200);
    assert_eq!(erased, json!({"erased": 3, "waiting": 0, "done": true}));
    let export = stage.get("/v1/ledger/export", &auditor).await.text();
    assert!(export.contains("\"approval_approved\""), "{export}");
    for gone in [asked["action_hash"].as_str().unwrap(), "jane"] {
        assert!(!export.contains(gone), "{gone}: {export}");
    }
    let verified = stage.post("/v1/ledger/verify", &auditor, &json!({})).await;
    assert_eq!(verified.expect(200)["verified"], true);
}

#[tokio::test]
async fn what_agents_did_with_budgets_by_themselves_stays() {
    let scene = Scene::new().await;
    let budget = json!({"scope": {}, "unit": "CREDITS", "allocated": 10});
    let made = scene.world.post("/v1/budgets", &scene.admin, &budget).await;
    made.expect(201);
    let usage = json!({"unit": "CREDITS", "amount": 1});
    let used = scene.world.post("/v1/usage", &scene.tenancy.token, &usage).await;
    used.expect(201);
    assert_eq!(
        scene.erase(&json!({"agent": scene.tenancy.agent})).await["erased"],
        0
    );
    let what = json!({"seq": scene.head().await});
    let refused = scene.world.post("/v1/ledger/erase", &scene.admin, &what).await;
    let detail = refused.problem(409, "conflict");
    assert!(detail.contains("`usage_recorded` is not erased"), "{detail}");
}

#[tokio::test]
async fn what_was_held_for_a_user_waits_until_it_is_settled_and_is_gone_with_the_rest() {
    let scene = Scene::new().await;
    let (world, token) = (&scene.world, &scene.tenancy.token);
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    world.post("/v1/budgets", &scene.admin, &budget).await.expect(201);
    let mut ask = reading();
    ask["user"] = json!({"id": "jane"});
    ask["trace"] = json!({"run_id": "case-of-jane"});
    ask["estimate"] = json!({"unit": "TOKENS", "amount": 10});
    let answer = world.authorize(token, &ask).await.json();
    let path = format!(
        "/v1/reservations/{}",
        answer["reservation"]["id"].as_str().unwrap()
    );
    let what = json!({"user": "jane"});
    assert_eq!(
        scene.erase(&what).await,
        json!({"erased": 0, "waiting": 1, "done": true})
    );
    assert_eq!(scene.get(&path).await.expect(200)["status"], "active");

    let actual = json!({"unit": "TOKENS", "amount": 7});
    let outcome = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": actual});
    let outcomes = format!("/v1/decisions/{}/outcome", id(&answer));
    world.post(&outcomes, token, &outcome).await.expect(201);
    // The gateway has read it, and remembers what has become of it.
    let commit = (format!("{path}/commit"), json!({"actual": actual}));
    world.post(&commit.0, token, &commit.1).await.expect(200);
    assert_eq!(
        scene.erase(&what).await,
        json!({"erased": 2, "waiting": 0, "done": true})
    );
    scene.get(&path).await.problem(404, "not_found");
    world
        .post(&commit.0, token, &commit.1)
        .await
        .problem(404, "not_found");
    let listed = scene.get("/v1/reservations").await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let balances = scene.get("/v1/balances").await.expect(200);
    assert_eq!(balances["items"][0]["spent"], 7);
    assert_eq!(scene.verify().await["verified"], true);
}

#[tokio::test]
async fn only_what_agents_asked_is_erased_and_only_by_admins() {
    let scene = Scene::new().await;
    let refused = scene
        .world
        .post("/v1/ledger/erase", &scene.admin, &json!({"seq": 1}))
        .await;
    assert_eq!(
        refused.problem(409, "conflict"),
        "an entry of the kind `tenant_created` is not erased; those of these kinds are: `decision`, \
         `outcome_reported`, `run_observed`, `approval_refused`"
    );
    for wrong in [
        json!({}),
        json!({"seq": 1, "user": "jane"}),
        json!({"user": null, "older_than_days": 1}),
    ] {
        let refused = scene.world.post("/v1/ledger/erase", &scene.admin, &wrong).await;
        refused.problem(400, "invalid_field");
    }
    let absent = scene
        .world
        .post("/v1/ledger/erase", &scene.admin, &json!({"seq": 99}))
        .await;
    absent.problem(404, "not_found");
    let auditor = &scene.tenancy.auditor;
    scene
        .world
        .post("/v1/ledger/erase", auditor, &json!({"seq": 1}))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn a_body_that_was_only_taken_away_is_noticed() {
    let scene = Scene::new().await;
    for n in 0..3 {
        scene.decide("jane", &format!("call-{n}")).await;
    }
    scene.erase(&json!({"seq": ENTRIES + 2})).await;
    assert_eq!(scene.verify().await["verified"], true);
    let digest = scene.digest(ENTRIES + 3).await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.lay_open(&*scene.world.store, scene.tenancy.id).await;
    // As if it had been erased with the other one, which is not what the entry says. The header hashes to what it did.
    let (by, seq) = (scene.head().await, ENTRIES + 3);
    hand.run(&format!(
        "UPDATE audit_events SET body = '', erased_by = {by}, erased_body = {digest} WHERE entry = #{seq}"
    ))
    .await;
    let left = "the decision or its receipt was not";
    let mut faults = Vec::new();
    for table in ["decisions", "receipts"] {
        faults.push((scene.verify().await, left));
        hand.run(&format!("DELETE FROM {table} WHERE entry = #{seq}"))
            .await;
    }
    faults.push((scene.verify().await, "no entry tells"));
    for (report, expected) in faults {
        assert_eq!(report["verified"], false);
        assert_eq!(report["first_fault"]["seq"], seq);
        let what = report["first_fault"]["what"].as_str().unwrap();
        assert!(what.contains(expected), "{what}");
        assert_eq!(report["checked"], seq - 1, "{report}");
        assert_eq!(report["first_fault"]["since"]["seq"], seq - 1, "{report}");
    }
}

/// Who could do what has to be there, whatever else is.
#[tokio::test]
async fn a_body_of_a_kind_that_is_never_erased_is_noticed_whatever_tells_of_its_erasure() {
    const TOOL_PUT: u64 = 3;
    let scene = Scene::new().await;
    let tenant = scene.tenancy.id;
    let erasure = json!({"seqs": [[TOOL_PUT, TOOL_PUT]]});
    let by = scene.world.append(tenant, "bodies_erased", &erasure).await;
    assert_eq!(scene.verify().await["verified"], true);
    let digest = scene.digest(TOOL_PUT).await;
    let exported = scene.get("/v1/ledger/export").await.text();
    let mut hand = Hand::on(&scene.world.home, tenant).await;
    hand.disarm().await;
    hand.lay_open(&*scene.world.store, tenant).await;
    hand.run(&format!(
        "UPDATE audit_events SET body = '', erased_by = {by}, erased_body = {digest} WHERE entry = #{TOOL_PUT} AND ITS"
    ))
    .await;
    let what = "the body is gone, and an entry of the kind `tool_put` is never erased";
    let report = scene.verify().await;
    assert_eq!(report["verified"], false, "{report}");
    assert_eq!(report["first_fault"]["seq"], TOOL_PUT, "{report}");
    assert_eq!(report["first_fault"]["what"], what, "{report}");
    assert_eq!(report["checked"], TOOL_PUT - 1, "{report}");

    // Nor does whoever has the file alone take it for erased.
    let line = exported
        .lines()
        .find(|line| line.contains(r#""kind":"tool_put""#));
    let (header, _) = line.unwrap().split_once(r#","body":{"#).unwrap();
    let gone = exported.replace(line.unwrap(), &format!(r#"{header},"body":null}}"#));
    let failure = cli::verify::verify(&mut gone.as_bytes()).unwrap_err();
    assert_eq!(failure.to_string(), format!("entry {TOOL_PUT}: {what}"));
}

/// It would be skipped as erased before, and its body would stay.
#[tokio::test]
async fn a_body_that_is_only_half_marked_as_erased_is_not_said_to_be_gone() {
    let scene = Scene::new().await;
    scene.decide("jane", "call-1").await;
    let seq = scene.head().await;
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    let bytes = scene.digest(seq).await;
    for (mark, other) in [
        ("erased_by = 1".to_owned(), "erased_by = NULL"),
        (format!("erased_body = {bytes}"), "erased_body = NULL"),
    ] {
        hand.run(&format!(
            "UPDATE audit_events SET {mark} WHERE entry = #{seq} AND ITS"
        ))
        .await;
        for what in [json!({"seq": seq}), json!({"user": "jane"})] {
            let erased = scene.world.post("/v1/ledger/erase", &scene.admin, &what).await;
            assert_eq!(erased.expect(503)["code"], "ledger_unavailable", "{mark}: {what}");
        }
        hand.run(&format!(
            "UPDATE audit_events SET {other} WHERE entry = #{seq} AND ITS"
        ))
        .await;
    }
    assert_eq!(scene.erase(&json!({"user": "jane"})).await["erased"], 1);
    assert_eq!(scene.verify().await["verified"], true);
}

/// Nothing covers what stands in the row of an erased body, nor what is behind the range that is verified.
#[tokio::test]
async fn an_erasure_that_was_changed_or_erased_itself_tells_of_nothing() {
    let scene = Scene::new().await;
    for n in 0..2 {
        scene.decide("jane", &format!("call-{n}")).await;
    }
    scene.erase(&json!({"seq": ENTRIES + 2})).await;
    let (by, seq) = (scene.head().await, ENTRIES + 3);
    let (digest, own) = (scene.digest(seq).await, scene.digest(by).await);
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.lay_open(&*scene.world.store, scene.tenancy.id).await;
    let fault = async |range: Value| {
        let auditor = &scene.tenancy.auditor;
        let verified = scene.world.post("/v1/ledger/verify", auditor, &range).await;
        let fault = verified.expect(200)["first_fault"].clone();
        (fault["seq"].as_u64(), fault["what"].to_string())
    };
    let erased = ENTRIES + 2;
    hand.run(&format!(
        "UPDATE audit_events SET body = '{{}}' WHERE entry = #{erased}"
    ))
    .await;
    let (at, what) = fault(json!({})).await;
    assert_eq!(at, Some(erased), "{what}");
    assert!(what.contains("something stands in its place"), "{what}");
    hand.run(&format!(
        "UPDATE audit_events SET body = '' WHERE entry = #{erased}"
    ))
    .await;
    assert_eq!(fault(json!({})).await.0, None);
    for table in ["decisions", "receipts"] {
        hand.run(&format!("DELETE FROM {table} WHERE entry = #{seq}"))
            .await;
    }
    hand.run(&format!(
        "UPDATE audit_events SET body = '', erased_by = {by}, erased_body = {digest} WHERE entry = #{seq}"
    ))
    .await;
    // Two brackets at once are words of the hand.
    let all = r#"{"seqs":[ [1,199] ]}"#;
    for change in [String::new(), format!(", erased_by = {by}, erased_body = {own}")] {
        hand.run(&format!(
            "UPDATE audit_events SET body = '{all}'{change} WHERE entry = #{by}"
        ))
        .await;
        let (at, what) = fault(json!({"to_seq": by - 1})).await;
        // Nor does it of what it has told of before.
        assert_eq!(at, Some(erased), "{what}");
        assert!(what.contains("no entry tells"), "{what}");
    }
}

/// No erasure is needed for that: what was not erased can be made to look as if it was.
#[tokio::test]
async fn an_erasure_that_cannot_be_read_tells_of_nothing() {
    let scene = Scene::new().await;
    scene.decide("jane", "call-1").await;
    scene.erase(&json!({"user": "jane"})).await;
    let (by, seq) = (scene.head().await, ENTRIES + 2);
    let mut hand = Hand::on(&scene.world.home, scene.tenancy.id).await;
    hand.disarm().await;
    hand.run(&format!(
        "UPDATE audit_events SET prev = zeroblob(0) WHERE entry = #{by} AND ITS"
    ))
    .await;
    let report = scene.verify().await;
    assert_eq!(report["first_fault"]["seq"], seq, "{report}");
    let what = "the body is gone, and no entry tells of its erasure";
    assert_eq!(report["first_fault"]["what"], what, "{report}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_erased_is_gone_from_the_search_index() {
    let scene = Scene::new().await;
    let rounds = BLOCK / 100 + 1;
    for _ in 0..rounds {
        let asks: Vec<Value> = (0..100).map(|_| ask("get_file", "untrusted_external")).collect();
        let asks = json!({"asks": asks});
        let answers = scene
            .world
            .post("/v1/authorize/batch", &scene.tenancy.token, &asks);
        answers.await.expect(200);
    }
    until_indexed(&scene).await;
    let count = rounds * 100;
    let (mut erased, mut what) = (0, json!({"agent": scene.tenancy.agent}));
    let patience = Instant::now() + Duration::from_mins(3);
    // On a slow machine it takes more than one call.
    loop {
        let reached = scene.erase(&what).await;
        erased += reached["erased"].as_u64().unwrap();
        if reached["done"] == true {
            break;
        }
        assert!(Instant::now() < patience, "{reached}");
        what["from_seq"] = reached["next_seq"].clone();
    }
    assert_eq!(erased, count);
    until_indexed(&scene).await;
    let terms = engine::search::Query::new(&store::DecisionFilter::default(), None, &["widgets".to_owned()]);
    let left = scene
        .world
        .store
        .postings(scene.tenancy.id, terms.terms(), 0..=9)
        .await
        .unwrap();
    assert_eq!(left, []);
    assert_eq!(scene.verify().await["verified"], true);
}

/// Of two erasures in one block the first that is over lets it be made again, with what the other one has not erased yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_erased_is_gone_from_the_search_index_though_another_erasure_was_over_first() {
    let stage = Stage::set().await;
    let mut of_ann = stage::reading();
    of_ann["user"] = json!({"id": "ann"});
    stage.ask(&of_ann).await.expect(200);
    let asks = json!({"asks": vec![stage::reading(); 100]});
    for _ in 0..=BLOCK / 100 {
        let answers = stage.post("/v1/authorize/batch", &stage.agent.token, &asks);
        answers.await.expect(200);
    }
    let ann = model::Name::new("ann").unwrap();
    let query = engine::search::Query::new(&store::DecisionFilter::default(), Some(&ann), &[]);
    let known = async || {
        until_block_is_indexed(&*stage.store, stage.tenant).await;
        let postings = stage.store.postings(stage.tenant, query.terms(), 0..=0);
        postings.await.unwrap().len()
    };
    assert_eq!(known().await, 1);
    stage.faults.plan([Fault::Hold]);
    let what = json!({"user": "ann"});
    let (erased, ()) = tokio::join!(stage.admin("POST", "/v1/ledger/erase", &what), async {
        until(|| stage.faults.held() == 1).await;
        let other = BlockClaim {
            token: 7,
            now: support::BEGINNING,
            until: Timestamp::from_millis(i64::MAX),
            by_force: true,
        };
        assert!(stage.store.claim_block(stage.tenant, 0, &other).await.unwrap());
        stage
            .store
            .release_block(stage.tenant, 0, other.token)
            .await
            .unwrap();
        stage.gateway.indexing.look_at_all_of(stage.tenant);
        assert_eq!(known().await, 1, "it is not erased yet");
        stage.faults.let_go();
    });
    assert_eq!(erased.expect(200)["erased"], 1);
    assert_eq!(known().await, 0);
}

async fn until_indexed(scene: &Scene) {
    until_block_is_indexed(&*scene.world.store, scene.tenancy.id).await;
}

/// Waits until the first block of this tenant is in the index.
async fn until_block_is_indexed(store: &dyn Store, tenant: TenantId) {
    let deadline = Instant::now() + Duration::from_mins(3);
    while store.indexed(tenant, 0..=0).await.unwrap().is_empty() {
        assert!(Instant::now() < deadline);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
