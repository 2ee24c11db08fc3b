//! The tree over a ledger: what is read of it for a proof, and what is signed of it.
//!
//! A proof is checked before it leaves: what is stored of the tree may have been tampered with, and then nothing is handed out.

use crate::gateway::Gateway;
use crate::http::Refusal;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use canon::Digest;
use ledger::merkle::{Completed, ProofPlan};
use ledger::{Checkpoint, Note, Tip};
use model::TenantId;
use store::Store;

/// A note and a proof are plain text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Where a ledger ends, and the log's signature of it.
pub(super) struct SignedTip {
    pub(super) tip: Tip,
    pub(super) note: Note,
}

impl SignedTip {
    /// That of a tenant's ledger as it is now.
    pub(super) async fn of(gateway: &Gateway, tenant: TenantId) -> Result<Self, Refusal> {
        let tip = gateway.store.tip(tenant).await?;
        let key = &gateway.signing_key;
        let log = key.verifier().name();
        let checkpoint = Checkpoint::new(log, &tenant.to_string(), tip.head().seq, tip.tree().root());
        let note = checkpoint
            .sign(&[key])
            .map_err(|error| unprovable(tenant, &error.to_string()))?;
        Ok(Self { tip, note })
    }
}

/// The hashes that a plan makes of what is stored: a proof, or a root.
pub(super) async fn prove(
    store: &dyn Store,
    tenant: TenantId,
    plan: &ProofPlan,
) -> Result<Vec<Digest>, Refusal> {
    let mut seqs: Vec<_> = plan.nodes().iter().map(|node| node.seq()).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let rows = store.nodes(tenant, &seqs).await?;
    let hash = |node: &ledger::merkle::NodeId| {
        let (seq, bytes) = rows.iter().find(|(seq, _)| *seq == node.seq())?;
        Completed::from_bytes(*seq, bytes.clone())?.get(*node)
    };
    let hashes: Option<Vec<_>> = plan.nodes().iter().map(hash).collect();
    let hashes = hashes.ok_or_else(|| unprovable(tenant, "a part of the tree is missing"))?;
    plan.prove(&hashes)
        .map_err(|error| unprovable(tenant, &error.to_string()))
}

/// What is stored does not prove what it should: somebody has to look at the ledger before anything is said of it.
pub(super) fn unprovable(tenant: TenantId, what: &str) -> Refusal {
    tracing::error!(%tenant, what, "nothing can be proven of the ledger of {tenant}: {what}");
    Refusal::ledger_unavailable()
}

/// A text for an answer.
pub(super) fn text(text: String) -> Response {
    ([(header::CONTENT_TYPE, TEXT)], text).into_response()
}
