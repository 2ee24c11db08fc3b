//! The main job through the real router: what is answered, what is refused, and what of it is recorded.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "../support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/mod.rs"]
mod support;

mod answers;
mod batches;
mod bodies;
mod denials;
mod observing;
mod outcomes;
mod recording;
mod refusals;
mod repeats;
mod runs;
mod sources;
mod taint;
mod ways;

use serde_json::Value;
use stage::Stage;
use support::Reply;

/// The reason code of an answer.
async fn reason(stage: &Stage, ask: &Value) -> String {
    stage.ask(ask).await.expect(200)["reason_code"]
        .as_str()
        .unwrap()
        .to_owned()
}

/// Posts bytes that need not be JSON.
async fn post_raw(stage: &Stage, bytes: impl Into<Vec<u8>>) -> Reply {
    stage
        .call("POST", "/v1/authorize", &stage.agent.token)
        .body(bytes)
        .send()
        .await
}
