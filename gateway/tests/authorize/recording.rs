//! What is written down of a decision: what it was made from, and what of the parameters the tenant keeps.

use crate::stage::{Stage, asking, changing, injected, named, reading};
use canon::Digest;
use serde_json::{Value, json};
use store::faults::Fault;

impl Stage {
    /// Sets members of the tenant's settings.
    pub(crate) async fn settle(&self, settings: Value) {
        let path = format!("/v1/tenants/{}", self.tenant);
        let call = self.call("PATCH", &path, &self.operator);
        call.json(&json!({"settings": settings})).send().await.expect(200);
    }

    /// The body of the entry of the last decision.
    async fn last_decision(&self) -> Value {
        self.decisions().await.pop().unwrap()
    }

    /// The contents that are stored under these digests; `None` for those that are not.
    async fn stored(&self, digests: &[&Value]) -> Vec<Option<Value>> {
        let digests: Vec<Digest> = digests
            .iter()
            .map(|digest| serde_json::from_value((*digest).clone()).unwrap())
            .collect();
        let found = self.store.contents(self.tenant, &digests).await.unwrap();
        digests
            .iter()
            .map(|digest| {
                let (_, bytes) = found.iter().find(|(found, _)| found == digest)?;
                assert_eq!(Digest::of(bytes), *digest);
                Some(serde_json::from_slice(bytes).unwrap())
            })
            .collect()
    }
}

#[tokio::test]
async fn an_entry_names_what_it_was_made_from() {
    let stage = Stage::set().await;
    stage
        .settle(json!({"context_attributes": {"region": "String"}}))
        .await;
    stage
        .admin("PUT", "/v1/teams/sales", &json!({"attributes": {"floor": 3}}))
        .await
        .expect(201);
    stage
        .admin("PUT", "/v1/users/ann", &json!({"teams": ["sales"]}))
        .await
        .expect(201);
    let agent =
        json!({"name": "seller", "tools": "all", "team": "sales", "owner": "ann", "environment": "test"});
    let agent = stage.hire(agent).await;
    let mut ask = asking("github", "merge_pull_request", "trusted_internal_signed");
    ask["tool_call"]["parameters"] = json!({"number": 1, "base_branch": "dev"});
    ask["user"] = json!({"id": "ann"});
    ask["context"]["contains_sensitive_data"] = json!(true);
    ask["context"]["attributes"] = json!({"z": [1], "region": "eu"});
    ask["context"]["sources"] =
        json!({"/number": "semi_trusted_customer", "/base_branch": "trusted_internal_unsigned"});
    stage.clock.advance_millis(1_234);
    stage.post("/v1/authorize", &agent.token, &ask).await.expect(200);

    let entry = stage.last_decision().await;
    assert_eq!(entry["judged_at"], "2026-01-31T09:30:01.234Z");
    assert_eq!(entry["contains_sensitive_data"], true);
    assert_eq!(entry["attributes"], json!({"region": "eu", "z": [1]}));
    assert_eq!(
        entry["trust"],
        json!({"claimed": "trusted_internal_signed", "effective": "semi_trusted_customer", "worst_source": "semi_trusted_customer"})
    );
    for absent in ["parameters", "redacted", "mode", "would_have", "granted"] {
        assert_eq!(entry[absent], Value::Null, "{absent}");
    }
    let facts = &entry["facts"];
    let stored = stage
        .stored(&[
            &facts["agent"],
            &facts["team"],
            &facts["user"],
            &facts["action"],
            &entry["policy_digest"],
        ])
        .await;
    let merge_schema = json!({"type": "object", "required": ["number"], "properties":
        {"number": {"type": "integer"}, "base_branch": {"type": "string"}}});
    assert_eq!(
        stored[..4],
        [
            json!({"type": "countersign.agent/1", "id": agent.id, "name": "seller", "team": "sales", "owner": "ann",
                "environment": "test", "risk_tier": "low"}),
            json!({"type": "countersign.team/1", "name": "sales", "attributes": {"floor": 3}}),
            json!({"type": "countersign.user/1", "name": "ann", "teams": ["sales"]}),
            json!({"type": "countersign.tool_action/1", "tool": "github", "action": "merge_pull_request",
                "mutates_state": true, "risk": "high", "input_schema": merge_schema}),
        ]
        .map(Some)
    );
    let policies = stored[4].as_ref().unwrap().as_array().unwrap();
    assert!(
        policies.iter().any(|policy| policy[0] == "base/merge-to-main"),
        "{policies:?}"
    );
    stage.assert_sound().await;
}

