//! The turn to write: a transaction that holds the rows of its tenants from its first round trip to its last.
//!
//! The rows of `tenants` are the locks. They are taken in the order of the ids, so that no two turns ever wait for each
//! other; there is nobody who hands out turns but the server. A turn that is dropped is rolled back, and one whose process
//! is gone is rolled back by the server.

use crate::append::{Append, Appended};
use crate::commit::Work;
use crate::connections::{Lent, broken_off, in_time};
use crate::decode::{RowLabel, uuid};
use crate::requests::Answered;
use crate::{
    PostgresStore, approvals, budgets, counters, erasures, links, mistyped, reservations, runs, unavailable,
};
use async_trait::async_trait;
use canon::Digest;
use ledger::Head;
use model::{
    Approval, ApprovalId, Budget, Counter, DecisionId, Name, Reservation, RunLink, RunTaint, TenantId,
    Timestamp,
};
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use sqlx::{AssertSqlSafe, Row as _};
use std::collections::HashMap;
use std::fmt::Write as _;
use store::{
    Batch, ChainPosition, CommitError, FoundRequest, Journal, ReplyKey, ReplyRow, RequestKey, StoreError,
    Turn, WantedBudgets, WantedReservations, commit_in_turn,
};

/// Begins a transaction in which every statement sees what was committed before it, and that may write: whatever the
/// database has as its default.
const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

#[async_trait]
impl Journal for PostgresStore {
    async fn begin(&self, tenants: &[TenantId]) -> Result<Box<dyn Turn>, StoreError> {
        let mut lent = self.turns.lend().await.map_err(unavailable)?;
        let text = opening(tenants);
        let rows = match lock(&mut lent, text.clone()).await {
            Ok(rows) => rows,
            Err(error) if lent.replace(&error).await.map_err(unavailable)? => {
                lock(&mut lent, text).await.map_err(unavailable)?
            }
            Err(error) => return Err(unavailable(error)),
        };
        let positions = rows.iter().map(position).collect::<Result<_, _>>()?;
        Ok(Box::new(PostgresTurn {
            lent,
            taken: tenants.to_vec(),
            positions,
            store: self.id,
        }))
    }

    async fn append(&self, batch: &Batch) -> Result<(), CommitError> {
        if let Some(append) = Append::of(batch)? {
            match append.write(self).await {
                Appended::Written => return Ok(()),
                Appended::Failed(error) => return Err(error),
                Appended::NeedsTurn => {}
            }
        }
        commit_in_turn(self, batch).await
    }
}

/// The statements that begin a turn and lock its tenants, as one text, because that is one round trip; which is why the ids
/// stand in it and are not bound. They are 16 bytes each, written as hexadecimal digits, so nothing can be smuggled in.
fn opening(tenants: &[TenantId]) -> String {
    let mut text = BEGIN.to_owned();
    for (at, tenant) in tenants.iter().enumerate() {
        text.push_str(match at {
            0 => {
                "; SELECT tenant_id, head_seq, head_hash, head_at, revision, edge \
                 FROM tenants \
                 WHERE tenant_id IN ('"
            }
            _ => "', '",
        });
        write!(text, "{}", uuid(*tenant).as_simple()).expect("writing to a string does not fail");
    }
    if !tenants.is_empty() {
        text.push_str("') ORDER BY tenant_id FOR UPDATE");
    }
    text
}

async fn lock(lent: &mut Lent, text: String) -> Result<Vec<PgRow>, sqlx::Error> {
    let statements = sqlx::raw_sql(AssertSqlSafe(text));
    let rows = in_time(lent.time_max(), statements.fetch_all(lent.start_transaction()?)).await;
    lent.settle(rows)
}

fn position(row: &PgRow) -> Result<(TenantId, ChainPosition), StoreError> {
    let number = |column| row.try_get::<i64, _>(column).map_err(unavailable);
    let tenant: Uuid = row.try_get(0).map_err(unavailable)?;
    let tenant = TenantId::from_bytes(tenant.into_bytes());
    let hash: Vec<u8> = row.try_get(2).map_err(unavailable)?;
    let edge: Vec<u8> = row.try_get(5).map_err(unavailable)?;
    let label = RowLabel {
        table: "tenants",
        tenant,
        seq: None,
    };
    let head = Head {
        seq: label.unsigned("head_seq", number(1)?)?,
        hash: label.digest("head_hash", &hash)?,
    };
    let position = ChainPosition {
        tip: label.tip(head, &edge)?,
        at: Timestamp::from_millis(number(3)?),
        revision: label.unsigned("revision", number(4)?)?,
    };
    Ok((tenant, position))
}

/// A turn that was taken.
struct PostgresTurn {
    lent: Lent,
    taken: Vec<TenantId>,
    positions: HashMap<TenantId, ChainPosition>,
    /// Which store this is.
    store: Uuid,
}

#[async_trait]
impl Turn for PostgresTurn {
    fn positions(&self) -> &HashMap<TenantId, ChainPosition> {
        &self.positions
    }

    async fn find_requests(&mut self, keys: &[RequestKey]) -> Result<Vec<FoundRequest>, StoreError> {
        Answered::decode(ask(&mut self.lent, Answered::question(keys)).await?)
    }

