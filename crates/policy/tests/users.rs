//! The user for whom an agent acts is a principal, too: what is asked has to be allowed to both.

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{ReasonCode, Team, User, Verdict};
use policy::{BasePolicies, Candidate, Compiler, Mode, Registry, Ruling, TenantPermits, TenantPolicy};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use world::{World, attributes, matched, name, obligations, tenant};

/// An ask for a user in the team `staff`.
fn for_ada() -> World {
    let ada = User {
        name: name("ada"),
        teams: BTreeSet::from([name("staff")]),
        attributes: attributes(json!({"grade": 3})),
        roles: BTreeSet::new(),
    };
    World {
        user: Some(("ada".into(), Some(ada))),
        ..World::default()
    }
}

fn ruled(world: &World, policies: &[&str]) -> Ruling {
    world.ruled_only_with(&numbered(policies))
}

fn numbered(policies: &[&str]) -> String {
    let numbered = policies.iter().enumerate();
    let numbered = numbered.map(|(number, policy)| format!("@id(\"{number}\") {policy}"));
    numbered.collect::<Vec<_>>().join("\n")
}

/// The ruling of policies that are in force already, whatever would keep them from being put there.
fn ruled_in_force(world: &World, policies: &[&str]) -> Ruling {
    let tool = world.tool();
    let tools = imbl::OrdMap::unit(tool.name.clone(), Arc::new(tool));
    let candidate = Candidate {
        policies: &[tenant("mine", &numbered(policies))],
        registry: Registry {
            tools: &tools,
            attributes: &world.declared,
        },
        permits: TenantPermits::Allowed,
    };
    let set = Compiler::new(BasePolicies::parse("").expect("it compiles and is asked")).compile(candidate);
    world
        .ask(&set.expect("it compiles and is asked"))
        .expect("it compiles and is asked")
}

const AGENTS: &str = "permit (principal is Agent, action, resource);";

#[test]
fn both_have_to_be_permitted() {
    for (policy, expected) in [
        ("permit (principal is User, action, resource);", Verdict::Allow),
        (
            "permit (principal == User::\"ada\", action, resource);",
            Verdict::Allow,
        ),
        (
            "permit (principal in Team::\"staff\", action, resource);",
            Verdict::Allow,
        ),
        (
            "permit (principal, action, resource) when { principal.hasTag(\"grade\") };",
            Verdict::Allow,
        ),
        (
            "permit (principal == User::\"eve\", action, resource);",
            Verdict::Deny,
        ),
        (
            "permit (principal in Team::\"guests\", action, resource);",
            Verdict::Deny,
        ),
        // It is about agents, because users have no members.
        (
            "permit (principal, action, resource) when { principal.name == \"builder\" };",
            Verdict::Deny,
        ),
    ] {
        let ruling = ruled(&for_ada(), &[AGENTS, policy]);
        assert_eq!(ruling.verdict(), expected, "{policy}");
        let alone = ruled(&World::default(), &[AGENTS, policy]);
        assert_eq!(alone.verdict(), Verdict::Allow, "{policy}");
    }
    let users = "permit (principal is User, action, resource);";
    assert_eq!(ruled(&for_ada(), &[users]).reason, ReasonCode::NoPolicyPermits);
}

#[test]
fn what_is_about_users_is_so_whatever_members_it_looks_at() {
    let users = "permit (principal is User, action, resource);";
    // Nobody can write these two any more.
    let secret = "principal has clearance && principal.clearance == \"secret\"";
    // No member of the context is called so, and none of the principal is looked at.
    let mfa = "context has mfa && context.mfa";
    let either = "principal is Agent && principal.risk_tier == \"low\" || principal is User && principal in Team::\"payroll\"";
    let low = "principal is Agent && principal.risk_tier == \"low\"";
    let but_eve = format!("principal == User::\"eve\" || {low}");
    let but_two = format!("principal in [User::\"eve\", User::\"mallory\"] || {low}");
    let but_any = format!("{low} || !(principal is Agent) && [User::\"eve\"].contains(principal)");
    for (scope, condition) in [
        ("principal is User", secret),
        ("principal is User in Team::\"staff\"", secret),
        ("principal is User", mfa),
        ("principal in Team::\"staff\"", mfa),
        ("principal == User::\"ada\"", mfa),
        ("principal == User::\"ada\"", secret),
        ("principal", either),
        ("principal in Team::\"staff\"", either),
        ("principal", but_eve.as_str()),
        ("principal", but_two.as_str()),
        ("principal", but_any.as_str()),
    ] {
        let forbid = format!("forbid ({scope}, action, resource) unless {{ {condition} }};");
        let ruling = ruled_in_force(&for_ada(), &[AGENTS, users, &forbid]);
        assert_eq!(
            (ruling.reason, matched(&ruling)),
            (ReasonCode::PolicyForbids, vec!["mine/2"]),
            "{forbid}"
        );
        let alone = ruled_in_force(&World::default(), &[AGENTS, users, &forbid]);
        assert_eq!(alone.verdict(), Verdict::Allow, "{forbid}");
    }
}

