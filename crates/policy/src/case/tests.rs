//! That what the cases of a question take is counted before it is done, and not done where there is too little fuel.

use super::{EVALUATED_STEPS, FOUND_STEPS, LOOKED_AT, OBLIGATION_STEPS, PART_STEPS, RULED_STEPS, TEAM_STEPS};
use crate::rule::tests::{numbered, set};
use crate::tenant::Mode;
use crate::world::{World, attributes, name};
use model::{Agent, AgentId, Team, User};
use policy::{Fuel, PolicySet, Question};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many policies like this one.
fn many(world: &World, count: usize, policy: &str, mode: Mode) -> PolicySet {
    let texts = numbered(&vec![policy.to_owned(); count]);
    set(world, "", &[("mine", &texts, mode)])
}

#[test]
fn nothing_is_looked_at_any_more_when_the_fuel_is_used_up() {
    // With eight delegators, a user, and a claim these are thirty-six cases.
    let world = World {
        registered_as_mutating: false,
        claimed_as_mutating: true,
        user: Some(("u-17".to_owned(), None)),
        ..World::default()
    };
    let delegators = (20..28).map(|byte| Agent {
        id: AgentId::from_bytes([byte; 16]),
        ..world.agent()
    });
    let delegators: Vec<_> = delegators.collect();
    for (count, looked_at, suffices) in [(10, 360, true), (2_000, 2_000, false), (4_200, 0, false)] {
        let set = many(
            &world,
            count,
            "permit (principal, action, resource);",
            Mode::Enforced,
        );
        world.with_question(|question| {
            let fuel = Fuel::for_a_short_ask();
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            let before = LOOKED_AT.get();
            let read = set.read(&with_fuel).unwrap();
            for agent in [question.agent].into_iter().chain(&delegators) {
                read.asked_by(agent, None).rule().unwrap();
            }
            assert_eq!(LOOKED_AT.get() - before, looked_at);
            assert_eq!(fuel.is_used_up(), !suffices);
        });
    }
}

/// Whoever tries asks may hang up, and nobody wants to know then what would have come of all cases.
#[test]
fn nothing_is_looked_at_any_more_when_it_is_not_to_go_on() {
    let world = World {
        registered_as_mutating: false,
        claimed_as_mutating: true,
        user: Some(("u-17".to_owned(), None)),
        ..World::default()
    };
    let set = many(
        &world,
        10,
        "permit (principal, action, resource);",
        Mode::Enforced,
    );
    world.with_question(|question| {
        let looked_at = |goes_on_for: usize| {
            let asked = AtomicUsize::new(0);
            let fuel = Fuel::while_it_goes_on(move || asked.fetch_add(1, Ordering::Relaxed) < goes_on_for);
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            let before = LOOKED_AT.get();
            let explained = set.explain(&with_fuel).unwrap();
            if !fuel.is_used_up() {
                assert_eq!(explained, set.explain(question).unwrap());
                return None;
            }
            Some(LOOKED_AT.get() - before)
        };
        // It is asked once for the parameters, and in each of the four cases four times.
        assert_eq!([1, 5, 9, 16].map(looked_at), [0, 10, 20, 40].map(Some));
        assert_eq!(looked_at(17), None);
    });
}

#[test]
fn a_policy_is_counted_where_it_is_found_and_in_each_ruling_that_it_may_be_in() {
    let world = World::default();
    let taken = |count, policy: &str, mode: &Mode| {
        let set = many(&world, count, policy, mode.clone());
        world.with_question(|question| {
            let fuel = Fuel::for_a_worker();
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            set.rule_with_shadow(&with_fuel).unwrap();
            assert!(!fuel.is_used_up());
            fuel.taken()
        })
    };
    let all = "permit (principal, action, resource);";
    let never = "forbid (principal, action, resource) when { context.trust.rank == 9 };";
    let notifying = "@obligation(\"notify:a, notify:b, notify:a\") permit (principal, action, resource);";
    let redacting = "@decision(\"advise\") @obligation(\"redact:parameters.a, redact:parameters.b\")
        permit (principal, action, resource);";
    let [once, twice] = [1, 2].map(|rulings| FOUND_STEPS + EVALUATED_STEPS + rulings * RULED_STEPS);
    for (policy, mode, steps) in [
        (all, Mode::Enforced, once),
        (all, Mode::Shadow, twice),
        (never, Mode::Enforced, once + 5 * PART_STEPS),
        (notifying, Mode::Enforced, once + 2 * OBLIGATION_STEPS),
        (notifying, Mode::Shadow, twice + 4 * OBLIGATION_STEPS),
        // It adds nothing to this ask, and that is looked up for each.
        (redacting, Mode::Enforced, FOUND_STEPS + 2 * OBLIGATION_STEPS),
        (
            "permit (principal is User, action, resource);",
            Mode::Enforced,
            FOUND_STEPS,
        ),
        (
            "permit (principal, action, resource == Resource::\"other\");",
            Mode::Enforced,
            0,
        ),
    ] {
        let ten_more = taken(20, policy, &mode) - taken(10, policy, &mode);
        assert_eq!(ten_more, 10 * steps, "{policy}");
    }
}

