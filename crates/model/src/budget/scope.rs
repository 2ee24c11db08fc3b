//! Scopes: what a budget is for, and which budgets something counts against.
//!
//! What it counts against comes from the credential and the registry. Of what a caller says only the run matters, and a run
//! adds budgets and takes none away.

use super::ancestry::RUNS_MAX;
use crate::agent::Agent;
use crate::id::AgentId;
use crate::name::{Name, SlashFreeName};
use serde::{Deserialize, Serialize};

/// In how many scopes anything is at most: every combination of a team, an agent and a tool, and so many runs.
pub const SCOPES_MAX: usize = 8 + RUNS_MAX;

/// What a budget is for: the tenant, or a team, agent, tool or any combination of them; or a run.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Unchecked")]
pub struct Scope {
    #[serde(skip_serializing_if = "Option::is_none")]
    team: Option<Name>,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent: Option<AgentId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<SlashFreeName>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Name>,
}

/// None of them is ever `null`: what was meant to be narrower would be for the whole tenant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Unchecked {
    #[serde(default, deserialize_with = "canon::sent")]
    team: Option<Name>,
    #[serde(default, deserialize_with = "canon::sent")]
    agent: Option<AgentId>,
    #[serde(default, deserialize_with = "canon::sent")]
    tool: Option<SlashFreeName>,
    #[serde(default, deserialize_with = "canon::sent")]
    run: Option<Name>,
}

/// A run and something else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("names a `run` and something else; a budget of a run is for whoever acts in it")]
pub struct InvalidScope;

impl TryFrom<Unchecked> for Scope {
    type Error = InvalidScope;
    fn try_from(unchecked: Unchecked) -> Result<Self, InvalidScope> {
        let Unchecked {
            team,
            agent,
            tool,
            run,
        } = unchecked;
        if run.is_some() && (team.is_some() || agent.is_some() || tool.is_some()) {
            return Err(InvalidScope);
        }
        Ok(Self {
            team,
            agent,
            tool,
            run,
        })
    }
}

impl Scope {
    /// The scope of a run.
    pub const fn of_run(run: Name) -> Self {
        Self {
            team: None,
            agent: None,
            tool: None,
            run: Some(run),
        }
    }

    /// The team in it.
    pub const fn team(&self) -> Option<&Name> {
        self.team.as_ref()
    }

    /// The agent in it.
    pub const fn agent(&self) -> Option<AgentId> {
        self.agent
    }

    /// The tool in it.
    pub const fn tool(&self) -> Option<&SlashFreeName> {
        self.tool.as_ref()
    }

    /// What tells it from every other scope: its JSON, in which names cannot run into each other.
    pub fn key(&self) -> String {
        serde_json::to_string(self).expect("a scope has only string keys")
    }
}

/// For people: what the budget is for.
impl std::fmt::Display for Scope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let parts = [
            ("team", self.team.as_ref().map(ToString::to_string)),
            ("agent", self.agent.as_ref().map(ToString::to_string)),
            ("tool", self.tool.as_ref().map(ToString::to_string)),
            ("run", self.run.as_ref().map(ToString::to_string)),
        ];
        let mut is_first = true;
        for (what, name) in parts
            .iter()
            .filter_map(|(what, name)| Some((what, name.as_ref()?)))
        {
            write!(f, "{}{what} `{name}`", if is_first { "" } else { ", " })?;
            is_first = false;
        }
        if is_first { f.write_str("tenant") } else { Ok(()) }
    }
}

/// Who and what something counts against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// The team of the agent, as it is registered.
    pub team: Option<Name>,
    /// The agent whose credential it is.
    pub agent: AgentId,
    /// The tool, if it is about one.
    pub tool: Option<SlashFreeName>,
    /// The run that the caller names.
    pub run_id: Option<Name>,
    /// The run that, as the caller says, started it.
    pub parent_run_id: Option<Name>,
}

impl Subject {
    /// What an agent does as such: about no tool and in no run.
    pub fn of_agent(agent: &Agent) -> Self {
        Self {
            team: agent.team.clone(),
            agent: agent.id,
            tool: None,
            run_id: None,
            parent_run_id: None,
        }
    }

    /// The run that it is part of: `run_id`, or, if only `parent_run_id` is given, that one.
    pub fn run(&self) -> Option<&Name> {
        self.run_id.as_ref().or(self.parent_run_id.as_ref())
    }

    /// The run that started it, as the caller says, where both are named and are two.
    pub fn parent(&self) -> Option<&Name> {
        let run = self.run_id.as_ref()?;
        self.parent_run_id.as_ref().filter(|parent| *parent != run)
    }

