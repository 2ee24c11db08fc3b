//! The sequencer: the one task that gives entries their place, commits them, and only then lets answers out.
//!
//! Whatever waits is drained into a batch, applied, committed once, and everybody in it is woken. There is no artificial
//! delay: a batch grows by itself while the one before is being written. The queue is bounded, and a full one refuses
//! at once. A caller that goes away changes nothing: its proposal is recorded like any other.

use crate::metrics::Metrics;
use crate::snapshot::SnapshotCell;
use bytes::Bytes;
use engine::proposal::Happening;
use engine::{Applied, Books, Conflict, Found, Proposal, Settled, apply};
use model::{Clock, Timestamp};
use policy::BasePolicies;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use store::{Batch, CommitError, Store, StoreError};
use tokio::sync::{mpsc, oneshot};

/// How long a sequencer that cannot read its store refuses before it tries again for a caller.
const RELOAD_PAUSE: Duration = Duration::from_millis(100);
/// How long a sequencer in trouble waits for somebody before it looks by itself whether the trouble is over.
const PROBE_PAUSE: Duration = Duration::from_millis(500);

/// Proof that something is on disk and in the chain. Only this module can make one, so there is no answer without it.
#[derive(Debug)]
pub struct Receipt {
    head: ledger::Head,
    at: Timestamp,
    answer: Bytes,
    /// Nobody outside can write this field, so nobody outside can make a receipt.
    _only_the_sequencer: (),
}

impl Receipt {
    /// The last entry that was recorded.
    pub const fn head(&self) -> &ledger::Head {
        &self.head
    }

    /// When it was recorded.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// The sealed answer, if it was a decision that was recorded; empty otherwise.
    pub fn into_answer(self) -> Bytes {
        self.answer
    }
}

/// What became of a proposal.
#[derive(Debug)]
pub enum Recorded {
    /// It was recorded now.
    Now(Receipt),
    /// The same ask was recorded before; these are the bytes of the answer then.
    Before(Bytes),
    /// It was not recorded.
    Not(Conflict),
}

/// Why nothing was recorded, or nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The queue is full.
    #[error("the queue is full")]
    Overloaded,
    /// The ledger cannot be written now.
    #[error("the ledger cannot be written")]
    LedgerUnavailable,
}

impl From<Fault> for crate::http::Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Overloaded => Self::overloaded(),
            Fault::LedgerUnavailable => Self::ledger_unavailable(),
        }
    }
}

type Reply = oneshot::Sender<Result<Vec<Recorded>, Fault>>;

struct Submission {
    proposals: Vec<Proposal>,
    reply: Reply,
}

/// The handle to the sequencer.
#[derive(Clone)]
pub struct Sequencer {
    queue: mpsc::Sender<Submission>,
    healthy: Arc<AtomicBool>,
}

/// What a sequencer works with.
pub struct Parts {
    /// Where it writes.
    pub store: Arc<dyn Store>,
    /// Where it publishes.
    pub snapshot: Arc<SnapshotCell>,
    /// Where the time of a batch comes from.
    pub clock: Arc<dyn Clock>,
    /// What the policies of a reloaded directory are compiled with.
    pub base_policies: Arc<BasePolicies>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How many submissions may wait.
    pub queue_max: usize,
    /// How many proposals make a batch.
    pub batch_max: usize,
}

impl Sequencer {
    /// Starts the task, which ends when the last handle is gone and all that waited is recorded.
    pub fn start(books: Books, parts: Parts) -> (Self, tokio::task::JoinHandle<()>) {
        let (queue, waiting) = mpsc::channel(parts.queue_max);
        let healthy = Arc::new(AtomicBool::new(true));
        let task = Task {
            state: State::Trusted(books),
            healthy: Arc::clone(&healthy),
            parts,
        };
        let handle = tokio::spawn(task.run(waiting));
        (Self { queue, healthy }, handle)
    }

