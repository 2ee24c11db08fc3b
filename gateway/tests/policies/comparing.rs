//! `diff`: what a candidate allows that the set in force does not. It takes the solver: `apt-get install cvc5`.

use crate::stage::{Stage, changing};
use crate::{Desk, NO_ISSUES, NO_SECRETS, diagnostics, key, text};
use gateway::gateway::Options;
use policy::BasePolicies;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

fn candidate(cedar: &str) -> Value {
    json!({"candidate": {"policies": [{"name": "issues", "cedar": cedar}]}})
}

impl Desk {
    async fn diff(&self, cedar: &str) -> Value {
        self.edit("POST", "/diff", &candidate(cedar)).await.expect(200)
    }
}

/// The answer in both directions.
fn answers(report: &Value) -> [&Value; 2] {
    [&report["allows_more"]["answer"], &report["allows_less"]["answer"]]
}

#[tokio::test]
async fn what_a_candidate_allows_more_is_shown_by_an_ask_that_is_answered_so() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let report = desk.diff(NO_SECRETS).await;
    assert_eq!(answers(&report), ["yes", "no"]);
    assert_eq!(
        (&report["proof"]["available"], &report["proof"]["complete"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(
        report["policies"]["changed"],
        json!([{"id": "issues/none", "mode": "enforced"}])
    );
    let example = &report["allows_more"]["examples"][0];
    assert_eq!(example["before"]["matched_policies"], json!(["issues/none"]));
    assert_eq!(example["actions"]["some"][0]["action"], "create_issue");
    // The same ask is tried as an agent would put it.
    let (shown, mut ask) = (&example["ask"], json!({"agent": {"id": desk.agent.id}}));
    ask["tool_call"] = shown["tool_call"].clone();
    ask["tool_call"]["parameters"] = json!({});
    ask["context"] = json!({
        "source_trust": shown["context"]["trust"]["claimed"],
        "contains_sensitive_data": shown["context"]["contains_sensitive_data"],
    });
    for (candidate, decision) in [
        (Value::Null, &example["before"]["decision"]),
        (
            candidate(NO_SECRETS)["candidate"].clone(),
            &example["after"]["decision"],
        ),
    ] {
        let body = json!({"candidate": candidate, "asks": [ask]});
        let tried = desk.edit("POST", "/try", &body).await.expect(200);
        assert_eq!(tried["results"][0]["decision"], *decision, "{ask}");
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

#[tokio::test]
async fn the_set_in_force_is_no_different_from_itself() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let report = desk.diff(NO_ISSUES).await;
    assert_eq!(report["in_force_digest"], report["candidate_digest"]);
    let nothing = json!({"answer": "no", "examples": [], "truncated": false, "unknown": []});
    assert_eq!(
        [&report["allows_more"], &report["allows_less"]],
        [&nothing, &nothing]
    );
    assert_eq!(
        (&report["findings"], &report["proof"]["actions"]),
        (&json!([]), &json!(0))
    );
}

#[tokio::test]
async fn a_reload_that_comes_between_is_no_difference() {
    let none = BasePolicies::parse("").unwrap();
    let stage = Stage::set_under(none, Options::default()).await;
    let editor = key(&stage, &stage.tenant.to_string(), "policy_editor").await;
    let desk = Desk { stage, editor };
    desk.put("issues", NO_ISSUES).await.expect(201);
    let place = desk.gateway.drafts.acquire(desk.tenant).await.unwrap();
    let mut working = pin!(desk.diff(NO_ISSUES));
    let early = tokio::time::timeout(Duration::from_millis(300), working.as_mut()).await;
    assert!(early.is_err(), "it does not wait for its turn");
    let before = desk.gateway.snapshot.load().base_digest();
    desk.post("/v1/policies/reload", &desk.operator, &json!({}))
        .await
        .expect(200);
    assert_ne!(desk.gateway.snapshot.load().base_digest(), before);
    drop(place);
    let report = working.await;
    assert_eq!(report["in_force_digest"], report["candidate_digest"]);
    assert_eq!(answers(&report), ["no", "no"]);
}

#[tokio::test]
async fn what_takes_long_is_not_told_to_a_key_that_was_deleted_meanwhile() {
    let desk = Desk::open().await;
    let mut ask = changing();
    ask["agent"] = json!({"id": desk.agent.id});
    for (role, path, body) in [
        ("policy_editor", "/v1/policies/diff", candidate(NO_ISSUES)),
        ("policy_editor", "/v1/policies/validate", json!({"policies": []})),
        ("policy_editor", "/v1/policies/try", json!({"asks": [ask]})),
        ("auditor", "/v1/ledger/verify", json!({})),
    ] {
        let key = json!({"name": role, "role": role, "tenant": desk.tenant});
        let key = desk.post("/v1/keys", &desk.operator, &key).await.expect(201);
        let (id, secret) = (text(&key["id"]), text(&key["key"]));
        let drafts = desk.gateway.drafts.acquire(desk.tenant).await.unwrap();
        let ledger_chunks = desk.gateway.ledger_chunks.acquire_for_part(desk.tenant).await;
        let mut working = pin!(desk.post(path, &secret, &body));
        let early = tokio::time::timeout(Duration::from_millis(300), working.as_mut()).await;
        assert!(early.is_err(), "{path} does not wait for its turn");
        desk.call("DELETE", &format!("/v1/keys/{id}"), &desk.operator)
            .tenant(desk.tenant)
            .send()
            .await
            .expect(204);
        drop((drafts, ledger_chunks));
        working.await.problem(401, "invalid_token");
    }
}

#[tokio::test]
async fn without_a_solver_the_answer_says_so_and_replay_works() {
    let options = Options {
        cvc5: PathBuf::from("there-is-no-such-solver"),
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let editor = key(&stage, &stage.tenant.to_string(), "policy_editor").await;
    let desk = Desk { stage, editor };
    desk.put("issues", NO_ISSUES).await.expect(201);
    let report = desk.diff(NO_SECRETS).await;
    assert_eq!(answers(&report), ["unknown", "unknown"]);
    assert_eq!(report["proof"]["available"], false);
    let why = report["proof"]["why"].as_str().unwrap();
    assert!(why.contains("install it") && why.contains("--cvc5"), "{why}");
    assert_eq!(report["policies"]["changed"][0]["id"], "issues/none");
    let body = candidate(NO_SECRETS);
    desk.edit("POST", "/replay", &body).await.expect(200);
}

#[tokio::test]
async fn one_comparison_runs_at_once_and_invalid_candidates_are_refused() {
    let desk = Desk::open().await;
    let own = desk.gateway.comparisons_of.begin(desk.tenant).unwrap();
    let refused = desk.edit("POST", "/diff", &candidate(NO_ISSUES)).await;
    refused.problem(429, "diff_running");
    assert_eq!(
        refused.json()["detail"],
        "this tenant compares policies already; try again when that is done"
    );
    assert_eq!(refused.headers["retry-after"], "5");
    // The turn is for comparing alone: candidates are compiled before they have it.
    let reply = desk.edit("POST", "/diff", &candidate("nonsense")).await;
    assert_eq!(diagnostics(&reply)[0]["policy"], "issues");
    drop(own);
    desk.edit("POST", "/diff", &json!({}))
        .await
        .problem(400, "invalid_field");
    assert_eq!(answers(&desk.diff("").await), ["no", "no"]);
}

#[tokio::test]
async fn who_waits_for_the_comparison_of_another_tenant_is_next() {
    let desk = Desk::open().await;
    let body = candidate("");
    let turn = desk.gateway.prover.turn().unwrap();
    let mut comparing = pin!(desk.edit("POST", "/diff", &body));
    let early = tokio::time::timeout(Duration::from_millis(300), comparing.as_mut()).await;
    assert!(early.is_err(), "it has no turn");
    drop(turn);
    comparing.await.expect(200);
}
