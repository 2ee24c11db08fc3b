//! Alternatives that are told apart by a word, such as the kinds of blocks: validation looks at the word, and then at
//! one of them.

use jsonschema::Draft;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, HashMap};

/// From so many alternatives on, validation looks for such a word.
const ALTERNATIVES_MIN: usize = 3;

/// The member that decides, and the node of the alternative for each word that it may be.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) member: String,
    pub(super) nodes: HashMap<String, usize>,
}

/// Whether validation looks for such a word in this version of JSON Schema.
pub(super) const fn is_looked_for(draft: Draft) -> bool {
    !matches!(draft, Draft::Draft4 | Draft::Unknown)
}

/// The member that decides between these, and the word for each. Validation finds it in more cases, but never another
/// one in these.
pub(super) fn deciding(alternatives: &[Value], draft: Draft) -> Option<(&str, Vec<&str>)> {
    if alternatives.len() < ALTERNATIVES_MIN || !is_looked_for(draft) {
        return None;
    }
    let words: Option<Vec<_>> = alternatives.iter().map(required_words).collect();
    let words = words?;
    let members = words.first()?.keys();
    members.copied().find_map(|member| {
        let of_member: Option<Vec<&str>> = words.iter().map(|words| words.get(member).copied()).collect();
        let of_member = of_member?;
        let mut different = of_member.clone();
        different.sort_unstable();
        different.dedup();
        (different.len() == of_member.len()).then_some((member, of_member))
    })
}

/// The members that must be there and be one word, in the order of their names; none where references may say so, too.
fn required_words(schema: &Value) -> Option<BTreeMap<&str, &str>> {
    let schema = schema.as_object()?;
    if schema.contains_key("$ref") || schema.contains_key("allOf") {
        return None;
    }
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object)?;
    let mut words = BTreeMap::new();
    for name in required?.iter().filter_map(Value::as_str) {
        let Some(property) = properties.get(name).and_then(Value::as_object) else {
            continue;
        };
        if property.contains_key("$ref") {
            return None;
        }
        if let Some(word) = word(property) {
            words.insert(name, word);
        }
    }
    Some(words)
}

fn word(property: &Map<String, Value>) -> Option<&str> {
    if let Some(Value::String(word)) = property.get("const") {
        return Some(word);
    }
    match property.get("enum")?.as_array()?.as_slice() {
        [Value::String(word)] => Some(word),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::deciding;
    use jsonschema::Draft;
    use serde_json::{Value, json};

    fn kind(word: &str) -> Value {
        json!({"required": ["a", "kind"], "properties": {
            "kind": {"const": word}, "a": {"type": "string"}, "same": {"const": "same"}}})
    }

    fn decides(alternatives: &[Value]) -> Option<String> {
        let found = deciding(alternatives, Draft::Draft202012)?;
        Some(format!("{} {}", found.0, found.1.join(",")))
    }

    #[test]
    fn a_required_word_decides_where_each_has_its_own() {
        let kinds = ["one", "two", "three"].map(kind);
        assert_eq!(decides(&kinds).unwrap(), "kind one,two,three");
        assert_eq!(deciding(&kinds, Draft::Draft4), None);
        assert_eq!(decides(&kinds[..2]), None);
        let mut listed = kinds.clone();
        listed[1]["properties"]["kind"] = json!({"enum": ["word"]});
        assert_eq!(decides(&listed).unwrap(), "kind one,word,three");
    }

    #[test]
    fn nothing_decides_where_validation_may_not_know() {
        let changes: [fn(&mut Value); 7] = [
            |kind| *kind = json!(true),
            |kind| kind["required"] = json!(["a"]),
            |kind| kind["properties"]["kind"] = json!({"const": "one"}),
            |kind| kind["properties"]["kind"] = json!({"enum": ["two", "too"]}),
            |kind| kind["properties"]["a"] = json!({"$ref": "#"}),
            |kind| kind["$ref"] = json!("#"),
            |kind| kind["allOf"] = json!([]),
        ];
        for change in changes {
            let mut kinds = ["one", "two", "three"].map(kind);
            change(&mut kinds[1]);
            assert_eq!(decides(&kinds), None, "{}", kinds[1]);
        }
    }
}
