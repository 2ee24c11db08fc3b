//! Token buckets that all gateways share: one statement a lease, on the server's clock.

use crate::connections::{Lent, in_time};
use crate::decode::uuid;
use crate::{PostgresStore, bounded, unavailable};
use async_trait::async_trait;
use model::Bucket;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{BucketKey, Buckets, CLOCK_BACK_MAX_MILLIS, LOOKED_AT_MAX, Lease, StoreError, Wanted};

/// How many buckets are forgotten in one go, or a few more: other jobs wait for it.
const FORGOTTEN_MAX: u64 = 10_000;
/// How many of them are forgotten in one statement: few enough that nobody notices.
const FORGOTTEN_AT_ONCE_MAX: usize = 1_000;

/// What a lease wrote down.
struct Written {
    lent: i64,
    level: f64,
}

/// Buckets and their sizes, a column each.
#[derive(Default)]
struct Sizes {
    tenants: Vec<Uuid>,
    owners: Vec<String>,
    capacities: Vec<i64>,
    refills: Vec<f64>,
}

impl Sizes {
    fn of(sizes: &[(BucketKey, Bucket)]) -> Self {
        let mut columns = Self::default();
        for (key, size) in sizes {
            columns.tenants.push(uuid(key.tenant));
            columns.owners.push(key.owner.clone());
            columns.capacities.push(i64::from(size.capacity()));
            columns.refills.push(size.refill_per_second());
        }
        columns
    }
}

/// Buckets and what was lent of them and not used, a column each.
#[derive(Default)]
struct Unused {
    tenants: Vec<Uuid>,
    owners: Vec<String>,
    tokens: Vec<i64>,
}

impl Unused {
    fn of(tokens: &[(BucketKey, u32)]) -> Self {
        let mut columns = Self::default();
        for (key, tokens) in tokens {
            columns.tenants.push(uuid(key.tenant));
            columns.owners.push(key.owner.clone());
            columns.tokens.push(i64::from(*tokens));
        }
        columns
    }
}

/// What somebody sees who does not want anything out of a bucket.
struct Seen {
    /// None if there is no row of the bucket.
    level: Option<f64>,
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

    async fn left(&self, sizes: &[(BucketKey, Bucket)]) -> Result<Vec<f64>, StoreError> {
        let asked = Sizes::of(sizes);
        let seen = bounded(self.readers.read(|| look(&asked))).await?;
        let left = seen.into_iter().zip(sizes).map(|(seen, (_, size))| {
            let capacity = f64::from(size.capacity());
            seen.level.map_or(capacity, |level| level.min(capacity))
        });
        Ok(left.collect())
    }

    async fn resize(&self, sizes: &[(BucketKey, Bucket)]) -> Result<(), StoreError> {
        let sizes = Sizes::of(sizes);
        // The rows are locked in their order, so that two who do this do not wait for each other in a ring. The clock
        // is read under their locks, as for a lease.
        let update = || {
            sqlx::query!(
                "UPDATE buckets
                 SET (capacity, refill_per_second, level, at) = (
                     SELECT
                         asked.capacity,
                         asked.refill_per_second,
                         least(
                             asked.capacity,
                             buckets.capacity,
                             buckets.level
                                 + greatest(0, until - buckets.at) / 1000::double precision * buckets.refill_per_second
                         ),
                         until
                     FROM (
                         SELECT
                             CASE WHEN buckets.at - told > $5::bigint THEN told ELSE greatest(buckets.at, told) END AS until
                         FROM (
                             SELECT trunc(1000 * extract(epoch FROM clock_timestamp()))::bigint AS told
                         ) AS clock
                     ) AS time
                 )
                 FROM (
                     SELECT
                         buckets.tenant_id,
                         buckets.owner,
                         size.capacity,
                         size.refill_per_second
                     FROM unnest($1::uuid[], $2::text[], $3::bigint[], $4::double precision[])
                         AS size (tenant_id, owner, capacity, refill_per_second)
                     JOIN buckets
                         ON buckets.tenant_id = size.tenant_id
                        AND buckets.owner = size.owner
                     WHERE (buckets.capacity, buckets.refill_per_second) <> (size.capacity, size.refill_per_second)
                        OR buckets.at - trunc(1000 * extract(epoch FROM clock_timestamp()))::bigint > $5::bigint
                     ORDER BY
                         buckets.tenant_id,
                         buckets.owner
                     FOR UPDATE OF buckets
                 ) AS asked
                 WHERE buckets.tenant_id = asked.tenant_id
                   AND buckets.owner = asked.owner",
                &sizes.tenants,
                &sizes.owners,
                &sizes.capacities,
                &sizes.refills,
                CLOCK_BACK_MAX_MILLIS,
            )
        };
        self.leases.write(update).await.map(drop)
    }

