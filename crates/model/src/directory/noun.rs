//! The nouns of a directory: their kinds, how storage keeps them, and a write of one.
//!
//! Which map of a directory holds a noun, and what is counted of it, is with the directory.

use crate::agent::{Agent, AgentToken};
use crate::base::BaseInForce;
use crate::issuer::{FormerIssuer, Issuer};
use crate::key::{ApiKey, DeletedKey};
use crate::log_key::LogKey;
use crate::people::{Team, User};
use crate::policy::Policy;
use crate::rule::Rule;
use crate::run::StoppedRun;
use crate::tenant::Tenant;
use crate::tool::Tool;
use std::sync::Arc;

macro_rules! nouns {
    ($($(#[$doc:meta])* $kind:ident($noun:ty) = $word:literal,)*) => {
        /// The kinds of noun that a directory holds.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum NounKind { $($(#[$doc])* $kind,)* }

        impl NounKind {
            /// Every kind.
            pub const ALL: &[Self] = &[$(Self::$kind,)*];

            /// The word that storage keeps.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$kind => $word,)* }
            }
        }

        /// One noun of any kind.
        #[derive(Debug, Clone)]
        pub enum Noun { $($(#[$doc])* $kind(Arc<$noun>),)* }

        impl Noun {
            /// Its kind.
            pub const fn kind(&self) -> NounKind {
                match self { $(Self::$kind(_) => NounKind::$kind,)* }
            }

            /// The noun as storage keeps it.
            pub fn to_json(&self) -> String {
                let json = match self { $(Self::$kind(noun) => serde_json::to_string(noun),)* };
                json.expect("nouns have string keys and no fallible serializers")
            }

            /// The noun that storage kept as this text.
            pub fn from_json(kind: NounKind, json: &str) -> Result<Self, serde_json::Error> {
                Ok(match kind { $(NounKind::$kind => Self::$kind(serde_json::from_str(json)?),)* })
            }
        }
    };
}

nouns! {
    /// The tenant itself.
    Tenant(Tenant) = "tenant",
    /// An API key.
    Key(ApiKey) = "key",
    /// An agent.
    Agent(Agent) = "agent",
    /// A token of an agent.
    Token(AgentToken) = "token",
    /// A tool.
    Tool(Tool) = "tool",
    /// A team.
    Team(Team) = "team",
    /// A user.
    User(User) = "user",
    /// A policy.
    Policy(Policy) = "policy",
    /// A run that was stopped.
    Run(StoppedRun) = "run",
    /// An issuer of tokens.
    Issuer(Issuer) = "issuer",
    /// A key that the ledger is signed with.
    LogKey(LogKey) = "log_key",
    /// A containment rule.
    Rule(Rule) = "rule",
    /// The base policies that were put in force last.
    Base(BaseInForce) = "base",
    /// An operator's key that was deleted.
    DeletedKey(DeletedKey) = "deleted_key",
    /// The `iss` of an issuer that was deleted.
    FormerIssuer(FormerIssuer) = "former_issuer",
}

impl NounKind {
    /// The kind that storage keeps under this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == word)
    }
}

impl Noun {
    /// Its id among the nouns of its kind and tenant.
    pub fn id(&self) -> String {
        match self {
            Self::Tenant(tenant) => tenant.id.to_string(),
            Self::Key(key) => key.id.to_string(),
            Self::Agent(agent) => agent.id.to_string(),
            Self::Token(token) => token.id.to_string(),
            Self::Tool(tool) => tool.name.to_string(),
            Self::Team(team) => team.name.to_string(),
            Self::User(user) => user.name.to_string(),
            Self::Policy(policy) => policy.name.to_string(),
            Self::Run(run) => run.run_id.to_string(),
            Self::Issuer(issuer) => issuer.name.to_string(),
            Self::LogKey(key) => key.label.clone(),
            Self::Rule(rule) => rule.name.to_string(),
            // There is only one.
            Self::Base(_) => NounKind::Base.as_str().to_owned(),
            Self::DeletedKey(key) => key.digest.to_string(),
            Self::FormerIssuer(former) => former.issuer.to_string(),
        }
    }

    /// The name that no other noun of its kind and tenant may have, beside its id.
    pub fn unique_name(&self) -> Option<&str> {
        match self {
            Self::Agent(agent) => Some(agent.name.as_str()),
            _ => None,
        }
    }
}

/// One step from a directory to the next.
#[derive(Debug, Clone)]
pub enum Write {
    /// The noun is there from now on, in place of one with its id.
    Put(Noun),
    /// The noun is gone.
    Delete(Noun),
}
