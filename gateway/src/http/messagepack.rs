//! MessagePack, for callers who would rather not write and read JSON: bodies by `Content-Type`, answers by `Accept`.
//!
//! A body is made canonical text before anybody looks at it, and an answer is turned into a message after everybody
//! has. So what is recorded, signed and compared is JSON, whoever asks.

use super::accept::Accepted;
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use std::fmt;

/// What it is called, the registered name first.
const NAMES: [&str; 3] = [
    "application/vnd.msgpack",
    "application/msgpack",
    "application/x-msgpack",
];
/// What each of its names has in it.
const IN_EACH: &[u8] = b"msgpack";
/// The ranges that JSON is in, the most specific first.
const RANGES_OF_JSON: [&str; 3] = [JSON[0], "application/*", "*/*"];
/// What is turned into a message.
const JSON: [&str; 2] = ["application/json", "application/problem+json"];

/// On a response whose bytes are what they are: they were signed, or recorded.
#[derive(Debug, Clone, Copy)]
pub struct Exact;

/// Whether a media type is one of its names.
pub(super) fn is_messagepack(media_type: &str) -> bool {
    NAMES.iter().any(|name| media_type.eq_ignore_ascii_case(name))
}

/// Whether this value of `Accept` may ask for it. Most callers accept whatever there is, and say so.
pub fn may_be_asked(accept: &[u8]) -> bool {
    let mut parts = accept.windows(IN_EACH.len());
    parts.any(|part| part.eq_ignore_ascii_case(IN_EACH))
}

/// The name by which a caller asks for it; `None` if the caller does not, or not at least as much as for JSON.
pub(super) fn asked(headers: &HeaderMap) -> Option<&'static str> {
    let accepted = Accepted::of(headers);
    let (weight_of_name, name) = NAMES
        .iter()
        .filter_map(|name| Some((accepted.weight(name)?, *name)))
        .max_by_key(|(weight, _)| *weight)?;
    let json = RANGES_OF_JSON.iter().find_map(|range| accepted.weight(range));
    (weight_of_name > 0 && weight_of_name >= json.unwrap_or(0)).then_some(name)
}

/// A response for whoever asked for messages by this name: a message in place of JSON, and anything else as it is.
pub(super) async fn answer(response: Response, name: &'static str) -> Response {
    if has_two_forms(&response) {
        encoded(response, name).await
    } else {
        response
    }
}

/// Whether a response is a message for those who ask for messages, and JSON for everybody else.
pub(super) fn has_two_forms(response: &Response) -> bool {
    is_json(response) && response.extensions().get::<Exact>().is_none()
}

fn is_json(response: &Response) -> bool {
    let media_type = response
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media_type = media_type.and_then(|value| value.split(';').next());
    media_type.is_some_and(|media_type| JSON.contains(&media_type.trim()))
}

async fn encoded(response: Response, name: &'static str) -> Response {
    let (mut parts, body) = response.into_parts();
    // INVARIANT: an answer of one JSON text is in memory already; what is streamed has another type.
    let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
    match encode_text(&bytes) {
        Ok(message) => {
            parts
                .headers
                .insert(header::CONTENT_TYPE, HeaderValue::from_static(name));
            parts.headers.remove(header::CONTENT_LENGTH);
            Response::from_parts(parts, message.into())
        }
        // It says that it is JSON and is not: whoever asked can see so for themselves.
        Err(_) => Response::from_parts(parts, bytes.into()),
    }
}

/// The message that says what a JSON value says, in its shortest form.
pub fn encode(value: &Value) -> Vec<u8> {
    let mut message = Vec::new();
    let written = Message(&mut message).deserialize(value);
    written.expect("a message has a word for whatever JSON has one for");
    message
}

/// The message that says what a JSON text says, written as the text is read: no value is made of it in between.
pub(super) fn encode_text(text: &[u8]) -> serde_json::Result<Vec<u8>> {
    // A message is shorter than its text but for small numbers, of which there are few.
    let mut message = Vec::with_capacity(text.len());
    let mut reader = serde_json::Deserializer::from_slice(text);
    Message(&mut message).deserialize(&mut reader)?;
    reader.end()?;
    Ok(message)
}

