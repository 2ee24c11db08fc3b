//! The files of a suite, `tools.json` and `tests.json`: read strictly, so that a misspelt member is not a test that passes.

use super::compare::Expectation;
use canon::{Digest, Integers, Limits};
use imbl::OrdMap;
use model::usage::{BudgetUsage, CallsUsage};
use model::{
    Agent, AgentId, AttributeType, Attributes, EffectiveTrust, Estimate, Name, Risk, RiskTier, SlashFreeName,
    SourceRule, Sources, Standing, Team, TenantId, Timestamp, Tool, ToolAccess, ToolAction, Trust, Usage,
    User, Window,
};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a file may be.
const LIMITS: Limits = Limits {
    bytes_max: 16 << 20,
    depth_max: 64,
};
/// When asks are asked unless they say otherwise, in milliseconds: 2025-01-06T12:00:00Z, a Monday at noon.
const NOON: Timestamp = Timestamp::from_millis(1_736_164_800_000);

/// `tools.json`, as a registry.
#[derive(Debug)]
pub(super) struct Tools {
    pub(super) registered: OrdMap<SlashFreeName, Arc<Tool>>,
    pub(super) attributes: BTreeMap<Name, AttributeType>,
    pub(super) sources: SourceRule,
}

/// `tests.json`, with its defaults filled in.
#[derive(Debug)]
pub(super) struct Cases {
    pub(super) agents: BTreeMap<Name, Agent>,
    pub(super) teams: OrdMap<Name, Arc<Team>>,
    pub(super) users: BTreeMap<Name, User>,
    pub(super) tests: Vec<Test>,
}

