//! `/v1/tools`: registering tools by hand, with the facts that decisions rest on. Importing them is `import`'s work.
//!
//! A tool that is frozen or revoked cannot be deleted: registering it anew would lift the quarantine. Nor can an action
//! whose changed definition is held: imported anew, that definition would be the pinned one.

use super::{Upserted, change_with, facts, find_tool, new_name, page, put, read};
use crate::changes::{ForceQuery, Plan, WritingRoom};
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, PageQuery, Query, Refusal, SchemaBody, TenantCaller, conditions};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use engine::EntryKind;
use model::standing::RevokedForGood;
use model::{
    Directory, Name, Noun, Risk, SlashFreeName, Standing, Timestamp, Tool, ToolAccess, ToolAction, Write,
};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::iter;
use std::sync::Arc;

/// The most actions of one tool: each is a type of the policy schema.
pub(super) const ACTIONS_MAX: usize = 256;
/// The longest JSON Schema of an action, in bytes of canonical JSON.
pub(super) const SCHEMA_BYTES_MAX: usize = 64 * 1024;
/// The longest description of an action, in bytes: some pages, in which servers explain to a model how to use it.
pub(super) const DESCRIPTION_BYTES_MAX: usize = 16 << 10;
/// The most bytes of the descriptions and schemas of one tool, with those that are held: 8 KiB for each of the most
/// actions, and as many that wait to be accepted. All of it is written whenever the tool changes.
const DEFINITIONS_BYTES_MAX: usize = 4 << 20;

/// What a PUT says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolBody {
    actions: Vec<ActionBody>,
    #[serde(default)]
    canary: bool,
}

/// One action in it. Its facts are required: a fact that nobody stated would be one that nobody thought about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionBody {
    name: Name,
    mutates_state: bool,
    risk: Risk,
    #[serde(default, deserialize_with = "canon::foreign")]
    input_schema: Option<Map<String, Value>>,
    description: Option<String>,
}

/// A tool as callers see it.
#[derive(Debug, Serialize)]
pub struct ToolView {
    name: SlashFreeName,
    actions: Vec<ToolAction>,
    canary: bool,
    #[serde(flatten)]
    standing: Standing,
    created_at: Timestamp,
}

impl From<&Tool> for ToolView {
    fn from(tool: &Tool) -> Self {
        Self {
            name: tool.name.clone(),
            actions: tool.actions.values().cloned().collect(),
            canary: tool.canary,
            standing: tool.standing.clone(),
            created_at: tool.created_at,
        }
    }
}

/// `PUT /v1/tools/{tool}`
pub async fn put_tool(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Query(query): Query<ForceQuery>,
    SchemaBody(body): SchemaBody,
) -> Result<Upserted<ToolView>, Refusal> {
    let body: ToolBody = canon::read(body.as_str())?;
    let force = query.by(caller.holder())?;
    let name: SlashFreeName = new_name(&name)?;
    let canary = body.canary;
    let actions = {
        let tenant = read(&gateway, &caller)?;
        let known = tenant.directory.tools.get(&name);
        read_actions(body.actions, known.map(|tool| &**tool))?
    };
    change_with(&gateway, &caller, force, |directory, now| {
        let known = directory.tools.get(&name);
        conditions::check_new(&headers, known.is_some())?;
        let before = known.iter().flat_map(|tool| tool.actions.values());
        check_none_held(before.filter(|action| !actions.contains_key(&action.name)))?;
        let known = known.map(|tool| &**tool);
        let tool = registered(known, &name, &actions, canary, now)?;
        check_bytes(known, &tool)?;
        let view = ToolView::from(&tool);
        if known == Some(&tool) {
            return Ok(Plan::nothing(Upserted::Known(view)));
        }
        let facts = facts(&view);
        let answer = Upserted::of(view, known.is_none());
        Ok(put(EntryKind::ToolPut, Noun::Tool(Arc::new(tool)), facts, answer))
    })
    .await
}

/// `GET /v1/tools`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, ToolView>(&tenant.directory.tools, &query, |_| true)
}

