//! What came of judging decisions again: how many, which verdicts would have been others, and examples of each. Its size
//! does not grow with the number of decisions.

use super::{Recorded, WhyNot};
use crate::judge::RulingSummary;
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
    pub was: RulingBody,
    /// What would be found.
    pub would_be: RulingBody,
}

/// What policies say, in the words of the API.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RulingBody {
    decision: Verdict,
    reason_code: ReasonCode,
    matched_policies: Vec<String>,
}

impl From<RulingSummary> for RulingBody {
    fn from(summary: RulingSummary) -> Self {
        Self {
            decision: summary.reason.verdict(),
            reason_code: summary.reason,
            matched_policies: summary.matched,
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
    pub fn add(&mut self, recorded: &Recorded<'_>, (seq, at): (u64, Timestamp), would_be: RulingSummary) {
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn body(number: u8, reason: &str) -> String {
        let digest = canon::Digest::ZERO;
        json!({
            "decision_id": DecisionId::from_bytes([number; 16]), "agent": AgentId::from_bytes([number; 16]),
            "tool": "github", "action": "merge", "mutates_state": true, "reason_code": reason,
            "trust": {"claimed": "unknown", "effective": "unknown"}, "facts": {"action": digest, "agent": digest},
        })
        .to_string()
    }

    fn add(tally: &mut Tally, number: u8, seq: u64, change: (&str, ReasonCode)) {
        let body = body(number, change.0);
        let said = RulingSummary {
            reason: change.1,
            matched: Vec::new(),
        };
        let recorded = Recorded::read(&body).unwrap();
        tally.add(&recorded, (seq, Timestamp::from_millis(0)), said);
    }

    fn listed(tally: Tally) -> Vec<(Value, Value, u64, Vec<u64>)> {
        let groups = tally.into_groups().into_iter();
        let list = |group: Group| {
            let seqs = group.examples.iter().map(|example| example.seq);
            (json!(group.from), json!(group.to), group.count, seqs.collect())
        };
        groups.map(list).collect()
    }

    const OPENS: (&str, ReasonCode) = ("policy_forbids", ReasonCode::PolicyPermits);
    const SHUTS: (&str, ReasonCode) = ("policy_permits", ReasonCode::NoPolicyPermits);
    const STAYS: (&str, ReasonCode) = ("policy_forbids", ReasonCode::NoPolicyPermits);

    #[test]
    fn every_two_verdicts_that_differ_are_a_change() {
        let verdicts = [Verdict::Allow, Verdict::Deny, Verdict::RequireApproval];
        for from in verdicts {
            for to in verdicts {
                let change = Change::between(from, to);
                assert_eq!(
                    change.map(|change| (change.from(), change.to())),
                    (from != to).then_some((from, to))
                );
            }
        }
    }

    #[test]
    fn what_opens_the_gate_comes_first_and_then_what_there_is_most_of() {
        let mut tally = Tally::default();
        for seq in 1..=3 {
            add(&mut tally, 1, seq, SHUTS);
        }
        add(&mut tally, 2, 4, OPENS);
        for seq in 5..=6 {
            add(&mut tally, 3, seq, OPENS);
        }
        add(&mut tally, 3, 7, STAYS);
        tally.skip(WhyNot::Erased);
        assert_eq!((tally.decisions, tally.replayed), (8, 7));
        assert_eq!(
            tally.flips,
            BTreeMap::from([(Change::DenyToAllow, 3), (Change::AllowToDeny, 3)])
        );
        assert_eq!(
            listed(tally),
            [
                (json!("deny"), json!("allow"), 2, vec![6, 5]),
                (json!("deny"), json!("allow"), 1, vec![4]),
                (json!("allow"), json!("deny"), 3, vec![3, 2, 1]),
            ]
        );
    }

    #[test]
    fn parts_add_up_to_the_whole_in_any_order() {
        let mut whole = Tally::default();
        let mut parts = [(); 3].map(|()| Tally::default());
        for seq in 1..=60 {
            let part = usize::try_from(seq * seq % 3).unwrap();
            let number = u8::try_from(seq % 4).unwrap();
            let change = [OPENS, SHUTS, STAYS][usize::try_from(seq % 3).unwrap()];
            add(&mut whole, number, seq, change);
            add(&mut parts[part], number, seq, change);
        }
        for part in &mut parts {
            part.skip(WhyNot::NotRuled);
            whole.skip(WhyNot::NotRuled);
        }
        let mut merged = Tally::default();
        let [one, two, three] = parts;
        for part in [three, one, two] {
            merged.merge(part);
        }
        assert_eq!(
            (merged.decisions, merged.replayed),
            (whole.decisions, whole.replayed)
        );
        assert_eq!(
            (&merged.flips, &merged.not_replayed),
            (&whole.flips, &whole.not_replayed)
        );
        assert_eq!(listed(merged), listed(whole));
    }

    #[test]
    fn groups_have_a_bound_and_flips_beyond_it_are_counted() {
        let mut tally = Tally::default();
        for number in 0..=u8::MAX {
            for action in 0..5 {
                let body = body(number, "policy_forbids").replace("merge", &format!("merge-{action}"));
                let recorded = Recorded::read(&body).unwrap();
                let said = RulingSummary {
                    reason: ReasonCode::PolicyPermits,
                    matched: Vec::new(),
                };
                tally.add(&recorded, (1, Timestamp::from_millis(0)), said);
            }
        }
        assert_eq!(tally.flips[&Change::DenyToAllow], 1_280);
        assert_eq!(tally.not_listed, 280);
        assert_eq!(tally.into_groups().len(), GROUPS_MAX);
    }

    #[test]
    fn parameters_that_a_signature_spoke_of_are_in_order_whatever_the_entry_has() {
        let mut body = canon::value(&body(1, "policy_forbids")).unwrap();
        body["trust"]["provenance"] =
            json!({"level": "unknown", "parameter": "b", "parameters": ["b", "c", "a"]});
        let body = body.to_string();
        let recorded = Recorded::read(&body).unwrap();
        assert_eq!(recorded.trust.vouched().unwrap().parameters, ["a", "b", "c"]);
    }

    #[test]
    fn what_cannot_be_judged_again_says_why() {
        let why = |body: &str| Recorded::read(body).map(|_| ()).unwrap_err();
        assert_eq!(why(""), WhyNot::Erased);
        assert_eq!(why("{}"), WhyNot::Unreadable);
        assert_eq!(why(&body(1, "agent_frozen")), WhyNot::NotRuled);
        assert_eq!(why(&body(1, "invented_later")), WhyNot::Unreadable);
        assert_eq!(
            why(&body(1, "policy_forbids").replace("facts", "fact")),
            WhyNot::FactsMissing
        );
        let body = body(1, "policy_forbids");
        let recorded = Recorded::read(&body).unwrap();
        assert_eq!(recorded.nouns(|_| None).map(|_| ()), Err(WhyNot::FactsMissing));
    }
}
