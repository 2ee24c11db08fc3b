//! Which run started which, and the answers that are given again: rows that are written once and never changed. Answers
//! are forgotten.

use crate::PostgresStore;
use crate::decode::{RowLabel, uuid};
use model::{RunLink, TenantId, Timestamp};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{Batch, ReplyKey, ReplyRow, StoreError};

/// How many answers are forgotten at once: few enough that nobody notices.
const FORGOTTEN_MAX: i64 = 1_000;

/// Links that are new, a vector a column.
#[derive(Default)]
pub(crate) struct LinkColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) runs: Vec<String>,
    pub(crate) parents: Vec<String>,
}

impl LinkColumns {
    /// The links of a batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut rows = Self::default();
        for (tenant, link) in &batch.budgets.links {
            rows.tenants.push(uuid(*tenant));
            rows.runs.push(link.run_id.to_string());
            rows.parents.push(link.parent.to_string());
        }
        rows
    }
}

/// Answers, in the same way.
#[derive(Default)]
pub(crate) struct ReplyColumns {
    pub(crate) tenants: Vec<Uuid>,
    pub(crate) callers: Vec<Uuid>,
    pub(crate) keys: Vec<String>,
    pub(crate) requests: Vec<Vec<u8>>,
    pub(crate) bytes: Vec<Vec<u8>>,
    pub(crate) at: Vec<i64>,
}

impl ReplyColumns {
    /// The answers of a batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut rows = Self::default();
        for reply in &batch.budgets.replies {
            rows.tenants.push(uuid(reply.key.tenant));
            rows.callers.push(Uuid::from_bytes(reply.key.caller));
            rows.keys.push(reply.key.key.to_string());
            rows.requests.push(reply.request.as_bytes().to_vec());
            rows.bytes.push(reply.bytes.to_vec());
            rows.at.push(reply.at.millis());
        }
        rows
    }
}

/// What is read of a link.
pub(crate) struct Columns {
    tenant_id: Uuid,
    run_id: String,
    parent: String,
}

/// Who started these runs, and who started those, and so on.
pub(crate) fn question(
    runs: &[(TenantId, model::Name)],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = runs.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let runs: Vec<_> = runs.iter().map(|(_, run)| run.to_string()).collect();
    sqlx::query_as!(
        Columns,
        r#"WITH RECURSIVE line (tenant_id, run_id, depth) AS (
               SELECT tenant_id, run_id COLLATE "C", 1
               FROM unnest($1::uuid[], $2::text[]) AS asked (tenant_id, run_id)
               UNION
               SELECT
                   run_links.tenant_id,
                   run_links.parent,
                   line.depth + 1
               FROM line
               JOIN run_links
                   ON run_links.tenant_id = line.tenant_id
                  AND run_links.run_id = line.run_id
               WHERE line.depth < 16
           )
           SELECT DISTINCT
               run_links.tenant_id AS "tenant_id!",
               run_links.run_id AS "run_id!",
               run_links.parent AS "parent!"
           FROM line
           JOIN run_links
               ON run_links.tenant_id = line.tenant_id
              AND run_links.run_id = line.run_id"#,
        &tenants,
        &runs,
    )
}

/// Which run of a tenant started which, in the order of the runs.
pub(crate) fn list(
    tenant: TenantId,
    after: Option<&model::Name>,
    limit: u32,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Columns, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        Columns,
        "SELECT
             tenant_id,
             run_id,
             parent
         FROM run_links
         WHERE tenant_id = $1
           AND run_id > $2
         ORDER BY run_id
         LIMIT $3",
        uuid(tenant),
        after.map_or("", model::Name::as_str),
        i64::from(limit),
    )
}

/// What was found.
pub(crate) fn decode(rows: Vec<Columns>) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        let label = RowLabel {
            table: "run_links",
            tenant,
            seq: None,
        };
        let link = RunLink {
            run_id: label.name("run_id", &found.run_id)?,
            parent: label.name("parent", &found.parent)?,
        };
        Ok((tenant, link))
    });
    found.collect()
}

/// What is read of an answer.
pub(crate) struct ReplyFound {
    tenant_id: Uuid,
    caller: Uuid,
    key: String,
    request: Vec<u8>,
    bytes: Vec<u8>,
    at: i64,
}

/// The answers that were given to these requests.
pub(crate) fn reply_question(
    keys: &[ReplyKey],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<ReplyFound, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = keys.iter().map(|key| uuid(key.tenant)).collect();
    let callers: Vec<_> = keys.iter().map(|key| Uuid::from_bytes(key.caller)).collect();
    let names: Vec<_> = keys.iter().map(|key| key.key.to_string()).collect();
    sqlx::query_as!(
        ReplyFound,
        "SELECT
             replies.tenant_id,
             replies.caller,
             replies.key,
             replies.request,
             replies.bytes,
             replies.at
         FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS asked (tenant_id, caller, key)
         JOIN replies
             ON replies.tenant_id = asked.tenant_id
            AND replies.caller = asked.caller
            AND replies.key = asked.key",
        &tenants,
        &callers,
        &names,
    )
}

/// The answers that a tenant's callers were given, by caller and key.
pub(crate) fn list_replies(
    tenant: TenantId,
    after: Option<&ReplyKey>,
    limit: u32,
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<ReplyFound, sqlx::Error> + Send, PgArguments> {
    sqlx::query_as!(
        ReplyFound,
        "SELECT
             tenant_id,
             caller,
             key,
             request,
             bytes,
             at
         FROM replies
         WHERE tenant_id = $1
           AND (caller, key) > ($2, $3)
         ORDER BY
             caller,
             key
         LIMIT $4",
        uuid(tenant),
        Uuid::from_bytes(after.map_or([0; 16], |key| key.caller)),
        after.map_or("", |key| key.key.as_str()),
        i64::from(limit),
    )
}

/// What was found.
pub(crate) fn decode_replies(rows: Vec<ReplyFound>) -> Result<Vec<ReplyRow>, StoreError> {
    let found = rows.into_iter().map(|found| {
        let tenant = TenantId::from_bytes(found.tenant_id.into_bytes());
        let label = RowLabel {
            table: "replies",
            tenant,
            seq: None,
        };
        Ok(ReplyRow {
            key: ReplyKey {
                tenant,
                caller: found.caller.into_bytes(),
                key: label.name("key", &found.key)?,
            },
            request: label.digest("request", &found.request)?,
            bytes: found.bytes.into(),
            at: Timestamp::from_millis(found.at),
        })
    });
    found.collect()
}

/// Forgets answers that were given before this.
pub(crate) async fn forget_replies(store: &PostgresStore, before: Timestamp) -> Result<u64, StoreError> {
    // What another gateway forgets at the same time is passed over.
    let delete = || {
        sqlx::query!(
            "DELETE FROM replies
             USING (
                 SELECT tenant_id, caller, key
                 FROM replies
                 WHERE at < $1
                 ORDER BY at
                 LIMIT $2
                 FOR UPDATE SKIP LOCKED
             ) AS old
             WHERE replies.tenant_id = old.tenant_id
               AND replies.caller = old.caller
               AND replies.key = old.key",
            before.millis(),
            FORGOTTEN_MAX,
        )
    };
    store.sweeps.write(delete).await
}
