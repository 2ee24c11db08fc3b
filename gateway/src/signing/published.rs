//! The public halves: what every gateway on a store publishes, and when a key may sign.

use super::Keyring;
use crate::changes::{By, Force, Plan};
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal};
use axum::extract::State;
use engine::{EntryKind, Snapshot};
use ledger::{KeySet, Moment, PublishedKey, SigningKey, VerifierKey};
use model::{Directory, LogKey, Noun, TenantId, Timestamp, Write};
use serde_json::json;
use std::sync::Arc;
use store::{Store, StoreError};

/// How long a key that was replaced may still sign, in milliseconds: gateways that share it hear of it within seconds, or answer
/// nobody.
const GRACE_MS: i64 = 60_000;

/// `GET /.well-known/countersign/keys.json`: the keys of the log, with their times.
pub async fn keys(State(gateway): State<Arc<Gateway>>) -> Result<Json<KeySet>, Refusal> {
    gateway.log_keys().map(Json)
}

/// The name that the log of a store has, if it has one.
pub async fn known_name(store: &dyn Store) -> Result<Option<String>, StoreError> {
    let system = store.load(Some(&[TenantId::SYSTEM])).await?;
    let nouns = system.iter().flat_map(|tenant| &tenant.nouns);
    let mut names = nouns.filter_map(|noun| match noun {
        Noun::LogKey(key) => Some(key.name().to_owned()),
        _ => None,
    });
    Ok(names.next())
}

/// When this key signs what happens now; `None` if its time is over. One that is not published has no time: nobody can take
/// what it signs for anything.
pub fn signs_at(key: &SigningKey, snapshot: &Snapshot, now: Timestamp) -> Option<Timestamp> {
    let system = snapshot.tenant(TenantId::SYSTEM);
    let published = system.and_then(|system| system.directory.log_keys.get(&key.verifier().label()));
    published.map_or(Some(now), |published| published.signs_at(now))
}

impl Gateway {
    /// The keys of the log: those of all gateways on the store, over all time.
    pub fn log_keys(&self) -> Result<KeySet, Refusal> {
        let unusable = |what: String| {
            tracing::error!(what, "the keys of the log cannot be published: {what}");
            Refusal::ledger_unavailable()
        };
        let mut keys = published(&self.snapshot.load()).map_err(unusable)?;
        let own = self.signing_key.verifier();
        if keys.iter().all(|key| key.vkey != *own) {
            keys.push(PublishedKey {
                vkey: own.clone(),
                not_before: None,
                not_after: None,
            });
        }
        KeySet::new(keys).map_err(|error| unusable(error.to_string()))
    }

    /// Publishes the key that signs from now on, and ends those that it has replaced.
    ///
    /// # Errors
    /// The key has been replaced itself, or nothing can be recorded.
    pub async fn publish_keys(&self, keys: &Keyring) -> Result<(), Refusal> {
        let label = keys.signing.verifier().label();
        let announce = |directory: &Directory, now| announce(directory, keys.signing.verifier(), now);
        self.change_by(By::Start, Force::No, TenantId::SYSTEM, announce)
            .await?;
        for replaced in &keys.replaced {
            let ended = replaced.verifier().label();
            let end = |directory: &Directory, now| Ok(end(directory, &ended, &label, now));
            self.change_by(By::Start, Force::No, TenantId::SYSTEM, end)
                .await?;
        }
        Ok(())
    }
}

/// The keys that are published, or what is wrong with one.
pub(super) fn published(snapshot: &Snapshot) -> Result<Vec<PublishedKey>, String> {
    let system = snapshot.tenant(TenantId::SYSTEM);
    let keys = system
        .into_iter()
        .flat_map(|system| system.directory.log_keys.values());
    keys.map(|key| published_key(key)).collect()
}

fn published_key(key: &LogKey) -> Result<PublishedKey, String> {
    let moment = |at: Timestamp| at.to_string().parse::<Moment>();
    let not_after = key.not_after.map(moment).transpose();
    Ok(PublishedKey {
        vkey: key
            .vkey
            .parse()
            .map_err(|error| format!("`{}`: {error}", key.label))?,
        not_before: Some(moment(key.not_before).map_err(|error| error.to_string())?),
        not_after: not_after.map_err(|error| error.to_string())?,
    })
}

fn announce(directory: &Directory, key: &VerifierKey, now: Timestamp) -> Result<Plan<()>, Refusal> {
    let label = key.label();
    if let Some(known) = directory.log_keys.get(&label) {
        return match known.signs_at(now) {
            Some(_) => Ok(Plan::nothing(())),
            None => Err(Refusal::new(
                Code::Conflict,
                format!("the signing key `{label}` has been replaced: start with the one that replaced it"),
            )),
        };
    }
    let key = LogKey {
        label,
        vkey: key.to_string(),
        not_before: now,
        not_after: None,
    };
    Ok(Plan {
        kind: EntryKind::LogKeyAdded,
        facts: json!({"vkey": key.vkey, "not_before": key.not_before}),
        writes: vec![Write::Put(Noun::LogKey(Arc::new(key)))],
        answer: (),
    })
}

/// Ends a key, unless it was never published or has ended.
fn end(directory: &Directory, label: &str, replaced_by: &str, now: Timestamp) -> Plan<()> {
    let known = directory.log_keys.get(label);
    let Some(key) = known.filter(|key| key.not_after.is_none()) else {
        return Plan::nothing(());
    };
    let ended = key.end(now.plus_millis(GRACE_MS));
    Plan {
        kind: EntryKind::LogKeyEnded,
        facts: json!({"vkey": ended.vkey, "not_after": ended.not_after, "replaced_by": replaced_by}),
        writes: vec![Write::Put(Noun::LogKey(Arc::new(ended)))],
        answer: (),
    }
}
