//! A stored entry as the ledger reads it: what is verified is what is exported.

use canon::Digest;
use ledger::{Entry, EntryHeader};
use store::StoredEntry;

/// An entry with what its row leaves out.
pub(super) struct Readable<'a> {
    stored: &'a StoredEntry,
    tenant: &'a str,
    at: String,
}

impl<'a> Readable<'a> {
    pub(super) fn new(tenant: &'a str, stored: &'a StoredEntry) -> Self {
        Self {
            at: stored.at.to_string(),
            stored,
            tenant,
        }
    }

    /// The entry. The digest of the body is taken anew: a changed body makes another header, which hashes to another hash
    /// than the one recorded. That of an erased body is the one that was left, and a wrong one does the same.
    pub(super) fn entry(&self) -> Entry<'_> {
        let Self { stored, tenant, at } = self;
        Entry {
            header: EntryHeader {
                tenant,
                seq: stored.seq,
                kind: &stored.kind,
                at,
                prev: stored.prev,
                body: stored
                    .erased
                    .map_or_else(|| Digest::of(stored.body.as_bytes()), |erased| erased.body),
            },
            hash: stored.hash,
            body: stored.erased.is_none().then_some(&*stored.body),
        }
    }
}
