//! `/v1/rules`: what is done about an agent when the ledger shows too much of something.

use crate::stage::{Stage, asking, changing, injected, reading, trapped};
use crate::support::hand::Hand;
use crate::support::{World, until};
use engine::EntryKind;
use gateway::changes::{By, Force, Order, Plan};
use model::rule::{FIRED_MAX, Fired};
use model::{AgentId, Directory, Noun, Role, Rule, TenantId, Timestamp, Write};
use serde_json::{Value, json};
use std::sync::Arc;

fn rule(trigger: &str, effect: &str, count: u32) -> Value {
    json!({"trigger": trigger, "effect": effect, "count": count, "window_seconds": 60})
}

impl Stage {
    async fn rule(&self, rule: &Value) {
        self.admin("PUT", "/v1/rules/one", rule).await.expect(201);
    }

    /// Lets the gateway look, and returns the entries that a rule has made, with their kinds.
    async fn contained(&self) -> Vec<(String, Value)> {
        self.gateway.contain().await;
        let entries = self.entries().await.into_iter();
        let read = |entry: store::StoredEntry| {
            let body: Value = serde_json::from_str(&entry.body).unwrap();
            (entry.kind, body)
        };
        entries
            .map(read)
            .filter(|(_, body)| body["by"]["rule"] == "one")
            .collect()
    }

    /// Of whom the rule has told, in order. The gateway looks twice: what comes back in one look fires in the next one.
    async fn told(&self) -> Vec<Value> {
        self.contained().await;
        let found = self.contained().await.into_iter();
        found.map(|(_, body)| body["id"].clone()).collect()
    }

    /// What the ledger says about the decisions of an ask, by place.
    async fn deny(&self) -> u64 {
        let answer = self.ask(&injected()).await.expect(200);
        assert_eq!(answer["decision"], "deny");
        answer["receipt"]["seq"].as_u64().unwrap()
    }
}

#[tokio::test]
async fn an_agent_that_is_denied_too_often_is_frozen_once_and_the_entry_says_why() {
    let stage = Stage::set().await;
    stage.deny().await;
    stage.rule(&rule("denials", "freeze", 3)).await;
    let mut evidence = vec![stage.deny().await, stage.deny().await];
    assert_eq!(
        stage.contained().await,
        [],
        "what was before the rule does not count"
    );
    evidence.push(stage.deny().await);
    let found = stage.contained().await;
    let (kind, body) = &found[0];
    assert_eq!((found.len(), kind.as_str()), (1, "agent_frozen"));
    assert_eq!(body["id"], json!(stage.agent.id));
    assert_eq!(body["evidence"], json!(evidence));
    assert_eq!(
        body["by"],
        json!({"rule": "one"}),
        "nobody did it but the rule: {body}"
    );
    for _ in 0..4 {
        let answer = stage.ask(&reading()).await.expect(200);
        assert_eq!(answer["reason_code"], "agent_frozen");
    }
    assert_eq!(
        stage.contained().await.len(),
        1,
        "what is stopped already is no news"
    );
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    assert_eq!(stage.ask(&reading()).await.expect(200)["decision"], "allow");
    stage.deny().await;
    stage.deny().await;
    assert_eq!(
        stage.contained().await.len(),
        1,
        "what was counted counts no more"
    );
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 2);
    let agent = stage
        .admin("GET", &format!("/v1/agents/{}", stage.agent.id), &json!({}))
        .await
        .expect(200);
    assert_eq!(agent["status"], "frozen");
}

#[tokio::test]
async fn a_freeze_that_a_person_has_lifted_does_not_come_back_for_what_was_before() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 3)).await;
    // Nothing is done while they come, as if they came all at once.
    let turn = stage
        .gateway
        .change_locks
        .lock(stage.tenant, Order::AtOnce)
        .await
        .unwrap();
    for _ in 0..5 {
        stage.deny().await;
    }
    drop(turn);
    assert_eq!(stage.contained().await.len(), 1);
    assert_eq!(
        stage.ask(&reading()).await.expect(200)["reason_code"],
        "agent_frozen"
    );
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    assert_eq!(stage.ask(&reading()).await.expect(200)["decision"], "allow");
    let stage = stage.restart().await;
    assert_eq!(stage.contained().await.len(), 1, "nor after a restart");
    stage.deny().await;
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 2, "what comes after it counts");
}

