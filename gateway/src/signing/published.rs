//! The public halves: what every gateway on a store publishes, and when a key may sign.

use super::Keyring;
use crate::changes::{By, Force, Plan};
use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal};
use axum::extract::State;
use engine::{EntryKind, Snapshot};
use ledger::{KeySet, Moment, PublishedKey, SigningKey};
use model::{Directory, LogKey, Noun, TenantId, Timestamp, Write};
use serde_json::json;
use std::sync::Arc;
use store::{ChainPosition, Store, StoreError};

/// How long a key that was replaced may still sign, in milliseconds: gateways that share it hear of it within seconds, or answer
/// nobody.
const GRACE_MS: i64 = 60_000;
/// How far ahead a clock may have been for a new key to begin behind what was recorded by it, in milliseconds. Until
/// then all that the key signs, of all tenants, is of the time at which it begins.
const AHEAD_MS_MAX: i64 = 60_000;

/// `GET /.well-known/countersign/keys.json`: the keys of the log, with their times.
pub async fn keys(State(gateway): State<Arc<Gateway>>) -> Result<Json<KeySet>, Refusal> {
    let keys = gateway.log_keys().map(Json);
    keys.map_err(|what| Refusal::unreadable_keys(&what))
}

/// The names of the keys that sign the ledgers of a store, or have signed them.
pub async fn known_names(store: &dyn Store) -> Result<Vec<String>, StoreError> {
    let system = store.load(Some(&[TenantId::SYSTEM])).await?;
    let nouns = system.iter().flat_map(|tenant| &tenant.nouns);
    let names = nouns.filter_map(|noun| match noun {
        Noun::LogKey(key) => Some(key.name().to_owned()),
        _ => None,
    });
    Ok(names.collect())
}

/// When this key signs what happens now; `None` if its time is over, or if that is so at `latest`, the time that an
/// entry has which comes behind one of a clock that is ahead. One that is not published has no time: nobody can take
/// what it signs for anything.
pub fn signs_at(
    key: &SigningKey,
    snapshot: &Snapshot,
    now: Timestamp,
    latest: Timestamp,
) -> Option<Timestamp> {
    let system = snapshot.tenant(TenantId::SYSTEM);
    let published = system.and_then(|system| system.directory.log_keys.get(&key.verifier().label()));
    let Some(published) = published else {
        return Some(now);
    };
    published.signs_at(latest)?;
    published.signs_at(now)
}

/// Whether this key signs a ledger of this size now. Its newest entry may be of a clock that is ahead, and whoever
/// verifies the signature holds the time of that against the time of the key.
///
/// # Errors
/// The entry cannot be read.
pub async fn signs_ledger(
    key: &SigningKey,
    snapshot: &Snapshot,
    now: Timestamp,
    (store, tenant, size): (&dyn Store, TenantId, u64),
) -> Result<bool, StoreError> {
    let system = snapshot.tenant(TenantId::SYSTEM);
    let published = system.and_then(|system| system.directory.log_keys.get(&key.verifier().label()));
    // Most keys have no end, and then nothing is read.
    if published.is_none_or(|published| published.not_after.is_none()) {
        return Ok(true);
    }
    let newest = store.entries(tenant, size, 1).await?;
    let latest = newest.first().map_or(now, |newest| newest.at.max(now));
    Ok(signs_at(key, snapshot, now, latest).is_some())
}

impl Keyring {
    /// Refuses these if the one that signs has been replaced by another: no gateway starts with it any more. In the
    /// minute that it has left one does that has no other which has not ended.
    ///
    /// # Errors
    /// Its time is over, or it is about to be while another of them goes on.
    pub fn check_unended(&self, snapshot: &Snapshot, now: Timestamp) -> Result<(), Refusal> {
        match snapshot.tenant(TenantId::SYSTEM) {
            Some(system) => check_unended(&system.directory, self, now),
            None => Ok(()),
        }
    }
}

impl Gateway {
    /// The keys of the log: those of all gateways on the store, over all time.
    ///
    /// # Errors
    /// What is wrong with one of them. The watch says so in the log: it is a fault of the system tenant's ledger.
    pub fn log_keys(&self) -> Result<KeySet, String> {
        let mut keys = published(&self.snapshot.load())?;
        let own = self.signing_key.verifier();
        if keys.iter().all(|key| key.vkey != *own) {
            keys.push(PublishedKey {
                vkey: own.clone(),
                not_before: None,
                not_after: None,
            });
        }
        KeySet::new(keys).map_err(|error| error.to_string())
    }

    /// Refuses to sign, if the time of the key is over.
    pub fn check_key(&self) -> Result<(), Refusal> {
        let now = self.clock.now();
        match signs_at(&self.signing_key, &self.snapshot.load(), now, now) {
            Some(_) => Ok(()),
            None => Err(Refusal::key_ended()),
        }
    }

