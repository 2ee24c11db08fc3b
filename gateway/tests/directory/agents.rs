//! `/v1/agents`.

use crate::{Acme, NOW, column, text};
use engine::EntryKind;
use gateway::changes::{By, Force, Plan};
use model::agent::FORMER_NAMES_MAX;
use model::{Agent, AgentId, Directory, Name, Noun, Timestamp, Write};
use serde_json::{Value, json};
use std::sync::Arc;

fn full() -> Value {
    json!({"name": "builder", "environment": "production", "team": "platform", "owner": "ada", "risk_tier": "medium",
        "tools": ["mail"], "attributes": {"tier": "gold"}})
}

#[tokio::test]
async fn an_agent_is_registered_and_read() {
    let acme = Acme::open().await;
    acme.admin("PUT", "/v1/teams/platform", json!({}))
        .await
        .expect(201);
    acme.put_mail().await;
    acme.news().await;
    let made = acme.admin("POST", "/v1/agents", full()).await.expect(201);
    let mut expected = full();
    expected["id"] = made["id"].clone();
    expected["status"] = json!("active");
    expected["created_at"] = json!(NOW);
    assert!(text(&made["id"]).starts_with("agt_"));
    assert_eq!(made, expected);
    assert_eq!(acme.told("agent_created").await, expected);
    let path = format!("/v1/agents/{}", text(&made["id"]));
    assert_eq!(acme.admin("GET", &path, Value::Null).await.expect(200), expected);
}

#[tokio::test]
async fn an_agent_of_which_only_the_name_is_known_has_no_tools() {
    let acme = Acme::open().await;
    let made = acme
        .admin("POST", "/v1/agents", json!({"name": "builder"}))
        .await
        .expect(201);
    let expected = json!({"id": made["id"], "name": "builder", "environment": null, "team": null, "owner": null,
        "risk_tier": "low", "tools": [], "attributes": {}, "status": "active", "created_at": NOW});
    assert_eq!(made, expected);
    acme.put_mail().await;
    let token = acme.token(&text(&made["id"])).await;
    assert_eq!(acme.reason(&token, "mail", "read").await, "tool_not_granted");
}

#[tokio::test]
async fn a_taken_name_is_refused_and_nothing_of_its_holder_changes() {
    let acme = Acme::open().await;
    let id = acme.hire(json!({"name": "builder"})).await;
    let token = acme.token(&id).await;
    let other = acme.hire(json!({"name": "other"})).await;
    acme.news().await;
    let detail = acme
        .admin("POST", "/v1/agents", json!({"name": "builder"}))
        .await
        .problem(409, "name_taken");
    assert!(detail.contains(&id), "{detail}");
    let rename = json!({"name": "builder"});
    let path = format!("/v1/agents/{other}");
    acme.admin("PATCH", &path, rename)
        .await
        .problem(409, "name_taken");
    acme.assert_silent().await;
    acme.get("/v1/whoami", &token).await.expect(200);
    acme.hire(json!({"name": "Builder"})).await;
}

#[tokio::test]
async fn one_of_many_who_ask_for_a_name_at_once_gets_it() {
    let acme = Acme::open().await;
    let register = || acme.admin("POST", "/v1/agents", json!({"name": "builder"}));
    let replies = futures_util::future::join_all((0..16).map(|_| register())).await;
    let (made, refused): (Vec<_>, Vec<_>) = replies.iter().partition(|reply| reply.status == 201);
    assert_eq!(made.len(), 1);
    for reply in refused {
        let detail = reply.problem(409, "name_taken");
        assert!(detail.contains(&text(&made[0].json()["id"])), "{detail}");
    }
    assert_eq!(acme.kinds().await, ["agent_created"]);
}

