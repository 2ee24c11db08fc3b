//! `POST /v1/authorize`: the life of an authorization, top to bottom.
//!
//! What is decided stands in the crate `engine`; here it is put in order: standing before repeats, repeats before
//! limits, limits before policy, and nothing answered before it is recorded.

mod accepted;
mod admitted;
mod approval;
pub mod batch;
mod costs;
mod long;
mod looked_up;
mod unjudged;
pub(crate) mod usage;

pub(crate) use accepted::Accepted;
use admitted::Admitted;
pub(crate) use admitted::{Received, X_REQUEST_TIMEOUT_MS};
use long::Waiting;
use looked_up::LookedUp;
use unjudged::Unjudged;

use crate::admission::Permit;
use crate::changes;
use crate::gateway::Gateway;
use crate::http::json::Bounds;
use crate::http::room::Taken;
use crate::http::{AgentCaller, CanonicalBody, Code, Refusal, idempotency, query};
use crate::limits::{Asking, Short, Tokens, quota};
use crate::recording::ATTEMPTS_MAX;
use crate::repeats::Given;
use crate::sequencer::{CommitProof, CommitStatus, Terms};
use axum::Extension;
use axum::body::HttpBody;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::judge::{may_repeat_allow, run_and_parent, worst_source};
use engine::proposal::{ApprovalUse, Intent};
use engine::quotas::{self, QuotaUse};
use engine::runs::Sighting;
use engine::{
    Ask, Conflict, Decided, DryRun, Judgement, LookedUpFacts, Mode, NamedRequest, Proposal, ProposedDecision,
    Records, RepeatRule, Salt, TenantSnapshot, judge,
};
use model::{Agent, ApprovalId, DecisionId, Name, ReasonCode, ReservationId, TenantId, Timestamp, Verdict};
use policy::Fuel;
use std::sync::Arc;
use std::time::Instant;
use store::RequestKey;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// An answer that may leave: the bytes are on disk, or belong to a dry run.
pub struct Answer(pub(crate) Bytes);

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        (
            [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
            self.0,
        )
            .into_response()
    }
}

/// The handler of `POST /v1/authorize` in the table of routes. A running gateway does not come here: `App` takes asks
/// past the router to `answer`. It makes the table complete, and a test holds both ways against each other
/// (`both_ways_give_an_ask_the_same_response`).
pub async fn authorize(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    request: Request,
) -> Result<Answer, Refusal> {
    answer(&gateway, caller, request, Received::HeadOnly).await
}

/// The answer to the ask of an agent.
pub(crate) async fn answer(
    gateway: &Arc<Gateway>,
    caller: AgentCaller,
    request: Request,
    received: Received,
) -> Result<Answer, Refusal> {
    query::refuse_any(request.uri())?;
    // Whoever was admitted early is in the lane already if it belongs there.
    let is_where_it_belongs = received.has_place();
    let (admitted, request) = Admitted::new(gateway, caller, request, received).await?;
    if is_where_it_belongs || !admitted.permit.is_of_flood() {
        return answer_admitted(gateway, admitted, request, None).await;
    }
    // It may wait long before it is read.
    let bounds = Bounds::of(&gateway.options).of_agents_of(admitted.caller.tenant);
    let unread = usize::try_from(request.body().size_hint().lower()).unwrap_or(usize::MAX);
    let unread = bounds.keep(unread)?;
    gateway.metrics.count_slow_lane();
    let answering = Arc::clone(gateway);
    let answer = async move { answer_admitted(&answering, admitted, request, unread).await };
    gateway.slow_lane.run(answer).await
}

