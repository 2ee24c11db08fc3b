//! `GET /v1/ledger/evidence`: one file for an auditor: a stretch of the ledger with the answers that were given, the
//! keys that have signed it, and everything that its decisions name by a digest.
//!
//! It is a tar archive, made and sent a chunk at a time. `countersign verify` takes it as it is; a `README.md` in it
//! says how to check it by hand. What is about one run has the headers of everything between its first and its last
//! entry, so that no entry can be left out of the middle, and the bodies of its own and of erasures only.

mod about;
pub(crate) mod tar;
mod whose;

pub(crate) use whose::Whose;

use super::file::{BrokenOff, Stretch};
use crate::gateway::Gateway;
use crate::http::query::Query;
use crate::http::{Refusal, TenantCaller};
use crate::outgoing;
use crate::yielding::Yielder;
use about::{About, Run, Search};
use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use canon::Digest;
use engine::EntryKind;
use futures_util::stream;
use ledger::KeySet;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashSet};
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::{Room, StoredEntry};

/// What an auditor reads first.
const README: &str = include_str!("evidence/README.md");
/// Digests that are remembered, so that what many decisions name is sent once. Beyond them some may be sent again.
const NAMED_MAX: usize = 100_000;
/// How much of what decisions name is read at once.
const NAMED_AT_ONCE: usize = 4;
const TAR: HeaderValue = HeaderValue::from_static("application/x-tar");
const ATTACHMENT: HeaderValue = HeaderValue::from_static("attachment; filename=\"evidence.tar\"");
const CONTENT_DISPOSITION: HeaderName = header::CONTENT_DISPOSITION;

/// Streams evidence. Its end is fixed now.
pub async fn evidence(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(about): Query<About>,
) -> Result<Response, Refusal> {
    let place = outgoing::place(&gateway, caller.tenant())?;
    let search = Search {
        store: &*gateway.store,
        ledger_chunks: &gateway.ledger_chunks,
        tenant: caller.tenant(),
        head: gateway.store.head(caller.tenant()).await?.seq,
    };
    let (seqs, run) = search.resolve(about).await?;
    let keys = gateway.log_keys();
    let keys = keys.map_err(|what| Refusal::unreadable_keys(&what))?;
    let manifest = manifest(&gateway, &caller, &seqs, run.as_ref());
    let pack = Pack {
        stretch: Stretch::begin(Arc::clone(&gateway), caller.clone(), &seqs).await?,
        run,
        parts: 0,
        awaited: Vec::new(),
        named: HashSet::new(),
    };
    let rest = Rest::Beginning(Box::new(pack), manifest, keys);
    let parts = stream::try_unfold(Some(rest), Rest::next);
    let body = outgoing::of_ledger(place, &gateway, &caller, parts);
    Ok((
        [(header::CONTENT_TYPE, TAR), (CONTENT_DISPOSITION, ATTACHMENT)],
        body,
    )
        .into_response())
}

/// What the file says of itself.
fn manifest(
    gateway: &Gateway,
    caller: &TenantCaller,
    seqs: &RangeInclusive<u64>,
    run: Option<&Run>,
) -> Value {
    json!({
        "format": "countersign.evidence/1",
        "tenant": caller.tenant(),
        "from_seq": seqs.start(),
        "to_seq": seqs.end(),
        "run_id": run.map(|run| &run.id),
        "made_at": gateway.clock.now(),
    })
}

/// What is still to be sent.
enum Rest {
    Beginning(Box<Pack>, Value, KeySet),
    Entries(Box<Pack>),
    End(Box<Pack>),
}

impl Rest {
    async fn next(rest: Option<Self>) -> Result<Option<(Bytes, Option<Self>)>, BrokenOff> {
        let Some(rest) = rest else { return Ok(None) };
        let (Self::Beginning(pack, ..) | Self::Entries(pack) | Self::End(pack)) = &rest;
        let tenant = pack.stretch.tenant;
        let part = rest.part().await.inspect_err(|broken| broken.log(tenant))?;
        Ok(Some(part))
    }

