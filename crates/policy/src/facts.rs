//! The names that the schema and the requests share: entity types, action groups and ids, built from parts and never
//! glued into Cedar text.

use cedar_policy_core::ast::{Eid, EntityType, EntityUID, Name};
use model::{Tool, ToolAction};
use std::sync::LazyLock;

/// The entity types.
pub(crate) const AGENT: &str = "Agent";
pub(crate) const TEAM: &str = "Team";
pub(crate) const USER: &str = "User";
pub(crate) const RESOURCE: &str = "Resource";
const ACTION: &str = "Action";

/// The group of actions that change nothing.
pub(crate) const READ: &str = "read";
/// The group of actions that change something.
pub(crate) const MUTATE: &str = "mutate";

/// The entity types, parsed once.
pub(crate) struct Types {
    pub(crate) agent: EntityType,
    pub(crate) team: EntityType,
    pub(crate) user: EntityType,
    pub(crate) resource: EntityType,
    pub(crate) action: EntityType,
}

pub(crate) static TYPES: LazyLock<Types> = LazyLock::new(|| {
    let name =
        |text: &str| EntityType::from(Name::parse_unqualified_name(text).expect("the word is an identifier"));
    Types {
        agent: name(AGENT),
        team: name(TEAM),
        user: name(USER),
        resource: name(RESOURCE),
        action: name(ACTION),
    }
});

fn uid(of: &EntityType, id: &str) -> EntityUID {
    EntityUID::from_components(of.clone(), Eid::new(id), None)
}

pub(crate) fn agent(id: &str) -> EntityUID {
    uid(&TYPES.agent, id)
}

pub(crate) fn team(name: &str) -> EntityUID {
    uid(&TYPES.team, name)
}

pub(crate) fn user(id: &str) -> EntityUID {
    uid(&TYPES.user, id)
}

pub(crate) fn resource(name: &str) -> EntityUID {
    uid(&TYPES.resource, name)
}

pub(crate) fn action(id: &str) -> EntityUID {
    uid(&TYPES.action, id)
}

/// The id of an action. A tool's name has no `/`, so no two actions share one and none is called like a group.
pub(crate) fn action_id(tool: &str, action: &str) -> String {
    format!("{tool}/{action}")
}

/// The group of a tool's actions.
pub(crate) fn tool_group(tool: &str) -> String {
    format!("tool:{tool}")
}

/// The group of actions of this risk.
pub(crate) fn risk_group(risk: model::Risk) -> String {
    format!("risk:{}", risk.as_str())
}

/// The groups that an action is in, as one that changes something or does not.
pub(crate) fn groups(tool: &Tool, action: &ToolAction, mutates: bool) -> [EntityUID; 3] {
    [
        effect_group(mutates).to_owned(),
        risk_group(action.risk),
        tool_group(tool.name.as_str()),
    ]
    .map(|group| self::action(&group))
}

/// The group that an action is in for what it does.
pub(crate) const fn effect_group(mutates: bool) -> &'static str {
    if mutates { MUTATE } else { READ }
}
