//! Containment rules: what a tenant has done about an agent or a tool when its ledger shows too much of something.
//!
//! They are few, and each can be explained by the entries that it counted. What is counted is not decided here.

use crate::agent::{Agent, RiskTier};
use crate::id::AgentId;
use crate::name::{Name, SlashFreeName};
use crate::standing::RevokedForGood;
use crate::time::Timestamp;
use crate::tool::Tool;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// How many there have to be, at least and at most.
pub const COUNT: RangeInclusive<u32> = 1..=1_000;
/// Within how long, in seconds: up to a day.
pub const WINDOW_SECONDS: RangeInclusive<u32> = 1..=86_400;
/// How many entries of a ledger are read back at most, the last of them, by a gateway that has just begun to look at it,
/// or whose clock was set back.
pub const BACKWARDS_MAX: u32 = 20_000;
/// Of how many agents and tools together a rule remembers at most what it counted of each: every time that it fires, all
/// of it is written, and everybody waits for that commit.
pub const FIRED_MAX: usize = 2_000;

/// For how much longer than entries are kept a rule remembers that it has counted them, in seconds: the clock of the
/// gateway where it fired may be behind that of the one that recorded them.
const FIRED_MARGIN_SECONDS: i64 = 3_600;

/// What is counted, for each agent; of changed definitions for each tool as well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// Asks that were denied, but for those that were denied because somebody was taken out of service already.
    Denials,
    /// Asks for a tool that is a trap.
    CanaryCalls,
    /// Changes that were allowed.
    Mutations,
    /// Imports that brought another definition of an action than the one that was registered, by hand or by an import,
    /// for the tool; and asks for an action whose definition waits for a person, for the agent.
    DefinitionChanged,
    /// Reports that something else was done than what was allowed.
    OutcomeMismatch,
}

/// Whom a rule is about.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// An agent.
    Agent(AgentId),
    /// A tool.
    Tool(SlashFreeName),
}

/// What is done about the agent or the tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// It is told in the ledger.
    Alert,
    /// Its risk tier goes up by one. Only a person takes it down again. A tool has none, so of a tool it is told.
    RaiseRiskTier,
    /// It is frozen.
    Freeze,
}

/// What a rule counted last of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fired {
    /// The last entry that was counted. It and those before it count no more.
    pub seq: u64,
    /// When the rule fired, or when that entry was recorded by its chain, if that is later.
    pub at: Timestamp,
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    /// What people call it.
    pub name: Name,
    /// What is counted.
    pub trigger: Trigger,
    /// How many there have to be.
    pub count: u32,
    /// Within how long, in seconds.
    pub window_seconds: u32,
    /// What is done then.
    pub effect: Effect,
    /// Whether it is on.
    pub enabled: bool,
    /// Since when it is as it is: what was recorded before does not count.
    pub since: Timestamp,
    /// What it counted last of each agent, as long as that could count again.
    #[serde(default)]
    pub fired: BTreeMap<AgentId, Fired>,
    /// What it counted last of each tool, as long as that could count again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fired_tools: BTreeMap<SlashFreeName, Fired>,
    /// What is up to here counts no more, whomever it is about: it was counted, or is older than what was counted of
    /// agents and tools that are not remembered any more because there were more than `FIRED_MAX`.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub counted_through: u64,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(seq: &u64) -> bool {
    *seq == 0
}

impl Rule {
    /// Whether an entry about this agent or tool counts.
    pub fn counts(&self, subject: &Subject, seq: u64, at: Timestamp) -> bool {
        let fired = match subject {
            Subject::Agent(agent) => self.fired.get(agent),
            Subject::Tool(tool) => self.fired_tools.get(tool),
        };
        let is_new = seq > self.counted_through && fired.is_none_or(|fired| seq > fired.seq);
        self.enabled && is_new && at >= self.since
    }

    /// The rule after it has fired because of this entry, recorded then, and those before it.
    #[must_use]
    pub fn fire(&self, subject: &Subject, (seq, recorded): (u64, Timestamp), now: Timestamp) -> Self {
        let mut after = self.clone();
        // INVARIANT: what was counted is remembered for as long as anybody keeps the entries, however short the window
        // is: they are held against each other and not against now, so they would be counted again.
        let kept = i64::from(*WINDOW_SECONDS.end()) + FIRED_MARGIN_SECONDS;
        let oldest = now.plus_millis(-kept * 1_000);
        // This clock may be ahead, and once it is set right what is no day old is read back, as far as that goes.
        let is_read_back = |fired: &Fired| seq.saturating_sub(fired.seq) < u64::from(BACKWARDS_MAX);
        let could_count = |fired: &Fired| fired.at >= oldest || is_read_back(fired);
        after.fired.retain(|_, fired| could_count(fired));
        after.fired_tools.retain(|_, fired| could_count(fired));
        // The times of a chain stay ahead of a clock that was set back, and entries are kept by them.
        let at = now.max(recorded);
        let fired = Fired { seq, at };
        match subject {
            Subject::Agent(agent) => after.fired.insert(*agent, fired),
            Subject::Tool(tool) => after.fired_tools.insert(tool.clone(), fired),
        };
        after.forget_earliest();
        after
    }

