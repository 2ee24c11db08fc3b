//! What is streamed and may be large, as exports, evidence and the results of replays: how much of it there is at once,
//! and what becomes of what nobody takes.
//!
//! The next part is made when the one before is taken. A connection gets a part in small pieces, and what it has not
//! got yet waits here with whatever makes the next one: what is handed on stays for as long as a caller keeps its
//! connection, whatever becomes of its credential. What waits goes, and its place with it, when the caller may not read
//! it any more, or has taken nothing for minutes. A caller that goes on then finds that it has broken off.

use crate::fair_semaphore::BUSY_RETRY_AFTER;
use crate::gateway::Gateway;
use crate::http::{Code, Refusal, TenantCaller};
use crate::locks::lock;
use crate::tenant_places::{TenantPlace, TenantPlaces};
use axum::BoxError;
use axum::body::Body;
use axum::http::header;
use bytes::Bytes;
use futures_util::{Stream, TryStreamExt};
use model::TenantId;
use std::pin::Pin;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

/// How many there may be at once.
const ALL_MAX: usize = 32;
/// How many of them may be of one tenant, so that one tenant's auditors do not take all places.
const OF_TENANT_MAX: usize = 8;
/// How many bytes a connection gets at once.
const PIECE: usize = 64 << 10;
/// How long a caller may leave the next piece. A system that has megabytes of a connection still to send asks for more
/// only when a good part of them has left, which takes a slow reader minutes.
pub(crate) const LEFT_MAX: Duration = Duration::from_mins(5);
/// How often it is looked whether that is over, and whether the credential still works.
const LOOK: Duration = Duration::from_millis(500);

/// What makes the parts.
type Parts = Pin<Box<dyn Stream<Item = Result<Bytes, BoxError>> + Send>>;
/// Whether the caller may still be told anything.
pub(crate) type MayRead = Box<dyn Fn() -> Result<(), Refusal> + Send + Sync>;

/// Why it was taken away.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum TakenAway {
    /// The credential does not work any more, or this gateway cannot tell.
    #[error("its caller may not read it any more")]
    NotAllowed,
    /// The caller has left it for too long.
    #[error("nobody has taken anything of it for minutes")]
    Left,
}

/// All places that there are.
pub(crate) fn places() -> TenantPlaces {
    TenantPlaces::new(ALL_MAX, OF_TENANT_MAX)
}

/// A place for something of this tenant. Take it before anything is read for it.
pub(crate) fn place(gateway: &Gateway, tenant: TenantId) -> Result<TenantPlace, Refusal> {
    gateway.outgoing.take(tenant).ok_or_else(|| {
        let detail = "as many exports, files of evidence and replays in lines are on their way as there may be; take one to its end or close its connection, or try again later";
        Refusal::new(Code::TooManyStreams, detail).with_header(header::RETRY_AFTER, BUSY_RETRY_AFTER)
    })
}

/// The body of an answer with these parts of a ledger. What makes them looks at the credential before each.
pub(crate) fn of_ledger<S, E>(
    place: TenantPlace,
    gateway: &Arc<Gateway>,
    caller: &TenantCaller,
    parts: S,
) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let (gateway, caller) = (Arc::clone(gateway), caller.clone());
    let may_read = Box::new(move || caller.check(&gateway));
    body("an export", place, may_read, parts)
}

/// The body of an answer with the lines of a replay. Whether its caller may read them is told in them.
pub(crate) fn of_replay<S, E>(place: TenantPlace, lines: S) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    body("a replay", place, Box::new(|| Ok(())), lines)
}

