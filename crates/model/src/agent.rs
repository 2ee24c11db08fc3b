//! Agents and their tokens. Every change is a method that returns the changed agent.

use crate::id::{AgentId, TenantId, TokenId};
use crate::name::{Name, SlashFreeName};
use crate::people::Attributes;
use crate::quota::LimitTerms;
use crate::standing::{RevokedForGood, Standing};
use crate::time::Timestamp;
use canon::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// How much harm an agent could do, as a person judged it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RiskTier {
    /// Little.
    #[default]
    Low,
    /// Some.
    Medium,
    /// A lot.
    High,
}

impl RiskTier {
    /// The word of API and policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// Which tools an agent may use. No grants means none: taking the last one away does not open the rest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolAccess {
    /// Every registered tool.
    All,
    /// These.
    Granted(BTreeSet<SlashFreeName>),
}

impl Default for ToolAccess {
    fn default() -> Self {
        Self::Granted(BTreeSet::new())
    }
}

impl ToolAccess {
    /// Whether this tool is among them.
    pub fn includes(&self, tool: &str) -> bool {
        match self {
            Self::All => true,
            Self::Granted(tools) => tools.contains(tool),
        }
    }
}

/// How many names an agent may have had beside the one that it has. All of them stay its own, and whoever is renamed
/// more often is somebody else.
pub const FORMER_NAMES_MAX: usize = 16;

/// An agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Agent {
    /// Its id: the principal of policies.
    pub id: AgentId,
    /// The tenant it belongs to.
    pub tenant: TenantId,
    /// What people call it; unique in its tenant.
    pub name: Name,
    /// What people called it before, the oldest first. It is nobody else's name: tokens of identity providers may still
    /// tell of it by that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub former_names: Vec<Name>,
    /// Where it runs, such as `production`.
    pub environment: Option<Name>,
    /// The team it belongs to.
    pub team: Option<Name>,
    /// The person or group that answers for it.
    pub owner: Option<Name>,
    /// How much harm it could do.
    pub risk_tier: RiskTier,
    /// Which tools it may use.
    pub tools: ToolAccess,
    /// Facts about it.
    pub attributes: Attributes,
    /// Whether it may act.
    #[serde(flatten)]
    pub standing: Standing,
    /// How often it is allowed to act.
    #[serde(flatten)]
    pub limits: LimitTerms,
    /// The public keys by which it signs its requests: a JWKS. Without them its requests need no signature. Policies do
    /// not see it.
    #[serde(
        default,
        deserialize_with = "canon::foreign",
        skip_serializing_if = "Option::is_none"
    )]
    pub signing_keys: Option<Arc<serde_json::Value>>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Agent {
    /// The agent, frozen.
    pub fn freeze(&self, reason: &str, now: Timestamp) -> Result<Self, RevokedForGood> {
        Ok(self.with_standing(self.standing.freeze(reason, now)?))
    }

    /// Whether this is its id, or a name that it has or had.
    pub fn is_called(&self, called: &str) -> bool {
        let mut names = self.former_names.iter().chain([&self.name]);
        names.any(|name| name.as_str() == called) || called.parse::<AgentId>() == Ok(self.id)
    }

    /// The agent under this name. The one that it had stays its own, and it may take that back.
    #[must_use]
    pub fn rename(&self, name: &Name) -> Self {
        let mut agent = self.clone();
        if *name != self.name {
            agent.former_names.retain(|former| former != name);
            agent.former_names.push(self.name.clone());
            agent.name = name.clone();
        }
        agent
    }

    /// The agent with this tool granted. One that has all tools has this one too.
    #[must_use]
    pub fn grant(&self, tool: SlashFreeName) -> Self {
        let mut agent = self.clone();
        if let ToolAccess::Granted(tools) = &mut agent.tools {
            tools.insert(tool);
        }
        agent
    }

    /// The agent without a grant for this tool; `None` if it has all tools, of which one cannot be taken away.
    pub fn withdraw(&self, tool: &str) -> Option<Self> {
        let mut agent = self.clone();
        match &mut agent.tools {
            ToolAccess::All => None,
            ToolAccess::Granted(tools) => {
                tools.remove(tool);
                Some(agent)
            }
        }
    }

    /// The agent with another standing.
    #[must_use]
    pub fn with_standing(&self, standing: Standing) -> Self {
        Self {
            standing,
            ..self.clone()
        }
    }
}

