//! The published Cedar corpus: the index and the evaluator say what Cedar's whole authorizer says, and validation accepts
//! what Cedar's accepts. It lies beside the repository; without it the tests say so and pass, except where CI promises it.

use crate::annotations::Annotations;
use crate::evaluate::{Asked, holds};
use crate::index::{Index, Position};
use crate::parse::Parsed;
use crate::ruling::PolicyId;
use crate::statement::Statement;
use crate::validate::Validator;
use cedar_policy::{Context, Entities, EntityUid, Request, Schema};
use cedar_policy_core::ast::{Effect, EntityUID};
use cedar_policy_core::entities::Dereference;
use cedar_policy_core::parser::parse_policyset;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// One test of the corpus. Its paths are relative to the folder that it was found in.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Case {
    policies: String,
    entities: String,
    schema: String,
    should_validate: bool,
    requests: Vec<Asking>,
}

#[derive(Deserialize)]
struct Asking {
    principal: Value,
    action: Value,
    resource: Value,
    context: Value,
    decision: String,
    reason: BTreeSet<String>,
    errors: BTreeSet<String>,
}

/// The folder of the vectors, or `None` where this checkout has none.
fn vectors() -> Option<PathBuf> {
    let folder = Path::new(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../../shared/vectors/cedar"
    ));
    if folder.exists() {
        return Some(folder.to_owned());
    }
    let is_ci = std::env::var_os("CI").is_some_and(|ci| !ci.is_empty());
    assert!(!is_ci, "{} is missing", folder.display());
    eprintln!("skipped: {} is missing", folder.display());
    None
}

/// Every case below a folder, by the name of its file.
fn cases(root: &Path, folders: &[&str]) -> Vec<(String, Case)> {
    let mut cases = Vec::new();
    for folder in folders {
        for entry in fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if let Some(stem) = name.strip_suffix(".json")
                && !stem.ends_with(".entities")
            {
                let text = fs::read_to_string(&path).unwrap();
                cases.push((stem.to_owned(), serde_json::from_str(&text).unwrap()));
            }
        }
    }
    assert!(!cases.is_empty(), "{} has no cases", root.display());
    cases
}

/// Policies of the corpus have no ids of their own and no annotations of ours.
fn parsed(text: &str) -> Vec<Parsed> {
    let set = parse_policyset(text).unwrap();
    let templates = set.all_templates().filter(|template| template.is_static());
    templates
        .map(|template| Parsed {
            statement: Arc::new(Statement::new(
                PolicyId::new("corpus", template.id().as_ref()),
                Annotations::plain(template.effect()),
                template,
            )),
            template: template.clone(),
        })
        .collect()
}

fn uid(json: &Value) -> EntityUid {
    EntityUid::from_json(json.clone()).unwrap()
}

/// An entity, and what it is in.
struct Place(EntityUID, Vec<EntityUID>);

impl Place {
    fn of(uid: &EntityUID, asked: &Asked) -> Self {
        let ancestors = match asked.entities.entity(uid) {
            Dereference::Data(entity) => entity.ancestors().cloned().collect(),
            _ => Vec::new(),
        };
        Self(uid.clone(), ancestors)
    }

    fn position(&self) -> Position<'_> {
        Position {
            entity: &self.0,
            ancestors: &self.1,
        }
    }
}

