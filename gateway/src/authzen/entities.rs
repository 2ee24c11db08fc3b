//! The information model of the specification (section 5), and the ask that it makes.
//!
//! A subject is the agent, a resource the tool, an action one of that tool's. Members that the specification does not
//! know are ignored, because it asks for that. So that a typo weakens an ask as little as it can, they are refused in
//! what is ours, `context.countersign` and the properties of a resource; the parameters may not be left out; and
//! without a level of trust it is the lowest.
//!
//! What a search makes of an entity that nobody has registered is not decided here.

use crate::http::{Code, Refusal};
use canon::{Canonical, ObjectWriter, ReadError};
use engine::{Ask, AskError, Mode};
use model::{Agent, Name};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// The type of subjects.
pub(super) const AGENT: &str = "agent";
/// The type of resources.
pub(super) const TOOL: &str = "tool";
/// The member of a context that holds what the specification has no word for.
const OURS: &str = "countersign";

/// The four members of a request, unread. One that is `null` is there.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(super) struct Tuple<'a> {
    #[serde(borrow, default, deserialize_with = "sent")]
    pub(super) subject: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "sent")]
    pub(super) action: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "sent")]
    pub(super) resource: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "sent")]
    pub(super) context: Option<&'a RawValue>,
}

/// A subject or a resource.
#[derive(Debug, Deserialize)]
struct Entity<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    properties: Option<&'a RawValue>,
}

/// An action; its properties are the parameters of the call.
#[derive(Debug, Deserialize)]
pub(super) struct Action<'a> {
    #[serde(borrow)]
    pub(super) name: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) properties: Option<&'a RawValue>,
}

/// What the properties of a tool say.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolProperties<'a> {
    /// On what the tool is used: `tool_call.resource` of an ask.
    #[serde(borrow)]
    resource: Option<Cow<'a, str>>,
}

/// Who is meant.
#[derive(Debug)]
pub(super) struct Subject<'a> {
    /// Whether it is an agent. Of other types nobody is registered.
    pub(super) is_agent: bool,
    id: Option<Cow<'a, str>>,
}

/// What is meant, and on what it is used.
#[derive(Debug)]
pub(super) struct Resource<'a> {
    /// Whether it is a tool. Of other types nothing is registered.
    pub(super) is_tool: bool,
    id: Option<Cow<'a, str>>,
    target: Option<Cow<'a, str>>,
}

/// Facts of the environment: ours, and the attributes that tenants declare.
#[derive(Debug, Default)]
pub(super) struct Context<'a> {
    ours: Ours<'a>,
    /// INVARIANT: in the order of the canonical text that they were read from.
    attributes: Vec<(Cow<'a, str>, &'a RawValue)>,
}

/// The members of an ask that the specification has no word for, each under the name that it has in an ask.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Ours<'a> {
    #[serde(borrow)]
    request_id: Option<&'a RawValue>,
    #[serde(borrow)]
    mutates_state: Option<&'a RawValue>,
    #[serde(borrow)]
    source_trust: Option<&'a RawValue>,
    #[serde(borrow)]
    contains_sensitive_data: Option<&'a RawValue>,
    #[serde(borrow)]
    sources: Option<&'a RawValue>,
    #[serde(borrow)]
    provenance: Option<&'a RawValue>,
    #[serde(borrow)]
    environment: Option<&'a RawValue>,
    #[serde(borrow)]
    user: Option<&'a RawValue>,
    #[serde(borrow)]
    act: Option<&'a RawValue>,
    #[serde(borrow)]
    trace: Option<&'a RawValue>,
    #[serde(borrow)]
    estimate: Option<&'a RawValue>,
    #[serde(borrow)]
    ttl_ms: Option<&'a RawValue>,
    #[serde(borrow)]
    approval_id: Option<&'a RawValue>,
    #[serde(borrow)]
    mode: Option<&'a RawValue>,
}

/// A tool's action that is asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) tool: &'a str,
    pub(super) action: &'a str,
    pub(super) target: Option<&'a str>,
    /// A canonical JSON object. Where nobody knows them it is not looked at.
    pub(super) parameters: Option<&'a str>,
}

impl<'a> Tuple<'a> {
    /// How long it is, in bytes.
    pub(super) fn bytes(self) -> usize {
        let members = [self.subject, self.action, self.resource, self.context];
        let lengths = members.into_iter().flatten().map(|member| member.get().len());
        lengths.sum()
    }

