//! Migrations, decisions, workflows and scripts.

use crate::tree::{files, none, root, text};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// The longest record of a decision, in characters: a page of 60 full lines.
const DECISION_CHARACTERS_MAX: usize = 7_200;

#[test]
fn migrations_are_numbered_without_gaps() {
    check_numbers("migrations/sqlite", "_", ".sql");
    check_numbers("migrations/postgres", "_", ".sql");
}

#[test]
fn migrations_are_in_pairs() {
    let names = |folder: &str| -> Vec<_> {
        let paths = files(folder).into_iter();
        paths
            .filter_map(|path| path.rsplit_once('/').map(|(_, name)| name.to_owned()))
            .collect()
    };
    assert_eq!(
        names("migrations/sqlite"),
        names("migrations/postgres"),
        "migrations: give each step of one store its pair in the other, under the same name"
    );
}

#[test]
fn every_promise_of_storage_is_asked_of_every_backend() {
    let list = text("crates/store/src/conformance.rs");
    let mut promises = Vec::new();
    for path in files("crates/store/src/conformance") {
        let (_, module) = path.rsplit_once('/').expect("it is in a folder");
        let module = module.trim_end_matches(".rs");
        for promise in text(&path).split("\npub async fn ").skip(1) {
            let (name, takes) = promise.split_once('(').unwrap_or_default();
            let takes = takes.split(')').next().unwrap_or_default();
            if takes.contains("Fixture") {
                promises.push(format!("{module}::{name},"));
            }
        }
    }
    assert!(!promises.is_empty());
    promises.retain(|promise| !list.contains(promise));
    let add = |promise: String| format!("crates/store/src/conformance.rs: add `{promise}` to the list");
    none(promises.into_iter().map(add));
}

#[test]
fn decisions_are_numbered_without_gaps() {
    check_numbers("docs/decisions", "-", ".md");
}

#[track_caller]
fn check_numbers(folder: &str, separator: &str, ending: &str) {
    for (number, path) in (1..).zip(files(folder)) {
        let due = format!("{folder}/{number:04}{separator}");
        assert!(
            path.starts_with(&due) && path.ends_with(ending),
            "{path}: `{due}<words>{ending}` is due before it"
        );
    }
}

#[test]
fn decisions_are_listed_by_number() {
    let index = text("docs/decisions.md");
    let rows = files("docs/decisions").into_iter().map(|path| {
        let title = text(&path);
        let title = title.lines().next().unwrap_or_default();
        let numbered = title.strip_prefix("# ").and_then(|title| title.split_once(". "));
        let (number, title) = numbered.unwrap_or_else(|| panic!("{path}: begin with `# <number>. <title>`"));
        let path = path.trim_start_matches("docs/");
        format!("| {number} | [{title}]({path}) |")
    });
    none(
        rows.filter(|row| !index.contains(row))
            .map(|row| format!("docs/decisions.md: add `{row}`")),
    );
}

#[test]
fn a_decision_fits_a_page() {
    let long = files("docs/decisions").into_iter();
    let long = long.filter(|path| text(path).chars().count() > DECISION_CHARACTERS_MAX);
    none(
        long.map(|path| {
            format!("{path}: at most {DECISION_CHARACTERS_MAX} characters: context, choice, price")
        }),
    );
}

#[test]
fn workflows_pin_what_they_use_and_begin_without_rights() {
    for path in files(".github/workflows") {
        let workflow = text(&path);
        let bare = workflow.contains("\npermissions: {}\n");
        assert!(
            bare,
            "{path}: say `permissions: {{}}` at the top and give each job what it needs"
        );
        let steps = workflow.lines().map(|line| line.trim().trim_start_matches("- "));
        for used in steps.filter_map(|step| step.strip_prefix("uses: ")) {
            let (_, version) = used.split_once('@').unwrap_or_default();
            let hash = version.split(' ').next().unwrap_or_default();
            let pinned = hash.len() == 40 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
            assert!(
                pinned || used.starts_with("./"),
                "{path}: pin `{used}` by the 40 digits of its commit"
            );
        }
    }
}

#[test]
fn ci_runs_what_everybody_runs() {
    assert!(
        text(".ci/run").contains("exec scripts/check"),
        ".ci/run: let it `exec scripts/check`"
    );
    let workflows: String = files(".github/workflows").iter().map(|path| text(path)).collect();
    assert!(
        workflows.contains("run: scripts/check"),
        ".github/workflows: let a job run `scripts/check`"
    );
}

#[test]
fn scripts_can_be_run() {
    let mut scripts = [files("scripts"), files(".ci")].concat();
    // Tests of scripts are run by their framework.
    scripts.retain(|path| text(path).starts_with("#!") && !path.contains("/test_"));
    assert!(!scripts.is_empty());
    for path in scripts {
        let mode = fs::metadata(root().join(&path))
            .expect("it was just read")
            .permissions()
            .mode();
        // What others may do with it is up to whoever has cloned it.
        assert!(
            mode & 0o100 != 0,
            "{path}: make it executable (`git update-index --chmod=+x {path}`)"
        );
    }
}
