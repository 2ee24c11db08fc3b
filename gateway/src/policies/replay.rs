//! `POST /v1/policies/replay`: recorded decisions judged again by a candidate, and where it would have said something else.
//!
//! The newest decisions come first, at most `limit` of them. The answer is one object, or lines of JSON that tell how far it
//! is before the last one tells what came of it. Nothing is recorded, and decisions go on meanwhile.

mod range;
mod records;
mod run;

use super::one_each::Begun;
use super::replace::SetBody;
use crate::changes::{Drafted, DroppedAside};
use crate::fair_semaphore::BUSY_RETRY_AFTER;
use crate::gateway::Gateway;
use crate::http::accept::Accepted;
use crate::http::request_id::RequestId;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use crate::outgoing;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use canon::Digest;
use engine::TenantSnapshot;
use engine::replay::{Change, Group, Tally, WhyNot};
use futures_util::stream;
use model::{Directory, TenantId, Timestamp};
use policy::Compiler;
use run::{Progress, Running};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How many replays a gateway runs at once. They share the cores that there are for them.
pub const AT_ONCE_MAX: usize = 2;
/// The cores that replays have, all of them together: one is left to the sequencer and the callers. There are as many
/// for a process, because the cores are the machine's, however many gateways are in it.
pub static CORES: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(cores()));
/// How many decisions are judged again if nobody says.
const LIMIT: u64 = 10_000;
/// How many at most in an answer that comes when it is complete: some seconds.
const LIMIT_MAX: u64 = 100_000;
/// How often a stream of lines tells how far it is.
const PACE: Duration = Duration::from_millis(500);
/// Newline-delimited JSON.
const NDJSON: &str = "application/x-ndjson";

/// What to judge, and by what.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplayBody {
    /// A set in place of the tenant's own.
    candidate: SetBody,
    /// Only what was recorded at this time or later.
    #[serde(default)]
    from: Option<Timestamp>,
    /// Only what was recorded before this time.
    #[serde(default)]
    to: Option<Timestamp>,
    /// How many decisions at most.
    #[serde(default)]
    limit: Option<u64>,
}

/// What came of it.
#[derive(Debug, Serialize)]
struct Report {
    policy_digest: Digest,
    decisions: u64,
    replayed: u64,
    unchanged: u64,
    /// How many verdicts would have been others, by change.
    flips: BTreeMap<Change, u64>,
    groups: Vec<Group>,
    /// How many flips are in no group.
    flips_not_listed: u64,
    not_replayed: BTreeMap<WhyNot, u64>,
    /// Whether there are older decisions in the time that was asked for, beyond `limit`.
    has_more: bool,
}

impl Report {
    fn new(policy_digest: Digest, tally: Tally, has_more: bool) -> Self {
        let flipped: u64 = tally.flips.values().sum();
        let every = Change::ALL.into_iter();
        Self {
            policy_digest,
            decisions: tally.decisions,
            replayed: tally.replayed,
            unchanged: tally.replayed - flipped,
            flips: every
                .map(|change| (change, tally.flips.get(&change).copied().unwrap_or(0)))
                .collect(),
            flips_not_listed: tally.not_listed,
            not_replayed: tally.not_replayed.clone(),
            groups: tally.into_groups(),
            has_more,
        }
    }
}

/// Replays.
pub async fn replay(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    SetJson(body, _room): SetJson<ReplayBody>,
) -> Result<Response, Refusal> {
    let ReplayBody {
        candidate,
        from,
        to,
        limit: asked,
    } = body;
    let candidate = DroppedAside::new(candidate);
    let in_lines = accepts_lines(&headers);
    let limit = limit(asked, in_lines)?;
    let place = in_lines.then(|| outgoing::place(&gateway, caller.tenant()));
    let place = place.transpose()?;
    let candidate = gateway.candidate(caller.tenant(), candidate.into_inner()).await?;
    let candidate = DroppedAside::new(candidate);
    // Compiling waits for its own turn, and nobody should wait for this one meanwhile.
    let permit = Permit::take(&gateway, caller.tenant())?;
    let digest = candidate.after.policies.digest();
    let range = range::within(&*gateway.store, caller.tenant(), from, to).await?;
    let running =
        Running::start(&gateway, candidate.into_inner(), range, limit, permit).map_err(|error| {
            tracing::error!(%error, "a replay could not be started");
            Refusal::no_thread()
        })?;
    if let Some(place) = place {
        let going = Going {
            gateway,
            caller,
            running,
            digest,
            request_id,
        };
        let lines = Lines::Going(Box::new(going));
        let answer = outgoing::of_replay(place, stream::unfold(lines, Lines::next));
        let media_type = HeaderValue::from_static(NDJSON);
        return Ok(([(header::CONTENT_TYPE, media_type)], answer).into_response());
    }
    let (tally, has_more) = running.finish().await?;
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    Ok(Json(Report::new(digest, tally, has_more)).into_response())
}

/// The right to replay, until it is dropped.
struct Permit {
    _of_tenant: Begun,
    _of_all: OwnedSemaphorePermit,
}

impl Permit {
    /// One at a time for a tenant, so that of [`AT_ONCE_MAX`] one is left to another tenant.
    fn take(gateway: &Gateway, tenant: TenantId) -> Result<Self, Refusal> {
        let of_tenant = gateway.policy_replays_of.begin(tenant);
        let of_tenant =
            of_tenant.ok_or_else(|| busy("this tenant replays already; try again when that is done"))?;
        let of_all = Arc::clone(&gateway.policy_replays).try_acquire_owned();
        let of_all = of_all.map_err(|_| {
            busy(format!(
                "this gateway replays {AT_ONCE_MAX} times already; try again when one of them is done"
            ))
        })?;
        Ok(Self {
            _of_tenant: of_tenant,
            _of_all: of_all,
        })
    }
}

