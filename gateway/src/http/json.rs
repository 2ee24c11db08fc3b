//! JSON bodies: bounded, I-JSON, read from their canonical text, with errors that name the field.

mod set;

pub use set::{LongBodies, SetJson};

use super::arrivals::Arrivals;
use super::caller::{AgentCaller, TenantCaller};
use super::messagepack;
use super::refusal::{Code, Refusal};
use super::room::Taken;
use super::writing;
use crate::fairness_key::FairnessKey;
use crate::gateway::{Gateway, Options};
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use axum::http::{Extensions, HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use canon::{Canonical, Integers};
use futures_util::{FutureExt, StreamExt};
use model::TenantId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The deepest nesting of a body.
pub const DEPTH_MAX: usize = 64;

/// The largest body with a set of policies, in bytes. A set of thousands fits, and one that is too long is read far enough to
/// say which policy is.
pub const SET_BYTES_MAX: usize = 4 << 20;

/// The longest canonical text of a body, in bytes: numbers may be written shorter than they are in it. What is recorded of an
/// ask is part of it, and verifiers read no line of 16 MiB.
pub const TEXT_BYTES_MAX: usize = 8 << 20;

/// The longest canonical text of what an agent asks that takes no room until it is answered, in bytes. Nearly all are
/// shorter.
const SHORT_TEXT_BYTES_MAX: usize = 16 << 10;

/// What bodies may be.
#[derive(Debug, Clone, Copy)]
pub struct Bounds<'g> {
    /// How many bytes they may have.
    pub bytes_max: usize,
    /// How long they may be on their way.
    pub time_max: Duration,
    /// How much of that is over.
    waited: Duration,
    /// Where there is room for those that are on their way, and for what is kept of them.
    arrivals: &'g Arrivals,
    /// For which tenant they are sent, if that is known.
    fairness_key: Option<FairnessKey>,
}

/// When the head of a request had come. It goes with one whose body was waited for before anybody asked for it.
#[derive(Debug, Clone, Copy)]
pub struct HeadAt(pub Instant);

impl<'g> Bounds<'g> {
    /// Those of nearly all bodies.
    pub const fn of(options: &'g Options) -> Self {
        Self {
            bytes_max: options.body_bytes_max,
            time_max: options.bounds.body_time_max,
            waited: Duration::ZERO,
            arrivals: &options.arrivals,
            fairness_key: None,
        }
    }

    /// These bounds, for bodies that agents of this tenant send.
    #[must_use]
    pub const fn of_agents_of(self, tenant: TenantId) -> Self {
        Self {
            fairness_key: Some(FairnessKey::agents_of(tenant)),
            ..self
        }
    }

    /// What is left of them for the body of a request that these go with.
    pub(super) fn left(self, extensions: &Extensions) -> Self {
        let head_at = extensions.get::<HeadAt>();
        Self {
            waited: head_at.map_or(self.waited, |HeadAt(at)| at.elapsed()),
            fairness_key: self.fairness_key.or_else(|| fairness_key(extensions)),
            ..self
        }
    }

    /// Room for so many bytes of a request, if they are many: to be held until it is answered, because there are copies
    /// of most of them until then.
    pub fn keep(self, bytes: usize) -> Result<Option<Taken>, Refusal> {
        if bytes <= SHORT_TEXT_BYTES_MAX {
            return Ok(None);
        }
        self.arrivals.keep(self.fairness_key, bytes).map(Some)
    }

    const fn limits(self) -> canon::Limits {
        canon::Limits {
            bytes_max: self.bytes_max,
            depth_max: DEPTH_MAX,
        }
    }
}

/// Of whom a request is that was let in, if it is for a tenant.
pub(super) fn fairness_key(extensions: &Extensions) -> Option<FairnessKey> {
    let agents = extensions.get::<AgentCaller>();
    let agents = agents.map(|caller| FairnessKey::agents_of(caller.tenant));
    let people = || extensions.get::<TenantCaller>();
    agents.or_else(|| people().map(|caller| FairnessKey::people_of(caller.tenant())))
}

