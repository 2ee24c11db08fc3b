//! What is wrong with a policy, in words and with its place in the text, so that an editor can underline it.

use cedar_policy_core::parser::Loc;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

/// How long what Cedar says may be, in bytes, without the mark that there is more. It writes types out, and that of
/// parameters may have thousands of members: a text of some thousand slips would be told in gigabytes.
pub(crate) const SAID_BYTES_MAX: usize = 1_024;

/// How many findings are told of all policies of a set together. Beyond that it is one of each policy.
pub(crate) const GATHERED_MAX: usize = 512;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The policies cannot be activated.
    Error,
    /// They can, but somebody should look.
    Warning,
}

/// A place in the text of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The line, from 1.
    pub line: usize,
    /// The character in the line, from 1.
    pub column: usize,
    /// Bytes of UTF-8 before it.
    pub offset: usize,
    /// Its length in bytes.
    pub length: usize,
}

impl Place {
    /// The place of these bytes in this text.
    pub(crate) fn of(text: &str, offset: usize, length: usize) -> Self {
        let offset = (0..=offset.min(text.len()))
            .rev()
            .find(|at| text.is_char_boundary(*at))
            .unwrap_or(0);
        let before = &text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self {
            line: before.matches('\n').count() + 1,
            column: before[line_start..].chars().count() + 1,
            offset,
            length: length.min(text.len() - offset),
        }
    }

    /// Where its bytes begin and end.
    pub(crate) const fn span(self) -> (usize, usize) {
        (self.offset, self.offset + self.length)
    }

    /// The place of something that Cedar has found.
    pub(crate) fn of_loc(loc: Option<&Loc>) -> Option<Self> {
        loc.map(|loc| Self::of(&loc.src, loc.start(), loc.end() - loc.start()))
    }
}

/// What a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Subject {
    /// Policies, or what they have to do with the registry.
    #[default]
    Policies,
    /// The input schema of an action, whatever the policies.
    InputSchema,
}

/// What Cedar says, or the beginning of it. What is behind that is not kept, and mostly not written at all.
pub(crate) fn said<T: fmt::Display + ?Sized>(found: &T) -> String {
    let mut beginning = Beginning(String::new());
    if write!(beginning, "{found}").is_err() {
        beginning.0.push('…');
    }
    beginning.0
}

/// A text that ends where it becomes too long.
struct Beginning(String);

impl fmt::Write for Beginning {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let left = SAID_BYTES_MAX.saturating_sub(self.0.len());
        let end = text.floor_char_boundary(left);
        self.0.push_str(&text[..end]);
        if end < text.len() { Err(fmt::Error) } else { Ok(()) }
    }
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The policy: `name/id` where the statement is known, `name` where only its text is; absent where the finding is
    /// about the registry, or about all policies together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// What it is.
    pub message: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Where in the policy's text it is.
    #[serde(flatten)]
    pub place: Option<Place>,
    /// What it is about.
    #[serde(skip)]
    pub(crate) subject: Subject,
    /// Whether it is so for users only, in a policy that is right for agents.
    #[serde(skip)]
    pub(crate) is_for_users: bool,
    /// Whether it is so of policies together, each of which is right alone.
    #[serde(skip)]
    pub(crate) is_together: bool,
    /// Whether it is about a test for what is not declared, and may be one day.
    #[serde(skip)]
    pub(crate) is_of_undeclared: bool,
}

