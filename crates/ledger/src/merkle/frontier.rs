//! The right edge of a tree: all that appending and the root need, and no more than one hash for each bit of the size.

use canon::Digest;

use super::{Completed, NodeId, TREE_SIZE_MAX, fold, node_hash};

/// Bytes of a hash.
const HASH_LEN: usize = 32;

/// The complete subtrees of which a tree consists, from the largest and leftmost on: one for each bit of its size.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Frontier {
    size: u64,
    /// INVARIANT: as many as `size` has bits.
    subtrees: Vec<Digest>,
}

impl Frontier {
    /// The edge of a tree without leaves.
    pub const EMPTY: Self = Self {
        size: 0,
        subtrees: Vec::new(),
    };

    /// The edge of a tree of this size whose subtrees, those that [`Self::nodes`] names, have these hashes. `None` if there
    /// are not as many as there must be.
    pub fn new(size: u64, subtrees: Vec<Digest>) -> Option<Self> {
        let is_right = size <= TREE_SIZE_MAX && subtrees.len() == size.count_ones() as usize;
        is_right.then_some(Self { size, subtrees })
    }

    /// Which subtrees the edge of a tree of this size consists of: what has to be read to make one.
    pub fn nodes(size: u64) -> impl Iterator<Item = NodeId> {
        NodeId::cover(0, size)
    }

    /// Reads what [`Self::to_bytes`] wrote for a tree of this size.
    pub fn from_bytes(size: u64, bytes: &[u8]) -> Option<Self> {
        let (hashes, rest) = bytes.as_chunks::<HASH_LEN>();
        let subtrees = hashes.iter().map(|hash| Digest::from_bytes(*hash)).collect();
        Self::new(size, subtrees).filter(|_| rest.is_empty())
    }

    /// The hashes one after the other, as a database column holds them: at most 1,696 bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.subtrees.iter().flat_map(|hash| *hash.as_bytes()).collect()
    }

    /// How many leaves the tree has.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The hashes, of the largest and leftmost subtree first.
    pub fn hashes(&self) -> &[Digest] {
        &self.subtrees
    }

    /// The root. That of a tree without leaves is the hash of nothing.
    pub fn root(&self) -> Digest {
        fold(&self.subtrees)
    }

    /// Appends a leaf by its hash. Returns the subtrees that it completes, which are to be stored with it. On average it
    /// takes one hash more.
    pub fn append(&mut self, leaf: Digest) -> Completed {
        let mut completed = Completed::with_room(self.size + 1);
        self.append_with(leaf, |hash| completed.push(hash));
        completed
    }

    /// Appends a leaf by its hash, for whoever stores nothing.
    pub fn extend(&mut self, leaf: Digest) {
        self.append_with(leaf, |_| {});
    }

    /// Appends a leaf by its hash, and says whether what was stored with it is what it completes.
    pub fn extend_as_stored(&mut self, leaf: Digest, stored: &Completed) -> bool {
        let mut hashes = stored.hashes();
        let mut is_same = true;
        self.append_with(leaf, |hash| is_same &= hashes.next().as_ref() == Some(hash));
        is_same && hashes.next().is_none()
    }

    fn append_with(&mut self, leaf: Digest, mut complete: impl FnMut(&Digest)) {
        debug_assert!(self.size < TREE_SIZE_MAX, "the tree is full");
        let mut subtree = leaf;
        complete(&subtree);
        for _ in 0..self.size.trailing_ones() {
            let left = self.subtrees.pop().expect("a subtree for each bit of the size");
            subtree = node_hash(&left, &subtree);
            complete(&subtree);
        }
        self.subtrees.push(subtree);
        self.size += 1;
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::Frontier;
    use crate::merkle::definition::Definition;
    use crate::merkle::{Completed, NodeId, TREE_SIZE_MAX};

    fn of(leaves: &[Digest]) -> Frontier {
        let mut frontier = Frontier::EMPTY;
        for leaf in leaves {
            frontier.extend(*leaf);
        }
        frontier
    }

    #[test]
    fn every_root_is_that_of_the_definition() {
        let tree = Definition::of(300);
        let mut frontier = Frontier::EMPTY;
        assert_eq!(frontier.root(), Digest::of(b""));
        for size in 1..=300 {
            frontier.extend(tree.leaves[size - 1]);
            assert_eq!(frontier.root(), tree.root(0..size), "{size}");
            assert_eq!(frontier.size(), size as u64);
        }
    }

    #[test]
    fn an_entry_brings_the_subtrees_that_it_completes() {
        let tree = Definition::of(64);
        let mut frontier = Frontier::EMPTY;
        for seq in 1..=64_u64 {
            let completed = frontier.append(tree.leaves[usize::try_from(seq).unwrap() - 1]);
            let levels = 0..=seq.trailing_zeros();
            assert_eq!(completed.hashes().count(), levels.clone().count());
            for level in levels {
                let node = NodeId {
                    level: u8::try_from(level).unwrap(),
                    index: (seq >> level) - 1,
                };
                assert_eq!(node.seq(), seq);
                let start = usize::try_from(node.index << level).unwrap();
                let subtree = tree.root(start..start + (1 << level));
                assert_eq!(completed.get(node), Some(subtree));
            }
        }
    }

    #[test]
    fn what_was_stored_is_compared_hash_by_hash() {
        let tree = Definition::of(8);
        let mut frontier = Frontier::EMPTY;
        for leaf in &tree.leaves {
            let stored = frontier.clone().append(*leaf);
            for place in 0..stored.as_bytes().len() {
                let mut bytes = stored.as_bytes().to_vec();
                bytes[place] ^= 1;
                let changed = Completed::from_bytes(frontier.size() + 1, bytes).unwrap();
                assert!(!frontier.clone().extend_as_stored(*leaf, &changed));
            }
            // What belongs to an entry that completes more is not taken either.
            let longer = Completed::from_bytes(16, vec![0; 160]).unwrap();
            assert!(!frontier.clone().extend_as_stored(*leaf, &longer));
            assert!(frontier.extend_as_stored(*leaf, &stored));
        }
        assert_eq!(frontier.root(), tree.root(0..8));
    }

    #[test]
    fn an_edge_is_stored_and_read_back() {
        let tree = Definition::of(77);
        for size in 0..=77 {
            let frontier = of(&tree.leaves[..size]);
            let bytes = frontier.to_bytes();
            assert_eq!(bytes.len(), size.count_ones() as usize * 32);
            assert_eq!(Frontier::from_bytes(size as u64, &bytes), Some(frontier));
            assert_eq!(Frontier::nodes(size as u64).count(), size.count_ones() as usize);
        }
        assert_eq!(Frontier::from_bytes(3, &[0; 32]), None);
        assert_eq!(Frontier::from_bytes(3, &[0; 65]), None);
        assert_eq!(Frontier::new(TREE_SIZE_MAX + 1, vec![Digest::ZERO]), None);
    }
}
