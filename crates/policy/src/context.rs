//! A question in Cedar's terms: entities and context from typed values, without JSON and without checking against the
//! schema, because both were made from the same registry. What no policy at hand looks at is not made.

use crate::evaluate::Asked;
use crate::facts::{self, TYPES};
use crate::index::{Found, Index, Position};
use crate::input;
use crate::json_schema::{Record, Shape};
use crate::members::{members, record};
use crate::parameters::Parameters;
use crate::question::{Question, Unanswerable, UserFacts};
use crate::read_set::{Member, ReadSet};
use cedar_policy_core::ast::{
    self, Context, Entity, EntityType, EntityUID, EntityUIDEntry, PartialValue, Request, Value,
};
use cedar_policy_core::entities::{Entities, NoEntitiesSchema, TCComputation};
use cedar_policy_core::extensions::Extensions;
use model::{Agent, Attributes, EffectiveTrust, Name, Team, Tool, ToolAction, Trust, Usage};
use std::cell::OnceCell;
use std::collections::HashSet;
use std::sync::Arc;

/// What is the same for all asks for one action that count as changing something, or for all that do not.
#[derive(Debug)]
pub(crate) struct Side {
    uid: Arc<EntityUID>,
    /// What the action is in. Actions that are in the same share it.
    groups: Arc<[EntityUID; 3]>,
    mutates: bool,
}

/// The groups of actions, each once.
#[derive(Default)]
pub(crate) struct Groups(HashSet<Arc<[EntityUID; 3]>>);

impl Groups {
    fn of(&mut self, tool: &Tool, action: &ToolAction, mutates: bool) -> Arc<[EntityUID; 3]> {
        let groups = Arc::new(facts::groups(tool, action, mutates));
        if let Some(known) = self.0.get(&groups) {
            return Arc::clone(known);
        }
        self.0.insert(Arc::clone(&groups));
        groups
    }
}

impl Side {
    /// The action of this tool, as one that changes nothing, and as one that changes something.
    pub(crate) fn both(tool: &Tool, action: &ToolAction, groups: &mut Groups) -> [Self; 2] {
        let uid = facts::action(&facts::action_id(tool.name.as_str(), action.name.as_str()));
        let uid = Arc::new(uid);
        [false, true].map(|mutates| Self {
            uid: Arc::clone(&uid),
            groups: groups.of(tool, action, mutates),
            mutates,
        })
    }

    /// The action and what it is in.
    pub(crate) fn position(&self) -> Position<'_> {
        Position {
            entity: &self.uid,
            ancestors: &*self.groups,
        }
    }

    /// What is known of every ask for the action: only the action itself, and only `context.tool`.
    pub(crate) fn known(&self, tool: &Tool, action: &ToolAction) -> Asked {
        let facts = (Member::Tool.as_str().into(), self.tool_facts(tool, action));
        Asked {
            request: self.request(
                facts::agent(""),
                facts::resource(""),
                Context::Value(Arc::new([facts].into())),
            ),
            entities: Entities::new(),
        }
    }

    fn request(&self, principal: EntityUID, resource: EntityUID, context: Context) -> Request {
        let action = EntityUIDEntry::Known {
            euid: Arc::clone(&self.uid),
            loc: None,
        };
        let known = |uid| EntityUIDEntry::known(uid, None);
        Request::new_unchecked(known(principal), action, known(resource), Some(context))
    }

    /// The action in its groups.
    fn entity(&self) -> Entity {
        let parents = self.groups.iter().cloned().collect();
        Entity::new_with_attr_partial_value((*self.uid).clone(), [], HashSet::new(), parents, [])
    }

    fn tool_facts(&self, tool: &Tool, action: &ToolAction) -> Value {
        record([
            ("name", tool.name.as_str().into()),
            ("action", action.name.as_str().into()),
            ("risk", action.risk.as_str().into()),
            ("mutates", self.mutates.into()),
            ("canary", tool.canary.into()),
        ])
    }
}

/// Who has to be allowed what is asked.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Principal<'q> {
    /// The agent of the question.
    Agent,
    /// The user for whom it acts.
    User(UserFacts<'q>),
}

