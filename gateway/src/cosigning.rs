//! Witnesses: others who have seen where the ledgers end, so that nobody can show them another past later.
//!
//! A job hands every tenant's checkpoint to the witnesses that the operator names (C2SP tlog-witness) and keeps what
//! they have cosigned. A witness that has seen something else than the database says, stops the gateway: from then on
//! it answers nobody, and writes nothing to any ledger, until it is started again. Decisions never wait for a witness,
//! and a witness that does not answer stops nothing.

mod asking;
mod kept;
mod round;

use crate::http::{Code, Refusal};
use crate::locks::lock;
use crate::metrics::Metrics;
use crate::snapshot::SnapshotCell;
use crate::watch::Watch;
use asking::WitnessClient;
use kept::Kept;
use ledger::{Checkpoint, MalformedKey, NoteSignature, SignatureKind, SigningKey, VerifierKey};
use model::{Clock, TenantId};
use std::fmt;
use std::str::FromStr;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;
use store::Store;

/// A witness that the operator names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Witness {
    /// What `/add-checkpoint` comes behind.
    prefix: String,
    key: VerifierKey,
}

impl Witness {
    /// What it is called in its key.
    pub fn name(&self) -> &str {
        self.key.name()
    }
}

/// A text that names no witness.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MalformedWitness {
    /// Not both parts.
    #[error("a witness is `URL#KEY`: where it is asked, and its verifier key")]
    Layout,
    /// It cannot be asked there.
    #[error(
        "what stands before the `#` is not a URL that begins with `http://` or `https://` and has no query"
    )]
    Url,
    /// Its key is none.
    #[error(transparent)]
    Key(#[from] MalformedKey),
    /// Its key is that of a log.
    #[error("the key `{0}` is that of a log; a witness has one of type 4")]
    NotAWitness(String),
}

impl FromStr for Witness {
    type Err = MalformedWitness;

    fn from_str(text: &str) -> Result<Self, MalformedWitness> {
        let (url, key) = text.split_once('#').ok_or(MalformedWitness::Layout)?;
        let is_url = url.parse::<axum::http::Uri>().is_ok_and(|uri| {
            let scheme = uri.scheme_str();
            (scheme == Some("http") || scheme == Some("https")) && uri.query().is_none()
        });
        if !is_url {
            return Err(MalformedWitness::Url);
        }
        let key: VerifierKey = key.parse()?;
        if key.kind() != SignatureKind::Cosignature {
            return Err(MalformedWitness::NotAWitness(key.label()));
        }
        Ok(Self {
            prefix: url.trim_end_matches('/').to_owned(),
            key,
        })
    }
}

/// Whom to ask, how often, and how many make a checkpoint a witnessed one.
#[derive(Debug, Clone)]
pub struct WitnessOptions {
    /// Whom.
    pub witnesses: Vec<Witness>,
    /// How many of them must have cosigned a checkpoint.
    pub quorum: usize,
    /// How long to rest between two rounds.
    pub every: Duration,
    /// How long to wait before what was found damaged is read once more.
    pub look_again: Duration,
}

impl Default for WitnessOptions {
    fn default() -> Self {
        Self {
            witnesses: Vec::new(),
            quorum: 1,
            every: Duration::from_secs(10),
            look_again: Duration::from_secs(1),
        }
    }
}

/// What a witness has seen is not what the database says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fork {
    /// Whose ledger.
    pub tenant: TenantId,
    /// Who has seen it.
    pub witness: String,
    /// What is different.
    pub what: Difference,
}

/// How a ledger is not the one that a witness has seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// It is shorter: its tail was cut, or an old copy was put back, or somebody else goes on with a copy.
    Shorter {
        /// How many entries the witness has seen.
        seen: u64,
        /// How many there are.
        there: u64,
    },
    /// It is another: something that the witness has seen was rewritten.
    Other {
        /// Up to where it was the same for the witness.
        seen: u64,
    },
    /// The database cannot prove that it is the same.
    Unprovable(String),
}

impl fmt::Display for Fork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant,
            witness,
            what,
        } = self;
        match what {
            Difference::Shorter { seen, there } => write!(
                f,
                "`{witness}` has seen {seen} entries of {tenant}, and the database has {there}"
            ),
            Difference::Other { seen } => write!(
                f,
                "the ledger of {tenant} does not begin with the {seen} entries that `{witness}` has seen"
            ),
            Difference::Unprovable(what) => write!(
                f,
                "it cannot be proven that the ledger of {tenant} begins with what `{witness}` has seen: {what}"
            ),
        }
    }
}

/// What asking is done with.
pub struct Parts {
    /// Whom to ask.
    pub options: WitnessOptions,
    /// Where the ledgers are.
    pub store: Arc<dyn Store>,
    /// Which tenants there are.
    pub snapshot: Arc<SnapshotCell>,
    /// What tells whether the time of the key is over.
    pub clock: Arc<dyn Clock>,
    /// Which ledgers are known not to be what was recorded.
    pub watch: Arc<Watch>,
    /// What checkpoints are signed with.
    pub signing_key: Arc<SigningKey>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// What a witness has seen that the database does not say, for whoever writes to the ledgers.
    pub fork: Arc<OnceLock<Fork>>,
}

