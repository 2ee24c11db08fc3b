//! Bodies that are no ask: broken, odd, of another shape, too large. Each is refused by the name of the field.

use crate::post_raw;
use crate::stage::{Stage, reading};
use axum::body::Body;
use axum::http::{Request, header};
use bytes::Bytes;
use gateway::gateway::Options;
use std::path::Path;
use tower::ServiceExt;

/// A body that is valid but for this change in its text.
fn with(from: &str, to: &str) -> Vec<u8> {
    let text = r#"{"request_id":"call-1","tool_call":{"tool":"github","action":"create_issue","parameters":{"a":1}},"context":{"source_trust":"unknown"}}"#;
    assert!(text.contains(from), "{from}");
    text.replacen(from, to, 1).into_bytes()
}

fn nested(depth: usize) -> String {
    format!("{}1{}", "[".repeat(depth), "]".repeat(depth))
}

#[tokio::test]
async fn a_body_that_is_not_json_is_refused_and_not_recorded() {
    let stage = Stage::set().await;
    let head = stage.head().await;
    let invalid_utf8 = {
        let mut body = with("call-1", "call-?");
        let place = body.iter().position(|byte| *byte == b'?').unwrap();
        body[place] = 0xff;
        body
    };
    for (body, detail) in [
        (Vec::new(), ""),
        (b"{".to_vec(), ""),
        (b"{}garbage".to_vec(), ""),
        (with("\"a\":1", "\"a\":NaN"), ""),
        (with("\"a\":1", "\"a\":Infinity"), ""),
        (with("\"a\":1", "\"a\":01"), ""),
        (with("\"a\":1", "\"a\":1e999"), ""),
        (with("\"a\":1", "'a':1"), ""),
        (with("\"a\":1", "\"a\":9007199254740993"), "text"),
        (with("\"a\":1", "\"a\":[-1234567890123456789]"), "/a/0"),
        (with("\"a\":1", "\"a\":\"\\ud800\""), "surrogate"),
        (with("\"a\":1", "\"\\udfff\":1"), "surrogate"),
        (with("\"a\":1", "\"a\":1,\"a\":2"), "`a`"),
        (with("\"a\":1", "\"a\":{\"b\":[{\"c\":1,\"c\":1}]}"), "`c`"),
        (with("\"a\":1", "\"a\":1,\"\\u0061\":2"), "`a`"),
        (
            with("\"context\":{", "\"tool_call\":{},\"context\":{"),
            "`tool_call`",
        ),
        (
            with(
                "\"source_trust\":\"unknown\"",
                "\"source_trust\":\"unknown\",\"source_trust\":\"trusted_internal_signed\"",
            ),
            "`source_trust`",
        ),
        (with("\"a\":1", &format!("\"a\":{}", nested(62))), "64"),
        (
            with("\"a\":1", "\"$serde_json::private::RawValue\":\"{}\""),
            "`$serde_json::private::RawValue`",
        ),
        (
            with(
                "\"a\":1",
                "\"a\":[{\"\\u0024serde_json::private::Number\":\"1\"}]",
            ),
            "`/tool_call/parameters/a/0`",
        ),
        (invalid_utf8, "UTF-8"),
    ] {
        let refused = post_raw(&stage, body.clone()).await;
        let said = refused.problem(400, "malformed_json");
        assert!(
            said.contains(detail),
            "{}: {said}",
            String::from_utf8_lossy(&body)
        );
    }
    // One level less is deep enough.
    let deep = with("\"a\":1", &format!("\"a\":{}", nested(61)));
    assert_eq!(stage.head().await, head);
    post_raw(&stage, deep).await.expect(200);
}

