//! Says of most keys that are not in a run that they are not, without reading it.
//!
//! A Bloom filter in blocks of one cache line, with one bit in each of the line's eight words. Keys are digests, so they are spread
//! evenly as they are: their high bits choose the block, which means that a sorted run fills it from front to back.

/// Bits a key. With twelve, one key in two hundred that is not there seems to be (the test below counts).
const BITS_A_KEY: usize = 12;
/// 64-bit words a block: a cache line.
const WORDS: usize = 8;
/// What a key is multiplied by for each word, so that the bits in them have nothing to do with one another: odd numbers, as
/// splitmix64 makes them.
const FACTORS: [u64; WORDS] = factors();

/// The filter of one run.
#[derive(Debug)]
pub(crate) struct Filter {
    blocks: Box<[Block]>,
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Block([u64; WORDS]);

impl Filter {
    /// A filter with room for so many keys.
    pub(crate) fn with_room_for(keys: usize) -> Self {
        let blocks = (keys * BITS_A_KEY).div_ceil(WORDS * 64).max(1);
        Self {
            blocks: vec![Block::default(); blocks].into(),
        }
    }

    /// Puts a key in.
    pub(crate) fn add(&mut self, key: u64) {
        let place = self.place(key);
        for (word, bit) in self.blocks[place].0.iter_mut().zip(bits(key)) {
            *word |= bit;
        }
    }

    /// Whether a key may have been put in. One that was is never denied.
    pub(crate) fn may_have(&self, key: u64) -> bool {
        let words = &self.blocks[self.place(key)].0;
        words.iter().zip(bits(key)).all(|(word, bit)| word & bit != 0)
    }

    fn place(&self, key: u64) -> usize {
        let scaled = u128::from(key) * self.blocks.len() as u128;
        usize::try_from(scaled >> 64).expect("it is less than the number of blocks")
    }
}

/// The bit of a key in each word of its block.
fn bits(key: u64) -> impl Iterator<Item = u64> {
    FACTORS
        .iter()
        .map(move |factor| 1 << (key.wrapping_mul(*factor) >> 58))
}

const fn factors() -> [u64; WORDS] {
    let mut factors = [0; WORDS];
    let mut word = 0;
    while word < WORDS {
        factors[word] = scatter(word as u64 + 1) | 1;
        word += 1;
    }
    factors
}

/// splitmix64.
const fn scatter(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_put_in_is_never_denied() {
        for keys in [0, 1, 2, 43, 10_000] {
            let mut filter = Filter::with_room_for(keys);
            let keys = (0..keys as u64).map(scatter).chain([0, u64::MAX]);
            let keys: Vec<_> = keys.collect();
            for key in &keys {
                filter.add(*key);
            }
            assert!(keys.iter().all(|key| filter.may_have(*key)));
        }
    }

    #[test]
    fn few_of_those_that_were_not_put_in_seem_to_be_there() {
        const KEYS: u64 = 100_000;
        let mut filter = Filter::with_room_for(100_000);
        (0..KEYS).for_each(|number| filter.add(scatter(number)));
        let wrong = (KEYS..2 * KEYS).filter(|number| filter.may_have(scatter(*number)));
        let wrong = wrong.count();
        assert!(wrong < 700, "{wrong} of 100,000");
    }
}
