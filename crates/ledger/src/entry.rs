//! The header of an entry, its hash, and the head it leads to. What an entry is about stands in its body, of which
//! only the digest is seen here.

use canon::{Digest, write_string};
use serde::{Deserialize, Serialize};

/// Where a chain ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    /// `seq` of the last entry; 0 if there is none.
    pub seq: u64,
    /// Hash of the last entry; zero if there is none.
    pub hash: Digest,
}

impl Head {
    /// The end of a chain that has no entry.
    pub const GENESIS: Self = Self {
        seq: 0,
        hash: Digest::ZERO,
    };
}

/// What the hash of an entry covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryHeader<'a> {
    /// Whose chain it is.
    pub tenant: &'a str,
    /// Place in the chain, from 1.
    pub seq: u64,
    /// What kind of thing happened, such as `decision.recorded`.
    pub kind: &'a str,
    /// When it was recorded: RFC 3339, UTC, with milliseconds.
    pub at: &'a str,
    /// Hash of the entry before; zero for the first.
    pub prev: Digest,
    /// SHA-256 of the canonical body.
    pub body: Digest,
}

impl EntryHeader<'_> {
    /// Appends the canonical JSON of the header. The layout is fixed, so nothing is sorted: the keys stand in
    /// canonical order here.
    pub fn write_to(&self, out: &mut String) {
        out.push_str(r#"{"at":"#);
        write_string(out, self.at);
        out.push_str(r#","body":""#);
        self.body.write_to(out);
        out.push_str(r#"","kind":"#);
        write_string(out, self.kind);
        out.push_str(r#","prev":""#);
        self.prev.write_to(out);
        out.push_str(r#"","seq":"#);
        write_decimal(out, self.seq);
        out.push_str(r#","tenant":"#);
        write_string(out, self.tenant);
        out.push_str(r#","v":1}"#);
    }

    /// The hash of the entry. `scratch` is memory to write the header in; the header is left there.
    pub fn hash(&self, scratch: &mut String) -> Digest {
        scratch.clear();
        self.write_to(scratch);
        Digest::of(scratch.as_bytes())
    }

    /// The hash of the entry, and that of its leaf in the tree. `scratch` is memory to write in.
    pub fn hash_and_leaf(&self, scratch: &mut String) -> (Digest, Digest) {
        // A leaf has a zero byte before it. With both in one buffer, neither is hashed piecemeal.
        scratch.clear();
        scratch.push('\0');
        self.write_to(scratch);
        let leaf = scratch.as_bytes();
        (Digest::of(&leaf[1..]), Digest::of(leaf))
    }
}

/// The head after one more entry. Its `prev` is the hash of `head`, its hash that of the new head.
pub fn link(head: &Head, tenant: &str, kind: &str, at: &str, body: &Digest, scratch: &mut String) -> Head {
    let seq = head.seq + 1;
    let header = EntryHeader {
        tenant,
        seq,
        kind,
        at,
        prev: head.hash,
        body: *body,
    };
    Head {
        seq,
        hash: header.hash(scratch),
    }
}

/// Decimal digits without the formatting machinery, which costs as much as the rest of the header.
pub(crate) fn write_decimal(out: &mut String, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + u8::try_from(value % 10).expect("a digit is below 10");
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.push_str(std::str::from_utf8(&digits[at..]).expect("digits are ASCII"));
}

#[cfg(test)]
mod tests {
    use canon::Digest;
    use proptest::prelude::*;

    use super::{EntryHeader, Head, link};

    fn header<'a>(tenant: &'a str, kind: &'a str) -> EntryHeader<'a> {
        EntryHeader {
            tenant,
            seq: 1,
            kind,
            at: "2026-07-01T12:00:00.000Z",
            prev: Digest::ZERO,
            body: Digest::of(b"{}"),
        }
    }

    fn text(header: &EntryHeader<'_>) -> String {
        let mut text = String::new();
        header.write_to(&mut text);
        text
    }

    #[test]
    fn the_header_is_the_documented_text() {
        let expected = concat!(
            r#"{"at":"2026-07-01T12:00:00.000Z","#,
            r#""body":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","#,
            r#""kind":"tenant.created","#,
            r#""prev":"sha256:0000000000000000000000000000000000000000000000000000000000000000","#,
            r#""seq":1,"tenant":"tnt_00000000000000000000000000","v":1}"#,
        );
        assert_eq!(
            text(&header("tnt_00000000000000000000000000", "tenant.created")),
            expected
        );
    }

    #[test]
    fn a_head_is_written_as_an_object_with_two_members() {
        let json = serde_json::to_string(&Head::GENESIS).unwrap();
        assert_eq!(json, format!(r#"{{"seq":0,"hash":"sha256:{}"}}"#, "0".repeat(64)));
        assert_eq!(serde_json::from_str::<Head>(&json).unwrap(), Head::GENESIS);
    }

    #[test]
    fn every_part_of_an_entry_changes_its_hash() {
        let mut scratch = String::new();
        let body = Digest::of(b"{}");
        let base = link(&Head::GENESIS, "t", "k", "now", &body, &mut scratch);
        let later = Head {
            seq: 1,
            hash: Digest::ZERO,
        };
        let other = Head { seq: 0, hash: body };
        for changed in [
            link(&later, "t", "k", "now", &body, &mut scratch),
            link(&other, "t", "k", "now", &body, &mut scratch),
            link(&Head::GENESIS, "u", "k", "now", &body, &mut scratch),
            link(&Head::GENESIS, "t", "l", "now", &body, &mut scratch),
            link(&Head::GENESIS, "t", "k", "then", &body, &mut scratch),
            link(&Head::GENESIS, "t", "k", "now", &Digest::ZERO, &mut scratch),
        ] {
            assert_ne!(changed.hash, base.hash);
        }
    }

    proptest! {
        #[test]
        fn a_header_is_canonical_json(tenant: String, kind: String, at: String, seq in 0..1_u64 << 53) {
            let header = EntryHeader { seq, at: &at, ..header(&tenant, &kind) };
            let text = text(&header);
            let limits = canon::Limits { bytes_max: usize::MAX, depth_max: 1 };
            let canonical = canon::canonicalize(text.as_bytes(), limits).unwrap();
            prop_assert_eq!(canonical.as_str(), &text);
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            prop_assert_eq!(value["tenant"].as_str(), Some(&*tenant));
            prop_assert_eq!(value["seq"].as_u64(), Some(seq));
        }
    }
}
