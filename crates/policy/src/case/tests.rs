//! That what the cases of a question take is counted before it is done, and not done where there is too little fuel.

use super::LOOKED_AT;
use crate::rule::tests::{numbered, set};
use crate::tenant::Mode;
use crate::world::World;
use model::{Agent, AgentId};
use policy::{Fuel, PolicySet, Question};

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
