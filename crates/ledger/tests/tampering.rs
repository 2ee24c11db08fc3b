//! Every bit of everything that is handed out, flipped once: an answer, a proof, a file with its checkpoint.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use canon::Digest;
use ledger::export::{ExportVerifier, write_answer_line, write_end_line, write_start_line};
use ledger::merkle::{Completed, ProofPlan};
use ledger::receipt::{Receipt, ReceiptBatch, ReceiptVerifier, SignedAnswer};
use ledger::tlog_proof::TlogProof;
use ledger::{
    Appended, Checkpoint, Entry, EntryHeader, KeySet, NewEntry, SignatureKind, SigningKey, Tip, TrustPolicy,
    Verifier,
};
use proptest::prelude::*;

const LOG: &str = "ledger.example";
const TENANT: &str = "tnt_01jz0000000000000000000000";
const AT: &str = "2026-07-01T12:00:00.000Z";

fn key() -> SigningKey {
    SigningKey::from_seed(LOG, SignatureKind::Note, &[1; 32]).unwrap()
}

fn keys() -> KeySet {
    KeySet::of(key().verifier().clone()).unwrap()
}

fn trust() -> TrustPolicy {
    TrustPolicy::in_log(keys())
}

/// Decisions of one commit, as they are recorded and answered.
struct Ledger {
    bodies: Vec<String>,
    rows: Vec<Appended>,
    tips: Vec<Tip>,
    answers: Vec<String>,
}

impl Ledger {
    fn of(texts: &[&str]) -> Self {
        let mut ledger = Self {
            bodies: Vec::new(),
            rows: Vec::new(),
            tips: vec![Tip::GENESIS],
            answers: Vec::new(),
        };
        let mut batch = ReceiptBatch::default();
        for text in texts {
            let answer = canon::of(&serde_json::json!({ "decision": text })).unwrap();
            let body = canon::of(&serde_json::json!({ "answer_hash": answer.digest() })).unwrap();
            let mut tip = ledger.tips.last().unwrap().clone();
            let entry = NewEntry {
                tenant: TENANT,
                kind: "decision",
                at: AT,
                body: body.digest(),
            };
            let row = tip.append(&entry, &mut String::new());
            batch.push(&row.head.hash, &answer.digest());
            ledger.tips.push(tip);
            ledger.rows.push(row);
            ledger.bodies.push(body.into_string());
            ledger.answers.push(answer.into_string());
        }
        let sealed = batch.seal(&key()).unwrap();
        for (index, answer) in ledger.answers.iter_mut().enumerate() {
            let header = header(&ledger.rows[index], &ledger.bodies[index]);
            let receipt = Receipt {
                tenant: TENANT,
                seq: header.seq,
                at: AT,
                hash: ledger.rows[index].head.hash,
                prev: header.prev,
                body: header.body,
            };
            assert_eq!(receipt.leaf(), ledger.rows[index].completed.leaf());
            answer.pop();
            answer.push_str(",\"receipt\":");
            sealed.write_receipt(index, &receipt, answer);
            answer.push('}');
        }
        ledger
    }

    fn size(&self) -> u64 {
        self.rows.len() as u64
    }

    fn prove(&self, plan: &ProofPlan) -> Vec<Digest> {
        let read = plan.nodes().iter().map(|node| {
            let row = usize::try_from(node.seq()).unwrap() - 1;
            self.rows[row].completed.get(*node).unwrap()
        });
        plan.prove(&read.collect::<Vec<_>>()).unwrap()
    }

    fn checkpoint(&self) -> String {
        let root = self.tips.last().unwrap().tree().root();
        let checkpoint = Checkpoint::new(LOG, TENANT, self.size(), root);
        checkpoint.sign(&[&key()]).unwrap().to_string()
    }

    /// Entries and answers behind `after`, up to `last`, with what a stranger needs.
    fn file(&self, after: usize, last: usize) -> String {
        let mut file = String::new();
        if after > 0 {
            write_start_line(&self.tips[after], &mut file);
        }
        for place in after..last {
            let entry = Entry {
                header: header(&self.rows[place], &self.bodies[place]),
                hash: self.rows[place].head.hash,
                body: Some(&self.bodies[place]),
            };
            entry.write_line(&mut file);
            write_answer_line(&self.answers[place], &mut file);
        }
        let proof = self.prove(&ProofPlan::consistency(last as u64, self.size()).unwrap());
        write_end_line(&self.checkpoint(), &proof, &mut file);
        file
    }
}

