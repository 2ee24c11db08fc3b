//! By which door a test comes in, as `COUNTERSIGN_TEST_DOOR` says: straight into the application, over a Unix socket,
//! or over a Unix socket with messages in place of JSON. The same tests are run through all of them.

use super::Reply;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use gateway::app::App;
use gateway::connections;
use gateway::http::messagepack;
use serde_json::Value;
use std::env;
use std::fmt::Write as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};

/// Names the door.
const DOOR_VARIABLE: &str = "COUNTERSIGN_TEST_DOOR";
/// Answers of tests are no larger than exports of small ledgers.
const MESSAGE_LIMITS: canon::Limits = canon::Limits {
    bytes_max: 1 << 26,
    depth_max: 128,
};

/// The doors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    Router,
    Socket,
    Messages,
}

/// A request, as it goes over the wire.
pub(crate) struct Sent {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Option<Vec<u8>>,
}

impl Door {
    /// The one that this run of the tests goes through.
    #[expect(clippy::disallowed_methods, reason = "the environment says how tests run")]
    pub(crate) fn used() -> Self {
        match env::var(DOOR_VARIABLE).as_deref() {
            Ok("socket") => Self::Socket,
            Ok("messagepack") => Self::Messages,
            Ok("router") | Err(_) => Self::Router,
            Ok(other) => {
                panic!("{DOOR_VARIABLE} is `{other}`; it can be `router`, `socket` or `messagepack`")
            }
        }
    }

    /// The body of a request that says this, and what it is.
    pub(crate) fn body(self, value: &Value) -> (Vec<u8>, &'static str) {
        match self {
            Self::Messages => (messagepack::encode(value), "application/msgpack"),
            Self::Router | Self::Socket => (serde_json::to_vec(value).unwrap(), "application/json"),
        }
    }
}

/// Sends a request over a socket that is there for it alone, and reads the whole answer. A message is read as the JSON
/// that it says.
pub(crate) async fn over_socket(app: App, mut sent: Sent) -> Reply {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("s");
    let listener = UnixListener::bind(&path).unwrap();
    let server = tokio::spawn(connections::serve(listener, app, std::future::pending()));
    if Door::used() == Door::Messages && !sent.headers.iter().any(|(name, _)| *name == "accept") {
        sent.headers.push(("accept", "application/msgpack".to_owned()));
    }
    let mut stream = UnixStream::connect(&path).await.unwrap();
    // Whoever is refused by the head may be answered, and the connection closed, before all of the body is sent.
    let sending = stream.write_all(&written(&sent)).await;
    let mut answer = Vec::new();
    let reading = stream.read_to_end(&mut answer).await;
    assert!(
        !answer.is_empty() || (sending.is_ok() && reading.is_ok()),
        "no answer: {sending:?}, {reading:?}"
    );
    server.abort();
    // What it holds of the gateway is given back before the test goes on.
    server.await.unwrap_err();
    read(&answer)
}

fn written(sent: &Sent) -> Vec<u8> {
    let Sent {
        method,
        path,
        headers,
        body,
    } = sent;
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    let body = body.as_deref().unwrap_or_default();
    if !body.is_empty() && !headers.iter().any(|(name, _)| *name == "content-length") {
        write!(head, "content-length: {}\r\n", body.len()).unwrap();
    }
    [head.as_bytes(), b"\r\n", body].concat()
}

fn read(answer: &[u8]) -> Reply {
    let end = answer
        .windows(4)
        .position(|window| window == b"\r\n\r\n")
        .unwrap();
    let (head, body) = (std::str::from_utf8(&answer[..end]).unwrap(), &answer[end + 4..]);
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap();
    let mut headers = HeaderMap::new();
    for line in lines {
        let (name, value) = line.split_once(": ").unwrap();
        let name: HeaderName = name.parse().unwrap();
        headers.append(name, HeaderValue::from_str(value).unwrap());
    }
    let is_chunked = headers.contains_key(header::TRANSFER_ENCODING);
    let mut bytes = if is_chunked { joined(body) } else { body.to_vec() };
    if headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|value| value == "application/msgpack")
    {
        let text = canon::canonicalize_messagepack(&bytes, MESSAGE_LIMITS).unwrap();
        bytes = text.as_str().as_bytes().to_vec();
    }
    Reply {
        status: StatusCode::from_bytes(status.as_bytes()).unwrap(),
        headers,
        bytes,
    }
}

/// The chunks of a body without their sizes. One that breaks off is as long as it got.
fn joined(mut body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(end) = body.windows(2).position(|window| window == b"\r\n") {
        let size = usize::from_str_radix(std::str::from_utf8(&body[..end]).unwrap(), 16).unwrap();
        let Some(chunk) = body.get(end + 2..end + 2 + size).filter(|_| size > 0) else {
            break;
        };
        bytes.extend_from_slice(chunk);
        body = &body[end + 4 + size..];
    }
    bytes
}
