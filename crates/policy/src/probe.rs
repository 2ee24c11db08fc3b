//! The probe at start-up: a question that any base policies must deny. A gateway that would allow it must not serve.

use crate::base::BasePolicies;
use crate::compile::Registry;
use crate::diagnostics::Diagnostics;
use crate::question::{Question, Unanswerable};
use crate::set::PolicySet;
use imbl::OrdMap;
use model::{
    Agent, AgentId, Attributes, EffectiveTrust, Name, ReasonCode, Risk, RiskTier, SlashFreeName, Standing,
    TenantId, Timestamp, Tool, ToolAccess, ToolAction, Trust, Verdict,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Why a gateway must not serve.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeFailure {
    /// The base policies are not valid.
    #[error("the base policies are not valid: {0}")]
    Invalid(#[from] Diagnostics),
    /// The question could not be put.
    #[error("the probe could not be asked: {0}")]
    Unanswerable(#[from] Unanswerable),
    /// What must be denied is not.
    #[error("the base policies answer `{0}` to a change that a suspected attacker asks for")]
    NotDenied(&'static str),
    /// It is denied, but only because a policy fails.
    #[error("the base policies could not be evaluated: {0}")]
    Broken(String),
}

/// Puts a question that must be denied to these base policies: a change, from a source taken for an attack.
pub fn probe(base: &BasePolicies) -> Result<(), ProbeFailure> {
    let action = ToolAction {
        name: Name::new("change").expect("it is a name"),
        mutates_state: true,
        risk: Risk::Critical,
        input_schema: None,
        description: None,
        pinned: None,
        held: None,
    };
    let tool = Tool {
        name: SlashFreeName::new("probe").expect("it is a name without a slash"),
        actions: BTreeMap::from([(action.name.clone(), action.clone())]),
        canary: false,
        standing: Standing::Active,
        created_at: Timestamp::from_millis(0),
    };
    let tools = OrdMap::unit(tool.name.clone(), Arc::new(tool.clone()));
    let registry = Registry {
        tools: &tools,
        attributes: &BTreeMap::new(),
    };
    let ruling = PolicySet::compile(base, &[], registry)?.rule(&question(&agent(), &tool, &action))?;
    match (ruling.verdict(), ruling.reason) {
        (Verdict::Deny, ReasonCode::PolicyError) => Err(ProbeFailure::Broken(ruling.explanation)),
        (Verdict::Deny, _) => Ok(()),
        (verdict, _) => Err(ProbeFailure::NotDenied(verdict.as_str())),
    }
}

fn agent() -> Agent {
    Agent {
        id: AgentId::from_bytes([0; 16]),
        tenant: TenantId::SYSTEM,
        name: Name::new("probe").expect("it is a name"),
        former_names: Vec::new(),
        environment: None,
        team: None,
        owner: None,
        risk_tier: RiskTier::Low,
        tools: ToolAccess::All,
        attributes: Attributes::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        signing_keys: None,
        created_at: Timestamp::from_millis(0),
    }
}

fn question<'a>(agent: &'a Agent, tool: &'a Tool, action: &'a ToolAction) -> Question<'a> {
    Question {
        agent,
        team: None,
        user: None,
        tool,
        action,
        mutates: true,
        resource: None,
        parameters: "{}",
        trust: EffectiveTrust::without_signature(Trust::MaliciousSuspected, None),
        contains_sensitive_data: false,
        attributes: None,
        run: None,
        usage: None,
        sources: None,
        vouched: None,
        now: Timestamp::from_millis(0),
        fuel: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probed(text: &str) -> Result<(), ProbeFailure> {
        probe(&BasePolicies::parse(text).unwrap())
    }

    #[test]
    fn the_shipped_policies_pass() {
        assert_eq!(probe(&BasePolicies::shipped()), Ok(()));
    }

    #[test]
    fn policies_that_allow_everything_fail() {
        let all = "@id(\"all\") permit (principal, action, resource);";
        assert_eq!(probed(all), Err(ProbeFailure::NotDenied("allow")));
        let asking = format!("@decision(\"require_approval\") {all}");
        assert_eq!(probed(&asking), Err(ProbeFailure::NotDenied("require_approval")));
    }

    #[test]
    fn no_policies_at_all_deny() {
        assert_eq!(probed(""), Ok(()));
    }

    #[test]
    fn a_denial_by_failing_is_a_failure() {
        let failing = "@id(\"fails\") forbid (principal, action, resource) when { 9223372036854775807 + context.trust.rank > 0 };";
        assert!(matches!(probed(failing), Err(ProbeFailure::Broken(text)) if text.contains("`base/fails`")));
    }

    #[test]
    fn policies_that_fit_no_registry_are_invalid() {
        let wrong = "@id(\"wrong\") permit (principal, action, resource) when { context.trsut.rank > 0 };";
        assert!(matches!(probed(wrong), Err(ProbeFailure::Invalid(_))));
    }

    #[test]
    fn policies_that_are_wrong_for_users_only_are_invalid_too() {
        for (scope, condition) in [
            ("principal", "principal is User && context.trust.rank < \"3\""),
            ("principal == User::\"ada\"", "context.trust.rank > \"x\""),
        ] {
            let wrong = format!("@id(\"wrong\") forbid ({scope}, action, resource) when {{ {condition} }};");
            assert!(matches!(probed(&wrong), Err(ProbeFailure::Invalid(_))), "{wrong}");
        }
    }
}
