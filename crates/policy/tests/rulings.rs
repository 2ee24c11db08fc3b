//! How rulings come about: which policy wins, what a policy sees, and what happens when one fails.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{ApprovalTerms, AttributeType, ReasonCode, RiskTier, Sources, Team, Tool, Trust, User, Verdict};
use policy::{Approvers, BasePolicies, Fact, Fuel, Mode, PolicySet, Question, TenantPolicy, Unanswerable};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use world::{World, action, attributes, compile, matched, name, obligations, tenant, tool};

const ALL: &str = "@id(\"all\") permit (principal, action, resource);";
/// Fails for every question, and no validator can know.
const OVERFLOW: &str = "9223372036854775807 + context.trust.rank > 0";

fn with(effect: &str, annotations: &str, condition: &str) -> String {
    format!("@id(\"it\") {annotations} {effect} (principal, action, resource) when {{ {condition} }};")
}

/// Whether a permit with this condition is satisfied.
fn sees(world: &World, condition: &str) -> bool {
    let own = with("permit", "", condition).replacen("(principal,", "(principal is Agent,", 1);
    let users = "@id(\"users\") permit (principal is User, action, resource);";
    let ruling = world.ruled_only_with(&format!("{own}\n{users}"));
    assert_eq!(ruling.errors, [], "{condition}");
    ruling.verdict() == Verdict::Allow
}

#[test]
fn a_forbid_that_fails_denies_and_is_named() {
    let ruling = World::default().ruled_with(&with("forbid", "", OVERFLOW));
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyError, vec!["mine/it"])
    );
    assert_eq!(ruling.explanation, "could not be evaluated: `mine/it`");
    assert_eq!(ruling.errors[0].message, "an integer overflows");
}

#[test]
fn so_does_an_approval_or_advice_that_fails() {
    for annotations in [
        "@decision(\"require_approval\")",
        "@decision(\"advise\") @obligation(\"notify:security\")",
    ] {
        let ruling = World::default().ruled_with(&with("permit", annotations, OVERFLOW));
        assert_eq!(
            (ruling.reason, ruling.approval),
            (ReasonCode::PolicyError, None),
            "{annotations}"
        );
    }
}

#[test]
fn a_permit_that_fails_is_recorded_and_permits_nothing() {
    let failing = with("permit", "", OVERFLOW);
    let alone = World::default().ruled_only_with(&failing);
    assert_eq!(
        (alone.reason, alone.errors.len()),
        (ReasonCode::NoPolicyPermits, 1)
    );
    let with_base = World::default().ruled_with(&failing);
    assert_eq!(
        (with_base.reason, with_base.errors.len()),
        (ReasonCode::PolicyPermits, 1)
    );
}

#[test]
fn a_satisfied_forbid_is_not_hidden_by_one_that_fails() {
    let world = World {
        canary: true,
        ..World::default()
    };
    let ruling = world.ruled_with(&with("forbid", "", OVERFLOW));
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyForbids, vec!["base/canary"])
    );
    assert_eq!(obligations(&ruling), ["quarantine:agent"]);
    assert_eq!(ruling.errors.len(), 1);
}

#[test]
fn a_condition_that_fails_before_one_about_the_tool_still_denies() {
    let condition = format!("({OVERFLOW}) && context.tool.name == \"another\"");
    assert_eq!(
        World::default()
            .ruled_with(&with("forbid", "", &condition))
            .reason,
        ReasonCode::PolicyError
    );
    let condition = format!("context.tool.name == \"another\" && ({OVERFLOW})");
    assert_eq!(
        World::default()
            .ruled_with(&with("forbid", "", &condition))
            .reason,
        ReasonCode::PolicyPermits
    );
}

#[test]
fn the_strictest_terms_and_the_first_reason_win() {
    let cedar = r#"
        @id("b") @decision("require_approval") @approvers("leads") @quorum("3") @reason("three leads")
        @obligation("notify:b")
        permit (principal, action, resource);
        @id("a") @decision("require_approval") @agent_message("wait") @exclude_owner
        permit (principal, action, resource);
        @id("c") @obligation("notify:c")
        permit (principal, action, resource);
    "#;
    let ruling = World::default().ruled_only_with(cedar);
    let terms = ApprovalTerms {
        group: Some("leads".into()),
        quorum: 3,
        also: Vec::new(),
        exclude_owner: true,
    };
    assert_eq!(
        (ruling.reason, ruling.approval.as_ref().map(Approvers::terms)),
        (ReasonCode::PolicyRequiresApproval, Some(terms))
    );
    assert_eq!(
        (ruling.explanation.as_str(), ruling.agent_message.as_deref()),
        ("three leads", Some("wait"))
    );
    assert_eq!(
        (matched(&ruling), obligations(&ruling)),
        (vec!["mine/a", "mine/b"], vec!["notify:b".to_owned()])
    );
}

#[test]
fn without_a_reason_the_policy_is_named() {
    let said = |cedar: &str| World::default().ruled_only_with(cedar).explanation;
    assert_eq!(said(ALL), "the policy `mine/all` permits it");
    assert_eq!(
        said(&with("forbid", "", "true")),
        "the policy `mine/it` forbids it"
    );
    let asking = with("permit", "@decision(\"require_approval\")", "true");
    assert_eq!(said(&asking), "the policy `mine/it` requires approval");
    assert_eq!(said(""), "no policy permits it");
}

#[test]
fn the_order_of_policies_changes_neither_ruling_nor_digest() {
    let policies = [
        tenant(
            "z",
            "@id(\"1\") @reason(\"z\") permit (principal, action, resource);",
        ),
        tenant(
            "a",
            &format!("{ALL} @id(\"2\") @reason(\"a\") permit (principal, action, resource);"),
        ),
        tenant(
            "m",
            "@id(\"2\") permit (principal, action, resource); @id(\"1\") permit (principal, action, resource);",
        ),
    ];
    let world = World::default();
    let answers = [[0, 1, 2], [2, 1, 0], [1, 2, 0]].map(|order| {
        let policies = order.map(|index| policies[index].clone());
        let set = world.compile(&BasePolicies::shipped(), &policies).unwrap();
        (set.digest(), world.ask(&set).unwrap())
    });
    assert!(answers.iter().all(|answer| *answer == answers[0]));
    let ids = matched(&answers[0].1);
    assert_eq!(
        ids,
        ["a/2", "a/all", "base/mutation-from-trusted", "m/1", "m/2", "z/1"]
    );
    let other = world.compile(&BasePolicies::shipped(), &policies[..2]).unwrap();
    assert_ne!(other.digest(), answers[0].0);
}

#[test]
fn an_id_does_not_depend_on_the_policies_around_it() {
    let alone = World::default().ruled_only_with(ALL);
    let among = World::default().ruled_only_with(&format!(
        "@id(\"x\") forbid (principal, action, resource) when {{ context.sensitive }};\n{ALL}"
    ));
    assert_eq!(matched(&alone), ["mine/all"]);
    assert_eq!(matched(&among), matched(&alone));
}

