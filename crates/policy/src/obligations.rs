//! The obligations of one policy, and which of them an ask has anything to do with; and how much a new policy may have
//! recorded of each ask that it is about.

use crate::diagnostics::Diagnostic;
use crate::parameters::Parameters;
use crate::parse::Parsed;
use crate::ruling::{OBLIGATIONS_MAX, Obligation};

/// How many dots the path of a parameter may have in a new policy: parameters are not nested more deeply.
const PATH_DOTS_MAX: usize = 64;
/// How long it may be, in bytes: far longer than people write.
const PATH_BYTES_MAX: usize = 1 << 10;
/// How long any other obligation may be.
const OBLIGATION_BYTES_MAX: usize = 1 << 10;
/// How long a sentence may be that is told and recorded with each ask, as many bytes: some dozens of lines.
const SENTENCE_BYTES_MAX: usize = 1 << 12;

/// The obligations of one policy, sorted and without repetition.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Obligations {
    all: Vec<Obligation>,
    /// Whether one of them is about every ask.
    always: bool,
    /// The paths of what is to be redacted, sorted. A list of all names of credentials has two dozen, and most asks have none
    /// of them.
    paths: Vec<Box<str>>,
}

impl Obligations {
    pub(crate) fn new(mut all: Vec<Obligation>) -> Self {
        all.sort();
        all.dedup();
        let mut paths: Vec<Box<str>> = all
            .iter()
            .filter_map(|obligation| obligation.parameter().map(Into::into))
            .collect();
        paths.sort_unstable();
        Self {
            always: paths.len() < all.len(),
            all,
            paths,
        }
    }

    pub(crate) fn as_slice(&self) -> &[Obligation] {
        &self.all
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Those that have something to do: nothing can be redacted that is not there.
    pub(crate) fn about<'o>(
        &'o self,
        parameters: &'o Parameters<'_>,
    ) -> impl Iterator<Item = &'o Obligation> {
        let all = if self.may_concern(parameters) {
            &self.all[..]
        } else {
            &[]
        };
        all.iter().filter(|obligation| match obligation.parameter() {
            Some(path) => parameters.has(path),
            None => true,
        })
    }

    fn may_concern(&self, parameters: &Parameters<'_>) -> bool {
        let mut names = parameters.keys();
        // Of a few paths it is quicker to look for each than to look at many parameters.
        self.always || names.len() > self.paths.len() || names.any(|name| self.is_head(name))
    }

    /// Whether there can be anything to redact under a parameter with this name.
    fn is_head(&self, name: &str) -> bool {
        let paths = &self.paths[self.paths.partition_point(|path| **path < *name)..];
        match paths.first().and_then(|path| path.strip_prefix(name)) {
            None => false,
            Some("") => true,
            // Between a name and what is inside it stand those that go on with what sorts before a dot.
            Some(_) => {
                let inside = || name.bytes().chain([b'.']);
                let first = paths.partition_point(|path| path.bytes().lt(inside()));
                let first = paths.get(first).and_then(|path| path.strip_prefix(name));
                first.is_some_and(|rest| rest.starts_with('.'))
            }
        }
    }
}

