//! A tenant with an auditor, two agents and a tool, and the asks they make.

use super::{Reply, World};
use canon::Digest;
use engine::EntryKind;
use gateway::changes::Plan;
use ledger::NewEntry;
use model::{
    Agent, AgentId, AgentToken, ApiKey, Attributes, KeyId, Name, Noun, RiskTier, Role, Secret, SecretKind,
    Settings, Standing, SystemEntropy, Tenant, TenantId, TokenId, Tool, ToolAccess, Write,
};
use serde_json::{Value, json};
use std::sync::Arc;
use store::conformance::commit;
use store::{Advance, Batch, EntryRow};

/// A tool that reads and writes.
const TOOL: &str = r#"{
    "name": "github", "status": "active", "created_at": "2026-01-31T09:30:00.000Z",
    "actions": {
        "get_file": {"name": "get_file", "mutates_state": false, "risk": "low"},
        "create_issue": {"name": "create_issue", "mutates_state": true, "risk": "medium"},
        "merge_pull_request": {"name": "merge_pull_request", "mutates_state": true, "risk": "high"}
    }
}"#;

/// How many entries the ledger of a new tenancy has.
pub(crate) const ENTRIES: u64 = 7;

/// A tenant and the credentials in it.
pub(crate) struct Tenancy {
    pub(crate) id: TenantId,
    pub(crate) auditor: String,
    pub(crate) agent: AgentId,
    pub(crate) token: String,
    pub(crate) other_agent: AgentId,
    pub(crate) other_token: String,
}

impl World {
    /// A new tenant.
    pub(crate) async fn tenancy(&self, name: &str) -> Tenancy {
        let now = self.now();
        let tenant = Tenant {
            id: TenantId::new(now, &SystemEntropy),
            name: Name::new(name).unwrap(),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            created_at: now,
            deleted_at: None,
        };
        let id = tenant.id;
        self.gateway
            .create_tenant(&self.key(TenantId::SYSTEM, Role::Operator).0, &Arc::new(tenant))
            .await
            .unwrap();
        let auditor = self.add_key(id, Role::Auditor).await;
        let tool: Tool = serde_json::from_str(TOOL).unwrap();
        self.put(id, EntryKind::ToolPut, Noun::Tool(Arc::new(tool))).await;
        let (agent, token) = self.add_agent(id, "builder").await;
        let (other_agent, other_token) = self.add_agent(id, "reviewer").await;
        Tenancy {
            id,
            auditor,
            agent,
            token,
            other_agent,
            other_token,
        }
    }

    /// A new key with this role.
    pub(crate) async fn add_key(&self, tenant: TenantId, role: Role) -> String {
        let (key, secret) = self.key(tenant, role);
        self.put(tenant, EntryKind::KeyCreated, Noun::Key(Arc::new(key)))
            .await;
        secret
    }

    async fn add_agent(&self, tenant: TenantId, name: &str) -> (AgentId, String) {
        let now = self.now();
        let agent = Agent {
            id: AgentId::new(now, &SystemEntropy),
            tenant,
            name: Name::new(name).unwrap(),
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
        };
        let id = agent.id;
        self.put(tenant, EntryKind::AgentCreated, Noun::Agent(Arc::new(agent)))
            .await;
        let secret = Secret::mint(SecretKind::AgentToken, &SystemEntropy);
        let token = AgentToken {
            id: TokenId::new(now, &SystemEntropy),
            agent: id,
            digest: secret.digest(),
            created_at: now,
            expires_at: None,
        };
        self.put(tenant, EntryKind::TokenCreated, Noun::Token(Arc::new(token)))
            .await;
        (id, secret.reveal().to_owned())
    }

    /// Registers the tool anew. The record of what `get_file` is has this description, and decisions about that name the record.
    pub(crate) async fn describe(&self, tenant: TenantId, description: &str) {
        let mut tool: Value = serde_json::from_str(TOOL).unwrap();
        tool["actions"]["get_file"]["input_schema"] = json!({"type": "object", "description": description});
        let tool: Tool = serde_json::from_value(tool).unwrap();
        self.put(tenant, EntryKind::ToolPut, Noun::Tool(Arc::new(tool)))
            .await;
    }

