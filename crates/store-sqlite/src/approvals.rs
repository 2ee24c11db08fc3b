//! Approvals: written in the commit of their entry, read by id, by status and by what is overdue.

use crate::commit::{NotWritten, Transaction};
use crate::decode::Place;
use crate::journal::ids_json;
use crate::{SqliteStore, bounded, unavailable};
use async_trait::async_trait;
use model::{Approval, ApprovalId, TenantId, Timestamp};
use rusqlite::params;
use sqlx::SqliteConnection;
use store::{ApprovalFilter, Approvals, StoreError};

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
    let place = Place {
        table: "approvals",
        row: tenant_no,
    };
    Approval::from_json(value).map_err(|error| place.corrupt("value", &format!("is no approval: {error}")))
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
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let place = Place {
            table: "tenants",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(place.id("tenant_id", row.tenant_id)?);
        Ok((tenant, decode(row.tenant_no, &row.value)?))
    });
    found.collect()
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
    ) -> Result<Vec<Approval>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let status = filter.status.map(model::ApprovalStatus::as_str);
        let agent = filter.agent.as_ref().map(|agent| &agent.as_bytes()[..]);
        let before = before.as_ref().map(|id| &id.as_bytes()[..]);
        let read = async {
            let rows = sqlx::query!(
                r#"SELECT
                     approvals.tenant_no AS "tenant_no!",
                     approvals.value
                 FROM tenants
                 JOIN approvals
                     ON approvals.tenant_no = tenants.tenant_no
                 WHERE tenants.tenant_id = ?1
                   AND (?2 IS NULL OR approvals.status = ?2)
                   AND (?3 IS NULL OR approvals.agent = ?3)
                   AND (?4 IS NULL OR approvals.id < ?4)
                 ORDER BY approvals.id DESC
                 LIMIT ?5"#,
                tenant_id,
                status,
                agent,
                before,
                limit,
            )
            .fetch_all(&self.readers)
            .await
            .map_err(unavailable)?;
            let approvals = rows.iter().map(|row| decode(row.tenant_no, &row.value));
            approvals.collect()
        };
        bounded(read).await
    }

    async fn overdue_approvals(
        &self,
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ApprovalId)>, StoreError> {
        let now = now.millis();
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
                 ORDER BY approvals.expires_at
                 LIMIT ?2"#,
                now,
                limit,
            )
            .fetch_all(&self.readers)
            .await
            .map_err(unavailable)?;
            let overdue = rows.into_iter().map(|row| {
                let place = Place {
                    table: "approvals",
                    row: row.tenant_no,
                };
                let tenant = TenantId::from_bytes(place.id("tenant_id", row.tenant_id)?);
                Ok((tenant, ApprovalId::from_bytes(place.id("id", row.id)?)))
            });
            overdue.collect()
        };
        bounded(read).await
    }
}
