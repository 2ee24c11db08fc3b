//! A gateway remembers budgets as long as nobody else has moved the head of their tenant. Whatever it remembers would be wrong
//! here, if it were not forgotten in time.

use crate::stage::{Stage, reading};
use crate::support::{World, patient, signing_key, until};
use crate::{Scene, costing, tokens};
use gateway::app::App;
use gateway::gateway::Options;
use gateway::start::{self, Ingredients};
use model::SystemEntropy;
use policy::BasePolicies;
use serde_json::{Value, json};
use std::sync::Arc;
use store::faults::Fault;

/// After so many changes a gateway that is alone asks no more.
const USED_TO: usize = 3;

/// Another gateway over the same store, as another program would be.
async fn beside(stage: &Stage) -> World {
    let ingredients = Ingredients {
        store: Arc::clone(&stage.store),
        clock: stage.clock.clone(),
        entropy: Arc::new(SystemEntropy),
        signing_key: signing_key(),
        base_policies: BasePolicies::shipped(),
        base_file: None,
        options: patient(Options::default()),
    };
    let (gateway, _) = start::start(ingredients).await.unwrap();
    World {
        app: App::new(&gateway),
        gateway,
        store: Arc::clone(&stage.store),
        clock: stage.clock.clone(),
        operator: stage.operator.clone(),
        home: Arc::clone(&stage.home),
    }
}

/// A budget with so much, and a gateway that remembers it and is used to be alone.
async fn used_to(allocated: i64) -> Scene {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), allocated)]).await;
    get_used_to(&scene).await;
    scene
}

async fn get_used_to(scene: &Scene) {
    for _ in 0..USED_TO {
        let id = scene.reserve(1).await;
        scene.settle(&id, "release", &json!({})).await.expect(200);
    }
}

/// That exactly so much is left, and whoever wants more gets nothing. Nothing is left then.
async fn assert_left(scene: &Scene, left: i64) {
    let more = json!({"unit": "TOKENS", "amount": left + 1});
    let refused = scene.post("/v1/reservations", &more).await;
    refused.problem(409, "budget_exceeded");
    scene.reserve(left).await;
    let denied = scene.stage.ask(&costing(1)).await.expect(200);
    assert_eq!(denied["reason_code"], "budget_exceeded");
    assert_books_balance(scene).await;
}

async fn assert_books_balance(scene: &Scene) {
    let found = gateway::cli::budgets::verify(&*scene.stage.store).await.unwrap();
    assert_eq!(found.mismatches, Vec::<String>::new());
    scene.stage.assert_sound().await;
}

/// A request that named itself is looked up before it is refused, and the batch that had read what should have ended is
/// made again.
#[tokio::test]
async fn what_should_have_ended_is_not_held_against_whoever_comes_behind_a_refusal() {
    for key in [None, Some("named")] {
        let scene = used_to(1_000).await;
        scene.reserve(600).await;
        scene.stage.clock.advance_millis(65_000);
        let mut refused = scene
            .stage
            .call("POST", "/v1/reservations", &scene.stage.agent.token);
        if let Some(key) = key {
            refused = refused.header("idempotency-key", key);
        }
        let refused = refused.json(&tokens(5_000)).send().await;
        let detail = refused.problem(409, "budget_exceeded");
        assert!(detail.contains("has 1000 `TOKENS` left"), "{key:?}: {detail}");
        scene.reserve(700).await;
        assert_books_balance(&scene).await;
    }
}

/// Nothing is written of what is refused, so storage would not say that it was refused by what is not so any more.
#[tokio::test]
async fn what_is_refused_without_a_turn_is_refused_in_one_and_counted_by_its_cause() {
    for (key, cause) in [(None, "told_without_write"), (Some("named"), "may_be_recorded")] {
        let scene = used_to(1_000).await;
        let stage = &scene.stage;
        let turns = stage.faults.turns();
        let mut call = stage.call("POST", "/v1/reservations", &stage.agent.token);
        if let Some(key) = key {
            call = call.header("idempotency-key", key);
        }
        let refused = call.json(&tokens(5_000)).send().await;
        refused.problem(409, "budget_exceeded");
        assert_eq!(stage.faults.turns(), turns + 1, "{cause}");
        let metrics = stage.get("/metrics", "").await.text();
        let lines = metrics.lines();
        let counted = lines.filter_map(|line| line.strip_prefix("countersign_batch_retries_total"));
        assert_eq!(counted.collect::<Vec<_>>(), [format!("{{cause=\"{cause}\"}} 1")]);
        assert_books_balance(&scene).await;
    }
}

