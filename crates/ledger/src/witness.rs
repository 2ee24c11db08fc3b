//! C2SP tlog-witness: what a log asks of a witness, and what a witness answers to it. The witness keeps the last checkpoint
//! that it has cosigned of each log; how it keeps it and how the two talk is not looked at here.

use std::fmt;

use canon::Digest;

use crate::checkpoint::{Checkpoint, MalformedCheckpoint};
use crate::encoding;
use crate::key::{SignatureKind, SigningKey, VerifierKey};
use crate::merkle::{ProofFault, verify_consistency};
use crate::note::{NOTE_BYTES_MAX, Note, NoteFault, NoteSignature};
use crate::tlog_proof::write_hashes;

/// Most hashes of a consistency proof that may be sent.
const CONSISTENCY_MAX: usize = 63;

/// The body of a request to `add-checkpoint`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddCheckpoint {
    /// The size up to which the witness has cosigned before.
    pub old_size: u64,
    /// The proof that the tree of that size is the beginning of this one.
    pub proof: Vec<Digest>,
    /// The note of the checkpoint.
    pub checkpoint: String,
}

/// A request whose checkpoint a key of the log has signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedRequest<'r> {
    request: &'r AddCheckpoint,
    checkpoint: Checkpoint,
}

/// What a witness keeps of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cosigned {
    /// The size of the last checkpoint that it has cosigned; 0 if there is none.
    pub size: u64,
    /// The root of that checkpoint.
    pub root: Digest,
}

/// Why a witness does not cosign; the numbers are the status of its answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Uncosigned {
    /// 400: not a request.
    #[error("not a request to add a checkpoint: expected {0}")]
    Malformed(&'static str),
    /// 403: nobody who is known has signed the checkpoint; 400 if it is not even a note.
    #[error(transparent)]
    NotSigned(#[from] NoteFault),
    /// 400: not a checkpoint.
    #[error(transparent)]
    NotACheckpoint(#[from] MalformedCheckpoint),
    /// 400: the checkpoint is older than the log says that the witness knows.
    #[error("the old size {old} is larger than the size {new} of the checkpoint")]
    Inverted {
        /// The old size.
        old: u64,
        /// The size of the checkpoint.
        new: u64,
    },
    /// 409: the witness knows another size, which is the body of its answer.
    #[error("the last cosigned checkpoint has the size {known}, not {old}")]
    OtherSize {
        /// What the witness knows.
        known: u64,
        /// What the log believed.
        old: u64,
    },
    /// 409: one size, two roots. The log shows different people different things.
    #[error("a checkpoint of size {0} with another root was cosigned before")]
    Fork(u64),
    /// 422: the proof does not lead from what was cosigned to the checkpoint. The log has rewritten that, or the proof
    /// is not the log's.
    #[error("the checkpoint does not continue what was cosigned before: {0}")]
    Inconsistent(#[from] ProofFault),
}

impl Uncosigned {
    /// The HTTP status of the answer.
    pub const fn status(&self) -> u16 {
        match self {
            Self::Malformed(_)
            | Self::NotACheckpoint(_)
            | Self::Inverted { .. }
            | Self::NotSigned(NoteFault::Malformed(_)) => 400,
            Self::NotSigned(_) => 403,
            Self::OtherSize { .. } | Self::Fork(_) => 409,
            Self::Inconsistent(_) => 422,
        }
    }
}

impl AddCheckpoint {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn parse(bytes: &[u8]) -> Result<Self, Uncosigned> {
        let malformed = Uncosigned::Malformed;
        if bytes.len() > 2 * NOTE_BYTES_MAX {
            return Err(malformed("at most two megabytes"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| malformed("UTF-8"))?;
        let (head, checkpoint) = text
            .split_once("\n\n")
            .ok_or(malformed("an empty line before the checkpoint"))?;
        let mut lines = head.split('\n');
        let old_size = lines
            .next()
            .and_then(|line| encoding::decimal(line.strip_prefix("old ")?));
        let proof: Option<Vec<_>> = lines.map(encoding::decode_hash).collect();
        let proof = proof.filter(|proof| proof.len() <= CONSISTENCY_MAX);
        Ok(Self {
            old_size: old_size.ok_or(malformed("`old` and a size in decimal digits"))?,
            proof: proof.ok_or(malformed("hashes in base64, at most 63"))?,
            checkpoint: checkpoint.to_owned(),
        })
    }

    /// The request, if the log has signed its checkpoint; `log` are the keys that the witness knows for the origin. It
    /// needs nothing of what the witness keeps, and takes the most of all that is done for a request.
    ///
    /// # Errors
    /// It must not cosign.
    pub fn verify(&self, log: &[&VerifierKey]) -> Result<SignedRequest<'_>, Uncosigned> {
        let note = Note::parse(self.checkpoint.as_bytes())?;
        note.verify(log)?;
        let checkpoint = Checkpoint::parse(note.text())?;
        Ok(SignedRequest {
            request: self,
            checkpoint,
        })
    }
}

impl SignedRequest<'_> {
    /// What a witness does with the request: whether it may cosign, and what it keeps then. `known` is what it keeps of
    /// the origin. It must keep the outcome before it answers, and from reading `known` to keeping it nobody else may do
    /// the same for this origin.
    ///
    /// # Errors
    /// It must not cosign.
    pub fn check(self, known: Cosigned) -> Result<(Checkpoint, Cosigned), Uncosigned> {
        let Self { request, checkpoint } = self;
        let (old, new) = (request.old_size, checkpoint.size);
        if old > new {
            return Err(Uncosigned::Inverted { old, new });
        }
        if old != known.size {
            return Err(Uncosigned::OtherSize {
                known: known.size,
                old,
            });
        }
        if old == new && old > 0 && known.root != checkpoint.root {
            return Err(Uncosigned::Fork(old));
        }
        if old > 0 {
            verify_consistency((old, &known.root), (new, &checkpoint.root), &request.proof)?;
        } else if !request.proof.is_empty() {
            let found = request.proof.len();
            return Err(ProofFault::WrongLength { found }.into());
        }
        let cosigned = Cosigned {
            size: new,
            root: checkpoint.root,
        };
        Ok((checkpoint, cosigned))
    }
}

impl fmt::Display for AddCheckpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "old {}", self.old_size)?;
        write_hashes(f, &self.proof)?;
        write!(f, "\n{}", self.checkpoint)
    }
}