/// `GET /v1/tools/{tool}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Json<ToolView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let tool = find_tool(&tenant.directory, &name)?;
    Ok(Json(ToolView::from(&**tool)))
}

/// `DELETE /v1/tools/{tool}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
) -> Result<StatusCode, Refusal> {
    let force = query.by(caller.holder())?;
    change_with(&gateway, &caller, force, |directory, _| {
        let tool = find_tool(directory, &name)?;
        if !tool.standing.is_active() {
            let standing = tool.standing.as_str();
            let detail = format!(
                "`{name}` is {standing}, and deleting it would lift that; it stays until it is active"
            );
            return Err(Refusal::new(Code::Conflict, detail));
        }
        check_none_held(tool.actions.values())?;
        deleted(directory, tool)
    })
    .await
}

/// Refuses to take away an action while a changed definition of it is held.
fn check_none_held<'a>(mut taken_away: impl Iterator<Item = &'a ToolAction>) -> Result<(), Refusal> {
    let Some(action) = taken_away.find(|action| action.held.is_some()) else {
        return Ok(());
    };
    let detail = format!(
        "a changed definition of `{}` is held, and taking the action away would lift that; accept it first",
        action.name
    );
    Err(Refusal::new(Code::Conflict, detail))
}

/// Takes a tool away, and its grants with it: they were for this tool, not for the next one of its name. Very many
/// agents may have one: where they are more than is written at once, no more of them are copied to find that out.
fn deleted(directory: &Directory, tool: &Arc<Tool>) -> Result<Plan<StatusCode>, Refusal> {
    let mut writes = vec![Write::Delete(Noun::Tool(Arc::clone(tool)))];
    let (mut withdrawn_from, mut room) = (Vec::new(), WritingRoom::default());
    let instead = format!(
        "withdraw the tool from agents first: `DELETE /v1/agents/{{id}}/tools/{}`",
        tool.name
    );
    for agent in directory.agents.values() {
        if matches!(&agent.tools, ToolAccess::Granted(tools) if tools.contains(&tool.name))
            && let Some(after) = agent.withdraw(tool.name.as_str())
        {
            let after = Noun::Agent(Arc::new(after));
            room.take(&after, &instead)?;
            withdrawn_from.push(agent.id);
            writes.push(Write::Put(after));
        }
    }
    Ok(Plan::Change {
        kind: EntryKind::ToolDeleted,
        facts: json!({"name": tool.name, "withdrawn_from": withdrawn_from}),
        writes,
        answer: StatusCode::NO_CONTENT,
    })
}

/// The tool after a PUT: its standing and age stay.
fn registered(
    known: Option<&Tool>,
    name: &SlashFreeName,
    actions: &BTreeMap<Name, ToolAction>,
    canary: bool,
    now: Timestamp,
) -> Result<Tool, RevokedForGood> {
    if known.is_some_and(|known| known.standing.is_revoked()) {
        return Err(RevokedForGood);
    }
    let keep_pin = |action: &ToolAction| match known.and_then(|known| known.actions.get(&action.name)) {
        Some(known) => with_pin_of(known, action),
        None => action.clone(),
    };
    Ok(Tool {
        name: name.clone(),
        actions: actions
            .iter()
            .map(|(name, action)| (name.clone(), keep_pin(action)))
            .collect(),
        canary,
        standing: known.map_or(Standing::Active, |known| known.standing.clone()),
        created_at: known.map_or(now, |known| known.created_at),
    })
}

/// An imported definition whose facts alone a person corrects is still the pinned one, and what is held stays held. What
/// is left out of an imported action is not stated, so it is as before.
fn with_pin_of(known: &ToolAction, action: &ToolAction) -> ToolAction {
    let mut action = action.clone();
    if known.pinned.is_some() || known.held.is_some() {
        action.input_schema = action.input_schema.or_else(|| known.input_schema.clone());
        action.description = action.description.or_else(|| known.description.clone());
    }
    if known.input_schema == action.input_schema && known.description == action.description {
        action.pinned = known.pinned;
        action.held.clone_from(&known.held);
    }
    action
}

