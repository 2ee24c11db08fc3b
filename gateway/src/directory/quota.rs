//! `…/quota`: the token buckets of agents and tenants. Other kinds of limit are refused as unknown fields.

use super::{change, find_agent, read, tenants};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Json, KeyCaller, Refusal, TenantCaller};
use crate::limits::Remaining;
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use model::{Agent, Bucket, Noun, Role, Tenant, TenantId, Write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// What a PUT says: all limits there are from now on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QuotaBody {
    bucket: Option<Bucket>,
}

/// The limits, and what is left.
#[derive(Debug, Serialize)]
pub struct QuotaView {
    /// `null`: unlimited.
    bucket: Option<Bucket>,
    /// What is left in the bucket: of all gateways if it is shared, otherwise of this one.
    remaining: Option<RemainingView>,
}

#[derive(Debug, Serialize)]
struct RemainingView {
    tokens: u64,
    full_in_seconds: u64,
}

impl QuotaView {
    fn of(bucket: Option<Bucket>, remaining: Option<Remaining>) -> Self {
        let remaining = remaining.map(|left| RemainingView {
            tokens: left.tokens,
            full_in_seconds: left.full_in_seconds,
        });
        Self { bucket, remaining }
    }

    async fn of_agent(gateway: &Gateway, tenant: TenantId, agent: &Agent) -> Result<Self, Refusal> {
        let tenant = gateway.tenant(tenant)?;
        let now = gateway.clock.now();
        let remaining = gateway
            .limits
            .agent_remaining(&tenant.directory.tenant, agent, now);
        Ok(Self::of(agent.bucket, remaining.await?))
    }

    async fn of_tenant(gateway: &Gateway, tenant: &Tenant) -> Result<Self, Refusal> {
        let remaining = gateway.limits.tenant_remaining(tenant, gateway.clock.now());
        Ok(Self::of(tenant.bucket, remaining.await?))
    }
}

/// `GET /v1/quota`
pub async fn get_own(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
) -> Result<Json<QuotaView>, Refusal> {
    Ok(Json(
        QuotaView::of_agent(&gateway, caller.tenant, &caller.agent).await?,
    ))
}

/// `GET /v1/agents/{id}/quota`
pub async fn get_of_agent(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
) -> Result<Json<QuotaView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let agent = find_agent(&tenant.directory, &id)?;
    Ok(Json(QuotaView::of_agent(&gateway, caller.tenant, agent).await?))
}

/// `PUT /v1/agents/{id}/quota`
pub async fn put_of_agent(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Json(body): Json<QuotaBody>,
) -> Result<Json<QuotaView>, Refusal> {
    let changed = change(&gateway, &caller, |directory, _| {
        let before = find_agent(directory, &id)?;
        if before.bucket == body.bucket {
            return Ok(Plan::nothing(Arc::clone(before)));
        }
        let after = Arc::new(Agent {
            bucket: body.bucket,
            ..(**before).clone()
        });
        Ok(Plan {
            kind: EntryKind::AgentQuotaSet,
            facts: json!({"id": after.id, "bucket": after.bucket}),
            writes: vec![Write::Put(Noun::Agent(Arc::clone(&after)))],
            answer: after,
        })
    });
    let agent = changed.await?;
    Ok(Json(QuotaView::of_agent(&gateway, caller.tenant, &agent).await?))
}

/// `GET /v1/tenants/{id}/quota`
pub async fn get_of_tenant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
) -> Result<Json<QuotaView>, Refusal> {
    let tenant = tenants::find(&gateway, &id)?;
    if caller.key.role != Role::Operator && tenant.id != caller.tenant {
        return Err(Refusal::not_found("tenant", &id));
    }
    Ok(Json(QuotaView::of_tenant(&gateway, &tenant).await?))
}

/// `PUT /v1/tenants/{id}/quota`
pub async fn put_of_tenant(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    Path(id): Path<String>,
    Json(body): Json<QuotaBody>,
) -> Result<Json<QuotaView>, Refusal> {
    let changed = tenants::change_one(&gateway, &caller, &id, |directory, _| {
        let before = &directory.tenant;
        if before.bucket == body.bucket {
            return Ok(Plan::nothing(Arc::clone(before)));
        }
        let after = Arc::new(Tenant {
            bucket: body.bucket,
            ..(**before).clone()
        });
        Ok(Plan {
            kind: EntryKind::TenantQuotaSet,
            facts: json!({"id": after.id, "bucket": after.bucket}),
            writes: vec![Write::Put(Noun::Tenant(Arc::clone(&after)))],
            answer: after,
        })
    });
    let tenant = changed.await?;
    Ok(Json(QuotaView::of_tenant(&gateway, &tenant).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_not_kept_is_not_accepted_either() {
        let parse = serde_json::from_str::<QuotaBody>;
        assert!(parse(r#"{"quotas":[]}"#).is_err());
        assert!(parse(r#"{"tools":{}}"#).is_err());
        assert!(parse("{}").unwrap().bucket.is_none());
        assert_eq!(
            parse(r#"{"bucket":{"capacity":5,"refill_per_second":0.5}}"#)
                .unwrap()
                .bucket,
            Some(Bucket::new(5, 0.5).unwrap())
        );
    }

    #[test]
    fn no_bucket_is_shown_as_no_limit() {
        let view = serde_json::to_string(&QuotaView::of(None, None)).unwrap();
        assert_eq!(view, r#"{"bucket":null,"remaining":null}"#);
    }
}
