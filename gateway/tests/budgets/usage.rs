//! `context.usage`: policies that look at how much is used, what they see, and that it is looked up for nobody else.

use crate::stage::{changing, reading};
use crate::support::{Reply, until};
use crate::{Scene, costing, tokens};
use serde_json::{Value, json};
use store::faults::At;

/// Answers get shorter when less than a fifth is left, and dear calls need approval.
const THRIFTY: &str = r#"
@id("short") @decision("advise") @obligation("max_tokens:2000") permit (principal, action, resource)
when { context.usage has budget && context.usage.budget.remaining * 5 < context.usage.budget.allocated };
@id("dear") @decision("require_approval") permit (principal, action, resource)
when { context.usage has estimate && context.usage.estimate.amount > 500 };
@id("often") forbid (principal, action, resource)
when { context.usage.calls has day && context.usage.calls.day.used >= 3 };
"#;

/// Estimates need approval, and are forbidden where little is left.
const CAREFUL: &str = r#"
@id("asked") @decision("require_approval") permit (principal, action, resource)
when { context.usage has estimate };
@id("enough") forbid (principal, action, resource)
when { context.usage has budget && context.usage.budget.remaining < 30 };
"#;

impl Scene {
    /// Puts a policy in force.
    async fn policy(&self, cedar: &str) {
        let path = "/v1/policies/mine";
        let reply = self.stage.admin("PUT", path, &json!({"cedar": cedar})).await;
        assert!(reply.status.is_success(), "{}", reply.text());
    }

    /// The decision, its obligations, and what of usage its entry tells.
    async fn judged(&self, ask: &Value) -> (Value, Value, Value) {
        let answer = self.stage.ask(ask).await.expect(200);
        let body = self.stage.decisions().await.pop().unwrap();
        (
            answer["decision"].clone(),
            answer["obligations"].clone(),
            body["usage"].clone(),
        )
    }

    /// What a replay of everything by this policy says.
    async fn replay(&self, cedar: &str) -> Value {
        let candidate = json!({"policies": [{"name": "mine", "cedar": cedar}]});
        let path = "/v1/policies/replay";
        let body = json!({"candidate": candidate});
        self.stage.admin("POST", path, &body).await.expect(200)
    }

    /// This ask with an approval that people gave for it.
    async fn approved(&self, mut ask: Value) -> Value {
        let answer = self.stage.ask(&ask).await.expect(200);
        let id = answer["approval"]["id"].as_str().unwrap();
        let key = json!({"name": "ann", "role": "approver", "user": "ann"});
        let key = self.stage.admin("POST", "/v1/keys", &key).await.expect(201);
        let (ann, vote) = (key["key"].as_str().unwrap(), json!({"reason": "fine"}));
        let path = format!("/v1/approvals/{id}/approve");
        self.stage.post(&path, ann, &vote).await.expect(200);
        ask["approval_id"] = json!(id);
        ask
    }

    /// What an ask is told that names an approval, and whose agent comes into this team while that is looked up.
    async fn told_while_moving(&self, path: &str, ask: &Value, team: &str) -> Reply {
        let faults = &self.stage.faults;
        faults.hold_at(At::Approvals, true);
        let moving = async {
            until(|| faults.held_at(At::Approvals) == 1).await;
            let agent = format!("/v1/agents/{}", self.stage.agent.id);
            let body = json!({"team": team});
            self.stage.admin("PATCH", &agent, &body).await.expect(200);
            faults.hold_at(At::Approvals, false);
        };
        tokio::join!(self.post(path, ask), moving).0
    }
}

