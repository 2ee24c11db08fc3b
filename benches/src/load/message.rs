//! As much of MessagePack as asks and their answers need: what asks are made of, and a text in an answer.
//!
//! It is no reader of messages: it finds a name by its bytes with their head, which no text of an answer has inside,
//! because a text is UTF-8 and the head of a short string is none. In answers, names stand before the texts that could
//! be the same word.

use serde_json::Value;

/// The head of a map with so many members, which are fewer than 16.
pub(super) fn map_head(members: usize) -> u8 {
    0x80 | u8::try_from(members).expect("asks have few members") & 0x0f
}

/// Appends a text.
pub(super) fn write_text(out: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()).expect("texts of asks are short") {
        short @ 0..=31 => out.push(0xa0 | short),
        long => out.extend_from_slice(&[0xd9, long]),
    }
    out.extend_from_slice(text.as_bytes());
}

/// Appends a text, a small number, or an object of them.
pub(super) fn write(out: &mut Vec<u8>, value: &Value) {
    match value {
        Value::String(text) => write_text(out, text),
        Value::Number(number) => {
            let number = number.as_u64().and_then(|number| u32::try_from(number).ok());
            out.push(0xce);
            out.extend_from_slice(&number.expect("numbers of asks are small").to_be_bytes());
        }
        Value::Object(members) => {
            out.push(map_head(members.len()));
            for (name, value) in members {
                write_text(out, name);
                write(out, value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Array(_) => unreachable!("asks are texts, numbers and objects"),
    }
}

/// The first text of this name, both of fewer than 32 bytes.
pub(super) fn text<'m>(message: &'m [u8], name: &str) -> Option<&'m str> {
    let mut wanted = Vec::new();
    write_text(&mut wanted, name);
    let mut places = message.windows(wanted.len());
    let behind = places.position(|window| window == wanted)? + wanted.len();
    let (head, rest) = message[behind..].split_first()?;
    let is_short = head & 0xe0 == 0xa0;
    let text = rest.get(..usize::from(head & 0x1f)).filter(|_| is_short)?;
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_asks_are_made_of_is_read_as_it_was_meant() {
        let value = json!({"a": {"long": "x".repeat(200), "number": 70_000}, "short": "y"});
        let mut message = Vec::new();
        write(&mut message, &value);
        let limits = canon::Limits {
            bytes_max: 1 << 10,
            depth_max: 8,
        };
        let read = canon::canonicalize_messagepack(&message, limits).unwrap();
        assert_eq!(read.as_str(), value.to_string());
    }

    #[test]
    fn a_text_is_found_by_its_whole_name() {
        let mut message = Vec::new();
        let answer = json!({"decision_id": "dec_1", "decision": "deny", "reason": "decision", "number": 7});
        write(&mut message, &answer);
        assert_eq!(text(&message, "decision"), Some("deny"));
        for absent in ["decisions", "number", "decis"] {
            assert_eq!(text(&message, absent), None, "{absent}");
        }
        assert_eq!(text(b"\xa1a\xa5cut", "a"), None);
    }
}
