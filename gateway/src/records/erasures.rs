//! Whether somebody has told of every erasure. A body that is gone without an entry that says so was taken away, and so
//! was one of a kind that is never erased, whatever an entry says.

use super::audit::Fault;
use super::line::Readable;
use engine::EntryKind;
use ledger::is_erasable;
use model::TenantId;
use serde::Deserialize;
use std::collections::VecDeque;
use std::sync::Arc;
use store::{Erased, Recorded, Store, StoreError, StoredEntry};

/// Entries that tell of erasures which are kept at hand. Neighbours were mostly erased together.
const KEPT_MAX: usize = 8;

/// What the entry of an erasure says was erased: the first and the last of each row of entries.
#[derive(Default, Deserialize)]
struct ErasureBody {
    #[serde(default)]
    seqs: Vec<[u64; 2]>,
}

/// The entries that tell of erasures.
#[derive(Default)]
pub(super) struct Erasures {
    kept: VecDeque<(u64, Arc<ErasureBody>)>,
}

impl Erasures {
    /// The first of these entries whose body is gone and nobody has told of it, or could have.
    pub(super) async fn untold(
        &mut self,
        store: &dyn Store,
        tenant: TenantId,
        chunk: &[Recorded],
    ) -> Result<Option<Fault>, StoreError> {
        for Recorded { entry, .. } in chunk {
            let Some(Erased { by, .. }) = entry.erased else {
                continue;
            };
            if !is_erasable(&entry.kind) {
                let kind = entry.kind.clone();
                let what = ledger::Fault::NeverErased { kind };
                return Ok(Some(Fault::at(entry.seq, what.to_string())));
            }
            let erasure = self.body(store, tenant, by).await?;
            let is_told = |range: &[u64; 2]| (range[0]..=range[1]).contains(&entry.seq);
            // What tells of an erasure stands behind what was erased.
            if by <= entry.seq || !erasure.seqs.iter().any(is_told) {
                return Ok(Some(Fault::at(
                    entry.seq,
                    "the body is gone, and no entry tells of its erasure",
                )));
            }
        }
        Ok(None)
    }

    /// What the entry with this number says was erased.
    async fn body(
        &mut self,
        store: &dyn Store,
        tenant: TenantId,
        by: u64,
    ) -> Result<Arc<ErasureBody>, StoreError> {
        if let Some((_, body)) = self.kept.iter().find(|(seq, _)| *seq == by) {
            return Ok(Arc::clone(body));
        }
        // What cannot be read tells of nothing; the chain says what is wrong with it.
        let entries = match store.entries(tenant, by, 1).await {
            Err(StoreError::Corrupt { .. }) => Vec::new(),
            entries => entries?,
        };
        let telling = entries
            .first()
            .filter(|entry| entry.seq == by && entry.kind == EntryKind::BodiesErased.as_str())
            .filter(|entry| has_its_body(tenant, entry));
        let body = telling.and_then(|entry| serde_json::from_str::<ErasureBody>(&entry.body).ok());
        let body = Arc::new(body.unwrap_or_default());
        if self.kept.len() == KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back((by, Arc::clone(&body)));
        Ok(body)
    }
}

/// Whether the body is the one that the entry's hash covers. Where a body was erased, whatever is there is held against
/// nothing else, and the chain may end before this entry.
fn has_its_body(tenant: TenantId, entry: &StoredEntry) -> bool {
    let tenant = tenant.to_string();
    let readable = Readable::new(&tenant, entry);
    entry.erased.is_none() && readable.entry().header.hash(&mut String::new()) == entry.hash
}
