//! `replay`: recorded decisions judged again by a candidate, with what was recorded about them and nothing else.

use crate::stage::{asking, changing, injected, reading};
use crate::support::hand::Hand;
use crate::support::until;
use crate::{Desk, NO_ISSUES, Reply, diagnostics, key, text};
use gateway::policies::replay;
use model::{Clock, TenantId};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;

/// Looks at everything that a policy can look at, and says three different things.
const CURIOUS: &str = r#"
@id("large") @decision("require_approval") @approvers("leads")
permit (principal, action == Action::"bank/pay", resource)
when { context.input has amount && context.input.amount > 1000 };
@id("small") permit (principal, action == Action::"bank/pay", resource)
when { context.input has amount && context.input.amount <= 1000 && context.trust.rank >= 2 };
@id("sanctioned") forbid (principal, action == Action::"bank/pay", resource == Resource::"account:evil");
@id("night") forbid (principal, action in Action::"mutate", resource)
when { context.now.toTime() >= duration("22h") };
@id("team") forbid (principal, action in Action::"mutate", resource)
when { principal in Team::"interns" && Team::"interns".hasTag("barred") };
@id("person") forbid (principal, action, resource)
when { context has user && context.user.hasTag("barred") };
@id("agent") forbid (principal, action, resource) when { principal.hasTag("barred") };
@id("tier") forbid (principal, action in Action::"risk:high", resource) when { principal.risk_tier == "high" };
@id("region") forbid (principal, action, resource)
when { context.attributes has region && context.attributes.region == "embargoed" };
@id("sensitive") forbid (principal, action in Action::"mutate", resource) when { context.sensitive };
@id("run") permit (principal, action == Action::"bank/pay", resource) when { context has run && context.run.id == "payday" };
@id("source") forbid (principal, action == Action::"bank/pay", resource)
when { context.sources.amount.rank <= 3 && context.trust.rank >= 4 };
@id("named") forbid (principal, action == Action::"bank/pay", resource) when { context.parameters.contains("override") };
@id("low") @decision("require_approval") permit (principal, action in Action::"read", resource)
when { context.usage has budget && context.usage.budget.remaining < 500 };
@id("often") forbid (principal, action == Action::"github/get_file", resource)
when { context.usage.calls has month && context.usage.calls.month.used >= 2 };
"#;

impl Desk {
    /// Sets members of the tenant's settings.
    async fn set(&self, settings: Value) {
        let path = format!("/v1/tenants/{}", self.tenant);
        let call = self.call("PATCH", &path, &self.operator);
        call.json(&json!({"settings": settings})).send().await.expect(200);
    }

    /// What came of a replay with these members beside the candidate.
    async fn replay(&self, policies: &[(&str, &str)], members: Value) -> Value {
        let mut body = json!({"candidate": candidate(policies)});
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        self.edit("POST", "/replay", &body).await.expect(200)
    }

    /// Makes the directory that [`CURIOUS`] speaks of.
    async fn furnish(&self) {
        let schema = json!({"type": "object", "properties": {
            "amount": {"type": "integer"}, "to": {"type": "string"}, "override": {"type": "boolean"}, "pin": {"type": "string"}}});
        let bank = json!({"actions": [
            {"name": "pay", "mutates_state": true, "risk": "high", "input_schema": schema},
            {"name": "balance", "mutates_state": false, "risk": "low"}]});
        self.admin("PUT", "/v1/tools/bank", &bank).await.expect(201);
        self.admin("PUT", "/v1/teams/interns", &json!({}))
            .await
            .expect(201);
        self.admin("PUT", "/v1/users/ann", &json!({})).await.expect(201);
        let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 550});
        self.admin("POST", "/v1/budgets", &budget).await.expect(201);
        let quotas = json!({"quotas": [{"window": "month", "limit": 1000}]});
        let path = format!("/v1/agents/{}/quota", self.agent.id);
        self.admin("PUT", &path, &quotas).await.expect(200);
        let planner = json!({"name": "planner", "tools": ["bank", "github", "vault"]});
        self.hire(planner).await;
    }
}

fn candidate(policies: &[(&str, &str)]) -> Value {
    let policies = policies
        .iter()
        .map(|(name, cedar)| json!({"name": name, "cedar": cedar}));
    json!({"policies": policies.collect::<Vec<_>>()})
}

/// The groups of a report in short: from, to, tool, action, how many.
fn groups(report: &Value) -> Vec<String> {
    let groups = report["groups"].as_array().unwrap().iter();
    groups
        .map(|group| {
            let word = |member: &str| text(&group[member]);
            format!(
                "{}->{} {}/{} {}",
                word("from"),
                word("to"),
                word("tool"),
                word("action"),
                group["count"]
            )
        })
        .collect()
}

fn flips(report: &Value) -> u64 {
    let flips = report["flips"].as_object().unwrap();
    assert_eq!(flips.len(), 6, "{flips:?}");
    flips.values().map(|count| count.as_u64().unwrap()).sum()
}

