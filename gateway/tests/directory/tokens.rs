//! `/v1/agents/{id}/tokens`.

use crate::support::{Call, World};
use crate::{Acme, NOW, text};
use gateway::cli::demo;
use gateway::listeners::Address;
use serde_json::{Value, json};
use std::net::SocketAddr;

#[tokio::test]
async fn a_token_is_shown_once_and_listed_without_its_secret() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    let path = format!("/v1/agents/{agent}/tokens");
    let later = "2026-02-01T00:00:00.000Z";
    let mut made = acme
        .admin("POST", &path, json!({"expires_at": later}))
        .await
        .expect(201);
    let secret = text(&made.as_object_mut().unwrap().remove("token").unwrap());
    assert!(secret.starts_with("csa_") && text(&made["id"]).starts_with("tok_"));
    let view = json!({"id": made["id"], "created_at": NOW, "expires_at": later});
    assert_eq!(made, view);
    let told =
        json!({"id": made["id"], "agent": agent, "created_at": NOW, "expires_at": later, "expired": []});
    assert_eq!(acme.told("token_created").await, told);
    let list = acme.admin("GET", &path, Value::Null).await;
    assert!(!list.text().contains("sha256") && !list.text().contains("csa_"));
    assert_eq!(list.expect(200), json!({"items": [view], "next_cursor": null}));
    assert_eq!(
        acme.get("/v1/whoami", &secret).await.expect(200)["agent"],
        json!(agent)
    );
}

#[tokio::test]
async fn a_token_needs_no_body_to_be_made() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    for body in [Value::Null, json!({}), json!({"expires_at": null})] {
        assert_eq!(
            acme.admin("POST", &path, body).await.expect(201)["expires_at"],
            Value::Null
        );
    }
    acme.clock.advance_millis(1);
    assert_eq!(acme.pages(&path).await.len(), 3);
}

#[tokio::test]
async fn a_token_is_rotated_without_a_gap() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    let old = acme.admin("POST", &path, Value::Null).await.expect(201);
    let new = acme.admin("POST", &path, Value::Null).await.expect(201);
    let (old_secret, new_secret) = (text(&old["token"]), text(&new["token"]));
    for secret in [&old_secret, &new_secret] {
        acme.get("/v1/whoami", secret).await.expect(200);
    }
    acme.news().await;
    let old_path = format!("{path}/{}", text(&old["id"]));
    acme.admin("DELETE", &old_path, Value::Null).await.expect(204);
    let told = json!({"id": old["id"], "agent": agent, "created_at": NOW, "expires_at": null});
    assert_eq!(acme.told("token_deleted").await, told);
    acme.get("/v1/whoami", &old_secret)
        .await
        .problem(401, "invalid_token");
    acme.get("/v1/whoami", &new_secret).await.expect(200);
    acme.admin("DELETE", &old_path, Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn an_expired_token_is_refused_and_cleared_away_by_the_next_one() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    let body = json!({"expires_at": "2026-01-31T09:30:01.000Z"});
    let short = acme.admin("POST", &path, body).await.expect(201);
    acme.clock.advance_millis(1_000);
    acme.get("/v1/whoami", &text(&short["token"]))
        .await
        .problem(401, "invalid_token");
    acme.news().await;
    acme.admin("POST", &path, Value::Null).await.expect(201);
    assert_eq!(acme.told("token_created").await["expired"], json!([]));
    acme.clock.advance_millis(24 * 60 * 60 * 1_000);
    acme.news().await;
    acme.admin("POST", &path, Value::Null).await.expect(201);
    assert_eq!(acme.told("token_created").await["expired"], json!([short["id"]]));
    let list = acme.admin("GET", &path, Value::Null).await.expect(200);
    assert_eq!(list["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_new_token_that_is_made_while_the_clock_is_ahead_takes_none_away_that_works() {
    const AHEAD: i64 = 60 * 60 * 1_000;
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    let body = json!({"expires_at": "2026-01-31T10:00:00.000Z"});
    let made = acme.admin("POST", &path, body).await.expect(201);
    acme.clock.advance_millis(AHEAD);
    acme.admin("POST", &path, Value::Null).await.expect(201);
    acme.clock.advance_millis(-AHEAD);
    acme.get("/v1/whoami", &text(&made["token"])).await.expect(200);
}

#[tokio::test]
async fn an_agent_has_at_most_thirty_two_tokens_that_work() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    for _ in 0..32 {
        acme.admin("POST", &path, Value::Null).await.expect(201);
    }
    acme.news().await;
    let detail = acme
        .admin("POST", &path, Value::Null)
        .await
        .problem(409, "conflict");
    assert!(detail.contains("32"), "{detail}");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_revoked_agent_gets_no_tokens() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let reason = json!({"reason": "stolen"});
    acme.admin("POST", &format!("/v1/agents/{agent}/revoke"), reason)
        .await
        .expect(200);
    let path = format!("/v1/agents/{agent}/tokens");
    acme.admin("POST", &path, Value::Null)
        .await
        .problem(409, "revoked_for_good");
}

/// The demo, as it was started last.
struct Demo {
    /// What that has printed.
    out: String,
    tenant: String,
    /// The path of the tokens of its agent.
    tokens: String,
}

impl Demo {
    /// Starts it for the first time.
    async fn start(world: &World) -> Self {
        let out = print_demo(world).await;
        let tenant = printed(&out, "demo tenant: ");
        let token = printed(&out, "demo agent token (shown once): ");
        let agent = text(&world.get("/v1/whoami", &token).await.expect(200)["agent"]);
        let tokens = format!("/v1/agents/{agent}/tokens");
        Self { out, tenant, tokens }
    }

    /// A request of its admin.
    fn call<'w>(&self, world: &'w World, method: &str, path: &str) -> Call<'w> {
        world.call(method, path, &world.operator).tenant(&self.tenant)
    }

    /// Fails unless another start says why there is no token, and shows no curl.
    async fn assert_starts_without_token(&self, world: &World, why: &str) {
        let tenant = &self.tenant;
        assert_eq!(
            print_demo(world).await,
            format!("demo tenant: {tenant}\nthere is no token for the demo's agent, `demo-agent`: {why}\n")
        );
    }
}

