//! Which entry answered a request: an index that commits only append to.
//!
//! Request ids come in no order. An index in the order of their keys would take a page of its own from every one of
//! them, and a commit would write several times the bytes of its rows (measured;
//! docs/decisions/0036-requests-in-runs.md). So a decision's row has the [`RequestDigest`] of its request, and what
//! leads from there to the entry is kept as a log-structured merge tree:
//!
//! - the latest are in memory, and are read from the rows of decisions when the database is opened;
//! - [`RECENT_MAX`] of them become a [`SortedRun`] in the order of their keys, and [`FAN_OUT`] runs of a level one of
//!   the next, behind the commits ([`upkeep`]). So a slot is written once a level, among its neighbours;
//! - a [`filter`] says for nearly every request that is new that a run does not have it, from memory or, for a large
//!   run, from a file (docs/decisions/0058-filters-of-large-runs-in-files.md): most commits read no page.
//!
//! Exactness: whoever has the writer's turn sees every request that was committed, because nobody else writes. A slot
//! that is found is only a hint; the decision's row says whether it was this request. What is forgotten with an erasure
//! is gone from its page in the same commit.

mod convert;
mod filter;
pub(crate) mod lookup;
mod run;
pub(crate) mod step;
pub(crate) mod upkeep;

use crate::Bounds;
use crate::commit::{NotWritten, Transaction};
use canon::Digest;
pub(crate) use convert::convert;
#[cfg(test)]
pub(crate) use convert::convert_in_parts;
use filter::FilterBuilder;
use run::{Builder, PAGE_SLOTS, SortedRun};
pub(crate) use run::{Slot, Torn};
use sqlx::{SqliteConnection, SqliteExecutor};
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
pub(crate) use step::Step;
use store::DecisionRow;
use upkeep::Ticket;

/// Slots in memory that become a run.
pub(crate) const RECENT_MAX: usize = 8_192;
/// Runs of a level that become one of the next.
pub(crate) const FAN_OUT: usize = 8;
/// The level from which the filter of a run is in a file: that of four million requests, so that at most seven of half
/// a million and what is below them take memory, which is six megabytes.
pub(crate) const FILES_FROM_LEVEL: i64 = 3;
/// Entries, of any kind, after which what is in memory becomes a run although it is small: so many are read when the database is
/// opened.
const UNSORTED_MAX: u64 = 16 * RECENT_MAX as u64;
/// Rows or pages that are read at once.
const CHUNK: i64 = 4_096;

/// What a request is known by: the first half of SHA-256 over tenant, agent and request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct RequestDigest([u8; 16]);

impl RequestDigest {
    pub(crate) fn of(tenant: &[u8; 16], agent: &[u8; 16], request_id: &str) -> Self {
        let text = [&tenant[..], &agent[..], request_id.as_bytes()].concat();
        Self(
            *Digest::of(&text)
                .as_bytes()
                .first_chunk()
                .expect("it is 32 bytes"),
        )
    }

    /// That of the request that a decision answers, if it has an id.
    pub(crate) fn of_decision(row: &DecisionRow) -> Option<Self> {
        let (request_id, _) = row.request.as_ref()?;
        Some(Self::of(
            row.tenant.as_bytes(),
            row.agent.as_bytes(),
            request_id.as_str(),
        ))
    }

    pub(crate) const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }

    /// What runs are ordered by.
    fn key(&self) -> u64 {
        u64::from_be_bytes(*self.0.first_chunk().expect("it is 16 bytes"))
    }

    /// That this entry answered it.
    pub(crate) fn slot(&self, entry: i64) -> Slot {
        Slot {
            key: self.key(),
            entry,
        }
    }
}

/// All requests that were answered.
#[derive(Debug)]
pub(crate) struct Requests {
    /// Those that are in no run yet.
    recent: BTreeSet<Slot>,
    /// How many of them become a run.
    recent_max: usize,
    /// The level from which filters are in files.
    files_from_level: i64,
    /// Where those files are: beside the database.
    folder: PathBuf,
    /// Entries, of any kind, since the last time that all were in runs.
    unsorted: u64,
    runs: Vec<Arc<SortedRun>>,
    /// A number that no run has had since this process began, and no other has.
    next_run: i64,
    /// What was forgotten since the merge that is under way began.
    forgotten: Option<Vec<Slot>>,
    /// How often all this was read.
    reads: u64,
}

