//! Puts blocks of ledgers into the search index, once all of their entries are there.
//!
//! Nothing waits for it and it hurries for nobody: it is done on the thread [`behind`](crate::behind), rests longer than it works, and much
//! longer while many wait for decisions. Of several gateways on one database any may do a block; whoever has claimed it does. What it has not done yet is looked for in the ledger itself.

use crate::behind::Breaks;
use crate::gateway::Gateway;
use engine::search::{BLOCK, Lists, block_of, seqs_of};
use model::{TenantId, Timestamp};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use store::{Advance, BlockClaim, DecisionFilter, IndexedBlock, Store, StoreError, is_used_up};
use tokio::sync::Notify;

/// How much longer it rests than it has worked: it takes a quarter of a core, and of the disk.
const RESTS_LONGER: u32 = 3;
/// The same while many wait for decisions: it takes a thirty-second of a core.
const RESTS_LONGER_PRESSED: u32 = 31;
/// How long a claim holds: many times what a block takes.
const CLAIM_MAX: Duration = Duration::from_mins(1);
/// How often every ledger is looked at, whether it is known to have grown or not: another gateway may have stopped in the
/// middle.
const ROUND: Duration = Duration::from_mins(5);
/// How long it waits after something went wrong.
const PAUSE: Duration = Duration::from_secs(5);

/// What is left to do, and how the job is told.
#[derive(Default)]
pub struct Indexing {
    /// Ledgers that may have a finished block that is not in the index. Held for a push or a pop only.
    due: Mutex<BTreeSet<TenantId>>,
    wake: Notify,
    /// Entries of finished blocks that were seen not to be in the index.
    behind: AtomicU64,
}

impl Indexing {
    /// Notes that chains have grown. It costs a commit a comparison, unless a block is finished.
    pub fn grown(&self, advances: &[Advance]) {
        for advance in advances {
            if advance.from.seq / BLOCK != advance.to.head().seq / BLOCK {
                self.note(advance.tenant);
            }
        }
    }

    /// Has a ledger looked at: a block of it was taken out of the index.
    pub fn note(&self, tenant: TenantId) {
        self.lock().insert(tenant);
        self.wake.notify_one();
    }

