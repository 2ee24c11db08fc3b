//! Puts blocks of ledgers into the search index, once all of their entries are there.
//!
//! Nothing waits for it and it hurries for nobody: it is done on the [`background`](crate::background) thread, rests
//! longer than it works on blocks, and much longer while many wait for decisions. Of several gateways on one database
//! any may do a block; whoever has claimed it does. What it has not done yet is looked for in the ledger itself:
//! everywhere in it every few minutes, and otherwise behind what was seen to be in the index, and where an erasure has
//! taken blocks out.

use super::{are_of_ledger, made_with};
use crate::background::Breaks;
use crate::gateway::Gateway;
use crate::locks::lock;
use engine::search::{BLOCK, Lists, block_of, seqs_of, version};
use model::{TenantId, Timestamp};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};
use store::{Advance, BlockClaim, DecisionFilter, IndexedBlock, Posting, Store, StoreError, is_used_up};
use tokio::sync::Notify;

/// How much longer it rests than it has worked: it takes a quarter of a core, and of the disk.
const RESTS_LONGER: u32 = 3;
/// How much longer it rests than it has worked while many wait for decisions: it takes a thirty-second of a core.
const RESTS_LONGER_UNDER_LOAD: u32 = 31;
/// How long a claim holds: many times what a block takes.
const CLAIM_MAX: Duration = Duration::from_mins(1);
/// How many blocks of a ledger are worked on before it is the turn of another one: some seconds, rests and all.
const BLOCKS_IN_TURN: usize = 16;
/// How long a ledger is worked on before it is the turn of another one, rests and all, where its blocks are large or
/// many wait for decisions. The block that is being worked on then is the last one.
const TURN_MAX: Duration = Duration::from_secs(10);
/// How often every ledger is looked at, all of it, whether it is known to have grown or not: another gateway may have
/// stopped in the middle.
const ROUND: Duration = Duration::from_mins(5);
/// How long it waits after something went wrong.
const PAUSE: Duration = Duration::from_secs(5);
/// So many blocks of a ledger that were taken out of the index are asked for one by one. Where there are more,
/// everything is looked at.
const TAKEN_MAX: usize = 64;

/// What is left to do, and how the job is told.
#[derive(Default)]
pub struct Indexing {
    /// Ledgers that may have a finished block that is not in the index. Held for a push or a pop only.
    due: Mutex<BTreeSet<TenantId>>,
    wake: Notify,
    /// Entries of finished blocks that were seen not to be in the index, of each ledger that has any. Held for a number only.
    behind: Mutex<BTreeMap<TenantId, u64>>,
    /// Where blocks may be missing of each ledger that was looked at; of any other they may be anywhere. Held for a
    /// look at one of them.
    missing: Mutex<BTreeMap<TenantId, Missing>>,
}

/// Where blocks of a ledger may be missing in the index: nowhere else, as far as this gateway knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Missing {
    /// From this one on.
    from: u64,
    /// And these: they were taken out.
    taken: BTreeSet<u64>,
}

impl Missing {
    /// Whether what is in the index begins with the block before the first one that may be missing, if there is one, in
    /// the current version.
    fn begins_behind(&self, indexed: &[IndexedBlock]) -> bool {
        let Some(before) = self.from.checked_sub(1) else {
            return true;
        };
        let first = indexed.first();
        first.is_some_and(|first| first.block == before && version::is_current(first.token))
    }
}

impl Indexing {
    /// Notes that chains have grown. It costs a commit a comparison, unless a block is finished.
    pub fn grown(&self, advances: &[Advance]) {
        for advance in advances {
            if advance.from.seq / BLOCK != advance.to.head().seq / BLOCK {
                self.note_grown(advance.tenant);
            }
        }
    }

    /// Has a ledger looked at, all of it, as every ledger is every few minutes: for tests, which do not wait that long.
    pub fn look_at_all_of(&self, tenant: TenantId) {
        self.lock_missing().remove(&tenant);
        self.note_grown(tenant);
    }

    /// Has a ledger looked at: these blocks of it were taken out of the index.
    pub fn note_taken(&self, tenant: TenantId, blocks: &BTreeSet<u64>) {
        let mut all = self.lock_missing();
        if let Some(missing) = all.get_mut(&tenant) {
            missing.taken.extend(blocks);
            if missing.taken.len() > TAKEN_MAX {
                all.remove(&tenant);
            }
        }
        drop(all);
        self.note_grown(tenant);
    }

    fn note_grown(&self, tenant: TenantId) {
        self.lock().insert(tenant);
        self.wake.notify_one();
    }

    /// Begins a look, and says where blocks may be missing. Those that are taken out from now on are for the next look,
    /// and so is everything until this one has ended.
    fn begin_look(&self, tenant: TenantId) -> Missing {
        let mut all = self.lock_missing();
        let missing = all.get(&tenant).cloned().unwrap_or_default();
        all.insert(tenant, Missing::default());
        missing
    }

