//! What is to be recorded in one commit, and who waits for what becomes of it.
//!
//! Whoever cannot wait long enough, has left out what the store has lost, or decides where nobody knows what others
//! have changed, is sent away, and what it has proposed goes with it: that is done before anything is applied. How long
//! a commit takes is not known here.

use super::{Fault, Reply, Submission, Terms, status_of};
use engine::proposal::Intent;
use engine::{Disposition, Proposal};
use model::TenantId;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What is to be recorded in one commit.
pub(super) struct Gathered {
    /// All of it, in the order of those who wait.
    proposals: Vec<Proposal>,
    waiting: Vec<Waiting>,
    began: Instant,
}

/// Somebody who waits for what becomes of the next proposals.
struct Waiting {
    /// How many of them.
    size: usize,
    /// Whether there are decisions among them.
    decides: bool,
    terms: Terms,
    reply: Reply,
}

impl Waiting {
    fn is_late(&self, done: Instant) -> bool {
        self.terms.deadline.is_some_and(|deadline| deadline < done)
    }
}

impl Gathered {
    /// Of these submissions, from now on.
    pub(super) fn of(submissions: Vec<Submission>) -> Self {
        let mut waiting = Vec::with_capacity(submissions.len());
        let mut proposals = Vec::with_capacity(submissions.len());
        for submission in submissions {
            waiting.push(Waiting {
                size: submission.proposals.len(),
                decides: submission.proposals.iter().any(is_decision),
                terms: submission.terms,
                reply: submission.reply,
            });
            proposals.extend(submission.proposals);
        }
        Self {
            proposals,
            waiting,
            began: Instant::now(),
        }
    }

    /// What is proposed.
    pub(super) fn proposals(&self) -> &[Proposal] {
        &self.proposals
    }

    /// Whether anything is decided.
    pub(super) fn decides(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.decides)
    }

    /// Whether nobody waits any more.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether an answer may be of no use any more to somebody.
    pub(super) fn has_deadlines(&self) -> bool {
        let mut terms = self.waiting.iter().map(|waiting| waiting.terms);
        terms.any(|terms| terms.deadline.is_some())
    }

    /// For how long it is being recorded.
    pub(super) fn took(&self) -> Duration {
        self.began.elapsed()
    }

    /// Begins anew after a commit of something else: that is no part of its time.
    pub(super) fn begin_anew(&mut self) {
        self.began = Instant::now();
    }

    /// In two, to be recorded one after the other. What is of one tenant stays together, and so does what one submission
    /// proposes for several. The second is empty where nothing can be parted.
    pub(super) fn halved(self) -> (Self, Self) {
        let mut parts = self.apart();
        let others = parts.split_off(parts.len().div_ceil(2));
        (Self::together(parts), Self::together(others))
    }

    fn together(parts: Vec<Self>) -> Self {
        let mut all = Self::of(Vec::new());
        for part in parts {
            all.proposals.extend(part.proposals);
            all.waiting.extend(part.waiting);
        }
        all
    }

    /// By tenant, to be recorded one after the other. What one submission proposes for several tenants stays together,
    /// by itself.
    fn apart(self) -> Vec<Self> {
        let mut parts: Vec<Self> = Vec::new();
        let mut place_of = HashMap::new();
        let mut proposals = self.proposals.into_iter();
        for waiting in self.waiting {
            let proposed: Vec<_> = proposals.by_ref().take(waiting.size).collect();
            let next = parts.len();
            let place = only_tenant(&proposed).map_or(next, |tenant| *place_of.entry(tenant).or_insert(next));
            if place == next {
                parts.push(Self::of(Vec::new()));
            }
            parts[place].proposals.extend(proposed);
            parts[place].waiting.push(waiting);
        }
        parts
    }

    /// Sends away those to whom an answer is of no use that comes then.
    pub(super) fn send_away(&mut self, done: Instant) {
        self.send_away_those(Fault::TooLate, |waiting| waiting.is_late(done));
    }

    /// Sends away those who left contents out at a lower value of [`Sequencer::losses`](super::Sequencer::losses) than this.
    pub(super) fn send_away_incomplete(&mut self, losses: u64) {
        let is_before = |known: u64| known < losses;
        self.send_away_those(Fault::LedgerUnavailable, |waiting| {
            waiting.terms.contents_as_of.is_some_and(is_before)
        });
    }

    /// Sends away those who decide something: this gateway does not know well enough what others have changed.
    pub(super) fn send_away_deciding(&mut self) {
        self.send_away_those(Fault::Stale, |waiting| waiting.decides);
    }

    /// Sends everybody away, because nothing is recorded any more.
    pub(super) fn send_away_all(&mut self, fault: Fault) {
        self.send_away_those(fault, |_| true);
    }

    fn send_away_those(&mut self, fault: Fault, whom: impl Fn(&Waiting) -> bool) {
        if !self.waiting.iter().any(&whom) {
            return;
        }
        let mut proposals = std::mem::take(&mut self.proposals).into_iter();
        for waiting in std::mem::take(&mut self.waiting) {
            let proposed = proposals.by_ref().take(waiting.size);
            if whom(&waiting) {
                proposed.for_each(drop);
                // Nobody waits any more: that is the caller's right.
                let _ = waiting.reply.send(Err(fault));
            } else {
                self.proposals.extend(proposed);
                self.waiting.push(waiting);
            }
        }
    }

    /// Tells everybody what has become of theirs, or why nothing has.
    pub(super) fn answer(self, dispositions: Result<Vec<Disposition>, Fault>) {
        let mut dispositions = dispositions.map(Vec::into_iter);
        for waiting in self.waiting {
            let answer = match &mut dispositions {
                Ok(dispositions) => Ok(dispositions.by_ref().take(waiting.size).map(status_of).collect()),
                Err(fault) => Err(*fault),
            };
            // Nobody waits any more: that is the caller's right.
            let _ = waiting.reply.send(answer);
        }
    }
}

