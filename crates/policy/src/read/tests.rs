//! That what is asked of a question that was read is what is asked of the question, and that nothing is read again for it.

use crate::context::{ATTRIBUTES_READ, TEAMS_MADE};
use crate::parameters::READ;
use crate::rule::tests::set;
use crate::set::PolicySet;
use crate::tenant::Mode;
use crate::world::{World, attributes, name};
use model::{Agent, AgentId, AttributeType, Attributes, ReasonCode, Team, User};
use policy::{Question, Unanswerable};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A read that is said to change something, for a user.
fn claimed() -> World {
    World {
        schema: Some(json!({"properties": {"title": {"type": "string", "maxLength": 3}}})),
        parameters: json!({"title": "x"}),
        registered_as_mutating: false,
        claimed_as_mutating: true,
        user: Some(("u-17".to_owned(), None)),
        ..World::default()
    }
}

/// Policies under which each agent, each principal and each side of the claim is told something else, and one on trial.
fn policies(world: &World) -> PolicySet {
    let mine = r#"
        @id("all") permit (principal, action, resource);
        @id("reads") @decision("require_approval") @approvers("data-owners")
        permit (principal, action in Action::"read", resource) when { context.agent.name == "planner" };
        @id("changes") @decision("require_approval") @quorum("2")
        permit (principal is User, action in Action::"mutate", resource) when { context.input has title };"#;
    let trial =
        r#"@id("trial") forbid (principal, action, resource) when { context.agent.name == "planner" };"#;
    let texts = [("mine", mine, Mode::Enforced), ("trial", trial, Mode::Shadow)];
    set(world, "", &texts)
}

fn planner(world: &World) -> Agent {
    Agent {
        id: AgentId::from_bytes([8; 16]),
        name: name("planner"),
        ..world.agent()
    }
}

#[test]
fn parameters_are_read_once_for_all_in_whose_name_it_is_asked() {
    let world = claimed();
    let (set, planner) = (policies(&world), planner(&world));
    world.with_question(|question| {
        let before = READ.get();
        let read = set.read(question).unwrap();
        for agent in [question.agent, &planner].repeat(4) {
            let theirs = read.asked_by(agent, None);
            for side in [theirs.as_registered().unwrap(), theirs] {
                side.rule().unwrap();
                side.rule_with_shadow().unwrap();
                side.explain().unwrap();
            }
        }
        assert_eq!(READ.get() - before, 1);
    });
}

#[test]
fn the_teams_of_the_user_are_made_once_for_all_in_whose_name_it_is_asked() {
    let [staff, guests] = ["staff", "guests"].map(|team| Team {
        name: name(team),
        attributes: attributes(json!({"locked": "yes"})),
        quotas: Vec::new(),
    });
    let user = User {
        name: name("u-17"),
        teams: BTreeSet::from([name("staff"), name("guests")]),
        attributes: Attributes::default(),
        roles: BTreeSet::new(),
    };
    let registered = [&staff, &guests].map(|team| (team.name.clone(), Arc::new(team.clone())));
    let world = World {
        user: Some(("u-17".to_owned(), Some(user))),
        teams: registered.into_iter().collect(),
        ..claimed()
    };
    let locked = r#"
        @id("all") permit (principal, action, resource);
        @id("locked") forbid (principal, action, resource)
        when { Team::"staff".hasTag("locked") && Team::"guests".hasTag("locked") };"#;
    let set = set(&world, "", &[("mine", locked, Mode::Enforced)]);
    let planner = planner(&world);
    world.with_question(|question| {
        let before = TEAMS_MADE.get();
        let read = set.read(question).unwrap();
        // What is the team of one who asks is a team of the user to another.
        for (agent, team) in [(question.agent, None), (&planner, Some(&staff))].repeat(4) {
            let theirs = read.asked_by(agent, team);
            for side in [theirs.as_registered().unwrap(), theirs] {
                assert_eq!(side.rule().unwrap().reason, ReasonCode::PolicyForbids);
                side.rule_with_shadow().unwrap();
                side.explain().unwrap();
            }
        }
        assert_eq!(TEAMS_MADE.get() - before, 1);
    });
}