    /// Notes what a look has found, for the next one. If everything is to be looked at since it began, the next one does that.
    fn end_look(&self, tenant: TenantId, found: Missing) {
        if let Some(missing) = self.lock_missing().get_mut(&tenant) {
            missing.from = found.from;
            missing.taken.extend(found.taken);
        }
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
        lock(&self.behind)
    }

    fn lock_missing(&self) -> std::sync::MutexGuard<'_, BTreeMap<TenantId, Missing>> {
        lock(&self.missing)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeSet<TenantId>> {
        lock(&self.due)
    }
}

/// Starts the job of a gateway. It ends with it.
pub fn start(gateway: &Arc<Gateway>) {
    let indexing = Arc::clone(&gateway.indexing);
    gateway.background.spawn(run(Arc::downgrade(gateway), indexing));
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
        indexing.lock_missing().clear();
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

/// Puts finished blocks of a ledger into the index that are not in it, the newest first: that is what most look for. If
/// the index is of another ledger, that is taken out first. False if there is more to do than is done in a turn. The
/// gateway may end between two of them.
async fn catch_up(gateway: &Weak<Gateway>, tenant: TenantId) -> Result<bool, StoreError> {
    let Some(looking) = gateway.upgrade() else {
        return Ok(true);
    };
    let began = Instant::now();
    let mut left = Ledger::of(&looking, tenant).left().await?;
    drop(looking);
    // With thousands of ledgers longer rests would add up to more than a round.
    tokio::time::sleep(began.elapsed()).await;
    let (turn, mut done) = (Instant::now(), 0);
    while !is_over(done, turn.elapsed())
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
            rest(gateway, began).await;
        }
    }
    if left.are_foreign && left.blocks.is_empty() {
        tracing::warn!(%tenant, "the search index was of another ledger and is made again");
    }
    Ok(left.blocks.is_empty() && !left.are_foreign)
}

/// Whether a turn is over that has taken so long for so many blocks.
fn is_over(done: usize, elapsed: Duration) -> bool {
    done >= BLOCKS_IN_TURN || (done > 0 && elapsed >= TURN_MAX)
}

