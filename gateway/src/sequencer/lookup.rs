//! What storage has to be asked about a batch, in the turn, before it is applied.

use engine::proposal::{ApprovalUse, Happening};
use engine::{Found, Proposal};
use model::{ApprovalId, TenantId};
use store::{RequestKey, StoreError, Turn};

/// The approvals that proposals change or use up. They have to be known as they are at the head that the batch follows, so such
/// a batch needs a turn.
pub(super) fn approvals(proposals: &[Proposal]) -> Vec<(TenantId, ApprovalId)> {
    let about = |proposal: &Proposal| match &proposal.what {
        Happening::Approval(change) => Some((proposal.tenant, change.id)),
        Happening::Decision(decision) => match decision.approval {
            Some(ApprovalUse::Spends(id, _)) => Some((proposal.tenant, id)),
            Some(ApprovalUse::Asks(_)) | None => None,
        },
        _ => None,
    };
    proposals.iter().filter_map(about).collect()
}

/// Adds these approvals to what was found.
pub(super) async fn find_approvals(
    turn: &mut dyn Turn,
    approvals: &[(TenantId, ApprovalId)],
    found: &mut Found,
) -> Result<(), StoreError> {
    if !approvals.is_empty() {
        let stored = turn.find_approvals(approvals).await?.into_iter();
        found.approvals = stored
            .map(|(tenant, approval)| ((tenant, approval.id), approval))
            .collect();
    }
    Ok(())
}

/// Adds what was recorded before of what these proposals would record.
pub(super) async fn find_recorded(
    turn: &mut dyn Turn,
    proposals: &[Proposal],
    found: &mut Found,
) -> Result<(), StoreError> {
    let mut requests: Vec<RequestKey> = Vec::new();
    let mut outcomes = Vec::new();
    for proposal in proposals {
        match &proposal.what {
            Happening::Decision(decision) => {
                requests.extend(decision.request.iter().map(|(key, ..)| key.clone()));
            }
            Happening::Outcome { decision, .. } => outcomes.push((proposal.tenant, *decision)),
            _ => {}
        }
    }
    if !requests.is_empty() {
        let recorded = turn.find_requests(&requests).await?;
        found.requests = recorded
            .into_iter()
            .map(|request| (request.key.clone(), request))
            .collect();
    }
    if !outcomes.is_empty() {
        found.outcomes = turn.find_outcomes(&outcomes).await?.into_iter().collect();
    }
    Ok(())
}
