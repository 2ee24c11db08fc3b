//! The gateway: everything that handlers share, in one place.

use crate::admission::Admission;
use crate::approvals::waiters::Waiters;
use crate::background::Background;
use crate::base::BaseSource;
use crate::changes::ChangeLocks;
use crate::config::PublicUrl;
use crate::connections;
use crate::containment::Containment;
use crate::cosigning::{Cosigning, WitnessOptions};
use crate::directory::issuers::Complaints;
use crate::ending::Ends;
use crate::fair_semaphore::FairSemaphore;
use crate::follower::Follower;
use crate::http::answers::Answers;
use crate::http::arrivals::Arrivals;
use crate::http::{Code, LongBodies, Nonces, Refusal, SignIns};
use crate::limits::Limits;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::policies::one_each::OneEach;
use crate::records::erase::retention::Retention;
use crate::repeats::Repeats;
use crate::search::job::Indexing;
use crate::sequencer::Sequencer;
use crate::single_flight::SingleFlight;
use crate::slow_lane::SlowLane;
use crate::snapshot::SnapshotCell;
use crate::tenant_places::TenantPlaces;
use crate::watch::Watch;
use crate::worker_steps::WorkerSteps;
use engine::{Snapshot, TenantSnapshot};
use ledger::SigningKey;
use model::{Clock, Entropy, TenantId};
use policy_diff::Prover;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Store;

/// How many bytes what a tenant registers may have unless the options say otherwise: half a million agents without
/// attributes and with a token each. In memory it takes some times that, and a start reads it whole.
pub(crate) const DIRECTORY_BYTES_MAX: usize = 256 << 20;

/// What may be set from outside, the rooms that gateways share, and the bounds that nobody sets.
#[derive(Debug, Clone)]
pub struct Options {
    /// The largest body of a request, in bytes.
    pub body_bytes_max: usize,
    /// The room for all bodies that are on their way, and for long asks that are not answered yet. Gateways with
    /// clones of these options share it.
    pub arrivals: Arrivals,
    /// The room for all long answers that nobody has taken yet. Gateways with clones of these options share it.
    pub answers: Answers,
    /// How many bytes what a tenant registers may have, as [`model::Directory::bytes`] counts it.
    pub directory_bytes_max: usize,
    /// How long answers to requests with an `Idempotency-Key` are kept at least.
    pub replies_kept: Duration,
    /// The solver that compares sets of policies.
    pub cvc5: PathBuf,
    /// The folder with the keys of issuers that are kept in files, if there is one.
    pub issuer_keys: Option<PathBuf>,
    /// What the gateway is called by those who reach it through a proxy.
    pub public_url: Option<PublicUrl>,
    /// Who else sees where the ledgers end.
    pub witnesses: WitnessOptions,
    /// What is fixed.
    pub bounds: FixedBounds,
}

/// What the program fixes, or the system that it runs on. Tests make it small.
#[derive(Debug, Clone, Copy)]
pub struct FixedBounds {
    /// How long the rest of a plain ask is waited for, before it is read like any other request.
    pub ask_time_max: Duration,
    /// How long a head may take that is read like that, once something of it has come; twice as long where it began
    /// sooner than this after the request before.
    pub head_time_max: Duration,
    /// How long a caller may say nothing there, from the end of the request before.
    pub silence_max: Duration,
    /// How long a body may be on its way.
    pub body_time_max: Duration,
    /// How many connections may be open at all listeners.
    pub connections_max: usize,
    /// How many asks may be in the gateway, and how many may wait to be recorded, long ones counted as several. One
    /// tenant alone gets half of that. As many of each may wait to have something looked up.
    pub queue_max: usize,
    /// How many asks are recorded in one commit, long ones counted as several.
    pub batch_max: usize,
    /// How many budgets that are not closed a tenant has. Two that are made at once may both be the last one.
    pub budgets_max: u64,
    /// How long a gateway answers that cannot find out whether others have changed anything.
    pub snapshot_age_max: Duration,
}

impl Default for Options {
    fn default() -> Self {
        let body_bytes_max = 256 * 1024;
        Self {
            body_bytes_max,
            arrivals: Arrivals::new(body_bytes_max),
            answers: Answers::default(),
            directory_bytes_max: DIRECTORY_BYTES_MAX,
            // Over a weekend, so that whoever has to look into what did not work can still repeat it.
            replies_kept: Duration::from_hours(72),
            cvc5: PathBuf::from("cvc5"),
            issuer_keys: None,
            public_url: None,
            witnesses: WitnessOptions::default(),
            bounds: FixedBounds::default(),
        }
    }
}

impl Default for FixedBounds {
    fn default() -> Self {
        Self {
            ask_time_max: Duration::from_secs(10),
            head_time_max: connections::HEAD_TIME_MAX,
            silence_max: connections::SILENCE_MAX,
            // A body of the default `body_bytes_max` comes in this time over a slow line, and nobody keeps a connection
            // for longer by sending a byte now and then.
            body_time_max: Duration::from_secs(10),
            connections_max: connections::places_max(),
            // What comes in a tenth of a second of a stalled disk finds room. An overload that lasts has fewer places,
            // and finds nobody else waiting.
            queue_max: 2_048,
            batch_max: 512,
            budgets_max: 100_000,
            // What is recorded is checked against the store all the same; a hiccup of the database is no reason to send
            // everybody away.
            snapshot_age_max: Duration::from_secs(5),
        }
    }
}

