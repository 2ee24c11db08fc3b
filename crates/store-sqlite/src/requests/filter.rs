//! Says of most keys that are not in a run that they are not, without reading it.
//!
//! A Bloom filter in blocks of one cache line, with one bit in each of the line's eight words. Keys are digests, so
//! they are spread evenly as they are: their high bits choose the block, which means that a sorted run fills it from
//! front to back.
//!
//! The filters of large runs are in files, because memory would grow with every request that was ever answered. Such a
//! file has no name and ends with the process, so nothing of it has to be trusted later, and nothing that was erased is
//! found in it.

mod window;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use window::Window;

/// Bits a key. With twelve, one key in two hundred that is not there seems to be (the test below counts).
const BITS_A_KEY: usize = 12;
/// 64-bit words a block: a cache line.
const WORDS: usize = 8;
/// What a key is multiplied by for each word, so that the bits in them have nothing to do with one another: odd numbers, as
/// splitmix64 makes them.
const FACTORS: [u64; WORDS] = factors();

/// Bytes a block: a cache line.
const BLOCK_BYTES: usize = WORDS * 8;

/// The filter of one run.
#[derive(Debug)]
pub(crate) struct Filter {
    /// How many blocks there are.
    count: usize,
    blocks: Blocks,
}

/// Where the blocks are.
#[derive(Debug)]
enum Blocks {
    Memory(Box<[Block]>),
    File(File),
}

#[derive(Debug, Clone, Copy, Default)]
#[repr(align(64))]
struct Block([u64; WORDS]);

impl Filter {
    /// Whether a key may have been put in. One that was is never denied: a file that cannot be read denies nothing.
    pub(crate) fn may_have(&self, key: u64) -> bool {
        let place = place(key, self.count);
        match &self.blocks {
            Blocks::Memory(blocks) => blocks[place].may_have(key),
            Blocks::File(file) => {
                let mut bytes = [0; BLOCK_BYTES];
                let read = file.read_exact_at(&mut bytes, offset(place));
                read.is_err() || Block::from_bytes(&bytes).may_have(key)
            }
        }
    }
}

/// A filter that is being filled. What goes wrong with its file is told at the [end](Self::finish).
#[derive(Debug)]
pub(crate) struct FilterBuilder {
    /// How many blocks there are.
    count: usize,
    filling: Filling,
}

#[derive(Debug)]
enum Filling {
    Memory(Box<[Block]>),
    File(Window),
}

impl FilterBuilder {
    /// A filter in memory, with room for so many keys.
    pub(crate) fn in_memory(keys: usize) -> Self {
        let count = blocks_for(keys);
        Self {
            count,
            filling: Filling::Memory(vec![Block::default(); count].into()),
        }
    }

    /// A filter in a file of this folder, with room for so many keys. It is in memory if the room for the file is not there.
    pub(crate) fn in_file(keys: usize, folder: &Path) -> Self {
        let count = blocks_for(keys);
        match Window::new(folder, count) {
            Ok(window) => Self {
                count,
                filling: Filling::File(window),
            },
            Err(error) => {
                tracing::warn!(
                    %error,
                    folder = %folder.display(),
                    "the filter of a run of requests takes {} MiB of memory, because it got no file: {error}",
                    (count * BLOCK_BYTES) >> 20,
                );
                Self::in_memory(keys)
            }
        }
    }

    /// Puts a key in.
    pub(crate) fn add(&mut self, key: u64) {
        let place = place(key, self.count);
        match &mut self.filling {
            Filling::Memory(blocks) => blocks[place].add(key),
            Filling::File(window) => window.change(place, |block| block.add(key)),
        }
    }

    /// The filter.
    pub(crate) fn finish(self) -> io::Result<Filter> {
        Ok(Filter {
            count: self.count,
            blocks: match self.filling {
                Filling::Memory(blocks) => Blocks::Memory(blocks),
                Filling::File(window) => Blocks::File(window.finish()?),
            },
        })
    }
}

impl Block {
    fn add(&mut self, key: u64) {
        for (word, bit) in self.0.iter_mut().zip(bits(key)) {
            *word |= bit;
        }
    }

    fn may_have(&self, key: u64) -> bool {
        self.0.iter().zip(bits(key)).all(|(word, bit)| word & bit != 0)
    }

    fn from_bytes(bytes: &[u8; BLOCK_BYTES]) -> Self {
        let mut block = Self::default();
        let (words, _) = bytes.as_chunks();
        for (word, bytes) in block.0.iter_mut().zip(words) {
            *word = u64::from_le_bytes(*bytes);
        }
        block
    }

    fn to_bytes(self) -> [u8; BLOCK_BYTES] {
        let mut bytes = [0; BLOCK_BYTES];
        let (words, _) = bytes.as_chunks_mut();
        for (bytes, word) in words.iter_mut().zip(self.0) {
            *bytes = word.to_le_bytes();
        }
        bytes
    }
}

fn blocks_for(keys: usize) -> usize {
    (keys * BITS_A_KEY).div_ceil(WORDS * 64).max(1)
}

/// The block of a key among so many.
fn place(key: u64, count: usize) -> usize {
    let scaled = u128::from(key) * count as u128;
    usize::try_from(scaled >> 64).expect("it is less than the number of blocks")
}

/// Where a block stands in its file.
const fn offset(place: usize) -> u64 {
    (place * BLOCK_BYTES) as u64
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

    /// Filters with these keys, in memory and in a file, filled in the order of the keys as those of runs are.
    fn filters(keys: &[u64]) -> [Filter; 2] {
        let mut keys = keys.to_vec();
        keys.sort_unstable();
        let folder = tempfile::tempdir().unwrap();
        let room = keys.len();
        let builders = [
            FilterBuilder::in_memory(room),
            FilterBuilder::in_file(room, folder.path()),
        ];
        let filters = builders.map(|mut builder| {
            for key in &keys {
                builder.add(*key);
            }
            builder.finish().unwrap()
        });
        assert!(matches!(filters[1].blocks, Blocks::File(_)));
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
        filters
    }

    #[test]
    fn a_key_that_was_put_in_is_never_denied() {
        for keys in [0, 1, 2, 43, 100_000] {
            let keys: Vec<_> = (0..keys).map(scatter).chain([0, u64::MAX]).collect();
            for filter in filters(&keys) {
                assert!(keys.iter().all(|key| filter.may_have(*key)));
            }
        }
    }

    #[test]
    fn few_of_those_that_were_not_put_in_seem_to_be_there() {
        const KEYS: u64 = 100_000;
        let keys: Vec<_> = (0..KEYS).map(scatter).collect();
        let wrong = filters(&keys).map(|filter| {
            let wrong = (KEYS..2 * KEYS).filter(|number| filter.may_have(scatter(*number)));
            wrong.count()
        });
        assert!(wrong[0] < 700, "{} of 100,000", wrong[0]);
        assert_eq!(wrong[0], wrong[1]);
    }

    #[test]
    fn a_filter_that_gets_no_file_is_in_memory() {
        let mut builder = FilterBuilder::in_file(9, Path::new("/proc"));
        builder.add(7);
        let filter = builder.finish().unwrap();
        assert!(matches!(filter.blocks, Blocks::Memory(_)));
        assert!(filter.may_have(7) && !filter.may_have(8));
    }

    #[test]
    fn a_filter_whose_file_cannot_be_read_denies_nothing() {
        let [_, filter] = filters(&[7]);
        assert!(!filter.may_have(8));
        let Blocks::File(file) = &filter.blocks else {
            unreachable!("it is in a file");
        };
        file.set_len(0).unwrap();
        assert!(filter.may_have(8));
    }
}
