//! `/v1/tenants`.

use crate::support::World;
use crate::{Acme, NOW, column, text};
use model::TenantId;
use serde_json::{Value, json};

const SETTINGS: &str = r#"{"context_attributes":{"region":"String"}}"#;

fn settings() -> Value {
    serde_json::from_str(SETTINGS).unwrap()
}

#[tokio::test]
async fn a_tenant_is_made_read_changed_and_deleted() {
    let acme = Acme::open().await;
    acme.clock.advance_millis(1);
    let now = "2026-01-31T09:30:00.001Z";
    let body = json!({"name": "globex", "settings": settings()});
    let made = acme.post("/v1/tenants", &acme.operator, &body).await.expect(201);
    let id = text(&made["id"]);
    assert!(id.starts_with("tnt_"));
    let expected =
        json!({"id": id, "name": "globex", "settings": settings(), "status": "active", "created_at": now});
    assert_eq!(made, expected);

    let path = format!("/v1/tenants/{id}");
    assert_eq!(acme.get(&path, &acme.operator).await.expect(200), made);
    let list = acme.get("/v1/tenants", &acme.operator).await.expect(200);
    assert_eq!(
        column(list["items"].as_array().unwrap(), "name"),
        ["acme", "globex"]
    );
    assert_eq!(list["next_cursor"], Value::Null);

    let members = json!({"name": "globex corp", "settings": {"context_attributes": null}});
    let changed = acme
        .call("PATCH", &path, &acme.operator)
        .json(&members)
        .send()
        .await
        .expect(200);
    let expected =
        json!({"id": id, "name": "globex corp", "settings": {}, "status": "active", "created_at": now});
    assert_eq!(changed, expected);

    assert_eq!(
        acme.call("DELETE", &path, &acme.operator)
            .send()
            .await
            .expect(204),
        Value::Null
    );
    acme.get(&path, &acme.operator).await.problem(404, "not_found");
    acme.call("DELETE", &path, &acme.operator)
        .send()
        .await
        .problem(404, "not_found");
    let list = acme.get("/v1/tenants", &acme.operator).await.expect(200);
    assert_eq!(column(list["items"].as_array().unwrap(), "name"), ["acme"]);
}

#[tokio::test]
async fn every_change_of_a_tenant_is_one_entry_and_no_change_is_none() {
    let acme = Acme::open().await;
    let path = format!("/v1/tenants/{}", acme.tenant.id);
    let change = |body: Value| acme.call("PATCH", &path, &acme.operator).json(&body).send();
    change(json!({"settings": settings()})).await.expect(200);
    let told = acme.told("tenant_updated").await;
    assert_eq!((&told["name"], &told["settings"]), (&json!("acme"), &settings()));
    for nothing in [
        json!({}),
        json!({"name": "acme"}),
        json!({"settings": settings()}),
        json!({"settings": {}}),
    ] {
        change(nothing).await.expect(200);
    }
    acme.assert_silent().await;
    acme.call("DELETE", &path, &acme.operator)
        .send()
        .await
        .expect(204);
    let told = acme.told("tenant_deleted").await;
    assert_eq!(
        told,
        json!({"id": acme.tenant.id, "name": "acme", "deleted_at": NOW})
    );
}

#[tokio::test]
async fn a_new_tenant_is_told_in_the_operators_chain_too() {
    let world = World::start().await;
    let system = crate::Tenant {
        id: TenantId::SYSTEM.to_string(),
        admin: String::new(),
        seen: 0.into(),
    };
    world.news_of(&system).await;
    let tenant = world.found("acme").await;
    let news = world.news_of(&system).await;
    assert_eq!(news.len(), 1, "{news:?}");
    assert_eq!(
        (news[0].0.as_str(), &news[0].1["id"]),
        ("tenant_created", &json!(tenant.id))
    );
}

