//! Answers that are given again to whoever repeats a request, and how long.

use crate::support::Reply;
use crate::{Scene, tokens};
use gateway::gateway::{FixedBounds, Options};
use serde_json::{Value, json};
use std::time::Duration;
use store::faults::Fault;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn an_answer_is_given_again_for_days_and_then_forgotten() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let usage = async |key: &str| {
        let call = scene.stage.call("POST", "/v1/usage", &scene.stage.agent.token);
        call.header("idempotency-key", key).json(&tokens(1)).send().await
    };
    let gateway = &scene.stage.gateway;
    let forget = async || gateway.forget_replies(gateway.clock.now()).await.unwrap();
    let first = usage("early").await;
    scene.stage.clock.advance_millis(2 * HOUR_MS);
    let second = usage("later").await;
    scene.stage.clock.advance_millis(70 * HOUR_MS);
    forget().await;
    assert_eq!(usage("early").await.bytes, first.bytes);
    assert_eq!(usage("later").await.bytes, second.bytes);
    assert_eq!(scene.standing().await, [98, 0, 2, 0, 0]);
    scene.stage.clock.advance_millis(HOUR_MS);
    forget().await;
    // The one that was forgotten is a new request, and that one is known again.
    let again = usage("early").await;
    assert_ne!(again.bytes, first.bytes);
    assert_eq!(usage("early").await.bytes, again.bytes);
    assert_eq!(usage("later").await.bytes, second.bytes);
    assert_eq!(scene.standing().await, [97, 0, 3, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_clock_that_has_just_jumped_ahead_has_no_answer_forgotten() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let usage = async || {
        let call = scene.stage.call("POST", "/v1/usage", &scene.stage.agent.token);
        let call = call.header("idempotency-key", "early");
        call.json(&tokens(1)).send().await
    };
    let first = usage().await;
    scene.stage.clock.advance_millis(100 * HOUR_MS);
    // The job makes a round each second.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    assert_eq!(usage().await.bytes, first.bytes);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_budget_that_was_made_is_answered_again_whatever_has_become_of_what_it_is_for() {
    let options = Options {
        bounds: FixedBounds {
            budgets_max: 1,
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    let scene = Scene::set_with(options).await;
    let team = json!({});
    scene
        .stage
        .admin("PUT", "/v1/teams/night", &team)
        .await
        .expect(201);
    let make = async |key: &'static str, allocated: i64| {
        let body = json!({"scope": {"team": "night"}, "unit": "TOKENS", "allocated": allocated});
        let call = scene.stage.call("POST", "/v1/budgets", &scene.stage.operator);
        let call = call.tenant(scene.stage.tenant).header("idempotency-key", key);
        call.json(&body).send().await
    };
    let first = make("first", 100).await;
    first.expect(201);
    // There is no room for another one.
    assert_eq!(make("first", 100).await.bytes, first.bytes);
    make("other", 100).await.problem(409, "conflict");
    let path = format!("/v1/budgets/{}/close", first.json()["id"].as_str().unwrap());
    scene.stage.admin("POST", &path, &json!({})).await.expect(200);
    let call = scene
        .stage
        .call("DELETE", "/v1/teams/night", &scene.stage.operator);
    call.tenant(scene.stage.tenant).send().await.expect(204);
    assert_eq!(make("first", 100).await.bytes, first.bytes);
    make("other", 100).await.problem(400, "invalid_field");
    make("first", 101).await.problem(400, "invalid_field");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn what_was_settled_is_not_settled_again_when_its_answer_is_forgotten() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let id = scene.reserve(10).await;
    let path = format!("/v1/reservations/{id}/commit");
    let commit = async || {
        let call = scene.stage.call("POST", &path, &scene.stage.agent.token);
        let call = call.header("idempotency-key", "commit");
        call.json(&json!({"actual": tokens(4)})).send().await
    };
    commit().await.expect(200);
    scene.stage.clock.advance_millis(100 * HOUR_MS);
    let gateway = &scene.stage.gateway;
    gateway.forget_replies(gateway.clock.now()).await.unwrap();
    // The same amount again is no news, with a key or without.
    commit().await.expect(200);
    assert_eq!(scene.standing().await, [96, 0, 4, 0, 0]);
}

/// A change of a budget under a key.
async fn keyed(scene: &Scene, path: &str, key: &str, body: &Value) -> Reply {
    let call = scene.stage.call("POST", path, &scene.stage.operator);
    let call = call.tenant(scene.stage.tenant).header("idempotency-key", key);
    call.json(body).send().await
}

async fn status(scene: &Scene, id: &str) -> Value {
    let path = format!("/v1/budgets/{id}");
    scene.stage.get(&path, &scene.auditor).await.expect(200)["status"].clone()
}

#[tokio::test]
async fn a_request_that_changed_nothing_is_known_again_and_changes_nothing_later() {
    let mut scene = Scene::set().await;
    let terms = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    let id = scene.budget(&terms).await;
    let nothing = json!({});
    let [unfreeze, fund] = ["unfreeze", "fund"].map(|verb| format!("/v1/budgets/{id}/{verb}"));
    let head = scene.stage.head().await;
    let first = keyed(&scene, &unfreeze, "k1", &nothing).await;
    assert_eq!(first.expect(200)["status"], "active");
    assert_eq!(scene.stage.head().await, head, "nothing has happened");
    scene.change(&id, "freeze", &nothing).await.expect(200);
    for remembered in [true, false] {
        if !remembered {
            scene = Scene {
                stage: scene.stage.restart().await,
                ..scene
            };
        }
        let again = keyed(&scene, &unfreeze, "k1", &nothing).await;
        assert_eq!(again.bytes, first.bytes, "remembered: {remembered}");
        assert_eq!(status(&scene, &id).await, "frozen", "remembered: {remembered}");
        let other = keyed(&scene, &fund, "k1", &json!({"amount": 1})).await;
        other.problem(422, "idempotency_key_reused");
    }
    let new = keyed(&scene, &unfreeze, "k2", &nothing).await;
    assert_eq!(new.expect(200)["status"], "active");
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn a_request_that_changed_nothing_is_answered_when_it_is_kept_and_not_before() {
    let scene = Scene::set().await;
    let terms = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    let id = scene.budget(&terms).await;
    let nothing = json!({});
    let unfreeze = format!("/v1/budgets/{id}/unfreeze");
    for (fault, kept) in [
        (Fault::Lose, "active"),
        (Fault::LoseUnknown, "active"),
        (Fault::KeepButReportUnknown, "frozen"),
    ] {
        let key = format!("call-{fault:?}");
        scene.stage.faults.plan([fault]);
        let first = keyed(&scene, &unfreeze, &key, &nothing).await;
        first.problem(503, "ledger_unavailable");
        scene.change(&id, "freeze", &nothing).await.expect(200);
        keyed(&scene, &unfreeze, &key, &nothing).await.expect(200);
        assert_eq!(status(&scene, &id).await, kept, "{fault:?}");
    }
    scene.stage.assert_sound().await;
}
