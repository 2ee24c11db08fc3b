//! `POST /v1/policies/try`: what the policies, or others in their place, would say to some asks, and why.

use super::replace::SetBody;
use crate::directory::{find_agent, read};
use crate::gateway::Gateway;
use crate::http::json::DEPTH_MAX;
use crate::http::request_id::RequestId;
use crate::http::{Code, Json, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use engine::{Ask, Evidence, TenantSnapshot, judge};
use model::{ReasonCode, Verdict};
use policy::Explanation;
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

/// What came of all asks, in order.
#[derive(Debug, Serialize)]
pub struct Tried {
    results: Vec<Item>,
}

/// What came of one.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Item {
    Answer(Box<Answer>),
    Problem(Box<RawValue>),
}

#[derive(Debug, Serialize)]
struct Answer {
    /// What would be answered, grants and standing included.
    decision: Verdict,
    reason_code: ReasonCode,
    reason: String,
    matched_policies: Vec<String>,
    obligations: Vec<String>,
    /// What the policies say by themselves; absent if the action is not registered or the ask does not fit it.
    #[serde(skip_serializing_if = "Option::is_none")]
    policies: Option<Explanation>,
}

/// Tries. Nothing is recorded, and no bucket is taken from.
pub async fn try_asks(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Extension(request_id): Extension<RequestId>,
    SetJson(trial): SetJson<Trial>,
) -> Result<Json<Tried>, Refusal> {
    if trial.asks.is_empty() || trial.asks.len() > ASKS_MAX {
        let detail = format!("`asks` has 1 to {ASKS_MAX} items");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    let tenant = read(&gateway, &caller)?;
    let tenant = match trial.candidate {
        None => tenant,
        Some(set) => Arc::new(gateway.candidate(&tenant, &set).await?),
    };
    let mut results = Vec::with_capacity(trial.asks.len());
    for ask in &trial.asks {
        let answer = gateway.try_one(&tenant, ask).await;
        results.push(answer.map_or_else(
            |refusal| Item::Problem(problem(&refusal, request_id.as_str())),
            |answer| Item::Answer(Box::new(answer)),
        ));
    }
    Ok(Json(Tried { results }))
}

fn problem(refusal: &Refusal, request_id: &str) -> Box<RawValue> {
    RawValue::from_string(refusal.to_problem(request_id)).expect("a problem is written as JSON")
}

impl Gateway {
    async fn try_one(&self, tenant: &TenantSnapshot, ask: &RawValue) -> Result<Answer, Refusal> {
        let limits = canon::Limits {
            bytes_max: self.options.body_bytes_max,
            depth_max: DEPTH_MAX,
        };
        let ask = Ask::parse(&canon::canonicalize(ask.get().as_bytes(), limits)?)?;
        let agent = ask.claimed_agent.ok_or_else(|| {
            let detail = "`agent.id` says whose ask it is: it is needed here";
            Refusal::new(Code::InvalidField, detail)
        })?;
        let agent = find_agent(&tenant.directory, &agent.to_string())?;
        let now = self.clock.now();
        let counted = self.counted(tenant, agent, &ask).await?;
        let usage = Arc::new(counted.usage(tenant, agent, &ask, now));
        let evidence = Evidence {
            usage: Some(&usage),
            ..Evidence::default()
        };
        let judgement = judge::judge(tenant, agent, &ask, &evidence, now)?;
        Ok(Answer {
            decision: judgement.verdict(),
            reason_code: judgement.reason,
            reason: judgement.explanation,
            matched_policies: judgement.matched,
            obligations: judgement.obligations,
            policies: judge::explain(tenant, agent, &ask, &usage, now).and_then(Result::ok),
        })
    }
}