/// The answer to an ask that has its place; `unread` is the room that its body has had until now.
async fn answer_admitted(
    gateway: &Gateway,
    admitted: Admitted,
    request: Request,
    unread: Option<Taken>,
) -> Result<Answer, Refusal> {
    let Admitted {
        caller,
        deadline,
        mut permit,
    } = admitted;
    let (parts, body) = request.into_parts();
    let headers = &parts.headers;
    let bounds = Bounds::of(&gateway.options).of_agents_of(caller.tenant);
    let CanonicalBody(text) = CanonicalBody::read(headers, body, bounds).await?;
    drop(unread);
    let _room = bounds.keep(text.as_bytes().len())?;
    let key = idempotency::key(headers)?;
    let mut ask = Ask::parse_named(&text, key.as_ref())?.delegated(&caller.delegation)?;
    drop(text);
    check_idempotency_key(&ask, key.as_ref())?;
    ask.trace_id = ask.trace_id.or_else(|| trace_id(headers));
    let ask = Arc::new(ask);
    gateway.authorize(&caller, deadline, &ask, &mut permit).await
}

/// `POST /v1/decide`: says what would be answered to an ask, and what budgets have for it. Nothing is recorded, held or taken.
pub async fn decide(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    request: Request,
) -> Result<Answer, Refusal> {
    query::refuse_any(request.uri())?;
    let accepted = Accepted::new(&gateway, caller, request).await?;
    let answer = |mut accepted: Accepted| async move {
        // An `Idempotency-Key` stands for nothing, because nothing is recorded; one that is none is refused all the same.
        let ask = Ask {
            mode: Mode::DryRun,
            ..Ask::parse_named(&accepted.text, accepted.key.as_ref())?
        };
        accepted.answer(ask).await.map(Answer)
    };
    accepted.where_it_belongs(answer).await
}

impl Gateway {
    /// Judges an ask, records what was found, and makes the answer of the receipt. How long the ask has had its place
    /// says something unless it is refused before anything is to be recorded.
    async fn authorize(
        &self,
        caller: &AgentCaller,
        deadline: Option<Instant>,
        ask: &Arc<Ask>,
        permit: &mut Permit,
    ) -> Result<Answer, Refusal> {
        let mut tokens_taken = false;
        for _ in 0..ATTEMPTS_MAX {
            let mut attempt = Attempt {
                caller,
                ask,
                looked_up: self.look_up(caller, ask, tokens_taken, deadline).await?,
                tokens_taken: &mut tokens_taken,
            };
            let waiting = Waiting {
                deadline,
                permit: Some(&mut *permit),
                no_permit: &mut None,
            };
            let ready = match self.prepare_lending(&mut attempt, waiting).await? {
                Step::Answer(answer) => {
                    permit.note_asks(1);
                    return Ok(answer);
                }
                Step::Unjudged(unjudged) => {
                    let is_misuse = unjudged.is_misuse();
                    let answer = self.unjudged(caller, ask, unjudged).await;
                    permit.note_asks(u32::from(is_misuse || answer.is_ok()));
                    return answer;
                }
                Step::Fill(_) | Step::LookAgain => continue,
                Step::Record(ready) => ready,
            };
            // From here on it waits as all do that are recorded, also if it is turned back in the commit.
            permit.note_asks(1);
            let after_commit = ready.after_commit;
            let terms = Terms {
                deadline,
                contents_as_of: Some(ready.contents_as_of),
            };
            let recorded = self.sequencer.record_with(terms, ready.proposal).await?;
            if let Some(answer) = self.conclude(caller, ask, after_commit, recorded)? {
                return Ok(Answer(answer));
            }
        }
        Err(Refusal::contended())
    }

