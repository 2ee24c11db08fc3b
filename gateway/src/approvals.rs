//! `GET /v1/approvals` and `GET /v1/approvals/{id}`: what people are asked, and what has become of it.
//!
//! - [`vote`]: people approve and reject;
//! - [`expiry`]: what was not used in time is written down as expired;
//! - [`waiters`]: agents wait for people here.
//!
//! An approval is made and spent by decisions, in their commit; the engine has the rules.

pub mod expiry;
pub mod vote;
pub mod waiters;

use waiters::Waiter;

use crate::gateway::Gateway;
use crate::http::caller::ShownCredential;
use crate::http::page::one_more;
use crate::http::query::{ListQuery, Query, invalid};
use crate::http::{Json, Page, Refusal};
use crate::reader::{Reader, in_place};
use axum::extract::{Path, State};
use canon::Digest;
use model::approval::{Delegator, GroupQuorum, Vote};
use model::{
    AgentId, Approval, ApprovalId, ApprovalStatus, DecisionId, Estimate, Name, Risk, Sources, Timestamp,
    Trust,
};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use store::ApprovalFilter;
use tokio::time::Instant;

/// The longest that an answer waits for people.
const WAIT_MAX: Duration = Duration::from_mins(1);

/// Which approvals to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    status: Option<ApprovalStatus>,
    agent: Option<AgentId>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// How long to wait.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    wait: Option<String>,
}

/// An approval as people and agents see it.
#[derive(Debug, Serialize)]
pub struct Shown {
    id: ApprovalId,
    status: ApprovalStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    quorum: u32,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    also: Vec<GroupQuorum>,
    exclude_owner: bool,
    requested_at: Timestamp,
    expires_at: Timestamp,
    decision_id: DecisionId,
    agent: ShownAgent,
    /// The other agents in whose name it asks. Who answers for them is nothing that an agent learns by naming them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    delegators: Vec<ShownAgent>,
    tool: String,
    action: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    resource: Option<String>,
    action_hash: Digest,
    /// The canonical parameters, byte for byte those that the digest is made of; gone when the approval is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    parameters: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimate: Option<Estimate>,
    reason: String,
    matched_policies: Vec<String>,
    policy_digest: Digest,
    #[serde(skip_serializing_if = "Option::is_none")]
    risk_level: Option<Risk>,
    /// Not shown to agents.
    #[serde(skip_serializing_if = "Option::is_none")]
    definition: Option<Digest>,
    trust: ShownTrust,
    /// Gone with the parameters.
    #[serde(skip_serializing_if = "Sources::is_empty")]
    sources: Sources,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_worst: Option<Trust>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<Name>,
    /// To agents, each with those of the voter's teams that are asked.
    votes: Vec<Vote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spent_by: Option<DecisionId>,
}

#[derive(Debug, Serialize)]
struct ShownAgent {
    id: AgentId,
    name: Name,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    team: Option<Name>,
}

#[derive(Debug, Serialize)]
struct ShownTrust {
    claimed: Trust,
    effective: Trust,
}

impl ShownAgent {
    /// One in whose name another one asks.
    fn named(delegator: Delegator) -> Self {
        Self {
            id: delegator.id,
            name: delegator.name,
            owner: None,
            team: None,
        }
    }
}

/// Takes off an approval what agents are not shown. In which teams people are beside those that are asked, and a digest
/// of what admins have written of a tool, tell how these are registered, which decisions do not tell agents either.
fn hide_from_agents(approval: &mut Approval) {
    approval.request.definition = None;
    let asked: BTreeSet<_> = approval.terms.groups().collect();
    for vote in &mut approval.votes {
        vote.teams.retain(|team| asked.contains(team.as_str()));
    }
}

