//! `POST /v1/authorize/batch`: several asks, one commit where nothing has to be judged again. Each has its own answer
//! or its own problem, and all are of the trace that the request names, unless they name another. What a dry run says
//! holds behind the others: beside what they were answered, anything else would contradict them.

use super::long::Waiting;
use super::{Accepted, Answer, Attempt, LookedUp, Ready, Step};
use crate::gateway::Gateway;
use crate::http::request_id::RequestId;
use crate::http::{AgentCaller, Code, Refusal, query};
use crate::recording::ATTEMPTS_MAX;
use crate::sequencer::Terms;
use crate::snapshot::AsOf;
use crate::yielding::Yielder;
use axum::Extension;
use axum::extract::{Request, State};
use bytes::Bytes;
use canon::Canonical;
use engine::{Ask, Mode};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use std::time::Instant;

/// The most asks in a batch.
pub(crate) const ASKS_MAX: usize = 100;

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
    query::refuse_any(request.uri())?;
    let accepted = Accepted::new(&gateway, caller, request).await?;
    // Not before its body is there: many that are waited for would all find room.
    gateway.options.answers.check_agents_of(accepted.caller.tenant)?;
    let answer = |mut accepted: Accepted| async move {
        accepted.refuse_key("name `request_id` in each ask of a batch")?;
        let asks = read(&accepted.text)?;
        let answers = accepted.answer_all(asks).await?;
        accepted.note_refused(&answers, &request_id);
        Ok(Answer(write(answers, request_id.as_str())))
    };
    accepted.where_it_belongs(answer).await
}

impl Accepted {
    /// The answer to each of several asks. They are recorded in one commit, but for those that have to be judged again
    /// because of what another of them has changed. Dry runs are judged behind that, whatever became of it.
    pub(crate) async fn answer_all(
        &mut self,
        asks: Vec<Result<Ask, Refusal>>,
    ) -> Result<Vec<Result<Bytes, Refusal>>, Refusal> {
        let asks = asks.into_iter().map(|ask| ask.and_then(|ask| self.own(ask)));
        let mut items: Vec<Item> = asks.map(Item::new).collect();
        let recorded = self.answer_each(&mut items, Kind::Recorded).await;
        let tried = self.answer_each(&mut items, Kind::DryRun).await;
        // They may have waited long for those that are recorded.
        for item in &mut items {
            item.check_unrecorded(&self.gateway);
        }
        let fault = recorded.and(tried).err().unwrap_or_else(Refusal::contended);
        answered_so_far(items, &fault)
    }

    /// Answers each of these asks that is of this kind, behind those of the kinds before it.
    async fn answer_each(&mut self, items: &mut [Item], kind: Kind) -> Result<(), Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let waiting = self.prepare_each(items, kind).await;
            if let Some(permit) = &mut self.permit {
                // Those that were refused at once say nothing about how long asks take; those that were waited for do.
                let is_held_long = permit.is_held_long();
                let counts =
                    |item: &&Item| item.kind() <= kind && (is_held_long || !item.is_refused_at_once());
                let asks = items.iter().filter(counts).count();
                permit.note_asks(u32::try_from(asks).unwrap_or(u32::MAX));
            }
            if !waiting.is_empty() {
                self.record_each(items, waiting).await?;
            }
            if !items.iter().any(|item| item.waits_as(kind)) {
                return Ok(());
            }
        }
        Err(Refusal::contended())
    }

    /// Counts those of several asks that were refused or failed, each like an ask that comes alone. Where the request
    /// fails as a whole it is counted once, with its response.
    pub(crate) fn note_refused(&self, answers: &[Result<Bytes, Refusal>], request_id: &RequestId) {
        for refusal in answers.iter().filter_map(|answer| answer.as_ref().err()) {
            request_id.note(&self.gateway, refusal);
        }
    }
}

/// What becomes of an ask, in the order in which asks are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    /// It is recorded, unless it is refused.
    Recorded,
    /// Nothing of it is recorded.
    DryRun,
}

