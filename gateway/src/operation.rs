//! What operators and their tools ask: is it alive, is it ready, what has it counted, what does it offer.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::http::messagepack::Exact;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use model::TenantId;
use std::sync::Arc;
use std::time::Duration;

/// The contract of this gateway, as it is served.
const OPENAPI: &str = include_str!("../../docs/openapi.json");

/// How long the ledger may take to be read by a gateway that is ready, and how long metrics wait for the size of the
/// database. Where it stands still, a read ends much later than whoever asks for either waits.
const READ_TIME_MAX: Duration = Duration::from_secs(2);

/// `GET /healthz`: the process answers.
pub async fn healthz() -> &'static str {
    "ok\n"
}

/// `GET /readyz`: the store is still there; the ledger can be written, as far as the last attempt showed, and read,
/// which is tried now and takes two seconds at most; it is what was recorded, as far as it has been verified, and no
/// witness has seen another; the time of the signing key is not over; and what others have changed is known.
pub async fn readyz(State(gateway): State<Arc<Gateway>>) -> Result<&'static str, Refusal> {
    gateway.check_current()?;
    gateway.check_key()?;
    let store = Arc::clone(&gateway.store);
    let read = async move {
        let entries = store.entries(TenantId::SYSTEM, 1, 1).await;
        entries.map(drop).map_err(Refusal::from)
    };
    let read = tokio::time::timeout(READ_TIME_MAX, gateway.readable.run(read));
    read.await.map_err(|_| {
        tracing::warn!("the gateway is not ready: the ledger was not read within {READ_TIME_MAX:?}");
        Refusal::ledger_unavailable()
    })??;
    gateway.watch.check_all()?;
    if gateway.sequencer.is_healthy() {
        Ok("ready\n")
    } else {
        Err(Refusal::ledger_unavailable())
    }
}

/// `GET /metrics`: what was counted.
pub async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response {
    // Metrics are wanted most when the database is in trouble: the last known size will do then. A read that takes
    // longer goes on, and whoever asks next is told what it gave.
    let (store, metrics) = (Arc::clone(&gateway.store), Arc::clone(&gateway.metrics));
    let size = async move {
        if let Ok(bytes) = store.size_bytes().await {
            metrics.set_database_bytes(bytes);
        }
    };
    let _ = tokio::time::timeout(READ_TIME_MAX, gateway.size.run(size)).await;
    gateway.metrics.set_search_behind(gateway.indexing.behind());
    gateway.metrics.set_ledger_faults(gateway.watch.faults());
    let ahead = gateway.sequencer.ahead_of(gateway.clock.now());
    gateway.metrics.set_ledger_ahead(ahead);
    gateway.metrics.set_asks(gateway.admission.occupancy());
    gateway.metrics.set_event_streams(gateway.live.streams());
    let is_healthy = gateway.sequencer.is_healthy() && gateway.check_store().is_ok();
    let text = gateway.metrics.render(gateway.sequencer.waiting(), is_healthy);
    let content_type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (
        [(header::CONTENT_TYPE, HeaderValue::from_static(content_type))],
        text,
    )
        .into_response()
}

/// `GET /openapi.json`: the contract. It is part of the program, and stays JSON: a message would be made of it for each
/// who asks, without a credential, and be kept until it is taken.
pub async fn openapi() -> Response {
    (
        Extension(Exact),
        [(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))],
        OPENAPI,
    )
        .into_response()
}
