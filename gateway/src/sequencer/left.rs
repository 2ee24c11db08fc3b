//! Where this gateway has left the chains that it writes, so that it need not ask when it is the only one who does.
//!
//! What is remembered is a guess: storage refuses a batch that is made from a place where its tenant does not stand any
//! more. So a wrong one costs a round trip and never an entry.

use model::TenantId;
use std::collections::HashMap;
use store::Place;

/// How many tenants are remembered. With more than these at once every batch has many of them and needs a turn anyway.
const TENANTS_MAX: usize = 1_024;

/// Where a tenant was left.
struct Footprint {
    place: Place,
    /// Whether nobody else had written to it since the time before. Only then is it worth guessing that it is so again: where
    /// several gateways write in turn, most guesses would be wrong.
    is_ours: bool,
}

/// Where tenants were left.
#[derive(Default)]
pub(super) struct Left(HashMap<TenantId, Footprint>);

impl Left {
    /// Where these tenants stand if nobody else has written to them; none if that is not to be expected.
    pub(super) fn places(&self, tenants: &[TenantId]) -> Option<HashMap<TenantId, Place>> {
        let place = |tenant: &TenantId| {
            let left = self.0.get(tenant).filter(|left| left.is_ours)?;
            Some((*tenant, left.place.clone()))
        };
        tenants.iter().map(place).collect()
    }

    /// Compares where tenants were left with where they turned out to stand.
    pub(super) fn compare(&mut self, tenants: &[TenantId], places: &HashMap<TenantId, Place>) {
        for tenant in tenants {
            if let Some(left) = self.0.get_mut(tenant) {
                left.is_ours = places.get(tenant) == Some(&left.place);
            }
        }
    }

    /// Notes where a committed batch leaves its tenants.
    pub(super) fn note(&mut self, tenants: &[TenantId], place: impl Fn(TenantId) -> Place) {
        if self.0.len() + tenants.len() > TENANTS_MAX {
            self.0.clear();
        }
        for tenant in tenants {
            let place = place(*tenant);
            self.0
                .entry(*tenant)
                .and_modify(|left| left.place.clone_from(&place))
                .or_insert(Footprint {
                    place,
                    is_ours: false,
                });
        }
    }

    /// Forgets tenants: nobody knows where they stand.
    pub(super) fn forget(&mut self, tenants: impl IntoIterator<Item = TenantId>) {
        for tenant in tenants {
            self.0.remove(&tenant);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: TenantId = TenantId::SYSTEM;

    fn at(seq: u64) -> HashMap<TenantId, Place> {
        let mut place = Place::GENESIS;
        place.revision = seq;
        HashMap::from([(TENANT, place)])
    }

    /// A batch was made from one place and left its tenant at another.
    fn write(left: &mut Left, from: u64, to: u64) {
        left.compare(&[TENANT], &at(from));
        left.note(&[TENANT], |tenant| at(to)[&tenant].clone());
    }

    #[test]
    fn a_place_is_guessed_when_it_was_found_as_it_was_left() {
        let mut left = Left::default();
        assert_eq!(left.places(&[TENANT]), None);
        write(&mut left, 3, 5);
        assert_eq!(left.places(&[TENANT]), None);
        write(&mut left, 5, 7);
        assert_eq!(left.places(&[TENANT]), Some(at(7)));
        assert_eq!(left.places(&[TENANT, TenantId::from_bytes([7; 16])]), None);
    }

    #[test]
    fn a_place_is_not_guessed_while_others_write_there() {
        let mut left = Left::default();
        write(&mut left, 3, 5);
        write(&mut left, 5, 7);
        write(&mut left, 9, 12);
        assert_eq!(left.places(&[TENANT]), None);
        write(&mut left, 12, 13);
        assert_eq!(left.places(&[TENANT]), Some(at(13)));
    }

    #[test]
    fn no_more_tenants_are_remembered_than_the_bound() {
        let mut left = Left::default();
        for number in 0..2 * TENANTS_MAX as u128 {
            left.note(&[TenantId::from_bytes(number.to_be_bytes())], |_| Place::GENESIS);
            assert!(left.0.len() <= TENANTS_MAX);
        }
    }
}