#[tokio::test]
async fn what_no_policy_sees_makes_no_new_record() {
    let stage = Stage::set().await;
    let facts = async || {
        stage.ask(&reading()).await.expect(200);
        stage.last_decision().await["facts"].clone()
    };
    let before = facts().await;
    let path = format!("/v1/agents/{}/quota", stage.agent.id);
    let bucket = json!({"bucket": {"capacity": 1000, "refill_per_second": 1000}});
    stage.admin("PUT", &path, &bucket).await.expect(200);
    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    assert_eq!(facts().await, before);
    let path = format!("/v1/agents/{}", stage.agent.id);
    stage
        .admin("PATCH", &path, &json!({"risk_tier": "medium"}))
        .await
        .expect(200);
    let after = facts().await;
    assert_eq!(after["action"], before["action"]);
    assert_ne!(after["agent"], before["agent"]);
    let stored = stage.stored(&[&before["agent"], &after["agent"]]).await;
    let tiers: Vec<_> = stored
        .iter()
        .map(|record| &record.as_ref().unwrap()["risk_tier"])
        .collect();
    assert_eq!(tiers, ["low", "medium"]);
}

#[tokio::test]
async fn a_record_is_stored_with_the_first_entry_that_names_it_whatever_becomes_of_commits() {
    for fault in [Fault::Lose, Fault::LoseUnknown, Fault::KeepButReportUnknown] {
        let stage = Stage::set().await;
        stage.faults.plan([fault]);
        stage
            .ask(&named(changing(), "first"))
            .await
            .problem(503, "ledger_unavailable");
        for ask in [named(changing(), "first"), changing()] {
            stage.ask(&ask).await.expect(200);
        }
        for entry in stage.decisions().await {
            let facts = &entry["facts"];
            let stored = stage
                .stored(&[&facts["agent"], &facts["action"], &entry["policy_digest"]])
                .await;
            assert!(stored.iter().all(Option::is_some), "{fault:?}: {entry}");
        }
    }
}

