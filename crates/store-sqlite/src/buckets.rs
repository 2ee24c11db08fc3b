//! Token buckets, for the one process that there is: one statement a lease, on SQLite's clock.

use crate::writer::Writer;
use crate::{SqliteStore, unavailable};
use async_trait::async_trait;
use model::Bucket;
use std::future::Future;
use std::sync::Arc;
use store::{BucketKey, Buckets, Lease, StoreError, Wanted};
use tokio::sync::OwnedMutexGuard;

/// How many buckets are forgotten in one go, with commits waiting behind it.
const FORGOTTEN_MAX: i64 = 10_000;

#[async_trait]
impl Buckets for SqliteStore {
    async fn lease(&self, key: &BucketKey, size: Bucket, wanted: Wanted) -> Result<Lease, StoreError> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(lease(writer, key.clone(), size, wanted)).await
    }

    async fn give_back(&self, key: &BucketKey, size: Bucket, tokens: u32) -> Result<(), StoreError> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(give_back(writer, key.clone(), size, tokens)).await
    }

    async fn forget_full(&self) -> Result<u64, StoreError> {
        let writer = Arc::clone(&self.writer).lock_owned().await;
        self.written(forget_full(writer)).await
    }
}

impl SqliteStore {
    /// Runs a statement on the writer's connection, where a caller that goes away cannot break it off in the middle.
    pub(crate) async fn written<T: Send + 'static>(
        &self,
        statement: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let outcome = tokio::spawn(statement).await;
        self.committed.notify_one();
        outcome.unwrap_or_else(|error| Err(StoreError::Unavailable(Box::new(error))))
    }
}

async fn lease(
    mut writer: OwnedMutexGuard<Writer>,
    key: BucketKey,
    size: Bucket,
    wanted: Wanted,
) -> Result<Lease, StoreError> {
    let tenant_id = &key.tenant.as_bytes()[..];
    let (capacity, refill) = (size.capacity(), size.refill_per_second());
    // What is lent out of a bucket that is not there yet: it is full.
    let first = if capacity < wanted.least {
        0
    } else {
        wanted.most.min(capacity)
    };
    let row = sqlx::query!(
        r#"INSERT INTO buckets (tenant_id, owner, capacity, refill_per_second, level, at, lent)
           VALUES (?1, ?2, ?3, ?4, ?3 - ?7, CAST(1000 * unixepoch('subsec') AS INTEGER), ?7)
           ON CONFLICT (tenant_id, owner) DO UPDATE
           SET (capacity, refill_per_second, level, at, lent) = (
               SELECT ?3, ?4, available - lent, max(buckets.at, excluded.at), lent
               FROM (
                   SELECT
                       available,
                       CASE WHEN available >= ?5 THEN min(CAST(available AS INTEGER), ?6) ELSE 0 END AS lent
                   FROM (
                       SELECT min(?3, buckets.level + max(0, excluded.at - buckets.at) / 1000.0 * ?4) AS available
                   )
               )
           )
           RETURNING lent, level"#,
        tenant_id,
        key.owner,
        capacity,
        refill,
        wanted.least,
        wanted.most,
        first,
    )
    .fetch_one(ready(&mut writer).await?)
    .await
    .map_err(unavailable)?;
    let granted = u32::try_from(row.lent).map_err(|_| corrupt(&key))?;
    Ok(Lease::new(size, wanted, granted, row.level))
}

async fn give_back(
    mut writer: OwnedMutexGuard<Writer>,
    key: BucketKey,
    size: Bucket,
    tokens: u32,
) -> Result<(), StoreError> {
    let tenant_id = &key.tenant.as_bytes()[..];
    let capacity = size.capacity();
    sqlx::query!(
        "UPDATE buckets
         SET level = min(?3, level + ?4)
         WHERE tenant_id = ?1
           AND owner = ?2",
        tenant_id,
        key.owner,
        capacity,
        tokens,
    )
    .execute(ready(&mut writer).await?)
    .await
    .map(drop)
    .map_err(unavailable)
}

async fn forget_full(mut writer: OwnedMutexGuard<Writer>) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM buckets
         WHERE (tenant_id, owner) IN (
             SELECT tenant_id, owner
             FROM buckets
             WHERE level + max(0, 1000 * unixepoch('subsec') - at) / 1000.0 * refill_per_second >= capacity
             LIMIT ?1
         )",
        FORGOTTEN_MAX,
    )
    .execute(ready(&mut writer).await?)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected())
}

async fn ready(writer: &mut Writer) -> Result<&mut sqlx::SqliteConnection, StoreError> {
    let ready = writer.ready().await;
    ready.map_err(|error| StoreError::Unavailable(Box::new(error)))
}

fn corrupt(key: &BucketKey) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "`lent` of the bucket `{}` of {} is no number of tokens",
            key.owner, key.tenant
        ),
    }
}
