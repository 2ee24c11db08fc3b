//! What a tenant registers has a bound, and what has to be done beyond it.

use crate::Acme;
use crate::support::Reply;
use gateway::gateway::Options;
use model::directory::ACTION_BYTES;
use serde_json::{Map, Value, json};

/// Room for a key of an admin and three users of a thousand bytes.
const BYTES_MAX: usize = 4_096;

/// A tenant with not much room.
async fn small() -> Acme {
    small_with(0).await
}

/// A tenant with not much room beside that of so many actions.
async fn small_with(actions: usize) -> Acme {
    let options = Options {
        directory_bytes_max: BYTES_MAX + actions * ACTION_BYTES,
        ..Options::default()
    };
    Acme::open_with(options).await
}

/// Puts a user about whom there is so much to tell.
async fn put_user(acme: &Acme, name: &str, bytes: usize) -> Reply {
    let path = format!("/v1/users/{name}");
    let body = json!({"attributes": {"note": "x".repeat(bytes)}});
    acme.admin("PUT", &path, body).await
}

fn assert_no_room(reply: &Reply) {
    assert_no_room_with(0, reply);
}

/// The same where there is room for so many actions.
fn assert_no_room_with(actions: usize, reply: &Reply) {
    let refused = reply.expect(409);
    assert_eq!(refused["code"], "conflict");
    let detail = refused["detail"].as_str().unwrap();
    let room = format!("{} bytes", BYTES_MAX + actions * ACTION_BYTES);
    for part in [&*room, "delete", "`COUNTERSIGN_DIRECTORY_BYTES_MAX`"] {
        assert!(detail.contains(part), "{detail}");
    }
}

/// Users until there is no room for another one of a thousand bytes, where so many actions have theirs.
async fn fill(acme: &Acme, actions: usize) {
    for number in 0..BYTES_MAX / 1_000 {
        let reply = put_user(acme, &format!("filling-{number}"), 1_000).await;
        if reply.status == 409 {
            assert_no_room_with(actions, &reply);
            return;
        }
        reply.expect(201);
    }
    panic!("there was room for all of them");
}

#[tokio::test]
async fn a_tenant_registers_no_more_than_there_is_room_for() {
    let acme = small().await;
    for name in ["a", "b", "c"] {
        put_user(&acme, name, 1_000).await.expect(201);
    }
    acme.news().await;
    assert_no_room(&put_user(&acme, "d", 1_000).await);
    acme.assert_silent().await;
    assert_no_room(&acme.admin("PUT", "/v1/tools/mail", large_tool()).await);
    acme.assert_silent().await;

    // What is smaller than it was makes room, and what grows takes it.
    put_user(&acme, "c", 10).await.expect(200);
    put_user(&acme, "d", 900).await.expect(201);
    assert_no_room(&put_user(&acme, "c", 1_000).await);

    // What is gone counts nothing.
    for _ in 0..5 {
        acme.admin("DELETE", "/v1/users/d", Value::Null).await.expect(204);
        put_user(&acme, "d", 900).await.expect(201);
    }
}

fn large_tool() -> Value {
    json!({"actions": [
        {"name": "read", "mutates_state": false, "risk": "low", "description": "x".repeat(2_000)},
    ]})
}

/// A schema with so many values in a list, which counts for twelve more.
fn schema(values: usize) -> Value {
    json!({"type": "object", "title": "", "default": vec![0; values]})
}

#[tokio::test]
async fn a_schema_takes_the_room_that_it_has_in_memory() {
    let acme = small_with(1).await;
    let put = async |values| {
        let action =
            json!({"name": "read", "mutates_state": false, "risk": "low", "input_schema": schema(values)});
        acme.admin("PUT", "/v1/tools/mail", json!({"actions": [action]}))
            .await
    };
    // No more than some hundred letters.
    assert_no_room_with(1, &put(60).await);
    put(10).await.expect(201);
    assert_no_room_with(1, &put(60).await);

    // One that is held, too, for which there is as much room again.
    let import = async |values: usize| {
        let read = json!({"name": "read", "inputSchema": schema(values)});
        acme.admin("POST", "/v1/tools/mail/import", json!({"tools": [read]}))
            .await
    };
    assert_eq!(import(50).await.expect(200)["held"], json!(["read"]));
    let refused = import(120).await.expect(409);
    let detail = refused["detail"].as_str().unwrap();
    assert!(
        detail.contains("12288 bytes with changed definitions that are held"),
        "{detail}"
    );
    assert_eq!(import(5).await.expect(200)["held"], json!(["read"]));
}