    async fn put(&self, tenant: TenantId, kind: EntryKind, noun: Noun) {
        let key = self.key(tenant, Role::Admin).0;
        let plan = |_: &_, _| {
            Ok(Plan::Change {
                kind,
                facts: json!({}),
                writes: vec![Write::Put(noun.clone())],
                answer: (),
            })
        };
        self.gateway.change_tenant(tenant, &key, plan).await.unwrap();
    }

    fn key(&self, tenant: TenantId, role: Role) -> (ApiKey, String) {
        let secret = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        let key = ApiKey {
            id: KeyId::new(self.now(), &SystemEntropy),
            tenant,
            name: Name::new("test").unwrap(),
            role,
            user: None,
            digest: Digest::of(secret.reveal().as_bytes()),
            created_at: self.now(),
            expires_at: None,
        };
        (key, secret.reveal().to_owned())
    }

    /// Appends an entry to a ledger, as whoever can write the database can: everything in it fits, and nothing but
    /// itself says why it is there. Returns its place.
    pub(crate) async fn append(&self, tenant: TenantId, kind: &'static str, body: &Value) -> u64 {
        self.append_all(tenant, kind, std::slice::from_ref(body)).await
    }

    /// The same with several entries of a kind, in one commit. Returns the place of the last one.
    pub(crate) async fn append_all(&self, tenant: TenantId, kind: &'static str, bodies: &[Value]) -> u64 {
        let mut tip = self.store.tip(tenant).await.unwrap();
        let from = tip.head();
        // No time is before that of the entry before.
        let last = self.store.entries(tenant, from.seq, 1).await.unwrap();
        let at = last.iter().map(|entry| entry.at).fold(self.now(), Ord::max);
        let (tenant_text, at_text) = (tenant.to_string(), at.to_string());
        let rows = bodies.iter().map(|body| {
            let body = canon::of(body).unwrap();
            let body_digest = body.digest();
            let entry = NewEntry {
                tenant: &tenant_text,
                kind,
                at: &at_text,
                body: body_digest,
            };
            let appended = tip.append(&entry, &mut String::new());
            EntryRow {
                tenant,
                seq: appended.head.seq,
                kind,
                at,
                prev: appended.prev,
                hash: appended.head.hash,
                body,
                body_digest,
                nodes: appended.completed,
            }
        });
        let entries: Vec<EntryRow> = rows.collect();
        let seq = tip.head().seq;
        let advance = Advance {
            tenant,
            from,
            to: tip,
            revision: self.gateway.tenant(tenant).unwrap().revision,
        };
        let batch = Batch {
            advances: vec![advance],
            entries,
            ..Batch::default()
        };
        commit(&*self.store, &batch).await;
        seq
    }

    fn now(&self) -> model::Timestamp {
        self.gateway.clock.now()
    }

    /// An ask, and the answer to it.
    pub(crate) async fn authorize(&self, token: &str, ask: &Value) -> Reply {
        let reply = self.post("/v1/authorize", token, ask).await;
        reply.expect(200);
        reply
    }
}

/// An ask for an action of the tool.
pub(crate) fn ask(action: &str, trust: &str) -> Value {
    json!({
        "tool_call": {"tool": "github", "action": action, "resource": "repo:acme/widgets", "parameters": {}},
        "context": {"source_trust": trust},
        "trace": {"run_id": format!("run-{action}")},
    })
}

/// It is allowed.
pub(crate) fn reading() -> Value {
    ask("get_file", "untrusted_external")
}

/// It is denied.
pub(crate) fn injected() -> Value {
    ask("create_issue", "untrusted_external")
}

/// It needs approval.
pub(crate) fn merging() -> Value {
    ask("merge_pull_request", "semi_trusted_customer")
}
