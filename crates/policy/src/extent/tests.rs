//! What is counted, and what is refused.

use super::Extent;
use serde_json::{Map, Value, json};

fn refused(schema: &Value) -> String {
    match Extent::of(schema) {
        Ok(extent) => panic!("{schema} was accepted: {extent:?}"),
        Err(fault) => fault.message,
    }
}

/// Each definition is made from a reference to the next one; the last is a string.
fn chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
    let name = |number: usize| format!("a{number}");
    let mut definitions: Map<String, Value> = (0..length)
        .map(|number| {
            let next = json!({"$ref": format!("#/$defs/a{}", number + 1)});
            (name(number), link(next))
        })
        .collect();
    definitions.insert(name(length), json!({"type": "string"}));
    json!({"properties": {"x": {"$ref": "#/$defs/a0"}}, "$defs": definitions})
}

#[test]
fn each_way_to_a_subschema_counts() {
    let extent = Extent::of(&json!({
        "properties": {"a": {"$ref": "#/$defs/d"}, "b": {"$ref": "#/$defs/d"}},
        "$defs": {"d": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "unused": {"allOf": [true, true]}},
    }));
    let extent = extent.unwrap();
    assert_eq!(
        (extent.subschemas, extent.alternatives, extent.is_recursive),
        (9, 4, false)
    );
}

#[test]
fn references_that_multiply_are_refused() {
    for word in ["allOf", "anyOf", "oneOf"] {
        let doubling = |next: Value| json!({word: [next.clone(), next]});
        assert!(Extent::of(&chain(8, doubling)).is_ok());
        for length in [12, 14] {
            assert_eq!(
                refused(&chain(length, doubling)),
                "comes to more than 10000 subschemas with its references followed"
            );
        }
        refused(&chain(60, doubling));
    }
    // It checks what stands beside it again, to know what was looked at.
    let again = |next: Value| json!({"allOf": [next], "unevaluatedProperties": false});
    assert!(Extent::of(&chain(4, again)).is_ok());
    assert!(refused(&chain(9, again)).starts_with("comes to more than"));
}

#[test]
fn what_goes_too_deep_is_refused() {
    let same_value = |next: Value| json!({"allOf": [next]});
    let other_value = |next: Value| json!({"properties": {"x": next}});
    assert!(Extent::of(&chain(15, same_value)).is_ok());
    assert!(Extent::of(&chain(120, other_value)).is_ok());
    for schema in [chain(17, same_value), chain(130, other_value)] {
        assert!(refused(&schema).starts_with("goes deeper than"), "{schema}");
    }
}

#[test]
fn a_reference_back_is_fine_where_it_goes_into_a_value() {
    for schema in [
        json!({"properties": {"x": {"$ref": "#"}}}),
        json!({"$id": "https://example.com/a", "items": {"anyOf": [{"$ref": "a"}, {"type": "string"}]}}),
        json!({"$ref": "#node", "$defs": {"node": {"$anchor": "node", "items": {"$ref": "#node"}}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"items": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}}),
    ] {
        let extent = Extent::of(&schema).unwrap();
        assert!(extent.is_recursive, "{schema}");
        assert!(!extent.can_tell(&json!({})), "{schema}");
    }
    for schema in [
        json!({"$ref": "#"}),
        json!({"allOf": [{"$ref": "#"}]}),
        json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"not": {"$ref": "#/$defs/a"}}}}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}}),
    ] {
        let refused = refused(&schema);
        assert!(
            refused.ends_with("without going into a value"),
            "{schema}: {refused}"
        );
    }
}

#[test]
fn a_reference_that_only_validation_could_follow_is_refused() {
    for word in ["$dynamicRef", "$recursiveRef"] {
        let schema = json!({"properties": {"x": {word: "#"}}});
        assert!(
            refused(&schema).starts_with("has a reference whose target depends"),
            "{word}"
        );
    }
}

#[test]
fn errors_are_told_where_few_can_be_collected() {
    let optional = json!({"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
    let (few, many) = (json!({"x": [1, 2, 3]}), json!({"x": vec![0; 20_000]}));
    let extent = Extent::of(&optional).unwrap();
    assert_eq!((extent.can_tell(&few), extent.can_tell(&many)), (true, false));
    let plain = Extent::of(&json!({"properties": {"x": {"type": "string"}}})).unwrap();
    assert!(plain.can_tell(&many));
}

#[test]
fn a_value_is_checked_where_that_takes_few_steps() {
    // Rows of a table: each cell meets what is said of its own column.
    let column = |number: usize| {
        (
            format!("column_{number}"),
            json!({"type": "string", "maxLength": 100}),
        )
    };
    let columns: Map<String, Value> = (0..200).map(column).collect();
    let table = json!({"properties": {"rows": {"items": {"type": "object", "properties": columns}}}});
    let row: Map<String, Value> = (0..20)
        .map(|number| (format!("column_{number}"), json!("x")))
        .collect();
    let rows = json!({"rows": vec![row; 800]});
    assert!(Extent::of(&table).unwrap().can_check(&rows));

    // Few values, each compared with many others many times.
    let either = |word: &str| json!({"allOf": vec![json!({"$ref": word}); 70]});
    let values: Vec<Value> = (10_000..19_000)
        .map(|value| json!(value))
        .chain([json!("")])
        .collect();
    let comparing = json!({
        "properties": {"x": {"items": {"$ref": "#/$defs/a"}}},
        "$defs": {"a": either("#/$defs/b"), "b": either("#/$defs/e"), "e": {"enum": values}},
    });
    let extent = Extent::of(&comparing).unwrap();
    assert!(!extent.can_check(&json!({"x": [18_999]})));
    assert!(extent.can_check(&json!({"x": []})));

    // Many values, each gone through by many subschemas, and the same where it refers to itself.
    let items = json!({"allOf": vec![json!({"allOf": vec![json!(true); 90]}); 90]});
    let wide = json!({"properties": {"x": {"items": items}}});
    let recursive = json!({"properties": {"x": {"items": items}, "y": {"$ref": "#"}}});
    for schema in [wide, recursive] {
        let extent = Extent::of(&schema).unwrap();
        assert!(!extent.can_check(&json!({"x": vec![0; 10_000]})), "{schema}");
        assert!(extent.can_check(&json!({"x": [0, 1, 2]})), "{schema}");
    }
}

#[test]
fn texts_and_numbers_are_looked_up_and_mixed_values_compared() {
    let texts: Vec<String> = (0..2_000).map(|number| number.to_string()).collect();
    let of = |values: Value| Extent::of(&json!({"enum": values})).unwrap().steps_in_all;
    assert!(of(json!(texts)) < 20);
    assert!(of(json!((0..2_000).collect::<Vec<_>>())) < 20);
    let mixed: Vec<Value> = texts.into_iter().map(Value::from).chain([json!(1)]).collect();
    assert!(of(json!(mixed)) > 2_000);
}

#[test]
fn what_is_checked_again_takes_as_many_steps_again() {
    let of = |schema: Value| Extent::of(&schema).unwrap().steps;
    let plain = of(json!({"properties": {"x": {"type": "string"}}, "additionalProperties": false}));
    let again = of(json!({"properties": {"x": {"type": "string"}}, "unevaluatedProperties": false}));
    let times = plain.0.iter().map(|steps| steps * 3).collect::<Vec<_>>();
    assert_eq!(again.0, times);
}
