//! How each kind of connection is set up: the writer, the readers, the checkpointer.
//!
//! Every setting that durability or boundedness rests on is set here and nowhere else.

use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use std::path::Path;
use std::time::Duration;

/// The bytes of a page. SQLite's own default; larger ones change nothing that matters (measured).
pub(crate) const PAGE_BYTES: u32 = 4_096;
/// The writer's page cache: 8 MiB in units of −1 KiB. The tails of all tables fit many times. SQLite walks over its whole
/// hash table at every commit, which with 64 MiB was a fifth of the writer's time (measured).
const WRITER_CACHE: &str = "-8192";
/// How long a statement waits for somebody else's lock. Nobody of ours holds one across statements except the writer,
/// whose turns are taken in memory; so this only meets other programs, and the callers behind it are waiting.
const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the strong checkpoint waits for readers, with commits waiting behind it.
const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(100);
/// What is left of the write-ahead log's file when it starts over: 64 MiB.
const JOURNAL_BYTES_MAX: &str = "67108864";
/// Readers at once. They share two cores with the writer: more would only wait in another place.
const READERS_MAX: u32 = 4;
/// How long a read waits for one of them.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);
/// Prepared statements kept by the writer: every chunk size of every insert, and the rest.
const WRITER_STATEMENTS_MAX: usize = 256;

/// Opens the file, makes it if it is not there, and changes nothing about it.
pub(crate) fn plain(database: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(database)
        .create_if_missing(true)
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        // The log of the gateway has one line for what went wrong; statements, slow ones too, are not it.
        .disable_statement_logging()
}

/// The one connection that writes.
pub(crate) fn writer(database: &Path) -> SqliteConnectOptions {
    plain(database)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal)
        // INVARIANT: an `Ok` from COMMIT means that the write-ahead log is on the disk. NORMAL would not sync it.
        .synchronous(SqliteSynchronous::Full)
        // The checkpointer does it in the background; here a caller would wait for it.
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", JOURNAL_BYTES_MAX)
        .pragma("cache_size", WRITER_CACHE)
        // What is erased is overwritten with zeros, and does not stay in free pages. Commits delete next to nothing.
        .pragma("secure_delete", "ON")
        // An insert of many rows can fail half way, so SQLite notes what it would have to undo: not in a file.
        .pragma("temp_store", "MEMORY")
        .statement_cache_capacity(WRITER_STATEMENTS_MAX)
        .thread_name(|_| "sqlite-writer".to_owned())
}

/// The connection that moves the write-ahead log into the database.
pub(crate) fn checkpointer(database: &Path) -> SqliteConnectOptions {
    plain(database)
        .create_if_missing(false)
        .busy_timeout(CHECKPOINT_BUSY_TIMEOUT)
        // A checkpoint syncs the log before it copies and the database after; NORMAL and FULL agree on that.
        .synchronous(SqliteSynchronous::Full)
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", JOURNAL_BYTES_MAX)
        .thread_name(|_| "sqlite-checkpoint".to_owned())
}

/// The connections that only read.
pub(crate) fn readers(database: &Path) -> SqlitePool {
    let options = plain(database)
        .create_if_missing(false)
        .read_only(true)
        .pragma("wal_autocheckpoint", "0")
        .thread_name(|id| format!("sqlite-reader-{id}"));
    SqlitePoolOptions::new()
        .max_connections(READERS_MAX)
        .acquire_timeout(READER_WAIT_MAX)
        // With either of these the pool starts a task that counts idle connections, and that count can run below zero while
        // one is handed back: the task then never ends and keeps a core busy. A local file needs neither.
        .idle_timeout(None)
        .max_lifetime(None)
        // A local file does not hang up: asking first would cost a thread hop on every read.
        .test_before_acquire(false)
        .connect_lazy_with(options)
}
