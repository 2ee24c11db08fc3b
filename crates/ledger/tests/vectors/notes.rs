//! Keys, checkpoints, and whom to believe.

use ledger::{Checkpoint, KeySet, Note, SignatureKind, Untrusted, VerifierKey};
use serde::Serialize;

use crate::log::{LOG, TENANT, TrustCase, foreign_key, key, logs, new_key, old_key, witness_key};
use crate::{Found, agrees, base64, finds};

#[derive(Serialize)]
struct KeyCase {
    name: &'static str,
    finds: Found,
    vkey: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<KeyParts>,
}

#[derive(Serialize)]
struct KeyParts {
    name: String,
    key_id: String,
    signature_type: u8,
    public_key: String,
}

/// What a key is, taken from its text by hand.
fn parts(vkey: &str) -> KeyParts {
    use base64::Engine as _;
    let mut parts = vkey.splitn(3, '+');
    let mut next = || parts.next().unwrap().to_owned();
    let (name, key_id, bytes) = (next(), next(), next());
    let bytes = base64::engine::general_purpose::STANDARD.decode(bytes).unwrap();
    KeyParts {
        name,
        key_id,
        signature_type: bytes[0],
        public_key: base64(&bytes[1..]),
    }
}

#[test]
fn the_vectors_of_keys_are_what_we_compute() {
    let (log, witness) = (
        old_key().verifier().to_string(),
        witness_key(1).verifier().to_string(),
    );
    let bad = Some("malformed_key");
    let cases = [
        ("key of a log", None, log.clone()),
        ("key of a witness", None, witness),
        (
            "published example",
            None,
            "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".to_owned(),
        ),
        (
            "another name under the id",
            bad,
            log.replace(LOG, "ledger.elsewhere"),
        ),
        (
            "key id in upper case",
            bad,
            log.replacen(&log[LOG.len() + 1..LOG.len() + 9], "ABCDEF01", 1),
        ),
        (
            "no key id",
            bad,
            log.replacen(&log[LOG.len()..LOG.len() + 9], "", 1),
        ),
        ("no name", bad, log[LOG.len()..].to_owned()),
        ("a space in the name", bad, log.replace(LOG, "ledger example")),
        ("base64 that is cut", bad, log[..log.len() - 1].to_owned()),
        (
            "an unknown signature type",
            bad,
            "example.com/foo+530d903a+BekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k".to_owned(),
        ),
        (
            "a short key",
            bad,
            "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv".to_owned(),
        ),
        (
            "a key for which everybody can sign",
            bad,
            "example.com/foo+61a0818a+AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA".to_owned(),
        ),
        (
            "a number of 2^255 - 19 or more",
            bad,
            "example.com/foo+bf07f5c8+AfD///////////////////////////////////////9/".to_owned(),
        ),
        ("empty", bad, String::new()),
    ];
    let cases = cases.into_iter().map(|(name, expected, vkey)| {
        let read = vkey.parse::<VerifierKey>();
        finds(name, expected, read.map(drop).map_err(|error| error.code()));
        KeyCase {
            name,
            finds: expected,
            key: expected.is_none().then(|| parts(&vkey)),
            vkey,
        }
    });
    agrees("keys.json", "Verifier keys of C2SP signed-note.", cases.collect());
}

#[derive(Serialize)]
struct KeySetCase {
    name: &'static str,
    finds: Found,
    keys_json: String,
}

#[test]
fn the_vectors_of_key_sets_are_what_we_compute() {
    let vkey = old_key().verifier().to_string();
    let one = |more: &str| format!("{{\"keys\":[{{\"vkey\":\"{vkey}\"{more}}}]}}");
    let bad = Some("malformed_keys");
    let cases = [
        (
            "both keys of the log",
            None,
            serde_json::to_string(&KeySet::new(TrustCase::log().keys).unwrap()).unwrap(),
        ),
        ("a key for all time", None, one("")),
        (
            "the same, said",
            None,
            one(",\"not_before\":null,\"not_after\":null"),
        ),
        ("members that are not known", None, one(",\"comment\":\"2026\"")),
        ("no key", bad, "{\"keys\":[]}".to_owned()),
        ("no keys", bad, "{}".to_owned()),
        (
            "a time in another layout",
            bad,
            one(",\"not_after\":\"2026-07-01\""),
        ),
        (
            "a time with an offset",
            bad,
            one(",\"not_after\":\"2026-07-01T12:00:00.000+00:00\""),
        ),
        (
            "ends before it begins",
            bad,
            one(",\"not_before\":\"2026-07-02T00:00:00.000Z\",\"not_after\":\"2026-07-01T00:00:00.000Z\""),
        ),
        (
            "one key twice",
            bad,
            format!("{{\"keys\":[{{\"vkey\":\"{vkey}\"}},{{\"vkey\":\"{vkey}\"}}]}}"),
        ),
        (
            "the key of a witness",
            bad,
            format!("{{\"keys\":[{{\"vkey\":\"{}\"}}]}}", witness_key(1).verifier()),
        ),
        (
            "not a key",
            bad,
            "{\"keys\":[{\"vkey\":\"ledger.example\"}]}".to_owned(),
        ),
        (
            "an array instead of the object",
            bad,
            format!("[[{{\"vkey\":\"{vkey}\"}}]]"),
        ),
        (
            "an array instead of a key",
            bad,
            format!("{{\"keys\":[[\"{vkey}\",null,null]]}}"),
        ),
        (
            "a member twice, though it is not known",
            bad,
            one(",\"comment\":1,\"comment\":2"),
        ),
    ];
    let cases = cases.into_iter().map(|(name, expected, keys_json)| {
        let read = KeySet::parse(&keys_json);
        finds(name, expected, read.map(drop).map_err(|error| error.code()));
        KeySetCase {
            name,
            finds: expected,
            keys_json,
        }
    });
    agrees("key-sets.json", "Texts of `keys.json`.", cases.collect());
}

