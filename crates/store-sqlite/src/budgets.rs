//! Budgets: written in the commit of the entry that moves them, read by id, by scope, and in lists.

use crate::commit::{NotWritten, Transaction};
use crate::decode::{BEYOND_IDS, RowLabel};
use crate::journal::{hex, runs_json, tenants_json};
use crate::reservations;
use crate::{SqliteStore, balances, bounded, links, unavailable};
use async_trait::async_trait;
use model::budget::BudgetStatus;
use model::{Budget, BudgetId, Name, Reservation, ReservationId, RunLink, TenantId, Timestamp, Unit};
use rusqlite::params;
use serde_json::json;
use sqlx::query::Map;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteRow};
use sqlx::{SqliteExecutor, SqlitePool};
use std::sync::Arc;
use store::{
    BudgetFilter, BudgetPlace, Budgets, FoundBalances, LOOKED_AT_MAX, OpenBudgets, Part, ReplyKey, ReplyRow,
    ReservationFilter, StoreError, WantedBalances, WantedBudgets,
};

const CLOSE: &str = "INSERT INTO budgets (tenant_no, id, scope, unit, is_open, value) \
    VALUES (?, ?, ?, ?, 0, ?) \
    ON CONFLICT (tenant_no, id) DO UPDATE SET is_open = 0, value = excluded.value";
/// One that is open has been ever since it was made, so the index of what is open is left alone: it would be written
/// with every move.
const MOVE_OPEN: &str = "UPDATE budgets SET value = ? WHERE tenant_no = ? AND id = ?";
const OPEN: &str =
    "INSERT INTO budgets (tenant_no, id, scope, unit, is_open, value) VALUES (?, ?, ?, ?, 1, ?)";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 3] = [CLOSE, MOVE_OPEN, OPEN];

/// Writes down budgets as they are from now on. What is closed comes first, so that another one can take its place in
/// the same batch.
pub(crate) fn write(transaction: &Transaction<'_>, budgets: &[(TenantId, Budget)]) -> Result<(), NotWritten> {
    let is_closed = |(_, budget): &&(TenantId, Budget)| budget.status == BudgetStatus::Closed;
    let (closed, open): (Vec<_>, Vec<_>) = budgets.iter().partition(is_closed);
    for (tenant, budget) in closed {
        put(transaction, CLOSE, *tenant, budget)?;
    }
    for (tenant, budget) in open {
        let (tenant_no, value) = (transaction.tenant_no(*tenant)?, budget.to_json());
        let mut moving = transaction.statement(MOVE_OPEN)?;
        // Nearly all of them are there: to look whether they are, and to look for another of the same scope, takes
        // longer than to move them.
        if moving.execute(params![value, tenant_no, budget.id.as_bytes()])? == 0 {
            put(transaction, OPEN, *tenant, budget)?;
        }
    }
    Ok(())
}

fn put(
    transaction: &Transaction<'_>,
    text: &str,
    tenant: TenantId,
    budget: &Budget,
) -> Result<(), NotWritten> {
    transaction.statement(text)?.execute(params![
        transaction.tenant_no(tenant)?,
        budget.id.as_bytes(),
        budget.scope.key(),
        budget.unit.as_str(),
        budget.to_json(),
    ])?;
    Ok(())
}

pub(crate) fn decode(tenant_no: i64, value: &str) -> Result<Budget, StoreError> {
    let label = RowLabel {
        table: "budgets",
        row: tenant_no,
    };
    Budget::from_json(value).map_err(|error| label.malformed("budget", error.column()))
}

/// Those of these budgets that are there, each once.
pub(crate) async fn find(
    executor: impl SqliteExecutor<'_>,
    wanted: &WantedBudgets,
) -> Result<Vec<(TenantId, Budget)>, StoreError> {
    let ids = wanted
        .ids
        .iter()
        .map(|(tenant, id)| json!([hex(tenant.as_bytes()), hex(id.as_bytes())]));
    let ids = serde_json::Value::from(ids.collect::<Vec<_>>()).to_string();
    let scopes = wanted
        .scopes
        .iter()
        .map(|(tenant, scope, unit)| json!([hex(tenant.as_bytes()), scope.key(), unit]));
    let scopes = serde_json::Value::from(scopes.collect::<Vec<_>>()).to_string();
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id AS "tenant_id!: Vec<u8>",
               budgets.tenant_no AS "tenant_no!: i64",
               budgets.value AS "value!: String"
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(asked.value ->> 0)
           CROSS JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id = unhex(asked.value ->> 1)
           UNION
           SELECT
               tenants.tenant_id,
               budgets.tenant_no,
               budgets.value
           FROM json_each(?2) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(asked.value ->> 0)
           CROSS JOIN budgets INDEXED BY budgets_open
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.scope = asked.value ->> 1
              AND (asked.value ->> 2 IS NULL OR budgets.unit = asked.value ->> 2)
              AND budgets.is_open = 1"#,
        ids,
        scopes,
    )
    .fetch_all(executor)
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

