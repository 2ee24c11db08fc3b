//! What an editor asks while somebody writes: is it valid, what can it speak of. Nothing is changed and nothing is recorded.

use super::replace::SetBody;
use crate::directory::read;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use crate::start;
use axum::Extension;
use axum::extract::State;
use model::Directory;
use policy::SchemaTexts;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
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
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    let (valid, diagnostics) = match drafted.policies {
        Ok(set) => (true, json!(set.warnings())),
        Err(diagnostics) => (false, json!(diagnostics)),
    };
    Ok(Json(Validation { valid, diagnostics }))
}

/// `GET /v1/policies/schema`: what policies of this tenant can speak of, in both of Cedar's forms. It grows with the tools, so it is written where
/// nobody waits for a decision.
pub async fn schema(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
) -> Result<Json<Box<RawValue>>, Refusal> {
    let place = gateway.drafts.place(caller.tenant).await?;
    let tenant = read(&gateway, &caller)?;
    let work = tokio::task::spawn_blocking(move || {
        let schema = written(&tenant.directory);
        drop(place);
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
    let texts = SchemaTexts::of(start::registry(directory)).map_err(|diagnostics| {
        tracing::error!(%diagnostics, "the schema of a tenant could not be written");
        not_written()
    })?;
    let both = json!({"cedar": texts.cedar, "json": texts.json});
    Ok(serde_json::value::to_raw_value(&both).expect("a schema is written as JSON"))
}

fn not_written() -> Refusal {
    Refusal::new(Code::Internal, "the schema could not be written")
}
