//! Asks that come again, and those that are only tried: what was said stands, and what was tried leaves no trace.

use crate::reason;
use crate::stage::{Stage, asking, changing, injected, named, trapped};
use crate::support::Reply;
use serde_json::{Value, json};

#[tokio::test]
async fn a_dry_run_leaves_nothing_behind() {
    let stage = Stage::set().await;
    let quota = format!("/v1/agents/{}/quota", stage.agent.id);
    stage
        .admin(
            "PUT",
            &quota,
            &json!({"bucket": {"capacity": 1, "refill_per_second": 0}}),
        )
        .await
        .expect(200);
    let head = stage.head().await;
    let mut dry = named(changing(), "call-1");
    dry["mode"] = json!("dry_run");
    let mut dry_trap = trapped();
    dry_trap["mode"] = json!("dry_run");
    for _ in 0..3 {
        let answer = stage.ask(&dry).await.expect(200);
        assert_eq!(answer["decision"], "allow");
        assert!(
            answer.get("receipt").is_none() && answer.get("decision_id").is_none(),
            "{answer}"
        );
        assert_eq!(
            stage.ask(&dry_trap).await.expect(200)["reason_code"],
            "policy_forbids"
        );
    }
    assert_eq!(stage.head().await, head);
    let real = stage.ask(&named(changing(), "call-1")).await.expect(200);
    assert_eq!(real["receipt"]["seq"], head.seq + 1);
    stage.ask(&dry_trap).await.problem(429, "rate_limited");
}

#[tokio::test]
async fn a_dry_run_under_an_id_that_was_used_is_answered_whether_it_is_remembered_or_not() {
    let mut stage = Stage::set().await;
    stage.ask(&named(changing(), "call-1")).await.expect(200);
    let mut dry = named(injected(), "call-1");
    dry["mode"] = json!("dry_run");
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        assert_eq!(
            reason(&stage, &dry).await,
            "policy_forbids",
            "remembered: {remembered}"
        );
    }
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn an_idempotency_key_stands_for_the_request_id() {
    let stage = Stage::set().await;
    let call = |key: &str| {
        stage
            .call("POST", "/v1/authorize", &stage.agent.token)
            .header("idempotency-key", key.to_owned())
    };
    let first = call("\"call-1\"").json(&changing()).send().await;
    first.expect(200);
    assert_eq!(call("call-1").json(&changing()).send().await.bytes, first.bytes);
    call("call-1")
        .json(&injected())
        .send()
        .await
        .problem(422, "idempotency_key_reused");
    assert_eq!(stage.decisions().await[0]["request_id"], "call-1");
    call("call-2")
        .json(&named(changing(), "call-3"))
        .send()
        .await
        .problem(400, "invalid_parameter");
    call("")
        .json(&changing())
        .send()
        .await
        .problem(400, "invalid_parameter");
    call("call-4")
        .json(&named(changing(), "call-4"))
        .send()
        .await
        .expect(200);
    assert_eq!(stage.count("decision").await, 2);
}

/// The answer to an ask under this key.
async fn keyed(stage: &Stage, key: &str, ask: &Value) -> Reply {
    let call = stage.call("POST", "/v1/authorize", &stage.agent.token);
    call.header("idempotency-key", key).json(ask).send().await
}

#[tokio::test]
async fn it_is_the_same_ask_whether_its_id_stands_in_the_header_or_in_the_body() {
    let mut stage = Stage::set().await;
    let mut unnamed = changing();
    unnamed["request_id"] = Value::Null;
    let by_header = keyed(&stage, "call-1", &changing()).await;
    by_header.expect(200);
    let by_body = stage.ask(&named(changing(), "call-2")).await;
    by_body.expect(200);
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        for (key, first) in [("call-1", &by_header), ("call-2", &by_body)] {
            let told = format!("{key}, remembered: {remembered}");
            let in_body = stage.ask(&named(changing(), key)).await;
            assert_eq!(in_body.bytes, first.bytes, "{told}");
            for ask in [changing(), unnamed.clone(), named(changing(), key)] {
                let again = keyed(&stage, key, &ask).await;
                assert_eq!(again.bytes, first.bytes, "{told}, {ask}");
            }
            let other = keyed(&stage, key, &injected()).await;
            other.problem(422, "idempotency_key_reused");
        }
    }
    assert_eq!(stage.count("decision").await, 2);
}

#[tokio::test]
async fn a_frozen_agent_does_not_get_yesterdays_allow() {
    let mut stage = Stage::set().await;
    let (allowed, denied) = (named(changing(), "call-1"), named(injected(), "call-2"));
    let (allow, denial) = (stage.ask(&allowed).await, stage.ask(&denied).await);
    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        assert_eq!(
            reason(&stage, &allowed).await,
            "agent_frozen",
            "remembered: {remembered}"
        );
        assert_eq!(
            stage.ask(&denied).await.bytes,
            denial.bytes,
            "remembered: {remembered}"
        );
    }
    assert_eq!(stage.count("decision").await, 4);
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    assert_eq!(stage.ask(&allowed).await.bytes, allow.bytes);
    stage.assert_sound().await;
}