#[tokio::test]
async fn an_action_takes_the_room_of_what_policies_know_it_by() {
    let acme = small_with(1).await;
    let put = async |names: &[&str]| {
        let actions = names
            .iter()
            .map(|name| json!({"name": name, "mutates_state": false, "risk": "low"}));
        let body = json!({"actions": actions.collect::<Vec<_>>()});
        acme.admin("PUT", "/v1/tools/mail", body).await
    };
    put(&["read", "send"]).await.expect(201);
    let refused = put(&["read", "send", "list"]).await;
    assert_no_room_with(1, &refused);
    let detail = &refused.expect(409)["detail"];
    assert!(
        detail.as_str().unwrap().contains("2048 for each action"),
        "{detail}"
    );
    put(&["read", "list"]).await.expect(200);
}

#[tokio::test]
async fn whoever_has_to_be_stopped_is_stopped_where_there_is_no_room() {
    /// Those of `mail`, and one of `chat`.
    const ACTIONS: usize = 3;
    let acme = small_with(ACTIONS).await;
    acme.put_mail().await;
    let agent = acme.hire(json!({"name": "builder"})).await;
    let definition =
        |name: &str, description: &str| json!({"name": name, "description": description, "inputSchema": {}});
    let import = async |tools: Value| {
        let body = json!({"tools": tools});
        acme.admin("POST", "/v1/tools/chat/import", body).await
    };
    import(json!([definition("say", "says")])).await.expect(201);
    fill(&acme, ACTIONS).await;
    let changed = definition("say", &"x".repeat(1_024));
    let both = json!([changed, definition("shout", "shouts")]);
    assert_no_room_with(ACTIONS, &import(both).await);
    assert_eq!(import(json!([changed])).await.expect(200)["held"], json!(["say"]));
    // More than there is room for.
    let reason = json!({"reason": "x".repeat(1_024)});
    for path in [
        format!("/v1/agents/{agent}/freeze"),
        "/v1/tools/mail/freeze".to_owned(),
        "/v1/runs/run-7/freeze".to_owned(),
        "/v1/runs/run-8/revoke".to_owned(),
        format!("/v1/agents/{agent}/revoke"),
        "/v1/tools/mail/revoke".to_owned(),
    ] {
        acme.admin("POST", &path, reason.clone()).await.expect(200);
    }
    let snapshot = acme.gateway.tenant(acme.tenant.id.parse().unwrap()).unwrap();
    assert!(snapshot.directory.bytes() > BYTES_MAX + ACTIONS * ACTION_BYTES);

    // Beyond the bound, what makes it less is done, and nothing that makes it more.
    assert_no_room_with(ACTIONS, &put_user(&acme, "ada", 1).await);
    put_user(&acme, "filling-0", 999).await.expect(200);
    acme.admin("DELETE", "/v1/users/filling-0", Value::Null)
        .await
        .expect(204);
    let tenant = format!("/v1/tenants/{}", acme.tenant.id);
    let freeze = format!("{tenant}/freeze");
    acme.post(&freeze, &acme.operator, &reason).await.expect(200);
    acme.call("DELETE", &tenant, &acme.operator)
        .send()
        .await
        .expect(204);
}

#[tokio::test]
async fn one_tenant_without_room_takes_none_from_others_and_none_from_operators() {
    let acme = small().await;
    fill(&acme, 0).await;
    let other = acme.found("globex").await;
    acme.call("PUT", "/v1/users/ada", &other.admin)
        .json(&json!({}))
        .send()
        .await
        .expect(201);
    // There are more of them than a tenant has room for.
    for number in 0..BYTES_MAX / 200 {
        let body = json!({"name": format!("operator-{number}"), "role": "operator"});
        acme.post("/v1/keys", &acme.operator, &body).await.expect(201);
    }
}