    /// This tuple, with the members of `defaults` where it has none (section 7.1.1).
    pub(super) fn or(self, defaults: Self) -> Self {
        Self {
            subject: self.subject.or(defaults.subject),
            action: self.action.or(defaults.action),
            resource: self.resource.or(defaults.resource),
            context: self.context.or(defaults.context),
        }
    }

    pub(super) fn subject(self) -> Result<Subject<'a>, Refusal> {
        let subject: Entity<'_> = read("/subject", self.subject)?;
        Ok(Subject {
            is_agent: subject.kind == AGENT,
            id: subject.id,
        })
    }

    pub(super) fn action(self) -> Result<Action<'a>, Refusal> {
        read("/action", self.action)
    }

    pub(super) fn resource(self) -> Result<Resource<'a>, Refusal> {
        let resource: Entity<'_> = read("/resource", self.resource)?;
        let is_tool = resource.kind == TOOL;
        // Properties of other types are not ours to check.
        let properties: ToolProperties<'_> = match resource.properties {
            Some(_) if is_tool => read("/resource/properties", resource.properties)?,
            _ => ToolProperties::default(),
        };
        Ok(Resource {
            is_tool,
            id: resource.id,
            target: properties.resource,
        })
    }

    pub(super) fn context(self) -> Result<Context<'a>, Refusal> {
        match self.context {
            Some(context) if context.get() != "null" => read("/context", self.context),
            _ => Ok(Context::default()),
        }
    }

    /// The ask that an evaluation of this agent makes, and which may be named beside it.
    pub(super) fn ask(self, agent: &Agent, request_id: Option<&Name>) -> Result<Ask, Refusal> {
        let subject = self.subject()?;
        if !subject.is_agent {
            return Err(other_type("/subject/type", AGENT));
        }
        check_own(agent, subject.id()?)?;
        let (action, resource) = (self.action()?, self.resource()?);
        if !resource.is_tool {
            return Err(other_type("/resource/type", TOOL));
        }
        // As an ask has to have parameters: without them a misspelt word would be none at all.
        let parameters = action.properties.ok_or_else(no_parameters)?;
        let call = Call {
            tool: resource.id()?,
            action: &action.name,
            target: resource.target(),
            parameters: Some(parameters.get()),
        };
        let ask = self.context()?.ask(call, request_id)?;
        match ask.mode {
            Mode::Enforce | Mode::Observe => Ok(ask),
            Mode::DryRun => Err(dry_run()),
        }
    }
}

/// Refuses whoever asks for another agent than the one that its token belongs to.
pub(super) fn check_own(agent: &Agent, subject: &str) -> Result<(), Refusal> {
    if agent.is_called(subject) {
        return Ok(());
    }
    let detail = "`/subject/id` is neither the id of this token's agent nor a name that it has or had";
    Err(Refusal::new(Code::AgentMismatch, detail))
}

impl Subject<'_> {
    /// A name under which it is or was registered, or its id.
    pub(super) fn id(&self) -> Result<&str, Refusal> {
        self.id.as_deref().ok_or_else(|| missing("/subject/id"))
    }
}

impl Resource<'_> {
    pub(super) fn id(&self) -> Result<&str, Refusal> {
        self.id.as_deref().ok_or_else(|| missing("/resource/id"))
    }

    pub(super) fn target(&self) -> Option<&str> {
        self.target.as_deref()
    }
}

