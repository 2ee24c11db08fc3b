//! The contract in `docs/openapi.json` is held against the program: its routes, its words, and what it really answers.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use axum::http::header;
use gateway::http::{Access, Code};
use gateway::router::routes;
use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use support::{Reply, World};

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
        methods.map(move |(method, operation)| (method.to_uppercase(), path.clone(), operation.as_object().unwrap()))
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
    let described: BTreeSet<_> = operations(&contract).into_iter().map(|(method, path, _)| (method, path)).collect();
    let served: BTreeSet<_> =
        routes().iter().map(|route| (route.method.to_owned(), route.path.to_owned())).collect();
    assert_eq!(described, served);
}

#[test]
fn every_reference_leads_somewhere() {
    let contract = contract();
    let mut count = 0;
    each_object(&contract, "", &mut |place, object| {
        if let Some(Value::String(reference)) = object.get("$ref") {
            let target = reference.strip_prefix('#').and_then(|pointer| contract.pointer(pointer));
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
            assert!(used.contains(&format!("#/components/{kind}/{name}")), "nobody refers to {kind} `{name}`");
        }
    }
}

#[test]
fn every_operation_has_a_name_a_summary_a_success_and_a_401() {
    let contract = contract();
    let mut names = BTreeSet::new();
    for (method, path, operation) in operations(&contract) {
        let route = format!("{method} {path}");
        let name = operation["operationId"].as_str().unwrap_or_default();
        assert!(!name.is_empty() && names.insert(name), "{route}: `{name}` is no name of its own");
        assert!(!operation["summary"].as_str().unwrap_or_default().is_empty(), "{route}: no summary");
        let responses = operation["responses"].as_object().unwrap();
        assert!(responses.keys().any(|status| status.starts_with('2')), "{route}: no success");
        let is_public = operation["security"] == json!([]);
        assert_eq!(responses.contains_key("401"), !is_public, "{route}: 401");
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
        let operation = &contract["paths"][route.path][route.method.to_lowercase()];
        assert_eq!(operation["security"], json!(security), "{} {}", route.method, route.path);
        if let Access::Roles(roles) | Access::RolesOrOperator(roles) | Access::AgentOrRoles(roles) = route.access {
            let description = operation["description"].as_str().unwrap_or_default();
            for role in roles {
                assert!(description.contains(&format!("`{}`", role.as_str())), "{} {}: {role:?}", route.method, route.path);
            }
        }
    }
}

#[test]
fn every_parameter_of_a_path_is_described() {
    let contract = contract();
    for (method, path, operation) in operations(&contract) {
        let in_path: BTreeSet<_> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
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
    check("ReasonCode", model::ReasonCode::ALL.iter().map(|code| code.as_str()).collect());
    check("EntryKind", engine::EntryKind::ALL.iter().map(|kind| kind.as_str()).collect());
    check("Trust", model::Trust::ALL.iter().map(|trust| trust.as_str()).collect());
    check("Risk", model::Risk::ALL.iter().map(|risk| risk.as_str()).collect());
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
            let Some(reference) = response["$ref"].as_str() else { continue };
            let problem = contract.pointer(&reference[1..]).unwrap();
            let codes = &problem["content"]["application/problem+json"]["schema"]["allOf"][1]["properties"]["code"]["enum"];
            for word in codes.as_array().unwrap() {
                let code = Code::ALL.iter().find(|code| word == code.as_str()).unwrap();
                assert_eq!(code.status().as_str(), status, "{method} {path}: {word}");
            }
        }
    }
}

/// The schemas of the contract with every object closed, so that a member that they do not name is noticed.
fn closed(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut object: Map<_, _> = object.iter().map(|(name, value)| (name.clone(), closed(value))).collect();
            if object.get("type") == Some(&json!("object")) && object.contains_key("properties") {
                object.entry("additionalProperties").or_insert(json!(false));
            }
            Value::Object(object)
        }
        Value::Array(items) => Value::Array(items.iter().map(closed).collect()),
        other => other.clone(),
    }
}

/// A world that holds every call and every answer against the contract.
struct Play {
    world: World,
    contract: Value,
    components: Value,
    /// The operations that answered with success.
    played: RefCell<BTreeSet<(String, String)>>,
}

