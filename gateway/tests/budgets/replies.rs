//! Answers that are given again to whoever repeats a request, and how long.

use crate::{Scene, tokens};
use serde_json::json;

const HOUR_MS: i64 = 3_600_000;

#[tokio::test]
async fn an_answer_is_given_again_for_days_and_then_forgotten() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let usage = async |key: &str| {
        let call = scene.stage.call("POST", "/v1/usage", &scene.stage.agent.token);
        call.header("idempotency-key", key).json(&tokens(1)).send().await
    };
    let forget = async || scene.stage.gateway.forget_replies().await.unwrap();
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
    scene.stage.gateway.forget_replies().await.unwrap();
    // The same amount again is no news, with a key or without.
    commit().await.expect(200);
    assert_eq!(scene.standing().await, [96, 0, 4, 0, 0]);
}
