//! How entries are written as server-sent events.
//!
//! The format is that of the HTML standard, section "server-sent events". An event without data only moves on what a client
//! sends as `Last-Event-ID`.

use crate::http::Refusal;
use crate::records::events::Event;
use store::StoredEntry;

/// A page with so many bytes is full: that is what a stream keeps which nobody takes, with the event that reaches it.
const FULL: usize = 256 << 10;

/// Events to be sent in one piece.
#[derive(Default)]
pub(super) struct Page(String);

impl Page {
    /// What a stream begins with: how long a client waits before it connects again, and behind which entry it goes on
    /// then, should this be all that it gets.
    pub(super) fn beginning(retry_ms: u64, seq: u64) -> Self {
        Self(format!("retry: {retry_ms}\nid: {seq}\n\n"))
    }

    /// A sign of life that says up to which entry everything was looked at.
    pub(super) fn heartbeat(seq: u64) -> Self {
        Self(format!(": alive\nid: {seq}\n\n"))
    }

    /// Adds an entry.
    pub(super) fn push(&mut self, entry: StoredEntry) -> Result<(), Refusal> {
        let seq = entry.seq;
        let event = Event::of(entry)?;
        let json = serde_json::to_string(&event).expect("strings and numbers always serialize");
        self.0.extend(["id: ", &seq.to_string(), "\n"]);
        self.push_data(&json);
        Ok(())
    }

    /// Adds why the stream ends, and up to which entry everything was looked at.
    pub(super) fn push_end(&mut self, seq: u64, problem: &str) {
        self.0.extend(["id: ", &seq.to_string(), "\nevent: closed\n"]);
        self.push_data(problem);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing more should be added.
    pub(super) fn is_full(&self) -> bool {
        self.0.len() >= FULL
    }

    pub(super) fn into_bytes(self) -> bytes::Bytes {
        self.0.into()
    }

    /// A line break would begin another field. JSON that we wrote has none; what somebody else has put into the database may.
    fn push_data(&mut self, json: &str) {
        for line in json.split(['\n', '\r']) {
            self.0.push_str("data: ");
            self.0.push_str(line);
            self.0.push('\n');
        }
        self.0.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;
    use model::Timestamp;

    fn written(body: &str) -> String {
        let mut page = Page::default();
        let entry = StoredEntry {
            seq: 7,
            kind: "decision".to_owned(),
            at: Timestamp::from_millis(0),
            prev: Digest::ZERO,
            hash: Digest::ZERO,
            body: body.to_owned(),
            nodes: Vec::new(),
            erased: None,
        };
        page.push(entry).unwrap();
        page.0
    }

    #[test]
    fn an_entry_is_one_event_with_its_seq_for_an_id() {
        let zeros = Digest::ZERO;
        assert_eq!(
            written(r#"{"a":1}"#),
            format!(
                "id: 7\ndata: {{\"seq\":7,\"kind\":\"decision\",\"at\":\"1970-01-01T00:00:00.000Z\",\"prev_hash\":\"{zeros}\",\"hash\":\"{zeros}\",\"body\":{{\"a\":1}}}}\n\n"
            )
        );
    }

    #[test]
    fn a_line_break_in_a_body_forges_no_field() {
        let text = written("{\"a\":\n1,\r\n\"b\":2}");
        assert!(
            text.lines()
                .all(|line| line.is_empty() || line.starts_with("id: 7") || line.starts_with("data: ")),
            "{text}"
        );
    }
}
