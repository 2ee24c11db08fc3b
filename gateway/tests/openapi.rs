//! The contract in `docs/openapi.json` is held against the program: its routes, its words, and what it really answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(
    dead_code,
    reason = "tokens have tests of their own, which use the rest of it"
)]
#[path = "../../crates/tokens/tests/tokens/hand.rs"]
mod hand;
#[path = "openapi/play.rs"]
mod play;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use gateway::http::{Access, Code};
use gateway::router::{Route, routes};
use hand::Signer;
use play::Play;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use support::BEGINNING;

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
fn a_read_that_is_described_without_parameters_refuses_all() {
    let contract = contract();
    let query_parameters = |operation: &Map<String, Value>| {
        let parameters = operation["parameters"].as_array().unwrap().iter();
        let places = parameters.map(|parameter| match parameter["$ref"].as_str() {
            Some(reference) => &contract.pointer(&reference[1..]).unwrap()["in"],
            None => &parameter["in"],
        });
        places.filter(|place| **place == "query").count()
    };
    let routes = routes();
    for (method, path, operation) in operations(&contract) {
        let of_route = |route: &&Route| route.method == method && route.template() == path;
        let route = routes.iter().find(of_route).unwrap();
        if method == "GET" && route.access != Access::Public {
            assert_eq!(route.takes_no_query, query_parameters(operation) == 0, "{path}");
        }
    }
}

/// A condition that nobody looks at would be taken for one that holds.
#[test]
fn what_changes_something_and_is_described_without_conditions_refuses_them() {
    let contract = contract();
    let mut taken = 0;
    for route in routes() {
        if !matches!(route.method, "PUT" | "PATCH" | "DELETE") {
            continue;
        }
        let operation = &contract["paths"][route.template()][route.method.to_lowercase()];
        let parameters = operation["parameters"].as_array().unwrap();
        let is_taken = ["IfMatch", "IfNoneMatch"]
            .map(|name| json!({"$ref": format!("#/components/parameters/{name}")}))
            .iter()
            .any(|condition| parameters.contains(condition));
        let what = format!("{} {}", route.method, route.path);
        assert_eq!(route.takes_conditions, is_taken, "{what}");
        assert_eq!(operation["responses"]["412"].is_object(), is_taken, "{what}");
        if !is_taken {
            let codes = codes(&contract, operation.as_object().unwrap(), "400");
            let code = Code::InvalidParameter.as_str();
            assert!(codes.contains(code), "{what}: {codes:?}");
        }
        taken += usize::from(is_taken);
    }
    assert_eq!(taken, 7);
}

/// The codes with which a client may be refused under a status.
fn codes(contract: &Value, operation: &Map<String, Value>, status: &str) -> BTreeSet<String> {
    let mut response = &operation["responses"][status];
    if let Some(reference) = response["$ref"].as_str() {
        response = contract.pointer(&reference[1..]).unwrap();
    }
    let problem = &response["content"]["application/problem+json"]["schema"];
    let codes = problem["allOf"][1]["properties"]["code"]["enum"].as_array();
    let codes = codes.map_or(&[][..], Vec::as_slice).iter();
    codes.map(|code| code.as_str().unwrap().to_owned()).collect()
}

/// A client that knows the codes of the contract only is shown none that it does not know.
#[test]
fn a_400_may_be_for_a_parameter_of_a_read_and_for_a_tenant_that_is_not_named() {
    let contract = contract();
    let (mut reads, mut in_tenants) = (0, 0);
    for route in routes() {
        let operation = &contract["paths"][route.template()][route.method.to_lowercase()];
        let codes = codes(&contract, operation.as_object().unwrap(), "400");
        let what = format!("{} {}: {codes:?}", route.method, route.path);
        if route.method == "GET" && route.access != Access::Public {
            assert!(codes.contains(Code::InvalidParameter.as_str()), "{what}");
            reads += 1;
        }
        if matches!(route.access, Access::Roles(_) | Access::AgentOrRoles(_)) {
            assert!(codes.contains(Code::TenantRequired.as_str()), "{what}");
            in_tenants += 1;
        }
    }
    assert!(
        reads > 40 && in_tenants > 80,
        "only {reads} and {in_tenants} routes were looked at"
    );
}

