//! Token buckets, for the one process that there is: one statement a lease, on SQLite's clock.

use crate::decode::BEYOND_IDS;
use crate::journal::hex;
use crate::writer::Writer;
use crate::{SqliteStore, bounded, unavailable};
use async_trait::async_trait;
use model::Bucket;
use serde_json::{Value, json};
use sqlx::{SqliteConnection, SqlitePool};
use std::future::Future;
use std::sync::Arc;
use store::{BucketKey, Buckets, CLOCK_BACK_MAX_MILLIS, LOOKED_AT_MAX, Lease, StoreError, Wanted};
use tokio::sync::OwnedMutexGuard;

/// How many buckets are forgotten in one go, or a few more: other jobs wait for it.
const FORGOTTEN_MAX: u64 = 10_000;
/// How many of them are forgotten in one turn: each of them stands in a page of its own, and commits wait for so many.
const FORGOTTEN_IN_A_TURN_MAX: usize = 256;

#[async_trait]
impl Buckets for SqliteStore {
    async fn lease(&self, key: &BucketKey, size: Bucket, wanted: Wanted) -> Result<Lease, StoreError> {
        let turn = self.turn_for_buckets().await;
        self.written(lease(turn, key.clone(), size, wanted)).await
    }

    async fn left(&self, sizes: &[(BucketKey, Bucket)]) -> Result<Vec<f64>, StoreError> {
        bounded(left(&self.readers, sizes)).await
    }

    async fn resize(&self, sizes: &[(BucketKey, Bucket)]) -> Result<(), StoreError> {
        let asked = sizes_json(sizes);
        let turn = self.turn_for_buckets().await;
        self.written(resize(turn, asked)).await
    }

    async fn give_back(&self, tokens: &[(BucketKey, u32)]) -> Result<(), StoreError> {
        let given = tokens_json(tokens);
        let turn = self.turn_for_buckets().await;
        self.written(give_back(turn, given)).await
    }

    async fn forget_full(&self) -> Result<u64, StoreError> {
        let (mut full, mut forgotten) = (Vec::new(), 0);
        let mut round = self.full_buckets.begin();
        while forgotten < FORGOTTEN_MAX
            && let Some(after) = round.behind()
        {
            let found = bounded(find_full(&self.readers, after)).await?;
            round.looked_to(found.end);
            full.extend(found.keys);
            // Those that are left have a turn together with the next ones, so that few full ones among many take few turns.
            while full.len() >= FORGOTTEN_IN_A_TURN_MAX {
                let some = full.split_off(full.len() - FORGOTTEN_IN_A_TURN_MAX);
                forgotten += self.forget_buckets(&some).await?;
            }
        }
        if !full.is_empty() {
            forgotten += self.forget_buckets(&full).await?;
        }
        Ok(round.end(forgotten).gone)
    }
}

impl SqliteStore {
    /// Forgets these buckets, in a turn.
    async fn forget_buckets(&self, buckets: &[Key]) -> Result<u64, StoreError> {
        let asked = keys_json(buckets);
        let turn = self.turn_for_buckets().await;
        self.written(forget(turn, asked)).await
    }

    /// The writer's turn, for a statement about buckets.
    async fn turn_for_buckets(&self) -> BucketTurn {
        let alone = Arc::clone(&self.leasing).lock_owned().await;
        BucketTurn {
            writer: Arc::clone(&self.writer).lock_owned().await,
            _alone: alone,
        }
    }

    /// Runs a statement on the writer's connection, where a caller that goes away cannot break it off in the middle.
    pub(crate) async fn written<T: Send + 'static>(
        &self,
        statement: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let outcome = tokio::spawn(statement).await;
        self.committed.notify_one();
        outcome.unwrap_or_else(|error| Err(unavailable(error)))
    }
}

/// The turn on the one connection that writes, of one who writes to buckets. Whoever of them comes next asks for it when
/// this is dropped.
struct BucketTurn {
    writer: OwnedMutexGuard<Writer>,
    _alone: OwnedMutexGuard<()>,
}

impl BucketTurn {
    /// The connection.
    async fn ready(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        self.writer.ready().await.map_err(unavailable)
    }
}

