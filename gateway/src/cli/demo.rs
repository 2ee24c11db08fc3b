//! The demo that is served: a tenant with an agent and a tool, and a curl that asks for a decision.
//!
//! It goes the way every change goes, so all of it is in the ledger. Started again on the same store it only makes a new
//! token, because the old one was never stored. Tokens of earlier starts go on working for a while: another gateway may
//! have shown them, or somebody may use one still.

pub mod runaway;

use crate::changes::Plan;
use crate::directory::tokens;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use crate::listeners::Address;
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
/// How long a token of the demo works, in milliseconds: a week.
const TOKEN_MILLIS: i64 = 7 * 24 * 60 * 60 * 1_000;
/// How many tokens of the demo work at once. An agent may have some times as many, so that admins find room for theirs.
const TOKENS_MAX: usize = 8;
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
pub async fn set_up(gateway: &Gateway, address: &Address) -> Result<String, Refusal> {
    let key = demo_key(gateway);
    let tenant = ensure_tenant(gateway, &key).await?;
    let agent = ensure_agent(gateway, &key, tenant).await?;
    make_room(gateway, &key, tenant, agent).await?;
    match make_token(gateway, &key, tenant, agent).await {
        Ok(token) => Ok(instructions(address, tenant, token.reveal())),
        // Somebody has revoked the agent, or given it as many tokens as it may have. That is no reason not to start.
        Err(refusal) if matches!(refusal.code(), Code::RevokedForGood | Code::Conflict) => {
            Ok(no_instructions(tenant, refusal.detail()))
        }
        Err(refusal) => Err(refusal),
    }
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

async fn ensure_tenant(gateway: &Gateway, key: &ApiKey) -> Result<TenantId, Refusal> {
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
        name: Name::new(TENANT).expect("a plain word is a name"),
        settings: Settings::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        created_at: now,
        deleted_at: None,
    };
    let id = tenant.id;
    gateway.create_tenant(key, &Arc::new(tenant)).await?;
    Ok(id)
}

async fn ensure_agent(gateway: &Gateway, key: &ApiKey, tenant: TenantId) -> Result<AgentId, Refusal> {
    let tool: Arc<Tool> = Arc::new(serde_json::from_str(TOOL).expect("the demo tool is written right"));
    let new_id = AgentId::new(gateway.clock.now(), &*gateway.entropy);
    change(gateway, key, tenant, |directory, now| {
        if directory.tools.contains_key(tool.name.as_str()) {
            return Plan::nothing(());
        }
        let tool = Arc::new(Tool {
            created_at: now,
            ..(*tool).clone()
        });
        Plan::Change {
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
        Plan::Change {
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

/// Deletes the oldest tokens of earlier starts where there is no room for one more.
async fn make_room(gateway: &Gateway, key: &ApiKey, tenant: TenantId, agent: AgentId) -> Result<(), Refusal> {
    let delete_one = || {
        change(gateway, key, tenant, |directory, now| {
            match oldest_of_too_many(directory, agent, now) {
                Some(token) => tokens::remove(token, true),
                None => Plan::nothing(false),
            }
        })
    };
    while delete_one().await? {}
    Ok(())
}

/// The oldest token of earlier starts, if as many of them work as may.
fn oldest_of_too_many(directory: &Directory, agent: AgentId, now: Timestamp) -> Option<&Arc<AgentToken>> {
    let works = |token: &&Arc<AgentToken>| is_of_a_start(token) && !token.has_expired(now);
    // Ids are in the order of time, and tokens in that of their ids.
    let working: Vec<_> = directory.tokens_of(agent).filter(works).collect();
    working.first().copied().filter(|_| working.len() >= TOKENS_MAX)
}

/// Whether the demo has made this token. Nobody else says to the millisecond that one ends a week after it was made.
fn is_of_a_start(token: &AgentToken) -> bool {
    token.expires_at == Some(token.created_at.plus_millis(TOKEN_MILLIS))
}

/// Makes a token for the agent, as an admin would: a revoked one gets none, nor does one that has too many.
async fn make_token(
    gateway: &Gateway,
    key: &ApiKey,
    tenant: TenantId,
    agent: AgentId,
) -> Result<Secret, Refusal> {
    let secret = Secret::mint(SecretKind::AgentToken, &*gateway.entropy);
    let id = TokenId::new(gateway.clock.now(), &*gateway.entropy);
    let made = gateway.change_tenant(tenant, key, |directory, now| {
        let token = AgentToken {
            id,
            agent,
            digest: secret.digest(),
            created_at: now,
            expires_at: Some(now.plus_millis(TOKEN_MILLIS)),
        };
        tokens::mint(directory, token)
    });
    made.await?;
    Ok(secret)
}

async fn change<T>(
    gateway: &Gateway,
    key: &ApiKey,
    tenant: TenantId,
    plan: impl Fn(&Directory, Timestamp) -> Plan<T>,
) -> Result<T, Refusal> {
    gateway
        .change_tenant(tenant, key, |directory, now| Ok(plan(directory, now)))
        .await
}

/// What is printed where the agent gets no token.
fn no_instructions(tenant: TenantId, why: &str) -> String {
    format!("demo tenant: {tenant}\nthere is no token for the demo's agent, `{AGENT}`: {why}\n")
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
