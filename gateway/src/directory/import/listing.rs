//! Reading an MCP `tools/list` result (MCP 2026-07-28, `ListToolsResult`), bare or in its JSON-RPC response.
//!
//! The protocol is extensible, so members that are not known here are let pass; they count in the digest of a definition.

use crate::directory::tools::{DESCRIPTION_BYTES_MAX, check_schema};
use crate::http::{Code, Refusal};
use canon::Digest;
use model::{Name, Risk, ToolAction};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The definitions of a list, as the actions they would become.
pub(super) struct Listing {
    /// The actions by name.
    pub(super) actions: BTreeMap<Name, ToolAction>,
    /// Whether the list has no further page.
    pub(super) complete: bool,
}

/// Either form of the body.
#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    tools: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListToolsResult {
    tools: Vec<Definition>,
    next_cursor: Option<String>,
}

/// The list of an MCP result with each definition as its bytes.
#[derive(Deserialize)]
struct Texts<'a> {
    #[serde(borrow)]
    tools: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Definition {
    #[serde(deserialize_with = "model::name::new_segment")]
    name: Name,
    description: Option<String>,
    #[serde(deserialize_with = "canon::foreign")]
    input_schema: Map<String, Value>,
    #[serde(default)]
    annotations: Option<Hints>,
}

/// What the server says about a tool of its own, with the defaults of the protocol: nobody vouches for it.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Hints {
    read_only_hint: Option<bool>,
    destructive_hint: Option<bool>,
}

impl Hints {
    /// The first facts: whether it mutates state, and how much harm it can do.
    fn facts(&self) -> (bool, Risk) {
        let read_only = self.read_only_hint.unwrap_or(false);
        let destructive = self.destructive_hint.unwrap_or(true);
        match (read_only, destructive) {
            (true, _) => (false, Risk::Low),
            (false, true) => (true, Risk::High),
            (false, false) => (true, Risk::Medium),
        }
    }
}

impl Listing {
    /// Reads a body that is canonical JSON, so that what stands in it is what is hashed.
    pub(super) fn read(body: &str) -> Result<Self, Refusal> {
        let text = result_text(body)?;
        let list: ListToolsResult = canon::read(text)?;
        let texts: Texts<'_> = serde_json::from_str(text).map_err(|_| not_a_list())?;
        let mut actions = BTreeMap::new();
        for (place, (definition, text)) in list.tools.into_iter().zip(texts.tools).enumerate() {
            let action = definition.into_action(Digest::of(text.get().as_bytes()));
            check_schema(&action, &format!("/tools/{place}/inputSchema"))?;
            let name = action.name.clone();
            if actions.insert(name.clone(), action).is_some() {
                let detail = format!("`/tools/{place}/name`: `{name}` stands in the list already");
                return Err(Refusal::new(Code::InvalidField, detail));
            }
        }
        Ok(Self {
            actions,
            complete: list.next_cursor.is_none(),
        })
    }
}

impl Definition {
    fn into_action(self, pinned: Digest) -> ToolAction {
        let (mutates_state, risk) = self.annotations.unwrap_or_default().facts();
        ToolAction {
            name: self.name,
            mutates_state,
            risk,
            input_schema: Some(Arc::new(Value::Object(self.input_schema))),
            description: self.description.map(cut),
            pinned: Some(pinned),
            held: None,
        }
    }
}

/// As much of a description as is kept, with a word about the rest, so that whoever accepts it knows that there is
/// more. The digest of the definition is of all of it, so a longer one is held like any other when it changes.
fn cut(mut description: String) -> String {
    let bytes = description.len();
    if bytes > DESCRIPTION_BYTES_MAX {
        let note = format!(" [cut: the description has {bytes} bytes]");
        description.truncate(description.floor_char_boundary(DESCRIPTION_BYTES_MAX - note.len()));
        description.push_str(&note);
    }
    description
}

