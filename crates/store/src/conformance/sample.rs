//! Batches to try a store with: chains that grow, with everything in them that a real batch has.
//!
//! Entries are linked as the ledger links them; what their bodies say is made up, because a store does not look into them.

use crate::{Advance, Batch, ContentRow, DecisionRow, EntryRow, OutcomeRow, RequestKey};
use canon::{Canonical, Digest};
use ledger::merkle::Frontier;
use ledger::{Head, NewEntry, Tip};
use model::approval::{Request, Voter};
use model::standing::Standing;
use model::{
    Agent, AgentId, Approval, ApprovalId, ApprovalTerms, DecisionId, Name, Noun, ReasonCode, RiskTier,
    Settings, Tenant, TenantId, Timestamp, ToolAccess, Trust, Write,
};
use std::sync::Arc;

/// A name.
pub fn name(text: &str) -> Name {
    Name::new(text).expect("samples have good names")
}

/// The agent with this number.
pub fn agent_id(number: u8) -> AgentId {
    AgentId::from_bytes([number; 16])
}

/// An agent as a noun.
pub fn agent(tenant: TenantId, number: u8, called: &str) -> Noun {
    Noun::Agent(Arc::new(Agent {
        id: agent_id(number),
        tenant,
        name: name(called),
        former_names: Vec::new(),
        environment: None,
        team: Some(name("platform")),
        owner: None,
        risk_tier: RiskTier::default(),
        tools: ToolAccess::All,
        attributes: model::Attributes::default(),
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        signing_keys: None,
        created_at: Timestamp::from_millis(1),
    }))
}

/// One ask, as far as a store cares. [`Default`] is an allowed one without a request id.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Who asks.
    pub agent: AgentId,
    /// For which tool.
    pub tool: &'static str,
    /// For which action.
    pub action: &'static str,
    /// What is answered.
    pub reason: ReasonCode,
    /// In which run.
    pub run_id: Option<&'static str>,
    /// Under which request id.
    pub request_id: Option<String>,
    /// When it is recorded.
    pub at: Timestamp,
    /// Something that the body holds.
    pub text: String,
}

impl Default for Ask {
    fn default() -> Self {
        Self {
            agent: agent_id(1),
            tool: "github",
            action: "merge_pull_request",
            reason: ReasonCode::PolicyPermits,
            run_id: None,
            request_id: None,
            at: Timestamp::from_millis(1_700_000_000_000),
            text: String::new(),
        }
    }
}

impl Ask {
    /// The default one under this request id.
    pub fn named(request_id: &str) -> Self {
        Self {
            request_id: Some(request_id.to_owned()),
            ..Self::default()
        }
    }

    /// The digest that stands for the ask.
    pub fn digest(&self) -> Digest {
        Digest::of(self.request_id.as_deref().unwrap_or("").as_bytes())
    }
}

/// A tenant's chain as it is being written. Clone it before a commit that may fail.
#[derive(Debug, Clone)]
pub struct Chain {
    /// Whose.
    pub tenant: TenantId,
    /// Where it ends, chain and tree.
    pub tip: Tip,
    /// The revision of the directory.
    pub revision: u64,
}

impl Chain {
    /// A chain that has not begun.
    pub const fn new(number: u8) -> Self {
        Self {
            tenant: TenantId::from_bytes([number; 16]),
            tip: Tip::GENESIS,
            revision: 0,
        }
    }

    /// Where the chain ends.
    pub const fn head(&self) -> Head {
        self.tip.head()
    }

    /// This chain in the eyes of somebody who believes that it ends there.
    #[must_use]
    pub fn believed_at(&self, head: Head) -> Self {
        let subtrees = vec![Digest::ZERO; head.seq.count_ones() as usize];
        let tip = Frontier::new(head.seq, subtrees).and_then(|tree| Tip::new(head, tree));
        Self {
            tip: tip.expect("there is a hash for each bit of the size"),
            ..self.clone()
        }
    }

    /// Adds an entry to a batch.
    pub fn entry(&mut self, batch: &mut Batch, kind: &'static str, at: Timestamp, body: Canonical) {
        let before = self.head();
        let body_digest = body.digest();
        let new = NewEntry {
            tenant: &self.tenant.to_string(),
            kind,
            at: &at.to_string(),
            body: body_digest,
        };
        let appended = self.tip.append(&new, &mut String::new());
        batch.entries.push(EntryRow {
            tenant: self.tenant,
            seq: appended.head.seq,
            kind,
            at,
            prev: appended.prev,
            hash: appended.head.hash,
            body,
            body_digest,
            nodes: appended.completed,
        });
        self.advance(batch, before);
    }

    /// Adds a decision to a batch, with its entry and its receipt.
    pub fn decision(&mut self, batch: &mut Batch, ask: &Ask) -> DecisionId {
        let body = serde_json::json!({ "seq": self.head().seq + 1, "text": ask.text, "tool": ask.tool });
        let body = canon::of(&body).expect("samples are JSON");
        self.entry(batch, "decision", ask.at, body);
        let row = self.decision_row(ask);
        let id = row.id;
        batch.decisions.push(row);
        id
    }

    /// The row of a decision whose entry is the last one.
    pub fn decision_row(&self, ask: &Ask) -> DecisionRow {
        DecisionRow {
            tenant: self.tenant,
            seq: self.head().seq,
            id: decision_id(self.tenant, self.head().seq),
            agent: ask.agent,
            tool: name(ask.tool),
            action: name(ask.action),
            reason: ask.reason,
            run_id: ask.run_id.map(name),
            request: ask.request_id.as_deref().map(|id| (name(id), ask.digest())),
            receipt: receipt(self.tenant, self.head().seq).into(),
        }
    }

