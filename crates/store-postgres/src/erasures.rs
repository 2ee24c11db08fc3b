//! Erasing bodies: the one way in which a row of the ledger changes, and what goes with it. It is part of a commit.

use crate::decode::{RowLabel, uuid};
use model::TenantId;
use sqlx::PgConnection;
use sqlx::postgres::{PgArguments, PgRow, Postgres};
use sqlx::query::Map;
use sqlx::types::Uuid;
use store::{Batch, ErasureRow, StoreError};

/// The erasures of a batch, a vector a column, with nothing borrowed from it.
#[derive(Default)]
pub(crate) struct Erasures {
    tenants: Vec<Uuid>,
    seqs: Vec<i64>,
    bodies: Vec<Vec<u8>>,
    by: Vec<i64>,
    agents: Vec<Option<Uuid>>,
    request_ids: Vec<Option<String>>,
    outcomes: Vec<Option<Uuid>>,
    approvals: Vec<Option<Uuid>>,
    reservations: Vec<Option<Uuid>>,
}

impl Erasures {
    pub(crate) fn of(batch: &Batch) -> Self {
        let mut erasures = Self::default();
        for row in &batch.erasures {
            erasures.push(row);
        }
        erasures
    }

    fn push(&mut self, row: &ErasureRow) {
        let (agent, request_id) = row
            .request
            .as_ref()
            .map(|(agent, id)| (*agent.as_bytes(), id))
            .unzip();
        self.tenants.push(uuid(row.tenant));
        // INVARIANT: a checked batch erases nothing behind the head that it advances to, and that fits.
        self.seqs.push(row.seq.cast_signed());
        self.bodies.push(row.body.as_bytes().to_vec());
        self.by.push(row.by.cast_signed());
        self.agents.push(agent.map(Uuid::from_bytes));
        self.request_ids.push(request_id.map(ToString::to_string));
        self.outcomes
            .push(row.outcome.map(|decision| Uuid::from_bytes(*decision.as_bytes())));
        self.approvals.push(
            row.approval
                .map(|approval| Uuid::from_bytes(*approval.as_bytes())),
        );
        self.reservations
            .push(row.reservation.map(|held| Uuid::from_bytes(*held.as_bytes())));
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.tenants.is_empty()
    }

    /// Erases them. One that was erased before is left as it is. It comes after the rows of the batch, because the entry that
    /// tells of it has to be there.
    pub(crate) async fn write(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "UPDATE audit_events
             SET body = '',
                 erased_body = erased.body,
                 erased_by = erased.by
             FROM unnest($1::uuid[], $2::bigint[], $3::bytea[], $4::bigint[]) AS erased (tenant_id, seq, body, by)
             WHERE audit_events.tenant_id = erased.tenant_id
               AND audit_events.seq = erased.seq
               AND audit_events.erased_by IS NULL",
            &self.tenants,
            &self.seqs,
            &self.bodies,
            &self.by,
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "DELETE FROM receipts
             USING unnest($1::uuid[], $2::bigint[]) AS erased (tenant_id, seq)
             WHERE receipts.tenant_id = erased.tenant_id
               AND receipts.seq = erased.seq",
            &self.tenants,
            &self.seqs,
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "DELETE FROM decisions
             USING unnest($1::uuid[], $2::bigint[]) AS erased (tenant_id, seq)
             WHERE decisions.tenant_id = erased.tenant_id
               AND decisions.seq = erased.seq",
            &self.tenants,
            &self.seqs,
        )
        .execute(&mut *connection)
        .await?;
        self.write_keyed(connection).await
    }

    /// Rows that are found by another key than the `seq`.
    async fn write_keyed(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "DELETE FROM requests
             USING unnest($1::uuid[], $2::bigint[], $3::uuid[], $4::text[]) AS erased (tenant_id, seq, agent, request_id)
             WHERE requests.tenant_id = erased.tenant_id
               AND requests.agent = erased.agent
               AND requests.request_id = erased.request_id
               AND requests.seq = erased.seq",
            &self.tenants,
            &self.seqs,
            &self.agents as &[Option<Uuid>],
            &self.request_ids as &[Option<String>],
        )
        .execute(&mut *connection)
        .await?;
        // What led to the outcome leads to the erasure: nobody reports one behind it. In a ledger that was tampered
        // with, two bodies may name one decision, and one statement does not put a row twice.
        sqlx::query!(
            "INSERT INTO outcomes (tenant_id, decision, seq)
             SELECT DISTINCT ON (erased.tenant_id, erased.decision)
                 erased.tenant_id,
                 erased.decision,
                 erased.by
             FROM unnest($1::uuid[], $2::uuid[], $3::bigint[]) AS erased (tenant_id, decision, by)
             WHERE erased.decision IS NOT NULL
             ON CONFLICT (tenant_id, decision) DO UPDATE
             SET seq = excluded.seq",
            &self.tenants,
            &self.outcomes as &[Option<Uuid>],
            &self.by,
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "DELETE FROM approvals
             USING unnest($1::uuid[], $2::uuid[]) AS erased (tenant_id, id)
             WHERE approvals.tenant_id = erased.tenant_id
               AND approvals.id = erased.id",
            &self.tenants,
            &self.approvals as &[Option<Uuid>],
        )
        .execute(&mut *connection)
        .await?;
        // What is held is held in budgets, and is settled or ends by its row.
        sqlx::query!(
            "DELETE FROM reservations
             USING unnest($1::uuid[], $2::uuid[]) AS erased (tenant_id, id)
             WHERE reservations.tenant_id = erased.tenant_id
               AND reservations.id = erased.id
               AND reservations.status <> 'active'",
            &self.tenants,
            &self.reservations as &[Option<Uuid>],
        )
        .execute(connection)
        .await
        .map(drop)
    }
}

/// An entry whose body is erased.
pub(crate) struct Gone {
    tenant_id: Uuid,
    seq: i64,
}

/// Those of these entries whose bodies are erased.
pub(crate) fn question(
    entries: &[(TenantId, u64)],
) -> Map<'static, Postgres, impl FnMut(PgRow) -> Result<Gone, sqlx::Error> + Send, PgArguments> {
    let tenants: Vec<_> = entries.iter().map(|(tenant, _)| uuid(*tenant)).collect();
    let seqs: Vec<_> = entries.iter().map(|(_, seq)| seq.cast_signed()).collect();
    sqlx::query_as!(
        Gone,
        "SELECT
             audit_events.tenant_id,
             audit_events.seq
         FROM unnest($1::uuid[], $2::bigint[]) AS asked (tenant_id, seq)
         JOIN audit_events
             ON audit_events.tenant_id = asked.tenant_id
            AND audit_events.seq = asked.seq
         WHERE audit_events.erased_by IS NOT NULL",
        &tenants,
        &seqs,
    )
}

/// What was found.
pub(crate) fn decode(found: Vec<Gone>) -> Result<Vec<(TenantId, u64)>, StoreError> {
    let found = found.into_iter().map(|gone| {
        let label = RowLabel {
            table: "audit_events",
            tenant: TenantId::from_bytes(gone.tenant_id.into_bytes()),
            seq: Some(gone.seq),
        };
        Ok((label.tenant, label.unsigned("seq", gone.seq)?))
    });
    found.collect()
}
