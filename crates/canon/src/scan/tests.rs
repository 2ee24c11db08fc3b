//! What is accepted, what it becomes, and where the rest is refused.

use proptest::prelude::*;
use serde_json::Value;
use std::collections::BTreeMap;

use super::{Integers, Limits, ORDERED_PER_BYTE_MAX, Rules, Scanner, canonicalize, canonicalize_sent};
use crate::ErrorKind;

const LIMITS: Limits = Limits {
    bytes_max: 1 << 20,
    depth_max: 64,
};

fn canonical(json: &str) -> String {
    canonicalize(json.as_bytes(), LIMITS)
        .unwrap_or_else(|error| panic!("{json}: {error}"))
        .into_string()
}

/// The refusal of `json` as its sender reads it.
fn refusal(json: &[u8]) -> String {
    canonicalize(json, LIMITS)
        .expect_err("has no canonical form")
        .to_string()
}

#[test]
fn members_are_sorted_and_white_space_goes() {
    for (json, expected) in [
        ("{}", "{}"),
        (" [ ] \n", "[]"),
        ("\t\r\n null ", "null"),
        (r#"{"b":1,"a":2}"#, r#"{"a":2,"b":1}"#),
        (r#"{"a":2, "b" : 1}"#, r#"{"a":2,"b":1}"#),
        (
            r#"{"b":{"d":1,"c":[{"f":1,"e":2}]},"a":[3,1,2]}"#,
            r#"{"a":[3,1,2],"b":{"c":[{"e":2,"f":1}],"d":1}}"#,
        ),
        (r#"{"":1,"A":2,"a":3,"aa":4}"#, r#"{"":1,"A":2,"a":3,"aa":4}"#),
        (r#"{"10":1,"9":2,"1":3}"#, r#"{"1":3,"10":1,"9":2}"#),
        (
            r#"{"c":1,"a":{"z":1,"y":2},"b":1}"#,
            r#"{"a":{"y":2,"z":1},"b":1,"c":1}"#,
        ),
    ] {
        assert_eq!(canonical(json), expected);
    }
}

#[test]
fn keys_are_sorted_by_utf16_code_units_of_what_they_mean() {
    // U+1F602 begins with the code unit D83D and so comes before U+FB33, although its code point is larger.
    assert_eq!(
        canonical(r#"{"\ufb33":1,"\ud83d\ude02":2}"#),
        "{\"😂\":2,\"\u{fb33}\":1}"
    );
    // Escaped, `\u0041` is A; `\n` sorts as U+000A and not as a backslash.
    assert_eq!(
        canonical(r#"{"a":1,"\u0041":2,"!":3,"\n":4}"#),
        r#"{"\n":4,"!":3,"A":2,"a":1}"#
    );
}

#[test]
fn strings_keep_their_meaning_and_lose_their_spelling() {
    assert_eq!(canonical(r#""\/\u0061\u00e9\u20AC\ud83d\ude02""#), "\"/aé€😂\"");
    assert_eq!(
        canonical(r#""\u0008\u0009\u000a\u000c\u000d\u0022\u005c\u001F""#),
        r#""\b\t\n\f\r\"\\\u001f""#
    );
    assert_eq!(
        canonical("\"\u{7f}\u{2028}\u{fffe}\""),
        "\"\u{7f}\u{2028}\u{fffe}\""
    );
    // Unicode forms are different texts: nothing is normalized.
    assert_eq!(canonical("\"A\u{30a}\""), "\"A\u{30a}\"");
}

#[test]
fn a_refusal_says_what_and_where() {
    for (json, expected) in [
        ("", "unexpected end at the top level (byte 0)"),
        ("[1", "unexpected end at the top level (byte 2)"),
        (r#"{"a":"#, "unexpected end at `/a` (byte 5)"),
        (
            r#"{"a":{"b":[1,x]}}"#,
            "unexpected 'x', expected a value at `/a/b/1` (byte 13)",
        ),
        (
            r#"{"a" 1}"#,
            "unexpected '1', expected `:` at the top level (byte 5)",
        ),
        (
            r#"{"a":1,}"#,
            "unexpected '}', expected a key in double quotes at the top level (byte 7)",
        ),
        (
            "[1 2]",
            "unexpected '2', expected `,` or `]` at the top level (byte 3)",
        ),
        ("[1,]", "unexpected ']', expected a value at `/1` (byte 3)"),
        ("[nulé]", "unexpected 'é', expected null at `/0` (byte 4)"),
        (
            "1 1",
            "trailing characters after the value at the top level (byte 2)",
        ),
        (
            "\u{feff}1",
            "unexpected '\\u{feff}', expected a value at the top level (byte 0)",
        ),
        ("[01]", "invalid number at `/0` (byte 1)"),
        ("[1.]", "invalid number at `/0` (byte 1)"),
        ("[-a]", "invalid number at `/0` (byte 1)"),
        ("[1e+]", "invalid number at `/0` (byte 1)"),
        ("-", "unexpected end at the top level (byte 1)"),
        (
            "NaN",
            "unexpected 'N', expected a value at the top level (byte 0)",
        ),
        ("-Infinity", "invalid number at the top level (byte 0)"),
        (
            r#"{"n":1e400}"#,
            "number out of range of a double at `/n` (byte 5)",
        ),
        (
            "\"a\nb\"",
            "unescaped control character in a string at the top level (byte 2)",
        ),
        (r#""\x""#, "invalid escape in a string at the top level (byte 1)"),
        (
            r#""\u00g0""#,
            "invalid escape in a string at the top level (byte 1)",
        ),
        (r#""\u00"#, "unexpected end at the top level (byte 5)"),
        (r#"{"a":"\ud83d"}"#, "lone surrogate in a string at `/a` (byte 6)"),
        (
            r#"["\ud83d\u0041"]"#,
            "lone surrogate in a string at `/0` (byte 2)",
        ),
        (
            r#"["\ude02\ud83d"]"#,
            "lone surrogate in a string at `/0` (byte 2)",
        ),
    ] {
        assert_eq!(refusal(json.as_bytes()), expected, "{json}");
    }
}

#[test]
fn a_key_may_stand_once_however_it_is_spelt() {
    for (json, expected) in [
        (r#"{"a":1,"a":1}"#, "duplicate key `a` at the top level (byte 7)"),
        (
            r#"{"a":1,"\u0061":2}"#,
            "duplicate key `a` at the top level (byte 7)",
        ),
        (
            r#"{"a":1,"b":2,"a":3}"#,
            "duplicate key `a` at the top level (byte 13)",
        ),
        (
            r#"{"c":1,"b":2,"c":3,"a":4,"c":5}"#,
            "duplicate key `c` at the top level (byte 13)",
        ),
        (
            r#"{"t":{"p":{"é":1,"\u00e9":2}}}"#,
            "duplicate key `é` at `/t/p` (byte 18)",
        ),
        (
            r#"{"a/b":[{"\"":1,"\u0022":2}]}"#,
            "duplicate key `\"` at `/a~1b/0` (byte 16)",
        ),
    ] {
        assert_eq!(refusal(json.as_bytes()), expected, "{json}");
    }
    assert_eq!(
        canonical(r#"[{"a":1},{"a":{"a":2}}]"#),
        r#"[{"a":1},{"a":{"a":2}}]"#
    );
}

#[test]
fn bytes_that_are_not_utf8_are_refused_where_they_stand() {
    assert_eq!(refusal(b"{\"a\":[\"\xff\"]}"), "invalid UTF-8 at `/a/0` (byte 7)");
    assert_eq!(
        refusal(b"\"\xed\xa0\x80\""),
        "invalid UTF-8 at the top level (byte 1)"
    );
    assert_eq!(refusal(b"1 \xff"), "invalid UTF-8 at the top level (byte 2)");
    assert_eq!(
        refusal(b"[x\xff"),
        "unexpected 'x', expected a value at `/0` (byte 1)"
    );
}

#[test]
fn limits_hold_exactly() {
    let limits = Limits {
        bytes_max: 6,
        depth_max: 2,
    };
    assert!(canonicalize(b"[[1]] ", limits).is_ok());
    let error = canonicalize(b"[[1]]  ", limits).unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge { bytes_max: 6 });
    let error = canonicalize(b"[[[]]]", limits).unwrap_err();
    assert_eq!(error.to_string(), "nesting deeper than 2 at `/0/0` (byte 2)");
    assert!(
        canonicalize(
            b"7",
            Limits {
                bytes_max: 1,
                depth_max: 0
            }
        )
        .is_ok()
    );
    // Depth is what is open at once, not how many there are.
    assert!(
        canonicalize(
            b"[[],{}]",
            Limits {
                bytes_max: 9,
                depth_max: 2
            }
        )
        .is_ok()
    );
}

#[test]
fn nesting_stops_before_the_stack_does() {
    let limits = Limits {
        bytes_max: usize::MAX,
        depth_max: usize::MAX,
    };
    for open in ["[", r#"{"":"#] {
        let error = canonicalize(open.repeat(100_000).as_bytes(), limits).unwrap_err();
        assert_eq!(error.kind, ErrorKind::TooDeep { depth_max: 256 });
    }
}

#[test]
fn what_is_sent_has_no_key_by_which_an_object_is_read_as_something_else() {
    let refused = |json: &str| {
        let sent = canonicalize_sent(json.as_bytes(), LIMITS, Integers::Rounded);
        assert_eq!(canonical(json), canonical(&canonical(json)), "it may be recorded");
        sent.err().map(|error| error.to_string())
    };
    for (json, place) in [
        (
            r#"{"$serde_json::private::RawValue":"[]"}"#,
            "at the top level (byte 1)",
        ),
        (
            r#"[{"a":1,"b":{"\u0024serde_json::private::RawVal\u0075e":1}}]"#,
            "at `/0/b` (byte 13)",
        ),
    ] {
        let expected = format!(
            "key `$serde_json::private::RawValue` that some programs read as something else; give it another name \
             {place}"
        );
        assert_eq!(refused(json), Some(expected), "{json}");
    }
    assert!(refused(r#"{"z":1,"$serde_json::private::Number":"1"}"#).is_some());
    for json in [
        r#"["$serde_json::private::RawValue"]"#,
        r#"{"a":"\"$serde_json::private::RawValue\":"}"#,
        r#"{"\"$serde_json::private::RawValue":1}"#,
        r#"{"$serde_json":1,"$serde_json::private:":2,"$serde_j":3,"$schema":4}"#,
    ] {
        assert_eq!(refused(json), None, "{json}");
    }
}

#[test]
fn an_integer_is_refused_for_its_digits_though_a_double_holds_it() {
    let sent = canonicalize_sent(br#"{"a":9223372036854775808}"#, LIMITS, Integers::Exact);
    assert_eq!(
        sent.unwrap_err().to_string(),
        "integer that canonical JSON writes with other digits; send it as text at `/a` (byte 5)"
    );
}

#[test]
fn of_the_integers_in_a_schema_only_bounds_are_rounded() {
    let refused_at = |json: &str| {
        let json = json.replace('#', "9007199254740993");
        let canonical = canonicalize_sent(json.as_bytes(), LIMITS, Integers::ExactButForBounds);
        canonical.err().map(|error| {
            assert_eq!(error.kind, ErrorKind::InexactInteger, "{json}");
            error.pointer
        })
    };
    for json in [
        r#"{"maximum":#}"#,
        r#"[{"z":{"a":1},"minimum" : #,"a":[{"multipleOf":#}]}]"#,
        r#"{"properties":{"default":{"maxLength":#}}}"#,
        r#"{"properties":{"properties":{"items":{"exclusiveMaximum":#}}}}"#,
        r#"{"const":{"a":1},"items":[{"enum":[1]},{"a":{"default":{"b":0},"c":0},"maximum":#}]}"#,
    ] {
        assert_eq!(refused_at(json), None, "{json}");
    }
    for (json, pointer) in [
        ("#", ""),
        (r#"{"const":#}"#, "/const"),
        (r#"{"maximum":1,"default":#}"#, "/default"),
        (r#"{"maximum":[#]}"#, "/maximum/0"),
        (r#"{"enum":[{"maximum":#}]}"#, "/enum/0/maximum"),
        (r#"{"properties":{"maximum":#}}"#, "/properties/maximum"),
        (r#"{"_meta":{"maximum":#}}"#, "/_meta/maximum"),
        (r#"{"x\"maximum":#}"#, "/x\"maximum"),
        (
            r#"{"a":{"b":0},"default":{"c":{"d":0},"e":[{"f":0,"maximum":#}]}}"#,
            "/default/e/0/maximum",
        ),
    ] {
        assert_eq!(refused_at(json).as_deref(), Some(pointer), "{json}");
    }
}

/// The canonical form where so many bytes are put in order before the end, and how many more there might have been.
fn ordered(json: &str, ordered_max: usize) -> (String, usize) {
    let rules = Rules {
        integers: Integers::Rounded,
        refuses_reserved_keys: false,
    };
    let mut scanner = Scanner::new(json, LIMITS, rules);
    scanner.ordered_left = ordered_max;
    assert!(scanner.document().is_ok(), "{json}");
    let out = scanner.deferred.put_in_order(scanner.out);
    (String::from_utf8(out).unwrap(), scanner.ordered_left)
}

#[test]
fn what_is_inside_many_objects_out_of_order_is_not_copied_once_for_each() {
    const LEVELS: usize = 60;
    let long = "x".repeat(10_000);
    let nested = |open: &str, close: &str| {
        let (open, close) = (open.repeat(LEVELS), close.repeat(LEVELS));
        format!("{open}\"{long}\"{close}")
    };
    let json = nested(r#"{"b":"#, r#","a":0}"#);
    let expected = nested(r#"{"a":0,"b":"#, "}");
    assert_eq!(canonical(&json), expected);
    let ordered_max = ORDERED_PER_BYTE_MAX * json.len();
    let (text, left) = ordered(&json, ordered_max);
    assert_eq!(text, expected);
    assert!(left < json.len(), "the rest waited for the end");
    let (text, left) = ordered(&json, usize::MAX);
    assert_eq!(text, expected);
    assert!(usize::MAX - left > LEVELS * long.len());
}

/// A text that comes of these numbers. Few of its objects are in order.
fn spelt(numbers: &mut impl Iterator<Item = u8>, depth_left: usize) -> String {
    let Some(number) = numbers.next().filter(|_| depth_left > 0) else {
        return "null".to_owned();
    };
    let mut parts = Vec::new();
    for place in 0..number / 4 % 6 {
        let part = spelt(numbers, depth_left - 1);
        parts.push(if number % 4 == 1 {
            part
        } else {
            format!("\"{}\":{part}", (2 * place + number % 5) % 5)
        });
    }
    let parts = parts.join(",");
    match number % 4 {
        0 => number.to_string(),
        1 => format!("[{parts}]"),
        _ => format!("{{{parts}}}"),
    }
}

/// A value whose keys are ASCII, with its members in order.
fn in_order(value: &Value) -> String {
    match value {
        Value::Array(elements) => {
            let elements: Vec<_> = elements.iter().map(in_order).collect();
            format!("[{}]", elements.join(","))
        }
        Value::Object(members) => {
            let members: BTreeMap<_, _> = members.iter().collect();
            let members = members.into_iter();
            let members: Vec<_> = members
                .map(|(key, member)| format!("\"{key}\":{}", in_order(member)))
                .collect();
            format!("{{{}}}", members.join(","))
        }
        other => other.to_string(),
    }
}

proptest! {
    #[test]
    fn objects_are_in_order_whenever_they_are_put_in_order(numbers in prop::collection::vec(any::<u8>(), 0..300)) {
        let json = spelt(&mut numbers.into_iter(), LIMITS.depth_max);
        let expected = in_order(&serde_json::from_str(&json).unwrap());
        prop_assert_eq!(&canonical(&json), &expected);
        for ordered_max in [0, 10, 100, json.len(), usize::MAX] {
            prop_assert_eq!(&ordered(&json, ordered_max).0, &expected);
        }
    }
}
