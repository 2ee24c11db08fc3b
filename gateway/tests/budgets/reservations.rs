//! Reservations and usage without a decision: held, settled once, ended in time, and the same bytes under the same key.

use crate::stage::reading;
use crate::support::hand::Hand;
use crate::support::{Reply, until};
use crate::{Scene, balance, costing, tokens};
use futures_util::future::join_all;
use model::Clock as _;
use serde_json::{Value, json};
use std::time::Duration;
use store::faults::Fault;
use tokio::join;

#[tokio::test]
async fn a_reservation_is_committed_once_and_the_same_again_is_no_news() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(60).await;
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
    let commit = json!({"actual": tokens(25)});
    let committed = scene.settle(&id, "commit", &commit).await.expect(200);
    assert_eq!(
        (&committed["status"], &committed["charged"]),
        (&json!("committed"), &json!(25))
    );
    assert_eq!(balance(&committed["balances"][0]).1, [75, 0, 25, 0, 0]);
    let entries = scene.stage.entries().await.len();
    assert_eq!(scene.settle(&id, "commit", &commit).await.expect(200), committed);
    scene
        .settle(&id, "commit", &json!({"actual": tokens(26)}))
        .await
        .problem(422, "amount_mismatch");
    scene
        .settle(&id, "release", &json!({}))
        .await
        .problem(409, "reservation_settled");
    scene
        .settle(&id, "extend", &json!({"ttl_ms": 5_000}))
        .await
        .problem(409, "reservation_settled");
    assert_eq!(scene.stage.entries().await.len(), entries);
    assert_eq!(scene.standing().await, [75, 0, 25, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_is_released_comes_back_and_is_not_committed_any_more() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(60).await;
    let released = scene.settle(&id, "release", &json!({})).await.expect(200);
    assert_eq!(released["status"], "released");
    assert_eq!(
        scene.settle(&id, "release", &json!({})).await.expect(200),
        released
    );
    scene
        .settle(&id, "commit", &json!({"actual": tokens(1)}))
        .await
        .problem(409, "reservation_settled");
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    let path = format!("/v1/reservations/{id}");
    let shown = scene.stage.get(&path, &scene.auditor).await.expect(200);
    assert_eq!(shown["status"], "released");
}

#[tokio::test]
async fn a_reservation_ends_after_its_grace_and_can_be_held_longer() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let body = json!({"unit": "TOKENS", "amount": 60, "ttl_ms": 1_000});
    let held = scene.post("/v1/reservations", &body).await.expect(201);
    let id = held["id"].as_str().unwrap();
    scene.stage.clock.advance_millis(900);
    let extended = scene
        .settle(id, "extend", &json!({"ttl_ms": 2_000}))
        .await
        .expect(200);
    assert_eq!(extended["expires_at"], "2026-01-31T09:30:02.901Z");
    scene.stage.clock.advance_millis(6_999);
    let path = format!("/v1/reservations/{id}");
    let show = async || scene.stage.get(&path, &scene.stage.agent.token).await.expect(200);
    assert_eq!(show().await["status"], "active");
    scene.stage.clock.advance_millis(1);
    assert_eq!(show().await["status"], "expired");
    let late = scene.settle(id, "commit", &json!({"actual": tokens(1)})).await;
    let advice = late.problem(410, "reservation_expired");
    assert!(
        advice.contains("with the outcome of its decision") && advice.contains("POST /v1/usage"),
        "{advice}"
    );
    scene
        .settle(id, "extend", &json!({"ttl_ms": 2_000}))
        .await
        .problem(410, "reservation_expired");
    scene
        .settle(id, "release", &json!({}))
        .await
        .problem(410, "reservation_expired");
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    assert_eq!(scene.entries("reservation_expired").await.len(), 1);
}

#[tokio::test]
async fn nothing_is_held_for_a_run_that_cannot_be_named_in_a_path() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    for member in ["run_id", "parent_run_id"] {
        let body = json!({"unit": "TOKENS", "amount": 1, member: ".."});
        let problem = scene.post("/v1/reservations", &body).await.expect(400);
        assert_eq!(problem["code"], "invalid_field");
        let detail = problem["detail"].as_str().unwrap();
        let expected = format!("`/{member}`: `..` cannot stand");
        assert!(detail.starts_with(&expected), "{detail}");
    }
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
}

