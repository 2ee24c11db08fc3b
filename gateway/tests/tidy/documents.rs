//! Documents tell what is there: metrics, settings, routes, files and tests.

use crate::tree::{files, files_of, has_extension, none, production, root, text};
use model::ReasonCode;
use serde_json::Value;
use std::fs;

/// The only home of metrics.
const METRICS: &str = "gateway/src/metrics.rs";
/// What operators read.
const OPERATIONS: &str = "docs/operations.md";
/// What callers read about refusals, and about the reasons of decisions.
const ERRORS: &str = "docs/errors.md";
/// What stands there between the two.
const REASONS: &str = "\n## Reason codes\n";
/// The contract.
const CONTRACT: &str = "docs/openapi.json";
/// What always holds.
const INVARIANTS: &str = "docs/invariants.md";
/// A word with so many underscores is the name of a test.
const UNDERSCORES_OF_A_TEST: usize = 4;
/// How long a line of prose may be. Rows of tables and code are longer where they have to.
const COLUMNS_MAX: usize = 120;
/// Whose entries are a line each.
const CHANGELOG: &str = "CHANGELOG.md";

/// What stands in quotes right behind each `before`.
fn quoted_after<'t>(text: &'t str, before: &str) -> Vec<&'t str> {
    let found = text.split(before).skip(1);
    found
        .filter_map(|rest| rest.split_once('"').map(|(quoted, _)| quoted))
        .collect()
}

#[test]
fn prose_is_wrapped() {
    let pages = files_of("md").into_iter().filter(|path| path != CHANGELOG);
    let long = pages.flat_map(|path| {
        let page = text(&path);
        // What is between fences is code.
        let parts = page.split("```").step_by(2);
        let lines = parts
            .flat_map(str::lines)
            .filter(|line| !line.trim().starts_with('|'));
        let long: Vec<_> = lines
            .filter(|line| columns_of(line) > COLUMNS_MAX)
            .map(|line| format!("{path}: wrap this at {COLUMNS_MAX} columns: {line}"))
            .collect();
        long
    });
    none(long);
}

/// How long a line is, where a link and what is in backticks count for a column each: these cannot be broken.
fn columns_of(line: &str) -> usize {
    let mut columns = 0;
    for (spans_before, part) in line.split('`').step_by(2).enumerate() {
        columns += usize::from(spans_before > 0);
        let mut rest = part;
        while let Some((before, link)) = rest.split_once("](") {
            let text = before.rfind('[').unwrap_or(before.len());
            columns += before[..text].chars().count() + 1;
            rest = link.split_once(')').map_or("", |(_, behind)| behind);
        }
        columns += rest.chars().count();
    }
    columns
}

#[test]
fn what_cannot_be_broken_counts_for_a_column() {
    assert_eq!(columns_of("four"), 4);
    assert_eq!(
        columns_of("see [a long name](with/an/address) and `much code`."),
        12
    );
    let words = "word ".repeat(30);
    assert!(columns_of(&words) > COLUMNS_MAX);
    assert!(columns_of(&format!("[{words}](x)")) <= COLUMNS_MAX);
}

#[test]
fn metrics_have_one_home_and_are_explained() {
    let strangers = production()
        .into_iter()
        .filter(|(path, text)| path != METRICS && text.contains("registry.register("));
    none(strangers.map(|(path, _)| format!("{path}: metrics are registered in {METRICS} only")));
    let (home, guide) = (text(METRICS), text(OPERATIONS));
    let names = quoted_after(&home, "registry.register(\"");
    assert!(!names.is_empty(), "{METRICS}: no metrics were found");
    let silent = names
        .into_iter()
        .filter(|name| !rows_of(name).iter().any(|row| guide.contains(row)));
    none(silent.map(|name| format!("{OPERATIONS}: explain `countersign_{name}`")));
}

/// How the row of a metric begins: counters have a word more than they were registered with.
fn rows_of(metric: &str) -> [String; 2] {
    ["", "_total"].map(|end| format!("| `countersign_{metric}{end}` |"))
}

#[test]
fn a_metric_is_not_explained_by_the_row_of_a_longer_name() {
    let explains = |row: &str| rows_of("asks").iter().any(|begin| row.contains(begin));
    assert!(explains("| `countersign_asks` | gauge |") && explains("| `countersign_asks_total` | counter |"));
    assert!(!explains("| `countersign_asks_max` | gauge |"));
}

