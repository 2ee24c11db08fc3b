//! Fixed workloads that say how fast this machine is, so that the regression gate can compare ratios, not times.
//!
//! They must never change: the baseline holds a digest of this file, and a change of it asks for a new baseline.
//! Nothing of ours is timed here, or a regression of ours would make its own measure longer.
//!
//! - `calibration/cpu`: allocation, branching, ordered maps, text and integer mixing; for most of what we do;
//! - `calibration/sha256_64k`: machines differ fourfold here, by whether they have instructions for it;
//! - `calibration/fsync_4k`: append and fdatasync; for what waits for the disk.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hint::black_box;
use std::io::Write as _;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use sha2::{Digest as _, Sha256};

const WORDS: u64 = 512;
const SEED: u64 = 88_172_645_463_325_252;

/// Sorts generated words into a map, writes them out escaped, and mixes every byte: allocation, branches, arithmetic.
fn mixed_work(seed: u64) -> u64 {
    let mut state = seed;
    let mut sorted = BTreeMap::new();
    for count in 0..WORDS {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let mut word = String::new();
        for letter in 0..(state % 24) {
            word.push(char::from(
                b' ' + u8::try_from((state >> letter) % 95).expect("below 95"),
            ));
        }
        sorted.insert(word, count);
    }
    let mut text = String::new();
    for (word, count) in &sorted {
        for character in word.chars() {
            if matches!(character, '"' | '\\') {
                text.push('\\');
            }
            text.push(character);
        }
        write!(text, ":{count},").expect("a string grows");
    }
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn calibrate(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("calibration");

    assert_eq!(mixed_work(SEED), 0x7d74_487c_83f4_5af6);
    group.bench_function("cpu", |bencher| {
        bencher.iter(|| mixed_work(black_box(SEED)));
    });

    let block = vec![0x5a_u8; 64 * 1024];
    assert_eq!(Sha256::digest(&block)[..4], [0x94, 0x40, 0x44, 0xfe]);
    group.bench_function("sha256_64k", |bencher| {
        bencher.iter(|| Sha256::digest(black_box(&block)));
    });

    // On the disk that is built on, like the databases that are timed: /tmp is memory on some machines.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the folder was made by cargo");
    let mut file = File::create(folder.path().join("log")).expect("a file can be made in it");
    group.bench_function("fsync_4k", |bencher| {
        bencher.iter(|| {
            file.write_all(&block[..4096]).expect("the disk has room");
            file.sync_data().expect("the disk takes it");
        });
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(40)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2));
    targets = calibrate
}
criterion_main!(benches);