#[test]
fn a_policy_sees_every_fact_of_the_question() {
    let team = Team {
        name: name("platform \"leads\""),
        attributes: attributes(json!({"floor": 3})),
        quotas: Vec::new(),
    };
    let user = User {
        name: name("u-17"),
        teams: BTreeSet::from([name("sales")]),
        attributes: attributes(json!({"vip": true})),
        roles: std::collections::BTreeSet::new(),
    };
    let world = World {
        team: Some(team),
        user: Some(("u-17".into(), Some(user))),
        agent_attributes: attributes(json!({"cost centre": "x"})),
        declared: BTreeMap::from([
            (name("ticket"), AttributeType::String),
            (name("hours"), AttributeType::Decimal),
        ]),
        attributes: Some(json!({"ticket": "T-1", "undeclared": 1})),
        run: Some("run-1".into()),
        resource: Some("repo:acme/\"widgets\"".into()),
        sensitive: true,
        tier: RiskTier::High,
        trust: Trust::TrustedInternalSigned,
        parameters: json!({"to": ["a"], "base": "main"}),
        ..World::default()
    };
    for condition in [
        r#"principal == Agent::"agt_070w3ge1r70w3ge1r70w3ge1r7" && principal.name == "builder" && principal.risk_tier == "high""#,
        r#"principal in Team::"platform \"leads\"" && Team::"platform \"leads\"".hasTag("floor") && Team::"platform \"leads\"".getTag("floor") == "3""#,
        r#"principal.hasTag("cost centre") && principal.getTag("cost centre") == "x" && !(principal has owner)"#,
        r#"context has user && context.user in Team::"sales" && context.user.hasTag("vip") && context.user.getTag("vip") == "true""#,
        r#"context.agent.name == "builder" && context.agent has team && context.agent.team == "platform \"leads\"""#,
        r#"context has environment && context.environment == "production" && principal has environment"#,
        r#"context.attributes has ticket && context.attributes.ticket == "T-1" && !(context.attributes has hours)"#,
        r#"context has run && context.run.id == "run-1" && context.sensitive"#,
        r#"resource == Resource::"repo:acme/\"widgets\"""#,
        "context.trust.rank == 5 && context.trust.signed && context.trust.level == context.trust.claimed",
        r#"context.parameters.containsAll(["to", "base"]) && context.targets == ["main"] && context.target_stated"#,
        r#"context.tool.name == "github" && context.tool.mutates && context.tool.risk == "medium" && !context.tool.canary"#,
        r#"action in Action::"mutate" && action in Action::"risk:medium" && action in Action::"tool:github""#,
        r#"context.now == datetime("2023-11-14T22:13:20.000Z") && context.now < datetime("2023-11-14T22:13:20.001Z")"#,
    ] {
        assert!(sees(&world, condition), "{condition}");
    }
}

#[test]
fn a_policy_sees_where_each_parameter_came_from() {
    let world = World {
        schema: Some(json!({"properties": {
            "recipient": {"type": "string"}, "amount": {"type": "integer"}, "anything": {}, "odd name": {"type": "string"},
        }})),
        sources: Sources::new(BTreeMap::from([
            ("/recipient".to_owned(), Trust::UntrustedExternal),
            ("/anything/inside".to_owned(), Trust::SemiTrustedCustomer),
            ("/undeclared".to_owned(), Trust::Unknown),
        ])),
        trust: Trust::TrustedInternalUnsigned,
        parameters: json!({"recipient": "DE02", "amount": 3, "undeclared": 0}),
        ..World::default()
    };
    for condition in [
        r#"context.sources.recipient.rank == 2 && context.sources.recipient.level == "untrusted_external""#,
        "context.sources.amount.rank == 4 && context.sources.anything.rank == 3",
        r#"context.sources["odd name"].level == context.trust.level"#,
    ] {
        assert!(sees(&world, condition), "{condition}");
    }
}

/// A world in which the source of something is told.
fn told(pointer: &str) -> World {
    World {
        schema: Some(json!({"properties": {"recipient": {"type": "string"}, "amount": {"type": "integer"}}})),
        sources: Sources::new(BTreeMap::from([(pointer.to_owned(), Trust::UntrustedExternal)])),
        parameters: json!({"recipient": "DE02", "note": "x"}),
        ..World::default()
    }
}

#[test]
fn the_source_of_what_is_no_parameter_counts_for_each() {
    for (pointer, recipient, amount) in [
        ("/recipent", 2, 2),
        ("/recipient~", 2, 2),
        ("/recipient", 2, 4),
        ("/amount", 4, 2),
        ("/note", 4, 4),
    ] {
        let condition = format!(
            "context.sources.recipient.rank == {recipient} && context.sources.amount.rank == {amount}"
        );
        assert!(sees(&told(pointer), &condition), "{pointer}");
    }
}

#[test]
fn the_source_of_what_is_no_parameter_makes_none_more_trusted() {
    let stray = ("/recipent".to_owned(), Trust::TrustedInternalUnsigned);
    let world = World {
        trust: Trust::UntrustedExternal,
        sources: Sources::new(BTreeMap::from([stray])),
        ..told("/recipent")
    };
    let condition = "context.sources.recipient.rank == 2 && context.sources.amount.rank == 2";
    assert!(sees(&world, condition));
}

#[test]
fn without_the_parameters_nobody_knows_whether_a_source_is_that_of_one() {
    let cedar = format!(
        "{ALL}\n@id(\"source\") forbid (principal, action, resource) when {{ context.sources.recipient.rank <= 2 }};"
    );
    for (pointer, verdict) in [
        ("/recipient", Some(Verdict::Deny)),
        ("/amount", Some(Verdict::Allow)),
        ("/note", None),
        ("/recipent", None),
    ] {
        let world = told(pointer);
        let base = BasePolicies::parse("").unwrap();
        let set = world.compile(&base, &[tenant("mine", &cedar)]).unwrap();
        let found = world.with_question(|question| set.rule_without_parameters(question));
        let found = found.unwrap().map(|ruling| ruling.verdict());
        assert_eq!(found, verdict, "{pointer}");
    }
}

#[test]
fn a_policy_sees_how_much_is_used() {
    let usage = json!({
        "budget": {"allocated": 100, "remaining": 8, "spent": 90},
        "calls": {"day": {"limit": 10, "used": 7}},
        "estimate": {"amount": 3, "unit": "TOKENS"},
    });
    let world = World {
        usage: serde_json::from_value(usage).unwrap(),
        ..World::default()
    };
    for condition in [
        "context.usage has budget && context.usage.budget.remaining * 10 < context.usage.budget.allocated",
        "context.usage has budget && context.usage.budget.spent == 90",
        "context.usage.calls has day && context.usage.calls.day.limit - context.usage.calls.day.used == 3",
        r#"context.usage has estimate.unit && context.usage.estimate.unit == "TOKENS" && context.usage.estimate.amount == 3"#,
        "!(context.usage.calls has run)",
    ] {
        assert!(sees(&world, condition), "{condition}");
    }
    let nothing =
        "!(context.usage has budget) && !(context.usage has estimate) && !(context.usage.calls has day)";
    assert!(sees(&World::default(), nothing));
    // What may be absent is asked for first, and what does not exist cannot be looked at.
    for condition in [
        "context.usage.budget.remaining < 5",
        "context.usage.calls.day.used > 5",
        "context.usage has budget && context.usage.budget.left < 5",
        "context.usage.calls has week",
    ] {
        let cedar = format!("@id(\"a\") forbid (principal, action, resource) when {{ {condition} }};");
        let refused = world.compile(&BasePolicies::shipped(), &[tenant("own", &cedar)]);
        assert!(refused.is_err(), "{condition}");
    }
}

