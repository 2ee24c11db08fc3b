//! Receipts that verify at once: what stands at the end of an answer, and what it proves to whoever has the log's key.
//!
//! One signature covers a whole commit: it is made of the root of a tree over the answers of the commit
//! ([`ReceiptBatch`]), and each receipt brings the path from its own answer to that root ([`SignedAnswer`]).

mod answer;
mod batch;

pub use answer::{ReceiptFault, ReceiptVerifier, SignedAnswer};
pub use batch::{ReceiptBatch, SealedBatch};

use canon::{Digest, write_string};

use crate::EntryHeader;
use crate::encoding;
use crate::entry::write_decimal;
use crate::merkle::leaf_hash;

/// The kind of the entries that have a receipt.
pub const RECEIPT_KIND: &str = "decision";

/// Which entry an answer is recorded in: all that the entry's header says, and its hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Receipt<'a> {
    /// Whose ledger.
    pub tenant: &'a str,
    /// The entry's place.
    pub seq: u64,
    /// When it was recorded: RFC 3339, UTC, with milliseconds.
    pub at: &'a str,
    /// Its hash.
    pub hash: Digest,
    /// The hash of the entry before.
    pub prev: Digest,
    /// SHA-256 of its body.
    pub body: Digest,
}

impl<'a> Receipt<'a> {
    /// The header of the entry: what its hash and its leaf in the tenant's tree are made of.
    pub const fn header(&self) -> EntryHeader<'a> {
        EntryHeader {
            tenant: self.tenant,
            seq: self.seq,
            kind: RECEIPT_KIND,
            at: self.at,
            prev: self.prev,
            body: self.body,
        }
    }

    /// The hash of the entry's leaf in the tenant's tree: what an inclusion proof is about.
    pub fn leaf(&self) -> Digest {
        let mut header = String::new();
        self.header().write_to(&mut header);
        leaf_hash(header.as_bytes())
    }

    /// Appends the members up to the batch.
    fn write_to(&self, out: &mut String) {
        out.push_str(r#"{"tenant":"#);
        write_string(out, self.tenant);
        out.push_str(r#","seq":"#);
        write_decimal(out, self.seq);
        out.push_str(r#","at":"#);
        write_string(out, self.at);
        for (member, digest) in [
            (r#","hash":""#, &self.hash),
            (r#"","prev_hash":""#, &self.prev),
            (r#"","body_hash":""#, &self.body),
        ] {
            out.push_str(member);
            digest.write_to(out);
        }
        out.push('"');
    }
}

/// The leaf of an answer in its batch: it binds the entry and the answer to each other.
fn batch_leaf(entry: &Digest, answer: &Digest) -> Digest {
    let mut bytes = [0; 65];
    bytes[1..33].copy_from_slice(entry.as_bytes());
    bytes[33..].copy_from_slice(answer.as_bytes());
    Digest::of(&bytes)
}

/// What the signature of a batch covers: the text of a note that no reader takes for a checkpoint, because its second
/// line is not a number.
fn batch_text(size: u64, root: &Digest) -> String {
    let mut text = String::from("countersign-receipts/v1\nsize ");
    write_decimal(&mut text, size);
    text.push_str("\nroot ");
    encoding::encode_to(&mut text, root.as_bytes());
    text.push('\n');
    text
}
