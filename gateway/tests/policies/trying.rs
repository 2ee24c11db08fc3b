//! `try`: what would be said and why, with nothing recorded.

use crate::stage::{changing, injected, reading};
use crate::{Desk, NO_ISSUES, diagnostics};
use serde_json::{Value, json};

impl Desk {
    /// The ask in the name of the agent.
    fn of_agent(&self, mut ask: Value) -> Value {
        ask["agent"] = json!({"id": self.agent.id});
        ask
    }

    async fn try_out(&self, candidate: &Value, asks: &[Value]) -> Vec<Value> {
        let body = json!({"candidate": candidate, "asks": asks});
        let tried = self.edit("POST", "/try", &body).await.expect(200);
        tried["results"].as_array().unwrap().clone()
    }

    /// What is told of an ask that is tried, which is what its agent would be answered.
    async fn tried_as_decided(&self, ask: &Value) -> Value {
        let tried = self.try_out(&Value::Null, &[self.of_agent(ask.clone())]).await;
        let decided = self.post("/v1/decide", &self.agent.token, ask).await.expect(200);
        for member in [
            "decision",
            "reason_code",
            "reason",
            "matched_policies",
            "obligations",
        ] {
            assert_eq!(tried[0][member], decided[member], "{member}");
        }
        tried[0].clone()
    }
}

/// What came of a policy in an explanation.
fn outcome<'a>(result: &'a Value, id: &str) -> &'a Value {
    let policies = result["policies"]["policies"].as_array().unwrap();
    let found = policies.iter().find(|policy| policy["id"] == id);
    found.unwrap_or_else(|| panic!("{id}: {policies:?}"))
}

#[tokio::test]
async fn asks_are_tried_against_the_set_in_force_and_explained() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let asks = [changing(), reading(), injected()].map(|ask| desk.of_agent(ask));
    let results = desk.try_out(&Value::Null, &asks).await;
    let decisions: Vec<_> = results.iter().map(|result| &result["decision"]).collect();
    assert_eq!(decisions, ["deny", "allow", "deny"]);
    let denied = outcome(&results[0], "issues/none");
    assert_eq!(denied["outcome"], "satisfied");
    assert_eq!(denied["determines"], true);
    assert_eq!(denied["annotations"], json!({"reason": "No issues"}));
    assert_eq!(
        (&denied["line"], &denied["effect"]),
        (&json!(1), &json!("forbid"))
    );
    assert_eq!(
        outcome(&results[0], "base/mutation-from-trusted")["determines"],
        false
    );
    let request = &results[0]["policies"]["request"];
    assert_eq!(request["action"], "Action::\"github/create_issue\"");
    assert_eq!(request["principal"], format!("Agent::\"{}\"", desk.agent.id));
    assert_eq!(request["context"]["trust"]["level"], "trusted_internal_unsigned");
    assert_eq!(desk.head().await, head, "nothing was recorded");
    for (result, ask) in results.iter().zip([changing(), reading(), injected()]) {
        let answer = desk.ask(&ask).await.expect(200);
        for member in [
            "decision",
            "reason_code",
            "reason",
            "matched_policies",
            "obligations",
        ] {
            assert_eq!(result[member], answer[member], "it is what is answered then");
        }
    }
}

#[tokio::test]
async fn a_candidate_is_tried_in_place_of_the_set_and_changes_nothing() {
    let desk = Desk::open().await;
    let files = r#"@id("none") forbid (principal, action == Action::"github/get_file", resource);"#;
    desk.put("files", files).await.expect(201);
    let head = desk.head().await;
    let candidate = json!({"policies": [{"name": "issues", "cedar": NO_ISSUES}]});
    let asks = [changing(), reading()].map(|ask| desk.of_agent(ask));
    let results = desk.try_out(&candidate, &asks).await;
    assert_eq!(results[0]["matched_policies"], json!(["issues/none"]));
    assert_eq!(results[1]["decision"], "allow", "`files` is not in the candidate");
    assert_eq!(desk.head().await, head);
    assert_eq!(desk.decision().await, "allow");
    desk.edit("PUT", "", &candidate).await.expect(200);
    assert_eq!(desk.decision().await, "deny", "as it was tried");

    let broken = json!({"policies": [{"name": "issues", "cedar": "nonsense"}]});
    let body = json!({"candidate": broken, "asks": asks});
    let found = diagnostics(&desk.edit("POST", "/try", &body).await);
    assert_eq!(found[0]["policy"], "issues");
}

