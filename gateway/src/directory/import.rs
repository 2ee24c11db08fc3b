//! `POST /v1/tools/{tool}/import` and `…/accept`: actions from an MCP server's `tools/list`, with pinned definitions.
//!
//! A tool server may change what its tools say and do between one listing and the next. So each definition is pinned by
//! the digest of its whole JSON, and one that changes is held until an admin accepts it. A definition that is missing
//! stays registered with its pin: taking it out and adding it back changed must not pass for a new one.
//! Hints of the server give only the first facts; what a person has set since is never loosened by them.

mod listing;

use super::tools::{check_bytes, check_count};
use super::{Upserted, change_with, facts, find_tool, new_name};
use crate::changes::{ForceQuery, Plan};
use crate::gateway::Gateway;
use crate::http::{Code, Json, OptionalJson, Query, Refusal, SchemaBody, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use canon::Digest;
use engine::EntryKind;
use listing::Listing;
use model::standing::RevokedForGood;
use model::{Name, Noun, SlashFreeName, Standing, Timestamp, Tool, ToolAction, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What an import did.
#[derive(Debug, Serialize)]
pub struct ImportView {
    tool: SlashFreeName,
    /// Actions that are new.
    added: Vec<Name>,
    /// Actions whose definition is the pinned one.
    unchanged: Vec<Name>,
    /// Actions whose definition changed: calls of them are denied until it is accepted.
    held: Vec<Name>,
    /// Actions that are registered and not in a complete list. They stay as they are.
    missing: Vec<Name>,
    /// Whether the list says that it is whole. If not, import its further pages too.
    complete: bool,
}

/// What an accept says; it may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptBody {
    /// The definition that was looked at: if another one is held by now, it is not accepted.
    digest: Option<Digest>,
}

/// A tool after an import, and what the import did.
struct Imported {
    tool: Tool,
    view: ImportView,
}

/// `POST /v1/tools/{tool}/import`
pub async fn import(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Query(query): Query<ForceQuery>,
    SchemaBody(body): SchemaBody,
) -> Result<Upserted<ImportView>, Refusal> {
    let force = query.by(caller.holder())?;
    let name: SlashFreeName = new_name(&name)?;
    let listing = Listing::read(body.as_str())?;
    change_with(&gateway, &caller, force, |directory, now| {
        let known = directory.tools.get(&name);
        let before = known.map_or_else(|| empty(&name, now), |tool| (**tool).clone());
        let Imported { tool, view } = imported(&before, &listing, now)?;
        if known.is_some_and(|known| **known == tool) {
            return Ok(Plan::nothing(Upserted::Known(view)));
        }
        Ok(Plan::Change {
            kind: EntryKind::ToolImported,
            facts: told(&before, &tool, &view),
            writes: vec![Write::Put(Noun::Tool(Arc::new(tool)))],
            answer: Upserted::of(view, known.is_none()),
        })
    })
    .await
}

/// `POST /v1/tools/{tool}/actions/{action}/accept`
pub async fn accept(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((tool, action)): Path<(String, String)>,
    Query(query): Query<ForceQuery>,
    OptionalJson(body): OptionalJson<AcceptBody>,
) -> Result<Json<ToolAction>, Refusal> {
    let force = query.by(caller.holder())?;
    let accepted = change_with(&gateway, &caller, force, |directory, _| {
        let mut tool = Tool::clone(find_tool(directory, &tool)?);
        if tool.standing.is_revoked() {
            return Err(RevokedForGood.into());
        }
        let before = tool
            .actions
            .get_mut(action.as_str())
            .ok_or_else(|| Refusal::not_found("action", &action))?;
        let after = accept_held(before, body.digest)?;
        *before = after.clone();
        Ok(Plan::Change {
            kind: EntryKind::ActionAccepted,
            facts: json!({"tool": tool.name, "action": after}),
            writes: vec![Write::Put(Noun::Tool(Arc::new(tool)))],
            answer: after,
        })
    });
    accepted.await.map(Json)
}

fn accept_held(action: &ToolAction, seen: Option<Digest>) -> Result<ToolAction, Refusal> {
    let name = &action.name;
    let held = action.held.as_ref().map(|held| held.digest);
    if let (Some(held), Some(seen)) = (held, seen)
        && held != seen
    {
        let detail =
            format!("the definition of `{name}` that is held now is `{held}`; look at that one first");
        return Err(Refusal::new(Code::Conflict, detail));
    }
    action.accept().ok_or_else(|| {
        Refusal::new(
            Code::Conflict,
            format!("no changed definition of `{name}` waits to be accepted"),
        )
    })
}

fn empty(name: &SlashFreeName, now: Timestamp) -> Tool {
    Tool {
        name: name.clone(),
        actions: BTreeMap::new(),
        canary: false,
        standing: Standing::Active,
        created_at: now,
    }
}

/// The tool after the import. Its standing stays.
fn imported(before: &Tool, listing: &Listing, now: Timestamp) -> Result<Imported, Refusal> {
    if before.standing.is_revoked() {
        return Err(RevokedForGood.into());
    }
    let mut tool = before.clone();
    let mut view = ImportView {
        tool: tool.name.clone(),
        added: Vec::new(),
        unchanged: Vec::new(),
        held: Vec::new(),
        missing: Vec::new(),
        complete: listing.complete,
    };
    for incoming in listing.actions.values() {
        let name = incoming.name.clone();
        let action = tool
            .actions
            .get(&name)
            .map(|known| known.imported_again(incoming, now));
        match &action {
            None => view.added.push(name.clone()),
            Some(action) if action.held.is_some() => view.held.push(name.clone()),
            Some(_) => view.unchanged.push(name.clone()),
        }
        tool.actions
            .insert(name, action.unwrap_or_else(|| incoming.clone()));
    }
    check_count(tool.actions.len())?;
    // What is there already is held when it changes, whatever it comes to: an action has one definition that waits, of
    // which each is bounded, and all of them by what a directory holds.
    if !view.added.is_empty() {
        check_bytes(Some(before), &tool)?;
    }
    if listing.complete {
        let absent = before
            .actions
            .keys()
            .filter(|name| !listing.actions.contains_key(*name));
        view.missing.extend(absent.cloned());
    }
    Ok(Imported { tool, view })
}

/// What the ledger says: what the import did, and every action that it changed, as it is now.
fn told(before: &Tool, after: &Tool, view: &ImportView) -> Value {
    let changed = after
        .actions
        .values()
        .filter(|action| before.actions.get(&action.name) != Some(action));
    let mut told = facts(view);
    told["changed"] = json!(changed.collect::<Vec<_>>());
    told
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(5);

    fn listing(names: &[(&str, &str)], complete: bool) -> Listing {
        let definition = |(name, description): &(&str, &str)| json!({"name": name, "description": description, "inputSchema": {"type": "object"}});
        let tools: Vec<_> = names.iter().map(definition).collect();
        let cursor = if complete { Value::Null } else { json!("more") };
        Listing::read(&json!({"tools": tools, "nextCursor": cursor}).to_string()).unwrap()
    }

    fn step(tool: &Tool, names: &[(&str, &str)]) -> (Tool, Value) {
        let Imported { tool, view } = imported(tool, &listing(names, true), NOW).unwrap();
        let mut view = facts(&view);
        view.as_object_mut()
            .unwrap()
            .retain(|_, names| names.as_array().is_some_and(|names| !names.is_empty()));
        (tool, view)
    }

    fn mail() -> Tool {
        empty(&SlashFreeName::new("mail").unwrap(), NOW)
    }

    #[test]
    fn a_definition_that_is_taken_out_and_added_back_changed_is_held() {
        let (tool, did) = step(&mail(), &[("send", "sends"), ("read", "reads")]);
        assert_eq!(did, json!({"added": ["read", "send"]}));
        let (tool, did) = step(&tool, &[("read", "reads")]);
        assert_eq!(did, json!({"unchanged": ["read"], "missing": ["send"]}));
        let (tool, did) = step(&tool, &[("read", "reads"), ("send", "sends to everyone")]);
        assert_eq!(did, json!({"unchanged": ["read"], "held": ["send"]}));
        let (tool, did) = step(&tool, &[("read", "reads"), ("send", "sends")]);
        assert_eq!(did, json!({"unchanged": ["read", "send"]}));
        assert!(tool.actions["send"].held.is_none());
    }

    #[test]
    fn a_list_with_more_pages_misses_nothing_yet() {
        let (tool, _) = step(&mail(), &[("send", "sends")]);
        let Imported { view, .. } = imported(&tool, &listing(&[("read", "reads")], false), NOW).unwrap();
        assert!(!view.complete && view.missing.is_empty());
    }

    #[test]
    fn only_what_was_looked_at_is_accepted() {
        let (tool, _) = step(&mail(), &[("send", "sends")]);
        let (tool, _) = step(&tool, &[("send", "sends to everyone")]);
        let action = &tool.actions["send"];
        let held = action.held.as_ref().unwrap().digest;
        assert_eq!(
            accept_held(action, Some(Digest::of(b"seen"))).unwrap_err().code(),
            Code::Conflict
        );
        let accepted = accept_held(action, Some(held)).unwrap();
        assert_eq!(accepted.pinned, Some(held));
        assert_eq!(accept_held(&accepted, None).unwrap_err().code(), Code::Conflict);
    }

    #[test]
    fn a_revoked_tool_is_not_imported_into() {
        let tool = mail();
        let revoked = tool.with_standing(tool.standing.revoke("stolen", NOW));
        let refusal = imported(&revoked, &listing(&[("send", "sends")], true), NOW)
            .err()
            .unwrap();
        assert_eq!(refusal.code(), Code::RevokedForGood);
    }
}