impl Context<'_> {
    /// The ask for a call in this context. Whoever does not say how far the source is trusted does not know it.
    pub(super) fn ask(&self, call: Call<'_>, request_id: Option<&Name>) -> Result<Ask, Refusal> {
        Ok(Ask::parse_named(&self.ask_text(call), request_id).map_err(at_authzen_pointer)?)
    }

    fn ask_text(&self, call: Call<'_>) -> Canonical {
        let ours = &self.ours;
        let mut ask = ObjectWriter::new();
        put(&mut ask, "act", ours.act);
        if let Some(environment) = ours.environment {
            ask.object("agent", |agent| put(agent, "environment", Some(environment)));
        }
        put(&mut ask, "approval_id", ours.approval_id);
        ask.object("context", |context| {
            if !self.attributes.is_empty() {
                context.object("attributes", |members| {
                    for (name, value) in &self.attributes {
                        members.canonical(name, value.get());
                    }
                });
            }
            put(context, "contains_sensitive_data", ours.contains_sensitive_data);
            put(context, "provenance", ours.provenance);
            context.canonical(
                "source_trust",
                ours.source_trust.map_or("\"unknown\"", RawValue::get),
            );
            put(context, "sources", ours.sources);
        });
        put(&mut ask, "estimate", ours.estimate);
        put(&mut ask, "mode", ours.mode);
        put(&mut ask, "request_id", ours.request_id);
        ask.object("tool_call", |tool_call| {
            tool_call.string("action", call.action);
            put(tool_call, "mutates_state", ours.mutates_state);
            tool_call.canonical("parameters", call.parameters.unwrap_or("{}"));
            if let Some(target) = call.target {
                tool_call.string("resource", target);
            }
            tool_call.string("tool", call.tool);
        });
        put(&mut ask, "trace", ours.trace);
        put(&mut ask, "ttl_ms", ours.ttl_ms);
        put(&mut ask, "user", ours.user);
        ask.finish()
    }
}

fn put(writer: &mut ObjectWriter, key: &str, value: Option<&RawValue>) {
    if let Some(value) = value {
        writer.canonical(key, value.get());
    }
}

/// Reads the member of a request that stands at `pointer`.
pub(super) fn read<'a, T: Deserialize<'a>>(pointer: &str, value: Option<&'a RawValue>) -> Result<T, Refusal> {
    let value = value.ok_or_else(|| missing(pointer))?;
    canon::read(value.get()).map_err(|error| {
        let pointer = format!("{pointer}{}", error.pointer);
        ReadError { pointer, ..error }.into()
    })
}

/// Reads a member that is there also if it is `null`: with `default` it may be absent.
fn sent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

fn missing(pointer: &str) -> Refusal {
    Refusal::new(Code::InvalidField, format!("`{pointer}`: is missing"))
}

fn no_parameters() -> Refusal {
    let detail = "`/action/properties`: is left out or `null`; an evaluation has its parameters there, `{}` where there are none";
    Refusal::new(Code::InvalidField, detail)
}

fn other_type(pointer: &str, known: &str) -> Refusal {
    let detail = format!("`{pointer}`: is `{known}` here; nothing else is registered");
    Refusal::new(Code::InvalidField, detail)
}

/// Whoever enforces acts on what it is told, so it would carry out what nobody has recorded, counted or paid for.
fn dry_run() -> Refusal {
    let detail = "`/context/countersign/mode`: an evaluation is acted on, so it is no `dry_run`; `POST /v1/decide` says what would be answered, and so do searches";
    Refusal::new(Code::InvalidField, detail)
}

/// What is wrong with an ask, where its sender has written it.
fn at_authzen_pointer(AskError(error): AskError) -> AskError {
    /// Where each pointer of an ask stands in the AuthZEN request, the longest first.
    const POINTERS: [(&str, &str); 9] = [
        ("/tool_call/tool", "/resource/id"),
        ("/tool_call/action", "/action/name"),
        ("/tool_call/parameters", "/action/properties"),
        ("/tool_call/resource", "/resource/properties/resource"),
        ("/tool_call/mutates_state", "/context/countersign/mutates_state"),
        ("/context/attributes", "/context"),
        ("/context", "/context/countersign"),
        ("/agent", "/context/countersign"),
        ("", "/context/countersign"),
    ];
    let found = POINTERS
        .iter()
        .find_map(|(ask, authzen)| Some((authzen, error.pointer.strip_prefix(ask)?)));
    let pointer = found.map_or_else(String::new, |(authzen, rest)| format!("{authzen}{rest}"));
    AskError(ReadError { pointer, ..error })
}

impl<'de: 'a, 'a> Deserialize<'de> for Context<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Context<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
                let mut context = Context::default();
                while let Some(name) = members.next_key::<Cow<'de, str>>()? {
                    if name == OURS {
                        context.ours = members.next_value::<Option<Ours<'de>>>()?.unwrap_or_default();
                        continue;
                    }
                    context.attributes.push((name, members.next_value()?));
                }
                Ok(context)
            }
        }

        deserializer.deserialize_map(Members)
    }
}
