//! That a slice says of every ask what the index and the evaluator say of it, and that what is known of every ask holds.

use super::*;
use crate::asks::known;
use crate::evaluate::{Asked, holds};
use crate::rule::tests::{Outcomes, by_us, numbered, policies, set, telling, whole, worlds};
use crate::world::World;
use cedar_policy_core::ast::ExprKind;
use model::{ReasonCode, SourceRule, Sources, Trust};
use proptest::prelude::*;
use serde_json::json;

/// What the parts of a slice say of an ask.
fn by_slice(set: &PolicySet, world: &World, asked: &Asked) -> Outcomes {
    let slicer = set.slicer(Principals::Agents);
    let tool = world.tool();
    let mutates = world.registered_as_mutating || world.claimed_as_mutating;
    let ground = Ground::of(&tool, &tool.actions[world.action.as_str()], mutates);
    let slice = slicer.slice(slicer.all(), &ground);
    let outcomes = slicer.parts(&slice).into_iter().map(|part| {
        let outcome = holds(&asked.evaluator(), Some(&Condition::of(&part.condition)));
        (part.id.to_string(), outcome.ok())
    });
    outcomes.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn a_slice_says_what_the_index_finds(
        base in prop::collection::vec(policies(), 0..4),
        mine in prop::collection::vec(policies(), 0..6),
        tried in prop::collection::vec(policies(), 0..3),
        is_canary in any::<bool>(),
        world in worlds(),
    ) {
        let (base, mine, tried) = (numbered(&base), numbered(&mine), numbered(&tried));
        let agents = if is_canary { [world.agent().id].into() } else { [AgentId::from_bytes([9; 16])].into() };
        let texts = [("mine", &*mine, Mode::Enforced), ("mine", &*tried, Mode::Canary(Arc::new(agents)))];
        // Advice is asked for where there is something that it is about.
        let world = World { parameters: json!({"base": "main"}), ..world };
        let set = set(&world, &base, &texts);
        world.with_question(|question| {
            let asked = whole(&set, question);
            let ours = telling(by_slice(&set, &world, &asked));
            let agent = &question.agent.id;
            let counts = |presence| set.contents.counts(presence, crate::set::World::InForce(agent));
            let expected = telling(by_us(&set, question, counts));
            prop_assert_eq!(ours, expected, "{}\n{}\n{}", base, mine, tried);
            Ok(())
        })?;
    }

    #[test]
    fn what_is_known_of_every_ask_holds(
        world in worlds(),
        target in prop::sample::select(vec![json!(null), json!("main"), json!(["main", {"x": "dev"}]), json!(7)]),
        name in prop::sample::select(vec!["base", "into", "other"]),
        is_typed in any::<bool>(),
        is_high in any::<bool>(),
        [said, seen] in prop::array::uniform2(prop::sample::select(Trust::ALL.to_vec())),
        rule in prop::sample::select(vec![SourceRule::Call, SourceRule::Parameter]),
        in_run in any::<bool>(),
    ) {
        let schema = json!({
            "properties": {
                "base": {"type": "string", "minLength": 1},
                "amount": {"type": "integer", "minimum": 1, "maximum": 9},
                "currency": {"enum": ["EUR", "USD", null]},
            },
            "required": ["amount"],
        });
        let mut parameters = json!({"amount": if is_high { 9 } else { 1 }, "currency": "EUR"});
        let fits = !is_typed || name != "base" || target.is_string();
        parameters[name] = if fits { target } else { json!("main") };
        let schema = is_typed.then_some(schema);
        let trust = match rule {
            SourceRule::Call => world.trust.worse_of(said),
            SourceRule::Parameter => world.trust,
        };
        let world = World {
            schema,
            parameters,
            trust,
            sources: Sources::new([("/base".to_owned(), said)].into()),
            run: in_run.then(|| "run-1".to_owned()),
            run_worst: trust.worse_of(said).worse_of(seen),
            ..world
        };
        let all = "@id(\"all\") forbid (principal in Team::\"sales\", action, resource) when { \
                   context == context && Team::\"other\".hasTag(\"x\") && principal == Agent::\"nobody\" };";
        let set = set(&world, "", &[("mine", all, Mode::Enforced)]);
        let tool = world.tool();
        let mutates = world.registered_as_mutating || world.claimed_as_mutating;
        let ground = Ground::of(&tool, &tool.actions[world.action.as_str()], mutates);
        let slicer = set.slicer(Principals::Agents);
        let parts = slicer.parts(&slicer.slice(slicer.all(), &ground));
        prop_assert_eq!(parts.len(), 1);
        let known = known(&ground, &parts, Principals::Agents, rule);
        prop_assert!(known.len() > 10);
        world.with_question(|question| {
            let asked = whole(&set, question);
            for one in &known {
                let outcome = holds(&asked.evaluator(), Some(&Condition::of(one)));
                prop_assert!(matches!(outcome, Ok(true)), "{:?} of {}", outcome, one);
            }
            Ok(())
        })?;
    }
}

