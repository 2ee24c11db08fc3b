//! `/v1/issuers`.

use crate::hand::Signer;
use crate::stage::Stage;
use crate::{ISSUER, NOW, issuer, jwks};
use serde_json::{Value, json};

/// The bodies of the entries of this kind, without who did it.
async fn told(stage: &Stage, kind: &str) -> Vec<Value> {
    let entries = stage.entries().await;
    let bodies = entries.iter().filter(|entry| entry.kind == kind).map(|entry| {
        let mut body: Value = serde_json::from_str(&entry.body).unwrap();
        body.as_object_mut().unwrap().remove("by").unwrap();
        body
    });
    bodies.collect()
}

#[tokio::test]
async fn an_issuer_is_registered_read_given_other_keys_and_deleted() {
    let stage = Stage::set().await;
    let (first, second) = (jwks(&Signer::ed25519(1)), jwks(&Signer::p256()));
    let made = stage
        .admin("POST", "/v1/issuers", &issuer("agents", &first))
        .await
        .expect(201);
    let view = json!({
        "name": "agents", "purpose": "agents", "issuer": ISSUER, "audience": "countersign", "jwks": first, "claim": "sub",
        "created_at": "2026-01-31T09:30:00.000Z",
    });
    assert_eq!(made, view);
    assert_eq!(told(&stage, "issuer_created").await, std::slice::from_ref(&view));

    let path = "/v1/issuers/agents";
    let patched = stage
        .admin("PATCH", path, &json!({"jwks": second}))
        .await
        .expect(200);
    assert_eq!(patched["jwks"], second);
    stage
        .admin("PATCH", path, &json!({"jwks": second}))
        .await
        .expect(200);
    assert_eq!(
        told(&stage, "issuer_updated").await,
        std::slice::from_ref(&patched),
        "once is an event"
    );
    assert_eq!(stage.admin("GET", path, &json!({})).await.expect(200), patched);
    let list = stage.admin("GET", "/v1/issuers", &json!({})).await.expect(200);
    assert_eq!(list, json!({"items": [patched], "next_cursor": null}));

    let stage = stage.restart().await;
    assert_eq!(stage.admin("GET", path, &json!({})).await.expect(200), patched);
    stage.admin("DELETE", path, &json!({})).await.expect(204);
    assert_eq!(told(&stage, "issuer_deleted").await, [patched]);
    stage
        .admin("GET", path, &json!({}))
        .await
        .problem(404, "not_found");
    stage.assert_sound().await;
}

#[tokio::test]
async fn keys_that_tokens_do_not_name_are_rotated_like_others() {
    let stage = Stage::set().await;
    let signers = [Signer::ed25519(1), Signer::ed25519(2)];
    let [old, new] = signers.each_ref().map(|signer| {
        let mut jwk = signer.jwk("a");
        jwk.as_object_mut().unwrap().remove("kid").unwrap();
        jwk
    });
    let claims = json!({"iss": ISSUER, "aud": "countersign", "sub": "builder", "exp": NOW + 300});
    let tokens = signers.map(|signer| signer.token(json!({}), &claims));
    let first = issuer("agents", &json!({"keys": [old]}));
    stage.admin("POST", "/v1/issuers", &first).await.expect(201);
    for (keys, are_good) in [
        (json!([old]), [true, false]),
        (json!([old, new]), [true, true]),
        (json!([new]), [false, true]),
    ] {
        let body = json!({"jwks": {"keys": keys}});
        let patched = stage.admin("PATCH", "/v1/issuers/agents", &body).await;
        patched.expect(200);
        for (token, is_good) in tokens.iter().zip(are_good) {
            let who = stage.get("/v1/whoami", token).await;
            if is_good {
                assert_eq!(who.expect(200)["name"], "builder");
            } else {
                who.problem(401, "invalid_token");
            }
        }
    }
}

#[tokio::test]
async fn what_could_be_taken_for_another_issuer_is_refused() {
    let stage = Stage::set().await;
    let keys = jwks(&Signer::ed25519(1));
    let body = issuer("agents", &keys);
    stage.admin("POST", "/v1/issuers", &body).await.expect(201);
    stage
        .admin("POST", "/v1/issuers", &body)
        .await
        .problem(409, "name_taken");
    let mut again = body.clone();
    again["name"] = json!("another");
    stage
        .admin("POST", "/v1/issuers", &again)
        .await
        .problem(409, "conflict");
    again["purpose"] = json!("people");
    let detail = stage
        .admin("POST", "/v1/issuers", &again)
        .await
        .problem(409, "conflict");
    assert!(detail.contains("different audiences"), "{detail}");
    again["audience"] = json!("people of countersign");
    stage.admin("POST", "/v1/issuers", &again).await.expect(201);
}

#[tokio::test]
async fn what_cannot_verify_anything_is_refused() {
    let stage = Stage::set().await;
    let good = Signer::ed25519(1).jwk("a");
    let mut claimed = issuer("provenance", &json!({"keys": [good]}));
    claimed["claim"] = json!("sub");
    for body in [
        issuer("king", &json!({"keys": [good]})),
        issuer("agents", &json!({"keys": []})),
        issuer("agents", &json!([good])),
        issuer("agents", &json!({"keys": [good, good]})),
        issuer("agents", &json!({"keys": vec![good.clone(); 33]})),
        issuer(
            "agents",
            &json!({"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}),
        ),
        claimed,
    ] {
        stage
            .admin("POST", "/v1/issuers", &body)
            .await
            .problem(400, "invalid_field");
    }
    let mut typo = issuer("agents", &json!({"keys": [good]}));
    typo["audiance"] = json!("us");
    stage
        .admin("POST", "/v1/issuers", &typo)
        .await
        .problem(400, "unknown_field");
    assert_eq!(stage.count("issuer_created").await, 0);
}

#[tokio::test]
async fn a_private_key_is_refused_and_told_to_nobody() {
    let stage = Stage::set().await;
    let mut key = Signer::ed25519(1).jwk("a");
    key["d"] = json!("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A");
    let shared = json!({"kty": "oct", "kid": "b", "k": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A"});
    let of_akp = json!({"kty": "AKP", "kid": "b", "alg": "ML-DSA-44", "pub": "AA", "priv": "nWGxne_9"});
    for key in [key, shared, of_akp] {
        let body = issuer("agents", &json!({"keys": [Signer::p256().jwk("c"), key]}));
        let detail = stage
            .admin("POST", "/v1/issuers", &body)
            .await
            .problem(400, "invalid_field");
        assert!(detail.contains("is a secret"), "{detail}");
        assert!(!detail.contains("nWGx"), "{detail}");
    }
    assert_eq!(stage.count("issuer_created").await, 0);
}
