//! Whether what was reported of a decision is remembered beside the ledger: by that it is known that there is an
//! outcome already, and nothing is reported, and charged, twice.
//!
//! What is remembered without an entry that tells of it is not looked for.

use super::audit::Fault;
use engine::EntryKind;
use model::{DecisionId, TenantId};
use serde::Deserialize;
use store::{Recorded, Store, StoreError, StoredEntry};

/// What the entry of an outcome says.
#[derive(Deserialize)]
struct OutcomeBody {
    decision_id: DecisionId,
}

/// The first of these entries that tells of an outcome which is not remembered, or of which nobody can read whether it
/// is. That of a decision which was erased does not have to be.
pub(super) async fn forgotten(
    store: &dyn Store,
    tenant: TenantId,
    chunk: &[Recorded],
) -> Result<Option<Fault>, StoreError> {
    let reported = chunk.iter().filter_map(|recorded| decision_of(&recorded.entry));
    let (seqs, decisions): (Vec<_>, Vec<_>) = reported.unzip();
    if decisions.is_empty() {
        return Ok(None);
    }
    let (remembered, unreadable) = remembered(store, tenant, &seqs, &decisions).await?;
    for (seq, decision) in seqs.into_iter().zip(decisions) {
        if unreadable.as_ref().is_some_and(|fault| fault.seq == seq) {
            break;
        }
        if remembered.binary_search(&seq).is_ok() {
            continue;
        }
        let is_there = match store.decision(tenant, decision).await {
            Ok(decision) => decision.is_some(),
            // It is there, and what is wrong with it is found at its own entry.
            Err(StoreError::Corrupt { .. }) => true,
            Err(error) => return Err(error),
        };
        if is_there {
            let what = format!("no outcome is stored for `{decision}`, or that of another entry");
            return Ok(Some(Fault::at(seq, what)));
        }
    }
    Ok(unreadable)
}

/// The entries of the outcomes that are remembered of these decisions, whose outcomes `seqs` tell, up to the first that
/// cannot be read. Which one that is, is found by reading them one by one.
async fn remembered(
    store: &dyn Store,
    tenant: TenantId,
    seqs: &[u64],
    decisions: &[DecisionId],
) -> Result<(Vec<u64>, Option<Fault>), StoreError> {
    match store.outcomes_of(tenant, decisions).await {
        Err(StoreError::Corrupt { .. }) => {}
        remembered => return Ok((remembered?, None)),
    }
    let mut unreadable = None;
    let mut remembered = Vec::with_capacity(decisions.len());
    for (seq, decision) in seqs.iter().zip(decisions) {
        match store.outcomes_of(tenant, std::slice::from_ref(decision)).await {
            Err(StoreError::Corrupt { what }) => {
                unreadable = Some(Fault::at(*seq, what));
                break;
            }
            one => remembered.extend(one?),
        }
    }
    remembered.sort_unstable();
    Ok((remembered, unreadable))
}

/// Of which decision's outcome an entry tells, with its place.
fn decision_of(entry: &StoredEntry) -> Option<(u64, DecisionId)> {
    if entry.kind != EntryKind::OutcomeReported.as_str() {
        return None;
    }
    let body: OutcomeBody = serde_json::from_str(&entry.body).ok()?;
    Some((entry.seq, body.decision_id))
}
