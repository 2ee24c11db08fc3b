//! What is asked of stored approvals.

use crate::{Part, StoreError};
use async_trait::async_trait;
use model::{AgentId, Approval, ApprovalId, ApprovalStatus, TenantId, Timestamp};

/// Which approvals to list. What is absent matches all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// As far as this, as it was written down last.
    pub status: Option<ApprovalStatus>,
    /// For this agent.
    pub agent: Option<AgentId>,
}

/// Reading approvals. They are written in the commit of the entry that tells of them: [`Batch::approvals`](crate::Batch).
///
/// Consistency: each call sees the state after some commit, and never less than any commit that returned before the call.
/// Who decides about one reads it in the turn, [`Turn::find_approvals`](crate::Turn::find_approvals). Concurrency: any number
/// of calls at once, none of which holds up a commit. Errors: [`StoreError`]; absence is `None`.
#[async_trait]
pub trait Approvals: Send + Sync {
    /// One approval.
    async fn approval(&self, tenant: TenantId, id: ApprovalId) -> Result<Option<Approval>, StoreError>;

    /// Approvals that match a filter, newest first, with an id below `before` where given, at most `limit`, and none
    /// behind the one with which their rows come to [`BYTES_AT_ONCE`](crate::BYTES_AT_ONCE). Where those for one agent
    /// are looked for, they are looked for among the next [`LOOKED_AT_MAX`](crate::LOOKED_AT_MAX).
    async fn approvals(
        &self,
        tenant: TenantId,
        filter: &ApprovalFilter,
        before: Option<ApprovalId>,
        limit: u32,
    ) -> Result<Part<Approval, ApprovalId>, StoreError>;

    /// Approvals of all tenants but these that were still open at `now` and should not be, at most `limit`: those whose
    /// time was over first, in this order.
    async fn overdue_approvals(
        &self,
        except: &[TenantId],
        now: Timestamp,
        limit: u32,
    ) -> Result<Vec<(TenantId, ApprovalId)>, StoreError>;
}
