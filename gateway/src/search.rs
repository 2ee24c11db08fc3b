//! Finding decisions by what they say, without a commit having paid for it.
//!
//! - [`job`]: puts finished blocks of ledgers into the index, afterwards;
//! - [`page`]: a page of what is looked for: from the index where a block is in it, otherwise from the ledger.

pub mod job;
pub mod page;

use engine::search::seqs_of;
use ledger::Head;
use model::TenantId;
use store::{IndexedBlock, Store, StoreError};

/// Whether blocks of the index were made from this ledger, as it is now. The latest entry that any of them was made
/// with stands for all of them: the chain does. After an erasure blocks are made again with the entry that tells of it.
/// A ledger that was put back from before it has again what they do not know, and does not have that entry.
async fn are_of_ledger(
    store: &dyn Store,
    tenant: TenantId,
    blocks: &[IndexedBlock],
) -> Result<bool, StoreError> {
    let Some(latest) = blocks.iter().map(made_with).max_by_key(|head| head.seq) else {
        return Ok(true);
    };
    let entries = store.entries(tenant, latest.seq, 1).await?;
    Ok(entries.first().is_some_and(|entry| entry.hash == latest.hash))
}

/// The latest entry that a block was made with.
fn made_with(block: &IndexedBlock) -> Head {
    block.made_at.unwrap_or_else(|| Head {
        seq: *seqs_of(block.block).end(),
        hash: block.end,
    })
}
