//! What a schema's type is, keyword by keyword.

use super::*;
use serde_json::json;

fn of(property: &Value) -> Option<Member> {
    let schema = json!({"type": "object", "properties": {"x": property}, "required": ["x"]});
    record_of(&schema).remove("x")
}

fn required(shape: Shape) -> Member {
    Member {
        shape,
        required: true,
    }
}

fn optional(shape: Shape) -> Member {
    Member {
        shape,
        required: false,
    }
}

#[test]
fn every_plain_type_has_a_cedar_type() {
    let cases = [
        (json!({"type": "string", "format": "date"}), Shape::String),
        (json!({"type": "integer", "minimum": 0}), Shape::Long),
        (json!({"type": "boolean"}), Shape::Bool),
        (json!({"type": "number"}), Shape::Decimal),
        (json!({"type": ["integer", "number"]}), Shape::Decimal),
        (json!({"enum": ["a", "b"]}), Shape::String),
        (json!({"enum": [1, 2]}), Shape::Long),
        (json!({"const": true}), Shape::Bool),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            Shape::Set(Box::new(Shape::String)),
        ),
    ];
    for (schema, shape) in cases {
        assert_eq!(of(&schema).unwrap(), required(shape), "{schema}");
    }
}

#[test]
fn null_beside_one_type_makes_the_member_optional() {
    for schema in [
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"oneOf": [{"type": "null"}, {"type": "string"}]}),
        json!({"type": ["string", "null"]}),
        json!({"enum": ["a", null]}),
    ] {
        assert_eq!(of(&schema).unwrap(), optional(Shape::String), "{schema}");
    }
}

#[test]
fn what_allows_several_kinds_or_anything_has_no_type() {
    for schema in [
        json!({}),
        json!(true),
        json!(false),
        json!({"type": "null"}),
        json!({"type": ["string", "integer"]}),
        json!({"anyOf": [{"type": "string"}, {"type": "integer"}]}),
        json!({"anyOf": [{"type": "string"}, {}]}),
        json!({"enum": ["a", 1]}),
        json!({"type": "object"}),
        json!({"type": "object", "additionalProperties": {"type": "string"}}),
        json!({"type": "object", "properties": {"any": {}}}),
        json!({"properties": {"y": {"type": "string"}}}),
        json!({"type": "array"}),
        json!({"type": "array", "items": {}}),
        json!({"type": "array", "items": {"type": ["string", "null"]}}),
        json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "string"}}),
        json!({"allOf": [{"type": "string"}, {"minLength": 1}]}),
        json!({"type": "text"}),
    ] {
        assert_eq!(of(&schema), None, "{schema}");
    }
}

#[test]
fn alternatives_that_agree_are_one_type() {
    let schema = json!({"anyOf": [{"type": "string", "format": "uri"}, {"enum": ["none"]}]});
    assert_eq!(of(&schema).unwrap(), required(Shape::String));
    assert_eq!(
        of(&json!({"allOf": [{"type": "integer"}]})).unwrap(),
        required(Shape::Long)
    );
}

#[test]
fn objects_nest_and_know_what_is_required() {
    let schema = json!({
        "type": "object",
        "properties": {"city": {"type": "string"}, "zip": {"type": "string"}, "extra": {}},
        "required": ["city", "extra"],
    });
    let members = Record::from([
        ("city".to_owned(), required(Shape::String)),
        ("zip".to_owned(), optional(Shape::String)),
    ]);
    assert_eq!(of(&schema).unwrap(), required(Shape::Record(members)));
}

#[test]
fn references_are_followed_and_cycles_have_no_type() {
    let schema = json!({
        "type": "object",
        "properties": {
            "one": {"$ref": "#/$defs/name"},
            "two": {"$ref": "#/definitions/alias"},
            "node": {"$ref": "#/$defs/node"},
            "self": {"$ref": "#"},
            "loop": {"$ref": "#/$defs/loop"},
            "gone": {"$ref": "#/$defs/gone"},
            "away": {"$ref": "https://example.com/schema.json"},
        },
        "$defs": {
            "name": {"type": "string"},
            "loop": {"$ref": "#/$defs/loop"},
            "node": {"type": "object", "properties": {"value": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}},
        },
        "definitions": {"alias": {"$ref": "#/$defs/name"}},
    });
    let members = record_of(&schema);
    assert_eq!(members["one"].shape, Shape::String);
    assert_eq!(members["two"].shape, Shape::String);
    let node = Record::from([("value".to_owned(), optional(Shape::Long))]);
    assert_eq!(members["node"].shape, Shape::Record(node));
    for absent in ["loop", "gone", "away"] {
        assert!(!members.contains_key(absent), "{absent}");
    }
}

#[test]
fn parameters_are_an_object_even_where_the_schema_does_not_say_so() {
    let members = record_of(&json!({"properties": {"x": {"type": "string"}}}));
    assert_eq!(members["x"].shape, Shape::String);
    let referenced = json!({"$ref": "#/$defs/all", "$defs": {"all": {
        "type": "object", "properties": {"x": {"type": "string"}}}}});
    assert_eq!(record_of(&referenced)["x"].shape, Shape::String);
    assert_eq!(record_of(&json!(true)), Record::new());
}

