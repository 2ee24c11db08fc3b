//! A tenant's policy as it is kept: its versions, which of them is enforced, and which is on trial.
//!
//! What the text says is not looked into here; only what is valid together with the tenant's other policies is ever kept.

use crate::id::AgentId;
use crate::name::{Name, SlashFreeName};
use crate::time::Timestamp;
use canon::{Digest, Hasher};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many versions are kept at hand, besides those that are in use. Older ones stand in the ledger.
pub const POLICY_VERSIONS_MAX: usize = 32;

/// How many bytes those versions have together, but for the newest of them: there is always one to go back to. All that
/// is kept of a policy is written whenever it changes, so long texts are kept of fewer versions.
pub const POLICY_VERSIONS_BYTES_MAX: usize = 1 << 20;

/// What stands around the text of a version where it is kept, in bytes: its number, its time and the names of its members.
const AROUND_TEXT_BYTES: usize = 128;

/// How much room an agent of a canary takes, in bytes.
const CANARY_BYTES: usize = 33;

/// A policy with its versions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    /// Its name.
    pub name: SlashFreeName,
    /// Its versions, from the oldest one that is kept to the newest.
    pub versions: Vec<Arc<PolicyVersion>>,
    /// The version that counts for everybody.
    pub enforced: Option<u64>,
    /// The version that is tried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
    /// When it was deleted: nothing of it is in use any more, and its versions stay.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deleted_at: Option<Timestamp>,
}

/// What a version says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PolicyText {
    /// Cedar policies and templates.
    pub cedar: Arc<str>,
    /// What it is for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What its templates are linked with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<PolicyLink>,
}

impl PolicyText {
    fn bytes(&self) -> usize {
        let description = self.description.as_ref().map_or(0, String::len);
        let links = self.links.iter().map(PolicyLink::bytes);
        self.cedar.len() + description + links.sum::<usize>()
    }
}

/// One version. It never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyVersion {
    /// Its number, from 1.
    pub version: u64,
    /// What it says.
    #[serde(flatten)]
    pub text: PolicyText,
    /// When it was written.
    pub created_at: Timestamp,
}

/// What a template is linked with.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PolicyLink {
    /// The `@id` of the template.
    pub template: Name,
    /// The id of the policy that comes of it.
    pub id: Name,
    /// What each slot stands for: an entity as Cedar writes it.
    pub values: BTreeMap<String, String>,
}

impl PolicyLink {
    fn bytes(&self) -> usize {
        let values = self.values.iter().map(|(slot, value)| slot.len() + value.len());
        self.template.as_str().len() + self.id.as_str().len() + values.sum::<usize>()
    }
}

/// A version on trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trial {
    /// Which.
    pub version: u64,
    /// The agents that it counts for: a canary. Without them it is a shadow, which counts for nobody.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agents: Option<BTreeSet<AgentId>>,
}

/// For whom a new version counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyMode {
    /// For everybody.
    Enforced,
    /// For nobody; what it would have said is recorded.
    Shadow,
    /// For these agents.
    Canary(BTreeSet<AgentId>),
}

impl PolicyMode {
    /// The word of the API.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Enforced => "enforced",
            Self::Shadow => "shadow",
            Self::Canary(_) => "canary",
        }
    }
}

impl Policy {
    /// A policy with its first version.
    pub fn new(name: SlashFreeName, text: PolicyText, mode: PolicyMode, now: Timestamp) -> Self {
        let empty = Self {
            name,
            versions: Vec::new(),
            enforced: None,
            trial: None,
            deleted_at: None,
        };
        empty.with_version(text, mode, now)
    }

    /// The policy with one more version. What is enforced is replaced only by a version that is enforced, and that ends a trial:
    /// an older version that went on counting for its canaries would exempt them from what was just enforced.
    #[must_use]
    pub fn with_version(&self, text: PolicyText, mode: PolicyMode, now: Timestamp) -> Self {
        let mut after = self.clone();
        let version = self.version() + 1;
        after.deleted_at = None;
        after.versions.push(Arc::new(PolicyVersion {
            version,
            text,
            created_at: now,
        }));
        match mode {
            PolicyMode::Enforced => {
                after.enforced = Some(version);
                after.trial = None;
            }
            PolicyMode::Shadow => {
                after.trial = Some(Trial {
                    version,
                    agents: None,
                });
            }
            PolicyMode::Canary(agents) => {
                after.trial = Some(Trial {
                    version,
                    agents: Some(agents),
                });
            }
        }
        after.forget_old(POLICY_VERSIONS_BYTES_MAX);
        after
    }

