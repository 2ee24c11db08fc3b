//! What a body must be to count as an ask, and the digest of the action in it.

use crate::support::{ask, ask_json, canonical};
use canon::Digest;
use engine::{Ask, Mode};
use model::{Name, Trust};
use serde_json::{Value, json};

#[test]
fn it_is_the_same_ask_wherever_its_id_stands() {
    let name = Name::new("call-1").unwrap();
    let without = canonical(&ask_json("read", json!({})));
    let with = canonical(&ask_json("read", json!({"request_id": "call-1"})));
    let inside = Ask::parse(&with).unwrap();
    for (text, request_id) in [(&without, Some(&name)), (&with, Some(&name)), (&with, None)] {
        let read = Ask::parse_named(text, request_id).unwrap();
        assert_eq!(
            (&read.request_id, read.digest),
            (&inside.request_id, inside.digest)
        );
    }
    let other = Name::new("call-2").unwrap();
    let read = Ask::parse_named(&with, Some(&other)).unwrap();
    assert_eq!((read.request_id, read.digest), (Some(name), inside.digest));
    let unnamed = Ask::parse_named(&without, None).unwrap();
    assert_eq!((unnamed.request_id, unnamed.digest), (None, without.digest()));
}

fn error(body: &Value) -> String {
    Ask::parse(&canonical(body)).unwrap_err().to_string()
}

fn error_with(members: Value) -> String {
    error(&ask_json("read", members))
}

#[test]
fn the_example_of_the_contract_is_read_whole() {
    let ask = Ask::parse(&canonical(&json!({
        "request_id": "call-7f3",
        "tool_call": {"tool": "github", "action": "merge_pull_request", "resource": "repo:acme/widgets#42",
                      "mutates_state": true, "parameters": {"base_branch": "main", "number": 42}},
        "context": {"source_trust": "semi_trusted_customer", "contains_sensitive_data": false,
                    "sources": {"/base_branch": "trusted_internal_unsigned"}, "provenance": "eyJ"},
        "agent": {"environment": "production"}, "user": {"id": "u-17"},
        "trace": {"run_id": "run-1", "parent_run_id": null, "trace_id": "0af7651916cd43dd8448eb211c80319c"},
        "estimate": {"unit": "USD_MICROCENTS", "amount": 250_000}, "ttl_ms": 60_000,
        "approval_id": "apr_1", "mode": "enforce"
    })))
    .unwrap();
    assert_eq!(ask.request_id.unwrap().as_str(), "call-7f3");
    assert_eq!(ask.claimed_trust, Trust::SemiTrustedCustomer);
    assert_eq!(ask.sources.worst(), Some(Trust::TrustedInternalUnsigned));
    assert!(ask.claims_mutation && ask.provenance.as_deref() == Some("eyJ") && !ask.contains_sensitive_data);
    assert_eq!(ask.mode, Mode::Enforce);
    assert_eq!(ask.estimate.unwrap().amount.get(), 250_000);
    assert_eq!((ask.run_id.unwrap().as_str(), ask.parent_run_id), ("run-1", None));
}

#[test]
fn the_action_hash_is_what_any_language_would_compute() {
    let members = json!({"tool_call": {"action": "merge_pull_request", "resource": "repo:acme/widgets#42",
        "parameters": {"number": 42, "base_branch": "main"}}});
    let preimage = r#"{"action":"merge_pull_request","parameters":{"base_branch":"main","number":42},"resource":"repo:acme/widgets#42","tool":"github","type":"countersign.action/1"}"#;
    assert_eq!(
        ask("read", members).action.digest,
        Digest::of(preimage.as_bytes())
    );
    let without_resource =
        r#"{"action":"read","parameters":{},"resource":null,"tool":"github","type":"countersign.action/1"}"#;
    assert_eq!(
        ask("read", json!({})).action.digest,
        Digest::of(without_resource.as_bytes())
    );
}

