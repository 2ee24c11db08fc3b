//! C2SP signed note: a text, and the signatures of whoever vouches for it.
//!
//! Reading is strict: a note that could be read in two ways is not read at all. What the text says is not looked at here.

use std::fmt;

use crate::encoding;
use crate::key::{KeyId, SignatureKind, SigningKey, VerifierKey, is_key_name};

/// The largest note that is read: a checkpoint has some hundred bytes, a signature of the largest known kind 5 kB.
pub const NOTE_BYTES_MAX: usize = 1 << 20;
/// Most signatures of a note that is read. The specification asks for 16, and Go's reader has this bound.
pub const SIGNATURES_MAX: usize = 100;
/// What a signature's line begins with.
const SIGNATURE_PREFIX: &str = "\u{2014} ";
/// Bytes of the time in a cosignature.
const TIME_LEN: usize = 8;

/// A text with signatures, of which none has been verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    text: String,
    signatures: Vec<NoteSignature>,
}

/// One signature's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoteSignature {
    /// The name of the key.
    pub name: String,
    /// The id of the key.
    pub key_id: KeyId,
    /// What the key has made of the text.
    pub signature: Vec<u8>,
}

/// A key that has signed a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed<'k> {
    /// The key.
    pub key: &'k VerifierKey,
    /// When, in seconds since 1970, if it is a cosignature.
    pub time: Option<u64>,
}

/// Why a note says nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoteFault {
    /// It is not a note.
    #[error("not a signed note: {0}")]
    Malformed(&'static str),
    /// Nobody who is known has signed it.
    #[error("no key that is trusted has signed the note")]
    UnknownKey,
    /// A key that is known has not signed this text.
    #[error("the signature of `{0}` is not that of this text")]
    BadSignature(String),
}

impl Note {
    /// Reads a note.
    ///
    /// # Errors
    /// `Malformed`.
    pub fn parse(bytes: &[u8]) -> Result<Self, NoteFault> {
        let malformed = NoteFault::Malformed;
        if bytes.len() > NOTE_BYTES_MAX {
            return Err(malformed("it is larger than a megabyte"));
        }
        let whole = std::str::from_utf8(bytes).map_err(|_| malformed("it is not UTF-8"))?;
        if has_control(whole) {
            return Err(malformed("it has control characters"));
        }
        let end = whole
            .rfind("\n\n")
            .ok_or(malformed("no empty line ends the text"))?;
        let (text, lines) = (&whole[..=end], &whole[end + 2..]);
        let lines = lines
            .strip_suffix('\n')
            .ok_or(malformed("no signature, or its line does not end"))?;
        let lines: Vec<_> = lines.split('\n').collect();
        if lines.len() > SIGNATURES_MAX {
            return Err(malformed("it has more than 100 signatures"));
        }
        let signatures = lines.into_iter().map(NoteSignature::parse).collect::<Option<_>>();
        Ok(Self {
            text: text.to_owned(),
            signatures: signatures.ok_or(malformed("a line below the text is not a signature"))?,
        })
    }

    /// Signs a text, which ends with a newline.
    ///
    /// # Errors
    /// `Malformed`: this cannot be the text of a note.
    pub fn sign(text: &str, keys: &[&SigningKey]) -> Result<Self, NoteFault> {
        if !text.ends_with('\n') || has_control(text) {
            return Err(NoteFault::Malformed(
                "a text ends with a newline and has no control characters",
            ));
        }
        let signatures = keys.iter().map(|key| NoteSignature {
            name: key.verifier().name().to_owned(),
            key_id: key.verifier().id(),
            signature: key.sign(text.as_bytes()).to_vec(),
        });
        Ok(Self {
            text: text.to_owned(),
            signatures: signatures.collect(),
        })
    }

    /// The text, its last newline included. Unless a signature has been verified, anybody can have written it.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The signatures, verified or not.
    pub fn signatures(&self) -> &[NoteSignature] {
        &self.signatures
    }

    /// Adds a signature.
    pub fn push(&mut self, signature: NoteSignature) {
        self.signatures.push(signature);
    }