impl Play {
    async fn new() -> Self {
        let contract = contract();
        // A problem is refined by the response it stands in, so it stays open.
        let mut components = closed(&contract["components"]);
        components["schemas"]["Problem"]["additionalProperties"] = json!(true);
        components["schemas"]["McpToolsResult"] = contract["components"]["schemas"]["McpToolsResult"].clone();
        components["schemas"]["McpTools"] = contract["components"]["schemas"]["McpTools"].clone();
        Self {
            world: World::start().await,
            contract,
            components,
            played: RefCell::default(),
        }
    }

    /// Fails unless the value fits the schema.
    fn fits(&self, schema: &Value, value: &Value, what: &str) {
        let schema = json!({"allOf": [schema], "components": self.components});
        let validator: Validator = jsonschema::options().with_draft(Draft::Draft202012).build(&schema).unwrap();
        let faults: Vec<_> =
            validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
        assert!(faults.is_empty(), "{what}: {faults:#?}\n{value:#}");
    }

    /// Calls a route, whose parameters stand in `path` as `{id=agt_…}`, and returns the answer.
    async fn call(&self, method: &str, path: &str, credential: &str, body: Option<Value>) -> Reply {
        let (template, path) = expand(path);
        let operation = &self.contract["paths"][&template][method.to_lowercase()];
        let what = format!("{method} {path}");
        assert!(operation.is_object(), "{what}: not in the contract");
        let mut call = self.world.call(method, &path, credential);
        if let Some(body) = &body {
            call = call.json(body);
        }
        let reply = call.send().await;
        let status = reply.status.as_str();
        if let Some(body) = body.filter(|_| reply.status.is_success()) {
            self.fits(&operation["requestBody"]["content"]["application/json"]["schema"], &body, &what);
        }
        let mut response = &operation["responses"][status];
        if let Some(reference) = response["$ref"].as_str() {
            response = self.contract.pointer(&reference[1..]).unwrap();
        }
        assert!(response.is_object(), "{what}: {status} is not in the contract: {}", reply.text());
        self.check_content(response, &reply, &what);
        if reply.status.is_success() {
            self.played.borrow_mut().insert((method.to_owned(), template));
        }
        reply
    }

    fn check_content(&self, response: &Value, reply: &Reply, what: &str) {
        let Some(content) = response["content"].as_object() else {
            assert!(reply.bytes.is_empty(), "{what}: the contract knows no body");
            return;
        };
        let (media_type, content) = content.iter().next().unwrap();
        let sent = reply.headers[header::CONTENT_TYPE].to_str().unwrap();
        assert_eq!(sent.split(';').next(), Some(media_type.as_str()), "{what}");
        let schema = &content["schema"];
        match media_type.as_str() {
            "application/x-ndjson" => {
                for line in reply.text().lines() {
                    self.fits(schema, &serde_json::from_str(line).unwrap(), what);
                }
            }
            _ if schema["type"] == "string" => assert!(!reply.bytes.is_empty(), "{what}"),
            _ => self.fits(schema, &reply.json(), what),
        }
    }

    /// The same, for a call that succeeds.
    async fn done(&self, method: &str, path: &str, credential: &str, body: impl Into<Option<Value>>) -> Value {
        let reply = self.call(method, path, credential, body.into()).await;
        assert!(reply.status.is_success(), "{method} {path}: {}", reply.text());
        serde_json::from_slice(&reply.bytes).unwrap_or_default()
    }

    /// The same, for a call that is refused with this code.
    async fn refused(&self, method: &str, path: &str, credential: &str, body: impl Into<Option<Value>>, code: &str) {
        let reply = self.call(method, path, credential, body.into()).await;
        assert_eq!(reply.json()["code"], code, "{method} {path}: {}", reply.text());
    }
}

/// `/v1/agents/{id=agt_1}?limit=2` is the template `/v1/agents/{id}` and the path `/v1/agents/agt_1?limit=2`.
fn expand(text: &str) -> (String, String) {
    let (mut template, mut path) = (String::new(), String::new());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        let (parameter, after) = after.split_once('}').unwrap();
        let (name, value) = parameter.split_once('=').unwrap();
        template.extend([before, "{", name, "}"]);
        path.extend([before, value]);
        rest = after;
    }
    template.push_str(rest.split('?').next().unwrap());
    path.push_str(rest);
    (template, path)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// The people and things of one tenant.
struct Cast {
    tenant: String,
    admin: String,
    auditor: String,
    agent: String,
    token: String,
}

