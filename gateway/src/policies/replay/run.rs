//! A replay under way: threads of its own that read entries and judge them, one page each at a time.
//!
//! One core is left to the sequencer and the callers, however many replays there are: a thread has one of the others
//! while it judges a page, and then it is whose turn it is. They read one at a time, in the line of all who read
//! ledgers, and judge side by side. Pages are read one after the other, from the newest to the oldest, so which
//! decisions come under a limit does not depend on which thread is faster. Memory holds a page and some megabytes of
//! records a thread, whatever the length of the ledger and however large the records.

use super::range::Entries;
use super::records::{self, Part, Records};
use super::{CORES, Candidate, Permit, cores};
use crate::fair_semaphore::FairSemaphore;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use crate::locks::lock;
use canon::Digest;
use engine::facts::ActionRecord;
use engine::judge::RulingSummary;
use engine::replay::{Recorded, Tally, WhyNot, with_action_as_it_was};
use engine::{EntryKind, TenantSnapshot};
use policy::{Compiler, PolicySet};
use serde::Serialize;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use store::{Store, StoreError, StoredEntry, is_used_up};
use tokio::runtime::Handle;
use tokio::sync::{SemaphorePermit, mpsc};

/// Entries that are read at once: some hundred kilobytes of decisions.
const PAGE: u32 = 512;
/// Threads of one replay, at most.
const THREADS_MAX: usize = 8;
/// For how many actions as they were the candidate is compiled anew, at most: all that a tool can have.
const VARIANTS_MAX: usize = 256;
/// For how many it is, however long it is.
const VARIANTS_MIN: usize = 64;
/// How many bytes its texts and actions have together, beyond that. What they are compiled to stays as long as the
/// replay, and is many times as long.
const VARIANTS_BYTES_MAX: usize = 16 << 20;
/// How many bytes the records of these actions that have a schema have together: as many as those of one tool. Each is
/// read into a tree that takes many times its length.
const VARIANTS_SCHEMA_BYTES_MAX: usize = 4 << 20;
/// How many bytes these schemas take together once they are compiled, about: as many as those of a tenant. A short one
/// may take megabytes.
const VARIANTS_WEIGHT_MAX: usize = 128 << 20;
/// What an action counts for, which each of them has compiled anew.
const ACTION_BYTES: usize = 512;

/// How far a replay is.
#[derive(Debug, Serialize)]
pub(super) struct Progress {
    /// How many entries it will look at, unless a limit comes first.
    entries: u64,
    /// How many it has looked at.
    entries_read: u64,
    /// How many of them were decisions.
    decisions: u64,
}

/// What the threads of a replay share.
struct Shared {
    store: Arc<dyn Store>,
    /// Acquired before anything is read: so there are readers left for what asks look up.
    ledger_chunks: Arc<FairSemaphore>,
    compiler: Arc<Compiler>,
    /// The tenant with the candidate in place of its policies.
    candidate: TenantSnapshot,
    /// For how many actions as they were it is compiled anew.
    variants_max: usize,
    /// What is still to be read. Held while a page is read, so that pages come in order.
    rest: Mutex<Rest>,
    variants: Mutex<Variants>,
    course: Arc<Course>,
    /// Given back, with all that a replay has in memory, when the last thread has ended.
    _permit: Permit,
}

/// What the threads share with whoever waits for them, and who may take long to read what came of it.
struct Course {
    /// How many entries there are to look at.
    entries: u64,
    entries_read: AtomicU64,
    decisions: AtomicU64,
    /// Nobody waits for it any more.
    is_given_up: AtomicBool,
}

/// The candidate compiled for actions as they were.
#[derive(Default)]
struct Variants {
    /// By the digests of their records.
    of: HashMap<Digest, Variant>,
    /// How long their schemas are together.
    schema_bytes: usize,
    /// What the schemas take that it was compiled with.
    weight: usize,
}

/// The candidate compiled for an action as it was, or why it is not.
type Variant = Arc<OnceLock<Result<Arc<PolicySet>, WhyNot>>>;

impl Variants {
    /// The one for the action whose record has this digest and a schema of so many bytes, if it is there, or if there
    /// is room for another one: there are `most` at most.
    fn find(&mut self, digest: Digest, schema_bytes: usize, most: usize) -> Option<Variant> {
        if let Some(variant) = self.of.get(&digest) {
            return Some(Arc::clone(variant));
        }
        let all_bytes = self.schema_bytes + schema_bytes;
        if self.of.len() >= most || all_bytes > VARIANTS_SCHEMA_BYTES_MAX {
            return None;
        }
        self.schema_bytes = all_bytes;
        Some(Arc::clone(self.of.entry(digest).or_default()))
    }

