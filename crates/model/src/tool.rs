//! Tools and their actions: the registered facts that decisions rest on, and the pins of imported definitions.

use crate::name::{Name, SlashFreeName};
use crate::standing::Standing;
use crate::time::Timestamp;
use canon::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How much harm an action can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// None worth speaking of.
    Low,
    /// Some, and it can be undone.
    Medium,
    /// A lot, or it cannot be undone.
    High,
    /// More than anybody wants to explain.
    Critical,
}

impl Risk {
    /// Every class, lowest first.
    pub const ALL: [Self; 4] = [Self::Low, Self::Medium, Self::High, Self::Critical];

    /// The word of API and policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Critical => "critical",
        }
    }
}

/// A definition that differs from the pinned one and waits for a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldDefinition {
    /// SHA-256 of its canonical JSON.
    pub digest: Digest,
    /// What the action would become.
    pub action: Box<ToolAction>,
    /// When it was seen first.
    pub since: Timestamp,
}

/// An action of a tool, with its registered facts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolAction {
    /// Its name.
    pub name: Name,
    /// Whether it changes anything.
    pub mutates_state: bool,
    /// How much harm it can do.
    pub risk: Risk,
    /// The JSON Schema of its parameters.
    #[serde(
        default,
        deserialize_with = "canon::foreign",
        skip_serializing_if = "Option::is_none"
    )]
    pub input_schema: Option<Arc<serde_json::Value>>,
    /// What it does, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// SHA-256 of the canonical JSON of the imported definition; absent for one that was written by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<Digest>,
    /// A changed definition that nobody has accepted yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldDefinition>,
}

impl ToolAction {
    /// The digest of its definition: the pinned one of what was imported, and of anything else that of the canonical
    /// JSON of `description` and `input_schema`. Its facts are not in it.
    pub fn definition(&self) -> Digest {
        #[derive(Serialize)]
        struct Written<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
            #[serde(skip_serializing_if = "Option::is_none")]
            input_schema: Option<&'a serde_json::Value>,
        }
        self.pinned.unwrap_or_else(|| {
            let written = canon::of(&Written {
                description: self.description.as_deref(),
                input_schema: self.input_schema.as_deref(),
            });
            written
                .expect("it has string keys and nests no deeper than the body that it came in")
                .digest()
        })
    }

    /// The action after an import has brought this definition of it: itself if it is the pinned one, held otherwise.
    #[must_use]
    pub fn imported_again(&self, incoming: &Self, now: Timestamp) -> Self {
        match incoming.pinned {
            // What waits already keeps the time when it was seen first.
            Some(digest) if self.held.as_ref().is_some_and(|held| held.digest == digest) => self.clone(),
            Some(digest) if self.pinned != Some(digest) => Self {
                held: Some(HeldDefinition {
                    digest,
                    action: Box::new(incoming.clone()),
                    since: now,
                }),
                ..self.clone()
            },
            // The server went back to what was pinned: nothing is left to accept.
            _ => Self {
                held: None,
                ..self.clone()
            },
        }
    }

    /// The action with its held definition accepted. Facts that a person set stay unless the new definition's are
    /// stricter. `None` if nothing is held.
    pub fn accept(&self) -> Option<Self> {
        let accepted = &self.held.as_ref()?.action;
        Some(Self {
            name: self.name.clone(),
            mutates_state: self.mutates_state || accepted.mutates_state,
            risk: self.risk.max(accepted.risk),
            held: None,
            ..(**accepted).clone()
        })
    }
}

/// A tool: a named set of actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    /// Its name.
    pub name: SlashFreeName,
    /// Its actions by name.
    pub actions: BTreeMap<Name, ToolAction>,
    /// Whether it is a trap: no honest agent calls it, and one that does is quarantined.
    #[serde(default)]
    pub canary: bool,
    /// Whether it may be used.
    #[serde(flatten)]
    pub standing: Standing,
    /// When it was registered.
    pub created_at: Timestamp,
}

/// Tools whose name begins with this are traps even if nobody said so when they were registered.
const CANARY_PREFIX: &str = "canary";

impl Tool {
    /// Whether it is a trap, by its flag or by its name.
    pub fn is_canary(&self) -> bool {
        self.canary || self.name.as_str().starts_with(CANARY_PREFIX)
    }

    /// The tool with another standing.
    #[must_use]
    pub fn with_standing(&self, standing: Standing) -> Self {
        Self {
            standing,
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(7);

    fn imported(description: &str, mutates_state: bool, risk: Risk) -> ToolAction {
        ToolAction {
            name: Name::new("send").unwrap(),
            mutates_state,
            risk,
            input_schema: None,
            description: Some(description.to_owned()),
            pinned: Some(Digest::of(description.as_bytes())),
            held: None,
        }
    }

    #[test]
    fn the_same_definition_again_changes_nothing() {
        let action = imported("sends", true, Risk::High);
        assert_eq!(action.imported_again(&action, NOW), action);
    }

    #[test]
    fn a_changed_definition_is_held_and_the_pinned_one_stays() {
        let action = imported("sends", true, Risk::High);
        let held = action.imported_again(&imported("sends to everyone", false, Risk::Low), NOW);
        assert_eq!(held.description.as_deref(), Some("sends"));
        assert_eq!(
            held.held.as_ref().unwrap().digest,
            Digest::of(b"sends to everyone")
        );
    }

    #[test]
    fn a_held_definition_that_comes_again_keeps_the_time_when_it_was_seen_first() {
        let held =
            imported("sends", true, Risk::High).imported_again(&imported("other", true, Risk::High), NOW);
        let again = held.imported_again(&imported("other", true, Risk::High), NOW.plus_millis(1));
        assert_eq!(again, held);
    }

    #[test]
    fn going_back_to_the_pinned_definition_ends_the_hold() {
        let action = imported("sends", true, Risk::High);
        let held = action.imported_again(&imported("other", true, Risk::High), NOW);
        assert_eq!(held.imported_again(&action, NOW), action);
    }

    #[test]
    fn accepting_takes_the_new_text_and_keeps_the_stricter_facts() {
        let action = imported("sends", true, Risk::High);
        let accepted = action
            .imported_again(&imported("sends more", false, Risk::Low), NOW)
            .accept()
            .unwrap();
        assert_eq!(accepted.description.as_deref(), Some("sends more"));
        assert_eq!((accepted.mutates_state, accepted.risk), (true, Risk::High));
        assert_eq!(
            (accepted.pinned, accepted.held),
            (Some(Digest::of(b"sends more")), None)
        );
    }

    #[test]
    fn a_definition_has_another_digest_when_its_words_or_its_schema_change_and_not_with_the_facts() {
        let action = imported("sends", true, Risk::High);
        assert_eq!(Some(action.definition()), action.pinned);
        let by_hand = ToolAction {
            pinned: None,
            ..action
        };
        let digest = by_hand.definition();
        assert_eq!(digest, Digest::of(br#"{"description":"sends"}"#));
        let mut others = [(); 3].map(|()| by_hand.clone());
        others[0].risk = Risk::Low;
        others[0].mutates_state = false;
        others[1].description = Some("sends to everyone".to_owned());
        others[2].input_schema = Some(Arc::new(serde_json::json!({"type": "object"})));
        let is_same = others.map(|other| other.definition() == digest);
        assert_eq!(is_same, [true, false, false]);
    }

    #[test]
    fn nothing_held_is_nothing_to_accept() {
        assert_eq!(imported("sends", true, Risk::High).accept(), None);
    }
}
