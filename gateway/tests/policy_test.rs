//! `countersign policy test`: the starter policies pass, and what fails is named and fails the command.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

#[path = "support/program.rs"]
mod program;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn run(folder: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_countersign"));
    program::without_settings(&mut command)
        .args(["policy", "test"])
        .arg(folder)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn starters() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/policies")
}

#[test]
fn the_starter_policies_pass_their_tests() {
    let output = run(&starters());
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    assert!(out.trim_end().ends_with(" passed, 0 failed"), "{out}");
    for folder in ["email", "github", "payments", "shell", "slack", "sql"] {
        assert!(out.contains(&format!("{folder}: ")), "{folder}: {out}");
    }
}

/// The folder of a starter, to be changed.
fn copied(folder: &Path) -> PathBuf {
    let mine = folder.join("email");
    std::fs::create_dir(&mine).unwrap();
    for file in ["policy.cedar", "tools.json", "tests.json"] {
        std::fs::copy(starters().join("email").join(file), mine.join(file)).unwrap();
    }
    mine
}

#[test]
fn what_is_odd_about_a_policy_is_told_and_fails_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mine = copied(folder.path());
    assert_eq!(text(&run(&mine).stderr), "");
    let policy = std::fs::read_to_string(mine.join("policy.cedar")).unwrap();
    let nobody = "@id(\"nobody\") forbid (principal == Agent::\"billing-bot\", action, resource);";
    std::fs::write(mine.join("policy.cedar"), format!("{policy}\n{nobody}\n")).unwrap();
    let output = run(&mine);
    assert!(output.status.success(), "{}", text(&output.stdout));
    let told = text(&output.stderr);
    assert!(told.starts_with("warning "), "{told}");
    assert!(told.contains("email/nobody:"), "{told}");
    assert!(
        told.contains("nobody can ever be `Agent::\"billing-bot\"`"),
        "{told}"
    );
}

#[test]
fn a_test_that_fails_is_named_and_so_is_a_policy_that_is_not_valid() {
    let folder = tempfile::tempdir().unwrap();
    let mine = copied(folder.path());
    assert!(run(&mine).status.success());

    // Every policy gone: what they were to deny is not denied by them any more.
    let policy = std::fs::read_to_string(mine.join("policy.cedar")).unwrap();
    std::fs::write(mine.join("policy.cedar"), "").unwrap();
    let output = run(&mine);
    assert!(!output.status.success());
    assert!(
        text(&output.stdout).contains("FAILED"),
        "{}",
        text(&output.stdout)
    );

    std::fs::write(
        mine.join("policy.cedar"),
        policy + "\npermit (principal, action, resource);",
    )
    .unwrap();
    let output = run(&mine);
    assert!(!output.status.success());
    assert!(text(&output.stderr).contains("@id"), "{}", text(&output.stderr));
}

#[test]
fn a_folder_without_tests_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(folder.path());
    assert!(!output.status.success());
    assert!(
        text(&output.stderr).contains("tests.json"),
        "{}",
        text(&output.stderr)
    );
}