/// A token of an agent, without its secret. An agent may have several, so that they can be rotated without a gap.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentToken {
    /// Its id.
    pub id: TokenId,
    /// Whose it is.
    pub agent: AgentId,
    /// SHA-256 of the secret.
    pub digest: Digest,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it stops working.
    pub expires_at: Option<Timestamp>,
}

impl AgentToken {
    /// Whether it has stopped working.
    pub fn has_expired(&self, now: Timestamp) -> bool {
        self.expires_at.is_some_and(|end| end <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn agent(tools: ToolAccess) -> Agent {
        Agent {
            id: AgentId::from_bytes([1; 16]),
            tenant: TenantId::from_bytes([2; 16]),
            name: Name::new("builder").unwrap(),
            former_names: Vec::new(),
            environment: None,
            team: None,
            owner: None,
            risk_tier: RiskTier::Low,
            tools,
            attributes: Attributes::default(),
            standing: Standing::Active,
            limits: LimitTerms::default(),
            signing_keys: None,
            created_at: Timestamp::from_millis(0),
        }
    }

    fn tool(name: &str) -> SlashFreeName {
        SlashFreeName::new(name).unwrap()
    }

    #[test]
    fn an_agent_keeps_the_names_that_it_had() {
        let [builder, baker] = ["builder", "baker"].map(|name| Name::new(name).unwrap());
        let first = agent(ToolAccess::All);
        assert_eq!(first.rename(&builder), first);
        let renamed = first.rename(&baker);
        assert_eq!(renamed.name, baker);
        assert_eq!(renamed.former_names, std::slice::from_ref(&builder));
        let again = renamed.rename(&builder);
        assert_eq!((again.name, again.former_names), (builder, vec![baker]));
        for called in ["builder", "baker", &renamed.id.to_string()] {
            assert!(renamed.is_called(called), "{called}");
        }
        for other in ["", "Baker", &AgentId::from_bytes([3; 16]).to_string()] {
            assert!(!renamed.is_called(other), "{other}");
        }
    }

    #[test]
    fn an_agent_that_had_no_other_name_is_stored_as_before() {
        let stored = serde_json::to_value(agent(ToolAccess::All)).unwrap();
        assert_eq!(stored.get("former_names"), None);
        let read: Agent = serde_json::from_value(stored).unwrap();
        assert_eq!(read, agent(ToolAccess::All));
    }

    #[test]
    fn taking_the_last_grant_away_leaves_no_tools() {
        let agent = agent(ToolAccess::default()).grant(tool("github"));
        assert!(agent.tools.includes("github"));
        let agent = agent.withdraw("github").unwrap();
        assert!(!agent.tools.includes("github") && !agent.tools.includes("slack"));
    }

    #[test]
    fn one_tool_cannot_be_taken_from_an_agent_that_has_all() {
        assert_eq!(agent(ToolAccess::All).withdraw("github"), None);
        assert_eq!(
            agent(ToolAccess::All).grant(tool("github")).tools,
            ToolAccess::All
        );
    }

    #[test]
    fn a_revoked_agent_cannot_be_frozen_instead() {
        let agent = agent(ToolAccess::All);
        let revoked = agent.with_standing(agent.standing.revoke("stolen", Timestamp::from_millis(5)));
        assert_eq!(
            revoked.freeze("odd", Timestamp::from_millis(6)),
            Err(RevokedForGood)
        );
    }

    #[test]
    fn an_agent_is_the_same_after_storage() {
        let frozen = agent(ToolAccess::default())
            .grant(tool("github"))
            .freeze("odd", Timestamp::from_millis(5))
            .unwrap();
        let json = serde_json::to_string(&frozen).unwrap();
        assert_eq!(serde_json::from_str::<Agent>(&json).unwrap(), frozen);
    }

    #[test]
    fn a_token_works_until_the_millisecond_of_its_end() {
        let token = AgentToken {
            id: TokenId::from_bytes([0; 16]),
            agent: AgentId::from_bytes([0; 16]),
            digest: Digest::of(b""),
            created_at: Timestamp::from_millis(0),
            expires_at: Some(Timestamp::from_millis(1_000)),
        };
        assert!(!token.has_expired(Timestamp::from_millis(999)));
        assert!(token.has_expired(Timestamp::from_millis(1_000)));
    }
}
