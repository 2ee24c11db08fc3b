//! A commit: the heads, the rows, the nouns, COMMIT; and what to do when nobody says what became of it.

use crate::changes::{self, Changes};
use crate::connections::{Lent, broken_off, in_time, is_ended, severity};
use crate::decode::uuid;
use crate::erasures::Erasures;
use crate::insert::{self, Insert};
use crate::landed::{self, Mark};
use crate::remembered::Remembered;
use canon::Digest;
use ledger::Head;
use model::TenantId;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgSeverity;
use sqlx::types::Uuid;
use std::collections::HashMap;
use std::error::Error;
use store::{Batch, ChainPosition, CommitError, TurnOver};
use tokio::time::timeout;

/// The channel on which gateways tell each other that a directory has changed. The payload says which store said so.
pub(crate) const CHANNEL: &str = "countersign_directory";

/// What a commit is about to write, with nothing borrowed from the batch: it goes to a task that outlives the caller.
pub(crate) struct Work {
    tenants: Vec<TenantId>,
    /// Those among them that have never written.
    new: Vec<Uuid>,
    is_nothing: bool,
    insert: Insert,
    changes: Vec<Changes>,
    remembered: Remembered,
    erasures: Erasures,
    /// By what it is known afterwards that the batch is there.
    mark: Option<Mark>,
    /// Which store this is, for those who are told of its changes.
    store: Uuid,
}

/// A turn writes only to the tenants that it was taken for: it has no lock on others.
#[derive(Debug, thiserror::Error)]
#[error("the turn was not taken for {0}")]
struct NotTaken(TenantId);

/// Why a transaction did not commit.
enum Failure {
    /// A tenant's head is another one.
    HeadMoved(TenantId),
    /// A request id, an outcome or the key of an answer was recorded before.
    AlreadyRecorded,
    /// COMMIT was not sent.
    BeforeCommit(Box<dyn Error + Send + Sync>),
    /// COMMIT was sent, and what was heard of it is this.
    AtCommit(Box<dyn Error + Send + Sync>),
}

impl Work {
    /// The work of a batch in a turn that was taken for these tenants, which stand at these positions.
    pub(crate) fn of(
        batch: &Batch,
        taken: &[TenantId],
        positions: &HashMap<TenantId, ChainPosition>,
        store: Uuid,
    ) -> Result<Self, CommitError> {
        let not_written = |error: Box<dyn Error + Send + Sync>| CommitError::NotWritten(error);
        batch.check().map_err(|error| not_written(error.into()))?;
        let mut new = Vec::new();
        for advance in &batch.advances {
            let tenant = advance.tenant;
            if !taken.contains(&tenant) {
                return Err(not_written(NotTaken(tenant).into()));
            }
            // The position was read under the lock that is still held, so this is the whole truth, and nothing has to
            // be sent.
            let position = positions.get(&tenant);
            if advance.from != position.map_or(Head::GENESIS, ChainPosition::head) {
                return Err(CommitError::HeadMoved { tenant });
            }
            if position.is_none() {
                new.push(uuid(tenant));
            }
        }
        // Two gateways that make the same tenants make them in the same order, so that one waits and none is the victim of a
        // deadlock.
        new.sort_unstable();
        Ok(Self {
            tenants: batch.advances.iter().map(|advance| advance.tenant).collect(),
            new,
            is_nothing: batch.is_empty(),
            insert: insert::statement(batch)?,
            changes: changes::of(batch),
            remembered: Remembered::of(batch, positions),
            erasures: Erasures::of(batch),
            mark: Mark::of(batch),
            store,
        })
    }

    /// Whether there is nothing to write.
    pub(crate) const fn is_nothing(&self) -> bool {
        self.is_nothing
    }