fn body<S, E>(what: &'static str, place: TenantPlace, may_read: MayRead, parts: S) -> Body
where
    S: Stream<Item = Result<Bytes, E>> + Send + 'static,
    E: Into<BoxError> + 'static,
{
    let parts = Box::pin(parts.map_err(Into::<BoxError>::into));
    let outgoing = Outgoing::new(what, place, may_read, parts);
    tokio::spawn(Seat::watch(Arc::downgrade(&outgoing.0)));
    Body::from_stream(outgoing)
}

/// Something on its way, as whoever sends it has it.
struct Outgoing(Arc<Seat>);

/// Who takes it, and what there is to take.
struct Seat {
    /// What it is called in the log.
    what: &'static str,
    tenant: TenantId,
    may_read: MayRead,
    /// Held while a piece is asked for, as far as that does not wait.
    state: Mutex<State>,
}

enum State {
    /// It is on its way.
    Open(Open),
    /// It was taken away, which its caller has not been told.
    TakenAway(TakenAway),
    /// There is no more of it.
    Ended,
}

/// What is still to be taken.
struct Open {
    /// What makes the next parts.
    parts: Parts,
    /// What is left of the last one.
    rest: Bytes,
    /// Since when it is for the caller to go on; none while the caller waits for the next part.
    left_at: Option<Instant>,
    /// Given back with all of this.
    _place: TenantPlace,
}

impl Outgoing {
    fn new(what: &'static str, place: TenantPlace, may_read: MayRead, parts: Parts) -> Self {
        let tenant = place.tenant();
        let open = Open {
            parts,
            rest: Bytes::new(),
            left_at: Some(Instant::now()),
            _place: place,
        };
        Self(Arc::new(Seat {
            what,
            tenant,
            may_read,
            state: Mutex::new(State::Open(open)),
        }))
    }
}

impl Stream for Outgoing {
    type Item = Result<Bytes, BoxError>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let seat = &*self.0;
        let mut state = lock(&seat.state);
        let next = match &mut *state {
            State::Open(open) if !open.rest.is_empty() && (seat.may_read)().is_err() => {
                seat.log(TakenAway::NotAllowed);
                Some(Err(BoxError::from(TakenAway::NotAllowed)))
            }
            State::Open(open) => ready!(open.poll_piece(context)),
            State::TakenAway(why) => Some(Err(BoxError::from(*why))),
            State::Ended => None,
        };
        if !matches!(next, Some(Ok(_))) {
            *state = State::Ended;
        }
        Poll::Ready(next)
    }
}

impl Open {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, BoxError>>> {
        self.left_at = None;
        if self.rest.is_empty() {
            match ready!(self.parts.as_mut().poll_next(context)) {
                Some(Ok(part)) => self.rest = part,
                ended => return Poll::Ready(ended),
            }
        }
        let piece = self.rest.split_to(self.rest.len().min(PIECE));
        self.left_at = Some(Instant::now());
        // Copied: a slice would keep all of the part for as long as the connection has it.
        Poll::Ready(Some(Ok(Bytes::copy_from_slice(&piece))))
    }
}

impl Seat {
    /// Looks at it now and then, as long as there is something to take. Nobody else does where a piece is not taken.
    async fn watch(seat: Weak<Self>) {
        loop {
            tokio::time::sleep(LOOK).await;
            let Some(seat) = seat.upgrade() else { return };
            if !seat.look(Instant::now()) {
                return;
            }
        }
    }

