//! Answers with everything that led to them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use cedar_policy::{Context, Entities, EntityUid, Request, Schema};
use model::{AttributeType, ReasonCode, Team, Trust, User};
use policy::{BasePolicies, Explanation, Mode, TenantPolicy};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use world::{World, attributes, name, tenant};

fn explained(world: &World, policies: &[TenantPolicy]) -> Explanation {
    let set = world
        .compile(&BasePolicies::parse("").unwrap(), policies)
        .unwrap();
    world.with_question(|question| set.explain(question)).unwrap()
}

/// As policies see it, and as entries tell it.
fn usage() -> Value {
    let calls = json!({"limit": 10, "used": 7});
    json!({
        "budget": {"allocated": 100, "remaining": -5, "spent": 90},
        "calls": {"minute": calls, "hour": calls, "day": calls, "month": calls, "run": calls},
        "estimate": {"amount": 3, "unit": "TOKENS"},
    })
}

/// A question with everything that a question can have.
fn full() -> World {
    World {
        schema: Some(json!({"properties": {
            "amount": {"type": "number"}, "to": {"type": "array", "items": {"type": "string"}},
            "note": {"type": ["string", "null"]}, "any": {},
        }, "required": ["amount"]})),
        parameters: json!({"amount": 98.7, "to": ["a@b"], "any": {"x": 1}, "base": "main"}),
        team: Some(Team {
            name: name("sales"),
            attributes: attributes(json!({"floor": 3})),
            quotas: Vec::new(),
        }),
        user: Some((
            "u-17".into(),
            Some(User {
                name: name("u-17"),
                teams: BTreeSet::from([name("sales"), name("owners")]),
                attributes: attributes(json!({"vip": true})),
                roles: std::collections::BTreeSet::new(),
            }),
        )),
        agent_attributes: attributes(json!({"cost centre": "x"})),
        declared: BTreeMap::from([
            (name("ticket"), AttributeType::String),
            (name("hours"), AttributeType::Decimal),
        ]),
        attributes: Some(json!({"ticket": "T-1", "hours": 1.5})),
        run: Some("run-1".into()),
        usage: serde_json::from_value(usage()).unwrap(),
        resource: Some("repo:acme/\"widgets\"".into()),
        sensitive: true,
        ..World::default()
    }
}

#[test]
fn an_explanation_tells_what_came_of_every_policy_that_the_ask_is_about() {
    let cedar = r#"@id("b") @reason("why not") @description("for people") permit (principal, action, resource);
@id("c") permit (principal, action, resource) when { context.sensitive };
@id("d") permit (principal, action, resource) when { 9223372036854775807 + context.trust.rank > 0 };
@id("elsewhere") forbid (principal, action, resource == Resource::"other");"#;
    let trial = TenantPolicy {
        mode: Mode::Shadow,
        ..tenant(
            "strict",
            "@id(\"a\") @decision(\"require_approval\") @approvers(\"leads\") @quorum(\"2\") permit (principal, action, resource);",
        )
    };
    let explanation = explained(&World::default(), &[tenant("mine", cedar), trial]);
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(
        json["ruling"],
        json!({
            "decision": "allow", "reason_code": "policy_permits", "reason": "why not",
            "matched_policies": ["mine/b"], "obligations": [],
            "errors": [{"policy": "mine/d", "message": "an integer overflows"}],
        })
    );
    assert_eq!(
        json["shadow"],
        json!({
            "decision": "require_approval", "reason_code": "policy_requires_approval",
            "reason": "the policy `strict/a` requires approval", "matched_policies": ["strict/a"], "obligations": [],
            "approval": {"group": "leads", "quorum": 2},
            "errors": [{"policy": "mine/d", "message": "an integer overflows"}],
        })
    );
    assert_eq!(
        json["policies"],
        json!([
            {"id": "mine/b", "effect": "permit", "mode": "enforced", "outcome": "satisfied", "determines": true,
             "annotations": {"description": "for people", "reason": "why not"}, "line": 1, "column": 1, "offset": 0, "length": 92},
            {"id": "mine/c", "effect": "permit", "mode": "enforced", "outcome": "unsatisfied", "determines": false,
             "annotations": {}, "line": 2, "column": 1, "offset": 93, "length": 73},
            {"id": "mine/d", "effect": "permit", "mode": "enforced", "outcome": "failed", "error": "an integer overflows",
             "determines": false, "annotations": {}, "line": 3, "column": 1, "offset": 167, "length": 100},
            {"id": "strict/a", "effect": "permit", "mode": "shadow", "outcome": "satisfied", "determines": false,
             "annotations": {"approvers": "leads", "decision": "require_approval", "quorum": "2"},
             "line": 1, "column": 1, "offset": 0, "length": 109},
        ])
    );
}

