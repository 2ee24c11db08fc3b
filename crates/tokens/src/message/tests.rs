//! The published signature, and what has to be covered for it to count.

use super::base::Component;
use super::*;

/// RFC 9421, appendix B.1.4.
const KEY: &str = r#"{"kty":"OKP","crv":"Ed25519","x":"JrQLj5P_89iXES9-vFgrIy29clF9CC_oPPsw3c5D0bs"}"#;
/// RFC 9421, appendix B.2.6.
const INPUT: &str = r#"sig-b26=("date" "@method" "@path" "@authority" "content-type" "content-length");created=1618884473;keyid="test-key-ed25519""#;
const SIGNATURE: &str =
    "sig-b26=:wqcAqbmYJ2ji2glfAMaRy4gruYYnx2nEFN2HN6jrnDnQCK1u02Gb04v9EDgwUPiu4A0w6vuQv5lIp5WPpBKRCw==:";

/// RFC 9421, appendix B.2.
const REQUEST: Request<'_> = Request {
    method: "POST",
    scheme: "https",
    authority: "example.com",
    path: "/foo",
    query: Some("param=Value&Pet=dog"),
    fields: &[
        ("Host", "example.com"),
        ("Date", "Tue, 20 Apr 2021 02:07:55 GMT"),
        ("Content-Type", "application/json"),
        (
            "Content-Digest",
            "sha-512=:WZDPaVn/7XgHaAy8pmojAkGWoRx2UFChF41A2svX+TaPm+AbwAgBWnrIiYllu7BNNyealdVLvRwEmTHWXvJwew==:",
        ),
        ("Content-Length", "18"),
    ],
    body: br#"{"hello": "world"}"#,
};

fn key() -> PublicKey {
    PublicKey::from_jwk(KEY.as_bytes()).unwrap()
}

fn published() -> RequestSignature {
    RequestSignature::parse(INPUT, SIGNATURE).unwrap()
}

fn base_of(request: &Request<'_>, components: &str) -> Result<String, MessageError> {
    let signature = RequestSignature::parse(&format!("a=({components});keyid=\"k\""), "a=:aQ==:")?;
    base::signed(request, &signature.components, &signature.parameters)
}

#[test]
fn the_published_signature_verifies() {
    assert_eq!(published().check_signature(&REQUEST, &key()), Ok(()));
    assert_eq!(published().key_id(), "test-key-ed25519");
    let other = Request {
        method: "PUT",
        ..REQUEST
    };
    assert_eq!(
        published().check_signature(&other, &key()),
        Err(MessageError::Signature)
    );
}

#[test]
fn the_published_signature_does_not_cover_enough() {
    let now = Timestamp::from_millis(1_618_884_473_000);
    assert_eq!(
        published().verify(&REQUEST, &key(), now),
        Err(MessageError::Uncovered("@target-uri"))
    );
}

#[test]
fn each_component_has_its_line() {
    let all = r#""@method" "@target-uri" "@authority" "@scheme" "@path" "@query" "date""#;
    let expected = r#""@method": POST
"@target-uri": https://example.com/foo?param=Value&Pet=dog
"@authority": example.com
"@scheme": https
"@path": /foo
"@query": ?param=Value&Pet=dog
"date": Tue, 20 Apr 2021 02:07:55 GMT
"@signature-params": ("@method" "@target-uri" "@authority" "@scheme" "@path" "@query" "date");keyid="k""#;
    assert_eq!(base_of(&REQUEST, all).unwrap(), expected);
}

#[test]
fn hosts_paths_queries_and_headers_are_brought_to_one_form() {
    let request = Request {
        scheme: "HTTPS",
        authority: "WWW.Example.com:443",
        path: "",
        query: None,
        fields: &[("X-Two", "  a\t"), ("x-two", "b"), ("X-None", "")],
        ..REQUEST
    };
    let base = base_of(
        &request,
        r#""@target-uri" "@authority" "@path" "@query" "x-two" "x-none""#,
    );
    let expected = "\"@target-uri\": https://www.example.com/\n\"@authority\": www.example.com\n\"@path\": /\n\
                    \"@query\": ?\n\"x-two\": a, b\n\"x-none\": \n\"@signature-params\": ";
    let base = base.unwrap();
    assert!(base.starts_with(expected), "{base}");
    let other_port = Request {
        authority: "example.com:8443",
        ..REQUEST
    };
    assert!(
        base_of(&other_port, "\"@authority\"")
            .unwrap()
            .starts_with("\"@authority\": example.com:8443\n")
    );
}

