//! Where a stored ledger stood before an entry: what its verification begins with, and what an export of the rest says first.

use super::audit::{Audited, Fault, missing};
use ledger::merkle::{Completed, Frontier, NodeId};
use ledger::{Head, Tip};
use model::TenantId;
use store::{Store, StoreError};

/// The end of the ledger that the entry `first` must follow, made of what is stored.
pub(super) async fn anchor(
    store: &dyn Store,
    tenant: TenantId,
    first: u64,
) -> Result<Audited<Tip>, StoreError> {
    if first == 1 {
        return Ok(Ok(Tip::GENESIS));
    }
    let seq = first - 1;
    let head = match head_at(store, tenant, seq).await? {
        Ok(head) => head,
        Err(fault) => return Ok(Err(fault)),
    };
    let nodes: Vec<_> = Frontier::nodes(seq).collect();
    let seqs: Vec<_> = nodes.iter().map(|node| node.seq()).collect();
    let rows = store.nodes(tenant, &seqs).await?;
    let hash = |node: &NodeId| {
        let (seq, bytes) = rows.iter().find(|(seq, _)| *seq == node.seq())?;
        Completed::from_bytes(*seq, bytes.clone())?.get(*node)
    };
    let edge = nodes.iter().map(hash).collect::<Option<Vec<_>>>();
    let tree = edge.and_then(|edge| Frontier::new(seq, edge));
    let tip = tree.and_then(|tree| Tip::new(head, tree));
    Ok(tip.ok_or_else(|| {
        Fault::at(
            seq,
            "what is stored of the tree before the first entry is not complete",
        )
    }))
}

/// The head at an entry, as it is stored.
async fn head_at(store: &dyn Store, tenant: TenantId, seq: u64) -> Result<Audited<Head>, StoreError> {
    let found = match store.entries(tenant, seq, 1).await {
        Ok(entries) => entries.into_iter().find(|entry| entry.seq == seq),
        Err(StoreError::Corrupt { what }) => return Ok(Err(Fault::at(seq, what))),
        Err(error) => return Err(error),
    };
    Ok(found
        .map(|entry| Head {
            seq,
            hash: entry.hash,
        })
        .ok_or_else(|| missing(seq)))
}
