//! `POST /v1/authorize/batch`: several asks, one commit. Each has its own answer or its own problem, and all are of the trace that the
//! request names, unless they name another.

use super::{Admitted, Answer, Come, Ready, Step, reused, trace_id};
use crate::gateway::Gateway;
use crate::http::idempotency;
use crate::http::request_id::RequestId;
use crate::http::{AgentCaller, CanonicalBody, Code, Refusal};
use crate::limits::quota;
use crate::sequencer::Recorded;
use axum::Extension;
use axum::extract::{FromRequest, Request, State};
use bytes::Bytes;
use canon::Canonical;
use engine::{Ask, Conflict, Delegation, Replay};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;

/// The most asks in a batch.
const ASKS_MAX: usize = 100;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    #[serde(borrow)]
    asks: Vec<&'a RawValue>,
}

/// Answers several asks.
pub async fn authorize_batch(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Answer, Refusal> {
    let (admitted, request) = Admitted::new(&gateway, caller, request, Come::Head).await?;
    let Admitted {
        caller,
        deadline,
        place: _place,
    } = admitted;
    let trace_id = trace_id(request.headers());
    if idempotency::key(request.headers())?.is_some() {
        let detail = "stands for one request; name `request_id` in each ask of a batch";
        return Err(idempotency::invalid(detail));
    }
    let CanonicalBody(text) = CanonicalBody::from_request(request, &gateway).await?;
    let asks = read(&text, &caller.delegation)?.into_iter().map(|ask| {
        let mut ask = ask?;
        ask.trace_id = ask.trace_id.or_else(|| trace_id.clone());
        Ok(ask)
    });
    let mut items: Vec<Item> = asks.map(Item::new).collect();
    for _ in 0..super::ATTEMPTS_MAX {
        let waiting = gateway.decide_each(&caller, &mut items).await;
        if !waiting.is_empty() {
            gateway
                .record_each((&caller, deadline), &mut items, waiting)
                .await?;
        }
        if items.iter().all(|item| item.answer.is_some()) {
            return Ok(Answer(write(items, request_id.as_str())));
        }
    }
    Err(Refusal::overloaded())
}

/// One ask on its way to an answer.
struct Item {
    ask: Result<Arc<Ask>, Refusal>,
    /// Whether the buckets were taken from for it.
    admitted: bool,
    answer: Option<Result<Bytes, Refusal>>,
}

impl Item {
    fn new(ask: Result<Ask, Refusal>) -> Self {
        Self {
            ask: ask.map(Arc::new),
            admitted: false,
            answer: None,
        }
    }
}

fn read(text: &Canonical, delegation: &Delegation) -> Result<Vec<Result<Ask, Refusal>>, Refusal> {
    let body: Body<'_> = canon::read(text.as_str())?;
    if body.asks.is_empty() || body.asks.len() > ASKS_MAX {
        return Err(Refusal::new(
            Code::InvalidField,
            format!("`asks` has 1 to {ASKS_MAX} items"),
        ));
    }
    Ok(body
        .asks
        .into_iter()
        .map(|ask| {
            let ask = text
                .value_within(ask.get())
                .expect("a raw value borrows from the text it was read from");
            Ok(Ask::parse(&ask)?.delegated(delegation)?)
        })
        .collect())
}

impl Gateway {
    /// Judges every ask that has no answer yet. Returns those that must be recorded, with their places.
    async fn decide_each(&self, caller: &AgentCaller, items: &mut [Item]) -> Vec<(usize, Ready)> {
        let mut waiting = Vec::new();
        for (place, item) in items
            .iter_mut()
            .enumerate()
            .filter(|(_, item)| item.answer.is_none())
        {
            let step = match &item.ask {
                Ok(ask) => match self.look_up(caller, ask, item.admitted).await {
                    Ok(looked_up) => self.decide(caller, ask, &looked_up, &mut item.admitted),
                    Err(refusal) => Err(refusal),
                },
                Err(refusal) => Err(refusal.clone()),
            };
            match step {
                Ok(Step::NotUsable(why)) => {
                    if let Ok(ask) = &item.ask {
                        let answer = self.without_approval(caller, ask, why).await;
                        item.answer = Some(answer.map(|answer| answer.0));
                    }
                }
                Ok(Step::Record(ready)) => waiting.push((place, *ready)),
                Ok(Step::Answer(answer)) => item.answer = Some(Ok(answer.0)),
                // Judged again in the next round, when what is missing is there.
                Ok(Step::LookAgain) => {}
                Ok(Step::Fill(short)) => {
                    item.answer = self.limits.fill(&short).await.err().map(Err);
                }
                Err(refusal) => item.answer = Some(Err(refusal)),
            }
        }
        waiting
    }

    /// Records what was judged in one commit. What must be judged again has no answer afterwards.
    async fn record_each(
        &self,
        (caller, deadline): (&AgentCaller, Option<Instant>),
        items: &mut [Item],
        waiting: Vec<(usize, Ready)>,
    ) -> Result<(), Refusal> {
        let (places, proposals): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|(place, ready)| ((place, ready.said, ready.replay), ready.proposal))
            .unzip();
        let recorded = self.sequencer.record_all(deadline, proposals).await?;
        for ((place, said, replay), recorded) in places.into_iter().zip(recorded) {
            let item = &mut items[place];
            item.answer = match recorded {
                Recorded::Now(receipt) => {
                    let said = said.as_recorded(&receipt);
                    let answer = receipt.into_answer();
                    self.count(said);
                    if let Ok(ask) = &item.ask
                        && replay == Replay::Always
                    {
                        self.remember(caller, ask, said.reason.verdict(), &answer);
                    }
                    Some(Ok(answer))
                }
                Recorded::Before(answer) => {
                    self.metrics.count_replay();
                    Some(Ok(answer))
                }
                Recorded::Not(
                    Conflict::DirectoryMoved { .. } | Conflict::Approval(_) | Conflict::RunMoved,
                ) => None,
                Recorded::Not(Conflict::QuotaExceeded(over)) => Some(Err(quota::exceeded(&over))),
                Recorded::Not(Conflict::RequestReused | Conflict::OutcomeReported | Conflict::Budget(_)) => {
                    Some(Err(reused()))
                }
            };
        }
        Ok(())
    }
}

/// `{"answers":[…]}`, each answer with its exact bytes.
fn write(items: Vec<Item>, request_id: &str) -> Bytes {
    let mut text = Vec::from(*b"{\"answers\":[");
    for (place, item) in items.into_iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        match item.answer {
            Some(Ok(answer)) => text.extend_from_slice(&answer),
            Some(Err(refusal)) => text.extend_from_slice(refusal.to_problem(request_id).as_bytes()),
            None => {}
        }
    }
    text.extend_from_slice(b"]}");
    text.into()
}
