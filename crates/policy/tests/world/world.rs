//! A small tenant to ask questions in: every fact of a question as a field with an unremarkable default.

#![expect(dead_code, reason = "every test binary uses a part of it")]

use model::{
    Agent, AgentId, AttributeType, Attributes, EffectiveTrust, Name, Risk, RiskTier, SlashFreeName, Sources,
    Standing, Team, TenantId, Timestamp, Tool, ToolAccess, ToolAction, Trust, Usage, User,
};
use policy::{
    BasePolicies, Diagnostics, PolicySet, Question, Registry, Ruling, RunFacts, SchemaTexts, TenantPolicy,
    Unanswerable, UserFacts,
};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

const START: Timestamp = Timestamp::from_millis(1_700_000_000_000);

/// One ask and everything around it. By default a change that a trusted source asks an ordinary agent for.
#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "the facts of a question are bools")]
pub(crate) struct World {
    pub(crate) tool: String,
    pub(crate) action: String,
    pub(crate) schema: Option<Value>,
    pub(crate) registered_as_mutating: bool,
    pub(crate) claimed_as_mutating: bool,
    pub(crate) canary: bool,
    pub(crate) risk: Risk,
    pub(crate) tier: RiskTier,
    pub(crate) trust: Trust,
    pub(crate) parameters: Value,
    pub(crate) resource: Option<String>,
    pub(crate) sensitive: bool,
    pub(crate) team: Option<Team>,
    pub(crate) user: Option<(String, Option<User>)>,
    /// The registered teams, as far as they are not the agent's.
    pub(crate) teams: imbl::OrdMap<Name, Arc<Team>>,
    pub(crate) agent_attributes: Attributes,
    pub(crate) declared: BTreeMap<Name, AttributeType>,
    pub(crate) attributes: Option<Value>,
    pub(crate) run: Option<String>,
    pub(crate) run_worst: Trust,
    pub(crate) usage: Usage,
    pub(crate) sources: Sources,
}

impl Default for World {
    fn default() -> Self {
        Self {
            tool: "github".into(),
            action: "create_issue".into(),
            schema: None,
            registered_as_mutating: true,
            claimed_as_mutating: false,
            canary: false,
            risk: Risk::Medium,
            tier: RiskTier::Low,
            trust: Trust::TrustedInternalUnsigned,
            parameters: json!({}),
            resource: None,
            sensitive: false,
            team: None,
            user: None,
            teams: imbl::OrdMap::new(),
            agent_attributes: Attributes::default(),
            declared: BTreeMap::new(),
            attributes: None,
            run: None,
            run_worst: Trust::TrustedInternalUnsigned,
            usage: Usage::default(),
            sources: Sources::default(),
        }
    }
}

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn attributes(json: Value) -> Attributes {
    serde_json::from_value(json).unwrap()
}

pub(crate) fn action(action: &str, mutates_state: bool, schema: Option<Value>) -> ToolAction {
    ToolAction {
        name: name(action),
        mutates_state,
        risk: Risk::Medium,
        input_schema: schema.map(Arc::new),
        description: None,
        pinned: None,
        held: None,
    }
}

pub(crate) fn tool(tool: &str, actions: impl IntoIterator<Item = ToolAction>) -> Tool {
    Tool {
        name: SlashFreeName::new(tool).unwrap(),
        actions: actions
            .into_iter()
            .map(|action| (action.name.clone(), action))
            .collect(),
        canary: false,
        standing: Standing::Active,
        created_at: START,
    }
}

pub(crate) fn tenant(name: &str, cedar: &str) -> TenantPolicy {
    TenantPolicy::new(SlashFreeName::new(name).unwrap(), cedar)
}

/// The shipped policies and these for a registry of these tools.
pub(crate) fn compile(tools: &[Tool], policies: &[TenantPolicy]) -> Result<PolicySet, Diagnostics> {
    let tools = tools
        .iter()
        .map(|tool| (tool.name.clone(), Arc::new(tool.clone())))
        .collect();
    let registry = Registry {
        tools: &tools,
        attributes: &BTreeMap::new(),
    };
    PolicySet::compile(&BasePolicies::shipped(), policies, registry)
}

