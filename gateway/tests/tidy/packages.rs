//! What packages depend on: lower floors only, and only what they are there to know.

use crate::tree::{files, has_extension, none, text};
use std::collections::{BTreeMap, BTreeSet};

/// Each package, its folder, and its floor: it may depend on lower floors only.
const FLOORS: [(&str, &str, u32); 13] = [
    ("canon", "crates/canon", 0),
    ("wal-vfs", "crates/wal-vfs", 0),
    ("ledger", "crates/ledger", 1),
    ("model", "crates/model", 1),
    ("policy", "crates/policy", 2),
    ("store", "crates/store", 2),
    ("tokens", "crates/tokens", 2),
    ("engine", "crates/engine", 3),
    ("policy-diff", "crates/policy-diff", 3),
    ("store-sqlite", "crates/store-sqlite", 3),
    ("store-postgres", "crates/store-postgres", 3),
    ("gateway", "gateway", 4),
    ("benches", "benches", 5),
];

/// The one in which code may be unsafe: it has lints of its own.
const UNSAFE: &str = "wal-vfs";

/// Who alone may depend on a library: one that does I/O, or one that a single crate is there to hide.
const KEEPERS: [(&str, &[&str]); 14] = [
    ("anyhow", &["gateway", "benches"]),
    ("axum", &["gateway", "benches"]),
    ("cedar-policy", &["policy", "policy-diff"]),
    ("cedar-policy-core", &["policy", "policy-diff"]),
    ("cedar-policy-formatter", &["policy"]),
    ("cedar-policy-symcc", &["policy-diff"]),
    ("clap", &["gateway", "benches"]),
    ("jsonschema", &["policy"]),
    ("prometheus-client", &["gateway"]),
    ("rusqlite", &["store-sqlite", "wal-vfs"]),
    ("sqlx", &["store-sqlite", "store-postgres"]),
    (
        "tokio",
        &[
            "policy-diff",
            "store",
            "store-sqlite",
            "store-postgres",
            "gateway",
            "benches",
        ],
    ),
    ("tower", &["gateway", "benches"]),
    ("tracing", &["store-sqlite", "store-postgres", "gateway"]),
];

/// The names in those sections of a manifest that end like this.
fn dependencies(manifest: &str, sections: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut counts = false;
    for line in text(manifest).lines() {
        if line.starts_with('[') {
            counts = line.ends_with(sections);
        } else if counts && !line.starts_with('#') {
            names.extend(line.split_once(['.', '=', ' ']).map(|(name, _)| name.to_owned()));
        }
    }
    names
}

#[test]
fn crates_depend_on_lower_floors_only() {
    let floors: BTreeMap<_, _> = FLOORS.iter().map(|(name, _, floor)| (*name, *floor)).collect();
    for (name, folder, floor) in FLOORS {
        let manifest = format!("{folder}/Cargo.toml");
        for dependency in dependencies(&manifest, "dependencies]") {
            let below = floors.get(&*dependency).is_none_or(|other| *other < floor);
            assert!(
                below,
                "{manifest}: `{name}` does not stand above `{dependency}`; move what it needs to a lower floor"
            );
        }
    }
}

#[test]
fn every_package_has_a_floor() {
    let cargo = text("Cargo.toml");
    let (_, members) = cargo
        .split_once("members = [")
        .expect("Cargo.toml lists its members");
    let (members, _) = members.split_once(']').expect("the list ends");
    let members: BTreeSet<_> = members.split('"').skip(1).step_by(2).collect();
    let known: BTreeSet<_> = FLOORS.iter().map(|(_, folder, _)| *folder).collect();
    assert_eq!(
        members,
        known,
        "Cargo.toml: give each member a floor in {}",
        file!()
    );
}

#[test]
fn only_its_keepers_depend_on_a_library() {
    for (name, folder, _) in FLOORS {
        let manifest = format!("{folder}/Cargo.toml");
        // What only tests use does not get into the program.
        for dependency in dependencies(&manifest, "[dependencies]") {
            let kept = KEEPERS.iter().find(|(library, _)| *library == dependency);
            if let Some((_, keepers)) = kept {
                assert!(
                    keepers.contains(&name),
                    "{manifest}: `{dependency}` is for {keepers:?}; go through one of them"
                );
            }
        }
    }
}

#[test]
fn every_dependency_is_used() {
    let mut idle = Vec::new();
    for (_, folder, _) in FLOORS {
        let manifest = format!("{folder}/Cargo.toml");
        let mut sources = files(&format!("{folder}/src"));
        sources.retain(|path| has_extension(path, "rs"));
        let sources: Vec<_> = sources.iter().map(|path| text(path)).collect();
        for dependency in dependencies(&manifest, "[dependencies]") {
            let name = dependency.replace('-', "_");
            if !sources.iter().any(|source| is_used(&name, source)) {
                idle.push(format!(
                    "{manifest}: `{folder}/src` does not use `{dependency}`; remove it, or leave it to the tests"
                ));
            }
        }
    }
    none(idle);
}

/// Whether a path in this text begins with a crate, or it is imported by its name.
fn is_used(name: &str, source: &str) -> bool {
    let is_of_a_word = |character: char| character.is_alphanumeric() || character == '_';
    source.match_indices(name).any(|(at, _)| {
        let (before, after) = (&source[..at], &source[at + name.len()..]);
        let is_whole = !before.ends_with(is_of_a_word) && !after.starts_with(is_of_a_word);
        let begins_a_path = after.starts_with("::") && !before.ends_with("::");
        is_whole && (begins_a_path || before.ends_with("use "))
    })
}

#[test]
fn a_crate_that_is_only_spoken_of_is_not_used() {
    for used in ["use hex;", "use hex::encode;", "let text = hex::encode(bytes);"] {
        assert!(is_used("hex", used), "{used}");
    }
    for spoken in [
        "// 64 hex digits",
        "use hexagon::Side;",
        "use crate::hex::digits;",
        "let hex = 7;",
    ] {
        assert!(!is_used("hex", spoken), "{spoken}");
    }
}

#[test]
fn unsafe_code_is_forbidden_in_every_package_but_one() {
    let cargo = text("Cargo.toml");
    assert!(cargo.contains("[workspace.lints.rust]\nunsafe_code = \"forbid\"\n"));
    for (name, folder, _) in FLOORS {
        let manifest = text(&format!("{folder}/Cargo.toml"));
        let is_forbidden = manifest.contains("\n[lints]\nworkspace = true\n");
        assert_eq!(
            is_forbidden,
            name != UNSAFE,
            "{folder}/Cargo.toml: `{UNSAFE}` alone has lints of its own; the others say `workspace = true`"
        );
    }
}

#[test]
fn every_dependency_says_what_it_is_for() {
    let cargo = text("Cargo.toml");
    let (_, section) = cargo
        .split_once("[workspace.dependencies]")
        .expect("Cargo.toml has the section");
    let lines = section.lines().take_while(|line| !line.starts_with('['));
    let libraries =
        lines.filter(|line| line.contains(" = ") && !line.contains("path = ") && !line.starts_with('#'));
    let silent = libraries.filter(|line| line.rsplit_once(" # ").is_none());
    none(silent.map(|line| format!("Cargo.toml: end `{line}` with ` # what it is for`")));
}
