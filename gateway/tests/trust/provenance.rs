//! `context.provenance`: what a signature makes of a claim about the source.

use crate::hand::Signer;
use crate::stage::Stage;
use crate::{NOW, token};
use canon::Digest;
use serde_json::{Value, json};

/// A change, in the name of our own systems, with this token.
fn ask(token: &str) -> Value {
    json!({
        "tool_call": {"tool": "github", "action": "create_issue", "parameters": {"title": "Pay", "amount": 3}},
        "context": {"source_trust": "trusted_internal_signed", "provenance": token},
        "user": {"id": "u-17"}, "trace": {"run_id": "run-2", "parent_run_id": "run-1"},
    })
}

/// What a token of this level is.
fn saying(signer: &Signer, level: &str, claims: &Value) -> String {
    let mut all = claims.clone();
    all["source_trust"] = json!(level);
    token(signer, &all)
}

async fn trusting(signer: &Signer) -> Stage {
    let stage = Stage::set().await;
    stage.trust("provenance", signer).await;
    stage
}

/// A policy that only lets what is signed change anything.
async fn only_signed(stage: &Stage) {
    let cedar = r#"@id("signed") forbid (principal, action in Action::"mutate", resource) unless { context.trust.signed };"#;
    let body = json!({"name": "signed", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
}

#[tokio::test]
async fn signed_holds_with_a_good_token_and_the_ledger_tells_which() {
    for signer in Signer::all() {
        let stage = trusting(&signer).await;
        only_signed(&stage).await;
        let mut unsigned = ask("");
        unsigned["context"].as_object_mut().unwrap().remove("provenance");
        let answer = stage.ask(&unsigned).await.expect(200);
        assert_eq!(answer["reason_code"], "policy_forbids");
        assert_eq!(answer["trust"]["effective"], "trusted_internal_unsigned");

        let token = saying(
            &signer,
            "trusted_internal_signed",
            &json!({"sub": "u-17", "run_id": "run-1"}),
        );
        let answer = stage.ask(&ask(&token)).await.expect(200);
        assert_eq!(answer["reason_code"], "policy_permits", "{answer}");
        assert_eq!(answer["trust"]["effective"], "trusted_internal_signed");
        let recorded = stage.decisions().await.pop().unwrap();
        assert_eq!(
            recorded["trust"],
            json!({
                "claimed": "trusted_internal_signed", "effective": "trusted_internal_signed", "signed": true,
                "provenance": {
                    "expires_at": "2026-01-31T09:35:00.000Z", "issuer": crate::ISSUER, "key": "a",
                    "level": "trusted_internal_signed", "registered_as": "provenance", "subject": "u-17",
                    "token": Digest::of(token.as_bytes()).to_string(),
                },
            })
        );
        assert!(
            !recorded.to_string().contains(&token),
            "the token itself is nobody's business"
        );
        stage.assert_sound().await;
    }
}

#[tokio::test]
async fn a_token_lifts_nothing_above_what_it_or_the_caller_says() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    for (claimed, said, effective) in [
        (
            "trusted_internal_signed",
            "semi_trusted_customer",
            "semi_trusted_customer",
        ),
        (
            "semi_trusted_customer",
            "trusted_internal_signed",
            "semi_trusted_customer",
        ),
        (
            "trusted_internal_unsigned",
            "malicious_suspected",
            "malicious_suspected",
        ),
    ] {
        let mut ask = ask(&saying(&signer, said, &json!({})));
        ask["context"]["source_trust"] = json!(claimed);
        let answer = stage.ask(&ask).await.expect(200);
        assert_eq!(
            answer["trust"],
            json!({"claimed": claimed, "effective": effective})
        );
    }
}

#[tokio::test]
async fn a_token_that_is_not_good_is_refused_and_nothing_is_decided() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    let best = "trusted_internal_signed";
    let good = saying(&signer, best, &json!({}));
    let (body, signature) = good.rsplit_once('.').unwrap();
    let unsigned =
        Signer::ed25519(1).token(json!({"alg": "none", "kid": "a"}), &json!({"iss": crate::ISSUER}));
    let cases = [
        (
            "another key of that name",
            saying(&Signer::ed25519(2), best, &json!({})),
        ),
        (
            "a signature of something else",
            format!("{body}.{}", "A".repeat(signature.len())),
        ),
        ("alg none", unsigned),
        ("no signature", format!("{body}.")),
        ("nonsense", "eyJ".to_owned()),
        (
            "expired 90 seconds ago",
            saying(&signer, best, &json!({"exp": NOW - 90})),
        ),
        (
            "issued in 90 seconds",
            saying(&signer, best, &json!({"iat": NOW + 90, "exp": NOW + 300})),
        ),
        (
            "good in 90 seconds",
            saying(&signer, best, &json!({"nbf": NOW + 90})),
        ),
        ("no end", saying(&signer, best, &json!({"exp": null}))),
        (
            "another audience",
            saying(&signer, best, &json!({"aud": "billing"})),
        ),
        ("another run", saying(&signer, best, &json!({"run_id": "run-3"}))),
        ("another person", saying(&signer, best, &json!({"sub": "u-18"}))),
        (
            "other content",
            saying(
                &signer,
                best,
                &json!({"content_hash": Digest::of(b"x").to_string()}),
            ),
        ),
        ("no level", token(&signer, &json!({}))),
        ("an unknown level", saying(&signer, "trusted", &json!({}))),
    ];
    for (what, token) in cases {
        let detail = stage.ask(&ask(&token)).await.problem(400, "provenance_invalid");
        assert!(!detail.contains(&token), "{what}: {detail}");
    }
    let foreign = saying(&signer, best, &json!({"iss": "https://elsewhere.example.com"}));
    stage
        .ask(&ask(&foreign))
        .await
        .problem(400, "provenance_not_verifiable");
    assert_eq!(stage.decisions().await.len(), 0);
}

