//! Agents and people who show a token of their identity provider in place of one of the gateway's.

use crate::hand::Signer;
use crate::stage::{Stage, changing, reading};
use crate::{ISSUER, NOW, issuer, jwks, token};
use model::Name;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A stage on which these keys sign agents in.
async fn agents(signer: &Signer) -> Stage {
    let stage = Stage::set().await;
    stage.trust("agents", signer).await;
    stage
}

/// A token of the stage's agent, by its name.
fn builder(signer: &Signer) -> String {
    token(signer, &json!({"sub": "builder"}))
}

#[tokio::test]
async fn an_agent_signs_in_by_name_or_id_with_every_kind_of_key() {
    for signer in Signer::all() {
        let stage = agents(&signer).await;
        for name in ["builder", &stage.agent.id] {
            let token = token(&signer, &json!({ "sub": name }));
            let who = stage.get("/v1/whoami", &token).await.expect(200);
            let expected = json!({
                "kind": "agent", "tenant": stage.tenant, "agent": stage.agent.id, "name": "builder", "issuer": "agents",
            });
            assert_eq!(who, expected);
            let answer = stage.post("/v1/authorize", &token, &changing()).await.expect(200);
            assert_eq!(answer["decision"], "allow");
            let recorded = stage.decisions().await.pop().unwrap();
            assert_eq!(recorded["agent"], json!(stage.agent.id));
        }
        stage
            .get("/v1/agents", &builder(&signer))
            .await
            .problem(403, "forbidden");
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn what_is_not_a_good_token_signs_nobody_in() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let name = |claims: Value| {
        let mut all = json!({"sub": "builder"});
        all.as_object_mut()
            .unwrap()
            .extend(claims.as_object().unwrap().clone());
        token(&signer, &all)
    };
    let good = builder(&signer);
    let (body, _) = good.rsplit_once('.').unwrap();
    for (what, token) in [
        ("another key", builder(&Signer::ed25519(2))),
        ("no signature", format!("{body}.")),
        (
            "alg none",
            signer.token(
                json!({"alg": "none", "kid": "a"}),
                &json!({"iss": ISSUER, "sub": "builder"}),
            ),
        ),
        ("expired 90 seconds ago", name(json!({"exp": NOW - 90}))),
        ("issued in 90 seconds", name(json!({"iat": NOW + 90}))),
        ("good in 90 seconds", name(json!({"nbf": NOW + 90}))),
        ("without end", name(json!({"exp": null}))),
        ("another audience", name(json!({"aud": "billing"}))),
        (
            "another issuer",
            name(json!({"iss": "https://elsewhere.example.com"})),
        ),
        ("nobody", name(json!({"sub": null}))),
        ("somebody unknown", name(json!({"sub": "ghost"}))),
        ("a person's claim", name(json!({"sub": ["builder"]}))),
        (
            "made for something else",
            signer.token(
                json!({"kid": "a", "typ": "provenance+jwt"}),
                &json!({"iss": ISSUER, "aud": "countersign", "exp": NOW + 300, "sub": "builder"}),
            ),
        ),
    ] {
        let reply = stage.post("/v1/authorize", &token, &reading()).await;
        assert_eq!(reply.headers["www-authenticate"], "Bearer", "{what}");
        let detail = reply.problem(401, "invalid_token");
        assert!(!detail.contains(&token), "{what}: {detail}");
    }
    for claims in [json!({"exp": NOW - 59}), json!({"nbf": NOW + 59})] {
        stage.get("/v1/whoami", &name(claims)).await.expect(200);
    }
    assert_eq!(stage.decisions().await.len(), 0);
}

/// Texts in texts, each with deep arrays around it. Under that name `serde_json` would read what is in them.
fn texts_in_texts(levels: usize) -> String {
    let arrays = "[".repeat(126);
    (0..levels).fold(arrays.clone(), |text, _| {
        let quoted = text.replace('\\', "\\u005c").replace('"', "\\u0022");
        format!(r#"{arrays}{{"$serde_json::private::RawValue":"{quoted}""#)
    })
}

/// The stack of a worker would be full before anybody has looked at the signature.
#[tokio::test]
async fn a_token_is_read_no_deeper_than_it_is() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let deep = json!({"$serde_json::private::RawValue": texts_in_texts(24)});
    let shown = token(&signer, &json!({"sub": "builder", "a": deep}));
    stage
        .get("/v1/whoami", &shown)
        .await
        .problem(401, "invalid_token");
    stage.get("/v1/whoami", &builder(&signer)).await.expect(200);
}

/// One issuer may sign for both, for one audience.
#[tokio::test]
async fn a_token_of_provenance_signs_nobody_in_whoever_else_its_issuer_signs_for() {
    let signer = Signer::ed25519(1);
    for purpose in ["agents", "people"] {
        let stage = Stage::set().await;
        stage.trust("provenance", &signer).await;
        stage.trust(purpose, &signer).await;
        let roles = json!({"roles": ["admin"]});
        stage.admin("PUT", "/v1/users/builder", &roles).await.expect(201);
        stage.get("/v1/whoami", &builder(&signer)).await.expect(200);
        for level in [json!("untrusted_external"), json!(""), json!(7)] {
            let shown = token(&signer, &json!({"sub": "builder", "source_trust": level}));
            let detail = stage
                .get("/v1/whoami", &shown)
                .await
                .problem(401, "invalid_token");
            assert!(detail.contains("`source_trust`"), "{detail}");
        }
        let shown = json!({"sub": "builder", "source_trust": "untrusted_external"});
        let mut ask = reading();
        ask["context"]["provenance"] = json!(token(&signer, &shown));
        assert_eq!(stage.ask(&ask).await.expect(200)["decision"], "allow");
    }
}

#[tokio::test]
async fn a_token_that_was_seen_before_ends_with_its_time_its_issuer_its_key_and_its_agent() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let stage = agents(&old).await;
    let token = builder(&old);
    let whoami = || stage.get("/v1/whoami", &token);
    whoami().await.expect(200);
    let path = "/v1/issuers/agents";
    let rotate = |keys: Value| {
        let stage = &stage;
        async move {
            stage
                .admin("PATCH", path, &json!({"jwks": {"keys": keys}}))
                .await
                .expect(200)
        }
    };
    rotate(json!([old.jwk("a"), new.jwk("b")])).await;
    whoami().await.expect(200);
    rotate(json!([new.jwk("b")])).await;
    whoami().await.problem(401, "invalid_token");
    rotate(json!([old.jwk("a")])).await;
    whoami().await.expect(200);

    stage.set_standing(&stage.agent, "freeze").await.expect(200);
    let answer = stage.post("/v1/authorize", &token, &reading()).await.expect(200);
    assert_eq!(answer["reason_code"], "agent_frozen");
    stage.set_standing(&stage.agent, "unfreeze").await.expect(200);

    stage.admin("DELETE", path, &json!({})).await.expect(204);
    whoami().await.problem(401, "invalid_token");
    stage.trust("agents", &old).await;
    whoami().await.expect(200);
    stage.clock.advance_millis(359_999);
    whoami().await.expect(200);
    stage.clock.advance_millis(1);
    whoami().await.problem(401, "invalid_token");
}

