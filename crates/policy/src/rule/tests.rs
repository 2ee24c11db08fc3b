//! That a slice answers like the whole set it was cut from, whatever the policies.

#[path = "../../tests/world/world.rs"]
mod world;

use super::*;
use crate::base::BasePolicies;
use crate::context::Prepared;
use crate::json_schema::Record;
use crate::slice::Slicer;
use crate::statement::{self, Statement};
use model::{RiskTier, Trust, Verdict};
use proptest::prelude::*;
use serde_json::json;
use std::sync::Arc;
use world::{World, tenant};

/// The ruling of these policies without any index: every policy as written, every member of the context made.
fn ruled_whole(set: &PolicySet, statements: &[Statement], world: &World) -> Ruling {
    world.with_question(|question| {
        let action = &set.compiled.actions[question.tool.name.as_str()][question.action.name.as_str()];
        let parameters = action.parameters.read(question.parameters).unwrap();
        let mut prepared = Prepared::new(
            question.tool,
            question.action,
            question.mutates,
            &mut Slicer::new(&[]),
        );
        prepared.slice = Arc::new(Slice::whole(statements));
        let asked = Facts::new(question, &prepared, &parameters, &Record::new())
            .unwrap()
            .ask();
        set.compiled.judge(&prepared.slice, &asked, &parameters)
    })
}

const SCOPES: [&str; 7] = [
    "action",
    "action in Action::\"read\"",
    "action in Action::\"mutate\"",
    "action == Action::\"github/create_issue\"",
    "action in [Action::\"risk:high\", Action::\"tool:github\"]",
    "action in Action::\"risk:high\"",
    "action in [Action::\"github/create_issue\"]",
];
const CONDITIONS: [&str; 14] = [
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
    "context == context",
    "context has run && context.now == context.now",
];
const HEADS: [&str; 5] = [
    "forbid",
    "permit",
    "permit",
    "@decision(\"require_approval\") permit",
    "@decision(\"advise\") @obligation(\"notify:a, redact:parameters.base\") permit",
];

/// One policy without its id.
fn policies() -> impl Strategy<Value = String> {
    let conditions = prop::collection::vec(
        (any::<bool>(), prop::sample::subsequence(&CONDITIONS[..], 1..4)),
        0..3,
    );
    let head = (
        prop::sample::select(&HEADS[..]),
        prop::sample::select(&SCOPES[..]),
    );
    (head, conditions).prop_map(|((head, scope), conditions)| {
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
            "{head} (principal, {scope}, resource) {};",
            conditions.collect::<String>()
        )
    })
}

fn worlds() -> impl Strategy<Value = World> {
    let levels = prop::sample::select(Trust::ALL.to_vec());
    (levels, any::<[bool; 5]>()).prop_map(|(trust, [mutating, claimed, canary, high, base])| World {
        trust,
        registered_as_mutating: mutating,
        claimed_as_mutating: claimed,
        canary,
        tier: if high { RiskTier::High } else { RiskTier::Low },
        parameters: if base { json!({"base": "main"}) } else { json!({}) },
        ..World::default()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_slice_answers_like_the_whole(policies in prop::collection::vec(policies(), 0..6), world in worlds()) {
        let numbered = policies.iter().enumerate().map(|(index, policy)| format!("@id(\"{index}\") {policy}\n"));
        let text = numbered.collect::<String>();
        let base = BasePolicies::parse("").unwrap();
        let set = world.compile(&base, &[tenant("mine", &text)]).unwrap();
        let whole = ruled_whole(&set, &statement::parse("mine", &text).unwrap(), &world);
        prop_assert_eq!(world.ask(&set).unwrap(), whole, "{}", text);
    }
}

#[test]
fn the_base_set_is_cut_down_to_what_an_action_can_meet() {
    let world = World::default();
    let set = world.compile(&BasePolicies::shipped(), &[]).unwrap();
    let action = &set.compiled.actions["github"]["create_issue"];
    let left = |prepared: &Prepared| prepared.slice.rules.policies().count();
    assert_eq!((left(&action.reading), left(&action.mutating)), (1, 4));
    assert_eq!(world.ask(&set).unwrap().verdict(), Verdict::Allow);
}
