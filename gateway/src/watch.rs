//! Verifies the ledgers of all tenants without being asked, over and over: what is new first, and then everything again from the
//! beginning.
//!
//! It takes a tenth of a core at most, much less while many wait for decisions, and some chunks of memory; it reads
//! like any auditor and is done on the [`background`](crate::background) thread, so no decision waits for it. Where
//! each ledger ended when it was verified stays in memory: whoever rewrites one as a whole under a running gateway, or
//! cuts its tail off together with the head, is found out by that. A ledger with a fault is not signed any more, and
//! the gateway says that it is not ready.

mod progress;

use crate::background::Background;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use crate::locks::lock;
use crate::records::audit::Fault;
use model::TenantId;
use progress::Progress;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeInclusive};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// How often it goes to work.
const TICK: Duration = Duration::from_secs(1);
/// How often it does while many wait for decisions. Then it is a look at one of the others each time.
const TICK_UNDER_LOAD: Duration = Duration::from_secs(4);
/// How long it works then. What it has begun it finishes: some thousand entries.
const WORK_MAX: Duration = Duration::from_millis(100);
/// How long it works while many wait.
const WORK_MAX_UNDER_LOAD: Duration = Duration::from_millis(20);
/// How long somebody who asks for a fault waits for the look that finds it again, or not any more. It is the next one,
/// also while many wait for decisions.
const ASKED_WAIT_MAX: Duration = Duration::from_secs(20);
/// How often they see whether there was one.
const ASKED_WAIT_STEP: Duration = Duration::from_millis(50);

/// What was found.
#[derive(Default)]
pub struct Watch {
    /// The faults of ledgers. Held for a look only.
    faults: Mutex<BTreeMap<TenantId, Known>>,
    /// The first entry of a ledger that somebody else has found to be wrong. Held for a look only.
    suspects: Mutex<BTreeMap<TenantId, u64>>,
}

/// A fault of a ledger.
struct Known {
    fault: Fault,
    /// When the look began that found it last.
    looked: Instant,
}

impl Watch {
    /// How many ledgers have a fault.
    pub fn faults(&self) -> usize {
        self.lock().len()
    }

    /// Refuses to vouch for a ledger that has a fault.
    pub fn check(&self, tenant: TenantId) -> Result<(), Refusal> {
        self.lock().get(&tenant).map_or(Ok(()), |Known { fault, .. }| {
            let Fault { seq, what, .. } = fault;
            let detail = format!(
                "entry {seq}: {what}; nothing is signed for this ledger until it is what was recorded"
            );
            Err(Refusal::new(Code::LedgerFault, detail))
        })
    }

    /// Says that the gateway is not ready, if there is a fault. It does not say whose.
    pub fn check_all(&self) -> Result<(), Refusal> {
        match self.faults() {
            0 => Ok(()),
            count => {
                let detail =
                    format!("{count} ledgers are not what was recorded; the log of the gateway says which");
                Err(Refusal::new(Code::LedgerFault, detail))
            }
        }
    }

    /// The tenant whose ledger is gone as a whole, also where another one was begun in its place, if there is one: then
    /// that is the fault of the system tenant's ledger, which tells of it.
    pub(crate) fn gone(&self) -> Option<TenantId> {
        self.lock().get(&TenantId::SYSTEM)?.fault.gone
    }

    /// The fault that a ledger has among these entries. One that was last seen before this time may have been put right
    /// meanwhile: then the ledger is looked at next, and that is waited for. Where it takes too long the fault stands,
    /// as it does for whoever wants a checkpoint.
    pub(crate) async fn fault_in(
        &self,
        tenant: TenantId,
        entries: &RangeInclusive<u64>,
        since: Instant,
        background: &Background,
    ) -> Option<Fault> {
        let deadline = Instant::now() + ASKED_WAIT_MAX;
        let mut is_hurried = false;
        loop {
            let (fault, looked) = self.known_in(tenant, entries)?;
            if looked >= since || Instant::now() >= deadline {
                return Some(fault);
            }
            if !is_hurried {
                self.suspect(tenant, fault.seq);
                is_hurried = true;
            }
            // Without its thread nobody looks any more: the gateway is about to stop.
            if timeout(ASKED_WAIT_STEP, background.ended()).await.is_ok() {
                return Some(fault);
            }
        }
    }

    fn known_in(&self, tenant: TenantId, entries: &RangeInclusive<u64>) -> Option<(Fault, Instant)> {
        let faults = self.lock();
        let known = faults.get(&tenant)?;
        let is_in = entries.contains(&known.fault.seq);
        is_in.then(|| (known.fault.clone(), known.looked))
    }

