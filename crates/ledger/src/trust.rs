//! Whom a verifier trusts: the keys of a log, each for its time, and the witnesses of whom so many must have seen a
//! checkpoint. How a verifier comes by them is its own business; a key that the checked material brings along counts for
//! nothing.

use canon::Limits;
use serde::{Deserialize, Serialize};

use crate::Moment;
use crate::checkpoint::{Checkpoint, MalformedCheckpoint};
use crate::key::{SignatureKind, VerifierKey};
use crate::note::{Note, NoteFault, Signed};

/// Bounds of `keys.json`: whoever reads the file has its bytes already. Of the depth, values above 256 mean 256, as in any body.
const KEYS_LIMITS: Limits = Limits {
    bytes_max: usize::MAX,
    depth_max: usize::MAX,
};

/// A key of a log, and for how long it signs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedKey {
    /// The key.
    pub vkey: VerifierKey,
    /// From when on; always, if it is not said.
    #[serde(default)]
    pub not_before: Option<Moment>,
    /// Until when; it still signs, if it is not said.
    #[serde(default)]
    pub not_after: Option<Moment>,
}

impl PublishedKey {
    /// Whether it signed at that time.
    pub fn is_valid_at(&self, at: Moment) -> bool {
        self.not_before.is_none_or(|begin| begin <= at) && !self.ended_before(at)
    }

    fn ended_before(&self, at: Moment) -> bool {
        self.not_after.is_some_and(|end| end < at)
    }
}

/// The keys of a log over time: what `keys.json` publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Keys", into = "Keys")]
pub struct KeySet(Vec<PublishedKey>);

#[derive(Clone, Serialize, Deserialize)]
struct Keys {
    keys: Vec<PublishedKey>,
}

/// Keys that cannot be told apart, or sign nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedKeySet {
    /// It cannot be read.
    #[error("the keys cannot be read: {0}")]
    Unreadable(String),
    /// There is none.
    #[error("there is no key")]
    Empty,
    /// Two keys have one name and id.
    #[error("the key `{0}` stands twice")]
    Twice(String),
    /// Its time ends before it begins.
    #[error("the time of the key `{0}` ends before it begins")]
    Inverted(String),
    /// It is a witness's.
    #[error("the key `{0}` signs cosignatures, so it is not that of a log")]
    Witness(String),
}

impl KeySet {
    /// Keys with their times.
    ///
    /// # Errors
    /// They cannot be told apart, or one of them signs nothing.
    pub fn new(keys: Vec<PublishedKey>) -> Result<Self, MalformedKeySet> {
        if keys.is_empty() {
            return Err(MalformedKeySet::Empty);
        }
        for (place, key) in keys.iter().enumerate() {
            let label = || key.vkey.label();
            if keys[..place].iter().any(|other| other.vkey.label() == label()) {
                return Err(MalformedKeySet::Twice(label()));
            }
            if key.not_before.is_some_and(|begin| key.ended_before(begin)) {
                return Err(MalformedKeySet::Inverted(label()));
            }
            if key.vkey.kind() != SignatureKind::Note {
                return Err(MalformedKeySet::Witness(label()));
            }
        }
        Ok(Self(keys))
    }

    /// One key, for all time.
    ///
    /// # Errors
    /// It is a witness's.
    pub fn of(vkey: VerifierKey) -> Result<Self, MalformedKeySet> {
        Self::new(vec![PublishedKey {
            vkey,
            not_before: None,
            not_after: None,
        }])
    }

    /// Reads `keys.json`, in which every reader finds the same.
    ///
    /// # Errors
    /// It is not one, or as for `new`.
    pub fn parse(json: &str) -> Result<Self, MalformedKeySet> {
        canon::canonicalize(json.as_bytes(), KEYS_LIMITS)
            .map_err(|error| MalformedKeySet::Unreadable(error.to_string()))?;
        canon::read(json).map_err(|error| {
            // What is wrong with all of it has no place.
            let placed = (!error.pointer.is_empty()).then(|| error.to_string());
            MalformedKeySet::Unreadable(placed.unwrap_or(error.detail))
        })
    }

    /// The keys.
    pub fn keys(&self) -> &[PublishedKey] {
        &self.0
    }

    /// The key that a signature names by name and id.
    pub fn find(&self, label: &str) -> Option<&PublishedKey> {
        self.0.iter().find(|key| key.vkey.label() == label)
    }
}

impl TryFrom<Keys> for KeySet {
    type Error = MalformedKeySet;

    fn try_from(keys: Keys) -> Result<Self, MalformedKeySet> {
        Self::new(keys.keys)
    }
}

impl From<KeySet> for Keys {
    fn from(keys: KeySet) -> Self {
        Self { keys: keys.0 }
    }
}

/// Whom a verifier trusts, and how many witnesses it wants: its policy, in the words of C2SP (`tlog-policy`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustPolicy {
    /// The keys of the log.
    pub keys: KeySet,
    /// The keys of witnesses.
    pub witnesses: Vec<VerifierKey>,
    /// How many witnesses, by name, must have cosigned a checkpoint.
    pub quorum: usize,
}

/// A checkpoint that keys that are trusted have signed. Only [`TrustPolicy::open`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrustedCheckpoint {
    checkpoint: Checkpoint,
    tenant: String,
    key: PublishedKey,
    witnesses: Vec<Witnessed>,
}

