//! Whether a candidate allows more, or less.

use crate::desk::{Desk, mine};
use ::model::{AgentId, SlashFreeName, SourceRule};
use policy::{Mode, TenantPolicy};
use policy_diff::report::{Answer, Direction};
use policy_diff::{Comparison, diff};
use serde_json::{Value, json};
use std::sync::Arc;

const REFUND: &str = "permit (principal, action == Action::\"payments/refund\", resource)";

/// The verdicts of all examples, before and after.
fn verdicts(direction: &Direction) -> Vec<[&'static str; 2]> {
    let verdicts = direction.examples.iter();
    verdicts
        .map(|example| [example.before.decision, example.after.decision])
        .collect()
}

fn answers(report: &policy_diff::Report) -> [Answer; 2] {
    [report.allows_more.answer, report.allows_less.answer]
}

fn refund(condition: &str) -> String {
    format!("@id(\"a\") {REFUND} when {{ {condition} }};")
}

fn approval(condition: &str) -> String {
    format!("@id(\"a\") @decision(\"require_approval\") {REFUND} when {{ {condition} }};")
}

#[tokio::test]
async fn a_wider_limit_allows_more_and_the_ask_that_shows_it_is_between_both() {
    let desk = Desk::bare();
    let [narrow, wide] = ["< 100", "< 500"].map(|limit| refund(&format!("context.input.amount {limit}")));
    let report = desk.compare(&narrow, &wide).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
    assert!(report.proof.complete);
    let [example] = &report.allows_more.examples[..] else {
        panic!("{:?}", report.allows_more.examples)
    };
    assert_eq!(
        [example.before.decision, example.after.decision],
        ["deny", "allow"]
    );
    assert_eq!(example.after.matched_policies, ["mine/a"]);
    let amount = example.ask["tool_call"]["parameters"]["amount"].as_i64().unwrap();
    assert!((100..500).contains(&amount), "{amount}");
    let mut ask = example.ask.clone();
    ask["tool_call"]["parameters"] = Value::Null;
    assert_eq!(
        ask,
        json!({
            "agent": {"id": "agt_00000000000000000000000000", "name": "agent", "risk_tier": "low"},
            "tool_call": {
                "tool": "payments", "action": "refund", "mutates_state": true, "parameters": null,
            },
            "context": {
                "trust": {
                    "claimed": "trusted_internal_unsigned", "level": "trusted_internal_unsigned", "signed": false,
                },
                "contains_sensitive_data": false,
            },
            "now": "2026-09-21T14:13:20.000Z",
        })
    );
    let back = desk.compare(&wide, &narrow).await;
    assert_eq!(answers(&back), [Answer::No, Answer::Yes]);
    assert_eq!(verdicts(&back.allows_less), [["allow", "deny"]]);
}

/// They are seen of a team that only the user is in.
#[tokio::test]
async fn an_ask_is_shown_for_the_tags_of_the_users_teams() {
    let desk = Desk::bare();
    let locked = r#"context has user && context.user in Team::"c" && Team::"c".hasTag("locked") && !(principal in Team::"c")"#;
    let permit = refund("true");
    let before = format!("{permit} @id(\"b\") forbid (principal, action, resource) when {{ {locked} }};");
    let report = desk.compare(&before, &permit).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
    let ask = &report.allows_more.examples[0].ask;
    assert_eq!(ask["user"]["teams"], json!(["c"]));
    assert!(ask["user"]["team_attributes"]["c"]["locked"].is_string(), "{ask}");
}

#[tokio::test]
async fn two_texts_that_mean_the_same_are_proven_to_be_no_different() {
    let desk = Desk::bare();
    let one = refund("context.input.amount < 100 && !(context.sensitive || context.trust.rank < 3)");
    let other = refund("context.trust.rank >= 3 && !context.sensitive && !(context.input.amount >= 100)");
    let report = desk.compare(&one, &other).await;
    assert_eq!(answers(&report), [Answer::No, Answer::No]);
    assert!(report.proof.complete && report.proof.actions == 1);
    assert_eq!(report.policies.changed[0].id, "mine/a");
}