#[tokio::test]
async fn what_is_held_ends_by_the_time_of_the_chain_though_the_clock_was_set_back() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    scene.stage.clock.advance_millis(60_000);
    scene.post("/v1/usage", &tokens(1)).await.expect(201);
    scene.stage.clock.advance_millis(-60_000);
    let body = json!({"unit": "TOKENS", "amount": 60, "ttl_ms": 1_000});
    let held = scene.post("/v1/reservations", &body).await.expect(201);
    assert_eq!(held["created_at"], "2026-01-31T09:31:00.001Z");
    assert_eq!(held["expires_at"], "2026-01-31T09:31:01.001Z");
    scene.stage.clock.advance_millis(60_000);
    let commit = json!({"actual": tokens(1)});
    let id = held["id"].as_str().unwrap();
    scene.settle(id, "commit", &commit).await.expect(200);
    assert_eq!(scene.standing().await, [98, 0, 2, 0, 0]);
}

/// In a batch with something of a tenant whose chain is ahead, what another one holds does not end, and is not forgotten either.
#[tokio::test]
async fn what_is_held_ends_by_the_time_of_its_own_chain_though_another_one_is_ahead() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let stage = &scene.stage;
    let ahead = stage.tenancy("ahead").await;
    stage.clock.advance_millis(60_000);
    stage.authorize(&ahead.token, &reading()).await;
    stage.clock.advance_millis(-60_000);
    for (amount, ttl_ms) in [(10, 1_000), (60, 8_000)] {
        let body = json!({"unit": "TOKENS", "amount": amount, "ttl_ms": ttl_ms});
        scene.post("/v1/reservations", &body).await.expect(201);
    }
    stage.faults.plan([Fault::Hold]);
    let (read, cost, used) = (reading(), costing(1), tokens(1));
    let both = async {
        until(|| stage.faults.held() == 1).await;
        let of_ahead = stage.authorize(&ahead.token, &cost);
        join!(of_ahead, scene.post("/v1/usage", &used))
    };
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == 2).await;
        // The first of the two should have ended, and that is looked for.
        stage.clock.advance_millis(6_000);
        stage.faults.let_go();
    };
    let (first, (_, used), ()) = join!(stage.ask(&read), both, letting_go);
    first.expect(200);
    used.expect(201);
    stage.clock.advance_millis(7_000);
    let answer = stage.ask(&costing(60)).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    assert_eq!(scene.standing().await, [39, 60, 1, 0, 0]);
    stage.assert_sound().await;
}

#[tokio::test]
async fn what_has_ended_is_there_for_whoever_comes_next_and_for_the_job() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    scene.reserve(100).await;
    scene
        .post("/v1/reservations", &tokens(1))
        .await
        .problem(409, "budget_exceeded");
    scene.stage.clock.advance_millis(65_000);
    let id = scene.reserve(100).await;
    assert_eq!(scene.entries("reservation_expired").await.len(), 1);
    scene.stage.clock.advance_millis(65_000);
    let gateway = &scene.stage.gateway;
    gateway.expire_reservations(gateway.clock.now()).await.unwrap();
    gateway.expire_reservations(gateway.clock.now()).await.unwrap();
    assert_eq!(scene.entries("reservation_expired").await.len(), 2);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    let path = format!("/v1/reservations?status=expired&agent={}", scene.stage.agent.id);
    let listed = scene.stage.get(&path, &scene.auditor).await.expect(200);
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    assert_eq!(listed["items"][0]["id"], json!(id));
    scene.stage.assert_sound().await;
}

