//! What is done for the index behind the commits: what is in memory becomes a run, runs are merged, and what they
//! replace is removed.
//!
//! It is one task. A step of a few hundred kilobytes at a time is an [errand](crate::errands) of the next commit, and
//! it rests between two of them, so a commit waits for one step at most. Whatever interrupts it leaves a run that does
//! not count, which is removed by the next start.

use super::run::{self, Builder, PAGE_SLOTS, Slot, SortedRun};
use super::step::Step;
use super::{pages_of, unreadable};
use crate::commit::NotWritten;
use crate::errands::{Errander, NotDone};
use crate::writer::{NotReady, Writer};
use sqlx::SqlitePool;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// Pages that a step adds: 128 KiB. A commit waits for it, so it is small. With the rest behind it, steps do three
/// times what 28,000 requests a second take on four levels.
const STEP_PAGES: usize = 32;
/// Pages that a step removes. They are overwritten with zeros, so that is as much work as adding them.
const REMOVED_PAGES: i64 = 32;
/// Pages of a run that are read at once.
const READ_PAGES: i64 = 16;
/// How long commits have the writer to themselves between two steps, at least.
const REST: Duration = Duration::from_millis(10);
/// How often as long as the step took: where a sync takes long, steps must not be most of what is synced.
const RESTS: u32 = 8;
/// How long it leaves the database alone after a failure.
const REST_AFTER_FAILURE: Duration = Duration::from_secs(1);

