//! Budgets: written in the commit of the entry that moves them, read by id, by scope, and in lists.

use crate::connections::Connections;
use crate::decode::{BEYOND_IDS, RowLabel, uuid};
use crate::{PostgresStore, balances, bounded, links, reservations};
use async_trait::async_trait;
use model::budget::BudgetStatus;
use model::{Budget, BudgetId, Name, Reservation, ReservationId, RunLink, TenantId, Timestamp, Unit};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{
    Batch, BudgetFilter, BudgetPlace, Budgets, FoundBalances, LOOKED_AT_MAX, OpenBudgets, Part, ReplyKey,
    ReplyRow, ReservationFilter, StoreError, WantedBalances, WantedBudgets,
};

/// Budgets as they are from now on, a vector a column.
#[derive(Default)]
pub(crate) struct BudgetColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) scopes: Vec<String>,
    pub(crate) units: Vec<String>,
    pub(crate) are_open: Vec<bool>,
    pub(crate) values: Vec<String>,
}

impl BudgetColumns {
    /// The budgets of a batch. What is closed comes first, so that another one can take its place in the same batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut budgets: Vec<_> = batch.budgets.budgets.iter().collect();
        budgets.sort_by_key(|(_, budget)| budget.status != BudgetStatus::Closed);
        let mut rows = Self::default();
        for (tenant, budget) in budgets {
            rows.tenants.push(uuid(*tenant));
            rows.ids.push(Uuid::from_bytes(*budget.id.as_bytes()));
            rows.scopes.push(budget.scope.key());
            rows.units.push(budget.unit.to_string());
            rows.are_open.push(budget.status != BudgetStatus::Closed);
            rows.values.push(budget.to_json());
        }
        rows
    }
}

/// What is read of a budget.
pub(crate) struct Columns {
    tenant_id: Uuid,
    value: String,
}

/// Those of these budgets that are there, each once.
pub(crate) fn question(
    wanted: &WantedBudgets,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let id_tenants: Vec<_> = wanted.ids.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let ids = wanted.ids.iter().map(|(_, id)| Uuid::from_bytes(*id.as_bytes()));
    let ids: Vec<_> = ids.collect();
    let scope_tenants: Vec<_> = wanted.scopes.iter().map(|(tenant, ..)| uuid(*tenant)).collect();
    let scopes: Vec<_> = wanted.scopes.iter().map(|(_, scope, _)| scope.key()).collect();
    let units = wanted.scopes.iter().map(|(.., unit)| unit.as_ref());
    let units: Vec<_> = units.map(|unit| unit.map(ToString::to_string)).collect();
    sqlx::query_as!(
        Columns,
        r#"SELECT
               budgets.tenant_id AS "tenant_id!",
               budgets.value AS "value!"
           FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, id)
           JOIN budgets
               ON budgets.tenant_id = asked.tenant_id
              AND budgets.id = asked.id
           UNION
           SELECT
               budgets.tenant_id,
               budgets.value
           FROM unnest($3::uuid[], $4::text[], $5::text[]) AS asked (tenant_id, scope, unit)
           JOIN budgets
               ON budgets.tenant_id = asked.tenant_id
              AND budgets.scope = asked.scope COLLATE "C"
              AND (asked.unit IS NULL OR budgets.unit = asked.unit COLLATE "C")
              AND budgets.is_open"#,
        &id_tenants,
        &ids,
        &scope_tenants,
        &scopes,
        &units as &[Option<String>],
    )
}

/// What was found.
pub(crate) fn decode(rows: Vec<Columns>) -> Result<Vec<(TenantId, Budget)>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        Ok((tenant, budget(tenant, &found.value)?))
    });
    found.collect()
}

pub(crate) fn budget(tenant: TenantId, value: &str) -> Result<Budget, StoreError> {
    let label = RowLabel {
        table: "budgets",
        tenant,
        seq: None,
    };
    Budget::from_json(value).map_err(|error| label.malformed("budget", error.column()))
}

/// A tenant.
pub(crate) struct TenantColumn {
    tenant_id: Uuid,
}

/// Those of these tenants that have a budget that is not closed.
pub(crate) fn have(
    tenants: &[TenantId],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<TenantColumn, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = tenants.iter().map(|tenant| uuid(*tenant)).collect();
    sqlx::query_as!(
        TenantColumn,
        r#"SELECT asked.tenant_id AS "tenant_id!"
           FROM unnest($1::uuid[]) AS asked (tenant_id)
           WHERE EXISTS (
               SELECT 1
               FROM budgets
               WHERE budgets.tenant_id = asked.tenant_id
                 AND budgets.is_open
           )"#,
        &tenants,
    )
}

