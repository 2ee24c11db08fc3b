//! What others sign, shown to a gateway: who may sign is registered, and a token is worth what its issuer, its time and its
//! purpose make of it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[expect(
    dead_code,
    reason = "tokens have tests of their own, which use the rest of it"
)]
#[path = "../../../crates/tokens/tests/tokens/hand.rs"]
mod hand;
#[path = "../support/stage.rs"]
mod stage;
#[expect(dead_code, reason = "each test program uses its own part of what they share")]
#[path = "../support/mod.rs"]
mod support;

mod delegation;
mod issuer_files;
mod issuers;
mod provenance;
mod rules;
mod signed_requests;
mod signing_in;

use hand::Signer;
use serde_json::{Value, json};
use stage::Stage;
use support::BEGINNING;

/// Who signs.
const ISSUER: &str = "https://tokens.example.com";
/// When every test begins, in seconds.
const NOW: i64 = BEGINNING.millis() / 1_000;

/// A set with this key, named `a`.
fn jwks(signer: &Signer) -> Value {
    json!({"keys": [signer.jwk("a")]})
}

/// An issuer as it is registered.
fn issuer(purpose: &str, jwks: &Value) -> Value {
    json!({"name": purpose, "purpose": purpose, "issuer": ISSUER, "jwks": jwks})
}

/// A token of that issuer that is good for five minutes, with these claims beside or in place of its own; `null` takes one away.
fn token(signer: &Signer, claims: &Value) -> String {
    let mut all = json!({"iss": ISSUER, "aud": "countersign", "iat": NOW, "exp": NOW + 300});
    for (name, value) in claims.as_object().unwrap() {
        if value.is_null() {
            all.as_object_mut().unwrap().remove(name);
        } else {
            all[name] = value.clone();
        }
    }
    signer.token(json!({"kid": "a"}), &all)
}

impl Stage {
    /// Registers an issuer with this key.
    async fn trust(&self, purpose: &str, signer: &Signer) {
        let body = issuer(purpose, &jwks(signer));
        self.admin("POST", "/v1/issuers", &body).await.expect(201);
    }

    /// Sets what the tenant can set.
    async fn settle(&self, settings: Value) {
        let path = format!("/v1/tenants/{}", self.tenant);
        let call = self.call("PATCH", &path, &self.operator);
        call.json(&json!({"settings": settings})).send().await.expect(200);
    }
}
