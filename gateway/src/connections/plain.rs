//! Which requests are plainly asks: `POST /v1/authorize` over HTTP/1.1, with a body whose length is told, and with
//! nothing that changes how the connection goes on but its end.
//!
//! Whether a request is one of them is decided on the safe side. Whatever is unusual, wrong or long is none, and then
//! it is not answered from here: hyper sees it as it came. So there is one place that decides about all that HTTP
//! allows, and here is only what cannot be read in two ways (RFC 9112, section 6.3).

use crate::app::AUTHORIZE;
use crate::authorize::X_REQUEST_TIMEOUT_MS;
use crate::http::messagepack;
use crate::http::request_id::X_REQUEST_ID;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};
use bytes::Bytes;
use httparse::{EMPTY_HEADER, Header, Status};

/// The longest plain ask, head and body, in bytes.
pub(super) const BYTES_MAX: usize = 16 * 1024;
/// The most headers of one.
const HEADERS_MAX: usize = 24;
/// The most digits of the length of a body: the largest number of them is more than fits.
const DIGITS_MAX: usize = 6;
/// How it begins.
const START: &[u8] = b"POST /v1/authorize HTTP/1.1\r\n";

/// What some bytes are, from their beginning.
pub(super) enum Seen<'h, 'b> {
    /// The first part of something. What it will be shows when there is more.
    Part,
    /// The head of an ask whose body is missing, or some of it.
    Head,
    /// An ask, whole.
    Ask(Plain<'h, 'b>),
    /// Anything else.
    Other,
}

/// Room for the headers of one request.
pub(super) struct Headers<'b>([Header<'b>; HEADERS_MAX]);

impl Headers<'_> {
    pub(super) const fn new() -> Self {
        Self([EMPTY_HEADER; HEADERS_MAX])
    }
}

/// A plain ask.
pub(super) struct Plain<'h, 'b> {
    headers: &'h [Header<'b>],
    body: &'b [u8],
    length: usize,
    is_last: bool,
}

/// What the headers say about the way of the request.
struct Way {
    body_len: usize,
    is_last: bool,
}

/// Looks at the first request in these bytes, of which there are [`BYTES_MAX`] at most.
pub(super) fn read<'h, 'b>(bytes: &'b [u8], headers: &'h mut Headers<'b>) -> Seen<'h, 'b> {
    let Some(rest) = bytes.strip_prefix(START) else {
        return if START.starts_with(bytes) {
            Seen::Part
        } else {
            Seen::Other
        };
    };
    let is_full = bytes.len() >= BYTES_MAX;
    let (head_len, headers) = match httparse::parse_headers(rest, &mut headers.0) {
        Ok(Status::Complete((head_len, headers))) => (START.len() + head_len, headers),
        Ok(Status::Partial) if !is_full => return Seen::Part,
        Ok(Status::Partial) | Err(_) => return Seen::Other,
    };
    let Some(way) = Way::of(headers) else {
        return Seen::Other;
    };
    let length = head_len + way.body_len;
    if length > BYTES_MAX {
        return Seen::Other;
    }
    match bytes.get(head_len..length) {
        None => Seen::Head,
        Some(body) => Seen::Ask(Plain {
            headers,
            body,
            length,
            is_last: way.is_last,
        }),
    }
}

impl Way {
    /// `None` unless it is the plain one.
    fn of(headers: &[Header<'_>]) -> Option<Self> {
        let (mut body_len, mut is_last) = (None, false);
        for Header { name, value } in headers {
            let is = |other: &HeaderName| name.eq_ignore_ascii_case(other.as_str());
            match name.len() {
                14 if is(&header::CONTENT_LENGTH) => {
                    if body_len.is_some() {
                        return None;
                    }
                    body_len = Some(number(value)?);
                }
                10 if is(&header::CONNECTION) => {
                    is_last |= value.eq_ignore_ascii_case(b"close");
                    if !is_last && !value.eq_ignore_ascii_case(b"keep-alive") {
                        return None;
                    }
                }
                6 if is(&header::EXPECT) => return None,
                7 if is(&header::UPGRADE) => return None,
                17 if is(&header::TRANSFER_ENCODING) => return None,
                _ => {}
            }
        }
        Some(Self {
            body_len: body_len?,
            is_last,
        })
    }
}

fn is(header: &Header<'_>, name: &HeaderName) -> bool {
    name.as_str().eq_ignore_ascii_case(header.name)
}

/// The number that these digits are, and nothing else is.
fn number(digits: &[u8]) -> Option<usize> {
    let is_number = (1..=DIGITS_MAX).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    is_number.then(|| {
        digits
            .iter()
            .fold(0, |number, digit| number * 10 + usize::from(digit - b'0'))
    })
}

impl<'b> Plain<'_, 'b> {
    /// How many bytes it is.
    pub(super) const fn length(&self) -> usize {
        self.length
    }

