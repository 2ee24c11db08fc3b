//! How long a text would be, without making one.

use serde::Serialize;
use std::io;

/// How many bytes a value has as `serde_json` writes it. It makes no text of it.
///
/// # Errors
/// It has no text: a key is no string, or a serializer fails.
pub fn length<T: Serialize>(value: &T) -> serde_json::Result<usize> {
    let mut length = Length(0);
    serde_json::to_writer(&mut length, value)?;
    Ok(length.0)
}

/// How much was written to it.
struct Length(usize);

impl io::Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::length;
    use serde_json::json;
    use std::collections::BTreeMap;

    #[test]
    fn a_value_is_as_long_as_its_text() {
        for value in [json!(null), json!({"a": [1, "ü\n\"", 0.5]}), json!("")] {
            assert_eq!(length(&value).unwrap(), value.to_string().len(), "{value}");
        }
        assert!(length(&BTreeMap::from([([1], 1)])).is_err());
    }
}
