//! Erasing bodies: the one way in which a row of the ledger changes, and what goes with it. It is part of a commit.

use crate::commit::{NotWritten, Transaction};
use crate::entry;
use crate::requests::{RequestDigest, Requests, Slot};
use rusqlite::params;
use store::ErasureRow;

/// One that was erased before is left as it is.
const BODY: &str = "UPDATE audit_events \
    SET body = '', packed = NULL, erased_body = ?, erased_by = ? \
    WHERE entry = ? AND erased_by IS NULL";
const RECEIPT: &str = "DELETE FROM receipts WHERE entry = ?";
const DECISION: &str = "DELETE FROM decisions WHERE entry = ?";
/// What led to the outcome leads to the erasure: nobody reports one behind it.
const OUTCOME: &str = "INSERT INTO outcomes (tenant_no, decision, entry) \
    VALUES (?, ?, ?) \
    ON CONFLICT (tenant_no, decision) DO UPDATE SET entry = excluded.entry";
/// What is held is held in budgets, and is settled or ends by its row.
const RESERVATION: &str = "DELETE FROM reservations WHERE tenant_no = ? AND id = ? AND status <> 'active'";
const APPROVAL: &str = "DELETE FROM approvals WHERE tenant_no = ? AND id = ?";

/// What commits do here.
pub(crate) const STATEMENTS: [&str; 6] = [BODY, RECEIPT, DECISION, OUTCOME, APPROVAL, RESERVATION];

/// Erases bodies. It comes after the rows of the batch, because the entry that tells of it has to be there.
pub(crate) fn write(
    transaction: &Transaction<'_>,
    erasures: &[ErasureRow],
    requests: &Requests,
) -> Result<(), NotWritten> {
    for row in erasures {
        let tenant_no = transaction.tenant_no(row.tenant)?;
        let entry = transaction.entry(row.tenant, row.seq)?;
        let telling = transaction.entry(row.tenant, row.by)?;
        let by = entry::seq(telling).cast_signed();
        let mut erase = transaction.statement(BODY)?;
        erase.execute(params![row.body.as_bytes(), by, entry])?;
        transaction.statement(RECEIPT)?.execute([entry])?;
        transaction.statement(DECISION)?.execute([entry])?;
        if let Some(decision) = &row.outcome {
            let mark = params![tenant_no, decision.as_bytes(), telling];
            transaction.statement(OUTCOME)?.execute(mark)?;
        }
        if let Some(approval) = &row.approval {
            let key = params![tenant_no, approval.as_bytes()];
            transaction.statement(APPROVAL)?.execute(key)?;
        }
        if let Some(reservation) = &row.reservation {
            let key = params![tenant_no, reservation.as_bytes()];
            transaction.statement(RESERVATION)?.execute(key)?;
        }
        if let Some(slot) = slot(row, entry) {
            requests.forget_in_runs(transaction, slot)?;
        }
    }
    Ok(())
}

/// What leads from the request of an erased body to its entry.
pub(crate) fn slot(row: &ErasureRow, entry: i64) -> Option<Slot> {
    let (agent, request_id) = row.request.as_ref()?;
    let digest = RequestDigest::of(row.tenant.as_bytes(), agent.as_bytes(), request_id.as_str());
    Some(digest.slot(entry))
}
