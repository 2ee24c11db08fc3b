//! Properties that hold for every text: canonical form is unique, keeps the meaning, and nothing makes it panic.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use canon::{Limits, canonicalize, of};
use proptest::prelude::*;
use serde_json::{Map, Value};

const LIMITS: Limits = Limits {
    bytes_max: 1 << 20,
    depth_max: 64,
};

/// Characters whose escapes or order are special, and some that are not.
const CHARACTERS: &str =
    "[a-cA-C0-9\"\\\\/\u{0}\u{8}\t\n\u{1f}\u{7f}é€\u{d7ff}\u{e000}\u{fffe}\u{10000}😂]{0,6}";

/// A value that JSON and a double hold exactly.
fn values() -> impl Strategy<Value = Value> {
    // Sixty-fourths have at most 16 digits, which every parser reads exactly; the rest is the number tests' work.
    let double = any::<i32>().prop_map(|value| Value::from(f64::from(value) / 64.0));
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-(1_i64 << 53)..=1 << 53).prop_map(Value::from),
        double,
        CHARACTERS.prop_map(Value::String),
    ];
    leaf.prop_recursive(5, 48, 8, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::Array),
            prop::collection::vec((CHARACTERS, inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Writes a value with its members turned about, its strings escaped to the last character and space everywhere.
fn spell(value: &Value, out: &mut String) {
    match value {
        Value::String(text) => spell_string(text, out),
        Value::Array(elements) => {
            out.push_str("[ ");
            for (index, element) in elements.iter().enumerate() {
                out.push_str(if index > 0 { "\t,\r" } else { "" });
                spell(element, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (index, (key, member)) in members.iter().rev().enumerate() {
                out.push_str(if index > 0 { " ,\n" } else { "\n" });
                spell_string(key, out);
                out.push_str(" : ");
                spell(member, out);
            }
            out.push_str(" }");
        }
        other => out.push_str(&other.to_string()),
    }
}

fn spell_string(text: &str, out: &mut String) {
    let units = text.encode_utf16().map(|unit| format!("\\u{unit:04X}"));
    out.push('"');
    out.extend(units);
    out.push('"');
}

/// Numbers compare as doubles: `1` and `1.0` are one JSON number.
fn as_doubles(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64().unwrap()),
        Value::Array(elements) => elements.iter().map(as_doubles).collect(),
        Value::Object(members) => {
            let doubles = members
                .iter()
                .map(|(key, member)| (key.clone(), as_doubles(member)));
            Value::Object(doubles.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

fn canonical(json: &str) -> String {
    canonicalize(json.as_bytes(), LIMITS).unwrap().into_string()
}

proptest! {
    #[test]
    fn the_meaning_survives(value in values()) {
        let text = canonical(&value.to_string());
        let read: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(as_doubles(&read), as_doubles(&value));
    }

    #[test]
    fn a_text_is_the_value_that_it_is_for_others(value in values()) {
        let text = value.to_string();
        let read = canon::value(&text).unwrap();
        let by_others: Value = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(read.to_string(), text);
        prop_assert_eq!(read, by_others);
    }

    #[test]
    fn canonical_text_is_its_own_canonical_form(value in values()) {
        let once = canonical(&value.to_string());
        prop_assert_eq!(canonical(&once), once);
    }

    #[test]
    fn spelling_and_order_do_not_matter(value in values()) {
        let mut spelt = String::new();
        spell(&value, &mut spelt);
        let text = canonical(&spelt);
        prop_assert_eq!(&text, &canonical(&value.to_string()));
        prop_assert_eq!(of(&value).unwrap().into_string(), text);
    }

    #[test]
    fn keys_come_out_in_utf16_order(keys in prop::collection::hash_set(CHARACTERS, 0..40)) {
        let members: Map<String, Value> = keys.iter().map(|key| (key.clone(), Value::Null)).collect();
        let mut sorted: Vec<&String> = keys.iter().collect();
        sorted.sort_by_key(|key| key.encode_utf16().collect::<Vec<_>>());
        let expected: Vec<String> = sorted.iter().map(|key| format!("{}:null", serde_json::to_string(key).unwrap())).collect();
        prop_assert_eq!(canonical(&Value::Object(members).to_string()), format!("{{{}}}", expected.join(",")));
    }

    #[test]
    fn a_key_written_twice_is_refused_wherever_it_stands(
        keys in prop::collection::hash_set(CHARACTERS, 1..30),
        again: prop::sample::Index,
        place: prop::sample::Index,
    ) {
        let mut keys: Vec<String> = keys.into_iter().collect();
        let twice = again.get(&keys).clone();
        keys.insert(place.index(keys.len() + 1), twice.clone());
        let mut text = String::new();
        for key in &keys {
            text.push_str(if text.is_empty() { "{" } else { "," });
            spell_string(key, &mut text);
            text.push_str(":0");
        }
        text.push('}');
        let error = canonicalize(text.as_bytes(), LIMITS).unwrap_err();
        prop_assert_eq!(error.kind, canon::ErrorKind::DuplicateKey(twice));
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        check_answer(&bytes)?;
    }

    #[test]
    fn arbitrary_json_like_text_never_panics(text in "[\\[\\]{},:\"\\\\u0-9a-fDd.eE+\\- \ntrlsné😂\u{0}]{0,60}") {
        check_answer(text.as_bytes())?;
    }

    #[test]
    fn a_changed_byte_never_panics(value in values(), place: prop::sample::Index, byte: u8) {
        let mut bytes = value.to_string().into_bytes();
        let place = place.index(bytes.len());
        bytes[place] = byte;
        check_answer(&bytes)?;
        check_answer(&bytes[..place])?;
    }
}

/// Whatever the answer is, another parser agrees with it: all that is accepted is JSON, all that is not JSON is
/// refused, and an error points into the text.
fn check_answer(bytes: &[u8]) -> Result<(), TestCaseError> {
    match canonicalize(bytes, LIMITS) {
        Ok(canonical) => {
            prop_assert!(serde_json::from_slice::<Value>(bytes).is_ok());
            prop_assert_eq!(canonicalize(canonical.as_bytes(), LIMITS).unwrap(), canonical);
        }
        Err(error) => {
            prop_assert!(error.offset.is_some_and(|offset| offset <= bytes.len()));
            let stricter = matches!(error.kind, canon::ErrorKind::DuplicateKey(_));
            prop_assert!(
                stricter || serde_json::from_slice::<Value>(bytes).is_err(),
                "{}",
                error
            );
        }
    }
    Ok(())
}
