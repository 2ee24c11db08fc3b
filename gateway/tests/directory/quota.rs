//! `…/quota`.

use crate::{Acme, text};
use serde_json::{Value, json};

fn bucket() -> Value {
    json!({"capacity": 3, "refill_per_second": 0.5})
}

/// Limits of which only the bucket is set.
fn view(bucket: &Value, remaining: &Value) -> Value {
    json!({"bucket": bucket, "remaining": remaining, "tools": {}, "quotas": []})
}

/// What the ledger tells when they are set.
fn entry(id: &str, bucket: &Value) -> Value {
    json!({"id": id, "bucket": bucket, "tools": {}, "quotas": []})
}

#[tokio::test]
async fn the_limit_of_an_agent_is_set_shown_and_lifted() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder", "tools": "all"})).await;
    let token = acme.token(&agent).await;
    acme.news().await;
    let path = format!("/v1/agents/{agent}/quota");
    let none = view(&Value::Null, &Value::Null);
    assert_eq!(acme.admin("GET", &path, Value::Null).await.expect(200), none);
    let full = view(&bucket(), &json!({"tokens": 3, "full_in_seconds": 0}));
    assert_eq!(
        acme.admin("PUT", &path, json!({"bucket": bucket()}))
            .await
            .expect(200),
        full
    );
    assert_eq!(acme.told("agent_quota_set").await, entry(&agent, &bucket()));
    assert_eq!(
        acme.admin("PUT", &path, json!({"bucket": bucket()}))
            .await
            .expect(200),
        full
    );
    acme.assert_silent().await;

    acme.reason(&token, "mail", "read").await;
    let used = view(&bucket(), &json!({"tokens": 2, "full_in_seconds": 2}));
    assert_eq!(acme.admin("GET", &path, Value::Null).await.expect(200), used);
    assert_eq!(acme.get("/v1/quota", &token).await.expect(200), used);
    acme.clock.advance_millis(2_000);
    assert_eq!(acme.get("/v1/quota", &token).await.expect(200), full);

    acme.news().await;
    assert_eq!(acme.admin("PUT", &path, json!({})).await.expect(200), none);
    assert_eq!(acme.told("agent_quota_set").await, entry(&agent, &Value::Null));
    assert_eq!(
        acme.admin("PUT", &path, json!({"bucket": null}))
            .await
            .expect(200),
        none
    );
    acme.assert_silent().await;
}

#[tokio::test]
async fn the_limit_of_a_tenant_is_the_operators_to_set_and_the_tenants_to_see() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    let other = acme.found("globex").await;
    acme.news().await;
    let path = format!("/v1/tenants/{}/quota", acme.tenant.id);
    let put = |body: Value| acme.call("PUT", &path, &acme.operator).json(&body).send();
    let full = view(&bucket(), &json!({"tokens": 3, "full_in_seconds": 0}));
    assert_eq!(put(json!({"bucket": bucket()})).await.expect(200), full);
    assert_eq!(
        acme.told("tenant_quota_set").await,
        entry(&acme.tenant.id, &bucket())
    );
    assert_eq!(put(json!({"bucket": bucket()})).await.expect(200), full);
    acme.assert_silent().await;

    let auditor = acme.make_key(&acme.tenant.id, "auditor").await;
    for credential in [&acme.operator, &acme.tenant.admin, &auditor] {
        assert_eq!(acme.get(&path, credential).await.expect(200), full);
    }
    acme.get(&path, &other.admin).await.problem(404, "not_found");
    let of_other = format!("/v1/tenants/{}/quota", other.id);
    let elsewhere = acme
        .call("GET", &of_other, &acme.operator)
        .tenant(&acme.tenant.id)
        .send()
        .await;
    assert_eq!(
        elsewhere.expect(200),
        view(&Value::Null, &Value::Null),
        "the path says which tenant"
    );
    acme.admin("PUT", &path, json!({}))
        .await
        .problem(403, "forbidden");
    for _ in 0..3 {
        assert_eq!(acme.reason(&token, "mail", "read").await, "policy_permits");
    }
    let ask = json!({"tool_call": {"tool": "mail", "action": "read", "parameters": {}},
        "context": {"source_trust": "unknown"}});
    acme.post("/v1/authorize", &token, &ask)
        .await
        .problem(429, "rate_limited");
    let empty = view(&bucket(), &json!({"tokens": 0, "full_in_seconds": 6}));
    assert_eq!(acme.get(&path, &acme.operator).await.expect(200), empty);
    let shown = put(json!({"bucket": {"capacity": 3, "refill_per_second": 0}})).await;
    let never = json!({"tokens": 0, "full_in_seconds": 86_400});
    assert_eq!(shown.expect(200)["remaining"], never);
}

