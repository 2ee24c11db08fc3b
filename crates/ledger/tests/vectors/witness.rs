//! What a log asks of a witness, and whether the witness may do it.

use canon::Digest;
use ledger::merkle::Frontier;
use ledger::witness::{AddCheckpoint, Cosigned, Uncosigned};
use serde::Serialize;

use crate::log::{foreign_key, logs, new_key, old_key};
use crate::{Found, agrees, base64, finds};

#[derive(Serialize)]
struct Case {
    name: &'static str,
    finds: Found,
    status: u16,
    /// The keys that the witness knows for the origin.
    log_keys: Vec<String>,
    /// What it has cosigned last.
    known_size: u64,
    known_root: String,
    request: String,
}

fn case(name: &'static str, expected: Found, known: (u64, Digest), request: String) -> Case {
    let keys = [old_key(), new_key()];
    let keys: Vec<_> = keys.iter().map(ledger::SigningKey::verifier).collect();
    let (size, root) = known;
    let checked = AddCheckpoint::parse(request.as_bytes())
        .and_then(|request| request.verify(&keys)?.check(Cosigned { size, root }));
    finds(
        name,
        expected,
        checked.as_ref().map(drop).map_err(Uncosigned::code),
    );
    if let Ok((checkpoint, kept)) = &checked {
        assert_eq!(
            (kept.size, kept.root),
            (checkpoint.size, checkpoint.root),
            "{name}"
        );
    }
    Case {
        name,
        finds: expected,
        status: checked.as_ref().err().map_or(200, Uncosigned::status),
        log_keys: keys.iter().map(ToString::to_string).collect(),
        known_size: size,
        known_root: base64(root.as_bytes()),
        request,
    }
}

fn request(old_size: u64, proof: Vec<Digest>, checkpoint: String) -> String {
    let request = AddCheckpoint {
        old_size,
        proof,
        checkpoint,
    };
    request.to_string()
}

#[test]
fn the_vectors_of_requests_to_a_witness_are_what_we_compute() {
    let [log, _] = logs();
    let root = |size| log.tip_at(size).tree().root();
    let nothing = (0, Frontier::EMPTY.root());
    let newest = log.note(13, &new_key());
    let from = |old: u64| request(old, log.consistency(old, 13), newest.clone());
    let rewritten = log.rewritten(4, |stored| stored.kind = "rewritten".to_owned());
    let fork = rewritten.note(13, &new_key());
    let first = request(0, Vec::new(), newest.clone());
    let at = |size| (size, root(size));
    let cases = vec![
        case("the first checkpoint", None, nothing, first.clone()),
        case("a later checkpoint", None, at(8), from(8)),
        case("the same checkpoint again", None, at(13), from(13)),
        case("a size that is not the last", Some("other_size"), at(9), from(8)),
        case("the first where there was one", Some("other_size"), at(8), first),
        case(
            "a smaller checkpoint",
            Some("not_before"),
            at(8),
            request(8, Vec::new(), log.note(5, &old_key())),
        ),
        case(
            "a rewritten log",
            Some("wrong_root"),
            at(8),
            request(8, rewritten.consistency(8, 13), fork.clone()),
        ),
        case(
            "a fork of the same size",
            Some("wrong_root"),
            at(13),
            request(13, Vec::new(), fork.clone()),
        ),
        case(
            "a fork of the same size, with a proof",
            Some("wrong_root"),
            at(13),
            request(13, vec![root(8)], fork),
        ),
        case(
            "no proof",
            Some("wrong_proof_length"),
            at(8),
            request(8, Vec::new(), newest.clone()),
        ),
        case(
            "a proof where none is needed",
            Some("wrong_proof_length"),
            nothing,
            request(0, vec![root(8)], newest.clone()),
        ),
        case(
            "a foreign key",
            Some("unknown_key"),
            nothing,
            request(0, Vec::new(), log.note(13, &foreign_key())),
        ),
        case(
            "a changed checkpoint",
            Some("bad_signature"),
            nothing,
            request(0, Vec::new(), newest.replace("\n13\n", "\n14\n")),
        ),
        case(
            "not a note",
            Some("malformed_note"),
            nothing,
            request(0, Vec::new(), "13\n".to_owned()),
        ),
        case(
            "a leading zero",
            Some("malformed_request"),
            at(8),
            from(8).replacen("old 8", "old 08", 1),
        ),
        case(
            "no empty line",
            Some("malformed_request"),
            nothing,
            "old 0\n".into(),
        ),
        case(
            "too many hashes",
            Some("malformed_request"),
            at(8),
            request(8, vec![root(8); 64], newest),
        ),
    ];
    agrees(
        "witness.json",
        "Bodies of requests to `add-checkpoint` of C2SP tlog-witness, and the status of the answer.",
        cases,
    );
}