/// That a witness has seen a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Witnessed {
    /// Who.
    pub name: String,
    /// When, in seconds since 1970.
    pub time: u64,
}

/// Why a checkpoint is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Untrusted {
    /// It is not a note, or not signed by whom it should be.
    #[error(transparent)]
    Note(#[from] NoteFault),
    /// Something else was signed.
    #[error(transparent)]
    Checkpoint(#[from] MalformedCheckpoint),
    /// The log's key has signed for another log.
    #[error("the checkpoint is that of `{origin}`, which is no tenant of the log `{log}`")]
    WrongOrigin {
        /// The log whose key it is.
        log: String,
        /// What was signed.
        origin: String,
    },
    /// Not enough witnesses have seen it.
    #[error("{found} of the trusted witnesses have cosigned the checkpoint, but {needed} must have")]
    TooFewWitnesses {
        /// How many must have.
        needed: usize,
        /// How many have.
        found: usize,
    },
    /// The key did not sign any more when the newest entry was made.
    #[error("the key `{key}` ended at {ended}, but what it has signed is of {at}")]
    KeyEnded {
        /// Which key.
        key: String,
        /// When its time ended.
        ended: Moment,
        /// When the entry was made.
        at: Moment,
    },
}

impl TrustPolicy {
    /// Trust in a log alone, without witnesses.
    pub const fn in_log(keys: KeySet) -> Self {
        Self {
            keys,
            witnesses: Vec::new(),
            quorum: 0,
        }
    }

    /// Reads a checkpoint and checks who has signed it.
    ///
    /// # Errors
    /// It is not one, or not signed by whom it must be.
    pub fn open(&self, note: &[u8]) -> Result<TrustedCheckpoint, Untrusted> {
        let note = Note::parse(note)?;
        let log_keys = self.keys.keys().iter().map(|key| &key.vkey);
        let keys: Vec<_> = log_keys.chain(&self.witnesses).collect();
        // Whatever a stranger wrote is not looked at.
        let signed = note.verify(&keys)?;
        let checkpoint = Checkpoint::parse(note.text())?;
        let (tenant, key) = self.signer(&checkpoint, &signed)?;
        let witnesses = witnessed(&signed);
        if witnesses.len() < self.quorum {
            return Err(Untrusted::TooFewWitnesses {
                needed: self.quorum,
                found: witnesses.len(),
            });
        }
        Ok(TrustedCheckpoint {
            checkpoint,
            tenant,
            key,
            witnesses,
        })
    }

    /// The tenant of a checkpoint, and the log's key that signed it; of several, the one that lasts longest.
    fn signer(
        &self,
        checkpoint: &Checkpoint,
        signed: &[Signed<'_>],
    ) -> Result<(String, PublishedKey), Untrusted> {
        let has_signed = |key: &&PublishedKey| signed.iter().any(|signed| *signed.key == key.vkey);
        let mut signers = self.keys.keys().iter().filter(has_signed).peekable();
        let first = *signers.peek().ok_or(NoteFault::UnknownKey)?;
        let wrong = || Untrusted::WrongOrigin {
            log: first.vkey.name().to_owned(),
            origin: checkpoint.origin.clone(),
        };
        let named = signers.filter_map(|key| Some((tenant_of(&checkpoint.origin, key)?, key)));
        let last = named.max_by_key(|(_, key)| (key.not_after.is_none(), key.not_after));
        let (tenant, key) = last.ok_or_else(wrong)?;
        Ok((tenant.to_owned(), key.clone()))
    }
}

/// The tenant in an origin, if the origin is of the log that the key is named after.
fn tenant_of<'o>(origin: &'o str, key: &PublishedKey) -> Option<&'o str> {
    let tenant = origin.strip_prefix(key.vkey.name())?.strip_prefix('/')?;
    (!tenant.is_empty() && !tenant.contains('/')).then_some(tenant)
}

/// Each witness once, by name, with the last time that it names.
fn witnessed(signed: &[Signed<'_>]) -> Vec<Witnessed> {
    let mut witnesses: Vec<Witnessed> = Vec::new();
    for (key, time) in signed
        .iter()
        .filter_map(|signed| Some((signed.key, signed.time?)))
    {
        match witnesses.iter_mut().find(|other| other.name == key.name()) {
            Some(other) => other.time = other.time.max(time),
            None => witnesses.push(Witnessed {
                name: key.name().to_owned(),
                time,
            }),
        }
    }
    witnesses
}

impl TrustedCheckpoint {
    /// What the log says.
    pub const fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// Of which tenant.
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The log's key that has signed it.
    pub const fn key(&self) -> &PublishedKey {
        &self.key
    }

    /// Which trusted witnesses have seen it.
    pub fn witnesses(&self) -> &[Witnessed] {
        &self.witnesses
    }

    /// Checks that the key still signed when an entry that the checkpoint covers was made. A checkpoint says no time itself,
    /// and is younger than all that it covers.
    ///
    /// # Errors
    /// `KeyEnded`.
    pub fn covers(&self, at: Moment) -> Result<(), Untrusted> {
        match self.key.not_after {
            Some(ended) if ended < at => Err(Untrusted::KeyEnded {
                key: self.key.vkey.label(),
                ended,
                at,
            }),
            _ => Ok(()),
        }
    }
}
