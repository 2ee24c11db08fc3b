//! Lists in parts: whoever looks for little among much gets what a short look finds, and where to go on.

/// Rows that one call looks at where no index leads to those that are wanted: a few milliseconds. Somebody else's decision may be waiting
/// for the connection.
pub const LOOKED_AT_MAX: u32 = 2_000;

/// What one call has found of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T, Id> {
    /// What was found, in the order of the list.
    pub found: Vec<T>,
    /// The id behind which the list goes on; none where it was looked at to its end. What was found can be less than was asked for, or
    /// nothing, although it goes on.
    pub next: Option<Id>,
}

impl<T, Id> Part<T, Id> {
    /// What was found, at most `limit`, down to the row `end` that was looked at last, or to the end of the list.
    pub fn new(found: Vec<T>, limit: u32, id: impl Fn(&T) -> Id, end: Option<Id>) -> Self {
        let is_full = found.len() >= limit as usize;
        let last = found.last().filter(|_| is_full).map(id);
        Self {
            next: last.or(end),
            found,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_part_goes_on_behind_what_it_has_and_another_behind_what_was_looked_at() {
        let next = |found: &[u8], end| Part::new(found.to_vec(), 2, |item| *item, end).next;
        assert_eq!(next(&[9, 7], Some(3)), Some(7));
        assert_eq!(next(&[9, 7], None), Some(7));
        assert_eq!(next(&[9], Some(3)), Some(3));
        assert_eq!(next(&[9], None), None);
    }
}