    /// Writes it. To be run where nobody cancels it.
    pub(crate) async fn run(self, mut lent: Lent) -> Result<(), CommitError> {
        let mark = self.mark;
        let Err(failure) = self.transact(&mut lent).await else {
            return Ok(());
        };
        // When the caller hears of it, the lock is free.
        lent.roll_back().await;
        match failure {
            Failure::HeadMoved(tenant) => Err(CommitError::HeadMoved { tenant }),
            Failure::AlreadyRecorded => Err(CommitError::AlreadyRecorded),
            Failure::BeforeCommit(error) => Err(CommitError::NotWritten(error)),
            Failure::AtCommit(error) => match landed::look(lent.home(), mark, None).await {
                Some(true) => Ok(()),
                // Whoever looked had the lock that the turn has held, so the turn is over.
                Some(false) => Err(CommitError::NotWritten(Box::new(TurnOver(error)))),
                None => Err(CommitError::Unknown(error)),
            },
        }
    }

    async fn transact(self, lent: &mut Lent) -> Result<(), Failure> {
        let time_max = lent.time_max();
        let work = async {
            if !self.new.is_empty() {
                make_tenants(lent, &self.new).await?;
            }
            let moved = self.insert.fetch_all(lent.start()?).await;
            let moved = lent.settle(moved)?;
            // INVARIANT: a batch is committed only if every head was where it advances from.
            all_of(&self.tenants, &moved)?;
            for changes in &self.changes {
                let written = changes.write(lent.start()?).await;
                lent.settle(written)?;
            }
            if !self.erasures.is_empty() {
                let written = self.erasures.write(lent.start()?).await;
                lent.settle(written)?;
            }
            if !self.changes.is_empty() {
                let written = self.remembered.write(lent.start()?, self.store).await;
                lent.settle(written)?;
            }
            Ok(())
        };
        timeout(time_max, work)
            .await
            .unwrap_or_else(|elapsed| Err(Failure::BeforeCommit(elapsed.into())))?;
        commit(lent).await
    }
}

/// Makes tenants that have never written, at the beginning of their chains.
async fn make_tenants(lent: &mut Lent, new: &[Uuid]) -> Result<(), Failure> {
    let zero = &Digest::ZERO.as_bytes()[..];
    let made = sqlx::query_scalar!(
        "INSERT INTO tenants (tenant_id, head_seq, head_hash, head_at, revision, edge)
         SELECT tenant_id, 0, $2, 0, 0, ''
         FROM unnest($1::uuid[]) AS tenant (tenant_id)
         ON CONFLICT DO NOTHING
         RETURNING tenant_id",
        new,
        zero,
    )
    .fetch_all(lent.start()?)
    .await;
    let made = lent.settle(made)?;
    // Another gateway was faster, and this one has waited for it.
    let new: Vec<_> = new
        .iter()
        .map(|id| TenantId::from_bytes(id.into_bytes()))
        .collect();
    all_of(&new, &made)
}

/// That every tenant is among those that a statement returned.
fn all_of(tenants: &[TenantId], returned: &[Uuid]) -> Result<(), Failure> {
    if tenants.len() == returned.len() {
        return Ok(());
    }
    let missing = tenants.iter().find(|tenant| !returned.contains(&uuid(**tenant)));
    missing.map_or(Ok(()), |tenant| Err(Failure::HeadMoved(*tenant)))
}

async fn commit(lent: &mut Lent) -> Result<(), Failure> {
    let statement = sqlx::raw_sql("COMMIT");
    let done = in_time(lent.time_max(), statement.execute(lent.start()?)).await;
    match lent.settle_clean(done) {
        Ok(_) => Ok(()),
        // It was sent to nobody any more.
        Err(error) if is_ended(&error) => Err(Failure::BeforeCommit(broken_off(error))),
        // The server says that it did not commit, and goes on living.
        Err(error) if severity(&error) == Some(PgSeverity::Error) => Err(Failure::BeforeCommit(error.into())),
        Err(error) => Err(Failure::AtCommit(error.into())),
    }
}

/// An error of a statement before COMMIT.
impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        if names_a_repetition(&error) {
            Self::AlreadyRecorded
        } else {
            Self::BeforeCommit(broken_off(error))
        }
    }
}

/// Whether the server refuses a batch because a request, an outcome or the key of an answer in it was recorded before.
pub(crate) fn names_a_repetition(error: &sqlx::Error) -> bool {
    let key = error.as_database_error().and_then(DatabaseError::constraint);
    matches!(key, Some("requests_pkey" | "outcomes_pkey" | "replies_pkey"))
}
