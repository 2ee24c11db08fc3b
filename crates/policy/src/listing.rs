//! Which policies are in a set, and what tells each from another of the same name: the part of a comparison that needs
//! no reasoning.

use crate::ruling::PolicyId;
use crate::set::{self, PolicySet, Presence};
use crate::tenant::Mode;
use canon::Digest;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The policies of a set by their ids, and by whether they are on trial: one on trial has the name of the one whose place
/// it would take.
pub type Listing<'s> = BTreeMap<(&'s PolicyId, bool), Listed>;

/// What a policy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The digest of its text and of what its slots stand for.
    pub digest: Digest,
    /// For whom it counts: the word of a mode, and the agents of a canary.
    pub mode: Mode,
}

impl PolicySet {
    /// Which policies are in it. One that has nothing in its place for the agents of a canary is on trial as an empty text.
    pub fn listing(&self) -> Listing<'_> {
        let contents = &*self.contents;
        let base = contents.vocabulary.base.policies.iter();
        let base = base.map(|parsed| (&parsed.statement, Presence::Always));
        let own = contents
            .rules
            .iter()
            .map(|rule| (&rule.rule.statement, rule.presence));
        let all = base.chain(own).map(|(statement, presence)| {
            let mode = contents.mode(presence);
            let listed = Listed {
                digest: digest(statement.text(), &statement.values),
                mode,
            };
            ((&statement.id, listed.mode.is_trial()), listed)
        });
        let gone = set::displaced(&contents.rules, &contents.trials).map(|(statement, agents)| {
            let listed = Listed {
                digest: digest("", &BTreeMap::new()),
                mode: Mode::Canary(Arc::clone(agents)),
            };
            ((&statement.id, true), listed)
        });
        all.chain(gone).collect()
    }
}

fn digest(text: &str, values: &BTreeMap<String, String>) -> Digest {
    Digest::of(json!([text, values]).to_string().as_bytes())
}
