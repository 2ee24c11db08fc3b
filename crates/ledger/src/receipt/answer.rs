//! An answer that carries its receipt, and what it proves: that the log whose key signed it has recorded this very answer,
//! at this place of this tenant's ledger, at this time by its clock. That the ledger still holds the entry is for a proof
//! against a checkpoint to show.

use canon::{Digest, Limits, canonicalize};

use super::{Receipt, batch_leaf, batch_text};
use crate::Moment;
use crate::encoding;
use crate::merkle::{PROOF_LEN_MAX, ProofFault, inclusion_root};
use crate::reader::{Malformed, Reader};
use crate::trust::{KeySet, PublishedKey};

/// What stands before the value of the receipt, which is the last member of an answer.
const RECEIPT_MEMBER: &str = r#","receipt":"#;
/// Bounds of an answer: a little more than any that a gateway gives.
const ANSWER_LIMITS: Limits = Limits {
    bytes_max: 4 << 20,
    depth_max: 64,
};

/// An answer with its receipt, of which nothing has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedAnswer {
    tenant: String,
    seq: u64,
    at: Moment,
    hash: Digest,
    prev: Digest,
    body: Digest,
    answer: Digest,
    index: u64,
    size: u64,
    path: Vec<Digest>,
    key: String,
    signature: [u8; 64],
}