/// A shadow does not take what is enforced out of force when it is put, so it does not when it is tried.
#[tokio::test]
async fn a_candidate_says_what_putting_it_would_make_of_the_set() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let candidate = json!({"policies": [{"name": "issues", "cedar": "", "mode": "shadow"}]});
    let asks = [desk.of_agent(changing())];
    let results = desk.try_out(&candidate, &asks).await;
    assert_eq!(results[0]["decision"], "deny");
    assert_eq!(results[0]["policies"]["shadow"]["decision"], "allow");
    desk.edit("PUT", "", &candidate).await.expect(200);
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn each_ask_has_its_own_problem() {
    let desk = Desk::open().await;
    let mut misspelt = desk.of_agent(reading());
    misspelt["contxt"] = json!({});
    let mut stranger = reading();
    stranger["agent"] = json!({"id": "agt_00000000000000000000000000"});
    let mut unknown = desk.of_agent(reading());
    unknown["tool_call"]["tool"] = json!("gitlab");
    let asks = [misspelt, reading(), stranger, unknown, desk.of_agent(reading())];
    let results = desk.try_out(&Value::Null, &asks).await;
    let codes: Vec<_> = results[..3].iter().map(|problem| &problem["code"]).collect();
    assert_eq!(codes, ["unknown_field", "invalid_field", "not_found"]);
    assert_eq!(results[3]["reason_code"], "unknown_tool");
    assert!(results[3].get("policies").is_none());
    assert_eq!(results[4]["decision"], "allow");
    for asks in [vec![], vec![reading(); 101]] {
        let reply = desk.edit("POST", "/try", &json!({"asks": asks})).await;
        reply.problem(400, "invalid_field");
    }
}

#[tokio::test]
async fn an_approval_is_looked_at_when_it_is_tried_and_not_used_up() {
    let desk = Desk::open().await;
    let looked_at = r#"@id("people") @decision("require_approval")
permit (principal, action == Action::"github/create_issue", resource);"#;
    desk.put("issues", looked_at).await.expect(201);
    let key = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = desk.admin("POST", "/v1/keys", &key).await.expect(201);
    let mut retry = changing();
    retry["approval_id"] = desk.answer().await["approval"]["id"].clone();
    let asks = [desk.of_agent(retry.clone())];
    let pending = desk.try_out(&Value::Null, &asks).await;
    assert_eq!(pending[0]["code"], "approval_not_usable");
    let detail = pending[0]["detail"].as_str().unwrap();
    assert!(detail.contains("waits for people"), "{detail}");

    let path = format!("/v1/approvals/{}/approve", crate::text(&retry["approval_id"]));
    let reason = json!({"reason": "looked at it"});
    let vote = desk.post(&path, &crate::text(&ann["key"]), &reason).await;
    vote.expect(200);
    for _ in 0..2 {
        let tried = desk.tried_as_decided(&retry).await;
        assert_eq!(
            (&tried["decision"], &tried["reason_code"]),
            (&json!("allow"), &json!("approval_granted"))
        );
    }
    let allowed = desk.ask(&retry).await.expect(200);
    assert_eq!(allowed["reason_code"], "approval_granted");
}

#[tokio::test]
async fn a_shadow_is_told_of_when_it_is_tried() {
    let desk = Desk::open().await;
    desk.shadow("issues", NO_ISSUES).await;
    let results = desk.try_out(&Value::Null, &[desk.of_agent(changing())]).await;
    assert_eq!(results[0]["decision"], "allow");
    assert_eq!(results[0]["policies"]["shadow"]["decision"], "deny");
    let outcome = outcome(&results[0], "issues/none");
    assert_eq!(
        (&outcome["mode"], &outcome["determines"]),
        (&json!("shadow"), &json!(false))
    );
}

