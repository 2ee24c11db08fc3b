//! `/v1/tools`.

use crate::{Acme, NOW, column};
use serde_json::{Value, json};

fn schema() -> Value {
    json!({"type": "object", "properties": {"to": {"type": "string"}}, "required": ["to"]})
}

/// With the bounds that generators write.
#[tokio::test]
async fn a_schema_may_have_bounds_of_64_bits() {
    let acme = Acme::open().await;
    let body = r#"{"actions":[{"name":"pay","mutates_state":true,"risk":"low","input_schema":
        {"properties":{"cents":{"type":"integer","maximum":9223372036854775807}}}}]}"#;
    let put = acme.call("PUT", "/v1/tools/bank", &acme.tenant.admin);
    put.body(body).send().await.expect(201);
}

/// A value that a schema names is sent, and told apart from its neighbours.
#[tokio::test]
async fn a_schema_may_have_no_other_integers_that_would_be_rounded() {
    let acme = Acme::open().await;
    for member in ["const", "default"] {
        let body = format!(
            r#"{{"actions":[{{"name":"pay","mutates_state":true,"risk":"low","input_schema":
            {{"properties":{{"account":{{"type":"integer","{member}":9007199254740993}}}}}}}}]}}"#
        );
        let put = acme.call("PUT", "/v1/tools/bank", &acme.tenant.admin);
        let problem = put.body(body).send().await.expect(400);
        assert_eq!(problem["code"], "malformed_json");
        let detail = problem["detail"].as_str().unwrap();
        let place = format!("/actions/0/input_schema/properties/account/{member}");
        assert!(detail.contains(&place), "{detail}");
    }
    acme.assert_silent().await;
}

fn actions() -> Value {
    json!([
        {"name": "read", "mutates_state": false, "risk": "low"},
        {"name": "send", "mutates_state": true, "risk": "high", "input_schema": schema(), "description": "sends"},
    ])
}

