//! What a run has seen, and what a tenant makes of it.

use crate::stage::{Stage, changing, reading};
use futures_util::future::join_all;
use serde_json::{Value, json};

async fn stage(rule: &str) -> Stage {
    let stage = Stage::set().await;
    stage.settle(json!({"run_taint": rule})).await;
    stage
}

/// The ask in a run, which may have been started by another one.
fn within(mut ask: Value, run: &str, parent: Option<&str>) -> Value {
    ask["trace"] = json!({"run_id": run, "parent_run_id": parent});
    ask
}

/// Whether the run may change something, and why.
async fn change(stage: &Stage, run: &str, parent: Option<&str>) -> Value {
    let answer = stage.ask(&within(changing(), run, parent)).await.expect(200);
    answer["reason_code"].clone()
}

/// The run reads something that is not trusted, which it may.
async fn read(stage: &Stage, run: &str, parent: Option<&str>) {
    let answer = stage.ask(&within(reading(), run, parent)).await.expect(200);
    assert_eq!(answer["decision"], "allow", "{answer}");
}

#[tokio::test]
async fn a_run_that_has_read_what_is_not_trusted_changes_nothing_any_more() {
    let stage = stage("deny").await;
    assert_eq!(change(&stage, "run-1", None).await, "policy_permits");
    read(&stage, "run-1", None).await;
    assert_eq!(change(&stage, "run-1", None).await, "run_tainted");
    assert_eq!(change(&stage, "run-2", None).await, "policy_permits");
    let recorded = stage.decisions().await;
    let worst: Vec<_> = recorded.iter().map(|body| body["run_worst"].as_str()).collect();
    assert_eq!(
        worst,
        [
            Some("trusted_internal_unsigned"),
            Some("untrusted_external"),
            Some("untrusted_external"),
            Some("trusted_internal_unsigned")
        ]
    );
    let stage = stage.restart().await;
    assert_eq!(change(&stage, "run-1", None).await, "run_tainted");
    assert_eq!(
        stage.ask(&changing()).await.expect(200)["reason_code"],
        "policy_permits"
    );
    stage.assert_sound().await;
}

