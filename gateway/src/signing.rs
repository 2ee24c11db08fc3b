//! The keys that a gateway signs with: where they come from, and how they are kept.
//!
//! The last key of a file signs; those before it are the ones that it has replaced. The secret half of a key is in memory and
//! in that file, or in the environment, and nowhere else: it is never logged, stored or sent.

mod file;
pub mod history;
mod published;

pub use file::KeyFileError;
pub use published::{keys, known_names, signs_at, signs_ledger};

use crate::config::Signing;
use crate::stores;
use ledger::{MalformedKey, SignatureKind, SigningKey, VerifierKey};
use model::Entropy;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a gateway cannot sign.
#[derive(Debug, thiserror::Error)]
pub enum SigningError {
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] KeyFileError),
    /// What was given in place of a file is not a key.
    #[error("what `--signing-key` or COUNTERSIGN_SIGNING_KEY holds is not a signing key: {0}")]
    Environment(MalformedKey),
    /// The key of a witness, where that of a log is needed.
    #[error("`{0}` is the key of a witness; a ledger is signed with another")]
    Witness(String),
    /// The key of a log, where that of a witness is needed.
    #[error("`{0}` is the key of a log; a witness signs with another")]
    Log(String),
    /// The name of a new key cannot be one.
    #[error("`{name}` cannot be the name of a log or a witness: {source}")]
    Name {
        /// What was given.
        name: String,
        /// What is wrong with it.
        source: MalformedKey,
    },
}

/// Keys in the order in which they have replaced each other.
#[derive(Debug)]
pub struct Keyring {
    /// The key that signs.
    pub signing: Arc<SigningKey>,
    /// Those that it has replaced.
    pub replaced: Vec<SigningKey>,
}

impl Keyring {
    /// One key, which has replaced none.
    pub fn of(signing: SigningKey) -> Self {
        Self {
            signing: Arc::new(signing),
            replaced: Vec::new(),
        }
    }

    /// Keys of a log, the last of which signs; `None` if there is none.
    fn of_all(mut keys: Vec<SigningKey>) -> Option<Self> {
        let signing = keys.pop()?;
        Some(Self {
            signing: Arc::new(signing),
            replaced: keys,
        })
    }

    /// The keys in the file that the options name, which is made if it is not there: with a key under `known_name`, the
    /// name that the log has already, or under the one of the options, or under a random one.
    ///
    /// # Errors
    /// None can be made, or another process has made the file meanwhile and it cannot be used.
    pub fn make(
        options: &Signing,
        database_url: &str,
        known_name: Option<String>,
        entropy: &dyn Entropy,
    ) -> Result<Self, SigningError> {
        let (new, _) = new_key_of_log(options, known_name, entropy)?;
        file::read_or_make(&file_of(options, database_url), &new)?.of_log()
    }

    /// Fails if [`Self::make`] would, where [`Self::find`] has found no key. Nothing is made.
    ///
    /// # Errors
    /// None can be made under the name or in the place.
    pub fn check_new(
        options: &Signing,
        database_url: &str,
        known_name: Option<String>,
        entropy: &dyn Entropy,
    ) -> Result<(), SigningError> {
        new_key_of_log(options, known_name, entropy)?;
        Ok(file::check_place(&file_of(options, database_url))?)
    }

    /// The keys that the options name, if they are there already. To be called once: a pipe is empty then.
    ///
    /// # Errors
    /// They cannot be used, or nobody can tell whether they are there.
    pub fn find(options: &Signing, database_url: &str) -> Result<Option<Self>, SigningError> {
        let keys = if let Some(text) = &options.key {
            let key = text.reveal().trim().parse();
            Self::of(key.map_err(SigningError::Environment)?)
        } else {
            let path = file_of(options, database_url);
            if !file::is_there(&path)? {
                return Ok(None);
            }
            file::read(&path)?
        };
        keys.of_log().map(Some)
    }