impl Shown {
    /// The approval as this reader may see it.
    fn of(mut approval: Approval, reader: Reader, now: Timestamp) -> Self {
        let status = approval.status_at(now);
        if reader.agent.is_some() {
            hide_from_agents(&mut approval);
        }
        let Approval { request, terms, .. } = approval;
        Self {
            id: approval.id,
            status,
            group: terms.group,
            quorum: terms.quorum,
            also: terms.also,
            exclude_owner: terms.exclude_owner,
            requested_at: approval.requested_at,
            expires_at: approval.expires_at,
            decision_id: request.decision_id,
            agent: ShownAgent {
                id: request.agent,
                name: request.agent_name,
                owner: request.owner,
                team: request.team,
            },
            delegators: request.delegators.into_iter().map(ShownAgent::named).collect(),
            tool: request.tool.to_string(),
            action: request.action,
            resource: request.resource,
            action_hash: request.action_hash,
            parameters: request
                .parameters
                .filter(|_| status.is_open())
                .and_then(|text| RawValue::from_string(text).ok()),
            estimate: request.estimate,
            reason: request.reason,
            matched_policies: request.matched_policies,
            policy_digest: request.policy_digest,
            risk_level: request.risk_level,
            definition: request.definition,
            trust: ShownTrust {
                claimed: request.claimed_trust,
                effective: request.effective_trust,
            },
            sources: if status.is_open() {
                request.sources
            } else {
                Sources::default()
            },
            run_id: request.run_id,
            run_worst: request.run_worst,
            user: request.user,
            votes: approval.votes,
            spent_by: approval.spent_by,
        }
    }
}

/// Lists approvals, newest first: an agent its own.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    query: ListQuery<Filter>,
) -> Result<Json<Page<Shown>>, Refusal> {
    let limit = query.page.limit()?;
    let before = query.page.after()?;
    let Filter { status, agent, .. } = query.filter;
    if agent.is_some_and(|agent| !reader.may_read(agent)) {
        return Ok(Json(Page::empty()));
    }
    let filter = ApprovalFilter {
        status,
        agent: reader.agent.or(agent),
    };
    let found = gateway
        .store
        .approvals(reader.tenant, &filter, before, one_more(limit))
        .await?;
    let now = gateway.clock.now();
    let key = |approval: &Approval| approval.id;
    let shown = |approval| Shown::of(approval, reader, now);
    Ok(Json(Page::of_part(found, limit, key, shown)))
}

/// Shows one approval; with `?wait=30s` when it is no longer pending, or after that time. Whoever's credential ends
/// meanwhile is refused, and a gateway that stops says how things stand.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    credential: ShownCredential,
    Path(id): Path<String>,
    Query(wait): Query<Wait>,
) -> Result<Json<Shown>, Refusal> {
    let (reader, waiters, time) = (Reader::from(&credential), &gateway.approval_waiters, wait.time()?);
    let end = Instant::now() + time;
    let waiter = (!time.is_zero()).then(|| waiters.register(reader.fairness_key(), credential.caller_id()));
    // Whoever waits for people keeps nobody from reading.
    let mut permit = gateway.reads.acquire(reader.fairness_key()).await?;
    loop {
        let notification = waiter.as_ref().map(Waiter::notified);
        credential.check(&gateway)?;
        let (looked_at, wanted) = (Arc::clone(&gateway), id.clone());
        let look = async move { find(&looked_at, reader, &wanted).await };
        let approval = in_place(permit, look).await??;
        let now = gateway.clock.now();
        let waits = approval.status_at(now) == ApprovalStatus::Pending && Instant::now() < end;
        match notification {
            Some(notification) if waits && !waiters.is_closed() => notification.until(end).await,
            _ => return Ok(Json(Shown::of(approval, reader, now))),
        }
        permit = gateway.reads.acquire_for_part(reader.fairness_key()).await;
    }
}

/// One approval, as far as this reader may see it: another agent's or tenant's does not exist.
async fn find(gateway: &Gateway, reader: Reader, id: &str) -> Result<Approval, Refusal> {
    let not_found = || Refusal::not_found("approval", id);
    let id: ApprovalId = id.parse().map_err(|_| not_found())?;
    let approval = gateway.store.approval(reader.tenant, id).await?;
    approval
        .filter(|approval| reader.may_read(approval.request.agent))
        .ok_or_else(not_found)
}

impl Wait {
    fn time(&self) -> Result<Duration, Refusal> {
        let Some(text) = &self.wait else {
            return Ok(Duration::ZERO);
        };
        let seconds = text.strip_suffix('s').and_then(|digits| digits.parse().ok());
        let time = seconds.map(Duration::from_secs);
        time.filter(|time| *time <= WAIT_MAX).ok_or_else(|| {
            let most = WAIT_MAX.as_secs();
            invalid(format!(
                "`wait` is a whole number of seconds up to {most} with an `s` behind it, such as `30s`"
            ))
        })
    }
}
