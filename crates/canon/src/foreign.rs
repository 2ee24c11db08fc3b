//! Values of texts that others have written, member by member.
//!
//! `serde_json` has reserved a key: an object that begins with it becomes, in a [`Value`] that is read by
//! `serde_json`, whatever a second parser reads in the text of that member. What was bounded, searched for keys that
//! stand twice and hashed is the object. So whatever others have written becomes a [`Value`] here, where no key means
//! anything (docs/decisions/0079-values-of-others.md). What a value means is the caller's business.

use serde::de::{
    Deserialize, DeserializeOwned, DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Values, and what is made of them, as a text of others has them.
pub trait Foreign: Sized {
    /// Reads it, as deep as the deserializer goes.
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error>;
}

/// Reads a member that is a value: for `#[serde(deserialize_with = "canon::foreign")]`, and with `default` where it may
/// be left out.
///
/// # Errors
/// It is something else.
pub fn foreign<'de, D: Deserializer<'de>, T: Foreign>(deserializer: D) -> Result<T, D::Error> {
    T::read(deserializer)
}

/// The value in a text. Of a key that stands twice it has the last member.
///
/// # Errors
/// It is not JSON, or is nested too deeply for `serde_json`.
pub fn value(text: &str) -> serde_json::Result<Value> {
    whole(text)
}

/// The object in a text, as [`value`] reads it.
///
/// # Errors
/// Those of [`value`]; and it is something else.
pub fn object(text: &str) -> serde_json::Result<Map<String, Value>> {
    whole(text)
}

/// The members of the object in a text whose names are wanted, as [`object`] reads them. Nothing is made of others.
///
/// # Errors
/// It is not JSON, or is something else than an object, or what is wanted is nested too deeply for `serde_json`.
pub fn members(text: &str, is_wanted: impl Fn(&str) -> bool) -> serde_json::Result<Map<String, Value>> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = reader.deserialize_map(Wanted(is_wanted))?;
    reader.end()?;
    Ok(read)
}

fn whole<T: Foreign>(text: &str) -> serde_json::Result<T> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = T::read(&mut reader)?;
    reader.end()?;
    Ok(read)
}

impl Foreign for Value {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Anything)
    }
}

impl Foreign for Map<String, Value> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Object)
    }
}

impl<T: Foreign> Foreign for Arc<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::read(deserializer).map(Self::new)
    }
}

impl<T: Foreign> Foreign for Option<T> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_option(Perhaps::<T>(PhantomData))
    }
}

impl<K: DeserializeOwned + Ord, V: Foreign> Foreign for BTreeMap<K, V> {
    fn read<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Members::<K, V>(PhantomData))
    }
}

/// Reads what stands inside of something else.
struct Inside<T>(PhantomData<T>);

impl<'de, T: Foreign> DeserializeSeed<'de> for Inside<T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        T::read(deserializer)
    }
}

/// Visits what is any value.
struct Anything;

impl<'de> Visitor<'de> for Anything {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any valid JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::read(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Inside(PhantomData))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Value, A::Error> {
        Object.visit_map(members).map(Value::Object)
    }
}

/// Visits what is an object.
struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<Map<String, Value>, A::Error> {
        let mut map = Map::new();
        each_member(members, |key, value| {
            map.insert(key, value);
        })?;
        Ok(map)
    }
}

/// Visits what is an object of which some members are wanted.
struct Wanted<F>(F);

impl<'de, F: Fn(&str) -> bool> Visitor<'de> for Wanted<F> {
    type Value = Map<String, Value>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Map<String, Value>, A::Error> {
        let mut map = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if (self.0)(&key) {
                map.insert(key, members.next_value_seed(Inside::<Value>(PhantomData))?);
            } else {
                // A key means nothing in what is skipped either: nobody is handed anything of it.
                members.next_value::<IgnoredAny>()?;
            }
        }
        Ok(map)
    }
}

/// Visits what is an object whose keys are something special.
struct Members<K, V>(PhantomData<(K, V)>);

impl<'de, K: DeserializeOwned + Ord, V: Foreign> Visitor<'de> for Members<K, V> {
    type Value = BTreeMap<K, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    fn visit_map<A: MapAccess<'de>>(self, members: A) -> Result<BTreeMap<K, V>, A::Error> {
        let mut map = BTreeMap::new();
        each_member(members, |key, value| {
            map.insert(key, value);
        })?;
        Ok(map)
    }
}

/// Reads the members of an object, in the order in which they stand.
fn each_member<'de, A: MapAccess<'de>, K: Deserialize<'de>, V: Foreign>(
    mut members: A,
    mut put: impl FnMut(K, V),
) -> Result<(), A::Error> {
    while let Some(key) = members.next_key()? {
        put(key, members.next_value_seed(Inside(PhantomData))?);
    }
    Ok(())
}

/// Visits what may be `null`.
struct Perhaps<T>(PhantomData<T>);