#[tokio::test]
async fn a_budget_that_runs_low_shrinks_what_is_allowed() {
    let scene = Scene::set().await;
    scene
        .budgets(&[(json!({}), 10_000), (json!({"team": "crew"}), 1_000)])
        .await;
    scene.policy(THRIFTY).await;
    let usage = |remaining: i64| {
        json!({
            "budget": {"allocated": 1_000, "remaining": remaining, "spent": 0},
            "calls": {}, "estimate": {"amount": 400, "unit": "TOKENS"},
        })
    };
    let (allow, short) = (json!("allow"), json!(["max_tokens:2000"]));
    // What was looked at is what was there before the ask, of the tightest budget.
    assert_eq!(
        scene.judged(&costing(400)).await,
        (allow.clone(), json!([]), usage(1_000))
    );
    assert_eq!(
        scene.judged(&costing(400)).await,
        (allow.clone(), json!([]), usage(600))
    );
    let low = json!({
        "budget": {"allocated": 1_000, "remaining": 200, "spent": 0},
        "calls": {}, "estimate": {"amount": 1, "unit": "TOKENS"},
    });
    assert_eq!(scene.judged(&costing(1)).await, (allow.clone(), json!([]), low));
    let (decision, obligations, _) = scene.judged(&costing(1)).await;
    assert_eq!((decision, obligations), (allow, short.clone()));
    // A dry run sees it, and what policies are tried on does, too.
    let dry = scene.post("/v1/decide", &costing(1)).await.expect(200);
    assert_eq!(dry["obligations"], short);
    let mut ask = costing(1);
    ask["agent"] = json!({"id": scene.stage.agent.id});
    let tried = scene
        .stage
        .admin("POST", "/v1/policies/try", &json!({"asks": [ask]}))
        .await
        .expect(200);
    let tried = &tried["results"][0];
    assert_eq!(tried["obligations"], short);
    let seen = &tried["policies"]["request"]["context"]["usage"];
    assert_eq!(seen["budget"]["remaining"], 198);
    let report = scene.replay(THRIFTY).await;
    assert_eq!(
        (&report["decisions"], &report["unchanged"]),
        (&json!(4), &json!(4))
    );
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn an_approval_can_depend_on_the_estimate_and_a_denial_on_the_calls_of_the_day() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 10_000)]).await;
    scene.policy(THRIFTY).await;
    let quotas = json!({"quotas": [{"window": "day", "limit": 100}, {"window": "day", "limit": 50, "tool": "github"}]});
    let path = format!("/v1/agents/{}/quota", scene.stage.agent.id);
    scene.stage.admin("PUT", &path, &quotas).await.expect(200);
    let (decision, _, usage) = scene.judged(&costing(501)).await;
    assert_eq!(decision, "require_approval");
    assert_eq!(usage["calls"], json!({"day": {"limit": 50, "used": 0}}));
    for used in 0..3 {
        let (decision, _, usage) = scene.judged(&changing()).await;
        assert_eq!(
            (decision, &usage["calls"]["day"]["used"]),
            (json!("allow"), &json!(used))
        );
        assert_eq!((usage.get("budget"), usage.get("estimate")), (None, None));
    }
    let answer = scene.stage.ask(&changing()).await.expect(200);
    assert_eq!(answer["matched_policies"], json!(["mine/often"]));
    let report = scene.replay(THRIFTY).await;
    assert_eq!(
        (&report["decisions"], &report["unchanged"]),
        (&json!(5), &json!(5))
    );
}

#[tokio::test]
async fn what_was_approved_may_cost_what_people_were_shown_and_no_more() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 10_000)]).await;
    scene
        .policy("@id(\"all\") @decision(\"require_approval\") permit (principal, action, resource);")
        .await;
    let answer = scene.stage.ask(&costing(501)).await.expect(200);
    let id = answer["approval"]["id"].as_str().unwrap().to_owned();
    let path = format!("/v1/approvals/{id}");
    let shown = scene.stage.get(&path, &scene.auditor).await.expect(200);
    assert_eq!(shown["estimate"], tokens(501));
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let key = scene.stage.admin("POST", "/v1/keys", &key).await.expect(201);
    let (ann, vote) = (key["key"].as_str().unwrap(), json!({"reason": "fine"}));
    let vote = scene.stage.post(&format!("{path}/approve"), ann, &vote).await;
    assert_eq!(vote.expect(200)["status"], "approved");
    let mut retry = costing(5_000);
    retry["approval_id"] = json!(id);
    let mut without = retry.clone();
    without.as_object_mut().unwrap().remove("estimate");
    for ask in [&retry, &without] {
        let answer = scene.stage.ask(ask).await.expect(200);
        assert_eq!(answer["decision"], "require_approval", "{answer}");
        assert_ne!(answer["approval"]["id"], json!(id), "people are asked again");
        assert_eq!(scene.standing().await, [10_000, 0, 0, 0, 0]);
    }
    retry["estimate"] = tokens(501);
    let answer = scene.stage.ask(&retry).await.expect(200);
    assert_eq!(answer["reason_code"], "approval_granted", "{answer}");
    assert_eq!(scene.standing().await, [9_499, 501, 0, 0, 0]);
    scene.stage.assert_sound().await;
}

