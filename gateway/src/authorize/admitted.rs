//! Whether an ask is worth looking at: before its body is, before anything is judged.
//!
//! A gateway that has more to do than it can says so at once. What it does for asks that it will refuse anyway, it takes from
//! those that it could answer.

use crate::admission::Place;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Refusal};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// By which a caller says how long it waits for the answer.
pub(crate) const X_REQUEST_TIMEOUT_MS: HeaderName = HeaderName::from_static("x-request-timeout-ms");
/// The longest wait that can be named: ten minutes.
const TIMEOUT_MS_MAX: u64 = 600_000;

/// An agent whose ask there is room for.
pub struct Admitted {
    /// Who asks.
    pub caller: AgentCaller,
    /// When an answer is of no use to it any more.
    pub deadline: Option<Instant>,
    /// Its place among those that are answered.
    pub place: Place,
}

impl FromRequestParts<Arc<Gateway>> for Admitted {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let caller = parts.extensions.get::<AgentCaller>().cloned();
        let caller = caller.expect("the route lets in agents only");
        Self::new(gateway, caller, &parts.headers, None)
    }
}

impl Admitted {
    /// The ask of this agent that comes with these headers, if there is room for it. It may have its place already.
    pub fn new(
        gateway: &Gateway,
        caller: AgentCaller,
        headers: &HeaderMap,
        place: Option<Place>,
    ) -> Result<Self, Refusal> {
        let deadline = deadline(headers)?;
        if !gateway.sequencer.has_room(caller.tenant) {
            return Err(Refusal::overloaded());
        }
        if is_late(deadline, gateway.admission.usual()) {
            return Err(Refusal::deadline_exceeded());
        }
        let commit = gateway.sequencer.usual_commit();
        let place = place.or_else(|| gateway.admission.enter(caller.tenant, commit));
        Ok(Self {
            place: place.ok_or_else(Refusal::overloaded)?,
            caller,
            deadline,
        })
    }
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