/// The job ends those of all tenants in one commit.
#[tokio::test]
async fn a_reservation_that_cannot_be_read_keeps_those_of_no_other_tenant_from_ending() {
    let scene = Scene::set().await;
    let stage = &scene.stage;
    scene.budgets(&[(json!({}), 100)]).await;
    scene.reserve(100).await;
    let other = stage.tenancy("globex").await;
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    let call = stage.call("POST", "/v1/budgets", &stage.operator);
    call.tenant(other.id).json(&budget).send().await.expect(201);
    let held = tokens(100);
    let held = stage.post("/v1/reservations", &other.token, &held).await;
    held.expect(201);
    // What is remembered is not read.
    stage.faults.plan([Fault::Lose]);
    scene.post("/v1/usage", &tokens(1)).await.expect(503);
    let mut hand = Hand::on(&stage.home, stage.tenant).await;
    hand.run("UPDATE reservations SET value = '!' || value WHERE MINE")
        .await;
    stage.clock.advance_millis(65_000);
    let gateway = &stage.gateway;
    gateway.expire_reservations(gateway.clock.now()).await.unwrap();
    let overdue = async || {
        let overdue = stage.store.overdue_reservations(&[], stage.clock.now(), 10);
        let overdue = overdue.await.unwrap().into_iter();
        overdue.map(|(tenant, _)| tenant).collect::<Vec<_>>()
    };
    assert_eq!(overdue().await, [stage.tenant]);
    hand.run("UPDATE reservations SET value = substr(value, 2) WHERE MINE")
        .await;
    stage.clock.advance_millis(600_000);
    gateway.expire_reservations(gateway.clock.now()).await.unwrap();
    assert_eq!(overdue().await, []);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    stage.assert_sound().await;
}

/// So a clock that was ahead for a moment ends nothing for good.
#[tokio::test]
async fn what_has_ended_only_by_a_clock_that_was_ahead_is_held_on() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(100).await;
    let gateway = &scene.stage.gateway;
    let before = gateway.clock.now();
    scene.stage.clock.advance_millis(65_000);
    gateway.expire_reservations(before).await.unwrap();
    scene.stage.clock.advance_millis(-65_000);
    assert_eq!(scene.entries("reservation_expired").await.len(), 0);
    let spent = json!({"actual": tokens(40)});
    scene.settle(&id, "commit", &spent).await.expect(200);
    assert_eq!(scene.standing().await, [60, 0, 40, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_has_ended_is_written_down_at_once_however_much_there_is() {
    const HELD: usize = 1_100;
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 2_000)]).await;
    join_all((0..HELD).map(|_| scene.reserve(1))).await;
    scene.stage.clock.advance_millis(65_000);
    let gateway = &scene.stage.gateway;
    until(|| !gateway.sequencer.is_under_load()).await;
    gateway.expire_reservations(gateway.clock.now()).await.unwrap();
    let left = scene
        .stage
        .store
        .overdue_reservations(&[], scene.stage.clock.now(), 1);
    assert_eq!(left.await.unwrap(), []);
    assert_eq!(scene.standing().await, [2_000, 0, 0, 0, 0]);
}

#[tokio::test]
async fn what_has_ended_is_there_for_whoever_comes_next_however_much_there_is() {
    const HELD: usize = 1_100;
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_100)]).await;
    join_all((0..HELD).map(|_| scene.reserve(1))).await;
    scene
        .post("/v1/reservations", &tokens(1))
        .await
        .problem(409, "budget_exceeded");
    scene.stage.clock.advance_millis(65_000);
    let answer = scene.stage.ask(&costing(600)).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    assert_eq!(scene.standing().await, [500, 600, 0, 0, 0]);
    assert_eq!(scene.entries("reservation_expired").await.len(), HELD);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn who_cannot_wait_until_what_has_ended_is_written_down_is_refused_and_nothing_is_recorded() {
    const HELD: usize = 1_100;
    const SLOW: Duration = Duration::from_millis(600);
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 1_100)]).await;
    join_all((0..HELD).map(|_| scene.reserve(1))).await;
    let stage = &scene.stage;
    // While the first commit is held, nobody else writes down what has ended.
    stage
        .faults
        .plan([Fault::Hold, Fault::Delay(SLOW), Fault::Delay(SLOW)]);
    let (read, cost) = (reading(), costing(600));
    let hasty = async {
        until(|| stage.faults.held() == 1).await;
        let call = stage.call("POST", "/v1/authorize", &stage.agent.token);
        let call = call.header("x-request-timeout-ms", "1000").json(&cost);
        call.send().await
    };
    let letting_go = async {
        // The one that waits is not the first any more.
        until(|| stage.faults.held() == 1 && stage.gateway.sequencer.waiting() == 1).await;
        stage.clock.advance_millis(65_000);
        stage.faults.let_go();
    };
    let (first, hasty, ()) = join!(stage.ask(&read), hasty, letting_go);
    first.expect(200);
    hasty.problem(503, "deadline_exceeded");
    assert_eq!(stage.count("decision").await, 1);
    let answer = stage.ask(&cost).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
    assert_eq!(scene.standing().await, [500, 600, 0, 0, 0]);
    stage.assert_sound().await;
}