    /// The answer that was recorded; `None` if the ask has to be judged again, because the directory, the approval or
    /// the run has changed.
    fn conclude(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        after_commit: AfterCommit,
        recorded: CommitStatus,
    ) -> Result<Option<Bytes>, Refusal> {
        match recorded {
            CommitStatus::Recorded(proof) => {
                let after_commit = after_commit.as_recorded(&proof);
                // A denial beside an earlier allow, which its id keeps standing for, is not the answer to that id.
                let is_named = proof.is_named();
                let answer = proof.into_answer();
                self.wake_waiting(caller.tenant, after_commit);
                if is_named {
                    self.remember(caller, ask, after_commit, &answer);
                }
                Ok(Some(answer))
            }
            CommitStatus::Repeated(answer) => {
                self.metrics.count_repeat();
                Ok(Some(answer))
            }
            // What was judged may not hold any more.
            CommitStatus::Conflict(
                Conflict::DirectoryMoved { .. } | Conflict::Approval(_) | Conflict::RunMoved,
            ) => Ok(None),
            CommitStatus::Conflict(Conflict::QuotaExceeded(over)) => {
                Err(quota::exceeded(&over, self.clock.now()))
            }
            CommitStatus::Conflict(Conflict::RequestReused) => Err(reused()),
            // Only other proposals than decisions come to these.
            CommitStatus::Conflict(
                Conflict::OutcomeReported
                | Conflict::OutcomesUnknown(_)
                | Conflict::Erased(_)
                | Conflict::Budget(_),
            ) => Err(changes::unexpected()),
        }
    }

    /// What comes next for an ask, as [`prepare`](Self::prepare) has it. Tokens of shared buckets that are missing are
    /// lent, and taken at once: whoever looked things up anew before that would often find that others have taken them.
    /// Where others were faster all the same it is [`Step::Fill`] again.
    ///
    /// What takes long waits for a permit among those that do, and is judged on a thread that nobody else waits for.
    async fn prepare_lending(
        &self,
        attempt: &mut Attempt<'_>,
        waiting: Waiting<'_>,
    ) -> Result<Step, Refusal> {
        let tenant = attempt.caller.tenant;
        let fuel = self.worker_steps.fuel(tenant, Instant::now());
        let mut step = self.prepare(attempt, Some(&fuel));
        if let Ok(Some(Step::Fill(short))) = step {
            self.limits.fill(&short).await?;
            step = self.prepare(attempt, Some(&fuel));
        }
        // Also what was done of an ask that is refused, or goes on elsewhere.
        self.worker_steps.note(tenant, &fuel, Instant::now());
        match step? {
            Some(step) => Ok(step),
            None => self.prepare_long(attempt, waiting).await,
        }
    }

    /// What comes next for an ask: an answer, or what has to be looked up, filled or recorded first; `None` if the fuel
    /// is used up, and only then.
    fn prepare(&self, attempt: &mut Attempt<'_>, fuel: Option<&Fuel>) -> Result<Option<Step>, Refusal> {
        let step = self.next_step(attempt, fuel)?;
        // What is recorded is turned back where another gateway has changed the tenant. This is not, and it may be long
        // since its head was looked at.
        if matches!(step, Some(Step::Answer(_))) {
            self.check_answer_is_current(attempt.looked_up.as_of)?;
        }
        Ok(step)
    }

