//! Single policies out of a text: each with its own id, the notes from its annotations, and its place in the text.
//! Whether they fit a schema is not decided here.

use crate::annotations::{self, Notes};
use crate::diagnostics::{Diagnostic, Diagnostics, Place, Severity};
use crate::ruling::PolicyId;
use std::collections::BTreeMap;
use std::str::FromStr;
use std::sync::Arc;

/// One policy.
#[derive(Debug, Clone)]
pub(crate) struct Statement {
    pub(crate) id: PolicyId,
    pub(crate) notes: Notes,
    /// The policy as Cedar knows it, under our id.
    pub(crate) cedar: cedar_policy::Policy,
    /// The policy in Cedar's JSON form.
    pub(crate) tree: serde_json::Value,
    /// The text that it was found in, for the places of errors.
    pub(crate) source: Arc<str>,
}

impl Statement {
    /// The policy's own text, without what stands around it.
    pub(crate) fn text(&self) -> String {
        self.cedar.to_string()
    }

    /// What Cedar found in this policy.
    pub(crate) fn finding(&self, severity: Severity, found: &dyn miette::Diagnostic) -> Diagnostic {
        Diagnostic::from_cedar(&self.source, severity, found).about(&self.id)
    }
}

fn place(source: &str, span: Option<miette::SourceSpan>) -> Option<Place> {
    span.map(|span| Place::of(source, span.offset(), span.len()))
}

/// Every policy in the text of the policy with this name, in the order of their ids.
pub(crate) fn parse(name: &str, text: &str) -> Result<Vec<Statement>, Diagnostics> {
    let parsed = cedar_policy::PolicySet::from_str(text).map_err(|errors| {
        let found = errors.iter();
        Diagnostics(
            found
                .map(|error| Diagnostic::from_cedar(text, Severity::Error, error).about(name))
                .collect(),
        )
    })?;
    let source: Arc<str> = Arc::from(text);
    let mut statements = BTreeMap::new();
    let mut faults = templates(name, text, &parsed);
    for policy in parsed.policies() {
        match statement(name, &source, policy) {
            Err(fault) => faults.push(fault),
            Ok(statement) => {
                if let Some(twin) = statements.insert(statement.id.clone(), statement) {
                    let message = format!("the id `{}` is used more than once", twin.id);
                    let place = place(text, policy.as_ref().loc().map(|loc| loc.span));
                    faults.push(Diagnostic::error(message).about(&twin.id).at(place));
                }
            }
        }
    }
    if faults.is_empty() {
        return Ok(statements.into_values().collect());
    }
    faults.sort_by_key(|fault| fault.place.map(|place| place.offset));
    Err(Diagnostics(faults))
}

fn statement(name: &str, source: &Arc<str>, policy: &cedar_policy::Policy) -> Result<Statement, Diagnostic> {
    let (id, notes) = annotations::read(policy.effect(), policy.annotations()).map_err(|fault| {
        let about = policy
            .annotation("id")
            .map_or(name.to_owned(), |id| format!("{name}/{id}"));
        Diagnostic::error(fault.message)
            .with_help(fault.help)
            .about(about)
            .at(place(source, policy.as_ref().loc().map(|loc| loc.span)))
    })?;
    let id = PolicyId::new(name, id);
    let tree = policy
        .to_json()
        .map_err(|error| Diagnostic::error(error.to_string()).about(&id))?;
    Ok(Statement {
        tree,
        cedar: policy.new_id(cedar_policy::PolicyId::new(id.as_str())),
        id,
        notes,
        source: Arc::clone(source),
    })
}

/// A template without a link would look like a rule and never apply.
fn templates(name: &str, text: &str, parsed: &cedar_policy::PolicySet) -> Vec<Diagnostic> {
    let found = parsed.templates().map(|template| {
        Diagnostic::error("the policy is a template, which nothing would link")
            .with_help("write out what `?principal` and `?resource` stand for")
            .about(name)
            .at(place(text, template.as_ref().loc().map(|loc| loc.span)))
    });
    found.collect()
}
