//! Approvals: written in the commit of their entry, read by id, by status and by what is overdue.

use crate::commit::{NotWritten, Transaction};
use crate::decode::{BEYOND_IDS, RowLabel};
use crate::journal::{ids_json, tenants_json};
use crate::{SqliteStore, bounded, in_room, unavailable};
use async_trait::async_trait;
use model::{Approval, ApprovalId, ApprovalStatus, TenantId, Timestamp};
use rusqlite::params;
use sqlx::{SqliteConnection, SqlitePool};
use store::{ApprovalFilter, Approvals, LOOKED_AT_MAX, Part, Room, StoreError};

const PUT: &str = "INSERT INTO approvals (tenant_no, id, agent, status, expires_at, value) \
    VALUES (?, ?, ?, ?, ?, ?) \
    ON CONFLICT (tenant_no, id) DO UPDATE SET status = excluded.status, value = excluded.value";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 1] = [PUT];

/// Writes down approvals as they are from now on.
pub(crate) fn write(
    transaction: &Transaction<'_>,
    approvals: &[(TenantId, Approval)],
) -> Result<(), NotWritten> {
    for (tenant, approval) in approvals {
        transaction.statement(PUT)?.execute(params![
            transaction.tenant_no(*tenant)?,
            approval.id.as_bytes(),
            approval.request.agent.as_bytes(),
            approval.status.as_str(),
            approval.expires_at.millis(),
            approval.to_json(),
        ])?;
    }
    Ok(())
}

/// The approval in a row. `tenant_no` says which row, should it not be one.
fn decode(tenant_no: i64, value: &str) -> Result<Approval, StoreError> {
    let label = RowLabel {
        table: "approvals",
        row: tenant_no,
    };
    Approval::from_json(value).map_err(|error| label.malformed("approval", error.column()))
}

/// Those of these approvals that are there.
pub(crate) async fn find(
    connection: &mut SqliteConnection,
    approvals: &[(TenantId, ApprovalId)],
) -> Result<Vec<(TenantId, Approval)>, StoreError> {
    let asked = ids_json(
        approvals
            .iter()
            .map(|(tenant, id)| (tenant.as_bytes(), id.as_bytes())),
    );
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id,
               approvals.tenant_no AS "tenant_no!",
               approvals.value
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN approvals
               ON approvals.tenant_no = tenants.tenant_no
              AND approvals.id = unhex(substr(asked.value, 33, 32))"#,
        asked,
    )
    .fetch_all(connection)
    .await
    .map_err(crate::unread)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "tenants",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        Ok((tenant, decode(row.tenant_no, &row.value)?))
    });
    found.collect()
}

/// A page of them, newest first.
async fn list(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &ApprovalFilter,
    before: Option<ApprovalId>,
    limit: u32,
) -> Result<Part<Approval, ApprovalId>, StoreError> {
    let before = before.as_ref().map_or(&BEYOND_IDS, ApprovalId::as_bytes);
    let mut end = None;
    let (found, room) = match (filter.agent, filter.status) {
        (None, Some(status)) => with_status(readers, tenant, status, before, limit).await?,
        (None, None) => stretch(readers, tenant, filter, (&[], before), limit).await?,
        (Some(_), _) => {
            end = end_of_stretch(readers, tenant, before).await?;
            let first = end.as_ref().map_or(&[][..], |id| id.as_bytes());
            stretch(readers, tenant, filter, (first, before), limit).await?
        }
    };
    let id = |approval: &Approval| approval.id;
    if !room.is_left() {
        // Between the last one that there was room for and the end nothing was looked at.
        end = found.last().map(id);
    }
    Ok(Part::new(found, limit, id, end))
}

/// The last of those that a page looks at; none if there are not so many.
async fn end_of_stretch(
    readers: &SqlitePool,
    tenant: TenantId,
    before: &[u8; 16],
) -> Result<Option<ApprovalId>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let row = sqlx::query!(
        r#"SELECT
               approvals.tenant_no AS "tenant_no!",
               approvals.id
           FROM tenants
           CROSS JOIN approvals
               ON approvals.tenant_no = tenants.tenant_no
              AND approvals.id < ?2
           WHERE tenants.tenant_id = ?1
           ORDER BY approvals.id DESC
           LIMIT 1 OFFSET ?3 - 1"#,
        tenant_id,
        before,
        LOOKED_AT_MAX,
    )
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    let id = row.map(|row| {
        let label = RowLabel {
            table: "approvals",
            row: row.tenant_no,
        };
        label.id("id", row.id).map(ApprovalId::from_bytes)
    });
    id.transpose()
}

