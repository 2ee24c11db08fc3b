//! Judging recorded decisions again, by other policies: the ask is read back from its entry, and the nouns from the records
//! that the entry names. What cannot be judged again is counted with the reason why, and never guessed.
//!
//! Nothing is read from storage here: whoever replays brings entries and records.

mod tally;

pub use tally::{Change, Example, Group, Tally};

use crate::delegation::{self, Delegator};
use crate::facts::{ActionRecord, Record};
use crate::judge::RulingSummary;
use canon::Digest;
use imbl::OrdMap;
use model::{
    Agent, AgentId, DecisionId, Directory, EffectiveTrust, Name, Noun, ReasonCode, Sources, Team, Timestamp,
    Tool, Trust, Usage, User, Vouched, Write,
};
use policy::{Fact, PolicySet, Question, RunFacts, Unanswerable, UserFacts};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::sync::Arc;

/// Why a decision is not judged again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WhyNot {
    /// No policy was asked, or what came of it was not what policies say: other policies would have changed nothing.
    NotRuled,
    /// The entry does not name what was looked at, or it is not there any more.
    FactsMissing,
    /// A policy looks at the parameters, of which only a digest was kept.
    ParametersNotStored,
    /// A policy looks at the parameters, of which some were taken out.
    ParametersRedacted,
    /// The action was another one, and the policies do not fit it as it was.
    ActionChanged,
    /// The action was another one, and so were too many others for the policies to be compiled for all of them.
    TooManyChangedActions,
    /// An attribute of the caller's does not have the type that the tenant has declared since.
    AttributesMistyped,
    /// A policy looks at how much is used, which was not looked at then.
    UsageNotKept,
    /// A policy looks at what the run has seen, which nobody kept then.
    RunNotKept,
    /// The body of the entry was erased.
    Erased,
    /// The entry is not one that this version can read.
    Unreadable,
}

/// A decision as its entry tells it.
#[derive(Debug, Deserialize)]
pub struct Recorded<'a> {
    #[serde(rename = "decision_id")]
    id: DecisionId,
    agent: AgentId,
    #[serde(borrow)]
    tool: Cow<'a, str>,
    #[serde(borrow)]
    action: Cow<'a, str>,
    #[serde(borrow, default)]
    resource: Option<Cow<'a, str>>,
    mutates_state: bool,
    trust: TrustSaid,
    #[serde(default)]
    contains_sensitive_data: bool,
    #[serde(borrow, default)]
    attributes: Option<&'a RawValue>,
    #[serde(borrow, default)]
    run_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    parent_run_id: Option<Cow<'a, str>>,
    #[serde(default)]
    run_worst: Option<Trust>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(default)]
    sources: Sources,
    #[serde(borrow, default)]
    user: Option<Cow<'a, str>>,
    #[serde(default)]
    judged_at: Option<Timestamp>,
    #[serde(default)]
    facts: Option<FactsSaid>,
    #[serde(default)]
    delegators: Vec<DelegatorSaid>,
    /// The registered teams of the user. Earlier versions did not look at them.
    #[serde(default)]
    user_teams: Option<Vec<Digest>>,
    #[serde(borrow, default)]
    parameters: Option<&'a RawValue>,
    #[serde(default)]
    redacted: Vec<IgnoredAny>,
    #[serde(default = "yes")]
    granted: bool,
    reason_code: ReasonCode,
    #[serde(default)]
    matched_policies: Vec<String>,
    #[serde(default)]
    would_have: Option<WouldHaveSaid>,
    /// The ruling before a budget or an approval changed it, where the entry's reason does not tell.
    #[serde(default)]
    ruling: Option<WouldHaveSaid>,
}

#[derive(Debug, Deserialize)]
struct TrustSaid {
    claimed: Trust,
    effective: Trust,
    #[serde(default)]
    signed: bool,
    #[serde(default)]
    provenance: Option<ProvenanceSaid>,
}

/// What a signed token said of the source.
#[derive(Debug, Deserialize)]
struct ProvenanceSaid {
    level: Trust,
    #[serde(default)]
    parameter: Option<String>,
    /// All of them, where it is about several.
    #[serde(default, deserialize_with = "in_order")]
    parameters: Vec<String>,
}

/// Names in order, as [`Vouched`] has them, in whichever they were written.
fn in_order<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    let mut names = Vec::<String>::deserialize(deserializer)?;
    names.sort_unstable();
    Ok(names)
}

impl TrustSaid {
    fn vouched(&self) -> Option<Vouched<'_>> {
        let provenance = self.provenance.as_ref()?;
        let (one, several) = (provenance.parameter.as_slice(), &provenance.parameters[..]);
        let parameters = if several.is_empty() { one } else { several };
        (!parameters.is_empty()).then_some(Vouched {
            parameters,
            level: provenance.level,
        })
    }
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct FactsSaid {
    action: Digest,
    agent: Digest,
    #[serde(default)]
    team: Option<Digest>,
    #[serde(default)]
    user: Option<Digest>,
}

