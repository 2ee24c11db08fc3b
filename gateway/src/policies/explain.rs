//! `POST /v1/policies/try`: what the policies, or others in their place, would say to some asks, and why.

use super::replace::SetBody;
use crate::changes::{DraftTurns, DroppedAside};
use crate::directory::{find_agent, read};
use crate::gateway::Gateway;
use crate::http::json::DEPTH_MAX;
use crate::http::request_id::RequestId;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use crate::reader::in_place;
use axum::Extension;
use axum::extract::State;
use engine::{Ask, LookedUpFacts, TenantSnapshot, judge};
use model::{Agent, Approval, ReasonCode, RunTaint, Timestamp, Usage, Verdict};
use policy::{Explanation, Fuel, Obligation};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::sync::Arc;

/// As many asks as an agent may put at once.
const ASKS_MAX: usize = 100;

/// What to try.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// A set in place of the tenant's own.
    #[serde(default)]
    candidate: Option<SetBody>,
    /// Asks that name their agent.
    asks: Vec<Box<RawValue>>,
}

/// The longest answer to more than one ask, in bytes. What is told of an ask grows with the policies that are about it.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What is said where an ask was not tried to its end: hardly ever to anybody, because it ends for whoever hangs up.
const BROKEN_OFF: &str = "the policies could not be tried";

/// What came of all asks, in order: an answer or a problem each.
#[derive(Debug, Serialize)]
pub struct Tried {
    results: Vec<Box<RawValue>>,
}

#[derive(Debug, Serialize)]
struct Answer {
    /// What would be answered, grants and standing included.
    decision: Verdict,
    reason_code: ReasonCode,
    reason: String,
    matched_policies: Vec<String>,
    obligations: Vec<Obligation>,
    /// What the policies say by themselves; absent if the action is not registered or the ask does not fit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Explanation>,
}

/// What is tried.
struct Trying {
    tenant: Arc<TenantSnapshot>,
    agent: Arc<Agent>,
    ask: Ask,
}

/// What was looked up for it, at this time.
struct Found {
    now: Timestamp,
    approval: Option<Approval>,
    run: Option<RunTaint>,
    usage: Arc<Usage>,
}

