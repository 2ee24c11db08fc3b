//! Canonical text and SHA-256 of a request, straight from its bytes: a flat payload of 100 bytes, a nested one, and one
//! of 200 elements.
//!
//! The digests were computed by another program. Members arrive out of order and with white space, as callers send
//! them: a text that is canonical already would be faster.

use std::fmt::Write as _;
use std::hint::black_box;

use canon::{Digest, Limits, canonicalize};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// The limits of the gateway's router are of this size; they cost the same whatever they are.
const LIMITS: Limits = Limits {
    bytes_max: 1 << 20,
    depth_max: 64,
};

const ELEMENTS: u32 = 200;

const FLAT: &str = r#"{"tool": "github", "action": "merge_pull_request", "resource": "acme/api", "count": 42, "dry": false}"#;

const NESTED: &str = r#"{"tool_call": {"tool": "github", "action": "merge_pull_request", "resource": "acme/api#42", "parameters": {"owner": "acme", "repo": "api", "number": 42, "labels": ["release", "urgent"], "commit": {"title": "Merge \"hotfix\"", "ratio": 0.25}}}, "source": {"trust": "semi_trusted_customer", "score": 1.0}, "request_id": "req-000123"}"#;

fn elements() -> String {
    let mut json = String::from(r#"{"items":["#);
    for index in 0..ELEMENTS {
        let (comma, cents) = (if index > 0 { "," } else { "" }, index % 90 + 10);
        let item = format_args!(
            r#"{{"sku":"SKU-{index:05}","quantity":{index},"price":19.{cents},"note":"gift wrap"}}"#
        );
        write!(json, "{comma}{item}").expect("a String takes every write");
    }
    json.push_str("]}");
    json
}

fn digest(json: &[u8]) -> Digest {
    canonicalize(json, LIMITS)
        .expect("the payload is I-JSON")
        .digest()
}

fn bench(criterion: &mut Criterion) {
    let elements = elements();
    for (name, json, expected) in [
        (
            "flat",
            FLAT,
            "sha256:91dcb9fe60d2b967448741be670b202b4f4fa195d113b5b431d5a945709e31d7",
        ),
        (
            "nested",
            NESTED,
            "sha256:206118786fe4062712d2c9580e48af4ebe6044eceacc617e796d5e81c96ea412",
        ),
        (
            "elements_200",
            &*elements,
            "sha256:cc9567409ab82bd0fac9f1e6471f89eb6064db251b8bff562ab436b5d37ccf84",
        ),
    ] {
        let expected: Digest = expected.parse().expect("a digest");
        let mut group = criterion.benchmark_group("canon");
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| digest(black_box(json.as_bytes())));
        });
        group.finish();
        assert_eq!(digest(json.as_bytes()), expected, "{name}");
    }
}

criterion_group!(benches, bench);
criterion_main!(benches);