fn header<'a>(row: &Appended, body: &str) -> EntryHeader<'a> {
    EntryHeader {
        tenant: TENANT,
        seq: row.head.seq,
        kind: "decision",
        at: AT,
        prev: row.prev,
        body: Digest::of(body.as_bytes()),
    }
}

fn is_verified(file: &[u8]) -> bool {
    let trust = trust();
    let mut verifier = ExportVerifier::new().trusting(&trust);
    let all = file
        .split_inclusive(|byte| *byte == b'\n')
        .all(|line| verifier.push_line(line).is_ok());
    let report = verifier.finish();
    all && report.is_ok_and(|report| report.checkpoint.is_some())
}

fn each_bit_flipped(bytes: &[u8], is_accepted: impl Fn(&[u8]) -> bool) {
    assert!(is_accepted(bytes));
    let mut changed = bytes.to_vec();
    for place in 0..bytes.len() {
        for bit in 0..8 {
            changed[place] ^= 1 << bit;
            assert!(!is_accepted(&changed), "byte {place}, bit {bit}");
            changed[place] ^= 1 << bit;
        }
    }
}

#[test]
fn no_bit_of_an_answer_can_be_flipped() {
    let ledger = Ledger::of(&["allow", "deny", "é\n\""]);
    let keys = keys();
    each_bit_flipped(ledger.answers[2].as_bytes(), |answer| {
        SignedAnswer::read(answer).is_ok_and(|answer| answer.verify(&keys).is_ok())
    });
}

#[test]
fn no_bit_of_a_proof_can_be_flipped() {
    let ledger = Ledger::of(&["allow", "deny", "é\n\"", "allow", "allow"]);
    let path = ledger.prove(&ProofPlan::inclusion(2, 5).unwrap());
    let header = header(&ledger.rows[2], &ledger.bodies[2]);
    let proof = TlogProof::of_entry(&header, path, ledger.checkpoint()).to_string();
    let trust = trust();
    each_bit_flipped(proof.as_bytes(), |proof| {
        TlogProof::parse(proof).is_ok_and(|proof| proof.verify_entry(&trust).is_ok())
    });
}

#[test]
fn no_bit_of_a_file_can_be_flipped() {
    let ledger = Ledger::of(&["allow", "deny", "é\n\""]);
    each_bit_flipped(ledger.file(1, 2).as_bytes(), is_verified);
}

#[test]
fn one_signature_is_checked_for_a_batch_and_each_receipt_by_itself() {
    let ledger = Ledger::of(&["allow", "deny", "allow"]);
    let keys = keys();
    let mut verifier = ReceiptVerifier::new(&keys);
    let read = |answer: &str| SignedAnswer::read(answer.as_bytes()).unwrap();
    for answer in &ledger.answers {
        assert_eq!(verifier.verify(&read(answer)), Ok(()));
    }
    let changed = ledger.answers[1].replacen("deny", "defy", 1);
    assert_eq!(
        verifier.verify(&read(&changed)).unwrap_err().code(),
        "bad_signature"
    );
    // What was found right before stays right, and what is wrong is not remembered.
    assert_eq!(verifier.verify(&read(&ledger.answers[1])), Ok(()));
    assert!(verifier.verify(&read(&changed)).is_err());
}

