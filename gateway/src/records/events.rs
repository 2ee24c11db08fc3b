//! `GET /v1/audit/events`: the entries of the ledger, oldest first, whole.

use crate::gateway::Gateway;
use crate::http::query::{ListQuery, invalid};
use crate::http::{Json, Page, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::State;
use canon::Digest;
use engine::EntryKind;
use model::Timestamp;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::num::NonZeroU64;
use std::sync::Arc;
use store::{Bulk, Room, StoredEntry};

/// Entries read by one call of the store when a kind is looked for.
const CHUNK: u32 = 1_000;
/// Entries that one request looks at for the kind it wants: beyond that it gets what was found and a cursor to go on.
const LOOKED_AT_MAX: u64 = 20_000;
/// Bytes of the bodies of these, at which it ends as well, with the chunk in which it comes to that: they may be large.
const BYTES_LOOKED_AT_MAX: usize = 16 * store::BYTES_AT_ONCE;

/// Which entries to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    kind: Option<String>,
    from_seq: Option<NonZeroU64>,
    #[serde(rename = "limit")]
    _limit: Option<IgnoredAny>,
    #[serde(rename = "cursor")]
    _cursor: Option<IgnoredAny>,
}

/// An entry.
#[derive(Debug, Serialize)]
pub struct Event {
    seq: u64,
    kind: String,
    at: Timestamp,
    prev_hash: Digest,
    hash: Digest,
    /// As it was hashed: not read, not written anew. None if it was erased.
    body: Option<Box<RawValue>>,
}

/// Lists entries.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    query: ListQuery<Filter>,
) -> Result<Json<Page<Event>>, Refusal> {
    let limit = query.page.limit()?;
    let after: u64 = query.page.after()?.unwrap_or(0);
    let kind = query.filter.kind()?;
    let from_seq = query.filter.from_seq.map_or(1, NonZeroU64::get);
    let start = from_seq.max(after.saturating_add(1));
    let mut search = Search {
        kind,
        limit,
        next: start,
        bytes_looked_at: 0,
        found: Vec::new(),
        room: Room::default(),
    };
    while search.goes_on() && search.next - start < LOOKED_AT_MAX {
        let chunk = gateway
            .store
            .entries(caller.tenant(), search.next, search.chunk())
            .await?;
        if chunk.is_empty() {
            return search.into_page(true).map(Json);
        }
        search.look_at(chunk);
    }
    search.into_page(false).map(Json)
}

impl Filter {
    fn kind(&self) -> Result<Option<EntryKind>, Refusal> {
        self.kind.as_deref().map(find_kind).transpose()
    }
}

/// The kind of entry that a parameter names.
pub(crate) fn find_kind(word: &str) -> Result<EntryKind, Refusal> {
    EntryKind::from_word(word).ok_or_else(|| {
        let word: String = word.chars().take(64).collect();
        invalid(format!(
            "`kind`: `{word}` is no kind of entry; the kinds are listed in `/openapi.json`"
        ))
    })
}

/// Looks for entries of a kind, chunk by chunk.
struct Search {
    kind: Option<EntryKind>,
    limit: usize,
    /// The first entry that was not looked at.
    next: u64,
    /// Bytes of the bodies of those that were.
    bytes_looked_at: usize,
    found: Vec<StoredEntry>,
    /// What is left on the page.
    room: Room,
}

impl Search {
    /// One more than the page holds tells whether there is a next one. One without room for another may have none behind it.
    fn goes_on(&self) -> bool {
        let is_full = self.found.len() > self.limit || !self.room.is_left();
        !is_full && self.bytes_looked_at < BYTES_LOOKED_AT_MAX
    }

    fn chunk(&self) -> u32 {
        match self.kind {
            Some(_) => CHUNK,
            None => u32::try_from(self.limit + 1 - self.found.len()).unwrap_or(CHUNK),
        }
    }

    fn look_at(&mut self, chunk: Vec<StoredEntry>) {
        for entry in chunk {
            if !self.room.is_left() {
                break;
            }
            self.next = entry.seq + 1;
            self.bytes_looked_at += entry.bytes();
            if self.kind.is_none_or(|kind| kind.as_str() == entry.kind) {
                self.room.take(entry.bytes());
                self.found.push(entry);
            }
        }
    }