/// One ask on its way to an answer.
struct Item {
    ask: Result<Arc<Ask>, Refusal>,
    /// Whether the buckets were taken from for it.
    tokens_taken: bool,
    /// Whether something is recorded about it apart from the others, for which it waits.
    is_recorded_alone: bool,
    /// As of when that was known by which it was judged; none once it is recorded.
    as_of: Option<AsOf>,
    answer: Option<Result<Bytes, Refusal>>,
}

impl Item {
    fn new(ask: Result<Ask, Refusal>) -> Self {
        Self {
            ask: ask.map(Arc::new),
            tokens_taken: false,
            is_recorded_alone: false,
            as_of: None,
            answer: None,
        }
    }

    /// What becomes of it.
    fn kind(&self) -> Kind {
        match &self.ask {
            Ok(ask) if ask.mode == Mode::DryRun => Kind::DryRun,
            _ => Kind::Recorded,
        }
    }

    /// Whether it is of this kind and has no answer yet.
    fn waits_as(&self, kind: Kind) -> bool {
        self.answer.is_none() && self.kind() == kind
    }

    /// Whether it was refused before anything was to be recorded.
    const fn is_refused_at_once(&self) -> bool {
        matches!(self.answer, Some(Err(_))) && !self.is_recorded_alone
    }

    /// Takes an answer back that is not recorded, if nobody can tell any more whether it still holds.
    fn check_unrecorded(&mut self, gateway: &Gateway) {
        if let (Some(as_of), Some(Ok(_))) = (self.as_of, &self.answer)
            && let Err(refusal) = gateway.check_answer_is_current(as_of)
        {
            self.answer = Some(Err(refusal));
        }
    }
}

/// The answers that there are; asks without one get `fault`. If there are such asks and none was answered, `fault` is
/// the answer to the whole request: nothing was recorded.
fn answered_so_far(items: Vec<Item>, fault: &Refusal) -> Result<Vec<Result<Bytes, Refusal>>, Refusal> {
    let is_answered = |item: &Item| matches!(item.answer, Some(Ok(_)));
    let is_missing = |item: &Item| item.answer.is_none();
    if items.iter().any(is_missing) && !items.iter().any(is_answered) {
        return Err(fault.clone());
    }
    let answers = items.into_iter().map(|item| item.answer);
    Ok(answers
        .map(|answer| answer.unwrap_or_else(|| Err(fault.clone())))
        .collect())
}

/// Whether it is the gateway that failed, and not the ask.
fn is_fault(refusal: &Refusal) -> bool {
    refusal.code().status().is_server_error()
}

fn read(text: &Canonical) -> Result<Vec<Result<Ask, Refusal>>, Refusal> {
    let body: Body<'_> = canon::read(text.as_str())?;
    if body.asks.is_empty() || body.asks.len() > ASKS_MAX {
        return Err(Refusal::new(
            Code::InvalidField,
            format!("`asks` has 1 to {ASKS_MAX} items"),
        ));
    }
    let asks = body.asks.into_iter().map(|ask| {
        let ask = text
            .value_within(ask.get())
            .expect("a raw value borrows from the text it was read from");
        Ok(Ask::parse(&ask)?)
    });
    Ok(asks.collect())
}

