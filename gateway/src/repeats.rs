//! Recent answers by request id: a repeated ask is answered without judging or recording anything again.
//!
//! This is a cache of what the ledger holds. An ask that is not found here is looked up by the sequencer, in the
//! commit, or when it is refused.
//!
//! Answers are copied into buffers that stay, one behind the other, and forgotten by the buffer. Kept as they were,
//! they were tens of thousands of blocks all over the heap, each of which had left every cache of the processor when
//! its turn came to be freed and used again (docs/decisions/0063-answers-copied-into-buffers.md).

use crate::locks::lock;
use bytes::Bytes;
use canon::Digest;
use model::{AgentId, TenantId, Verdict};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::mem;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use store::RequestKey;

/// Parts, each with a lock of its own. A key is always in the same one.
const PARTS: usize = 32;
/// Bytes of answers and their request ids in each of the two generations of a part: 32 MiB in all. When the young one
/// is full it becomes the old one, and that one begins anew.
const GENERATION_BYTES_MAX: usize = 512 << 10;

/// An answer that was given.
#[derive(Debug, Clone)]
pub struct Given {
    /// The digest of the ask.
    pub ask: Digest,
    /// What was decided.
    pub verdict: Verdict,
    /// The exact bytes.
    pub answer: Bytes,
}

/// Recent answers.
pub struct Repeats {
    hasher: RandomState,
    /// How often something was forgotten. It grows before the lock of a part is taken to forget something in it.
    forgotten: AtomicU64,
    /// Each is held for one look-up at a time and never across an `await`.
    parts: [Mutex<Part>; PARTS],
}

#[derive(Default)]
struct Part {
    young: Generation,
    old: Generation,
}

/// Answers that are forgotten together. It keeps its room when they are.
#[derive(Default)]
struct Generation {
    /// Which of the records is of a key with this hash: the last one.
    places: HashMap<u64, usize>,
    records: Vec<Record>,
    /// Request ids and answers.
    bytes: Vec<u8>,
}

/// An answer among the bytes.
struct Record {
    tenant: TenantId,
    agent: AgentId,
    ask: Digest,
    verdict: Verdict,
    request_id: Range<usize>,
    answer: Range<usize>,
}

impl Default for Repeats {
    fn default() -> Self {
        Self::new()
    }
}

impl Repeats {
    /// No answers yet.
    pub fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            forgotten: AtomicU64::new(0),
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// What was answered under this key.
    pub fn find(&self, key: &RequestKey) -> Option<Given> {
        let hash = self.hasher.hash_one(key);
        let part = self.part(hash);
        part.young.find(hash, key).or_else(|| part.old.find(hash, key))
    }

    /// How often something was forgotten so far. Whoever is to remember an answer reads it before that is recorded.
    pub fn forgotten(&self) -> u64 {
        self.forgotten.load(Ordering::Relaxed)
    }

    /// Forgets an answer: what it said was erased.
    pub fn forget(&self, key: &RequestKey) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        self.forget_old(key);
    }

    /// Forgets an answer that was recorded so long ago that nobody can be about to remember it.
    pub fn forget_old(&self, key: &RequestKey) {
        let hash = self.hasher.hash_one(key);
        let mut part = self.part(hash);
        part.young.forget(hash, key);
        part.old.forget(hash, key);
    }

    /// Forgets all answers: the ledger may have lost some.
    pub fn forget_all(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        for part in &self.parts {
            *lock(part) = Part::default();
        }
    }

    /// Remembers an answer that is on disk, unless it is longer than a generation. Nor if anything was forgotten since
    /// [`Self::forgotten()`] was `forgotten`, before it was recorded: it may have been this one.
    pub fn remember(&self, key: &RequestKey, given: &Given, forgotten: u64) {
        let bytes = key.request_id.as_str().len() + given.answer.len();
        if bytes > GENERATION_BYTES_MAX {
            return;
        }
        let hash = self.hasher.hash_one(key);
        let part = &mut *self.part(hash);
        // INVARIANT: under the lock of the part. Whoever has had it before to forget something has counted that, and
        // whoever gets it later finds what is remembered now.
        if self.forgotten() != forgotten {
            return;
        }
        if part.young.bytes.len() + bytes > GENERATION_BYTES_MAX {
            mem::swap(&mut part.young, &mut part.old);
            part.young.begin_anew();
        }
        part.young.remember(hash, key, given);
    }

    fn part(&self, hash: u64) -> MutexGuard<'_, Part> {
        let place = usize::try_from(hash % PARTS as u64).expect("it is less than the number of parts");
        lock(&self.parts[place])
    }
}

impl Generation {
    fn find(&self, hash: u64, key: &RequestKey) -> Option<Given> {
        let record = &self.records[*self.places.get(&hash)?];
        record.is_of(key, &self.bytes).then(|| Given {
            ask: record.ask,
            verdict: record.verdict,
            answer: Bytes::copy_from_slice(&self.bytes[record.answer.clone()]),
        })
    }

    fn remember(&mut self, hash: u64, key: &RequestKey, given: &Given) {
        self.forget(hash, key);
        if self.bytes.capacity() == 0 {
            // Nothing of it is in memory before it is written, and it never moves.
            self.bytes.reserve_exact(GENERATION_BYTES_MAX);
        }
        let record = Record {
            tenant: key.tenant,
            agent: key.agent,
            ask: given.ask,
            verdict: given.verdict,
            request_id: self.append(key.request_id.as_str().as_bytes()),
            answer: self.append(&given.answer),
        };
        self.places.insert(hash, self.records.len());
        self.records.push(record);
    }

