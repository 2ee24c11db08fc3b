//! Lists in parts: whoever looks for little among much gets what a short look finds, and where to go on.

/// Rows that one call looks at where no index leads to those that are wanted: a few milliseconds. Somebody else's
/// decision may be waiting for the connection.
pub const LOOKED_AT_MAX: u32 = 2_000;

/// Bytes of bodies that one call reads: those of some thousand ordinary decisions, and of a few large ones.
pub const BYTES_AT_ONCE: usize = 4 << 20;

/// What is read in rows that may be large.
pub trait Bulk {
    /// The bytes of what can be of any length in it.
    fn bytes(&self) -> usize;
}

/// What one call may still read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Room {
    bytes: usize,
}

impl Room {
    /// Takes in a row of so many bytes.
    pub const fn take(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Whether another row may be read, however large. There is always room for the first one.
    pub const fn is_left(&self) -> bool {
        self.bytes < BYTES_AT_ONCE
    }
}

/// Whether the call that has read these rows had no room for another one: there may be more, however few were found.
pub fn is_used_up<T: Bulk>(rows: &[T]) -> bool {
    let mut room = Room::default();
    for row in rows {
        room.take(row.bytes());
    }
    !room.is_left()
}

/// What one call has found of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part<T, Id> {
    /// What was found, in the order of the list.
    pub found: Vec<T>,
    /// The id behind which the list goes on; none where it was looked at to its end. What was found can be less than
    /// was asked for, or nothing, although it goes on.
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

    impl Bulk for usize {
        fn bytes(&self) -> usize {
            *self
        }
    }

    #[test]
    fn a_call_has_room_for_one_row_however_large_and_for_none_behind_what_is_enough() {
        assert!(!is_used_up::<usize>(&[]));
        assert!(is_used_up(&[usize::MAX, 1]));
        assert!(!is_used_up(&[BYTES_AT_ONCE - 2, 1]));
        assert!(is_used_up(&[BYTES_AT_ONCE - 1, 1]));
    }

    #[test]
    fn a_full_part_goes_on_behind_what_it_has_and_another_behind_what_was_looked_at() {
        let next = |found: &[u8], end| Part::new(found.to_vec(), 2, |item| *item, end).next;
        assert_eq!(next(&[9, 7], Some(3)), Some(7));
        assert_eq!(next(&[9, 7], None), Some(7));
        assert_eq!(next(&[9], Some(3)), Some(3));
        assert_eq!(next(&[9], None), None);
    }
}
