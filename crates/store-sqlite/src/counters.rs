//! What was counted of quotas: written in the commit of what is counted, read by key.

use crate::commit::{NotWritten, Transaction};
use crate::decode::Place;
use crate::writer::Writer;
use crate::{SqliteStore, bounded, unavailable};
use async_trait::async_trait;
use canon::Digest;
use model::{Counter, TenantId, Timestamp};
use rusqlite::params;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Counters, StoreError};
use tokio::sync::OwnedMutexGuard;

/// How many counters are forgotten at once: few enough that nobody notices.
const FORGOTTEN_MAX: i64 = 1_000;

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
    .map_err(unavailable)?;
    let found = rows.into_iter().map(|row| {
        let place = place(row.tenant_no);
        let tenant = TenantId::from_bytes(place.id("tenant_id", row.tenant_id)?);
        Ok((tenant, counter(place, row.key, (row.start, row.count, row.at))?))
    });
    found.collect()
}

const fn place(row: i64) -> Place {
    Place {
        table: "quota_counters",
        row,
    }
}

fn counter(place: Place, key: Vec<u8>, (start, count, at): (i64, i64, i64)) -> Result<Counter, StoreError> {
    Ok(Counter {
        key: place.digest("key", key)?,
        start: Timestamp::from_millis(start),
        count: u64::try_from(count).map_err(|_| place.corrupt("count", "is negative"))?,
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

    async fn forget_counters(&self, before: Timestamp) -> Result<u64, StoreError> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(forget(writer, before)).await
    }
}

impl SqliteStore {
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
            .map(|row| counter(place(row.tenant_no), row.key, (row.start, row.count, row.at)));
        found.collect()
    }
}

async fn forget(mut writer: OwnedMutexGuard<Writer>, before: Timestamp) -> Result<u64, StoreError> {
    let before = before.millis();
    let ready = writer.ready().await;
    let connection = ready.map_err(|error| StoreError::Unavailable(Box::new(error)))?;
    let done = sqlx::query!(
        "DELETE FROM quota_counters
         WHERE (tenant_no, key) IN (
             SELECT tenant_no, key
             FROM quota_counters
             WHERE at < ?1
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
