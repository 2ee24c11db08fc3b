//! What an editor asks while somebody writes: is it valid, what can it speak of. Nothing is changed and nothing is recorded.

use super::replace::SetBody;
use crate::directory::read;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use crate::start;
use axum::Extension;
use axum::extract::State;
use axum::response::IntoResponse;
use policy::SchemaTexts;
use serde::Serialize;
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
    SetJson(set): SetJson<SetBody>,
) -> Result<Json<Validation>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let after = set.applied_to(&tenant.directory, gateway.clock.now())?;
    let (valid, diagnostics) = match gateway.compile_draft(after, tenant.directory.clone()).await? {
        Ok(set) => (true, json!(set.warnings())),
        Err(diagnostics) => (false, json!(diagnostics)),
    };
    Ok(Json(Validation { valid, diagnostics }))
}

/// `GET /v1/policies/schema`: what policies of this tenant can speak of, in both of Cedar's forms.
pub async fn schema(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
) -> Result<impl IntoResponse, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let texts = SchemaTexts::of(start::registry(&tenant.directory)).map_err(|diagnostics| {
        tracing::error!(%diagnostics, "the schema of a tenant could not be written");
        Refusal::new(Code::Internal, "the schema could not be written")
    })?;
    Ok(Json(json!({"cedar": texts.cedar, "json": texts.json})))
}
