//! Asks that take long to be judged: each waits for its turn among those that do, and is judged on a thread that nobody
//! else waits for (`docs/decisions/0080-long-asks-beside-the-workers.md`).

use super::{Attempt, Step};
use crate::admission::Permit;
use crate::fair_semaphore::Permit as Turn;
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
    /// Why no turn came for another ask of the request: then none is waited for.
    pub(super) no_turn: &'p mut Option<Refusal>,
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
            no_turn,
        } = waiting;
        if let Some(refusal) = no_turn {
            return Err(refusal.clone());
        }
        let (tenant, since) = (attempt.caller.tenant, Instant::now());
        let turn = self.long_asks.acquire_until(tenant, deadline).await;
        let step = match turn {
            Ok(turn) => self.prepare_in_turn(attempt, turn, since).await,
            Err(refusal) => {
                *no_turn = Some(refusal.clone());
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

    async fn prepare_in_turn(
        &self,
        attempt: &mut Attempt<'_>,
        _turn: Turn,
        since: Instant,
    ) -> Result<Step, Refusal> {
        // Others that were before it have been counted meanwhile.
        if since.elapsed() >= WORK_MAX {
            // As many are looked up at once as there are turns, one of a tenant. So they do not wait in the line for that,
            // and nobody waits for a turn behind one who does.
            attempt.looked_up = self.look_up_in_turn(attempt.caller, attempt.ask).await?;
        }
        self.metrics.count_long_ask();
        let step = in_place_of_a_worker(|| self.prepare(attempt, None))?;
        // INVARIANT: it is judged without fuel, and only fuel that is used up leaves it without a step.
        Ok(step.expect("there is no fuel that could be used up"))
    }
}
