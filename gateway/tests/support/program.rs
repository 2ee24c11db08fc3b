//! The program as tests start it: whatever is set around them is not meant for it. What it is told is up to each test.

use std::env;
use std::process::Command;

/// What the names of all of its settings begin with.
const SETTINGS: &str = "COUNTERSIGN_";

/// A command without the settings that stand around the tests. Those of a test are set behind this.
pub(crate) fn without_settings(command: &mut Command) -> &mut Command {
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with(SETTINGS) {
            command.env_remove(name);
        }
    }
    command
}
