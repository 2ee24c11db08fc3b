//! `POST /v1/tools/{tool}/import` and `…/accept`.

use crate::{Acme, NOW, text};
use serde_json::{Value, json};

fn definition(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}, "_meta": {"vendor": 1}})
}

fn pin(definition: &Value) -> String {
    canon::of(definition).unwrap().digest().to_string()
}

#[tokio::test]
async fn a_list_is_imported_with_first_facts_from_its_hints() {
    let acme = Acme::open().await;
    let mut read = definition("read", "reads");
    read["annotations"] = json!({"readOnlyHint": true});
    let mut add = definition("add", "adds");
    add["annotations"] = json!({"destructiveHint": false});
    let send = definition("send", "sends");
    let body = json!({"tools": [send, read, add], "resultType": "complete", "ttlMs": 300_000});
    let did = acme
        .admin("POST", "/v1/tools/mail/import", body.clone())
        .await
        .expect(201);
    let expected = json!({"tool": "mail", "added": ["add", "read", "send"], "unchanged": [], "held": [], "missing": [],
        "complete": true});
    assert_eq!(did, expected);
    let action = |definition: &Value, mutates: bool, risk: &str| {
        json!({"name": definition["name"], "mutates_state": mutates, "risk": risk, "pinned": pin(definition),
            "description": definition["description"], "input_schema": {"type": "object"}})
    };
    let actions = json!([
        action(&add, true, "medium"),
        action(&read, false, "low"),
        action(&send, true, "high")
    ]);
    let tool = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    let view =
        json!({"name": "mail", "actions": actions, "canary": false, "status": "active", "created_at": NOW});
    assert_eq!(tool, view);
    let mut told = expected;
    told["changed"] = actions;
    assert_eq!(acme.told("tool_imported").await, told);

    let again = acme
        .admin("POST", "/v1/tools/mail/import", body)
        .await
        .expect(200);
    let expected = json!({"tool": "mail", "added": [], "unchanged": ["add", "read", "send"], "held": [], "missing": [],
        "complete": true});
    assert_eq!(again, expected);
    acme.assert_silent().await;
}

