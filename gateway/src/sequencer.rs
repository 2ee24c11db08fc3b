//! The sequencer: the one task that gives entries their place, commits them, and only then lets answers out.
//!
//! Whatever waits is drained into a batch, applied, committed once, and everybody in it is woken. There is no artificial
//! delay: a batch grows by itself while the one before is being written. The queue is bounded and fair, and a full one refuses
//! at once. A caller that goes away changes nothing: its proposal is recorded like any other. Only one that has said by when it
//! needs an answer is sent away if that cannot be met any more.
//!
//! It has a thread of its own, so that it does not stand in line with the callers that it lets go on. What they see of
//! it is here; what runs there is in `task`.

mod ahead;
mod budgets;
mod busy_poll;
mod contents;
mod footprints;
mod gathered;
mod load_signal;
mod lookup;
mod overdue;
mod pace;
mod queue;
mod remembered;
mod retry;
mod task;
mod times;

use crate::cosigning::Fork;
use crate::gateway::FixedBounds;
use crate::http::Code;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::repeats::Repeats;
use crate::runtimes;
use crate::search::job::Indexing;
use crate::snapshot::SnapshotCell;
use ahead::Ahead;
use bytes::Bytes;
use canon::Digest;
use contents::Contents;
use engine::approvals::{ApprovalChange, Step};
use engine::budgets::moves::Move;
use engine::proposal::{Intent, Tallies};
use engine::{Conflict, Disposition, Proposal};
use ledger::SigningKey;
pub use load_signal::LoadSignal;
use model::{Clock, ReasonCode, TenantId, Timestamp};
use queue::{Entrance, Lane, NoEntry, Rank, Weight};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use store::Store;
use task::Task;
use tokio::runtime::Builder;
use tokio::sync::{Notify, oneshot};

/// How long a proposal that was turned back waits for the directory as it is now. A follower that takes longer is in
/// trouble.
pub(crate) const FOLLOW_MAX: Duration = Duration::from_secs(2);
/// How many votes a commit takes before it leaves further ones to the next, and how many asks that use approvals: it
/// reads these with their parameters and votes, some megabytes each at most. Those that have expired come together, as
/// many at most, so with them there may be nearly twice as many; a batch of asks comes together, too.
pub(crate) const APPROVALS_MAX: u32 = 32;
/// How many reservations whose time is over are ended in one commit. Where the tenants of a batch have as many, they are
/// ended before it, or with the next ones, or by the job.
pub(crate) const ENDED_AT_ONCE_MAX: u32 = 500;
/// How many commits that only end such reservations may go before a batch, and how many follow each other in the job.
/// Together they end as many as are left out of balances that are shown.
pub(crate) const END_ROUNDS_MAX: u32 = 20;
/// How many of either while many wait for decisions.
pub(crate) const END_ROUNDS_MAX_UNDER_LOAD: u32 = 2;

/// So many bytes that are to be recorded take as much room as one more proposal, and as much time.
const WEIGHED_BYTES: usize = 16 << 10;
/// As many bytes take as long as it does to count in one quota. An ask takes about 20 µs of a commit, and one that
/// counts in 32 quotas and 24 budgets 250 µs: so four quotas take as long as an ask, and eight budgets.
const QUOTA_BYTES: usize = WEIGHED_BYTES / 4;
/// The same of one budget. What an entry and an answer say of its balance is no longer than that.
const BUDGET_BYTES: usize = WEIGHED_BYTES / 8;

/// Proof that something is on disk and in the chain. All of its fields are private, so only this module can make one,
/// and there is no answer without it.
#[derive(Debug)]
pub struct CommitProof {
    head: ledger::Head,
    at: Timestamp,
    answer: Bytes,
    denied: Option<ReasonCode>,
    is_named: bool,
}

impl CommitProof {
    /// The last entry that was recorded.
    pub const fn head(&self) -> &ledger::Head {
        &self.head
    }

    /// When it was recorded.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Why a decision became a denial when it was recorded, if it did.
    pub const fn denied(&self) -> Option<ReasonCode> {
        self.denied
    }

    /// Whether it is a decision under its request id, and so the answer to that id from now on.
    pub const fn is_named(&self) -> bool {
        self.is_named
    }

    /// The sealed answer of a decision, or what moved of budgets; empty otherwise.
    pub fn into_answer(self) -> Bytes {
        self.answer
    }
}