    /// In how many scopes it is at most. Where it is part of a run it may be in those of others that started that, and
    /// how many these are is not known here.
    pub fn scopes_max(&self) -> usize {
        let names = usize::from(self.team.is_some()) + usize::from(self.tool.is_some());
        // For each name there is a scope with it and one without, and the agent is one.
        let wide: usize = 2 << names;
        let runs = if self.run().is_some() { RUNS_MAX } else { 0 };
        wide + runs
    }

    /// Every scope that it is in, the widest first: the tenant, then by team, agent and tool, then `runs`, which are its run and
    /// those that started it, the outermost first.
    pub fn scopes(&self, runs: &[Name]) -> Vec<Scope> {
        let teams = [None, self.team.clone()];
        let agents = [None, Some(self.agent)];
        let tools = [None, self.tool.clone()];
        let mut scopes = Vec::with_capacity(8 + runs.len());
        for tool in tools.into_iter().take(1 + usize::from(self.tool.is_some())) {
            for agent in agents {
                for team in teams.iter().take(1 + usize::from(self.team.is_some())) {
                    scopes.push(Scope {
                        team: team.clone(),
                        agent,
                        tool: tool.clone(),
                        run: None,
                    });
                }
            }
        }
        scopes.extend(runs.iter().cloned().map(Scope::of_run));
        scopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(json: &str) -> Scope {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_scope_is_read_as_it_is_written_and_two_never_look_the_same() {
        let agent = AgentId::from_bytes([7; 16]);
        let texts = [
            "{}".to_owned(),
            r#"{"team":"a"}"#.to_owned(),
            format!(r#"{{"agent":"{agent}"}}"#),
            format!(r#"{{"team":"a","agent":"{agent}","tool":"t"}}"#),
            r#"{"run":"{\"team\":\"a\"}"}"#.to_owned(),
        ];
        for text in &texts {
            assert_eq!(scope(text).key(), *text);
        }
        assert_eq!(
            scope(&texts[3]).to_string(),
            format!("team `a`, agent `{agent}`, tool `t`")
        );
        assert_eq!(scope("{}").to_string(), "tenant");
    }

    #[test]
    fn a_run_stands_alone_and_what_is_unknown_or_null_is_refused() {
        for text in [
            r#"{"run":"r","team":"a"}"#,
            r#"{"project":"p"}"#,
            r#"{"tool":"a/b"}"#,
            r#"{"team":null}"#,
            r#"{"agent":null}"#,
            r#"{"tool":null,"team":"a"}"#,
            r#"{"run":null}"#,
        ] {
            assert!(serde_json::from_str::<Scope>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn whoever_has_a_team_and_a_tool_is_in_every_combination_of_them() {
        let mut subject = Subject {
            team: Some(Name::new("a").unwrap()),
            agent: AgentId::from_bytes([7; 16]),
            tool: Some(SlashFreeName::new("t").unwrap()),
            run_id: None,
            parent_run_id: None,
        };
        let runs = [Name::new("outer").unwrap(), Name::new("inner").unwrap()];
        let scopes = subject.scopes(&runs);
        assert_eq!(scopes.len(), 10);
        assert_eq!(scopes[0], Scope::default());
        assert_eq!(scopes[9], Scope::of_run(runs[1].clone()));
        let distinct: std::collections::BTreeSet<_> = scopes.iter().map(Scope::key).collect();
        assert_eq!(distinct.len(), 10);
        (subject.team, subject.tool) = (None, None);
        assert_eq!(subject.scopes(&[]).len(), 2);
    }

    #[test]
    fn nobody_is_in_more_scopes_than_are_foretold() {
        let runs: Vec<_> = (0..RUNS_MAX)
            .map(|number| Name::new(&number.to_string()).unwrap())
            .collect();
        let subject = |has_team: bool, has_tool: bool, run_id: Option<&Name>| Subject {
            team: has_team.then(|| Name::new("a").unwrap()),
            agent: AgentId::from_bytes([7; 16]),
            tool: has_tool.then(|| SlashFreeName::new("t").unwrap()),
            run_id: run_id.cloned(),
            parent_run_id: None,
        };
        for (has_team, has_tool) in [(false, false), (false, true), (true, false), (true, true)] {
            let alone = subject(has_team, has_tool, None);
            assert_eq!(alone.scopes_max(), alone.scopes(&[]).len());
            let in_run = subject(has_team, has_tool, runs.last());
            assert_eq!(in_run.scopes_max(), in_run.scopes(&runs).len());
            assert!(in_run.scopes_max() <= SCOPES_MAX);
        }
    }
}
