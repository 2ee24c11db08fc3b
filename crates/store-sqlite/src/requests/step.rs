//! One transaction on the runs: a bounded piece of work, between two commits.

use super::run::{self, Run, Slot};
use super::unreadable;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection};
use std::ops::Range;
use std::sync::Arc;

/// What is written together.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// A run that begins, with its level.
    pub(super) begins: Option<(i64, i64)>,
    /// Pages that are added.
    pub(super) pages: Vec<(i64, Vec<u8>)>,
    /// What was forgotten while this run was written.
    pub(super) forgets: Option<(Arc<Run>, Vec<Slot>)>,
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

    /// Writes it, in the transaction that is open.
    pub(crate) async fn write(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        if let Some((run, level)) = self.begins {
            sqlx::query!(
                "INSERT INTO request_runs (run, level, is_whole) VALUES (?1, ?2, 0)",
                run,
                level
            )
            .execute(&mut *connection)
            .await?;
        }
        self.write_pages(connection).await?;
        if let Some((run, slots)) = &self.forgets {
            forget(connection, run, slots).await?;
        }
        let completed = self.completes.map(|run| (run, 1));
        let replaced = self.replaces.iter().map(|run| (*run, 0));
        for (run, is_whole) in completed.into_iter().chain(replaced) {
            sqlx::query!(
                "UPDATE request_runs SET is_whole = ?1 WHERE run = ?2",
                is_whole,
                run
            )
            .execute(&mut *connection)
            .await?;
        }
        if let Some(Range { start, end }) = self.removes {
            sqlx::query!(
                "DELETE FROM request_pages WHERE page >= ?1 AND page < ?2",
                start,
                end
            )
            .execute(&mut *connection)
            .await?;
        }
        if let Some(run) = self.ends {
            sqlx::query!("DELETE FROM request_runs WHERE run = ?1", run)
                .execute(&mut *connection)
                .await?;
        }
        if self.sorts_all {
            sqlx::query!("UPDATE tenants SET sorted_seq = head_seq WHERE sorted_seq < head_seq")
                .execute(&mut *connection)
                .await?;
        }
        Ok(())
    }

    async fn write_pages(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        if self.pages.is_empty() {
            return Ok(());
        }
        let mut insert = QueryBuilder::<Sqlite>::new("INSERT INTO request_pages (page, bytes) ");
        insert.push_values(&self.pages, |mut row, (page, bytes)| {
            row.push_bind(*page).push_bind(&bytes[..]);
        });
        // There are as many texts as there are numbers of pages: none of them is worth keeping.
        insert
            .build()
            .persistent(false)
            .execute(connection)
            .await
            .map(drop)
    }
}

/// Takes slots out of the pages of a run.
pub(super) async fn forget(
    connection: &mut SqliteConnection,
    run: &Run,
    slots: &[Slot],
) -> Result<(), sqlx::Error> {
    for slot in slots {
        for page in run.pages_with(slot.key) {
            forget_on(connection, page, *slot).await?;
        }
    }
    Ok(())
}

async fn forget_on(connection: &mut SqliteConnection, page: i64, slot: Slot) -> Result<(), sqlx::Error> {
    let bytes = sqlx::query_scalar!("SELECT bytes FROM request_pages WHERE page = ?1", page)
        .fetch_optional(&mut *connection)
        .await?;
    let Some(bytes) = bytes else {
        return Ok(());
    };
    let left = run::slots(page, &bytes).map_err(unreadable)?;
    let left = run::page(left.filter(|other| *other != slot));
    if left.len() < bytes.len() {
        sqlx::query!("UPDATE request_pages SET bytes = ?1 WHERE page = ?2", left, page)
            .execute(connection)
            .await?;
    }
    Ok(())
}