#[test]
fn equal_policies_are_equal_under_any_name_and_by_what_they_do() {
    let world = World::default();
    let one = |name: &str, text: &str| set(&world, "", &[(name, text, Mode::Enforced)]);
    let differ = |before: &str, after: &str| {
        let (before, after) = (one("a", before), one("b", after));
        !after
            .slicer(Principals::Agents)
            .not_in(&before.slicer(Principals::Agents), |_| false)
            .is_empty()
    };
    let plain = "@id(\"x\") permit (principal, action, resource) when { context.sensitive };";
    let renamed =
        "@id(\"y\") @reason(\"Because\") permit (principal, action, resource) when { context.sensitive };";
    let stricter = "@id(\"x\") @decision(\"require_approval\") permit (principal, action, resource) when { context.sensitive };";
    let narrower =
        "@id(\"x\") permit (principal, action in Action::\"read\", resource) when { context.sensitive };";
    assert!(!differ(plain, renamed));
    assert!(differ(plain, stricter));
    assert!(differ(plain, narrower));
}

#[test]
fn a_shadow_is_in_no_slice_and_what_it_would_replace_is() {
    let world = World::default();
    let text = "@id(\"x\") permit (principal, action, resource);";
    let set = set(
        &world,
        "",
        &[
            ("a", text, Mode::Enforced),
            (
                "a",
                "@id(\"y\") forbid (principal, action, resource);",
                Mode::Shadow,
            ),
        ],
    );
    let slicer = set.slicer(Principals::Agents);
    assert_eq!(slicer.all().len(), 1);
    assert_eq!(slicer.id(0).as_str(), "a/x");
}

/// The agents that a condition holds principals against.
fn agents_in(condition: &Expr) -> &Arc<Vec<Expr>> {
    let agents = condition
        .subexpressions()
        .find_map(|part| match part.expr_kind() {
            ExprKind::Set(agents) => Some(agents),
            _ => None,
        });
    agents.unwrap()
}

#[test]
fn all_policies_of_a_canary_share_its_agents_with_those_whose_place_they_take() {
    let world = World::default();
    let text =
        "@id(\"x\") permit (principal, action, resource); @id(\"y\") forbid (principal, action, resource);";
    let some = (1..4).map(|number| AgentId::from_bytes([number; 16]));
    let canary = Mode::Canary(Arc::new(some.collect()));
    let set = set(&world, "", &[("a", text, Mode::Enforced), ("a", text, canary)]);
    let slicer = set.slicer(Principals::Agents);
    let conditions = slicer.rules.iter().map(|rule| rule.canary.as_ref().unwrap());
    let agents: Vec<_> = conditions.map(agents_in).collect();
    assert_eq!((agents.len(), agents[0].len()), (4, 3));
    assert!(agents.iter().all(|one| Arc::ptr_eq(one, agents[0])));
}

/// It fails for the sake of another policy, and that one is not even in the slice.
#[test]
fn what_patterns_of_another_policy_may_be_too_much_for_no_condition_tells() {
    let world = World {
        schema: Some(json!({"properties": {"text": {"type": "string"}}, "required": ["text"]})),
        parameters: json!({"text": "a".repeat(250_000)}),
        ..World::default()
    };
    let mine = "@id(\"all\") permit (principal, action, resource);\
                @id(\"small\") forbid (principal, action, resource) when { context.input.text like \"b*\" };";
    let one = |letter: &str| format!("context.input.text like \"*{}\"", letter.repeat(250));
    let patterns = format!("{} || {}", one("w"), one("x"));
    let other = format!(
        "@id(\"it\") forbid (principal, action, resource) when {{ context.tool.name == \"other\" && ({patterns}) }};"
    );
    let texts = [("mine", mine, Mode::Enforced), ("other", &*other, Mode::Enforced)];
    let (before, after) = (set(&world, "", &texts[..1]), set(&world, "", &texts));
    let ruled = |set| world.ask(set).unwrap().reason;
    assert_eq!(ruled(&before), ReasonCode::PolicyPermits);
    assert_eq!(ruled(&after), ReasonCode::PolicyError);
    let tool = world.tool();
    let ground = Ground::of(&tool, &tool.actions[world.action.as_str()], true);
    let [before, after] = [&before, &after].map(|set| set.slicer(Principals::Agents));
    assert_eq!(after.parts(&after.slice(after.all(), &ground)).len(), 2);
    let why = |one: &Slicer<'_>, other: &Slicer<'_>, body_bytes_max| {
        let too_much = one.too_much_beside(other, body_bytes_max)?;
        Some(too_much.why([one, other], &ground))
    };
    // What fails never allows more.
    let Some([None, Some(told)]) = why(&before, &after, 256 << 10) else {
        panic!("it may allow less, and nothing else");
    };
    assert!(told.starts_with("patterns of policies about it"), "{told}");
    assert_eq!(why(&after, &before, 256 << 10), Some([Some(told), None]));
    assert_eq!(why(&before, &after, 1 << 10), None);
    assert_eq!(why(&after, &after, 256 << 10), Some([None; 2]));
}

