//! Whether an ask is worth looking at: before its body is, before anything is judged.
//!
//! A gateway that has more to do than it can says so at once. What it does for asks that it will refuse anyway, it takes from
//! those that it could answer.

use crate::admission::Place;
use crate::gateway::Gateway;
use crate::http::json::{self, Bounds};
use crate::http::{AgentCaller, Code, Refusal};
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName};
use model::TenantId;
use std::time::{Duration, Instant};

/// By which a caller says how long it waits for the answer.
pub(crate) const X_REQUEST_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// The longest wait that can be named: ten minutes.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// An agent whose ask there is room for.
pub(super) struct Admitted {
    /// Who asks.
    pub caller: AgentCaller,
    /// When an answer is of no use to it any more.
    pub deadline: Option<Instant>,
    /// Its place among those that are answered.
    pub place: Place,
}

/// How much of an ask has come.
pub(crate) enum Come {
    /// All of it. It may have its place already.
    Whole(Option<Place>),
    /// Its head. Whether it is worth reading on is looked at before its body is read, and it takes its place when that is there: whoever
    /// sends slowly has none, and does not count as an ask that takes long.
    Head,
}

impl Admitted {
    /// The ask of this agent, whole, if there is room for it.
    pub(super) async fn new(
        gateway: &Gateway,
        caller: AgentCaller,
        request: Request,
        come: Come,
    ) -> Result<(Self, Request), Refusal> {
        let deadline = deadline(request.headers())?;
        let (request, place) = match come {
            Come::Whole(place) => (request, place),
            Come::Head => {
                check(gateway, caller.tenant, deadline)?;
                if !gateway.admission.has_place(caller.tenant) {
                    return Err(Refusal::overloaded());
                }
                (json::whole(request, Bounds::of(&gateway.options)).await?, None)
            }
        };
        Self::enter(gateway, caller, deadline, place).map(|admitted| (admitted, request))
    }

    fn enter(
        gateway: &Gateway,
        caller: AgentCaller,
        deadline: Option<Instant>,
        place: Option<Place>,
    ) -> Result<Self, Refusal> {
        check(gateway, caller.tenant, deadline)?;
        let commit = gateway.sequencer.usual_commit();
        let place = place.or_else(|| gateway.admission.enter(caller.tenant, commit));
        Ok(Self {
            place: place.ok_or_else(Refusal::overloaded)?,
            caller,
            deadline,
        })
    }
}

/// Refuses what would wait in vain.
fn check(gateway: &Gateway, tenant: TenantId, deadline: Option<Instant>) -> Result<(), Refusal> {
    if !gateway.sequencer.has_room(tenant) {
        return Err(Refusal::overloaded());
    }
    if is_late(deadline, gateway.admission.usual()) {
        return Err(Refusal::deadline_exceeded());
    }
    Ok(())
}

/// Whether an answer would come too late, as long as asks usually take now. The sequencer looks again.
fn is_late(deadline: Option<Instant>, usual: Option<Duration>) -> bool {
    let usual = usual.unwrap_or_default();
    deadline.is_some_and(|deadline| deadline < Instant::now() + usual)
}

fn deadline(headers: &HeaderMap) -> Result<Option<Instant>, Refusal> {
    let Some(value) = headers.get(X_REQUEST_TIMEOUT_MS) else {
        return Ok(None);
    };
    let millis = value.to_str().ok().and_then(|value| value.parse().ok());
    let millis = millis.filter(|millis| (1..=TIMEOUT_MS_MAX).contains(millis));
    let millis = millis.ok_or_else(|| {
        let detail =
            format!("`X-Request-Timeout-Ms` is a whole number of milliseconds, 1 to {TIMEOUT_MS_MAX}");
        Refusal::new(Code::InvalidParameter, detail)
    })?;
    Ok(Some(Instant::now() + Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn headers(value: &'static str) -> HeaderMap {
        HeaderMap::from_iter([(X_REQUEST_TIMEOUT_MS, HeaderValue::from_static(value))])
    }

    #[test]
    fn a_wait_is_counted_from_now() {
        let before = Instant::now();
        let deadline = deadline(&headers("250")).unwrap().unwrap();
        let wait = Duration::from_millis(250);
        assert!((before + wait..=Instant::now() + wait).contains(&deadline));
    }

    #[test]
    fn what_is_no_wait_is_refused() {
        assert!(deadline(&HeaderMap::new()).unwrap().is_none());
        for value in ["", "0", "-1", "1.5", "1s", "600001", "99999999999999999999"] {
            let refusal = deadline(&headers(value)).unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidParameter, "{value}");
        }
    }
}
