//! Plays calls that are written down a line each, and holds what is sent and what comes back against the contract.

use crate::support::{Reply, World};
use axum::http::{HeaderName, header};
use jsonschema::{Draft, Validator};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Headers that HTTP itself has, and every answer may have.
const OF_HTTP: [&str; 5] = [
    "connection",
    "content-length",
    "content-type",
    "date",
    "transfer-encoding",
];
/// How often a call is sent, with a pause between, until the gateway has a core again.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_millis(250);

/// A world that holds every call and every answer against the contract.
pub(crate) struct Play {
    world: World,
    contract: Value,
    components: Value,
    /// What `$name` stands for.
    names: BTreeMap<String, String>,
    /// The operations that answered with success.
    pub(crate) played: BTreeSet<(String, String)>,
}

/// One line.
struct Line<'a> {
    status: &'a str,
    code: Option<&'a str>,
    /// Whether its body does not fit the contract either.
    is_misfit: bool,
    credential: &'a str,
    /// The names and values of headers.
    headers: Vec<(&'a str, &'a str)>,
    method: &'a str,
    path: &'a str,
    body: Option<Value>,
    keeps: Vec<(&'a str, &'a str)>,
}

impl<'a> Line<'a> {
    fn read(text: &'a str) -> Self {
        let (call, keeps) = text.split_once(" => ").unwrap_or((text, ""));
        let mut words = call.splitn(5, ' ');
        let mut word = || {
            words
                .next()
                .unwrap_or_else(|| panic!("a word is missing: {text}"))
        };
        let (status, credential, method, path) = (word(), word(), word(), word());
        let (status, code) = status
            .split_once(':')
            .map_or((status, None), |(status, code)| (status, Some(code)));
        let is_misfit = code.is_some_and(|code| code.ends_with('!'));
        let code = code.map(|code| code.trim_end_matches('!'));
        let (credential, headers) = credential.split_once('+').unwrap_or((credential, ""));
        let headers = headers.split('+').filter_map(|header| header.split_once(':'));
        let body = words
            .next()
            .map(|body| serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}")));
        let keeps = keeps
            .split_whitespace()
            .filter_map(|kept| kept.split_once('='))
            .collect();
        Self {
            status,
            code,
            is_misfit,
            credential,
            headers: headers.collect(),
            method,
            path,
            body,
            keeps,
        }
    }
}

impl Play {
    pub(crate) async fn new(contract: Value) -> Self {
        let world = World::start().await;
        let mut names = BTreeMap::from([("nobody".to_owned(), String::new())]);
        names.insert("operator".to_owned(), world.operator.clone());
        Self {
            components: strict(&contract["components"]),
            world,
            contract,
            names,
            played: BTreeSet::new(),
        }
    }

