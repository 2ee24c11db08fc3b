//! What comes in at a listener: connections, and the requests on each.
//!
//! Nearly all requests are asks, and on a connection on which one has come the next is one, too. So a connection begins
//! in a loop that knows nothing else: it reads a request, has it answered by the application, and writes the response.
//! Whatever is not plainly an ask, in its first bytes or later, makes the rest of the connection hyper's, from the
//! beginning of that request on.
//!
//! - `plain`: which requests are plainly asks;
//! - `read_turns`: in which order connections are read that are refused again and again;
//! - `wording`: how a response is written, and the one that says that the gateway is full;
//! - `handed_on`: everything else;
//! - `head_time`: how long hyper waits there for a head;
//! - `rest`: what is left there of a body when its request is answered;
//! - `written_first`: when hyper may read on;
//! - `routed`: the connections of a program that is no gateway;
//! - `places`: how many connections there may be.
//!
//! Asks of a tenant that floods the gateway are answered in the lane for those
//! ([`SlowLane`](crate::slow_lane::SlowLane)), and its connections are read here again when they are: whoever is
//! refused, and whoever else asks, waits for none of that.
//!
//! A thread reads all of its connections into the same few pages, and writes from the same few. What a connection has
//! of its own is what it has sent of a request whose rest is missing. With thousands of connections, each with buffers
//! of its own, every one of them would be read from memory that is in no cache; and a refusal costs little more than
//! that.

mod handed_on;
mod head_time;
mod places;
mod plain;
mod read_turns;
mod rest;
mod routed;
mod wording;
mod written_first;

use crate::admission::EarlyAdmission;
use crate::app::{self, App};
use crate::authorize::Received;
use crate::http::Code;
use crate::http::caller;
use crate::http::json::HeadAt;
use crate::yielding::Yielder;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::Response;
use axum::serve::Listener;
use handed_on::Begun;
pub use places::places_max;
use plain::{Headers, Plain, Seen};
use read_turns::ReadTurns;
pub use routed::serve_router;
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::task::JoinSet;
use tokio::task::coop::consume_budget;
use tokio::time::Sleep;
use wording::{Desk, Words};

/// How long a head may take that hyper reads and of which something has come. The longest comes in less over nearly
/// every line, and one that does not end keeps up to twice its length.
pub(crate) const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a connection that hyper has may be silent, from the end of the request before. That is longer than proxies
/// and clients keep connections that nothing is asked on (ten minutes, of those that are known), so that it is they who
/// close them. If both do, an ask is lost that was on its way.
pub(crate) const SILENCE_MAX: Duration = Duration::from_mins(11);
/// So many requests of a connection are refused in a row, whatever for, before it stands in line with the others.
const REFUSED_MAX: u32 = 2;
/// How much room for the first part of a request a connection keeps, in bytes: that of a usual head, so that a caller
/// who sends it apart from the body every time costs no new room every time.
const ROOM_KEPT: usize = 512;

thread_local! {
    /// Borrowed while a connection is looked at, which never waits.
    static DESK: RefCell<Desk> = RefCell::new(Desk::new());
}

/// Serves whoever connects until told to stop. Then whoever is silent is let go, and whatever has begun is answered.
pub async fn serve<L: Listener>(mut listener: L, app: App, stop: impl Future<Output = ()>) {
    let (stopping, stop_requested) = watch::channel(false);
    let mut stop = pin!(stop);
    let turns = Arc::new(ReadTurns::new());
    // Ends with this function, however that ends.
    let mut giving = JoinSet::new();
    giving.spawn({
        let turns = Arc::clone(&turns);
        async move { turns.give().await }
    });
    loop {
        let accepted = async {
            // Whoever connects while there is none waits in the system's own queue.
            let gateway = app.gateway();
            let place = places::take(&gateway.connections, gateway.options.bounds.connections_max).await;
            (listener.accept().await.0, place)
        };
        tokio::select! {
            (stream, place) = accepted => {
                let told = stop_requested.clone();
                let connection = Connection::new(stream, place, app.clone(), Arc::clone(&turns), told);
                tokio::spawn(connection.run());
            }
            () = &mut stop => break,
        }
    }
    // Nobody new is let in, and nothing is held that the end of the gateway waits for.
    drop((listener, app, stop_requested));
    stopping.send_replace(true);
    stopping.closed().await;
}