/// Those that match among the approvals from one id on and before another.
async fn stretch(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &ApprovalFilter,
    (first, before): (&[u8], &[u8; 16]),
    limit: u32,
) -> Result<(Vec<Approval>, Room), StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let status = filter.status.map(ApprovalStatus::as_str);
    let agent = filter.agent.as_ref().map(|agent| &agent.as_bytes()[..]);
    let rows = sqlx::query!(
        r#"SELECT
               approvals.tenant_no AS "tenant_no!",
               approvals.value
           FROM tenants
           CROSS JOIN approvals
               ON approvals.tenant_no = tenants.tenant_no
              AND approvals.id >= ?2
              AND approvals.id < ?3
           WHERE tenants.tenant_id = ?1
             AND (?4 IS NULL OR approvals.status = ?4)
             AND (?5 IS NULL OR approvals.agent = ?5)
           ORDER BY approvals.id DESC
           LIMIT ?6"#,
        tenant_id,
        first,
        before,
        status,
        agent,
        limit,
    )
    .fetch(readers);
    let mut room = Room::default();
    let found = in_room(rows, &mut room, |row| {
        let approval = decode(row.tenant_no, &row.value)?;
        Ok((approval, row.value.len()))
    });
    Ok((found.await?, room))
}

/// Those with a status, before an id.
async fn with_status(
    readers: &SqlitePool,
    tenant: TenantId,
    status: ApprovalStatus,
    before: &[u8; 16],
    limit: u32,
) -> Result<(Vec<Approval>, Room), StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let status = status.as_str();
    let rows = sqlx::query!(
        r#"SELECT
               approvals.tenant_no AS "tenant_no!",
               approvals.value
           FROM tenants
           CROSS JOIN approvals INDEXED BY approvals_status
               ON approvals.tenant_no = tenants.tenant_no
              AND approvals.status = ?2
              AND approvals.id < ?3
           WHERE tenants.tenant_id = ?1
           ORDER BY approvals.id DESC
           LIMIT ?4"#,
        tenant_id,
        status,
        before,
        limit,
    )
    .fetch(readers);
    let mut room = Room::default();
    let found = in_room(rows, &mut room, |row| {
        let approval = decode(row.tenant_no, &row.value)?;
        Ok((approval, row.value.len()))
    });
    Ok((found.await?, room))
}

#[async_trait]
impl Approvals for SqliteStore {
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>, StoreError> {
        let (tenant_id, id) = (&tenant.as_bytes()[..], &id.as_bytes()[..]);
        let read = async {
            let row = sqlx::query!(
                r#"SELECT
                     approvals.tenant_no AS "tenant_no!",
                     approvals.value
                 FROM tenants
                 JOIN approvals
                     ON approvals.tenant_no = tenants.tenant_no
                 WHERE tenants.tenant_id = ?1
                   AND approvals.id = ?2"#,
                tenant_id,
                id,
            )
            .fetch_optional(&self.readers)
            .await
            .map_err(unavailable)?;
            row.map(|row| decode(row.tenant_no, &row.value)).transpose()
        };
        bounded(read).await
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
        let (except, now) = (tenants_json(except), now.millis());
        let read = async {
            let rows = sqlx::query!(
                r#"SELECT
                     tenants.tenant_id,
                     approvals.tenant_no AS "tenant_no!",
                     approvals.id
                 FROM approvals
                 JOIN tenants
                     ON tenants.tenant_no = approvals.tenant_no
                 WHERE approvals.status IN ('pending', 'approved')
                   AND approvals.expires_at <= ?1
                   AND tenants.tenant_id NOT IN (SELECT unhex(value) FROM json_each(?3))
                 ORDER BY approvals.expires_at
                 LIMIT ?2"#,
                now,
                limit,
                except,
            )
            .fetch_all(&self.readers)
            .await
            .map_err(unavailable)?;
            let overdue = rows.into_iter().map(|row| {
                let label = RowLabel {
                    table: "approvals",
                    row: row.tenant_no,
                };
                let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
                Ok((tenant, ApprovalId::from_bytes(label.id("id", row.id)?)))
            });
            overdue.collect()
        };
        bounded(read).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_an_approval_is_told_without_what_is_in_it() {
        let message = decode(7, r#""hunter2""#).unwrap_err().to_string();
        assert!(
            message.contains("`value` of row 7 of `approvals` is no approval, at byte"),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}
