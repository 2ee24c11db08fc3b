//! `GET /v1/events`: the entries of a ledger as they are recorded, as server-sent events.
//!
//! A stream goes on after the entry that `Last-Event-ID` names, or begins at `from_seq`, or with what is recorded from
//! now on. It reads the next page only when the caller has taken the one before. It ends when the key stops working,
//! when the gateway stops and when the ledger cannot be read; an event `closed` says which, and whoever comes again
//! misses nothing. One that nobody reads loses its place when the key stops working, or nothing of it was taken for
//! minutes, though it cannot be told. A stream says where it begins, where it ends and, if nothing is wanted of what it
//! reads, now and then how far it has come: whoever comes again goes on from there.

use super::page::Page;
use super::{Heard, NoPlace, Place, Subscription};
use crate::gateway::Gateway;
use crate::http::query::{Query, invalid};
use crate::http::request_id::RequestId;
use crate::http::{Code, Refusal, TenantCaller};
use crate::locks::lock;
use crate::outgoing::{LEFT_MAX, MayRead};
use crate::records::events::find_kind;
use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use engine::EntryKind;
use futures_util::stream;
use model::TenantId;
use serde::Deserialize;
use std::convert::Infallible;
use std::num::NonZeroU64;
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use store::{StoreError, is_used_up};
use tokio::time::Instant;

/// By which a client says where it broke off.
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Asks proxies of the nginx kind not to collect what should be seen at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// Entries in a page at most.
const PAGE: u32 = 64;
/// How long a stream that has read everything does not listen: a commit wakes it at most this often. Nor does one rest
/// longer that has found nothing in a page.
const PAUSE: Duration = Duration::from_millis(50);
/// How often it looks without having heard anything: at its credential, and at what other gateways may have written.
const LOOK: Duration = Duration::from_millis(500);
/// How often it gives a sign of life, so that neither end takes the other for dead.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client is asked to wait before it connects again.
const RETRY_MS: u64 = 1_000;

/// What to follow.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    from_seq: Option<NonZeroU64>,
    /// Words separated by commas.
    kind: Option<String>,
    /// After how many entries the stream ends.
    limit: Option<NonZeroU64>,
}

/// Streams entries.
pub async fn events(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Extension(request_id): Extension<RequestId>,
    headers: HeaderMap,
    Query(filter): Query<Filter>,
) -> Result<Response, Refusal> {
    let kinds = filter.kinds()?;
    let tenant = caller.tenant();
    let (place, subscription) = gateway.live.subscribe(tenant).map_err(refuse)?;
    let head = gateway.store.head(tenant).await?.seq;
    let next = filter.first(&headers, head)?;
    let looked_at = Arc::clone(&gateway);
    let seat = Arc::new(Seat::new(place, Box::new(move || caller.check(&looked_at))));
    tokio::spawn(Seat::watch(Arc::downgrade(&seat)));
    let beginning = OpenStream {
        next,
        left: filter.limit.map_or(u64::MAX, NonZeroU64::get),
        kinds,
        gateway,
        tenant,
        seat,
        request_id,
        subscription,
        asked: PAGE,
        phase: Phase::Beginning,
        spoke: Instant::now(),
    };
    let parts = stream::unfold(Some(beginning), |open| async { open?.part().await });
    let headers = [
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("text/event-stream"),
        ),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        (X_ACCEL_BUFFERING, HeaderValue::from_static("no")),
    ];
    Ok((headers, Body::from_stream(parts)).into_response())
}

fn refuse(why: NoPlace) -> Refusal {
    match why {
        NoPlace::Full => Refusal::new(
            Code::TooManyStreams,
            "as many streams of events are open as there may be; close one, or try again later",
        )
        .with_header(header::RETRY_AFTER, HeaderValue::from_static("5")),
        NoPlace::Closed => stopping(),
    }
}

fn stopping() -> Refusal {
    Refusal::overloaded_by("the gateway is stopping; connect again")
}

/// What is said of a stream that its caller has left, should it go on.
fn left() -> Refusal {
    let detail =
        "nothing of this stream was taken for five minutes, and others may have its place; connect again";
    Refusal::overloaded_by(detail)
}

impl Filter {
    /// The kinds that are wanted; empty for all.
    fn kinds(&self) -> Result<Vec<EntryKind>, Refusal> {
        let words = self.kind.iter().flat_map(|words| words.split(','));
        words.map(find_kind).collect()
    }

