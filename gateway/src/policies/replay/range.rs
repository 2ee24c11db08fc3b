//! Which entries are replayed: those that were recorded in a time.

use crate::http::{Code, Refusal};
use crate::records::times::first_since;
use model::{TenantId, Timestamp};
use store::Store;

/// The entries from the first to the last of these `seq`s; none if the last comes before the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entries {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// The entries that were recorded from one time to before another. The end of the chain is where it is now.
pub(super) async fn within(
    store: &dyn Store,
    tenant: TenantId,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
) -> Result<Entries, Refusal> {
    if let (Some(from), Some(to)) = (from, to)
        && from >= to
    {
        let detail = format!("`from` is not before `to`: there is no time from `{from}` to before `{to}`");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    let head = store.head(tenant).await?.seq;
    let first = match from {
        None => 1,
        Some(time) => first_since(store, tenant, head, time).await?,
    };
    let last = match to {
        None => head,
        Some(time) => first_since(store, tenant, head, time).await? - 1,
    };
    Ok(Entries { first, last })
}