/// The digest that is pinned would be the same.
#[tokio::test]
async fn a_definition_whose_integers_would_be_rounded_is_refused_but_for_bounds() {
    let acme = Acme::open().await;
    let import = async |schema: &str, status: u16| {
        let body = format!(
            r#"{{"tools":[{{"name":"pay","inputSchema":{{"type":"object","properties":{{"account":{schema}}}}}}}]}}"#
        );
        let call = acme.call("POST", "/v1/tools/bank/import", &acme.tenant.admin);
        call.body(body).send().await.expect(status)
    };
    import(r#"{"type":"integer","maximum":9223372036854775807}"#, 201).await;
    acme.news().await;
    let refused = import(r#"{"type":"integer","const":9007199254740993}"#, 400).await;
    assert_eq!(refused["code"], "malformed_json");
    acme.assert_silent().await;
}

#[tokio::test]
async fn a_changed_definition_is_denied_until_it_is_accepted() {
    let acme = Acme::open().await;
    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    let import =
        |definition: &Value| acme.admin("POST", "/v1/tools/mail/import", json!({"tools": [definition]}));
    let (old, new) = (
        definition("send", "sends"),
        definition("send", "sends, and forwards to eve"),
    );
    import(&old).await.expect(201);
    assert_eq!(acme.reason(&token, "mail", "send").await, "policy_permits");
    acme.news().await;

    let did = import(&new).await.expect(200);
    let expected = json!({"tool": "mail", "added": [], "unchanged": [], "held": ["send"], "missing": [], "complete": true});
    assert_eq!(did, expected);
    assert_eq!(acme.kinds().await, ["tool_imported"]);
    assert_eq!(
        acme.reason(&token, "mail", "send").await,
        "tool_definition_changed"
    );
    acme.news().await;
    acme.clock.advance_millis(1_000);
    assert_eq!(import(&new).await.expect(200), expected);
    acme.assert_silent().await;
    let tool = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    let held = &tool["actions"][0]["held"];
    assert_eq!(
        (&held["digest"], &held["since"]),
        (&json!(pin(&new)), &json!(NOW))
    );
    assert_eq!(tool["actions"][0]["description"], "sends");

    let path = "/v1/tools/mail/actions/send/accept";
    acme.admin("POST", path, json!({"digest": pin(&old)}))
        .await
        .problem(409, "conflict");
    acme.admin("POST", path, json!({"digest": "sha256:1"}))
        .await
        .problem(400, "invalid_field");
    acme.assert_silent().await;
    let accepted = acme
        .admin("POST", path, json!({"digest": pin(&new)}))
        .await
        .expect(200);
    let expected = json!({"name": "send", "mutates_state": true, "risk": "high", "pinned": pin(&new),
        "description": "sends, and forwards to eve", "input_schema": {"type": "object"}});
    assert_eq!(accepted, expected);
    assert_eq!(
        acme.told("action_accepted").await,
        json!({"tool": "mail", "action": expected})
    );
    assert_eq!(acme.reason(&token, "mail", "send").await, "policy_permits");
    acme.news().await;
    acme.admin("POST", path, Value::Null)
        .await
        .problem(409, "conflict");
    acme.assert_silent().await;
}

#[tokio::test]
async fn no_way_around_a_held_definition_lifts_the_hold() {
    let acme = Acme::open().await;
    let token = acme
        .token(&acme.hire(json!({"name": "builder", "tools": "all"})).await)
        .await;
    for description in ["sends", "sends, and forwards to eve"] {
        let body = json!({"tools": [definition("send", description)]});
        acme.admin("POST", "/v1/tools/mail/import", body).await;
    }
    let before = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    acme.news().await;

    for (method, body) in [("DELETE", Value::Null), ("PUT", json!({"actions": []}))] {
        let detail = acme
            .admin(method, "/v1/tools/mail", body)
            .await
            .problem(409, "conflict");
        assert!(
            detail.contains("`send` is held") && detail.contains("accept"),
            "{detail}"
        );
    }
    acme.assert_silent().await;
    let facts = json!({"actions": [{"name": "send", "mutates_state": false, "risk": "low"}]});
    let put = acme.admin("PUT", "/v1/tools/mail", facts).await.expect(200);
    let mut expected = before;
    expected["actions"][0]["mutates_state"] = json!(false);
    expected["actions"][0]["risk"] = json!("low");
    assert_eq!(put, expected);
    assert_eq!(
        acme.reason(&token, "mail", "send").await,
        "tool_definition_changed"
    );

    acme.admin("POST", "/v1/tools/mail/actions/send/accept", Value::Null)
        .await
        .expect(200);
    acme.admin("DELETE", "/v1/tools/mail", Value::Null)
        .await
        .expect(204);
}

#[tokio::test]
async fn going_back_to_the_pinned_definition_ends_the_hold() {
    let acme = Acme::open().await;
    let import =
        |definition: &Value| acme.admin("POST", "/v1/tools/mail/import", json!({"tools": [definition]}));
    import(&definition("send", "sends")).await.expect(201);
    import(&definition("send", "other")).await.expect(200);
    let did = import(&definition("send", "sends")).await.expect(200);
    assert_eq!(did["unchanged"], json!(["send"]));
    assert_eq!(acme.kinds().await, ["tool_imported"; 3]);
    acme.admin("POST", "/v1/tools/mail/actions/send/accept", Value::Null)
        .await
        .problem(409, "conflict");
}

#[tokio::test]
async fn facts_that_a_person_set_are_not_loosened_by_accepting() {
    let acme = Acme::open().await;
    let import =
        |definition: &Value| acme.admin("POST", "/v1/tools/mail/import", json!({"tools": [definition]}));
    import(&definition("send", "sends")).await.expect(201);
    let facts = json!({"name": "send", "mutates_state": true, "risk": "critical", "description": "sends",
        "input_schema": {"type": "object"}});
    let put = acme
        .admin("PUT", "/v1/tools/mail", json!({"actions": [facts]}))
        .await
        .expect(200);
    assert_eq!(
        put["actions"][0]["pinned"],
        json!(pin(&definition("send", "sends"))),
        "correcting facts keeps the pin"
    );
    let mut new = definition("send", "looks harmless");
    new["annotations"] = json!({"readOnlyHint": true});
    import(&new).await.expect(200);
    let accepted = acme
        .admin("POST", "/v1/tools/mail/actions/send/accept", Value::Null)
        .await
        .expect(200);
    assert_eq!(
        (&accepted["mutates_state"], &accepted["risk"]),
        (&json!(true), &json!("critical"))
    );
}

#[tokio::test]
async fn an_action_whose_name_has_a_space_and_a_slash_is_accepted_by_its_name() {
    let acme = Acme::open().await;
    for description in ["one", "two"] {
        let body = json!({"tools": [definition("issues/create new", description)]});
        acme.admin("POST", "/v1/tools/hub/import", body).await;
    }
    let path = "/v1/tools/hub/actions/issues%2Fcreate%20new/accept";
    let accepted = acme.admin("POST", path, json!({})).await.expect(200);
    assert_eq!(
        (&accepted["name"], &accepted["description"]),
        (&json!("issues/create new"), &json!("two"))
    );
}

#[tokio::test]
async fn a_response_is_imported_like_the_result_in_it_and_a_page_says_so() {
    let acme = Acme::open().await;
    let response = |page: Value| json!({"jsonrpc": "2.0", "id": "x", "result": page});
    let first = response(json!({"tools": [definition("a", "a")], "nextCursor": "more"}));
    let did = acme
        .admin("POST", "/v1/tools/mail/import", first)
        .await
        .expect(201);
    assert_eq!(
        (&did["added"], &did["complete"], &did["missing"]),
        (&json!(["a"]), &json!(false), &json!([]))
    );
    let second = response(json!({"tools": [definition("b", "b")]}));
    let did = acme
        .admin("POST", "/v1/tools/mail/import", second)
        .await
        .expect(200);
    assert_eq!(
        (&did["added"], &did["complete"], &did["missing"]),
        (&json!(["b"]), &json!(true), &json!(["a"]))
    );
    let tool = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    assert_eq!(
        tool["actions"].as_array().unwrap().len(),
        2,
        "what is missing stays"
    );
}

#[tokio::test]
async fn a_bad_list_is_refused_with_what_is_wrong() {
    let acme = Acme::open().await;
    let rpc_error = json!({"jsonrpc": "2.0", "id": 1, "error": {"code": -32_601, "message": "no"}});
    let many: Vec<_> = (0..257).map(|n| definition(&format!("a{n}"), "")).collect();
    for (body, part) in [
        (json!({}), "send what `tools/list` answers"),
        (rpc_error, "send what `tools/list` answers"),
        (json!({"tools": "all"}), "`/tools`"),
        (json!({"tools": [{"name": "a"}]}), "`inputSchema`"),
        (json!({"tools": [{"inputSchema": {}}]}), "`name`"),
        (
            json!({"tools": [{"name": "a\n", "inputSchema": {}}]}),
            "`/tools/0/name`",
        ),
        (
            json!({"tools": [definition("a", "1"), definition("a", "2")]}),
            "`a` stands in the list already",
        ),
        (json!({"tools": many}), "at most 256 actions"),
    ] {
        let detail = acme
            .admin("POST", "/v1/tools/mail/import", body)
            .await
            .problem(400, "invalid_field");
        assert!(detail.contains(part), "{detail}");
    }
    let twice = r#"{"tools":[],"tools":[]}"#;
    let call = acme.call("POST", "/v1/tools/mail/import", &acme.tenant.admin);
    call.body(twice).send().await.problem(400, "malformed_json");
    let odd = json!({"tools": [{"name": "a", "inputSchema": {"type": "strnig"}}]});
    acme.admin("POST", "/v1/tools/mail/import", odd)
        .await
        .problem(422, "policy_invalid");
    acme.admin("POST", "/v1/tools/a%2Fb/import", json!({"tools": []}))
        .await
        .problem(400, "invalid_parameter");
    acme.admin("POST", "/v1/tools/ghost/actions/a/accept", Value::Null)
        .await
        .problem(404, "not_found");
    acme.assert_silent().await;
    acme.put_mail().await;
    acme.admin("POST", "/v1/tools/mail/actions/ghost/accept", Value::Null)
        .await
        .problem(404, "not_found");
}

#[tokio::test]
async fn a_long_description_is_cut_and_a_change_of_it_is_held() {
    let acme = Acme::open().await;
    let import = |description: &str| {
        let list = json!({"tools": [definition("send", description)]});
        acme.admin("POST", "/v1/tools/mail/import", list)
    };
    import("sends").await.expect(201);
    let held = import(&"\u{e9}".repeat(50_000)).await.expect(200);
    assert_eq!(held["held"], json!(["send"]));
    let tool = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    let kept = tool["actions"][0]["held"]["action"]["description"]
        .as_str()
        .unwrap();
    assert!(
        kept.ends_with("\u{e9} [cut: the description has 100000 bytes]"),
        "{kept}"
    );
    assert!((16_000..=16 << 10).contains(&kept.len()));
    // What is cut off counts for the digest.
    import(&"\u{e9}".repeat(50_000)).await.expect(200);
    acme.admin("POST", "/v1/tools/mail/actions/send/accept", Value::Null)
        .await
        .expect(200);
    let other = import(&"\u{e9}".repeat(50_001)).await.expect(200);
    assert_eq!(other["held"], json!(["send"]));
}

#[tokio::test]
async fn imports_do_not_add_up_to_a_tool_without_a_bound() {
    let acme = Acme::open().await;
    let import = |page: usize| {
        let schema = json!({"title": "x".repeat(60_000)});
        let definition = |n: usize| json!({"name": format!("a{page}-{n}"), "inputSchema": schema});
        let tools: Vec<_> = (0..4).map(definition).collect();
        acme.admin(
            "POST",
            "/v1/tools/mail/import",
            json!({"tools": tools, "nextCursor": "more"}),
        )
    };
    import(0).await.expect(201);
    for page in 1..17 {
        import(page).await.expect(200);
    }
    let detail = import(17).await.problem(400, "invalid_field");
    assert!(
        detail.starts_with("the definitions of a tool have at most 4194304 bytes"),
        "{detail}"
    );
    let tool = acme.admin("GET", "/v1/tools/mail", Value::Null).await.expect(200);
    assert_eq!(tool["actions"].as_array().unwrap().len(), 4 * 17);

    let again = import(0).await.expect(200);
    assert_eq!(again["unchanged"].as_array().unwrap().len(), 4);
    acme.admin("PUT", "/v1/tools/mail", json!({"actions": []}))
        .await
        .expect(200);
    import(17).await.expect(200);
}

/// Every published example of a list, and the tools of a public benchmark.
#[tokio::test]
async fn published_lists_are_imported_and_are_unchanged_when_they_come_again() {
    let shared = concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared");
    let vectors = format!("{shared}/vectors/mcp/mcp-2026-07-28/examples");
    let lists = [
        format!("{vectors}/ListToolsResult/tools-list-with-cursor-and-ttl.json"),
        format!("{vectors}/ListToolsResultResponse/list-tools-result-response.json"),
        format!("{shared}/data/agentdojo/tools/banking.json"),
        format!("{shared}/data/agentdojo/tools/workspace.json"),
    ];
    if !std::path::Path::new(&vectors).exists() {
        let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
        assert!(!is_ci, "the vectors are not at {vectors}");
        println!("skipped: the vectors are not at {vectors}");
        return;
    }
    let acme = Acme::open().await;
    for (number, list) in lists.iter().enumerate() {
        let list: Value = serde_json::from_slice(&std::fs::read(list).unwrap()).unwrap();
        let path = format!("/v1/tools/t{number}/import");
        let first = acme.admin("POST", &path, list.clone()).await.expect(201);
        let count = first["added"].as_array().unwrap().len();
        assert!(count > 0, "{}", text(&first["tool"]));
        let again = acme.admin("POST", &path, list).await.expect(200);
        assert_eq!(again["unchanged"], first["added"]);
    }
    assert_eq!(acme.kinds().await, ["tool_imported"; 4]);
}
