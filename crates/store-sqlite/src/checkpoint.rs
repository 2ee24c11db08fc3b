//! Moves the write-ahead log into the database, in the background, so that no caller waits for it and its file stays
//! bounded.
//!
//! A passive checkpoint holds up nobody, but under load there is always a commit that it has not seen, and SQLite
//! starts the log over only when all of it has been moved. So when the log has grown past its bound, the last stretch
//! is done while commits wait. How long that takes is how much was written during the checkpoint before, so there are a
//! few passive ones in a row, each shorter than the one before, until one was short. Each syncs what it has copied;
//! where that fails nothing is committed any more, and the log stays as it is. Nor is anything committed once this has
//! broken down.
//!
//! A log that starts over is written from its begin, and what it has further behind stays in its file, for weeks if
//! little is written. So after something was erased the file is emptied, in the same way.

use crate::connect;
use crate::errands::Errander;
use crate::file::DatabaseFile;
use crate::writer::BoxError;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection, Row, SqliteConnection};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// How long commits gather before they are moved: long enough that a page written by many is moved once, and short
/// enough that what is written to the disk at a time does not hold up the syncs of commits.
const REST: Duration = Duration::from_millis(30);
/// How often the files are looked for. What is committed to one that is gone until then is lost. A checkpoint that
/// takes longer holds the look up.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a reader that was in the way is left alone: commits wait while it is waited for, so that must be a small
/// part of the time.
const RETRY: Duration = Duration::from_millis(300);
/// How often the log's file is emptied at most while things are erased: a file that grows again makes commits slower
/// than one that is written over, and many commits in a row may erase something.
const EMPTY_EVERY: Duration = Duration::from_mins(1);
/// The same where a reader was in the way: commits wait while it is waited for.
const EMPTY_RETRY: Duration = Duration::from_secs(5);
/// A passive checkpoint that took no longer than this has left little: two syncs, and what was written during them.
const SHORT: Duration = Duration::from_millis(2);
/// How many passive checkpoints there are in a row before commits have to wait, short or not: where the disk is slow, none is.
const IN_A_ROW_MAX: usize = 4;
/// How long the log may be before commits wait for it to start over: 56 MiB. It is looked at every [`REST`], and grows
/// while the last stretch is made short; 64 MiB is what it is not to exceed.
pub(crate) const LOG_BYTES_MAX: i64 = 56 << 20;
/// What a frame of the log has before its page.
const FRAME_HEADER_BYTES: i64 = 24;

/// The background task. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    committed: Arc<Notify>,
    // Dropping it stops the task at its next rest.
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the task. It begins with whatever the last process left behind.
    pub(crate) fn start(
        database: &Path,
        file: Arc<DatabaseFile>,
        errander: Errander,
        frames_max: i64,
    ) -> Self {
        let committed = Arc::new(Notify::new());
        committed.notify_one();
        let (stop, stopped) = oneshot::channel();
        let work = Work {
            database: database.to_owned(),
            file,
            errander,
            frames_max,
            met_a_reader: None,
            emptied: None,
            connection: None,
        };
        let task = tokio::spawn(work.run(Arc::clone(&committed), stopped));
        Self {
            committed,
            stop: Some(stop),
            task: Some(task),
        }
    }

    /// What to notify when there is something to move. It costs next to nothing, so every commit does.
    pub(crate) fn committed(&self) -> Arc<Notify> {
        Arc::clone(&self.committed)
    }

    /// Stops the task and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.stop = None;
        if let Some(task) = self.task.take() {
            // A panic in there has been printed, and the file was told; there is nothing left to do about it here.
            drop(task.await);
        }
    }
}

/// How many frames there are in a log of so many bytes.
pub(crate) const fn frames(log_bytes: i64, page_bytes: i64) -> i64 {
    log_bytes / (FRAME_HEADER_BYTES + page_bytes)
}

/// What a checkpoint says about the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    frames: i64,
    /// Whether somebody was in the way.
    is_busy: bool,
}