/// Writes what it is shown behind what is there already.
struct Message<'m>(&'m mut Vec<u8>);

impl<'de> DeserializeSeed<'de> for Message<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<(), D::Error> {
        value.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Message<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        self.0.push(0xc0);
        Ok(())
    }

    fn visit_bool<E>(self, value: bool) -> Result<(), E> {
        self.0.push(if value { 0xc3 } else { 0xc2 });
        Ok(())
    }

    fn visit_u64<E>(self, value: u64) -> Result<(), E> {
        write_unsigned(self.0, value);
        Ok(())
    }

    fn visit_i64<E>(self, value: i64) -> Result<(), E> {
        write_signed(self.0, value);
        Ok(())
    }

    fn visit_f64<E>(self, value: f64) -> Result<(), E> {
        write_tail(self.0, 0xcb, &value.to_be_bytes());
        Ok(())
    }

    fn visit_str<E>(self, value: &str) -> Result<(), E> {
        write_string(self.0, value);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<(), A::Error> {
        let place = self.0.len();
        let mut len = 0;
        while elements.next_element_seed(Message(self.0))?.is_some() {
            len += 1;
        }
        insert_head(self.0, place, len, (0x90, 15), &[(0xdc, 2), (0xdd, 4)]);
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<(), A::Error> {
        let place = self.0.len();
        let mut len = 0;
        while members.next_key_seed(Message(self.0))?.is_some() {
            members.next_value_seed(Message(self.0))?;
            len += 1;
        }
        insert_head(self.0, place, len, (0x80, 15), &[(0xde, 2), (0xdf, 4)]);
        Ok(())
    }
}

/// The head of what was written from this place on: only at its end it is known how much it is.
fn insert_head(out: &mut Vec<u8>, place: usize, len: usize, short: (u8, u8), wider: &[(u8, usize)]) {
    let end = out.len();
    write_head(out, len, short, wider);
    let head = out.len() - end;
    out[place..].rotate_right(head);
}

fn write_string(out: &mut Vec<u8>, text: &str) {
    write_head(out, text.len(), (0xa0, 31), &[(0xd9, 1), (0xda, 2), (0xdb, 4)]);
    out.extend_from_slice(text.as_bytes());
}

/// Type and length: in one byte if it is short, else behind the first of the wider types that holds it.
fn write_head(out: &mut Vec<u8>, len: usize, (short, short_max): (u8, u8), wider: &[(u8, usize)]) {
    let len = u32::try_from(len).expect("no answer has four gigabytes");
    if let Ok(len) = u8::try_from(len)
        && len <= short_max
    {
        out.push(short | len);
        return;
    }
    let bytes = len.to_be_bytes();
    let holds = |width: usize| bytes[..4 - width].iter().all(|byte| *byte == 0);
    let found = wider.iter().find(|(_, width)| holds(*width));
    let (kind, width) = found.expect("four bytes hold every length");
    out.push(*kind);
    out.extend_from_slice(&bytes[4 - width..]);
}

/// In the fewest bytes.
fn write_unsigned(out: &mut Vec<u8>, number: u64) {
    match number {
        0..=0x7f => out.push(number.to_be_bytes()[7]),
        0x80..=0xff => out.extend_from_slice(&[0xcc, number.to_be_bytes()[7]]),
        0x100..=0xffff => write_tail(out, 0xcd, &number.to_be_bytes()[6..]),
        0x1_0000..=0xffff_ffff => write_tail(out, 0xce, &number.to_be_bytes()[4..]),
        _ => write_tail(out, 0xcf, &number.to_be_bytes()),
    }
}

/// In the fewest bytes.
fn write_signed(out: &mut Vec<u8>, number: i64) {
    match number {
        0.. => write_unsigned(out, number.unsigned_abs()),
        -32.. => out.push(number.to_be_bytes()[7]),
        -0x80.. => write_tail(out, 0xd0, &number.to_be_bytes()[7..]),
        -0x8000.. => write_tail(out, 0xd1, &number.to_be_bytes()[6..]),
        -0x8000_0000.. => write_tail(out, 0xd2, &number.to_be_bytes()[4..]),
        _ => write_tail(out, 0xd3, &number.to_be_bytes()),
    }
}

fn write_tail(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_message_says_what_the_text_says() {
        let limits = canon::Limits {
            bytes_max: 1 << 22,
            depth_max: 64,
        };
        let numbers = [
            json!(0),
            json!(127),
            json!(128),
            json!(255),
            json!(256),
            json!(65_535),
            json!(65_536),
            json!(u32::MAX),
            json!(4_294_967_296_u64),
            json!(-1),
            json!(-32),
            json!(-33),
            json!(-128),
            json!(-129),
            json!(-32_768),
            json!(-32_769),
            json!(i32::MIN),
            json!(-2_147_483_649_i64),
            json!(0.1),
            json!(1e300),
            json!(-0.5),
            json!(449.491_064_788_738_13),
        ];
        let lengths = [0, 15, 16, 31, 32, 255, 256, 65_535, 65_536];
        let strings = lengths.map(|len| json!("x".repeat(len)));
        let arrays = lengths.map(|len| json!(vec![1; len]));
        let objects = [0_usize, 15, 16, 70_000].map(|len| {
            let members = (0..len).map(|member| (member.to_string(), json!(null)));
            Value::Object(members.collect())
        });
        for value in numbers.into_iter().chain(strings).chain(arrays).chain(objects) {
            let read = canon::canonicalize_messagepack(&encode(&value), limits).unwrap();
            let expected = canon::canonicalize(value.to_string().as_bytes(), limits).unwrap();
            assert!(read.as_str() == expected.as_str(), "{:.100}", value.to_string());
            assert!(encode_text(value.to_string().as_bytes()).unwrap() == encode(&value));
        }
    }

    #[test]
    fn the_shortest_form_is_written() {
        for (value, expected) in [
            (
                json!({"a": [1, -1, true, null]}),
                &b"\x81\xa1a\x94\x01\xff\xc3\xc0"[..],
            ),
            (json!(200), b"\xcc\xc8"),
            (json!(-200), b"\xd1\xff\x38"),
            (json!(1.5), b"\xcb\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        ] {
            assert_eq!(encode(&value), expected, "{value}");
        }
    }

    #[test]
    fn what_is_no_json_stays_what_it_is() {
        for text in ["", "{", "[1,]", "{} {}", "nul", "\"\u{7}\""] {
            assert!(encode_text(text.as_bytes()).is_err(), "{text}");
        }
        assert!(encode_text(b"\"\xff\"").is_err());
    }

    #[test]
    fn it_is_for_those_who_ask_for_it() {
        for (accept, expected) in [
            ("application/msgpack", Some("application/msgpack")),
            ("Application/Vnd.MsgPack", Some("application/vnd.msgpack")),
            (
                "application/json;q=0.5, application/x-msgpack",
                Some("application/x-msgpack"),
            ),
            (
                "application/json, application/msgpack",
                Some("application/msgpack"),
            ),
            ("application/json, application/msgpack;q=0.9", None),
            ("*/*, application/msgpack", Some("application/msgpack")),
            ("*/*, application/msgpack;q=0.1", None),
            ("application/*, application/msgpack;q=0.5", None),
            (
                "application/json;q=0.1, */*, application/msgpack;q=0.5",
                Some("application/msgpack"),
            ),
            (
                "application/*;q=0.1, */*, application/msgpack;q=0.5",
                Some("application/msgpack"),
            ),
            ("application/msgpack;q=0", None),
            ("application/msgpack;q=nonsense", None),
            ("application/json", None),
            ("*/*", None),
            ("application/*", None),
            ("", None),
        ] {
            let headers = HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]);
            assert_eq!(asked(&headers), expected, "{accept}");
        }
        assert_eq!(asked(&HeaderMap::new()), None);
    }
}
