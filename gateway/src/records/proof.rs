//! `GET /v1/receipts/{decision_id}/proof`: that a decision is in the ledger still, for as long as anybody keeps the log's public
//! key: C2SP tlog-proof against a checkpoint that is made for it.

use super::checkpoint::Which;
use super::line::Readable;
use super::tree::{self, Signed};
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Code, Refusal};
use crate::reader::Reader;
use axum::extract::{Path, State};
use axum::response::Response;
use ledger::merkle::{ProofPlan, verify_inclusion};
use ledger::tlog_proof::TlogProof;
use std::sync::Arc;

/// Proves that the entry of a decision is in the tree.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    reader: Reader,
    Path(id): Path<String>,
    Query(which): Query<Which>,
) -> Result<Response, Refusal> {
    let (store, tenant) = (&*gateway.store, reader.tenant);
    let unprovable = |what: &str| tree::unprovable(tenant, what);
    let decision = reader.decision(store, &id).await?;
    let found = store.entries(tenant, decision.seq, 1).await?;
    let stored = found.first().filter(|entry| entry.seq == decision.seq);
    let stored = stored.ok_or_else(|| unprovable("the entry of a decision is missing"))?;
    let name = tenant.to_string();
    let entry = Readable::new(&name, stored);
    let header = entry.entry().header;
    // The newest is read after the decision, so the decision is in there.
    let Signed { size, root, note } = which.of(&gateway, tenant).await?;
    let index = decision.seq - 1;
    if index >= size {
        let detail = format!(
            "witnesses have seen {size} entries, and this is entry {}",
            decision.seq
        );
        return Err(Refusal::new(Code::NotFound, detail));
    }
    let plan = ProofPlan::inclusion(index, size).map_err(|error| unprovable(&error.to_string()))?;
    let path = tree::prove(store, tenant, &plan).await;
    let path = path.map_err(|error| error.refusal(tenant))?;
    let (hash, leaf) = header.hash_and_leaf(&mut String::new());
    if hash != stored.hash {
        return Err(unprovable("the entry of a decision is not what was recorded"));
    }
    verify_inclusion(index, size, &leaf, &path, &root).map_err(|fault| unprovable(&fault.to_string()))?;
    Ok(tree::text(
        TlogProof::of_entry(&header, path, note.to_string()).to_string(),
    ))
}
