//! Published signatures, and headers that try to choose.

use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// RFC 7515, appendix A.2.
const RSA_KEY: &str = r#"{"kty":"RSA","e":"AQAB","n":"ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ"}"#;
const RSA: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
/// RFC 7515, appendix A.3.
const EC_KEY: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;
const EC: &str = "eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ.DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";
/// RFC 8037, appendix A.
const ED_KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}"#;
const ED: &str = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc.hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";

const VECTORS: [(&str, &str); 3] = [(RSA_KEY, RSA), (EC_KEY, EC), (ED_KEY, ED)];

fn key(text: &str) -> PublicKey {
    PublicKey::from_jwk(text.as_bytes()).unwrap()
}

fn parse(text: &str) -> Result<Jws<'_>, TokenError> {
    Jws::parse(text, 1 << 12)
}

/// The Ed25519 example with another header, whose signature is not looked at.
fn with_header(header: &str) -> String {
    let (_, rest) = ED.split_once('.').unwrap();
    format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header))
}

#[test]
fn the_published_signatures_verify_with_their_keys_and_with_no_other() {
    for (place, (_, text)) in VECTORS.iter().enumerate() {
        let jws = parse(text).unwrap();
        for (other, (jwk, _)) in VECTORS.iter().enumerate() {
            assert_eq!(jws.verify(&key(jwk)).is_ok(), place == other, "{text} {jwk}");
        }
    }
    assert_eq!(parse(ED).unwrap().payload, b"Example of Ed25519 signing");
}

#[test]
fn a_header_does_not_choose_the_algorithm() {
    for named in ["none", "None", "HS256", "ES256", "eddsa", "EdDSA "] {
        let text = with_header(&format!(r#"{{"alg":"{named}"}}"#));
        let refused = parse(&text).unwrap().verify(&key(ED_KEY));
        let wanted = "EdDSA";
        let named = named.to_owned();
        assert_eq!(refused, Err(TokenError::Algorithm { named, wanted }));
    }
    // Nor does leaving the signature out.
    let (signed, _) = ED.rsplit_once('.').unwrap();
    let bare = format!("{signed}.");
    assert_eq!(
        parse(&bare).unwrap().verify(&key(ED_KEY)),
        Err(TokenError::Signature)
    );
}

#[test]
fn a_header_brings_no_key_and_demands_nothing() {
    for (member, value) in [
        ("jwk", ED_KEY),
        ("jku", r#""https://example.com/keys""#),
        ("x5u", r#""https://example.com/chain""#),
        ("x5c", "[]"),
    ] {
        let text = with_header(&format!(r#"{{"alg":"EdDSA","{member}":{value}}}"#));
        assert_eq!(parse(&text).unwrap_err(), TokenError::BroughtKey(member));
    }
    for value in [r#"["b64"]"#, r#"["exp"]"#, "[]", "null"] {
        let text = with_header(&format!(r#"{{"alg":"EdDSA","b64":false,"crit":{value}}}"#));
        assert_eq!(parse(&text).unwrap_err(), TokenError::Critical);
    }
}

#[test]
fn a_header_that_can_be_read_in_two_ways_is_refused() {
    let fault = |header: &str| parse(&with_header(header)).unwrap_err().to_string();
    let twice = fault(r#"{"alg":"EdDSA","alg":"none"}"#);
    assert!(twice.contains("duplicate key `alg`"), "{twice}");
    for (header, words) in [
        (r#"{"alg":1}"#, "`alg` should be a string"),
        (r#"{"alg":"EdDSA","kid":7}"#, "`kid` should be a string"),
        ("{}", "`alg` is missing"),
        ("[]", "it is no object"),
    ] {
        assert!(fault(header).contains(words), "{header}");
    }
}

#[test]
fn a_type_is_compared_without_its_case_and_its_prefix() {
    let text = with_header(r#"{"alg":"EdDSA","typ":"application/Provenance+JWT"}"#);
    assert_eq!(parse(&text).unwrap().media_type(), Some("provenance+jwt"));
}

#[test]
fn what_is_not_three_parts_of_base64url_is_no_token() {
    let [header, payload, signature] = ED.split('.').collect::<Vec<_>>()[..] else {
        panic!("three parts");
    };
    for text in [
        String::new(),
        header.to_owned(),
        format!("{header}.{payload}"),
        format!("{ED}."),
        format!("{header}.{payload}.{signature}.{signature}.{signature}"),
        format!("{header}=.{payload}.{signature}"),
        format!(" {ED}"),
        format!("{ED}\n"),
        format!("{header}.{payload}.{}", signature.replace('_', "/")),
    ] {
        assert!(matches!(parse(&text), Err(TokenError::Layout)), "{text:?}");
    }
    let long = format!("{header}.{}.{signature}", "A".repeat(1 << 12));
    assert!(matches!(parse(&long), Err(TokenError::TooLong(length)) if length == long.len()));
}
