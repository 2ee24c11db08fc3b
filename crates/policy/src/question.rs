//! What policies are asked: one ask, with every fact that a policy may look at. Nothing is looked up later.

use crate::fuel::Fuel;
use imbl::OrdMap;
use model::{
    Agent, EffectiveTrust, Name, Sources, Team, Timestamp, Tool, ToolAction, Trust, Usage, User, Vouched,
};
use std::sync::Arc;

/// The person on whose behalf the agent acts.
#[derive(Debug, Clone, Copy)]
pub struct UserFacts<'a> {
    /// The id that the caller gave.
    pub id: &'a str,
    /// What is registered under it. A user whom nobody registered is in no team and has no attributes.
    pub registered: Option<&'a User>,
    /// The teams that are registered, among them those of the user: in the others nothing is looked up. None is the same as
    /// no team.
    pub teams: Option<&'a OrdMap<Name, Arc<Team>>>,
}

/// The run that an ask belongs to.
#[derive(Debug, Clone, Copy)]
pub struct RunFacts<'a> {
    /// What its agents call it.
    pub id: &'a str,
    /// The least trusted source that it has seen.
    pub worst: Trust,
}

/// One ask, with every fact that a policy may look at.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// Who asks.
    pub agent: &'a Agent,
    /// The agent's team, if it is registered. The agent is in the team that it names either way.
    pub team: Option<&'a Team>,
    /// For whom.
    pub user: Option<UserFacts<'a>>,
    /// The tool, as it is registered.
    pub tool: &'a Tool,
    /// The action of that tool, as it is registered.
    pub action: &'a ToolAction,
    /// Whether it counts as changing something: the registry says so, or the caller claims so.
    pub mutates: bool,
    /// On what, in the caller's words. None is the same as the empty text.
    pub resource: Option<&'a str>,
    /// A canonical JSON object.
    pub parameters: &'a str,
    /// How far the source is trusted.
    pub trust: EffectiveTrust,
    /// Whether the caller says that sensitive data is involved.
    pub contains_sensitive_data: bool,
    /// Further facts of the caller's: a canonical JSON object.
    pub attributes: Option<&'a str>,
    /// The run that the ask belongs to.
    pub run: Option<RunFacts<'a>>,
    /// How much is used of what the ask counts against. None is the same as an empty one: it counts against nothing.
    pub usage: Option<&'a Usage>,
    /// Where single parameters came from, as the caller says. None is the same as an empty one.
    pub sources: Option<&'a Sources>,
    /// What a signature says of the source of one parameter.
    pub vouched: Option<Vouched<'a>>,
    /// When it is asked.
    pub now: Timestamp,
    /// How much work it may be. None is whatever it takes, within the bounds that there are for all.
    pub fuel: Option<&'a Fuel>,
}

impl Question<'_> {
    /// The question as the action is registered, if its caller claims that a read changes something. What a caller
    /// claims only takes away, and a policy may be about reads alone: so this has to be allowed, too, and
    /// [`Ruling::with_claim`](crate::Ruling::with_claim) says what comes of both.
    pub const fn as_registered(&self) -> Option<Self> {
        if self.mutates && !self.action.mutates_state {
            Some(Self {
                mutates: false,
                ..*self
            })
        } else {
            None
        }
    }
}

/// What somebody may not know of a question, so that it matters whether policies look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fact {
    /// The run and what it has seen.
    Run,
    /// How much is used.
    Usage,
    /// The tags of teams.
    TeamTags,
}

/// Why no policy can be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswerable {
    /// The parameters do not fit the action's JSON Schema, or a policy could not judge them. It is a denial.
    #[error("the parameter at `{pointer}` {detail}")]
    InvalidParameters {
        /// An RFC 6901 pointer into the parameters; empty for the whole object.
        pointer: String,
        /// What is wrong with it. It never repeats the value, which could be a secret.
        detail: String,
    },
    /// An attribute does not have the type that the tenant has declared. It is a bad request.
    #[error("the attribute `{name}` {detail}")]
    MistypedAttribute {
        /// Which.
        name: String,
        /// What is wrong with it.
        detail: String,
    },
}