#[tokio::test]
async fn what_was_answered_with_a_token_is_answered_again_when_that_has_expired() {
    let signer = Signer::ed25519(1);
    let mut stage = trusting(&signer).await;
    let token = saying(&signer, "trusted_internal_signed", &json!({}));
    let mut named = ask(&token);
    named["request_id"] = json!("call-1");
    let first = stage.ask(&named).await;
    first.expect(200);
    stage.clock.advance_millis(600_000);
    let fresh = ask(&token);
    stage.ask(&fresh).await.problem(400, "provenance_invalid");
    for remembered in [true, false] {
        if !remembered {
            stage = stage.restart().await;
        }
        let again = stage.ask(&named).await;
        assert_eq!(again.bytes, first.bytes, "remembered: {remembered}");
    }
    assert_eq!(stage.count("decision").await, 1);
}

#[tokio::test]
async fn clocks_may_differ_by_less_than_a_minute() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    for claims in [
        json!({"exp": NOW - 59}),
        json!({"nbf": NOW + 59, "iat": NOW + 59}),
    ] {
        let token = saying(&signer, "trusted_internal_signed", &claims);
        let answer = stage.ask(&ask(&token)).await.expect(200);
        assert_eq!(
            answer["trust"]["effective"], "trusted_internal_signed",
            "{claims}"
        );
    }
}

#[tokio::test]
async fn a_token_of_another_purpose_proves_nothing_here() {
    let signer = Signer::ed25519(1);
    let stage = Stage::set().await;
    stage.trust("agents", &signer).await;
    let token = saying(&signer, "trusted_internal_signed", &json!({}));
    stage
        .ask(&ask(&token))
        .await
        .problem(400, "provenance_not_verifiable");
}

#[tokio::test]
async fn keys_are_rotated_without_a_gap_and_gone_when_they_are_gone() {
    let (old, new) = (Signer::ed25519(1), Signer::ed25519(2));
    let stage = trusting(&old).await;
    let claims = json!({
        "iss": crate::ISSUER, "aud": "countersign", "exp": NOW + 300, "source_trust": "trusted_internal_signed",
    });
    let tokens = [
        old.token(json!({"kid": "a"}), &claims),
        new.token(json!({"kid": "b"}), &claims),
    ];
    let rotate = |keys: Value| {
        let stage = &stage;
        async move {
            stage
                .admin("PATCH", "/v1/issuers/provenance", &json!({"jwks": keys}))
                .await
                .expect(200);
        }
    };
    rotate(json!({"keys": [old.jwk("a"), new.jwk("b")]})).await;
    for token in &tokens {
        stage.ask(&ask(token)).await.expect(200);
    }
    rotate(json!({"keys": [new.jwk("b")]})).await;
    stage
        .ask(&ask(&tokens[0]))
        .await
        .problem(400, "provenance_invalid");
    stage.ask(&ask(&tokens[1])).await.expect(200);
    stage
        .admin("DELETE", "/v1/issuers/provenance", &json!({}))
        .await
        .expect(204);
    stage
        .ask(&ask(&tokens[1]))
        .await
        .problem(400, "provenance_not_verifiable");
}

