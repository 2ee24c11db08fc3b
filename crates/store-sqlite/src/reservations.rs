//! Reservations: written in the commit of the entry that moves them, read by id, in lists, and by what should have ended.
//!
//! A row is short, because each ask with an estimate writes one and rows of many are what fills pages: what has a
//! column stands there only, and `value` is the [`Rest`] without names.

use crate::commit::{NotWritten, Transaction};
use crate::decode::{BEYOND_IDS, RowLabel};
use crate::journal::{ids_json, tenants_json};
use crate::unavailable;
use model::{
    AgentId, Amount, BudgetId, Charge, DecisionId, Name, Reservation, ReservationId, ReservationStatus,
    SlashFreeName, TenantId, Timestamp, Unit,
};
use rusqlite::params;
use sqlx::{SqliteExecutor, SqlitePool};
use std::borrow::Cow;
use store::{LOOKED_AT_MAX, Part, ReservationFilter, StoreError, WantedReservations};

const PUT: &str = "INSERT INTO reservations (tenant_no, id, agent, status, expires_at, value) \
    VALUES (?, ?, ?, ?, ?, ?) \
    ON CONFLICT (tenant_no, id) DO UPDATE \
    SET status = excluded.status, expires_at = excluded.expires_at, value = excluded.value";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 1] = [PUT];

/// What has no column: unit, amount, budgets, tool, run, decision, charge, and when it was made in milliseconds
/// since 1970. A JSON array of these; versions before wrote the whole reservation as an object.
type Rest<'r> = (
    Cow<'r, Unit>,
    Amount,
    Cow<'r, [BudgetId]>,
    Option<Cow<'r, SlashFreeName>>,
    Option<Cow<'r, Name>>,
    Option<DecisionId>,
    Option<Charge>,
    i64,
);

/// Writes down reservations as they are from now on.
pub(crate) fn write(
    transaction: &Transaction<'_>,
    reservations: &[(TenantId, Reservation)],
) -> Result<(), NotWritten> {
    for (tenant, reservation) in reservations {
        transaction.statement(PUT)?.execute(params![
            transaction.tenant_no(*tenant)?,
            reservation.id.as_bytes(),
            reservation.agent.as_bytes(),
            reservation.status.as_str(),
            reservation.expires_at.millis(),
            rest(reservation),
        ])?;
    }
    Ok(())
}

fn rest(held: &Reservation) -> String {
    let rest: Rest<'_> = (
        Cow::Borrowed(&held.unit),
        held.amount,
        Cow::Borrowed(&held.budgets),
        held.tool.as_ref().map(Cow::Borrowed),
        held.run_id.as_ref().map(Cow::Borrowed),
        held.decision_id,
        held.charge,
        held.created_at.millis(),
    );
    serde_json::to_string(&rest).expect("it has no keys, and no numbers that are none")
}

/// A row.
pub(crate) struct ReservationColumns {
    pub(crate) tenant_no: i64,
    pub(crate) id: Vec<u8>,
    pub(crate) agent: Vec<u8>,
    pub(crate) status: String,
    pub(crate) expires_at: i64,
    pub(crate) value: String,
}

