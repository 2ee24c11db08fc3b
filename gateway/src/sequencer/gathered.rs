//! What is to be recorded in one commit, and who waits for what becomes of it.
//!
//! Whoever cannot wait long enough is sent away, and what it has proposed goes with it: that is done before anything is applied.
//! How long a commit takes is not known here.

use super::{Fault, Reply, Submission, receipt};
use engine::{Proposal, Settled};
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
    /// When an answer is of no use any more.
    deadline: Option<Instant>,
    reply: Reply,
}

impl Gathered {
    /// Of these submissions, from now on.
    pub(super) fn of(submissions: Vec<Submission>) -> Self {
        let mut waiting = Vec::with_capacity(submissions.len());
        let mut proposals = Vec::with_capacity(submissions.len());
        for submission in submissions {
            waiting.push(Waiting {
                size: submission.proposals.len(),
                deadline: submission.deadline,
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

    /// Whether nobody waits any more.
    pub(super) const fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether an answer may be of no use any more to somebody.
    pub(super) fn has_deadlines(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.deadline.is_some())
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
        let is_late = |waiting: &Waiting| waiting.deadline.is_some_and(|deadline| deadline < done);
        if !self.waiting.iter().any(is_late) {
            return;
        }
        let mut proposals = std::mem::take(&mut self.proposals).into_iter();
        for waiting in std::mem::take(&mut self.waiting) {
            let proposed = proposals.by_ref().take(waiting.size);
            if is_late(&waiting) {
                proposed.for_each(drop);
                // Nobody waits any more: that is the caller's right.
                let _ = waiting.reply.send(Err(Fault::TooLate));
            } else {
                self.proposals.extend(proposed);
                self.waiting.push(waiting);
            }
        }
    }

    /// Tells everybody what has become of theirs, or why nothing has.
    pub(super) fn answer(self, recorded: Result<Vec<Settled>, Fault>) {
        let mut settled = recorded.map(Vec::into_iter);
        for waiting in self.waiting {
            let answer = match &mut settled {
                Ok(settled) => Ok(settled.by_ref().take(waiting.size).map(receipt).collect()),
                Err(fault) => Err(*fault),
            };
            // Nobody waits any more: that is the caller's right.
            let _ = waiting.reply.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sequencer::Recorded;
    use tokio::sync::oneshot;

    type Answer = oneshot::Receiver<Result<Vec<Recorded>, Fault>>;

    /// Somebody who proposes nothing, and what it hears.
    fn submission(deadline: Option<Instant>) -> (Submission, Answer) {
        let (reply, answer) = oneshot::channel();
        let submission = Submission {
            proposals: Vec::new(),
            deadline,
            reply,
        };
        (submission, answer)
    }

    #[test]
    fn who_cannot_wait_is_sent_away_and_everybody_else_is_answered() {
        let now = Instant::now();
        let (late, mut late_answer) = submission(Some(now));
        let (in_time, mut in_time_answer) = submission(Some(now + Duration::from_mins(1)));
        let (patient, mut patient_answer) = submission(None);
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
}
