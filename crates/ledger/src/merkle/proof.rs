//! Whether a proof proves what it is said to: the algorithms of RFC 9162 sections 2.1.3.2 and 2.1.4.2. Making one is the
//! work of [`super::ProofPlan`].

use canon::Digest;

use super::node_hash;

/// Why a proof proves nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ProofFault {
    /// The leaf cannot be in the tree.
    #[error("leaf {index} cannot be in a tree of {size}")]
    NotIncluded {
        /// Which leaf.
        index: u64,
        /// How many the tree has.
        size: u64,
    },
    /// The first tree cannot be a part of the second.
    #[error("a tree of {from} cannot be the beginning of a tree of {to}")]
    NotBefore {
        /// Size of the first tree.
        from: u64,
        /// Size of the second.
        to: u64,
    },
    /// Hashes are missing or superfluous.
    #[error("the proof has {found} hashes, which is not what trees of these sizes need")]
    WrongLength {
        /// How many hashes it has.
        found: usize,
    },
    /// It leads to another root.
    #[error("the proof leads to the root `{found}`, not to `{expected}`")]
    WrongRoot {
        /// The root it must lead to.
        expected: Digest,
        /// The root it leads to.
        found: Digest,
    },
}

/// The root that a leaf and its proof lead to.
///
/// # Errors
/// `NotIncluded`, `WrongLength`.
pub fn inclusion_root(index: u64, size: u64, leaf: &Digest, proof: &[Digest]) -> Result<Digest, ProofFault> {
    if index >= size {
        return Err(ProofFault::NotIncluded { index, size });
    }
    let mut climb = Climb {
        from: index,
        to: size - 1,
    };
    let mut root = *leaf;
    for hash in proof {
        root = match climb.step(proof.len())? {
            Side::Left => node_hash(hash, &root),
            Side::Right => node_hash(&root, hash),
        };
    }
    climb.finish(proof.len())?;
    Ok(root)
}

/// Checks that a leaf is in the tree with this root.
///
/// # Errors
/// The proof does not prove it.
pub fn verify_inclusion(
    index: u64,
    size: u64,
    leaf: &Digest,
    proof: &[Digest],
    root: &Digest,
) -> Result<(), ProofFault> {
    same(root, &inclusion_root(index, size, leaf, proof)?)
}

/// Checks that one tree, of a size and root, is the beginning of another.
///
/// # Errors
/// The proof does not prove it. From a tree without leaves there is no proof: it is the beginning of every tree.
pub fn verify_consistency(
    from: (u64, &Digest),
    to: (u64, &Digest),
    proof: &[Digest],
) -> Result<(), ProofFault> {
    let ((from, from_root), (to, to_root)) = (from, to);
    if from == 0 || from > to {
        return Err(ProofFault::NotBefore { from, to });
    }
    let wrong_length = ProofFault::WrongLength { found: proof.len() };
    if from == to {
        if !proof.is_empty() {
            return Err(wrong_length);
        }
        return same(to_root, from_root);
    }
    // A first tree that is one complete subtree is a hash of the proof that nobody has to be told.
    let (start, rest) = if from.is_power_of_two() {
        (from_root, proof)
    } else {
        proof.split_first().ok_or(wrong_length)?
    };
    let last = from - 1;
    let shift = last.trailing_ones();
    let mut climb = Climb {
        from: last >> shift,
        to: (to - 1) >> shift,
    };
    let (mut first, mut second) = (*start, *start);
    for hash in rest {
        match climb.step(proof.len())? {
            Side::Left => {
                first = node_hash(hash, &first);
                second = node_hash(hash, &second);
            }
            Side::Right => second = node_hash(&second, hash),
        }
    }
    climb.finish(proof.len())?;
    same(from_root, &first)?;
    same(to_root, &second)
}

fn same(expected: &Digest, found: &Digest) -> Result<(), ProofFault> {
    if expected == found {
        return Ok(());
    }
    Err(ProofFault::WrongRoot {
        expected: *expected,
        found: *found,
    })
}

/// On which side of what is known a hash of a proof stands.
enum Side {
    Left,
    Right,
}

/// The way up: `fn` and `sn` of RFC 9162, the index of where one is and that of the last node, level by level.
struct Climb {
    from: u64,
    to: u64,
}

