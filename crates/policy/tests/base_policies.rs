//! The proof of `policies.cedar`: for every rule at least one ask that it decides, and one near it that it does not.

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{ReasonCode, RiskTier, Trust, Verdict};
use policy::BasePolicies;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use world::{World, action, compile, matched, obligations, tool};

/// One line of the table.
struct Case {
    rule: &'static str,
    /// Whether the rule is among those that made the ruling.
    decides: bool,
    world: World,
    reason: ReasonCode,
    obligations: &'static [&'static str],
}

fn case(rule: &'static str, decides: bool, world: World, reason: ReasonCode) -> Case {
    Case {
        rule,
        decides,
        world,
        reason,
        obligations: &[],
    }
}

fn read() -> World {
    World {
        action: "get_issue".into(),
        registered_as_mutating: false,
        ..World::default()
    }
}

fn from(trust: Trust) -> World {
    World {
        trust,
        ..World::default()
    }
}

fn by_tier(tier: RiskTier, world: World) -> World {
    World { tier, ..world }
}

fn merge(action: &str, parameters: Value) -> World {
    World {
        action: action.into(),
        parameters,
        ..World::default()
    }
}

fn with_schema(world: World, schema: Value) -> World {
    World {
        schema: Some(schema),
        ..world
    }
}

fn reads() -> Vec<Case> {
    use ReasonCode::PolicyPermits;
    let claimed = World {
        claimed_as_mutating: true,
        ..read()
    };
    let suspected = World {
        trust: Trust::MaliciousSuspected,
        ..read()
    };
    vec![
        case("read", true, read(), PolicyPermits),
        case("read", true, suspected, PolicyPermits),
        case("read", true, by_tier(RiskTier::High, read()), PolicyPermits),
        // It is a read all the same, and has to be allowed as one.
        case("read", true, claimed.clone(), PolicyPermits),
        case("read", false, World::default(), PolicyPermits),
        case("mutation-from-trusted", true, claimed, PolicyPermits),
    ]
}

fn mutations() -> Vec<Case> {
    use ReasonCode::{PolicyForbids, PolicyPermits, PolicyRequiresApproval};
    let mut cases = vec![
        case(
            "mutation-from-trusted",
            true,
            from(Trust::TrustedInternalSigned),
            PolicyPermits,
        ),
        case(
            "mutation-from-trusted",
            true,
            from(Trust::TrustedInternalUnsigned),
            PolicyPermits,
        ),
        case(
            "mutation-from-trusted",
            false,
            from(Trust::SemiTrustedCustomer),
            PolicyRequiresApproval,
        ),
        case(
            "mutation-from-customer",
            true,
            from(Trust::SemiTrustedCustomer),
            PolicyRequiresApproval,
        ),
        case(
            "mutation-from-customer",
            false,
            from(Trust::TrustedInternalUnsigned),
            PolicyPermits,
        ),
        case(
            "mutation-from-customer",
            false,
            World {
                trust: Trust::SemiTrustedCustomer,
                ..read()
            },
            PolicyPermits,
        ),
        case(
            "mutation-from-untrusted",
            false,
            from(Trust::SemiTrustedCustomer),
            PolicyRequiresApproval,
        ),
        case(
            "mutation-from-untrusted",
            false,
            World {
                trust: Trust::UntrustedExternal,
                ..read()
            },
            PolicyPermits,
        ),
        case(
            "mutation-by-high-risk-agent",
            true,
            by_tier(RiskTier::High, World::default()),
            PolicyRequiresApproval,
        ),
        case(
            "mutation-by-high-risk-agent",
            false,
            by_tier(RiskTier::Medium, World::default()),
            PolicyPermits,
        ),
        case(
            "mutation-by-high-risk-agent",
            false,
            by_tier(RiskTier::High, from(Trust::Unknown)),
            PolicyForbids,
        ),
    ];
    for level in [
        Trust::UntrustedExternal,
        Trust::MaliciousSuspected,
        Trust::Unknown,
    ] {
        cases.push(case("mutation-from-untrusted", true, from(level), PolicyForbids));
    }
    cases
}

fn to_target(target: Value) -> World {
    merge("merge_pull_request", target)
}

fn declares_base() -> Value {
    json!({"type": "object", "properties": {"base": {"type": "string"}}})
}

