//! Which entries were recorded in a time. Time in a chain never runs backwards, so the first one is found by halving.

use model::{TenantId, Timestamp};
use std::ops::RangeInclusive;
use store::{Store, StoreError};

/// The `seq` of the first entry that was recorded at this time or later; the one after `head` if there is none.
pub(crate) async fn first_since(
    store: &dyn Store,
    tenant: TenantId,
    head: u64,
    time: Timestamp,
) -> Result<u64, StoreError> {
    first_since_in(store, tenant, 1..=head, time).await
}

/// The `seq` of the first of these entries that was recorded at this time or later; the one after them if there is none.
pub(crate) async fn first_since_in(
    store: &dyn Store,
    tenant: TenantId,
    seqs: RangeInclusive<u64>,
    time: Timestamp,
) -> Result<u64, StoreError> {
    let (mut low, mut high) = (*seqs.start(), seqs.end() + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let entries = store.entries(tenant, middle, 1).await?;
        match entries.first() {
            Some(entry) if entry.at < time => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}