/// A connection on which nothing but asks has come so far.
struct Connection<S> {
    stream: S,
    app: App,
    /// What has come of a request that is not complete, or after one that was.
    left: Vec<u8>,
    /// Whether that may be a whole request.
    is_untried: bool,
    /// When the head of that request had come, if it has.
    head_at: Option<Instant>,
    /// What could not be written yet.
    unsent: Vec<u8>,
    /// How many asks were refused in a row, whatever for.
    refused: u32,
    turns: Arc<ReadTurns>,
    /// Until when the rest is waited for of a request that has begun; none where nothing is missing.
    late: Option<Pin<Box<Sleep>>>,
    place: OwnedSemaphorePermit,
    stop_requested: watch::Receiver<bool>,
}

/// What comes next on a connection.
enum Next {
    /// An ask.
    Ask(Asked),
    /// Something else, or not plainly that, from its beginning on.
    Other(Begun),
    /// Nothing before the last answer is written.
    Unsent,
    /// Nothing before its turn has come.
    Turn,
    /// Nothing.
    End,
}

/// An ask that has come whole and was not refused in the usual words.
struct Asked {
    request: Box<Request>,
    /// Whether the caller wants no more than its answer.
    is_last: bool,
    /// Whether it has its place, as far as that is known.
    early: EarlyAdmission,
}

