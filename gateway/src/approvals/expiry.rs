//! Writing down which approvals have expired. Whether one can be used is looked at when it is used; this is for those who read.

use crate::ending::{Ending, Ends};
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::sequencer::APPROVALS_MAX;
use engine::approvals::{ApprovalChange, Step};
use engine::proposal::Intent;
use engine::{Proposal, TenantSnapshot};
use model::{ApprovalId, TenantId, Timestamp};
use std::collections::BTreeSet;
use store::StoreError;

/// Approvals that nobody has decided in time.
struct Expired;

impl Gateway {
    /// Writes an entry for each approval whose time was over by then and is over, which takes the parameters off it that
    /// people were shown.
    pub async fn expire_approvals(&self, by: Timestamp) -> Result<(), Refusal> {
        self.end_overdue::<Expired>(by).await
    }
}

impl Ending for Expired {
    type Id = ApprovalId;
    const NAME: &'static str = "approvals";
    const ROUND_MAX: u32 = APPROVALS_MAX;
    const ROUNDS_MAX: usize = 300;
    const ROUNDS_MAX_UNDER_LOAD: usize = 60;
    const SHARE: usize = 2 * APPROVALS_MAX as usize;

    fn ends(gateway: &Gateway) -> &Ends {
        &gateway.approval_ends
    }

    async fn overdue(
        gateway: &Gateway,
        except: &[TenantId],
        by: Timestamp,
    ) -> Result<Vec<(TenantId, ApprovalId)>, StoreError> {
        gateway.store.overdue_approvals(except, by, Self::ROUND_MAX).await
    }

    fn end(tenant: &TenantSnapshot, id: ApprovalId) -> Proposal {
        let step = Step::Expire;
        Proposal::of(tenant, Intent::Approval(ApprovalChange { id, step }))
    }

    fn notify(gateway: &Gateway, tenants: &BTreeSet<TenantId>) {
        for tenant in tenants {
            gateway.approval_waiters.notify(*tenant);
        }
    }
}
