//! What was counted of quotas: written in the commit of what is counted, read by key.

use crate::decode::{RowLabel, uuid};
use crate::{PostgresStore, bounded};
use async_trait::async_trait;
use canon::Digest;
use model::{Counter, TenantId, Timestamp};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use std::collections::HashMap;
use store::{Batch, Counters, LOOKED_AT_MAX, StoreError, Swept};

/// How many counters are forgotten at once: few enough that nobody notices.
const FORGOTTEN_MAX: usize = 1_000;

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
        let label = RowLabel {
            table: "quota_counters",
            tenant,
            seq: None,
        };
        let count = u64::try_from(found.count);
        let counter = Counter {
            key: label.digest("key", &found.key)?,
            start: Timestamp::from_millis(found.start),
            count: count.map_err(|_| label.corrupt("count", "is negative"))?,
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

    async fn forget_counters(&self, before: Timestamp) -> Result<Swept, StoreError> {
        let (mut old, mut forgotten) = (Vec::new(), 0);
        let mut round = self.old_counters.begin_brief();
        while let Some(after) = round.behind() {
            let found = bounded(self.sweeps.read(|| following(&after, before))).await?;
            let is_end = found.len() < LOOKED_AT_MAX as usize;
            old.extend(found.iter().filter(|counter| counter.is_old).map(LookedAt::key));
            // Those that are left are deleted together with the next ones, so that few old ones among many take few statements.
            while old.len() >= FORGOTTEN_MAX {
                let some = old.split_off(old.len() - FORGOTTEN_MAX);
                forgotten += self.forget(some, before).await?;
                if round.is_over() {
                    break;
                }
            }
            if old.len() >= FORGOTTEN_MAX {
                // The next round looks here again, for those that are too many for this one.
                old.truncate(FORGOTTEN_MAX);
                break;
            }
            round.looked_to(found.last().filter(|_| !is_end).map(LookedAt::key));
        }
        if !old.is_empty() {
            forgotten += self.forget(old, before).await?;
        }
        Ok(round.end(forgotten))
    }
}

/// What a counter is found by, as it stands in its row.
pub(crate) type Key = (Uuid, Vec<u8>);

/// A counter that was looked at.
struct LookedAt {
    tenant_id: Uuid,
    key: Vec<u8>,
    is_old: bool,
}

impl LookedAt {
    fn key(&self) -> Key {
        (self.tenant_id, self.key.clone())
    }
}

/// The next of all counters, and in which of them nothing was counted since `before`. They are looked at in the order
/// of their keys, so many at a time: no index has their times, because a commit would write to it for each call that is
/// counted, and a statement that looked at all of them would not end in time where there are many.
fn following(
    after: &Key,
    before: Timestamp,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<LookedAt, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        LookedAt,
        r#"SELECT
               tenant_id,
               key,
               at < $3 AS "is_old!"
           FROM quota_counters
           WHERE (tenant_id, key) > ($1, $2)
           ORDER BY tenant_id, key
           LIMIT $4"#,
        after.0,
        &after.1,
        before.millis(),
        i64::from(LOOKED_AT_MAX),
    )
}

impl PostgresStore {
    /// Forgets those of these counters that nothing was counted in meanwhile.
    async fn forget(&self, counters: Vec<Key>, before: Timestamp) -> Result<u64, StoreError> {
        let (tenants, keys): (Vec<_>, Vec<_>) = counters.into_iter().unzip();
        // Rows that somebody is counting in are passed over. The others are locked first, and looked at again then.
        let delete = || {
            sqlx::query!(
                "DELETE FROM quota_counters
                 USING (
                     SELECT
                         quota_counters.tenant_id,
                         quota_counters.key
                     FROM unnest($1::uuid[], $2::bytea[]) AS asked (tenant_id, key)
                     JOIN quota_counters
                         ON quota_counters.tenant_id = asked.tenant_id
                        AND quota_counters.key = asked.key
                     WHERE quota_counters.at < $3
                     FOR UPDATE OF quota_counters SKIP LOCKED
                 ) AS old
                 WHERE quota_counters.tenant_id = old.tenant_id
                   AND quota_counters.key = old.key",
                &tenants,
                &keys,
                before.millis(),
            )
        };
        self.sweeps.write(delete).await
    }
}