impl Requests {
    /// None, of this database.
    pub(crate) fn new(database: &Path, bounds: Bounds) -> Self {
        let folder = database.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or_else(|| Path::new(".")).to_owned();
        Self {
            recent: BTreeSet::new(),
            recent_max: bounds.recent_requests_max,
            files_from_level: bounds.files_from_level,
            folder,
            unsorted: 0,
            runs: Vec::new(),
            next_run: 1,
            forgotten: None,
            reads: 0,
        }
    }

    /// Reads what there is. Runs that are known already are not read again.
    pub(crate) async fn read(&mut self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        let rows = sqlx::query!("SELECT run, level, is_whole FROM request_runs ORDER BY run")
            .fetch_all(&mut *connection)
            .await?;
        self.reads += 1;
        self.next_run = self.next_run.max(rows.last().map_or(0, |row| row.run) + 1);
        let known = std::mem::take(&mut self.runs);
        for row in rows.iter().filter(|row| row.is_whole != 0) {
            let run = match known.iter().find(|run| run.number == row.run) {
                Some(run) => Arc::clone(run),
                None => Arc::new(self.read_run(connection, row.run, row.level).await?),
            };
            self.runs.push(run);
        }
        self.recent.clear();
        self.unsorted = 0;
        let tenants =
            sqlx::query!("SELECT tenant_no, head_seq, sorted_seq FROM tenants WHERE sorted_seq < head_seq")
                .fetch_all(&mut *connection)
                .await?;
        for tenant in tenants {
            let number =
                |seq: i64| crate::entry::number(tenant.tenant_no, seq.try_into().unwrap_or_default());
            let (Some(after), Some(last)) = (number(tenant.sorted_seq), number(tenant.head_seq)) else {
                continue;
            };
            self.unsorted += (last - after).cast_unsigned();
            self.read_recent(connection, after, last).await?;
        }
        Ok(())
    }

    /// Reads the requests of the entries behind one and up to another.
    async fn read_recent(
        &mut self,
        connection: &mut SqliteConnection,
        mut after: i64,
        last: i64,
    ) -> Result<(), sqlx::Error> {
        loop {
            let rows = sqlx::query!(
                r#"SELECT entry, request AS "request!"
                   FROM decisions
                   WHERE entry > ?1
                     AND entry <= ?2
                     AND request IS NOT NULL
                   ORDER BY entry
                   LIMIT ?3"#,
                after,
                last,
                CHUNK,
            )
            .fetch_all(&mut *connection)
            .await?;
            let Some(end) = rows.last() else {
                return Ok(());
            };
            after = end.entry;
            for row in rows {
                // A digest that is none is no request's: nobody asks for it.
                if let Ok(digest) = row.request.try_into().map(RequestDigest) {
                    self.recent.insert(digest.slot(row.entry));
                }
            }
        }
    }

    /// Reads what memory knows of a run.
    async fn read_run(
        &self,
        connection: &mut SqliteConnection,
        number: i64,
        level: i64,
    ) -> Result<SortedRun, sqlx::Error> {
        let pages = pages_of(&mut *connection, number).await?;
        let slots = usize::try_from(pages.end - pages.start).unwrap_or_default() * PAGE_SLOTS;
        let mut builder = self.builder(number, level, slots);
        let mut next = pages.start;
        loop {
            let rows = sqlx::query!(
                "SELECT page, bytes FROM request_pages WHERE page BETWEEN ?1 AND ?2 ORDER BY page LIMIT ?3",
                next,
                pages.end - 1,
                CHUNK,
            )
            .fetch_all(&mut *connection)
            .await?;
            let Some(end) = rows.last() else {
                return Ok(builder.finish()?.0);
            };
            next = end.page + 1;
            for row in &rows {
                builder.read(run::slots(row.page, &row.bytes).map_err(unreadable)?);
            }
        }
    }

    /// What a run of so many slots is built with.
    fn builder(&self, number: i64, level: i64, slots: usize) -> Builder {
        let filter = if level < self.files_from_level {
            FilterBuilder::in_memory(slots)
        } else {
            FilterBuilder::in_file(slots, &self.folder)
        };
        Builder::new(number, level, slots, filter)
    }