/// Why a receipt proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReceiptFault {
    /// Two readers could find different things in it, or nothing.
    #[error("the answer is not JSON that has one meaning: {0}")]
    Ambiguous(String),
    /// It does not end with a receipt.
    #[error("the receipt of the answer is not one: {0}")]
    Malformed(#[from] Malformed),
    /// What it says of its entry is not what was hashed.
    #[error("the receipt names the hash `{recorded}`, but what it says of its entry hashes to `{computed}`")]
    Hash {
        /// What it names.
        recorded: Digest,
        /// What its members hash to.
        computed: Digest,
    },
    /// Its path leads nowhere.
    #[error("the path to the batch of the receipt is wrong: {0}")]
    Path(#[from] ProofFault),
    /// Nobody who is known has signed it.
    #[error("the key `{0}` is not one that is trusted")]
    UnknownKey(String),
    /// The key did not sign at that time.
    #[error("the key `{key}` did not sign at {at}")]
    KeyNotValid {
        /// Which key.
        key: String,
        /// When the entry was made.
        at: Moment,
    },
    /// The batch is not what was signed, or the answer is not the one that is in it.
    #[error("the signature of `{0}` is not that of this answer")]
    BadSignature(String),
}

impl SignedAnswer {
    /// Reads the bytes of an answer, exactly as they were sent.
    ///
    /// # Errors
    /// `Ambiguous`, `Malformed`.
    pub fn read(answer: &[u8]) -> Result<Self, ReceiptFault> {
        // So nobody can be shown another value of a member than the next reader finds.
        canonicalize(answer, ANSWER_LIMITS).map_err(|error| ReceiptFault::Ambiguous(error.to_string()))?;
        let malformed = |expected| Malformed { expected, offset: 0 };
        let text = std::str::from_utf8(answer).map_err(|_| malformed("UTF-8"))?;
        let (before, receipt) = text
            .rsplit_once(RECEIPT_MEMBER)
            .ok_or(malformed("`receipt` as the last member"))?;
        let digest = Digest::of_parts(&[before.as_bytes(), b"}"]);
        // The text is JSON and its last brace closes the answer, so the receipt before it is a member of the answer.
        let mut reader = Reader::new(receipt.as_bytes())?;
        let signed = Self::read_receipt(&mut reader, digest)?;
        reader.literal("}")?;
        reader.end()?;
        Ok(signed)
    }

    fn read_receipt(reader: &mut Reader<'_>, answer: Digest) -> Result<Self, Malformed> {
        reader.literal(r#"{"tenant":"#)?;
        let tenant = reader.string()?.into_owned();
        reader.literal(r#","seq":"#)?;
        let seq = reader.integer()?;
        reader.literal(r#","at":"#)?;
        let not_a_time = reader.malformed("a time");
        let at = reader.string()?.parse().map_err(|_| not_a_time)?;
        reader.literal(r#","hash":"#)?;
        let hash = reader.digest()?;
        reader.literal(r#","prev_hash":"#)?;
        let prev = reader.digest()?;
        reader.literal(r#","body_hash":"#)?;
        let body = reader.digest()?;
        reader.literal(r#","batch":{"index":"#)?;
        let index = reader.integer()?;
        reader.literal(r#","size":"#)?;
        let size = reader.integer()?;
        reader.literal(r#","path":"#)?;
        let path = reader.hashes(PROOF_LEN_MAX)?;
        reader.literal(r#","key":"#)?;
        let key = reader.string()?.into_owned();
        reader.literal(r#","signature":"#)?;
        let not_a_signature = reader.malformed("a signature");
        let signature = encoding::decode_array(&reader.string()?).ok_or(not_a_signature)?;
        reader.literal("}}")?;
        Ok(Self {
            tenant,
            seq,
            at,
            hash,
            prev,
            body,
            answer,
            index,
            size,
            path,
            key,
            signature,
        })
    }

    /// What it says of its entry.
    pub fn receipt(&self) -> Receipt<'_> {
        Receipt {
            tenant: &self.tenant,
            seq: self.seq,
            at: self.at.as_str(),
            hash: self.hash,
            prev: self.prev,
            body: self.body,
        }
    }

    /// When it was recorded.
    pub const fn at(&self) -> Moment {
        self.at
    }

    /// SHA-256 of the answer without its receipt: what the body of the entry names as `answer_hash`.
    pub const fn answer_hash(&self) -> Digest {
        self.answer
    }

    /// Name and id of the key that is said to have signed it.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Checks the receipt against the keys of a log. For many receipts, [`ReceiptVerifier`] is faster.
    ///
    /// # Errors
    /// It proves nothing.
    pub fn verify(&self, keys: &KeySet) -> Result<(), ReceiptFault> {
        ReceiptVerifier::new(keys).verify(self)
    }

    /// Checks all that needs no key: that it names the hash of what it says of its entry, and that its path leads to a root.
    ///
    /// # Errors
    /// It would prove nothing, whoever signed it.
    pub fn check_path(&self) -> Result<(), ReceiptFault> {
        self.root().map(drop)
    }

    /// The root of its batch.
    fn root(&self) -> Result<Digest, ReceiptFault> {
        let computed = self.receipt().header().hash(&mut String::new());
        if computed != self.hash {
            return Err(ReceiptFault::Hash {
                recorded: self.hash,
                computed,
            });
        }
        let leaf = batch_leaf(&self.hash, &self.answer);
        Ok(inclusion_root(self.index, self.size, &leaf, &self.path)?)
    }
}

/// Checks receipts, and the signature of a batch once for all receipts of it that come one after the other.
#[derive(Debug)]
pub struct ReceiptVerifier<'k> {
    keys: &'k KeySet,
    /// The last signature that was right.
    last: Option<Seen>,
}

#[derive(Debug, PartialEq, Eq)]
struct Seen {
    size: u64,
    root: Digest,
    key: String,
    signature: [u8; 64],
}

impl<'k> ReceiptVerifier<'k> {
    /// A verifier that trusts these keys.
    pub const fn new(keys: &'k KeySet) -> Self {
        Self { keys, last: None }
    }

    /// Checks a receipt.
    ///
    /// # Errors
    /// It proves nothing.
    pub fn verify(&mut self, answer: &SignedAnswer) -> Result<(), ReceiptFault> {
        let root = answer.root()?;
        let key = self.key_of(answer)?;
        let seen = Seen {
            size: answer.size,
            root,
            key: answer.key.clone(),
            signature: answer.signature,
        };
        if self.last.as_ref() == Some(&seen) {
            return Ok(());
        }
        let text = batch_text(answer.size, &root);
        if !key.vkey.has_signed(text.as_bytes(), &answer.signature) {
            return Err(ReceiptFault::BadSignature(answer.key.clone()));
        }
        self.last = Some(seen);
        Ok(())
    }

    fn key_of(&self, answer: &SignedAnswer) -> Result<&'k PublishedKey, ReceiptFault> {
        let key = self.keys.find(&answer.key);
        let key = key.ok_or_else(|| ReceiptFault::UnknownKey(answer.key.clone()))?;
        if !key.is_valid_at(answer.at) {
            return Err(ReceiptFault::KeyNotValid {
                key: answer.key.clone(),
                at: answer.at,
            });
        }
        Ok(key)
    }
}
