//! The line for connections that are refused again and again: a few of them are read in a round, whatever they send.
//!
//! The runtime takes what is ready in the order in which it became so, and beside a flood nearly all of it is asks that
//! will be refused. Whoever has an answer coming would stand behind all of them, twice: when its ask is read, and when
//! its answer is there. So a connection on which one ask after the other was refused stands in a line of its own before
//! it is read again. The runtime does everything else that is ready between two rounds; where there is nothing else,
//! one follows the other, and nobody waits for anything but the processor.

use crate::locks::lock;
use std::sync::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};

/// How many connections are read in a round. The runtime looks for what has come after some 60 tasks, so this is about
/// an eighth of what it does where there is more than enough of everything.
const ROUND: usize = 8;

/// The line, and the turns to be read that those in it are given.
pub(super) struct ReadTurns {
    /// How many stand in it and are in no round yet. A round is taken out and given under the lock.
    waiting: Mutex<usize>,
    given: Semaphore,
    /// Somebody stands in a line that was empty.
    news: Notify,
}

/// Somebody who stands in a line. Whoever goes away without a turn leaves none behind.
struct Standing<'t>(&'t ReadTurns);

impl ReadTurns {
    pub(super) const fn new() -> Self {
        Self {
            waiting: Mutex::new(0),
            given: Semaphore::const_new(0),
            news: Notify::const_new(),
        }
    }

    /// Waits for a turn, behind all who came before.
    pub(super) async fn wait(&self) {
        let standing = self.stand();
        // INVARIANT: nobody closes it.
        if let Ok(turn) = self.given.acquire().await {
            turn.forget();
            std::mem::forget(standing);
        }
    }

    fn stand(&self) -> Standing<'_> {
        let mut waiting = self.lock();
        *waiting += 1;
        if *waiting == 1 {
            self.news.notify_one();
        }
        Standing(self)
    }

    /// Gives turns for as long as it is polled, in rounds.
    pub(super) async fn give(&self) {
        loop {
            if self.give_round() == 0 {
                self.news.notified().await;
            } else {
                // Goes on after what is ready now, and after a look at what has come.
                tokio::task::yield_now().await;
            }
        }
    }

    /// Says how many turns it gave.
    fn give_round(&self) -> usize {
        let mut waiting = self.lock();
        let round = ROUND.min(*waiting);
        *waiting -= round;
        self.given.add_permits(round);
        round
    }

    fn lock(&self) -> MutexGuard<'_, usize> {
        lock(&self.waiting)
    }
}

impl Drop for Standing<'_> {
    fn drop(&mut self) {
        // INVARIANT: as many turns are given and not had, or are yet to be given, as stand in line. Its own wait is
        // dropped before this: a turn that was given to it is the next one's, or nobody's.
        let mut waiting = self.0.lock();
        if *waiting == 0 {
            self.0.given.forget_permits(1);
        } else {
            *waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::task::JoinSet;

    /// The numbers of those who had a turn, in order.
    type Had = Arc<Mutex<Vec<usize>>>;

    fn line_up(turns: &Arc<ReadTurns>, had: &Had, numbers: std::ops::Range<usize>) -> JoinSet<()> {
        let one = |number| {
            let (turns, had) = (Arc::clone(turns), Arc::clone(had));
            async move {
                turns.wait().await;
                had.lock().unwrap().push(number);
            }
        };
        numbers.map(one).collect()
    }

    #[tokio::test]
    async fn everybody_has_a_turn_in_the_order_of_the_line() {
        let (turns, had) = (Arc::new(ReadTurns::new()), Had::default());
        let line = line_up(&turns, &had, 0..3 * ROUND + 1);
        let later = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.give().await })
        };
        line.join_all().await;
        // A line that was empty for a while.
        tokio::time::sleep(Duration::from_millis(10)).await;
        line_up(&turns, &had, 3 * ROUND + 1..4 * ROUND).join_all().await;
        assert!(had.lock().unwrap().iter().copied().eq(0..4 * ROUND));
        assert!(!later.is_finished());
        later.abort();
    }

    #[tokio::test]
    async fn between_two_rounds_is_time_for_others() {
        let (turns, had) = (Arc::new(ReadTurns::new()), Had::default());
        let line = line_up(&turns, &had, 0..10 * ROUND);
        tokio::task::yield_now().await;
        let giving = {
            let turns = Arc::clone(&turns);
            tokio::spawn(async move { turns.give().await })
        };
        let mut before = 0;
        while before < 10 * ROUND {
            tokio::task::yield_now().await;
            let now = had.lock().unwrap().len();
            assert!(now - before <= 2 * ROUND, "{before} and then {now}");
            before = now;
        }
        line.join_all().await;
        giving.abort();
    }

    #[tokio::test]
    async fn whoever_goes_away_leaves_no_turn_behind() {
        let (turns, had) = (Arc::new(ReadTurns::new()), Had::default());
        let pause = || tokio::time::sleep(Duration::from_millis(20));
        let mut line = line_up(&turns, &had, 0..10 * ROUND);
        pause().await;
        // Some of them are given one, and do not come to have it.
        assert_eq!(turns.give_round(), ROUND);
        line.shutdown().await;
        assert_eq!(turns.give_round(), 0);
        let line = line_up(&turns, &had, 0..1);
        pause().await;
        assert!(had.lock().unwrap().is_empty());
        assert_eq!(turns.give_round(), 1);
        line.join_all().await;
        assert_eq!(*had.lock().unwrap(), [0]);
    }

    #[tokio::test]
    async fn nobody_has_a_turn_that_was_not_given() {
        let (turns, had) = (Arc::new(ReadTurns::new()), Had::default());
        let _line = line_up(&turns, &had, 0..ROUND);
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(had.lock().unwrap().is_empty());
    }
}
