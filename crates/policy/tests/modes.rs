//! Policies in shadow and in canary, beside what is enforced, and operators who let tenants permit nothing.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[cfg(test)]
#[path = "world/world.rs"]
mod world;

use model::{AgentId, Name, ReasonCode, SlashFreeName};
use policy::{
    BasePolicies, Candidate, Compiler, Link, Mode, PolicySet, Registry, SlotValues, TenantPermits,
    TenantPolicy,
};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use world::{World, compile, matched, tenant};

const ALLOW: &str = "@id(\"it\") permit (principal, action, resource);";
const DENY: &str = "@id(\"it\") forbid (principal, action, resource);";
const OTHER: &str = "@id(\"other\") forbid (principal, action, resource) when { context.sensitive };";

fn with(name: &str, cedar: &str, mode: Mode) -> TenantPolicy {
    TenantPolicy {
        mode,
        ..tenant(name, cedar)
    }
}

fn canary(agents: &[AgentId]) -> Mode {
    Mode::Canary(Arc::new(agents.iter().copied().collect()))
}

fn me() -> AgentId {
    World::default().agent().id
}

fn other() -> AgentId {
    AgentId::from_bytes([9; 16])
}

fn set(policies: &[TenantPolicy]) -> PolicySet {
    World::default()
        .compile(&BasePolicies::parse("").unwrap(), policies)
        .unwrap()
}

/// The reason of what is in force, and of the shadow.
fn with_shadow(set: &PolicySet) -> (ReasonCode, Option<ReasonCode>) {
    let rulings = World::default()
        .with_question(|question| set.rule_with_shadow(question))
        .unwrap();
    assert_eq!(World::default().ask(set).unwrap(), rulings.ruling);
    (rulings.ruling.reason, rulings.shadow.map(|shadow| shadow.reason))
}

#[test]
fn a_policy_in_shadow_changes_no_answer_and_says_its_own() {
    use ReasonCode::{NoPolicyPermits, PolicyForbids, PolicyPermits};
    assert_eq!(with_shadow(&set(&[tenant("a", ALLOW)])), (PolicyPermits, None));
    assert_eq!(
        with_shadow(&set(&[tenant("a", ALLOW), with("b", DENY, Mode::Shadow)])),
        (PolicyPermits, Some(PolicyForbids))
    );
    assert_eq!(
        with_shadow(&set(&[with("b", ALLOW, Mode::Shadow)])),
        (NoPolicyPermits, Some(PolicyPermits))
    );
}

#[test]
fn a_version_on_trial_takes_the_place_of_the_one_that_is_enforced() {
    use ReasonCode::{PolicyForbids, PolicyPermits};
    let versions = |mode: Mode| [tenant("a", ALLOW), with("a", DENY, mode)];
    assert_eq!(
        with_shadow(&set(&versions(Mode::Shadow))),
        (PolicyPermits, Some(PolicyForbids))
    );
    assert_eq!(
        with_shadow(&set(&versions(canary(&[other()])))),
        (PolicyPermits, Some(PolicyForbids))
    );
    assert_eq!(
        with_shadow(&set(&versions(canary(&[me()])))),
        (PolicyForbids, Some(PolicyForbids))
    );
    let loosened = set(&[tenant("a", DENY), with("a", ALLOW, canary(&[me(), other()]))]);
    assert_eq!(with_shadow(&loosened), (PolicyPermits, Some(PolicyPermits)));
    let ruling = World::default().ask(&loosened).unwrap();
    assert_eq!(matched(&ruling), ["a/it"]);
}

#[test]
fn everything_on_trial_counts_together_in_the_shadow() {
    use ReasonCode::{PolicyForbids, PolicyPermits};
    let policies = [
        tenant("a", ALLOW),
        with("a", OTHER, canary(&[me()])),
        with("b", ALLOW, Mode::Shadow),
        with("c", DENY, canary(&[other()])),
    ];
    // For this agent only the first trial counts, and that permits nothing.
    assert_eq!(
        with_shadow(&set(&policies[..2])),
        (ReasonCode::NoPolicyPermits, Some(ReasonCode::NoPolicyPermits))
    );
    assert_eq!(
        with_shadow(&set(&policies[..3])),
        (ReasonCode::NoPolicyPermits, Some(PolicyPermits))
    );
    assert_eq!(
        with_shadow(&set(&policies)),
        (ReasonCode::NoPolicyPermits, Some(PolicyForbids))
    );
}

#[test]
fn an_action_that_nothing_knows_is_unknown_to_the_shadow_too() {
    let registry = world::tool("other", [world::action("x", true, None)]);
    let set = compile(&[registry], &[with("a", ALLOW, Mode::Shadow)]).unwrap();
    assert_eq!(
        with_shadow(&set),
        (ReasonCode::UnknownTool, Some(ReasonCode::UnknownTool))
    );
}

#[test]
fn the_digest_of_the_base_policies_is_that_of_a_tenant_without_policies() {
    let base = BasePolicies::shipped();
    let set = |policies: &[TenantPolicy]| World::default().compile(&base, policies).unwrap();
    let (alone, with_own) = (set(&[]), set(&[tenant("a", ALLOW)]));
    assert_eq!(
        (alone.digest(), alone.base_digest()),
        (base.digest(), base.digest())
    );
    assert_eq!(with_own.base_digest(), base.digest());
    assert_ne!(with_own.digest(), base.digest());
    assert_ne!(BasePolicies::parse("").unwrap().digest(), base.digest());
}