    /// Plays every line. A line that goes otherwise than it says, or not as the contract says, fails.
    pub(crate) async fn play(&mut self, lines: &str) {
        for text in lines
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let text = self.filled_in(text);
            match text.split_once(" := ") {
                Some((name, value)) => drop(self.names.insert(name.to_owned(), value.to_owned())),
                None => self.call(&Line::read(&text)).await,
            }
        }
    }

    /// Keeps something under a name.
    pub(crate) fn keep(&mut self, name: &str, value: &str) {
        self.names.insert(name.to_owned(), value.to_owned());
    }

    /// What was kept under a name.
    pub(crate) fn kept(&self, name: &str) -> &str {
        &self.names[name]
    }

    fn filled_in(&self, line: &str) -> String {
        let is_name = |character: char| character.is_ascii_lowercase() || character == '_';
        let mut parts = line.split('$');
        let mut filled = parts.next().unwrap_or_default().to_owned();
        // `$schema` and the like are no names of ours, and no line has them.
        for part in parts {
            let end = part.find(|character| !is_name(character)).unwrap_or(part.len());
            let value = self
                .names
                .get(&part[..end])
                .unwrap_or_else(|| panic!("nothing is called `{part}`: {line}"));
            filled.extend([value.as_str(), &part[end..]]);
        }
        filled
    }

    /// Sends a line. On a machine that has no core to spare for a while the gateway cannot say what holds, and refuses
    /// before it does anything; then it is sent again.
    async fn send(&self, line: &Line<'_>, path: &str) -> Reply {
        for _ in 0..TRIES {
            let mut call = self.world.call(line.method, path, &self.names[line.credential]);
            for (name, value) in &line.headers {
                // A test can be generous with what it never gives back.
                call = call.header((*name).to_owned().leak(), *value);
            }
            if let Some(body) = &line.body {
                call = call.json(body);
            }
            let reply = call.send().await;
            if reply.status != 503 || reply.json()["code"] != "ledger_unavailable" {
                return reply;
            }
            tokio::time::sleep(PAUSE).await;
        }
        panic!("{} {path}: the ledger was unavailable {TRIES} times", line.method);
    }

    async fn call(&mut self, line: &Line<'_>) {
        let (template, path) = expand(line.path);
        let what = format!("{} {path}", line.method);
        let operation = &self.contract["paths"][&template][line.method.to_lowercase()];
        assert!(operation.is_object(), "{what}: not in the contract");
        let reply = self.send(line, &path).await;
        assert_eq!(reply.status.as_str(), line.status, "{what}: {}", reply.text());
        self.check_answer(operation, &reply, &what);
        let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
        if let Some(code) = line.code {
            assert_eq!(reply.json()["code"], code, "{what}: {}", reply.text());
            if line.is_misfit {
                let body = line.body.as_ref().expect("what does not fit is a body");
                let faults = faults_of(schema, body, &self.contract["components"]);
                assert!(!faults.is_empty(), "{what}: the contract takes {body}");
            }
            return;
        }
        if let Some(body) = &line.body {
            self.check_fits(schema, body, &what);
        }
        self.played.insert((line.method.to_owned(), template));
        for (name, pointer) in &line.keeps {
            let value = reply.json().pointer(pointer).cloned().unwrap_or_default();
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            self.names.insert((*name).to_owned(), text);
        }
    }

    fn check_answer(&self, operation: &Value, reply: &Reply, what: &str) {
        let mut response = &operation["responses"][reply.status.as_str()];
        if let Some(reference) = response["$ref"].as_str() {
            response = self.contract.pointer(&reference[1..]).unwrap();
        }
        assert!(
            response.is_object(),
            "{what}: {} is not in the contract: {}",
            reply.status,
            reply.text()
        );
        assert!(
            reply.headers.contains_key("x-request-id"),
            "{what}: no request id"
        );
        if reply.status.is_success() {
            check_headers(response, reply, what);
        }
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
                    self.check_fits(schema, &serde_json::from_str(line).unwrap(), what);
                }
            }
            "application/octet-stream" => assert!(!reply.bytes.is_empty(), "{what}"),
            _ if schema["type"] == "string" => assert!(!reply.bytes.is_empty(), "{what}"),
            _ => self.check_fits(schema, &reply.json(), what),
        }
    }

    fn check_fits(&self, schema: &Value, value: &Value, what: &str) {
        let faults = faults_of(schema, value, &self.components);
        assert!(faults.is_empty(), "{what}: {faults:#?}\n{value:#}");
    }
}

/// What a schema among these components has against a value.
fn faults_of(schema: &Value, value: &Value, components: &Value) -> Vec<String> {
    let schema = json!({"allOf": [schema], "components": components});
    let validator: Validator = jsonschema::options()
        .with_draft(Draft::Draft202012)
        .build(&schema)
        .unwrap();
    let faults = validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()));
    faults.collect()
}

/// Every header of an answer is one that the contract names.
fn check_headers(response: &Value, reply: &Reply, what: &str) {
    let described = response["headers"].as_object().unwrap();
    for name in reply.headers.keys().map(HeaderName::as_str) {
        let is_described = described.keys().any(|known| known.eq_ignore_ascii_case(name));
        assert!(
            is_described || OF_HTTP.contains(&name),
            "{what}: `{name}` is not in the contract"
        );
    }
}

/// The components with every object closed, so that a member that the contract does not name is noticed.
fn strict(components: &Value) -> Value {
    let mut strict = closed(components);
    // A response says more about the problem in it, and MCP may say more than we read.
    for open in ["Problem", "McpTools", "McpToolsResult"] {
        strict["schemas"][open] = components["schemas"][open].clone();
    }
    strict
}

fn closed(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut object: Map<_, _> = object
                .iter()
                .map(|(name, value)| (name.clone(), closed(value)))
                .collect();
            if object.get("type") == Some(&json!("object")) && object.contains_key("properties") {
                object.entry("additionalProperties").or_insert(json!(false));
            }
            Value::Object(object)
        }
        Value::Array(items) => Value::Array(items.iter().map(closed).collect()),
        other => other.clone(),
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
