//! When a token counts. Clocks may differ by a minute; one that is 90 seconds off is refused.

use crate::hand::{NOW, at, verify_claims};
use serde_json::{Value, json};
use tokens::{LEEWAY_SECONDS, TokenError};

fn is_accepted(changes: Value) -> bool {
    match verify_claims(changes) {
        Ok(_) => true,
        Err(TokenError::Expired { .. } | TokenError::NotYet { .. }) => false,
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_token_counts_until_a_minute_after_its_end() {
    assert!(is_accepted(json!({"exp": NOW - LEEWAY_SECONDS + 1})));
    assert!(!is_accepted(json!({"exp": NOW - LEEWAY_SECONDS})));
    assert_eq!(
        verify_claims(json!({"exp": NOW - 90})),
        Err(TokenError::Expired {
            at: at(NOW - 90),
            now: at(NOW)
        })
    );
}

#[test]
fn a_token_counts_from_a_minute_before_its_beginning() {
    for claim in ["nbf", "iat"] {
        assert!(is_accepted(json!({ claim: NOW - 3_600 })));
        assert!(is_accepted(json!({ claim: NOW + LEEWAY_SECONDS })));
        assert!(!is_accepted(json!({ claim: NOW + LEEWAY_SECONDS + 1 })));
        let refused = verify_claims(json!({ claim: NOW + 90 })).unwrap_err();
        assert!(refused.to_string().contains(&format!("(`{claim}`)")), "{refused}");
    }
}

#[test]
fn a_token_counts_from_the_later_of_its_beginnings() {
    for (nbf, iat, from) in [
        (json!(NOW - 5), json!(NOW - 9), Some(NOW - 5)),
        (json!(NOW - 9), json!(NOW - 5), Some(NOW - 5)),
        (json!(null), json!(NOW - 9), Some(NOW - 9)),
        (json!(NOW - 9), json!(null), Some(NOW - 9)),
        (json!(null), json!(null), None),
    ] {
        let claims = verify_claims(json!({"nbf": nbf, "iat": iat})).unwrap();
        assert_eq!(claims.valid_from(), from.map(at));
    }
}

#[test]
fn a_token_without_an_end_is_refused_and_one_without_a_beginning_is_not() {
    assert_eq!(
        verify_claims(json!({"exp": null})),
        Err(TokenError::Payload("`exp` is missing".to_owned()))
    );
    assert!(is_accepted(json!({"iat": null})));
}

#[test]
fn a_time_is_a_number_of_seconds() {
    assert!(is_accepted(json!({"exp": 1_800_000_000.5})));
    for exp in [
        json!("1900000000"),
        json!(-1),
        json!(1e300),
        json!([NOW]),
        json!(true),
    ] {
        let refused = verify_claims(json!({ "exp": exp }));
        assert!(matches!(refused, Err(TokenError::Payload(_))), "{exp}");
    }
}