/// Who asks, and in whose name, is found out before it is looked at which route it is, and so is whether there is room
/// for a signed request.
#[test]
fn too_deep_a_chain_and_want_of_room_may_be_met_at_every_route_with_a_credential() {
    let contract = contract();
    let mut count = 0;
    for route in routes() {
        if route.access == Access::Public {
            continue;
        }
        let operation = &contract["paths"][route.template()][route.method.to_lowercase()];
        for (status, code) in [("400", Code::DelegationTooDeep), ("503", Code::Overloaded)] {
            let codes = codes(&contract, operation.as_object().unwrap(), status);
            let what = format!("{} {}: {codes:?}", route.method, route.path);
            assert!(codes.contains(code.as_str()), "{what}");
        }
        count += 1;
    }
    assert!(count > 100, "only {count} routes were looked at");
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

/// Whoever checks texts by the contract counts characters, unless somebody says that it is bytes.
#[test]
fn a_longest_text_that_need_not_be_ascii_is_said_to_be_in_bytes() {
    let mut count = 0;
    each_longest(&contract(), "", "", &mut |place, text, said| {
        let of_ascii = ["^[!-~]([ -~]*[!-~])?$", "^[ -~]+$"].map(Value::from);
        // What has one length only is base64.
        if text["maxLength"] == text["minLength"] || of_ascii.contains(&text["pattern"]) {
            return;
        }
        assert!(said.contains("bytes"), "{place}: say that it is in bytes");
        count += 1;
    });
    assert!(count > 15, "only {count} texts were looked at");
}

/// Calls `visit` with every schema of a value that has a longest text, where it stands, and its description or the next
/// one around it.
fn each_longest(value: &Value, place: &str, around: &str, visit: &mut impl FnMut(&str, &Value, &str)) {
    match value {
        Value::Object(object) => {
            let own = object.get("description").and_then(Value::as_str);
            let said = own.unwrap_or(around);
            if object.contains_key("maxLength") {
                visit(place, value, said);
            }
            for (name, value) in object {
                each_longest(value, &format!("{place}/{name}"), said, visit);
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| each_longest(item, place, around, visit)),
        _ => {}
    }
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

/// Whoever acts in a tenant may say that it is its own, and is told where it is not.
#[test]
fn every_route_in_a_tenant_takes_its_id_and_may_not_find_it() {
    let contract = contract();
    let mut count = 0;
    for route in routes() {
        if !matches!(
            route.access,
            Access::Agent | Access::Anybody | Access::Roles(_) | Access::AgentOrRoles(_)
        ) {
            continue;
        }
        count += 1;
        let what = format!("{} {}", route.method, route.path);
        let operation = &contract["paths"][route.template()][route.method.to_lowercase()];
        let parameters = operation["parameters"].as_array().unwrap();
        assert!(
            parameters.contains(&json!({"$ref": "#/components/parameters/Tenant"})),
            "{what}: no tenant"
        );
        // To whoever asks what a credential is it only says of whose issuer a token is.
        if route.access == Access::Anybody {
            continue;
        }
        let refusal = operation["responses"]["404"]["$ref"].as_str();
        let refusal = refusal.unwrap_or_else(|| panic!("{what}: no 404"));
        let refusal = contract.pointer(&refusal[1..]).unwrap().to_string();
        assert!(refusal.contains("\"not_found\""), "{what}: {refusal}");
    }
    assert!(count > 80, "only {count} routes were looked at");
}

/// What a description says of a header is of no use where it cannot be sent.
#[test]
fn every_header_that_a_description_speaks_of_is_a_parameter() {
    let contract = contract();
    let components = contract["components"]["parameters"].as_object().unwrap();
    let headers = components.iter().filter(|(_, header)| header["in"] == "header");
    let mut count = 0;
    for (component, header) in headers {
        let name = header["name"].as_str().unwrap();
        // The one is refused here and there, and the other is for those who take a tenant.
        if ["Idempotency-Key", "Countersign-Tenant"].contains(&name) {
            continue;
        }
        let reference = json!({"$ref": format!("#/components/parameters/{component}")});
        for (method, path, operation) in operations(&contract) {
            let description = operation.get("description").and_then(Value::as_str);
            if description.is_some_and(|text| text.contains(&format!("`{name}`"))) {
                let parameters = operation["parameters"].as_array().unwrap();
                assert!(parameters.contains(&reference), "{method} {path}: {name}");
                count += 1;
            }
        }
    }
    assert!(count > 0, "no description speaks of a header");
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
    let (now, signer) = (BEGINNING.millis() / 1_000, Signer::ed25519(1));
    play.keep("provenance_jwks", &json!({"keys": [signer.jwk("a")]}).to_string());
    let mut claims =
        json!({"iss": "https://crm.example.com", "aud": "gate", "exp": now + 300, "sub": "u-17"});
    claims["source_trust"] = "trusted_internal_signed".into();
    play.keep("of_call", &signer.token(json!({"kid": "a"}), &claims));
    claims["content_hash"] = canon::Digest::of(b"quoted").to_string().into();
    play.keep("of_parameter", &signer.token(json!({"kid": "a"}), &claims));
    play.play(include_str!("openapi/calls.txt")).await;
    let missed: Vec<_> = all.difference(&play.played).collect();
    assert!(missed.is_empty(), "never played: {missed:?}");
    assert_eq!((play.kept("verified"), play.kept("cut")), ("true", "false"));
    assert_eq!(
        (play.kept("vouched_signed"), play.kept("quoted_parameter")),
        ("true", "path")
    );
    assert_eq!(
        (play.kept("owner_excluded"), play.kept("shadow_excluded")),
        ("true", "true")
    );
}