#[test]
fn every_setting_is_explained() {
    let (config, guide) = (text("gateway/src/config.rs"), text(OPERATIONS));
    let names = quoted_after(&config, "env = \"");
    assert!(!names.is_empty(), "gateway/src/config.rs: no settings were found");
    let silent = names
        .into_iter()
        .filter(|name| !guide.contains(&format!("`{name}`")));
    none(silent.map(|name| format!("{OPERATIONS}: explain `{name}`")));
}

/// And no page explains what there is not.
#[test]
fn every_code_is_explained_and_no_other() {
    let guide = text(ERRORS);
    let rows: Vec<&str> = rows_by_code(halves(&guide).0).map(|(code, _)| code).collect();
    let refusals = text("gateway/src/http/refusal.rs");
    let codes: Vec<&str> = refusals
        .lines()
        .filter_map(|line| line.trim().split_once(" = \"")?.1.split_once("\", "))
        .map(|(code, _)| code)
        .collect();
    assert!(!codes.is_empty(), "no codes were found");
    let silent = codes.iter().filter(|code| !rows.contains(code));
    none(silent.map(|code| format!("{ERRORS}: explain `{code}`")));
    let invented = rows.iter().filter(|row| !codes.contains(row));
    none(invented.map(|row| format!("{ERRORS}: there is no code `{row}`")));
}

#[test]
fn every_reason_code_is_explained_with_its_verdict_and_no_other() {
    let guide = text(ERRORS);
    let rows: Vec<(&str, &str)> = rows_by_code(halves(&guide).1).collect();
    let is_told = |code: &ReasonCode| {
        let verdict = format!("{} | ", code.verdict().as_str());
        let mut told = rows.iter().filter(|(row, _)| *row == code.as_str());
        told.any(|(_, rest)| rest.starts_with(&verdict))
    };
    let silent = ReasonCode::ALL.iter().filter(|code| !is_told(code));
    none(silent.map(|code| {
        let (word, verdict) = (code.as_str(), code.verdict().as_str());
        format!("{ERRORS}: explain `{word}`, which goes with {verdict}")
    }));
    let invented = rows
        .iter()
        .filter(|(row, _)| ReasonCode::from_word(row).is_none());
    none(invented.map(|(row, _)| format!("{ERRORS}: there is no reason code `{row}`")));
}

/// What that page says about refusals, and what about reasons.
fn halves(guide: &str) -> (&str, &str) {
    guide
        .split_once(REASONS)
        .expect("the page has a section about reason codes")
}

