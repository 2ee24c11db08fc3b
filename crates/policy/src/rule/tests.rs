//! That a policy which the index finds is evaluated as Cedar evaluates the whole of it, and that one which it does not
//! find is one that Cedar does not find satisfied either: whatever the policies, and whatever is asked.

use super::*;
use crate::base::BasePolicies;
use crate::cache::WeakCache;
use crate::compile::CompiledPolicy;
use crate::context::{CallerAttributes, Facts, Principal, UserTeams};
use crate::evaluate::Asked;
use crate::explain::PolicyOutcome;
use crate::parse;
use crate::ruling::Obligation;
use crate::set::Presence;
use crate::tenant::Mode;
use crate::vocabulary::Vocabulary;
use crate::world::{World, attributes, name};
use cedar_policy_core::ast;
use cedar_policy_core::authorizer::Authorizer;
use model::amount::AMOUNT_MAX;
use model::approval::GroupQuorum;
use model::usage::{BudgetUsage, CallsUsage};
use model::{
    Amount, ApprovalTerms, Estimate, RiskTier, SlashFreeName, Team, Trust, Unit, Usage, User, Verdict, Window,
};
use policy::Registry;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What came of policies, by id: whether they are satisfied; `None` for one that fails.
pub(crate) type Outcomes = Vec<(String, Option<bool>)>;

const PRINCIPALS: [&str; 10] = [
    "principal",
    "principal == Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\"",
    "principal in Agent::\"agt_070w3ge1r70w3ge1r70w3ge1r7\"",
    "principal in Team::\"sales\"",
    "principal == Team::\"sales\"",
    "principal is Agent in Team::\"sales\"",
    "principal is Team",
    "principal is User",
    "principal == User::\"u-17\"",
    "principal is User in Team::\"sales\"",
];
const SCOPES: [&str; 8] = [
    "action",
    "action in Action::\"read\"",
    "action in Action::\"mutate\"",
    "action == Action::\"github/create_issue\"",
    "action in [Action::\"risk:high\", Action::\"tool:github\", Action::\"mutate\"]",
    "action in Action::\"risk:high\"",
    "action in [Action::\"github/create_issue\", Action::\"github/create_issue\"]",
    "action == Action::\"mutate\"",
];
const RESOURCES: [&str; 6] = [
    "resource",
    "resource == Resource::\"repo\"",
    "resource in Resource::\"repo\"",
    "resource == Resource::\"\"",
    "resource is Resource in Resource::\"repo\"",
    "resource is Agent",
];
const CONDITIONS: [&str; 21] = [
    "true",
    "false",
    "context.tool.canary",
    "context.tool.mutates",
    "context.tool.name like \"git*\"",
    "context.tool.action == \"create_issue\" || context.tool.risk == \"high\"",
    "[\"github\"].contains(context.tool.name)",
    "context.trust.rank >= 3",
    "9223372036854775807 + context.trust.rank > 0",
    "context.parameters.contains(\"base\")",
    "action in Action::\"mutate\"",
    "principal.risk_tier == \"high\"",
    "principal is User",
    "principal in [User::\"u-17\", User::\"u-18\"]",
    "principal in Team::\"sales\"",
    "Team::\"sales\".getTag(\"floor\") == \"3\"",
    "context.user in Team::\"sales\" && context.user.hasTag(\"vip\")",
    "User::\"u-17\".getTag(\"vip\") == \"true\"",
    "context == context",
    "resource == Resource::\"repo\"",
    "context has run && context.now == context.now",
];
const HEADS: [&str; 8] = [
    "forbid",
    "@obligation(\"quarantine:agent\") forbid",
    "permit",
    "permit",
    "@decision(\"require_approval\") permit",
    "@decision(\"require_approval\") @approvers(\"leads\") @exclude_owner permit",
    "@decision(\"require_approval\") @approvers(\"owners\") @quorum(\"2\") permit",
    "@decision(\"advise\") @obligation(\"redact:parameters.base\") permit",
];

/// One policy without its id.
pub(crate) fn policies() -> impl Strategy<Value = String> {
    let conditions = prop::collection::vec(
        (any::<bool>(), prop::sample::subsequence(&CONDITIONS[..], 1..4)),
        0..3,
    );
    let head = (
        prop::sample::select(&HEADS[..]),
        prop::sample::select(&PRINCIPALS[..]),
        prop::sample::select(&SCOPES[..]),
        prop::sample::select(&RESOURCES[..]),
    );
    (head, conditions).prop_map(|((head, principal, action, resource), conditions)| {
        let conditions = conditions.into_iter().map(|(when, all)| {
            let all: Vec<_> = all
                .into_iter()
                .map(|condition| format!("({condition})"))
                .collect();
            format!(
                "{} {{ {} }}",
                if when { "when" } else { "unless" },
                all.join(" && ")
            )
        });
        format!(
            "{head} ({principal}, {action}, {resource}) {};",
            conditions.collect::<String>()
        )
    })
}

/// Nothing is used, or of everything something.
fn usages() -> impl Strategy<Value = Usage> {
    let amounts = prop::sample::select(vec![0, 7, AMOUNT_MAX]);
    (any::<[bool; 3]>(), amounts).prop_map(|([estimate, budget, calls], amount)| Usage {
        budget: (estimate && budget).then(|| BudgetUsage {
            allocated: Amount::clamped(amount),
            remaining: if calls { amount } else { -amount },
            spent: Amount::clamped(amount / 2),
        }),
        calls: if calls {
            let calls = CallsUsage { limit: 9, used: 7 };
            Window::ALL.map(|window| (window, calls)).into()
        } else {
            BTreeMap::new()
        },
        estimate: estimate.then(|| Estimate {
            amount: Amount::clamped(amount),
            unit: Unit::new("TOKENS").unwrap(),
        }),
    })
}

