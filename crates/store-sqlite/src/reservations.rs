//! Reservations: written in the commit of the entry that moves them, read by id, in lists, and by what should have ended.

use crate::decode::Place;
use crate::insert::TenantNumbers;
use crate::journal::{hex, ids_json, tenants_json};
use crate::purse::{Bound, Rows};
use crate::unavailable;
use model::{Reservation, ReservationId, TenantId, Timestamp};
use serde_json::json;
use sqlx::sqlite::SqliteArguments;
use sqlx::{Arguments, SqliteExecutor};
use store::{Batch, ReservationFilter, StoreError, WantedReservations};

/// Writes down reservations, which are one value: a JSON text.
pub(crate) const WRITE: &str = "INSERT INTO reservations (tenant_no, id, agent, status, expires_at, value) \
    SELECT value ->> 0, unhex(value ->> 1), unhex(value ->> 2), value ->> 3, value ->> 4, value ->> 5 \
    FROM json_each(?) \
    WHERE true \
    ON CONFLICT (tenant_no, id) DO UPDATE \
    SET status = excluded.status, expires_at = excluded.expires_at, value = excluded.value";

/// The same, where each reservation has values of its own.
pub(crate) const FEW: Rows = Rows {
    begin: "INSERT INTO reservations (tenant_no, id, agent, status, expires_at, value) VALUES ",
    row: "(?, ?, ?, ?, ?, ?)",
    end: " ON CONFLICT (tenant_no, id) DO UPDATE \
        SET status = excluded.status, expires_at = excluded.expires_at, value = excluded.value",
};

/// Binds such a row.
pub(crate) fn bind(reservation: &Reservation, tenant_no: i64, arguments: &mut SqliteArguments) -> Bound {
    arguments.add(tenant_no)?;
    arguments.add(&reservation.id.as_bytes()[..])?;
    arguments.add(&reservation.agent.as_bytes()[..])?;
    arguments.add(reservation.status.as_str())?;
    arguments.add(reservation.expires_at.millis())?;
    arguments.add(reservation.to_json())
}

/// The reservations of a batch as that text, with nothing borrowed from it.
pub(crate) fn rows(batch: &Batch, numbers: &TenantNumbers) -> String {
    let row = |(tenant, reservation): &(TenantId, Reservation)| {
        // INVARIANT: a checked batch advances the tenant of every reservation.
        let tenant_no = numbers.get(tenant)?;
        Some(json!([
            tenant_no,
            hex(reservation.id.as_bytes()),
            hex(reservation.agent.as_bytes()),
            reservation.status.as_str(),
            reservation.expires_at.millis(),
            reservation.to_json(),
        ]))
    };
    let rows: Vec<_> = batch.budgets.reservations.iter().filter_map(row).collect();
    serde_json::Value::from(rows).to_string()
}

pub(crate) fn decode(tenant_no: i64, value: &str) -> Result<Reservation, StoreError> {
    let place = Place {
        table: "reservations",
        row: tenant_no,
    };
    Reservation::from_json(value)
        .map_err(|error| place.corrupt("value", &format!("is no reservation: {error}")))
}

/// Those of these reservations that are there, each once.
pub(crate) async fn find(
    executor: impl SqliteExecutor<'_>,
    wanted: &WantedReservations,
) -> Result<Vec<(TenantId, Reservation)>, StoreError> {
    let ids = ids_json(
        wanted
            .ids
            .iter()
            .map(|(tenant, id)| (tenant.as_bytes(), id.as_bytes())),
    );
    let tenants = tenants_json(&wanted.tenants);
    let ended_by = wanted.ended_by.millis();
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id AS "tenant_id!: Vec<u8>",
               reservations.tenant_no AS "tenant_no!: i64",
               reservations.value AS "value!: String"
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
              AND reservations.id = unhex(substr(asked.value, 33, 32))
           UNION
           SELECT tenant_id, tenant_no, value
           FROM (
               SELECT
                   tenants.tenant_id,
                   reservations.tenant_no,
                   reservations.value
               FROM json_each(?2) AS asked
               CROSS JOIN tenants
                   ON tenants.tenant_id = unhex(asked.value)
               CROSS JOIN reservations INDEXED BY reservations_held
                   ON reservations.tenant_no = tenants.tenant_no
                  AND reservations.expires_at <= ?3
                  AND reservations.status = 'active'
               LIMIT ?4
           )"#,
        ids,
        tenants,
        ended_by,
        wanted.limit,
    )
    .fetch_all(executor)
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