    async fn find_outcomes(
        &mut self,
        decisions: &[(TenantId, DecisionId)],
    ) -> Result<Vec<DecisionId>, StoreError> {
        let tenants: Vec<_> = decisions.iter().map(|(tenant, _)| uuid(*tenant)).collect();
        let ids: Vec<_> = decisions
            .iter()
            .map(|(_, id)| Uuid::from_bytes(*id.as_bytes()))
            .collect();
        let query = sqlx::query!(
            "SELECT outcomes.decision
             FROM unnest($1::uuid[], $2::uuid[]) AS asked (tenant_id, decision)
             JOIN outcomes
                 ON outcomes.tenant_id = asked.tenant_id
                AND outcomes.decision = asked.decision",
            &tenants,
            &ids,
        );
        let found = ask(&mut self.lent, query).await?.into_iter();
        let decisions = found.map(|row| DecisionId::from_bytes(row.decision.into_bytes()));
        Ok(decisions.collect())
    }

    async fn find_erased(&mut self, entries: &[(TenantId, u64)]) -> Result<Vec<(TenantId, u64)>, StoreError> {
        erasures::decode(ask(&mut self.lent, erasures::question(entries)).await?)
    }

    async fn find_approvals(
        &mut self,
        approvals: &[(TenantId, ApprovalId)],
    ) -> Result<Vec<(TenantId, Approval)>, StoreError> {
        approvals::find(&mut self.lent, approvals).await
    }

    async fn find_runs(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunTaint)>, StoreError> {
        runs::decode(ask(&mut self.lent, runs::question(runs)).await?)
    }

    async fn find_budgets(&mut self, wanted: &WantedBudgets) -> Result<Vec<(TenantId, Budget)>, StoreError> {
        budgets::decode(ask(&mut self.lent, budgets::question(wanted)).await?)
    }

    async fn find_reservations(
        &mut self,
        wanted: &WantedReservations,
    ) -> Result<Vec<(TenantId, Reservation)>, StoreError> {
        reservations::decode(ask(&mut self.lent, reservations::question(wanted)).await?)
    }

    async fn find_first_ends(
        &mut self,
        tenants: &[TenantId],
        after: Timestamp,
    ) -> Result<Vec<(TenantId, Timestamp)>, StoreError> {
        let found = ask(&mut self.lent, reservations::first_ends(tenants, after)).await?;
        Ok(reservations::decode_first_ends(found))
    }

    async fn have_budgets(&mut self, tenants: &[TenantId]) -> Result<Vec<TenantId>, StoreError> {
        let found = ask(&mut self.lent, budgets::have(tenants)).await?;
        Ok(budgets::tenants(found))
    }

    async fn find_run_links(
        &mut self,
        runs: &[(TenantId, Name)],
    ) -> Result<Vec<(TenantId, RunLink)>, StoreError> {
        links::decode(ask(&mut self.lent, links::question(runs)).await?)
    }

    async fn find_replies(&mut self, keys: &[ReplyKey]) -> Result<Vec<ReplyRow>, StoreError> {
        links::decode_replies(ask(&mut self.lent, links::reply_question(keys)).await?)
    }

    async fn find_counters(
        &mut self,
        keys: &[(TenantId, Digest)],
    ) -> Result<Vec<(TenantId, Counter)>, StoreError> {
        counters::decode(ask(&mut self.lent, counters::question(keys)).await?)
    }

    async fn commit(self: Box<Self>, batch: &Batch) -> Result<(), CommitError> {
        let work = Work::of(batch, &self.taken, &self.positions, self.store)?;
        if work.is_nothing() {
            return Ok(());
        }
        // Up to here the caller can go away and nothing has happened. From here on it cannot stop the transaction: the
        // task owns the turn and all that it writes.
        let task = tokio::spawn(work.run(self.lent));
        let outcome = task.await;
        outcome.unwrap_or_else(|error| Err(CommitError::Unknown(Box::new(error))))
    }
}

/// The rows that a query gives in a turn.
pub(crate) async fn ask<O: Send + Unpin, F: FnMut(PgRow) -> Result<O, sqlx::Error> + Send>(
    lent: &mut Lent,
    question: Map<'static, Postgres, F, PgArguments>,
) -> Result<Vec<O>, StoreError> {
    let found = in_time(
        lent.time_max(),
        question.fetch_all(lent.start().map_err(unavailable)?),
    )
    .await;
    lent.settle(found).map_err(unread)
}

/// What could not be looked up in a turn, or why the turn was over. Of what the server has found damaged nobody knows
/// whose it is: nothing can be recorded for anybody then.
fn unread(error: sqlx::Error) -> StoreError {
    mistyped(&error).unwrap_or_else(|| StoreError::Unavailable(broken_off(error)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_begins_with_one_text() {
        assert_eq!(opening(&[]), BEGIN);
        let tenants = [TenantId::from_bytes([0x27; 16]), TenantId::SYSTEM];
        assert_eq!(
            opening(&tenants),
            "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE; \
             SELECT tenant_id, head_seq, head_hash, head_at, revision, edge FROM tenants \
             WHERE tenant_id IN ('27272727272727272727272727272727', '00000000000000000000000000000000') \
             ORDER BY tenant_id FOR UPDATE"
        );
    }
}
