//! Reads texts whose layout is fixed to the byte: members in one order, strings and numbers in their canonical spelling.
//! What they mean is the business of whoever reads them.

use std::borrow::Cow;

use canon::{Digest, write_string};

use crate::encoding;

/// Bytes of a digest in its text form.
const DIGEST_LEN: usize = 71;

/// A text that has not its fixed layout.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected} at byte {offset}")]
pub struct Malformed {
    /// What should stand there.
    pub expected: &'static str,
    /// Byte of the text, from 0.
    pub offset: usize,
}

/// Reads a text from its beginning to its end.
pub(crate) struct Reader<'l> {
    text: &'l str,
    offset: usize,
}

impl<'l> Reader<'l> {
    pub(crate) fn new(bytes: &'l [u8]) -> Result<Self, Malformed> {
        let text = std::str::from_utf8(bytes).map_err(|error| Malformed {
            expected: "UTF-8",
            offset: error.valid_up_to(),
        })?;
        Ok(Self { text, offset: 0 })
    }

    fn rest(&self) -> &'l str {
        &self.text[self.offset..]
    }

    pub(crate) fn malformed(&self, expected: &'static str) -> Malformed {
        Malformed {
            expected,
            offset: self.offset,
        }
    }

    pub(crate) fn literal(&mut self, expected: &'static str) -> Result<(), Malformed> {
        if !self.rest().starts_with(expected) {
            return Err(self.malformed(expected));
        }
        self.offset += expected.len();
        Ok(())
    }

    pub(crate) fn digest(&mut self) -> Result<Digest, Malformed> {
        let refusal = self.malformed("a digest");
        let quoted = self.rest().get(..DIGEST_LEN + 2);
        let text = quoted.and_then(|quoted| quoted.strip_prefix('"')?.strip_suffix('"'));
        let digest = text.and_then(|text| text.parse().ok()).ok_or(refusal)?;
        self.offset += DIGEST_LEN + 2;
        Ok(digest)
    }

    /// An array of hashes in base64, at most so many.
    pub(crate) fn hashes(&mut self, count_max: usize) -> Result<Vec<Digest>, Malformed> {
        let mut hashes = Vec::new();
        self.literal("[")?;
        while !self.rest().starts_with(']') {
            if !hashes.is_empty() {
                self.literal(",")?;
            }
            let refusal = self.malformed("a hash in base64, and not too many");
            let hash = encoding::decode_hash(&self.string()?).filter(|_| hashes.len() < count_max);
            hashes.push(hash.ok_or(refusal)?);
        }
        self.literal("]")?;
        Ok(hashes)
    }

    /// An integer as canonical JSON writes it.
    pub(crate) fn integer(&mut self) -> Result<u64, Malformed> {
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
    pub(crate) fn string(&mut self) -> Result<Cow<'l, str>, Malformed> {
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

    /// What is left up to `end`, which must stand last.
    pub(crate) fn rest_before(&mut self, end: &'static str) -> Result<&'l str, Malformed> {
        let rest = self.rest().strip_suffix(end);
        if rest.is_none() {
            self.offset = self.text.len();
        }
        rest.ok_or_else(|| self.malformed(end))
    }

    /// Nothing is left.
    pub(crate) fn end(&self) -> Result<(), Malformed> {
        if self.rest().is_empty() {
            return Ok(());
        }
        Err(self.malformed("the end"))
    }

    /// What has been read from `start` on.
    pub(crate) fn since(&self, start: usize) -> &'l str {
        &self.text[start..self.offset]
    }

    pub(crate) const fn offset(&self) -> usize {
        self.offset
    }
}