#[test]
fn an_answer_depends_on_usage_only_where_a_policy_about_the_ask_looks_at_it() {
    let cedar = |scope: &str| {
        format!(
            "@id(\"a\") forbid ({scope}, resource) when {{ context.usage has budget && context.usage.budget.remaining < 5 }};"
        )
    };
    let world = World::default();
    for (scope, looks, depends) in [
        ("principal, action", true, true),
        ("principal, action in Action::\"mutate\"", true, true),
        (
            "principal == Agent::\"agt_00000000000000000000000000\", action",
            true,
            false,
        ),
    ] {
        let set = world
            .compile(&BasePolicies::shipped(), &[tenant("own", &cedar(scope))])
            .unwrap();
        assert_eq!(set.looks_at_usage(), looks, "{scope}");
        let found = world.with_question(|question| set.depends_on(Fact::Usage, question));
        assert_eq!(found, Ok(depends), "{scope}");
    }
    let shipped = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    assert!(!shipped.looks_at_usage());
}

#[test]
fn the_source_of_a_parameter_that_nobody_declares_is_an_error_when_it_is_written() {
    let schema = json!({"properties": {"recipient": {"type": "string"}}});
    let send = tool("bank", [action("send", true, Some(schema))]);
    let cedar = |parameter: &str| {
        format!(
            "@id(\"a\") forbid (principal, action == Action::\"bank/send\", resource)
             when {{ context.sources.{parameter}.rank <= 2 }};"
        )
    };
    compile(std::slice::from_ref(&send), &[tenant("own", &cedar("recipient"))]).unwrap();
    let error = compile(&[send], &[tenant("own", &cedar("recipent"))]).unwrap_err();
    assert!(error.to_string().contains("recipent"), "{error}");
}

#[test]
fn what_the_question_does_not_have_is_absent() {
    let world = World {
        user: Some(("stranger".into(), None)),
        ..World::default()
    };
    assert!(sees(
        &world,
        r#"context has user && !(context.user in Team::"sales") && !context.user.hasTag("vip")"#
    ));
    let nobody = World::default();
    assert!(sees(
        &nobody,
        r#"!(context has user) && !(context has run) && resource == Resource::"" && !context.sensitive"#
    ));
}

#[test]
fn a_claim_moves_a_read_among_the_mutations_and_nothing_moves_a_mutation_out() {
    let read = World {
        registered_as_mutating: false,
        ..World::default()
    };
    assert!(sees(&read, "action in Action::\"read\" && !context.tool.mutates"));
    let claimed = World {
        claimed_as_mutating: true,
        ..read
    };
    // It is put as a change, and as the read that it is registered as, and has to be allowed as both.
    for seen in [
        "action in Action::\"mutate\" && !(action in Action::\"read\") && context.tool.mutates",
        "action in Action::\"read\" && !context.tool.mutates",
    ] {
        assert!(!sees(&claimed, seen), "{seen}");
        let forbid = format!(
            "@id(\"all\") permit (principal, action, resource);\n@id(\"it\") forbid (principal, action, resource) when {{ {seen} }};"
        );
        assert_eq!(
            claimed.ruled_only_with(&forbid).reason,
            ReasonCode::PolicyForbids,
            "{seen}"
        );
    }
    let (agent, tool) = (World::default().agent(), World::default().tool());
    let set = compile(std::slice::from_ref(&tool), &[]).unwrap();
    let denied = World {
        trust: Trust::Unknown,
        ..World::default()
    }
    .with_question(|question| {
        let lying = Question {
            agent: &agent,
            tool: &tool,
            mutates: false,
            ..*question
        };
        set.rule(&lying).unwrap()
    });
    assert_eq!(denied.reason, ReasonCode::PolicyForbids);
}

#[test]
fn input_is_typed_from_the_actions_schema() {
    let world = World {
        schema: Some(json!({"type": "object", "properties": {
            "amount": {"type": "number"}, "to": {"type": "array", "items": {"type": "string"}},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "any": {},
        }, "required": ["amount", "to"]})),
        parameters: json!({"amount": 98.7, "to": ["a@b"], "note": null, "any": {"x": 1}}),
        ..World::default()
    };
    assert!(sees(
        &world,
        r#"context.input.amount.lessThan(decimal("98.71")) && context.input.to.contains("a@b")"#
    ));
    assert!(sees(
        &world,
        r#"!(context.input has note) && context.parameters.contains("any")"#
    ));
    let misspelt = with("forbid", "", "context.input.amuont.lessThan(decimal(\"1.0\"))");
    let diagnostics = world
        .compile(&BasePolicies::shipped(), &[tenant("mine", &misspelt)])
        .unwrap_err();
    assert!(diagnostics.0[0].message.contains("amuont"), "{diagnostics}");
}