#[tokio::test]
async fn what_one_tenant_holds_beyond_its_time_is_no_look_for_each_of_the_others() {
    const HELD: usize = 600;
    const OTHERS: usize = 8;
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 600)]).await;
    join_all((0..HELD).map(|_| scene.reserve(1))).await;
    let stage = &scene.stage;
    let mut others = Vec::new();
    for number in 0..OTHERS {
        others.push(stage.tenancy(&format!("other-{number}")).await);
    }
    stage.faults.plan([Fault::Hold]);
    let (read, cost) = (reading(), costing(1));
    let asks = async {
        until(|| stage.faults.held() == 1).await;
        let asks = others.iter().map(|other| stage.authorize(&other.token, &cost));
        join!(stage.ask(&cost), join_all(asks))
    };
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == OTHERS + 1).await;
        stage.clock.advance_millis(65_000);
        let reads = stage.faults.reservation_reads();
        stage.faults.let_go();
        reads
    };
    let (first, (own, _), reads) = join!(stage.ask(&read), asks, letting_go);
    first.expect(200);
    // Beside the three of the batch there may be some of the job.
    let reads = stage.faults.reservation_reads() - reads;
    assert!(reads < OTHERS, "{reads} looks");
    let own = own.expect(200);
    assert_eq!(own["decision"], "allow", "{own}");
    assert_eq!(scene.standing().await, [599, 1, 0, 0, 0]);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_refusal_says_which_budget_how_much_is_left_and_what_to_do() {
    let scene = Scene::set().await;
    let strict = json!({"scope": {"team": "crew"}, "unit": "TOKENS", "allocated": 50, "overage": "reject"});
    scene.budget(&strict).await;
    let refused = scene.post("/v1/reservations", &tokens(51)).await;
    let detail = refused.problem(409, "budget_exceeded");
    assert!(
        detail.contains("the budget of the team `crew` has 50 `TOKENS` left"),
        "{detail}"
    );
    assert!(detail.contains("Ask for less"), "{detail}");
    let problem = refused.json();
    assert_eq!(
        (
            &problem["scope"],
            &problem["requested"],
            &problem["remaining"],
            &problem["unit"]
        ),
        (&json!({"team": "crew"}), &json!(51), &json!(50), &json!("TOKENS"))
    );
    let id = scene.reserve(30).await;
    let refused = scene.settle(&id, "commit", &json!({"actual": tokens(31)})).await;
    assert_eq!(
        refused.problem(409, "budget_exceeded"),
        "the budget of the team `crew` rejects more than was held, 30 `TOKENS`. Commit 30, and report of the rest with `POST /v1/usage` as much as is left."
    );
    let problem = refused.json();
    assert_eq!(
        (&problem["held"], &problem["requested"], &problem["remaining"]),
        (&json!(30), &json!(1), &json!(20))
    );
    scene
        .post("/v1/usage", &tokens(21))
        .await
        .problem(409, "budget_exceeded");
    scene
        .settle(
            &id,
            "commit",
            &json!({"actual": {"unit": "CREDITS", "amount": 1}}),
        )
        .await
        .problem(422, "unit_mismatch");
    scene
        .post("/v1/usage", &json!({"unit": "EUR", "amount": 1}))
        .await
        .problem(404, "budget_not_found");
    assert_eq!(scene.standing().await, [20, 30, 0, 0, 0]);
}