impl Principal<'_> {
    /// The type of its entity.
    pub(crate) fn kind(self) -> &'static EntityType {
        match self {
            Self::Agent => &TYPES.agent,
            Self::User(_) => &TYPES.user,
        }
    }

    fn uid(self, agent: &Agent) -> EntityUID {
        match self {
            Self::Agent => facts::agent(&agent.id.to_string()),
            Self::User(user) => facts::user(user.id),
        }
    }

    /// In how many teams it is.
    pub(crate) fn team_count(self, agent: &Agent) -> usize {
        match self {
            Self::Agent => usize::from(agent.team.is_some()),
            Self::User(user) => user.registered.map_or(0, |user| user.teams.len()),
        }
    }

    /// What it is in. A user whom nobody registered is in nothing.
    fn teams(self, agent: &Agent) -> Vec<EntityUID> {
        let of = |team: &Name| facts::team(team.as_str());
        match self {
            Self::Agent => agent.team.iter().map(of).collect(),
            Self::User(user) => {
                let teams = user.registered.map(|user| user.teams.iter().map(of));
                teams.into_iter().flatten().collect()
            }
        }
    }
}

/// The registered teams of the user of a question, with their tags: made once, where a policy looks at teams, whoever asks.
#[derive(Default)]
pub(crate) struct UserTeams(OnceCell<Vec<Arc<Entity>>>);

impl UserTeams {
    fn of(&self, user: Option<UserFacts<'_>>) -> &[Arc<Entity>] {
        self.0.get_or_init(|| {
            #[cfg(test)]
            TEAMS_MADE.set(TEAMS_MADE.get() + 1);
            let known = user.and_then(|user| user.registered.zip(user.teams)).into_iter();
            let teams = known.flat_map(|(user, teams)| user.teams.iter().filter_map(|name| teams.get(name)));
            teams.map(|user_team| team(user_team)).collect()
        })
    }
}

/// The caller's attributes that the tenant has declared, or what is wrong with them: made once, whoever asks.
#[derive(Default)]
pub(crate) struct CallerAttributes(OnceCell<Result<Value, Unanswerable>>);

impl CallerAttributes {
    /// Those in this text.
    pub(crate) fn of(&self, text: Option<&str>, declared: &Record) -> Result<Value, Unanswerable> {
        self.0.get_or_init(|| caller_attributes(text, declared)).clone()
    }
}

#[cfg(test)]
thread_local! {
    /// How often the teams of a user were made on this thread.
    pub(crate) static TEAMS_MADE: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How often the attributes of a caller were read on this thread.
    pub(crate) static ATTRIBUTES_READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Everything that a request is made from.
pub(crate) struct Facts<'q> {
    question: &'q Question<'q>,
    side: &'q Side,
    parameters: &'q Parameters<'q>,
    /// Those of the caller.
    attributes: Value,
    who: Principal<'q>,
    principal: EntityUID,
    /// What the principal is in: made where somebody looks for policies.
    teams: OnceCell<Vec<EntityUID>>,
    resource: EntityUID,
}