    /// The same, whether or not it may still be said.
    fn next_step(&self, attempt: &mut Attempt<'_>, fuel: Option<&Fuel>) -> Result<Option<Step>, Refusal> {
        let (caller, ask, looked_up) = (attempt.caller, attempt.ask, &attempt.looked_up);
        let takes_long = || fuel.is_some_and(Fuel::is_used_up);
        let facts = looked_up.facts(fuel);
        let now = self.clock.now();
        let snapshot = self.snapshot.load();
        let tenant = snapshot
            .tenant(caller.tenant)
            .ok_or_else(Refusal::ledger_unavailable)?;
        let agent = caller.refresh(tenant, now)?;
        // Policies that came into force a moment ago may look at what was not looked up, and after any other change the
        // ask may count against something else.
        let lacks_usage = tenant.policies.looks_at_usage() && facts.usage.is_none();
        if lacks_usage || looked_up.counts_by_another(tenant) {
            return Ok(Some(Step::LookAgain));
        }
        // Before earlier answers: a dry run is never recorded, so whatever id it carries stands for nothing. What its
        // buckets have was looked up.
        if ask.mode == Mode::DryRun {
            let judgement = judge(tenant, &agent, ask, &facts, now);
            if takes_long() {
                return Ok(None);
            }
            let answer = dry_run((tenant, &agent, ask), looked_up, judgement?, now)?;
            return Ok(Some(Step::Answer(answer)));
        }
        let repeat = if may_repeat_allow(tenant, &agent, ask) {
            RepeatRule::Any
        } else {
            RepeatRule::DenialsOnly
        };
        if let Some(answer) = self.repeated(caller, ask, repeat)? {
            return Ok(Some(Step::Answer(answer)));
        }
        if !*attempt.tokens_taken {
            let tokens = self.limits.take(&asking(tenant, &agent, ask), now)?;
            if let Tokens::Short(short) = tokens {
                return Ok(Some(Step::Fill(short)));
            }
            *attempt.tokens_taken = true;
        }
        let judgement = judge(tenant, &agent, ask, &facts, now);
        // Before anybody looks at what was found.
        if takes_long() {
            return Ok(None);
        }
        let judgement = match judgement {
            // What is only observed holds nothing: whether there would be enough is told as of a moment ago.
            Ok(judgement) if ask.mode == Mode::Observe => looked_up.counted.quoted(&agent, ask, judgement).0,
            Ok(judgement) => judgement,
            Err(refusal) => {
                let unjudged = Unjudged::new(refusal, repeat, looked_up.as_of);
                return Ok(Some(Step::Unjudged(unjudged)));
            }
        };
        let ready = self.ready(&JudgedAsk {
            caller,
            ask,
            agent: &agent,
            tenant,
            facts: &facts,
            judgement: &judgement,
            repeat,
            now,
        });
        Ok(Some(Step::Record(Box::new(ready))))
    }

    /// What is to be recorded of an ask that was judged.
    fn ready(&self, judged_ask: &JudgedAsk<'_>) -> Ready {
        let JudgedAsk {
            caller,
            ask,
            agent,
            tenant,
            judgement,
            now,
            ..
        } = *judged_ask;
        let mut decided = Decided {
            id: DecisionId::new(now, &*self.entropy),
            ask,
            agent,
            judgement,
            tenant,
            approval: None,
            budget: None,
            now,
            salt: Salt::new(&*self.entropy),
        };
        let asked = decided.approval_to_ask_for(ApprovalId::new(now, &*self.entropy));
        decided.approval = asked.as_ref();
        // INVARIANT: the number is read before it is asked what is stored. Read afterwards, it would hide that
        // something which is left out was lost in between.
        let contents_as_of = self.sequencer.losses();
        let contents = decided.contents(|digest| self.sequencer.is_stored(caller.tenant, digest));
        let reservation = ReservationId::new(now, &*self.entropy);
        let costed = judged_ask.costed(decided.id, reservation, decided.salt);
        let decision = ProposedDecision {
            records: costed.map_or_else(|| Records::Worded(decided.word()), Records::Costed),
            id: decided.id,
            agent: agent.id,
            tool: ask.action.tool.clone().into(),
            action: ask.action.action.clone(),
            run_id: ask.run().cloned(),
            request: request_key(caller, ask).map(|key| NamedRequest {
                key,
                ask: ask.digest,
                repeat: judged_ask.repeat,
            }),
            approval: approval_use(&decided),
            sighting: sighting(&decided, judged_ask.facts),
            quotas: quotas_of(tenant, agent, ask, judgement.enforced_verdict()),
            quarantine: judgement.quarantine.clone(),
            shadow: judgement.shadow.as_ref().map(|shadow| shadow.reason.verdict()),
            contents,
        };
        Ready {
            after_commit: AfterCommit {
                reason: judgement.reason,
                spends_approval: judgement.spends_approval.is_some(),
                forgotten: self.repeats.forgotten(),
            },
            contents_as_of,
            proposal: Proposal::of(tenant, Intent::Decision(Box::new(decision))),
        }
    }

