//! What is refused when it is written: with its place, and with everything left as it was.

use crate::{Desk, NO_ISSUES, diagnostics};
use serde_json::{Value, json};

/// What is wrong, the text, a word of the message, and the line that is named.
type Broken = (&'static str, String, &'static str, Option<u64>);

fn when(condition: &str) -> String {
    format!(
        "@id(\"a\")\nforbid (principal, action == Action::\"github/merge_pull_request\", resource)\nwhen {{ {condition} }};"
    )
}

fn broken() -> Vec<Broken> {
    vec![
        (
            "no Cedar",
            "permit (principal,\n action resource);".into(),
            "unexpected",
            Some(2),
        ),
        (
            "an unknown tool",
            NO_ISSUES.replace("github/", "gihub/"),
            "gihub",
            Some(3),
        ),
        (
            "an unknown action",
            NO_ISSUES.replace("issue", "isue"),
            "create_isue",
            Some(3),
        ),
        (
            "a misspelt parameter",
            when("context.input.numbr == 1"),
            "numbr",
            Some(3),
        ),
        (
            "a misspelt parameter that is tested for",
            when("context.input has base_brnch && context.input.base_brnch == \"x\" || context.sensitive"),
            "base_brnch",
            Some(3),
        ),
        (
            "an unknown attribute",
            when("principal.nickname == \"x\""),
            "nickname",
            Some(3),
        ),
        (
            "a slip of types",
            when("context.input.number == \"1\""),
            "types",
            Some(3),
        ),
        (
            "an optional parameter, not tested for",
            when("context.input.base_branch == \"x\""),
            "base_branch",
            Some(3),
        ),
        (
            "no id",
            "\nforbid (principal, action, resource);".into(),
            "@id",
            Some(2),
        ),
        (
            "an unknown decision",
            "@id(\"a\") @decision(\"maybe\")\npermit (principal, action, resource);".into(),
            "maybe",
            Some(1),
        ),
        (
            "an unknown annotation",
            "@id(\"a\") @decison(\"advise\")\npermit (principal, action, resource);".into(),
            "decison",
            Some(1),
        ),
        (
            "a template without a link",
            "@id(\"a\")\npermit (principal == ?principal, action, resource);".into(),
            "template",
            Some(1),
        ),
        (
            "an id that is used twice",
            format!("{NO_ISSUES}\n{NO_ISSUES}"),
            "more than once",
            Some(4),
        ),
        (
            "no actions",
            "@id(\"a\")\nforbid (principal, action in [], resource);".into(),
            "empty set",
            Some(1),
        ),
        (
            "what can never match",
            "@id(\"a\") forbid (principal, action == Action::\"read\", resource);".into(),
            "never",
            Some(1),
        ),
        (
            "a megabyte",
            format!("{NO_ISSUES}\n// {}", "x".repeat(1 << 20)),
            "bytes",
            None,
        ),
    ]
}

/// What would overflow the stack of a parser that reads it.
fn too_deep() -> Vec<Broken> {
    vec![
        (
            "nesting",
            when(&format!("{}true{}", "(".repeat(10_000), ")".repeat(10_000))),
            "nested",
            Some(3),
        ),
        (
            "nesting behind a comment that a carriage return ends",
            format!(
                "//\r{}",
                when(&format!("{}true{}", "(".repeat(10_000), ")".repeat(10_000)))
            ),
            "nested",
            Some(3),
        ),
        (
            "nesting behind brackets that do not fit",
            when(&format!("{}true{}", "[),".repeat(10_000), "]".repeat(10_000))),
            "brackets",
            Some(3),
        ),
    ]
}