#[tokio::test]
async fn the_credentials_of_a_deleted_tenant_stop_and_nothing_in_it_can_be_reached() {
    let acme = Acme::open().await;
    let token = acme.token(&acme.hire(json!({"name": "builder"})).await).await;
    acme.get("/v1/whoami", &token).await.expect(200);
    let path = format!("/v1/tenants/{}", acme.tenant.id);
    acme.call("DELETE", &path, &acme.operator)
        .send()
        .await
        .expect(204);
    for credential in [&token, &acme.tenant.admin] {
        acme.get("/v1/whoami", credential)
            .await
            .problem(401, "invalid_token");
    }
    let call = |method, path| acme.call(method, path, &acme.operator).tenant(&acme.tenant.id);
    call("GET", "/v1/agents").send().await.problem(404, "not_found");
    call("POST", "/v1/agents")
        .json(&json!({"name": "late"}))
        .send()
        .await
        .problem(404, "not_found");
    call("GET", "/v1/keys").send().await.problem(404, "not_found");
    let key = json!({"name": "late", "role": "admin", "tenant": acme.tenant.id});
    acme.post("/v1/keys", &acme.operator, &key)
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn the_system_tenant_can_be_neither_seen_nor_changed() {
    let world = World::start().await;
    let system = TenantId::SYSTEM;
    let list = world.get("/v1/tenants", &world.operator).await.expect(200);
    assert_eq!(list["items"], json!([]));
    let reason = json!({"reason": "a test"});
    for (method, path, body) in [
        ("GET", "", Value::Null),
        ("PATCH", "", json!({"name": "mine"})),
        ("DELETE", "", Value::Null),
        ("POST", "/freeze", reason.clone()),
        ("POST", "/unfreeze", reason.clone()),
        ("POST", "/revoke", reason),
        ("GET", "/quota", Value::Null),
        ("PUT", "/quota", json!({})),
    ] {
        let path = format!("/v1/tenants/{system}{path}");
        world
            .call(method, &path, &world.operator)
            .json(&body)
            .send()
            .await
            .problem(404, "not_found");
    }
    let agents = world.call("POST", "/v1/agents", &world.operator).tenant(system);
    agents
        .json(&json!({"name": "nobody's"}))
        .send()
        .await
        .problem(404, "not_found");
    world
        .call("GET", "/v1/agents", &world.operator)
        .tenant(system)
        .send()
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn a_bad_tenant_is_refused_with_the_field_that_is_wrong() {
    let acme = Acme::open().await;
    for (body, code, part) in [
        (json!({}), "invalid_field", "missing field `name`"),
        (json!({"name": ""}), "invalid_field", "`/name`"),
        (json!({"name": 7}), "invalid_field", "`/name`"),
        (json!({"name": "a\u{7}b"}), "invalid_field", "control characters"),
        (json!({"name": "a", "colour": "red"}), "unknown_field", "`colour`"),
        (
            json!({"name": "a", "settings": {"colour": 1}}),
            "unknown_field",
            "`/settings/colour`",
        ),
        (
            json!({"name": "a", "settings": {"context_attributes": {"x": "Float"}}}),
            "invalid_field",
            "`/settings/",
        ),
    ] {
        let detail = acme
            .post("/v1/tenants", &acme.operator, &body)
            .await
            .problem(400, code);
        assert!(detail.contains(part), "{body}: {detail}");
    }
    let path = format!("/v1/tenants/{}", acme.tenant.id);
    for (body, code) in [
        (json!({"name": null}), "invalid_field"),
        (json!({"status": "frozen"}), "unknown_field"),
        (json!({"settings": {"colour": null}}), "unknown_field"),
        (json!({"settings": null}), "invalid_field"),
    ] {
        acme.call("PATCH", &path, &acme.operator)
            .json(&body)
            .send()
            .await
            .problem(400, code);
    }
    acme.get("/v1/tenants/tnt_1", &acme.operator)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn an_operator_moves_no_budgets_of_a_tenant_that_is_gone_or_nobodys() {
    let acme = Acme::open().await;
    let body = json!({"scope": {}, "unit": "TOKENS", "allocated": 5});
    let made = acme.admin("POST", "/v1/budgets", body.clone()).await.expect(201);
    let fund = format!("/v1/budgets/{}/fund", text(&made["id"]));
    let path = format!("/v1/tenants/{}", acme.tenant.id);
    acme.call("DELETE", &path, &acme.operator)
        .send()
        .await
        .expect(204);
    let seen = acme.news().await.len();
    assert!(seen > 0);
    let operate = |path: &str, tenant: &str, body: &Value| {
        let call = acme.call("POST", path, &acme.operator).tenant(tenant);
        call.json(body).send()
    };
    let more = json!({"scope": {}, "unit": "CREDITS", "allocated": 5});
    for tenant in [&*acme.tenant.id, "tnt_00000000000000000000000000"] {
        operate("/v1/budgets", tenant, &more)
            .await
            .problem(404, "not_found");
    }
    let funded = operate(&fund, &acme.tenant.id, &json!({"amount": 5})).await;
    funded.problem(404, "not_found");
    // What agents did in a deleted tenant can be erased, and in the system tenant there is nothing that could be.
    let old = json!({"older_than_days": 1});
    operate("/v1/ledger/erase", &acme.tenant.id, &old)
        .await
        .expect(200);
    let system = operate("/v1/ledger/erase", "tnt_00000000000000000000000000", &old).await;
    system.problem(404, "not_found");
    acme.assert_silent().await;
}
