//! Names of complete subtrees, and at which entry each of them is found.

/// A complete subtree: the 2^`level` leaves from `index` · 2^`level` on. A leaf is a subtree of level 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId {
    /// The logarithm of the number of its leaves.
    pub level: u8,
    /// How many subtrees of its level stand to the left of it.
    pub index: u64,
}

impl NodeId {
    /// `seq` of the entry that completes it: with that entry its hash is stored, at the place `level`.
    pub const fn seq(self) -> u64 {
        (self.index + 1) << self.level
    }

    /// The subtrees of which the leaves `start..end` consist, from the left. `start` must be a multiple of the largest of
    /// them, as it is for every part of a proof.
    pub(crate) fn cover(start: u64, end: u64) -> impl Iterator<Item = Self> {
        let mut next = start;
        std::iter::from_fn(move || {
            let level = (end - next).checked_ilog2()?;
            let node = Self {
                level: u8::try_from(level).expect("a logarithm of 64 bits is below 64"),
                index: next >> level,
            };
            next += 1 << level;
            Some(node)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::NodeId;

    fn cover(start: u64, end: u64) -> Vec<(u8, u64, u64)> {
        NodeId::cover(start, end)
            .map(|node| (node.level, node.index, node.seq()))
            .collect()
    }

    #[test]
    fn a_tree_consists_of_a_subtree_for_each_bit_of_its_size() {
        assert_eq!(cover(0, 0), []);
        assert_eq!(cover(0, 1), [(0, 0, 1)]);
        assert_eq!(cover(0, 7), [(2, 0, 4), (1, 2, 6), (0, 6, 7)]);
        assert_eq!(cover(8, 13), [(2, 2, 12), (0, 12, 13)]);
    }
}