    /// Takes a schema that takes so many bytes once compiled, if there is room for it. Says whether there was.
    fn takes(&mut self, weight: usize) -> bool {
        let all = self.weight.saturating_add(weight);
        let has_room = all <= VARIANTS_WEIGHT_MAX;
        if has_room {
            self.weight = all;
        }
        has_room
    }
}

struct Rest {
    entries: Entries,
    /// How many entries are asked for at once.
    page: u32,
    decisions: u64,
}

/// A replay under way. Dropping it ends it.
pub(super) struct Running {
    course: Arc<Course>,
    parts: mpsc::Receiver<Result<Tally, StoreError>>,
    threads: usize,
    tally: Tally,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.course.is_given_up.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// Starts its threads.
    pub(super) fn start(
        gateway: &Gateway,
        candidate: Candidate,
        entries: Entries,
        limit: u64,
        permit: Permit,
    ) -> std::io::Result<Self> {
        let course = Arc::new(Course {
            entries: (entries.last + 1).saturating_sub(entries.first),
            entries_read: AtomicU64::new(0),
            decisions: AtomicU64::new(0),
            is_given_up: AtomicBool::new(false),
        });
        let shared = Arc::new(Shared {
            store: Arc::clone(&gateway.store),
            ledger_chunks: Arc::clone(&gateway.ledger_chunks),
            compiler: candidate.compiler,
            variants_max: variants_max(&candidate.after),
            candidate: candidate.after,
            rest: Mutex::new(Rest {
                entries,
                page: PAGE,
                decisions: limit,
            }),
            variants: Mutex::default(),
            course: Arc::clone(&course),
            _permit: permit,
        });
        let threads = cores().min(THREADS_MAX);
        let (told, parts) = mpsc::channel(threads);
        let running = Self {
            course,
            parts,
            threads,
            tally: Tally::default(),
        };
        for _ in 0..threads {
            let thread = Thread {
                shared: Arc::clone(&shared),
                handle: Handle::current(),
                records: Records::default(),
                tally: Tally::default(),
            };
            let told = told.clone();
            std::thread::Builder::new()
                .name("replay".to_owned())
                .spawn(move || drop(told.blocking_send(thread.run())))?;
        }
        Ok(running)
    }

    /// How far it is.
    pub(super) fn progress(&self) -> Progress {
        Progress {
            entries: self.course.entries,
            entries_read: self.course.entries_read.load(Ordering::Relaxed),
            decisions: self.course.decisions.load(Ordering::Relaxed),
        }
    }

    /// What came of it, once all threads have ended, and whether the limit came before the end. Waiting may be broken off and
    /// begun again.
    pub(super) async fn ended(&mut self) -> Result<(Tally, bool), Refusal> {
        while self.threads > 0 {
            // A thread that panicked tells nothing.
            let part = self.parts.recv().await.ok_or_else(broken_off)?;
            self.tally.merge(part?);
            self.threads -= 1;
        }
        Ok((std::mem::take(&mut self.tally), self.course.has_more()))
    }

    /// What came of it, once all threads have ended, for whoever does not want to know how far it is.
    pub(super) async fn finish(mut self) -> Result<(Tally, bool), Refusal> {
        self.ended().await
    }
}

fn broken_off() -> Refusal {
    Refusal::new(Code::Internal, "the replay broke off")
}

impl Course {
    /// Whether a limit has come before the end, once all threads have ended.
    fn has_more(&self) -> bool {
        self.entries_read.load(Ordering::Relaxed) < self.entries
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn rest(&self) -> std::sync::MutexGuard<'_, Rest> {
        lock(&self.rest)
    }

