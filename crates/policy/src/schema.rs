//! The Cedar schema of a registry: what policies may speak of, so that a misspelt word is an error when it is written.
//!
//! It is built as JSON, where every name is a string: no name that a tenant gives is ever glued into Cedar text. An
//! action with two thousand types in its parameters takes a megabyte and more as a tree, so each is text before the next
//! one is built.

use crate::compile::Registry;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::facts::{self, AGENT, RESOURCE, TEAM, USER};
use crate::json_schema::{Member, Record, Shape, record_of};
use crate::parameters;
use cedar_policy::{Schema, SchemaFragment};
use model::{AttributeType, Risk, Tool, ToolAction, Window};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The context of actions without parameters that policies see. Most have the same one, and in a compiled schema they
/// share it.
const PLAIN_CONTEXT: &str = "Context";
/// How many bytes an action, or the group of a tool, takes in a compiled schema beside its context, about: it stands
/// among the actions, in its groups, as an entity, and in an environment for agents and one for users.
const ACTION_BYTES: usize = 6 << 10;
/// How many bytes each value of the schema's JSON takes once compiled, about. A context that no other action shares has
/// some seventy, and with it ten thousand actions were measured to take 120 MB.
const VALUE_BYTES: usize = 80;

/// How many types the parameters of all actions of a registry may come to, as `types` counts them: ten thousand actions
/// with fifty parameters each. To make a schema of so many takes a core for some seconds, and much memory meanwhile.
/// References multiply them, so no text's length is a bound.
pub(crate) const TYPES_MAX: usize = 500_000;

/// A schema, for people and editors that write policies.
#[derive(Debug, Clone, Serialize)]
pub struct SchemaTexts {
    /// In Cedar's own syntax.
    pub cedar: String,
    /// In Cedar's JSON form.
    pub json: Box<RawValue>,
}

impl SchemaTexts {
    /// The schema of this registry. One that has too many types is not begun, whether it is in force or not. For
    /// whoever lets others come in between, or does not need it any more before the end: `goes_on` is asked on this
    /// thread, for each action and between what is done for either form.
    pub fn of(registry: Registry<'_>, goes_on: &dyn Fn() -> bool) -> Result<Self, SchemaError> {
        if has_too_many_types(registry) {
            return Err(SchemaError::TooManyTypes);
        }
        let check = || goes_on().then_some(()).ok_or(SchemaError::BrokenOff);
        check()?;
        let Written { json, .. } = written(registry, check)?;
        check()?;
        let fragment = SchemaFragment::from_json_str(json.get());
        let fragment = fragment.map_err(|error| SchemaError::Wrong(wrong(&error)))?;
        check()?;
        let cedar = fragment.to_cedarschema();
        let cedar = cedar.map_err(|error| SchemaError::Wrong(wrong(&error)))?;
        Ok(Self { cedar, json })
    }
}

/// Why a schema is not written.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// It would have too many types.
    #[error(
        "the parameters of all actions come to more than {} types, and no schema of so many is written; list fewer properties, refer less often to what has many, or delete tools that are not needed any more",
        TYPES_MAX
    )]
    TooManyTypes,
    /// Nobody waits for it any more.
    #[error("it was not written to its end")]
    BrokenOff,
    /// The tools make none.
    #[error("{0}")]
    Wrong(Diagnostic),
}

/// The schema of a registry in Cedar's JSON form.
struct Written {
    json: Box<RawValue>,
    /// How many values it has, as `values` counts them.
    values: usize,
}

/// All that a schema declares.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Declared {
    common_types: Box<RawValue>,
    entity_types: Box<RawValue>,
    actions: BTreeMap<String, Box<RawValue>>,
}

/// The schema that policies for this registry are validated against.
pub fn compile(registry: Registry<'_>) -> Result<Schema, Diagnostics> {
    weighed(registry).map(|(schema, _)| schema)
}

/// The same, with how many bytes it takes, about.
pub(crate) fn weighed(registry: Registry<'_>) -> Result<(Schema, usize), Diagnostics> {
    let Written { json, values } = written(registry, || Ok::<_, Diagnostics>(()))?;
    let schema = Schema::from_json_str(json.get()).map_err(|error| wrong(&error))?;
    Ok((schema, weight(registry, values)))
}

