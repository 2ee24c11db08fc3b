//! What became of a decision: told once, by the agent that asked.

use crate::stage::{Stage, changing, injected, named, reading};
use crate::support::until;
use serde_json::{Value, json};
use store::faults::Fault;

/// A decision, and the path of its outcome.
async fn decided(stage: &Stage, ask: &Value) -> (Value, String) {
    let answer = stage.ask(ask).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    (answer, path)
}

#[tokio::test]
async fn an_outcome_is_reported_once_and_a_mismatch_is_flagged() {
    let stage = Stage::set().await;
    let token = &stage.agent.token;
    let (answer, path) = decided(&stage, &changing()).await;
    let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": {"unit": "TOKENS", "amount": 7}});
    let reported = stage.post(&path, token, &report).await.expect(201);
    assert_eq!(
        (&reported["mismatch"], &reported["seq"]),
        (&json!(false), &json!(8))
    );
    stage
        .post(&path, token, &report)
        .await
        .problem(409, "outcome_reported");

    let (answer, path) = decided(&stage, &injected()).await;
    let reported = stage
        .post(
            &path,
            token,
            &json!({"status": "succeeded", "executed_hash": answer["action_hash"]}),
        )
        .await;
    assert_eq!(
        reported.expect(201)["mismatch"],
        true,
        "it was denied and carried out"
    );

    let (_, path) = decided(&stage, &changing()).await;
    let other = canon::Digest::of(b"something else").to_string();
    let reported = stage
        .post(&path, token, &json!({"status": "failed", "executed_hash": other}))
        .await;
    assert_eq!(
        reported.expect(201)["mismatch"],
        true,
        "something else was carried out"
    );

    let (_, path) = decided(&stage, &injected()).await;
    assert_eq!(
        stage
            .post(&path, token, &json!({"status": "not_executed"}))
            .await
            .expect(201)["mismatch"],
        false
    );
    assert_eq!(stage.count("outcome_reported").await, 4);
    assert!(
        stage
            .get("/metrics", "")
            .await
            .text()
            .contains("countersign_outcome_mismatches_total 2")
    );
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_mismatch_is_counted_when_it_is_recorded_and_not_before_or_again() {
    let stage = Stage::set().await;
    let token = &stage.agent.token;
    let (answer, path) = decided(&stage, &injected()).await;
    let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
    stage.faults.plan([Fault::Lose]);
    stage
        .post(&path, token, &report)
        .await
        .problem(503, "ledger_unavailable");
    assert_eq!(mismatches(&stage).await, "0");
    stage.post(&path, token, &report).await.expect(201);
    for _ in 0..2 {
        stage
            .post(&path, token, &report)
            .await
            .problem(409, "outcome_reported");
    }
    assert_eq!(mismatches(&stage).await, "1");
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_mismatch_is_counted_also_where_its_caller_has_hung_up() {
    let stage = Stage::set().await;
    let token = &stage.agent.token;
    let (answer, path) = decided(&stage, &injected()).await;
    let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
    stage.faults.plan([Fault::Hold]);
    tokio::select! {
        _ = stage.post(&path, token, &report) => panic!("it was answered before it hung up"),
        () = until(|| stage.faults.held() == 1) => {}
    }
    stage.faults.let_go();
    stage
        .post(&path, token, &report)
        .await
        .problem(409, "outcome_reported");
    assert_eq!(mismatches(&stage).await, "1");
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_decision_is_counted_also_where_its_caller_has_hung_up() {
    let stage = Stage::set().await;
    let cedar = r#"@id("none") forbid (principal, action == Action::"github/create_issue", resource);"#;
    let shadow = json!({"cedar": cedar, "mode": "shadow"});
    let put = stage.admin("PUT", "/v1/policies/issues", &shadow).await;
    assert!(put.status.is_success(), "{}", put.text());
    let two = json!({"asks": [named(changing(), "call-2"), named(reading(), "call-3")]});
    for (path, body, decisions) in [
        ("/v1/authorize", named(changing(), "call-1"), 1),
        ("/v1/authorize/batch", two, 3),
    ] {
        let token = &stage.agent.token;
        stage.faults.plan([Fault::Hold]);
        tokio::select! {
            _ = stage.post(path, token, &body) => panic!("it was answered before it hung up"),
            () = until(|| stage.faults.held() == 1) => {}
        }
        stage.faults.let_go();
        // It is answered with what was recorded, which is not counted again.
        stage.post(path, token, &body).await.expect(200);
        assert_eq!(counted(&stage, "countersign_decisions_total").await, decisions);
    }
    let differences = counted(&stage, "countersign_shadow_differences_total").await;
    assert_eq!(differences, 2);
    stage.assert_sound().await;
}

/// What was counted under this name, whatever its labels.
async fn counted(stage: &Stage, name: &str) -> u64 {
    let metrics = stage.get("/metrics", "").await.text();
    let labelled = format!("{name}{{");
    let counts = metrics.lines().filter(|line| line.starts_with(&labelled));
    counts
        .map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap())
        .sum()
}

/// How many outcomes were counted that differ from what was decided.
async fn mismatches(stage: &Stage) -> String {
    let metrics = stage.get("/metrics", "").await.text();
    let count = metrics
        .lines()
        .find_map(|line| line.strip_prefix("countersign_outcome_mismatches_total "));
    count.unwrap().to_owned()
}

#[tokio::test]
async fn an_outcome_of_somebody_elses_decision_is_not_found() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "reviewer", "tools": "all"})).await;
    let (answer, path) = decided(&stage, &changing()).await;
    let report = json!({"status": "succeeded", "executed_hash": answer["action_hash"]});
    let head = stage.head().await;
    stage
        .post(&path, &other.token, &report)
        .await
        .problem(404, "not_found");
    for id in ["dec_00000000000000000000000000", "nonsense", "%22%27"] {
        stage
            .post(
                &format!("/v1/decisions/{id}/outcome"),
                &stage.agent.token,
                &report,
            )
            .await
            .problem(404, "not_found");
    }
    for (bad, code) in [
        (json!({"status": "done"}), "invalid_field"),
        (json!({"status": "succeeded"}), "invalid_field"),
        (
            json!({"status": "succeeded", "executed_hash": "sha256:12"}),
            "invalid_field",
        ),
        (json!({"status": "not_executed", "hash": "x"}), "unknown_field"),
    ] {
        stage
            .post(&path, &stage.agent.token, &bad)
            .await
            .problem(400, code);
    }
    assert_eq!(stage.head().await, head);
}
