//! What a suite says when something is not as expected.

use super::*;
use crate::base::BasePolicies;
use crate::world::tenant;
use serde_json::json;

const POLICY: &str = r#"
    @id("limit") @decision("require_approval") @approvers("leads")
    permit (principal, action == Action::"bank/pay", resource) when { context.input.amount > 10 };
    @id("never") forbid (principal, action == Action::"bank/pay", resource) when { context.input.amount > 1000 };
    @id("fails") permit (principal, action == Action::"bank/pay", resource)
      when { context.input.amount == 13 && context.input.amount * 9223372036854775807 > 0 };
"#;

fn tools() -> Value {
    let schema = json!({"properties": {"amount": {"type": "integer"}}, "required": ["amount"]});
    json!({
        "tools": [{"name": "bank", "actions": [{"name": "pay", "mutates_state": true, "risk": "high", "input_schema": schema}]}],
        "context_attributes": {"ticket": "string"},
    })
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "a JSON literal is written where it is passed"
)]
fn pay(amount: i64, expect: Value) -> Value {
    json!({
        "name": format!("pay {amount}"),
        "ask": {"tool_call": {"action": "pay", "parameters": {"amount": amount}}},
        "expect": expect,
    })
}

fn tests(tests: &[Value]) -> Value {
    json!({
        "agents": {"clerk": {}},
        "defaults": {"agent": "clerk", "tool": "bank", "source_trust": "trusted_internal_unsigned"},
        "tests": tests,
    })
}

fn suite(tools: &Value, tests: &Value) -> Result<Suite, SuiteError> {
    suite_of(POLICY, tools, tests)
}

fn suite_of(policy: &str, tools: &Value, tests: &Value) -> Result<Suite, SuiteError> {
    let sources = SuiteTexts {
        policies: &[tenant("mine", policy)],
        tools: &tools.to_string(),
        tests: &tests.to_string(),
    };
    Suite::new(&Compiler::new(BasePolicies::shipped()), sources)
}

fn report(all: &[Value]) -> Report {
    suite(&tools(), &tests(all)).unwrap().run()
}

#[test]
fn what_is_as_expected_passes_and_what_nobody_tried_is_named() {
    let approval = json!({
        "decision": "require_approval", "reason_code": "policy_requires_approval", "policies": ["mine/limit"],
        "reason": "the policy `mine/limit` requires approval", "approval": {"group": "leads"}, "obligations": [],
    });
    let report = report(&[pay(11, approval), pay(10, json!({"decision": "allow"}))]);
    assert!(report.passed(), "{report:?}");
    let untested: Vec<_> = report.untested.iter().map(PolicyId::as_str).collect();
    assert_eq!(untested, ["mine/fails", "mine/never"]);
}

#[test]
fn an_approval_that_leaves_out_the_owner_is_expected_as_such() {
    let approval = |exclude_owner: bool| {
        let terms = json!({"group": "leads", "exclude_owner": exclude_owner});
        json!({"decision": "require_approval", "approval": terms})
    };
    let without_owner = POLICY.replace("@approvers(\"leads\")", "@approvers(\"leads\") @exclude_owner");
    for (policy, excludes) in [(POLICY, false), (without_owner.as_str(), true)] {
        for expected in [false, true] {
            let tests = tests(&[pay(11, approval(expected))]);
            let report = suite_of(policy, &tools(), &tests).unwrap().run();
            assert_eq!(report.passed(), expected == excludes, "{report:?}");
        }
    }
}

#[test]
fn of_several_groups_each_is_expected() {
    let more = "@id(\"more\") @decision(\"require_approval\") @approvers(\"auditors\") @quorum(\"2\")
        permit (principal, action, resource);";
    let policy = format!("{POLICY}\n{more}");
    let approval = |terms: Value| json!({"decision": "require_approval", "approval": terms});
    let both = json!({"group": "auditors", "quorum": 2, "also": [{"group": "leads"}]});
    let tests = tests(&[
        pay(11, approval(both)),
        pay(12, approval(json!({"group": "auditors", "quorum": 2}))),
    ]);
    let report = suite_of(&policy, &tools(), &tests).unwrap().run();
    assert!(report.results[0].passed(), "{report:?}");
    assert!(!report.results[1].passed(), "{report:?}");
}