#[tokio::test]
async fn whoever_is_alone_spends_without_asking_what_is_left() {
    let scene = used_to(1_000).await;
    let faults = &scene.stage.faults;
    let usage = async |key: &str| {
        let call = scene.stage.call("POST", "/v1/usage", &scene.stage.agent.token);
        let call = call.header("idempotency-key", key).json(&tokens(1));
        call.send().await.expect(201)
    };
    let spend = async |round: usize| {
        let id = scene.reserve(5).await;
        scene
            .settle(&id, "extend", &json!({"ttl_ms": 90_000}))
            .await
            .expect(200);
        scene
            .settle(&id, "commit", &json!({"actual": tokens(3)}))
            .await
            .expect(200);
        usage(&format!("call-{round}")).await;
        let answer = scene.stage.ask(&costing(4)).await.expect(200);
        let path = format!(
            "/v1/decisions/{}/outcome",
            answer["decision_id"].as_str().unwrap()
        );
        let outcome =
            json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": tokens(2)});
        scene.post(&path, &outcome).await.expect(201);
    };
    // Scopes of the tool are looked for once.
    spend(0).await;
    let turns = faults.turns();
    for round in 1..=5 {
        spend(round).await;
    }
    assert_eq!(faults.turns(), turns, "it asked although nobody else was there");
    assert_eq!(scene.standing().await, [1_000 - 6 * 6, 0, 6 * 6, 0, 0]);
    assert_left(&scene, 1_000 - 6 * 6).await;
}

#[tokio::test]
async fn what_another_gateway_has_spent_is_not_left() {
    let scene = used_to(100).await;
    let other = beside(&scene.stage).await;
    let token = &scene.stage.agent.token;
    let held = other
        .post("/v1/reservations", token, &tokens(40))
        .await
        .expect(201);
    assert_left(&scene, 60).await;
    // What the other one settles is there again, and what was settled there is not settled here again.
    let path = format!("/v1/reservations/{}/release", held["id"].as_str().unwrap());
    get_used_to_refusals(&scene).await;
    other.post(&path, token, &json!({})).await.expect(200);
    let late = json!({"actual": tokens(1)});
    let commit = path.replace("release", "commit");
    scene
        .post(&commit, &late)
        .await
        .problem(409, "reservation_settled");
    assert_left(&scene, 40).await;
}

/// Moves the head a few times without money.
async fn get_used_to_refusals(scene: &Scene) {
    for _ in 0..USED_TO {
        scene.stage.ask(&costing(1)).await.expect(200);
    }
}

#[tokio::test]
async fn what_another_gateway_has_given_is_there() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 10}))
        .await;
    get_used_to(&scene).await;
    let held = scene.reserve(10).await;
    let more = json!({"unit": "TOKENS", "amount": 5});
    let refused = scene.post("/v1/reservations", &more).await;
    refused.problem(409, "budget_exceeded");
    let other = beside(&scene.stage).await;
    let call = other.call("POST", &format!("/v1/budgets/{id}/fund"), &other.operator);
    let call = call.tenant(scene.stage.tenant).json(&json!({"amount": 5}));
    call.send().await.expect(200);
    // Nothing is written when it is refused, so nothing would say that it should not have been.
    scene.reserve(5).await;
    let release = format!("/v1/reservations/{held}/release");
    let token = &scene.stage.agent.token;
    other.post(&release, token, &json!({})).await.expect(200);
    let late = scene.settle(&held, "commit", &json!({"actual": tokens(1)})).await;
    late.problem(409, "reservation_settled");
    assert_left(&scene, 10).await;
}

#[tokio::test]
async fn two_gateways_in_turn_spend_one_budget_and_not_two() {
    let scene = used_to(50).await;
    let other = beside(&scene.stage).await;
    let token = &scene.stage.agent.token;
    let mut spent = 0;
    for round in 0..60 {
        // Each of them is alone for a while, and then they take turns.
        let is_turn_of_first = if round < 28 { round % 7 < 4 } else { round % 2 == 0 };
        let world: &World = if is_turn_of_first { &scene.stage } else { &other };
        let reply = world.post("/v1/usage", token, &tokens(1)).await;
        if spent < 50 {
            reply.expect(201);
            spent += 1;
        } else {
            // By its overage policy a budget takes what was used already, and covers none of it.
            assert_eq!(reply.expect(201)["uncovered"], 1);
        }
    }
    assert_eq!(scene.standing().await, [0, 0, 50, 0, 10]);
    assert_books_balance(&scene).await;
}

