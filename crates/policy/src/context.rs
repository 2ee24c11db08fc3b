//! A question as a Cedar request: entities and context from interned ids and typed pairs, without JSON and without
//! checking against the schema, because both were made from the same registry.

use crate::facts;
use crate::input;
use crate::json_schema::{Record, Shape};
use crate::parameters::Parameters;
use crate::question::{Question, Unanswerable, UserFacts};
use cedar_policy::{Context, Entities, Entity, EntityUid, Request, RestrictedExpression};
use model::{Agent, Attributes, EffectiveTrust, Tool, ToolAction};
use serde_json::Value;

type Pair = (String, RestrictedExpression);

/// What is the same for all asks for one action that count as changing something, or for all that do not.
pub(crate) struct Prepared {
    uid: EntityUid,
    entity: Entity,
    facts: RestrictedExpression,
}

impl Prepared {
    /// The action of this tool, as one that changes something or does not.
    pub(crate) fn new(tool: &Tool, action: &ToolAction, mutates: bool) -> Self {
        let uid = facts::action(&facts::action_id(tool.name.as_str(), action.name.as_str()));
        let groups = [
            facts::effect_group(mutates).to_owned(),
            facts::risk_group(action.risk),
            facts::tool_group(tool.name.as_str()),
        ];
        let parents = groups.iter().map(|group| facts::action(group)).collect();
        Self {
            entity: Entity::new_no_attrs(uid.clone(), parents),
            uid,
            facts: record(vec![
                ("name".into(), string(tool.name.as_str())),
                ("action".into(), string(action.name.as_str())),
                ("risk".into(), string(action.risk.as_str())),
                ("mutates".into(), boolean(mutates)),
                ("canary".into(), boolean(tool.canary)),
            ]),
        }
    }
}

/// The question, ready for Cedar.
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) entities: Entities,
}

/// This question about this action.
pub(crate) fn ask(
    question: &Question<'_>,
    prepared: &Prepared,
    parameters: &Parameters<'_>,
    attributes: &Record,
) -> Result<Asked, Unanswerable> {
    let principal = facts::agent(&question.agent.id.to_string());
    let resource = facts::resource(question.resource.unwrap_or_default());
    let entities = entities(question, prepared, &principal);
    let context = context(question, prepared, parameters, attributes)?;
    let request = Request::new(principal, prepared.uid.clone(), resource, context, None)
        .expect("only a schema could refuse a request, and none is given");
    Ok(Asked { request, entities })
}

fn entities(question: &Question<'_>, prepared: &Prepared, principal: &EntityUid) -> Entities {
    let agent = question.agent;
    let agent_entity = entity(
        principal.clone(),
        agent_pairs(agent),
        agent.team.iter().map(|team| facts::team(team.as_str())).collect(),
        &agent.attributes,
    );
    let team = question.team.map(|team| {
        entity(
            facts::team(team.name.as_str()),
            Vec::new(),
            Vec::new(),
            &team.attributes,
        )
    });
    let user = question
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
    let all = [Some(agent_entity), team, user, Some(prepared.entity.clone())];
    Entities::from_entities(all.into_iter().flatten(), None)
        .expect("the entities are of four types, so they differ, and teams have no parents")
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

fn context(
    question: &Question<'_>,
    prepared: &Prepared,
    parameters: &Parameters<'_>,
    attributes: &Record,
) -> Result<Context, Unanswerable> {
    let agent = question.agent;
    let mut agent_facts = agent_pairs(agent);
    agent_facts.extend(
        agent
            .team
            .iter()
            .map(|team| ("team".to_owned(), string(team.as_str()))),
    );
    let mut pairs: Vec<Pair> = vec![
        ("input".into(), parameters.input()),
        ("parameters".into(), parameters.names()),
        ("targets".into(), parameters.targets()),
        ("target_stated".into(), boolean(parameters.target_stated())),
        ("trust".into(), trust(question.trust)),
        ("tool".into(), prepared.facts.clone()),
        ("agent".into(), record(agent_facts)),
        ("sensitive".into(), boolean(question.contains_sensitive_data)),
        (
            "attributes".into(),
            caller_attributes(question.attributes, attributes)?,
        ),
        (
            "now".into(),
            RestrictedExpression::new_datetime(question.now.to_string()),
        ),
    ];
    if let Some(environment) = &agent.environment {
        pairs.push(("environment".into(), string(environment.as_str())));
    }
    if let Some(UserFacts { id, .. }) = question.user {
        pairs.push((
            "user".into(),
            RestrictedExpression::new_entity_uid(facts::user(id)),
        ));
    }
    if let Some(run) = question.run {
        pairs.push(("run".into(), record(vec![("id".into(), string(run))])));
    }
    Ok(Context::from_pairs(pairs).expect("the names are distinct and every value was made from its type"))
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
