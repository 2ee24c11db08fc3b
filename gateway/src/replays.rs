//! Recent answers by request id: a repeated ask is answered without judging or recording anything again.
//!
//! This is a cache of what the ledger holds. An ask that is not found here is looked up by the sequencer, in the commit.

use bytes::Bytes;
use canon::Digest;
use model::Verdict;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use store::RequestKey;

/// Answers in each of two generations. When the young one is full it becomes the old one, which is dropped.
const GENERATION_MAX: usize = 16_384;

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
    /// Held for one look-up at a time and never across an `await`.
    generations: Mutex<Generations>,
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
            generations: Mutex::default(),
        }
    }

    /// What was answered under this key.
    pub fn find(&self, key: &RequestKey) -> Option<Given> {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations
            .young
            .get(key)
            .or_else(|| generations.old.get(key))
            .cloned()
    }

    /// Forgets an answer: what it said was erased.
    pub fn forget(&self, key: &RequestKey) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        generations.young.remove(key);
        generations.old.remove(key);
    }

    /// Remembers an answer that is on disk.
    pub fn remember(&self, key: RequestKey, given: Given) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= GENERATION_MAX {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(key, given);
    }
}
