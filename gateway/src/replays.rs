//! Recent answers by request id: a repeated ask is answered without judging or recording anything again.
//!
//! This is a cache of what the ledger holds. An ask that is not found here is looked up by the sequencer, in the commit.
//!
//! It forgets a part of itself at a time, so whoever remembers the answer that is one too many waits for a few hundred others to be
//! dropped and not for tens of thousands, which is milliseconds.

use bytes::Bytes;
use canon::Digest;
use model::Verdict;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};
use store::RequestKey;

/// Parts, each with a lock of its own. A key is always in the same one.
const PARTS: usize = 64;
/// Answers in each of the two generations of a part. When the young one is full it becomes the old one, which is dropped.
const GENERATION_MAX: usize = 256;

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
pub struct Replays {
    hasher: RandomState,
    /// Each is held for one look-up at a time and never across an `await`.
    parts: [Mutex<Generations>; PARTS],
}

#[derive(Default)]
struct Generations {
    young: HashMap<RequestKey, Given>,
    old: HashMap<RequestKey, Given>,
}

impl Default for Replays {
    fn default() -> Self {
        Self::new()
    }
}

impl Replays {
    /// No answers yet.
    pub fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            parts: std::array::from_fn(|_| Mutex::default()),
        }
    }

    /// What was answered under this key.
    pub fn find(&self, key: &RequestKey) -> Option<Given> {
        let part = self.part(key);
        part.young.get(key).or_else(|| part.old.get(key)).cloned()
    }

    /// Forgets an answer: what it said was erased.
    pub fn forget(&self, key: &RequestKey) {
        let mut part = self.part(key);
        part.young.remove(key);
        part.old.remove(key);
    }

    /// Remembers an answer that is on disk.
    pub fn remember(&self, key: RequestKey, given: Given) {
        let mut part = self.part(&key);
        let forgotten = (part.young.len() >= GENERATION_MAX).then(|| {
            // As large as it will be: growing would hash every key in it again and again.
            let full = std::mem::replace(&mut part.young, HashMap::with_capacity(GENERATION_MAX));
            std::mem::replace(&mut part.old, full)
        });
        part.young.insert(key, given);
        drop(part);
        // It takes longer than all the rest, and nobody else waits for it.
        drop(forgotten);
    }

    fn part(&self, key: &RequestKey) -> MutexGuard<'_, Generations> {
        let place = usize::try_from(self.hasher.hash_one(key) % PARTS as u64)
            .expect("it is less than the number of parts");
        self.parts[place].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{AgentId, Name, TenantId};

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
            answer: Bytes::from(number.to_string()),
        }
    }

    #[test]
    fn the_last_answers_are_remembered_and_of_all_others_no_more_than_fit() {
        const ANSWERS: usize = 4 * 2 * PARTS * GENERATION_MAX;
        let replays = Replays::new();
        (0..ANSWERS).for_each(|number| replays.remember(key(number), given(number)));
        let known: Vec<_> = (0..ANSWERS)
            .filter_map(|number| Some((number, replays.find(&key(number))?)))
            .collect();
        assert!(
            known
                .iter()
                .all(|(number, given)| given.answer == number.to_string())
        );
        assert!(known.len() <= 2 * PARTS * GENERATION_MAX, "{}", known.len());
        // Each part keeps its last generation at least, and those of the whole are spread over the parts.
        let last = ANSWERS - PARTS * GENERATION_MAX / 2;
        assert!((last..ANSWERS).all(|number| replays.find(&key(number)).is_some()));
    }

    #[test]
    fn what_is_forgotten_is_in_no_generation() {
        let replays = Replays::new();
        (0..3 * PARTS * GENERATION_MAX / 2).for_each(|number| replays.remember(key(number), given(number)));
        for number in 0..3 * PARTS * GENERATION_MAX / 2 {
            replays.forget(&key(number));
            assert!(replays.find(&key(number)).is_none());
        }
    }
}
