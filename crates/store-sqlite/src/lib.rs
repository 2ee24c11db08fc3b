//! The storage promises kept on SQLite, for one process on one machine.
//!
//! - `open`, `claim`, `connect`: from a URL to connections that are set up right;
//! - `tree`: completes ledgers that were written before their trees were kept;
//! - `writer`, `head_moves`, `commit`, `erasures`: a commit, one at a time, on the thread of whoever commits;
//! - `errands`: what needs the writer's turn although nobody waits for it;
//! - `requests`: which entry answered a request, in an index that commits only append to;
//! - `checkpoint`, `file`, `keeper`: keeps the write-ahead log short in the background, and notices when the files are
//!   gone or the disk loses pages;
//! - `journal`, `directories`, `records`, `search`, `index`, `buckets`, `counters`, `budgets`: the promises of [`store`], a file
//!   each;
//! - `approvals`, `reservations`, `runs`, `links`: what is written in the commit of its entry;
//! - `balances`, `recorded`, `ending`: budgets as they are now, entries with what stands at their places, and where a
//!   ledger ends;
//! - `entry`, `decode`, `packed`: what stands in the columns.
//!
//! The schema is in `migrations/sqlite`, with its reasons. The writer remembers where tenants stand and which requests
//! were answered, and reads that anew after a failure. There is no retry here and no decision: whoever commits is told
//! what happened and decides what to do about it.

mod approvals;
mod balances;
mod buckets;
mod budgets;
mod checkpoint;
mod claim;
mod commit;
mod connect;
mod counters;
mod decode;
mod directories;
mod ending;
mod entry;
mod erasures;
mod errands;
mod file;
mod head_moves;
mod index;
mod journal;
mod keeper;
mod links;
mod open;
mod packed;
mod recorded;
mod records;
mod requests;
mod reservations;
mod runs;
mod search;
#[cfg(test)]
mod tests;
mod tree;
mod writer;

pub use open::OpenError;

use async_trait::async_trait;
use checkpoint::Checkpointer;
use claim::Claim;
use errands::Errander;
use file::DatabaseFile;
use futures_util::{Stream, TryStreamExt};
use index::Index;
use requests::upkeep::Upkeep;
use sqlx::SqlitePool;
use sqlx::error::DatabaseError;
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use store::{Bulk, Room, Store, StoreError, Sweep};
use tokio::sync::{Mutex, Notify};
use writer::Writer;

/// How long any one read may take before whoever asked is told that the database is too slow.
const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// A ledger in one SQLite file, and the claim that nobody else has it open. Clones are handles on the same store.
#[derive(Debug, Clone)]
pub struct SqliteStore {
    database: PathBuf,
    /// Taken for the time of a commit, so commits queue up here and not at SQLite's lock.
    writer: Arc<Mutex<Writer>>,
    /// Held by whoever looks for an earlier request beside the commits: of all who do, one waits for the writer, and so
    /// a commit waits for one of them at most.
    looking: Arc<Mutex<()>>,
    /// Held by whoever writes to buckets, for the same reason: as many leases as there are doors in a gateway come at
    /// once, and each waits for the disk.
    leasing: Arc<Mutex<()>>,
    /// Those that this handle reads with.
    readers: SqlitePool,
    /// Those of the handle for work that nobody waits for: its own, if it is that one.
    background_readers: SqlitePool,
    index: Arc<Index>,
    /// For whom this handle reads.
    side: Side,
    /// Locked only to be stopped.
    checkpointer: Arc<Mutex<Checkpointer>>,
    /// Locked only to be stopped.
    upkeep: Arc<Mutex<Upkeep>>,
    /// Wakes the checkpointer without taking its lock.
    committed: Arc<Notify>,
    /// What the checkpointer syncs.
    file: Arc<DatabaseFile>,
    /// Given back by [`close`](Store::close), or when the last handle is dropped.
    claim: Arc<Mutex<Option<Claim>>>,
    /// How far buckets were looked at that may be full, by whichever handle.
    full_buckets: Arc<Sweep<buckets::Key>>,
    /// How far counters were looked at that may be old, by whichever handle.
    old_counters: Arc<Sweep<counters::Key>>,
}

/// For whom is read. A connection has a thread of its own, which has the priority of the one that opened it, so the two
/// share none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    /// For somebody who waits.
    Front,
    /// For nobody.
    Background,
}

impl SqliteStore {
    /// Opens the database that a URL such as `sqlite:countersign.db` names. A file that is not there is made, an
    /// older schema is brought up to date, and until [`close`](Store::close) or the end of the process nobody else can
    /// open it.
    pub async fn open(url: &str) -> Result<Self, OpenError> {
        Self::open_bounded(url, Bounds::default()).await
    }

