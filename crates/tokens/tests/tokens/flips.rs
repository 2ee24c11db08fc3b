//! Whatever byte is changed, it does not verify any more.

use crate::hand::{EXPECTED, NOW, Signer, claims, key_set, verify};
use crate::requests::{COVERED, Sent, parameters};
use proptest::prelude::*;
use serde_json::json;
use tokens::KeySet;

/// The same text with another byte in one place, which is still ASCII.
fn flipped(text: &str, place: prop::sample::Index, with: u8) -> Option<String> {
    let mut bytes = text.as_bytes().to_vec();
    let place = place.index(bytes.len());
    if bytes[place] == with {
        return None;
    }
    bytes[place] = with;
    Some(String::from_utf8(bytes).unwrap())
}

fn good() -> Vec<(String, KeySet)> {
    let signers = Signer::all().into_iter();
    let signed = signers.map(|signer| {
        let token = signer.token(json!({"kid": "a"}), &claims(json!({})));
        (token, key_set(&[signer.jwk("a")]))
    });
    signed.collect()
}

proptest! {
    #[test]
    fn no_byte_of_a_token_can_be_changed(place: prop::sample::Index, with in 0x20_u8..0x7f) {
        static GOOD: std::sync::LazyLock<Vec<(String, KeySet)>> = std::sync::LazyLock::new(good);
        for (token, keys) in &*GOOD {
            prop_assert!(verify(token, keys, EXPECTED).is_ok());
            if let Some(other) = flipped(token, place, with) {
                prop_assert!(verify(&other, keys, EXPECTED).is_err(), "{other}");
            }
        }
    }

    #[test]
    fn no_byte_of_a_signed_request_can_be_changed(which in 0..8_usize, place: prop::sample::Index, with in 0x21_u8..0x7f) {
        let mut sent = Sent::signed(COVERED, &parameters(NOW));
        prop_assert!(sent.verify().is_ok());
        let part = match which {
            0 => &mut sent.method,
            1 => &mut sent.path,
            2 => &mut sent.query,
            3 => &mut sent.authorization,
            4 => &mut sent.content_digest,
            5 => &mut sent.input,
            6 => &mut sent.signature,
            _ => {
                let place = place.index(sent.body.len());
                sent.body[place] ^= with;
                prop_assert!(sent.verify().is_err());
                return Ok(());
            }
        };
        if let Some(other) = flipped(part, place, with) {
            *part = other;
            prop_assert!(sent.verify().is_err(), "{} {}", sent.input, sent.signature);
        }
    }

    #[test]
    fn nothing_makes_a_reader_panic(text in "\\PC{0,200}") {
        let _ = tokens::UnverifiedToken::parse(&text);
        let _ = KeySet::parse(text.as_bytes());
        let _ = tokens::fields::dictionary(&text);
        let _ = tokens::fields::list(&text);
        let _ = tokens::fields::item(&text);
        let _ = tokens::RequestSignature::parse(&text, &text);
    }
}
