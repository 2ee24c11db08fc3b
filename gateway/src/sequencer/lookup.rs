//! What storage has to be asked about a batch, in the turn, before it is applied.

use super::budgets::WantedMoves;
use super::footprints::Footprints;
use super::overdue::Ends;
use super::times::Times;
use canon::Digest;
use engine::budgets::{FoundBudgets, KnownBudgets};
use engine::proposal::{ApprovalUse, Intent};
use engine::runs::Sighting;
use engine::{Found, Proposal, quotas};
use model::{ApprovalId, DecisionId, Name, TenantId};
use std::collections::HashSet;
use store::{RequestKey, StoreError, Turn};

/// What has to be read for a batch: what its proposals are about that changes, as it is at the head that the batch
/// follows. Such a batch needs a turn, unless it is about budgets only and these are remembered.
#[derive(Default)]
pub(super) struct BatchReads<'p> {
    /// The approvals that are changed or used up.
    approvals: Vec<(TenantId, ApprovalId)>,
    /// The runs that something is shown to, and those that they say started them.
    runs: Vec<(TenantId, Name)>,
    /// The counters of the quotas that decisions count towards.
    counters: Vec<(TenantId, Digest)>,
    /// The entries whose bodies are to be erased.
    erasures: Vec<(TenantId, u64)>,
    /// The decisions among what is erased.
    erased_decisions: Vec<(TenantId, DecisionId)>,
    moves: WantedMoves<'p>,
}

impl<'p> BatchReads<'p> {
    /// What these proposals are about.
    pub(super) fn of(proposals: &'p [Proposal]) -> Self {
        let mut reads = Self {
            moves: WantedMoves::of(proposals),
            ..Self::default()
        };
        for proposal in proposals {
            let tenant = proposal.tenant;
            match &proposal.intent {
                Intent::Decision(decision) => {
                    if let Some(ApprovalUse::Spends { id, .. }) = &decision.approval {
                        reads.approvals.push((tenant, *id));
                    }
                    if let Some(sighting) = &decision.sighting {
                        reads.add_runs(tenant, sighting);
                    }
                    let keys = decision.quotas.iter().map(|quota| (tenant, quota.key));
                    reads.counters.extend(keys);
                }
                Intent::Approval(change) => reads.approvals.push((tenant, change.id)),
                Intent::Observation(_, sighting) => reads.add_runs(tenant, sighting),
                Intent::Erasure { bodies, .. } => {
                    let seqs = bodies.iter().map(|body| (tenant, body.seq));
                    reads.erasures.extend(seqs);
                    let ids = bodies.iter().filter_map(|body| Some((tenant, body.outcome?)));
                    reads.erased_decisions.extend(ids);
                }
                _ => {}
            }
        }
        // Many may be about the same one, and it would be read as often as it is named.
        keep_each_once(&mut reads.approvals);
        keep_each_once(&mut reads.runs);
        keep_each_once(&mut reads.counters);
        reads
    }

    /// The run that something is shown to, and the one that it says started it.
    fn add_runs(&mut self, tenant: TenantId, sighting: &Sighting) {
        let names = sighting.names().map(|name| (tenant, name.clone()));
        self.runs.extend(names);
    }

    /// All of it, if it is remembered.
    pub(super) fn read_remembered(&self, footprints: &Footprints, times: Times<'_>) -> Option<Found> {
        let is_of_budgets = self.approvals.is_empty() && self.runs.is_empty() && self.counters.is_empty();
        if !is_of_budgets || !self.erasures.is_empty() {
            return None;
        }
        self.moves.recall(footprints, times).ok().map(of_budgets)
    }

    /// Reads it in the turn, and says when overdue reservations are ended: with this batch or before it. `None` if
    /// something was forgotten while it was read; the batch is then made again.
    pub(super) async fn read(
        &self,
        turn: &mut dyn Turn,
        footprints: &mut Footprints,
        times: Times<'_>,
    ) -> Result<Option<(Found, Ends)>, StoreError> {
        let Ok((budgets, ends)) = self.moves.find(turn, footprints, times).await? else {
            return Ok(None);
        };
        let mut found = of_budgets(budgets);
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
        if !self.erasures.is_empty() {
            found.erased = turn.find_erased(&self.erasures).await?.into_iter().collect();
        }
        if !self.erased_decisions.is_empty() {
            found.outcomes = turn
                .find_outcomes(&self.erased_decisions)
                .await?
                .into_iter()
                .collect();
        }
        Ok(Some((found, ends)))
    }

