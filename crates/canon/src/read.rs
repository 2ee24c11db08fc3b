//! Reading a shape from JSON text, strictly: a struct is an object, an enum is a word, and an error says where and what
//! in plain words.
//!
//! The text is not canonicalized here, and what the shape means is the caller's business.

use serde::{Deserialize, Deserializer};

use crate::error::Clipped;
use crate::strict::Strict;

/// Longest part of a detail. One is what was found, which may be a text of the caller's, and one what was expected.
const PART_CHARS_MAX: usize = 1_000;

/// How `serde` names the types that requests are made of, and how a person would.
const PLAIN_WORDS: [(&str, &str); 10] = [
    ("expected u64", "expected a whole number that is not negative"),
    ("expected u32", "expected a whole number from 0 to 4294967295"),
    ("expected u16", "expected a whole number from 0 to 65535"),
    ("expected i64", "expected a whole number"),
    ("expected f64", "expected a number"),
    ("expected a nonzero u64", "expected a whole number from 1 on"),
    (
        "expected a nonzero u32",
        "expected a whole number from 1 to 4294967295",
    ),
    (
        "expected a nonzero u16",
        "expected a whole number from 1 to 65535",
    ),
    ("expected any valid JSON value", "expected a value"),
    ("expected a sequence", "expected an array"),
];

/// Why a text does not have the shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {detail}", self.place())]
pub struct ReadError {
    /// Where, as a JSON Pointer (RFC 6901); empty for the whole text. A message repeats its beginning.
    pub pointer: String,
    /// What is wrong there. Of a long text it has the beginning.
    pub detail: String,
    /// Whether a member is there that the shape does not know.
    pub is_unknown_field: bool,
}

impl ReadError {
    /// The place in words.
    fn place(&self) -> String {
        if self.pointer.is_empty() {
            "the body".to_owned()
        } else {
            format!("`{}`", Clipped(&self.pointer))
        }
    }
}

/// Reads a shape from JSON text.
///
/// # Errors
/// The text does not have the shape. It is then read a second time to say where, so only failing costs twice.
pub fn read<'text, T: Deserialize<'text>>(text: &'text str) -> Result<T, ReadError> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let value = T::deserialize(Strict(&mut deserializer)).map_err(|_| locate::<T>(text))?;
    deserializer
        .end()
        .map_err(|error| describe(String::new(), &error))?;
    Ok(value)
}

/// Reads a member that is given by whoever means it: with `default` it may be left out, but it is not `null`.
///
/// # Errors
/// It is `null`, or something else that it cannot be.
pub fn sent<'de, D: Deserializer<'de>, T: Deserialize<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    T::deserialize(deserializer).map(Some)
}

fn locate<'text, T: Deserialize<'text>>(text: &'text str) -> ReadError {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, T>(Strict(&mut deserializer)) {
        Ok(_) => ReadError {
            pointer: String::new(),
            detail: "the text does not have the expected shape".to_owned(),
            is_unknown_field: false,
        },
        Err(error) => {
            let pointer = error.path().iter().fold(String::new(), |pointer, segment| {
                let segment = segment.to_string();
                // An index is written `[0]` there and `0` in a JSON Pointer.
                let index = segment.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
                let token = index.unwrap_or(&segment).replace('~', "~0").replace('/', "~1");
                pointer + "/" + &token
            });
            describe(pointer, error.inner())
        }
    }
}

fn describe(pointer: String, error: &serde_json::Error) -> ReadError {
    let message = error.to_string();
    // The position is one in a text that the caller may never have seen.
    let message = message
        .rsplit_once(" at line ")
        .map_or(message.as_str(), |(detail, _)| detail);
    ReadError {
        pointer,
        is_unknown_field: message.starts_with("unknown field"),
        detail: clipped(&in_plain_words(message)),
    }
}

/// A detail in which no part is too long. What is expected stands at its end.
fn clipped(detail: &str) -> String {
    let end = detail.rfind(", expected ").unwrap_or(detail.len());
    let (found, expected) = detail.split_at(end);
    clipped_part(found) + &clipped_part(expected)
}