/// Those of these tenants that have a budget that is not closed.
pub(crate) async fn have(
    executor: impl SqliteExecutor<'_>,
    tenants: &[TenantId],
) -> Result<Vec<TenantId>, StoreError> {
    let asked = tenants_json(tenants);
    let rows = sqlx::query!(
        "SELECT tenants.tenant_id
         FROM json_each(?1) AS asked
         CROSS JOIN tenants
             ON tenants.tenant_id = unhex(asked.value)
         WHERE EXISTS (
             SELECT 1
             FROM budgets
             WHERE budgets.tenant_no = tenants.tenant_no
               AND budgets.is_open = 1
         )",
        asked,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let label = RowLabel {
        table: "tenants",
        row: 0,
    };
    let found = rows.into_iter();
    let found = found.map(|row| Ok(TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?)));
    found.collect()
}

/// How many of a tenant are not closed.
async fn count(executor: impl SqliteExecutor<'_>, tenant: TenantId) -> Result<u64, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let row = sqlx::query!(
        r#"SELECT count(*) AS "count!: i64"
           FROM tenants
           JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.is_open = 1
           WHERE tenants.tenant_id = ?1"#,
        tenant_id,
    )
    .fetch_one(executor)
    .await
    .map_err(unavailable)?;
    Ok(row.count.unsigned_abs())
}

/// What is read of a budget.
pub(crate) struct BudgetColumns {
    tenant_no: i64,
    value: String,
}

/// A page of a tenant's, newest first.
async fn list(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &BudgetFilter,
    before: Option<BudgetId>,
    limit: u32,
) -> Result<Part<Budget, BudgetId>, StoreError> {
    let before = before.as_ref().map_or(&BEYOND_IDS, BudgetId::as_bytes);
    let of_open = filter.is_open == Some(true);
    let end = if filter.unit.is_some() || filter.is_open == Some(false) {
        end_of_stretch(readers, tenant, of_open, before).await?
    } else {
        None
    };
    let ids = (end.as_ref().map_or(&[][..], |id| id.as_bytes()), before);
    let rows = if of_open {
        let query = open_stretch(tenant, filter.unit.as_ref(), ids, limit);
        query.fetch_all(readers).await
    } else {
        stretch(tenant, filter, ids, limit).fetch_all(readers).await
    };
    let rows = rows.map_err(unavailable)?;
    let found = rows.iter().map(|row| decode(row.tenant_no, &row.value));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    Ok(Part::new(found, limit, |budget: &Budget| budget.id, end))
}

/// Where a budget stands in lists.
struct IdColumns {
    tenant_no: i64,
    id: Vec<u8>,
}

/// The last of those that a page looks at, which may be open ones only; none if there are not so many.
async fn end_of_stretch(
    readers: &SqlitePool,
    tenant: TenantId,
    of_open: bool,
    before: &[u8; 16],
) -> Result<Option<BudgetId>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let row = if of_open {
        sqlx::query_as!(
            IdColumns,
            r#"SELECT
                   budgets.tenant_no AS "tenant_no!",
                   budgets.id AS "id!"
               FROM tenants
               CROSS JOIN budgets INDEXED BY budgets_open_in_order
                   ON budgets.tenant_no = tenants.tenant_no
                  AND budgets.id < ?2
                  AND budgets.is_open = 1
               WHERE tenants.tenant_id = ?1
               ORDER BY budgets.id DESC
               LIMIT 1 OFFSET ?3 - 1"#,
            tenant_id,
            before,
            LOOKED_AT_MAX,
        )
        .fetch_optional(readers)
        .await
    } else {
        sqlx::query_as!(
            IdColumns,
            r#"SELECT
                   budgets.tenant_no AS "tenant_no!",
                   budgets.id AS "id!"
               FROM tenants
               CROSS JOIN budgets
                   ON budgets.tenant_no = tenants.tenant_no
                  AND budgets.id < ?2
               WHERE tenants.tenant_id = ?1
               ORDER BY budgets.id DESC
               LIMIT 1 OFFSET ?3 - 1"#,
            tenant_id,
            before,
            LOOKED_AT_MAX,
        )
        .fetch_optional(readers)
        .await
    };
    let id = row.map_err(unavailable)?.map(|row| {
        let label = RowLabel {
            table: "budgets",
            row: row.tenant_no,
        };
        label.id("id", row.id).map(BudgetId::from_bytes)
    });
    id.transpose()
}