impl Play {
    async fn set_up(&self) -> Cast {
        let operator = &self.world.operator;
        let settings = json!({"context_attributes": {"ticket": "String"}});
        let tenant = self.done("POST", "/v1/tenants", operator, json!({"name": "acme", "settings": settings})).await;
        let tenant = text(&tenant["id"]).to_owned();
        let mut keys = Vec::new();
        for role in ["admin", "auditor"] {
            let key = json!({"name": role, "role": role, "tenant": tenant, "user": "u-17", "expires_at": "2027-01-01T00:00:00+01:00"});
            keys.push(text(&self.done("POST", "/v1/keys", operator, key).await["key"]).to_owned());
        }
        let [admin, auditor] = keys.try_into().unwrap();
        let team = json!({"attributes": {"floor": 3, "lead": true, "city": "Berlin"}});
        self.done("PUT", "/v1/teams/{team=platform}", &admin, team).await;
        self.done("PUT", "/v1/users/{user=u-17}", &admin, json!({"teams": ["platform"]})).await;
        let read = json!({"name": "get_file", "mutates_state": false, "risk": "low", "description": "Reads a file", "input_schema": {"type": "object"}});
        let write = json!({"name": "create_issue", "mutates_state": true, "risk": "medium"});
        self.done("PUT", "/v1/tools/{tool=github}", &admin, json!({"actions": [read, write]})).await;
        let agent = json!({"name": "builder", "environment": "production", "team": "platform", "owner": "u-17", "risk_tier": "medium", "tools": ["github"], "attributes": {"tier": "gold"}});
        let agent = text(&self.done("POST", "/v1/agents", &admin, agent).await["id"]).to_owned();
        let token = self.done("POST", &format!("/v1/agents/{{id={agent}}}/tokens"), &admin, json!({})).await;
        Cast { tenant, admin, auditor, agent, token: text(&token["token"]).to_owned() }
    }

    async fn change_tenants(&self, cast: &Cast) {
        let operator = &self.world.operator;
        let one = format!("/v1/tenants/{{id={}}}", cast.tenant);
        self.done("GET", "/v1/tenants", operator, None).await;
        self.done("GET", &one, operator, None).await;
        self.done("PATCH", &one, operator, json!({"name": "acme ltd", "settings": {"context_attributes": null}})).await;
        self.done("PUT", &format!("{one}/quota"), operator, json!({"bucket": {"capacity": 100, "refill_per_second": 0.5}})).await;
        self.done("GET", &format!("{one}/quota"), &cast.auditor, None).await;
        self.done("POST", &format!("{one}/freeze"), operator, json!({"reason": "an audit"})).await;
        self.done("POST", &format!("{one}/unfreeze"), operator, json!({"reason": "it is over"})).await;
        self.refused("GET", &one, &cast.admin, None, "forbidden").await;
        self.refused("GET", "/v1/tenants/{id=tnt_nonsense}", operator, None, "not_found").await;
        let other = self.done("POST", "/v1/tenants", operator, json!({"name": "other"})).await;
        let other = format!("/v1/tenants/{{id={}}}", text(&other["id"]));
        self.done("POST", &format!("{other}/revoke"), operator, json!({"reason": "never paid"})).await;
        self.refused("POST", &format!("{other}/unfreeze"), operator, json!({"reason": "they did"}), "revoked_for_good").await;
        self.done("DELETE", &other, operator, None).await;
    }

    async fn change_keys_and_people(&self, cast: &Cast) {
        let admin = &cast.admin;
        let key = self.done("POST", "/v1/keys", admin, json!({"name": "spare", "role": "approver"})).await;
        self.done("GET", "/v1/keys?limit=2", &cast.auditor, None).await;
        self.done("GET", "/v1/keys", &self.world.operator, None).await;
        self.done("DELETE", &format!("/v1/keys/{{id={}}}", text(&key["id"])), admin, None).await;
        self.refused("POST", "/v1/keys", admin, json!({"name": "x", "role": "king"}), "invalid_field").await;
        for (one, many) in [("team=spare", "teams"), ("user=spare", "users")] {
            let one = format!("/v1/{many}/{{{one}}}");
            self.done("PUT", &one, admin, json!({})).await;
            self.done("PUT", &one, admin, json!({})).await;
            self.done("GET", &one, admin, None).await;
            self.done("GET", &format!("/v1/{many}"), admin, None).await;
            self.done("DELETE", &one, admin, None).await;
            self.refused("GET", &one, admin, None, "not_found").await;
        }
        self.refused("DELETE", "/v1/teams/{team=platform}", admin, None, "conflict").await;
    }