fn busy(detail: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Code::ReplayRunning, detail).with_header(header::RETRY_AFTER, BUSY_RETRY_AFTER)
}

/// How many cores replays have: all but one, or the only one.
pub fn cores() -> usize {
    let all = std::thread::available_parallelism().map_or(1, NonZero::get);
    (all - 1).max(1)
}

/// Whether the caller would rather have lines of JSON than one object.
fn accepts_lines(headers: &HeaderMap) -> bool {
    let accepted = Accepted::of(headers);
    let weight = |name| accepted.weight(name).unwrap_or(0);
    weight(NDJSON) > weight("application/json")
}

fn limit(asked: Option<u64>, in_lines: bool) -> Result<u64, Refusal> {
    match asked {
        None if in_lines => Ok(u64::MAX),
        None => Ok(LIMIT),
        Some(limit) if limit >= 1 && (in_lines || limit <= LIMIT_MAX) => Ok(limit),
        Some(_) => Err(Refusal::new(
            Code::InvalidField,
            format!(
                "`limit` is from 1 to {LIMIT_MAX}, or as many as you like with `Accept: application/x-ndjson` alone"
            ),
        )),
    }
}

/// A tenant with another set in place of its own, and without, under the same base policies.
pub(super) struct Candidate {
    /// As it is.
    pub(super) before: Arc<TenantSnapshot>,
    /// As it would be.
    pub(super) after: TenantSnapshot,
    /// By what both are compiled.
    pub(super) compiler: Arc<Compiler>,
}

impl Gateway {
    /// A tenant as it would be with this set in place of its own.
    pub(super) async fn candidate(&self, tenant: TenantId, set: SetBody) -> Result<Candidate, Refusal> {
        let now = self.clock.now();
        let draft = move |directory: &Directory| set.applied_to(directory, now);
        self.compile_draft(tenant, draft, Candidate::of).await?
    }
}

impl Candidate {
    fn of(drafted: Drafted) -> Result<Self, Refusal> {
        let Drafted {
            tenant: before,
            compiler,
            directory,
            policies,
        } = drafted;
        let policies = policies.map_err(|diagnostics| {
            Refusal::new(Code::PolicyInvalid, "the candidate is not valid")
                .with_diagnostics(json!(diagnostics))
        })?;
        let after = TenantSnapshot {
            directory,
            policies,
            ..TenantSnapshot::clone(&before)
        };
        Ok(Self {
            before,
            after,
            compiler,
        })
    }
}

/// A stream of lines: how far it is, again and again, then what came of it.
enum Lines {
    Going(Box<Going>),
    Ended,
}

/// A replay whose last line has not been sent yet.
struct Going {
    gateway: Arc<Gateway>,
    caller: TenantCaller,
    running: Running,
    digest: Digest,
    request_id: RequestId,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Progress(Progress),
    Result(Box<Report>),
}

impl Lines {
    async fn next(self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        let Self::Going(mut going) = self else {
            return None;
        };
        let (line, rest) = match going.line().await {
            Ok(line @ Line::Progress(_)) => (text(&line), Self::Going(going)),
            Ok(line @ Line::Result(_)) => (text(&line), Self::Ended),
            // The status has gone out already, so the problem is the last line.
            Err(refusal) => {
                going.request_id.note(&going.gateway, &refusal);
                let problem = refusal.to_problem(going.request_id.as_str());
                (format!("{{\"problem\":{problem}}}\n"), Self::Ended)
            }
        };
        Some((Ok(line.into()), rest))
    }
}

impl Going {
    /// The next line, as long as its caller may read it.
    async fn line(&mut self) -> Result<Line, Refusal> {
        let ended = tokio::time::timeout(PACE, self.running.ended()).await;
        self.caller.check(&self.gateway)?;
        match ended {
            Err(_) => Ok(Line::Progress(self.running.progress())),
            Ok(ended) => {
                let (tally, has_more) = ended?;
                Ok(Line::Result(Box::new(Report::new(self.digest, tally, has_more))))
            }
        }
    }
}

fn text(line: &Line) -> String {
    let mut text = serde_json::to_string(line).expect("strings and numbers always serialize");
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_those_who_ask_for_them() {
        for (accept, expected) in [
            ("application/x-ndjson", true),
            ("application/json;q=0.1, application/x-ndjson; q=1", true),
            ("application/json;q=0.5, Application/X-NDJSON;q=0.6", true),
            ("application/json, application/x-ndjson", false),
            ("application/json, application/x-ndjson;q=0.1", false),
            ("application/x-ndjson;q=0", false),
            ("application/json", false),
            ("*/*", false),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(accepts_lines(&headers), expected, "{accept}");
        }
        assert!(!accepts_lines(&HeaderMap::new()));
    }

    #[test]
    fn an_answer_at_once_has_a_bound_and_lines_have_none() {
        assert_eq!(limit(None, false).unwrap(), LIMIT);
        assert_eq!(limit(Some(LIMIT_MAX), false).unwrap(), LIMIT_MAX);
        assert_eq!(limit(Some(LIMIT_MAX + 1), true).unwrap(), LIMIT_MAX + 1);
        assert_eq!(limit(None, true).unwrap(), u64::MAX);
        for (asked, in_lines) in [(0, false), (0, true), (LIMIT_MAX + 1, false)] {
            assert_eq!(
                limit(Some(asked), in_lines).unwrap_err().code(),
                Code::InvalidField
            );
        }
    }
}