/// A schema of few bytes whose pattern is nearly a hundred million of them once it is compiled and in use.
fn heavy(number: usize) -> Value {
    let pattern = format!("{}{number}", "(a)".repeat(1_000));
    json!({"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}})
}

fn assert_too_heavy(reply: &Reply) {
    let detail = reply.problem(422, "policy_invalid");
    for part in [
        "once compiled",
        "may take 134217728",
        "delete tools",
        "nothing was changed",
    ] {
        assert!(detail.contains(part), "{detail}");
    }
}

#[tokio::test]
async fn schemas_that_take_much_memory_come_in_by_no_door() {
    let acme = Acme::open().await;
    let schema = |number: usize| json!({"type": "object", "properties": {"a": {"pattern": format!("a{{40000}}{}", 100 + number)}}});
    let actions = (0..256).map(|number| {
        let name = format!("a{number}");
        json!({"name": name, "mutates_state": true, "risk": "high", "input_schema": schema(number)})
    });
    let listed = (0..256).map(|number| json!({"name": format!("a{number}"), "inputSchema": schema(number)}));
    let body = json!({"actions": actions.collect::<Vec<_>>()});
    assert_too_heavy(&acme.admin("PUT", "/v1/tools/mail", body).await);
    let body = json!({"tools": listed.collect::<Vec<_>>()});
    assert_too_heavy(&acme.admin("POST", "/v1/tools/mail/import", body).await);
    acme.assert_silent().await;
}

#[tokio::test]
async fn schemas_that_give_policies_too_many_types_come_in_by_no_door() {
    let options = Options {
        body_bytes_max: 1 << 20,
        ..Options::default()
    };
    let acme = Acme::open_with(options).await;
    let members = (0..97).map(|number| (format!("m{number}"), json!({"type": "string"})));
    let members = members.collect::<Map<_, _>>();
    let properties = (0..20).map(|number| (format!("p{number}"), json!({"$ref": "#/$defs/a"})));
    let properties = properties.collect::<Map<_, _>>();
    let defined = json!({"a": {"type": "object", "properties": members}});
    let schema = json!({"type": "object", "properties": properties, "$defs": defined});
    let actions = (0..256).map(|number| {
        let name = format!("a{number}");
        json!({"name": name, "mutates_state": true, "risk": "high", "input_schema": schema})
    });
    let listed = (0..256).map(|number| json!({"name": format!("a{number}"), "inputSchema": schema}));
    let put = json!({"actions": actions.collect::<Vec<_>>()});
    let import = json!({"tools": listed.collect::<Vec<_>>()});
    for (method, path, body) in [
        ("PUT", "/v1/tools/mail", put),
        ("POST", "/v1/tools/mail/import", import),
    ] {
        let reply = acme.admin(method, path, body).await;
        let detail = reply.problem(422, "policy_invalid");
        for part in [
            "1960 types",
            "come to 501760",
            "may come to 500000",
            "delete tools",
            "nothing was changed",
        ] {
            assert!(detail.contains(part), "{detail}");
        }
    }
    acme.assert_silent().await;
}

#[tokio::test]
async fn schemas_add_up_over_tools_and_pages_and_count_when_they_are_put_in_use() {
    let acme = Acme::open().await;
    let import = async |tool: &str, name: &str, schema: Value| {
        let body = json!({"tools": [{"name": name, "inputSchema": schema}], "nextCursor": "more"});
        acme.admin("POST", &format!("/v1/tools/{tool}/import"), body)
            .await
    };
    import("mail", "send", heavy(1)).await.expect(201);
    acme.news().await;
    assert_too_heavy(&import("mail", "read", heavy(2)).await);
    assert_too_heavy(&import("chat", "read", heavy(2)).await);
    acme.assert_silent().await;
    // The same schema is compiled once.
    import("chat", "say", heavy(1)).await.expect(201);

    // What is held is not in use.
    import("mail", "read", json!({"type": "object"}))
        .await
        .expect(200);
    let held = import("mail", "read", heavy(2)).await.expect(200);
    assert_eq!(held["held"], json!(["read"]));
    let accept = async || {
        let path = "/v1/tools/mail/actions/read/accept";
        acme.admin("POST", path, json!({})).await
    };
    assert_too_heavy(&accept().await);
    // There is room for it in the place of what is gone.
    acme.admin("DELETE", "/v1/tools/chat", Value::Null)
        .await
        .expect(204);
    assert_too_heavy(&accept().await);
    let less = json!({"type": "object", "title": "less"});
    let again = import("mail", "send", less).await.expect(200);
    assert_eq!(again["held"], json!(["send"]));
    acme.admin("POST", "/v1/tools/mail/actions/send/accept", json!({}))
        .await
        .expect(200);
    accept().await.expect(200);
}