fn merges_to_main() -> Vec<Case> {
    use ReasonCode::{PolicyForbids, PolicyPermits, PolicyRequiresApproval};
    let decides = |world| case("merge-to-main", true, world, PolicyRequiresApproval);
    let near = |world, reason| case("merge-to-main", false, world, reason);
    let to_main = || to_target(json!({"base": "main"}));
    let read = World {
        registered_as_mutating: false,
        ..to_main()
    };
    let from_outside = World {
        trust: Trust::UntrustedExternal,
        ..to_main()
    };
    vec![
        decides(to_target(json!({"base_branch": "main"}))),
        decides(to_target(json!({"base": "refs/heads/main"}))),
        decides(to_target(json!({"target_branch": "main"}))),
        decides(to_target(json!({"base": "refs/heads/main "}))),
        decides(to_target(json!({"base": "main\u{feff}"}))),
        decides(to_target(json!({"base": [" main\u{a0}"]}))),
        decides(to_target(json!({"base": {"ref": "main"}}))),
        decides(merge("autoMergeLater", json!({"base": ["main"]}))),
        decides(with_schema(to_main(), declares_base())),
        near(to_target(json!({"base": "maintenance"})), PolicyPermits),
        near(to_target(json!({"base": "dev", "title": "main"})), PolicyPermits),
        near(merge("create_branch", json!({"base": "main"})), PolicyPermits),
        near(read, PolicyPermits),
        near(from_outside, PolicyForbids),
    ]
}

fn merges_without_target() -> Vec<Case> {
    use ReasonCode::{PolicyPermits, PolicyRequiresApproval};
    let decides = |world| case("merge-without-target", true, world, PolicyRequiresApproval);
    let near = |world| case("merge-without-target", false, world, PolicyPermits);
    let without_base = json!({"type": "object", "properties": {"number": {"type": "integer"}}});
    vec![
        decides(merge("merge", json!({}))),
        decides(merge("accept_merge_request", json!({}))),
        decides(to_target(json!({"number": 42}))),
        decides(to_target(json!({"base": 5}))),
        decides(to_target(json!({"base": ""}))),
        decides(to_target(json!({"base": " \u{3000}\n"}))),
        // Taken off by JavaScript's `trim`, by Python's `strip` and by Java's `trim`.
        decides(to_target(json!({"base": "\u{feff}"}))),
        decides(to_target(json!({"base": "\u{1c} "}))),
        decides(to_target(json!({"base": "\u{0}"}))),
        decides(with_schema(to_target(json!({"base": " "})), declares_base())),
        // The action does not declare `base`: it may ignore it, and merge into main.
        decides(with_schema(
            to_target(json!({"number": 42, "base": "dev"})),
            without_base,
        )),
        near(to_target(json!({"base": "dev"}))),
        near(with_schema(to_target(json!({"base": "dev"})), declares_base())),
        near(with_schema(
            to_target(json!({"base": "dev"})),
            json!({"$ref": "#/$defs/a", "$defs": {"a": declares_base()}}),
        )),
        near(merge("merge_contacts", json!({}))),
    ]
}

fn canaries_and_credentials() -> Vec<Case> {
    use ReasonCode::{PolicyForbids, PolicyPermits};
    let quarantine: &[&str] = &["quarantine:agent"];
    let canary = |world: World| Case {
        obligations: quarantine,
        ..case("canary", true, world, PolicyForbids)
    };
    let called = |tool: &str| World {
        tool: tool.into(),
        ..read()
    };
    let given = |parameters: Value| World {
        parameters,
        ..World::default()
    };
    let redacted = |world, reason, obligations| Case {
        obligations,
        ..case("redact-credentials", true, world, reason)
    };
    vec![
        canary(World {
            canary: true,
            ..read()
        }),
        canary(called("canary-tokens")),
        canary(World {
            canary: true,
            trust: Trust::Unknown,
            ..World::default()
        }),
        case("canary", false, called("my-canary"), PolicyPermits),
        redacted(
            given(json!({"password": "x"})),
            PolicyPermits,
            &["redact:parameters.password"],
        ),
        redacted(
            given(json!({"token": "x", "api_key": "y", "title": "z"})),
            PolicyPermits,
            &["redact:parameters.api_key", "redact:parameters.token"],
        ),
        redacted(
            World {
                trust: Trust::Unknown,
                ..given(json!({"client_secret": "x"}))
            },
            PolicyForbids,
            &["redact:parameters.client_secret"],
        ),
        case(
            "redact-credentials",
            false,
            given(json!({"tokens": 5, "title": "password"})),
            PolicyPermits,
        ),
    ]
}

