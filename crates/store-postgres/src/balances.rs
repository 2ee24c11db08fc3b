//! Budgets as they are now, for whoever only looks: one statement, and so all of it as it was after one commit.

use crate::decode::uuid;
use crate::{budgets, reservations};
use model::TenantId;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{FoundBalances, StoreError, WantedBalances};

/// What a row is.
const BUDGET: i32 = 0;
const OVERDUE: i32 = 1;

/// What is read.
pub(crate) struct Columns {
    what: i32,
    value: String,
}

/// These budgets, with what they hold beyond its time.
pub(crate) fn question(
    wanted: &WantedBalances,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let ids = wanted.ids.iter().map(|id| Uuid::from_bytes(*id.as_bytes()));
    let ids: Vec<_> = ids.collect();
    let scopes: Vec<_> = wanted.scopes.iter().map(|(scope, _)| scope.key()).collect();
    let units = wanted.scopes.iter().map(|(_, unit)| unit.as_ref());
    let units: Vec<_> = units.map(|unit| unit.map(ToString::to_string)).collect();
    // The rows of each part are told by their first column, and only budgets can be asked for in two ways.
    sqlx::query_as!(
        Columns,
        r#"SELECT
               0 AS "what!",
               budgets.value AS "value!"
           FROM budgets
           WHERE budgets.tenant_id = $1
             AND budgets.id = ANY($2::uuid[])
           UNION
           SELECT
               0,
               budgets.value
           FROM unnest($3::text[], $4::text[]) AS asked (scope, unit)
           JOIN budgets
               ON budgets.tenant_id = $1
              AND budgets.scope = asked.scope COLLATE "C"
              AND (asked.unit IS NULL OR budgets.unit = asked.unit COLLATE "C")
              AND budgets.is_open
           UNION ALL
           (
               SELECT
                   1,
                   reservations.value
               FROM reservations
               WHERE reservations.tenant_id = $1
                 AND reservations.expires_at <= $5
                 AND reservations.status = 'active'
               LIMIT $6
           )
           UNION ALL
           SELECT 2, ''
           WHERE EXISTS (
               SELECT 1
               FROM budgets
               WHERE budgets.tenant_id = $1
                 AND budgets.is_open
           )"#,
        uuid(wanted.tenant),
        &ids,
        &scopes,
        &units as &[Option<String>],
        wanted.ended_by.millis(),
        i64::from(wanted.overdue_max),
    )
}

/// What was found.
pub(crate) fn decode(tenant: TenantId, rows: &[Columns]) -> Result<FoundBalances, StoreError> {
    let mut found = FoundBalances::default();
    for row in rows {
        match row.what {
            BUDGET => found.budgets.push(budgets::budget(tenant, &row.value)?),
            OVERDUE => found.overdue.push(reservations::reservation(tenant, &row.value)?),
            _ => found.is_budgeted = true,
        }
    }
    Ok(found)
}