/// An agent in staging, three asks that it has had answered, and what each is refused with when the agent and the
/// tenant are no more what they were.
async fn answered_and_changed() -> (Stage, Vec<(Value, Reply, u16, &'static str)>) {
    let mut stage = Stage::set().await;
    let of_region = |region| json!({"context_attributes": {"region": region}});
    stage.settle(json!({"observe": true})).await;
    stage.settle(of_region("String")).await;
    let placed = json!({"name": "deployer", "tools": "all", "environment": "staging"});
    stage.agent = stage.hire(placed).await;
    let mut allowed = named(changing(), "call-1");
    allowed["agent"] = json!({"environment": "staging"});
    let mut observed = named(injected(), "call-2");
    observed["mode"] = json!("observe");
    let mut attributed = named(injected(), "call-3");
    attributed["context"]["attributes"] = json!({"region": "eu"});
    let mut asks = Vec::new();
    for (ask, status, code) in [
        (allowed, 403, "environment_not_allowed"),
        (observed, 403, "observe_not_permitted"),
        (attributed, 400, "invalid_field"),
    ] {
        let reply = stage.ask(&ask).await;
        reply.expect(200);
        asks.push((ask, reply, status, code));
    }
    let path = format!("/v1/agents/{}", stage.agent.id);
    let moved = json!({"environment": "production"});
    stage.admin("PATCH", &path, &moved).await.expect(200);
    stage.settle(json!({"observe": false})).await;
    stage.settle(of_region("Long")).await;
    (stage, asks)
}

#[tokio::test]
async fn what_was_answered_is_answered_again_though_it_would_be_refused_now() {
    let (mut stage, asks) = answered_and_changed().await;
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        for (ask, reply, status, code) in &asks {
            let told = format!("{code}, remembered: {remembered}");
            assert_eq!(stage.ask(ask).await.bytes, reply.bytes, "{told}");
            let batch = json!({"asks": [ask]});
            let answers = stage.post("/v1/authorize/batch", &stage.agent.token, &batch);
            let answers = answers.await.expect(200);
            assert_eq!(answers["answers"], json!([reply.json()]), "{told}");
            let fresh = named(ask.clone(), "call-4");
            stage.ask(&fresh).await.problem(*status, code);
            let mut other = ask.clone();
            other["tool_call"]["parameters"] = json!({"other": true});
            stage.ask(&other).await.problem(422, "idempotency_key_reused");
        }
    }
    assert_eq!(stage.count("decision").await, asks.len());
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_frozen_agent_does_not_get_yesterdays_allow_though_it_would_be_refused_now() {
    let (mut stage, asks) = answered_and_changed().await;
    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        for (ask, reply, status, code) in &asks {
            let again = stage.ask(ask).await;
            if reply.json()["decision"] == "deny" {
                assert_eq!(again.bytes, reply.bytes, "remembered: {remembered}");
            } else {
                again.problem(*status, code);
            }
        }
    }
    assert_eq!(stage.count("decision").await, asks.len());
}

/// A tool is frozen by its tenant's admin, a tenant by the operator.
async fn stand(stage: &Stage, what: &str, verb: &str) -> Reply {
    let because = json!({"reason": "odd"});
    if what == "tool" {
        let path = format!("/v1/tools/github/{verb}");
        return stage.admin("POST", &path, &because).await;
    }
    let path = format!("/v1/tenants/{}/{verb}", stage.tenant);
    stage.post(&path, &stage.operator, &because).await
}

/// An earlier allow is a denial for this reason now, and an earlier denial is what it was: from memory, and after a restart.
async fn assert_taken_back(
    mut stage: Stage,
    (allowed, expected): (&Value, &str),
    (denied, denial): (&Value, &Reply),
    what: &str,
) -> Stage {
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        let told = format!("{what}, remembered: {remembered}");
        assert_eq!(reason(&stage, allowed).await, expected, "{told}");
        assert_eq!(stage.ask(denied).await.bytes, denial.bytes, "{told}");
    }
    stage
}

