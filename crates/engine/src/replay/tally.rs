//! What came of judging decisions again: how many, which verdicts would have been others, and examples of each. Its size
//! does not grow with the number of decisions.

use super::{Recorded, Said, WhyNot};
use model::{AgentId, DecisionId, ReasonCode, Timestamp, Verdict};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// How many groups are kept. Flips beyond them are counted and not listed.
const GROUPS_MAX: usize = 1_000;
/// How many examples a group has: the newest.
const EXAMPLES_MAX: usize = 5;

/// A change of a verdict, what opens the gate wider first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// From deny to allow.
    DenyToAllow,
    /// From deny to require approval.
    DenyToRequireApproval,
    /// From require approval to allow.
    RequireApprovalToAllow,
    /// From allow to require approval.
    AllowToRequireApproval,
    /// From require approval to deny.
    RequireApprovalToDeny,
    /// From allow to deny.
    AllowToDeny,
}

impl Change {
    /// Every change.
    pub const ALL: [Self; 6] = [
        Self::DenyToAllow,
        Self::DenyToRequireApproval,
        Self::RequireApprovalToAllow,
        Self::AllowToRequireApproval,
        Self::RequireApprovalToDeny,
        Self::AllowToDeny,
    ];

    /// From what.
    pub const fn from(self) -> Verdict {
        match self {
            Self::DenyToAllow | Self::DenyToRequireApproval => Verdict::Deny,
            Self::RequireApprovalToAllow | Self::RequireApprovalToDeny => Verdict::RequireApproval,
            Self::AllowToRequireApproval | Self::AllowToDeny => Verdict::Allow,
        }
    }

    /// To what.
    pub const fn to(self) -> Verdict {
        match self {
            Self::DenyToAllow | Self::RequireApprovalToAllow => Verdict::Allow,
            Self::DenyToRequireApproval | Self::AllowToRequireApproval => Verdict::RequireApproval,
            Self::RequireApprovalToDeny | Self::AllowToDeny => Verdict::Deny,
        }
    }

    /// The change between two verdicts; `None` if they are the same.
    pub fn between(from: Verdict, to: Verdict) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|change| change.from() == from && change.to() == to)
    }
}

/// What came of judging decisions again.
#[derive(Debug, Default)]
pub struct Tally {
    /// How many decisions were looked at.
    pub decisions: u64,
    /// How many of them were judged again.
    pub replayed: u64,
    /// How many of those would have had another verdict, by change.
    pub flips: BTreeMap<Change, u64>,
    /// How many of the flips are in no group, because there were too many groups.
    pub not_listed: u64,
    /// How many decisions were not judged again, by the reason why.
    pub not_replayed: BTreeMap<WhyNot, u64>,
    groups: BTreeMap<GroupKey, Flips>,
}

/// What flips are grouped by, in the order in which they are listed among those of one size.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct GroupKey {
    change: Change,
    tool: String,
    action: String,
    agent: AgentId,
}

#[derive(Debug, Default)]
struct Flips {
    count: u64,
    examples: BTreeMap<Reverse<u64>, Example>,
}

/// Flips of one kind, of one agent, for one action.
#[derive(Debug, Serialize)]
pub struct Group {
    from: Verdict,
    to: Verdict,
    agent: AgentId,
    tool: String,
    action: String,
    count: u64,
    examples: Vec<Example>,
}

/// One flip.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Example {
    /// The decision.
    pub decision_id: DecisionId,
    /// The place of its entry.
    pub seq: u64,
    /// When it was recorded.
    pub at: Timestamp,
    /// To what it was to be done.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// What was found then.
    pub was: SaidBody,
    /// What would be found.
    pub would_be: SaidBody,
}

/// What policies say, in the words of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SaidBody {
    decision: Verdict,
    reason_code: ReasonCode,
    matched_policies: Vec<String>,
}

impl From<Said> for SaidBody {
    fn from(said: Said) -> Self {
        Self {
            decision: said.reason.verdict(),
            reason_code: said.reason,
            matched_policies: said.matched,
        }
    }
}

impl Tally {
    /// Counts a decision that cannot be judged again.
    pub fn skip(&mut self, why: WhyNot) {
        self.decisions += 1;
        *self.not_replayed.entry(why).or_default() += 1;
    }

    /// Counts a decision, recorded at this place and time, that would be this.
    pub fn add(&mut self, recorded: &Recorded<'_>, (seq, at): (u64, Timestamp), would_be: Said) {
        self.decisions += 1;
        self.replayed += 1;
        let verdicts = recorded
            .ruling()
            .map(ReasonCode::verdict)
            .zip(Some(would_be.reason.verdict()));
        let Some(change) = verdicts.and_then(|(was, would_be)| Change::between(was, would_be)) else {
            return;
        };
        *self.flips.entry(change).or_default() += 1;
        let key = GroupKey {
            change,
            tool: recorded.tool.clone().into_owned(),
            action: recorded.action.clone().into_owned(),
            agent: recorded.agent,
        };
        if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
            self.not_listed += 1;
            return;
        }
        let flips = self.groups.entry(key).or_default();
        flips.count += 1;
        let oldest = flips.examples.last_key_value().map(|(Reverse(seq), _)| *seq);
        let is_newer = flips.examples.len() < EXAMPLES_MAX || oldest.is_some_and(|oldest| oldest < seq);
        if let Some(was) = recorded.said().filter(|_| is_newer) {
            let example = Example {
                decision_id: recorded.id,
                seq,
                at,
                resource: recorded.resource.clone().map(std::borrow::Cow::into_owned),
                was: was.into(),
                would_be: would_be.into(),
            };
            flips.examples.insert(Reverse(seq), example);
            flips.keep_newest();
        }
    }

    /// Adds what came of other decisions.
    pub fn merge(&mut self, other: Self) {
        self.decisions += other.decisions;
        self.replayed += other.replayed;
        self.not_listed += other.not_listed;
        for (change, count) in other.flips {
            *self.flips.entry(change).or_default() += count;
        }
        for (why, count) in other.not_replayed {
            *self.not_replayed.entry(why).or_default() += count;
        }
        for (key, flips) in other.groups {
            if self.groups.len() >= GROUPS_MAX && !self.groups.contains_key(&key) {
                self.not_listed += flips.count;
                continue;
            }
            let own = self.groups.entry(key).or_default();
            own.count += flips.count;
            own.examples.extend(flips.examples);
            own.keep_newest();
        }
    }

    /// The flips in groups: what opens the gate wider first, then the largest.
    pub fn into_groups(self) -> Vec<Group> {
        let mut groups: Vec<_> = self.groups.into_iter().collect();
        groups.sort_by_key(|(key, flips)| (key.change, Reverse(flips.count)));
        let group = |(key, flips): (GroupKey, Flips)| Group {
            from: key.change.from(),
            to: key.change.to(),
            agent: key.agent,
            tool: key.tool,
            action: key.action,
            count: flips.count,
            examples: flips.examples.into_values().collect(),
        };
        groups.into_iter().map(group).collect()
    }
}

impl Flips {
    fn keep_newest(&mut self) {
        while self.examples.len() > EXAMPLES_MAX {
            self.examples.pop_last();
        }
    }
}