    async fn change_agents(&self, cast: &Cast) {
        let admin = &cast.admin;
        let new = json!({"name": "spare", "tools": "all"});
        let agent = self.done("POST", "/v1/agents", admin, new.clone()).await;
        self.refused("POST", "/v1/agents", admin, new, "name_taken").await;
        let one = format!("/v1/agents/{{id={}}}", text(&agent["id"]));
        self.done("GET", "/v1/agents?status=active&limit=1", admin, None).await;
        self.done("GET", &one, admin, None).await;
        self.done("PATCH", &one, admin, json!({"owner": null, "tools": []})).await;
        self.done("PUT", &format!("{one}/tools/{{tool=github}}"), admin, None).await;
        self.done("DELETE", &format!("{one}/tools/{{tool=github}}"), admin, None).await;
        self.done("PUT", &format!("{one}/quota"), admin, json!({"bucket": {"capacity": 1, "refill_per_second": 0}})).await;
        self.done("GET", &format!("{one}/quota"), admin, None).await;
        let token = self.done("POST", &format!("{one}/tokens"), admin, json!({"expires_at": "2026-12-31T00:00:00Z"})).await;
        self.done("GET", &format!("{one}/tokens"), admin, None).await;
        let secret = text(&token["token"]);
        self.done("GET", "/v1/quota", secret, None).await;
        self.done("POST", "/v1/authorize", secret, ask("get_file", "unknown")).await;
        self.refused("POST", "/v1/authorize", secret, ask("get_file", "unknown"), "rate_limited").await;
        self.done("DELETE", &format!("{one}/tokens/{{token_id={}}}", text(&token["id"])), admin, None).await;
        self.refused("GET", "/v1/quota", secret, None, "invalid_token").await;
        for verb in ["freeze", "unfreeze", "revoke"] {
            self.done("POST", &format!("{one}/{verb}"), admin, json!({"reason": "because"})).await;
        }
        self.refused("POST", &format!("{one}/freeze"), admin, json!({"why": 1}), "unknown_field").await;
    }