/// Those that match among the budgets from one id on and before another, newest first. What comes before and behind
/// them is not read: both are bounds in the key.
pub(crate) fn stretch(
    tenant: TenantId,
    filter: &BudgetFilter,
    (first, before): (&[u8], &[u8; 16]),
    limit: u32,
) -> Map<'static, Sqlite, impl FnMut(SqliteRow) -> Result<BudgetColumns, sqlx::Error> + Send, SqliteArguments>
{
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let unit = filter.unit.as_ref().map(Unit::as_str);
    let is_open = filter.is_open.map(i64::from);
    sqlx::query_as!(
        BudgetColumns,
        r#"SELECT
               budgets.tenant_no AS "tenant_no!",
               budgets.value AS "value!"
           FROM tenants
           CROSS JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id >= ?2
              AND budgets.id < ?3
           WHERE tenants.tenant_id = ?1
             AND (?4 IS NULL OR budgets.unit = ?4)
             AND (?5 IS NULL OR budgets.is_open = ?5)
           ORDER BY budgets.id DESC
           LIMIT ?6"#,
        tenant_id,
        first,
        before,
        unit,
        is_open,
        limit,
    )
}

/// The same of those that are not closed, however many closed ones stand between them.
pub(crate) fn open_stretch(
    tenant: TenantId,
    unit: Option<&Unit>,
    (first, before): (&[u8], &[u8; 16]),
    limit: u32,
) -> Map<'static, Sqlite, impl FnMut(SqliteRow) -> Result<BudgetColumns, sqlx::Error> + Send, SqliteArguments>
{
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let unit = unit.map(Unit::as_str);
    sqlx::query_as!(
        BudgetColumns,
        r#"SELECT
               budgets.tenant_no AS "tenant_no!",
               budgets.value AS "value!"
           FROM tenants
           CROSS JOIN budgets INDEXED BY budgets_open_in_order
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id >= ?2
              AND budgets.id < ?3
              AND budgets.is_open = 1
           WHERE tenants.tenant_id = ?1
             AND (?4 IS NULL OR budgets.unit = ?4)
           ORDER BY budgets.id DESC
           LIMIT ?5"#,
        tenant_id,
        first,
        before,
        unit,
        limit,
    )
}

/// By what a page of a tenant's are looked for, newest first.
async fn places(
    executor: impl SqliteExecutor<'_>,
    tenant: TenantId,
    before: &[u8; 16],
    limit: u32,
) -> Result<Vec<BudgetPlace>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let rows = sqlx::query!(
        r#"SELECT
               budgets.tenant_no AS "tenant_no!: i64",
               budgets.id AS "id!: Vec<u8>",
               budgets.scope AS "scope!: String",
               budgets.unit AS "unit!: String",
               budgets.is_open AS "is_open!: i64"
           FROM tenants
           CROSS JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id < ?2
           WHERE tenants.tenant_id = ?1
           ORDER BY budgets.id DESC
           LIMIT ?3"#,
        tenant_id,
        before,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "budgets",
            row: row.tenant_no,
        };
        Ok(BudgetPlace {
            id: BudgetId::from_bytes(label.id("id", row.id)?),
            scope: row.scope,
            unit: row.unit,
            is_open: row.is_open == 1,
        })
    });
    found.collect()
}

