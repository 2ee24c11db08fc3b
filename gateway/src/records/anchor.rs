//! Where a stored ledger stood before an entry: what its verification begins with, and what an export of the rest says first.

use super::audit::{Audited, Fault, Reached, missing};
use ledger::merkle::{Completed, Frontier, NodeId};
use ledger::{Head, Tip};
use model::TenantId;
use store::{Store, StoreError, StoredEntry};

/// The end of the ledger that the entry `first` must follow, made of what is stored.
pub(super) async fn anchor(
    store: &dyn Store,
    tenant: TenantId,
    first: u64,
) -> Result<Audited<Reached>, StoreError> {
    if first == 1 {
        return Ok(Ok(Reached::GENESIS));
    }
    let seq = first - 1;
    let last = match entry_at(store, tenant, seq).await? {
        Ok(last) => last,
        Err(fault) => return Ok(Err(fault)),
    };
    let head = Head { seq, hash: last.hash };
    let nodes: Vec<_> = Frontier::nodes(seq).collect();
    let seqs: Vec<_> = nodes.iter().map(|node| node.seq()).collect();
    let rows = match store.nodes(tenant, &seqs).await {
        Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(seq, what))),
        rows => rows?,
    };
    let hash = |node: &NodeId| {
        let (seq, bytes) = rows.iter().find(|(seq, _)| *seq == node.seq())?;
        Completed::from_bytes(*seq, bytes.clone())?.get(*node)
    };
    let edge = nodes.iter().map(hash).collect::<Option<Vec<_>>>();
    let tree = edge.and_then(|edge| Frontier::new(seq, edge));
    let tip = tree.and_then(|tree| Tip::new(head, tree));
    let at = last.at.to_string().parse().ok();
    Ok(tip.map(|tip| Reached { tip, at }).ok_or_else(|| {
        Fault::at(
            seq,
            "what is stored of the tree before the first entry is not complete",
        )
    }))
}

/// An entry, as it is stored.
async fn entry_at(store: &dyn Store, tenant: TenantId, seq: u64) -> Result<Audited<StoredEntry>, StoreError> {
    let found = match store.entries(tenant, seq, 1).await {
        Ok(entries) => entries.into_iter().find(|entry| entry.seq == seq),
        Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(seq, what))),
        Err(error) => return Err(error),
    };
    Ok(found.ok_or_else(|| missing(seq)))
}