    /// The answer that was given to this ask before, if it is still at hand.
    fn repeated(
        &self,
        caller: &AgentCaller,
        ask: &Ask,
        repeat: RepeatRule,
    ) -> Result<Option<Answer>, Refusal> {
        let Some(key) = request_key(caller, ask) else {
            return Ok(None);
        };
        match self.repeats.find(&key) {
            Some(given) if given.ask != ask.digest => Err(reused()),
            Some(given) if repeat.permits(given.verdict) => {
                self.metrics.count_repeat();
                Ok(Some(Answer(given.answer)))
            }
            _ => Ok(None),
        }
    }

    /// Wakes whoever waits for an approval that is used up now.
    fn wake_waiting(&self, tenant: TenantId, after_commit: AfterCommit) {
        if after_commit.spends_approval {
            self.approval_waiters.notify(tenant);
        }
    }

    fn remember(&self, caller: &AgentCaller, ask: &Ask, after_commit: AfterCommit, answer: &Bytes) {
        if let Some(key) = request_key(caller, ask) {
            let given = Given {
                ask: ask.digest,
                verdict: after_commit.reason.verdict(),
                answer: answer.clone(),
            };
            self.repeats.remember(&key, &given, after_commit.forgotten);
        }
    }
}

/// The answer to an ask that nothing is recorded of, which was judged.
fn dry_run(
    (tenant, agent, ask): (&TenantSnapshot, &Agent, &Ask),
    looked_up: &LookedUp,
    judgement: Judgement,
    now: Timestamp,
) -> Result<Answer, Refusal> {
    let quotas = quotas_of(tenant, agent, ask, judgement.verdict());
    let counted = &looked_up.counted;
    counted
        .check(&quotas, now)
        .map_err(|over| quota::exceeded(&over, now))?;
    let (judgement, budget) = counted.quoted(agent, ask, judgement);
    let dry_run = DryRun {
        ask,
        agent,
        judgement: &judgement,
        tenant,
        budget: budget.as_ref(),
        now,
    };
    Ok(Answer(dry_run.answer().into()))
}

/// Whose buckets an ask takes from.
fn asking<'a>(tenant: &'a TenantSnapshot, agent: &'a Agent, ask: &'a Ask) -> Asking<'a> {
    Asking {
        tenant: &tenant.directory.tenant,
        agent,
        tool: ask.action.tool.as_str(),
    }
}

/// An ask on its way to a step.
struct Attempt<'a> {
    caller: &'a AgentCaller,
    ask: &'a Arc<Ask>,
    looked_up: LookedUp,
    /// Whether the buckets were taken from already, now or before.
    tokens_taken: &'a mut bool,
}

/// What comes after judging.
enum Step {
    /// There is an answer already.
    Answer(Answer),
    /// There may be one when these tokens are there.
    Fill(Short),
    /// There may be one when what policies look at, or what it counts against by now, is looked up.
    LookAgain,
    /// There is none, unless it was given before.
    Unjudged(Unjudged),
    /// There will be one when this is recorded.
    Record(Box<Ready>),
}

/// An ask that was judged, with everything that its decision is made from.
struct JudgedAsk<'a> {
    caller: &'a AgentCaller,
    ask: &'a Arc<Ask>,
    agent: &'a Arc<Agent>,
    tenant: &'a Arc<TenantSnapshot>,
    facts: &'a LookedUpFacts<'a>,
    judgement: &'a Judgement,
    repeat: RepeatRule,
    now: Timestamp,
}

/// A judged ask that is ready to be recorded.
struct Ready {
    after_commit: AfterCommit,
    /// The value of [`Sequencer::losses`](crate::sequencer::Sequencer::losses) before contents were left out that are stored.
    contents_as_of: u64,
    proposal: Proposal,
}