    /// Whether its caller wants no more than its answer.
    pub(super) const fn is_last(&self) -> bool {
        self.is_last
    }

    /// The value of `Authorization`, if there is one and no other.
    pub(super) fn authorization(&self) -> Option<&'b [u8]> {
        let mut found = self
            .headers
            .iter()
            .filter(|other| is(other, &header::AUTHORIZATION));
        let first = found.next()?;
        found.next().is_none().then_some(first.value)
    }

    /// Whether a refusal of it is like any other: nothing says how it should be written or named, nor that it should be
    /// another one, and the connection goes on after it.
    pub(super) fn is_refused_like_any(&self) -> bool {
        let says_more = |header: &Header<'_>| {
            is(header, &X_REQUEST_ID)
                || is(header, &X_REQUEST_TIMEOUT_MS)
                || is(header, &header::ACCEPT) && messagepack::may_be_asked(header.value)
        };
        !self.is_last && !self.headers.iter().any(says_more)
    }

    /// The request that it is; `None` if it has a header that cannot be one of a request.
    pub(super) fn to_request(&self) -> Option<Request> {
        let mut request = Request::new(Body::from(Bytes::copy_from_slice(self.body)));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(AUTHORIZE);
        let mut headers = HeaderMap::with_capacity(self.headers.len());
        for Header { name, value } in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
            headers.append(name, HeaderValue::from_bytes(value).ok()?);
        }
        *request.headers_mut() = headers;
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(headers: &str, body: &str) -> String {
        let start = std::str::from_utf8(START).unwrap();
        format!("{start}Host: localhost\r\n{headers}\r\n{body}")
    }

    fn is_other(bytes: &[u8]) -> bool {
        matches!(read(bytes, &mut Headers::new()), Seen::Other)
    }

    fn is_part(bytes: &[u8]) -> bool {
        matches!(read(bytes, &mut Headers::new()), Seen::Part)
    }

    fn is_head(bytes: &[u8]) -> bool {
        matches!(read(bytes, &mut Headers::new()), Seen::Head)
    }

    #[test]
    fn an_ask_is_read_with_its_headers_and_its_body() {
        let bytes = request(
            "authorization: Bearer t\r\nX-A: 1\r\nx-a: 2\r\nContent-Length: 2\r\n",
            "{}more",
        );
        let mut headers = Headers::new();
        let Seen::Ask(ask) = read(bytes.as_bytes(), &mut headers) else {
            panic!("it is plainly an ask")
        };
        assert_eq!((ask.length(), ask.body), (bytes.len() - 4, &b"{}"[..]));
        assert!(!ask.is_last());
        assert_eq!(ask.authorization(), Some(&b"Bearer t"[..]));
        assert!(ask.is_refused_like_any());
        let request = ask.to_request().unwrap();
        assert_eq!(
            (request.method(), request.uri().path()),
            (&Method::POST, AUTHORIZE)
        );
        let values: Vec<_> = request.headers().get_all("x-a").iter().collect();
        assert_eq!(values, ["1", "2"]);
    }

    #[test]
    fn nobody_is_refused_in_the_usual_words_whose_headers_say_more_than_who_asks() {
        for (headers, is_usual) in [
            ("", true),
            ("X-A: 1\r\n", true),
            ("Accept: */*\r\n", true),
            ("accept: application/json, text/plain, */*\r\n", true),
            ("Accept: application/msgpack\r\n", false),
            (
                "Accept: */*\r\nAccept: application/json;q=0.5, Application/VND.MsgPack\r\n",
                false,
            ),
            ("X-Request-Id: mine\r\n", false),
            ("x-request-timeout-ms: 5\r\n", false),
            ("Connection: close\r\n", false),
        ] {
            let headers = format!("{headers}Authorization: Bearer t\r\n");
            let bytes = request(&format!("{headers}Content-Length: 0\r\n"), "");
            let mut room = Headers::new();
            let Seen::Ask(ask) = read(bytes.as_bytes(), &mut room) else {
                panic!("it is plainly an ask: {headers}")
            };
            assert_eq!(ask.is_refused_like_any(), is_usual, "{headers}");
            assert_eq!(ask.authorization(), Some(&b"Bearer t"[..]), "{headers}");
        }
    }

    #[test]
    fn of_two_credentials_none_says_who_asks() {
        let bytes = request(
            "Authorization: a\r\nAuthorization: b\r\nContent-Length: 0\r\n",
            "",
        );
        let mut room = Headers::new();
        let Seen::Ask(ask) = read(bytes.as_bytes(), &mut room) else {
            panic!("it is plainly an ask")
        };
        assert_eq!(ask.authorization(), None);
    }

    #[test]
    fn every_first_part_of_an_ask_may_become_one() {
        let bytes = request("Content-Length: 2\r\nConnection: close\r\n", "{}");
        let head_len = bytes.len() - 2;
        for length in 0..head_len {
            assert!(is_part(&bytes.as_bytes()[..length]), "{length}");
        }
        for length in head_len..bytes.len() {
            assert!(is_head(&bytes.as_bytes()[..length]), "{length}");
        }
        let mut headers = Headers::new();
        let Seen::Ask(ask) = read(bytes.as_bytes(), &mut headers) else {
            panic!("it is whole")
        };
        assert!(ask.is_last());
        assert_eq!(ask.authorization(), None);
    }

    #[test]
    fn an_ask_that_could_be_read_in_two_ways_is_not_plain() {
        for headers in [
            "",
            "Transfer-Encoding: chunked\r\n",
            "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n",
            "transfer-encoding: identity\r\nContent-Length: 2\r\n",
            "Content-Length: 2\r\nContent-Length: 2\r\n",
            "Content-Length: 2\r\ncontent-length: 3\r\n",
            "Content-Length: 2, 2\r\n",
            "Content-Length: +2\r\n",
            "Content-Length: 0x2\r\n",
            "Content-Length:\r\n",
            "Content-Length: 9999999\r\n",
            "Content-Length: 16384\r\n",
            "Content-Length: 2\r\nExpect: 100-continue\r\n",
            "Content-Length: 2\r\nUpgrade: h2c\r\n",
            "Content-Length: 2\r\nConnection: upgrade\r\n",
            "Content-Length: 2\r\nConnection: close, te\r\n",
            "Content-Length : 2\r\n",
            "Content-Length: 2\r\n folded: 1\r\n",
            "Content-Length: 2\r\nno colon\r\n",
        ] {
            assert!(is_other(request(headers, "{}").as_bytes()), "{headers}");
        }
        let many = "X-A: 1\r\n".repeat(HEADERS_MAX);
        assert!(is_other(request(&many, "").as_bytes()));
    }

    #[test]
    fn anything_but_an_ask_is_something_else() {
        for start in [
            "GET /healthz HTTP/1.1\r\n",
            "POST /v1/authorize/batch HTTP/1.1\r\n",
            "POST /v1/authorize?x HTTP/1.1\r\n",
            "POST /v1/authorize HTTP/1.0\r\n",
            "post /v1/authorize HTTP/1.1\r\n",
            "\r\nPOST /v1/authorize HTTP/1.1\r\n",
            "PRI * HTTP/2.0\r\n",
            "\u{16}\u{3}\u{1}",
        ] {
            assert!(is_other(start.as_bytes()), "{start}");
        }
    }

    #[test]
    fn what_does_not_fit_is_something_else() {
        let long = request(&format!("X-A: {}\r\n", "a".repeat(BYTES_MAX)), "");
        assert!(is_part(&long.as_bytes()[..BYTES_MAX - 1]));
        assert!(is_other(&long.as_bytes()[..BYTES_MAX]));
    }

    proptest! {
        #[test]
        fn a_damaged_ask_is_read_as_hyper_would_or_not_at_all(at in 0_usize..120, byte: u8, insert: bool) {
            let mut bytes = request("A: b\r\nContent-Length: 2\r\nConnection: keep-alive\r\n", "{}").into_bytes();
            if insert {
                bytes.insert(at.min(bytes.len()), byte);
            } else {
                let at = at % bytes.len();
                bytes[at] = byte;
            }
            if let Seen::Ask(ask) = read(&bytes, &mut Headers::new()) {
                let mut headers = [EMPTY_HEADER; HEADERS_MAX];
                let mut whole = httparse::Request::new(&mut headers);
                let Ok(Status::Complete(head_len)) = whole.parse(&bytes) else {
                    panic!("it is not a request");
                };
                prop_assert_eq!((whole.method, whole.path, whole.version), (Some("POST"), Some(AUTHORIZE), Some(1)));
                prop_assert_eq!(whole.headers.len(), ask.headers.len());
                let lengths = whole.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("content-length"));
                let lengths: Vec<_> = lengths.map(|header| std::str::from_utf8(header.value).unwrap().parse::<usize>().unwrap()).collect();
                prop_assert_eq!(&lengths, &[ask.length() - head_len]);
                prop_assert!(!whole.headers.iter().any(|header| header.name.eq_ignore_ascii_case("transfer-encoding")));
            }
        }
    }
}
