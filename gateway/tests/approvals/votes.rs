//! Who may vote, what counts, and what is recorded of it.

use crate::{Scene, key, merging, with};
use engine::EntryKind;
use gateway::changes::{By, Force, Order, Plan};
use model::{AgentId, Attributes, Directory, Name, Noun, Team, Timestamp, User, Write};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

#[tokio::test]
async fn a_vote_is_an_entry_that_says_whose_it_is() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let shown = scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert_eq!(shown["status"], "approved");
    assert_eq!(
        shown["votes"],
        json!([{"user": "ann", "teams": ["leads"], "approves": true, "reason": "a test",
                "at": "2026-01-31T09:30:00.000Z"}])
    );
    scene.vote(&scene.bob, &id, "reject").await.expect(200);
    let approved = scene.entries("approval_approved").await.remove(0);
    assert_eq!(
        (
            &approved["approval"],
            &approved["by"]["user"],
            &approved["status"],
            &approved["reason"]
        ),
        (&json!(id), &json!("ann"), &json!("approved"), &json!("a test"))
    );
    assert_eq!(approved["decision_id"], shown["decision_id"]);
    assert_eq!(approved.get("action_hash"), None, "the decision has it");
    assert_eq!(scene.entries("approval_rejected").await[0]["by"]["user"], "bob");
}

#[tokio::test]
async fn only_people_in_the_group_vote() {
    let scene = Scene::with_terms("@approvers(\"leads\")").await;
    let id = scene.asked().await;
    assert_eq!(scene.shown(&id).await["group"], "leads");
    for verb in ["approve", "reject"] {
        let reply = scene.vote(&scene.carl, &id, verb).await;
        assert!(
            reply
                .problem(403, "not_an_approver")
                .contains("not in the team `leads`")
        );
    }
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
}

