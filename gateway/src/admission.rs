//! How many asks are in the gateway at once, and which of them are worked on.
//!
//! - `room`: an ask takes a place as soon as the head of its request is read, and has it until it is answered. Whoever finds none is
//!   refused before its body is read;
//! - `turns`: of those that have a place, only a few are worked on at once, tenant by tenant.
//!
//! The second keeps the first honest: asks that wait for a thread wait here, where they are counted, and not in the runtime, where nobody sees
//! them and whoever is to be refused would stand behind them.

mod room;
mod turns;

use model::TenantId;
use room::Room;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
pub use turns::Turn;
use turns::Turns;

/// Turns for each thread of the runtime. Those who have one are worked on between everything else that is ready: with more of them, that is seen
/// to later; with fewer, a thread that has much else to do would get nobody judged.
const TURNS_PER_THREAD: usize = 4;

/// The door of the gateway for asks.
pub struct Admission {
    room: Arc<Mutex<Room>>,
    turns: Arc<Turns>,
}

/// A place in the gateway: an ask has one until it is answered. It is given back when it is dropped.
#[must_use = "a place is had as long as it is held"]
pub struct Place {
    room: Arc<Mutex<Room>>,
    tenant: TenantId,
    since: Instant,
}

impl Admission {
    /// With places for this many asks, which are worked on by so many threads.
    pub fn new(places_max: usize, threads: usize) -> Self {
        Self {
            room: Arc::new(Mutex::new(Room::new(places_max, Instant::now()))),
            turns: Turns::new(TURNS_PER_THREAD * threads),
        }
    }

    /// A place for an ask of this tenant, if there is one. `commit` is how long commits take now.
    pub fn enter(&self, tenant: TenantId, commit: Duration) -> Option<Place> {
        lock(&self.room).enter(tenant, commit).then(|| Place {
            room: Arc::clone(&self.room),
            tenant,
            since: Instant::now(),
        })
    }

    /// How long asks take now, if that is known.
    pub fn usual(&self) -> Option<Duration> {
        lock(&self.room).usual(Instant::now())
    }

    /// A turn to work on an ask of this tenant. It must not be held while something else is waited for.
    pub async fn turn(&self, tenant: TenantId) -> Turn {
        self.turns.take(tenant).await
    }

    /// How many asks have a place, and how many may have one.
    pub fn places(&self) -> (usize, usize) {
        let room = lock(&self.room);
        (room.taken(), room.limit())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let now = Instant::now();
        lock(&self.room).leave(self.tenant, now.duration_since(self.since), now);
    }
}

fn lock(room: &Mutex<Room>) -> MutexGuard<'_, Room> {
    room.lock().unwrap_or_else(PoisonError::into_inner)
}
