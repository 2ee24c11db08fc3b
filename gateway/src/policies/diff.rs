//! `POST /v1/policies/diff`: whether a candidate allows anything that the set in force does not, proven or shown.
//!
//! The work is done in the crate `policy_diff`, on a thread that answers nobody else. Nothing is recorded.

use super::replace::SetBody;
use crate::directory::read;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use crate::start;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use policy_diff::{Report, Sets};
use serde::Deserialize;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

/// How many sets a gateway compares at once: each takes a core and a solver.
pub const AT_ONCE_MAX: usize = 1;
/// When to ask again that was told that another set is being compared, in seconds.
const RETRY_AFTER: HeaderValue = HeaderValue::from_static("5");

/// What to compare with the set in force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparison {
    /// A set in place of the tenant's own.
    candidate: SetBody,
}

/// Compares.
pub async fn compare(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    SetJson(body): SetJson<Comparison>,
) -> Result<Json<Report>, Refusal> {
    let turn = gateway.prover.turn().ok_or_else(busy)?;
    let tenant = read(&gateway, &caller)?;
    let candidate = gateway.candidate(&tenant, &body.candidate).await?;
    let now = gateway.clock.now();
    // Dropped with this call: whoever hangs up needs no answer.
    let (_waiting, left) = oneshot::channel::<()>();
    let runtime = Handle::current();
    let comparing = tokio::task::spawn_blocking(move || {
        let sets = Sets {
            before: &tenant.policies,
            after: &candidate.policies,
            registry: start::registry(&candidate.directory),
            now,
        };
        runtime.block_on(async {
            tokio::select! {
                report = policy_diff::diff(sets, &turn) => Some(report),
                _ = left => None,
            }
        })
    });
    match comparing.await {
        Ok(Some(report)) => Ok(Json(report)),
        // Nobody is there to read it.
        Ok(None) => Err(busy()),
        Err(error) => {
            tracing::error!(%error, "comparing policies broke off");
            Err(Refusal::new(Code::Internal, "the policies could not be compared"))
        }
    }
}

fn busy() -> Refusal {
    let detail = "this gateway compares policies already; try again when that is done";
    Refusal::new(Code::DiffRunning, detail).with_header(header::RETRY_AFTER, RETRY_AFTER)
}