/// How many bytes the schema of this registry, which has so many values as JSON, takes once compiled.
fn weight(registry: Registry<'_>, values: usize) -> usize {
    let actions = registry.tools.values().map(|tool| 1 + tool.actions.len());
    actions.sum::<usize>() * ACTION_BYTES + values * VALUE_BYTES
}

/// How many values this one is, with those within it, where a long name counts as several.
fn values(json: &Value) -> usize {
    let within: usize = match json {
        Value::Array(items) => items.iter().map(values).sum(),
        Value::Object(members) => {
            let each = members.iter();
            let each = each.map(|(name, member)| name.len() / VALUE_BYTES + values(member));
            each.sum()
        }
        _ => 0,
    };
    1 + within
}

/// How many types the context of this action has of its own. Nothing is made for Cedar to know it.
pub(crate) fn types(action: &ToolAction) -> usize {
    let input = input(action);
    types_of(&input, &parameters_of(action, &input))
}

/// How many types the context of actions has of its own that declare these parameters, of which policies see these: one
/// for each of them, with the level of its source, and one for each type within it. A long name counts as several.
pub(crate) fn types_of(input: &Record, declared: &BTreeSet<String>) -> usize {
    let unseen = declared.iter().filter(|name| !input.contains_key(*name));
    types_in(input) + unseen.map(|name| types_of_name(name)).sum::<usize>()
}

fn types_in(members: &Record) -> usize {
    let each = members.iter();
    let each = each.map(|(name, member)| types_of_name(name) + types_within(&member.shape));
    each.sum()
}

fn types_within(shape: &Shape) -> usize {
    match shape {
        Shape::Record(members) => types_in(members),
        Shape::Set(items) => 1 + types_within(items),
        Shape::String | Shape::Long | Shape::Bool | Shape::Decimal => 0,
    }
}

/// How many types a member of this name counts as.
const fn types_of_name(name: &str) -> usize {
    1 + name.len() / VALUE_BYTES
}

/// Whether the parameters of all actions come to more types than they may. Once they do, no more are counted.
fn has_too_many_types(registry: Registry<'_>) -> bool {
    let mut actions = registry.tools.values().flat_map(|tool| tool.actions.values());
    let (mut count, mut types_by_digest) = (0, HashMap::new());
    actions.any(|action| {
        let types_of_one = types_by_digest.entry(parameters::digest(action));
        count += *types_of_one.or_insert_with(|| types(action));
        count > TYPES_MAX
    })
}

/// What this registry declares, written a part at a time, as long as this check before each action lets it go on.
fn written<E>(registry: Registry<'_>, check: impl Fn() -> Result<(), E>) -> Result<Written, E> {
    let mut values = 0;
    let mut part = |json: &Value| {
        values += self::values(json);
        text(json)
    };
    let mut declared = Declared {
        common_types: part(&common_types(registry)),
        entity_types: part(&entity_types()),
        actions: BTreeMap::new(),
    };
    for (id, declaration) in actions(registry) {
        check()?;
        declared.actions.insert(id, part(&declaration));
    }
    let json = text(&BTreeMap::from([("", declared)]));
    Ok(Written { json, values })
}

fn text(json: &impl Serialize) -> Box<RawValue> {
    to_raw_value(json).expect("a schema is written as JSON")
}

fn wrong(error: &dyn std::fmt::Display) -> Diagnostic {
    Diagnostic::error(format!("the registry's tools do not make a schema: {error}"))
}

/// The members of `context.attributes` that this registry declares.
pub(crate) fn attributes(registry: Registry<'_>) -> Record {
    let declared = registry.attributes.iter();
    declared
        .map(|(name, kind)| {
            let shape = match kind {
                AttributeType::String => Shape::String,
                AttributeType::Long => Shape::Long,
                AttributeType::Boolean => Shape::Bool,
                AttributeType::Decimal => Shape::Decimal,
                AttributeType::Strings => Shape::Set(Box::new(Shape::String)),
            };
            (
                name.to_string(),
                Member {
                    shape,
                    required: false,
                },
            )
        })
        .collect()
}

/// The members of `context.input` of this action.
pub(crate) fn input(action: &ToolAction) -> Record {
    action.input_schema.as_deref().map(record_of).unwrap_or_default()
}

/// The names of the parameters that this action declares, whether policies can see their values or not.
pub(crate) fn declared_parameters(action: &ToolAction) -> BTreeSet<String> {
    parameters_of(action, &input(action))
}

