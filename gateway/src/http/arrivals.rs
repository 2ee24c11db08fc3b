//! Bodies that are on their way: how many bytes of them the gateway keeps, of all together.
//!
//! Each has bounds of its own, and whoever has a thousand connections may have a thousand of them. So one that is waited for takes room for all that it
//! may become, and gives it back when it is there or given up. Nearly all bodies are there at once, and take none.
//!
//! The agents of a tenant may have as much as they leave, and so may its people, as of the places for asks: whoever sends much and slowly has half of it.

use super::json::SET_BYTES_MAX;
use super::refusal::{Code, Refusal};
use crate::locks::lock;
use crate::party::Party;
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
    /// How many bytes each party has, and whoever is of none. Who has none is not here.
    parties: HashMap<Option<Party>, usize>,
}

/// The room of one body. It is given back when it is dropped.
#[must_use = "room is had as long as it is held"]
pub struct Taken {
    arrivals: Arrivals,
    party: Option<Party>,
    bytes: usize,
}

impl Arrivals {
    /// Room for bodies that have at most so many bytes, and for sets of policies.
    pub fn new(body_bytes_max: usize) -> Self {
        let largest = body_bytes_max.max(SET_BYTES_MAX);
        Self(Arc::new(Mutex::new(Room {
            bytes_max: LARGEST_MAX.saturating_mul(largest),
            taken: 0,
            parties: HashMap::new(),
        })))
    }

    /// Room for a body of so many bytes, which is sent by one of these, or by somebody else.
    pub(super) fn enter(&self, party: Option<Party>, bytes: usize) -> Result<Taken, Refusal> {
        let mut room = self.lock();
        if !room.has(party, bytes) {
            let refusal = Refusal::new(
                Code::Overloaded,
                "too many bodies are on their way; try again later",
            );
            return Err(refusal.with_header(header::RETRY_AFTER, HeaderValue::from_static("1")));
        }
        room.taken += bytes;
        *room.parties.entry(party).or_default() += bytes;
        Ok(Taken {
            arrivals: self.clone(),
            party,
            bytes,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Room> {
        lock(&self.0)
    }
}

impl Room {
    /// Whether this party may have so many bytes more. It leaves at least as many as it then has.
    fn has(&self, party: Option<Party>, bytes: usize) -> bool {
        let of_party = self.parties.get(&party).copied().unwrap_or_default();
        let left = self.bytes_max - self.taken;
        bytes <= left.saturating_sub(of_party)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut room = self.arrivals.lock();
        room.taken -= self.bytes;
        if let Some(of_party) = room.parties.get_mut(&self.party) {
            *of_party -= self.bytes;
            if *of_party == 0 {
                room.parties.remove(&self.party);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;

    const A: Option<Party> = Some(Party::agents_of(TenantId::from_bytes([1; 16])));
    /// Who has to stop them.
    const B: Option<Party> = Some(Party::people_of(TenantId::from_bytes([1; 16])));

    /// Takes as much as this party gets, in bodies of this length.
    fn fill(arrivals: &Arrivals, party: Option<Party>, bytes: usize) -> Vec<Taken> {
        std::iter::from_fn(|| arrivals.enter(party, bytes).ok()).collect()
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
        assert_eq!((room.taken, room.parties.len()), (0, 0));
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