/// Has the team `support` approve changes for customers, in a policy that comes before all others.
async fn ask_support_for_customers(scene: &Scene) -> String {
    let team = scene.stage.admin("PUT", "/v1/teams/support", &json!({})).await;
    team.expect(201);
    let sue = json!({"teams": ["support"]});
    scene.stage.admin("PUT", "/v1/users/sue", &sue).await.expect(201);
    let cedar = "@id(\"changes\") @decision(\"require_approval\") @approvers(\"support\")
         permit (principal, action in Action::\"mutate\", resource) when { context.trust.rank == 3 };";
    let body = json!({"name": "customers", "cedar": cedar});
    scene.stage.admin("POST", "/v1/policies", &body).await.expect(201);
    key(&scene.stage, "sue", "approver").await
}

#[tokio::test]
async fn each_group_that_policies_name_has_to_approve() {
    let scene = Scene::with_terms("@approvers(\"leads\")").await;
    let sue = ask_support_for_customers(&scene).await;
    let id = scene.asked().await;
    assert_eq!(scene.shown(&id).await.get("also"), None);
    scene
        .vote(&sue, &id, "approve")
        .await
        .problem(403, "not_an_approver");

    // Whoever calls it less trusted asks support as well, and the leads all the same.
    let mut ask = merging();
    ask["context"]["source_trust"] = json!("semi_trusted_customer");
    let answer = scene.stage.ask(&ask).await.expect(200);
    let id = answer["approval"]["id"].as_str().unwrap().to_owned();
    let support = json!([{"group": "support", "quorum": 1}]);
    let shown = scene.shown(&id).await;
    let entry = scene.entries("decision").await.pop().unwrap();
    for told in [&answer["approval"], &shown, &entry["approval"]] {
        assert_eq!(
            (&told["group"], &told["quorum"], &told["also"]),
            (&json!("leads"), &json!(1), &support)
        );
    }
    let reply = scene.vote(&scene.carl, &id, "approve").await;
    let detail = reply.problem(403, "not_an_approver");
    assert!(
        detail.contains("none of the teams `leads`, `support`"),
        "{detail}"
    );
    let retry = with(ask, &id);
    assert_eq!(
        scene.vote(&sue, &id, "approve").await.expect(200)["status"],
        "pending"
    );
    scene.stage.ask(&retry).await.problem(409, "approval_not_usable");
    assert_eq!(
        scene.vote(&scene.ann, &id, "approve").await.expect(200)["status"],
        "approved"
    );
    let answer = scene.stage.ask(&retry).await.expect(200);
    assert_eq!(answer["reason"], "approved by `sue`, `ann`");
    scene.stage.assert_sound().await;
}

/// Ann is in another team as well, which nobody asks; and an agent could guess what a tool is registered with.
#[tokio::test]
async fn an_agent_is_shown_only_the_asked_teams_of_voters_and_no_digest_of_a_definition() {
    let scene = Scene::with_terms("@approvers(\"leads\")").await;
    let stage = &scene.stage;
    let sue = ask_support_for_customers(&scene).await;
    stage.admin("PUT", "/v1/teams/core", &json!({})).await.expect(201);
    for (user, teams) in [
        ("ann", json!(["core", "leads"])),
        ("sue", json!(["core", "support"])),
    ] {
        let path = format!("/v1/users/{user}");
        let body = json!({ "teams": teams });
        stage.admin("PUT", &path, &body).await.expect(200);
    }
    let mut ask = merging();
    ask["context"]["source_trust"] = json!("semi_trusted_customer");
    let answer = stage.ask(&ask).await.expect(200);
    let id = answer["approval"]["id"].as_str().unwrap();
    for voter in [&sue, &scene.ann] {
        let voted = scene.vote(voter, id, "approve").await.expect(200);
        assert!(voted["definition"].is_string(), "{voted}");
    }
    let teams = |shown: &Value| -> Vec<Value> {
        let votes = shown["votes"].as_array().unwrap().iter();
        votes.map(|vote| vote["teams"].clone()).collect()
    };
    let path = format!("/v1/approvals/{id}");
    for (reader, is_agent) in [
        (&stage.agent.token, true),
        (&scene.ann, false),
        (&scene.auditor, false),
    ] {
        let shown = stage.get(&path, reader).await.expect(200);
        let list = stage.get("/v1/approvals", reader).await.expect(200);
        assert_eq!(list["items"], json!([shown]));
        let expected = if is_agent {
            [json!(["support"]), json!(["leads"])]
        } else {
            [json!(["core", "support"]), json!(["core", "leads"])]
        };
        assert_eq!(teams(&shown), expected, "{shown}");
        assert_eq!(shown.get("definition").is_none(), is_agent, "{shown}");
    }
}

#[tokio::test]
async fn an_agent_is_shown_no_teams_of_voters_where_none_is_asked() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    assert_eq!(scene.shown(&id).await["votes"][0]["teams"], json!(["leads"]));
    let path = format!("/v1/approvals/{id}");
    let own = scene.stage.get(&path, &scene.stage.agent.token).await.expect(200);
    assert_eq!(
        (&own["votes"][0]["user"], &own["votes"][0]["teams"]),
        (&json!("ann"), &json!([]))
    );
}

#[tokio::test]
async fn a_group_that_is_named_by_now_has_not_approved_what_another_one_did() {
    let scene = Scene::with_terms("@approvers(\"leads\")").await;
    let mut ask = merging();
    ask["context"]["source_trust"] = json!("semi_trusted_customer");
    let answer = scene.stage.ask(&ask).await.expect(200);
    let id = answer["approval"]["id"].as_str().unwrap().to_owned();
    let shown = scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert_eq!(shown["status"], "approved");
    ask_support_for_customers(&scene).await;
    let answer = scene.stage.ask(&with(ask, &id)).await.expect(200);
    assert_eq!(answer["decision"], "require_approval");
    assert_eq!(
        answer["approval"]["also"],
        json!([{"group": "support", "quorum": 1}])
    );
    assert_eq!(scene.status(&id).await, "approved");
}

