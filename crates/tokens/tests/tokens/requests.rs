//! Requests that are signed here: what a signature has to cover, when it counts, and that it is of this request.

use crate::hand::{NOW, Signer, at};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canon::Digest;
use model::Timestamp;
use tokens::message::{SIGNATURE_AGE_SECONDS_MAX, SIGNATURE_LEEWAY_SECONDS};
use tokens::{MessageError, PublicKey, Request, RequestSignature, SignedRequest};

pub(crate) const COVERED: &str = r#""@method" "@target-uri" "content-digest" "authorization""#;
pub(crate) const BODY: &[u8] = br#"{"tool_call":{}}"#;

/// A request with its signature.
pub(crate) struct Sent {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) query: String,
    pub(crate) authorization: String,
    pub(crate) content_digest: String,
    /// Headers that a request may have.
    pub(crate) others: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) input: String,
    pub(crate) signature: String,
}

impl Sent {
    /// A good one, that covers this and is made like this.
    pub(crate) fn signed(covered: &str, parameters: &str) -> Self {
        Self::signed_with(Vec::new(), covered, parameters)
    }

    /// A good one with more headers, that covers this and is made like this.
    fn signed_with(others: Vec<(&'static str, String)>, covered: &str, parameters: &str) -> Self {
        let mut sent = Self {
            method: "POST".to_owned(),
            path: "/v1/authorize".to_owned(),
            query: "a=1".to_owned(),
            authorization: "Bearer csa_secret".to_owned(),
            content_digest: format!("sha-256=:{}:", STANDARD.encode(Digest::of(BODY).as_bytes())),
            others,
            body: BODY.to_vec(),
            input: format!("sig=({covered}){parameters}"),
            signature: String::new(),
        };
        let lines = covered.split(' ').map(|name| {
            let value = match name {
                "\"@method\"" => sent.method.clone(),
                "\"@target-uri\"" => "https://gateway.example.com/v1/authorize?a=1".to_owned(),
                "\"@path\"" => sent.path.clone(),
                "\"@query\"" => format!("?{}", sent.query),
                "\"content-digest\"" => sent.content_digest.clone(),
                "\"authorization\"" => sent.authorization.clone(),
                other => {
                    let mut others = sent.others.iter();
                    let (_, value) = others.find(|(name, _)| other == format!("\"{name}\"")).unwrap();
                    value.clone()
                }
            };
            format!("{name}: {value}\n")
        });
        let base = format!(
            "{}\"@signature-params\": ({covered}){parameters}",
            lines.collect::<String>()
        );
        sent.signature = format!(
            "sig=:{}:",
            STANDARD.encode(Signer::ed25519(1).sign(base.as_bytes()))
        );
        sent
    }

    pub(crate) fn verify_at(&self, now: Timestamp) -> Result<SignedRequest, MessageError> {
        let mut fields = vec![
            ("Authorization", self.authorization.as_str()),
            ("Content-Digest", self.content_digest.as_str()),
        ];
        fields.extend(self.others.iter().map(|(name, value)| (*name, value.as_str())));
        let request = Request {
            method: &self.method,
            scheme: "https",
            authority: "gateway.example.com",
            path: &self.path,
            query: Some(&self.query),
            fields: &fields,
            body: &self.body,
        };
        RequestSignature::parse(&self.input, &self.signature)?.verify(&request, &key(), now)
    }

    pub(crate) fn verify(&self) -> Result<SignedRequest, MessageError> {
        self.verify_at(at(NOW))
    }
}

fn key() -> PublicKey {
    PublicKey::from_jwk(Signer::ed25519(1).jwk("agent-key").to_string().as_bytes()).unwrap()
}

pub(crate) fn parameters(created: i64) -> String {
    format!(";created={created};keyid=\"agent-key\";nonce=\"n-1\"")
}

#[test]
fn a_request_that_is_signed_as_it_should_be_is_signed() {
    for covered in [
        COVERED,
        r#""@method" "@path" "@query" "content-digest" "authorization""#,
    ] {
        let signed = Sent::signed(covered, &parameters(NOW)).verify().unwrap();
        assert_eq!((signed.key_id(), signed.nonce()), ("agent-key", "n-1"));
        assert_eq!(signed.created(), at(NOW));
        assert_eq!(signed.forgotten_at(), at(NOW + 360));
    }
    let named = format!("{};alg=\"ed25519\";tag=\"countersign\"", parameters(NOW));
    assert!(Sent::signed(COVERED, &named).verify().is_ok());
}

#[test]
fn a_signature_that_leaves_something_out_is_refused() {
    for (covered, left_out) in [
        (r#""@target-uri" "content-digest" "authorization""#, "@method"),
        (r#""@method" "content-digest" "authorization""#, "@target-uri"),
        (
            r#""@method" "@path" "content-digest" "authorization""#,
            "@target-uri",
        ),
        (
            r#""@method" "@query" "content-digest" "authorization""#,
            "@target-uri",
        ),
        (r#""@method" "@target-uri" "authorization""#, "content-digest"),
        (r#""@method" "@target-uri" "content-digest""#, "authorization"),
    ] {
        let refused = Sent::signed(covered, &parameters(NOW)).verify();
        assert_eq!(refused, Err(MessageError::Uncovered(left_out)));
    }
    for (parameters, name) in [
        (format!(";created={NOW};keyid=\"k\""), "nonce"),
        (";keyid=\"k\";nonce=\"n\"".to_owned(), "created"),
        (format!(";created={NOW};nonce=\"n\""), "keyid"),
    ] {
        let refused = Sent::signed(COVERED, &parameters).verify();
        let fault = "is missing";
        assert_eq!(refused, Err(MessageError::Parameter { name, fault }));
    }
}

#[test]
fn a_header_that_decides_what_is_done_is_covered_or_not_there() {
    for name in ["idempotency-key", "countersign-tenant"] {
        let header = |value: &str| vec![(name, value.to_owned())];
        let covered = format!("{COVERED} \"{name}\"");
        let good = || Sent::signed_with(header("one"), &covered, &parameters(NOW));
        assert!(good().verify().is_ok());

        let changed = Sent {
            others: header("two"),
            ..good()
        };
        assert_eq!(changed.verify(), Err(MessageError::Signature));
        let doubled = Sent {
            others: [header("one"), header("two")].concat(),
            ..good()
        };
        assert_eq!(doubled.verify(), Err(MessageError::Signature));
        let taken_away = Sent {
            others: Vec::new(),
            ..good()
        };
        assert_eq!(taken_away.verify(), Err(MessageError::Absent(name.to_owned())));
        let added = Sent {
            others: header("one"),
            ..Sent::signed(COVERED, &parameters(NOW))
        };
        assert_eq!(added.verify(), Err(MessageError::Uncovered(name)));
    }
}

#[test]
fn a_signature_counts_for_some_minutes() {
    let sent = Sent::signed(COVERED, &parameters(NOW));
    let last = NOW + SIGNATURE_AGE_SECONDS_MAX + SIGNATURE_LEEWAY_SECONDS;
    for (now, is_good) in [
        (NOW - 61, false),
        (NOW - 60, true),
        (NOW, true),
        (last - 1, true),
        (last, false),
    ] {
        assert_eq!(sent.verify_at(at(now)).is_ok(), is_good, "{}", now - NOW);
    }
    let short = Sent::signed(COVERED, &format!("{};expires={}", parameters(NOW), NOW + 10));
    assert_eq!(short.verify().unwrap().forgotten_at(), at(NOW + 70));
    assert_eq!(
        short.verify_at(at(NOW + 100)),
        Err(MessageError::Expired {
            until: at(NOW + 10),
            now: at(NOW + 100)
        })
    );
    // What expires late is still forgotten in time.
    let long = Sent::signed(COVERED, &format!("{};expires={}", parameters(NOW), NOW + 86_400));
    assert_eq!(long.verify().unwrap().forgotten_at(), at(last));
}

#[test]
fn another_body_is_noticed_also_if_its_digest_was_not_changed() {
    let mut sent = Sent::signed(COVERED, &parameters(NOW));
    sent.body = b"{}".to_vec();
    assert_eq!(sent.verify(), Err(MessageError::Digest));
    sent.content_digest = format!("sha-256=:{}:", STANDARD.encode(Digest::of(b"{}").as_bytes()));
    assert_eq!(sent.verify(), Err(MessageError::Signature));
}

#[test]
fn only_the_sha_256_of_the_body_is_a_digest_of_it() {
    for digest in [
        String::new(),
        "sha-512=:AAAA:".to_owned(),
        "sha-256=:AAAA:".to_owned(),
        format!("sha-256=\"{}\"", STANDARD.encode(Digest::of(BODY).as_bytes())),
        format!("md5=:{}:", STANDARD.encode(Digest::of(BODY).as_bytes())),
    ] {
        let mut sent = Sent::signed(COVERED, &parameters(NOW));
        let base = format!(
            "\"@method\": POST\n\"@target-uri\": https://gateway.example.com/v1/authorize?a=1\n\"content-digest\": {digest}\n\
             \"authorization\": Bearer csa_secret\n\"@signature-params\": ({COVERED}){}",
            parameters(NOW)
        );
        sent.signature = format!(
            "sig=:{}:",
            STANDARD.encode(Signer::ed25519(1).sign(base.as_bytes()))
        );
        sent.content_digest.clone_from(&digest);
        assert_eq!(sent.verify(), Err(MessageError::Digest), "{digest}");
    }
}

#[test]
fn requests_are_signed_by_ed25519_and_nothing_else() {
    let sent = Sent::signed(COVERED, &parameters(NOW));
    let rsa = PublicKey::from_jwk(Signer::rsa().jwk("a").to_string().as_bytes()).unwrap();
    let fields = [
        ("authorization", sent.authorization.as_str()),
        ("content-digest", sent.content_digest.as_str()),
    ];
    let request = Request {
        method: "POST",
        scheme: "https",
        authority: "gateway.example.com",
        path: "/v1/authorize",
        query: Some("a=1"),
        fields: &fields,
        body: BODY,
    };
    let signature = RequestSignature::parse(&sent.input, &sent.signature).unwrap();
    assert_eq!(
        signature.verify(&request, &rsa, at(NOW)),
        Err(MessageError::Key("RS256"))
    );
}
