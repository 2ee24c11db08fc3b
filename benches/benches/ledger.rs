//! The hash of a ledger entry, at the head of a chain and in its middle, and that of a receipt.
//!
//! An entry's hash is the SHA-256 of its header, header writing included; the digest of its body of 560 bytes is taken
//! once when the body is made, and is not part of it. The hashes were computed by another program.

use std::hint::black_box;

use canon::Digest;
use criterion::{Criterion, criterion_group, criterion_main};
use ledger::{Head, link};

const TENANT: &str = "tnt_01jz0000000000000000000000";
const KIND: &str = "decision.recorded";
const AT: &str = "2026-07-01T12:00:00.000Z";

/// As long as the body of a decision.
const BODY_LEN: usize = 560;

/// As long as a receipt.
const RECEIPT_LEN: usize = 900;

/// An object of `len` bytes.
fn object(len: usize) -> String {
    let (open, close) = (r#"{"a":""#, r#""}"#);
    let filling = "x".repeat(len - open.len() - close.len());
    format!("{open}{filling}{close}")
}

fn bench(criterion: &mut Criterion) {
    let body = Digest::of(object(BODY_LEN).as_bytes());
    let mid_chain = Head {
        seq: 123_456,
        hash: Digest::of(b"the entry before"),
    };
    let mut scratch = String::new();
    let mut group = criterion.benchmark_group("ledger");
    for (name, head, expected) in [
        (
            "entry_hash_head",
            Head::GENESIS,
            "sha256:921d523010444b351d84cd4c3143f157c5505aa17994ac316645a2ce25d26afa",
        ),
        (
            "entry_hash_mid_chain",
            mid_chain,
            "sha256:aaa6b2e2f1e0cdb742427ea81a9c68189d52c836cea3a7e2646ef9b3255fad30",
        ),
    ] {
        let mut next = || {
            link(
                black_box(&head),
                black_box(TENANT),
                KIND,
                AT,
                black_box(&body),
                &mut scratch,
            )
        };
        group.bench_function(name, |bencher| bencher.iter(&mut next));
        let next = next();
        assert_eq!(next.seq, head.seq + 1, "{name}");
        assert_eq!(next.hash.to_string(), expected, "{name}");
    }

    let receipt = object(RECEIPT_LEN);
    group.bench_function("receipt_hash", |bencher| {
        bencher.iter(|| Digest::of(black_box(receipt.as_bytes())));
    });
    let digest = Digest::of(receipt.as_bytes()).to_string();
    assert_eq!(
        digest,
        "sha256:c3f7e8edd46a1a05444980f6ffcd5c9ec9eaa9e711b0df2b49353d69d0eaff2f"
    );
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
