//! Taking locks whose holder may have panicked.
//!
//! A panic of an earlier holder is passed over. What these locks guard is in memory only, caches, counts, queues and
//! places, and never the ledger: a change that was broken off leaves a count that is off or something to be looked up
//! again, and a lock that nobody can take would fail every request from then on. Where more depends on a lock, that is
//! said beside it.

use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Takes a lock, also if an earlier holder has panicked.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock to read, also if an earlier holder has panicked.
pub(crate) fn read<T: ?Sized>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a lock to write, also if an earlier holder has panicked.
pub(crate) fn write<T: ?Sized>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}