#[tokio::test]
async fn no_reason_tells_an_agent_that_it_is_in_a_trap() {
    let stage = Stage::set().await;
    let answer = stage.ask(&trapped()).await.expect(200);
    assert_eq!(
        answer["reason"],
        "The call is forbidden, and the agent is quarantined"
    );
    let matched = answer["matched_policies"].as_array().unwrap();
    assert!(matched.contains(&json!("base/canary")), "{answer}");
    let frozen = stage.ask(&reading()).await.expect(200);
    assert_eq!(frozen["reason_code"], "agent_frozen");
    let reason = frozen["reason"].as_str().unwrap();
    assert!(!reason.contains("canary") && !reason.contains("trap"), "{reason}");
    let entries = stage.decisions().await;
    assert_eq!(entries[0]["canary"], true, "people are told");
}

#[tokio::test]
async fn a_freeze_that_a_person_lifts_while_the_rule_waits_for_its_turn_does_not_come_back() {
    let stage = Stage::set().await;
    stage.rule(&rule("canary_calls", "freeze", 1)).await;
    // They are due in the same look, and come before it by their names.
    for number in 0..18 {
        let path = format!("/v1/rules/before-{number}");
        let put = rule("canary_calls", "alert", 1);
        stage.admin("PUT", &path, &put).await.expect(201);
    }
    let locks = &stage.gateway.change_locks;
    let mut turn = locks.lock(stage.tenant, Order::AtOnce).await.unwrap();
    stage.ask(&trapped()).await.expect(200);
    // Whoever waits for the turn gets it next, so rules fire one by one.
    while stage.count("alert_raised").await == 0 {
        drop(turn);
        turn = locks.lock(stage.tenant, Order::AtOnce).await.unwrap();
    }
    let pass_on = async {
        let mut turn = turn;
        while stage.count("agent_unfrozen").await == 0 {
            drop(turn);
            turn = locks.lock(stage.tenant, Order::AtOnce).await.unwrap();
        }
    };
    let (lifted, ()) = tokio::join!(stage.set_standing(&stage.agent, "unfreeze"), pass_on);
    lifted.expect(200);
    for _ in 0..2 {
        stage.gateway.contain().await;
        let path = format!("/v1/agents/{}", stage.agent.id);
        let agent = stage.admin("GET", &path, &json!({})).await.expect(200);
        assert_eq!(agent["status"], "active");
    }
}

#[tokio::test]
async fn a_rule_that_was_put_before_the_clock_went_back_fires() {
    let stage = Stage::set().await;
    stage.clock.advance_millis(600_000);
    stage.rule(&rule("denials", "freeze", 2)).await;
    stage.clock.advance_millis(-600_000);
    stage.deny().await;
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
}

#[tokio::test]
async fn while_the_ledger_is_ahead_of_a_clock_that_went_back_hours_are_no_moment() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 3)).await;
    stage.clock.advance_millis(3_600_000);
    stage.deny().await;
    stage.clock.advance_millis(-3_600_000);
    for _ in 0..3 {
        stage.deny().await;
        assert_eq!(stage.contained().await, []);
        stage.clock.advance_millis(1_200_000 - 1);
    }
    // The ledger is still ahead, and what comes at once still counts.
    let evidence = [stage.deny().await, stage.deny().await, stage.deny().await];
    let found = stage.contained().await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1["evidence"], json!(evidence));
}

