//! Starting: from a store to a gateway that can answer.
//!
//! It refuses to start when the base policies would let a known-forbidden ask through.

use crate::admission::Admission;
use crate::approvals::waiters::Waiters;
use crate::background::Background;
use crate::base::{self, BaseSource};
use crate::changes::ChangeLocks;
use crate::compiling;
use crate::containment::{self, Containment};
use crate::cosigning::{self, Cosigning};
use crate::directory::issuers::Complaints;
use crate::ending::Ends;
use crate::fair_semaphore::FairSemaphore;
use crate::follower::{Follower, Following};
use crate::gateway::{Gateway, Options};
use crate::http::{LongBodies, Nonces, SignIns};
use crate::jobs;
use crate::limits::Limits;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::outgoing;
use crate::policies::diff::AT_ONCE_MAX;
use crate::policies::one_each::OneEach;
use crate::records::erase::retention::{self, Retention};
use crate::repeats::Repeats;
use crate::search::job::{self, Indexing};
use crate::sequencer::{Ended, Parts, Sequencer};
use crate::single_flight::SingleFlight;
use crate::slow_lane::SlowLane;
use crate::snapshot::SnapshotCell;
use crate::uptime::Uptime;
use crate::watch::{self, Watch};
use crate::worker_steps::WorkerSteps;
use engine::{Snapshot, TenantSnapshot};
use ledger::{Head, SigningKey};
use model::{Clock, Directory, Entropy, Noun, Settings, Standing, Tenant, TenantId, Timestamp};
use policy::{BasePolicies, Compiler, Diagnostics};
use policy_diff::{Bounds, Prover};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use store::{ChainPosition, Store, StoreError, StoredTenant};
use tokio::sync::{Notify, Semaphore};