#[test]
fn attributes_are_read_once_for_all_in_whose_name_it_is_asked_or_mistyped_for_each() {
    let world = |level: serde_json::Value| World {
        declared: BTreeMap::from([(name("level"), AttributeType::Long)]),
        attributes: Some(json!({"level": level, "more": [{}]})),
        ..claimed()
    };
    let (good, mistyped) = (world(json!(3)), world(json!("3")));
    let level = r#"
        @id("all") permit (principal, action, resource);
        @id("level") forbid (principal, action, resource)
        when { context.attributes has level && context.attributes.level == 3 };"#;
    let set = set(&good, "", &[("mine", level, Mode::Enforced)]);
    let delegators = (20..28).map(|byte| Agent {
        id: AgentId::from_bytes([byte; 16]),
        ..planner(&good)
    });
    let delegators: Vec<_> = delegators.collect();
    good.with_question(|question| {
        let before = ATTRIBUTES_READ.get();
        let read = set.read(question).unwrap();
        for agent in [question.agent].into_iter().chain(&delegators) {
            let theirs = read.asked_by(agent, None);
            for side in [theirs.as_registered().unwrap(), theirs] {
                assert_eq!(side.rule().unwrap().reason, ReasonCode::PolicyForbids);
                side.rule_with_shadow().unwrap();
                side.explain().unwrap();
            }
        }
        assert_eq!(ATTRIBUTES_READ.get() - before, 1);
    });
    mistyped.with_question(|question| {
        let before = ATTRIBUTES_READ.get();
        let read = set.read(question).unwrap();
        for agent in [question.agent].into_iter().chain(&delegators) {
            let refusal = read.asked_by(agent, None).rule().unwrap_err();
            assert!(matches!(refusal, Unanswerable::MistypedAttribute { name, .. } if name == "level"));
        }
        assert_eq!(ATTRIBUTES_READ.get() - before, 1);
    });
}

#[test]
fn a_question_that_was_read_is_answered_as_it_would_be_by_itself() {
    let world = claimed();
    let (set, planner) = (policies(&world), planner(&world));
    world.with_question(|question| {
        let read = set.read(question).unwrap();
        let mut told = Vec::new();
        for agent in [question.agent, &planner] {
            let theirs = Question {
                agent,
                team: None,
                ..*question
            };
            let asked = read.asked_by(agent, None);
            for (read, plain) in [
                (asked.as_registered().unwrap(), theirs.as_registered().unwrap()),
                (asked, theirs),
            ] {
                let rulings = read.rule_with_shadow().unwrap();
                assert_eq!(rulings, set.rule_with_shadow(&plain).unwrap());
                assert_eq!(read.rule(), set.rule(&plain));
                assert_eq!(read.explain(), set.explain(&plain));
                told.push((rulings.ruling.approval, rulings.shadow.unwrap().reason));
            }
        }
        // They differ, so no answer stands for another one.
        for (place, one) in told.iter().enumerate() {
            assert!(!told[..place].contains(one), "{told:#?}");
        }
    });
}

#[test]
fn what_is_not_valid_is_not_asked_of_anybody() {
    let world = World {
        parameters: json!({"title": "long"}),
        ..claimed()
    };
    let set = policies(&world);
    world.with_question(|question| {
        let Err(Unanswerable::InvalidParameters { pointer, .. }) = set.read(question) else {
            panic!("a text that is too long was read");
        };
        assert_eq!(pointer, "/title");
    });
}

#[test]
fn an_action_that_no_policy_knows_is_denied_to_everybody() {
    let world = claimed();
    let (set, planner) = (policies(&world), planner(&world));
    let other = World {
        action: "merge".into(),
        ..world
    };
    other.with_question(|question| {
        let read = set.read(question).unwrap();
        let asked = read.asked_by(&planner, None);
        assert_eq!(asked.rule().unwrap().reason, model::ReasonCode::UnknownTool);
        assert_eq!(
            asked.rule_with_shadow().unwrap().shadow.unwrap(),
            asked.rule().unwrap()
        );
    });
}
