//! From a solver's model to an ask.
//!
//! A model is a request and entities in Cedar's terms. What an ask derives from something else, such as `context.agent` and
//! `context.tool`, is not read, and what no policy looks at can be nonsense and is replaced: the ask is put to the real
//! policies afterwards, and if that mattered it does not say what it should.

use crate::ask::{Ask, plain_agent, plain_trust};
use cedar_policy_core::ast::{
    EntityUID, EntityUIDEntry, Expr, Literal, Name as CedarName, Request, ValueKind, Var,
};
use cedar_policy_core::entities::{Dereference, Entities};
use cedar_policy_core::evaluator::Evaluator;
use cedar_policy_core::extensions::Extensions;
use cedar_policy_symcc::Env;
use model::{Agent, Attributes, EffectiveTrust, Name, Sources, Team, Timestamp, Trust, Usage, User};
use policy::ActionSide;
use policy::asks::TARGET_NAMES;
use serde::de::DeserializeOwned;
use serde_json::{Map, Number, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// The ask that this model is; `None` if no ask can be like it.
pub(crate) fn ask(model: &Env, side: &ActionSide, now: Timestamp) -> Option<Ask> {
    let request: &Request = model.request.as_ref();
    let entities: &Entities = model.entities.as_ref();
    let context = plain(&request.context()?.clone().to_json_value().ok()?);
    let principal = Facts::of(entities, uid(request.principal())?);
    let agent = agent(&principal, now);
    let team = agent
        .team
        .as_ref()
        .map(|team| Facts::named(entities, "Team", team.as_str()));
    let user = context["user"]["id"].as_str();
    let user = user.map(|user| Facts::named(entities, "User", user).user());
    let known = |name: &Name| {
        let attributes = Facts::named(entities, "Team", name.as_str()).attributes();
        let team = Team {
            name: name.clone(),
            attributes,
            quotas: Vec::new(),
        };
        (name.clone(), Arc::new(team))
    };
    Some(Ask {
        side: side.clone(),
        team_attributes: team.map(|team| team.attributes()).unwrap_or_default(),
        user_teams: user.iter().flat_map(|user| &user.teams).map(known).collect(),
        user,
        agent,
        resource: id(uid(request.resource())?).to_owned(),
        parameters: parameters(&context),
        trust: trust(&context["trust"]),
        sensitive: context["sensitive"] == true,
        attributes: context["attributes"].as_object().cloned().unwrap_or_default(),
        run: context["run"]["id"].as_str().map(str::to_owned),
        run_worst: word(&context["run"]["worst"]["level"]).unwrap_or(Trust::TrustedInternalUnsigned),
        usage: usage(&context["usage"]),
        sources: sources(&context["sources"]),
        now: time(request, entities).unwrap_or(now),
    })
}

fn uid(entry: &EntityUIDEntry) -> Option<&EntityUID> {
    match entry {
        EntityUIDEntry::Known { euid, .. } => Some(&**euid),
        EntityUIDEntry::Unknown { .. } => None,
    }
}

fn id(uid: &EntityUID) -> &str {
    uid.eid().as_ref()
}

/// This word, if it is one.
fn word<T: DeserializeOwned>(value: &Value) -> Option<T> {
    T::deserialize(value).ok()
}

/// What a model says of an entity.
#[derive(Default)]
struct Facts {
    id: String,
    members: HashMap<String, Value>,
    tags: BTreeMap<String, Value>,
    teams: BTreeSet<Name>,
}

impl Facts {
    fn of(entities: &Entities, uid: &EntityUID) -> Self {
        let mut facts = Self {
            id: id(uid).to_owned(),
            ..Self::default()
        };
        let Dereference::Data(entity) = entities.entity(uid) else {
            return facts;
        };
        let text = |value: &_| match value {
            cedar_policy_core::ast::PartialValue::Value(value) => match value.value_kind() {
                ValueKind::Lit(Literal::String(text)) => json!(text.as_str()),
                _ => Value::Null,
            },
            cedar_policy_core::ast::PartialValue::Residual(_) => Value::Null,
        };
        facts.members = entity
            .attrs()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        facts.tags = entity
            .tags()
            .map(|(name, value)| (name.to_string(), text(value)))
            .collect();
        let teams = entity
            .ancestors()
            .filter(|uid| uid.entity_type().to_string() == "Team");
        facts.teams = teams.filter_map(|uid| Name::new(id(uid)).ok()).collect();
        facts
    }

    /// The facts of the entity with this id.
    fn named(entities: &Entities, kind: &str, wanted: &str) -> Self {
        let found = entities
            .iter()
            .map(cedar_policy_core::ast::Entity::uid)
            .find(|uid| uid.entity_type().to_string() == kind && id(uid) == wanted);
        found.map_or_else(
            || Self {
                id: wanted.to_owned(),
                ..Self::default()
            },
            |uid| Self::of(entities, uid),
        )
    }

    fn attributes(&self) -> Attributes {
        word(&json!(self.tags)).unwrap_or_default()
    }

    fn name(&self, member: &str) -> Option<Name> {
        word(self.members.get(member)?)
    }

    fn user(&self) -> User {
        let plain = || Name::new("user").expect("a plain word is a name");
        User {
            name: Name::new(self.id.as_str()).unwrap_or_else(|_| plain()),
            teams: self.teams.clone(),
            attributes: self.attributes(),
            roles: std::collections::BTreeSet::new(),
        }
    }
}

fn agent(facts: &Facts, now: Timestamp) -> Agent {
    let plain = plain_agent(now);
    Agent {
        id: facts.id.parse().unwrap_or(plain.id),
        name: facts.name("name").unwrap_or(plain.name.clone()),
        environment: facts.name("environment"),
        owner: facts.name("owner"),
        team: facts.teams.first().cloned(),
        risk_tier: facts
            .members
            .get("risk_tier")
            .and_then(word)
            .unwrap_or(plain.risk_tier),
        attributes: facts.attributes(),
        ..plain
    }
}

fn trust(trust: &Value) -> EffectiveTrust {
    let plain = plain_trust(Trust::TrustedInternalUnsigned);
    let level = word(&trust["level"]).unwrap_or(plain.level);
    EffectiveTrust {
        claimed: word(&trust["claimed"]).unwrap_or(level),
        level,
        signed: trust["signed"] == true,
    }
}

/// Where parameters came from, by pointer.
fn sources(sources: &Value) -> Sources {
    let members = sources.as_object().into_iter().flatten();
    let levels = members.filter_map(|(name, source)| {
        let pointer = format!("/{}", name.replace('~', "~0").replace('/', "~1"));
        Some((pointer, word(&source["level"])?))
    });
    Sources::new(levels.collect())
}

/// How much is used, as far as it can be like that.
fn usage(usage: &Value) -> Usage {
    let calls = usage["calls"].as_object().into_iter().flatten();
    let calls = calls.filter_map(|(window, calls)| Some((word(&json!(window))?, word(calls)?)));
    Usage {
        budget: word(&usage["budget"]),
        calls: calls.collect(),
        estimate: word(&usage["estimate"]),
    }
}

/// The JSON of a caller: without Cedar's marks on values that JSON has no type for.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(members) => match (members.get("__extn"), members.get("__entity")) {
            (Some(call), _) => number(call).map_or(Value::Null, Value::Number),
            (_, Some(entity)) => entity.clone(),
            _ => members
                .iter()
                .map(|(name, member)| (name.clone(), plain(member)))
                .collect(),
        },
        Value::Array(items) => items.iter().map(plain).collect(),
        other => other.clone(),
    }
}

