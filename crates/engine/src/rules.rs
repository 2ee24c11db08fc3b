//! Containment rules over a ledger: which entries count for which agent or tool, and when a rule is due.
//!
//! It is pure: the same entries and the same rules make the same findings, whoever reads them and when. What comes of a finding is
//! recorded by whoever gets there first; the rule then remembers what it counted, so nobody else counts it again.

use crate::entry_kind::EntryKind;
use model::rule::{COUNT, Effect, Subject, Trigger, WINDOW_SECONDS};
use model::{AgentId, Name, Rule, SlashFreeName, Timestamp};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// What entries have shown lately, by what it was and of whom.
#[derive(Debug, Default)]
pub struct Watch {
    seen: BTreeMap<(Trigger, Subject), VecDeque<(u64, Timestamp)>>,
    /// The entries that rules were put by last: times alone do not tell what was before in the same millisecond.
    puts: BTreeMap<String, u64>,
    /// The entries by which people have unfrozen agents and tools last.
    unfrozen: BTreeMap<Subject, (u64, Timestamp)>,
}

/// A rule that is to fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Due {
    /// Which.
    pub rule: Name,
    /// Because of whom.
    pub subject: Subject,
    /// Since when the rule is as it was counted by.
    pub since: Timestamp,
    /// The entries that were counted, in order; never empty.
    pub evidence: Vec<u64>,
}

/// The members of an entry that rules look at.
#[derive(Deserialize)]
struct Told<'a> {
    agent: AgentId,
    #[serde(borrow, default)]
    decision: Cow<'a, str>,
    #[serde(borrow, default)]
    mode: Cow<'a, str>,
    #[serde(borrow, default)]
    reason_code: Cow<'a, str>,
    #[serde(default)]
    mutates_state: bool,
    #[serde(default)]
    mismatch: bool,
    /// Whether the tool was a trap when it was asked for. Earlier versions did not say so.
    #[serde(default)]
    canary: bool,
}

/// The members of an entry about an import.
#[derive(Deserialize)]
struct ImportTold {
    tool: SlashFreeName,
    #[serde(default)]
    changed: Vec<ChangedAction>,
}

/// An action that an import has changed, as it is now.
#[derive(Deserialize)]
struct ChangedAction {
    #[serde(default)]
    held: Option<IgnoredAny>,
}

/// The member of an entry about a rule that says which.
#[derive(Deserialize)]
struct RuleTold<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// The member of an entry about an agent that says which.
#[derive(Deserialize)]
struct AgentTold {
    id: AgentId,
}

/// The member of an entry about a tool that says which.
#[derive(Deserialize)]
struct ToolTold {
    name: SlashFreeName,
}

/// Denials of somebody, or for something, that was stopped already: they say nothing new. What waits for its definition to be accepted has a trigger of
/// its own.
const STOPPED: [&str; 7] = [
    "agent_frozen",
    "agent_revoked",
    "budget_frozen",
    "run_frozen",
    "tenant_frozen",
    "tool_definition_changed",
    "tool_quarantined",
];

impl Watch {
    /// Takes note of an entry.
    pub fn see(&mut self, (seq, at): (u64, Timestamp), kind: &str, body: &str) {
        if [EntryKind::RulePut.as_str(), EntryKind::RuleDeleted.as_str()].contains(&kind) {
            self.see_rule(seq, kind, body);
        }
        if let Some(subject) = unfrozen(kind, body) {
            self.unfrozen.insert(subject, (seq, at));
        }
        for shown in shown(kind, body) {
            let seen = self.seen.entry(shown).or_default();
            let oldest = at.plus_millis(-i64::from(*WINDOW_SECONDS.end()) * 1_000);
            seen.push_back((seq, at));
            while seen.len() > *COUNT.end() as usize || seen.front().is_some_and(|first| first.1 < oldest) {
                seen.pop_front();
            }
        }
    }

