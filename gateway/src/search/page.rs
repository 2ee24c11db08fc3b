//! A page of the decisions that somebody looks for, newest first.
//!
//! A block that is in the index is asked there, and what it proposes is read from the ledger and compared. A block that
//! is not, the newest entries above all, is read whole, so nothing is missed that was recorded before the call. A call
//! reads a bounded number of such blocks, looks a bounded number of terms up in the others, and compares decisions of a
//! bounded size, wherever they come from: beyond that it gives what it has found and says where to go on.

use super::are_of_ledger;
use engine::search::{BLOCK, Places, Query, block_of, seqs_of, version};
use model::{Name, TenantId};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use store::{
    BYTES_AT_ONCE, Bulk, DecisionFilter, IndexedBlock, Posting, Room, Store, StoreError, StoredDecision,
    is_used_up,
};

/// Blocks that the index is asked for at once: half a million entries.
const BLOCKS_AT_ONCE: u64 = 256;
/// Terms that a call looks up, in each block every one: some tenths of a second. With one term that is a ledger of a
/// hundred million entries.
const LOOK_UPS_MAX: u64 = 65_536;
/// Blocks that a call reads because they are not in the index: some tens of milliseconds.
const READ_MAX: u32 = 4;
/// Bytes of bodies that a call compares, in vain or not: some tenths of a second. Decisions may be large, and the index
/// may propose what is not wanted, while others wait for a place.
const BYTES_MAX: usize = 8 * BYTES_AT_ONCE;
/// What a decision counts for at least, because a small one has to be found, too: with 8,192 of them a call is over.
const DECISION_BYTES_MIN: usize = 4 << 10;
/// Decisions that are read at once.
const CHUNK: u32 = 512;

/// What is looked for.
pub struct Wanted {
    /// By what stands in the rows of decisions. What it says of time is left to [`Self::seqs`].
    pub filter: DecisionFilter,
    /// For this user.
    pub user: Option<Name>,
    /// With words that begin like this.
    pub words: Vec<String>,
    /// Among these entries.
    pub seqs: Range<u64>,
    /// At most so many, and no more behind the one with which their bodies come to [`store::BYTES_AT_ONCE`].
    pub limit: usize,
}

/// What was found.
pub struct Found {
    /// Newest first.
    pub decisions: Vec<StoredDecision>,
    /// Before which entry to go on; none if there are no more.
    pub next: Option<u64>,
}

/// Finds the newest decisions that are wanted.
pub async fn find(store: &dyn Store, tenant: TenantId, wanted: Wanted) -> Result<Found, StoreError> {
    let query = Query::new(&wanted.filter, wanted.user.as_ref(), &wanted.words);
    let is_everything = query.terms().is_empty();
    let search = Search {
        store,
        tenant,
        end: wanted.seqs.end,
        candidates: Vec::new(),
        found: Vec::new(),
        room: Room::default(),
        reads_left: READ_MAX,
        look_ups_left: LOOK_UPS_MAX,
        bytes_left: BYTES_MAX,
        query,
        wanted,
    };
    if is_everything {
        search.everything().await
    } else {
        search.run().await
    }
}

/// A search under way.
struct Search<'s> {
    store: &'s dyn Store,
    tenant: TenantId,
    wanted: Wanted,
    query: Query,
    /// Everything from here on was looked at.
    end: u64,
    /// Entries that the index has proposed and nobody has read yet, newest first.
    candidates: Vec<u64>,
    found: Vec<StoredDecision>,
    /// What of it is left on the page.
    room: Room,
    /// How many more blocks may be read.
    reads_left: u32,
    /// How many more terms may be looked up.
    look_ups_left: u64,
    /// How many more bytes of decisions may be compared.
    bytes_left: usize,
}

/// What the index says of some blocks.
#[derive(Default)]
struct Indexed {
    blocks: BTreeSet<u64>,
    postings: BTreeMap<u64, Vec<Posting>>,
}