impl<S> Connection<S>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    const fn new(
        stream: S,
        place: OwnedSemaphorePermit,
        app: App,
        turns: Arc<ReadTurns>,
        stop_requested: watch::Receiver<bool>,
    ) -> Self {
        Self {
            stream,
            app,
            left: Vec::new(),
            is_untried: false,
            head_at: None,
            unsent: Vec::new(),
            refused: 0,
            turns,
            late: None,
            place,
            stop_requested,
        }
    }

    /// Answers until there is nothing more to answer. How the connection ends is its caller's business: a caller that
    /// goes away has what it asked recorded like any other.
    async fn run(mut self) {
        let mut stop = self.stop_requested.clone();
        let mut stopped = pin!(async move {
            // An error means that nobody can say it any more, which is a reason to stop as well.
            let _ = stop.wait_for(|stop| *stop).await;
        });
        let mut yielder = Yielder::new();
        loop {
            yielder.yield_if_due().await;
            let next = {
                let next = poll_fn(|context| self.poll_next(context, stopped.as_mut()));
                yielder.watch(pin!(next)).await
            };
            let goes_on = match next {
                Next::Ask(asked) if asked.is_of_flood() => return self.answer_aside(asked),
                Next::Ask(asked) => yielder.watch(pin!(self.answer(asked))).await,
                Next::Unsent => yielder.watch(pin!(self.send_rest())).await.is_ok(),
                Next::Turn => {
                    yielder.watch(pin!(self.turns.wait())).await;
                    true
                }
                Next::Other(begun) => {
                    let Self {
                        stream,
                        app,
                        turns,
                        place,
                        ..
                    } = self;
                    Box::pin(handed_on::serve(begun, stream, (app, turns), stopped)).await;
                    drop(place);
                    return;
                }
                Next::End => return,
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Has an ask answered in the lane for floods, and goes on where it is now.
    fn answer_aside(mut self, asked: Asked) {
        let (app, here) = (self.app.clone(), Handle::current());
        app.gateway().metrics.count_slow_lane();
        app.gateway().slow_lane.spawn(async move {
            if self.answer(asked).await {
                here.spawn(self.run());
            }
        });
    }

    /// Answers an ask. Says whether the connection goes on.
    async fn answer(&mut self, asked: Asked) -> bool {
        let Asked {
            request,
            is_last,
            early,
        } = asked;
        // In a box, so that a connection that says nothing is small.
        let response = Box::pin(app::ask(self.app.gateway(), *request, Received::Whole(early))).await;
        let is_refused = is_refused(response.status());
        self.refused = if is_refused { self.refused + 1 } else { 0 };
        let is_last = is_last || self.is_stopping();
        let sent = self.send(response, is_last).await;
        let goes_on = sent.is_ok() && !is_last;
        if goes_on && self.stands_in_line() {
            self.turns.wait().await;
        }
        // A caller that pipelines requests that take next to no time would otherwise never yield: what has come is read at
        // once, and a write to a local socket does not pass through the runtime.
        consume_budget().await;
        goes_on
    }

    /// Whether the gateway was told to stop, or nobody can say it any more. To look for that takes no lock.
    fn is_stopping(&self) -> bool {
        // INVARIANT: nothing else is said there, and this receiver never takes it for heard.
        self.stop_requested.has_changed().unwrap_or(true)
    }

    /// The next request that takes more than a word. Whoever is silent when the gateway stops has none.
    fn poll_next(
        &mut self,
        context: &mut Context<'_>,
        mut stopped: Pin<&mut impl Future<Output = ()>>,
    ) -> Poll<Next> {
        DESK.with_borrow_mut(|desk| {
            loop {
                let Poll::Ready(read) = self.poll_read(context, desk) else {
                    return if self.left.is_empty() {
                        stopped.as_mut().poll(context).map(|()| Next::End)
                    } else {
                        self.poll_late(context).map(|()| {
                            Next::Other(Begun {
                                bytes: std::mem::take(&mut self.left),
                                head_at: self.head_at,
                            })
                        })
                    };
                };
                let Ok(length @ 1..) = read else {
                    return Poll::Ready(Next::End);
                };
                if let Some(next) = self.look_at(length, desk, context) {
                    return Poll::Ready(next);
                }
            }
        })
    }

    /// Ready when the rest of a request that has begun has not come in time, so that it is hyper's, which has bounds
    /// for each part of one. Only what comes in pieces takes a timer.
    fn poll_late(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let time_max = self.app.gateway().options.bounds.ask_time_max;
        let late = self
            .late
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time_max)));
        late.as_mut().poll(context)
    }

    /// Has what has come at the beginning of the desk, and says how much that is. 0 is the end.
    fn poll_read(&mut self, context: &mut Context<'_>, desk: &mut Desk) -> Poll<io::Result<usize>> {
        let left = self.left.len();
        desk.input[..left].copy_from_slice(&self.left);
        if std::mem::take(&mut self.is_untried) {
            return Poll::Ready(Ok(left));
        }
        let mut buffer = ReadBuf::new(&mut desk.input[left..]);
        ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer))?;
        let more = buffer.filled().len();
        Poll::Ready(Ok(if more == 0 { 0 } else { left + more }))
    }

    /// Looks at the first bytes on the desk. There is nothing for anybody to do if they are not a whole request, or one
    /// that was refused at once.
    fn look_at(&mut self, length: usize, desk: &mut Desk, context: &mut Context<'_>) -> Option<Next> {
        let bytes = &desk.input[..length];
        let (next, used) = match plain::read(bytes, &mut Headers::new()) {
            Seen::Part => (None, 0),
            Seen::Head => {
                self.head_at.get_or_insert_with(Instant::now);
                (None, 0)
            }
            Seen::Other => return Some(Next::other(bytes)),
            Seen::Ask(ask) => {
                let next = match self.enter(&ask) {
                    // While the gateway stops it has to be said that the connection ends, and these words do not.
                    EarlyAdmission::Refused if ask.is_refused_like_any() && !self.is_stopping() => {
                        self.refuse(&mut desk.words, context)
                    }
                    early => Some(Next::of(&ask, bytes, early, self.head_at)),
                };
                (next, ask.length())
            }
        };
        // What has come after it, which is nothing unless the caller does not wait for answers.
        keep(&mut self.left, &desk.input[used..length]);
        self.is_untried = used > 0 && used < length;
        if used > 0 {
            (self.late, self.head_at) = (None, None);
        }
        next
    }

    /// A place for an ask, as it would get one if it went the long way, from the same things. It is looked for here
    /// where there may be none, or where it matters whose ask it is.
    fn enter(&self, ask: &Plain<'_, '_>) -> EarlyAdmission {
        let gateway = self.app.gateway();
        let tenant = || caller::tenant_of_agent(gateway, ask.authorization()?);
        let commit = gateway.sequencer.usual_commit();
        gateway.admission.enter_under_pressure(tenant, commit)
    }

    /// Writes that there is no place. What the caller does not take at once is sent before anything else.
    fn refuse(&mut self, words: &mut Words, context: &mut Context<'_>) -> Option<Next> {
        let gateway = self.app.gateway();
        gateway.metrics.count_refusal(Code::Overloaded);
        let refusal = words.refusal(gateway);
        let sent = match Pin::new(&mut self.stream).poll_write(context, refusal) {
            Poll::Ready(Ok(sent)) => sent,
            Poll::Ready(Err(_)) => return Some(Next::End),
            Poll::Pending => 0,
        };
        self.unsent.extend_from_slice(&refusal[sent..]);
        self.refused += 1;
        if sent < refusal.len() {
            Some(Next::Unsent)
        } else {
            self.stands_in_line().then_some(Next::Turn)
        }
    }

    /// Whether so many of its asks were refused that it has to wait for its turn.
    const fn stands_in_line(&self) -> bool {
        self.refused >= REFUSED_MAX
    }

    async fn send(&mut self, response: Response, is_last: bool) -> io::Result<()> {
        let (head, body) = response.into_parts();
        // INVARIANT: the answer to an ask is in memory already.
        let body = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        let gateway = self.app.gateway();
        self.unsent = DESK.with_borrow_mut(|desk| desk.words.response(gateway, &head, &body, is_last));
        self.send_rest().await?;
        if is_last {
            self.stream.shutdown().await
        } else {
            Ok(())
        }
    }

    async fn send_rest(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.stream.write_all(&unsent).await
    }
}