    /// The first entry to look at. `Last-Event-ID` comes before `from_seq`, because a client that connects again sends both.
    fn first(&self, headers: &HeaderMap, head: u64) -> Result<u64, Refusal> {
        let next = head.saturating_add(1);
        let (first, named) = match (headers.get(LAST_EVENT_ID), self.from_seq) {
            (Some(last), _) => {
                let seq = last.to_str().ok().and_then(|last| last.parse::<u64>().ok());
                let seq = seq.ok_or_else(|| {
                    invalid("`Last-Event-ID` is not the id of an event of this stream: a number from 0")
                })?;
                (seq.saturating_add(1), "`Last-Event-ID`")
            }
            (None, Some(seq)) => (seq.get(), "`from_seq`"),
            (None, None) => (next, ""),
        };
        if first > next {
            // Whoever has seen a later entry has to learn that it is gone, and not to wait for another in its place.
            let detail = format!("{named} is beyond the end of the ledger, which is at seq {head}");
            return Err(Refusal::new(Code::EmptyRange, detail));
        }
        Ok(first)
    }
}

/// What a stream does next.
enum Phase {
    /// Say that it is there.
    Beginning,
    /// Read on.
    Reading,
    /// Wait for more.
    Waiting,
}

/// Who reads a stream, and its place.
struct Seat {
    may_read: MayRead,
    /// The place, or why it was taken away. Held for a look.
    place: Mutex<Result<Place, Refusal>>,
    /// Since when it is for the caller to go on; none while the caller waits for the next page. Held for a look.
    left_at: Mutex<Option<Instant>>,
}

impl Seat {
    fn new(place: Place, may_read: MayRead) -> Self {
        Self {
            may_read,
            place: Mutex::new(Ok(place)),
            left_at: Mutex::new(Some(Instant::now())),
        }
    }

    /// What comes of this, for which the caller waits. From then on it is for the caller to go on.
    async fn wait_for<T>(&self, making: impl Future<Output = T>) -> T {
        *lock(&self.left_at) = None;
        let made = making.await;
        *lock(&self.left_at) = Some(Instant::now());
        made
    }

    /// Whether the caller may still be told anything.
    fn check(&self) -> Result<(), Refusal> {
        self.lock().as_ref().map_err(Refusal::clone)?;
        (self.may_read)()
    }

    /// Looks at it now and then, as long as it has its place. The stream looks at the credential itself before each
    /// page, but nobody asks for one where the last one is not taken, and others have no place meanwhile.
    async fn watch(seat: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(seat) = seat.upgrade() else { return };
            if !seat.look(Instant::now()) {
                return;
            }
        }
    }

    /// Takes the place away if its caller has left what was made for too long, or may be told nothing any more. Says
    /// whether it is still there.
    fn look(&self, now: Instant) -> bool {
        let Some(why) = self.why_not(now) else {
            return true;
        };
        *self.lock() = Err(why);
        false
    }

    /// Why it has its place no longer.
    fn why_not(&self, now: Instant) -> Option<Refusal> {
        let left_at = *lock(&self.left_at);
        if left_at.is_some_and(|left_at| now.saturating_duration_since(left_at) >= LEFT_MAX) {
            return Some(left());
        }
        let refusal = self.check().err()?;
        // While it cannot be told whether the key works, the stream keeps its place.
        (refusal.code() == Code::InvalidToken).then_some(refusal)
    }

    fn lock(&self) -> MutexGuard<'_, Result<Place, Refusal>> {
        lock(&self.place)
    }
}

/// A stream under way.
struct OpenStream {
    gateway: Arc<Gateway>,
    tenant: TenantId,
    seat: Arc<Seat>,
    request_id: RequestId,
    subscription: Subscription,
    kinds: Vec<EntryKind>,
    /// How many entries are asked for at once: about as many as a page has room for, which is less where they are long.
    asked: u32,
    phase: Phase,
    /// The first entry that was not looked at.
    next: u64,
    /// How many more entries may be sent.
    left: u64,
    /// When something was last sent.
    spoke: Instant,
}

/// What is sent next, and the rest; without a rest it ends there.
type Part = Option<(Result<Bytes, Infallible>, Option<OpenStream>)>;

