//! Who issued a token, for whom, for what, and with which key.

use crate::hand::{
    AUDIENCE, EXPECTED, ISSUER, NOW, Signer, at, claims, encode, key_set, verify, verify_claims,
};
use serde_json::{Value, json};
use tokens::{ClaimError, Expected, Purpose, TokenError, UnverifiedToken};

#[test]
fn a_token_says_what_it_says_whatever_signs_it() {
    for signer in Signer::all() {
        let keys = key_set(&[signer.jwk("a")]);
        let token = signer.token(
            json!({"kid": "a", "typ": "JWT"}),
            &claims(json!({"email": "ann@example.com"})),
        );
        let unverified = UnverifiedToken::parse(&token).unwrap();
        assert_eq!(unverified.issuer(), Some(ISSUER));
        let verified = unverified.verify(&keys, EXPECTED, at(NOW)).unwrap();
        assert_eq!(verified.issuer(), ISSUER);
        assert_eq!(
            (verified.expires_at(), verified.issued_at()),
            (at(NOW + 300), Some(at(NOW)))
        );
        assert_eq!(verified.text("sub"), Ok("u-17"));
        assert_eq!(verified.text("email"), Ok("ann@example.com"));
        assert_eq!(
            verified.text("group"),
            Err(ClaimError::Missing("group".to_owned()))
        );
        assert_eq!(verified.text("exp"), Err(ClaimError::NotText("exp".to_owned())));
        assert_eq!(verified.optional_text("group"), Ok(None));
    }
}

#[test]
fn an_address_that_is_said_not_to_be_verified_names_nobody() {
    let address = |verified: &Value| json!({"email": "ann@example.com", "email_verified": verified});
    for (verified, is_good) in [
        (json!(true), true),
        (json!("true"), true),
        (json!(false), false),
        (json!("false"), false),
        (json!("True"), false),
        (json!(1), false),
    ] {
        let own = verify_claims(address(&verified)).unwrap();
        let found = own.name("email");
        let expected = is_good.then_some("ann@example.com").ok_or(ClaimError::Unverified);
        assert_eq!(found, expected, "{verified}");
        assert_eq!(own.name("sub"), Ok("u-17"), "another claim is no address");

        let acts = verify_claims(json!({"email": "bob@example.com", "act": address(&verified)}));
        let acts = acts.unwrap();
        assert_eq!(acts.name("email"), Ok("bob@example.com"), "it does not say");
        assert_eq!(acts.actors("email").is_ok(), is_good, "{verified}");
    }
}

#[test]
fn another_issuer_or_none_is_refused() {
    assert_eq!(
        verify_claims(json!({"iss": "https://idp.example.com/"})),
        Err(TokenError::Issuer("https://idp.example.com/".to_owned()))
    );
    for iss in [json!(null), json!(7), json!([ISSUER])] {
        let refused = verify_claims(json!({ "iss": iss }));
        assert_eq!(
            refused,
            Err(TokenError::Payload("`iss` should be a string".to_owned()))
        );
    }
}

#[test]
fn an_audience_is_one_text_or_one_of_several() {
    for aud in [json!(AUDIENCE), json!([AUDIENCE]), json!(["other", AUDIENCE])] {
        assert!(verify_claims(json!({ "aud": aud })).is_ok(), "{aud}");
    }
    for aud in [
        json!("other"),
        json!([]),
        json!(["other"]),
        json!("Countersign"),
        json!("countersign/"),
    ] {
        assert_eq!(
            verify_claims(json!({ "aud": aud })),
            Err(TokenError::Audience),
            "{aud}"
        );
    }
    for aud in [
        json!(null),
        json!(7),
        json!({"a": AUDIENCE}),
        json!([AUDIENCE, 7]),
    ] {
        assert!(
            matches!(verify_claims(json!({ "aud": aud })), Err(TokenError::Payload(_))),
            "{aud}"
        );
    }
}

#[test]
fn a_token_that_was_made_for_something_else_is_refused() {
    let signer = Signer::ed25519(1);
    let keys = key_set(&[signer.jwk("a")]);
    let accepted = |purpose, typ: &str| {
        let token = signer.token(json!({"typ": typ}), &claims(json!({})));
        let expected = Expected { purpose, ..EXPECTED };
        verify(&token, &keys, expected)
    };
    for (purpose, typ, is_good) in [
        (Purpose::Provenance, "JWT", true),
        (Purpose::Provenance, "provenance+jwt", true),
        (Purpose::Provenance, "application/provenance+jwt", true),
        (Purpose::Provenance, "at+jwt", false),
        (Purpose::Agents, "at+JWT", true),
        (Purpose::Agents, "provenance+jwt", false),
        (Purpose::People, "logout+jwt", false),
        (Purpose::People, "secevent+jwt", false),
    ] {
        let found = accepted(purpose, typ);
        assert_eq!(found.is_ok(), is_good, "{purpose:?} {typ}");
        if let Err(error) = found {
            let words = format!("which is none for {}", purpose.as_str());
            assert!(error.to_string().ends_with(&words), "{error}");
        }
    }
}

#[test]
fn a_payload_that_can_be_read_in_two_ways_is_refused() {
    let signer = Signer::ed25519(1);
    let header = encode(r#"{"alg":"EdDSA"}"#);
    let payload = format!(
        r#"{{"iss":"{ISSUER}","aud":"x","aud":"{AUDIENCE}","exp":{}}}"#,
        NOW + 300
    );
    let text = format!("{header}.{}", encode(payload));
    let token = format!("{text}.{}", encode(signer.sign(text.as_bytes())));
    let refused = verify(&token, &key_set(&[signer.jwk("a")]), EXPECTED).unwrap_err();
    assert!(refused.to_string().contains("duplicate key `aud`"), "{refused}");
}