fn paying(amount: u64) -> Value {
    let mut ask = asking("bank", "pay", "trusted_internal_unsigned");
    ask["tool_call"]["parameters"] = json!({"amount": amount, "to": "ann", "pin": "hunter2"});
    ask
}

/// A reproducible sequence of choices.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        // Knuth's multiplier; the low bits are poor, so they are left out.
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())].clone()
    }

    /// An ask that looks different every time.
    fn ask(&mut self) -> Value {
        let trust = self.pick(&[
            "trusted_internal_signed",
            "semi_trusted_customer",
            "untrusted_external",
            "unknown",
        ]);
        let (tool, action) = self.pick(&[
            ("bank", "pay"),
            ("bank", "pay"),
            ("bank", "balance"),
            ("github", "merge_pull_request"),
            ("github", "get_file"),
            ("vault", "store"),
            ("nobody", "knows"),
        ]);
        let mut ask = asking(tool, action, trust);
        ask["tool_call"]["parameters"] = match action {
            "pay" => self.pick(&[
                json!({"amount": 10, "pin": "1"}),
                json!({"amount": 5000, "to": "x"}),
                json!({}),
                json!({"amount": 10, "override": true}),
                json!({"amount": "ten"}),
            ]),
            "merge_pull_request" => self.pick(&[
                json!({"number": 1, "base_branch": "main"}),
                json!({"number": 1, "base_branch": "dev"}),
                json!({"number": 1}),
            ]),
            "store" => self.pick(&[json!({"password": "x"}), json!({})]),
            _ => json!({}),
        };
        ask["tool_call"]["resource"] =
            self.pick(&[json!("account:evil"), json!("account:good"), Value::Null]);
        ask["tool_call"]["mutates_state"] = self.pick(&[json!(true), Value::Null]);
        ask["context"]["contains_sensitive_data"] =
            self.pick(&[json!(true), json!(false), Value::Null, Value::Null]);
        ask["context"]["attributes"] = self.pick(&[
            json!({"region": "embargoed"}),
            json!({"region": "eu", "x": [1]}),
            Value::Null,
        ]);
        ask["context"]["sources"] = self.pick(&[
            json!({"/amount": "semi_trusted_customer"}),
            Value::Null,
            Value::Null,
        ]);
        ask["user"] = self.pick(&[json!({"id": "ann"}), json!({"id": "stranger"}), Value::Null]);
        ask["trace"] = self.pick(&[json!({"run_id": "payday"}), Value::Null]);
        ask["mode"] = self.pick(&[json!("observe"), Value::Null, Value::Null]);
        ask["estimate"] = self.pick(&[json!({"unit": "TOKENS", "amount": 30}), Value::Null]);
        ask["act"] = self.pick(&[json!({"sub": "planner"}), Value::Null, Value::Null, Value::Null]);
        ask
    }
}

/// The directory never stays what it was, and neither does the time, while the policies do.
async fn live_a_while(desk: &Desk, seed: u64, asks: usize) {
    let mut dice = Dice(seed);
    for number in 0..asks {
        desk.clock.advance_millis(1_700_000);
        let barred = dice.pick(&[json!({}), json!({}), json!({"attributes": {"barred": true}})]);
        match number % 7 {
            1 => drop(desk.admin("PUT", "/v1/teams/interns", &barred).await.expect(200)),
            2 => {
                let used = json!({"unit": "TOKENS", "amount": 30});
                desk.post("/v1/usage", &desk.agent.token, &used).await.expect(201);
            }
            3 => drop(desk.admin("PUT", "/v1/users/ann", &barred).await.expect(200)),
            4 => {
                let found = desk.call("GET", "/v1/agents", &desk.operator).tenant(desk.tenant);
                let found = found.send().await.expect(200);
                let agents = found["items"].as_array().unwrap();
                let planner = agents.iter().find(|agent| agent["name"] == "planner").unwrap();
                let patch = dice.pick(&[
                    json!({"attributes": {"barred": true}}),
                    json!({"attributes": {}, "team": "interns"}),
                    json!({"attributes": {}, "team": null, "tools": ["bank"]}),
                    json!({"attributes": {}, "tools": "all"}),
                ]);
                let planner = format!("/v1/agents/{}", text(&planner["id"]));
                desk.admin("PATCH", &planner, &patch).await.expect(200);
            }
            5 => {
                let patch = dice.pick(&[
                    json!({"team": "interns"}),
                    json!({"team": null}),
                    json!({"risk_tier": "high"}),
                    json!({"risk_tier": "low"}),
                    json!({"attributes": {"barred": 1}}),
                    json!({"attributes": {}}),
                ]);
                let itself = format!("/v1/agents/{}", desk.agent.id);
                desk.admin("PATCH", &itself, &patch).await.expect(200);
            }
            _ => {}
        }
        desk.ask(&dice.ask()).await.expect(200);
    }
}

