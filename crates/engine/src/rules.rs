//! Containment rules over a ledger: which entries count for which agent or tool, and when a rule is due.
//!
//! It is pure: the same entries and the same rules make the same findings, whoever reads them and when. Only while a
//! chain is ahead of the clock, because that was set back, its times stand still, and entries are as far apart as they
//! were read. What comes of a finding is recorded by whoever gets there first; the rule then remembers what it counted,
//! so nobody else counts it again.
//!
//! A rule is held against what is new, and not against all that is remembered.

use crate::entry_kind::EntryKind;
use model::rule::{COUNT, Effect, Subject, Trigger, WINDOW_SECONDS};
use model::{AgentId, Name, ReasonCode, Rule, SlashFreeName, Timestamp, Verdict};
use serde::Deserialize;
use serde::de::IgnoredAny;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};

/// How many entries of a ledger are remembered, the last of them, however many agents and tools they are about.
const ENTRIES_MAX: u64 = 1_000_000;
/// How often what is too old is looked for, in milliseconds. It is a small part of how much longer rules remember what
/// they counted.
const FORGET_MILLIS: i64 = 60_000;

/// What entries have shown lately, by what it was and of whom.
#[derive(Debug, Default)]
pub struct RecentEntries {
    seen: BTreeMap<(Trigger, Subject), VecDeque<Seen>>,
    /// Of whom entries have shown something since the rules were looked at, and the first of these entries.
    news: BTreeMap<(Trigger, Subject), u64>,
    /// How each rule was looked at last.
    looks: BTreeMap<Name, Look>,
    /// The entry that was read last, and what the clock showed for it.
    last: Option<(Seen, Timestamp)>,
    /// When what is too old was forgotten last, and the entry up to which all was read before that.
    forgot: Option<(Timestamp, u64)>,
    /// The entries that rules were put by last: times alone do not tell what was before in the same millisecond.
    puts: BTreeMap<String, u64>,
    /// The entries by which people have unfrozen agents and tools last.
    unfrozen: BTreeMap<Subject, (u64, Timestamp)>,
    /// The agents and tools that were frozen and that nobody has unfrozen since, and when that was last.
    stopped: BTreeMap<Subject, Timestamp>,
}

/// Which entry, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Its place.
    pub seq: u64,
    /// When it was recorded, by its chain.
    pub at: Timestamp,
    /// When it was read.
    pub read_at: Timestamp,
}

/// How a rule was looked at: what it was like, and for whom it was due.
#[derive(Debug)]
struct Look {
    version: Version,
    due: Vec<Subject>,
}

/// What a rule is like, but for what it has counted.
#[derive(Debug, PartialEq, Eq)]
struct Version {
    trigger: Trigger,
    count: u32,
    window_seconds: u32,
    effect: Effect,
    enabled: bool,
    since: Timestamp,
    /// The entry by which it was put.
    put: u64,
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
    /// When the last of them was recorded, by its chain.
    pub recorded: Timestamp,
    /// Whether the agent or the tool was frozen lately, as far as the ledger was read.
    pub was_stopped: bool,
}

/// The members of an entry that rules look at.
#[derive(Deserialize)]
struct CountedBody<'a> {
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
struct ImportBody {
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
struct RuleBody<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
}

/// The member of an entry about an agent that says which.
#[derive(Deserialize)]
struct AgentBody {
    id: AgentId,
}

/// The member of an entry about a tool that says which. A rule's own entry has another word for it.
#[derive(Deserialize)]
struct ToolBody {
    #[serde(alias = "tool")]
    name: SlashFreeName,
}

/// Denials of somebody, or for something, that was stopped already: they say nothing new. What waits for its definition
/// to be accepted has a trigger of its own.
const STOPPED: [ReasonCode; 7] = [
    ReasonCode::AgentFrozen,
    ReasonCode::AgentRevoked,
    ReasonCode::BudgetFrozen,
    ReasonCode::RunFrozen,
    ReasonCode::TenantFrozen,
    ReasonCode::ToolDefinitionChanged,
    ReasonCode::ToolQuarantined,
];

