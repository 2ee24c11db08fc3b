//! Which hashes a root or a proof takes, and what becomes of them. It reads nothing itself: whoever stores the hashes
//! reads those that a plan names, all at once, and hands them over.

use canon::Digest;

use super::{NodeId, TREE_SIZE_MAX, fold};

/// What to read for a root or a proof, and how to make it of that.
///
/// ```
/// use ledger::merkle::{Frontier, ProofPlan, leaf_hash, verify_inclusion};
///
/// let mut tree = Frontier::EMPTY;
/// let stored: Vec<_> = [b"a", b"b", b"c"].map(|leaf| tree.append(leaf_hash(leaf))).into();
/// let plan = ProofPlan::inclusion(2, 3)?;
/// let read = plan.nodes().iter().map(|node| stored[node.seq() as usize - 1].get(*node).unwrap());
/// let proof = plan.prove(&read.collect::<Vec<_>>())?;
/// assert!(verify_inclusion(2, 3, &leaf_hash(b"c"), &proof, &tree.root()).is_ok());
/// # Ok::<(), ledger::merkle::Unprovable>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProofPlan {
    nodes: Vec<NodeId>,
    /// How many of the nodes make each hash of the proof.
    parts: Vec<usize>,
}

/// Why there is no such proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unprovable {
    /// The leaf is not in the tree.
    #[error("leaf {index} is not in a tree of {size}")]
    NotIncluded {
        /// Which leaf.
        index: u64,
        /// How many the tree has.
        size: u64,
    },
    /// The first tree is not a part of the second.
    #[error(
        "a tree of {from} is not the beginning of a tree of {to}: give sizes from 1 on, the smaller one first"
    )]
    NotBefore {
        /// Size of the first tree.
        from: u64,
        /// Size of the second.
        to: u64,
    },
    /// The tree would be too large.
    #[error("a tree has at most {TREE_SIZE_MAX} leaves, not {0}")]
    TooLarge(u64),
    /// What was read is not what the plan names.
    #[error("{found} hashes were given, but the plan names {expected}")]
    WrongCount {
        /// How many the plan names.
        expected: usize,
        /// How many were given.
        found: usize,
    },
}

impl ProofPlan {
    /// The root of the tree at this size.
    ///
    /// # Errors
    /// `TooLarge`.
    pub fn root(size: u64) -> Result<Self, Unprovable> {
        within(size)?;
        Ok(Self::of(&[(0, size)]))
    }

    /// The proof that leaf `index` (from 0) is in the tree of this size: RFC 6962 section 2.1.1.
    ///
    /// # Errors
    /// `NotIncluded`, `TooLarge`.
    pub fn inclusion(index: u64, size: u64) -> Result<Self, Unprovable> {
        within(size)?;
        if index >= size {
            return Err(Unprovable::NotIncluded { index, size });
        }
        let (mut start, mut end) = (0, size);
        let mut ranges = Vec::new();
        while end - start > 1 {
            let middle = middle(start, end);
            if index < middle {
                ranges.push((middle, end));
                end = middle;
            } else {
                ranges.push((start, middle));
                start = middle;
            }
        }
        ranges.reverse();
        Ok(Self::of(&ranges))
    }

    /// The proof that the tree of the size `from` is the beginning of that of the size `to`: RFC 6962 section 2.1.2.
    ///
    /// # Errors
    /// `NotBefore`, also for the tree without leaves, which is the beginning of every tree and proves nothing; `TooLarge`.
    pub fn consistency(from: u64, to: u64) -> Result<Self, Unprovable> {
        within(to)?;
        if from == 0 || from > to {
            return Err(Unprovable::NotBefore { from, to });
        }
        let (mut start, mut end) = (0, to);
        let mut ranges = Vec::new();
        while from < end {
            let middle = middle(start, end);
            if from <= middle {
                ranges.push((middle, end));
                end = middle;
            } else {
                ranges.push((start, middle));
                start = middle;
            }
        }
        // The first tree itself is known to whoever has its root; a subtree of it is not.
        if start > 0 {
            ranges.push((start, end));
        }
        ranges.reverse();
        Ok(Self::of(&ranges))
    }

    fn of(ranges: &[(u64, u64)]) -> Self {
        let mut nodes = Vec::new();
        let parts = ranges.iter().map(|(start, end)| {
            let before = nodes.len();
            nodes.extend(NodeId::cover(*start, *end));
            nodes.len() - before
        });
        let parts = parts.collect();
        Self { nodes, parts }
    }

