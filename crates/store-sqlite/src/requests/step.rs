//! One transaction on the runs: a bounded piece of work, between two commits.

use super::lookup;
use super::run::{self, Slot, SortedRun};
use crate::commit::{NotWritten, Transaction};
use rusqlite::params;
use std::ops::Range;
use std::sync::Arc;

const BEGIN_RUN: &str = "INSERT INTO request_runs (run, level, is_whole) VALUES (?, ?, 0)";
const MARK_RUN: &str = "UPDATE request_runs SET is_whole = ? WHERE run = ?";
const END_RUN: &str = "DELETE FROM request_runs WHERE run = ?";
const PAGE: &str = "INSERT INTO request_pages (page, bytes) VALUES (?, ?)";
const CHANGE_PAGE: &str = "UPDATE request_pages SET bytes = ? WHERE page = ?";
const REMOVE_PAGES: &str = "DELETE FROM request_pages WHERE page >= ? AND page < ?";
const SORT_ALL: &str = "UPDATE tenants SET sorted_seq = head_seq WHERE sorted_seq < head_seq";

/// What commits and steps do here.
pub(crate) const STATEMENTS: [&str; 7] = [
    BEGIN_RUN,
    MARK_RUN,
    END_RUN,
    PAGE,
    CHANGE_PAGE,
    REMOVE_PAGES,
    SORT_ALL,
];

/// What is written together.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// A run that begins, with its level.
    pub(super) begins: Option<(i64, i64)>,
    /// Pages that are added.
    pub(super) pages: Vec<(i64, Vec<u8>)>,
    /// What was forgotten while this run was written.
    pub(super) forgets: Option<(Arc<SortedRun>, Vec<Slot>)>,
    /// A run that counts from now on.
    pub(super) completes: Option<i64>,
    /// Runs that count no longer.
    pub(super) replaces: Vec<i64>,
    /// Pages that go.
    pub(super) removes: Option<Range<i64>>,
    /// A run that has gone.
    pub(super) ends: Option<i64>,
    /// Whether every request that was ever recorded is in a run from now on.
    pub(super) sorts_all: bool,
}

impl Step {
    /// Adds pages of a run, the first at this place.
    pub(super) fn add_pages(&mut self, run: i64, place: usize, pages: Vec<Vec<u8>>) {
        let numbered = pages.into_iter().zip(place..);
        self.pages
            .extend(numbered.map(|(bytes, place)| (run::page_number(run, place), bytes)));
    }

    /// Writes it.
    pub(crate) fn write(&self, transaction: &Transaction<'_>) -> Result<(), NotWritten> {
        if let Some((run, level)) = self.begins {
            transaction.statement(BEGIN_RUN)?.execute([run, level])?;
        }
        for (page, bytes) in &self.pages {
            transaction.statement(PAGE)?.execute(params![page, bytes])?;
        }
        if let Some((run, slots)) = &self.forgets {
            for slot in slots {
                forget(transaction, run, *slot)?;
            }
        }
        let completed = self.completes.map(|run| (run, 1));
        let replaced = self.replaces.iter().map(|run| (*run, 0));
        for (run, is_whole) in completed.into_iter().chain(replaced) {
            transaction.statement(MARK_RUN)?.execute([is_whole, run])?;
        }
        if let Some(Range { start, end }) = self.removes {
            transaction.statement(REMOVE_PAGES)?.execute([start, end])?;
        }
        if let Some(run) = self.ends {
            transaction.statement(END_RUN)?.execute([run])?;
        }
        if self.sorts_all {
            transaction.statement(SORT_ALL)?.execute([])?;
        }
        Ok(())
    }
}

/// Takes a slot out of the pages of a run.
pub(super) fn forget(transaction: &Transaction<'_>, run: &SortedRun, slot: Slot) -> Result<(), NotWritten> {
    for page in run.pages_with(slot.key) {
        forget_on(transaction, page, slot)?;
    }
    Ok(())
}

fn forget_on(transaction: &Transaction<'_>, page: i64, slot: Slot) -> Result<(), NotWritten> {
    let Some(bytes) = lookup::read_page(transaction.connection(), page)? else {
        return Ok(());
    };
    let left = run::slots(page, &bytes)?;
    let left = run::page(left.filter(|other| *other != slot));
    if left.len() < bytes.len() {
        let mut change = transaction.statement(CHANGE_PAGE)?;
        change.execute(params![left, page])?;
    }
    Ok(())
}
