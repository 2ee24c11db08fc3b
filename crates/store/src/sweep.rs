//! Sweeps: looking through all rows of a table for those that may go, some at a time, because others wait for whoever
//! does. What may go, and how it is deleted, is for a backend to know.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a round looks, at [`LOOKED_AT_MAX`](crate::LOOKED_AT_MAX) rows each time: a fraction of a second for all of them.
const LOOKS_MAX: u32 = 50;
/// How many rounds begin in the same place and come to no end before one begins with the first row.
const BEGUN_MAX: u32 = 2;
/// For how long a brief round goes on. With a second between rounds, whoever waits for it does so a twentieth of the time.
const BRIEF: Duration = Duration::from_millis(50);

/// A sweep over rows in the order of their keys. How far it has come is in memory only: after a restart it begins with
/// the first row.
#[derive(Debug, Default)]
pub struct Sweep<Key> {
    /// Where the next round begins. Locked to be read or to be written only.
    reached: Mutex<Reached<Key>>,
}

#[derive(Debug, Default)]
struct Reached<Key> {
    /// Behind this row: the default stands before all of them.
    behind: Key,
    /// How many rounds have begun there and have come to no end.
    begun: u32,
}

/// What a round has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Swept {
    /// How many rows have gone.
    pub gone: u64,
    /// Whether it looked at the last row: the next one begins anew.
    pub is_through: bool,
}

/// A round of a sweep. A round that is dropped before its end, as when a statement fails, is repeated from the same row
/// once; if that fails too, the sweep begins again with the first row, so that one unreadable row cannot stop it.
#[derive(Debug)]
pub struct SweepRound<'sweep, Key> {
    sweep: &'sweep Sweep<Key>,
    /// Behind which row it looks next; none when it has looked at the last one.
    behind: Option<Key>,
    looks: u32,
    /// When its time is over; none if it takes as long as it takes.
    until: Option<Instant>,
}

impl<Key: Clone + Default> Sweep<Key> {
    /// Begins a round, where the one before has ended.
    pub fn begin(&self) -> SweepRound<'_, Key> {
        self.begin_until(None)
    }

    /// Begins a round that does not look again after `BRIEF`, however far it has come; the next round goes on there.
    pub fn begin_brief(&self) -> SweepRound<'_, Key> {
        self.begin_until(Some(Instant::now() + BRIEF))
    }

    fn begin_until(&self, until: Option<Instant>) -> SweepRound<'_, Key> {
        let mut reached = self.lock();
        if reached.begun == BEGUN_MAX {
            *reached = Reached::default();
        }
        reached.begun += 1;
        SweepRound {
            sweep: self,
            behind: Some(reached.behind.clone()),
            looks: 0,
            until,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Reached<Key>> {
        self.reached.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<Key: Clone + Default> SweepRound<'_, Key> {
    /// Behind which row to look now; none if this round has looked at enough, or at the last row. It looks once,
    /// however short its time is: otherwise rounds on a slow machine would come to nothing.
    pub fn behind(&self) -> Option<Key> {
        let goes_on = self.looks == 0 || (self.looks < LOOKS_MAX && !self.is_over());
        self.behind.clone().filter(|_| goes_on)
    }

    /// Whether its time is over.
    pub fn is_over(&self) -> bool {
        self.until.is_some_and(|until| until <= Instant::now())
    }

    /// Notes how far one look went: to this row, or to the last one if none is given.
    pub fn looked_to(&mut self, row: Option<Key>) {
        self.behind = row;
        self.looks += 1;
    }

    /// Ends it, after so many rows have gone. The next one goes on behind the row that was looked at last, or with the
    /// first row if there was none behind.
    pub fn end(self, gone: u64) -> Swept {
        let is_through = self.behind.is_none();
        *self.sweep.lock() = Reached {
            behind: self.behind.unwrap_or_default(),
            begun: 0,
        };
        Swept { gone, is_through }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round over the rows from 1 to the last one, two a look. Returns behind which rows it looked.
    fn looks(sweep: &Sweep<u32>, last: u32) -> Vec<u32> {
        let (mut round, mut looks) = (sweep.begin(), Vec::new());
        while let Some(behind) = round.behind() {
            looks.push(behind);
            round.looked_to(Some(behind + 2).filter(|row| *row < last));
        }
        let is_through = round.behind.is_none();
        assert_eq!(round.end(7), Swept { gone: 7, is_through });
        looks
    }

    #[test]
    fn a_round_goes_on_where_the_one_before_stopped_and_begins_anew_behind_the_last_row() {
        let (sweep, last) = (Sweep::default(), 2 * LOOKS_MAX + 20);
        let first = looks(&sweep, last);
        assert_eq!((first.first(), first.len()), (Some(&0), LOOKS_MAX as usize));
        let second = looks(&sweep, last);
        assert_eq!((second.first(), second.len()), (Some(&(2 * LOOKS_MAX)), 10));
        assert_eq!(looks(&sweep, last), first);
    }

    #[test]
    fn a_round_whose_time_is_over_looks_once_and_the_next_one_goes_on() {
        let sweep = Sweep::default();
        let mut round = sweep.begin_until(Some(Instant::now()));
        assert_eq!((round.is_over(), round.behind()), (true, Some(0)));
        round.looked_to(Some(2));
        assert_eq!(round.behind(), None);
        let swept = Swept {
            gone: 1,
            is_through: false,
        };
        assert_eq!(round.end(1), swept);
        assert_eq!(looks(&sweep, 4), [2]);
        assert!(!sweep.begin().is_over());
    }

    #[test]
    fn behind_a_round_that_was_broken_off_one_looks_again_and_then_one_begins_anew() {
        let (sweep, last) = (Sweep::default(), 6 * LOOKS_MAX);
        let break_off = || {
            let mut round = sweep.begin();
            let behind = round.behind();
            round.looked_to(behind.map(|row| row + 2));
            behind
        };
        assert_eq!(looks(&sweep, last).len(), LOOKS_MAX as usize);
        assert_eq!(break_off(), Some(2 * LOOKS_MAX));
        assert_eq!(looks(&sweep, last).first(), Some(&(2 * LOOKS_MAX)));
        assert_eq!(break_off(), Some(4 * LOOKS_MAX));
        assert_eq!(break_off(), Some(4 * LOOKS_MAX));
        assert_eq!(break_off(), Some(0));
    }
}