    fn append(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    /// Forgets it and overwrites what it says, which would stay until the buffer is full again.
    fn forget(&mut self, hash: u64, key: &RequestKey) {
        let Some(&place) = self.places.get(&hash) else {
            return;
        };
        let record = &self.records[place];
        if record.is_of(key, &self.bytes) {
            self.bytes[record.request_id.start..record.answer.end].fill(0);
            self.places.remove(&hash);
        }
    }

    fn begin_anew(&mut self) {
        self.places.clear();
        self.records.clear();
        self.bytes.clear();
    }
}

impl Record {
    fn is_of(&self, key: &RequestKey, bytes: &[u8]) -> bool {
        self.tenant == key.tenant
            && self.agent == key.agent
            && bytes[self.request_id.clone()] == *key.request_id.as_str().as_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::Name;

    /// Bytes of an answer, by which it is known.
    const ANSWER_BYTES: usize = 1_024;
    /// More than all parts hold.
    const ANSWERS: usize = 3 * 2 * PARTS * GENERATION_BYTES_MAX / ANSWER_BYTES;

    fn key(number: usize) -> RequestKey {
        RequestKey {
            tenant: TenantId::SYSTEM,
            agent: AgentId::from_bytes([7; 16]),
            request_id: Name::new(&format!("r{number}")).unwrap(),
        }
    }

    fn given(number: usize) -> Given {
        Given {
            ask: Digest::of(b"an ask"),
            verdict: Verdict::Allow,
            answer: format!("{number:0ANSWER_BYTES$}").into(),
        }
    }

    fn remember(repeats: &Repeats, number: usize, given: &Given) {
        repeats.remember(&key(number), given, repeats.forgotten());
    }

    #[test]
    fn the_last_answers_are_remembered_and_of_all_others_no_more_than_fit() {
        let repeats = Repeats::new();
        (0..ANSWERS).for_each(|number| remember(&repeats, number, &given(number)));
        let known: Vec<_> = (0..ANSWERS)
            .filter_map(|number| Some((number, repeats.find(&key(number))?)))
            .collect();
        assert!(
            known
                .iter()
                .all(|(number, found)| found.answer == given(*number).answer)
        );
        let all = 2 * PARTS * GENERATION_BYTES_MAX / ANSWER_BYTES;
        assert!(known.len() <= all, "{}", known.len());
        // Each part keeps its last generation at least, and those of the whole are spread over the parts.
        let last = ANSWERS - all / 4;
        assert!((last..ANSWERS).all(|number| repeats.find(&key(number)).is_some()));
        for part in &repeats.parts {
            let part = part.lock().unwrap();
            assert!(part.young.bytes.len() <= GENERATION_BYTES_MAX);
            assert!(part.old.bytes.len() <= GENERATION_BYTES_MAX);
        }
    }

    #[test]
    fn what_is_forgotten_is_in_no_generation_and_its_bytes_are_gone() {
        let repeats = Repeats::new();
        (0..ANSWERS / 3).for_each(|number| remember(&repeats, number, &given(number)));
        for number in 0..ANSWERS / 3 {
            repeats.forget(&key(number));
            assert!(repeats.find(&key(number)).is_none());
        }
        for part in &repeats.parts {
            let part = part.lock().unwrap();
            assert!(part.young.bytes.iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn the_last_answer_under_a_key_is_the_one_that_counts() {
        let repeats = Repeats::new();
        remember(&repeats, 1, &given(1));
        remember(&repeats, 1, &given(2));
        assert_eq!(repeats.find(&key(1)).unwrap().answer, given(2).answer);
        // Not even the bytes of the first one are there.
        repeats.forget(&key(1));
        let parts = repeats.parts.iter().map(|part| part.lock().unwrap());
        assert!(
            parts
                .flat_map(|part| part.young.bytes.clone())
                .all(|byte| byte == 0)
        );
    }

    #[test]
    fn an_answer_that_is_longer_than_a_generation_pushes_nothing_out() {
        let repeats = Repeats::new();
        (0..1_000).for_each(|number| remember(&repeats, number, &given(number)));
        let longest = Given {
            answer: vec![b' '; GENERATION_BYTES_MAX].into(),
            ..given(0)
        };
        (1_000..2_000).for_each(|number| remember(&repeats, number, &longest));
        assert!(repeats.find(&key(1_000)).is_none());
        assert!((0..1_000).all(|number| repeats.find(&key(number)).is_some()));
    }

    /// Its task may come to remember it when others have read the entry, and erased or lost it.
    #[test]
    fn an_answer_is_not_remembered_behind_its_being_forgotten() {
        let ways: [fn(&Repeats); 2] = [|repeats| repeats.forget(&key(1)), Repeats::forget_all];
        for forget in ways {
            let repeats = Repeats::new();
            let before = repeats.forgotten();
            forget(&repeats);
            repeats.remember(&key(1), &given(1), before);
            assert!(repeats.find(&key(1)).is_none());
            // The next one that is recorded is remembered.
            remember(&repeats, 1, &given(1));
            assert!(repeats.find(&key(1)).is_some());
        }
    }

    #[test]
    fn keys_with_the_same_hash_are_told_apart() {
        let mut generation = Generation::default();
        generation.remember(7, &key(1), &given(1));
        assert!(generation.find(7, &key(1)).is_some());
        assert!(generation.find(7, &key(2)).is_none());
        let of_another_agent = RequestKey {
            agent: AgentId::from_bytes([8; 16]),
            ..key(1)
        };
        assert!(generation.find(7, &of_another_agent).is_none());
        generation.forget(7, &key(2));
        assert!(generation.find(7, &key(1)).is_some());
    }
}
