//! The one connection that writes, and the transaction of a commit.
//!
//! Whoever holds the writer has the turn. The connection is taken out of it for the time of a transaction and put
//! back only when the transaction has ended cleanly, so whatever goes wrong in between, a half-done transaction is
//! never found by the next commit: it finds no connection and opens one.

use crate::connect;
use crate::counters;
use crate::insert::TenantNumbers;
use crate::requests::{Requests, Step};
use crate::work::{Change, Content, Move, Work};
use canon::Digest;
use ledger::merkle::Frontier;
use ledger::{Head, Tip};
use model::{TenantId, Timestamp};
use sqlx::error::{DatabaseError, ErrorKind};
use sqlx::{Connection, SqliteConnection};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use store::{Batch, CommitError, Place};
use tokio::sync::Notify;

/// `SQLITE_BUSY`, the primary code: somebody else holds a lock that is needed. Nothing has happened yet.
const SQLITE_BUSY: i32 = 5;
/// `SQLITE_ERROR`: the statement makes no sense here, as BEGIN inside a transaction.
const SQLITE_ERROR: i32 = 1;

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    database: PathBuf,
    /// None after a failure, until the next commit.
    connection: Option<SqliteConnection>,
    /// What every tenant that has committed is called here.
    numbers: TenantNumbers,
    /// Where each of them stands: nobody else writes, so memory knows.
    places: HashMap<TenantId, Place>,
    /// Which entries answered which requests.
    requests: Requests,
    /// Told when there is something to do for them behind the commits.
    upkeep_due: Arc<Notify>,
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
    /// An outcome or the key of an answer was recorded before.
    AlreadyRecorded,
    /// Nothing was written if the transaction is rolled back.
    BeforeCommit(sqlx::Error),
    /// COMMIT itself failed: the log may hold the whole transaction, and a crash would bring it to light.
    AtCommit(sqlx::Error),
}

