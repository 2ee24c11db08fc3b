//! `…/freeze`, `…/unfreeze` and `…/revoke`.

use crate::support::Reply;
use crate::{Acme, NOW};
use futures_util::future::Either;
use gateway::changes::Order;
use serde_json::{Value, json};

/// Something with a standing, and who changes it.
struct Subject<'a> {
    acme: &'a Acme,
    /// The first part of the kinds of its entries.
    kind: &'static str,
    path: String,
    credential: &'a str,
}

impl Subject<'_> {
    async fn change(&self, verb: &str, reason: &str) -> Reply {
        let path = format!("{}/{verb}", self.path);
        self.acme
            .call("POST", &path, self.credential)
            .json(&json!({"reason": reason}))
            .send()
            .await
    }

    async fn get(&self) -> Value {
        self.acme.get(&self.path, self.credential).await.expect(200)
    }

    async fn told(&self, verb: &str) -> Value {
        self.acme.told(&format!("{}_{verb}", self.kind)).await
    }

    /// Everything that standing can go through.
    async fn go_through_all(&self) {
        let active = self.get().await;
        assert_eq!(active["status"], "active");
        assert_eq!(self.change("unfreeze", "nothing to do").await.expect(200), active);
        self.acme.assert_silent().await;

        let frozen = self.change("freeze", "odd").await.expect(200);
        let mut expected = active.clone();
        expected["status"] = json!("frozen");
        expected["reason"] = json!("odd");
        expected["since"] = json!(NOW);
        assert_eq!(frozen, expected);
        let told = self.told("frozen").await;
        assert_eq!(
            (&told["status"], &told["reason"], &told["since"]),
            (&json!("frozen"), &json!("odd"), &json!(NOW))
        );
        assert_eq!(told["name"], active["name"]);
        assert_eq!(self.change("freeze", "odder").await.expect(200), frozen);
        self.acme.assert_silent().await;

        assert_eq!(self.change("unfreeze", "it was a test").await.expect(200), active);
        let told = self.told("unfrozen").await;
        assert_eq!(
            (&told["status"], &told["reason"]),
            (&json!("active"), &json!("it was a test"))
        );

        let revoked = self.change("revoke", "stolen").await.expect(200);
        expected["status"] = json!("revoked");
        expected["reason"] = json!("stolen");
        assert_eq!(revoked, expected);
        assert_eq!(self.told("revoked").await["reason"], "stolen");
        assert_eq!(self.change("revoke", "again").await.expect(200), revoked);
        for verb in ["freeze", "unfreeze"] {
            self.change(verb, "please").await.problem(409, "revoked_for_good");
        }
        assert_eq!(self.get().await, revoked);
        self.acme.assert_silent().await;
    }

    async fn refuse_bad_reasons(&self) {
        let long = "x".repeat(1_025);
        for verb in ["freeze", "unfreeze", "revoke"] {
            let path = format!("{}/{verb}", self.path);
            for (body, code) in [
                (json!({}), "invalid_field"),
                (json!({"reason": ""}), "invalid_field"),
                (json!({"reason": long}), "invalid_field"),
                (json!({"reason": null}), "invalid_field"),
                (json!({"reason": "odd", "for": 3}), "unknown_field"),
            ] {
                let detail = self
                    .acme
                    .call("POST", &path, self.credential)
                    .json(&body)
                    .send()
                    .await
                    .problem(400, code);
                assert!(detail.contains("reason`") || detail.contains("`for`"), "{detail}");
            }
        }
        self.acme.assert_silent().await;
    }
}

#[tokio::test]
async fn an_agent_is_frozen_unfrozen_and_revoked_for_good() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    let subject = Subject {
        acme: &acme,
        kind: "agent",
        path: format!("/v1/agents/{agent}"),
        credential: &acme.tenant.admin,
    };
    subject.refuse_bad_reasons().await;
    subject.go_through_all().await;
    acme.admin("PATCH", &subject.path, json!({"name": "retired"}))
        .await
        .expect(200);
    assert_eq!(subject.get().await["status"], "revoked");
    acme.admin("POST", "/v1/agents", json!({"name": "builder"}))
        .await
        .problem(409, "name_taken");
}

