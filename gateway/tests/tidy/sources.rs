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
/// What our own reader is called where a member is read by it.
const OF_OTHERS: &str = "deserialize_with = \"canon::foreign\"";
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

/// `serde_json` reads a text in a text where an object begins with a key of its own. Where neither the line nor the
/// function names the type, nothing is found, nor what libraries read.
#[test]
fn texts_of_others_become_values_by_our_own_reader() {
    let mut found = Vec::new();
    for (path, text) in production() {
        found.extend(
            readings(&text)
                .map(|number| format!("{path}:{number}: `canon::value` or `canon::object` reads this")),
        );
        for shape in shapes_that_are_read(&text) {
            let values = shape.iter().filter(|line| names_a_value(line)).count();
            let ours = shape.iter().filter(|line| line.contains(OF_OTHERS)).count();
            if values > ours {
                let head = shape.iter().find(|line| !line.starts_with('#'));
                let head = head.copied().unwrap_or_default();
                found.push(format!("{path}: `{head}`: give each `Value` in it `{OF_OTHERS}`"));
            }
        }
    }
    none(found);
}

/// The lines of a text in which `serde_json` makes a value of something.
fn readings(text: &str) -> impl Iterator<Item = usize> {
    let mut head = "";
    let lines = (1..).zip(text.lines());
    lines.filter_map(move |(number, line)| {
        if line.contains("fn ") {
            head = line;
        }
        let is_named = line.contains("serde_json::from_") || line.contains("Value::deserialize(");
        let is_made = ["str(", "slice(", "reader("]
            .iter()
            .any(|from| line.contains(&format!("serde_json::from_{from}")));
        let makes_one = head.split_once("->").is_some_and(|(_, made)| names_a_value(made));
        (is_named && names_a_value(line) || is_made && makes_one).then_some(number)
    })
}

/// Whether a line of code has the word.
fn names_a_value(line: &str) -> bool {
    let is_of_a_word = |character: char| character.is_alphanumeric() || character == '_';
    let mut places = line.match_indices("Value");
    !line.trim_start().starts_with("//")
        && places.any(|(at, word)| {
            !line[..at].ends_with(is_of_a_word) && !line[at + word.len()..].starts_with(is_of_a_word)
        })
}

/// The lines of each type whose reader is derived from its members, from its attributes to its end.
fn shapes_that_are_read(text: &str) -> Vec<Vec<&str>> {
    let derived = text.split("#[derive(").skip(1);
    let read = derived.filter(|rest| {
        rest.lines()
            .next()
            .is_some_and(|line| line.contains("Deserialize"))
    });
    let shapes = read.map(|rest| {
        let lines: Vec<_> = rest.lines().skip(1).map(str::trim).collect();
        let end = lines.iter().position(|line| *line == "}" || line.ends_with(");"));
        lines[..end.map_or(lines.len(), |end| end + 1)].to_vec()
    });
    shapes
        .filter(|shape| !shape.iter().any(|line| is_made_of_another(line)))
        .collect()
}

/// Whether a type is read by way of another one, which is no value itself.
fn is_made_of_another(line: &str) -> bool {
    let named = line
        .split_once("try_from = \"")
        .and_then(|(_, rest)| rest.split('"').next());
    named.is_some_and(|named| !names_a_value(named))
}

#[test]
fn a_value_that_serde_json_would_read_is_found() {
    let shape =
        "#[derive(Debug, Deserialize)]\nstruct Odd {\n    one: RawValue,\n    other: Option<Value>,\n}\n";
    let found = shapes_that_are_read(shape);
    let lines = found.iter().flatten().filter(|line| names_a_value(line));
    assert_eq!(lines.collect::<Vec<_>>(), [&"other: Option<Value>,"]);
    let by_way_of =
        "#[derive(Deserialize)]\n#[serde(try_from = \"Map<String, Value>\")]\npub struct Odd(Members);\n";
    assert_eq!(shapes_that_are_read(by_way_of).len(), 1);
    let by_way_of = "#[derive(Deserialize)]\n#[serde(try_from = \"Given\")]\npub struct Even(Value);\n";
    assert_eq!(shapes_that_are_read(by_way_of).len(), 0);
    let named = "let a: Value = serde_json::from_str(text)?;";
    let returned =
        "fn parsed(text: &str) -> Result<Value, Error> {\n    Ok(serde_json::from_str(text)?)\n}\n";
    let another =
        "fn parsed(text: &Value) -> Result<Shape, Error> {\n    Ok(serde_json::from_str(text)?)\n}\n";
    assert_eq!(readings(named).collect::<Vec<_>>(), [1]);
    assert_eq!(readings(returned).collect::<Vec<_>>(), [2]);
    assert_eq!(readings(another).count(), 0);
    assert!(!names_a_value("// A Value."));
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
