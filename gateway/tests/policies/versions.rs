//! Versions: made, in force at once, read back, rolled back to, deleted; and two who write at the same time.

use crate::stage::{Stage, injected, reading};
use crate::{Desk, NO_ISSUES, NO_SECRETS, text};
use serde_json::{Value, json};

#[tokio::test]
async fn a_policy_is_in_force_when_the_call_returns() {
    let desk = Desk::open().await;
    assert_eq!(desk.decision().await, "allow");
    let made = desk.put("issues", NO_ISSUES).await;
    assert_eq!(made.headers["etag"], "\"1\"");
    let made = made.expect(201);
    assert_eq!((&made["version"], &made["enforced"]), (&json!(1), &json!(1)));
    let answer = desk.answer().await;
    assert_eq!(answer["decision"], "deny");
    assert_eq!(answer["reason_code"], "policy_forbids");
    assert_eq!(answer["reason"], "No issues");
    assert_eq!(answer["matched_policies"], json!(["issues/none"]));
    desk.assert_sound().await;
}

#[tokio::test]
async fn a_body_may_say_again_what_the_policy_is_called_and_nothing_else() {
    let desk = Desk::open().await;
    let head = desk.head().await;
    let other = json!({"name": "other", "cedar": NO_ISSUES});
    let refused = desk.edit("PUT", "/issues", &other).await;
    assert_eq!(
        refused.problem(400, "invalid_field"),
        "`name` is `other`, and the path says `issues`"
    );
    assert_eq!(desk.head().await, head, "nothing was recorded");
    let same = json!({"name": "issues", "cedar": NO_ISSUES});
    let made = desk.edit("PUT", "/issues", &same).await.expect(201);
    assert_eq!((&made["name"], &made["version"]), (&json!("issues"), &json!(1)));
    let unnamed = json!({"name": null, "cedar": NO_ISSUES});
    let again = desk.edit("PUT", "/issues", &unnamed).await.expect(200);
    assert_eq!(again["version"], 1);
}

#[tokio::test]
async fn a_tenants_permit_cannot_lift_a_base_forbid() {
    let desk = Desk::open().await;
    let everything = r#"@id("everything") permit (principal, action, resource);"#;
    desk.put("generous", everything).await.expect(201);
    let answer = desk.ask(&injected()).await.expect(200);
    assert_eq!(answer["decision"], "deny");
    assert_eq!(
        answer["matched_policies"],
        json!(["base/mutation-from-untrusted"])
    );
    let answer = desk.ask(&reading()).await.expect(200);
    let matched = json!(["base/read", "generous/everything"]);
    assert_eq!(answer["matched_policies"], matched, "it counts where it may");
}

#[tokio::test]
async fn the_ledger_says_who_wrote_what_and_the_digests_before_and_after() {
    let desk = Desk::open().await;
    let before = desk.answer().await["policy"]["digest"].clone();
    desk.put("issues", NO_ISSUES).await.expect(201);
    let after = desk.answer().await["policy"]["digest"].clone();
    assert_ne!(before, after);
    let told = desk.told("policy_put").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["name"], "issues");
    assert_eq!(told[0]["cedar"], NO_ISSUES);
    assert_eq!(told[0]["by"]["role"], "policy_editor");
    assert!(text(&told[0]["by"]["key"]).starts_with("key_"));
    assert_eq!(
        told[0]["policy_digests"],
        json!({"before": before, "after": after})
    );
}

#[tokio::test]
async fn whoever_has_seen_another_version_is_refused() {
    let desk = Desk::open().await;
    desk.edit_at("*", "PUT", "/issues", &json!({"cedar": NO_ISSUES}))
        .await
        .problem(412, "precondition_failed");
    desk.put("issues", NO_ISSUES).await.expect(201);
    let shown = desk.edit("GET", "/issues", &Value::Null).await;
    assert_eq!(shown.headers["etag"], "\"1\"");
    let body = json!({"cedar": NO_SECRETS});
    let put = desk.edit_at("\"1\"", "PUT", "/issues", &body).await;
    assert_eq!(put.headers["etag"], "\"2\"");
    put.expect(200);
    let detail = desk
        .edit_at("\"1\"", "PUT", "/issues", &json!({"cedar": NO_ISSUES}))
        .await;
    let detail = detail.problem(412, "precondition_failed");
    assert!(detail.contains("version 2"), "{detail}");
    for (method, path, body) in [
        ("DELETE", "/issues", json!({})),
        ("POST", "/issues/rollback", json!({"version": 1})),
        ("POST", "/issues/promote", json!({})),
        ("POST", "/issues/revert", json!({})),
    ] {
        let reply = desk.edit_at("\"1\"", method, path, &body).await;
        reply.problem(412, "precondition_failed");
    }
    assert_eq!(desk.decision().await, "allow", "version 2 is in force");
    assert_eq!(desk.count("policy_put").await, 2);
    desk.edit_at("\"7\", \"2\"", "DELETE", "/issues", &json!({}))
        .await
        .expect(204);
}