#[tokio::test]
async fn a_clock_that_is_ahead_for_one_look_takes_nothing_off_what_was_counted() {
    const AHEAD: i64 = 2 * 24 * 3_600_000;
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 3)).await;
    let mut evidence = vec![stage.deny().await, stage.deny().await];
    assert_eq!(stage.contained().await, []);
    stage.clock.advance_millis(AHEAD);
    assert_eq!(stage.contained().await, []);
    stage.clock.advance_millis(-AHEAD);
    evidence.push(stage.deny().await);
    let found = stage.contained().await;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1["evidence"], json!(evidence));
    assert_eq!(stage.contained().await.len(), 1, "nothing is counted twice");

    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    let mut evidence = vec![stage.deny().await, stage.deny().await];
    stage.clock.advance_millis(AHEAD);
    let stage = stage.restart().await;
    assert_eq!(stage.contained().await.len(), 1);
    stage.clock.advance_millis(-AHEAD);
    evidence.push(stage.deny().await);
    let found = stage.contained().await;
    assert_eq!(found.len(), 2, "nor where a gateway begins with it");
    assert_eq!(found[1].1["evidence"], json!(evidence));
}

#[tokio::test]
async fn what_was_counted_after_the_clock_went_back_does_not_come_back_when_another_is_counted() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "alert", 1)).await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    stage.clock.advance_millis(-3 * 3_600_000);
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    stage.clock.advance_millis(25 * 3_600_000 + 60_000);
    stage
        .post("/v1/authorize", &other.token, &injected())
        .await
        .expect(200);
    let each = [json!(stage.agent.id), json!(other.id)];
    assert_eq!(stage.told().await, each);
    let stage = stage.restart().await;
    assert_eq!(stage.told().await, each, "nor after a restart");
}

#[tokio::test]
async fn a_rule_that_fires_while_the_clock_is_ahead_forgets_nothing_that_it_has_counted() {
    const AHEAD: i64 = 2 * 24 * 3_600_000;
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "alert", 1)).await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    stage.deny().await;
    assert_eq!(stage.told().await, [json!(stage.agent.id)]);
    stage.clock.advance_millis(AHEAD);
    stage
        .post("/v1/authorize", &other.token, &injected())
        .await
        .expect(200);
    let each = [json!(stage.agent.id), json!(other.id)];
    assert_eq!(stage.told().await, each);
    stage.clock.advance_millis(-AHEAD);
    assert_eq!(stage.told().await, each);
    let stage = stage.restart().await;
    assert_eq!(stage.told().await, each, "nor after a restart");
}

#[tokio::test]
async fn what_was_counted_of_one_agent_does_not_come_back_when_another_is_counted() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 1)).await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    stage.clock.advance_millis(61_000);
    stage
        .post("/v1/authorize", &other.token, &injected())
        .await
        .expect(200);
    for _ in 0..2 {
        let found = stage.contained().await;
        let frozen: Vec<_> = found.iter().map(|(_, body)| &body["id"]).collect();
        assert_eq!(frozen, [&json!(stage.agent.id), &json!(other.id)]);
    }
    assert_eq!(stage.ask(&reading()).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn a_restart_forgets_nothing_and_counts_nothing_twice() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "alert", 3)).await;
    for _ in 0..2 {
        stage.deny().await;
    }
    assert_eq!(stage.contained().await, []);
    let stage = stage.restart().await;
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    let stage = stage.restart().await;
    assert_eq!(stage.contained().await.len(), 1);
    stage.deny().await;
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 2);
    stage.assert_sound().await;
}

