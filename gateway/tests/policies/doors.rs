//! Who may write policies, who may read them, and that another tenant's are not there.

use crate::{Desk, NO_ISSUES, NO_SECRETS, key, text};
use serde_json::{Value, json};

const WRITES: [(&str, &str); 13] = [
    ("POST", "/v1/policies"),
    ("PUT", "/v1/policies"),
    ("PUT", "/v1/policies/issues"),
    ("DELETE", "/v1/policies/issues"),
    ("POST", "/v1/policies/issues/rollback"),
    ("POST", "/v1/policies/issues/promote"),
    ("POST", "/v1/policies/issues/revert"),
    ("POST", "/v1/policies/validate"),
    ("POST", "/v1/policies/format"),
    ("POST", "/v1/policies/try"),
    ("POST", "/v1/policies/diff"),
    ("POST", "/v1/policies/replay"),
    ("DELETE", "/v1/policies/other"),
];

const READS: [&str; 4] = [
    "/v1/policies",
    "/v1/policies/issues",
    "/v1/policies/issues/versions",
    "/v1/policies/schema",
];

#[tokio::test]
async fn only_editors_write_and_agents_do_not_even_read() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let tenant = desk.tenant.to_string();
    for role in ["admin", "auditor", "approver"] {
        let key = key(&desk, &tenant, role).await;
        for (method, path) in WRITES {
            let reply = desk.call(method, path, &key).json(&json!({})).send().await;
            reply.problem(403, "forbidden");
        }
        for path in READS {
            let reply = desk.get(path, &key).await;
            let expected = if role == "approver" { 403 } else { 200 };
            assert_eq!(reply.status, expected, "{role} {path}: {}", reply.text());
        }
    }
    let reads = READS.map(|path| ("GET", path));
    for (method, path) in WRITES.into_iter().chain(reads) {
        let reply = desk
            .call(method, path, &desk.agent.token)
            .json(&json!({}))
            .send()
            .await;
        reply.problem(403, "forbidden");
    }
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn another_tenants_policies_are_not_there() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.shadow("issues", NO_SECRETS).await;
    let head = desk.head().await;
    let made = desk
        .post("/v1/tenants", &desk.operator, &json!({"name": "other"}))
        .await;
    let other = text(&made.expect(201)["id"]);
    let other_editor = key(&desk, &other, "policy_editor").await;
    let as_other = |method: &'static str, path: &'static str, body: Value| {
        let call = desk.call(method, path, &other_editor).json(&body);
        async move { call.send().await }
    };
    for (method, path, body) in [
        ("GET", "/v1/policies/issues", Value::Null),
        ("GET", "/v1/policies/issues/versions", Value::Null),
        ("DELETE", "/v1/policies/issues", Value::Null),
        ("POST", "/v1/policies/issues/rollback", json!({"version": 1})),
        ("POST", "/v1/policies/issues/promote", json!({})),
        ("POST", "/v1/policies/issues/revert", json!({})),
    ] {
        as_other(method, path, body).await.problem(404, "not_found");
    }
    let listed = as_other("GET", "/v1/policies", Value::Null).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let mut trying = crate::stage::changing();
    trying["agent"] = json!({"id": desk.agent.id});
    let tried = as_other("POST", "/v1/policies/try", json!({"asks": [trying]}))
        .await
        .expect(200);
    assert_eq!(tried["results"][0]["code"], "not_found");

    // The same name is another policy, and a set is the tenant's own.
    as_other("PUT", "/v1/policies/issues", json!({"cedar": ""}))
        .await
        .expect(201);
    as_other("PUT", "/v1/policies", json!({"policies": []}))
        .await
        .expect(200);
    let named = desk
        .call("DELETE", "/v1/policies/issues", &other_editor)
        .tenant(desk.tenant)
        .send()
        .await;
    assert!(named.status.is_client_error(), "{}", named.text());
    assert_eq!(desk.head().await, head);
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!((&shown["version"], &shown["enforced"]), (&json!(2), &json!(1)));
    assert_eq!(desk.decision().await, "deny");
}
