//! Where single parameters came from: what it does to the whole call, or to its parameter, as the tenant has it.

use crate::reason;
use crate::stage::Stage;
use serde_json::{Value, json};

/// A stage with a bank, and a policy about where recipients come from.
async fn bank(rule: &str) -> Stage {
    let stage = Stage::set().await;
    let schema = json!({"type": "object", "properties": {"recipient": {"type": "string"}, "amount": {"type": "integer"}}});
    let tool = json!({"actions": [{"name": "send_money", "mutates_state": true, "risk": "medium", "input_schema": schema}]});
    stage.admin("PUT", "/v1/tools/bank", &tool).await.expect(201);
    stage.settle(json!({"sources": rule})).await;
    let cedar = r#"@id("recipient") @reason("The recipient comes from outside")
        forbid (principal, action == Action::"bank/send_money", resource)
        when { context.sources.recipient.rank <= 2 };"#;
    let body = json!({"name": "transfers", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    stage
}

fn sending(sources: &Value) -> Value {
    json!({
        "tool_call": {"tool": "bank", "action": "send_money", "parameters": {"recipient": "DE02", "amount": 3}},
        "context": {"source_trust": "trusted_internal_unsigned", "sources": sources},
    })
}

#[tokio::test]
async fn what_comes_from_outside_may_be_an_amount_and_not_a_recipient() {
    let stage = bank("parameter").await;
    for (sources, reason) in [
        (json!({}), "policy_permits"),
        (json!({"/amount": "untrusted_external"}), "policy_permits"),
        (json!({"/recipient": "untrusted_external"}), "policy_forbids"),
        (json!({"/recipient/0": "unknown"}), "policy_forbids"),
        (json!({"": "malicious_suspected"}), "policy_forbids"),
        (json!({"/recipent": "malicious_suspected"}), "policy_forbids"),
        (json!({"/recipients": "untrusted_external"}), "policy_forbids"),
    ] {
        let answer = stage.ask(&sending(&sources)).await.expect(200);
        assert_eq!(answer["reason_code"], reason, "{sources}");
        assert_eq!(
            answer["trust"]["effective"], "trusted_internal_unsigned",
            "{sources}"
        );
        let recorded = stage.decisions().await.pop().unwrap();
        let said = recorded.get("sources").cloned().unwrap_or(json!({}));
        assert_eq!(said, sources, "the entry tells what the caller said");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn what_is_no_pointer_is_refused() {
    let stage = bank("parameter").await;
    for odd in ["recipient", "/recipient~", "/c~d", "/~2"] {
        let sources = json!({odd: "untrusted_external"});
        let refused = stage.ask(&sending(&sources)).await;
        let detail = refused.problem(400, "invalid_field");
        assert!(detail.contains(odd), "{detail}");
    }
    assert_eq!(stage.count("decision").await, 0);
}

#[tokio::test]
async fn the_source_of_a_parameter_that_was_sent_and_not_declared_is_its_own() {
    let stage = bank("parameter").await;
    let mut ask = sending(&json!({"/note": "untrusted_external"}));
    assert_eq!(reason(&stage, &ask).await, "policy_forbids");
    ask["tool_call"]["parameters"]["note"] = json!("rent");
    assert_eq!(reason(&stage, &ask).await, "policy_permits");
}

/// U+1F600 begins with a surrogate, which comes before U+FF61 where members are put in order, and behind it where code
/// points are.
#[tokio::test]
async fn whatever_parameters_are_called_the_ledger_verifies() {
    let stage = bank("parameter").await;
    let sources = json!({"": "semi_trusted_customer", "/\u{ff61}": "unknown", "/\u{1f600}": "unknown", "/\"\n": "unknown"});
    stage.ask(&sending(&sources)).await.expect(200);
    let recorded = stage.decisions().await.pop().unwrap();
    assert_eq!(recorded["sources"], sources);
    stage.assert_sound().await;
}

#[tokio::test]
async fn who_approves_is_shown_what_comes_from_outside_as_long_as_the_parameters() {
    let stage = bank("parameter").await;
    stage.settle(json!({"run_taint": "approve"})).await;
    let sources = json!({"/amount": "untrusted_external"});
    let mut ask = sending(&sources);
    ask["trace"] = json!({"run_id": "run-1"});
    let asked = stage.ask(&ask).await.expect(200);
    assert_eq!(asked["reason_code"], "run_taint_needs_approval");
    let path = format!("/v1/approvals/{}", asked["approval"]["id"].as_str().unwrap());
    let shown = async || stage.get(&path, &stage.agent.token).await.expect(200);
    let open = shown().await;
    assert_eq!(
        (&open["sources"], &open["run_worst"], &open["trust"]["effective"]),
        (
            &sources,
            &json!("untrusted_external"),
            &json!("trusted_internal_unsigned")
        )
    );
    stage.clock.advance_millis(3_600_000);
    let over = shown().await;
    assert_eq!(
        (&over["status"], over.get("sources"), &over["run_worst"]),
        (&json!("expired"), None, &json!("untrusted_external"))
    );
}

#[tokio::test]
async fn without_that_setting_the_worst_source_counts_for_the_whole_call() {
    let stage = bank("call").await;
    let answer = stage
        .ask(&sending(&json!({"/amount": "untrusted_external"})))
        .await
        .expect(200);
    assert_eq!(
        (&answer["reason_code"], &answer["trust"]["effective"]),
        (&json!("policy_forbids"), &json!("untrusted_external"))
    );
    assert!(
        answer["matched_policies"]
            .as_array()
            .unwrap()
            .contains(&json!("base/mutation-from-untrusted")),
        "{answer}"
    );
}