    /// Forgets those agents and tools of whom it counted the earliest entries, where there are more than it remembers.
    fn forget_earliest(&mut self) {
        let fired = self.fired.values().chain(self.fired_tools.values());
        let mut seqs: Vec<_> = fired.map(|fired| fired.seq).collect();
        let Some(last) = seqs.len().checked_sub(FIRED_MAX + 1) else {
            return;
        };
        // INVARIANT: entries up to `counted_through` count for nobody: those of a forgotten agent or tool must not be
        // counted again.
        let (_, through, _) = seqs.select_nth_unstable(last);
        let through = self.counted_through.max(*through);
        self.counted_through = through;
        self.fired.retain(|_, fired| fired.seq > through);
        self.fired_tools.retain(|_, fired| fired.seq > through);
    }
}

impl Effect {
    /// The agent afterwards; `None` if there is nothing to be done about it but to tell.
    pub fn apply(self, agent: &Agent, reason: &str, now: Timestamp) -> Result<Option<Agent>, RevokedForGood> {
        match self {
            Self::Alert => Ok(None),
            Self::Freeze if !agent.standing.is_active() => Ok(None),
            Self::Freeze => agent.freeze(reason, now).map(Some),
            Self::RaiseRiskTier => Ok(raised(agent.risk_tier).map(|risk_tier| Agent {
                risk_tier,
                ..agent.clone()
            })),
        }
    }

    /// The tool afterwards; `None` if there is nothing to be done about it but to tell.
    pub fn apply_to_tool(self, tool: &Tool, reason: &str, now: Timestamp) -> Option<Tool> {
        let frozen = tool.standing.freeze(reason, now).ok();
        let frozen = frozen.filter(|_| self == Self::Freeze && tool.standing.is_active());
        frozen.map(|standing| tool.with_standing(standing))
    }
}

