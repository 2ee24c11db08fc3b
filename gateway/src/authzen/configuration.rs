//! `GET /.well-known/authzen-configuration` (section 9): where the endpoints are.

use crate::gateway::Gateway;
use crate::http::{Code, Json, Refusal, once};
use axum::extract::State;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};
use serde::Serialize;
use std::sync::Arc;

/// The metadata of this policy decision point (section 9.1.1).
#[derive(Debug, Serialize)]
pub struct Configuration {
    policy_decision_point: String,
    access_evaluation_endpoint: String,
    access_evaluations_endpoint: String,
    search_subject_endpoint: String,
    search_resource_endpoint: String,
    search_action_endpoint: String,
}

/// Where everything is: under the public URL of the gateway, or, where none is set, where this request has reached it.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    headers: HeaderMap,
) -> Result<Json<Configuration>, Refusal> {
    let base = match &gateway.options.public_url {
        Some(url) => url.as_str().to_owned(),
        None => reached(&headers)?,
    };
    let endpoint = |name: &str| format!("{base}/access/v1/{name}");
    Ok(Json(Configuration {
        access_evaluation_endpoint: endpoint("evaluation"),
        access_evaluations_endpoint: endpoint("evaluations"),
        search_subject_endpoint: endpoint("search/subject"),
        search_resource_endpoint: endpoint("search/resource"),
        search_action_endpoint: endpoint("search/action"),
        policy_decision_point: base,
    }))
}

/// The URL of whoever speaks to the gateway directly: without TLS, which a proxy would add.
fn reached(headers: &HeaderMap) -> Result<String, Refusal> {
    once::check(headers)?;
    let host = headers.get(header::HOST).and_then(|value| value.to_str().ok());
    let authority = host.and_then(|host| host.parse::<Authority>().ok());
    let authority = authority.filter(|authority| !authority.as_str().contains('@'));
    // Whoever speaks through a Unix socket may say nothing there.
    let authority = authority.ok_or_else(|| {
        let detail = "send the header `Host`, or start the gateway with `--public-url`";
        Refusal::new(Code::InvalidParameter, detail)
    })?;
    Ok(format!("http://{authority}"))
}
