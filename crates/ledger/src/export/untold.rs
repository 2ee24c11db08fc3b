//! Entries without a body that nobody has told of yet. An erasure is an entry itself, and stands behind what it has erased.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde::Deserialize;

use crate::Unverified;

/// The kind of the entries that tell of erasures.
pub(super) const ERASURE_KIND: &str = "bodies_erased";
/// Entries in a block: a bit each.
const BLOCK: u64 = 4096;
const WORDS: usize = 64;
/// Blocks that are kept at most: 32 MiB, and at least 268 million entries in a row. What goes beyond stays untold,
/// which is what a verifier may say of something that it could not match.
const BLOCKS_MAX: usize = 65_536;

/// Which entries wait to be told of.
#[derive(Debug, Default)]
pub(super) struct Untold {
    blocks: BTreeMap<u64, Box<[u64; WORDS]>>,
    count: u64,
    /// The first that was not kept.
    beyond: Option<u64>,
}

/// What the body of an erasure says: the first and the last entry of each row of them.
#[derive(Deserialize)]
struct ErasureBody {
    seqs: Vec<[u64; 2]>,
}

impl Untold {
    /// Notes that an entry has no body.
    pub(super) fn note(&mut self, seq: u64) {
        self.count += 1;
        if self.blocks.len() >= BLOCKS_MAX && !self.blocks.contains_key(&(seq / BLOCK)) {
            self.beyond.get_or_insert(seq);
            return;
        }
        let block = self.blocks.entry(seq / BLOCK);
        let block = block.or_insert_with(|| Box::new([0; WORDS]));
        let (word, bit) = place(seq);
        block[word] |= 1 << bit;
    }

    /// Reads the body of an erasure, which tells of what stands before it. One that says nothing tells of nothing.
    pub(super) fn read(&mut self, body: &str, seq: u64) {
        let erasure = serde_json::from_str::<ErasureBody>(body);
        for [first, last] in erasure.into_iter().flat_map(|erasure| erasure.seqs) {
            self.tell(first..=last.min(seq - 1));
        }
    }

    /// Takes out a row of entries. It costs what is kept of them, however long the row is, and goes by words and not by
    /// entries: a file that somebody has made up may have a row in every nine bytes.
    fn tell(&mut self, seqs: RangeInclusive<u64>) {
        if seqs.is_empty() {
            return;
        }
        let (first, last) = (*seqs.start(), *seqs.end());
        let mut emptied = Vec::new();
        for (number, block) in self.blocks.range_mut(first / BLOCK..=last / BLOCK) {
            for (word, bits) in block.iter_mut().enumerate() {
                let told = *bits & within(&seqs, number * BLOCK + word as u64 * 64);
                self.count -= u64::from(told.count_ones());
                *bits ^= told;
            }
            if block.iter().all(|word| *word == 0) {
                emptied.push(*number);
            }
        }
        for number in emptied {
            self.blocks.remove(&number);
        }
    }

    /// Whether there is none. Whoever tells of an erasure stands behind it, so this is asked where nothing stands
    /// behind the entries.
    pub(super) fn check(&self) -> Result<(), Unverified> {
        let count = self.count;
        self.first()
            .map_or(Ok(()), |seq| Err(Unverified::Untold { seq, count }))
    }

    /// How many there are.
    pub(super) const fn count(&self) -> u64 {
        self.count
    }

    /// The first of them.
    fn first(&self) -> Option<u64> {
        let kept = self.blocks.iter().next().and_then(|(number, block)| {
            let word = block.iter().position(|word| *word != 0)?;
            Some(number * BLOCK + word as u64 * 64 + u64::from(block[word].trailing_zeros()))
        });
        kept.into_iter().chain(self.beyond).min()
    }
}

/// Word and bit of an entry in its block.
const fn place(seq: u64) -> (usize, u32) {
    let at = seq % BLOCK;
    ((at / 64) as usize, (at % 64) as u32)
}

/// The bits of the entries of a row in the word that begins with this entry.
fn within(seqs: &RangeInclusive<u64>, start: u64) -> u64 {
    let (low, high) = (start.max(*seqs.start()), (start + 63).min(*seqs.end()));
    if low > high {
        return 0;
    }
    (u64::MAX >> (63 - (high - low))) << (low - start)
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, Untold, WORDS, place};

    fn noted(seqs: &[u64]) -> Untold {
        let mut untold = Untold::default();
        for seq in seqs {
            untold.note(*seq);
        }
        untold
    }

    #[test]
    fn what_is_told_is_not_untold_any_more() {
        let mut untold = noted(&[3, 64, BLOCK, BLOCK + 1, 9 * BLOCK]);
        assert_eq!((untold.count(), untold.first()), (5, Some(3)));
        untold.read("{\"seqs\":[[1,63],[4096,4096]]}", 100_000);
        assert_eq!((untold.count(), untold.first()), (3, Some(64)));
        untold.read("{\"seqs\":[[1,18446744073709551615]]}", 9 * BLOCK + 1);
        assert_eq!((untold.count(), untold.first()), (0, None));
        assert!(untold.blocks.is_empty());
    }

    /// The entries that are kept, bit by bit.
    fn kept(untold: &Untold) -> Vec<u64> {
        let blocks = untold.blocks.iter();
        let entries = blocks.flat_map(|(number, block)| {
            let is_kept = move |at: &u64| {
                let (word, bit) = place(*at);
                block[word] >> bit & 1 == 1
            };
            (0..BLOCK).filter(is_kept).map(move |at| number * BLOCK + at)
        });
        entries.collect()
    }

    #[test]
    fn a_row_takes_out_its_own_entries_wherever_it_begins_and_ends_and_no_others() {
        let edges = [0, 64, BLOCK - 64, BLOCK, u64::MAX - 63];
        let edges = edges
            .into_iter()
            .flat_map(|edge| [edge.saturating_sub(1), edge, edge + 1]);
        let edges: Vec<u64> = edges.chain([u64::MAX]).collect();
        let full = || {
            let blocks = [0, 1, u64::MAX / BLOCK];
            Untold {
                blocks: blocks.map(|number| (number, Box::new([u64::MAX; WORDS]))).into(),
                count: 3 * BLOCK,
                beyond: None,
            }
        };
        let all = kept(&full());
        for first in &edges {
            for last in &edges {
                let mut untold = full();
                let row = *first..=*last;
                let left = all.iter().copied().filter(|seq| !row.contains(seq));
                let left: Vec<u64> = left.collect();
                untold.tell(row);
                assert_eq!(untold.count(), left.len() as u64, "{first} to {last}");
                assert!(kept(&untold) == left, "{first} to {last}");
            }
        }
    }

    #[test]
    fn nothing_is_told_by_what_is_no_erasure_or_comes_before() {
        let mut untold = noted(&[8]);
        for body in [
            "{}",
            "null",
            "{\"seqs\":[[9,8]]}",
            "{\"seqs\":[[8]]}",
            "{\"seqs\":7}",
        ] {
            untold.read(body, 9);
        }
        untold.read("{\"seqs\":[[1,20]]}", 8);
        assert_eq!(untold.count(), 1);
    }
}
