//! One line of an export: `{"header":{…},"hash":"sha256:…","body":{…}}`, where an erased body is `null`, and one that the file is
//! not about is left out.
//!
//! The layout is fixed to the byte. A line that another program has formatted anew is refused, not guessed at: the
//! hashes cover bytes. Whether the hashes are right is the verifier's question.

use canon::Digest;

use crate::EntryHeader;
use crate::header::HeaderText;
use crate::reader::{Malformed, Reader};

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
        self.write_header(out);
        out.push_str(r#","body":"#);
        out.push_str(self.body.unwrap_or("null"));
        out.push_str("}\n");
    }

    /// Appends the entry as one line that leaves its body out.
    pub fn write_line_without_body(&self, out: &mut String) {
        self.write_header(out);
        out.push_str("}\n");
    }

    fn write_header(&self, out: &mut String) {
        out.push_str(r#"{"header":"#);
        self.header.write_to(out);
        out.push_str(r#","hash":""#);
        self.hash.write_to(out);
        out.push('"');
    }
}

/// A line that has been read: it has the layout of an export, and every digest in it is a digest.
pub(crate) struct Line<'l> {
    header: HeaderText<'l>,
    hash: Digest,
    body: Option<&'l str>,
    is_left_out: bool,
}

impl<'l> Line<'l> {
    /// Reads a line, with or without its newline.
    pub(crate) fn read(line: &'l [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(line.strip_suffix(b"\n").unwrap_or(line))?;
        reader.literal(r#"{"header":"#)?;
        let header = HeaderText::read(&mut reader)?;
        reader.literal(r#","hash":"#)?;
        let hash = reader.digest()?;
        let is_left_out = reader.literal("}").is_ok();
        let body = if is_left_out {
            reader.end()?;
            None
        } else {
            reader.literal(r#","body":"#)?;
            body(&mut reader)?
        };
        Ok(Self {
            header,
            hash,
            body,
            is_left_out,
        })
    }

    /// Whether the body was left out by whoever made the file. One that was erased is not.
    pub(crate) const fn is_left_out(&self) -> bool {
        self.is_left_out
    }

    /// Whether the body was erased, and not only left out.
    pub(crate) const fn is_erased(&self) -> bool {
        self.body.is_none() && !self.is_left_out
    }

    /// The exact bytes of the header.
    pub(crate) fn header_bytes(&self) -> &'l [u8] {
        self.header.bytes()
    }

    pub(crate) fn entry(&self) -> Entry<'_> {
        Entry {
            header: self.header.header(),
            hash: self.hash,
            body: self.body,
        }
    }
}

/// The rest of the line: an object or `null`, and the brace that closes the line. That the object is canonical is
/// checked with its digest.
fn body<'l>(reader: &mut Reader<'l>) -> Result<Option<&'l str>, Malformed> {
    let body = reader.rest_before("}")?;
    match body.as_bytes() {
        b"null" => Ok(None),
        [b'{', .., b'}'] => Ok(Some(body)),
        _ => Err(reader.malformed("an object or null")),
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
    fn a_body_that_is_left_out_is_not_one_that_was_erased() {
        let entry = entry("tnt_1", "tenant.created", None);
        let mut short = String::new();
        entry.write_line_without_body(&mut short);
        assert_eq!(short, LINE.replace(",\"body\":{}}", "}\n"));
        let read = Line::read(short.as_bytes()).unwrap();
        assert!(read.is_left_out());
        assert_eq!(read.entry(), entry);
        assert!(!Line::read(line(&entry).as_bytes()).unwrap().is_left_out());
        assert_eq!(refusal(&format!("{short}}}")), "expected the end at byte 342");
    }

    #[test]
    fn a_line_in_another_layout_is_refused() {
        let prefix = "expected";
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
            ("\"body\":{}}", "\"body\":{}} ", "} at byte 353"),
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