    /// Which of these keys have signed, each once and in the order of the lines.
    ///
    /// # Errors
    /// `UnknownKey` if none has; `BadSignature` if one is named that has not, whatever others have done.
    pub fn verify<'k>(&self, keys: &[&'k VerifierKey]) -> Result<Vec<Signed<'k>>, NoteFault> {
        let mut signed: Vec<Signed<'k>> = Vec::new();
        for (signature, key) in self.signatures_of(keys) {
            let found = signature.verify(&self.text, key);
            let found = found.ok_or_else(|| NoteFault::BadSignature(key.label()))?;
            if signed.iter().all(|other| other.key != found.key) {
                signed.push(found);
            }
        }
        if signed.is_empty() {
            return Err(NoteFault::UnknownKey);
        }
        Ok(signed)
    }

    /// The signatures that name one of these keys, and which. A line that is repeated says no more than it did before,
    /// and whoever has a signed note can repeat its lines; another one of the same key is looked at, too.
    fn signatures_of<'n, 'k>(
        &'n self,
        keys: &[&'k VerifierKey],
    ) -> impl Iterator<Item = (&'n NoteSignature, &'k VerifierKey)> {
        let lines = self.signatures.iter().enumerate();
        lines.filter_map(move |(place, signature)| {
            let is_named = |key: &&&VerifierKey| key.id() == signature.key_id && key.name() == signature.name;
            let key = *keys.iter().find(is_named)?;
            let is_repeated = self.signatures[..place].contains(signature);
            (!is_repeated).then_some((signature, key))
        })
    }
}

fn has_control(text: &str) -> bool {
    text.bytes().any(|byte| byte < b' ' && byte != b'\n')
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.text)?;
        self.signatures
            .iter()
            .try_for_each(|signature| write!(f, "{signature}"))
    }
}

impl NoteSignature {
    /// A cosignature of a checkpoint: C2SP tlog-cosignature, version 1.
    pub(crate) fn cosign(text: &str, key: &SigningKey, time: u64) -> Self {
        let mut signature = time.to_be_bytes().to_vec();
        signature.extend_from_slice(&key.sign(cosigned(text, time).as_bytes()));
        Self {
            name: key.verifier().name().to_owned(),
            key_id: key.verifier().id(),
            signature,
        }
    }

    /// Reads a line without its newline.
    pub(crate) fn parse(line: &str) -> Option<Self> {
        let (name, signature) = line.strip_prefix(SIGNATURE_PREFIX)?.split_once(' ')?;
        let bytes = encoding::decode(signature)?;
        let (key_id, signature) = bytes.split_first_chunk()?;
        let is_signature = is_key_name(name) && !signature.is_empty();
        is_signature.then(|| Self {
            name: name.to_owned(),
            key_id: KeyId(*key_id),
            signature: signature.to_vec(),
        })
    }

    fn verify<'k>(&self, text: &str, key: &'k VerifierKey) -> Option<Signed<'k>> {
        let time = match key.kind() {
            SignatureKind::Note => {
                let is_signed = key.has_signed(text.as_bytes(), &self.signature);
                is_signed.then_some(None)?
            }
            SignatureKind::Cosignature => {
                let (time, signature) = self.signature.split_first_chunk::<TIME_LEN>()?;
                let time = u64::from_be_bytes(*time);
                let is_signed =
                    i64::try_from(time).is_ok() && key.has_signed(cosigned(text, time).as_bytes(), signature);
                is_signed.then_some(Some(time))?
            }
        };
        Some(Signed { key, time })
    }
}

/// What a cosignature covers.
fn cosigned(text: &str, time: u64) -> String {
    format!("cosignature/v1\ntime {time}\n{text}")
}

impl fmt::Display for NoteSignature {
    /// The line, its newline included.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = [&self.key_id.0[..], &self.signature].concat();
        writeln!(f, "{SIGNATURE_PREFIX}{} {}", self.name, encoding::encode(&bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(seed: u8) -> SigningKey {
        SigningKey::from_seed("log.example", SignatureKind::Note, &[seed; 32]).unwrap()
    }

    #[test]
    fn a_line_that_is_repeated_is_verified_once_and_another_one_of_its_key_as_well() {
        let (known, unknown) = (key(1), key(2));
        let keys = [known.verifier()];
        let mut note = Note::sign("text\n", &[&unknown, &known]).unwrap();
        let [stranger, line] = [0, 1].map(|place: usize| note.signatures()[place].clone());
        while note.signatures().len() < SIGNATURES_MAX - 1 {
            note.push(line.clone());
        }
        note.push(stranger);
        let looked_at = |note: &Note| note.signatures_of(&keys).count();
        assert_eq!((looked_at(&note), note.verify(&keys).unwrap().len()), (1, 1));
        let mut wrong = line;
        wrong.signature[0] ^= 1;
        note.push(wrong);
        assert_eq!(looked_at(&note), 2);
        let refused = NoteFault::BadSignature(known.verifier().label());
        assert_eq!(note.verify(&keys), Err(refused));
    }
}