/// What became of a proposal.
#[derive(Debug)]
pub enum CommitStatus {
    /// It was recorded, and is on disk.
    Recorded(CommitProof),
    /// The same ask was recorded before; these are the bytes of the answer then.
    Repeated(Bytes),
    /// It was not recorded.
    Conflict(Conflict),
}

/// Why nothing was recorded, or nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The queue is full.
    #[error("the queue is full")]
    Overloaded,
    /// The answer would come later than the caller can wait.
    #[error("the answer would come too late")]
    TooLate,
    /// The ledger cannot be written now.
    #[error("the ledger cannot be written")]
    LedgerUnavailable,
    /// A row that has to be known beforehand, for this or for something in its commit, is damaged. What is of other
    /// tenants can be recorded.
    #[error("a row that it depends on cannot be read")]
    Unreadable,
    /// It is not known whether the key of this gateway still signs, and whether another gateway has changed what
    /// decisions are judged by.
    #[error("it is not known what other gateways have changed")]
    Stale,
    /// A witness has seen another ledger than this one.
    #[error("the ledger has forked")]
    Forked,
}

impl From<Fault> for crate::http::Refusal {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Overloaded => Self::overloaded(),
            Fault::TooLate => Self::deadline_exceeded(),
            Fault::LedgerUnavailable => Self::ledger_unavailable(),
            Fault::Unreadable => Self::unreadable(),
            Fault::Stale => Self::snapshot_stale(),
            Fault::Forked => Self::new(
                Code::LedgerForked,
                "a witness has seen another ledger than the one in the database, so nothing is recorded",
            ),
        }
    }
}

type Reply = oneshot::Sender<Result<Vec<CommitStatus>, Fault>>;

/// On what terms something is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub struct Terms {
    /// When an answer is of no use any more.
    pub deadline: Option<Instant>,
    /// The value of [`Sequencer::losses`] that was read before contents were left out; `None` if none were left out.
    /// The proposal is refused if the store has lost something since.
    pub contents_as_of: Option<u64>,
}

struct Submission {
    proposals: Vec<Proposal>,
    /// How much of a commit they take.
    work: usize,
    terms: Terms,
    reply: Reply,
}

/// The handle to the sequencer.
#[derive(Clone)]
pub struct Sequencer {
    queue: Entrance<Submission>,
    healthy: Arc<AtomicBool>,
    snapshot: Arc<SnapshotCell>,
    contents: Arc<Contents>,
    load: Arc<LoadSignal>,
    /// How long commits take, in microseconds.
    commit_micros: Arc<AtomicU64>,
    ahead: Arc<Ahead>,
}

/// What a sequencer works with.
pub struct Parts {
    /// Where it writes.
    pub store: Arc<dyn Store>,
    /// Where it publishes.
    pub snapshot: Arc<SnapshotCell>,
    /// Wakes whoever reads the directory from the store again.
    pub follow: Arc<Notify>,
    /// Where the time of a batch comes from.
    pub clock: Arc<dyn Clock>,
    /// The latest time of an entry when the gateway began, and in whose ledger that is; none if there was no entry.
    pub latest: Option<(TenantId, Timestamp)>,
    /// Hears of every chain that has grown.
    pub live: Arc<Live>,
    /// Hears of every block that is finished.
    pub indexing: Arc<Indexing>,
    /// The answers that are given again, until the store turns out to have lost some.
    pub repeats: Arc<Repeats>,
    /// What answers are signed with.
    pub signing_key: Arc<SigningKey>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What a witness has seen that the database does not say. Nothing is written behind that.
    pub fork: Arc<OnceLock<Fork>>,
    /// Of these, how much may wait (`queue_max`), how much makes a batch (`batch_max`), and how old what is known of
    /// other gateways may be (`snapshot_age_max`).
    pub bounds: FixedBounds,
}

/// The end of a sequencer: comes when the last handle is gone and all that waited is recorded.
pub type Ended = oneshot::Receiver<()>;

