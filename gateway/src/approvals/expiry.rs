//! Writing down which approvals have expired. Whether one can be used is looked at when it is used; this is for those who read.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::{APPROVALS_MAX, CommitStatus};
use engine::Proposal;
use engine::approvals::{ApprovalChange, Step};
use engine::proposal::Intent;
use model::Timestamp;
use std::collections::BTreeSet;

/// How many commits of [`APPROVALS_MAX`] follow each other while as many have expired and few wait for decisions.
const ROUNDS_MAX: usize = 300;
/// How many such commits follow each other while as many have expired and many wait for decisions.
const ROUNDS_MAX_UNDER_LOAD: usize = 60;

impl Gateway {
    /// Writes an entry for each approval whose time was over by then and is over, which takes the parameters off it that
    /// people were shown. Several gateways may try; one entry comes of it. What does not work now is tried again later.
    pub async fn expire_approvals(&self, by: Timestamp) -> Result<(), Refusal> {
        for round in 1..=ROUNDS_MAX {
            let is_last = round >= ROUNDS_MAX_UNDER_LOAD && self.sequencer.is_under_load();
            if self.expire_some(by).await? < APPROVALS_MAX as usize || is_last {
                break;
            }
        }
        Ok(())
    }

    /// One round. Returns how many had expired, if any was written down: what is not known here yet would be found again.
    async fn expire_some(&self, by: Timestamp) -> Result<usize, Refusal> {
        // What is proposed for them would be turned back, and they would be found first again.
        let except = self.snapshot.behind();
        let overdue = self.store.overdue_approvals(&except, by, APPROVALS_MAX).await?;
        let found = overdue.len();
        let proposals = overdue.into_iter().filter_map(|(tenant, id)| {
            let snapshot = self.tenant(tenant).ok()?;
            let change = ApprovalChange {
                id,
                step: Step::Expire,
            };
            Some(Proposal::of(&snapshot, Intent::Approval(change)))
        });
        let proposals: Vec<_> = proposals.collect();
        if proposals.is_empty() {
            return Ok(0);
        }
        let tenants: BTreeSet<_> = proposals.iter().map(|proposal| proposal.tenant).collect();
        let recorded = self.sequencer.record_all_without_following(proposals).await?;
        for tenant in tenants {
            self.approval_waiters.notify(tenant);
        }
        let any = recorded
            .iter()
            .any(|one| !matches!(one, CommitStatus::Conflict(_)));
        Ok(if any { found } else { 0 })
    }
}