impl Search<'_> {
    /// Without a condition the next decisions are the ones that are wanted.
    async fn everything(self) -> Result<Found, StoreError> {
        let filter = DecisionFilter {
            after_seq: Some(self.wanted.seqs.start.saturating_sub(1)),
            ..DecisionFilter::default()
        };
        let limit = u32::try_from(self.wanted.limit.saturating_add(1)).unwrap_or(u32::MAX);
        let decisions = self
            .store
            .decisions(self.tenant, &filter, Some(self.end), limit)
            .await?;
        Ok(cut(decisions, self.wanted.limit))
    }

    async fn run(mut self) -> Result<Found, StoreError> {
        let start = self.start();
        while self.end > start {
            let last = block_of(self.end - 1);
            let first = block_of(start).max((last + 1).saturating_sub(self.blocks_at_once()));
            let indexed = self.ask(first, last).await;
            let look_ups = indexed.blocks.len() as u64 * self.terms();
            self.look_ups_left = self.look_ups_left.saturating_sub(look_ups);
            for block in (first..=last).rev() {
                let seqs = seqs_of(block);
                let seqs = start.max(*seqs.start())..self.end.min(seqs.end() + 1);
                if indexed.blocks.contains(&block) {
                    self.propose(indexed.postings.get(&block), block, &seqs);
                    self.end = seqs.start;
                } else {
                    self.read_candidates().await?;
                    if self.is_over() || self.reads_left == 0 {
                        return Ok(self.finish());
                    }
                    self.read(&seqs).await?;
                }
                if self.candidates.len() >= CHUNK as usize {
                    self.read_candidates().await?;
                }
                if self.is_over() {
                    return Ok(self.finish());
                }
            }
            self.read_candidates().await?;
            if self.is_over() || self.look_ups_left == 0 {
                break;
            }
        }
        Ok(self.finish())
    }

    /// The first entry that may be looked at.
    fn start(&self) -> u64 {
        self.wanted.seqs.start.max(1)
    }

    /// How many blocks the index may be asked for now. One in any case, so that each call comes further.
    fn blocks_at_once(&self) -> u64 {
        (self.look_ups_left / self.terms().max(1)).clamp(1, BLOCKS_AT_ONCE)
    }

    fn terms(&self) -> u64 {
        self.query.terms().len() as u64
    }

    /// What the index says of these blocks. Whoever searches can do without it.
    async fn ask(&self, first: u64, last: u64) -> Indexed {
        match self.try_ask(first, last).await {
            Ok(indexed) => indexed,
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the search index could not be read"
                );
                Indexed::default()
            }
        }
    }

    async fn try_ask(&self, first: u64, last: u64) -> Result<Indexed, StoreError> {
        let blocks = self.store.indexed(self.tenant, first..=last).await?;
        if !are_of_ledger(self.store, self.tenant, &blocks).await? {
            return Ok(Indexed::default());
        }
        // What an earlier version has put may lack words, and nothing else: whoever asks for words reads it.
        let has_words = !self.wanted.words.is_empty();
        let is_current = |block: &&IndexedBlock| !has_words || version::is_current(block.token);
        let blocks: Vec<&IndexedBlock> = blocks.iter().filter(is_current).collect();
        let (Some(oldest), Some(newest)) = (blocks.first(), blocks.last()) else {
            return Ok(Indexed::default());
        };
        // What is older is not believed, and so not asked.
        let asked = oldest.block..=newest.block;
        let mut postings: BTreeMap<u64, Vec<Posting>> = BTreeMap::new();
        let terms = self.query.terms();
        for (block, posting) in self.store.postings(self.tenant, terms, asked).await? {
            postings.entry(block).or_default().push(posting);
        }
        // A block that was taken out or put in meanwhile, or one after the other, has no postings, or not all: it is read.
        let still = self.store.indexed(self.tenant, first..=last).await?;
        let is_still = |block: &&IndexedBlock| {
            let place = still.binary_search_by_key(&block.block, |still| still.block);
            place.is_ok_and(|place| still[place] == **block)
        };
        Ok(Indexed {
            blocks: blocks
                .into_iter()
                .filter(is_still)
                .map(|block| block.block)
                .collect(),
            postings,
        })
    }

    /// Notes the entries of a block that have every term.
    fn propose(&mut self, postings: Option<&Vec<Posting>>, block: u64, seqs: &Range<u64>) {
        let postings = postings.map_or(&[][..], Vec::as_slice);
        if postings.len() < self.query.terms().len() {
            return;
        }
        let mut places = Places::ALL;
        for posting in postings {
            // What is damaged proposes everything that the others do: it is read and compared.
            if let Some(some) = Places::decode(&posting.places) {
                places.keep(&some);
            }
        }
        let first = block * BLOCK + 1;
        let entries = places.descending().map(|place| first + place);
        self.candidates.extend(entries.filter(|seq| seqs.contains(seq)));
    }

    /// Reads what was proposed, newest first, until the page is full or enough was looked at.
    async fn read_candidates(&mut self) -> Result<(), StoreError> {
        let candidates = std::mem::take(&mut self.candidates);
        let mut rest = &candidates[..];
        let mut at_once = self.wanted.limit + 1 - self.found.len().min(self.wanted.limit);
        while !rest.is_empty() && !self.is_over() {
            let (some, others) = rest.split_at(rest.len().min(at_once));
            // Where much was proposed in vain, a small page is not filled by as many small reads.
            at_once = (2 * at_once).min(CHUNK as usize);
            let decisions = self.store.decisions_at(self.tenant, some).await?;
            rest = match decisions.last() {
                Some(last) if is_used_up(&decisions) => &rest[rest.partition_point(|seq| *seq >= last.seq)..],
                _ => others,
            };
            self.take(decisions);
        }
        // What was not proposed and is newer is not wanted.
        self.end = rest.first().map_or(self.end, |seq| seq + 1);
        Ok(())
    }

    /// Reads a part of the ledger that is not in the index, until the page is full or enough was looked at.
    async fn read(&mut self, seqs: &Range<u64>) -> Result<(), StoreError> {
        self.reads_left -= 1;
        let filter = DecisionFilter {
            after_seq: Some(seqs.start - 1),
            ..self.wanted.filter.clone()
        };
        while self.end > seqs.start && !self.is_over() {
            let decisions = self
                .store
                .decisions(self.tenant, &filter, Some(self.end), CHUNK)
                .await?;
            let is_end = decisions.len() < CHUNK as usize && !is_used_up(&decisions);
            let last = decisions.last().filter(|_| !is_end);
            self.end = last.map_or(seqs.start, |last| last.seq);
            self.take(decisions);
        }
        Ok(())
    }

    /// Takes what is wanted, as far as the page holds it.
    fn take(&mut self, decisions: Vec<StoredDecision>) {
        for decision in decisions {
            if self.is_full() {
                break;
            }
            let bytes = decision.bytes().max(DECISION_BYTES_MIN);
            self.bytes_left = self.bytes_left.saturating_sub(bytes);
            if self.query.matches(&decision) {
                self.room.take(decision.bytes());
                self.found.push(decision);
            }
        }
    }

    /// One more than the page holds tells whether there is a next one. One without room for another may have none behind it.
    fn is_full(&self) -> bool {
        self.found.len() > self.wanted.limit || !self.room.is_left()
    }

    /// Whether this call looks at no more.
    fn is_over(&self) -> bool {
        self.is_full() || self.bytes_left == 0
    }

    /// The page. Where there is still room on it, what was not looked at is for the next call.
    fn finish(self) -> Found {
        if self.is_full() {
            return cut(self.found, self.wanted.limit);
        }
        Found {
            next: (self.end > self.start()).then_some(self.end),
            decisions: self.found,
        }
    }
}

/// The page, of which there may be more than it holds.
fn cut(mut decisions: Vec<StoredDecision>, limit: usize) -> Found {
    let is_more = decisions.len() > limit || is_used_up(&decisions);
    decisions.truncate(limit);
    Found {
        next: decisions.last().filter(|_| is_more).map(|last| last.seq),
        decisions,
    }
}