impl<'q> Facts<'q> {
    /// The facts of this question for this principal, where these are its parameters and the caller's attributes.
    pub(crate) fn new(
        (question, principal): (&'q Question<'q>, Principal<'q>),
        side: &'q Side,
        parameters: &'q Parameters<'q>,
        attributes: Value,
    ) -> Self {
        Self {
            attributes,
            who: principal,
            principal: principal.uid(question.agent),
            teams: OnceCell::new(),
            resource: facts::resource(question.resource.unwrap_or_default()),
            question,
            side,
            parameters,
        }
    }

    /// The policies in this index that are about the question, if these are the numbers of its action.
    pub(crate) fn find<'i>(&self, index: &'i Index, actions: &[u32]) -> Found<'i> {
        let principal = Position {
            entity: &self.principal,
            ancestors: self.teams(),
        };
        let resource = Position {
            entity: &self.resource,
            ancestors: &[],
        };
        index.find(actions, principal, resource)
    }

    /// What the principal is in.
    fn teams(&self) -> &[EntityUID] {
        self.teams.get_or_init(|| self.who.teams(self.question.agent))
    }

    /// The question for policies that look at nothing else than this, where these are the teams of its user.
    pub(crate) fn ask(&self, reads: ReadSet, user_teams: &UserTeams) -> Asked {
        let seen = Member::ALL
            .iter()
            .filter(|member| reads.intersects(ReadSet::member(**member)));
        let context = members(seen.filter_map(|member| Some((member.as_str(), self.value(*member)?))));
        Asked {
            request: self.side.request(
                self.principal.clone(),
                self.resource.clone(),
                Context::Value(Arc::new(context)),
            ),
            entities: self.entities(reads, user_teams),
        }
    }

    fn entities(&self, reads: ReadSet, user_teams: &UserTeams) -> Entities {
        let mut seen_user = ReadSet::USER.union(ReadSet::member(Member::User));
        if matches!(self.who, Principal::User(_)) {
            seen_user = seen_user.union(ReadSet::PRINCIPAL);
        }
        let entities = [
            reads
                .intersects(ReadSet::PRINCIPAL)
                .then(|| Arc::new(self.agent())),
            reads
                .intersects(ReadSet::ACTION)
                .then(|| Arc::new(self.side.entity())),
            reads.intersects(ReadSet::TEAM).then(|| self.team()).flatten(),
            reads.intersects(seen_user).then(|| self.user()).flatten(),
        ];
        let teams = reads
            .intersects(ReadSet::TEAM)
            .then(|| self.user_teams(user_teams));
        let teams = teams.into_iter().flatten();
        let added = Entities::new().add_entities(
            entities.into_iter().flatten().chain(teams),
            None::<&NoEntitiesSchema>,
            // Teams are in nothing, so parents are all the ancestors that there are.
            TCComputation::AssumeAlreadyComputed,
            Extensions::all_available(),
        );
        added.expect("the entities are of four types, and no team is among them twice")
    }

    fn agent(&self) -> Entity {
        let agent = self.question.agent;
        let (uid, teams) = match self.who {
            Principal::Agent => (self.principal.clone(), self.teams().to_vec()),
            Principal::User(_) => (Principal::Agent.uid(agent), Principal::Agent.teams(agent)),
        };
        let teams = teams.into_iter().collect();
        entity(uid, agent_facts(agent), teams, &agent.attributes)
    }

    fn team(&self) -> Option<Arc<Entity>> {
        self.question.team.map(team)
    }

    /// The registered teams of the user, but for the one that is the agent's.
    fn user_teams(&self, user_teams: &UserTeams) -> impl Iterator<Item = Arc<Entity>> {
        let own = self.question.team.map(|team| team.name.as_str());
        let is_other = move |team: &&Arc<Entity>| {
            let name: &str = team.uid().eid().as_ref();
            own != Some(name)
        };
        user_teams.of(self.question.user).iter().filter(is_other).cloned()
    }

    /// A user whom nobody registered is no entity: it is in no team and has no tags.
    fn user(&self) -> Option<Arc<Entity>> {
        let user = self.question.user?;
        let registered = user.registered?;
        let principal = Principal::User(user);
        Some(Arc::new(entity(
            principal.uid(self.question.agent),
            [],
            principal.teams(self.question.agent).into_iter().collect(),
            &registered.attributes,
        )))
    }

    /// The level of each declared parameter: what the caller says of it, or else that of the call; and no better than
    /// what it says of something that is no parameter, whose pointer may be a misspelt one.
    fn sources(&self) -> Value {
        let Question {
            trust: call, vouched, ..
        } = *self.question;
        let named = self.question.sources;
        let named = named.filter(|sources| !sources.is_empty() || vouched.is_some());
        let stray = named.and_then(|sources| sources.of_none(|name| self.parameters.may_have(name)));
        record(self.parameters.declared().map(|name| {
            let level = named.map_or(call.level, |sources| sources.level(name, call, vouched));
            (name, source(stray.map_or(level, |stray| level.worse_of(stray))))
        }))
    }

    /// The value of this member; `None` where the question has none.
    fn value(&self, member: Member) -> Option<Value> {
        let agent = self.question.agent;
        Some(match member {
            Member::Input => self.parameters.input(),
            Member::Parameters => self.parameters.names(),
            Member::Targets => self.parameters.targets(),
            Member::TargetStated => self.parameters.target_stated().into(),
            Member::Trust => trust(self.question.trust),
            Member::Tool => self.side.tool_facts(self.question.tool, self.question.action),
            Member::Agent => {
                let team = agent.team.iter().map(|team| ("team", team.as_str().into()));
                record(agent_facts(agent).chain(team))
            }
            Member::Environment => agent.environment.as_ref()?.as_str().into(),
            Member::User => facts::user(self.question.user?.id).into(),
            Member::Sensitive => self.question.contains_sensitive_data.into(),
            Member::Attributes => self.attributes.clone(),
            Member::Run => {
                let run = self.question.run?;
                record([("id", run.id.into()), ("worst", source(run.worst))])
            }
            Member::Usage => self
                .question
                .usage
                .map_or_else(|| usage(&Usage::default()), usage),
            Member::Sources => self.sources(),
            Member::Now => {
                let now = input::datetime(&self.question.now.to_string());
                now.expect("a timestamp is written as Cedar reads it")
            }
        })
    }
}

fn team(team: &Team) -> Arc<Entity> {
    let uid = facts::team(team.name.as_str());
    Arc::new(entity(uid, [], HashSet::new(), &team.attributes))
}