impl Sequencer {
    /// Starts its thread.
    pub fn start(parts: Parts) -> std::io::Result<(Self, Ended)> {
        let (queue, waiting) = queue::queue(parts.bounds.queue_max);
        let handle = Self {
            queue,
            healthy: Arc::new(AtomicBool::new(true)),
            snapshot: Arc::clone(&parts.snapshot),
            contents: Arc::default(),
            load: Arc::default(),
            commit_micros: Arc::default(),
            ahead: Arc::new(Ahead::begin(parts.latest, parts.clock.now())),
        };
        let task = Task::new(&handle, parts);
        let (end, ended) = oneshot::channel();
        let thread = std::thread::Builder::new().name("sequencer".to_owned());
        runtimes::start(thread, Builder::new_current_thread(), move |runtime| {
            runtime.block_on(task.run(waiting));
            // Nobody waits for the end any more: that is their right.
            let _ = end.send(());
        })?;
        Ok((handle, ended))
    }

    /// Records one proposal.
    pub async fn record(&self, proposal: Proposal) -> Result<CommitStatus, Fault> {
        self.record_with(Terms::default(), proposal).await
    }

    /// Records one proposal, unless its answer would come too late or something that it has left out is lost.
    pub async fn record_with(&self, terms: Terms, proposal: Proposal) -> Result<CommitStatus, Fault> {
        let mut recorded = self.record_all(terms, vec![proposal]).await?;
        recorded.pop().ok_or(Fault::LedgerUnavailable)
    }

    /// Records one proposal, and returns at once also where it is turned back because the directory has moved: for
    /// whoever has to let something go before it [follows](Self::follow).
    pub async fn record_without_following(&self, proposal: Proposal) -> Result<CommitStatus, Fault> {
        let mut recorded = self.record_all_without_following(vec![proposal]).await?;
        recorded.pop().ok_or(Fault::LedgerUnavailable)
    }

    /// Records several in one commit, and returns at once also where some are turned back: for whoever will find them again.
    pub async fn record_all_without_following(
        &self,
        proposals: Vec<Proposal>,
    ) -> Result<Vec<CommitStatus>, Fault> {
        self.submit(Terms::default(), proposals).await
    }

    /// Records several proposals in one commit. Each has its own status, in order. When one is turned back because the
    /// directory has moved, the snapshot that it has to be made again from is in force.
    pub async fn record_all(
        &self,
        terms: Terms,
        proposals: Vec<Proposal>,
    ) -> Result<Vec<CommitStatus>, Fault> {
        let recorded = self.submit(terms, proposals).await?;
        for status in &recorded {
            self.follow(status).await?;
        }
        Ok(recorded)
    }

    /// Waits until the snapshot is in force that a proposal has to be made again from, if this has become of it.
    pub async fn follow(&self, status: &CommitStatus) -> Result<(), Fault> {
        if let CommitStatus::Conflict(Conflict::DirectoryMoved { tenant, revision }) = status
            && !self.snapshot.reaches(*tenant, *revision, FOLLOW_MAX).await
        {
            tracing::warn!(
                %tenant,
                revision,
                "something was not recorded: revision {revision} of {tenant} was not in force here within {FOLLOW_MAX:?}"
            );
            return Err(Fault::LedgerUnavailable);
        }
        Ok(())
    }

    async fn submit(&self, terms: Terms, proposals: Vec<Proposal>) -> Result<Vec<CommitStatus>, Fault> {
        let (reply, answer) = oneshot::channel();
        let (lane, weight) = (lane_of(&proposals), weight_of(&proposals));
        let submission = Submission {
            proposals,
            work: weight.work,
            terms,
            reply,
        };
        self.queue
            .push(lane, weight, submission)
            .map_err(|error| match error {
                NoEntry::Full => Fault::Overloaded,
                NoEntry::Closed => Fault::LedgerUnavailable,
            })?;
        // The task drops a reply only when it has panicked: then the ledger cannot trust itself, and neither can we.
        answer.await.unwrap_or(Err(Fault::LedgerUnavailable))
    }

