//! `GET /v1/receipts/{decision_id}`: the exact bytes that were handed to the caller. They are not read here, let alone
//! written anew.

use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::http::messagepack::Exact;
use crate::reader::Reader;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Shows one receipt.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    Path(id): Path<String>,
) -> Result<Response, Refusal> {
    let decision = reader.decision(&*gateway.store, &id).await?;
    let receipt = gateway.store.receipt(reader.tenant, decision.id).await?;
    let Some(bytes) = receipt else {
        // It may have been erased since it was found, and then it is not there for anybody.
        reader.decision(&*gateway.store, &id).await?;
        // Both are written in one commit, so somebody has taken it away.
        tracing::error!(decision = %decision.id, seq = decision.seq, "a decision has no receipt");
        return Err(Refusal::ledger_unavailable());
    };
    let json = HeaderValue::from_static("application/json");
    let response = (Extension(Exact), [(header::CONTENT_TYPE, json)], bytes);
    Ok(response.into_response())
}