#[tokio::test]
async fn a_tool_is_frozen_unfrozen_and_revoked_for_good() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    acme.news().await;
    let subject = Subject {
        acme: &acme,
        kind: "tool",
        path: "/v1/tools/mail".to_owned(),
        credential: &acme.tenant.admin,
    };
    subject.refuse_bad_reasons().await;
    subject.go_through_all().await;
    acme.admin("PUT", "/v1/tools/mail", json!({"actions": []}))
        .await
        .problem(409, "revoked_for_good");
    acme.admin("POST", "/v1/tools/mail/import", json!({"tools": []}))
        .await
        .problem(409, "revoked_for_good");
    let accept = "/v1/tools/mail/actions/send/accept";
    acme.admin("POST", accept, Value::Null)
        .await
        .problem(409, "revoked_for_good");
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .problem(409, "conflict");
    assert_eq!(subject.get().await["status"], "revoked");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_tenant_is_frozen_unfrozen_and_revoked_for_good() {
    let acme = Acme::open().await;
    let subject = Subject {
        acme: &acme,
        kind: "tenant",
        path: format!("/v1/tenants/{}", acme.tenant.id),
        credential: &acme.operator,
    };
    subject.refuse_bad_reasons().await;
    subject.go_through_all().await;
    acme.call("PATCH", &subject.path, &acme.operator)
        .json(&json!({"name": "new"}))
        .send()
        .await
        .expect(200);
    assert_eq!(subject.get().await["status"], "revoked");
}

#[tokio::test]
async fn standing_decides_before_anything_else_does() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder", "tools": "all"})).await;
    let token = acme.token(&agent).await;
    let tenant = format!("/v1/tenants/{}", acme.tenant.id);
    for (path, credential, reason) in [
        ("/v1/tools/mail", &acme.tenant.admin, "tool_quarantined"),
        (&format!("/v1/agents/{agent}"), &acme.tenant.admin, "agent_frozen"),
        (&tenant, &acme.operator, "tenant_frozen"),
    ] {
        let because = json!({"reason": "a test"});
        assert_eq!(acme.reason(&token, "mail", "read").await, "policy_permits");
        acme.post(&format!("{path}/freeze"), credential, &because)
            .await
            .expect(200);
        assert_eq!(acme.reason(&token, "mail", "read").await, reason);
        acme.post(&format!("{path}/unfreeze"), credential, &because)
            .await
            .expect(200);
    }
    let because = json!({"reason": "stolen"});
    acme.admin("POST", &format!("/v1/agents/{agent}/revoke"), because)
        .await
        .expect(200);
    assert_eq!(acme.reason(&token, "mail", "read").await, "agent_revoked");
}

#[tokio::test]
async fn an_ask_is_told_how_its_tenant_stands_and_why() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder", "tools": "all"})).await;
    let token = acme.token(&agent).await;
    let ask = json!({
        "tool_call": {"tool": "mail", "action": "read", "parameters": {}},
        "context": {"source_trust": "trusted_internal_unsigned"},
    });
    for (verb, because, words) in [
        ("freeze", "odd", "the tenant is frozen: odd"),
        ("revoke", "it has left", "the tenant is revoked: it has left"),
    ] {
        let path = format!("/v1/tenants/{}/{verb}", acme.tenant.id);
        let because = json!({ "reason": because });
        acme.post(&path, &acme.operator, &because).await.expect(200);
        let answer = acme.post("/v1/authorize", &token, &ask).await.expect(200);
        assert_eq!(
            (&answer["reason_code"], &answer["reason"]),
            (&json!("tenant_frozen"), &json!(words))
        );
    }
}

#[tokio::test]
async fn what_is_not_there_has_no_standing() {
    let acme = Acme::open().await;
    let because = json!({"reason": "a test"});
    for verb in ["freeze", "unfreeze", "revoke"] {
        for path in ["/v1/agents/agt_1", "/v1/tools/ghost"] {
            acme.admin("POST", &format!("{path}/{verb}"), because.clone())
                .await
                .problem(404, "not_found");
        }
        let path = format!("/v1/tenants/tnt_1/{verb}");
        acme.post(&path, &acme.operator, &because)
            .await
            .problem(404, "not_found");
    }
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_long_change_in_another_tenant_keeps_nobody_from_freezing() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let other = acme.found("globex").await;
    let path = format!("/v1/agents/{agent}/freeze");
    let reason = json!({"reason": "a test"});
    let tenant = other.id.parse().unwrap();
    let held = acme
        .gateway
        .change_locks
        .lock(tenant, Order::InTurn)
        .await
        .unwrap();
    acme.post(&path, &acme.tenant.admin, &reason).await.expect(200);
    // What is changed in that tenant waits for the long one.
    let body = json!({"name": "reviewer"});
    let waits = acme.post("/v1/agents", &other.admin, &body);
    let meanwhile = acme.post("/v1/agents", &acme.tenant.admin, &body);
    let waits = match futures_util::future::select(Box::pin(waits), Box::pin(meanwhile)).await {
        Either::Left(_) => panic!("two changes in one tenant at once"),
        Either::Right((made, waits)) => {
            made.expect(201);
            waits
        }
    };
    drop(held);
    waits.await.expect(201);
}

