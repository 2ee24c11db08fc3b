//! The published vectors: RFC 8785 samples, the ES6 number sequence, and how a JSON parser must treat odd input.
//! They lie beside the repository; without them the tests say so and pass, except where CI promises them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use canon::{Canonical, Digest, Error, Limits, canonicalize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

const LIMITS: Limits = Limits {
    bytes_max: 1 << 20,
    depth_max: 64,
};

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

/// Name and bytes of every file, sorted by name.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut files: Vec<_> = entries
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn read(json: &[u8]) -> Result<Canonical, Error> {
    canonicalize(json, LIMITS)
}

#[test]
fn every_sample_becomes_the_published_bytes() {
    let Some(folder) = vectors("jcs") else { return };
    for (name, input) in files(&folder.join("input")) {
        let expected = fs::read(folder.join("output").join(&name)).unwrap();
        let canonical = read(&input).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(
            canonical.as_str(),
            std::str::from_utf8(&expected).unwrap(),
            "{name}"
        );

        let digits = fs::read_to_string(folder.join("outhex").join(name.replace(".json", ".txt"))).unwrap();
        let digits: String = digits.split_whitespace().collect();
        assert_eq!(hex::encode(canonical.as_bytes()), digits, "{name}");
        assert_eq!(
            read(canonical.as_bytes()).unwrap(),
            canonical,
            "{name} is canonical already"
        );
    }
}

/// The doubles of the ES6 number test, without end.
fn number_sequence(parameters: &Value) -> impl Iterator<Item = u64> {
    let bits = |value: &Value| u64::from_str_radix(value.as_str().unwrap(), 16).unwrap();
    let fixed: Vec<u64> = parameters["static_values_hex"]
        .as_array()
        .unwrap()
        .iter()
        .map(bits)
        .collect();
    let first = bits(&parameters["serial_start_hex"]);
    let serial = (0..parameters["serial_count"].as_u64().unwrap()).map(move |index| first + index);
    let mut block = [0_u8; 32];
    let random = std::iter::repeat_with(move || {
        block = Sha256::digest(block).into();
        let groups = block.as_chunks::<8>().0;
        [0, 1, 2, 3].map(|index| u64::from_le_bytes(groups[index]))
    });
    let usable = |bits: &u64| f64::from_bits(*bits).is_finite() && bits << 1 != 0;
    fixed
        .into_iter()
        .chain(serial)
        .chain(random.flatten().filter(usable))
}

#[test]
fn numbers_hash_to_the_published_checksums() {
    let Some(folder) = vectors("jcs") else { return };
    let parameters = fs::read(folder.join("numbers.json")).unwrap();
    let parameters: Value = serde_json::from_slice(&parameters).unwrap();
    for checksum in parameters["checksums"].as_array().unwrap() {
        let count = usize::try_from(checksum["lines"].as_u64().unwrap()).unwrap();
        let mut lines = String::new();
        for bits in number_sequence(&parameters).take(count) {
            // Rust prints every double in full, so the text names exactly this one.
            let text = format!("{:?}", f64::from_bits(bits));
            writeln!(lines, "{bits:x},{}", read(text.as_bytes()).unwrap()).unwrap();
        }
        assert_eq!(Some(lines.len() as u64), checksum["bytes"].as_u64());
        let expected = format!("sha256:{}", checksum["sha256"].as_str().unwrap());
        assert_eq!(
            Digest::of(lines.as_bytes()).to_string(),
            expected,
            "{count} lines"
        );
    }
}

#[test]
fn broken_json_is_refused_raw_and_as_a_value() {
    let Some(folder) = vectors("json-robustness") else {
        return;
    };
    let broken = |(name, _): &(String, Vec<u8>)| name.starts_with("n_");
    let files: Vec<_> = files(&folder.join("test_parsing"))
        .into_iter()
        .filter(broken)
        .collect();
    assert!(files.len() >= 20, "the n_ files are there");
    for (name, json) in files {
        let wrapped = [br#"{"context":{"v":"#, &json[..], b"}}"].concat();
        for json in [json, wrapped] {
            let error = read(&json).expect_err(&name);
            assert!(
                error.offset.is_some_and(|offset| offset <= json.len()),
                "{name}: {error}"
            );
        }
    }
}

#[test]
fn odd_but_valid_json_keeps_its_meaning() {
    let Some(folder) = vectors("json-robustness") else {
        return;
    };
    for (name, json) in files(&folder.join("test_parsing")) {
        let valid = name.starts_with("y_");
        match read(&json) {
            Ok(canonical) => {
                assert!(!name.starts_with("n_"), "{name}");
                let before: Value = serde_json::from_slice(&json).unwrap();
                let after: Value = serde_json::from_str(canonical.as_str()).unwrap();
                assert_eq!(canon::of(&before).unwrap(), canon::of(&after).unwrap(), "{name}");
            }
            Err(error) if name == "y_object_duplicated_key.json" => {
                assert_eq!(error.to_string(), "duplicate key `a` at the top level (byte 9)");
            }
            Err(error) => assert!(!valid, "{name}: {error}"),
        }
    }
}

#[test]
fn input_that_a_parser_may_take_or_leave_gets_one_fixed_answer() {
    let Some(folder) = vectors("json-robustness") else {
        return;
    };
    let files: Vec<_> = files(&folder.join("test_parsing"));
    let mut answers = String::new();
    for (name, json) in files.iter().filter(|(name, _)| name.starts_with("i_")) {
        let answer = read(json).map_or_else(|error| format!("{:?}", error.kind), Canonical::into_string);
        writeln!(answers, "{name}: {answer}").unwrap();
    }
    let expected = "\
i_number_neg_int_huge_exp.json: NumberOutOfRange
i_number_real_neg_overflow.json: NumberOutOfRange
i_string_1st_surrogate_but_2nd_missing.json: LoneSurrogate
i_string_1st_valid_surrogate_2nd_invalid.json: LoneSurrogate
i_string_incomplete_surrogates_escape_valid.json: LoneSurrogate
i_string_iso_latin_1.json: InvalidUtf8
i_string_overlong_sequence_6_bytes_null.json: InvalidUtf8
";
    assert_eq!(answers, expected);
}
