//! The AuthZEN door: the same authorizations in the words of a standard, and searches for what is permitted.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(
    dead_code,
    reason = "tokens have tests of their own, which use the rest of it"
)]
#[path = "../../crates/tokens/tests/tokens/hand.rs"]
mod hand;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
mod support;

use canon::Digest;
use gateway::config::PublicUrl;
use gateway::gateway::Options;
use hand::Signer;
use serde_json::{Value, json};
use stage::{Player, Stage, changing, named};
use store::faults::Fault;
use support::{BEGINNING, Reply};

const EVALUATION: &str = "/access/v1/evaluation";
const EVALUATIONS: &str = "/access/v1/evaluations";
const SUBJECTS: &str = "/access/v1/search/subject";
const RESOURCES: &str = "/access/v1/search/resource";
const ACTIONS: &str = "/access/v1/search/action";
/// Who signs where content came from.
const ISSUER: &str = "https://tokens.example.com";

/// An evaluation of the agent called `builder`.
fn evaluation(tool: &str, action: &str, trust: &str) -> Value {
    json!({
        "subject": {"type": "agent", "id": "builder"},
        "action": {"name": action, "properties": {}},
        "resource": {"type": "tool", "id": tool},
        "context": {"countersign": {"source_trust": trust}},
    })
}

/// It is permitted.
fn permitted() -> Value {
    evaluation("github", "create_issue", "trusted_internal_unsigned")
}

/// It is not.
fn forbidden() -> Value {
    evaluation("github", "create_issue", "untrusted_external")
}

impl Stage {
    async fn evaluate(&self, evaluation: &Value) -> Reply {
        self.post(EVALUATION, &self.agent.token, evaluation).await
    }

    async fn evaluate_all(&self, evaluations: &Value) -> Vec<Value> {
        let answer = self.post(EVALUATIONS, &self.agent.token, evaluations).await;
        answer.expect(200)["evaluations"].as_array().unwrap().clone()
    }

    /// What is found by the operator, in the tenant.
    async fn found(&self, path: &str, search: &Value) -> Vec<Value> {
        let results = self.admin("POST", path, search).await.expect(200);
        assert_eq!(results["page"]["next_token"], "", "{results}");
        let found = results["results"].as_array().unwrap().clone();
        assert_eq!(results["page"]["count"], found.len());
        found
    }

    async fn policy(&self, cedar: &str) {
        let body = json!({"cedar": cedar});
        self.admin("PUT", "/v1/policies/p", &body).await.expect(201);
    }

    /// Registers who signs where content came from.
    async fn trust(&self, signer: &Signer) {
        let jwks = json!({"keys": [signer.jwk("a")]});
        let body = json!({"name": "crm", "purpose": "provenance", "issuer": ISSUER, "jwks": jwks});
        self.admin("POST", "/v1/issuers", &body).await.expect(201);
    }
}

/// A token that says that content is trusted, with this claim beside its own.
fn provenance(signer: &Signer, claim: &str, value: &str) -> String {
    let now = BEGINNING.millis() / 1_000;
    let mut claims = json!({"iss": ISSUER, "aud": "countersign", "iat": now, "exp": now + 300});
    claims["source_trust"] = json!("trusted_internal_signed");
    claims[claim] = json!(value);
    signer.token(json!({"kid": "a"}), &claims)
}

fn decisions(evaluated: &[Value]) -> Vec<bool> {
    let decisions = evaluated.iter().map(|one| one["decision"].as_bool().unwrap());
    decisions.collect()
}

