//! Notes, checkpoints and cosignatures of our own: who is believed, for which log and for how long.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use canon::Digest;
use ledger::witness::{add_cosignatures, cosignature_lines};
use ledger::{
    Checkpoint, KeySet, MalformedKeySet, Moment, Note, NoteFault, PublishedKey, SIGNATURES_MAX,
    SignatureKind, SigningKey, TrustPolicy, Untrusted, VerifierKey, Witnessed,
};
use proptest::prelude::*;

const LOG: &str = "log.example";
const TENANT: &str = "tnt_01jz0000000000000000000000";

fn key(name: &str, kind: SignatureKind, seed: u8) -> SigningKey {
    SigningKey::from_seed(name, kind, &[seed; 32]).unwrap()
}

fn log_key(seed: u8) -> SigningKey {
    key(LOG, SignatureKind::Note, seed)
}

fn witness(number: u8) -> SigningKey {
    let name = format!("witness.example/{number}");
    key(&name, SignatureKind::Cosignature, 100 + number)
}

fn moment(text: &str) -> Moment {
    text.parse().unwrap()
}

fn trust(keys: &[&SigningKey]) -> TrustPolicy {
    let keys = keys.iter().map(|key| PublishedKey {
        vkey: key.verifier().clone(),
        not_before: None,
        not_after: None,
    });
    TrustPolicy::in_log(KeySet::new(keys.collect()).unwrap())
}

fn checkpoint() -> Checkpoint {
    Checkpoint::new(LOG, TENANT, 42, Digest::of(b"root"))
}

#[test]
fn a_checkpoint_is_believed_from_the_log_alone() {
    let note = checkpoint().sign(&[&log_key(1)]).unwrap().to_string();
    let opened = trust(&[&log_key(1)]).open(note.as_bytes()).unwrap();
    assert_eq!(opened.checkpoint(), &checkpoint());
    assert_eq!((opened.tenant(), opened.witnesses()), (TENANT, &[][..]));
    assert_eq!(&opened.key().vkey, log_key(1).verifier());
    let stranger = trust(&[&log_key(2)]).open(note.as_bytes());
    assert_eq!(stranger, Err(NoteFault::UnknownKey.into()));
    // Somebody else's key under the log's own name and id does not exist; under the name alone it is a stranger's.
    let renamed = note.replace(LOG, "log.other");
    let refused = trust(&[&log_key(1)]).open(renamed.as_bytes());
    assert_eq!(refused, Err(NoteFault::UnknownKey.into()));
}

#[test]
fn a_key_speaks_for_the_tenants_of_its_log_only() {
    for origin in [
        LOG,
        "log.example/",
        "log.other/tnt_1",
        "log.example/a/b",
        "log.example.org/tnt_1",
    ] {
        let foreign = Checkpoint {
            origin: origin.to_owned(),
            ..checkpoint()
        };
        let note = foreign.sign(&[&log_key(1)]).unwrap().to_string();
        let refusal = Untrusted::WrongOrigin {
            log: LOG.to_owned(),
            origin: origin.to_owned(),
        };
        assert_eq!(trust(&[&log_key(1)]).open(note.as_bytes()), Err(refusal));
    }
}

#[test]
fn what_is_signed_and_is_not_a_checkpoint_is_refused() {
    let note = Note::sign("log.example/tnt_1\n42\n", &[&log_key(1)]).unwrap();
    let refused = trust(&[&log_key(1)])
        .open(note.to_string().as_bytes())
        .unwrap_err();
    assert_eq!(
        refused.to_string(),
        "not a checkpoint: expected a root hash in base64"
    );
}