impl Diagnostic {
    /// Whether it is the same finding. What is so for users only is told with one of the actions for which it is so,
    /// and another one may come first where actions are added or taken away.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let are_for_users = self.is_for_users && other.is_for_users;
        self == other || are_for_users && (&self.policy, self.place) == (&other.policy, other.place)
    }

    /// The named policy that this is an error of.
    fn policy_in_error(&self) -> Option<&str> {
        let policy = self.policy.as_deref()?;
        let name = policy.split_once('/').map_or(policy, |(name, _)| name);
        (self.severity == Severity::Error).then_some(name)
    }

    /// An error that is not about a place in a policy.
    pub(crate) fn error(message: impl Into<String>) -> Self {
        Self {
            policy: None,
            severity: Severity::Error,
            message: message.into(),
            help: None,
            place: None,
            subject: Subject::default(),
            is_for_users: false,
            is_together: false,
            is_of_undeclared: false,
        }
    }

    /// What Cedar found in a text.
    pub(crate) fn from_cedar(text: &str, severity: Severity, found: &dyn miette::Diagnostic) -> Self {
        let label = found.labels().and_then(|mut labels| labels.next());
        Self {
            policy: None,
            severity,
            message: said(found),
            help: found.help().map(|help| said(&help)),
            place: label.map(|label| Place::of(text, label.offset(), label.len())),
            subject: Subject::default(),
            is_for_users: false,
            is_together: false,
            is_of_undeclared: false,
        }
    }

    /// This finding, as one that stops nothing.
    #[must_use]
    pub(crate) fn into_warning(self) -> Self {
        Self {
            severity: Severity::Warning,
            ..self
        }
    }

    /// This finding, as one that is so for users only.
    #[must_use]
    pub(crate) fn for_users(self) -> Self {
        Self {
            is_for_users: true,
            ..self
        }
    }

    /// This finding, as one of policies together.
    #[must_use]
    pub(crate) fn together(self) -> Self {
        Self {
            is_together: true,
            ..self
        }
    }

    /// This finding, about this policy.
    #[must_use]
    pub(crate) fn about(self, policy: impl fmt::Display) -> Self {
        Self {
            policy: Some(policy.to_string()),
            ..self
        }
    }

    /// This finding, with advice.
    #[must_use]
    pub(crate) fn with_help(self, help: impl Into<String>) -> Self {
        Self {
            help: Some(help.into()),
            ..self
        }
    }

    /// This finding, at this place.
    #[must_use]
    pub(crate) fn at(self, place: Option<Place>) -> Self {
        Self { place, ..self }
    }
}

/// `policy:line:column: message`.
impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(policy) = &self.policy {
            write!(f, "{policy}")?;
            if let Some(place) = self.place {
                write!(f, ":{}:{}", place.line, place.column)?;
            }
            f.write_str(": ")?;
        }
        f.write_str(&self.message)
    }
}

/// Why policies cannot be activated. At least one finding is an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Diagnostics(pub Vec<Diagnostic>);

impl Diagnostics {
    /// The names of the named policies that errors are about, sorted.
    pub fn policies(&self) -> BTreeSet<&str> {
        self.0.iter().filter_map(Diagnostic::policy_in_error).collect()
    }

    /// Whether all of them are about input schemas of actions, and none about policies.
    pub fn are_about_schemas(&self) -> bool {
        let mut subjects = self.0.iter().map(|finding| finding.subject);
        !self.0.is_empty() && subjects.all(|subject| subject == Subject::InputSchema)
    }
}

/// What is wrong with the policies of a set, as it is gathered: [`GATHERED_MAX`] findings, and beyond that the first error
/// of each policy, because whoever forces a change takes those out of use that errors name.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    told: Vec<Diagnostic>,
    /// The named policies that an error is told of.
    policies: BTreeSet<String>,
}

impl Findings {
    /// Whether there are none.
    pub(crate) const fn is_empty(&self) -> bool {
        self.told.is_empty()
    }

    /// Those that are told.
    pub(crate) fn told(&self) -> &[Diagnostic] {
        &self.told
    }

    /// Those that are told, and that there may be more.
    pub(crate) fn into_diagnostics(self) -> Diagnostics {
        let mut all = self.told;
        if all.len() >= GATHERED_MAX {
            let message =
                format!("there may be more: beyond {GATHERED_MAX} findings, one is told of each policy");
            all.push(Diagnostic::error(message).with_help("mend what is told first"));
        }
        Diagnostics(all)
    }
}

impl Extend<Diagnostic> for Findings {
    fn extend<T: IntoIterator<Item = Diagnostic>>(&mut self, findings: T) {
        for finding in findings {
            let name = finding.policy_in_error();
            let is_first = name.is_some_and(|name| !self.policies.contains(name));
            if let Some(name) = name.filter(|_| is_first) {
                self.policies.insert(name.to_owned());
            }
            if is_first || self.told.len() < GATHERED_MAX {
                self.told.push(finding);
            }
        }
    }
}

