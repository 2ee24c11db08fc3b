//! `POST /access/v1/evaluation` and `/access/v1/evaluations` (sections 6 and 7): may this agent do this with this tool?
//!
//! It is an authorization like any other: limited, recorded and answered in this order. `true` is an allow and nothing else.

use super::entities::{Tuple, read};
use crate::authorize::batch::ASKS_MAX;
use crate::authorize::{Accepted, Answer};
use crate::gateway::Gateway;
use crate::http::request_id::RequestId;
use crate::http::{AgentCaller, Code, Refusal};
use crate::yielding::Yielder;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use bytes::Bytes;
use engine::Ask;
use model::Verdict;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;

/// Several evaluations. What stands beside them is the default for each.
#[derive(Deserialize)]
struct Boxcar<'a> {
    #[serde(borrow)]
    evaluations: Option<Vec<&'a RawValue>>,
    options: Option<Options>,
}

#[derive(Deserialize)]
struct Options {
    #[serde(rename = "evaluations_semantic")]
    semantic: Option<Semantic>,
}

/// How far one goes through several evaluations (section 7.1.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Semantic {
    /// To their end.
    #[default]
    ExecuteAll,
    /// To the first that is not permitted.
    DenyOnFirstDeny,
    /// To the first that is permitted.
    PermitOnFirstPermit,
}

/// The decision behind which nothing is asked any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopAt {
    /// That an evaluation is permitted.
    Permit,
    /// That it is not.
    Deny,
}

/// What was said to one evaluation.
struct Evaluated {
    decision: bool,
    /// The answer of `POST /v1/authorize`, or the problem that kept the ask from being decided.
    context: Vec<u8>,
}

/// Answers one evaluation.
pub async fn evaluate(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    request: Request,
) -> Result<Answer, Refusal> {
    let accepted = Accepted::new(&gateway, caller, request).await?;
    let answer = |mut accepted: Accepted| async move {
        let tuple: Tuple<'_> = canon::read(accepted.text.as_str())?;
        let ask = tuple.ask(&accepted.caller.agent, accepted.key.as_ref())?;
        one(&mut accepted, ask).await
    };
    accepted.where_it_belongs(answer).await
}

/// Answers several evaluations, or one that is sent here.
pub async fn evaluate_all(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Extension(request_id): Extension<RequestId>,
    request: Request,
) -> Result<Answer, Refusal> {
    let bytes_max = gateway.options.body_bytes_max;
    let accepted = Accepted::new(&gateway, caller, request).await?;
    // Not before its body is there: many that are waited for would all find room.
    gateway.options.answers.check_agents_of(accepted.caller.tenant)?;
    let answer = move |accepted| async move { evaluate_each(accepted, bytes_max, &request_id).await };
    accepted.where_it_belongs(answer).await
}