#[tokio::test]
async fn what_is_remembered_is_forgotten_when_a_commit_fails() {
    for (fault, held) in [
        (Fault::Lose, 0),
        (Fault::LoseUnknown, 0),
        (Fault::KeepButReportUnknown, 10),
        (Fault::HeadMoved, 10),
    ] {
        let scene = used_to(100).await;
        scene.stage.faults.plan([fault]);
        let reply = scene.post("/v1/reservations", &tokens(10)).await;
        if fault == Fault::HeadMoved {
            reply.expect(201);
        } else {
            reply.problem(503, "ledger_unavailable");
        }
        assert_eq!(scene.standing().await[1], held, "{fault:?}");
        assert_left(&scene, 100 - held).await;
    }
}

#[tokio::test]
async fn a_budget_that_is_closed_and_made_anew_is_another_one() {
    let scene = Scene::set().await;
    let old = scene
        .budget(&json!({"scope": {}, "unit": "TOKENS", "allocated": 50}))
        .await;
    get_used_to(&scene).await;
    let held = scene.reserve(20).await;
    scene.change(&old, "close", &json!({})).await.expect(200);
    // Without any budget an estimate is only told.
    assert_eq!(
        scene.stage.ask(&costing(1_000)).await.expect(200)["decision"],
        "allow"
    );
    scene.budgets(&[(json!({}), 30)]).await;
    scene
        .settle(&held, "commit", &json!({"actual": tokens(20)}))
        .await
        .expect(200);
    assert_left(&scene, 30).await;
    let path = format!("/v1/budgets/{old}");
    let closed = scene.stage.get(&path, &scene.auditor).await.expect(200);
    assert_eq!((&closed["spent"], &closed["reserved"]), (&json!(20), &json!(0)));
}

#[tokio::test]
async fn the_first_budget_counts_from_then_on_and_the_last_one_until_then() {
    let scene = Scene::set().await;
    for _ in 0..USED_TO {
        assert_eq!(
            scene.stage.ask(&costing(9)).await.expect(200)["decision"],
            "allow"
        );
    }
    let id = scene
        .budget(&json!({"scope": {}, "unit": "CREDITS", "allocated": 5}))
        .await;
    let denied = scene.stage.ask(&costing(9)).await.expect(200);
    assert_eq!(denied["reason_code"], "budget_not_found");
    scene.change(&id, "freeze", &json!({})).await.expect(200);
    let mut ask = costing(1);
    ask["estimate"]["unit"] = json!("CREDITS");
    let denied = scene.stage.ask(&ask).await.expect(200);
    assert_eq!(denied["reason_code"], "budget_frozen");
    scene.change(&id, "close", &json!({})).await.expect(200);
    assert_eq!(
        scene.stage.ask(&costing(9)).await.expect(200)["decision"],
        "allow"
    );
    assert_books_balance(&scene).await;
}

#[tokio::test]
async fn asks_that_waited_while_the_last_budget_was_closed_come_before_that() {
    let scene = Scene::set().await;
    let id = scene
        .budget(&json!({"scope": {}, "unit": "CREDITS", "allocated": 5}))
        .await;
    let stage = &scene.stage;
    let (ask, other, nothing) = (costing(9), reading(), json!({}));
    // The first commit is held, so the others gather behind it. Changes are taken before asks, and a close stands last
    // all the same.
    stage.faults.plan([Fault::Hold]);
    let rest = async {
        until(|| stage.faults.held() == 1).await;
        tokio::join!(stage.ask(&ask), scene.change(&id, "close", &nothing))
    };
    let letting_go = async {
        until(|| stage.gateway.sequencer.waiting() == 2).await;
        stage.faults.let_go();
    };
    let (first, (asked, closed), ()) = tokio::join!(stage.ask(&other), rest, letting_go);
    first.expect(200);
    closed.expect(200);
    let entries = stage.entries().await;
    let kinds: Vec<_> = entries.iter().map(|entry| &*entry.kind).collect();
    assert!(kinds.ends_with(&["decision", "budget_closed"]), "{kinds:?}");
    assert_eq!(asked.expect(200)["reason_code"], "budget_not_found");
    let behind = stage.ask(&ask).await.expect(200);
    assert_eq!(behind["reason_code"], "policy_permits");
    assert_books_balance(&scene).await;
}

