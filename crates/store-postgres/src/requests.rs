//! Which requests were answered, and how: looked up by their keys, in a turn or beside it.

use crate::decode::{RowLabel, uuid};
use model::{AgentId, TenantId};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{FoundRequest, RequestKey, StoreError};

/// What is read of a request that was answered.
pub(crate) struct Answered {
    tenant_id: Uuid,
    agent: Uuid,
    request_id: String,
    seq: i64,
    ask: Option<Vec<u8>>,
    reason: String,
    bytes: Vec<u8>,
}

impl Answered {
    /// Those of these requests that were answered.
    pub(crate) fn question(
        keys: &[RequestKey],
    ) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Self, sqlx::Error> + Send, PgArguments> {
        let tenants: Vec<_> = keys.iter().map(|key| uuid(key.tenant)).collect();
        let agents: Vec<_> = keys
            .iter()
            .map(|key| Uuid::from_bytes(*key.agent.as_bytes()))
            .collect();
        let ids: Vec<_> = keys.iter().map(|key| key.request_id.as_str()).collect();
        sqlx::query_as!(
            Answered,
            r#"SELECT
                   requests.tenant_id,
                   requests.agent,
                   requests.request_id,
                   requests.seq,
                   decision.ask,
                   decision.reason,
                   receipt.bytes
               FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS asked (tenant_id, agent, request_id)
               JOIN requests
                   ON requests.tenant_id = asked.tenant_id
                  AND requests.agent = asked.agent
                  AND requests.request_id = asked.request_id
               CROSS JOIN LATERAL (
                   SELECT ask, reason
                   FROM decisions
                   WHERE decisions.tenant_id = requests.tenant_id
                     AND decisions.seq = requests.seq
                   LIMIT 1
               ) AS decision
               CROSS JOIN LATERAL (
                   SELECT bytes
                   FROM receipts
                   WHERE receipts.tenant_id = requests.tenant_id
                     AND receipts.seq = requests.seq
                   LIMIT 1
               ) AS receipt"#,
            &tenants,
            &agents,
            &ids as &[&str],
        )
    }

    /// What was found.
    pub(crate) fn decode(found: Vec<Self>) -> Result<Vec<FoundRequest>, StoreError> {
        let found = found.into_iter().map(|found| {
            let label = RowLabel {
                table: "requests",
                tenant: TenantId::from_bytes(found.tenant_id.into_bytes()),
                seq: Some(found.seq),
            };
            Ok(FoundRequest {
                key: RequestKey {
                    tenant: label.tenant,
                    agent: AgentId::from_bytes(found.agent.into_bytes()),
                    request_id: label.name("request_id", &found.request_id)?,
                },
                ask: label.digest("ask", &found.ask.unwrap_or_default())?,
                reason: label.reason(&found.reason)?,
                receipt: found.bytes.into(),
            })
        });
        found.collect()
    }
}
