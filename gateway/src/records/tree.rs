//! The tree over a ledger: what is read of it for a proof, and what is signed of it.
//!
//! A proof is checked before it leaves: what is stored of the tree may have been tampered with, and then nothing is handed out.

use crate::gateway::Gateway;
use crate::http::{Code, Refusal};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use canon::Digest;
use ledger::merkle::{Completed, NodeId, ProofPlan, Unprovable, verify_consistency};
use ledger::{Checkpoint, Note, NoteFault, SigningKey};
use model::TenantId;
use std::collections::HashMap;
use store::{Store, StoreError};

/// A note and a proof are plain text.
const TEXT: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// Why nothing is said of a tree.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The store cannot be read.
    #[error("the store cannot be read")]
    Store(#[from] StoreError),
    /// What is stored does not prove what it should.
    #[error("{0}")]
    Unprovable(String),
}

impl TreeError {
    /// The refusal that it comes to. It is logged here, once.
    pub(super) fn refusal(self, tenant: TenantId) -> Refusal {
        match self {
            Self::Store(error) => error.into(),
            Self::Unprovable(what) => unprovable(tenant, &what),
        }
    }
}

impl From<Unprovable> for TreeError {
    fn from(error: Unprovable) -> Self {
        Self::Unprovable(error.to_string())
    }
}

/// A ledger of some size, and the log's signature of it.
pub(super) struct Signed {
    pub(super) size: u64,
    pub(super) root: Digest,
    pub(super) note: Note,
}

impl Signed {
    /// That of a tenant's ledger as it is now, with the cosignatures of those witnesses that have seen just this.
    pub(super) async fn newest(gateway: &Gateway, tenant: TenantId) -> Result<Self, Refusal> {
        let tip = gateway.store.tip(tenant).await?;
        let (size, root) = (tip.head().seq, tip.tree().root());
        let newest = checkpoint(&gateway.signing_key, tenant, size, root);
        Self::of(gateway, tenant, &newest).await
    }

    /// The newest that as many witnesses have cosigned as the operator wants.
    pub(super) async fn witnessed(gateway: &Gateway, tenant: TenantId) -> Result<Self, Refusal> {
        let cosigned = gateway.cosigning.witnessed(tenant)?;
        Self::of(gateway, tenant, &cosigned).await
    }

    /// Signs, unless the time of the key is over or the ledger is known not to be what was recorded.
    async fn of(gateway: &Gateway, tenant: TenantId, checkpoint: &Checkpoint) -> Result<Self, Refusal> {
        gateway.check_key_for(tenant, checkpoint.size).await?;
        gateway.watch.check(tenant)?;
        if gateway.watch.gone() == Some(tenant) {
            let detail = "another ledger was begun in place of this one, so it is not signed; the log of the gateway says more";
            return Err(Refusal::new(Code::LedgerFault, detail));
        }
        let unsigned = |error: NoteFault| unprovable(tenant, &error.to_string());
        let mut note = checkpoint.sign(&[&gateway.signing_key]).map_err(unsigned)?;
        for cosignature in gateway.cosigning.cosignatures(tenant, checkpoint) {
            note.push(cosignature);
        }
        Ok(Self {
            size: checkpoint.size,
            root: checkpoint.root,
            note,
        })
    }
}

/// What a log says of a tenant's ledger of this size.
pub(crate) fn checkpoint(key: &SigningKey, tenant: TenantId, size: u64, root: Digest) -> Checkpoint {
    Checkpoint::new(key.verifier().name(), &tenant.to_string(), size, root)
}

/// The hashes that a plan makes of what is stored: a proof, or a root.
pub(crate) async fn prove(
    store: &dyn Store,
    tenant: TenantId,
    plan: &ProofPlan,
) -> Result<Vec<Digest>, TreeError> {
    Ok(plan.prove(&hashes(store, tenant, plan.nodes()).await?)?)
}

/// The hashes of these subtrees, as they are stored.
pub(super) async fn hashes(
    store: &dyn Store,
    tenant: TenantId,
    nodes: &[NodeId],
) -> Result<Vec<Digest>, TreeError> {
    let mut seqs: Vec<_> = nodes.iter().map(|node| node.seq()).collect();
    seqs.sort_unstable();
    seqs.dedup();
    let rows: HashMap<_, _> = store.nodes(tenant, &seqs).await?.into_iter().collect();
    let hash = |node: &NodeId| {
        let bytes = rows.get(&node.seq())?;
        Completed::from_bytes(node.seq(), bytes.clone())?.get(*node)
    };
    let hashes: Option<Vec<_>> = nodes.iter().map(hash).collect();
    hashes.ok_or_else(|| TreeError::Unprovable("a part of the tree is missing".to_owned()))
}

/// The proof that the ledger of one size is the beginning of the ledger of another.
pub(crate) async fn consistency(
    store: &dyn Store,
    tenant: TenantId,
    from: u64,
    to: u64,
) -> Result<Vec<Digest>, TreeError> {
    let proof = prove(store, tenant, &ProofPlan::consistency(from, to)?).await?;
    let (first, second) = (root(store, tenant, from).await?, root(store, tenant, to).await?);
    verify_consistency((from, &first), (to, &second), &proof)
        .map_err(|fault| TreeError::Unprovable(fault.to_string()))?;
    Ok(proof)
}

/// The root of the tree of this size.
async fn root(store: &dyn Store, tenant: TenantId, size: u64) -> Result<Digest, TreeError> {
    let root = prove(store, tenant, &ProofPlan::root(size)?).await?;
    let root = root.first().copied();
    root.ok_or_else(|| TreeError::Unprovable("there is no root".to_owned()))
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
