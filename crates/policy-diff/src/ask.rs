//! An ask in full: everything that policies can see of it, in the words of people. It is what a counterexample is shown as,
//! and what is put to both sets before it is shown.

use imbl::OrdMap;
use model::{
    Agent, AgentId, Attributes, EffectiveTrust, Name, RiskTier, Sources, Standing, Team, TenantId, Timestamp,
    ToolAccess, Trust, Usage, User,
};
use policy::{ActionSide, Part, PolicySet, Question, Registry, Ruling, RunFacts, UserFacts};
use serde_json::{Map, Number, Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// An ask.
#[derive(Debug, Clone)]
pub(crate) struct Ask {
    pub(crate) side: ActionSide,
    pub(crate) agent: Agent,
    pub(crate) team_attributes: Attributes,
    pub(crate) user: Option<User>,
    /// The teams of the user.
    pub(crate) user_teams: OrdMap<Name, Arc<Team>>,
    pub(crate) resource: String,
    pub(crate) parameters: Map<String, Value>,
    pub(crate) trust: EffectiveTrust,
    pub(crate) sensitive: bool,
    pub(crate) attributes: Map<String, Value>,
    pub(crate) run: Option<String>,
    pub(crate) run_worst: Trust,
    pub(crate) usage: Usage,
    pub(crate) sources: Sources,
    pub(crate) now: Timestamp,
}

/// The integer furthest from zero that a caller can send and policies can see.
const SENT_MAX: i64 = 9_223_372_036_854_775_000;

/// An agent with nothing remarkable about it.
pub(crate) fn plain_agent(now: Timestamp) -> Agent {
    Agent {
        id: AgentId::from_bytes([0; 16]),
        tenant: TenantId::SYSTEM,
        name: Name::new("agent").expect("a plain word is a name"),
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
        created_at: now,
    }
}

/// Trust that is claimed, and counts as claimed.
pub(crate) const fn plain_trust(level: Trust) -> EffectiveTrust {
    EffectiveTrust {
        claimed: level,
        level,
        signed: matches!(level, Trust::TrustedInternalSigned),
    }
}

impl Ask {
    /// What these policies say to it; `None` if it does not fit the registry.
    pub(crate) fn put(&self, set: &PolicySet, registry: Registry<'_>) -> Option<Ruling> {
        self.with_question(registry, |question| set.rule_by_types(question).ok())?
    }

    /// Hands the ask to this function as a question; `None` if the registry does not have the action.
    pub(crate) fn with_question<R>(
        &self,
        registry: Registry<'_>,
        function: impl FnOnce(&Question<'_>) -> R,
    ) -> Option<R> {
        let tool = registry.tools.get(&self.side.tool)?;
        let action = tool.actions.get(&self.side.action)?;
        let team = self.agent.team.clone().map(|name| Team {
            name,
            attributes: self.team_attributes.clone(),
            quotas: Vec::new(),
        });
        let user = self.user.as_ref().map(|user| UserFacts {
            id: user.name.as_str(),
            registered: Some(user),
            teams: Some(&self.user_teams),
        });
        let parameters = json!(self.parameters).to_string();
        let attributes = json!(self.attributes).to_string();
        Some(function(&Question {
            agent: &self.agent,
            team: team.as_ref(),
            user,
            tool,
            action,
            mutates: self.side.mutates,
            resource: Some(&self.resource),
            parameters: &parameters,
            trust: self.trust,
            contains_sensitive_data: self.sensitive,
            attributes: Some(&attributes),
            run: self.run.as_deref().map(|id| RunFacts {
                id,
                worst: self.run_worst,
            }),
            usage: Some(&self.usage),
            sources: Some(&self.sources),
            vouched: None,
            now: self.now,
            fuel: None,
        }))
    }

    /// Makes every integer the closest one that a caller can send.
    pub(crate) fn round(&mut self) {
        for members in [&mut self.parameters, &mut self.attributes] {
            members.values_mut().for_each(round);
        }
    }

    /// Whether a caller can send its integers: the gateway refuses those that canonical JSON writes with other digits.
    pub(crate) fn can_be_sent(&self) -> bool {
        let mut sent = self.clone();
        sent.round();
        (&sent.parameters, &sent.attributes) == (&self.parameters, &self.attributes)
    }

    /// The ask as it is shown, without what is not there, and without parameters where no policy looks at them.
    pub(crate) fn shown(&self, policies: &[Part<'_>]) -> Value {
        let agent = &self.agent;
        let mut shown = json!({
            "agent": {
                "id": agent.id, "name": agent.name, "environment": agent.environment, "team": agent.team,
                "owner": agent.owner, "risk_tier": agent.risk_tier, "attributes": agent.attributes,
            },
            "team": {"attributes": self.team_attributes},
            "user": self.user.as_ref().map(|user| {
                let teams = self.user_teams.values();
                let tags = teams.filter(|team| team.attributes != Attributes::default());
                let tags: BTreeMap<_, _> = tags.map(|team| (&team.name, &team.attributes)).collect();
                json!({
                    "id": user.name, "teams": user.teams, "team_attributes": tags, "attributes": user.attributes,
                })
            }),
            "tool_call": {
                "tool": self.side.tool, "action": self.side.action, "mutates_state": self.side.mutates,
                "resource": self.resource, "parameters": self.parameters,
            },
            "context": {
                "trust": {
                    "claimed": self.trust.claimed, "level": self.trust.level, "signed": self.trust.signed,
                },
                "contains_sensitive_data": self.sensitive, "attributes": self.attributes,
                "sources": self.sources,
            },
            "run_id": self.run,
            "run_worst": self.run.as_ref().map(|_| self.run_worst),
            "usage": self.usage,
            "now": self.now.to_string(),
        });
        if !policies.iter().any(Part::looks_at_parameters) {
            shown["tool_call"]["parameters"] = Value::Null;
        }
        if self.resource.is_empty() {
            shown["tool_call"]["resource"] = Value::Null;
        }
        prune(&mut shown);
        shown
    }
}

fn round(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(round),
        Value::Array(items) => items.iter_mut().for_each(round),
        Value::Number(number) if number.is_i64() => *number = sent(number),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The integer that is written for the double closest to this one.
fn sent(integer: &Number) -> Number {
    let text = integer.to_string();
    let double: f64 = text.parse().expect("an integer is a number");
    let beyond = if double < 0.0 { -SENT_MAX } else { SENT_MAX };
    Number::from(double.to_string().parse().unwrap_or(beyond))
}

/// Takes away what is null and what is empty, but for texts.
fn prune(value: &mut Value) {
    let Value::Object(members) = value else { return };
    for (name, member) in members.iter_mut() {
        // What a caller sends is shown as it is.
        if name != "parameters" {
            prune(member);
        }
    }
    members.retain(|_, member| match member {
        Value::Null => false,
        Value::Object(members) => !members.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => true,
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_integer_is_sent_as_the_closest_one_that_a_double_is_written_as() {
        for (integer, expected) in [
            (0, 0),
            (-7, -7),
            (9_007_199_254_740_991, 9_007_199_254_740_991),
            (9_007_199_254_740_993, 9_007_199_254_740_992),
            (-9_007_199_254_740_993, -9_007_199_254_740_992),
            (1_152_921_504_606_846_976, 1_152_921_504_606_847_000),
            (1_000_000_000_000_000_000, 1_000_000_000_000_000_000),
            (SENT_MAX, SENT_MAX),
            (i64::MAX, SENT_MAX),
            (i64::MIN, -SENT_MAX),
        ] {
            assert_eq!(sent(&Number::from(integer)), Number::from(expected), "{integer}");
        }
        let mut value = json!({"a": [9_007_199_254_740_993_i64, 0.5, "x", null], "b": {"c": true}});
        round(&mut value);
        assert_eq!(
            value,
            json!({"a": [9_007_199_254_740_992_i64, 0.5, "x", null], "b": {"c": true}})
        );
    }
}
