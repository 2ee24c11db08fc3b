//! A batch that is written without a turn: one statement, and with it one round trip, where a turn is three.
//!
//! The statement is a transaction of its own. It writes nothing unless the head is where the batch says, so it needs no lock
//! that was taken before. What a turn is for, it cannot do: several tenants, because their heads would be locked in no
//! order; a tenant that has never written; nouns and erasures, which are statements of their own.

use crate::PostgresStore;
use crate::commit::names_a_repetition;
use crate::connections::{Lent, in_time, severity};
use crate::insert::{self, Insert};
use crate::landed::{self, Mark};
use ledger::Head;
use model::TenantId;
use sqlx::postgres::PgSeverity;
use store::{Batch, CommitError};

/// A batch that one statement can write, with nothing borrowed from it: it goes to a task that outlives the caller.
pub(crate) struct Append {
    tenant: TenantId,
    insert: Insert,
    /// By what it is known afterwards that the batch is there.
    mark: Option<Mark>,
}

/// What became of it.
pub(crate) enum Appended {
    /// It is written.
    Written,
    /// It is not, or nobody knows.
    Failed(CommitError),
    /// It is not, and can be in a turn. The connection was of no use any more, because the server was restarted since
    /// it was made, say; or the server does not tell which session it is, which only a turn can do without.
    NeedsTurn,
}

impl Append {
    /// The statement of a batch; none if a turn is needed.
    pub(crate) fn of(batch: &Batch) -> Result<Option<Self>, CommitError> {
        batch
            .check()
            .map_err(|error| CommitError::NotWritten(error.into()))?;
        let [advance] = &batch.advances[..] else {
            return Ok(None);
        };
        let has_more = !batch.writes.is_empty() || !batch.erasures.is_empty();
        if advance.from == Head::GENESIS || has_more {
            return Ok(None);
        }
        Ok(Some(Self {
            tenant: advance.tenant,
            insert: insert::statement(batch)?,
            mark: Mark::of(batch),
        }))
    }

    /// Writes it, where nobody cancels it.
    pub(crate) async fn write(self, store: &PostgresStore) -> Appended {
        let not_written = |error| Appended::Failed(CommitError::NotWritten(error));
        let mut lent = match store.turns.lend().await {
            Ok(lent) => lent,
            Err(error) => return not_written(error.into()),
        };
        // Which session it is has to be known before anything can be lost in it.
        match lent.identify().await {
            Ok(true) => {}
            Ok(false) => return Appended::NeedsTurn,
            Err(error) => {
                return match lent.replace(&error).await {
                    Ok(true) => Appended::NeedsTurn,
                    _ => not_written(error.into()),
                };
            }
        }
        let task = tokio::spawn(self.run(lent));
        let outcome = task.await;
        outcome.unwrap_or_else(|error| Appended::Failed(CommitError::Unknown(error.into())))
    }

    async fn run(self, mut lent: Lent) -> Appended {
        let time_max = lent.time_max();
        let moved = match lent.start() {
            Ok(connection) => in_time(time_max, self.insert.fetch_all(connection)).await,
            Err(error) => Err(error),
        };
        let error = match lent.settle_clean(moved) {
            Ok(moved) if moved.is_empty() => {
                return Appended::Failed(CommitError::HeadMoved { tenant: self.tenant });
            }
            Ok(_) => return Appended::Written,
            Err(error) => error,
        };
        // The server says that it undid the statement, and goes on living.
        if severity(&error) == Some(PgSeverity::Error) {
            return Appended::Failed(if names_a_repetition(&error) {
                CommitError::AlreadyRecorded
            } else {
                CommitError::NotWritten(error.into())
            });
        }
        let sender = lent.hang_up();
        match landed::look(lent.home(), self.mark, sender).await {
            Some(true) => Appended::Written,
            Some(false) => Appended::NeedsTurn,
            None => Appended::Failed(CommitError::Unknown(error.into())),
        }
    }
}