#[test]
fn invalid_parameters_are_pointed_at_and_not_repeated() {
    let schema = json!({"type": "object", "properties": {
        "n": {"type": "integer", "maximum": 9}, "list": {"type": "array", "items": {"enum": ["a", "b"]}},
        "code": {"type": "string", "pattern": "^[0-9]+$"}, "amount": {"type": "number"},
    }, "required": ["n"], "additionalProperties": false});
    let invalid = |parameters: Value| {
        let world = World {
            schema: Some(schema.clone()),
            parameters,
            ..World::default()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        match world.ask(&set) {
            Err(Unanswerable::InvalidParameters { pointer, detail }) => (pointer, detail),
            other => panic!("{other:?}"),
        }
    };
    let cases = [
        (json!({}), "", "lacks `n`"),
        (json!({"n": "hunter2"}), "/n", "is not of type \"integer\""),
        (
            json!({"n": 10}),
            "/n",
            "does not satisfy `/properties/n/maximum` of the action's schema",
        ),
        (
            json!({"n": 1, "list": ["a", "hunter2"]}),
            "/list/1",
            "is not one of \"a\" or \"b\"",
        ),
        (
            json!({"n": 1, "code": "hunter2"}),
            "/code",
            "does not match \"^[0-9]+$\"",
        ),
        (
            json!({"n": 1, "hunter2": 1}),
            "",
            "has members that the action's schema does not allow",
        ),
        (
            json!({"n": 1, "amount": 0.123_456}),
            "/amount",
            "has more than four decimal places or too many digits, so policies cannot judge it",
        ),
    ];
    for (parameters, pointer, detail) in cases {
        assert_eq!(invalid(parameters), (pointer.to_owned(), detail.to_owned()));
    }
}

#[test]
fn what_the_caller_has_called_a_member_is_part_of_a_value() {
    let texts = json!({"type": "object", "additionalProperties": {"type": "string"}});
    let named = json!({"type": "object", "properties": {"7": {"type": "string"}},
        "patternProperties": {"^x": {"type": "string"}}});
    let schema = json!({"type": "object", "properties": {
        "env": texts, "rows": {"type": "array", "items": {"$ref": "#/$defs/named"}}, "properties": texts,
    }, "$defs": {"named": named}, "additionalProperties": {"required": ["a"]}});
    let plainly = "is not of type \"string\"";
    let unnamed = "a member in it that the action's schema does not name is not of type \"string\"";
    for (parameters, pointer, detail) in [
        (json!({"env": {"hunter2": 7}}), "/env", unnamed),
        (json!({"env": {"0": 7}}), "/env", unnamed),
        (json!({"env": {"env": 7}}), "/env", unnamed),
        (json!({"properties": {"hunter2": 7}}), "/properties", unnamed),
        (json!({"rows": [{}, {"7": 7}]}), "/rows/1/7", plainly),
        (json!({"rows": [{}, {"xhunter2": 7}]}), "/rows/1", unnamed),
        (
            json!({"hunter2": {"7": 7}}),
            "",
            "a member in it that the action's schema does not name lacks `a`",
        ),
    ] {
        let world = World {
            schema: Some(schema.clone()),
            parameters: parameters.clone(),
            ..World::default()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        let invalid = Unanswerable::InvalidParameters {
            pointer: pointer.to_owned(),
            detail: detail.to_owned(),
        };
        assert_eq!(world.ask(&set), Err(invalid), "{parameters}");
    }
}

#[test]
fn what_is_wrong_with_parameters_is_told_with_a_bound() {
    let long = "é".repeat(1_000);
    let options: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    let far = "n".repeat(300);
    let schema = json!({"type": "object", "properties": {
        "pattern": {"pattern": format!("^{long}$")},
        "options": {"enum": options},
        "lacking": {"required": [long]},
        "path": {"dependentSchemas": {&far: {"maxProperties": 0}}},
        "a": {"properties": {"b": {"properties": {&far: {"type": "string"}}}}},
        "typed": {"type": "object", "properties": {
            "near": {"type": "object", "properties": {&far: {"type": "number"}}},
        }},
    }});
    let of_path = format!(
        "does not satisfy `/properties/path/dependentSchemas/{}…",
        "n".repeat(256 - 52)
    );
    for (parameters, pointer, detail) in [
        (
            json!({"pattern": "a"}),
            "/pattern",
            format!("does not match \"^{}…", "é".repeat(256 - 17)),
        ),
        (
            json!({"lacking": {}}),
            "/lacking",
            format!("lacks `{}…", "é".repeat(256 - 7)),
        ),
        (json!({"path": {&far: 1}}), "/path", of_path),
        (
            json!({"a": {"b": {&far: 1}}}),
            "/a/b",
            "something further inside of it is not of type \"string\"".to_owned(),
        ),
        // It satisfies the schema, but policies cannot see it as a decimal.
        (
            json!({"typed": {"near": {&far: 0.123_456}}}),
            "/typed/near",
            "something further inside of it has more than four decimal places or too many digits, so policies cannot judge it"
                .to_owned(),
        ),
    ] {
        let world = World {
            schema: Some(schema.clone()),
            parameters: parameters.clone(),
            ..World::default()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        let invalid = Unanswerable::InvalidParameters {
            pointer: pointer.to_owned(),
            detail,
        };
        assert_eq!(world.ask(&set), Err(invalid), "{parameters}");
    }
    let world = World {
        schema: Some(schema),
        parameters: json!({"options": "none"}),
        ..World::default()
    };
    let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    match world.ask(&set) {
        Err(Unanswerable::InvalidParameters { pointer, detail }) => {
            assert_eq!(pointer, "/options");
            assert!(detail.starts_with("is not one of"), "{detail}");
            assert!(detail.chars().count() <= 257, "{detail}");
        }
        other => panic!("{other:?}"),
    }
}

/// Parameters `root` of this depth: blocks inside blocks, and this one innermost.
fn nested(depth: usize, innermost: Value) -> Value {
    let around = |inner: Value, _| json!({"type": "quote", "children": [inner]});
    json!({"root": (0..depth).fold(innermost, around)})
}

#[test]
fn alternatives_that_lead_back_are_gone_through_once() {
    let block = |kind: &str| {
        let children = json!({"type": "array", "items": {"$ref": "#/$defs/block"}});
        json!({"type": "object", "properties": {"children": children, "type": {"const": kind}}, "required": ["type"]})
    };
    let kinds = ["paragraph", "list", "quote"].map(block);
    for word in ["anyOf", "oneOf"] {
        let world = |innermost: &str| World {
            schema: Some(
                json!({"properties": {"root": {"$ref": "#/$defs/block"}}, "$defs": {"block": {word: kinds}}}),
            ),
            parameters: nested(60, json!({"type": innermost})),
            ..World::default()
        };
        let set = world("list").compile(&BasePolicies::shipped(), &[]).unwrap();
        assert!(world("list").ask(&set).is_ok(), "{word}");
        let Err(Unanswerable::InvalidParameters { pointer, detail }) = world("x").ask(&set) else {
            panic!("an unknown kind of block was valid")
        };
        assert_eq!(
            (&*pointer, &*detail),
            ("", "does not satisfy the action's schema")
        );
    }
}

#[test]
fn what_is_just_not_too_deep_is_checked_without_a_crash() {
    // A reference and what it leads to are two layers, and what the last one leads to is the next level.
    let layer = |number: usize| json!({"allOf": [{"$ref": format!("#/$defs/a{}", number + 1)}]});
    let mut definitions: serde_json::Map<_, _> = (0..15)
        .map(|number| (format!("a{number}"), layer(number)))
        .collect();
    let deepest =
        json!({"properties": {"children": {"items": {"$ref": "#/$defs/a0"}}, "type": {"type": "string"}}});
    definitions.insert("a15".to_owned(), deepest);
    let world = |innermost: Value| World {
        schema: Some(json!({"properties": {"root": {"$ref": "#/$defs/a0"}}, "$defs": definitions})),
        parameters: nested(60, innermost),
        ..World::default()
    };
    let set = world(json!({})).compile(&BasePolicies::shipped(), &[]).unwrap();
    assert!(world(json!({"type": "x"})).ask(&set).is_ok());
    assert!(world(json!({"type": 1})).ask(&set).is_err());
}

/// What the documents say of the keywords of a schema that say nothing.
#[test]
fn formats_and_what_a_draft_has_no_keyword_for_count_for_nothing() {
    let draft_07 = "http://json-schema.org/draft-07/schema#";
    let is_taken = |schema: &Value| {
        let world = World {
            schema: Some(schema.clone()),
            parameters: json!({"to": "no address!"}),
            ..World::default()
        };
        let base = BasePolicies::parse("").unwrap();
        let set = world.compile(&base, &[tenant("mine", ALL)]).unwrap();
        world.ask(&set).is_ok()
    };
    let formats =
        json!({"format": "email", "contentEncoding": "base64", "contentMediaType": "application/json"});
    for schema in [
        json!({"properties": {"to": formats}}),
        json!({"requierd": ["from"]}),
        json!({"$schema": draft_07, "dependentRequired": {"to": ["from"]}}),
        json!({"$schema": draft_07, "properties": {"to": {"format": "email"}}}),
    ] {
        assert!(is_taken(&schema), "{schema}");
    }
    for schema in [
        json!({"dependentRequired": {"to": ["from"]}}),
        json!({"required": ["from"]}),
        json!({"$schema": draft_07, "properties": {"to": {"contentEncoding": "base64"}}}),
        json!({"$schema": draft_07, "properties": {"to": {"contentMediaType": "application/json"}}}),
    ] {
        assert!(!is_taken(&schema), "{schema}");
    }
}

/// A text of this length to ask about.
fn long(bytes: usize) -> World {
    let text = json!({"type": "string"});
    World {
        schema: Some(json!({"type": "object", "properties": {"text": text}, "required": ["text"]})),
        parameters: json!({"text": "a".repeat(bytes)}),
        ..World::default()
    }
}

/// More than can be held against the longest text of an ask in time.
fn patterns() -> String {
    let one = |number: usize| format!("context.input.text like \"*{}{number}*\"", "a".repeat(250));
    (0..6).map(one).collect::<Vec<_>>().join(" || ")
}

/// Whether a worker's fuel does not suffice to answer this.
fn is_used_up(set: &PolicySet, question: &Question<'_>) -> bool {
    let fuel = Fuel::for_a_worker();
    let with_fuel = Question {
        fuel: Some(&fuel),
        ..*question
    };
    let _ = set.rule(&with_fuel);
    fuel.is_used_up()
}

#[test]
fn what_would_take_more_than_there_is_fuel_for_says_so_and_is_not_done() {
    let patterns = format!("{ALL}\n{}", with("forbid", "", &patterns()));
    let set = long(1)
        .compile(&BasePolicies::shipped(), &[tenant("mine", &patterns)])
        .unwrap();
    for (bytes, suffices) in [(100, true), (20_000, false)] {
        long(bytes).with_question(|question| {
            let fuel = Fuel::for_a_worker();
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            let ruling = set.rule(&with_fuel).unwrap();
            assert_eq!(fuel.is_used_up(), !suffices);
            assert_eq!(ruling == set.rule(question).unwrap(), suffices);
        });
    }
    // Patterns about a short text take little, whatever it could be.
    let many = (0..200).map(|number| {
        with(
            "forbid",
            "",
            &format!("context.input.text like \"*{}*\"", "a".repeat(30)),
        )
        .replace("\"it\"", &format!("\"p{number}\""))
    });
    let many = format!("{ALL}\n{}", many.collect::<String>());
    let set = long(1)
        .compile(&BasePolicies::shipped(), &[tenant("mine", &many)])
        .unwrap();
    long(1).with_question(|question| assert!(!is_used_up(&set, question)));
    // Of many values it takes long to read them, and of many commas in a text it does not.
    let set = long(1)
        .compile(&BasePolicies::shipped(), &[tenant("mine", ALL)])
        .unwrap();
    for (parameters, suffices) in [
        (json!({"x": vec![0; 1_000]}), true),
        (json!({"x": vec![0; 30_000]}), false),
        (json!({"x": "\",".repeat(30_000)}), true),
    ] {
        let mut world = long(1);
        world.schema = None;
        world.parameters = parameters;
        world.with_question(|question| assert_eq!(is_used_up(&set, question), !suffices));
    }
    // Each value is held against each that may be there.
    let values: Vec<_> = (0..400).map(|number| json!({"of": number})).collect();
    let world = World {
        schema: Some(json!({"properties": {"x": {"items": {"enum": values}}}})),
        parameters: json!({"x": vec![json!({"of": 399}); 2_000]}),
        ..World::default()
    };
    let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    world.with_question(|question| {
        let fuel = Fuel::for_a_worker();
        let with_fuel = Question {
            fuel: Some(&fuel),
            ..*question
        };
        assert!(set.rule(&with_fuel).is_err() && fuel.is_used_up());
        assert!(set.rule(question).is_ok());
    });
}

#[test]
fn patterns_that_could_take_too_long_for_the_ask_fail() {
    let forbid = format!("{ALL}\n{}", with("forbid", "", &patterns()));
    assert_eq!(
        long(1_000).ruled_only_with(&forbid).reason,
        ReasonCode::PolicyPermits
    );
    let ruling = long(200_000).ruled_only_with(&forbid);
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyError, vec!["mine/it"])
    );
    assert_eq!(
        ruling.errors[0].message,
        "its patterns could take too long with texts as long as those that they may meet"
    );
    let permit = long(200_000).ruled_only_with(&with("permit", "", &patterns()));
    assert_eq!(
        (permit.reason, permit.errors.len()),
        (ReasonCode::NoPolicyPermits, 1)
    );
    // Those that look at nothing of the ask hold all the same: no length of one leads around them.
    let trap = with("forbid", "", "context.tool.name like \"*\"").replace("\"it\"", "\"trap\"");
    let trapped = long(200_000).ruled_only_with(&format!("{forbid}\n{trap}"));
    let patterns_fail = trapped.errors.iter().map(|error| error.policy.to_string());
    assert_eq!(patterns_fail.collect::<Vec<_>>(), ["mine/it"]);
    assert_eq!(
        (trapped.reason, matched(&trapped)),
        (ReasonCode::PolicyForbids, vec!["mine/trap"])
    );
    // Patterns that never look at the long text are as quick as before.
    let other = patterns().replace("context.input.text", "context.tool.name");
    let ruling = long(200_000).ruled_only_with(&format!("{ALL}\n{}", with("forbid", "", &other)));
    assert_eq!(
        (ruling.reason, ruling.errors),
        (ReasonCode::PolicyPermits, Vec::new())
    );
}

/// What is registered is as long as it is, so whoever has short names has room for many patterns.
#[test]
fn patterns_about_tags_fail_where_the_longest_tag_is_too_long_for_all_of_them() {
    let one = |number: usize| {
        let pattern = format!("*{}{number}", "a".repeat(250));
        let condition = format!("principal.hasTag(\"x\") && principal.getTag(\"x\") like \"{pattern}\"");
        with("forbid", "", &condition).replace("\"it\"", &format!("\"p{number:03}\""))
    };
    let all: Vec<_> = (0..300).map(one).collect();
    let cedar = format!("{ALL}\n{}", all.join("\n"));
    let tagged = |bytes: usize| World {
        agent_attributes: attributes(json!({"x": "b".repeat(bytes)})),
        ..World::default()
    };
    let short = tagged(64).ruled_only_with(&cedar);
    assert_eq!((short.reason, short.errors.len()), (ReasonCode::PolicyPermits, 0));
    let long = tagged(1_024).ruled_only_with(&cedar);
    assert_eq!((long.reason, long.errors.len()), (ReasonCode::PolicyError, 64));
    assert_eq!(
        long.errors[0].message,
        "its patterns could take too long with texts as long as those that they may meet"
    );
    // A long tag takes no time of those that look at names alone.
    let of_names = cedar
        .replace("principal.hasTag(\"x\") && ", "")
        .replace("principal.getTag(\"x\")", "context.agent.name");
    let named = tagged(1_024).ruled_only_with(&of_names);
    assert_eq!((named.reason, named.errors.len()), (ReasonCode::PolicyPermits, 0));
}

#[test]
fn patterns_on_trial_fail_for_the_shadow_alone() {
    let quick = with("forbid", "", "context.input.text like \"b*\"");
    let policies = [
        tenant("mine", &format!("{ALL}\n{quick}")),
        TenantPolicy {
            mode: Mode::Shadow,
            ..tenant("tried", &with("forbid", "", &patterns()))
        },
    ];
    let world = long(200_000);
    let set = world
        .compile(&BasePolicies::parse("").unwrap(), &policies)
        .unwrap();
    let rulings = world
        .with_question(|question| set.rule_with_shadow(question))
        .unwrap();
    assert_eq!(rulings.ruling, world.ask(&set).unwrap());
    assert_eq!(
        (rulings.ruling.reason, rulings.shadow.unwrap().reason),
        (ReasonCode::PolicyPermits, ReasonCode::PolicyError)
    );
}

/// An ask with as many parameters as a body has room for.
fn many_names() -> World {
    let names = (0..29_000).map(|number| (format!("{number:04x}"), json!(0)));
    World {
        parameters: Value::Object(names.collect()),
        ..World::default()
    }
}

/// Looks up so many names so often that it takes longer than there is time for.
fn look_ups() -> String {
    let all = vec!["context.parameters.containsAll(context.parameters)"; 130];
    format!("{} && context.trust.rank < 0", all.join(" && "))
}

#[test]
fn comparisons_that_could_take_too_long_for_the_ask_fail() {
    let forbid = format!("{ALL}\n{}", with("forbid", "", &look_ups()));
    assert_eq!(
        World::default().ruled_only_with(&forbid).reason,
        ReasonCode::PolicyPermits
    );
    let ruling = many_names().ruled_only_with(&forbid);
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyError, vec!["mine/it"])
    );
    assert_eq!(
        ruling.errors[0].message,
        "its comparisons of lists and texts could take too long with an ask as long as this one"
    );
    let permit = many_names().ruled_only_with(&with("permit", "", &look_ups()));
    assert_eq!(
        (permit.reason, permit.errors.len()),
        (ReasonCode::NoPolicyPermits, 1)
    );
    // Whatever has few of them is evaluated all the same.
    let few = with("forbid", "", "context.parameters.containsAny([\"0000\"])").replace("\"it\"", "\"few\"");
    let trapped = many_names().ruled_only_with(&format!("{forbid}\n{few}"));
    assert_eq!(
        (trapped.reason, matched(&trapped), trapped.errors.len()),
        (ReasonCode::PolicyForbids, vec!["mine/few"], 1)
    );
}

