//! Puts blocks of ledgers into the search index, once all of their entries are there.
//!
//! Nothing waits for it and it hurries for nobody: it is done on the thread [`behind`](crate::behind), rests longer than it works, and much
//! longer while many wait for decisions. Of several gateways on one database any may do a block; whoever has claimed it does. What it has not done yet is looked for in the ledger itself.

use super::is_of_ledger;
use crate::behind::Breaks;
use crate::gateway::Gateway;
use engine::search::{BLOCK, Lists, block_of, seqs_of, version};
use model::{TenantId, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};
use store::{Advance, BlockClaim, DecisionFilter, IndexedBlock, Store, StoreError, is_used_up};
use tokio::sync::Notify;

/// How much longer it rests than it has worked: it takes a quarter of a core, and of the disk.
const RESTS_LONGER: u32 = 3;
/// How much longer it rests than it has worked while many wait for decisions: it takes a thirty-second of a core.
const RESTS_LONGER_PRESSED: u32 = 31;
/// How long a claim holds: many times what a block takes.
const CLAIM_MAX: Duration = Duration::from_mins(1);
/// How many blocks of a ledger are worked on before it is the turn of another one: some seconds, rests and all.
const BLOCKS_IN_TURN: usize = 16;
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
    /// Entries of finished blocks that were seen not to be in the index, of each ledger that has any. Held for a number only.
    behind: Mutex<BTreeMap<TenantId, u64>>,
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

    /// How many entries of finished blocks were not in the index when the job last looked, of all ledgers.
    pub fn behind(&self) -> u64 {
        self.lock_behind().values().sum()
    }

    /// Notes how many finished blocks of a ledger are not in the index.
    fn saw_missing(&self, tenant: TenantId, blocks: u64) {
        let mut behind = self.lock_behind();
        if blocks == 0 {
            behind.remove(&tenant);
        } else {
            behind.insert(tenant, blocks.saturating_mul(BLOCK));
        }
    }

    /// Takes the ledger whose turn it is after this one: each has one before the first has its next.
    fn take_after(&self, last: Option<TenantId>) -> Option<TenantId> {
        let mut due = self.lock();
        let after = last.map_or(Bound::Unbounded, Bound::Excluded);
        let next = due.range((after, Bound::Unbounded)).next().copied();
        match next {
            Some(next) => due.take(&next),
            None => due.pop_first(),
        }
    }

    fn lock_behind(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantId, u64>> {
        self.behind.lock().unwrap_or_else(PoisonError::into_inner)
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
    let mut last = None;
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
            let Some(tenant) = indexing.take_after(last) else {
                let left = ROUND.saturating_sub(round.elapsed());
                // Nothing was heard: it is time for all of them.
                let _ = tokio::time::timeout(left, indexing.wake.notified()).await;
                continue;
            };
            last = Some(tenant);
            match catch_up(&gateway, tenant).await {
                Ok(true) => {}
                Ok(false) => {
                    indexing.lock().insert(tenant);
                }
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, %tenant, "the search index could not be written");
                    indexing.lock().insert(tenant);
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }
}

/// Puts finished blocks of a ledger into the index that are not in it, the newest first: that is what most look for. If the index is of
/// another ledger, that is taken out first. False if there is more to do than is done in a turn. The gateway may end between two of them.
async fn catch_up(gateway: &Weak<Gateway>, tenant: TenantId) -> Result<bool, StoreError> {
    let mut left = match gateway.upgrade() {
        Some(gateway) => Ledger::of(&gateway, tenant).left().await?,
        None => return Ok(true),
    };
    let mut done = 0;
    while done < BLOCKS_IN_TURN
        && let Some(block) = left.blocks.pop()
    {
        let Some(gateway) = gateway.upgrade() else {
            return Ok(true);
        };
        let began = Instant::now();
        let ledger = Ledger::of(&gateway, tenant);
        let is_done = if left.are_foreign {
            ledger.take_out(block).await?
        } else {
            let is_done = ledger.index(block).await?;
            gateway.indexing.saw_missing(tenant, left.blocks.len() as u64);
            is_done
        };
        if is_done {
            done += 1;
            let longer = if gateway.sequencer.is_pressed() {
                RESTS_LONGER_PRESSED
            } else {
                RESTS_LONGER
            };
            drop(gateway);
            tokio::time::sleep(began.elapsed() * longer).await;
        }
    }
    if left.are_foreign && left.blocks.is_empty() {
        tracing::warn!(%tenant, "the search index was of another ledger and is made again");
    }
    Ok(left.blocks.is_empty() && !left.are_foreign)
}

fn tenants(gateway: &Gateway) -> Vec<TenantId> {
    let snapshot = gateway.snapshot.load();
    snapshot.tenants().map(|(tenant, _)| *tenant).collect()
}