    fn see_rule(&mut self, seq: u64, kind: &str, body: &str) {
        let Ok(rule) = serde_json::from_str::<RuleTold<'_>>(body) else {
            return;
        };
        if kind == EntryKind::RulePut.as_str() {
            self.puts.insert(rule.name.into_owned(), seq);
        } else {
            self.puts.remove(&*rule.name);
        }
    }

    /// Forgets what is older than any rule could count.
    pub fn forget(&mut self, now: Timestamp) {
        let oldest = now.plus_millis(-i64::from(*WINDOW_SECONDS.end()) * 1_000);
        self.seen.retain(|_, seen| {
            // INVARIANT: nothing is kept for longer than a rule remembers that it has counted it.
            while seen.front().is_some_and(|first| first.1 < oldest) {
                seen.pop_front();
            }
            !seen.is_empty()
        });
        // All that was before it is forgotten as well.
        self.unfrozen.retain(|_, (_, at)| *at >= oldest);
    }

    /// When this rule is due first, for each agent and each tool.
    pub fn due(&self, rule: &Rule) -> Vec<Due> {
        let put = self.puts.get(rule.name.as_str()).copied().unwrap_or_default();
        let subjects = self
            .seen
            .iter()
            .filter(|((trigger, _), _)| *trigger == rule.trigger);
        let due = subjects.filter_map(|((_, subject), seen)| {
            let put = put.max(self.lifted(rule, subject));
            Some(Due {
                rule: rule.name.clone(),
                subject: subject.clone(),
                since: rule.since,
                evidence: evidence(rule, subject, put, seen)?,
            })
        });
        due.collect()
    }

    /// The entry by which a person has lifted what this rule does, if it freezes; 0 if there is none. Nobody is frozen again for
    /// what was before it.
    fn lifted(&self, rule: &Rule, subject: &Subject) -> u64 {
        let unfrozen = self.unfrozen.get(subject);
        let unfrozen = unfrozen.filter(|_| rule.effect == Effect::Freeze);
        unfrozen.map_or(0, |(seq, _)| *seq)
    }
}

/// Whom or what a person has unfrozen, if that is what an entry is about.
fn unfrozen(kind: &str, body: &str) -> Option<Subject> {
    if kind == EntryKind::AgentUnfrozen.as_str() {
        let told = serde_json::from_str::<AgentTold>(body).ok()?;
        return Some(Subject::Agent(told.id));
    }
    if kind == EntryKind::ToolUnfrozen.as_str() {
        let told = serde_json::from_str::<ToolTold>(body).ok()?;
        return Some(Subject::Tool(told.name));
    }
    None
}

/// What an entry shows, and of whom. A body that was erased shows nothing any more.
fn shown(kind: &str, body: &str) -> Vec<(Trigger, Subject)> {
    if kind == EntryKind::ToolImported.as_str() {
        let told = serde_json::from_str::<ImportTold>(body).ok();
        let told = told.filter(|told| told.changed.iter().any(|action| action.held.is_some()));
        let shown = told.map(|told| (Trigger::DefinitionChanged, Subject::Tool(told.tool)));
        return shown.into_iter().collect();
    }
    let counted = [EntryKind::Decision, EntryKind::OutcomeReported].map(EntryKind::as_str);
    let told = Some(body).filter(|_| counted.contains(&kind));
    let Some(told) = told.and_then(|body| serde_json::from_str::<Told<'_>>(body).ok()) else {
        return Vec::new();
    };
    let triggers = told.shows().into_iter();
    triggers
        .map(|trigger| (trigger, Subject::Agent(told.agent)))
        .collect()
}