fn names(found: &[Value]) -> Vec<&str> {
    found.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

fn ids(found: &[Value]) -> Vec<&str> {
    found.iter().map(|one| one["id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_evaluation_is_an_authorization() {
    let stage = Stage::set().await;
    let said = stage.evaluate(&permitted()).await.expect(200);
    assert_eq!(said["decision"], true);
    let answer = &said["context"];
    assert_eq!(answer["decision"], "allow");
    let id = answer["decision_id"].as_str().unwrap();
    let receipt = stage.get(&format!("/v1/receipts/{id}"), &stage.agent.token).await;
    assert_eq!(receipt.expect(200), *answer, "what is recorded is what was said");

    let said = stage.evaluate(&forbidden()).await.expect(200);
    assert_eq!(
        (&said["decision"], &said["context"]["reason_code"]),
        (&json!(false), &json!("policy_forbids"))
    );
    // Whoever has to ask people first may not go ahead.
    let asked = evaluation("github", "create_issue", "semi_trusted_customer");
    let said = stage.evaluate(&asked).await.expect(200);
    assert_eq!(said["decision"], false);
    assert_eq!(said["context"]["decision"], "require_approval");
    assert_eq!(stage.count("decision").await, 3);
    stage.assert_sound().await;
}

#[tokio::test]
async fn everything_that_an_ask_has_can_be_said() {
    let stage = Stage::set().await;
    let settings = json!({"settings": {"context_attributes": {"ticket": "String", "größe": "Long"}}});
    let tenant = format!("/v1/tenants/{}", stage.tenant);
    stage
        .call("PATCH", &tenant, &stage.operator)
        .json(&settings)
        .send()
        .await
        .expect(200);
    let ask = json!({
        "request_id": "call-1",
        "tool_call": {"tool": "github", "action": "merge_pull_request", "resource": "repo:acme/widgets#42",
            "mutates_state": true, "parameters": {"base_branch": "topic", "number": 42}},
        "context": {"source_trust": "trusted_internal_unsigned", "contains_sensitive_data": true,
            "sources": {"/base_branch": "trusted_internal_unsigned"}, "attributes": {"ticket": "T-1", "größe": 3}},
        "user": {"id": "u-17"},
        "trace": {"run_id": "run-1"},
        "ttl_ms": 60000,
    });
    let evaluation = json!({
        "subject": {"type": "agent", "id": stage.agent.id, "properties": {"not": "looked at"}},
        "action": {"name": "merge_pull_request", "properties": {"base_branch": "topic", "number": 42}},
        "resource": {"type": "tool", "id": "github", "properties": {"resource": "repo:acme/widgets#42"}},
        "context": {"ticket": "T-1", "größe": 3, "countersign": {
            "request_id": "call-1", "mutates_state": true, "source_trust": "trusted_internal_unsigned",
            "contains_sensitive_data": true, "sources": {"/base_branch": "trusted_internal_unsigned"},
            "user": {"id": "u-17"}, "trace": {"run_id": "run-1"}, "ttl_ms": 60000}},
        "unknown": {"to": "the specification"},
    });
    let said = stage.evaluate(&evaluation).await.expect(200);
    let answer = stage.ask(&ask).await.expect(200);
    assert_eq!(
        said["context"], answer,
        "it is the same ask, so it has the same answer"
    );
    assert_eq!(stage.count("decision").await, 1);
    let decision = &stage.decisions().await[0];
    assert_eq!(decision["attributes"], json!({"größe": 3, "ticket": "T-1"}));

    // The header stands for the name of the request, and the trace is the one that it is part of.
    let plain = stage.ask(&named(changing(), "call-2")).await.expect(200);
    let mut same = permitted();
    same["context"]["countersign"]["request_id"] = json!("call-2");
    let said = stage.evaluate(&same).await.expect(200);
    assert_eq!(said["context"], plain);
    let by_key = stage
        .call("POST", EVALUATION, &stage.agent.token)
        .header("idempotency-key", "call-3")
        .header(
            "traceparent",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        )
        .json(&permitted());
    let first = by_key.send().await.expect(200);
    let by_key = stage
        .call("POST", EVALUATION, &stage.agent.token)
        .header("idempotency-key", "call-3")
        .json(&permitted());
    assert_eq!(by_key.send().await.expect(200), first);
    let mut same = permitted();
    same["context"]["countersign"]["request_id"] = json!("call-3");
    assert_eq!(stage.evaluate(&same).await.expect(200), first);
    let last = stage.decisions().await.pop().unwrap();
    assert_eq!(last["trace_id"], "0af7651916cd43dd8448eb211c80319c");
}

#[tokio::test]
async fn whoever_does_not_say_where_content_came_from_is_trusted_least() {
    let stage = Stage::set().await;
    for context in [
        json!({}),
        json!(null),
        json!({"countersign": {}}),
        json!({"countersign": null}),
    ] {
        let mut evaluation = permitted();
        evaluation["context"] = context;
        let said = stage.evaluate(&evaluation).await.expect(200);
        assert_eq!(said["decision"], false);
        assert_eq!(said["context"]["trust"]["claimed"], "unknown");
    }
    let mut evaluation = evaluation("github", "get_file", "unknown");
    evaluation.as_object_mut().unwrap().remove("context");
    assert_eq!(stage.evaluate(&evaluation).await.expect(200)["decision"], true);
}

/// What is no evaluation, the code that it is refused with, and where it says that something is wrong.
fn wrong() -> Vec<(Value, &'static str, &'static str)> {
    let with = |pointer: &str, value: Value| {
        let mut evaluation = permitted();
        *evaluation.pointer_mut(pointer).unwrap() = value;
        evaluation
    };
    let ours = |member: &str, value: Value| with("/context/countersign", json!({member: value}));
    vec![
        (json!([]), "invalid_field", "the body"),
        (with("/subject", json!(null)), "invalid_field", "/subject"),
        (
            with("/subject", json!({"type": "agent"})),
            "invalid_field",
            "/subject/id",
        ),
        (
            with("/subject/type", json!("user")),
            "invalid_field",
            "/subject/type",
        ),
        (
            with("/resource/type", json!("book")),
            "invalid_field",
            "/resource/type",
        ),
        (
            with("/resource", json!({"type": "tool"})),
            "invalid_field",
            "/resource/id",
        ),
        (
            with("/resource/id", json!("git/hub")),
            "invalid_field",
            "/resource/id",
        ),
        (
            with(
                "/resource",
                json!({"type": "tool", "id": "github", "properties": {"resorce": "x"}}),
            ),
            "unknown_field",
            "/resource/properties",
        ),
        (
            with(
                "/resource",
                json!({"type": "tool", "id": "github", "properties": {"resource": ""}}),
            ),
            "invalid_field",
            "/resource/properties/resource",
        ),
        (with("/action", json!({})), "invalid_field", "/action"),
        // A misspelt word would be none at all.
        (
            with("/action", json!({"name": "a", "propertes": {"urgent": true}})),
            "invalid_field",
            "/action/properties",
        ),
        (with("/action/name", json!("")), "invalid_field", "/action/name"),
        (
            with("/action", json!({"name": "a", "properties": []})),
            "invalid_field",
            "/action/properties",
        ),
        (
            with("/action", json!({"name": "a", "properties": null})),
            "invalid_field",
            "`/action/properties`: is left out or `null`",
        ),
        (with("/context", json!("x")), "invalid_field", "/context"),
        (
            ours("source_trust", json!("high")),
            "invalid_field",
            "/context/countersign/source_trust",
        ),
        (
            ours("sourcetrust", json!("unknown")),
            "unknown_field",
            "/context/countersign",
        ),
        (
            ours("mutates_state", json!(1)),
            "invalid_field",
            "/context/countersign/mutates_state",
        ),
        (
            ours("ttl_ms", json!(1)),
            "invalid_field",
            "/context/countersign/ttl_ms",
        ),
        (
            ours("environment", json!("")),
            "invalid_field",
            "/context/countersign/environment",
        ),
        (
            ours("trace", json!({"run": "x"})),
            "unknown_field",
            "/context/countersign/trace",
        ),
    ]
}

#[tokio::test]
async fn what_is_no_evaluation_is_refused_where_it_was_written() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "reviewer", "tools": "all"})).await;
    for (evaluation, code, place) in &wrong() {
        let detail = stage.evaluate(evaluation).await.problem(400, code);
        assert!(detail.contains(place), "{evaluation}: {detail}");
    }
    let of = |id: &str| {
        let mut evaluation = permitted();
        evaluation["subject"]["id"] = json!(id);
        evaluation
    };
    for id in [other.id.as_str(), "reviewer", "nobody"] {
        let detail = stage.evaluate(&of(id)).await.problem(403, "agent_mismatch");
        assert!(detail.contains("/subject/id"), "{detail}");
    }
    assert_eq!(stage.count("decision").await, 0);
    stage
        .post(EVALUATION, &stage.operator, &permitted())
        .await
        .problem(403, "forbidden");
    stage
        .post(EVALUATION, "", &permitted())
        .await
        .problem(401, "invalid_token");
}

