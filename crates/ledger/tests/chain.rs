//! Chains that must verify, and everything that can be done to them that must not.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use canon::Digest;
use ledger::{Anchor, Entry, EntryHeader, Fault, Head, Report, Unverified, Verifier, link};
use proptest::prelude::*;

const TENANT: &str = "tnt_01jz0000000000000000000000";

/// A stored entry with its text.
#[derive(Clone)]
struct Stored {
    tenant: String,
    seq: u64,
    kind: &'static str,
    at: String,
    prev: Digest,
    hash: Digest,
    body: String,
}

impl Stored {
    fn entry(&self) -> Entry<'_> {
        let header = EntryHeader {
            tenant: &self.tenant,
            seq: self.seq,
            kind: self.kind,
            at: &self.at,
            prev: self.prev,
            body: Digest::of(self.body.as_bytes()),
        };
        Entry {
            header,
            hash: self.hash,
            body: Some(&self.body),
        }
    }

    fn line(&self) -> String {
        let mut line = String::new();
        self.entry().write_line(&mut line);
        line
    }
}

/// Appends one entry for each body.
fn chain(tenant: &str, bodies: &[String]) -> Vec<Stored> {
    let mut head = Head::GENESIS;
    let mut scratch = String::new();
    let mut entries = Vec::new();
    for (second, body) in bodies.iter().enumerate() {
        let kind = if second == 0 {
            "tenant.created"
        } else {
            "decision.recorded"
        };
        let at = format!("2026-07-01T12:00:{:02}.000Z", second % 60);
        let next = link(
            &head,
            tenant,
            kind,
            &at,
            &Digest::of(body.as_bytes()),
            &mut scratch,
        );
        entries.push(Stored {
            tenant: tenant.to_owned(),
            seq: next.seq,
            kind,
            at,
            prev: head.hash,
            hash: next.hash,
            body: body.clone(),
        });
        head = next;
    }
    entries
}

fn three() -> Vec<Stored> {
    let bodies = [
        r#"{"name":"Acme"}"#,
        r#"{"tool":"github","verdict":"allow"}"#,
        r#"{"n":[1,2.5,"é\n"]}"#,
    ];
    chain(TENANT, &bodies.map(str::to_owned))
}

fn lines(entries: &[Stored]) -> Vec<String> {
    entries.iter().map(Stored::line).collect()
}

fn verify<L: AsRef<[u8]>>(mut verifier: Verifier, lines: &[L]) -> Result<Report, Unverified> {
    for line in lines {
        let _ = verifier.push_line(line.as_ref());
    }
    verifier.finish()
}

fn fault<L: AsRef<[u8]>>(verifier: Verifier, lines: &[L]) -> (u64, Fault) {
    match verify(verifier, lines) {
        Err(Unverified::Broken(broken)) => (broken.seq, broken.what),
        other => panic!("{other:?} is not a fault"),
    }
}

#[test]
fn the_golden_chain_keeps_its_hashes() {
    let entries = three();
    let hashes: Vec<String> = entries.iter().map(|entry| entry.hash.to_string()).collect();
    // Computed by another program from the documented layout.
    let expected = [
        "sha256:e5d6ade76d4c9669938f8bdae90e83645f8c615e864a7b3f51a6f8c45957c3bb",
        "sha256:e4ebfc031ed041577a66e5118c86ec23533f551f95717e31964efdb14af687cf",
        "sha256:351da12ba644177865df7daf166c73c1182680dfdd8492e32d5cd85c5889f0d8",
    ];
    assert_eq!(hashes, expected);
}

#[test]
fn the_golden_line_keeps_its_bytes() {
    let expected = "sha256:6e4896559e60b515c2d306003ceeeb30d701db783fa3b28c576e8292defbad70";
    assert_eq!(Digest::of(three()[2].line().as_bytes()).to_string(), expected);
}

#[test]
fn a_whole_chain_is_reported_from_genesis() {
    let entries = three();
    let expected = Report {
        tenant: TENANT.to_owned(),
        checked: 3,
        erased: 0,
        first: 1,
        anchor: Anchor::Genesis,
        head: Head {
            seq: 3,
            hash: entries[2].hash,
        },
    };
    for verifier in [
        Verifier::from_genesis(),
        Verifier::from_first_entry(),
        Verifier::from_head(Head::GENESIS),
    ] {
        assert_eq!(verify(verifier, &lines(&entries)), Ok(expected.clone()));
    }
    let mut verifier = Verifier::from_genesis().of_tenant(TENANT);
    for stored in &entries {
        assert_eq!(verifier.push(&stored.entry()), Ok(()));
        assert_eq!(
            verifier.head(),
            Head {
                seq: stored.seq,
                hash: stored.hash
            }
        );
    }
    assert_eq!(verifier.finish(), Ok(expected));
}