/// Tries. Nothing is recorded, and no bucket is taken from.
pub async fn try_asks(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Extension(request_id): Extension<RequestId>,
    SetJson(trial, _room): SetJson<Trial>,
) -> Result<Json<Tried>, Refusal> {
    let Trial { candidate, asks } = trial;
    let (candidate, asks) = (candidate.map(DroppedAside::new), DroppedAside::new(asks));
    if asks.is_empty() || asks.len() > ASKS_MAX {
        let detail = format!("`asks` has 1 to {ASKS_MAX} items");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    let tenant = match candidate {
        None => read(&gateway, &caller)?,
        Some(set) => Arc::new(gateway.candidate(caller.tenant(), set.into_inner()).await?.after),
    };
    let tenant = DroppedAside::new(tenant);
    let mut results = Vec::with_capacity(asks.len());
    let (mut bytes, mut has_begun) = (0, false);
    for ask in asks.iter() {
        let answer = match gateway.try_one(&tenant, ask, &mut has_begun).await {
            Err(refusal) if !has_begun && refusal.code() == Code::Overloaded => return Err(refusal),
            answer => answer,
        };
        let result = answer.unwrap_or_else(|refusal| {
            request_id.note_part(&gateway, &refusal);
            problem(&refusal, request_id.as_str())
        });
        bytes += result.get().len();
        if bytes > ANSWER_BYTES_MAX && !results.is_empty() {
            return Err(too_long(results.len()));
        }
        results.push(result);
    }
    // It took its time, and whoever asked may not read any more.
    caller.check(&gateway)?;
    Ok(Json(Tried { results }))
}

fn problem(refusal: &Refusal, request_id: &str) -> Box<RawValue> {
    RawValue::from_string(refusal.to_problem(request_id)).expect("a problem is written as JSON")
}

fn too_long(fit: usize) -> Refusal {
    let detail = format!(
        "`asks`: the answer would have more than {ANSWER_BYTES_MAX} bytes, because many policies are about them; put {fit} at once"
    );
    Refusal::new(Code::InvalidField, detail)
}

impl Gateway {
    /// The answer to one ask, written as JSON. Policies are asked, and told of, where nobody waits for a decision.
    async fn try_one(
        self: &Arc<Self>,
        tenant: &Arc<TenantSnapshot>,
        ask: &RawValue,
        has_begun: &mut bool,
    ) -> Result<Box<RawValue>, Refusal> {
        let limits = canon::Limits {
            bytes_max: self.options.body_bytes_max,
            depth_max: DEPTH_MAX,
        };
        let ask = Ask::parse(&canon::canonicalize(ask.get().as_bytes(), limits)?)?;
        let agent = ask.claimed_agent.ok_or_else(|| {
            let detail = "`agent.id` says whose ask it is: it is needed here";
            Refusal::new(Code::InvalidField, detail)
        })?;
        let agent = Arc::clone(find_agent(&tenant.directory, &agent.to_string())?);
        let trying = Arc::new(Trying {
            tenant: Arc::clone(tenant),
            agent,
            ask,
        });
        // A permit for each, here and below: whoever has one draft waits for one ask, and not for all of them. What has
        // begun goes on, however long it waits.
        let found = self.look_up_in_line(&trying, *has_begun).await?;
        let id = tenant.directory.tenant.id;
        let permit = if *has_begun {
            self.drafts.acquire_for_part(id).await
        } else {
            self.drafts.acquire(id).await?
        };
        *has_begun = true;
        // One ask may take seconds. Others come in between then, and it ends when the caller hangs up.
        let (turns, _waiting) = DraftTurns::begin(&self.drafts, permit);
        let work = tokio::task::spawn_blocking(move || {
            let fuel = Fuel::while_it_goes_on(move || turns.goes_on());
            let answer = Answer::of(&trying, &found, &fuel);
            if fuel.is_used_up() {
                return Err(Refusal::new(Code::Internal, BROKEN_OFF));
            }
            answer
                .map(|answer| serde_json::value::to_raw_value(&answer).expect("an answer is written as JSON"))
        });
        work.await.unwrap_or_else(|error| {
            Err(Refusal::broken_off(
                &error,
                "trying policies broke off",
                BROKEN_OFF,
            ))
        })
    }

    /// Looks up what the ask is judged with, when there is a place for that among those that read the store.
    async fn look_up_in_line(
        self: &Arc<Self>,
        trying: &Arc<Trying>,
        has_begun: bool,
    ) -> Result<Found, Refusal> {
        let id = trying.tenant.directory.tenant.id;
        let permit = if has_begun {
            self.reads.acquire_for_part(id).await
        } else {
            self.reads.acquire(id).await?
        };
        let (gateway, trying) = (Arc::clone(self), Arc::clone(trying));
        let look = async move { gateway.look_up_for_trial(&trying).await };
        in_place(permit, look).await?
    }

    async fn look_up_for_trial(&self, trying: &Trying) -> Result<Found, Refusal> {
        let Trying { tenant, agent, ask } = trying;
        let now = self.clock.now();
        let counted = self.counted(tenant, agent, ask).await?;
        Ok(Found {
            now,
            approval: self.approval_of(tenant.directory.tenant.id, ask).await?,
            run: self.run_of(tenant, ask).await?,
            usage: Arc::new(counted.usage(tenant, agent, ask, now)),
        })
    }
}

impl Answer {
    /// The answer, if the fuel is not used up by then.
    fn of(trying: &Trying, found: &Found, fuel: &Fuel) -> Result<Self, Refusal> {
        let Trying { tenant, agent, ask } = trying;
        let now = found.now;
        let facts = LookedUpFacts {
            approval: found.approval.as_ref(),
            run: found.run.as_ref(),
            usage: Some(&found.usage),
            fuel: Some(fuel),
            ..LookedUpFacts::default()
        };
        let judgement = judge::judge(tenant, agent, ask, &facts, now)?;
        Ok(Self {
            decision: judgement.verdict(),
            reason_code: judgement.reason,
            reason: judgement.explanation,
            matched_policies: judgement.matched,
            obligations: judgement.obligations,
            policies: judge::explain(tenant, agent, ask, &facts, now).and_then(Result::ok),
        })
    }
}