#[tokio::test]
async fn what_a_run_has_seen_counts_whatever_was_answered() {
    let stage = stage("deny").await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    stage.set_standing(&other, "freeze").await.expect(200);
    let mut unregistered = reading();
    unregistered["tool_call"]["action"] = json!("no_such_action");
    let mut in_the_name_of_nobody = reading();
    in_the_name_of_nobody["act"] = json!({"sub": "nobody"});
    for (run, asker, ask, code) in [
        ("run-1", &stage.agent, unregistered, "unknown_tool"),
        ("run-2", &stage.agent, in_the_name_of_nobody, "unknown_principal"),
        ("run-3", &other, reading(), "agent_frozen"),
    ] {
        let ask = within(ask, run, None);
        let answer = stage.post("/v1/authorize", &asker.token, &ask).await.expect(200);
        assert_eq!(answer["reason_code"], code);
        assert_eq!(change(&stage, run, None).await, "run_tainted", "{code}");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_run_that_names_its_parent_late_shows_it_what_it_has_seen() {
    let stage = stage("deny").await;
    assert_eq!(change(&stage, "parent", None).await, "policy_permits");
    assert_eq!(change(&stage, "child", None).await, "policy_permits");
    read(&stage, "child", Some("parent")).await;
    read(&stage, "child", Some("stranger")).await;
    for run in ["child", "parent", "stranger"] {
        assert_eq!(change(&stage, run, None).await, "run_tainted", "{run}");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn runs_that_start_each_other_share_what_they_have_seen() {
    let stage = stage("deny").await;
    assert_eq!(change(&stage, "parent", None).await, "policy_permits");
    assert_eq!(change(&stage, "child", Some("parent")).await, "policy_permits");
    read(&stage, "grandchild", Some("child")).await;
    for (run, parent) in [
        ("parent", None),
        ("child", Some("parent")),
        ("child", None),
        ("new", Some("child")),
    ] {
        assert_eq!(
            change(&stage, run, parent).await,
            "run_tainted",
            "{run} {parent:?}"
        );
    }
    // A call that names only who started it is of the family, too.
    let started_by = |mut ask: Value, parent: &str| {
        ask["trace"] = json!({"parent_run_id": parent});
        ask
    };
    let answer = stage.ask(&started_by(changing(), "child")).await.expect(200);
    assert_eq!(answer["reason_code"], "run_tainted");
    assert_eq!(change(&stage, "apart", None).await, "policy_permits");
    let answer = stage.ask(&started_by(reading(), "apart")).await.expect(200);
    assert_eq!(answer["decision"], "allow");
    assert_eq!(change(&stage, "apart", None).await, "run_tainted");
}

#[tokio::test]
async fn a_run_that_has_read_what_is_not_trusted_would_be_kept_from_changes_on_trial_too() {
    let stage = stage("deny").await;
    let path = "/v1/policies/issues";
    let cedar = r#"@id("people") @decision("require_approval")
        permit (principal, action == Action::"github/create_issue", resource);"#;
    let enforced = json!({"cedar": cedar});
    stage.admin("PUT", path, &enforced).await.expect(201);
    let on_trial = json!({"cedar": "", "mode": "shadow"});
    stage.admin("PUT", path, &on_trial).await.expect(200);
    let shadow = async || stage.decisions().await.pop().unwrap()["shadow"]["reason_code"].clone();
    assert_eq!(change(&stage, "run-1", None).await, "policy_requires_approval");
    assert_eq!(shadow().await, "policy_permits");
    read(&stage, "run-1", None).await;
    assert_eq!(change(&stage, "run-1", None).await, "run_tainted");
    assert_eq!(shadow().await, Value::Null);
    stage.settle(json!({"run_taint": "approve"})).await;
    assert_eq!(change(&stage, "run-1", None).await, "policy_requires_approval");
    assert_eq!(shadow().await, "run_taint_needs_approval");
}

#[tokio::test]
async fn a_tenant_can_have_people_approve_instead() {
    let stage = stage("approve").await;
    read(&stage, "run-1", None).await;
    let answer = stage.ask(&within(changing(), "run-1", None)).await.expect(200);
    assert_eq!(
        (&answer["decision"], &answer["reason_code"]),
        (&json!("require_approval"), &json!("run_taint_needs_approval"))
    );
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = stage.admin("POST", "/v1/keys", &key).await.expect(201);
    let id = answer["approval"]["id"].as_str().unwrap();
    let path = format!("/v1/approvals/{id}/approve");
    let reason = json!({"reason": "looked at it"});
    stage
        .post(&path, ann["key"].as_str().unwrap(), &reason)
        .await
        .expect(200);
    let mut retry = within(changing(), "run-1", None);
    retry["approval_id"] = json!(id);
    assert_eq!(
        stage.ask(&retry).await.expect(200)["reason_code"],
        "approval_granted"
    );
}

#[tokio::test]
async fn a_runtime_says_what_a_run_has_read() {
    let stage = stage("deny").await;
    let path = "/v1/runs/run-1/observations";
    let body = json!({"source_trust": "malicious_suspected", "note": "an e-mail with instructions"});
    let observed = stage.post(path, &stage.agent.token, &body).await.expect(201);
    assert_eq!(
        (&observed["run_id"], &observed["worst"]),
        (&json!("run-1"), &json!("malicious_suspected"))
    );
    assert_eq!(change(&stage, "run-1", None).await, "run_tainted");
    let better = json!({"source_trust": "trusted_internal_signed"});
    let observed = stage.post(path, &stage.agent.token, &better).await.expect(201);
    assert_eq!(observed["worst"], "malicious_suspected");
    assert_eq!(stage.count("run_observed").await, 2);
    stage
        .post(path, &stage.operator, &body)
        .await
        .problem(403, "forbidden");
    for (odd, code) in [
        (json!({"source_trust": "fine"}), "invalid_field"),
        (json!({"note": "x"}), "invalid_field"),
        (json!({"source_trust": "unknown", "why": 1}), "unknown_field"),
        (
            json!({"source_trust": "unknown", "note": "x".repeat(1_025)}),
            "invalid_field",
        ),
    ] {
        stage
            .post(path, &stage.agent.token, &odd)
            .await
            .problem(400, code);
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn whoever_is_frozen_still_tells_what_its_run_has_read() {
    let stage = stage("deny").await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    assert_eq!(change(&stage, "planner", None).await, "policy_permits");
    stage.set_standing(&other, "freeze").await.expect(200);
    let body = json!({"source_trust": "malicious_suspected", "parent_run_id": "planner"});
    let path = "/v1/runs/reader/observations";
    stage.post(path, &other.token, &body).await.expect(201);
    assert_eq!(change(&stage, "planner", None).await, "run_tainted");
    // No oftener than it may ask; nor may one that was not frozen be kept from it.
    let quota = json!({"bucket": {"capacity": 1, "refill_per_second": 0.0}});
    let quotas = format!("/v1/agents/{}/quota", other.id);
    stage.admin("PUT", &quotas, &quota).await.expect(200);
    stage.post(path, &other.token, &body).await.expect(201);
    stage
        .post(path, &other.token, &body)
        .await
        .problem(429, "rate_limited");
    stage.set_standing(&other, "unfreeze").await.expect(200);
    stage.post(path, &other.token, &body).await.expect(201);
    stage.assert_sound().await;
}

#[tokio::test]
async fn policies_see_what_a_run_has_read_whatever_the_tenants_rule() {
    let stage = Stage::set().await;
    read(&stage, "run-1", None).await;
    assert_eq!(
        stage.decisions().await[0].get("run_worst"),
        None,
        "nobody looks, so nothing is kept"
    );
    let cedar = r#"@id("issues") @reason("The run has read content from outside")
        forbid (principal, action == Action::"github/create_issue", resource)
        when { context has run && context.run.worst.rank <= 2 };"#;
    let body = json!({"name": "runs", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    assert_eq!(change(&stage, "run-2", None).await, "policy_permits");
    read(&stage, "run-2", None).await;
    assert_eq!(change(&stage, "run-2", None).await, "policy_forbids");
    let mut started = changing();
    started["trace"] = json!({"parent_run_id": "run-2"});
    for (ask, reason) in [(started, "policy_forbids"), (changing(), "policy_permits")] {
        assert_eq!(stage.ask(&ask).await.expect(200)["reason_code"], reason);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_asks_at_once_no_change_stands_behind_what_tainted_the_run() {
    let stage = stage("deny").await;
    for round in 0..5 {
        let run = format!("run-{round}");
        let asks = (0..24).map(|number| {
            let ask = if number % 6 == 5 { reading() } else { changing() };
            within(ask, &run, None)
        });
        let asks: Vec<_> = asks.collect();
        join_all(asks.iter().map(|ask| stage.ask(ask))).await;
        let recorded = stage.decisions().await;
        let of_run = recorded.iter().filter(|body| body["run_id"] == run.as_str());
        let mut is_tainted = false;
        for body in of_run {
            let changes = body["action"] == "create_issue";
            assert!(!(changes && is_tainted && body["decision"] == "allow"), "{body}");
            is_tainted |= !changes;
        }
    }
    stage.assert_sound().await;
}