#[derive(Serialize)]
struct CheckpointCase {
    name: &'static str,
    finds: Found,
    trust: TrustCase,
    /// When the newest entry that is known to be covered was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    covers: Option<&'static str>,
    note: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    opens: Option<Opens>,
}

#[derive(Serialize)]
struct Opens {
    tenant: String,
    size: u64,
    root: String,
    key: String,
    witnesses: Vec<ledger::Witnessed>,
}

impl CheckpointCase {
    fn new(name: &'static str, expected: Found, note: String) -> Self {
        Self::of(TrustCase::log(), name, expected, note)
    }

    fn of(trust: TrustCase, name: &'static str, expected: Found, note: String) -> Self {
        Self {
            name,
            finds: expected,
            trust,
            covers: None,
            note,
            opens: None,
        }
    }

    fn covering(mut self, at: &'static str) -> Self {
        self.covers = Some(at);
        self
    }

    fn checked(mut self) -> Self {
        let opened = self.trust.read().open(self.note.as_bytes()).and_then(|trusted| {
            let covered = self.covers.map(|at| trusted.covers(at.parse().unwrap()));
            covered.unwrap_or(Ok(()))?;
            Ok(trusted)
        });
        finds(
            self.name,
            self.finds,
            opened.as_ref().map(drop).map_err(Untrusted::code),
        );
        self.opens = opened.ok().map(|trusted| Opens {
            tenant: trusted.tenant().to_owned(),
            size: trusted.checkpoint().size,
            root: base64(trusted.checkpoint().root.as_bytes()),
            key: trusted.key().vkey.label(),
            witnesses: trusted.witnesses().to_vec(),
        });
        self
    }
}

fn signed(checkpoint: &Checkpoint) -> Note {
    checkpoint.sign(&[&new_key()]).unwrap()
}

/// The newest checkpoint, and those that a change has made of it.
fn plain(checkpoint: &Checkpoint) -> Vec<CheckpointCase> {
    let case = CheckpointCase::new;
    let good = signed(checkpoint).to_string();
    let extended = Checkpoint {
        extensions: vec!["an extension".to_owned()],
        ..checkpoint.clone()
    };
    let other_log = key("ledger.elsewhere", SignatureKind::Note, 2);
    let both = checkpoint.sign(&[&old_key(), &new_key()]).unwrap().to_string();
    let other = checkpoint.sign(&[&other_log, &new_key()]).unwrap().to_string();
    let (_, line) = good.split_once("\n\n").unwrap();
    vec![
        case("signed by the new key", None, good.clone()),
        case("signed by both keys", None, both).covering("2026-07-01T12:00:13.000Z"),
        case("beside a signature of a stranger", None, other),
        case("with an extension line", None, signed(&extended).to_string()),
        case(
            "another size",
            Some("bad_signature"),
            good.replace("\n13\n", "\n12\n"),
        ),
        case(
            "another tenant",
            Some("bad_signature"),
            good.replace(TENANT, "tnt_x"),
        ),
        case(
            "signature of a known key over something else",
            Some("bad_signature"),
            format!("something else\n\n{line}"),
        ),
        case(
            "signed by a foreign key",
            Some("unknown_key"),
            checkpoint.sign(&[&foreign_key()]).unwrap().to_string(),
        ),
        case(
            "signature under another name",
            Some("unknown_key"),
            good.replace(&format!("\u{2014} {LOG}"), "\u{2014} ledger.elsewhere"),
        ),
        case("not signed", Some("malformed_note"), format!("{checkpoint}\n")),
        case(
            "no newline at the end",
            Some("malformed_note"),
            good.trim_end().to_owned(),
        ),
        case(
            "carriage returns",
            Some("malformed_note"),
            good.replace('\n', "\r\n"),
        ),
        case(
            "a line that is no signature",
            Some("malformed_note"),
            format!("{good}- hyphen\n"),
        ),
        case(
            "signature in base64 with a wrong tail",
            Some("malformed_note"),
            good.replace("=\n", "\n"),
        ),
        case("empty", Some("malformed_note"), String::new()),
    ]
}

