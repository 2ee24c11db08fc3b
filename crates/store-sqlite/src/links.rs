//! Which run started which, and the answers that are given again: rows that are written once and never changed. Answers
//! are forgotten.

use crate::commit::{NotWritten, Transaction};
use crate::decode::RowLabel;
use crate::journal::hex;
use crate::unavailable;
use crate::writer::Writer;
use model::{Name, RunLink, TenantId, Timestamp};
use rusqlite::params;
use serde_json::json;
use sqlx::{SqliteExecutor, SqlitePool};
use store::{ReplyKey, ReplyRow, StoreError};
use tokio::sync::OwnedMutexGuard;

/// How many answers are forgotten at once. Their keys stand anywhere, so each is a page or two that the commit writes.
const FORGOTTEN_MAX: i64 = 256;

const PUT: &str = "INSERT INTO run_links (tenant_no, run_id, parent) VALUES (?, ?, ?) ON CONFLICT DO NOTHING";
const REPLY: &str =
    "INSERT INTO replies (tenant_no, caller, key, request, bytes, at) VALUES (?, ?, ?, ?, ?, ?)";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 2] = [PUT, REPLY];

/// Writes down links.
pub(crate) fn write(transaction: &Transaction<'_>, links: &[(TenantId, RunLink)]) -> Result<(), NotWritten> {
    for (tenant, link) in links {
        let tenant_no = transaction.tenant_no(*tenant)?;
        let mut put = transaction.statement(PUT)?;
        put.execute(params![tenant_no, link.run_id.as_str(), link.parent.as_str()])?;
    }
    Ok(())
}

/// Writes down answers.
pub(crate) fn write_replies(transaction: &Transaction<'_>, replies: &[ReplyRow]) -> Result<(), NotWritten> {
    for reply in replies {
        transaction.statement(REPLY)?.execute(params![
            transaction.tenant_no(reply.key.tenant)?,
            reply.key.caller,
            reply.key.key.as_str(),
            reply.request.as_bytes(),
            &reply.bytes[..],
            reply.at.millis(),
        ])?;
    }
    Ok(())
}

/// Who started these runs, and who started those, and so on. `asked` is `["<tenant><run id>",…]`, the tenant as 32 hexadecimal
/// digits.
pub(crate) async fn find(
    executor: impl SqliteExecutor<'_>,
    asked: String,
) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
    let rows = sqlx::query!(
        r#"WITH RECURSIVE line (tenant_no, run_id, depth) AS (
               SELECT
                   tenants.tenant_no,
                   substr(asked.value, 33),
                   1
               FROM json_each(?1) AS asked
               CROSS JOIN tenants
                   ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
               UNION
               SELECT
                   run_links.tenant_no,
                   run_links.parent,
                   line.depth + 1
               FROM line
               CROSS JOIN run_links
                   ON run_links.tenant_no = line.tenant_no
                  AND run_links.run_id = line.run_id
               WHERE line.depth < 16
           )
           SELECT DISTINCT
               tenants.tenant_id AS "tenant_id!: Vec<u8>",
               run_links.tenant_no AS "tenant_no!: i64",
               run_links.run_id AS "run_id!: String",
               run_links.parent AS "parent!: String"
           FROM line
           CROSS JOIN run_links
               ON run_links.tenant_no = line.tenant_no
              AND run_links.run_id = line.run_id
           CROSS JOIN tenants
               ON tenants.tenant_no = line.tenant_no"#,
        asked,
    )
    .fetch_all(executor)
    .await
    .map_err(crate::unread)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "run_links",
            row: row.tenant_no,
        };
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        let link = RunLink {
            run_id: label.name("run_id", &row.run_id)?,
            parent: label.name("parent", &row.parent)?,
        };
        Ok((tenant, link))
    });
    found.collect()
}