/// Annotations are as long as a tenant writes them, and told for the agent and the user, as claimed and as registered.
#[test]
fn of_policies_that_say_much_the_first_are_told_and_before_them_what_decides() {
    let reason = "x".repeat(4_000);
    let idle = |number: usize| {
        format!(
            "@id(\"{number:02}\") @reason(\"{reason}\") forbid (principal, action, resource) when {{ context.sensitive }};"
        )
    };
    let idle = (0..50).map(idle).collect::<Vec<_>>().join("\n");
    let mut policies: Vec<_> = ["a", "b", "c", "d"].map(|name| tenant(name, &idle)).into();
    policies.push(tenant("z", "@id(\"all\") permit (principal, action, resource);"));
    let world = World {
        registered_as_mutating: false,
        claimed_as_mutating: true,
        user: Some(("u-17".into(), None)),
        ..World::default()
    };
    let explanation = explained(&world, &policies);
    assert_eq!(explanation.ruling.reason, ReasonCode::PolicyPermits);
    assert!(serde_json::to_string(&explanation).unwrap().len() < 4 << 20);
    let user = explanation.for_user.unwrap();
    let registered = explanation.as_registered.unwrap();
    let registered_user = registered.for_user.unwrap();
    for (told, more) in [
        (explanation.policies, explanation.more_policies),
        (user.policies, user.more_policies),
        (registered.policies, registered.more_policies),
        (registered_user.policies, registered_user.more_policies),
    ] {
        assert_eq!(told.len() + more.unwrap(), 201);
        assert!((100..150).contains(&told.len()), "{}", told.len());
        let ids: Vec<_> = told.iter().map(|policy| policy.id.as_str()).collect();
        assert!(ids.is_sorted());
        assert_eq!((ids[0], ids[ids.len() - 1]), ("a/00", "z/all"));
        assert!(told[told.len() - 1].determines);
    }
    let few = explained(&world, &policies[3..]);
    assert_eq!((few.policies.len(), few.more_policies), (51, None));
}