/// What is put in the place of a part of a valid ask, and the field that the refusal names.
#[rustfmt::skip]
const WRONG: &[(&str, &str, &str)] = &[
    (r#""tool":"github","#, "", "`tool`"),
    (r#""action":"create_issue","#, "", "`action`"),
    (r#","parameters":{"a":1}"#, "", "`parameters`"),
    (r#""source_trust":"unknown""#, "", "`source_trust`"),
    (r#""github""#, "7", "`/tool_call/tool`"),
    (r#""github""#, "null", "`/tool_call/tool`"),
    (r#""github""#, r#""a/b""#, "`/tool_call/tool`"),
    (r#""github""#, r#""""#, "`/tool_call/tool`"),
    (r#""create_issue""#, r#""a\u0000b""#, "`/tool_call/action`"),
    (r#""create_issue""#, r#""e\u0301""#, "`/tool_call/action`"),
    (r#"{"a":1}"#, "[1]", "`/tool_call/parameters`"),
    (r#"{"a":1}"#, "null", "`/tool_call/parameters`"),
    (r#"{"a":1}"#, r#""{}""#, "`/tool_call/parameters`"),
    (r#""parameters""#, r#""mutates_state":"no","parameters""#, "`/tool_call/mutates_state`"),
    (r#""parameters""#, r#""resource":{},"parameters""#, "`/tool_call/resource`"),
    (r#""unknown""#, r#""fully_trusted""#, "`/context/source_trust`"),
    (r#""unknown""#, r#""TRUSTED_INTERNAL_SIGNED""#, "`/context/source_trust`"),
    (r#""source_trust""#, r#""sources":{"a":"unknown"},"source_trust""#, "`/context/sources`"),
    (r#""source_trust""#, r#""sources":{"/a":"odd"},"source_trust""#, "`/context/sources/"),
    (r#""source_trust""#, r#""attributes":[],"source_trust""#, "`/context/attributes`"),
    (r#""call-1""#, "1", "`/request_id`"),
    (r#""context""#, r#""ttl_ms":1,"context""#, "`/ttl_ms`"),
    (r#""context""#, r#""ttl_ms":-1,"context""#, "`/ttl_ms`"),
    (r#""context""#, r#""mode":"dryrun","context""#, "`/mode`"),
    (r#""context""#, r#""agent":{"id":"agt_nonsense"},"context""#, "`/agent/id`"),
    (r#""context""#, r#""estimate":{"unit":"TOKENS","amount":-1},"context""#, "`/estimate/amount`"),
    (r#""context""#, r#""estimate":{"unit":"TOKENS","amount":1.5},"context""#, "`/estimate/amount`"),
];

/// What is put in the place of a part of a valid ask, so that it has a field that the contract does not know, and the
/// field that the refusal names.
#[rustfmt::skip]
const UNKNOWN: &[(&str, &str, &str)] = &[
    (r#""context""#, r#""mutates":true,"context""#, "`/mutates`"),
    (r#""source_trust""#, r#""trust":1,"source_trust""#, "`/context/trust`"),
    (r#""parameters""#, r#""mutates":true,"parameters""#, "`/tool_call/mutates`"),
    (r#""context""#, r#""agent":{"name":"x"},"context""#, "`/agent/name`"),
    (r#""context""#, r#""trace":{"span":"x"},"context""#, "`/trace/span`"),
];

#[tokio::test]
async fn a_body_of_another_shape_is_refused_by_the_name_of_the_field() {
    let stage = Stage::set().await;
    let head = stage.head().await;
    for (table, code) in [(WRONG, "invalid_field"), (UNKNOWN, "unknown_field")] {
        for (from, to, field) in table {
            let said = post_raw(&stage, with(from, to)).await.problem(400, code);
            assert!(said.contains(field), "{from} → {to}: {said}");
        }
    }
    for (body, field) in [("[]", ""), ("null", ""), ("7", ""), ("{}", "`tool_call`")] {
        let said = post_raw(&stage, body).await.problem(400, "invalid_field");
        assert!(said.contains(field), "{body}: {said}");
    }
    let long = with("call-1", &"x".repeat(257));
    assert!(
        post_raw(&stage, long)
            .await
            .problem(400, "invalid_field")
            .contains("`/request_id`")
    );
    assert_eq!(stage.head().await, head);
}

/// A verifier reads no line of 16 MiB, and what is recorded is the canonical text.
#[tokio::test]
async fn a_body_whose_canonical_text_no_verifier_would_read_is_refused() {
    let stage = Stage::set_with(Options {
        body_bytes_max: 4 << 20,
        ..Options::default()
    })
    .await;
    // Of five bytes each, and of 22 in canonical text.
    let numbers = |count| vec!["1e20"; count].join(",");
    let attributes = |count| format!("\"context\":{{\"attributes\":{{\"a\":[{}]}},", numbers(count));
    let ask = |count| with("\"context\":{", &attributes(count));
    let sent = |body| {
        let call = stage.call("POST", "/v1/authorize", &stage.agent.token);
        call.header("content-type", "application/json").body(body).send()
    };
    let head = stage.head().await;
    let refused = sent(ask(400_000)).await;
    let detail = refused.problem(413, "body_too_large");
    assert!(detail.contains("canonical text"), "{detail}");
    assert_eq!(stage.head().await, head);
    sent(ask(300_000)).await.expect(200);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_or_no_json_by_its_type_is_refused() {
    let stage = Stage::set_with(Options {
        body_bytes_max: 4_096,
        ..Options::default()
    })
    .await;
    let head = stage.head().await;
    let large = with("\"a\":1", &format!("\"a\":\"{}\"", "x".repeat(4_096)));
    let announced = stage
        .call("POST", "/v1/authorize", &stage.agent.token)
        .header("content-length", large.len().to_string());
    assert!(
        announced
            .body(large.clone())
            .send()
            .await
            .problem(413, "body_too_large")
            .contains("4096")
    );

    let chunks = large
        .chunks(100)
        .map(|chunk| Ok::<_, std::io::Error>(Bytes::copy_from_slice(chunk)));
    let streamed = Body::from_stream(futures_util::stream::iter(chunks.collect::<Vec<_>>()));
    let request = Request::post("/v1/authorize")
        .header(header::AUTHORIZATION, format!("Bearer {}", stage.agent.token))
        .header(header::CONTENT_TYPE, "application/json")
        .body(streamed);
    assert_eq!(
        stage
            .app
            .clone()
            .oneshot(request.unwrap())
            .await
            .unwrap()
            .status(),
        413
    );

    for content_type in ["", "text/plain", "application/x-www-form-urlencoded"] {
        let mut request = Request::post("/v1/authorize")
            .header(header::AUTHORIZATION, format!("Bearer {}", stage.agent.token));
        if !content_type.is_empty() {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let response = stage
            .app
            .clone()
            .oneshot(request.body(Body::from(reading().to_string())).unwrap())
            .await
            .unwrap();
        assert_eq!(response.status(), 415, "{content_type}");
    }
    assert_eq!(stage.head().await, head);
}

#[tokio::test]
async fn a_body_in_a_content_coding_is_refused_and_never_read() {
    let stage = Stage::set().await;
    let head = stage.head().await;
    let sent = async |path: &str, coding: &str| {
        let call = stage.call("POST", path, &stage.agent.token);
        let call = call.header("content-encoding", coding);
        call.json(&reading()).send().await
    };
    for coding in ["gzip", "br", "identity, gzip"] {
        for path in ["/v1/authorize", "/v1/authorize/batch", "/v1/reservations"] {
            let refused = sent(path, coding).await.expect(415);
            assert_eq!(refused["code"], "unsupported_media_type", "{path}: {refused}");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains("`Content-Encoding`"), "{detail}");
        }
    }
    assert_eq!(stage.head().await, head);
    sent("/v1/authorize", "Identity").await.expect(200);
}

#[tokio::test]
async fn what_json_parsers_stumble_over_is_answered_or_refused_but_never_a_fault() {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/vectors/json-robustness/test_parsing");
    let Ok(files) = std::fs::read_dir(&folder) else {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "the vectors are missing");
        return println!("skipped: {} is not there", folder.display());
    };
    let stage = Stage::set().await;
    let mut seen = 0;
    for file in files {
        let file = file.unwrap().path();
        let name = file.file_name().unwrap().to_str().unwrap().to_owned();
        let bytes = std::fs::read(&file).unwrap();
        let head = stage.head().await;
        assert_eq!(post_raw(&stage, bytes.clone()).await.status, 400, "{name} raw");
        let bare = [&br#"{"context":{"v":"#[..], &bytes, b"}}"].concat();
        assert_eq!(
            post_raw(&stage, bare).await.status,
            400,
            "{name} as the only member"
        );
        assert_eq!(stage.head().await, head, "{name}");
        for member in ["\"parameters\":{", "\"attributes\":{"] {
            check_member(&stage, &name, member, &bytes).await;
        }
        seen += 1;
    }
    assert_eq!(seen, 60);
    stage.assert_sound().await;
}

/// Sends a value as a member of an otherwise valid ask, twice.
async fn check_member(stage: &Stage, name: &str, member: &str, value: &[u8]) {
    let text = r#"{"tool_call":{"tool":"github","action":"get_file","parameters":{}},"context":{"source_trust":"unknown","attributes":{}}}"#;
    let place = text.find(member).unwrap() + member.len();
    let body = [
        &text.as_bytes()[..place],
        b"\"v\":",
        value,
        &text.as_bytes()[place..],
    ]
    .concat();
    let first = post_raw(stage, body.clone()).await.status;
    assert_eq!(post_raw(stage, body).await.status, first, "{name} in {member}");
    let must_fail = name.starts_with("n_") || name == "y_object_duplicated_key.json";
    assert!(
        if must_fail {
            first == 400
        } else {
            first == 200 || first == 400
        },
        "{name} in {member}: {first}"
    );
}
