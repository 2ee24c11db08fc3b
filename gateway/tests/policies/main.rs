//! A tenant's policies through the real router on a real store: written, tried, rolled back, and what they make of the next
//! ask. The answers here are those of asks that the base policies decide otherwise.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "the support is shared, and no test uses all of it")]
#[path = "../support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "the support is shared, and no test uses all of it")]
#[path = "../support/mod.rs"]
mod support;

mod checks;
mod comparing;
mod doors;
mod invalid;
mod registry;
mod replaying;
mod sets;
mod trials;
mod trying;
mod versions;

use serde_json::{Value, json};
use stage::{Player, Stage};
use std::ops::Deref;
use support::Reply;

/// Forbids what the base policies allow.
const NO_ISSUES: &str = r#"@id("none")
@reason("No issues")
forbid (principal, action == Action::"github/create_issue", resource);"#;

/// Forbids nothing that is asked here.
const NO_SECRETS: &str = r#"@id("none")
forbid (principal, action == Action::"github/create_issue", resource) when { context.sensitive };"#;

/// A tenant, and the key of somebody who writes its policies.
struct Desk {
    stage: Stage,
    editor: String,
}

impl Deref for Desk {
    type Target = Stage;
    fn deref(&self) -> &Stage {
        &self.stage
    }
}

impl Desk {
    async fn open() -> Self {
        let stage = Stage::set().await;
        let editor = key(&stage, &stage.tenant.to_string(), "policy_editor").await;
        Self { stage, editor }
    }

    /// The same desk at a gateway that was started again.
    async fn restart(self) -> Self {
        Self {
            stage: self.stage.restart().await,
            editor: self.editor,
        }
    }

    /// A request of the editor.
    async fn edit(&self, method: &str, path: &str, body: &Value) -> Reply {
        let path = format!("/v1/policies{path}");
        let call = self.call(method, &path, &self.editor);
        if body.is_null() {
            call.send().await
        } else {
            call.json(body).send().await
        }
    }

    /// A request of the editor, who has seen this version.
    async fn edit_at(&self, version: &str, method: &str, path: &str, body: &Value) -> Reply {
        let path = format!("/v1/policies{path}");
        let call = self.call(method, &path, &self.editor).header("if-match", version);
        call.json(body).send().await
    }

    /// A version that is enforced.
    async fn put(&self, name: &str, cedar: &str) -> Reply {
        self.edit("PUT", &format!("/{name}"), &json!({"cedar": cedar}))
            .await
    }

    /// A version that is not.
    async fn shadow(&self, name: &str, cedar: &str) -> Value {
        let body = json!({"cedar": cedar, "mode": "shadow"});
        let reply = self.edit("PUT", &format!("/{name}"), &body).await;
        assert!(reply.status.is_success(), "{}", reply.text());
        reply.json()
    }

    /// The answer to an ask for an issue, which nothing but a tenant's policy denies.
    async fn answer(&self) -> Value {
        self.ask(&stage::changing()).await.expect(200)
    }

    async fn decision(&self) -> String {
        text(&self.answer().await["decision"])
    }

    /// The answer to the same ask of another agent.
    async fn decision_for(&self, agent: &Player) -> String {
        let answer = self.post("/v1/authorize", &agent.token, &stage::changing()).await;
        text(&answer.expect(200)["decision"])
    }

    /// What entries of this kind say, in order.
    async fn told(&self, kind: &str) -> Vec<Value> {
        let entries = self.entries().await;
        let told = entries.iter().filter(|entry| entry.kind == kind);
        told.map(|entry| serde_json::from_str(&entry.body).unwrap())
            .collect()
    }
}

/// A new key of a tenant.
async fn key(stage: &Stage, tenant: &str, role: &str) -> String {
    let body = json!({"name": role, "role": role, "tenant": tenant});
    text(&stage.post("/v1/keys", &stage.operator, &body).await.expect(201)["key"])
}

fn text(value: &Value) -> String {
    value
        .as_str()
        .unwrap_or_else(|| panic!("no text: {value}"))
        .to_owned()
}

/// The diagnostics of a refusal, all of them errors.
#[track_caller]
fn diagnostics(reply: &Reply) -> Vec<Value> {
    reply.problem(422, "policy_invalid");
    let found = reply.json()["diagnostics"].as_array().unwrap().clone();
    assert!(
        found.iter().all(|one| one["severity"] == "error") && !found.is_empty(),
        "{found:?}"
    );
    found
}
