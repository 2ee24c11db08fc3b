//! Sets of keys: which are taken, which are left out, which are refused, and which one a token is verified with.

use crate::hand::{EXPECTED, Signer, claims, encode, key_set, verify};
use serde_json::{Value, json};
use tokens::token::UNNAMED_KEYS_MAX;
use tokens::{Algorithm, KEY_SET_BYTES_MAX, KEYS_MAX, KeyError, KeySet, KeySetError, PublicKey, TokenError};

fn parse(keys: &Value) -> Result<KeySet, KeySetError> {
    KeySet::parse(json!({ "keys": keys }).to_string().as_bytes())
}

fn with(signer: &Signer, member: &str, value: Value) -> Value {
    let mut jwk = signer.jwk("a");
    jwk[member] = value;
    jwk
}

#[test]
fn a_token_is_verified_with_the_key_that_it_names_also_while_keys_are_rotated() {
    let (old, new, gone) = (Signer::ed25519(1), Signer::p256(), Signer::ed25519(3));
    let both = key_set(&[old.jwk("2026-01"), new.jwk("2026-02")]);
    let token = |signer: &Signer, header| signer.token(header, &claims(json!({})));
    for (signer, id) in [(&old, "2026-01"), (&new, "2026-02")] {
        assert!(
            verify(&token(signer, json!({"kid": id})), &both, EXPECTED).is_ok(),
            "{id}"
        );
    }
    assert_eq!(
        verify(&token(&gone, json!({"kid": "2025-12"})), &both, EXPECTED),
        Err(TokenError::UnknownKey("2025-12".to_owned()))
    );
    assert_eq!(
        verify(&token(&gone, json!({"kid": "2026-01"})), &both, EXPECTED),
        Err(TokenError::Signature)
    );
    assert_eq!(
        verify(&token(&new, json!({"kid": "2026-01"})), &both, EXPECTED),
        Err(TokenError::Algorithm {
            named: "ES256".to_owned(),
            wanted: "EdDSA"
        })
    );
}

#[test]
fn a_token_that_names_no_key_is_for_the_only_one() {
    let (one, other) = (Signer::ed25519(1), Signer::ed25519(2));
    let token = one.token(json!({}), &claims(json!({})));
    assert!(verify(&token, &key_set(&[one.jwk("a")]), EXPECTED).is_ok());
    let two = key_set(&[one.jwk("a"), other.jwk("b")]);
    assert_eq!(verify(&token, &two, EXPECTED), Err(TokenError::UnnamedKey));
}

/// The public key without a name.
fn unnamed(signer: &Signer) -> Value {
    let mut jwk = signer.jwk("a");
    jwk.as_object_mut().unwrap().remove("kid").unwrap();
    jwk
}

#[test]
fn a_token_that_names_no_key_is_for_those_without_a_name_also_while_keys_are_rotated() {
    let [p256, old, new, named] = [
        Signer::p256(),
        Signer::ed25519(1),
        Signer::ed25519(2),
        Signer::ed25519(3),
    ];
    let keys = key_set(&[unnamed(&p256), unnamed(&old), named.jwk("b"), unnamed(&new)]);
    let verdict = |signer: &Signer, header| {
        let token = signer.token(header, &claims(json!({})));
        verify(&token, &keys, EXPECTED).map(|_| ())
    };
    for signer in [&p256, &old, &new] {
        assert_eq!(verdict(signer, json!({})), Ok(()));
        let named_otherwise = verdict(signer, json!({"kid": "a"}));
        assert_eq!(named_otherwise, Err(TokenError::UnknownKey("a".to_owned())));
    }
    assert_eq!(verdict(&named, json!({"kid": "b"})), Ok(()));
    assert_eq!(verdict(&named, json!({})), Err(TokenError::Signature));
    assert_eq!(verdict(&old, json!({"kid": "b"})), Err(TokenError::Signature));
    assert_eq!(verdict(&Signer::rsa(), json!({})), Err(TokenError::UnnamedKey));
}

