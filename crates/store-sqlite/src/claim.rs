//! The exclusive claim on a database: one process at a time, by a lock that ends with the process.
//!
//! SQLite's own locks are taken and given back with every transaction, so two gateways on one file would both start and
//! then take each other's ledger for a fault. This lock is held for life. It is the operating system's, not the
//! existence of a file: after `kill -9` nothing has to be cleaned up. It does not protect against other programs.
//!
//! A lock file that was deleted is still locked, and whoever makes another by that name locks that one. So it is looked
//! for like the files of the database ([`crate::file`]).

use crate::OpenError;
use crate::file::{self, Identity};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// How often a lock file is opened that somebody deletes while it is being locked.
const TRIES_MAX: usize = 10;
/// Enough for any process id, and no more of whatever the file may hold.
const PID_BYTES_MAX: u64 = 20;

/// The claim, as long as it lives.
#[derive(Debug)]
pub(crate) struct Claim {
    // Closing the file gives the lock back.
    _file: File,
    lock: LockFile,
}

/// The file that is locked.
#[derive(Debug, Clone)]
pub(crate) struct LockFile {
    pub(crate) path: PathBuf,
    identity: Identity,
}

impl LockFile {
    /// Whether whoever opens the path gets this file.
    pub(crate) fn is_there(&self) -> bool {
        file::is(self.path.metadata(), self.identity)
    }
}

impl Claim {
    /// Claims the database, or says who has it.
    pub(crate) fn take(database: &Path) -> Result<Self, OpenError> {
        for _ in 0..TRIES_MAX {
            let claim = Self::try_take(database)?;
            // It may have been deleted before it was locked, and then somebody else can lock another one.
            if claim.lock.is_there() {
                return Ok(claim);
            }
        }
        Err(OpenError::Claim {
            path: lock_path(database),
            source: io::Error::other("it was deleted or replaced each time before it was locked"),
        })
    }

    /// Which file is locked.
    pub(crate) fn lock(&self) -> LockFile {
        self.lock.clone()
    }

    fn try_take(database: &Path) -> Result<Self, OpenError> {
        let path = lock_path(database);
        let unlockable = |source| OpenError::Claim {
            path: path.clone(),
            source,
        };
        // Not truncated on opening: until the lock is ours, the text is the holder's.
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(unlockable)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(OpenError::InUse {
                    database: database.to_owned(),
                    lock: path,
                    holder: holder(file),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unlockable(source)),
        }
        write_pid(&mut file).map_err(unlockable)?;
        let identity = file.metadata().map_err(unlockable)?.into();
        Ok(Self {
            _file: file,
            lock: LockFile { path, identity },
        })
    }
}

/// `<database>.lock`, beside the database.
fn lock_path(database: &Path) -> PathBuf {
    let mut name = database.as_os_str().to_owned();
    name.push(".lock");
    PathBuf::from(name)
}

fn write_pid(file: &mut File) -> io::Result<()> {
    file.set_len(0)?;
    file.seek(SeekFrom::Start(0))?;
    writeln!(file, "{}", std::process::id())
}

/// What to call the process that holds the lock. Only a help for people: the text may be from a moment ago.
fn holder(file: File) -> String {
    let mut text = String::new();
    let read = file.take(PID_BYTES_MAX).read_to_string(&mut text);
    match (read, text.trim().parse::<u32>()) {
        (Ok(_), Ok(pid)) => format!("process {pid}"),
        _ => "another process".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_claim_is_refused_and_names_the_process_and_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let _first = Claim::take(&database).unwrap();
        let message = Claim::take(&database).unwrap_err().to_string();
        assert!(
            message.contains(&format!("process {}", std::process::id())),
            "{message}"
        );
        assert!(message.contains("a.db.lock"), "{message}");
    }

    #[test]
    fn a_claim_that_was_given_up_can_be_taken_again() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        drop(Claim::take(&database).unwrap());
        Claim::take(&database).unwrap();
    }

    #[test]
    fn a_lock_file_that_a_killed_process_left_behind_is_no_obstacle() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::fs::write(lock_path(&database), "4294967295 and more than a process id\n").unwrap();
        Claim::take(&database).unwrap();
        let left = std::fs::read_to_string(lock_path(&database)).unwrap();
        assert_eq!(left, format!("{}\n", std::process::id()));
    }

    /// Whoever comes next locks another one by the same name.
    #[test]
    fn a_lock_file_that_was_deleted_is_not_there_any_more_whatever_has_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let first = Claim::take(&database).unwrap();
        assert!(first.lock().is_there());
        std::fs::remove_file(lock_path(&database)).unwrap();
        assert!(!first.lock().is_there());
        let second = Claim::take(&database).unwrap();
        assert!(second.lock().is_there());
        assert!(!first.lock().is_there());
    }

    #[test]
    fn a_lock_file_may_be_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        std::os::unix::fs::symlink("elsewhere", lock_path(&database)).unwrap();
        let claim = Claim::take(&database).unwrap();
        assert!(claim.lock().is_there());
        assert!(folder.path().join("elsewhere").exists());
    }

    #[test]
    fn a_holder_that_wrote_no_number_is_still_a_holder() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("a.db");
        let _first = Claim::take(&database).unwrap();
        std::fs::write(lock_path(&database), "").unwrap();
        let message = Claim::take(&database).unwrap_err().to_string();
        assert!(message.contains("in use by another process"), "{message}");
    }
}