    /// The decisions of the next page that has any, at most as many as may still be judged.
    fn next_page(&self, handle: &Handle) -> Result<Option<Vec<StoredEntry>>, StoreError> {
        let mut rest = self.rest();
        loop {
            let Entries { first, last } = rest.entries;
            if first > last || rest.decisions == 0 || self.course.is_given_up() {
                return Ok(None);
            }
            let (from, mut page) = handle.block_on(self.page_up_to(first, last, &mut rest.page))?;
            page.retain(|entry| entry.seq <= last && entry.kind == EntryKind::Decision.as_str());
            let too_many = page
                .len()
                .saturating_sub(usize::try_from(rest.decisions).unwrap_or(usize::MAX));
            let cut_at = page.drain(..too_many).next_back().map(|entry| entry.seq);
            // What was cut off counts as not read, for whoever asks whether there is more.
            rest.entries.last = cut_at.unwrap_or(from - 1);
            rest.decisions -= page.len() as u64;
            let read = last - rest.entries.last;
            self.course.entries_read.fetch_add(read, Ordering::Relaxed);
            let decisions = page.len() as u64;
            self.course.decisions.fetch_add(decisions, Ordering::Relaxed);
            if !page.is_empty() {
                return Ok(Some(page));
            }
        }
    }

    /// The last of these entries, and from which one on they are. Of large ones a call gives the first only, so fewer
    /// are asked for.
    async fn page_up_to(
        &self,
        first: u64,
        last: u64,
        limit: &mut u32,
    ) -> Result<(u64, Vec<StoredEntry>), StoreError> {
        let tenant = self.candidate.directory.tenant.id;
        loop {
            let from = first.max((last + 1).saturating_sub(u64::from(*limit)));
            let permit = self.ledger_chunks.acquire_for_part(tenant).await;
            let page = self.store.entries(tenant, from, *limit).await?;
            drop(permit);
            let is_used_up = is_used_up(&page);
            let is_cut = is_used_up && page.last().is_some_and(|end| end.seq < last);
            if is_cut && *limit > 1 {
                *limit /= 2;
                continue;
            }
            // Those before it may be smaller.
            if !is_used_up {
                *limit = PAGE.min(*limit * 2);
            }
            return Ok((from, page));
        }
    }

    /// The records with these digests.
    async fn contents(&self, digests: &[Digest]) -> Result<Vec<(Digest, Vec<u8>)>, StoreError> {
        let tenant = self.candidate.directory.tenant.id;
        let _permit = self.ledger_chunks.acquire_for_part(tenant).await;
        self.store.contents(tenant, digests).await
    }

    /// The candidate for asks of this action as it was, whose record has this digest.
    fn policies(&self, digest: &Digest, was: &ActionRecord) -> Result<Arc<PolicySet>, WhyNot> {
        let tool = was.tool();
        let action = tool.actions.keys().next().ok_or(WhyNot::FactsMissing)?;
        if self.candidate.facts.action(tool.name.as_str(), action.as_str()) == Some(*digest) {
            return Ok(Arc::clone(&self.candidate.policies));
        }
        let variant = lock(&self.variants).find(*digest, was.schema_bytes(), self.variants_max);
        let variant = variant.ok_or(WhyNot::TooManyChangedActions)?;
        let compile = || -> Result<Arc<PolicySet>, WhyNot> {
            let was = was.with_schema().ok_or(WhyNot::ActionChanged)?;
            let actions = was.actions.values();
            let weight = actions.map(|action| self.compiler.schema_weight(action)).sum();
            if !lock(&self.variants).takes(weight) {
                return Err(WhyNot::TooManyChangedActions);
            }
            let candidate = &self.candidate.directory;
            let directory = with_action_as_it_was(candidate, &was);
            let goes_on = || !self.course.is_given_up();
            crate::compiling::compile_new_while(&self.compiler, &directory, Some(candidate), &goes_on)
                .map(Arc::new)
                .map_err(|_| WhyNot::ActionChanged)
        };
        variant.get_or_init(compile).clone()
    }
}

/// For how many actions as they were a candidate is compiled anew.
fn variants_max(candidate: &TenantSnapshot) -> usize {
    let tools = candidate.directory.tools.values();
    let actions = tools.map(|tool| tool.actions.len()).sum();
    variants_of(candidate.policies.text().len(), actions)
}

/// For how many actions as they were a candidate is compiled anew that has a text of this length and so many actions.
fn variants_of(text_bytes: usize, actions: usize) -> usize {
    let bytes = text_bytes + actions * ACTION_BYTES;
    (VARIANTS_BYTES_MAX / bytes.max(1)).clamp(VARIANTS_MIN, VARIANTS_MAX)
}

/// One thread of a replay.
struct Thread {
    shared: Arc<Shared>,
    handle: Handle,
    records: Records,
    tally: Tally,
}

impl Thread {
    fn run(mut self) -> Result<Tally, StoreError> {
        while self.judge_page()? {}
        Ok(self.tally)
    }