/// What was signed, and is not what it should be.
fn signed_otherwise(checkpoint: &Checkpoint) -> Vec<CheckpointCase> {
    let case = CheckpointCase::new;
    let of_origin = |origin: &str| {
        let changed = Checkpoint {
            origin: origin.to_owned(),
            ..checkpoint.clone()
        };
        signed(&changed).to_string()
    };
    let text = |text: &str| Note::sign(text, &[&new_key()]).unwrap().to_string();
    let old = checkpoint.sign(&[&old_key()]).unwrap().to_string();
    let wrong = Some("wrong_origin");
    let malformed = Some("malformed_checkpoint");
    vec![
        case(
            "another log",
            wrong,
            of_origin(&format!("ledger.elsewhere/{TENANT}")),
        ),
        case("a log without tenant", wrong, of_origin(LOG)),
        case("an empty tenant", wrong, of_origin("ledger.example/")),
        case("a longer path", wrong, of_origin(&format!("{LOG}/{TENANT}/x"))),
        case(
            "leading zero in the size",
            malformed,
            text(&checkpoint.to_string().replace("\n13\n", "\n013\n")),
        ),
        case("no root", malformed, text(&format!("{LOG}/{TENANT}\n13\n"))),
        case(
            "an empty extension line",
            malformed,
            text(&format!("{checkpoint}\n")),
        ),
        case(
            "the signature of a batch",
            malformed,
            text("countersign-receipts/v1\nsize 13\nroot AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"),
        ),
        case("old key, newest entry of its time", None, old.clone()).covering("2026-07-01T12:00:09.999Z"),
        case("old key, newest entry after its time", Some("key_not_valid"), old)
            .covering("2026-07-01T12:00:10.000Z"),
    ]
}

fn witnessed(checkpoint: &Checkpoint) -> Vec<CheckpointCase> {
    let with = |witnesses: &[(u8, u64)]| {
        let mut note = signed(checkpoint);
        for (number, time) in witnesses {
            note.push(checkpoint.cosign(&witness_key(*number), *time));
        }
        note.to_string()
    };
    let case =
        |quorum, name, expected, note| CheckpointCase::of(TrustCase::witnessed(quorum), name, expected, note);
    let time = 1_782_907_220;
    let mut later = signed(checkpoint);
    let mut changed = checkpoint.cosign(&witness_key(1), time);
    changed.signature[7] ^= 1;
    later.push(changed);
    let mut of_another = signed(checkpoint);
    let smaller = Checkpoint {
        size: 12,
        ..checkpoint.clone()
    };
    of_another.push(smaller.cosign(&witness_key(1), time));
    let mut unsigned = checkpoint.sign(&[]).unwrap();
    unsigned.push(checkpoint.cosign(&witness_key(1), time));
    let few = Some("too_few_witnesses");
    vec![
        case(1, "one witness of one", None, with(&[(1, time)])),
        case(2, "two witnesses of two", None, with(&[(1, time), (2, time + 1)])),
        case(
            1,
            "a witness that is not known beside one that is",
            None,
            with(&[(9, time), (2, time)]),
        ),
        case(0, "witnesses where none is needed", None, with(&[(1, time)])),
        case(1, "no witness of one", few, with(&[])),
        case(2, "one witness twice", few, with(&[(1, time), (1, time + 1)])),
        case(1, "only a witness that is not known", few, with(&[(9, time)])),
        case(1, "a changed time", Some("bad_signature"), later.to_string()),
        case(
            1,
            "a cosignature of another checkpoint",
            Some("bad_signature"),
            of_another.to_string(),
        ),
        case(
            1,
            "a time beyond 2^63",
            Some("bad_signature"),
            with(&[(1, 1 << 63)]),
        ),
        case(
            1,
            "a witness without the log",
            Some("unknown_key"),
            unsigned.to_string(),
        ),
    ]
}

#[test]
fn the_vectors_of_checkpoints_are_what_we_compute() {
    let [log, _] = logs();
    let checkpoint = log.checkpoint(13);
    let cases = [
        plain(&checkpoint),
        signed_otherwise(&checkpoint),
        witnessed(&checkpoint),
    ];
    let cases = cases.into_iter().flatten().map(CheckpointCase::checked);
    agrees(
        "checkpoints.json",
        "Notes of checkpoints, and whether they are believed. `covers` is the time of the newest entry that the checkpoint is known to cover.",
        cases.collect(),
    );
}
