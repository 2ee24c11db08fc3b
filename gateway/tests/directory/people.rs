//! `/v1/teams` and `/v1/users`.

use crate::{Acme, column, text};
use serde_json::{Value, json};

#[tokio::test]
async fn a_team_is_put_read_listed_and_deleted() {
    let acme = Acme::open().await;
    let view = json!({"name": "platform leads", "attributes": {"tier": "gold"}});
    let path = "/v1/teams/platform%20leads";
    let put = || acme.admin("PUT", path, json!({"attributes": {"tier": "gold"}}));
    assert_eq!(put().await.expect(201), view);
    assert_eq!(acme.told("team_put").await, view);
    assert_eq!(put().await.expect(200), view);
    acme.assert_silent().await;
    let changed = json!({"name": "platform leads", "attributes": {}});
    assert_eq!(acme.admin("PUT", path, json!({})).await.expect(200), changed);
    assert_eq!(acme.told("team_put").await, changed);

    assert_eq!(acme.admin("GET", path, Value::Null).await.expect(200), changed);
    for name in ["a", "b", "c%2Fd"] {
        acme.admin("PUT", &format!("/v1/teams/{name}"), json!({}))
            .await
            .expect(201);
    }
    assert_eq!(acme.kinds().await, ["team_put"; 3]);
    assert_eq!(
        column(&acme.pages("/v1/teams").await, "name"),
        ["a", "b", "c/d", "platform leads"]
    );

    acme.admin("DELETE", path, Value::Null).await.expect(204);
    assert_eq!(acme.told("team_deleted").await, changed);
    acme.admin("GET", path, Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", path, Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

/// Tools and rules are put by their names as teams and users are.
#[tokio::test]
async fn what_is_there_is_not_replaced_by_whoever_wants_to_make_it() {
    let acme = Acme::open().await;
    let rule = |effect: &str| json!({"trigger": "denials", "effect": effect});
    for (path, made, other) in [
        ("/v1/teams/a", json!({"attributes": {"x": 1}}), json!({})),
        ("/v1/users/ada", json!({"roles": ["admin"]}), json!({})),
        (
            "/v1/tools/mail",
            json!({"actions": [], "canary": true}),
            json!({"actions": []}),
        ),
        ("/v1/rules/many", rule("freeze"), rule("alert")),
    ] {
        let put = async |header: &'static str, condition: &str, body: &Value| {
            let call = acme.call("PUT", path, &acme.tenant.admin);
            call.header(header, condition).json(body).send().await
        };
        put("if-none-match", "*", &made).await.expect(201);
        let view = acme.admin("GET", path, Value::Null).await.expect(200);
        acme.news().await;
        let refused = put("if-none-match", "*", &other).await.expect(412);
        assert_eq!(refused["code"], "precondition_failed", "{path}");
        // Nothing here has a tag that could be named.
        for (header, condition) in [
            ("if-none-match", "\"1\""),
            ("if-match", "\"1\""),
            ("if-match", "*"),
        ] {
            let refused = put(header, condition, &other).await.expect(400);
            assert_eq!(
                refused["code"], "invalid_parameter",
                "{path}: {header}: {condition}"
            );
        }
        for condition in ["if-match", "if-none-match"] {
            let delete = acme.call("DELETE", path, &acme.tenant.admin);
            let refused = delete.header(condition, "*").send().await.expect(400);
            assert_eq!(refused["code"], "invalid_parameter", "{path}: {condition}");
        }
        acme.assert_silent().await;
        assert_eq!(acme.admin("GET", path, Value::Null).await.expect(200), view);
        acme.admin("PUT", path, other).await.expect(200);
        acme.news().await;
    }
}

#[tokio::test]
async fn a_team_that_somebody_is_in_stays() {
    let acme = Acme::open().await;
    acme.admin("PUT", "/v1/teams/a", json!({})).await.expect(201);
    acme.admin("PUT", "/v1/users/ada", json!({"teams": ["a"]}))
        .await
        .expect(201);
    let agent = acme.hire(json!({"name": "builder", "team": "a"})).await;
    acme.news().await;
    let detail = acme
        .admin("DELETE", "/v1/teams/a", Value::Null)
        .await
        .problem(409, "conflict");
    assert!(detail.contains("1 agents and 1 users"), "{detail}");
    acme.admin("PUT", "/v1/users/ada", json!({})).await.expect(200);
    acme.admin("DELETE", "/v1/teams/a", Value::Null)
        .await
        .problem(409, "conflict");
    acme.admin("PATCH", &format!("/v1/agents/{agent}"), json!({"team": null}))
        .await
        .expect(200);
    acme.admin("DELETE", "/v1/teams/a", Value::Null).await.expect(204);
    assert_eq!(acme.kinds().await, ["user_put", "agent_updated", "team_deleted"]);
}

/// What 64 attributes can be of a few dozen users is more than a page holds.
#[tokio::test]
async fn a_page_of_large_users_ends_by_its_bytes_and_the_next_one_goes_on() {
    let acme = Acme::open().await;
    let attributes: Value = (0..64)
        .map(|number| (format!("a{number}"), json!("x".repeat(1_024))))
        .collect();
    let names: Vec<String> = (100..170).map(|number| format!("user-{number}")).collect();
    for name in &names {
        acme.admin(
            "PUT",
            &format!("/v1/users/{name}"),
            json!({"attributes": attributes}),
        )
        .await
        .expect(201);
    }
    let (mut found, cursor) = many_users(&acme, "").await;
    let user = json!({"name": names[0], "teams": [], "attributes": attributes});
    let bytes = user.to_string().len();
    assert_eq!(found.len(), store::BYTES_AT_ONCE.div_ceil(bytes));
    assert_eq!(cursor, json!(found.last()));
    let cursor = format!("&cursor={}", text(&cursor));
    let (rest, end) = many_users(&acme, &cursor).await;
    found.extend(rest);
    assert_eq!((found, end), (names, Value::Null));
}

/// The names on a page for which as many are wanted as there may be, and where the next one begins.
async fn many_users(acme: &Acme, cursor: &str) -> (Vec<String>, Value) {
    let path = format!("/v1/users?limit=500{cursor}");
    let mut page = acme.admin("GET", &path, Value::Null).await.expect(200);
    let names = column(page["items"].as_array().unwrap(), "name");
    (names, page["next_cursor"].take())
}

/// Each decision for a user names all teams of that user.
#[tokio::test]
async fn a_user_is_in_so_many_teams_and_no_more() {
    let acme = Acme::open().await;
    let teams: Vec<String> = (0..257).map(|number| format!("team-{number}")).collect();
    for team in &teams {
        acme.admin("PUT", &format!("/v1/teams/{team}"), json!({}))
            .await
            .expect(201);
    }
    let put = |teams: &[String]| acme.admin("PUT", "/v1/users/ada", json!({"teams": teams}));
    put(&teams[..256]).await.expect(201);
    let detail = put(&teams).await.problem(400, "invalid_field");
    assert!(
        detail.contains("256 teams at most, this one is in 257"),
        "{detail}"
    );
}

#[tokio::test]
async fn a_user_is_put_read_listed_and_deleted() {
    let acme = Acme::open().await;
    acme.admin("PUT", "/v1/teams/a", json!({})).await.expect(201);
    acme.news().await;
    let view = json!({"name": "u-17", "teams": ["a"], "attributes": {"level": 3, "vip": true}});
    let put = || {
        acme.admin(
            "PUT",
            "/v1/users/u-17",
            json!({"teams": ["a"], "attributes": {"level": 3, "vip": true}}),
        )
    };
    assert_eq!(put().await.expect(201), view);
    assert_eq!(acme.told("user_put").await, view);
    assert_eq!(put().await.expect(200), view);
    acme.assert_silent().await;
    assert_eq!(
        acme.admin("GET", "/v1/users/u-17", Value::Null).await.expect(200),
        view
    );
    let changed = json!({"name": "u-17", "teams": [], "attributes": {}});
    assert_eq!(
        acme.admin("PUT", "/v1/users/u-17", json!({})).await.expect(200),
        changed
    );
    assert_eq!(acme.told("user_put").await, changed);

    acme.admin("PUT", "/v1/users/u-18", json!({})).await.expect(201);
    acme.admin("PUT", "/v1/users/u-19", json!({})).await.expect(201);
    assert_eq!(
        column(&acme.pages("/v1/users").await, "name"),
        ["u-17", "u-18", "u-19"]
    );
    acme.news().await;
    acme.admin("DELETE", "/v1/users/u-17", Value::Null)
        .await
        .expect(204);
    assert_eq!(acme.told("user_deleted").await, changed);
    acme.admin("GET", "/v1/users/u-17", Value::Null)
        .await
        .problem(404, "not_found");
    acme.admin("DELETE", "/v1/users/u-17", Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
}

#[tokio::test]
async fn names_that_differ_by_case_alone_are_two_people() {
    let acme = Acme::open().await;
    acme.admin("PUT", "/v1/users/Ada", json!({"attributes": {"x": 1}}))
        .await
        .expect(201);
    acme.admin("PUT", "/v1/users/ada", json!({})).await.expect(201);
    let ada = acme.admin("GET", "/v1/users/Ada", Value::Null).await.expect(200);
    assert_eq!(ada, json!({"name": "Ada", "teams": [], "attributes": {"x": 1}}));
}

#[tokio::test]
async fn bad_people_are_refused_with_what_is_wrong() {
    let acme = Acme::open().await;
    let long = "x".repeat(257);
    for (path, body, code, part) in [
        (
            "/v1/users/ada",
            json!({"teams": ["ghosts"]}),
            "invalid_field",
            "there is no team `ghosts`",
        ),
        (
            "/v1/users/ada",
            json!({"teams": "a"}),
            "invalid_field",
            "`/teams`",
        ),
        ("/v1/users/ada", json!({"name": "ada"}), "unknown_field", "`name`"),
        (
            "/v1/users/ada",
            json!({"attributes": {"x": [1]}}),
            "invalid_field",
            "the attribute `x`",
        ),
        (
            "/v1/teams/a",
            json!({"attributes": {"x": null}}),
            "invalid_field",
            "the attribute `x`",
        ),
        (
            "/v1/teams/a",
            json!({"members": []}),
            "unknown_field",
            "`members`",
        ),
        (
            "/v1/teams/cafe%CC%81",
            json!({}),
            "invalid_parameter",
            "normalization form C",
        ),
        (
            "/v1/teams/a%00",
            json!({}),
            "invalid_parameter",
            "control characters",
        ),
        (
            &format!("/v1/users/{long}"),
            json!({}),
            "invalid_parameter",
            "at most 256 bytes",
        ),
    ] {
        let detail = acme.admin("PUT", path, body).await.problem(400, code);
        assert!(detail.contains(part), "{path}: {detail}");
    }
    acme.call("PUT", "/v1/teams/%FF", &acme.tenant.admin)
        .json(&json!({}))
        .send()
        .await
        .problem(400, "invalid_parameter");
    for list in [
        "/v1/teams?limit=0",
        "/v1/teams?limit=501",
        "/v1/teams?limit=x",
        "/v1/users?cursor=%00",
    ] {
        acme.admin("GET", list, Value::Null)
            .await
            .problem(400, "invalid_parameter");
    }
    acme.assert_silent().await;
}