/// A decimal as the number that a caller would send. Many large ones are none, and then it is a whole one close by.
fn number(call: &Value) -> Option<Number> {
    let text = call["arg"].as_str().filter(|_| call["fn"] == "decimal")?;
    let (whole, places) = text.split_once('.')?;
    let double: f64 = text.parse().ok()?;
    let is_exact = double.to_string() == text.trim_end_matches('0');
    if is_exact && !places.trim_end_matches('0').is_empty() {
        Number::from_f64(double)
    } else {
        whole.parse::<i64>().ok().map(Number::from)
    }
}

/// When it is asked.
fn time(request: &Request, entities: &Entities) -> Option<Timestamp> {
    let function = |name| CedarName::parse_unqualified_name(name).expect("the word is an identifier");
    let epoch = Expr::call_extension_fn(function("datetime"), vec![Expr::val("1970-01-01")]);
    let now = Expr::get_attr(Expr::var(Var::Context), "now".into());
    let since = Expr::call_extension_fn(function("durationSince"), vec![now, epoch]);
    let millis = Expr::call_extension_fn(function("toMilliseconds"), vec![since]);
    let evaluator = Evaluator::new(request.clone(), entities, Extensions::all_available());
    match evaluator.interpret(&millis, &HashMap::new()).ok()?.value_kind() {
        ValueKind::Lit(Literal::Long(millis)) => Some(Timestamp::from_millis(*millis)),
        _ => None,
    }
}

/// Parameters of which policies would see this.
fn parameters(context: &Value) -> Map<String, Value> {
    let texts = |member: &str| {
        let items = context[member].as_array().into_iter().flatten();
        items.filter_map(Value::as_str).collect::<BTreeSet<_>>()
    };
    let mut parameters = context["input"].as_object().cloned().unwrap_or_default();
    let mut names = texts("parameters");
    names.retain(|name| !parameters.contains_key(*name));
    let typed = TARGET_NAMES
        .iter()
        .filter_map(|name| parameters.get(*name)?.as_str());
    let typed: BTreeSet<_> = typed.map(str::to_owned).collect();
    let mut targets: Vec<_> = texts("targets").into_iter().collect();
    targets.retain(|target| !typed.contains(*target));
    for name in names {
        let value = match &targets[..] {
            _ if !TARGET_NAMES.contains(&name) => Value::Null,
            // Whether a target is stated depends on its being one text.
            [] => Value::Null,
            [only] => json!(only),
            several => json!(several),
        };
        parameters.insert(name.to_owned(), value);
    }
    parameters
}
