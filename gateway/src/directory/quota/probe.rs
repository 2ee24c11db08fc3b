//! `…/quota/probe`: whether a call would pass the limits, and if not, when. Nothing is taken and nothing is counted.

use super::super::{find_agent, read};
use super::may_be_told_of;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Json, Query, Refusal, TenantCaller};
use crate::limits::{self, Asking, Tokens};
use axum::Extension;
use axum::extract::{Path, State};
use engine::TenantSnapshot;
use engine::quotas::{self, Asked, Holder};
use model::{Agent, Name, Quota};
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
    let agent = &caller.agent;
    // Of the others its asks tell it nothing either: they are denied before they are counted there.
    let may_be_told = |(holder, quota): &(Holder<'_>, &Quota)| {
        matches!(holder, Holder::Agent(_)) || may_be_told_of(quota, agent, &tenant.directory)
    };
    let quotas = quotas::of_agent(&tenant, agent).filter(may_be_told);
    let probe = Probe {
        gateway: &gateway,
        tenant: &tenant,
        agent,
        quotas: quotas.collect(),
    };
    probe.answer(&query).await
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
    let probe = Probe {
        gateway: &gateway,
        tenant: &tenant,
        agent,
        quotas: quotas::of_agent(&tenant, agent).collect(),
    };
    probe.answer(&query).await
}

/// The limits that calls of an agent are held against.
struct Probe<'a> {
    gateway: &'a Gateway,
    tenant: &'a TenantSnapshot,
    agent: &'a Agent,
    /// All that hold for the agent; to itself those that it may be told of.
    quotas: Vec<(Holder<'a>, &'a Quota)>,
}

impl Probe<'_> {
    /// Whether this call would pass.
    async fn answer(&self, query: &ProbeQuery) -> Result<Json<ProbeView>, Refusal> {
        let (tool, action) = (query.tool.as_str(), query.action.as_str());
        let registered = self.tenant.directory.tools.get(tool);
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
        let bucket = limit(self.passes_buckets(tool).await)?;
        let quota = limit(self.passes_quotas(&asked).await)?;
        // Of two that open at once it is the bucket, as it is for an ask.
        let last = quota
            .into_iter()
            .chain(bucket)
            .max_by_key(|refusal| refusal.retry_after_seconds().unwrap_or(u64::MAX));
        Ok(Json(ProbeView::from(last)))
    }

    async fn passes_buckets(&self, tool: &str) -> Result<(), Refusal> {
        let asking = Asking {
            tenant: &self.tenant.directory.tenant,
            agent: self.agent,
            tool,
        };
        let limits = &self.gateway.limits;
        match limits.peek(&asking, self.gateway.clock.now())? {
            Tokens::Enough => Ok(()),
            Tokens::Short(short) => limits.check(&short).await,
        }
    }

    async fn passes_quotas(&self, asked: &Asked<'_>) -> Result<(), Refusal> {
        let uses = quotas::uses_among(self.quotas.iter().copied(), self.tenant, asked);
        let tenant = self.agent.tenant;
        let keys: Vec<_> = uses.iter().map(|quota| (tenant, quota.key)).collect();
        let counters = self.gateway.counters(&keys).await?;
        let now = self.gateway.clock.now();
        quotas::check(&uses, |key| counters.get(key), now).map_err(|over| limits::quota::exceeded(&over, now))
    }
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
