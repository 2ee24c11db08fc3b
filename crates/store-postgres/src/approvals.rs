//! Approvals: written in the commit of their entry, read by id, by status and by what is overdue.

use crate::connections::{Connections, Lent};
use crate::decode::{BEYOND_IDS, RowLabel, uuid};
use crate::turn::ask;
use crate::{PostgresStore, bounded};
use async_trait::async_trait;
use model::{Approval, ApprovalId, ApprovalStatus, TenantId, Timestamp};
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{ApprovalFilter, Approvals, Batch, LOOKED_AT_MAX, Part, Room, StoreError};

/// Approvals as they are from now on, a vector a column.
#[derive(Default)]
pub(crate) struct ApprovalColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) agents: Vec<Uuid>,
    pub(crate) statuses: Vec<&'static str>,
    pub(crate) expire_at: Vec<i64>,
    pub(crate) values: Vec<String>,
}

impl ApprovalColumns {
    /// The approvals of a batch: of each, how it is at the end, because a statement cannot write a row twice.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut rows = Self::default();
        for (place, (tenant, approval)) in batch.approvals.iter().enumerate() {
            let is_same =
                |(other, later): &(TenantId, Approval)| (*other, later.id) == (*tenant, approval.id);
            if batch.approvals[place + 1..].iter().any(is_same) {
                continue;
            }
            rows.tenants.push(uuid(*tenant));
            rows.ids.push(Uuid::from_bytes(*approval.id.as_bytes()));
            rows.agents
                .push(Uuid::from_bytes(*approval.request.agent.as_bytes()));
            rows.statuses.push(approval.status.as_str());
            rows.expire_at.push(approval.expires_at.millis());
            rows.values.push(approval.to_json());
        }
        rows
    }
}

fn decode(tenant: TenantId, value: &str) -> Result<Approval, StoreError> {
    let label = RowLabel {
        table: "approvals",
        tenant,
        seq: None,
    };
    Approval::from_json(value).map_err(|error| label.malformed("approval", error.column()))
}

/// Those of these approvals that are there, in a turn.
pub(crate) async fn find(
    lent: &mut Lent,
    approvals: &[(TenantId, ApprovalId)],
) -> Result<Vec<(TenantId, Approval)>, StoreError> {
    let tenants: Vec<_> = approvals.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let ids: Vec<_> = approvals
        .iter()
        .map(|(_, id)| Uuid::from_bytes(*id.as_bytes()))
        .collect();
    let query = sqlx::query!(
        "SELECT
             approvals.tenant_id,
             approvals.value
         FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, id)
         JOIN approvals
             ON approvals.tenant_id = asked.tenant_id
            AND approvals.id = asked.id",
        &tenants,
        &ids,
    );
    let found = ask(lent, query).await?.into_iter().map(|row| {
        let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
        Ok((tenant, decode(tenant, &row.value)?))
    });
    found.collect()
}

/// A page of them, newest first.
async fn list(
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &ApprovalFilter,
    before: Option<ApprovalId>,
    limit: u32,
) -> Result<Part<Approval, ApprovalId>, StoreError> {
    let before = before.map_or(BEYOND_IDS, |id| Uuid::from_bytes(*id.as_bytes()));
    let mut end = None;
    let (found, room) = match (filter.agent, filter.status) {
        (None, Some(status)) => with_status(readers, tenant, status, before, limit).await?,
        (None, None) => stretch(readers, tenant, filter, (Uuid::nil(), before), limit).await?,
        (Some(_), _) => {
            end = end_of_stretch(readers, tenant, before).await?;
            let first = end.unwrap_or(Uuid::nil());
            stretch(readers, tenant, filter, (first, before), limit).await?
        }
    };
    let id = |approval: &Approval| approval.id;
    let end = if room.is_left() {
        end.map(|id| ApprovalId::from_bytes(id.into_bytes()))
    } else {
        // Between the last one that there was room for and the end nothing was looked at.
        found.last().map(id)
    };
    Ok(Part::new(found, limit, id, end))
}

