//! A stretch of a ledger: from one `seq` to another, both included.

use crate::http::{Code, Refusal};
use serde::Deserialize;
use std::num::NonZeroU64;
use std::ops::RangeInclusive;

/// A stretch as a caller names it, in a query or in a body. What is absent is the beginning and the head.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    from_seq: Option<NonZeroU64>,
    to_seq: Option<NonZeroU64>,
}

impl Range {
    /// From one entry to another.
    pub const fn new(from_seq: Option<NonZeroU64>, to_seq: Option<NonZeroU64>) -> Self {
        Self { from_seq, to_seq }
    }

    /// The part of it that a ledger has whose last entry is `head_seq`. A stretch without entries is refused: there is
    /// nothing that could be said about it, least of all that it is right.
    pub fn within(self, head_seq: u64) -> Result<RangeInclusive<u64>, Refusal> {
        let from = self.from_seq.map_or(1, NonZeroU64::get);
        let to = self.to_seq.map_or(head_seq, NonZeroU64::get);
        if head_seq == 0 {
            return Err(empty("the ledger has no entries yet".to_owned()));
        }
        if from > head_seq {
            return Err(empty(format!(
                "`from_seq` is {from}, and the ledger ends at seq {head_seq}"
            )));
        }
        if from > to {
            return Err(empty(format!(
                "`from_seq` is {from}, which is after `to_seq`, {to}"
            )));
        }
        Ok(from..=to.min(head_seq))
    }

    /// All of it, wherever the ledger ends: without a last entry what stands behind the end, too.
    pub fn whole(self) -> RangeInclusive<u64> {
        let from = self.from_seq.map_or(1, NonZeroU64::get);
        from..=self.to_seq.map_or(u64::MAX, NonZeroU64::get)
    }

    /// Whether a ledger that ends here has nothing of it although the caller has named its end, and so expects it to be there.
    pub fn is_missing(self, head_seq: u64) -> bool {
        let from = self.from_seq.map_or(1, NonZeroU64::get);
        self.begins_behind(head_seq) && self.expected_end().is_some_and(|to| from <= to)
    }

    /// Whether a ledger that ends here has nothing of it.
    pub fn begins_behind(self, head_seq: u64) -> bool {
        self.from_seq.map_or(1, NonZeroU64::get) > head_seq
    }

    /// The last entry that the caller expects, if it named one.
    pub fn expected_end(self) -> Option<u64> {
        self.to_seq.map(NonZeroU64::get)
    }
}

fn empty(detail: String) -> Refusal {
    Refusal::new(Code::EmptyRange, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(from: u64, to: u64) -> Range {
        Range {
            from_seq: NonZeroU64::new(from),
            to_seq: NonZeroU64::new(to),
        }
    }

    #[test]
    fn what_is_absent_is_the_beginning_and_the_head() {
        assert_eq!(range(0, 0).within(7).unwrap(), 1..=7);
        assert_eq!(range(3, 0).within(7).unwrap(), 3..=7);
        assert_eq!(range(0, 3).within(7).unwrap(), 1..=3);
        assert_eq!(range(7, 7).within(7).unwrap(), 7..=7);
    }

    #[test]
    fn without_an_end_what_stands_behind_the_ledger_is_in_it() {
        assert_eq!(range(0, 0).whole(), 1..=u64::MAX);
        assert_eq!(range(3, 9).whole(), 3..=9);
    }

    #[test]
    fn a_range_ends_at_the_head() {
        assert_eq!(range(2, 9).within(7).unwrap(), 2..=7);
        assert_eq!(range(2, 9).expected_end(), Some(9));
    }

    #[test]
    fn a_range_is_missing_whose_end_is_named_and_whose_beginning_is_not_there() {
        for (from, to, head) in [(8, 8, 7), (8, 9, 7), (0, 1, 0), (1, 3, 0)] {
            assert!(range(from, to).is_missing(head), "{from} {to} {head}");
        }
        for (from, to, head) in [(8, 0, 7), (9, 8, 7), (7, 9, 7), (0, 9, 7), (0, 0, 0)] {
            assert!(!range(from, to).is_missing(head), "{from} {to} {head}");
        }
    }

    #[test]
    fn a_range_without_entries_is_refused() {
        for (from, to, head) in [(0, 0, 0), (1, 1, 0), (5, 3, 7), (8, 0, 7), (8, 9, 7)] {
            assert_eq!(
                range(from, to).within(head).unwrap_err().code(),
                Code::EmptyRange,
                "{from} {to} {head}"
            );
        }
    }
}
