//! A tenant with an agent and a tool, and asks of it: what the tests of the engine begin with.

use canon::{Canonical, Limits, canonicalize};
use engine::proposal::Intent;
use engine::{
    Ask, Books, Decided, Judgement, NamedRequest, Proposal, ProposedDecision, Records, RepeatRule, Snapshot,
    TenantSnapshot,
};
use ledger::{SignatureKind, SigningKey};
use model::{
    Agent, AgentId, Attributes, DecisionId, Directory, Name, Noun, RiskTier, Settings, SlashFreeName,
    Standing, Tenant, TenantId, Timestamp, Tool, ToolAccess, Write,
};
use policy::{BasePolicies, Compiler, PolicySet, Registry};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::Arc;
use store::ChainPosition;
use store::RequestKey;

pub(crate) const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
pub(crate) const TENANT: TenantId = TenantId::from_bytes([1; 16]);
pub(crate) const AGENT: AgentId = AgentId::from_bytes([2; 16]);

/// The key that signs answers.
pub(crate) fn signing_key() -> SigningKey {
    SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]).unwrap()
}

pub(crate) fn agent() -> Agent {
    Agent {
        id: AGENT,
        tenant: TENANT,
        name: Name::new("builder").unwrap(),
        former_names: Vec::new(),
        environment: Some(Name::new("production").unwrap()),
        team: None,
        owner: None,
        risk_tier: RiskTier::Low,
        tools: ToolAccess::Granted([SlashFreeName::new("github").unwrap()].into()),
        attributes: Attributes::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        signing_keys: None,
        created_at: NOW,
    }
}

/// A tool with a read, a mutation and a mutation whose parameters have a schema.
pub(crate) fn tool(name: &str) -> Tool {
    serde_json::from_value(json!({
        "name": name, "status": "active", "created_at": NOW,
        "actions": {
            "read": {"name": "read", "mutates_state": false, "risk": "low"},
            "write": {"name": "write", "mutates_state": true, "risk": "high"},
            "count": {"name": "count", "mutates_state": false, "risk": "low", "input_schema":
                {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}
        }
    }))
    .unwrap()
}

pub(crate) fn tenant_with(agent: Agent, tools: impl IntoIterator<Item = Tool>) -> TenantSnapshot {
    let mut directory = Directory::new(Arc::new(Tenant {
        id: TENANT,
        name: Name::new("acme").unwrap(),
        settings: Settings::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        created_at: NOW,
        deleted_at: None,
    }));
    directory.apply(&Write::Put(Noun::Agent(Arc::new(agent))));
    for tool in tools {
        directory.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
    }
    let registry = Registry {
        tools: &directory.tools,
        attributes: &directory.tenant.settings.context_attributes,
    };
    let policies = PolicySet::compile(&BasePolicies::shipped(), &[], registry).unwrap();
    TenantSnapshot::new(directory, Arc::new(policies), 7)
}

pub(crate) fn tenant() -> TenantSnapshot {
    tenant_with(agent(), [tool("github")])
}

pub(crate) fn books(tenant: TenantSnapshot) -> Books {
    let revision = tenant.revision;
    let compiler = Arc::new(Compiler::new(BasePolicies::shipped()));
    let mut snapshot = Snapshot::new(compiler);
    snapshot.insert(tenant);
    let position = ChainPosition {
        revision,
        ..ChainPosition::GENESIS
    };
    Books::new(snapshot, HashMap::from([(TENANT, position)]))
}

pub(crate) fn canonical(value: &Value) -> Canonical {
    let limits = Limits {
        bytes_max: 1 << 20,
        depth_max: 64,
    };
    canonicalize(value.to_string().as_bytes(), limits).unwrap()
}

/// The JSON of an ask for `github/<action>` from a trusted source, with these members on top.
pub(crate) fn ask_json(action: &str, members: Value) -> Value {
    let mut ask = json!({
        "tool_call": {"tool": "github", "action": action, "parameters": {}},
        "context": {"source_trust": "trusted_internal_unsigned"}
    });
    for (key, value) in members.as_object().unwrap() {
        match ask.get_mut(key) {
            Some(Value::Object(inner)) => inner.extend(value.as_object().unwrap().clone()),
            _ => ask[key] = value.clone(),
        }
    }
    ask
}

pub(crate) fn ask(action: &str, members: Value) -> Ask {
    Ask::parse(&canonical(&ask_json(action, members))).unwrap()
}

/// The proposal for an ask that was judged in this tenant.
pub(crate) fn proposal(
    tenant: &TenantSnapshot,
    ask: &Ask,
    judgement: &Judgement,
    id: u8,
    repeat: RepeatRule,
) -> Proposal {
    let agent = tenant.directory.agents[&AGENT].clone();
    let decided = Decided {
        id: DecisionId::from_bytes([id; 16]),
        ask,
        agent: &agent,
        judgement,
        tenant,
        approval: None,
        budget: None,
        now: NOW,
        salt: engine::Salt::from_bytes([7; 12]),
    };
    let request = ask.request_id.clone().map(|request_id| NamedRequest {
        key: RequestKey {
            tenant: TENANT,
            agent: AGENT,
            request_id,
        },
        ask: ask.digest,
        repeat,
    });
    Proposal {
        tenant: TENANT,
        revision: tenant.revision,
        base: tenant.policies.base_digest(),
        intent: Intent::Decision(Box::new(ProposedDecision {
            records: Records::Worded(decided.word()),
            id: decided.id,
            agent: AGENT,
            tool: ask.action.tool.clone().into(),
            action: ask.action.action.clone(),
            run_id: ask.run_id.clone(),
            request,
            approval: None,
            sighting: None,
            quotas: Vec::new(),
            quarantine: judgement.quarantine.clone(),
            shadow: judgement.shadow.as_ref().map(|shadow| shadow.reason.verdict()),
            contents: decided.contents(|_| false),
        })),
    }
}