    async fn open_bounded(url: &str, bounds: Bounds) -> Result<Self, OpenError> {
        let database = open::path_of(url)?;
        let claim = Claim::take(&database)?;
        open::check_log(&database)?;
        let (connection, log_frames_max) = open::migrated(&database, bounds.log_bytes_max).await?;
        let file = DatabaseFile::open(&database, &claim).map_err(|source| OpenError::Database {
            database: database.clone(),
            source: source.into(),
        })?;
        let file = Arc::new(file);
        let upkeep_due = Arc::new(Notify::new());
        let writer = Writer::new(Arc::clone(&file), connection, bounds, Arc::clone(&upkeep_due))
            .await
            .map_err(|source| OpenError::Database {
                database: database.clone(),
                source,
            })?;
        let errands = writer.errands();
        let writer = Arc::new(Mutex::new(writer));
        let errander = Errander {
            writer: Arc::clone(&writer),
            errands,
        };
        let readers = connect::readers(&database);
        let checkpointer =
            Checkpointer::start(&database, Arc::clone(&file), errander.clone(), log_frames_max);
        let committed = checkpointer.committed();
        let upkeep = Upkeep::start(errander, readers.clone(), upkeep_due, Arc::clone(&committed));
        Ok(Self {
            readers,
            background_readers: connect::background_readers(&database),
            index: Arc::new(Index::beside(&database)),
            side: Side::Front,
            database,
            writer,
            looking: Arc::default(),
            leasing: Arc::default(),
            committed,
            file,
            checkpointer: Arc::new(Mutex::new(checkpointer)),
            upkeep: Arc::new(Mutex::new(upkeep)),
            claim: Arc::new(Mutex::new(Some(claim))),
            full_buckets: Arc::default(),
            old_counters: Arc::default(),
        })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.database
    }
}

/// What must not grow beyond. Tests lower it.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// Bytes of the write-ahead log.
    log_bytes_max: i64,
    /// Requests that are in no run.
    recent_requests_max: usize,
    /// How often the requests of a run were merged before its filter is not in memory any more.
    files_from_level: i64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            log_bytes_max: checkpoint::LOG_BYTES_MAX,
            recent_requests_max: requests::RECENT_MAX,
            files_from_level: requests::FILES_FROM_LEVEL,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn background(&self) -> Arc<dyn Store> {
        Arc::new(Self {
            readers: self.background_readers.clone(),
            side: Side::Background,
            ..self.clone()
        })
    }

    fn readers(&self) -> usize {
        connect::READERS_MAX as usize
    }

    fn check(&self) -> Result<(), StoreError> {
        self.file.check().map_err(unavailable)
    }

    /// The write-ahead log is moved into the file, unless the file could not be synced, and somebody else can open it.
    async fn close(&self) {
        self.upkeep.lock().await.stop().await;
        self.checkpointer.lock().await.stop().await;
        self.readers.close().await;
        self.background_readers.close().await;
        self.index.close().await;
        self.writer.lock().await.close().await;
        self.file.close();
        *self.claim.lock().await = None;
    }
}

/// Runs a read, but not for ever.
async fn bounded<T>(read: impl Future<Output = Result<T, StoreError>> + Send) -> Result<T, StoreError> {
    match tokio::time::timeout(READ_TIME_MAX, read).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err(unavailable(elapsed)),
    }
}

/// What stands in rows, as long as there are any and there is room for them. The rest is never read.
async fn in_room<C, T>(
    mut rows: impl Stream<Item = Result<C, sqlx::Error>> + Unpin,
    room: &mut Room,
    decode: impl Fn(C) -> Result<(T, usize), StoreError>,
) -> Result<Vec<T>, StoreError> {
    let mut found = Vec::new();
    while room.is_left()
        && let Some(row) = rows.try_next().await.map_err(unread_record)?
    {
        let (row, bytes) = decode(row)?;
        room.take(bytes);
        found.push(row);
    }
    Ok(found)
}

/// A row with its bytes.
fn weighed<T: Bulk>(row: T) -> (T, usize) {
    let bytes = row.bytes();
    (row, bytes)
}

/// The database did not answer, or is not there.
fn unavailable(error: impl std::error::Error + Send + Sync + 'static) -> StoreError {
    StoreError::Unavailable(Box::new(error))
}

/// What could not be looked up in a turn: a value that is not of its type is damaged, and the database has answered.
/// Of a page nobody knows whose it is: nothing can be recorded for anybody then.
fn unread(error: sqlx::Error) -> StoreError {
    match error {
        sqlx::Error::ColumnDecode { index, .. } => StoreError::Corrupt {
            what: format!("column {index} of a row is not of its type"),
        },
        error => unavailable(error),
    }
}

/// What could not be read of what is recorded. A page of which SQLite can make nothing is damaged, too: the database
/// has answered, and would say the same again. All else may pass, also where the disk does not give a page.
fn unread_record(error: sqlx::Error) -> StoreError {
    if is_damage(&error) {
        let what = format!("the file is damaged: {error}");
        return StoreError::Corrupt { what };
    }
    unread(error)
}

/// Whether an error says that a file is not what it should be: `SQLITE_CORRUPT` or `SQLITE_NOTADB`.
fn is_damage(error: &sqlx::Error) -> bool {
    matches!(primary_code(error), Some(11 | 26))
}

/// What SQLite says is wrong, without what it adds to that.
fn primary_code(error: &sqlx::Error) -> Option<u32> {
    let code = error.as_database_error().and_then(DatabaseError::code);
    code.and_then(|code| code.parse::<u32>().ok())
        .map(|code| code & 0xff)
}