/// The beginning of a part that is too long, and the quote that ends it.
fn clipped_part(part: &str) -> String {
    let Some((end, _)) = part.char_indices().nth(PART_CHARS_MAX) else {
        return part.to_owned();
    };
    let quote = part.chars().next_back().filter(|last| matches!(last, '`' | '"'));
    part[..end].chars().chain(['…']).chain(quote).collect()
}

/// What `serde` says is wrong, without the names of types.
#[must_use]
pub fn in_plain_words(message: &str) -> String {
    if let Some((found, _)) = message.split_once(", expected struct ") {
        return format!("{found}, expected an object").replace("sequence", "array");
    }
    let known = PLAIN_WORDS.iter().find(|(rust, _)| message.ends_with(rust));
    known
        .map_or_else(
            || message.to_owned(),
            |(rust, plain)| format!("{}{plain}", message.strip_suffix(rust).unwrap_or(message)),
        )
        .replace("invalid type: sequence", "invalid type: array")
        .replace("invalid type: map", "invalid type: object")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::value::RawValue;
    use std::collections::BTreeMap;

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Shape<'a> {
        inner: Inner,
        list: Option<Vec<Inner>>,
        #[serde(borrow)]
        raw: Option<&'a RawValue>,
    }

    #[derive(Deserialize, Debug)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        count: u32,
    }

    fn error(text: &str) -> String {
        read::<Shape<'_>>(text).unwrap_err().to_string()
    }

    #[test]
    fn what_has_the_shape_is_read_and_raw_values_stay_as_they_are() {
        let shape: Shape<'_> =
            read(r#"{"inner":{"count":3},"list":[{"count":4}],"raw":{"a":[1.50]}}"#).unwrap();
        assert_eq!((shape.inner.count, shape.list.unwrap()[0].count), (3, 4));
        assert_eq!(shape.raw.unwrap().get(), r#"{"a":[1.50]}"#);
    }

    #[test]
    fn a_member_may_be_left_out_and_still_not_be_null() {
        #[derive(Deserialize, Debug)]
        #[serde(deny_unknown_fields)]
        struct Filter {
            #[serde(default, deserialize_with = "sent")]
            name: Option<String>,
        }
        let name = |text| read::<Filter>(text).map(|filter| filter.name);
        assert_eq!(name("{}"), Ok(None));
        assert_eq!(name(r#"{"name":"a"}"#), Ok(Some("a".to_owned())));
        let error = name(r#"{"name":null}"#).unwrap_err();
        assert_eq!(
            error.to_string(),
            "`/name`: invalid type: null, expected a string"
        );
    }

    #[test]
    fn an_array_is_no_object_however_deep() {
        assert_eq!(
            error("[{\"count\":3}]"),
            "the body: invalid type: array, expected an object"
        );
        assert_eq!(
            error(r#"{"inner":[3]}"#),
            "`/inner`: invalid type: array, expected an object"
        );
        assert_eq!(
            error(r#"{"inner":{"count":3},"list":[[4]]}"#),
            "`/list/0`: invalid type: array, expected an object"
        );
    }

    #[test]
    fn an_error_names_the_place_in_plain_words() {
        assert_eq!(
            error(r#"{"inner":{"count":"three"}}"#),
            "`/inner/count`: invalid type: string \"three\", expected a whole number from 0 to 4294967295"
        );
        assert_eq!(
            error(r#"{"inner":{"count":3,"cuont":4}}"#),
            "`/inner/cuont`: unknown field `cuont`, expected `count`"
        );
        assert_eq!(error("{}"), "the body: missing field `inner`");
        assert_eq!(
            error(r#"{"inner":{"count":3}} x"#),
            "the body: trailing characters"
        );
    }

    #[derive(Deserialize, Debug, PartialEq, Eq, PartialOrd, Ord)]
    #[serde(rename_all = "snake_case")]
    enum Word {
        First,
        Second,
        Third,
    }

    #[test]
    fn what_is_no_word_is_told_which_words_there_are() {
        for (value, found) in [
            ("null", "invalid type: null"),
            ("true", "invalid type: boolean `true`"),
            ("1.5", "invalid type: floating point `1.5`"),
            ("[]", "invalid type: array"),
            ("{}", "invalid type: object"),
            (r#"{"first":null}"#, "invalid type: object"),
            (r#"{"fourth":1}"#, "invalid type: object"),
            ("\"fourth\"", "unknown variant `fourth`"),
        ] {
            let text = format!("{{\"a/b\":[\"first\",{value}]}}");
            let error = read::<BTreeMap<String, Vec<Word>>>(&text).unwrap_err();
            assert_eq!(
                error.to_string(),
                format!("`/a~1b/1`: {found}, expected one of `first`, `second`, `third`")
            );
        }
        assert_eq!(
            read::<Word>("0").unwrap_err().to_string(),
            "the body: invalid type: integer `0`, expected one of `first`, `second`, `third`"
        );
    }

    #[test]
    fn a_word_is_read_as_a_value_as_a_key_and_however_it_is_escaped() {
        assert_eq!(
            read::<Vec<Option<Word>>>(r#"["first",null,"s\u0065cond"]"#),
            Ok(vec![Some(Word::First), None, Some(Word::Second)])
        );
        assert_eq!(
            read::<BTreeMap<Word, u32>>(r#"{"third":3,"\u0066irst":1}"#),
            Ok(BTreeMap::from([(Word::First, 1), (Word::Third, 3)]))
        );
        assert!(read::<BTreeMap<Word, u32>>(r#"{"fourth":4}"#).is_err());
    }

    #[test]
    fn of_a_long_text_that_is_wrong_little_is_repeated() {
        let long = "é".repeat(100_000);
        let unknown_field = error(&format!(r#"{{"inner":{{"count":3,"{long}":4}}}}"#));
        let no_number = error(&format!(r#"{{"inner":{{"count":"{long}"}}}}"#));
        let no_word = read::<Word>(&format!("\"{long}\"")).unwrap_err().to_string();
        for (error, start, end) in [
            (unknown_field, "`/inner/éé", "é…`, expected `count`"),
            (
                no_number,
                "`/inner/count`: invalid type: string \"éé",
                "é…\", expected a whole number from 0 to 4294967295",
            ),
            (
                no_word,
                "the body: unknown variant `éé",
                "é…`, expected one of `first`, `second`, `third`",
            ),
        ] {
            assert!(error.starts_with(start), "{error}");
            assert!(error.ends_with(end), "{error}");
            assert!(error.chars().count() < 1_500, "{error}");
        }
    }

    #[test]
    fn no_type_of_a_number_is_named() {
        fn detail<'a, T: Deserialize<'a> + std::fmt::Debug>(text: &'a str) -> String {
            read::<T>(text).unwrap_err().detail
        }
        use std::num::{NonZeroU16, NonZeroU32, NonZeroU64};
        let details = [
            detail::<u64>("-1"),
            detail::<u32>("true"),
            detail::<u16>("{}"),
            detail::<i64>("[]"),
            detail::<f64>("null"),
            detail::<NonZeroU64>("0"),
            detail::<NonZeroU32>("0"),
            detail::<NonZeroU16>("0"),
        ];
        for detail in &details {
            assert!(!detail.contains("nonzero"), "{detail}");
            let (_, expected) = detail.split_once("expected ").unwrap();
            assert!(
                expected.starts_with("a whole number") || expected == "a number",
                "{detail}"
            );
        }
        assert_eq!(
            details[5],
            "invalid value: integer `0`, expected a whole number from 1 on"
        );
    }

    #[test]
    fn an_unknown_field_is_told_from_a_wrong_one() {
        assert!(
            read::<Inner>(r#"{"count":3,"x":1}"#)
                .unwrap_err()
                .is_unknown_field
        );
        assert!(!read::<Inner>("{}").unwrap_err().is_unknown_field);
    }
}
