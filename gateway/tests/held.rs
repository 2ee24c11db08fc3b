//! Requests that were let in and whose bodies come when their credential does not work any more: nothing is done for them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what it shares")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::gateway::{FixedBounds, Options};
use serde_json::{Value, json};
use stage::{Stage, asking, reading};
use std::time::Duration;
use store::BlockClaim;
use support::{BEGINNING, Held};

/// A gateway that waits for bodies as long as a test holds them.
async fn set() -> Stage {
    let options = Options {
        bounds: FixedBounds {
            body_time_max: Duration::from_mins(5),
            ..FixedBounds::default()
        },
        ..Options::default()
    };
    Stage::set_with(options).await
}

/// A new key: its id and its secret.
async fn key(stage: &Stage, body: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let made = if body["role"] == "operator" {
        stage.post("/v1/keys", &stage.operator, body).await
    } else {
        stage.admin("POST", "/v1/keys", body).await
    };
    let made = made.expect(201);
    (text(&made["id"]), text(&made["key"]))
}

/// A request that waits for its body.
async fn held(stage: &Stage, (path, body): (&str, Value), credential: &str) -> Held {
    let method = if path.starts_with("/v1/tools/") {
        "PUT"
    } else {
        "POST"
    };
    stage.call(method, path, credential).json(&body).hold().await
}

/// Fails unless all of them are refused, and nothing is recorded.
async fn assert_refused(stage: &Stage, held: Vec<Held>) {
    let before = stage.entries().await.len();
    for held in held {
        assert_eq!(held.finish().await.expect(401)["code"], "invalid_token");
    }
    assert_eq!(stage.entries().await.len(), before);
}

#[tokio::test]
async fn a_deleted_key_changes_nothing_and_makes_no_other_one() {
    let stage = set().await;
    let (id, admin) = key(&stage, &json!({"name": "stolen", "role": "admin"})).await;
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 5});
    let made = stage.admin("POST", "/v1/budgets", &budget).await.expect(201);
    let fund = format!("/v1/budgets/{}/fund", made["id"].as_str().unwrap());
    let mut waiting = Vec::new();
    for request in [
        ("/v1/keys", json!({"name": "another", "role": "admin"})),
        ("/v1/agents", json!({"name": "helper"})),
        (
            "/v1/tools/evil",
            json!({"actions": [{"name": "x", "mutates_state": false, "risk": "low"}]}),
        ),
        (
            "/v1/budgets",
            json!({"scope": {}, "unit": "CREDITS", "allocated": 5}),
        ),
        (&*fund, json!({"amount": 5})),
        ("/v1/ledger/erase", json!({"agent": stage.agent.id})),
    ] {
        waiting.push(held(&stage, request, &admin).await);
    }
    stage.ask(&reading()).await.expect(200);
    stage
        .admin("DELETE", &format!("/v1/keys/{id}"), &json!({}))
        .await
        .expect(204);
    assert_refused(&stage, waiting).await;
}

#[tokio::test]
async fn a_deleted_key_does_not_get_its_earlier_answer() {
    let stage = set().await;
    let (id, admin) = key(&stage, &json!({"name": "stolen", "role": "admin"})).await;
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 5});
    let again = || {
        let call = stage.call("POST", "/v1/budgets", &admin);
        call.header("idempotency-key", "once").json(&budget)
    };
    let first = again().send().await;
    first.expect(201);
    assert_eq!(again().send().await.bytes, first.bytes);
    let waiting = vec![again().hold().await];
    let path = format!("/v1/keys/{id}");
    stage.admin("DELETE", &path, &json!({})).await.expect(204);
    assert_refused(&stage, waiting).await;
}

#[tokio::test]
async fn a_deleted_key_of_an_operator_changes_no_tenant() {
    let stage = set().await;
    let (id, operator) = key(&stage, &json!({"name": "stolen", "role": "operator"})).await;
    let of_tenant = json!({"name": "another", "role": "admin", "tenant": stage.tenant});
    let waiting = vec![
        held(
            &stage,
            ("/v1/keys", json!({"name": "another", "role": "operator"})),
            &operator,
        )
        .await,
        held(&stage, ("/v1/keys", of_tenant), &operator).await,
        held(&stage, ("/v1/tenants", json!({"name": "another"})), &operator).await,
        stage
            .call("POST", "/v1/budgets", &operator)
            .tenant(stage.tenant)
            .json(&json!({"scope": {}, "unit": "CREDITS", "allocated": 5}))
            .hold()
            .await,
    ];
    let path = format!("/v1/keys/{id}");
    let deleted = stage.call("DELETE", &path, &stage.operator).send().await;
    deleted.expect(204);
    let tenants = stage.get("/v1/tenants", &stage.operator).await.expect(200);
    assert_refused(&stage, waiting).await;
    assert_eq!(
        stage.get("/v1/tenants", &stage.operator).await.expect(200),
        tenants
    );
}

