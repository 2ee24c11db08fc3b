//! What an editor asks while somebody writes: `validate`, `format`, `schema`. Nothing is recorded.

use crate::stage::changing;
use crate::{Desk, NO_ISSUES, NO_SECRETS, diagnostics, text};
use serde_json::{Value, json};
use std::pin::pin;
use std::time::Duration;

#[tokio::test]
async fn a_set_is_validated_as_a_put_of_it_would_be_and_nothing_changes() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let set = |cedar: &str| json!({"policies": [{"name": "issues", "cedar": cedar}]});
    let validated = desk.edit("POST", "/validate", &set(NO_SECRETS)).await.expect(200);
    assert_eq!(validated, json!({"valid": true, "diagnostics": []}));

    let misspelt = set(&NO_SECRETS.replace("issue", "isue"));
    let validated = desk.edit("POST", "/validate", &misspelt).await.expect(200);
    assert_eq!(validated["valid"], false);
    let refused = diagnostics(&desk.edit("PUT", "", &misspelt).await);
    assert_eq!(validated["diagnostics"], json!(refused), "a PUT says the same");

    let idle = set(r#"@id("a") forbid (principal, action in Action::"risk:critical", resource);"#);
    let validated = desk.edit("POST", "/validate", &idle).await.expect(200);
    assert_eq!(validated["valid"], true);
    assert_eq!(validated["diagnostics"][0]["severity"], "warning");
    assert_eq!(validated["diagnostics"][0]["policy"], "issues/a");
    assert_eq!(desk.head().await, head);
    assert_eq!(desk.decision().await, "deny");
}

#[tokio::test]
async fn who_validates_is_told_of_a_team_that_has_too_few_people_to_approve() {
    let desk = Desk::open().await;
    let team = desk.admin("PUT", "/v1/teams/leads", &json!({})).await;
    team.expect(201);
    let ann = json!({"teams": ["leads"]});
    desk.admin("PUT", "/v1/users/ann", &ann).await.expect(201);
    let set = |group: &str, quorum: u32| {
        let cedar = format!(
            "@id(\"ask\") @decision(\"require_approval\") @approvers(\"{group}\") @quorum(\"{quorum}\")
             permit (principal, action == Action::\"github/create_issue\", resource);"
        );
        json!({"policies": [{"name": "issues", "cedar": cedar}]})
    };
    for (group, quorum, message) in [
        ("leads", 1, None),
        (
            "leads",
            2,
            Some("the policy wants 2 of the team `leads` to approve, which has 1"),
        ),
        (
            "laeds",
            1,
            Some("the policy wants the team `laeds` to approve, and there is no such team"),
        ),
    ] {
        let body = set(group, quorum);
        let validated = desk.edit("POST", "/validate", &body).await.expect(200);
        assert_eq!(validated["valid"], true);
        let found = validated["diagnostics"].as_array().unwrap();
        let told = found.iter().map(|finding| {
            assert_eq!(
                (&finding["policy"], &finding["severity"]),
                (&json!("issues/ask"), &json!("warning"))
            );
            text(&finding["message"])
        });
        let expected: Vec<_> = message.into_iter().map(str::to_owned).collect();
        assert_eq!(told.collect::<Vec<_>>(), expected, "{group}");
        desk.edit("PUT", "", &body).await.expect(200);
    }
}

#[tokio::test]
async fn a_text_is_laid_out() {
    let desk = Desk::open().await;
    let cedar = "// why\n@id(\"a\")permit(principal,action,resource);";
    let laid_out = desk
        .edit("POST", "/format", &json!({"cedar": cedar}))
        .await
        .expect(200);
    assert_eq!(
        laid_out["cedar"],
        "// why\n@id(\"a\")\npermit (principal, action, resource);\n"
    );
    let reply = desk.edit("POST", "/format", &json!({"cedar": "\npermit"})).await;
    assert_eq!(diagnostics(&reply)[0]["line"], 2);
}

#[tokio::test]
async fn a_long_set_is_laid_out_and_a_text_that_is_too_long_is_refused() {
    let desk = Desk::open().await;
    let with_set = |length: usize| {
        let items = "1, ".repeat(length);
        json!({"cedar": format!("permit (principal, action, resource) when {{ [{items}1].contains(1) }};")})
    };
    let laid_out = desk.edit("POST", "/format", &with_set(12_000)).await.expect(200);
    assert_eq!(text(&laid_out["cedar"]).matches('1').count(), 12_002);

    let reply = desk.edit("POST", "/format", &with_set(30_000)).await;
    let found = &diagnostics(&reply)[0];
    assert!(text(&found["message"]).contains("at most 65536"), "{found}");
}

#[tokio::test]
async fn the_schema_speaks_of_the_tools() {
    let desk = Desk::open().await;
    let schema = desk.edit("GET", "/schema", &Value::Null).await.expect(200);
    let cedar = text(&schema["cedar"]);
    for word in ["github/create_issue", "base_branch", "entity Agent"] {
        assert!(cedar.contains(word), "{word}: {cedar}");
    }
    assert!(schema["json"].to_string().contains("github/create_issue"));
    let tool = json!({"actions": [{"name": "post", "mutates_state": true, "risk": "low"}]});
    desk.admin("PUT", "/v1/tools/slack", &tool).await.expect(201);
    let schema = desk.edit("GET", "/schema", &Value::Null).await.expect(200);
    assert!(text(&schema["cedar"]).contains("slack/post"));
}

#[tokio::test]
async fn what_takes_a_core_for_a_while_waits_for_the_drafts_before_it() {
    let desk = Desk::open().await;
    let mut ask = changing();
    ask["agent"] = json!({"id": desk.agent.id});
    for (method, path, body) in [
        ("GET", "/schema", Value::Null),
        ("POST", "/try", json!({"asks": [ask]})),
        ("POST", "/validate", json!({"policies": []})),
    ] {
        let place = desk.gateway.drafts.acquire(desk.tenant).await.unwrap();
        let mut working = pin!(desk.edit(method, path, &body));
        let early = tokio::time::timeout(Duration::from_millis(300), working.as_mut()).await;
        assert!(early.is_err(), "{path} does not wait");
        drop(place);
        working.await.expect(200);
    }
}