#[test]
fn a_new_key_follows_an_old_one() {
    let [old, new] = [1, 2].map(log_key);
    let keys = KeySet::new(vec![
        PublishedKey {
            vkey: old.verifier().clone(),
            not_before: None,
            not_after: Some(moment("2026-07-31T23:59:59.999Z")),
        },
        PublishedKey {
            vkey: new.verifier().clone(),
            not_before: Some(moment("2026-07-30T00:00:00.000Z")),
            not_after: None,
        },
    ])
    .unwrap();
    let read = KeySet::parse(&serde_json::to_string(&keys).unwrap()).unwrap();
    assert_eq!(read, keys);
    let trust = TrustPolicy::in_log(keys);

    let open = |keys: &[&SigningKey]| {
        let note = checkpoint().sign(keys).unwrap().to_string();
        trust.open(note.as_bytes()).unwrap()
    };
    let (before, after) = (
        moment("2026-07-31T00:00:00.000Z"),
        moment("2026-08-01T00:00:00.000Z"),
    );
    assert_eq!(open(&[&old]).covers(before), Ok(()));
    let refusal = Untrusted::KeyEnded {
        key: old.verifier().label(),
        ended: moment("2026-07-31T23:59:59.999Z"),
        at: after,
    };
    assert_eq!(open(&[&old]).covers(after), Err(refusal));
    assert_eq!(open(&[&new]).covers(after), Ok(()));
    // While both sign, the one that lasts longer counts, in whatever order they stand.
    for both in [[&old, &new], [&new, &old]] {
        assert_eq!(open(&both).covers(after), Ok(()));
    }
    let [first, second] = trust.keys.keys() else {
        panic!("two keys");
    };
    assert!(first.is_valid_at(before) && second.is_valid_at(before));
    assert!(!first.is_valid_at(after) && !second.is_valid_at(moment("2026-07-29T00:00:00.000Z")));
}

#[test]
fn keys_that_cannot_be_told_apart_or_sign_nothing_are_refused() {
    let vkey = log_key(1).verifier().clone();
    let label = vkey.label();
    let published = PublishedKey {
        vkey,
        not_before: None,
        not_after: None,
    };
    let twice = KeySet::new(vec![published.clone(), published.clone()]);
    assert_eq!(twice, Err(MalformedKeySet::Twice(label.clone())));
    let inverted = PublishedKey {
        not_before: Some(moment("2026-07-02T00:00:00.000Z")),
        not_after: Some(moment("2026-07-01T00:00:00.000Z")),
        ..published
    };
    assert_eq!(KeySet::new(vec![inverted]), Err(MalformedKeySet::Inverted(label)));
    assert_eq!(KeySet::new(Vec::new()), Err(MalformedKeySet::Empty));
    let of_witness = KeySet::of(witness(1).verifier().clone());
    assert_eq!(
        of_witness,
        Err(MalformedKeySet::Witness(witness(1).verifier().label()))
    );
    let vkey = log_key(1).verifier().to_string();
    let twice = format!("{{\"vkey\":\"{vkey}\"}},{{\"vkey\":\"{vkey}\"}}");
    let unending = format!("{{\"vkey\":\"{vkey}\"}},{{\"vkey\":\"{vkey}\",\"not_after\":7}}");
    for (keys, said) in [(twice, "the key"), (unending, "`/keys/1/not_after`: ")] {
        let error = KeySet::parse(&format!("{{\"keys\":[{keys}]}}")).unwrap_err();
        let expected = format!("the keys cannot be read: {said}");
        assert!(error.to_string().starts_with(&expected), "{error}");
    }
    for json in [
        "{}",
        "{\"keys\":[]}",
        "{\"keys\":[{}]}",
        &format!("{{\"keys\":[{{\"vkey\":\"{vkey}\",\"not_after\":\"yesterday\"}}]}}"),
        &format!("{{\"keys\":[{{\"vkey\":\"x{vkey}\"}}]}}"),
    ] {
        assert!(
            matches!(KeySet::parse(json), Err(MalformedKeySet::Unreadable(_))),
            "{json}"
        );
    }
    assert!(
        KeySet::parse(&format!(
            "{{\"keys\":[{{\"vkey\":\"{vkey}\",\"not_after\":null}}]}}"
        ))
        .is_ok()
    );
}

