//! Budgets through the real router: what is held, settled and refused, and that nothing of it gets lost.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/mod.rs"]
mod support;

mod asks;
mod faults;
mod outcomes;
mod people;
mod remembered;
mod replies;
mod reservations;
mod runs;
mod usage;

use gateway::gateway::Options;
use serde_json::{Value, json};
use stage::{Player, Stage};
use support::Reply;

/// A tenant whose agent is in the team `crew`, and whose budgets are looked at.
struct Scene {
    stage: Stage,
    auditor: String,
    /// In no team.
    stranger: Player,
}

impl Scene {
    async fn set() -> Self {
        Self::set_with(Options::default()).await
    }

    /// The scene at a gateway with these options.
    async fn set_with(options: Options) -> Self {
        let mut stage = Stage::set_with(options).await;
        stage.admin("PUT", "/v1/teams/crew", &json!({})).await.expect(201);
        stage.agent = stage
            .hire(json!({"name": "spender", "tools": "all", "team": "crew"}))
            .await;
        let stranger = stage.hire(json!({"name": "stranger", "tools": "all"})).await;
        let key = json!({"name": "olga", "role": "auditor"});
        let key = stage.admin("POST", "/v1/keys", &key).await.expect(201);
        Self {
            auditor: key["key"].as_str().unwrap().to_owned(),
            stage,
            stranger,
        }
    }

    /// Has the tenant permit that asks are only observed.
    async fn permit_observing(&self) {
        let path = format!("/v1/tenants/{}", self.stage.tenant);
        let call = self.stage.call("PATCH", &path, &self.stage.operator);
        let settings = json!({"settings": {"observe": true}});
        call.json(&settings).send().await.expect(200);
    }

    /// Makes a budget, and returns its id. A millisecond goes by, so that the next one is a later one.
    async fn budget(&self, body: &Value) -> String {
        self.stage.clock.advance_millis(1);
        let made = self.stage.admin("POST", "/v1/budgets", body).await.expect(201);
        made["id"].as_str().unwrap().to_owned()
    }

    /// Makes one for each of these scopes, with so much in each.
    async fn budgets(&self, scopes: &[(Value, i64)]) {
        for (scope, allocated) in scopes {
            self.budget(&json!({"scope": scope, "unit": "TOKENS", "allocated": allocated}))
                .await;
        }
    }

    /// Fund, debit and the like.
    async fn change(&self, id: &str, verb: &str, body: &Value) -> Reply {
        self.stage
            .admin("POST", &format!("/v1/budgets/{id}/{verb}"), body)
            .await
    }

    /// A POST of the agent's.
    async fn post(&self, path: &str, body: &Value) -> Reply {
        self.stage.post(path, &self.stage.agent.token, body).await
    }

    /// Holds so much, and returns the id of the reservation.
    async fn reserve(&self, amount: i64) -> String {
        let body = json!({"unit": "TOKENS", "amount": amount});
        let held = self.post("/v1/reservations", &body).await.expect(201);
        held["id"].as_str().unwrap().to_owned()
    }

    /// Commit, release or extend.
    async fn settle(&self, id: &str, verb: &str, body: &Value) -> Reply {
        self.post(&format!("/v1/reservations/{id}/{verb}"), body).await
    }

    /// Of each open budget its scope, and what is remaining, reserved, spent, debt and uncovered; the oldest first.
    async fn balances(&self) -> Vec<(Value, [i64; 5])> {
        let page = self.stage.get("/v1/balances", &self.auditor).await.expect(200);
        let mut balances: Vec<_> = page["items"].as_array().unwrap().iter().map(balance).collect();
        balances.reverse();
        balances
    }

    /// Of each open budget what is remaining, reserved, spent, debt and uncovered; the oldest first.
    async fn standings(&self) -> Vec<[i64; 5]> {
        let balances = self.balances().await.into_iter();
        balances.map(|(_, standing)| standing).collect()
    }

    /// What is remaining, reserved, spent, debt and uncovered of the only open budget there is.
    async fn standing(&self) -> [i64; 5] {
        let standings = self.standings().await;
        let [standing] = standings[..] else {
            panic!("one budget: {standings:?}");
        };
        standing
    }

    /// What entries of a kind say, in order.
    async fn entries(&self, kind: &str) -> Vec<Value> {
        let entries = self.stage.entries().await;
        let of_kind = entries.iter().filter(|entry| entry.kind == kind);
        of_kind
            .map(|entry| serde_json::from_str(&entry.body).unwrap())
            .collect()
    }
}

/// A balance; its members add up.
fn balance(shown: &Value) -> (Value, [i64; 5]) {
    let of = |member: &str| shown[member].as_i64().unwrap();
    let members = ["remaining", "reserved", "spent", "debt", "uncovered"].map(of);
    let [remaining, reserved, spent, debt, _] = members;
    assert_eq!(remaining, of("allocated") - reserved - spent - debt, "{shown}");
    (shown["scope"].clone(), members)
}

/// An ask that is allowed and costs this much.
fn costing(amount: i64) -> Value {
    let mut ask = stage::changing();
    ask["estimate"] = json!({"unit": "TOKENS", "amount": amount});
    ask
}

/// An ask that costs this much and is only to be observed.
fn observed(amount: i64) -> Value {
    let mut ask = costing(amount);
    ask["mode"] = json!("observe");
    ask
}

/// So much in tokens.
fn tokens(amount: i64) -> Value {
    json!({"unit": "TOKENS", "amount": amount})
}