/// The text of the result itself.
fn result_text(body: &str) -> Result<&str, Refusal> {
    match serde_json::from_str(body) {
        Ok(Envelope {
            tools: Some(_),
            result: None,
        }) => Ok(body),
        Ok(Envelope {
            tools: None,
            result: Some(result),
        }) => Ok(result.get()),
        _ => Err(not_a_list()),
    }
}

fn not_a_list() -> Refusal {
    let detail = "the body: send what `tools/list` answers, an object with `tools`, or the JSON-RPC response around it";
    Refusal::new(Code::InvalidField, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tools::SCHEMA_BYTES_MAX;
    use serde_json::json;

    fn read(body: &Value) -> Result<Listing, Refusal> {
        Listing::read(canon::of(body).unwrap().as_str())
    }

    fn facts(annotations: &Value) -> (bool, Risk) {
        let definition = json!({"name": "a", "inputSchema": {}, "annotations": annotations});
        let listing = read(&json!({"tools": [definition]})).unwrap();
        let action = &listing.actions["a"];
        (action.mutates_state, action.risk)
    }

    #[test]
    fn hints_give_the_first_facts_and_silence_the_worst() {
        assert_eq!(facts(&json!({"readOnlyHint": true})), (false, Risk::Low));
        assert_eq!(
            facts(&json!({"readOnlyHint": true, "destructiveHint": true})),
            (false, Risk::Low)
        );
        assert_eq!(facts(&json!({"destructiveHint": false})), (true, Risk::Medium));
        assert_eq!(
            facts(&json!({"title": "x", "idempotentHint": true})),
            (true, Risk::High)
        );
        assert_eq!(facts(&Value::Null), (true, Risk::High));
    }

    #[test]
    fn both_forms_pin_the_digest_of_the_whole_definition() {
        let definition =
            json!({"name": "a", "title": "A", "inputSchema": {"type": "object"}, "_meta": {"x": 1}});
        let result = json!({"tools": [definition], "nextCursor": "more"});
        let bare = read(&result).unwrap();
        let wrapped = read(&json!({"jsonrpc": "2.0", "id": 1, "result": result})).unwrap();
        let pin = canon::of(&definition).unwrap().digest();
        for listing in [bare, wrapped] {
            assert_eq!(listing.actions["a"].pinned, Some(pin));
            assert!(!listing.complete);
        }
    }

    #[test]
    fn what_is_no_list_is_refused_with_the_field_that_is_wrong() {
        let detail = |body: &Value| {
            let problem: Value = serde_json::from_str(&read(body).err().unwrap().to_problem("r")).unwrap();
            problem["detail"].as_str().unwrap().to_owned()
        };
        for body in [
            json!({}),
            json!([]),
            json!({"error": {}}),
            json!({"tools": [], "result": {}}),
        ] {
            assert!(
                detail(&body).starts_with("the body: send what `tools/list` answers"),
                "{body}"
            );
        }
        let tools = json!({"tools": [{"name": "a", "inputSchema": {}}, {"name": "b"}]});
        assert_eq!(detail(&tools), "`/tools/1`: missing field `inputSchema`");
        for name in [".", ".."] {
            let nowhere = json!({"tools": [{"name": name, "inputSchema": {}}]});
            let detail = detail(&nowhere);
            let expected = format!("`/tools/0/name`: `{name}` cannot stand in the path of an address");
            assert!(detail.starts_with(&expected), "{detail}");
        }
        let twice = json!({"tools": [{"name": "a", "inputSchema": {}}, {"name": "a", "inputSchema": {}}]});
        assert_eq!(detail(&twice), "`/tools/1/name`: `a` stands in the list already");
        let long = json!({"title": "x".repeat(SCHEMA_BYTES_MAX)});
        let detail = detail(&json!({"tools": [{"name": "a", "inputSchema": long}]}));
        assert!(
            detail.starts_with("`/tools/0/inputSchema`: a schema has at most 65536 bytes"),
            "{detail}"
        );
    }
}