#[tokio::test]
async fn a_condition_that_is_no_list_of_tags_is_refused_and_several_lines_are_one_list() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let body = json!({"cedar": NO_SECRETS});
    for condition in ["*, \"7\"", "\"7\", *", "1", "any, \"1\"", "\"1\" \"2\"", "\"1"] {
        let reply = desk.edit_at(condition, "PUT", "/issues", &body).await;
        reply.problem(400, "invalid_parameter");
    }
    let delete = async |lines: [&'static str; 2]| {
        let call = desk.call("DELETE", "/v1/policies/issues", &desk.editor);
        let call = call.header("if-match", lines[0]).header("if-match", lines[1]);
        call.json(&json!({})).send().await
    };
    delete(["*", "\"7\""]).await.problem(400, "invalid_parameter");
    delete(["\"7\"", "\"8\""])
        .await
        .problem(412, "precondition_failed");
    assert_eq!(desk.count("policy_put").await, 1);
    delete(["\"7\"", "\"1\""]).await.expect(204);
}

#[tokio::test]
async fn a_list_says_what_is_wrong_with_its_parameters_in_the_words_of_all_lists() {
    let desk = Desk::open().await;
    let reply = desk.edit("GET", "?x=1", &Value::Null).await;
    let detail = reply.problem(400, "invalid_parameter");
    assert_eq!(detail, "`x`: unknown parameter `x`, expected `limit` or `cursor`");
}

#[tokio::test]
async fn what_is_there_is_not_replaced_by_whoever_wants_to_make_it() {
    let desk = Desk::open().await;
    let put = async |condition: &'static str, cedar: &str| {
        let call = desk.call("PUT", "/v1/policies/issues", &desk.editor);
        let call = call.header("if-none-match", condition);
        call.json(&json!({"cedar": cedar})).send().await
    };
    put("*", NO_ISSUES).await.expect(201);
    put("*", NO_SECRETS).await.problem(412, "precondition_failed");
    // What else there may be in it is not taken for nothing.
    for condition in ["\"1\"", "\"7\"", "1", "*, \"1\""] {
        put(condition, NO_SECRETS).await.problem(400, "invalid_parameter");
    }
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!(
        (&shown["version"], &shown["cedar"]),
        (&json!(1), &json!(NO_ISSUES))
    );
    desk.edit("DELETE", "/issues", &Value::Null).await.expect(204);
    put("*", NO_SECRETS).await.expect(201);
}

#[tokio::test]
async fn a_post_takes_no_condition() {
    let desk = Desk::open().await;
    let body = json!({"name": "issues", "cedar": NO_ISSUES});
    let post = async |header: &'static str, condition: &str| {
        let call = desk.call("POST", "/v1/policies", &desk.editor);
        call.header(header, condition).json(&body).send().await
    };
    for (header, condition) in [
        ("if-match", "\"1\""),
        ("if-match", "*"),
        ("if-match", "garbage"),
        ("if-none-match", "\"3\""),
        ("if-none-match", "*"),
    ] {
        let refused = post(header, condition).await.expect(400);
        assert_eq!(refused["code"], "invalid_parameter", "{header}: {condition}");
    }
    assert_eq!(desk.count("policy_put").await, 0);
    desk.edit("POST", "", &body).await.expect(201);
    assert_eq!(desk.edit("POST", "", &body).await.expect(409)["code"], "conflict");
}

#[tokio::test]
async fn of_two_who_write_at_once_one_is_refused() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let write = |ticket: u32| {
        let cedar = format!("// {ticket}\n{NO_SECRETS}");
        let desk = &desk;
        async move {
            let body = json!({"cedar": cedar});
            let reply = desk.edit_at("\"1\"", "PUT", "/issues", &body).await;
            (reply.status.as_u16(), cedar)
        }
    };
    let (one, other, third) = tokio::join!(write(1), write(2), write(3));
    let mut written = [one, other, third];
    written.sort();
    let statuses: Vec<_> = written.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 412, 412]);
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!(shown["version"], 2);
    assert_eq!(shown["cedar"], written[0].1);
    assert_eq!(desk.count("policy_put").await, 2);
}

#[tokio::test]
async fn what_says_the_same_is_no_new_version() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let again = desk.put("issues", NO_ISSUES).await.expect(200);
    assert_eq!(again["version"], 1);
    assert_eq!(desk.head().await, head, "repeating a PUT is not an event");
    desk.shadow("issues", NO_ISSUES).await;
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!((&shown["version"], &shown["enforced"]), (&json!(2), &json!(1)));
}

