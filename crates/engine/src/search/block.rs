//! Blocks of the ledger, and the lists of a block.
//!
//! A block is so many entries in a row. It is put into an index once all of them are there, so what an index says of a block
//! never has to be changed, and whatever is not in a block yet is few enough to be looked at one by one.

use super::places::Places;
use super::terms;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use store::{Posting, StoredDecision};

/// Entries in a block: few enough to be read in some milliseconds, and enough that a million of them are a few hundred
/// blocks.
pub const BLOCK: u64 = 2_048;

/// Which block an entry is in. `seq` begins at 1.
pub const fn block_of(seq: u64) -> u64 {
    seq.saturating_sub(1) / BLOCK
}

/// The entries of a block.
pub const fn seqs_of(block: u64) -> RangeInclusive<u64> {
    let first = block.saturating_mul(BLOCK).saturating_add(1);
    first..=first.saturating_add(BLOCK - 1)
}

/// The lists of a block, as its decisions are read.
#[derive(Default)]
pub struct Lists(BTreeMap<u64, Vec<u16>>);

impl Lists {
    /// Adds a decision. Its entry is in the block.
    pub fn add(&mut self, decision: &StoredDecision) {
        let place = decision.seq.saturating_sub(1) % BLOCK;
        let place = u16::try_from(place).expect("a place in a block fits in 16 bits");
        for term in terms::of(decision) {
            self.0.entry(term).or_default().push(place);
        }
    }

    /// A list for each term, as it is kept.
    pub fn finish(self) -> Vec<Posting> {
        let posting = |(term, mut places): (u64, Vec<u16>)| {
            places.sort_unstable();
            places.dedup();
            Posting {
                term,
                places: Places::encode(&places),
            }
        };
        self.0.into_iter().map(posting).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_follow_each_other_without_a_gap() {
        assert_eq!(seqs_of(0), 1..=2048);
        assert_eq!(seqs_of(1), 2049..=4096);
        for seq in [1, 2048, 2049, 4096, 1 << 39] {
            assert!(seqs_of(block_of(seq)).contains(&seq), "{seq}");
        }
    }
}
