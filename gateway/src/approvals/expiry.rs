//! Writing down which approvals have expired. Whether one can be used is looked at when it is used; this is for those who read.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::{APPROVALS_MAX, CommitStatus};
use crate::turns::Pass;
use engine::approvals::{ApprovalChange, Step};
use engine::proposal::Intent;
use engine::{Proposal, TenantSnapshot};
use model::{ApprovalId, Timestamp};
use std::collections::BTreeSet;

/// How many commits of [`APPROVALS_MAX`] follow each other while as many have expired and few wait for decisions.
const ROUNDS_MAX: usize = 300;
/// How many such commits follow each other while as many have expired and many wait for decisions.
const ROUNDS_MAX_UNDER_LOAD: usize = 60;
/// How many of one tenant are written down before it is the turn of all others.
const SHARE: usize = 2 * APPROVALS_MAX as usize;
/// How many full commits of a pass are only for tenants that have not had their share.
const ROUNDS_FOR_OTHERS: usize = ROUNDS_MAX_UNDER_LOAD / 2;

impl Gateway {
    /// Writes an entry for each approval whose time was over by then and is over, which takes the parameters off it that
    /// people were shown. Several gateways may try; one entry comes of it. What does not work now is tried again later.
    pub async fn expire_approvals(&self, by: Timestamp) -> Result<(), Refusal> {
        let mut pass = self.approval_ends.turns.begin(SHARE, ROUNDS_FOR_OTHERS);
        for round in 1..=ROUNDS_MAX {
            let is_last = round >= ROUNDS_MAX_UNDER_LOAD && self.sequencer.is_under_load();
            let found = self.expire_some(by, &mut pass).await;
            let found = match found {
                // It may be too much that was to be read past. What ends of all makes that less.
                Err(refusal) if pass.is_for_others() => {
                    let code = refusal.code().as_str();
                    tracing::warn!(
                        code,
                        "expired approvals of tenants with few could not be written down first"
                    );
                    0
                }
                found => found?,
            };
            if !pass.end_round(found >= APPROVALS_MAX as usize) || (is_last && found > 0) {
                break;
            }
        }
        Ok(())
    }

    /// One round. Returns how many had expired, if any was written down: what is not known here yet would be found again.
    async fn expire_some(&self, by: Timestamp, pass: &mut Pass<'_>) -> Result<usize, Refusal> {
        // What is proposed for them would be turned back, and they would be found first again.
        let mut except = self.snapshot.behind();
        except.extend(self.approval_ends.left_out.tenants(by));
        except.extend(pass.begin_round());
        let overdue = self.store.overdue_approvals(&except, by, APPROVALS_MAX).await?;
        let found = overdue.len();
        pass.note_found(overdue.iter().map(|(tenant, _)| *tenant));
        let tenants: BTreeSet<_> = overdue.iter().map(|(tenant, _)| *tenant).collect();
        let ends = self.record_ends(overdue, end, &self.approval_ends.left_out, by);
        let recorded = ends.await;
        // Also where it failed: some may have been recorded.
        for tenant in tenants {
            self.approval_waiters.notify(tenant);
        }
        let any = recorded?
            .iter()
            .any(|one| !matches!(one, CommitStatus::Conflict(_)));
        Ok(if any { found } else { 0 })
    }
}

/// That an approval has expired.
fn end(tenant: &TenantSnapshot, id: ApprovalId) -> Proposal {
    let step = Step::Expire;
    Proposal::of(tenant, Intent::Approval(ApprovalChange { id, step }))
}