impl OpenStream {
    async fn part(mut self) -> Part {
        // Only now: until its last page is taken it has its place.
        if self.left == 0 {
            return None;
        }
        let seat = Arc::clone(&self.seat);
        let (page, rest) = match seat.wait_for(self.next_page()).await {
            Ok(page) => {
                self.spoke = Instant::now();
                (page, Some(self))
            }
            Err(refusal) => {
                let mut page = Page::default();
                page.push_end(self.next - 1, &refusal.to_problem(self.request_id.as_str()));
                (page, None)
            }
        };
        Some((Ok(page.into_bytes()), rest))
    }

    /// What there is to say next, however long that takes; or why there is nothing any more.
    async fn next_page(&mut self) -> Result<Page, Refusal> {
        loop {
            // Looked at first, and told last: without its place it hears nothing either, and then the seat says why.
            let is_closed = self.subscription.is_closed();
            self.seat.check()?;
            if is_closed {
                return Err(stopping());
            }
            match self.phase {
                Phase::Beginning => {
                    self.phase = Phase::Reading;
                    return Ok(Page::beginning(RETRY_MS, self.next - 1));
                }
                Phase::Reading => {
                    let began = Instant::now();
                    let page = self.read().await?;
                    if !page.is_empty() {
                        return Ok(page);
                    }
                    if let Some(sign) = self.sign_of_life() {
                        return Ok(sign);
                    }
                    // Whoever looks for what is rare leaves the store to others for as long as it has kept it busy, or
                    // has stood in line for it.
                    if matches!(self.phase, Phase::Reading) {
                        tokio::time::sleep(began.elapsed().min(PAUSE)).await;
                    }
                }
                Phase::Waiting => {
                    if let Some(sign) = self.sign_of_life() {
                        return Ok(sign);
                    }
                    tokio::time::sleep(PAUSE).await;
                    // Where nothing is to be heard any more, the next round finds out why.
                    if self.subscription.hear(LOOK).await == Heard::Look {
                        self.phase = Phase::Reading;
                    }
                }
            }
        }
    }

    /// A sign of life, if it is time for one. It says up to which entry everything was looked at, whether it was wanted or not.
    fn sign_of_life(&self) -> Option<Page> {
        let is_due = self.spoke.elapsed() >= HEARTBEAT;
        is_due.then(|| Page::heartbeat(self.next - 1))
    }

