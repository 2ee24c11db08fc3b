//! `POST /v1/policies/format`: a text laid out. Nothing is changed and nothing is recorded.
//!
//! It is done on a thread of its own, because it takes more stack than the threads have that answer requests.

use crate::fair_semaphore::Permit;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use policy::{Diagnostics, FORMAT_STACK_BYTES};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;
use tokio::sync::oneshot;

/// A text to lay out.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Text {
    cedar: String,
}

/// A text laid out.
#[derive(Debug, Serialize)]
pub struct Formatted {
    cedar: String,
}

/// Lays out.
pub async fn format(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    SetJson(text, _room): SetJson<Text>,
) -> Result<Json<Formatted>, Refusal> {
    let permit = gateway.drafts.acquire(caller.tenant()).await?;
    match laid_out(text, permit).await? {
        Ok(cedar) => Ok(Json(Formatted { cedar })),
        Err(diagnostics) => Err(Refusal::new(Code::PolicyInvalid, "the text cannot be laid out")
            .with_diagnostics(json!(diagnostics))),
    }
}

async fn laid_out(text: Text, permit: Permit) -> Result<Result<String, Diagnostics>, Refusal> {
    let (answer, answered) = oneshot::channel();
    let work = move || {
        let laid_out = policy::format("policy", &text.cedar);
        drop(permit);
        // Nobody may be there any more to read it.
        drop(answer.send(laid_out));
    };
    let thread = std::thread::Builder::new().name("format".to_owned());
    let thread = thread.stack_size(FORMAT_STACK_BYTES).spawn(work);
    thread.map_err(|error| {
        tracing::error!(%error, "a thread to lay out a text could not be started");
        Refusal::no_thread()
    })?;
    answered.await.map_err(|_| {
        tracing::error!("laying out a text broke off");
        Refusal::new(Code::Internal, "the text could not be laid out")
    })
}
