//! Databases of versions before this one: their table of requests becomes runs, in the order of its key, a bounded part
//! at a time.
//!
//! A part is converted in one transaction, or not at all, so whatever interrupts it, the next start goes on where it ended.

use super::run::{self, PAGE_SLOTS};
use super::{RECENT_MAX, RequestDigest};
use crate::checkpoint;
use crate::journal::push_hex;
use crate::tree::lift_guard;
use sqlx::{AssertSqlSafe, SqliteConnection};
use std::fmt::Write as _;

/// Rows of a part: as many as a run has that was in memory.
const PART: usize = RECENT_MAX;

/// A row of the old table.
struct OldRequest {
    tenant_no: i64,
    tenant_id: Vec<u8>,
    agent: Vec<u8>,
    request_id: String,
    entry: i64,
}

/// Converts all that is there.
pub(crate) async fn convert(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    convert_in_parts(connection, PART).await
}

/// Converts all that is there, so many rows at a time.
pub(crate) async fn convert_in_parts(
    connection: &mut SqliteConnection,
    rows: usize,
) -> Result<(), sqlx::Error> {
    let mut converted = 0;
    loop {
        // One row more says whether another part follows: the last one has to tell that all is in runs.
        let mut part = first_rows(connection, rows + 1).await?;
        let is_last = part.len() <= rows;
        part.truncate(rows);
        if part.is_empty() {
            break;
        }
        if converted == 0 {
            checkpoint::empty(connection).await?;
        }
        sqlx::query!("BEGIN IMMEDIATE").execute(&mut *connection).await?;
        let done = convert_part(connection, &part, is_last).await;
        let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
        let ended = sqlx::raw_sql(end).execute(&mut *connection).await;
        // The cause is told, not what follows from it: where there is no room SQLite has rolled back by itself, and
        // ROLLBACK fails.
        done?;
        ended?;
        converted += part.len();
    }
    if converted > 0 {
        tracing::info!(
            requests = converted,
            "the index of {converted} requests was converted"
        );
    }
    Ok(())
}

async fn first_rows(connection: &mut SqliteConnection, limit: usize) -> Result<Vec<OldRequest>, sqlx::Error> {
    let limit = i64::try_from(limit).expect("it is small");
    sqlx::query_as!(
        OldRequest,
        "SELECT tenant_no, tenant_id, agent, request_id, entry
         FROM requests
         JOIN tenants USING (tenant_no)
         ORDER BY tenant_no, agent, request_id
         LIMIT ?1",
        limit,
    )
    .fetch_all(connection)
    .await
}

async fn convert_part(
    connection: &mut SqliteConnection,
    part: &[OldRequest],
    is_last: bool,
) -> Result<(), sqlx::Error> {
    let digests = part.iter().filter_map(|row| Some((row.digest()?, row.entry)));
    let digests: Vec<_> = digests.collect();
    write_digests(connection, &digests).await?;
    let mut slots: Vec<_> = digests
        .iter()
        .map(|(digest, entry)| digest.slot(*entry))
        .collect();
    slots.sort_unstable();
    let run = sqlx::query_scalar!(r#"SELECT coalesce(max(run), 0) + 1 AS "run!: i64" FROM request_runs"#)
        .fetch_one(&mut *connection)
        .await?;
    let pages = slots
        .chunks(PAGE_SLOTS)
        .map(|slots| run::page(slots.iter().copied()));
    write_run(connection, run, pages.collect()).await?;
    if is_last {
        sqlx::query!("UPDATE tenants SET sorted_seq = head_seq WHERE sorted_seq < head_seq")
            .execute(&mut *connection)
            .await?;
    }
    let Some(last) = part.last() else {
        return Ok(());
    };
    sqlx::query!(
        "DELETE FROM requests WHERE (tenant_no, agent, request_id) <= (?1, ?2, ?3)",
        last.tenant_no,
        last.agent,
        last.request_id,
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Writes a run down, with all of its pages.
async fn write_run(
    connection: &mut SqliteConnection,
    run: i64,
    pages: Vec<Vec<u8>>,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "INSERT INTO request_runs (run, level, is_whole) VALUES (?1, 0, 1)",
        run
    )
    .execute(&mut *connection)
    .await?;
    for (bytes, place) in pages.into_iter().zip(0..) {
        let page = run::page_number(run, place);
        sqlx::query!(
            "INSERT INTO request_pages (page, bytes) VALUES (?1, ?2)",
            page,
            bytes
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

/// Writes them into the rows of their decisions, which otherwise nobody rewrites.
async fn write_digests(
    connection: &mut SqliteConnection,
    digests: &[(RequestDigest, i64)],
) -> Result<(), sqlx::Error> {
    let mut json = String::from("[");
    for (digest, entry) in digests {
        let separator = if json.len() == 1 { "" } else { "," };
        write!(json, "{separator}[{entry},\"").expect("writing to a string does not fail");
        push_hex(&mut json, digest.as_bytes());
        json.push_str("\"]");
    }
    json.push(']');
    let guard = lift_guard(connection, "decisions_are_not_rewritten").await?;
    sqlx::query!(
        "UPDATE decisions
         SET request = unhex(converted.value ->> 1)
         FROM json_each(?1) AS converted
         WHERE decisions.entry = converted.value ->> 0",
        json,
    )
    .execute(&mut *connection)
    .await?;
    sqlx::raw_sql(AssertSqlSafe(guard))
        .execute(connection)
        .await
        .map(drop)
}

impl OldRequest {
    /// None of a row that no version of this program wrote.
    fn digest(&self) -> Option<RequestDigest> {
        let tenant = self.tenant_id[..].try_into().ok()?;
        let agent = self.agent[..].try_into().ok()?;
        Some(RequestDigest::of(tenant, agent, &self.request_id))
    }
}