#[tokio::test]
async fn what_was_in_force_flips_nothing_whatever_has_changed_since() {
    for (seed, parameters) in [(1, "clear"), (2, "digest"), (3, "redacted")] {
        let desk = Desk::open().await;
        desk.furnish().await;
        desk.set(
            json!({"observe": true, "parameters": parameters, "context_attributes": {"region": "String"}}),
        )
        .await;
        desk.put("curious", CURIOUS).await.expect(201);
        live_a_while(&desk, seed, 280).await;
        let report = desk.replay(&[("curious", CURIOUS)], json!({})).await;
        assert_eq!(
            (report["decisions"].as_u64(), flips(&report)),
            (Some(280), 0),
            "{report:#}"
        );
        assert_eq!(report["unchanged"], report["replayed"]);
        assert_eq!(report["policy_digest"], desk.answer().await["policy"]["digest"]);
        let why_not = report["not_replayed"].as_object().unwrap();
        let expected: &[&str] = match parameters {
            "digest" => &["not_ruled", "parameters_not_stored"],
            // Where something is redacted, nothing is kept of asks that no policy ruled on.
            _ => &["not_ruled"],
        };
        assert_eq!(why_not.keys().collect::<Vec<_>>(), expected, "{report:#}");
        let left: u64 = why_not.values().map(|count| count.as_u64().unwrap()).sum();
        assert_eq!(report["replayed"].as_u64().unwrap() + left, 280);
        // It was no trivial life: everything occurs that there is to replay.
        let decisions = desk.decisions().await;
        let occurs = |verdict: &str| decisions.iter().any(|decision| decision["decision"] == verdict);
        assert!(["allow", "deny", "require_approval"].into_iter().all(occurs));
        for id in ["curious/low", "curious/often"] {
            let matched = |decision: &Value| decision["matched_policies"].to_string().contains(id);
            assert!(decisions.iter().any(matched), "{id}");
        }
        assert!(
            decisions
                .iter()
                .any(|decision| decision["reason_code"] == "observed")
        );
    }
}

#[tokio::test]
async fn the_gate_that_would_open_comes_first_and_names_its_newest_decisions() {
    let desk = Desk::open().await;
    desk.furnish().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let other = desk.hire(json!({"name": "other", "tools": "all"})).await;
    let mut denied = Vec::new();
    for _ in 0..7 {
        denied.push(desk.ask(&changing()).await.expect(200)["decision_id"].clone());
    }
    desk.post("/v1/authorize", &other.token, &changing())
        .await
        .expect(200);
    desk.ask(&reading()).await.expect(200);
    desk.ask(&asking("vault", "store", "semi_trusted_customer"))
        .await
        .expect(200);
    desk.ask(&injected()).await.expect(200);

    let strict = r#"@id("shut") @reason("Shut") forbid (principal, action in [Action::"tool:vault", Action::"github/get_file"], resource);"#;
    let head = desk.head().await;
    let report = desk.replay(&[("strict", strict)], json!({})).await;
    assert_eq!(
        groups(&report),
        [
            "deny->allow github/create_issue 7",
            "deny->allow github/create_issue 1",
            "require_approval->deny vault/store 1",
            "allow->deny github/get_file 1",
        ]
    );
    assert_eq!(
        report["flips"],
        json!({"deny_to_allow": 8, "deny_to_require_approval": 0, "require_approval_to_allow": 0,
            "allow_to_require_approval": 0, "require_approval_to_deny": 1, "allow_to_deny": 1})
    );
    let counts = ["decisions", "replayed", "unchanged", "flips_not_listed"]
        .map(|member| report[member].as_u64().unwrap());
    assert_eq!(counts, [11, 11, 1, 0]);
    assert_eq!(
        (&report["has_more"], &report["not_replayed"]),
        (&json!(false), &json!({}))
    );

    let first = &report["groups"][0];
    assert_eq!(first["agent"], desk.agent.id);
    assert_eq!(report["groups"][1]["agent"], other.id);
    let named: Vec<_> = first["examples"]
        .as_array()
        .unwrap()
        .iter()
        .map(|example| &example["decision_id"])
        .collect();
    assert_eq!(named, denied.iter().rev().take(5).collect::<Vec<_>>());
    let example = &first["examples"][0];
    assert_eq!(
        (&example["was"], &example["would_be"]),
        (
            &json!({"decision": "deny", "reason_code": "policy_forbids", "matched_policies": ["issues/none"]}),
            &json!({"decision": "allow", "reason_code": "policy_permits", "matched_policies": ["base/mutation-from-trusted"]}),
        )
    );
    assert_eq!(desk.head().await, head, "a replay records nothing");
    assert_eq!(desk.decision().await, "deny", "and changes nothing");
}

