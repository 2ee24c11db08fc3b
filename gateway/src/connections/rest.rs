//! What is left of the body of a request when it is answered.
//!
//! Who is refused for the head of a request is answered while its body is on its way, and on that connection nothing
//! can be asked before the body is over. So what has come of it is read and forgotten. Where that is not all of it, the
//! answer says that the connection ends with it (RFC 9112, section 9.6), and does not wait for the rest.
//!
//! Whoever still sends when the connection is closed gets a reset, which takes the answer with it. So that end is made
//! in stages, as the same section has it: nothing is written any more, and what comes is read and forgotten until the
//! caller has gone, for a moment.

use crate::http::json::SET_BYTES_MAX;
use crate::locks::lock;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Request, Response, Version, header};
use futures_util::{FutureExt, StreamExt};
use hyper::body::{Frame, Incoming, SizeHint};
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};

/// So many pieces are read of what is left. Nearly every body that has come has no more of them, and whoever sends more
/// than that is not worth it.
const PIECES_MAX: usize = 8;
/// How long is read on after the answer. Most bodies come in less over nearly every line, and a connection that a
/// caller does not close keeps its place no longer.
const READ_ON_MAX: Duration = Duration::from_secs(1);
/// How many bytes are read on: twice what the longest body may have, so that one that is too long is told so, too.
const READ_ON_BYTES_MAX: usize = 2 * SET_BYTES_MAX;
/// How many of them at once.
const READ_AT_ONCE: usize = 8 * 1024;

/// What is left of a body.
pub(super) struct Rest {
    body: Shared,
    version: Version,
}

/// A body that can be read on when whoever was to read it has let it go.
#[derive(Clone)]
struct Shared(Arc<Mutex<Inside>>);

struct Inside {
    body: Incoming,
    /// Whether it is sent without being asked for, or was asked for.
    is_sent: bool,
    /// Whether it broke off. That is told once, and then it looks like one that is over.
    is_broken: bool,
}

impl Rest {
    /// A request, and what will be left of its body, if it has one.
    pub(super) fn of(request: Request<Incoming>) -> (Request<Body>, Option<Self>) {
        if request.body().is_end_stream() {
            return (request.map(Body::new), None);
        }
        let (parts, body) = request.into_parts();
        let is_sent = !parts.headers.contains_key(header::EXPECT);
        let inside = Inside {
            body,
            is_sent,
            is_broken: false,
        };
        let body = Shared(Arc::new(Mutex::new(inside)));
        let rest = Self {
            body: body.clone(),
            version: parts.version,
        };
        (Request::from_parts(parts, Body::new(body)), Some(rest))
    }

    /// The answer to the request, which says that the connection ends unless all of the body has come. If it says so,
    /// `is_left` is set: there may be a rest to read.
    pub(super) async fn answered(self, mut response: Response<Body>, is_left: &AtomicBool) -> Response<Body> {
        let Self { body, version } = self;
        if !body.is_read_to_its_end().await {
            is_left.store(true, Ordering::Relaxed);
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            // To an answer of HTTP/1.1 for a caller of HTTP/1.0 hyper would add that the connection goes on.
            *response.version_mut() = version;
        }
        response
    }
}

/// Reads the rest of a body from a stream to which nothing is written any more, and forgets it: until the caller has
/// gone, a bound is reached or the gateway stops.
pub(super) async fn read_on<S: AsyncRead + Unpin>(stream: &mut S, stopped: impl Future<Output = ()>) {
    tokio::select! {
        biased;
        () = stopped => {}
        _ = tokio::time::timeout(READ_ON_MAX, forget(stream)) => {}
    }
}

/// Reads until the end, an error or the bound.
async fn forget<S: AsyncRead + Unpin>(stream: &mut S) {
    let mut left = READ_ON_BYTES_MAX;
    poll_fn(|context| {
        // Not kept while nothing comes.
        let mut room = [0; READ_AT_ONCE];
        while left > 0 {
            let mut buffer = ReadBuf::new(&mut room);
            let read = ready!(Pin::new(&mut *stream).poll_read(context, &mut buffer));
            let length = buffer.filled().len();
            if read.is_err() || length == 0 {
                break;
            }
            left = left.saturating_sub(length);
        }
        Poll::Ready(())
    })
    .await;
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        lock(&self.0)
    }

    /// Reads what has come. Says whether that is the end of it.
    async fn is_read_to_its_end(&self) -> bool {
        if self.is_end_stream() {
            return true;
        }
        // Whoever reads asks for it.
        let can_end = {
            let inside = self.lock();
            inside.is_sent && !inside.is_broken
        };
        if !can_end {
            return false;
        }
        let mut pieces = Body::new(self.clone()).into_data_stream();
        for _ in 0..PIECES_MAX {
            let mut piece = pieces.next().now_or_never();
            if piece.is_none() {
                // Hyper reads on only after somebody has waited for it.
                tokio::task::yield_now().await;
                piece = pieces.next().now_or_never();
            }
            match piece {
                Some(Some(Ok(_))) if pieces.is_end_stream() => return true,
                Some(Some(Ok(_))) => {}
                Some(None) => return true,
                Some(Some(Err(_))) | None => return false,
            }
        }
        false
    }
}

impl HttpBody for Shared {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let mut inside = self.lock();
        inside.is_sent = true;
        let frame = Pin::new(&mut inside.body).poll_frame(context);
        inside.is_broken |= matches!(frame, Poll::Ready(Some(Err(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.lock().body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.lock().body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    /// Fails if it does not end by itself.
    async fn ends(reading: impl Future<Output = ()>) {
        let patience = Duration::from_mins(1);
        tokio::time::timeout(patience, reading).await.unwrap();
    }

    #[tokio::test]
    async fn what_still_comes_is_read_until_the_caller_has_gone() {
        let (mut stream, mut caller) = tokio::io::duplex(64);
        let sending = tokio::spawn(async move { caller.write_all(&[b' '; 10_000]).await });
        ends(forget(&mut stream)).await;
        sending.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn no_more_is_read_on_than_the_bound() {
        let twice = 2 * READ_ON_BYTES_MAX as u64;
        let mut endless = tokio::io::repeat(b' ').take(twice);
        ends(forget(&mut endless)).await;
        assert_eq!(endless.limit(), READ_ON_BYTES_MAX as u64);
    }

    #[tokio::test]
    async fn a_caller_that_is_silent_and_stays_is_not_waited_for_long() {
        let (mut stream, _caller) = tokio::io::duplex(64);
        ends(read_on(&mut stream, pending())).await;
    }

    #[tokio::test]
    async fn nothing_is_read_on_when_the_gateway_stops() {
        let (mut stream, _caller) = tokio::io::duplex(64);
        assert!(read_on(&mut stream, ready(())).now_or_never().is_some());
    }
}
