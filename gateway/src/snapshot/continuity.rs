//! Whether the database that answers still has every change that is in force here.
//!
//! A standby that had not everything, or a backup, may take the place of the database that was there. What is kept here
//! is what tells: where chains ended when they had all changes that are in force, and of which tenants some are lost.
//! It reads nothing: the follower does, and compares (`follower/displaced.rs`).

use crate::locks::lock;
use ledger::Head;
use model::TenantId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch;

/// Whether the database has lost changes that are in force here.
pub struct Continuity {
    /// Whether others write to the store.
    is_shared: bool,
    /// The tenants of which the store has lost changes that are in force here, until a restart: the next change there
    /// may have the number of one that was lost, so numbers that match again say nothing.
    lost: Mutex<BTreeSet<TenantId>>,
    /// Whether there are any.
    are_lost: AtomicBool,
    /// Where the chain of each tenant ended at some time when it had all changes that are in force here.
    ends: Mutex<ChainEnds>,
    /// Whether the store may have lost something.
    is_doubted: AtomicBool,
    /// Tells when another database has taken the place of the one before.
    replaced: watch::Sender<()>,
}

/// Where chains ended when they had all changes that were in force here.
#[derive(Default)]
struct ChainEnds {
    /// In the database that a look has found last.
    known: BTreeMap<TenantId, Head>,
    /// Noted since that look. They may come from another database, so they replace those in `known`, and one another,
    /// only after the next look has found the same database.
    since: BTreeMap<TenantId, Vec<Head>>,
}

impl ChainEnds {
    /// Those noted since.
    fn noted(&self) -> impl Iterator<Item = (TenantId, Head)> {
        let since = self.since.iter();
        since.flat_map(|(tenant, ends)| ends.iter().map(move |end| (*tenant, *end)))
    }
}

impl Continuity {
    /// Of a database that nothing is known of yet. `is_shared` says whether others write to the store.
    pub(super) fn new(is_shared: bool) -> Self {
        Self {
            is_shared,
            lost: Mutex::default(),
            are_lost: AtomicBool::new(false),
            ends: Mutex::default(),
            is_doubted: AtomicBool::new(false),
            replaced: watch::Sender::new(()),
        }
    }

    /// Notes that the store has lost changes of these tenants. Returns all of which it has, in order.
    pub fn lose(&self, tenants: &[TenantId]) -> Vec<TenantId> {
        let mut lost = lock(&self.lost);
        lost.extend(tenants);
        self.are_lost.store(!lost.is_empty(), Ordering::Release);
        lost.iter().copied().collect()
    }

    /// Whether the store has lost changes of a tenant that are in force here: nothing is changed from what is not there.
    pub fn has_lost(&self, tenant: TenantId) -> bool {
        // Asked for every request, and hardly ever there are any.
        self.are_lost.load(Ordering::Acquire) && lock(&self.lost).contains(&tenant)
    }

    /// Notes that a tenant's chain, which has all changes that are in force here, ends there.
    pub fn note_end(&self, tenant: TenantId, end: Head) {
        let mut ends = lock(&self.ends);
        let noted = ends.since.entry(tenant).or_default();
        // Where nobody else writes nobody looks without cause, so they would become ever more.
        if !self.is_shared {
            noted.retain(|noted| noted.seq > end.seq);
        }
        if self.is_shared || noted.is_empty() {
            noted.push(end);
        }
    }

    /// What was noted since a look has found the database.
    pub fn ends_since(&self) -> Vec<(TenantId, Head)> {
        let ends = lock(&self.ends);
        ends.noted().collect()
    }

    /// Notes that these of the ends noted since are in the database that a look has found.
    pub fn know_ends(&self, noted: &[(TenantId, Head)]) {
        let mut ends = lock(&self.ends);
        for (tenant, end) in noted {
            let known = ends.known.entry(*tenant).or_insert(*end);
            // What was read a while ago may be noted late.
            if known.seq < end.seq {
                *known = *end;
            }
            if let Some(ends) = ends.since.get_mut(tenant) {
                ends.retain(|noted| noted != end);
            }
        }
        ends.since.retain(|_, ends| !ends.is_empty());
    }

    /// Entries that chains have as long as the store has lost none of the changes that are in force here. Where nothing
    /// was ever changed there is none.
    pub fn ends_to_compare(&self) -> Vec<(TenantId, Head)> {
        let ends = lock(&self.ends);
        let known = ends.known.iter().map(|(tenant, end)| (*tenant, *end));
        let all = known.chain(ends.noted());
        all.filter(|(_, end)| end.seq > 0).collect()
    }

    /// Those of [`Self::ends_to_compare`] that are of these tenants.
    pub fn ends_of(&self, tenants: &BTreeSet<TenantId>) -> Vec<(TenantId, Head)> {
        let ends = lock(&self.ends);
        let of = |tenant: &TenantId| {
            let since = ends.since.get(tenant).into_iter().flatten();
            let all = ends.known.get(tenant).into_iter().chain(since);
            all.filter(|end| end.seq > 0)
                .map(|end| (*tenant, *end))
                .collect::<Vec<_>>()
        };
        tenants.iter().flat_map(of).collect()
    }

    /// Notes that another database has taken the place of the one before, which may lack what was committed to that.
    pub fn note_another_database(&self) {
        self.replaced.send_replace(());
    }

    /// Hears of every database that takes the place of another one from now on.
    pub fn databases(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// Notes that the store may have lost something, to be looked at.
    pub fn doubt(&self) {
        self.is_doubted.store(true, Ordering::Relaxed);
    }

    /// Whether the store may have lost something since this was asked last.
    pub fn take_doubt(&self) -> bool {
        self.is_doubted.swap(false, Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    #[test]
    fn a_tenant_that_has_lost_something_has_lost_it_for_good() {
        let continuity = Continuity::new(true);
        assert!(continuity.lose(&[]).is_empty());
        assert!(!continuity.has_lost(TENANT));
        // And what a later look finds.
        for found in [&[TENANT][..], &[]] {
            assert_eq!(continuity.lose(found), [TENANT]);
            assert!(continuity.has_lost(TENANT));
            assert!(!continuity.has_lost(OTHER));
        }
    }

    #[test]
    fn the_last_noted_end_of_a_chain_is_compared_with_the_store() {
        let continuity = Continuity::new(true);
        let end = |seq, byte: u8| Head {
            seq,
            hash: canon::Digest::of(&[byte]),
        };
        continuity.note_end(OTHER, Head::GENESIS);
        let noted = [end(3, 1), end(5, 2), end(4, 3)];
        for end in noted {
            continuity.note_end(TENANT, end);
        }
        // Each may be of another database.
        assert_eq!(continuity.ends_to_compare(), noted.map(|end| (TENANT, end)));
        for late in [None, Some(end(4, 4))] {
            if let Some(late) = late {
                continuity.note_end(TENANT, late);
            }
            continuity.know_ends(&continuity.ends_since());
            assert_eq!(continuity.ends_to_compare(), [(TENANT, end(5, 2))]);
        }
        continuity.note_end(TENANT, end(7, 5));
        let both = [(TENANT, end(5, 2)), (TENANT, end(7, 5))];
        assert_eq!(continuity.ends_to_compare(), both);
        continuity.know_ends(&continuity.ends_since());
        assert_eq!(continuity.ends_to_compare(), [(TENANT, end(7, 5))]);
    }
}