    /// Takes it away if its caller has left it for too long, or may be told nothing any more. Says whether there is
    /// still something to take.
    fn look(&self, now: Instant) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            // Somebody asks for a piece just now.
            return true;
        };
        let State::Open(open) = &*state else { return false };
        let Some(why) = self.why_not(open, now) else {
            return true;
        };
        *state = State::TakenAway(why);
        drop(state);
        self.log(why);
        false
    }

    /// Why its caller may not go on. One that waits for a part is told by what makes it.
    fn why_not(&self, open: &Open, now: Instant) -> Option<TakenAway> {
        let left_at = open.left_at?;
        if now.saturating_duration_since(left_at) >= LEFT_MAX {
            return Some(TakenAway::Left);
        }
        let refusal = (self.may_read)().err()?;
        // While it cannot be told whether the key works, it stays until the caller goes on.
        (refusal.code() == Code::InvalidToken).then_some(TakenAway::NotAllowed)
    }

    fn log(&self, why: TakenAway) {
        let error = &why as &dyn std::error::Error;
        tracing::warn!(error, tenant = %self.tenant, "{} broke off", self.what);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{FutureExt, StreamExt, stream};

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);

    /// A part, as long as somebody has some of it.
    struct Part {
        bytes: Vec<u8>,
        _held: Arc<()>,
    }

    impl AsRef<[u8]> for Part {
        fn as_ref(&self) -> &[u8] {
            &self.bytes
        }
    }

    /// What has these parts, for whoever is told this when asked whether it may be read; and all places.
    fn outgoing<S>(parts: S, may_read: MayRead) -> (Outgoing, Arc<TenantPlaces>)
    where
        S: Stream<Item = Result<Bytes, BoxError>> + Send + 'static,
    {
        let places = Arc::new(places());
        let place = places.take(TENANT).unwrap();
        (
            Outgoing::new("an export", place, may_read, Box::pin(parts)),
            places,
        )
    }

    fn may_read() -> MayRead {
        Box::new(|| Ok(()))
    }

    /// One part, and what tells whether somebody has some of it.
    fn one_part() -> (impl Stream<Item = Result<Bytes, BoxError>>, Weak<()>) {
        let held = Arc::new(());
        let weak = Arc::downgrade(&held);
        let part = Bytes::from_owner(Part {
            bytes: vec![b' '; 2 * PIECE + 1],
            _held: held,
        });
        (stream::iter([Ok::<_, BoxError>(part)]), weak)
    }

    /// The next piece, which is there at once.
    fn piece(outgoing: &mut Outgoing) -> Option<Result<Bytes, BoxError>> {
        outgoing.next().now_or_never().expect("nothing is waited for")
    }

    /// Why it has broken off.
    fn broken_off(outgoing: &mut Outgoing) -> TakenAway {
        let error = piece(outgoing).unwrap().unwrap_err();
        assert!(piece(outgoing).is_none(), "there is no more");
        *error.downcast::<TakenAway>().unwrap()
    }

    #[test]
    fn pieces_of_a_part_keep_nothing_of_it() {
        let (parts, part) = one_part();
        let (mut outgoing, places) = outgoing(parts, may_read());
        let pieces: Vec<Bytes> = (0..3).map(|_| piece(&mut outgoing).unwrap().unwrap()).collect();
        assert_eq!(
            pieces.iter().map(Bytes::len).collect::<Vec<_>>(),
            [PIECE, PIECE, 1]
        );
        assert!(part.upgrade().is_none());
        assert_eq!(places.taken(), 1, "there may be another part");
        assert!(piece(&mut outgoing).is_none());
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn what_is_left_for_minutes_goes_with_its_place() {
        let (parts, part) = one_part();
        let (mut outgoing, places) = outgoing(parts, may_read());
        piece(&mut outgoing).unwrap().unwrap();
        let now = Instant::now();
        assert!(outgoing.0.look(now));
        assert!(part.upgrade().is_some());
        assert!(!outgoing.0.look(now + LEFT_MAX));
        assert!(part.upgrade().is_none());
        assert_eq!(places.taken(), 0);
        assert_eq!(broken_off(&mut outgoing), TakenAway::Left);
    }

    #[test]
    fn what_nobody_has_begun_to_take_goes_as_well() {
        let (outgoing, places) = outgoing(stream::pending(), may_read());
        assert!(!outgoing.0.look(Instant::now() + LEFT_MAX));
        assert_eq!(places.taken(), 0);
    }

    #[test]
    fn whoever_waits_for_a_part_may_wait_for_long() {
        let (mut outgoing, places) = outgoing(stream::pending(), may_read());
        assert!(outgoing.next().now_or_never().is_none());
        assert!(outgoing.0.look(Instant::now() + LEFT_MAX));
        assert_eq!(places.taken(), 1);
    }

    #[test]
    fn what_may_not_be_read_any_more_goes_and_what_cannot_be_told_of_stays_until_it_is_asked_for() {
        for (code, goes) in [(Code::InvalidToken, true), (Code::LedgerUnavailable, false)] {
            let (parts, part) = one_part();
            let may_read: MayRead = Box::new(move || Err(Refusal::new(code, "a test")));
            let (mut outgoing, places) = outgoing(parts, may_read);
            piece(&mut outgoing).unwrap().unwrap();
            assert_eq!(outgoing.0.look(Instant::now()), !goes);
            assert_eq!((places.taken() == 0, part.upgrade().is_none()), (goes, goes));
            assert_eq!(broken_off(&mut outgoing), TakenAway::NotAllowed);
            assert_eq!(places.taken(), 0);
        }
    }
}