pub(crate) fn worlds() -> impl Strategy<Value = World> {
    let levels = prop::sample::select(Trust::ALL.to_vec());
    (levels, usages(), any::<[bool; 8]>()).prop_map(
        |(trust, usage, [mutating, claimed, canary, high, base, team, user, resource])| World {
            usage,
            trust,
            registered_as_mutating: mutating,
            claimed_as_mutating: claimed,
            canary,
            tier: if high { RiskTier::High } else { RiskTier::Low },
            parameters: if base { json!({"base": "main"}) } else { json!({}) },
            team: team.then(|| Team {
                name: name("sales"),
                attributes: attributes(json!({"floor": 3})),
                quotas: Vec::new(),
            }),
            user: user.then(|| {
                let registered = User {
                    name: name("u-17"),
                    teams: BTreeSet::from([name("sales")]),
                    attributes: attributes(json!({"vip": true})),
                    roles: std::collections::BTreeSet::new(),
                };
                ("u-17".to_owned(), Some(registered))
            }),
            resource: resource.then(|| "repo".to_owned()),
            ..World::default()
        },
    )
}

pub(crate) fn numbered(policies: &[String]) -> String {
    let numbered = policies.iter().enumerate();
    let numbered = numbered.map(|(number, policy)| format!("@id(\"{number}\") {policy}"));
    numbered.collect::<Vec<_>>().join("\n")
}

/// The policies as a set, without being validated: that would turn most of them away.
pub(crate) fn set(world: &World, base: &str, texts: &[(&str, &str, Mode)]) -> PolicySet {
    let tool = world.tool();
    let tools = imbl::OrdMap::unit(tool.name.clone(), Arc::new(tool));
    let registry = Registry {
        tools: &tools,
        attributes: &world.declared,
    };
    let base = BasePolicies::parse(base).unwrap();
    let vocabulary = Vocabulary::unvalidated(&base, registry, &WeakCache::default()).unwrap();
    let (names, policies): (Vec<_>, Vec<_>) = texts
        .iter()
        .map(|(name, text, mode)| {
            let parsed = parse::parse(name, text, &[]).unwrap();
            let statements = parsed.into_iter().map(|parsed| parsed.statement).collect();
            let compiled = CompiledPolicy {
                statements,
                warnings: Vec::new(),
                unfit: Vec::new(),
                declared: std::collections::HashSet::new(),
                more_for_users: std::collections::HashSet::new(),
                checks: 0,
            };
            (
                (SlashFreeName::new(name).unwrap(), mode.clone()),
                Arc::new(compiled),
            )
        })
        .unzip();
    let modes = names.iter().map(|(name, mode)| (name, mode));
    PolicySet::new(Arc::new(vocabulary), policies, modes)
}

/// What Cedar makes of every single policy of a text, if the whole question is before it.
fn by_cedar(asked: &Asked, name: &str, text: &str) -> Outcomes {
    let all = cedar_policy_core::parser::parse_policyset(text).unwrap();
    let policies = all.policies().map(|policy| {
        let single = ast::PolicySet::singleton(policy.clone());
        let response = Authorizer::new().is_authorized(asked.request.clone(), &single, &asked.entities);
        let id = policy.annotation(&"id".parse().unwrap()).unwrap();
        let outcome = response.diagnostics.errors.is_empty();
        let outcome = outcome.then_some(!response.diagnostics.reason.is_empty());
        (format!("{name}/{}", id.val), outcome)
    });
    policies.collect()
}

/// The case of the agent that asks this.
fn case<'s>(set: &'s PolicySet, question: &Question<'_>) -> Case<'s> {
    let known = Known::read(&set.contents, question).unwrap().unwrap();
    Case::open(known, question, ReadSet::default()).unwrap()
}

/// What we make of all policies that the index finds.
pub(crate) fn by_us(set: &PolicySet, question: &Question<'_>, counts: impl Fn(Presence) -> bool) -> Outcomes {
    outcomes(&case(set, question), counts)
}

/// What we make of all policies that the index finds for the user for whom it is asked, if it is for one.
fn by_us_for_the_user(set: &PolicySet, question: &Question<'_>) -> Option<Outcomes> {
    let user = case(set, question).of_user(question, ReadSet::default()).unwrap();
    user.map(|user| outcomes(&user, |_| true))
}

fn outcomes(case: &Case<'_>, counts: impl Fn(Presence) -> bool) -> Outcomes {
    let evaluated = case.evaluate(counts);
    let outcomes = evaluated.iter().map(|evaluated| {
        let outcome = evaluated.outcome(crate::set::World::Promoted).ok();
        (evaluated.statement.id.to_string(), outcome)
    });
    outcomes.collect()
}

/// The whole question, with every member and every entity.
pub(crate) fn whole(set: &PolicySet, question: &Question<'_>) -> Asked {
    whole_of(set, question, Principal::Agent)
}

fn whole_of(set: &PolicySet, question: &Question<'_>, principal: Principal<'_>) -> Asked {
    let action = set.contents.vocabulary.action("github", "create_issue").unwrap();
    let parameters = action.parameters.read(question.parameters, None).unwrap();
    let side = &action.sides[usize::from(question.mutates)];
    let declared = crate::json_schema::Record::new();
    let attributes = CallerAttributes::default().of(question.attributes, &declared);
    let facts = Facts::new((question, principal), side, &parameters, attributes.unwrap());
    facts.ask(ReadSet::ALL, &UserTeams::default())
}

/// Satisfied and failing policies, sorted. Those that are neither need not be found.
pub(crate) fn telling(mut outcomes: Outcomes) -> Outcomes {
    outcomes.retain(|(_, outcome)| *outcome != Some(false));
    outcomes.sort();
    outcomes
}