/// Some fail for the longest asks and others do not, so whatever changes may allow more, or less.
#[test]
fn what_comparisons_of_another_policy_may_be_too_much_for_no_condition_tells() {
    let world = World::default();
    let mine = "@id(\"all\") permit (principal, action, resource);\
                @id(\"few\") forbid (principal, action, resource) when { context.parameters.containsAny([\"b\"]) };";
    let look_ups = vec!["context.parameters.containsAll(context.parameters)"; 130].join(" && ");
    let other = format!(
        "@id(\"it\") forbid (principal, action, resource) when {{ context.tool.name == \"other\" && {look_ups} }};"
    );
    let texts = [("mine", mine, Mode::Enforced), ("other", &*other, Mode::Enforced)];
    let tool = world.tool();
    let ground = Ground::of(&tool, &tool.actions[world.action.as_str()], true);
    let (before, after) = (set(&world, "", &texts[..1]), set(&world, "", &texts));
    let [before, after] = [&before, &after].map(|set| set.slicer(Principals::Agents));
    let why = |one: &Slicer<'_>, other: &Slicer<'_>, body_bytes_max| {
        let (sets, too_much) = ([one, other], one.too_much_beside(other, body_bytes_max)?);
        Some((too_much.why(sets, &ground), too_much.may_fail(sets, &ground)))
    };
    // What fails never allows more.
    let Some(([None, Some(told)], may_fail)) = why(&before, &after, 256 << 10) else {
        panic!("it may allow less, and nothing else");
    };
    assert!(told.starts_with("comparisons of lists and texts"), "{told}");
    // Of patterns there are none.
    assert_eq!(may_fail, [false; 2]);
    let reversed = why(&after, &before, 256 << 10);
    assert_eq!(reversed, Some(([Some(told), None], [false; 2])));
    assert_eq!(why(&before, &after, 1 << 10), None);
    let unchanged = why(&after, &after, 256 << 10);
    assert_eq!(unchanged, Some(([None; 2], [false; 2])));
    // The operator's are evaluated however many there are.
    let all = "@id(\"all\") permit (principal, action, resource);";
    let [before, after] = ["", &*other].map(|base| set(&world, base, &[("mine", all, Mode::Enforced)]));
    let [before, after] = [&before, &after].map(|set| set.slicer(Principals::Agents));
    assert_eq!(why(&before, &after, 256 << 10), None);
}

/// The engine cuts them off before anything is asked.
#[test]
fn patterns_of_the_operators_for_the_action_itself_take_no_time_of_an_ask() {
    let world = World {
        schema: Some(json!({"properties": {"text": {"type": "string"}}, "required": ["text"]})),
        parameters: json!({"text": "a".repeat(250_000)}),
        ..World::default()
    };
    let letters = "w".repeat(250);
    let of_action = |id: &str, guard: &str| {
        format!(
            "@id(\"{id}\") forbid (principal, action, resource) when {{ {guard} && context.input.text == \"b\" }};"
        )
    };
    let named = format!("context.tool.name like \"*{letters}\"");
    let base = [
        of_action("rest", &format!("!({named})")),
        of_action("nothing", &named),
    ]
    .concat();
    let mine = "@id(\"all\") permit (principal, action, resource);";
    let small =
        "@id(\"small\") forbid (principal, action, resource) when { context.input.text like \"b*\" };";
    let (before, after) = (mine.to_owned(), format!("{mine}{small}"));
    let tool = world.tool();
    let ground = Ground::of(&tool, &tool.actions[world.action.as_str()], true);
    let why = |base: &str, tenants: &str| {
        let [before, after] = [&before, &after].map(|text| {
            set(
                &world,
                base,
                &[
                    ("mine", &**text, Mode::Enforced),
                    ("too", tenants, Mode::Enforced),
                ],
            )
        });
        let reasons = [&before, &after].map(|set| world.ask(set).unwrap().reason);
        let [before, after] = [&before, &after].map(|set| set.slicer(Principals::Agents));
        let too_much = before
            .too_much_beside(&after, 256 << 10)
            .expect("the gate counts all of it");
        let sets = [&before, &after];
        (
            too_much.why(sets, &ground),
            too_much.may_fail(sets, &ground),
            reasons,
        )
    };
    let (why_of_base, may_fail, reasons) = why(&base, "");
    assert_eq!((why_of_base, may_fail), ([None; 2], [false; 2]));
    assert_eq!(reasons, [ReasonCode::PolicyPermits; 2]);
    let (why_of_tenants, may_fail, reasons) = why("", &base);
    assert!(matches!(why_of_tenants, [None, Some(_)]), "{why_of_tenants:?}");
    assert_eq!(may_fail, [true; 2]);
    assert_eq!(reasons, [ReasonCode::PolicyError; 2]);
}
