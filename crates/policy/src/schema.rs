//! The Cedar schema of a registry: what policies may speak of, so that a misspelt word is an error when it is written.
//!
//! It is built as JSON, where every name is a string: no name that a tenant gives is ever glued into Cedar text.

use crate::compile::Registry;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::facts::{self, AGENT, RESOURCE, TEAM, USER};
use crate::json_schema::{Member, Record, Shape, record_of};
use cedar_policy::{Schema, SchemaFragment};
use model::{AttributeType, Risk, Tool, ToolAction, Window};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The context of actions without parameters that policies see. Most have the same one, and in a compiled schema they
/// share it.
const PLAIN_CONTEXT: &str = "Context";
/// How many bytes an action, or the group of a tool, takes in a compiled schema beside its context, about: it stands
/// among the actions, in its groups, as an entity, and in an environment for agents and one for users.
const ACTION_BYTES: usize = 6 << 10;
/// How many bytes each value of the schema's JSON takes once compiled, about. A context that no other action shares has
/// some seventy, and with it ten thousand actions were measured to take 120 MB.
const VALUE_BYTES: usize = 80;

/// A schema, for people and editors that write policies.
#[derive(Debug, Clone, PartialEq)]
pub struct SchemaTexts {
    /// In Cedar's own syntax.
    pub cedar: String,
    /// In Cedar's JSON form.
    pub json: Value,
}

impl SchemaTexts {
    /// The schema of this registry.
    pub fn of(registry: Registry<'_>) -> Result<Self, Diagnostics> {
        let json = json(registry);
        let cedar = fragment(json.clone())?.to_cedarschema();
        let cedar = cedar.map_err(|error| wrong(&error))?;
        Ok(Self { cedar, json })
    }
}

/// The schema that policies for this registry are validated against.
pub fn compile(registry: Registry<'_>) -> Result<Schema, Diagnostics> {
    weighed(registry).map(|(schema, _)| schema)
}

/// The same, with how many bytes it takes, about.
pub(crate) fn weighed(registry: Registry<'_>) -> Result<(Schema, usize), Diagnostics> {
    let json = json(registry);
    let weight = weight(registry, &json);
    let schema = Schema::from_schema_fragments([fragment(json)?]);
    let schema = schema.map_err(|error| wrong(&error))?;
    Ok((schema, weight))
}