#[tokio::test]
async fn what_nobody_kept_is_counted_and_not_guessed() {
    let desk = Desk::open().await;
    desk.furnish().await;
    for keeping in ["digest", "redacted", "clear"] {
        desk.set(json!({"parameters": keeping})).await;
        desk.ask(&paying(5_000)).await.expect(200);
    }
    // Two asks of which the tenant takes something out, and one that has nothing to be taken out.
    desk.set(json!({"parameters": "redacted", "redact": ["/pin"]}))
        .await;
    desk.ask(&paying(5_000)).await.expect(200);
    let mut without = paying(5_000);
    without["tool_call"]["parameters"]
        .as_object_mut()
        .unwrap()
        .remove("pin");
    desk.ask(&without).await.expect(200);
    // No policy was asked about these.
    desk.ask(&asking("nobody", "knows", "unknown")).await.expect(200);
    let mut unfit = paying(0);
    unfit["tool_call"]["parameters"]["amount"] = json!("much");
    desk.ask(&unfit).await.expect(200);

    let blind = r#"@id("no") forbid (principal, action == Action::"bank/pay", resource);"#;
    let report = desk.replay(&[("blind", blind)], json!({})).await;
    assert_eq!(groups(&report), ["allow->deny bank/pay 5"]);
    assert_eq!(report["not_replayed"], json!({"not_ruled": 2}));

    let curious = r#"@id("no") forbid (principal, action == Action::"bank/pay", resource) when { context.input has amount && context.input.amount > 1000 };"#;
    let report = desk.replay(&[("curious", curious)], json!({})).await;
    assert_eq!(groups(&report), ["allow->deny bank/pay 3"]);
    assert_eq!(
        report["not_replayed"],
        json!({"not_ruled": 2, "parameters_not_stored": 1, "parameters_redacted": 1})
    );
}