impl ReservationColumns {
    pub(crate) fn decode(self) -> Result<Reservation, StoreError> {
        let label = RowLabel {
            table: "reservations",
            row: self.tenant_no,
        };
        let no_reservation = |error: serde_json::Error| label.malformed("reservation", error.column());
        if self.value.starts_with('{') {
            return Reservation::from_json(&self.value).map_err(no_reservation);
        }
        let rest: Rest<'_> = serde_json::from_str(&self.value).map_err(no_reservation)?;
        let (unit, amount, budgets, tool, run_id, decision_id, charge, created_at) = rest;
        let status = ReservationStatus::from_word(&self.status);
        Ok(Reservation {
            id: ReservationId::from_bytes(label.id("id", self.id)?),
            agent: AgentId::from_bytes(label.id("agent", self.agent)?),
            unit: unit.into_owned(),
            amount,
            budgets: budgets.into_owned(),
            tool: tool.map(Cow::into_owned),
            run_id: run_id.map(Cow::into_owned),
            decision_id,
            status: status.ok_or_else(|| label.corrupt("status", "is no status"))?,
            charge,
            created_at: Timestamp::from_millis(created_at),
            expires_at: Timestamp::from_millis(self.expires_at),
        })
    }
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
               reservations.id AS "id!: Vec<u8>",
               reservations.agent AS "agent!: Vec<u8>",
               reservations.status AS "status!: String",
               reservations.expires_at AS "expires_at!: i64",
               reservations.value AS "value!: String"
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
              AND reservations.id = unhex(substr(asked.value, 33, 32))
           UNION
           SELECT tenant_id, tenant_no, id, agent, status, expires_at, value
           FROM (
               SELECT
                   tenants.tenant_id,
                   reservations.tenant_no,
                   reservations.id,
                   reservations.agent,
                   reservations.status,
                   reservations.expires_at,
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
    .map_err(crate::unread)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "tenants",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        let columns = ReservationColumns {
            tenant_no: row.tenant_no,
            id: row.id,
            agent: row.agent,
            status: row.status,
            expires_at: row.expires_at,
            value: row.value,
        };
        Ok((tenant, columns.decode()?))
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
        let label = RowLabel {
            table: "tenants",
            row: row.tenant_no,
        };
        let tenant = label.id("tenant_id", row.tenant_id).map(TenantId::from_bytes);
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
    let row = sqlx::query_as!(
        ReservationColumns,
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.id,
               reservations.agent,
               reservations.status,
               reservations.expires_at,
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
    row.map(ReservationColumns::decode).transpose()
}

/// A page of them, newest first.
pub(crate) async fn list(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &ReservationFilter,
    before: Option<ReservationId>,
    limit: u32,
) -> Result<Part<Reservation, ReservationId>, StoreError> {
    let before = before.as_ref().map_or(&BEYOND_IDS, ReservationId::as_bytes);
    let mut end = None;
    let found = match (filter.status, filter.agent) {
        (None, None) => stretch(readers, tenant, filter, (&[], before), limit).await?,
        (Some(ReservationStatus::Active), agent) if are_few_held(readers, tenant).await? => {
            held(readers, tenant, agent, before, limit).await?
        }
        _ => {
            end = end_of_stretch(readers, tenant, before).await?;
            let first = end.as_ref().map_or(&[][..], |id| id.as_bytes());
            stretch(readers, tenant, filter, (first, before), limit).await?
        }
    };
    Ok(Part::new(found, limit, |reservation| reservation.id, end))
}

/// The last of those that a page looks at; none if there are not so many.
async fn end_of_stretch(
    readers: &SqlitePool,
    tenant: TenantId,
    before: &[u8; 16],
) -> Result<Option<ReservationId>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let row = sqlx::query!(
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.id
           FROM tenants
           CROSS JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
              AND reservations.id < ?2
           WHERE tenants.tenant_id = ?1
           ORDER BY reservations.id DESC
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
            table: "reservations",
            row: row.tenant_no,
        };
        label.id("id", row.id).map(ReservationId::from_bytes)
    });
    id.transpose()
}

/// Those that match among the reservations from one id on and before another.
async fn stretch(
    readers: &SqlitePool,
    tenant: TenantId,
    filter: &ReservationFilter,
    (first, before): (&[u8], &[u8; 16]),
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let status = filter.status.map(ReservationStatus::as_str);
    let agent = filter.agent.as_ref().map(|agent| &agent.as_bytes()[..]);
    let rows = sqlx::query_as!(
        ReservationColumns,
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.id,
               reservations.agent,
               reservations.status,
               reservations.expires_at,
               reservations.value
           FROM tenants
           CROSS JOIN reservations
               ON reservations.tenant_no = tenants.tenant_no
              AND reservations.id >= ?2
              AND reservations.id < ?3
           WHERE tenants.tenant_id = ?1
             AND (?4 IS NULL OR reservations.status = ?4)
             AND (?5 IS NULL OR reservations.agent = ?5)
           ORDER BY reservations.id DESC
           LIMIT ?6"#,
        tenant_id,
        first,
        before,
        status,
        agent,
        limit,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    rows.into_iter().map(ReservationColumns::decode).collect()
}

/// Whether so few are held that a page may look at all of them: their index has them in another order.
async fn are_few_held(readers: &SqlitePool, tenant: TenantId) -> Result<bool, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let held = sqlx::query_scalar!(
        r#"SELECT count(*) AS "held!: u32"
           FROM (
               SELECT 1
               FROM tenants
               CROSS JOIN reservations INDEXED BY reservations_held
                   ON reservations.tenant_no = tenants.tenant_no
               WHERE tenants.tenant_id = ?1
                 AND reservations.status = 'active'
               LIMIT ?2 + 1
           )"#,
        tenant_id,
        LOOKED_AT_MAX,
    )
    .fetch_one(readers)
    .await
    .map_err(unavailable)?;
    Ok(held <= LOOKED_AT_MAX)
}

