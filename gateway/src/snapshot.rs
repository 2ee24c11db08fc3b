//! The snapshot in force: read without a lock, replaced whole by the sequencer after a commit.

use arc_swap::{ArcSwap, Guard};
use engine::Snapshot;
use std::sync::Arc;

/// Holds the snapshot in force.
pub struct SnapshotCell(ArcSwap<Snapshot>);

impl SnapshotCell {
    /// A cell that holds this snapshot.
    pub fn new(snapshot: Snapshot) -> Self {
        Self(ArcSwap::from_pointee(snapshot))
    }

    /// The snapshot in force. Do not hold it across an `await`: it pins a slot that others need.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.0.load()
    }

    /// Puts another in force.
    pub fn publish(&self, snapshot: Snapshot) {
        self.0.store(Arc::new(snapshot));
    }
}
