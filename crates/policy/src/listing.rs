//! Which policies are in a set, and what tells each from another of the same name: the part of a comparison that needs
//! no reasoning.

use crate::ruling::PolicyId;
use crate::set::{PolicySet, Presence};
use crate::statement::Statement;
use canon::Digest;
use serde_json::json;
use std::collections::BTreeMap;

/// The policies of a set by their ids, and by whether they are on trial: one on trial has the name of the one whose place
/// it would take.
pub type Listing<'s> = BTreeMap<(&'s PolicyId, bool), Listed>;

/// What a policy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The digest of its text and of what its slots stand for.
    pub digest: Digest,
    /// For whom it counts: the word of a mode, and the agents of a canary.
    pub mode: crate::Mode,
}

impl PolicySet {
    /// Which policies are in it.
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
                digest: digest(statement),
                mode,
            };
            ((&statement.id, listed.mode.is_trial()), listed)
        });
        all.collect()
    }
}

fn digest(statement: &Statement) -> Digest {
    Digest::of(json!([statement.text(), statement.values]).to_string().as_bytes())
}