/// Earlier versions remembered everybody for a day.
#[tokio::test]
async fn a_rule_that_remembers_more_than_one_change_may_write_still_freezes() {
    const ALL: u128 = 240_000;
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 1)).await;
    let remember = |directory: &Directory, at: Timestamp| {
        let mut rule = Rule::clone(directory.rules.get("one").unwrap());
        let agents = (0..ALL).map(|number| AgentId::from_bytes(number.to_be_bytes()));
        rule.fired = agents.map(|agent| (agent, Fired { seq: 1, at })).collect();
        Ok(Plan::Change {
            kind: EntryKind::RulePut,
            facts: json!({}),
            writes: vec![Write::Put(Noun::Rule(Arc::new(rule)))],
            answer: (),
        })
    };
    let change = stage
        .gateway
        .change_in(Order::InTurn, By::Start, Force::No, stage.tenant, remember);
    change.await.unwrap();
    stage.deny().await;
    let found = stage.contained().await;
    let kinds: Vec<_> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["agent_frozen"]);
    let snapshot = stage.gateway.snapshot.load();
    let directory = &snapshot.tenant(stage.tenant).unwrap().directory;
    let remembered = directory.rules.get("one").unwrap().fired.len();
    assert!(remembered <= FIRED_MAX, "{remembered}");
}

#[tokio::test]
async fn only_what_is_within_the_window_counts_and_only_of_one_agent() {
    let stage = Stage::set().await;
    stage.rule(&rule("denials", "freeze", 2)).await;
    let other = stage.hire(json!({"name": "other", "tools": "all"})).await;
    stage.deny().await;
    stage
        .post("/v1/authorize", &other.token, &injected())
        .await
        .expect(200);
    stage.clock.advance_millis(60_001);
    stage.deny().await;
    assert_eq!(stage.contained().await, []);
    stage.clock.advance_millis(60_000);
    stage.deny().await;
    assert_eq!(stage.contained().await.len(), 1);
    let answer = stage
        .post("/v1/authorize", &other.token, &reading())
        .await
        .expect(200);
    assert_eq!(answer["decision"], "allow");
}