/// Why a gateway does not start, or does not come back.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    /// A tenant has nouns but not itself.
    #[error(
        "the store holds the ledger of {0} but not the tenant itself, as a copy does that was not finished: if it is one, remove it and copy again; otherwise keep it, and put a backup in its place"
    )]
    TenantMissing(TenantId),
    /// There are ledgers, and not the whole one of the system tenant, which is copied last. Nobody can tell a copy that
    /// was not finished from a store that has lost it.
    #[error(
        "the store holds ledgers without the whole one of the system tenant, as a copy does that was not finished: if it is one, remove it and copy again; otherwise keep it, and put a backup in its place"
    )]
    CopyUnfinished,
    /// The policies of a tenant do not compile any more.
    #[error("the policies of tenant {tenant} are not valid: {diagnostics}")]
    Policies {
        /// Whose.
        tenant: TenantId,
        /// What is wrong with them.
        diagnostics: Diagnostics,
    },
    /// The policies of a tenant could not be compiled at all.
    #[error("compiling policies panicked")]
    Panicked(#[source] tokio::task::JoinError),
    /// There is no thread for the sequencer, for floods, or for what nobody waits for.
    #[error("a thread of the gateway could not be started")]
    Thread(#[source] std::io::Error),
    /// The base policies allow what they must not.
    #[error("the base policies do not hold: {0}")]
    Probe(String),
}

/// What a gateway is made from.
pub struct Ingredients {
    /// Where everything is kept.
    pub store: Arc<dyn Store>,
    /// Where the time comes from.
    pub clock: Arc<dyn Clock>,
    /// Where randomness comes from.
    pub entropy: Arc<dyn Entropy>,
    /// What answers are signed with.
    pub signing_key: Arc<SigningKey>,
    /// The base policies.
    pub base_policies: BasePolicies,
    /// The file that they are in, if they can be read again.
    pub base_file: Option<PathBuf>,
    /// What may be set from outside, the rooms that gateways share, and the bounds that nobody sets.
    pub options: Options,
}

/// Loads everything, tries the policies, and starts the sequencer and the follower.
pub async fn start(ingredients: Ingredients) -> Result<(Arc<Gateway>, Ended), StartError> {
    let Ingredients {
        store,
        clock,
        entropy,
        signing_key,
        base_policies,
        base_file,
        options,
    } = ingredients;
    policy::probe(&base_policies).map_err(|error| StartError::Probe(error.to_string()))?;
    let compiler = Arc::new(Compiler::new(base_policies));
    let (incarnation, snapshot, latest) = first_snapshot(&*store, compiler).await?;
    let metrics = Arc::new(Metrics::new());
    let follow = Arc::new(Notify::new());
    let live = Arc::new(Live::default());
    let indexing = Arc::new(Indexing::default());
    let repeats = Arc::new(Repeats::new());
    let fork = Arc::new(OnceLock::new());
    let parts = Parts {
        store: Arc::clone(&store),
        snapshot: Arc::clone(&snapshot),
        follow: Arc::clone(&follow),
        clock: Arc::clone(&clock),
        latest,
        live: Arc::clone(&live),
        indexing: Arc::clone(&indexing),
        repeats: Arc::clone(&repeats),
        signing_key: Arc::clone(&signing_key),
        metrics: Arc::clone(&metrics),
        fork: Arc::clone(&fork),
        bounds: options.bounds,
    };
    let (sequencer, ended) = Sequencer::start(parts).map_err(StartError::Thread)?;
    let follower = Follower::start(Following::new(&store, incarnation, &snapshot, &metrics, follow));
    let watch = Arc::new(Watch::default());
    let cosigning = Arc::new(Cosigning::new(cosigning::Parts {
        options: options.witnesses.clone(),
        store: Arc::clone(&store),
        snapshot: Arc::clone(&snapshot),
        clock: Arc::clone(&clock),
        watch: Arc::clone(&watch),
        signing_key: Arc::clone(&signing_key),
        metrics: Arc::clone(&metrics),
        fork,
    }));
    let gateway = Gateway {
        admission: Admission::new(options.bounds.queue_max),
        slow_lane: SlowLane::start().map_err(StartError::Thread)?,
        nonces: Nonces::since(clock.now()),
        clock,
        entropy,
        signing_key,
        prover: Prover::new(options.cvc5.clone(), AT_ONCE_MAX, Bounds::default()),
        connections: Arc::new(Semaphore::new(options.bounds.connections_max)),
        long_bodies: LongBodies::new(options.body_bytes_max),
        base: BaseSource::new(base_file),
        snapshot,
        sequencer,
        follower,
        background: Arc::new(Background::start(&*store).map_err(StartError::Thread)?),
        limits: Limits::new(Arc::clone(&store)),
        reads: FairSemaphore::for_reads(store.readers()),
        look_ups: FairSemaphore::for_look_ups(store.readers(), options.bounds.queue_max),
        options,
        readable: SingleFlight::idle(),
        size: SingleFlight::idle(),
        store,
        repeats,
        sign_ins: SignIns::default(),
        issuer_files: Complaints::default(),
        containment: Containment::default(),
        cosigning,
        approval_waiters: Waiters::default(),
        approval_ends: Ends::default(),
        reservation_ends: Ends::default(),
        live,
        outgoing: Arc::new(outgoing::places()),
        indexing,
        retention: Retention::default(),
        erasures_of: OneEach::default(),
        erasing: tokio::sync::Mutex::default(),
        watch,
        metrics,
        change_locks: ChangeLocks::default(),
        drafts: Arc::new(FairSemaphore::for_drafts()),
        searches: FairSemaphore::for_searches(),
        worker_steps: WorkerSteps::new(),
        long_asks: FairSemaphore::for_long_asks(),
        long_answers: FairSemaphore::for_long_answers(),
        ledger_chunks: Arc::new(FairSemaphore::for_ledger_chunks()),
        policy_replays: Arc::new(Semaphore::new(crate::policies::replay::AT_ONCE_MAX)),
        policy_replays_of: OneEach::default(),
        comparisons_of: OneEach::default(),
    };
    let gateway = Arc::new(gateway);
    start_jobs(&gateway);
    Ok((gateway, ended))
}

/// What a gateway begins with, which database it is from, and the latest time of an entry there with its tenant.
async fn first_snapshot(
    store: &dyn Store,
    compiler: Arc<Compiler>,
) -> Result<(String, Arc<SnapshotCell>, Option<(TenantId, Timestamp)>), StartError> {
    let began = Uptime::now();
    let incarnation = store.incarnation().await?;
    let Loaded {
        snapshot,
        ends,
        latest,
    } = load_snapshot(store, compiler).await?;
    let snapshot = SnapshotCell::new(snapshot, began, store.is_shared());
    for (tenant, end) in ends {
        snapshot.continuity.note_end(tenant, end);
    }
    Ok((incarnation, Arc::new(snapshot), latest))
}

/// Starts what a gateway does whether somebody asks or not.
fn start_jobs(gateway: &Arc<Gateway>) {
    jobs::start(gateway);
    base::follow::start(gateway);
    containment::start(gateway);
    job::start(gateway);
    watch::start(gateway);
    retention::start(gateway);
}

/// What a store has for a gateway.
pub struct Loaded {
    /// What is in force.
    pub snapshot: Snapshot,
    /// Where the chain of each tenant ended then.
    pub ends: Vec<(TenantId, Head)>,
    /// The latest time of an entry, and in whose chain that is; none if there is no entry.
    pub latest: Option<(TenantId, Timestamp)>,
}

/// Reads the snapshot from a store. The system tenant is there even if nothing was ever recorded.
pub async fn load_snapshot(store: &dyn Store, compiler: Arc<Compiler>) -> Result<Loaded, StartError> {
    let mut snapshot = Snapshot::new(Arc::clone(&compiler));
    let mut ends = Vec::new();
    snapshot.insert(restore(&compiler, system_tenant())?);
    let tenants = store.load(None).await?;
    let revisions = tenants
        .iter()
        .map(|tenant| (tenant.tenant, tenant.position.revision));
    if is_unfinished_copy(revisions) {
        return Err(StartError::CopyUnfinished);
    }
    let times = tenants.iter().map(|tenant| (tenant.tenant, tenant.position.at));
    let latest = times.max_by_key(|(_, at)| *at);
    for tenant in tenants {
        ends.push((tenant.tenant, tenant.position.head()));
        let restored = restore(&compiler, tenant)?;
        for oddity in compiling::oddities(&restored) {
            oddity.tell();
        }
        snapshot.insert(restored);
    }
    for oddity in compiling::base_oddities(&snapshot) {
        oddity.tell();
    }
    Ok(Loaded {
        snapshot,
        ends,
        latest,
    })
}

/// Fails if a store holds what a copy has left that was not finished: to be asked before anything is made beside it.
///
/// # Errors
/// It does, or cannot be read.
pub async fn check_whole(store: &dyn Store) -> Result<(), StartError> {
    if is_unfinished_copy(store.revisions().await?) {
        return Err(StartError::CopyUnfinished);
    }
    Ok(())
}

/// Whether tenants with these revisions are what a copy has left that was not finished. The system tenant comes last,
/// and its revision with its last entry. In any other store it is there before all others, and its first entry has
/// changed its directory.
pub fn is_unfinished_copy(revisions: impl IntoIterator<Item = (TenantId, u64)>) -> bool {
    let (mut is_empty, mut is_whole) = (true, false);
    for (tenant, revision) in revisions {
        is_empty = false;
        is_whole |= tenant == TenantId::SYSTEM && revision > 0;
    }
    !is_empty && !is_whole
}

fn system_tenant() -> StoredTenant {
    let tenant = Tenant {
        id: TenantId::SYSTEM,
        name: model::Name::new("system").expect("a plain word is a name"),
        settings: Settings::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        created_at: Timestamp::from_millis(0),
        deleted_at: None,
    };
    StoredTenant {
        tenant: TenantId::SYSTEM,
        position: ChainPosition::GENESIS,
        nouns: vec![Noun::Tenant(Arc::new(tenant))],
    }
}

/// One tenant as it was stored, with its policies compiled.
pub fn restore(compiler: &Compiler, stored: StoredTenant) -> Result<TenantSnapshot, StartError> {
    let itself = stored.nouns.iter().find_map(|noun| match noun {
        Noun::Tenant(tenant) => Some(Arc::clone(tenant)),
        _ => None,
    });
    let itself = match itself {
        Some(tenant) => tenant,
        // The system tenant is not written down: it is the same in every store.
        None if stored.tenant == TenantId::SYSTEM => return restore(compiler, with_system_tenant(stored)),
        None => return Err(StartError::TenantMissing(stored.tenant)),
    };
    let mut directory = Directory::new(itself);
    for noun in stored.nouns {
        directory.apply(&model::Write::Put(noun));
    }
    let policies = compiling::compile(compiler, &directory).map_err(|diagnostics| StartError::Policies {
        tenant: stored.tenant,
        diagnostics,
    })?;
    Ok(TenantSnapshot::new(
        directory,
        Arc::new(policies),
        stored.position.revision,
    ))
}

fn with_system_tenant(mut stored: StoredTenant) -> StoredTenant {
    stored.nouns.extend(system_tenant().nouns);
    stored
}