impl Writer {
    /// A writer on a migrated connection. So many requests are kept in memory before they become a run.
    pub(crate) async fn new(
        database: PathBuf,
        mut connection: SqliteConnection,
        recent_requests_max: usize,
        upkeep_due: Arc<Notify>,
    ) -> Result<Self, sqlx::Error> {
        let mut writer = Self {
            database,
            connection: None,
            numbers: TenantNumbers::new(),
            places: HashMap::new(),
            requests: Requests::new(recent_requests_max),
            upkeep_due,
            closed: false,
        };
        writer.learn(&mut connection).await?;
        writer.connection = Some(connection);
        Ok(writer)
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

    /// Where these tenants stand, as far as they have ever written.
    pub(crate) fn places(&self, tenants: &[TenantId]) -> HashMap<TenantId, Place> {
        let known = |tenant: &TenantId| Some((*tenant, self.places.get(tenant)?.clone()));
        tenants.iter().filter_map(known).collect()
    }

    /// Writes a batch. To be run where nobody cancels it.
    pub(crate) async fn run(&mut self, mut work: Work) -> Result<(), CommitError> {
        let mut connection = self
            .connection
            .take()
            .ok_or_else(|| CommitError::NotWritten(Box::new(NotReady::Closed)))?;
        let repeat = self.requests.repeat(&mut connection, &work.requests).await;
        let done = match repeat {
            Ok(false) => transact(&mut connection, &mut work, &self.requests).await,
            Ok(true) => {
                self.connection = Some(connection);
                return Err(CommitError::AlreadyRecorded);
            }
            Err(error) => Err(Failure::BeforeCommit(error)),
        };
        let failure = match done {
            Ok(()) => {
                self.connection = Some(connection);
                self.take(work);
                return Ok(());
            }
            Err(failure) => failure,
        };
        // Where memory may be wrong the connection is given up, and what comes next reads everything anew. It is closed,
        // and not only dropped: when the caller is told that it does not know, what is there stays there.
        match failure {
            Failure::AtCommit(error) => {
                close(connection).await;
                return Err(CommitError::Unknown(Box::new(error)));
            }
            Failure::HeadMoved(tenant) => {
                close(connection).await;
                return Err(CommitError::HeadMoved { tenant });
            }
            Failure::AlreadyRecorded | Failure::BeforeCommit(_) => {}
        }
        match sqlx::query!("ROLLBACK").execute(&mut connection).await {
            Ok(_) => self.connection = Some(connection),
            // SQLite has rolled back by itself, or cannot: either way a new connection begins clean.
            Err(_) => close(connection).await,
        }
        Err(match failure {
            Failure::BeforeCommit(error) => CommitError::NotWritten(Box::new(error)),
            _ => CommitError::AlreadyRecorded,
        })
    }

    /// Where things stand after a batch was written.
    fn take(&mut self, work: Work) {
        let entries = work
            .moves
            .iter()
            .map(|step| (step.to_seq - step.from_seq).cast_unsigned());
        self.requests.add(&work.requests, entries.sum());
        self.requests.forget(work.erasures.into_requests());
        if self.requests.is_due() {
            self.upkeep_due.notify_one();
        }
        for step in work.moves {
            self.numbers.insert(step.tenant, step.tenant_no);
            self.places.insert(step.tenant, step.to);
        }
    }

    /// Which entries answered which requests.
    pub(crate) const fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// The connection, and which entries answered which requests: to look some up.
    pub(crate) async fn reading(&mut self) -> Result<(&mut SqliteConnection, &Requests), NotReady> {
        self.ready().await?;
        let connection = self.connection.as_mut().ok_or(NotReady::Closed)?;
        Ok((connection, &self.requests))
    }

    /// Writes a step of what is done for the index of requests behind the commits. Whoever calls it has a connection, and then
    /// takes what was written into memory. After a failure memory is read anew.
    pub(crate) async fn step(&mut self, step: &Step) -> Result<(), sqlx::Error> {
        let mut connection = self.connection.take().ok_or(sqlx::Error::WorkerCrashed)?;
        let written = async {
            sqlx::query!("BEGIN IMMEDIATE").execute(&mut connection).await?;
            step.write(&mut connection).await?;
            sqlx::query!("COMMIT").execute(&mut connection).await
        };
        match written.await {
            Ok(_) => self.connection = Some(connection),
            Err(error) => {
                close(connection).await;
                return Err(error);
            }
        }
        Ok(())
    }

    /// The work of a batch.
    pub(crate) fn work(&self, batch: &Batch) -> Result<Work, CommitError> {
        Work::of(batch, &self.numbers)
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
        self.learn(&mut connection).await?;
        Ok(connection)
    }

    /// Reads what every tenant is called here, and where it stands.
    async fn learn(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let rows = sqlx::query!(
            "SELECT tenant_no, tenant_id, head_seq, head_hash, head_at, edge, revision
             FROM tenants"
        )
        .fetch_all(&mut *connection)
        .await?;
        self.requests.read(connection).await?;
        self.numbers.clear();
        self.places.clear();
        for row in rows {
            // What cannot be read is left out: whoever writes there is told that the head has moved.
            let Ok(tenant) = row.tenant_id.try_into().map(TenantId::from_bytes) else {
                continue;
            };
            self.numbers.insert(tenant, row.tenant_no);
            if let (Ok(seq), Ok(hash), Ok(revision)) = (
                row.head_seq.try_into(),
                row.head_hash.try_into().map(Digest::from_bytes),
                row.revision.try_into(),
            ) && let Some(tree) = Frontier::from_bytes(seq, &row.edge)
                && let Some(tip) = Tip::new(Head { seq, hash }, tree)
            {
                let place = Place {
                    tip,
                    at: Timestamp::from_millis(row.head_at),
                    revision,
                };
                self.places.insert(tenant, place);
            }
        }
        Ok(())
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

async fn close(connection: SqliteConnection) {
    if let Err(error) = connection.close().await {
        tracing::warn!(%error, "the writer's connection did not close: {error}");
    }
}

async fn transact(
    connection: &mut SqliteConnection,
    work: &mut Work,
    requests: &Requests,
) -> Result<(), Failure> {
    if !work.opens {
        begin(connection, &work.moves).await?;
    }
    for statement in std::mem::take(&mut work.inserts) {
        let closes = statement.closes;
        let insert = sqlx::query_with(statement.sql, statement.arguments);
        let done = insert.execute(&mut *connection).await;
        done.map_err(|error| Failure::of(error, &work.moves, closes))?;
    }
    for change in &work.changes {
        let done = write_noun(connection, change).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    for content in &work.contents {
        let done = write_content(connection, content).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    for run in &work.runs {
        let done = run.write(connection).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    if let Some(rows) = &work.counters {
        let done = counters::write(connection, rows).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    for approval in &work.approvals {
        let done = approval.write(connection).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    if let Some(statement) = work.budgets.take() {
        let write = sqlx::query_with(statement.sql, statement.arguments);
        let done = write.execute(&mut *connection).await;
        done.map_err(|error| Failure::of(error, &[], false))?;
    }
    if !work.erasures.is_empty() {
        let done = work.erasures.write(connection, requests).await;
        done.map_err(Failure::BeforeCommit)?;
    }
    if !work.closes {
        let done = sqlx::query!("COMMIT").execute(connection).await;
        done.map_err(|error| Failure::of(error, &[], true))?;
    }
    Ok(())
}

impl Failure {
    /// What an error of a statement means; `closes` says whether the statement commits too.
    fn of(error: sqlx::Error, moves: &[Move], closes: bool) -> Self {
        let Some(kind) = error.as_database_error().map(DatabaseError::kind) else {
            return if closes {
                Self::AtCommit(error)
            } else {
                Self::BeforeCommit(error)
            };
        };
        match (kind, moves) {
            (ErrorKind::NotNullViolation, [only]) => Self::HeadMoved(only.tenant),
            (ErrorKind::UniqueViolation, _) if names_a_repetition(&error) => Self::AlreadyRecorded,
            // A constraint fails a row, and never a COMMIT: there are no deferred ones. Neither does a COMMIT in WAL mode
            // wait for anybody's lock: the transaction has had it from the beginning.
            (ErrorKind::Other, _) if closes && !comes_before_commit(&error) => Self::AtCommit(error),
            _ => Self::BeforeCommit(error),
        }
    }
}

/// Whether it was an outcome or a key of an answer that was there already. SQLite names the columns of the key.
fn names_a_repetition(error: &sqlx::Error) -> bool {
    let message = error.as_database_error().map_or("", DatabaseError::message);
    [": outcomes.", ": replies."]
        .iter()
        .any(|table| message.contains(table))
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
            "INSERT INTO tenants (tenant_no, tenant_id, head_seq, head_hash, head_at, edge, revision)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT DO NOTHING",
            step.tenant_no,
            tenant_id,
            step.to_seq,
            step.to_hash,
            step.to_at,
            step.to_edge,
            step.revision,
        )
        .execute(connection)
        .await?
    } else {
        sqlx::query!(
            "UPDATE tenants
             SET head_seq = ?1,
                 head_hash = ?2,
                 head_at = ?3,
                 edge = ?4,
                 revision = ?5
             WHERE tenant_no = ?6
               AND head_seq = ?7
               AND head_hash = ?8",
            step.to_seq,
            step.to_hash,
            step.to_at,
            step.to_edge,
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

async fn write_content(connection: &mut SqliteConnection, content: &Content) -> Result<(), sqlx::Error> {
    let (digest, bytes) = (&content.digest.as_bytes()[..], &content.bytes[..]);
    sqlx::query!(
        "INSERT INTO contents (tenant_no, digest, bytes)
         VALUES (?1, ?2, ?3)
         ON CONFLICT DO NOTHING",
        content.tenant_no,
        digest,
        bytes,
    )
    .execute(connection)
    .await
    .map(drop)
}

/// Whether a statement that fails like this has not come to its COMMIT.
fn comes_before_commit(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(SQLITE_BUSY | SQLITE_ERROR))
}

fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    // The low byte of an extended code is the primary one.
    Some(code & 0xff)
}
