//! The program as tests start it: whatever is set around them is not meant for it. What it is told is up to each test.

use std::env;
use std::process::Command;

/// What the names of all of its settings begin with, and of what it takes from PostgreSQL's own programs.
const SETTINGS: [&str; 2] = ["COUNTERSIGN_", "PG"];

/// A command without the settings that stand around the tests. Those of a test are set behind this.
pub(crate) fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        let text = name.to_string_lossy();
        if SETTINGS.iter().any(|begin| text.starts_with(begin)) {
            command.env_remove(name);
        }
    }
    command
}