#[tokio::test]
async fn a_patch_changes_what_it_names_and_a_null_clears() {
    let acme = Acme::open().await;
    acme.admin("PUT", "/v1/teams/platform", json!({}))
        .await
        .expect(201);
    acme.put_mail().await;
    let made = acme.admin("POST", "/v1/agents", full()).await.expect(201);
    acme.news().await;
    let path = format!("/v1/agents/{}", text(&made["id"]));
    let members = json!({"name": "baker", "environment": null, "team": null, "owner": null, "risk_tier": "high",
        "tools": "all", "attributes": {}});
    let changed = acme.admin("PATCH", &path, members.clone()).await.expect(200);
    let mut expected = members.clone();
    for kept in ["id", "status", "created_at"] {
        expected[kept] = made[kept].clone();
    }
    expected["former_names"] = json!(["builder"]);
    assert_eq!(changed, expected);
    assert_eq!(acme.told("agent_updated").await, expected);
    assert_eq!(acme.admin("PATCH", &path, members).await.expect(200), expected);
    assert_eq!(acme.admin("PATCH", &path, json!({})).await.expect(200), expected);
    acme.assert_silent().await;
    let owner = acme
        .admin("PATCH", &path, json!({"owner": "bob"}))
        .await
        .expect(200);
    assert_eq!(
        (&owner["owner"], &owner["name"]),
        (&json!("bob"), &json!("baker"))
    );
    acme.admin("POST", "/v1/agents", json!({"name": "builder"}))
        .await
        .problem(409, "name_taken");
}

#[tokio::test]
async fn an_agent_keeps_the_names_that_it_had_and_there_is_an_end_to_them() {
    let acme = Acme::open().await;
    let id = acme.hire(json!({"name": "builder"})).await;
    let other = acme.hire(json!({"name": "other"})).await;
    let path = format!("/v1/agents/{id}");
    let rename = |name: String| acme.admin("PATCH", &path, json!({ "name": name }));
    let unnamed = acme.admin("GET", &path, Value::Null).await.expect(200);
    assert_eq!(unnamed.get("former_names"), None);
    for number in 0..FORMER_NAMES_MAX {
        rename(format!("name-{number}")).await.expect(200);
    }
    let named = acme.admin("GET", &path, Value::Null).await.expect(200);
    assert_eq!(named["former_names"].as_array().unwrap().len(), FORMER_NAMES_MAX);
    assert_eq!(named["former_names"][0], "builder");
    let detail = rename("one-more".to_owned()).await.problem(400, "invalid_field");
    assert!(detail.contains("take one of them back"), "{detail}");
    for former in ["builder", "name-0"] {
        let detail = acme
            .admin("PATCH", &format!("/v1/agents/{other}"), json!({"name": former}))
            .await
            .problem(409, "name_taken");
        assert!(detail.contains(&id), "{detail}");
    }
    let again = rename("builder".to_owned()).await.expect(200);
    assert_eq!(again["name"], "builder");
    acme.admin("POST", "/v1/agents", json!({"name": "one-more"}))
        .await
        .expect(201);
}

#[tokio::test]
async fn no_agent_is_named_like_an_id() {
    let acme = Acme::open().await;
    let id = acme.hire(json!({"name": "builder"})).await;
    let other = acme.hire(json!({"name": "other"})).await;
    acme.news().await;
    for name in [id.as_str(), &other, "agt_00000000000000000000000000"] {
        let body = json!({ "name": name });
        for (method, path) in [
            ("POST", "/v1/agents".to_owned()),
            ("PATCH", format!("/v1/agents/{other}")),
        ] {
            let refused = acme.admin(method, &path, body.clone()).await.expect(400);
            assert_eq!(refused["code"], "invalid_field", "{refused}");
            let detail = refused["detail"].as_str().unwrap();
            assert!(detail.contains(name), "{detail}");
        }
    }
    acme.assert_silent().await;
    acme.hire(json!({"name": "agt_builder"})).await;
}

#[tokio::test]
async fn a_list_is_paged_and_filtered_by_status() {
    let acme = Acme::open().await;
    let mut ids = Vec::new();
    for number in 0..5 {
        acme.clock.advance_millis(1);
        ids.push(acme.hire(json!({"name": format!("agent-{number}")})).await);
    }
    assert_eq!(column(&acme.pages("/v1/agents").await, "id"), ids);
    let freeze = format!("/v1/agents/{}/freeze", ids[3]);
    acme.admin("POST", &freeze, json!({"reason": "odd"}))
        .await
        .expect(200);
    let status = async |status: &str| {
        let list = acme
            .admin("GET", &format!("/v1/agents?status={status}&limit=4"), Value::Null)
            .await
            .expect(200);
        assert_eq!(list["next_cursor"], Value::Null);
        column(list["items"].as_array().unwrap(), "id")
    };
    assert_eq!(status("frozen").await, ids[3..4]);
    assert_eq!(status("active").await.len(), 4);
    assert!(status("revoked").await.is_empty());
    acme.admin("GET", "/v1/agents?status=asleep", Value::Null)
        .await
        .problem(400, "invalid_parameter");
    acme.admin("GET", "/v1/agents?cursor=agt_1", Value::Null)
        .await
        .problem(400, "invalid_parameter");
}