impl Progress {
    /// Whether somebody was in the way.
    pub(crate) const fn is_busy(self) -> bool {
        self.is_busy
    }
}

/// How the log ends when all of it was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The next commit starts it over, and writes over its file.
    Restart,
    /// And its file is empty.
    Empty,
}

/// Moves everything and ends the log, on the connection that commits and on this thread. With a reader in the way what
/// could be moved is moved.
pub(crate) fn end(commits: &rusqlite::Connection, ending: Ending) -> rusqlite::Result<Progress> {
    let pragma = match ending {
        Ending::Restart => "PRAGMA wal_checkpoint(RESTART)",
        Ending::Empty => "PRAGMA wal_checkpoint(TRUNCATE)",
    };
    commits.busy_timeout(connect::CHECKPOINT_BUSY_TIMEOUT)?;
    let progress = commits.query_row(pragma, [], |row| {
        Ok(Progress {
            frames: row.get(1)?,
            is_busy: row.get(0)?,
        })
    });
    commits.busy_timeout(connect::BUSY_TIMEOUT)?;
    progress
}

/// Moves everything and leaves an empty file, on a connection that nobody else is beside. What a start that failed for
/// want of room has left in the log has room in the database.
pub(crate) async fn empty(connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    let query = sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)");
    query.execute(connection).await.map(drop)
}

struct Work {
    database: PathBuf,
    file: Arc<DatabaseFile>,
    errander: Errander,
    frames_max: i64,
    /// When a reader kept the log from starting over, if one did the last time.
    met_a_reader: Option<Instant>,
    /// When it was last tried to empty the log, whatever came of it.
    emptied: Option<Instant>,
    connection: Option<SqliteConnection>,
}

impl Work {
    async fn run(mut self, committed: Arc<Notify>, mut stopped: oneshot::Receiver<()>) {
        let mut looks = tokio::time::interval(LOOK_EVERY);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                _ = looks.tick() => {
                    // It has said what it has found, and commits are refused from then on.
                    if self.file.look().is_err() || !self.is_to_be_emptied() {
                        continue;
                    }
                    // Nobody may commit anything for long, and the log is emptied also then.
                }
                () = committed.notified() => {}
            }
            if let Err(error) = self.round().await {
                // Where nothing is committed any more it was said why.
                if self.file.check().is_ok() {
                    tracing::warn!(%error, "checkpoint of the write-ahead log failed: {error}");
                }
                // What SQLite has not moved now is moved with the next commit or, if there is none, when the store closes.
                self.close().await;
            }
            tokio::select! {
                _ = &mut stopped => break,
                () = tokio::time::sleep(REST) => {}
            }
        }
        self.close().await;
    }

    async fn close(&mut self) {
        if let Some(connection) = self.connection.take()
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the checkpointer's connection did not close: {error}");
        }
    }

    async fn round(&mut self) -> Result<(), BoxError> {
        let progress = self.passive().await?;
        let may_retry = self.met_a_reader.is_none_or(|met| met.elapsed() >= RETRY);
        let Some(ending) = self.ending(progress.frames).filter(|_| may_retry) else {
            return Ok(());
        };
        self.come_close().await?;
        if ending == Ending::Empty {
            self.emptied = Some(Instant::now());
        }
        // In the writer's turn, so commits wait in memory and none of them meets a locked database.
        let progress = self
            .errander
            .in_turn(move |writer| writer.end_log(ending))
            .await??;
        self.met_a_reader = progress.is_busy.then(Instant::now);
        if progress.is_busy && progress.frames > self.frames_max {
            tracing::warn!(
                frames = progress.frames,
                "a reader keeps the write-ahead log from starting over at {} frames",
                progress.frames
            );
        }
        Ok(())
    }

    /// How a log of so many frames ends now, if it does.
    fn ending(&self, frames: i64) -> Option<Ending> {
        if self.is_to_be_emptied() {
            Some(Ending::Empty)
        } else {
            (frames > self.frames_max).then_some(Ending::Restart)
        }
    }

    /// Whether the log may have what was erased, and nobody has tried to empty it a moment ago.
    fn is_to_be_emptied(&self) -> bool {
        let pause = if self.met_a_reader.is_some() {
            EMPTY_RETRY
        } else {
            EMPTY_EVERY
        };
        self.file.log_has_erased() && self.emptied.is_none_or(|emptied| emptied.elapsed() >= pause)
    }

    /// Moves what was written during the last checkpoint, and so on, until little is left.
    async fn come_close(&mut self) -> Result<(), sqlx::Error> {
        for _ in 1..IN_A_ROW_MAX {
            let begin = Instant::now();
            self.passive().await?;
            if begin.elapsed() <= SHORT {
                break;
            }
        }
        Ok(())
    }

    /// Moves what no reader needs where it is, up to where the log ended when it began, and waits for the disk.
    async fn passive(&mut self) -> Result<Progress, sqlx::Error> {
        let query = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)");
        let moved = query.fetch_one(self.connected().await?).await;
        // Also where that has failed: if it was the sync that SQLite makes itself, this descriptor is told of it, too,
        // and a connection that is made afterwards is not. It may be about pages that count as moved: nobody has synced
        // what a restart has moved that a reader has cut short.
        let file = Arc::clone(&self.file);
        let synced = tokio::task::spawn_blocking(move || file.sync()).await;
        synced.map_err(io::Error::other)??;
        moved.and_then(|row| progress(&row))
    }

    async fn connected(&mut self) -> Result<&mut SqliteConnection, sqlx::Error> {
        let connection = if let Some(connection) = self.connection.take() {
            connection
        } else {
            // What has the name now may be another database.
            self.file.check().map_err(io::Error::other)?;
            SqliteConnection::connect_with(&connect::checkpointer(&self.database)).await?
        };
        Ok(self.connection.insert(connection))
    }
}

