//! Moves the write-ahead log into the database, in the background, so that no caller waits for it and its file stays
//! bounded.
//!
//! A passive checkpoint holds up nobody, but under load there is always a commit that it has not seen, and SQLite
//! starts the log over only when all of it has been moved. So when the log has grown past its bound, the last stretch
//! is done while commits wait. How long that takes is how much was written during the checkpoint before, so there are a
//! few passive ones in a row, each shorter than the one before, until one was short. Each syncs what it has copied;
//! where that fails nothing is committed any more, and the log stays as it is. Nor is anything committed once this has
//! broken down.

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

/// Moves everything and makes the next commit start the log over, on the connection that commits and on this thread.
pub(crate) fn restart(commits: &rusqlite::Connection) -> rusqlite::Result<Progress> {
    commits.busy_timeout(connect::CHECKPOINT_BUSY_TIMEOUT)?;
    let progress = commits.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| {
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
                    let _ = self.file.look();
                    continue;
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
        if progress.frames <= self.frames_max || !may_retry {
            return Ok(());
        }
        self.come_close().await?;
        // In the writer's turn, so commits wait in memory and none of them meets a locked database.
        let progress = self.errander.in_turn(|writer| writer.restart_log()).await??;
        self.met_a_reader = progress.is_busy.then(Instant::now);
        if self.met_a_reader.is_some() {
            tracing::warn!(
                frames = progress.frames,
                "a reader keeps the write-ahead log from starting over at {} frames",
                progress.frames
            );
        }
        Ok(())
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
    use crate::file::Gone;
    use store::Store;

    #[tokio::test]
    async fn nothing_is_committed_any_more_once_the_task_has_broken_down() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/ledger.db", folder.path().display());
        let store = SqliteStore::open(&url).await.unwrap();
        let errands = store.writer.lock().await.errands();
        let work = || Work {
            database: store.database.clone(),
            file: Arc::clone(&store.file),
            errander: Errander {
                writer: Arc::clone(&store.writer),
                errands: Arc::clone(&errands),
            },
            frames_max: i64::MAX,
            met_a_reader: None,
            connection: None,
        };
        drop(work());
        store.check().unwrap();
        let work = work();
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
