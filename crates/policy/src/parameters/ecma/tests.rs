//! What patterns become, what is refused, and what the engine then matches.

use super::translated;
use crate::parameters::{ParameterRules, patterns};
use crate::question::Unanswerable;
use crate::world::action;
use serde_json::{Map, Value, json};

fn rules(schema: &Value) -> ParameterRules {
    let rules = ParameterRules::of(&action("x", true, Some(schema.clone()))).unwrap();
    assert_eq!(rules.fault(), None, "{schema}");
    rules
}

fn allows(schema: &Value, parameters: &Value) -> bool {
    rules(schema).read(&parameters.to_string(), None).is_ok()
}

fn of_x(schema: &Value) -> Value {
    json!({"properties": {"x": schema}})
}

/// What is wrong with the schema, in force and as a new one.
fn fault(schema: Value) -> String {
    match ParameterRules::of(&action("x", true, Some(schema))) {
        Ok(rules) => rules.fault().expect("it is refused").message.clone(),
        Err(fault) => fault.message,
    }
}

#[test]
fn what_means_the_same_stays_as_it_is() {
    for pattern in [
        "",
        r"^[\w.+-]+@[\w-]+\.[\w.]+$",
        r"^\d{4}-\d{2}-\d{2}(?:T\s*\S)?$",
        r"^(?<year>\d{4,})|(a{2,3}?b*?c+?)$",
        r"[^\]\-\\&&[~~]\p{L}\P{Script=Greek}",
        "a]b}",
        r"\/\$\.\-\_\@",
        "é[ü-ÿ]",
    ] {
        assert_eq!(translated(pattern).as_deref(), Ok(pattern));
    }
}

#[test]
fn what_means_something_else_is_written_in_other_words() {
    for (pattern, words) in [
        (r"\ba\B", r"(?-u:\b)a(?-u:\B)"),
        (r"^.+[.]\.$", "^[^\n\r\u{2028}\u{2029}]+[.]\\.$"),
        (r"[\b]", r"[\x08]"),
        (r"[^]a]", r"[\x00-\x{10FFFF}]a]"),
        (r"[]a]", r"[^\x00-\x{10FFFF}]a]"),
        (r"\0\cJ\x41", r"\x00\x{A}\x{41}"),
        (r"\u00e9\u{1F600}\uD83D\uDE00", r"\x{E9}\x{1F600}\x{1F600}"),
        (r"\é", "é"),
    ] {
        assert_eq!(translated(pattern).as_deref(), Ok(words), "{pattern}");
    }
}