#[test]
fn what_is_not_as_expected_is_told_in_sentences() {
    let wrong = json!({
        "decision": "deny", "reason_code": "policy_forbids", "policies": ["mine/never"], "approval": {"quorum": 2},
        "agent_message": "no", "errors": ["mine/limit"],
    });
    let report = report(&[pay(11, wrong)]);
    assert!(!report.passed());
    assert_eq!(
        report.results[0].differences,
        [
            "`decision` should be \"deny\" and is \"require_approval\"",
            "`reason_code` should be \"policy_forbids\" and is \"policy_requires_approval\"",
            "`agent_message` should be \"no\" and is null",
            "`policies` should be [\"mine/never\"] and is [\"mine/limit\"]",
            "`approval` should be {\"quorum\":2} and is {\"group\":\"leads\",\"quorum\":1}",
            "`errors` should be [\"mine/limit\"] and is []",
        ]
    );
}

#[test]
fn a_policy_that_fails_fails_the_test_that_did_not_expect_it() {
    let report = report(&[
        pay(13, json!({"decision": "require_approval"})),
        pay(11, json!({"decision": "require_approval"})),
    ]);
    assert_eq!(
        report.results[0].differences,
        ["`errors` should be [] and is [\"mine/fails\"]"]
    );
    assert!(report.results[1].passed());
}

#[test]
fn an_ask_that_would_be_refused_fails_and_one_for_an_unknown_tool_is_denied() {
    let mut mistyped = pay(1, json!({"decision": "allow"}));
    mistyped["ask"]["context"] = json!({"attributes": {"ticket": 5}});
    let mut unknown = pay(2, json!({"decision": "deny", "reason_code": "unknown_tool"}));
    unknown["ask"]["tool_call"]["action"] = "apy".into();
    let report = report(&[mistyped, unknown]);
    assert_eq!(
        report.results[0].differences,
        ["the ask would be refused: the attribute `ticket` is not a string"]
    );
    assert_eq!(report.results[0].ruling, None);
    assert!(report.results[1].passed());
}

#[test]
fn what_a_run_has_seen_is_what_it_had_seen_before_and_the_ask_itself() {
    let policy = "@id(\"tainted\") forbid (principal, action, resource)
        when { context has run && context.run.worst.rank <= 2 };";
    let mut tools = tools();
    tools["sources"] = "parameter".into();
    let is_tainted = |sources: Value, before: Value| {
        let mut test = pay(5, json!({"decision": "deny", "policies": ["mine/tainted"]}));
        test["ask"]["trace"] = json!({"run_id": "run-1"});
        test["ask"]["context"] = json!({ "sources": sources });
        test["run_worst"] = before;
        suite_of(policy, &tools, &tests(&[test])).unwrap().run().passed()
    };
    let read = || json!({"/amount": "untrusted_external"});
    assert!(is_tainted(read(), Value::Null));
    assert!(is_tainted(read(), json!("trusted_internal_unsigned")));
    assert!(is_tainted(json!({}), json!("untrusted_external")));
    assert!(!is_tainted(json!({}), json!("semi_trusted_customer")));
    assert!(!is_tainted(json!({}), Value::Null));
}

#[test]
fn a_whole_ask_can_be_pasted_in() {
    let mut test = pay(11, json!({"decision": "deny"}));
    test["at"] = "2025-01-01T00:00:00Z".into();
    test["ask"] = json!({
        "request_id": "call-7f3",
        "tool_call": {"tool": "bank", "action": "pay", "resource": "account:1", "mutates_state": true, "parameters": {"amount": 5}},
        "context": {
            "source_trust": "semi_trusted_customer", "contains_sensitive_data": false, "provenance": "eyJ.eyJ.c2ln",
            "sources": {"/amount": "untrusted_external"}, "attributes": {"ticket": "T-1"},
        },
        "agent": {"environment": "production"}, "user": {"id": "u-17"},
        "trace": {"run_id": "run-1", "parent_run_id": null, "trace_id": "0af7651916cd43dd8448eb211c80319c"},
        "estimate": {"unit": "USD_MICROCENTS", "amount": 250_000}, "ttl_ms": 60_000, "approval_id": "apr_1", "mode": "enforce",
    });
    assert!(report(&[test]).passed());
}

