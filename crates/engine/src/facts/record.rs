//! The record of a noun: canonical JSON with what policies can see of it. It names its own format, so that a later one
//! can be told apart.

use canon::Canonical;
use model::{
    Agent, AgentId, Attributes, Name, Risk, RiskTier, SlashFreeName, Standing, Team, TenantId, Timestamp,
    Tool, ToolAccess, ToolAction, User,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A noun as it was. What policies cannot see of it has an unremarkable value.
#[derive(Debug)]
pub enum Record {
    /// An agent.
    Agent(Box<Agent>),
    /// A team.
    Team(Team),
    /// A user.
    User(User),
    /// A tool with one action.
    Action(ActionRecord),
}

/// A tool with one action as it was. A schema is kept as text: as a tree it may take many times that, and nobody
/// looks at it but who compiles policies for the action.
#[derive(Debug)]
pub struct ActionRecord {
    /// Without the schema.
    tool: Tool,
    /// The record itself, if there is a schema in it.
    text: Option<Box<[u8]>>,
}

#[derive(Serialize, Deserialize)]
#[serde(tag = "type")]
enum Text<'a> {
    #[serde(rename = "countersign.agent/1")]
    Agent(AgentText<'a>),
    #[serde(rename = "countersign.team/1")]
    Team(TeamText<'a>),
    #[serde(rename = "countersign.user/1")]
    User(UserText<'a>),
    #[serde(rename = "countersign.tool_action/1")]
    Action(ActionText),
}

#[derive(Serialize, Deserialize)]
struct AgentText<'a> {
    id: AgentId,
    name: Name,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    environment: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    team: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<Name>,
    risk_tier: RiskTier,
    #[serde(default, skip_serializing_if = "is_empty")]
    attributes: Cow<'a, Attributes>,
}

#[derive(Serialize, Deserialize)]
struct TeamText<'a> {
    name: Name,
    #[serde(default, skip_serializing_if = "is_empty")]
    attributes: Cow<'a, Attributes>,
}

#[derive(Serialize, Deserialize)]
struct UserText<'a> {
    name: Name,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    teams: Cow<'a, BTreeSet<Name>>,
    #[serde(default, skip_serializing_if = "is_empty")]
    attributes: Cow<'a, Attributes>,
}

#[derive(Serialize, Deserialize)]
struct ActionText {
    tool: SlashFreeName,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    canary: bool,
    action: Name,
    mutates_state: bool,
    risk: Risk,
    #[serde(
        default,
        deserialize_with = "canon::foreign",
        skip_serializing_if = "Option::is_none"
    )]
    input_schema: Option<Arc<Value>>,
}

#[expect(clippy::ptr_arg, reason = "serde passes a reference to the member")]
fn is_empty(attributes: &Cow<'_, Attributes>) -> bool {
    attributes.is_empty()
}

fn canonical(text: &Text<'_>) -> Canonical {
    canon::of(text).expect("nouns have string keys and nest no deeper than the bodies that they came in")
}

pub(super) fn of_agent(agent: &Agent) -> Canonical {
    canonical(&Text::Agent(AgentText {
        id: agent.id,
        name: agent.name.clone(),
        environment: agent.environment.clone(),
        team: agent.team.clone(),
        owner: agent.owner.clone(),
        risk_tier: agent.risk_tier,
        attributes: Cow::Borrowed(&agent.attributes),
    }))
}

pub(super) fn of_team(team: &Team) -> Canonical {
    canonical(&Text::Team(TeamText {
        name: team.name.clone(),
        attributes: Cow::Borrowed(&team.attributes),
    }))
}

pub(super) fn of_user(user: &User) -> Canonical {
    canonical(&Text::User(UserText {
        name: user.name.clone(),
        teams: Cow::Borrowed(&user.teams),
        attributes: Cow::Borrowed(&user.attributes),
    }))
}

pub(super) fn of_action(tool: &Tool, action: &ToolAction) -> Canonical {
    canonical(&Text::Action(ActionText {
        tool: tool.name.clone(),
        canary: tool.canary,
        action: action.name.clone(),
        mutates_state: action.mutates_state,
        risk: action.risk,
        input_schema: action.input_schema.clone(),
    }))
}

