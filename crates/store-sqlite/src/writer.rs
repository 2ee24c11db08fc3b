//! The one connection that writes, and the transaction of a commit.
//!
//! Whoever holds the writer has the turn. The connection is taken out of it for the time of a transaction and put
//! back only when the transaction has ended cleanly, so whatever goes wrong in between, a half-done transaction is
//! never found by the next commit: it finds no connection and opens one.

use crate::connect;
use crate::insert::TenantNumbers;
use crate::work::{Change, Move, Work};
use model::TenantId;
use sqlx::error::ErrorKind;
use sqlx::{Connection, SqliteConnection};
use std::path::PathBuf;
use store::CommitError;

/// `SQLITE_BUSY`, the primary code: somebody else holds a lock that is needed. Nothing has happened yet.
const SQLITE_BUSY: i32 = 5;

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    database: PathBuf,
    /// None after a failure, until the next commit.
    connection: Option<SqliteConnection>,
    numbers: TenantNumbers,
    closed: bool,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The one before was given up, and a new one could not be made.
    #[error("the database could not be opened again")]
    Connect(#[source] sqlx::Error),
}

/// Why a transaction did not commit.
enum Failure {
    /// A tenant's head is another one.
    HeadMoved(TenantId),
    /// Nothing was written if the transaction is rolled back.
    BeforeCommit(sqlx::Error),
    /// COMMIT itself failed: the log may hold the whole transaction, and a crash would bring it to light.
    AtCommit(sqlx::Error),
}

impl Writer {
    /// A writer on a migrated connection.
    pub(crate) async fn new(
        database: PathBuf,
        mut connection: SqliteConnection,
    ) -> Result<Self, sqlx::Error> {
        let numbers = read_numbers(&mut connection).await?;
        Ok(Self {
            database,
            connection: Some(connection),
            numbers,
            closed: false,
        })
    }

    /// The connection. After a failure it is a new one, and what the failure left in doubt has been read anew.
    pub(crate) async fn ready(&mut self) -> Result<&mut SqliteConnection, NotReady> {
        if self.closed {
            return Err(NotReady::Closed);
        }
        if self.connection.is_none() {
            let connection = self.reconnect().await.map_err(NotReady::Connect)?;
            self.connection = Some(connection);
        }
        self.connection.as_mut().ok_or(NotReady::Closed)
    }

    /// The numbers of all tenants that have committed.
    pub(crate) const fn numbers(&self) -> &TenantNumbers {
        &self.numbers
    }

    /// Commits. To be run where nobody cancels it.
    pub(crate) async fn run(&mut self, mut work: Work) -> Result<(), CommitError> {
        let mut connection = self
            .connection
            .take()
            .ok_or_else(|| CommitError::NotWritten(Box::new(NotReady::Closed)))?;
        let failure = match transact(&mut connection, &mut work).await {
            Ok(()) => {
                self.connection = Some(connection);
                let new = work.moves.iter().filter(|step| step.is_new);
                self.numbers.extend(new.map(|step| (step.tenant, step.tenant_no)));
                return Ok(());
            }
            Err(failure) => failure,
        };
        if let Failure::AtCommit(error) = failure {
            // Closed, and not only dropped: when the caller is told that it does not know, what is there stays there.
            close(connection).await;
            return Err(CommitError::Unknown(Box::new(error)));
        }
        match sqlx::query!("ROLLBACK").execute(&mut connection).await {
            Ok(_) => self.connection = Some(connection),
            // SQLite has rolled back by itself, or cannot: either way a new connection begins clean.
            Err(_) => close(connection).await,
        }
        Err(match failure {
            Failure::HeadMoved(tenant) => CommitError::HeadMoved { tenant },
            Failure::BeforeCommit(error) | Failure::AtCommit(error) => {
                CommitError::NotWritten(Box::new(error))
            }
        })
    }

    /// Closes the connection. Every later commit is refused.
    pub(crate) async fn close(&mut self) {
        self.closed = true;
        if let Some(connection) = self.connection.take() {
            close(connection).await;
        }
    }

    async fn reconnect(&mut self) -> Result<SqliteConnection, sqlx::Error> {
        let options = connect::writer(&self.database).create_if_missing(false);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        self.numbers = read_numbers(&mut connection).await?;
        Ok(connection)
    }

    /// The connection itself, for tests that make it fail.
    #[cfg(test)]
    pub(crate) fn connection(&mut self) -> Option<&mut SqliteConnection> {
        self.connection.as_mut()
    }