#[test]
fn what_policies_ordinarily_compare_is_evaluated_for_the_longest_ask() {
    let condition = "[\"main\", \"master\"].contains(context.input.text) || context.input.text == \"main\" || \
                     context.targets.containsAny([\"main\"]) || context.parameters.containsAll([\"force\"]) || \
                     [\"number\"].containsAll(context.parameters)";
    let forbids = (0..100).map(|number| {
        let id = format!("\"f{number}\"");
        with("forbid", "", condition).replace("\"it\"", &id)
    });
    let ruling = long(250_000).ruled_only_with(&format!("{ALL}\n{}", forbids.collect::<String>()));
    assert_eq!(
        (ruling.reason, ruling.errors),
        (ReasonCode::PolicyPermits, Vec::new())
    );
}

/// Many that each have few are too much together, too.
#[test]
fn comparisons_of_many_policies_add_up() {
    let condition = "context.sensitive && [\"main\"].contains(context.input.text)";
    let forbids = (0..1_000).map(|number| {
        let id = format!("\"f{number}\"");
        with("forbid", "", condition).replace("\"it\"", &id)
    });
    let policies = format!("{ALL}\n{}", forbids.collect::<String>());
    let errors = |bytes: usize| {
        let ruling = long(bytes).ruled_only_with(&policies);
        let others_fail = "… and 936 more of the policies that fail";
        (ruling.errors.len(), ruling.explanation.ends_with(others_fail))
    };
    assert_eq!([100_000, 200_000].map(errors), [(0, false), (64, true)]);
}

