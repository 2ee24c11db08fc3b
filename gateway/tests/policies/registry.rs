//! Tools and settings that would break a policy in force.

use crate::stage::Stage;
use crate::{Desk, NO_ISSUES, diagnostics};
use serde_json::{Value, json};

const MAY_READ: &str = r#"@id("all") permit (principal, action in Action::"read", resource);"#;

async fn settings(stage: &Stage, may_permit: bool) -> crate::support::Reply {
    let body = json!({"settings": {"policies": {"may_permit": may_permit}}});
    let path = format!("/v1/tenants/{}", stage.tenant);
    stage
        .call("PATCH", &path, &stage.operator)
        .json(&body)
        .send()
        .await
}

#[tokio::test]
async fn a_tool_that_a_policy_in_force_speaks_of_does_not_change_under_it() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.put(
        "merges",
        r#"@id("first") forbid (principal, action == Action::"github/merge_pull_request", resource)
        when { context.input.number == 1 };"#,
    )
    .await
    .expect(201);
    let head = desk.head().await;
    let before = desk
        .admin("GET", "/v1/tools/github", &Value::Null)
        .await
        .expect(200);
    let reader = json!({"actions": [{"name": "get_file", "mutates_state": false, "risk": "low"}]});
    let found = diagnostics(&desk.admin("PUT", "/v1/tools/github", &reader).await);
    let named: Vec<_> = found.iter().map(|one| one["policy"].as_str().unwrap()).collect();
    assert!(
        named.contains(&"issues/none") && named.contains(&"merges/first"),
        "{found:?}"
    );
    let deleted = desk.admin("DELETE", "/v1/tools/github", &Value::Null).await;
    diagnostics(&deleted);
    assert_eq!(desk.head().await, head, "nothing was recorded");
    let after = desk
        .admin("GET", "/v1/tools/github", &Value::Null)
        .await
        .expect(200);
    assert_eq!(after, before);
    assert_eq!(desk.decision().await, "deny");

    for name in ["issues", "merges"] {
        let path = format!("/{name}");
        desk.edit("DELETE", &path, &Value::Null).await.expect(204);
    }
    desk.admin("PUT", "/v1/tools/github", &reader).await.expect(200);
}

#[tokio::test]
async fn an_attribute_that_a_policy_in_force_looks_at_stays_declared() {
    let desk = Desk::open().await;
    let path = format!("/v1/tenants/{}", desk.tenant);
    let declare = |value: Value| {
        let body = json!({"settings": {"context_attributes": value}});
        let call = desk.call("PATCH", &path, &desk.operator).json(&body);
        async move { call.send().await }
    };
    declare(json!({"ticket": "String"})).await.expect(200);
    let blocked = r#"@id("ticket") forbid (principal, action == Action::"github/create_issue", resource)
        when { context.attributes has ticket && context.attributes.ticket == "blocked" };"#;
    desk.put("tickets", blocked).await.expect(201);
    let mut ask = crate::stage::changing();
    for (ticket, decision) in [("T-1", "allow"), ("blocked", "deny")] {
        ask["context"]["attributes"] = json!({"ticket": ticket});
        assert_eq!(desk.ask(&ask).await.expect(200)["decision"], decision);
    }
    let found = diagnostics(&declare(Value::Null).await);
    assert_eq!(found[0]["policy"], "tickets/ticket");
    assert_eq!(desk.ask(&ask).await.expect(200)["decision"], "deny");
}

#[tokio::test]
async fn an_operator_can_forbid_that_a_tenant_permits() {
    let desk = Desk::open().await;
    assert_eq!(
        settings(&desk, false).await.expect(200)["settings"]["policies"]["may_permit"],
        false
    );
    let found = diagnostics(&desk.put("readers", MAY_READ).await);
    assert_eq!(found[0]["policy"], "readers/all");
    desk.put("issues", NO_ISSUES).await.expect(201);
    assert_eq!(desk.decision().await, "deny", "forbidding is not forbidden");

    settings(&desk, true).await.expect(200);
    desk.put("readers", MAY_READ).await.expect(201);
    let found = diagnostics(&settings(&desk, false).await);
    assert_eq!(found[0]["policy"], "readers/all");
}