/// Keys may take megabytes, and a token is remembered also when its issuer has had others for long.
#[tokio::test]
async fn a_token_that_was_seen_before_holds_no_keys_of_its_issuer() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let registered = {
        let snapshot = stage.gateway.snapshot.load();
        let tenant = snapshot.tenant(stage.tenant).unwrap();
        let issuer = tenant.issuers.named(&Name::new("agents").unwrap()).unwrap();
        Arc::clone(&issuer.noun)
    };
    let before = Arc::strong_count(&registered);
    stage.get("/v1/whoami", &builder(&signer)).await.expect(200);
    let holders = Arc::strong_count(&registered);
    assert!(holders <= before, "{holders} and no more {before}");
}

#[tokio::test]
async fn a_token_seen_by_a_clock_that_was_ahead_is_refused_until_its_time_has_come() {
    const HOUR_MS: i64 = 3_600_000;
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    for claim in ["nbf", "iat"] {
        let later = json!({"sub": "builder", claim: NOW + 1_800, "exp": NOW + 7_200});
        let token = token(&signer, &later);
        let whoami = || stage.get("/v1/whoami", &token);
        stage.clock.advance_millis(HOUR_MS);
        whoami().await.expect(200);
        stage.clock.advance_millis(-HOUR_MS);
        let detail = whoami().await.problem(401, "invalid_token");
        assert!(detail.contains(&format!("(`{claim}`)")), "{detail}");
        stage.clock.advance_millis(HOUR_MS / 2);
        whoami().await.expect(200);
        stage.clock.advance_millis(-HOUR_MS / 2);
    }
}