/// To Cedar a policy that requires approval is a permit like any other.
#[tokio::test]
async fn each_verdict_is_told_from_the_others() {
    let desk = Desk::bare();
    let (plain, asking) = (refund("context.sensitive"), approval("context.sensitive"));
    let looser = desk.compare(&asking, &plain).await;
    assert_eq!(answers(&looser), [Answer::Yes, Answer::No]);
    assert_eq!(verdicts(&looser.allows_more), [["require_approval", "allow"]]);
    let stricter = desk.compare(&plain, &asking).await;
    assert_eq!(answers(&stricter), [Answer::No, Answer::Yes]);
    assert_eq!(verdicts(&stricter.allows_less), [["allow", "require_approval"]]);
    let new = desk.compare("", &asking).await;
    assert_eq!(verdicts(&new.allows_more), [["deny", "require_approval"]]);
    assert_eq!(answers(&new), [Answer::Yes, Answer::No]);
}

/// Cedar skips a forbid that fails, and here it denies.
#[tokio::test]
async fn a_forbid_that_fails_takes_away_what_it_fails_for() {
    let desk = Desk::bare();
    let permit = "@id(\"p\") permit (principal, action, resource);";
    let forbid = "@id(\"f\") forbid (principal, action == Action::\"payments/refund\", resource) \
                  when { context.input.amount * 922337203685477 < 0 };";
    let report = desk.compare(permit, &format!("{permit}{forbid}")).await;
    assert_eq!(answers(&report), [Answer::No, Answer::Yes]);
    let [example] = &report.allows_less.examples[..] else {
        panic!("{:?}", report.allows_less)
    };
    assert_eq!(example.after.reason_code, "policy_error");
    let amount = example.ask["tool_call"]["parameters"]["amount"].as_i64().unwrap();
    assert!(amount.checked_mul(922_337_203_685_477).is_none(), "{amount}");
}

#[tokio::test]
async fn a_base_forbid_stays_a_ceiling() {
    let desk = Desk::new();
    let all = "@id(\"all\") permit (principal, action, resource);";
    let report = desk.compare("", all).await;
    assert_eq!(
        answers(&report),
        [Answer::No, Answer::No],
        "{:?}",
        report.allows_more
    );
    assert!(report.proof.complete);
    assert_eq!(
        report.proof.actions, 4,
        "three actions, one of which an ask can call a mutation"
    );
}

/// An example counts only if an ask can be like it: the facts that policies see are not independent of each other.
#[tokio::test]
async fn what_no_ask_can_be_is_no_difference() {
    let desk = Desk::bare();
    for impossible in [
        "context.trust.rank == 5 && context.trust.level == \"unknown\"",
        "context.trust.level == \"trusted_internal_signed\" && context.trust.claimed == \"unknown\"",
        "context.agent.name != principal.name",
        "context.agent has environment && !(context has environment)",
        "principal is Agent && principal in Team::\"a\" && principal in Team::\"b\"",
        "principal is Agent && principal in Team::\"a\" && !(context.agent has team)",
        "principal == Agent::\"bob\"",
        "context.tool.name == \"github\"",
        "context.input.currency == \"GBP\"",
        "context.input.amount > 100000",
        "!context.parameters.contains(\"amount\")",
        "context.target_stated && context.targets.isEmpty()",
        "context.now < datetime(\"1969-12-31\")",
        "context.parameters.contains(\"note\") && !(context.input has note)",
        "context has run && context.run.worst.rank > context.trust.rank",
        "context has run && context.run.worst.rank > context.sources.note.rank",
    ] {
        let report = desk.compare("", &refund(impossible)).await;
        assert_eq!(answers(&report), [Answer::No, Answer::No], "{impossible}");
    }
}

/// Whether the least trusted parameter counts for the call is up to the tenant.
#[tokio::test]
async fn a_parameter_that_is_worse_than_the_call_is_one_where_each_counts_for_itself() {
    let desk = Desk::bare();
    let worse = refund("context.sources.note.rank < context.trust.rank");
    for (sources, answer) in [
        (SourceRule::Call, Answer::No),
        (SourceRule::Parameter, Answer::Yes),
    ] {
        let comparison = Comparison {
            sources,
            ..desk.comparison(&[mine("")], &[mine(&worse)])
        };
        let turn = desk.prover.turn().expect("nobody else has it");
        let report = diff(comparison, turn).await.expect("nothing panics");
        assert_eq!(answers(&report), [answer, Answer::No], "{sources:?}");
    }
}

/// A parameter that may be `null` has a name and no value.
#[tokio::test]
async fn a_parameter_that_may_be_null_can_be_named_without_a_value() {
    let nullable = json!({"properties": {"note": {"type": ["string", "null"]}}});
    let desk = Desk::bare_with(nullable);
    let unseen = refund("context.parameters.contains(\"note\") && !(context.input has note)");
    let report = desk.compare("", &unseen).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
}