fn table() -> Vec<Case> {
    [
        reads(),
        mutations(),
        merges_to_main(),
        merges_without_target(),
        canaries_and_credentials(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

#[test]
fn every_case_of_the_table_holds() {
    for Case {
        rule,
        decides,
        world,
        reason,
        obligations: expected,
    } in table()
    {
        let ruling = world.ruled();
        let said = format!("{rule}: {ruling:?} for {world:?}");
        assert_eq!(
            matched(&ruling).contains(&format!("base/{rule}").as_str()),
            decides,
            "{said}"
        );
        assert_eq!(ruling.reason, reason, "{said}");
        assert_eq!(obligations(&ruling), expected, "{said}");
        assert_eq!(ruling.errors, [], "{said}");
    }
}

#[test]
fn every_rule_has_a_case_that_it_decides_and_one_that_it_does_not() {
    let of = |decides: bool| -> BTreeSet<String> {
        let cases = table().into_iter().filter(|case| case.decides == decides);
        cases.map(|case| format!("base/{}", case.rule)).collect()
    };
    let set = compile(&[], &[]).unwrap();
    let rules: BTreeSet<String> = set.policy_ids().into_iter().map(ToString::to_string).collect();
    assert_eq!(of(true), rules, "a rule without a case that it decides");
    assert_eq!(of(false), rules, "a rule without a near miss");
}

#[test]
fn advice_permits_nothing() {
    let advice: String = BasePolicies::SHIPPED
        .split_inclusive(";\n")
        .filter(|text| text.contains("advise"))
        .collect();
    let base = BasePolicies::parse(&advice).unwrap();
    let world = World {
        parameters: json!({"password": "x"}),
        ..World::default()
    };
    let ruling = world.ask(&world.compile(&base, &[]).unwrap()).unwrap();
    assert_eq!(ruling.reason, ReasonCode::NoPolicyPermits);
    assert_eq!(obligations(&ruling), ["redact:parameters.password"]);
}

#[test]
fn a_tenant_cannot_lift_a_base_forbid() {
    let all = "@id(\"all\") permit (principal, action, resource);";
    assert_eq!(
        from(Trust::UntrustedExternal).ruled_with(all).reason,
        ReasonCode::PolicyForbids
    );
    assert_eq!(
        from(Trust::SemiTrustedCustomer).ruled_with(all).reason,
        ReasonCode::PolicyRequiresApproval
    );
}

#[test]
fn the_base_policies_fit_every_registry() {
    let odd = [
        json!({"type": "object", "properties": {"base_branch": {"type": "integer"}, "base": {"type": "boolean"}}}),
        json!({"type": "object", "properties": {"password": {"type": "object", "properties": {"x": {"type": "string"}}}}}),
        json!({"type": "object", "properties": {"target_branch": {"type": "array", "items": {"type": "number"}}}}),
        json!({"type": "object", "properties": {"token": {}, "trust": {"type": "string"}, "tool": true}}),
        json!(true),
        json!({}),
    ];
    let actions = odd
        .iter()
        .enumerate()
        .map(|(index, schema)| action(&format!("merge{index}"), index % 2 == 0, Some(schema.clone())));
    for tools in [vec![], vec![tool("empty", [])], vec![tool("odd", actions)]] {
        let set = compile(&tools, &[]).unwrap();
        assert_eq!(set.policy_ids().len(), 9);
    }
}

fn looseness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Deny => 0,
        Verdict::RequireApproval => 1,
        Verdict::Allow => 2,
    }
}

fn worlds() -> impl Strategy<Value = World> {
    let names = prop::sample::select(vec![
        "get_issue",
        "merge",
        "merge_pull_request",
        "send",
        "autoMerge",
    ]);
    let tools = prop::sample::select(vec!["github", "canary-x", "mail"]);
    let parameters = prop::sample::select(vec![
        json!({}),
        json!({"base": "main"}),
        json!({"base": "dev", "token": "x"}),
        json!({"target_branch": ["main"]}),
    ]);
    let tiers = prop::sample::select(vec![RiskTier::Low, RiskTier::Medium, RiskTier::High]);
    let levels = prop::sample::select(Trust::ALL.to_vec());
    (
        names,
        tools,
        parameters,
        tiers,
        levels,
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(action, tool, parameters, tier, trust, registered_as_mutating, canary)| World {
                action: action.into(),
                tool: tool.into(),
                parameters,
                tier,
                trust,
                registered_as_mutating,
                canary,
                ..World::default()
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn a_claim_to_mutate_never_loosens(world in worlds()) {
        let claimed = World { claimed_as_mutating: true, ..world.clone() };
        prop_assert!(looseness(claimed.ruled().verdict()) <= looseness(world.ruled().verdict()));
    }

    #[test]
    fn a_worse_source_never_loosens(world in worlds()) {
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        let rulings = Trust::ALL.map(|trust| World { trust, ..world.clone() }.ask(&set).unwrap().verdict());
        prop_assert!(rulings.map(looseness).is_sorted_by(|better, worse| better >= worse), "{rulings:?}");
    }
}
