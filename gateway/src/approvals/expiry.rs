//! Writing down which approvals have expired. Whether one can be used is looked at when it is used; this is for those who read.

use super::vote::proposal;
use crate::gateway::Gateway;
use crate::http::Refusal;
use engine::approvals::{ApprovalChange, Step};

/// How many are written down in one round.
const ROUND_MAX: u32 = 200;

impl Gateway {
    /// Writes an entry for each approval whose time is over. Several gateways may try; one entry comes of it. What does not
    /// work now is tried again in the next round.
    pub async fn expire_approvals(&self) -> Result<(), Refusal> {
        let overdue = self.store.overdue_approvals(self.clock.now(), ROUND_MAX).await?;
        let proposals = overdue.into_iter().filter_map(|(tenant, id)| {
            let snapshot = self.tenant(tenant).ok()?;
            let change = ApprovalChange {
                id,
                step: Step::Expire,
            };
            Some(proposal(tenant, &snapshot, change))
        });
        let proposals: Vec<_> = proposals.collect();
        if !proposals.is_empty() {
            self.sequencer.record_all(None, proposals).await?;
            self.approvals.ring();
        }
        Ok(())
    }
}