/// Where nothing is committed, no commit looks at the key.
#[tokio::test]
async fn a_deleted_key_is_not_told_that_there_is_nothing_to_do() {
    let stage = set().await;
    let (id, operator) = key(&stage, &json!({"name": "stolen", "role": "operator"})).await;
    let reload = ("/v1/policies/reload", json!({}));
    let reloaded = stage.post(reload.0, &stage.operator, &reload.1).await;
    reloaded.expect(200);
    let mut waiting = vec![held(&stage, reload, &operator).await];
    for what in [
        json!({"user": "nobody"}),
        json!({"seq": 1}),
        json!({"seq": 1_000_000}),
    ] {
        let erase = stage.call("POST", "/v1/ledger/erase", &operator);
        waiting.push(erase.tenant(stage.tenant).json(&what).hold().await);
    }
    let path = format!("/v1/keys/{id}");
    let deleted = stage.call("DELETE", &path, &stage.operator).send().await;
    deleted.expect(204);
    assert_refused(&stage, waiting).await;
}

#[tokio::test]
async fn a_deleted_key_takes_nothing_out_of_the_search_index() {
    let stage = set().await;
    let (id, admin) = key(&stage, &json!({"name": "stolen", "role": "admin"})).await;
    stage.ask(&reading()).await.expect(200);
    let erase = ("/v1/ledger/erase", json!({"agent": stage.agent.id}));
    let waiting = vec![held(&stage, erase, &admin).await];
    let claim = async |token: i64| {
        let claim = BlockClaim {
            token,
            now: BEGINNING,
            until: BEGINNING.plus_millis(60_000),
            by_force: false,
        };
        let claimed = stage.store.claim_block(stage.tenant, 0, &claim).await;
        claimed.unwrap()
    };
    assert!(claim(7).await);
    let path = format!("/v1/keys/{id}");
    stage.admin("DELETE", &path, &json!({})).await.expect(204);
    assert_refused(&stage, waiting).await;
    assert!(!claim(8).await, "the block was taken from whoever has it");
}

#[tokio::test]
async fn a_deleted_key_does_not_vote() {
    let stage = set().await;
    let merging = json!({
        "tool_call": {"tool": "github", "action": "merge_pull_request", "parameters": {"number": 1}},
        "context": {"source_trust": "semi_trusted_customer"},
    });
    let asked = stage.ask(&merging).await.expect(200);
    let approval = asked["approval"]["id"].as_str().unwrap();
    let (id, approver) = key(&stage, &json!({"name": "ann", "role": "approver", "user": "ann"})).await;
    let mut waiting = Vec::new();
    for verb in ["approve", "reject"] {
        let path = format!("/v1/approvals/{approval}/{verb}");
        waiting.push(held(&stage, (&path, json!({"reason": "a test"})), &approver).await);
    }
    stage
        .admin("DELETE", &format!("/v1/keys/{id}"), &json!({}))
        .await
        .expect(204);
    assert_refused(&stage, waiting).await;
}

/// What an agent can begin, of which nothing is done without its token.
async fn of_agent(stage: &Stage) -> Vec<Held> {
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 50});
    stage.admin("POST", "/v1/budgets", &budget).await.expect(201);
    let token = &stage.agent.token;
    let hold = json!({"unit": "TOKENS", "amount": 5});
    let reserved = stage.post("/v1/reservations", token, &hold).await.expect(201);
    let reservation = reserved["id"].as_str().unwrap();
    let decided = stage
        .ask(&asking("github", "get_file", "semi_trusted_customer"))
        .await
        .expect(200);
    let mut waiting = Vec::new();
    for request in [
        ("/v1/authorize", reading()),
        ("/v1/decide", reading()),
        ("/v1/reservations", hold),
        ("/v1/usage", json!({"unit": "TOKENS", "amount": 1})),
        (
            "/v1/runs/r-1/observations",
            json!({"source_trust": "untrusted_external"}),
        ),
        (&*format!("/v1/reservations/{reservation}/release"), json!({})),
        (
            &*format!(
                "/v1/decisions/{}/outcome",
                decided["decision_id"].as_str().unwrap()
            ),
            json!({"status": "not_executed"}),
        ),
    ] {
        waiting.push(held(stage, request, token).await);
    }
    waiting
}

#[tokio::test]
async fn an_agent_whose_token_was_deleted_has_nothing_recorded() {
    let stage = set().await;
    let waiting = of_agent(&stage).await;
    let path = format!("/v1/agents/{}/tokens", stage.agent.id);
    let tokens = stage.admin("GET", &path, &json!({})).await.expect(200);
    let path = format!("{path}/{}", tokens["items"][0]["id"].as_str().unwrap());
    stage.admin("DELETE", &path, &json!({})).await.expect(204);
    assert_refused(&stage, waiting).await;
}

#[tokio::test]
async fn an_agent_of_a_deleted_tenant_has_nothing_recorded() {
    let stage = set().await;
    let waiting = of_agent(&stage).await;
    let path = format!("/v1/tenants/{}", stage.tenant);
    let deleted = stage.call("DELETE", &path, &stage.operator).send().await;
    deleted.expect(204);
    assert_refused(&stage, waiting).await;
}