#[tokio::test]
async fn a_tool_is_put_read_listed_and_deleted() {
    let acme = Acme::open().await;
    let view =
        json!({"name": "mail", "actions": actions(), "canary": false, "status": "active", "created_at": NOW});
    let put = || acme.admin("PUT", "/v1/tools/mail", json!({"actions": actions()}));
    assert_eq!(put().await.expect(201), view);
    assert_eq!(acme.told("tool_put").await, view);
    assert_eq!(put().await.expect(200), view);
    acme.assert_silent().await;
    assert_eq!(
        acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200),
        view
    );

    acme.clock.advance_millis(1);
    let changed =
        json!({"name": "mail", "actions": [], "canary": true, "status": "active", "created_at": NOW});
    let body = json!({"actions": [], "canary": true});
    assert_eq!(
        acme.admin("PUT", "/v1/tools/mail", body).await.expect(200),
        changed
    );
    assert_eq!(acme.told("tool_put").await, changed);
    for name in ["a", "b"] {
        acme.admin("PUT", &format!("/v1/tools/{name}"), json!({"actions": []}))
            .await
            .expect(201);
    }
    assert_eq!(column(&acme.pages("/v1/tools").await, "name"), ["a", "b", "mail"]);
    acme.news().await;

    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
    assert_eq!(
        acme.told("tool_deleted").await,
        json!({"name": "mail", "withdrawn_from": []})
    );
    acme.admin("GET", "/v1/tools/mail", Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn the_registered_facts_and_schema_decide() {
    let acme = Acme::open().await;
    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    assert_eq!(acme.reason(&token, "mail", "read").await, "unknown_tool");
    acme.admin("PUT", "/v1/tools/mail", json!({"actions": actions()}))
        .await
        .expect(201);
    assert_eq!(acme.reason(&token, "mail", "read").await, "policy_permits");
    assert_eq!(acme.reason(&token, "mail", "send").await, "invalid_parameters");
    assert_eq!(acme.reason(&token, "mail", "burn").await, "unknown_tool");
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
    assert_eq!(acme.reason(&token, "mail", "read").await, "unknown_tool");
}

#[tokio::test]
async fn no_way_around_a_frozen_tool_lifts_its_quarantine() {
    let acme = Acme::open().await;
    acme.put_mail().await;
    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    acme.admin("POST", "/v1/tools/mail/freeze", json!({"reason": "odd"}))
        .await
        .expect(200);
    acme.news().await;
    let detail = acme
        .admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .problem(409, "conflict");
    assert!(detail.contains("frozen"), "{detail}");
    acme.assert_silent().await;
    let put = acme
        .admin("PUT", "/v1/tools/mail", json!({"actions": actions()}))
        .await
        .expect(200);
    assert_eq!(
        (&put["status"], &put["reason"]),
        (&json!("frozen"), &json!("odd"))
    );
    let list = json!({"tools": [{"name": "search", "inputSchema": {"type": "object"}}]});
    acme.admin("POST", "/v1/tools/mail/import", list)
        .await
        .expect(200);
    for action in ["read", "search"] {
        assert_eq!(acme.reason(&token, "mail", action).await, "tool_quarantined");
    }
}

#[tokio::test]
async fn a_bad_tool_is_refused_with_what_is_wrong() {
    let acme = Acme::open().await;
    let with = |member: &str, value: Value| {
        let mut action = json!({"name": "send", "mutates_state": true, "risk": "high"});
        action[member] = value;
        json!({"actions": [action]})
    };
    let many: Vec<_> = (0..257)
        .map(|n| json!({"name": format!("a{n}"), "mutates_state": true, "risk": "low"}))
        .collect();
    for (body, code, part) in [
        (json!({}), "invalid_field", "`actions`"),
        (
            json!({"actions": [{"name": "send", "risk": "high"}]}),
            "invalid_field",
            "`mutates_state`",
        ),
        (
            json!({"actions": [{"name": "send", "mutates_state": true}]}),
            "invalid_field",
            "`risk`",
        ),
        (
            with("risk", json!("severe")),
            "invalid_field",
            "`/actions/0/risk`",
        ),
        (with("name", json!("")), "invalid_field", "`/actions/0/name`"),
        (with("mutates", json!(true)), "unknown_field", "`mutates`"),
        (with("pinned", json!(null)), "unknown_field", "`pinned`"),
        (
            with("input_schema", json!("object")),
            "invalid_field",
            "`/actions/0/input_schema`",
        ),
        (
            with("input_schema", json!({"title": "x".repeat(65_536)})),
            "invalid_field",
            "65536 bytes",
        ),
        (json!({"actions": many}), "invalid_field", "at most 256 actions"),
        (
            json!({"actions": [actions()[0], actions()[0]]}),
            "invalid_field",
            "`read` stands in the list already",
        ),
        (
            json!({"actions": [], "status": "active"}),
            "unknown_field",
            "`status`",
        ),
    ] {
        let detail = acme.admin("PUT", "/v1/tools/mail", body).await.problem(400, code);
        assert!(detail.contains(part), "{detail}");
    }
    acme.admin("PUT", "/v1/tools/a%2Fb", json!({"actions": []}))
        .await
        .problem(400, "invalid_parameter");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_schema_that_does_not_compile_is_refused_with_diagnostics_and_changes_nothing() {
    let acme = Acme::open().await;
    let action =
        json!({"name": "send", "mutates_state": true, "risk": "high", "input_schema": {"type": "strnig"}});
    let refused = acme
        .admin("PUT", "/v1/tools/mail", json!({"actions": [action]}))
        .await;
    let detail = refused.problem(422, "policy_invalid");
    assert!(
        detail.starts_with("the input schema of `mail/send` is no JSON Schema: "),
        "{detail}"
    );
    let diagnostics = refused.json()["diagnostics"].clone();
    assert!(diagnostics[0]["message"].is_string(), "{diagnostics}");
    acme.admin("GET", "/v1/tools/mail", Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_schema_with_a_pattern_that_is_not_of_ecma_262_is_refused_and_told_of() {
    let acme = Acme::open().await;
    let schema = json!({"type": "object", "properties": {"to": {"pattern": "(?i)drop"}}});
    let action = json!({"name": "send", "mutates_state": true, "risk": "high", "input_schema": schema});
    let refused = acme
        .admin("PUT", "/v1/tools/mail", json!({"actions": [action]}))
        .await;
    let said = "the input schema of `mail/send` has the pattern \"(?i)drop\" with `(?i`: flags of groups are not supported";
    let detail = refused.problem(422, "policy_invalid");
    assert_eq!(detail, format!("{said}; mend the schema, nothing was changed"));
    assert_eq!(refused.json()["diagnostics"][0]["message"], said);
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_schema_whose_references_multiply_is_refused() {
    let acme = Acme::open().await;
    let twice = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
        (format!("a{number}"), json!({"allOf": [next, next]}))
    };
    let mut definitions: serde_json::Map<_, _> = (0..14).map(twice).collect();
    definitions.insert("a14".to_owned(), json!({"type": "string"}));
    let schema = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": definitions});
    let action = json!({"name": "send", "mutates_state": true, "risk": "high", "input_schema": schema});
    let listed = json!({"tools": [{"name": "send", "inputSchema": schema}]});
    for (method, path, body) in [
        ("PUT", "/v1/tools/mail", json!({"actions": [action]})),
        ("POST", "/v1/tools/mail/import", listed),
    ] {
        let refused = acme.admin(method, path, body).await;
        refused.problem(422, "policy_invalid");
        assert_eq!(
            refused.json()["diagnostics"][0]["message"],
            "the input schema of `mail/send` comes to more than 10000 subschemas with its references followed"
        );
    }
    acme.assert_silent().await;
}