#[tokio::test]
async fn a_quorum_counts_people_and_not_keys() {
    let scene = Scene::with_terms("@quorum(\"2\")").await;
    let id = scene.asked().await;
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    let second_key = key(&scene.stage, "ann", "approver").await;
    let reply = scene.vote(&second_key, &id, "approve").await;
    assert!(reply.problem(409, "conflict").contains("everybody counts once"));
    scene.retry(&id).await.problem(409, "approval_not_usable");
    scene.vote(&scene.bob, &id, "approve").await.expect(200);
    assert_eq!(
        scene.retry(&id).await.expect(200)["reason"],
        "approved by `ann`, `bob`"
    );
}

#[tokio::test]
async fn nobody_votes_on_what_is_done_for_them() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let own = key(&scene.stage, "ursula", "approver").await;
    let reply = scene.vote(&own, &id, "approve").await;
    assert!(
        reply
            .problem(403, "not_an_approver")
            .contains("acts for `ursula`")
    );
}

#[tokio::test]
async fn who_is_called_like_the_agent_that_asks_approves_nothing_of_it() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let agent = scene.stage.agent.id.as_str();
    let itself = format!("/v1/agents/{agent}");
    for name in ["builder", "builder-2"] {
        let patch = json!({ "name": name });
        scene.stage.admin("PATCH", &itself, &patch).await.expect(200);
        for namesake in ["builder", agent] {
            let own = key(&scene.stage, namesake, "approver").await;
            for verb in ["approve", "reject"] {
                let reply = scene.vote(&own, &id, verb).await;
                let detail = reply.problem(403, "not_an_approver");
                assert!(detail.contains("called so itself"), "{detail}");
            }
        }
    }
    // Ann has voted before the agent is called like her.
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    let patch = json!({"name": "ann"});
    scene.stage.admin("PATCH", &itself, &patch).await.expect(200);
    let answer = scene.retry(&id).await.expect(200);
    assert_eq!(answer["decision"], "require_approval", "{answer}");
    let anew = answer["approval"]["id"].as_str().unwrap();
    let reply = scene.vote(&scene.ann, anew, "approve").await;
    reply.problem(403, "not_an_approver");
    scene.vote(&scene.bob, anew, "approve").await.expect(200);
    assert_eq!(scene.retry(anew).await.expect(200)["decision"], "allow");
}