/// Registers so many agents at once that are like this one and stand before it in lists.
async fn put_before(acme: &Acme, id: &str, count: u128) {
    let plan = |directory: &Directory, _: Timestamp| {
        let like = &directory.agents[&id.parse::<AgentId>().unwrap()];
        let put = |number: u128| {
            Write::Put(Noun::Agent(Arc::new(Agent {
                id: AgentId::from_bytes(number.to_be_bytes()),
                name: Name::new(&format!("agent-{number}")).unwrap(),
                ..Agent::clone(like)
            })))
        };
        Ok(Plan::Change {
            kind: EntryKind::AgentCreated,
            facts: json!({}),
            writes: (1..=count).map(put).collect(),
            answer: (),
        })
    };
    let tenant = acme.tenant.id.parse().unwrap();
    let change = acme.gateway.change_by(By::Start, Force::No, tenant, plan);
    change.await.unwrap();
}

#[tokio::test]
async fn a_page_of_few_agents_among_very_many_may_be_empty_and_goes_on() {
    let acme = Acme::open().await;
    let id = acme.hire(json!({"name": "builder"})).await;
    put_before(&acme, &id, 3_000).await;
    let frozen = async |cursor: &str| {
        let path = format!("/v1/agents?status=frozen{cursor}");
        let page = acme.admin("GET", &path, Value::Null).await.expect(200);
        let ids = column(page["items"].as_array().unwrap(), "id");
        (ids, page["next_cursor"].as_str().map(str::to_owned))
    };
    let (ids, next) = frozen("").await;
    assert_eq!(ids, [] as [&str; 0]);
    let behind = format!("&cursor={}", next.unwrap());
    assert_eq!(frozen(&behind).await, (vec![], None));
    acme.admin(
        "POST",
        &format!("/v1/agents/{id}/freeze"),
        json!({"reason": "odd"}),
    )
    .await
    .expect(200);
    assert_eq!(frozen(&behind).await, (vec![id], None));
}

#[tokio::test]
async fn a_bad_agent_is_refused_with_the_field_that_is_wrong() {
    let acme = Acme::open().await;
    let id = acme.hire(json!({"name": "builder"})).await;
    acme.news().await;
    for (member, value, code, part) in [
        (
            "team",
            json!("ghosts"),
            "invalid_field",
            "there is no team `ghosts`",
        ),
        (
            "tools",
            json!(["ghost"]),
            "invalid_field",
            "there is no tool `ghost`",
        ),
        ("tools", json!(["a/b"]), "invalid_field", "`/`"),
        ("tools", json!("some"), "invalid_field", "`\"all\"` or a list"),
        ("risk_tier", json!("critical"), "invalid_field", "`/risk_tier`"),
        ("environment", json!(""), "invalid_field", "`/environment`"),
        (
            "attributes",
            json!({"x": 1.5}),
            "invalid_field",
            "the attribute `x`",
        ),
        ("status", json!("active"), "unknown_field", "`status`"),
        ("id", json!(id), "unknown_field", "`id`"),
    ] {
        let mut body = json!({"name": "other"});
        body[member] = value.clone();
        let detail = acme.admin("POST", "/v1/agents", body).await.problem(400, code);
        assert!(detail.contains(part), "{member}: {detail}");
        let patch = json!({ member: value });
        acme.admin("PATCH", &format!("/v1/agents/{id}"), patch)
            .await
            .problem(400, code);
    }
    acme.admin("POST", "/v1/agents", json!({}))
        .await
        .problem(400, "invalid_field");
    for id in ["agt_1", "builder", "agt_7zzzzzzzzzzzzzzzzzzzzzzzzz"] {
        let path = format!("/v1/agents/{id}");
        acme.admin("GET", &path, Value::Null)
            .await
            .problem(404, "not_found");
        acme.admin("PATCH", &path, json!({"owner": "x"}))
            .await
            .problem(404, "not_found");
    }
    acme.assert_silent().await;
}
