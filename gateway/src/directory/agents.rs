//! `/v1/agents`: registering agents and changing what is known about them. What they may do at all is their standing.

mod signing_keys_field;
mod tools_field;

use super::{Clearable, change, change_at_once, check_registered, facts, find_agent, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, LargePage, ListQuery, Location, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use model::agent::FORMER_NAMES_MAX;
use model::{Agent, AgentId, Attributes, Directory, Name, Noun, RiskTier, Standing, Timestamp, ToolAccess};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use signing_keys_field::SigningKeysField;
use std::sync::Arc;
use tools_field::ToolsField;

/// What a POST says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewAgent {
    name: Name,
    environment: Option<Name>,
    team: Option<Name>,
    owner: Option<Name>,
    #[serde(default)]
    risk_tier: RiskTier,
    #[serde(default)]
    tools: ToolsField,
    #[serde(default)]
    attributes: Attributes,
    signing_keys: Option<SigningKeysField>,
}

/// What a PATCH says: what is absent stays, and `null` clears what can be absent.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentPatch {
    #[serde(default, deserialize_with = "canon::sent")]
    name: Option<Name>,
    #[serde(default)]
    environment: Clearable<Name>,
    #[serde(default)]
    team: Clearable<Name>,
    #[serde(default)]
    owner: Clearable<Name>,
    #[serde(default, deserialize_with = "canon::sent")]
    risk_tier: Option<RiskTier>,
    #[serde(default, deserialize_with = "canon::sent")]
    tools: Option<ToolsField>,
    #[serde(default, deserialize_with = "canon::sent")]
    attributes: Option<Attributes>,
    #[serde(default)]
    signing_keys: Clearable<SigningKeysField>,
}

/// Which agents are listed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentFilter {
    status: Option<Status>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Active,
    Frozen,
    Revoked,
}

/// An agent as callers see it.
#[derive(Debug, Serialize)]
pub struct AgentView {
    id: AgentId,
    name: Name,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    former_names: Vec<Name>,
    environment: Option<Name>,
    team: Option<Name>,
    owner: Option<Name>,
    risk_tier: RiskTier,
    tools: ToolsField,
    attributes: Attributes,
    #[serde(skip_serializing_if = "Option::is_none")]
    signing_keys: Option<Arc<serde_json::Value>>,
    #[serde(flatten)]
    standing: Standing,
    created_at: Timestamp,
}

impl From<&Agent> for AgentView {
    fn from(agent: &Agent) -> Self {
        Self {
            id: agent.id,
            name: agent.name.clone(),
            former_names: agent.former_names.clone(),
            environment: agent.environment.clone(),
            team: agent.team.clone(),
            owner: agent.owner.clone(),
            risk_tier: agent.risk_tier,
            tools: ToolsField(agent.tools.clone()),
            attributes: agent.attributes.clone(),
            signing_keys: agent.signing_keys.clone(),
            standing: agent.standing.clone(),
            created_at: agent.created_at,
        }
    }
}

impl AgentFilter {
    fn keeps(&self, agent: &Agent) -> bool {
        let status = match agent.standing {
            Standing::Active => Status::Active,
            Standing::Frozen { .. } => Status::Frozen,
            Standing::Revoked { .. } => Status::Revoked,
        };
        self.status.is_none_or(|wanted| wanted == status)
    }
}

impl AgentPatch {
    fn apply(&self, before: &Agent) -> Agent {
        let renamed = self.name.as_ref().map(|name| before.rename(name));
        let mut after = renamed.unwrap_or_else(|| before.clone());
        self.environment.apply(&mut after.environment);
        self.team.apply(&mut after.team);
        self.owner.apply(&mut after.owner);
        replace(&mut after.risk_tier, self.risk_tier.as_ref());
        replace(&mut after.tools, self.tools.as_ref().map(|field| &field.0));
        replace(&mut after.attributes, self.attributes.as_ref());
        let mut keys = after.signing_keys.map(SigningKeysField);
        self.signing_keys.apply(&mut keys);
        after.signing_keys = keys.map(|keys| keys.0);
        after
    }
}

fn replace<T: Clone>(place: &mut T, with: Option<&T>) {
    if let Some(value) = with {
        *place = value.clone();
    }
}

/// `POST /v1/agents`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Json(body): Json<NewAgent>,
) -> Result<(Location, Created<AgentView>), Refusal> {
    let created = change(&gateway, &caller, |directory, now| {
        let agent = Agent {
            id: AgentId::new(now, &*gateway.entropy),
            tenant: caller.tenant(),
            name: body.name.clone(),
            former_names: Vec::new(),
            environment: body.environment.clone(),
            team: body.team.clone(),
            owner: body.owner.clone(),
            risk_tier: body.risk_tier,
            tools: body.tools.0.clone(),
            attributes: body.attributes.clone(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            signing_keys: body.signing_keys.as_ref().map(|keys| Arc::clone(&keys.0)),
            created_at: now,
        };
        check_is_no_id(&agent.name)?;
        check_name(directory, &agent)?;
        check_team(directory, &agent)?;
        if let ToolAccess::Granted(tools) = &agent.tools {
            check_registered(directory, "tools", tools)?;
        }
        Ok(saved(EntryKind::AgentCreated, agent))
    });
    let agent = created.await?;
    Ok((Location::of("/v1/agents", agent.id), Created(agent)))
}

/// `GET /v1/agents`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    query: ListQuery<AgentFilter>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let ListQuery { filter, page: place } = query;
    page::<_, _, AgentView>(&tenant.directory.agents, &place, move |agent| filter.keeps(agent))
}

