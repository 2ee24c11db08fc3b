//! The chain: each entry names the hash of the one before, so nothing can be changed behind the head.

use canon::{Digest, ObjectWriter};

/// Where a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The number of the last entry; 0 before the first.
    pub seq: u64,
    /// Its hash; zero before the first.
    pub hash: Digest,
}

impl Head {
    /// The end of a chain that has no entries yet.
    pub const GENESIS: Self = Self {
        seq: 0,
        hash: Digest::ZERO,
    };
}

/// Links an entry behind `head`. `scratch` is where its header is written.
pub fn link(head: &Head, tenant: &str, kind: &str, at: &str, body: &Digest, scratch: &mut String) -> Head {
    let seq = head.seq + 1;
    let mut header = ObjectWriter::reusing(std::mem::take(scratch));
    header.string("at", at);
    header.digest("body", body);
    header.string("kind", kind);
    header.digest("prev", &head.hash);
    header.unsigned("seq", seq);
    header.string("tenant", tenant);
    header.unsigned("v", 1);
    let header = header.finish();
    let hash = header.digest();
    *scratch = header.into_string();
    Head { seq, hash }
}