/// What a start with `--demo` prints.
async fn print_demo(world: &World) -> String {
    let address = Address::Tcp(SocketAddr::from(([127, 0, 0, 1], 8080)));
    demo::set_up(&world.gateway, &address).await.unwrap()
}

/// The part of a line after these words.
fn printed(out: &str, words: &str) -> String {
    let line = out.lines().find_map(|line| line.strip_prefix(words));
    line.unwrap_or_else(|| panic!("no `{words}`: {out}")).to_owned()
}

#[tokio::test]
async fn the_demo_leaves_room_for_tokens_of_others_however_often_it_is_started() {
    let world = World::start().await;
    let mut demo = Demo::start(&world).await;
    for _ in 0..32 {
        world.clock.advance_millis(1_000);
        demo.out = print_demo(&world).await;
    }
    let listed = demo.call(&world, "GET", &demo.tokens).send().await.expect(200);
    let tokens = listed["items"].as_array().unwrap();
    assert_eq!(tokens.len(), 8);
    let made = demo.call(&world, "POST", &demo.tokens).send().await;
    made.expect(201);
    // The last one works, for a week.
    let token = printed(&demo.out, "demo agent token (shown once): ");
    world.clock.advance_millis(7 * 86_400_000 - 1);
    world.get("/v1/whoami", &token).await.expect(200);
    world.clock.advance_millis(1);
    let ended = world.get("/v1/whoami", &token).await;
    ended.problem(401, "invalid_token");
}

#[tokio::test]
async fn the_demo_starts_without_a_token_where_its_agent_can_have_none() {
    let world = World::start().await;
    let demo = Demo::start(&world).await;
    for _ in 1..32 {
        let made = demo.call(&world, "POST", &demo.tokens).send().await;
        made.expect(201);
    }
    let full = "this agent has 32 tokens that work; delete one of them first";
    demo.assert_starts_without_token(&world, full).await;
    let revoke = demo.tokens.replace("/tokens", "/revoke");
    let call = demo
        .call(&world, "POST", &revoke)
        .json(&json!({"reason": "stolen"}));
    call.send().await.expect(200);
    let revoked = "it is revoked, and a revocation is for good";
    demo.assert_starts_without_token(&world, revoked).await;
}

#[tokio::test]
async fn a_bad_token_is_refused() {
    let acme = Acme::open().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let other = acme.hire(json!({"name": "other"})).await;
    let path = format!("/v1/agents/{agent}/tokens");
    let token = text(&acme.admin("POST", &path, Value::Null).await.expect(201)["id"]);
    acme.news().await;
    acme.admin("POST", &path, json!({"expires_at": NOW}))
        .await
        .problem(400, "invalid_field");
    acme.admin("POST", &path, json!({"expires_at": 7}))
        .await
        .problem(400, "invalid_field");
    acme.admin("POST", &path, json!({"scope": "all"}))
        .await
        .problem(400, "unknown_field");
    acme.call("POST", &path, &acme.tenant.admin)
        .body("{")
        .send()
        .await
        .problem(400, "malformed_json");
    acme.admin("POST", "/v1/agents/agt_1/tokens", Value::Null)
        .await
        .problem(404, "not_found");
    let of_other = format!("/v1/agents/{other}/tokens/{token}");
    acme.admin("DELETE", &of_other, Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", &format!("{path}/tok_1"), Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}
