//! `GET /v1/ledger/checkpoint`: how many entries the ledger has and which root their tree, signed: C2SP tlog-checkpoint. Whoever
//! keeps one can tell later whether anything before it was changed, and whether the tail was cut.

use super::tree::{self, Signed};
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use model::TenantId;
use serde::Deserialize;
use std::sync::Arc;

/// Which checkpoint.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Which {
    /// The newest that enough witnesses have cosigned, instead of the newest.
    #[serde(default)]
    witnessed: bool,
}

impl Which {
    /// That of a tenant.
    pub(super) async fn of(&self, gateway: &Gateway, tenant: TenantId) -> Result<Signed, Refusal> {
        if self.witnessed {
            Signed::witnessed(gateway, tenant).await
        } else {
            Signed::newest(gateway, tenant).await
        }
    }
}

/// Signs where the ledger ends now, or where witnesses have seen it end.
pub async fn show(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(which): Query<Which>,
) -> Result<Response, Refusal> {
    let signed = which.of(&gateway, caller.tenant()).await?;
    Ok(tree::text(signed.note.to_string()))
}
