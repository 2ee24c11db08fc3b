//! Bodies that are on their way, and long asks that are not answered yet: how many bytes of them the gateway keeps, of
//! all together.
//!
//! Each has bounds of its own, and whoever has a thousand connections may have a thousand of them. So one that is
//! waited for takes room for all that it may become, and gives it back when it is there or given up. Nearly all bodies
//! are there at once, and take none. What agents ask takes room for its text until it is answered if that is long: what
//! it was read into and what is to be recorded of it are as long again, and as many as have places may wait. That is
//! other room: or a few long asks of one agent would keep its tenant from sending short ones.

use super::json::SET_BYTES_MAX;
use super::refusal::Refusal;
use super::room::{Beyond, Room, Taken};
use crate::fairness_key::FairnessKey;

/// There is room for so many of the largest bodies: 64 MiB, unless bodies may be longer than a set of policies.
const LARGEST_MAX: usize = 16;

/// The room. Clones of it are the same room.
#[derive(Debug, Clone)]
pub struct Arrivals {
    /// For what is on its way.
    arriving: Room,
    /// As much again, for what is not answered yet.
    kept: Room,
}

impl Arrivals {
    /// Room for bodies that have at most so many bytes, and for sets of policies.
    pub fn new(body_bytes_max: usize) -> Self {
        let largest = body_bytes_max.max(SET_BYTES_MAX);
        let room = || Room::new(LARGEST_MAX.saturating_mul(largest));
        Self {
            arriving: room(),
            kept: room(),
        }
    }

    /// Room for a body of so many bytes, which is sent by one of these, or by somebody else.
    pub(super) fn enter(&self, key: Option<FairnessKey>, bytes: usize) -> Result<Taken, Refusal> {
        let taken = self.arriving.take(key, bytes, Beyond::Nobody);
        taken.ok_or_else(|| Refusal::overloaded_by("too many bodies are on their way; try again later"))
    }

    /// Room for so many bytes of a request until it is answered, which is sent by one of these, or by somebody else.
    pub(super) fn keep(&self, key: Option<FairnessKey>, bytes: usize) -> Result<Taken, Refusal> {
        let taken = self.kept.take(key, bytes, Beyond::Nobody);
        taken.ok_or_else(|| {
            Refusal::overloaded_by("too many long requests are not answered yet; try again later")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Code;
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
        assert!(arrivals.arriving.is_empty());
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
    fn what_is_kept_takes_no_room_from_what_is_on_its_way() {
        let arrivals = Arrivals::new(1);
        let kept: Vec<_> = std::iter::from_fn(|| arrivals.keep(A, SET_BYTES_MAX).ok()).collect();
        assert_eq!(kept.len(), 8);
        let Err(refusal) = arrivals.keep(A, 1) else {
            panic!("there is room for more than half")
        };
        assert_eq!(refusal.code(), Code::Overloaded);
        assert_eq!(fill(&arrivals, A, SET_BYTES_MAX).len(), 8);
        drop(kept);
        assert!(arrivals.kept.is_empty());
    }

    #[test]
    fn there_is_room_for_bodies_longer_than_a_set_of_policies() {
        let arrivals = Arrivals::new(10 * SET_BYTES_MAX);
        assert_eq!(fill(&arrivals, A, 10 * SET_BYTES_MAX).len(), 8);
    }
}
