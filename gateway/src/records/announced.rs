//! Whether every ledger is there that the system tenant's one tells of. Whoever takes one away as a whole takes away everything that could
//! miss it, but for that entry.
//!
//! What stands in the other ledgers is not looked at here.

use super::audit::Fault;
use engine::EntryKind;
use model::TenantId;
use serde::Deserialize;
use store::{Recorded, Store, StoreError, StoredEntry};

/// What the entry of a new tenant says.
#[derive(Deserialize)]
struct Told {
    id: TenantId,
}

/// The first of these entries that tells of a ledger that is not there. The first entry of that one came with the same commit, and so whoever
/// has read the one finds the other.
pub(super) async fn gone(
    store: &dyn Store,
    tenant: TenantId,
    chunk: &[Recorded],
) -> Result<Option<Fault>, StoreError> {
    if tenant != TenantId::SYSTEM {
        return Ok(None);
    }
    for Recorded { entry, .. } in chunk {
        let Some(told) = told(entry) else { continue };
        let is_gone = match store.head(told).await {
            Ok(head) => head.seq == 0,
            // It is there, and what is wrong with it is found where it is verified itself.
            Err(StoreError::Corrupt { .. }) => false,
            Err(error) => return Err(error),
        };
        if is_gone {
            let what = format!("it tells of the ledger of {told}, and there is none");
            return Ok(Some(Fault {
                gone: Some(told),
                ..Fault::at(entry.seq, what)
            }));
        }
    }
    Ok(None)
}

/// Of which tenant an entry tells that it is new.
fn told(entry: &StoredEntry) -> Option<TenantId> {
    if entry.kind != EntryKind::TenantCreated.as_str() {
        return None;
    }
    let told: Told = serde_json::from_str(&entry.body).ok()?;
    Some(told.id)
}
