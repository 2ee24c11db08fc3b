//! What an editor asks while somebody writes: is it valid, what can it speak of. Nothing is changed and nothing is recorded.

use super::replace::SetBody;
use crate::changes::Drafted;
use crate::compiling;
use crate::directory::read;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use model::Directory;
use policy::{Diagnostic, PolicySet, SchemaError, SchemaTexts};
use serde::Serialize;
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
    let draft = move |directory: &Directory| set.applied_to(directory, now);
    let make = |drafted: Drafted| match drafted.policies {
        Ok(set) => Validation {
            valid: true,
            diagnostics: warnings(&set, &drafted.directory),
        },
        Err(diagnostics) => Validation {
            valid: false,
            diagnostics: json!(diagnostics),
        },
    };
    let validation = gateway.compile_draft(caller.tenant(), draft, make).await?;
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    Ok(Json(validation))
}

/// What is not wrong with a set but odd, also for who is registered now.
fn warnings(set: &PolicySet, directory: &Directory) -> Value {
    let mut all = set.warnings().to_vec();
    // Users may be many.
    if !set.approving_groups().is_empty() {
        all.extend(short_of_people(set, directory));
    }
    json!(all)
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
) -> Result<Json<SchemaTexts>, Refusal> {
    let permit = gateway.drafts.acquire(caller.tenant()).await?;
    let tenant = read(&gateway, &caller)?;
    let schema = gateway
        .in_turns(permit, move |goes_on| written(&tenant.directory, goes_on))
        .await?;
    // It may have waited, and whoever asked may not read any more.
    caller.check(&gateway)?;
    schema.map(Json)
}

fn written(directory: &Directory, goes_on: &dyn Fn() -> bool) -> Result<SchemaTexts, Refusal> {
    SchemaTexts::of(compiling::registry(directory), goes_on).map_err(|error| refusal(&error))
}

fn refusal(error: &SchemaError) -> Refusal {
    match error {
        SchemaError::TooManyTypes => Refusal::new(Code::Conflict, error.to_string()),
        SchemaError::Wrong(diagnostic) => {
            tracing::error!(%diagnostic, "the schema of a tenant could not be written");
            not_written()
        }
        // Nobody is there to read it.
        SchemaError::BrokenOff => not_written(),
    }
}

fn not_written() -> Refusal {
    Refusal::new(Code::Internal, "the schema could not be written")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_do_about_a_schema_with_too_many_types_is_told() {
        let problem = refusal(&SchemaError::TooManyTypes);
        assert_eq!(problem.code(), Code::Conflict);
        let problem = problem.to_problem("req-7");
        for part in ["more than 500000 types", "list fewer properties"] {
            assert!(problem.contains(part), "{problem}");
        }
    }
}
