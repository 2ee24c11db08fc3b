//! JSON objects in tokens and keys: bounded, I-JSON, no member twice. What a member means is not decided here.

use canon::{Canonical, Integers, Limits};
use serde_json::{Map, Value};

/// The deepest nesting. Nothing that is looked at lies deeper than an array in an object in an array.
const DEPTH_MAX: usize = 16;

/// The object in these bytes, which may have been registered by an earlier version; what is wrong with them otherwise.
pub(crate) fn object(bytes: &[u8], bytes_max: usize) -> Result<Map<String, Value>, String> {
    parsed(canon::canonicalize(bytes, limits(bytes_max)))
}

/// The object in these bytes of a token; what is wrong with them otherwise.
pub(crate) fn object_of_token(bytes: &[u8], bytes_max: usize) -> Result<Map<String, Value>, String> {
    parsed(canon::canonicalize_sent(
        bytes,
        limits(bytes_max),
        Integers::Rounded,
    ))
}

const fn limits(bytes_max: usize) -> Limits {
    Limits {
        bytes_max,
        depth_max: DEPTH_MAX,
    }
}

fn parsed(text: Result<Canonical, canon::Error>) -> Result<Map<String, Value>, String> {
    let text = text.map_err(|error| error.to_string())?;
    canon::object(text.as_str()).map_err(|_| "it is no object".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{object, object_of_token};

    /// Arrays in texts in texts that `serde_json` would read as what is in them, inside an object that is not deep.
    fn wrapped(levels: usize) -> String {
        const RESERVED: &str = "$serde_json::private::RawValue";
        let (open, close) = ("[".repeat(100), "]".repeat(100));
        let mut text = format!("{open}{close}");
        for level in (0..levels).rev() {
            // Written so, what is escaped grows by five bytes each time and not to twice its length.
            let quoted = text.replace('\\', "\\u005c").replace('"', "\\u0022");
            let object = format!(r#"{{"{RESERVED}":"{quoted}"}}"#);
            text = if level == 0 {
                object
            } else {
                format!("{open}{object}{close}")
            };
        }
        format!(r#"{{"a":{text}}}"#)
    }

    #[test]
    fn what_is_read_is_as_deep_as_its_text() {
        let text = wrapped(30);
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        let read = thread.spawn(move || {
            let members = object(text.as_bytes(), 1 << 20).unwrap();
            let inner = members["a"].as_object().unwrap();
            assert!(inner.values().all(serde_json::Value::is_string));
            object_of_token(text.as_bytes(), 1 << 20).unwrap_err()
        });
        assert_eq!(
            read.unwrap().join().unwrap(),
            "key `$serde_json::private::RawValue` that some programs read as something else; give it another name at \
             `/a` (byte 6)"
        );
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let fault = |text: &str| {
            let fault = object(text.as_bytes(), 100).unwrap_err();
            assert_eq!(object_of_token(text.as_bytes(), 100), Err(fault.clone()));
            fault
        };
        assert_eq!(
            fault(r#"{"alg":"none","\u0061lg":"EdDSA"}"#),
            "duplicate key `alg` at the top level (byte 14)"
        );
        assert_eq!(fault("[]"), "it is no object");
        assert!(fault(&"[".repeat(20)).contains("nesting deeper than 16"));
        assert!(fault(&format!("\"{}\"", "x".repeat(100))).contains("more than 100 bytes"));
    }
}