/// An agent in whose name it was asked.
#[derive(Debug, Deserialize)]
struct DelegatorSaid {
    agent: Digest,
    #[serde(default)]
    team: Option<Digest>,
    #[serde(default = "yes")]
    granted: bool,
}

#[derive(Debug, Deserialize)]
struct WouldHaveSaid {
    reason_code: ReasonCode,
    #[serde(default)]
    matched_policies: Vec<String>,
}

const fn yes() -> bool {
    true
}

/// The nouns of a decision as they were.
#[derive(Debug, Clone)]
pub struct Nouns<'r> {
    agent: &'r Agent,
    team: Option<&'r Team>,
    user: Option<&'r User>,
    /// `None` if nobody knows them.
    user_teams: Option<OrdMap<Name, Arc<Team>>>,
    action: &'r ActionRecord,
    delegators: Vec<Delegator<'r>>,
}

impl<'a> Recorded<'a> {
    /// Reads the body of a decision's entry, if the decision can be judged again at all.
    pub fn read(body: &'a str) -> Result<Self, WhyNot> {
        if body.is_empty() {
            return Err(WhyNot::Erased);
        }
        let recorded: Self = serde_json::from_str(body).map_err(|_| WhyNot::Unreadable)?;
        match (recorded.ruling(), recorded.facts) {
            (None, _) => Err(WhyNot::NotRuled),
            (Some(_), None) => Err(WhyNot::FactsMissing),
            (Some(_), Some(_)) => Ok(recorded),
        }
    }

    /// The run that policies saw: that of the ask, see [`crate::Ask::run`]. If the ask has only `parent_run_id`, they
    /// saw that one only where what it had seen was kept.
    fn run(&self) -> Option<&str> {
        let parent = self.parent_run_id.as_deref().filter(|_| self.run_worst.is_some());
        self.run_id.as_deref().or(parent)
    }

    /// What policies said then, whatever was answered; `None` if it was not up to them.
    pub fn said(&self) -> Option<RulingSummary> {
        let found = self.found();
        let matched = found.map_or(&self.matched_policies, |found| &found.matched_policies);
        Some(RulingSummary {
            reason: self.ruling()?,
            matched: matched.clone(),
        })
    }

    /// What was found, where it is not what was answered.
    fn found(&self) -> Option<&WouldHaveSaid> {
        self.ruling.as_ref().or(self.would_have.as_ref())
    }

    fn ruling(&self) -> Option<ReasonCode> {
        match self.found().map_or(self.reason_code, |found| found.reason_code) {
            // Where people were asked for another reason than that policies want it, the entry says what was found.
            ReasonCode::ApprovalGranted | ReasonCode::ApprovalRejected | ReasonCode::ApprovalExpired => {
                Some(ReasonCode::PolicyRequiresApproval)
            }
            reason => reason.is_ruling().then_some(reason),
        }
    }

    /// The digest of the record of its action.
    pub fn action_digest(&self) -> Option<Digest> {
        self.facts.map(|facts| facts.action)
    }

    /// The digests of all the records that it takes.
    pub fn digests(&self) -> impl Iterator<Item = Digest> {
        let facts = self.facts.into_iter();
        let facts = facts.flat_map(|facts| [Some(facts.action), Some(facts.agent), facts.team, facts.user]);
        let delegators = self
            .delegators
            .iter()
            .flat_map(|said| [Some(said.agent), said.team]);
        let user_teams = self.user_teams.iter().flatten().copied();
        facts.chain(delegators).flatten().chain(user_teams)
    }