/// Why a piece of work was not done. Nothing is lost: the next round does it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpkeepError {
    /// Nobody did it.
    #[error(transparent)]
    NotDone(#[from] NotDone),
    /// The database did not do as it was asked.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A step was not written.
    #[error(transparent)]
    Step(#[from] NotWritten),
    /// The file of a filter was not written.
    #[error("the filter of a run was not written")]
    Filter(#[from] io::Error),
    /// The index was read anew in between.
    #[error("the writer's connection was opened anew while runs were merged")]
    Reread,
    /// The store is being closed.
    #[error("the store is being closed")]
    Stopping,
}

/// The background task. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Upkeep {
    stopping: Arc<AtomicBool>,
    due: Arc<Notify>,
    task: Option<JoinHandle<()>>,
}

impl Upkeep {
    /// Starts the task. It begins with what the last process left half done.
    pub(crate) fn start(
        errander: Errander,
        readers: SqlitePool,
        due: Arc<Notify>,
        committed: Arc<Notify>,
    ) -> Self {
        let stopping = Arc::new(AtomicBool::new(false));
        let rounds = Rounds {
            errander,
            readers,
            stopping: Arc::clone(&stopping),
            committed,
        };
        due.notify_one();
        let task = tokio::spawn(rounds.run(Arc::clone(&due)));
        Self {
            stopping,
            due,
            task: Some(task),
        }
    }

    /// Stops the task after its step, and waits for its end.
    pub(crate) async fn stop(&mut self) {
        self.tell_to_stop();
        if let Some(task) = self.task.take() {
            // A panic in there has been printed; there is nothing left to do about it here.
            drop(task.await);
        }
    }

    fn tell_to_stop(&self) {
        self.stopping.store(true, Ordering::Relaxed);
        self.due.notify_one();
    }
}

impl Drop for Upkeep {
    fn drop(&mut self) {
        self.tell_to_stop();
    }
}

/// The work itself.
pub(crate) struct Rounds {
    pub(crate) errander: Errander,
    pub(crate) readers: SqlitePool,
    pub(crate) stopping: Arc<AtomicBool>,
    /// Wakes the checkpointer.
    pub(crate) committed: Arc<Notify>,
}

impl Rounds {
    async fn run(self, due: Arc<Notify>) {
        loop {
            due.notified().await;
            match self.round().await {
                Ok(()) => {}
                Err(
                    UpkeepError::Stopping
                    | UpkeepError::NotDone(NotDone::NotReady(NotReady::Closed | NotReady::Gone(_))),
                ) => return,
                Err(error) => {
                    tracing::warn!(%error, "the index of requests was not kept up, which is tried again: {error}");
                    tokio::time::sleep(REST_AFTER_FAILURE).await;
                    due.notify_one();
                }
            }
        }
    }

    /// All that is due.
    pub(crate) async fn round(&self) -> Result<(), UpkeepError> {
        self.sort_recent().await?;
        for run in self.unfinished().await? {
            self.remove(run).await?;
        }
        loop {
            match self.in_turn(|writer| Ok(writer.requests().mergeable())).await? {
                Some(inputs) => self.merge(inputs).await?,
                None => return Ok(()),
            }
        }
    }

    /// Makes a run of what is in memory, if that is much.
    pub(crate) async fn sort_recent(&self) -> Result<(), UpkeepError> {
        self.go_on()?;
        self.in_turn(|writer| {
            if writer.requests().is_recent_due() {
                let (run, step) = writer.requests().sorted()?;
                writer.step(&step)?;
                writer.requests().sort(run);
            }
            Ok(())
        })
        .await
    }

    /// Merges runs into one of the next level, which replaces them.
    async fn merge(&self, inputs: Vec<Arc<SortedRun>>) -> Result<(), UpkeepError> {
        let merged = self.begin(inputs).await?;
        self.end(merged).await
    }

    /// Writes the run, all but its last step.
    pub(crate) async fn begin(&self, inputs: Vec<Arc<SortedRun>>) -> Result<Merged, UpkeepError> {
        let slots = inputs.iter().map(|run| run.slots_max()).sum();
        let level = inputs.iter().map(|run| run.level).max().unwrap_or(0) + 1;
        let (ticket, mut builder) = self
            .in_turn(move |writer| Ok(writer.requests().begin_merge(level, slots)))
            .await?;
        let mut step = Step {
            begins: Some((ticket.run, level)),
            ..Step::default()
        };
        let mut cursors: Vec<_> = inputs.iter().map(|run| Cursor::new(run)).collect();
        let mut places = 0;
        loop {
            let pages = self.next_pages(&mut cursors, &mut builder).await?;
            let count = pages.len();
            step.add_pages(ticket.run, places, pages);
            places += count;
            if count < STEP_PAGES {
                break;
            }
            self.step(std::mem::take(&mut step)).await?;
            self.sort_recent().await?;
        }
        let (run, rest) = builder.finish()?;
        step.add_pages(ticket.run, places, rest.into_iter().collect());
        Ok(Merged {
            ticket,
            run: Arc::new(run),
            step,
            inputs,
        })
    }

    /// Puts the run in the place of those that it was made of, and removes them.
    pub(crate) async fn end(&self, merged: Merged) -> Result<(), UpkeepError> {
        let replaced: Vec<_> = merged.inputs.iter().map(|run| run.number).collect();
        self.replace(merged, &replaced).await?;
        for run in replaced {
            self.remove(run).await?;
        }
        Ok(())
    }

    /// Writes the last step of a merge, with what was forgotten since it began.
    async fn replace(&self, merged: Merged, replaced: &[i64]) -> Result<(), UpkeepError> {
        let Merged {
            ticket,
            run,
            mut step,
            ..
        } = merged;
        step.completes = Some(run.number);
        step.replaces = replaced.to_vec();
        self.in_turn(move |writer| {
            let forgotten = writer.requests().end_merge(ticket).ok_or(UpkeepError::Reread)?;
            step.forgets = Some((Arc::clone(&run), forgotten));
            writer.step(&step)?;
            writer.requests().replace(&step.replaces, run);
            Ok(())
        })
        .await
    }

    /// As many pages as a step adds, or fewer at the end.
    async fn next_pages(
        &self,
        cursors: &mut [Cursor],
        builder: &mut Builder,
    ) -> Result<Vec<Vec<u8>>, UpkeepError> {
        let mut pages = Vec::with_capacity(STEP_PAGES);
        while pages.len() < STEP_PAGES {
            let mut least: Option<(Slot, usize)> = None;
            for (place, cursor) in cursors.iter_mut().enumerate() {
                if let Some(slot) = cursor.peek(&self.readers).await? {
                    least = Some(least.map_or((slot, place), |least| least.min((slot, place))));
                }
            }
            let Some((slot, place)) = least else {
                break;
            };
            cursors[place].slots.next();
            pages.extend(builder.push(slot));
        }
        Ok(pages)
    }

    /// Removes a run that does not count.
    async fn remove(&self, number: i64) -> Result<(), UpkeepError> {
        let pages = pages_of(&self.readers, number).await?;
        let mut from = pages.start;
        while from < pages.end {
            let to = pages.end.min(from + REMOVED_PAGES);
            let step = Step {
                removes: Some(from..to),
                ..Step::default()
            };
            self.step(step).await?;
            from = to;
        }
        let step = Step {
            ends: Some(number),
            ..Step::default()
        };
        self.step(step).await
    }

    /// Runs that do not count: what a process began and did not end.
    async fn unfinished(&self) -> Result<Vec<i64>, UpkeepError> {
        let runs = sqlx::query_scalar!("SELECT run FROM request_runs WHERE NOT is_whole ORDER BY run");
        Ok(runs.fetch_all(&self.readers).await?)
    }

    /// Writes a step, and rests.
    async fn step(&self, step: Step) -> Result<(), UpkeepError> {
        self.go_on()?;
        let took = self
            .in_turn(move |writer| {
                let began = Instant::now();
                writer.step(&step)?;
                Ok(began.elapsed())
            })
            .await?;
        tokio::time::sleep(REST.max(took * RESTS)).await;
        Ok(())
    }

    /// Does something in the writer's turn.
    async fn in_turn<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writer) -> Result<T, UpkeepError> + Send + 'static,
    ) -> Result<T, UpkeepError> {
        let outcome = self.errander.in_turn(work).await;
        // Here and not where errands are done: the checkpointer has some too, and would wake itself for ever.
        self.committed.notify_one();
        outcome?
    }

    fn go_on(&self) -> Result<(), UpkeepError> {
        if self.stopping.load(Ordering::Relaxed) {
            return Err(UpkeepError::Stopping);
        }
        Ok(())
    }
}

