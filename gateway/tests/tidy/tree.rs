//! The files of the repository, as paths from its root.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders with nothing of ours in them.
const SKIPPED: [&str; 3] = [".git", "target", "__pycache__"];
/// Where the tests of a file begin.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// The root of the repository.
pub(crate) fn root() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.canonicalize().expect("the package stands in the repository")
}

/// What is in a file.
pub(crate) fn text(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Every file below a folder, in order.
pub(crate) fn files(folder: &str) -> Vec<String> {
    let root = root();
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries {
            let path = entry.expect("a folder that can be opened can be read").path();
            let skipped = SKIPPED.iter().any(|name| path.ends_with(name)) || is_database(&path);
            if path.is_dir() && !skipped {
                folders.push(path);
            } else if !path.is_dir() && !skipped {
                let path = path.strip_prefix(&root).expect("it was found below the root");
                found.push(path.to_str().expect("our names are UTF-8").to_owned());
            }
        }
    }
    found.sort();
    found
}

/// Whether it is what a gateway that was started here has left.
fn is_database(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.is_some_and(|name| name.starts_with("countersign.db"))
}

/// Every file with this extension.
pub(crate) fn files_of(extension: &str) -> Vec<String> {
    let mut paths = files("");
    paths.retain(|path| has_extension(path, extension));
    paths
}

pub(crate) fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|found| found == extension)
}

/// The files that go into the program and their texts, without the tests in them.
pub(crate) fn production() -> Vec<(String, String)> {
    let mut paths = files_of("rs");
    paths.retain(|path| {
        path.starts_with("gateway/src/") || path.starts_with("crates/") && path.contains("/src/")
    });
    paths.retain(|path| !path.ends_with("/tests.rs") && !path.contains("/tests/"));
    paths
        .into_iter()
        .map(|path| {
            let whole = text(&path);
            let code = whole.split(TESTS).next().unwrap_or_default();
            (path, code.to_owned())
        })
        .collect()
}

/// Fails with all complaints at once.
#[track_caller]
pub(crate) fn none(complaints: impl IntoIterator<Item = String>) {
    let complaints: Vec<_> = complaints.into_iter().collect();
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

#[test]
fn production_code_is_found_without_its_tests() {
    let production = production();
    let find = |wanted: &str| production.iter().find(|(path, _)| path == wanted);
    let (_, limits) = find("crates/model/src/standing.rs").expect("it is production code");
    assert!(limits.contains("pub enum Standing") && !limits.contains("#[test]"));
    assert!(find("gateway/src/main.rs").is_some());
    assert!(
        production
            .iter()
            .all(|(path, _)| path != "gateway/tests/tidy/main.rs")
    );
}
