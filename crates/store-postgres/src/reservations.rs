//! Reservations: written in the commit of the entry that moves them, read by id, in lists, and by what should have ended.

use crate::connections::Connections;
use crate::decode::{BEYOND_IDS, RowLabel, uuid};
use crate::{PostgresStore, bounded};
use model::{AgentId, Reservation, ReservationId, ReservationStatus, TenantId, Timestamp};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use std::sync::Arc;
use store::{Batch, LOOKED_AT_MAX, Part, ReservationFilter, StoreError, WantedReservations};

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
    let label = RowLabel {
        table: "reservations",
        tenant,
        seq: None,
    };
    Reservation::from_json(value).map_err(|error| label.malformed("reservation", error.column()))
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
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &ReservationFilter,
    before: Option<ReservationId>,
    limit: u32,
) -> Result<Part<Reservation, ReservationId>, StoreError> {
    let before = before.map_or(BEYOND_IDS, |id| Uuid::from_bytes(*id.as_bytes()));
    let mut end = None;
    let found = match (filter.status, filter.agent) {
        (None, None) => stretch(readers, tenant, filter, (Uuid::nil(), before), limit).await?,
        (Some(ReservationStatus::Active), agent) if are_few_held(readers, tenant).await? => {
            held(readers, tenant, agent, before, limit).await?
        }
        _ => {
            end = end_of_stretch(readers, tenant, before).await?;
            let first = end.unwrap_or(Uuid::nil());
            stretch(readers, tenant, filter, (first, before), limit).await?
        }
    };
    let end = end.map(|id| ReservationId::from_bytes(id.into_bytes()));
    Ok(Part::new(found, limit, |reservation| reservation.id, end))
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
             FROM reservations
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

/// Those that match among the reservations from one id on and before another.
async fn stretch(
    readers: &Arc<Connections>,
    tenant: TenantId,
    filter: &ReservationFilter,
    (first, before): (Uuid, Uuid),
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    let query = || {
        sqlx::query!(
            "SELECT value
             FROM reservations
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
            filter.status.map(ReservationStatus::as_str),
            filter.agent.map(|agent| Uuid::from_bytes(*agent.as_bytes())),
            i64::from(limit),
        )
    };
    let rows = readers.read(query).await?;
    rows.iter().map(|row| reservation(tenant, &row.value)).collect()
}

/// Whether so few are held that a page may look at all of them: their index has them in another order.
async fn are_few_held(readers: &Arc<Connections>, tenant: TenantId) -> Result<bool, StoreError> {
    let query = || {
        sqlx::query!(
            r#"SELECT count(*) AS "held!"
               FROM (
                   SELECT
                   FROM reservations
                   WHERE tenant_id = $1
                     AND status = 'active'
                   LIMIT $2
               ) AS held"#,
            uuid(tenant),
            i64::from(LOOKED_AT_MAX) + 1,
        )
    };
    let rows = readers.read(query).await?;
    Ok(rows.iter().all(|row| row.held <= i64::from(LOOKED_AT_MAX)))
}

/// Those that are held, before an id.
async fn held(
    readers: &Arc<Connections>,
    tenant: TenantId,
    agent: Option<AgentId>,
    before: Uuid,
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    // Taken together before they are put in order: in the order of ids the planner would walk through all that ever were.
    let query = || {
        sqlx::query!(
            r#"WITH held AS MATERIALIZED (
                   SELECT id, agent, value
                   FROM reservations
                   WHERE tenant_id = $1
                     AND status = 'active'
               )
               SELECT value AS "value!"
               FROM held
               WHERE id < $2
                 AND ($3::uuid IS NULL OR agent = $3)
               ORDER BY id DESC
               LIMIT $4"#,
            uuid(tenant),
            before,
            agent.map(|agent| Uuid::from_bytes(*agent.as_bytes())),
            i64::from(limit),
        )
    };
    let rows = readers.read(query).await?;
    rows.iter().map(|row| reservation(tenant, &row.value)).collect()
}

/// Those of all tenants but these that are held and should have ended, in the order in which they should have.
pub(crate) async fn overdue(
    store: &PostgresStore,
    except: &[TenantId],
    ended_by: Timestamp,
    limit: u32,
) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
    let except: Vec<_> = except.iter().map(|tenant| uuid(*tenant)).collect();
    let read = store.readers.read(|| {
        sqlx::query!(
            "SELECT tenant_id, id
             FROM reservations
             WHERE status = 'active'
               AND expires_at + 0 <= $1
               AND tenant_id <> ALL ($3)
             ORDER BY expires_at + 0
             LIMIT $2",
            ended_by.millis(),
            i64::from(limit),
            &except,
        )
    });
    let rows = bounded(read).await?.into_iter();
    let overdue = rows.map(|row| {
        let tenant = TenantId::from_bytes(row.tenant_id.into_bytes());
        (tenant, ReservationId::from_bytes(row.id.into_bytes()))
    });
    Ok(overdue.collect())
}
