//! The starter policies in `docs/policies`: every suite passes, no policy in it goes untested, and all are laid out alike.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, its helpers too")]

use model::SlashFreeName;
use policy::{BasePolicies, Compiler, Suite, SuiteTexts, TenantPolicy};
use std::fs;
use std::path::{Path, PathBuf};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policies")
}

/// The folders of the starter policies, sorted.
fn starters() -> Vec<PathBuf> {
    let entries = fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path());
    let mut folders: Vec<_> = entries.filter(|path| path.is_dir()).collect();
    folders.sort();
    folders
}

fn name(folder: &Path) -> String {
    folder.file_name().unwrap().to_str().unwrap().to_owned()
}

#[test]
fn there_is_a_starter_for_each_kind_of_tool() {
    let names: Vec<_> = starters().iter().map(|folder| name(folder)).collect();
    let expected = [
        "banking",
        "email",
        "github",
        "payments",
        "shell",
        "slack",
        "spending",
        "sql",
        "workspace",
    ];
    assert_eq!(names, expected);
}

#[test]
fn every_starter_is_proven_by_its_tests() {
    let compiler = Compiler::new(BasePolicies::shipped());
    for folder in starters() {
        let (name, read) = (name(&folder), |file| {
            fs::read_to_string(folder.join(file)).unwrap()
        });
        let policy = TenantPolicy::new(SlashFreeName::new(&name).unwrap(), read("policy.cedar"));
        let suite = Suite::new(
            &compiler,
            SuiteTexts {
                policies: &[policy],
                tools: &read("tools.json"),
                tests: &read("tests.json"),
            },
        );
        let report = suite.unwrap_or_else(|error| panic!("{name}: {error}")).run();
        let failed: Vec<_> = report.results.iter().filter(|result| !result.passed()).collect();
        assert!(failed.is_empty(), "{name}: {failed:#?}");
        assert_eq!(report.untested, [], "{name}");
        assert!(
            report.results.len() > 10,
            "{name} has only {} tests",
            report.results.len()
        );
    }
}

#[test]
fn every_starter_is_laid_out_as_the_formatter_would() {
    for folder in starters() {
        let text = fs::read_to_string(folder.join("policy.cedar")).unwrap();
        assert_eq!(policy::format(&name(&folder), &text).unwrap(), text);
    }
}