const fn is_decision(proposal: &Proposal) -> bool {
    matches!(proposal.intent, Intent::Decision(_))
}

/// Whose all of these are, if they are of one tenant.
fn only_tenant(proposals: &[Proposal]) -> Option<TenantId> {
    let (first, others) = proposals.split_first()?;
    let is_same = |other: &Proposal| other.tenant == first.tenant;
    others.iter().all(is_same).then_some(first.tenant)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequencer::CommitStatus;
    use canon::Digest;
    use engine::approvals::{ApprovalChange, Step};
    use model::ApprovalId;
    use tokio::sync::oneshot;

    type Answer = oneshot::Receiver<Result<Vec<CommitStatus>, Fault>>;

    /// Somebody who proposes nothing on these terms, and what it hears.
    fn submission(terms: Terms) -> (Submission, Answer) {
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            proposals: Vec::new(),
            work: 0,
            terms,
            reply,
        };
        (submission, answer)
    }

    fn until(deadline: Instant) -> Terms {
        Terms {
            deadline: Some(deadline),
            ..Terms::default()
        }
    }

    /// Somebody who proposes something for each of these tenants, and what it hears.
    fn submission_for(tenants: &[TenantId]) -> (Submission, Answer) {
        let proposal = |tenant: &TenantId| Proposal {
            tenant: *tenant,
            revision: 0,
            base: Digest::of(b"policies"),
            intent: Intent::Approval(ApprovalChange {
                id: ApprovalId::from_bytes([3; 16]),
                step: Step::Expire,
            }),
        };
        let (mut submission, answer) = submission(Terms::default());
        submission.proposals = tenants.iter().map(proposal).collect();
        (submission, answer)
    }

    #[test]
    fn each_tenant_stands_apart_and_what_is_of_several_by_itself() {
        let [one, other] = [1, 2].map(|byte| TenantId::from_bytes([byte; 16]));
        let asked: [&[TenantId]; 5] = [&[one], &[one, other], &[other, other], &[one], &[one, other]];
        let (submissions, mut answers): (Vec<_>, Vec<_>) = asked.into_iter().map(submission_for).unzip();
        let mut parts = Gathered::of(submissions).apart();
        let of = |part: &Gathered| -> Vec<TenantId> {
            let proposals = part.proposals().iter();
            proposals.map(|proposal| proposal.tenant).collect()
        };
        let tenants: Vec<_> = parts.iter().map(of).collect();
        let expected: [&[TenantId]; 4] = [&[one, one], &[one, other], &[other, other], &[one, other]];
        assert_eq!(tenants, expected);
        parts.remove(0).answer(Err(Fault::Unreadable));
        let is_told = |answer: &mut Answer| answer.try_recv().is_ok();
        let told: Vec<_> = answers.iter_mut().map(is_told).collect();
        assert_eq!(told, [true, false, false, true, false]);
    }

    #[test]
    fn who_cannot_wait_is_sent_away_and_everybody_else_is_answered() {
        let now = Instant::now();
        let (late, mut late_answer) = submission(until(now));
        let (in_time, mut in_time_answer) = submission(until(now + Duration::from_mins(1)));
        let (patient, mut patient_answer) = submission(Terms::default());
        let mut gathered = Gathered::of(vec![late, in_time, patient]);
        assert!(gathered.has_deadlines());
        gathered.send_away(now);
        assert!(late_answer.try_recv().is_err(), "it could still wait");
        gathered.send_away(now + Duration::from_millis(1));
        assert!(matches!(late_answer.try_recv(), Ok(Err(Fault::TooLate))));
        assert!(!gathered.is_empty());
        gathered.answer(Err(Fault::LedgerUnavailable));
        for answer in [&mut in_time_answer, &mut patient_answer] {
            assert!(matches!(answer.try_recv(), Ok(Err(Fault::LedgerUnavailable))));
        }
    }

    #[test]
    fn who_has_left_out_what_was_lost_is_sent_away_and_nobody_else() {
        let knowing = |contents_as_of| {
            submission(Terms {
                contents_as_of,
                ..Terms::default()
            })
        };
        let (before, mut before_answer) = knowing(Some(1));
        let (after, mut after_answer) = knowing(Some(2));
        let (complete, mut complete_answer) = knowing(None);
        let mut gathered = Gathered::of(vec![before, after, complete]);
        gathered.send_away_incomplete(1);
        assert!(before_answer.try_recv().is_err(), "nothing was lost");
        gathered.send_away_incomplete(2);
        assert!(matches!(
            before_answer.try_recv(),
            Ok(Err(Fault::LedgerUnavailable))
        ));
        gathered.answer(Ok(Vec::new()));
        for answer in [&mut after_answer, &mut complete_answer] {
            assert!(matches!(answer.try_recv(), Ok(Ok(_))));
        }
    }
}