    async fn give_back(&self, tokens: &[(BucketKey, u32)]) -> Result<(), StoreError> {
        let unused = Unused::of(tokens);
        let mut lent = self.leases.lend().await.map_err(unavailable)?;
        // Once: what was put back twice would be more than was lent. The rows are locked in the order in which `resize`
        // locks them.
        let update = sqlx::query!(
            "UPDATE buckets
             SET level = least(buckets.capacity, buckets.level + given.tokens)
             FROM (
                 SELECT
                     buckets.tenant_id,
                     buckets.owner,
                     unused.tokens
                 FROM unnest($1::uuid[], $2::text[], $3::bigint[]) AS unused (tenant_id, owner, tokens)
                 JOIN buckets
                     ON buckets.tenant_id = unused.tenant_id
                    AND buckets.owner = unused.owner
                 ORDER BY
                     buckets.tenant_id,
                     buckets.owner
                 FOR UPDATE OF buckets
             ) AS given
             WHERE buckets.tenant_id = given.tenant_id
               AND buckets.owner = given.owner",
            &unused.tenants,
            &unused.owners,
            &unused.tokens,
        );
        let done = in_time(
            lent.time_max(),
            update.execute(lent.start().map_err(unavailable)?),
        )
        .await;
        lent.settle_clean(done).map(drop).map_err(unavailable)
    }

    async fn forget_full(&self) -> Result<u64, StoreError> {
        let (mut full, mut forgotten) = (Vec::new(), 0);
        let mut round = self.full_buckets.begin();
        while forgotten < FORGOTTEN_MAX
            && let Some(after) = round.behind()
        {
            let found = bounded(self.sweeps.read(|| following(&after))).await?;
            let is_end = found.len() < LOOKED_AT_MAX as usize;
            round.looked_to(found.last().filter(|_| !is_end).map(LookedAt::key));
            full.extend(found.iter().filter(|bucket| bucket.is_full).map(LookedAt::key));
            // Those that are left are deleted together with the next ones, so that few full ones among many take few statements.
            while full.len() >= FORGOTTEN_AT_ONCE_MAX {
                let some = full.split_off(full.len() - FORGOTTEN_AT_ONCE_MAX);
                forgotten += self.forget_buckets(some).await?;
            }
        }
        if !full.is_empty() {
            forgotten += self.forget_buckets(full).await?;
        }
        Ok(round.end(forgotten).gone)
    }
}

/// How full these buckets are, by the sizes that stand in their rows. Each is told of, also where it has no row.
fn look(
    sizes: &Sizes,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Seen, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        Seen,
        r#"SELECT
               least(
                   buckets.capacity,
                   buckets.level
                       + greatest(0, 1000 * extract(epoch FROM clock_timestamp())::double precision - buckets.at)
                       / 1000 * buckets.refill_per_second
               ) AS "level?"
           FROM unnest($1::uuid[], $2::text[]) WITH ORDINALITY AS asked (tenant_id, owner, place)
           LEFT JOIN buckets
               ON buckets.tenant_id = asked.tenant_id
              AND buckets.owner = asked.owner
           ORDER BY asked.place"#,
        &sizes.tenants,
        &sizes.owners,
    )
}

/// What a bucket is found by, as it stands in its row.
pub(crate) type Key = (Uuid, String);

/// A bucket that was looked at.
struct LookedAt {
    tenant_id: Uuid,
    owner: String,
    is_full: bool,
}

impl LookedAt {
    fn key(&self) -> Key {
        (self.tenant_id, self.owner.clone())
    }
}

/// The next of all buckets, and which of them are full. They are looked at in the order of their keys, so many at a
/// time: no index can tell, because they fill while nobody writes, and a statement that looked at all of them would not
/// end in time where there are many.
fn following(
    after: &Key,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<LookedAt, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        LookedAt,
        r#"SELECT
               tenant_id,
               owner,
               level + refill_per_second
                   * greatest(0, 1000 * extract(epoch FROM clock_timestamp())::double precision - at) / 1000
                   >= capacity AS "is_full!"
           FROM buckets
           WHERE (tenant_id, owner) > ($1, $2)
           ORDER BY tenant_id, owner
           LIMIT $3"#,
        after.0,
        after.1,
        i64::from(LOOKED_AT_MAX),
    )
}

impl PostgresStore {
    /// Forgets those of these buckets that nothing was lent of meanwhile.
    async fn forget_buckets(&self, buckets: Vec<Key>) -> Result<u64, StoreError> {
        let (tenants, owners): (Vec<_>, Vec<_>) = buckets.into_iter().unzip();
        // Rows that somebody is leasing from are passed over. The others are locked first, and looked at again then.
        let delete = || {
            sqlx::query!(
                "DELETE FROM buckets
                 USING (
                     SELECT
                         buckets.tenant_id,
                         buckets.owner
                     FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, owner)
                     JOIN buckets
                         ON buckets.tenant_id = asked.tenant_id
                        AND buckets.owner = asked.owner
                     WHERE buckets.level + buckets.refill_per_second
                         * greatest(0, 1000 * extract(epoch FROM clock_timestamp())::double precision - buckets.at) / 1000
                         >= buckets.capacity
                     FOR UPDATE OF buckets SKIP LOCKED
                 ) AS filled
                 WHERE buckets.tenant_id = filled.tenant_id
                   AND buckets.owner = filled.owner",
                &tenants,
                &owners,
            )
        };
        self.sweeps.write(delete).await
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
                         least(
                             $3::bigint,
                             bucket.capacity,
                             bucket.level
                                 + greatest(0, until - bucket.at) / 1000::double precision * bucket.refill_per_second
                         ) AS available
                     FROM (
                         SELECT
                             CASE WHEN bucket.at - told > $8::bigint THEN told ELSE greatest(bucket.at, told) END AS until
                         FROM (
                             SELECT trunc(1000 * extract(epoch FROM clock_timestamp()))::bigint AS told
                         ) AS clock
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
        CLOCK_BACK_MAX_MILLIS,
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
