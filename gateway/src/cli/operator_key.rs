//! The operator's key that a gateway makes, or is given, at its start.

use crate::directory::keys::operators;
use crate::gateway::Gateway;
use crate::http::Refusal;
use canon::Digest;
use engine::Credential;
use model::{ApiKey, Directory, KeyId, Name, Noun, Role, Secret, SecretKind, TenantId, Write};
use serde_json::json;
use std::io;
use std::sync::Arc;

use crate::changes::Plan;
use engine::EntryKind;

/// The shortest key that an operator may bring along, in bytes.
const OPERATOR_KEY_BYTES_MIN: usize = 16;

/// Why there is no operator key.
#[derive(Debug, thiserror::Error)]
pub enum OperatorKeyError {
    /// The key that was brought along could be guessed.
    #[error(
        "the operator key of `--operator-key` or COUNTERSIGN_OPERATOR_KEY should begin with `csk_` and have at least {OPERATOR_KEY_BYTES_MIN} bytes"
    )]
    TooWeak,
    /// The key that was brought along could not be sent in a header.
    #[error(
        "the operator key of `--operator-key` or COUNTERSIGN_OPERATOR_KEY should have nothing but printable ASCII in it, or nobody could send it; white space around it does no harm"
    )]
    NotPrintable,
    /// Nobody could have seen it.
    #[error(
        "the operator key could not be shown, so none was made; start with a standard output that is open, or bring one along in COUNTERSIGN_OPERATOR_KEY"
    )]
    NotShown(#[source] std::io::Error),
    /// It could not be recorded.
    #[error("the operator key could not be recorded: {}", .0.detail())]
    NotRecorded(Refusal),
    /// Somebody has deleted the one that was brought along.
    #[error("the operator key that was brought along was deleted, and is not installed again")]
    Deleted,
    /// The one that was brought along does not work any more.
    #[error("the operator key that was brought along has expired")]
    Expired,
    /// The one that was brought along is a tenant's.
    #[error("the operator key that was brought along is the key of a tenant, and makes nobody an operator")]
    OfTenant,
}

/// Installs the operator key that was brought along, or makes one where there was never any. Says so if none works
/// then, or none will one day.
pub async fn ensure(
    gateway: &Gateway,
    given: Option<&str>,
    show: impl FnOnce(&str) -> io::Result<()>,
) -> Result<(), OperatorKeyError> {
    match given {
        Some(text) => bring(gateway, text).await?,
        None => make_first(gateway, show).await?,
    }
    operators::tell_of_end(gateway);
    Ok(())
}

/// Installs the key that was brought along.
async fn bring(gateway: &Gateway, text: &str) -> Result<(), OperatorKeyError> {
    let key = check(text)?;
    match install(gateway, Digest::of(key.as_bytes()), "from the environment").await {
        // It is still in the environment of a gateway that was not told, or was put there by mistake. Nobody is an
        // operator by it, and agents are not kept waiting for that.
        Err(error @ (OperatorKeyError::Deleted | OperatorKeyError::Expired | OperatorKeyError::OfTenant)) => {
            tracing::warn!(%error, "{error}: start with another one, or with none where another operator key works");
            Ok(())
        }
        installed => installed,
    }
}

/// Makes up a key where there is none. It is shown before it is recorded: one that nobody has seen would keep the next
/// start from making another, and one that does not work does no harm. Where all have expired none is made: it would be
/// shown where nobody expects it, and stay in a log.
async fn make_first(
    gateway: &Gateway,
    show: impl FnOnce(&str) -> io::Result<()>,
) -> Result<(), OperatorKeyError> {
    let exists = gateway
        .tenant(TenantId::SYSTEM)
        .is_ok_and(|system| !system.directory.keys.is_empty());
    if exists {
        return Ok(());
    }
    let secret = Secret::mint(SecretKind::ApiKey, &*gateway.entropy);
    show(secret.reveal()).map_err(OperatorKeyError::NotShown)?;
    if record(gateway, secret.digest(), "first", Beside::None).await? == Outcome::Outrun {
        tracing::warn!(
            "the operator key that was just shown does not work: another gateway was started at the same moment and has made one, which is the one to keep"
        );
    }
    Ok(())
}