/// The names of the parameters that this action declares, of which policies see these.
pub(crate) fn parameters_of(action: &ToolAction, input: &Record) -> BTreeSet<String> {
    let listed = action.input_schema.as_deref().map(|schema| &schema["properties"]);
    let listed = listed.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    listed.chain(input.keys()).cloned().collect()
}

fn entity_types() -> Value {
    let tags = json!({"type": "String"});
    json!({
        AGENT: {
            "memberOfTypes": [TEAM],
            "shape": record([
                ("name", string()), ("environment", optional(string())), ("owner", optional(string())),
                ("risk_tier", string()),
            ]),
            "tags": tags,
        },
        TEAM: {"tags": tags},
        USER: {"memberOfTypes": [TEAM], "tags": tags},
        RESOURCE: {},
    })
}

fn common_types(registry: Registry<'_>) -> Value {
    json!({
        "AgentFacts": record([
            ("name", string()), ("environment", optional(string())), ("owner", optional(string())),
            ("team", optional(string())), ("risk_tier", string()),
        ]),
        "BudgetUsage": record([
            ("allocated", long()), ("remaining", long()), ("spent", long()),
        ]),
        "Calls": record(Window::ALL.map(|window| (window.as_str(), optional(named("CallsUsage"))))),
        "CallsUsage": record([("limit", long()), ("used", long())]),
        PLAIN_CONTEXT: context(&Record::new(), &BTreeSet::new()),
        "Estimate": record([("amount", long()), ("unit", string())]),
        "Attributes": shape(&Shape::Record(attributes(registry))),
        "Run": record([("id", string()), ("worst", named("Source"))]),
        "Source": record([("level", string()), ("rank", long())]),
        "ToolFacts": record([
            ("name", string()), ("action", string()), ("risk", string()), ("mutates", boolean()), ("canary", boolean()),
        ]),
        "TrustFacts": record([
            ("claimed", string()), ("level", string()), ("rank", long()), ("signed", boolean()),
        ]),
        "Usage": record([
            ("budget", optional(named("BudgetUsage"))), ("calls", named("Calls")),
            ("estimate", optional(named("Estimate"))),
        ]),
    })
}

/// The actions of this registry and the groups that they are in, each made when it is wanted. A schema that several
/// actions have is read once: to follow its references may take long, also where they lead to nothing.
fn actions(registry: Registry<'_>) -> impl Iterator<Item = (String, Value)> {
    // Groups are declared also where nothing is in them, so that a policy about them is valid in any registry.
    let groups = [facts::READ.to_owned(), facts::MUTATE.to_owned()].into_iter();
    let groups = groups.chain(Risk::ALL.into_iter().map(facts::risk_group));
    let of_tools = registry.tools.keys();
    let groups = groups.chain(of_tools.map(|name| facts::tool_group(name.as_str())));
    let actions = registry.tools.values().flat_map(|tool| {
        let actions = tool.actions.values();
        actions.map(move |action| (tool, action))
    });
    let mut seen_by_digest = HashMap::new();
    let actions = actions.map(move |(tool, action)| {
        let seen = seen_by_digest.entry(parameters::digest(action));
        let (input, declared) = seen.or_insert_with(|| {
            let input = input(action);
            let declared = parameters_of(action, &input);
            (input, declared)
        });
        let id = facts::action_id(tool.name.as_str(), action.name.as_str());
        (id, declaration(tool, action, input, declared))
    });
    groups.map(|group| (group, json!({}))).chain(actions)
}

/// What is declared of this action, of whose parameters policies see these, and which declares those.
fn declaration(tool: &Tool, action: &ToolAction, input: &Record, declared: &BTreeSet<String>) -> Value {
    let groups = [
        facts::effect_group(action.mutates_state).to_owned(),
        facts::risk_group(action.risk),
        facts::tool_group(tool.name.as_str()),
    ];
    let context = if input.is_empty() && declared.is_empty() {
        named(PLAIN_CONTEXT)
    } else {
        context(input, declared)
    };
    let applies_to = object([
        ("principalTypes", json!([AGENT, USER])),
        ("resourceTypes", json!([RESOURCE])),
        ("context", context),
    ]);
    object([
        ("memberOf", json!(groups.map(|group| json!({"id": group})))),
        ("appliesTo", applies_to),
    ])
}