/// The tenants in these rows.
pub(crate) fn tenants(rows: Vec<TenantColumn>) -> Vec<TenantId> {
    let tenants = rows.into_iter();
    tenants
        .map(|row| TenantId::from_bytes(row.tenant_id.into_bytes()))
        .collect()
}

/// What is read of a budget whose tenant is known.
pub(crate) struct ValueColumn {
    value: String,
}

/// Those of these scopes that are not closed. Of each scope those are read that could stand on the page, from where it
/// begins in the index on; where a unit is wanted, that is the first one from there on.
pub(crate) fn open(
    wanted: &OpenBudgets,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<ValueColumn, sqlx::Error> + Send, PgArguments> {
    let scopes: Vec<_> = wanted.scopes.iter().map(model::Scope::key).collect();
    let unit = wanted.unit.as_ref().map(Unit::as_str);
    // No unit is empty.
    let after = wanted.after.as_ref().map_or("", Unit::as_str);
    let of_scope_max = if unit.is_some() { 1 } else { wanted.limit };
    sqlx::query_as!(
        ValueColumn,
        r#"SELECT budgets.value AS "value!"
           FROM unnest($2::text[]) WITH ORDINALITY AS asked (scope, place)
           CROSS JOIN LATERAL (
               SELECT unit, value
               FROM budgets
               WHERE tenant_id = $1
                 AND scope = asked.scope COLLATE "C"
                 AND unit >= greatest(coalesce($3::text, ''), CASE asked.place WHEN 1 THEN $4::text ELSE '' END) COLLATE "C"
                 AND unit <> CASE asked.place WHEN 1 THEN $4::text ELSE '' END COLLATE "C"
                 AND is_open
               ORDER BY unit
               LIMIT $5
           ) AS budgets
           WHERE $3::text IS NULL OR budgets.unit = $3
           ORDER BY asked.place, budgets.unit
           LIMIT $6"#,
        uuid(wanted.tenant),
        &scopes,
        unit,
        after,
        i64::from(of_scope_max),
        i64::from(wanted.limit),
    )
}

/// A page of a tenant's, newest first.
async fn list(
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &BudgetFilter,
    before: Option<BudgetId>,
    limit: u32,
) -> Result<Part<Budget, BudgetId>, StoreError> {
    let before = before.map_or(BEYOND_IDS, |id| Uuid::from_bytes(*id.as_bytes()));
    let of_open = filter.is_open == Some(true);
    let end = if filter.unit.is_some() || filter.is_open == Some(false) {
        end_of_stretch(readers, tenant, of_open, before).await?
    } else {
        None
    };
    let ids = (end.unwrap_or(Uuid::nil()), before);
    let rows = if of_open {
        let query = || open_stretch(tenant, filter.unit.as_ref(), ids, limit);
        readers.read(query).await?
    } else {
        readers.read(|| stretch(tenant, filter, ids, limit)).await?
    };
    let found = rows.iter().map(|row| budget(tenant, &row.value));
    let found = found.collect::<Result<Vec<_>, _>>()?;
    let end = end.map(|id| BudgetId::from_bytes(id.into_bytes()));
    Ok(Part::new(found, limit, |budget: &Budget| budget.id, end))
}

/// Where a budget stands in lists.
struct IdColumn {
    id: Uuid,
}

/// The last of those that a page looks at, which may be open ones only; none if there are not so many.
async fn end_of_stretch(
    readers: &Arc<Connections>,
    tenant: TenantId,
    of_open: bool,
    before: Uuid,
) -> Result<Option<Uuid>, StoreError> {
    let offset = i64::from(LOOKED_AT_MAX - 1);
    let rows = if of_open {
        let query = || {
            sqlx::query_as!(
                IdColumn,
                "SELECT id
                 FROM budgets
                 WHERE tenant_id = $1
                   AND id < $2
                   AND is_open
                 ORDER BY id DESC
                 LIMIT 1 OFFSET $3",
                uuid(tenant),
                before,
                offset,
            )
        };
        readers.read(query).await?
    } else {
        let query = || {
            sqlx::query_as!(
                IdColumn,
                "SELECT id
                 FROM budgets
                 WHERE tenant_id = $1
                   AND id < $2
                 ORDER BY id DESC
                 LIMIT 1 OFFSET $3",
                uuid(tenant),
                before,
                offset,
            )
        };
        readers.read(query).await?
    };
    Ok(rows.first().map(|row| row.id))
}

/// Those that match among the budgets from one id on and before another, newest first.
fn stretch(
    tenant: TenantId,
    filter: &BudgetFilter,
    (first, before): (Uuid, Uuid),
    limit: u32,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<ValueColumn, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        ValueColumn,
        "SELECT value
         FROM budgets
         WHERE tenant_id = $1
           AND id >= $2
           AND id < $3
           AND ($4::text IS NULL OR unit = $4)
           AND ($5::boolean IS NULL OR is_open = $5)
         ORDER BY id DESC
         LIMIT $6",
        uuid(tenant),
        first,
        before,
        filter.unit.as_ref().map(Unit::as_str),
        filter.is_open,
        i64::from(limit),
    )
}

