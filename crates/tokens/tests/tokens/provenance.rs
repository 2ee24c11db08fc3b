//! What a token says about the source of content.

use crate::hand::{ISSUER, NOW, at, verify_claims};
use canon::Digest;
use model::{Name, Trust};
use serde_json::{Value, json};
use tokens::{ClaimError, ProvenanceClaims};

fn told(changes: Value) -> Result<ProvenanceClaims, ClaimError> {
    ProvenanceClaims::try_from(&verify_claims(changes).unwrap())
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

#[test]
fn all_that_it_says_is_typed() {
    let digest = Digest::of(b"an e-mail");
    let found = told(json!({
        "source_trust": "semi_trusted_customer", "run_id": "run-1", "content_hash": digest.to_string(), "jti": "t-1",
    }));
    let expected = ProvenanceClaims {
        issuer: ISSUER.to_owned(),
        level: Trust::SemiTrustedCustomer,
        subject: Some(name("u-17")),
        run: Some(name("run-1")),
        content: Some(digest),
        expires_at: at(NOW + 300),
        id: Some(name("t-1")),
    };
    assert_eq!(found, Ok(expected));
}

#[test]
fn every_level_has_its_word_and_no_other_word_is_one() {
    for level in Trust::ALL {
        let found = told(json!({"source_trust": level.as_str(), "sub": null})).unwrap();
        assert_eq!(
            (found.level, found.subject, found.run, found.id),
            (level, None, None, None)
        );
    }
    for word in ["trusted", "Unknown", "trusted_internal_signed "] {
        let refused = told(json!({ "source_trust": word })).unwrap_err();
        assert!(
            refused
                .to_string()
                .contains("it should be one of `trusted_internal_signed`"),
            "{refused}"
        );
    }
    assert_eq!(
        told(json!({})),
        Err(ClaimError::Missing("source_trust".to_owned()))
    );
}

#[test]
fn what_is_there_has_to_be_right() {
    for (claim, value) in [
        ("content_hash", json!("9b1c")),
        ("content_hash", json!(7)),
        ("run_id", json!("")),
        ("run_id", json!("a\nb")),
        ("jti", json!("x".repeat(257))),
        ("sub", json!(["u-17"])),
    ] {
        let refused = told(json!({"source_trust": "unknown", claim: value})).unwrap_err();
        assert!(refused.to_string().contains(&format!("`{claim}`")), "{refused}");
    }
}
