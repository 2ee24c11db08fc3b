//! Erasing bodies: the one way in which a row of the ledger changes, and what goes with it. It is part of a commit.

use crate::entry;
use crate::insert::TenantNumbers;
use crate::requests::{RequestDigest, Requests, Slot};
use sqlx::SqliteConnection;
use std::fmt::Write as _;
use store::Batch;

/// The erasures of a batch, with nothing borrowed from it.
#[derive(Default)]
pub(crate) struct Erasures {
    /// The entries, as JSON: `[[entry,"digest in hexadecimal",by],…]`.
    bodies: String,
    /// What led to them from their requests.
    requests: Vec<Slot>,
    /// The keys of `outcomes` that go.
    outcomes: Vec<(i64, Vec<u8>)>,
    /// The keys of `approvals` that go.
    approvals: Vec<(i64, Vec<u8>)>,
}

impl Erasures {
    pub(crate) fn of(batch: &Batch, numbers: &TenantNumbers) -> Self {
        let mut erasures = Self::default();
        for row in &batch.erasures {
            // INVARIANT: a checked batch advances the tenant of every erasure, and erases nothing behind its head.
            let Some(tenant_no) = numbers.get(&row.tenant).copied() else {
                continue;
            };
            let Some(entry) = entry::number(tenant_no, row.seq) else {
                continue;
            };
            erasures
                .bodies
                .push(if erasures.bodies.is_empty() { '[' } else { ',' });
            erasures.push_body(entry, row.body.as_bytes(), row.by);
            if let Some((agent, request_id)) = &row.request {
                let digest = RequestDigest::of(row.tenant.as_bytes(), agent.as_bytes(), request_id.as_str());
                erasures.requests.push(digest.slot(entry));
            }
            let outcome = row
                .outcome
                .map(|decision| (tenant_no, decision.as_bytes().to_vec()));
            erasures.outcomes.extend(outcome);
            let approval = row
                .approval
                .map(|approval| (tenant_no, approval.as_bytes().to_vec()));
            erasures.approvals.extend(approval);
        }
        if !erasures.bodies.is_empty() {
            erasures.bodies.push(']');
        }
        erasures
    }

    fn push_body(&mut self, entry: i64, digest: &[u8; 32], by: u64) {
        write!(self.bodies, "[{entry},\"").expect("writing to a string does not fail");
        for byte in digest {
            write!(self.bodies, "{byte:02x}").expect("writing to a string does not fail");
        }
        write!(self.bodies, "\",{by}]").expect("writing to a string does not fail");
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.bodies.is_empty()
    }

    /// Erases them. One that was erased before is left as it is. It comes after the rows of the batch, because the entry that
    /// tells of it has to be there.
    pub(crate) async fn write(
        &self,
        connection: &mut SqliteConnection,
        requests: &Requests,
    ) -> Result<(), sqlx::Error> {
        sqlx::query!(
            "UPDATE audit_events
             SET body = '',
                 packed = NULL,
                 erased_body = unhex(erased.value ->> 1),
                 erased_by = erased.value ->> 2
             FROM json_each(?1) AS erased
             WHERE audit_events.entry = erased.value ->> 0
               AND audit_events.erased_by IS NULL",
            self.bodies,
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "DELETE FROM receipts WHERE entry IN (SELECT value ->> 0 FROM json_each(?1))",
            self.bodies,
        )
        .execute(&mut *connection)
        .await?;
        sqlx::query!(
            "DELETE FROM decisions WHERE entry IN (SELECT value ->> 0 FROM json_each(?1))",
            self.bodies,
        )
        .execute(&mut *connection)
        .await?;
        requests.forget_in_runs(connection, &self.requests).await?;
        self.delete_keyed(connection).await
    }

    /// What led from requests to erased entries, after the commit.
    pub(crate) fn into_requests(self) -> Vec<Slot> {
        self.requests
    }

    /// Rows that are found by another key than the entry: one by one, because SQLite would go through all of the tenant's for a
    /// list of such keys.
    async fn delete_keyed(&self, connection: &mut SqliteConnection) -> Result<(), sqlx::Error> {
        for (tenant_no, decision) in &self.outcomes {
            sqlx::query!(
                "DELETE FROM outcomes WHERE tenant_no = ?1 AND decision = ?2",
                tenant_no,
                decision,
            )
            .execute(&mut *connection)
            .await?;
        }
        for (tenant_no, approval) in &self.approvals {
            sqlx::query!(
                "DELETE FROM approvals WHERE tenant_no = ?1 AND id = ?2",
                tenant_no,
                approval,
            )
            .execute(&mut *connection)
            .await?;
        }
        Ok(())
    }
}
