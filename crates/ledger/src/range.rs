//! Which entries are asked for. A range without entries is an error, not something that verifies.

use std::fmt;

/// Entries `from` to `to`, both included. There is at least one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRange {
    from: u64,
    to: u64,
}

/// A range without entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum InvalidRange {
    /// Entries are counted from 1.
    #[error("a range begins at entry 1 or later, not at 0")]
    Zero,
    /// It ends before it begins.
    #[error("a range that begins at entry {from} cannot end at entry {to}")]
    Inverted {
        /// Where it begins.
        from: u64,
        /// Where it ends.
        to: u64,
    },
}

impl EntryRange {
    /// A range.
    ///
    /// # Errors
    /// It has no entries.
    pub const fn new(from: u64, to: u64) -> Result<Self, InvalidRange> {
        if from == 0 {
            return Err(InvalidRange::Zero);
        }
        if from > to {
            return Err(InvalidRange::Inverted { from, to });
        }
        Ok(Self { from, to })
    }

    /// `seq` of the first entry.
    pub const fn from(self) -> u64 {
        self.from
    }

    /// `seq` of the last entry.
    pub const fn to(self) -> u64 {
        self.to
    }
}

impl fmt::Display for EntryRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} to {}", self.from, self.to)
    }
}

#[cfg(test)]
mod tests {
    use super::{EntryRange, InvalidRange};

    #[test]
    fn a_range_has_an_entry() {
        let range = EntryRange::new(2, 2).unwrap();
        assert_eq!(
            (range.from(), range.to(), range.to_string()),
            (2, 2, "2 to 2".to_owned())
        );
        assert_eq!(EntryRange::new(0, 5), Err(InvalidRange::Zero));
        let inverted = InvalidRange::Inverted { from: 3, to: 2 };
        assert_eq!(EntryRange::new(3, 2), Err(inverted));
        assert_eq!(
            inverted.to_string(),
            "a range that begins at entry 3 cannot end at entry 2"
        );
    }
}