impl<'de, T: Foreign> Visitor<'de> for Perhaps<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("option")
    }

    fn visit_unit<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_none<E>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<T>, D::Error> {
        T::read(deserializer).map(Some)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    /// A key that `serde_json` has reserved.
    const RESERVED: &str = "$serde_json::private::RawValue";

    /// An object with that key, as a text and as what it is.
    fn wrapped(inner: &str) -> (String, Value) {
        let object = Value::Object(Map::from_iter([(RESERVED.to_owned(), inner.into())]));
        (object.to_string(), object)
    }

    #[test]
    fn no_key_means_anything() {
        for inner in [r#"{"a":1}"#, "[[[[]]]]", "1", "no JSON"] {
            let (text, expected) = wrapped(inner);
            assert_eq!(value(&text).unwrap(), expected);
            assert_eq!(Value::Object(object(&text).unwrap()), expected);
            let inside = format!(r#"{{"a":[{text}]}}"#);
            assert_eq!(value(&inside).unwrap(), json!({"a": [expected]}));
            assert_eq!(Value::Object(object(&inside).unwrap()), json!({"a": [expected]}));
        }
        let text = format!(r#"{{"{RESERVED}":[1],"b":2}}"#);
        assert_eq!(value(&text).unwrap(), json!({RESERVED: [1], "b": 2}));
        let escaped = value(r#"{"\u0024serde_json::private::RawValue":"[]"}"#).unwrap();
        assert_eq!(escaped, wrapped("[]").1);
    }

    #[test]
    fn of_an_object_what_is_wanted_is_read_and_the_rest_skipped() {
        let (text, expected) = wrapped("[1]");
        let two = format!(r#"{{"a":0,"b":{text},"c":{text},"a":{text}}}"#);
        let read = |text: &str, wanted: &[&str]| members(text, |name| wanted.contains(&name));
        assert_eq!(
            Value::Object(read(&two, &["a", "b", "d"]).unwrap()),
            json!({"a": expected, "b": expected})
        );
        assert_eq!(Value::Object(read(&text, &[RESERVED]).unwrap()), expected);
        assert!(read(&text, &["a"]).unwrap().is_empty());
        // What nothing is made of may be as deep as it likes.
        let deep = format!(r#"{{"a":1,"b":{}{}}}"#, "[".repeat(1_000), "]".repeat(1_000));
        assert_eq!(Value::Object(read(&deep, &["a"]).unwrap()), json!({"a": 1}));
        assert!(read(&deep, &["b"]).is_err());
        for odd in ["[]", "1", "{", r#"{"b":[1,]}"#, "{} 2"] {
            assert!(read(odd, &["a"]).is_err(), "{odd}");
        }
    }

    #[test]
    fn a_value_is_as_deep_as_its_text() {
        fn depth(value: &Value) -> usize {
            match value {
                Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
                Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
                _ => 0,
            }
        }
        let mut text = "[".repeat(100) + &"]".repeat(100);
        for _ in 0..3 {
            text = wrapped(&text).0;
            assert_eq!(depth(&value(&text).unwrap()), 1);
        }
        let too_deep = "[".repeat(1_000) + &"]".repeat(1_000);
        assert!(value(&too_deep).is_err());
    }

    /// Without its feature `float_roundtrip`, `serde_json` takes a neighbour for some.
    #[test]
    fn a_number_is_the_double_nearest_to_it() {
        for text in ["449.49106478873813", "0.1", "1e-7", "5e-324"] {
            let number = value(text).unwrap().as_f64();
            assert_eq!(number, text.parse::<f64>().ok(), "{text}");
        }
    }

    #[test]
    fn what_stands_in_a_shape_is_read_alike_and_may_be_left_out_with_default() {
        #[derive(Debug, PartialEq, Deserialize)]
        struct Shape {
            #[serde(deserialize_with = "foreign")]
            any: Value,
            #[serde(default, deserialize_with = "foreign")]
            perhaps: Option<Map<String, Value>>,
            #[serde(default, deserialize_with = "foreign")]
            shared: Option<Arc<Value>>,
            #[serde(default, deserialize_with = "foreign")]
            named: BTreeMap<String, Value>,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        #[serde(tag = "type")]
        enum Tagged {
            Shape(Shape),
        }
        let (text, inner) = wrapped("1");
        let members = format!(r#""any":{text},"named":{{"a":{text}}},"perhaps":{text},"shared":{text}"#);
        let expected = || Shape {
            any: inner.clone(),
            perhaps: inner.as_object().cloned(),
            shared: Some(Arc::new(inner.clone())),
            named: BTreeMap::from([("a".to_owned(), inner.clone())]),
        };
        let plain = format!("{{{members}}}");
        assert_eq!(crate::read::<Shape>(&plain), Ok(expected()));
        assert_eq!(serde_json::from_str::<Shape>(&plain).unwrap(), expected());
        let tagged = format!(r#"{{{members},"type":"Shape"}}"#);
        assert_eq!(crate::read::<Tagged>(&tagged), Ok(Tagged::Shape(expected())));
        let little = crate::read::<Shape>(r#"{"any":null,"perhaps":null}"#).unwrap();
        assert_eq!((little.any, little.perhaps), (Value::Null, None));
        assert_eq!((little.shared, little.named), (None, BTreeMap::new()));
    }

    #[test]
    fn what_is_something_else_is_refused_where_it_stands() {
        #[derive(Debug, Deserialize)]
        struct Shape {
            #[serde(rename = "object", deserialize_with = "foreign")]
            _object: Map<String, Value>,
        }
        let refusal = |text: &str| crate::read::<Shape>(text).unwrap_err().to_string();
        assert_eq!(
            refusal(r#"{"object":[1]}"#),
            "`/object`: invalid type: array, expected a map"
        );
        assert_eq!(refusal("{}"), "the body: missing field `object`");
        assert!(value("[1,]").is_err() && value("1 2").is_err() && object("[]").is_err());
    }
}
