//! A request of an agent, accepted and read: `POST /v1/decide`, a batch and the AuthZEN evaluations begin with it.
//!
//! `POST /v1/authorize` does not. Its ask was often admitted early, and its body is read only in the
//! lane where it belongs.

use super::{Admitted, Received, check_idempotency_key, trace_id};
use crate::admission::Permit;
use crate::gateway::Gateway;
use crate::http::json::Bounds;
use crate::http::room::Taken;
use crate::http::{AgentCaller, CanonicalBody, Refusal, idempotency};
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use canon::Canonical;
use engine::Ask;
use model::Name;
use std::sync::Arc;
use std::time::Instant;

/// A request of an agent that has a place, and may have several asks.
pub(crate) struct Accepted {
    pub(super) gateway: Arc<Gateway>,
    /// Who asks.
    pub(crate) caller: AgentCaller,
    /// The body.
    pub(crate) text: Canonical,
    /// Its room, if it is long, until all is answered.
    _room: Option<Taken>,
    /// Its `Idempotency-Key`.
    pub(crate) key: Option<Name>,
    trace_id: Option<Name>,
    /// When an answer is of no use to it any more.
    pub(super) deadline: Option<Instant>,
    /// Its place, until the first of several answers that are made one after the other has it.
    pub(super) permit: Option<Permit>,
}

impl Accepted {
    /// The request of this agent, if there is room for it.
    pub(crate) async fn new(
        gateway: &Arc<Gateway>,
        caller: AgentCaller,
        request: Request,
    ) -> Result<Self, Refusal> {
        let (admitted, request) = Admitted::new(gateway, caller, request, Received::HeadOnly).await?;
        let Admitted {
            caller,
            deadline,
            permit,
        } = admitted;
        let key = idempotency::key(request.headers())?;
        let trace_id = trace_id(request.headers());
        let CanonicalBody(text) = CanonicalBody::from_request(request, gateway).await?;
        let bounds = Bounds::of(&gateway.options).of_agents_of(caller.tenant);
        let room = bounds.keep(text.as_bytes().len())?;
        Ok(Self {
            gateway: Arc::clone(gateway),
            caller,
            text,
            _room: room,
            key,
            trace_id,
            deadline,
            permit: Some(permit),
        })
    }

    /// What comes of it, found out where it belongs: in the lane for floods if its tenant floods the gateway, and here otherwise.
    pub(crate) async fn where_it_belongs<T, F>(self, answer: impl FnOnce(Self) -> F) -> Result<T, Refusal>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, Refusal>> + Send + 'static,
    {
        let gateway = Arc::clone(&self.gateway);
        let is_of_flood = self.permit.as_ref().is_some_and(Permit::is_of_flood);
        let answer = answer(self);
        if is_of_flood {
            gateway.metrics.count_slow_lane();
            gateway.slow_lane.run(answer).await
        } else {
            answer.await
        }
    }

    /// Room for as many bytes as its asks have together, beyond those of its text: to be held until all is answered.
    pub(crate) fn keep_more(&self, bytes: usize) -> Result<Option<Taken>, Refusal> {
        let bounds = Bounds::of(&self.gateway.options).of_agents_of(self.caller.tenant);
        bounds.keep(bytes.saturating_sub(self.text.as_bytes().len()))
    }

    /// Refuses an `Idempotency-Key` where there are several asks, and says what to do in its place.
    pub(crate) fn refuse_key(&self, instead: &str) -> Result<(), Refusal> {
        match self.key {
            Some(_) => Err(idempotency::invalid(&format!(
                "stands for one request; {instead}"
            ))),
            None => Ok(()),
        }
    }

    /// The answer to the one ask that this request has, which was read as what its key names, or to the next of
    /// several that are put one after the other. Each has a place for as long as it takes, so that many of them do not
    /// look like one that takes long.
    pub(crate) async fn answer(&mut self, ask: Ask) -> Result<Bytes, Refusal> {
        let admission = &self.gateway.admission;
        let another = || admission.enter(self.caller.tenant, self.gateway.sequencer.usual_commit());
        let permit = self.permit.take().or_else(another);
        let mut permit = permit.ok_or_else(Refusal::overloaded)?;
        let ask = Arc::new(self.own(ask)?);
        check_idempotency_key(&ask, self.key.as_ref())?;
        let (gateway, caller) = (&self.gateway, &self.caller);
        let answer = gateway.authorize(caller, self.deadline, &ask, &mut permit);
        answer.await.map(|answer| answer.0)
    }

    /// The ask in the name of those whom the token names, and of the trace that the request names, unless it names another.
    pub(super) fn own(&self, ask: Ask) -> Result<Ask, Refusal> {
        let ask = ask.delegated(&self.caller.delegation)?;
        Ok(Ask {
            trace_id: ask.trace_id.or_else(|| self.trace_id.clone()),
            ..ask
        })
    }
}