#[tokio::test]
async fn where_several_tenants_have_an_issuer_the_caller_names_one() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let other = stage
        .post("/v1/tenants", &stage.operator, &json!({"name": "other"}))
        .await
        .expect(201);
    let other = other["id"].as_str().unwrap();
    let body = issuer("agents", &jwks(&Signer::ed25519(2)));
    stage
        .call("POST", "/v1/issuers", &stage.operator)
        .tenant(other)
        .json(&body)
        .send()
        .await
        .expect(201);
    let token = builder(&signer);
    let detail = stage
        .get("/v1/whoami", &token)
        .await
        .problem(401, "invalid_token");
    assert!(detail.contains("Countersign-Tenant"), "{detail}");
    let named = |tenant: String| stage.call("GET", "/v1/whoami", &token).tenant(tenant).send();
    named(stage.tenant.to_string()).await.expect(200);
    named(other.to_owned()).await.problem(401, "invalid_token");
    named("tnt_nonsense".to_owned())
        .await
        .problem(401, "invalid_token");
}

#[tokio::test]
async fn naming_a_tenant_once_is_not_naming_it_for_requests_that_name_none() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let early = builder(&signer);
    stage.get("/v1/whoami", &early).await.expect(200);
    let other = stage
        .post("/v1/tenants", &stage.operator, &json!({"name": "other"}))
        .await
        .expect(201);
    let other = other["id"].as_str().unwrap();
    for (path, body) in [
        ("/v1/issuers", issuer("agents", &jwks(&signer))),
        ("/v1/agents", json!({"name": "builder", "tools": "all"})),
    ] {
        let call = stage.call("POST", path, &stage.operator).tenant(other);
        call.json(&body).send().await.expect(201);
    }
    let late = token(&signer, &json!({"sub": "builder", "jti": "late"}));
    let unnamed = || stage.get("/v1/whoami", &late);
    unnamed().await.problem(401, "invalid_token");
    let own = stage.tenant.to_string();
    for tenant in [own.as_str(), other, &own] {
        let call = stage.call("GET", "/v1/whoami", &late).tenant(tenant);
        assert_eq!(call.send().await.expect(200)["tenant"], tenant);
        let detail = unnamed().await.problem(401, "invalid_token");
        assert!(detail.contains("Countersign-Tenant"), "{detail}");
        stage
            .post("/v1/authorize", &late, &changing())
            .await
            .problem(401, "invalid_token");
    }
    assert_eq!(stage.decisions().await.len(), 0);
    let who = stage.get("/v1/whoami", &early).await.expect(200);
    assert_eq!(
        who["tenant"], own,
        "it was verified when one tenant alone had the issuer"
    );
}

/// Another tenant with the same issuer, the same keys and an agent of the same name.
async fn double(stage: &Stage, signer: &Signer) -> String {
    let other = json!({"name": "other"});
    let other = stage
        .post("/v1/tenants", &stage.operator, &other)
        .await
        .expect(201);
    let other = other["id"].as_str().unwrap();
    for (path, body) in [
        ("/v1/issuers", issuer("agents", &jwks(signer))),
        ("/v1/agents", json!({"name": "builder", "tools": "all"})),
    ] {
        let call = stage.call("POST", path, &stage.operator).tenant(other);
        call.json(&body).send().await.expect(201);
    }
    other.to_owned()
}