/// How many bytes the schema of this registry, which is this as JSON, takes once compiled.
fn weight(registry: Registry<'_>, json: &Value) -> usize {
    let actions = registry.tools.values().map(|tool| 1 + tool.actions.len());
    actions.sum::<usize>() * ACTION_BYTES + values(json) * VALUE_BYTES
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

fn json(registry: Registry<'_>) -> Value {
    json!({"": {
        "commonTypes": common_types(registry),
        "entityTypes": entity_types(),
        "actions": actions(registry),
    }})
}

fn fragment(json: Value) -> Result<SchemaFragment, Diagnostic> {
    SchemaFragment::from_json_value(json).map_err(|error| wrong(&error))
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
    let listed = action.input_schema.as_deref().map(|schema| &schema["properties"]);
    let listed = listed.and_then(Value::as_object).into_iter().flat_map(Map::keys);
    listed.cloned().chain(input(action).into_keys()).collect()
}

fn entity_types() -> Value {
    let tags = json!({"type": "String"});
    json!({
        AGENT: {
            "memberOfTypes": [TEAM],
            "shape": record(&[
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
        "AgentFacts": record(&[
            ("name", string()), ("environment", optional(string())), ("owner", optional(string())),
            ("team", optional(string())), ("risk_tier", string()),
        ]),
        "BudgetUsage": record(&[
            ("allocated", long()), ("remaining", long()), ("spent", long()),
        ]),
        "Calls": record(&Window::ALL.map(|window| (window.as_str(), optional(named("CallsUsage"))))),
        "CallsUsage": record(&[("limit", long()), ("used", long())]),
        PLAIN_CONTEXT: context(Record::new(), BTreeSet::new()),
        "Estimate": record(&[("amount", long()), ("unit", string())]),
        "Attributes": shape(&Shape::Record(attributes(registry))),
        "Run": record(&[("id", string()), ("worst", named("Source"))]),
        "Source": record(&[("level", string()), ("rank", long())]),
        "ToolFacts": record(&[
            ("name", string()), ("action", string()), ("risk", string()), ("mutates", boolean()), ("canary", boolean()),
        ]),
        "TrustFacts": record(&[
            ("claimed", string()), ("level", string()), ("rank", long()), ("signed", boolean()),
        ]),
        "Usage": record(&[
            ("budget", optional(named("BudgetUsage"))), ("calls", named("Calls")),
            ("estimate", optional(named("Estimate"))),
        ]),
    })
}

fn actions(registry: Registry<'_>) -> Value {
    let mut actions = Map::new();
    // Groups are declared also where nothing is in them, so that a policy about them is valid in any registry.
    for group in [facts::READ.to_owned(), facts::MUTATE.to_owned()] {
        actions.insert(group, json!({}));
    }
    for risk in Risk::ALL {
        actions.insert(facts::risk_group(risk), json!({}));
    }
    for (name, tool) in registry.tools {
        actions.insert(facts::tool_group(name.as_str()), json!({}));
        for action in tool.actions.values() {
            actions.insert(
                facts::action_id(name.as_str(), action.name.as_str()),
                declaration(tool, action),
            );
        }
    }
    Value::Object(actions)
}

fn declaration(tool: &Tool, action: &ToolAction) -> Value {
    let groups = [
        facts::effect_group(action.mutates_state).to_owned(),
        facts::risk_group(action.risk),
        facts::tool_group(tool.name.as_str()),
    ];
    let (input, declared) = (input(action), declared_parameters(action));
    let context = if input.is_empty() && declared.is_empty() {
        named(PLAIN_CONTEXT)
    } else {
        context(input, declared)
    };
    json!({
        "memberOf": groups.map(|group| json!({"id": group})),
        "appliesTo": {
            "principalTypes": [AGENT, USER],
            "resourceTypes": [RESOURCE],
            "context": context,
        },
    })
}

/// The context of actions with this input, that declare these parameters.
fn context(input: Record, declared: BTreeSet<String>) -> Value {
    record(&[
        ("input", shape(&Shape::Record(input))),
        ("parameters", set(&string())),
        ("targets", set(&string())),
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
fn sources(declared: BTreeSet<String>) -> Value {
    let members = declared.into_iter();
    let members = members.map(|name| (name, named("Source")));
    json!({"type": "Record", "attributes": members.collect::<Map<_, _>>()})
}

fn shape(of: &Shape) -> Value {
    match of {
        Shape::String => string(),
        Shape::Long => long(),
        Shape::Bool => boolean(),
        Shape::Decimal => json!({"type": "Extension", "name": "decimal"}),
        Shape::Set(items) => set(&shape(items)),
        Shape::Record(members) => {
            let attributes = members.iter().map(|(name, member)| {
                let of = shape(&member.shape);
                (name.clone(), if member.required { of } else { optional(of) })
            });
            json!({"type": "Record", "attributes": attributes.collect::<Map<_, _>>()})
        }
    }
}

fn record(members: &[(&str, Value)]) -> Value {
    let attributes = members.iter().map(|(name, of)| ((*name).to_owned(), of.clone()));
    json!({"type": "Record", "attributes": attributes.collect::<Map<_, _>>()})
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

fn set(items: &Value) -> Value {
    json!({"type": "Set", "element": items})
}

fn named(common: &str) -> Value {
    json!({"type": "EntityOrCommon", "name": common})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::world::{action, tool};
    use std::collections::BTreeMap;
    use std::sync::Arc;

    /// What is made of a registry with these tools.
    fn of<R>(tools: impl IntoIterator<Item = Tool>, make: impl FnOnce(Registry<'_>) -> R) -> R {
        let tools = tools.into_iter().map(|tool| (tool.name.clone(), Arc::new(tool)));
        make(Registry {
            tools: &tools.collect(),
            attributes: &BTreeMap::new(),
        })
    }

    #[test]
    fn actions_without_parameters_share_one_context_that_is_the_one_of_others_without_theirs() {
        let to = json!({"type": "object", "properties": {"to": {"type": "string"}}});
        let actions = [
            action("read", false, None),
            action("list", false, Some(json!({"type": "object"}))),
            action("send", true, Some(to)),
        ];
        let json = of([tool("mail", actions)], json);
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
        // The name of a parameter stands there twice: its source has it as well.
        let with_name = |bytes: usize| {
            let properties = Map::from_iter([("n".repeat(bytes), json!({"type": "string"}))]);
            weigh(1, Some(json!({"properties": properties})))
        };
        assert_eq!(with_name(8_000) - with_name(2), 2 * 8_000);
    }
}
