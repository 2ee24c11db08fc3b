//! Shadow and canary: what is on trial changes no answer but its own agents', and says what it would have said.

use crate::stage::{changing, reading};
use crate::{Desk, NO_ISSUES, NO_SECRETS, key, text};
use serde_json::{Value, json};

/// What would be said with [`NO_ISSUES`].
fn denied() -> Value {
    json!({"decision": "deny", "matched_policies": ["issues/none"], "reason_code": "policy_forbids"})
}

async fn last(desk: &Desk) -> Value {
    desk.decisions().await.pop().unwrap()
}

#[tokio::test]
async fn a_shadow_changes_no_answer_and_what_it_would_have_said_is_recorded() {
    let desk = Desk::open().await;
    let before = desk.answer().await;
    assert!(last(&desk).await.get("shadow").is_none(), "nothing is on trial");
    let put = desk.shadow("issues", NO_ISSUES).await;
    assert_eq!(put["enforced"], Value::Null);
    assert_eq!(put["trial"], json!({"version": 1, "mode": "shadow"}));
    let after = desk.answer().await;
    for member in [
        "decision",
        "reason_code",
        "reason",
        "matched_policies",
        "obligations",
    ] {
        assert_eq!(after[member], before[member]);
    }
    assert_eq!(after["policy"]["digest"], before["policy"]["digest"]);
    assert!(after.get("shadow").is_none(), "it is not the agent's business");
    assert_eq!(last(&desk).await["shadow"], denied());
    let id = text(&after["decision_id"]);
    let auditor = key(&desk, &desk.tenant.to_string(), "auditor").await;
    for path in [format!("/v1/decisions/{id}"), "/v1/decisions?limit=1".to_owned()] {
        let to_agent = desk.get(&path, &desk.agent.token).await.expect(200);
        assert!(to_agent.to_string().contains(&id), "{to_agent}");
        assert!(!to_agent.to_string().contains("shadow"), "{to_agent}");
        let to_auditor = desk.get(&path, &auditor).await.expect(200);
        assert!(to_auditor.to_string().contains("shadow"), "{to_auditor}");
    }
    desk.ask(&reading()).await.expect(200);
    assert!(last(&desk).await.get("shadow").is_none(), "it would say the same");
    desk.assert_sound().await;
}

/// How many decisions that allow policies on trial would have made denials, by the metrics.
async fn counted(desk: &Desk) -> Option<String> {
    let metrics = desk.get("/metrics", "").await.text();
    let name = r#"countersign_shadow_differences_total{decision="allow",shadow="deny"} "#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(name));
    count.map(str::to_owned)
}

#[tokio::test]
async fn what_a_shadow_would_have_said_otherwise_is_counted_once_it_is_recorded() {
    let desk = Desk::open().await;
    desk.shadow("issues", NO_ISSUES).await;
    desk.post("/v1/decide", &desk.agent.token, &changing())
        .await
        .expect(200);
    desk.ask(&reading()).await.expect(200);
    assert_eq!(counted(&desk).await, None);
    desk.answer().await;
    assert_eq!(counted(&desk).await.as_deref(), Some("1"));
    let batch = json!({"asks": [changing(), reading(), changing()]});
    let path = "/v1/authorize/batch";
    desk.post(path, &desk.agent.token, &batch).await.expect(200);
    assert_eq!(counted(&desk).await.as_deref(), Some("3"));
}

#[tokio::test]
async fn a_shadow_stands_beside_what_is_enforced() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let put = desk.shadow("issues", NO_SECRETS).await;
    assert_eq!((&put["version"], &put["enforced"]), (&json!(2), &json!(1)));
    assert_eq!(desk.decision().await, "deny");
    assert_eq!(last(&desk).await["shadow"]["decision"], "allow");
}

/// Has so many people look at issues.
fn looked_at(id: &str, quorum: u32) -> String {
    format!(
        r#"@id("{id}") @decision("require_approval") @quorum("{quorum}")
permit (principal, action == Action::"github/create_issue", resource);"#
    )
}

#[tokio::test]
async fn what_people_have_approved_counts_for_a_shadow_as_far_as_it_would() {
    let desk = Desk::open().await;
    desk.put("issues", &looked_at("one", 1)).await.expect(201);
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = desk.admin("POST", "/v1/keys", &key).await.expect(201);
    for (trial, shadow) in [
        (looked_at("other", 1), Value::Null),
        (looked_at("other", 2), json!("require_approval")),
    ] {
        desk.shadow("issues", &trial).await;
        let id = desk.answer().await["approval"]["id"].clone();
        assert_eq!(last(&desk).await["shadow"]["decision"], "require_approval");
        let path = format!("/v1/approvals/{}/approve", text(&id));
        let reason = json!({"reason": "looked at it"});
        desk.post(&path, &text(&ann["key"]), &reason).await.expect(200);
        let mut retry = changing();
        retry["approval_id"] = id;
        let answer = desk.ask(&retry).await.expect(200);
        assert_eq!(answer["reason_code"], "approval_granted", "{answer}");
        assert_eq!(last(&desk).await["shadow"]["decision"], shadow, "{trial}");
    }
    desk.assert_sound().await;
}

