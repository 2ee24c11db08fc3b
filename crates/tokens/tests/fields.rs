//! The published tests of structured fields: what is read, what is refused, and how it is written again.
//!
//! They lie beside the repository; without them the tests say so and pass, except where CI promises them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use serde_json::Value;
use std::path::Path;
use tokens::fields::{
    BareItem, Decimal, FIELD_BYTES_MAX, FieldError, InnerList, Item, Member, Parameters, dictionary, item,
    list, write_dictionary, write_item, write_list,
};

/// A whole field.
#[derive(Debug, PartialEq)]
enum Field {
    Item(Item),
    List(Vec<Member>),
    Dictionary(Vec<(String, Member)>),
}

impl Field {
    fn read(kind: &str, text: &str) -> Result<Self, FieldError> {
        Ok(match kind {
            "item" => Self::Item(item(text)?),
            "list" => Self::List(list(text)?),
            "dictionary" => Self::Dictionary(dictionary(text)?),
            other => panic!("no kind `{other}`"),
        })
    }

    fn write(&self) -> Result<String, FieldError> {
        match self {
            Self::Item(item) => write_item(item),
            Self::List(members) => write_list(members),
            Self::Dictionary(members) => write_dictionary(members),
        }
    }

    /// What the tests expect, in their own words.
    fn expected(kind: &str, value: &Value) -> Self {
        match kind {
            "item" => Self::Item(item_of(value)),
            "list" => Self::List(value.as_array().unwrap().iter().map(member_of).collect()),
            _ => Self::Dictionary(pairs_of(value, member_of)),
        }
    }
}

fn pairs_of<T>(value: &Value, of: impl Fn(&Value) -> T) -> Vec<(String, T)> {
    let pairs = value.as_array().unwrap().iter();
    pairs
        .map(|pair| (pair[0].as_str().unwrap().to_owned(), of(&pair[1])))
        .collect()
}

fn parameters_of(value: &Value) -> Parameters {
    pairs_of(value, bare_item_of)
}

fn item_of(value: &Value) -> Item {
    Item {
        value: bare_item_of(&value[0]),
        parameters: parameters_of(&value[1]),
    }
}

fn member_of(value: &Value) -> Member {
    match &value[0] {
        Value::Array(items) => Member::InnerList(InnerList {
            items: items.iter().map(item_of).collect(),
            parameters: parameters_of(&value[1]),
        }),
        _ => Member::Item(item_of(value)),
    }
}

fn bare_item_of(value: &Value) -> BareItem {
    match value {
        Value::Bool(value) => BareItem::Boolean(*value),
        Value::String(text) => BareItem::String(text.clone()),
        Value::Number(number) if number.is_i64() => BareItem::Integer(number.as_i64().unwrap()),
        Value::Number(number) => {
            // A decimal has three digits behind the point at most, so its thousandths are a whole number.
            let (whole, fraction) = number
                .to_string()
                .split_once('.')
                .map(|(a, b)| (a.to_owned(), b.to_owned()))
                .unwrap();
            let thousandths = format!("{whole}{fraction:0<3}").parse().unwrap();
            BareItem::Decimal(Decimal { thousandths })
        }
        Value::Object(typed) => {
            let text = typed["value"].as_str().unwrap();
            match typed["__type"].as_str().unwrap() {
                "token" => BareItem::Token(text.to_owned()),
                "binary" => BareItem::Bytes(base32(text)),
                other => panic!("no type `{other}`"),
            }
        }
        _ => panic!("{value}"),
    }
}

/// RFC 4648, section 6.
fn base32(text: &str) -> Vec<u8> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0_u32, 0);
    for digit in text.trim_end_matches('=').bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            _ => digit - b'2' + 26,
        };
        bits = (bits << 5 | u32::from(value)) & 0xfff;
        count += 5;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).unwrap());
        }
    }
    bytes
}

/// Every test in a folder of the published ones; none where this checkout has none.
fn published(folder: &str) -> Vec<Value> {
    let root = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/vectors/structured-fields"
    ));
    let folder = root.join(folder);
    if !folder.exists() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "{} is missing", folder.display());
        eprintln!("skipped: {} is missing", folder.display());
        return Vec::new();
    }
    let mut tests = Vec::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let text = std::fs::read(&path).unwrap();
            tests.extend(serde_json::from_slice::<Vec<Value>>(&text).unwrap());
        }
    }
    assert!(tests.len() > 100, "only {} tests", tests.len());
    tests
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The lines of a header, joined as a server joins them.
fn joined(lines: &Value) -> String {
    let lines = lines.as_array().unwrap().iter().map(text);
    lines.collect::<Vec<_>>().join(", ")
}

#[test]
fn what_is_published_is_read_and_written_again() {
    for test in published("") {
        let (name, kind) = (text(&test["name"]), text(&test["header_type"]));
        let raw = joined(&test["raw"]);
        let found = Field::read(kind, &raw);
        let must_fail = test["must_fail"] == true;
        if must_fail || (test["can_fail"] == true && found.is_err()) {
            assert!(found.is_err(), "{name}: {raw:?} gives {found:?}");
            continue;
        }
        let found = found.unwrap_or_else(|error| panic!("{name}: {raw:?}: {error}"));
        assert_eq!(found, Field::expected(kind, &test["expected"]), "{name}: {raw:?}");
        let canonical = test.get("canonical").map_or(raw, joined);
        assert_eq!(found.write().unwrap(), canonical, "{name}");
    }
}

#[test]
fn what_no_field_can_hold_is_not_written() {
    for test in published("serialisation-tests") {
        let name = text(&test["name"]);
        // Thousandths are exact: what would have to be rounded cannot even be said.
        if name.contains("round") {
            continue;
        }
        let field = Field::expected(text(&test["header_type"]), &test["expected"]);
        assert_eq!(
            field.write().is_err(),
            test["must_fail"] == true,
            "{name}: {field:?}"
        );
    }
}

#[test]
fn dates_and_display_strings_are_known() {
    let found = dictionary("a=@1659578233, b=%\"f%c3%bc%c3%bc %22\", c=@-1").unwrap();
    let value = |place: usize| match &found[place].1 {
        Member::Item(item) => item.value.clone(),
        Member::InnerList(_) => panic!("no items"),
    };
    assert_eq!(value(0), BareItem::Date(1_659_578_233));
    assert_eq!(value(1), BareItem::DisplayString("füü \"".to_owned()));
    assert_eq!(value(2), BareItem::Date(-1));
    assert_eq!(
        write_dictionary(&found).unwrap(),
        "a=@1659578233, b=%\"f%c3%bc%c3%bc %22\", c=@-1"
    );
    for text in [
        "@1.5", "@", "@x", "%\"%C3\"", "%\"%f\"", "%\"%ff\"", "%x", "%\"ü\"", "%\"a",
    ] {
        assert!(item(text).is_err(), "{text}");
    }
}

#[test]
fn an_error_says_what_is_expected_and_where() {
    let error = dictionary("a=1, b=\"x").unwrap_err();
    assert_eq!(
        error.to_string(),
        "visible ASCII, and a closing quote is expected at byte 9"
    );
    let long = "a".repeat(FIELD_BYTES_MAX + 1);
    assert_eq!(item(&long), Err(FieldError::TooLong));
}
