//! Whose turn it is where a job writes down something of all tenants in rounds, the oldest first: whoever has had a
//! share goes behind those who have not. So one tenant that has more of it than the job does keeps no other waiting.
//!
//! What the rounds are about, and how it is found, is not known here.

use crate::locks::lock;
use model::TenantId;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many passes leave nobody out after one that could not: to read past all that is left out takes ten seconds then,
/// in which nothing is written down.
const PASSES_FOR_ALL: usize = 60;

/// What is known between two passes: there may be more tenants with much of it than one pass gets to.
#[derive(Debug, Default)]
pub struct Turns {
    /// How much of each tenant was found in this cycle, which ends when those below their share have nothing left. Held
    /// for a look or a count only.
    had: Mutex<BTreeMap<TenantId, usize>>,
    /// How many more passes leave nobody out.
    passes_for_all: AtomicUsize,
}

impl Turns {
    /// Begins a pass in which so much is a share, and at most so many rounds leave out those who have had theirs. Each
    /// of those reads past all that is left out, and the other rounds see to it that this comes to an end.
    pub(crate) fn begin(&self, share: usize, rounds_for_others: usize) -> Pass<'_> {
        let left = self.passes_for_all.load(Ordering::Relaxed);
        self.passes_for_all
            .store(left.saturating_sub(1), Ordering::Relaxed);
        Pass {
            turns: self,
            share,
            rounds_for_others: if left == 0 { rounds_for_others } else { 0 },
            is_for_others: false,
        }
    }
}

/// One pass of a job: rounds that follow each other.
#[derive(Debug)]
pub(crate) struct Pass<'t> {
    turns: &'t Turns,
    share: usize,
    /// How many more rounds may leave somebody out.
    rounds_for_others: usize,
    /// Whether the round that was begun last does.
    is_for_others: bool,
}

impl Pass<'_> {
    /// Begins a round. Returns the tenants that it leaves out.
    pub(crate) fn begin_round(&mut self) -> Vec<TenantId> {
        let left_out = if self.rounds_for_others == 0 {
            Vec::new()
        } else {
            let had = lock(&self.turns.had);
            let over = had.iter().filter(|(_, had)| **had >= self.share);
            over.map(|(tenant, _)| *tenant).collect()
        };
        self.is_for_others = !left_out.is_empty();
        left_out
    }

    /// Notes of which tenants the round has found something, each as often as it has.
    pub(crate) fn note_found(&self, tenants: impl Iterator<Item = TenantId>) {
        let mut had = lock(&self.turns.had);
        for tenant in tenants {
            *had.entry(tenant).or_default() += 1;
        }
    }

    /// Ends a round that failed. Returns whether it has left somebody out; then this pass and the next ones leave out
    /// nobody.
    pub(crate) fn end_failed_round(&mut self) -> bool {
        if self.is_for_others {
            self.turns.passes_for_all.store(PASSES_FOR_ALL, Ordering::Relaxed);
            self.rounds_for_others = 0;
        }
        self.is_for_others
    }

    /// Ends a round, which was full or not. Returns whether there may be something for another one: where those who
    /// have not had their share have no more, it is the turn of all.
    pub(crate) fn end_round(&mut self, is_full: bool) -> bool {
        if !self.is_for_others {
            return is_full;
        }
        if is_full {
            self.rounds_for_others -= 1;
        } else {
            self.rounds_for_others = 0;
            lock(&self.turns.had).clear();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: usize = 2;

    /// What a pass of so many rounds of two does of what is there of tenants, the oldest first.
    fn go_through(turns: &Turns, due: &mut Vec<u8>, rounds: usize, rounds_for_others: usize) -> Vec<u8> {
        let mut pass = turns.begin(SHARE, rounds_for_others);
        let mut done = Vec::new();
        for _ in 0..rounds {
            let left_out = pass.begin_round();
            let mut found = Vec::new();
            due.retain(|byte| {
                let is_found = found.len() < 2 && !left_out.contains(&tenant(*byte));
                if is_found {
                    found.push(*byte);
                }
                !is_found
            });
            pass.note_found(found.iter().map(|byte| tenant(*byte)));
            let is_full = found.len() == 2;
            done.extend(found);
            if !pass.end_round(is_full) {
                break;
            }
        }
        done
    }

    const fn tenant(byte: u8) -> TenantId {
        TenantId::from_bytes([byte; 16])
    }

    #[test]
    fn what_is_of_others_comes_before_what_is_left_of_a_tenant_that_has_had_its_share() {
        let mut due = vec![1, 1, 1, 1, 1, 2, 3, 3];
        let done = go_through(&Turns::default(), &mut due, 10, 10);
        assert_eq!(done, [1, 1, 2, 3, 3, 1, 1, 1]);
        assert!(due.is_empty(), "{due:?}");
    }

    #[test]
    fn half_of_the_rounds_are_for_whoever_is_the_oldest() {
        let mut due = vec![1, 1, 1, 1, 2, 2, 3, 3, 4, 4];
        let done = go_through(&Turns::default(), &mut due, 4, 2);
        assert_eq!(done, [1, 1, 2, 2, 3, 3, 1, 1]);
    }

    #[test]
    fn whoever_had_a_share_in_one_pass_goes_behind_the_others_in_the_next() {
        let (turns, mut due) = (Turns::default(), vec![1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3]);
        assert_eq!(go_through(&turns, &mut due, 2, 2), [1, 1, 2, 2]);
        assert_eq!(go_through(&turns, &mut due, 2, 2), [3, 1, 1]);
    }

    #[test]
    fn who_could_not_be_left_out_is_left_out_again_only_after_a_while() {
        let (turns, mut due) = (Turns::default(), vec![1, 1, 1, 1, 2]);
        let mut pass = turns.begin(SHARE, 10);
        assert_eq!(pass.begin_round(), []);
        assert!(!pass.end_failed_round(), "nobody was left out");
        pass.note_found([tenant(1); 2].into_iter());
        assert_eq!(pass.begin_round(), [tenant(1)]);
        assert!(pass.end_failed_round());
        assert_eq!(pass.begin_round(), []);
        assert_eq!(go_through(&turns, &mut due, 1, 10), [1, 1]);
        for _ in 1..PASSES_FOR_ALL {
            assert_eq!(turns.begin(SHARE, 10).begin_round(), []);
        }
        assert_eq!(go_through(&turns, &mut due, 1, 10), [2]);
    }

    #[test]
    fn a_round_that_finds_nothing_for_others_is_followed_by_one_for_all() {
        let (turns, mut due) = (Turns::default(), vec![1, 1, 1]);
        assert_eq!(go_through(&turns, &mut due, 10, 10), [1, 1, 1]);
        assert!(go_through(&turns, &mut due, 10, 10).is_empty());
    }
}
