//! `/v1/agents/{id}/tools/{tool}`.

use crate::Acme;
use serde_json::{Value, json};

#[tokio::test]
async fn a_tool_is_granted_and_the_last_grant_withdrawn_leaves_none() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let token = acme.token(&agent).await;
    acme.news().await;
    let path = format!("/v1/agents/{agent}/tools/mail");
    let grant = json!({"agent": agent, "tool": "mail"});
    assert_eq!(acme.admin("PUT", &path, Value::Null).await.expect(201), grant);
    assert_eq!(acme.told("tool_granted").await, grant);
    assert_eq!(acme.admin("PUT", &path, Value::Null).await.expect(200), grant);
    acme.assert_silent().await;
    assert_eq!(acme.reason(&token, "mail", "send").await, "policy_permits");
    acme.news().await;

    assert_eq!(
        acme.admin("DELETE", &path, Value::Null).await.expect(204),
        Value::Null
    );
    assert_eq!(
        acme.told("tool_withdrawn").await,
        json!({"agent": agent, "tool": "mail"})
    );
    acme.admin("DELETE", &path, Value::Null).await.expect(204);
    acme.assert_silent().await;
    assert_eq!(acme.reason(&token, "mail", "send").await, "tool_not_granted");
    let agent = acme
        .admin("GET", &format!("/v1/agents/{agent}"), Value::Null)
        .await
        .expect(200);
    assert_eq!(agent["tools"], json!([]));
}

/// Whoever means some actions only would have granted all of them.
#[tokio::test]
async fn a_grant_of_less_than_a_tool_is_refused() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    let path = format!("/v1/agents/{agent}/tools/mail");
    acme.admin("PUT", &path, json!({"actions": ["read"]}))
        .await
        .problem(400, "unknown_field");
    acme.assert_silent().await;
    acme.admin("PUT", &path, json!({})).await.expect(201);
}

#[tokio::test]
async fn one_tool_cannot_be_taken_from_an_agent_that_has_all() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder", "tools": "all"})).await;
    acme.news().await;
    let path = format!("/v1/agents/{agent}/tools/mail");
    acme.admin("PUT", &path, Value::Null).await.expect(200);
    let detail = acme
        .admin("DELETE", &path, Value::Null)
        .await
        .problem(409, "conflict");
    assert!(detail.contains("PATCH"), "{detail}");
    acme.assert_silent().await;
}

#[tokio::test]
async fn what_is_not_registered_cannot_be_granted() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    acme.admin("PUT", &format!("/v1/agents/{agent}/tools/ghost"), Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("PUT", "/v1/agents/agt_1/tools/mail", Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", "/v1/agents/agt_1/tools/mail", Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", &format!("/v1/agents/{agent}/tools/ghost"), Value::Null)
        .await
        .expect(204);
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_grant_ends_with_its_tool() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder", "tools": ["mail"]})).await;
    let bystander = acme.hire(json!({"name": "other", "tools": "all"})).await;
    let token = acme.token(&agent).await;
    acme.news().await;
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
    assert_eq!(
        acme.told("tool_deleted").await,
        json!({"name": "mail", "withdrawn_from": [agent]})
    );
    acme.put_mail().await;
    assert_eq!(acme.reason(&token, "mail", "read").await, "tool_not_granted");
    let bystander = acme
        .admin("GET", &format!("/v1/agents/{bystander}"), Value::Null)
        .await
        .expect(200);
    assert_eq!(bystander["tools"], json!("all"));
}