impl Record {
    /// The record in this text; `None` if it is in no format that this version knows.
    pub fn read(text: Vec<u8>) -> Option<Self> {
        let noun: Text<'_> = serde_json::from_slice(&text).ok()?;
        Some(match noun {
            Text::Agent(agent) => Self::Agent(Box::new(agent.into_noun())),
            Text::Team(team) => Self::Team(Team {
                name: team.name,
                attributes: team.attributes.into_owned(),
                quotas: Vec::new(),
            }),
            Text::User(user) => Self::User(User {
                name: user.name,
                teams: user.teams.into_owned(),
                attributes: user.attributes.into_owned(),
                roles: std::collections::BTreeSet::new(),
            }),
            Text::Action(action) => Self::Action(action.into_record(text)),
        })
    }

    /// How many values are kept of it that take more than their text: attributes, and the teams of a user.
    pub fn values(&self) -> usize {
        match self {
            Self::Agent(agent) => agent.attributes.count(),
            Self::Team(team) => team.attributes.count(),
            Self::User(user) => user.teams.len() + user.attributes.count(),
            Self::Action(_) => 0,
        }
    }
}

impl ActionRecord {
    /// The tool with that action only, and without its schema.
    pub const fn tool(&self) -> &Tool {
        &self.tool
    }

    /// How long the record is if there is a schema in it; nothing otherwise.
    pub fn schema_bytes(&self) -> usize {
        self.text.as_deref().map_or(0, <[u8]>::len)
    }

    /// The tool with that action only, and with its schema; `None` if it cannot be read any more.
    pub fn with_schema(&self) -> Option<Tool> {
        let Some(text) = &self.text else {
            return Some(self.tool.clone());
        };
        let Text::Action(action) = serde_json::from_slice(text).ok()? else {
            return None;
        };
        Some(action.into_noun())
    }
}

impl AgentText<'_> {
    fn into_noun(self) -> Agent {
        Agent {
            id: self.id,
            tenant: TenantId::SYSTEM,
            name: self.name,
            former_names: Vec::new(),
            environment: self.environment,
            team: self.team,
            owner: self.owner,
            risk_tier: self.risk_tier,
            tools: ToolAccess::default(),
            attributes: self.attributes.into_owned(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            signing_keys: None,
            created_at: Timestamp::from_millis(0),
        }
    }
}

impl ActionText {
    /// The record that stands in this text.
    fn into_record(mut self, text: Vec<u8>) -> ActionRecord {
        let has_schema = self.input_schema.take().is_some();
        ActionRecord {
            tool: self.into_noun(),
            text: has_schema.then(|| text.into_boxed_slice()),
        }
    }

    fn into_noun(self) -> Tool {
        let action = ToolAction {
            name: self.action,
            mutates_state: self.mutates_state,
            risk: self.risk,
            input_schema: self.input_schema,
            description: None,
            pinned: None,
            held: None,
        };
        Tool {
            name: self.tool,
            actions: BTreeMap::from([(action.name.clone(), action)]),
            canary: self.canary,
            standing: Standing::Active,
            created_at: Timestamp::from_millis(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_schema_is_read_where_it_is_asked_for_and_nowhere_else() {
        for schema in [None, Some(json!({"type": "object", "default": [0, 0]}))] {
            let action = ToolAction {
                name: Name::new("read").unwrap(),
                mutates_state: false,
                risk: Risk::High,
                input_schema: schema.clone().map(Arc::new),
                description: None,
                pinned: None,
                held: None,
            };
            let tool = Tool {
                name: SlashFreeName::new("github").unwrap(),
                actions: BTreeMap::from([(action.name.clone(), action.clone())]),
                canary: true,
                standing: Standing::Active,
                created_at: Timestamp::from_millis(0),
            };
            let text = of_action(&tool, &action).into_string();
            let Some(Record::Action(record)) = Record::read(text.into()) else {
                panic!("it is an action")
            };
            assert_eq!(record.with_schema().as_ref(), Some(&tool));
            assert_eq!(record.schema_bytes() > 0, schema.is_some());
            let mut without = tool;
            for action in without.actions.values_mut() {
                action.input_schema = None;
            }
            assert_eq!(*record.tool(), without);
        }
    }
}
