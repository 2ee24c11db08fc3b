//! A question as a Cedar request: entities and context from interned ids and typed pairs, without JSON and without
//! checking against the schema, because both were made from the same registry.

use crate::facts;
use crate::input;
use crate::json_schema::{Record, Shape};
use crate::parameters::Parameters;
use crate::question::{Question, Unanswerable};
use crate::slice::{Slice, Slicer};
use crate::split::Known;
use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression};
use model::{Agent, Attributes, EffectiveTrust, Tool, ToolAction};
use serde_json::Value;
use std::sync::Arc;

/// Why a request cannot be refused.
const NO_SCHEMA: &str = "only a schema could refuse a request, and none is given";

type Pair = (String, RestrictedExpression);

macro_rules! members {
    ($($name:ident = $word:literal,)*) => {
        /// The members of the context. Each is made only if a policy that may decide looks at it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Member {
            $($name,)*
        }

        impl Member {
            /// Every member.
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)*];

            /// The name that policies know it by.
            pub(crate) const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }
        }
    };
}

members! {
    Input = "input",
    Parameters = "parameters",
    Targets = "targets",
    TargetStated = "target_stated",
    Trust = "trust",
    Tool = "tool",
    Agent = "agent",
    Environment = "environment",
    User = "user",
    Sensitive = "sensitive",
    Attributes = "attributes",
    Run = "run",
    Now = "now",
}

impl Member {
    /// The member with this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|member| member.as_str() == name)
    }

    /// Its place in a set of members.
    pub(crate) const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// What is the same for all asks for one action that count as changing something, or for all that do not.
pub(crate) struct Prepared {
    pub(crate) slice: Arc<Slice>,
    uid: EntityUid,
    /// Only the action, which is in its groups.
    entities: Entities,
    tool_facts: RestrictedExpression,
}

impl Prepared {
    /// The action of this tool, as one that changes something or does not.
    pub(crate) fn new(tool: &Tool, action: &ToolAction, mutates: bool, slicer: &mut Slicer<'_>) -> Self {
        let tool_facts = record(vec![
            ("name".into(), string(tool.name.as_str())),
            ("action".into(), string(action.name.as_str())),
            ("risk".into(), string(action.risk.as_str())),
            ("mutates".into(), boolean(mutates)),
            ("canary".into(), boolean(tool.canary)),
        ]);
        let uid = facts::action(&facts::action_id(tool.name.as_str(), action.name.as_str()));
        let known = [(Member::Tool.as_str().to_owned(), tool_facts.clone())];
        let known = Context::from_pairs(known).expect("strings and booleans evaluate to themselves");
        let nobody = (facts::agent(""), facts::resource(""));
        let request = Request::new(nobody.0, uid.clone(), nobody.1, known, None).expect(NO_SCHEMA);
        let entity = Entity::new_no_attrs(uid.clone(), facts::groups(tool, action, mutates).into());
        Self {
            slice: slicer.slice(&Known::new(tool, action, mutates, &request)),
            uid,
            entities: Entities::from_entities([entity], None)
                .expect("one entity has no twin and is in no cycle"),
            tool_facts,
        }
    }
}

/// The question, ready for Cedar.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
}

/// Everything that a request is made from.
pub(crate) struct Facts<'q> {
    question: &'q Question<'q>,
    prepared: &'q Prepared,
    parameters: &'q Parameters<'q>,
    attributes: RestrictedExpression,
}

impl<'q> Facts<'q> {
    /// The facts of this question, if the caller's attributes have the types that the tenant has declared.
    pub(crate) fn new(
        question: &'q Question<'q>,
        prepared: &'q Prepared,
        parameters: &'q Parameters<'q>,
        declared: &Record,
    ) -> Result<Self, Unanswerable> {
        Ok(Self {
            question,
            prepared,
            parameters,
            attributes: caller_attributes(question.attributes, declared)?,
        })
    }

    pub(crate) fn ask(&self) -> Asked {
        let principal = facts::agent(&self.question.agent.id.to_string());
        let resource = facts::resource(self.question.resource.unwrap_or_default());
        let entities = self.entities(&principal);
        let request = Request::new(
            principal,
            self.prepared.uid.clone(),
            resource,
            self.context(),
            None,
        );
        let request = request.expect(NO_SCHEMA);
        Asked { request, entities }
    }

