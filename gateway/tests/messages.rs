//! Messages in place of JSON: they mean the same, are refused for the same, and leave nothing else behind.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::http::messagepack;
use serde_json::{Value, json};
use support::World;
use support::tenancy::{ENTRIES, reading};

const MESSAGE: &str = "application/msgpack";
const LIMITS: canon::Limits = canon::Limits {
    bytes_max: 1 << 20,
    depth_max: 64,
};

/// What a message says, as canonical JSON.
fn said(message: &[u8]) -> Value {
    let text = canon::canonicalize_messagepack(message, LIMITS).unwrap();
    serde_json::from_str(text.as_str()).unwrap()
}

fn named(request_id: &str) -> Value {
    let mut ask = reading();
    ask["request_id"] = json!(request_id);
    ask
}

#[tokio::test]
async fn a_message_is_the_same_ask_as_its_json_and_what_is_recorded_is_json() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let ask = named("call-1");
    let call = || world.call("POST", "/v1/authorize", &tenancy.token);
    let first = call().body(ask.to_string()).send().await;
    let told = first.expect(200);
    let again = call()
        .body_of(messagepack::encode(&ask), MESSAGE)
        .header("accept", "application/json")
        .send()
        .await;
    assert_eq!(
        again.bytes, first.bytes,
        "it is a repeat of what was asked in JSON"
    );
    assert_eq!(world.store.head(tenancy.id).await.unwrap().seq, ENTRIES + 1);

    // Straight from the router, whatever door the tests go through.
    let response = call()
        .body_of(messagepack::encode(&ask), MESSAGE)
        .header("accept", MESSAGE)
        .respond()
        .await;
    assert_eq!(response.headers()["content-type"], MESSAGE);
    let message = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    assert_eq!(said(&message), told);

    let path = format!("/v1/receipts/{}", told["decision_id"].as_str().unwrap());
    let response = world
        .call("GET", &path, &tenancy.token)
        .header("accept", MESSAGE)
        .respond()
        .await;
    assert_eq!(response.headers()["content-type"], "application/json");
    let receipt = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    let recorded = world
        .store
        .receipt(tenancy.id, told["decision_id"].as_str().unwrap().parse().unwrap())
        .await;
    assert_eq!(
        receipt,
        recorded.unwrap().unwrap(),
        "it was signed, so it stays as it is"
    );

    let contract = world
        .call("GET", "/openapi.json", &tenancy.token)
        .header("accept", MESSAGE)
        .respond()
        .await;
    assert_eq!(contract.headers()["content-type"], "application/json");
}

/// Otherwise what a cache on the way keeps of one format is given to whoever reads the other one.
#[tokio::test]
async fn what_is_read_says_that_its_format_is_by_accept_where_it_has_two() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let ask = world
        .call("POST", "/v1/authorize", &tenancy.token)
        .json(&reading());
    let told = ask.send().await.expect(200);
    let receipt = format!("/v1/receipts/{}", told["decision_id"].as_str().unwrap());
    let keys = "/.well-known/countersign/keys.json";
    for (method, path, credential, vary) in [
        ("GET", keys, "", Some("Accept")),
        ("GET", "/v1/whoami", &*tenancy.token, Some("Accept")),
        ("GET", "/v1/whoami", "", Some("Accept")),
        ("GET", "/v1/no/such/route", "", Some("Accept")),
        ("GET", &receipt, &tenancy.token, None),
        ("GET", "/openapi.json", "", None),
        ("GET", "/healthz", "", None),
        ("POST", "/v1/authorize", &tenancy.token, None),
        ("POST", "/v1/authorize", "", None),
    ] {
        for accept in ["application/json", MESSAGE] {
            let call = world.call(method, path, credential).header("accept", accept);
            let call = if method == "POST" {
                call.json(&reading())
            } else {
                call
            };
            let response = call.respond().await;
            let said = response.headers().get("vary").map(|vary| vary.to_str().unwrap());
            assert_eq!(said, vary, "{method} {path} {accept}: {}", response.status());
        }
    }
}