#[test]
fn the_strictest_is_the_answer_and_says_for_whom() {
    let all = "permit (principal, action, resource);";
    let no = "@reason(\"not you\") forbid (principal == User::\"ada\", action, resource);";
    let ruling = ruled(&for_ada(), &[all, no]);
    assert_eq!(
        (ruling.reason, matched(&ruling)),
        (ReasonCode::PolicyForbids, vec!["mine/1"])
    );
    assert_eq!(ruling.explanation, "for the user `ada`: not you");
    let fails = "forbid (principal == User::\"ada\", action, resource) when { 9223372036854775807 + context.trust.rank > 0 };";
    assert_eq!(ruled(&for_ada(), &[all, fails]).reason, ReasonCode::PolicyError);
    // What the agent may not do is denied for that, whatever is said of the user.
    let never = "@reason(\"no agent\") forbid (principal is Agent, action, resource);";
    assert_eq!(ruled(&for_ada(), &[all, no, never]).explanation, "no agent");
}

#[test]
fn approvals_and_obligations_of_both_count() {
    let world = World {
        parameters: json!({"pin": "1", "code": "2"}),
        ..for_ada()
    };
    let ruling = ruled(
        &world,
        &[
            "@decision(\"require_approval\") @quorum(\"2\") permit (principal is Agent, action, resource);",
            "@decision(\"require_approval\") @approvers(\"leads\") @exclude_owner permit (principal is User, action, resource);",
            "@decision(\"advise\") @obligation(\"redact:parameters.pin\") permit (principal is Agent, action, resource);",
            "@decision(\"advise\") @obligation(\"redact:parameters.code\") permit (principal is User, action, resource);",
        ],
    );
    assert_eq!(ruling.verdict(), Verdict::RequireApproval);
    assert_eq!(matched(&ruling), ["mine/0", "mine/1", "mine/2", "mine/3"]);
    assert_eq!(
        obligations(&ruling),
        ["redact:parameters.code", "redact:parameters.pin"]
    );
    let terms = ruling.approval.unwrap().terms();
    assert_eq!(
        (terms.group.as_deref(), terms.quorum, terms.exclude_owner),
        (Some("leads"), 2, true)
    );
}

#[test]
fn what_is_to_be_redacted_for_the_user_is_so_where_the_agent_is_denied() {
    let world = World {
        parameters: json!({"pin": "1"}),
        ..for_ada()
    };
    let ruling = ruled(
        &world,
        &[
            "@reason(\"no agent\") forbid (principal is Agent, action, resource);",
            "@obligation(\"quarantine:agent\") forbid (principal is User, action, resource);",
            "@decision(\"advise\") @obligation(\"redact:parameters.pin, tell:somebody\") permit (principal is User, action, resource);",
        ],
    );
    assert_eq!(
        (ruling.explanation.as_str(), matched(&ruling)),
        ("no agent", vec!["mine/0"])
    );
    assert_eq!(obligations(&ruling), ["redact:parameters.pin"]);
}

#[test]
fn what_is_on_trial_is_tried_for_both() {
    let world = for_ada();
    let trial = TenantPolicy {
        mode: Mode::Shadow,
        ..tenant(
            "trial",
            "@id(\"no\") forbid (principal == User::\"ada\", action, resource);",
        )
    };
    let mine = tenant("mine", "@id(\"all\") permit (principal, action, resource);");
    let base = BasePolicies::parse("").unwrap();
    let set = world.compile(&base, &[mine, trial]).unwrap();
    let rulings = world
        .with_question(|question| set.rule_with_shadow(question))
        .unwrap();
    assert_eq!(rulings.ruling.verdict(), Verdict::Allow);
    let shadow = rulings.shadow.unwrap();
    assert_eq!(
        (shadow.verdict(), matched(&shadow)),
        (Verdict::Deny, vec!["trial/no"])
    );
    let explained = world.with_question(|question| set.explain(question)).unwrap();
    assert_eq!(explained.ruling, rulings.ruling);
    assert_eq!(explained.shadow, Some(shadow));
    let user = explained.for_user.unwrap();
    assert_eq!(user.request.principal, "User::\"ada\"");
    let ids: Vec<_> = user.policies.iter().map(|policy| policy.id.as_str()).collect();
    assert_eq!(ids, ["mine/all", "trial/no"]);
}

fn team(of: &str, tags: serde_json::Value) -> Team {
    Team {
        name: name(of),
        attributes: attributes(tags),
        quotas: Vec::new(),
    }
}

#[test]
fn the_teams_of_the_user_have_their_tags_whoever_is_asked_about() {
    let locked = Arc::new(team("staff", json!({"locked": "yes"})));
    let others = Arc::new(team("guests", json!({"locked": "yes"})));
    let registered = World {
        teams: [locked, others]
            .into_iter()
            .map(|team| (team.name.clone(), team))
            .collect(),
        ..for_ada()
    };
    let in_the_same = World {
        team: Some(team("staff", json!({"locked": "yes"}))),
        ..registered.clone()
    };
    let permit = "permit (principal, action, resource);";
    for (forbid, world, expected) in [
        ("principal in Team::\"staff\"", &registered, Verdict::Deny),
        ("principal in Team::\"staff\"", &in_the_same, Verdict::Deny),
        ("principal in Team::\"staff\"", &for_ada(), Verdict::Allow),
        ("principal is Agent", &registered, Verdict::Deny),
    ] {
        let forbid =
            format!("forbid ({forbid}, action, resource) when {{ Team::\"staff\".hasTag(\"locked\") }};");
        assert_eq!(ruled(world, &[permit, &forbid]).verdict(), expected, "{forbid}");
    }
    let of_others = "forbid (principal, action, resource) when { Team::\"guests\".hasTag(\"locked\") };";
    assert_eq!(ruled(&registered, &[permit, of_others]).verdict(), Verdict::Allow);
}