impl RecentEntries {
    /// Takes note of an entry.
    pub fn see(&mut self, entry: Seen, kind: &str, body: &str) {
        let entry = self.keep_pace(entry);
        let Seen { seq, at, .. } = entry;
        if [EntryKind::RulePut.as_str(), EntryKind::RuleDeleted.as_str()].contains(&kind) {
            self.see_rule(seq, kind, body);
        }
        if let Some(subject) = frozen(kind, body) {
            self.stopped.insert(subject, at);
        }
        if let Some(subject) = unfrozen(kind, body) {
            self.stopped.remove(&subject);
            self.unfrozen.insert(subject, (seq, at));
        }
        if let Some(subject) = deleted(kind, body) {
            self.forget_all_of(&subject);
        }
        for shown in shown(kind, body) {
            self.news.entry(shown.clone()).or_insert(seq);
            let seen = self.seen.entry(shown).or_default();
            let oldest = at.plus_millis(-i64::from(*WINDOW_SECONDS.end()) * 1_000);
            seen.push_back(entry);
            while seen.len() > *COUNT.end() as usize || seen.front().is_some_and(|first| first.at < oldest) {
                seen.pop_front();
            }
        }
    }

    /// The entry, read as late as if the clock had never gone back: of the time between two entries nothing is taken
    /// back. Where the chain is not ahead of the clock, that is its own time.
    fn keep_pace(&mut self, entry: Seen) -> Seen {
        let clock = entry.read_at.min(entry.at);
        let last = self.last.map(|(last, before)| (last.read_at, before));
        let (last, before) = last.unwrap_or((clock, clock));
        let passed = clock.millis() - before.millis();
        let paced = Seen {
            read_at: last.plus_millis(passed.max(0)),
            ..entry
        };
        self.last = Some((paced, clock));
        paced
    }

