//! An ask: what a caller sends to have one action authorized.
//!
//! The body is canonicalized once, whole, and everything else is read from that text: the parameters inside it are
//! canonical already, so freezing the action needs no second pass. Whether the ask is granted is not decided here.

use canon::{Canonical, Digest, ObjectWriter};
use model::reservation::TTL_MS;
use model::{AgentId, Estimate, Name, SlashFreeName, Sources, Trust};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The longest resource, in bytes.
const RESOURCE_BYTES_MAX: usize = 2_048;
/// The most parameters whose source may be named.
const SOURCES_MAX: usize = 256;
/// Longest part of a pointer that a message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 200;
/// What is hashed names its own format, so that no other text can be taken for an action.
const ACTION_TYPE: &str = "countersign.action/1";

/// Why a body is not an ask: where, what, and whether it is a member that the contract does not know, which could be a
/// misspelt one that was meant to make the ask stricter.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct AskError(#[from] pub canon::ReadError);

impl AskError {
    fn invalid(pointer: &str, detail: impl Into<String>) -> Self {
        Self(canon::ReadError {
            pointer: pointer.to_owned(),
            detail: detail.into(),
            is_unknown_field: false,
        })
    }
}

/// An ask whose form is right.
#[derive(Debug)]
pub struct Ask {
    /// The caller's own id for it.
    pub request_id: Option<Name>,
    /// SHA-256 of its canonical text: what makes it the same ask again.
    pub digest: Digest,
    /// How long that text is.
    pub bytes: usize,
    /// What the agent wants to do.
    pub action: FrozenAction,
    /// Whether the caller says that it changes anything.
    pub claims_mutation: bool,
    /// How far the caller says the source is trusted.
    pub claimed_trust: Trust,
    /// Where the caller says that single parameters came from.
    pub sources: Sources,
    /// The token that came along to say where the content came from. Nothing is known of it yet.
    pub provenance: Option<String>,
    /// Whether the caller says that sensitive data are involved.
    pub contains_sensitive_data: bool,
    /// Further facts of the caller's: a canonical JSON object.
    pub attributes: Option<String>,
    /// Which agent the caller says it is.
    pub claimed_agent: Option<AgentId>,
    /// Where the caller says it runs.
    pub claimed_environment: Option<Name>,
    /// For whom it acts.
    pub user: Option<Name>,
    /// The agents in whose name it asks, the nearest first, by id or name.
    pub act: Vec<Name>,
    /// The run it is part of.
    pub run_id: Option<Name>,
    /// The run that started that run.
    pub parent_run_id: Option<Name>,
    /// The distributed trace it is part of.
    pub trace_id: Option<Name>,
    /// What it may cost.
    pub estimate: Option<Estimate>,
    /// How long that is held, in milliseconds.
    pub ttl_ms: Option<u64>,
    /// The approval that it wants to use.
    pub approval_id: Option<Name>,
    /// What should come of it.
    pub mode: Mode,
}

/// An action whose bytes and digest are fixed: what is decided is what was sent.
#[derive(Debug)]
pub struct FrozenAction {
    /// The tool.
    pub tool: SlashFreeName,
    /// The action of it.
    pub action: Name,
    /// What it is done to.
    pub resource: Option<String>,
    /// With which parameters: a canonical JSON object.
    pub parameters: String,
    /// The action hash: SHA-256 of the canonical `{"action","parameters","resource","tool","type"}`.
    pub digest: Digest,
}

/// What should come of an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Decide, record, answer.
    #[default]
    Enforce,
    /// Record what would have been said, and allow.
    Observe,
    /// Say what would be said; record and change nothing.
    DryRun,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Body<'a> {
    request_id: Option<Name>,
    #[serde(borrow)]
    tool_call: ToolCall<'a>,
    #[serde(borrow)]
    context: Context<'a>,
    agent: Option<AgentClaim>,
    user: Option<UserClaim>,
    act: Option<ActClaim>,
    trace: Option<Trace>,
    estimate: Option<Estimate>,
    ttl_ms: Option<u64>,
    approval_id: Option<Name>,
    mode: Option<Mode>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCall<'a> {
    tool: SlashFreeName,
    action: Name,
    #[serde(borrow)]
    resource: Option<Cow<'a, str>>,
    mutates_state: Option<bool>,
    #[serde(borrow)]
    parameters: &'a RawValue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Context<'a> {
    source_trust: Trust,
    contains_sensitive_data: Option<bool>,
    sources: Option<BTreeMap<String, Trust>>,
    #[serde(borrow)]
    provenance: Option<Cow<'a, str>>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentClaim {
    id: Option<AgentId>,
    environment: Option<Name>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct UserClaim {
    id: Name,
}

/// As tokens have it (RFC 8693, section 4.1): the outermost is the nearest.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ActClaim {
    sub: Name,
    act: Option<Box<ActClaim>>,
}

impl ActClaim {
    fn names(self) -> Vec<Name> {
        let mut names = vec![self.sub];
        let mut next = self.act;
        while let Some(claim) = next {
            names.push(claim.sub);
            next = claim.act;
        }
        names
    }
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
struct Trace {
    #[serde(
        rename = "run_id",
        default,
        deserialize_with = "model::name::new_segment_if_any"
    )]
    run: Option<Name>,
    #[serde(
        rename = "parent_run_id",
        default,
        deserialize_with = "model::name::new_segment_if_any"
    )]
    parent_run: Option<Name>,
    #[serde(rename = "trace_id")]
    id: Option<Name>,
}

