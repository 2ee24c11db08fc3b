//! The bell that rings when an approval may have changed: whoever waits for people looks again then.
//!
//! It rings for changes of this gateway. What others change is seen by looking now and then. Nothing rests on it: who
//! does not hear it is only slower.

use std::sync::Arc;
use std::time::Duration;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

/// How many requests may wait at once. One more is answered at once.
const WAITING_MAX: usize = 1_000;
/// How often those who wait look without having heard anything: an approval may have been given on another gateway.
const LOOK_PAUSE: Duration = Duration::from_secs(1);

/// The bell.
pub struct Bell {
    changed: Notify,
    places: Arc<Semaphore>,
}

/// The next time that it rings.
pub struct Rung<'b>(Notified<'b>);

impl Default for Bell {
    fn default() -> Self {
        Self {
            changed: Notify::new(),
            places: Arc::new(Semaphore::new(WAITING_MAX)),
        }
    }
}

impl Bell {
    /// Wakes everybody who waits.
    pub fn ring(&self) {
        self.changed.notify_waiters();
    }

    /// The right to wait; none if too many do.
    pub fn ticket(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }

    /// The next time that it rings, from this call on: take it before you look.
    pub fn rung(&self) -> Rung<'_> {
        Rung(self.changed.notified())
    }
}

impl Rung<'_> {
    /// Waits for it, but not beyond this time, and not for long without a look.
    pub async fn until(self, end: Instant) {
        let look = Instant::now() + LOOK_PAUSE;
        // It rang, or it is time to look: both are the same to whoever waits.
        let _ = tokio::time::timeout_at(end.min(look), self.0).await;
    }
}
