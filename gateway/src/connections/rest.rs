//! What is left of the body of a request when it is answered.
//!
//! Who is refused for the head of a request is answered while its body is on its way, and on that connection nothing
//! can be asked before the body is over. So what has come of it is read and forgotten. Where that is not all of it, the
//! answer says that the connection ends with it (RFC 9112, section 9.6): the rest is not waited for.

use crate::locks::lock;
use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Request, Response, Version, header};
use futures_util::{FutureExt, StreamExt};
use hyper::body::{Frame, Incoming, SizeHint};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

/// So many pieces are read of what is left. Nearly every body that has come has no more of them, and whoever sends more
/// than that is not worth it.
const PIECES_MAX: usize = 8;

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

    /// The answer to the request, which says that the connection ends unless all of the body has come.
    pub(super) async fn answered(self, mut response: Response<Body>) -> Response<Body> {
        let Self { body, version } = self;
        if !body.is_read_to_its_end().await {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
            // To an answer of HTTP/1.1 for a caller of HTTP/1.0 hyper would add that the connection goes on.
            *response.version_mut() = version;
        }
        response
    }
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