/// Decision, determining policies and failing ones, by the slice that the index finds.
fn decide(
    policies: &[Parsed],
    index: &Index,
    asked: &Asked,
) -> (&'static str, BTreeSet<String>, BTreeSet<String>) {
    let [principal, action, resource] = [
        asked.request.principal(),
        asked.request.action(),
        asked.request.resource(),
    ]
    .map(|entry| Place::of(entry.uid().unwrap(), asked));
    let actions = index.action(action.position());
    let found = index.find(actions.as_slice(), principal.position(), resource.position());
    let evaluator = asked.evaluator();
    let (mut permits, mut forbids, mut errors) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    for number in found.numbers() {
        let Parsed { statement, template } = &policies[number as usize];
        if !statement
            .scope
            .admits_types(principal.0.entity_type(), resource.0.entity_type())
        {
            continue;
        }
        let into = match (holds(&evaluator, statement.condition.as_ref()), template.effect()) {
            (Ok(false), _) => continue,
            (Ok(true), Effect::Permit) => &mut permits,
            (Ok(true), Effect::Forbid) => &mut forbids,
            (Err(_), _) => &mut errors,
        };
        into.insert(template.id().to_string());
    }
    match (permits.is_empty(), forbids.is_empty()) {
        (_, false) => ("deny", forbids, errors),
        (false, true) => ("allow", permits, errors),
        (true, true) => ("deny", BTreeSet::new(), errors),
    }
}

/// Answers every request of a case, and returns how many there were.
fn check(root: &Path, name: &str, case: &Case, validation_differs: bool) -> usize {
    let read = |path: &str| fs::read_to_string(root.join(path)).unwrap();
    let policies = parsed(&read(&case.policies));
    let (schema, _) = Schema::from_cedarschema_str(&read(&case.schema)).unwrap();
    let entities = Entities::from_json_str(&read(&case.entities), Some(&schema)).unwrap();
    let mut index = Index::default();
    for (number, parsed) in (0..).zip(&policies) {
        index.add(number, &parsed.statement.scope);
    }
    for asking in &case.requests {
        let action = uid(&asking.action);
        let context = Context::from_json_value(asking.context.clone(), Some((&schema, &action))).unwrap();
        let request = Request::new(
            uid(&asking.principal),
            action,
            uid(&asking.resource),
            context,
            None,
        )
        .unwrap();
        let asked = Asked {
            request: AsRef::<cedar_policy_core::ast::Request>::as_ref(&request).clone(),
            entities: entities.as_ref().clone(),
        };
        let expected = (&*asking.decision, asking.reason.clone(), asking.errors.clone());
        assert_eq!(decide(&policies, &index, &asked), expected, "{name}");
    }
    if !validation_differs {
        check_validation(name, &schema, &policies, case.should_validate);
    }
    case.requests.len()
}

fn check_validation(name: &str, schema: &Schema, policies: &[Parsed], expected: bool) {
    let validator = Validator::new(schema);
    let mut errors = policies
        .iter()
        .flat_map(|parsed| validator.validate(parsed).errors);
    // Cedar only warns of what can never match.
    let error = errors.find(|error| !error.message.contains("can never match"));
    assert_eq!(error.is_none(), expected, "{name}: {error:?}");
}

#[test]
fn every_hand_written_case_is_decided_as_cedar_decides_it() {
    let Some(root) = vectors() else { return };
    let folders = ["decimal", "example_use_cases", "ip", "multi"].map(|folder| format!("tests/{folder}"));
    let folders = folders.each_ref().map(String::as_str);
    let cases = cases(&root, &folders);
    let requests: usize = cases
        .iter()
        .map(|(name, case)| check(&root, name, case, false))
        .sum();
    assert!(requests >= cases.len(), "{requests} requests");
}

#[test]
fn every_generated_case_is_decided_as_cedar_decides_it() {
    let Some(root) = vectors() else { return };
    let differences = fs::read_to_string(root.join("known-validator-differences.json")).unwrap();
    let differences: Value = serde_json::from_str(&differences).unwrap();
    let differences = differences["tests"].as_array().unwrap();
    let unpacked = tempfile::tempdir().unwrap();
    let tar = Command::new("tar")
        .arg("-xzf")
        .arg(root.join("corpus-visible.tar.gz"))
        .arg("-C")
        .arg(unpacked.path())
        .status();
    assert!(tar.unwrap().success());
    let cases = cases(unpacked.path(), &["corpus-tests"]);
    let requests: usize = cases
        .iter()
        .map(|(name, case)| {
            check(
                unpacked.path(),
                name,
                case,
                differences.iter().any(|known| known == name),
            )
        })
        .sum();
    assert!(requests >= cases.len(), "{requests} requests");
}