    /// Whether the last attempt to write succeeded. One that came to nothing because a row is damaged does not count.
    pub fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed) && !self.queue.is_closed()
    }

    /// A generation number: it grows whenever the store may have lost something. Read it before
    /// [`is_stored`](Self::is_stored); if it is higher when the proposal is recorded, contents that were left out may
    /// be missing.
    pub fn losses(&self) -> u64 {
        self.contents.losses()
    }

    /// Whether this content is known to be stored. What is not has to come with whatever names it.
    pub fn is_stored(&self, tenant: TenantId, digest: &Digest) -> bool {
        self.contents.is_stored(tenant, digest)
    }

    /// Whether one more ask of this tenant would find room in the queue.
    pub fn has_room(&self, tenant: TenantId) -> bool {
        let rank = Rank::Agents;
        self.queue.has_room(Lane { rank, tenant })
    }

    /// Whether so many wait that whatever nobody waits for should step back.
    pub fn is_under_load(&self) -> bool {
        self.load.is_high()
    }

    /// What the last batches say about that.
    pub fn load_signal(&self) -> &LoadSignal {
        &self.load
    }

    /// How long commits take, as far as the last ones tell.
    pub fn usual_commit(&self) -> Duration {
        Duration::from_micros(self.commit_micros.load(Ordering::Relaxed))
    }

    /// How far the ledger that is furthest ahead is ahead of this clock, of those that this gateway has begun with or
    /// written to.
    pub fn ahead_of(&self, clock: Timestamp) -> Duration {
        self.ahead.of(clock)
    }

    /// How many proposals of agents, long ones as several, and how many submissions of people and jobs wait.
    pub fn waiting(&self) -> usize {
        self.queue.waiting()
    }
}

/// Everybody waits in a lane of their tenant. What has expired, of several tenants at once, the gateway writes down by
/// itself: it waits in a lane of the system tenant.
fn lane_of(proposals: &[Proposal]) -> Lane {
    let Some(first) = proposals.first() else {
        return Lane {
            rank: Rank::People,
            tenant: TenantId::SYSTEM,
        };
    };
    let (rank, tenant) = match &first.intent {
        _ if first.is_of_an_agent() => (Rank::Agents, first.tenant),
        intent if is_expiry(intent) => (Rank::People, TenantId::SYSTEM),
        Intent::Change(_) | Intent::NewTenant { .. } | Intent::Base { .. } => {
            (Rank::Directories, first.tenant)
        }
        _ => (Rank::People, first.tenant),
    };
    Lane { rank, tenant }
}

/// How much they take: each that is short as much as one, and a long one as much as its bytes. So the queue and a
/// commit are bounded in bytes, too: everybody waits for a commit, and a server ends one that takes too long. What
/// quotas and budgets have to do with it takes time in a commit, and no room before: it is worded there.
fn weight_of(proposals: &[Proposal]) -> Weight {
    let mut weight = Weight::default();
    for proposal in proposals {
        let bytes = proposal.bytes();
        weight.room += 1 + bytes / WEIGHED_BYTES;
        weight.work += work_of(bytes, proposal.tallies());
    }
    weight
}

/// How much of a commit a proposal takes that is so long and counts in these.
const fn work_of(bytes: usize, tallies: Tallies) -> usize {
    let as_bytes = tallies.quotas * QUOTA_BYTES + tallies.budgets_max * BUDGET_BYTES;
    1 + (bytes + as_bytes) / WEIGHED_BYTES
}

/// Whether it tells that the time of something is over.
fn is_expiry(intent: &Intent) -> bool {
    match intent {
        Intent::Approval(ApprovalChange { step, .. }) => matches!(step, Step::Expire),
        Intent::Budget(change) => matches!(change.what, Move::Expire(_)),
        _ => false,
    }
}