/// The context of actions with this input, that declare these parameters.
fn context(input: &Record, declared: &BTreeSet<String>) -> Value {
    record([
        ("input", of_record(input)),
        ("parameters", set(string())),
        ("targets", set(string())),
        ("target_stated", boolean()),
        ("trust", named("TrustFacts")),
        ("tool", named("ToolFacts")),
        ("agent", named("AgentFacts")),
        ("environment", optional(string())),
        ("user", optional(json!({"type": "Entity", "name": USER}))),
        ("sensitive", boolean()),
        ("attributes", named("Attributes")),
        ("run", optional(named("Run"))),
        ("usage", named("Usage")),
        ("sources", sources(declared)),
        ("now", json!({"type": "Extension", "name": "datetime"})),
    ])
}

/// `context.sources`: a level for each parameter that an action declares.
fn sources(declared: &BTreeSet<String>) -> Value {
    let members = declared.iter();
    of_members(members.map(|name| (name.clone(), named("Source"))))
}

fn shape(of: &Shape) -> Value {
    match of {
        Shape::String => string(),
        Shape::Long => long(),
        Shape::Bool => boolean(),
        Shape::Decimal => json!({"type": "Extension", "name": "decimal"}),
        Shape::Set(items) => set(shape(items)),
        Shape::Record(members) => of_record(members),
    }
}

fn of_record(members: &Record) -> Value {
    of_members(members.iter().map(|(name, member)| {
        let of = shape(&member.shape);
        (name.clone(), if member.required { of } else { optional(of) })
    }))
}

fn record<const N: usize>(members: [(&str, Value); N]) -> Value {
    of_members(members.into_iter().map(|(name, of)| (name.to_owned(), of)))
}

/// The type of objects with these members.
fn of_members(members: impl Iterator<Item = (String, Value)>) -> Value {
    let members = members.collect();
    object([
        ("type", Value::from("Record")),
        ("attributes", Value::Object(members)),
    ])
}

/// An object with these members, which `json!` would copy.
fn object<const N: usize>(members: [(&str, Value); N]) -> Value {
    let members = members
        .into_iter()
        .map(|(name, member)| (name.to_owned(), member));
    Value::Object(members.collect())
}

fn optional(mut of: Value) -> Value {
    of["required"] = Value::Bool(false);
    of
}

fn string() -> Value {
    json!({"type": "String"})
}

fn long() -> Value {
    json!({"type": "Long"})
}

fn boolean() -> Value {
    json!({"type": "Boolean"})
}

fn set(items: Value) -> Value {
    object([("type", Value::from("Set")), ("element", items)])
}

