//! An ask has a way of its own to its answer, beside the router. Whatever is sent, both ways lead to the same response.

use crate::stage::{Stage, named, reading};
use axum::body::{Body, to_bytes};
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request, StatusCode};
use gateway::app::App;
use gateway::router::router;
use serde_json::Value;
use tower::ServiceExt;

type Response = (StatusCode, HeaderMap, Vec<u8>);

/// The responses to the same request by both ways.
async fn both(stage: &Stage, request: impl Fn() -> Request<Body>) -> [Response; 2] {
    let direct = App::new(&stage.gateway).oneshot(request()).await.unwrap();
    let routed = router(&stage.gateway).oneshot(request()).await.unwrap();
    let mut responses = Vec::new();
    for response in [direct, routed] {
        let (mut parts, body) = response.into_parts();
        // The router writes down what the server finds out by itself.
        parts.headers.remove("content-length");
        let body = to_bytes(body, usize::MAX).await.unwrap();
        responses.push((parts.status, parts.headers, body.to_vec()));
    }
    responses.try_into().unwrap()
}

fn post(stage: &Stage) -> Builder {
    Request::post("/v1/authorize")
        .header("authorization", format!("Bearer {}", stage.agent.token))
        .header("content-type", "application/json")
        .header("x-request-id", "the-same")
}

fn sends(builder: Builder, body: &Value) -> Request<Body> {
    builder.body(Body::from(body.to_string())).unwrap()
}

#[tokio::test]
async fn both_ways_give_an_ask_the_same_response() {
    let stage = Stage::set().await;
    let mut dry = reading();
    dry["mode"] = "dry_run".into();
    let repeated = named(reading(), "call-1");
    let mut unknown = reading();
    unknown["unknown"] = 1.into();
    for (ask, status, headers) in [
        (&dry, 200, &[][..]),
        (&repeated, 200, &[]),
        (&repeated, 200, &[("accept", "application/msgpack")]),
        (&repeated, 200, &[("idempotency-key", "call-1")]),
        (&repeated, 400, &[("idempotency-key", "call-2")]),
        (&repeated, 400, &[("x-request-timeout-ms", "soon")]),
        (
            &repeated,
            400,
            &[("x-request-timeout-ms", "9000"), ("x-request-timeout-ms", "9001")],
        ),
        (
            &repeated,
            400,
            &[("idempotency-key", "call-1"), ("idempotency-key", "call-1")],
        ),
        (&repeated, 400, &[("authorization", "Bearer nobody")]),
        (&repeated, 415, &[("content-encoding", "gzip")]),
        (&repeated, 404, &[("countersign-tenant", "tnt_1")]),
        (&unknown, 400, &[]),
        (&unknown, 400, &[("accept", "application/msgpack")]),
    ] {
        let request = || {
            let with = |builder: Builder, (name, value): &(&str, &str)| builder.header(*name, *value);
            sends(headers.iter().fold(post(&stage), with), ask)
        };
        let [direct, routed] = both(&stage, request).await;
        assert_eq!(direct, routed, "{ask} {headers:?}");
        assert_eq!(direct.0.as_u16(), status, "{ask} {headers:?}");
    }
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn both_ways_let_in_the_same_callers() {
    let stage = Stage::set().await;
    let bare = || Request::post("/v1/authorize").header("x-request-id", "the-same");
    for (credential, status) in [
        (String::new(), 401),
        ("Basic YTpi".to_owned(), 401),
        ("Bearer nobody".to_owned(), 401),
        (format!("Bearer {}x", stage.agent.token), 401),
        (format!("Bearer {}", stage.operator), 403),
        // It is let in, and then told what a body is.
        (format!("Bearer {}", stage.agent.token), 415),
    ] {
        let request = || sends(bare().header("authorization", &credential), &reading());
        let [direct, routed] = both(&stage, request).await;
        assert_eq!(direct, routed, "{status}");
        assert_eq!(
            direct.0.as_u16(),
            status,
            "{}",
            String::from_utf8_lossy(&direct.2)
        );
    }
    assert_eq!(stage.count("decision").await, 0);
}
