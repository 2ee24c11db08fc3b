//! What is counted, and what is refused.

use super::{Extent, Fault};
use crate::parameters::ParameterRules;
use crate::question::Unanswerable;
use crate::world::action;
use serde_json::{Map, Value, json};

fn refused(schema: &Value) -> String {
    match Extent::of(schema) {
        Ok(extent) => panic!("{schema} was accepted: {extent:?}"),
        Err(Fault::Unbounded(fault)) => fault.message,
        Err(Fault::Reference(error)) => panic!("{schema}: {error}"),
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
        assert!(!extent.can_tell(&json!({}), None), "{schema}");
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

/// The rules of an action with this schema, which is accepted.
fn accepted(schema: &Value) -> ParameterRules {
    let rules = ParameterRules::of(&action("x", true, Some(schema.clone()))).unwrap();
    assert_eq!(rules.fault(), None, "{schema}");
    rules
}

#[test]
fn a_name_is_a_text_wherever_its_schema_leads_back_to() {
    for schema in [
        json!({"propertyNames": {"$ref": "#"}, "maxLength": 3}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"propertyNames": {"$ref": "#/$defs/a"}, "maxLength": 3}}}),
        json!({"propertyNames": {"$ref": "#/$defs/a"}, "$defs": {"a": {"propertyNames": {"$ref": "#"}, "maxLength": 3}}}),
        json!({"propertyNames": {"allOf": [{"$ref": "#"}]}, "maxLength": 3}),
        json!({"allOf": [{"propertyNames": {"$ref": "#"}}], "maxLength": 3}),
        json!({"propertyNames": {"if": true, "then": {"$ref": "#"}}, "maxLength": 3}),
    ] {
        let rules = accepted(&schema);
        assert!(rules.read(r#"{"abc": {"longer": 1}}"#, None).is_ok(), "{schema}");
        assert!(rules.read(r#"{"abcd": 1}"#, None).is_err(), "{schema}");
    }
    // Nothing that is an object is a name.
    let rules = accepted(&json!({"type": "object", "propertyNames": {"$ref": "#"}}));
    assert!(rules.read("{}", None).is_ok());
    assert!(rules.read(r#"{"a": 1}"#, None).is_err());
    // And nothing in a name is looked at.
    for word in [
        "additionalProperties",
        "contains",
        "items",
        "propertyNames",
        "unevaluatedProperties",
    ] {
        let rules = accepted(&json!({"propertyNames": {word: {"$ref": "#"}}}));
        assert!(rules.read(r#"{"a": {"b": []}}"#, None).is_ok(), "{word}");
    }
}

/// Names that have to satisfy the first of so many definitions, each of which is made from a reference to the next one.
fn chain_of_names(length: usize, link: impl Fn(Value) -> Value) -> Value {
    let mut schema = chain(length, link);
    let first = schema["properties"]["x"].take();
    schema["properties"]["x"] = json!({"propertyNames": first});
    schema
}

#[test]
fn what_a_name_has_to_satisfy_is_bounded() {
    let next = |next: Value| next;
    assert!(
        accepted(&chain_of_names(30, next))
            .read(r#"{"x": {"a": 1}}"#, None)
            .is_ok()
    );
    for length in [40, 10_000] {
        assert!(refused(&chain_of_names(length, next)).starts_with("goes deeper than"));
    }
    let doubling = |next: Value| json!({"allOf": [next.clone(), next]});
    assert!(
        accepted(&chain_of_names(8, doubling))
            .read(r#"{"x": {"a": 1}}"#, None)
            .is_ok()
    );
    assert!(refused(&chain_of_names(14, doubling)).starts_with("comes to more than"));
}

/// Definitions each of which is gone into from the next one, and refers back to that so many times. The first says this, too.
fn inside_out(length: usize, times: usize, first: &Value) -> Value {
    let reference = |number: usize| json!({"$ref": format!("#/$defs/a{number}")});
    let definition = |number: usize| {
        let mut definition = match number.checked_sub(1) {
            None => first.clone(),
            Some(inner) => json!({"properties": {"x": reference(inner)}}),
        };
        if number < length {
            definition["allOf"] = json!(vec![reference(number + 1); times]);
        }
        (format!("a{number}"), definition)
    };
    let definitions: Map<String, Value> = (0..=length).map(definition).collect();
    json!({"$ref": format!("#/$defs/a{length}"), "$defs": definitions})
}

#[test]
fn what_is_gone_through_again_counts_even_where_references_lead_back() {
    assert!(Extent::of(&inside_out(40, 2, &json!({}))).is_ok());
    for word in ["unevaluatedProperties", "unevaluatedItems"] {
        let marking = json!({word: false});
        assert!(Extent::of(&inside_out(4, 2, &marking)).is_ok(), "{word}");
        assert!(refused(&inside_out(12, 2, &marking)).starts_with("comes to more than"));
        assert!(refused(&inside_out(40, 2, &marking)).starts_with("goes deeper than"));
    }
    // The same where it comes to it by way of what is inside alternatives.
    let marking = |number: usize| {
        let again = json!({"$ref": format!("#/$defs/a{}", number + 1), "unevaluatedProperties": false});
        json!({"anyOf": [{"properties": {"y": again, "z": again}}]})
    };
    let definition = |number: usize| {
        let mut definition = if number < 20 { marking(number) } else { json!({}) };
        if number > 0 {
            definition["properties"] = json!({"x": {"$ref": format!("#/$defs/a{}", number - 1)}});
        }
        (format!("a{number}"), definition)
    };
    let definitions: Map<String, Value> = (0..=20).map(definition).collect();
    assert!(refused(&json!({"$ref": "#/$defs/a20", "$defs": definitions})).starts_with("comes to more than"));

    // What a name has to satisfy is gone through once, however many ways lead to it.
    let names = json!({"propertyNames": {"$ref": "#/$defs/a0"}});
    assert!(can_check(&inside_out(14, 100, &names), &json!({"x": 1})));
    assert!(refused(&inside_out(40, 2, &names)).starts_with("goes deeper than"));
}

#[test]
fn what_a_name_has_to_satisfy_is_as_deep_as_it_is_whatever_was_gone_through_before() {
    // The names at each have to satisfy it, and those at the next one, which is all that is further in, are come to first.
    let names_at_each = |length: usize| {
        let mut schema = inside_out(length, 1, &json!({}));
        for number in 0..=length {
            let name = format!("a{number}");
            schema["$defs"][&name]["propertyNames"] = json!({"$ref": format!("#/$defs/{name}")});
        }
        schema
    };
    assert!(can_check(&names_at_each(14), &json!({"x": {"y": 1}})));
    for length in [17, 40, 100] {
        assert!(
            refused(&names_at_each(length)).starts_with("goes deeper than"),
            "{length}"
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

/// What a reference is refused with to what two subschemas are called.
fn of_name(name: &str) -> String {
    format!("refers to what is in a subschema with the name `{name}`, and has more than one with it")
}

/// A schema with this name and with definitions of its own that multiply.
fn multiplying(name: &str) -> Value {
    let mut schema = chain(14, |next| json!({"allOf": [next.clone(), next]}));
    schema["$id"] = json!(name);
    schema
}

#[test]
fn nothing_in_a_schema_takes_its_place() {
    let hundred = |number: usize| {
        let next = json!({"$ref": format!("#/$defs/d{}", number + 1)});
        (format!("d{number}"), json!({"allOf": vec![next; 100]}))
    };
    let mut definitions: Map<String, Value> = (0..6).map(hundred).collect();
    definitions.insert("d6".to_owned(), json!({"pattern": "^a"}));
    let empty = json!({"$id": "json-schema:///"});
    let inside = json!({"$id": "x:/", "properties": {"z": empty}});
    for name in [None, Some("https://x.example/a")] {
        for taking in [&empty, &inside] {
            let mut schema =
                json!({"properties": {"z": taking, "v": {"$ref": "#/$defs/d0"}}, "$defs": definitions});
            if let Some(name) = name {
                schema["$id"] = json!(name);
            }
            let expected = match name {
                None => of_name("json-schema:///"),
                // Nothing refers to anything by the other one's name.
                Some(_) => "comes to more than 10000 subschemas with its references followed".to_owned(),
            };
            assert_eq!(refused(&schema), expected, "{schema}");
        }
    }
}

#[test]
fn a_name_is_that_of_one_subschema() {
    let merged = json!({"$id": "https://x.example/a", "properties": {
        "p": {"$id": "https://x.example/b", "properties": {"q": {"$anchor": "n"}}},
        "r": {"$id": "https://x.example/b"},
        "s": {"$ref": "https://x.example/b#n"},
    }});
    let of_root = json!({"$id": "https://x.example/b", "properties": {"p": {"$id": "b"}}});
    let in_a_fragment = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "$id": "https://x.example/b#n",
        "definitions": {"p": {"$id": "https://x.example/b"}},
    });
    assert_eq!(refused(&merged), of_name("https://x.example/b"));
    // One that is registered already keeps nothing from starting.
    let rules = ParameterRules::of(&action("x", true, Some(merged))).unwrap();
    assert!(rules.fault().is_some());
    // Where nothing refers to either, there is nothing to mistake.
    for schema in [&of_root, &in_a_fragment] {
        assert!(Extent::of(schema).is_ok(), "{schema}");
    }
    let mut referring = of_root;
    referring["properties"]["r"] = json!({"$ref": "#/properties/p"});
    assert_eq!(refused(&referring), of_name("https://x.example/b"));
    // As where a type is written once more with another description.
    let node = |said: &str| json!({"$id": "node", "description": said, "type": "string"});
    let rules = accepted(&json!({"properties": {"a": node("first"), "b": node("second")}}));
    assert!(rules.read(r#"{"a": "text", "b": "text"}"#, None).is_ok());
    assert!(rules.read(r#"{"a": "text", "b": 1}"#, None).is_err());
    // What is written wherever it is used is one schema.
    let user = json!({"$id": "user", "type": "object", "properties": {"of": {"$ref": "user"}}});
    let rules = accepted(&json!({"properties": {"a": user, "b": user, "c": {"$ref": "user"}}}));
    assert!(rules.read(r#"{"a": {}, "b": {"of": {}}, "c": {}}"#, None).is_ok());
    assert!(rules.read(r#"{"c": {"of": 1}}"#, None).is_err());
}

#[test]
fn a_bundled_schema_is_counted_where_it_is_referred_to() {
    let schema = json!({
        "$id": "https://x.example/a",
        "properties": {"v": {"$ref": "b"}, "w": {"$ref": "b#n"}},
        "$defs": {"b": {
            "$id": "b",
            "properties": {"y": {"$ref": "#/$defs/c"}},
            "$defs": {"c": {"$anchor": "n", "type": "string"}},
        }},
    });
    let extent = Extent::of(&schema).unwrap();
    assert_eq!(
        (extent.subschemas, extent.alternatives, extent.is_recursive),
        (7, 0, false)
    );
    let rules = accepted(&schema);
    assert!(rules.read(r#"{"v": {"y": "text"}, "w": "text"}"#, None).is_ok());
    assert!(rules.read(r#"{"v": {"y": 1}}"#, None).is_err());
    assert!(rules.read(r#"{"w": 1}"#, None).is_err());
}

#[test]
fn references_lead_where_validation_follows_them() {
    let small = |name: &str| json!({"$id": name});
    for schema in [
        // The root's own name counts twice where it is relative.
        json!({"$id": "a/b", "properties": {"v": {"$ref": "c"}},
            "$defs": {"s": small("json-schema:///a/c"), "l": multiplying("json-schema:///a/a/c")}}),
        // That of what is referred to counts once.
        json!({"$id": "https://x.example/a", "properties": {"v": {"$ref": "#/$defs/d"}},
            "$defs": {"d": {"$id": "b/", "$ref": "c"}, "s": small("b/b/c"), "l": multiplying("b/c")}}),
    ] {
        assert!(refused(&schema).starts_with("comes to more than"), "{schema}");
    }
}

#[test]
fn what_validation_may_read_otherwise_is_refused() {
    let kept = json!({"properties": {"p": {"$id": "b/", "properties": {"s": {"$ref": "c"}}}}});
    for (schema, message) in [
        (
            json!({"$id": "https://x.example/a", "kept": kept, "$defs": {"c": {"$id": "c"}, "d": {"$id": "b/c"}},
                "properties": {"u": {"$ref": "#/kept"}, "v": {"$ref": "#/kept/properties/p/properties/s"}}}),
            "has a subschema that is read in two ways",
        ),
        (
            json!({"$id": "https://x.example/a", "properties": {"v": {"$ref": "b"}}, "$defs": {
                "l": {"$dynamicAnchor": "n", "pattern": "a"},
                "b": {"$id": "b", "$ref": "#n", "$defs": {"s": {"$dynamicAnchor": "n"}}},
            }}),
            "has a reference whose target depends",
        ),
        (
            json!({
                "$schema": "http://json-schema.org/draft-07/schema#",
                "allOf": [{"$ref": "#A"}, {"$ref": "#%41"}],
                "definitions": {"l": {"$id": "#A", "pattern": "a"}, "s": {"$id": "#%41"}},
            }),
            "refers by an anchor with `%` in it, `#%41`",
        ),
        (
            json!({"$id": "https://x.example/a", "properties": {"v": {"$ref": "c#n"}}, "$defs": {
                "c": {"$id": "c"},
                "d": {"$id": "json-schema:///c", "$defs": {"n": {"$anchor": "n"}}},
            }}),
            "refers by `c#n` to what is not inside",
        ),
    ] {
        assert!(refused(&schema).starts_with(message), "{schema}");
    }
}

#[test]
fn a_way_back_through_other_names_counts_for_each_order_of_them() {
    // Each may refer to the other by its name.
    let schema = json!({"$ref": "A", "$defs": {
        "A": {"$id": "A", "type": "object", "properties": {"b": {"$ref": "B"}}},
        "B": {"$id": "B", "type": "object", "properties": {"a": {"$ref": "A"}}},
    }});
    assert!(Extent::of(&schema).unwrap().is_recursive);
    let rules = accepted(&schema);
    assert!(rules.read(r#"{"b": {"a": {"b": {}}}}"#, None).is_ok());
    assert!(rules.read(r#"{"b": {"a": {"b": 1}}}"#, None).is_err());

    // But each of these within one another, which all refer to those around them, is compiled once for each way there.
    let around = |inner: Value, number: usize| {
        let back = |to: usize| (format!("r{to}"), json!({"$ref": format!("a{to}")}));
        let mut members: Map<String, Value> = (0..=number).map(back).collect();
        members.insert("inner".to_owned(), inner);
        json!({"$id": format!("a{number}"), "properties": members})
    };
    let within = |count: usize| (0..count).rev().fold(json!({}), around);
    assert!(Extent::of(&within(2)).is_ok());
    refused(&within(12));

    // And what was only gone through again, to know what was looked at, is compiled where a way leads back to it.
    let again = |count: usize| {
        let back = (0..count).map(|number| json!({"$id": format!("x{number}"), "items": {"$ref": "a"}}));
        let all: Vec<Value> = vec![json!({}); 2_100].into_iter().chain(back).collect();
        json!({
            "properties": {"r": {"$ref": "a", "unevaluatedProperties": false}},
            "$defs": {"a": {"$id": "a", "allOf": all}},
        })
    };
    assert!(Extent::of(&again(0)).is_ok());
    assert!(refused(&again(600)).starts_with("comes to more than"));
}

#[test]
fn a_subschema_is_referred_to_in_few_ways_of_writing() {
    let written = |ways: usize| {
        let way = |number: usize| {
            let index = "0".repeat(number);
            (index.clone(), json!({"$ref": format!("#/k/{index}")}))
        };
        let back: Map<String, Value> = (1..=ways).map(way).collect();
        json!({"$ref": "#/k/0", "k": [{"properties": back}]})
    };
    assert!(Extent::of(&written(4)).is_ok());
    assert_eq!(
        refused(&written(5)),
        "refers to one subschema in more than 4 ways of writing"
    );
    // A name with dots in it is not written in another way.
    let in_dots = json!({
        "$id": "https://x.example/a",
        "items": {"allOf": vec![json!({"$ref": "a"}), json!({"$ref": "./a"}), json!({"$ref": "#"}), json!({"$ref": "a#"})]},
    });
    assert!(Extent::of(&in_dots).is_ok());
}

#[test]
fn errors_are_told_where_few_can_be_collected() {
    let optional = json!({"properties": {"x": {"anyOf": [{"type": "string"}, {"type": "null"}]}}});
    let (few, many) = (json!({"x": [1, 2, 3]}), json!({"x": vec![0; 20_000]}));
    let extent = Extent::of(&optional).unwrap();
    assert_eq!(
        (extent.can_tell(&few, None), extent.can_tell(&many, None)),
        (true, false)
    );
    let plain = Extent::of(&json!({"properties": {"x": {"type": "string"}}})).unwrap();
    assert!(plain.can_tell(&many, None));
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
    assert!(Extent::of(&table).unwrap().can_check(&rows, None));

    // Values that are each compared with many others.
    let values: Vec<Value> = (10_000..19_000)
        .map(|value| json!(value))
        .chain([json!("")])
        .collect();
    let comparing = json!({"properties": {"x": {"items": {"enum": values}}}});
    let extent = Extent::of(&comparing).unwrap();
    assert!(!extent.can_check(&json!({"x": vec![18_999; 4_900]}), None));
    assert!(extent.can_check(&json!({"x": []}), None));

    // Many values, each gone through by many subschemas, and the same where it refers to itself.
    let items = json!({"allOf": vec![json!({"allOf": vec![json!(true); 90]}); 90]});
    let wide = json!({"properties": {"x": {"items": items}}});
    let recursive = json!({"properties": {"x": {"items": items}, "y": {"$ref": "#"}}});
    for schema in [wide, recursive] {
        let extent = Extent::of(&schema).unwrap();
        assert!(
            !extent.can_check(&json!({"x": vec![0; 10_000]}), None),
            "{schema}"
        );
        assert!(extent.can_check(&json!({"x": [0, 1, 2]}), None), "{schema}");
    }
}
fn can_check(schema: &Value, value: &Value) -> bool {
    Extent::of(schema).unwrap().can_check(value, None)
}

/// A schema that says this of `x` 1,600 times.
fn often(schema: &Value) -> Value {
    let forty = |name: &str| json!({"allOf": vec![json!({"$ref": name}); 40]});
    json!({
        "properties": {"x": forty("#/$defs/forty")},
        "$defs": {"forty": forty("#/$defs/one"), "one": schema},
    })
}

/// A schema that says this of everything, however deep.
fn everywhere(schema: Value) -> Value {
    let mut all = schema;
    all["additionalProperties"] = json!({"$ref": "#/$defs/all"});
    json!({"$ref": "#/$defs/all", "$defs": {"all": all}})
}

#[test]
fn what_is_usual_is_checked() {
    let mail = json!({"properties": {"to": {"items": {"pattern": r"^[\w.+-]+@[\w-]+\.[\w.]+$"}}}});
    assert!(can_check(
        &mail,
        &json!({"to": vec!["somebody.in.an.office@example.com"; 100]})
    ));
    let id = json!({"pattern": "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"});
    let ids = vec!["01234567-89ab-cdef-0123-456789abcdef"; 5_000];
    assert!(can_check(
        &json!({"properties": {"ids": {"items": id, "uniqueItems": true}}}),
        &json!({"ids": ids})
    ));
    // What is said of one member does not count for the text of another.
    let text = json!({"id": "", "body": "ä".repeat(100_000)});
    let word = json!({"pattern": "[a-z]{100}.*[a-z]{100}"});
    assert!(can_check(
        &json!({"properties": {"id": word, "body": {"type": "string"}}}),
        &text
    ));
    for schema in [
        json!({"pattern": r"^[^\u0000]*$"}),
        json!({"minLength": 1, "maxLength": 200_000}),
        json!({"pattern": r"^\S*$"}),
        json!({"enum": ["a", "b"]}),
    ] {
        let schema = json!({"properties": {"body": schema}});
        assert!(can_check(&schema, &text), "{schema}");
        assert!(can_check(&everywhere(schema.clone()), &text), "{schema}");
    }
    let rows: Vec<Value> = (0..1_000)
        .map(|number| json!({"id": number, "name": "somebody", "tags": ["a", "b"]}))
        .collect();
    assert!(can_check(
        &json!({"properties": {"x": {"uniqueItems": true}}}),
        &json!({"x": rows})
    ));
    let prices = json!({"properties": {"x": {"items": {"multipleOf": 0.01}}}});
    assert!(can_check(&prices, &json!({"x": vec![9.99; 10_000]})));
}

#[test]
fn a_text_takes_steps_for_each_of_its_bytes() {
    let draft_7 = |schema: Value| {
        let mut schema = often(&schema);
        schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
        schema
    };
    let long = "é".repeat(100_000);
    for schema in [
        often(&json!({"pattern": r"^[^!]*a\b[^!]*$"})),
        often(&json!({"minLength": 10})),
        often(&json!({"maxLength": 200_000})),
        often(&json!({"enum": vec![json!("a"); 20]})),
        draft_7(json!({"contentEncoding": "base64"})),
        draft_7(json!({"contentMediaType": "application/json"})),
    ] {
        assert!(!can_check(&schema, &json!({"x": long})), "{schema}");
        assert!(can_check(&schema, &json!({"x": "é"})), "{schema}");
    }
    // A pattern with many states once.
    let states = json!({"properties": {"x": {"pattern": "[ab]*a[ab]{900}"}}});
    assert!(!can_check(&states, &json!({"x": "ab".repeat(10_000)})));
    assert!(can_check(&states, &json!({"x": "ab".repeat(1_000)})));
}

#[test]
fn names_take_steps_like_texts() {
    let long: Map<String, Value> = (0..20)
        .map(|number| (format!("{number}{}", "é".repeat(5_000)), json!(1)))
        .collect();
    let pattern = r"^[^!]*a\b[^!]*$";
    for schema in [
        json!({"patternProperties": {pattern: true}}),
        json!({"patternProperties": {pattern: true}, "additionalProperties": false}),
        json!({"propertyNames": {"pattern": pattern}}),
        json!({"propertyNames": {"maxLength": 20_000}}),
        json!({"unevaluatedProperties": false, "patternProperties": {pattern: true}}),
    ] {
        let schema = often(&schema);
        assert!(
            !matches!(Extent::of(&schema), Ok(extent) if extent.can_check(&json!({"x": long}), None)),
            "{schema}"
        );
    }
    let few = json!({"x": {"name": 1, "other": 2}});
    assert!(can_check(
        &often(&json!({"patternProperties": {pattern: true}})),
        &few
    ));
    assert!(can_check(
        &often(&json!({"propertyNames": {"pattern": pattern}})),
        &few
    ));
}

#[test]
fn names_that_are_listed_are_looked_up_one_by_one() {
    let names: Vec<String> = (0..7_000).map(|number| number.to_string()).collect();
    let object: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(1))).collect();
    let object = json!({"x": object});
    let each: Map<String, Value> = names.iter().map(|name| (name.clone(), json!(["1"]))).collect();
    for schema in [
        json!({"required": names}),
        json!({"dependentRequired": each}),
        json!({"dependencies": each}),
        json!({"dependentRequired": {"1": names}}),
    ] {
        assert!(can_check(&json!({"properties": {"x": schema}}), &object));
        let of_each = json!({"properties": {"x": {"items": schema}}});
        assert!(
            !can_check(&of_each, &json!({"x": vec![json!({}); 1_600]})),
            "{schema}"
        );
        // Nothing of an object is looked up in a text.
        assert!(can_check(&of_each, &json!({"x": vec!["text"; 1_600]})));
    }
}

/// Arrays of nothing but arrays, all with one hash.
fn alike(pairs: usize) -> Vec<Value> {
    let mut all: Vec<Vec<Value>> = vec![vec![json!([])]];
    for size in 1..=pairs {
        let mut next = Vec::new();
        for first in 0..size {
            for one in &all[first] {
                for other in &all[size - 1 - first] {
                    let items = other.as_array().into_iter().flatten();
                    next.push(std::iter::once(one).chain(items).cloned().collect());
                }
            }
        }
        all.push(next);
    }
    all.concat()
}

#[test]
fn items_that_may_have_one_hash_are_compared_with_each_other() {
    let unique = json!({"properties": {"x": {"uniqueItems": true}}});
    let of = |items: &[Value]| can_check(&unique, &json!({"x": items}));
    let alike = alike(9);
    assert!(alike.len() > 6_000);
    assert!(!of(&alike));
    assert!(of(&alike[..500]));
    let named: Vec<Value> = alike.iter().map(|value| json!({"a": 1, "b": value})).collect();
    assert!(!of(&named));
    let large: Vec<Value> = (0..20_000).map(|number| json!((1_u64 << 63) + number)).collect();
    assert!(!of(&large));

    // Numbers and texts are hashed once each, in few steps, but not thousands of times.
    let numbers: Vec<Value> = (0..37_000).map(|number| json!(number)).collect();
    let texts: Vec<Value> = (0..8_000).map(|number| json!(number.to_string())).collect();
    for items in [numbers, texts] {
        assert!(of(&items));
        let often = often(&json!({"uniqueItems": true}));
        assert!(!can_check(&often, &json!({"x": items})));
    }
    // Few items are compared pair by pair, however long they are.
    let pairs = often(&json!({"allOf": vec![json!({"uniqueItems": true}); 3]}));
    assert!(!can_check(&pairs, &json!({"x": vec!["a".repeat(10_000); 15]})));
    assert!(can_check(&pairs, &json!({"x": vec!["a".repeat(100); 15]})));
}

#[test]
fn members_in_another_order_are_compared_twice_at_each_depth() {
    let nested = |depth: usize| {
        let inner = |value: Value, _| json!({"a": value, "b": 1, "c": 2});
        (0..depth).fold(json!(1), inner)
    };
    for word in ["const", "enum"] {
        let of = |depth: usize| {
            let constant = if word == "enum" {
                json!([nested(depth)])
            } else {
                nested(depth)
            };
            can_check(&json!({"properties": {"x": {word: constant}}}), &json!({"x": 1}))
        };
        assert!(of(4), "{word}");
        assert!(!of(30), "{word}");
    }
}

#[test]
fn texts_and_whole_numbers_are_looked_up_and_others_compared() {
    let numbers = |count: u64| json!({"items": {"enum": (0..count).collect::<Vec<_>>()}});
    let of = |schema: Value, value: &Value| {
        can_check(
            &json!({"properties": {"x": schema}}),
            &json!({"x": vec![value; 10_000]}),
        )
    };
    assert!(of(numbers(5_000), &json!(4_999)));
    assert!(!of(numbers(5_000), &json!(4_999.5)));
    let texts: Vec<String> = (0..5_000).map(|number| number.to_string()).collect();
    assert!(of(json!({"items": {"enum": texts}}), &json!("4999")));
    let mixed: Vec<Value> = texts.into_iter().map(Value::from).chain([json!(1)]).collect();
    assert!(!of(json!({"items": {"enum": mixed}}), &json!("4999")));
    let divided = json!({"items": {"allOf": vec![json!({"multipleOf": 0.1}); 10]}});
    assert!(!of(divided.clone(), &json!(1e300)));
    assert!(of(divided, &json!("no number")));
}

#[test]
fn what_is_checked_again_takes_as_many_steps_again() {
    // Each alternative is checked, and once more for each around it to know what was looked at.
    let mut nested = json!({"properties": {"y": {"items": {"allOf": vec![json!({"minimum": 0}); 60]}}}});
    for _ in 0..14 {
        nested = json!({"anyOf": [nested]});
    }
    let plain = json!({"properties": {"x": nested}});
    nested["unevaluatedProperties"] = json!(false);
    let again = json!({"properties": {"x": nested}});
    let value = json!({"x": {"y": vec![1; 15_000]}});
    assert!(can_check(&plain, &value));
    assert!(!can_check(&again, &value));
    assert!(can_check(&again, &json!({"x": {"y": vec![1; 1_000]}})));

    // Each alternative notes each member.
    let noting = |count: usize| {
        let all = vec![json!({"properties": {"a": true}}); count];
        json!({"anyOf": all, "unevaluatedProperties": {"type": "integer"}})
    };
    let members: Map<String, Value> = (0..20_000).map(|number| (number.to_string(), json!(1))).collect();
    let members = Value::Object(members);
    assert!(can_check(&noting(3), &members));
    assert!(!can_check(&noting(1_000), &members));
}

#[test]
fn what_is_looked_at_again_at_each_depth_doubles_at_each() {
    let next = |word: &str| {
        let next = json!({"properties": {"n": {"$ref": "#/$defs/t", word: false}}});
        json!({"$ref": "#/$defs/t", "$defs": {"t": {"anyOf": [{"anyOf": [next]}]}}})
    };
    let nested = |depth: usize| (0..depth).fold(json!({}), |value, _| json!({"n": value}));
    assert!(can_check(&next("unevaluatedProperties"), &nested(5)));
    assert!(!can_check(&next("unevaluatedProperties"), &nested(30)));
    assert!(can_check(&next("description"), &nested(30)));
}

#[test]
fn what_refers_to_itself_is_checked_by_size_too() {
    let schema = everywhere(json!({"pattern": r"^[^!]*a\b[^!]*$", "uniqueItems": true}));
    assert!(can_check(&schema, &json!({"x": "é".repeat(50_000)})));
    let states = everywhere(json!({"pattern": "[ab]*a[ab]{900}"}));
    assert!(!can_check(&states, &json!({"x": {"y": "ab".repeat(10_000)}})));

    // Texts are not remembered, so each reference takes its steps.
    let many = vec![json!({"$ref": "#/$defs/t"}); 400];
    let many = json!({"$ref": "#/$defs/t", "$defs": {"t": {
        "pattern": r"^[^!]*a\b[^!]*$", "additionalProperties": {"allOf": many}}}});
    assert!(!can_check(&many, &json!({"x": "é".repeat(25_000)})));
    assert!(can_check(&many, &json!({"x": "é"})));
    let pairs = vec![json!({"$ref": "#/$defs/t"}); 2];
    let pairs = json!({"$ref": "#/$defs/t", "$defs": {"t": {"additionalProperties": {"allOf": pairs}}}});
    assert!(can_check(
        &pairs,
        &(0..40).fold(json!({}), |value, _| json!({"n": value}))
    ));
}

/// Blocks within blocks, each of one of twenty kinds that are told apart by a word.
fn blocks(kinds: usize) -> Value {
    let kind = |number: usize| {
        json!({
            "type": "object",
            "required": ["kind", "text"],
            "properties": {
                "kind": {"const": format!("kind_{number}")},
                "id": {"type": "string", "pattern": "^[0-9a-f]{8}-[0-9a-f]{12}$"},
                "text": {"type": "string", "maxLength": 2_000},
                "children": {"type": "array", "items": {"$ref": "#/$defs/block"}},
            },
        })
    };
    let kinds: Vec<Value> = (0..kinds).map(kind).collect();
    json!({
        "properties": {"page": {"items": {"$ref": "#/$defs/block"}}},
        "$defs": {"block": {"oneOf": kinds}},
    })
}

#[test]
fn blocks_within_blocks_are_checked() {
    let block = |number: usize, children: Vec<Value>| json!({"kind": format!("kind_{number}"), "id": "01234567-89abcdef0123", "text": "Some words.", "children": children});
    let page = |count: usize| {
        let inner = vec![block(3, vec![block(5, Vec::new())])];
        json!({"page": vec![block(7, inner); count]})
    };
    assert!(can_check(&blocks(20), &page(500)));

    // Where nothing tells them apart, all are gone through, and what is in them as often as they may come to it.
    let mut any = blocks(20);
    for kind in any["$defs"]["block"]["oneOf"].as_array_mut().unwrap() {
        kind["properties"]["kind"] = json!({"type": "string"});
    }
    assert!(can_check(&any, &page(20)));
    assert!(!can_check(&any, &page(500)));
}

#[test]
fn an_ask_that_would_take_long_is_refused_before_it_is_checked() {
    let seventy = |name: &str| json!({"allOf": vec![json!({"$ref": name}); 70]});
    let slow = json!({
        "properties": {"x": seventy("#/$defs/seventy")},
        "$defs": {"seventy": seventy("#/$defs/one"), "one": {"pattern": r"^[^!]*a\b[^!]*$"}},
    });
    let rules = ParameterRules::of(&action("x", true, Some(slow))).unwrap();
    assert!(rules.read(r#"{"x":"a"}"#, None).is_ok());
    let long = json!({"x": "é".repeat(55_000)}).to_string();
    let Err(Unanswerable::InvalidParameters { pointer, detail }) = rules.read(&long, None) else {
        panic!("half a minute of checking was done");
    };
    assert_eq!(pointer, "");
    assert!(
        detail.starts_with("has more values, or longer texts, than can be checked in time"),
        "{detail}"
    );
}

#[test]
fn what_would_take_long_to_compile_is_not_compiled() {
    let fault = |schema: Value| {
        let rules = ParameterRules::of(&action("x", true, Some(schema))).unwrap();
        rules.fault().map(|fault| fault.message.clone())
    };
    let mut doubling = chain(15, |next| json!({"allOf": [next.clone(), next]}));
    doubling["properties"]["x"]["unevaluatedProperties"] = json!(false);
    let message = fault(doubling).unwrap();
    assert!(message.starts_with("comes to more than"), "{message}");
    let message = fault(json!({"pattern": r"\s".repeat(20_000)})).unwrap();
    assert!(
        message.starts_with("has patterns with so many classes"),
        "{message}"
    );
    assert_eq!(fault(json!({"pattern": r"\s".repeat(100)})), None);
    let nowhere = action("x", true, Some(json!({"$ref": "#/$defs/none"})));
    assert!(
        ParameterRules::of(&nowhere)
            .unwrap_err()
            .message
            .starts_with("is no JSON Schema")
    );
}

/// What pointers that are too long together are refused with.
const POINTERS: &str = "takes more than 16777216 bytes for the pointers to its subschemas";

#[test]
fn a_schema_whose_pointers_would_fill_the_memory_is_refused_before_it_is_compiled() {
    let name = " ".repeat(30_000);
    let within = |name: &str| {
        let many = json!({"allOf": vec![json!({}); 9_000]});
        json!({"properties": {name: many}})
    };
    assert!(refused(&within(&name)).starts_with(POINTERS));
    assert!(Extent::of(&within("x")).is_ok());
    // Each of them is kept once more with the whole `$id`, and encoded.
    let named = |id: &str, length: usize| {
        let inner = json!({"allOf": vec![json!({}); 500]});
        json!({"$id": id, "properties": {" ".repeat(length): inner}})
    };
    assert!(refused(&named("x:/", 10_000)).starts_with(POINTERS));
    assert!(
        Extent::of(&named("relative", 10_000)).is_ok(),
        "it has no name to write out"
    );
    assert!(refused(&named(&format!("x:/{}", "a".repeat(40_000)), 1)).starts_with(POINTERS));
    assert!(Extent::of(&named("x:/a", 1)).is_ok());
    // And for each name that lists others.
    let listing = |word: &str, length: usize| {
        let each: Map<String, Value> = (0..3_600).map(|number| (number.to_string(), json!([]))).collect();
        json!({"$id": "x:/", "properties": {" ".repeat(length): {word: each}}})
    };
    for word in ["dependentRequired", "dependencies"] {
        assert!(refused(&listing(word, 32_000)).starts_with(POINTERS), "{word}");
        assert!(Extent::of(&listing(word, 1)).is_ok(), "{word}");
    }
    let rules = ParameterRules::of(&action("x", true, Some(within(&name)))).unwrap();
    assert!(
        rules.fault().is_some(),
        "what is registered is not compiled either"
    );
}

#[test]
fn the_pointer_behind_a_reference_is_the_one_to_what_it_names() {
    let referring = |reference: &str, name: &str| {
        json!({
            "$id": "x:/",
            "allOf": vec![json!({"$ref": reference}); 300],
            "properties": {name: {"$anchor": "a", "type": "string"}},
        })
    };
    let long = "x".repeat(10_000);
    assert!(refused(&referring("#a", &long)).starts_with(POINTERS));
    assert!(refused(&referring(&format!("#/properties/{long}"), &long)).starts_with(POINTERS));
    assert!(Extent::of(&referring("#a", "x")).is_ok());
    // However far in the reference stands.
    let far_in = json!({
        "properties": {&long: {"$ref": "#/$defs/all"}},
        "$defs": {"all": {"allOf": vec![json!({}); 5_000]}},
    });
    assert!(Extent::of(&far_in).is_ok());
    // It is kept beside each reference that leads back, too.
    let leading_back = json!({
        "$id": "x:/",
        "properties": {&long: {"$anchor": "a", "properties": {"y": {"$ref": "#/$defs/back"}}}},
        "$defs": {"back": {"properties": {"z": {"allOf": vec![json!({"$ref": "#a"}); 500]}}}},
    });
    assert!(refused(&leading_back).starts_with(POINTERS));
}

/// What copies that are too large together are refused with.
const COPIES: &str = "takes more than 67108864 bytes for what is no subschema in it";

#[test]
fn what_is_copied_for_each_way_there_is_bounded() {
    let numbers = |count: usize| vec![0; count];
    let by_names = |times: usize, definition: Value| {
        let name = |number: usize| (number.to_string(), json!({"$ref": "#/$defs/d"}));
        let properties: Map<String, Value> = (0..times).map(name).collect();
        json!({"properties": properties, "$defs": {"d": definition}})
    };
    for definition in [
        json!({"x": numbers(14_000)}),
        json!({"enum": numbers(14_000)}),
        json!({"contentSchema": {"x": numbers(14_000)}}),
        json!({"description": "x".repeat(60_000)}),
    ] {
        assert!(Extent::of(&by_names(1, definition.clone())).is_ok());
        assert!(refused(&by_names(1_200, definition)).starts_with(COPIES));
    }
    // What is there only to be referred to is copied where that is no keyword.
    let defined = json!({"$defs": {"x": {"x": numbers(14_000)}}});
    let mut schema = by_names(1_200, defined);
    assert!(Extent::of(&schema).is_ok());
    schema["$schema"] = json!("http://json-schema.org/draft-07/schema#");
    assert!(refused(&schema).starts_with(COPIES));

    // It is copied once more where it is compiled to know what was looked at.
    let by_marks = |times: usize, word: &str| {
        let reference = json!({"$ref": "#d", word: {}});
        json!({
            "allOf": vec![reference; times],
            "$defs": {"d": {"$anchor": "d", "if": {"x": numbers(15_000)}}},
        })
    };
    assert!(refused(&by_marks(800, "unevaluatedProperties")).starts_with(COPIES));
    assert!(refused(&by_marks(40, "unevaluatedProperties")).starts_with(COPIES));
    assert!(Extent::of(&by_marks(40, "description")).is_ok());

    // A tenant's schemas have a bound for it together: what is beyond one copy counts.
    let weight = |schema: &Value| Extent::of(schema).unwrap().weight([], 0);
    assert!(weight(&by_names(50, json!({"x": numbers(14_000)}))) < 1 << 20);
    let from_names = |times: usize| {
        let named = |number: usize| {
            (
                number.to_string(),
                json!({"$id": format!("n{number}"), "$ref": "r#/$defs/d"}),
            )
        };
        let properties: Map<String, Value> = (0..times).map(named).collect();
        json!({"$id": "x:/r", "properties": properties, "$defs": {"d": {"x": numbers(14_000)}}})
    };
    assert!(weight(&from_names(50)) > 45 << 20);

    let names: Vec<String> = (0..600).map(|number| format!("name_{number}")).collect();
    assert!(Extent::of(&by_names(1_000, json!({"enum": names}))).is_ok());
}

#[test]
fn a_generated_schema_with_two_thousand_properties_is_not_too_long() {
    let name = |number: usize| format!("{number:030}");
    let properties: Map<String, Value> = (0..2_000)
        .map(|number| {
            let target = json!({"$ref": format!("#/$defs/{}", name(number))});
            (
                name(number),
                json!({"title": "x", "anyOf": [target, {"type": "null"}]}),
            )
        })
        .collect();
    let definitions: Map<String, Value> = (0..2_000)
        .map(|number| (name(number), json!({"type": "string", "maxLength": 100})))
        .collect();
    let mut schema = json!({"type": "object", "properties": properties, "$defs": definitions});
    assert!(Extent::of(&schema).is_ok());
    schema["$id"] = json!("https://example.com/schemas/generated.json");
    assert!(Extent::of(&schema).is_ok());
}