#[test]
fn the_order_of_members_makes_no_other_action_and_a_changed_value_does() {
    let with = |parameters: &str| {
        let body = format!(
            r#"{{"context":{{"source_trust":"unknown"}},"tool_call":{{"parameters":{parameters},"tool":"t","action":"a"}}}}"#
        );
        Ask::parse(&canonical(&serde_json::from_str(&body).unwrap()))
            .unwrap()
            .action
            .digest
    };
    assert_eq!(with(r#"{"a":1,"b":2}"#), with(r#"{ "b":2.0, "a":1e0 }"#));
    assert_ne!(with(r#"{"a":1,"b":2}"#), with(r#"{"a":1,"b":3}"#));
}

#[test]
fn a_field_that_nobody_knows_is_refused_wherever_it_is() {
    for (members, message) in [
        (
            json!({"aproval_id": "x"}),
            "`/aproval_id`: unknown field `aproval_id`",
        ),
        (
            json!({"tool_call": {"mutate_state": true}}),
            "`/tool_call/mutate_state`: unknown field",
        ),
        (json!({"context": {"v": 1}}), "`/context/v`: unknown field `v`"),
        (
            json!({"user": {"id": "u", "role": "admin"}}),
            "`/user/role`: unknown field `role`",
        ),
    ] {
        let body = ask_json("read", members);
        let error = Ask::parse(&canonical(&body)).unwrap_err();
        assert!(error.0.is_unknown_field);
        assert!(error.to_string().starts_with(message), "{error}");
    }
}

#[test]
fn a_wrong_or_missing_field_is_named() {
    for (members, start) in [
        (
            json!({"tool_call": {"parameters": [1]}}),
            "`/tool_call/parameters`: should be an object",
        ),
        (
            json!({"tool_call": {"tool": "a/b"}}),
            "`/tool_call/tool`: `a/b` has a `/`",
        ),
        (
            json!({"tool_call": {"action": ""}}),
            "`/tool_call/action`: a name has at least one byte",
        ),
        (
            json!({"tool_call": {"mutates_state": "yes"}}),
            "`/tool_call/mutates_state`: invalid type: string",
        ),
        (
            json!({"tool_call": {"resource": ""}}),
            "`/tool_call/resource`: should have 1 to",
        ),
        (
            json!({"context": {"source_trust": "trusted"}}),
            "`/context/source_trust`: unknown variant `trusted`",
        ),
        (
            json!({"context": {"sources": {"base": "unknown"}}}),
            "`/context/sources`: `base` is not a JSON Pointer",
        ),
        (
            json!({"context": {"sources": {"/base~": "unknown"}}}),
            "`/context/sources`: `/base~` is not a JSON Pointer",
        ),
        (
            json!({"context": {"sources": {"/a/c~d": "unknown"}}}),
            "`/context/sources`: `/a/c~d` is not a JSON Pointer",
        ),
        (
            json!({"context": {"attributes": 1}}),
            "`/context/attributes`: should be an object",
        ),
        (
            json!({"ttl_ms": 1}),
            "`/ttl_ms`: should be from 1000 to 86400000 milliseconds",
        ),
        (
            json!({"estimate": {"unit": "USD", "amount": -1}}),
            "`/estimate/amount`: should be from 0 to 9007199254740991",
        ),
        (
            json!({"estimate": {"unit": "USD", "amount": 1.5}}),
            "`/estimate/amount`: invalid type: floating point",
        ),
        (
            json!({"agent": {"id": "agt_x"}}),
            "`/agent/id`: `agt_x` is not an id",
        ),
        (json!({"mode": "yolo"}), "`/mode`: unknown variant `yolo`"),
        (
            json!({"trace": {"run_id": "."}}),
            "`/trace/run_id`: `.` cannot stand in the path of an address",
        ),
        (
            json!({"trace": {"run_id": "run-1", "parent_run_id": ".."}}),
            "`/trace/parent_run_id`: `..` cannot stand in the path of an address",
        ),
    ] {
        let message = error_with(members);
        assert!(message.starts_with(start), "{message}");
    }
    assert_eq!(
        error(&json!({"context": {"source_trust": "unknown"}})),
        "the body: missing field `tool_call`"
    );
}

#[test]
fn an_ask_cannot_be_spelt_without_naming_its_members() {
    let whole = json!([
        null,
        ["github", "read", null, null, {}],
        ["unknown", null, null, null, null],
        null,
        null,
        null,
        null,
        null,
        null,
        null
    ]);
    assert_eq!(error(&whole), "the body: invalid type: array, expected an object");
    let part =
        json!({"tool_call": ["github", "read", null, null, {}], "context": {"source_trust": "unknown"}});
    assert_eq!(
        error(&part),
        "`/tool_call`: invalid type: array, expected an object"
    );
}

#[test]
fn an_amount_that_json_would_round_is_refused() {
    let message = error_with(json!({"estimate": {"unit": "USD", "amount": 9_007_199_254_740_993_i64}}));
    assert!(
        message.starts_with("`/estimate/amount`: should be from 0 to 9007199254740991"),
        "{message}"
    );
}
