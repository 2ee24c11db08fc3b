//! A log that is open, as SQLite sees it: the file of the VFS below, with what is not written to it yet.

use crate::gathered::{Gathered, Sink};
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::{ptr, slice};

/// The file. Behind it stands that of the VFS below.
#[repr(C, align(8))]
struct WalFile {
    /// First, so that a pointer to it is one to the whole.
    base: ffi::sqlite3_file,
    gathered: Gathered,
}

/// What SQLite calls. A log has neither memory that is shared nor one that is mapped, so these are those of the first version.
static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 1,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved_lock),
    xFileControl: Some(control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(device_characteristics),
    xShmMap: None,
    xShmLock: None,
    xShmBarrier: None,
    xShmUnmap: None,
    xFetch: None,
    xUnfetch: None,
};

/// The file of the VFS below.
struct Below(*mut ffi::sqlite3_file);

/// How much room SQLite has to have for a file, where the VFS below wants so much.
pub(crate) fn bytes(below: c_int) -> c_int {
    // INVARIANT: it is some dozens of bytes.
    c_int::try_from(size_of::<WalFile>()).map_or(c_int::MAX, |own| own.saturating_add(below))
}

/// Opens a log: what `open_below` makes of the room behind it, and nothing gathered.
///
/// # Safety
/// `file` has the room that [`bytes`] asks for, and nothing is there yet.
pub(crate) unsafe fn open(
    file: *mut ffi::sqlite3_file,
    open_below: impl FnOnce(*mut ffi::sqlite3_file) -> c_int,
) -> c_int {
    // SAFETY: the caller vouches for the room.
    let below = unsafe { Below::of(file) };
    let code = open_below(below.0);
    if code == ffi::SQLITE_OK {
        let base = ffi::sqlite3_file {
            pMethods: &raw const METHODS,
        };
        let gathered = Gathered::default();
        // SAFETY: the room is there, and it is aligned as everything is that SQLite allocates: to 8 bytes.
        unsafe { file.cast::<WalFile>().write(WalFile { base, gathered }) };
    } else {
        // SAFETY: as above. Without methods SQLite does not close it.
        unsafe { (*file).pMethods = ptr::null() };
    }
    code
}

impl Below {
    /// That of a log.
    ///
    /// # Safety
    /// `file` is in the room of a log, whether it is open or not.
    unsafe fn of(file: *mut ffi::sqlite3_file) -> Self {
        // SAFETY: it stands behind what is ours, in the same room.
        Self(unsafe { file.cast::<WalFile>().add(1) }.cast())
    }
}

/// Calls a method of the file below a log that is open, with the arguments that SQLite has given.
macro_rules! call_below {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: whoever calls this was called by SQLite with a log that is open, so the one below is, too.
        unsafe {
            let Below(below) = Below::of($file);
            match (*(*below).pMethods).$method {
                Some(method) => method(below $(, $argument)*),
                None => ffi::SQLITE_IOERR,
            }
        }
    }};
}

impl Sink for Below {
    type Error = c_int;

    fn write(&mut self, bytes: &[u8], begin: i64) -> Result<(), c_int> {
        let Ok(length) = c_int::try_from(bytes.len()) else {
            return Err(ffi::SQLITE_IOERR_WRITE);
        };
        let Self(below) = *self;
        // SAFETY: it belongs to a log that is open.
        let code = match unsafe { (*(*below).pMethods).xWrite } {
            // SAFETY: as above; `length` is that of `bytes`.
            Some(write) => unsafe { write(below, bytes.as_ptr().cast(), length, begin) },
            None => ffi::SQLITE_IOERR_WRITE,
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
    }
}

/// Lets the log have its way with what it has gathered, and says what came of it.
///
/// # Safety
/// `file` is a log that is open, and nobody else uses it meanwhile: SQLite calls the methods of a file one at a time.
unsafe fn with_gathered(
    file: *mut ffi::sqlite3_file,
    act: impl FnOnce(&mut Gathered, &mut Below) -> Result<(), c_int>,
) -> c_int {
    // SAFETY: the caller vouches for the log.
    let mut below = unsafe { Below::of(file) };
    // SAFETY: as above, and the file below is no part of this.
    let log = unsafe { &mut *file.cast::<WalFile>() };
    act(&mut log.gathered, &mut below).err().unwrap_or(ffi::SQLITE_OK)
}

/// The same as [`call_below`], after everything that was gathered is in the file.
macro_rules! flush_and_call_below {
    ($file:expr, $method:ident $(, $argument:expr)*) => {{
        // SAFETY: whoever calls this was called by SQLite with a log that is open.
        match unsafe { with_gathered($file, Gathered::flush) } {
            ffi::SQLITE_OK => call_below!($file, $method $(, $argument)*),
            code => code,
        }
    }};
}

// The methods. SQLite calls them with a log that was opened by `open` and is not closed, and with arguments that fit:
// that makes each of them safe.

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    from: *const c_void,
    length: c_int,
    begin: ffi::sqlite3_int64,
) -> c_int {
    let Ok(length) = usize::try_from(length) else {
        return ffi::SQLITE_IOERR_WRITE;
    };
    // SAFETY: so many bytes are there.
    let bytes = unsafe { slice::from_raw_parts(from.cast::<u8>(), length) };
    // SAFETY: it is a log that is open.
    unsafe { with_gathered(file, |gathered, below| gathered.write(bytes, begin, below)) }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    into: *mut c_void,
    length: c_int,
    begin: ffi::sqlite3_int64,
) -> c_int {
    flush_and_call_below!(file, xRead, into, length, begin)
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    flush_and_call_below!(file, xTruncate, size)
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    flush_and_call_below!(file, xSync, flags)
}

unsafe extern "C" fn size(file: *mut ffi::sqlite3_file, size: *mut ffi::sqlite3_int64) -> c_int {
    flush_and_call_below!(file, xFileSize, size)
}

/// What is gathered goes with it: it belongs to no transaction that has ended.
unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    let code = call_below!(file, xClose);
    // SAFETY: `open` has made it, and SQLite does not use it any more.
    unsafe { ptr::drop_in_place(file.cast::<WalFile>()) };
    code
}

unsafe extern "C" fn lock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    call_below!(file, xLock, level)
}

unsafe extern "C" fn unlock(file: *mut ffi::sqlite3_file, level: c_int) -> c_int {
    call_below!(file, xUnlock, level)
}

unsafe extern "C" fn check_reserved_lock(file: *mut ffi::sqlite3_file, is_locked: *mut c_int) -> c_int {
    call_below!(file, xCheckReservedLock, is_locked)
}

unsafe extern "C" fn control(file: *mut ffi::sqlite3_file, what: c_int, argument: *mut c_void) -> c_int {
    call_below!(file, xFileControl, what, argument)
}

unsafe extern "C" fn sector_size(file: *mut ffi::sqlite3_file) -> c_int {
    call_below!(file, xSectorSize)
}

unsafe extern "C" fn device_characteristics(file: *mut ffi::sqlite3_file) -> c_int {
    call_below!(file, xDeviceCharacteristics)
}