/// The key that was brought along, if it is one: without the white space around it, such as the end of the line that a
/// file ends with.
pub fn check(given: &str) -> Result<&str, OperatorKeyError> {
    let key = given.trim_ascii();
    if !key.starts_with("csk_") || key.len() < OPERATOR_KEY_BYTES_MIN {
        return Err(OperatorKeyError::TooWeak);
    }
    if !key.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return Err(OperatorKeyError::NotPrintable);
    }
    Ok(key)
}

/// Records an operator key with this digest, unless there is one, or there was one that somebody has deleted. Gateways
/// that are started together with one key record it once: whether it is there is asked again of the directory that the
/// change is made to.
pub async fn install(gateway: &Gateway, digest: Digest, name: &str) -> Result<(), OperatorKeyError> {
    if let Some(known) = check_known(gateway, &digest) {
        return known;
    }
    match record(gateway, digest, name, Beside::Any).await? {
        Outcome::Deleted => Err(OperatorKeyError::Deleted),
        Outcome::Recorded | Outcome::Outrun => Ok(()),
    }
}

/// Whether somebody is an operator by the secret with this digest; `None` if nobody has it.
fn check_known(gateway: &Gateway, digest: &Digest) -> Option<Result<(), OperatorKeyError>> {
    let snapshot = gateway.snapshot.load();
    let key = match snapshot.credential(digest)? {
        Credential::Key { tenant, key } if tenant == TenantId::SYSTEM => key,
        Credential::Key { .. } | Credential::Agent { .. } => return Some(Err(OperatorKeyError::OfTenant)),
    };
    let system = snapshot.tenant(TenantId::SYSTEM)?;
    let key = system.directory.keys.get(&key)?;
    let has_expired = key.has_expired(gateway.clock.now());
    Some(if has_expired {
        Err(OperatorKeyError::Expired)
    } else {
        Ok(())
    })
}

/// Which keys a new one may stand beside.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Any,
    None,
}

/// What became of a key that was to be recorded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    /// It is there, if not for the first time.
    Recorded,
    /// Somebody has deleted it before.
    Deleted,
    /// It was to be the first, and another one was there before it.
    Outrun,
}

async fn record(
    gateway: &Gateway,
    digest: Digest,
    name: &str,
    beside: Beside,
) -> Result<Outcome, OperatorKeyError> {
    let now = gateway.clock.now();
    let key = Arc::new(ApiKey {
        id: KeyId::new(now, &*gateway.entropy),
        tenant: TenantId::SYSTEM,
        name: Name::new(name).expect("the callers give plain words"),
        role: Role::Operator,
        user: None,
        digest,
        created_at: now,
        expires_at: None,
    });
    let plan = |directory: &Directory, _| {
        if directory.keys.values().any(|key| key.digest == digest) {
            return Ok(Plan::nothing(Outcome::Recorded));
        }
        if directory.deleted_keys.contains_key(&digest) {
            return Ok(Plan::nothing(Outcome::Deleted));
        }
        if beside == Beside::None && !directory.keys.is_empty() {
            return Ok(Plan::nothing(Outcome::Outrun));
        }
        Ok(Plan::Change {
            kind: EntryKind::KeyCreated,
            facts: json!({"id": key.id, "name": key.name, "role": key.role}),
            writes: vec![Write::Put(Noun::Key(Arc::clone(&key)))],
            answer: Outcome::Recorded,
        })
    };
    // The key speaks for itself: whoever starts the process has brought it.
    let recorded: Result<Outcome, Refusal> = gateway.change_tenant(TenantId::SYSTEM, &key, plan).await;
    recorded.map_err(OperatorKeyError::NotRecorded)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "csk_0123456789abcdef";

    #[test]
    fn a_key_is_what_stands_between_white_space() {
        for given in [KEY, "csk_0123456789abcdef\n", " \tcsk_0123456789abcdef\r\n"] {
            assert_eq!(check(given).unwrap(), KEY, "{given:?}");
        }
    }

    #[test]
    fn what_nobody_could_send_or_anybody_could_guess_is_no_key() {
        for given in [
            "csk_01234567\t9abcdef",
            "csk_01234567\n9abcdef",
            "csk_0123456789abcdé",
        ] {
            assert!(
                matches!(check(given), Err(OperatorKeyError::NotPrintable)),
                "{given:?}"
            );
        }
        for given in [
            "",
            "csk_",
            "csk_short",
            "0123456789abcdef_csk",
            "csk_          \n",
        ] {
            assert!(
                matches!(check(given), Err(OperatorKeyError::TooWeak)),
                "{given:?}"
            );
        }
    }
}
