//! `…/quota/probe`: whether a call would pass the limits, and if not, when. Nothing is taken and nothing is counted.

use super::super::{find_agent, read};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Json, Query, Refusal, TenantCaller};
use crate::limits::{self, Asking, Tokens};
use axum::Extension;
use axum::extract::{Path, State};
use engine::TenantSnapshot;
use engine::quotas::{self, Asked};
use model::{Agent, Name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A call that somebody would like to know about.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeQuery {
    tool: Name,
    action: Name,
    #[serde(default)]
    mutates_state: bool,
    run_id: Option<Name>,
    parent_run_id: Option<Name>,
}

/// Whether a call would pass the limits.
#[derive(Debug, Serialize)]
pub struct ProbeView {
    passes: bool,
    /// What it would be refused with: of all limits that it would not pass, by the one that opens last.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// When it would pass, if nobody else asks; `None` as well if waiting does not help.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

impl From<Option<Refusal>> for ProbeView {
    fn from(refusal: Option<Refusal>) -> Self {
        Self {
            passes: refusal.is_none(),
            code: refusal.as_ref().map(|refusal| refusal.code().as_str()),
            detail: refusal.as_ref().map(|refusal| refusal.detail().to_owned()),
            retry_after_seconds: refusal.as_ref().and_then(Refusal::retry_after_seconds),
        }
    }
}

/// `GET /v1/quota/probe`
pub async fn get_own(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Query(query): Query<ProbeQuery>,
) -> Result<Json<ProbeView>, Refusal> {
    let tenant = gateway.tenant(caller.tenant)?;
    probe(&gateway, &tenant, &caller.agent, &query).await
}

/// `GET /v1/agents/{id}/quota/probe`
pub async fn get_of_agent(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Query(query): Query<ProbeQuery>,
) -> Result<Json<ProbeView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let agent = find_agent(&tenant.directory, &id)?;
    probe(&gateway, &tenant, agent, &query).await
}

async fn probe(
    gateway: &Gateway,
    tenant: &TenantSnapshot,
    agent: &Agent,
    query: &ProbeQuery,
) -> Result<Json<ProbeView>, Refusal> {
    let (tool, action) = (query.tool.as_str(), query.action.as_str());
    let registered = tenant.directory.tools.get(tool);
    if registered.is_none_or(|tool| !tool.actions.contains_key(action)) {
        return Err(Refusal::not_found("action", &format!("{tool}/{action}")));
    }
    let asked = Asked {
        tool,
        action,
        claims_mutation: query.mutates_state,
        run_id: query.run_id.as_ref(),
        parent_run_id: query.parent_run_id.as_ref(),
    };
    let bucket = limit(passes_buckets(gateway, tenant, agent, tool).await)?;
    let quota = limit(passes_quotas(gateway, tenant, agent, &asked).await)?;
    // Of two that open at once it is the bucket, as it is for an ask.
    let last = quota
        .into_iter()
        .chain(bucket)
        .max_by_key(|refusal| refusal.retry_after_seconds().unwrap_or(u64::MAX));
    Ok(Json(ProbeView::from(last)))
}

/// The limit that a call would not pass; a refusal for any other reason is one of the probe itself.
fn limit(outcome: Result<(), Refusal>) -> Result<Option<Refusal>, Refusal> {
    match outcome {
        Ok(()) => Ok(None),
        Err(refusal) => match refusal.code() {
            Code::RateLimited | Code::QuotaExceeded => Ok(Some(refusal)),
            _ => Err(refusal),
        },
    }
}

async fn passes_buckets(
    gateway: &Gateway,
    tenant: &TenantSnapshot,
    agent: &Agent,
    tool: &str,
) -> Result<(), Refusal> {
    let asking = Asking {
        tenant: &tenant.directory.tenant,
        agent,
        tool,
    };
    match gateway.limits.peek(&asking, gateway.clock.now())? {
        Tokens::Enough => Ok(()),
        Tokens::Short(short) => gateway.limits.check(&short).await,
    }
}

async fn passes_quotas(
    gateway: &Gateway,
    tenant: &TenantSnapshot,
    agent: &Agent,
    asked: &Asked<'_>,
) -> Result<(), Refusal> {
    let uses = quotas::uses(tenant, agent, asked);
    let keys: Vec<_> = uses.iter().map(|quota| (agent.tenant, quota.key)).collect();
    let counters = gateway.counters(&keys).await?;
    let now = gateway.clock.now();
    quotas::check(&uses, |key| counters.get(key), now).map_err(|over| limits::quota::exceeded(&over, now))
}
