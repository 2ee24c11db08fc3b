//! The contract in `docs/openapi.json` is held against the program: its routes, its words, and what it really answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "openapi/play.rs"]
mod play;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::http::{Access, Code};
use gateway::router::routes;
use play::Play;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// The contract as it is served.
fn contract() -> Value {
    let text = include_str!("../../docs/openapi.json");
    serde_json::from_str(text).expect("the contract is JSON")
}

/// Every operation of the contract: method, path, description.
fn operations(contract: &Value) -> Vec<(String, String, &Map<String, Value>)> {
    let paths = contract["paths"].as_object().unwrap();
    let operations = paths.iter().flat_map(|(path, item)| {
        let methods = item.as_object().unwrap().iter();
        methods.map(move |(method, operation)| {
            (
                method.to_uppercase(),
                path.clone(),
                operation.as_object().unwrap(),
            )
        })
    });
    operations.collect()
}

fn words(contract: &Value, schema: &str) -> Vec<String> {
    let words = contract["components"]["schemas"][schema]["enum"].as_array();
    let words = words.unwrap_or_else(|| panic!("`{schema}` is an enum")).iter();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// Calls `visit` with every object in a value, and where it stands.
fn each_object(value: &Value, place: &str, visit: &mut impl FnMut(&str, &Map<String, Value>)) {
    match value {
        Value::Object(object) => {
            visit(place, object);
            for (name, value) in object {
                each_object(value, &format!("{place}/{name}"), visit);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| each_object(item, place, visit)),
        _ => {}
    }
}

#[test]
fn every_route_is_described_and_nothing_else() {
    let contract = contract();
    let described: BTreeSet<_> = operations(&contract)
        .into_iter()
        .map(|(method, path, _)| (method, path))
        .collect();
    let served: BTreeSet<_> = routes()
        .iter()
        .map(|route| (route.method.to_owned(), route.template()))
        .collect();
    assert_eq!(described, served);
}

#[test]
fn every_reference_leads_somewhere() {
    let contract = contract();
    let mut count = 0;
    each_object(&contract, "", &mut |place, object| {
        if let Some(Value::String(reference)) = object.get("$ref") {
            let target = reference
                .strip_prefix('#')
                .and_then(|pointer| contract.pointer(pointer));
            assert!(target.is_some(), "{place}: `{reference}` leads nowhere");
            count += 1;
        }
    });
    assert!(count > 500, "only {count} references were looked at");
}

#[test]
fn every_component_is_used() {
    let contract = contract();
    let mut used = BTreeSet::new();
    each_object(&contract, "", &mut |_, object| {
        used.extend(object.get("$ref").and_then(Value::as_str).map(str::to_owned));
    });
    for kind in ["schemas", "parameters", "headers", "responses"] {
        for name in contract["components"][kind].as_object().unwrap().keys() {
            assert!(
                used.contains(&format!("#/components/{kind}/{name}")),
                "nobody refers to {kind} `{name}`"
            );
        }
    }
}

#[test]
fn every_operation_has_a_name_a_summary_a_success_a_401_and_a_503() {
    let contract = contract();
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations(&contract) {
        let route = format!("{method} {path}");
        let name = operation["operationId"].as_str().unwrap_or_default();
        assert!(
            !name.is_empty() && names.insert(name),
            "{route}: `{name}` is no name of its own"
        );
        assert!(
            !operation["summary"].as_str().unwrap_or_default().is_empty(),
            "{route}: no summary"
        );
        let responses = operation["responses"].as_object().unwrap();
        assert!(
            responses.keys().any(|status| status.starts_with('2')),
            "{route}: no success"
        );
        let is_public = operation["security"] == json!([]);
        assert_eq!(responses.contains_key("401"), !is_public, "{route}: 401");
        // Whoever shows a credential can be told that nobody knows what it is worth now.
        assert!(responses.contains_key("503") || is_public, "{route}: 503");
    }
}

#[test]
fn whom_a_route_takes_is_what_the_contract_says() {
    let contract = contract();
    for route in routes() {
        let schemes: &[&str] = match route.access {
            Access::Public => &[],
            Access::Agent => &["agentToken"],
            Access::Operator | Access::Roles(_) | Access::RolesOrOperator(_) => &["apiKey"],
            Access::Anybody | Access::AgentOrRoles(_) => &["agentToken", "apiKey"],
        };
        let security: Vec<_> = schemes.iter().map(|scheme| json!({*scheme: []})).collect();
        let operation = &contract["paths"][route.template()][route.method.to_lowercase()];
        assert_eq!(
            operation["security"],
            json!(security),
            "{} {}",
            route.method,
            route.path
        );
        if let Access::Roles(roles) | Access::RolesOrOperator(roles) | Access::AgentOrRoles(roles) =
            route.access
        {
            let description = operation["description"].as_str().unwrap_or_default();
            for role in roles {
                assert!(
                    description.contains(&format!("`{}`", role.as_str())),
                    "{} {}: {role:?}",
                    route.method,
                    route.path
                );
            }
        }
    }
}

#[test]
fn every_parameter_of_a_path_is_described() {
    let contract = contract();
    for (method, path, operation) in operations(&contract) {
        let in_path: BTreeSet<_> = path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .collect();
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let described: BTreeSet<_> = parameters
            .filter(|parameter| parameter["in"] == "path")
            .map(|parameter| parameter["name"].as_str().unwrap())
            .collect();
        assert_eq!(described, in_path, "{method} {path}");
    }
}

#[test]
fn the_words_of_the_contract_are_those_of_the_program() {
    let contract = contract();
    let sorted = |mut words: Vec<String>| {
        words.sort();
        words
    };
    let check = |schema: &str, ours: Vec<&str>| {
        let ours = ours.into_iter().map(str::to_owned).collect();
        assert_eq!(sorted(words(&contract, schema)), sorted(ours), "{schema}");
    };
    check(
        "ReasonCode",
        model::ReasonCode::ALL.iter().map(|code| code.as_str()).collect(),
    );
    check(
        "EntryKind",
        engine::EntryKind::ALL.iter().map(|kind| kind.as_str()).collect(),
    );
    check(
        "Trust",
        model::Trust::ALL.iter().map(|trust| trust.as_str()).collect(),
    );
    check(
        "Risk",
        model::Risk::ALL.iter().map(|risk| risk.as_str()).collect(),
    );
    let codes = &contract["components"]["schemas"]["Problem"]["properties"]["code"]["enum"];
    let ours: Vec<_> = Code::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(*codes, json!(ours));
}

/// Where a code stands under a status that it does not have, a client waits for an answer that never comes.
#[test]
fn every_code_stands_under_its_status() {
    let contract = contract();
    for (method, path, operation) in operations(&contract) {
        for (status, response) in operation["responses"].as_object().unwrap() {
            let Some(reference) = response["$ref"].as_str() else {
                continue;
            };
            let problem = contract.pointer(&reference[1..]).unwrap();
            let codes = &problem["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"]
                ["enum"];
            for word in codes.as_array().unwrap() {
                let code = Code::ALL.iter().find(|code| word == code.as_str()).unwrap();
                assert_eq!(code.status().as_str(), status, "{method} {path}: {word}");
            }
        }
    }
}

#[tokio::test]
async fn real_calls_and_answers_fit_the_contract() {
    let contract = contract();
    let all: BTreeSet<_> = operations(&contract)
        .into_iter()
        .map(|(method, path, _)| (method, path))
        .collect();
    let mut play = Play::new(contract).await;
    play.play(include_str!("openapi/calls.txt")).await;
    let missed: Vec<_> = all.difference(&play.played).collect();
    assert!(missed.is_empty(), "never played: {missed:?}");
    assert_eq!((play.kept("verified"), play.kept("cut")), ("true", "false"));
}
