//! `POST /v1/ledger/verify`: whether what is stored is what was recorded. What that means stands in the module `audit`.

use super::audit::{Audit, Fault, Findings};
use super::range::Range;
use crate::gateway::Gateway;
use crate::http::{Json, OptionalJson, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use ledger::Head;
use serde::Serialize;
use std::sync::Arc;

/// What was found.
#[derive(Debug, Serialize)]
pub struct Verification {
    verified: bool,
    /// How many entries were looked at, up to the first fault.
    checked: u64,
    /// Where the ledger ended when the verification began.
    head: Head,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_fault: Option<Fault>,
}

/// Verifies a range.
pub async fn verify(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    OptionalJson(range): OptionalJson<Range>,
) -> Result<Json<Verification>, Refusal> {
    let store = &*gateway.store;
    let head = store.head(caller.tenant).await?;
    let seqs = range.within(head.seq)?;
    let audit = Audit {
        store,
        tenant: caller.tenant,
        head,
    };
    let Findings { checked, first_fault } = audit.run(seqs).await?;
    let first_fault = first_fault.or_else(|| range.expected_end().and_then(|end| ends_early(&head, end)));
    if let Some(fault) = &first_fault {
        tracing::error!(tenant = %caller.tenant, seq = fault.seq, what = fault.what, "the ledger does not verify");
    }
    Ok(Json(Verification {
        verified: first_fault.is_none(),
        checked,
        head,
        first_fault,
    }))
}

/// Whoever names an end has seen it, on a receipt for instance: a ledger that ends before it has lost something.
fn ends_early(head: &Head, expected: u64) -> Option<Fault> {
    (expected > head.seq).then(|| Fault {
        seq: head.seq + 1,
        what: format!(
            "the entry is missing: the ledger ends at seq {}, and `to_seq` is {expected}",
            head.seq
        ),
    })
}
