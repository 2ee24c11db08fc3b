//! Answers that are written as JSON, and the long ones among them, which are written beside the workers.
//!
//! An answer of 4 MiB may have two million values. To write it takes a core for fifty milliseconds, also where its
//! caller has hung up, and everybody else who is on that worker waits. So a worker writes no more of an answer than a
//! short one has. A longer one is written, from its beginning, where nobody waits for a decision: one at a time, and
//! tenants take turns. Until then it is no more than what it is made of. So is a refusal with what is wrong in thousands
//! of policies, and a long answer that is in memory already is made a message in its turn, too.

use super::answers::{Answers, Recipient, SHORT_BYTES_MAX};
use super::messagepack;
use super::refusal::Refusal;
use crate::gateway::Gateway;
use axum::body::{Body, HttpBody};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use std::io::{self, Write};
use std::mem;
use std::sync::Arc;

/// What is in memory already is made a message at once up to this length, in bytes, which takes some milliseconds at
/// most: what a batch of a hundred asks is answered is shorter, and has a caller who waits for it.
const MESSAGE_AT_ONCE_MAX: usize = 256 << 10;

/// The text of an answer, as far as it is written.
pub struct Text {
    bytes: Vec<u8>,
    /// What would make it longer is refused.
    bytes_max: usize,
}

/// How an answer is written. It says the same each time.
pub(super) type Writer = dyn Fn(&mut Text) -> io::Result<()> + Send + Sync;

/// A long answer that is not written yet. It goes with its response, which has no body until then.
#[derive(Clone)]
pub(super) struct Unwritten(Arc<Writer>);

/// A long answer that is written.
struct Written {
    bytes: Vec<u8>,
    /// What kind of message it is, if it is not JSON.
    message: Option<&'static str>,
}

impl Text {
    const fn of_at_most(bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            bytes_max,
        }
    }

    /// How many bytes are written.
    pub(super) fn written(&self) -> usize {
        self.bytes.len()
    }

    /// What is written of a text that may be as long as it is.
    #[cfg(test)]
    pub(crate) fn whole(write: impl Fn(&mut Self) -> io::Result<()>) -> Vec<u8> {
        let mut text = Self::of_at_most(usize::MAX);
        write(&mut text).expect("there is room for all of it");
        text.bytes
    }
}

impl io::Write for Text {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() > self.bytes_max - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A response with the JSON that this writes: at once if it is short.
pub(super) fn response(write: impl Fn(&mut Text) -> io::Result<()> + Send + Sync + 'static) -> Response {
    let mut text = Text::of_at_most(SHORT_BYTES_MAX);
    let is_short = write(&mut text).is_ok();
    let mut response = Response::new(if is_short {
        Body::from(text.bytes)
    } else {
        Body::empty()
    });
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    if !is_short {
        response.extensions_mut().insert(Unwritten(Arc::new(write)));
    }
    response
}

impl Unwritten {
    /// Whether an answer that is in memory already is made a message in its turn only: if it is very long. What is
    /// answered without a credential, and `POST /v1/authorize`, waits for nobody.
    pub(super) fn is_due(response: &Response) -> bool {
        let length = response.body().size_hint().exact();
        let length = length.and_then(|length| usize::try_from(length).ok());
        let is_very_long = length.is_some_and(|length| length > MESSAGE_AT_ONCE_MAX);
        let has_recipient = response.extensions().get::<Recipient>().is_some();
        is_very_long && has_recipient && messagepack::has_two_forms(response)
    }

    /// What is left to be done of such an answer. It has its room among the answers while it waits for that.
    pub(super) async fn of(answers: &Answers, response: &mut Response) -> Result<Self, Refusal> {
        let body = mem::take(response.body_mut());
        // INVARIANT: a body that says its length is in memory already.
        let json = axum::body::to_bytes(body, usize::MAX).await.unwrap_or_default();
        response.headers_mut().remove(header::CONTENT_LENGTH);
        let recipient = response.extensions().get::<Recipient>().cloned();
        let room = recipient.unwrap_or_default().room(answers, json.len())?;
        Ok(Self(Arc::new(move |text: &mut Text| {
            // Given back with the text that it is for.
            let _ = &room;
            text.write_all(&json)
        })))
    }

    /// The response that this goes with, written when its turn has come, as such a message if its caller asks for one.
    pub(super) async fn write(
        self,
        gateway: &Gateway,
        mut response: Response,
        message: Option<&'static str>,
    ) -> Result<Response, Refusal> {
        let message = message.filter(|_| messagepack::has_two_forms(&response));
        let recipient = response.extensions().get::<Recipient>().cloned();
        let recipient = recipient.unwrap_or_default();
        let permit = recipient.wait_for_turn(&gateway.long_answers).await?;
        let writing = tokio::task::spawn_blocking(move || {
            let written = self.written(message);
            // Kept until it is done, also if nobody waits for it any more.
            drop(permit);
            written
        });
        let Written { bytes, message } = writing.await.map_err(|error| {
            let detail = "the answer could not be written";
            Refusal::broken_off(&error, "writing an answer broke off", detail)
        })?;
        recipient.check(gateway)?;
        if let Some(name) = message {
            let name = HeaderValue::from_static(name);
            response.headers_mut().insert(header::CONTENT_TYPE, name);
        }
        *response.body_mut() = Body::from(bytes);
        Ok(response)
    }