/// A schema says what it says in its own draft, and a name is declared also behind a reference.
#[tokio::test]
async fn what_a_schema_only_seems_to_say_is_not_known() {
    let one = json!({"currency": {"type": "string", "const": "EUR"}});
    let old = |draft: &str| format!("http://json-schema.org/{draft}/schema#");
    let [of_currency, of_base] = ["currency == \"USD\"", "base == \"main\""].map(|test| {
        let (name, _) = test.split_once(' ').unwrap();
        format!("context.input has {name} && context.input.{test}")
    });
    for (schema, condition, answer) in [
        (json!({"properties": one}), &of_currency, Answer::No),
        (
            json!({"$schema": old("draft-04"), "properties": one}),
            &of_currency,
            Answer::Yes,
        ),
        // Nothing beside the reference counts, so policies see no such parameter, whatever is sent.
        (
            json!({"$schema": old("draft-07"), "$ref": "#/definitions/a", "definitions": {"a": {"type": "object"}}, "properties": one}),
            &of_currency,
            Answer::No,
        ),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"base": {"type": "string"}}}}}),
            &of_base,
            Answer::Yes,
        ),
    ] {
        let desk = Desk::bare_with(schema.clone());
        let permit = format!("@id(\"a\") {REFUND};");
        let forbid = format!(
            "{permit} @id(\"f\") forbid (principal, action == Action::\"payments/refund\", resource) when {{ {condition} }};"
        );
        let report = desk.compare(&forbid, &permit).await;
        assert_eq!(report.allows_more.answer, answer, "{schema}");
    }
}

/// An empty text and spaces are given and state nothing; whatever else is given states a target.
#[tokio::test]
async fn a_target_is_stated_by_more_than_spaces() {
    let base = json!({"properties": {"base": {"type": "string"}}, "required": ["base"]});
    let desk = Desk::bare_with(base);
    for (base, answer) in [("", Answer::Yes), (" ", Answer::Yes), ("main", Answer::No)] {
        let unstated = refund(&format!(
            "context.input.base == \"{base}\" && !context.target_stated"
        ));
        let report = desk.compare("", &unstated).await;
        assert_eq!(answers(&report), [answer, Answer::No], "{base}");
    }
}

#[tokio::test]
async fn examples_hold_whatever_policies_look_at() {
    let desk = Desk::bare();
    for condition in [
        "principal in Team::\"ops\" && context.agent.team == \"ops\"",
        "context has user && context.user in Team::\"leads\" && context.user.hasTag(\"vip\") && context.user.getTag(\"vip\") like \"y*s\"",
        "principal in Team::\"ops\" && Team::\"ops\".hasTag(\"floor\") && Team::\"ops\".getTag(\"floor\") == \"3\"",
        "principal == Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\" && principal has owner && principal.owner like \"t*\"",
        "resource == Resource::\"a \\\"quoted\\\" \\u{1F600}\" && context.run.id == \"r\"",
        "context.input.price.greaterThan(decimal(\"2.5\")) && context.input.labels.containsAll([\"a\", \"b\"])",
        "context.now.toTime() > duration(\"10h\") && context.now > datetime(\"2030-01-01\")",
        "context.targets.contains(\"main\") && !context.target_stated && context.trust.rank < 2",
        "context.attributes.region == \"eu\" && context.input.note like \"*x*\"",
        "context.input.amount * context.input.amount == 144",
        "context.usage.budget.remaining * 5 < context.usage.budget.allocated && context.usage.budget.spent > 7",
        "context.usage.calls.day.used * 10 >= context.usage.calls.day.limit * 9 && context.usage.estimate.unit == \"TOKENS\"",
        "context.sources.note.rank <= 2 && context.sources.amount.level == \"semi_trusted_customer\" && context.trust.rank >= 4",
    ] {
        let guarded = [
            ("context.run.id", "context has run && "),
            ("context.attributes.region", "context.attributes has region && "),
            ("context.input.price", "context.input has price && "),
            ("context.input.labels", "context.input has labels && "),
            ("context.input.note", "context.input has note && "),
            ("context.agent.team", "context.agent has team && "),
            ("context.usage.budget", "context.usage has budget && "),
            ("context.usage.calls.day", "context.usage.calls has day && "),
            ("context.usage.estimate", "context.usage has estimate && "),
        ];
        let guards = guarded.iter().filter(|(look, _)| condition.contains(look));
        let guards: String = guards.map(|(_, guard)| *guard).collect();
        let report = desk.compare("", &refund(&format!("{guards}{condition}"))).await;
        let more = &report.allows_more;
        assert_eq!(
            verdicts(more),
            [["deny", "allow"]],
            "{condition}: {:?}",
            more.unknown
        );
    }
}