#[test]
fn a_token_that_names_no_key_is_verified_with_few() {
    let signers: Vec<_> = (1..=5).map(Signer::ed25519).collect();
    let keys: Vec<_> = signers.iter().map(unnamed).collect();
    let keys = key_set(&keys);
    for (place, signer) in signers.iter().enumerate() {
        let token = signer.token(json!({}), &claims(json!({})));
        let is_verified = verify(&token, &keys, EXPECTED).is_ok();
        assert_eq!(is_verified, place < UNNAMED_KEYS_MAX, "{place}");
    }
}

/// The public key of RSA of so many bits and with this exponent, for which nobody can sign, without a name.
fn rsa_of(bits: usize, exponent: impl AsRef<[u8]>) -> Value {
    let mut modulus = vec![0xff; bits.div_ceil(8)];
    modulus[0] = 0xff >> (modulus.len() * 8 - bits);
    json!({"kty": "RSA", "n": encode(modulus), "e": encode(exponent)})
}

/// The usual exponent of RSA, 65,537.
const USUAL: [u8; 3] = [1, 0, 1];
/// The largest exponent of RSA by which the library verifies.
const LARGEST: [u8; 5] = [1, 0xff, 0xff, 0xff, 0xff];

#[test]
fn a_token_that_names_no_key_makes_the_work_of_few_keys_whatever_was_registered_before() {
    let signer = Signer::rsa();
    let token = signer.token(json!({}), &claims(json!({})));
    let alone = key_set(&[unnamed(&signer)]);
    let verified = verify(&token, &alone, EXPECTED).unwrap();
    let (largest, long) = (rsa_of(8_192, LARGEST), rsa_of(8_192, USUAL));
    let (new, short) = (rsa_of(4_096, USUAL), rsa_of(2_048, USUAL));
    for (before, is_tried) in [
        (vec![&new; 3], true),
        (vec![&long], true),
        (vec![&largest], true),
        (vec![&largest, &long], true),
        (vec![&largest, &short], false),
        (vec![&long, &long], false),
        (vec![&long, &new, &new], false),
    ] {
        let before: Vec<_> = before.into_iter().cloned().collect();
        let keys = key_set(&[before, vec![unnamed(&signer)]].concat());
        let verdict = verify(&token, &keys, EXPECTED).map(|_| ());
        let wanted = if is_tried {
            Ok(())
        } else {
            Err(TokenError::Signature)
        };
        assert_eq!(verdict, wanted, "{keys:?}");
        assert_eq!(keys.verifies_by(None, verified.key()), is_tried, "{keys:?}");
    }
    // Whoever has registered two long ones to rotate them has tokens by both.
    let other = rsa_of(8_191, USUAL);
    let rotated = key_set(&[long.clone(), other.clone()]);
    for key in [long, other] {
        let key = PublicKey::from_jwk(key.to_string().as_bytes()).unwrap();
        assert!(rotated.verifies_by(None, &key));
    }
}

/// What stands for a token that was verified, its key and what it calls that, is held against other keys as the token
/// itself would be.
#[test]
fn a_token_is_good_by_other_keys_if_it_would_be_verified_by_them() {
    let [old, new, p256] = [Signer::ed25519(1), Signer::ed25519(2), Signer::p256()];
    let many: Vec<_> = (2..=5).map(|seed| unnamed(&Signer::ed25519(seed))).collect();
    let sets = [
        vec![old.jwk("a")],
        vec![new.jwk("a"), old.jwk("b")],
        vec![new.jwk("b"), old.jwk("a")],
        vec![old.jwk("a"), unnamed(&new)],
        vec![unnamed(&old)],
        vec![unnamed(&p256), unnamed(&new), unnamed(&old)],
        many.iter().cloned().chain([unnamed(&old)]).collect(),
        vec![new.jwk("a")],
    ];
    for header in [json!({"kid": "a"}), json!({})] {
        let id = header["kid"].as_str();
        let token = old.token(header.clone(), &claims(json!({})));
        let first = if id.is_some() { &sets[0] } else { &sets[4] };
        let verified = verify(&token, &key_set(first), EXPECTED).unwrap();
        for keys in &sets {
            let keys = key_set(keys);
            let is_good = verify(&token, &keys, EXPECTED).is_ok();
            assert_eq!(
                keys.verifies_by(verified.key_id(), verified.key()),
                is_good,
                "{id:?} {keys:?}"
            );
        }
    }
}

