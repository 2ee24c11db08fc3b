//! What an editor asks while somebody writes: is it valid, what can it speak of. Nothing is changed and nothing is recorded.

use super::replace::SetBody;
use crate::changes::off_the_workers;
use crate::compiling;
use crate::directory::read;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use model::{Directory, TenantId};
use policy::{Diagnostic, PolicySet, SchemaTexts};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;

/// Whether a set would be accepted.
#[derive(Debug, Serialize)]
pub struct Validation {
    valid: bool,
    diagnostics: Value,
}

/// `POST /v1/policies/validate`: what a PUT of this set would say.
pub async fn validate(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    SetJson(set, _room): SetJson<SetBody>,
) -> Result<Json<Validation>, Refusal> {
    let now = gateway.clock.now();
    let draft = |directory: &Directory| set.applied_to(directory, now);
    let drafted = gateway.compile_draft(caller.tenant, draft).await?;
    let (valid, diagnostics) = match drafted.policies {
        Ok(set) => (
            true,
            warnings(&gateway, caller.tenant, set, drafted.directory).await?,
        ),
        Err(diagnostics) => (false, json!(diagnostics)),
    };
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    Ok(Json(Validation { valid, diagnostics }))
}

/// What is not wrong with a set but odd, also for who is registered now. Users may be many, so they are counted where
/// nobody waits for a decision.
async fn warnings(
    gateway: &Gateway,
    tenant: TenantId,
    set: Arc<PolicySet>,
    directory: Directory,
) -> Result<Value, Refusal> {
    if set.approving_groups().is_empty() {
        return Ok(json!(set.warnings()));
    }
    // It takes a core like a draft, so it takes a place like one; the set is compiled already, so it waits as long as it takes.
    let permit = gateway.drafts.acquire_for_part(tenant).await;
    off_the_workers(move || {
        let short = short_of_people(&set, &directory);
        drop(permit);
        let all = [set.warnings(), &short[..]].concat();
        json!(all)
    })
    .await
}

/// Which policies ask for more people of a team than are in it.
fn short_of_people(set: &PolicySet, directory: &Directory) -> Vec<Diagnostic> {
    let groups = set.approving_groups().into_iter();
    let mut people: HashMap<&str, u32> = groups.map(|group| (group, 0)).collect();
    for team in directory.users.values().flat_map(|user| &user.teams) {
        if let Some(count) = people.get_mut(team.as_str()) {
            *count = count.saturating_add(1);
        }
    }
    set.short_of_people(|group| {
        let count = people.get(group).copied();
        count.filter(|_| directory.teams.contains_key(group))
    })
}

/// `GET /v1/policies/schema`: what policies of this tenant can speak of, in both of Cedar's forms. It grows with the
/// tools, so it is written where nobody waits for a decision.
pub async fn schema(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
) -> Result<Json<Box<RawValue>>, Refusal> {
    let permit = gateway.drafts.acquire(caller.tenant).await?;
    let tenant = read(&gateway, &caller)?;
    let work = tokio::task::spawn_blocking(move || {
        let schema = written(&tenant.directory);
        drop(permit);
        schema
    });
    let schema = work.await.unwrap_or_else(|error| {
        tracing::error!(%error, "writing the schema of a tenant broke off");
        Err(not_written())
    });
    // It may have waited, and whoever asked may not read any more.
    caller.check(&gateway)?;
    schema.map(Json)
}

fn written(directory: &Directory) -> Result<Box<RawValue>, Refusal> {
    let texts = SchemaTexts::of(compiling::registry(directory)).map_err(|diagnostics| {
        tracing::error!(%diagnostics, "the schema of a tenant could not be written");
        not_written()
    })?;
    let both = json!({"cedar": texts.cedar, "json": texts.json});
    Ok(serde_json::value::to_raw_value(&both).expect("a schema is written as JSON"))
}

fn not_written() -> Refusal {
    Refusal::new(Code::Internal, "the schema could not be written")
}