/// The gateway refuses integers that canonical JSON writes with other digits, and takes others that are as large.
#[tokio::test]
async fn an_ask_that_nobody_can_send_is_no_example() {
    let amount = json!({"properties": {"amount": {"type": "integer"}}, "required": ["amount"]});
    let desk = Desk::bare_with(amount);
    let exact = refund("context.input.amount == 9007199254740993");
    let report = desk.compare("", &exact).await;
    assert_eq!(answers(&report), [Answer::Unknown, Answer::No]);
    let [unknown] = &report.allows_more.unknown[..] else {
        panic!("{:?}", report.allows_more.unknown)
    };
    assert!(unknown.why.contains("with other digits"), "{}", unknown.why);

    let large = refund("context.input.amount > 4611686018427387904");
    let report = desk.compare("", &large).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
    let amount = &report.allows_more.examples[0].ask["tool_call"]["parameters"]["amount"];
    let double: f64 = amount.to_string().parse().unwrap();
    assert_eq!(double.to_string(), amount.to_string());
}

#[tokio::test]
async fn what_no_budget_can_be_like_is_no_difference() {
    let desk = Desk::bare();
    let budget = "context.usage has budget && context.usage.budget";
    for impossible in [
        format!("{budget}.remaining > context.usage.budget.allocated"),
        format!("{budget}.spent < 0"),
        format!("{budget}.allocated >= 0 && !(context.usage has estimate)"),
        "context.usage.calls has run && context.usage.calls.run.used < 0".to_owned(),
    ] {
        let report = desk.compare("", &refund(&impossible)).await;
        assert_eq!(answers(&report), [Answer::No, Answer::No], "{impossible}");
    }
}

/// A policy about refunds with patterns for their note that are this long behind wildcards.
fn noting(id: &str, head: &str, lengths: &[usize]) -> String {
    let patterns = lengths.iter().map(|length| {
        let text = "w".repeat(*length);
        format!("context.input has note && context.input.note like \"*{text}*\"")
    });
    let condition = patterns.collect::<Vec<_>>().join(" || ");
    let scope = "(principal, action == Action::\"payments/refund\", resource)";
    format!("@id(\"{id}\") {head} {scope} when {{ {condition} }};")
}

/// A policy fails only for those whom its scope is about, and for all others as soon as a condition says so.
#[tokio::test]
async fn a_scope_that_becomes_a_condition_is_a_difference_where_patterns_may_be_too_much() {
    let desk = Desk::bare();
    for (length, expected) in [(8, Answer::No), (200, Answer::Unknown)] {
        let whole = noting("x", "forbid", &[length, length]);
        let scope = whole.replace("(principal,", "(principal in Team::\"ops\",");
        let condition = whole.replace("when {", "when { principal in Team::\"ops\" } when {");
        let [before, after] = [scope, condition].map(|forbid| format!("{}{forbid}", refund("true")));
        assert_eq!(answers(&desk.compare(&before, &after).await), [expected; 2]);
    }
}

/// Policies fail for a text that is too long for the patterns of all policies about an ask, and these deny what was allowed.
#[tokio::test]
async fn what_patterns_may_be_too_much_for_is_unknown_and_never_no() {
    let desk = Desk::bare();
    let before = format!("{}{}", refund("true"), noting("f", "forbid", &[17]));
    let advice = "@decision(\"advise\") @obligation(\"notify:security\") permit";
    for head in [advice, "permit"] {
        let few = format!("{before}{}", noting("x", head, &[8]));
        let report = desk.compare(&before, &few).await;
        assert_eq!(answers(&report), [Answer::No; 2], "{head}");
        let many = format!("{before}{}", noting("x", head, &[200, 200]));
        // What fails never allows more.
        for (one, other, expected) in [
            (&before, &many, [Answer::No, Answer::Unknown]),
            (&many, &before, [Answer::Unknown, Answer::No]),
        ] {
            let report = desk.compare(one, other).await;
            assert_eq!(answers(&report), expected, "{head}");
            assert!(!report.proof.complete);
            let [more, less] = [&report.allows_more.unknown, &report.allows_less.unknown];
            let unknown = [&more[..], &less[..]].concat();
            let [unknown] = &unknown[..] else {
                panic!("{more:?} {less:?}")
            };
            let why = &unknown.why;
            assert!(why.starts_with("patterns of policies about it"), "{why}");
            assert_eq!(unknown.actions.count, 1);
        }
    }
}