/// The canonical text of a JSON body. An integer that it would write as another one is refused: what was approved for
/// one account would be approved for its neighbours.
pub struct CanonicalBody(pub Canonical);

impl FromRequest<Arc<Gateway>> for CanonicalBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let bounds = Bounds::of(&gateway.options).left(&parts.extensions);
        Self::read(&parts.headers, body, bounds).await
    }
}

impl CanonicalBody {
    /// The text of a body within these bounds, which comes with these headers.
    pub async fn read(headers: &HeaderMap, body: Body, bounds: Bounds<'_>) -> Result<Self, Refusal> {
        canonical(headers, body, bounds, Integers::Exact).await.map(Self)
    }

    /// The text of a body that may be left out; none if it is. Whether it is, only its bytes say: one in chunks has no length.
    pub(super) async fn read_if_any(request: Request, gateway: &Gateway) -> Result<Option<Self>, Refusal> {
        let (parts, body) = request.into_parts();
        let bounds = Bounds::of(&gateway.options).left(&parts.extensions);
        let body = bytes(body, &parts.headers, bounds).await?;
        if body.is_empty() {
            return Ok(None);
        }
        let text = Self::read(&parts.headers, Body::from(body), bounds);
        text.await.map(Some)
    }
}

/// The canonical text of a JSON body with JSON Schemas. Their bounds are often those of integers of 64 bits, and are
/// rounded; all other integers are held to what they are elsewhere, so that no change of a definition goes unseen.
pub struct SchemaBody(pub Canonical);

impl FromRequest<Arc<Gateway>> for SchemaBody {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let (parts, body) = request.into_parts();
        let bounds = Bounds::of(&gateway.options).left(&parts.extensions);
        let text = canonical(&parts.headers, body, bounds, Integers::ExactButForBounds);
        text.await.map(Self)
    }
}

async fn canonical(
    headers: &HeaderMap,
    body: Body,
    bounds: Bounds<'_>,
    integers: Integers,
) -> Result<Canonical, Refusal> {
    let format = Format::of(headers)?;
    let bytes = bytes(body, headers, bounds).await?;
    format.canonical(&bytes, bounds.limits(), integers)
}

/// A JSON body of a certain shape, or such an answer.
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<Arc<Gateway>> for Json<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        let CanonicalBody(text) = CanonicalBody::from_request(request, gateway).await?;
        Ok(Self(canon::read(text.as_str())?))
    }
}

/// A JSON body that may be left out, where every member of it may be.
pub struct OptionalJson<T>(pub T);

impl<T: DeserializeOwned + Default> FromRequest<Arc<Gateway>> for OptionalJson<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, gateway: &Arc<Gateway>) -> Result<Self, Refusal> {
        match CanonicalBody::read_if_any(request, gateway).await? {
            Some(CanonicalBody(text)) => Ok(Self(canon::read(text.as_str())?)),
            None => Ok(Self(T::default())),
        }
    }
}

/// What a body says where the path says all: nothing. A member that nobody reads would be taken for one that counts.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Empty {}

impl<T: Serialize + Send + Sync + 'static> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let Self(value) = self;
        writing::response(move |text| serde_json::to_writer(text, &value).map_err(io::Error::from))
    }
}

/// An answer whose JSON is written already, because what it is made of lives no longer than its handler.
pub struct WrittenJson(Vec<u8>);

impl WrittenJson {
    /// The JSON of this.
    pub fn of(value: &impl Serialize) -> Self {
        Self(serde_json::to_vec(value).expect("strings and numbers always serialize"))
    }
}

impl IntoResponse for WrittenJson {
    fn into_response(self) -> Response {
        let json = HeaderValue::from_static("application/json");
        ([(header::CONTENT_TYPE, json)], self.0).into_response()
    }
}

/// An object that was just made: 201.
pub struct Created<T>(pub T);

