//! A key that answers and checkpoints are signed with, as it is published. Its secret half is nowhere near here.

use crate::time::Timestamp;
use serde::{Deserialize, Serialize};

/// A key of the log. They are nouns of the system tenant's directory, so that every gateway on a store publishes the keys of
/// all.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogKey {
    /// Name and id of the key: what a signature names it by.
    pub label: String,
    /// The public key, as C2SP signed-note writes it.
    pub vkey: String,
    /// From when on it signs.
    pub not_before: Timestamp,
    /// Until when, if another one has replaced it.
    #[serde(default)]
    pub not_after: Option<Timestamp>,
}

impl LogKey {
    /// The name of the log whose key it is.
    pub fn name(&self) -> &str {
        self.label.rsplit_once('+').map_or(&*self.label, |(name, _)| name)
    }

    /// When it signs what is to be signed at this time: not before its time begins. `None` once its time is over.
    pub fn signs_at(&self, now: Timestamp) -> Option<Timestamp> {
        let at = now.max(self.not_before);
        self.not_after.is_none_or(|end| at <= end).then_some(at)
    }

    /// The key, signing until then at the latest.
    #[must_use]
    pub fn end(&self, at: Timestamp) -> Self {
        let end = self.not_after.map_or(at, |end| end.min(at));
        Self {
            not_after: Some(end.max(self.not_before)),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(millis)
    }

    #[test]
    fn a_key_signs_from_its_beginning_to_its_end() {
        let key = LogKey {
            label: "log.example+0f2c8a11".to_owned(),
            vkey: String::new(),
            not_before: at(10),
            not_after: None,
        };
        assert_eq!(key.name(), "log.example");
        // A clock that was set back does not make signatures from before the key.
        assert_eq!(key.signs_at(at(5)), Some(at(10)));
        assert_eq!(key.signs_at(at(50)), Some(at(50)));
        let ended = key.end(at(20));
        assert_eq!(
            (ended.signs_at(at(20)), ended.signs_at(at(21))),
            (Some(at(20)), None)
        );
        assert_eq!(ended.end(at(30)), ended);
        assert_eq!(key.end(at(3)).not_after, Some(at(10)));
    }
}