/// The rows of tables that begin with a code: that, and what stands behind it.
fn rows_by_code(page: &str) -> impl Iterator<Item = (&str, &str)> {
    page.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` | "))
}

#[test]
fn the_guide_names_no_metric_or_setting_that_is_not_there() {
    let (home, config) = (text(METRICS), text("gateway/src/config.rs"));
    let guide = text(OPERATIONS);
    let named = guide.split('`').skip(1).step_by(2);
    let metrics = named.clone().filter_map(|word| {
        let name = word.strip_prefix("countersign_")?;
        let end = name.find(|character: char| !character.is_ascii_lowercase() && character != '_');
        Some(&name[..end.unwrap_or(name.len())])
    });
    // What ends in `_total` is registered without, and `_count` and `_sum` are a histogram's.
    let is_registered = |name: &str| {
        let ends = ["_total", "_count", "_sum", "_bucket"];
        let stem = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        home.contains(&format!("\"{stem}\"")) || home.contains(&format!("\"{name}\""))
    };
    none(
        metrics
            .filter(|name| !is_registered(name))
            .map(|name| format!("{OPERATIONS}: there is no metric `countersign_{name}`")),
    );
    let settings = named.filter(|word| {
        word.starts_with("COUNTERSIGN_") && word.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    none(
        settings
            .filter(|name| !config.contains(&format!("env = \"{name}\"")))
            .map(|name| format!("{OPERATIONS}: there is no setting `{name}`")),
    );
}

#[test]
fn every_route_is_in_the_contract() {
    let contract: Value = serde_json::from_str(&text(CONTRACT)).expect("the contract is JSON");
    let missing = gateway::router::routes().into_iter().filter(|route| {
        let path = &contract["paths"][route.template()];
        path.get(route.method.to_ascii_lowercase()).is_none()
    });
    none(missing.map(|route| format!("{CONTRACT}: describe `{} {}`", route.method, route.path)));
}

#[test]
fn no_file_knows_where_it_was_written() {
    // In halves, because this file is one of those that are read.
    let halves = [("/ho", "me/"), ("/ro", "ot/"), ("/wo", "rk/"), ("/Us", "ers/")];
    let places = halves.map(|(one, other)| format!("{one}{other}"));
    for path in files("") {
        let text = fs::read(root().join(&path)).expect("it was just found");
        let text = String::from_utf8_lossy(&text);
        let told = places.iter().find(|place| text.contains(place.as_str()));
        assert!(
            told.is_none(),
            "{path}: `{}…` is a path of one machine; say it from the repository",
            told.unwrap_or(&path)
        );
    }
}

#[test]
fn links_lead_somewhere() {
    for page in files_of("md") {
        let folder = root()
            .join(&page)
            .parent()
            .expect("a file is in a folder")
            .to_owned();
        for rest in text(&page).split("](").skip(1) {
            let link = rest.split([')', '#']).next().unwrap_or_default();
            let leads = link.is_empty() || link.contains("://") || folder.join(link).exists();
            assert!(leads, "{page}: the link `{link}` leads nowhere");
        }
    }
}

#[test]
fn documents_name_files_and_tests_that_exist() {
    let sources: String = files_of("rs").iter().map(|path| text(path)).collect();
    for page in files_of("md") {
        let folder = root()
            .join(&page)
            .parent()
            .expect("a file is in a folder")
            .to_owned();
        for word in text(&page).split('`').skip(1).step_by(2) {
            let names_file =
                has_extension(word, "rs") && word.contains('/') && !word.contains(['<', '*', '{', ' ']);
            let exists = root().join(word).exists() || folder.join(word).exists();
            assert!(!names_file || exists, "{page}: there is no file `{word}`");
            let is_test = is_name_of_a_test(word);
            assert!(
                !is_test || sources.contains(&format!("fn {word}(")),
                "{page}: there is no test `{word}`"
            );
        }
    }
}

#[test]
fn every_table_is_in_the_architecture() {
    let architecture = text("ARCHITECTURE.md");
    let rows = architecture.lines().filter(|line| line.starts_with("| `"));
    let named: Vec<_> = rows.filter_map(|row| row.split(" | ").next()).collect();
    let mut silent = Vec::new();
    for path in files("migrations") {
        let step = text(&path);
        for rest in step.split("CREATE TABLE ").skip(1) {
            let table = rest.split_whitespace().next().unwrap_or_default();
            // It is filled, and takes the name of the one before it.
            let is_renamed = step.contains(&format!("ALTER TABLE {table} RENAME TO "));
            let row = format!("`{table}`");
            if !is_renamed && !named.iter().any(|cell| cell.contains(&row)) {
                silent.push(format!("ARCHITECTURE.md: say what a row of {row} is"));
            }
        }
    }
    none(silent);
}

#[test]
fn invariants_are_numbered_without_gaps() {
    let page = text(INVARIANTS);
    let mut numbers: Vec<usize> = numbered_rows(&page).map(|(number, _)| number).collect();
    numbers.sort_unstable();
    let due: Vec<usize> = (1..=numbers.len()).collect();
    assert!(!due.is_empty(), "{INVARIANTS}: no invariants were found");
    assert_eq!(numbers, due, "{INVARIANTS}: give a new invariant the next number");
}

#[test]
fn the_architecture_tells_invariants_as_they_are() {
    let (page, architecture) = (text(INVARIANTS), text("ARCHITECTURE.md"));
    let section = architecture
        .split("\n## ")
        .find(|section| section.starts_with("Invariants\n"))
        .expect("ARCHITECTURE.md has a section of invariants");
    assert!(numbered_rows(section).next().is_some());
    let is_told = |row: &str| {
        let same = row.trim_end_matches('|');
        page.lines().any(|whole| whole.starts_with(same))
    };
    let others = numbered_rows(section).filter(|(_, row)| !is_told(row));
    none(others.map(|(number, _)| format!("ARCHITECTURE.md: tell invariant {number} as {INVARIANTS} does")));
}

/// The rows of its tables that begin with a number, and that number.
fn numbered_rows(page: &str) -> impl Iterator<Item = (usize, &str)> {
    page.lines().filter_map(|row| {
        let (number, _) = row.strip_prefix("| ")?.split_once(" | ")?;
        Some((number.parse().ok()?, row))
    })
}

fn is_name_of_a_test(word: &str) -> bool {
    let is_name = word
        .bytes()
        .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    is_name && word.matches('_').count() >= UNDERSCORES_OF_A_TEST && !word.starts_with("countersign_")
}