async fn lease(
    mut turn: BucketTurn,
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
               SELECT
                   ?3,
                   ?4,
                   available - lent,
                   CASE WHEN buckets.at - excluded.at > ?8 THEN excluded.at ELSE max(buckets.at, excluded.at) END,
                   lent
               FROM (
                   SELECT
                       available,
                       CASE WHEN available >= ?5 THEN min(CAST(available AS INTEGER), ?6) ELSE 0 END AS lent
                   FROM (
                       SELECT
                           min(
                               ?3,
                               buckets.capacity,
                               buckets.level + max(0, excluded.at - buckets.at) / 1000.0 * buckets.refill_per_second
                           ) AS available
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
        CLOCK_BACK_MAX_MILLIS,
    )
    // All of them, although there is one: SQLite commits behind the last one, and whoever stops before does not hear
    // of a failure.
    .fetch_all(turn.ready().await?)
    .await
    .and_then(|mut rows| rows.pop().ok_or(sqlx::Error::RowNotFound))
    .map_err(unavailable)?;
    let granted = u32::try_from(row.lent).map_err(|_| corrupt(&key))?;
    Ok(Lease::new(size, wanted, granted, row.level))
}

/// How full these buckets are, for somebody who does not want anything out of them.
async fn left(readers: &SqlitePool, sizes: &[(BucketKey, Bucket)]) -> Result<Vec<f64>, StoreError> {
    let asked = sizes_json(sizes);
    // A row for each that is asked for, also where there is none of the bucket.
    let levels = sqlx::query_scalar!(
        r#"SELECT
               CAST(
                   min(
                       buckets.capacity,
                       buckets.level
                           + max(0, 1000 * unixepoch('subsec') - buckets.at) / 1000.0 * buckets.refill_per_second
                   )
                   AS REAL
               ) AS "level?: f64"
           FROM json_each(?1) AS asked
           LEFT JOIN buckets
               ON buckets.tenant_id = unhex(asked.value ->> 0)
              AND buckets.owner = CAST(unhex(asked.value ->> 1) AS TEXT)
           ORDER BY asked.key"#,
        asked,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    let left = levels.into_iter().zip(sizes).map(|(level, (_, size))| {
        let capacity = f64::from(size.capacity());
        level.map_or(capacity, |level| level.min(capacity))
    });
    Ok(left.collect())
}

/// Gives buckets these sizes, those that have others or were asked while the clock was far ahead. Until now they have
/// refilled by those before.
async fn resize(mut turn: BucketTurn, asked: String) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE buckets
         SET
             capacity = asked.capacity,
             refill_per_second = asked.refill_per_second,
             level = min(
                 asked.capacity,
                 buckets.capacity,
                 buckets.level + max(0, asked.now - buckets.at) / 1000.0 * buckets.refill_per_second
             ),
             at = CASE WHEN buckets.at - asked.now > ?2 THEN asked.now ELSE max(buckets.at, asked.now) END
         FROM (
             SELECT
                 unhex(size.value ->> 0) AS tenant_id,
                 CAST(unhex(size.value ->> 1) AS TEXT) AS owner,
                 CAST(size.value ->> 2 AS INTEGER) AS capacity,
                 CAST(size.value ->> 3 AS REAL) AS refill_per_second,
                 CAST(1000 * unixepoch('subsec') AS INTEGER) AS now
             FROM json_each(?1) AS size
         ) AS asked
         WHERE buckets.tenant_id = asked.tenant_id
           AND buckets.owner = asked.owner
           AND (
               (buckets.capacity, buckets.refill_per_second) <> (asked.capacity, asked.refill_per_second)
               OR buckets.at - asked.now > ?2
           )",
        asked,
        CLOCK_BACK_MAX_MILLIS,
    )
    .execute(turn.ready().await?)
    .await
    .map(drop)
    .map_err(unavailable)
}

async fn give_back(mut turn: BucketTurn, given: String) -> Result<(), StoreError> {
    sqlx::query!(
        "UPDATE buckets
         SET level = min(buckets.capacity, buckets.level + given.tokens)
         FROM (
             SELECT
                 unhex(unused.value ->> 0) AS tenant_id,
                 CAST(unhex(unused.value ->> 1) AS TEXT) AS owner,
                 CAST(unused.value ->> 2 AS INTEGER) AS tokens
             FROM json_each(?1) AS unused
         ) AS given
         WHERE buckets.tenant_id = given.tenant_id
           AND buckets.owner = given.owner",
        given,
    )
    .execute(turn.ready().await?)
    .await
    .map(drop)
    .map_err(unavailable)
}