    /// Refuses to sign a ledger of this size, if the time of the key is over, or ends before the newest entry of it.
    pub async fn check_key_for(&self, tenant: TenantId, size: u64) -> Result<(), Refusal> {
        let snapshot = self.snapshot.load_full();
        let ledger = (&*self.store, tenant, size);
        if signs_ledger(&self.signing_key, &snapshot, self.clock.now(), ledger).await? {
            Ok(())
        } else {
            Err(Refusal::key_ended())
        }
    }

    /// Publishes the key that signs from now on, and ends those that it has replaced.
    ///
    /// # Errors
    /// The key has been replaced itself, or nothing can be recorded.
    pub async fn publish_keys(&self, keys: &Keyring) -> Result<(), Refusal> {
        let label = keys.signing.verifier().label();
        let newest = self.newest_entry(&[TenantId::SYSTEM]).await?;
        // Where another gateway has recorded something since then, the change is made again, and the key begins by the
        // clock of that attempt.
        let announce =
            |directory: &Directory, _: Timestamp| announce(directory, keys, (self.clock.now(), newest));
        self.change_by(By::Start, Force::No, TenantId::SYSTEM, announce)
            .await?;
        for replaced in &keys.replaced {
            let (system, ended) = (self.tenant(TenantId::SYSTEM)?, replaced.verifier().label());
            // A line may stand twice in a file, and no key replaces itself.
            let published = system.directory.log_keys.get(&ended);
            let unended = published.filter(|key| ended != label && ending(key, self.clock.now()).is_some());
            let Some(known) = unended else { continue };
            // INVARIANT: a key ends after everything that it has signed, also where the clock of a gateway was ahead of
            // this one. What others sign until they hear of it has `GRACE_MS` from each attempt on: the turn of the
            // change may be long ago by then.
            let newest = self.newest_entry(&self.tenants()).await?;
            let end = |directory: &Directory, _: Timestamp| {
                let newest = self.clock.now().max(newest);
                end(directory, known, &label, newest)
            };
            self.change_by(By::Start, Force::No, TenantId::SYSTEM, end)
                .await?;
        }
        Ok(())
    }

    /// All tenants that are known.
    fn tenants(&self) -> Vec<TenantId> {
        let snapshot = self.snapshot.load();
        snapshot.tenants().map(|(tenant, _)| *tenant).collect()
    }

    /// When the newest entry of these ledgers was recorded.
    async fn newest_entry(&self, tenants: &[TenantId]) -> Result<Timestamp, Refusal> {
        let turn = self.store.begin(tenants).await?;
        let newest = turn.positions().values().map(|position| position.at).max();
        Ok(newest.unwrap_or(ChainPosition::GENESIS.at))
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

/// Refuses keys of which the one that signs has ended, or is about to while another of them goes on: that one has replaced it.
fn check_unended(directory: &Directory, keys: &Keyring, now: Timestamp) -> Result<(), Refusal> {
    let label = keys.signing.verifier().label();
    let Some(known) = directory.log_keys.get(&label) else {
        return Ok(());
    };
    if known.not_after.is_none() {
        return Ok(());
    }
    let others = keys.replaced.iter().map(|key| key.verifier().label());
    if let Some(other) = others.rev().find(|other| unended(directory, other).is_some()) {
        return Err(replaced(&label, &other));
    }
    if known.signs_at(now).is_some() {
        return Ok(());
    }
    let detail = format!(
        "the signing key `{label}` has been replaced: start with the one that replaced it, or add a new one by \
         `countersign rotate-key`"
    );
    Err(Refusal::new(Code::Conflict, detail))
}

/// The refusal of a key that has ended, while another one of the same file has not.
fn replaced(label: &str, other: &str) -> Refusal {
    let detail = format!(
        "the signing key `{label}` has been replaced, and `{other}` of the same file has not: put that one last, because the \
         last one signs, or add the one that replaced it"
    );
    Refusal::new(Code::Conflict, detail)
}

/// Adds the key that signs, unless it was added before. `newest` is when the newest entry of the ledger was recorded
/// that tells of it.
fn announce(
    directory: &Directory,
    keys: &Keyring,
    (now, newest): (Timestamp, Timestamp),
) -> Result<Plan<()>, Refusal> {
    check_unended(directory, keys, now)?;
    let key = keys.signing.verifier();
    let label = key.label();
    if directory.log_keys.contains_key(&label) {
        return Ok(Plan::nothing(()));
    }
    let key = LogKey {
        label,
        vkey: key.to_string(),
        not_before: beginning(now, newest),
        not_after: None,
    };
    Ok(Plan::Change {
        kind: EntryKind::LogKeyAdded,
        facts: json!({"vkey": key.vkey, "not_before": key.not_before}),
        writes: vec![Write::Put(Noun::LogKey(Arc::new(key)))],
        answer: (),
    })
}

/// When a key begins that is added now: behind the newest entry. A ledger that was exported with that entry as its last
/// one cannot tell of the key, and whoever verifies it sees by the time that it cannot. One of a clock that is far
/// ahead is not waited for.
fn beginning(now: Timestamp, newest: Timestamp) -> Timestamp {
    let behind = newest.plus_millis(1);
    if behind > now.plus_millis(AHEAD_MS_MAX) {
        return now;
    }
    now.max(behind)
}

/// The key of this label, unless it was never published or has ended.
fn unended<'d>(directory: &'d Directory, label: &str) -> Option<&'d LogKey> {
    let known = directory.log_keys.get(label)?;
    known.not_after.is_none().then_some(known)
}