#[test]
fn a_part_of_a_chain_says_what_it_is_anchored_to() {
    let entries = three();
    let part = &lines(&entries)[1..];
    let known = Head {
        seq: 1,
        hash: entries[0].hash,
    };
    let report = verify(Verifier::from_head(known), part).unwrap();
    assert_eq!(
        (report.first, report.checked, report.anchor),
        (2, 2, Anchor::Head(known))
    );

    let report = verify(Verifier::from_first_entry(), part).unwrap();
    assert_eq!(
        report.anchor,
        Anchor::None {
            prev: entries[0].hash
        }
    );
    let words = format!(
        "not anchored: begins after an entry with hash `{}`",
        entries[0].hash
    );
    assert_eq!(report.anchor.to_string(), words);

    assert_eq!(
        fault(Verifier::from_genesis(), part),
        (
            2,
            Fault::Seq {
                expected: 1,
                found: 2
            }
        )
    );
    let other = Head {
        seq: 1,
        hash: Digest::ZERO,
    };
    let expected = Fault::Prev {
        expected: Digest::ZERO,
        found: entries[0].hash,
    };
    assert_eq!(fault(Verifier::from_head(other), part), (2, expected));
}

#[test]
fn behind_the_last_number_that_there_is_one_is_due_that_no_entry_has() {
    let last = Head {
        seq: u64::MAX,
        hash: Digest::ZERO,
    };
    let expected = Fault::Seq {
        expected: 1_u128 << 64,
        found: 1,
    };
    let part = &lines(&three())[..1];
    assert_eq!(fault(Verifier::from_head(last), part), (1, expected));
}

#[test]
fn nothing_is_never_verified() {
    for verifier in [
        Verifier::from_genesis(),
        Verifier::from_first_entry(),
        Verifier::from_genesis().of_tenant("t"),
    ] {
        assert_eq!(verify::<&str>(verifier, &[]), Err(Unverified::Empty));
    }
    let broken = verify(Verifier::from_genesis(), &["\n"]).unwrap_err();
    let words = "entry 1: line is not that of an export: expected {\"header\": at byte 0";
    assert_eq!(broken.to_string(), words);
}

#[test]
fn a_missing_tail_is_seen_against_a_known_head() {
    let entries = three();
    let head = Head {
        seq: 3,
        hash: entries[2].hash,
    };
    let verifier = |count: usize| {
        let mut verifier = Verifier::from_genesis();
        for stored in &entries[..count] {
            verifier.push(&stored.entry()).unwrap();
        }
        verifier
    };
    assert!(verifier(3).finish_at(&head).is_ok());
    let found = Head {
        seq: 2,
        hash: entries[1].hash,
    };
    assert_eq!(
        verifier(2).finish_at(&head),
        Err(Unverified::Head {
            expected: head,
            found
        })
    );
    assert_eq!(verifier(0).finish_at(&head), Err(Unverified::Empty));
}

#[test]
fn an_erased_body_leaves_the_chain_whole() {
    let entries = three();
    let mut verifier = Verifier::from_genesis();
    for stored in &entries {
        let entry = stored.entry();
        let body = entry.body.filter(|_| stored.seq != 2);
        verifier.push(&Entry { body, ..entry }).unwrap();
    }
    let report = verifier.finish().unwrap();
    assert_eq!((report.checked, report.erased), (3, 1));
}

#[test]
fn a_changed_body_is_named_with_both_digests() {
    let entries = three();
    let mut lines = lines(&entries);
    lines[1] = lines[1].replace("allow", "alloy");
    let recorded = Digest::of(entries[1].body.as_bytes());
    let computed = Digest::of(entries[1].body.replace("allow", "alloy").as_bytes());
    assert_eq!(
        fault(Verifier::from_genesis(), &lines),
        (2, Fault::Body { recorded, computed })
    );
}

#[test]
fn a_body_that_two_readers_could_read_differently_is_refused() {
    for body in [
        r#"{"a":1,"a":2}"#,
        r#"{"b":1,"a":2}"#,
        r#"{"a": 1}"#,
        "{},\"body\":{}",
        "{not json}",
    ] {
        let entries = chain(TENANT, &[body.to_owned()]);
        assert_eq!(
            fault(Verifier::from_genesis(), &lines(&entries)),
            (1, Fault::BodyNotCanonical),
            "{body}"
        );
    }
}

#[test]
fn an_entry_from_another_tenant_is_refused() {
    let ours = three();
    let bodies: Vec<String> = ours.iter().map(|entry| entry.body.clone()).collect();
    let theirs = chain("tnt_other", &bodies);
    let expected = Fault::Tenant {
        expected: TENANT.to_owned(),
        found: "tnt_other".to_owned(),
    };

    let mixed = [ours[0].line(), theirs[1].line()];
    assert_eq!(fault(Verifier::from_genesis(), &mixed), (2, expected.clone()));
    // Their whole chain is sound, but it is not ours.
    assert!(verify(Verifier::from_genesis(), &lines(&theirs)).is_ok());
    assert_eq!(
        fault(Verifier::from_genesis().of_tenant(TENANT), &lines(&theirs)),
        (1, expected)
    );

    let renamed = lines(&theirs)[0].replace("tnt_other", TENANT);
    let (seq, what) = fault(Verifier::from_genesis(), &[renamed]);
    assert!(seq == 1 && matches!(what, Fault::Hash { .. }), "{what}");
}

