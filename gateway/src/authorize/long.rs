//! Asks that take long to be judged: each waits for a permit among those that do, and is judged on a thread that
//! nobody else waits for (`docs/decisions/0080-long-asks-beside-the-workers.md`).

use super::{Attempt, Step};
use crate::admission::Permit;
use crate::fair_semaphore::Permit as LinePermit;
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::runtimes::in_place_of_a_worker;
use crate::yielding::{WORK_MAX, others_first};
use std::time::Instant;

/// What an ask waits with.
pub(super) struct Waiting<'p> {
    /// Until when its answer is of use.
    pub(super) deadline: Option<Instant>,
    /// Its place, if it has one.
    pub(super) permit: Option<&'p mut Permit>,
    /// Why another ask of the request got no permit: then none is waited for.
    pub(super) no_permit: &'p mut Option<Refusal>,
}

impl Gateway {
    /// What comes next for an ask that takes long, as [`prepare`](Self::prepare) has it.
    pub(super) async fn prepare_long(
        &self,
        attempt: &mut Attempt<'_>,
        waiting: Waiting<'_>,
    ) -> Result<Step, Refusal> {
        let Waiting {
            deadline,
            permit,
            no_permit,
        } = waiting;
        if let Some(refusal) = no_permit {
            return Err(refusal.clone());
        }
        let (tenant, since) = (attempt.caller.tenant, Instant::now());
        let line_permit = self.long_asks.acquire_until(tenant, deadline).await;
        let step = match line_permit {
            Ok(line_permit) => self.prepare_with_permit(attempt, line_permit, since).await,
            Err(refusal) => {
                *no_permit = Some(refusal.clone());
                Err(refusal)
            }
        };
        // Nobody else's ask takes any longer for it.
        if let Some(permit) = permit {
            permit.pause(since.elapsed());
        }
        // Another thread has taken the place of this one among the workers. What comes next is for a worker.
        others_first().await;
        step
    }

    /// The same, for whoever has waited since then for this permit, which is kept until it is done.
    async fn prepare_with_permit(
        &self,
        attempt: &mut Attempt<'_>,
        _line_permit: LinePermit,
        since: Instant,
    ) -> Result<Step, Refusal> {
        // Others that were before it have been counted meanwhile.
        if since.elapsed() >= WORK_MAX {
            // As many are looked up at once as there are permits, one of a tenant. So they do not wait in the line for
            // that, and nobody waits for a permit behind one who does.
            attempt.looked_up = self.look_up_with_permit(attempt.caller, attempt.ask).await?;
        }
        self.metrics.count_long_ask();
        let step = in_place_of_a_worker(|| self.prepare(attempt, None))?;
        // INVARIANT: it is judged without fuel, and only fuel that is used up leaves it without a step.
        Ok(step.expect("there is no fuel that could be used up"))
    }
}