/// An ask, and what is expected of it.
#[derive(Debug)]
pub(super) struct Test {
    pub(super) name: String,
    pub(super) agent: Name,
    pub(super) at: Timestamp,
    pub(super) tool: SlashFreeName,
    pub(super) call: Call,
    pub(super) claimed_trust: Trust,
    pub(super) sources: Sources,
    pub(super) context: Context,
    pub(super) user: Option<Name>,
    pub(super) run: Option<Name>,
    pub(super) run_worst: Option<Trust>,
    pub(super) usage: Usage,
    pub(super) expect: Expectation,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolsFile {
    tools: Vec<ToolEntry>,
    #[serde(default)]
    context_attributes: BTreeMap<Name, AttributeType>,
    #[serde(default)]
    sources: SourceRule,
}

/// A tool as `PUT /v1/tools/{tool}` takes it, with its name.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolEntry {
    name: SlashFreeName,
    actions: Vec<ActionEntry>,
    #[serde(default)]
    canary: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionEntry {
    name: Name,
    mutates_state: bool,
    risk: Risk,
    #[serde(default, deserialize_with = "canon::foreign")]
    input_schema: Option<Map<String, Value>>,
    description: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestsFile {
    #[serde(default)]
    agents: BTreeMap<Name, AgentEntry>,
    #[serde(default)]
    teams: BTreeMap<Name, TeamEntry>,
    #[serde(default)]
    users: BTreeMap<Name, UserEntry>,
    #[serde(default)]
    defaults: Defaults,
    tests: Vec<TestEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentEntry {
    /// For policies that name the agent by its id.
    id: Option<AgentId>,
    environment: Option<Name>,
    team: Option<Name>,
    owner: Option<Name>,
    #[serde(default)]
    risk_tier: RiskTier,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TeamEntry {
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserEntry {
    #[serde(default)]
    teams: BTreeSet<Name>,
    #[serde(default)]
    attributes: Attributes,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Defaults {
    agent: Option<Name>,
    at: Option<Timestamp>,
    tool: Option<SlashFreeName>,
    source_trust: Option<Trust>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TestEntry {
    name: String,
    agent: Option<Name>,
    at: Option<Timestamp>,
    ask: AskEntry,
    /// What the run has seen before.
    run_worst: Option<Trust>,
    /// What is used of the budget and the quotas that the ask counts against.
    #[serde(default)]
    usage: UsageEntry,
    expect: Expectation,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct UsageEntry {
    budget: Option<BudgetUsage>,
    #[serde(default)]
    calls: BTreeMap<Window, CallsUsage>,
}

/// The body of `POST /v1/authorize`. What no policy sees may be there, so that a real ask can be pasted in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AskEntry {
    tool_call: CallEntry,
    #[serde(default)]
    context: Context,
    user: Option<UserClaim>,
    act: Option<IgnoredAny>,
    #[serde(default)]
    trace: Trace,
    #[serde(rename = "request_id")]
    _request_id: Option<IgnoredAny>,
    #[serde(rename = "agent")]
    _agent: Option<IgnoredAny>,
    estimate: Option<Estimate>,
    #[serde(rename = "ttl_ms")]
    _ttl_ms: Option<IgnoredAny>,
    #[serde(rename = "approval_id")]
    _approval_id: Option<IgnoredAny>,
    #[serde(rename = "mode")]
    _mode: Option<IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CallEntry {
    tool: Option<SlashFreeName>,
    action: Name,
    resource: Option<String>,
    #[serde(default)]
    mutates_state: bool,
    #[serde(default, deserialize_with = "canon::foreign")]
    parameters: Map<String, Value>,
}

/// What an agent wants to do.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) action: Name,
    pub(super) resource: Option<String>,
    pub(super) mutates_state: bool,
    /// A JSON object.
    pub(super) parameters: String,
}

/// The context of an ask.
#[derive(Debug, Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(super) struct Context {
    source_trust: Option<Trust>,
    #[serde(default)]
    sources: BTreeMap<String, Trust>,
    #[serde(rename = "provenance")]
    _provenance: Option<IgnoredAny>,
    #[serde(default)]
    pub(super) contains_sensitive_data: bool,
    #[serde(default, deserialize_with = "canon::foreign")]
    pub(super) attributes: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserClaim {
    id: Name,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Trace {
    #[serde(rename = "run_id")]
    run: Option<Name>,
    #[serde(rename = "parent_run_id")]
    parent: Option<Name>,
    #[serde(rename = "trace_id")]
    _id: Option<IgnoredAny>,
}

impl Tools {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let file: ToolsFile = read(text)?;
        let mut registered = OrdMap::new();
        for tool in file.tools {
            let tool = tool.tool()?;
            let name = tool.name.clone();
            if registered.insert(name.clone(), Arc::new(tool)).is_some() {
                return Err(format!("the tool `{name}` is there twice"));
            }
        }
        Ok(Self {
            registered,
            attributes: file.context_attributes,
            sources: file.sources,
        })
    }
}

impl ToolEntry {
    fn tool(self) -> Result<Tool, String> {
        let mut actions = BTreeMap::new();
        for entry in self.actions {
            let name = entry.name.clone();
            let action = ToolAction {
                name: entry.name,
                mutates_state: entry.mutates_state,
                risk: entry.risk,
                input_schema: entry.input_schema.map(|schema| Arc::new(Value::Object(schema))),
                description: entry.description,
                pinned: None,
                held: None,
            };
            if actions.insert(name.clone(), action).is_some() {
                return Err(format!("the tool `{}` has the action `{name}` twice", self.name));
            }
        }
        Ok(Tool {
            name: self.name,
            actions,
            canary: self.canary,
            standing: Standing::Active,
            created_at: NOON,
        })
    }
}

impl Cases {
    pub(super) fn read(text: &str) -> Result<Self, String> {
        let file: TestsFile = read(text)?;
        let mut names = BTreeSet::new();
        let mut tests = Vec::with_capacity(file.tests.len());
        for entry in file.tests {
            if !names.insert(entry.name.clone()) {
                return Err(format!("the test `{}` is there twice", entry.name));
            }
            tests.push(entry.test(&file.defaults, &file.agents)?);
        }
        let agents = file.agents.into_iter();
        let teams = file.teams.into_iter().map(|(name, entry)| {
            let attributes = entry.attributes;
            let team = Team {
                name: name.clone(),
                attributes,
                quotas: Vec::new(),
            };
            (name, Arc::new(team))
        });
        let users = file.users.into_iter().map(|(name, entry)| {
            let UserEntry { teams, attributes } = entry;
            let user = User {
                name: name.clone(),
                teams,
                attributes,
                roles: std::collections::BTreeSet::new(),
            };
            (name, user)
        });
        Ok(Self {
            agents: agents
                .map(|(name, entry)| (name.clone(), entry.agent(name)))
                .collect(),
            teams: teams.collect(),
            users: users.collect(),
            tests,
        })
    }
}

impl AgentEntry {
    fn agent(self, name: Name) -> Agent {
        Agent {
            id: self.id.unwrap_or_else(|| id_of(&name)),
            tenant: TenantId::SYSTEM,
            name,
            former_names: Vec::new(),
            environment: self.environment,
            team: self.team,
            owner: self.owner,
            risk_tier: self.risk_tier,
            tools: ToolAccess::All,
            attributes: self.attributes,
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            signing_keys: None,
            created_at: NOON,
        }
    }
}

/// An agent that no policy names can have any id, as long as it is the same every time.
fn id_of(name: &Name) -> AgentId {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&Digest::of(name.as_str().as_bytes()).as_bytes()[..16]);
    AgentId::from_bytes(bytes)
}

impl TestEntry {
    fn test(self, defaults: &Defaults, agents: &BTreeMap<Name, AgentEntry>) -> Result<Test, String> {
        if let Some(why) = self.impossible() {
            return Err(format!("the test `{}` has {why}", self.name));
        }
        let Self { name, mut ask, .. } = self;
        let missing =
            |what: &str| format!("the test `{name}` does not say {what}, and neither do the defaults");
        let agent = self.agent.or_else(|| defaults.agent.clone());
        let agent = agent.ok_or_else(|| missing("which `agent` asks"))?;
        if !agents.contains_key(&agent) {
            return Err(format!(
                "the test `{name}` is asked by `{agent}`, which is not among `agents`"
            ));
        }
        if ask.act.is_some() {
            return Err(format!(
                "the test `{name}` asks in the name of others (`act`), and here one agent asks: write a test for each of them"
            ));
        }
        let CallEntry {
            tool,
            action,
            resource,
            mutates_state,
            parameters,
        } = ask.tool_call;
        let tool = tool.or_else(|| defaults.tool.clone());
        let claimed = ask.context.source_trust.or(defaults.source_trust);
        let claimed = claimed.ok_or_else(|| missing("the `context.source_trust`"))?;
        Ok(Test {
            agent,
            at: self.at.or(defaults.at).unwrap_or(NOON),
            tool: tool.ok_or_else(|| missing("the `tool_call.tool`"))?,
            call: Call {
                action,
                resource,
                mutates_state,
                parameters: Value::Object(parameters).to_string(),
            },
            claimed_trust: claimed,
            sources: Sources::new(std::mem::take(&mut ask.context.sources)),
            context: ask.context,
            user: ask.user.map(|user| user.id),
            // If only a parent is given, it is part of that run.
            run: ask.trace.run.or(ask.trace.parent),
            run_worst: self.run_worst,
            usage: Usage {
                budget: self.usage.budget,
                calls: self.usage.calls,
                estimate: ask.estimate,
            },
            expect: self.expect,
            name,
        })
    }

    /// What no ask can be like, and would make a test that passes and says nothing.
    fn impossible(&self) -> Option<String> {
        let Trace { run, parent, .. } = &self.ask.trace;
        let is_in_run = run.is_some() || parent.is_some();
        if self.run_worst.is_some() && !is_in_run {
            return Some("a `run_worst`, and its ask is in no run: give it a `trace.run_id`".to_owned());
        }
        if self.usage.budget.is_some() && self.ask.estimate.is_none() {
            let why = "a `usage.budget`, and its ask no `estimate`: it counts against no budget, and policies see none";
            return Some(why.to_owned());
        }
        let mut sources = self.ask.context.sources.keys();
        let odd = sources.find(|pointer| !Sources::is_pointer(pointer))?;
        Some(format!(
            "the source `{odd}`, which is not a JSON Pointer into the parameters, such as `/base_branch`"
        ))
    }
}

impl Test {
    /// What the claim counts as. A source that is called signed is one here: a suite has no keys.
    pub(super) fn trust(&self, rule: SourceRule) -> EffectiveTrust {
        let claimed = self.claimed_trust;
        let worst = self.sources.worst().filter(|_| rule == SourceRule::Call);
        let level = worst.map_or(claimed, |worst| claimed.worse_of(worst));
        EffectiveTrust {
            claimed,
            level,
            signed: level == Trust::TrustedInternalSigned,
        }
    }

    /// The least trusted source that its run has seen, the ask with this trust included: of that the level of the call,
    /// and of each parameter.
    pub(super) fn seen(&self, trust: EffectiveTrust) -> Trust {
        let others = self.run_worst.max(self.sources.worst());
        others.map_or(trust.level, |worst| trust.level.worse_of(worst))
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let canonical = canon::canonicalize_sent(text.as_bytes(), LIMITS, Integers::Rounded);
    let canonical = canonical.map_err(|error| error.to_string())?;
    canon::read(canonical.as_str()).map_err(|error| error.to_string())
}