async fn evaluate_each(
    mut accepted: Accepted,
    bytes_max: usize,
    request_id: &RequestId,
) -> Result<Answer, Refusal> {
    let body: Boxcar<'_> = canon::read(accepted.text.as_str())?;
    let defaults: Tuple<'_> = canon::read(accepted.text.as_str())?;
    let evaluations = body.evaluations.unwrap_or_default();
    if evaluations.is_empty() {
        let ask = defaults.ask(&accepted.caller.agent, accepted.key.as_ref())?;
        return one(&mut accepted, ask).await;
    }
    if evaluations.len() > ASKS_MAX {
        let detail = format!("`/evaluations`: has at most {ASKS_MAX} items");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    accepted.refuse_key("name `request_id` in `context.countersign` of each evaluation")?;
    // A text can be longer than the message that it was made of, and nobody is refused for that.
    let bytes_max = bytes_max.max(accepted.text.as_str().len());
    let (asks, bytes) = asks(&accepted.caller, &evaluations, defaults, bytes_max)?;
    let _more = accepted.keep_more(bytes)?;
    let semantic = body.options.and_then(|options| options.semantic);
    let answers = match semantic.unwrap_or_default() {
        Semantic::ExecuteAll => accepted.answer_all(asks).await?,
        Semantic::DenyOnFirstDeny => answer_until(&mut accepted, asks, StopAt::Deny).await?,
        Semantic::PermitOnFirstPermit => answer_until(&mut accepted, asks, StopAt::Permit).await?,
    };
    accepted.note_refused(&answers, request_id);
    let evaluated = answers.into_iter();
    let evaluated = evaluated.map(|answer| Evaluated::of(answer, request_id.as_str()));
    Ok(Answer(write_all(evaluated)))
}

/// The asks of several evaluations, and how many bytes they have together. With its defaults one can be as long as a
/// body, and a hundred of them are to be no longer.
fn asks(
    caller: &AgentCaller,
    evaluations: &[&RawValue],
    defaults: Tuple<'_>,
    bytes_max: usize,
) -> Result<(Vec<Result<Ask, Refusal>>, usize), Refusal> {
    let mut bytes = 0;
    let mut asks = Vec::with_capacity(evaluations.len());
    for (place, evaluation) in evaluations.iter().enumerate() {
        let tuple = read::<Tuple<'_>>(&format!("/evaluations/{place}"), Some(evaluation));
        let tuple = tuple.map(|tuple| tuple.or(defaults));
        bytes += tuple.as_ref().map_or(0, |tuple| tuple.bytes());
        if bytes > bytes_max {
            return Err(too_large(bytes_max));
        }
        asks.push(tuple.and_then(|tuple| tuple.ask(&caller.agent, None)));
    }
    Ok((asks, bytes))
}

fn too_large(bytes_max: usize) -> Refusal {
    let detail = format!(
        "a body has at most {bytes_max} bytes, and so have all `evaluations` together, each with the defaults that it takes"
    );
    Refusal::new(Code::BodyTooLarge, detail)
}

async fn one(accepted: &mut Accepted, ask: Ask) -> Result<Answer, Refusal> {
    let answer = accepted.answer(ask).await?;
    let mut text = Vec::with_capacity(answer.len() + 32);
    Evaluated::answered(&answer).write(&mut text);
    Ok(Answer(text.into()))
}

/// The answers to these asks, one after the other, up to the first decision to stop at. Those behind it are not asked;
/// nor are those behind one that the gateway has no answer to now. If it has none to the first, it is that of the
/// request.
async fn answer_until(
    accepted: &mut Accepted,
    asks: Vec<Result<Ask, Refusal>>,
    stop_at: StopAt,
) -> Result<Vec<Result<Bytes, Refusal>>, Refusal> {
    let (mut answers, mut yielder) = (Vec::new(), Yielder::new());
    for ask in asks {
        let answer = match ask {
            Ok(ask) => accepted.answer(ask).await,
            Err(refusal) => Err(refusal),
        };
        let is_last = match &answer {
            Ok(answer) => is_allow(answer) == (stop_at == StopAt::Permit),
            Err(refusal) if may_pass(refusal) && answers.is_empty() => return Err(refusal.clone()),
            Err(refusal) => may_pass(refusal) || stop_at == StopAt::Deny,
        };
        answers.push(answer);
        if is_last {
            break;
        }
        yielder.yield_if_due().await;
    }
    Ok(answers)
}

/// Whether the same may have an answer later.
fn may_pass(refusal: &Refusal) -> bool {
    let status = refusal.code().status();
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}

fn is_allow(answer: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Said {
        decision: Verdict,
    }
    let said = serde_json::from_slice::<Said>(answer);
    said.is_ok_and(|said| said.decision == Verdict::Allow)
}

impl Evaluated {
    fn of(answer: Result<Bytes, Refusal>, request_id: &str) -> Self {
        match answer {
            Ok(answer) => Self::answered(&answer),
            Err(refusal) => Self {
                decision: false,
                context: format!("{{\"error\":{}}}", refusal.to_problem(request_id)).into(),
            },
        }
    }

    fn answered(answer: &[u8]) -> Self {
        Self {
            decision: is_allow(answer),
            context: answer.to_vec(),
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"{\"decision\":");
        out.extend_from_slice(if self.decision { b"true" } else { b"false" });
        out.extend_from_slice(b",\"context\":");
        out.extend_from_slice(&self.context);
        out.push(b'}');
    }
}

fn write_all(evaluated: impl Iterator<Item = Evaluated>) -> Bytes {
    let mut text = Vec::from(*b"{\"evaluations\":[");
    for (place, one) in evaluated.enumerate() {
        if place > 0 {
            text.push(b',');
        }
        one.write(&mut text);
    }
    text.extend_from_slice(b"]}");
    text.into()
}
