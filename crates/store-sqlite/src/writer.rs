//! Who writes, one at a time: the connections that do, and what memory knows of what stands in the database.
//!
//! Whoever holds the writer has the turn. Its connections are taken out of it for the time of a transaction and put
//! back only when the transaction has ended cleanly, so whatever goes wrong in between, a half-done transaction is
//! never found by the next commit: it finds no connections and opens new ones.

use crate::Bounds;
use crate::checkpoint::{self, Ending, Progress};
use crate::commit::{self, Failure, NotWritten, Writing};
use crate::connect;
use crate::entry;
use crate::erasures;
use crate::errands::Errands;
use crate::file::{DatabaseFile, Gone};
use crate::head_moves::{self, HeadMove, TenantNumbers};
use crate::keeper::Keeper;
use crate::requests::{RequestDigest, Requests, Step};
use canon::Digest;
use ledger::merkle::Frontier;
use ledger::{Head, Tip};
use model::{TenantId, Timestamp};
use sqlx::{Connection, SqliteConnection};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use store::{Batch, ChainPosition, CommitError};
use tokio::sync::Notify;

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    database: PathBuf,
    /// What says whether the file is still there.
    file: Arc<DatabaseFile>,
    /// None after a failure, until the next commit.
    connections: Option<Connections>,
    /// Has the log open also then. Closed behind them.
    keeper: Keeper,
    /// The integer key (`tenant_no`) of every tenant in this database.
    tenant_numbers: TenantNumbers,
    /// Where each of them stands: nobody else writes, so memory knows.
    positions: HashMap<TenantId, ChainPosition>,
    /// Which entries answered which requests.
    requests: Requests,
    /// Told when there is something to do for them behind the commits.
    upkeep_due: Arc<Notify>,
    /// What others want done by whoever has the turn.
    errands: Arc<Errands>,
    /// Set by `close`; nothing is written afterwards.
    closed: bool,
}

