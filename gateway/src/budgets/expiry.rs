//! Giving back what was not settled in time. Whoever reserves sees to it as well; this is for when nobody does.

use super::moving::proposal;
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::CommitStatus;
use crate::turns::Pass;
use engine::budgets::moves::Move;
use engine::{Proposal, TenantSnapshot};
use model::reservation::GRACE_MS;
use model::{ReservationId, Timestamp};

/// How many are ended in one commit.
const ROUND_MAX: u32 = 500;
/// How many such commits follow each other while as many should have ended and few wait for decisions.
const ROUNDS_MAX: usize = 20;
/// How many such commits follow each other while as many should have ended and many wait for decisions.
const ROUNDS_MAX_UNDER_LOAD: usize = 2;
/// How many of one tenant are ended before it is the turn of all others.
const SHARE: usize = ROUND_MAX as usize;
/// How many full commits of a pass are only for tenants that have not had their share.
const ROUNDS_FOR_OTHERS: usize = ROUNDS_MAX_UNDER_LOAD / 2;

impl Gateway {
    /// Ends each reservation whose time was over by then and is over, with an entry. Several gateways may try; one entry
    /// comes of it. What does not work now is tried again in the next round.
    pub async fn expire_reservations(&self, by: Timestamp) -> Result<(), Refusal> {
        let mut pass = self.reservation_ends.turns.begin(SHARE, ROUNDS_FOR_OTHERS);
        for round in 1..=ROUNDS_MAX {
            let is_last = round >= ROUNDS_MAX_UNDER_LOAD && self.sequencer.is_under_load();
            let found = self.end_some_reservations(by, &mut pass).await;
            let found = match found {
                // It may be too much that was to be read past. What ends of all makes that less.
                Err(refusal) if pass.is_for_others() => {
                    let code = refusal.code().as_str();
                    tracing::warn!(
                        code,
                        "expired reservations of tenants with few could not be given back first"
                    );
                    0
                }
                found => found?,
            };
            if !pass.end_round(found >= ROUND_MAX as usize) || (is_last && found > 0) {
                break;
            }
        }
        Ok(())
    }

    /// One round. Returns how many should have ended, if any did: what is not known here yet would be found again.
    async fn end_some_reservations(&self, by: Timestamp, pass: &mut Pass<'_>) -> Result<usize, Refusal> {
        let ended_by = by.plus_millis(-GRACE_MS);
        // What is proposed for them would be turned back, and they would be found first again.
        let mut except = self.snapshot.behind();
        except.extend(self.reservation_ends.left_out.tenants(by));
        except.extend(pass.begin_round());
        let overdue = self
            .store
            .overdue_reservations(&except, ended_by, ROUND_MAX)
            .await?;
        let found = overdue.len();
        pass.note_found(overdue.iter().map(|(tenant, _)| *tenant));
        let ends = self.record_ends(overdue, end, &self.reservation_ends.left_out, by);
        let recorded = ends.await?;
        let any = recorded
            .iter()
            .any(|one| !matches!(one, CommitStatus::Conflict(_)));
        Ok(if any { found } else { 0 })
    }
}

/// That a reservation has ended.
fn end(tenant: &TenantSnapshot, id: ReservationId) -> Proposal {
    proposal(tenant, Move::Expire(id), None)
}
