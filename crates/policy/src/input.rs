//! A JSON value as a Cedar value of a known type, or where and why it is not one.

use crate::json_schema::{Record, Shape};
use crate::members;
use cedar_policy_core::ast::{self, Name, PartialValue};
use cedar_policy_core::extensions::Extensions;
use serde_json::{Map, Number, Value};
use std::sync::LazyLock;

/// Ten thousandths: Cedar's decimals are integers of 64 bits of them.
const DECIMAL_PLACES: usize = 4;

static DECIMAL: LazyLock<Name> = LazyLock::new(|| function("decimal"));
static DATETIME: LazyLock<Name> = LazyLock::new(|| function("datetime"));

fn function(name: &str) -> Name {
    Name::parse_unqualified_name(name).expect("the word is an identifier")
}

/// Where a value does not have its type, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// An RFC 6901 pointer.
    pub(crate) pointer: String,
    /// It completes the sentence "the value …" and never repeats the value.
    pub(crate) detail: &'static str,
}

impl Mismatch {
    fn here(detail: &'static str) -> Self {
        Self {
            pointer: String::new(),
            detail,
        }
    }

    fn inside(mut self, segment: &str) -> Self {
        let segment = segment.replace('~', "~0").replace('/', "~1");
        self.pointer.insert_str(0, &format!("/{segment}"));
        self
    }
}

/// The members of an object that have a type. Others are not visible to policies.
pub(crate) fn record(members: &Record, object: &Map<String, Value>) -> Result<ast::Value, Mismatch> {
    let mut pairs = Vec::with_capacity(members.len());
    for (name, member) in members {
        match object.get(name) {
            None | Some(Value::Null) if !member.required => {}
            None => return Err(Mismatch::here("is required").inside(name)),
            Some(value) => {
                let value = typed(&member.shape, value).map_err(|mismatch| mismatch.inside(name))?;
                pairs.push((name.as_str(), value));
            }
        }
    }
    Ok(members::record(pairs))
}

/// The value as one of this type.
pub(crate) fn typed(shape: &Shape, value: &Value) -> Result<ast::Value, Mismatch> {
    match (shape, value) {
        (Shape::String, Value::String(text)) => Ok(text.as_str().into()),
        (Shape::Bool, Value::Bool(truth)) => Ok((*truth).into()),
        (Shape::Long, Value::Number(number)) => long(number),
        (Shape::Decimal, Value::Number(number)) => decimal(number),
        (Shape::Set(items), Value::Array(values)) => set(items, values),
        (Shape::Record(members), Value::Object(object)) => record(members, object),
        _ => Err(Mismatch::here(match shape {
            Shape::String => "is not a string",
            Shape::Bool => "is not a boolean",
            Shape::Long => "is not an integer",
            Shape::Decimal => "is not a number",
            Shape::Set(_) => "is not an array",
            Shape::Record(_) => "is not an object",
        })),
    }
}

fn long(number: &Number) -> Result<ast::Value, Mismatch> {
    match number.as_i64() {
        Some(integer) => Ok(integer.into()),
        None => Err(Mismatch::here("is not an integer of 64 bits")),
    }
}

fn decimal(number: &Number) -> Result<ast::Value, Mismatch> {
    const UNFIT: &str = "has more than four decimal places or too many digits, so policies cannot judge it";
    // Shortest digits that give the number back, never with an exponent: `98.7`, `4`, `0.0000001`.
    let text = number.as_f64().map(|float| float.to_string()).unwrap_or_default();
    let text = if number.is_f64() { text } else { number.to_string() };
    let (whole, places) = text.split_once('.').unwrap_or((&text, "0"));
    let ten_thousandths = format!("{whole}{places:0<DECIMAL_PLACES$}").parse::<i64>();
    if places.len() > DECIMAL_PLACES || ten_thousandths.is_err() {
        return Err(Mismatch::here(UNFIT));
    }
    called(&DECIMAL, &format!("{whole}.{places}")).ok_or(Mismatch::here(UNFIT))
}

/// A point in time, from the text that Cedar reads: RFC 3339 in UTC with milliseconds.
pub(crate) fn datetime(text: &str) -> Option<ast::Value> {
    called(&DATETIME, text)
}