#[tokio::test]
async fn a_canary_counts_for_its_agents_only() {
    let desk = Desk::open().await;
    let other = desk.hire(json!({"name": "other", "tools": "all"})).await;
    let body = json!({"cedar": NO_ISSUES, "mode": "canary", "agents": [desk.agent.id]});
    let put = desk.edit("PUT", "/issues", &body).await.expect(201);
    assert_eq!(put["trial"]["agents"], json!([desk.agent.id]));
    assert_eq!(desk.decision_for(&other).await, "allow");
    assert_eq!(
        last(&desk).await["shadow"],
        denied(),
        "a shadow for everybody else"
    );
    assert_eq!(desk.decision().await, "deny");
    assert!(last(&desk).await.get("shadow").is_none());
}

#[tokio::test]
async fn a_canary_without_policies_is_told_by_the_digests() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let before = desk.answer().await;
    let body = json!({"cedar": "", "mode": "canary", "agents": [desk.agent.id]});
    desk.edit("PUT", "/issues", &body).await.expect(200);
    let after = desk.answer().await;
    assert_eq!(
        (&before["decision"], &after["decision"]),
        (&json!("deny"), &json!("allow"))
    );
    let digests = [&before, &after].map(|answer| &answer["policy"]["digest"]);
    assert_ne!(digests[0], digests[1]);
    let told = desk.told("policy_put").await;
    assert_eq!(
        told.last().unwrap()["policy_digests"],
        json!({"before": digests[0], "after": digests[1]})
    );
}

#[tokio::test]
async fn what_is_promoted_is_enforced() {
    let desk = Desk::open().await;
    let other = desk.hire(json!({"name": "other", "tools": "all"})).await;
    desk.put("issues", NO_SECRETS).await.expect(201);
    desk.shadow("issues", NO_ISSUES).await;
    let promoted = desk
        .edit("POST", "/issues/promote", &Value::Null)
        .await
        .expect(200);
    assert_eq!(
        (&promoted["enforced"], &promoted["trial"]),
        (&json!(2), &Value::Null)
    );
    for decision in [desk.decision().await, desk.decision_for(&other).await] {
        assert_eq!(decision, "deny");
    }
    assert!(last(&desk).await.get("shadow").is_none());
    let told = desk.told("policy_promoted").await;
    assert_eq!((told.len(), &told[0]["enforced"]), (1, &json!(2)));
    assert!(told[0]["policy_digests"]["after"].is_string());
    let again = desk.edit("POST", "/issues/promote", &Value::Null).await;
    again.problem(409, "conflict");
}

/// Whoever names a version in the body does not mean another one that is on trial by now.
#[tokio::test]
async fn a_trial_is_not_ended_by_a_body_that_nobody_reads() {
    let desk = Desk::open().await;
    desk.put("issues", NO_SECRETS).await.expect(201);
    let trial = desk.shadow("issues", NO_ISSUES).await;
    let head = desk.head().await;
    for path in ["/issues/promote", "/issues/revert"] {
        let refused = desk.edit("POST", path, &json!({"version": 1})).await;
        refused.problem(400, "unknown_field");
        let refused = desk.edit("POST", path, &json!([1])).await;
        refused.problem(400, "invalid_field");
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!(shown, trial);
    let promoted = desk.edit("POST", "/issues/promote", &json!({})).await;
    assert_eq!(promoted.expect(200)["enforced"], 2);
}

#[tokio::test]
async fn what_is_reverted_leaves_what_was_enforced() {
    let desk = Desk::open().await;
    desk.put("issues", NO_SECRETS).await.expect(201);
    let digest = desk.answer().await["policy"]["digest"].clone();
    let body = json!({"cedar": NO_ISSUES, "mode": "canary", "agents": [desk.agent.id]});
    desk.edit("PUT", "/issues", &body).await.expect(200);
    assert_eq!(desk.decision().await, "deny");
    let reverted = desk
        .edit("POST", "/issues/revert", &Value::Null)
        .await
        .expect(200);
    assert_eq!(
        (&reverted["enforced"], &reverted["trial"]),
        (&json!(1), &Value::Null)
    );
    let answer = desk.answer().await;
    assert_eq!(answer["decision"], "allow");
    assert_eq!(answer["policy"]["digest"], digest);
    assert!(last(&desk).await.get("shadow").is_none());
    assert_eq!(desk.count("policy_reverted").await, 1);
    let again = desk.edit("POST", "/issues/revert", &Value::Null).await;
    again.problem(409, "conflict");
}

/// An older version that still counted for its canaries would exempt them from what was just forbidden.
#[tokio::test]
async fn what_is_enforced_counts_for_canaries_of_an_older_version_too() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let canary = json!({"name": "issues", "cedar": "", "mode": "canary", "agents": [desk.agent.id]});
    let lenient = json!({"policies": [canary]});
    let set = json!({"policies": [{"name": "issues", "cedar": NO_ISSUES}]});
    for (method, path, body) in [
        ("PUT", "/issues", json!({"cedar": NO_ISSUES})),
        ("POST", "/issues/rollback", json!({"version": 1})),
        ("PUT", "", set),
    ] {
        desk.edit("PUT", "", &lenient).await.expect(200);
        assert_eq!(desk.decision().await, "allow", "the canary is lenient");
        desk.edit(method, path, &body).await.expect(200);
        assert_eq!(desk.decision().await, "deny", "{method} {path}");
        let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
        assert_eq!(shown["trial"], Value::Null, "{method} {path}");
    }
}