/// Rests after it has worked since then. The gateway may end meanwhile.
async fn rest(gateway: Arc<Gateway>, began: Instant) {
    let longer = if gateway.sequencer.is_under_load() {
        RESTS_LONGER_UNDER_LOAD
    } else {
        RESTS_LONGER
    };
    drop(gateway);
    tokio::time::sleep(began.elapsed() * longer).await;
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
            store: &*gateway.background.store,
            tenant,
        }
    }

    /// The finished blocks that are not in the index, or are in it as an earlier version of the gateway has put them.
    /// If the index was made from another ledger, because a database was put back from a backup for instance, then all
    /// that are in it: the one that was made with the latest entry stands for all, as the chain does. So that one is
    /// taken out last, and whoever is stopped in the middle finds it again. Only that is read where blocks may be
    /// missing, and the block before it; if that is not as it was, everything is.
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
        let mut missing = indexing.begin_look(self.tenant);
        let mut indexed = self.indexed_since(&missing).await?;
        let mut are_foreign = !are_of_ledger(self.store, self.tenant, &indexed).await?;
        if are_foreign || !missing.begins_behind(&indexed) {
            missing = Missing::default();
            indexed = self.indexed_since(&missing).await?;
            are_foreign = !are_of_ledger(self.store, self.tenant, &indexed).await?;
        }
        let finished = self.finished().await?;
        let blocks: Vec<u64> = if are_foreign {
            indexing.saw_missing(self.tenant, finished);
            indexed.sort_by_key(|known| Reverse(made_with(known).seq));
            indexed.iter().map(|known| known.block).collect()
        } else {
            let known = indexed.iter().filter(|known| version::is_current(known.token));
            let known: BTreeSet<u64> = known.map(|known| known.block).collect();
            let taken = self.still_missing(&missing).await?;
            let behind = (missing.from..finished).filter(|block| !known.contains(block));
            let behind: Vec<u64> = behind.collect();
            let blocks: Vec<u64> = taken.iter().chain(&behind).copied().collect();
            let from = behind.first().copied().unwrap_or(finished);
            indexing.saw_missing(self.tenant, blocks.len() as u64);
            indexing.end_look(self.tenant, Missing { from, taken });
            blocks
        };
        Ok(Left { blocks, are_foreign })
    }

    /// The blocks in the index from the one on before which none is missing.
    async fn indexed_since(&self, missing: &Missing) -> Result<Vec<IndexedBlock>, StoreError> {
        let blocks = missing.from.saturating_sub(1)..=u64::from(u32::MAX);
        self.store.indexed(self.tenant, blocks).await
    }

    /// Those of the blocks that were taken out that nobody has put into the index again.
    async fn still_missing(&self, missing: &Missing) -> Result<BTreeSet<u64>, StoreError> {
        let mut still = BTreeSet::new();
        for block in missing.taken.range(..missing.from) {
            let indexed = self.store.indexed(self.tenant, *block..=*block).await?;
            let known = indexed.first();
            if known.is_none_or(|known| !version::is_current(known.token)) {
                still.insert(*block);
            }
        }
        Ok(still)
    }

    /// How many blocks nothing is added to any more.
    async fn finished(&self) -> Result<u64, StoreError> {
        Ok(self.store.head(self.tenant).await?.seq / BLOCK)
    }

    /// Takes a block of another ledger out of the index, with all that it says. Alone, because all of them at once may
    /// be more than a statement has time for.
    async fn take_out(&self, block: u64) -> Result<bool, StoreError> {
        let claim = self.claim(true);
        let is_out = self.store.claim_block(self.tenant, block, &claim).await?;
        self.store.release_block(self.tenant, block, claim.token).await?;
        Ok(is_out)
    }

    /// Puts one block into the index. False if somebody else does.
    async fn index(&self, block: u64) -> Result<bool, StoreError> {
        // By force only over what was there a moment ago. Whoever has claimed it in between loses the claim: another
        // gateway has worked in vain, and an erasure takes the block again after its commit.
        let claim = self.claim(self.is_of_earlier_version(block).await?);
        if !self.store.claim_block(self.tenant, block, &claim).await? {
            return Ok(false);
        }
        // Before anything of the block is read: what is erased in between is told of behind this.
        let made_at = self.store.head(self.tenant).await?;
        let postings = self.postings_of(block).await?;
        let end = self.store.entries(self.tenant, *seqs_of(block).end(), 1).await?;
        let Some(end) = end.first() else {
            self.store.release_block(self.tenant, block, claim.token).await?;
            return Ok(false);
        };
        debug_assert_eq!(block_of(end.seq), block);
        let indexed = IndexedBlock {
            block,
            end: end.hash,
            token: claim.token,
            made_at: Some(made_at),
        };
        self.store.put_block(self.tenant, &indexed, &postings).await
    }

    /// What the index is to say of a block: its decisions are read for that.
    async fn postings_of(&self, block: u64) -> Result<Vec<Posting>, StoreError> {
        let seqs = seqs_of(block);
        let filter = DecisionFilter {
            after_seq: Some(seqs.start() - 1),
            ..DecisionFilter::default()
        };
        let mut lists = Lists::default();
        let mut before = seqs.end() + 1;
        let mut breaks = Breaks::long(self.gateway.sequencer.load_signal());
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
        Ok(lists.finish())
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
            indexing.look_at_all_of(tenant);
        }
        let mut last = None;
        for expected in [one, two, three, one, two] {
            last = indexing.take_after(last);
            assert_eq!(last, Some(expected));
            indexing.look_at_all_of(expected);
        }
    }

    #[test]
    fn a_turn_ends_with_its_time_but_not_before_a_block_is_done() {
        let short = TURN_MAX.saturating_sub(Duration::from_millis(1));
        assert!(!is_over(BLOCKS_IN_TURN - 1, short) && is_over(BLOCKS_IN_TURN, short));
        assert!(!is_over(0, TURN_MAX) && is_over(1, TURN_MAX));
    }

    /// From there on, and these.
    fn missing(from: u64, taken: &[u64]) -> Missing {
        Missing {
            from,
            taken: taken.iter().copied().collect(),
        }
    }

    #[test]
    fn a_look_is_for_what_was_missing_and_for_what_was_taken_out_since_the_last_began() {
        let tenant = TenantId::from_bytes([1; 16]);
        let indexing = Indexing::default();
        indexing.note_taken(tenant, &BTreeSet::from([3]));
        assert_eq!(indexing.begin_look(tenant), missing(0, &[]), "all of it");
        indexing.note_taken(tenant, &BTreeSet::from([4]));
        indexing.end_look(tenant, missing(9, &[]));
        assert_eq!(indexing.begin_look(tenant), missing(9, &[4]));
        indexing.note_taken(tenant, &BTreeSet::from([2, 5]));
        indexing.end_look(tenant, missing(10, &[4]));
        assert_eq!(indexing.begin_look(tenant), missing(10, &[2, 4, 5]));
        // That look has failed.
        assert_eq!(indexing.begin_look(tenant), missing(0, &[]));
        indexing.end_look(tenant, missing(10, &[]));
        indexing.note_taken(tenant, &(0..=TAKEN_MAX as u64).collect());
        assert_eq!(indexing.begin_look(tenant), missing(0, &[]), "too many");
        indexing.look_at_all_of(tenant);
        indexing.end_look(tenant, missing(10, &[]));
        assert_eq!(indexing.begin_look(tenant), missing(0, &[]), "nobody knows which");
    }

    #[test]
    fn what_is_before_the_first_block_that_may_be_missing_is_believed_as_long_as_the_last_of_it_is_there() {
        let block = |block, token| IndexedBlock {
            block,
            token,
            end: canon::Digest::ZERO,
            made_at: None,
        };
        let current = version::token(7);
        assert!(missing(0, &[]).begins_behind(&[]));
        assert!(missing(3, &[]).begins_behind(&[block(2, current), block(4, current)]));
        for indexed in [vec![], vec![block(3, current)], vec![block(2, 7)]] {
            assert!(!missing(3, &[]).begins_behind(&indexed), "{indexed:?}");
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
