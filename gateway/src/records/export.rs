//! `GET /v1/ledger/export`: a stretch of the ledger, an entry a line, as `countersign verify` reads it.
//!
//! It is read a chunk at a time while the caller takes it in, so a slow caller costs one chunk of memory and holds
//! nothing open in the store. What fails midway breaks the response off: a file never looks whole when it is not.

use super::line::Readable;
use super::range::Range;
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Refusal, TenantCaller};
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use model::TenantId;
use std::sync::Arc;
use store::{StoreError, StoredEntry};

/// Entries in a chunk: some hundred kilobytes of decisions.
const CHUNK: u32 = 256;
/// Newline-delimited JSON.
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Why an export breaks off.
#[derive(Debug, thiserror::Error)]
enum BrokenOff {
    /// The store cannot be read on.
    #[error("the ledger cannot be read on")]
    Store(#[from] StoreError),
    /// The chain ends before the head that it had when the export began.
    #[error("entry {0} is missing, and there is none after it")]
    EndsEarly(u64),
}

/// Streams the entries of a range. Its end is fixed now: what is recorded meanwhile belongs to the next export.
pub async fn export(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(range): Query<Range>,
) -> Result<Response, Refusal> {
    let head = gateway.store.head(caller.tenant).await?;
    let range = range.within(head.seq)?;
    let rest = Rest {
        gateway,
        tenant: caller.tenant,
        next: *range.start(),
        last: *range.end(),
    };
    let body = Body::from_stream(stream::try_unfold(rest, Rest::chunk));
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

/// What is still to be sent.
struct Rest {
    gateway: Arc<Gateway>,
    tenant: TenantId,
    next: u64,
    last: u64,
}

impl Rest {
    async fn chunk(mut self) -> Result<Option<(Bytes, Self)>, BrokenOff> {
        if self.next > self.last {
            return Ok(None);
        }
        match self.read().await {
            Ok(lines) => Ok(Some((lines, self))),
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, tenant = %self.tenant, "an export broke off");
                Err(error)
            }
        }
    }

    async fn read(&mut self) -> Result<Bytes, BrokenOff> {
        let left = u32::try_from(self.last - self.next + 1).unwrap_or(CHUNK);
        let mut entries = self
            .gateway
            .store
            .entries(self.tenant, self.next, left.min(CHUNK))
            .await?;
        entries.retain(|entry| entry.seq <= self.last);
        let end = entries.last().ok_or(BrokenOff::EndsEarly(self.next))?.seq;
        self.next = end + 1;
        Ok(lines(self.tenant, &entries))
    }
}

fn lines(tenant: TenantId, entries: &[StoredEntry]) -> Bytes {
    let tenant = tenant.to_string();
    let mut lines = String::new();
    for stored in entries {
        Readable::new(&tenant, stored).entry().write_line(&mut lines);
    }
    lines.into()
}