    async fn change_tools(&self, cast: &Cast) {
        let admin = &cast.admin;
        let list = |description: &str| {
            json!({"tools": [{"name": "send", "description": description, "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": false}}]})
        };
        self.done("POST", "/v1/tools/{tool=mail}/import", admin, list("sends")).await;
        self.done("POST", "/v1/tools/{tool=mail}/import", admin, list("sends to all")).await;
        self.done("GET", "/v1/tools/{tool=mail}", admin, None).await;
        self.done("POST", "/v1/tools/{tool=mail}/actions/{action=send}/accept", admin, json!({})).await;
        self.refused("POST", "/v1/tools/{tool=mail}/actions/{action=send}/accept", admin, json!({}), "conflict").await;
        self.done("GET", "/v1/tools", admin, None).await;
        self.done("DELETE", "/v1/tools/{tool=mail}", admin, None).await;
        self.done("PUT", "/v1/tools/{tool=spare}", admin, json!({"actions": [], "canary": true})).await;
        for verb in ["freeze", "unfreeze", "revoke"] {
            self.done("POST", &format!("/v1/tools/{{tool=spare}}/{verb}"), admin, json!({"reason": "because"})).await;
        }
        self.done("GET", "/v1/tools/{tool=spare}", admin, None).await;
    }

    async fn authorize(&self, cast: &Cast) -> Vec<Value> {
        let mut answers = Vec::new();
        let mut full = ask("get_file", "trusted_internal_signed");
        full["request_id"] = json!("call-1");
        full["context"]["sources"] = json!({"/path": "semi_trusted_customer"});
        full["context"]["contains_sensitive_data"] = json!(true);
        full["agent"] = json!({"id": cast.agent, "environment": "production"});
        full["user"] = json!({"id": "u-17"});
        full["trace"] = json!({"run_id": "run-1", "parent_run_id": null, "trace_id": "0af7651916cd43dd8448eb211c80319c"});
        full["estimate"] = json!({"unit": "USD_MICROCENTS", "amount": 250_000});
        full["ttl_ms"] = json!(60_000);
        for ask in [full, ask("create_issue", "semi_trusted_customer"), ask("create_issue", "unknown"), ask("no_such", "unknown")] {
            answers.push(self.done("POST", "/v1/authorize", &cast.token, ask).await);
        }
        let verdicts: Vec<_> = answers.iter().map(|answer| text(&answer["decision"])).collect();
        assert_eq!(verdicts, ["allow", "require_approval", "deny", "deny"]);
        let mut dry = ask("get_file", "unknown");
        dry["mode"] = json!("dry_run");
        assert!(self.done("POST", "/v1/authorize", &cast.token, dry.clone()).await.get("receipt").is_none());
        let mut typo = ask("get_file", "unknown");
        typo["contxt"] = json!(1);
        self.refused("POST", "/v1/authorize", &cast.token, typo, "unknown_field").await;
        let mut reused = ask("get_file", "unknown");
        reused["request_id"] = json!("call-1");
        self.refused("POST", "/v1/authorize", &cast.token, reused, "idempotency_key_reused").await;
        self.refused("POST", "/v1/authorize", &cast.admin, ask("get_file", "unknown"), "forbidden").await;
        self.refused("POST", "/v1/authorize", "", ask("get_file", "unknown"), "invalid_token").await;
        let mut observed = ask("get_file", "unknown");
        observed["mode"] = json!("observe");
        let batch = json!({"asks": [ask("get_file", "unknown"), dry, observed]});
        self.done("POST", "/v1/authorize/batch", &cast.token, batch).await;
        answers
    }

    async fn read_back(&self, cast: &Cast, answers: &[Value]) {
        for answer in answers {
            let id = text(&answer["decision_id"]);
            self.done("GET", &format!("/v1/decisions/{{id={id}}}"), &cast.token, None).await;
            self.done("GET", &format!("/v1/receipts/{{decision_id={id}}}"), &cast.auditor, None).await;
            let done = json!({"status": "succeeded", "executed_hash": answer["action_hash"], "actual": {"unit": "TOKENS", "amount": 12}});
            let outcome = format!("/v1/decisions/{{id={id}}}/outcome");
            self.done("POST", &outcome, &cast.token, done.clone()).await;
            self.refused("POST", &outcome, &cast.token, done, "outcome_reported").await;
        }
        let auditor = &cast.auditor;
        self.done("GET", "/v1/decisions?limit=2", auditor, None).await;
        self.refused("GET", "/v1/decisions?surprise=1", auditor, None, "invalid_parameter").await;
        self.done("GET", "/v1/audit/events?limit=500", auditor, None).await;
        self.done("GET", "/v1/ledger/head", auditor, None).await;
        self.done("GET", "/v1/ledger/export", auditor, None).await;
        self.refused("GET", "/v1/ledger/export?from_seq=9999", auditor, None, "empty_range").await;
        self.refused("GET", "/v1/ledger/head", &self.world.operator, None, "tenant_required").await;
        let verified = self.done("POST", "/v1/ledger/verify", auditor, json!({"from_seq": null})).await;
        assert_eq!(verified["verified"], true);
        let cut = self.done("POST", "/v1/ledger/verify", auditor, json!({"to_seq": 9_999})).await;
        assert_eq!(cut["verified"], false);
    }
}

fn ask(action: &str, trust: &str) -> Value {
    json!({
        "tool_call": {"tool": "github", "action": action, "resource": "repo:acme/widgets", "parameters": {}},
        "context": {"source_trust": trust},
    })
}

#[tokio::test]
async fn real_calls_and_answers_fit_the_contract() {
    let play = Play::new().await;
    let cast = play.set_up().await;
    play.change_tenants(&cast).await;
    play.change_keys_and_people(&cast).await;
    play.change_agents(&cast).await;
    play.change_tools(&cast).await;
    let answers = play.authorize(&cast).await;
    play.read_back(&cast, &answers).await;
    for credential in [&cast.token, &cast.auditor, &play.world.operator] {
        play.done("GET", "/v1/whoami", credential, None).await;
    }
    for path in ["/healthz", "/readyz", "/metrics", "/openapi.json"] {
        play.done("GET", path, "", None).await;
    }
    let all: BTreeSet<_> = operations(&play.contract).into_iter().map(|(method, path, _)| (method, path)).collect();
    let played = play.played.into_inner();
    let missed: Vec<_> = all.difference(&played).collect();
    assert!(missed.is_empty(), "never played: {missed:?}");
}
