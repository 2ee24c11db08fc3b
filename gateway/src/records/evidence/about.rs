//! What evidence is about: entries, a time, or a run.

use super::Whose;
use crate::fair_semaphore::FairSemaphore;
use crate::http::query::invalid;
use crate::http::{Code, Refusal};
use crate::records::range::Range;
use crate::records::times::first_since;
use crate::search::page::{Wanted, find};
use engine::EntryKind;
use model::{ApprovalId, ApprovalStatus, DecisionId, Name, TenantId, Timestamp, Verdict};
use serde::Deserialize;
use std::collections::HashSet;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;
use store::{DecisionFilter, Store, StoreError, StoredDecision, StoredEntry};

/// Decisions that are looked for at once.
const PAGE: usize = 500;
/// Decisions of a run that are found and kept in mind: some megabytes. As many again may be kept that only their entries tell of.
const DECISIONS_MAX: usize = 100_000;
/// Entries that are looked at for the one that tells what people have said last, from the time of that on and behind
/// the last decision or outcome of the run. It stands further on where a clock was set back, and an approval is written
/// down as expired when a gateway comes to it.
const LOOKED_AT_MAX: u64 = 10_000;
/// Entries of these that are read at once.
const ENTRIES_AT_ONCE: u32 = 256;

/// What a caller asks for.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct About {
    from_seq: Option<NonZeroU64>,
    to_seq: Option<NonZeroU64>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    run_id: Option<Name>,
}

/// The ledger in which the entries are looked for that a caller asks for.
pub(super) struct Search<'a> {
    pub(super) store: &'a dyn Store,
    /// The places that everybody shares who reads much of a ledger.
    pub(super) ledger_chunks: &'a FairSemaphore,
    pub(super) tenant: TenantId,
    /// The last entry that is looked at.
    pub(super) head: u64,
}

/// A run, and which decisions are its own.
pub(super) struct Run {
    pub(super) id: Name,
    decisions: HashSet<DecisionId>,
}

/// What the body of a decision says of the approval that it asks for.
#[derive(Default, Deserialize)]
struct Asking {
    approval: Option<Asked>,
}

#[derive(Deserialize)]
struct Asked {
    id: Option<ApprovalId>,
}

/// When people have last said something about what decisions ask for.
#[derive(Default)]
struct Said {
    /// The last vote, by the clock of the gateway that took it. Its entry is no earlier.
    voted_at: Option<Timestamp>,
    /// The last end of an approval that nobody has decided in time.
    expired_at: Option<Timestamp>,
}

impl Search<'_> {
    /// The entries that it is about, of which there is at least one, and the run, if it is about one.
    pub(super) async fn resolve(&self, about: About) -> Result<(RangeInclusive<u64>, Option<Run>), Refusal> {
        let is_by_seq = about.from_seq.is_some() || about.to_seq.is_some();
        let is_by_time = about.from.is_some() || about.to.is_some();
        match (is_by_seq, is_by_time, about.run_id) {
            (_, false, None) => {
                let range = Range::new(about.from_seq, about.to_seq);
                Ok((range.within(self.head)?, None))
            }
            (false, true, None) => Ok((self.seqs_of_time(about.from, about.to).await?, None)),
            (false, false, Some(id)) => {
                let (seqs, run) = self.find_run(id).await?;
                Ok((seqs, Some(run)))
            }
            _ => Err(invalid(
                "say what it is about by `from_seq` and `to_seq`, by `from` and `to`, or by `run_id`",
            )),
        }
    }

    /// The entries that were recorded from a time on and before another one.
    async fn seqs_of_time(
        &self,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
    ) -> Result<RangeInclusive<u64>, Refusal> {
        let first = match from {
            Some(from) => self.first_since(from).await?,
            None => 1,
        };
        let end = match to {
            Some(to) => self.first_since(to).await?,
            None => self.head + 1,
        };
        if first >= end {
            return Err(Refusal::new(
                Code::EmptyRange,
                "no entry was recorded in this time",
            ));
        }
        Ok(first..=end - 1)
    }

    async fn first_since(&self, time: Timestamp) -> Result<u64, StoreError> {
        first_since(self.store, self.tenant, self.head, time).await
    }

    /// Finds a run, and the entries from its first decision to the last of its decisions, of what people have said
    /// about them and of what became of them.
    async fn find_run(&self, id: Name) -> Result<(RangeInclusive<u64>, Run), Refusal> {
        let Self {
            store, tenant, head, ..
        } = *self;
        let mut run = Run {
            id,
            decisions: HashSet::new(),
        };
        let (mut first, mut last, mut said) = (None, None, Said::default());
        let newest = store
            .entries(tenant, head, 1)
            .await?
            .first()
            .map(|entry| entry.at);
        let mut before = Some(head + 1);
        while let Some(end) = before {
            let _permit = self.ledger_chunks.acquire_for_part(tenant).await;
            let found = find(store, tenant, run.wanted(end)).await?;
            let ids: Vec<DecisionId> = found.decisions.iter().map(|decision| decision.id).collect();
            let outcomes = store.outcomes_of(tenant, &ids).await?;
            // Behind the head it may be an erasure that has come meanwhile, and that is of no run.
            let outcome = outcomes.into_iter().rfind(|seq| *seq <= head);
            let latest = found.decisions.first().map(|decision| decision.seq);
            last = last.max(latest).max(outcome);
            said.add(self, &found.decisions, newest).await?;
            first = found.decisions.last().map(|decision| decision.seq).or(first);
            run.decisions.extend(ids);
            if run.decisions.len() > DECISIONS_MAX {
                let detail =
                    format!("the run has more than {DECISIONS_MAX} decisions: ask for evidence of a time");
                return Err(invalid(detail));
            }
            before = found.next;
        }
        for said_at in [said.voted_at, said.expired_at].into_iter().flatten() {
            // What stands before that changes nothing. Where a chain is ahead of the clock, all its entries are later
            // than what was said, so that their times do not tell where to look.
            let behind = last.map_or(1, |last| last + 1);
            last = last.max(self.last_vote(&run, said_at, behind).await?);
        }
        match (first, last) {
            (Some(first), Some(last)) => Ok((first..=last, run)),
            // It may be there all the same, frozen before it has asked for anything.
            _ => Err(Refusal::new(
                Code::NotFound,
                format!("no decision of the run `{}` is in the ledger", run.id),
            )),
        }
    }

    /// The last entry that tells what people have said about a decision of the run, or that nobody has in time, which
    /// was at `said_at`. No entry before `behind` is looked at.
    async fn last_vote(&self, run: &Run, said_at: Timestamp, behind: u64) -> Result<Option<u64>, StoreError> {
        let mut next = self.first_since(said_at).await?.max(behind);
        let end = self.head.min(next.saturating_add(LOOKED_AT_MAX));
        let mut vote = None;
        while next <= end {
            let _permit = self.ledger_chunks.acquire_for_part(self.tenant).await;
            let entries = self.store.entries(self.tenant, next, ENTRIES_AT_ONCE).await?;
            let votes = entries
                .iter()
                .filter(|entry| entry.seq <= self.head && run.is_vote(entry));
            vote = votes.map(|entry| entry.seq).max().or(vote);
            let Some(last) = entries.last() else { break };
            next = last.seq + 1;
        }
        Ok(vote)
    }
}

