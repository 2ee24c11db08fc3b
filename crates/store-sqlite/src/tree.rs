//! Completes ledgers that were written before their trees were kept: what each entry adds to the tree, and its edge.
//!
//! A ledger is completed a part at a time, because each of its rows is rewritten and the write-ahead log has to start
//! over in between. It has no edge until its last part is written, so whatever interrupts it, the next start reads it
//! from its beginning again, and writes what is not there yet. An entry that is not what was hashed ends it: a tree
//! over what somebody changed would vouch for it.

use crate::{checkpoint, entry, packed};
use ledger::{Head, NewEntry, Tip};
use model::{TenantId, Timestamp};
use sqlx::{AssertSqlSafe, SqliteConnection};

/// Entries of a part.
const PART: i64 = 1_000;

/// Why a ledger was not completed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The entry is missing, or is not what was recorded.
    #[error("entry {seq} of {tenant} is missing or is not what was recorded")]
    Broken { tenant: TenantId, seq: u64 },
    /// The database did not do as it was asked.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A ledger without its tree.
struct Incomplete {
    tenant_no: i64,
    tenant: TenantId,
    head_seq: u64,
}

/// Completes all ledgers that have no tree.
pub(crate) async fn complete(connection: &mut SqliteConnection) -> Result<(), TreeError> {
    let rows = sqlx::query!(
        "SELECT tenant_no, tenant_id, head_seq
         FROM tenants
         WHERE head_seq > 0
           AND edge = x''"
    )
    .fetch_all(&mut *connection)
    .await?;
    if !rows.is_empty() {
        checkpoint::empty(connection).await?;
    }
    for row in rows {
        let (Ok(id), Ok(head_seq)) = (row.tenant_id.try_into(), row.head_seq.try_into()) else {
            continue;
        };
        let ledger = Incomplete {
            tenant_no: row.tenant_no,
            tenant: TenantId::from_bytes(id),
            head_seq,
        };
        let seq = ledger.complete(connection).await?;
        tracing::info!(tenant = %ledger.tenant, entries = seq, "the tree of {} over {seq} entries was completed", ledger.tenant);
    }
    Ok(())
}

impl Incomplete {
    /// Reads the ledger once, and writes what it finds. Returns how many entries there are.
    async fn complete(&self, connection: &mut SqliteConnection) -> Result<u64, TreeError> {
        let mut tip = Tip::GENESIS;
        while tip.head().seq < self.head_seq {
            sqlx::query!("BEGIN IMMEDIATE").execute(&mut *connection).await?;
            let done = self.part(&mut tip, connection).await;
            let end = if done.is_ok() { "COMMIT" } else { "ROLLBACK" };
            let ended = sqlx::raw_sql(end).execute(&mut *connection).await;
            // The cause is told, not what follows from it: where there is no room SQLite has rolled back by itself, and
            // ROLLBACK fails.
            done?;
            ended?;
        }
        Ok(tip.head().seq)
    }

    /// The next entries and, if they are the last, the edge.
    async fn part(&self, tip: &mut Tip, connection: &mut SqliteConnection) -> Result<(), TreeError> {
        let guard = lift_guard(connection, "audit_events_are_not_rewritten").await?;
        self.entries(tip, connection).await?;
        if tip.head().seq == self.head_seq {
            let edge = tip.tree().to_bytes();
            sqlx::query!(
                "UPDATE tenants
                 SET edge = ?1
                 WHERE tenant_no = ?2",
                edge,
                self.tenant_no,
            )
            .execute(&mut *connection)
            .await?;
        }
        sqlx::raw_sql(AssertSqlSafe(guard)).execute(connection).await?;
        Ok(())
    }

    async fn entries(&self, tip: &mut Tip, connection: &mut SqliteConnection) -> Result<(), TreeError> {
        let due = tip.head().seq + 1;
        let broken = |seq| TreeError::Broken {
            tenant: self.tenant,
            seq,
        };
        let numbers = entry::number(self.tenant_no, due).zip(entry::number(self.tenant_no, self.head_seq));
        let (first, last) = numbers.ok_or_else(|| broken(due))?;
        let rows = sqlx::query!(
            "SELECT entry, kind, at, hash, nodes, body, packed
             FROM audit_events
             WHERE entry BETWEEN ?1 AND ?2
             ORDER BY entry
             LIMIT ?3",
            first,
            last,
            PART,
        )
        .fetch_all(&mut *connection)
        .await?;
        if rows.is_empty() {
            return Err(broken(due));
        }
        let tenant = self.tenant.to_string();
        let mut scratch = String::new();
        for row in rows {
            let at = Timestamp::from_millis(row.at).to_string();
            let new = NewEntry {
                tenant: &tenant,
                kind: &row.kind,
                at: &at,
                body: canon::Digest::of(packed::body(row.body, row.packed.as_deref()).as_bytes()),
            };
            let appended = tip.append(&new, &mut scratch);
            let Head { seq, hash } = appended.head;
            if seq != entry::seq(row.entry) || hash.as_bytes()[..] != row.hash {
                return Err(broken(seq));
            }
            let nodes = appended.completed.as_bytes();
            if row.nodes == nodes {
                continue;
            }
            sqlx::query!(
                "UPDATE audit_events
                 SET nodes = ?1
                 WHERE entry = ?2",
                nodes,
                row.entry,
            )
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}

/// Takes away, within the transaction, what keeps rows from being rewritten. Returns the statement that puts it back.
pub(crate) async fn lift_guard(
    connection: &mut SqliteConnection,
    trigger: &'static str,
) -> Result<String, sqlx::Error> {
    let guard: String =
        sqlx::query_scalar("SELECT sql FROM sqlite_schema WHERE type = 'trigger' AND name = ?1")
            .bind(trigger)
            .fetch_one(&mut *connection)
            .await?;
    sqlx::raw_sql(AssertSqlSafe(format!("DROP TRIGGER {trigger}")))
        .execute(connection)
        .await?;
    Ok(guard)
}