    fn see_rule(&mut self, seq: u64, kind: &str, body: &str) {
        let Ok(rule) = serde_json::from_str::<RuleBody<'_>>(body) else {
            return;
        };
        if kind == EntryKind::RulePut.as_str() {
            self.puts.insert(rule.name.into_owned(), seq);
        } else {
            self.puts.remove(&*rule.name);
        }
    }

    fn forget_all_of(&mut self, subject: &Subject) {
        self.seen.retain(|(_, of), _| of != subject);
        self.news.retain(|(_, of), _| of != subject);
        self.unfrozen.remove(subject);
        self.stopped.remove(subject);
    }

    /// Forgets what is older than any rule could count, what is more than is remembered, and what no rule counts, if it
    /// is time for that. A rule that is put, turned on or changed counts from then on, so what was before is of no use
    /// to it; but it may be known here only after what it counts was read, and what was read since the last time stays.
    pub fn forget(&mut self, now: Timestamp, is_counted: impl Fn(Trigger) -> bool) {
        let is_recent = |forgot: Timestamp| (forgot..forgot.plus_millis(FORGET_MILLIS)).contains(&now);
        if self.forgot.is_some_and(|(forgot, _)| is_recent(forgot)) {
            return;
        }
        let last = self.last.map_or(0, |(last, _)| last.seq);
        let (then, mark) = self.forgot.unwrap_or((now, 0));
        // A clock that was ahead for a moment and is set back makes the next time come at once, and what was read since
        // the last one may just have been read.
        let (before, mark) = if now < then { (0, mark) } else { (mark, last) };
        self.forgot = Some((now, mark));
        let oldest = now.plus_millis(-i64::from(*WINDOW_SECONDS.end()) * 1_000);
        self.seen.retain(|(trigger, _), seen| {
            let useless = if is_counted(*trigger) { 0 } else { before };
            // INVARIANT: nothing is kept for longer than a rule remembers that it has counted it. A rule that fires by a
            // clock that is more than an hour ahead of this one remembers only the last `BACKWARDS_MAX` entries.
            let is_over = |first: &Seen| {
                first.at < oldest || first.seq <= useless || last.saturating_sub(first.seq) >= ENTRIES_MAX
            };
            while seen.front().is_some_and(is_over) {
                seen.pop_front();
            }
            !seen.is_empty()
        });
        // All that was before it is forgotten as well.
        self.unfrozen.retain(|_, (_, at)| *at >= oldest);
        self.stopped.retain(|_, at| *at >= oldest);
    }

    /// When this rule is due first, for each agent and each tool.
    pub fn due(&mut self, rule: &Rule) -> Vec<Due> {
        let open = self.open(rule).into_iter();
        let due: Vec<_> = open
            .filter_map(|(subject, news)| self.due_for(rule, subject, news))
            .collect();
        let look = Look {
            version: self.version(rule),
            due: due.iter().map(|due| due.subject.clone()).collect(),
        };
        self.looks.insert(rule.name.clone(), look);
        due
    }

    /// Whether this rule was due for nobody when it was looked at, and there is no news for it since then.
    pub fn is_settled(&self, rule: &Rule) -> bool {
        let look = self.looks.get(&rule.name);
        let was_settled = look.is_some_and(|look| look.due.is_empty() && look.version == self.version(rule));
        was_settled && self.news_of(rule.trigger).next().is_none()
    }

    /// Takes note that all rules were looked at. Those that are gone are forgotten.
    pub fn looked(&mut self, is_there: impl Fn(&Name) -> bool) {
        self.news.clear();
        self.looks.retain(|name, _| is_there(name));
    }

    /// The subjects that this rule is to be looked at for, each with the first entry that its evidence may end with:
    /// those with new entries, with the first of these; those that it was due for at the last look, with 0; and if it
    /// is new or has changed since, all that have entries, with 0.
    fn open(&self, rule: &Rule) -> BTreeMap<Subject, u64> {
        let version = self.version(rule);
        let look = self.looks.get(&rule.name).filter(|look| look.version == version);
        let Some(look) = look else {
            let shown = self.seen.keys().filter(|(trigger, _)| *trigger == rule.trigger);
            return shown.map(|(_, subject)| (subject.clone(), 0)).collect();
        };
        let mut open: BTreeMap<_, _> = self.news_of(rule.trigger).collect();
        for subject in &look.due {
            open.insert(subject.clone(), 0);
        }
        open
    }

    fn news_of(&self, trigger: Trigger) -> impl Iterator<Item = (Subject, u64)> {
        let news = self.news.iter().filter(move |((of, _), _)| *of == trigger);
        news.map(|((_, subject), first)| (subject.clone(), *first))
    }

    fn due_for(&self, rule: &Rule, subject: Subject, news: u64) -> Option<Due> {
        let shown = (rule.trigger, subject);
        let seen = self.seen.get(&shown)?;
        let (_, subject) = shown;
        let put = self.put(rule).max(self.lifted(rule, &subject));
        let counted = evidence(rule, &subject, (put, news), seen)?;
        Some(Due {
            rule: rule.name.clone(),
            was_stopped: self.stopped.contains_key(&subject),
            subject,
            since: rule.since,
            recorded: counted.last()?.at,
            evidence: counted.iter().map(|seen| seen.seq).collect(),
        })
    }

    fn version(&self, rule: &Rule) -> Version {
        Version {
            trigger: rule.trigger,
            count: rule.count,
            window_seconds: rule.window_seconds,
            effect: rule.effect,
            enabled: rule.enabled,
            since: rule.since,
            put: self.put(rule),
        }
    }

    fn put(&self, rule: &Rule) -> u64 {
        let put = self.puts.get(rule.name.as_str());
        put.copied().unwrap_or_default()
    }

    /// The entry by which a person has lifted what this rule does, if it freezes; 0 if there is none. Nobody is frozen again for
    /// what was before it.
    fn lifted(&self, rule: &Rule, subject: &Subject) -> u64 {
        let unfrozen = self.unfrozen.get(subject);
        let unfrozen = unfrozen.filter(|_| rule.effect == Effect::Freeze);
        unfrozen.map_or(0, |(seq, _)| *seq)
    }
}

