//! Approvals through the real router: people are asked, they vote, and what they approved can be done once.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/mod.rs"]
mod support;

mod bystanders;
mod races;
mod uses;
mod votes;

use serde_json::{Value, json};
use stage::{Player, Stage};
use support::Reply;

/// A tenant with people who approve, and an ask that they have to.
struct Scene {
    stage: Stage,
    /// Ann and Bob are in the team `leads`, Carl is not.
    ann: String,
    bob: String,
    carl: String,
    auditor: String,
}

impl Scene {
    async fn set() -> Self {
        let stage = Stage::set().await;
        stage
            .admin("PUT", "/v1/teams/leads", &json!({}))
            .await
            .expect(201);
        for (user, teams) in [
            ("ann", json!(["leads"])),
            ("bob", json!(["leads"])),
            ("carl", json!([])),
        ] {
            stage
                .admin("PUT", &format!("/v1/users/{user}"), &json!({"teams": teams}))
                .await
                .expect(201);
        }
        Self {
            ann: key(&stage, "ann", "approver").await,
            bob: key(&stage, "bob", "approver").await,
            carl: key(&stage, "carl", "approver").await,
            auditor: key(&stage, "olga", "auditor").await,
            stage,
        }
    }

    /// The scene where a policy of the tenant's says who approves.
    async fn with_terms(annotations: &str) -> Self {
        let scene = Self::set().await;
        let cedar = format!(
            "@id(\"merges\") @decision(\"require_approval\") {annotations}
             permit (principal, action == Action::\"github/merge_pull_request\", resource);"
        );
        let body = json!({"name": "merging", "cedar": cedar});
        scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
        scene
    }

    /// Asks, and returns the id of the approval that it takes.
    async fn asked(&self) -> String {
        let answer = self.stage.ask(&merging()).await.expect(200);
        assert_eq!(answer["decision"], "require_approval", "{answer}");
        assert_eq!(answer["approval"]["status"], "pending", "{answer}");
        answer["approval"]["id"].as_str().unwrap().to_owned()
    }

    /// Asks, and has Ann approve it.
    async fn approved(&self) -> String {
        self.approved_as(&merging()).await
    }

    /// Asks this, and has Ann approve it.
    async fn approved_as(&self, ask: &Value) -> String {
        let answer = self.stage.ask(ask).await.expect(200);
        assert_eq!(answer["decision"], "require_approval", "{answer}");
        let id = answer["approval"]["id"].as_str().unwrap().to_owned();
        self.vote(&self.ann, &id, "approve").await.expect(200);
        id
    }

    /// Gives the tenant these settings.
    async fn settle(&self, settings: Value) {
        let path = format!("/v1/tenants/{}", self.stage.tenant);
        let call = self.stage.call("PATCH", &path, &self.stage.operator);
        let body = json!({"settings": settings});
        call.json(&body).send().await.expect(200);
    }

    async fn vote(&self, key: &str, id: &str, verb: &str) -> Reply {
        let path = format!("/v1/approvals/{id}/{verb}");
        self.stage.post(&path, key, &json!({"reason": "a test"})).await
    }

    /// The ask again, with the approval.
    async fn retry(&self, id: &str) -> Reply {
        self.stage.ask(&with(merging(), id)).await
    }

    async fn shown(&self, id: &str) -> Value {
        let path = format!("/v1/approvals/{id}");
        self.stage.get(&path, &self.auditor).await.expect(200)
    }

    async fn status(&self, id: &str) -> String {
        self.shown(id).await["status"].as_str().unwrap().to_owned()
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

/// A key of a person's.
async fn key(stage: &Stage, user: &str, role: &str) -> String {
    let body = json!({"name": user, "role": role, "user": user});
    let key = stage.admin("POST", "/v1/keys", &body).await.expect(201);
    key["key"].as_str().unwrap().to_owned()
}

/// A merge into main: people have to approve it.
fn merging() -> Value {
    json!({
        "tool_call": {"tool": "github", "action": "merge_pull_request", "resource": "repo:acme/widgets#42",
                      "parameters": {"number": 42, "base_branch": "main"}},
        "context": {"source_trust": "trusted_internal_unsigned"},
        "user": {"id": "ursula"},
    })
}

/// The same ask with an approval.
fn with(mut ask: Value, approval: &str) -> Value {
    ask["approval_id"] = json!(approval);
    ask
}

/// What another agent is told.
async fn ask_as(scene: &Scene, player: &Player, ask: &Value) -> Reply {
    scene.stage.post("/v1/authorize", &player.token, ask).await
}
