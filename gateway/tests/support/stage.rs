//! A gateway whose store fails on command and that can be stopped and started again, with one tenant ready to play in.
//! The store behind the faults is a real one.

use crate::support::home::Home;
use crate::support::{BASE_FILE, BEGINNING, Reply, World, patient, patiently, signing_key};
use gateway::app::App;
use gateway::gateway::Options;
use gateway::sequencer::Ended;
use gateway::start::{self, Ingredients};
use ledger::{Entry, EntryHeader, Head, Verifier};
use model::time::ManualClock;
use model::{Clock, Secret, SecretKind, SystemEntropy, TenantId};
use policy::BasePolicies;
use serde_json::{Value, json};
use std::ops::Deref;
use std::sync::Arc;
use store::faults::FaultyStore;
use store::{Store, StoredEntry, is_used_up};

/// More entries than any test writes.
const ENTRIES_MAX: u32 = 100_000;

/// The gateway and its tenant.
pub(crate) struct Stage {
    world: World,
    /// What spoils commits and reads.
    pub(crate) faults: Arc<FaultyStore<dyn Store>>,
    pub(crate) tenant: TenantId,
    /// An agent of low risk with all tools.
    pub(crate) agent: Player,
    sequencer: Ended,
}

/// An agent with a token.
#[derive(Debug, Clone)]
pub(crate) struct Player {
    pub(crate) id: String,
    pub(crate) token: String,
}

impl Deref for Stage {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl Stage {
    /// A gateway on a new store, with a tenant, its tools and an agent.
    pub(crate) async fn set() -> Self {
        Self::set_with(Options::default()).await
    }

    /// A gateway with these options on a new store, with a tenant, its tools and an agent.
    pub(crate) async fn set_with(options: Options) -> Self {
        Self::set_under(BasePolicies::shipped(), options).await
    }

    /// A gateway with these options and base policies on a new store, with a tenant, its tools and an agent.
    pub(crate) async fn set_under(policies: BasePolicies, options: Options) -> Self {
        let operator = Secret::mint(SecretKind::ApiKey, &SystemEntropy);
        let clock = Arc::new(ManualClock::at(BEGINNING));
        let (world, faults, sequencer) =
            run(Arc::new(Home::new().await), &operator, clock, (policies, options)).await;
        let body = world
            .post("/v1/tenants", &world.operator, &json!({"name": "acme"}))
            .await
            .expect(201);
        let tenant = body["id"].as_str().unwrap().parse().unwrap();
        let nobody = Player {
            id: String::new(),
            token: String::new(),
        };
        let mut stage = Self {
            world,
            faults,
            tenant,
            agent: nobody,
            sequencer,
        };
        for (tool, body) in tools() {
            stage
                .admin("PUT", &format!("/v1/tools/{tool}"), &body)
                .await
                .expect(201);
        }
        stage.agent = stage.hire(json!({"name": "builder", "tools": "all"})).await;
        stage
    }

    /// Stops the gateway and starts another one on the same file.
    pub(crate) async fn restart(self) -> Self {
        let Self {
            world,
            tenant,
            agent,
            sequencer,
            ..
        } = self;
        let World {
            gateway,
            store,
            clock,
            operator,
            app,
            home,
            ..
        } = world;
        let options = gateway.options.clone();
        drop((app, gateway));
        sequencer.await.unwrap();
        store.close().await;
        let operator = Secret::parse(&operator).unwrap();
        let (world, faults, sequencer) =
            run(home, &operator, clock, (BasePolicies::shipped(), options)).await;
        Self {
            world,
            faults,
            tenant,
            agent,
            sequencer,
        }
    }

    /// A request of the tenant's admin.
    pub(crate) async fn admin(&self, method: &str, path: &str, body: &Value) -> Reply {
        self.call(method, path, &self.operator)
            .tenant(self.tenant)
            .json(body)
            .send()
            .await
    }

    /// A new agent, with a token.
    pub(crate) async fn hire(&self, body: Value) -> Player {
        let agent = self.admin("POST", "/v1/agents", &body).await.expect(201);
        let id = agent["id"].as_str().unwrap().to_owned();
        let token = self
            .admin("POST", &format!("/v1/agents/{id}/tokens"), &json!({}))
            .await
            .expect(201);
        Player {
            id,
            token: token["token"].as_str().unwrap().to_owned(),
        }
    }

    /// Freezes, unfreezes or revokes an agent.
    pub(crate) async fn set_standing(&self, agent: &Player, verb: &str) -> Reply {
        self.admin(
            "POST",
            &format!("/v1/agents/{}/{verb}", agent.id),
            &json!({"reason": "a test"}),
        )
        .await
    }

    /// What the agent is told.
    pub(crate) async fn ask(&self, ask: &Value) -> Reply {
        self.post("/v1/authorize", &self.agent.token, ask).await
    }

    /// Where the tenant's chain ends in the store.
    pub(crate) async fn head(&self) -> Head {
        let stored = self.store.load(None).await.unwrap();
        stored
            .into_iter()
            .find(|stored| stored.tenant == self.tenant)
            .unwrap()
            .position
            .head()
    }