#[test]
fn what_only_the_engine_knows_is_refused_and_so_is_what_it_does_not_know() {
    for (pattern, construct) in [
        (r"\<a", r"`\<`, which"),
        (r"a\>", r"`\>`, which"),
        (r"[\<]", r"`\<`, which"),
        (r"\Aa", r"`\A`, which"),
        (r"a\z", r"`\z`, which"),
        (r"\Qa", r"`\Q`, which"),
        (r"\a", r"`\a`, which"),
        (r"\01", r"`\0`, which"),
        (r"\x{41}", r"`\x`, which"),
        (r"\U00000041", r"`\U`, which"),
        (r"\u{}", r"`\u`, which"),
        (r"\u{110000}", r"`\u110000`, which"),
        (r"\uD83D", r"`\u`, which"),
        (r"\uDE00", r"`\uDE00`, which"),
        (r"\pL", r"`\p`, which"),
        (r"\p{^L}", r"`\p`, which"),
        (r"\P{sc!=Greek}", r"`\P`, which"),
        (r"\c1", r"`\c`, which"),
        (r"a\", r"`\`, which"),
        ("(?P<a>b)", "`(?P`, which"),
        ("(?x)a", "`(?x`, which"),
        ("(?i)a", "`(?i`: flags"),
        ("(?s-i:a)", "`(?s`: flags"),
        ("(?-u)a", "`(?-`: flags"),
        ("(?<a.b>c)", "`(?<` and a name"),
        (r"\b{start}", "`{` without a count"),
        ("a{ 2 }", "`{` without a count"),
        ("a{,2}", "`{` without a count"),
        ("a++", "`+` behind what"),
        ("^*", "`*` behind what"),
        (r"\b?", "`?` behind what"),
        ("(|*)", "`*` behind what"),
        ("a{2}{3}", "`{3}` behind what"),
        ("(?=a)", "`(?=`: look-around"),
        ("(?!a)", "`(?!`: look-around"),
        ("(?<=a)", "`(?<=`: look-around"),
        ("(?<!a)", "`(?<!`: look-around"),
        (r"(a)\1", r"`\1`: back references"),
        (r"(?<a>b)\k<a>", r"`\k`: back references"),
        ("[a", "`[`, which is not closed"),
    ] {
        let said = translated(pattern).unwrap_err();
        assert!(said.starts_with(construct), "{pattern}: {said}");
    }
}

#[test]
fn patterns_match_what_they_do_in_ecma_262() {
    for (pattern, text, matches) in [
        (r"\bdrop\b", "dropé", true),
        (r"x\b", "xé", true),
        (r"^a\Bé$", "aé", false),
        (r"^a\bé$", "aé", true),
        (r"\B", "é", true),
        (r"\B", "a", false),
        ("^.+$", "a\rb", false),
        ("^.+$", "a\nb", false),
        ("^.+$", "a\u{2028}b", false),
        ("^.+$", "a\u{2029}b", false),
        ("^.+$", "a\u{85}\u{1f600}", true),
        ("^[.]$", "\r", false),
        ("^a[^]b$", "a\nb", true),
        ("[]", "]", false),
        (r"^[\b]$", "\u{8}", true),
        (r"^\0$", "\0", true),
        (r"^\cJ$", "\n", true),
        ("^[a&&b]$", "&", true),
        ("^[[a]$", "[", true),
        ("^[[:alpha:]]$", "b", false),
        ("^[[:alpha:]]$", "a]", true),
        (r"^\uD83D\uDE00$", "\u{1f600}", true),
        ("^é$", "é", true),
    ] {
        assert_eq!(
            allows(&of_x(&json!({"pattern": pattern})), &json!({"x": text})),
            matches,
            "{pattern} {text:?}"
        );
        assert_eq!(
            allows(&of_x(&json!({"not": {"pattern": pattern}})), &json!({"x": text})),
            !matches,
            "not {pattern} {text:?}"
        );
    }
}

#[test]
fn patterns_are_translated_wherever_they_stand_and_nothing_else_is() {
    let one_line = json!({"pattern": "^.$"});
    for (schema, parameters, is_allowed) in [
        (
            json!({"patternProperties": {"^.$": false}}),
            json!({"\r": 1}),
            true,
        ),
        (
            json!({"patternProperties": {"^.$": false}}),
            json!({"a": 1}),
            false,
        ),
        (json!({"propertyNames": one_line}), json!({"\r": 1}), false),
        (
            json!({"additionalProperties": one_line}),
            json!({"x": "\r"}),
            false,
        ),
        (
            json!({"properties": {"const": one_line}}),
            json!({"const": "\r"}),
            false,
        ),
        (
            json!({"properties": {"x": {"items": one_line}}}),
            json!({"x": ["\r"]}),
            false,
        ),
        (
            json!({"properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": one_line}}),
            json!({"x": "\r"}),
            false,
        ),
        (
            json!({"properties": {"x": {"$ref": "#/odd/a"}}, "odd": {"a": one_line}}),
            json!({"x": "\r"}),
            false,
        ),
        (
            of_x(&json!({"const": one_line})),
            json!({"x": {"pattern": "^.$"}}),
            true,
        ),
        (
            of_x(&json!({"enum": [one_line]})),
            json!({"x": {"pattern": "^.$"}}),
            true,
        ),
    ] {
        assert_eq!(allows(&schema, &parameters), is_allowed, "{schema}");
    }
    // What an example looks like, and what nothing refers to, is no pattern.
    let look_ahead = json!({"pattern": "(?=a)"});
    rules(&of_x(&json!({"default": look_ahead, "examples": [look_ahead]})));
    rules(&json!({"$defs": {"unused": look_ahead}}));
}

#[test]
fn two_patterns_that_come_to_the_same_words_both_count() {
    let schema = json!({"patternProperties": {
        "^.$": {"type": "string"},
        "^[^\n\r\u{2028}\u{2029}]$": {"maxLength": 1},
    }});
    for (value, is_allowed) in [(json!("a"), true), (json!("ab"), false), (json!(1), false)] {
        assert_eq!(allows(&schema, &json!({"x": value})), is_allowed, "{value}");
    }
}

#[test]
fn many_patterns_that_come_to_the_same_words_take_no_more_room_than_as_many_others() {
    let named = |pattern: &dyn Fn(usize) -> String| {
        let named: Map<String, Value> = (0..4_000).map(|number| (pattern(number), json!({}))).collect();
        patterns::translated(&json!({ "patternProperties": named })).schema
    };
    let same = named(&|zeros| format!("\\u{{{}61}}", "0".repeat(zeros % 1_000)));
    assert!(same["patternProperties"].as_object().unwrap().len() == 1_000);
    for schema in [same, named(&|number| format!("*{number}"))] {
        assert!(schema.to_string().len() < 400_000);
    }
}

#[test]
fn whoever_is_told_of_a_pattern_is_told_of_the_one_that_was_sent() {
    let said = |schema: Value, parameters: Value| {
        let rules = rules(&schema);
        let Err(Unanswerable::InvalidParameters { detail, .. }) = rules.read(&parameters.to_string(), None)
        else {
            panic!("{parameters} was accepted");
        };
        detail
    };
    assert_eq!(
        said(of_x(&json!({"pattern": "^.$"})), json!({"x": "\r"})),
        "does not match \"^.$\""
    );
    assert_eq!(
        said(
            json!({"patternProperties": {"^./": {"maximum": 1}}}),
            json!({"a/": 2})
        ),
        "a member in it that the action's schema does not name does not satisfy `/patternProperties/^.~1/maximum` of the action's schema"
    );
}

#[test]
fn a_schema_in_force_whose_pattern_is_refused_is_satisfied_by_nothing() {
    for schema in [
        of_x(&json!({"pattern": r"\<a"})),
        json!({"patternProperties": {"(?i)a": {"type": "string"}}}),
        json!({"patternProperties": {"^.$": {"type": "string"}}, "properties": {"x": {"$ref": "#/patternProperties/%5E.$"}}}),
    ] {
        let rules = ParameterRules::of(&action("x", true, Some(schema.clone()))).unwrap();
        assert!(rules.fault().is_some(), "{schema}");
        assert!(rules.read("{}", None).is_err(), "{schema}");
    }
    assert_eq!(
        fault(of_x(&json!({"pattern": r"\<a"}))),
        r#"has the pattern "\\<a" with `\<`, which is not of ECMA-262"#
    );
    assert_eq!(
        fault(of_x(&json!({"pattern": "(?=a)b"}))),
        r#"has the pattern "(?=a)b" with `(?=`: look-around is not supported"#
    );
}
