//! Token buckets that all gateways share: one statement a lease, on the server's clock.

use crate::connections::{Lent, in_time};
use crate::decode::uuid;
use crate::{PostgresStore, unavailable};
use async_trait::async_trait;
use model::Bucket;
use store::{BucketKey, Buckets, Lease, StoreError, Wanted};

/// How many buckets are forgotten in one go.
const FORGOTTEN_MAX: i64 = 10_000;

/// What a lease wrote down.
struct Written {
    lent: i64,
    level: f64,
}

#[async_trait]
impl Buckets for PostgresStore {
    async fn lease(&self, key: &BucketKey, size: Bucket, wanted: Wanted) -> Result<Lease, StoreError> {
        let mut lent = self.leases.lend().await.map_err(unavailable)?;
        let written = match lease(&mut lent, key, size, wanted).await {
            Ok(written) => written,
            // Should the first attempt have arrived all the same, its tokens are lost and nobody has got too many.
            Err(error) if lent.replace(&error).await.map_err(unavailable)? => {
                lease(&mut lent, key, size, wanted).await.map_err(unavailable)?
            }
            Err(error) => return Err(unavailable(error)),
        };
        let granted = u32::try_from(written.lent).map_err(|_| corrupt(key))?;
        Ok(Lease::new(size, wanted, granted, written.level))
    }

    async fn give_back(&self, key: &BucketKey, size: Bucket, tokens: u32) -> Result<(), StoreError> {
        let mut lent = self.leases.lend().await.map_err(unavailable)?;
        let update = sqlx::query!(
            "UPDATE buckets
             SET level = least($3::bigint, level + $4::bigint)
             WHERE tenant_id = $1
               AND owner = $2",
            uuid(key.tenant),
            key.owner,
            i64::from(size.capacity()),
            i64::from(tokens),
        );
        let done = in_time(
            lent.time_max(),
            update.execute(lent.start().map_err(unavailable)?),
        )
        .await;
        lent.settle_clean(done).map(drop).map_err(unavailable)
    }

    async fn forget_full(&self) -> Result<u64, StoreError> {
        let mut lent = self.leases.lend().await.map_err(unavailable)?;
        // Rows that somebody is leasing from are passed over. The others are locked first, and looked at again then.
        let delete = sqlx::query!(
            "DELETE FROM buckets
             USING (
                 SELECT tenant_id, owner
                 FROM buckets
                 WHERE level + refill_per_second
                     * greatest(0, 1000 * extract(epoch FROM clock_timestamp())::double precision - at) / 1000
                     >= capacity
                 LIMIT $1
                 FOR UPDATE SKIP LOCKED
             ) AS filled
             WHERE buckets.tenant_id = filled.tenant_id
               AND buckets.owner = filled.owner",
            FORGOTTEN_MAX,
        );
        let done = in_time(
            lent.time_max(),
            delete.execute(lent.start().map_err(unavailable)?),
        )
        .await;
        let done = lent.settle_clean(done).map_err(unavailable)?;
        Ok(done.rows_affected())
    }
}

async fn lease(
    lent: &mut Lent,
    key: &BucketKey,
    size: Bucket,
    wanted: Wanted,
) -> Result<Written, sqlx::Error> {
    let capacity = i64::from(size.capacity());
    let (least, most) = (i64::from(wanted.least), i64::from(wanted.most));
    // What is lent out of a bucket that is not there yet: it is full.
    let first = if capacity < least { 0 } else { most.min(capacity) };
    // The clock is read under the lock of the row, so that it does not run backwards from one lease to the next.
    let upsert = sqlx::query_as!(
        Written,
        "INSERT INTO buckets AS bucket (tenant_id, owner, capacity, refill_per_second, level, at, lent)
         VALUES ($1, $2, $3::bigint, $4, $3::bigint - $7::bigint, trunc(1000 * extract(epoch FROM clock_timestamp())), $7)
         ON CONFLICT (tenant_id, owner) DO UPDATE
         SET (capacity, refill_per_second, level, at, lent) = (
             SELECT $3::bigint, $4, available - lent, until, lent
             FROM (
                 SELECT
                     until,
                     available,
                     CASE WHEN available >= $5::bigint THEN least(trunc(available)::bigint, $6::bigint) ELSE 0 END AS lent
                 FROM (
                     SELECT
                         until,
                         least($3::bigint, bucket.level + (until - bucket.at) / 1000::double precision * $4) AS available
                     FROM (
                         SELECT greatest(bucket.at, trunc(1000 * extract(epoch FROM clock_timestamp()))::bigint) AS until
                     ) AS time
                 ) AS refilled
             ) AS lease
         )
         RETURNING lent, level",
        uuid(key.tenant),
        key.owner,
        capacity,
        size.refill_per_second(),
        least,
        most,
        first,
    );
    let written = in_time(lent.time_max(), upsert.fetch_one(lent.start()?)).await;
    lent.settle_clean(written)
}

fn corrupt(key: &BucketKey) -> StoreError {
    StoreError::Corrupt {
        what: format!(
            "`lent` of the bucket `{}` of {} is no number of tokens",
            key.owner, key.tenant
        ),
    }
}