/// What is too much in a new policy of what is recorded with the asks that it is about. It would be for good.
pub(crate) fn fault(parsed: &Parsed) -> Option<Diagnostic> {
    let statement = &parsed.statement;
    let annotations = &*statement.annotations;
    let obligations = &annotations.obligations;
    let path = "the path of an obligation";
    let paths = obligations.paths.iter().flat_map(|text| {
        let help = "redact the parameter that it is in";
        [
            (path, text.matches('.').count(), PATH_DOTS_MAX, "dots", help),
            (path, text.len(), PATH_BYTES_MAX, "bytes", help),
        ]
    });
    let others = obligations.all.iter().filter_map(|obligation| match obligation {
        Obligation::Other(text) => Some(text.len()),
        Obligation::Redact(_) | Obligation::QuarantineAgent => None,
    });
    let help = "use a short name for it, and tell whoever carries it out what that means";
    let others = others.map(|bytes| ("an obligation", bytes, OBLIGATION_BYTES_MAX, "bytes", help));
    // Of what is to be redacted an ask is told only what it has.
    let always = obligations.all.iter().filter(|one| one.parameter().is_none());
    let help = "an ask may have no more; make one obligation of several";
    let count = (
        "the policy",
        always.count(),
        OBLIGATIONS_MAX,
        "obligations beside what is to be redacted",
        help,
    );
    let sentences = [
        ("`@reason`", &annotations.reason),
        ("`@agent_message`", &annotations.agent_message),
    ];
    let help = "it stands in each answer and record; say it in short, and where there is more to read";
    let sentences = sentences.into_iter().map(|(whose, text)| {
        let bytes = text.as_ref().map_or(0, String::len);
        (whose, bytes, SENTENCE_BYTES_MAX, "bytes", help)
    });
    let mut amounts = paths.chain(others).chain([count]).chain(sentences);
    let (whose, amount, most, what, help) = amounts.find(|(_, amount, most, ..)| amount > most)?;
    let found = Diagnostic::error(format!("{whose} has {amount} {what}, and may have {most}"))
        .with_help(help)
        .about(&statement.id);
    Some(found.at(statement.place()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parameters::{COLLECTED, ParameterRules};
    use crate::world::action;
    use serde_json::{Value, json};

    fn redacting(paths: &[&str]) -> Obligations {
        let all = paths.iter().map(|path| format!("redact:parameters.{path}"));
        Obligations::new(all.map(|text| Obligation::parse(&text)).collect())
    }

    /// Which of these have anything to do for these parameters.
    fn about(obligations: &Obligations, parameters: &Value) -> Vec<String> {
        let rules = ParameterRules::of(&action("x", true, None)).unwrap();
        let parameters = rules.read(&parameters.to_string(), None).unwrap();
        let about = obligations.about(&parameters);
        about.map(ToString::to_string).collect()
    }

    #[test]
    fn the_paths_take_no_more_than_was_written() {
        let long = "a.".repeat(100_000);
        let obligations = redacting(&[&long, &long, "b"]);
        let bytes = obligations.paths.iter().map(|path| path.len()).sum::<usize>();
        assert_eq!(bytes, long.len() + 1);
    }

    #[test]
    fn a_name_is_a_head_where_a_path_is_it_or_goes_on_inside_it() {
        let obligations = redacting(&["a-b", "a.c", "b+c", "d.e.f", "d.e!f", "g.h"]);
        for head in ["a-b", "a", "a.c", "b+c", "d", "d.e", "d.e.f", "d.e!f", "g", "g.h"] {
            assert!(obligations.is_head(head), "{head}");
        }
        for other in [
            "", "a-", "a.", "b", "b+", "c", "d.", "d.e!", "d.e.f.g", "g.i", "h",
        ] {
            assert!(!obligations.is_head(other), "{other}");
        }
        assert!(redacting(&[".a"]).is_head(""));
    }

    #[test]
    fn what_is_about_the_whole_ask_always_is() {
        let notify = Obligation::parse("notify:security");
        let secret = Obligation::parse("redact:parameters.secret");
        let obligations = Obligations::new(vec![notify, secret]);
        assert_eq!(about(&obligations, &json!({})), ["notify:security"]);
        let both = ["redact:parameters.secret", "notify:security"];
        assert_eq!(about(&obligations, &json!({"secret": 1})), both);
    }

    /// Objects that a path of many `a` leads into in many ways.
    fn ways(depth: usize) -> Value {
        if depth == 0 {
            return json!({"a": {"b": 1}});
        }
        json!({"a": ways(depth - 1), "a.a": ways(depth - 1)})
    }

    #[test]
    fn all_paths_are_collected_once_for_all_obligations_and_only_if_one_is_long() {
        let rules = ParameterRules::of(&action("x", true, None)).unwrap();
        let parameters = rules.read(&ways(6).to_string(), None).unwrap();
        let found = |paths: &[&str]| {
            let (obligations, before) = (redacting(paths), COLLECTED.get());
            let found = [(); 3].map(|()| obligations.about(&parameters).count());
            (found, COLLECTED.get() - before)
        };
        assert_eq!(found(&["a.a.a.a.a", "a.c", "c"]), ([1; 3], 0));
        assert_eq!(found(&["a.a.a.a.a.a", "a.a.a.a.a.c"]), ([1; 3], 1));
        assert_eq!(found(&["a.a.a.a.a.a.a.b"]), ([1; 3], 0));
    }

    /// To look up each part of the path in each object would take for ever.
    #[test]
    fn a_path_is_looked_for_along_what_is_there() {
        let parameters = ways(10);
        let absent = "a.".repeat(100_000) + "b";
        let [object, number] = ["a.".repeat(10) + "a", "a.".repeat(16) + "b"];
        let obligations = redacting(&[&absent, &number, "a.b", &object]);
        let found = [object, number].map(|path| format!("redact:parameters.{path}"));
        assert_eq!(about(&obligations, &parameters), found);
    }
}