#[test]
fn the_digest_names_what_is_in_force_and_for_whom() {
    let digest = |policies: &[TenantPolicy]| set(policies).digest();
    let enforced = digest(&[tenant("a", ALLOW)]);
    assert_eq!(
        digest(&[tenant("a", ALLOW), with("a", DENY, Mode::Shadow)]),
        enforced
    );
    assert_eq!(
        digest(&[tenant("a", ALLOW), with("b", DENY, canary(&[]))]),
        enforced
    );
    let canaries = [vec![me()], vec![other()], vec![me(), other()]]
        .map(|agents| digest(&[tenant("a", ALLOW), with("a", DENY, canary(&agents))]));
    let all: BTreeSet<_> = canaries.into_iter().chain([enforced]).collect();
    assert_eq!(all.len(), 4);
}

#[test]
fn a_canary_without_policies_is_in_the_digest_where_it_takes_the_place_of_some() {
    let digest = |policies: &[TenantPolicy]| set(policies).digest();
    let without = |agents: &[AgentId]| [tenant("a", DENY), with("a", "", canary(agents))];
    let digests = [
        digest(&[tenant("a", DENY)]),
        digest(&without(&[me()])),
        digest(&without(&[other()])),
    ];
    assert_eq!(BTreeSet::from(digests).len(), 3);
    assert_eq!(digest(&without(&[])), digests[0]);
    assert_eq!(
        digest(&[tenant("a", DENY), with("b", "", canary(&[me()]))]),
        digests[0]
    );
    let text = set(&without(&[me()])).text().to_string();
    let first = format!(r#"[["a","",{{"canary":["{}"]}}],["a/it","#, me());
    assert!(text.starts_with(&first), "{text}");
    let set = set(&without(&[me()]));
    let modes: Vec<_> = set.listing().into_values().map(|listed| listed.mode).collect();
    assert_eq!(modes, [Mode::Enforced, canary(&[me()])]);
}

#[test]
fn the_text_that_the_digest_is_of_has_the_agents_of_a_canary_and_the_values_of_a_link_in_order() {
    let link = Link {
        template: Name::new("t").unwrap(),
        id: Name::new("l").unwrap(),
        values: SlotValues {
            principal: Some("Agent::\"x\"".to_owned()),
            resource: None,
        },
    };
    let template = "@id(\"t\") forbid (principal == ?principal, action, resource);";
    let linked = TenantPolicy {
        links: vec![link],
        ..with("a", template, canary(&[other(), me()]))
    };
    let text = set(&[linked]).text().to_string();
    let agents: Vec<_> = BTreeSet::from([me(), other()])
        .iter()
        .map(AgentId::to_string)
        .collect();
    let more = format!(
        r#",{{"canary":["{}"],"values":{{"?principal":"Agent::\"x\""}}}}]]"#,
        agents.join("\",\"")
    );
    assert!(
        text.starts_with(r#"[["a/l",""#) && text.ends_with(&more),
        "{text}"
    );
}

#[test]
fn one_name_has_one_version_that_is_enforced_and_one_on_trial() {
    let faults = |policies: &[TenantPolicy]| {
        let base = BasePolicies::parse("").unwrap();
        World::default().compile(&base, policies).unwrap_err().to_string()
    };
    let shadow = || with("a", ALLOW, Mode::Shadow);
    assert_eq!(
        faults(&[shadow(), tenant("a", ALLOW), with("a", DENY, canary(&[me()]))]),
        "a: the name is used more than once for a policy on trial"
    );
    assert_eq!(
        faults(&[tenant("a", ALLOW), shadow(), tenant("a", DENY)]),
        "a: the name is used more than once"
    );
}

#[test]
fn a_policy_on_trial_is_validated_like_any_other() {
    let wrong = "@id(\"a\") permit (principal, action, resource) when { context.trsut.rank > 1 };";
    let base = BasePolicies::parse("").unwrap();
    let found = World::default().compile(&base, &[with("a", wrong, Mode::Shadow)]);
    assert!(found.unwrap_err().to_string().contains("trsut"));
}

#[test]
fn an_operator_can_forbid_that_tenants_permit_anything() {
    let tool = World::default().tool();
    let tools = imbl::OrdMap::unit(tool.name.clone(), Arc::new(tool));
    let shipped = Compiler::new(BasePolicies::shipped());
    let compiled = |cedar: &str, permits: TenantPermits| {
        let policies = [TenantPolicy::new(SlashFreeName::new("mine").unwrap(), cedar)];
        let candidate = Candidate {
            policies: &policies,
            registry: Registry {
                tools: &tools,
                attributes: &BTreeMap::new(),
            },
            permits,
        };
        shipped.compile(candidate).map_err(|diagnostics| diagnostics.0)
    };
    let advice =
        "@id(\"b\") @decision(\"advise\") @obligation(\"notify:x\") permit (principal, action, resource);";
    let approval = "\n@id(\"c\") @decision(\"require_approval\") permit (principal, action, resource);";
    let text = format!("{DENY} {advice} {approval}");
    assert!(compiled(&text, TenantPermits::Allowed).is_ok());
    assert!(compiled(&format!("{DENY} {advice}"), TenantPermits::Forbidden).is_ok());
    let found = compiled(&text, TenantPermits::Forbidden).unwrap_err();
    let [fault] = &found[..] else { panic!("{found:?}") };
    assert_eq!(
        (
            fault.policy.as_deref(),
            fault.message.as_str(),
            fault.place.unwrap().line
        ),
        (
            Some("mine/c"),
            "the operator does not let tenants permit anything",
            2
        )
    );
    assert!(compiled(ALLOW, TenantPermits::Forbidden).is_err());
}