#[tokio::test]
async fn what_nothing_was_held_for_is_more_than_was_held() {
    let scene = Scene::set().await;
    let strict = json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overage": "reject"});
    scene.budget(&strict).await;
    let id = scene.reserve(0).await;
    let entries = scene.stage.entries().await.len();
    let refused = scene.settle(&id, "commit", &json!({"actual": tokens(10)})).await;
    assert_eq!(
        refused.problem(409, "budget_exceeded"),
        "the budget of the tenant rejects more than was held, 0 `TOKENS`. Commit 0, and report of the rest with `POST /v1/usage` as much as is left."
    );
    let problem = refused.json();
    assert_eq!(
        (&problem["held"], &problem["requested"], &problem["remaining"]),
        (&json!(0), &json!(10), &json!(100))
    );
    assert_eq!(scene.stage.entries().await.len(), entries, "nothing moves");
    scene
        .settle(&id, "commit", &json!({"actual": tokens(0)}))
        .await
        .expect(200);
    scene.post("/v1/usage", &tokens(10)).await.expect(201);
    assert_eq!(scene.standing().await, [90, 0, 10, 0, 0]);
    let counted = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(counted.mismatches, Vec::<String>::new());
}

#[tokio::test]
async fn usage_counts_after_the_fact_down_to_the_overdraft_and_the_rest_is_uncovered() {
    let scene = Scene::set().await;
    let body = json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "overdraft_limit": 20});
    let budget = scene.budget(&body).await;
    let used = scene.post("/v1/usage", &tokens(90)).await.expect(201);
    assert_eq!((&used["charged"], &used["uncovered"]), (&json!(90), &json!(0)));
    let used = scene.post("/v1/usage", &tokens(50)).await.expect(201);
    assert_eq!((&used["charged"], &used["uncovered"]), (&json!(30), &json!(20)));
    assert_eq!(scene.standing().await, [-20, 0, 100, 20, 20]);
    let told: Vec<_> = scene
        .entries("budget_threshold_reached")
        .await
        .iter()
        .map(|entry| entry["percent"].clone())
        .collect();
    assert_eq!(told, [50, 80, 100]);
    let refused = scene.post("/v1/reservations", &tokens(0)).await;
    assert_eq!(
        refused.problem(409, "budget_exceeded"),
        format!(
            "the budget of the tenant is 20 `TOKENS` below zero, and 0 are wanted. Have the budget {budget} funded."
        )
    );
}

/// A POST under a key.
async fn keyed(scene: &Scene, path: &str, key: &str, body: &Value) -> Reply {
    let call = scene.stage.call("POST", path, &scene.stage.agent.token);
    call.header("idempotency-key", key).json(body).send().await
}

#[tokio::test]
async fn the_same_key_has_the_same_bytes_and_moves_nothing_twice() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let held = keyed(&scene, "/v1/reservations", "k1", &tokens(10)).await;
    let id = held.expect(201)["id"].as_str().unwrap().to_owned();
    let used = keyed(&scene, "/v1/usage", "k2", &tokens(5)).await;
    used.expect(201);
    let commit = format!("/v1/reservations/{id}/commit");
    let body = json!({"actual": tokens(7)});
    let committed = keyed(&scene, &commit, "\"k3\"", &body).await;
    committed.expect(200);
    let scene = Scene {
        stage: scene.stage.restart().await,
        ..scene
    };
    for _ in 0..2 {
        assert_eq!(
            keyed(&scene, "/v1/reservations", "k1", &tokens(10)).await.bytes,
            held.bytes
        );
        assert_eq!(
            keyed(&scene, "/v1/usage", "k2", &tokens(5)).await.bytes,
            used.bytes
        );
        assert_eq!(keyed(&scene, &commit, "k3", &body).await.bytes, committed.bytes);
    }
    assert_eq!(scene.standing().await, [88, 0, 12, 0, 0]);
    keyed(&scene, "/v1/usage", "k2", &tokens(6))
        .await
        .problem(422, "idempotency_key_reused");
    keyed(&scene, "/v1/usage", "k1", &tokens(10))
        .await
        .problem(422, "idempotency_key_reused");
    // A key is its caller's own.
    let call = scene.stage.call("POST", "/v1/usage", &scene.stranger.token);
    let other = call.header("idempotency-key", "k2").json(&tokens(6)).send().await;
    other.expect(201);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn amounts_and_times_out_of_range_move_nothing() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    for amount in ["-1", "1.5", "9007199254740992", "1e300", "\"5\"", "null"] {
        for path in ["/v1/reservations", "/v1/usage"] {
            let body = format!(r#"{{"unit":"TOKENS","amount":{amount}}}"#);
            let call = scene.stage.call("POST", path, &scene.stage.agent.token);
            let detail = call.body(body).send().await.problem(400, "invalid_field");
            assert!(detail.contains("/amount"), "{detail}");
        }
    }
    for ttl_ms in [0, 999, 86_400_001] {
        let body = json!({"unit": "TOKENS", "amount": 1, "ttl_ms": ttl_ms});
        scene
            .post("/v1/reservations", &body)
            .await
            .problem(400, "invalid_field");
    }
    let huge = json!({"unit": "TOKENS", "amount": 9_007_199_254_740_991_i64});
    let used = scene.post("/v1/usage", &huge).await.expect(201);
    assert_eq!(used["charged"], 100);
    assert_eq!(scene.standing().await[2], 100);
}

