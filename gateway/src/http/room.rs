//! Room for so many bytes at once, which is shared out.
//!
//! The agents of a tenant may have as much as they leave, and so may its people, as of the places for asks: whoever
//! takes much and slowly has half of it.

use crate::fairness_key::FairnessKey;
use crate::locks::lock;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// The room. Clones of it are the same room.
#[derive(Debug, Clone)]
pub struct Room(Arc<Mutex<Inside>>);

/// How much of it is taken.
#[derive(Debug)]
struct Inside {
    bytes_max: usize,
    taken: usize,
    /// How many bytes those of each key have, and those without a key. Who has none is not here.
    shares: HashMap<Option<FairnessKey>, usize>,
}

/// What somebody has of a room. It is given back when it is dropped.
#[must_use = "room is had as long as it is held"]
pub struct Taken {
    room: Room,
    key: Option<FairnessKey>,
    bytes: usize,
}

/// Who gets what there is no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beyond {
    /// Nobody.
    Nobody,
    /// Whoever has nothing yet.
    WhoeverHasNone,
    /// Everybody. It counts all the same.
    Everybody,
}

impl Room {
    /// Room for so many bytes.
    pub(super) fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Mutex::new(Inside {
            bytes_max,
            taken: 0,
            shares: HashMap::new(),
        })))
    }

    /// Room for so many bytes of these, or of somebody else; `None` if they get none.
    pub(super) fn take(&self, key: Option<FairnessKey>, bytes: usize, beyond: Beyond) -> Option<Taken> {
        let mut inside = self.lock();
        if !inside.gives(key, bytes, beyond) {
            return None;
        }
        inside.taken += bytes;
        *inside.shares.entry(key).or_default() += bytes;
        Some(Taken {
            room: self.clone(),
            key,
            bytes,
        })
    }

    /// Whether nobody has anything.
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let inside = self.lock();
        inside.taken == 0 && inside.shares.is_empty()
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        lock(&self.0)
    }
}

impl Inside {
    /// Whether those of this key get so many bytes more. That leaves at least as many as they then have, unless it is
    /// beyond what there is.
    fn gives(&self, key: Option<FairnessKey>, bytes: usize, beyond: Beyond) -> bool {
        let share = self.shares.get(&key).copied().unwrap_or_default();
        let left = self.bytes_max.saturating_sub(self.taken);
        let is_beyond = bytes > left.saturating_sub(share);
        match beyond {
            Beyond::Nobody => !is_beyond,
            Beyond::WhoeverHasNone => !is_beyond || share == 0,
            Beyond::Everybody => true,
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut inside = self.room.lock();
        inside.taken -= self.bytes;
        if let Some(share) = inside.shares.get_mut(&self.key) {
            *share -= self.bytes;
            if *share == 0 {
                inside.shares.remove(&self.key);
            }
        }
    }
}
