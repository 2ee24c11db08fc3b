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
    let schema = Schema::from_schema_fragments([fragment(json(registry))?]);
    schema.map_err(|error| wrong(&error).into())
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
    json!({
        "memberOf": groups.map(|group| json!({"id": group})),
        "appliesTo": {
            "principalTypes": [AGENT, USER],
            "resourceTypes": [RESOURCE],
            "context": record(&[
                ("input", shape(&Shape::Record(input(action)))),
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
                ("sources", sources(action)),
                ("now", json!({"type": "Extension", "name": "datetime"})),
            ]),
        },
    })
}

/// `context.sources`: a level for each parameter that the action declares.
fn sources(action: &ToolAction) -> Value {
    let members = declared_parameters(action).into_iter();
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