/// Whom or what somebody or a rule has frozen, if that is what an entry is about.
fn frozen(kind: &str, body: &str) -> Option<Subject> {
    about(kind, body, [EntryKind::AgentFrozen, EntryKind::ToolFrozen])
}

/// Whom or what a person has unfrozen, if that is what an entry is about.
fn unfrozen(kind: &str, body: &str) -> Option<Subject> {
    about(kind, body, [EntryKind::AgentUnfrozen, EntryKind::ToolUnfrozen])
}

/// The tool that was deleted, if that is what an entry is about: the next one of its name is another tool.
fn deleted(kind: &str, body: &str) -> Option<Subject> {
    if kind != EntryKind::ToolDeleted.as_str() {
        return None;
    }
    let tool = serde_json::from_str::<ToolBody>(body).ok()?;
    Some(Subject::Tool(tool.name))
}

/// Whom or what an entry is about, if it is of one of these kinds: the first is about agents, the second about tools.
fn about(kind: &str, body: &str, [of_agent, of_tool]: [EntryKind; 2]) -> Option<Subject> {
    if kind == of_agent.as_str() {
        let agent = serde_json::from_str::<AgentBody>(body).ok()?;
        return Some(Subject::Agent(agent.id));
    }
    if kind == of_tool.as_str() {
        let tool = serde_json::from_str::<ToolBody>(body).ok()?;
        return Some(Subject::Tool(tool.name));
    }
    None
}

/// What an entry shows, and of whom. A body that was erased shows nothing any more.
fn shown(kind: &str, body: &str) -> Vec<(Trigger, Subject)> {
    if kind == EntryKind::ToolImported.as_str() {
        let import = serde_json::from_str::<ImportBody>(body).ok();
        let import = import.filter(|import| import.changed.iter().any(|action| action.held.is_some()));
        let shown = import.map(|import| (Trigger::DefinitionChanged, Subject::Tool(import.tool)));
        return shown.into_iter().collect();
    }
    let counted = [EntryKind::Decision, EntryKind::OutcomeReported].map(EntryKind::as_str);
    let body = Some(body).filter(|_| counted.contains(&kind));
    let Some(body) = body.and_then(|body| serde_json::from_str::<CountedBody<'_>>(body).ok()) else {
        return Vec::new();
    };
    let triggers = body.shows().into_iter();
    triggers
        .map(|trigger| (trigger, Subject::Agent(body.agent)))
        .collect()
}

impl CountedBody<'_> {
    fn shows(&self) -> Vec<Trigger> {
        let is_decision = !self.decision.is_empty();
        let is_enforced = is_decision && self.mode.is_empty();
        let is_denied = is_enforced && self.decision == Verdict::Deny.as_str();
        let all = [
            (
                Trigger::Denials,
                is_denied && !STOPPED.iter().any(|code| code.as_str() == self.reason_code),
            ),
            (Trigger::CanaryCalls, is_decision && self.canary),
            (
                Trigger::Mutations,
                is_enforced && self.decision == Verdict::Allow.as_str() && self.mutates_state,
            ),
            (
                Trigger::DefinitionChanged,
                self.reason_code == ReasonCode::ToolDefinitionChanged.as_str(),
            ),
            (Trigger::OutcomeMismatch, self.mismatch),
        ];
        all.into_iter()
            .filter(|(_, is)| *is)
            .map(|(trigger, _)| trigger)
            .collect()
    }
}

/// The first `rule.count` entries in a row that count and lie within the window of the rule, all after seq `put`, the
/// last at or after seq `news`.
fn evidence(
    rule: &Rule,
    subject: &Subject,
    (put, news): (u64, u64),
    seen: &VecDeque<Seen>,
) -> Option<Vec<Seen>> {
    // INVARIANT: places and times only go up along a chain, so what is behind an entry that counts does, too.
    let first = seen.partition_point(|seen| seen.seq <= put || !rule.counts(subject, seen.seq, seen.at));
    let before = rule.count.saturating_sub(1) as usize;
    let news = seen.partition_point(|seen| seen.seq < news);
    let mut ends = (first + before).max(news)..seen.len();
    let last = ends.find(|last| are_together(rule, &seen[last - before], &seen[*last]))?;
    Some(seen.range(last - before..=last).copied().collect())
}

