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

/// A batch with its signature. Whatever several receipts have in common is text already.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedBatch {
    size: usize,
    /// The nodes of the tree below the root, level by level from the leaves up, each in base64.
    levels: Vec<Vec<HashText>>,
    /// What stands behind the path.
    seal: String,
}

/// A hash in base64, in its quotes.
type HashText = [u8; 46];

impl ReceiptBatch {
    /// Adds an answer: the hash of its entry, and the SHA-256 of the answer without its receipt. Returns its place.
    pub fn push(&mut self, entry: &Digest, answer: &Digest) -> usize {
        self.leaves.push(batch_leaf(entry, answer));
        self.leaves.len() - 1
    }

    /// Signs the batch; `None` if there is no answer in it.
    pub fn seal(self, key: &SigningKey) -> Option<SealedBatch> {
        let size = self.leaves.len();
        let mut levels = Vec::new();
        let mut nodes = self.leaves;
        while nodes.len() > 1 {
            levels.push(nodes.iter().map(quoted).collect());
            // A node without a sibling goes up as it is.
            let pairs = nodes.chunks(2).map(|pair| match pair {
                [left, right] => node_hash(left, right),
                alone => alone[0],
            });
            nodes = pairs.collect();
        }
        let signature = key.sign(batch_text(size as u64, nodes.first()?).as_bytes());
        let mut seal = String::from(r#"],"key":"#);
        write_string(&mut seal, &key.verifier().label());
        seal.push_str(r#","signature":""#);
        encoding::encode_to(&mut seal, &signature);
        seal.push_str("\"}}");
        Some(SealedBatch { size, levels, seal })
    }
}

fn quoted(hash: &Digest) -> HashText {
    let mut text = [b'"'; 46];
    encoding::encode_hash(hash, &mut text[1..45]);
    text
}

impl SealedBatch {
    /// How many answers are in it.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// The path from an answer to the root: RFC 6962 section 2.1.1.
    fn path(&self, index: usize) -> impl Iterator<Item = &HashText> {
        let levels = self.levels.iter().enumerate();
        levels.filter_map(move |(level, nodes)| nodes.get((index >> level) ^ 1))
    }

    /// Appends the value of the member `receipt` for the answer at `index`, which must be one that `push` returned.
    pub fn write_receipt(&self, index: usize, receipt: &Receipt<'_>, out: &mut String) {
        debug_assert!(index < self.size, "the batch has no answer {index}");
        receipt.write_to(out);
        out.push_str(r#","batch":{"index":"#);
        write_decimal(out, index as u64);
        out.push_str(r#","size":"#);
        write_decimal(out, self.size as u64);
        out.push_str(r#","path":["#);
        for (place, hash) in self.path(index).enumerate() {
            if place > 0 {
                out.push(',');
            }
            out.push_str(std::str::from_utf8(hash).expect("base64 is ASCII"));
        }
        out.push_str(&self.seal);
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::{ReceiptBatch, batch_leaf};
    use crate::encoding::decode_hash;
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
                let path = sealed.path(usize::try_from(index).unwrap());
                let path =
                    path.map(|quoted| decode_hash(std::str::from_utf8(&quoted[1..45]).unwrap()).unwrap());
                let path: Vec<_> = path.collect();
                assert_eq!(
                    inclusion_root(index, size, leaf, &path),
                    Ok(tree.root()),
                    "{index} {size}"
                );
            }
        }
    }
}
