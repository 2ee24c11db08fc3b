//! An issuer: keys that sign, and tokens signed with them.

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use model::Timestamp;
use serde_json::{Value, json};
use tokens::{Claims, Expected, KeySet, Purpose, TokenError, UnverifiedToken};

/// When everything happens, in seconds.
pub(crate) const NOW: i64 = 1_800_000_000;
pub(crate) const ISSUER: &str = "https://idp.example.com";
pub(crate) const AUDIENCE: &str = "countersign";

/// A key that signs.
pub(crate) enum Signer {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(Box<rsa::KeyPair>),
}

impl Signer {
    pub(crate) fn ed25519(seed: u8) -> Self {
        Self::Ed25519(Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap())
    }

    pub(crate) fn p256() -> Self {
        let (algorithm, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
        Self::P256(EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref()).unwrap())
    }

    /// The key of RFC 7515, appendix A.2: it takes long to make one.
    pub(crate) fn rsa() -> Self {
        let [n, d, p, q, dp, dq, qi] = PUBLISHED_RSA_KEY.map(decode);
        let components = rsa::KeyPairComponents {
            public_key: rsa::PublicKeyComponents { n, e: vec![1, 0, 1] },
            d,
            p,
            q,
            dP: dp,
            dQ: dq,
            qInv: qi,
        };
        Self::Rsa(Box::new(rsa::KeyPair::from_components(&components).unwrap()))
    }

    pub(crate) fn all() -> [Self; 3] {
        [Self::ed25519(1), Self::p256(), Self::rsa()]
    }

    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Ed25519(_) => "EdDSA",
            Self::P256(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    pub(crate) fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::P256(key) => key.sign(&random, message).unwrap().as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public_modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .unwrap();
                signature
            }
        }
    }

    /// The public key under this name.
    pub(crate) fn jwk(&self, id: &str) -> Value {
        match self {
            Self::Ed25519(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "x": encode(key.public_key().as_ref())})
            }
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "x": encode(x), "y": encode(y)})
            }
            Self::Rsa(_) => json!({"kty": "RSA", "kid": id, "n": PUBLISHED_RSA_KEY[0], "e": "AQAB"}),
        }
    }

    /// A token with this header beside `alg`, and these claims.
    pub(crate) fn token(&self, mut header: Value, claims: &Value) -> String {
        header["alg"] = header
            .get("alg")
            .cloned()
            .unwrap_or_else(|| json!(self.algorithm()));
        let signed = format!("{}.{}", encode(header.to_string()), encode(claims.to_string()));
        let signature = self.sign(signed.as_bytes());
        format!("{signed}.{}", encode(signature))
    }
}

/// A set of these keys.
pub(crate) fn key_set(keys: &[Value]) -> KeySet {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes()).unwrap()
}

/// Claims that are good now, with these in place of their own; `null` takes one away.
#[expect(
    clippy::needless_pass_by_value,
    reason = "what is written in the call needs no borrow"
)]
pub(crate) fn claims(changes: Value) -> Value {
    let mut claims = json!({"iss": ISSUER, "aud": AUDIENCE, "sub": "u-17", "exp": NOW + 300, "iat": NOW});
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

/// What is expected of people's tokens.
pub(crate) const EXPECTED: Expected<'_> = Expected {
    purpose: Purpose::People,
    issuer: ISSUER,
    audience: AUDIENCE,
};

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_millis(seconds * 1_000)
}

pub(crate) fn verify(token: &str, keys: &KeySet, expected: Expected<'_>) -> Result<Claims, TokenError> {
    UnverifiedToken::parse(token)?.verify(keys, expected, at(NOW))
}

/// What becomes of these claims, well signed.
pub(crate) fn verify_claims(changes: Value) -> Result<Claims, TokenError> {
    let signer = Signer::ed25519(1);
    let token = signer.token(json!({"kid": "a"}), &claims(changes));
    verify(&token, &key_set(&[signer.jwk("a")]), EXPECTED)
}

pub(crate) fn encode(bytes: impl AsRef<[u8]>) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

fn decode(text: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(text).unwrap()
}

/// `n`, `d`, `p`, `q`, `dp`, `dq`, `qi`.
const PUBLISHED_RSA_KEY: [&str; 7] = [
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ",
    "Eq5xpGnNCivDflJsRQBXHx1hdR1k6Ulwe2JZD50LpXyWPEAeP88vLNO97IjlA7_GQ5sLKMgvfTeXZx9SE-7YwVol2NXOoAJe46sui395IW_GO-pWJ1O0BkTGoVEn2bKVRUCgu-GjBVaYLU6f3l9kJfFNS3E0QbVdxzubSu3Mkqzjkn439X0M_V51gfpRLI9JYanrC4D4qAdGcopV_0ZHHzQlBjudU2QvXt4ehNYTCBr6XCLQUShb1juUO1ZdiYoFaFQT5Tw8bGUl_x_jTj3ccPDVZFD9pIuhLhBOneufuBiB4cS98l2SR_RQyGWSeWjnczT0QU91p1DhOVRuOopznQ",
    "4BzEEOtIpmVdVEZNCqS7baC4crd0pqnRH_5IB3jw3bcxGn6QLvnEtfdUdiYrqBdss1l58BQ3KhooKeQTa9AB0Hw_Py5PJdTJNPY8cQn7ouZ2KKDcmnPGBY5t7yLc1QlQ5xHdwW1VhvKn-nXqhJTBgIPgtldC-KDV5z-y2XDwGUc",
    "uQPEfgmVtjL0Uyyx88GZFF1fOunH3-7cepKmtH4pxhtCoHqpWmT8YAmZxaewHgHAjLYsp1ZSe7zFYHj7C6ul7TjeLQeZD_YwD66t62wDmpe_HlB-TnBA-njbglfIsRLtXlnDzQkv5dTltRJ11BKBBypeeF6689rjcJIDEz9RWdc",
    "BwKfV3Akq5_MFZDFZCnW-wzl-CCo83WoZvnLQwCTeDv8uzluRSnm71I3QCLdhrqE2e9YkxvuxdBfpT_PI7Yz-FOKnu1R6HsJeDCjn12Sk3vmAktV2zb34MCdy7cpdTh_YVr7tss2u6vneTwrA86rZtu5Mbr1C1XsmvkxHQAdYo0",
    "h_96-mK1R_7glhsum81dZxjTnYynPbZpHziZjeeHcXYsXaaMwkOlODsWa7I9xXDoRwbKgB719rrmI2oKr6N3Do9U0ajaHF-NKJnwgjMd2w9cjz3_-kyNlxAr2v4IKhGNpmM5iIgOS1VZnOZ68m6_pbLBSp3nssTdlqvd0tIiTHU",
    "IYd7DHOhrWvxkwPQsRM2tOgrjbcrfvtQJipd-DlcxyVuuM9sQLdgjVk2oy26F0EmpScGLq2MowX7fhd_QJQ3ydy5cY7YIBi87w93IKLEdfnbJtoOPLUW0ITrJReOgo1cq9SbsxYawBgfp_gh6A5603k2-ZQwVK0JKSHuLFkuQ3U",
];