impl World {
    pub(crate) fn tool(&self) -> Tool {
        let mut action = action(&self.action, self.registered_as_mutating, self.schema.clone());
        action.risk = self.risk;
        let mut tool = tool(&self.tool, [action]);
        tool.canary = self.canary;
        tool
    }

    pub(crate) fn compile(
        &self,
        base: &BasePolicies,
        policies: &[TenantPolicy],
    ) -> Result<PolicySet, Diagnostics> {
        let tool = self.tool();
        let tools = imbl::OrdMap::unit(tool.name.clone(), Arc::new(tool));
        let registry = Registry {
            tools: &tools,
            attributes: &self.declared,
        };
        PolicySet::compile(base, policies, registry)
    }

    /// The schema that policies are validated against.
    pub(crate) fn schema_texts(&self) -> SchemaTexts {
        let tool = self.tool();
        let tools = imbl::OrdMap::unit(tool.name.clone(), Arc::new(tool));
        let registry = Registry {
            tools: &tools,
            attributes: &self.declared,
        };
        SchemaTexts::of(registry, &|| true).unwrap()
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent {
            id: AgentId::from_bytes([7; 16]),
            tenant: TenantId::from_bytes([1; 16]),
            name: name("builder"),
            former_names: Vec::new(),
            environment: Some(name("production")),
            team: self.team.as_ref().map(|team| team.name.clone()),
            owner: None,
            risk_tier: self.tier,
            tools: ToolAccess::All,
            attributes: self.agent_attributes.clone(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            signing_keys: None,
            created_at: START,
        }
    }

    /// Puts the question to this set.
    pub(crate) fn ask(&self, set: &PolicySet) -> Result<Ruling, Unanswerable> {
        self.with_question(|question| set.rule(question))
    }

    /// Hands the question to this function.
    pub(crate) fn with_question<R>(&self, function: impl FnOnce(&Question<'_>) -> R) -> R {
        let (agent, tool) = (self.agent(), self.tool());
        let (parameters, attributes) = (
            self.parameters.to_string(),
            self.attributes.as_ref().map(Value::to_string),
        );
        function(&Question {
            agent: &agent,
            team: self.team.as_ref(),
            user: self.user.as_ref().map(|(id, user)| UserFacts {
                id,
                registered: user.as_ref(),
                teams: Some(&self.teams),
            }),
            tool: &tool,
            action: &tool.actions[self.action.as_str()],
            mutates: self.registered_as_mutating || self.claimed_as_mutating,
            resource: self.resource.as_deref(),
            parameters: &parameters,
            trust: EffectiveTrust {
                claimed: self.trust,
                level: self.trust,
                signed: self.trust == Trust::TrustedInternalSigned,
            },
            contains_sensitive_data: self.sensitive,
            attributes: attributes.as_deref(),
            run: self.run.as_deref().map(|id| RunFacts {
                id,
                worst: self.run_worst,
            }),
            usage: Some(&self.usage),
            sources: Some(&self.sources),
            vouched: None,
            now: START,
            fuel: None,
        })
    }

    /// The ruling of the shipped policies together with this text as the policy `mine`.
    pub(crate) fn ruled_with(&self, cedar: &str) -> Ruling {
        let set = self
            .compile(&BasePolicies::shipped(), &[tenant("mine", cedar)])
            .unwrap();
        self.ask(&set).unwrap()
    }

    /// The ruling of the shipped policies alone.
    pub(crate) fn ruled(&self) -> Ruling {
        self.ruled_with("")
    }

    /// The ruling of this text alone, as the policy `mine`.
    pub(crate) fn ruled_only_with(&self, cedar: &str) -> Ruling {
        let base = BasePolicies::parse("").unwrap();
        self.ask(&self.compile(&base, &[tenant("mine", cedar)]).unwrap())
            .unwrap()
    }
}

/// The ids of the policies that matched, as text.
pub(crate) fn matched(ruling: &Ruling) -> Vec<&str> {
    ruling.matched.iter().map(policy::PolicyId::as_str).collect()
}

/// The obligations, as text.
pub(crate) fn obligations(ruling: &Ruling) -> Vec<String> {
    ruling.obligations.iter().map(ToString::to_string).collect()
}