#[test]
fn the_second_name_of_an_algorithm_is_known() {
    let signer = Signer::ed25519(1);
    let token = signer.token(json!({"alg": "Ed25519"}), &claims(json!({})));
    assert!(verify(&token, &key_set(&[signer.jwk("a")]), EXPECTED).is_ok());
}

#[test]
fn keys_for_something_else_are_left_out() {
    let (good, other) = (Signer::ed25519(1).jwk("good"), Signer::ed25519(2));
    for idle in [
        with(&other, "use", json!("enc")),
        with(&other, "key_ops", json!(["sign"])),
        with(&other, "alg", json!("ES256")),
        with(&other, "crv", json!("Ed448")),
        with(&other, "kty", json!("AKP")),
        with(&Signer::rsa(), "alg", json!("PS256")),
        json!({"kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA"}),
    ] {
        assert_eq!(parse(&json!([good, idle])).unwrap().count(), 1, "{idle}");
        assert_eq!(parse(&json!([idle])), Err(KeySetError::NoneUsable), "{idle}");
    }
    for useful in [
        with(&other, "use", json!("sig")),
        with(&other, "key_ops", json!(["verify", "sign"])),
        with(&other, "alg", json!("EdDSA")),
        with(&other, "x5c", json!(["…"])),
        with(&other, "colour", json!("red")),
    ] {
        assert_eq!(parse(&json!([good, useful])).unwrap().count(), 2, "{useful}");
    }
}

#[test]
fn a_secret_in_a_set_is_refused_and_named() {
    let signer = Signer::ed25519(1);
    for (secret, key) in [
        ("d", with(&signer, "d", json!("AA"))),
        ("k", json!({"kty": "oct", "k": "AA"})),
    ] {
        let refused = parse(&json!([signer.jwk("b"), key])).unwrap_err();
        let source = KeyError::Secret(secret);
        assert_eq!(refused, KeySetError::Key { place: 1, source });
        assert!(
            refused.to_string().contains("register the public key only"),
            "{refused}"
        );
    }
    // An earlier version may have registered this one.
    let of_akp = json!({"kty": "AKP", "alg": "ML-DSA-44", "pub": "AA", "priv": "AA"});
    let keys = json!([signer.jwk("b"), of_akp]);
    assert_eq!(parse(&keys).unwrap().count(), 1);
    let refused = KeySet::parse_new(json!({ "keys": keys }).to_string().as_bytes()).unwrap_err();
    let source = KeyError::Secret("priv");
    assert_eq!(refused, KeySetError::Key { place: 1, source });
}

