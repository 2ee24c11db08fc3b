//! What the ledger of the system tenant says of the log's keys: it has to be what is published. Keys are nouns of a
//! directory, and whoever can write the database can put one there. They can append an entry that tells of it, too, but
//! not take it away any more once a witness has cosigned it: so whoever takes the keys anew looks at what was added. No
//! entry brings a key back that has ended.

use crate::gateway::Gateway;
use engine::EntryKind;
use ledger::{Moment, PublishedKey, VerifierKey};
use model::TenantId;
use serde::Deserialize;
use std::collections::BTreeMap;
use store::{Store, StoreError};

/// Entries that are read at once.
const PAGE: u32 = 256;

/// The keys that entries tell of.
#[derive(Debug, Default)]
pub struct KeyHistory {
    keys: BTreeMap<String, Times>,
}

/// When a key signs, as the entries have it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Times {
    not_before: Option<String>,
    not_after: Option<String>,
    /// Whether a later entry names another time than the one that named it first.
    is_contradicted: bool,
}

/// What of the published keys no entry tells, because it is younger than the last one, or because somebody has put it
/// into the database by hand: entries that come later would say which.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct UntoldKeys {
    /// How many keys.
    pub keys: u64,
    /// How many ends of other keys.
    pub ends: u64,
}

/// What an entry says of a key.
#[derive(Deserialize)]
struct KeyBody {
    vkey: String,
    not_before: Option<String>,
    not_after: Option<String>,
}

impl Times {
    /// Takes in what an entry names of them. What was named first stays: no gateway names the beginning or the end of a
    /// key twice, unless somebody else has named an end before, and with another end a key that was stolen would sign
    /// again.
    fn name(&mut self, not_before: Option<String>, not_after: Option<String>) {
        for (first, named) in [
            (&mut self.not_before, not_before),
            (&mut self.not_after, not_after),
        ] {
            let Some(named) = named else { continue };
            if let Some(first) = first {
                self.is_contradicted |= *first != named;
            } else {
                *first = Some(named);
            }
        }
    }
}

/// Whether entries of this kind tell of keys.
pub fn is_about_keys(kind: &str) -> bool {
    let kinds = [EntryKind::LogKeyAdded, EntryKind::LogKeyEnded];
    kinds.iter().any(|about| about.as_str() == kind)
}

impl KeyHistory {
    /// Takes in an entry. One that is not about keys says nothing.
    pub fn push(&mut self, kind: &str, body: &str) {
        let body = is_about_keys(kind).then(|| serde_json::from_str::<KeyBody>(body));
        if let Some(Ok(body)) = body {
            let times = self.keys.entry(body.vkey).or_default();
            times.name(body.not_before, body.not_after);
        }
    }

    /// What the entries say, as far as they are stored.
    ///
    /// # Errors
    /// The store cannot be read.
    pub async fn read(store: &dyn Store) -> Result<Self, StoreError> {
        let mut history = Self::default();
        let mut next = 1;
        loop {
            let page = store.entries(TenantId::SYSTEM, next, PAGE).await?;
            let Some(last) = page.last() else {
                return Ok(history);
            };
            next = last.seq + 1;
            for entry in &page {
                history.push(&entry.kind, &entry.body);
            }
            tokio::task::yield_now().await;
        }
    }

    /// The first difference among the entries, or between what they say and what is published. What is younger than the
    /// last entry, which is of the time `until`, the entries cannot tell: [`Self::untold_of`] counts it.
    pub fn differs_from(&self, published: &[PublishedKey], until: Option<&str>) -> Option<String> {
        if let Some((vkey, _)) = self.keys.iter().find(|(_, times)| times.is_contradicted) {
            return Some(format!(
                "an entry tells another time of the key `{vkey}` than an earlier one"
            ));
        }
        let is_untold = |at: Option<&Moment>| at.zip(until).is_some_and(|(at, until)| at.as_str() > until);
        for key in published {
            let (label, vkey) = (key.vkey.label(), key.vkey.to_string());
            let Some(told) = self.keys.get(&vkey) else {
                if is_untold(key.not_before.as_ref()) {
                    continue;
                }
                return Some(format!(
                    "the key `{label}` is published, and no entry tells that it was added"
                ));
            };
            let text = |at: &Option<Moment>| at.as_ref().map(|at| at.as_str().to_owned());
            let ends_later = told.not_after.is_none() && is_untold(key.not_after.as_ref());
            let ends = text(&key.not_after) == told.not_after || ends_later;
            if text(&key.not_before) != told.not_before || !ends {
                return Some(format!(
                    "the key `{label}` is published with other times than the entries tell"
                ));
            }
        }
        let is_published = |vkey: &&String| published.iter().any(|key| key.vkey.to_string() == **vkey);
        let unpublished = self.keys.keys().find(|vkey| !is_published(vkey))?;
        Some(format!(
            "an entry tells that the key `{unpublished}` was added, and it is not published"
        ))
    }

    /// How much of what is published no entry tells, where nothing differs.
    pub fn untold_of(&self, published: &[PublishedKey]) -> UntoldKeys {
        let mut untold = UntoldKeys::default();
        for key in published {
            match self.keys.get(&key.vkey.to_string()) {
                None => untold.keys += 1,
                Some(told) if told.not_after.is_none() => untold.ends += u64::from(key.not_after.is_some()),
                Some(_) => {}
            }
        }
        untold
    }

