//! What every source file keeps to.

use crate::tree::{files_of, none, production, root, text};

/// The only reader of the environment.
const CONFIG: &str = "gateway/src/config.rs";
/// But for what a PostgreSQL URL leaves out.
const ADDRESS: &str = "crates/store-postgres/src/address.rs";
/// What reading the environment looks like.
const ENVIRONMENT: [&str; 4] = ["std::env", "env::var", "{env", "env = \""];
/// The longest line of a comment, in characters.
const COMMENT_CHARACTERS_MAX: usize = 130;
/// What has no place in the program.
const LOOSE_ENDS: [&str; 5] = ["#[allow(", "#![allow(", "todo!(", "unimplemented!(", "dbg!("];

#[test]
fn only_the_configuration_reads_the_environment() {
    let reads = |text: &str| ENVIRONMENT.iter().any(|word| text.contains(word));
    assert!(
        reads(&text(CONFIG)),
        "{CONFIG}: it no longer reads the environment; name the file that does in {}",
        file!()
    );
    let strangers = production()
        .into_iter()
        .filter(|(path, text)| path != CONFIG && path != ADDRESS && reads(text));
    none(
        strangers
            .map(|(path, _)| format!("{path}: only {CONFIG} reads the environment; add an option there")),
    );
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent = files_of("rs")
        .into_iter()
        .filter(|path| !text(path).starts_with("//! "));
    none(silent.map(|path| format!("{path}: begin with `//!`, what it is for and what it does not do")));
}

#[test]
fn no_comment_line_is_too_long() {
    let mut long = Vec::new();
    for path in files_of("rs") {
        for (number, line) in (1..).zip(text(&path).lines()) {
            if is_too_long_a_comment(line) {
                long.push(format!(
                    "{path}:{number}: at most {COMMENT_CHARACTERS_MAX} characters a line"
                ));
            }
        }
    }
    none(long);
}

/// One without a space, such as a URL, cannot be broken.
fn is_too_long_a_comment(line: &str) -> bool {
    let comment = line.trim_start().strip_prefix("//");
    let words = comment.map(|comment| comment.trim_start_matches(['/', '!']).trim());
    words.is_some_and(|words| words.contains(' ')) && line.chars().count() > COMMENT_CHARACTERS_MAX
}

#[test]
fn production_code_has_no_loose_ends() {
    for (path, text) in production() {
        for word in LOOSE_ENDS {
            assert!(
                !text.contains(word),
                "{path}: `{word}` has no place here; finish it, or `#[expect(…, reason = …)]`"
            );
        }
    }
}

#[test]
fn modules_are_files_with_names_and_none_is_forgotten() {
    for path in files_of("rs") {
        let Some((folder, name)) = path
            .rsplit_once('/')
            .filter(|(folder, _)| is_of_a_module_tree(folder))
        else {
            continue;
        };
        assert!(name != "mod.rs", "{path}: name it `{folder}.rs`");
        let declaration = format!("mod {};", name.trim_end_matches(".rs"));
        let parents = [
            format!("{folder}.rs"),
            format!("{folder}/lib.rs"),
            format!("{folder}/main.rs"),
        ];
        let mut parents = parents.iter().filter(|parent| root().join(parent).exists());
        let is_root = ["lib.rs", "main.rs"].contains(&name);
        let declared = is_root || parents.any(|parent| text(parent).contains(&declaration));
        assert!(
            declared,
            "{path}: nothing above it says `{declaration}`, so it is not compiled; declare or delete it"
        );
    }
}

fn is_of_a_module_tree(folder: &str) -> bool {
    format!("{folder}/").contains("/src/") && !folder.ends_with("/src/bin")
}