/// Whether this policy is about users as far as its scope says. They have no members: whoever looks at one and does not
/// speak of users, or of one by name, means agents.
fn means_users(policy: &str) -> bool {
    let speaks_of_users = ["principal is User", "principal == User::", "principal in [User::"];
    !policy.contains("principal.") || speaks_of_users.iter().any(|words| policy.contains(words))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_slice_answers_like_the_whole(
        base in prop::collection::vec(policies(), 0..4),
        mine in prop::collection::vec(policies(), 0..6),
        world in worlds(),
    ) {
        let (base, mine) = (numbered(&base), numbered(&mine));
        let set = set(&world, &base, &[("mine", &mine, Mode::Enforced)]);
        world.with_question(|question| {
            let statement = |id: &str| {
                let base = set.contents.vocabulary.base.policies.iter().map(|parsed| &parsed.statement);
                let mine = set.contents.rules.iter().map(|rule| &rule.rule.statement);
                base.chain(mine).find(|statement| statement.id.as_str() == id).unwrap()
            };
            // Advice that has nothing to add is not asked for.
            let may_tell = |id: &str| {
                let effect = &statement(id).annotations.effect;
                *effect != PolicyEffect::Advice || question.parameters.contains("base")
            };
            let is_meant = |id: &str, principal: Principal<'_>| {
                matches!(principal, Principal::Agent) || means_users(statement(id).text())
            };
            let by_cedar = |principal| {
                let asked = whole_of(&set, question, principal);
                let mut outcomes = by_cedar(&asked, "base", &base);
                outcomes.extend(by_cedar(&asked, "mine", &mine));
                outcomes.retain(|(id, _)| may_tell(id) && is_meant(id, principal));
                telling(outcomes)
            };
            let ours = |mut outcomes: Outcomes| {
                outcomes.retain(|(id, _)| may_tell(id));
                telling(outcomes)
            };
            let agents = ours(by_us(&set, question, |_| true));
            prop_assert_eq!(agents, by_cedar(Principal::Agent), "{}\n{}", base, mine);
            let users = by_us_for_the_user(&set, question).map(ours);
            let users_by_cedar = question.user.map(|user| by_cedar(Principal::User(user)));
            prop_assert_eq!(users, users_by_cedar, "{}\n{}", base, mine);
            Ok(())
        })?;
    }
}

/// Each group that has to approve, and how many of it; no name where anybody may.
fn each(terms: &ApprovalTerms) -> Vec<(Option<&str>, u32)> {
    let also = terms.also.iter();
    let also = also.map(|also| (Some(also.group.as_str()), also.quorum));
    std::iter::once((terms.group.as_deref(), terms.quorum))
        .chain(also)
        .collect()
}

/// Whether whoever is enough for the first ruling is enough for the second one, where both ask people.
fn asks_all_of(ruling: &Ruling, other: &Ruling) -> bool {
    let (Some(ours), Some(theirs)) = (&ruling.approval, &other.approval) else {
        return true;
    };
    let (ours, theirs) = (ours.terms(), theirs.terms());
    let is_asked = |(group, quorum): &(Option<&str>, u32)| {
        let mut ours = each(&ours).into_iter();
        ours.any(|(ours, asked)| (group.is_none() || *group == ours) && asked >= *quorum)
    };
    // Where anybody may approve, whoever is in a group may, and not the other way round.
    each(&theirs).iter().all(is_asked) && (ours.exclude_owner || !theirs.exclude_owner)
}

/// Whether nothing is left out of the first ruling that the second one asks for.
fn holds_to(ruling: &Ruling, other: &Ruling) -> bool {
    let all_of = |one: &[Obligation], others: &[Obligation]| others.iter().all(|other| one.contains(other));
    asks_all_of(ruling, other)
        && ruling.verdict().strictness() >= other.verdict().strictness()
        && all_of(&ruling.obligations, &other.obligations)
        && other.errors.iter().all(|error| ruling.errors.contains(error))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_claim_to_mutate_never_loosens_whatever_the_policies_are_about(
        mine in prop::collection::vec(policies(), 0..6),
        trial in prop::collection::vec(policies(), 0..3),
        world in worlds(),
    ) {
        let (mine, trial) = (numbered(&mine), numbered(&trial));
        let set = set(&world, "", &[("mine", &mine, Mode::Enforced), ("trial", &trial, Mode::Shadow)]);
        let [registered, claimed] = [false, true].map(|claimed_as_mutating| {
            let world = World { claimed_as_mutating, ..world.clone() };
            world.with_question(|question| (set.rule_with_shadow(question).unwrap(), set.explain(question).unwrap()))
        });
        let shadow = |rulings: &Rulings| rulings.shadow.clone().unwrap();
        prop_assert!(holds_to(&claimed.0.ruling, &registered.0.ruling), "{} {:?} {:?}", mine, claimed.0, registered.0);
        prop_assert!(holds_to(&shadow(&claimed.0), &shadow(&registered.0)), "{} {} {:?}", mine, trial, claimed.0);
        let world = World { claimed_as_mutating: true, ..world.clone() };
        prop_assert_eq!(world.ask(&set).unwrap(), claimed.0.ruling.clone());
        prop_assert_eq!(claimed.0.ruling, claimed.1.ruling);
        prop_assert_eq!(claimed.0.shadow, claimed.1.shadow);
    }
}

