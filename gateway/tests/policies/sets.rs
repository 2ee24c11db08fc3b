//! A whole set in place of another: all of it or nothing, in one entry.

use crate::support::Reply;
use crate::{Desk, NO_ISSUES, NO_SECRETS, diagnostics, text};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use gateway::changes::Order;
use serde_json::{Value, json};
use std::collections::BTreeSet;

const NO_MERGES: &str =
    r#"@id("none") forbid (principal, action == Action::"github/merge_pull_request", resource);"#;

fn set(policies: &[(&str, &str)]) -> Value {
    let policies = policies
        .iter()
        .map(|(name, cedar)| json!({"name": name, "cedar": cedar}));
    json!({"policies": policies.collect::<Vec<_>>()})
}

#[tokio::test]
async fn a_set_is_replaced_in_one_entry_and_one_revision() {
    let desk = Desk::open().await;
    desk.put("gone", NO_ISSUES).await.expect(201);
    desk.put("kept", NO_MERGES).await.expect(201);
    desk.put("changed", NO_SECRETS).await.expect(201);
    let before = desk.answer().await;
    let head = desk.head().await;
    let body = set(&[("changed", NO_MERGES), ("kept", NO_MERGES), ("new", NO_SECRETS)]);
    let replaced = desk.edit("PUT", "", &body).await.expect(200);
    assert_eq!(desk.head().await.seq, head.seq + 1);
    let versions: Vec<_> = replaced["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|policy| {
            (
                policy["name"].as_str().unwrap(),
                policy["version"].as_u64().unwrap(),
            )
        })
        .collect();
    assert_eq!(versions, [("changed", 2), ("kept", 1), ("new", 1)]);
    assert_eq!(desk.edit("GET", "", &Value::Null).await.expect(200), replaced);

    let after = desk.answer().await;
    assert_eq!(after["decision"], "allow", "what forbade it is gone");
    let revision = |answer: &Value| answer["policy"]["revision"].as_u64().unwrap();
    assert_eq!(revision(&after), revision(&before) + 1);
    let told = desk.told("policies_replaced").await;
    assert_eq!(told.len(), 1);
    assert_eq!(told[0]["policies"], replaced["items"]);
    assert_eq!(told[0]["policy_digests"]["before"], before["policy"]["digest"]);
    assert_eq!(told[0]["policy_digests"]["after"], after["policy"]["digest"]);
    assert_eq!(desk.count("policy_deleted").await, 0);
}

#[tokio::test]
async fn the_same_set_again_is_not_an_event() {
    let desk = Desk::open().await;
    let body = set(&[("issues", NO_ISSUES), ("merges", NO_MERGES)]);
    desk.edit("PUT", "", &body).await.expect(200);
    let head = desk.head().await;
    let again = desk.edit("PUT", "", &body).await.expect(200);
    assert_eq!(again["items"][0]["version"], 1);
    assert_eq!(desk.head().await, head);
}

/// The entity tag of an answer.
fn tag(reply: &Reply) -> String {
    let tag = reply.headers.get("etag").expect("the answer has an entity tag");
    tag.to_str().unwrap().to_owned()
}

/// The entity tag of the whole set.
async fn tag_of_all(desk: &Desk) -> String {
    tag(&desk.edit("GET", "", &Value::Null).await)
}

