//! The pure steps of an authorization, one after the other and together, without a store and without a socket.
//!
//! Criterion times them. With `--count STEP TIMES` the program does nothing but that step, so many times, for
//! `scripts/check_instructions.py`, which counts instructions: those hardly depend on the machine, and not on what else
//! runs on it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;

use canon::{Canonical, Limits, canonicalize};
use criterion::Criterion;
use engine::decision::UnsealedAnswer;
use engine::proposal::Intent;
use engine::{
    Applied, Ask, Books, Decided, Disposition, Found, Judgement, LookedUpFacts, NamedRequest, Proposal,
    ProposedDecision, Records, RepeatRule, Salt, Snapshot, TenantSnapshot, Wording, apply, judge,
};
use ledger::receipt::{Receipt, ReceiptBatch};
use ledger::{Head, SignatureKind, SigningKey, link};
use model::{
    Agent, AgentId, DecisionId, Directory, Noun, SlashFreeName, Tenant, TenantId, Timestamp, Tool, Verdict,
    Write,
};
use policy::{BasePolicies, Compiler, PolicySet, Registry, TenantPolicy};
use serde_json::json;
use store::{ChainPosition, EntryRow, RequestKey};

const NOW: Timestamp = Timestamp::from_millis(1_800_000_000_000);
const TENANT: TenantId = TenantId::from_bytes([1; 16]);
const AGENT: AgentId = AgentId::from_bytes([2; 16]);
const LIMITS: Limits = Limits {
    bytes_max: 1 << 18,
    depth_max: 64,
};
/// How many decisions a batch has.
const BATCH: u8 = 32;
/// How many policies a tenant has that has many.
const POLICIES: usize = 10_000;

/// What an agent runtime sends: members in any order, white space, parameters that fit the schema.
const ASK: &str = r#"{"request_id": "call-4711", "tool_call": {"tool": "github", "action": "merge_pull_request",
    "resource": "repo:acme/widgets#42", "parameters": {"number": 42, "base_branch": "feature",
    "comment": "asked for by the release plan"}}, "context": {"source_trust": "trusted_internal_unsigned"},
    "trace": {"run_id": "run-1"}}"#;

