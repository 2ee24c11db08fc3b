//! A VFS with which SQLite writes its write-ahead log in long pieces.
//!
//! SQLite writes each page of a commit to its log with two calls of the system, one for 24 bytes and one for the page.
//! What a page costs there is mostly the calls: thirty pages in one take a seventh of the time
//! (docs/decisions/0061-the-log-in-long-pieces.md). This VFS is SQLite's own for Unix, `unix`, but for that: the pages
//! of a transaction are gathered in memory, and written before anybody can look for them in the file.
//!
//! What is gathered of a transaction that is rolled back would stay: SQLite tells no VFS of a rollback. Whoever else
//! writes to the log then writes in the same place, and would lose it to what stayed. So a connection must write
//! nothing of a transaction before it ends, and [`open`] sets it up that way.
//!
//! - `gathered`: what is kept back, and when it is put into the file;
//! - `wal_file`: a log that is open;
//! - here: everything else, which is the VFS below.
//!
//! What SQLite requires of a VFS is said at <https://www.sqlite.org/c3ref/vfs.html>
//! and <https://www.sqlite.org/c3ref/io_methods.html>. This is the only crate in which code may be `unsafe`: it is
//! there so that no other one has to.

mod gathered;
mod wal_file;

use rusqlite::{Connection, OpenFlags, ffi};
use std::ffi::{CStr, c_int};
use std::path::Path;
use std::ptr;
use std::sync::OnceLock;

/// Its name.
const NAME: &CStr = c"unix-gathering";
/// The name of the VFS below it.
const BELOW: &CStr = c"unix";

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The VFS cannot be used.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// SQLite does not open the file.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
}

/// Why it cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unavailable {
    /// SQLite was built for a system without the one below.
    #[error("this SQLite has no VFS `unix`")]
    NotUnix,
    /// SQLite does not take it.
    #[error("SQLite does not register a VFS (error {0})")]
    Refused(c_int),
}

/// Opens a database with it. A transaction may have more pages than `cache_size` then: all of them stay in memory until it ends.
pub fn open(database: &Path, flags: OpenFlags) -> Result<Connection, OpenError> {
    let connection = Connection::open_with_flags_and_vfs(database, flags, name()?)?;
    // INVARIANT: nothing of a transaction is written to the log before its COMMIT.
    connection.pragma_update(None, "cache_spill", "OFF")?;
    Ok(connection)
}

/// The name under which SQLite knows it, from the first call on.
fn name() -> Result<&'static CStr, Unavailable> {
    static REGISTERED: OnceLock<Result<(), Unavailable>> = OnceLock::new();
    REGISTERED.get_or_init(register).map(|()| NAME)
}

/// What SQLite is given: the VFS, and the one below it.
#[repr(C)]
struct Vfs {
    /// First, so that a pointer to it is one to the whole.
    base: ffi::sqlite3_vfs,
    below: *mut ffi::sqlite3_vfs,
}

fn register() -> Result<(), Unavailable> {
    // SAFETY: the name ends with a zero. SQLite makes itself ready first if it is not.
    let below = unsafe { ffi::sqlite3_vfs_find(BELOW.as_ptr()) };
    // SAFETY: SQLite never takes its own VFSs away, and nothing in one is changed but the link to the next, which is
    // not looked at.
    let Some(base) = (unsafe { below.as_ref() }) else {
        return Err(Unavailable::NotUnix);
    };
    let vfs = Vfs {
        base: ffi::sqlite3_vfs {
            szOsFile: wal_file::bytes(base.szOsFile),
            pNext: ptr::null_mut(),
            zName: NAME.as_ptr(),
            xOpen: Some(open_file),
            // The functions of `unix` take what they need from `pAppData`, so they can be called with this VFS as with theirs.
            ..*base
        },
        below,
    };
    // SQLite has it for as long as the process runs.
    let vfs = ptr::from_mut(Box::leak(Box::new(vfs)));
    // SAFETY: it is whole, and it stays where it is. 0 says that it does not become the default.
    match unsafe { ffi::sqlite3_vfs_register(vfs.cast(), 0) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(Unavailable::Refused(code)),
    }
}

/// Opens a file: a log as one of ours, everything else as one of the VFS below.
///
/// # Safety
/// As SQLite calls it: with the [`Vfs`] that it was given, and with room for a file as large as that says.
unsafe extern "C" fn open_file(
    vfs: *mut ffi::sqlite3_vfs,
    name: ffi::sqlite3_filename,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    flags_out: *mut c_int,
) -> c_int {
    // SAFETY: it is ours, so it has what comes behind.
    let below = unsafe { (*vfs.cast::<Vfs>()).below };
    let open_below = |file| {
        // SAFETY: it was there when this one was registered.
        let Some(open) = (unsafe { (*below).xOpen }) else {
            return ffi::SQLITE_CANTOPEN;
        };
        // SAFETY: everything is as SQLite has given it, and there is room for a file.
        unsafe { open(below, name, file, flags, flags_out) }
    };
    if flags & ffi::SQLITE_OPEN_WAL == 0 {
        open_below(file)
    } else {
        // SAFETY: there is room for a log.
        unsafe { wal_file::open(file, open_below) }
    }
}