#[tokio::test]
async fn a_message_is_refused_for_what_json_is_refused_for_and_nothing_is_recorded() {
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let good = messagepack::encode(&reading());
    let with = |member: &[u8]| {
        let mut message = good.clone();
        message[0] += 1;
        message.extend_from_slice(member);
        message
    };
    let key = b"\xabparameters2";
    for (message, status, code) in [
        (with(b"\xa9tool_call\xc0"), 400, "malformed_json"),
        (with(b"\x01\x01"), 400, "malformed_json"),
        (
            with(&[key, &b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"[..]].concat()),
            400,
            "malformed_json",
        ),
        (with(&[key, &b"\xc4\x01a"[..]].concat()), 400, "malformed_json"),
        (
            with(&[key, &b"\xcf\x00\x20\x00\x00\x00\x00\x00\x01"[..]].concat()),
            400,
            "malformed_json",
        ),
        (with(&[key, &[0x91; 100][..]].concat()), 400, "malformed_json"),
        (
            with(b"\xbe$serde_json::private::RawValue\xa2{}"),
            400,
            "malformed_json",
        ),
        ([good.clone(), vec![0xc0]].concat(), 400, "malformed_json"),
        (good[..good.len() - 1].to_vec(), 400, "malformed_json"),
        (b"\xdf\xff\xff\xff\xff".to_vec(), 400, "malformed_json"),
        (reading().to_string().into_bytes(), 400, "malformed_json"),
        (with(&[key, &b"\xc0"[..]].concat()), 400, "unknown_field"),
        (b"\xc0".to_vec(), 400, "invalid_field"),
        (vec![0xc0; 300_000], 413, "body_too_large"),
        (
            [&b"\xda\xc3\x50"[..], &vec![1; 50_000]].concat(),
            413,
            "body_too_large",
        ),
    ] {
        let reply = world
            .call("POST", "/v1/authorize", &tenancy.token)
            .body_of(message, MESSAGE)
            .send()
            .await;
        reply.problem(status, code);
    }
    // One that is JSON by its type is no message.
    let reply = world
        .call("POST", "/v1/authorize", &tenancy.token)
        .body(good)
        .send()
        .await;
    reply.problem(400, "malformed_json");
    assert_eq!(world.store.head(tenancy.id).await.unwrap().seq, ENTRIES);
}

#[tokio::test]
async fn a_refusal_of_a_message_names_the_place_that_its_sender_knows() {
    const HELD: &[u8] = b"\xa4held";
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut ask = reading();
    ask["tool_call"]["parameters"]["x"] = json!("held");
    let good = messagepack::encode(&ask);
    let at = good.windows(HELD.len()).position(|bytes| bytes == HELD).unwrap();
    let no_number = b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00";
    let long = [&b"\xda\xc3\x50"[..], &vec![1; 50_000]].concat();
    for (value, status, code, expected) in [
        (
            &no_number[..],
            400,
            "malformed_json",
            format!("number out of range of a double at `/tool_call/parameters/x` (byte {at})"),
        ),
        (
            b"\xcf\x00\x20\x00\x00\x00\x00\x00\x01",
            400,
            "malformed_json",
            "integer that canonical JSON writes with other digits; send it as text at `/tool_call/parameters/x`"
                .to_owned(),
        ),
        (
            &*long,
            413,
            "body_too_large",
            "a message that says more than 262144 bytes of JSON at the top level".to_owned(),
        ),
    ] {
        let message = [&good[..at], value, &good[at + HELD.len()..]].concat();
        let reply = world
            .call("POST", "/v1/authorize", &tenancy.token)
            .body_of(message, MESSAGE)
            .send()
            .await;
        assert_eq!(reply.problem(status, code), expected);
    }
}