/// What became of a proposal, for whoever has proposed it, once its batch is on disk.
fn status_of(disposition: Disposition) -> CommitStatus {
    match disposition {
        Disposition::Recorded {
            head,
            at,
            answer,
            denied,
            is_named,
        } => CommitStatus::Recorded(CommitProof {
            head,
            at,
            answer,
            denied,
            is_named,
        }),
        Disposition::Repeated(answer) => CommitStatus::Repeated(answer),
        Disposition::Conflict(conflict) => CommitStatus::Conflict(conflict),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::budgets::cost::{Cost, Hold};
    use engine::budgets::moves::{BudgetChange, BudgetMove};
    use engine::{EntryKind, ProposedEntry};
    use model::{AgentId, Amount, ApprovalId, BudgetId, Name, ReservationId, SlashFreeName, Subject, Unit};
    use serde_json::json;

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    fn proposal(intent: Intent) -> Proposal {
        Proposal {
            tenant: TENANT,
            revision: 0,
            base: Digest::of(b"policies"),
            intent,
        }
    }

    fn lane_of_one(intent: Intent) -> (Rank, TenantId) {
        let lane = lane_of(&[proposal(intent)]);
        (lane.rank, lane.tenant)
    }

    /// A proposal whose entry has a body of so many bytes.
    fn of_bytes(bytes: usize) -> Proposal {
        let body = canon::of(&"x".repeat(bytes - 2)).unwrap();
        let entry = ProposedEntry::new(EntryKind::ApprovalRefused, body);
        proposal(Intent::Misuse(entry))
    }

    #[test]
    fn what_is_short_weighs_one_and_what_is_long_one_more_for_every_16_kib() {
        let both = |weight: usize| Weight {
            room: weight,
            work: weight,
        };
        assert_eq!(weight_of(&[]), both(0));
        let short = of_bytes(WEIGHED_BYTES - 1);
        assert_eq!(weight_of(&[short]), both(1));
        let exact = of_bytes(WEIGHED_BYTES);
        assert_eq!(weight_of(&[exact]), both(2));
        let several = [of_bytes(2), of_bytes(10 * WEIGHED_BYTES + 1)];
        assert_eq!(weight_of(&several), both(1 + 11));
    }

    /// Something is reserved in as many budgets as there may be, or in four.
    fn reserving(is_in_many: bool) -> Proposal {
        let cost = Cost {
            subject: Subject {
                team: is_in_many.then(|| Name::new("crew").unwrap()),
                agent: AgentId::from_bytes([5; 16]),
                tool: Some(SlashFreeName::new("github").unwrap()),
                run_id: is_in_many.then(|| Name::new("run").unwrap()),
                parent_run_id: None,
            },
            unit: Unit::new("tokens").unwrap(),
            amount: Amount::ZERO,
        };
        let hold = Hold {
            id: ReservationId::from_bytes([6; 16]),
            cost,
            ttl_ms: 1,
            decision_id: None,
        };
        proposal(Intent::Budget(Box::new(BudgetMove {
            what: Move::Reserve(hold),
            repeat: None,
        })))
    }

    #[test]
    fn what_counts_in_quotas_and_budgets_takes_time_and_no_room() {
        let work = |quotas, budgets_max| {
            let tallies = Tallies { quotas, budgets_max };
            work_of(200, tallies)
        };
        assert_eq!([work(0, 0), work(3, 0), work(0, 4)], [1, 1, 1]);
        assert_eq!([work(4, 0), work(0, 8), work(2, 4)], [2, 2, 2]);
        // 250 µs, where an ask that counts in nothing takes 20.
        assert_eq!(work(32, 24), 12);
        let (few, many) = (reserving(false), reserving(true));
        assert_eq!(weight_of(&[few]), Weight { room: 1, work: 1 });
        assert_eq!(weight_of(&[many]), Weight { room: 1, work: 4 });
    }

    #[test]
    fn a_commit_takes_fewer_of_what_counts_in_much() {
        const BATCH_MAX: usize = 512;
        /// How many of these a commit takes where one tenant has filled its half of the queue with them.
        fn taken(make: fn() -> Proposal) -> usize {
            let (entrance, exit) = queue::queue(2_048);
            loop {
                let proposals = vec![make()];
                let (lane, weight) = (lane_of(&proposals), weight_of(&proposals));
                let submission = Submission {
                    proposals,
                    work: weight.work,
                    terms: Terms::default(),
                    reply: oneshot::channel().0,
                };
                if entrance.push(lane, weight, submission).is_err() {
                    break;
                }
            }
            assert_eq!(entrance.waiting(), 1_024);
            let first = exit.take().unwrap();
            task::drain(first, &exit, BATCH_MAX).len()
        }
        assert_eq!(taken(|| reserving(false)), BATCH_MAX);
        assert_eq!(taken(|| reserving(true)), BATCH_MAX / 4);
    }

    /// Such a submission is about several tenants, and one of them may have a crowd in its lane.
    #[test]
    fn what_has_expired_waits_in_the_lane_of_no_tenant_that_it_is_about() {
        let moved = |what| Intent::Budget(Box::new(BudgetMove { what, repeat: None }));
        let expired = [
            Intent::Approval(ApprovalChange {
                id: ApprovalId::from_bytes([2; 16]),
                step: Step::Expire,
            }),
            moved(Move::Expire(ReservationId::from_bytes([3; 16]))),
        ];
        for intent in expired {
            assert_eq!(lane_of_one(intent), (Rank::People, TenantId::SYSTEM));
        }
        let frozen = moved(Move::Change {
            id: BudgetId::from_bytes([4; 16]),
            change: BudgetChange::Freeze,
            reason: None,
            by: json!({}),
        });
        assert_eq!(lane_of_one(frozen), (Rank::People, TENANT));
    }
}