    /// Takes what a commit added: its requests, and how many entries it had.
    pub(crate) fn add(&mut self, asked: impl Iterator<Item = Slot>, entries: usize) {
        self.recent.extend(asked);
        self.unsorted += entries as u64;
    }

    /// Takes a slot out of its pages, as part of a commit that erases what it leads to.
    pub(crate) fn forget_in_runs(&self, transaction: &Transaction<'_>, slot: Slot) -> Result<(), NotWritten> {
        self.runs
            .iter()
            .try_for_each(|run| step::forget(transaction, run, slot))
    }

    /// Takes a slot out of memory, after that commit.
    pub(crate) fn forget(&mut self, slot: Slot) {
        self.recent.remove(&slot);
        if let Some(forgotten) = &mut self.forgotten {
            forgotten.push(slot);
        }
    }

    /// Whether there is something to do behind the commits.
    pub(crate) fn is_due(&self) -> bool {
        self.is_recent_due() || self.mergeable().is_some()
    }

    fn is_recent_due(&self) -> bool {
        self.recent.len() >= self.recent_max || self.unsorted >= UNSORTED_MAX
    }

    /// The oldest runs of the lowest level that has enough of them.
    pub(crate) fn mergeable(&self) -> Option<Vec<Arc<SortedRun>>> {
        let mut levels: Vec<_> = self.runs.iter().map(|run| run.level).collect();
        levels.sort_unstable();
        levels.dedup();
        levels.into_iter().find_map(|level| {
            let of_level = self.runs.iter().filter(|run| run.level == level);
            let oldest: Vec<_> = of_level.take(FAN_OUT).cloned().collect();
            (oldest.len() == FAN_OUT).then_some(oldest)
        })
    }

    /// All that is in memory as a run, if there is anything, and the step that writes it.
    fn sorted(&mut self) -> io::Result<(Option<SortedRun>, Step)> {
        let mut step = Step {
            sorts_all: true,
            ..Step::default()
        };
        if self.recent.is_empty() {
            return Ok((None, step));
        }
        let number = self.take_number();
        let mut builder = self.builder(number, 0, self.recent.len());
        let mut pages: Vec<_> = self
            .recent
            .iter()
            .filter_map(|slot| builder.push(*slot))
            .collect();
        let (run, rest) = builder.finish()?;
        pages.extend(rest);
        step.begins = Some((number, run.level));
        step.add_pages(number, 0, pages);
        step.completes = Some(number);
        Ok((Some(run), step))
    }

    /// Takes the run that was made of all that is in memory, after it was written.
    fn sort(&mut self, run: Option<SortedRun>) {
        self.recent.clear();
        self.unsorted = 0;
        self.runs.extend(run.map(Arc::new));
    }

    /// Begins a merge into a run of so many slots.
    fn begin_merge(&mut self, level: i64, slots: usize) -> (Ticket, Builder) {
        self.forgotten = Some(Vec::new());
        let ticket = Ticket {
            run: self.take_number(),
            reads: self.reads,
        };
        (ticket, self.builder(ticket.run, level, slots))
    }

    /// What was forgotten since it began; none if the index was read anew, because then nobody knows.
    fn end_merge(&mut self, ticket: Ticket) -> Option<Vec<Slot>> {
        let forgotten = self.forgotten.take()?;
        (ticket.reads == self.reads).then_some(forgotten)
    }

    /// Takes the run that was made of these, after it was written.
    fn replace(&mut self, replaced: &[i64], run: Arc<SortedRun>) {
        self.runs.retain(|run| !replaced.contains(&run.number));
        self.runs.push(run);
        self.runs.sort_unstable_by_key(|run| run.number);
    }

    fn take_number(&mut self) -> i64 {
        self.next_run += 1;
        self.next_run - 1
    }
}

/// The numbers of all the pages of a run.
async fn pages_of(database: impl SqliteExecutor<'_>, run: i64) -> Result<Range<i64>, sqlx::Error> {
    let (first, end) = (run::page_number(run, 0), run::page_number(run + 1, 0));
    let last = sqlx::query_scalar!(
        r#"SELECT max(page) AS "page: i64" FROM request_pages WHERE page >= ?1 AND page < ?2"#,
        first,
        end,
    )
    .fetch_one(database)
    .await?;
    Ok(first..last.map_or(first, |last| last + 1))
}

fn unreadable(torn: run::Torn) -> sqlx::Error {
    sqlx::Error::Decode(Box::new(torn))
}