const fn raised(tier: RiskTier) -> Option<RiskTier> {
    match tier {
        RiskTier::Low => Some(RiskTier::Medium),
        RiskTier::Medium => Some(RiskTier::High),
        RiskTier::High => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> Rule {
        Rule {
            name: Name::new("denied").unwrap(),
            trigger: Trigger::Denials,
            count: 3,
            window_seconds: 60,
            effect: Effect::Freeze,
            enabled: true,
            since: at(100),
            fired: BTreeMap::new(),
            fired_tools: BTreeMap::new(),
            counted_through: 0,
        }
    }

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(seconds * 1_000)
    }

    fn agent(id: u8) -> Subject {
        Subject::Agent(AgentId::from_bytes([id; 16]))
    }

    fn tool() -> Subject {
        Subject::Tool(SlashFreeName::new("github").unwrap())
    }

    /// The place of an entry behind which this one is not read back.
    fn far_behind(seq: u64) -> u64 {
        seq + u64::from(BACKWARDS_MAX)
    }

    #[test]
    fn what_was_counted_counts_no_more_and_what_was_before_the_rule_never_does() {
        for subject in [agent(1), tool()] {
            let fired = rule().fire(&subject, (7, at(119)), at(120));
            assert!(!fired.counts(&subject, 7, at(119)) && fired.counts(&subject, 8, at(121)));
            assert!(fired.counts(&agent(2), 7, at(119)), "each is counted by itself");
            assert!(!rule().counts(&subject, 9, at(99)));
        }
        let off = Rule {
            enabled: false,
            ..rule()
        };
        assert!(!off.counts(&agent(1), 9, at(130)));
    }

    #[test]
    fn what_was_counted_is_remembered_for_as_long_as_it_could_be_counted_again() {
        let fired = rule().fire(&tool(), (6, at(119)), at(119));
        let fired = fired.fire(&agent(1), (7, at(119)), at(120));
        let day = i64::from(*WINDOW_SECONDS.end());
        let fired = fired.fire(&agent(2), (9, at(120 + day)), at(120 + day));
        assert!(!fired.counts(&tool(), 6, at(119)) && !fired.counts(&agent(1), 7, at(120)));
        let later = at(121 + day + FIRED_MARGIN_SECONDS);
        let fired = fired.fire(&agent(3), (far_behind(7), later), later);
        assert_eq!(fired.fired.len(), 2);
        assert!(fired.fired_tools.is_empty() && !fired.counts(&agent(2), 9, at(120 + day)));
    }

    #[test]
    fn a_clock_that_is_ahead_makes_it_forget_nothing_that_is_read_back_when_it_is_set_right() {
        let fired = rule().fire(&tool(), (6, at(119)), at(119));
        let fired = fired.fire(&agent(1), (7, at(119)), at(120));
        let ahead = at(120 + 10 * i64::from(*WINDOW_SECONDS.end()));
        let fired = fired.fire(&agent(2), (far_behind(6) - 1, ahead), ahead);
        assert!(!fired.counts(&tool(), 6, at(119)) && !fired.counts(&agent(1), 7, at(119)));
        let fired = fired.fire(&agent(2), (far_behind(6), ahead), ahead);
        assert!(fired.counts(&tool(), 6, at(119)) && !fired.counts(&agent(1), 7, at(119)));
    }

    #[test]
    fn what_was_counted_is_remembered_for_as_long_as_a_chain_that_is_ahead_of_the_clock_says() {
        let day = i64::from(*WINDOW_SECONDS.end());
        let ahead = at(120 + 3 * FIRED_MARGIN_SECONDS);
        let fired = rule().fire(&agent(1), (7, ahead), at(120));
        let later = at(121 + day + FIRED_MARGIN_SECONDS);
        let fired = fired.fire(&agent(2), (far_behind(7), later), later);
        assert!(!fired.counts(&agent(1), 7, ahead));
        let later = ahead.plus_millis((1 + day + FIRED_MARGIN_SECONDS) * 1_000);
        let fired = fired.fire(&agent(2), (far_behind(8), later), later);
        assert_eq!(fired.fired.len(), 1);
    }

    /// An agent for each number.
    fn numbered(number: u64) -> Subject {
        Subject::Agent(AgentId::from_bytes(u128::from(number).to_be_bytes()))
    }

    #[test]
    fn what_a_rule_remembers_has_a_bound_however_many_it_has_counted_and_nothing_counts_again() {
        const ALL: u64 = 10_000;
        let kept = u64::try_from(FIRED_MAX).unwrap();
        // As an earlier version has left it.
        let mut many = rule();
        for seq in 1..ALL {
            let Subject::Agent(agent) = numbered(seq) else {
                panic!("it is an agent")
            };
            many.fired.insert(agent, Fired { seq, at: at(120) });
        }
        let mut fired = many.fire(&numbered(ALL), (ALL, at(120)), at(120));
        assert_eq!(fired.counted_through, ALL - kept);
        fired = fired.fire(&tool(), (ALL + 1, at(121)), at(121));
        for seq in ALL + 2..ALL + 100 {
            fired = fired.fire(&numbered(seq), (seq, at(121)), at(121));
        }
        assert_eq!(fired.fired.len() + fired.fired_tools.len(), FIRED_MAX);
        let text = serde_json::to_string(&fired).unwrap();
        assert!(text.len() < 200_000, "{}", text.len());
        let read: Rule = serde_json::from_str(&text).unwrap();
        assert_eq!(read, fired);
        for seq in 1..ALL + 100 {
            let subject = if seq == ALL + 1 { tool() } else { numbered(seq) };
            assert!(!read.counts(&subject, seq, at(121)), "{seq}");
            assert!(read.counts(&subject, ALL + 100, at(121)), "{seq}");
        }
        let nobody_yet = numbered(ALL + 200);
        assert!(!read.counts(&nobody_yet, read.counted_through, at(121)));
        assert!(read.counts(&nobody_yet, read.counted_through + 1, at(121)));
    }

    #[test]
    fn what_was_counted_out_of_order_does_not_count_again_when_it_is_forgotten() {
        let all = 2 * u64::try_from(FIRED_MAX).unwrap();
        let mut fired = rule();
        let mut counted = 0;
        for seq in (1..=all).rev() {
            if fired.counts(&numbered(seq), seq, at(120)) {
                fired = fired.fire(&numbered(seq), (seq, at(120)), at(120));
                counted += 1;
            }
        }
        assert_eq!((fired.fired.len(), counted), (FIRED_MAX, FIRED_MAX + 1));
        assert!((1..=all).all(|seq| !fired.counts(&numbered(seq), seq, at(120))));
    }

    #[test]
    fn a_rule_that_has_forgotten_nobody_is_written_as_before() {
        let text = serde_json::to_string(&rule().fire(&tool(), (7, at(119)), at(120))).unwrap();
        assert!(!text.contains("counted_through"), "{text}");
        let read: Rule = serde_json::from_str(&text).unwrap();
        assert_eq!(read.counted_through, 0);
    }

    #[test]
    fn a_tier_only_goes_up() {
        assert_eq!(raised(RiskTier::Low), Some(RiskTier::Medium));
        assert_eq!(raised(RiskTier::Medium), Some(RiskTier::High));
        assert_eq!(raised(RiskTier::High), None);
    }
}
