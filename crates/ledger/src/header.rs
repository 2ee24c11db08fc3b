//! A header as text: the bytes that are hashed, and what they say.

use std::borrow::Cow;

use canon::Digest;

use crate::EntryHeader;
use crate::reader::{Malformed, Reader};

/// A header that has been read.
pub(crate) struct HeaderText<'l> {
    text: &'l str,
    tenant: Cow<'l, str>,
    seq: u64,
    kind: Cow<'l, str>,
    at: Cow<'l, str>,
    prev: Digest,
    body: Digest,
}

impl<'l> HeaderText<'l> {
    /// Reads a header that stands inside a longer text.
    pub(crate) fn read(reader: &mut Reader<'l>) -> Result<Self, Malformed> {
        let start = reader.offset();
        reader.literal(r#"{"at":"#)?;
        let at = reader.string()?;
        reader.literal(r#","body":"#)?;
        let body = reader.digest()?;
        reader.literal(r#","kind":"#)?;
        let kind = reader.string()?;
        reader.literal(r#","prev":"#)?;
        let prev = reader.digest()?;
        reader.literal(r#","seq":"#)?;
        let seq = reader.integer()?;
        reader.literal(r#","tenant":"#)?;
        let tenant = reader.string()?;
        reader.literal(r#","v":1}"#)?;
        Ok(Self {
            text: reader.since(start),
            tenant,
            seq,
            kind,
            at,
            prev,
            body,
        })
    }

    /// Reads a text that is a header and nothing else.
    pub(crate) fn read_whole(bytes: &'l [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader::new(bytes)?;
        let header = Self::read(&mut reader)?;
        reader.end()?;
        Ok(header)
    }

    /// The exact bytes.
    pub(crate) fn bytes(&self) -> &'l [u8] {
        self.text.as_bytes()
    }

    pub(crate) fn header(&self) -> EntryHeader<'_> {
        EntryHeader {
            tenant: &self.tenant,
            seq: self.seq,
            kind: &self.kind,
            at: &self.at,
            prev: self.prev,
            body: self.body,
        }
    }
}
