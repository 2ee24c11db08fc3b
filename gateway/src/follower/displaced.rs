//! Whether another database has taken the place of the one before, and which tenants' changes it lacks: a standby that
//! had not everything, or a backup.
//!
//! Revisions alone do not tell, because other changes may have got the numbers of those that were lost. So the ends of
//! chains are compared that [`crate::snapshot::Continuity`] keeps, whenever the database is another one or is doubted.

use super::Following;
use crate::locks::lock;
use ledger::Head;
use model::TenantId;
use std::collections::HashSet;
use std::sync::MutexGuard;
use store::StoreError;

/// How many chains are compared at once.
const ENDS_MAX: usize = 512;

/// What was put in force here is not in the store any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "the database has lost changes that were committed: find out how, and restart this gateway, which still has them"
)]
pub(super) struct WentBack;

impl Following {
    /// The tenants whose chains have lost a change that is in force here, as far as another database may have taken the
    /// place of the one before.
    pub(super) async fn displaced(&self) -> Result<Vec<TenantId>, StoreError> {
        // Read before it is asked which database it is: so they are in that one, if it is the same as before.
        let noted = self.snapshot.continuity.ends_since();
        let incarnation = self.store.incarnation().await?;
        self.note_found(&incarnation);
        let is_doubted = self.snapshot.continuity.take_doubt();
        if *self.incarnation() == incarnation && !is_doubted {
            self.snapshot.continuity.know_ends(&noted);
            return Ok(Vec::new());
        }
        let lost = self.missing(&self.snapshot.continuity.ends_to_compare()).await;
        if lost.is_ok() {
            *self.incarnation() = incarnation;
            self.snapshot.continuity.know_ends(&noted);
        } else {
            self.snapshot.continuity.doubt();
        }
        lost
    }

    /// Notes which database a look has found, and says so where it is another one than the look before has found: other
    /// gateways may have made chains longer again there before this one sees what is missing.
    fn note_found(&self, incarnation: &str) {
        let mut found = lock(&self.found);
        if *found != incarnation {
            tracing::warn!(
                "another database has taken over, or its server was started again: what was only remembered is forgotten, and asks that are under way get 503 once"
            );
            incarnation.clone_into(&mut found);
            self.snapshot.continuity.note_another_database();
        }
    }

    /// The tenants whose chains do not have one of these entries, which they had when everything that is in force here
    /// was in them.
    pub(super) async fn missing(&self, ends: &[(TenantId, Head)]) -> Result<Vec<TenantId>, StoreError> {
        let mut missing = Vec::new();
        for some in ends.chunks(ENDS_MAX) {
            let entries: Vec<_> = some.iter().map(|(tenant, end)| (*tenant, end.seq)).collect();
            let found: HashSet<_> = self.store.heads_at(&entries).await?.into_iter().collect();
            let lost = some.iter().filter(|end| !found.contains(end));
            missing.extend(lost.map(|(tenant, _)| *tenant));
        }
        Ok(missing)
    }

    /// Which database what is in force was read from, or was compared with since.
    pub(super) fn incarnation(&self) -> MutexGuard<'_, String> {
        lock(&self.incarnation)
    }
}