/// The witnesses, what they have cosigned, and whether one of them has seen something else.
pub struct Cosigning {
    clients: Vec<Arc<WitnessClient>>,
    quorum: usize,
    /// How long to rest between two rounds, and how long what is remembered is not compared again during one.
    every: Duration,
    /// How long to wait before what was found damaged is read once more: one read may meet damage that the next one
    /// does not, and a gateway that has stopped does not go on by itself.
    look_again: Duration,
    store: Arc<dyn Store>,
    snapshot: Arc<SnapshotCell>,
    clock: Arc<dyn Clock>,
    watch: Arc<Watch>,
    signing_key: Arc<SigningKey>,
    metrics: Arc<Metrics>,
    /// Never held across an `await`.
    kept: Mutex<Kept>,
    /// Set once: what has been seen does not go away by itself.
    fork: Arc<OnceLock<Fork>>,
    /// Held during a round, so that there is one at a time; how many there were.
    rounds: tokio::sync::Mutex<u64>,
}

impl Cosigning {
    /// With nothing asked yet.
    pub fn new(parts: Parts) -> Self {
        let Parts {
            options,
            store,
            snapshot,
            clock,
            watch,
            signing_key,
            metrics,
            fork,
        } = parts;
        for witness in &options.witnesses {
            metrics.show_witness(witness.name());
        }
        Self {
            clients: options
                .witnesses
                .into_iter()
                .map(WitnessClient::new)
                .map(Arc::new)
                .collect(),
            quorum: options.quorum,
            every: options.every,
            look_again: options.look_again,
            store,
            snapshot,
            clock,
            watch,
            signing_key,
            metrics,
            kept: Mutex::default(),
            fork,
            rounds: tokio::sync::Mutex::new(0),
        }
    }

    /// Whether no witness has seen anything else.
    ///
    /// # Errors
    /// One has.
    pub fn check(&self) -> Result<(), Refusal> {
        match self.fork.get() {
            None => Ok(()),
            Some(fork) => Err(Refusal::new(
                Code::LedgerForked,
                format!(
                    "the witness `{}` has seen another ledger than the one in the database, so nothing is answered",
                    fork.witness
                ),
            )),
        }
    }

    /// What a witness has seen that the database does not say.
    pub fn fork(&self) -> Option<&Fork> {
        self.fork.get()
    }

    /// The signatures of those who have cosigned this checkpoint.
    pub fn cosignatures(&self, tenant: TenantId, checkpoint: &Checkpoint) -> Vec<NoteSignature> {
        self.kept().cosignatures(tenant, checkpoint)
    }

    /// The newest checkpoint of a tenant that enough witnesses have cosigned.
    ///
    /// # Errors
    /// There is none yet.
    pub fn witnessed(&self, tenant: TenantId) -> Result<Checkpoint, Refusal> {
        let none = "no checkpoint of this ledger has been cosigned by enough witnesses since this gateway was started";
        let witnessed = self.kept().witnessed(tenant);
        witnessed.ok_or_else(|| Refusal::new(Code::NotFound, none))
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        lock(&self.kept)
    }

    /// Stops the gateway for good.
    fn stop(&self, fork: Fork) {
        tracing::error!(
            tenant = %fork.tenant,
            witness = fork.witness,
            "the ledger has forked, and nothing is answered any more: {fork}"
        );
        self.metrics.set_witness_fork();
        // Whoever was first has stopped it already.
        let _ = self.fork.set(fork);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::SigningKey;

    fn key(kind: SignatureKind) -> String {
        let key = SigningKey::from_seed("witness.example/w", kind, &[7; 32]).unwrap();
        key.verifier().to_string()
    }

    #[test]
    fn a_witness_is_a_url_and_a_key() {
        let key = key(SignatureKind::Cosignature);
        let witness: Witness = format!("https://witness.example/log/#{key}").parse().unwrap();
        assert_eq!(witness.prefix, "https://witness.example/log");
        assert_eq!(witness.key.to_string(), key);
    }

    #[test]
    fn anything_else_is_not() {
        let (good, log) = (key(SignatureKind::Cosignature), key(SignatureKind::Note));
        for (text, expected) in [
            (good.clone(), "a witness is `URL#KEY`"),
            (format!("witness.example#{good}"), "is not a URL"),
            (format!("ftp://w.example#{good}"), "is not a URL"),
            (format!("http://w.example/?a=b#{good}"), "is not a URL"),
            (format!("#{good}"), "is not a URL"),
            ("http://w.example#nobody".to_owned(), "a verifier key is"),
            (format!("http://w.example#{log}"), "is that of a log"),
        ] {
            let refusal = text.parse::<Witness>().unwrap_err().to_string();
            assert!(refusal.contains(expected), "{text}: {refusal}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_url_of_a_witness_is_told_without_its_password() {
        let good = key(SignatureKind::Cosignature);
        let text = format!("http://cs:s3cret@w.example/?a=b#{good}");
        let refusal = text.parse::<Witness>().unwrap_err().to_string();
        assert!(!refusal.contains("s3cret"), "{refusal}");
    }
}