    fn entities(&self, principal: &EntityUid) -> Entities {
        let agent = self.question.agent;
        let agent_entity = entity(
            principal.clone(),
            agent_pairs(agent),
            agent.team.iter().map(|team| facts::team(team.as_str())).collect(),
            &agent.attributes,
        );
        let team = self.question.team;
        let team = team.map(|team| {
            entity(
                facts::team(team.name.as_str()),
                Vec::new(),
                Vec::new(),
                &team.attributes,
            )
        });
        let user = self
            .question
            .user
            .and_then(|user| user.registered.map(|registered| (user.id, registered)));
        let user = user.map(|(id, registered)| {
            let teams = registered
                .teams
                .iter()
                .map(|team| facts::team(team.as_str()))
                .collect();
            entity(facts::user(id), Vec::new(), teams, &registered.attributes)
        });
        let more = [Some(agent_entity), team, user];
        let entities = self
            .prepared
            .entities
            .clone()
            .add_entities(more.into_iter().flatten(), None);
        entities.expect("the entities are of four types, so they differ, and teams have no parents")
    }

    fn context(&self) -> Context {
        let looked_at = Member::ALL
            .iter()
            .filter(|member| self.prepared.slice.looks_at(**member));
        let pairs = looked_at.filter_map(|member| Some((member.as_str().to_owned(), self.value(*member)?)));
        Context::from_pairs(pairs).expect("the names are distinct and every value was made from its type")
    }

    /// The value of this member; `None` where the question has none.
    fn value(&self, member: Member) -> Option<RestrictedExpression> {
        let agent = self.question.agent;
        Some(match member {
            Member::Input => self.parameters.input(),
            Member::Parameters => self.parameters.names(),
            Member::Targets => self.parameters.targets(),
            Member::TargetStated => boolean(self.parameters.target_stated()),
            Member::Trust => trust(self.question.trust),
            Member::Tool => self.prepared.tool_facts.clone(),
            Member::Agent => {
                let team = agent
                    .team
                    .iter()
                    .map(|team| ("team".to_owned(), string(team.as_str())));
                record(agent_pairs(agent).into_iter().chain(team).collect())
            }
            Member::Environment => string(agent.environment.as_ref()?.as_str()),
            Member::User => RestrictedExpression::new_entity_uid(facts::user(self.question.user?.id)),
            Member::Sensitive => boolean(self.question.contains_sensitive_data),
            Member::Attributes => self.attributes.clone(),
            Member::Run => record(vec![("id".into(), string(self.question.run?))]),
            Member::Now => RestrictedExpression::new_datetime(self.question.now.to_string()),
        })
    }
}

fn entity(uid: EntityUid, pairs: Vec<Pair>, parents: Vec<EntityUid>, attributes: &Attributes) -> Entity {
    let tags = attributes
        .tags()
        .map(|(name, tag)| (name.to_string(), RestrictedExpression::new_string(tag)));
    Entity::new_with_tags(uid, pairs, parents, tags).expect("strings evaluate to themselves")
}

fn agent_pairs(agent: &Agent) -> Vec<Pair> {
    let optional = [("environment", &agent.environment), ("owner", &agent.owner)];
    let mut pairs = vec![
        ("name".to_owned(), string(agent.name.as_str())),
        ("risk_tier".to_owned(), string(agent.risk_tier.as_str())),
    ];
    for (key, name) in optional {
        if let Some(name) = name {
            pairs.push((key.to_owned(), string(name.as_str())));
        }
    }
    pairs
}

fn trust(trust: EffectiveTrust) -> RestrictedExpression {
    record(vec![
        ("claimed".into(), string(trust.claimed.as_str())),
        ("level".into(), string(trust.level.as_str())),
        ("rank".into(), RestrictedExpression::new_long(trust.level.rank())),
        ("signed".into(), boolean(trust.signed)),
    ])
}

/// The caller's attributes that the tenant has declared; others are not visible.
fn caller_attributes(text: Option<&str>, declared: &Record) -> Result<RestrictedExpression, Unanswerable> {
    let Some(text) = text.filter(|_| !declared.is_empty()) else {
        return Ok(record(Vec::new()));
    };
    let mistyped = |name: &str, detail: &str| Unanswerable::MistypedAttribute {
        name: name.to_owned(),
        detail: detail.to_owned(),
    };
    let Ok(Value::Object(given)) = serde_json::from_str(text) else {
        return Err(mistyped("", "is not inside a JSON object"));
    };
    let mut pairs = Vec::new();
    for (name, member) in declared {
        if let Some(value) = given.get(name) {
            let detail = |mismatch: input::Mismatch| mistyped(name, element_detail(&member.shape, &mismatch));
            pairs.push((name.clone(), input::typed(&member.shape, value).map_err(detail)?));
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

fn string(text: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(text.to_owned())
}

fn boolean(truth: bool) -> RestrictedExpression {
    RestrictedExpression::new_bool(truth)
}

fn record(pairs: Vec<Pair>) -> RestrictedExpression {
    RestrictedExpression::new_record(pairs).expect("the names are distinct")
}