impl From<Diagnostic> for Diagnostics {
    fn from(diagnostic: Diagnostic) -> Self {
        Self(vec![diagnostic])
    }
}

impl fmt::Display for Diagnostics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, diagnostic) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{diagnostic}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Diagnostics {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_counts_lines_and_characters_from_one_and_bytes_from_zero() {
        let text = "first\nzoë x\n";
        let place = Place::of(text, "first\nzoë ".len(), 1);
        assert_eq!(
            (place.line, place.column, place.offset, place.length),
            (2, 5, 11, 1)
        );
        assert_eq!(Place::of(text, 0, 5).column, 1);
    }

    #[test]
    fn a_place_beyond_the_text_or_inside_a_character_is_brought_into_it() {
        assert_eq!(
            Place::of("ab", 9, 9),
            Place {
                line: 1,
                column: 3,
                offset: 2,
                length: 0
            }
        );
        assert_eq!(Place::of("ë", 1, 1).offset, 0);
    }

    #[test]
    fn of_what_cedar_says_at_length_there_is_the_beginning() {
        let fitting = "x".repeat(SAID_BYTES_MAX);
        assert_eq!(said(fitting.as_str()), fitting);
        assert_eq!(said(&format_args!("{fitting}y")), format!("{fitting}…"));
        // A character that does not fit is left out whole.
        let odd = format!("x{}", "ë".repeat(SAID_BYTES_MAX));
        let expected = format!("x{}…", "ë".repeat((SAID_BYTES_MAX - 1) / 2));
        assert_eq!(said(odd.as_str()), expected);
    }

    #[test]
    fn json_has_the_members_of_the_contract_and_no_nulls() {
        let finding = Diagnostic::error("it is wrong")
            .about("mine/a")
            .with_help("mend it")
            .at(Some(Place::of("x\ny", 2, 1)));
        assert_eq!(
            serde_json::to_string(&finding).unwrap(),
            r#"{"policy":"mine/a","severity":"error","message":"it is wrong","help":"mend it","line":2,"column":1,"offset":2,"length":1}"#
        );
        assert_eq!(
            serde_json::to_string(&Diagnostic::error("so")).unwrap(),
            r#"{"severity":"error","message":"so"}"#
        );
        assert_eq!(Diagnostics(vec![finding]).to_string(), "mine/a:2:1: it is wrong");
    }

    #[test]
    fn of_many_findings_each_policy_with_an_error_is_named_and_that_there_may_be_more() {
        let about = |policy: &str| Diagnostic::error("no").about(policy);
        let mut findings = Findings::default();
        findings.extend(vec![about("a/1"); GATHERED_MAX - 1]);
        assert_eq!(findings.told().len(), GATHERED_MAX - 1);
        findings.extend([about("a/2"), about("a/3"), about("b/1").into_warning()]);
        findings.extend([about("c/1"), about("c/2"), about("b"), Diagnostic::error("no")]);
        let all = findings.into_diagnostics();
        assert_eq!(all.policies(), BTreeSet::from(["a", "b", "c"]));
        let [.., c, b, more] = &all.0[..] else {
            panic!("{all}")
        };
        assert_eq!((&*c.to_string(), &*b.to_string()), ("c/1: no", "b: no"));
        assert_eq!(all.0.len(), GATHERED_MAX + 3);
        assert!(more.message.starts_with("there may be more"), "{more}");
        let mut few = Findings::default();
        assert!(few.is_empty());
        few.extend([about("a/1")]);
        assert_eq!(few.into_diagnostics().0, [about("a/1")]);
    }

    #[test]
    fn the_named_policies_with_errors_are_each_named_once() {
        let about = |policy: &str| Diagnostic::error("no").about(policy);
        let found = Diagnostics(vec![
            about("b/x/y"),
            about("a"),
            about("b"),
            about("odd/x").into_warning(),
            Diagnostic::error("the registry"),
        ]);
        assert_eq!(found.policies().into_iter().collect::<Vec<_>>(), ["a", "b"]);
    }
}
