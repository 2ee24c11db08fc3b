//! The demo that is served: a tenant with an agent and a tool, and a curl that asks for a decision.
//!
//! It goes the way every change goes, so all of it is in the ledger. Started again on the same store it only makes a new
//! token, because the old one was never stored.

pub mod runaway;

use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::listeners::Address;
use anyhow::{Context, anyhow};
use canon::Digest;
use engine::EntryKind;
use model::{
    Agent, AgentId, AgentToken, ApiKey, Attributes, Directory, KeyId, Name, Noun, RiskTier, Role, Secret,
    SecretKind, Settings, SlashFreeName, Standing, Tenant, TenantId, Timestamp, TokenId, Tool, ToolAccess,
    Write,
};
use serde_json::json;
use std::sync::Arc;

const TENANT: &str = "demo";
const AGENT: &str = "demo-agent";
/// What the demo registers: reads, a mutation, and one that needs approval.
const TOOL: &str = r#"{
    "name": "github", "status": "active", "created_at": "1970-01-01T00:00:00.000Z",
    "actions": {
        "get_file": {"name": "get_file", "mutates_state": false, "risk": "low",
            "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}},
        "create_issue": {"name": "create_issue", "mutates_state": true, "risk": "medium",
            "input_schema": {"type": "object", "properties": {"title": {"type": "string"}}, "required": ["title"]}},
        "merge_pull_request": {"name": "merge_pull_request", "mutates_state": true, "risk": "high",
            "input_schema": {"type": "object", "required": ["number"], "properties":
                {"number": {"type": "integer"}, "base_branch": {"type": "string"}}}}
    }
}"#;

/// Makes the demo and returns what to print.
pub async fn set_up(gateway: &Gateway, address: &Address) -> anyhow::Result<String> {
    let key = demo_key(gateway);
    let tenant = ensure_tenant(gateway, &key).await?;
    let agent = ensure_agent(gateway, &key, tenant).await?;
    let token = make_token(gateway, &key, tenant, agent).await?;
    Ok(instructions(address, tenant, token.reveal()))
}

/// In whose name the demo is made: a key that is never stored and opens nothing.
fn demo_key(gateway: &Gateway) -> ApiKey {
    let now = gateway.clock.now();
    ApiKey {
        id: KeyId::new(now, &*gateway.entropy),
        tenant: TenantId::SYSTEM,
        name: Name::new("serve --demo").expect("plain words are a name"),
        role: Role::Operator,
        user: None,
        digest: Digest::of(b""),
        created_at: now,
        expires_at: None,
    }
}

async fn ensure_tenant(gateway: &Gateway, key: &ApiKey) -> anyhow::Result<TenantId> {
    let existing = {
        let snapshot = gateway.snapshot.load();
        let mut tenants = snapshot.tenants();
        tenants
            .find(|(_, tenant)| {
                let tenant = &tenant.directory.tenant;
                tenant.name.as_str() == TENANT && tenant.deleted_at.is_none()
            })
            .map(|(id, _)| *id)
    };
    if let Some(id) = existing {
        return Ok(id);
    }
    let now = gateway.clock.now();
    let tenant = Tenant {
        id: TenantId::new(now, &*gateway.entropy),
        name: Name::new(TENANT)?,
        settings: Settings::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        created_at: now,
        deleted_at: None,
    };
    let id = tenant.id;
    gateway
        .create_tenant(key, &Arc::new(tenant))
        .await
        .map_err(|refusal| anyhow!(refusal.detail().to_owned()))?;
    Ok(id)
}

async fn ensure_agent(gateway: &Gateway, key: &ApiKey, tenant: TenantId) -> anyhow::Result<AgentId> {
    let tool: Arc<Tool> = Arc::new(serde_json::from_str(TOOL).context("the demo tool is written right")?);
    let new_id = AgentId::new(gateway.clock.now(), &*gateway.entropy);
    change(gateway, key, tenant, |directory, now| {
        if directory.tools.contains_key(tool.name.as_str()) {
            return Plan::nothing(());
        }
        let tool = Arc::new(Tool {
            created_at: now,
            ..(*tool).clone()
        });
        Plan {
            kind: EntryKind::ToolPut,
            facts: json!({"tool": *tool}),
            writes: vec![Write::Put(Noun::Tool(tool))],
            answer: (),
        }
    })
    .await?;
    change(gateway, key, tenant, |directory, now| {
        if let Some(agent) = directory.agent_named(AGENT) {
            return Plan::nothing(agent.id);
        }
        let agent = Arc::new(demo_agent(new_id, tenant, &tool.name, now));
        Plan {
            kind: EntryKind::AgentCreated,
            facts: json!({"agent": *agent}),
            writes: vec![Write::Put(Noun::Agent(agent))],
            answer: new_id,
        }
    })
    .await
}

fn demo_agent(id: AgentId, tenant: TenantId, tool: &SlashFreeName, now: Timestamp) -> Agent {
    Agent {
        id,
        tenant,
        name: Name::new(AGENT).expect("plain words are a name"),
        former_names: Vec::new(),
        environment: None,
        team: None,
        owner: None,
        risk_tier: RiskTier::Low,
        tools: ToolAccess::Granted([tool.clone()].into()),
        attributes: Attributes::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        signing_keys: None,
        created_at: now,
    }
}

async fn make_token(
    gateway: &Gateway,
    key: &ApiKey,
    tenant: TenantId,
    agent: AgentId,
) -> anyhow::Result<Secret> {
    let secret = Secret::mint(SecretKind::AgentToken, &*gateway.entropy);
    let id = TokenId::new(gateway.clock.now(), &*gateway.entropy);
    change(gateway, key, tenant, |_, now| {
        let token = AgentToken {
            id,
            agent,
            digest: secret.digest(),
            created_at: now,
            expires_at: None,
        };
        Plan {
            kind: EntryKind::TokenCreated,
            facts: json!({"agent": agent, "id": id}),
            writes: vec![Write::Put(Noun::Token(Arc::new(token)))],
            answer: (),
        }
    })
    .await?;
    Ok(secret)
}

async fn change<T>(
    gateway: &Gateway,
    key: &ApiKey,
    tenant: TenantId,
    plan: impl Fn(&Directory, Timestamp) -> Plan<T>,
) -> anyhow::Result<T> {
    let changed = gateway
        .change_tenant(tenant, key, |directory, now| Ok(plan(directory, now)))
        .await;
    changed.map_err(|refusal| anyhow!(refusal.detail().to_owned()))
}

fn instructions(address: &Address, tenant: TenantId, token: &str) -> String {
    let reached = match address {
        Address::Tcp(address) => format!("http://{address}"),
        Address::Unix(path) => format!("--unix-socket '{}' http://localhost", path.display()),
    };
    format!(
        r#"demo tenant: {tenant}
demo agent token (shown once): {token}

Ask for a decision:

curl -sS {reached}/v1/authorize \
  -H 'Authorization: Bearer {token}' \
  -H 'Content-Type: application/json' \
  -d '{{"tool_call":{{"tool":"github","action":"merge_pull_request","resource":"repo:acme/widgets#42","parameters":{{"base_branch":"main","number":42}}}},"context":{{"source_trust":"trusted_internal_unsigned"}}}}'
"#
    )
}
