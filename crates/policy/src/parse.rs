//! From a text to single policies: each with its own id, its annotations, and its place in the text.
//! Templates become policies by being linked. Whether anything fits a schema is not decided here.

use crate::annotations;
use crate::diagnostics::{Diagnostic, Diagnostics, Place, Severity};
use crate::link;
use crate::ruling::PolicyId;
use crate::statement::Statement;
use crate::tenant::Link;
use crate::text;
use crate::validate::TOLD_MAX;
use cedar_policy_core::ast::{PolicyID, PolicySet, Template};
use cedar_policy_core::parser::{self, Loc};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

/// A policy, and the form of it that is validated.
#[derive(Debug, Clone)]
pub(crate) struct Parsed {
    pub(crate) statement: Arc<Statement>,
    pub(crate) template: Template,
}

/// A template under its id, and how often it is linked.
pub(crate) struct Unlinked {
    pub(crate) statement: Statement,
    pub(crate) template: Template,
    pub(crate) links: usize,
}

/// What a text has brought so far, by id.
#[derive(Default)]
struct Found {
    policies: BTreeMap<PolicyId, Parsed>,
    templates: BTreeMap<PolicyId, Unlinked>,
    faults: Vec<Diagnostic>,
}

/// Every policy in the text of the policy with this name, linked like this, in the order of their ids; or what is wrong,
/// [`TOLD_MAX`] findings at most: for the place of each the whole text is gone through.
pub(crate) fn parse(name: &str, text: &str, links: &[Link]) -> Result<Vec<Parsed>, Diagnostics> {
    let set = read(name, text)?;
    let mut templates: Vec<_> = set.all_templates().collect();
    templates.sort_by_key(|template| template.loc().map(Loc::start));
    let mut found = Found::default();
    for template in templates {
        found.read(name, template);
        if found.faults.len() >= TOLD_MAX {
            return Err(Diagnostics(found.faults));
        }
    }
    found.link(name, links);
    if found.faults.is_empty() {
        return Ok(found.policies.into_values().collect());
    }
    found
        .faults
        .sort_by_key(|fault| fault.place.map(|place| place.offset));
    found.faults.truncate(TOLD_MAX);
    Err(Diagnostics(found.faults))
}

/// How long the policies of these links are, each written out with the text of its template. What is wrong with a text or a
/// link is told by [`parse`], and counts for nothing here.
pub(crate) fn linked_bytes(text: &str, links: &[Link]) -> usize {
    let Ok(set) = read("", text) else { return 0 };
    let lengths: BTreeMap<_, _> = set
        .templates()
        .filter_map(|template| {
            let id = template.annotation(&"id".parse().ok()?)?;
            Some((id.as_ref(), template.loc()?.snippet()?.len()))
        })
        .collect();
    let lengths = links
        .iter()
        .filter_map(|link| lengths.get(link.template.as_str()));
    lengths.sum()
}

/// The text of the policy with this name as Cedar reads it.
pub(crate) fn read(name: &str, text: &str) -> Result<PolicySet, Diagnostics> {
    text::check(text).map_err(|fault| fault.about(name))?;
    parser::parse_policyset(text).map_err(|errors| {
        let found = errors.iter().take(TOLD_MAX);
        Diagnostics(
            found
                .map(|error| Diagnostic::from_cedar(text, Severity::Error, error).about(name))
                .collect(),
        )
    })
}

impl Found {
    fn read(&mut self, name: &str, template: &Template) {
        let texts = || {
            let all = template.annotations();
            all.map(|(key, annotation)| (key.as_ref(), annotation.as_ref()))
        };
        let (id, annotations) = match annotations::read(template.effect(), texts()) {
            Ok((id, annotations)) => (PolicyId::new(name, id), annotations),
            Err(fault) => {
                let id = texts().find(|(key, _)| *key == "id");
                let about = id.map_or(name.to_owned(), |(_, id)| format!("{name}/{id}"));
                let found = Diagnostic::error(fault.message).with_help(fault.help);
                return self
                    .faults
                    .push(found.about(about).at(Place::of_loc(template.loc())));
            }
        };
        let template = template.new_id(PolicyID::from_string(id.as_str()));
        if self.policies.contains_key(&id) || self.templates.contains_key(&id) {
            self.faults.push(duplicate(&id).at(Place::of_loc(template.loc())));
        } else if template.is_static() {
            let statement = Arc::new(Statement::new(id.clone(), annotations, &template));
            self.policies.insert(id, Parsed { statement, template });
        } else {
            let unlinked = Unlinked {
                statement: Statement::new(id.clone(), annotations, &template),
                template,
                links: 0,
            };
            self.templates.insert(id, unlinked);
        }
    }

    fn link(&mut self, name: &str, links: &[Link]) {
        for link in links {
            if self.faults.len() >= TOLD_MAX {
                return;
            }
            let id = PolicyId::new(name, link.id.as_str());
            let linked = link::link(name, &id, link, &mut self.templates);
            let taken = self.templates.contains_key(&id);
            match (linked, self.policies.entry(id)) {
                (Err(fault), entry) => self.faults.push(fault.about(entry.key())),
                (Ok(linked), Entry::Vacant(entry)) if !taken => {
                    entry.insert(linked);
                }
                (Ok(linked), entry) => self
                    .faults
                    .push(duplicate(entry.key()).at(linked.statement.place())),
            }
        }
        // A template without a link would look like a rule and never apply.
        let idle = self.templates.iter().filter(|(_, template)| template.links == 0);
        let idle = idle.map(|(id, idle)| {
            Diagnostic::error("the policy is a template, and nothing links it")
                .with_help("add a link that says what its slots stand for, or write it out")
                .about(id)
                .at(Place::of_loc(idle.template.loc()))
        });
        self.faults.extend(idle.take(TOLD_MAX));
    }
}

fn duplicate(id: &PolicyId) -> Diagnostic {
    Diagnostic::error(format!("the id `{id}` is used more than once"))
        .with_help("give every policy, template and link an id of its own")
        .about(id)
}