#[tokio::test]
async fn what_a_tenant_has_stopped_does_not_go_on_in_another_one_with_its_issuer() {
    let signer = Signer::ed25519(1);
    for is_first in [true, false] {
        let stage = agents(&signer).await;
        let seen = builder(&signer);
        stage.get("/v1/whoami", &seen).await.expect(200);
        let nothing = json!({});
        let delete = stage.admin("DELETE", "/v1/issuers/agents", &nothing);
        let other = if is_first {
            delete.await.expect(204);
            double(&stage, &signer).await
        } else {
            let other = double(&stage, &signer).await;
            delete.await.expect(204);
            other
        };
        // What was deleted is known to a gateway that begins, too.
        let stage = stage.restart().await;
        let unseen = token(&signer, &json!({"sub": "builder", "jti": "unseen"}));
        for token in [&seen, &unseen] {
            let refused = stage.post("/v1/authorize", token, &changing()).await.expect(401);
            assert_eq!(refused["code"], "invalid_token");
            let named = stage.call("GET", "/v1/whoami", token).tenant(&other);
            assert_eq!(named.send().await.expect(200)["tenant"], other);
        }
        // Registered once more it is the tenant's as before, and both name theirs.
        stage.trust("agents", &signer).await;
        let own = stage.call("GET", "/v1/whoami", &seen).tenant(stage.tenant);
        own.send().await.expect(200);
        stage.get("/v1/whoami", &unseen).await.expect(401);
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_tenant_that_was_deleted_does_not_leave_its_tokens_to_another_one() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    let seen = builder(&signer);
    stage.get("/v1/whoami", &seen).await.expect(200);
    let other = double(&stage, &signer).await;
    let path = format!("/v1/tenants/{}", stage.tenant);
    let delete = stage.call("DELETE", &path, &stage.operator);
    delete.send().await.expect(204);
    stage.get("/v1/whoami", &seen).await.expect(401);
    let named = stage.call("GET", "/v1/whoami", &seen).tenant(&other);
    assert_eq!(named.send().await.expect(200)["tenant"], other);
}

#[tokio::test]
async fn an_issuer_that_nobody_else_has_is_registered_anew_without_naming_the_tenant() {
    let signer = Signer::ed25519(1);
    let stage = agents(&signer).await;
    for _ in 0..2 {
        stage
            .admin("DELETE", "/v1/issuers/agents", &json!({}))
            .await
            .expect(204);
        stage.get("/v1/whoami", &builder(&signer)).await.expect(401);
        stage.trust("agents", &signer).await;
        stage.get("/v1/whoami", &builder(&signer)).await.expect(200);
    }
}

#[tokio::test]
async fn what_is_under_way_goes_on_while_its_token_is_good_by_the_keys_there_are() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let stage = agents(&old).await;
    let token = builder(&old);
    let rotate = async |keys: &Value| {
        let body = json!({"jwks": {"keys": keys}});
        stage
            .admin("PATCH", "/v1/issuers/agents", &body)
            .await
            .expect(200);
    };
    let alone = json!([old.jwk("a")]);
    for (before, after, status) in [
        (&alone, json!([old.jwk("a"), new.jwk("b")]), 200),
        (&json!([new.jwk("b"), old.jwk("a")]), alone.clone(), 200),
        (&alone, json!([new.jwk("a"), old.jwk("b")]), 401),
        (&alone, json!([new.jwk("b")]), 401),
    ] {
        rotate(before).await;
        let waiting = stage.call("POST", "/v1/authorize", &token).json(&changing());
        let waiting = waiting.hold().await;
        rotate(&after).await;
        waiting.finish().await.expect(status);
        let who = stage.get("/v1/whoami", &token).await;
        who.expect(status);
    }
    rotate(&alone).await;
    let waiting = stage.call("POST", "/v1/authorize", &token).json(&changing());
    let waiting = waiting.hold().await;
    stage
        .admin("DELETE", "/v1/issuers/agents", &json!({}))
        .await
        .expect(204);
    assert_eq!(waiting.finish().await.expect(401)["code"], "invalid_token");
}