    /// Adds an outcome to a batch, with its entry.
    pub fn outcome(&mut self, batch: &mut Batch, decision: DecisionId) {
        let body = canon::of(&serde_json::json!({ "decision": decision })).expect("samples are JSON");
        self.entry(batch, "outcome", Timestamp::from_millis(2), body);
        batch.outcomes.push(OutcomeRow {
            tenant: self.tenant,
            decision,
            seq: self.head().seq,
        });
    }

    /// Adds a change of the directory to a batch, with its entry.
    pub fn write(&mut self, batch: &mut Batch, write: Write) {
        self.revision += 1;
        let body = canon::of(&serde_json::json!({ "revision": self.revision })).expect("samples are JSON");
        self.entry(batch, "directory", Timestamp::from_millis(3), body);
        batch.writes.push((self.tenant, write));
    }

    /// Adds to a batch that the agent with this number is there under this name.
    pub fn put_agent(&mut self, batch: &mut Batch, number: u8, called: &str) {
        self.write(batch, Write::Put(agent(self.tenant, number, called)));
    }

    /// Adds to a batch how an approval is from now on, with its entry.
    pub fn approval(&mut self, batch: &mut Batch, approval: &Approval) {
        let body = canon::of(&serde_json::json!({ "approval": approval.id })).expect("samples are JSON");
        self.entry(batch, "approval", Timestamp::from_millis(4), body);
        batch.approvals.push((self.tenant, approval.clone()));
    }

    /// Adds a content to a batch, whose last entry names it.
    pub fn content(&self, batch: &mut Batch, text: &str) -> Digest {
        let bytes = text.as_bytes().to_vec();
        let digest = Digest::of(&bytes);
        batch.contents.push(ContentRow {
            tenant: self.tenant,
            digest,
            bytes: bytes.into(),
        });
        digest
    }

    /// The tenant as a noun.
    pub fn noun(&self) -> Noun {
        Noun::Tenant(Arc::new(Tenant {
            id: self.tenant,
            name: name("acme"),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: model::LimitTerms::default(),
            created_at: Timestamp::from_millis(0),
            deleted_at: None,
        }))
    }

    /// A batch of so many decisions, none with a request id.
    pub fn decisions(&mut self, count: usize) -> Batch {
        let mut batch = Batch::default();
        for _ in 0..count {
            self.decision(&mut batch, &Ask::default());
        }
        batch
    }

    /// What the default agent's request is looked up by.
    pub fn key(&self, request_id: &str) -> RequestKey {
        RequestKey {
            tenant: self.tenant,
            agent: Ask::default().agent,
            request_id: name(request_id),
        }
    }

    fn advance(&self, batch: &mut Batch, before: Head) {
        let known = batch
            .advances
            .iter_mut()
            .find(|advance| advance.tenant == self.tenant);
        if let Some(advance) = known {
            advance.to = self.tip.clone();
            advance.revision = self.revision;
        } else {
            batch.advances.push(Advance {
                tenant: self.tenant,
                from: before,
                to: self.tip.clone(),
                revision: self.revision,
            });
        }
    }
}

/// What the agent with this number asks people for; it expires at this time.
pub fn approval(number: u8, expires_at: i64) -> Approval {
    let mut id = [0; 16];
    id[0] = number;
    let request = Request {
        decision_id: DecisionId::from_bytes([number; 16]),
        agent: agent_id(number),
        agent_name: name("builder"),
        tool: model::SlashFreeName::new("github").expect("a short word is a name"),
        action: name("merge_pull_request"),
        resource: Some("repo:acme/\"widgets\"#42".to_owned()),
        action_hash: Digest::of(&[number]),
        parameters: Some(r#"{"base_branch":"m\u0000in","Zoë":1}"#.to_owned()),
        estimate: None,
        reason: "merges need approval".to_owned(),
        matched_policies: vec!["base/merge".to_owned()],
        policy_digest: Digest::ZERO,
        risk_level: None,
        definition: None,
        claimed_trust: Trust::Unknown,
        effective_trust: Trust::Unknown,
        sources: model::Sources::default(),
        run_id: None,
        run_worst: None,
        user: None,
        owner: None,
        team: None,
        delegators: Vec::new(),
    };
    let terms = ApprovalTerms {
        group: None,
        quorum: 1,
        also: Vec::new(),
        exclude_owner: false,
    };
    let expires_at = Timestamp::from_millis(expires_at);
    let id = ApprovalId::from_bytes(id);
    Approval::new(id, request, terms, Timestamp::from_millis(0), expires_at)
}

/// The approval after somebody has approved it.
pub fn approved(approval: &Approval) -> Approval {
    let voter = Voter {
        user: name("ann"),
        teams: [name("leads")].into(),
        agents: Vec::new(),
    };
    let after = approval.approve(&voter, "fine", Timestamp::from_millis(1));
    after.expect("anybody may approve the sample")
}

/// The id of the decision at this place of a chain: like a UUIDv7, it grows with the chain.
pub fn decision_id(tenant: TenantId, seq: u64) -> DecisionId {
    let mut bytes = *tenant.as_bytes();
    bytes[..8].copy_from_slice(&seq.to_be_bytes());
    DecisionId::from_bytes(bytes)
}

/// The bytes of a receipt. They are not text: a store has to keep them as they are.
pub fn receipt(tenant: TenantId, seq: u64) -> Vec<u8> {
    let mut bytes = vec![0xff, 0x00, tenant.as_bytes()[0]];
    bytes.extend(seq.to_be_bytes());
    bytes
}