    /// Records one proposal.
    pub async fn record(&self, proposal: Proposal) -> Result<Recorded, Fault> {
        let mut recorded = self.record_all(vec![proposal]).await?;
        recorded.pop().ok_or(Fault::LedgerUnavailable)
    }

    /// Records several proposals in one commit. Each has its own outcome, in order.
    pub async fn record_all(&self, proposals: Vec<Proposal>) -> Result<Vec<Recorded>, Fault> {
        let (reply, answer) = oneshot::channel();
        let submission = Submission { proposals, reply };
        self.queue.try_send(submission).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => Fault::Overloaded,
            mpsc::error::TrySendError::Closed(_) => Fault::LedgerUnavailable,
        })?;
        // The task drops a reply only when it has panicked: then the ledger cannot trust itself, and neither can we.
        answer.await.unwrap_or(Err(Fault::LedgerUnavailable))
    }

    /// Whether the last attempt to write or to read back succeeded.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.queue.is_closed()
    }

    /// How many submissions wait.
    pub fn waiting(&self) -> usize {
        self.queue.max_capacity() - self.queue.capacity()
    }
}

/// What the task knows about the ledger.
enum State {
    /// Memory and storage agree.
    Trusted(Books),
    /// They may not; storage must be read again, though not before this time. It is not one of the clock on the wall,
    /// which can be set back.
    Doubtful(Instant),
}

struct Task {
    state: State,
    healthy: Arc<AtomicBool>,
    parts: Parts,
}

impl Task {
    async fn run(mut self, mut waiting: mpsc::Receiver<Submission>) {
        while let Some(first) = self.next(&mut waiting).await {
            let batch = drain(first, &mut waiting, self.parts.batch_max);
            self.process(batch).await;
        }
    }

    /// The next submission. A gateway that says it is not ready may be sent none that would find out that it is again.
    async fn next(&mut self, waiting: &mut mpsc::Receiver<Submission>) -> Option<Submission> {
        while !self.healthy.load(Ordering::Relaxed) {
            match tokio::time::timeout(PROBE_PAUSE, waiting.recv()).await {
                Ok(next) => return next,
                Err(_) => self.probe().await,
            }
        }
        waiting.recv().await
    }

    /// Finds out whether the ledger can be read back and locked for writing. It writes nothing.
    async fn probe(&mut self) {
        if self.books().await.is_ok() && self.parts.store.commit(&Batch::default()).await.is_ok() {
            self.healthy.store(true, Ordering::Relaxed);
        }
    }

    async fn process(&mut self, submissions: Vec<Submission>) {
        let mut sizes = Vec::with_capacity(submissions.len());
        let mut proposals = Vec::with_capacity(submissions.len());
        for submission in submissions {
            sizes.push((submission.proposals.len(), submission.reply));
            proposals.extend(submission.proposals);
        }
        match self.record(proposals).await {
            Ok(settled) => answer_each(sizes, settled),
            Err(fault) => {
                for (_, reply) in sizes {
                    // Nobody waits any more: that is the caller's right.
                    let _ = reply.send(Err(fault));
                }
            }
        }
    }

    async fn record(&mut self, proposals: Vec<Proposal>) -> Result<Vec<Settled>, Fault> {
        let books = self.books().await?;
        let found = match look_up(&*self.parts.store, &proposals).await {
            Ok(found) => found,
            Err(error) => return Err(self.unreadable(&error)),
        };
        let applied = apply(&books, found, proposals, self.parts.clock.now());
        if !applied.batch.entries.is_empty() {
            self.commit(&applied.batch).await?;
        }
        Ok(self.publish(applied))
    }

