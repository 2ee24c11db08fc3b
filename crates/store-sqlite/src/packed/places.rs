//! What can be named by its place, in the order in which it first came.
//!
//! Whoever asks chooses what a body is made of, and the thread that commits for everybody packs it. So nothing here
//! takes as long as what is known times what is looked for: a few are compared one after the other, which is the
//! quickest, and once that comes to much they stand in a table. What has which place does not depend on it.

use std::collections::HashMap;
use std::hash::Hash;

/// How many comparisons there are before there is a table. An ordinary body and its answer take some hundreds.
const COMPARED_MAX: usize = 4_096;

/// What has a place, and how it is found.
#[derive(Debug)]
pub(super) struct Places<T> {
    /// INVARIANT: no two are equal, and there are no more than a byte can tell apart.
    listed: Vec<T>,
    /// How many of these were gone through so far.
    compared: usize,
    /// The place of each, once many were gone through. Its hashes are seeded at random, so nobody makes them collide.
    table: Option<HashMap<T, u8>>,
}

impl<T> Default for Places<T> {
    fn default() -> Self {
        Self {
            listed: Vec::new(),
            compared: 0,
            table: None,
        }
    }
}

impl<T: Copy + Eq + Hash> Places<T> {
    /// All that have a place, by their places.
    pub(super) fn listed(&self) -> &[T] {
        &self.listed
    }

    /// The place of one, if it has one.
    pub(super) fn place(&mut self, wanted: &T) -> Option<u8> {
        if let Some(table) = &self.table {
            return table.get(wanted).copied();
        }
        let place = self.listed.iter().position(|known| known == wanted);
        self.compared += self.listed.len();
        if self.compared > COMPARED_MAX {
            self.table = Some(self.listed.iter().copied().zip(0..=u8::MAX).collect());
        }
        u8::try_from(place?).ok()
    }

    /// Gives one a place, unless it has one or no byte can hold another. In the latter case it is not looked for.
    pub(super) fn note(&mut self, one: T) {
        let has_room = u8::try_from(self.listed.len()).is_ok();
        if has_room && self.place(&one).is_none() {
            self.note_new(one);
        }
    }

    /// Gives one that has no place a place, unless no byte can hold another.
    pub(super) fn note_new(&mut self, one: T) {
        let Ok(place) = u8::try_from(self.listed.len()) else {
            return;
        };
        self.listed.push(one);
        if let Some(table) = &mut self.table {
            let before = table.insert(one, place);
            debug_assert_eq!(before, None, "it had no place");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::hash::Hasher;

    /// A number that counts how often it is compared.
    #[derive(Debug, Clone, Copy)]
    struct Counted<'c> {
        number: usize,
        compared: &'c Cell<usize>,
    }

    impl PartialEq for Counted<'_> {
        fn eq(&self, other: &Self) -> bool {
            self.compared.set(self.compared.get() + 1);
            self.number == other.number
        }
    }

    impl Eq for Counted<'_> {}

    impl Hash for Counted<'_> {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.number.hash(state);
        }
    }

    /// To compare each with all that are known would be millions.
    #[test]
    fn what_is_looked_for_often_is_not_compared_with_all_that_is_known() {
        for known in [10, 100, 256] {
            let compared = &Cell::new(0);
            let counted = |number| Counted { number, compared };
            let mut places = Places::default();
            for number in (0..known).chain(0..30_000) {
                places.note(counted(number % known));
            }
            for number in 0..30_000 {
                let number = number % 300;
                let place = places.place(&counted(number));
                assert_eq!(place.map(usize::from), (number < known).then_some(number));
            }
            assert!(compared.get() < 200_000, "{known}: {}", compared.get());
        }
    }

    #[test]
    fn where_no_byte_can_hold_another_place_nothing_is_looked_for() {
        let compared = &Cell::new(0);
        let counted = |number| Counted { number, compared };
        let mut places = Places::default();
        for number in 0..256 {
            places.note(counted(number));
        }
        let before = compared.get();
        for number in 0..1_000 {
            places.note(counted(number));
        }
        assert_eq!(compared.get(), before);
        assert_eq!(places.listed().len(), 256);
        assert_eq!(places.place(&counted(255)), Some(255));
        assert_eq!(places.place(&counted(256)), None);
    }
}