/// As long as somebody's policies are being compiled, say.
#[tokio::test]
async fn a_long_change_in_the_same_tenant_keeps_nobody_from_taking_something_away() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let agent = format!("/v1/agents/{agent}");
    let tokens = format!("{agent}/tokens");
    let token = acme.admin("POST", &tokens, Value::Null).await.expect(201);
    let key = acme.admin("POST", "/v1/keys", json!({"role": "auditor", "name": "spare"}));
    let key = key.await.expect(201);
    let tool = json!({"actions": [{"name": "read", "mutates_state": false, "risk": "low"}]});
    acme.admin("PUT", "/v1/tools/files", tool).await.expect(201);
    let ann = json!({"roles": ["approver"]});
    acme.admin("PUT", "/v1/users/ann", ann).await.expect(201);
    let only = json!({"tools": ["files"]});
    acme.admin("PATCH", &agent, only.clone()).await.expect(200);
    let trusted = json!({"attributes": {"trusted": true}});
    acme.admin("PUT", "/v1/teams/crew", trusted).await.expect(201);
    let rule = json!({"trigger": "denials", "effect": "alert", "count": 5});
    acme.admin("PUT", "/v1/rules/old", rule).await.expect(201);
    let tenant = acme.tenant.id.parse().unwrap();
    let held = acme
        .gateway
        .change_locks
        .lock(tenant, Order::InTurn)
        .await
        .unwrap();
    let reason = json!({"reason": "a test"});
    for path in [
        "/v1/tools/files/freeze",
        "/v1/runs/r-1/freeze",
        &format!("{agent}/freeze"),
    ] {
        acme.admin("POST", path, reason.clone()).await.expect(200);
    }
    let none = json!({"roles": []});
    acme.admin("PUT", "/v1/users/ann", none).await.expect(200);
    acme.admin("PUT", "/v1/teams/crew", json!({})).await.expect(200);
    let quotas = json!({"quotas": [{"window": "day", "limit": 1}]});
    for path in [format!("{agent}/quota"), "/v1/teams/crew/quota".to_owned()] {
        acme.admin("PUT", &path, quotas.clone()).await.expect(200);
    }
    let rule = json!({"trigger": "denials", "effect": "freeze", "count": 3});
    acme.admin("PUT", "/v1/rules/new", rule).await.expect(201);
    for path in [
        format!("{tokens}/{}", token["id"].as_str().unwrap()),
        format!("/v1/keys/{}", key["id"].as_str().unwrap()),
        format!("{agent}/tools/files"),
        "/v1/users/ann".to_owned(),
        "/v1/rules/old".to_owned(),
    ] {
        acme.admin("DELETE", &path, Value::Null).await.expect(204);
    }
    let path = format!("/v1/tenants/{}", acme.tenant.id);
    let quota = acme.call("PUT", &format!("{path}/quota"), &acme.operator);
    quota.json(&quotas).send().await.expect(200);
    let stricter = json!({"settings": {"run_taint": "deny", "sources": "parameter"}});
    let settings = acme.call("PATCH", &path, &acme.operator);
    settings.json(&stricter).send().await.expect(200);
    let freeze = format!("{path}/freeze");
    acme.post(&freeze, &acme.operator, &reason).await.expect(200);
    let delete = acme.call("DELETE", &path, &acme.operator);
    delete.send().await.expect(204);
    drop(held);
}

/// While somebody reloads them, say, and waits until another tenant's policies are compiled.
#[tokio::test]
async fn everybodys_policies_keep_nobody_from_taking_something_away() {
    let acme = Acme::open().await;
    let held = acme.gateway.change_locks.lock_all().await;
    let reason = json!({"reason": "a test"});
    let frozen = acme.admin("POST", "/v1/runs/r-1/freeze", reason);
    frozen.await.expect(200);
    drop(held);
}

#[tokio::test]
async fn several_tenants_change_at_once_and_none_while_everybodys_policies_do() {
    let acme = Acme::open().await;
    let mut tenants = Vec::new();
    for name in ["globex", "initech", "umbrella"] {
        tenants.push(acme.found(name).await);
    }
    let hire = |admin: &str, name: usize| {
        let (acme, admin) = (&acme, admin.to_owned());
        async move {
            acme.post("/v1/agents", &admin, &json!({"name": format!("agent-{name}")}))
                .await
        }
    };
    let changes = tenants
        .iter()
        .flat_map(|tenant| (0..4).map(|name| hire(&tenant.admin, name)));
    for reply in futures_util::future::join_all(changes).await {
        reply.expect(201);
    }
    let held = acme.gateway.change_locks.lock_all().await;
    let waits = hire(&acme.tenant.admin, 0);
    let reads = acme.get("/v1/agents", &acme.tenant.admin);
    let waits = match futures_util::future::select(Box::pin(waits), Box::pin(reads)).await {
        Either::Left(_) => panic!("a change while the base policies change"),
        Either::Right((_, waits)) => waits,
    };
    drop(held);
    waits.await.expect(201);
}
