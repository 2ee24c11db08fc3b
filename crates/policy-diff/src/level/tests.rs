//! That Cedar's own authorizer allows an ask by a plain set exactly where our verdict is of its level.

use super::*;
use crate::ask::Ask;
use crate::desk::{Desk, mine};
use crate::random;
use ::model::{SourceRule, Verdict};
use cedar_policy::{Authorizer, Context, Decision, Entities, Request};
use cedar_policy_core::ast::PolicySet as CedarPolicies;
use policy::{Ground, PolicySet, Principals, Question};
use proptest::prelude::*;

/// What Cedar says to this ask by these policies.
fn by_cedar(set: &PolicySet, question: &Question<'_>, plain: &cedar_policy::PolicySet) -> Decision {
    let asked = set.explain(question).unwrap().request.unwrap();
    let uid = |text: &str| text.parse().unwrap();
    let context = Context::from_json_value(asked.context.unwrap(), None).unwrap();
    let request = Request::new(
        uid(&asked.principal),
        uid(&asked.action),
        uid(&asked.resource),
        context,
        None,
    );
    let entities = Entities::from_json_value(asked.entities, None).unwrap();
    Authorizer::new()
        .is_authorized(&request.unwrap(), plain, &entities)
        .decision()
}

fn check_ask(desk: &Desk, set: &PolicySet, ask: &Ask) -> Result<(), TestCaseError> {
    let tool = &desk.registry().tools[&ask.side.tool];
    let ground = Ground::of(tool, &tool.actions[&ask.side.action], ask.side.mutates);
    let slicer = set.slicer(Principals::Agents);
    let parts = slicer.parts(&slicer.slice(slicer.all(), &ground));
    if check(&parts).is_err() {
        return Ok(());
    }
    let known = policy::asks::known(&ground, &parts, Principals::Agents, SourceRule::Call);
    ask.with_question(desk.registry(), |question| {
        let verdict = set.rule_by_types(question).unwrap().verdict();
        for (level, is_of_it) in [
            (Level::NotDenied, verdict != Verdict::Deny),
            (Level::Allowed, verdict == Verdict::Allow),
        ] {
            let decision = by_cedar(set, question, &level.plain(&parts, &known));
            // The set is what policies say to the agent; a user can stand in the way of that.
            if question.user.is_none() || is_of_it {
                prop_assert_eq!(decision == Decision::Allow, is_of_it, "{:?} {:?}", level, verdict);
            }
        }
        Ok(())
    })
    .unwrap()
}

/// Looks at what these policies, and no others, are for refunds.
fn with_refund_parts<T>(text: &str, look: impl FnOnce(&[Part<'_>]) -> T) -> T {
    let desk = Desk::bare();
    let set = desk.compile(&[mine(text)]);
    let tool = &desk.registry().tools["payments"];
    let ground = Ground::of(tool, &tool.actions["refund"], true);
    let slicer = set.slicer(Principals::Agents);
    look(&slicer.parts(&slicer.slice(slicer.all(), &ground)))
}

/// The conditions of a plain set.
fn conditions(plain: &cedar_policy::PolicySet) -> Vec<Expr> {
    let policies = AsRef::<CedarPolicies>::as_ref(plain).policies();
    let conditions = policies.filter_map(|policy| policy.non_scope_constraints().cloned());
    conditions.collect()
}

#[test]
fn what_must_come_out_is_written_once_for_all_permits_that_cannot_fail() {
    let policy = |number: usize, head: &str, condition: &str| {
        let scope = "(principal, action == Action::\"payments/refund\", resource)";
        format!("@id(\"{number}\") {head} {scope} when {{ {condition} }};\n")
    };
    let can_fail = "context.input.amount * 922337203685477 < 0";
    let asking = "@decision(\"require_approval\") permit";
    let text = [
        policy(0, "forbid", can_fail),
        policy(1, "permit", "context.input.amount < 10"),
        policy(2, "permit", "context.input.currency == \"EUR\""),
        policy(3, "permit", can_fail),
        policy(4, asking, "context.input.amount < 20"),
        policy(5, asking, can_fail),
    ];
    // What is not denied: one permit that can fail, and one of all others. What is allowed: an approval is a forbid.
    let written = with_refund_parts(&text.concat(), |parts| {
        Level::ALL.map(|level| conditions(&level.plain(parts, &[])).len())
    });
    assert_eq!(written, [2, 3]);
    // Without anything that must come out, each permit is one.
    let written = with_refund_parts(&text[1..4].concat(), |parts| {
        conditions(&Level::Allowed.plain(parts, &[])).len()
    });
    assert_eq!(written, 3);
    // No formula is deeper than so many of them.
    let many = (1..=33).map(|number| policy(number, "permit", "context.input.amount < 10"));
    let text: String = text[..1].iter().cloned().chain(many).collect();
    let written = with_refund_parts(&text, |parts| {
        conditions(&Level::NotDenied.plain(parts, &[])).len()
    });
    assert_eq!(written, 2);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_plain_set_weighs_what_is_written(text in random::policies(0..12)) {
        with_refund_parts(&text, |parts| {
            for level in Level::ALL {
                let written = conditions(&level.plain(parts, &[]));
                let written: u64 = written.iter().map(weight).sum();
                prop_assert_eq!(level.weight(parts), written, "{:?}", level);
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_plain_set_allows_where_the_verdict_is_of_its_level(
        text in random::policies(0..6),
        ask in random::ask(),
        is_bare in any::<bool>(),
    ) {
        let desk = if is_bare { Desk::bare() } else { Desk::new() };
        let set = desk.compile(&[mine(&text)]);
        check_ask(&desk, &set, &ask)?;
    }
}
