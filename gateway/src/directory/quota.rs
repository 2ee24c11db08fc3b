//! `…/quota`: how often agents are allowed to act: the token buckets and quotas of agents, teams and tenants, and what is left of
//! them. Policies are not compiled for them, so a limit that is set waits for none that are.

pub mod probe;

use super::{change_at_once, check_registered, find_agent, read, tenants};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Json, KeyCaller, Query, Refusal, TenantCaller};
use crate::limits::{BucketsLeft, Remaining, Whose};
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use engine::quotas::{self, Holder};
use model::{
    Agent, Bucket, Directory, LimitTerms, Name, Noun, Quota, Role, SlashFreeName, Team, Tenant, TenantId,
    Timestamp, Window, Write,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a PUT says: all limits there are from now on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaBody {
    bucket: Option<Bucket>,
    #[serde(default)]
    tools: BTreeMap<SlashFreeName, Bucket>,
    #[serde(default)]
    quotas: Vec<Quota>,
}

impl QuotaBody {
    fn into_terms(self) -> Result<LimitTerms, Refusal> {
        let terms = LimitTerms {
            bucket: self.bucket,
            tool_buckets: self.tools,
            quotas: self.quotas,
        };
        match terms.check() {
            Ok(()) => Ok(terms),
            Err(error) => Err(Refusal::new(Code::InvalidField, error.to_string())),
        }
    }
}

/// What a PUT says of a team: it has no buckets.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeamQuotaBody {
    quotas: Vec<Quota>,
}

/// Which run is meant where a quota is one of runs.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    run_id: Option<Name>,
}

/// The limits, and what is left.
#[derive(Debug, Serialize)]
pub struct QuotaView {
    /// `null`: unlimited.
    bucket: Option<Bucket>,
    /// What is left in the bucket: of all gateways if it is shared, otherwise of this one.
    remaining: Option<RemainingView>,
    tools: BTreeMap<SlashFreeName, ToolBucketView>,
    quotas: Vec<UsedQuota>,
    /// For an agent: those of its team and its tenant, which hold for it too; to itself those that it may be told of.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    inherited: Vec<UsedQuota>,
}

#[derive(Debug, Serialize)]
struct RemainingView {
    tokens: u64,
    full_in_seconds: u64,
}

#[derive(Debug, Serialize)]
struct ToolBucketView {
    bucket: Bucket,
    remaining: RemainingView,
}

/// A quota, and how much of it is used.
#[derive(Debug, Serialize)]
struct UsedQuota {
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<&'static str>,
    #[serde(flatten)]
    quota: Quota,
    used: u64,
    remaining: u64,
    /// `null`: never, as in a run.
    resets_at: Option<Timestamp>,
}

/// The quotas of a team, and what is left.
#[derive(Debug, Serialize)]
pub struct TeamQuotaView {
    quotas: Vec<UsedQuota>,
}

impl From<Remaining> for RemainingView {
    fn from(left: Remaining) -> Self {
        Self {
            tokens: left.tokens,
            full_in_seconds: left.full_in_seconds,
        }
    }
}

impl QuotaView {
    fn of(
        bucket: Option<Bucket>,
        left: BucketsLeft,
        quotas: Vec<UsedQuota>,
        inherited: Vec<UsedQuota>,
    ) -> Self {
        let tools = left.tools.into_iter().map(|(tool, bucket, left)| {
            let remaining = left.into();
            (tool, ToolBucketView { bucket, remaining })
        });
        Self {
            bucket,
            remaining: left.own.map(RemainingView::from),
            tools: tools.collect(),
            quotas,
            inherited,
        }
    }

    async fn of_agent(
        gateway: &Gateway,
        tenant: TenantId,
        agent: &Agent,
        run: Option<&Name>,
    ) -> Result<Self, Refusal> {
        let snapshot = gateway.tenant(tenant)?;
        let now = gateway.clock.now();
        let (limits, whose) = (&gateway.limits, Whose::Agent(agent.id));
        let left = limits.left(&snapshot.directory.tenant, whose, &agent.limits, now);
        let left = left.await?;
        let (own, inherited): (Vec<_>, Vec<_>) =
            quotas::of_agent(&snapshot, agent).partition(|(holder, _)| matches!(holder, Holder::Agent(_)));
        let own = used(gateway, tenant, own, run).await?;
        let named = used(gateway, tenant, inherited.clone(), run).await?.into_iter();
        let named = named.zip(inherited).map(|(used, (holder, _))| UsedQuota {
            holder: Some(holder.as_str()),
            ..used
        });
        Ok(Self::of(agent.limits.bucket, left, own, named.collect()))
    }