impl<T: Serialize + Send + Sync + 'static> IntoResponse for Created<T> {
    fn into_response(self) -> Response {
        (StatusCode::CREATED, Json(self.0)).into_response()
    }
}

/// How a body is written.
enum Format {
    Json,
    MessagePack,
}

impl Format {
    fn of(headers: &HeaderMap) -> Result<Self, Refusal> {
        check_coding(headers)?;
        let content_type = headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = content_type
            .unwrap_or_default()
            .split(';')
            .next()
            .unwrap_or_default();
        let media_type = media_type.trim().to_ascii_lowercase();
        if media_type == "application/json" || media_type.ends_with("+json") {
            return Ok(Self::Json);
        }
        if messagepack::is_messagepack(&media_type) {
            return Ok(Self::MessagePack);
        }
        let detail = "send the header `Content-Type: application/json` and a JSON body, or `application/msgpack` and a message";
        Err(Refusal::new(Code::UnsupportedMediaType, detail))
    }

    /// The canonical text of a body that is written like this.
    fn canonical(
        self,
        bytes: &[u8],
        limits: canon::Limits,
        integers: Integers,
    ) -> Result<Canonical, Refusal> {
        let text = match self {
            Self::Json => canon::canonicalize_sent(bytes, limits, integers),
            Self::MessagePack => canon::canonicalize_sent_messagepack(bytes, limits, integers),
        }?;
        if text.as_str().len() > TEXT_BYTES_MAX {
            let detail = format!("the canonical text of a body has at most {TEXT_BYTES_MAX} bytes");
            return Err(Refusal::new(Code::BodyTooLarge, detail));
        }
        Ok(text)
    }
}

/// Refuses a body that says that it is compressed, or in another content coding (RFC 9110, section 8.4): none is decoded.
fn check_coding(headers: &HeaderMap) -> Result<(), Refusal> {
    let mut codings = headers.get_all(header::CONTENT_ENCODING).iter();
    if codings.all(|coding| coding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Ok(());
    }
    let detail = "bodies are read as they are, and none is decoded; send it uncompressed, without the header `Content-Encoding`";
    Err(Refusal::new(Code::UnsupportedMediaType, detail))
}

/// The bytes of a body, if it keeps to these bounds.
pub(super) async fn bytes(body: Body, headers: &HeaderMap, bounds: Bounds<'_>) -> Result<Bytes, Refusal> {
    let Bounds {
        bytes_max,
        time_max,
        waited,
        arrivals,
        fairness_key,
    } = bounds;
    let announced = headers
        .get(header::CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|length| length.parse::<usize>().ok());
    if announced.is_some_and(|length| length > bytes_max) {
        return Err(too_large(bytes_max));
    }
    let mut read = pin!(gather(body, bytes_max));
    // Nearly every body is there already, and takes no timer and no room.
    let mut come = read.as_mut().now_or_never();
    if come.is_none() && announced.is_none() {
        // Of one in chunks hyper reads the end only after somebody has waited for it.
        tokio::task::yield_now().await;
        come = read.as_mut().now_or_never();
    }
    if let Some(read) = come {
        return read;
    }
    let _room = arrivals.enter(fairness_key, announced.unwrap_or(bytes_max))?;
    tokio::time::timeout(time_max.saturating_sub(waited), read)
        .await
        .map_err(|_| late(time_max))?
}

/// The bytes of a body, if there are not more of them. A piece of it keeps all of the buffer that it was read into, so
/// each is let go before the next one is waited for: however small they are, no more is kept than the body.
async fn gather(body: Body, bytes_max: usize) -> Result<Bytes, Refusal> {
    let mut pieces = body.into_data_stream();
    let mut gathered: Vec<u8> = Vec::new();
    while let Some(piece) = pieces.next().await {
        let piece = piece.map_err(|_| broken_off())?;
        if piece.len() > bytes_max - gathered.len() {
            return Err(too_large(bytes_max));
        }
        // Nearly every body is one piece, which is not copied.
        if gathered.is_empty() && pieces.is_end_stream() {
            return Ok(piece);
        }
        gathered.extend_from_slice(&piece);
    }
    Ok(gathered.into())
}

