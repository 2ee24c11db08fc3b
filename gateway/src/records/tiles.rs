//! `GET /v1/ledger/tile/…`: the tree and the entries of a ledger as C2SP tlog-tiles has them, for whoever mirrors or monitors it
//! with the tools that there are. `GET /v1/ledger/checkpoint` is the checkpoint beside them.
//!
//! A tile never changes once it is there, so it may be kept for ever. It is handed out as stored: what it is worth, the reader
//! finds out against a signed checkpoint.

use super::line::Readable;
use super::tree;
use crate::gateway::Gateway;
use crate::http::{Refusal, TenantCaller};
use crate::reader::in_place;
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use ledger::tile::{Tile, tile_bytes, write_bundle_entry};
use model::TenantId;
use std::sync::Arc;

/// A tile is bytes.
const BYTES: HeaderValue = HeaderValue::from_static("application/octet-stream");
/// By whoever has asked for it: it is a tenant's own.
const FOR_EVER: HeaderValue = HeaderValue::from_static("private, max-age=31536000, immutable");
/// What says whose it is: the address is the same for every tenant.
const BY_CALLER: HeaderValue = HeaderValue::from_static("Authorization, Countersign-Tenant");

/// `GET /v1/ledger/tile/{level}/{place}`: hashes.
pub async fn hashes(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((level, place)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let tenant = caller.tenant();
    let tile = find(&gateway, tenant, &level, &place).await?;
    let tile = tile.ok_or_else(|| no_tile(&level, &place))?;
    let nodes: Vec<_> = tile.nodes().collect();
    let hashes = tree::hashes(&*gateway.store, tenant, &nodes).await;
    let hashes = hashes.map_err(|error| error.refusal(tenant))?;
    Ok(bytes(tile_bytes(&hashes)))
}

/// `GET /v1/ledger/tile/entries/{place}`: the headers of entries. They are made of whole entries, whose bodies may have
/// megabytes each, so it stands in the line of those who read ledgers, and reads no further than its caller waits.
pub async fn entries(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(place): Path<String>,
) -> Result<Response, Refusal> {
    let tenant = caller.tenant();
    let line = &gateway.ledger_chunks;
    let mut permit = line.acquire(tenant).await?;
    // The line may have taken a while: it is looked at what is in force now.
    caller.check(&gateway)?;
    let tile = find(&gateway, tenant, "0", &place).await?;
    let tile = tile.ok_or_else(|| no_tile("entries", &place))?;
    let seqs = tile.entries();
    let mut bundle = Bundle {
        gateway: Arc::clone(&gateway),
        tenant,
        next: *seqs.start(),
        last: *seqs.end(),
        bytes: Vec::new(),
    };
    loop {
        bundle = in_place(permit, bundle.with_next()).await??;
        if bundle.is_whole() {
            return Ok(bytes(bundle.bytes));
        }
        permit = line.acquire_for_part(tenant).await;
        caller.check(&gateway)?;
    }
}

/// A bundle of entries under way.
struct Bundle {
    gateway: Arc<Gateway>,
    tenant: TenantId,
    /// The first entry that is not in it yet.
    next: u64,
    /// The last one that is to be in it.
    last: u64,
    bytes: Vec<u8>,
}

impl Bundle {
    /// The bundle with as many more of the entries as the store reads at once: of those with large bodies a few.
    async fn with_next(mut self) -> Result<Self, Refusal> {
        let tenant = self.tenant;
        let left = u32::try_from(self.last - self.next + 1).expect("a tile is narrow");
        let stored = self.gateway.store.entries(tenant, self.next, left).await?;
        let are_next = (self.next..).zip(&stored).all(|(seq, entry)| entry.seq == seq);
        if stored.is_empty() || !are_next {
            return Err(tree::unprovable(tenant, "an entry is missing"));
        }
        let name = tenant.to_string();
        let mut header = String::new();
        for entry in &stored {
            let readable = Readable::new(&name, entry);
            if readable.entry().header.hash(&mut header) != entry.hash {
                return Err(tree::unprovable(tenant, "an entry is not what was recorded"));
            }
            let written = write_bundle_entry(&mut self.bytes, header.as_bytes());
            written.ok_or_else(|| tree::unprovable(tenant, "a header is too long"))?;
            self.next += 1;
        }
        Ok(self)
    }

    /// Whether all entries are in it.
    const fn is_whole(&self) -> bool {
        self.next > self.last
    }
}

/// The tile of this name, if the ledger is large enough to have it.
async fn find(
    gateway: &Gateway,
    tenant: TenantId,
    level: &str,
    place: &str,
) -> Result<Option<Tile>, Refusal> {
    let Some(tile) = Tile::parse(level, place) else {
        return Ok(None);
    };
    let size = gateway.store.head(tenant).await?.seq;
    let is_there = tile.leaves().is_some_and(|leaves| leaves <= size);
    Ok(is_there.then_some(tile))
}

/// That there is none, by the path that was asked for.
fn no_tile(directory: &str, place: &str) -> Refusal {
    Refusal::not_found("tile", &format!("{directory}/{place}"))
}

fn bytes(bytes: Vec<u8>) -> Response {
    let headers = [
        (header::CONTENT_TYPE, BYTES),
        (header::CACHE_CONTROL, FOR_EVER),
        (header::VARY, BY_CALLER),
    ];
    (headers, bytes).into_response()
}