    /// The books, read from storage again if they are in doubt.
    async fn books(&mut self) -> Result<Books, Fault> {
        match &self.state {
            State::Trusted(books) => return Ok(books.clone()),
            State::Doubtful(not_before) if Instant::now() < *not_before => {
                return Err(Fault::LedgerUnavailable);
            }
            State::Doubtful(_) => {}
        }
        match crate::start::load_books(&*self.parts.store, &self.parts.base_policies).await {
            Ok(books) => {
                tracing::info!("the ledger was read back and is in use again");
                self.parts.snapshot.publish(books.snapshot().clone());
                self.state = State::Trusted(books.clone());
                Ok(books)
            }
            Err(error) => {
                tracing::error!(%error, "the ledger could not be read back");
                self.state = State::Doubtful(Instant::now() + RELOAD_PAUSE);
                Err(self.fault())
            }
        }
    }

    async fn commit(&mut self, batch: &Batch) -> Result<(), Fault> {
        let started = Instant::now();
        let outcome = self.parts.store.commit(batch).await;
        self.parts
            .metrics
            .observe_commit(batch.entries.len(), started.elapsed());
        let Err(error) = outcome else { return Ok(()) };
        tracing::error!(
            error = &error as &dyn std::error::Error,
            entries = batch.entries.len(),
            "a batch failed"
        );
        if !matches!(error, CommitError::NotWritten(_)) {
            self.state = State::Doubtful(Instant::now());
        }
        Err(self.fault())
    }

    fn publish(&mut self, applied: Applied) -> Vec<Settled> {
        if applied.directory_changes {
            self.parts.snapshot.publish(applied.books.snapshot().clone());
        }
        self.state = State::Trusted(applied.books);
        self.healthy.store(true, Ordering::Relaxed);
        applied.settled
    }

    fn unreadable(&self, error: &StoreError) -> Fault {
        tracing::error!(
            error = error as &dyn std::error::Error,
            "the ledger could not be searched"
        );
        self.fault()
    }

    fn fault(&self) -> Fault {
        self.healthy.store(false, Ordering::Relaxed);
        Fault::LedgerUnavailable
    }
}

/// What waits now, at most `batch_max` proposals unless one submission alone is larger.
fn drain(first: Submission, waiting: &mut mpsc::Receiver<Submission>, batch_max: usize) -> Vec<Submission> {
    let mut size = first.proposals.len();
    let mut batch = vec![first];
    while size < batch_max
        && let Ok(next) = waiting.try_recv()
    {
        size += next.proposals.len();
        batch.push(next);
    }
    batch
}

/// What storage knows about these proposals already.
async fn look_up(store: &dyn Store, proposals: &[Proposal]) -> Result<Found, StoreError> {
    let (mut requests, mut outcomes) = (Vec::new(), Vec::new());
    for proposal in proposals {
        match &proposal.what {
            Happening::Decision(decision) => {
                requests.extend(decision.request.iter().map(|(key, ..)| key.clone()));
            }
            Happening::Outcome { decision, .. } => outcomes.push((proposal.tenant, *decision)),
            Happening::Change(_) | Happening::NewTenant { .. } => {}
        }
    }
    let mut found = Found::default();
    if !requests.is_empty() {
        let recorded = store.find_requests(&requests).await?;
        found.requests = recorded
            .into_iter()
            .map(|request| (request.key.clone(), request))
            .collect();
    }
    if !outcomes.is_empty() {
        found.outcomes = store.find_outcomes(&outcomes).await?.into_iter().collect();
    }
    Ok(found)
}

fn answer_each(sizes: Vec<(usize, Reply)>, settled: Vec<Settled>) {
    let mut settled = settled.into_iter();
    for (size, reply) in sizes {
        let recorded = settled.by_ref().take(size).map(receipt).collect();
        // Nobody waits any more: that is the caller's right.
        let _ = reply.send(Ok(recorded));
    }
}

fn receipt(settled: Settled) -> Recorded {
    match settled {
        Settled::Recorded { head, at, answer } => Recorded::Now(Receipt {
            head,
            at,
            answer,
            _only_the_sequencer: (),
        }),
        Settled::Replayed(answer) => Recorded::Before(answer),
        Settled::Conflict(conflict) => Recorded::Not(conflict),
    }
}
