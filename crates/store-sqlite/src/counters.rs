//! What was counted of quotas: written in the commit of what is counted, read by key.

use crate::commit::{NotWritten, Transaction};
use crate::decode::RowLabel;
use crate::journal::hex;
use crate::writer::Writer;
use crate::{SqliteStore, bounded, unavailable};
use async_trait::async_trait;
use canon::Digest;
use model::{Counter, TenantId, Timestamp};
use rusqlite::params;
use serde_json::{Value, json};
use sqlx::SqlitePool;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Counters, LOOKED_AT_MAX, StoreError, Swept};
use tokio::sync::OwnedMutexGuard;

/// How many counters are forgotten at once: each of them stands in a page of its own, and commits wait for so many.
const FORGOTTEN_MAX: usize = 256;

const PUT: &str = "INSERT INTO quota_counters (tenant_no, key, start, count, at) \
    VALUES (?, ?, ?, ?, ?) \
    ON CONFLICT (tenant_no, key) DO UPDATE SET start = excluded.start, count = excluded.count, at = excluded.at";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 1] = [PUT];

/// Writes down counters as they are at the end of a batch: of several with one key, the last.
pub(crate) fn write(
    transaction: &Transaction<'_>,
    counters: &[(TenantId, Counter)],
) -> Result<(), NotWritten> {
    let last: HashMap<_, _> = counters
        .iter()
        .map(|(tenant, counter)| ((*tenant, counter.key), counter))
        .collect();
    for ((tenant, key), counter) in last {
        transaction.statement(PUT)?.execute(params![
            transaction.tenant_no(tenant)?,
            key.as_bytes(),
            counter.start.millis(),
            // One that is as large has been full for ever.
            i64::try_from(counter.count).unwrap_or(i64::MAX),
            counter.at.millis(),
        ])?;
    }
    Ok(())
}

/// Those of these counters that are there. `asked` is `["<tenant><key>",…]`, both as hexadecimal digits.
pub(crate) async fn find(
    executor: impl sqlx::SqliteExecutor<'_>,
    asked: String,
) -> Result<Vec<(TenantId, Counter)>, StoreError> {
    let rows = sqlx::query!(
        r#"SELECT
               tenants.tenant_id,
               quota_counters.tenant_no AS "tenant_no!",
               quota_counters.key,
               quota_counters.start,
               quota_counters.count,
               quota_counters.at
           FROM json_each(?1) AS asked
           CROSS JOIN tenants
               ON tenants.tenant_id = unhex(substr(asked.value, 1, 32))
           CROSS JOIN quota_counters
               ON quota_counters.tenant_no = tenants.tenant_no
              AND quota_counters.key = unhex(substr(asked.value, 33))"#,
        asked,
    )
    .fetch_all(executor)
    .await
    .map_err(crate::unread)?;
    let found = rows.into_iter().map(|row| {
        let label = label(row.tenant_no);
        let tenant = TenantId::from_bytes(label.id("tenant_id", row.tenant_id)?);
        Ok((tenant, counter(label, row.key, (row.start, row.count, row.at))?))
    });
    found.collect()
}

const fn label(row: i64) -> RowLabel {
    RowLabel {
        table: "quota_counters",
        row,
    }
}

fn counter(
    label: RowLabel,
    key: Vec<u8>,
    (start, count, at): (i64, i64, i64),
) -> Result<Counter, StoreError> {
    Ok(Counter {
        key: label.digest("key", key)?,
        start: Timestamp::from_millis(start),
        count: u64::try_from(count).map_err(|_| label.corrupt("count", "is negative"))?,
        at: Timestamp::from_millis(at),
    })
}

#[async_trait]
impl Counters for SqliteStore {
    async fn counters(&self, keys: &[(TenantId, Digest)]) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        bounded(find(&self.readers, crate::journal::counters_json(keys))).await
    }

    async fn counters_after(
        &self,
        tenant: TenantId,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<Counter>, StoreError> {
        bounded(self.read_counters(tenant, after, limit)).await
    }

    async fn forget_counters(&self, before: Timestamp) -> Result<Swept, StoreError> {
        let (mut old, mut forgotten) = (Vec::new(), 0);
        let mut round = self.old_counters.begin_brief();
        while let Some(after) = round.behind() {
            let found = bounded(find_old(&self.readers, after, before)).await?;
            old.extend(found.keys);
            // Those that are left have a turn together with the next ones, so that few old ones among many take few turns.
            while old.len() >= FORGOTTEN_MAX {
                let some = old.split_off(old.len() - FORGOTTEN_MAX);
                forgotten += self.forget_old(&some, before).await?;
                if round.is_over() {
                    break;
                }
            }
            if old.len() >= FORGOTTEN_MAX {
                // The next round looks here again, for those that are too many for this one.
                old.truncate(FORGOTTEN_MAX);
                break;
            }
            round.looked_to(found.end);
        }
        if !old.is_empty() {
            forgotten += self.forget_old(&old, before).await?;
        }
        Ok(round.end(forgotten))
    }
}

