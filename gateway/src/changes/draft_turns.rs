//! The turns of a draft that takes long: those of other tenants come in between, and it ends early when nobody waits
//! for it any more.
//!
//! It keeps its share of the semaphore from its first turn to its last, so of each tenant one is under way and in
//! memory.

use crate::fair_semaphore::{FairSemaphore, Permit};
use crate::locks::lock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::Handle;

/// How long a draft is worked on before others come, or longer until what cannot be divided is done: one policy for one
/// kind of ask, or for one principal of an ask that is tried, or what is made of the tools, some seconds where their
/// parameters come to half a million types. Most take milliseconds.
const TURN_MAX: Duration = Duration::from_millis(100);

/// The turns of one draft, for the thread that works on it.
pub(crate) struct DraftTurns {
    drafts: Arc<FairSemaphore>,
    handle: Handle,
    turn: Mutex<Turn>,
    turn_max: Duration,
    is_given_up: Arc<AtomicBool>,
}

/// The turn that it has now.
struct Turn {
    /// Taken only while it is exchanged for the next one.
    permit: Option<Permit>,
    began: Instant,
}

/// Whoever waits for a draft. Dropping it ends the draft.
pub(crate) struct Waiting(Arc<AtomicBool>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl DraftTurns {
    /// The turns of a draft that begins with this permit.
    pub(crate) fn begin(drafts: &Arc<FairSemaphore>, permit: Permit) -> (Self, Waiting) {
        let is_given_up = Arc::new(AtomicBool::new(false));
        let turns = Self {
            drafts: Arc::clone(drafts),
            handle: Handle::current(),
            turn: Mutex::new(Turn {
                permit: Some(permit),
                began: Instant::now(),
            }),
            turn_max: TURN_MAX,
            is_given_up: Arc::clone(&is_given_up),
        };
        (turns, Waiting(is_given_up))
    }

    /// Whether it goes on, when it is its turn again, if this one is over. It blocks the thread until then, which has
    /// to be one that may be blocked.
    pub(crate) fn goes_on(&self) -> bool {
        if self.is_given_up() {
            return false;
        }
        let mut turn = lock(&self.turn);
        if turn.began.elapsed() >= self.turn_max {
            let permit = turn.permit.take();
            turn.permit = permit.map(|permit| self.handle.block_on(self.drafts.pass(permit)));
            turn.began = Instant::now();
        }
        !self.is_given_up()
    }

    fn is_given_up(&self) -> bool {
        self.is_given_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use std::pin::pin;
    use tokio::time::timeout;

    const ONE: TenantId = TenantId::from_bytes([1; 16]);
    const OTHER: TenantId = TenantId::from_bytes([2; 16]);

    /// A draft whose turns are over as soon as they begin.
    async fn begun() -> (Arc<FairSemaphore>, DraftTurns, Waiting) {
        let drafts = Arc::new(FairSemaphore::for_drafts());
        let permit = drafts.acquire(ONE).await.unwrap();
        let (turns, waiting) = DraftTurns::begin(&drafts, permit);
        let turns = DraftTurns {
            turn_max: Duration::ZERO,
            ..turns
        };
        (drafts, turns, waiting)
    }

    #[tokio::test]
    async fn a_draft_that_takes_long_goes_on_when_another_tenant_has_had_its_turn() {
        let (drafts, turns, _waiting) = begun().await;
        let mut other = pin!(drafts.acquire(OTHER));
        assert!(timeout(Duration::ZERO, other.as_mut()).await.is_err());
        let working = tokio::task::spawn_blocking(move || turns.goes_on());
        let place = other.await.unwrap();
        assert!(!working.is_finished());
        drop(place);
        assert!(working.await.unwrap());
        drop(drafts.acquire(OTHER).await.unwrap());
    }

    #[tokio::test]
    async fn a_draft_that_nobody_waits_for_does_not_go_on_and_waits_for_no_turn() {
        let (drafts, turns, waiting) = begun().await;
        let mut other = pin!(drafts.acquire(OTHER));
        assert!(timeout(Duration::ZERO, other.as_mut()).await.is_err());
        drop(waiting);
        assert!(!turns.goes_on());
        assert!(timeout(Duration::ZERO, other.as_mut()).await.is_err());
        drop(turns);
        drop(other.await.unwrap());
    }

    #[tokio::test]
    async fn a_draft_whose_caller_goes_away_between_its_turns_does_not_go_on() {
        let (drafts, turns, waiting) = begun().await;
        let mut other = pin!(drafts.acquire(OTHER));
        assert!(timeout(Duration::ZERO, other.as_mut()).await.is_err());
        let working = tokio::task::spawn_blocking(move || turns.goes_on());
        let place = other.await.unwrap();
        drop((waiting, place));
        assert!(!working.await.unwrap());
    }
}