    fn written(self, message: Option<&'static str>) -> Written {
        let mut text = Text::of_at_most(usize::MAX);
        (self.0)(&mut text).expect("what is answered has string keys and no fallible serializers");
        let json = text.bytes;
        let encoded = message.and_then(|name| Some((name, messagepack::encode_text(&json).ok()?)));
        match encoded {
            Some((name, bytes)) => Written {
                bytes,
                message: Some(name),
            },
            None => Written {
                bytes: json,
                message: None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Code;
    use serde_json::json;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// The response with so many bytes, and how many of them were written at once.
    fn answered(bytes: usize) -> (Response, usize) {
        let written = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&written);
        let response = response(move |text| {
            for _ in 0..bytes {
                text.write_all(b"0")?;
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Ok(())
        });
        (response, written.load(Ordering::SeqCst))
    }

    #[test]
    fn no_more_of_an_answer_is_written_at_once_than_a_short_one_has() {
        let (response, written) = answered(SHORT_BYTES_MAX);
        assert_eq!(written, SHORT_BYTES_MAX);
        assert!(response.extensions().get::<Unwritten>().is_none());

        let (mut response, written) = answered(10 * SHORT_BYTES_MAX);
        assert_eq!(written, SHORT_BYTES_MAX);
        let rest = response.extensions_mut().remove::<Unwritten>().unwrap();
        assert_eq!(rest.written(None).bytes.len(), 10 * SHORT_BYTES_MAX);
    }

    #[test]
    fn a_refusal_with_thousands_of_findings_is_written_in_its_turn_and_says_the_same() {
        for (findings, is_long) in [(1, false), (SHORT_BYTES_MAX, true)] {
            let refusal =
                Refusal::new(Code::PolicyInvalid, "no").with_diagnostics(json!(vec!["odd"; findings]));
            assert!(refusal.may_be_long());
            let problem = refusal.to_problem("req-7");
            let mut response = refusal.render_in_turn("req-7");
            assert_eq!(response.status(), 422);
            let media_type = &response.headers()[header::CONTENT_TYPE];
            assert_eq!(media_type, "application/problem+json");
            let written = response.body().size_hint().exact();
            let rest = response.extensions_mut().remove::<Unwritten>();
            assert_eq!(rest.is_some(), is_long);
            match rest {
                Some(rest) => assert_eq!(rest.written(None).bytes, problem.into_bytes()),
                None => assert_eq!(written, Some(problem.len() as u64)),
            }
        }
        assert!(!Refusal::not_found("agent", "agt_1").may_be_long());
    }

    #[tokio::test]
    async fn what_is_in_memory_already_is_made_a_message_in_its_turn_if_it_is_very_long() {
        let answers = Answers::default();
        for (length, is_due) in [(MESSAGE_AT_ONCE_MAX, false), (MESSAGE_AT_ONCE_MAX + 1, true)] {
            let json = " ".repeat(length - 1) + "1";
            let mut response = Response::new(Body::from(json.clone()));
            let media_type = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, media_type);
            assert!(!Unwritten::is_due(&response), "it is nobody's");
            response.extensions_mut().insert(Recipient::default());
            assert_eq!(Unwritten::is_due(&response), is_due);
            let rest = Unwritten::of(&answers, &mut response).await.unwrap();
            assert!(!answers.is_empty(), "it waits");
            assert_eq!(rest.clone().written(None).bytes, json.into_bytes());
            assert_eq!(rest.written(Some("application/msgpack")).bytes, b"\x01");
            assert!(answers.is_empty());
        }
    }

    #[test]
    fn a_long_text_is_not_copied_to_find_out_that_it_is_long() {
        let mut text = Text::of_at_most(SHORT_BYTES_MAX);
        let long = vec![b' '; SHORT_BYTES_MAX + 1];
        assert!(text.write_all(&long).is_err());
        assert_eq!(text.written(), 0);
    }

    #[test]
    fn a_message_says_what_the_json_would_say() {
        let written =
            |message| Unwritten(Arc::new(|text: &mut Text| text.write_all(b"[1]"))).written(message);
        let json = written(None);
        assert_eq!((&*json.bytes, json.message), (&b"[1]"[..], None));
        let name = "application/msgpack";
        let message = written(Some(name));
        assert_eq!((&*message.bytes, message.message), (&b"\x91\x01"[..], Some(name)));
    }
}
