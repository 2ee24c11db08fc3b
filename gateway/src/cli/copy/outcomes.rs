//! Outcomes whose entries are erased. The entry does not say any more what it told of; the row in the source does,
//! which stays so that nothing is reported, and charged, twice.

use super::CHUNK;
use engine::EntryKind;
use model::{DecisionId, TenantId};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use store::{OutcomeRow, Recorded, Store, StoreError, StoredEntry, is_used_up};

/// The decisions whose outcomes are erased, by the `seq` of the entry that told it, until that is copied.
#[derive(Default)]
pub(super) struct Outcomes(BTreeMap<u64, DecisionId>);

impl Outcomes {
    /// Looks for the erased outcomes of the decisions of a chunk, wherever in the ledger they stand.
    pub(super) async fn find(
        &mut self,
        from: &dyn Store,
        tenant: TenantId,
        chunk: &[Recorded],
    ) -> Result<(), StoreError> {
        let decisions = chunk.iter().filter_map(|recorded| recorded.decision.as_ref());
        let decisions: Vec<_> = decisions.map(|decision| decision.id).collect();
        let seqs = from.outcomes_of(tenant, &decisions).await?;
        let here = chunk.iter().map(|recorded| &recorded.entry);
        let mut erased: BTreeSet<_> = here.filter_map(erased_seq).collect();
        let end = chunk.last().map_or(0, |recorded| recorded.entry.seq);
        let later = &seqs[seqs.partition_point(|seq| *seq <= end)..];
        erased.extend(erased_among(from, tenant, later).await?);
        erased.retain(|seq| seqs.binary_search(seq).is_ok());
        if erased.is_empty() {
            return Ok(());
        }
        // A row is found by its decision and not by its entry: whose outcome it is shows by halves, because few are erased alone.
        let mut parts = vec![&decisions[..]];
        while let Some(part) = parts.pop() {
            let seqs = from.outcomes_of(tenant, part).await?;
            let Some(seq) = seqs.into_iter().find(|seq| erased.contains(seq)) else {
                continue;
            };
            if let [decision] = part {
                self.0.insert(seq, *decision);
            } else {
                parts.extend(<[_; 2]>::from(part.split_at(part.len() / 2)));
            }
        }
        Ok(())
    }

    /// The row of an entry, if it tells of an outcome that is to be remembered.
    pub(super) fn row(
        &mut self,
        tenant: TenantId,
        entry: &StoredEntry,
    ) -> Result<Option<OutcomeRow>, serde_json::Error> {
        #[derive(Deserialize)]
        struct Reported {
            decision_id: DecisionId,
        }
        let decision = match entry.erased {
            _ if entry.kind != EntryKind::OutcomeReported.as_str() => None,
            Some(_) => self.0.remove(&entry.seq),
            None => Some(serde_json::from_str::<Reported>(&entry.body)?.decision_id),
        };
        let row = |decision| OutcomeRow {
            tenant,
            decision,
            seq: entry.seq,
        };
        Ok(decision.map(row))
    }
}

/// The erased entries among these and between them, which go up. Those that are near each other are read together.
async fn erased_among(
    from: &dyn Store,
    tenant: TenantId,
    mut seqs: &[u64],
) -> Result<BTreeSet<u64>, StoreError> {
    let mut erased = BTreeSet::new();
    while let [first, ..] = *seqs {
        let (near, rest) = seqs.split_at(seqs.partition_point(|seq| seq - first < u64::from(CHUNK)));
        let last = near.last().copied().unwrap_or(first);
        let limit = u32::try_from(last - first + 1).unwrap_or(CHUNK);
        let entries = from.entries(tenant, first, limit).await?;
        erased.extend(entries.iter().filter_map(erased_seq));
        seqs = match entries.last() {
            Some(end) if is_used_up(&entries) => &seqs[seqs.partition_point(|seq| *seq <= end.seq)..],
            _ => rest,
        };
    }
    Ok(erased)
}

fn erased_seq(entry: &StoredEntry) -> Option<u64> {
    entry.erased.map(|_| entry.seq)
}