    async fn part(self) -> Result<(Bytes, Option<Self>), BrokenOff> {
        let mut out = Vec::new();
        let rest = match self {
            Self::Beginning(mut pack, manifest, keys) => {
                tar::file("README.md", README.as_bytes(), &mut out);
                tar::file("manifest.json", format!("{manifest:#}\n").as_bytes(), &mut out);
                let keys = serde_json::to_string_pretty(&keys).expect("keys are JSON");
                tar::file("keys.json", format!("{keys}\n").as_bytes(), &mut out);
                let start = pack.stretch.start().await?;
                pack.push_lines(&start, &mut out);
                Some(Self::Entries(pack))
            }
            Self::Entries(mut pack) => {
                pack.push_next(&mut out).await?;
                let is_done = pack.stretch.is_done() && pack.awaited.is_empty();
                Some(if is_done {
                    Self::End(pack)
                } else {
                    Self::Entries(pack)
                })
            }
            Self::End(mut pack) => {
                let end = pack.stretch.end().await?;
                pack.push_lines(&end, &mut out);
                out.extend_from_slice(&tar::END);
                None
            }
        };
        Ok((out.into(), rest))
    }
}

/// A file under way.
struct Pack {
    stretch: Stretch,
    run: Option<Run>,
    /// How many files of lines were sent.
    parts: u64,
    /// What was sent by its digest, or is to be.
    named: HashSet<Digest>,
    /// What is to be sent before more entries are.
    awaited: Vec<Digest>,
}

impl Pack {
    /// Appends a file of lines. All of them together, in the order of their names, are an export.
    fn push_lines(&mut self, lines: &str, out: &mut Vec<u8>) {
        if lines.is_empty() {
            return;
        }
        self.parts += 1;
        tar::file(&format!("ledger/{:08}.ndjson", self.parts), lines.as_bytes(), out);
    }

    /// The next part: what is still to be sent of what the entries before it name, or more of them with the answers to them.
    async fn push_next(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        let _permit = self.stretch.place().await;
        self.stretch.check()?;
        if self.awaited.is_empty() {
            self.push_entries(out).await?;
        }
        self.push_named(out).await
    }

    async fn push_entries(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        let chunk = self.stretch.chunk().await?;
        let (mut lines, mut own) = (String::new(), Vec::new());
        for recorded in &chunk {
            let entry = &recorded.entry;
            if self.tells(entry) {
                self.stretch.write(recorded, &mut lines);
                own.push(entry);
            } else {
                self.stretch.write_without_body(entry, &mut lines);
            }
        }
        self.push_lines(&lines, out);
        if self.named.len() > NAMED_MAX {
            self.named.clear();
        }
        let named = own.iter().flat_map(|entry| engine::facts::named(&entry.body));
        let new: BTreeSet<Digest> = named.filter(|digest| self.named.insert(*digest)).collect();
        self.awaited.extend(new);
        Ok(())
    }

    /// Whether it says what an entry tells, or that this was erased: nobody knows any more which run that was about.
    fn tells(&mut self, entry: &StoredEntry) -> bool {
        let is_of_erasures = entry.erased.is_some() || entry.kind == EntryKind::BodiesErased.as_str();
        let run = self.run.as_mut();
        run.is_none_or(|run| is_of_erasures || run.has(&entry.body))
    }

    /// What decisions name by its digest, as far as it is there and this part has room for more: policies may have
    /// megabytes each.
    async fn push_named(&mut self, out: &mut Vec<u8>) -> Result<(), BrokenOff> {
        let Stretch { gateway, tenant, .. } = &self.stretch;
        let (mut room, mut yielder) = (Room::default(), Yielder::new());
        while room.is_left() && !self.awaited.is_empty() {
            let few = self
                .awaited
                .split_off(self.awaited.len().saturating_sub(NAMED_AT_ONCE));
            for (digest, bytes) in gateway.store.contents(*tenant, &few).await? {
                if Digest::of(&bytes) != digest {
                    return Err(BrokenOff::Altered(digest));
                }
                room.take(bytes.len());
                let hex = digest.to_string();
                tar::file(
                    &format!("named/{}", hex.trim_start_matches("sha256:")),
                    &bytes,
                    out,
                );
                // Hashing a large set of policies takes a while.
                yielder.yield_if_due().await;
            }
        }
        Ok(())
    }
}