    async fn of_tenant(gateway: &Gateway, tenant: &Tenant, run: Option<&Name>) -> Result<Self, Refusal> {
        let (whose, now) = (Whose::Tenant(tenant.id), gateway.clock.now());
        let left = gateway.limits.left(tenant, whose, &tenant.limits, now).await?;
        let quotas = tenant.limits.quotas.iter();
        let quotas = quotas.map(|quota| (Holder::Tenant, quota)).collect();
        let used = used(gateway, tenant.id, quotas, run).await?;
        Ok(Self::of(tenant.limits.bucket, left, used, Vec::new()))
    }
}

impl TeamQuotaView {
    async fn of(
        gateway: &Gateway,
        tenant: TenantId,
        team: &Team,
        run: Option<&Name>,
    ) -> Result<Self, Refusal> {
        let quotas = team.quotas.iter().map(|quota| (Holder::Team(&team.name), quota));
        let quotas = used(gateway, tenant, quotas.collect(), run).await?;
        Ok(Self { quotas })
    }
}

/// How much of these quotas is used, in their order.
async fn used(
    gateway: &Gateway,
    tenant: TenantId,
    of: Vec<(Holder<'_>, &Quota)>,
    run: Option<&Name>,
) -> Result<Vec<UsedQuota>, Refusal> {
    let now = gateway.clock.now();
    let key = |(holder, quota): &(Holder<'_>, &Quota)| {
        let run = run.filter(|_| quota.window == Window::Run);
        (tenant, holder.key(quota, run))
    };
    let keys: Vec<_> = of.iter().map(key).collect();
    let counters = gateway.counters(&keys).await?;
    let view = |((_, quota), (_, key)): ((Holder<'_>, &Quota), (TenantId, canon::Digest))| {
        let (start, end) = quota.window.around(now);
        let counter = counters.get(&key);
        let used = counter.map_or(0, |counter| counter.count_in(start));
        let resets_at = counter.map_or(end, |counter| counter.begins_anew(quota.window, now));
        UsedQuota {
            holder: None,
            used,
            remaining: quota.limit.saturating_sub(used),
            quota: quota.clone(),
            resets_at,
        }
    };
    Ok(of.into_iter().zip(keys).map(view).collect())
}

/// `GET /v1/quota`
pub async fn get_own(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Query(query): Query<RunQuery>,
) -> Result<Json<QuotaView>, Refusal> {
    let view = QuotaView::of_agent(&gateway, caller.tenant, &caller.agent, query.run_id.as_ref());
    let mut view = view.await?;
    let known = gateway.tenant(caller.tenant)?;
    let may_be_told = |used: &UsedQuota| may_be_told_of(&used.quota, &caller.agent, &known.directory);
    view.inherited.retain(may_be_told);
    Ok(Json(view))
}

/// Whether an agent is shown this quota of its tenant or team. What others do with a tool that it may not use is none of
/// its business, and neither is which tools are traps: nothing that it is allowed counts there.
fn may_be_told_of(quota: &Quota, agent: &Agent, directory: &Directory) -> bool {
    quota.tool.as_ref().is_none_or(|tool| {
        let registered = directory.tools.get(tool.as_str());
        registered.is_some_and(|tool| !tool.is_canary()) && agent.tools.includes(tool.as_str())
    })
}

/// `GET /v1/agents/{id}/quota`
pub async fn get_of_agent(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<Json<QuotaView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let agent = find_agent(&tenant.directory, &id)?;
    let view = QuotaView::of_agent(&gateway, caller.tenant(), agent, query.run_id.as_ref());
    Ok(Json(view.await?))
}

/// `PUT /v1/agents/{id}/quota`
pub async fn put_of_agent(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Json(body): Json<QuotaBody>,
) -> Result<Json<QuotaView>, Refusal> {
    let (terms, tenant) = (body.into_terms()?, caller.tenant());
    let set = {
        let gateway = Arc::clone(&gateway);
        async move { set_of_agent(&gateway, &caller, &id, &terms).await }
    };
    let agent = to_the_end(&gateway, tenant, set).await?;
    // Whoever shows them looks at all buckets, so each has its new size from now on, and not from the next ask on.
    Ok(Json(QuotaView::of_agent(&gateway, tenant, &agent, None).await?))
}

/// Sets the limits of an agent, and has its buckets refill by them.
async fn set_of_agent(
    gateway: &Gateway,
    caller: &TenantCaller,
    id: &str,
    terms: &LimitTerms,
) -> Result<Arc<Agent>, Refusal> {
    let changed = change_at_once(gateway, caller, |directory, _| {
        let before = find_agent(directory, id)?;
        if before.limits == *terms {
            return Ok(Plan::nothing(Arc::clone(before)));
        }
        check_tools(directory, &before.limits, terms)?;
        let after = Arc::new(Agent {
            limits: terms.clone(),
            ..(**before).clone()
        });
        Ok(Plan::Change {
            kind: EntryKind::AgentQuotaSet,
            facts: facts(&after.id.to_string(), terms),
            writes: vec![Write::Put(Noun::Agent(Arc::clone(&after)))],
            answer: after,
        })
    });
    let agent = changed.await?;
    let known = gateway.tenant(caller.tenant())?;
    // Others may have set them since.
    let latest = known.directory.agents.get(&agent.id).unwrap_or(&agent);
    let (limits, whose) = (&gateway.limits, Whose::Agent(latest.id));
    let resized = limits.resize(&known.directory.tenant, whose, &latest.limits);
    resized.await?;
    Ok(agent)
}

/// Sets limits of a tenant to the end, whether anybody waits for that or not: a caller that goes away when the change is
/// being recorded leaves no buckets that refill as before. Whoever goes away in line leaves it.
async fn to_the_end<T: Send + 'static>(
    gateway: &Gateway,
    tenant: TenantId,
    set: impl Future<Output = Result<T, Refusal>> + Send + 'static,
) -> Result<T, Refusal> {
    let alone = gateway.change_locks.lock_limits(tenant).await?;
    let work = tokio::spawn(async move {
        let _alone = alone;
        set.await
    });
    work.await.unwrap_or_else(|error| {
        let detail = "setting the limits broke off; whether they are in force is in the ledger";
        Err(Refusal::broken_off(&error, "setting limits broke off", detail))
    })
}

/// `GET /v1/tenants/{id}/quota`
pub async fn get_of_tenant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<Json<QuotaView>, Refusal> {
    let tenant = tenants::find(&gateway, &id)?;
    if !caller.holder().has(Role::Operator) && tenant.id != caller.tenant() {
        return Err(Refusal::not_found("tenant", &id));
    }
    // Operators are let in by what the system tenant says, and this is of another one.
    gateway.check_current_for(tenant.id)?;
    Ok(Json(
        QuotaView::of_tenant(&gateway, &tenant, query.run_id.as_ref()).await?,
    ))
}

/// `PUT /v1/tenants/{id}/quota`
pub async fn put_of_tenant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    Path(id): Path<String>,
    Json(body): Json<QuotaBody>,
) -> Result<Json<QuotaView>, Refusal> {
    let terms = body.into_terms()?;
    let tenant = tenants::find(&gateway, &id)?.id;
    let set = {
        let gateway = Arc::clone(&gateway);
        async move { set_of_tenant(&gateway, &caller, &id, &terms).await }
    };
    let tenant = to_the_end(&gateway, tenant, set).await?;
    // As for an agent: this is what each has its new size by.
    Ok(Json(QuotaView::of_tenant(&gateway, &tenant, None).await?))
}