/// Those that are held, before an id.
async fn held(
    readers: &SqlitePool,
    tenant: TenantId,
    agent: Option<AgentId>,
    before: &[u8; 16],
    limit: u32,
) -> Result<Vec<Reservation>, StoreError> {
    let (tenant_id, before) = (&tenant.as_bytes()[..], &before[..]);
    let agent = agent.as_ref().map(|agent| &agent.as_bytes()[..]);
    let rows = sqlx::query_as!(
        ReservationColumns,
        r#"SELECT
               reservations.tenant_no AS "tenant_no!",
               reservations.id,
               reservations.agent,
               reservations.status,
               reservations.expires_at,
               reservations.value
           FROM tenants
           CROSS JOIN reservations INDEXED BY reservations_held
               ON reservations.tenant_no = tenants.tenant_no
              AND reservations.id < ?2
           WHERE tenants.tenant_id = ?1
             AND reservations.status = 'active'
             AND (?3 IS NULL OR reservations.agent = ?3)
           ORDER BY reservations.id DESC
           LIMIT ?4"#,
        tenant_id,
        before,
        agent,
        limit,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    rows.into_iter().map(ReservationColumns::decode).collect()
}

/// Those of all tenants but these that are held and should have ended, in the order in which they should have. Those of
/// each tenant come from the index in this order, so SQLite leaves a tenant at the first that is too late to be among
/// so many.
pub(crate) async fn overdue(
    executor: impl SqliteExecutor<'_>,
    except: &[TenantId],
    ended_by: Timestamp,
    limit: u32,
) -> Result<Vec<(TenantId, ReservationId)>, StoreError> {
    let (except, ended_by) = (tenants_json(except), ended_by.millis());
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
             AND tenants.tenant_id NOT IN (SELECT unhex(value) FROM json_each(?3))
           ORDER BY reservations.expires_at
           LIMIT ?2"#,
        ended_by,
        limit,
        except,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let overdue = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "reservations",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        Ok((tenant, ReservationId::from_bytes(label.id("id", row.id)?)))
    });
    overdue.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held() -> Reservation {
        Reservation {
            id: ReservationId::from_bytes([1; 16]),
            agent: AgentId::from_bytes([2; 16]),
            unit: Unit::new("TOKENS").unwrap(),
            amount: Amount::clamped(12),
            budgets: vec![BudgetId::from_bytes([3; 16]), BudgetId::from_bytes([4; 16])],
            tool: Some(SlashFreeName::new("files").unwrap()),
            run_id: Some(Name::new("run \"1\"").unwrap()),
            decision_id: Some(DecisionId::from_bytes([5; 16])),
            status: ReservationStatus::Active,
            charge: None,
            created_at: Timestamp::from_millis(1_795_353_644_001),
            expires_at: Timestamp::from_millis(1_795_353_704_001),
        }
    }

    fn columns(of: &Reservation, value: String) -> ReservationColumns {
        ReservationColumns {
            tenant_no: 7,
            id: of.id.as_bytes().to_vec(),
            agent: of.agent.as_bytes().to_vec(),
            status: of.status.as_str().to_owned(),
            expires_at: of.expires_at.millis(),
            value,
        }
    }

    #[test]
    fn a_row_is_read_as_it_was_written() {
        let charge = Charge {
            actual: Amount::clamped(12),
            charged: Amount::clamped(10),
        };
        let bare = Reservation {
            tool: None,
            run_id: None,
            decision_id: None,
            ..held()
        };
        for held in [held(), bare, held().commit(charge), held().release()] {
            let value = rest(&held);
            assert_eq!(columns(&held, value).decode().unwrap(), held);
        }
    }

    /// What is stored today is read by every later version, and so is what versions before stored.
    #[test]
    fn a_row_of_a_version_before_is_read() {
        let stored = r#"["TOKENS",12,["bgt_01m8020yhvfjs9rwhvzb5nw5aq"],"files",null,null,{"actual":12,"charged":10},1795353644001]"#;
        let read = columns(&held(), stored.to_owned()).decode().unwrap();
        assert_eq!(rest(&read), stored);
        let before = columns(&held(), held().to_json());
        assert_eq!(before.decode().unwrap(), held());
    }

    #[test]
    fn a_row_that_was_never_written_is_named() {
        let value = || rest(&held());
        let rows = [
            columns(&held(), "[]".to_owned()),
            columns(&held(), "{}".to_owned()),
            columns(&held(), value().replace("\"TOKENS\"", "\"\"")),
            ReservationColumns {
                status: "gone".to_owned(),
                ..columns(&held(), value())
            },
            ReservationColumns {
                agent: vec![0; 15],
                ..columns(&held(), value())
            },
        ];
        for row in rows {
            let message = row.decode().unwrap_err().to_string();
            assert!(message.contains("of row 7 of `reservations`"), "{message}");
        }
    }
}