/// Whether two entries are within the window of a rule, by their chain as well as by when they were read.
fn are_together(rule: &Rule, first: &Seen, last: &Seen) -> bool {
    let window = i64::from(rule.window_seconds) * 1_000;
    last.at <= first.at.plus_millis(window) && last.read_at <= first.read_at.plus_millis(window)
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
            counted_through: 0,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    /// An entry that was read as it was recorded.
    fn entry(seq: u64, seconds: i64) -> Seen {
        Seen {
            seq,
            at: at(seconds),
            read_at: at(seconds),
        }
    }

    fn agent() -> AgentId {
        AgentId::from_bytes([1; 16])
    }

    fn body(members: &str) -> String {
        format!(r#"{{"agent":"{}",{members}}}"#, agent())
    }

    fn recent(entries: &[(u64, i64, &str)]) -> RecentEntries {
        let mut recent = RecentEntries::default();
        for (seq, seconds, members) in entries {
            recent.see(entry(*seq, *seconds), "decision", &body(members));
        }
        recent
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
            let due = recent(&seen).due(&rule(Trigger::Denials, count));
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
        let mut recent = recent(&[(1, 0, DENIED), (2, 0, DENIED)]);
        recent.see(entry(3, 0), "tool_imported", changed);
        let due = |recent: &mut RecentEntries, trigger, effect| {
            let rule = Rule {
                effect,
                ..rule(trigger, 1)
            };
            let due = recent.due(&rule).into_iter();
            due.map(|due| (due.subject, due.evidence)).collect::<Vec<_>>()
        };
        let of_agent = |seq: u64| vec![(Subject::Agent(agent()), vec![seq])];
        assert_eq!(due(&mut recent, Trigger::Denials, Effect::Freeze), of_agent(1));
        let lifted = format!(r#"{{"by":{{"key":"k"}},"id":"{}","name":"builder"}}"#, agent());
        recent.see(entry(4, 1), "agent_unfrozen", &lifted);
        assert!(due(&mut recent, Trigger::Denials, Effect::Freeze).is_empty());
        assert_eq!(due(&mut recent, Trigger::Denials, Effect::Alert), of_agent(1));
        assert_eq!(
            due(&mut recent, Trigger::DefinitionChanged, Effect::Freeze),
            [(github, vec![3_u64])]
        );
        recent.see(entry(5, 1), "tool_unfrozen", r#"{"name":"github"}"#);
        assert!(due(&mut recent, Trigger::DefinitionChanged, Effect::Freeze).is_empty());
        recent.see(entry(6, 1), "decision", &body(DENIED));
        assert_eq!(due(&mut recent, Trigger::Denials, Effect::Freeze), of_agent(6));
        recent.forget(at(100_000), |_| true);
        assert!(recent.seen.is_empty() && recent.unfrozen.is_empty());
    }

    #[test]
    fn what_was_seen_of_a_tool_that_was_deleted_is_not_counted_for_the_next_one_of_its_name() {
        let mail = Subject::Tool(SlashFreeName::new("mail").unwrap());
        let import = |tool: &str| format!(r#"{{"tool":"{tool}","changed":[{{"name":"a","held":{{}}}}]}}"#);
        let mut recent = RecentEntries::default();
        for (seq, tool) in [(1, "mail"), (2, "mail"), (3, "hub")] {
            recent.see(entry(seq, 0), "tool_imported", &import(tool));
        }
        let rule = rule(Trigger::DefinitionChanged, 2);
        assert_eq!(recent.due(&rule)[0].evidence, [1, 2]);
        recent.looked(|_| true);
        recent.see(
            entry(4, 1),
            "tool_deleted",
            r#"{"by":{"key":"k"},"name":"mail","withdrawn_from":[]}"#,
        );
        assert_eq!(recent.due(&rule), []);
        recent.looked(|_| true);
        assert!(recent.is_settled(&rule), "a tool that is gone keeps no rule open");
        recent.see(entry(5, 2), "tool_imported", &import("mail"));
        assert_eq!(recent.due(&rule), []);
        recent.see(entry(6, 3), "tool_imported", &import("mail"));
        let due = recent.due(&rule);
        assert_eq!((&due[0].subject, &due[0].evidence), (&mail, &vec![5, 6]));
        recent.see(entry(7, 4), "tool_imported", &import("hub"));
        let of_hub = recent.due(&rule).into_iter().find(|due| due.subject != mail);
        assert_eq!(of_hub.unwrap().evidence, [3, 7], "the other tool is still there");
    }

    #[test]
    fn whoever_was_frozen_is_told_to_be_so_until_a_person_lifts_it() {
        let trapped = r#""canary":true,"decision":"deny","reason_code":"policy_forbids""#;
        let rule = Rule {
            effect: Effect::Freeze,
            ..rule(Trigger::CanaryCalls, 1)
        };
        let mut recent = recent(&[(1, 0, trapped)]);
        assert!(!recent.due(&rule)[0].was_stopped);
        let frozen = format!(
            r#"{{"by":{{"decision":"d"}},"id":"{}","reason":"a trap"}}"#,
            agent()
        );
        recent.see(entry(2, 0), "agent_frozen", &frozen);
        assert!(recent.due(&rule)[0].was_stopped);
        let lifted = format!(r#"{{"by":{{"key":"k"}},"id":"{}","name":"builder"}}"#, agent());
        recent.see(entry(3, 1), "agent_unfrozen", &lifted);
        assert_eq!(recent.due(&rule), []);
        recent.see(entry(4, 2), "decision", &body(trapped));
        assert!(!recent.due(&rule)[0].was_stopped);

        let github = Subject::Tool(SlashFreeName::new("github").unwrap());
        for (seq, frozen) in [
            (5, r#"{"by":{"key":"k"},"name":"github"}"#),
            (7, r#"{"by":{"rule":"rule"},"tool":"github"}"#),
        ] {
            recent.see(entry(seq, 2), "tool_frozen", frozen);
            assert!(recent.stopped.contains_key(&github), "{frozen}");
            recent.see(entry(seq + 1, 2), "tool_unfrozen", r#"{"name":"github"}"#);
            assert!(recent.stopped.is_empty());
        }
        recent.see(entry(9, 2), "tool_frozen", r#"{"name":"github"}"#);
        recent.forget(at(100_000), |_| true);
        assert!(recent.stopped.is_empty());
    }

    #[test]
    fn a_rule_that_fired_does_not_count_the_same_entries_again() {
        let mut seen = recent(&[(1, 0, DENIED), (2, 1, DENIED), (3, 2, DENIED)]);
        let fired = rule(Trigger::Denials, 2).fire(&Subject::Agent(agent()), (2, at(1)), at(3));
        assert_eq!(seen.due(&fired), []);
    }

    #[test]
    fn a_rule_is_held_against_those_only_of_whom_there_is_news() {
        let mut recent = recent(&[(1, 0, DENIED), (2, 1, DENIED)]);
        let rule = rule(Trigger::Denials, 3);
        assert!(!recent.is_settled(&rule), "it was not looked at yet");
        assert_eq!(recent.due(&rule), []);
        recent.looked(|_| true);
        assert!(recent.is_settled(&rule) && recent.open(&rule).is_empty());

        let other = AgentId::from_bytes([2; 16]);
        let of_other = format!(r#"{{"agent":"{other}",{DENIED}}}"#);
        recent.see(entry(3, 2), "decision", &of_other);
        assert_eq!(recent.open(&rule), BTreeMap::from([(Subject::Agent(other), 3)]));
        assert_eq!(recent.due(&rule), []);
        recent.looked(|_| true);

        recent.see(entry(4, 3), "decision", &body(DENIED));
        for _ in 0..2 {
            assert!(!recent.is_settled(&rule), "it is due until it has fired");
            let due = recent.due(&rule);
            assert_eq!((due.len(), due[0].recorded), (1, at(3)));
            assert_eq!(due[0].evidence, [1, 2, 4], "what was before counts, too");
            recent.looked(|_| true);
        }
        let fired = rule.fire(&Subject::Agent(agent()), (4, at(3)), at(3));
        assert_eq!(recent.due(&fired), []);
        assert!(recent.is_settled(&fired));
    }

    #[test]
    fn a_rule_that_is_new_or_another_one_is_held_against_all_that_is_remembered() {
        let mut recent = recent(&[(1, 0, DENIED), (2, 1, DENIED)]);
        assert_eq!(recent.due(&rule(Trigger::Denials, 3)), []);
        recent.looked(|_| true);
        let late = Rule {
            name: Name::new("late").unwrap(),
            ..rule(Trigger::Denials, 2)
        };
        for rule in [&rule(Trigger::Denials, 2), &late] {
            assert!(!recent.is_settled(rule));
            assert_eq!(recent.due(rule)[0].evidence, [1, 2]);
        }
        recent.see(entry(3, 2), "rule_put", r#"{"name":"late"}"#);
        recent.looked(|name| *name == late.name);
        assert!(!recent.is_settled(&late), "it was put again");
        assert_eq!(recent.due(&late), []);
        assert_eq!(recent.looks.keys().collect::<Vec<_>>(), [&late.name]);
    }

    #[test]
    fn while_a_chain_is_ahead_of_the_clock_entries_are_as_far_apart_as_they_were_read() {
        let counted = |seconds: &[i64]| {
            let mut recent = RecentEntries::default();
            for (seq, seconds) in (1..).zip(seconds) {
                let entry = Seen {
                    read_at: at(*seconds),
                    ..entry(seq, 3_600)
                };
                recent.see(entry, "decision", &body(DENIED));
            }
            let due = recent.due(&rule(Trigger::Denials, 3)).pop();
            due.map(|due| due.evidence)
        };
        assert_eq!(counted(&[0, 31, 62, 93]), None);
        assert_eq!(counted(&[0, 1_200, 1_230, 1_260]), Some(vec![2, 3, 4]));
        // It was set back after the first.
        assert_eq!(counted(&[3_600, 0, 1_200, 2_400]), None);
        assert_eq!(counted(&[3_600, 0, 60]), Some(vec![1, 2, 3]));
        // What is read late was recorded when its chain says.
        assert_eq!(counted(&[3_600, 7_200, 9_000]), Some(vec![1, 2, 3]));
    }

    #[test]
    fn no_more_is_remembered_than_the_last_entries_of_a_ledger() {
        let mut recent = recent(&[(1, 0, DENIED), (2, 0, DENIED), (1 + ENTRIES_MAX, 0, DENIED)]);
        recent.forget(at(1), |_| true);
        let left = recent.seen.values().flatten().map(|seen| seen.seq);
        assert_eq!(left.collect::<Vec<_>>(), [2, 1 + ENTRIES_MAX]);
    }

    #[test]
    fn what_is_older_than_any_window_is_forgotten_also_beside_what_is_new() {
        let mut seen = recent(&[(1, 0, DENIED), (2, 1, DENIED), (3, 80_000, DENIED)]);
        seen.forget(at(86_402), |_| true);
        let due = seen.due(&rule(Trigger::Denials, 1));
        assert_eq!(due[0].evidence, [3]);
        seen.forget(at(170_000), |_| true);
        assert!(seen.seen.is_empty());
    }

    #[test]
    fn what_no_rule_counts_is_forgotten_but_for_what_a_rule_may_count_that_is_known_late() {
        let changed = r#""decision":"allow","mutates_state":true"#;
        let mut recent = recent(&[(1, 0, changed), (2, 0, DENIED), (3, 1, changed)]);
        let left = |recent: &RecentEntries, trigger: Trigger| {
            let seen = recent.seen.iter().filter(|((of, _), _)| *of == trigger);
            let seqs = seen.flat_map(|(_, seen)| seen).map(|seen| seen.seq);
            seqs.collect::<Vec<_>>()
        };
        let is_counted = |trigger: Trigger| trigger == Trigger::Denials;
        recent.forget(at(2), is_counted);
        assert_eq!(left(&recent, Trigger::Mutations), [1, 3], "it was just read");
        recent.see(entry(4, 3), "rule_put", r#"{"name":"rule"}"#);
        recent.see(entry(5, 3), "decision", &body(changed));
        recent.forget(at(61), is_counted);
        assert_eq!(left(&recent, Trigger::Mutations), [1, 3, 5], "it is not time");
        recent.forget(at(62), is_counted);
        assert_eq!(left(&recent, Trigger::Mutations), [5]);
        let late = Rule {
            since: at(3),
            ..rule(Trigger::Mutations, 1)
        };
        assert_eq!(recent.due(&late)[0].evidence, [5]);
        for minute in 2..4 {
            recent.forget(at(minute * 60 + 2), |_| true);
        }
        assert_eq!(left(&recent, Trigger::Mutations), [5], "now it is counted");
        for minute in 4..6 {
            recent.forget(at(minute * 60 + 2), is_counted);
        }
        assert_eq!(left(&recent, Trigger::Mutations), [] as [u64; 0]);
        assert_eq!(left(&recent, Trigger::Denials), [2]);
    }

    #[test]
    fn a_clock_that_was_ahead_for_a_moment_makes_it_forget_nothing_that_was_just_read() {
        let mut recent = recent(&[(1, 0, DENIED)]);
        let left = |recent: &RecentEntries| {
            let seen = recent.seen.values().flatten().map(|seen| seen.seq);
            seen.collect::<Vec<_>>()
        };
        let is_counted = |_: Trigger| false;
        recent.forget(at(1), is_counted);
        recent.see(entry(2, 2), "decision", &body(DENIED));
        recent.forget(at(600), is_counted);
        assert_eq!(left(&recent), [2]);
        recent.see(entry(3, 3), "decision", &body(DENIED));
        recent.forget(at(3), is_counted);
        assert_eq!(left(&recent), [2, 3], "the clock was set back");
        recent.forget(at(63), is_counted);
        assert_eq!(left(&recent), [3]);
        recent.forget(at(123), is_counted);
        assert_eq!(left(&recent), [] as [u64; 0]);
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
            let recent = recent(&[(1, 0, &denied)]);
            assert!(recent.seen.is_empty(), "{reason}");
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
            let recent = recent(&[(1, 0, members)]);
            let found: Vec<_> = recent.seen.keys().map(|(trigger, _)| *trigger).collect();
            assert_eq!(found, [trigger], "{members}");
        }
        let mut changed = recent(&[(
            1,
            0,
            r#""decision":"deny","reason_code":"tool_definition_changed""#,
        )]);
        assert_eq!(changed.due(&rule(Trigger::DefinitionChanged, 1)).len(), 1);
        let mut imports = RecentEntries::default();
        for (seq, changed) in [
            (1, "[]"),
            (2, r#"[{"name":"a"}]"#),
            (3, r#"[{"name":"a","held":{"digest":"x"}}]"#),
        ] {
            let body = format!(r#"{{"tool":"github","held":["a"],"changed":{changed}}}"#);
            imports.see(entry(seq, 0), "tool_imported", &body);
        }
        let due = imports.due(&rule(Trigger::DefinitionChanged, 1));
        let github = Subject::Tool(SlashFreeName::new("github").unwrap());
        assert_eq!(
            (due.len(), &due[0].subject, &due[0].evidence),
            (1, &github, &vec![3])
        );
        let other = recent(&[(1, 0, r#""decision":"allow""#), (2, 0, r#""id":1"#)]);
        assert!(other.seen.is_empty());
    }
}