#[tokio::test]
async fn somebody_elses_reservation_does_not_exist() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(10).await;
    let token = &scene.stranger.token;
    let path = format!("/v1/reservations/{id}");
    scene.stage.get(&path, token).await.problem(404, "not_found");
    for (verb, body) in [
        ("commit", json!({"actual": tokens(1)})),
        ("release", json!({})),
        ("extend", json!({"ttl_ms": 2_000})),
    ] {
        let path = format!("{path}/{verb}");
        scene
            .stage
            .post(&path, token, &body)
            .await
            .problem(404, "not_found");
        let unknown = format!("/v1/reservations/rsv_00000000000000000000000000/{verb}");
        scene.post(&unknown, &body).await.problem(404, "not_found");
    }
    let listed = scene.stage.get("/v1/reservations", token).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    assert_eq!(scene.standing().await, [90, 10, 0, 0, 0]);
}

#[tokio::test]
async fn a_frozen_agent_holds_nothing_more_and_may_still_settle() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(10).await;
    scene
        .stage
        .set_standing(&scene.stage.agent, "freeze")
        .await
        .expect(200);
    scene
        .post("/v1/reservations", &tokens(1))
        .await
        .problem(403, "forbidden");
    scene
        .settle(&id, "extend", &json!({"ttl_ms": 2_000}))
        .await
        .problem(403, "forbidden");
    scene
        .settle(&id, "commit", &json!({"actual": tokens(4)}))
        .await
        .expect(200);
    assert_eq!(scene.standing().await, [96, 0, 4, 0, 0]);
}

#[tokio::test]
async fn nothing_is_held_for_a_run_or_a_tool_that_was_stopped() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let reason = json!({"reason": "a test"});
    for path in ["/v1/runs/run-1/freeze", "/v1/tools/github/freeze"] {
        scene.stage.admin("POST", path, &reason).await.expect(200);
    }
    for (member, name) in [
        ("run_id", "run-1"),
        ("parent_run_id", "run-1"),
        ("tool", "github"),
    ] {
        let mut body = tokens(1);
        body["run_id"] = json!("run-2");
        body[member] = json!(name);
        let detail = scene
            .post("/v1/reservations", &body)
            .await
            .problem(403, "forbidden");
        assert!(detail.starts_with(&format!("`{name}` is frozen")), "{detail}");
    }
    let mut body = tokens(1);
    body["run_id"] = json!("run-2");
    body["tool"] = json!("vault");
    scene.post("/v1/reservations", &body).await.expect(201);
}