impl Told<'_> {
    fn shows(&self) -> Vec<Trigger> {
        let is_decision = !self.decision.is_empty();
        let is_enforced = is_decision && self.mode.is_empty();
        let is_denied = is_enforced && self.decision == "deny";
        let all = [
            (
                Trigger::Denials,
                is_denied && !STOPPED.contains(&&*self.reason_code),
            ),
            (Trigger::CanaryCalls, is_decision && self.canary),
            (
                Trigger::Mutations,
                is_enforced && self.decision == "allow" && self.mutates_state,
            ),
            (
                Trigger::DefinitionChanged,
                self.reason_code == "tool_definition_changed",
            ),
            (Trigger::OutcomeMismatch, self.mismatch),
        ];
        all.into_iter()
            .filter(|(_, is)| *is)
            .map(|(trigger, _)| trigger)
            .collect()
    }
}

/// The first entries that are as many as the rule wants, within its window.
fn evidence(rule: &Rule, subject: &Subject, put: u64, seen: &VecDeque<(u64, Timestamp)>) -> Option<Vec<u64>> {
    let counted: Vec<_> = seen
        .iter()
        .filter(|(seq, at)| *seq > put && rule.counts(subject, *seq, *at))
        .collect();
    let window = i64::from(rule.window_seconds) * 1_000;
    let found = counted.windows(rule.count as usize).find(|together| {
        let (first, last) = (together[0].1, together[together.len() - 1].1);
        last <= first.plus_millis(window)
    });
    found.map(|together| together.iter().map(|(seq, _)| *seq).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(trigger: Trigger, count: u32) -> Rule {
        Rule {
            name: Name::new("rule").unwrap(),
            trigger,
            count,
            window_seconds: 60,
            effect: Effect::Alert,
            enabled: true,
            since: at(0),
            fired: BTreeMap::new(),
            fired_tools: BTreeMap::new(),
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn agent() -> AgentId {
        AgentId::from_bytes([1; 16])
    }

    fn body(members: &str) -> String {
        format!(r#"{{"agent":"{}",{members}}}"#, agent())
    }

    fn watch(entries: &[(u64, i64, &str)]) -> Watch {
        let mut watch = Watch::default();
        for (seq, seconds, members) in entries {
            watch.see((*seq, at(*seconds)), "decision", &body(members));
        }
        watch
    }

    const DENIED: &str = r#""decision":"deny","reason_code":"policy_forbids""#;

    #[test]
    fn a_rule_is_due_when_there_are_enough_within_its_window_and_names_them() {
        let seen = [
            (1, 0, DENIED),
            (4, 50, DENIED),
            (9, 100, DENIED),
            (10, 105, DENIED),
        ];
        let evidence = |count| {
            let due = watch(&seen).due(&rule(Trigger::Denials, count));
            due.into_iter().map(|due| due.evidence).collect::<Vec<_>>()
        };
        assert_eq!(evidence(2), [[1, 4]]);
        assert_eq!(evidence(3), [[4, 9, 10]]);
        assert_eq!(evidence(4), [] as [Vec<u64>; 0]);
    }

    #[test]
    fn nobody_is_frozen_again_for_what_was_before_a_person_lifted_it() {
        let github = Subject::Tool(SlashFreeName::new("github").unwrap());
        let changed = r#"{"tool":"github","changed":[{"name":"a","held":{"digest":"x"}}]}"#;
        let mut watch = watch(&[(1, 0, DENIED), (2, 0, DENIED)]);
        watch.see((3, at(0)), "tool_imported", changed);
        let due = |watch: &Watch, trigger, effect| {
            let rule = Rule {
                effect,
                ..rule(trigger, 1)
            };
            let due = watch.due(&rule).into_iter();
            due.map(|due| (due.subject, due.evidence)).collect::<Vec<_>>()
        };
        let of_agent = |seq: u64| vec![(Subject::Agent(agent()), vec![seq])];
        assert_eq!(due(&watch, Trigger::Denials, Effect::Freeze), of_agent(1));
        let lifted = format!(r#"{{"by":{{"key":"k"}},"id":"{}","name":"builder"}}"#, agent());
        watch.see((4, at(1)), "agent_unfrozen", &lifted);
        assert!(due(&watch, Trigger::Denials, Effect::Freeze).is_empty());
        assert_eq!(due(&watch, Trigger::Denials, Effect::Alert), of_agent(1));
        assert_eq!(
            due(&watch, Trigger::DefinitionChanged, Effect::Freeze),
            [(github, vec![3_u64])]
        );
        watch.see((5, at(1)), "tool_unfrozen", r#"{"name":"github"}"#);
        assert!(due(&watch, Trigger::DefinitionChanged, Effect::Freeze).is_empty());
        watch.see((6, at(1)), "decision", &body(DENIED));
        assert_eq!(due(&watch, Trigger::Denials, Effect::Freeze), of_agent(6));
        watch.forget(at(100_000));
        assert!(watch.seen.is_empty() && watch.unfrozen.is_empty());
    }

    #[test]
    fn what_was_counted_is_not_counted_again() {
        let seen = watch(&[(1, 0, DENIED), (2, 1, DENIED), (3, 2, DENIED)]);
        let fired = rule(Trigger::Denials, 2).fire(&Subject::Agent(agent()), 2, at(3));
        assert_eq!(seen.due(&fired), []);
    }

    #[test]
    fn what_is_older_than_any_window_is_forgotten_also_beside_what_is_new() {
        let mut seen = watch(&[(1, 0, DENIED), (2, 1, DENIED), (3, 80_000, DENIED)]);
        seen.forget(at(86_402));
        let due = seen.due(&rule(Trigger::Denials, 1));
        assert_eq!(due[0].evidence, [3]);
        seen.forget(at(170_000));
        assert!(seen.seen.is_empty());
    }

    #[test]
    fn denials_of_what_was_stopped_are_not_counted() {
        for reason in [
            "agent_frozen",
            "budget_frozen",
            "run_frozen",
            "tenant_frozen",
            "tool_quarantined",
        ] {
            let denied = format!(r#""decision":"deny","reason_code":"{reason}""#);
            let watch = watch(&[(1, 0, &denied)]);
            assert!(watch.seen.is_empty(), "{reason}");
        }
    }

    #[test]
    fn each_thing_is_counted_as_what_it_is() {
        for (members, trigger) in [
            (r#""decision":"allow","mutates_state":true"#, Trigger::Mutations),
            (
                r#""canary":true,"decision":"deny","reason_code":"agent_frozen""#,
                Trigger::CanaryCalls,
            ),
            (
                r#""decision":"allow","mode":"observe","mutates_state":true,"mismatch":true"#,
                Trigger::OutcomeMismatch,
            ),
            (
                r#""decision":"deny","reason_code":"tool_definition_changed""#,
                Trigger::DefinitionChanged,
            ),
        ] {
            let watch = watch(&[(1, 0, members)]);
            let found: Vec<_> = watch.seen.keys().map(|(trigger, _)| *trigger).collect();
            assert_eq!(found, [trigger], "{members}");
        }
        let changed = watch(&[(
            1,
            0,
            r#""decision":"deny","reason_code":"tool_definition_changed""#,
        )]);
        assert_eq!(changed.due(&rule(Trigger::DefinitionChanged, 1)).len(), 1);
        let mut imports = Watch::default();
        for (seq, changed) in [
            (1, "[]"),
            (2, r#"[{"name":"a"}]"#),
            (3, r#"[{"name":"a","held":{"digest":"x"}}]"#),
        ] {
            let body = format!(r#"{{"tool":"github","held":["a"],"changed":{changed}}}"#);
            imports.see((seq, at(0)), "tool_imported", &body);
        }
        let due = imports.due(&rule(Trigger::DefinitionChanged, 1));
        let github = Subject::Tool(SlashFreeName::new("github").unwrap());
        assert_eq!(
            (due.len(), &due[0].subject, &due[0].evidence),
            (1, &github, &vec![3])
        );
        let other = watch(&[(1, 0, r#""decision":"allow""#), (2, 0, r#""id":1"#)]);
        assert!(other.seen.is_empty());
    }
}
