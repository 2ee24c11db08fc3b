//! In whose name an agent asks: whoever is named, by a token or by the ask, has to be allowed it, too.

use crate::hand::Signer;
use crate::stage::{Player, Stage, asking, changing, injected, named, reading};
use crate::support::Reply;
use crate::{ISSUER, NOW, issuer, jwks, token};
use gateway::gateway::Options;
use serde_json::{Value, json};

/// A stage with a second agent, a team of customers with a member, and these policies of the tenant's.
async fn company(cedar: &str) -> (Stage, Player) {
    let stage = Stage::set().await;
    let planner = stage.hire(json!({"name": "planner", "tools": ["github"]})).await;
    for (path, body) in [
        ("/v1/teams/customers", json!({})),
        (
            "/v1/users/eve",
            json!({"teams": ["customers"], "attributes": {"barred": true}}),
        ),
        ("/v1/users/ada", json!({})),
    ] {
        stage.admin("PUT", path, &body).await.expect(201);
    }
    let body = json!({"name": "own", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    (stage, planner)
}

const CUSTOMERS: &str = r#"
@id("customers") @reason("customers look, and touch nothing")
forbid (principal in Team::"customers", action in Action::"mutate", resource);"#;

/// The same ask in the name of others.
fn with(mut ask: Value, members: &Value) -> Value {
    ask.as_object_mut()
        .unwrap()
        .extend(members.as_object().unwrap().clone());
    ask
}

fn for_user(user: &str) -> Value {
    with(changing(), &json!({"user": {"id": user}}))
}

/// A chain of agents, the nearest first.
fn act(names: &[&str]) -> Value {
    let chain = names.iter().rev().fold(Value::Null, |inner, name| {
        if inner.is_null() {
            json!({ "sub": name })
        } else {
            json!({"sub": name, "act": inner})
        }
    });
    json!({ "act": chain })
}

fn said(answer: &Value) -> [&str; 2] {
    ["decision", "reason_code"].map(|member| answer[member].as_str().unwrap())
}

const ALLOWED: [&str; 2] = ["allow", "policy_permits"];

#[tokio::test]
async fn what_the_user_may_not_do_nobody_does_for_the_user() {
    let (stage, _) = company(CUSTOMERS).await;
    let answers = |user: &'static str| {
        let stage = &stage;
        async move { stage.ask(&for_user(user)).await.expect(200) }
    };
    assert_eq!(said(&stage.ask(&changing()).await.expect(200)), ALLOWED);
    assert_eq!(said(&answers("ada").await), ALLOWED);
    assert_eq!(said(&answers("stranger").await), ALLOWED);
    let denied = answers("eve").await;
    assert_eq!(said(&denied), ["deny", "policy_forbids"]);
    assert_eq!(denied["matched_policies"], json!(["own/customers"]));
    assert_eq!(
        denied["reason"],
        "for the user `eve`: customers look, and touch nothing"
    );
    let reads = with(reading(), &json!({"user": {"id": "eve"}}));
    assert_eq!(said(&stage.ask(&reads).await.expect(200)), ALLOWED);
}

#[tokio::test]
async fn an_agent_that_is_quarantined_for_a_user_does_not_keep_the_name() {
    let (stage, _) = company(
        r#"@id("leavers") @reason("nobody acts for customers") @obligation("quarantine:agent")
        forbid (principal in Team::"customers", action, resource);"#,
    )
    .await;
    let denied = stage.ask(&for_user("eve")).await.expect(200);
    assert_eq!(denied["reason"], "for the user `eve`: nobody acts for customers");
    let denied = stage.ask(&for_user("ada")).await.expect(200);
    assert_eq!(
        denied["reason"],
        "the agent is frozen: quarantined: for the user: nobody acts for customers"
    );
    let entries = stage.entries().await;
    let frozen = entries.iter().find(|entry| entry.kind == "agent_frozen").unwrap();
    assert!(!frozen.body.contains("eve"), "{}", frozen.body);
}

#[tokio::test]
async fn naming_somebody_only_takes_away() {
    let (stage, _) = company(
        r#"@id("ada") permit (principal == User::"ada", action, resource);
        @id("untrusted") forbid (principal is Agent, action == Action::"vault/store", resource);"#,
    )
    .await;
    let mut vault = asking("vault", "store", "trusted_internal_unsigned");
    vault["user"] = json!({"id": "ada"});
    let answer = stage.ask(&vault).await.expect(200);
    assert_eq!(
        said(&answer),
        ["deny", "policy_forbids"],
        "what a user may do does not lift what an agent may not"
    );
}

#[tokio::test]
async fn a_user_needs_a_permit_and_an_approval_for_the_user_is_one_for_the_call() {
    let stage = Stage::set_under(policy::BasePolicies::parse("").unwrap(), Options::default()).await;
    let cedar = r#"@id("agents") permit (principal is Agent, action, resource);
        @id("staff") @decision("require_approval") @approvers("leads")
        permit (principal == User::"ada", action in Action::"mutate", resource);"#;
    let body = json!({"name": "own", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    assert_eq!(said(&stage.ask(&changing()).await.expect(200)), ALLOWED);
    let stranger = stage.ask(&for_user("stranger")).await.expect(200);
    assert_eq!(said(&stranger), ["deny", "no_policy_permits"]);
    let ada = stage.ask(&for_user("ada")).await.expect(200);
    assert_eq!(said(&ada), ["require_approval", "policy_requires_approval"]);
    assert_eq!(ada["approval"]["group"], "leads");
    assert_eq!(ada["matched_policies"], json!(["own/staff"]));
}

#[tokio::test]
async fn an_agent_gets_nothing_done_in_the_name_of_one_that_may_not() {
    let (stage, planner) = company(CUSTOMERS).await;
    let itself = format!("/v1/agents/{}", planner.id);
    let ask = with(changing(), &act(&["planner"]));
    let answer = || async { stage.ask(&ask).await.expect(200) };
    assert_eq!(said(&answer().await), ALLOWED);
    let by_id = with(changing(), &act(&["builder", &planner.id, "planner"]));
    assert_eq!(said(&stage.ask(&by_id).await.expect(200)), ALLOWED);

    let patch = json!({"team": "customers"});
    stage.admin("PATCH", &itself, &patch).await.expect(200);
    let denied = answer().await;
    assert_eq!(said(&denied), ["deny", "policy_forbids"]);
    assert_eq!(
        denied["reason"],
        "for the agent `planner`: customers look, and touch nothing"
    );
    let patch = json!({"team": null, "tools": ["vault"]});
    stage.admin("PATCH", &itself, &patch).await.expect(200);
    assert_eq!(said(&answer().await), ["deny", "tool_not_granted"]);
    let patch = json!({"tools": "all", "risk_tier": "high"});
    stage.admin("PATCH", &itself, &patch).await.expect(200);
    assert_eq!(
        said(&answer().await),
        ["require_approval", "policy_requires_approval"]
    );
    let ghost = with(changing(), &act(&["planner", "ghost"]));
    assert_eq!(
        said(&stage.ask(&ghost).await.expect(200)),
        ["deny", "unknown_principal"]
    );
    stage.set_standing(&planner, "freeze").await.expect(200);
    assert_eq!(said(&answer().await), ["deny", "agent_frozen"]);
    stage.set_standing(&planner, "revoke").await.expect(200);
    assert_eq!(said(&answer().await), ["deny", "agent_revoked"]);
    assert_eq!(said(&stage.ask(&changing()).await.expect(200)), ALLOWED);
    stage.assert_sound().await;
}

const PLANNED: &str = r#"
@id("planned") @decision("require_approval") @exclude_owner
permit (principal is Agent, action in Action::"mutate", resource) when { principal.risk_tier == "high" };"#;

/// Makes it an agent of the kind whose changes need approval.
async fn make_risky(stage: &Stage, agent: &Player, members: &Value) {
    let patch = with(json!({"risk_tier": "high"}), members);
    let itself = format!("/v1/agents/{}", agent.id);
    stage.admin("PATCH", &itself, &patch).await.expect(200);
}

/// What comes of it when a person wants to approve.
async fn approve(stage: &Stage, user: &str, asked: &Value) -> Reply {
    let body = json!({"name": user, "role": "approver", "user": user});
    let key = stage.admin("POST", "/v1/keys", &body).await.expect(201);
    let id = asked["approval"]["id"].as_str().unwrap();
    let path = format!("/v1/approvals/{id}/approve");
    let reason = json!({"reason": "a test"});
    stage.post(&path, key["key"].as_str().unwrap(), &reason).await
}

/// The ask again, with the approval.
fn retry(ask: &Value, asked: &Value) -> Value {
    with(ask.clone(), &json!({"approval_id": asked["approval"]["id"]}))
}

#[tokio::test]
async fn a_policy_keeps_from_voting_who_answers_for_one_in_whose_name_it_is_asked() {
    let (stage, planner) = company(PLANNED).await;
    make_risky(&stage, &planner, &json!({"owner": "ada", "team": "customers"})).await;
    let ask = with(changing(), &act(&["planner"]));
    let asked = stage.ask(&ask).await.expect(200);
    assert_eq!(asked["approval"]["exclude_owner"], true);
    for user in ["ada", "eve"] {
        let reply = approve(&stage, user, &asked).await;
        assert!(
            reply
                .problem(403, "not_an_approver")
                .contains("in whose name it asks")
        );
    }
    let shown = approve(&stage, "olga", &asked).await.expect(200);
    assert_eq!(
        shown["delegators"],
        json!([{"id": planner.id, "name": "planner"}])
    );
    let allowed = stage.ask(&retry(&ask, &asked)).await.expect(200);
    assert_eq!(said(&allowed), ["allow", "approval_granted"]);
}

#[tokio::test]
async fn a_vote_does_not_count_in_the_name_of_one_whom_the_voter_answers_for() {
    let (stage, planner) = company(PLANNED).await;
    make_risky(&stage, &planner, &json!({})).await;
    make_risky(&stage, &stage.agent, &json!({})).await;
    let ask = with(changing(), &act(&["planner"]));
    let asked = stage.ask(&ask).await.expect(200);
    approve(&stage, "ada", &asked).await.expect(200);
    let owned = |owner: &str| json!({"owner": owner});
    make_risky(&stage, &planner, &owned("ada")).await;
    asks_people_anew(&stage, &ask, &asked).await;
    make_risky(&stage, &planner, &owned("bob")).await;
    let answer = stage.ask(&retry(&ask, &asked)).await.expect(200);
    assert_eq!(said(&answer), ["allow", "approval_granted"]);
}

/// People would otherwise have approved for one agent what is recorded as done for another.
#[tokio::test]
async fn what_was_approved_in_the_name_of_some_agents_is_done_in_that_of_no_others() {
    let (stage, planner) = company(PLANNED).await;
    let scout = stage.hire(json!({"name": "scout", "tools": ["github"]})).await;
    for agent in [&planner, &scout, &stage.agent] {
        make_risky(&stage, agent, &json!({})).await;
    }
    let chains = [&["planner"][..], &["scout"], &["planner", "scout"]];
    let in_names = chains.map(|names| with(changing(), &act(names)));
    let asks: Vec<_> = std::iter::once(changing()).chain(in_names).collect();
    for (shown, ask) in asks.iter().enumerate() {
        let asked = stage.ask(ask).await.expect(200);
        approve(&stage, "bob", &asked).await.expect(200);
        for other in asks.iter().take(shown).chain(asks.iter().skip(shown + 1)) {
            asks_people_anew(&stage, other, &asked).await;
        }
        let answer = stage.ask(&retry(ask, &asked)).await.expect(200);
        assert_eq!(said(&answer), ["allow", "approval_granted"]);
    }
}

/// Asks with what was approved for another ask, and people are asked again.
async fn asks_people_anew(stage: &Stage, ask: &Value, asked: &Value) {
    let anew = stage.ask(&retry(ask, asked)).await.expect(200);
    assert_eq!(said(&anew), ["require_approval", "policy_requires_approval"]);
    assert_ne!(anew["approval"]["id"], asked["approval"]["id"]);
}

#[tokio::test]
async fn who_is_frozen_gets_no_earlier_allow_through_another_agent() {
    let (stage, planner) = company(CUSTOMERS).await;
    let ask = named(with(changing(), &act(&["planner"])), "call-1");
    let first = stage.ask(&ask).await.expect(200);
    assert_eq!(stage.ask(&ask).await.expect(200), first);
    stage.set_standing(&planner, "freeze").await.expect(200);
    assert_eq!(said(&stage.ask(&ask).await.expect(200)), ["deny", "agent_frozen"]);
}

#[tokio::test]
async fn an_observed_ask_lifts_no_freeze_of_anybody_in_whose_name_it_is() {
    let (stage, planner) = company(CUSTOMERS).await;
    stage.settle(json!({"observe": true})).await;
    let observed = |name| with(with(changing(), &act(&[name])), &json!({"mode": "observe"}));
    let answer = stage.ask(&observed("ghost")).await.expect(200);
    assert_eq!(said(&answer), ["allow", "observed"]);
    assert_eq!(answer["would_have"]["reason_code"], "unknown_principal");
    stage.set_standing(&planner, "freeze").await.expect(200);
    let answer = stage.ask(&observed("planner")).await.expect(200);
    assert_eq!(said(&answer), ["deny", "agent_frozen"]);
}

#[tokio::test]
async fn a_chain_has_an_end() {
    let (stage, _) = company(CUSTOMERS).await;
    let chain = |length| with(changing(), &act(&vec!["planner"; length]));
    assert_eq!(said(&stage.ask(&chain(8)).await.expect(200)), ALLOWED);
    stage.ask(&chain(9)).await.problem(400, "delegation_too_deep");
    stage.ask(&chain(70)).await.problem(400, "malformed_json");
    for (odd, code) in [
        (json!({"act": {"act": {"sub": "planner"}}}), "invalid_field"),
        (json!({"act": "planner"}), "invalid_field"),
        (
            json!({"act": {"sub": "planner", "iss": "https://x.example"}}),
            "unknown_field",
        ),
    ] {
        stage.ask(&with(changing(), &odd)).await.problem(400, code);
    }
    assert_eq!(stage.decisions().await.len(), 1);
}

#[tokio::test]
async fn nobody_gets_yesterdays_allow_in_the_name_of_one_that_has_no_grant_any_more() {
    let (mut stage, planner) = company(CUSTOMERS).await;
    let itself = format!("/v1/agents/{}", planner.id);
    let ask = with(named(changing(), "call-1"), &act(&["planner"]));
    let allow = stage.ask(&ask).await;
    assert_eq!(said(&allow.expect(200)), ALLOWED);
    let other = json!({"tools": ["vault"]});
    stage.admin("PATCH", &itself, &other).await.expect(200);
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        let again = stage.ask(&ask).await.expect(200);
        let told = format!("remembered: {remembered}");
        assert_eq!(said(&again), ["deny", "tool_not_granted"], "{told}");
    }
    let granted = json!({"tools": ["github"]});
    stage.admin("PATCH", &itself, &granted).await.expect(200);
    assert_eq!(stage.ask(&ask).await.bytes, allow.bytes);
}

#[tokio::test]
async fn an_entry_tells_in_whose_name_it_was_and_what_was_looked_at() {
    let (stage, planner) = company(CUSTOMERS).await;
    let ask = with(for_user("eve"), &act(&["planner"]));
    stage.ask(&ask).await.expect(200);
    let recorded = stage.decisions().await.pop().unwrap();
    assert_eq!(recorded["act"], json!(["planner"]));
    assert_eq!(recorded["user"], "eve");
    let delegators = recorded["delegators"].as_array().unwrap();
    assert_eq!(delegators.len(), 1);
    assert_eq!(delegators[0]["id"], json!(planner.id));
    for digest in [&delegators[0]["agent"], &recorded["facts"]["user"]] {
        let digest = digest.as_str().unwrap().parse().unwrap();
        let found = stage.store.contents(stage.tenant, &[digest]).await.unwrap();
        assert_eq!(found.len(), 1, "{digest}");
    }
}

#[tokio::test]
async fn what_is_to_be_redacted_for_one_in_whose_name_it_is_asked_is_so_in_a_denial() {
    let cedar = r#"@id("pin") @decision("advise") @obligation("redact:parameters.pin")
        permit (principal in Team::"customers", action, resource);"#;
    let (stage, planner) = company(cedar).await;
    stage.settle(json!({"parameters": "redacted"})).await;
    let itself = format!("/v1/agents/{}", planner.id);
    let patch = json!({"team": "customers"});
    stage.admin("PATCH", &itself, &patch).await.expect(200);
    let not_granted = asking("vault", "store", "trusted_internal_unsigned");
    for (mut ask, reason) in [(injected(), "policy_forbids"), (not_granted, "tool_not_granted")] {
        ask["tool_call"]["parameters"] = json!({"path": "a/b", "pin": "1234"});
        let answer = stage.ask(&with(ask, &act(&["planner"]))).await.expect(200);
        assert_eq!(said(&answer), ["deny", reason]);
        let entry = stage.decisions().await.pop().unwrap();
        assert_eq!(entry["parameters"], json!({"path": "a/b", "pin": null}));
        assert_eq!(entry["redacted"], json!(["/pin"]));
    }
}

/// A stage on which this key signs agents in, with the second agent and the people.
async fn signing(signer: &Signer) -> (Stage, Player) {
    let (stage, planner) = company(CUSTOMERS).await;
    stage.trust("agents", signer).await;
    (stage, planner)
}

async fn asked(stage: &Stage, token: &str, ask: &Value) -> Reply {
    stage.post("/v1/authorize", token, ask).await
}

#[tokio::test]
async fn a_token_says_in_whose_name_its_bearer_asks() {
    let signer = Signer::ed25519(1);
    let (stage, planner) = signing(&signer).await;
    let delegated = |subject: &str, members: Value| {
        let act = with(json!({"sub": "builder"}), &members);
        token(&signer, &json!({"sub": subject, "act": act}))
    };
    let eve = delegated("eve", json!({}));
    let who = stage.get("/v1/whoami", &eve).await.expect(200);
    let expected = json!({
        "kind": "agent", "tenant": stage.tenant, "agent": stage.agent.id, "name": "builder", "issuer": "agents",
        "user": "eve",
    });
    assert_eq!(who, expected);
    let denied = asked(&stage, &eve, &changing()).await.expect(200);
    assert_eq!(said(&denied), ["deny", "policy_forbids"]);
    assert_eq!(stage.decisions().await.pop().unwrap()["user"], "eve");
    asked(&stage, &eve, &for_user("ada"))
        .await
        .problem(403, "user_mismatch");
    let same = asked(&stage, &eve, &for_user("eve")).await.expect(200);
    assert_eq!(said(&same), ["deny", "policy_forbids"]);
    let ada = delegated("ada", json!({}));
    assert_eq!(said(&asked(&stage, &ada, &changing()).await.expect(200)), ALLOWED);

    let through = delegated("ada", act(&["planner"]));
    let of_an_agent = delegated("planner", json!({}));
    for token in [&through, &of_an_agent] {
        assert_eq!(
            said(&asked(&stage, token, &changing()).await.expect(200)),
            ALLOWED
        );
    }
    stage.set_standing(&planner, "freeze").await.expect(200);
    for token in [&through, &of_an_agent] {
        let denied = asked(&stage, token, &changing()).await.expect(200);
        assert_eq!(said(&denied), ["deny", "agent_frozen"]);
    }
    assert_eq!(said(&asked(&stage, &ada, &changing()).await.expect(200)), ALLOWED);
    stage.assert_sound().await;
}

#[tokio::test]
async fn an_ask_that_says_the_chain_of_its_token_says_nothing_new() {
    let signer = Signer::ed25519(1);
    let (stage, planner) = signing(&signer).await;
    let delegated = |chain: &[&str]| {
        let act = with(json!({"sub": "builder"}), &act(chain));
        token(&signer, &json!({"sub": "ada", "act": act}))
    };
    let one = delegated(&["planner"]);
    let id = planner.id.as_str();
    for (said_by_ask, recorded) in [
        (vec!["planner"], json!(["planner"])),
        (vec!["planner", "builder"], json!(["planner", "builder"])),
        (vec![id], json!(["planner", id])),
        (
            vec!["builder", "planner"],
            json!(["planner", "builder", "planner"]),
        ),
    ] {
        let ask = with(changing(), &act(&said_by_ask));
        let answer = asked(&stage, &one, &ask).await.expect(200);
        assert_eq!(said(&answer), ALLOWED);
        assert_eq!(stage.decisions().await.pop().unwrap()["act"], recorded);
    }
    let eight = delegated(&["planner"; 8]);
    let same = with(changing(), &act(&["planner"; 8]));
    assert_eq!(said(&asked(&stage, &eight, &same).await.expect(200)), ALLOWED);
    let longer = with(changing(), &act(&["planner"; 9]));
    asked(&stage, &eight, &longer)
        .await
        .problem(400, "delegation_too_deep");
    stage.set_standing(&planner, "freeze").await.expect(200);
    let elsewhere = with(changing(), &act(&["builder"]));
    let denied = asked(&stage, &one, &elsewhere).await.expect(200);
    assert_eq!(said(&denied), ["deny", "agent_frozen"]);
}

#[tokio::test]
async fn a_stopped_agent_stays_so_for_tokens_that_tell_of_it_by_the_name_that_it_had() {
    let signer = Signer::ed25519(1);
    let (stage, planner) = signing(&signer).await;
    let own = token(&signer, &json!({"sub": "planner"}));
    let delegated = token(&signer, &json!({"sub": "planner", "act": {"sub": "builder"}}));
    for token in [&own, &delegated] {
        let answer = asked(&stage, token, &changing()).await.expect(200);
        assert_eq!(said(&answer), ALLOWED);
    }
    stage.set_standing(&planner, "freeze").await.expect(200);
    let itself = format!("/v1/agents/{}", planner.id);
    let patch = json!({"name": "planner-frozen"});
    stage.admin("PATCH", &itself, &patch).await.expect(200);
    let body = json!({"name": "planner", "tools": ["github"]});
    stage
        .admin("POST", "/v1/agents", &body)
        .await
        .problem(409, "name_taken");
    for token in [&own, &delegated] {
        let denied = asked(&stage, token, &changing()).await.expect(200);
        assert_eq!(said(&denied), ["deny", "agent_frozen"]);
    }
    let who = stage.get("/v1/whoami", &own).await.expect(200);
    assert_eq!(who["name"], "planner-frozen");
    for id in ["planner", "planner-frozen", &planner.id] {
        let evaluation = json!({
            "subject": {"type": "agent", "id": id},
            "action": {"name": "create_issue", "properties": {}},
            "resource": {"type": "tool", "id": "github"},
        });
        let answer = stage.post("/access/v1/evaluation", &own, &evaluation).await;
        assert_eq!(said(&answer.expect(200)["context"]), ["deny", "agent_frozen"]);
    }
}

#[tokio::test]
async fn who_is_called_like_an_agent_in_whose_name_it_is_asked_approves_nothing_of_it() {
    let signer = Signer::ed25519(1);
    let (stage, planner) = company(PLANNED).await;
    stage.trust("agents", &signer).await;
    for agent in [&planner, &stage.agent] {
        make_risky(&stage, agent, &json!({})).await;
    }
    let delegated = token(&signer, &json!({"sub": "planner", "act": {"sub": "builder"}}));
    let itself = format!("/v1/agents/{}", planner.id);
    for name in ["planner", "planner-2"] {
        let patch = json!({ "name": name });
        stage.admin("PATCH", &itself, &patch).await.expect(200);
        let for_planner = asked(&stage, &delegated, &changing()).await.expect(200);
        assert_eq!(
            said(&for_planner),
            ["require_approval", "policy_requires_approval"]
        );
        approve(&stage, "planner", &for_planner)
            .await
            .problem(403, "not_an_approver");
    }
    let own = stage.ask(&changing()).await.expect(200);
    approve(&stage, "planner", &own).await.expect(200);
    let again = retry(&changing(), &own);
    let anew = asked(&stage, &delegated, &again).await.expect(200);
    assert_eq!(said(&anew), ["require_approval", "policy_requires_approval"]);
    assert_ne!(anew["approval"]["id"], own["approval"]["id"]);
    let allowed = stage.ask(&again).await.expect(200);
    assert_eq!(said(&allowed), ["allow", "approval_granted"]);
}

#[tokio::test]
async fn nothing_is_held_in_the_name_of_an_agent_that_may_not() {
    let signer = Signer::ed25519(1);
    let (stage, planner) = signing(&signer).await;
    let budget = json!({"scope": {}, "unit": "TOKENS", "allocated": 100});
    stage.admin("POST", "/v1/budgets", &budget).await.expect(201);
    let delegated = token(&signer, &json!({"sub": "planner", "act": {"sub": "builder"}}));
    let hold = async |token: &str, tool: &str| {
        let body = json!({"unit": "TOKENS", "amount": 10, "tool": tool});
        stage.post("/v1/reservations", token, &body).await
    };
    let reserved = hold(&delegated, "github").await.expect(201);
    let step = async |verb: &str, body: &Value| {
        let path = format!("/v1/reservations/{}/{verb}", reserved["id"].as_str().unwrap());
        stage.post(&path, &delegated, body).await
    };
    let longer = json!({"ttl_ms": 2_000});
    step("extend", &longer).await.expect(200);
    let detail = hold(&delegated, "vault").await.problem(403, "forbidden");
    assert!(
        detail.contains("the agent `planner`, in whose name it is asked, has no grant for `vault`"),
        "{detail}"
    );
    let through = with(json!({"sub": "builder"}), &act(&["ghost"]));
    let of_nobody = token(&signer, &json!({"sub": "ada", "act": through}));
    let detail = hold(&of_nobody, "github").await.problem(403, "forbidden");
    assert!(detail.contains("`ghost`"), "{detail}");

    for agent in [&planner.id, &stage.agent.id] {
        let itself = format!("/v1/agents/{agent}");
        for (tools, status) in [(json!([]), 403), (json!(["github"]), 200)] {
            let patch = json!({ "tools": tools });
            stage.admin("PATCH", &itself, &patch).await.expect(200);
            let reply = step("extend", &longer).await;
            assert_eq!(reply.status.as_u16(), status, "{}", reply.text());
        }
    }

    stage.set_standing(&planner, "freeze").await.expect(200);
    for refused in [hold(&delegated, "github").await, step("extend", &longer).await] {
        let detail = refused.problem(403, "forbidden");
        assert!(
            detail.contains("the agent `planner`, in whose name it is asked, is frozen"),
            "{detail}"
        );
    }
    let spent = json!({"actual": {"unit": "TOKENS", "amount": 7}});
    step("commit", &spent).await.expect(200);
    let used = json!({"unit": "TOKENS", "amount": 1});
    stage.post("/v1/usage", &delegated, &used).await.expect(201);
}

#[tokio::test]
async fn an_answer_for_one_user_is_none_for_another_under_the_same_request_id() {
    let signer = Signer::ed25519(1);
    let (stage, _) = signing(&signer).await;
    let token = |user: &str| token(&signer, &json!({"sub": user, "act": {"sub": "builder"}}));
    let ask = named(changing(), "call-1");
    let first = asked(&stage, &token("ada"), &ask).await.expect(200);
    assert_eq!(said(&first), ALLOWED);
    assert_eq!(asked(&stage, &token("ada"), &ask).await.expect(200), first);
    asked(&stage, &token("eve"), &ask)
        .await
        .problem(422, "idempotency_key_reused");
    let batch = json!({"asks": [changing(), for_user("ada")]});
    let reply = stage
        .post("/v1/authorize/batch", &token("eve"), &batch)
        .await
        .expect(200);
    assert_eq!(said(&reply["answers"][0]), ["deny", "policy_forbids"]);
    assert_eq!(reply["answers"][1]["code"], "user_mismatch");
    let dry = stage
        .post("/v1/decide", &token("eve"), &changing())
        .await
        .expect(200);
    assert_eq!(said(&dry), ["deny", "policy_forbids"]);
}

#[tokio::test]
async fn a_token_whose_chain_is_odd_signs_nobody_in() {
    let signer = Signer::ed25519(1);
    let (stage, _) = signing(&signer).await;
    for (what, act) in [
        ("nobody", json!({})),
        ("no object", json!("builder")),
        ("a number", json!({"sub": 7})),
        ("somebody unknown", json!({"sub": "ghost"})),
        (
            "another issuer's",
            json!({"sub": "builder", "iss": "https://elsewhere.example.com"}),
        ),
        ("odd inside", json!({"sub": "builder", "act": []})),
    ] {
        let token = token(&signer, &json!({"sub": "ada", "act": act}));
        let reply = asked(&stage, &token, &reading()).await;
        assert_eq!(reply.status, 401, "{what}: {}", reply.text());
    }
    let own = token(
        &signer,
        &json!({"sub": "ada", "act": {"sub": "builder", "iss": ISSUER}}),
    );
    asked(&stage, &own, &reading()).await.expect(200);
    assert_eq!(stage.decisions().await.len(), 1);
}

#[tokio::test]
async fn in_a_chain_too_it_is_the_registered_claim_that_names() {
    let signer = Signer::ed25519(1);
    let stage = Stage::set().await;
    let mut body = issuer("agents", &jwks(&signer));
    body["claim"] = json!("client_id");
    stage.admin("POST", "/v1/issuers", &body).await.expect(201);
    let shown = async |act: Value| {
        let token = token(&signer, &json!({"client_id": "ada", "act": act}));
        stage.get("/v1/whoami", &token).await
    };
    let who = shown(json!({"client_id": "builder", "sub": "nobody"})).await;
    assert_eq!(who.expect(200)["name"], "builder");
    for (act, member) in [
        (json!({"sub": "builder"}), "`act.client_id`"),
        (
            json!({"client_id": "builder", "act": {"sub": "planner"}}),
            "`act.act.client_id`",
        ),
    ] {
        let refused = shown(act).await.expect(401);
        let detail = refused["detail"].as_str().unwrap();
        assert!(detail.contains(member), "{detail}");
    }
}

#[tokio::test]
async fn a_token_tells_of_as_many_agents_as_an_ask_beside_the_one_that_shows_it() {
    let signer = Signer::ed25519(1);
    let (stage, _) = signing(&signer).await;
    let chain = |subject: &str, between: usize| {
        let mut names = vec!["builder"];
        names.extend(vec!["planner"; between]);
        token(&signer, &with(json!({ "sub": subject }), &act(&names)))
    };
    for token in [chain("ada", 8), chain("planner", 7)] {
        let answer = asked(&stage, &token, &changing()).await.expect(200);
        assert_eq!(said(&answer), ALLOWED);
    }
    for token in [chain("ada", 9), chain("planner", 8)] {
        let reply = asked(&stage, &token, &reading()).await;
        let detail = reply.problem(400, "delegation_too_deep");
        assert!(detail.contains("in the name of 9 agents"), "{detail}");
    }
    // Nor do both together tell of more.
    let ask = with(changing(), &act(&["planner"; 2]));
    let reply = asked(&stage, &chain("ada", 7), &ask).await;
    reply.problem(400, "delegation_too_deep");
    assert_eq!(stage.decisions().await.len(), 2);
}

#[tokio::test]
async fn nobody_signs_in_as_a_person_by_acting_for_one() {
    let signer = Signer::ed25519(1);
    let stage = Stage::set().await;
    stage.trust("people", &signer).await;
    let roles = json!({"roles": ["approver"]});
    stage.admin("PUT", "/v1/users/ada", &roles).await.expect(201);
    let ada = |members: Value| {
        let claims = with(json!({"sub": "ada", "exp": NOW + 60}), &members);
        token(&signer, &claims)
    };
    stage.get("/v1/whoami", &ada(json!({}))).await.expect(200);
    stage
        .get("/v1/whoami", &ada(act(&["builder"])))
        .await
        .problem(401, "invalid_token");
}