/// What is looked up about each of them, and made of it, takes its time, also where no policy names any.
#[test]
fn each_team_of_the_user_is_counted() {
    let taken = |count: usize, fuel: Fuel| {
        let user = User {
            name: name("u-17"),
            teams: (0..count).map(|number| name(&format!("team-{number}"))).collect(),
            attributes: attributes(json!({})),
            roles: BTreeSet::new(),
        };
        let world = World {
            user: Some(("u-17".to_owned(), Some(user))),
            ..World::default()
        };
        let set = many(&world, 1, "permit (principal, action, resource);", Mode::Enforced);
        world.with_question(|question| {
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            set.rule(&with_fuel).unwrap();
            (!fuel.is_used_up()).then(|| fuel.taken())
        })
    };
    let [few, more] = [2, 12].map(|count| taken(count, Fuel::for_a_worker()).unwrap());
    assert_eq!(more - few, 10 * TEAM_STEPS);
    assert!(taken(256, Fuel::for_a_short_ask()).is_some());
    assert_eq!(taken(512, Fuel::for_a_short_ask()), None);
}

/// Somebody whose tags, or those of a team, are as long as they may be takes as much longer, and names do not.
#[test]
fn a_pattern_is_counted_by_the_longest_text_that_it_may_meet_of_whom_it_is_asked_for() {
    let tagged = |bytes: usize| attributes(json!({"x": "a".repeat(bytes)}));
    let with_tags = |[of_agent, of_user, of_team]: [usize; 3]| {
        let user = User {
            name: name("u-17"),
            teams: BTreeSet::from([name("owners"), name("nobodys")]),
            attributes: tagged(of_user),
            roles: BTreeSet::new(),
        };
        let owners = Team {
            name: name("owners"),
            attributes: tagged(of_team),
            quotas: Vec::new(),
        };
        World {
            agent_attributes: tagged(of_agent),
            user: Some(("u-17".to_owned(), Some(user))),
            teams: imbl::OrdMap::unit(name("owners"), Arc::new(owners)),
            ..World::default()
        }
    };
    let taken = |world: &World, policy: &str| {
        let set = many(world, 10, policy, Mode::Enforced);
        world.with_question(|question| {
            let fuel = Fuel::for_a_worker();
            let with_fuel = Question {
                fuel: Some(&fuel),
                ..*question
            };
            set.rule(&with_fuel).unwrap();
            assert!(!fuel.is_used_up());
            fuel.taken()
        })
    };
    let short = with_tags([64; 3]);
    for (condition, steps) in [
        ("principal.name like \"*aaab\"", 0),
        ("context.tool.name like \"*aaab\"", 0),
        (
            "principal.hasTag(\"x\") && principal.getTag(\"x\") like \"*aaab\"",
            5,
        ),
    ] {
        let policy = format!("forbid (principal is Agent, action, resource) when {{ {condition} }};");
        for place in 0..3 {
            let mut bytes = [64; 3];
            bytes[place] = 1_000;
            let more = taken(&with_tags(bytes), &policy) - taken(&short, &policy);
            assert_eq!(more, 10 * steps * (1_000 - 64), "{condition}");
        }
    }
    let policy = "forbid (principal is Agent, action, resource) when { context.parameters.contains(\"x\") };";
    assert_eq!(taken(&with_tags([1_000; 3]), policy), taken(&short, policy));
}
