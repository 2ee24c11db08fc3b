//! How a response is written to a connection of asks, as hyper would write it (RFC 9112, section 4).

use super::plain::BYTES_MAX;
use crate::gateway::Gateway;
use crate::http::Refusal;
use crate::http::request_id::{self, MADE_LEN, X_REQUEST_ID};
use axum::http::response::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use httpdate::HttpDate;
use model::Timestamp;
use std::time::{Duration, UNIX_EPOCH};

/// How long a date is, as HTTP writes it (RFC 9110, section 5.6.7).
const DATE_LEN: usize = 29;
/// Stands where the id of a request will.
const SOME_ID: &str = "req_????????????????";
const _: () = assert!(SOME_ID.len() == MADE_LEN);
/// More than the head of any answer to an ask, in bytes.
const HEAD_LEN: usize = 256;

/// Where a thread reads and writes.
pub(super) struct Desk {
    /// What has come, from the beginning of a request on.
    pub(super) input: Box<[u8]>,
    /// What is said often.
    pub(super) words: Words,
}

impl Desk {
    pub(super) fn new() -> Self {
        Self {
            input: vec![0; BYTES_MAX].into(),
            words: Words::new(),
        }
    }
}

/// What is said often, ready to be sent.
pub(super) struct Words {
    date: Date,
    /// The whole response that says that there is no place.
    full: Vec<u8>,
    /// Where in it the id of the request begins, in the head and in the body, and where the date does.
    ids_at: Vec<usize>,
    dates_at: Vec<usize>,
}

impl Words {
    fn new() -> Self {
        let refusal = Refusal::overloaded();
        let (mut head, _) = refusal.render(SOME_ID).into_parts();
        head.headers
            .insert(X_REQUEST_ID, HeaderValue::from_static(SOME_ID));
        let date = Date::of(0);
        let full = written(&head, refusal.to_problem(SOME_ID).as_bytes(), &date, false);
        Self {
            ids_at: places(&full, SOME_ID.as_bytes()),
            dates_at: places(&full, &date.text),
            date,
            full,
        }
    }

    /// The refusal of whoever finds no place: [`Refusal::overloaded`], under an id that nobody else has.
    pub(super) fn refusal(&mut self, gateway: &Gateway) -> &[u8] {
        self.date.keep(gateway.clock.now());
        for at in &self.dates_at {
            self.full[*at..][..DATE_LEN].copy_from_slice(&self.date.text);
        }
        let id = request_id::make(&*gateway.entropy);
        for at in &self.ids_at {
            self.full[*at..][..MADE_LEN].copy_from_slice(&id);
        }
        &self.full
    }

    /// A response, after which the connection ends or goes on.
    pub(super) fn response(
        &mut self,
        gateway: &Gateway,
        head: &Parts,
        body: &[u8],
        is_last: bool,
    ) -> Vec<u8> {
        self.date.keep(gateway.clock.now());
        written(head, body, &self.date, is_last)
    }
}

/// The time of day as HTTP tells it. It is written once a second.
struct Date {
    second: u64,
    text: [u8; DATE_LEN],
}

impl Date {
    fn of(second: u64) -> Self {
        let mut text = [b' '; DATE_LEN];
        let date = HttpDate::from(UNIX_EPOCH + Duration::from_secs(second)).to_string();
        // HTTP has dates of this length only, until the year 9999.
        if date.len() == DATE_LEN {
            text.copy_from_slice(date.as_bytes());
        }
        Self { second, text }
    }

    fn keep(&mut self, now: Timestamp) {
        let second = u64::try_from(now.millis() / 1_000).unwrap_or_default();
        if second != self.second {
            *self = Self::of(second);
        }
    }
}

fn written(head: &Parts, body: &[u8], date: &Date, is_last: bool) -> Vec<u8> {
    let mut text = Vec::with_capacity(HEAD_LEN + body.len());
    let reason = head.status.canonical_reason().unwrap_or_default();
    for part in ["HTTP/1.1 ", head.status.as_str(), " ", reason, "\r\n"] {
        text.extend_from_slice(part.as_bytes());
    }
    for (name, value) in &head.headers {
        if name != header::CONTENT_LENGTH {
            line(&mut text, name, value.as_bytes());
        }
    }
    if is_last {
        line(&mut text, &header::CONNECTION, b"close");
    }
    line(
        &mut text,
        &header::CONTENT_LENGTH,
        body.len().to_string().as_bytes(),
    );
    line(&mut text, &header::DATE, &date.text);
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(body);
    text
}

fn line(text: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    for part in [name.as_str().as_bytes(), b": ", value, b"\r\n"] {
        text.extend_from_slice(part);
    }
}

/// Where this begins in a text.
fn places(text: &[u8], wanted: &[u8]) -> Vec<usize> {
    let windows = text.windows(wanted.len()).enumerate();
    windows
        .filter(|(_, window)| *window == wanted)
        .map(|(at, _)| at)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Response;

    #[test]
    fn a_response_is_written_as_it_goes_over_the_wire() {
        let response = Response::builder()
            .status(200)
            .header("x-a", "1")
            .header("content-length", "7");
        let (head, ()) = response.body(()).unwrap().into_parts();
        let date = Date::of(784_111_777);
        let written = |is_last| String::from_utf8(written(&head, b"{}", &date, is_last)).unwrap();
        assert_eq!(
            written(false),
            "HTTP/1.1 200 OK\r\nx-a: 1\r\ncontent-length: 2\r\ndate: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n{}"
        );
        assert!(written(true).contains("\r\nconnection: close\r\n"));
    }

    #[test]
    fn the_refusal_has_a_place_for_what_changes() {
        let words = Words::new();
        assert_eq!((words.ids_at.len(), words.dates_at.len()), (2, 1));
        let text = String::from_utf8(words.full).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{head}");
        for line in ["retry-after: 1", "content-type: application/problem+json"] {
            assert!(head.lines().any(|other| other == line), "{head}");
        }
        assert_eq!(body, Refusal::overloaded().to_problem(SOME_ID));
    }

    #[test]
    fn a_date_is_written_anew_when_its_second_is_over() {
        let mut date = Date::of(0);
        date.keep(Timestamp::from_millis(999));
        assert_eq!(&date.text, b"Thu, 01 Jan 1970 00:00:00 GMT");
        date.keep(Timestamp::from_millis(1_000));
        assert_eq!(&date.text, b"Thu, 01 Jan 1970 00:00:01 GMT");
    }
}
