//! The Merkle tree over a tenant's entries: RFC 6962 section 2.1 (RFC 9162 section 2.1.1) with SHA-256.
//!
//! A leaf is the canonical header of an entry. What is kept of the tree is [`Completed`]: with each entry the hashes of
//! the subtrees that it completes, which is two a entry on average. So every complete subtree is found at one entry, and
//! a root or a proof of any size takes a number of reads that grows with the logarithm of the size ([`ProofPlan`]).
//! Whoever appends holds a [`Frontier`] and reads nothing.

mod completed;
mod frontier;
mod node;
mod plan;
mod proof;

pub use completed::Completed;
pub use frontier::Frontier;
pub use node::NodeId;
pub use plan::{ProofPlan, Unprovable};
pub use proof::{ProofFault, inclusion_root, verify_consistency, verify_inclusion};

use canon::Digest;

/// Most entries of a tree. A size is a JSON number too, and no reader holds larger ones exactly.
pub const TREE_SIZE_MAX: u64 = (1 << 53) - 1;
/// Most hashes in a proof, and most subtrees in the edge of a tree.
pub const PROOF_LEN_MAX: usize = 53;

/// The hash of a leaf.
pub fn leaf_hash(leaf: &[u8]) -> Digest {
    // In one buffer, because a hash of parts copies block by block; on the stack, because headers are short.
    let mut bytes = [0; 512];
    match bytes.get_mut(1..=leaf.len()) {
        Some(place) => {
            place.copy_from_slice(leaf);
            Digest::of(&bytes[..=leaf.len()])
        }
        None => Digest::of_parts(&[&[0], leaf]),
    }
}

/// The hash of two subtrees that stand beside each other.
pub fn node_hash(left: &Digest, right: &Digest) -> Digest {
    // One buffer, not three parts: this is the inner loop of everything.
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(left.as_bytes());
    bytes[33..].copy_from_slice(right.as_bytes());
    Digest::of(&bytes)
}

/// The hash as notes and proofs write it: in base64.
pub fn hash_text(hash: &Digest) -> String {
    crate::encoding::encode(hash.as_bytes())
}

/// The root of a tree whose complete subtrees are these, from the largest and leftmost on.
fn fold(subtrees: &[Digest]) -> Digest {
    let mut smallest_first = subtrees.iter().rev();
    let Some(last) = smallest_first.next() else {
        return Digest::of(b"");
    };
    smallest_first.fold(*last, |right, left| node_hash(left, &right))
}

#[cfg(test)]
mod definition;