    /// The page. `is_end` says that there are no entries after the last one looked at.
    fn into_page(mut self, is_end: bool) -> Result<Page<Event>, Refusal> {
        let is_full = self.found.len() > self.limit;
        self.found.truncate(self.limit);
        let next_cursor = match self.found.last() {
            Some(last) if is_full => Some(last.seq.to_string()),
            _ if is_end => None,
            _ => Some((self.next - 1).to_string()),
        };
        let items = self.found.into_iter().map(Event::of).collect::<Result<_, _>>()?;
        Ok(Page { items, next_cursor })
    }
}

impl Event {
    /// An entry as it was stored.
    pub(crate) fn of(entry: StoredEntry) -> Result<Self, Refusal> {
        let body = (entry.erased.is_none()).then(|| RawValue::from_string(entry.body));
        let body = body.transpose().map_err(|error| {
            tracing::error!(%error, seq = entry.seq, "the body of an entry could not be read");
            Refusal::ledger_unavailable()
        })?;
        Ok(Self {
            seq: entry.seq,
            kind: entry.kind,
            at: entry.at,
            prev_hash: entry.prev,
            hash: entry.hash,
            body,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(seq: u64, kind: EntryKind) -> StoredEntry {
        StoredEntry {
            seq,
            kind: kind.as_str().to_owned(),
            at: Timestamp::from_millis(0),
            prev: Digest::ZERO,
            hash: Digest::ZERO,
            body: "{}".to_owned(),
            nodes: Vec::new(),
            erased: None,
        }
    }

    fn search(kind: Option<EntryKind>, limit: usize) -> Search {
        Search {
            kind,
            limit,
            next: 1,
            bytes_looked_at: 0,
            found: Vec::new(),
            room: Room::default(),
        }
    }

    fn page(search: Search, is_end: bool) -> (Vec<u64>, Option<String>) {
        let page = search.into_page(is_end).unwrap();
        (
            page.items.iter().map(|event| event.seq).collect(),
            page.next_cursor,
        )
    }

    #[test]
    fn a_full_page_goes_on_after_its_last_entry_not_after_the_last_one_looked_at() {
        let mut search = search(Some(EntryKind::KeyCreated), 1);
        let kinds = [EntryKind::KeyCreated, EntryKind::Decision, EntryKind::KeyCreated];
        search.look_at((1..).zip(kinds).map(|(seq, kind)| entry(seq, kind)).collect());
        assert!(!search.goes_on());
        assert_eq!(page(search, false), (vec![1], Some("1".to_owned())));
    }

    #[test]
    fn a_search_that_found_little_goes_on_after_the_last_entry_looked_at() {
        let mut search = search(Some(EntryKind::KeyCreated), 5);
        search.look_at((1..=3).map(|seq| entry(seq, EntryKind::Decision)).collect());
        assert_eq!(page(search, false), (vec![], Some("3".to_owned())));
    }

    #[test]
    fn a_page_without_room_goes_on_after_its_last_entry() {
        let mut search = search(Some(EntryKind::KeyCreated), 5);
        search.room.take(store::BYTES_AT_ONCE - 4);
        search.look_at((1..=4).map(|seq| entry(seq, EntryKind::KeyCreated)).collect());
        assert!(!search.goes_on());
        assert_eq!(page(search, false), (vec![1, 2], Some("2".to_owned())));
    }

    #[test]
    fn a_search_that_has_looked_at_much_in_vain_goes_on_behind_it() {
        let mut search = search(Some(EntryKind::KeyCreated), 5);
        let large = |seq| StoredEntry {
            body: "x".repeat(BYTES_LOOKED_AT_MAX / 2),
            ..entry(seq, EntryKind::Decision)
        };
        search.look_at(vec![large(1)]);
        assert!(search.goes_on());
        search.look_at(vec![large(2)]);
        assert!(!search.goes_on());
        assert_eq!(page(search, false), (vec![], Some("2".to_owned())));
    }

    #[test]
    fn the_last_page_has_no_cursor() {
        let mut search = search(None, 3);
        assert_eq!(search.chunk(), 4);
        search.look_at((1..=3).map(|seq| entry(seq, EntryKind::Decision)).collect());
        assert!(search.goes_on());
        assert_eq!(page(search, true), (vec![1, 2, 3], None));
    }
}
