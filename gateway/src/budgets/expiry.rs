//! Giving back what was not settled in time. Whoever reserves sees to it as well; this is for when nobody does.

use super::moving::proposal;
use crate::gateway::Gateway;
use crate::http::Refusal;
use engine::budgets::moves::Move;
use model::reservation::GRACE_MS;

/// How many are ended in one round.
const ROUND_MAX: u32 = 500;

impl Gateway {
    /// Ends each reservation whose time is over, with an entry. Several gateways may try; one entry comes of it. What does not
    /// work now is tried again in the next round.
    pub async fn expire_reservations(&self) -> Result<(), Refusal> {
        let ended_by = self.clock.now().plus_millis(-GRACE_MS);
        let overdue = self.store.overdue_reservations(ended_by, ROUND_MAX).await?;
        let proposals = overdue.into_iter().filter_map(|(tenant, id)| {
            let snapshot = self.tenant(tenant).ok()?;
            Some(proposal(tenant, &snapshot, Move::Expire(id), None))
        });
        let proposals: Vec<_> = proposals.collect();
        if !proposals.is_empty() {
            self.sequencer.record_all(None, proposals).await?;
        }
        Ok(())
    }
}