    /// The policy with what is on trial enforced; nothing changes if nothing is.
    #[must_use]
    pub fn promoted(&self) -> Self {
        let mut after = self.clone();
        if let Some(trial) = after.trial.take() {
            after.enforced = Some(trial.version);
        }
        after
    }

    /// The policy with nothing on trial.
    #[must_use]
    pub fn reverted(&self) -> Self {
        Self {
            trial: None,
            ..self.clone()
        }
    }

    /// The policy out of use for a while: its versions stay, and any of them can be enforced again.
    #[must_use]
    pub fn deactivated(&self) -> Self {
        Self {
            enforced: None,
            trial: None,
            ..self.clone()
        }
    }

    /// The policy out of use.
    #[must_use]
    pub fn deleted(&self, now: Timestamp) -> Self {
        Self {
            enforced: None,
            trial: None,
            deleted_at: Some(now),
            ..self.clone()
        }
    }

    /// The policy with the versions that are in use and, of the others, the newest that have so many bytes together, at
    /// least one.
    #[must_use]
    pub fn remembering(&self, others_bytes_max: usize) -> Self {
        let mut after = self.clone();
        after.forget_old(others_bytes_max.min(POLICY_VERSIONS_BYTES_MAX));
        after
    }

    /// About how many bytes are kept of it, with all of its versions.
    pub fn bytes(&self) -> usize {
        let agents = self.trial.as_ref().and_then(|trial| trial.agents.as_ref());
        let canaries = agents.map_or(0, BTreeSet::len) * CANARY_BYTES;
        let versions = self.versions.iter();
        let versions = versions.map(|kept| AROUND_TEXT_BYTES + kept.text.bytes());
        self.name.as_str().len() + canaries + versions.sum::<usize>()
    }

    /// The number of the newest version; 0 if there is none.
    pub fn version(&self) -> u64 {
        self.versions.last().map_or(0, |version| version.version)
    }

    /// The newest version.
    pub fn newest(&self) -> Option<&Arc<PolicyVersion>> {
        self.versions.last()
    }

    /// A version that is kept.
    pub fn find(&self, version: u64) -> Option<&Arc<PolicyVersion>> {
        self.versions.iter().find(|kept| kept.version == version)
    }

    fn forget_old(&mut self, others_bytes_max: usize) {
        let in_use = [self.enforced, self.trial.as_ref().map(|trial| trial.version)];
        let is_in_use = |version: u64| in_use.contains(&Some(version));
        let mut first_kept = self.version().saturating_sub(POLICY_VERSIONS_MAX as u64) + 1;
        let mut bytes = 0;
        let others = self.versions.iter().rev().filter(|kept| !is_in_use(kept.version));
        for (newer, kept) in others.enumerate() {
            bytes += kept.text.bytes();
            if bytes > others_bytes_max && newer > 0 {
                first_kept = first_kept.max(kept.version + 1);
                break;
            }
        }
        self.versions
            .retain(|kept| kept.version >= first_kept || is_in_use(kept.version));
    }
}