    /// The next entries as far as they are wanted, up to one that cannot be read or shown.
    async fn read(&mut self) -> Result<Page, Refusal> {
        let (gateway, tenant) = (&self.gateway, self.tenant);
        let store = &gateway.store;
        // For this page only: whoever streams takes turns with all who read ledgers, and leaves readers of the store to
        // what asks look up.
        let permit = gateway.ledger_chunks.acquire_for_part(tenant).await;
        // The line may have taken a while. In the order of `next_page`, and for its reason.
        let is_closed = self.subscription.is_closed();
        self.seat.check()?;
        if is_closed {
            return Err(stopping());
        }
        let entries = match store.entries(tenant, self.next, self.asked).await {
            // It may not be the first of them: what comes before it comes by itself.
            Err(StoreError::Corrupt { .. }) => store.entries(tenant, self.next, 1).await?,
            read => {
                let entries = read?;
                if entries.len() < self.asked as usize && !is_used_up(&entries) {
                    self.phase = Phase::Waiting;
                }
                entries
            }
        };
        drop(permit);
        let mut page = Page::default();
        for (looked_at, entry) in (0..).zip(entries) {
            if self.left == 0 {
                break;
            }
            if page.is_full() {
                // What is behind it is read again when this was taken, and so much is not asked for then.
                self.asked = looked_at;
                self.phase = Phase::Reading;
                return Ok(page);
            }
            let seq = entry.seq;
            if self.kinds.is_empty() || self.kinds.iter().any(|kind| kind.as_str() == entry.kind) {
                match page.push(entry) {
                    Ok(()) => self.left -= 1,
                    Err(refusal) if page.is_empty() => return Err(refusal),
                    // What comes before it is sent, and it is the first of the next page.
                    Err(_) => {
                        self.phase = Phase::Reading;
                        return Ok(page);
                    }
                }
            }
            self.next = seq + 1;
        }
        if !page.is_full() {
            self.asked = (2 * self.asked).min(PAGE);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::tests::{TENANT, gateway};
    use crate::live::Live;
    use futures_util::FutureExt;
    use std::future;
    use std::pin::pin;

    /// A seat with a place of these, whose caller may be told everything.
    fn seat(live: &Arc<Live>) -> Seat {
        let (place, _) = live.subscribe(TenantId::from_bytes([1; 16])).ok().unwrap();
        Seat::new(place, Box::new(|| Ok(())))
    }

    #[test]
    fn a_stream_of_which_nothing_is_taken_for_minutes_loses_its_place_and_says_so() {
        for is_begun in [false, true] {
            let live = Arc::new(Live::default());
            let seat = seat(&live);
            if is_begun {
                seat.wait_for(future::ready(())).now_or_never().unwrap();
            }
            let now = Instant::now();
            assert!(seat.look(now));
            seat.check().unwrap();
            assert_eq!(live.streams(), 1);
            assert!(!seat.look(now + LEFT_MAX));
            assert_eq!(live.streams(), 0);
            assert_eq!(seat.check().unwrap_err().code(), Code::Overloaded);
        }
    }

    #[test]
    fn a_stream_whose_caller_waits_for_more_keeps_its_place() {
        let live = Arc::new(Live::default());
        let seat = seat(&live);
        assert!(seat.wait_for(future::pending::<()>()).now_or_never().is_none());
        assert!(seat.look(Instant::now() + LEFT_MAX));
        assert_eq!(live.streams(), 1);
    }

    /// A stream that waits for its turn to read has left nothing, and one whose page has come has it to take.
    #[tokio::test]
    async fn a_stream_is_left_by_its_caller_from_the_end_of_a_page_to_the_next_call_for_one() {
        let folder = tempfile::tempdir().unwrap();
        let gateway = gateway(&folder).await;
        let (place, subscription) = gateway.live.subscribe(TENANT).ok().unwrap();
        let seat = Arc::new(Seat::new(place, Box::new(|| Ok(()))));
        let open = OpenStream {
            gateway: Arc::clone(&gateway),
            tenant: TENANT,
            seat: Arc::clone(&seat),
            request_id: RequestId::of(&HeaderMap::new(), &gateway),
            subscription,
            kinds: Vec::new(),
            asked: PAGE,
            phase: Phase::Reading,
            next: 1,
            left: u64::MAX,
            spoke: Instant::now(),
        };
        let is_left = || lock(&seat.left_at).is_some();
        assert!(is_left());
        let others = gateway.ledger_chunks.acquire_for_part(TenantId::SYSTEM).await;
        let mut part = pin!(open.part());
        assert!(part.as_mut().now_or_never().is_none());
        assert!(!is_left());
        drop(others);
        let (page, rest) = part.await.unwrap();
        assert!(!page.unwrap().is_empty() && rest.is_some());
        assert!(is_left());
    }

    fn first(from_seq: u64, last_event_id: Option<&'static str>, head: u64) -> Result<u64, Code> {
        let filter = Filter {
            from_seq: NonZeroU64::new(from_seq),
            kind: None,
            limit: None,
        };
        let last = last_event_id.map(|last| (LAST_EVENT_ID, HeaderValue::from_static(last)));
        filter
            .first(&last.into_iter().collect(), head)
            .map_err(|refusal| refusal.code())
    }

    #[test]
    fn a_stream_begins_where_it_is_told_or_with_what_comes_next() {
        assert_eq!(first(0, None, 7), Ok(8));
        assert_eq!(first(3, None, 7), Ok(3));
        assert_eq!(first(8, None, 7), Ok(8));
        assert_eq!(first(0, Some("0"), 7), Ok(1));
        assert_eq!(first(3, Some("5"), 7), Ok(6));
        assert_eq!(first(0, Some("7"), 7), Ok(8));
    }

    #[test]
    fn an_end_that_was_seen_and_is_gone_is_noticed() {
        assert_eq!(first(9, None, 7), Err(Code::EmptyRange));
        assert_eq!(first(1, Some("8"), 7), Err(Code::EmptyRange));
        assert_eq!(first(0, Some("18446744073709551615"), 7), Err(Code::EmptyRange));
    }

    #[test]
    fn an_id_that_is_not_ours_is_refused() {
        for id in ["", "-1", "seven", "7 "] {
            assert_eq!(first(1, Some(id), 7), Err(Code::InvalidParameter), "{id}");
        }
    }
}
