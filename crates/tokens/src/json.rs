//! JSON objects in tokens and keys: bounded, I-JSON, no member twice. What a member means is not decided here.

use canon::Limits;
use serde_json::{Map, Value};

/// The deepest nesting. Nothing that is looked at lies deeper than an array in an object in an array.
const DEPTH_MAX: usize = 16;

/// The object in these bytes; what is wrong with them otherwise.
pub(crate) fn object(bytes: &[u8], bytes_max: usize) -> Result<Map<String, Value>, String> {
    let limits = Limits {
        bytes_max,
        depth_max: DEPTH_MAX,
    };
    let text = canon::canonicalize(bytes, limits).map_err(|error| error.to_string())?;
    serde_json::from_str(text.as_str()).map_err(|_| "it is no object".to_owned())
}

#[cfg(test)]
mod tests {
    use super::object;

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        let fault = |text: &str| object(text.as_bytes(), 100).unwrap_err();
        assert_eq!(
            fault(r#"{"alg":"none","\u0061lg":"EdDSA"}"#),
            "duplicate key `alg` at the top level (byte 14)"
        );
        assert_eq!(fault("[]"), "it is no object");
        assert!(fault(&"[".repeat(20)).contains("nesting deeper than 16"));
        assert!(fault(&format!("\"{}\"", "x".repeat(100))).contains("more than 100 bytes"));
    }
}
