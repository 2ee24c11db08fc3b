//! Completes ledgers that were written before their trees were kept: what each entry adds to the tree, and its edge.
//!
//! A ledger is completed in one transaction, or not at all; of several gateways that open the database at once, one does it.
//! An entry that is not what was hashed ends it: a tree over what somebody changed would vouch for it.

use crate::decode::uuid;
use ledger::{Head, NewEntry, Tip};
use model::{TenantId, Timestamp};
use sqlx::types::Uuid;
use sqlx::{Connection, PgConnection};

/// Entries that are read at once.
const CHUNK: i64 = 1_000;

/// Why a ledger was not completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The entry is missing, or is not what was recorded.
    #[error("entry {seq} of {tenant} is missing or is not what was recorded")]
    Broken { tenant: TenantId, seq: u64 },
    /// The server did not do as it was asked.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Completes all ledgers that have no tree.
pub(crate) async fn complete(connection: &mut PgConnection) -> Result<(), TreeError> {
    let tenants = sqlx::query_scalar!(
        "SELECT tenant_id
         FROM tenants
         WHERE head_seq > 0
           AND edge = ''"
    )
    .fetch_all(&mut *connection)
    .await?;
    for tenant in tenants {
        let tenant = TenantId::from_bytes(tenant.into_bytes());
        let mut transaction = connection.begin().await?;
        let entries = complete_one(tenant, &mut transaction).await?;
        transaction.commit().await?;
        tracing::info!(%tenant, entries, "the tree of {tenant} over {entries} entries was completed");
    }
    Ok(())
}

/// Reads a ledger once, and writes what it finds. Returns how many entries there are.
async fn complete_one(tenant: TenantId, connection: &mut PgConnection) -> Result<u64, TreeError> {
    // Whoever was faster has done it by the time that this lock is taken.
    let head_seq = sqlx::query_scalar!(
        "SELECT head_seq
         FROM tenants
         WHERE tenant_id = $1
           AND edge = ''
         FOR UPDATE",
        uuid(tenant),
    )
    .fetch_optional(&mut *connection)
    .await?;
    let Some(head_seq) = head_seq.and_then(|seq| u64::try_from(seq).ok()) else {
        return Ok(0);
    };
    sqlx::raw_sql("ALTER TABLE audit_events DISABLE TRIGGER audit_events_are_not_rewritten")
        .execute(&mut *connection)
        .await?;
    let mut tip = Tip::GENESIS;
    while tip.head().seq < head_seq {
        chunk(tenant, &mut tip, connection).await?;
    }
    sqlx::query!(
        "UPDATE tenants
         SET edge = $2
         WHERE tenant_id = $1",
        uuid(tenant),
        tip.tree().to_bytes(),
    )
    .execute(&mut *connection)
    .await?;
    sqlx::raw_sql("ALTER TABLE audit_events ENABLE TRIGGER audit_events_are_not_rewritten")
        .execute(connection)
        .await?;
    Ok(tip.head().seq)
}

/// The next entries.
async fn chunk(tenant: TenantId, tip: &mut Tip, connection: &mut PgConnection) -> Result<(), TreeError> {
    let before = tip.head().seq;
    let rows = sqlx::query!(
        "SELECT seq, kind, at, hash, body
         FROM audit_events
         WHERE tenant_id = $1
           AND seq > $2
         ORDER BY seq
         LIMIT $3",
        uuid(tenant),
        i64::try_from(before).unwrap_or(i64::MAX),
        CHUNK,
    )
    .fetch_all(&mut *connection)
    .await?;
    let broken = |seq| TreeError::Broken { tenant, seq };
    if rows.is_empty() {
        return Err(broken(before + 1));
    }
    let id = tenant.to_string();
    let mut scratch = String::new();
    let (mut seqs, mut nodes) = (Vec::with_capacity(rows.len()), Vec::with_capacity(rows.len()));
    for row in rows {
        let at = Timestamp::from_millis(row.at).to_string();
        let new = NewEntry {
            tenant: &id,
            kind: &row.kind,
            at: &at,
            body: canon::Digest::of(row.body.as_bytes()),
        };
        let appended = tip.append(&new, &mut scratch);
        let Head { seq, hash } = appended.head;
        if u64::try_from(row.seq) != Ok(seq) || hash.as_bytes()[..] != row.hash {
            return Err(broken(seq));
        }
        seqs.push(row.seq);
        nodes.push(appended.completed.into_bytes());
    }
    let tenant: Uuid = uuid(tenant);
    sqlx::query!(
        "UPDATE audit_events
         SET nodes = new.nodes
         FROM unnest($2::bigint[], $3::bytea[]) AS new (seq, nodes)
         WHERE audit_events.tenant_id = $1
           AND audit_events.seq = new.seq",
        tenant,
        &seqs,
        &nodes,
    )
    .execute(connection)
    .await?;
    Ok(())
}
