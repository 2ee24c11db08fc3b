//! Connections on which something else comes than plain asks: hyper's, from the beginning of that on.

use super::head_time::{HeadTimer, Times};
use super::read_turns::ReadTurns;
use super::rest::{self, Rest};
use super::written_first::WrittenFirst;
use super::{REFUSED_MAX, is_refused, plain};
use crate::app::App;
use crate::http::json;
use crate::yielding::{WORK_MAX, others_first};
use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, header};
use bytes::Bytes;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::cell::Cell;
use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tower::Service;

/// The longest head of a request, in bytes. One that does not end is kept until its time is over, on every connection
/// and whoever sends it. Most proxies pass on none that is longer than half of this. As much is read at once, whatever
/// it is.
const HEAD_BYTES_MAX: usize = 32 * 1024;
// What was read as the first part of a plain ask is not too long already.
const _: () = assert!(HEAD_BYTES_MAX > plain::BYTES_MAX);
/// How much is read at once from a connection that was silent for long, in bytes, before hyper has it again.
const FIRST_BYTES_MAX: usize = 4 * 1024;

/// What has been read of a connection.
pub(super) struct Begun {
    /// The bytes, from the beginning of a request on.
    pub(super) bytes: Vec<u8>,
    /// When the head of that request had come, if its body has been waited for.
    pub(super) head_at: Option<Instant>,
}

/// Serves the rest of a connection of which so much has been read. When the gateway stops, a request whose head has
/// come is answered. Whoever is refused again and again waits for its turn before the next request is answered.
pub(super) async fn serve<S>(
    begun: Begun,
    stream: S,
    (app, turns): (App, Arc<ReadTurns>),
    stopped: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // The body of the first request has no more time than is left of what every body has.
    let first = Cell::new(begun.head_at.map(json::HeadAt));
    let stream = Rewound::new(begun.bytes.into(), stream);
    let bounds = &app.gateway().options.bounds;
    let times = Times {
        head_max: bounds.head_time_max,
        silence_max: bounds.silence_max,
    };
    let before = Arc::new(Before::default());
    let answer = move |mut request: Request<Body>| {
        let (mut app, turns, before) = (app.clone(), Arc::clone(&turns), Arc::clone(&before));
        if let Some(head_at) = first.take() {
            request.extensions_mut().insert(head_at);
        }
        async move {
            if before.refused.load(Ordering::Relaxed) >= REFUSED_MAX {
                stand_in_line(&turns, &mut request).await;
            }
            before.yield_if_due().await;
            let response: Response<Body> = before.count(pin!(app.call(request))).await?;
            before.note(response.status());
            Ok::<_, Infallible>(response)
        }
    };
    answer_all(stream, answer, times, stopped).await;
}

/// What came of the requests before, as far as it matters for the next one.
#[derive(Default)]
struct Before {
    /// How many were refused in a row.
    refused: AtomicU32,
    /// How long their thread has worked on them since it let others go first, in microseconds.
    took: AtomicU64,
}

impl Before {
    /// Yields to others where they had no turn for long. Hyper goes from one request to the next of those that were sent
    /// ahead, sixteen times in a row. What has been answered is on its way by now.
    async fn yield_if_due(&self) {
        let took = Duration::from_micros(self.took.load(Ordering::Relaxed));
        if took >= WORK_MAX {
            others_first().await;
            self.took.store(0, Ordering::Relaxed);
        }
    }

    /// Does this, and counts how long its thread works on it. While it waits, others may go on.
    async fn count<T>(&self, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        poll_fn(|context| {
            let since = Instant::now();
            let done = work.as_mut().poll(context);
            let micros = since.elapsed().as_micros().try_into().unwrap_or(u64::MAX);
            self.took.fetch_add(micros, Ordering::Relaxed);
            done
        })
        .await
    }

    fn note(&self, status: StatusCode) {
        if is_refused(status) {
            self.refused.fetch_add(1, Ordering::Relaxed);
        } else {
            self.refused.store(0, Ordering::Relaxed);
        }
    }
}

/// Waits for the turn of a request whose head has come.
async fn stand_in_line(turns: &ReadTurns, request: &mut Request<Body>) {
    // Whoever comes after this would take the end of the wait for the beginning.
    let extensions = request.extensions_mut();
    extensions.get_or_insert_with(|| json::HeadAt(Instant::now()));
    turns.wait().await;
}

