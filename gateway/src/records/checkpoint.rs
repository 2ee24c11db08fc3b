//! `GET /v1/ledger/checkpoint`: how many entries the ledger has and which root their tree, signed: C2SP tlog-checkpoint. Whoever
//! keeps one can tell later whether anything before it was changed, and whether the tail was cut.

use super::tree::{self, SignedTip};
use crate::gateway::Gateway;
use crate::http::{Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use std::sync::Arc;

/// Signs where the ledger ends now.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
) -> Result<Response, Refusal> {
    let signed = SignedTip::of(&gateway, caller.tenant).await?;
    Ok(tree::text(signed.note.to_string()))
}