#[test]
fn the_first_fault_stays() {
    let mut lines = lines(&three());
    lines[1] = lines[1].replace("allow", "alloy");
    lines.push("nonsense".to_owned());
    let mut verifier = Verifier::from_genesis();
    assert!(verifier.push_line(lines[0].as_bytes()).is_ok());
    let first = verifier.push_line(lines[1].as_bytes()).unwrap_err().clone();
    for line in [&lines[2], &lines[1], &lines[3]] {
        assert_eq!(verifier.push_line(line.as_bytes()), Err(&first));
    }
    assert_eq!(verifier.head().seq, 1);
    assert_eq!(verifier.finish(), Err(first.into()));
}

#[test]
fn a_fault_is_told_in_one_sentence() {
    let zero = Digest::ZERO;
    let broken = |what| {
        let since = None;
        ledger::Broken { seq: 7, what, since }.to_string()
    };
    let zeros = "0".repeat(64);
    assert_eq!(
        broken(Fault::Seq {
            expected: 7,
            found: 9
        }),
        "entry 7: seq is 9, but 7 is due: an entry is missing, repeated or out of order"
    );
    assert_eq!(
        broken(Fault::Prev {
            expected: zero,
            found: zero
        }),
        format!("entry 7: prev is `sha256:{zeros}`, but the entry before has the hash `sha256:{zeros}`")
    );
    assert_eq!(
        Unverified::Head {
            expected: Head::GENESIS,
            found: Head { seq: 2, hash: zero }
        }
        .to_string(),
        format!("the chain ends at 2 with `sha256:{zeros}`, but 0 with `sha256:{zeros}` was expected")
    );
}

fn bodies() -> impl Strategy<Value = Vec<String>> {
    let body = ("[ -~éß😂\n]{0,40}", any::<i32>()).prop_map(|(text, number)| {
        let value = serde_json::json!({"text": text, "number": number, "list": [text.len()]});
        canon::of(&value).unwrap().into_string()
    });
    prop::collection::vec(body, 2..8)
}

proptest! {
    #[test]
    fn what_was_appended_verifies(bodies in bodies()) {
        let entries = chain(TENANT, &bodies);
        let report = verify(Verifier::from_genesis(), &lines(&entries)).unwrap();
        let last = entries.last().unwrap();
        prop_assert_eq!(report.head, Head { seq: last.seq, hash: last.hash });
        prop_assert_eq!(report.checked, entries.len() as u64);
    }

    #[test]
    fn any_changed_byte_of_any_line_is_caught(bodies in bodies(), line: prop::sample::Index, place: prop::sample::Index, change in 1..=255_u8) {
        let mut lines = lines(&chain(TENANT, &bodies)).into_iter().map(String::into_bytes).collect::<Vec<_>>();
        let line = line.index(lines.len());
        let place = place.index(lines[line].len());
        lines[line][place] ^= change;
        prop_assert!(verify(Verifier::from_genesis(), &lines).is_err());
    }

    #[test]
    fn a_removed_repeated_or_inserted_line_is_caught(bodies in bodies(), line: prop::sample::Index, to: prop::sample::Index) {
        let lines = lines(&chain(TENANT, &bodies));
        let line = line.index(lines.len());
        // Without its last line a chain is still a chain: that takes a known head.
        if line + 1 < lines.len() {
            let mut removed = lines.clone();
            removed.remove(line);
            prop_assert!(verify(Verifier::from_genesis(), &removed).is_err());
        }
        let mut inserted = lines.clone();
        inserted.insert(to.index(lines.len() + 1), lines[line].clone());
        prop_assert!(verify(Verifier::from_genesis(), &inserted).is_err());
    }

    #[test]
    fn swapped_lines_are_caught(bodies in bodies(), a: prop::sample::Index, b: prop::sample::Index) {
        let mut lines = lines(&chain(TENANT, &bodies));
        let (a, b) = (a.index(lines.len()), b.index(lines.len()));
        prop_assume!(a != b);
        lines.swap(a, b);
        prop_assert!(verify(Verifier::from_genesis(), &lines).is_err());
        prop_assert!(verify(Verifier::from_first_entry(), &lines).is_err());
    }
}

/// Every bit of every byte, once.
#[test]
fn no_bit_of_an_export_can_be_flipped() {
    let lines = lines(&three());
    for line in 0..lines.len() {
        for place in 0..lines[line].len() {
            for bit in 0..8 {
                let mut changed: Vec<Vec<u8>> = lines.iter().map(|line| line.clone().into_bytes()).collect();
                changed[line][place] ^= 1 << bit;
                assert!(
                    verify(Verifier::from_genesis(), &changed).is_err(),
                    "line {line}, byte {place}, bit {bit}"
                );
            }
        }
    }
}