/// The actions that a body names. `known` is the tool as it was a moment ago.
fn read_actions(
    bodies: Vec<ActionBody>,
    known: Option<&Tool>,
) -> Result<BTreeMap<Name, ToolAction>, Refusal> {
    check_count(bodies.len())?;
    let mut actions = BTreeMap::new();
    for (place, body) in bodies.into_iter().enumerate() {
        let action = ToolAction {
            name: body.name.clone(),
            mutates_state: body.mutates_state,
            risk: body.risk,
            input_schema: body.input_schema.map(|schema| Arc::new(Value::Object(schema))),
            description: body.description,
            pinned: None,
            held: None,
        };
        check_schema(&action, &format!("/actions/{place}/input_schema"))?;
        check_description(known, &action, &format!("/actions/{place}/description"))?;
        if actions.insert(body.name.clone(), action).is_some() {
            let detail = format!(
                "`/actions/{place}/name`: `{}` stands in the list already",
                body.name
            );
            return Err(Refusal::new(Code::InvalidField, detail));
        }
    }
    Ok(actions)
}

/// Refuses more actions than a tool may have.
pub(super) fn check_count(count: usize) -> Result<(), Refusal> {
    if count <= ACTIONS_MAX {
        return Ok(());
    }
    let detail = format!("a tool has at most {ACTIONS_MAX} actions, this one would have {count}");
    Err(Refusal::new(Code::InvalidField, detail))
}

/// Refuses a schema that is longer than it may be.
pub(super) fn check_schema(action: &ToolAction, place: &str) -> Result<(), Refusal> {
    let bytes = schema_bytes(action);
    if bytes <= SCHEMA_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("`{place}`: a schema has at most {SCHEMA_BYTES_MAX} bytes, this one has {bytes}");
    Err(Refusal::new(Code::InvalidField, detail))
}

/// Refuses a description that is longer than it may be. One that the action has already, or that is held, stays as long as it is.
fn check_description(known: Option<&Tool>, action: &ToolAction, place: &str) -> Result<(), Refusal> {
    let bytes = description_bytes(action);
    let known = known.and_then(|known| known.actions.get(&action.name));
    let mut known = known.into_iter().flat_map(definitions);
    if bytes <= DESCRIPTION_BYTES_MAX || known.any(|known| known.description == action.description) {
        return Ok(());
    }
    let detail =
        format!("`{place}`: a description has at most {DESCRIPTION_BYTES_MAX} bytes, this one has {bytes}");
    Err(Refusal::new(Code::InvalidField, detail))
}

/// Refuses a tool whose definitions have more bytes than they may have. One with more may become smaller.
pub(super) fn check_bytes(known: Option<&Tool>, tool: &Tool) -> Result<(), Refusal> {
    let bytes = definition_bytes(tool);
    if bytes <= DEFINITIONS_BYTES_MAX || known.is_some_and(|known| bytes <= definition_bytes(known)) {
        return Ok(());
    }
    let detail = format!(
        "the definitions of a tool have at most {DEFINITIONS_BYTES_MAX} bytes with those that are held, these would have {bytes}"
    );
    Err(Refusal::new(Code::InvalidField, detail))
}

fn definition_bytes(tool: &Tool) -> usize {
    let definitions = tool.actions.values().flat_map(definitions);
    definitions
        .map(|action| schema_bytes(action) + description_bytes(action))
        .sum()
}

/// The definition of an action, and the one that is held.
fn definitions(action: &ToolAction) -> impl Iterator<Item = &ToolAction> {
    let held = action.held.as_ref().map(|held| &*held.action);
    iter::once(action).chain(held)
}

fn schema_bytes(action: &ToolAction) -> usize {
    let schema = action.input_schema.as_ref();
    schema.map_or(0, |schema| schema.to_string().len())
}

fn description_bytes(action: &ToolAction) -> usize {
    action.description.as_ref().map_or(0, String::len)
}

#[cfg(test)]
mod tests;