#[tokio::test]
async fn a_remembered_budget_begins_anew_with_its_period() {
    let scene = Scene::set().await;
    let body = json!({"scope": {}, "unit": "TOKENS", "allocated": 100, "period": "day"});
    scene.budget(&body).await;
    get_used_to(&scene).await;
    scene.post("/v1/usage", &tokens(100)).await.expect(201);
    let refused = scene.post("/v1/reservations", &tokens(1)).await;
    refused.problem(409, "budget_exceeded");
    scene.stage.clock.advance_millis(24 * 3_600_000);
    assert_left(&scene, 100).await;
    assert_eq!(scene.entries("budget_rolled_over").await.len(), 1);
}

#[tokio::test]
async fn a_remembered_reservation_ends_in_time() {
    let scene = used_to(100).await;
    let short = json!({"unit": "TOKENS", "amount": 40, "ttl_ms": 1_000});
    let mut ids = Vec::new();
    for _ in 0..2 {
        let held = scene.post("/v1/reservations", &short).await.expect(201);
        ids.push(held["id"].as_str().unwrap().to_owned());
    }
    // One of them is held for longer, and the other one is nobody's any more.
    let longer = json!({"ttl_ms": 3_000});
    scene.settle(&ids[0], "extend", &longer).await.expect(200);
    scene.stage.clock.advance_millis(5_999);
    let refused = scene.post("/v1/reservations", &tokens(21)).await;
    refused.problem(409, "budget_exceeded");
    scene.stage.clock.advance_millis(1);
    scene.reserve(60).await;
    let late = json!({"actual": tokens(1)});
    scene
        .settle(&ids[1], "commit", &late)
        .await
        .problem(410, "reservation_expired");
    get_used_to_refusals(&scene).await;
    scene.stage.clock.advance_millis(2_000);
    assert_left(&scene, 40).await;
    assert_eq!(scene.entries("reservation_expired").await.len(), 2);
}

#[tokio::test]
async fn bodies_are_erased_and_budgets_stay_what_they_are() {
    let scene = used_to(100).await;
    let answer = scene.stage.ask(&costing(10)).await.expect(200);
    let what = json!({"seq": scene.stage.head().await.seq});
    let held = answer["reservation"]["id"].as_str().unwrap();
    let spent = json!({"actual": tokens(10)});
    scene.settle(held, "commit", &spent).await.expect(200);
    let erased = scene.stage.admin("POST", "/v1/ledger/erase", &what).await;
    assert_eq!(erased.expect(200)["erased"], 1);
    assert_eq!(scene.standing().await, [90, 0, 10, 0, 0]);
    let more = scene.post("/v1/reservations", &tokens(91)).await;
    more.problem(409, "budget_exceeded");
    scene.reserve(90).await;
    assert_eq!(scene.standing().await, [0, 90, 10, 0, 0]);
}

#[tokio::test]
async fn the_same_request_gets_its_answer_also_when_it_could_not_be_made_again() {
    let scene = used_to(100).await;
    let reserve = async |world: &World, key: &str, amount| {
        let call = world.call("POST", "/v1/reservations", &scene.stage.agent.token);
        call.header("idempotency-key", key)
            .json(&tokens(amount))
            .send()
            .await
    };
    let first = reserve(&scene.stage, "k", 100).await;
    let id = first.expect(201)["id"].as_str().unwrap().to_owned();
    let other = beside(&scene.stage).await;
    for world in [&*scene.stage, &other] {
        assert_eq!(reserve(world, "k", 100).await.bytes, first.bytes);
        reserve(world, "k", 99)
            .await
            .problem(422, "idempotency_key_reused");
        reserve(world, "new", 1).await.problem(409, "budget_exceeded");
    }
    scene.settle(&id, "release", &json!({})).await.expect(200);
    get_used_to(&scene).await;
    // Now there is enough for another one, and it is not made all the same.
    assert_eq!(reserve(&scene.stage, "k", 100).await.bytes, first.bytes);
    assert_eq!(reserve(&other, "k", 100).await.bytes, first.bytes);
    assert_left(&scene, 100).await;
}

