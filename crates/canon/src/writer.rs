//! Builds a canonical object whose keys are known when the program is written: no sorting, no tree, one buffer. The
//! caller names the keys in canonical order; debug builds check it.

use std::fmt::Write as _;

use crate::{Canonical, Digest, write_string};

/// Largest integer that every reader of JSON holds exactly (RFC 7493 section 2.2).
const SAFE_INTEGER_MAX: u64 = (1 << 53) - 1;

/// Writes one canonical JSON object, member by member.
///
/// ```
/// let mut writer = canon::ObjectWriter::new();
/// writer.string("agent", "a\"b").object("usage", |usage| {
///     usage.unsigned("calls", 2);
/// });
/// assert_eq!(writer.finish().as_str(), r#"{"agent":"a\"b","usage":{"calls":2}}"#);
/// ```
#[derive(Debug)]
pub struct ObjectWriter {
    out: String,
    is_empty: bool,
    /// INVARIANT: every key comes after the one before it, by UTF-16 code units.
    #[cfg(debug_assertions)]
    last_key: String,
}

impl ObjectWriter {
    /// An empty object.
    pub fn new() -> Self {
        Self::with_capacity(256)
    }

    /// An empty object, with room for `bytes` bytes.
    pub fn with_capacity(bytes: usize) -> Self {
        Self::reusing(String::with_capacity(bytes))
    }

    /// An empty object in the memory of `buffer`, whose text is dropped.
    fn reusing(mut buffer: String) -> Self {
        buffer.clear();
        Self::open(buffer)
    }

    fn open(mut out: String) -> Self {
        out.push('{');
        Self {
            out,
            is_empty: true,
            #[cfg(debug_assertions)]
            last_key: String::new(),
        }
    }

    /// A string member.
    pub fn string(&mut self, key: &str, value: &str) -> &mut Self {
        write_string(self.key(key), value);
        self
    }

    /// A string member, or `null`.
    pub fn string_or_null(&mut self, key: &str, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.string(key, value),
            None => self.null(key),
        }
    }

    /// An integer member. Beyond ±(2^53 − 1) canonical JSON would change it; such a value belongs in a string.
    pub fn integer(&mut self, key: &str, value: i64) -> &mut Self {
        debug_assert!(
            value.unsigned_abs() <= SAFE_INTEGER_MAX,
            "`{key}` is not a safe integer"
        );
        write!(self.key(key), "{value}").expect("a String takes every write");
        self
    }

    /// An integer member that is never negative, within the same bound.
    pub fn unsigned(&mut self, key: &str, value: u64) -> &mut Self {
        debug_assert!(value <= SAFE_INTEGER_MAX, "`{key}` is not a safe integer");
        write!(self.key(key), "{value}").expect("a String takes every write");
        self
    }

    /// A boolean member.
    pub fn boolean(&mut self, key: &str, value: bool) -> &mut Self {
        self.key(key).push_str(if value { "true" } else { "false" });
        self
    }

    /// A `null` member.
    pub fn null(&mut self, key: &str) -> &mut Self {
        self.key(key).push_str("null");
        self
    }

    /// A digest member, in its text form.
    pub fn digest(&mut self, key: &str, value: &Digest) -> &mut Self {
        let out = self.key(key);
        out.push('"');
        value.write_to(out);
        out.push('"');
        self
    }

    /// A member whose value is canonical JSON already, such as a part of a [`Canonical`].
    pub fn canonical(&mut self, key: &str, value: &str) -> &mut Self {
        debug_assert!(is_canonical(value), "`{key}` is not canonical");
        self.key(key).push_str(value);
        self
    }

    /// A member that is an array of strings, in the order given.
    pub fn strings<S: AsRef<str>>(&mut self, key: &str, values: impl IntoIterator<Item = S>) -> &mut Self {
        self.array(key, values, |out, value| write_string(out, value.as_ref()))
    }

    /// A member that is an object.
    pub fn object(&mut self, key: &str, write: impl FnOnce(&mut Self)) -> &mut Self {
        object(self.key(key), write);
        self
    }

    /// A member that is an array of objects, in the order given.
    pub fn objects<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut Self, T),
    ) -> &mut Self {
        self.array(key, items, |out, item| object(out, |writer| write(writer, item)))
    }

    /// The object.
    pub fn finish(self) -> Canonical {
        Canonical::new(self.close())
    }

    fn close(mut self) -> String {
        self.out.push('}');
        self.out
    }

    fn array<T>(
        &mut self,
        key: &str,
        items: impl IntoIterator<Item = T>,
        mut write: impl FnMut(&mut String, T),
    ) -> &mut Self {
        let out = self.key(key);
        out.push('[');
        for (index, item) in items.into_iter().enumerate() {
            if index > 0 {
                out.push(',');
            }
            write(out, item);
        }
        out.push(']');
        self
    }

    /// Writes the key and hands back the buffer for the value.
    fn key(&mut self, key: &str) -> &mut String {
        #[cfg(debug_assertions)]
        {
            let ordered = self.is_empty || self.last_key.encode_utf16().lt(key.encode_utf16());
            assert!(ordered, "`{key}` must not come after `{}`", self.last_key);
            key.clone_into(&mut self.last_key);
        }
        if !self.is_empty {
            self.out.push(',');
        }
        self.is_empty = false;
        write_string(&mut self.out, key);
        self.out.push(':');
        &mut self.out
    }
}