impl Climb {
    fn step(&mut self, found: usize) -> Result<Side, ProofFault> {
        if self.to == 0 {
            return Err(ProofFault::WrongLength { found });
        }
        let is_left = self.from & 1 == 1 || self.from == self.to;
        if is_left && self.from & 1 == 0 {
            // The last node has no sibling on these levels.
            let shift = self.from.trailing_zeros().min(63);
            self.from >>= shift;
            self.to >>= shift;
        }
        self.from >>= 1;
        self.to >>= 1;
        Ok(if is_left { Side::Left } else { Side::Right })
    }

    fn finish(&self, found: usize) -> Result<(), ProofFault> {
        if self.to == 0 {
            return Ok(());
        }
        Err(ProofFault::WrongLength { found })
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::{ProofFault, verify_consistency, verify_inclusion};
    use crate::merkle::definition::Definition;

    #[test]
    fn every_inclusion_up_to_300_is_verified_and_no_other() {
        let tree = Definition::of(300);
        for size in 1..=300 {
            let root = tree.root(0..size);
            for index in 0..size {
                let proof = tree.path(index, 0..size);
                let (leaf, at, of) = (tree.leaves[index], index as u64, size as u64);
                assert_eq!(verify_inclusion(at, of, &leaf, &proof, &root), Ok(()));
                let elsewhere = (at + 1) % of;
                if elsewhere != at {
                    assert!(verify_inclusion(elsewhere, of, &leaf, &proof, &root).is_err());
                }
                let longer = [&proof[..], &[leaf]].concat();
                assert!(verify_inclusion(at, of, &leaf, &longer, &root).is_err());
                if let Some((_, shorter)) = proof.split_last() {
                    assert!(verify_inclusion(at, of, &leaf, shorter, &root).is_err());
                }
            }
        }
    }

    #[test]
    fn every_consistency_up_to_300_is_verified_and_no_other() {
        let tree = Definition::of(300);
        let roots: Vec<_> = (0..=300).map(|size| tree.root(0..size)).collect();
        for to in 1..=300 {
            for from in 1..=to {
                let proof = tree.consistency(from, to);
                let verify = |from: usize, root: &Digest, proof: &[Digest]| {
                    verify_consistency((from as u64, root), (to as u64, &roots[to]), proof)
                };
                assert_eq!(verify(from, &roots[from], &proof), Ok(()), "{from} {to}");
                assert!(verify(from, &roots[from - 1], &proof).is_err());
                if from < to {
                    assert!(verify(from + 1, &roots[from], &proof).is_err());
                }
                let longer = [&proof[..], &[tree.leaves[0]]].concat();
                assert!(verify(from, &roots[from], &longer).is_err());
                if let Some((_, shorter)) = proof.split_last() {
                    assert!(verify(from, &roots[from], shorter).is_err());
                }
            }
        }
    }

    #[test]
    fn any_changed_bit_of_a_proof_is_noticed() {
        let tree = Definition::of(21);
        let (first, root, leaf) = (tree.root(0..13), tree.root(0..21), tree.leaves[16]);
        let inclusion = tree.path(16, 0..21);
        let consistency = tree.consistency(13, 21);
        for bit in 0..256 {
            let flip = |hash: &Digest| {
                let mut bytes = *hash.as_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                Digest::from_bytes(bytes)
            };
            for place in 0..inclusion.len() {
                let mut changed = inclusion.clone();
                changed[place] = flip(&changed[place]);
                assert!(verify_inclusion(16, 21, &leaf, &changed, &root).is_err());
            }
            assert!(verify_inclusion(16, 21, &flip(&leaf), &inclusion, &root).is_err());
            for place in 0..consistency.len() {
                let mut changed = consistency.clone();
                changed[place] = flip(&changed[place]);
                assert!(verify_consistency((13, &first), (21, &root), &changed).is_err());
            }
        }
    }

    #[test]
    fn impossible_sizes_are_errors() {
        let root = Digest::of(b"");
        let not_included = ProofFault::NotIncluded { index: 0, size: 0 };
        assert_eq!(verify_inclusion(0, 0, &root, &[], &root), Err(not_included));
        for (from, to) in [(0, 0), (0, 5), (6, 5)] {
            let verified = verify_consistency((from, &root), (to, &root), &[]);
            assert_eq!(verified, Err(ProofFault::NotBefore { from, to }));
        }
        let far = u64::MAX;
        assert!(verify_inclusion(far - 1, far, &root, &[root; 64], &root).is_err());
        assert!(verify_consistency((far - 1, &root), (far, &root), &[root; 64]).is_err());
    }
}