/// When the first of those ends that are held by each of these tenants, of those that end after this.
pub(crate) async fn first_ends(
    executor: impl SqliteExecutor<'_>,
    tenants: &[TenantId],
    after: Timestamp,
) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
    let (asked, after) = (tenants_json(tenants), after.millis());
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_no AS "tenant_no!: i64",
               tenants.tenant_id AS "tenant_id!: Vec<u8>",
               (
                   SELECT min(reservations.expires_at)
                   FROM reservations INDEXED BY reservations_held
                   WHERE reservations.tenant_no = tenants.tenant_no
                     AND reservations.expires_at > ?2
                     AND reservations.status = 'active'
               ) AS "ends: i64"
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(asked.value)"#,
        asked,
        after,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let found = rows.into_iter().filter_map(|row| {
        let ends = Timestamp::from_millis(row.ends?);
        let place = Place {
            table: "tenants",
            row: row.tenant_no,
        };
        let tenant = place.id("tenant_id", row.tenant_id).map(TenantId::from_bytes);
        Some(tenant.map(|tenant| (tenant, ends)))
    });
    found.collect()
}

/// One of them.
pub(crate) async fn one(
    executor: impl SqliteExecutor<'_>,
    tenant: TenantId,
    id: ReservationId,
) -> Result<Option<Reservation>, StoreError> {
    let (tenant_id, id) = (&tenant.as_bytes()[..], &id.as_bytes()[..]);
    let row = sqlx::query!(
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.value
           FROM tenants
           JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
           WHERE tenants.tenant_id = ?1
             AND reservations.id = ?2"#,
        tenant_id,
        id,
    )
    .fetch_optional(executor)
    .await
    .map_err(unavailable)?;
    row.map(|row| decode(row.tenant_no, &row.value)).transpose()
}

/// A page of them, newest first.
pub(crate) async fn list(
    executor: impl SqliteExecutor<'_>,
    tenant: TenantId,
    filter: &ReservationFilter,
    before: Option<ReservationId>,
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let status = filter.status.map(model::ReservationStatus::as_str);
    let agent = filter.agent.as_ref().map(|agent| &agent.as_bytes()[..]);
    let before = before.as_ref().map(|id| &id.as_bytes()[..]);
    let rows = sqlx::query!(
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.value
           FROM tenants
           JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
           WHERE tenants.tenant_id = ?1
             AND (?2 IS NULL OR reservations.status = ?2)
             AND (?3 IS NULL OR reservations.agent = ?3)
             AND (?4 IS NULL OR reservations.id < ?4)
           ORDER BY reservations.id DESC
           LIMIT ?5"#,
        tenant_id,
        status,
        agent,
        before,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    rows.iter().map(|row| decode(row.tenant_no, &row.value)).collect()
}

/// Those of all tenants that are held and should have ended.
pub(crate) async fn overdue(
    executor: impl SqliteExecutor<'_>,
    ended_by: Timestamp,
    limit: u32,
) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
    let ended_by = ended_by.millis();
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id,
               reservations.tenant_no AS "tenant_no!",
               reservations.id
           FROM tenants
           CROSS JOIN reservations INDEXED BY reservations_held
               ON reservations.tenant_no = tenants.tenant_no
           WHERE reservations.status = 'active'
             AND reservations.expires_at <= ?1
           LIMIT ?2"#,
        ended_by,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let overdue = rows.into_iter().map(|row| {
        let place = Place {
            table: "reservations",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(place.id("tenant_id", row.tenant_id)?);
        Ok((tenant, ReservationId::from_bytes(place.id("id", row.id)?)))
    });
    overdue.collect()
}