#[tokio::test]
async fn an_invalid_policy_is_refused_with_its_place_and_the_set_stays_in_force() {
    let desk = Desk::open().await;
    desk.put("mine", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    for (what, cedar, word, line) in broken().into_iter().chain(too_deep()) {
        let found = diagnostics(&desk.put("mine", &cedar).await);
        let about = |one: &&Value| one["message"].as_str().unwrap().contains(word);
        let one = found.iter().find(about);
        let one = one.unwrap_or_else(|| panic!("{what}: {found:?}"));
        let policy = one["policy"].as_str().unwrap();
        assert!(policy == "mine" || policy.starts_with("mine/"), "{what}: {one}");
        if let Some(line) = line {
            assert_eq!(one["line"], line, "{what}: {one}");
            assert!(one["column"].is_u64() && one["length"].is_u64(), "{what}: {one}");
            let offset = usize::try_from(one["offset"].as_u64().unwrap()).unwrap();
            let lines_before = cedar[..offset].matches('\n').count() as u64;
            assert_eq!(lines_before + 1, line, "{what}: {one}");
        }
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
    assert_eq!(desk.decision().await, "deny");
    let shown = desk.edit("GET", "/mine", &Value::Null).await.expect(200);
    assert_eq!(shown["version"], 1);
}

#[tokio::test]
async fn what_is_on_trial_is_held_to_the_same() {
    let desk = Desk::open().await;
    for mode in [
        json!({"mode": "shadow"}),
        json!({"mode": "canary", "agents": [desk.agent.id]}),
    ] {
        let mut body = mode.clone();
        body["cedar"] = json!(NO_ISSUES.replace("github/", "gihub/"));
        diagnostics(&desk.edit("PUT", "/mine", &body).await);
    }
    assert_eq!(desk.count("policy_put").await, 0);
}

#[tokio::test]
async fn the_operators_name_is_no_tenants() {
    let desk = Desk::open().await;
    let found = diagnostics(&desk.put("base", NO_ISSUES).await);
    assert_eq!(found[0]["policy"], "base", "{found:?}");
    assert_eq!(desk.decision().await, "allow");
}

#[tokio::test]
async fn a_draft_that_contradicts_itself_is_refused() {
    let desk = Desk::open().await;
    let agent = &desk.agent.id;
    let nobody = "agt_00000000000000000000000000";
    for (what, extra) in [
        ("a canary for nobody", json!({"mode": "canary"})),
        ("a canary for none", json!({"mode": "canary", "agents": []})),
        (
            "a canary for somebody who is not there",
            json!({"mode": "canary", "agents": [nobody]}),
        ),
        ("agents of a shadow", json!({"mode": "shadow", "agents": [agent]})),
        ("agents of all", json!({"agents": [agent]})),
        (
            "a slot that there is not",
            json!({"links": [{"template": "a", "id": "b", "values": {"?team": "Team::\"a\""}}]}),
        ),
    ] {
        let mut body = extra.clone();
        body["cedar"] = json!(NO_ISSUES);
        let reply = desk.edit("PUT", "/mine", &body).await;
        assert_eq!(reply.json()["code"], "invalid_field", "{what}: {}", reply.text());
    }
    let misspelt = json!({"cedar": NO_ISSUES, "mod": "shadow"});
    let reply = desk.edit("PUT", "/mine", &misspelt).await;
    reply.problem(400, "unknown_field");
    assert_eq!(desk.count("policy_put").await, 0);
}

#[tokio::test]
async fn a_link_makes_a_policy_of_a_template() {
    let desk = Desk::open().await;
    let template = r#"@id("not-these") forbid (principal == ?principal, action, resource);"#;
    let link = |values: Value| {
        let links = [json!({"template": "not-these", "id": "builder", "values": values})];
        json!({"cedar": template, "links": links})
    };
    let reply = desk
        .edit("PUT", "/agents", &link(json!({"?principal": "nonsense"})))
        .await;
    assert_eq!(diagnostics(&reply)[0]["policy"], "agents/builder");
    let agent = format!("Agent::\"{}\"", desk.agent.id);
    let put = desk
        .edit("PUT", "/agents", &link(json!({"?principal": agent})))
        .await;
    assert_eq!(put.expect(201)["links"][0]["values"]["?principal"], json!(agent));
    let answer = desk.answer().await;
    assert_eq!(answer["matched_policies"], json!(["agents/builder"]));
    let other = desk.hire(json!({"name": "other", "tools": "all"})).await;
    assert_eq!(desk.decision_for(&other).await, "allow");
}

#[tokio::test]
async fn a_policy_that_no_path_names_has_a_name() {
    let desk = Desk::open().await;
    let head = desk.head().await;
    let named = json!({"name": "mine", "cedar": NO_ISSUES});
    let nameless = json!({"cedar": NO_ISSUES});
    let null = json!({"name": null, "cedar": NO_ISSUES});
    let set = json!({"policies": [named, nameless]});
    for (method, path, body, place) in [
        ("POST", "", &nameless, "the body"),
        ("POST", "", &null, "the body"),
        ("PUT", "", &set, "`/policies/1`"),
        ("POST", "/validate", &set, "`/policies/1`"),
    ] {
        let detail = desk.edit(method, path, body).await.problem(400, "invalid_field");
        assert_eq!(
            detail,
            format!("{place}: missing field `name`"),
            "{method} {path}"
        );
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

#[tokio::test]
async fn a_description_has_a_bound() {
    let desk = Desk::open().await;
    let longest = "x".repeat(4_096);
    let body = json!({"name": "mine", "cedar": NO_ISSUES, "description": longest});
    let made = desk.edit("POST", "", &body).await.expect(201);
    assert_eq!(made["description"], longest);
    let head = desk.head().await;
    let longer = format!("{longest}x");
    let version = json!({"cedar": NO_ISSUES, "description": longer});
    let named = json!({"name": "other", "cedar": NO_ISSUES, "description": longer});
    let set = json!({"policies": [named]});
    for (method, path, body) in [
        ("POST", "", &named),
        ("PUT", "/mine", &version),
        ("PUT", "", &set),
        ("POST", "/validate", &set),
    ] {
        let detail = desk.edit(method, path, body).await.problem(400, "invalid_field");
        assert_eq!(
            detail, "`description` has at most 4096 bytes, this one has 4097",
            "{method} {path}"
        );
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

#[tokio::test]
async fn a_body_that_is_too_large_even_for_policies_is_refused() {
    let desk = Desk::open().await;
    let reply = desk.put("mine", &"x".repeat(5 << 20)).await;
    reply.problem(413, "body_too_large");
}
