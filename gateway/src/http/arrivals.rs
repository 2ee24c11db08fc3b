//! Bodies that are on their way: how many bytes of them the gateway keeps, of all together.
//!
//! Each has bounds of its own, and whoever has a thousand connections may have a thousand of them. So one that is
//! waited for takes room for all that it may become, and gives it back when it is there or given up. Nearly all bodies
//! are there at once, and take none.
//!
//! The agents of a tenant may have as much as they leave, and so may its people, as of the places for asks: whoever
//! sends much and slowly has half of it.

use super::json::SET_BYTES_MAX;
use super::refusal::{Code, Refusal};
use crate::fairness_key::FairnessKey;
use crate::locks::lock;
use axum::http::{HeaderValue, header};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// There is room for so many of the largest bodies: 64 MiB, unless bodies may be longer than a set of policies.
const LARGEST_MAX: usize = 16;

/// The room. Clones of it are the same room.
#[derive(Debug, Clone)]
pub struct Arrivals(Arc<Mutex<Room>>);

#[derive(Debug)]
struct Room {
    bytes_max: usize,
    taken: usize,
    /// How many bytes those of each key have, and those without a key. Who has none is not here.
    shares: HashMap<Option<FairnessKey>, usize>,
}

/// The room of one body. It is given back when it is dropped.
#[must_use = "room is had as long as it is held"]
pub struct Taken {
    arrivals: Arrivals,
    key: Option<FairnessKey>,
    bytes: usize,
}

impl Arrivals {
    /// Room for bodies that have at most so many bytes, and for sets of policies.
    pub fn new(body_bytes_max: usize) -> Self {
        let largest = body_bytes_max.max(SET_BYTES_MAX);
        Self(Arc::new(Mutex::new(Room {
            bytes_max: LARGEST_MAX.saturating_mul(largest),
            taken: 0,
            shares: HashMap::new(),
        })))
    }

    /// Room for a body of so many bytes, which is sent by one of these, or by somebody else.
    pub(super) fn enter(&self, key: Option<FairnessKey>, bytes: usize) -> Result<Taken, Refusal> {
        let mut room = self.lock();
        if !room.has(key, bytes) {
            let refusal = Refusal::new(
                Code::Overloaded,
                "too many bodies are on their way; try again later",
            );
            return Err(refusal.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        room.taken += bytes;
        *room.shares.entry(key).or_default() += bytes;
        Ok(Taken {
            arrivals: self.clone(),
            key,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        lock(&self.0)
    }
}

impl Room {
    /// Whether those of this key may have so many bytes more. That leaves at least as many as they then have.
    fn has(&self, key: Option<FairnessKey>, bytes: usize) -> bool {
        let share = self.shares.get(&key).copied().unwrap_or_default();
        let left = self.bytes_max - self.taken;
        bytes <= left.saturating_sub(share)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut room = self.arrivals.lock();
        room.taken -= self.bytes;
        if let Some(share) = room.shares.get_mut(&self.key) {
            *share -= self.bytes;
            if *share == 0 {
                room.shares.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;

    const A: Option<FairnessKey> = Some(FairnessKey::agents_of(TenantId::from_bytes([1; 16])));
    /// Who has to stop them.
    const B: Option<FairnessKey> = Some(FairnessKey::people_of(TenantId::from_bytes([1; 16])));

    /// Takes as much as those of this key get, in bodies of this length.
    fn fill(arrivals: &Arrivals, key: Option<FairnessKey>, bytes: usize) -> Vec<Taken> {
        std::iter::from_fn(|| arrivals.enter(key, bytes).ok()).collect()
    }

    #[test]
    fn a_party_has_half_of_the_room_and_leaves_some_to_the_others() {
        let arrivals = Arrivals::new(1);
        let of_a = fill(&arrivals, A, SET_BYTES_MAX);
        assert_eq!(of_a.len(), 8);
        assert!(fill(&arrivals, A, 1).is_empty());
        let of_b = fill(&arrivals, B, SET_BYTES_MAX);
        assert_eq!(of_b.len(), 4);
        let of_none = fill(&arrivals, None, SET_BYTES_MAX);
        assert_eq!(of_none.len(), 2);
        drop((of_a, of_b, of_none));
        let room = arrivals.lock();
        assert_eq!((room.taken, room.shares.len()), (0, 0));
    }

    #[test]
    fn who_finds_no_room_is_told_to_come_again() {
        let arrivals = Arrivals::new(1);
        let _of_a = fill(&arrivals, A, SET_BYTES_MAX);
        let Err(refusal) = arrivals.enter(A, 1) else {
            panic!("there is room for more than half")
        };
        assert_eq!(refusal.code(), Code::Overloaded);
    }

    #[test]
    fn there_is_room_for_bodies_longer_than_a_set_of_policies() {
        let arrivals = Arrivals::new(10 * SET_BYTES_MAX);
        assert_eq!(fill(&arrivals, A, 10 * SET_BYTES_MAX).len(), 8);
    }
}