/// What this function of Cedar's makes of a text.
fn called(function: &Name, text: &str) -> Option<ast::Value> {
    match Extensions::all_available()
        .func(function)
        .ok()?
        .call(&[text.into()])
    {
        Ok(PartialValue::Value(value)) => Some(value),
        Ok(PartialValue::Residual(_)) | Err(_) => None,
    }
}

fn set(items: &Shape, values: &[Value]) -> Result<ast::Value, Mismatch> {
    let members = values
        .iter()
        .enumerate()
        .map(|(index, value)| typed(items, value).map_err(|mismatch| mismatch.inside(&index.to_string())));
    Ok(ast::Value::set(members.collect::<Result<Vec<_>, _>>()?, None))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_schema::{Member, record_of};
    use cedar_policy::EvalResult;
    use serde_json::json;

    /// What a policy sees.
    fn seen(shape: &Shape, value: &Value) -> Result<String, Mismatch> {
        Ok(match EvalResult::from(typed(shape, value)?) {
            EvalResult::ExtensionValue(text) => text,
            other => other.to_string(),
        })
    }

    #[test]
    fn plain_values_arrive_as_they_are() {
        assert_eq!(
            seen(&Shape::String, &json!("a\"b\\c\u{1F600}")).unwrap(),
            r#""a\"b\\c😀""#
        );
        assert_eq!(
            seen(&Shape::Long, &json!(i64::MIN)).unwrap(),
            i64::MIN.to_string()
        );
        assert_eq!(seen(&Shape::Bool, &json!(false)).unwrap(), "false");
        let strings = Shape::Set(Box::new(Shape::String));
        assert_eq!(seen(&strings, &json!(["a", "a"])).unwrap(), r#"["a"]"#);
        assert_eq!(seen(&strings, &json!([])).unwrap(), "[]");
    }

    #[test]
    fn numbers_become_decimals_exactly_or_not_at_all() {
        for (number, text) in [
            ("98.7", "98.7"),
            ("4", "4.0"),
            ("-0.0001", "-0.0001"),
            ("-0.5", "-0.5"),
            ("0", "0.0"),
            ("922337203685477", "922337203685477.0"),
        ] {
            let value: Value = serde_json::from_str(number).unwrap();
            assert!(seen(&Shape::Decimal, &value).unwrap().contains(text), "{number}");
        }
        for number in [
            "0.00001",
            "1.23456",
            "1e21",
            "1e-7",
            "922337203685478",
            "18446744073709551615",
            "1e300",
        ] {
            let value: Value = serde_json::from_str(number).unwrap();
            let mismatch = seen(&Shape::Decimal, &value).unwrap_err();
            assert!(mismatch.detail.contains("four decimal places"), "{number}");
        }
    }

    #[test]
    fn an_integer_beyond_64_bits_is_no_long() {
        for number in ["9223372036854775808", "1e21", "1.5", "-1e19"] {
            let value: Value = serde_json::from_str(number).unwrap();
            assert_eq!(
                seen(&Shape::Long, &value).unwrap_err().detail,
                "is not an integer of 64 bits"
            );
        }
    }

    #[test]
    fn a_mismatch_is_pointed_at() {
        let shape = Shape::Record(record_of(&json!({"properties": {"a/b~c": {
            "type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}})));
        let mismatch = |value: Value| seen(&shape, &value).unwrap_err();
        assert_eq!(
            mismatch(json!({"a/b~c": [{"n": 1}, {"n": "secret"}]})).pointer,
            "/a~1b~0c/1/n"
        );
        assert_eq!(
            mismatch(json!({"a/b~c": [{}]})),
            Mismatch {
                pointer: "/a~1b~0c/0/n".into(),
                detail: "is required",
            }
        );
        assert_eq!(mismatch(json!({"a/b~c": {}})).detail, "is not an array");
    }

    #[test]
    fn null_and_absent_are_the_same_for_a_member_that_need_not_be_there() {
        let member = Member {
            shape: Shape::String,
            required: false,
        };
        let shape = Shape::Record(Record::from([("x".to_owned(), member)]));
        for value in [json!({}), json!({"x": null}), json!({"unseen": 1})] {
            assert_eq!(seen(&shape, &value).unwrap(), "{}");
        }
    }
}
