//! Answers with their receipts.

use ledger::receipt::{ReceiptFault, SignedAnswer};
use serde::Serialize;

use crate::log::{OTHER_TENANT, Stored, TENANT, TrustCase, commit, foreign_key, logs, old_key};
use crate::{Found, agrees, finds};

#[derive(Serialize)]
struct Case {
    name: String,
    finds: Found,
    trust: TrustCase,
    answer: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<Read>,
}

/// What a receipt says, once it is verified.
#[derive(Serialize)]
struct Read {
    tenant: String,
    seq: u64,
    at: String,
    hash: String,
    answer_hash: String,
    /// The canonical header of the entry, which the members of the receipt make.
    header: String,
    key: String,
}

fn case(name: &str, expected: Found, answer: &str) -> Case {
    let trust = TrustCase::log();
    let keys = trust.read().keys;
    let read = SignedAnswer::read(answer.as_bytes());
    let verified = read.and_then(|answer| answer.verify(&keys).map(|()| answer));
    finds(
        name,
        expected,
        verified.as_ref().map(drop).map_err(ReceiptFault::code),
    );
    Case {
        name: name.to_owned(),
        finds: expected,
        trust,
        answer: answer.to_owned(),
        receipt: verified.ok().map(|answer| {
            let mut header = String::new();
            let receipt = answer.receipt();
            receipt.header().write_to(&mut header);
            Read {
                tenant: receipt.tenant.to_owned(),
                seq: receipt.seq,
                at: receipt.at.to_owned(),
                hash: receipt.hash.to_string(),
                answer_hash: answer.answer_hash().to_string(),
                header,
                key: answer.key().to_owned(),
            }
        }),
    }
}