#[tokio::test]
async fn a_limit_for_a_tool_that_is_not_there_is_refused_and_one_for_a_deleted_tool_may_stay() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    acme.admin("PUT", "/v1/teams/crew", json!({})).await.expect(201);
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    let put = |path: &str, body: &Value| {
        let call = acme.call("PUT", path, &acme.operator).tenant(&acme.tenant.id);
        call.json(body).send()
    };
    let with_buckets = [
        format!("/v1/agents/{agent}/quota"),
        format!("/v1/tenants/{}/quota", acme.tenant.id),
    ];
    let buckets = |tool: &str| json!({"tools": {tool: bucket()}});
    for path in &with_buckets {
        let detail = put(path, &buckets("Mail")).await.problem(400, "invalid_field");
        assert_eq!(detail, "`tools`: there is no tool `Mail`");
    }
    let team = "/v1/teams/crew/quota".to_owned();
    let quotas = |limit: u64| json!({"quotas": [{"window": "day", "limit": limit, "tool": "mail"}]});
    let mut misspelt = quotas(1);
    misspelt["quotas"][0]["tool"] = json!("mails");
    let all = || with_buckets.iter().chain([&team]);
    for path in all() {
        let detail = put(path, &misspelt).await.problem(400, "invalid_field");
        assert_eq!(detail, "`quotas`: there is no tool `mails`");
    }
    acme.assert_silent().await;

    let limits = |path: &String, limit: u64| {
        let mut limits = quotas(limit);
        if *path != team {
            limits["tools"] = buckets("mail")["tools"].take();
        }
        limits
    };
    for path in all() {
        put(path, &limits(path, 1)).await.expect(200);
    }
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
    for path in all() {
        for limit in [1, 2] {
            put(path, &limits(path, limit)).await.expect(200);
        }
        put(path, &json!({"quotas": []})).await.expect(200);
        put(path, &limits(path, 1)).await.problem(400, "invalid_field");
    }
}

#[tokio::test]
async fn a_bad_limit_is_refused() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    for path in [
        format!("/v1/agents/{agent}/quota"),
        format!("/v1/tenants/{}/quota", acme.tenant.id),
    ] {
        let put = |body: Value| {
            acme.call("PUT", &path, &acme.operator)
                .tenant(&acme.tenant.id)
                .json(&body)
                .send()
        };
        for (body, code) in [
            (
                json!({"bucket": {"capacity": 0, "refill_per_second": 1}}),
                "invalid_field",
            ),
            (json!({"bucket": {"capacity": 1}}), "invalid_field"),
            (
                json!({"bucket": {"capacity": 1, "refill_per_second": -1}}),
                "invalid_field",
            ),
            (
                json!({"bucket": {"capacity": 1, "refill_per_second": 1, "burst": 1}}),
                "unknown_field",
            ),
            (json!({"quota": []}), "unknown_field"),
            (
                json!({"quotas": [{"window": "week", "limit": 1}]}),
                "invalid_field",
            ),
            (
                json!({"quotas": [{"window": "day", "limit": 1, "tool": null}]}),
                "invalid_field",
            ),
            (
                json!({"quotas": [{"window": "day", "limit": 1, "group": null}]}),
                "invalid_field",
            ),
            (
                json!({"quotas": [{"window": "day", "limit": 1, "risk": null}]}),
                "invalid_field",
            ),
        ] {
            let detail = put(body.clone()).await.problem(400, code);
            assert!(detail.contains('`'), "{body}: {detail}");
        }
    }
    acme.assert_silent().await;
    acme.admin("PUT", "/v1/agents/agt_1/quota", json!({}))
        .await
        .problem(404, "not_found");
    acme.admin("GET", "/v1/agents/agt_1/quota", Value::Null)
        .await
        .problem(404, "not_found");
    acme.get("/v1/tenants/tnt_1/quota", &acme.operator)
        .await
        .problem(404, "not_found");
    let token = acme.token(&agent).await;
    assert_eq!(
        text(&acme.get("/v1/whoami", &token).await.expect(200)["agent"]),
        agent
    );
}
