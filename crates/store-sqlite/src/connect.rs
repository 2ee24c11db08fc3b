//! How each kind of connection is set up: the writer, the readers, the checkpointer.
//!
//! Every setting that durability or boundedness rests on is set here and nowhere else.

use crate::writer::BoxError;
use sqlx::ConnectOptions;
use sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePool, SqlitePoolOptions, SqliteSynchronous,
};
use std::path::Path;
use std::time::Duration;

/// The bytes of a page of a new database; one of an earlier version keeps its 4,096. A commit writes every page that it
/// touches, three for each tenant at the least: docs/decisions/0078-smaller-pages.md.
const PAGE_BYTES: u32 = 2_048;
/// The writer's page cache: 8 MiB in units of −1 KiB. The tails of all tables fit many times. SQLite walks over its whole
/// hash table at every commit, which with 64 MiB was a fifth of the writer's time (measured).
const WRITER_CACHE: &str = "-8192";
/// How long a statement waits for somebody else's lock. Nobody of ours holds one across statements except the writer,
/// whose turns are taken in memory; so this only meets other programs, and the callers behind it are waiting.
pub(crate) const BUSY_TIMEOUT: Duration = Duration::from_millis(500);
/// How long the strong checkpoint waits for readers, with commits waiting behind it: no answer may be late by 50 ms
/// because of it. It is tried again after a rest.
pub(crate) const CHECKPOINT_BUSY_TIMEOUT: Duration = Duration::from_millis(40);
/// What is left of the write-ahead log's file when it starts over: 64 MiB.
const JOURNAL_BYTES_MAX: &str = "67108864";
/// Readers at once. They share two cores with the writer: more would only wait in another place.
pub(crate) const READERS_MAX: u32 = 4;
/// Readers for what nobody waits for: that is done on one thread.
const BACKGROUND_READERS_MAX: u32 = 1;
/// How long a read waits for one of them.
const READER_WAIT_MAX: Duration = Duration::from_secs(5);

/// How a connection that writes is set up.
const WRITER_PRAGMAS: [(&str, &str); 7] = [
    // There are none to check.
    ("foreign_keys", "OFF"),
    // INVARIANT: an `Ok` from COMMIT means that the write-ahead log is on the disk. NORMAL would not sync it.
    ("synchronous", "FULL"),
    // The checkpointer does it in the background; here a caller would wait for it.
    ("wal_autocheckpoint", "0"),
    ("journal_size_limit", JOURNAL_BYTES_MAX),
    ("cache_size", WRITER_CACHE),
    // What is erased is overwritten with zeros, and does not stay in free pages. Commits delete next to nothing.
    ("secure_delete", "ON"),
    // A statement can fail half way, so SQLite notes what it would have to undo: not in a file.
    ("temp_store", "MEMORY"),
];

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

/// The connection that commits. It writes the log in long pieces, which is most of what a page of a commit costs otherwise.
pub(crate) fn committer(database: &Path) -> Result<rusqlite::Connection, BoxError> {
    use rusqlite::OpenFlags;
    // Whoever holds the writer has it alone, so it needs no lock of its own.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = wal_vfs::open(database, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    for (name, value) in WRITER_PRAGMAS {
        connection.pragma_update(None, name, value)?;
    }
    Ok(connection)
}

/// The connection beside it, for what is no commit; and the first one, which makes the database what it is.
pub(crate) fn aside(database: &Path) -> SqliteConnectOptions {
    let options = plain(database)
        .page_size(PAGE_BYTES)
        .journal_mode(SqliteJournalMode::Wal);
    WRITER_PRAGMAS
        .into_iter()
        .fold(options, |options, (name, value)| options.pragma(name, value))
        .thread_name(|_| "sqlite-aside".to_owned())
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

/// The connections that only read, for somebody.
pub(crate) fn readers(database: &Path) -> SqlitePool {
    let options = reader(database).thread_name(|id| format!("sqlite-reader-{id}"));
    pool(READERS_MAX, options)
}

/// The connection that only reads, for nobody. Whoever reads first opens it, and hands its thread's priority on.
pub(crate) fn background_readers(database: &Path) -> SqlitePool {
    let options = reader(database).thread_name(|_| "sqlite-bg".to_owned());
    pool(BACKGROUND_READERS_MAX, options)
}

fn reader(database: &Path) -> SqliteConnectOptions {
    plain(database)
        .create_if_missing(false)
        .read_only(true)
        .pragma("wal_autocheckpoint", "0")
}

/// So many connections at most, opened when they are needed.
pub(crate) fn pool(connections_max: u32, options: SqliteConnectOptions) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections_max)
        .acquire_timeout(READER_WAIT_MAX)
        // Nothing is logged of a shorter wait, in words that are in no guide: a longer one fails, and is told as that.
        .acquire_slow_threshold(READER_WAIT_MAX)
        // With either of these the pool starts a task that counts idle connections, and that count can run below zero while
        // one is handed back: the task then never ends and keeps a core busy. A local file needs neither.
        .idle_timeout(None)
        .max_lifetime(None)
        // A local file does not hang up: asking first would cost a thread hop on every read.
        .test_before_acquire(false)
        .connect_lazy_with(options)
}