/// Changes of an answer of the batch of eight, each found.
#[expect(clippy::too_many_lines, reason = "a list of alike cases")]
fn changed(good: &Stored, next: &Stored) -> Vec<Case> {
    let answer = good.answer.as_deref().unwrap();
    let with = |from: &str, to: &str| {
        let changed = answer.replacen(from, to, 1);
        assert_ne!(changed, answer, "{from}");
        changed
    };
    let of_next = next.answer.as_deref().unwrap();
    let (_, other_receipt) = of_next.split_once(r#","receipt":"#).unwrap();
    let (own, receipt) = answer.split_once(r#","receipt":"#).unwrap();
    let (bad, hash, malformed) = (
        Some("bad_signature"),
        Some("wrong_hash"),
        Some("malformed_receipt"),
    );
    vec![
        case(
            "the decision is another",
            bad,
            &with(r#""decision":"allow""#, r#""decision":"deny""#),
        ),
        case("the reason is another", bad, &with("ça va", "ca va")),
        case(
            "a member is missing",
            bad,
            &with(r#""reason_code":"permitted","#, ""),
        ),
        case(
            "a member is new",
            bad,
            &with(r#"{"decision_id""#, r#"{"new":1,"decision_id""#),
        ),
        case(
            "white space between members",
            bad,
            &with(r#","decision":"#, r#", "decision":"#),
        ),
        case(
            "the receipt of another answer",
            bad,
            &format!("{own},\"receipt\":{other_receipt}"),
        ),
        case(
            "the tenant is another",
            hash,
            &with(
                &format!(r#"{{"tenant":"{TENANT}"#),
                &format!(r#"{{"tenant":"{OTHER_TENANT}"#),
            ),
        ),
        case("the place is another", hash, &with(r#""seq":10"#, r#""seq":11"#)),
        case("the time is another", hash, &with("12:00:10", "12:00:11")),
        case(
            "the hash is another",
            hash,
            &with(r#""hash":"sha256:"#, r#""hash":"sha256:0"#).replacen(
                &good.hash.to_string()[7..],
                &good.hash.to_string()[7..70],
                1,
            ),
        ),
        case(
            "the hash before is another",
            hash,
            &with(&good.prev.to_string(), &good.hash.to_string()),
        ),
        case(
            "the digest of the body is another",
            hash,
            &with(r#""body_hash":"sha256:"#, r#""body_hash":"sha256:0"#).replacen(
                &body_hash(good),
                &body_hash(good)[..63],
                1,
            ),
        ),
        case(
            "the place in the batch is another",
            bad,
            &with(r#""index":0"#, r#""index":1"#),
        ),
        case(
            "the size of the batch is another",
            bad,
            &with(r#""size":8"#, r#""size":7"#),
        ),
        case(
            "the size does not fit the path",
            Some("wrong_proof_length"),
            &with(r#""size":8"#, r#""size":9"#),
        ),
        case(
            "the place is not in the batch",
            Some("not_included"),
            &with(r#""size":8"#, r#""size":0"#),
        ),
        case(
            "the path is shorter",
            Some("wrong_proof_length"),
            &shorter_path(answer),
        ),
        case(
            "the key is not known",
            Some("unknown_key"),
            &with(r#""key":"ledger.example+"#, r#""key":"ledger.elsewhere+"#),
        ),
        case(
            "the other key of the log",
            Some("key_not_valid"),
            &with(new_label().as_str(), &old_key().verifier().label()),
        ),
        case("no receipt", malformed, &format!("{own}}}")),
        case(
            "the receipt is not the last member",
            malformed,
            &format!("{},\"more\":1}}", answer.strip_suffix('}').unwrap()),
        ),
        case(
            "the receipt is an inner member",
            malformed,
            &format!("{{\"inner\":{answer}}}"),
        ),
        case(
            "white space in the receipt",
            malformed,
            &with(r#","seq":"#, r#", "seq":"#),
        ),
        case(
            "a member of the receipt is missing",
            malformed,
            &with(&format!(r#","prev_hash":"{}""#, good.prev), ""),
        ),
        case(
            "the receipt of a gateway that does not sign",
            malformed,
            &unsigned(own, receipt),
        ),
        case(
            "a time in another layout",
            malformed,
            &with("12:00:10.000Z", "12:00:10Z"),
        ),
        case(
            "a member twice",
            Some("malformed_answer"),
            &with(r#"{"decision_id""#, r#"{"decision":"deny","decision_id""#),
        ),
        case("cut off", Some("malformed_answer"), &answer[..answer.len() - 1]),
        case("empty", Some("malformed_answer"), ""),
        case("not an object", malformed, "[]"),
    ]
}

fn body_hash(stored: &Stored) -> String {
    stored.header().body.to_string()[7..].to_owned()
}

fn new_label() -> String {
    crate::log::new_key().verifier().label()
}

fn shorter_path(answer: &str) -> String {
    let (before, path) = answer.split_once(r#""path":["#).unwrap();
    let (_, rest) = path.split_once("\",").unwrap();
    format!(r#"{before}"path":[{rest}"#)
}

fn unsigned(own: &str, receipt: &str) -> String {
    let (members, _) = receipt.split_once(r#","body_hash""#).unwrap();
    format!("{own},\"receipt\":{members}}}}}")
}

#[test]
fn the_vectors_of_receipts_are_what_we_compute() {
    let logs = logs();
    let mut cases = Vec::new();
    for log in &logs {
        let answers = log
            .entries
            .iter()
            .filter_map(|stored| Some((stored, stored.answer.as_deref()?)));
        cases.extend(answers.map(|(stored, answer)| {
            let name = format!("entry {} of {}", stored.seq, stored.tenant);
            case(&name, None, answer)
        }));
    }
    cases.extend(changed(logs[0].stored(10), logs[0].stored(11)));

    let mut forged = logs.clone();
    commit(&mut forged, &[0], &foreign_key());
    let answer = forged[0].stored(14).answer.clone().unwrap();
    cases.push(case("signed by a foreign key", Some("unknown_key"), &answer));
    let named = answer.replace(&foreign_key().verifier().label(), &new_label());
    cases.push(case(
        "signed by a foreign key in the name of ours",
        Some("bad_signature"),
        &named,
    ));
    let mut late = logs.clone();
    commit(&mut late, &[0], &old_key());
    let answer = late[0].stored(14).answer.clone().unwrap();
    cases.push(case(
        "signed by a key whose time is over",
        Some("key_not_valid"),
        &answer,
    ));
    agrees(
        "receipts.json",
        "Answers exactly as they are sent, and what their receipts prove.",
        cases,
    );
}