#[tokio::test]
async fn what_a_tool_has_is_for_those_who_may_use_it_under_its_own_name() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 100), (json!({"tool": "github"}), 10)])
        .await;
    let of = |tool: &str, amount: i64| json!({"unit": "TOKENS", "amount": amount, "tool": tool});
    let other = json!({"name": "other", "tools": ["vault"]});
    let other = scene.stage.hire(other).await;
    for path in ["/v1/reservations", "/v1/usage"] {
        let refused = scene.stage.post(path, &other.token, &of("github", 1)).await;
        let detail = refused.problem(403, "forbidden");
        assert_eq!(
            detail,
            "`github` is no registered tool that is granted to the agent; have it granted, or leave `tool` out"
        );
    }
    scene.post("/v1/usage", &of("github", 10)).await.expect(201);
    scene
        .post("/v1/reservations", &of("github", 1))
        .await
        .problem(409, "budget_exceeded");
    for path in ["/v1/reservations", "/v1/usage"] {
        let refused = scene.post(path, &of("Github", 1)).await;
        refused.problem(403, "forbidden");
    }
    let granted = scene.stage.post("/v1/usage", &other.token, &of("vault", 1)).await;
    granted.expect(201);
    assert_eq!(
        scene.balances().await,
        [
            (json!({}), [89, 0, 11, 0, 0]),
            (json!({"tool": "github"}), [0, 0, 10, 0, 0])
        ]
    );
}

#[tokio::test]
async fn a_repetition_is_answered_though_its_tool_is_not_granted_any_more() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let of_github = json!({"unit": "TOKENS", "amount": 10, "tool": "github"});
    let post = async |path: &str, key: &str| {
        let call = scene.stage.call("POST", path, &scene.stage.agent.token);
        let call = call.header("idempotency-key", format!("{key} {path}"));
        call.json(&of_github).send().await
    };
    let paths = ["/v1/reservations", "/v1/usage"];
    let mut first = Vec::new();
    for path in paths {
        first.push(post(path, "first").await.expect(201));
    }
    let extend = format!("/v1/reservations/{}/extend", first[0]["id"].as_str().unwrap());
    let extend_again = async |key: &str| {
        let call = scene.stage.call("POST", &extend, &scene.stage.agent.token);
        let call = call.header("idempotency-key", format!("{key} longer"));
        call.json(&json!({"ttl_ms": 90_000})).send().await
    };
    let extended = extend_again("first").await.expect(200);
    let agent = format!("/v1/agents/{}", scene.stage.agent.id);
    let none = json!({"tools": []});
    scene.stage.admin("PATCH", &agent, &none).await.expect(200);
    for (path, first) in paths.into_iter().zip(first) {
        assert_eq!(post(path, "first").await.expect(201), first, "{path}");
        post(path, "second").await.problem(403, "forbidden");
    }
    scene.stage.clock.advance_millis(1_000);
    assert_eq!(extend_again("first").await.expect(200), extended);
    extend_again("second").await.problem(403, "forbidden");
    assert_eq!(scene.balances().await, [(json!({}), [80, 10, 10, 0, 0])]);
    // What was stopped is another matter.
    let reason = json!({"reason": "a test"});
    let freeze = "/v1/tools/github/freeze";
    scene.stage.admin("POST", freeze, &reason).await.expect(200);
    extend_again("first").await.problem(403, "forbidden");
}

#[tokio::test]
async fn what_is_held_for_a_run_or_a_tool_that_was_stopped_is_settled_and_not_extended() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let longer = json!({"ttl_ms": 2_000});
    for (held_for, name, path) in [
        (json!({"run_id": "run-1"}), "run-1", "/v1/runs/run-1"),
        (
            json!({"run_id": "child", "parent_run_id": "first"}),
            "first",
            "/v1/runs/first",
        ),
        (json!({"parent_run_id": "alone"}), "alone", "/v1/runs/alone"),
        (json!({"tool": "github"}), "github", "/v1/tools/github"),
    ] {
        let change = async |verb: &str| {
            let (path, reason) = (format!("{path}/{verb}"), json!({"reason": "a test"}));
            scene.stage.admin("POST", &path, &reason).await.expect(200);
        };
        let mut body = tokens(10);
        body.as_object_mut()
            .unwrap()
            .extend(held_for.as_object().unwrap().clone());
        let held = scene.post("/v1/reservations", &body).await.expect(201);
        let id = held["id"].as_str().unwrap();
        scene.settle(id, "extend", &longer).await.expect(200);
        change("freeze").await;
        let detail = scene.settle(id, "extend", &longer).await;
        let detail = detail.problem(403, "forbidden");
        assert_eq!(detail, format!("`{name}` is frozen, so nothing is held for it"));
        let others = format!("/v1/reservations/{id}/extend");
        let others = scene.stage.post(&others, &scene.stranger.token, &longer).await;
        others.problem(404, "not_found");
        change("unfreeze").await;
        scene.settle(id, "extend", &longer).await.expect(200);
        change("freeze").await;
        let commit = json!({"actual": tokens(4)});
        scene.settle(id, "commit", &commit).await.expect(200);
    }
    assert_eq!(scene.standing().await, [84, 0, 16, 0, 0]);
}

