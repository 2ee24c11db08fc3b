//! One line of an export: `{"header":{…},"hash":"sha256:…","body":{…}}`, where an erased body is `null`.
//!
//! The layout is fixed to the byte. A line that another program has formatted anew is refused, not guessed at: the
//! hashes cover bytes. Whether the hashes are right is the verifier's question.

use std::borrow::Cow;
use std::ops::Range;

use canon::{Digest, write_string};

use crate::EntryHeader;

/// Bytes of a digest in its text form.
const DIGEST_LEN: usize = 71;

/// An entry as it is stored or exported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// What the hash covers.
    pub header: EntryHeader<'a>,
    /// The hash that was recorded.
    pub hash: Digest,
    /// The canonical body; `None` if it has been erased.
    pub body: Option<&'a str>,
}

impl Entry<'_> {
    /// Appends the entry as one line, newline included.
    pub fn write_line(&self, out: &mut String) {
        out.push_str(r#"{"header":"#);
        self.header.write_to(out);
        out.push_str(r#","hash":""#);
        self.hash.write_to(out);
        out.push_str(r#"","body":"#);
        out.push_str(self.body.unwrap_or("null"));
        out.push_str("}\n");
    }
}

/// A line that is not one of an export.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line is not that of an export: expected {expected} at byte {offset}")]
pub struct Malformed {
    /// What should stand there.
    pub expected: &'static str,
    /// Byte of the line, from 0.
    pub offset: usize,
}

/// A line that has been read: it has the layout of an export, and every digest in it is a digest.
pub(crate) struct Line<'l> {
    text: &'l str,
    header: Range<usize>,
    tenant: Cow<'l, str>,
    seq: u64,
    kind: Cow<'l, str>,
    at: Cow<'l, str>,
    prev: Digest,
    body_digest: Digest,
    hash: Digest,
    body: Option<&'l str>,
}

impl<'l> Line<'l> {
    /// Reads a line, with or without its newline.
    pub(crate) fn read(line: &'l [u8]) -> Result<Self, Malformed> {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let text = std::str::from_utf8(line).map_err(|error| Malformed {
            expected: "UTF-8",
            offset: error.valid_up_to(),
        })?;
        let mut reader = Reader { text, offset: 0 };
        reader.literal(r#"{"header":"#)?;
        let start = reader.offset;
        reader.literal(r#"{"at":"#)?;
        let at = reader.string()?;
        reader.literal(r#","body":"#)?;
        let body_digest = reader.digest()?;
        reader.literal(r#","kind":"#)?;
        let kind = reader.string()?;
        reader.literal(r#","prev":"#)?;
        let prev = reader.digest()?;
        reader.literal(r#","seq":"#)?;
        let seq = reader.integer()?;
        reader.literal(r#","tenant":"#)?;
        let tenant = reader.string()?;
        reader.literal(r#","v":1}"#)?;
        let header = start..reader.offset;
        reader.literal(r#","hash":"#)?;
        let hash = reader.digest()?;
        reader.literal(r#","body":"#)?;
        let body = reader.body()?;
        Ok(Self {
            text,
            header,
            tenant,
            seq,
            kind,
            at,
            prev,
            body_digest,
            hash,
            body,
        })
    }

    /// The exact bytes of the header.
    pub(crate) fn header_bytes(&self) -> &'l [u8] {
        &self.text.as_bytes()[self.header.clone()]
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        let header = EntryHeader {
            tenant: &self.tenant,
            seq: self.seq,
            kind: &self.kind,
            at: &self.at,
            prev: self.prev,
            body: self.body_digest,
        };
        Entry {
            header,
            hash: self.hash,
            body: self.body,
        }
    }
}

struct Reader<'l> {
    text: &'l str,
    offset: usize,
}

impl<'l> Reader<'l> {
    fn rest(&self) -> &'l str {
        &self.text[self.offset..]
    }

    fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            expected,
            offset: self.offset,
        }
    }

    fn literal(&mut self, expected: &'static str) -> Result<(), Malformed> {
        if !self.rest().starts_with(expected) {
            return Err(self.malformed(expected));
        }
        self.offset += expected.len();
        Ok(())
    }

    fn digest(&mut self) -> Result<Digest, Malformed> {
        let refusal = self.malformed("a digest");
        let quoted = self.rest().get(..DIGEST_LEN + 2);
        let text = quoted.and_then(|quoted| quoted.strip_prefix('"')?.strip_suffix('"'));
        let digest = text.and_then(|text| text.parse().ok()).ok_or(refusal)?;
        self.offset += DIGEST_LEN + 2;
        Ok(digest)
    }

    /// An integer as canonical JSON writes it.
    fn integer(&mut self) -> Result<u64, Malformed> {
        let rest = self.rest();
        let len = rest
            .bytes()
            .position(|byte| !byte.is_ascii_digit())
            .unwrap_or(rest.len());
        let padded = len > 1 && rest.starts_with('0');
        let value = rest[..len].parse().ok().filter(|_| !padded);
        let value = value.ok_or_else(|| self.malformed("an integer"))?;
        self.offset += len;
        Ok(value)
    }

    /// A string as canonical JSON writes it.
    fn string(&mut self) -> Result<Cow<'l, str>, Malformed> {
        let refusal = self.malformed("a canonical string");
        let Some(rest) = self.rest().strip_prefix('"') else {
            return Err(refusal);
        };
        let Some(len) = rest.find(['"', '\\']) else {
            return Err(refusal);
        };
        let plain = &rest[..len];
        if rest.as_bytes()[len] == b'"' && !plain.bytes().any(|byte| byte < b' ') {
            self.offset += len + 2;
            return Ok(Cow::Borrowed(plain));
        }
        let mut values = serde_json::Deserializer::from_str(self.rest()).into_iter::<String>();
        let Some(Ok(text)) = values.next() else {
            return Err(refusal);
        };
        let len = values.byte_offset();
        let mut canonical = String::with_capacity(len);
        write_string(&mut canonical, &text);
        if canonical != self.rest()[..len] {
            return Err(refusal);
        }
        self.offset += len;
        Ok(Cow::Owned(text))
    }

    /// The rest of the line: an object or `null`, and the brace that closes the line. That the object is canonical is
    /// checked with its digest.
    fn body(&mut self) -> Result<Option<&'l str>, Malformed> {
        let Some(body) = self.rest().strip_suffix('}') else {
            self.offset = self.text.len();
            return Err(self.malformed("`}`"));
        };
        match body.as_bytes() {
            b"null" => Ok(None),
            [b'{', .., b'}'] => Ok(Some(body)),
            _ => Err(self.malformed("an object or null")),
        }
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;
    use proptest::prelude::*;

    use super::{Entry, Line};
    use crate::EntryHeader;

    const LINE: &str = concat!(
        r#"{"header":{"at":"2026-07-01T12:00:00.000Z","#,
        r#""body":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","#,
        r#""kind":"tenant.created","#,
        r#""prev":"sha256:0000000000000000000000000000000000000000000000000000000000000000","#,
        r#""seq":1,"tenant":"tnt_1","v":1},"#,
        r#""hash":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","body":{}}"#,
    );

    fn entry<'a>(tenant: &'a str, kind: &'a str, body: Option<&'a str>) -> Entry<'a> {
        let empty = Digest::of(b"{}");
        let at = "2026-07-01T12:00:00.000Z";
        let header = EntryHeader {
            tenant,
            seq: 1,
            kind,
            at,
            prev: Digest::ZERO,
            body: empty,
        };
        Entry {
            header,
            hash: empty,
            body,
        }
    }

    fn line(entry: &Entry<'_>) -> String {
        let mut line = String::new();
        entry.write_line(&mut line);
        line
    }

    fn refusal(line: &str) -> String {
        Line::read(line.as_bytes())
            .err()
            .expect("not a line of an export")
            .to_string()
    }

    #[test]
    fn an_entry_is_the_documented_line() {
        let entry = entry("tnt_1", "tenant.created", Some("{}"));
        assert_eq!(line(&entry), format!("{LINE}\n"));
        assert_eq!(Line::read(LINE.as_bytes()).unwrap().entry(), entry);
    }

    #[test]
    fn an_erased_body_is_null() {
        let entry = entry("tnt_1", "tenant.created", None);
        assert!(line(&entry).ends_with(",\"body\":null}\n"));
        assert_eq!(Line::read(line(&entry).as_bytes()).unwrap().entry(), entry);
    }

    #[test]
    fn a_line_in_another_layout_is_refused() {
        let prefix = "line is not that of an export: expected";
        for (from, to, expected) in [
            ("{\"header\"", "{ \"header\"", "{\"header\": at byte 0"),
            ("\"seq\":1", "\"seq\":01", "an integer at byte 235"),
            ("\"seq\":1", "\"seq\":-1", "an integer at byte 235"),
            ("\"seq\":1", "\"seq\":1.0", ",\"tenant\": at byte 236"),
            (
                "\"seq\":1",
                "\"seq\":99999999999999999999",
                "an integer at byte 235",
            ),
            ("\"v\":1", "\"v\":2", ",\"v\":1} at byte 253"),
            (
                "tenant.created",
                "tenant\\u002ecreated",
                "a canonical string at byte 131",
            ),
            (
                "tenant.created",
                "tenant\tcreated",
                "a canonical string at byte 131",
            ),
            ("sha256:4413", "sha256:441", "a digest at byte 50"),
            ("sha256:4413", "SHA256:4413", "a digest at byte 50"),
            ("\"body\":{}}", "\"body\":[]}", "an object or null at byte 349"),
            ("\"body\":{}}", "\"body\":{}", "an object or null at byte 349"),
            ("\"body\":{}}", "\"body\":{}} ", "`}` at byte 353"),
            ("\"body\":{}}", "\"body\":nulL}", "an object or null at byte 349"),
        ] {
            let line = LINE.replacen(from, to, 1);
            assert_ne!(line, LINE);
            assert_eq!(refusal(&line), format!("{prefix} {expected}"), "{line}");
        }
        assert_eq!(refusal(""), format!("{prefix} {{\"header\": at byte 0"));
    }

    proptest! {
        #[test]
        fn any_text_in_a_header_is_read_back(tenant: String, kind: String) {
            let entry = entry(&tenant, &kind, Some(r#"{"a":"}"}"#));
            let line = line(&entry);
            let read = Line::read(line.as_bytes()).unwrap();
            prop_assert_eq!(read.entry(), entry.clone());
            let mut header = String::new();
            entry.header.write_to(&mut header);
            prop_assert_eq!(read.header_bytes(), header.as_bytes());
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, place: prop::sample::Index) {
            let _ = Line::read(&bytes);
            let cut = place.index(LINE.len());
            prop_assert!(Line::read(&LINE.as_bytes()[..cut]).is_err());
            let _ = Line::read(&[&LINE.as_bytes()[..cut], &bytes].concat());
        }
    }
}