/// Everything that handlers share.
pub struct Gateway {
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// What answers and checkpoints are signed with.
    pub signing_key: Arc<SigningKey>,
    /// What may be set from outside, the rooms that gateways share, and the bounds that nobody sets.
    pub options: Options,
    /// Where the base policies come from.
    pub base: BaseSource,
    /// The directory and the policies as they are now.
    pub snapshot: Arc<SnapshotCell>,
    /// How many asks are in here at once.
    pub admission: Admission,
    /// Where asks of tenants are answered that ask for more than there is for them.
    pub slow_lane: SlowLane,
    /// The one way to record anything.
    pub sequencer: Sequencer,
    /// Keeps the snapshot up to date with what others write.
    pub follower: Follower,
    /// Where what was recorded is read back.
    pub store: Arc<dyn Store>,
    /// Where is done what nobody waits for.
    pub background: Arc<Background>,
    /// The token buckets.
    pub limits: Limits,
    /// Recent answers by request id.
    pub repeats: Arc<Repeats>,
    /// Tokens of registered issuers that were verified lately.
    pub sign_ins: SignIns,
    /// The nonces of signed requests that were seen lately.
    pub nonces: Nonces,
    /// What is wrong with the files of issuers.
    pub issuer_files: Complaints,
    /// What containment rules have read, and what they do.
    pub containment: Containment,
    /// What witnesses have seen of the ledgers.
    pub cosigning: Arc<Cosigning>,
    /// Those who wait for people.
    pub approval_waiters: Waiters,
    /// Between two passes of the job that writes down which approvals have expired.
    pub approval_ends: Ends,
    /// Between two passes of the job that ends reservations whose time is over.
    pub reservation_ends: Ends,
    /// Wakes those who follow ledgers.
    pub live: Arc<Live>,
    /// The places for exports, files of evidence and replays in lines that are on their way.
    pub outgoing: Arc<TenantPlaces>,
    /// Tells the job that keeps the search index what to do.
    pub indexing: Arc<Indexing>,
    /// Where the job has come to that erases what is old.
    pub retention: Retention,
    /// The tenants whose people erase something now.
    pub erasures_of: OneEach,
    /// Held while what is to be erased is taken out of the search index and the erasure is recorded. A commit has one
    /// at most, because everybody else in it waits for the bodies to go.
    pub erasing: tokio::sync::Mutex<()>,
    /// What was found of ledgers that were verified without being asked.
    pub watch: Arc<Watch>,
    /// The places for connections.
    pub connections: Arc<tokio::sync::Semaphore>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Held by those who change directories.
    pub change_locks: ChangeLocks,
    /// The long bodies with policies that are not answered yet.
    pub long_bodies: LongBodies,
    /// Acquired before work on drafts of policies.
    pub drafts: Arc<FairSemaphore>,
    /// Acquired before searches for what is permitted.
    pub searches: FairSemaphore,
    /// What tenants take of the workers.
    pub worker_steps: WorkerSteps,
    /// Acquired before an ask that takes long is judged.
    pub long_asks: FairSemaphore,
    /// Acquired before a long answer is written.
    pub long_answers: FairSemaphore,
    /// Acquired for each chunk of a ledger, by those who verify, follow or replay it, erase in it or have it in a file
    /// or a bundle.
    pub ledger_chunks: Arc<FairSemaphore>,
    /// Acquired before a page or a single thing is read from the store.
    pub reads: FairSemaphore,
    /// Acquired before something is looked up for an ask or an observation, and given back before it waits for anything
    /// else. Nobody in a turn of the sequencer waits for it.
    pub look_ups: FairSemaphore,
    /// Whether the store can be read.
    pub readable: SingleFlight<Result<(), Refusal>>,
    /// Noting how large the database is, if that can be told.
    pub size: SingleFlight<()>,
    /// The places for those who judge recorded decisions again.
    pub policy_replays: Arc<tokio::sync::Semaphore>,
    /// The tenants that have one of them.
    pub policy_replays_of: OneEach,
    /// What compares sets of policies, and how many of them at once.
    pub prover: Prover,
    /// The tenants that compare, or wait for their turn.
    pub comparisons_of: OneEach,
}

impl Gateway {
    /// A tenant as it is now.
    pub fn tenant(&self, id: TenantId) -> Result<Arc<TenantSnapshot>, Refusal> {
        tenant(&self.snapshot.load(), id).cloned()
    }

    /// Whether it was told to stop: its jobs go no further then.
    pub fn is_stopping(&self) -> bool {
        self.approval_waiters.is_closed()
    }
}

/// A tenant in a snapshot.
pub fn tenant(snapshot: &Snapshot, id: TenantId) -> Result<&Arc<TenantSnapshot>, Refusal> {
    let tenant = snapshot.tenant(id);
    tenant.ok_or_else(|| Refusal::new(Code::NotFound, format!("there is no tenant `{id}`")))
}