#[tokio::test]
async fn a_reservation_is_for_its_run_and_the_one_that_was_first_named_as_its_parent() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let hold = async |run: &str, parent: Option<&str>| {
        let body = json!({"unit": "TOKENS", "amount": 10, "run_id": run, "parent_run_id": parent});
        let held = scene.post("/v1/reservations", &body).await.expect(201);
        held["id"].as_str().unwrap().to_owned()
    };
    hold("child", Some("first")).await;
    let unnamed = hold("child", None).await;
    let renamed = hold("child", Some("elsewhere")).await;
    let grandchild = hold("grandchild", Some("child")).await;
    let longer = json!({"ttl_ms": 2_000});
    let reason = json!({"reason": "a test"});
    let freeze = "/v1/runs/elsewhere/freeze";
    scene.stage.admin("POST", freeze, &reason).await.expect(200);
    for id in [&unnamed, &renamed, &grandchild] {
        scene.settle(id, "extend", &longer).await.expect(200);
    }
    let freeze = "/v1/runs/first/freeze";
    scene.stage.admin("POST", freeze, &reason).await.expect(200);
    for id in [&unnamed, &renamed] {
        let detail = scene.settle(id, "extend", &longer).await;
        let detail = detail.problem(403, "forbidden");
        assert_eq!(detail, "`first` is frozen, so nothing is held for it");
    }
    scene.settle(&grandchild, "extend", &longer).await.expect(200);
}

#[tokio::test]
async fn what_is_held_beyond_its_time_is_not_shown_as_held_whoever_has_written_it_down() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 100}))
        .await;
    scene.reserve(60).await;
    scene.stage.clock.advance_millis(64_999);
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
    scene.stage.clock.advance_millis(1);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
    let path = format!("/v1/budgets/{id}");
    let shown = scene.stage.admin("GET", &path, &Value::Null).await.expect(200);
    assert_eq!(balance(&shown).1, [100, 0, 0, 0, 0]);
    let own = scene
        .stage
        .get("/v1/balances", &scene.stage.agent.token)
        .await
        .expect(200);
    assert_eq!(balance(&own["items"][0]).1, [100, 0, 0, 0, 0]);
    let decided = scene.post("/v1/decide", &costing(70)).await.expect(200);
    assert_eq!(decided["decision"], "allow", "{decided}");
}

#[tokio::test]
async fn a_key_stands_for_nothing_where_nothing_is_recorded() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let decide = async |key: &str, amount: i64| {
        let call = scene.stage.call("POST", "/v1/decide", &scene.stage.agent.token);
        let call = call.header("idempotency-key", key);
        call.json(&costing(amount)).send().await
    };
    assert_eq!(decide("k-1", 60).await.expect(200)["decision"], "allow");
    assert_eq!(decide("k-1", 101).await.expect(200)["decision"], "deny");
    scene.reserve(60).await;
    assert_eq!(decide("k-1", 60).await.expect(200)["decision"], "deny");
    assert_eq!(decide("", 60).await.status, 400);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reservation_that_ends_is_never_seen_half_ended() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let look = async || {
        let token = &scene.stage.agent.token;
        let page = scene.stage.get("/v1/balances", token).await.expect(200);
        balance(&page["items"][0]).1
    };
    for _ in 0..30 {
        scene.reserve(10).await;
        assert_eq!(look().await, [90, 10, 0, 0, 0]);
        scene.stage.clock.advance_millis(66_000);
        // It has ended, whether that is written down before, while or after somebody looks.
        let gateway = &scene.stage.gateway;
        let (ended, seen) = join!(
            gateway.expire_reservations(gateway.clock.now()),
            join_all((0..8).map(|_| look()))
        );
        ended.unwrap();
        assert_eq!(seen, [[100, 0, 0, 0, 0]; 8]);
    }
}