/// As it can be that was named before no agent was named like an id.
#[tokio::test]
async fn who_is_called_like_the_agent_that_asks_approves_nothing_of_it_also_if_that_is_another_one_s_id() {
    let scene = Scene::set().await;
    let stage = &scene.stage;
    let other = stage.hire(json!({"name": "other"})).await;
    let name = Name::new(&other.id).unwrap();
    let own = key(stage, &other.id, "approver").await;
    let before = scene.asked().await;
    scene.vote(&own, &before, "approve").await.expect(200);
    let rename = |directory: &Directory, _: Timestamp| {
        let id: AgentId = stage.agent.id.parse().unwrap();
        let named = directory.agents.get(&id).unwrap().rename(&name);
        Ok(Plan::Change {
            kind: EntryKind::AgentUpdated,
            facts: json!({}),
            writes: vec![Write::Put(Noun::Agent(Arc::new(named)))],
            answer: (),
        })
    };
    let change = stage
        .gateway
        .change_in(Order::InTurn, By::Start, Force::No, stage.tenant, rename);
    change.await.unwrap();
    let answer = scene.retry(&before).await.expect(200);
    assert_eq!(answer["decision"], "require_approval", "{answer}");
    let anew = answer["approval"]["id"].as_str().unwrap();
    let refused = scene.vote(&own, anew, "approve").await.expect(403);
    assert_eq!(refused["code"], "not_an_approver", "{refused}");
    scene.vote(&scene.ann, anew, "approve").await.expect(200);
    assert_eq!(scene.retry(anew).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn a_policy_keeps_the_owner_and_the_team_from_voting() {
    let scene = Scene::with_terms("@exclude_owner").await;
    let path = format!("/v1/agents/{}", scene.stage.agent.id);
    let body = json!({"owner": "carl", "team": "leads"});
    scene.stage.admin("PATCH", &path, &body).await.expect(200);
    let id = scene.asked().await;
    for excluded in [&scene.ann, &scene.carl] {
        let reply = scene.vote(excluded, &id, "approve").await;
        assert!(
            reply
                .problem(403, "not_an_approver")
                .contains("answers for the agent")
        );
    }
    let dora = key(&scene.stage, "dora", "approver").await;
    scene.vote(&dora, &id, "approve").await.expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn who_has_become_the_owner_since_people_were_asked_does_not_count() {
    let scene = Scene::with_terms("@exclude_owner").await;
    let id = scene.asked().await;
    let path = format!("/v1/agents/{}", scene.stage.agent.id);
    let body = json!({"owner": "bob"});
    scene.stage.admin("PATCH", &path, &body).await.expect(200);
    let shown = scene.vote(&scene.bob, &id, "approve").await.expect(200);
    assert_eq!(shown["status"], "approved", "he did not answer for it then");
    let answer = scene.retry(&id).await.expect(200);
    assert_eq!(answer["decision"], "require_approval", "{answer}");
    let reply = scene.vote(&scene.bob, answer["approval"]["id"].as_str().unwrap(), "approve");
    reply.await.problem(403, "not_an_approver");
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn the_reason_names_those_whose_votes_count() {
    let scene = Scene::with_terms("@exclude_owner").await;
    let id = scene.asked().await;
    for voter in [&scene.ann, &scene.bob] {
        scene.vote(voter, &id, "approve").await.expect(200);
    }
    let path = format!("/v1/agents/{}", scene.stage.agent.id);
    let body = json!({"owner": "ann"});
    scene.stage.admin("PATCH", &path, &body).await.expect(200);
    let answer = scene.retry(&id).await.expect(200);
    assert_eq!(
        (&answer["reason_code"], &answer["reason"]),
        (&json!("approval_granted"), &json!("approved by `bob`"))
    );
    assert_eq!(scene.entries("decision").await[1]["reason"], "approved by `bob`");
}

#[tokio::test]
async fn who_has_joined_the_team_since_they_voted_does_not_count() {
    let scene = Scene::with_terms("@exclude_owner").await;
    let team = scene.stage.admin("PUT", "/v1/teams/core", &json!({})).await;
    team.expect(201);
    let path = format!("/v1/agents/{}", scene.stage.agent.id);
    let body = json!({"team": "core"});
    scene.stage.admin("PATCH", &path, &body).await.expect(200);
    let id = scene.asked().await;
    let shown = scene.vote(&scene.bob, &id, "approve").await.expect(200);
    assert_eq!(shown["status"], "approved", "he was not in its team then");
    let bob = json!({"teams": ["leads", "core"]});
    scene.stage.admin("PUT", "/v1/users/bob", &bob).await.expect(200);
    let answer = scene.retry(&id).await.expect(200);
    assert_eq!(answer["decision"], "require_approval", "{answer}");
    let reply = scene.vote(&scene.bob, answer["approval"]["id"].as_str().unwrap(), "approve");
    reply.await.problem(403, "not_an_approver");
    scene.vote(&scene.ann, &id, "approve").await.expect(200);
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
}

#[tokio::test]
async fn only_a_person_with_the_role_votes() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    let path = format!("/v1/approvals/{id}/approve");
    let body = json!({"reason": "a test"});
    scene
        .stage
        .post(&path, &scene.stage.agent.token, &body)
        .await
        .problem(403, "forbidden");
    scene
        .stage
        .post(&path, &scene.auditor, &body)
        .await
        .problem(403, "forbidden");
    scene
        .stage
        .admin("POST", &path, &body)
        .await
        .problem(403, "forbidden");
    let nobody = json!({"name": "robot", "role": "approver"});
    let robot = scene.stage.admin("POST", "/v1/keys", &nobody).await.expect(201);
    let reply = scene
        .stage
        .post(&path, robot["key"].as_str().unwrap(), &body)
        .await;
    assert!(reply.problem(403, "forbidden").contains("who holds it"));
    for reason in ["", &"x".repeat(1_025)] {
        let body = json!({"reason": reason});
        let reply = scene.stage.post(&path, &scene.ann, &body).await;
        reply.problem(400, "invalid_field");
    }
    assert_eq!(scene.status(&id).await, "pending");
}

#[tokio::test]
async fn what_is_over_takes_no_votes() {
    let scene = Scene::set().await;
    let id = scene.approved().await;
    assert_eq!(scene.retry(&id).await.expect(200)["decision"], "allow");
    for verb in ["approve", "reject"] {
        let reply = scene.vote(&scene.bob, &id, verb).await;
        assert!(reply.problem(409, "conflict").contains("spent already"));
    }
}

#[tokio::test]
async fn what_has_expired_takes_no_votes() {
    let scene = Scene::set().await;
    let id = scene.asked().await;
    scene.stage.clock.advance_millis(3_600_000);
    for verb in ["approve", "reject"] {
        scene.vote(&scene.ann, &id, verb).await.problem(409, "conflict");
    }
    assert_eq!(scene.entries("approval_approved").await.len(), 0);
    assert_eq!(
        scene.retry(&id).await.expect(200)["reason_code"],
        "approval_expired"
    );
}

/// Puts people into as many teams as they may be in, with the longest names, and returns a key of each.
async fn crowd(scene: &Scene, count: usize) -> Vec<String> {
    let stage = &scene.stage;
    let teams = (0..256).map(|team| Name::new(&format!("{team:0256}")).unwrap());
    let teams: BTreeSet<_> = teams.collect();
    let people: Vec<_> = (0..count).map(|number| format!("person-{number}")).collect();
    let gather = |_: &Directory, _: Timestamp| {
        let teams_put = teams.iter().map(|name| {
            Noun::Team(Arc::new(Team {
                name: name.clone(),
                attributes: Attributes::default(),
                quotas: Vec::new(),
            }))
        });
        let people_put = people.iter().map(|name| {
            Noun::User(Arc::new(User {
                name: Name::new(name).unwrap(),
                teams: teams.clone(),
                attributes: Attributes::default(),
                roles: BTreeSet::new(),
            }))
        });
        Ok(Plan::Change {
            kind: EntryKind::UserPut,
            facts: json!({}),
            writes: teams_put.chain(people_put).map(Write::Put).collect(),
            answer: (),
        })
    };
    let change = stage
        .gateway
        .change_in(Order::InTurn, By::Start, Force::No, stage.tenant, gather);
    change.await.unwrap();
    let mut keys = Vec::new();
    for person in &people {
        keys.push(key(stage, person, "approver").await);
    }
    keys
}

#[tokio::test]
async fn so_many_votes_that_approve_are_kept_and_a_rejection_all_the_same() {
    let scene = Scene::with_terms("@quorum(\"1000\")").await;
    let id = scene.asked().await;
    let crowd = crowd(&scene, 15).await;
    let (last, others) = crowd.split_last().unwrap();
    for key in others {
        let shown = scene.vote(key, &id, "approve").await.expect(200);
        assert_eq!(shown["status"], "pending");
    }
    let full = scene.vote(last, &id, "approve").await.expect(409);
    assert_eq!(full["code"], "conflict", "{full}");
    let detail = full["detail"].as_str().unwrap();
    assert!(detail.starts_with("no more votes are kept"), "{detail}");
    assert_eq!(scene.entries("approval_approved").await.len(), 14);
    let shown = scene.vote(last, &id, "reject").await.expect(200);
    assert_eq!(shown["status"], "rejected");
    scene.stage.assert_sound().await;
}