    /// Its nouns, from the records that are found under its digests.
    pub fn nouns<'r>(&self, find: impl Fn(&Digest) -> Option<&'r Record>) -> Result<Nouns<'r>, WhyNot> {
        let missing = WhyNot::FactsMissing;
        let facts = self.facts.as_ref().ok_or(missing)?;
        let agent = |digest: Digest| match find(&digest) {
            Some(Record::Agent(agent)) => Ok(&**agent),
            _ => Err(missing),
        };
        let team = |digest: Option<Digest>| match digest.map(|digest| find(&digest)) {
            None => Ok(None),
            Some(Some(Record::Team(team))) => Ok(Some(team)),
            Some(_) => Err(missing),
        };
        let user_team = |digest: &Digest| {
            let team = team(Some(*digest))?.ok_or(missing)?;
            Ok((team.name.clone(), Arc::new(team.clone())))
        };
        let Some(Record::Action(action)) = find(&facts.action) else {
            return Err(missing);
        };
        let user = match facts.user.map(|digest| find(&digest)) {
            None => None,
            Some(Some(Record::User(user))) => Some(user),
            Some(_) => return Err(missing),
        };
        let user_teams = match &self.user_teams {
            Some(digests) => Some(digests.iter().map(user_team).collect::<Result<_, _>>()?),
            None if user.is_some_and(|user| !user.teams.is_empty()) => None,
            None => Some(OrdMap::new()),
        };
        let delegators = self.delegators.iter().map(|said| {
            Ok(Delegator {
                agent: agent(said.agent)?,
                team: team(said.team)?,
                granted: said.granted,
            })
        });
        Ok(Nouns {
            agent: agent(facts.agent)?,
            team: team(facts.team)?,
            user,
            user_teams,
            action,
            delegators: delegators.collect::<Result<_, _>>()?,
        })
    }

    /// What these policies say to it. They have to be compiled for a registry that has the action as it was.
    pub fn judge(&self, policies: &PolicySet, nouns: &Nouns<'_>) -> Result<RulingSummary, WhyNot> {
        let tool = nouns.action.tool();
        let action = tool.actions.values().next().ok_or(WhyNot::FactsMissing)?;
        let question = Question {
            agent: nouns.agent,
            team: nouns.team,
            user: self.user.as_deref().map(|id| UserFacts {
                id,
                registered: nouns.user,
                teams: nouns.user_teams.as_ref(),
            }),
            tool,
            action,
            mutates: self.mutates_state,
            resource: self.resource.as_deref(),
            parameters: self.parameters.map_or("{}", RawValue::get),
            trust: EffectiveTrust {
                claimed: self.trust.claimed,
                level: self.trust.effective,
                signed: self.trust.signed,
            },
            contains_sensitive_data: self.contains_sensitive_data,
            attributes: self.attributes.map(RawValue::get),
            run: self.run().map(|id| RunFacts {
                id,
                // Where nobody kept it, no policy is asked that looks at it.
                worst: self.run_worst.unwrap_or(self.trust.effective),
            }),
            usage: self.usage.as_ref(),
            sources: Some(&self.sources),
            vouched: self.trust.vouched(),
            now: self.judged_at.ok_or(WhyNot::FactsMissing)?,
            fuel: None,
        };
        let depends = |on: Fact| {
            let depends = delegation::depends_on(on, policies, &question, &nouns.delegators);
            depends.map_err(|error| why_not(&error))
        };
        if self.usage.is_none() && depends(Fact::Usage)? {
            return Err(WhyNot::UsageNotKept);
        }
        let is_in_run = self.run_id.is_some() || self.parent_run_id.is_some();
        if is_in_run && self.run_worst.is_none() && depends(Fact::Run)? {
            return Err(WhyNot::RunNotKept);
        }
        if nouns.user_teams.is_none() && depends(Fact::TeamTags)? {
            return Err(WhyNot::FactsMissing);
        }
        let ruling = match self.parameters {
            Some(_) if self.redacted.is_empty() => {
                let ruling = delegation::rule(policies, &question, &nouns.delegators);
                ruling.map_err(|error| why_not(&error))?
            }
            kept => {
                let why = kept.map_or(WhyNot::ParametersNotStored, |_| WhyNot::ParametersRedacted);
                let ruling = delegation::rule_without_parameters(policies, &question, &nouns.delegators);
                ruling.map_err(|error| why_not(&error))?.ok_or(why)?
            }
        };
        Ok(self.granted_or_not(RulingSummary {
            reason: ruling.reason,
            matched: ruling.matched.iter().map(ToString::to_string).collect(),
        }))
    }

    /// What policies permit, an agent that had no grant was denied all the same.
    fn granted_or_not(&self, said: RulingSummary) -> RulingSummary {
        if self.granted || said.reason.verdict() == model::Verdict::Deny {
            return said;
        }
        RulingSummary {
            reason: ReasonCode::ToolNotGranted,
            matched: Vec::new(),
        }
    }
}

fn why_not(unanswerable: &Unanswerable) -> WhyNot {
    match unanswerable {
        // They fitted the schema then, and it is the same one.
        Unanswerable::InvalidParameters { .. } => WhyNot::Unreadable,
        Unanswerable::MistypedAttribute { .. } => WhyNot::AttributesMistyped,
    }
}

impl Nouns<'_> {
    /// The action as it was.
    pub const fn action(&self) -> &ActionRecord {
        self.action
    }
}

/// A directory in which an action is what it was.
#[must_use]
pub fn with_action_as_it_was(directory: &Directory, was: &Tool) -> Directory {
    let mut tool = match directory.tools.get(was.name.as_str()) {
        Some(tool) => Tool::clone(tool),
        None => was.clone(),
    };
    tool.canary = was.canary;
    tool.actions.extend(was.actions.clone());
    let mut after = directory.clone();
    after.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
    after
}
