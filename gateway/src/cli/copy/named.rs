//! What decisions name by its digest: it goes over with the first entry that names it. Policies may have megabytes
//! each, so whoever takes entries counts what they name.

use anyhow::ensure;
use canon::Digest;
use engine::EntryKind;
use model::TenantId;
use std::collections::HashSet;
use store::{ContentRow, Store, StoredEntry};

/// Digests that are remembered, so that what many decisions name is read once. Beyond them some may be read again, and
/// the target keeps what it has already.
const REMEMBERED_MAX: usize = 100_000;

/// What has gone over.
#[derive(Default)]
pub(super) struct Named(HashSet<Digest>);

impl Named {
    /// What an entry names that none before it did, as far as it is still there.
    pub(super) async fn rows(
        &mut self,
        from: &dyn Store,
        tenant: TenantId,
        entry: &StoredEntry,
    ) -> anyhow::Result<Vec<ContentRow>> {
        if entry.kind != EntryKind::Decision.as_str() {
            return Ok(Vec::new());
        }
        if self.0.len() > REMEMBERED_MAX {
            self.0.clear();
        }
        let named = engine::facts::named(&entry.body).into_iter();
        let new: Vec<_> = named.filter(|digest| self.0.insert(*digest)).collect();
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let found = from.contents(tenant, &new).await?.into_iter();
        let row = |(digest, bytes): (Digest, Vec<u8>)| {
            ensure!(
                Digest::of(&bytes) == digest,
                "the content `{digest}` is not what its digest says"
            );
            Ok(ContentRow {
                tenant,
                digest,
                bytes: bytes.into(),
            })
        };
        found.map(row).collect()
    }
}
