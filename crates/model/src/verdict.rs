//! The words of a decision: verdicts, and the reason codes that go with them.

use serde::{Deserialize, Serialize};

/// What the gateway says to an ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Go on.
    Allow,
    /// Do not.
    Deny,
    /// Not before a person has approved exactly this.
    RequireApproval,
}

impl Verdict {
    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::RequireApproval => "require_approval",
        }
    }

    /// How much stands in the way: of several verdicts the strictest holds.
    pub const fn strictness(self) -> u8 {
        match self {
            Self::Allow => 0,
            Self::RequireApproval => 1,
            Self::Deny => 2,
        }
    }
}

macro_rules! reason_codes {
    ($($(#[$doc:meta])* $name:ident = $word:literal => $verdict:ident,)*) => {
        /// Why the verdict is what it is: stable words that programs may match on.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum ReasonCode {
            $($(#[$doc])* #[serde(rename = $word)] $name,)*
        }

        impl ReasonCode {
            /// Every code.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word of the API.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* }
            }

            /// The code with this word.
            pub fn from_word(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == word)
            }

            /// The verdict that this code goes with.
            pub const fn verdict(self) -> Verdict {
                match self { $(Self::$name => Verdict::$verdict,)* }
            }
        }
    };
}

impl ReasonCode {
    /// Whether it is what policies say when they are asked, and not what was found before or after that.
    pub const fn is_ruling(self) -> bool {
        match self {
            Self::PolicyPermits
            | Self::PolicyRequiresApproval
            | Self::PolicyForbids
            | Self::NoPolicyPermits
            | Self::PolicyError => true,
            Self::Observed
            | Self::ApprovalGranted
            | Self::ApprovalRejected
            | Self::ApprovalExpired
            | Self::BudgetExceeded
            | Self::BudgetNotFound
            | Self::BudgetFrozen
            | Self::AgentFrozen
            | Self::AgentRevoked
            | Self::UnknownPrincipal
            | Self::TenantFrozen
            | Self::RunFrozen
            | Self::RunTainted
            | Self::RunTaintNeedsApproval
            | Self::UnknownTool
            | Self::ToolNotGranted
            | Self::ToolQuarantined
            | Self::ToolDefinitionChanged
            | Self::InvalidParameters => false,
        }
    }

    /// Whether it shows that the agent had a grant for the tool: it is only found after that was looked at. Of a trap
    /// nothing shows it, because policies are asked about those first.
    pub const fn shows_grant(self) -> bool {
        match self {
            Self::PolicyPermits
            | Self::ApprovalGranted
            | Self::PolicyRequiresApproval
            | Self::RunTaintNeedsApproval
            | Self::RunTainted
            | Self::ToolQuarantined
            | Self::ToolDefinitionChanged
            | Self::InvalidParameters
            | Self::PolicyForbids
            | Self::NoPolicyPermits
            | Self::BudgetExceeded
            | Self::BudgetNotFound
            | Self::BudgetFrozen
            | Self::ApprovalRejected
            | Self::ApprovalExpired
            | Self::PolicyError => true,
            Self::Observed
            | Self::AgentFrozen
            | Self::AgentRevoked
            | Self::UnknownPrincipal
            | Self::TenantFrozen
            | Self::RunFrozen
            | Self::UnknownTool
            | Self::ToolNotGranted => false,
        }
    }
}

reason_codes! {
    /// A policy permits it.
    PolicyPermits = "policy_permits" => Allow,
    /// It was only to be observed, and would not have been allowed otherwise.
    Observed = "observed" => Allow,
    /// People have approved exactly this.
    ApprovalGranted = "approval_granted" => Allow,
    /// A policy wants a person's approval first.
    PolicyRequiresApproval = "policy_requires_approval" => RequireApproval,
    /// The run has seen what is not trusted, and the tenant wants a person's approval for what such runs change.
    RunTaintNeedsApproval = "run_taint_needs_approval" => RequireApproval,
    /// The agent is frozen.
    AgentFrozen = "agent_frozen" => Deny,
    /// The agent is revoked, for good.
    AgentRevoked = "agent_revoked" => Deny,
    /// It is asked in the name of an agent that is not registered.
    UnknownPrincipal = "unknown_principal" => Deny,
    /// The tenant is frozen or revoked.
    TenantFrozen = "tenant_frozen" => Deny,
    /// The run, or the one that started it, is frozen or revoked.
    RunFrozen = "run_frozen" => Deny,
    /// The run has seen what is not trusted, and the tenant lets such runs change nothing.
    RunTainted = "run_tainted" => Deny,
    /// No such tool, or no such action of it, is registered.
    UnknownTool = "unknown_tool" => Deny,
    /// The agent has no grant for the tool.
    ToolNotGranted = "tool_not_granted" => Deny,
    /// The tool is frozen or revoked.
    ToolQuarantined = "tool_quarantined" => Deny,
    /// The tool's definition differs from the pinned one and nobody has accepted it.
    ToolDefinitionChanged = "tool_definition_changed" => Deny,
    /// The parameters do not fit the action's JSON Schema.
    InvalidParameters = "invalid_parameters" => Deny,
    /// A policy forbids it.
    PolicyForbids = "policy_forbids" => Deny,
    /// No policy permits it.
    NoPolicyPermits = "no_policy_permits" => Deny,
    /// A budget has not enough left.
    BudgetExceeded = "budget_exceeded" => Deny,
    /// There is no budget in this unit for it.
    BudgetNotFound = "budget_not_found" => Deny,
    /// A budget is frozen.
    BudgetFrozen = "budget_frozen" => Deny,
    /// Somebody has rejected it.
    ApprovalRejected = "approval_rejected" => Deny,
    /// People were asked, and it comes too late.
    ApprovalExpired = "approval_expired" => Deny,
    /// A policy that might have forbidden it could not be evaluated, or policies ask for more than may be asked for.
    PolicyError = "policy_error" => Deny,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_one_word_in_json_and_in_code() {
        for code in ReasonCode::ALL {
            let json = serde_json::to_string(code).unwrap();
            assert_eq!(json, format!("\"{}\"", code.as_str()));
            assert_eq!(serde_json::from_str::<ReasonCode>(&json).unwrap(), *code);
        }
    }

    #[test]
    fn only_permits_people_and_a_tenant_that_observes_allow() {
        let allowing: Vec<_> = ReasonCode::ALL
            .iter()
            .filter(|code| code.verdict() == Verdict::Allow)
            .collect();
        assert_eq!(
            allowing,
            [
                &ReasonCode::PolicyPermits,
                &ReasonCode::Observed,
                &ReasonCode::ApprovalGranted
            ]
        );
    }
}