/// Whether whoever gets this status was refused, for want of room or for anything else: an ask that cannot be read, or
/// for which a bucket is empty, keeps those behind it waiting as well.
fn is_refused(status: StatusCode) -> bool {
    status.is_client_error() || status.is_server_error()
}

/// Keeps what has come of the next request. Where that is nothing, much room is not kept for it either: the connection
/// may be silent for ever.
fn keep(left: &mut Vec<u8>, come: &[u8]) {
    if come.is_empty() && left.capacity() > ROOM_KEPT {
        *left = Vec::new();
    } else {
        left.clear();
        left.extend_from_slice(come);
    }
}

impl Next {
    /// What an ask is that begins these bytes, whose head came earlier if it did not come with the rest.
    fn of(ask: &Plain<'_, '_>, bytes: &[u8], early: EarlyAdmission, head_at: Option<Instant>) -> Self {
        let Some(mut request) = ask.to_request() else {
            return Self::other(bytes);
        };
        if let Some(head_at) = head_at {
            request.extensions_mut().insert(HeadAt(head_at));
        }
        Self::Ask(Asked {
            request: Box::new(request),
            is_last: ask.is_last(),
            early,
        })
    }

    /// What begins with these bytes, and is not waited for.
    fn other(bytes: &[u8]) -> Self {
        Self::Other(Begun {
            bytes: bytes.to_vec(),
            head_at: None,
        })
    }
}

impl Asked {
    fn is_of_flood(&self) -> bool {
        matches!(&self.early, EarlyAdmission::Admitted(place) if place.is_of_flood())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_connection_keeps_no_room_of_a_long_ask_that_came_in_pieces() {
        let (mut left, long) = (Vec::new(), "a".repeat(plain::BYTES_MAX));
        keep(&mut left, long.as_bytes());
        keep(&mut left, b"POST");
        assert_eq!(left, b"POST");
        keep(&mut left, b"");
        assert_eq!((left.len(), left.capacity()), (0, 0));
        keep(&mut left, &long.as_bytes()[..ROOM_KEPT]);
        keep(&mut left, b"");
        assert!(left.is_empty() && left.capacity() == ROOM_KEPT);
    }
}