/// A merge that is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The run that is written.
    pub(super) run: i64,
    /// How often the index had been read when it began.
    pub(super) reads: u64,
}

/// A run that is written but for its last step.
pub(crate) struct Merged {
    ticket: Ticket,
    run: Arc<SortedRun>,
    step: Step,
    inputs: Vec<Arc<SortedRun>>,
}

/// Reads a run from front to back.
struct Cursor {
    /// The next page to read, and the first that is not the run's.
    pages: std::ops::Range<i64>,
    slots: std::iter::Peekable<std::vec::IntoIter<Slot>>,
}

impl Cursor {
    fn new(run: &SortedRun) -> Self {
        Self {
            pages: run.pages(),
            slots: Vec::new().into_iter().peekable(),
        }
    }

    /// The next slot, if there is one.
    async fn peek(&mut self, readers: &SqlitePool) -> Result<Option<Slot>, sqlx::Error> {
        while self.slots.peek().is_none() && !self.pages.is_empty() {
            let (from, to) = (
                self.pages.start,
                self.pages.end.min(self.pages.start + READ_PAGES),
            );
            self.pages.start = to;
            let rows = sqlx::query!(
                "SELECT page, bytes FROM request_pages WHERE page >= ?1 AND page < ?2 ORDER BY page",
                from,
                to,
            )
            .fetch_all(readers)
            .await?;
            let mut slots = Vec::with_capacity(rows.len() * PAGE_SLOTS);
            for row in rows {
                slots.extend(run::slots(row.page, &row.bytes).map_err(unreadable)?);
            }
            self.slots = slots.into_iter().peekable();
        }
        Ok(self.slots.peek().copied())
    }
}