    /// Whether an entry tells of a key.
    pub fn tells_of(&self, vkey: &VerifierKey) -> bool {
        self.keys.contains_key(&vkey.to_string())
    }
}

impl Gateway {
    /// What is wrong with the keys that are published, if they are not those that the ledger tells of, as this handle reads it.
    ///
    /// # Errors
    /// The store cannot be read.
    pub(crate) async fn keys_differ(&self, store: &dyn Store) -> Result<Option<String>, StoreError> {
        // Where one of them is no key, or stands twice, there is nothing to hold against entries.
        if let Err(what) = self.log_keys() {
            return Ok(Some(what));
        }
        let history = KeyHistory::read(store).await?;
        // Read behind the entries, and what a key of the directory cannot be read as is no key that anybody publishes.
        let published = super::published::published(&self.snapshot.load());
        Ok(published.map_or_else(Some, |keys| history.differs_from(&keys, None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ledger::{SignatureKind, SigningKey};
    use serde_json::json;

    const EARLY: &str = "2026-01-31T09:30:00.000Z";
    const LATE: &str = "2026-02-01T09:30:00.000Z";

    fn key(seed: u8, not_before: Option<&str>, not_after: Option<&str>) -> PublishedKey {
        let key = SigningKey::from_seed("log.example", SignatureKind::Note, &[seed; 32]).unwrap();
        PublishedKey {
            vkey: key.verifier().clone(),
            not_before: not_before.map(|at| at.parse().unwrap()),
            not_after: not_after.map(|at| at.parse().unwrap()),
        }
    }

    fn history(told: &[(&str, serde_json::Value)]) -> KeyHistory {
        let mut history = KeyHistory::default();
        for (kind, body) in told {
            history.push(kind, &body.to_string());
        }
        history
    }

    #[test]
    fn what_is_published_is_what_the_entries_tell() {
        let first = key(1, None, None).vkey.to_string();
        let told = history(&[
            (
                "log_key_added",
                json!({"vkey": first, "not_before": EARLY, "by": {"start": true}}),
            ),
            ("tool_put", json!({"vkey": "log.example+aa+bb"})),
            ("log_key_ended", json!({"vkey": first, "not_after": LATE})),
        ]);
        let ended = key(1, Some(EARLY), Some(LATE));
        assert_eq!(told.differs_from(std::slice::from_ref(&ended), None), None);
        for (published, what) in [
            (vec![], "is not published"),
            (vec![ended.clone(), key(2, Some(EARLY), None)], "no entry tells"),
            (vec![key(1, Some(EARLY), None)], "other times"),
            (vec![key(1, Some(LATE), Some(LATE))], "other times"),
            (vec![key(1, None, Some(LATE))], "other times"),
        ] {
            let found = told.differs_from(&published, Some(LATE)).unwrap();
            assert!(found.contains(what), "{found}");
        }
    }

    #[test]
    fn what_an_entry_names_first_stays_and_another_time_is_a_difference() {
        let first = key(1, None, None).vkey.to_string();
        let added = ("log_key_added", json!({"vkey": first, "not_before": EARLY}));
        let ended = ("log_key_ended", json!({"vkey": first, "not_after": EARLY}));
        let published = [key(1, Some(EARLY), Some(EARLY))];
        let same = history(&[added.clone(), ended.clone(), added.clone(), ended.clone()]);
        assert_eq!(same.differs_from(&published, None), None);
        for later in [
            ("log_key_ended", json!({"vkey": first, "not_after": LATE})),
            (
                "log_key_added",
                json!({"vkey": first, "not_before": EARLY, "not_after": LATE}),
            ),
            ("log_key_added", json!({"vkey": first, "not_before": LATE})),
        ] {
            let mut told = vec![added.clone(), ended.clone(), later];
            for not_after in [EARLY, LATE] {
                let published = [key(1, Some(EARLY), Some(not_after))];
                let found = history(&told).differs_from(&published, Some(LATE)).unwrap();
                assert!(found.contains("than an earlier one"), "{found}");
            }
            // Nor does saying the first one again put it right.
            told.push(ended.clone());
            assert!(history(&told).differs_from(&published, None).is_some());
        }
    }

    #[test]
    fn what_is_younger_than_the_last_entry_is_not_held_against_it() {
        let first = key(1, None, None).vkey.to_string();
        let told = history(&[("log_key_added", json!({"vkey": first, "not_before": EARLY}))]);
        let published = [key(1, Some(EARLY), Some(LATE)), key(2, Some(LATE), None)];
        assert_eq!(told.differs_from(&published, Some(EARLY)), None);
        // But it is counted, and signs nothing of these entries.
        assert_eq!(told.untold_of(&published), UntoldKeys { keys: 1, ends: 1 });
        assert_eq!(
            told.untold_of(&[key(1, Some(EARLY), None)]),
            UntoldKeys::default()
        );
        assert!(told.tells_of(&published[0].vkey) && !told.tells_of(&published[1].vkey));
        assert!(told.differs_from(&published, Some(LATE)).is_some());
        assert!(told.differs_from(&published, None).is_some());
    }
}