#[test]
fn a_read_that_is_said_to_change_something_has_to_be_allowed_as_a_read_too() {
    let claimed = World {
        registered_as_mutating: false,
        claimed_as_mutating: true,
        ..World::default()
    };
    let text = "@id(\"all\") permit (principal, action, resource);\n\
        @id(\"vault\") @reason(\"Nobody reads here\") forbid (principal, action in Action::\"read\", resource);";
    let set = set(&claimed, "", &[("mine", text, Mode::Enforced)]);
    let explanation = claimed.with_question(|question| set.explain(question)).unwrap();
    assert_eq!(explanation.ruling.reason, ReasonCode::PolicyForbids);
    assert_eq!(
        explanation.ruling.explanation,
        "as a read, which it is registered as: Nobody reads here"
    );
    let ids = |policies: &[PolicyOutcome]| -> Vec<_> {
        policies.iter().map(|policy| policy.id.to_string()).collect()
    };
    assert_eq!(ids(&explanation.policies), ["mine/all"]);
    let as_registered = explanation.as_registered.unwrap();
    assert_eq!(ids(&as_registered.policies), ["mine/all", "mine/vault"]);
    let blind = claimed.with_question(|question| set.rule_without_parameters(question));
    assert_eq!(blind.unwrap().unwrap(), explanation.ruling);

    // For a user as well, and it is told in the same words however it is asked.
    let claimed = World {
        user: Some(("u-17".to_owned(), None)),
        ..claimed
    };
    let text = text.replace("forbid (principal,", "forbid (principal is User,");
    let set = self::set(&claimed, "", &[("mine", &text, Mode::Enforced)]);
    let explanation = claimed.with_question(|question| set.explain(question)).unwrap();
    assert_eq!(
        explanation.ruling.explanation,
        "as a read, which it is registered as: for the user `u-17`: Nobody reads here"
    );
    assert_eq!(
        claimed.with_question(|question| set.rule(question)).unwrap(),
        explanation.ruling
    );
}

/// A question about a read, and the same with the claim that it changes something.
fn read_and_claimed() -> [World; 2] {
    [false, true].map(|claimed_as_mutating| World {
        registered_as_mutating: false,
        claimed_as_mutating,
        parameters: json!({"pin": "1"}),
        ..World::default()
    })
}

