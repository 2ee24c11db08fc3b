//! Recording what is made of the directories as they are: it is made again where they have moved on before it was
//! recorded.
//!
//! What awaits something while it is made, or is made again for other reasons too, has a loop of its own.

use crate::changes::By;
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::CommitStatus;
use engine::{Conflict, Proposal, Snapshot};
use model::TenantId;
use std::sync::Arc;

/// How often something is made, the first time included: what it is made from may change before it is recorded.
pub(crate) const ATTEMPTS_MAX: usize = 8;

impl Gateway {
    /// Records what `make` makes of the snapshot in force. `by` says in whose name; where that is an agent's, it is none,
    /// and `make` looks whether the agent still may. Where the directory has moved on meanwhile, or a run, all of it is
    /// done again. Whatever else became of the proposal is returned, so that is never [`Conflict::DirectoryMoved`] or
    /// [`Conflict::RunMoved`].
    pub(crate) async fn record_current(
        &self,
        by: Option<By<'_>>,
        mut make: impl FnMut(&Snapshot) -> Result<Proposal, Refusal>,
    ) -> Result<CommitStatus, Refusal> {
        let current = || by.map_or_else(|| Ok(self.snapshot.load_full()), |by| self.current_for(by));
        for _ in 0..ATTEMPTS_MAX {
            let proposal = make(&*current()?)?;
            match self.sequencer.record(proposal).await? {
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. } | Conflict::RunMoved) => {}
                recorded => return Ok(recorded),
            }
        }
        Err(Refusal::contended())
    }

    /// The snapshot in force, for what is recorded by it in this name. Whoever may not do it any more is refused, and so
    /// is whoever shows a credential where it is not known any more what others have changed: an operator's is in another
    /// tenant than the one whose revision the commit compares.
    pub(crate) fn current_for(&self, by: By<'_>) -> Result<Arc<Snapshot>, Refusal> {
        // Before it is looked at: a gateway that stands still in between may know more by then.
        let as_of = self.snapshot.as_of(TenantId::SYSTEM);
        let snapshot = self.snapshot.load_full();
        by.check(&snapshot, self.clock.now())?;
        if matches!(by, By::Key(_) | By::Person(_)) {
            self.check_age(as_of.age())?;
        }
        Ok(snapshot)
    }
}