/// The digest of the set that these policies are, in the order of their names, but for those that are deleted. What a
/// version says never changes, so numbers and times stand for texts: a policy that was forgotten and is made anew
/// begins at 1 again, at another time.
pub fn digest_of_set<'p>(policies: impl IntoIterator<Item = &'p Arc<Policy>>) -> Digest {
    let mut hasher = Hasher::default();
    let policies = policies.into_iter();
    for policy in policies.filter(|policy| policy.deleted_at.is_none()) {
        let written_at = policy.newest().map(|newest| newest.created_at);
        // For whom a trial counts changes with its version only, and may be very many.
        let trial = policy.trial.as_ref().map(|trial| trial.version);
        let in_use = (policy.enforced, trial);
        let said = serde_json::to_vec(&(&policy.name, policy.version(), written_at, in_use));
        hasher.update(&said.expect("names, numbers and times always serialize"));
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn text(cedar: &str) -> PolicyText {
        PolicyText {
            cedar: cedar.into(),
            ..PolicyText::default()
        }
    }

    fn policy() -> Policy {
        Policy::new(
            SlashFreeName::new("mail").unwrap(),
            text("1"),
            PolicyMode::Enforced,
            NOW,
        )
    }

    #[test]
    fn a_trial_leaves_what_is_enforced_alone_until_it_is_promoted() {
        let trying = policy().with_version(text("2"), PolicyMode::Shadow, NOW);
        assert_eq!((trying.version(), trying.enforced), (2, Some(1)));
        assert_eq!(trying.promoted().enforced, Some(2));
        assert_eq!(trying.promoted().trial, None);
        assert_eq!(trying.reverted().enforced, Some(1));
        assert_eq!(trying.reverted().trial, None);
    }

    #[test]
    fn what_is_enforced_ends_an_older_trial() {
        let trying = policy().with_version(text("2"), PolicyMode::Shadow, NOW);
        let enforced = trying.with_version(text("3"), PolicyMode::Enforced, NOW);
        assert_eq!((enforced.enforced, enforced.trial), (Some(3), None));
    }

    #[test]
    fn what_is_deleted_is_out_of_use_and_its_numbers_go_on() {
        let gone = policy().deleted(NOW);
        assert_eq!((gone.enforced, gone.deleted_at), (None, Some(NOW)));
        let back = gone.with_version(text("2"), PolicyMode::Enforced, NOW);
        assert_eq!(
            (back.version(), back.enforced, back.deleted_at),
            (2, Some(2), None)
        );
    }

    #[test]
    fn what_is_deactivated_is_out_of_use_and_can_be_enforced_again() {
        let idle = policy()
            .with_version(text("2"), PolicyMode::Shadow, NOW)
            .deactivated();
        assert_eq!((idle.enforced, &idle.trial, idle.deleted_at), (None, &None, None));
        assert_eq!(idle.version(), 2);
        let first = idle.find(1).unwrap().text.clone();
        let back = idle.with_version(first, PolicyMode::Enforced, NOW);
        assert_eq!((back.version(), back.enforced), (3, Some(3)));
    }

    #[test]
    fn old_versions_are_forgotten_and_those_in_use_are_not() {
        let mut policy = policy();
        for _ in 0..100 {
            policy = policy.with_version(text("x"), PolicyMode::Shadow, NOW);
        }
        assert_eq!(policy.versions.len(), POLICY_VERSIONS_MAX + 1);
        assert!(policy.find(1).is_some(), "it is enforced");
        assert!(policy.find(2).is_none());
        assert!(policy.find(101).is_some());
    }

    #[test]
    fn of_long_texts_fewer_versions_are_kept_and_always_one_to_go_back_to() {
        let kept = |policy: &Policy| {
            let versions = policy.versions.iter().map(|kept| kept.version);
            versions.collect::<Vec<_>>()
        };
        let half = "x".repeat(POLICY_VERSIONS_BYTES_MAX / 2);
        let mut policy = policy();
        for _ in 0..4 {
            policy = policy.with_version(text(&half), PolicyMode::Shadow, NOW);
        }
        assert_eq!(
            kept(&policy),
            [1, 3, 4, 5],
            "one is enforced, and five is on trial"
        );
        let long = PolicyText {
            description: Some("x".repeat(POLICY_VERSIONS_BYTES_MAX + 1)),
            ..PolicyText::default()
        };
        let policy = policy.with_version(long, PolicyMode::Enforced, NOW);
        assert_eq!(kept(&policy), [4, 5, 6]);
        let policy = policy.with_version(text("7"), PolicyMode::Enforced, NOW);
        assert_eq!(kept(&policy), [6, 7]);
        let link = PolicyLink {
            template: Name::new("template").unwrap(),
            id: Name::new("link").unwrap(),
            values: BTreeMap::from([("?principal".to_owned(), half)]),
        };
        let linked = PolicyText {
            links: vec![link.clone(), link],
            ..PolicyText::default()
        };
        let policy = policy.with_version(linked, PolicyMode::Enforced, NOW);
        assert_eq!(kept(&policy), [7, 8], "six has too much beside seven");
        let policy = policy.with_version(text("9"), PolicyMode::Enforced, NOW);
        assert_eq!(kept(&policy), [8, 9], "links count as texts do");
    }

    #[test]
    fn where_there_is_less_room_what_is_in_use_and_one_to_go_back_to_are_remembered() {
        let mut policy = policy();
        for _ in 0..5 {
            policy = policy.with_version(text("12345678"), PolicyMode::Shadow, NOW);
        }
        let kept = |others_bytes_max| {
            let less = policy.remembering(others_bytes_max);
            assert_eq!((less.enforced, &less.trial), (policy.enforced, &policy.trial));
            assert!(less.bytes() <= policy.bytes());
            let versions = less.versions.iter().map(|kept| kept.version);
            versions.collect::<Vec<_>>()
        };
        assert_eq!(kept(usize::MAX), [1, 2, 3, 4, 5, 6]);
        assert_eq!(kept(16), [1, 4, 5, 6], "one is enforced, and six is on trial");
        assert_eq!(kept(0), [1, 5, 6]);
    }

    #[test]
    fn a_policy_survives_storage() {
        let canary = PolicyMode::Canary(BTreeSet::from([AgentId::from_bytes([1; 16])]));
        let policy = policy().with_version(text("permit"), canary, NOW);
        let json = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&json).unwrap(), policy);
    }
}