/// What is ruled on this in every way in which it can be asked, with parameters and last without.
fn ruled_in_every_way(world: &World, policies: &str) -> Vec<Ruling> {
    let trial = "@id(\"never\") forbid (principal, action, resource) when { false };";
    let set = set(
        world,
        "",
        &[("mine", policies, Mode::Enforced), ("trial", trial, Mode::Shadow)],
    );
    world.with_question(|question| {
        let Rulings { ruling, shadow } = set.rule_with_shadow(question).unwrap();
        let explanation = set.explain(question).unwrap();
        vec![
            set.rule(question).unwrap(),
            ruling,
            shadow.unwrap(),
            explanation.ruling,
            explanation.shadow.unwrap(),
            set.rule_without_parameters(question).unwrap().unwrap(),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn one_policy_more_takes_nobody_away_who_is_asked(
        mine in prop::collection::vec(policies(), 1..6),
        more in policies(),
        world in worlds(),
    ) {
        let (mine, more) = (numbered(&mine), numbered(&[more]));
        // It comes before the others.
        let all = [("aa", more.as_str(), Mode::Enforced), ("mine", mine.as_str(), Mode::Enforced)];
        let ruled = |texts: &[(&str, &str, Mode)]| world.ask(&set(&world, "", texts)).unwrap();
        let (without, with) = (ruled(&all[1..]), ruled(&all));
        prop_assert!(asks_all_of(&with, &without), "{} {} {:?} {:?}", more, mine, with, without);
    }
}

/// A policy that asks people, whoever asks for what.
fn asking(annotations: &str, condition: &str) -> String {
    format!(
        "@id(\"it\") @decision(\"require_approval\") {annotations} \
         permit (principal, action, resource) when {{ {condition} }};"
    )
}

#[test]
fn every_group_that_a_satisfied_policy_names_is_asked() {
    let base = asking("@approvers(\"platform-leads\") @quorum(\"2\")", "true");
    let customers = asking("@approvers(\"support\")", "context.trust.rank == 3");
    let asked = |trust| {
        let world = World {
            trust,
            ..World::default()
        };
        let set = set(&world, &base, &[("aa", &customers, Mode::Enforced)]);
        world.ask(&set).unwrap().approval.unwrap().terms()
    };
    let leads = ApprovalTerms {
        group: Some("platform-leads".into()),
        quorum: 2,
        also: Vec::new(),
        exclude_owner: false,
    };
    assert_eq!(asked(Trust::TrustedInternalUnsigned), leads);
    let support = GroupQuorum {
        group: "support".into(),
        quorum: 1,
    };
    let both = ApprovalTerms {
        also: vec![support],
        ..leads
    };
    assert_eq!(asked(Trust::SemiTrustedCustomer), both);
}

/// So many policies about everybody and everything, with ids in their order; `#` in the head is the number.
fn many(head: &str, count: usize, condition: &str) -> String {
    let policies = (0..count).map(|number| {
        let head = head.replace('#', &number.to_string());
        format!("@id(\"p{number:03}\") {head} (principal, action, resource) when {{ {condition} }};")
    });
    policies.collect::<Vec<_>>().join("\n")
}

/// What is ruled by these policies alone.
fn ruled_by(world: &World, policies: &[&str]) -> Ruling {
    let names = ["mine", "more"];
    let texts = names.into_iter().zip(policies);
    let texts: Vec<_> = texts.map(|(name, text)| (name, *text, Mode::Enforced)).collect();
    world.ask(&set(world, "", &texts)).unwrap()
}

fn matched(ruling: &Ruling) -> Vec<String> {
    ruling.matched.iter().map(ToString::to_string).collect()
}

/// The ids of the first 64 of [`many`] policies.
fn first_64() -> Vec<String> {
    (0..64).map(|number| format!("mine/p{number:03}")).collect()
}

#[test]
fn of_many_policies_that_match_64_are_named_and_the_others_are_counted() {
    let world = World::default();
    for (head, said) in [
        ("forbid", "forbids it"),
        ("@decision(\"require_approval\") permit", "requires approval"),
        ("permit", "permits it"),
    ] {
        let sentence = format!("the policy `mine/p000` {said}");
        let ruling = ruled_by(&world, &[&many(head, 64, "true")]);
        assert_eq!((&ruling.explanation, matched(&ruling)), (&sentence, first_64()));
        let ruling = ruled_by(&world, &[&many(head, 70, "true")]);
        let counted = format!("{sentence} … and 6 more of the policies that match");
        assert_eq!((&ruling.explanation, matched(&ruling)), (&counted, first_64()));
    }
    // What only a later one says is said all the same.
    let last =
        "@id(\"z\") @reason(\"It is night\") @agent_message(\"Wait\") forbid (principal, action, resource);";
    let ruling = ruled_by(&world, &[&format!("{}\n{last}", many("forbid", 64, "true"))]);
    assert_eq!(
        ruling.explanation,
        "It is night … and 1 more of the policies that match"
    );
    assert_eq!(ruling.agent_message.as_deref(), Some("Wait"));
}

#[test]
fn of_many_policies_that_advise_64_are_named_beside_those_that_decide() {
    let advice = many(
        "@decision(\"advise\") @obligation(\"notify:security\") permit",
        70,
        "true",
    );
    let ruling = ruled_by(&World::default(), &[&advice, &many("permit", 70, "true")]);
    let deciding = first_64().into_iter().map(|id| id.replace("mine", "more"));
    let named: Vec<_> = first_64().into_iter().chain(deciding).collect();
    assert_eq!(matched(&ruling), named);
    assert_eq!(
        ruling.explanation,
        "the policy `more/p000` permits it … and 6 more of the policies that match \
         … and 6 more of the policies that advise"
    );
    assert_eq!(ruling.obligations, [Obligation::Other("notify:security".into())]);
}

#[test]
fn of_many_policies_that_fail_64_are_named_and_first_those_that_deny_by_it() {
    let world = World::default();
    let fails = "9223372036854775807 + context.trust.rank > 0";
    let failed = |ruling: &Ruling| -> Vec<_> {
        let failed = ruling.errors.iter().map(|fault| fault.policy.to_string());
        failed.collect()
    };
    let ruling = ruled_by(&world, &[&many("forbid", 70, fails)]);
    let ids: Vec<_> = first_64().iter().map(|id| format!("`{id}`")).collect();
    let counted = "… and 6 more of the policies that fail";
    assert_eq!(ruling.reason, ReasonCode::PolicyError);
    assert_eq!(
        ruling.explanation,
        format!("could not be evaluated: {} {counted}", ids.join(", "))
    );
    assert_eq!((matched(&ruling), failed(&ruling)), (first_64(), first_64()));
    // A permit that fails denies nothing, and is told behind them, whatever it is called.
    let ruling = ruled_by(&world, &[&many("permit", 60, fails), &many("forbid", 10, fails)]);
    let permits = first_64().into_iter().take(54);
    let forbids = (0..10).map(|number| format!("more/p{number:03}"));
    assert_eq!(failed(&ruling), permits.chain(forbids).collect::<Vec<_>>());
    assert!(ruling.explanation.ends_with(counted), "{}", ruling.explanation);
    assert_eq!(matched(&ruling).len(), 10);
}

#[test]
fn more_obligations_than_are_told_deny_and_leave_nobody_in_service_who_is_to_be_quarantined() {
    let world = World::default();
    let permit = "@obligation(\"notify:#\") permit";
    let ruling = ruled_by(&world, &[&many(permit, 64, "true")]);
    assert_eq!(
        (ruling.reason, ruling.obligations.len(), ruling.more_obligations),
        (ReasonCode::PolicyPermits, 64, false)
    );
    let ruling = ruled_by(&world, &[&many(permit, 65, "true")]);
    assert_eq!(
        (ruling.reason, ruling.obligations.len(), ruling.more_obligations),
        (ReasonCode::PolicyError, 64, true)
    );
    assert_eq!(
        ruling.explanation,
        "more than 64 obligations apply: the policy `mine/p000` permits it \
         … and 1 more of the policies that match"
    );
    // A denial stays what it was.
    let secrets = (0..65).map(|number| (format!("s{number}"), json!(1)));
    let world = World {
        parameters: Value::Object(secrets.collect()),
        ..world
    };
    let redact = "@decision(\"advise\") @obligation(\"redact:parameters.s#\") permit";
    let trap = "@id(\"trap\") @obligation(\"quarantine:agent\") forbid (principal, action, resource);";
    let ruling = ruled_by(&world, &[&many(redact, 65, "true"), trap]);
    assert_eq!(
        (ruling.reason, ruling.obligations.len(), ruling.more_obligations),
        (ReasonCode::PolicyForbids, 64, true)
    );
    assert_eq!(ruling.obligations.last(), Some(&Obligation::QuarantineAgent));
    assert_eq!(
        ruling.explanation,
        "the policy `more/trap` forbids it … and 1 more of the policies that advise; \
         more than 64 obligations apply"
    );
}

#[test]
fn obligations_for_the_agent_and_for_the_user_that_are_too_many_together_deny() {
    let world = World {
        user: Some(("u-17".to_owned(), None)),
        ..World::default()
    };
    let ruled = |count| {
        let [agents, users] = [("Agent", "agent"), ("User", "user")].map(|(principal, word)| {
            let permits = many(&format!("@obligation(\"notify:{word}-#\") permit"), count, "true");
            permits.replace("(principal,", &format!("(principal is {principal},"))
        });
        ruled_by(&world, &[&agents, &users])
    };
    let ruling = ruled(32);
    assert_eq!(
        (ruling.reason, ruling.obligations.len()),
        (ReasonCode::PolicyPermits, 64)
    );
    let ruling = ruled(33);
    assert_eq!(ruling.reason, ReasonCode::PolicyError);
    assert_eq!(
        ruling.explanation,
        "more than 64 obligations apply: the policy `mine/p000` permits it"
    );
    assert!(ruling.more_obligations);
}

#[test]
fn more_groups_than_may_be_asked_deny() {
    let asking = "@decision(\"require_approval\") @approvers(\"group-#\") permit";
    let ruled = |count| ruled_by(&World::default(), &[&many(asking, count, "true")]);
    let ruling = ruled(64);
    assert_eq!(ruling.reason, ReasonCode::PolicyRequiresApproval);
    assert_eq!(each(&ruling.approval.unwrap().terms()).len(), 64);
    let ruling = ruled(65);
    assert_eq!((ruling.reason, ruling.approval), (ReasonCode::PolicyError, None));
    assert_eq!(
        ruling.explanation,
        "more than 64 groups would have to approve: the policy `mine/p000` requires approval \
         … and 1 more of the policies that match"
    );
}

#[test]
fn a_claim_takes_nobody_away_who_is_asked_for_a_read() {
    let changes = "@id(\"changes\") @decision(\"require_approval\") @approvers(\"team-leads\") @quorum(\"2\") \
        permit (principal, action in Action::\"mutate\", resource);";
    let salaries = |terms: &str| {
        format!(
            "@id(\"salaries\") @decision(\"require_approval\") {terms} \
             permit (principal, action == Action::\"github/create_issue\", resource);"
        )
    };
    let asked = |world: &World, policies: &str| -> Vec<_> {
        let rulings = ruled_in_every_way(world, policies).into_iter();
        rulings.map(|ruling| ruling.approval.unwrap().terms()).collect()
    };
    let group = |group: &str, quorum| ApprovalTerms {
        group: Some(group.into()),
        quorum,
        also: Vec::new(),
        exclude_owner: false,
    };
    let [read, claimed] = read_and_claimed();
    let both = format!("{changes}\n{}", salaries("@approvers(\"data-owners\")"));
    assert_eq!(asked(&read, &both), vec![group("data-owners", 1); 6]);
    let leads = GroupQuorum {
        group: "team-leads".into(),
        quorum: 2,
    };
    let owners_and_leads = ApprovalTerms {
        also: vec![leads],
        ..group("data-owners", 1)
    };
    assert_eq!(asked(&claimed, &both), vec![owners_and_leads; 6]);
    // Where whoever approves would do for the read, those who are named for changes are some of them.
    let anybody = format!("{changes}\n{}", salaries(""));
    assert_eq!(asked(&claimed, &anybody), vec![group("team-leads", 2); 6]);
}

#[test]
fn the_reason_is_the_policy_that_forbids_what_is_claimed_where_nothing_permits_the_read() {
    let changes = "@id(\"changes\") @reason(\"nothing changes at night\") \
        forbid (principal, action in Action::\"mutate\", resource);";
    let [read, claimed] = read_and_claimed();
    let reasons = |world: &World| -> Vec<_> {
        let rulings = ruled_in_every_way(world, changes).into_iter();
        rulings
            .map(|ruling| (ruling.reason, ruling.explanation))
            .collect()
    };
    let nothing = (ReasonCode::NoPolicyPermits, "no policy permits it".to_owned());
    assert_eq!(reasons(&read), vec![nothing; 6]);
    let forbidden = (ReasonCode::PolicyForbids, "nothing changes at night".to_owned());
    assert_eq!(reasons(&claimed), vec![forbidden; 6]);
}

#[test]
fn a_claim_leaves_nothing_out_that_a_read_asks_for() {
    let pins = "@id(\"pins\") @decision(\"advise\") @obligation(\"redact:parameters.pin\") \
        permit (principal, action in Action::\"read\", resource);";
    let trap = "@id(\"trap\") @obligation(\"quarantine:agent\") \
        forbid (principal, action in Action::\"read\", resource);";
    let changes = "@id(\"changes\") @obligation(\"notify:security\") \
        forbid (principal, action in Action::\"mutate\", resource);";
    let [_, claimed] = read_and_claimed();
    let ruled = |first: &str| {
        let mut rulings = ruled_in_every_way(&claimed, &format!("{first}\n{pins}\n{changes}"));
        let blind = rulings.pop().unwrap();
        let told = |ruling: &Ruling| {
            let obligations: Vec<_> = ruling.obligations.iter().map(ToString::to_string).collect();
            (ruling.explanation.clone(), obligations.join(" "))
        };
        assert!(rulings.iter().all(|ruling| *ruling == rulings[0]), "{rulings:#?}");
        (told(&rulings[0]), told(&blind))
    };
    let both = |explanation: &str, obligations: &str, blind: &str| {
        let told = |obligations: &str| (explanation.to_owned(), obligations.to_owned());
        (told(obligations), told(blind))
    };
    // Whoever touches the trap is caught, also with a claim that is denied for itself.
    assert_eq!(
        ruled(trap),
        both(
            "the policy `mine/trap` forbids it",
            "redact:parameters.pin quarantine:agent notify:security",
            "quarantine:agent notify:security"
        )
    );
    let reads = "@id(\"reads\") permit (principal, action in Action::\"read\", resource);";
    assert_eq!(
        ruled(reads),
        both(
            "the policy `mine/changes` forbids it",
            "redact:parameters.pin notify:security",
            "notify:security"
        )
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_ruled_without_the_parameters_is_ruled_whatever_they_are(
        mine in prop::collection::vec(policies(), 0..6),
        world in worlds(),
    ) {
        let mine = numbered(&mine);
        let set = set(&world, "", &[("mine", &mine, Mode::Enforced)]);
        let Some(blind) = world.with_question(|question| set.rule_without_parameters(question)).unwrap() else {
            let looks = ["context.parameters", "context == context", "@decision(\"advise\")"];
            prop_assert!(looks.iter().any(|part| mine.contains(part)), "{}", mine);
            return Ok(());
        };
        for parameters in [json!({}), json!({"base": "main"}), json!({"other": [1, {"base": 2}]})] {
            let ruling = World { parameters, ..world.clone() }.ask(&set).unwrap();
            prop_assert_eq!(ruling.verdict(), blind.verdict(), "{}", mine);
            prop_assert_eq!(&ruling.approval, &blind.approval);
            // With a claim one denial is enough, and what else denies may not be known.
            let may_differ = world.claimed_as_mutating && blind.verdict() == Verdict::Deny;
            prop_assert!(may_differ || ruling.reason == blind.reason, "{}", mine);
        }
    }
}

#[test]
fn a_policy_that_looks_at_parameters_is_not_ruled_on_without_them() {
    let world = World {
        schema: Some(json!({"properties": {"title": {"type": "string"}, "base": {"type": "string"}}})),
        parameters: json!({"title": "x"}),
        ..World::default()
    };
    let blind = |head: &str, condition: &str| {
        let text = format!("@id(\"it\") {head} (principal, action, resource) when {{ {condition} }};");
        let set = set(&world, "", &[("mine", &text, Mode::Enforced)]);
        let ruling = world.with_question(|question| set.rule_without_parameters(question));
        ruling.unwrap().map(|ruling| ruling.reason)
    };
    for condition in [
        "context.input has title",
        "context.parameters.isEmpty()",
        "context.targets.isEmpty()",
        "!context.target_stated",
    ] {
        assert_eq!(blind("forbid", condition), None, "{condition}");
    }
    assert_eq!(
        blind("permit", "context.sensitive"),
        Some(ReasonCode::NoPolicyPermits)
    );
    let advice = "@decision(\"advise\") @obligation(\"redact:parameters.base\") permit";
    assert_eq!(
        blind(advice, "!context.sensitive"),
        Some(ReasonCode::NoPolicyPermits)
    );
    // It denies an ask that has a `base`, and who knows whether this one had.
    assert_eq!(
        blind(advice, "9223372036854775807 + context.trust.rank > 0"),
        None
    );
}

#[test]
fn without_parameters_nobody_knows_whether_there_is_room_for_all_conditions() {
    let world = World::default();
    let list = |members: usize| {
        let members = vec!["4"; members].join(",");
        format!("[{members}].contains(context.trust.rank)")
    };
    let permit = format!(
        "@id(\"all\") permit (principal, action, resource) when {{ {} }};",
        list(100_000)
    );
    let advice = format!(
        "@id(\"pin\") @decision(\"advise\") @obligation(\"redact:parameters.pin\")
        permit (principal, action, resource) when {{ {} }};",
        list(20_000)
    );
    let policies = [
        ("mine", &*permit, Mode::Enforced),
        ("advice", &*advice, Mode::Enforced),
    ];
    let set = set(&world, "", &policies);
    let blind = world.with_question(|question| set.rule_without_parameters(question));
    assert_eq!(blind, Ok(None));
    let ruled = |parameters| {
        let world = World {
            parameters,
            ..world.clone()
        };
        world.ask(&set).unwrap().reason
    };
    assert_eq!(ruled(json!({})), ReasonCode::PolicyPermits);
    assert_eq!(ruled(json!({"pin": 1})), ReasonCode::NoPolicyPermits);
}

#[test]
fn without_parameters_nobody_knows_whether_more_is_to_be_redacted_than_an_ask_may_have() {
    let agents = World {
        user: Some(("u-17".to_owned(), None)),
        ..World::default()
    };
    let [_, claimed] = read_and_claimed();
    let all = "@id(\"all\") permit (principal, action, resource);";
    let never = "@id(\"never\") forbid (principal, action, resource);";
    let blind = |world: &World, scopes: [&str; 2], counts: [usize; 2], beside: &str| {
        let [mine, more] = [0, 1].map(|side: usize| {
            let obligation = format!("redact:parameters.{}#", ["a", "b"][side]);
            let head = format!("@decision(\"advise\") @obligation(\"{obligation}\") permit");
            let advice = many(&head, counts[side], "true");
            advice.replace("(principal, action,", scopes[side])
        });
        let mine = format!("{beside}\n{mine}");
        let texts = [("mine", &*mine, Mode::Enforced), ("more", &*more, Mode::Enforced)];
        let set = set(world, "", &texts);
        let ruling = world.with_question(|question| set.rule_without_parameters(question));
        ruling.unwrap().map(|ruling| ruling.reason)
    };
    let whoever = ["(principal, action,"; 2];
    let kinds = ["(principal is Agent, action,", "(principal is User, action,"];
    let sides = ["read", "mutate"].map(|group| format!("(principal, action in Action::\"{group}\","));
    let sides = [&*sides[0], &*sides[1]];
    for (world, scopes) in [(&World::default(), whoever), (&agents, kinds), (&claimed, sides)] {
        let known = blind(world, scopes, [32, 32], all);
        assert_eq!(known, Some(ReasonCode::PolicyPermits), "{scopes:?}");
        assert_eq!(blind(world, scopes, [32, 33], all), None, "{scopes:?}");
        // What is denied is, whatever has to be done.
        let known = blind(world, scopes, [32, 33], never);
        assert_eq!(known, Some(ReasonCode::PolicyForbids), "{scopes:?}");
    }
}

#[test]
fn without_parameters_what_the_action_takes_none_of_is_nothing_to_redact() {
    let head = "@decision(\"advise\") @obligation(\"redact:parameters.a#.pin\") permit";
    let advice = many(head, 65, "true");
    let mine = format!("@id(\"all\") permit (principal, action, resource);\n{advice}");
    let declared = |count: usize| {
        let names = (0..count).map(|number| (format!("a{number}"), json!({})));
        Value::Object(names.collect())
    };
    let blind = |word: &str, value: Value| {
        let mut schema = json!({"properties": declared(64), "additionalProperties": false});
        schema[word] = value;
        let world = World {
            schema: Some(schema),
            ..World::default()
        };
        let set = set(&world, "", &[("mine", &mine, Mode::Enforced)]);
        let ruling = world.with_question(|question| set.rule_without_parameters(question));
        ruling.unwrap().map(|ruling| ruling.reason)
    };
    let is_known = blind("type", json!("object"));
    assert_eq!(is_known, Some(ReasonCode::PolicyPermits));
    let mut dotted = declared(64);
    dotted["a64.pin"] = json!({});
    for (word, value) in [
        ("properties", declared(65)),
        ("properties", dotted),
        // What it takes beside those that it declares is not looked up.
        ("additionalProperties", json!(true)),
        ("additionalProperties", json!({"type": "object"})),
        ("patternProperties", json!({"^a": {}})),
        ("$ref", json!("#/properties/a0")),
    ] {
        assert_eq!(blind(word, value), None, "{word}");
    }
}

#[test]
fn what_forbids_without_looking_at_what_is_written_forbids_whatever_that_is() {
    let world = World::default();
    let looks =
        "@id(\"looks\") permit (principal, action, resource) when { context.parameters.contains(\"pin\") };";
    let may = "@id(\"may\") forbid (principal, action, resource) when { context.targets.isEmpty() };";
    let certain = "@id(\"certain\") forbid (principal, action, resource);";
    let forbids = |policies: &[&str]| {
        let text = policies.concat();
        let set = set(&world, "", &[("mine", &text, Mode::Enforced)]);
        let ruling = world.with_question(|question| set.forbids_whatever_is_written(question));
        let matched = |ruling: Ruling| ruling.matched.iter().map(ToString::to_string).collect();
        ruling.unwrap().map_or(Vec::new(), matched)
    };
    assert!(forbids(&[looks]).is_empty());
    let drill = "@id(\"drill\") forbid (principal, action, resource) unless { context has attributes };";
    assert!(forbids(&[looks, may, drill]).is_empty());
    assert_eq!(forbids(&[looks, may, drill, certain]), ["mine/certain"]);
}

#[test]
fn where_no_parameters_can_be_checked_none_are_allowed_whoever_knows_them() {
    let patterns = r"\s".repeat(1_000);
    let world = World {
        schema: Some(json!({"properties": {"title": {"pattern": patterns}}})),
        ..World::default()
    };
    let text = "@id(\"all\") permit (principal, action, resource);";
    let set = set(&world, "", &[("mine", text, Mode::Enforced)]);
    let (known, blind) =
        world.with_question(|question| (set.rule(question), set.rule_without_parameters(question)));
    let Err(Unanswerable::InvalidParameters { pointer, detail }) = &known else {
        panic!("{known:?}");
    };
    assert_eq!(pointer, "");
    assert!(detail.starts_with("cannot be checked"), "{detail}");
    assert_eq!(blind, known.map(Some));
}

#[test]
fn what_forbids_whatever_is_written_does_so_where_no_parameters_can_be_checked() {
    let patterns = r"\s".repeat(1_000);
    let world = World {
        schema: Some(json!({"properties": {"title": {"pattern": patterns}}})),
        ..World::default()
    };
    let text = "@id(\"certain\") forbid (principal, action, resource);";
    let set = set(&world, "", &[("mine", text, Mode::Enforced)]);
    let ruling = world.with_question(|question| set.forbids_whatever_is_written(question));
    assert_eq!(ruling.unwrap().unwrap().reason, ReasonCode::PolicyForbids);
}

#[test]
fn what_is_denied_on_one_side_of_a_claim_needs_no_parameters_for_the_other() {
    let [read, claimed] = read_and_claimed();
    let blind = |world: &World, policies: &[String]| {
        let mine = numbered(policies);
        let set = set(world, "", &[("mine", &mine, Mode::Enforced)]);
        let (blind, ruling) = world.with_question(|question| {
            let blind = set.rule_without_parameters(question).unwrap();
            (blind, set.rule(question).unwrap())
        });
        let blind = blind.map(|ruling| ruling.reason);
        assert!(blind.is_none_or(|reason| reason == ruling.reason), "{ruling:?}");
        blind
    };
    let certain =
        |effect: &str, group: &str| format!("{effect} (principal, action in Action::\"{group}\", resource);");
    let looking = |group: &str| {
        let looks = " when { context.parameters.contains(\"pin\") };";
        certain("permit", group).replace(';', looks)
    };
    for (one, other) in [("read", "mutate"), ("mutate", "read")] {
        let denied = [looking(one), certain("forbid", other)];
        assert_eq!(
            blind(&claimed, &denied),
            Some(ReasonCode::PolicyForbids),
            "{other}"
        );
        // What permits one side says nothing about both.
        let permitted = [looking(one), certain("permit", other)];
        assert_eq!(blind(&claimed, &permitted), None, "{other}");
    }
    let changes_denied = [looking("read"), certain("forbid", "mutate")];
    assert_eq!(blind(&read, &changes_denied), None);
}

#[test]
fn the_base_set_is_cut_down_to_what_an_action_can_meet() {
    let world = World::default();
    let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    let found = |mutating: bool| {
        let world = World {
            registered_as_mutating: mutating,
            ..world.clone()
        };
        let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
        world.with_question(|question| by_us(&set, question, |_| true).len())
    };
    assert_eq!((found(false), found(true)), (1, 4));
    assert_eq!(world.ask(&set).unwrap().verdict(), Verdict::Allow);
}