/// The two connections that write. Nobody else does, and they only in turn, so neither ever waits for the other.
#[derive(Debug)]
struct Connections {
    /// Commits, on the thread of whoever commits.
    commits: rusqlite::Connection,
    /// Looks up what a commit has to know, and writes what is no commit, on a thread of its own.
    aside: SqliteConnection,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotReady {
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The ones before were given up, and new ones could not be made.
    #[error("the database could not be opened again")]
    Connect(#[source] BoxError),
    /// Nothing may be written any more.
    #[error(transparent)]
    Gone(#[from] Gone),
}

/// What either library says of a database.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;

impl Connections {
    fn of(database: &Path, aside: SqliteConnection) -> Result<Self, BoxError> {
        let commits = connect::committer(database)?;
        commit::prepare_all(&commits)?;
        Ok(Self { commits, aside })
    }

    /// Closes them, and does not only drop them: when the caller is told that it does not know, what is there stays there.
    async fn close(self) {
        let Self { commits, aside } = self;
        if let Err((_, error)) = commits.close() {
            tracing::warn!(%error, "the connection that commits did not close: {error}");
        }
        if let Err(error) = aside.close().await {
            tracing::warn!(%error, "the writer's connection did not close: {error}");
        }
    }
}

impl Writer {
    /// A writer on a migrated database, with a connection to it.
    pub(crate) async fn new(
        file: Arc<DatabaseFile>,
        mut connection: SqliteConnection,
        bounds: Bounds,
        upkeep_due: Arc<Notify>,
    ) -> Result<Self, BoxError> {
        let database = file.path().to_owned();
        let keeper = Keeper::open(Arc::clone(&file))?;
        let mut writer = Self {
            requests: Requests::new(&database, bounds),
            database,
            file,
            connections: None,
            keeper,
            tenant_numbers: TenantNumbers::new(),
            positions: HashMap::new(),
            upkeep_due,
            errands: Arc::default(),
            closed: false,
        };
        writer.read_state(&mut connection).await?;
        writer.connections = Some(Connections::of(&writer.database, connection)?);
        Ok(writer)
    }

    /// The connection beside commits. After a failure it is a new one, and what the failure left in doubt has been read anew.
    pub(crate) async fn ready(&mut self) -> Result<&mut SqliteConnection, NotReady> {
        if self.closed {
            return Err(NotReady::Closed);
        }
        self.file.check()?;
        let connections = if let Some(connections) = self.connections.take() {
            connections
        } else {
            // What has the name now may be another database.
            self.file.look()?;
            self.reconnect().await.map_err(NotReady::Connect)?
        };
        Ok(&mut self.connections.insert(connections).aside)
    }

    /// What others want done by whoever has the turn.
    pub(crate) fn errands(&self) -> Arc<Errands> {
        Arc::clone(&self.errands)
    }

    /// Begins a turn to commit in: does one of those first, if there is any. Afterwards there are connections.
    pub(crate) async fn begin(&mut self) -> Result<(), NotReady> {
        self.ready().await?;
        if let Some(errand) = self.errands.take_to_commit() {
            errand(self);
            self.ready().await?;
        }
        Ok(())
    }

    /// The entries that answered these requests, each with the place of the request among them. Whoever asks has a connection.
    pub(crate) fn find_requests(&self, wanted: &[RequestDigest]) -> Result<Vec<(usize, i64)>, NotWritten> {
        let connections = self.connections.as_ref().ok_or(NotWritten::NotReady)?;
        self.requests.find(&connections.commits, wanted)
    }

    /// Where these tenants stand, as far as they have ever written.
    pub(crate) fn positions(&self, tenants: &[TenantId]) -> HashMap<TenantId, ChainPosition> {
        let known = |tenant: &TenantId| Some((*tenant, self.positions.get(tenant)?.clone()));
        tenants.iter().filter_map(known).collect()
    }

    /// Writes a batch. It waits for nothing but the disk from where it begins to write, so nobody can stop it half-way.
    pub(crate) async fn commit(&mut self, batch: &Batch) -> Result<(), CommitError> {
        batch.check().map_err(not_written)?;
        let digests: Vec<_> = batch.decisions.iter().map(RequestDigest::of_decision).collect();
        // New connections read the keys of tenants anew, so this comes before whatever goes by them.
        self.ready().await.map_err(not_written)?;
        let moves = head_moves::of(batch, &self.tenant_numbers)?;
        let connections = self.connections.take();
        let connections = connections.ok_or_else(|| not_written(NotReady::Closed))?;
        let writing = Writing {
            batch,
            moves: &moves,
            numbers: &self.tenant_numbers,
            digests: &digests,
            requests: &self.requests,
        };
        if !batch.erasures.is_empty() {
            // Before it is known whether it was written: that may never be known.
            self.file.note_erased();
        }
        match commit::commit(&connections.commits, &writing) {
            Ok(()) => {
                self.connections = Some(connections);
                self.remember_committed(batch, &digests, moves);
                Ok(())
            }
            Err(failure) => Err(self.after_failed_commit(connections, failure).await),
        }
    }

    /// What to tell of a commit that failed. Where memory may be wrong the connections are given up, and what comes
    /// next reads everything anew.
    async fn after_failed_commit(&mut self, connections: Connections, failure: Failure) -> CommitError {
        let error = match failure {
            Failure::AtCommit(error) => {
                connections.close().await;
                return CommitError::Unknown(Box::new(error));
            }
            Failure::HeadMoved(tenant) => {
                connections.close().await;
                return CommitError::HeadMoved { tenant };
            }
            Failure::AlreadyRecorded => CommitError::AlreadyRecorded,
            Failure::BeforeCommit(error) => not_written(error),
        };
        match commit::roll_back(&connections.commits) {
            Ok(()) => self.connections = Some(connections),
            // SQLite has rolled back by itself, or cannot: either way new connections begin clean.
            Err(_) => connections.close().await,
        }
        error
    }

    /// Takes into memory what a batch that was written has changed.
    fn remember_committed(&mut self, batch: &Batch, digests: &[Option<RequestDigest>], moves: Vec<HeadMove>) {
        for head_move in moves {
            self.tenant_numbers.insert(head_move.tenant, head_move.tenant_no);
            self.positions.insert(head_move.tenant, head_move.to);
        }
        let numbers = &self.tenant_numbers;
        let number = |tenant, seq| entry::number(*numbers.get(&tenant)?, seq);
        let asked = digests.iter().zip(&batch.decisions).filter_map(|(digest, row)| {
            let entry = number(row.tenant, row.seq)?;
            Some(digest.as_ref()?.slot(entry))
        });
        self.requests.add(asked, batch.entries.len());
        let erased = batch.erasures.iter();
        let erased = erased.filter_map(|row| erasures::slot(row, number(row.tenant, row.seq)?));
        erased.for_each(|slot| self.requests.forget(slot));
        if self.requests.is_due() {
            self.upkeep_due.notify_one();
        }
    }

    /// Which entries answered which requests.
    pub(crate) const fn requests(&mut self) -> &mut Requests {
        &mut self.requests
    }

    /// Writes a step of what is done for the index of requests behind the commits, on this thread. Whoever calls it has
    /// a connection, and then takes what was written into memory. After a failure memory is read anew.
    pub(crate) fn step(&mut self, step: &Step) -> Result<(), NotWritten> {
        let connections = self.connections.take().ok_or(NotWritten::NotReady)?;
        commit::upkeep_step(&connections.commits, |transaction| step.write(transaction))?;
        self.connections = Some(connections);
        Ok(())
    }

    /// Moves all of the write-ahead log into the database, and ends it like this, on this thread. Whoever calls it has
    /// a connection.
    pub(crate) fn end_log(&self, ending: Ending) -> Result<Progress, NotWritten> {
        let connections = self.connections.as_ref().ok_or(NotWritten::NotReady)?;
        let progress = checkpoint::end(&connections.commits, ending)?;
        if ending == Ending::Empty && !progress.is_busy() {
            self.file.note_emptied();
        }
        Ok(progress)
    }

    /// Closes the connections, after all others. Every later commit is refused.
    pub(crate) async fn close(&mut self) {
        self.closed = true;
        if let Some(connections) = self.connections.take() {
            connections.close().await;
        }
        self.keeper.close().await;
    }

    async fn reconnect(&mut self) -> Result<Connections, BoxError> {
        let options = connect::aside(&self.database).create_if_missing(false);
        let mut connection = SqliteConnection::connect_with(&options).await?;
        self.read_state(&mut connection).await?;
        Connections::of(&self.database, connection)
    }

    /// Reads the integer key of every tenant, and where it stands. The time is that of its last entry, which the chain
    /// covers: nothing covers the one beside the head, and an entry that is added has to be as late for ever.
    async fn read_state(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let rows = sqlx::query!(
            r#"SELECT
                   tenant_no AS "tenant_no!",
                   tenant_id AS "tenant_id!",
                   head_seq AS "head_seq!",
                   head_hash AS "head_hash!",
                   COALESCE(
                       (SELECT audit_events.at
                        FROM audit_events
                        WHERE audit_events.entry = (tenants.tenant_no << 40) + tenants.head_seq),
                       head_at
                   ) AS "at!: i64",
                   edge AS "edge!",
                   revision AS "revision!"
               FROM tenants"#
        )
        .fetch_all(&mut *connection)
        .await?;
        self.requests.read(connection).await?;
        self.tenant_numbers.clear();
        self.positions.clear();
        for row in rows {
            // What cannot be read is left out: whoever writes there is told that the head has moved.
            let Ok(tenant) = row.tenant_id.try_into().map(TenantId::from_bytes) else {
                tell_unreadable(row.tenant_no);
                continue;
            };
            self.tenant_numbers.insert(tenant, row.tenant_no);
            if let (Ok(seq), Ok(hash), Ok(revision)) = (
                row.head_seq.try_into(),
                row.head_hash.try_into().map(Digest::from_bytes),
                row.revision.try_into(),
            ) && let Some(tree) = Frontier::from_bytes(seq, &row.edge)
                && let Some(tip) = Tip::new(Head { seq, hash }, tree)
            {
                let position = ChainPosition {
                    tip,
                    at: Timestamp::from_millis(row.at),
                    revision,
                };
                self.positions.insert(tenant, position);
            } else {
                tell_unreadable(row.tenant_no);
            }
        }
        Ok(())
    }

    /// The connection that commits, for tests that make it fail.
    #[cfg(test)]
    pub(crate) fn committing(&self) -> Option<&rusqlite::Connection> {
        self.connections.as_ref().map(|connections| &connections.commits)
    }

    /// Drops the connections, for tests of what comes after.
    #[cfg(test)]
    pub(crate) fn lose_connections(&mut self) {
        self.connections = None;
    }
}

/// Says which row of a tenant cannot be read, for which nothing can be recorded.
fn tell_unreadable(tenant_no: i64) {
    tracing::error!(
        tenant_no,
        "row {tenant_no} of `tenants` cannot be read, so nothing is recorded for its tenant: the file is damaged"
    );
}

fn not_written(error: impl std::error::Error + Send + Sync + 'static) -> CommitError {
    CommitError::NotWritten(Box::new(error))
}