impl SqliteStore {
    /// Forgets these counters, in a turn.
    async fn forget_old(&self, counters: &[Key], before: Timestamp) -> Result<u64, StoreError> {
        let asked = keys_json(counters);
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(forget(writer, asked, before)).await
    }

    async fn read_counters(
        &self,
        tenant: TenantId,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<Counter>, StoreError> {
        let tenant_id = &tenant.as_bytes()[..];
        let after = after.map(|key| key.as_bytes().to_vec()).unwrap_or_default();
        let rows = sqlx::query!(
            r#"SELECT
                   quota_counters.tenant_no AS "tenant_no!",
                   quota_counters.key,
                   quota_counters.start,
                   quota_counters.count,
                   quota_counters.at
               FROM tenants
               CROSS JOIN quota_counters
                   ON quota_counters.tenant_no = tenants.tenant_no
                  AND quota_counters.key > ?2
               WHERE tenants.tenant_id = ?1
               ORDER BY quota_counters.key
               LIMIT ?3"#,
            tenant_id,
            after,
            limit,
        )
        .fetch_all(&self.readers)
        .await
        .map_err(unavailable)?;
        let found = rows
            .into_iter()
            .map(|row| counter(label(row.tenant_no), row.key, (row.start, row.count, row.at)));
        found.collect()
    }
}

/// What a counter is found by, as it stands in its row.
pub(crate) type Key = (i64, Vec<u8>);

/// What one look for old counters has found.
struct Old {
    keys: Vec<Key>,
    /// The last counter that was looked at; none if that was the last there is.
    end: Option<Key>,
}

/// The next of all counters, those that nothing was counted in since `before`. They are looked for in the order of
/// their keys and by a reader: no index has their times, because a commit would write to it for each call that is
/// counted.
async fn find_old(readers: &SqlitePool, after: Key, before: Timestamp) -> Result<Old, StoreError> {
    let (tenant_no, key) = after;
    let end = sqlx::query!(
        r#"SELECT
               tenant_no AS "tenant_no!",
               key
           FROM quota_counters
           WHERE (tenant_no, key) > (?1, ?2)
           ORDER BY tenant_no, key
           LIMIT 1 OFFSET ?3 - 1"#,
        tenant_no,
        key,
        LOOKED_AT_MAX,
    )
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    let end = end.map(|row| (row.tenant_no, row.key));
    let (last_tenant_no, last_key) = end.clone().unwrap_or((i64::MAX, Vec::new()));
    let before = before.millis();
    let rows = sqlx::query!(
        r#"SELECT
               tenant_no AS "tenant_no!",
               key
           FROM quota_counters
           WHERE (tenant_no, key) > (?1, ?2)
             AND (tenant_no, key) <= (?3, ?4)
             AND at < ?5"#,
        tenant_no,
        key,
        last_tenant_no,
        last_key,
        before,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    let keys = rows.into_iter().map(|row| (row.tenant_no, row.key)).collect();
    Ok(Old { keys, end })
}

/// `[[<number of the tenant>,"<key>"],…]`, keys as hexadecimal digits.
fn keys_json(keys: &[Key]) -> String {
    let keys = keys.iter().map(|(tenant_no, key)| json!([tenant_no, hex(key)]));
    keys.collect::<Value>().to_string()
}

/// Forgets those of these counters that nothing was counted in meanwhile.
async fn forget(
    mut writer: OwnedMutexGuard<Writer>,
    asked: String,
    before: Timestamp,
) -> Result<u64, StoreError> {
    let before = before.millis();
    let connection = writer.ready().await.map_err(unavailable)?;
    let done = sqlx::query!(
        "DELETE FROM quota_counters
         WHERE (tenant_no, key) IN (
             SELECT
                 asked.value ->> 0,
                 unhex(asked.value ->> 1)
             FROM json_each(?1) AS asked
         )
           AND at < ?2",
        asked,
        before,
    )
    .execute(connection)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected())
}
