//! `GET /v1/ledger/consistency?from=&to=`: the proof that a ledger of one size is the beginning of the ledger of another, for
//! whoever has a checkpoint of each.

use super::tree;
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Code, Json, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use canon::Digest;
use ledger::merkle::{ProofPlan, hash_text, verify_consistency};
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
    let (store, tenant) = (&*gateway.store, caller.tenant);
    let head = store.tip(tenant).await?.head().seq;
    let from = sizes.from.get();
    let to = sizes.to.map_or(head, NonZeroU64::get);
    if to > head {
        let detail = format!("`to` is {to}, and the ledger has {head} entries");
        return Err(Refusal::new(Code::EmptyRange, detail));
    }
    let plan = ProofPlan::consistency(from, to);
    let plan = plan.map_err(|error| Refusal::new(Code::EmptyRange, error.to_string()))?;
    let proof = tree::prove(store, tenant, &plan).await?;
    let (first, second) = (
        root(&gateway, tenant, from).await?,
        root(&gateway, tenant, to).await?,
    );
    verify_consistency((from, &first), (to, &second), &proof)
        .map_err(|fault| tree::unprovable(tenant, &fault.to_string()))?;
    let proof = proof.iter().map(hash_text).collect();
    Ok(Json(Consistency { from, to, proof }))
}

async fn root(gateway: &Gateway, tenant: model::TenantId, size: u64) -> Result<Digest, Refusal> {
    let plan = ProofPlan::root(size).map_err(|error| tree::unprovable(tenant, &error.to_string()))?;
    let root = tree::prove(&*gateway.store, tenant, &plan).await?;
    root.first()
        .copied()
        .ok_or_else(|| tree::unprovable(tenant, "there is no root"))
}