/// The answer of a witness: its signature lines.
pub fn cosignature_lines(checkpoint: &Checkpoint, keys: &[&SigningKey], time: u64) -> String {
    let cosigners = keys
        .iter()
        .filter(|key| key.verifier().kind() == SignatureKind::Cosignature);
    cosigners
        .map(|key| checkpoint.cosign(key, time).to_string())
        .collect()
}

/// Adds to the note of a checkpoint the cosignatures in the answer of a witness, if they are right; signatures of keys that
/// are not known, and those that stand in the note already, are left out. Returns how many were added.
///
/// # Errors
/// The answer is not one, or a signature of a known key is wrong.
pub fn add_cosignatures(
    note: &mut Note,
    answer: &[u8],
    witnesses: &[&VerifierKey],
) -> Result<usize, NoteFault> {
    let malformed = NoteFault::Malformed("the answer of a witness is not signature lines");
    let text = std::str::from_utf8(answer)
        .ok()
        .filter(|text| text.len() <= NOTE_BYTES_MAX);
    let lines = text
        .and_then(|text| text.strip_suffix('\n'))
        .ok_or(malformed.clone())?;
    let mut added = 0;
    for line in lines.split('\n') {
        let signature = NoteSignature::parse(line).ok_or(malformed.clone())?;
        let is_known = witnesses
            .iter()
            .any(|key| key.id() == signature.key_id && key.name() == signature.name);
        if !is_known || note.signatures().contains(&signature) {
            continue;
        }
        let mut alone = Note::sign(note.text(), &[])?;
        alone.push(signature.clone());
        alone.verify(witnesses)?;
        note.push(signature);
        added += 1;
    }
    Ok(added)
}