/// A step, and what it is called.
type Step = (&'static str, fn(&Scene));

const STEPS: [Step; 11] = [
    ("canonicalize", |scene| _ = black_box(scene.canonicalize())),
    ("parse", |scene| _ = black_box(Scene::parse(&scene.text))),
    ("judge", |scene| _ = black_box(judged(&scene.books, &scene.ask))),
    ("judge_10000", |scene| {
        _ = black_box(judged(scene.crowded(), &scene.ask));
    }),
    ("answer", |scene| _ = black_box(scene.decided(0).answer())),
    ("body", |scene| {
        _ = black_box(scene.decided(0).entry(scene.answer()));
    }),
    ("decide", |scene| _ = black_box(scene.decide())),
    ("apply_1", |scene| {
        _ = black_box(scene.apply(&scene.proposals[..1]));
    }),
    ("apply_32", |scene| _ = black_box(scene.apply(&scene.proposals))),
    ("receipts_32", Scene::receipts),
    ("entry_hash", |scene| _ = black_box(scene.entry_hash())),
];

/// A tenant with an agent and a tool, an ask, and what each step makes of what the one before has made.
struct Scene {
    books: Books,
    /// The books with many policies, made when they are first looked at: it takes a while.
    crowded: OnceCell<Books>,
    key: SigningKey,
    text: Canonical,
    ask: Ask,
    judgement: Judgement,
    proposals: Vec<Proposal>,
    /// The entries of the proposals, in order.
    recorded: Vec<EntryRow>,
}

impl Scene {
    fn set_up() -> Self {
        let books = books(&[]);
        let text = canonicalize(ASK.as_bytes(), LIMITS).expect("the ask is I-JSON");
        let ask = Self::parse(&text);
        let judgement = judged(&books, &ask);
        let key = SigningKey::from_seed("log.example", SignatureKind::Note, &[1; 32]);
        let mut scene = Self {
            books,
            crowded: OnceCell::new(),
            key: key.expect("a plain word is a name"),
            text,
            ask,
            judgement,
            proposals: Vec::new(),
            recorded: Vec::new(),
        };
        scene.proposals = (0..BATCH)
            .map(|id| propose(&scene.ask, &scene.decided(id)))
            .collect();
        scene.recorded = scene.apply(&scene.proposals).batch.entries;
        assert_eq!(scene.recorded.len(), usize::from(BATCH));
        scene
    }

    fn crowded(&self) -> &Books {
        self.crowded.get_or_init(|| books(&policies_by_scope()))
    }

    fn canonicalize(&self) -> Canonical {
        let text = canonicalize(black_box(ASK.as_bytes()), LIMITS).expect("the ask is I-JSON");
        assert!(text.as_str().len() == self.text.as_str().len());
        text
    }

    fn parse(text: &Canonical) -> Ask {
        Ask::parse(black_box(text)).expect("the ask has the members of one")
    }

    fn tenant(&self) -> &TenantSnapshot {
        self.books.snapshot().tenant(TENANT).expect("it was put there")
    }

    fn decided(&self, id: u8) -> Decided<'_> {
        self.decided_of(&self.ask, &self.judgement, id)
    }

    fn decided_of<'a>(&'a self, ask: &'a Ask, judgement: &'a Judgement, id: u8) -> Decided<'a> {
        let tenant = self.tenant();
        Decided {
            id: DecisionId::from_bytes([id; 16]),
            ask: black_box(ask),
            agent: &tenant.directory.agents[&AGENT],
            judgement,
            tenant,
            approval: None,
            budget: None,
            now: NOW,
            salt: Salt::from_bytes([7; 12]),
        }
    }

    /// Everything that is done for an ask before it is put into the queue.
    fn decide(&self) -> Proposal {
        let ask = Self::parse(&self.canonicalize());
        let judgement = judged(&self.books, &ask);
        propose(&ask, &self.decided_of(&ask, &judgement, 0))
    }

    /// Links and signs a batch, and seals its answers.
    fn apply(&self, proposals: &[Proposal]) -> Applied {
        let applied = apply(
            &self.books,
            Found::default(),
            black_box(proposals),
            NOW.into(),
            &self.key,
        );
        let is_recorded = |disposition: &Disposition| matches!(disposition, Disposition::Recorded { .. });
        assert!(applied.dispositions.iter().all(is_recorded));
        applied
    }

    /// What the decisions of the batch say, each with the row of its entry.
    fn decisions(&self) -> impl Iterator<Item = (&Wording, &EntryRow)> {
        let wordings = self
            .proposals
            .iter()
            .filter_map(|proposal| match &proposal.intent {
                Intent::Decision(decision) => match &decision.records {
                    Records::Worded(wording) => Some(wording),
                    Records::Costed(_) => None,
                },
                _ => None,
            });
        wordings.zip(&self.recorded)
    }

    fn answer(&self) -> &UnsealedAnswer {
        let (wording, _) = self.decisions().next().expect("there are proposals");
        &wording.answer
    }

    /// Signs the answers of a batch together, and seals each.
    fn receipts(&self) {
        let mut batch = ReceiptBatch::default();
        for (wording, entry) in self.decisions() {
            batch.push(black_box(&entry.hash), wording.answer.digest());
        }
        let sealed = batch.seal(&self.key).expect("there are answers");
        for (index, (wording, entry)) in self.decisions().enumerate() {
            let receipt = Receipt {
                tenant: &entry.tenant.to_string(),
                seq: entry.seq,
                at: &entry.at.to_string(),
                hash: entry.hash,
                prev: entry.prev,
                body: wording.entry.body_digest,
            };
            assert!(!black_box(wording.answer.seal(&sealed, index, &receipt)).is_empty());
        }
    }

    /// The hash of an entry in the middle of a chain; that of its body is taken elsewhere.
    fn entry_hash(&self) -> Head {
        let [before, entry, ..] = &*self.recorded else {
            panic!("there are entries");
        };
        let head = Head {
            seq: before.seq,
            hash: before.hash,
        };
        // Any digest will do, but each hash has to be made of one.
        let body = black_box(&entry.prev);
        link(
            &head,
            "tnt_01jz0000000000000000000000",
            "decision",
            "2026-07-01T12:00:00.000Z",
            body,
            &mut String::new(),
        )
    }
}

/// What is put into the queue.
fn propose(ask: &Ask, decided: &Decided<'_>) -> Proposal {
    let request = ask.request_id.clone().map(|request_id| NamedRequest {
        key: RequestKey {
            tenant: TENANT,
            agent: AGENT,
            request_id,
        },
        ask: ask.digest,
        repeat: RepeatRule::Any,
    });
    Proposal {
        tenant: TENANT,
        revision: decided.tenant.revision,
        base: decided.tenant.policies.base_digest(),
        intent: Intent::Decision(Box::new(ProposedDecision {
            records: Records::Worded(decided.word()),
            id: decided.id,
            agent: AGENT,
            tool: ask.action.tool.clone().into(),
            action: ask.action.action.clone(),
            run_id: ask.run_id.clone(),
            // One request has one entry: of the proposals of a batch only the first has its id.
            request: request.filter(|_| decided.id == DecisionId::from_bytes([0; 16])),
            approval: None,
            sighting: None,
            quotas: Vec::new(),
            quarantine: None,
            shadow: None,
            contents: decided.contents(|_| true),
        })),
    }
}

