//! The files of the database: synced beside SQLite, and looked for where they were opened.
//!
//! A passive checkpoint syncs what it has copied only if it got to the end of the log, and under load it never does.
//! What it copied would gather in the system's cache until the checkpoint that gets to the end, which is the one that
//! commits wait for (docs/decisions/0046-checkpoints-in-small-pieces.md).
//!
//! A file that was deleted or replaced goes on existing for whoever has it open, and nobody finds again what is written
//! to it. SQLite does not notice, so the paths are looked at every now and then, and that of the lock file with them
//! ([`crate::claim`]). Nothing is put back.
//!
//! A sync that fails is told once, and the next one does not try again what this one has not done. SQLite has counted
//! the pages as moved already, so the log must not start over any more.

use crate::claim::{Claim, LockFile};
use std::fs::{File, Metadata};
use std::io::{self, ErrorKind};
use std::mem::ManuallyDrop;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// The file, open.
///
/// Whoever closes any descriptor of a file gives back all the locks that the process has on it (fcntl(2)), SQLite's
/// with them. So this one is closed by [`close`](Self::close), after those of SQLite, or by the end of the process.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    path: PathBuf,
    /// While this is open, no other file can get its number.
    file: Mutex<Option<ManuallyDrop<File>>>,
    database: Identity,
    /// The file whose lock keeps other gateways away.
    lock: LockFile,
    /// As long as the log is kept open: without a connection, SQLite may delete it and make another.
    log: Mutex<LogFiles>,
    /// Whether the log may have what was erased. Written in the writer's turn only.
    log_has_erased: AtomicBool,
    /// Why nothing is committed any more. It stays so until the end of the process: what comes back may be another
    /// state.
    gone: OnceLock<Gone>,
}

/// Which file it is, whatever it is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

impl From<Metadata> for Identity {
    fn from(metadata: Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }
}

/// What SQLite keeps beside a database that is open: which files they are, of those that are looked for.
#[derive(Debug, Clone, Copy, Default)]
struct LogFiles {
    log: Option<Identity>,
    index: Option<Identity>,
}

/// Why nothing is committed any more: it could be lost, or contradict what another gateway commits. Somebody has
/// deleted, moved away or replaced a file while it was open, the disk has lost pages of it, or nobody looks after it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Gone {
    /// What is committed afterwards would be lost with it, as may be what was before.
    #[error(
        "the file of the database `{}` was deleted, moved away or replaced while it was open, so nothing is recorded any more: if it was deleted and is nowhere else, copy it from /proc/PID/fd first; then stop the gateway, put the database or a backup of it in its place (beside a backup no `-wal` may stay that is not its own: move that away, with the `-shm`), and start again",
        .0.display()
    )]
    Database(PathBuf),
    /// What is committed afterwards would be lost at a crash.
    #[error(
        "the write-ahead log `{}` was deleted, moved away or replaced while it was open, so nothing is recorded any more: stop the gateway by SIGTERM, which moves what it has into the database, and start again",
        .0.display()
    )]
    Log(PathBuf),
    /// The locks of the log are on it. Another program makes a file of its own, and nobody sees the other's locks: what
    /// it reads may be written over under its hands.
    #[error(
        "the index of the write-ahead log, `{}`, was deleted, moved away or replaced while it was open, so other programs that open the database do not see what the gateway does, nor it what they do, and nothing is recorded any more: close every other program that has the database open, stop the gateway by SIGTERM, and start it again; throw away the backups that were made since the file was gone",
        .0.display()
    )]
    LogIndex(PathBuf),
    /// Another gateway can have claimed the database, and neither would know what the other commits.
    #[error(
        "the lock file `{}` was deleted, moved away or replaced while it was held, so another gateway may be at work on this database, and nothing is recorded any more: stop every gateway on it, and start one",
        .0.display()
    )]
    Lock(PathBuf),
    /// The log would grow for ever, and nobody would notice files that are gone.
    #[error(
        "what moves the write-ahead log into the database `{}` and looks for its files has broken down, so nothing is recorded any more: keep the lines about a panic before this one, and report them; stop the gateway, and start it again",
        .0.display()
    )]
    Unattended(PathBuf),
    /// Pages that were moved from the log may not be on the disk: the system forgets them with the failure and says it
    /// once, and SQLite does not move them again. The log has all of them still.
    #[error(
        "the database `{}` could not be synced ({error}), so nobody knows which of its pages are on the disk, and nothing is recorded any more: see to the disk, leave the `-wal` beside the database, close every other program that has it open (also `sqlite3` and backups: before the gateway stops), stop the gateway, and start again, which moves the whole write-ahead log once more, but only if nobody else has the database open",
        database.display()
    )]
    Unsynced {
        /// The path of the database.
        database: PathBuf,
        /// What the system said.
        error: String,
    },
}

