//! A small HTTP/1.1 client: one keep-alive connection, one request at a time, no allocation per request.
//!
//! The load generator shares two cores with the server it measures, so every microsecond spent here is missing
//! there. It speaks to a gateway on the same machine and to nothing else: no TLS, no redirects, no name
//! look-up, no pipelining and no reconnecting. Answers carry `Content-Length` or are chunked.

use std::cell::RefCell;
use std::fmt;
use std::io::{Error, ErrorKind, Read as _, Result, Write as _};
use std::ops::Range;
use std::os::unix;
use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, Interest};
use tokio::net::{TcpStream, UnixStream};

use crate::address::Address;

/// Our gateway's heads are below one kibibyte; a longer one is not from it.
const HEAD_BYTES_MAX: usize = 16 * 1024;

/// The longest answer read here is a list page or an export of a test ledger.
const BODY_BYTES_MAX: usize = 256 * 1024 * 1024;

/// One authorization answer with its head fits, so that one read usually takes it all.
const BUFFER_BYTES: usize = 8 * 1024;

/// How long a Unix socket is left alone that has no room for a request. A request of a load always has it.
const FULL_PAUSE: Duration = Duration::from_millis(1);

thread_local! {
    /// Where what comes over Unix sockets is read to first.
    static INPUT: RefCell<[u8; BUFFER_BYTES]> = const { RefCell::new([0; BUFFER_BYTES]) };
}

/// What to ask for. An empty body is not sent.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    /// The method, in capitals.
    pub method: &'a str,
    /// The path and query, percent-encoded.
    pub path: &'a str,
    /// Further headers, each a name and a value; `Host` and those of the body are added.
    pub headers: &'a [(&'a str, &'a str)],
    /// What the body is written in.
    pub format: Format,
    /// The body.
    pub body: &'a [u8],
}

/// What a body is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// JSON.
    #[default]
    Json,
    /// MessagePack.
    #[value(name = "messagepack")]
    MessagePack,
}

impl Format {
    /// The media type.
    pub(crate) const fn media_type(self) -> &'static str {
        match self {
            Self::Json => "application/json",
            Self::MessagePack => "application/vnd.msgpack",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Json => "JSON",
            Self::MessagePack => "MessagePack",
        })
    }
}

/// What came back, borrowed from the connection until the next request.
#[derive(Debug)]
pub struct Response<'a> {
    /// The status code.
    pub status: u16,
    /// The whole body, with any chunking taken off.
    pub body: &'a [u8],
    head: &'a [u8],
}

impl Response<'_> {
    /// The value of the first header of that name, whatever its case.
    pub fn header(&self, name: &str) -> Option<&str> {
        headers(self.head)
            .find(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// A connection to one gateway. After an error it is of no further use: open another one.
#[derive(Debug)]
pub struct Connection {
    stream: Stream,
    host: String,
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
}

/// What a connection goes through.
#[derive(Debug)]
enum Stream {
    Tcp(TcpStream),
    /// Hears of answers, and not of requests that the gateway has read: the kernel tells that, too, and it would be an
    /// event an ask.
    Unix(AsyncFd<unix::net::UnixStream>),
}

impl Stream {
    /// Connects, with Nagle's algorithm off: a request is one write and must leave at once.
    async fn open(address: &Address) -> Result<Self> {
        Ok(match address {
            Address::Tcp(address) => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Self::Tcp(stream)
            }
            Address::Unix(path) => {
                let stream = UnixStream::connect(path).await?.into_std()?;
                Self::Unix(hear_of_answers(stream)?)
            }
        })
    }

    async fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Self::Tcp(stream) => stream.write_all(bytes).await,
            Self::Unix(stream) => write_all_local(stream.get_ref(), bytes).await,
        }
    }

    async fn read(&mut self, buffer: &mut Vec<u8>) -> Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read_buf(buffer).await,
            Self::Unix(stream) => read_local(stream, buffer).await,
        }
    }
}

#[expect(
    deprecated,
    reason = "what takes its place is unsafe for the sake of types that do not own what they name; this one does"
)]
fn hear_of_answers(stream: unix::net::UnixStream) -> Result<AsyncFd<unix::net::UnixStream>> {
    AsyncFd::with_interest(stream, Interest::READABLE)
}