fn named(common: &str) -> Value {
    json!({"type": "EntityOrCommon", "name": common})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_schema::SCHEMAS_READ;
    use crate::world::{action, name, tool};
    use std::cell::Cell;
    use std::convert::Infallible;
    use std::sync::Arc;

    /// What is made of a registry with these tools.
    fn of<R>(tools: impl IntoIterator<Item = Tool>, make: impl FnOnce(Registry<'_>) -> R) -> R {
        let tools = tools.into_iter().map(|tool| (tool.name.clone(), Arc::new(tool)));
        make(Registry {
            tools: &tools.collect(),
            attributes: &BTreeMap::new(),
        })
    }

    /// What this registry declares, written to its end.
    fn all_written(registry: Registry<'_>) -> Written {
        written(registry, || Ok::<_, Infallible>(())).unwrap()
    }

    #[test]
    fn actions_without_parameters_share_one_context_that_is_the_one_of_others_without_theirs() {
        let to = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let actions = [
            action("read", false, None),
            action("list", false, Some(json!({"type": "object"}))),
            action("send", true, Some(to)),
        ];
        let text = of([tool("mail", actions)], |registry| all_written(registry).json);
        let json: Value = serde_json::from_str(text.get()).unwrap();
        let context = |name: &str| &json[""]["actions"][name]["appliesTo"]["context"];
        assert_eq!(*context("mail/read"), named(PLAIN_CONTEXT));
        assert_eq!(*context("mail/list"), named(PLAIN_CONTEXT));
        let mut own = context("mail/send").clone();
        for members in ["input", "sources"] {
            let members = own["attributes"][members]["attributes"].as_object_mut().unwrap();
            assert!(members.remove("to").is_some() && members.is_empty());
        }
        assert_eq!(json[""]["commonTypes"][PLAIN_CONTEXT], own);
    }

    #[test]
    fn a_schema_that_several_actions_have_is_read_once() {
        let to = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let actions = ["send", "forward"].map(|name| action(name, true, Some(to.clone())));
        of([tool("mail", actions)], |registry| {
            let before = SCHEMAS_READ.get();
            all_written(registry);
            assert_eq!(SCHEMAS_READ.get() - before, 1);
            assert!(!has_too_many_types(registry));
            assert_eq!(SCHEMAS_READ.get() - before, 2);
        });
    }

    #[test]
    fn a_schema_weighs_what_its_actions_take_and_more_where_they_share_no_context() {
        let weigh = |count: usize, schema: Option<Value>| {
            let actions = (0..count).map(|number| action(&format!("a{number}"), false, schema.clone()));
            of([tool("t", actions)], |registry| weighed(registry).unwrap().1)
        };
        let [none, plain] = [weigh(0, None), weigh(100, None)];
        let each = (plain - none) / 100;
        assert!((ACTION_BYTES..2 * ACTION_BYTES).contains(&each), "{each}");
        let to = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let own = (weigh(100, Some(to)) - none) / 100;
        assert!(own > each + 40 * VALUE_BYTES, "{own} and {each}");
        // The name of a parameter stands there twice: the level of its source has it as well.
        let with_name = |bytes: usize| {
            let properties = Map::from_iter([("n".repeat(bytes), json!({"type": "string"}))]);
            weigh(1, Some(json!({"properties": properties})))
        };
        assert_eq!(with_name(8_000) - with_name(2), 2 * 8_000);
    }

    /// How many types an action with this schema has.
    fn types_with(schema: Value) -> usize {
        types(&action("a", false, Some(schema)))
    }

    #[test]
    fn each_parameter_counts_whether_policies_see_it_or_not_and_so_does_each_type_within_one() {
        assert_eq!(types(&action("a", false, None)), 0);
        let text = json!({"type": "string"});
        assert_eq!(types_with(json!({"properties": {"a": text, "b": {}}})), 2);
        let list = json!({"type": "array", "items": {"type": "array", "items": text}});
        assert_eq!(types_with(json!({"properties": {"a": list}})), 3);
        let object = json!({"type": "object", "properties": {"b": text, "c": text}});
        assert_eq!(types_with(json!({"properties": {"a": object}})), 3);
        // What is referred to is written out for each reference.
        let reference = json!({"$ref": "#/$defs/a"});
        let properties = json!({"a": reference, "b": reference});
        let referring = json!({"properties": properties, "$defs": {"a": object}});
        assert_eq!(types_with(referring), 6);
        let long = Map::from_iter([("n".repeat(10 * VALUE_BYTES), text)]);
        assert_eq!(types_with(json!({"properties": long})), 11);
    }

    #[test]
    fn a_schema_with_too_many_types_is_not_written() {
        let count = 1_000;
        let names = (0..count).map(|number| (format!("p{number}"), json!({})));
        let properties = names.collect::<Map<_, _>>();
        let one = || action("a", false, Some(json!({"properties": properties})));
        let shared = one();
        let actions = (0..=TYPES_MAX / count).map(|number| ToolAction {
            name: name(&format!("a{number}")),
            ..shared.clone()
        });
        let refused = of([tool("t", actions)], |registry| {
            SchemaTexts::of(registry, &|| true)
        });
        assert!(matches!(refused, Err(SchemaError::TooManyTypes)));
        let within = of([tool("t", [one()])], |registry| {
            SchemaTexts::of(registry, &|| true)
        });
        assert!(within.unwrap().cedar.contains("p999"));
    }

    #[test]
    fn a_schema_that_nobody_waits_for_is_not_written_to_its_end() {
        let written_after = |actions: usize, asked_max: usize| {
            let asked = Cell::new(0);
            let goes_on = || {
                asked.set(asked.get() + 1);
                asked.get() <= asked_max
            };
            let actions = (0..actions).map(|number| action(&format!("a{number}"), false, None));
            let texts = of([tool("t", actions)], |registry| {
                SchemaTexts::of(registry, &goes_on)
            });
            (texts, asked.get())
        };
        let [(plain, asked), (longer, more)] = [0, 5].map(|actions| written_after(actions, usize::MAX));
        assert!(plain.is_ok() && longer.is_ok());
        assert_eq!(more, asked + 5, "it is asked for each action");
        for asked_max in 0..more {
            let (refused, _) = written_after(5, asked_max);
            assert!(matches!(refused, Err(SchemaError::BrokenOff)), "{asked_max}");
        }
    }
}