#[tokio::test]
async fn a_noun_that_was_changed_where_it_is_kept_is_not_what_was_looked_at() {
    let desk = Desk::open().await;
    desk.ask(&reading()).await.expect(200);
    let careful = r#"@id("no") forbid (principal, action, resource) when { principal.risk_tier == "high" };"#;
    let report = desk.replay(&[("careful", careful)], json!({})).await;
    assert_eq!(
        (&report["unchanged"], &report["not_replayed"]),
        (&json!(1), &json!({}))
    );
    let mut hand = Hand::on(&desk.home, desk.tenant).await;
    hand.disarm().await;
    let (low, high) = (r#""risk_tier":"low""#, r#""risk_tier":"high""#);
    hand.run(&format!(
        "UPDATE contents SET bytes = <<replace([[bytes]], '{low}', '{high}')>> WHERE ITS"
    ))
    .await;
    let report = desk.replay(&[("careful", careful)], json!({})).await;
    assert_eq!(groups(&report), Vec::<String>::new());
    assert_eq!(report["not_replayed"], json!({"facts_missing": 1}));
}

#[tokio::test]
async fn what_a_run_had_seen_is_not_guessed_where_nobody_kept_it() {
    let desk = Desk::open().await;
    desk.furnish().await;
    let in_a_run = |trust: &str| {
        let mut ask = asking("bank", "balance", trust);
        ask["trace"] = json!({"run_id": "run-1"});
        ask
    };
    desk.ask(&in_a_run("untrusted_external")).await.expect(200);
    desk.ask(&in_a_run("trusted_internal_unsigned")).await.expect(200);
    // What names only who started it is of that run.
    let mut started = asking("bank", "balance", "trusted_internal_unsigned");
    started["trace"] = json!({"parent_run_id": "run-1"});
    desk.ask(&started).await.expect(200);
    desk.ask(&asking("bank", "balance", "trusted_internal_unsigned"))
        .await
        .expect(200);
    let tainted = r#"@id("no") forbid (principal, action == Action::"bank/balance", resource) when { context has run && context.run.worst.rank <= 2 };"#;
    let report = desk.replay(&[("tainted", tainted)], json!({})).await;
    assert_eq!(report["not_replayed"], json!({"run_not_kept": 3}));
    assert_eq!(report["unchanged"], 1, "what is in no run has seen nothing");
    let elsewhere = tainted.replace("bank/balance", "bank/pay");
    let report = desk.replay(&[("elsewhere", &elsewhere)], json!({})).await;
    assert_eq!((flips(&report), &report["replayed"]), (0, &json!(4)));

    desk.put("tainted", tainted).await.expect(201);
    desk.ask(&in_a_run("trusted_internal_unsigned")).await.expect(200);
    let report = desk.replay(&[("tainted", tainted)], json!({})).await;
    assert_eq!(
        (&report["not_replayed"], &report["unchanged"]),
        (&json!({"run_not_kept": 3}), &json!(2))
    );
}

#[tokio::test]
async fn the_nouns_are_what_they_were() {
    let desk = Desk::open().await;
    desk.furnish().await;
    desk.admin("PUT", "/v1/teams/interns", &json!({"attributes": {"floor": 1}}))
        .await
        .expect(200);
    desk.admin(
        "PUT",
        "/v1/teams/clients",
        &json!({"attributes": {"locked": "no"}}),
    )
    .await
    .expect(201);
    let agent = desk
        .hire(json!({"name": "temp", "tools": "all", "team": "interns", "attributes": {"region": "eu"}}))
        .await;
    desk.admin("PUT", "/v1/users/ann", &json!({"teams": ["clients", "interns"]}))
        .await
        .expect(200);
    let mut ask = asking("bank", "balance", "trusted_internal_unsigned");
    ask["user"] = json!({"id": "ann"});
    desk.post("/v1/authorize", &agent.token, &ask).await.expect(200);

    // Nothing is what it was, and some of it is gone.
    let itself = format!("/v1/agents/{}", agent.id);
    let patch = json!({"team": null, "attributes": {"region": "us"}, "name": "renamed", "risk_tier": "high"});
    desk.admin("PATCH", &itself, &patch).await.expect(200);
    desk.admin("DELETE", "/v1/users/ann", &Value::Null)
        .await
        .expect(204);
    for team in ["interns", "clients"] {
        desk.admin("DELETE", &format!("/v1/teams/{team}"), &Value::Null)
            .await
            .expect(204);
    }
    for (who, condition) in [
        (
            "Agent",
            r#"principal in Team::"interns" && Team::"interns".hasTag("floor") && Team::"interns".getTag("floor") == "1""#,
        ),
        (
            "Agent",
            r#"principal.hasTag("region") && principal.getTag("region") == "eu""#,
        ),
        (
            "Agent",
            r#"principal.name == "temp" && principal.risk_tier == "low" && context.agent has team"#,
        ),
        ("Agent", r#"context has user && context.user in Team::"interns""#),
        (
            "User",
            r#"principal in Team::"clients" && Team::"clients".hasTag("locked") && Team::"clients".getTag("locked") == "no""#,
        ),
        (
            "User",
            r#"principal in Team::"interns" && context has user && context.user == principal && context.agent.name == "temp""#,
        ),
    ] {
        let cedar =
            format!(r#"@id("no") forbid (principal is {who}, action, resource) when {{ {condition} }};"#);
        let report = desk.replay(&[("was", &cedar)], json!({})).await;
        assert_eq!(groups(&report), ["allow->deny bank/balance 1"], "{condition}");
        let not =
            format!(r#"@id("no") forbid (principal is {who}, action, resource) unless {{ {condition} }};"#);
        assert_eq!(
            flips(&desk.replay(&[("was", &not)], json!({})).await),
            0,
            "{condition}"
        );
    }
}

#[tokio::test]
async fn an_action_that_has_changed_is_judged_as_it_was_if_the_candidate_fits_it() {
    let desk = Desk::open().await;
    desk.furnish().await;
    desk.set(json!({"parameters": "clear"})).await;
    desk.ask(&paying(5_000)).await.expect(200);
    let schema = json!({"type": "object", "properties": {"cents": {"type": "integer"}}});
    let bank =
        json!({"actions": [{"name": "pay", "mutates_state": true, "risk": "low", "input_schema": schema}]});
    desk.admin("PUT", "/v1/tools/bank", &bank).await.expect(200);

    let was_high = r#"@id("no") forbid (principal, action in Action::"risk:high", resource);"#;
    assert_eq!(
        groups(&desk.replay(&[("p", was_high)], json!({})).await),
        ["allow->deny bank/pay 1"]
    );
    let is_low = r#"@id("no") forbid (principal, action in Action::"risk:low", resource);"#;
    assert_eq!(flips(&desk.replay(&[("p", is_low)], json!({})).await), 0);
    let reads_new = r#"@id("no") forbid (principal, action == Action::"bank/pay", resource) when { context.input has cents && context.input.cents > 1 };"#;
    let report = desk.replay(&[("p", reads_new)], json!({})).await;
    assert_eq!(
        (flips(&report), &report["not_replayed"]),
        (0, &json!({"action_changed": 1}))
    );

    desk.admin("DELETE", "/v1/tools/bank", &Value::Null)
        .await
        .expect(204);
    assert_eq!(
        groups(&desk.replay(&[("p", was_high)], json!({})).await),
        ["allow->deny bank/pay 1"]
    );
}

#[tokio::test]
async fn many_actions_may_have_changed_and_what_is_too_many_is_counted_as_that() {
    let desk = Desk::open().await;
    let tool = |risk: &str| {
        let action = |number| json!({"name": format!("a{number}"), "mutates_state": false, "risk": risk});
        json!({"actions": (0..65).map(action).collect::<Vec<_>>()})
    };
    desk.admin("PUT", "/v1/tools/bulk", &tool("high"))
        .await
        .expect(201);
    for number in 0..65 {
        let ask = asking("bulk", &format!("a{number}"), "trusted_internal_unsigned");
        desk.ask(&ask).await.expect(200);
    }
    desk.admin("PUT", "/v1/tools/bulk", &tool("low"))
        .await
        .expect(200);
    let was_high = r#"@id("no") forbid (principal, action in Action::"risk:high", resource);"#;
    let report = desk.replay(&[("p", was_high)], json!({})).await;
    assert_eq!((flips(&report), &report["not_replayed"]), (65, &json!({})));

    let forbid = |number| {
        let reason = "x".repeat(4_000);
        format!(
            r#"@id("a{number}") @reason("{reason}") forbid (principal, action == Action::"vault/store", resource);"#
        )
    };
    let long: String = (0..40).map(forbid).collect();
    let report = desk
        .replay(&[("p", was_high), ("q", &long), ("r", &long)], json!({}))
        .await;
    assert_eq!(
        (flips(&report), &report["not_replayed"]),
        (64, &json!({"too_many_changed_actions": 1}))
    );
}

/// Three actions of high risk with large schemas.
fn large_tool() -> Value {
    let schema = json!({"type": "object", "description": "x".repeat(50_000)});
    let action = |number| json!({"name": format!("a{number}"), "mutates_state": false, "risk": "high", "input_schema": schema});
    json!({"actions": (0..3).map(action).collect::<Vec<_>>()})
}

/// They are on one page of the ledger.
#[tokio::test]
async fn large_records_are_read_a_few_at_a_time_and_every_decision_is_judged() {
    let desk = Desk::open().await;
    for tool in 0..22 {
        let path = format!("/v1/tools/bulk-{tool}");
        desk.admin("PUT", &path, &large_tool()).await.expect(201);
    }
    for (tool, action) in (0..22).flat_map(|tool| (0..3).map(move |action| (tool, action))) {
        let (tool, action) = (format!("bulk-{tool}"), format!("a{action}"));
        let ask = asking(&tool, &action, "trusted_internal_unsigned");
        desk.ask(&ask).await.expect(200);
    }
    for tool in 0..22 {
        let path = format!("/v1/tools/bulk-{tool}");
        desk.admin("DELETE", &path, &Value::Null).await.expect(204);
    }
    let was_high = r#"@id("no") forbid (principal, action in Action::"risk:high", resource);"#;
    let report = desk.replay(&[("p", was_high)], json!({})).await;
    assert_eq!((flips(&report), &report["not_replayed"]), (66, &json!({})));
    let most = desk.faults.most_contents();
    assert!((1..=64).contains(&most), "{most} records were read at once");
}

#[tokio::test]
async fn an_observed_ask_is_compared_with_what_would_have_been_said() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.set(json!({"observe": true})).await;
    let mut ask = changing();
    ask["mode"] = json!("observe");
    assert_eq!(desk.ask(&ask).await.expect(200)["decision"], "allow");
    assert_eq!(flips(&desk.replay(&[("issues", NO_ISSUES)], json!({})).await), 0);
    let report = desk.replay(&[], json!({})).await;
    assert_eq!(groups(&report), ["deny->allow github/create_issue 1"]);
    assert_eq!(
        report["groups"][0]["examples"][0]["was"]["matched_policies"],
        json!(["issues/none"])
    );
}

#[tokio::test]
async fn what_people_were_asked_for_another_reason_than_policies_flips_nothing() {
    let desk = Desk::open().await;
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = desk.admin("POST", "/v1/keys", &key).await.expect(201);
    let within = |mut ask: Value, approval: Option<&Value>| {
        ask["trace"] = json!({"run_id": "run-1"});
        if let Some(id) = approval {
            ask["approval_id"] = id.clone();
        }
        ask
    };
    let voted = async |verb: &str| {
        let asked = desk.ask(&within(changing(), None)).await.expect(200);
        assert_eq!(asked["reason_code"], "run_taint_needs_approval");
        let id = asked["approval"]["id"].clone();
        let path = format!("/v1/approvals/{}/{verb}", id.as_str().unwrap());
        let reason = json!({"reason": "a test"});
        desk.post(&path, ann["key"].as_str().unwrap(), &reason)
            .await
            .expect(200);
        id
    };
    let retried = async |id: &Value| {
        let answer = desk.ask(&within(changing(), Some(id))).await.expect(200);
        answer["reason_code"].as_str().unwrap().to_owned()
    };
    desk.set(json!({"run_taint": "approve", "observe": true})).await;
    desk.ask(&within(reading(), None)).await.expect(200);
    assert_eq!(retried(&voted("approve").await).await, "approval_granted");
    let rejected = voted("reject").await;
    assert_eq!(retried(&rejected).await, "approval_rejected");
    // From here on policies alone would have permitted it.
    desk.set(json!({"run_taint": "off"})).await;
    assert_eq!(retried(&rejected).await, "approval_rejected");
    let mut observed = within(changing(), Some(&rejected));
    observed["mode"] = json!("observe");
    let answer = desk.ask(&observed).await.expect(200);
    assert_eq!(answer["would_have"]["reason_code"], "approval_rejected");
    let report = desk.replay(&[], json!({})).await;
    assert_eq!((flips(&report), &report["replayed"]), (0, &json!(3)));
    assert_eq!(report["not_replayed"], json!({"not_ruled": 4}));
    let report = desk.replay(&[("issues", NO_ISSUES)], json!({})).await;
    assert_eq!(groups(&report), ["allow->deny github/create_issue 2"]);
}

#[tokio::test]
async fn an_agent_without_a_grant_stays_denied_whatever_the_candidate_permits() {
    let desk = Desk::open().await;
    let stranger = desk.hire(json!({"name": "stranger", "tools": []})).await;
    let forbid = r#"@id("it") forbid (principal, action == Action::"canary-vault/read", resource);"#;
    let canary = json!({"actions": [{"name": "read", "mutates_state": false, "risk": "low"}]});
    desk.admin("PUT", "/v1/tools/canary-vault", &canary)
        .await
        .expect(201);
    desk.put("more", forbid).await.expect(201);
    let ask = asking("canary-vault", "read", "trusted_internal_unsigned");
    let answer = desk
        .post("/v1/authorize", &stranger.token, &ask)
        .await
        .expect(200);
    assert_eq!(answer["reason_code"], "policy_forbids");
    let decisions = desk.decisions().await;
    assert_eq!(decisions.last().unwrap()["granted"], false);
    let report = desk.replay(&[], json!({})).await;
    assert_eq!((flips(&report), &report["replayed"]), (0, &json!(1)));
}

#[tokio::test]
async fn a_time_and_a_limit_say_which_decisions_are_judged() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let mut times = Vec::new();
    for _ in 0..6 {
        times.push(desk.clock.now().to_string());
        desk.ask(&changing()).await.expect(200);
        desk.ask(&reading()).await.expect(200);
        // Entries that are no decisions stand between them.
        desk.admin("PUT", "/v1/teams/a", &json!({"attributes": {"x": times.len()}}))
            .await;
        desk.clock.advance_millis(60_000);
    }
    let judged = async |members: Value| {
        let report = desk.replay(&[], members).await;
        (
            report["decisions"].as_u64().unwrap(),
            flips(&report),
            report["has_more"] == true,
        )
    };
    assert_eq!(judged(json!({})).await, (12, 6, false));
    assert_eq!(
        judged(json!({"from": times[1], "to": times[4]})).await,
        (6, 3, false)
    );
    assert_eq!(judged(json!({"from": times[5]})).await, (2, 1, false));
    assert_eq!(judged(json!({"to": times[0]})).await, (0, 0, false));
    assert_eq!(
        judged(json!({"from": "2100-01-01T00:00:00Z"})).await,
        (0, 0, false)
    );
    assert_eq!(judged(json!({"limit": 3})).await, (3, 1, true));
    let newest = desk.replay(&[], json!({"limit": 2, "to": times[3]})).await;
    let decisions = desk.decisions().await;
    assert_eq!(
        newest["groups"][0]["examples"][0]["decision_id"],
        decisions[4]["decision_id"]
    );

    for members in [
        json!({"limit": 0}),
        json!({"limit": 100_001}),
        json!({"from": times[1], "to": times[1]}),
        json!({"from": "now"}),
    ] {
        let mut body = json!({"candidate": {"policies": []}});
        body.as_object_mut()
            .unwrap()
            .extend(members.as_object().unwrap().clone());
        desk.edit("POST", "/replay", &body)
            .await
            .problem(400, "invalid_field");
    }
}

#[tokio::test]
async fn lines_tell_how_far_it_is_and_the_last_one_what_came_of_it() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    for _ in 0..3 {
        desk.ask(&changing()).await.expect(200);
    }
    let body = json!({"candidate": {"policies": []}});
    let reply = desk
        .call("POST", "/v1/policies/replay", &desk.editor)
        .header("accept", "application/x-ndjson")
        .json(&body)
        .send()
        .await;
    assert_eq!(
        (reply.status.as_u16(), &reply.headers["content-type"]),
        (200, &"application/x-ndjson".parse().unwrap())
    );
    let text = reply.text();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let (last, progress) = lines.split_last().unwrap();
    assert!(
        progress.iter().all(|line| line["progress"]["entries"].is_u64()),
        "{progress:?}"
    );
    assert_eq!(
        last["result"],
        desk.edit("POST", "/replay", &body).await.expect(200)
    );
    assert_eq!(flips(&last["result"]), 3);
}

#[tokio::test]
async fn a_replay_in_lines_tells_nothing_to_a_key_that_was_deleted() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let key = text(&desk.get("/v1/whoami", &desk.editor).await.expect(200)["key"]);
    let call = desk
        .call("POST", "/v1/policies/replay", &desk.editor)
        .header("accept", "application/x-ndjson");
    let body = json!({"candidate": {"policies": []}});
    let answer = call.json(&body).respond().await;
    desk.call("DELETE", &format!("/v1/keys/{key}"), &desk.operator)
        .tenant(desk.tenant)
        .send()
        .await
        .expect(204);
    let lines = Reply::of(answer).await.text();
    assert!(!lines.contains("\"result\""), "{lines}");
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["problem"]["code"], "invalid_token");
    let metrics = desk.get("/metrics", "").await.text();
    let counted = r#"countersign_refusals_total{code="invalid_token"} 1"#;
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn a_store_that_cannot_be_read_breaks_a_replay_off() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    desk.faults.fail_reads(true);
    let body = json!({"candidate": {"policies": []}});
    desk.edit("POST", "/replay", &body)
        .await
        .problem(503, "ledger_unavailable");
    desk.faults.fail_reads(false);
    desk.edit("POST", "/replay", &body).await.expect(200);
}

