//! `POST /v1/policies/diff`: whether a candidate allows anything that the set in force does not, proven or shown.
//!
//! The work is done in the crate `policy_diff`, on a thread of its own. Nothing is recorded.

use super::replace::SetBody;
use super::replay::Candidate;
use crate::changes::DroppedAside;
use crate::fair_semaphore::BUSY_RETRY_AFTER;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use axum::http::header;
use policy::PolicySet;
use policy_diff::{Broken, Comparison, Report};
use serde::Deserialize;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// How many sets a gateway compares at once: each takes a core and a solver.
pub const AT_ONCE_MAX: usize = 1;
/// How long one waits for those of other tenants before it. Most take less than a second.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// What to compare with the set in force.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Comparing {
    /// A set in place of the tenant's own.
    candidate: SetBody,
}

/// Compares. Whoever hangs up stops it.
pub async fn compare(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    SetJson(body, _room): SetJson<Comparing>,
) -> Result<Json<Report>, Refusal> {
    let Candidate { before, after, .. } = gateway.candidate(caller.tenant(), body.candidate).await?;
    let after = DroppedAside::new(after);
    // Compiling waits for its own turn, and nobody should wait for this one meanwhile.
    let own = gateway.comparisons_of.begin(caller.tenant());
    let _one_of_tenant =
        own.ok_or_else(|| busy("this tenant compares policies already; try again when that is done"))?;
    let turn = gateway.prover.turn_within(WAIT_MAX).await;
    let turn =
        turn.ok_or_else(|| busy("this gateway compares policies already; try again when that is done"))?;
    let comparison = Comparison {
        before: PolicySet::clone(&before.policies),
        after: PolicySet::clone(&after.policies),
        tools: after.directory.tools.clone(),
        attributes: after.directory.tenant.settings.context_attributes.clone(),
        sources: after.directory.tenant.settings.sources,
        body_bytes_max: gateway.options.body_bytes_max,
        now: gateway.clock.now(),
    };
    let report = policy_diff::diff(comparison, turn).await;
    let report = report.map_err(|error| not_compared(&error))?;
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    Ok(Json(report))
}

/// The refusal where there is no report. Whoever finds no thread may find one later; all else is a bug.
fn not_compared(error: &Broken) -> Refusal {
    tracing::error!(error = error as &dyn Error, "policies could not be compared");
    match error {
        Broken::Thread(_) => Refusal::no_thread(),
        Broken::Panicked => Refusal::new(Code::Internal, "the policies could not be compared"),
    }
}

fn busy(detail: &'static str) -> Refusal {
    Refusal::new(Code::DiffRunning, detail).with_header(header::RETRY_AFTER, BUSY_RETRY_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn whoever_finds_no_thread_to_compare_on_is_told_to_try_again() {
        let refused = Broken::Thread(io::ErrorKind::WouldBlock.into());
        for (error, code) in [(refused, Code::Overloaded), (Broken::Panicked, Code::Internal)] {
            assert_eq!(not_compared(&error).code(), code);
        }
    }
}
