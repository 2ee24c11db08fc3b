//! The batch of a commit: one tree over its answers, one signature. Whose answers stand beside each other does not matter:
//! a path shows hashes only, and what is hashed cannot be guessed, because each entry covers all those before it.

use canon::{Digest, write_string};

use super::{Receipt, batch_leaf, batch_text};
use crate::encoding;
use crate::entry::write_decimal;
use crate::key::SigningKey;
use crate::merkle::node_hash;

/// Answers that wait for the signature of their commit.
#[derive(Debug, Clone, Default)]
pub struct ReceiptBatch {
    leaves: Vec<Digest>,
}

/// A batch with its signature.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBatch {
    /// The tree from the leaves to the root. A node without a sibling goes up as it is.
    levels: Vec<Vec<Digest>>,
    /// Name and id of the key.
    key: String,
    signature: [u8; 64],
}

impl ReceiptBatch {
    /// Adds an answer: the hash of its entry, and the SHA-256 of the answer without its receipt. Returns its place.
    pub fn push(&mut self, entry: &Digest, answer: &Digest) -> usize {
        self.leaves.push(batch_leaf(entry, answer));
        self.leaves.len() - 1
    }

    /// Signs the batch; `None` if there is no answer in it.
    pub fn seal(self, key: &SigningKey) -> Option<SealedBatch> {
        let size = u64::try_from(self.leaves.len()).ok().filter(|size| *size > 0)?;
        let mut levels = vec![self.leaves];
        while let Some(below) = levels.last().filter(|level| level.len() > 1) {
            let above = below.chunks(2).map(|pair| match pair {
                [left, right] => node_hash(left, right),
                alone => alone[0],
            });
            levels.push(above.collect());
        }
        let root = levels.last()?.first()?;
        let signature = key.sign(batch_text(size, root).as_bytes());
        Some(SealedBatch {
            key: key.verifier().label(),
            signature,
            levels,
        })
    }
}

impl SealedBatch {
    /// How many answers are in it.
    pub fn size(&self) -> usize {
        self.levels[0].len()
    }

    /// The path from an answer to the root: RFC 6962 section 2.1.1.
    pub fn path(&self, index: usize) -> impl Iterator<Item = &Digest> {
        let levels = self.levels.iter().enumerate();
        levels.filter_map(move |(level, nodes)| nodes.get((index >> level) ^ 1))
    }

    /// Appends the value of the member `receipt` for the answer at `index`, which must be one that `push` returned.
    pub fn write_receipt(&self, index: usize, receipt: &Receipt<'_>, out: &mut String) {
        debug_assert!(index < self.size(), "the batch has no answer {index}");
        receipt.write_to(out);
        out.push_str(r#","batch":{"index":"#);
        write_decimal(out, index as u64);
        out.push_str(r#","size":"#);
        write_decimal(out, self.size() as u64);
        out.push_str(r#","path":["#);
        for (place, hash) in self.path(index).enumerate() {
            out.push_str(if place == 0 { "\"" } else { ",\"" });
            encoding::encode_to(out, hash.as_bytes());
            out.push('"');
        }
        out.push_str(r#"],"key":"#);
        write_string(out, &self.key);
        out.push_str(r#","signature":""#);
        encoding::encode_to(out, &self.signature);
        out.push_str("\"}}");
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::{ReceiptBatch, batch_leaf};
    use crate::merkle::{Frontier, inclusion_root};
    use crate::{SignatureKind, SigningKey};

    #[test]
    fn every_path_of_every_batch_up_to_100_leads_to_the_root_of_the_tree() {
        let key = SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).unwrap();
        let mut all = ReceiptBatch::default();
        let mut tree = Frontier::EMPTY;
        assert_eq!(all.clone().seal(&key), None);
        for size in 1..=100_u64 {
            let (entry, answer) = (Digest::of(&size.to_be_bytes()), Digest::of(b"answer"));
            assert_eq!(all.push(&entry, &answer) as u64, size - 1);
            tree.extend(batch_leaf(&entry, &answer));
            let sealed = all.clone().seal(&key).unwrap();
            assert_eq!(sealed.size() as u64, size);
            for (index, leaf) in (0..size).zip(&all.leaves) {
                let path: Vec<_> = sealed.path(usize::try_from(index).unwrap()).copied().collect();
                assert_eq!(
                    inclusion_root(index, size, leaf, &path),
                    Ok(tree.root()),
                    "{index} {size}"
                );
            }
        }
    }
}
