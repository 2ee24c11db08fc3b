//! Stopping one run: what belongs to it is denied, and everything else goes on.

use crate::stage::{Stage, named, reading};
use crate::support::Reply;
use serde_json::{Value, json};

fn within(run: Option<&str>, parent: Option<&str>) -> Value {
    let mut ask = reading();
    ask["trace"] = json!({"run_id": run, "parent_run_id": parent});
    ask
}

async fn stop(stage: &Stage, run: &str, verb: &str) -> Reply {
    let path = format!("/v1/runs/{run}/{verb}");
    stage.admin("POST", &path, &json!({"reason": "it loops"})).await
}

async fn reason(stage: &Stage, run: Option<&str>, parent: Option<&str>) -> Value {
    stage.ask(&within(run, parent)).await.expect(200)["reason_code"].clone()
}

#[tokio::test]
async fn a_frozen_run_is_denied_and_so_are_those_that_it_starts() {
    let stage = Stage::set().await;
    let frozen = stop(&stage, "run-1", "freeze").await.expect(200);
    assert_eq!(
        frozen,
        json!({"run_id": "run-1", "status": "frozen", "reason": "it loops", "since": "2026-01-31T09:30:00.000Z"})
    );
    for (run, parent, expected) in [
        (Some("run-1"), None, "run_frozen"),
        (Some("run-2"), Some("run-1"), "run_frozen"),
        (Some("run-2"), None, "policy_permits"),
        (Some("run-10"), Some("RUN-1"), "policy_permits"),
        (None, None, "policy_permits"),
    ] {
        assert_eq!(reason(&stage, run, parent).await, expected, "{run:?} {parent:?}");
    }
    let denied = stage.ask(&within(Some("run-1"), None)).await.expect(200);
    assert_eq!(denied["reason"], "the run `run-1` is frozen: it loops");
    stop(&stage, "run-1", "unfreeze").await.expect(200);
    assert_eq!(reason(&stage, Some("run-1"), None).await, "policy_permits");
    let told = stage.entries().await;
    for kind in ["run_frozen", "run_unfrozen"] {
        assert_eq!(
            told.iter().filter(|entry| entry.kind == kind).count(),
            1,
            "{kind}"
        );
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_frozen_run_does_not_get_yesterdays_allow() {
    let stage = Stage::set().await;
    let ask = named(within(Some("run-1"), None), "call-1");
    assert_eq!(stage.ask(&ask).await.expect(200)["decision"], "allow");
    stop(&stage, "run-1", "freeze").await.expect(200);
    assert_eq!(stage.ask(&ask).await.expect(200)["reason_code"], "run_frozen");
    let mut dry = within(Some("run-1"), None);
    dry["mode"] = json!("dry_run");
    assert_eq!(stage.ask(&dry).await.expect(200)["reason_code"], "run_frozen");
}

#[tokio::test]
async fn a_run_stays_stopped_through_a_restart_and_a_revoked_one_for_good() {
    let stage = Stage::set().await;
    stop(&stage, "run-1", "freeze").await.expect(200);
    stop(&stage, "run/2%20x".replace('/', "%2F").as_str(), "revoke")
        .await
        .expect(200);
    let stage = stage.restart().await;
    assert_eq!(reason(&stage, Some("run-1"), None).await, "run_frozen");
    assert_eq!(reason(&stage, Some("run/2 x"), None).await, "run_frozen");
    stop(&stage, "run%2F2%20x", "unfreeze")
        .await
        .problem(409, "revoked_for_good");
    let call = stage.call("GET", "/v1/runs", &stage.operator);
    let list = call.tenant(stage.tenant).send().await.expect(200);
    let stopped: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|run| &run["run_id"])
        .collect();
    assert_eq!(stopped, ["run-1", "run/2 x"]);
}

#[tokio::test]
async fn runs_are_stopped_by_admins_and_with_a_reason() {
    let stage = Stage::set().await;
    let path = "/v1/runs/run-1/freeze";
    let body = json!({"reason": "it loops"});
    stage
        .post(path, &stage.agent.token, &body)
        .await
        .problem(403, "forbidden");
    stage
        .admin("POST", path, &json!({"reason": ""}))
        .await
        .problem(400, "invalid_field");
    stage
        .admin("POST", "/v1/runs/%00/freeze", &body)
        .await
        .problem(400, "invalid_parameter");
}
