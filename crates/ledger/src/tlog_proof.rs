//! C2SP tlog-proof: a file that proves, without any log at hand, that an entry is in a log. It brings the checkpoint that it
//! leads to; whom to believe is the verifier's own knowledge ([`crate::TrustPolicy`]).
//!
//! For an entry of a ledger the extra data is its header, so that the file says what it proves. It may be left out where the
//! header is known from elsewhere, such as from a receipt.

use std::fmt;

use canon::Digest;

use crate::encoding;
use crate::header::HeaderText;
use crate::merkle::{PROOF_LEN_MAX, ProofFault, leaf_hash, verify_inclusion};
use crate::note::NOTE_BYTES_MAX;
use crate::reader::Malformed;
use crate::trust::{TrustPolicy, TrustedCheckpoint, Untrusted};
use crate::{EntryHeader, Head, Moment};

/// The first line.
const FIRST_LINE: &str = "c2sp.org/tlog-proof@v1";

/// A proof, of which nothing has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlogProof {
    /// Data that nobody vouches for; for an entry, its header.
    pub extra: Option<Vec<u8>>,
    /// Which leaf, from 0.
    pub index: u64,
    /// The inclusion proof, from the leaf up.
    pub path: Vec<Digest>,
    /// The note of the checkpoint.
    pub checkpoint: String,
}

/// An entry that is in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProvenEntry {
    /// Its tenant.
    pub tenant: String,
    /// Its place and its hash.
    pub head: Head,
    /// Its kind.
    pub kind: String,
    /// When it was recorded.
    pub at: Moment,
    /// SHA-256 of its body.
    pub body: Digest,
    /// The checkpoint of the log that it is in.
    pub checkpoint: TrustedCheckpoint,
}

/// Why a proof proves nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It is not a proof.
    #[error("not a proof: expected {0}")]
    Malformed(&'static str),
    /// It does not say which entry it is about.
    #[error("the proof brings no header of an entry: {0}")]
    Header(Malformed),
    /// The checkpoint is not believed.
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    /// The entry is not in the tree.
    #[error(transparent)]
    Proof(#[from] ProofFault),
    /// The entry stands elsewhere than the proof says.
    #[error("the header is that of entry {seq}, but the proof is about leaf {index}")]
    WrongIndex {
        /// The place that the header names.
        seq: u64,
        /// The leaf of the proof, from 0.
        index: u64,
    },
    /// The entry is of another tenant than the log.
    #[error("the entry is that of `{found}`, but the log is that of `{expected}`")]
    WrongTenant {
        /// Whose log it is.
        expected: String,
        /// Whom the header names.
        found: String,
    },
}

impl TlogProof {
    /// Reads a proof.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unproven> {
        let malformed = Unproven::Malformed;
        // A proof is little more than the note at its end.
        if bytes.len() > 2 * NOTE_BYTES_MAX {
            return Err(malformed("at most two megabytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("UTF-8"))?;
        let (head, checkpoint) = text
            .split_once("\n\n")
            .ok_or(malformed("an empty line before the checkpoint"))?;
        let mut lines = head.split('\n').peekable();
        if lines.next() != Some(FIRST_LINE) {
            return Err(malformed("`c2sp.org/tlog-proof@v1` as the first line"));
        }
        let extra = match lines.next_if(|line| line.starts_with("extra ")) {
            Some(line) => Some(encoding::decode(&line[6..]).ok_or(malformed("extra data in base64"))?),
            None => None,
        };
        let index = lines
            .next()
            .and_then(|line| encoding::decimal(line.strip_prefix("index ")?));
        let index = index.ok_or(malformed("`index` and a number in decimal digits"))?;
        let path: Option<Vec<_>> = lines.map(encoding::decode_hash).collect();
        let path = path.filter(|path| path.len() <= PROOF_LEN_MAX);
        Ok(Self {
            extra,
            index,
            path: path.ok_or(malformed("hashes in base64, at most 53"))?,
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// The proof that the entry with this header is in the log of the checkpoint.
    pub fn of_entry(header: &EntryHeader<'_>, path: Vec<Digest>, checkpoint: String) -> Self {
        let mut text = String::new();
        header.write_to(&mut text);
        Self {
            extra: Some(text.into_bytes()),
            index: header.seq.saturating_sub(1),
            path,
            checkpoint,
        }
    }

    /// Checks that a leaf is in the log.
    ///
    /// # Errors
    /// The checkpoint is not believed, or the leaf is not in its tree.
    pub fn verify(&self, leaf: &Digest, trust: &TrustPolicy) -> Result<TrustedCheckpoint, Unproven> {
        let trusted = trust.open(self.checkpoint.as_bytes())?;
        let tree = trusted.checkpoint();
        verify_inclusion(self.index, tree.size, leaf, &self.path, &tree.root)?;
        Ok(trusted)
    }

    /// Checks that the entry whose header the proof brings is in the ledger of its tenant.
    ///
    /// # Errors
    /// As for `verify`; or it brings none, or one of another place or tenant; or the log's key had ended by then.
    pub fn verify_entry(&self, trust: &TrustPolicy) -> Result<ProvenEntry, Unproven> {
        let bytes = self.extra.as_deref().unwrap_or_default();
        let text = HeaderText::read_whole(bytes).map_err(Unproven::Header)?;
        let checkpoint = self.verify(&leaf_hash(bytes), trust)?;
        let header = text.header();
        if header.tenant != checkpoint.tenant() {
            return Err(Unproven::WrongTenant {
                expected: checkpoint.tenant().to_owned(),
                found: header.tenant.to_owned(),
            });
        }
        if header.seq.checked_sub(1) != Some(self.index) {
            return Err(Unproven::WrongIndex {
                seq: header.seq,
                index: self.index,
            });
        }
        let not_a_time = |_| Unproven::Malformed("the time of the entry");
        let at = header.at.parse().map_err(not_a_time)?;
        checkpoint.covers(at)?;
        Ok(ProvenEntry {
            tenant: header.tenant.to_owned(),
            head: Head {
                seq: header.seq,
                hash: Digest::of(bytes),
            },
            kind: header.kind.to_owned(),
            at,
            body: header.body,
            checkpoint,
        })
    }
}

impl fmt::Display for TlogProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        if let Some(extra) = &self.extra {
            writeln!(f, "extra {}", encoding::encode(extra))?;
        }
        writeln!(f, "index {}", self.index)?;
        write_hashes(f, &self.path)?;
        write!(f, "\n{}", self.checkpoint)
    }
}

/// One hash a line, in base64.
pub(crate) fn write_hashes(f: &mut fmt::Formatter<'_>, hashes: &[Digest]) -> fmt::Result {
    hashes
        .iter()
        .try_for_each(|hash| writeln!(f, "{}", encoding::encode(hash.as_bytes())))
}
