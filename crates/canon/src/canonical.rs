//! A text known to be canonical, and how a serde value becomes one. How bytes become one is `scan`'s work.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::scan::DEPTH_CEILING;
use crate::{Digest, Error, ErrorKind, Limits, ObjectWriter, canonicalize, write_string};

/// A JSON text in canonical form. Only this crate makes one, so holding it is proof.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Canonical(String);

impl Canonical {
    /// INVARIANT: `text` is canonical; callers are the scanner and the writer.
    pub(crate) fn new(text: String) -> Self {
        Self(text)
    }

    /// One of the values inside this text, as a text of its own; `None` if `value` is not a slice of this very text.
    ///
    /// A value inside a canonical text is canonical. That the slice holds one whole value, as a `RawValue` that was read
    /// from this text does, is for the caller to see to.
    pub fn value_within(&self, value: &str) -> Option<Self> {
        let (all, part) = (self.0.as_bytes().as_ptr_range(), value.as_bytes().as_ptr_range());
        let is_inside = all.start <= part.start && part.end <= all.end;
        is_inside.then(|| Self(value.to_owned()))
    }

    /// This object with a string as one of its members, as if it had been sent with it; `None` if it has that member
    /// and it is not `null`, or if it is no object.
    pub fn with_string(&self, key: &str, value: &str) -> Option<Self> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(&self.0).ok()?;
        if members.get(key).is_some_and(|known| known.get() != "null") {
            return None;
        }
        let mut text = String::new();
        write_string(&mut text, value);
        let others = members.iter().filter(|(other, _)| *other != key);
        let mut members: Vec<(&str, &str)> = others.map(|(key, value)| (key.as_str(), value.get())).collect();
        members.push((key, text.as_str()));
        members.sort_unstable_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
        let mut whole = ObjectWriter::with_capacity(self.0.len() + key.len() + text.len() + 8);
        for (key, value) in members {
            whole.canonical(key, value);
        }
        Some(whole.finish())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The bytes a digest or signature covers.
    pub fn as_bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }

    /// The text, owned.
    pub fn into_string(self) -> String {
        self.0
    }

    /// SHA-256 of the bytes. Computed on every call.
    pub fn digest(&self) -> Digest {
        Digest::of(self.as_bytes())
    }
}

impl fmt::Display for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Canonical {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl AsRef<str> for Canonical {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// The canonical form of a value of our own.
///
/// The order in which the value names its members does not matter. NaN and the infinities arrive here as `null`, because
/// that is how `serde_json` writes them; a type with such members has to refuse them itself. Integers beyond 2^53 are
/// rounded to the nearest double, as RFC 8785 asks.
///
/// # Errors
/// The value has no JSON form, or names a key twice (`#[serde(flatten)]` can), or is nested deeper than 256.
pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Canonical, Error> {
    let json = serde_json::to_vec(value).map_err(|error| Error {
        kind: ErrorKind::Unserializable(error.to_string()),
        offset: None,
        pointer: String::new(),
    })?;
    canonicalize(
        &json,
        Limits {
            bytes_max: usize::MAX,
            depth_max: DEPTH_CEILING,
        },
    )
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde::Serialize;

    use super::of;
    use crate::{Canonical, Digest, ErrorKind, Limits, canonicalize};

    #[derive(Serialize)]
    struct Inner {
        b: u8,
        a: f64,
    }

    #[derive(Serialize)]
    struct Outer {
        z: &'static str,
        b: u8,
        #[serde(flatten)]
        inner: Inner,
    }

    #[test]
    fn members_of_a_struct_are_sorted_whatever_their_order() {
        let canonical = of(&Inner { b: 1, a: 2.0 }).unwrap();
        assert_eq!(canonical.as_str(), r#"{"a":2,"b":1}"#);
        assert_eq!(canonical.digest(), Digest::of(br#"{"a":2,"b":1}"#));
        assert_eq!(canonical.to_string(), canonical.clone().into_string());
    }

    fn canonical(text: &str) -> Canonical {
        let limits = Limits {
            bytes_max: usize::MAX,
            depth_max: 64,
        };
        canonicalize(text.as_bytes(), limits).unwrap()
    }

    #[test]
    fn a_member_that_is_put_in_stands_where_it_would_have_been_sent() {
        for (without, with) in [
            ("{}", r#"{"m":"x"}"#),
            (r#"{"m":null}"#, r#"{"m":"x"}"#),
            (r#"{"n":1}"#, r#"{"m":"x","n":1}"#),
            (r#"{"a":{"m":0}}"#, r#"{"a":{"m":0},"m":"x"}"#),
            (r#"{"a":"}","z":[{}]}"#, r#"{"a":"}","m":"x","z":[{}]}"#),
            (
                "{\"\\n\":1,\"\u{1f600}\":2,\"\u{ff61}\":3}",
                "{\"\\n\":1,\"m\":\"x\",\"\u{1f600}\":2,\"\u{ff61}\":3}",
            ),
        ] {
            let put_in = canonical(without).with_string("m", "x").unwrap();
            assert_eq!(put_in.as_str(), with);
            assert_eq!(put_in, canonical(with));
        }
        let odd = canonical("{}").with_string("m", "a\"\\\u{1}é").unwrap();
        assert_eq!(odd.as_str(), r#"{"m":"a\"\\\u0001é"}"#);
        assert_eq!(odd, canonical(odd.as_str()));
    }

    #[test]
    fn a_member_that_is_there_stays_and_what_is_no_object_has_none() {
        for text in [r#"{"m":"y"}"#, r#"{"m":false}"#, "[]", "null", "\"m\""] {
            assert_eq!(canonical(text).with_string("m", "x"), None, "{text}");
        }
    }

    #[test]
    fn a_key_that_flatten_doubles_is_refused() {
        let error = of(&Outer {
            z: "",
            b: 0,
            inner: Inner { b: 1, a: 0.5 },
        })
        .unwrap_err();
        assert_eq!(error.kind, ErrorKind::DuplicateKey("b".into()));
    }

    #[test]
    fn a_value_without_json_form_is_an_error_not_an_empty_text() {
        let error = of(&BTreeMap::from([(vec![1], 2)])).unwrap_err();
        assert!(matches!(error.kind, ErrorKind::Unserializable(_)), "{error}");
    }
}
