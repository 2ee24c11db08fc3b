//! `GET /v1/ledger/consistency?from=&to=`: the proof that a ledger of one size is the beginning of the ledger of another, for
//! whoever has a checkpoint of each.

use super::tree;
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Code, Json, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use ledger::merkle::hash_text;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU64;
use std::sync::Arc;

/// Between which sizes.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sizes {
    from: NonZeroU64,
    to: Option<NonZeroU64>,
}

/// The proof of RFC 6962 section 2.1.2.
#[derive(Debug, Serialize)]
pub struct Consistency {
    from: u64,
    to: u64,
    /// Hashes in base64.
    proof: Vec<String>,
}

/// Proves it.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(sizes): Query<Sizes>,
) -> Result<Json<Consistency>, Refusal> {
    let (store, tenant) = (&*gateway.store, caller.tenant());
    let head = store.tip(tenant).await?.head().seq;
    let from = sizes.from.get();
    let to = sizes.to.map_or(head, NonZeroU64::get);
    if to > head {
        let detail = format!("`to` is {to}, and the ledger has {head} entries");
        return Err(Refusal::new(Code::EmptyRange, detail));
    }
    if from > to {
        let detail = format!("a ledger of {from} entries is not the beginning of one of {to}");
        return Err(Refusal::new(Code::EmptyRange, detail));
    }
    let proof = tree::consistency(store, tenant, from, to).await;
    let proof = proof.map_err(|error| error.refusal(tenant))?;
    let proof = proof.iter().map(hash_text).collect();
    Ok(Json(Consistency { from, to, proof }))
}