#[tokio::test]
async fn a_set_has_another_tag_after_each_change_of_it_and_after_no_other() {
    let desk = Desk::open().await;
    let shadow = |cedar: &str| json!({"cedar": cedar, "mode": "shadow"});
    let canary = json!({"cedar": NO_SECRETS, "mode": "canary", "agents": [desk.agent.id]});
    let mut seen = BTreeSet::from([tag_of_all(&desk).await]);
    for (method, path, body) in [
        ("PUT", "/issues", json!({"cedar": NO_ISSUES})),
        ("PUT", "/merges", json!({"cedar": NO_MERGES})),
        ("PUT", "/issues", shadow(NO_SECRETS)),
        ("PUT", "/issues", canary),
        ("POST", "/issues/promote", json!({})),
        ("PUT", "/issues", shadow(NO_ISSUES)),
        ("POST", "/issues/revert", json!({})),
        ("POST", "/issues/rollback", json!({"version": 1})),
        ("DELETE", "/merges", json!({})),
    ] {
        let reply = desk.edit(method, path, &body).await;
        assert!(reply.status.is_success(), "{method} {path}: {}", reply.text());
        assert!(seen.insert(tag_of_all(&desk).await), "{method} {path}");
    }
    let replaced = set(&[("merges", NO_MERGES), ("issues", NO_ISSUES)]);
    let replaced = desk.edit("PUT", "", &replaced).await;
    replaced.expect(200);
    let now = tag(&replaced);
    assert!(seen.insert(now.clone()));

    desk.put("issues", NO_ISSUES).await.expect(200);
    desk.set_standing(&desk.agent, "freeze").await.expect(200);
    assert_eq!(tag_of_all(&desk).await, now);
    let page = desk.edit("GET", "?limit=1", &Value::Null).await;
    assert!(page.expect(200)["next_cursor"].is_string());
    assert_eq!(tag(&page), now, "it names the set, and not the page");
    assert_eq!(tag_of_all(&desk.restart().await).await, now);
}

#[tokio::test]
async fn what_somebody_else_has_added_is_not_deleted_by_a_set_that_was_made_before() {
    let desk = Desk::open().await;
    let body = set(&[("issues", NO_ISSUES)]);
    let put = async |seen: &str, body: &Value| desk.edit_at(seen, "PUT", "", body).await;
    put("*", &body).await.problem(412, "precondition_failed");
    let nothing = tag_of_all(&desk).await;
    let first = put(&nothing, &body).await;
    first.expect(200);
    let seen = tag(&first);
    assert_eq!(seen, tag_of_all(&desk).await);
    desk.put("merges", NO_MERGES).await.expect(201);

    let head = desk.head().await;
    for stale in [nothing.as_str(), seen.as_str(), "\"77\""] {
        put(stale, &body).await.problem(412, "precondition_failed");
    }
    let made = desk
        .call("PUT", "/v1/policies", &desk.editor)
        .header("if-none-match", "*");
    let made = made.json(&body).send().await;
    made.problem(412, "precondition_failed");
    assert_eq!(desk.head().await, head, "nothing was recorded");

    let seen = tag_of_all(&desk).await;
    let (one, other) = (set(&[("one", NO_ISSUES)]), set(&[("other", NO_ISSUES)]));
    let (one, other) = tokio::join!(put(&seen, &one), put(&seen, &other));
    let mut statuses = [one.status.as_u16(), other.status.as_u16()];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 412]);
    put("*", &set(&[])).await.expect(200);
}

#[tokio::test]
async fn a_set_with_one_invalid_policy_changes_nothing() {
    let desk = Desk::open().await;
    desk.put("issues", NO_ISSUES).await.expect(201);
    let head = desk.head().await;
    let misspelt = NO_MERGES.replace("merge_pull", "merge_pul");
    let body = set(&[("fine", NO_SECRETS), ("broken", &misspelt)]);
    let found = diagnostics(&desk.edit("PUT", "", &body).await);
    assert_eq!(found[0]["policy"], "broken/none");
    let twice = set(&[("fine", NO_SECRETS), ("fine", NO_MERGES)]);
    let reply = desk.edit("PUT", "", &twice).await;
    reply.problem(400, "invalid_field");
    assert_eq!(desk.head().await, head);
    assert_eq!(desk.decision().await, "deny");
}

/// As many as an entry can name.
#[tokio::test]
async fn a_set_of_more_policies_than_a_tenant_may_have_is_refused() {
    let desk = Desk::open().await;
    let head = desk.head().await;
    let names: Vec<_> = (0..20_001).map(|number| format!("p{number}")).collect();
    let policies: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let found = diagnostics(&desk.edit("PUT", "", &set(&policies)).await);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0]["message"],
        "the set has 20001 named policies, and may have 20000"
    );
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