#[tokio::test]
async fn a_bad_token_is_told_what_the_issuer_that_it_is_for_finds_wrong() {
    let (old, new) = (Signer::ed25519(1), Signer::p256());
    let stage = agents(&old).await;
    let mut people = issuer("people", &jwks(&old));
    people["audience"] = json!("countersign-people");
    stage.admin("POST", "/v1/issuers", &people).await.expect(201);
    let detail = async |claims: Value| {
        let token = token(&old, &claims);
        let reply = stage.get("/v1/whoami", &token).await;
        reply.problem(401, "invalid_token")
    };
    for audience in ["countersign", "countersign-people"] {
        let expired = json!({"sub": "builder", "aud": audience, "exp": NOW - 90});
        let detail = detail(expired).await;
        assert!(detail.contains("has expired"), "{audience}: {detail}");
    }
    let elsewhere = detail(json!({"sub": "builder", "aud": "billing"})).await;
    assert!(elsewhere.contains("registered audience"), "{elsewhere}");
    let body = json!({"jwks": {"keys": [new.jwk("b")]}});
    stage
        .admin("PATCH", "/v1/issuers/agents", &body)
        .await
        .expect(200);
    let rotated = detail(json!({"sub": "builder"})).await;
    assert!(rotated.contains("no key `a`"), "{rotated}");
    let expired = detail(json!({"sub": "1", "aud": "countersign-people", "exp": NOW - 90})).await;
    assert!(expired.contains("has expired"), "{expired}");
}

#[tokio::test]
async fn who_shows_what_no_registered_key_has_signed_learns_nothing_of_issuers_and_keys() {
    let (signer, stranger) = (Signer::ed25519(1), Signer::ed25519(2));
    let stage = agents(&signer).await;
    let other = stage
        .post("/v1/tenants", &stage.operator, &json!({"name": "other"}))
        .await
        .expect(201);
    let other = other["id"].as_str().unwrap();
    let own = stage.tenant.to_string();
    let claims = json!({"iss": ISSUER, "aud": "countersign", "exp": NOW + 300, "sub": "builder"});
    let shown = [
        builder(&stranger),
        token(&stranger, &json!({"sub": "builder", "exp": NOW - 90})),
        stranger.token(json!({"kid": "b"}), &claims),
        stranger.token(json!({}), &claims),
        stranger.token(json!({"kid": "a", "alg": "RS256"}), &claims),
        token(&stranger, &json!({"iss": "https://elsewhere.example.com"})),
    ];
    let mut told = BTreeSet::new();
    let mut show = async || {
        for token in &shown {
            for tenant in [None, Some(own.as_str()), Some(other)] {
                let call = stage.call("GET", "/v1/whoami", token);
                let call = match tenant {
                    Some(tenant) => call.tenant(tenant),
                    None => call,
                };
                told.insert(call.send().await.problem(401, "invalid_token"));
            }
        }
    };
    show().await;
    let keys = json!({"keys": [signer.jwk("a"), Signer::p256().jwk("c")]});
    stage
        .call("POST", "/v1/issuers", &stage.operator)
        .tenant(other)
        .json(&issuer("agents", &keys))
        .send()
        .await
        .expect(201);
    show().await;
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told.first().unwrap().contains("Countersign-Tenant"), "{told:?}");
}

/// A stage on which people sign in, with a team and these members of it.
async fn office(signer: &Signer, people: &[(&str, &[&str])]) -> Stage {
    let stage = Stage::set().await;
    let mut body = issuer("people", &jwks(signer));
    body["claim"] = json!("email");
    stage.admin("POST", "/v1/issuers", &body).await.expect(201);
    stage
        .admin("PUT", "/v1/teams/leads", &json!({}))
        .await
        .expect(201);
    for (name, roles) in people {
        let body = json!({"teams": ["leads"], "roles": roles});
        stage
            .admin("PUT", &format!("/v1/users/{name}"), &body)
            .await
            .expect(201);
    }
    stage
}

