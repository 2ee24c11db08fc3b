//! The published vectors: proofs of RFC 6962 trees, and C2SP notes, checkpoints and cosignatures. They lie beside the
//! repository; without them the tests say so and pass, except where CI promises them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fs;
use std::path::{Path, PathBuf};

use canon::Digest;
use ledger::merkle::{verify_consistency, verify_inclusion};
use ledger::{Checkpoint, KeySet, Note, NoteFault, SignatureKind, TrustPolicy, Untrusted, VerifierKey};
use serde::Deserialize;
use serde_json::Value;

/// A folder of vectors, or `None` where this checkout has none.
fn vectors(name: &str) -> Option<PathBuf> {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/vectors");
    let folder = Path::new(root).join(name);
    if folder.exists() {
        return Some(folder);
    }
    let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!is_ci, "{} is missing", folder.display());
    eprintln!("skipped: {} is missing", folder.display());
    None
}

/// Every JSON file below a folder.
fn cases<T: for<'de> Deserialize<'de>>(folder: PathBuf) -> Vec<(String, T)> {
    let mut cases = Vec::new();
    let mut folders = vec![folder];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let case = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
                cases.push((path.display().to_string(), case));
            }
        }
    }
    assert!(cases.len() > 40, "{} cases", cases.len());
    cases
}

/// A hash of these files, which may be of any length where it is wrong.
fn hash(text: &str) -> Option<Digest> {
    use base64::Engine as _;
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).unwrap();
    bytes.try_into().ok().map(Digest::from_bytes)
}

/// A root of these files. Some are words instead of hashes and are only compared: any hash of them does for that.
fn root(text: &str) -> Digest {
    hash(text).unwrap_or_else(|| Digest::of(text.as_bytes()))
}