/// So two of them leave one to those who ask, too.
#[tokio::test]
async fn replays_share_the_cores_that_one_would_have() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let body = json!({"candidate": {"policies": []}});
    let all = u32::try_from(replay::cores()).unwrap();
    let taken = replay::CORES.acquire_many(all).await.unwrap();
    let mut replaying = pin!(desk.edit("POST", "/replay", &body));
    let early = tokio::time::timeout(Duration::from_millis(300), replaying.as_mut()).await;
    assert!(early.is_err(), "it works without a core");
    drop(taken);
    assert_eq!(replaying.await.expect(200)["decisions"], 1);
}

/// So there are readers of the store left for what asks look up, however many threads a replay has.
#[tokio::test]
async fn a_replay_takes_turns_with_all_who_read_ledgers() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let body = json!({"candidate": {"policies": []}});
    let place = desk
        .gateway
        .ledger_chunks
        .acquire_for_part(TenantId::SYSTEM)
        .await;
    let mut replaying = pin!(desk.edit("POST", "/replay", &body));
    let early = tokio::time::timeout(Duration::from_millis(300), replaying.as_mut()).await;
    assert!(early.is_err(), "it did not wait for its turn");
    drop(place);
    assert_eq!(replaying.await.expect(200)["decisions"], 1);
}