/// A panic ends the task, and nobody waits for it before the store is closed.
impl Drop for Work {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.file.leave_unattended();
        }
    }
}

/// The first and second column: whether a reader was in the way, and frames in the log. The third, frames moved, may be
/// all of them while a reader still has the log open.
fn progress(row: &SqliteRow) -> Result<Progress, sqlx::Error> {
    Ok(Progress {
        frames: row.try_get(1)?,
        is_busy: row.try_get(0)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SqliteStore;
    use crate::file::{Gone, log_path};
    use store::conformance::commit;
    use store::conformance::sample::{Ask, Chain};
    use store::{Batch, ErasureRow, Records, Store};

    /// How long something is waited for that comes soon, unless the disk stands still.
    const PATIENCE: Duration = Duration::from_mins(3);
    /// What is erased.
    const SECRET: &str = "Quinn asks for a second opinion";

    /// The work on the log of a store, once more.
    async fn work(store: &SqliteStore) -> Work {
        Work {
            database: store.database.clone(),
            file: Arc::clone(&store.file),
            errander: Errander {
                writer: Arc::clone(&store.writer),
                errands: store.writer.lock().await.errands(),
            },
            frames_max: i64::MAX,
            met_a_reader: None,
            emptied: None,
            connection: None,
        }
    }

    /// Whether the file of the log has what is to be erased.
    fn log_has_secret(store: &SqliteStore) -> bool {
        let log = std::fs::read(log_path(&store.database)).unwrap();
        log.windows(SECRET.len()).any(|bytes| bytes == SECRET.as_bytes())
    }

    /// Writes what is to be erased behind some MiB, in the entry at this `seq`.
    async fn write_secret(store: &SqliteStore, chain: &mut Chain) -> u64 {
        let mut batch = Batch::default();
        let long = "x".repeat(10_000);
        for text in std::iter::repeat_n(long.as_str(), 300).chain([SECRET]) {
            let ask = Ask {
                text: text.to_owned(),
                ..Ask::default()
            };
            chain.decision(&mut batch, &ask);
        }
        commit(store, &batch).await;
        chain.head().seq
    }

    /// Erases the body of an entry.
    async fn erase(store: &SqliteStore, chain: &mut Chain, seq: u64) {
        let entry = store.entries(chain.tenant, seq, 1).await.unwrap().remove(0);
        let mut batch = Batch::default();
        let body = canon::of(&serde_json::json!({})).unwrap();
        chain.entry(
            &mut batch,
            "bodies_erased",
            model::Timestamp::from_millis(9),
            body,
        );
        batch.erasures.push(ErasureRow {
            tenant: chain.tenant,
            seq,
            body: canon::Digest::of(entry.body.as_bytes()),
            by: chain.head().seq,
            request: None,
            outcome: None,
            approval: None,
            reservation: None,
        });
        commit(store, &batch).await;
    }

    #[tokio::test]
    async fn what_was_erased_does_not_stay_in_the_log_behind_what_is_written_later() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let mut chain = Chain::new(1);
        let seq = write_secret(&store, &mut chain).await;
        assert!(log_has_secret(&store));
        erase(&store, &mut chain, seq).await;
        commit(&store, &chain.decisions(1)).await;
        let begin = Instant::now();
        while log_has_secret(&store) {
            assert!(begin.elapsed() < PATIENCE, "the log was not emptied");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        commit(&store, &chain.decisions(1)).await;
        assert_eq!(store.head(chain.tenant).await.unwrap(), chain.head());
    }

    #[tokio::test]
    async fn a_reader_delays_that_the_log_is_emptied_and_it_is_not_forgotten() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        store.checkpointer.lock().await.stop().await;
        let mut chain = Chain::new(1);
        let seq = write_secret(&store, &mut chain).await;
        assert!(!store.file.log_has_erased());
        let mut reader = store.readers.acquire().await.unwrap();
        for statement in ["BEGIN", "SELECT count(*) FROM tenants"] {
            sqlx::query(statement).execute(&mut *reader).await.unwrap();
        }
        erase(&store, &mut chain, seq).await;
        let end = async || store.writer.lock().await.end_log(Ending::Empty).unwrap();
        assert!(end().await.is_busy());
        assert!(store.file.log_has_erased());
        assert!(log_has_secret(&store));
        sqlx::query("ROLLBACK").execute(&mut *reader).await.unwrap();
        assert!(!end().await.is_busy());
        assert!(!store.file.log_has_erased());
        assert_eq!(std::fs::metadata(log_path(&store.database)).unwrap().len(), 0);
        commit(&store, &chain.decisions(1)).await;
        assert_eq!(store.head(chain.tenant).await.unwrap(), chain.head());
    }

    #[tokio::test]
    async fn the_log_is_emptied_once_for_many_commits_that_erase() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        store.checkpointer.lock().await.stop().await;
        let mut work = work(&store).await;
        assert_eq!(work.ending(9), None);
        store.file.note_erased();
        assert_eq!(work.ending(9), Some(Ending::Empty));
        work.round().await.unwrap();
        store.file.note_erased();
        assert_eq!(work.ending(9), None);
        // It is not to grow meanwhile.
        work.frames_max = 8;
        assert_eq!(work.ending(9), Some(Ending::Restart));
        work.emptied = None;
        assert_eq!(work.ending(9), Some(Ending::Empty));
        work.close().await;
    }

    #[tokio::test]
    async fn nothing_is_committed_any_more_once_the_task_has_broken_down() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        drop(work(&store).await);
        store.check().unwrap();
        let work = work(&store).await;
        let broken: JoinHandle<()> = tokio::spawn(async move {
            let _work = work;
            panic!("as if there were a defect");
        });
        assert!(broken.await.unwrap_err().is_panic());
        assert!(matches!(store.file.check(), Err(Gone::Unattended(_))));
        store.writer.lock().await.ready().await.unwrap_err();
        // It is no reason to leave the log where it is.
        store.close().await;
        SqliteStore::open(&url).await.unwrap().check().unwrap();
    }
}