impl Default for ObjectWriter {
    fn default() -> Self {
        Self::new()
    }
}

/// An object inside another: the buffer is lent to a writer of its own and taken back.
fn object(out: &mut String, write: impl FnOnce(&mut ObjectWriter)) {
    let mut writer = ObjectWriter::open(std::mem::take(out));
    write(&mut writer);
    *out = writer.close();
}

fn is_canonical(json: &str) -> bool {
    let limits = crate::Limits {
        bytes_max: usize::MAX,
        depth_max: usize::MAX,
    };
    crate::canonicalize(json.as_bytes(), limits).is_ok_and(|canonical| canonical.as_str() == json)
}

#[cfg(test)]
mod tests {
    use super::ObjectWriter;
    use crate::{Digest, of};

    #[test]
    fn every_kind_of_member_is_canonical() {
        let mut writer = ObjectWriter::reusing("left over".to_owned());
        writer
            .boolean("boolean", true)
            .canonical("canonical", r#"{"a":[1,null]}"#)
            .digest("digest", &Digest::ZERO)
            .integer("integer", -7)
            .null("null")
            .object("object", |inner| {
                inner.boolean("a", false).object("b", |_| ());
            })
            .objects("objects", [1, 2], |inner, n| {
                inner.unsigned("n", n);
            })
            .string("string", "é\n")
            .string_or_null("string_a", None)
            .string_or_null("string_b", Some("b"))
            .strings("strings", ["b", "a"])
            .strings("strings_none", [""; 0])
            .unsigned("unsigned", 9_007_199_254_740_991);
        let written = writer.finish();
        let expected = format!(
            concat!(
                r#"{{"boolean":true,"canonical":{{"a":[1,null]}},"digest":"sha256:{}","integer":-7,"null":null,"#,
                r#""object":{{"a":false,"b":{{}}}},"objects":[{{"n":1}},{{"n":2}}],"string":"é\n","string_a":null,"#,
                r#""string_b":"b","strings":["b","a"],"strings_none":[],"unsigned":9007199254740991}}"#,
            ),
            "0".repeat(64)
        );
        assert_eq!(written.as_str(), expected);
        let value: serde_json::Value = serde_json::from_str(&expected).unwrap();
        assert_eq!(of(&value).unwrap(), written);
    }

    #[test]
    fn an_object_without_members_is_two_braces() {
        assert_eq!(ObjectWriter::default().finish().as_str(), "{}");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`a` must not come after `b`")]
    fn keys_out_of_order_are_a_mistake_of_the_program() {
        ObjectWriter::new().null("b").null("a");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`n` is not a safe integer")]
    fn an_integer_that_json_would_change_is_a_mistake_of_the_program() {
        ObjectWriter::new().unsigned("n", 1 << 53);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "`c` is not canonical")]
    fn a_part_that_is_not_canonical_is_a_mistake_of_the_program() {
        ObjectWriter::new().canonical("c", r#"{"a": 1}"#);
    }
}