    /// Judges the next page. Says whether there was one.
    fn judge_page(&mut self) -> Result<bool, StoreError> {
        // Read first: whoever stands in line for the store keeps no core from other replays.
        let Some(page) = self.shared.next_page(&self.handle)? else {
            return Ok(false);
        };
        let page: Vec<_> = page
            .iter()
            .map(|entry| (entry, Recorded::read(&entry.body)))
            .collect();
        let mut rest = &page[..];
        let mut core = None;
        while !rest.is_empty() {
            let digests = rest
                .iter()
                .map(|(_, recorded)| recorded.iter().flat_map(Recorded::digests));
            let Part { decisions, missing } = self.records.next_part(digests);
            if !missing.is_empty() {
                drop(core.take());
                self.fetch(&missing)?;
            }
            if core.is_none() {
                core = Some(self.core());
            }
            let (part, later) = rest.split_at(decisions);
            if !self.judge_all(part) {
                return Ok(false);
            }
            rest = later;
        }
        Ok(true)
    }

    /// Waits for a core. Who does has nothing that anybody else waits for.
    fn core(&self) -> SemaphorePermit<'static> {
        // INVARIANT: nobody closes it.
        let core = self.handle.block_on(CORES.acquire());
        core.expect("there are cores as long as the process runs")
    }

    /// Reads these records. Others who read ledgers have their turns between a few of them.
    fn fetch(&mut self, missing: &[Digest]) -> Result<(), StoreError> {
        for few in missing.chunks(records::AT_ONCE) {
            let found = self.handle.block_on(self.shared.contents(few))?;
            self.records.put(few, found);
        }
        Ok(())
    }

    /// Judges these decisions, whose records are at hand. Says whether anybody still waits for that.
    fn judge_all(&mut self, part: &[(&StoredEntry, Result<Recorded<'_>, WhyNot>)]) -> bool {
        for (entry, recorded) in part {
            if self.shared.course.is_given_up() {
                return false;
            }
            let recorded = recorded.as_ref().map_err(|why| *why);
            match recorded.and_then(|recorded| Ok((recorded, self.judge(recorded)?))) {
                Ok((recorded, said)) => self.tally.add(recorded, (entry.seq, entry.at), said),
                Err(why) => self.tally.skip(why),
            }
        }
        true
    }

    fn judge(&self, recorded: &Recorded<'_>) -> Result<RulingSummary, WhyNot> {
        let nouns = recorded.nouns(|digest| self.records.get(digest))?;
        let digest = recorded.action_digest().ok_or(WhyNot::FactsMissing)?;
        let policies = self.shared.policies(&digest, nouns.action())?;
        recorded.judge(&policies, &nouns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_candidate_is_compiled_for_fewer_actions_as_they_were() {
        for (text_bytes, actions, most) in [
            (0, 0, 256),
            (64 << 10, 0, 256),
            (128 << 10, 0, 128),
            (64 << 10, 128, 128),
            (256 << 10, 0, 64),
            (1 << 10, 10_000, 64),
            (4 << 20, 0, 64),
        ] {
            assert_eq!(variants_of(text_bytes, actions), most);
        }
    }

    #[test]
    fn actions_with_large_schemas_are_fewer_and_those_that_are_there_stay() {
        let digests: Vec<_> = (0..100_u8).map(|number| Digest::of(&[number])).collect();
        for (schema_bytes, most, found) in [(0, 70, 70), (64 << 10, 70, 64), (64 << 10, 60, 60)] {
            let mut variants = Variants::default();
            for _ in 0..2 {
                let are_found = digests
                    .iter()
                    .map(|digest| variants.find(*digest, schema_bytes, most).is_some());
                let are_found: Vec<_> = are_found.collect();
                assert_eq!(are_found.iter().filter(|is_found| **is_found).count(), found);
                assert!(are_found[..found].iter().all(|is_found| *is_found));
            }
        }
    }

    #[test]
    fn schemas_that_take_more_than_there_is_room_for_are_not_compiled_and_smaller_ones_still_are() {
        let mut variants = Variants::default();
        assert!(variants.takes(VARIANTS_WEIGHT_MAX - 1_000));
        for (weight, has_room) in [
            (1_001, false),
            (usize::MAX, false),
            (400, true),
            (601, false),
            (600, true),
            (1, false),
            (0, true),
        ] {
            assert_eq!(variants.takes(weight), has_room, "{weight}");
        }
    }
}