/// Has each request on a stream answered. When told to stop, a request whose head has come is answered; one whose head
/// has come in part only may be dropped. What a caller still sends that was refused before its body had come is read.
///
/// Hyper has the stream for the time of a head after each request, and for a second where it has read much. Then a head
/// that has begun is given to another one of hyper's connections once, because it may have begun late, and whoever is
/// silent is waited for without hyper, which keeps all that it has read into.
pub(super) async fn answer_all<S, A, R>(
    mut stream: Rewound<S>,
    answer: A,
    times: Times,
    mut stopped: Pin<&mut impl Future<Output = ()>>,
) where
    S: AsyncRead + AsyncWrite + Unpin,
    A: Fn(Request<Body>) -> R,
    R: Future<Output = Result<Response<Body>, Infallible>>,
{
    let (is_rest_left, has_head_come) = (AtomicBool::new(false), AtomicBool::new(false));
    let (is_left, has_come) = (&is_rest_left, &has_head_come);
    let mut service = service_fn(move |request: Request<Incoming>| {
        has_come.store(true, Ordering::Relaxed);
        let is_understood = is_plain_or_in_chunks(request.headers());
        let (request, rest) = Rest::of(request);
        let answer = is_understood.then(|| answer(request));
        async move {
            let response = match answer {
                Some(answer) => answer.await?,
                None => in_unknown_coding(),
            };
            Ok::<_, Infallible>(match rest {
                Some(rest) => rest.answered(response, is_left).await,
                None => response,
            })
        }
    });
    let (served, is_stopping) = loop {
        let had_begun = !is_blank(&stream.before);
        let written_first = WrittenFirst::new(&mut stream);
        let progress = written_first.progress();
        let http = hyper_with(HeadTimer::new(Arc::clone(&progress), times), times.head_max);
        let mut connection = http.serve_connection(TokioIo::new(written_first), service);
        let (served, is_stopping) = tokio::select! {
            // First, so that a request whose head is there has begun before it is told to stop.
            biased;
            served = &mut connection => (served, false),
            () = stopped.as_mut() => {
                Pin::new(&mut connection).graceful_shutdown();
                ((&mut connection).await, true)
            }
        };
        // INVARIANT: if it is late nothing is being answered, and where the stream is not full all answers have left.
        let is_late = served.as_ref().is_err_and(hyper::Error::is_timeout);
        let has_come = has_head_come.swap(false, Ordering::Relaxed);
        let is_given_up = progress.is_full() || had_begun && !has_come;
        if !is_late || is_stopping || is_given_up {
            break (served, is_stopping);
        }
        let http1::Parts {
            service: same,
            read_buf: mut begun,
            ..
        } = connection.into_parts();
        service = same;
        if is_blank(&begun) {
            let silence = times.silence_max.saturating_sub(times.first(progress.read()));
            let Some(first) = first_bytes(&mut stream, silence, stopped.as_mut()).await else {
                return;
            };
            begun = first;
        }
        stream.rewind(begun);
    };
    if let Err(error) = served {
        // Callers go away, and some send what is no HTTP: hyper has told them so.
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a connection ended early"
        );
    } else if is_rest_left.load(Ordering::Relaxed) && !is_stopping {
        // Hyper has written everything and said that nothing more comes.
        rest::read_on(&mut stream, stopped).await;
    }
}

/// Whether a body is in no transfer coding but chunks. Hyper goes by the last of several, so that what was packed
/// first would be read as what was meant.
fn is_plain_or_in_chunks(headers: &HeaderMap) -> bool {
    let mut lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_in_chunks = |line: &HeaderValue| line.as_bytes().eq_ignore_ascii_case(b"chunked");
    lines.next().is_none_or(is_in_chunks) && lines.next().is_none()
}

/// What whoever sends a body in another coding, too, is told (RFC 9112, section 6.1), without a document as whoever
/// sends no HTTP. The connection ends: whoever takes the coding off may see the end of the body elsewhere.
fn in_unknown_coding() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// Hyper with our bounds, for one connection.
fn hyper_with(timer: HeadTimer, head_time_max: Duration) -> http1::Builder {
    let mut http = http1::Builder::new();
    http.timer(timer)
        .header_read_timeout(head_time_max)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(HEAD_BYTES_MAX);
    http
}

/// Whether nothing of a head has come: empty lines before it say nothing (RFC 9112, section 2.2).
fn is_blank(begun: &[u8]) -> bool {
    begun.iter().all(|byte| matches!(byte, b'\r' | b'\n'))
}

/// The first bytes that come within this time; `None` if none do, or the gateway stops before.
async fn first_bytes<S: AsyncRead + Unpin>(
    stream: &mut S,
    time_max: Duration,
    stopped: Pin<&mut impl Future<Output = ()>>,
) -> Option<Bytes> {
    let reading = poll_fn(|context| {
        // Not kept while nothing comes.
        let mut room = [0; FIRST_BYTES_MAX];
        let mut buffer = ReadBuf::new(&mut room);
        let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
        Poll::Ready(read.ok().map(|()| Bytes::copy_from_slice(buffer.filled())))
    });
    let first = tokio::select! {
        biased;
        first = tokio::time::timeout(time_max, reading) => first.ok().flatten(),
        () = stopped => None,
    };
    first.filter(|bytes| !bytes.is_empty())
}

/// A stream of which some bytes were read before.
pub(super) struct Rewound<S> {
    before: Bytes,
    stream: S,
}

impl<S> Rewound<S> {
    pub(super) const fn new(before: Bytes, stream: S) -> Self {
        Self { before, stream }
    }

    /// Whether there is something that was read before.
    fn has_before(&self) -> bool {
        !self.before.is_empty()
    }

    /// Has these bytes, which were read from it, read again.
    fn rewind(&mut self, before: Bytes) {
        // INVARIANT: hyper reads on as long as there is something, unless the stream is full.
        debug_assert!(!self.has_before(), "they would be lost");
        self.before = before;
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.has_before() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let length = buffer.remaining().min(self.before.len());
        buffer.put_slice(&self.before.split_to(length));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_time_of_whoever_stands_in_line_begins_with_the_head() {
        const LONG: Duration = Duration::from_millis(50);
        let turns = ReadTurns::new();
        let mut request = Request::new(Body::empty());
        let mut times = Vec::new();
        for _ in 0..2 {
            let giving = async {
                tokio::time::sleep(LONG).await;
                turns.give().await;
            };
            tokio::select! {
                biased;
                () = stand_in_line(&turns, &mut request) => (),
                () = giving => (),
            }
            let json::HeadAt(at) = *request.extensions().get::<json::HeadAt>().unwrap();
            times.push(at);
        }
        // Of one that has waited for its body, too, it began then.
        assert_eq!(times[0], times[1]);
        assert!(times[0].elapsed() >= 2 * LONG);
    }
}
