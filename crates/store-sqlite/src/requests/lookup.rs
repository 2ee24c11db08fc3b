//! Finds the entries that answered requests, on the thread of whoever commits.
//!
//! Nearly every request is new, and filters say so from memory. But there are some thirty runs in a ledger of millions,
//! each filter lets one key in two hundred pass, and a commit has dozens of requests: so most commits read a page or
//! two. Another thread would have to be woken for them, which costs many times what the page does.

use super::run;
use super::{RequestDigest, Requests, Slot};
use crate::commit::NotWritten;
use rusqlite::{Connection, OptionalExtension};
use std::collections::HashSet;
use std::ops::RangeInclusive;

const READ_PAGE: &str = "SELECT bytes FROM request_pages WHERE page = ?";
const READ_REQUEST: &str = "SELECT request FROM decisions WHERE entry = ?";

/// What is read.
pub(crate) const STATEMENTS: [&str; 2] = [READ_PAGE, READ_REQUEST];

impl Requests {
    /// The entries that answered these requests, each with the place of the request among them.
    pub(crate) fn find(
        &self,
        connection: &Connection,
        wanted: &[RequestDigest],
    ) -> Result<Vec<(usize, i64)>, NotWritten> {
        let mut found = Vec::new();
        for (place, digest) in wanted.iter().enumerate() {
            for entry in self.hints(connection, digest.key())? {
                if is_answered_by(connection, digest, entry)? {
                    found.push((place, entry));
                }
            }
        }
        // A slot can stand in two runs, where a merge has ended and what it replaces is still there.
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// Whether one of these was answered before, or two of them are the same.
    pub(crate) fn repeat(
        &self,
        connection: &Connection,
        asked: &[Option<RequestDigest>],
    ) -> Result<bool, NotWritten> {
        let asked: Vec<_> = asked.iter().flatten().copied().collect();
        let different: HashSet<_> = asked.iter().collect();
        Ok(different.len() < asked.len() || !self.find(connection, &asked)?.is_empty())
    }

    /// The entries that answered requests with this key.
    fn hints(&self, connection: &Connection, key: u64) -> Result<Vec<i64>, NotWritten> {
        let recent = self.recent.range(slots_with(key));
        let mut hints: Vec<_> = recent.map(|slot| slot.entry).collect();
        for page in self.runs.iter().flat_map(|run| run.pages_with(key)) {
            let bytes = read_page(connection, page)?.unwrap_or_default();
            let slots = run::slots(page, &bytes)?.filter(|slot| slot.key == key);
            hints.extend(slots.map(|slot| slot.entry));
        }
        Ok(hints)
    }
}

/// The bytes of a page, if it is there.
pub(super) fn read_page(connection: &Connection, page: i64) -> rusqlite::Result<Option<Vec<u8>>> {
    let mut read = connection.prepare_cached(READ_PAGE)?;
    read.query_row([page], |row| row.get(0)).optional()
}

/// Whether an entry's decision was this request, and not another one with the same key.
fn is_answered_by(connection: &Connection, digest: &RequestDigest, entry: i64) -> Result<bool, NotWritten> {
    let mut read = connection.prepare_cached(READ_REQUEST)?;
    let request: Option<Option<Vec<u8>>> = read.query_row([entry], |row| row.get(0)).optional()?;
    Ok(request.flatten().as_deref() == Some(&digest.0[..]))
}

/// All slots with this key.
fn slots_with(key: u64) -> RangeInclusive<Slot> {
    let slot = |entry| Slot { key, entry };
    slot(i64::MIN)..=slot(i64::MAX)
}