/// The answers that were given to these requests.
pub(crate) async fn find_replies(
    executor: impl SqliteExecutor<'_>,
    keys: &[ReplyKey],
) -> Result<Vec<ReplyRow>, StoreError> {
    let asked = keys
        .iter()
        .map(|key| json!([hex(key.tenant.as_bytes()), hex(&key.caller), key.key]));
    let asked = serde_json::Value::from(asked.collect::<Vec<_>>()).to_string();
    let rows = sqlx::query!(
        r#"SELECT
               asked.key + 0 AS "place!: i64",
               replies.tenant_no AS "tenant_no!: i64",
               replies.request,
               replies.bytes,
               replies.at
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(asked.value ->> 0)
           CROSS JOIN replies
               ON replies.tenant_no = tenants.tenant_no
              AND replies.caller = unhex(asked.value ->> 1)
              AND replies.key = asked.value ->> 2"#,
        asked,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "replies",
            row: row.tenant_no,
        };
        let key = usize::try_from(row.place).ok().and_then(|at| keys.get(at));
        Ok(ReplyRow {
            key: key
                .ok_or_else(|| label.corrupt("key", "was not asked for"))?
                .clone(),
            request: label.digest("request", row.request)?,
            bytes: row.bytes.into(),
            at: Timestamp::from_millis(row.at),
        })
    });
    found.collect()
}

/// Which run of a tenant started which, in the order of the runs.
pub(crate) async fn list(
    executor: impl SqliteExecutor<'_>,
    tenant: TenantId,
    after: Option<&Name>,
    limit: u32,
) -> Result<Vec<RunLink>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let after = after.map_or("", Name::as_str);
    let rows = sqlx::query!(
        r#"SELECT
               run_links.tenant_no AS "tenant_no!",
               run_links.run_id,
               run_links.parent
           FROM tenants
           CROSS JOIN run_links
               ON run_links.tenant_no = tenants.tenant_no
              AND run_links.run_id > ?2
           WHERE tenants.tenant_id = ?1
           ORDER BY run_links.run_id
           LIMIT ?3"#,
        tenant_id,
        after,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "run_links",
            row: row.tenant_no,
        };
        Ok(RunLink {
            run_id: label.name("run_id", &row.run_id)?,
            parent: label.name("parent", &row.parent)?,
        })
    });
    found.collect()
}

/// The answers that a tenant's callers were given, by caller and key.
pub(crate) async fn list_replies(
    executor: impl SqliteExecutor<'_>,
    tenant: TenantId,
    after: Option<&ReplyKey>,
    limit: u32,
) -> Result<Vec<ReplyRow>, StoreError> {
    let tenant_id = &tenant.as_bytes()[..];
    let caller = after.map_or(&[0; 16], |key| &key.caller).as_slice();
    let key = after.map_or("", |key| key.key.as_str());
    let rows = sqlx::query!(
        r#"SELECT
               replies.tenant_no AS "tenant_no!",
               replies.caller,
               replies.key,
               replies.request,
               replies.bytes,
               replies.at
           FROM tenants
           CROSS JOIN replies
               ON replies.tenant_no = tenants.tenant_no
              AND (replies.caller, replies.key) > (?2, ?3)
           WHERE tenants.tenant_id = ?1
           ORDER BY
               replies.caller,
               replies.key
           LIMIT ?4"#,
        tenant_id,
        caller,
        key,
        limit,
    )
    .fetch_all(executor)
    .await
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let label = RowLabel {
            table: "replies",
            row: row.tenant_no,
        };
        Ok(ReplyRow {
            key: ReplyKey {
                tenant,
                caller: label.id("caller", row.caller)?,
                key: label.name("key", &row.key)?,
            },
            request: label.digest("request", row.request)?,
            bytes: row.bytes.into(),
            at: Timestamp::from_millis(row.at),
        })
    });
    found.collect()
}

/// Whether there are answers that were given before this.
pub(crate) async fn has_replies_before(readers: &SqlitePool, before: Timestamp) -> Result<bool, StoreError> {
    let before = before.millis();
    let found = sqlx::query_scalar!(
        r#"SELECT EXISTS (SELECT 1 FROM replies INDEXED BY replies_at WHERE at < ?1) AS "found!: bool""#,
        before,
    );
    found.fetch_one(readers).await.map_err(unavailable)
}

/// Forgets answers that were given before this.
pub(crate) async fn forget_replies(
    mut writer: OwnedMutexGuard<Writer>,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let before = before.millis();
    let connection = writer.ready().await.map_err(unavailable)?;
    let done = sqlx::query!(
        "DELETE FROM replies
         WHERE (tenant_no, caller, key) IN (
             SELECT tenant_no, caller, key
             FROM replies INDEXED BY replies_at
             WHERE at < ?1
             ORDER BY at
             LIMIT ?2
         )",
        before,
        FORGOTTEN_MAX,
    )
    .execute(connection)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected())
}