    /// Drops the connection, for tests of what comes after.
    #[cfg(test)]
    pub(crate) fn lose_connection(&mut self) {
        self.connection = None;
    }
}

async fn read_numbers(connection: &mut SqliteConnection) -> Result<TenantNumbers, sqlx::Error> {
    let rows = sqlx::query!("SELECT tenant_no, tenant_id FROM tenants")
        .fetch_all(connection)
        .await?;
    let number =
        |(id, tenant_no): (Vec<u8>, i64)| Some((TenantId::from_bytes(id.try_into().ok()?), tenant_no));
    Ok(rows
        .into_iter()
        .filter_map(|row| number((row.tenant_id, row.tenant_no)))
        .collect())
}

async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "the writer's connection did not close: {error}");
    }
}

async fn transact(connection: &mut SqliteConnection, work: &mut Work) -> Result<(), Failure> {
    if !work.opens {
        begin(connection, &work.moves).await?;
    }
    for statement in std::mem::take(&mut work.inserts) {
        let insert = sqlx::query_with(statement.sql, statement.arguments);
        insert
            .execute(&mut *connection)
            .await
            .map_err(|error| match &work.moves[..] {
                [only] if is_not_null(&error) => Failure::HeadMoved(only.tenant),
                _ => Failure::BeforeCommit(error),
            })?;
    }
    for change in &work.changes {
        write_noun(connection, change)
            .await
            .map_err(Failure::BeforeCommit)?;
    }
    sqlx::query!("COMMIT")
        .execute(connection)
        .await
        .map(drop)
        .map_err(|error| {
            if primary_code(&error) == Some(SQLITE_BUSY) {
                Failure::BeforeCommit(error)
            } else {
                Failure::AtCommit(error)
            }
        })
}

/// Begins a transaction and moves the heads in it, one by one, so that the one that has moved already can be named.
async fn begin(connection: &mut SqliteConnection, moves: &[Move]) -> Result<(), Failure> {
    let begin = sqlx::query!("BEGIN IMMEDIATE").execute(&mut *connection);
    begin.await.map_err(Failure::BeforeCommit)?;
    for step in moves {
        if !move_head(connection, step).await.map_err(Failure::BeforeCommit)? {
            return Err(Failure::HeadMoved(step.tenant));
        }
    }
    Ok(())
}

/// Moves one tenant's head; false if it is not where the batch advances from.
async fn move_head(connection: &mut SqliteConnection, step: &Move) -> Result<bool, sqlx::Error> {
    let done = if step.is_new {
        let tenant_id = &step.tenant.as_bytes()[..];
        sqlx::query!(
            "INSERT INTO tenants (tenant_no, tenant_id, head_seq, head_hash, revision)
             VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT DO NOTHING",
            step.tenant_no,
            tenant_id,
            step.to_seq,
            step.to_hash,
            step.revision,
        )
        .execute(connection)
        .await?
    } else {
        sqlx::query!(
            "UPDATE tenants
             SET head_seq = ?1,
                 head_hash = ?2,
                 revision = ?3
             WHERE tenant_no = ?4
               AND head_seq = ?5
               AND head_hash = ?6",
            step.to_seq,
            step.to_hash,
            step.revision,
            step.tenant_no,
            step.from_seq,
            step.from_hash,
        )
        .execute(connection)
        .await?
    };
    Ok(done.rows_affected() == 1)
}

async fn write_noun(connection: &mut SqliteConnection, change: &Change) -> Result<(), sqlx::Error> {
    match change {
        Change::Put { key, name, value } => {
            sqlx::query!(
                "INSERT INTO directory (tenant_no, kind, id, name, value)
                 VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (tenant_no, kind, id) DO UPDATE
                 SET name = excluded.name,
                     value = excluded.value",
                key.tenant_no,
                key.kind,
                key.id,
                name,
                value,
            )
            .execute(connection)
            .await
        }
        Change::Delete(key) => {
            sqlx::query!(
                "DELETE FROM directory
                 WHERE tenant_no = ?1
                   AND kind = ?2
                   AND id = ?3",
                key.tenant_no,
                key.kind,
                key.id,
            )
            .execute(connection)
            .await
        }
    }
    .map(drop)
}

fn is_not_null(error: &sqlx::Error) -> bool {
    error
        .as_database_error()
        .is_some_and(|error| error.kind() == ErrorKind::NotNullViolation)
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    // The low byte of an extended code is the primary one.
    Some(code & 0xff)
}
