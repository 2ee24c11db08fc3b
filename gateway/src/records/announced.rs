//! Whether every ledger is there that the system tenant's one tells of. Whoever takes one away as a whole takes away
//! everything that could miss it, but for that entry.
//!
//! Of the other ledgers only the first entry is looked at here: where one was taken away and somebody was answered
//! since, there is one again, which begins with that answer.

use super::audit::{Audited, Fault};
use engine::EntryKind;
use model::TenantId;
use serde::Deserialize;
use store::{Recorded, Store, StoreError, StoredEntry};

/// What the entry of a new tenant says.
#[derive(Deserialize)]
struct TenantBody {
    id: TenantId,
}

/// The first of these entries that tells of a ledger that is not there, or does not say of which. The first entry of that
/// ledger came with the same commit, and so whoever has read the one finds the other.
pub(super) async fn gone(
    store: &dyn Store,
    tenant: TenantId,
    chunk: &[Recorded],
) -> Result<Option<Fault>, StoreError> {
    if tenant != TenantId::SYSTEM {
        return Ok(None);
    }
    for Recorded { entry, .. } in chunk {
        let announced = match announced_by(entry) {
            Ok(Some(announced)) => announced,
            Ok(None) => continue,
            Err(fault) => return Ok(Some(fault)),
        };
        if let Some(instead) = instead_of(store, announced).await? {
            let what = format!("it tells of the ledger of {announced}, and there is {instead}");
            return Ok(Some(Fault {
                gone: Some(announced),
                ..Fault::at(entry.seq, what)
            }));
        }
    }
    Ok(None)
}

/// What there is in place of the ledger of a tenant that was told of; nothing if that is there.
async fn instead_of(store: &dyn Store, announced: TenantId) -> Result<Option<&'static str>, StoreError> {
    // A ledger that cannot be read is there, and what is wrong with it is found where it is verified itself.
    let head = match store.head(announced).await {
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        head => head?,
    };
    if head.seq == 0 {
        return Ok(Some("none"));
    }
    let first = match store.entries(announced, 1, 1).await {
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        first => first?,
    };
    // One that has lost its beginning has a gap there, and that is found where it is verified itself, too.
    let is_another = |first: &StoredEntry| first.seq == 1 && first.kind != EntryKind::TenantCreated.as_str();
    Ok(first
        .first()
        .filter(|first| is_another(first))
        .map(|_| "another one that begins otherwise"))
}

/// Of which tenant an entry tells that it is new, if it tells of one. Where nobody knows which one, nothing would miss
/// its ledger.
fn announced_by(entry: &StoredEntry) -> Audited<Option<TenantId>> {
    if entry.kind != EntryKind::TenantCreated.as_str() {
        return Ok(None);
    }
    match serde_json::from_str::<TenantBody>(&entry.body) {
        Ok(body) => Ok(Some(body.id)),
        Err(_) => Err(Fault::at(
            entry.seq,
            "it tells of a new tenant, and does not say of which",
        )),
    }
}
