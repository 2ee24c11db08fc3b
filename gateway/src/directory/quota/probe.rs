//! `…/quota/probe`: whether a call would pass the limits, and if not, when. Nothing is taken and nothing is counted.

use super::super::{find_agent, read};
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Json, Query, Refusal, TenantCaller};
use crate::limits::{self, Admission, Asking};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::header;
use engine::TenantSnapshot;
use engine::quotas::{self, Asked};
use model::{Agent, Name};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// How often shared buckets are asked for tokens before a probe gives up: each time others may have been faster.
const FILLS_MAX: usize = 4;

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
    /// What it would be refused with.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    /// When it would pass, if nobody else asks.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_seconds: Option<u64>,
}

impl From<Result<(), Refusal>> for ProbeView {
    fn from(outcome: Result<(), Refusal>) -> Self {
        let refusal = outcome.err();
        let wait = refusal
            .as_ref()
            .and_then(|refusal| refusal.header(&header::RETRY_AFTER));
        Self {
            passes: refusal.is_none(),
            code: refusal.as_ref().map(|refusal| refusal.code().as_str()),
            detail: refusal.as_ref().map(|refusal| refusal.detail().to_owned()),
            retry_after_seconds: wait.and_then(|wait| wait.to_str().ok()?.parse().ok()),
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
    let outcome = match passes_buckets(gateway, tenant, agent, tool).await {
        Ok(()) => passes_quotas(gateway, tenant, agent, &asked).await,
        refused => refused,
    };
    match outcome {
        Err(refusal) if !matches!(refusal.code(), Code::RateLimited | Code::QuotaExceeded) => Err(refusal),
        outcome => Ok(Json(ProbeView::from(outcome))),
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
    for _ in 0..FILLS_MAX {
        match gateway.limits.probe(&asking, gateway.clock.now())? {
            Admission::Admitted => return Ok(()),
            Admission::Short(short) => gateway.limits.fill(&short).await?,
        }
    }
    Err(Refusal::overloaded())
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
    quotas::check(&uses, |key| counters.get(key), gateway.clock.now())
        .map_err(|over| limits::quota::exceeded(&over))
}