fn hashes(texts: Option<&[String]>) -> Option<Vec<Digest>> {
    texts.unwrap_or_default().iter().map(|text| hash(text)).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Inclusion {
    leaf_idx: u64,
    tree_size: u64,
    root: String,
    leaf_hash: String,
    proof: Option<Vec<String>>,
    want_err: bool,
}

#[test]
fn published_inclusion_proofs_are_verified_or_refused() {
    let Some(folder) = vectors("merkle/inclusion") else {
        return;
    };
    for (name, case) in cases::<Inclusion>(folder) {
        let verify = || {
            let proof = hashes(case.proof.as_deref())?;
            let (leaf, root) = (hash(&case.leaf_hash)?, hash(&case.root)?);
            verify_inclusion(case.leaf_idx, case.tree_size, &leaf, &proof, &root).ok()
        };
        assert_eq!(verify().is_none(), case.want_err, "{name}");
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Consistency {
    size1: u64,
    size2: u64,
    root1: String,
    root2: String,
    proof: Option<Vec<String>>,
    want_err: bool,
}

#[test]
fn published_consistency_proofs_are_verified_or_refused() {
    let Some(folder) = vectors("merkle/consistency") else {
        return;
    };
    for (name, case) in cases::<Consistency>(folder) {
        let verify = || {
            let proof = hashes(case.proof.as_deref())?;
            let (first, second) = (root(&case.root1), root(&case.root2));
            verify_consistency((case.size1, &first), (case.size2, &second), &proof).ok()
        };
        assert_eq!(verify().is_none(), case.want_err, "{name}");
    }
}

fn read(folder: &Path, name: &str) -> String {
    fs::read_to_string(folder.join(name)).unwrap()
}

#[test]
fn published_notes_are_read_as_published() {
    let Some(folder) = vectors("signed-note") else {
        return;
    };
    let expected: Value = serde_json::from_str(&read(&folder, "expected.json")).unwrap();
    for (name, expected) in expected["files"].as_object().unwrap() {
        let text = read(&folder, name);
        let note = Note::parse(text.as_bytes()).unwrap();
        assert_eq!(note.text(), expected["signed_text"], "{name}");
        assert_eq!(note.to_string(), text, "{name}");
        let signatures = expected["signatures"].as_array().unwrap();
        assert_eq!(note.signatures().len(), signatures.len(), "{name}");
        for (found, expected) in note.signatures().iter().zip(signatures) {
            assert_eq!(found.name, expected["key_name"].as_str().unwrap(), "{name}");
            assert_eq!(found.key_id.to_string(), expected["key_id_hex"].as_str().unwrap());
            let time = expected["timestamp"].as_u64().map(u64::to_be_bytes);
            let signature = hex::decode(expected["signature_hex"].as_str().unwrap()).unwrap();
            let all = [time.as_ref().map_or(&[][..], |time| time), &signature].concat();
            assert_eq!(found.signature, all, "{name}");
        }
        if let Some(expected) = expected.get("checkpoint") {
            let checkpoint = Checkpoint::parse(note.text()).unwrap();
            assert_eq!(checkpoint.origin, expected["origin"].as_str().unwrap());
            assert_eq!(checkpoint.size, expected["tree_size"].as_u64().unwrap());
            let root = hex::encode(checkpoint.root.as_bytes());
            assert_eq!(root, expected["root_hash_hex"].as_str().unwrap());
            assert_eq!(checkpoint.to_string(), note.text());
        }
    }
}

#[test]
fn variations_of_the_published_note_are_accepted_or_refused() {
    let Some(folder) = vectors("signed-note") else {
        return;
    };
    let cases: Value = serde_json::from_str(&read(&folder, "signed-note-cases.json")).unwrap();
    let key: VerifierKey = cases["verifier_key"].as_str().unwrap().parse().unwrap();
    for case in cases["cases"].as_array().unwrap() {
        let note = case["note"].as_str().unwrap();
        let verified = Note::parse(note.as_bytes()).and_then(|note| {
            let signed = note.verify(&[&key])?;
            assert_eq!((signed[0].key, signed[0].time), (&key, None));
            Ok(())
        });
        assert_eq!(
            verified.is_ok(),
            case["accept"].as_bool().unwrap(),
            "{case}: {verified:?}"
        );
    }
}

#[test]
fn a_cosignature_covers_the_published_message() {
    let Some(folder) = vectors("signed-note") else {
        return;
    };
    let note = Note::parse(read(&folder, "tlog-cosignature-example.txt").as_bytes()).unwrap();
    let message = read(&folder, "tlog-cosignature-signed-message.txt");
    // The message is one of ours if a key that signs the message itself has cosigned the checkpoint.
    let key = ledger::SigningKey::from_seed("w.example", SignatureKind::Cosignature, &[3; 32]).unwrap();
    let checkpoint = Checkpoint::parse(note.text()).unwrap();
    let cosigned = checkpoint.cosign(&key, 1_679_315_147);
    let public = key.verifier().to_string();
    let vkey = format!("w.example+{}", &public["w.example+".len()..]);
    let of_text = Note::sign(
        &message,
        &[&ledger::SigningKey::from_seed("w.example", SignatureKind::Note, &[3; 32]).unwrap()],
    );
    assert_eq!(
        cosigned.signature[8..],
        of_text.unwrap().signatures()[0].signature
    );
    let mut note = note;
    note.push(cosigned);
    let key: VerifierKey = vkey.parse().unwrap();
    let signed = note.verify(&[&key]).unwrap();
    assert_eq!(signed[0].time, Some(1_679_315_147));
}

#[test]
fn the_published_checkpoints_are_not_believed_without_their_keys() {
    let Some(folder) = vectors("signed-note") else {
        return;
    };
    let stranger = read(&folder, "signed-note-example.vkey.txt");
    let trust = TrustPolicy::in_log(KeySet::of(stranger.trim().parse().unwrap()).unwrap());
    for name in ["tlog-checkpoint-example.txt", "tlog-cosignature-example.txt"] {
        let opened = trust.open(read(&folder, name).as_bytes());
        assert_eq!(opened, Err(Untrusted::Note(NoteFault::UnknownKey)), "{name}");
    }
}