fn broken_off() -> Refusal {
    Refusal::new(Code::MalformedJson, "the body broke off before its end")
}

fn too_large(bytes_max: usize) -> Refusal {
    let detail = format!("a body has at most {bytes_max} bytes");
    Refusal::new(Code::BodyTooLarge, detail)
}

/// A request whose body has come whole.
pub async fn whole(request: Request, bounds: Bounds<'_>) -> Result<Request, Refusal> {
    let (parts, body) = request.into_parts();
    let body = bytes(body, &parts.headers, bounds.left(&parts.extensions)).await?;
    Ok(Request::from_parts(parts, Body::from(body)))
}

fn late(time_max: Duration) -> Refusal {
    let detail = format!("a body comes within {} seconds", time_max.as_secs());
    Refusal::new(Code::RequestTimeout, detail)
}

/// The longest text of a rejection that is passed on, in bytes.
const REJECTION_BYTES_MAX: usize = 4_096;

/// Turns what axum says about a path or a query into a problem like every other.
pub async fn readable(response: Response) -> Response {
    let is_text = |value: &HeaderValue| value.as_bytes().starts_with(b"text/plain");
    let content_type = response.headers().get(header::CONTENT_TYPE);
    if !response.status().is_client_error() || !content_type.is_some_and(is_text) {
        return response;
    }
    let text = axum::body::to_bytes(response.into_body(), REJECTION_BYTES_MAX)
        .await
        .unwrap_or_default();
    let detail = canon::in_plain_words(&String::from_utf8_lossy(&text));
    Refusal::new(Code::InvalidParameter, detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::{Stream, stream};
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// What one byte of a body came in. It counts those that are kept.
    struct Piece(Arc<AtomicUsize>);

    impl AsRef<[u8]> for Piece {
        fn as_ref(&self) -> &[u8] {
            b"1"
        }
    }

    impl Drop for Piece {
        fn drop(&mut self) {
            self.0.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// So many bytes that come one by one.
    fn pieces(
        count: usize,
        kept: Arc<AtomicUsize>,
    ) -> impl Stream<Item = Result<Bytes, Infallible>> + Send + 'static {
        let piece = move || {
            kept.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Infallible>(Bytes::from_owner(Piece(Arc::clone(&kept))))
        };
        stream::repeat_with(piece).take(count)
    }

    #[tokio::test]
    async fn of_a_body_that_comes_byte_by_byte_nothing_is_kept_but_its_bytes() {
        let (options, headers) = (Options::default(), HeaderMap::new());
        let kept = Arc::new(AtomicUsize::new(0));
        let body = pieces(1_000, Arc::clone(&kept)).chain(stream::pending());
        let mut read = pin!(bytes(Body::from_stream(body), &headers, Bounds::of(&options)));
        assert!(read.as_mut().now_or_never().is_none());
        assert_eq!(kept.load(Ordering::SeqCst), 0);
    }

    #[tokio::test]
    async fn pieces_of_a_body_are_bounded_together() {
        let (options, headers) = (Options::default(), HeaderMap::new());
        let bounds = Bounds {
            bytes_max: 2,
            ..Bounds::of(&options)
        };
        let read = async |count| {
            let body = Body::from_stream(pieces(count, Arc::default()));
            bytes(body, &headers, bounds).await
        };
        assert_eq!(read(2).await.unwrap(), "11");
        assert_eq!(read(3).await.unwrap_err().code(), Code::BodyTooLarge);
    }

    #[tokio::test]
    async fn a_body_of_one_piece_is_not_copied() {
        let (options, headers) = (Options::default(), HeaderMap::new());
        let sent = Bytes::from(b"{}".to_vec());
        let read = bytes(Body::from(sent.clone()), &headers, Bounds::of(&options));
        assert_eq!(read.await.unwrap().as_ptr(), sent.as_ptr());
    }
}