/// The same of those that are not closed, however many closed ones stand between them. It says so without a parameter,
/// so that it can be planned by the index of these.
fn open_stretch(
    tenant: TenantId,
    unit: Option<&Unit>,
    (first, before): (Uuid, Uuid),
    limit: u32,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<ValueColumn, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        ValueColumn,
        "SELECT value
         FROM budgets
         WHERE tenant_id = $1
           AND id >= $2
           AND id < $3
           AND is_open
           AND ($4::text IS NULL OR unit = $4)
         ORDER BY id DESC
         LIMIT $5",
        uuid(tenant),
        first,
        before,
        unit.map(Unit::as_str),
        i64::from(limit),
    )
}

#[async_trait]
impl Budgets for PostgresStore {
    async fn balances(&self, wanted: &WantedBalances) -> Result<FoundBalances, StoreError> {
        let rows = bounded(self.readers.read(|| balances::question(wanted))).await?;
        balances::decode(wanted.tenant, &rows)
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
        let before = before.map_or(BEYOND_IDS, |id| Uuid::from_bytes(*id.as_bytes()));
        let read = self.readers.read(|| {
            sqlx::query!(
                "SELECT
                     id,
                     scope,
                     unit,
                     is_open
                 FROM budgets
                 WHERE tenant_id = $1
                   AND id < $2
                 ORDER BY id DESC
                 LIMIT $3",
                uuid(tenant),
                before,
                i64::from(limit),
            )
        });
        let rows = bounded(read).await?.into_iter();
        let places = rows.map(|row| BudgetPlace {
            id: BudgetId::from_bytes(row.id.into_bytes()),
            scope: row.scope,
            unit: row.unit,
            is_open: row.is_open,
        });
        Ok(places.collect())
    }

    async fn open_budgets(&self, wanted: &OpenBudgets) -> Result<Vec<Budget>, StoreError> {
        let rows = bounded(self.readers.read(|| open(wanted))).await?;
        let rows = rows.iter();
        rows.map(|row| budget(wanted.tenant, &row.value)).collect()
    }

    async fn run_links(&self, runs: &[(TenantId, Name)]) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        links::decode(bounded(self.readers.read(|| links::question(runs))).await?)
    }

    async fn run_links_after(
        &self,
        tenant: TenantId,
        after: Option<&Name>,
        limit: u32,
    ) -> Result<Vec<RunLink>, StoreError> {
        let found = bounded(self.readers.read(|| links::list(tenant, after, limit))).await?;
        Ok(links::decode(found)?.into_iter().map(|(_, link)| link).collect())
    }

    async fn reply(&self, key: &ReplyKey) -> Result<Option<ReplyRow>, StoreError> {
        let read = self
            .readers
            .read(|| links::reply_question(std::slice::from_ref(key)));
        Ok(links::decode_replies(bounded(read).await?)?.pop())
    }

    async fn replies_after(
        &self,
        tenant: TenantId,
        after: Option<&ReplyKey>,
        limit: u32,
    ) -> Result<Vec<ReplyRow>, StoreError> {
        links::decode_replies(bounded(self.readers.read(|| links::list_replies(tenant, after, limit))).await?)
    }

    async fn forget_replies(&self, before: Timestamp) -> Result<u64, StoreError> {
        links::forget_replies(self, before).await
    }

    async fn count_budgets(&self, tenant: TenantId) -> Result<u64, StoreError> {
        let read = self.readers.read(|| {
            sqlx::query!(
                r#"SELECT count(*) AS "count!"
                   FROM budgets
                   WHERE tenant_id = $1
                     AND is_open"#,
                uuid(tenant),
            )
        });
        let rows = bounded(read).await?;
        Ok(rows.first().map_or(0, |row| row.count.unsigned_abs()))
    }

    async fn reservation(
        &self,
        tenant: TenantId,
        id: ReservationId,
    ) -> Result<Option<Reservation>, StoreError> {
        reservations::one(self, tenant, id).await
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
        reservations::overdue(self, except, ended_by, limit).await
    }
}