impl Accepted {
    /// Prepares every ask of this kind that has no answer yet. Returns those that must be recorded, with their places.
    async fn prepare_each(&mut self, items: &mut [Item], kind: Kind) -> Vec<(usize, Ready)> {
        let (mut permit, mut no_permit) = (self.permit.take(), None);
        let Self {
            gateway,
            caller,
            deadline,
            ..
        } = &*self;
        let (mut waiting, mut yielder, mut fault) = (Vec::new(), Yielder::new(), None);
        for (place, item) in items
            .iter_mut()
            .enumerate()
            .filter(|(_, item)| item.waits_as(kind))
        {
            let step = match &item.ask {
                Ok(ask) => match self.look_up_once(ask, item.tokens_taken, &mut fault).await {
                    Ok(looked_up) => {
                        let mut attempt = Attempt {
                            caller,
                            ask,
                            looked_up,
                            tokens_taken: &mut item.tokens_taken,
                        };
                        let waiting = Waiting {
                            deadline: *deadline,
                            permit: permit.as_mut(),
                            no_permit: &mut no_permit,
                        };
                        // In the next round an ask behind this one would have taken what is lent for it.
                        let step = gateway.prepare_lending(&mut attempt, waiting).await;
                        item.as_of = Some(attempt.looked_up.as_of);
                        step
                    }
                    Err(refusal) => Err(refusal),
                },
                Err(refusal) => Err(refusal.clone()),
            };
            match step {
                Ok(Step::Unjudged(unjudged)) => {
                    item.is_recorded_alone = unjudged.is_misuse();
                    if let Ok(ask) = &item.ask {
                        let answer = gateway.unjudged(caller, ask, unjudged).await;
                        item.answer = Some(answer.map(|answer| answer.0));
                    }
                }
                Ok(Step::Record(ready)) => waiting.push((place, *ready)),
                Ok(Step::Answer(answer)) => item.answer = Some(Ok(answer.0)),
                // Judged again in the next round, when what is missing is there.
                Ok(Step::Fill(_) | Step::LookAgain) => {}
                Err(refusal) => item.answer = Some(Err(refusal)),
            }
            yielder.yield_if_due().await;
        }
        self.permit = permit;
        waiting
    }

    /// Looks up what has to be known of an ask. Dry runs read one after the other, and answers that are recorded
    /// already wait for them. So nothing is read for a dry run when its caller does not wait any more, nor after a
    /// `fault` of the reads for another one: each of the others might wait as long for the same.
    async fn look_up_once(
        &self,
        ask: &Ask,
        tokens_taken: bool,
        fault: &mut Option<Refusal>,
    ) -> Result<LookedUp, Refusal> {
        let Self { gateway, caller, .. } = self;
        if ask.mode != Mode::DryRun {
            return gateway.look_up(caller, ask, tokens_taken, self.deadline).await;
        }
        if let Some(fault) = fault.as_ref() {
            return Err(fault.clone());
        }
        if self.deadline.is_some_and(|deadline| deadline < Instant::now()) {
            return Err(Refusal::deadline_exceeded());
        }
        let looked_up = gateway.look_up(caller, ask, tokens_taken, self.deadline).await;
        *fault = looked_up
            .as_ref()
            .err()
            .filter(|refusal| is_fault(refusal))
            .cloned();
        looked_up
    }

    /// Records what was judged in one commit. What must be judged again has no answer afterwards.
    async fn record_each(&self, items: &mut [Item], waiting: Vec<(usize, Ready)>) -> Result<(), Refusal> {
        let Self { gateway, caller, .. } = self;
        let terms = Terms {
            deadline: self.deadline,
            contents_as_of: waiting.iter().map(|(_, ready)| ready.contents_as_of).min(),
        };
        let (places, proposals): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .map(|(place, ready)| ((place, ready.after_commit), ready.proposal))
            .unzip();
        let recorded = gateway.sequencer.record_all(terms, proposals).await?;
        for ((place, after_commit), recorded) in places.into_iter().zip(recorded) {
            let item = &mut items[place];
            // Only what could be read was judged.
            if let Ok(ask) = &item.ask {
                item.answer = gateway.conclude(caller, ask, after_commit, recorded).transpose();
                item.as_of = None;
            }
        }
        Ok(())
    }
}

/// `{"answers":[…]}`, each answer with its exact bytes.
fn write(answers: Vec<Result<Bytes, Refusal>>, request_id: &str) -> Bytes {
    let mut text = Vec::from(*b"{\"answers\":[");
    for (place, answer) in answers.into_iter().enumerate() {
        if place > 0 {
            text.push(b',');
        }
        match answer {
            Ok(answer) => text.extend_from_slice(&answer),
            Err(refusal) => text.extend_from_slice(refusal.to_problem(request_id).as_bytes()),
        }
    }
    text.extend_from_slice(b"]}");
    text.into()
}
