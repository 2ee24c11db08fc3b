//! Recording what is made of the directories as they are: it is made again where they have moved on before it was
//! recorded.
//!
//! What awaits something while it is made, or is made again for other reasons too, has a loop of its own.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::CommitStatus;
use engine::{Conflict, Proposal, Snapshot};

/// How often something is made again because what it is made from has changed before it was recorded.
pub(crate) const ATTEMPTS_MAX: usize = 8;

impl Gateway {
    /// Records what `make` makes of the snapshot in force. Where the directory has moved on meanwhile, or a run, `make` is
    /// called again. Whatever else became of the proposal is returned, so that is never [`Conflict::DirectoryMoved`] or
    /// [`Conflict::RunMoved`].
    pub(crate) async fn record_current(
        &self,
        mut make: impl FnMut(&Snapshot) -> Result<Proposal, Refusal>,
    ) -> Result<CommitStatus, Refusal> {
        for _ in 0..ATTEMPTS_MAX {
            let proposal = make(&self.snapshot.load_full())?;
            match self.sequencer.record(proposal).await? {
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. } | Conflict::RunMoved) => {}
                recorded => return Ok(recorded),
            }
        }
        Err(Refusal::contended())
    }
}
