//! Budgets as they are now, for whoever only looks: one statement, and so all of it as it was after one commit.

use crate::journal::hex;
use crate::reservations::ReservationColumns;
use crate::{budgets, unavailable};
use serde_json::json;
use sqlx::SqliteExecutor;
use store::{FoundBalances, StoreError, WantedBalances};

/// What a row is.
const BUDGET: i64 = 0;
const OVERDUE: i64 = 1;

/// These budgets, with what they hold beyond its time.
pub(crate) async fn find(
    executor: impl SqliteExecutor<'_>,
    wanted: &WantedBalances,
) -> Result<FoundBalances, StoreError> {
    let tenant = &wanted.tenant.as_bytes()[..];
    let ids = wanted.ids.iter().map(|id| hex(id.as_bytes()));
    let ids = json!(ids.collect::<Vec<_>>()).to_string();
    let scopes = wanted
        .scopes
        .iter()
        .map(|(scope, unit)| json!([scope.key(), unit]));
    let scopes = json!(scopes.collect::<Vec<_>>()).to_string();
    let ended_by = wanted.ended_by.millis();
    // The rows of each part are told by their first column, and only budgets can be asked for in two ways. CROSS JOIN
    // keeps the order: from what is asked for to the rows, by their index.
    let rows = sqlx::query!(
        r#"SELECT
               0 AS "what!: i64",
               budgets.tenant_no AS "tenant_no!: i64",
               budgets.value AS "value!: String",
               NULL AS "id: Vec<u8>",
               NULL AS "agent: Vec<u8>",
               NULL AS "status: String",
               NULL AS "expires_at: i64"
           FROM tenants
           CROSS JOIN json_each(?2) AS asked
           CROSS JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id = unhex(asked.value)
           WHERE tenants.tenant_id = ?1
           UNION
           SELECT
               0,
               budgets.tenant_no,
               budgets.value,
               NULL, NULL, NULL, NULL
           FROM tenants
           CROSS JOIN json_each(?3) AS asked
           CROSS JOIN budgets INDEXED BY budgets_open
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.scope = asked.value ->> 0
              AND (asked.value ->> 1 IS NULL OR budgets.unit = asked.value ->> 1)
              AND budgets.is_open = 1
           WHERE tenants.tenant_id = ?1
           UNION ALL
           SELECT 1, tenant_no, value, id, agent, status, expires_at
           FROM (
               SELECT
                   reservations.tenant_no,
                   reservations.value,
                   reservations.id,
                   reservations.agent,
                   reservations.status,
                   reservations.expires_at
               FROM tenants
               CROSS JOIN reservations INDEXED BY reservations_held
                   ON reservations.tenant_no = tenants.tenant_no
                  AND reservations.expires_at <= ?4
                  AND reservations.status = 'active'
               WHERE tenants.tenant_id = ?1
               LIMIT ?5
           )
           UNION ALL
           SELECT 2, tenants.tenant_no, '', NULL, NULL, NULL, NULL
           FROM tenants
           WHERE tenants.tenant_id = ?1
             AND EXISTS (
                 SELECT 1
                 FROM budgets INDEXED BY budgets_open
                 WHERE budgets.tenant_no = tenants.tenant_no
                   AND budgets.is_open = 1
             )"#,
        tenant,
        ids,
        scopes,
        ended_by,
        wanted.overdue_max,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let mut found = FoundBalances::default();
    for row in rows {
        match row.what {
            BUDGET => found.budgets.push(budgets::decode(row.tenant_no, &row.value)?),
            OVERDUE => {
                let columns = ReservationColumns {
                    tenant_no: row.tenant_no,
                    id: row.id.unwrap_or_default(),
                    agent: row.agent.unwrap_or_default(),
                    status: row.status.unwrap_or_default(),
                    expires_at: row.expires_at.unwrap_or_default(),
                    value: row.value,
                };
                found.overdue.push(columns.decode()?);
            }
            _ => found.is_budgeted = true,
        }
    }
    Ok(found)
}