#[test]
fn comparisons_on_trial_fail_for_the_shadow_alone() {
    let world = many_names();
    let few = with("forbid", "", "context.parameters.containsAny([\"x\"])");
    let tried = tenant("tried", &with("forbid", "", &look_ups()));
    let [in_force, promoted] =
        in_force_and_promoted(&world, &[tenant("mine", ALL), tenant("few", &few)], &tried);
    assert_eq!(in_force, (ReasonCode::PolicyPermits, vec!["mine/all".to_owned()]));
    assert_eq!(promoted, (ReasonCode::PolicyError, vec!["tried/it".to_owned()]));
}

/// Holds the shadow of an ask against what the same policies say once those on trial are enforced, and hands out what
/// is in force and the shadow.
fn in_force_and_promoted(
    world: &World,
    enforced: &[TenantPolicy],
    tried: &TenantPolicy,
) -> [(ReasonCode, Vec<String>); 2] {
    let compiled = |policies: &[TenantPolicy]| {
        let base = BasePolicies::parse("").unwrap();
        world.compile(&base, policies).unwrap()
    };
    let on_trial = TenantPolicy {
        mode: Mode::Shadow,
        ..tried.clone()
    };
    let set = compiled(&[enforced, &[on_trial]].concat());
    let others = enforced.iter().filter(|policy| policy.name != tried.name);
    let promoted: Vec<_> = others.cloned().chain([tried.clone()]).collect();
    let promoted = world.ask(&compiled(&promoted)).unwrap();
    let explanation = world.with_question(|question| set.explain(question)).unwrap();
    let rulings = world
        .with_question(|question| set.rule_with_shadow(question))
        .unwrap();
    assert_eq!(rulings.shadow.as_ref(), Some(&promoted));
    assert_eq!(explanation.shadow.as_ref(), Some(&promoted));
    assert_eq!(rulings.ruling, world.ask(&compiled(enforced)).unwrap());
    assert_eq!(explanation.ruling, rulings.ruling);
    [rulings.ruling, promoted].map(|ruling| {
        let matched = ruling.matched.iter().map(ToString::to_string);
        (ruling.reason, matched.collect())
    })
}

#[test]
fn a_shadow_with_fewer_patterns_fails_for_nothing_that_is_in_force() {
    let quick = |name: &str| tenant(name, &with("forbid", "", "context.input.text like \"b*\""));
    let slow = tenant("watch", &with("forbid", "", &patterns()));
    let enforced = [tenant("mine", ALL), quick("small"), slow];
    let [in_force, promoted] = in_force_and_promoted(&long(200_000), &enforced, &quick("watch"));
    let both = ["small/it", "watch/it"].map(str::to_owned).to_vec();
    assert_eq!(in_force, (ReasonCode::PolicyError, both));
    assert_eq!(promoted, (ReasonCode::PolicyPermits, vec!["mine/all".to_owned()]));
}

#[test]
fn what_is_in_force_fails_in_the_shadow_for_what_is_on_trial() {
    let small = tenant("small", &with("forbid", "", "context.input.text like \"b*\""));
    let enforced = [tenant("mine", ALL), small];
    let tried = tenant("tried", &with("permit", "", &patterns()));
    let [in_force, promoted] = in_force_and_promoted(&long(200_000), &enforced, &tried);
    assert_eq!(in_force, (ReasonCode::PolicyPermits, vec!["mine/all".to_owned()]));
    assert_eq!(promoted, (ReasonCode::PolicyError, vec!["small/it".to_owned()]));
    // So it is where conditions are too long.
    let enforced = [tenant("mine", ALL), listed("list", "1")];
    let [in_force, promoted] = in_force_and_promoted(&World::default(), &enforced, &listed("tried", "1"));
    assert_eq!(in_force.0, ReasonCode::PolicyPermits);
    let both = ["list/it", "tried/it"].map(str::to_owned).to_vec();
    assert_eq!(promoted, (ReasonCode::PolicyError, both));
}