/// What has to be known of a decision when it has been recorded.
#[derive(Debug, Clone, Copy)]
struct AfterCommit {
    reason: ReasonCode,
    /// Whether what people said is used up. What they are only asked now nobody can be waiting for.
    spends_approval: bool,
    /// The value of [`Repeats::forgotten`](crate::repeats::Repeats::forgotten()) before it was recorded.
    forgotten: u64,
}

impl AfterCommit {
    /// What was recorded: budgets may have had not enough.
    fn as_recorded(self, proof: &CommitProof) -> Self {
        match proof.denied() {
            Some(reason) => Self {
                reason,
                spends_approval: false,
                ..self
            },
            None => self,
        }
    }
}

/// The quotas that an ask counts towards: none unless it is allowed, or, where it is only observed, would be.
fn quotas_of(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask, verdict: Verdict) -> Vec<QuotaUse> {
    if verdict == Verdict::Allow {
        quotas::uses(tenant, agent, &ask.into())
    } else {
        Vec::new()
    }
}

/// What the ask shows to its run, if that is kept.
fn sighting(decided: &Decided<'_>, facts: &LookedUpFacts<'_>) -> Option<Sighting> {
    decided.judgement.run_worst?;
    let (run_id, parent) = run_and_parent(decided.ask)?;
    Some(Sighting {
        run_id: run_id.clone(),
        parent: parent.cloned(),
        seen: worst_source(
            decided.ask,
            decided.judgement.trust,
            decided.judgement.provenance.as_deref(),
        ),
        judged_with: facts.run.map(|run| run.worst),
    })
}

fn approval_use(decided: &Decided<'_>) -> Option<ApprovalUse> {
    let (spends, ask) = (decided.judgement.spends_approval, decided.ask);
    let spends = spends.map(|id| ApprovalUse::Spends {
        id,
        user: ask.user.clone(),
        action: ask.action.digest,
    });
    spends.or_else(|| {
        let asked = decided.approval.cloned()?;
        Some(ApprovalUse::Asks(Box::new(asked)))
    })
}

fn request_key(caller: &AgentCaller, ask: &Ask) -> Option<RequestKey> {
    ask.request_id.clone().map(|request_id| RequestKey {
        tenant: caller.tenant,
        agent: caller.agent.id,
        request_id,
    })
}

fn reused() -> Refusal {
    Refusal::new(
        Code::IdempotencyKeyReused,
        "this request id was used for another ask; a new ask needs a new id",
    )
}

/// A request may send `Idempotency-Key` in place of `request_id`; it was then read as that. Where both are there they
/// have to be the same.
fn check_idempotency_key(ask: &Ask, key: Option<&Name>) -> Result<(), Refusal> {
    if key.is_some() && ask.request_id.as_ref() != key {
        return Err(idempotency::invalid(
            "differs from `request_id`; send one of them, or the same in both",
        ));
    }
    Ok(())
}

/// The trace id of a `traceparent` header (W3C Trace Context, section 3.2). One that is not valid is ignored. Versions
/// to come may say more behind the flags.
fn trace_id(headers: &HeaderMap) -> Option<Name> {
    let value = headers.get(TRACEPARENT)?.to_str().ok()?;
    let mut parts = value.split('-');
    let (version, trace_id) = (parts.next()?, parts.next()?);
    let (parent_id, flags) = (parts.next()?, parts.next()?);
    let is_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let is_id = |text: &str, length| is_hex(text, length) && text.bytes().any(|byte| byte != b'0');
    let valid = is_hex(version, 2)
        && version != "ff"
        && is_id(trace_id, 32)
        && is_id(parent_id, 16)
        && is_hex(flags, 2)
        && (version != "00" || parts.next().is_none());
    if valid { Name::new(trace_id).ok() } else { None }
}