#[tokio::test]
async fn after_a_restart_what_is_stored_is_written_again_and_stays_what_it_was() {
    let stage = Stage::set().await;
    stage.ask(&reading()).await.expect(200);
    let before = stage.last_decision().await;
    let stage = stage.restart().await;
    stage.ask(&reading()).await.expect(200);
    let after = stage.last_decision().await;
    assert_eq!(after["facts"], before["facts"]);
    assert!(stage.stored(&[&after["facts"]["agent"]]).await[0].is_some());
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_denial_that_no_policy_was_asked_about_names_no_nouns() {
    let stage = Stage::set().await;
    stage.ask(&asking("nobody", "knows", "unknown")).await.expect(200);
    assert_eq!(stage.last_decision().await["facts"], Value::Null);
    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    stage.ask(&reading()).await.expect(200);
    assert_eq!(stage.last_decision().await["facts"], Value::Null);
}

/// Parameters with a secret of each sort: named by nobody, by the tenant, by an obligation.
fn secretive() -> Value {
    let mut ask = asking("vault", "store", "trusted_internal_unsigned");
    ask["tool_call"]["parameters"] =
        json!({"path": "a/b", "card": {"number": 42, "owner": "ann"}, "password": "hunter2"});
    ask
}

#[tokio::test]
async fn parameters_are_kept_as_the_tenant_has_set_it() {
    let stage = Stage::set().await;
    let card = json!({"number": 42, "owner": "ann"});
    let without = json!({"path": "a/b", "card": {"number": null, "owner": "ann"}, "password": null});
    for (settings, parameters, redacted) in [
        (
            json!({"parameters": "clear"}),
            json!({"path": "a/b", "card": card, "password": "hunter2"}),
            Value::Null,
        ),
        (
            json!({"parameters": "redacted", "redact": ["/card/number", "/card/cvc"]}),
            without,
            json!(["/card/number", "/password"]),
        ),
        (
            json!({"parameters": "digest", "redact": null}),
            Value::Null,
            Value::Null,
        ),
    ] {
        stage.settle(settings.clone()).await;
        let answer = stage.ask(&secretive()).await.expect(200);
        assert_eq!(answer["obligations"], json!(["redact:parameters.password"]));
        assert_eq!(answer["parameters"], Value::Null);
        let entry = stage.last_decision().await;
        assert_eq!(
            (&entry["parameters"], &entry["redacted"]),
            (&parameters, &redacted),
            "{settings}"
        );
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn where_something_is_redacted_nothing_is_kept_that_no_policy_has_looked_through() {
    let stage = Stage::set().await;
    let narrow = stage.hire(json!({"name": "narrow", "tools": ["github"]})).await;
    stage.settle(json!({"parameters": "redacted"})).await;
    stage
        .post("/v1/authorize", &narrow.token, &secretive())
        .await
        .expect(200);
    let entry = stage.last_decision().await;
    assert_eq!(
        (&entry["reason_code"], &entry["parameters"]),
        (&json!("tool_not_granted"), &Value::Null)
    );
    // A denial by policy is looked through like everything else.
    let mut denied = secretive();
    denied["context"]["source_trust"] = json!("untrusted_external");
    stage.ask(&denied).await.expect(200);
    let entry = stage.last_decision().await;
    assert_eq!(
        (&entry["decision"], &entry["redacted"]),
        (&json!("deny"), &json!(["/password"]))
    );
}

#[tokio::test]
async fn what_is_to_be_redacted_for_the_user_is_so_in_the_denial_of_an_agent() {
    let stage = Stage::set().await;
    stage.settle(json!({"parameters": "redacted"})).await;
    let cedar = r#"@id("pin") @decision("advise") @obligation("redact:parameters.pin")
        permit (principal in Team::"customers", action, resource);"#;
    for (method, path, body) in [
        ("PUT", "/v1/teams/customers", json!({})),
        ("PUT", "/v1/users/ada", json!({"teams": ["customers"]})),
        ("POST", "/v1/policies", json!({"name": "own", "cedar": cedar})),
    ] {
        stage.admin(method, path, &body).await.expect(201);
    }
    let mut ask = asking("vault", "store", "untrusted_external");
    ask["tool_call"]["parameters"] = json!({"path": "a/b", "pin": "1234"});
    ask["user"] = json!({"id": "ada"});
    let answer = stage.ask(&ask).await.expect(200);
    assert_eq!(
        (&answer["reason_code"], &answer["matched_policies"]),
        (&json!("policy_forbids"), &json!(["base/mutation-from-untrusted"]))
    );
    assert_eq!(answer["obligations"], json!(["redact:parameters.pin"]));
    let entry = stage.last_decision().await;
    assert_eq!(
        (&entry["parameters"], &entry["redacted"]),
        (&json!({"path": "a/b", "pin": null}), &json!(["/pin"]))
    );
}

#[tokio::test]
async fn where_more_is_to_be_redacted_than_is_told_no_parameters_are_kept() {
    let stage = Stage::set().await;
    stage.settle(json!({"parameters": "redacted"})).await;
    let advice = (0..65).map(|number| {
        format!(
            "@id(\"s{number}\") @decision(\"advise\") @obligation(\"redact:parameters.s{number}\")
             permit (principal, action, resource);"
        )
    });
    let cedar = advice.collect::<Vec<_>>().join("\n");
    let policy = json!({"name": "own", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &policy).await.expect(201);
    let mut ask = asking("vault", "store", "untrusted_external");
    let secrets = (0..65).map(|number| (format!("s{number}"), json!("1234")));
    ask["tool_call"]["parameters"] = Value::Object(secrets.collect());
    ask["tool_call"]["parameters"]["path"] = json!("a/b");
    let answer = stage.ask(&ask).await.expect(200);
    assert_eq!(answer["reason_code"], "policy_forbids");
    let reason = answer["reason"].as_str().unwrap();
    let end = " … and 1 more of the policies that advise; more than 64 obligations apply";
    assert!(reason.ends_with(end), "{reason}");
    assert_eq!(answer["obligations"].as_array().unwrap().len(), 64);
    assert_eq!(answer["matched_policies"].as_array().unwrap().len(), 65);
    let entry = stage.last_decision().await;
    assert_eq!(
        (&entry["parameters"], &entry["redacted"]),
        (&Value::Null, &Value::Null)
    );
}

#[tokio::test]
async fn settings_that_contradict_each_other_are_refused() {
    let stage = Stage::set().await;
    let path = format!("/v1/tenants/{}", stage.tenant);
    for settings in [
        json!({"redact": ["/x"]}),
        json!({"parameters": "clear", "redact": ["/x"]}),
        json!({"parameters": "redacted", "redact": ["x"]}),
    ] {
        let call = stage.call("PATCH", &path, &stage.operator);
        let reply = call.json(&json!({"settings": settings})).send().await;
        reply.problem(400, "invalid_field");
        let body = json!({"name": "other", "settings": settings});
        stage
            .post("/v1/tenants", &stage.operator, &body)
            .await
            .problem(400, "invalid_field");
    }
    assert_eq!(stage.ask(&injected()).await.expect(200)["decision"], "deny");
}