    /// How many entries of finished blocks were not in the index when the job last looked.
    pub fn behind(&self) -> u64 {
        self.behind.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<TenantId>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts the job of a gateway. It ends with it.
pub fn start(gateway: &Arc<Gateway>) {
    let indexing = Arc::clone(&gateway.indexing);
    gateway.behind.spawn(run(Arc::downgrade(gateway), indexing));
}

async fn run(gateway: Weak<Gateway>, indexing: Arc<Indexing>) {
    loop {
        let Some(all) = gateway.upgrade().map(|gateway| tenants(&gateway)) else {
            return;
        };
        // One at a time: the sequencer takes this lock too, and here nobody knows how long the thread will have a core.
        for tenant in all {
            indexing.lock().insert(tenant);
        }
        let round = Instant::now();
        while round.elapsed() < ROUND {
            let next = indexing.lock().pop_first();
            let Some(tenant) = next else {
                indexing.behind.store(0, Ordering::Relaxed);
                let left = ROUND.saturating_sub(round.elapsed());
                // Nothing was heard: it is time for all of them.
                let _ = tokio::time::timeout(left, indexing.wake.notified()).await;
                continue;
            };
            if let Err(error) = catch_up(&gateway, tenant).await {
                tracing::warn!(error = &error as &dyn std::error::Error, %tenant, "the search index could not be written");
                indexing.lock().insert(tenant);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Puts every finished block of a ledger into the index that is not in it, the newest first: that is what most look for. The gateway may
/// end between two of them.
async fn catch_up(gateway: &Weak<Gateway>, tenant: TenantId) -> Result<(), StoreError> {
    let mut missing = match gateway.upgrade() {
        Some(gateway) => Ledger::of(&gateway, tenant).missing().await?,
        None => return Ok(()),
    };
    while let Some(block) = missing.pop() {
        let Some(gateway) = gateway.upgrade() else {
            return Ok(());
        };
        let left = u64::try_from(missing.len()).unwrap_or(u64::MAX).saturating_add(1);
        let behind = left.saturating_mul(BLOCK);
        gateway.indexing.behind.store(behind, Ordering::Relaxed);
        let began = Instant::now();
        if Ledger::of(&gateway, tenant).index(block).await? {
            let longer = if gateway.sequencer.is_pressed() {
                RESTS_LONGER_PRESSED
            } else {
                RESTS_LONGER
            };
            drop(gateway);
            tokio::time::sleep(began.elapsed() * longer).await;
        }
    }
    Ok(())
}

fn tenants(gateway: &Gateway) -> Vec<TenantId> {
    let snapshot = gateway.snapshot.load();
    snapshot.tenants().map(|(tenant, _)| *tenant).collect()
}

/// A ledger whose blocks are put into the index.
struct Ledger<'g> {
    gateway: &'g Gateway,
    store: &'g dyn Store,
    tenant: TenantId,
}

impl<'g> Ledger<'g> {
    fn of(gateway: &'g Gateway, tenant: TenantId) -> Self {
        Self {
            gateway,
            store: &*gateway.behind.store,
            tenant,
        }
    }

    /// The finished blocks that are not in the index.
    async fn missing(&self) -> Result<Vec<u64>, StoreError> {
        if self.finished().await? == 0 {
            return Ok(Vec::new());
        }
        // The index before the ledger: what another gateway adds in between is a block of the ledger that is read then.
        let indexed = self.store.indexed(self.tenant, 0..=u64::from(u32::MAX)).await?;
        let finished = self.finished().await?;
        let known = self.known(indexed, finished).await?;
        Ok((0..finished).filter(|block| !known.contains(block)).collect())
    }

    /// How many blocks nothing is added to any more.
    async fn finished(&self) -> Result<u64, StoreError> {
        Ok(self.store.head(self.tenant).await?.seq / BLOCK)
    }

    /// The blocks that are in the index. An index that was made from another ledger, because a database was put back from a backup
    /// for instance, is emptied: the last block stands for all before it, as the chain does.
    async fn known(&self, indexed: Vec<IndexedBlock>, finished: u64) -> Result<BTreeSet<u64>, StoreError> {
        if let Some(last) = indexed.last()
            && !self.is_of_this_ledger(last, finished).await?
        {
            tracing::warn!(tenant = %self.tenant, block = last.block, "the search index is of another ledger and is made again");
            self.store.empty_index(self.tenant).await?;
            return Ok(BTreeSet::new());
        }
        Ok(indexed.iter().map(|known| known.block).collect())
    }

    async fn is_of_this_ledger(&self, last: &IndexedBlock, finished: u64) -> Result<bool, StoreError> {
        if last.block >= finished {
            return Ok(false);
        }
        let end = *seqs_of(last.block).end();
        let entries = self.store.entries(self.tenant, end, 1).await?;
        Ok(entries.first().is_some_and(|entry| entry.hash == last.end))
    }

    /// Puts one block into the index. False if somebody else does.
    async fn index(&self, block: u64) -> Result<bool, StoreError> {
        let now = self.gateway.clock.now();
        let claim = BlockClaim {
            token: token(self.gateway),
            now,
            until: after(now, CLAIM_MAX),
            by_force: false,
        };
        if !self.store.claim_block(self.tenant, block, &claim).await? {
            return Ok(false);
        }
        let seqs = seqs_of(block);
        let filter = DecisionFilter {
            after_seq: Some(seqs.start() - 1),
            ..DecisionFilter::default()
        };
        let mut lists = Lists::default();
        let mut before = seqs.end() + 1;
        let mut breaks = Breaks::long(self.gateway.sequencer.press());
        loop {
            let size = breaks.page();
            let page = self
                .store
                .decisions(self.tenant, &filter, Some(before), size)
                .await?;
            for decision in &page {
                lists.add(decision);
                breaks.give_way();
            }
            match page.last() {
                Some(last) if page.len() == size as usize || is_used_up(&page) => before = last.seq,
                _ => break,
            }
            // Verification comes in between.
            tokio::task::yield_now().await;
        }
        let end = self.store.entries(self.tenant, *seqs.end(), 1).await?;
        let Some(end) = end.first() else {
            self.store.release_block(self.tenant, block, claim.token).await?;
            return Ok(false);
        };
        debug_assert_eq!(block_of(end.seq), block);
        let postings = lists.finish();
        self.store
            .put_block(self.tenant, block, claim.token, &end.hash, &postings)
            .await
    }
}

/// A number that nobody else has.
pub(crate) fn token(gateway: &Gateway) -> i64 {
    let mut random = [0; 8];
    gateway.entropy.fill(&mut random);
    i64::from_be_bytes(random)
}

/// So much later.
pub(crate) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.millis().saturating_add(millis))
}
