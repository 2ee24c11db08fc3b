//! The member `signing_keys` of an agent: the public keys by which it signs its requests, as a JWKS.

use serde::de::{Deserialize, Deserializer, Error};
use std::sync::Arc;
use tokens::{Algorithm, KeySet};

/// The longest name of a key, in bytes: requests can name no longer one.
const KEY_ID_BYTES_MAX: usize = 256;

/// Keys that requests can be verified by: each is for Ed25519, has a name that requests can give, and holds no secret.
#[derive(Debug, Clone)]
pub(super) struct SigningKeysField(pub(super) Arc<serde_json::Value>);

impl<'de> Deserialize<'de> for SigningKeysField {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let jwks: serde_json::Value = canon::foreign(deserializer)?;
        check(&jwks).map_err(Error::custom)?;
        Ok(Self(Arc::new(jwks)))
    }
}

fn check(jwks: &serde_json::Value) -> Result<(), String> {
    let keys = KeySet::parse_new(jwks.to_string().as_bytes()).map_err(|error| error.to_string())?;
    let listed = jwks["keys"].as_array().map_or(0, Vec::len);
    let are_good = keys.count() == listed
        && keys
            .iter()
            .all(|(name, key)| key.algorithm() == Algorithm::Ed25519 && name.is_some_and(can_be_given));
    if are_good {
        Ok(())
    } else {
        let wrong = "requests are signed by Ed25519, and each key has a name (`kid`) of 1 to 256 characters of printable ASCII";
        Err(wrong.to_owned())
    }
}

/// Whether a request can name a key so: `keyid` is a string of RFC 9651.
fn can_be_given(name: &str) -> bool {
    name.len() <= KEY_ID_BYTES_MAX && name.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn keys_are_public_for_ed25519_and_named() {
        let good = json!({"kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"});
        let with = |member: &str, value: serde_json::Value| {
            let mut key = good.clone();
            key[member] = value;
            json!({"keys": [key]})
        };
        assert_eq!(check(&json!({"keys": [good]})), Ok(()));
        assert_eq!(check(&with("kid", json!("my \"key\" ~1"))), Ok(()));
        for (what, jwks) in [
            ("no keys", json!({"keys": []})),
            ("no set", good.clone()),
            (
                "a secret",
                with("d", json!("nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A")),
            ),
            ("no name", with("kid", json!(null))),
            ("a name in no ASCII", with("kid", json!("schlüssel"))),
            ("a name with a tab", with("kid", json!("a\tb"))),
            ("no key", with("x", json!("AAAA"))),
            ("for encryption", with("use", json!("enc"))),
            ("the same name twice", json!({"keys": [good, good]})),
        ] {
            assert!(check(&jwks).is_err(), "{what}");
        }
    }
}
