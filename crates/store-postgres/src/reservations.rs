//! Reservations: written in the commit of the entry that moves them, read by id, in lists, and by what should have ended.

use crate::decode::{Row, uuid};
use crate::{PostgresStore, bounded};
use model::{Reservation, ReservationId, TenantId, Timestamp};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{Batch, ReservationFilter, StoreError, WantedReservations};

/// Reservations as they are from now on, a vector a column.
#[derive(Default)]
pub(crate) struct ReservationColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) ids: Vec<Uuid>,
    pub(crate) agents: Vec<Uuid>,
    pub(crate) statuses: Vec<&'static str>,
    pub(crate) expire_at: Vec<i64>,
    pub(crate) values: Vec<String>,
}

impl ReservationColumns {
    /// The reservations of a batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut rows = Self::default();
        for (tenant, reservation) in &batch.budgets.reservations {
            rows.tenants.push(uuid(*tenant));
            rows.ids.push(Uuid::from_bytes(*reservation.id.as_bytes()));
            rows.agents.push(Uuid::from_bytes(*reservation.agent.as_bytes()));
            rows.statuses.push(reservation.status.as_str());
            rows.expire_at.push(reservation.expires_at.millis());
            rows.values.push(reservation.to_json());
        }
        rows
    }
}

/// What is read of a reservation.
pub(crate) struct Columns {
    tenant_id: Uuid,
    value: String,
}

/// Those of these reservations that are there, each once.
pub(crate) fn question(
    wanted: &WantedReservations,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let id_tenants: Vec<_> = wanted.ids.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let ids = wanted.ids.iter().map(|(_, id)| Uuid::from_bytes(*id.as_bytes()));
    let ids: Vec<_> = ids.collect();
    let tenants: Vec<_> = wanted.tenants.iter().map(|tenant| uuid(*tenant)).collect();
    sqlx::query_as!(
        Columns,
        r#"SELECT
               reservations.tenant_id AS "tenant_id!",
               reservations.value AS "value!"
           FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, id)
           JOIN reservations
               ON reservations.tenant_id = asked.tenant_id
              AND reservations.id = asked.id
           UNION
           (
               SELECT
                   reservations.tenant_id,
                   reservations.value
               FROM reservations
               WHERE reservations.tenant_id = ANY($3::uuid[])
                 AND reservations.expires_at <= $4
                 AND reservations.status = 'active'
               LIMIT $5
           )"#,
        &id_tenants,
        &ids,
        &tenants,
        wanted.ended_by.millis(),
        i64::from(wanted.limit),
    )
}

/// What was found.
pub(crate) fn decode(rows: Vec<Columns>) -> Result<Vec<(TenantId, Reservation)>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        Ok((tenant, reservation(tenant, &found.value)?))
    });
    found.collect()
}

pub(crate) fn reservation(tenant: TenantId, value: &str) -> Result<Reservation, StoreError> {
    let row = Row {
        table: "reservations",
        tenant,
        seq: None,
    };
    Reservation::from_json(value)
        .map_err(|error| row.corrupt("value", &format!("is no reservation: {error}")))
}

/// What is read of a tenant.
pub(crate) struct FirstEnd {
    tenant_id: Uuid,
    ends: Option<i64>,
}

/// When the first of those ends that are held by each of these tenants, of those that end after this.
pub(crate) fn first_ends(
    tenants: &[TenantId],
    after: Timestamp,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<FirstEnd, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = tenants.iter().map(|tenant| uuid(*tenant)).collect();
    sqlx::query_as!(
        FirstEnd,
        r#"SELECT
               asked.tenant_id AS "tenant_id!",
               (
                   SELECT min(reservations.expires_at)
                   FROM reservations
                   WHERE reservations.tenant_id = asked.tenant_id
                     AND reservations.expires_at > $2
                     AND reservations.status = 'active'
               ) AS ends
           FROM unnest($1::uuid[]) AS asked (tenant_id)"#,
        &tenants,
        after.millis(),
    )
}

/// What was found of it.
pub(crate) fn decode_first_ends(rows: Vec<FirstEnd>) -> Vec<(TenantId, Timestamp)> {
    let found = rows.into_iter().filter_map(|row| {
        let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
        Some((tenant, Timestamp::from_millis(row.ends?)))
    });
    found.collect()
}

/// One of them.
pub(crate) async fn one(
    store: &PostgresStore,
    tenant: TenantId,
    id: ReservationId,
) -> Result<Option<Reservation>, StoreError> {
    let read = store.readers.read(|| {
        sqlx::query!(
            "SELECT value
             FROM reservations
             WHERE tenant_id = $1
               AND id = $2",
            uuid(tenant),
            Uuid::from_bytes(*id.as_bytes()),
        )
    });
    let rows = bounded(read).await?;
    rows.first()
        .map(|row| reservation(tenant, &row.value))
        .transpose()
}

/// A page of them, newest first.
pub(crate) async fn list(
    store: &PostgresStore,
    tenant: TenantId,
    filter: &ReservationFilter,
    before: Option<ReservationId>,
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    let read = store.readers.read(|| {
        sqlx::query!(
            "SELECT value
             FROM reservations
             WHERE tenant_id = $1
               AND ($2::text IS NULL OR status = $2)
               AND ($3::uuid IS NULL OR agent = $3)
               AND ($4::uuid IS NULL OR id < $4)
             ORDER BY id DESC
             LIMIT $5",
            uuid(tenant),
            filter.status.map(model::ReservationStatus::as_str),
            filter.agent.map(|agent| Uuid::from_bytes(*agent.as_bytes())),
            before.map(|id| Uuid::from_bytes(*id.as_bytes())),
            i64::from(limit),
        )
    });
    let rows = bounded(read).await?;
    rows.iter().map(|row| reservation(tenant, &row.value)).collect()
}

/// Those of all tenants that are held and should have ended.
pub(crate) async fn overdue(
    store: &PostgresStore,
    ended_by: Timestamp,
    limit: u32,
) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
    let read = store.readers.read(|| {
        sqlx::query!(
            "SELECT tenant_id, id
             FROM reservations
             WHERE status = 'active'
               AND expires_at <= $1
             LIMIT $2",
            ended_by.millis(),
            i64::from(limit),
        )
    });
    let rows = bounded(read).await?.into_iter();
    let overdue = rows.map(|row| {
        let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
        (tenant, ReservationId::from_bytes(row.id.into_bytes()))
    });
    Ok(overdue.collect())
}
