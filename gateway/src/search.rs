//! Finding decisions by what they say, without a commit having paid for it.
//!
//! - [`job`]: puts finished blocks of ledgers into the index, afterwards;
//! - [`page`]: a page of what is looked for: from the index where a block is in it, otherwise from the ledger.

pub mod job;
pub mod page;

use engine::search::seqs_of;
use model::TenantId;
use store::{IndexedBlock, Store, StoreError};

/// Whether a block of the index was made from this ledger, as it is now. Then so were those before it: the chain stands for them.
async fn is_of_ledger(store: &dyn Store, tenant: TenantId, block: &IndexedBlock) -> Result<bool, StoreError> {
    let entries = store.entries(tenant, *seqs_of(block.block).end(), 1).await?;
    Ok(entries.first().is_some_and(|entry| entry.hash == block.end))
}