fn judged(books: &Books, ask: &Ask) -> Judgement {
    let tenant = books.snapshot().tenant(TENANT).expect("it was put there");
    let agent = &tenant.directory.agents[&AGENT];
    let judgement = judge(tenant, agent, black_box(ask), &LookedUpFacts::default(), NOW)
        .expect("nothing in the ask contradicts the agent");
    assert!(judgement.verdict() == Verdict::Allow);
    judgement
}

/// A limit for each of many agents; the last is for the one that asks.
fn policies_by_scope() -> Vec<TenantPolicy> {
    let policy = |number: usize| {
        let agent = if number + 1 == POLICIES {
            AGENT.to_string()
        } else {
            format!("agt_{number}")
        };
        let cedar = format!(
            r#"@id("limit")
               forbid (principal == Agent::"{agent}", action in Action::"tool:github", resource)
               when {{ context.input.number > {} }};"#,
            number + 1_000,
        );
        let name = SlashFreeName::new(&format!("agent-{number}")).expect("a plain word is a name");
        TenantPolicy::new(name, cedar)
    };
    (0..POLICIES).map(policy).collect()
}

fn directory() -> Directory {
    let tenant: Tenant = serde_json::from_value(json!({
        "id": TENANT, "name": "acme", "settings": {}, "status": "active", "created_at": NOW,
    }))
    .expect("a tenant is written like this");
    let agent: Agent = serde_json::from_value(json!({
        "id": AGENT, "tenant": TENANT, "name": "bot", "environment": "production", "risk_tier": "low", "tools": "all",
        "attributes": {}, "status": "active", "created_at": NOW,
    }))
    .expect("an agent is written like this");
    let schema = json!({
        "type": "object", "required": ["base_branch", "number"],
        "properties": {
            "base_branch": {"type": "string"}, "number": {"type": "integer"}, "comment": {"type": "string"},
        },
    });
    let tool: Tool = serde_json::from_value(json!({
        "name": "github", "status": "active", "created_at": NOW,
        "actions": {"merge_pull_request": {
            "name": "merge_pull_request", "mutates_state": true, "risk": "high", "input_schema": schema,
        }},
    }))
    .expect("a tool is written like this");
    let mut directory = Directory::new(Arc::new(tenant));
    directory.apply(&Write::Put(Noun::Agent(Arc::new(agent))));
    directory.apply(&Write::Put(Noun::Tool(Arc::new(tool))));
    directory
}

/// The books of the tenant with these policies of its own.
fn books(policies: &[TenantPolicy]) -> Books {
    let directory = directory();
    let registry = Registry {
        tools: &directory.tools,
        attributes: &directory.tenant.settings.context_attributes,
    };
    let policies = PolicySet::compile(&BasePolicies::shipped(), policies, registry);
    let tenant = TenantSnapshot::new(directory, Arc::new(policies.expect("the policies fit")), 7);
    let position = ChainPosition {
        revision: tenant.revision,
        ..ChainPosition::GENESIS
    };
    let mut snapshot = Snapshot::new(Arc::new(Compiler::new(BasePolicies::shipped())));
    snapshot.insert(tenant);
    Books::new(snapshot, HashMap::from([(TENANT, position)]))
}

/// `--count STEP TIMES`, if that is what the program is to do.
fn to_count() -> Option<(Step, u32)> {
    let mut arguments = std::env::args()
        .skip_while(|argument| argument != "--count")
        .skip(1);
    let (step, times) = (arguments.next()?, arguments.next()?);
    let step = STEPS.into_iter().find(|(name, _)| *name == step);
    let step = step.unwrap_or_else(|| panic!("the steps are {:?}", STEPS.map(|(name, _)| name)));
    Some((step, times.parse().expect("TIMES is a number")))
}

/// What happens in here is counted, and nothing else: the gate knows it by this name.
#[inline(never)]
fn counted_steps(scene: &Scene, step: fn(&Scene), times: u32) {
    for _ in 0..times {
        step(scene);
    }
}

fn main() {
    let scene = Scene::set_up();
    if let Some(((_, step), times)) = to_count() {
        // Once before: what is made when it is first needed is there then.
        step(&scene);
        counted_steps(&scene, step, times);
        return;
    }
    let mut criterion = Criterion::default().sample_size(40).configure_from_args();
    let mut group = criterion.benchmark_group("steps");
    for (name, step) in STEPS {
        group.bench_function(name, |bencher| bencher.iter(|| step(&scene)));
    }
    group.finish();
    criterion.final_summary();
}
