//! `POST /v1/policies/reload`: the file with the base policies is read again, for all tenants. SIGHUP does the same.

use crate::base::Reloaded;
use crate::changes::By;
use crate::gateway::Gateway;
use crate::http::{Empty, Json, KeyCaller, OptionalJson, Refusal};
use axum::Extension;
use axum::extract::State;
use canon::Digest;
use serde::Serialize;
use std::sync::Arc;

/// What a reload did.
#[derive(Debug, Serialize)]
pub struct ReloadView {
    /// Whether other base policies are in force now than before.
    changed: bool,
    policy_digests: Digests,
}

#[derive(Debug, Serialize)]
struct Digests {
    before: Digest,
    after: Digest,
}

impl From<Reloaded> for ReloadView {
    fn from(reloaded: Reloaded) -> Self {
        let Reloaded { before, after } = reloaded;
        Self {
            changed: before != after,
            policy_digests: Digests { before, after },
        }
    }
}

/// Reloads the base policies.
pub async fn reload(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    _: OptionalJson<Empty>,
) -> Result<Json<ReloadView>, Refusal> {
    // Whoever goes away in line leaves it.
    let turn = gateway.turn_to_reload().await;
    // A caller that goes away later leaves nobody compiling beside the next one: what has begun is finished, and the
    // next one waits for it.
    let work = tokio::spawn(async move { gateway.reload_base(turn, By::Key(caller.key())).await });
    let reloaded = work.await.unwrap_or_else(|error| {
        let detail = "the reload broke off; whether other base policies are in force is in the ledger";
        Err(Refusal::broken_off(
            &error,
            "reloading base policies broke off",
            detail,
        ))
    })?;
    Ok(Json(reloaded.into()))
}