/// Sets the limits of a tenant, and has its buckets refill by them.
async fn set_of_tenant(
    gateway: &Gateway,
    caller: &KeyCaller,
    id: &str,
    terms: &LimitTerms,
) -> Result<Arc<Tenant>, Refusal> {
    let changed = tenants::change_one_at_once(gateway, caller, id, |directory, _| {
        let before = &directory.tenant;
        if before.limits == *terms {
            return Ok(Plan::nothing(Arc::clone(before)));
        }
        check_tools(directory, &before.limits, terms)?;
        let after = Arc::new(Tenant {
            limits: terms.clone(),
            ..(**before).clone()
        });
        Ok(Plan::Change {
            kind: EntryKind::TenantQuotaSet,
            facts: facts(&after.id.to_string(), terms),
            writes: vec![Write::Put(Noun::Tenant(Arc::clone(&after)))],
            answer: after,
        })
    });
    let tenant = changed.await?;
    // Others may have set them since.
    let known = gateway.tenant(tenant.id)?;
    let latest = &known.directory.tenant;
    let (limits, whose) = (&gateway.limits, Whose::Tenant(latest.id));
    limits.resize(latest, whose, &latest.limits).await?;
    Ok(tenant)
}

/// `GET /v1/teams/{team}/quota`
pub async fn get_of_team(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Query(query): Query<RunQuery>,
) -> Result<Json<TeamQuotaView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let team = super::teams::find(&tenant.directory, &name)?;
    let view = TeamQuotaView::of(&gateway, caller.tenant(), team, query.run_id.as_ref());
    Ok(Json(view.await?))
}