/// What is left to do with the index of a ledger.
struct Left {
    /// With these blocks, the next one last.
    blocks: Vec<u64>,
    /// They are there, and are of another ledger; otherwise they are missing.
    are_foreign: bool,
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

    /// The finished blocks that are not in the index, or are in it as an earlier version of the gateway has put them. If the index was made from
    /// another ledger, because a database was put back from a backup for instance, then all that are in it: its last block stands for all before, as the chain does. So that one is taken out last, and
    /// whoever is stopped in the middle finds it again.
    async fn left(&self) -> Result<Left, StoreError> {
        let indexing = &self.gateway.indexing;
        if self.finished().await? == 0 {
            indexing.saw_missing(self.tenant, 0);
            return Ok(Left {
                blocks: Vec::new(),
                are_foreign: false,
            });
        }
        // The index before the ledger: what another gateway adds in between is a block of the ledger that is read then.
        let indexed = self.store.indexed(self.tenant, 0..=u64::from(u32::MAX)).await?;
        let finished = self.finished().await?;
        let are_foreign = match indexed.last() {
            Some(last) => !is_of_ledger(self.store, self.tenant, last).await?,
            None => false,
        };
        let is_known = |known: &&IndexedBlock| are_foreign || version::is_current(known.token);
        let known = indexed.iter().filter(is_known);
        let known: BTreeSet<u64> = known.map(|known| known.block).collect();
        let blocks: Vec<u64> = if are_foreign {
            indexing.saw_missing(self.tenant, finished);
            known.into_iter().rev().collect()
        } else {
            let missing: Vec<u64> = (0..finished).filter(|block| !known.contains(block)).collect();
            indexing.saw_missing(self.tenant, missing.len() as u64);
            missing
        };
        Ok(Left { blocks, are_foreign })
    }

    /// How many blocks nothing is added to any more.
    async fn finished(&self) -> Result<u64, StoreError> {
        Ok(self.store.head(self.tenant).await?.seq / BLOCK)
    }

    /// Takes a block of another ledger out of the index, with all that it says. Alone, because all of them at once may be more than a statement
    /// has time for.
    async fn take_out(&self, block: u64) -> Result<bool, StoreError> {
        let claim = self.claim(true);
        let is_out = self.store.claim_block(self.tenant, block, &claim).await?;
        self.store.release_block(self.tenant, block, claim.token).await?;
        Ok(is_out)
    }

    /// Puts one block into the index. False if somebody else does.
    async fn index(&self, block: u64) -> Result<bool, StoreError> {
        // By force only over what was there a moment ago. Whoever has claimed it in between loses the claim: another gateway has worked in vain, and
        // an erasure takes the block again after its commit.
        let claim = self.claim(self.is_of_earlier_version(block).await?);
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

    /// Whether a block is in the index as an earlier version of the gateway has put it.
    async fn is_of_earlier_version(&self, block: u64) -> Result<bool, StoreError> {
        let indexed = self.store.indexed(self.tenant, block..=block).await?;
        Ok(indexed
            .first()
            .is_some_and(|known| !version::is_current(known.token)))
    }

    fn claim(&self, by_force: bool) -> BlockClaim {
        let now = self.gateway.clock.now();
        BlockClaim {
            token: token(self.gateway),
            now,
            until: after(now, CLAIM_MAX),
            by_force,
        }
    }
}

/// A number that nobody else has who claims the same block, and that tells the version of what is put with it.
pub(crate) fn token(gateway: &Gateway) -> i64 {
    let mut random = [0; 4];
    gateway.entropy.fill(&mut random);
    version::token(u32::from_be_bytes(random))
}

/// So much later.
pub(crate) fn after(now: Timestamp, duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(now.millis().saturating_add(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_ledger_has_its_turn_however_soon_another_is_noted_again() {
        let [one, two, three] = [1, 2, 3].map(|byte| TenantId::from_bytes([byte; 16]));
        let indexing = Indexing::default();
        assert_eq!(indexing.take_after(Some(two)), None);
        for tenant in [three, one, two] {
            indexing.note(tenant);
        }
        let mut last = None;
        for expected in [one, two, three, one, two] {
            last = indexing.take_after(last);
            assert_eq!(last, Some(expected));
            indexing.note(expected);
        }
    }

    #[test]
    fn what_is_missing_is_counted_of_all_ledgers() {
        let [one, two] = [1, 2].map(|byte| TenantId::from_bytes([byte; 16]));
        let indexing = Indexing::default();
        indexing.saw_missing(one, 3);
        indexing.saw_missing(two, 1);
        assert_eq!(indexing.behind(), 4 * BLOCK);
        indexing.saw_missing(one, 0);
        assert_eq!(indexing.behind(), BLOCK);
    }
}
