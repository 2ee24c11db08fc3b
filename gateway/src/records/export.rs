//! `GET /v1/ledger/export`: a stretch of the ledger with its answers and a checkpoint at the end, as
//! `countersign verify` reads it.
//!
//! It is read a chunk at a time while the caller takes it in, so a slow caller costs one chunk of memory and a place,
//! and holds nothing open in the store. Both go when the caller takes nothing more (`crate::outgoing`). What keeps the
//! first chunk from being read is refused. What fails midway breaks the response off, and a file without its last line
//! is not whole. It can be continued with another export, which begins with the entry after the last one that arrived
//! whole.

use super::file::{BrokenOff, Stretch};
use super::range::Range;
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Refusal, TenantCaller};
use crate::outgoing;
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use std::sync::Arc;

/// Newline-delimited JSON.
const NDJSON: HeaderValue = HeaderValue::from_static("application/x-ndjson");

/// Streams the entries of a range. Its end is fixed now: what is recorded meanwhile belongs to the next export.
pub async fn export(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(range): Query<Range>,
) -> Result<Response, Refusal> {
    let place = outgoing::place(&gateway, caller.tenant())?;
    let head = gateway.store.head(caller.tenant()).await?;
    let range = range.within(head.seq)?;
    let stretch = Stretch::begin(Arc::clone(&gateway), caller.clone(), &range).await?;
    let parts = stream::try_unfold(Some(Rest::Start(stretch)), Rest::next);
    let body = outgoing::of_ledger(place, &gateway, &caller, parts);
    Ok(([(header::CONTENT_TYPE, NDJSON)], body).into_response())
}

/// What is still to be sent.
enum Rest {
    Start(Stretch),
    Entries(Stretch),
    End(Stretch),
}

impl Rest {
    async fn next(rest: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, BrokenOff> {
        let Some(rest) = rest else { return Ok(None) };
        let (Self::Start(stretch) | Self::Entries(stretch) | Self::End(stretch)) = &rest;
        let tenant = stretch.tenant;
        rest.lines()
            .await
            .map(Some)
            .inspect_err(|broken| broken.log(tenant))
    }

    async fn lines(self) -> Result<(Bytes, Option<Self>), BrokenOff> {
        match self {
            Self::Start(stretch) => {
                let line = stretch.start().await?;
                Ok((line.into(), Some(Self::Entries(stretch))))
            }
            Self::Entries(mut stretch) => {
                let _permit = stretch.place().await;
                let mut lines = String::new();
                for piece in stretch.chunk().await? {
                    stretch.write(&piece, &mut lines);
                }
                let is_done = stretch.is_done();
                let rest = if is_done { Self::End } else { Self::Entries };
                Ok((lines.into(), Some(rest(stretch))))
            }
            Self::End(stretch) => Ok((stretch.end().await?.into(), None)),
        }
    }
}