/// What is permitted is done, and nobody would know of it.
#[tokio::test]
async fn an_evaluation_is_no_dry_run() {
    let stage = Stage::set().await;
    let mut dry = permitted();
    dry["context"]["countersign"]["mode"] = json!("dry_run");
    let detail = stage.evaluate(&dry).await.problem(400, "invalid_field");
    assert!(
        detail.starts_with("`/context/countersign/mode`") && detail.contains("`POST /v1/decide`"),
        "{detail}"
    );
    let evaluated = stage
        .evaluate_all(&json!({"evaluations": [dry, permitted()]}))
        .await;
    assert_eq!(decisions(&evaluated), [false, true]);
    assert_eq!(evaluated[0]["context"]["error"]["code"], "invalid_field");
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn evaluations_share_what_stands_beside_them_and_one_commit() {
    let stage = Stage::set().await;
    let body = json!({
        "subject": {"type": "agent", "id": "builder"},
        "action": {"name": "create_issue", "properties": {}},
        "resource": {"type": "tool", "id": "github"},
        "context": {"countersign": {"source_trust": "trusted_internal_unsigned"}},
        "options": {"another": "option"},
        "evaluations": [
            {},
            {"context": {}},
            {"action": {"name": "get_file", "properties": {}}, "context": {}},
            {"resource": {"type": "book", "id": "1"}},
            [],
        ],
    });
    let head = stage.head().await.seq;
    let evaluated = stage.evaluate_all(&body).await;
    assert_eq!(decisions(&evaluated), [true, false, true, false, false]);
    for failed in &evaluated[3..] {
        let error = &failed["context"]["error"];
        assert_eq!(
            (&error["status"], &error["code"]),
            (&json!(400), &json!("invalid_field"))
        );
    }
    assert_eq!(
        evaluated[4]["context"]["error"]["detail"]
            .as_str()
            .unwrap()
            .split('`')
            .nth(1),
        Some("/evaluations/4")
    );
    assert_eq!(stage.head().await.seq, head + 3);
    let sealed: std::collections::BTreeSet<_> = stage.entries().await[usize::try_from(head).unwrap()..]
        .iter()
        .map(|entry| entry.at)
        .collect();
    assert_eq!(sealed.len(), 1);
    let keyed = stage
        .call("POST", EVALUATIONS, &stage.agent.token)
        .header("idempotency-key", "call-1")
        .json(&body);
    keyed.send().await.problem(400, "invalid_parameter");
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_member_of_an_evaluation_takes_the_place_of_the_default_also_if_it_is_null() {
    let stage = Stage::set().await;
    let mut body = permitted();
    body["evaluations"] =
        json!([{}, {"context": null}, {"subject": null}, {"action": null}, {"resource": null}]);
    let evaluated = stage.evaluate_all(&body).await;
    assert_eq!(decisions(&evaluated), [true, false, false, false, false]);
    assert_eq!(evaluated[1]["context"]["trust"]["claimed"], "unknown");
    for (failed, place) in evaluated[2..]
        .iter()
        .zip(["`/subject`", "`/action`", "`/resource`"])
    {
        let error = &failed["context"]["error"];
        assert_eq!(error["code"], "invalid_field");
        assert!(error["detail"].as_str().unwrap().contains(place), "{error}");
    }
}

/// Defaults are sent once, and asked with as often as there are evaluations.
#[tokio::test]
async fn evaluations_have_no_more_bytes_than_a_body_with_their_defaults() {
    let stage = Stage::set().await;
    let body = |pointer: &str, bytes: usize, semantic: &str| {
        let mut body = permitted();
        body.pointer_mut(pointer).unwrap()["text"] = json!("x".repeat(bytes));
        body["evaluations"] = json!(vec![json!({}); 100]);
        body["options"] = json!({"evaluations_semantic": semantic});
        body
    };
    for semantic in ["execute_all", "deny_on_first_deny", "permit_on_first_permit"] {
        for pointer in ["/action/properties", "/context"] {
            for bytes in [3_000, 250_000] {
                let body = body(pointer, bytes, semantic);
                let reply = stage.post(EVALUATIONS, &stage.agent.token, &body).await;
                let detail = reply.problem(413, "body_too_large");
                assert!(detail.contains("262144 bytes"), "{detail}");
            }
        }
    }
    assert_eq!(stage.count("decision").await, 0);
    let short = body("/action/properties", 2_000, "execute_all");
    assert_eq!(decisions(&stage.evaluate_all(&short).await), [true; 100]);
}

#[tokio::test]
async fn evaluations_end_where_their_semantic_says() {
    let stage = Stage::set().await;
    let (yes, no) = (permitted(), forbidden());
    let semantics = [
        ("execute_all", vec![true, false, true, false], 4),
        ("deny_on_first_deny", vec![true, false], 2),
        ("permit_on_first_permit", vec![true], 1),
    ];
    for (semantic, expected, recorded) in semantics {
        let before = stage.count("decision").await;
        let body = json!({"evaluations": [yes, no, yes, no], "options": {"evaluations_semantic": semantic}});
        assert_eq!(
            decisions(&stage.evaluate_all(&body).await),
            expected,
            "{semantic}"
        );
        assert_eq!(
            stage.count("decision").await,
            before + recorded,
            "those behind it are not asked"
        );
    }
    // What cannot be decided is no permission.
    let body = json!({"evaluations": [{}, no, yes, no], "options": {"evaluations_semantic": "permit_on_first_permit"}});
    assert_eq!(decisions(&stage.evaluate_all(&body).await), [false, false, true]);
    let body = json!({"evaluations": [{}, yes], "options": {"evaluations_semantic": "deny_on_first_deny"}});
    assert_eq!(decisions(&stage.evaluate_all(&body).await), [false]);
    // Nor is it where nothing can be recorded, and then nobody behind it is asked.
    let order = |evaluations: Vec<&Value>| json!({"evaluations": evaluations, "options": {"evaluations_semantic": "permit_on_first_permit"}});
    let before = stage.count("decision").await;
    stage.faults.plan([Fault::Pass, Fault::Lose]);
    let evaluated = stage.evaluate_all(&order(vec![&no, &no, &yes])).await;
    assert_eq!(decisions(&evaluated), [false, false]);
    assert_eq!(evaluated[1]["context"]["error"]["code"], "ledger_unavailable");
    stage.faults.plan([Fault::Lose]);
    let refused = stage
        .post(EVALUATIONS, &stage.agent.token, &order(vec![&yes]))
        .await;
    refused.problem(503, "ledger_unavailable");
    assert_eq!(stage.count("decision").await, before + 1);
    let body = json!({"evaluations": [yes], "options": {"evaluations_semantic": "any"}});
    stage
        .post(EVALUATIONS, &stage.agent.token, &body)
        .await
        .problem(400, "invalid_field");
}

#[tokio::test]
async fn without_evaluations_it_is_one() {
    let stage = Stage::set().await;
    for evaluations in [json!(null), json!([])] {
        let mut body = permitted();
        body["evaluations"] = evaluations;
        let keyed = stage
            .call("POST", EVALUATIONS, &stage.agent.token)
            .header("idempotency-key", "call-1")
            .json(&body);
        let said = keyed.send().await.expect(200);
        assert_eq!((&said["decision"], said.get("evaluations")), (&json!(true), None));
    }
    assert_eq!(stage.count("decision").await, 1, "it was the same twice");
    let many = json!({"evaluations": vec![permitted(); 101]});
    stage
        .post(EVALUATIONS, &stage.agent.token, &many)
        .await
        .problem(400, "invalid_field");
}

#[tokio::test]
async fn a_search_for_actions_finds_what_is_permitted_whatever_the_parameters() {
    let stage = Stage::set().await;
    let search = |trust: &str| {
        json!({"subject": {"type": "agent", "id": "builder"}, "resource": {"type": "tool", "id": "github"},
            "context": {"countersign": {"source_trust": trust}}})
    };
    let head = stage.head().await;
    let found = stage.found(ACTIONS, &search("untrusted_external")).await;
    assert_eq!(names(&found), ["get_file"]);
    // A merge may go into main, which takes an approval.
    let found = stage.found(ACTIONS, &search("trusted_internal_unsigned")).await;
    assert_eq!(names(&found), ["create_issue", "get_file"]);
    let own = stage
        .post(ACTIONS, &stage.agent.token, &search("unknown"))
        .await
        .expect(200);
    assert_eq!(own["results"], json!([{"name": "get_file"}]));
    let mut unregistered = search("unknown");
    unregistered["resource"]["id"] = json!("gitlab");
    assert!(stage.found(ACTIONS, &unregistered).await.is_empty());
    assert_eq!(stage.head().await, head, "nothing is recorded");

    let conditional = r#"@id("few") forbid (principal, action == Action::"github/create_issue", resource)
        when { context.parameters.contains("urgent") };"#;
    stage.policy(conditional).await;
    let found = stage.found(ACTIONS, &search("trusted_internal_unsigned")).await;
    assert_eq!(names(&found), ["get_file"], "it depends on the parameters");
    stage
        .set_standing(&stage.agent.clone(), "freeze")
        .await
        .expect(200);
    assert!(
        stage
            .found(ACTIONS, &search("trusted_internal_unsigned"))
            .await
            .is_empty()
    );
}

#[tokio::test]
async fn a_search_for_subjects_finds_agents_and_looks_at_parameters_that_are_given() {
    let stage = Stage::set().await;
    let granted = stage.hire(json!({"name": "granted", "tools": ["github"]})).await;
    let production = json!({"name": "production", "tools": "all", "environment": "production"});
    let production = stage.hire(production).await;
    // Neither has a stranger a grant, nor may an agent of high risk change anything without people.
    stage.hire(json!({"name": "stranger"})).await;
    stage
        .hire(json!({"name": "risky", "tools": "all", "risk_tier": "high"}))
        .await;
    let search = |parameters: Value| {
        json!({"subject": {"type": "agent", "id": "ignored"}, "resource": {"type": "tool", "id": "github"},
            "action": {"name": "merge_pull_request", "properties": parameters},
            "context": {"countersign": {"source_trust": "trusted_internal_unsigned"}}})
    };
    let sorted = |players: &[&Player]| {
        let mut ids: Vec<_> = players.iter().map(|player| player.id.clone()).collect();
        ids.sort_unstable();
        ids
    };
    let topic = json!({"number": 42, "base_branch": "topic"});
    let found = stage.found(SUBJECTS, &search(topic.clone())).await;
    assert_eq!(ids(&found), sorted(&[&stage.agent, &granted, &production]));
    assert!(found.iter().all(|found| found["type"] == "agent"));
    for parameters in [
        json!({"number": 42, "base_branch": "main"}),
        json!({"number": "42"}),
        Value::Null,
    ] {
        assert!(stage.found(SUBJECTS, &search(parameters)).await.is_empty());
    }
    // Whoever is registered for another environment may not act in this one.
    let mut elsewhere = search(topic.clone());
    elsewhere["context"]["countersign"]["environment"] = json!("staging");
    let found = stage.found(SUBJECTS, &elsewhere).await;
    assert_eq!(ids(&found), sorted(&[&stage.agent, &granted]));
    stage
        .post(SUBJECTS, &stage.agent.token, &search(topic))
        .await
        .problem(403, "forbidden");
}

#[tokio::test]
async fn a_search_for_resources_finds_tools_that_have_the_action() {
    let stage = Stage::set().await;
    let body = json!({"actions": [{"name": "get_file", "mutates_state": false, "risk": "low"}]});
    for tool in ["gitlab", "bitbucket"] {
        stage
            .admin("PUT", &format!("/v1/tools/{tool}"), &body)
            .await
            .expect(201);
    }
    let few = stage
        .hire(json!({"name": "few", "tools": ["github", "bitbucket"]}))
        .await;
    let search = |agent: &str, action: &str| json!({"subject": {"type": "agent", "id": agent}, "resource": {"type": "tool"}, "action": {"name": action}});
    let found = stage.found(RESOURCES, &search("builder", "get_file")).await;
    assert_eq!(ids(&found), ["bitbucket", "github", "gitlab"]);
    let own = stage
        .post(RESOURCES, &few.token, &search(&few.id, "get_file"))
        .await
        .expect(200);
    let expected = json!([{"type": "tool", "id": "bitbucket"}, {"type": "tool", "id": "github"}]);
    assert_eq!(own["results"], expected);
    // A trap is permitted to nobody.
    assert!(
        stage
            .found(RESOURCES, &search("builder", "peek"))
            .await
            .is_empty()
    );
    stage
        .post(RESOURCES, &few.token, &search("builder", "get_file"))
        .await
        .problem(403, "agent_mismatch");
}

/// It is no mistake to search for what is not there.
#[tokio::test]
async fn of_what_nobody_has_registered_nothing_is_found() {
    let stage = Stage::set().await;
    let agent = |id: &str| json!({"type": "agent", "id": id});
    let tool = |id: &str| json!({"type": "tool", "id": id});
    let user = json!({"type": "user", "id": "builder"});
    let record = json!({"type": "record", "id": "github", "properties": {"status": "active"}});
    let search = |subject: &Value, action: &str, resource: &Value| json!({"subject": subject, "action": {"name": action}, "resource": resource});
    let (builder, github) = (agent("builder"), tool("github"));
    for path in [SUBJECTS, RESOURCES, ACTIONS] {
        assert!(
            !stage
                .found(path, &search(&builder, "get_file", &github))
                .await
                .is_empty()
        );
        for unknown in [
            search(&user, "get_file", &github),
            search(&builder, "get_file", &record),
        ] {
            assert!(stage.found(path, &unknown).await.is_empty(), "{path} {unknown}");
        }
    }
    for (path, unknown) in [
        (SUBJECTS, search(&builder, "get_file", &tool("gitlab"))),
        (SUBJECTS, search(&builder, "get_file", &tool("git/hub"))),
        (SUBJECTS, search(&builder, "get_files", &github)),
        (RESOURCES, search(&agent("nobody"), "get_file", &github)),
        (RESOURCES, search(&builder, "get_files", &github)),
        (ACTIONS, search(&agent("nobody"), "get_file", &github)),
        (ACTIONS, search(&builder, "get_file", &tool("git/hub"))),
    ] {
        assert!(stage.found(path, &unknown).await.is_empty(), "{path} {unknown}");
    }
    // An agent may ask for itself only, whatever it is said to be.
    let own = search(&user, "get_file", &github);
    let found = stage.post(ACTIONS, &stage.agent.token, &own).await.expect(200);
    assert_eq!(found["results"], json!([]));
    for somebody in [agent("nobody"), json!({"type": "user", "id": "alice"})] {
        let other = search(&somebody, "get_file", &github);
        let refused = stage.post(ACTIONS, &stage.agent.token, &other).await;
        refused.problem(403, "agent_mismatch");
    }
    // Nor is anything left out that a search has to have.
    let (some_user, some_record) = (json!({"type": "user"}), json!({"type": "record"}));
    for (path, wrong) in [
        (SUBJECTS, search(&user, "get_file", &some_record)),
        (RESOURCES, search(&some_user, "get_file", &some_record)),
        (ACTIONS, search(&some_user, "get_file", &record)),
        (ACTIONS, search(&user, "get_file", &some_record)),
    ] {
        let detail = stage
            .admin("POST", path, &wrong)
            .await
            .problem(400, "invalid_field");
        assert!(detail.contains("/id`: is missing"), "{detail}");
    }
}

#[tokio::test]
async fn what_is_wrong_with_a_search_is_told_also_where_nobody_would_be_asked_about() {
    let stage = Stage::set().await;
    let search = |action: &str, tool: &str| {
        json!({"subject": {"type": "agent", "id": "builder"}, "action": {"name": action},
            "resource": {"type": "tool", "id": tool, "properties": {"resource": "r"}}, "context": {"countersign": {}}})
    };
    for path in [SUBJECTS, RESOURCES, ACTIONS] {
        for mut search in [search("get_file", "github"), search("nothing", "nowhere")] {
            stage.admin("POST", path, &search).await.expect(200);
            search["resource"]["properties"]["resource"] = json!("");
            let detail = stage
                .admin("POST", path, &search)
                .await
                .problem(400, "invalid_field");
            assert!(detail.contains("`/resource/properties/resource`"), "{detail}");
            search["resource"]["properties"] = json!(null);
            search["context"]["countersign"]["source_trust"] = json!("high");
            let detail = stage
                .admin("POST", path, &search)
                .await
                .problem(400, "invalid_field");
            assert!(detail.contains("`/context/countersign/source_trust`"), "{detail}");
        }
    }
}

#[tokio::test]
async fn a_search_goes_on_where_its_token_says_and_with_nothing_else_changed() {
    let stage = Stage::set().await;
    let mut all = vec![stage.agent.id.clone()];
    for number in 0..6 {
        let body = json!({"name": format!("agent-{number}"), "tools": if number == 3 { json!([]) } else { json!("all") }});
        let player = stage.hire(body).await;
        if number != 3 {
            all.push(player.id);
        }
    }
    all.sort_unstable();
    let mut search = json!({"subject": {"type": "agent"}, "resource": {"type": "tool", "id": "github"},
        "action": {"name": "get_file"}, "page": {"limit": 2}});
    let mut seen = Vec::new();
    let mut tokens = Vec::new();
    loop {
        let page = stage.admin("POST", SUBJECTS, &search).await.expect(200);
        seen.extend(
            ids(page["results"].as_array().unwrap())
                .into_iter()
                .map(str::to_owned),
        );
        let token = page["page"]["next_token"].clone();
        if token == "" {
            break;
        }
        search["page"]["token"] = token.clone();
        tokens.push(token);
    }
    assert_eq!(seen, all);
    // The token says by itself how many are on a page.
    search["page"] = json!({"token": tokens[0]});
    let page = stage.admin("POST", SUBJECTS, &search).await.expect(200);
    assert_eq!(ids(page["results"].as_array().unwrap()), all[2..4]);
    search["page"] = json!({"limit": 2, "token": tokens[0]});
    let changes = [
        ("/page/limit", json!(3)),
        ("/action/name", json!("create_issue")),
        ("/resource/id", json!("vault")),
        ("/page/token", json!("x")),
    ];
    for (pointer, value) in changes {
        let mut other = search.clone();
        *other.pointer_mut(pointer).unwrap() = value;
        stage
            .admin("POST", SUBJECTS, &other)
            .await
            .problem(400, "invalid_field");
    }
    search["page"] = json!({"limit": 0});
    let none = stage.admin("POST", SUBJECTS, &search).await.expect(200);
    assert_eq!(none["page"]["count"], 0);
    assert_ne!(none["page"]["next_token"], "");
    search["page"] = json!({"limit": 100_000});
    assert_eq!(stage.found(SUBJECTS, &search).await.len(), all.len());
}

/// Nor does it by where a page ends.
#[tokio::test]
async fn a_search_tells_an_agent_of_no_tool_that_it_has_no_grant_for_and_of_no_trap() {
    let stage = Stage::set().await;
    // A trap by its name alone.
    let mail = json!({"actions": [{"name": "send", "mutates_state": false, "risk": "low"}]});
    stage
        .admin("PUT", "/v1/tools/canary-mail", &mail)
        .await
        .expect(201);
    let few = stage
        .hire(json!({"name": "few", "tools": ["github", "honeypot", "canary-mail"]}))
        .await;
    let subject = json!({"type": "agent", "id": "few"});
    for (action, tells) in [
        ("get_file", true),
        ("store", false),
        ("peek", false),
        ("send", false),
    ] {
        let search = json!({"subject": subject, "action": {"name": action}, "resource": {"type": "tool"},
            "page": {"limit": 0}});
        let page = stage.post(RESOURCES, &few.token, &search).await.expect(200);
        assert_eq!(page["page"]["next_token"] != "", tells, "{action}");
    }
    for (tool, tells) in [
        ("github", true),
        ("vault", false),
        ("honeypot", false),
        ("canary-mail", false),
    ] {
        let search =
            json!({"subject": subject, "resource": {"type": "tool", "id": tool}, "page": {"limit": 0}});
        let page = stage.post(ACTIONS, &few.token, &search).await.expect(200);
        assert_eq!(page["page"]["next_token"] != "", tells, "{tool}");
    }
}

#[tokio::test]
async fn a_search_of_an_agent_takes_a_token_and_looks_at_what_is_in_force_when_its_body_has_come() {
    let stage = Stage::set().await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    let search =
        json!({"subject": {"type": "agent", "id": "other"}, "resource": {"type": "tool", "id": "github"}});
    let held = stage
        .call("POST", ACTIONS, &other.token)
        .json(&search)
        .hold()
        .await;
    stage.set_standing(&other, "freeze").await.expect(200);
    let late = held.finish().await.expect(200);
    assert_eq!(late["results"], json!([]));
    stage.set_standing(&other, "unfreeze").await.expect(200);
    let quota = json!({"bucket": {"capacity": 1, "refill_per_second": 0.0}});
    let path = format!("/v1/agents/{}/quota", other.id);
    stage.admin("PUT", &path, &quota).await.expect(200);
    let found = stage.post(ACTIONS, &other.token, &search).await.expect(200);
    assert_eq!(found["results"], json!([{"name": "get_file"}]));
    stage
        .post(ACTIONS, &other.token, &search)
        .await
        .problem(429, "rate_limited");
}

/// What the run of an ask has seen counts; what is only on trial does not.
#[tokio::test]
async fn a_search_looks_at_runs_and_not_at_what_is_on_trial() {
    let stage = Stage::set().await;
    let tenant = format!("/v1/tenants/{}", stage.tenant);
    let settings = json!({"settings": {"run_taint": "deny"}});
    let patch = stage.call("PATCH", &tenant, &stage.operator).json(&settings);
    patch.send().await.expect(200);
    let mut read = evaluation("github", "get_file", "untrusted_external");
    read["context"]["countersign"]["trace"] = json!({"run_id": "run-1"});
    stage.evaluate(&read).await.expect(200);
    let search = |run: &str| {
        let context =
            json!({"countersign": {"source_trust": "trusted_internal_unsigned", "trace": {"run_id": run}}});
        json!({"subject": {"type": "agent", "id": "builder"}, "resource": {"type": "tool", "id": "github"}, "context": context})
    };
    assert_eq!(names(&stage.found(ACTIONS, &search("run-1")).await), ["get_file"]);
    assert_eq!(
        names(&stage.found(ACTIONS, &search("run-2")).await),
        ["create_issue", "get_file"]
    );

    let cedar = r#"@id("none") forbid (principal, action == Action::"github/get_file", resource);"#;
    let shadow = json!({"name": "q", "cedar": cedar, "mode": "shadow"});
    stage.admin("POST", "/v1/policies", &shadow).await.expect(201);
    assert_eq!(names(&stage.found(ACTIONS, &search("run-1")).await), ["get_file"]);
}

#[tokio::test]
async fn a_token_for_one_agent_finds_nobody_else() {
    let stage = Stage::set().await;
    stage.hire(json!({"name": "other", "tools": "all"})).await;
    let signer = Signer::ed25519(1);
    stage.trust(&signer).await;
    let search = |token: &str| {
        let context =
            json!({"countersign": {"source_trust": "trusted_internal_signed", "provenance": token}});
        json!({"subject": {"type": "agent"}, "action": {"name": "create_issue", "properties": {}},
            "resource": {"type": "tool", "id": "github"}, "context": context})
    };
    let found = stage
        .found(SUBJECTS, &search(&provenance(&signer, "sub", "builder")))
        .await;
    assert_eq!(ids(&found), [stage.agent.id.as_str()]);
    let nobodys = stage
        .found(SUBJECTS, &search(&provenance(&signer, "sub", "nobody")))
        .await;
    assert!(nobodys.is_empty());
    let forged = provenance(&Signer::ed25519(2), "sub", "builder");
    let refused = stage.admin("POST", SUBJECTS, &search(&forged)).await;
    refused.problem(400, "provenance_invalid");
}

#[tokio::test]
async fn a_token_about_content_says_nothing_of_parameters_that_nobody_knows() {
    let stage = Stage::set().await;
    let signer = Signer::ed25519(1);
    stage.trust(&signer).await;
    let cedar = r#"@id("signed") forbid (principal, action in Action::"mutate", resource) unless { context.trust.signed };"#;
    stage.policy(cedar).await;
    let search = |token: &str| {
        let context =
            json!({"countersign": {"source_trust": "trusted_internal_signed", "provenance": token}});
        json!({"subject": {"type": "agent", "id": "builder"}, "resource": {"type": "tool", "id": "github"},
            "context": context})
    };
    let of_call = provenance(&signer, "sub", "builder");
    let found = stage.found(ACTIONS, &search(&of_call)).await;
    assert_eq!(names(&found), ["create_issue", "get_file"]);
    for content in ["{}", "quoted"] {
        let hash = Digest::of(content.as_bytes()).to_string();
        let about = provenance(&signer, "content_hash", &hash);
        let found = stage.found(ACTIONS, &search(&about)).await;
        assert_eq!(names(&found), ["get_file"], "{content}");
    }
}

/// What a search finds, an evaluation permits.
#[tokio::test]
async fn what_is_found_is_permitted() {
    let stage = Stage::set().await;
    let search = |tool: &str, trust: &str| {
        let context = json!({"countersign": {"source_trust": trust, "mode": "dry_run"}});
        json!({"subject": {"type": "agent", "id": "builder"}, "resource": {"type": "tool", "id": tool}, "context": context})
    };
    for trust in [
        "trusted_internal_unsigned",
        "semi_trusted_customer",
        "untrusted_external",
        "unknown",
    ] {
        for tool in ["github", "vault"] {
            let found = stage.found(ACTIONS, &search(tool, trust)).await;
            let mut permitted = 0;
            for action in ["get_file", "create_issue", "store", "peek"] {
                let said = stage.evaluate(&evaluation(tool, action, trust)).await.expect(200);
                let is_found = names(&found).contains(&action);
                assert_eq!(said["decision"], is_found, "{trust} {tool}/{action}");
                permitted += usize::from(is_found);
            }
            assert_eq!(permitted, found.len());
        }
        assert!(stage.found(ACTIONS, &search("honeypot", trust)).await.is_empty());
    }
    // What depends on parameters is not found without them, and may be permitted with some.
    let trust = "trusted_internal_unsigned";
    let found = stage.found(ACTIONS, &search("github", trust)).await;
    assert!(!names(&found).contains(&"merge_pull_request"));
    for (base_branch, is_permitted) in [("topic", true), ("main", false)] {
        let mut merge = evaluation("github", "merge_pull_request", trust);
        merge["action"]["properties"] = json!({"number": 42, "base_branch": base_branch});
        let said = stage.evaluate(&merge).await.expect(200);
        assert_eq!(said["decision"], is_permitted, "{base_branch}");
    }
    // Last, because whoever goes into a trap is permitted nothing any more.
    let trapped = evaluation("honeypot", "peek", trust);
    assert_eq!(stage.evaluate(&trapped).await.expect(200)["decision"], false);
    assert!(stage.found(ACTIONS, &search("github", trust)).await.is_empty());
}

#[tokio::test]
async fn an_evaluation_has_the_id_of_its_request_back_as_it_came() {
    let stage = Stage::set().await;
    for id in ["bfe9eb29-ab87-4ca3-be83-a1d5d8305716", "req 42/=;x"] {
        let call = stage
            .call("POST", EVALUATION, &stage.agent.token)
            .header("x-request-id", id);
        let reply = call.json(&permitted()).send().await;
        reply.expect(200);
        assert_eq!(reply.headers["x-request-id"], id);
    }
}

/// The status and the body, straight from the router: other doors send a `Host` of their own.
async fn configuration(stage: &Stage, host: &str) -> (u16, Value) {
    let path = "/.well-known/authzen-configuration";
    let response = stage.call("GET", path, "").header("host", host).respond().await;
    let status = response.status().as_u16();
    let bytes = axum::body::to_bytes(response.into_body(), usize::MAX)
        .await
        .unwrap();
    (status, serde_json::from_slice(&bytes).unwrap())
}

#[tokio::test]
async fn the_configuration_names_where_the_gateway_is_reached() {
    let stage = Stage::set().await;
    let (status, named) = configuration(&stage, "127.0.0.1:8080").await;
    assert_eq!(status, 200);
    assert_eq!(named["policy_decision_point"], "http://127.0.0.1:8080");
    assert_eq!(
        named["access_evaluation_endpoint"],
        format!("http://127.0.0.1:8080{EVALUATION}")
    );
    let (status, problem) = configuration(&stage, "user@example.com").await;
    assert_eq!((status, &problem["code"]), (400, &json!("invalid_parameter")));

    let options = Options {
        public_url: Some("https://gate.example.com/".parse().unwrap()),
        ..Options::default()
    };
    let stage = Stage::set_with(options).await;
    let expected = json!({
        "policy_decision_point": "https://gate.example.com",
        "access_evaluation_endpoint": "https://gate.example.com/access/v1/evaluation",
        "access_evaluations_endpoint": "https://gate.example.com/access/v1/evaluations",
        "search_subject_endpoint": "https://gate.example.com/access/v1/search/subject",
        "search_resource_endpoint": "https://gate.example.com/access/v1/search/resource",
        "search_action_endpoint": "https://gate.example.com/access/v1/search/action",
    });
    assert_eq!(configuration(&stage, "evil.example.com").await, (200, expected));
}

#[test]
fn a_public_url_is_one_that_everybody_can_find_the_configuration_of() {
    let parse = |url: &str| url.parse::<PublicUrl>().ok();
    for url in [
        "https://gate.example.com",
        "https://gate.example.com:8443",
        "https://[::1]/",
        "https://[::1]:8443",
    ] {
        assert_eq!(parse(url).unwrap().as_str(), url.trim_end_matches('/'));
    }
    for url in [
        "",
        "gate.example.com",
        "http://gate.example.com",
        "https://",
        "https://gate.example.com/tenant",
        "https://gate.example.com/?a",
        "https://gate.example.com/#a",
        "https://user@gate.example.com",
        "https://:443",
        "https://gate.example.com:",
        "https://gate.example.com:0",
        "https://gate.example.com:+1",
        "https://gate.example.com:99999",
    ] {
        assert!(parse(url).is_none(), "{url}");
    }
    let refusal = "ftp://gate.example.com".parse::<PublicUrl>().unwrap_err();
    assert!(refusal.to_string().contains("`https`"), "{refusal}");
}