#[test]
fn what_no_ask_can_be_like_is_no_test() {
    let test = |change: &dyn Fn(&mut Value)| {
        let mut test = pay(1, json!({"decision": "allow"}));
        change(&mut test);
        suite(&tools(), &tests(&[test]))
    };
    let told = |change: &dyn Fn(&mut Value)| test(change).unwrap_err().to_string();
    let estimate = || json!({"unit": "TOKENS", "amount": 5});
    let budget = || json!({"budget": {"allocated": 100, "remaining": 10, "spent": 90}});
    assert_eq!(
        told(&|test| test["usage"] = budget()),
        "the tests cannot be read: the test `pay 1` has a `usage.budget`, and its ask no `estimate`: it counts against no budget, and policies see none"
    );
    let estimated = test(&|test| {
        test["usage"] = budget();
        test["ask"]["estimate"] = estimate();
    });
    assert!(estimated.is_ok(), "{estimated:?}");
    assert_eq!(
        told(&|test| test["run_worst"] = "unknown".into()),
        "the tests cannot be read: the test `pay 1` has a `run_worst`, and its ask is in no run: give it a `trace.run_id`"
    );
    let child = test(&|test| {
        test["run_worst"] = "unknown".into();
        test["ask"]["trace"] = json!({"parent_run_id": "run-1"});
    });
    assert!(child.is_ok(), "{child:?}");
    assert_eq!(
        told(&|test| test["ask"]["context"] = json!({"sources": {"amount": "untrusted_external"}})),
        "the tests cannot be read: the test `pay 1` has the source `amount`, which is not a JSON Pointer into the parameters, such as `/base_branch`"
    );
}

#[test]
fn files_are_read_strictly() {
    let told = |tools: &Value, tests: &Value| suite(tools, tests).unwrap_err().to_string();
    let fine = || pay(1, json!({"decision": "allow"}));
    for (member, said) in [
        ("expcet", "`/tests/0/expcet`: unknown field `expcet`"),
        ("agnet", "`/tests/0/agnet`: unknown field `agnet`"),
    ] {
        let mut test = fine();
        test[member] = "x".into();
        let told = told(&tools(), &tests(&[test]));
        assert!(
            told.starts_with(&format!("the tests cannot be read: {said}")),
            "{told}"
        );
    }
    let mut stranger = fine();
    stranger["agent"] = "nobody".into();
    assert_eq!(
        told(&tools(), &tests(&[stranger])),
        "the tests cannot be read: the test `pay 1` is asked by `nobody`, which is not among `agents`"
    );
    assert_eq!(
        told(&tools(), &tests(&[fine(), fine()])),
        "the tests cannot be read: the test `pay 1` is there twice"
    );
    let mut delegated = fine();
    delegated["ask"]["act"] = json!({"sub": "planner"});
    assert_eq!(
        told(&tools(), &tests(&[delegated])),
        "the tests cannot be read: the test `pay 1` asks in the name of others (`act`), and here one agent asks: write a test for each of them"
    );
    let mut bare = tests(&[fine()]);
    bare["defaults"] = json!({"agent": "clerk", "tool": "bank"});
    assert_eq!(
        told(&tools(), &bare),
        "the tests cannot be read: the test `pay 1` does not say the `context.source_trust`, and neither do the defaults"
    );
    let mut unsent = fine();
    unsent["ask"]["tool_call"]["parameters"] = json!({"$serde_json::private::RawValue": r#"{"amount":1}"#});
    let unsent = told(&tools(), &tests(&[unsent]));
    assert!(
        unsent.contains("key `$serde_json::private::RawValue`"),
        "{unsent}"
    );
    let mut twice = tools();
    twice["tools"] = json!([twice["tools"][0], twice["tools"][0]]);
    assert_eq!(
        told(&twice, &tests(&[])),
        "the tools cannot be read: the tool `bank` is there twice"
    );
    let other = json!({"tools": []});
    assert!(told(&other, &tests(&[])).starts_with("the policies are not valid: mine/"));
}