#[test]
fn what_is_not_there_cannot_be_covered() {
    assert_eq!(
        base_of(&REQUEST, r#""authorization""#),
        Err(MessageError::Absent("authorization".to_owned()))
    );
    for name in ["@status", "@query-param", "@signature-params", "Date", "", "a b"] {
        assert_eq!(
            base_of(&REQUEST, &format!("\"{name}\"")),
            Err(MessageError::Component(name.to_owned()))
        );
    }
    for item in [r#""date";sf"#, r#""date";req"#, r#""cache";key="a""#] {
        assert!(
            matches!(base_of(&REQUEST, item), Err(MessageError::Component(_))),
            "{item}"
        );
    }
    assert_eq!(
        base_of(&REQUEST, r#""date" "@path" "date""#),
        Err(MessageError::Repeated("date".to_owned()))
    );
    let many: Vec<_> = (0..33).map(|number| format!("\"x-{number}\"")).collect();
    assert_eq!(
        base_of(&REQUEST, &many.join(" ")),
        Err(MessageError::Component("x-32".to_owned()))
    );
}

#[test]
fn a_line_break_in_a_header_makes_no_second_component() {
    let request = Request {
        fields: &[("x-a", "1\n\"@method\": GET")],
        ..REQUEST
    };
    assert_eq!(
        base_of(&request, r#""x-a""#),
        Err(MessageError::Component("x-a".to_owned()))
    );
}

#[test]
fn one_signature_under_one_label_is_read_and_nothing_else() {
    let read = |input: &str, signature: &str| RequestSignature::parse(input, signature).unwrap_err();
    let (input, signature) = (r#"a=();keyid="k""#, "a=:aQ==:");
    assert!(RequestSignature::parse(input, signature).is_ok());
    for (input, signature) in [
        ("", ""),
        (input, ""),
        (input, "b=:aQ==:"),
        (input, "a=:aQ==:, b=:aQ==:"),
        (r#"a=();keyid="k", b=();keyid="k""#, signature),
        (input, "a=token"),
        (input, "a=(:aQ==:)"),
        (r#"a="x";keyid="k""#, signature),
        (r#"a=(date);keyid="k""#, signature),
    ] {
        assert_eq!(
            read(input, signature),
            MessageError::Labels,
            "{input} {signature}"
        );
    }
    for (input, name) in [
        ("a=()", "keyid"),
        (r#"a=();keyid="""#, "keyid"),
        ("a=();keyid=k", "keyid"),
        (r#"a=();keyid="k";alg="rsa-pss-sha512""#, "alg"),
        (r#"a=();keyid="k";created=1.5"#, "created"),
        (r#"a=();keyid="k";created=-1"#, "created"),
        (r#"a=();keyid="k";expires="now""#, "expires"),
        (r#"a=();keyid="k";nonce=7"#, "nonce"),
    ] {
        assert!(
            matches!(read(input, signature), MessageError::Parameter { name: found, .. } if found == name),
            "{input}"
        );
    }
    assert!(matches!(
        read("a=(", signature),
        MessageError::Field {
            field: "Signature-Input",
            ..
        }
    ));
}

/// So many names that are all different.
fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n{number}")).collect()
}

#[test]
fn headers_with_more_names_than_a_signature_has_are_not_read_to_their_end() {
    let read = |input: &str, signature: &str| RequestSignature::parse(input, signature).map(|_| ());
    let too_many = |field| {
        Err(MessageError::Field {
            field,
            source: FieldError::TooManyNames,
        })
    };
    let (input, signature) = (r#"a=();keyid="k""#, "a=:aQ==:");
    assert_eq!(
        read(&format!("{input};{}", names(62).join(";")), signature),
        Ok(())
    );
    assert_eq!(
        read(&format!("{input};{}", names(63).join(";")), signature),
        too_many("Signature-Input")
    );
    assert_eq!(read(&names(65).join(","), signature), too_many("Signature-Input"));
    assert_eq!(read(input, &names(65).join(",")), too_many("Signature"));
}

#[test]
fn more_digests_of_a_body_than_anybody_sends_are_not_read_to_their_end() {
    let check = |others: usize| {
        let others = names(others).join(", ");
        let field = format!("{others}, sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:");
        let request = Request {
            fields: &[("Content-Digest", field.as_str())],
            ..REQUEST
        };
        digest::check(&request)
    };
    assert_eq!(check(63), Ok(()));
    let too_many = MessageError::Field {
        field: "Content-Digest",
        source: FieldError::TooManyNames,
    };
    assert_eq!(check(64), Err(too_many));
}

#[test]
fn components_are_what_their_names_say() {
    for name in [
        "@method",
        "@target-uri",
        "@authority",
        "@scheme",
        "@path",
        "@query",
        "x-a",
    ] {
        assert!(Component::of(name).is_some(), "{name}");
    }
}
