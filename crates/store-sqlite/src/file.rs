//! The file of the database, to be synced beside SQLite.
//!
//! A passive checkpoint syncs what it has copied only if it got to the end of the log, and under load it never does. What it copied would
//! gather in the system's cache until the checkpoint that gets to the end, which is the one that commits wait for
//! (docs/decisions/0046-checkpoints-in-small-pieces.md).

use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The file, open.
///
/// Whoever closes any descriptor of a file gives back all the locks that the process has on it (fcntl(2)), SQLite's with them. So this
/// one is closed by [`close`](Self::close), after those of SQLite, or by the end of the process.
#[derive(Debug)]
pub(crate) struct DatabaseFile {
    file: Mutex<Option<ManuallyDrop<File>>>,
}

impl DatabaseFile {
    /// Opens it.
    pub(crate) fn open(database: &Path) -> io::Result<Self> {
        let file = ManuallyDrop::new(File::open(database)?);
        Ok(Self {
            file: Mutex::new(Some(file)),
        })
    }

    /// Waits until what was written to it is on the disk. When it is closed there is nothing to wait for: SQLite has done it.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        file.as_ref().map_or(Ok(()), |file| file.sync_data())
    }

    /// Closes it. No connection may be open any more.
    pub(crate) fn close(&self) {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        drop(file.take().map(ManuallyDrop::into_inner));
    }
}