/// Those of these scopes that are not closed. Of each scope those are read that could stand on the page, from where it
/// begins in the index on; where a unit is wanted, that is the first one from there on.
pub(crate) fn open(
    wanted: &OpenBudgets,
) -> Map<'static, Sqlite, impl FnMut(SqliteRow) -> Result<BudgetColumns, sqlx::Error> + Send, SqliteArguments>
{
    let tenant = &wanted.tenant.as_bytes()[..];
    let scopes: Vec<_> = wanted.scopes.iter().map(model::Scope::key).collect();
    let scopes = json!(scopes).to_string();
    let unit = wanted.unit.as_ref().map(Unit::as_str);
    // No unit is empty.
    let after = wanted.after.as_ref().map_or("", Unit::as_str);
    let of_scope_max = if unit.is_some() { 1 } else { wanted.limit };
    sqlx::query_as!(
        BudgetColumns,
        r#"SELECT
               budgets.tenant_no AS "tenant_no!: i64",
               budgets.value AS "value!: String"
           FROM tenants
           CROSS JOIN json_each(?2) AS asked
           CROSS JOIN budgets
               ON budgets.tenant_no = tenants.tenant_no
              AND budgets.id IN (
                  SELECT of_scope.id
                  FROM budgets AS of_scope INDEXED BY budgets_open
                  WHERE of_scope.tenant_no = tenants.tenant_no
                    AND of_scope.scope = asked.value
                    AND of_scope.unit >= max(coalesce(?3, ''), iif(asked.key = 0, ?4, ''))
                    AND of_scope.unit <> iif(asked.key = 0, ?4, '')
                    AND of_scope.is_open = 1
                  ORDER BY of_scope.unit
                  LIMIT ?5
              )
           WHERE tenants.tenant_id = ?1
             AND (?3 IS NULL OR budgets.unit = ?3)
           ORDER BY asked.key, budgets.unit
           LIMIT ?6"#,
        tenant,
        scopes,
        unit,
        after,
        of_scope_max,
        wanted.limit,
    )
}

#[async_trait]
impl Budgets for SqliteStore {
    async fn balances(&self, wanted: &WantedBalances) -> Result<FoundBalances, StoreError> {
        bounded(balances::find(&self.readers, wanted)).await
    }

    async fn list_budgets(
        &self,
        tenant: TenantId,
        filter: &BudgetFilter,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Part<Budget, BudgetId>, StoreError> {
        bounded(list(&self.readers, tenant, filter, before, limit)).await
    }

    async fn budget_places(
        &self,
        tenant: TenantId,
        before: Option<BudgetId>,
        limit: u32,
    ) -> Result<Vec<BudgetPlace>, StoreError> {
        let before = before.as_ref().map_or(&BEYOND_IDS, BudgetId::as_bytes);
        bounded(places(&self.readers, tenant, before, limit)).await
    }

    async fn open_budgets(&self, wanted: &OpenBudgets) -> Result<Vec<Budget>, StoreError> {
        let read = async {
            let rows = open(wanted).fetch_all(&self.readers).await;
            let rows = rows.map_err(unavailable)?;
            rows.iter().map(|row| decode(row.tenant_no, &row.value)).collect()
        };
        bounded(read).await
    }

    async fn run_links(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        bounded(links::find(&self.readers, runs_json(runs))).await
    }

    async fn run_links_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunLink>, StoreError> {
        bounded(links::list(&self.readers, tenant, after, limit)).await
    }

    async fn reply(&self, key: &ReplyKey) -> Result<Option<ReplyRow>, StoreError> {
        let found = links::find_replies(&self.readers, std::slice::from_ref(key));
        Ok(bounded(found).await?.pop())
    }

    async fn replies_after(
        &self,
        tenant: TenantId,
        after: Option<&ReplyKey>,
        limit: u32,
    ) -> Result<Vec<ReplyRow>, StoreError> {
        bounded(links::list_replies(&self.readers, tenant, after, limit)).await
    }

    async fn forget_replies(&self, before: Timestamp) -> Result<u64, StoreError> {
        // Nearly always there are none, and commits need not wait for that to be found.
        if !bounded(links::has_replies_before(&self.readers, before)).await? {
            return Ok(0);
        }
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(links::forget_replies(writer, before)).await
    }

    async fn count_budgets(&self, tenant: TenantId) -> Result<u64, StoreError> {
        bounded(count(&self.readers, tenant)).await
    }

    async fn reservation(
        &self,
        tenant: TenantId,
        id: ReservationId,
    ) -> Result<Option<Reservation>, StoreError> {
        bounded(reservations::one(&self.readers, tenant, id)).await
    }

    async fn list_reservations(
        &self,
        tenant: TenantId,
        filter: &ReservationFilter,
        before: Option<ReservationId>,
        limit: u32,
    ) -> Result<Part<Reservation, ReservationId>, StoreError> {
        bounded(reservations::list(&self.readers, tenant, filter, before, limit)).await
    }

    async fn overdue_reservations(
        &self,
        except: &[TenantId],
        ended_by: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
        bounded(reservations::overdue(&self.readers, except, ended_by, limit)).await
    }
}