/// A policy that forbids this rank of the source, in a list of it that takes more than half of what can be evaluated in time.
fn listed(policy: &str, rank: &str) -> TenantPolicy {
    let list = vec![rank; 60_000].join(",");
    let condition = format!("[{list}].contains(context.trust.rank)");
    tenant(policy, &with("forbid", "", &condition))
}

#[test]
fn conditions_that_are_too_much_together_fail() {
    let compiled = |policies: &[TenantPolicy]| {
        let base = BasePolicies::parse("").unwrap();
        World::default().compile(&base, policies).unwrap()
    };
    let alone = compiled(&[tenant("mine", ALL), listed("list", "4")]);
    let within = World::default().ask(&alone).unwrap();
    assert_eq!(
        (within.reason, matched(&within)),
        (ReasonCode::PolicyForbids, vec!["list/it"])
    );
    assert!(alone.warnings().is_empty(), "{:?}", alone.warnings());
    let short = tenant("short", &with("forbid", "", "context.sensitive"));
    let both = compiled(&[
        tenant("mine", ALL),
        listed("list", "4"),
        listed("other", "4"),
        short,
    ]);
    let beyond = World::default().ask(&both).unwrap();
    assert_eq!(
        (beyond.reason, matched(&beyond)),
        (ReasonCode::PolicyError, vec!["list/it", "other/it"])
    );
    assert_eq!(
        beyond.errors[0].message,
        "it has too many parts to be evaluated with all others about the ask"
    );
    let warned = both.too_much_together();
    let warned: Vec<_> = warned.filter_map(|warning| warning.policy.as_deref()).collect();
    assert_eq!((warned, both.warnings().len()), (vec!["list/it", "other/it"], 2));
    assert_eq!(
        both.warnings()[0].message,
        "the conditions of all policies have 1080012 parts to evaluate, and those of an ask may have 1048576: where it is about all of them, this one fails"
    );
    // What is short holds all the same.
    let sensitive = World {
        sensitive: true,
        ..World::default()
    };
    let trapped = sensitive.ask(&both).unwrap();
    assert_eq!(
        (trapped.reason, matched(&trapped), trapped.errors.len()),
        (ReasonCode::PolicyForbids, vec!["short/it"], 2)
    );
}

#[test]
fn what_the_operator_asks_is_evaluated_beside_whatever_a_tenant_has() {
    let base = |effect: &str| {
        let list = vec!["4"; 60_000].join(",");
        let condition = format!("[{list}].contains(context.trust.rank)");
        BasePolicies::parse(&with(effect, "", &condition)).unwrap()
    };
    let ruled = |effect: &str, policies: &[TenantPolicy]| {
        let set = World::default().compile(&base(effect), policies).unwrap();
        let ruling = World::default().ask(&set).unwrap();
        let matched = ruling.matched.iter().map(ToString::to_string);
        (ruling.reason, matched.collect::<Vec<_>>().join(" "))
    };
    let one = [listed("list", "4")];
    assert_eq!(
        ruled("permit", &one),
        (ReasonCode::PolicyForbids, "list/it".to_owned())
    );
    let many = [listed("list", "4"), listed("other", "4")];
    assert_eq!(
        ruled("permit", &many),
        (ReasonCode::PolicyError, "list/it other/it".to_owned())
    );
    assert_eq!(
        ruled("forbid", &many),
        (ReasonCode::PolicyForbids, "base/it".to_owned())
    );
}

#[test]
fn conditions_on_trial_fail_for_the_shadow_alone() {
    let policies = [
        tenant("mine", ALL),
        listed("list", "1"),
        TenantPolicy {
            mode: Mode::Shadow,
            ..listed("tried", "1")
        },
    ];
    let world = World::default();
    let set = world
        .compile(&BasePolicies::parse("").unwrap(), &policies)
        .unwrap();
    let rulings = world
        .with_question(|question| set.rule_with_shadow(question))
        .unwrap();
    assert_eq!(rulings.ruling, world.ask(&set).unwrap());
    assert_eq!(
        (rulings.ruling.reason, rulings.shadow.unwrap().reason),
        (ReasonCode::PolicyPermits, ReasonCode::PolicyError)
    );
    let warned = set.too_much_together();
    let warned: Vec<_> = warned.filter_map(|warning| warning.policy.as_deref()).collect();
    assert_eq!(warned, ["list/it", "tried/it"]);
}

/// It counts nowhere, and is evaluated only to be shown.
#[test]
fn what_an_agent_has_a_canary_in_the_place_of_fails_alike_where_it_is_too_much() {
    let agents = Arc::new(BTreeSet::from([World::default().agent().id]));
    let canary = |replaced: &TenantPolicy| TenantPolicy {
        mode: Mode::Canary(Arc::clone(&agents)),
        ..tenant(replaced.name.as_str(), ALL)
    };
    for (world, replaced, error) in [
        (
            World::default(),
            vec![listed("list", "4"), listed("other", "4")],
            "it has too many parts to be evaluated with all others about the ask",
        ),
        (
            long(200_000),
            vec![tenant("mine", &with("forbid", "", &patterns()))],
            "its patterns could take too long with texts as long as those that they may meet",
        ),
        (
            many_names(),
            vec![tenant("mine", &with("forbid", "", &look_ups()))],
            "its comparisons of lists and texts could take too long with an ask as long as this one",
        ),
    ] {
        let canaries = replaced.iter().map(canary).collect();
        let policies: Vec<TenantPolicy> = [replaced.clone(), canaries].concat();
        let set = world
            .compile(&BasePolicies::parse("").unwrap(), &policies)
            .unwrap();
        let explanation = world.with_question(|question| set.explain(question)).unwrap();
        assert_eq!(explanation.ruling.reason, ReasonCode::PolicyPermits);
        let shown = explanation.policies.iter();
        let enforced = shown.filter(|policy| policy.mode == "enforced");
        let errors: Vec<_> = enforced.map(|policy| policy.error).collect();
        assert_eq!(errors, vec![Some(error); replaced.len()]);
    }
}

#[test]
fn a_mistyped_attribute_is_refused_also_when_no_policy_looks_at_it() {
    let world = |value: Value| World {
        declared: BTreeMap::from([
            (name("level"), AttributeType::Long),
            (name("labels"), AttributeType::Strings),
        ]),
        attributes: Some(value),
        ..World::default()
    };
    let asked = |value: Value| {
        let world = world(value);
        world.ask(&world.compile(&BasePolicies::shipped(), &[]).unwrap())
    };
    assert!(asked(json!({"level": 3, "labels": ["a"], "more": null})).is_ok());
    for (value, name, detail) in [
        (json!({"level": "3"}), "level", "is not an integer"),
        (json!({"level": null}), "level", "is not an integer"),
        (
            json!({"labels": ["a", 1]}),
            "labels",
            "is not an array of strings",
        ),
    ] {
        let (name, detail) = (name.to_owned(), detail.to_owned());
        assert_eq!(
            asked(value),
            Err(Unanswerable::MistypedAttribute { name, detail })
        );
    }
}