#[test]
fn as_many_witnesses_as_needed_must_have_seen_a_checkpoint() {
    let mut note = checkpoint().sign(&[&log_key(1)]).unwrap();
    note.push(checkpoint().cosign(&witness(1), 1_000));
    note.push(checkpoint().cosign(&witness(1), 2_000));
    note.push(checkpoint().cosign(&witness(9), 3_000));
    let mut trust = trust(&[&log_key(1)]);
    trust.witnesses = [1, 2].map(|number| witness(number).verifier().clone()).into();
    let seen = |name: &str, time| Witnessed {
        name: name.to_owned(),
        time,
    };
    for (quorum, found) in [(0, true), (1, true), (2, false)] {
        trust.quorum = quorum;
        match trust.open(note.to_string().as_bytes()) {
            Ok(opened) => {
                assert!(found);
                // One signature a key counts: the first.
                assert_eq!(opened.witnesses(), [seen("witness.example/1", 1_000)]);
            }
            Err(error) => {
                assert!(!found);
                let refusal = Untrusted::TooFewWitnesses { needed: 2, found: 1 };
                assert_eq!(error, refusal);
            }
        }
    }
    note.push(checkpoint().cosign(&witness(2), 4_000));
    let opened = trust.open(note.to_string().as_bytes()).unwrap();
    let both = [seen("witness.example/1", 1_000), seen("witness.example/2", 4_000)];
    assert_eq!(opened.witnesses(), both);
    // Witnesses alone do not make a checkpoint.
    let mut unsigned = checkpoint().sign(&[]).unwrap();
    unsigned.push(checkpoint().cosign(&witness(1), 1_000));
    unsigned.push(checkpoint().cosign(&witness(2), 1_000));
    let opened = trust.open(unsigned.to_string().as_bytes());
    assert_eq!(opened, Err(NoteFault::UnknownKey.into()));
}

#[test]
fn a_cosignature_covers_its_time_and_its_checkpoint() {
    let mut trust = trust(&[&log_key(1)]);
    trust.witnesses = vec![witness(1).verifier().clone()];
    let with = |signature| {
        let mut note = checkpoint().sign(&[&log_key(1)]).unwrap();
        note.push(signature);
        trust.open(note.to_string().as_bytes())
    };
    let bad = Untrusted::Note(NoteFault::BadSignature(witness(1).verifier().label()));
    let mut later = checkpoint().cosign(&witness(1), 1_000);
    later.signature[7] ^= 1;
    assert_eq!(with(later), Err(bad.clone()));
    let other = Checkpoint {
        size: 43,
        ..checkpoint()
    };
    assert_eq!(with(other.cosign(&witness(1), 1_000)), Err(bad.clone()));
    assert_eq!(with(checkpoint().cosign(&witness(1), 1 << 63)), Err(bad.clone()));
    let mut short = checkpoint().cosign(&witness(1), 1_000);
    short.signature.truncate(7);
    assert_eq!(with(short), Err(bad));
}