/// The same fail before and after.
#[tokio::test]
async fn patterns_that_both_sets_have_stand_in_no_proofs_way() {
    let desk = Desk::bare();
    for head in ["forbid", "permit"] {
        let many = noting("x", head, &[200, 200]);
        let with = |limit: u32| format!("{many}{}", refund(&format!("context.input.amount < {limit}")));
        let report = desk.compare(&with(100), &with(500)).await;
        assert_eq!(answers(&report), [Answer::Yes, Answer::No], "{head}");
    }
    // A permit is covered by one with patterns only as long as that one does not fail.
    let covers = noting("x", "permit", &[200, 200]).replace("when { ", "when { context.sensitive || ");
    let covered = format!("{covers}{}", refund("context.sensitive"));
    let report = desk.compare(&covers, &covered).await;
    assert_eq!(answers(&report), [Answer::Unknown, Answer::No]);
    let [unknown] = &report.allows_more.unknown[..] else {
        panic!("{:?}", report.allows_more.unknown)
    };
    let why = &unknown.why;
    assert!(why.starts_with("a permit with patterns may fail"), "{why}");
    // What fails in the candidate only never allows more.
    let few = noting("x", "permit", &[8]).replace("when { ", "when { context.sensitive || ");
    let more_patterns = format!(
        "{few}{}{}",
        refund("context.sensitive"),
        noting("y", "forbid", &[200, 200])
    );
    let report = desk.compare(&few, &more_patterns).await;
    assert_eq!(report.allows_more.answer, Answer::No);
    // Patterns about another action are no matter.
    let elsewhere = "@id(\"y\") forbid (principal, action == Action::\"github/merge\", resource) \
                     when { context.attributes has region && context.attributes.region like \"*WW*\" };";
    let elsewhere = elsewhere.replace("WW", &"w".repeat(250));
    let before = format!("{few}{elsewhere}");
    let after = format!("{before}{}", refund("context.sensitive"));
    let report = desk.compare(&before, &after).await;
    assert_eq!(answers(&report), [Answer::No, Answer::No]);
    assert!(report.proof.complete);
}

/// It is not asked for its groups.
#[tokio::test]
async fn an_action_that_only_the_test_of_an_if_names_is_compared() {
    let desk = Desk::bare();
    let condition =
        "(if action == Action::\"payments/refund\" then principal else principal) in Team::\"ops\"";
    let report = desk.compare("", &refund(condition)).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
    assert_eq!(verdicts(&report.allows_more), [["deny", "allow"]]);
}

#[tokio::test]
async fn a_canary_allows_more_for_its_agents_and_a_shadow_for_nobody() {
    let desk = Desk::bare();
    let agent = "agt_070w3ge1r70w3ge1r70w3ge1r7";
    let tried = |mode| TenantPolicy {
        mode,
        ..TenantPolicy::new(
            SlashFreeName::new("tried").unwrap(),
            "@id(\"t\") permit (principal, action, resource);",
        )
    };
    let shadow = desk
        .compare_sets(&[mine("")], &[mine(""), tried(Mode::Shadow)])
        .await;
    assert_eq!(answers(&shadow), [Answer::No, Answer::No]);
    assert_eq!(
        (shadow.policies.added[0].mode, shadow.proof.actions),
        ("shadow", 0)
    );
    let canary = Mode::Canary(Arc::new([agent.parse::<AgentId>().unwrap()].into()));
    let canary = desk.compare_sets(&[mine("")], &[mine(""), tried(canary)]).await;
    // Of a user for whom an agent acts it is not known whether the agent is one of them.
    assert_eq!(answers(&canary), [Answer::Yes, Answer::Unknown]);
    for example in &canary.allows_more.examples {
        assert_eq!(example.ask["agent"]["id"], agent);
    }
}

#[tokio::test]
async fn actions_that_no_policy_tells_apart_are_asked_about_once() {
    let desk = Desk::bare();
    let report = desk
        .compare(
            "",
            "@id(\"a\") permit (principal, action, resource) when { context.sensitive };",
        )
        .await;
    let [example] = &report.allows_more.examples[..] else {
        panic!("{:?}", report.allows_more.examples)
    };
    assert_eq!((example.actions.count, example.actions.some.len()), (4, 4));
    assert_eq!(example.ask["context"]["contains_sensitive_data"], true);
    assert!(
        example.ask["tool_call"].get("parameters").is_none(),
        "no policy looks at them"
    );
}