async fn write_all_local(mut stream: &unix::net::UnixStream, mut bytes: &[u8]) -> Result<()> {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => tokio::time::sleep(FULL_PAUSE).await,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads what has come, and more than a buffer only in several turns.
async fn read_local(stream: &AsyncFd<unix::net::UnixStream>, buffer: &mut Vec<u8>) -> Result<usize> {
    loop {
        let mut news = stream.readable().await?;
        let read = news.try_io(|stream| {
            INPUT.with_borrow_mut(|input| {
                let read = stream.get_ref().read(input)?;
                buffer.extend_from_slice(&input[..read]);
                Ok(read)
            })
        });
        if let Ok(read) = read {
            // There was no more, so what comes next is news.
            if matches!(read, Ok(1..BUFFER_BYTES)) {
                news.clear_ready();
            }
            return read;
        }
    }
}

impl Connection {
    /// Connects.
    pub async fn open(address: &Address) -> Result<Self> {
        Ok(Self {
            stream: Stream::open(address).await?,
            host: address.host(),
            outgoing: Vec::with_capacity(BUFFER_BYTES),
            incoming: Vec::with_capacity(BUFFER_BYTES),
        })
    }

    /// Sends one request and reads its whole answer.
    pub async fn send(&mut self, request: Request<'_>) -> Result<Response<'_>> {
        self.outgoing.clear();
        write_request(&mut self.outgoing, &self.host, request)?;
        self.stream.write_all(&self.outgoing).await?;

        self.incoming.clear();
        let head_end = self.read_head().await?;
        let head = Head::parse(&self.incoming[..head_end])?;
        let body = match head.framing {
            Framing::Length(length) => self.read_length(head_end, length).await?,
            Framing::Chunked => self.read_chunks(head_end).await?,
        };
        Ok(Response {
            status: head.status,
            body: &self.incoming[body],
            head: &self.incoming[..head_end],
        })
    }

    /// Reads until the head is complete; the index after its blank line.
    async fn read_head(&mut self) -> Result<usize> {
        let mut seen = 0;
        loop {
            if let Some(end) = find(&self.incoming, seen, b"\r\n\r\n") {
                return Ok(end + 4);
            }
            // The blank line may have been cut in the middle by the end of the last read.
            seen = self.incoming.len().saturating_sub(3);
            if self.incoming.len() > HEAD_BYTES_MAX {
                return Err(broken("the head of the answer is too long"));
            }
            self.read_more().await?;
        }
    }

    async fn read_length(&mut self, start: usize, length: usize) -> Result<Range<usize>> {
        if length > BODY_BYTES_MAX {
            return Err(broken("the body of the answer is too long"));
        }
        while self.incoming.len() < start + length {
            self.read_more().await?;
        }
        Ok(start..start + length)
    }

    /// Reads chunks up to the last one and closes the gaps between them in place.
    async fn read_chunks(&mut self, start: usize) -> Result<Range<usize>> {
        let (mut body_end, mut next) = (start, start);
        loop {
            let line_end = self.line_end(next).await?;
            let size = chunk_size(&self.incoming[next..line_end])?;
            if size > BODY_BYTES_MAX - (body_end - start) {
                return Err(broken("the body of the answer is too long"));
            }
            let data = line_end + 2;
            if size == 0 {
                self.skip_trailers(data).await?;
                return Ok(start..body_end);
            }
            while self.incoming.len() < data + size + 2 {
                self.read_more().await?;
            }
            self.incoming.copy_within(data..data + size, body_end);
            body_end += size;
            next = data + size + 2;
        }
    }

    async fn skip_trailers(&mut self, mut next: usize) -> Result<()> {
        loop {
            let end = self.line_end(next).await?;
            if end == next {
                return Ok(());
            }
            next = end + 2;
        }
    }

    /// The index of the line break that ends the line beginning at `from`.
    async fn line_end(&mut self, from: usize) -> Result<usize> {
        loop {
            if let Some(end) = find(&self.incoming, from, b"\r\n") {
                return Ok(end);
            }
            if self.incoming.len() - from > HEAD_BYTES_MAX {
                return Err(broken("a line of the answer is too long"));
            }
            self.read_more().await?;
        }
    }

    async fn read_more(&mut self) -> Result<()> {
        if self.stream.read(&mut self.incoming).await? == 0 {
            return Err(Error::new(
                ErrorKind::UnexpectedEof,
                "the gateway closed the connection",
            ));
        }
        Ok(())
    }
}

fn write_request(out: &mut Vec<u8>, host: &str, request: Request<'_>) -> Result<()> {
    let mut put = |parts: &[&str]| {
        for part in parts {
            out.extend_from_slice(part.as_bytes());
        }
    };
    put(&[
        request.method,
        " ",
        request.path,
        " HTTP/1.1\r\nHost: ",
        host,
        "\r\n",
    ]);
    for (name, value) in request.headers {
        put(&[name, ": ", value, "\r\n"]);
    }
    if !request.body.is_empty() {
        put(&["Content-Type: ", request.format.media_type(), "\r\n"]);
        write!(out, "Content-Length: {}\r\n", request.body.len())?;
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(request.body);
    Ok(())
}

/// How the end of a body is told.
#[derive(Debug, PartialEq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// The part of an answer's head that says how to go on.
#[derive(Debug, PartialEq)]
struct Head {
    status: u16,
    framing: Framing,
}

impl Head {
    fn parse(head: &[u8]) -> Result<Self> {
        let status = head
            .strip_prefix(b"HTTP/1.1 ")
            .and_then(|rest| rest.get(..3))
            .and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok())
            .ok_or_else(|| broken("the answer does not begin with an HTTP/1.1 status line"))?;
        // 204 and 304 have no body and need not say so.
        let mut framing = matches!(status, 204 | 304).then_some(Framing::Length(0));
        for (name, value) in headers(head) {
            if name.eq_ignore_ascii_case("content-length") {
                let length = value
                    .parse()
                    .map_err(|_| broken("`Content-Length` is not a number"))?;
                framing = framing.or(Some(Framing::Length(length)));
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                framing = framing.or(value.eq_ignore_ascii_case("chunked").then_some(Framing::Chunked));
            }
        }
        let framing = framing.ok_or_else(|| broken("the answer does not say where it ends"))?;
        Ok(Self { status, framing })
    }
}

/// The header lines of a head, as names and trimmed values; lines that are not text are passed over.
fn headers(head: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    head.split(|byte| *byte == b'\n').skip(1).filter_map(|line| {
        let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
        Some((name, value.trim()))
    })
}

/// The number in front of a chunk; what follows a `;` is an extension nobody here uses.
fn chunk_size(line: &[u8]) -> Result<usize> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or(line);
    std::str::from_utf8(digits)
        .ok()
        .and_then(|digits| usize::from_str_radix(digits.trim(), 16).ok())
        .ok_or_else(|| broken("a chunk does not begin with its size"))
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    bytes[from..]
        .windows(wanted.len())
        .position(|window| window == wanted)
        .map(|at| from + at)
}

fn broken(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Answers one request with these bytes, in these pieces, and gives back what was asked.
    async fn exchange(pieces: &[&str], request: Request<'_>) -> (Result<(u16, String)>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let pieces: Vec<String> = pieces.iter().map(ToString::to_string).collect();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.set_nodelay(true).unwrap();
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap();
            for piece in pieces {
                stream.write_all(piece.as_bytes()).await.unwrap();
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let mut connection = Connection::open(&address).await.unwrap();
        let answer = connection
            .send(request)
            .await
            .map(|answer| (answer.status, String::from_utf8(answer.body.to_vec()).unwrap()));
        (answer, server.await.unwrap())
    }

    const GET: Request<'_> = Request {
        method: "GET",
        path: "/",
        headers: &[],
        format: Format::Json,
        body: b"",
    };

    async fn answer(pieces: &[&str]) -> Result<(u16, String)> {
        exchange(pieces, GET).await.0
    }

    #[tokio::test]
    async fn a_request_carries_its_headers_and_the_length_of_its_body() {
        let request = Request {
            method: "POST",
            path: "/v1/x?y=1",
            headers: &[("Authorization", "Bearer t")],
            format: Format::Json,
            body: b"{}",
        };
        let (_, asked) = exchange(&["HTTP/1.1 204 No Content\r\n\r\n"], request).await;
        let (head, body) = asked.split_once("\r\n\r\n").unwrap();
        assert!(
            head.starts_with("POST /v1/x?y=1 HTTP/1.1\r\nHost: 127.0.0.1:"),
            "{head}"
        );
        assert!(
            head.ends_with("Authorization: Bearer t\r\nContent-Type: application/json\r\nContent-Length: 2"),
            "{head}"
        );
        assert_eq!(body, "{}");
    }

    #[tokio::test]
    async fn a_body_says_what_it_is_written_in() {
        let request = Request {
            method: "POST",
            format: Format::MessagePack,
            body: b"\x07",
            ..GET
        };
        let (_, asked) = exchange(&["HTTP/1.1 204 No Content\r\n\r\n"], request).await;
        assert!(
            asked.contains("Content-Type: application/vnd.msgpack\r\nContent-Length: 1\r\n"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_socket_is_a_way_too() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = tokio::net::UnixListener::bind(&path).unwrap();
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = vec![0; 4096];
            let length = stream.read(&mut asked).await.unwrap();
            let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
            stream.write_all(answer).await.unwrap();
            String::from_utf8(asked[..length].to_vec()).unwrap()
        });
        let mut connection = Connection::open(&Address::Unix(path)).await.unwrap();
        assert_eq!(connection.send(GET).await.unwrap().body, b"hi");
        let asked = server.await.unwrap();
        assert!(
            asked.starts_with("GET / HTTP/1.1\r\nHost: localhost\r\n"),
            "{asked}"
        );
    }

    #[tokio::test]
    async fn a_body_of_known_length_is_read_whole_however_it_is_cut() {
        let whole = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
        for cut in 1..whole.len() {
            let (front, back) = whole.split_at(cut);
            assert_eq!(
                answer(&[front, back]).await.unwrap(),
                (200, "hello".to_owned()),
                "cut at {cut}"
            );
        }
    }

    #[tokio::test]
    async fn chunks_are_joined_however_they_are_cut() {
        let whole = "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n0A;x=y\r\nlo, \r\nworl\r\n1\r\nd\r\n0\r\nT: v\r\n\r\n";
        for cut in (1..whole.len()).step_by(3) {
            let (front, back) = whole.split_at(cut);
            assert_eq!(
                answer(&[front, back]).await.unwrap(),
                (201, "hello, \r\nworld".to_owned()),
                "cut at {cut}"
            );
        }
    }

    #[tokio::test]
    async fn an_answer_that_breaks_off_or_is_not_http_is_an_error() {
        for bad in [
            "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nhel\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nthree\r\nhel\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: five\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\n\r\nhello",
            "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
            "SSH-2.0-OpenSSH_9.9\r\n\r\n",
            "",
        ] {
            assert!(answer(&[bad]).await.is_err(), "`{bad}` was taken for an answer");
        }
    }

    #[tokio::test]
    async fn a_connection_is_used_again_and_forgets_the_last_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = Address::Tcp(listener.local_addr().unwrap());
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answer in [
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nRetry-After: 1\r\n\r\nfirst",
                "HTTP/1.1 503 No\r\nContent-Length: 1\r\n\r\n2",
            ] {
                assert!(stream.read(&mut [0; 4096]).await.unwrap() > 0);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let mut connection = Connection::open(&address).await.unwrap();
        let first = connection.send(GET).await.unwrap();
        assert_eq!(
            (first.status, first.body, first.header("retry-after")),
            (200, &b"first"[..], Some("1"))
        );
        let second = connection.send(GET).await.unwrap();
        assert_eq!(
            (second.status, second.body, second.header("retry-after")),
            (503, &b"2"[..], None)
        );
        server.await.unwrap();
    }
}
