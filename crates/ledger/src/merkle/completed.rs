//! What an entry adds to the tree that is kept: the hashes of the subtrees that it completes.

use canon::Digest;

use super::NodeId;

/// Bytes of a hash.
const HASH_LEN: usize = 32;

/// The hashes of the subtrees that an entry completes, smallest first: its leaf, and one more for each time that two
/// divides its `seq`. Half of all entries have one hash, a quarter two: 64 bytes an entry on average.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completed(Vec<u8>);

impl Completed {
    /// Reads what was stored with entry `seq`; `None` if it has not the length that `seq` asks for.
    pub fn from_bytes(seq: u64, bytes: Vec<u8>) -> Option<Self> {
        let is_right = seq > 0 && bytes.len() == Self::len_at(seq) * HASH_LEN;
        is_right.then_some(Self(bytes))
    }

    /// The bytes to store with the entry: the hashes one after the other.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes to store with the entry, owned.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// The hash of the entry's leaf.
    pub fn leaf(&self) -> Digest {
        self.hashes().next().expect("every entry completes its own leaf")
    }

    /// The hash of a subtree, if this is what was stored with the entry `node.seq()`.
    pub fn get(&self, node: NodeId) -> Option<Digest> {
        self.hashes().nth(usize::from(node.level))
    }

    /// The hashes, smallest subtree first.
    pub fn hashes(&self) -> impl Iterator<Item = Digest> {
        let (hashes, _) = self.0.as_chunks::<HASH_LEN>();
        hashes.iter().map(|hash| Digest::from_bytes(*hash))
    }

    /// Room for all that entry `seq` completes.
    pub(super) fn with_room(seq: u64) -> Self {
        Self(Vec::with_capacity(Self::len_at(seq) * HASH_LEN))
    }

    pub(super) fn push(&mut self, hash: &Digest) {
        self.0.extend_from_slice(hash.as_bytes());
    }

    fn len_at(seq: u64) -> usize {
        seq.trailing_zeros() as usize + 1
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::Completed;
    use crate::merkle::NodeId;

    #[test]
    fn only_the_length_that_the_place_asks_for_is_read() {
        for (seq, hashes) in [(1, 1), (2, 2), (3, 1), (4, 3), (1 << 40, 41)] {
            let bytes = vec![7; hashes * 32];
            let read = Completed::from_bytes(seq, bytes.clone()).unwrap();
            assert_eq!(read.as_bytes(), bytes);
            for wrong in [0, hashes * 32 - 1, hashes * 32 + 32] {
                assert_eq!(Completed::from_bytes(seq, vec![7; wrong]), None, "{seq} {wrong}");
            }
        }
        assert_eq!(Completed::from_bytes(0, vec![7; 65 * 32]), None);
    }

    #[test]
    fn a_subtree_stands_at_the_place_of_its_level() {
        let bytes = [[1; 32], [2; 32], [3; 32]].concat();
        let completed = Completed::from_bytes(12, bytes).unwrap();
        let at = |level, index| completed.get(NodeId { level, index });
        assert_eq!(at(0, 11), Some(Digest::from_bytes([1; 32])));
        assert_eq!(at(2, 2), Some(Digest::from_bytes([3; 32])));
        assert_eq!(at(3, 1), None);
        assert_eq!(completed.leaf(), Digest::from_bytes([1; 32]));
    }
}
