//! C2SP tlog-checkpoint: how many entries a log has and which root their tree.
//!
//! The origin of a tenant's log is the name of the key that signs it, a slash and the tenant, so that a checkpoint of one
//! tenant cannot be shown for another. Whether a note is to be believed is the question of [`crate::TrustPolicy`].

use std::fmt;

use canon::Digest;

use crate::encoding;
use crate::key::SigningKey;
use crate::note::{Note, NoteFault, NoteSignature};

/// What a log says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checkpoint {
    /// Which log.
    pub origin: String,
    /// How many entries it has.
    pub size: u64,
    /// The root of their tree.
    pub root: Digest,
    /// Further lines, which mean nothing here.
    pub extensions: Vec<String>,
}

/// A text that is not a checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a checkpoint: expected {0}")]
pub struct MalformedCheckpoint(&'static str);

impl Checkpoint {
    /// What the log `log` says of a tenant.
    pub fn new(log: &str, tenant: &str, size: u64, root: Digest) -> Self {
        Self {
            origin: origin(log, tenant),
            size,
            root,
            extensions: Vec::new(),
        }
    }

    /// Reads the text of a note.
    ///
    /// # Errors
    /// It is not a checkpoint.
    pub fn parse(text: &str) -> Result<Self, MalformedCheckpoint> {
        let text = text
            .strip_suffix('\n')
            .ok_or(MalformedCheckpoint("a newline at the end"))?;
        let mut lines = text.split('\n');
        let origin = lines.next().filter(|origin| !origin.is_empty());
        let size = lines.next().and_then(encoding::decimal);
        let root = lines.next().and_then(encoding::decode_hash);
        let extensions: Vec<_> = lines.map(str::to_owned).collect();
        if extensions.iter().any(String::is_empty) {
            return Err(MalformedCheckpoint("no empty line"));
        }
        Ok(Self {
            origin: origin.ok_or(MalformedCheckpoint("an origin"))?.to_owned(),
            size: size.ok_or(MalformedCheckpoint("a size in decimal digits"))?,
            root: root.ok_or(MalformedCheckpoint("a root hash in base64"))?,
            extensions,
        })
    }

    /// The checkpoint signed by the log's keys, as a note.
    ///
    /// # Errors
    /// The origin or an extension has control characters.
    pub fn sign(&self, keys: &[&SigningKey]) -> Result<Note, NoteFault> {
        Note::sign(&self.to_string(), keys)
    }

    /// The signature of a witness that saw it at `time`, in seconds since 1970: C2SP tlog-cosignature, version 1. The key
    /// is one of the kind [`crate::SignatureKind::Cosignature`]: any other reader finds no signature of it.
    pub fn cosign(&self, key: &SigningKey, time: u64) -> NoteSignature {
        NoteSignature::cosign(&self.to_string(), key, time)
    }
}

/// The origin of a tenant's log.
pub(crate) fn origin(log: &str, tenant: &str) -> String {
    format!("{log}/{tenant}")
}

impl fmt::Display for Checkpoint {
    /// The text of its note.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let root = encoding::encode(self.root.as_bytes());
        write!(f, "{}\n{}\n{root}\n", self.origin, self.size)?;
        self.extensions.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use canon::Digest;

    use super::Checkpoint;

    #[test]
    fn a_checkpoint_is_three_lines() {
        let checkpoint = Checkpoint::new("log.example", "tnt_1", 7, Digest::ZERO);
        let text = "log.example/tnt_1\n7\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
        assert_eq!(checkpoint.to_string(), text);
        assert_eq!(Checkpoint::parse(text), Ok(checkpoint.clone()));
        let extended = Checkpoint {
            extensions: vec!["one".to_owned(), "two".to_owned()],
            ..checkpoint
        };
        assert_eq!(extended.to_string(), format!("{text}one\ntwo\n"));
        assert_eq!(Checkpoint::parse(&extended.to_string()), Ok(extended));
    }

    #[test]
    fn anything_else_is_not_a_checkpoint() {
        let text = "log.example/tnt_1\n7\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
        for (changed, expected) in [
            (text.trim_end().to_owned(), "a newline at the end"),
            (text.replace("log.example/tnt_1", ""), "an origin"),
            (text.replace("\n7\n", "\n07\n"), "a size in decimal digits"),
            (text.replace("\n7\n", "\n-7\n"), "a size in decimal digits"),
            (text.replace("\n7\n", "\n\n"), "a size in decimal digits"),
            (text.replace("AAA=", "AAB="), "a root hash in base64"),
            (text.replace("AAAA=", ""), "a root hash in base64"),
            (format!("{text}\n"), "no empty line"),
            (format!("{text}\nline\n"), "no empty line"),
            ("\n".to_owned(), "an origin"),
            ("log\n".to_owned(), "a size in decimal digits"),
        ] {
            let refusal = Checkpoint::parse(&changed).unwrap_err().to_string();
            assert_eq!(
                refusal,
                format!("not a checkpoint: expected {expected}"),
                "{changed:?}"
            );
        }
    }
}