#[tokio::test]
async fn an_answer_has_a_bound_and_one_ask_is_answered_in_any_case() {
    let desk = Desk::open().await;
    let reason = "x".repeat(4_000);
    let forbid =
        |number| format!(r#"@id("a{number}") @reason("{reason}") forbid (principal, action, resource);"#);
    let cedar: String = (0..50).map(forbid).collect();
    let policies: Vec<_> = (0..12)
        .map(|number| json!({"name": format!("p{number}"), "cedar": cedar}))
        .collect();
    let candidate = json!({ "policies": policies });
    let ask = desk.of_agent(changing());
    let results = desk.try_out(&candidate, std::slice::from_ref(&ask)).await;
    assert_eq!(results[0]["decision"], "deny");
    let told = &results[0]["policies"];
    let count = told["policies"].as_array().unwrap().len() as u64;
    let more = told["more_policies"].as_u64().unwrap();
    assert!(count < 150 && count + more >= 600, "{count} and {more}");

    let body = json!({"candidate": candidate, "asks": vec![ask; 10]});
    let reply = desk.edit("POST", "/try", &body).await;
    let detail = reply.problem(400, "invalid_field");
    assert!(detail.ends_with("put 7 at once"), "{detail}");
}

#[tokio::test]
async fn the_tags_of_the_users_teams_are_seen_as_those_of_the_agents_are() {
    let desk = Desk::open().await;
    desk.admin(
        "PUT",
        "/v1/teams/guests",
        &json!({"attributes": {"locked": "yes"}}),
    )
    .await
    .expect(201);
    desk.admin("PUT", "/v1/users/zoe", &json!({"teams": ["guests"]}))
        .await
        .expect(201);
    let locked = r#"@id("locked") forbid (principal in Team::"guests", action, resource)
        when { Team::"guests".hasTag("locked") };"#;
    desk.put("guests", locked).await.expect(201);
    let mut ask = reading();
    assert_eq!(desk.ask(&ask).await.expect(200)["decision"], "allow");
    ask["user"] = json!({"id": "zoe"});
    let answer = desk.ask(&ask).await.expect(200);
    assert_eq!(answer["matched_policies"], json!(["guests/locked"]));

    let results = desk.try_out(&Value::Null, &[desk.of_agent(ask)]).await;
    let entities = &results[0]["policies"]["for_user"]["request"]["entities"];
    let guests = json!({"uid": {"type": "Team", "id": "guests"}, "attrs": {}, "parents": [], "tags": {"locked": "yes"}});
    assert!(entities.as_array().unwrap().contains(&guests), "{entities}");
}

#[tokio::test]
async fn an_ask_in_a_run_is_tried_with_what_the_run_has_seen_and_shows_it_nothing() {
    let desk = Desk::open().await;
    let path = format!("/v1/tenants/{}", desk.tenant);
    let settings = json!({"settings": {"run_taint": "deny"}});
    let call = desk.call("PATCH", &path, &desk.operator).json(&settings);
    call.send().await.expect(200);
    let within = |mut ask: Value, run: &str| {
        ask["trace"] = json!({"run_id": run});
        ask
    };
    desk.ask(&within(reading(), "run-1")).await.expect(200);
    let head = desk.head().await;
    let tried = desk.tried_as_decided(&within(changing(), "run-1")).await;
    assert_eq!(tried["reason_code"], "run_tainted");
    desk.tried_as_decided(&within(reading(), "run-2")).await;
    let tried = desk.tried_as_decided(&within(changing(), "run-2")).await;
    assert_eq!(tried["decision"], "allow", "only tried, and no run has seen it");
    assert_eq!(desk.head().await, head, "nothing was recorded");

    let careful = r#"@id("careful") forbid (principal, action == Action::"github/create_issue", resource)
        when { context has run && context.run.worst.rank <= 2 };"#;
    desk.put("runs", careful).await.expect(201);
    let tried = desk.tried_as_decided(&within(changing(), "run-1")).await;
    assert_eq!(tried["matched_policies"], json!(["runs/careful"]));
    assert_eq!(outcome(&tried, "runs/careful")["outcome"], "satisfied");
    assert_eq!(tried["policies"]["request"]["context"]["run"]["worst"]["rank"], 2);
}

#[tokio::test]
async fn an_ask_in_the_name_of_others_is_tried_for_all_of_them() {
    let desk = Desk::open().await;
    let planner = desk.hire(json!({"name": "planner", "tools": "all"})).await;
    let not_for_planner = format!(
        r#"@id("planner") forbid (principal == Agent::"{}", action, resource);"#,
        planner.id
    );
    let mut ask = changing();
    ask["act"] = json!({"sub": "planner"});
    desk.shadow("planned", &not_for_planner).await;
    let tried = desk.tried_as_decided(&ask).await;
    assert_eq!(tried["decision"], "allow");
    desk.ask(&ask).await.expect(200);
    let recorded = desk.decisions().await[0]["shadow"].clone();
    assert_eq!(recorded["matched_policies"], json!(["planned/planner"]));
    for member in ["decision", "reason_code", "matched_policies"] {
        assert_eq!(tried["policies"]["shadow"][member], recorded[member], "{member}");
    }
    assert_eq!(outcome(&tried, "base/mutation-from-trusted")["determines"], true);

    desk.put("planned", &not_for_planner).await.expect(200);
    let tried = desk.tried_as_decided(&ask).await;
    assert_eq!(tried["matched_policies"], json!(["planned/planner"]));
    let permitted = outcome(&tried, "base/mutation-from-trusted");
    assert_eq!(
        (&permitted["outcome"], &permitted["determines"]),
        (&json!("satisfied"), &json!(false))
    );
}