impl Run {
    fn wanted(&self, end: u64) -> Wanted {
        Wanted {
            filter: DecisionFilter {
                run_id: Some(self.id.clone()),
                ..DecisionFilter::default()
            },
            user: None,
            words: Vec::new(),
            seqs: 1..end,
            limit: PAGE,
        }
    }

    /// Whether an entry tells how far an approval has come that a decision of the run asks for.
    fn is_vote(&self, entry: &StoredEntry) -> bool {
        let is_about_approvals = [
            EntryKind::ApprovalApproved,
            EntryKind::ApprovalRejected,
            EntryKind::ApprovalExpired,
        ]
        .iter()
        .any(|about| about.as_str() == entry.kind);
        let told = is_about_approvals.then(|| serde_json::from_str::<Whose<'_>>(&entry.body).ok());
        let decision: Option<DecisionId> = told.flatten().and_then(|whose| whose.decision_id?.parse().ok());
        decision.is_some_and(|id| self.decisions.contains(&id))
    }

    /// Whether the entry with this body, which is behind those that were asked about, tells of the run or of a decision
    /// of it. What names only who started it is of that run. Earlier versions did not find such a decision by its run,
    /// so it is kept in mind for what became of it.
    pub(super) fn has(&mut self, body: &str) -> bool {
        let whose: Whose<'_> = serde_json::from_str(body).unwrap_or_default();
        let decision: Option<DecisionId> = whose.decision_id.as_deref().and_then(|id| id.parse().ok());
        if whose.run() != Some(self.id.as_str()) {
            return decision.is_some_and(|id| self.decisions.contains(&id));
        }
        if self.decisions.len() < 2 * DECISIONS_MAX {
            self.decisions.extend(decision);
        }
        true
    }
}

impl Said {
    /// Adds what was said about these decisions by entries that are no later than `newest`.
    async fn add(
        &mut self,
        search: &Search<'_>,
        decisions: &[StoredDecision],
        newest: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        for decision in decisions {
            if decision.reason.verdict() != Verdict::RequireApproval {
                continue;
            }
            let asking: Asking = serde_json::from_str(&decision.body).unwrap_or_default();
            let Some(id) = asking.approval.and_then(|asked| asked.id) else {
                continue;
            };
            let Some(approval) = search.store.approval(search.tenant, id).await? else {
                continue;
            };
            let votes = approval.votes.iter().map(|vote| vote.at);
            self.voted_at = self.voted_at.max(votes.filter(|at| Some(*at) <= newest).max());
            let has_expired =
                approval.status == ApprovalStatus::Expired && Some(approval.expires_at) <= newest;
            self.expired_at = self.expired_at.max(has_expired.then_some(approval.expires_at));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_became_of_a_decision_that_names_only_who_started_it_is_of_that_run() {
        let mut run = Run {
            id: Name::new("root").unwrap(),
            decisions: HashSet::new(),
        };
        let [own, of_a_child] = [1, 2].map(|byte| DecisionId::from_bytes([byte; 16]).to_string());
        for (body, is_of_it) in [
            (json!({"decision_id": own, "parent_run_id": "root"}), true),
            (
                json!({"decision_id": of_a_child, "parent_run_id": "root", "run_id": "child"}),
                false,
            ),
            (json!({"decision_id": own, "status": "success"}), true),
            (json!({"decision_id": of_a_child, "status": "success"}), false),
            (json!({"run_id": "root"}), true),
            (json!({}), false),
        ] {
            assert_eq!(run.has(&body.to_string()), is_of_it, "{body}");
        }
        assert!(!run.has(""));
    }
}