impl Ask {
    /// Reads an ask from its canonical text, which counts as if it had this for its `request_id` where it has none:
    /// wherever its id stood, it is the same ask.
    pub fn parse_named(text: &Canonical, request_id: Option<&Name>) -> Result<Self, AskError> {
        let named = request_id.and_then(|id| text.with_string("request_id", id.as_str()));
        Self::parse(named.as_ref().unwrap_or(text))
    }

    /// Reads an ask from its canonical text.
    pub fn parse(text: &Canonical) -> Result<Self, AskError> {
        let body: Body<'_> = canon::read(text.as_str())?;
        body.check()?;
        let agent = body.agent.unwrap_or(AgentClaim {
            id: None,
            environment: None,
        });
        let trace = body.trace.unwrap_or_default();
        Ok(Self {
            request_id: body.request_id,
            digest: text.digest(),
            bytes: text.as_bytes().len(),
            claims_mutation: body.tool_call.mutates_state.unwrap_or(false),
            action: FrozenAction::freeze(body.tool_call),
            claimed_trust: body.context.source_trust,
            sources: Sources::new(body.context.sources.unwrap_or_default()),
            provenance: body.context.provenance.map(Cow::into_owned),
            contains_sensitive_data: body.context.contains_sensitive_data.unwrap_or(false),
            attributes: body
                .context
                .attributes
                .map(|attributes| attributes.get().to_owned()),
            claimed_agent: agent.id,
            claimed_environment: agent.environment,
            user: body.user.map(|user| user.id),
            act: body.act.map_or(Vec::new(), ActClaim::names),
            run_id: trace.run,
            parent_run_id: trace.parent_run,
            trace_id: trace.id,
            estimate: body.estimate,
            ttl_ms: body.ttl_ms,
            approval_id: body.approval_id,
            mode: body.mode.unwrap_or_default(),
        })
    }

    /// The run that it is part of: `run_id`, or, if only `parent_run_id` is given, that one.
    pub fn run(&self) -> Option<&Name> {
        self.run_id.as_ref().or(self.parent_run_id.as_ref())
    }
}

impl Body<'_> {
    /// What the types of the members do not say.
    fn check(&self) -> Result<(), AskError> {
        check_object("/tool_call/parameters", self.tool_call.parameters)?;
        if let Some(resource) = &self.tool_call.resource {
            check_resource(resource)?;
        }
        if let Some(attributes) = self.context.attributes {
            check_object("/context/attributes", attributes)?;
        }
        if let Some(sources) = &self.context.sources {
            check_sources(sources)?;
        }
        match self.ttl_ms {
            Some(ttl) if !TTL_MS.contains(&ttl) => {
                let (least, most) = (TTL_MS.start(), TTL_MS.end());
                Err(AskError::invalid(
                    "/ttl_ms",
                    format!("should be from {least} to {most} milliseconds"),
                ))
            }
            _ => Ok(()),
        }
    }
}

fn check_object(pointer: &str, value: &RawValue) -> Result<(), AskError> {
    if value.get().starts_with('{') {
        Ok(())
    } else {
        Err(AskError::invalid(pointer, "should be an object"))
    }
}

fn check_resource(resource: &str) -> Result<(), AskError> {
    let fits = (1..=RESOURCE_BYTES_MAX).contains(&resource.len()) && !resource.chars().any(char::is_control);
    if fits {
        return Ok(());
    }
    let detail = format!("should have 1 to {RESOURCE_BYTES_MAX} bytes and no control characters");
    Err(AskError::invalid("/tool_call/resource", detail))
}

fn check_sources(sources: &BTreeMap<String, Trust>) -> Result<(), AskError> {
    if sources.len() > SOURCES_MAX {
        return Err(AskError::invalid(
            "/context/sources",
            format!("should have at most {SOURCES_MAX} members"),
        ));
    }
    match sources.keys().find(|pointer| !Sources::is_pointer(pointer)) {
        Some(odd) => {
            let end = odd.char_indices().nth(SHOWN_CHARS_MAX);
            let (shown, more) = end.map_or((odd.as_str(), ""), |(end, _)| (&odd[..end], "…"));
            let detail =
                format!("`{shown}{more}` is not a JSON Pointer into the parameters, such as `/base_branch`");
            Err(AskError::invalid("/context/sources", detail))
        }
        None => Ok(()),
    }
}

impl FrozenAction {
    fn freeze(call: ToolCall<'_>) -> Self {
        let resource = call.resource.map(Cow::into_owned);
        let parameters = call.parameters.get();
        let mut preimage = ObjectWriter::new();
        preimage.string("action", call.action.as_str());
        preimage.canonical("parameters", parameters);
        match &resource {
            Some(resource) => preimage.string("resource", resource),
            None => preimage.null("resource"),
        };
        preimage.string("tool", call.tool.as_str());
        preimage.string("type", ACTION_TYPE);
        Self {
            digest: preimage.finish().digest(),
            tool: call.tool,
            action: call.action,
            parameters: parameters.to_owned(),
            resource,
        }
    }
}