impl DatabaseFile {
    /// Opens it, by this claim.
    pub(crate) fn open(database: &Path, claim: &Claim) -> io::Result<Self> {
        let file = File::open(database)?;
        let identity = file.metadata()?.into();
        Ok(Self {
            path: database.to_owned(),
            file: Mutex::new(Some(ManuallyDrop::new(file))),
            database: identity,
            lock: claim.lock(),
            log: Mutex::default(),
            log_has_erased: AtomicBool::new(false),
            gone: OnceLock::new(),
        })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits until what was written to it is on the disk. When it is closed there is nothing to wait for: SQLite has done it.
    ///
    /// INVARIANT: the log does not start over after a sync that failed, so it has every page that the disk may have lost.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let synced = self.file().as_ref().map_or(Ok(()), |file| file.sync_data());
        if let Err(error) = &synced {
            self.give_up(Gone::Unsynced {
                database: self.path.clone(),
                error: error.to_string(),
            });
        }
        synced
    }

    /// Closes it. No connection may be open any more.
    pub(crate) fn close(&self) {
        drop(self.file().take().map(ManuallyDrop::into_inner));
    }

    /// Makes every sync fail, for tests of what comes after.
    #[cfg(test)]
    pub(crate) fn fail_syncs(&self) {
        let device = File::open("/dev/null").expect("it is everywhere");
        // What was there stays open: it is not dropped.
        *self.file() = Some(ManuallyDrop::new(device));
    }

    /// Fails if a look has found one of the files gone, a sync has failed, or nobody looks any more. It looks at
    /// nothing itself.
    pub(crate) fn check(&self) -> Result<(), Gone> {
        self.gone.get().cloned().map_or(Ok(()), Err)
    }

    /// Looks whether the files are still where they were opened, and fails from then on if one is not.
    pub(crate) fn look(&self) -> Result<(), Gone> {
        if self.gone.get().is_none()
            && let Some(gone) = self.find_gone()
        {
            self.give_up(gone);
        }
        self.check()
    }

    /// Has nothing recorded any more, because nobody looks after the files.
    pub(crate) fn leave_unattended(&self) {
        self.give_up(Gone::Unattended(self.path.clone()));
    }

    fn give_up(&self, gone: Gone) {
        tracing::error!(path = %self.path.display(), "{gone}");
        // Whoever else has found something meanwhile has said it as well.
        let _ = self.gone.set(gone);
    }

    fn find_gone(&self) -> Option<Gone> {
        if !is(self.path.symlink_metadata(), self.database) {
            return Some(Gone::Database(self.path.clone()));
        }
        if !self.lock.is_there() {
            return Some(Gone::Lock(self.lock.path.clone()));
        }
        // Locked while it is looked for: nobody closes the last connection in between, with which the log would go.
        let known = self.known_log();
        let is_gone = |path: &Path, known: Option<Identity>| {
            known.is_some_and(|identity| !is(path.symlink_metadata(), identity))
        };
        let (log, index) = (log_path(&self.path), log_index_path(&self.path));
        if is_gone(&log, known.log) {
            Some(Gone::Log(log))
        } else if is_gone(&index, known.index) {
            Some(Gone::LogIndex(index))
        } else {
            None
        }
    }

    /// Remembers which files the write-ahead log and its index are, and looks for them from then on. Somebody has to
    /// keep them open.
    pub(crate) fn hold_log(&self) {
        let identity = |path: PathBuf| path.metadata().ok().map(Identity::from);
        *self.known_log() = LogFiles {
            log: identity(log_path(&self.path)),
            index: identity(log_index_path(&self.path)),
        };
    }

    /// Does not look for the write-ahead log and its index any more. It comes before whoever keeps them open is closed.
    pub(crate) fn let_go_of_log(&self) {
        *self.known_log() = LogFiles::default();
    }

    /// Notes that something is erased that the log may have.
    pub(crate) fn note_erased(&self) {
        self.log_has_erased.store(true, Ordering::Relaxed);
    }

    /// Notes that the log was emptied.
    pub(crate) fn note_emptied(&self) {
        self.log_has_erased.store(false, Ordering::Relaxed);
    }

    /// Whether the log may have what was erased.
    pub(crate) fn log_has_erased(&self) -> bool {
        self.log_has_erased.load(Ordering::Relaxed)
    }

    fn file(&self) -> MutexGuard<'_, Option<ManuallyDrop<File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known_log(&self) -> MutexGuard<'_, LogFiles> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The write-ahead log of a database.
pub(crate) fn log_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

/// The index of the log, in memory that everybody shares who has the database open.
pub(crate) fn log_index_path(database: &Path) -> PathBuf {
    beside(database, "-shm")
}

fn beside(database: &Path, ending: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// Whether it is this file that was found by its name. Where nobody can tell it is taken to be: what is wrong with the
/// disk, a read or a write says.
pub(crate) fn is(found: io::Result<Metadata>, identity: Identity) -> bool {
    match found {
        Ok(metadata) => Identity::from(metadata) == identity,
        Err(error) => !matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory),
    }
}