/// Under that name `serde_json` would read what is in its text, and nobody else does.
#[test]
fn a_name_that_serde_json_keeps_for_itself_is_one_like_any_other() {
    let wrapped = |inner: &str| json!({"$serde_json::private::RawValue": inner});
    let world = World {
        schema: Some(json!({"properties": {"base_branch": {"type": "string"}}, "required": ["base_branch"]})),
        parameters: wrapped(r#"{"base_branch":"dev"}"#),
        ..World::default()
    };
    let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    let invalid = Unanswerable::InvalidParameters {
        pointer: String::new(),
        detail: "lacks `base_branch`".to_owned(),
    };
    assert_eq!(world.ask(&set), Err(invalid));

    let world = World {
        declared: BTreeMap::from([(name("ticket"), AttributeType::String)]),
        attributes: Some(wrapped(r#"{"ticket":"T-1"}"#)),
        parameters: wrapped(r#"{"base":"main"}"#),
        ..World::default()
    };
    for condition in [
        "!context.target_stated && !context.targets.contains(\"main\")",
        r#"context.parameters.contains("$serde_json::private::RawValue") && !context.parameters.contains("base")"#,
        "!(context.attributes has ticket)",
    ] {
        assert!(sees(&world, condition), "{condition}");
    }
}

/// What a schema says is JSON in a text is read as any other text of the agent's: a key means nothing in it.
#[test]
fn json_in_a_text_is_what_stands_there_whatever_its_members_are_called() {
    let admits = |member: serde_json::Value, text: &str| {
        let world = World {
            schema: Some(json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "type": "object",
                "properties": {"x": member},
            })),
            parameters: json!({"x": text}),
            ..World::default()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        world.ask(&set).is_ok()
    };
    let json_text = json!({"contentMediaType": "application/json"});
    assert!(admits(json_text.clone(), r#"{"a":[1]}"#));
    assert!(admits(
        json_text.clone(),
        r#"{"$serde_json::private::RawValue":"no JSON"}"#
    ));
    assert!(!admits(json_text, "no JSON"));
    let encoded = json!({"contentMediaType": "application/json", "contentEncoding": "base64"});
    // {"$serde_json::private::RawValue":"no JSON"}
    assert!(admits(
        encoded.clone(),
        "eyIkc2VyZGVfanNvbjo6cHJpdmF0ZTo6UmF3VmFsdWUiOiJubyBKU09OIn0="
    ));
    assert!(!admits(encoded, "bm8gSlNPTg=="));
}

#[test]
fn names_with_quotes_backslashes_and_other_scripts_work() {
    for odd in [
        r#"a"b\c"#,
        "${x}",
        "工具 🛠",
        r#"") permit (principal, action, resource); //"#,
        "__cedar",
        "read",
        "'",
    ] {
        let world = World {
            tool: odd.replace('/', "|"),
            action: odd.into(),
            schema: Some(
                json!({"type": "object", "properties": {odd: {"type": "string"}}, "required": [odd]}),
            ),
            parameters: json!({odd: odd}),
            ..World::default()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        assert_eq!(
            world.ask(&set).unwrap().reason,
            ReasonCode::PolicyPermits,
            "{odd}"
        );
        let text = world.schema_texts().cedar;
        let parsed = cedar_policy::Schema::from_cedarschema_str(&text).map(|_| ());
        parsed.unwrap_or_else(|error| panic!("{error}\n{text}"));
        let literal = format!("\"{}\"", odd.replace('\\', "\\\\").replace('"', "\\\""));
        assert!(
            sees(&world, &format!("context.input[{literal}] == {literal}")),
            "{odd}"
        );
    }
}

#[test]
fn an_obligation_outranks_neither_a_denial_nor_an_approval() {
    let world = World {
        parameters: json!({"password": "x"}),
        ..World::default()
    };
    let redacting =
        "@id(\"r\") @obligation(\"redact:parameters.password\") permit (principal, action, resource);";
    let advising = "@id(\"s\") @decision(\"advise\") @obligation(\"redact:parameters.password\") permit (principal, action, resource);";
    for (stricter, expected) in [
        ("forbid", Verdict::Deny),
        ("@decision(\"require_approval\") permit", Verdict::RequireApproval),
        ("permit", Verdict::Allow),
    ] {
        let stricter = format!("@id(\"a\") {stricter} (principal, action, resource);");
        for text in [
            [redacting, advising, &stricter].join("\n"),
            [&*stricter, advising, redacting].join("\n"),
        ] {
            let ruling = world.ruled_only_with(&text);
            assert_eq!(ruling.verdict(), expected, "{text}");
            assert_eq!(obligations(&ruling), ["redact:parameters.password"], "{text}");
        }
    }
}

#[test]
fn an_action_that_the_set_does_not_know_is_denied() {
    let set = compile(
        &[tool("other", [action("create_issue", true, None)])],
        &[tenant("mine", ALL)],
    )
    .unwrap();
    assert_eq!(
        World::default().ask(&set).unwrap().reason,
        ReasonCode::UnknownTool
    );
}

/// The tools and the calls of a public agent benchmark, or `None` where they are not at hand.
fn agentdojo(suite: &str) -> Option<(Tool, Vec<Value>)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/agentdojo");
    let read = |path: String| std::fs::read_to_string(format!("{folder}/{path}"));
    let Ok(tools) = read(format!("tools/{suite}.json")) else {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "the benchmark's tools are missing");
        eprintln!("skipped: no {folder}");
        return None;
    };
    let tools: Value = serde_json::from_str(&tools).expect("the tools are JSON");
    let actions = tools["tools"]
        .as_array()
        .expect("tools/list is an array")
        .iter()
        .map(|tool| {
            let mutates = tool["annotations"]["readOnlyHint"] != json!(true);
            action(
                tool["name"].as_str().expect("a name is a text"),
                mutates,
                Some(tool["inputSchema"].clone()),
            )
        });
    let calls = read(format!("calls/{suite}.ndjson")).expect("the calls stand beside the tools");
    let calls = calls
        .lines()
        .map(|line| serde_json::from_str(line).expect("every line is JSON"))
        .collect();
    Some((tool(suite, actions), calls))
}

#[test]
fn the_tools_of_a_public_benchmark_compile_and_their_calls_are_answered() {
    for suite in ["workspace", "banking"] {
        let Some((tool, calls)) = agentdojo(suite) else {
            return;
        };
        let set = compile(std::slice::from_ref(&tool), &[]).unwrap();
        assert!(!calls.is_empty());
        for call in calls {
            let verdict = play(&set, &tool, &call).verdict();
            let injected = call["kind"] == "injection" && call["mutates_state"] == json!(true);
            assert_eq!(verdict == Verdict::Deny, injected, "{call}");
        }
    }
}

fn play(set: &PolicySet, tool: &Tool, call: &Value) -> policy::Ruling {
    let world = World {
        trust: serde_json::from_value(call["source_trust"].clone()).expect("the label is a level"),
        ..World::default()
    };
    let action = &tool.actions[call["action"].as_str().expect("a name is a text")];
    let parameters = call["parameters"].to_string();
    world.with_question(|question| {
        let question = Question {
            tool,
            action,
            mutates: action.mutates_state,
            parameters: &parameters,
            ..*question
        };
        set.rule(&question)
            .unwrap_or_else(|error| panic!("{call}: {error}"))
    })
}