#[tokio::test]
async fn a_frozen_tool_or_tenant_does_not_get_yesterdays_allow() {
    for (what, expected) in [("tool", "tool_quarantined"), ("tenant", "tenant_frozen")] {
        let mut stage = Stage::set().await;
        let (allowed, denied) = (named(changing(), "call-1"), named(injected(), "call-2"));
        let (allow, denial) = (stage.ask(&allowed).await, stage.ask(&denied).await);
        assert_eq!(allow.expect(200)["decision"], "allow");
        stand(&stage, what, "freeze").await.expect(200);
        stage = assert_taken_back(stage, (&allowed, expected), (&denied, &denial), what).await;
        assert_eq!(stage.count("decision").await, 4);
        stand(&stage, what, "unfreeze").await.expect(200);
        assert_eq!(stage.ask(&allowed).await.bytes, allow.bytes);
        stage.assert_sound().await;
    }
}

/// Takes away what an allow rests on.
async fn take_away(stage: &Stage, what: &str) {
    let delete = |path: &str| {
        let call = stage.call("DELETE", path, &stage.operator);
        call.tenant(stage.tenant).send()
    };
    let tool = "/v1/tools/github";
    let action = |name| json!({"actions": [{"name": name, "mutates_state": true, "risk": "medium"}]});
    match what {
        "action" => {
            let others = action("close_issue");
            stage.admin("PUT", tool, &others).await.expect(200);
        }
        "grant" => {
            let grant = format!("/v1/agents/{}/tools/github", stage.agent.id);
            delete(&grant).await.expect(204);
        }
        _ => {
            delete(tool).await.expect(204);
        }
    }
    if what == "tool of before" {
        let same = action("create_issue");
        stage.admin("PUT", tool, &same).await.expect(201);
    }
}

#[tokio::test]
async fn nobody_gets_yesterdays_allow_for_what_was_taken_away() {
    for (what, expected) in [
        ("tool", "unknown_tool"),
        ("tool of before", "tool_not_granted"),
        ("action", "unknown_tool"),
        ("grant", "tool_not_granted"),
    ] {
        let mut stage = Stage::set().await;
        let clerk = json!({"name": "clerk", "tools": ["github"]});
        stage.agent = stage.hire(clerk).await;
        let (allowed, denied) = (named(changing(), "call-1"), named(injected(), "call-2"));
        let (allow, denial) = (stage.ask(&allowed).await, stage.ask(&denied).await);
        assert_eq!(allow.expect(200)["decision"], "allow");
        take_away(&stage, what).await;
        stage = assert_taken_back(stage, (&allowed, expected), (&denied, &denial), what).await;
        assert_eq!(stage.count("decision").await, 4, "{what}");
        stage.assert_sound().await;
    }
}

/// A tool with one action, as an MCP server lists it now.
async fn import(stage: &Stage, description: &str) -> Reply {
    let definition = json!({"name": "send", "description": description, "inputSchema": {"type": "object"}});
    let listing = json!({"tools": [definition]});
    stage.admin("POST", "/v1/tools/mail/import", &listing).await
}

#[tokio::test]
async fn nobody_gets_yesterdays_allow_while_a_changed_definition_is_held() {
    let mut stage = Stage::set().await;
    let path = format!("/v1/tenants/{}", stage.tenant);
    let permitting = json!({"settings": {"observe": true}});
    let call = stage.call("PATCH", &path, &stage.operator);
    call.json(&permitting).send().await.expect(200);
    import(&stage, "sends").await.expect(201);
    let sending = |trust, id| named(asking("mail", "send", trust), id);
    let allowed = sending("trusted_internal_unsigned", "call-1");
    let denied = sending("untrusted_external", "call-2");
    let mut observed = sending("untrusted_external", "call-3");
    observed["mode"] = json!("observe");
    let allow = stage.ask(&allowed).await;
    assert_eq!(allow.expect(200)["decision"], "allow");
    let denial = stage.ask(&denied).await;
    assert_eq!(denial.expect(200)["reason_code"], "policy_forbids");
    let observation = stage.ask(&observed).await;
    assert_eq!(observation.expect(200)["reason_code"], "observed");

    import(&stage, "sends, and forwards to eve").await.expect(200);
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        let told = format!("remembered: {remembered}");
        assert_eq!(
            reason(&stage, &allowed).await,
            "tool_definition_changed",
            "{told}"
        );
        let batch = json!({"asks": [allowed]});
        let answers = stage
            .post("/v1/authorize/batch", &stage.agent.token, &batch)
            .await
            .expect(200);
        assert_eq!(
            answers["answers"][0]["reason_code"], "tool_definition_changed",
            "{told}"
        );
        assert_eq!(stage.ask(&denied).await.bytes, denial.bytes, "{told}");
        assert_eq!(stage.ask(&observed).await.bytes, observation.bytes, "{told}");
    }
    assert_eq!(stage.count("decision").await, 7);
    let accept = "/v1/tools/mail/actions/send/accept";
    stage.admin("POST", accept, &json!({})).await.expect(200);
    assert_eq!(stage.ask(&allowed).await.bytes, allow.bytes);
    stage.assert_sound().await;
}
