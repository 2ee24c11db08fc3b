//! That Cedar's own authorizer allows an ask by a plain set exactly where our verdict is of its level.

use super::*;
use crate::ask::Ask;
use crate::desk::{Desk, mine};
use crate::random;
use ::model::{SourceRule, Verdict};
use cedar_policy::{Authorizer, Context, Decision, Entities, Request};
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

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

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
