//! Which contents are known to be stored, so that a decision carries only those that are not.
//!
//! A content becomes known when a commit that held it has returned, and not before: whoever is told that it is stored must
//! be right. What is forgotten is written once more, and the store leaves it as it is.

use crate::generations::Generations;
use crate::locks::{read, write};
use canon::Digest;
use model::TenantId;
use std::sync::RwLock;
use std::sync::atomic::{AtomicU64, Ordering};
use store::ContentRow;

/// Contents in each of two generations.
const GENERATION_MAX: usize = 65_536;

type Key = (TenantId, Digest);

/// The contents that are known to be stored.
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// Read by every decision and written when something new is stored, which is rare. Never held across an `await`.
    known: RwLock<Generations<Key, (), GENERATION_MAX>>,
    /// How often all of them were forgotten.
    losses: AtomicU64,
}

impl Contents {
    /// Whether this content of a tenant is known to be stored.
    pub(super) fn is_stored(&self, tenant: TenantId, digest: &Digest) -> bool {
        read(&self.known).get(&(tenant, *digest)).is_some()
    }

    /// A generation number: it grows whenever all of them are forgotten. Read it before [`is_stored`](Self::is_stored);
    /// if it is higher when the proposal is recorded, contents that were left out may be missing.
    pub(super) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Forgets all of them: the store may have lost some.
    pub(super) fn forget(&self) {
        let mut known = write(&self.known);
        *known = Generations::default();
        // INVARIANT: under the lock, so whoever has read the new number finds none of those that were known before.
        self.losses.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes what a commit has written.
    pub(super) fn note(&self, written: &[ContentRow]) {
        if written.is_empty() {
            return;
        }
        let mut known = write(&self.known);
        for content in written {
            known.insert((content.tenant, content.digest), ());
        }
    }
}