#[tokio::test]
async fn nothing_is_kept_of_usage_where_no_policy_looks_at_it_and_nothing_is_guessed_later() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    let (_, _, usage) = scene.judged(&costing(90)).await;
    assert_eq!(usage, Value::Null);
    let of_reads = THRIFTY.replace(
        "principal, action, resource",
        "principal, action in Action::\"read\", resource",
    );
    for (candidate, kept_out) in [(THRIFTY, 1), (&of_reads, 0)] {
        let report = scene.replay(candidate).await;
        let not_kept = &report["not_replayed"]["usage_not_kept"];
        assert_eq!(not_kept.as_u64().unwrap_or(0), kept_out, "{report}");
        assert_eq!(report["unchanged"], 1 - kept_out, "{report}");
    }
}

#[tokio::test]
async fn what_policies_look_at_is_no_hold_and_the_budget_is_exact_all_the_same() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    scene
        .policy("@id(\"enough\") forbid (principal, action, resource) when { context.usage has budget && context.usage.budget.remaining < 30 };")
        .await;
    let (one, other) = (costing(60), costing(60));
    let (one, other) = tokio::join!(scene.stage.ask(&one), scene.stage.ask(&other));
    let mut reasons = [one, other].map(|answer| answer.expect(200)["reason_code"].clone());
    reasons.sort_by_key(ToString::to_string);
    // Both may have seen a hundred; one is held, and the other is denied by the budget whatever it saw.
    assert_eq!(reasons, [json!("budget_exceeded"), json!("policy_permits")]);
    assert_eq!(scene.standing().await, [40, 60, 0, 0, 0]);
    let (decision, _, _) = scene.judged(&reading()).await;
    assert_eq!(
        decision, "allow",
        "without an estimate there is no budget to look at"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_ask_whose_agent_changes_teams_meanwhile_is_judged_with_what_the_new_team_has() {
    let scene = Scene::set().await;
    let team = "/v1/teams/poor";
    scene.stage.admin("PUT", team, &json!({})).await.expect(201);
    scene
        .budgets(&[(json!({"team": "crew"}), 1_000), (json!({"team": "poor"}), 20)])
        .await;
    scene.policy(CAREFUL).await;
    let ask = scene.approved(costing(10)).await;
    let told = scene.told_while_moving("/v1/authorize", &ask, "poor").await;
    assert_eq!(told.expect(200)["reason_code"], "policy_forbids");
    let body = scene.stage.decisions().await.pop().unwrap();
    let budget = json!({"allocated": 20, "remaining": 20, "spent": 0});
    assert_eq!(body["usage"]["budget"], budget);
    scene.stage.assert_sound().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dry_run_whose_agent_changes_teams_meanwhile_looks_at_the_quota_of_the_new_team() {
    let scene = Scene::set().await;
    let team = "/v1/teams/full";
    scene.stage.admin("PUT", team, &json!({})).await.expect(201);
    let quotas = json!({"quotas": [{"window": "day", "limit": 1}]});
    let path = format!("{team}/quota");
    scene.stage.admin("PUT", &path, &quotas).await.expect(200);
    let other = json!({"name": "other", "tools": "all", "team": "full"});
    let other = scene.stage.hire(other).await;
    let used = scene.stage.post("/v1/authorize", &other.token, &changing()).await;
    assert_eq!(used.expect(200)["decision"], "allow");
    scene.budgets(&[(json!({}), 1_000)]).await;
    scene.policy(CAREFUL).await;
    let ask = scene.approved(costing(10)).await;
    let answer = scene.post("/v1/decide", &ask).await.expect(200);
    assert_eq!(answer["reason_code"], "approval_granted", "{answer}");
    let told = scene.told_while_moving("/v1/decide", &ask, "full").await;
    assert_eq!(told.expect(429)["code"], "quota_exceeded");
}

/// An observed ask holds nothing, and tells what policies would have said about what there is.
#[tokio::test]
async fn an_observed_ask_is_judged_with_what_there_is() {
    let scene = Scene::set().await;
    scene.budgets(&[(json!({}), 100)]).await;
    scene.policy(THRIFTY).await;
    let path = format!("/v1/tenants/{}", scene.stage.tenant);
    let settings = json!({"settings": {"observe": true}});
    let call = scene.stage.call("PATCH", &path, &scene.stage.operator);
    call.json(&settings).send().await.expect(200);
    let mut ask = costing(501);
    ask["mode"] = json!("observe");
    let answer = scene.stage.ask(&ask).await.expect(200);
    assert_eq!(answer["would_have"]["decision"], "require_approval");
    let body = scene.stage.decisions().await.pop().unwrap();
    assert_eq!(body["usage"]["budget"]["remaining"], 100);
    assert_eq!(scene.standing().await, [100, 0, 0, 0, 0]);
}