#[tokio::test]
async fn many_changes_raise_the_risk_tier_and_only_a_person_takes_it_down() {
    let stage = Stage::set().await;
    stage.rule(&rule("mutations", "raise_risk_tier", 2)).await;
    for tier in ["medium", "high"] {
        for _ in 0..2 {
            assert_eq!(stage.ask(&changing()).await.expect(200)["decision"], "allow");
        }
        let (kind, body) = stage.contained().await.pop().unwrap();
        assert_eq!(
            (kind.as_str(), &body["risk_tier"]),
            ("agent_updated", &json!(tier))
        );
    }
    let answer = stage.ask(&changing()).await.expect(200);
    assert_eq!(
        answer["decision"], "require_approval",
        "the base policies ask people about it now"
    );
    stage.clock.advance_millis(86_400_000);
    stage.gateway.contain().await;
    let path = format!("/v1/agents/{}", stage.agent.id);
    assert_eq!(
        stage.admin("GET", &path, &json!({})).await.expect(200)["risk_tier"],
        "high"
    );
    stage
        .admin("PATCH", &path, &json!({"risk_tier": "low"}))
        .await
        .expect(200);
    assert_eq!(stage.ask(&changing()).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn an_outcome_that_differs_and_a_trap_are_told() {
    let stage = Stage::set().await;
    stage.rule(&rule("outcome_mismatch", "alert", 1)).await;
    let answer = stage.ask(&changing()).await.expect(200);
    let path = format!(
        "/v1/decisions/{}/outcome",
        answer["decision_id"].as_str().unwrap()
    );
    let other = canon::Digest::of(b"something else").to_string();
    let outcome = json!({"status": "succeeded", "executed_hash": other});
    stage.post(&path, &stage.agent.token, &outcome).await.expect(201);
    let (kind, body) = stage.contained().await.pop().unwrap();
    assert_eq!(
        (kind.as_str(), &body["trigger"]),
        ("alert_raised", &json!("outcome_mismatch"))
    );

    let trap = json!({"canary": true, "actions": [{"name": "read", "mutates_state": false, "risk": "low"}]});
    stage.admin("PUT", "/v1/tools/trap", &trap).await.expect(201);
    stage
        .admin("PUT", "/v1/rules/one", &rule("canary_calls", "alert", 1))
        .await
        .expect(200);
    let mut touch = reading();
    touch["tool_call"] = json!({"tool": "trap", "action": "read", "parameters": {}});
    stage.ask(&touch).await.expect(200);
    let (_, body) = stage.contained().await.pop().unwrap();
    assert_eq!(body["trigger"], "canary_calls");
}

#[tokio::test]
async fn a_tool_that_becomes_a_trap_was_none_for_those_who_used_it_before() {
    let stage = Stage::set().await;
    stage.rule(&rule("canary_calls", "freeze", 1)).await;
    let put = async |stage: &Stage, canary: bool, status: u16| {
        let action = json!({"name": "read", "mutates_state": false, "risk": "low"});
        let tool = json!({"canary": canary, "actions": [action]});
        let put = stage.admin("PUT", "/v1/tools/attic", &tool).await;
        put.expect(status);
    };
    let touch = asking("attic", "read", "trusted_internal_unsigned");
    put(&stage, false, 201).await;
    assert_eq!(stage.ask(&touch).await.expect(200)["decision"], "allow");
    put(&stage, true, 200).await;
    assert_eq!(stage.contained().await, []);
    let stage = stage.restart().await;
    assert_eq!(stage.contained().await, []);

    let answer = stage.ask(&touch).await.expect(200);
    assert_eq!(answer["matched_policies"], json!(["base/canary"]));
    let (_, body) = stage.contained().await.pop().unwrap();
    assert_eq!(body["evidence"], json!([answer["receipt"]["seq"]]));
    // The ledger says that it was one, and the agent is not told.
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);
    let path = format!("/v1/decisions/{}", answer["decision_id"].as_str().unwrap());
    let shown = stage.admin("GET", &path, &json!({})).await.expect(200);
    assert_eq!(shown["canary"], true);
    let shown = stage.get(&path, &stage.agent.token).await.expect(200);
    assert_eq!(shown.get("canary"), None);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_definition_that_changes_is_counted_when_it_is_imported_and_when_it_is_asked_for() {
    let stage = Stage::set().await;
    let import = |description: &'static str| {
        let definition =
            json!({"name": "send", "description": description, "inputSchema": {"type": "object"}});
        let stage = &stage;
        async move {
            let body = json!({"tools": [definition]});
            stage.admin("POST", "/v1/tools/mail/import", &body).await
        }
    };
    import("sends").await.expect(201);
    stage.rule(&rule("definition_changed", "freeze", 1)).await;
    import("sends").await.expect(200);
    assert_eq!(stage.contained().await, [], "nothing has changed");
    import("sends, and forwards to eve").await.expect(200);
    let found = stage.contained().await;
    let (kind, body) = &found[0];
    assert_eq!((found.len(), kind.as_str()), (1, "tool_frozen"));
    assert_eq!(body["tool"], "mail");
    let entries = stage.entries().await;
    let imported = entries.iter().rfind(|entry| entry.kind == "tool_imported");
    assert_eq!(body["evidence"], json!([imported.unwrap().seq]));
    let answer = stage
        .ask(&crate::stage::asking("mail", "send", "trusted_internal_unsigned"))
        .await
        .expect(200);
    assert_eq!(answer["reason_code"], "tool_quarantined");
    stage
        .admin(
            "POST",
            "/v1/tools/mail/unfreeze",
            &json!({"reason": "looked at it"}),
        )
        .await
        .expect(200);
    assert_eq!(stage.contained().await.len(), 1, "it was counted already");
    let answer = stage
        .ask(&crate::stage::asking("mail", "send", "trusted_internal_unsigned"))
        .await
        .expect(200);
    assert_eq!(answer["reason_code"], "tool_definition_changed");
    let (kind, body) = stage.contained().await.pop().unwrap();
    assert_eq!(kind, "agent_frozen");
    assert_eq!(body["id"], json!(stage.agent.id));
    stage
        .admin(
            "POST",
            &format!("/v1/agents/{}/unfreeze", stage.agent.id),
            &json!({"reason": "not its fault"}),
        )
        .await
        .expect(200);
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_rule_is_put_read_turned_off_and_deleted() {
    let stage = Stage::set().await;
    let path = "/v1/rules/one";
    let body = json!({"trigger": "denials", "effect": "freeze"});
    let view = json!({
        "name": "one", "trigger": "denials", "count": 1, "window_seconds": 60, "effect": "freeze", "enabled": true,
        "since": "2026-01-31T09:30:00.000Z",
    });
    assert_eq!(stage.admin("PUT", path, &body).await.expect(201), view);
    stage.admin("PUT", path, &body).await.expect(200);
    assert_eq!(stage.count("rule_put").await, 1, "the same again is no event");
    let list = stage.admin("GET", "/v1/rules", &json!({})).await.expect(200);
    assert_eq!(list, json!({"items": [view], "next_cursor": null}));
    let mut off = body.clone();
    off["enabled"] = json!(false);
    stage.admin("PUT", path, &off).await.expect(200);
    stage.deny().await;
    assert_eq!(stage.contained().await, [], "it is off");
    stage.admin("PUT", path, &body).await.expect(200);
    assert_eq!(stage.contained().await, [], "it begins to count when it is on");
    stage.admin("DELETE", path, &json!({})).await.expect(204);
    stage.deny().await;
    assert_eq!(stage.contained().await, []);
    stage
        .admin("GET", path, &json!({}))
        .await
        .problem(404, "not_found");
    for (body, code) in [
        (json!({"trigger": "moods", "effect": "freeze"}), "invalid_field"),
        (
            json!({"trigger": "denials", "effect": "freeze", "count": 0}),
            "invalid_field",
        ),
        (
            json!({"trigger": "denials", "effect": "freeze", "window_seconds": 86_401}),
            "invalid_field",
        ),
        (
            json!({"trigger": "denials", "effect": "freeze", "cuont": 3}),
            "unknown_field",
        ),
    ] {
        stage.admin("PUT", path, &body).await.problem(400, code);
    }
}

#[tokio::test]
async fn a_ledger_that_cannot_be_read_leaves_the_rules_of_others_in_force() {
    let world = World::start().await;
    let broken = world.tenancy("broken").await;
    // Tenants are looked at by their age.
    world.clock.advance_millis(1);
    let other = world.tenancy("other").await;
    let mut hand = Hand::on(&world.home, broken.id).await;
    hand.disarm().await;
    hand.run("UPDATE audit_events SET hash = <<'short'>> WHERE entry = #3 AND ITS")
        .await;
    for tenancy in [&broken, &other] {
        let admin = world.add_key(tenancy.id, Role::Admin).await;
        let put = world
            .call("PUT", "/v1/rules/one", &admin)
            .json(&rule("denials", "freeze", 1));
        put.send().await.expect(201);
    }
    let answer = world.authorize(&other.token, &injected()).await.json();
    assert_eq!(answer["reason_code"], "policy_forbids", "{answer}");
    world.gateway.contain().await;
    let answer = world.authorize(&other.token, &injected()).await.json();
    assert_eq!(answer["reason_code"], "agent_frozen", "{answer}");
}

#[tokio::test]
async fn what_is_older_than_a_day_is_not_read_when_a_gateway_begins() {
    const DAY_MS: i64 = 24 * 60 * 60 * 1_000;
    let world = World::start().await;
    let tenancy = world.tenancy("acme").await;
    let mut hand = Hand::on(&world.home, tenancy.id).await;
    hand.disarm().await;
    hand.run("UPDATE audit_events SET hash = <<'short'>> WHERE entry = #1 AND ITS")
        .await;
    world.clock.advance_millis(2 * DAY_MS);
    let admin = world.add_key(tenancy.id, Role::Admin).await;
    let put = world.call("PUT", "/v1/rules/one", &admin);
    let put = put.json(&rule("denials", "freeze", 1));
    put.send().await.expect(201);
    let answer = world.authorize(&tenancy.token, &injected()).await.json();
    assert_eq!(answer["reason_code"], "policy_forbids", "{answer}");
    world.gateway.contain().await;
    let answer = world.authorize(&tenancy.token, &injected()).await.json();
    assert_eq!(answer["reason_code"], "agent_frozen", "{answer}");
}

#[tokio::test]
async fn a_tenant_whose_rules_wait_for_its_other_changes_leaves_those_of_others_in_force() {
    let world = World::start().await;
    let crowded = world.tenancy("crowded").await;
    // Tenants are looked at by their age.
    world.clock.advance_millis(1);
    let other = world.tenancy("other").await;
    let is_stopped = |tenant: TenantId, agent: AgentId| {
        let snapshot = world.gateway.snapshot.load();
        let directory = &snapshot.tenant(tenant).unwrap().directory;
        !directory.agents[&agent].standing.is_active()
    };
    for tenancy in [&crowded, &other] {
        let admin = world.add_key(tenancy.id, Role::Admin).await;
        let put = world.call("PUT", "/v1/rules/one", &admin);
        let put = put.json(&rule("denials", "freeze", 1));
        put.send().await.expect(201);
    }
    // Whoever has this stands for all changes of the first one that are on their way.
    let locks = &world.gateway.change_locks;
    let turn = locks.lock(crowded.id, Order::AtOnce).await.unwrap();
    for tenancy in [&crowded, &other] {
        let answer = world.authorize(&tenancy.token, &injected()).await.json();
        assert_eq!(answer["reason_code"], "policy_forbids", "{answer}");
    }
    until(|| is_stopped(other.id, other.agent)).await;
    assert!(!is_stopped(crowded.id, crowded.agent));
    drop(turn);
    until(|| is_stopped(crowded.id, crowded.agent)).await;
}

/// How many alerts the ledger of a tenant has.
async fn alerts(world: &World, tenant: TenantId) -> usize {
    let entries = world.store.entries(tenant, 1, 1_000).await.unwrap();
    let alerts = entries.iter().filter(|entry| entry.kind == "alert_raised");
    alerts.count()
}

#[tokio::test]
async fn a_tenant_whose_rules_have_much_to_do_leaves_those_of_others_in_force() {
    let world = World::start().await;
    let busy = world.tenancy("busy").await;
    // Tenants are looked at by their age.
    world.clock.advance_millis(1);
    let other = world.tenancy("other").await;
    for (tenancy, effect, rules) in [(&busy, "alert", 25), (&other, "freeze", 1)] {
        let admin = world.add_key(tenancy.id, Role::Admin).await;
        for number in 0..rules {
            let path = format!("/v1/rules/rule-{number}");
            let put = world.call("PUT", &path, &admin);
            let put = put.json(&rule("denials", effect, 1));
            put.send().await.expect(201);
        }
    }
    // After this one, no look goes on that has begun before the rules were there.
    world.gateway.contain().await;
    let locks = &world.gateway.change_locks;
    let mut turn = locks.lock(busy.id, Order::AtOnce).await.unwrap();
    for tenancy in [&busy, &other] {
        let answer = world.authorize(&tenancy.token, &injected()).await.json();
        assert_eq!(answer["reason_code"], "policy_forbids", "{answer}");
    }
    // Whoever waits for the turn gets it next, so rules fire one by one, until as many have as do because of one look.
    while alerts(&world, busy.id).await < 20 {
        drop(turn);
        turn = locks.lock(busy.id, Order::AtOnce).await.unwrap();
    }
    until(|| {
        let snapshot = world.gateway.snapshot.load();
        let directory = &snapshot.tenant(other.id).unwrap().directory;
        !directory.agents[&other.agent].standing.is_active()
    })
    .await;
    drop(turn);
    for _ in 0..2 {
        world.gateway.contain().await;
    }
    let all = alerts(&world, busy.id).await;
    assert_eq!(all, 25, "the rest is done in the next look");
}