/// The last of those that a page looks at; none if there are not so many.
async fn end_of_stretch(
    readers: &Arc<Connections>,
    tenant: TenantId,
    before: Uuid,
) -> Result<Option<Uuid>, StoreError> {
    let query = || {
        sqlx::query!(
            "SELECT id
             FROM approvals
             WHERE tenant_id = $1
               AND id < $2
             ORDER BY id DESC
             LIMIT 1 OFFSET $3",
            uuid(tenant),
            before,
            i64::from(LOOKED_AT_MAX - 1),
        )
    };
    let rows = readers.read(query).await?;
    Ok(rows.first().map(|row| row.id))
}

/// Those that match among the approvals from one id on and before another.
async fn stretch(
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &ApprovalFilter,
    (first, before): (Uuid, Uuid),
    limit: u32,
) -> Result<(Vec<Approval>, Room), StoreError> {
    let query = || {
        sqlx::query!(
            "SELECT value
             FROM approvals
             WHERE tenant_id = $1
               AND id >= $2
               AND id < $3
               AND ($4::text IS NULL OR status = $4)
               AND ($5::uuid IS NULL OR agent = $5)
             ORDER BY id DESC
             LIMIT $6",
            uuid(tenant),
            first,
            before,
            filter.status.map(ApprovalStatus::as_str),
            filter.agent.map(|agent| Uuid::from_bytes(*agent.as_bytes())),
            i64::from(limit),
        )
    };
    let mut room = Room::default();
    let rows = readers
        .read_in_room(query, &mut room, |row| row.value.len())
        .await?;
    let found = rows.iter().map(|row| decode(tenant, &row.value));
    Ok((found.collect::<Result<_, _>>()?, room))
}

/// Those with a status, before an id.
async fn with_status(
    readers: &Arc<Connections>,
    tenant: TenantId,
    status: ApprovalStatus,
    before: Uuid,
    limit: u32,
) -> Result<(Vec<Approval>, Room), StoreError> {
    let query = || {
        sqlx::query!(
            "SELECT value
             FROM approvals
             WHERE tenant_id = $1
               AND status = $2
               AND id < $3
             ORDER BY id DESC
             LIMIT $4",
            uuid(tenant),
            status.as_str(),
            before,
            i64::from(limit),
        )
    };
    let mut room = Room::default();
    let rows = readers
        .read_in_room(query, &mut room, |row| row.value.len())
        .await?;
    let found = rows.iter().map(|row| decode(tenant, &row.value));
    Ok((found.collect::<Result<_, _>>()?, room))
}

#[async_trait]
impl Approvals for PostgresStore {
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let read = self.readers.read(|| {
            sqlx::query!(
                "SELECT value
                 FROM approvals
                 WHERE tenant_id = $1
                   AND id = $2",
                uuid(tenant),
                Uuid::from_bytes(*id.as_bytes()),
            )
        });
        let rows = bounded(read).await?;
        rows.first().map(|row| decode(tenant, &row.value)).transpose()
    }

    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        before: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Part<Approval, ApprovalId>, StoreError> {
        bounded(list(&self.readers, tenant, filter, before, limit)).await
    }

    async fn overdue_approvals(
        &self,
        except: &[TenantId],
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ApprovalId)>, StoreError> {
        let except: Vec<_> = except.iter().map(|tenant| uuid(*tenant)).collect();
        let read = self.readers.read(|| {
            sqlx::query!(
                "SELECT tenant_id, id
                 FROM approvals
                 WHERE status IN ('pending', 'approved')
                   AND expires_at <= $1
                   AND tenant_id <> ALL ($3)
                 ORDER BY expires_at
                 LIMIT $2",
                now.millis(),
                i64::from(limit),
                &except,
            )
        });
        let rows = bounded(read).await?.into_iter();
        let overdue = rows.map(|row| {
            let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
            (tenant, ApprovalId::from_bytes(row.id.into_bytes()))
        });
        Ok(overdue.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_approval_is_told_without_what_is_in_it() {
        let message = decode(TenantId::SYSTEM, r#""hunter2""#).unwrap_err().to_string();
        assert!(
            message.contains("in `approvals` is no approval, at byte"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}
