//! The definition of RFC 6962 section 2.1, word for word: what everything else is compared with. It only remembers the
//! hashes of ranges, so that all trees of a few hundred leaves can be looked at.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Range;

use canon::Digest;

use super::{leaf_hash, node_hash};

/// Leaves, and the trees over ranges of them.
pub(crate) struct Definition {
    pub(crate) leaves: Vec<Digest>,
    roots: RefCell<HashMap<(usize, usize), Digest>>,
}

impl Definition {
    pub(crate) fn of(count: u64) -> Self {
        Self {
            leaves: (0..count).map(|index| leaf_hash(&index.to_be_bytes())).collect(),
            roots: RefCell::default(),
        }
    }

    /// MTH.
    pub(crate) fn root(&self, range: Range<usize>) -> Digest {
        if let Some(root) = self.roots.borrow().get(&(range.start, range.end)) {
            return *root;
        }
        let root = match range.len() {
            0 => Digest::of(b""),
            1 => self.leaves[range.start],
            len => {
                let middle = range.start + split(len);
                node_hash(&self.root(range.start..middle), &self.root(middle..range.end))
            }
        };
        self.roots.borrow_mut().insert((range.start, range.end), root);
        root
    }

    /// PATH, for the leaf `index` of all leaves.
    pub(crate) fn path(&self, index: usize, range: Range<usize>) -> Vec<Digest> {
        if range.len() == 1 {
            return Vec::new();
        }
        let middle = range.start + split(range.len());
        let (left, right) = (range.start..middle, middle..range.end);
        let (mut path, sibling) = if index < middle {
            (self.path(index, left), self.root(right))
        } else {
            (self.path(index, right), self.root(left))
        };
        path.push(sibling);
        path
    }

    /// PROOF, from the first `from` leaves.
    pub(crate) fn consistency(&self, from: usize, to: usize) -> Vec<Digest> {
        self.subproof(from, 0..to, true)
    }

    /// SUBPROOF.
    fn subproof(&self, from: usize, range: Range<usize>, is_known: bool) -> Vec<Digest> {
        if from == range.end {
            return if is_known {
                Vec::new()
            } else {
                vec![self.root(range)]
            };
        }
        let middle = range.start + split(range.len());
        let (left, right) = (range.start..middle, middle..range.end);
        let (mut proof, sibling) = if from <= middle {
            (self.subproof(from, left, is_known), self.root(right))
        } else {
            (self.subproof(from, right, false), self.root(left))
        };
        proof.push(sibling);
        proof
    }
}

/// The largest power of two below `len`.
fn split(len: usize) -> usize {
    len.next_power_of_two() / 2
}
