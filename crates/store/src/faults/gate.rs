//! Where a test holds what goes on until it has done something else.

use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

/// A gate that is open until it is closed.
#[derive(Debug)]
pub(super) struct Gate {
    pub(super) is_closed: watch::Sender<bool>,
    /// How many are held now.
    pub(super) held: AtomicUsize,
    /// How often it was reached so far.
    pub(super) reached: AtomicUsize,
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            is_closed: watch::Sender::new(false),
            held: AtomicUsize::new(0),
            reached: AtomicUsize::new(0),
        }
    }
}

impl Gate {
    /// Waits until it is open.
    pub(super) async fn pass(&self) {
        let mut is_closed = self.is_closed.subscribe();
        self.reached.fetch_add(1, Ordering::SeqCst);
        self.held.fetch_add(1, Ordering::SeqCst);
        while *is_closed.borrow_and_update() {
            is_closed.changed().await.expect("the gate is still there");
        }
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}
