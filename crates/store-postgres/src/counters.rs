//! What was counted of quotas: written in the commit of what is counted, read by key.

use crate::connections::in_time;
use crate::decode::{Row, uuid};
use crate::{PostgresStore, bounded, unavailable};
use async_trait::async_trait;
use canon::Digest;
use model::{Counter, TenantId, Timestamp};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use std::collections::HashMap;
use store::{Batch, Counters, StoreError};

/// How many counters are forgotten at once: few enough that nobody notices.
const FORGOTTEN_MAX: i64 = 1_000;

/// Counters as they are from now on, a vector a column.
#[derive(Default)]
pub(crate) struct CounterColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) starts: Vec<i64>,
    pub(crate) counts: Vec<i64>,
    pub(crate) ats: Vec<i64>,
}

impl CounterColumns {
    /// The counters of a batch: of each, how it is at the end, because a statement cannot write a row twice.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut last: HashMap<(TenantId, Digest), &Counter> = HashMap::new();
        for (tenant, counter) in &batch.counters {
            last.insert((*tenant, counter.key), counter);
        }
        let mut rows = Self::default();
        for ((tenant, key), counter) in last {
            rows.tenants.push(uuid(tenant));
            rows.keys.push(key.as_bytes().to_vec());
            rows.starts.push(counter.start.millis());
            rows.counts.push(i64::try_from(counter.count).unwrap_or(i64::MAX));
            rows.ats.push(counter.at.millis());
        }
        rows
    }
}

/// What is read of a counter.
pub(crate) struct Columns {
    tenant_id: Uuid,
    key: Vec<u8>,
    start: i64,
    count: i64,
    at: i64,
}

/// Those of these counters that are there.
pub(crate) fn question(
    keys: &[(TenantId, Digest)],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = keys.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let keys: Vec<_> = keys.iter().map(|(_, key)| key.as_bytes().to_vec()).collect();
    sqlx::query_as!(
        Columns,
        "SELECT
             quota_counters.tenant_id,
             quota_counters.key,
             quota_counters.start,
             quota_counters.count,
             quota_counters.at
         FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant_id, key)
         JOIN quota_counters
             ON quota_counters.tenant_id = asked.tenant_id
            AND quota_counters.key = asked.key",
        &tenants,
        &keys,
    )
}

/// What was found.
pub(crate) fn decode(rows: Vec<Columns>) -> Result<Vec<(TenantId, Counter)>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        let row = Row {
            table: "quota_counters",
            tenant,
            seq: None,
        };
        let count = u64::try_from(found.count);
        let counter = Counter {
            key: row.digest("key", &found.key)?,
            start: Timestamp::from_millis(found.start),
            count: count.map_err(|_| row.corrupt("count", "is negative"))?,
            at: Timestamp::from_millis(found.at),
        };
        Ok((tenant, counter))
    });
    found.collect()
}

#[async_trait]
impl Counters for PostgresStore {
    async fn counters(&self, keys: &[(TenantId, Digest)]) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        decode(bounded(self.readers.read(|| question(keys))).await?)
    }

    async fn counters_after(
        &self,
        tenant: TenantId,
        after: Option<Digest>,
        limit: u32,
    ) -> Result<Vec<Counter>, StoreError> {
        let after = after.map(|key| key.as_bytes().to_vec()).unwrap_or_default();
        let query = || {
            sqlx::query_as!(
                Columns,
                "SELECT tenant_id, key, start, count, at
                 FROM quota_counters
                 WHERE tenant_id = $1
                   AND key > $2
                 ORDER BY key
                 LIMIT $3",
                uuid(tenant),
                &after,
                i64::from(limit),
            )
        };
        let found = decode(bounded(self.readers.read(query)).await?)?;
        Ok(found.into_iter().map(|(_, counter)| counter).collect())
    }

    async fn forget_counters(&self, before: Timestamp) -> Result<u64, StoreError> {
        let mut lent = self.leases.lend().await.map_err(unavailable)?;
        // Rows that somebody is counting in are passed over. The others are locked first, and looked at again then.
        let delete = sqlx::query!(
            "DELETE FROM quota_counters
             USING (
                 SELECT tenant_id, key
                 FROM quota_counters
                 WHERE at < $1
                 LIMIT $2
                 FOR UPDATE SKIP LOCKED
             ) AS old
             WHERE quota_counters.tenant_id = old.tenant_id
               AND quota_counters.key = old.key",
            before.millis(),
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