fn entity(
    uid: EntityUID,
    facts: impl IntoIterator<Item = (&'static str, Value)>,
    parents: HashSet<EntityUID>,
    attributes: &Attributes,
) -> Entity {
    let facts = facts.into_iter().map(|(name, value)| (name.into(), value.into()));
    let tags = attributes.tags();
    let tags = tags.map(|(name, tag)| (name.as_str().into(), PartialValue::Value(tag.into())));
    Entity::new_with_attr_partial_value(uid, facts, HashSet::new(), parents, tags)
}

fn agent_facts(agent: &Agent) -> impl Iterator<Item = (&'static str, Value)> {
    let optional = [("environment", &agent.environment), ("owner", &agent.owner)];
    let optional = optional
        .into_iter()
        .filter_map(|(key, name)| Some((key, name.as_ref()?.as_str().into())));
    let always = [
        ("name", agent.name.as_str().into()),
        ("risk_tier", agent.risk_tier.as_str().into()),
    ];
    always.into_iter().chain(optional)
}

thread_local! {
    /// `context.trust` for every claimed level, level that it counts as, and signature or none: made once, because most
    /// policies look at it. Each thread has its own, because evaluation counts references.
    static TRUST: Vec<Value> = all_trust();
}

fn all_trust() -> Vec<Value> {
    let mut values = Vec::new();
    for claimed in Trust::ALL {
        for level in Trust::ALL {
            for signed in [false, true] {
                values.push(record([
                    ("claimed", claimed.as_str().into()),
                    ("level", level.as_str().into()),
                    ("rank", level.rank().into()),
                    ("signed", signed.into()),
                ]));
            }
        }
    }
    values
}

fn trust(trust: EffectiveTrust) -> Value {
    let place = |wanted: Trust| Trust::ALL.iter().position(|level| *level == wanted);
    let (claimed, level) = (place(trust.claimed), place(trust.level));
    let (claimed, level) = claimed.zip(level).expect("ALL has every level");
    let place = (claimed * Trust::ALL.len() + level) * 2 + usize::from(trust.signed);
    TRUST.with(|values| values[place].clone())
}

/// The level of a parameter as policies see it.
fn source(level: Trust) -> Value {
    record([("level", level.as_str().into()), ("rank", level.rank().into())])
}

/// How much is used, as policies see it.
fn usage(usage: &Usage) -> Value {
    let long = |count: u64| Value::from(i64::try_from(count).unwrap_or(i64::MAX));
    let calls = usage.calls.iter().map(|(window, calls)| {
        let calls = record([("limit", long(calls.limit)), ("used", long(calls.used))]);
        (window.as_str(), calls)
    });
    let budget = usage.budget.as_ref().map(|budget| {
        let budget = record([
            ("allocated", budget.allocated.get().into()),
            ("remaining", budget.remaining.into()),
            ("spent", budget.spent.get().into()),
        ]);
        ("budget", budget)
    });
    let estimate = usage.estimate.as_ref().map(|estimate| {
        let estimate = record([
            ("amount", estimate.amount.get().into()),
            ("unit", estimate.unit.as_str().into()),
        ]);
        ("estimate", estimate)
    });
    record(
        [("calls", record(calls))]
            .into_iter()
            .chain(budget)
            .chain(estimate),
    )
}

/// The caller's attributes that the tenant has declared; others are not visible, and nothing is made of them.
fn caller_attributes(text: Option<&str>, declared: &Record) -> Result<Value, Unanswerable> {
    let Some(text) = text.filter(|_| !declared.is_empty()) else {
        return Ok(ast::Value::empty_record(None));
    };
    let mistyped = |name: &str, detail: &str| Unanswerable::MistypedAttribute {
        name: name.to_owned(),
        detail: detail.to_owned(),
    };
    #[cfg(test)]
    ATTRIBUTES_READ.set(ATTRIBUTES_READ.get() + 1);
    let Ok(given) = canon::members(text, |name| declared.contains_key(name)) else {
        return Err(mistyped("", "is not inside a JSON object"));
    };
    let mut pairs = Vec::new();
    for (name, member) in declared {
        if let Some(value) = given.get(name) {
            let detail = |mismatch: input::Mismatch| mistyped(name, element_detail(&member.shape, &mismatch));
            pairs.push((name.as_str(), input::typed(&member.shape, value).map_err(detail)?));
        }
    }
    Ok(record(pairs))
}

fn element_detail(shape: &Shape, mismatch: &input::Mismatch) -> &'static str {
    match shape {
        Shape::Set(_) => "is not an array of strings",
        _ => mismatch.detail,
    }
}
