//! Sets of places in a block: a bit each, or the places themselves where there are few.

use super::block::BLOCK;

/// The words of 64 bits that a set has.
const WORDS: u16 = 32;
/// The bytes of a set that is written as bits.
const BITS_BYTES: usize = WORDS as usize * 8;
const _: () = assert!(WORDS as u64 * 64 == BLOCK, "a bit for each place");

/// Places in a block, from 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Places([u64; WORDS as usize]);

impl Places {
    /// Every place.
    pub const ALL: Self = Self([u64::MAX; WORDS as usize]);

    /// A set as it is kept. `places` go up, and each is below [`BLOCK`].
    ///
    /// Two bytes for each of few places, or a bit for each place there is: which one it is, the length tells.
    pub fn encode(places: &[u16]) -> Vec<u8> {
        debug_assert!(places.is_sorted(), "the places of a list go up");
        if places.len() * 2 < BITS_BYTES {
            return places.iter().flat_map(|place| place.to_le_bytes()).collect();
        }
        let mut bytes = vec![0; BITS_BYTES];
        for place in places {
            bytes[usize::from(place / 8)] |= 1 << (place % 8);
        }
        bytes
    }

    /// A set as it was kept; `None` if these bytes are no set.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut words = [0_u64; WORDS as usize];
        if bytes.len() == BITS_BYTES {
            for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
                *word = u64::from_le_bytes(bytes.try_into().ok()?);
            }
            return Some(Self(words));
        }
        let places = bytes
            .chunks(2)
            .map(|two| Some(u16::from_le_bytes(two.try_into().ok()?)));
        for place in places {
            let place = usize::from(place?);
            *words.get_mut(place / 64)? |= 1 << (place % 64);
        }
        Some(Self(words))
    }

    /// What is in both.
    pub fn keep(&mut self, other: &Self) {
        for (word, other) in self.0.iter_mut().zip(other.0) {
            *word &= other;
        }
    }

    /// The places, from the last to the first.
    pub fn descending(&self) -> impl Iterator<Item = u64> {
        let places = (0..WORDS * 64).rev();
        let is_in = |place: &u16| self.0[usize::from(place / 64)] >> (place % 64) & 1 == 1;
        places.filter(is_in).map(u64::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn back(places: &[u16]) -> Vec<u64> {
        Places::decode(&Places::encode(places))
            .unwrap()
            .descending()
            .collect()
    }

    #[test]
    fn a_set_is_read_back_however_many_are_in_it() {
        for step in [1_u16, 2, 15, 16, 17, 2047] {
            let places: Vec<u16> = (0..2048).step_by(usize::from(step)).collect();
            let expected: Vec<u64> = places.iter().rev().map(|place| u64::from(*place)).collect();
            assert_eq!(back(&places), expected, "every {step}");
        }
        assert!(back(&[]).is_empty());
        assert_eq!(Places::ALL.descending().count(), 2048);
    }

    #[test]
    fn few_places_are_short_and_many_are_bounded() {
        assert_eq!(Places::encode(&[7]).len(), 2);
        let all: Vec<u16> = (0..2048).collect();
        assert_eq!(Places::encode(&all).len(), 256);
        // As many as would be as long either way: the length has to tell which one it is.
        assert_eq!(back(&all[..128]).len(), 128);
        assert_eq!(back(&all[..127]).len(), 127);
    }

    #[test]
    fn what_is_in_both_is_kept() {
        let mut places = Places::decode(&Places::encode(&[1, 2, 3, 2047])).unwrap();
        places.keep(&Places::decode(&Places::encode(&[0, 2, 2047])).unwrap());
        assert_eq!(places.descending().collect::<Vec<_>>(), [2047, 2]);
    }

    #[test]
    fn bytes_that_are_no_set_are_refused() {
        assert_eq!(Places::decode(&[1]), None);
        assert_eq!(Places::decode(&[0, 8]), None, "a place beyond the block");
        assert_eq!(Places::decode(&[0; 257]), None);
    }
}