fn person(signer: &Signer, name: &str) -> String {
    token(signer, &json!({"email": name, "sub": "1742"}))
}

#[tokio::test]
async fn a_person_may_do_what_the_registered_roles_say_now() {
    let signer = Signer::p256();
    let stage = office(&signer, &[("ada", &["admin", "auditor"]), ("bob", &[])]).await;
    let (ada, bob) = (person(&signer, "ada"), person(&signer, "bob"));
    let who = stage.get("/v1/whoami", &ada).await.expect(200);
    let expected = json!({
        "kind": "person", "tenant": stage.tenant, "user": "ada", "roles": ["admin", "auditor"], "issuer": "people",
    });
    assert_eq!(who, expected);
    stage
        .call("PUT", "/v1/teams/new", &ada)
        .json(&json!({}))
        .send()
        .await
        .expect(201);
    let entries = stage.entries().await;
    let last: Value = serde_json::from_str(&entries.last().unwrap().body).unwrap();
    assert_eq!(
        last["by"],
        json!({"issuer": "people", "roles": ["admin", "auditor"], "user": "ada"})
    );
    stage.get("/v1/ledger/head", &ada).await.expect(200);
    stage
        .call("POST", "/v1/policies/validate", &ada)
        .json(&json!({"policies": []}))
        .send()
        .await
        .problem(403, "forbidden");
    stage.get("/v1/tenants", &ada).await.problem(403, "forbidden");
    stage
        .post("/v1/authorize", &ada, &reading())
        .await
        .problem(403, "forbidden");
    stage.get("/v1/teams", &bob).await.problem(403, "forbidden");
    stage
        .get("/v1/whoami", &person(&signer, "eve"))
        .await
        .problem(401, "invalid_token");

    let waiting = stage.call("PUT", "/v1/teams/late", &ada).json(&json!({}));
    let waiting = waiting.hold().await;
    stage
        .admin("PUT", "/v1/users/ada", &json!({"roles": ["auditor"]}))
        .await
        .expect(200);
    assert_eq!(waiting.finish().await.expect(401)["code"], "invalid_token");
    stage.get("/v1/ledger/head", &ada).await.expect(200);
    stage
        .call("PUT", "/v1/teams/more", &ada)
        .json(&json!({}))
        .send()
        .await
        .problem(403, "forbidden");
    stage
        .admin("DELETE", "/v1/users/ada", &json!({}))
        .await
        .expect(204);
    stage.get("/v1/whoami", &ada).await.problem(401, "invalid_token");
}

#[tokio::test]
async fn nobody_signs_in_by_an_address_that_is_said_not_to_be_verified() {
    let signer = Signer::p256();
    let of_people = office(&signer, &[("ada", &["auditor"])]).await;
    let of_agents = Stage::set().await;
    let mut body = issuer("agents", &jwks(&signer));
    body["claim"] = json!("email");
    of_agents.admin("POST", "/v1/issuers", &body).await.expect(201);
    for (verified, is_good) in [
        // A token that does not say.
        (Value::Null, true),
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
    ] {
        let named = |name: &str| token(&signer, &json!({"email": name, "email_verified": verified}));
        let mut act = json!({"email": "builder"});
        if !verified.is_null() {
            act["email_verified"] = verified.clone();
        }
        let acting = token(&signer, &json!({"email": "ada", "act": act}));
        for (stage, token) in [
            (&of_people, named("ada")),
            (&of_agents, named("builder")),
            (&of_agents, acting),
        ] {
            let told = stage.get("/v1/whoami", &token).await;
            if is_good {
                told.expect(200);
            } else {
                let detail = told.problem(401, "invalid_token");
                assert!(detail.contains("is not verified"), "{detail}");
            }
        }
    }
    // Where another claim names the agent, its address says nothing of who it is.
    let by_subject = agents(&signer).await;
    let other = json!({"sub": "builder", "email": "eve", "email_verified": false});
    let other = token(&signer, &other);
    by_subject.get("/v1/whoami", &other).await.expect(200);
}

