//! `GET /v1/ledger/head`: where a tenant's chain ends. Whoever keeps it can tell later whether the tail was cut.

use crate::gateway::Gateway;
use crate::http::{Json, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use canon::Digest;
use model::TenantId;
use serde::Serialize;
use std::sync::Arc;

/// The end of a chain. An empty one ends at seq 0 with a hash of zeros.
#[derive(Debug, Serialize)]
pub struct LedgerHead {
    tenant: TenantId,
    seq: u64,
    hash: Digest,
}

/// Shows the head.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
) -> Result<Json<LedgerHead>, Refusal> {
    let head = gateway.store.head(caller.tenant()).await?;
    Ok(Json(LedgerHead {
        tenant: caller.tenant(),
        seq: head.seq,
        hash: head.hash,
    }))
}
