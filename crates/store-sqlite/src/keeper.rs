//! The connection that keeps the write-ahead log: it is open for as long as the store is, and does nothing.
//!
//! With its last connection SQLite moves the log into the database and deletes it. As long as this one is open no other
//! one is the last. So the log stays the file that it was while the writer has no connections, and if it is missing
//! somebody has taken it away. And where the log must not be moved, only this one has to be closed in another way.

use crate::connect;
use crate::file::{DatabaseFile, Gone};
use crate::writer::BoxError;
use rusqlite::config::DbConfig;
use std::sync::Arc;

/// The connection.
#[derive(Debug)]
pub(crate) struct Keeper {
    file: Arc<DatabaseFile>,
    /// None once it is closed.
    connection: Option<rusqlite::Connection>,
}

impl Keeper {
    /// Opens it, beside another connection.
    pub(crate) fn open(file: Arc<DatabaseFile>) -> Result<Self, BoxError> {
        let connection = connect::committer(file.path())?;
        // SQLite opens the log and its index when something is read.
        connection.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
        file.hold_log();
        Ok(Self {
            file,
            connection: Some(connection),
        })
    }

    /// Closes it, after all others, which moves the log into the database. A log that may have what the database has
    /// lost stays where it is: the next process moves all of it, if it finds nobody who has it open: SQLite forgets
    /// what was moved only then.
    pub(crate) async fn close(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        self.file.let_go_of_log();
        let is_moved = !self.is_unsynced();
        // It may have a whole log to move.
        let closed = tokio::task::spawn_blocking(move || close(connection, is_moved)).await;
        if let Ok(Err(error)) = closed {
            tracing::warn!(%error, "the connection that keeps the write-ahead log did not close: {error}");
        }
    }

    fn is_unsynced(&self) -> bool {
        matches!(self.file.check(), Err(Gone::Unsynced { .. }))
    }
}

/// One that is only dropped may not be the last, and the last one would move the log.
impl Drop for Keeper {
    fn drop(&mut self) {
        let Some(connection) = self.connection.take() else {
            return;
        };
        self.file.let_go_of_log();
        if self.is_unsynced() {
            // It stays open until the end of the process, which ends it as a crash would.
            std::mem::forget(connection);
        }
    }
}

fn close(connection: rusqlite::Connection, is_moved: bool) -> rusqlite::Result<()> {
    if !is_moved
        && let Err(error) = connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
    {
        std::mem::forget(connection);
        return Err(error);
    }
    connection.close().map_err(|(_, error)| error)
}