#[tokio::test]
async fn a_token_about_one_parameter_signs_that_one_and_not_the_call() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    let schema = json!({"type": "object", "properties": {"recipient": {"type": "string"}, "amount": {"type": "integer"}}});
    let tool = json!({"actions": [{"name": "send", "mutates_state": true, "risk": "medium", "input_schema": schema}]});
    stage.admin("PUT", "/v1/tools/bank", &tool).await.expect(201);
    stage.settle(json!({"sources": "parameter"})).await;
    let cedar = r#"@id("recipient") forbid (principal, action == Action::"bank/send", resource)
        unless { context.sources.recipient.rank == 5 };"#;
    let body = json!({"name": "transfers", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let sending = |recipient: &str, content: &str, source: &str| {
        let claims = json!({"content_hash": Digest::of(content.as_bytes()).to_string()});
        json!({
            "tool_call": {"tool": "bank", "action": "send", "parameters": {"recipient": recipient, "amount": 3}},
            "context": {
                "source_trust": "trusted_internal_signed", "sources": {"/recipient": source},
                "provenance": saying(&signer, "trusted_internal_signed", &claims),
            },
        })
    };
    let best = "trusted_internal_signed";
    for (content, source, reason) in [
        ("DE02", best, "policy_permits"),
        ("DE02", "untrusted_external", "policy_forbids"),
        ("3", best, "policy_forbids"),
        (r#"{"amount":3,"recipient":"DE02"}"#, best, "policy_permits"),
    ] {
        let answer = stage.ask(&sending("DE02", content, source)).await.expect(200);
        assert_eq!(answer["reason_code"], reason, "{content} {source}");
        let recorded = stage.decisions().await.pop().unwrap();
        let is_one = !content.starts_with('{');
        assert_eq!(recorded["trust"]["signed"].is_null(), is_one, "{recorded}");
    }
    stage
        .ask(&sending("DE03", "DE02", best))
        .await
        .problem(400, "provenance_invalid");
}

/// A stage on which people approve whatever a bank sends, and the key of one who does.
async fn approving(signer: &Signer) -> (Stage, String) {
    let stage = trusting(signer).await;
    let tool = json!({"actions": [{"name": "send", "mutates_state": true, "risk": "medium"}]});
    stage.admin("PUT", "/v1/tools/bank", &tool).await.expect(201);
    stage.settle(json!({"sources": "parameter"})).await;
    let cedar = r#"@id("send") @decision("require_approval") permit (principal, action == Action::"bank/send", resource);"#;
    let body = json!({"name": "transfers", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &body).await.expect(201);
    let body = json!({"name": "ann", "role": "approver", "user": "ann"});
    let ann = stage.admin("POST", "/v1/keys", &body).await.expect(201);
    (stage, ann["key"].as_str().unwrap().to_owned())
}

/// To send 3 to `DE02`, where the caller says this of parameters and shows this token, if any.
fn sending(sources: &Value, token: &str) -> Value {
    let mut context = json!({"source_trust": "trusted_internal_unsigned", "sources": sources});
    if !token.is_empty() {
        context["provenance"] = json!(token);
    }
    let parameters = json!({"recipient": "DE02", "amount": 3});
    json!({"tool_call": {"tool": "bank", "action": "send", "parameters": parameters}, "context": context})
}

#[tokio::test]
async fn who_approves_is_shown_what_a_token_says_of_parameters_and_nothing_worse_is_covered() {
    let signer = Signer::ed25519(1);
    let (stage, ann) = approving(&signer).await;
    let about = |content: &str, level: &str| {
        let claims = json!({"content_hash": Digest::of(content.as_bytes()).to_string()});
        saying(&signer, level, &claims)
    };
    let best = "trusted_internal_signed";
    let (good, bad) = (about("3", best), about("DE02", "untrusted_external"));
    let worst = about("DE02", "malicious_suspected");
    let (nothing, claim, of_all) = (json!({}), json!({"/amount": best}), json!({"": best}));
    let unsigned = json!({"/amount": "trusted_internal_unsigned"});
    let outside = json!({"/recipient": "untrusted_external"});
    for (ask, shown, worse) in [
        (sending(&nothing, ""), Value::Null, sending(&nothing, &bad)),
        (sending(&nothing, &bad), outside, sending(&nothing, &worst)),
        (sending(&claim, &good), claim.clone(), sending(&claim, "")),
        (sending(&of_all, &good), claim.clone(), sending(&of_all, "")),
        (sending(&claim, ""), unsigned, sending(&claim, &bad)),
    ] {
        let asked = stage.ask(&ask).await.expect(200);
        let id = &asked["approval"]["id"];
        let path = format!("/v1/approvals/{}/approve", id.as_str().unwrap());
        let vote = stage.post(&path, &ann, &json!({"reason": "a test"})).await;
        assert_eq!(vote.expect(200)["sources"], shown, "{ask}");
        let retry = async |mut ask: Value| {
            ask["approval_id"] = id.clone();
            stage.ask(&ask).await.expect(200)
        };
        let anew = retry(worse).await;
        assert_eq!(anew["decision"], "require_approval", "{anew}");
        assert_ne!(anew["approval"]["id"], *id);
        let allowed = retry(ask).await;
        assert_eq!(allowed["reason_code"], "approval_granted", "{allowed}");
    }
    stage.assert_sound().await;
}

#[tokio::test]
async fn a_token_speaks_of_every_parameter_that_has_its_content() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    let text = json!({"type": "string"});
    let schema = json!({"type": "object", "properties": {"memo": text, "recipient": text}});
    let tool = json!({"actions": [{"name": "send", "mutates_state": true, "risk": "medium", "input_schema": schema}]});
    stage.admin("PUT", "/v1/tools/bank", &tool).await.expect(201);
    stage
        .settle(json!({"sources": "parameter", "parameters": "clear"}))
        .await;
    let cedar = r#"@id("recipient") forbid (principal, action == Action::"bank/send", resource)
        when { context.sources.recipient.rank <= 2 };"#;
    let policies = json!({"name": "transfers", "cedar": cedar});
    stage.admin("POST", "/v1/policies", &policies).await.expect(201);
    let claims = json!({"content_hash": Digest::of(b"evil@x").to_string()});
    let token = saying(&signer, "untrusted_external", &claims);
    for (memo, recipient, reason, told) in [
        ("evil@x", "bank@x", "policy_permits", json!(["memo", null])),
        ("Pay", "evil@x", "policy_forbids", json!(["recipient", null])),
        (
            "evil@x",
            "evil@x",
            "policy_forbids",
            json!(["memo", ["memo", "recipient"]]),
        ),
    ] {
        let ask = json!({
            "tool_call": {"tool": "bank", "action": "send", "parameters": {"memo": memo, "recipient": recipient}},
            "context": {"source_trust": "trusted_internal_unsigned", "provenance": token},
        });
        let answer = stage.ask(&ask).await.expect(200);
        assert_eq!(answer["reason_code"], reason, "{memo} {recipient}");
        let recorded = stage.decisions().await.pop().unwrap();
        let said = &recorded["trust"]["provenance"];
        assert_eq!(json!([said["parameter"], said["parameters"]]), told, "{recorded}");
    }
    let candidate = json!({"candidate": {"policies": [policies]}});
    let replayed = stage
        .admin("POST", "/v1/policies/replay", &candidate)
        .await
        .expect(200);
    assert_eq!(
        (&replayed["replayed"], &replayed["unchanged"]),
        (&json!(3), &json!(3)),
        "{replayed}"
    );
}

#[tokio::test]
async fn what_was_signed_is_read_back_when_it_is_judged_again() {
    let signer = Signer::ed25519(1);
    let stage = trusting(&signer).await;
    stage.settle(json!({"parameters": "clear"})).await;
    let token = saying(&signer, "trusted_internal_signed", &json!({}));
    stage.ask(&ask(&token)).await.expect(200);
    let cedar = r#"@id("signed") forbid (principal, action in Action::"mutate", resource) unless { context.trust.signed };"#;
    let candidate = json!({"candidate": {"policies": [{"name": "signed", "cedar": cedar}]}});
    let replayed = stage
        .admin("POST", "/v1/policies/replay", &candidate)
        .await
        .expect(200);
    assert_eq!(
        (&replayed["replayed"], &replayed["unchanged"]),
        (&json!(1), &json!(1)),
        "{replayed}"
    );
}