#[test]
fn a_key_that_is_wrong_makes_the_set_wrong() {
    let (signer, rsa) = (Signer::ed25519(1), Signer::rsa());
    let fault = |key: Value| parse(&json!([key])).unwrap_err().to_string();
    for (key, words) in [
        (
            with(&signer, "x", json!("AAAA")),
            "`/keys/0`: `x` should be base64url of 32 bytes",
        ),
        (with(&signer, "x", json!(7)), "`/keys/0`: `x` should be a string"),
        (
            with(&signer, "kty", json!(7)),
            "`/keys/0`: `kty` should be a string",
        ),
        (
            with(&signer, "kid", json!("")),
            "`/keys/0/kid` should be a string of 1 to 256 bytes",
        ),
        (
            with(&signer, "key_ops", json!("verify")),
            "`/keys/0`: `key_ops` should be an array of words",
        ),
        (
            with(&rsa, "e", json!("!")),
            "`/keys/0`: `e` should be base64url of a number",
        ),
        (
            json!({"kty": "OKP", "crv": "Ed25519"}),
            "`/keys/0`: `x` is missing",
        ),
        (json!({}), "`/keys/0`: `kty` is missing"),
    ] {
        assert_eq!(fault(key), words);
    }
    let twice = parse(&json!([signer.jwk("a"), rsa.jwk("a")]));
    let id = "a".to_owned();
    assert_eq!(twice, Err(KeySetError::Duplicate { place: 1, id }));
}

#[test]
fn an_rsa_key_has_at_least_2048_bits() {
    let of_bits = |bits: usize| {
        let jwk = rsa_of(bits, USUAL);
        PublicKey::from_jwk(jwk.to_string().as_bytes()).map(|key| key.algorithm())
    };
    for bits in [1_024, 2_047, 8_193] {
        assert_eq!(of_bits(bits), Err(KeyError::RsaBits(bits)));
    }
    for bits in [2_048, 4_096, 8_192] {
        assert_eq!(of_bits(bits), Ok(Algorithm::Rs256));
    }
    // Leading zeros make nothing longer.
    let padded = encode([vec![0; 200], vec![0xff; 128]].concat());
    let jwk = json!({"kty": "RSA", "e": "AQAB", "n": padded});
    let found = PublicKey::from_jwk(jwk.to_string().as_bytes());
    assert_eq!(found, Err(KeyError::RsaBits(1_024)));
}

/// What is told of the exponent of a new key.
const EXPONENT: &str = "`/keys/0`: `e` should be odd, at least 3 and at most 65537; sign with a key that has 65537, as nearly all have";

/// What is told of a key that is read where it was registered, and refused where it comes to be.
fn fault_of_new(key: &Value) -> String {
    assert_eq!(parse(&json!([key])).unwrap().count(), 1, "{key}");
    let set = json!({ "keys": [key] }).to_string();
    KeySet::parse_new(set.as_bytes()).unwrap_err().to_string()
}

#[test]
fn what_is_no_key_is_not_registered_any_more() {
    let [_, p256, rsa] = Signer::all();
    let even_modulus: Vec<u8> = [vec![0xff; 255], vec![0xfe]].concat();
    let point = "`/keys/0`: `y` should make a point of P-256 with `x`";
    for (key, words) in [
        (with(&p256, "y", json!(encode([1; 32]))), point),
        (with(&p256, "y", json!(encode([0xff; 32]))), point),
        (
            with(&rsa, "n", json!(encode(even_modulus))),
            "`/keys/0`: `n` should be odd",
        ),
        (with(&rsa, "e", json!("")), EXPONENT),
        (with(&rsa, "e", json!("AQ")), EXPONENT),
        (with(&rsa, "e", json!("Ag")), EXPONENT),
        (with(&rsa, "e", json!(encode([2, 0, 0, 0, 1]))), EXPONENT),
        (with(&rsa, "e", json!(encode([1; 9]))), EXPONENT),
    ] {
        assert_eq!(fault_of_new(&key), words, "{key}");
    }
    let exponents = [&[3_u8][..], &[1, 0, 1], &[0, 0, 0, 1, 0, 1]];
    let good = exponents.map(|e| with(&rsa, "e", json!(encode(e))));
    for key in Signer::all().map(|signer| signer.jwk("a")).iter().chain(&good) {
        let set = json!({ "keys": [key] }).to_string();
        assert!(KeySet::parse_new(set.as_bytes()).is_ok(), "{key}");
    }
}