/// What is read takes many times its length in memory, for each that waits for its turn.
#[tokio::test]
async fn a_body_with_very_many_policies_or_links_is_read_no_further_than_some() {
    let desk = Desk::open().await;
    let head = desk.head().await;
    let names: Vec<_> = (0..40_001).map(|number| format!("p{number}")).collect();
    let policies: Vec<_> = names.iter().map(|name| (name.as_str(), "")).collect();
    let policies = set(&policies);
    let linked = |name: &str, count: usize| {
        let link = |number| json!({"template": "t", "id": format!("l{number}"), "values": {}});
        let links: Vec<_> = (0..count).map(link).collect();
        json!({"name": name, "cedar": "", "links": links})
    };
    let linked_twice = json!({"policies": [linked("a", 20_000), linked("b", 20_001)]});
    let linked = linked("a", 40_001);
    for (method, path, body, said) in [
        ("PUT", "", &policies, "`/policies`: no more than 40000 policies"),
        (
            "POST",
            "/validate",
            &policies,
            "`/policies`: no more than 40000 policies",
        ),
        ("PUT", "", &linked_twice, "`/policies`: no more than 40000 links"),
        ("PUT", "/a", &linked, "`/links`: no more than 40000 links"),
        ("POST", "", &linked, "`/links`: no more than 40000 links"),
    ] {
        let refused = desk.edit(method, path, body).await;
        let detail = refused.problem(400, "invalid_field");
        assert!(detail.starts_with(said), "{method} {path}: {detail}");
    }
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

/// All agents stand with each policy in what the digest of a set is of.
#[tokio::test]
async fn a_canary_of_too_many_agents_for_so_many_policies_is_refused() {
    let desk = Desk::open().await;
    let mut agents = vec![desk.agent.id.clone()];
    for number in 0..50 {
        let body = json!({"name": format!("agent-{number}"), "tools": "all"});
        agents.push(desk.hire(body).await.id);
    }
    let one = |number: usize| format!("@id(\"{number}\")forbid(principal,action,resource);");
    let cedar: String = (0..4_950).map(one).collect();
    let enforced = set(&[("many", cedar.as_str())]);
    desk.edit("PUT", "", &enforced).await.expect(200);
    let head = desk.head().await;
    let policy = json!({"name": "many", "cedar": cedar, "mode": "canary", "agents": agents});
    let body = json!({"policies": [policy]});
    let found = diagnostics(&desk.edit("PUT", "", &body).await);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(
        found[0]["message"],
        "the set has 504900 agents of canaries, counted with each policy of theirs and each whose place that takes, and may have 500000"
    );
    let validated = desk.edit("POST", "/validate", &body).await.expect(200);
    assert_eq!(validated["diagnostics"], json!(found));
    assert_eq!(desk.head().await, head, "nothing was recorded");
}

/// All of it is written with the first decision after any change, in a commit that all tenants share.
#[tokio::test]
async fn a_set_with_too_long_a_text_can_be_tried_and_is_not_put_in_force() {
    let desk = Desk::open().await;
    let head = desk.head().await;
    // In JSON such a character takes six bytes.
    let comment = "\u{1}".repeat(30_000);
    let cedar = format!("@id(\"t\") forbid (principal == ?principal, action, resource) // {comment}\n;");
    let link = |number: usize| {
        let values = json!({"?principal": format!("Agent::\"{number}\"")});
        json!({"template": "t", "id": format!("l{number}"), "values": values})
    };
    let links: Vec<_> = (0..100).map(link).collect();
    let mut policy = json!({"name": "long", "cedar": cedar, "links": links});
    let refused = |reply: &Reply| {
        let found = diagnostics(reply);
        assert_eq!(found.len(), 1, "{found:?}");
        let said = text(&found[0]["message"]);
        assert!(
            said.ends_with(" bytes of text in force, and may have 16777216"),
            "{said}"
        );
    };
    refused(&desk.edit("PUT", "", &json!({"policies": [policy]})).await);
    assert_eq!(desk.head().await, head, "nothing was recorded");

    policy["mode"] = json!("shadow");
    let tried = desk.edit("PUT", "", &json!({"policies": [policy]})).await;
    tried.expect(200);
    refused(&desk.edit("POST", "/long/promote", &json!({})).await);
}

/// Each has its body in memory until it is its turn.
#[tokio::test]
async fn some_long_sets_wait_for_their_turn_and_a_freeze_waits_for_none_of_them() {
    let desk = Desk::open().await;
    let turn = desk
        .gateway
        .change_locks
        .lock(desk.tenant, Order::InTurn)
        .await
        .unwrap();
    let long = "x".repeat((4 << 20) - 100);
    let body = serde_json::to_vec(&set(&[("long", &long)])).unwrap();
    // By the router, whatever the door: all of a body is there at once.
    let put = || async {
        let call = desk.call("PUT", "/v1/policies", &desk.editor).body(body.clone());
        Reply::of(call.respond().await).await
    };
    let code = |reply: &Reply| text(&reply.json()["code"]);
    let mut sets: FuturesUnordered<_> = (0..16).map(|_| put()).collect();
    for _ in 0..8 {
        let refused = sets.next().await.unwrap();
        assert_eq!(
            (refused.status.as_u16(), code(&refused)),
            (503, "overloaded".to_owned())
        );
    }
    let freeze = format!("/v1/agents/{}/freeze", desk.agent.id);
    let odd = json!({"reason": "odd"});
    desk.admin("POST", &freeze, &odd).await.expect(200);
    drop(turn);
    let mut waited = 0;
    while let Some(reply) = sets.next().await {
        assert_eq!(
            (reply.status.as_u16(), code(&reply)),
            (422, "policy_invalid".to_owned())
        );
        waited += 1;
    }
    assert_eq!(waited, 8);
    let issues = set(&[("issues", NO_ISSUES)]);
    desk.edit("PUT", "", &issues).await.expect(200);
}

/// All of it is written at once, so of many policies with long histories less is kept than of each alone.
#[tokio::test]
async fn of_a_set_with_a_long_history_that_is_deleted_the_newest_versions_are_kept() {
    let desk = Desk::open().await;
    let long = "x".repeat(180 << 10);
    let names = ["a", "b", "c", "d", "e"];
    for version in 1..=6 {
        for name in names {
            let cedar = format!("// {version} {long}\n{NO_SECRETS}");
            let put = desk.put(name, &cedar).await;
            assert!(put.status.is_success(), "{}", put.text());
        }
    }
    let versions = async |name: &str| {
        let path = format!("/{name}/versions");
        let kept = desk.edit("GET", &path, &Value::Null).await.expect(200);
        let kept = kept["items"].as_array().unwrap().iter();
        kept.map(|version| version["version"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(versions("a").await, [6, 5, 4, 3, 2, 1]);
    desk.edit("PUT", "", &set(&[])).await.expect(200);
    for name in names {
        assert_eq!(versions(name).await, [6, 5, 4, 3, 2]);
    }
    let back = desk.edit("POST", "/a/rollback", &json!({"version": 6})).await;
    assert_eq!(back.expect(200)["version"], 7);
    desk.assert_sound().await;
}

#[tokio::test]
async fn an_empty_set_leaves_the_base_policies() {
    let desk = Desk::open().await;
    let untouched = desk.answer().await["policy"]["digest"].clone();
    desk.put("issues", NO_ISSUES).await.expect(201);
    desk.edit("PUT", "", &set(&[])).await.expect(200);
    let answer = desk.answer().await;
    assert_eq!(answer["decision"], "allow");
    assert_eq!(answer["policy"]["digest"], untouched);
}