    /// The tenant's whole chain.
    pub(crate) async fn entries(&self) -> Vec<StoredEntry> {
        let mut entries: Vec<StoredEntry> = Vec::new();
        loop {
            let next = entries.last().map_or(1, |last| last.seq + 1);
            let page = self.store.entries(self.tenant, next, ENTRIES_MAX).await.unwrap();
            let is_end = !is_used_up(&page);
            entries.extend(page);
            if is_end {
                return entries;
            }
        }
    }

    /// How many entries of this kind there are.
    pub(crate) async fn count(&self, kind: &str) -> usize {
        self.entries()
            .await
            .iter()
            .filter(|entry| entry.kind == kind)
            .count()
    }

    /// The bodies of all decisions, in order.
    pub(crate) async fn decisions(&self) -> Vec<Value> {
        let entries = self.entries().await;
        let decisions = entries.iter().filter(|entry| entry.kind == "decision");
        decisions
            .map(|entry| serde_json::from_str(&entry.body).unwrap())
            .collect()
    }

    /// Fails unless the stored chain verifies from its first entry to the stored head, and the next entry follows it:
    /// then what is in memory is what is on disk.
    pub(crate) async fn assert_sound(&self) {
        let head = self.head().await;
        verify(self.tenant, &self.entries().await, &head);
        let ask = reading();
        let fresh = patiently(|| self.ask(&ask)).await.expect(200);
        assert_eq!(
            fresh["receipt"]["seq"],
            head.seq + 1,
            "memory and disk disagree about the head"
        );
        assert_eq!(fresh["receipt"]["prev_hash"], head.hash.to_string());
    }
}

/// Verifies a chain up to a head.
pub(crate) fn verify(tenant: TenantId, entries: &[StoredEntry], head: &Head) {
    let tenant = tenant.to_string();
    let mut verifier = Verifier::from_genesis().of_tenant(&tenant);
    for entry in entries {
        let at = entry.at.to_string();
        let header = EntryHeader {
            tenant: &tenant,
            seq: entry.seq,
            kind: &entry.kind,
            at: &at,
            prev: entry.prev,
            body: canon::Digest::of(entry.body.as_bytes()),
        };
        let pushed = verifier.push(&Entry {
            header,
            hash: entry.hash,
            body: Some(&entry.body),
        });
        assert!(pushed.is_ok(), "{pushed:?}");
    }
    verifier.finish_at(head).unwrap();
}

async fn run(
    home: Arc<Home>,
    operator: &Secret,
    clock: Arc<ManualClock>,
    (base_policies, options): (BasePolicies, Options),
) -> (World, Arc<FaultyStore<dyn Store>>, Ended) {
    let store = home.open().await;
    let faults = Arc::new(FaultyStore::new(Arc::clone(&store)));
    let ingredients = Ingredients {
        store: faults.clone(),
        clock: Arc::clone(&clock) as Arc<dyn Clock>,
        entropy: Arc::new(SystemEntropy),
        signing_key: signing_key(),
        base_policies,
        base_file: Some(BASE_FILE.into()),
        options: patient(options),
    };
    let (gateway, sequencer) = start::start(ingredients).await.unwrap();
    gateway::cli::operator_key::install(&gateway, operator.digest(), "test")
        .await
        .unwrap();
    let world = World {
        app: App::new(&gateway),
        gateway,
        store,
        clock,
        operator: operator.reveal().to_owned(),
        home,
    };
    (world, faults, sequencer)
}

fn tools() -> Vec<(&'static str, Value)> {
    let merge_schema = json!({"type": "object", "required": ["number"], "properties":
        {"number": {"type": "integer"}, "base_branch": {"type": "string"}}});
    vec![
        (
            "github",
            json!({"actions": [
                {"name": "get_file", "mutates_state": false, "risk": "low"},
                {"name": "create_issue", "mutates_state": true, "risk": "medium"},
                {"name": "merge_pull_request", "mutates_state": true, "risk": "high", "input_schema": merge_schema},
            ]}),
        ),
        (
            "vault",
            json!({"actions": [{"name": "store", "mutates_state": true, "risk": "high"}]}),
        ),
        (
            "honeypot",
            json!({"canary": true, "actions": [{"name": "peek", "mutates_state": false, "risk": "low"}]}),
        ),
    ]
}

/// An ask for an action of a tool.
pub(crate) fn asking(tool: &str, action: &str, trust: &str) -> Value {
    json!({
        "tool_call": {"tool": tool, "action": action, "parameters": {}},
        "context": {"source_trust": trust},
    })
}

/// It is allowed.
pub(crate) fn reading() -> Value {
    asking("github", "get_file", "untrusted_external")
}

/// It is allowed too.
pub(crate) fn changing() -> Value {
    asking("github", "create_issue", "trusted_internal_unsigned")
}

/// It is denied.
pub(crate) fn injected() -> Value {
    asking("github", "create_issue", "untrusted_external")
}

/// It gets its caller quarantined.
pub(crate) fn trapped() -> Value {
    asking("honeypot", "peek", "trusted_internal_unsigned")
}

/// The same ask under a request id.
pub(crate) fn named(mut ask: Value, request_id: &str) -> Value {
    ask["request_id"] = json!(request_id);
    ask
}