#[test]
fn an_rsa_key_that_makes_much_work_is_not_registered_any_more() {
    for (key, words) in [
        (
            rsa_of(8_192, USUAL),
            "`/keys/0`: an RSA key has from 2048 to 4096 bits, this one has 8192; leave it out, and sign with another one",
        ),
        (
            rsa_of(4_097, USUAL),
            "`/keys/0`: an RSA key has from 2048 to 4096 bits, this one has 4097; leave it out, and sign with another one",
        ),
        (rsa_of(2_048, LARGEST), EXPONENT),
        (rsa_of(2_048, [1, 0, 3]), EXPONENT),
    ] {
        assert_eq!(fault_of_new(&key), words, "{key}");
    }
    let longest = json!({"keys": [rsa_of(4_096, USUAL)]}).to_string();
    assert!(KeySet::parse_new(longest.as_bytes()).is_ok());
}

#[test]
fn a_key_for_which_everybody_can_sign_is_not_registered_any_more() {
    let mut one = [0_u8; 32];
    one[0] = 1;
    let with_ends = |first, last| {
        let mut bytes = [0xff_u8; 32];
        (bytes[0], bytes[31]) = (first, last);
        bytes
    };
    let signer = Signer::ed25519(1);
    for mut point in [
        [0; 32],
        one,
        with_ends(0xec, 0x7f),
        with_ends(0xed, 0x7f),
        with_ends(0xee, 0x7f),
    ] {
        for _ in 0..2 {
            let key = with(&signer, "x", json!(encode(point)));
            let words = "`/keys/0`: `x` is a point for which everybody can sign";
            assert_eq!(fault_of_new(&key), words, "{key}");
            point[31] ^= 0x80;
        }
    }
    for x in [
        "JuiVj8KyJ7BFw_SJ8u-Y8NXfrAXTxjM5sTgCiG1T_AU",
        "xxdqcD1N2E-6PAt2DRBnDyogU_osOczGTsf9d5KsA3o",
    ] {
        fault_of_new(&with(&signer, "x", json!(x)));
    }
    // With nothing for a point, the signature of nothing is one of whatever is signed, where it was registered.
    let honest = signer.token(json!({"kid": "a"}), &claims(json!({})));
    let (header_and_claims, _) = honest.rsplit_once('.').unwrap();
    let forged = format!("{header_and_claims}.{}", encode([one, [0; 32]].concat()));
    let nothing = key_set(&[with(&signer, "x", json!(encode(one)))]);
    assert!(verify(&forged, &nothing, EXPECTED).is_ok());
}

#[test]
fn a_point_that_is_not_on_the_curve_verifies_nothing() {
    let signer = Signer::p256();
    let token = signer.token(json!({}), &claims(json!({})));
    let off = with(&signer, "y", json!(encode([1; 32])));
    assert_eq!(
        verify(&token, &key_set(&[off]), EXPECTED),
        Err(TokenError::Signature)
    );
}

#[test]
fn a_set_has_bounds() {
    let keys = |count: usize| {
        let keys = (0..count).map(|number| Signer::ed25519(1).jwk(&number.to_string()));
        json!(keys.collect::<Vec<_>>())
    };
    assert_eq!(parse(&keys(KEYS_MAX)).unwrap().count(), KEYS_MAX);
    assert_eq!(
        parse(&keys(KEYS_MAX + 1)),
        Err(KeySetError::TooMany(KEYS_MAX + 1))
    );
    let long = format!("{{\"keys\":[]{}}}", " ".repeat(KEY_SET_BYTES_MAX));
    assert!(matches!(
        KeySet::parse(long.as_bytes()),
        Err(KeySetError::Json(_))
    ));
    for text in [
        "[]",
        "{}",
        "{\"keys\":{}}",
        "{\"keys\":[7]}",
        "{\"keys\":[],\"keys\":[]}",
        "",
    ] {
        assert!(KeySet::parse(text.as_bytes()).is_err(), "{text}");
    }
}