/// A key as it is when it has been replaced, unless it ends by then anyway. An end that is later is not of a gateway:
/// somebody who has stolen the key has named it before the key was replaced.
fn ending(key: &LogKey, newest: Timestamp) -> Option<LogKey> {
    let ended = key.end(newest.plus_millis(GRACE_MS));
    (ended != *key).then_some(ended)
}

/// Ends a key. `newest` is now, or when the newest entry was recorded, if that is later; `known` is the key as it was
/// before that was read. If it is another one now, another gateway has just ended it, perhaps later than `newest` tells,
/// and a second end would be a fault.
///
/// # Errors
/// The one that is to replace it has ended itself.
fn end(
    directory: &Directory,
    known: &LogKey,
    replaced_by: &str,
    newest: Timestamp,
) -> Result<Plan<()>, Refusal> {
    let label = &*known.label;
    let same = directory.log_keys.get(label).filter(|key| ***key == *known);
    let Some(ended) = same.and_then(|key| ending(key, newest)) else {
        return Ok(Plan::nothing(()));
    };
    // INVARIANT: a key that has ended ends nobody. Two gateways that start at once with the same keys in another order
    // would leave none.
    if unended(directory, replaced_by).is_none() {
        return Err(replaced(replaced_by, label));
    }
    Ok(Plan::Change {
        kind: EntryKind::LogKeyEnded,
        facts: json!({"vkey": ended.vkey, "not_after": ended.not_after, "replaced_by": replaced_by}),
        writes: vec![Write::Put(Noun::LogKey(Arc::new(ended)))],
        answer: (),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{LimitTerms, Name, Settings, Standing, Tenant};

    const BEGINNING: Timestamp = Timestamp::from_millis(1_000);
    /// When a key ends that is replaced at the beginning.
    const END: Timestamp = BEGINNING.plus_millis(GRACE_MS);

    fn key(label: &str, not_after: Option<Timestamp>) -> LogKey {
        LogKey {
            label: label.to_owned(),
            vkey: String::new(),
            not_before: BEGINNING,
            not_after,
        }
    }

    /// The directory that has these.
    fn directory(keys: impl IntoIterator<Item = LogKey>) -> Directory {
        let tenant = Tenant {
            id: TenantId::SYSTEM,
            name: Name::new("system").unwrap(),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: LimitTerms::default(),
            created_at: BEGINNING,
            deleted_at: None,
        };
        let mut directory = Directory::new(Arc::new(tenant));
        for key in keys {
            directory.apply(&Write::Put(Noun::LogKey(Arc::new(key))));
        }
        directory
    }

    #[test]
    fn a_key_begins_behind_the_newest_entry_unless_the_clock_of_that_is_far_ahead() {
        let (now, at) = (BEGINNING, |millis| BEGINNING.plus_millis(millis));
        for (newest, expected) in [
            (at(-1_000), now),
            (now, at(1)),
            (at(AHEAD_MS_MAX - 1), at(AHEAD_MS_MAX)),
            (at(AHEAD_MS_MAX), now),
        ] {
            assert_eq!(beginning(now, newest), expected, "{newest}");
        }
    }

    /// As it is where two gateways have started at once, with the same keys in another order.
    #[test]
    fn of_two_keys_that_would_end_each_other_one_goes_on() {
        let (first, second) = (key("log+1", None), key("log+2", None));
        let mut directory = directory([first.clone(), second.clone()]);
        let Ok(plan) = end(&directory, &first, "log+2", BEGINNING) else {
            panic!("a key that goes on ends another one");
        };
        for write in plan.writes() {
            directory.apply(write);
        }
        let Err(refusal) = end(&directory, &second, "log+1", BEGINNING) else {
            panic!("a key that has ended ends another one");
        };
        assert!(
            refusal.detail().contains("`log+2` of the same file has not"),
            "{refusal:?}"
        );
    }

    /// Where another gateway has ended it, by a clock that is ahead, its end stays: another one would be a fault.
    #[test]
    fn a_key_that_is_replaced_ends_once_and_by_then_whatever_end_was_named_before() {
        let ended = |key: &LogKey, known: &LogKey| {
            let directory = directory([key.clone(), self::key("log+2", None)]);
            let plan = end(&directory, known, "log+2", BEGINNING).unwrap();
            let Write::Put(Noun::LogKey(key)) = plan.writes().first()? else {
                panic!("it writes no key");
            };
            key.not_after
        };
        let unended = key("log+1", None);
        assert_eq!(ended(&unended, &unended), Some(END));
        let by_then = key("log+1", Some(END));
        assert_eq!(ended(&by_then, &by_then), None);
        let late = key("log+1", Some(END.plus_millis(1)));
        assert_eq!(ended(&late, &late), Some(END));
        assert_eq!(ended(&late, &unended), None);
    }
}
