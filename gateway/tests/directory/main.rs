//! The directory through the real router on a real SQLite file: every route, what each answers and records, and whom
//! each lets in. A file for each family of endpoints.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "the support is shared, and no test uses all of it")]
#[path = "../support/mod.rs"]
mod support;

mod agents;
mod doors;
mod grants;
mod import;
mod keys;
mod people;
mod quota;
mod size;
mod standing;
mod storage;
mod tenants;
mod tokens;
mod tools;

use gateway::gateway::Options;
use serde_json::{Value, json};
use std::cell::Cell;
use std::ops::Deref;
use support::{Reply, World};

/// When every test begins, as the API writes it.
const NOW: &str = "2026-01-31T09:30:00.000Z";
/// More entries than any test here makes.
const ENTRIES_MAX: u32 = 10_000;

/// A tenant and its admin.
struct Tenant {
    id: String,
    admin: String,
    /// The last entry of its chain that a test has looked at.
    seen: Cell<u64>,
}

/// A world with a tenant in it, in whose name things are done.
struct Acme {
    world: World,
    tenant: Tenant,
}

impl Deref for Acme {
    type Target = World;
    fn deref(&self) -> &World {
        &self.world
    }
}

impl World {
    /// A new tenant with a key of an admin.
    async fn found(&self, name: &str) -> Tenant {
        let tenant = self
            .post("/v1/tenants", &self.operator, &json!({"name": name}))
            .await
            .expect(201);
        let id = tenant["id"].as_str().unwrap().to_owned();
        let admin = self.make_key(&id, "admin").await;
        let tenant = Tenant {
            id,
            admin,
            seen: Cell::new(0),
        };
        self.news_of(&tenant).await;
        tenant
    }

    /// A new key of a tenant.
    async fn make_key(&self, tenant: &str, role: &str) -> String {
        let body = json!({"name": role, "role": role, "tenant": tenant});
        text(&self.post("/v1/keys", &self.operator, &body).await.expect(201)["key"])
    }

    /// The entries of a tenant's chain since the last look: kind and body.
    async fn news_of(&self, tenant: &Tenant) -> Vec<(String, Value)> {
        let id = tenant.id.parse().unwrap();
        let entries = self
            .store
            .entries(id, tenant.seen.get() + 1, ENTRIES_MAX)
            .await
            .unwrap();
        tenant.seen.set(tenant.seen.get() + entries.len() as u64);
        let read = |entry: store::StoredEntry| (entry.kind, serde_json::from_str(&entry.body).unwrap());
        entries.into_iter().map(read).collect()
    }
}

impl Acme {
    async fn open() -> Self {
        Self::open_with(Options::default()).await
    }

    async fn open_with(options: Options) -> Self {
        let world = World::start_with(options).await;
        let tenant = world.found("acme").await;
        Self { world, tenant }
    }

    /// A request of the tenant's admin.
    async fn admin(&self, method: &str, path: &str, body: Value) -> Reply {
        let call = self.call(method, path, &self.tenant.admin);
        if body.is_null() {
            call.send().await
        } else {
            call.json(&body).send().await
        }
    }

    async fn news(&self) -> Vec<(String, Value)> {
        self.news_of(&self.tenant).await
    }

    /// The kinds of the entries since the last look.
    async fn kinds(&self) -> Vec<String> {
        self.news().await.into_iter().map(|(kind, _)| kind).collect()
    }

    /// The one entry since the last look, if it is of this kind: what it says beside who did it.
    async fn told(&self, kind: &str) -> Value {
        let mut news = self.news().await;
        assert_eq!(
            news.iter().map(|(kind, _)| kind.as_str()).collect::<Vec<_>>(),
            [kind]
        );
        let mut body = news.remove(0).1;
        let by = body.as_object_mut().unwrap().remove("by").unwrap();
        assert!(by["key"].as_str().unwrap().starts_with("key_"), "{by}");
        body
    }

    /// Fails if anything was recorded since the last look.
    async fn assert_silent(&self) {
        assert_eq!(self.kinds().await, [] as [&str; 0]);
    }

    /// A new agent: its id.
    async fn hire(&self, body: Value) -> String {
        text(&self.admin("POST", "/v1/agents", body).await.expect(201)["id"])
    }

    /// A new token of an agent.
    async fn token(&self, agent: &str) -> String {
        let path = format!("/v1/agents/{agent}/tokens");
        text(&self.admin("POST", &path, Value::Null).await.expect(201)["token"])
    }

    /// A tool with an action that reads and one that changes something.
    async fn put_mail(&self) {
        let body = json!({"actions": [
            {"name": "read", "mutates_state": false, "risk": "low"},
            {"name": "send", "mutates_state": true, "risk": "high"},
        ]});
        self.admin("PUT", "/v1/tools/mail", body).await.expect(201);
    }

    /// Why an agent's ask for this is decided as it is.
    async fn reason(&self, token: &str, tool: &str, action: &str) -> String {
        let ask = json!({
            "tool_call": {"tool": tool, "action": action, "parameters": {}},
            "context": {"source_trust": "trusted_internal_unsigned"},
        });
        text(&self.post("/v1/authorize", token, &ask).await.expect(200)["reason_code"])
    }

    /// Every item of a list that is read a page of two at a time.
    async fn pages(&self, path: &str) -> Vec<Value> {
        let (mut items, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = self
                .admin("GET", &format!("{path}?limit=2{cursor}"), Value::Null)
                .await
                .expect(200);
            let read = page["items"].as_array().unwrap();
            assert!(read.len() <= 2);
            items.extend(read.iter().cloned());
            let Some(next) = page["next_cursor"].as_str() else {
                return items;
            };
            cursor = format!("&cursor={next}");
        }
    }
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("not a string: {value}"))
        .to_owned()
}

/// These members of each item.
fn column(items: &[Value], member: &str) -> Vec<String> {
    items.iter().map(|item| text(&item[member])).collect()
}