#[test]
fn what_a_witness_answers_is_added_to_the_checkpoint() {
    let [one, two, stranger] = [1, 2, 9].map(witness);
    let known = [one.verifier(), two.verifier()];
    let mut note = checkpoint().sign(&[&log_key(1)]).unwrap();
    // A key of a log cosigns nothing, whoever hands it over.
    let answer = cosignature_lines(&checkpoint(), &[&one, &stranger, &log_key(1)], 1_000);
    assert_eq!(answer.lines().count(), 2);
    assert_eq!(add_cosignatures(&mut note, answer.as_bytes(), &known), Ok(1));
    assert_eq!(add_cosignatures(&mut note, answer.as_bytes(), &known), Ok(0));
    let answer = cosignature_lines(&checkpoint(), &[&two], 2_000);
    assert_eq!(add_cosignatures(&mut note, answer.as_bytes(), &known), Ok(1));
    let mut trust = trust(&[&log_key(1)]);
    trust.witnesses = known.map(Clone::clone).into();
    trust.quorum = 2;
    assert!(trust.open(note.to_string().as_bytes()).is_ok());

    let before = note.clone();
    let other = Checkpoint {
        size: 43,
        ..checkpoint()
    };
    let answer = cosignature_lines(&other, &[&one], 3_000);
    let refusal = NoteFault::BadSignature(one.verifier().label());
    assert_eq!(
        add_cosignatures(&mut note, answer.as_bytes(), &known),
        Err(refusal)
    );
    for answer in ["", "\n", "not a line\n", answer.trim_end()] {
        let added = add_cosignatures(&mut note, answer.as_bytes(), &known);
        assert!(matches!(added, Err(NoteFault::Malformed(_))), "{answer:?}");
    }
    assert_eq!(note, before);
}

#[test]
fn what_cannot_be_a_note_is_neither_signed_nor_read() {
    for text in ["", "no newline", "tab\t\n", "return\r\n", "null\0\n"] {
        assert!(Note::sign(text, &[&log_key(1)]).is_err(), "{text:?}");
    }
    let line = checkpoint().sign(&[&log_key(1)]).unwrap().to_string();
    let (text, line) = line.split_once("\n\n").unwrap();
    let many = |count| format!("{text}\n\n{}", line.repeat(count));
    assert!(Note::parse(many(SIGNATURES_MAX).as_bytes()).is_ok());
    assert!(Note::parse(many(SIGNATURES_MAX + 1).as_bytes()).is_err());
    assert!(Note::parse(&[&b"\xff\n\n"[..], line.as_bytes()].concat()).is_err());
    assert!(Note::parse(format!("{}\n\n{line}", "x".repeat(1 << 20)).as_bytes()).is_err());
    let empty = Note::parse(format!("\n\n{line}").as_bytes()).unwrap();
    assert_eq!(empty.text(), "\n");
}

/// Every bit of a checkpoint that a log and a witness have signed.
#[test]
fn no_bit_of_a_signed_checkpoint_can_be_flipped() {
    let mut note = checkpoint().sign(&[&log_key(1)]).unwrap();
    note.push(checkpoint().cosign(&witness(1), 1_000));
    let mut trust = trust(&[&log_key(1)]);
    trust.witnesses = vec![witness(1).verifier().clone()];
    trust.quorum = 1;
    let bytes = note.to_string().into_bytes();
    assert!(trust.open(&bytes).is_ok());
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[place] ^= 1 << bit;
            assert!(trust.open(&changed).is_err(), "byte {place}, bit {bit}");
        }
    }
}

proptest! {
    #[test]
    fn any_note_is_read_back(text in "([^\\x00-\\x1f]{0,20}\n){1,5}", seeds in prop::collection::vec(any::<u8>(), 1..5)) {
        let keys: Vec<_> = seeds.iter().map(|seed| key("a.example", SignatureKind::Note, *seed)).collect();
        let note = Note::sign(&text, &keys.iter().collect::<Vec<_>>()).unwrap();
        let read = Note::parse(note.to_string().as_bytes()).unwrap();
        prop_assert_eq!(&read, &note);
        let verifiers: Vec<&VerifierKey> = keys.iter().map(SigningKey::verifier).collect();
        prop_assert!(read.verify(&verifiers).is_ok());
    }

    #[test]
    fn arbitrary_bytes_are_no_note_and_no_panic(bytes: Vec<u8>, cut: prop::sample::Index) {
        let whole = checkpoint().sign(&[&log_key(1)]).unwrap().to_string().into_bytes();
        let cut = cut.index(whole.len());
        prop_assert!(Note::parse(&whole[..cut]).is_err());
        let _ = Note::parse(&bytes);
        let _ = Note::parse(&[&whole[..cut], &bytes].concat());
    }
}
