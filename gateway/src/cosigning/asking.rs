//! The client of one witness: a checkpoint goes out, what the witness says to it comes back. What that means is not decided here.
//!
//! Nothing is followed anywhere else: no redirect and no proxy of the environment. Every call has an end.

use super::Witness;
use crate::locks::lock;
use ledger::witness::{AddCheckpoint, add_cosignatures};
use ledger::{Note, NoteFault, NoteSignature, VerifierKey};
use rustls::crypto::aws_lc_rs;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use ureq::tls::TlsConfig;

/// A witness that takes longer is asked again in the next round.
const PATIENCE: Duration = Duration::from_secs(5);
/// Signature lines are short, and a size is shorter.
const ANSWER_BYTES_MAX: u64 = 64 * 1024;

/// Asks one witness.
pub(super) struct WitnessClient {
    agent: ureq::Agent,
    url: String,
    key: VerifierKey,
    /// How it is, as far as is known, so that the log tells only of changes.
    health: Mutex<Health>,
}

/// How a witness is, the worse the later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Health {
    /// It cosigns, as far as is known.
    Cosigns,
    /// It does not, for now.
    Fails,
    /// It knows no key that signs what it is shown, which does not end by itself.
    KnowsNoKey,
    /// It does not know any more what it has cosigned, which does not end by itself.
    HasForgotten,
}

/// What a witness says.
#[derive(Debug)]
pub(super) enum Answer {
    /// It has cosigned.
    Cosigned(NoteSignature),
    /// 409: it has seen so many entries.
    Seen(u64),
    /// 422: the proof does not lead from what it has seen to the checkpoint.
    Inconsistent,
}

/// Why it is not known what a witness has seen.
#[derive(Debug, thiserror::Error)]
pub(super) enum AskError {
    /// It does not answer.
    #[error("it does not answer: {0}")]
    Unreachable(#[from] ureq::Error),
    /// 403: no key that it knows has signed the checkpoint, if it is the witness that says so. Of the log it knows
    /// another key, or it would have said 404. A proxy before it says 403 to whom it does not let through.
    #[error(
        "it says that it knows no key that has signed the checkpoint (status 403): tell it the log's public key, a `countersign witness` by a further `--log-key`"
    )]
    UnknownKey,
    /// It answers something else than a witness does.
    #[error("it answers with status {0}")]
    Status(u16),
    /// It does not say what it has seen.
    #[error("it says that it has seen another size, but not which")]
    NoSize,
    /// What it sends are not signatures, or a wrong one is among them.
    #[error("its cosignature is not one: {0}")]
    Cosignature(#[from] NoteFault),
    /// None of the signatures is its own.
    #[error("it has not signed with the key that is known")]
    OtherKey,
    /// It says that it has seen less than it has cosigned, or than it has said itself. It would cosign any past now.
    #[error(
        "it has forgotten what it cosigned: it says that it has seen {says} entries, and it has seen {seen}"
    )]
    Forgotten {
        /// How many entries it is known to have seen.
        seen: u64,
        /// How many it says it has seen.
        says: u64,
    },
    /// Its answers do not go together.
    #[error("it contradicts itself")]
    Contradiction,
    /// The call was broken off.
    #[error("asking it broke off: {0}")]
    BrokenOff(#[from] tokio::task::JoinError),
}

impl AskError {
    /// Whether asking about anything else would come to the same.
    pub(super) const fn is_silence(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::BrokenOff(_))
    }

    /// What it says of the witness.
    pub(super) const fn health(&self) -> Health {
        match self {
            Self::Forgotten { .. } => Health::HasForgotten,
            Self::UnknownKey => Health::KnowsNoKey,
            _ => Health::Fails,
        }
    }
}

impl WitnessClient {
    pub(super) fn new(witness: Witness) -> Self {
        let tls =
            TlsConfig::builder().unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = ureq::Agent::config_builder()
            .tls_config(tls.build())
            .http_status_as_error(false)
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .proxy(None)
            .user_agent(concat!("countersign/", env!("CARGO_PKG_VERSION")));
        Self {
            agent: config.build().into(),
            url: format!("{}/add-checkpoint", witness.prefix),
            key: witness.key,
            health: Mutex::new(Health::Cosigns),
        }
    }

    pub(super) fn name(&self) -> &str {
        self.key.name()
    }

    /// Notes that the witness has failed like this; true if it was better before. One that has forgotten something and
    /// does not answer is no better.
    pub(super) fn note_failure(&self, health: Health) -> bool {
        let mut known = lock(&self.health);
        let is_worse = *known < health;
        *known = health.max(*known);
        is_worse
    }

    /// Notes that the witness has cosigned whatever it was shown; true if it failed before, and does not any more. What
    /// it has forgotten may be of a ledger that has not moved, so that is over only where such ledgers were shown, too.
    pub(super) fn note_cosigning(&self, also_unchanged: bool) -> bool {
        let mut known = lock(&self.health);
        if *known == Health::HasForgotten && !also_unchanged {
            return false;
        }
        std::mem::replace(&mut *known, Health::Cosigns) != Health::Cosigns
    }

