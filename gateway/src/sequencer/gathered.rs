//! What is to be recorded in one commit, and who waits for what becomes of it.
//!
//! Whoever cannot wait long enough, has left out what the store has lost, or decides where nobody knows what others
//! have changed, is sent away, and what it has proposed goes with it: that is done before anything is applied. How long
//! a commit takes is not known here.

use super::{Fault, Reply, Submission, Terms, status_of};
use engine::proposal::Intent;
use engine::{Disposition, Proposal};
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequencer::CommitStatus;
    use tokio::sync::oneshot;

    type Answer = oneshot::Receiver<Result<Vec<CommitStatus>, Fault>>;

    /// Somebody who proposes nothing on these terms, and what it hears.
    fn submission(terms: Terms) -> (Submission, Answer) {
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            proposals: Vec::new(),
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
