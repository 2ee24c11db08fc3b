//! What storage has to be asked about a batch, in the turn, before it is applied.

use super::budgets::WantedMoves;
use canon::Digest;
use engine::proposal::{ApprovalUse, Happening};
use engine::runs::Sighting;
use engine::{Found, Proposal};
use model::{ApprovalId, Name, TenantId, Timestamp};
use std::collections::HashSet;
use store::{RequestKey, StoreError, Turn};

/// What proposals are about that changes, and has to be known as it is at the head that the batch follows: such a batch needs a
/// turn.
#[derive(Default)]
pub(super) struct Wanted<'p> {
    approvals: Vec<(TenantId, ApprovalId)>,
    runs: Vec<(TenantId, Name)>,
    counters: Vec<(TenantId, Digest)>,
    moves: WantedMoves<'p>,
}

impl<'p> Wanted<'p> {
    /// What these proposals are about.
    pub(super) fn of(proposals: &'p [Proposal]) -> Self {
        Self {
            approvals: approvals(proposals),
            runs: runs(proposals),
            counters: counters(proposals),
            moves: WantedMoves::of(proposals),
        }
    }

    /// Whether they are about nothing that changes.
    pub(super) fn is_nothing(&self) -> bool {
        self.approvals.is_empty()
            && self.runs.is_empty()
            && self.counters.is_empty()
            && self.moves.is_nothing()
    }

    /// Looks it up.
    pub(super) async fn find(&self, turn: &mut dyn Turn, now: Timestamp) -> Result<Found, StoreError> {
        let mut found = Found {
            budgets: self.moves.find(turn, now).await?,
            ..Found::default()
        };
        if !self.approvals.is_empty() {
            let stored = turn.find_approvals(&self.approvals).await?.into_iter();
            found.approvals = stored
                .map(|(tenant, approval)| ((tenant, approval.id), approval))
                .collect();
        }
        if !self.runs.is_empty() {
            let stored = turn.find_runs(&self.runs).await?.into_iter();
            found.runs = stored
                .map(|(tenant, run)| ((tenant, run.run_id.clone()), run))
                .collect();
        }
        if !self.counters.is_empty() {
            let stored = turn.find_counters(&self.counters).await?.into_iter();
            found.counters = stored
                .map(|(tenant, counter)| ((tenant, counter.key), counter))
                .collect();
        }
        Ok(found)
    }
}

/// The runs that something is shown to, and those that they say started them.
fn runs(proposals: &[Proposal]) -> Vec<(TenantId, Name)> {
    let named = |proposal: &Proposal| {
        let sighting = match &proposal.what {
            Happening::Decision(decision) => decision.sighting.as_ref(),
            Happening::Observation(_, sighting) => Some(sighting),
            _ => None,
        };
        let names = sighting.into_iter().flat_map(Sighting::names);
        names
            .map(|name| (proposal.tenant, name.clone()))
            .collect::<Vec<_>>()
    };
    let mut runs: Vec<_> = proposals.iter().flat_map(named).collect();
    runs.sort_unstable();
    runs.dedup();
    runs
}

/// The counters of the quotas that decisions count towards.
fn counters(proposals: &[Proposal]) -> Vec<(TenantId, Digest)> {
    let counted = |proposal: &Proposal| match &proposal.what {
        Happening::Decision(decision) => {
            let keys = decision.quotas.iter().map(|quota| (proposal.tenant, quota.key));
            keys.collect::<Vec<_>>()
        }
        _ => Vec::new(),
    };
    let counters: HashSet<_> = proposals.iter().flat_map(counted).collect();
    counters.into_iter().collect()
}

/// The approvals that proposals change or use up.
fn approvals(proposals: &[Proposal]) -> Vec<(TenantId, ApprovalId)> {
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