/// What a bucket is found by, as it stands in its row.
pub(crate) type Key = (Vec<u8>, String);

/// What one look for full buckets has found.
struct Full {
    keys: Vec<Key>,
    /// The last bucket that was looked at; none if that was the last there is.
    end: Option<Key>,
}

/// The next of all buckets, those that are full. They are looked for in the order of their keys and by a reader: no
/// index can tell, because they fill while nobody writes.
async fn find_full(readers: &SqlitePool, after: Key) -> Result<Full, StoreError> {
    let (tenant_id, owner) = after;
    let end = sqlx::query!(
        "SELECT tenant_id, owner
         FROM buckets
         WHERE (tenant_id, owner) > (?1, ?2)
         ORDER BY tenant_id, owner
         LIMIT 1 OFFSET ?3 - 1",
        tenant_id,
        owner,
        LOOKED_AT_MAX,
    )
    .fetch_optional(readers)
    .await
    .map_err(unavailable)?;
    let end = end.map(|row| (row.tenant_id, row.owner));
    let (last_tenant_id, last_owner) = end.clone().unwrap_or((BEYOND_IDS.to_vec(), String::new()));
    let rows = sqlx::query!(
        "SELECT tenant_id, owner
         FROM buckets
         WHERE (tenant_id, owner) > (?1, ?2)
           AND (tenant_id, owner) <= (?3, ?4)
           AND level + max(0, 1000 * unixepoch('subsec') - at) / 1000.0 * refill_per_second >= capacity",
        tenant_id,
        owner,
        last_tenant_id,
        last_owner,
    )
    .fetch_all(readers)
    .await
    .map_err(unavailable)?;
    let keys = rows.into_iter().map(|row| (row.tenant_id, row.owner)).collect();
    Ok(Full { keys, end })
}

/// `[["<tenant>","<owner>"],…]`, both as hexadecimal digits, because an owner may be any text.
fn keys_json(keys: &[Key]) -> String {
    let keys = keys
        .iter()
        .map(|(tenant_id, owner)| json!([hex(tenant_id), hex(owner.as_bytes())]));
    keys.collect::<Value>().to_string()
}

/// `[["<tenant>","<owner>",<capacity>,<refill>],…]`, the first two as those of [`keys_json`].
fn sizes_json(sizes: &[(BucketKey, Bucket)]) -> String {
    let sizes = sizes.iter().map(|(key, size)| {
        let (tenant_id, owner) = (hex(key.tenant.as_bytes()), hex(key.owner.as_bytes()));
        json!([tenant_id, owner, size.capacity(), size.refill_per_second()])
    });
    sizes.collect::<Value>().to_string()
}

/// `[["<tenant>","<owner>",<tokens>],…]`, the first two as those of [`keys_json`].
fn tokens_json(tokens: &[(BucketKey, u32)]) -> String {
    let tokens = tokens.iter().map(|(key, tokens)| {
        let (tenant_id, owner) = (hex(key.tenant.as_bytes()), hex(key.owner.as_bytes()));
        json!([tenant_id, owner, tokens])
    });
    tokens.collect::<Value>().to_string()
}

/// Forgets those of these buckets that nothing was lent of meanwhile.
async fn forget(mut turn: BucketTurn, asked: String) -> Result<u64, StoreError> {
    let done = sqlx::query!(
        "DELETE FROM buckets
         WHERE (tenant_id, owner) IN (
             SELECT
                 unhex(asked.value ->> 0),
                 CAST(unhex(asked.value ->> 1) AS TEXT)
             FROM json_each(?1) AS asked
         )
           AND level + max(0, 1000 * unixepoch('subsec') - at) / 1000.0 * refill_per_second >= capacity",
        asked,
    )
    .execute(turn.ready().await?)
    .await
    .map_err(unavailable)?;
    Ok(done.rows_affected())
}

fn corrupt(key: &BucketKey) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "`lent` of the bucket `{}` of {} is no number of tokens",
            key.owner, key.tenant
        ),
    }
}