#[tokio::test]
async fn what_a_person_has_under_way_goes_on_while_the_route_lets_the_person_in() {
    let (old, new) = (Signer::p256(), Signer::ed25519(1));
    let stage = office(&old, &[("ada", &["admin", "auditor"])]).await;
    let ada = person(&old, "ada");
    let path = "/v1/users/ada";
    let both = json!({"roles": ["admin", "auditor"]});
    for (team, roles, status) in [
        ("added", json!(["admin", "approver", "auditor"]), 201),
        ("not-needed", json!(["admin"]), 201),
        ("needed", json!(["auditor", "approver"]), 401),
    ] {
        stage.admin("PUT", path, &both).await.expect(200);
        let waiting = stage.call("PUT", &format!("/v1/teams/{team}"), &ada);
        let waiting = waiting.json(&json!({})).hold().await;
        let now = json!({"roles": roles});
        stage.admin("PUT", path, &now).await.expect(200);
        waiting.finish().await.expect(status);
    }
    stage.admin("PUT", path, &both).await.expect(200);
    for (team, keys, status) in [
        ("beside", json!([old.jwk("a"), new.jwk("b")]), 201),
        ("in-its-place", json!([new.jwk("b")]), 401),
    ] {
        let waiting = stage.call("PUT", &format!("/v1/teams/{team}"), &ada);
        let waiting = waiting.json(&json!({})).hold().await;
        let body = json!({"jwks": {"keys": keys}});
        stage
            .admin("PATCH", "/v1/issuers/people", &body)
            .await
            .expect(200);
        waiting.finish().await.expect(status);
    }
}

#[tokio::test]
async fn nobody_becomes_an_operator_by_a_role() {
    let stage = Stage::set().await;
    stage
        .admin("PUT", "/v1/users/eve", &json!({"roles": ["operator"]}))
        .await
        .problem(400, "invalid_field");
}

#[tokio::test]
async fn an_approver_with_a_token_is_a_person_like_any_other() {
    let signer = Signer::rsa();
    let stage = office(
        &signer,
        &[
            ("ada", &["approver"]),
            ("bob", &["approver"]),
            ("eve", &["auditor"]),
        ],
    )
    .await;
    stage
        .admin("PUT", "/v1/users/out", &json!({"roles": ["approver"]}))
        .await
        .expect(201);
    let cedar = r#"@id("issues") @decision("require_approval") @approvers("leads") @quorum("2")
        permit (principal, action == Action::"github/create_issue", resource);"#;
    let body = json!({"name": "issues", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let mut ask = changing();
    ask["user"] = json!({"id": "bob"});
    let answer = stage.ask(&ask).await.expect(200);
    let approval = answer["approval"]["id"].as_str().unwrap().to_owned();
    let vote = |who: &str| {
        let path = format!("/v1/approvals/{approval}/approve");
        let (stage, token) = (&stage, person(&signer, who));
        async move { stage.post(&path, &token, &json!({"reason": "read it"})).await }
    };
    vote("bob").await.problem(403, "not_an_approver");
    vote("out").await.problem(403, "not_an_approver");
    vote("eve").await.problem(403, "forbidden");
    assert_eq!(vote("ada").await.expect(200)["status"], "pending");
    let entries = stage.entries().await;
    let last: Value = serde_json::from_str(&entries.last().unwrap().body).unwrap();
    let by = json!({"issuer": "people", "role": "approver", "teams": ["leads"], "user": "ada"});
    assert_eq!(last["by"], by);

    let key = json!({"name": "ada's key", "role": "approver", "user": "ada"});
    let key = stage.admin("POST", "/v1/keys", &key).await.expect(201);
    let path = format!("/v1/approvals/{approval}/approve");
    stage
        .post(&path, key["key"].as_str().unwrap(), &json!({"reason": "again"}))
        .await
        .problem(409, "conflict");
}