    /// These, if none of them is a witness's.
    fn of_log(self) -> Result<Self, SigningError> {
        let witness = self
            .all()
            .find(|key| key.verifier().kind() != SignatureKind::Note);
        match witness {
            Some(witness) => Err(SigningError::Witness(witness.verifier().label())),
            None => Ok(self),
        }
    }

    /// All of them.
    pub fn all(&self) -> impl Iterator<Item = &SigningKey> {
        self.replaced.iter().chain([&*self.signing])
    }
}

/// Fails if the file that the options name is not there and could not be made either: to be asked before anything else is made.
///
/// # Errors
/// There is no such place.
pub fn check_place(options: &Signing) -> Result<(), SigningError> {
    match &options.key_file {
        Some(path) if options.key.is_none() => Ok(file::check_place(path)?),
        _ => Ok(()),
    }
}

/// Adds a new key of the same log, or witness, to the file that the options name. Returns its public half.
///
/// # Errors
/// There is no such file, or it cannot be written.
pub fn add_key(
    options: &Signing,
    database_url: &str,
    entropy: &dyn Entropy,
) -> Result<VerifierKey, SigningError> {
    let path = file_of(options, database_url);
    let keys = file::read(&path)?;
    let before = keys.signing.verifier();
    let (key, made) = new_key(Some(before.name().to_owned()), before.kind(), entropy)?;
    file::append(&path, &key)?;
    Ok(made)
}

/// The keys of a witness in a file. Where there is none, a key is made under this name, or a random one.
///
/// # Errors
/// The file cannot be used, or holds the keys of a log.
pub fn witness_keys(
    path: &Path,
    name: Option<String>,
    entropy: &dyn Entropy,
) -> Result<Keyring, SigningError> {
    let (new, _) = new_key(name, SignatureKind::Cosignature, entropy)?;
    let keys = file::read_or_make(path, &new)?;
    let log = keys
        .all()
        .find(|key| key.verifier().kind() != SignatureKind::Cosignature);
    match log {
        Some(log) => Err(SigningError::Log(log.verifier().label())),
        None => Ok(keys),
    }
}

/// The file from which the keys come that the options name, if it is there already.
///
/// # Errors
/// Nobody can tell whether it is.
pub fn kept_in(options: &Signing, database_url: &str) -> Result<Option<PathBuf>, SigningError> {
    if options.key.is_some() {
        return Ok(None);
    }
    let path = file_of(options, database_url);
    Ok(file::is_there(&path)?.then_some(path))
}

/// Where the keys of a gateway are kept that was not told otherwise: beside its database.
fn file_of(options: &Signing, database_url: &str) -> PathBuf {
    let beside = || stores::file_beside(database_url, "key");
    options.key_file.clone().unwrap_or_else(beside)
}

/// A new key under the name that the log has already, or under the one of the options.
fn new_key_of_log(
    options: &Signing,
    known_name: Option<String>,
    entropy: &dyn Entropy,
) -> Result<(String, VerifierKey), SigningError> {
    let name = known_name.or_else(|| options.log_name.clone());
    new_key(name, SignatureKind::Note, entropy)
}

/// The text of a new key, and its public half. Without a name it has one that no other log has: witnesses tell logs apart by
/// it.
fn new_key(
    name: Option<String>,
    kind: SignatureKind,
    entropy: &dyn Entropy,
) -> Result<(String, VerifierKey), SigningError> {
    let mut seed = [0; 32];
    entropy.fill(&mut seed);
    let mut random = [0; 8];
    entropy.fill(&mut random);
    let kind_word = match kind {
        SignatureKind::Note => "countersign",
        SignatureKind::Cosignature => "countersign-witness",
    };
    let name = name.unwrap_or_else(|| format!("{kind_word}-{:016x}", u64::from_be_bytes(random)));
    let made = SigningKey::from_seed(&name, kind, &seed)
        .and_then(|key| Ok((SigningKey::encode(&name, kind, &seed)?, key)));
    let (text, key) = made.map_err(|source| SigningError::Name { name, source })?;
    Ok((text, key.verifier().clone()))
}