/// `GET /v1/agents/{id}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
) -> Result<Json<AgentView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let agent = find_agent(&tenant.directory, &id)?;
    Ok(Json(AgentView::from(&**agent)))
}

/// `PATCH /v1/agents/{id}`
pub async fn patch(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Json(body): Json<AgentPatch>,
) -> Result<Json<AgentView>, Refusal> {
    let changed = change_at_once(&gateway, &caller, |directory, _| {
        let before = find_agent(directory, &id)?;
        let after = body.apply(before);
        if after == **before {
            return Ok(Plan::nothing(AgentView::from(&after)));
        }
        if after.name != before.name {
            check_is_no_id(&after.name)?;
        }
        check_name(directory, &after)?;
        check_former_names(&after)?;
        check_team(directory, &after)?;
        if let (Some(_), ToolAccess::Granted(tools)) = (&body.tools, &after.tools) {
            check_registered(directory, "tools", tools)?;
        }
        Ok(saved(EntryKind::AgentUpdated, after))
    });
    changed.await.map(Json)
}

fn saved(kind: EntryKind, agent: Agent) -> Plan<AgentView> {
    let view = AgentView::from(&agent);
    let facts = facts(&view);
    put(kind, Noun::Agent(Arc::new(agent)), facts, view)
}

/// A name is one agent's, also after that was renamed. Registering it again would rotate credentials or lift a freeze
/// without anybody noticing.
fn check_name(directory: &Directory, agent: &Agent) -> Result<(), Refusal> {
    match directory.agent_names.get(&agent.name) {
        Some(id) if *id != agent.id => {
            let detail = format!(
                "`{}` is the name of the agent `{id}`, or was; change that one or choose another",
                agent.name
            );
            Err(Refusal::new(Code::NameTaken, detail))
        }
        _ => Ok(()),
    }
}

/// Whoever calls an agent by its id means that one, and nobody who is named so.
fn check_is_no_id(name: &Name) -> Result<(), Refusal> {
    if name.as_str().parse::<AgentId>().is_err() {
        return Ok(());
    }
    let detail = format!(
        "`name`: `{name}` is an id, by which only the agent that has it is called; choose another name"
    );
    Err(Refusal::new(Code::InvalidField, detail))
}

fn check_former_names(agent: &Agent) -> Result<(), Refusal> {
    if agent.former_names.len() <= FORMER_NAMES_MAX {
        return Ok(());
    }
    let detail = format!(
        "`name`: an agent keeps the names that it had, and this one has had {FORMER_NAMES_MAX} others; take one of them back"
    );
    Err(Refusal::new(Code::InvalidField, detail))
}

fn check_team(directory: &Directory, agent: &Agent) -> Result<(), Refusal> {
    match &agent.team {
        Some(team) if !directory.teams.contains_key(team.as_str()) => Err(Refusal::new(
            Code::InvalidField,
            format!("`team`: there is no team `{team}`"),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use serde_json::{Value, json};

    fn agent() -> Agent {
        Agent {
            id: AgentId::from_bytes([1; 16]),
            tenant: TenantId::from_bytes([2; 16]),
            name: Name::new("builder").unwrap(),
            former_names: Vec::new(),
            environment: Some(Name::new("production").unwrap()),
            team: Some(Name::new("platform").unwrap()),
            owner: None,
            risk_tier: RiskTier::Medium,
            tools: ToolAccess::All,
            attributes: Attributes::default(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            signing_keys: None,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn patched(patch: Value) -> Agent {
        serde_json::from_value::<AgentPatch>(patch)
            .unwrap()
            .apply(&agent())
    }

    #[test]
    fn a_patch_changes_what_it_names_and_nothing_else() {
        assert_eq!(patched(json!({})), agent());
        let after = patched(json!({"environment": null, "risk_tier": "high", "tools": ["github"]}));
        assert_eq!(after.environment, None);
        assert_eq!(after.risk_tier, RiskTier::High);
        assert!(after.tools.includes("github") && !after.tools.includes("slack"));
        assert_eq!((after.name, after.team), (agent().name, agent().team));
        let renamed = patched(json!({"name": "baker"}));
        assert_eq!(renamed.name.as_str(), "baker");
        assert_eq!(renamed.former_names, [agent().name]);
    }

    #[test]
    fn a_patch_cannot_touch_the_standing_or_clear_what_an_agent_must_have() {
        for patch in [
            json!({"status": "active"}),
            json!({"name": null}),
            json!({"risk_tier": null}),
            json!({"tools": null}),
            json!({"attributes": null}),
            json!({"id": agent().id}),
        ] {
            assert!(
                serde_json::from_value::<AgentPatch>(patch.clone()).is_err(),
                "{patch}"
            );
        }
    }

    #[test]
    fn a_filter_keeps_the_status_it_names() {
        let frozen = agent().freeze("odd", Timestamp::from_millis(1)).unwrap();
        let filter = |text| serde_json::from_str::<AgentFilter>(text).unwrap();
        assert!(filter("{}").keeps(&frozen));
        assert!(filter(r#"{"status":"frozen"}"#).keeps(&frozen));
        assert!(!filter(r#"{"status":"active"}"#).keeps(&frozen));
        assert!(serde_json::from_str::<AgentFilter>(r#"{"status":"asleep"}"#).is_err());
    }
}
