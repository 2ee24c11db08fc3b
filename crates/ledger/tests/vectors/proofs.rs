//! Proofs that an entry is in a log.

use ledger::tlog_proof::{ProvenEntry, TlogProof, Unproven};
use serde::Serialize;

use crate::log::{LOG, TENANT, TrustCase, foreign_key, logs, new_key, old_key, witness_key};
use crate::{Found, agrees, base64, finds};

#[derive(Serialize)]
struct Case {
    name: String,
    finds: Found,
    trust: TrustCase,
    proof: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    proves: Option<Proves>,
}

#[derive(Serialize)]
struct Proves {
    tenant: String,
    seq: u64,
    hash: String,
    kind: String,
    at: String,
    size: u64,
    root: String,
}

impl From<ProvenEntry> for Proves {
    fn from(proven: ProvenEntry) -> Self {
        let tree = proven.checkpoint.checkpoint();
        Self {
            size: tree.size,
            root: base64(tree.root.as_bytes()),
            tenant: proven.tenant,
            seq: proven.head.seq,
            hash: proven.head.hash.to_string(),
            kind: proven.kind,
            at: proven.at.to_string(),
        }
    }
}

fn case(name: &str, expected: Found, trust: TrustCase, proof: String) -> Case {
    let proven = TlogProof::parse(proof.as_bytes()).and_then(|proof| proof.verify_entry(&trust.read()));
    finds(name, expected, proven.as_ref().map(drop).map_err(Unproven::code));
    Case {
        name: name.to_owned(),
        finds: expected,
        trust,
        proof,
        proves: proven.ok().map(Proves::from),
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a list of alike cases")]
fn the_vectors_of_proofs_are_what_we_compute() {
    let [log, other] = logs();
    let of = |seq: u64, size: u64, note: String| {
        let path = log.inclusion(seq, size);
        TlogProof::of_entry(&log.stored(seq).header(), path, note)
    };
    let newest = log.note(13, &new_key());
    let mut cases = Vec::new();
    for seq in 1..=13 {
        let name = format!("entry {seq} in the newest checkpoint");
        cases.push(case(
            &name,
            None,
            TrustCase::log(),
            of(seq, 13, newest.clone()).to_string(),
        ));
    }
    for size in [3, 8] {
        let note = log.note(size, &old_key());
        let name = format!("entry 3 in a checkpoint of {size}");
        cases.push(case(&name, None, TrustCase::log(), of(3, size, note).to_string()));
    }
    let mut note = log.checkpoint(13).sign(&[&new_key()]).unwrap();
    note.push(log.checkpoint(13).cosign(&witness_key(1), 1_782_907_220));
    let witnessed = of(5, 13, note.to_string()).to_string();
    cases.push(case("with a witness", None, TrustCase::witnessed(1), witnessed));
    let unwitnessed = of(5, 13, newest.clone()).to_string();
    cases.push(case(
        "without a witness",
        Some("too_few_witnesses"),
        TrustCase::witnessed(1),
        unwitnessed,
    ));

    let good = of(5, 13, newest.clone());
    let mut bad = |name: &str, expected: &'static str, change: &dyn Fn(&mut TlogProof)| {
        let mut proof = good.clone();
        change(&mut proof);
        cases.push(case(name, Some(expected), TrustCase::log(), proof.to_string()));
    };
    let header = |seq: u64| Some(log.stored(seq).header_text().into_bytes());
    bad("the header of another entry", "wrong_root", &|proof| {
        proof.extra = header(4);
    });
    bad("a changed header", "wrong_root", &|proof| {
        let text = log.stored(5).header_text().replace("12:00:05", "12:00:06");
        proof.extra = Some(text.into_bytes());
    });
    bad("another index", "wrong_root", &|proof| proof.index = 6);
    bad("an index that is not in the tree", "not_included", &|proof| {
        proof.index = 13;
    });
    bad("a hash is missing", "wrong_proof_length", &|proof| {
        proof.path.truncate(proof.path.len() - 1);
    });
    bad("hashes swapped", "wrong_root", &|proof| proof.path.swap(0, 1));
    bad("the checkpoint of another size", "wrong_proof_length", &|proof| {
        proof.checkpoint = log.note(8, &old_key());
    });
    bad("the checkpoint of another tenant", "wrong_root", &|proof| {
        proof.checkpoint = other.note(13, &new_key());
    });
    bad(
        "another tenant's whole tree under ours",
        "wrong_tenant",
        &|proof| {
            let mut checkpoint = other.checkpoint(13);
            checkpoint.origin = format!("{LOG}/{TENANT}");
            *proof = TlogProof::of_entry(
                &other.stored(5).header(),
                other.inclusion(5, 13),
                checkpoint.sign(&[&new_key()]).unwrap().to_string(),
            );
        },
    );
    bad("a foreign key", "unknown_key", &|proof| {
        proof.checkpoint = log.note(13, &foreign_key());
    });
    bad("a key that had ended", "key_not_valid", &|proof| {
        *proof = of(13, 13, log.note(13, &old_key()));
    });
    bad("no header", "malformed_proof", &|proof| proof.extra = None);
    bad("a header in another layout", "malformed_proof", &|proof| {
        proof.extra = Some(
            log.stored(5)
                .header_text()
                .replace(",\"v\"", ", \"v\"")
                .into_bytes(),
        );
    });

    let text = good.to_string();
    let mut malformed = |name: &str, text: String| {
        cases.push(case(name, Some("malformed_proof"), TrustCase::log(), text));
    };
    malformed("another version", text.replace("@v1", "@v2"));
    malformed("a leading zero", text.replace("index 4", "index 04"));
    malformed("no index", text.replace("index 4\n", ""));
    malformed("no checkpoint", text.split("\n\n").next().unwrap().to_owned());
    malformed("a hash that is too short", text.replacen("=\n\n", "\n\n", 1));
    malformed("carriage returns", text.replace('\n', "\r\n"));
    malformed("empty", String::new());
    agrees(
        "proofs.json",
        "C2SP tlog-proofs of entries, with the header of the entry as extra data.",
        cases,
    );
}