    /// Asks. It blocks, so it runs where that is allowed.
    pub(super) fn ask(&self, request: &AddCheckpoint) -> Result<Answer, AskError> {
        let mut response = self.agent.post(&self.url).send(request.to_string())?;
        let status = response.status().as_u16();
        let body = response
            .body_mut()
            .with_config()
            .limit(ANSWER_BYTES_MAX)
            .read_to_vec()?;
        match status {
            200 => self.cosignature(request, &body).map(Answer::Cosigned),
            403 => Err(AskError::UnknownKey),
            409 => size(&body).map(Answer::Seen).ok_or(AskError::NoSize),
            422 => Ok(Answer::Inconsistent),
            other => Err(AskError::Status(other)),
        }
    }

    /// The cosignature of the known key, verified. Others in the answer are left out.
    fn cosignature(&self, request: &AddCheckpoint, answer: &[u8]) -> Result<NoteSignature, AskError> {
        let sent = Note::parse(request.checkpoint.as_bytes())?;
        let mut bare = Note::sign(sent.text(), &[])?;
        add_cosignatures(&mut bare, answer, &[&self.key])?;
        bare.signatures().first().cloned().ok_or(AskError::OtherKey)
    }
}

/// A size in decimal digits and a newline.
fn size(body: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(body).ok()?.strip_suffix('\n')?;
    let is_plain =
        digits.bytes().all(|byte| byte.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
    is_plain.then(|| digits.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::{Answer, AskError, Health, WitnessClient, size};
    use crate::signing::Keyring;
    use crate::witness::{self, Folder};
    use canon::Digest;
    use ledger::witness::AddCheckpoint;
    use ledger::{Checkpoint, SignatureKind, SigningKey};
    use model::Timestamp;
    use model::time::ManualClock;
    use std::sync::Arc;
    use tokio::net::TcpListener;

    /// The key of the log was replaced, and nobody has told the witness.
    #[tokio::test]
    async fn a_witness_that_knows_only_another_key_of_the_log_has_to_be_told_of_this_one() {
        let log = |seed| SigningKey::from_seed("log.example", SignatureKind::Note, &[seed; 32]).unwrap();
        let (old, new) = (log(1), log(2));
        let key = SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[7; 32]).unwrap();
        let named = key.verifier().to_string();
        let folder = tempfile::tempdir().unwrap();
        let witness = witness::Witness::new(
            Keyring::of(key),
            vec![old.verifier().clone()],
            Arc::new(ManualClock::at(Timestamp::from_millis(1_769_851_800_000))),
            Folder::open(folder.path()).unwrap(),
        );
        let router = Arc::new(witness).router();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        let named = format!("http://{address}#{named}");
        let client = Arc::new(WitnessClient::new(named.parse().unwrap()));
        let shown = |key: &SigningKey| {
            let checkpoint = Checkpoint::new("log.example", "tnt_1", 1, Digest::of(b"root"));
            let request = AddCheckpoint {
                old_size: 0,
                proof: Vec::new(),
                checkpoint: checkpoint.sign(&[key]).unwrap().to_string(),
            };
            let client = Arc::clone(&client);
            tokio::task::spawn_blocking(move || client.ask(&request))
        };
        let refused = shown(&new).await.unwrap().unwrap_err();
        assert!(matches!(refused, AskError::UnknownKey), "{refused:?}");
        assert!(client.note_failure(Health::Fails));
        assert!(client.note_failure(refused.health()), "silence was told before");
        assert!(!client.note_failure(Health::Fails), "and this is told once");
        assert!(
            refused.to_string().ends_with("by a further `--log-key`"),
            "{refused}"
        );
        let cosigned = shown(&old).await.unwrap();
        assert!(matches!(cosigned, Ok(Answer::Cosigned(_))), "{cosigned:?}");
    }

    #[test]
    fn a_witness_that_has_forgotten_is_well_again_only_when_it_has_cosigned_what_has_not_moved_too() {
        let key = SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[7; 32]).unwrap();
        let named = format!("http://w.example#{}", key.verifier());
        let client = WitnessClient::new(named.parse().unwrap());
        assert!(!client.note_cosigning(true), "it was well");
        assert!(client.note_failure(Health::Fails));
        assert!(!client.note_failure(Health::Fails), "that was told");
        assert!(client.note_cosigning(false));
        assert!(client.note_failure(Health::Fails));
        assert!(client.note_failure(Health::HasForgotten), "that is worse");
        assert!(!client.note_cosigning(false));
        assert!(!client.note_failure(Health::Fails), "that is better");
        assert!(!client.note_cosigning(false), "and not well");
        assert!(client.note_cosigning(true));
        assert!(client.note_failure(Health::Fails));
    }

    #[test]
    fn a_size_is_digits_and_a_newline() {
        assert_eq!(size(b"0\n"), Some(0));
        assert_eq!(size(b"4812\n"), Some(4812));
        for other in [
            "",
            "\n",
            "12",
            "012\n",
            "+1\n",
            "-1\n",
            "1\n\n",
            "x\n",
            "18446744073709551616\n",
        ] {
            assert_eq!(size(other.as_bytes()), None, "{other:?}");
        }
    }
}
