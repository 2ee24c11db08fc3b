//! Checkpoints that are held against a ledger while it is read.

use crate::merkle::Frontier;
use crate::trust::TrustedCheckpoint;
use crate::{Fault, Moment, Unverified};

/// Checkpoints in the order of their sizes, and which of them have been met.
#[derive(Debug, Default)]
pub(super) struct Held {
    checkpoints: Vec<TrustedCheckpoint>,
    /// How many have been met or passed by.
    met: usize,
    /// The size of the last that agrees.
    agreed: Option<u64>,
}

impl Held {
    pub(super) fn push(&mut self, checkpoint: TrustedCheckpoint) {
        self.checkpoints.push(checkpoint);
        self.checkpoints
            .sort_by_key(|checkpoint| checkpoint.checkpoint().size);
    }

    /// Compares the tree with the checkpoints of its size. `at` is the time of its last entry, if that was seen.
    pub(super) fn meet(&mut self, tree: &Frontier, at: Option<Moment>) -> Result<(), Fault> {
        while let Some(held) = self.checkpoints.get(self.met) {
            let checkpoint = held.checkpoint();
            if checkpoint.size != tree.size() {
                break;
            }
            let found = tree.root();
            if found != checkpoint.root {
                return Err(Fault::Root {
                    size: checkpoint.size,
                    expected: checkpoint.root,
                    found,
                    agreed: self.agreed,
                });
            }
            at.map_or(Ok(()), |at| held.covers(at))?;
            self.agreed = Some(checkpoint.size);
            self.met += 1;
        }
        Ok(())
    }

    /// The size of the last that agrees.
    pub(super) const fn agreed(&self) -> Option<u64> {
        self.agreed
    }

    /// Whether all have been met by the entries from `first` on, whose tree is this.
    pub(super) fn finish(&self, first: u64, tree: Option<&Frontier>) -> Result<(), Unverified> {
        let Some(left) = self.checkpoints.get(self.met) else {
            return Ok(());
        };
        let size = left.checkpoint().size;
        match tree.map(Frontier::size) {
            Some(found) if found < size => Err(Unverified::Cut { held: size, found }),
            _ => Err(Unverified::NotCompared { size, first }),
        }
    }
}