    /// Has an entry looked at next, because somebody has found a fault there.
    pub(crate) fn suspect(&self, tenant: TenantId, seq: u64) {
        let mut suspects = self.lock_suspects();
        let first = suspects.entry(tenant).or_insert(seq);
        *first = seq.min(*first);
    }

    /// The entry of a ledger that is looked at next, if somebody has found a fault there.
    pub fn suspected(&self, tenant: TenantId) -> Option<u64> {
        self.lock_suspects().get(&tenant).copied()
    }

    /// There is nothing wrong with an entry.
    fn acquit(&self, tenant: TenantId, seq: u64) {
        let mut suspects = self.lock_suspects();
        if suspects.get(&tenant) == Some(&seq) {
            suspects.remove(&tenant);
        }
    }

    /// There is a fault, which a look has found that began at this time.
    fn raise(&self, tenant: TenantId, fault: Fault, looked: Instant) {
        let (seq, what) = (fault.seq, fault.what.clone());
        if self.lock().insert(tenant, Known { fault, looked }).is_none() {
            tracing::error!(
                %tenant,
                seq,
                what,
                "the ledger of {tenant} has a fault at entry {seq}, and is not signed any more: {what}"
            );
        }
    }

    fn clear(&self, tenant: TenantId) {
        if self.lock().remove(&tenant).is_some() {
            tracing::warn!(%tenant, "the ledger of {tenant} is what was recorded again");
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<TenantId, Known>> {
        lock(&self.faults)
    }

    fn lock_suspects(&self) -> MutexGuard<'_, BTreeMap<TenantId, u64>> {
        lock(&self.suspects)
    }
}

/// Starts the job of a gateway. It ends with it.
pub fn start(gateway: &Arc<Gateway>) {
    gateway.background.spawn(run(Arc::downgrade(gateway)));
}

async fn run(gateway: Weak<Gateway>) {
    let mut ledgers = BTreeMap::new();
    // Behind all others comes the system tenant again: its ledger tells which others there are, and is looked at first.
    let mut last = TenantId::from_bytes([u8::MAX; 16]);
    let mut tick = TICK;
    loop {
        tokio::time::sleep(tick).await;
        let Some(gateway) = gateway.upgrade() else { return };
        let work_max;
        (tick, work_max) = if gateway.sequencer.is_under_load() {
            (TICK_UNDER_LOAD, WORK_MAX_UNDER_LOAD)
        } else {
            (TICK, WORK_MAX)
        };
        // Let go of before the work begins, which may take long.
        for (tenant, _) in gateway.snapshot.load().tenants() {
            ledgers.entry(*tenant).or_default();
        }
        work(&gateway, &mut ledgers, &mut last, work_max).await;
        let behind = ledgers.values().map(Progress::behind).sum();
        gateway.metrics.set_unverified(behind);
    }
}

/// Looks at what is suspected and at what the look before has left of the system tenant's ledger, and then at one
/// ledger after the other, from where it stopped last, until its time is over or nothing is left to do.
async fn work(
    gateway: &Gateway,
    ledgers: &mut BTreeMap<TenantId, Progress>,
    last: &mut TenantId,
    work_max: Duration,
) {
    for (tenant, progress) in &mut *ledgers {
        // What is new in the ledger that tells of all others does not wait for all of them.
        let is_first = *tenant == TenantId::SYSTEM && progress.behind() > 0;
        if is_first || gateway.watch.suspected(*tenant).is_some() {
            look(gateway, *tenant, progress).await;
        }
    }
    // From here on: however long those take that are looked at first, one of the others has its turn.
    let began = Instant::now();
    let mut idle = 0;
    while idle < ledgers.len() && began.elapsed() < work_max {
        let behind = ledgers.range((Bound::Excluded(*last), Bound::Unbounded)).next();
        let Some(tenant) = behind
            .or_else(|| ledgers.first_key_value())
            .map(|(tenant, _)| *tenant)
        else {
            return;
        };
        *last = tenant;
        let Some(progress) = ledgers.get_mut(&tenant) else {
            return;
        };
        let checked = look(gateway, tenant, progress).await;
        idle = if checked == 0 { idle + 1 } else { 0 };
    }
}

/// Looks at a ledger. Returns how many entries were right.
async fn look(gateway: &Gateway, tenant: TenantId, progress: &mut Progress) -> u64 {
    match progress.look(gateway, tenant).await {
        Ok(checked) => {
            gateway.metrics.count_verified(checked);
            checked
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, %tenant, "the ledger of {tenant} could not be verified on");
            0
        }
    }
}