/// `PUT /v1/teams/{team}/quota`
pub async fn put_of_team(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Json(body): Json<TeamQuotaBody>,
) -> Result<Json<TeamQuotaView>, Refusal> {
    let checked = model::quota::check_quotas(&body.quotas);
    checked.map_err(|error| Refusal::new(Code::InvalidField, error.to_string()))?;
    let changed = change_at_once(&gateway, &caller, |directory, _| {
        let before = super::teams::find(directory, &name)?;
        if before.quotas == body.quotas {
            return Ok(Plan::nothing(Arc::clone(before)));
        }
        check_counted(directory, &before.quotas, &body.quotas)?;
        let after = Arc::new(Team {
            quotas: body.quotas.clone(),
            ..(**before).clone()
        });
        Ok(Plan::Change {
            kind: EntryKind::TeamQuotaSet,
            facts: json!({"team": after.name, "quotas": after.quotas}),
            writes: vec![Write::Put(Noun::Team(Arc::clone(&after)))],
            answer: after,
        })
    });
    let team = changed.await?;
    Ok(Json(
        TeamQuotaView::of(&gateway, caller.tenant(), &team, None).await?,
    ))
}

/// Refuses limits for tools that are not registered: a misspelt name must not pass for a limit. Those for a tool that
/// was deleted may stay.
fn check_tools(directory: &Directory, before: &LimitTerms, after: &LimitTerms) -> Result<(), Refusal> {
    let buckets = after.tool_buckets.keys();
    let new = buckets.filter(|tool| !before.tool_buckets.contains_key(*tool));
    check_registered(directory, "tools", new)?;
    check_counted(directory, &before.quotas, &after.quotas)
}

/// Refuses quotas of tools that are not registered, unless they were there before.
fn check_counted(directory: &Directory, before: &[Quota], after: &[Quota]) -> Result<(), Refusal> {
    let known: BTreeSet<_> = counted(before).collect();
    let new = counted(after).filter(|tool| !known.contains(tool));
    check_registered(directory, "quotas", new)
}

/// The tools whose calls alone are counted.
fn counted(quotas: &[Quota]) -> impl Iterator<Item = &SlashFreeName> {
    quotas.iter().filter_map(|quota| quota.tool.as_ref())
}

/// What the entry tells: the same members as the body of the PUT.
fn facts(id: &str, terms: &LimitTerms) -> serde_json::Value {
    json!({"id": id, "bucket": terms.bucket, "tools": terms.tool_buckets, "quotas": terms.quotas})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(json: &str) -> Result<LimitTerms, String> {
        let body = serde_json::from_str::<QuotaBody>(json).map_err(|error| error.to_string())?;
        body.into_terms().map_err(|refusal| refusal.detail().to_owned())
    }

    #[test]
    fn what_a_put_leaves_out_is_not_limited() {
        assert_eq!(terms("{}"), Ok(LimitTerms::default()));
        let all = terms(
            r#"{"bucket":{"capacity":5,"refill_per_second":0.5},"tools":{"github":{"capacity":2,"refill_per_second":1}},
                "quotas":[{"window":"day","limit":9,"group":"mutate"}]}"#,
        )
        .unwrap();
        assert_eq!(all.bucket, Bucket::new(5, 0.5).ok());
        assert_eq!((all.tool_buckets.len(), all.quotas.len()), (1, 1));
    }

    #[test]
    fn a_limit_that_cannot_be_kept_is_not_accepted() {
        for (json, why) in [
            (
                r#"{"quotas":[{"window":"week","limit":1}]}"#,
                "unknown variant `week`",
            ),
            (
                r#"{"quotas":[{"window":"day","limit":0}]}"#,
                "whole number from 1",
            ),
            (r#"{"tools":{"a/b":{"capacity":1,"refill_per_second":1}}}"#, "`/`"),
            (r#"{"limits":[]}"#, "unknown field `limits`"),
            (
                r#"{"quotas":[{"window":"day","limit":1},{"window":"day","limit":2}]}"#,
                "two quotas count the same calls",
            ),
        ] {
            let error = terms(json).unwrap_err();
            assert!(error.contains(why), "{json}: {error}");
        }
    }

    #[test]
    fn no_bucket_is_shown_as_no_limit() {
        let view = QuotaView::of(None, BucketsLeft::default(), Vec::new(), Vec::new());
        assert_eq!(
            serde_json::to_string(&view).unwrap(),
            r#"{"bucket":null,"remaining":null,"tools":{},"quotas":[]}"#
        );
    }
}