    /// Looks up earlier answers to the asks that a quota would refuse, adds them to `found`, and returns the keys that
    /// it looked for. For other asks the commit itself reports a repetition; these would not be written, so nothing
    /// would.
    pub(super) async fn read_earlier_of_refused(
        &self,
        turn: &mut dyn Turn,
        proposals: &[Proposal],
        found: &mut Found,
        times: Times<'_>,
    ) -> Result<HashSet<RequestKey>, StoreError> {
        if self.counters.is_empty() {
            return Ok(HashSet::new());
        }
        let refused = |proposal: &Proposal| {
            let Intent::Decision(decision) = &proposal.intent else {
                return None;
            };
            let find = |key: &Digest| found.counters.get(&(proposal.tenant, *key));
            let has_room = quotas::check(&decision.quotas, find, times.of(proposal.tenant)).is_ok();
            let named = decision.request.as_ref().filter(|_| !has_room);
            named.map(|named| named.key.clone())
        };
        let refused: Vec<RequestKey> = proposals.iter().filter_map(refused).collect();
        if !refused.is_empty() {
            read_requests(turn, &refused, found).await?;
        }
        Ok(refused.into_iter().collect())
    }

    /// Looks up everything that these proposals would record and that may have been recorded before. It is done for
    /// some batches after a repetition.
    pub(super) async fn read_earlier_of_all(
        &self,
        turn: &mut dyn Turn,
        proposals: &[Proposal],
        found: &mut Found,
    ) -> Result<(), StoreError> {
        if !self.moves.keys().is_empty() {
            found.budgets.learn_all(FoundBudgets {
                replies: turn.find_replies(self.moves.keys()).await?,
                ..FoundBudgets::default()
            });
        }
        read_recorded(turn, proposals, found).await
    }
}

fn of_budgets(budgets: KnownBudgets) -> Found {
    Found {
        budgets,
        ..Found::default()
    }
}

fn keep_each_once<T: Ord>(named: &mut Vec<T>) {
    named.sort_unstable();
    named.dedup();
}

async fn read_recorded(
    turn: &mut dyn Turn,
    proposals: &[Proposal],
    found: &mut Found,
) -> Result<(), StoreError> {
    let mut requests: Vec<RequestKey> = Vec::new();
    let mut outcomes = Vec::new();
    for proposal in proposals {
        match &proposal.intent {
            Intent::Decision(decision) => {
                requests.extend(decision.request.iter().map(|named| named.key.clone()));
            }
            Intent::Outcome { decision, .. } => outcomes.push((proposal.tenant, *decision)),
            _ => {}
        }
    }
    if !requests.is_empty() {
        read_requests(turn, &requests, found).await?;
    }
    if !outcomes.is_empty() {
        found.outcomes.extend(turn.find_outcomes(&outcomes).await?);
    }
    Ok(())
}

async fn read_requests(
    turn: &mut dyn Turn,
    requests: &[RequestKey],
    found: &mut Found,
) -> Result<(), StoreError> {
    let recorded = turn.find_requests(requests).await?;
    let recorded = recorded.into_iter().map(|request| (request.key.clone(), request));
    found.requests = recorded.collect();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::approvals::{ApprovalChange, Step};

    #[test]
    fn an_approval_that_many_change_is_read_once() {
        let change = |tenant: u8, id: u8| Proposal {
            tenant: TenantId::from_bytes([tenant; 16]),
            revision: 0,
            base: Digest::of(b"policies"),
            intent: Intent::Approval(ApprovalChange {
                id: ApprovalId::from_bytes([id; 16]),
                step: Step::Expire,
            }),
        };
        let proposals = [(1, 1), (1, 2), (2, 1), (1, 1), (1, 2)].map(|(tenant, id)| change(tenant, id));
        assert_eq!(BatchReads::of(&proposals).approvals.len(), 3);
    }
}