#[test]
fn what_is_stored_of_the_tree_is_compared_with_the_entries() {
    let ledger = Ledger::of(&["allow", "deny", "allow", "allow"]);
    let verify = |mut verifier: Verifier, after: usize, spoilt: Option<(usize, usize)>| {
        for place in after..4 {
            let entry = Entry {
                header: header(&ledger.rows[place], &ledger.bodies[place]),
                hash: ledger.rows[place].head.hash,
                body: Some(&ledger.bodies[place]),
            };
            let mut stored = ledger.rows[place].completed.as_bytes().to_vec();
            if let Some((_, byte)) = spoilt.filter(|(at, _)| *at == place) {
                stored[byte] ^= 1;
            }
            let stored = Completed::from_bytes(entry.header.seq, stored).unwrap();
            let _ = verifier.push_stored(&entry, &stored);
        }
        verifier
            .finish()
            .map_err(|unverified| (unverified.code(), unverified.seq()))
    };
    let found = |seq| Err(("wrong_subtrees", Some(seq)));
    assert!(verify(Verifier::from_genesis(), 0, None).is_ok());
    for place in 0..4 {
        for byte in 0..ledger.rows[place].completed.as_bytes().len() {
            let spoilt = Some((place, byte));
            let seq = place as u64 + 1;
            assert_eq!(verify(Verifier::from_genesis(), 0, spoilt), found(seq));
            if place > 0 {
                let tip = Verifier::from_tip(&ledger.tips[1]);
                assert_eq!(verify(tip, 1, spoilt), found(seq));
            }
        }
    }
    // Without the tree up to there, only the leaf can be told.
    let head = ledger.tips[1].head();
    assert_eq!(verify(Verifier::from_head(head), 1, Some((1, 0))), found(2));
    assert!(verify(Verifier::from_head(head), 1, Some((1, 32))).is_ok());
}

#[test]
fn time_does_not_run_backwards_where_verification_goes_on_from_a_tip() {
    let ledger = Ledger::of(&["allow", "deny"]);
    let entry = Entry {
        header: header(&ledger.rows[1], &ledger.bodies[1]),
        hash: ledger.rows[1].head.hash,
        body: Some(&ledger.bodies[1]),
    };
    let verify = |before: &str| {
        let mut verifier = Verifier::from_tip(&ledger.tips[1]).not_before(before.parse().unwrap());
        let _ = verifier.push(&entry);
        verifier
            .finish()
            .map(|report| report.checked)
            .map_err(|unverified| (unverified.code(), unverified.seq()))
    };
    assert_eq!(verify(AT), Ok(1));
    let later = "2026-07-01T12:00:00.001Z";
    assert_eq!(verify(later), Err(("wrong_time", Some(2))));
}

fn texts() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec("[ -~éß😂\n]{0,20}", 2..20)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_range_of_every_ledger_is_verified(texts in texts(), first: prop::sample::Index, last: prop::sample::Index) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let ledger = Ledger::of(&texts);
        let (first, last) = (first.index(texts.len()), last.index(texts.len()));
        let (first, last) = (first.min(last), first.max(last) + 1);
        prop_assert!(is_verified(ledger.file(first, last).as_bytes()));
    }

    #[test]
    fn a_line_that_is_missing_moved_or_twice_is_noticed(texts in texts(), line: prop::sample::Index, to: prop::sample::Index) {
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        let ledger = Ledger::of(&texts);
        let file = ledger.file(1, texts.len());
        let lines: Vec<_> = file.split_inclusive('\n').collect();
        let place = line.index(lines.len());
        let mut missing = lines.clone();
        let taken = missing.remove(place);
        // An answer may be left out: it is not a part of the chain.
        if !taken.starts_with("{\"answer\"") {
            prop_assert!(!is_verified(missing.concat().as_bytes()));
        }
        let to = to.index(missing.len() + 1);
        let mut moved = missing;
        moved.insert(to, taken);
        prop_assert_eq!(is_verified(moved.concat().as_bytes()), to == place);
        let mut twice = lines.clone();
        twice.insert(to, taken);
        prop_assert!(!is_verified(twice.concat().as_bytes()));
    }

    #[test]
    fn arbitrary_bytes_are_verified_by_nobody(bytes: Vec<u8>, cut: prop::sample::Index) {
        let ledger = Ledger::of(&["allow", "deny"]);
        let file = ledger.file(1, 2).into_bytes();
        let cut = cut.index(file.len() - 1);
        prop_assert!(!is_verified(&file[..cut]));
        prop_assert!(!is_verified(&[&file[..cut], &bytes].concat()) || file.starts_with(&[&file[..cut], &bytes].concat()));
        let _ = SignedAnswer::read(&bytes);
        let _ = TlogProof::parse(&bytes);
        let _ = ledger::witness::AddCheckpoint::parse(&bytes);
    }
}
