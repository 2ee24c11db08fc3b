//! `/v1/keys`.

use crate::{Acme, NOW, column, text};
use canon::Digest;
use gateway::cli::operator_key::{self, OperatorKeyError};
use serde_json::{Value, json};

const LATER: &str = "2026-02-01T00:00:00.000Z";

#[tokio::test]
async fn a_key_is_made_shown_once_listed_and_deleted() {
    let acme = Acme::open().await;
    let body = json!({"name": "ci", "role": "policy_editor", "user": "ada", "expires_at": LATER});
    let mut made = acme.admin("POST", "/v1/keys", body).await.expect(201);
    let secret = text(&made.as_object_mut().unwrap().remove("key").unwrap());
    assert!(secret.starts_with("csk_"));
    let id = text(&made["id"]);
    let expected = json!({"id": id, "name": "ci", "role": "policy_editor", "user": "ada", "tenant": acme.tenant.id,
        "created_at": NOW, "expires_at": LATER});
    assert_eq!(made, expected);
    assert_eq!(acme.told("key_created").await, expected);

    let list = acme.admin("GET", "/v1/keys", Value::Null).await;
    assert!(!list.text().contains("sha256") && !list.text().contains("csk_"));
    assert!(list.expect(200)["items"].as_array().unwrap().contains(&expected));
    acme.get("/v1/agents", &secret).await.expect(200);

    acme.admin("DELETE", &format!("/v1/keys/{id}"), Value::Null)
        .await
        .expect(204);
    assert_eq!(acme.told("key_deleted").await, expected);
    acme.get("/v1/agents", &secret)
        .await
        .problem(401, "invalid_token");
    acme.admin("DELETE", &format!("/v1/keys/{id}"), Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_key_works_until_the_millisecond_of_its_end() {
    let acme = Acme::open().await;
    let body = json!({"name": "short", "role": "auditor", "expires_at": "2026-01-31T09:30:01.000Z"});
    let key = text(&acme.admin("POST", "/v1/keys", body).await.expect(201)["key"]);
    acme.clock.advance_millis(999);
    acme.get("/v1/agents", &key).await.expect(200);
    acme.clock.advance_millis(1);
    acme.get("/v1/agents", &key).await.problem(401, "invalid_token");
}

#[tokio::test]
async fn an_operator_names_the_tenant_of_a_key_once() {
    let acme = Acme::open().await;
    let other = acme.found("globex").await;
    let create = |body: Value| acme.call("POST", "/v1/keys", &acme.operator).json(&body);
    let key = json!({"name": "k", "role": "auditor"});
    create(key.clone()).send().await.problem(400, "tenant_required");
    let made = create(key.clone()).tenant(&other.id).send().await.expect(201);
    assert_eq!(made["tenant"], json!(other.id));
    let named = json!({"name": "k", "role": "auditor", "tenant": other.id});
    assert_eq!(
        create(named.clone()).send().await.expect(201)["tenant"],
        json!(other.id)
    );
    assert_eq!(
        create(named.clone()).tenant(&other.id).send().await.expect(201)["tenant"],
        json!(other.id)
    );
    let detail = create(named)
        .tenant(&acme.tenant.id)
        .send()
        .await
        .problem(400, "invalid_field");
    assert!(detail.contains("`tenant`"), "{detail}");
    acme.assert_silent().await;
    assert_eq!(acme.news_of(&other).await.len(), 3);
}

#[tokio::test]
async fn an_operators_key_belongs_to_no_tenant() {
    let acme = Acme::open().await;
    let body = json!({"name": "second", "role": "operator"});
    let mut made = acme.post("/v1/keys", &acme.operator, &body).await.expect(201);
    let secret = text(&made.as_object_mut().unwrap().remove("key").unwrap());
    let expected = json!({"id": made["id"], "name": "second", "role": "operator", "user": null, "created_at": NOW,
        "expires_at": null});
    assert_eq!(made, expected);
    acme.get("/v1/tenants", &secret).await.expect(200);

    let list = acme.get("/v1/keys", &acme.operator).await.expect(200);
    assert_eq!(
        column(list["items"].as_array().unwrap(), "role"),
        ["operator", "operator"]
    );
    let of_tenant = acme
        .call("GET", "/v1/keys", &acme.operator)
        .tenant(&acme.tenant.id)
        .send()
        .await
        .expect(200);
    assert_eq!(column(of_tenant["items"].as_array().unwrap(), "role"), ["admin"]);

    let with_tenant = json!({"name": "third", "role": "operator", "tenant": acme.tenant.id});
    acme.post("/v1/keys", &acme.operator, &with_tenant)
        .await
        .problem(400, "invalid_field");
    acme.admin("POST", "/v1/keys", body)
        .await
        .problem(403, "forbidden");
    acme.assert_silent().await;
}

#[tokio::test]
async fn the_last_operators_key_that_works_cannot_be_deleted() {
    let acme = Acme::open().await;
    let list = acme.get("/v1/keys", &acme.operator).await.expect(200);
    let first = format!("/v1/keys/{}", text(&list["items"][0]["id"]));
    acme.call("DELETE", &first, &acme.operator)
        .send()
        .await
        .problem(409, "conflict");
    let body = json!({"name": "short", "role": "operator", "expires_at": "2026-01-31T09:30:01.000Z"});
    acme.post("/v1/keys", &acme.operator, &body).await.expect(201);
    acme.clock.advance_millis(1_000);
    acme.call("DELETE", &first, &acme.operator)
        .send()
        .await
        .problem(409, "conflict");
    let body = json!({"name": "second", "role": "operator"});
    acme.post("/v1/keys", &acme.operator, &body).await.expect(201);
    acme.call("DELETE", &first, &acme.operator)
        .send()
        .await
        .expect(204);
    acme.get("/v1/tenants", &acme.operator)
        .await
        .problem(401, "invalid_token");
}

/// Whoever starts a gateway with it would take it for an operator's.
#[tokio::test]
async fn a_key_that_is_brought_along_and_makes_nobody_an_operator_is_told_of() {
    let acme = Acme::open().await;
    let body = json!({"name": "short", "role": "operator", "expires_at": "2026-01-31T09:30:01.000Z"});
    let made = acme.post("/v1/keys", &acme.operator, &body).await.expect(201);
    let (short, of_tenant) = (text(&made["key"]), acme.tenant.admin.as_str());
    let install = async |key: &str| {
        let digest = Digest::of(key.as_bytes());
        operator_key::install(&acme.gateway, digest, "brought").await
    };
    install(short.as_str()).await.unwrap();
    acme.clock.advance_millis(1_000);
    let installed = install(short.as_str()).await;
    assert!(
        matches!(installed, Err(OperatorKeyError::Expired)),
        "{installed:?}"
    );
    let installed = install(of_tenant).await;
    assert!(
        matches!(installed, Err(OperatorKeyError::OfTenant)),
        "{installed:?}"
    );
    // A gateway that is started with it serves agents all the same.
    for key in [short.as_str(), of_tenant] {
        let started = operator_key::ensure(&acme.gateway, Some(key), |_| Ok(()));
        started.await.unwrap();
    }
    acme.get("/v1/keys", of_tenant).await.expect(200);
}

#[tokio::test]
async fn an_admin_makes_keys_in_its_own_tenant_only() {
    let acme = Acme::open().await;
    let other = acme.found("globex").await;
    let key = |tenant: &str| json!({"name": "k", "role": "auditor", "tenant": tenant});
    acme.admin("POST", "/v1/keys", key(&acme.tenant.id))
        .await
        .expect(201);
    acme.admin("POST", "/v1/keys", key(&other.id))
        .await
        .problem(404, "not_found");
    acme.admin("POST", "/v1/keys", key("tnt_00000000000000000000000000"))
        .await
        .problem(404, "not_found");
    assert!(acme.news_of(&other).await.is_empty());
}

#[tokio::test]
async fn a_bad_key_is_refused_with_the_field_that_is_wrong() {
    let acme = Acme::open().await;
    for (body, code, part) in [
        (json!({"role": "admin"}), "invalid_field", "`name`"),
        (json!({"name": "k"}), "invalid_field", "`role`"),
        (json!({"name": "k", "role": "root"}), "invalid_field", "`/role`"),
        (
            json!({"name": "k", "role": "admin", "scopes": []}),
            "unknown_field",
            "`scopes`",
        ),
        (
            json!({"name": "k", "role": "admin", "user": ""}),
            "invalid_field",
            "`/user`",
        ),
        (
            json!({"name": "k", "role": "admin", "expires_at": "soon"}),
            "invalid_field",
            "`soon`",
        ),
        (
            json!({"name": "k", "role": "admin", "expires_at": NOW}),
            "invalid_field",
            "has passed",
        ),
    ] {
        let detail = acme
            .admin("POST", "/v1/keys", body.clone())
            .await
            .problem(400, code);
        assert!(detail.contains(part), "{body}: {detail}");
    }
    acme.admin("DELETE", "/v1/keys/agt_1", Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn an_expired_key_is_cleared_away_by_the_next_one() {
    let acme = Acme::open().await;
    let body = json!({"name": "short", "role": "auditor", "expires_at": "2026-01-31T09:30:01.000Z"});
    let short = acme.admin("POST", "/v1/keys", body).await.expect(201);
    acme.clock.advance_millis(1_000);
    let body = json!({"name": "too-soon", "role": "auditor"});
    acme.news().await;
    acme.admin("POST", "/v1/keys", body).await.expect(201);
    assert!(acme.told("key_created").await.get("expired").is_none());
    acme.clock.advance_millis(24 * 60 * 60 * 1_000);
    acme.news().await;
    let body = json!({"name": "next", "role": "auditor"});
    let next = acme.admin("POST", "/v1/keys", body).await.expect(201);
    assert_eq!(acme.told("key_created").await["expired"], json!([short["id"]]));
    let list = acme.admin("GET", "/v1/keys", Value::Null).await.expect(200);
    let names = column(list["items"].as_array().unwrap(), "name");
    assert_eq!(names, ["admin", "too-soon", "next"]);
    acme.get("/v1/agents", &text(&next["key"])).await.expect(200);
}