#[tokio::test]
async fn what_cannot_be_translated_is_unknown_and_never_no() {
    let desk = Desk::bare();
    for (condition, why) in [
        (
            "Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\".risk_tier == \"low\" || true",
            "who is not there",
        ),
        (
            "Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\" has owner",
            "who is not there",
        ),
        (
            "Action::\"github/merge\" in Action::\"mutate\" || context.sensitive",
            "groups of an action that it names",
        ),
        (
            "(if context has user then action else action) in Action::\"mutate\"",
            "names or chooses",
        ),
    ] {
        let report = desk.compare("", &refund(condition)).await;
        assert_eq!(answers(&report), [Answer::Unknown, Answer::Unknown]);
        assert!(!report.proof.complete);
        let [unknown] = &report.allows_more.unknown[..] else {
            panic!()
        };
        assert!(
            unknown.why.starts_with("`mine/a` ") && unknown.why.contains(why),
            "{}",
            unknown.why
        );
        assert_eq!(unknown.actions.count, 1);
    }
    let advice = "@id(\"a\") @decision(\"advise\") @obligation(\"redact:parameters.note\") permit (principal, action, resource) \
                  when { context.trust.rank + 9223372036854775807 > 0 };";
    let report = desk.compare("", advice).await;
    assert_eq!(answers(&report), [Answer::Unknown, Answer::Unknown]);
    // Which asks it fails for depends on what it has to add.
    let other = advice.replace("redact:parameters.note", "notify:security");
    for (one, other) in [(advice, &*other), (&*other, advice)] {
        let report = desk.compare(one, other).await;
        assert_eq!(answers(&report), [Answer::Unknown, Answer::Unknown]);
    }
}

/// A condition with a member whose name would be this command to a solver, if it were read as one.
fn commanding(command: &str) -> String {
    let name = format!("x\\r{}\\r;", command.replace('"', "\\\""));
    format!("{{\"{name}\": context.agent.name}} == {{\"{name}\": \"b\"}}")
}

/// An assertion of what is false would prove everything.
#[tokio::test]
async fn the_name_of_a_member_in_a_policy_is_no_command_to_the_solver() {
    let desk = Desk::bare();
    for command in ["(assert false)", "(reset)", "(echo \"unsat\")", "(exit)"] {
        let report = desk.compare("", &refund(&commanding(command))).await;
        assert_eq!(answers(&report), [Answer::Yes, Answer::No], "{command}");
        assert_eq!(report.allows_more.examples[0].ask["agent"]["name"], "b");
        assert!(report.proof.complete);
    }
}

/// Schemas come from tool servers, too.
#[tokio::test]
async fn the_name_of_a_parameter_in_a_schema_is_no_command_to_the_solver() {
    let name = "x\r(assert false)\r;";
    for inner in [
        json!({"type": "string"}),
        json!({"type": "object", "properties": {name: {"type": "integer"}}}),
    ] {
        let desk = Desk::bare_with(json!({"type": "object", "properties": {name: inner}}));
        let report = desk.compare("", &refund("context.sensitive")).await;
        assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
        assert!(report.proof.complete);
    }
}

#[tokio::test]
async fn no_policy_has_the_solver_write_to_a_file() {
    let desk = Desk::bare();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("kept");
    std::fs::write(&file, "kept").unwrap();
    for channel in ["regular-output-channel", "diagnostic-output-channel"] {
        let command = format!("(set-option :{channel} {})", file.display());
        let report = desk.compare("", &refund(&commanding(&command))).await;
        assert_eq!(answers(&report), [Answer::Yes, Answer::No], "{channel}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept", "{channel}");
    }
}

/// What is wrong with its text would be told with words of it.
#[tokio::test]
async fn no_policy_has_the_solver_read_a_file() {
    let desk = Desk::bare();
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("key");
    std::fs::write(&file, "PRIVATE 0123456789").unwrap();
    let command = format!("(include \"{}\")", file.display());
    let report = desk.compare("", &refund(&commanding(&command))).await;
    assert_eq!(answers(&report), [Answer::Yes, Answer::No]);
    let told = serde_json::to_string(&report).unwrap();
    assert!(
        !told.contains("PRIVATE") && !told.contains("0123456789"),
        "{told}"
    );
}