#[tokio::test]
async fn a_remembered_run_keeps_its_parent_and_a_new_one_is_asked_about() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 1_000), (json!({"run": "parent"}), 20)])
        .await;
    get_used_to(&scene).await;
    let other = beside(&scene.stage).await;
    let reserve = async |world: &World, amount: i64, run: &str, parent: Option<&str>| {
        let mut body = tokens(amount);
        body["run_id"] = json!(run);
        if let Some(parent) = parent {
            body["parent_run_id"] = json!(parent);
        }
        world
            .post("/v1/reservations", &scene.stage.agent.token, &body)
            .await
    };
    // Known to be nobody's child, until the other gateway hears that it is one.
    reserve(&scene.stage, 1, "child", None).await.expect(201);
    reserve(&scene.stage, 1, "child", None).await.expect(201);
    reserve(&other, 10, "child", Some("parent")).await.expect(201);
    let refused = reserve(&scene.stage, 11, "child", None).await;
    refused.problem(409, "budget_exceeded");
    reserve(&scene.stage, 10, "grandchild", Some("child"))
        .await
        .expect(201);
    let refused = reserve(&scene.stage, 1, "grandchild", None).await;
    refused.problem(409, "budget_exceeded");
    reserve(&scene.stage, 1, "stranger", None).await.expect(201);
    assert_books_balance(&scene).await;
}

/// Numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

#[tokio::test]
async fn whatever_two_gateways_do_the_books_balance() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 400), (json!({"team": "crew"}), 250)])
        .await;
    scene
        .budget(&json!({"scope": {"tool": "github"}, "unit": "TOKENS", "allocated": 90, "period": "day"}))
        .await;
    let other = beside(&scene.stage).await;
    let token = &scene.stage.agent.token;
    let mut dice = Dice(7);
    let mut held: Vec<String> = Vec::new();
    for step in 0..300 {
        let world: &World = if dice.below(10) < 7 { &scene.stage } else { &other };
        if dice.below(20) == 0 {
            let faults = [
                Fault::Lose,
                Fault::LoseUnknown,
                Fault::KeepButReportUnknown,
                Fault::HeadMoved,
            ];
            scene
                .stage
                .faults
                .plan([faults[usize::try_from(dice.below(4)).unwrap()]]);
        }
        if dice.below(50) == 0 {
            scene.stage.clock.advance_millis(40_000_000);
        }
        let amount = i64::try_from(dice.below(9)).unwrap() + 1;
        let (path, body) = match (dice.below(6), held.len()) {
            (0, _) | (_, 0) => {
                let ttl_ms = 1_000 + 20_000 * dice.below(3);
                (
                    "/v1/reservations".to_owned(),
                    json!({"unit": "TOKENS", "amount": amount, "ttl_ms": ttl_ms}),
                )
            }
            (1, _) => ("/v1/usage".to_owned(), tokens(amount)),
            (2, _) => ("/v1/authorize".to_owned(), costing(amount)),
            (way, count) => {
                let at = usize::try_from(dice.below(count as u64)).unwrap();
                let (verb, body) = match way {
                    3 => ("extend", json!({"ttl_ms": 30_000})),
                    4 => ("release", json!({})),
                    _ => ("commit", json!({"actual": tokens(amount)})),
                };
                (format!("/v1/reservations/{}/{verb}", held[at]), body)
            }
        };
        let call = world.call("POST", &path, token).json(&body);
        let reply = match dice.below(3) {
            0 if path != "/v1/authorize" => call.header("idempotency-key", format!("k-{step}")).send().await,
            _ => call.send().await,
        };
        assert!(
            reply.status.as_u16() < 500 || reply.status == 503,
            "{path}: {}",
            reply.text()
        );
        if let (201, "/v1/reservations") = (reply.status.as_u16(), &*path) {
            held.push(reply.json()["id"].as_str().unwrap().to_owned());
        }
        scene.stage.clock.advance_millis(100);
    }
    // What has failed has not left a fault behind for the calls that follow.
    for _ in 0..USED_TO {
        scene.stage.ask(&reading()).await;
    }
    assert_books_balance(&scene).await;
    for (scope, [_, reserved, ..]) in scene.balances().await {
        assert!(reserved >= 0, "{scope}");
    }
    scene.stage.clock.advance_millis(100_000);
    let open = open_reservations(&scene).await;
    assert_eq!(open, Vec::<Value>::new(), "all of them have ended by now");
}

async fn open_reservations(scene: &Scene) -> Vec<Value> {
    let page = scene
        .stage
        .get("/v1/reservations?limit=200", &scene.auditor)
        .await
        .expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items.filter(|held| held["status"] == "active").cloned().collect()
}