#[tokio::test]
async fn a_tenant_replays_once_at_a_time_and_leaves_a_place_to_others() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let other = json!({"name": "other"});
    let other = desk.post("/v1/tenants", &desk.operator, &other).await;
    let other = text(&other.expect(201)["id"]);
    let others = key(&desk, &other, "policy_editor").await;
    let body = json!({"candidate": {"policies": []}});
    // It goes on for as long as it cannot read.
    let turn = desk
        .gateway
        .ledger_chunks
        .acquire_for_part(TenantId::SYSTEM)
        .await;
    let call = desk
        .call("POST", "/v1/policies/replay", &desk.editor)
        .header("accept", "application/x-ndjson");
    let answer = call.json(&body).respond().await;
    let refused = desk.edit("POST", "/replay", &body).await;
    refused.problem(429, "replay_running");
    assert_eq!(refused.headers["retry-after"], "5");
    let mut of_other = pin!(desk.post("/v1/policies/replay", &others, &body));
    let early = tokio::time::timeout(Duration::from_millis(300), of_other.as_mut()).await;
    assert!(early.is_err(), "it has its place, and waits for its turn to read");
    drop(turn);
    of_other.await.expect(200);
    let lines = Reply::of(answer).await.text();
    assert!(lines.contains("\"result\""), "{lines}");
    desk.edit("POST", "/replay", &body).await.expect(200);
}