    /// The subtrees whose hashes are needed: at most two for each bit of the size.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes
    }

    /// The proof, from the hashes of [`Self::nodes`] in the same order; of a plan for a root, the root alone.
    ///
    /// # Errors
    /// `WrongCount`.
    pub fn prove(&self, hashes: &[Digest]) -> Result<Vec<Digest>, Unprovable> {
        if hashes.len() != self.nodes.len() {
            return Err(Unprovable::WrongCount {
                expected: self.nodes.len(),
                found: hashes.len(),
            });
        }
        let mut rest = hashes;
        let proof = self.parts.iter().map(|count| {
            let (part, after) = rest.split_at(*count);
            rest = after;
            fold(part)
        });
        Ok(proof.collect())
    }
}

fn within(size: u64) -> Result<(), Unprovable> {
    if size > TREE_SIZE_MAX {
        return Err(Unprovable::TooLarge(size));
    }
    Ok(())
}

/// Where a tree of more than one leaf is divided: at the largest power of two below its size.
fn middle(start: u64, end: u64) -> u64 {
    start + (1 << (end - start - 1).ilog2())
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::{ProofPlan, Unprovable};
    use crate::merkle::definition::Definition;
    use crate::merkle::{Completed, Frontier};

    struct Stored {
        rows: Vec<Completed>,
    }

    impl Stored {
        fn of(leaves: &[Digest]) -> Self {
            let mut frontier = Frontier::EMPTY;
            let rows = leaves.iter().map(|leaf| frontier.append(*leaf)).collect();
            Self { rows }
        }

        fn prove(&self, plan: &ProofPlan) -> Vec<Digest> {
            let hashes = plan.nodes().iter().map(|node| {
                let row = usize::try_from(node.seq()).unwrap() - 1;
                self.rows[row].get(*node).unwrap()
            });
            plan.prove(&hashes.collect::<Vec<_>>()).unwrap()
        }
    }

    /// Two reads for each bit of the size, at the very most.
    fn most(size: u64) -> usize {
        2 * (64 - size.leading_zeros() as usize)
    }

    #[test]
    fn every_proof_of_every_tree_up_to_300_is_that_of_the_definition() {
        let tree = Definition::of(300);
        let stored = Stored::of(&tree.leaves);
        for size in 1..=300_usize {
            let of = size as u64;
            let root = stored.prove(&ProofPlan::root(of).unwrap());
            assert_eq!(root, [tree.root(0..size)]);
            for index in 0..size {
                let plan = ProofPlan::inclusion(index as u64, of).unwrap();
                assert!(plan.nodes().len() <= most(of), "{index} {size}");
                assert_eq!(stored.prove(&plan), tree.path(index, 0..size), "{index} {size}");
            }
            for from in 1..=size {
                let plan = ProofPlan::consistency(from as u64, of).unwrap();
                assert!(plan.nodes().len() <= most(of), "{from} {size}");
                assert_eq!(stored.prove(&plan), tree.consistency(from, size), "{from} {size}");
            }
        }
    }

    #[test]
    fn a_proof_in_a_tree_of_ten_million_reads_some_dozens_of_hashes() {
        let size = 10_000_000;
        let inclusion = ProofPlan::inclusion(4_812, size).unwrap();
        assert_eq!((inclusion.nodes().len(), inclusion.parts.len()), (30, 24));
        let consistency = ProofPlan::consistency(9_999_000, size).unwrap();
        assert_eq!((consistency.nodes().len(), consistency.parts.len()), (15, 14));
        assert_eq!(ProofPlan::root(size).unwrap().nodes().len(), 8);
    }

    #[test]
    fn what_cannot_be_proven_is_refused() {
        let not_included = Unprovable::NotIncluded { index: 3, size: 3 };
        assert_eq!(ProofPlan::inclusion(3, 3), Err(not_included));
        for (from, to) in [(0, 0), (0, 3), (4, 3)] {
            let refusal = Unprovable::NotBefore { from, to };
            assert_eq!(ProofPlan::consistency(from, to), Err(refusal));
        }
        for refused in [
            ProofPlan::root(u64::MAX),
            ProofPlan::inclusion(0, u64::MAX),
            ProofPlan::consistency(1, u64::MAX),
        ] {
            assert_eq!(refused, Err(Unprovable::TooLarge(u64::MAX)));
        }
        let plan = ProofPlan::inclusion(0, 4).unwrap();
        let refusal = Unprovable::WrongCount {
            expected: 2,
            found: 1,
        };
        assert_eq!(plan.prove(&[Digest::ZERO]), Err(refusal));
    }
}