#[test]
fn a_reference_within_a_schema_of_another_name_has_no_type() {
    let schema = json!({
        "$id": "http://e/root",
        "properties": {
            "named": {"$id": "sub", "$defs": {"q": {"type": "integer"}}, "$ref": "#/$defs/q"},
            "bundled": {"$ref": "#/$defs/s"},
            "within": {"$ref": "#/$defs/s/properties/v"},
            "through": {"$ref": "#/$defs/s/properties/w"},
            "versioned": {"$schema": "http://json-schema.org/draft-07/schema#", "$ref": "#/$defs/q"},
            "escaped": {"$ref": "#/$defs/%71"},
            "marked": {"$id": "#marked", "$ref": "#/$defs/q"},
            "plain": {"$id": "plain", "type": "boolean"},
            "after": {"$ref": "#/$defs/q"},
        },
        "$defs": {
            "s": {
                "$id": "urn:x:sub",
                "$defs": {"q": {"type": "integer"}},
                "type": "object",
                "properties": {"v": {"$ref": "#/$defs/q"}, "w": {"type": "string"}},
            },
            "q": {"type": "string"},
            "%71": {"type": "boolean"},
        },
    });
    let bundled = Record::from([("w".to_owned(), optional(Shape::String))]);
    let members = Record::from([
        ("after".to_owned(), optional(Shape::String)),
        ("bundled".to_owned(), optional(Shape::Record(bundled))),
        ("marked".to_owned(), optional(Shape::String)),
        ("plain".to_owned(), optional(Shape::Bool)),
        ("through".to_owned(), optional(Shape::String)),
        // A version is no name.
        ("versioned".to_owned(), optional(Shape::String)),
    ]);
    assert_eq!(record_of(&schema), members);
}

#[test]
fn what_stands_beside_a_reference_counts_from_2019_on_and_const_from_draft_6_on() {
    let members = |version: &str| {
        record_of(&json!({
            "$schema": version,
            "properties": {
                "beside": {"$ref": "#/definitions/any", "type": "string"},
                "other": {"$ref": "#/definitions/number", "type": "string"},
                "null": {"anyOf": [{"type": "string"}, {"$ref": "#/definitions/any", "type": "null"}]},
                "const": {"const": "x"},
            },
            "definitions": {"any": {}, "number": {"type": "integer"}},
        }))
    };
    let strings = |names: &[&str]| -> Record {
        let names = names.iter().copied();
        let members = names.map(|name| (name.to_owned(), optional(Shape::String)));
        members.collect()
    };
    let newest = strings(&["beside", "other", "null", "const"]);
    assert_eq!(members("https://json-schema.org/draft/2020-12/schema"), newest);
    assert_eq!(members("https://json-schema.org/draft/2019-09/schema"), newest);
    for (draft, known) in [("07", vec!["const"]), ("06", vec!["const"]), ("04", vec![])] {
        let mut expected = strings(&known);
        expected.insert("other".to_owned(), optional(Shape::Long));
        let version = format!("http://json-schema.org/draft-{draft}/schema#");
        assert_eq!(members(&version), expected, "{draft}");
    }
}

#[test]
fn properties_beside_a_reference_are_none_up_to_draft_7() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$ref": "#/definitions/all",
        "properties": {"x": {"type": "string"}},
        "definitions": {"all": {"type": "object", "properties": {"x": {"type": "integer"}}}},
    });
    assert_eq!(record_of(&schema)["x"].shape, Shape::Long);
}

/// How many types a record is made of.
fn types(record: &Record) -> usize {
    let inner = record.values().map(|member| match &member.shape {
        Shape::Record(record) => 1 + types(record),
        _ => 1,
    });
    inner.sum()
}

#[test]
fn references_that_multiply_end_at_the_bound() {
    let mut definitions = serde_json::Map::new();
    for level in 0..14 {
        let next = json!({"$ref": format!("#/$defs/l{}", level + 1)});
        let properties = json!({"a": next, "b": next, "c": next, "d": next});
        definitions.insert(
            format!("l{level}"),
            json!({"type": "object", "properties": properties}),
        );
    }
    definitions.insert("l14".into(), json!({"type": "string"}));
    let schema = json!({"$ref": "#/$defs/l0", "$defs": definitions});
    assert!(types(&record_of(&schema)) <= TYPES_MAX);
}

#[test]
fn the_order_of_properties_does_not_matter() {
    let one: Value =
        serde_json::from_str(r#"{"properties":{"a":{"type":"string"},"b":{"type":"integer"}}}"#).unwrap();
    let two: Value =
        serde_json::from_str(r#"{"properties":{"b":{"type":"integer"},"a":{"type":"string"}}}"#).unwrap();
    assert_eq!(record_of(&one), record_of(&two));
}

#[test]
fn what_a_reference_leads_to_is_of_the_version_of_the_whole() {
    let [old, new] = [
        "http://json-schema.org/draft-07/schema#",
        "https://json-schema.org/draft/2020-12/schema",
    ];
    let of = |root: &str, inner: &str| {
        record_of(&json!({
            "$schema": root,
            "properties": {
                "through": {"$ref": "#/definitions/versioned/properties/plain"},
                "beside": {"$ref": "#/definitions/versioned/properties/beside"},
                "out": {"$schema": inner, "properties": {"of": {"$ref": "#/definitions/beside"}}, "type": "object"},
            },
            "definitions": {
                "versioned": {"$schema": inner, "properties": {
                    "plain": {"type": "string"},
                    "beside": {"$ref": "#/definitions/any", "type": "string"},
                }},
                "beside": {"$ref": "#/definitions/any", "type": "string"},
                "any": {},
            },
        }))
    };
    let names = |record: Record| record.into_keys().collect::<Vec<_>>();
    assert_eq!(names(of(new, old)), ["beside", "out", "through"]);
    assert_eq!(names(of(old, new)), ["through"]);
}
