//! Whether an ask is worth looking at: before its body is, before anything is judged.
//!
//! A gateway that has more to do than it can says so at once. What it does for asks that it will refuse anyway, it takes from
//! those that it could answer.

use crate::admission::{EarlyAdmission, Permit};
use crate::gateway::Gateway;
use crate::http::json::{self, Bounds, HeadAt};
use crate::http::{AgentCaller, Code, Refusal};
use axum::extract::Request;
use axum::http::HeaderName;
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
    pub permit: Permit,
}

/// How much of an ask was received.
pub(crate) enum Received {
    /// All of it, and whether it has its place, as far as that is known.
    Whole(EarlyAdmission),
    /// Its head only. Whether it is worth reading on is looked at before its body is read, and it takes its place when
    /// that is there: whoever sends slowly has none, and does not count as an ask that takes long.
    HeadOnly,
}

impl Received {
    /// Whether it has its place.
    pub(super) const fn has_place(&self) -> bool {
        matches!(self, Self::Whole(EarlyAdmission::Admitted(_)))
    }
}

impl Admitted {
    /// The ask of this agent, whole, if there is room for it.
    pub(super) async fn new(
        gateway: &Gateway,
        caller: AgentCaller,
        request: Request,
        received: Received,
    ) -> Result<(Self, Request), Refusal> {
        let deadline = deadline(&request)?;
        let (request, early) = match received {
            Received::Whole(early) => (request, early),
            Received::HeadOnly => {
                check(gateway, caller.tenant, deadline)?;
                if gateway.admission.refuse_if_full(caller.tenant) {
                    return Err(Refusal::overloaded());
                }
                let bounds = Bounds::of(&gateway.options).of_agents_of(caller.tenant);
                let request = json::whole(request, bounds).await?;
                (request, EarlyAdmission::Undecided)
            }
        };
        Self::enter(gateway, caller, deadline, early).map(|admitted| (admitted, request))
    }

    fn enter(
        gateway: &Gateway,
        caller: AgentCaller,
        deadline: Option<Instant>,
        early: EarlyAdmission,
    ) -> Result<Self, Refusal> {
        check(gateway, caller.tenant, deadline)?;
        let permit = early.place(|| {
            let commit = gateway.sequencer.usual_commit();
            gateway.admission.enter(caller.tenant, commit)
        });
        Ok(Self {
            permit: permit.ok_or_else(Refusal::overloaded)?,
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

/// Until when an answer is of use. The wait begins when the head has come, whoever has waited for the body.
fn deadline(request: &Request) -> Result<Option<Instant>, Refusal> {
    let Some(value) = request.headers().get(X_REQUEST_TIMEOUT_MS) else {
        return Ok(None);
    };
    let millis = value.to_str().ok().and_then(|value| value.parse().ok());
    let millis = millis.filter(|millis| (1..=TIMEOUT_MS_MAX).contains(millis));
    let millis = millis.ok_or_else(|| {
        let detail =
            format!("`X-Request-Timeout-Ms` is a whole number of milliseconds, 1 to {TIMEOUT_MS_MAX}");
        Refusal::new(Code::InvalidParameter, detail)
    })?;
    let head_at = request.extensions().get::<HeadAt>();
    let began = head_at.map_or_else(Instant::now, |HeadAt(at)| *at);
    Ok(Some(began + Duration::from_millis(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;
    use axum::http::HeaderValue;

    fn request(value: &'static str) -> Request {
        let mut request = Request::new(Body::empty());
        let value = HeaderValue::from_static(value);
        request.headers_mut().insert(X_REQUEST_TIMEOUT_MS, value);
        request
    }

    #[test]
    fn a_wait_is_counted_from_now() {
        let before = Instant::now();
        let wait = Duration::from_millis(250);
        let counted = deadline(&request("250")).unwrap().unwrap();
        assert!((before + wait..=Instant::now() + wait).contains(&counted));
    }

    #[test]
    fn where_the_body_was_waited_for_a_wait_is_counted_from_the_head() {
        let mut request = request("250");
        let head_at = Instant::now();
        request.extensions_mut().insert(HeadAt(head_at));
        let counted = deadline(&request).unwrap().unwrap();
        assert_eq!(counted, head_at + Duration::from_millis(250));
    }

    #[test]
    fn what_is_no_wait_is_refused() {
        assert!(deadline(&Request::new(Body::empty())).unwrap().is_none());
        for value in ["", "0", "-1", "1.5", "1s", "600001", "99999999999999999999"] {
            let refusal = deadline(&request(value)).unwrap_err();
            assert_eq!(refusal.code(), Code::InvalidParameter, "{value}");
        }
    }
}