#[tokio::test]
async fn a_replay_that_is_done_keeps_no_place_until_its_lines_are_read() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let body = json!({"candidate": {"policies": []}});
    let call = desk
        .call("POST", "/v1/policies/replay", &desk.editor)
        .header("accept", "application/x-ndjson");
    let answer = call.json(&body).respond().await;
    until(|| desk.gateway.policy_replays.available_permits() == replay::AT_ONCE_MAX).await;
    desk.edit("POST", "/replay", &body).await.expect(200);
    let lines = Reply::of(answer).await.text();
    assert!(lines.contains("\"result\""), "{lines}");
}

#[tokio::test]
async fn a_replay_in_lines_takes_one_of_the_places_for_what_is_streamed() {
    let desk = Desk::open().await;
    desk.ask(&changing()).await.expect(200);
    let outgoing = &desk.gateway.outgoing;
    let mut taken = Vec::new();
    while let Some(place) = outgoing.take(desk.tenant) {
        taken.push(place);
    }
    let body = json!({"candidate": {"policies": []}});
    let in_lines = || {
        let call = desk.call("POST", "/v1/policies/replay", &desk.editor);
        call.header("accept", "application/x-ndjson").json(&body)
    };
    let refused = Reply::of(in_lines().respond().await).await;
    assert_eq!(refused.status, 429);
    assert_eq!(refused.json()["code"], "too_many_streams");
    desk.edit("POST", "/replay", &body).await.expect(200);
    taken.pop();
    let answer = in_lines().respond().await;
    assert!(outgoing.take(desk.tenant).is_none());
    let lines = Reply::of(answer).await.text();
    assert!(lines.contains("\"result\""), "{lines}");
    assert!(outgoing.take(desk.tenant).is_some());
}

#[tokio::test]
async fn too_many_at_once_and_invalid_candidates_are_refused() {
    let desk = Desk::open().await;
    let body = json!({"candidate": {"policies": []}});
    let places = desk
        .gateway
        .policy_replays
        .clone()
        .acquire_many_owned(2)
        .await
        .unwrap();
    let refused = desk.edit("POST", "/replay", &body).await;
    refused.problem(429, "replay_running");
    assert_eq!(refused.headers["retry-after"], "5");
    drop(places);
    for _ in 0..3 {
        desk.edit("POST", "/replay", &body).await.expect(200);
    }
    let invalid = candidate(&[(
        "p",
        "@id(\"x\") forbid (principal, action, resource) when { context.nothing };",
    )]);
    let reply = desk.edit("POST", "/replay", &json!({"candidate": invalid})).await;
    assert_eq!(diagnostics(&reply)[0]["policy"], "p/x");
    desk.edit("POST", "/replay", &json!({}))
        .await
        .problem(400, "invalid_field");
}