#[tokio::test]
async fn a_policy_is_made_once() {
    let desk = Desk::open().await;
    let body = json!({"name": "issues", "cedar": NO_ISSUES, "description": "quiet"});
    let made = desk.edit("POST", "", &body).await;
    assert_eq!(made.headers["etag"], "\"1\"");
    assert_eq!(made.expect(201)["description"], "quiet");
    desk.edit("POST", "", &body).await.problem(409, "conflict");
    for name in ["try", "schema", "replay", "versions"] {
        let body = json!({"name": name, "cedar": NO_ISSUES});
        let reply = desk.edit("POST", "", &body).await;
        reply.problem(400, "invalid_field");
    }
    assert_eq!(desk.count("policy_put").await, 1);
}

#[tokio::test]
async fn what_is_deleted_no_longer_counts_and_can_be_brought_back() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.edit("DELETE", "/issues", &Value::Null).await.expect(204);
    assert_eq!(desk.decision().await, "allow");
    for method in ["GET", "DELETE"] {
        let reply = desk.edit(method, "/issues", &Value::Null).await;
        reply.problem(404, "not_found");
    }
    let listed = desk.edit("GET", "", &Value::Null).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    let deleted = desk.told("policy_deleted").await;
    assert_eq!(deleted[0]["cedar"], NO_ISSUES, "the ledger says what it was");

    let back = desk
        .edit("POST", "/issues/rollback", &json!({"version": 1}))
        .await;
    assert_eq!(back.expect(200)["version"], 2);
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn an_earlier_version_can_be_enforced_again() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.put("issues", NO_SECRETS).await.expect(200);
    assert_eq!(desk.decision().await, "allow");
    let back = desk
        .edit("POST", "/issues/rollback", &json!({"version": 1}))
        .await;
    assert_eq!(back.headers["etag"], "\"3\"");
    let back = back.expect(200);
    assert_eq!(
        (&back["enforced"], &back["cedar"]),
        (&json!(3), &json!(NO_ISSUES))
    );
    assert_eq!(desk.decision().await, "deny");
    assert_eq!(desk.told("policy_rolled_back").await[0]["version"], 3);

    let versions = desk
        .edit("GET", "/issues/versions", &Value::Null)
        .await
        .expect(200);
    let listed: Vec<_> = versions["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|version| (version["version"].clone(), version["enforced"].clone()))
        .collect();
    let expected = [(3, true), (2, false), (1, false)];
    assert_eq!(
        listed,
        expected.map(|(version, enforced)| (json!(version), json!(enforced)))
    );
    let newest = desk.edit("GET", "/issues/versions?limit=2", &Value::Null).await;
    let newest = newest.expect(200);
    let (first, last) = versions["items"].as_array().unwrap().split_at(2);
    assert_eq!(newest, json!({"items": first, "next_cursor": "2"}));
    let rest = desk
        .edit("GET", "/issues/versions?limit=2&cursor=2", &Value::Null)
        .await;
    assert_eq!(rest.expect(200), json!({"items": last, "next_cursor": null}));

    let absent = desk
        .edit("POST", "/issues/rollback", &json!({"version": 9}))
        .await;
    absent.problem(400, "invalid_field");
}

#[tokio::test]
async fn a_rollback_to_what_no_longer_fits_the_tools_is_refused() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.put("issues", "").await.expect(200);
    let tool = json!({"actions": [{"name": "get_file", "mutates_state": false, "risk": "low"}]});
    desk.admin("PUT", "/v1/tools/github", &tool).await.expect(200);
    let back = desk
        .edit("POST", "/issues/rollback", &json!({"version": 1}))
        .await;
    assert_eq!(crate::diagnostics(&back)[0]["policy"], "issues/none");
    let shown = desk.edit("GET", "/issues", &Value::Null).await.expect(200);
    assert_eq!(shown["version"], 2);
}

#[tokio::test]
async fn a_gateway_that_starts_again_has_the_same_policies_in_force() {
    let desk = Desk::open().await;
    desk.put("issues", NO_SECRETS).await.expect(201);
    desk.put("issues", NO_ISSUES).await.expect(200);
    desk.shadow(
        "files",
        r#"@id("none") forbid (principal, action in Action::"read", resource);"#,
    )
    .await;
    let digest = desk.answer().await["policy"]["digest"].clone();
    let listed = desk.edit("GET", "", &Value::Null).await.expect(200);
    let desk = desk.restart().await;
    let answer = desk.answer().await;
    assert_eq!(answer["decision"], "deny");
    assert_eq!(answer["policy"]["digest"], digest);
    assert_eq!(desk.edit("GET", "", &Value::Null).await.expect(200), listed);
    read_in_shadow(&desk).await;
}

async fn read_in_shadow(stage: &Stage) {
    stage.ask(&reading()).await.expect(200);
    let decisions = stage.decisions().await;
    assert_eq!(decisions.last().unwrap()["shadow"]["decision"], "deny");
}