#[test]
fn the_question_is_shown_as_cedar_saw_it() {
    let explanation = explained(&full(), &[]);
    assert_eq!(explanation.ruling.reason, ReasonCode::NoPolicyPermits);
    let request = explanation.request.unwrap();
    assert_eq!(
        (&*request.principal, &*request.action, &*request.resource),
        (
            "Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\"",
            "Action::\"github/create_issue\"",
            "Resource::\"repo:acme/\\\"widgets\\\"\"",
        )
    );
    let as_the_call = json!({"level": "trusted_internal_unsigned", "rank": 4});
    let decimal = |text: &str| json!({"__extn": {"fn": "decimal", "arg": text}});
    assert_eq!(
        request.context.unwrap(),
        json!({
            "input": {"amount": decimal("98.7"), "to": ["a@b"]},
            "parameters": ["amount", "any", "base", "to"],
            "targets": ["main"],
            "target_stated": false,
            "trust": {"claimed": "trusted_internal_unsigned", "level": "trusted_internal_unsigned", "rank": 4, "signed": false},
            "tool": {"name": "github", "action": "create_issue", "risk": "medium", "mutates": true, "canary": false},
            "agent": {"name": "builder", "risk_tier": "low", "environment": "production", "team": "sales"},
            "environment": "production",
            "user": {"__entity": {"type": "User", "id": "u-17"}},
            "sensitive": true,
            "attributes": {"ticket": "T-1", "hours": decimal("1.5")},
            "run": {"id": "run-1", "worst": as_the_call},
            "usage": usage(),
            "sources": {"amount": as_the_call, "any": as_the_call, "note": as_the_call, "to": as_the_call},
            "now": {"__extn": {"fn": "datetime", "arg": "2023-11-14T22:13:20.000Z"}},
        })
    );
    let uid = |kind: &str, id: &str| json!({"type": kind, "id": id});
    let groups = ["mutate", "risk:medium", "tool:github"].map(|group| uid("Action", group));
    assert_eq!(
        request.entities,
        json!([
            {"uid": uid("Action", "github/create_issue"), "attrs": {}, "parents": groups},
            {"uid": uid("Agent", "agt_070w3ge1r70w3ge1r70w3ge1r7"),
             "attrs": {"name": "builder", "risk_tier": "low", "environment": "production"},
             "parents": [uid("Team", "sales")], "tags": {"cost centre": "x"}},
            {"uid": uid("Team", "sales"), "attrs": {}, "parents": [], "tags": {"floor": "3"}},
            {"uid": uid("User", "u-17"), "attrs": {}, "parents": [uid("Team", "owners"), uid("Team", "sales")],
             "tags": {"vip": "true"}},
        ])
    );
}

#[test]
fn what_cedar_saw_fits_the_schema_that_policies_are_validated_against() {
    for world in [
        full(),
        World::default(),
        World {
            user: Some(("stranger".into(), None)),
            trust: Trust::Unknown,
            ..World::default()
        },
    ] {
        let (schema, _) = Schema::from_cedarschema_str(&world.schema_texts().cedar).unwrap();
        let again = Schema::from_json_str(world.schema_texts().json.get()).unwrap();
        assert_eq!(again.actions().count(), schema.actions().count());
        let request = explained(&world, &[]).request.unwrap();
        let uid = |text: &str| text.parse::<EntityUid>().unwrap();
        let action = uid(&request.action);
        let context = Context::from_json_value(request.context.unwrap(), Some((&schema, &action))).unwrap();
        let asked = (uid(&request.principal), action, uid(&request.resource));
        Request::new(asked.0, asked.1, asked.2, context, Some(&schema)).unwrap();
        let mut entities = request.entities.as_array().unwrap().clone();
        entities.retain(|entity| entity["uid"]["type"] != "Action");
        Entities::from_json_value(Value::Array(entities), Some(&schema)).unwrap();
    }
}

#[test]
fn an_action_that_nothing_knows_has_no_request() {
    let set = world::compile(&[], &[]).unwrap();
    let explanation = World::default()
        .with_question(|question| set.explain(question))
        .unwrap();
    assert_eq!(
        (explanation.ruling.reason, explanation.request),
        (ReasonCode::UnknownTool, None)
    );
}

#[test]
fn names_that_cedars_json_form_keeps_for_itself_leave_the_context_out() {
    for reserved in ["__entity", "__extn", "__expr"] {
        let of_a_parameter = World {
            schema: Some(json!({"properties": {reserved: {"type": "string"}}})),
            parameters: json!({reserved: "x"}),
            ..World::default()
        };
        let of_an_attribute = World {
            declared: BTreeMap::from([(name(reserved), AttributeType::String)]),
            attributes: Some(json!({reserved: "x"})),
            ..World::default()
        };
        for world in [of_a_parameter, of_an_attribute] {
            let tagged = World {
                agent_attributes: attributes(json!({reserved: "x"})),
                ..world
            };
            let permit = tenant("mine", "@id(\"a\") permit (principal, action, resource);");
            let explanation = explained(&tagged, &[permit]);
            assert_eq!(explanation.ruling.reason, ReasonCode::PolicyPermits);
            let request = explanation.request.unwrap();
            assert_eq!(request.action, "Action::\"github/create_issue\"");
            assert_eq!(request.context, None);
        }
    }
}
