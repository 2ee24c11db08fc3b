//! The parameters of one action: what its JSON Schema allows, and what policies see of them.
//!
//! Formats are not asserted in any draft (2020-12 leaves that to the application), and no reference is ever fetched.

use crate::diagnostics::Diagnostic;
use crate::extent::{Extent, Fault};
use crate::fuel::Fuel;
use crate::input::{self, Mismatch};
use crate::json_schema::Record;
use crate::obligations::Obligations;
use crate::question::Unanswerable;
use crate::schema;
use canon::Digest;
use cedar_policy_core::ast::{self, Literal};
use jsonschema::error::ValidationErrorKind as Kind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use model::ToolAction;
use patterns::{Originals, Translated};
use serde_json::{Map, Value, json};
use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::str::Split;

mod ecma;
mod patterns;

/// The largest program that one pattern of a schema may become, in bytes: schemas come from tool servers, too. Alone,
/// what says how long a text may be fits.
const PATTERN_BYTES_MAX: usize = 3 << 19;
/// What the programs of all patterns of a schema share in equal parts, in bytes: where there are a hundred patterns,
/// those of mail addresses, dates and identifiers fit.
const PATTERNS_BYTES_MAX: usize = 3 << 20;
/// How long it may take to read the patterns of a schema, in steps of some nanoseconds: each class such as `\d` is
/// written out, and the pattern is read anew after that.
const READING_MAX: usize = 1 << 23;
/// How many bytes longer a pattern is with a class such as `\d` written out.
const CLASS_BYTES: usize = 128;
/// What is said of a schema whose patterns take longer.
const TOO_MANY_ESCAPES: &str =
    "has patterns with so many classes like `\\s` that they cannot be read in time";
/// How much is said of what is wrong with parameters, or of why they cannot be checked. Each denial records it.
const SAID_CHARS_MAX: usize = 256;
/// How long the pointer to it may be, in bytes.
const POINTER_BYTES_MAX: usize = 256;
/// What is said of a member instead of its name, which is the caller's.
const UNNAMED_MEMBER: &str = "a member in it that the action's schema does not name";
/// What is said of a member instead of a pointer to it that would be too long.
const FAR_MEMBER: &str = "something further inside of it";
/// What is said of a schema that compiles only with its patterns as they were sent.
const NOT_TRANSLATED: &str = "has a reference into `patternProperties`, or a pattern that is too long once `.` and `\\b` in it are written out";

/// What is said of a schema of a draft that is not taken, or of none.
const NO_DRAFT: &str = "is no JSON Schema: `$schema` is one of `https://json-schema.org/draft/2020-12/schema`, which is meant where there is none, `https://json-schema.org/draft/2019-09/schema`, `http://json-schema.org/draft-07/schema#`, `http://json-schema.org/draft-06/schema#` and `http://json-schema.org/draft-04/schema#`";

/// How many dots a path has at most that is looked up: it leads into sixteen objects at most, however many parameters there are.
const DOTS_LOOKED_UP_MAX: usize = 4;

/// What FNV-1a of 64 bits begins with.
const FNV_OF_NOTHING: u64 = 0xcbf2_9ce4_8422_2325;
/// The prime that FNV-1a of 64 bits goes on with.
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// The names of parameters that say into what a merge goes.
pub(crate) const TARGETS: [&str; 8] = [
    "base",
    "baseBranch",
    "base_branch",
    "base_ref",
    "targetBranch",
    "target_branch",
    "target_ref",
    "into",
];

/// The members of `TARGETS` that this action declares: all of them where it has no schema.
pub(crate) fn declared_targets(action: &ToolAction) -> Vec<&'static str> {
    let declared = schema::declared_parameters(action);
    let is_declared = |name: &&str| action.input_schema.is_none() || declared.contains(*name);
    TARGETS.into_iter().filter(is_declared).collect()
}

/// How many steps it takes to read a value and to let it go again.
const VALUE_STEPS: u64 = 100;

/// What is known about the parameters of one action.
#[derive(Debug)]
pub(crate) struct ParameterRules {
    check: Check,
    record: Record,
    /// The names of the parameters that the schema declares, sorted.
    declared: Vec<String>,
    /// Whether it takes no others.
    is_closed: bool,
    /// The members of `TARGETS` that the action declares.
    targets: Vec<&'static str>,
    /// How many types the action has in the schema that policies are validated against.
    types: usize,
}

/// What parameters have to satisfy.
#[derive(Debug)]
enum Check {
    /// Nothing: there is no schema.
    Nothing,
    /// This schema.
    Schema {
        validator: Validator,
        extent: Extent,
        originals: Originals,
        /// How many bytes it takes, about.
        weight: usize,
    },
    /// A schema that cannot be checked in a time with a bound, or has a pattern that would mean something else here
    /// than to others, and why: nothing satisfies it. A change may not bring one in, but one that is registered does
    /// not keep the gateway from starting.
    Unchecked(Diagnostic),
}

/// What is the same for actions with equal rules: their schema.
pub(crate) fn digest(action: &ToolAction) -> Digest {
    let schema = action.input_schema.as_deref();
    Digest::of(schema.map(Value::to_string).unwrap_or_default().as_bytes())
}

/// How many bytes the rules of this action take, about. Nothing is compiled to know it.
pub(crate) fn weight(action: &ToolAction) -> usize {
    let schema = action.input_schema.as_deref();
    let schema = schema.map(|schema| patterns::translated(schema).schema);
    // What cannot be measured is not compiled.
    let measured = schema.and_then(|schema| Measured::of(&schema).ok());
    measured.map_or(0, |measured| measured.weight)
}

impl ParameterRules {
    /// The rules of this action.
    pub(crate) fn of(action: &ToolAction) -> Result<Self, Diagnostic> {
        let schema = action.input_schema.as_deref();
        let record = schema::input(action);
        let declared = schema::parameters_of(action, &record);
        Ok(Self {
            check: schema.map_or(Ok(Check::Nothing), Check::against)?,
            types: schema::types_of(&record, &declared),
            record,
            declared: declared.into_iter().collect(),
            is_closed: schema.is_some_and(is_closed),
            targets: declared_targets(action),
        })
    }

    /// The parameters in this text, if they are valid, and to check them takes no more than there is fuel for.
    pub(crate) fn read(&self, text: &str, fuel: Option<&Fuel>) -> Result<Parameters<'_>, Unanswerable> {
        #[cfg(test)]
        READ.set(READ.get() + 1);
        if fuel.is_some_and(|fuel| !fuel.take(values_in(text).saturating_mul(VALUE_STEPS))) {
            return Err(invalid("", "take long to read".into()));
        }
        let value = parsed(text)?;
        self.check.admit(&value, fuel)?;
        self.typed(value)
    }

    /// Why no parameters can be checked against the schema, if that is so.
    pub(crate) const fn fault(&self) -> Option<&Diagnostic> {
        match &self.check {
            Check::Unchecked(fault) => Some(fault),
            Check::Nothing | Check::Schema { .. } => None,
        }
    }

    /// How many bytes they take, about.
    pub(crate) const fn weight(&self) -> usize {
        match &self.check {
            Check::Schema { weight, .. } => *weight,
            Check::Nothing | Check::Unchecked(_) => 0,
        }
    }

    /// How many types the action has in the schema that policies are validated against.
    pub(crate) const fn types(&self) -> usize {
        self.types
    }

    /// The parameters in this text, if they have the types that policies rely on, whatever else the schema asks for.
    pub(crate) fn read_types(&self, text: &str) -> Result<Parameters<'_>, Unanswerable> {
        self.typed(parsed(text)?)
    }

    fn typed(&self, value: Value) -> Result<Parameters<'_>, Unanswerable> {
        let Value::Object(object) = value else {
            return Err(invalid("", "is not an object".into()));
        };
        let input = input::record(&self.record, &object).map_err(|mismatch| mistyped(&mismatch))?;
        Ok(Parameters {
            rules: self,
            object,
            paths: OnceCell::new(),
            names: OnceCell::new(),
            targets: OnceCell::new(),
            input,
            are_known: true,
        })
    }

    /// Parameters that nobody knows, or knows any more: they are valid. Where none can be checked, none are.
    pub(crate) fn unknown(&self) -> Result<Parameters<'_>, Unanswerable> {
        match self.fault() {
            Some(fault) => Err(unchecked(fault)),
            None => Ok(self.unseen()),
        }
    }

    /// Parameters that nobody looks at, so that it does not matter whether they are valid.
    pub(crate) fn unseen(&self) -> Parameters<'_> {
        Parameters {
            rules: self,
            object: Map::new(),
            paths: OnceCell::new(),
            names: OnceCell::new(),
            targets: OnceCell::new(),
            input: ast::Value::empty_record(None),
            are_known: false,
        }
    }
}

/// Whether a schema allows only parameters that it declares. Beside a reference older drafts look at nothing else.
fn is_closed(schema: &Value) -> bool {
    schema.get("additionalProperties") == Some(&Value::Bool(false))
        && schema.get("patternProperties").is_none()
        && schema.get("$ref").is_none()
}

#[cfg(test)]
thread_local! {
    /// How often parameters were read, and checked, on this thread.
    pub(crate) static READ: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    /// How often all paths of some parameters were collected.
    pub(crate) static COLLECTED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// What is known of a schema in the engine's words before it is compiled.
struct Measured {
    extent: Extent,
    /// How many patterns it has.
    patterns: usize,
    /// How many bytes the program of each of them may have.
    program_bytes_max: usize,
    /// How many bytes it takes once compiled, about.
    weight: usize,
}

impl Measured {
    fn of(schema: &Value) -> Result<Self, Fault> {
        let mut patterns = BTreeSet::new();
        collect_patterns(schema, &mut patterns);
        if patterns.iter().map(|pattern| reading(pattern)).sum::<usize>() > READING_MAX {
            return Err(Fault::Unbounded(Diagnostic::error(TOO_MANY_ESCAPES)));
        }
        let extent = Extent::of(schema)?;
        let share = PATTERNS_BYTES_MAX / patterns.len().max(1);
        let program_bytes_max = share.min(PATTERN_BYTES_MAX);
        Ok(Self {
            weight: extent.weight(patterns.iter().copied(), program_bytes_max),
            extent,
            patterns: patterns.len(),
            program_bytes_max,
        })
    }
}

impl Check {
    /// The check against this schema, whose patterns mean what ECMA-262 says.
    fn against(schema: &Value) -> Result<Self, Diagnostic> {
        let Translated {
            schema: translated,
            originals,
            refused,
        } = patterns::translated(schema);
        if let Ok(check) = Self::compiled(&translated, originals) {
            return Ok(check);
        }
        // What the engine takes as it was sent may be in force, so it keeps nothing from starting, whatever its patterns mean.
        match Self::compiled(schema, Originals::default()) {
            Ok(_) => Ok(Self::Unchecked(
                refused.unwrap_or_else(|| Diagnostic::error(NOT_TRANSLATED)),
            )),
            Err(fault) => Err(refused.unwrap_or(fault)),
        }
    }

    /// The check against this schema in the engine's words.
    fn compiled(schema: &Value, originals: Originals) -> Result<Self, Diagnostic> {
        // INVARIANT: only what has an extent is compiled, because compiling goes the same ways as checking.
        let Measured {
            extent,
            patterns,
            program_bytes_max,
            weight,
        } = match Measured::of(schema) {
            Ok(measured) => measured,
            Err(Fault::Unbounded(fault)) => return Ok(Self::Unchecked(fault)),
            Err(Fault::Reference(error)) => return Err(unreferred(&error)),
        };
        match validator(schema, program_bytes_max) {
            Ok(validator) => Ok(Self::Schema {
                validator,
                extent,
                originals,
                weight,
            }),
            Err(error) if is_too_long(&error) => Ok(Self::Unchecked(too_long(&error, patterns, &originals))),
            Err(error) => Err(no_schema(&error)),
        }
    }

    fn admit(&self, value: &Value, fuel: Option<&Fuel>) -> Result<(), Unanswerable> {
        match self {
            Self::Nothing => Ok(()),
            Self::Schema { extent, .. } if !extent.can_check(value, fuel) => {
                let detail = "has more values, or longer texts, than can be checked in time against all that the action's schema says of them";
                Err(invalid("", detail.into()))
            }
            // INVARIANT: only this remembers what it found, so it is what decides; errors are collected afterwards.
            Self::Schema {
                validator,
                extent,
                originals,
                ..
            } => {
                if validator.is_valid(value) {
                    Ok(())
                } else {
                    Err(wrong((validator, extent), originals, value, fuel))
                }
            }
            Self::Unchecked(fault) => Err(unchecked(fault)),
        }
    }
}

/// What is said of all parameters of an action whose schema none can be checked against. It says why, but of a long
/// pattern only the beginning.
fn unchecked(fault: &Diagnostic) -> Unanswerable {
    let why = beginning(&fault.message);
    invalid("", format!("cannot be checked: the action's schema {why}"))
}

/// As much of a text as is said, with a mark where there is more.
fn beginning(text: &str) -> String {
    match text.char_indices().nth(SAID_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// What is said of parameters of which one does not have its type. The schema has named the way to it.
fn mistyped(mismatch: &Mismatch) -> Unanswerable {
    let Mismatch { pointer, detail } = mismatch;
    if pointer.len() <= POINTER_BYTES_MAX {
        return invalid(pointer, (*detail).to_owned());
    }
    // A member begins at each slash, and a slash is no part of another character.
    let within = &pointer.as_bytes()[..=POINTER_BYTES_MAX];
    let end = within.iter().rposition(|byte| *byte == b'/').unwrap_or_default();
    invalid(&pointer[..end], format!("{FAR_MEMBER} {detail}"))
}

/// What is wrong with this value. Where many errors would have to be collected, that it is wrong is all that is said.
fn wrong(
    (validator, extent): (&Validator, &Extent),
    originals: &Originals,
    value: &Value,
    fuel: Option<&Fuel>,
) -> Unanswerable {
    let told = extent
        .can_tell(value, fuel)
        .then(|| validator.validate(value).err());
    match told.flatten() {
        Some(error) => {
            let said = beginning(&said(&error, originals));
            match named(&error, value) {
                (pointer, None) => invalid(pointer, said),
                (pointer, Some(rest)) => invalid(pointer, format!("{rest} {said}")),
            }
        }
        None => invalid("", "does not satisfy the action's schema".into()),
    }
}

/// Where an error in this value is, as far as the schema has names for the way there and they are not too long, and
/// what is said of the rest of the way. What the caller has called a member is part of a value, and as long as the
/// caller likes.
fn named<'e>(error: &'e ValidationError<'_>, value: &Value) -> (&'e str, Option<&'static str>) {
    let path = error.instance_path().as_str();
    let mut way = error.evaluation_path().as_str().split('/');
    let mut known = "";
    for token in path.split('/').skip(1) {
        let is_index = value.pointer(known).is_some_and(Value::is_array);
        if !is_index && !leads_to(&mut way, token) {
            return (known, Some(UNNAMED_MEMBER));
        }
        let end = known.len() + 1 + token.len();
        if end > POINTER_BYTES_MAX {
            return (known, Some(FAR_MEMBER));
        }
        known = &path[..end];
    }
    (path, None)
}

/// Whether the rest of a way through a schema leads to a property of this name; the way goes on behind it.
fn leads_to(way: &mut Split<'_, char>, name: &str) -> bool {
    while let Some(word) = way.next() {
        if word == "properties" && way.clone().next() == Some(name) {
            way.next();
            return true;
        }
    }
    false
}

fn parsed(text: &str) -> Result<Value, Unanswerable> {
    canon::value(text).map_err(|_| invalid("", "is not JSON".into()))
}

fn invalid(pointer: &str, detail: String) -> Unanswerable {
    Unanswerable::InvalidParameters {
        pointer: pointer.to_owned(),
        detail,
    }
}

fn validator(schema: &Value, pattern_bytes_max: usize) -> Result<Validator, ValidationError<'static>> {
    // Only the engine with linear time: a pattern is the tool server's, the text it meets is the agent's.
    let patterns = PatternOptions::regex()
        .size_limit(pattern_bytes_max)
        .dfa_size_limit(pattern_bytes_max);
    jsonschema::options()
        .offline()
        .should_validate_formats(false)
        // Its own reads what the agent has written by `serde_json`, to which a key means something.
        .with_content_media_type("application/json", |text| canon::value(text).is_ok())
        .with_pattern_options(patterns)
        .build(schema)
}

/// The patterns in a schema, each once, as they are compiled. What only looks like one is counted as well.
fn collect_patterns<'s>(schema: &'s Value, patterns: &mut BTreeSet<&'s str>) {
    match schema {
        Value::Object(members) => {
            patterns.extend(members.get("pattern").and_then(Value::as_str));
            let named = members.get("patternProperties").and_then(Value::as_object);
            patterns.extend(named.into_iter().flat_map(Map::keys).map(String::as_str));
            members
                .values()
                .for_each(|value| collect_patterns(value, patterns));
        }
        Value::Array(values) => values.iter().for_each(|value| collect_patterns(value, patterns)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// How long it takes to read a pattern.
fn reading(pattern: &str) -> usize {
    let escapes = pattern.matches('\\').count();
    escapes.saturating_mul(pattern.len() + escapes * CLASS_BYTES)
}

/// What is said of a reference that leads nowhere, or of a draft that nobody knows: nobody can register one.
fn unreferred(error: &ReferencingError) -> Diagnostic {
    match error {
        ReferencingError::UnknownSpecification { .. } => Diagnostic::error(NO_DRAFT),
        error => no_schema(error),
    }
}

fn no_schema(error: &dyn std::error::Error) -> Diagnostic {
    Diagnostic::error(format!("is no JSON Schema: {error}"))
}

/// Whether this is about a pattern that is too long for its part, and would do alone.
fn is_too_long(error: &ValidationError<'_>) -> bool {
    let alone = json!({"pattern": error.instance()});
    matches!(error.kind(), Kind::Format { .. }) && validator(&alone, PATTERN_BYTES_MAX).is_ok()
}

fn too_long(error: &ValidationError<'_>, count: usize, originals: &Originals) -> Diagnostic {
    let pattern = error.instance().as_str().map(|pattern| originals.of(pattern));
    Diagnostic::error(format!(
        "has {count} patterns, and {} is too long for one of so many: together they have {PATTERNS_BYTES_MAX} bytes when compiled",
        pattern.map_or_else(
            || error.instance().to_string(),
            |pattern| json!(pattern).to_string()
        )
    ))
}

/// What a validation error says, without the value that it is about.
fn said(error: &ValidationError<'_>, originals: &Originals) -> String {
    let path = originals.in_pointer(error.schema_path().as_str());
    let path = path.as_str();
    match error.kind() {
        Kind::Required { property } => format!("lacks `{}`", property.as_str().unwrap_or_default()),
        _ if path.ends_with("/additionalProperties") || path.ends_with("/unevaluatedProperties") => {
            "has members that the action's schema does not allow".to_owned()
        }
        Kind::Pattern { pattern } => format!("does not match \"{}\"", originals.of(pattern)),
        Kind::Type { .. } | Kind::Enum { .. } => {
            let sentence = error.masked_with("it").to_string();
            sentence
                .strip_prefix("it ")
                .map_or_else(|| unsatisfied(path), str::to_owned)
        }
        _ => unsatisfied(path),
    }
}

fn unsatisfied(path: &str) -> String {
    format!("does not satisfy `{path}` of the action's schema")
}

/// How many values there are in this canonical text, about: each begins behind one of these.
fn values_in(text: &str) -> u64 {
    let (mut values, mut is_in_text, mut is_escaped) = (0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => is_in_text = !is_in_text,
            b'[' | b'{' | b',' if !is_in_text => values += 1,
            _ => {}
        }
    }
    values
}

/// Valid parameters.
pub(crate) struct Parameters<'r> {
    rules: &'r ParameterRules,
    object: Map<String, Value>,
    /// What all paths are known by, sorted, as soon as it is asked for one that is not looked up.
    paths: OnceCell<Vec<u64>>,
    input: ast::Value,
    /// `context.parameters` and `context.targets`, as soon as a policy looks at them: of a long ask they take long to make.
    names: OnceCell<ast::Value>,
    targets: OnceCell<ast::Value>,
    are_known: bool,
}

impl Parameters<'_> {
    /// `context.input`: the parameters that have a type.
    pub(crate) fn input(&self) -> ast::Value {
        self.input.clone()
    }

    /// `context.parameters`: the names of all parameters.
    pub(crate) fn names(&self) -> ast::Value {
        let made = || ast::Value::set_of_lits(self.object.keys().map(|name| name.as_str().into()), None);
        self.names.get_or_init(made).clone()
    }

    /// `context.targets`: every text under a name that says into what a merge goes, declared or not, and the same without the
    /// spaces and controls around it, because some servers take them off.
    pub(crate) fn targets(&self) -> ast::Value {
        let made = || {
            let mut texts = Vec::new();
            for value in TARGETS.iter().filter_map(|name| self.object.get(*name)) {
                collect_texts(value, &mut texts);
            }
            ast::Value::set_of_lits(texts, None)
        };
        self.targets.get_or_init(made).clone()
    }

    /// `context.target_stated`: whether the target is a text under a name that the action itself declares. A name that it
    /// does not declare, it may ignore, and an empty text, spaces or controls may be as good as none.
    pub(crate) fn target_stated(&self) -> bool {
        self.rules
            .targets
            .iter()
            .filter_map(|name| self.object.get(*name)?.as_str())
            .any(|text| !trimmed(text).is_empty())
    }

    /// Whether one of these obligations can have anything to do.
    pub(crate) fn may_concern(&self, obligations: &Obligations) -> bool {
        !self.are_known || obligations.about(self).next().is_some()
    }

    /// The names of the parameters that the action declares.
    pub(crate) fn declared(&self) -> impl Iterator<Item = &str> {
        self.rules.declared.iter().map(String::as_str)
    }

    /// How many parameters the action declares.
    pub(crate) fn declared_count(&self) -> usize {
        self.rules.declared.len()
    }

    /// Whether the action declares a parameter of this name.
    pub(crate) fn declares(&self, name: &str) -> bool {
        self.declared().any(|declared| declared == name)
    }

    /// Whether a parameter of this name was sent, or could have been: it is declared, or nobody knows what was sent.
    pub(crate) fn may_have(&self, name: &str) -> bool {
        !self.are_known || self.object.contains_key(name) || self.declares(name)
    }

    /// Whether there can be a parameter at this path, whatever was sent. A dot may also be part of a name.
    pub(crate) fn can_have(&self, path: &str) -> bool {
        let declared = &self.rules.declared;
        let is_declared = |name: &str| {
            declared
                .binary_search_by(|known| known.as_str().cmp(name))
                .is_ok()
        };
        !self.rules.is_closed
            || is_declared(path)
            || path.match_indices('.').any(|(dot, _)| is_declared(&path[..dot]))
    }

    /// The names of all parameters.
    pub(crate) fn keys(&self) -> impl ExactSizeIterator<Item = &str> {
        self.object.keys().map(String::as_str)
    }

    /// Whether there is a parameter at this path, `auth.password`. A dot may also be part of a name.
    pub(crate) fn has(&self, path: &str) -> bool {
        if path.matches('.').count() <= DOTS_LOOKED_UP_MAX {
            return is_there(&self.object, path);
        }
        // Two paths may be known by the same number. Then something is to be redacted that is not there.
        let paths = self.paths.get_or_init(|| paths_in(&self.object));
        paths.binary_search(&hash(FNV_OF_NOTHING, path)).is_ok()
    }
}

/// A text without what servers may take off around it.
fn trimmed(text: &str) -> &str {
    text.trim_matches(is_blank)
}

/// Whether some language's `trim` takes this off: Rust's and Go's white space (Unicode's `White_Space`), all controls
/// (Java's `trim`, Python's `strip`), and what JavaScript's and older .NET's take for spaces beside.
pub(crate) fn is_blank(character: char) -> bool {
    let is_taken_for_one = matches!(character, '\u{180e}' | '\u{200b}' | '\u{feff}');
    character.is_whitespace() || character.is_control() || is_taken_for_one
}

/// Whether there is something at a path with few dots: with each of them there are twice as many ways.
fn is_there(object: &Map<String, Value>, path: &str) -> bool {
    object.contains_key(path)
        || path.match_indices('.').any(|(dot, _)| {
            let inner = object.get(&path[..dot]).and_then(Value::as_object);
            inner.is_some_and(|inner| is_there(inner, &path[dot + 1..]))
        })
}

/// What the paths of everything in an object are known by, sorted.
fn paths_in(object: &Map<String, Value>) -> Vec<u64> {
    #[cfg(test)]
    COLLECTED.set(COLLECTED.get() + 1);
    let mut paths = Vec::new();
    collect_paths(object, FNV_OF_NOTHING, &mut paths);
    paths.sort_unstable();
    paths
}

/// The depth is bounded by that of the request's body.
fn collect_paths(object: &Map<String, Value>, place: u64, paths: &mut Vec<u64>) {
    for (name, value) in object {
        let path = hash(place, name);
        paths.push(path);
        if let Value::Object(inner) = value {
            collect_paths(inner, hash(path, "."), paths);
        }
    }
}

/// The hash FNV-1a of a text that goes on after one with this hash.
fn hash(before: u64, text: &str) -> u64 {
    let bytes = text.bytes().map(u64::from);
    bytes.fold(before, |hash, byte| (hash ^ byte).wrapping_mul(FNV_PRIME))
}

/// The depth is bounded by that of the request's body.
fn collect_texts(value: &Value, texts: &mut Vec<Literal>) {
    match value {
        Value::String(text) => {
            texts.push(text.as_str().into());
            let trimmed = trimmed(text);
            if trimmed.len() < text.len() {
                texts.push(trimmed.into());
            }
        }
        Value::Array(values) => values.iter().for_each(|value| collect_texts(value, texts)),
        Value::Object(members) => members.values().for_each(|value| collect_texts(value, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_among_those_that_are_there_where_it_is_found() {
        let parameters = json!({
            "a": {"b": {"": 1}, "b.c": {"d": {}}, "": {"a": 2}},
            "a.b": {"c": 3},
            "": {"": 4},
            ".": {"a": [{"b": 5}]},
        });
        let Value::Object(object) = parameters else {
            panic!("it is an object")
        };
        let names = ["", "a", "b", "c", "d"];
        let mut longest = names.map(str::to_owned).to_vec();
        let mut all = longest.clone();
        for _ in 0..DOTS_LOOKED_UP_MAX {
            let longer = longest
                .iter()
                .flat_map(|path| names.map(|name| format!("{path}.{name}")));
            longest = longer.collect();
            all.extend_from_slice(&longest);
        }
        let paths = paths_in(&object);
        let is_among = |path: &str| paths.binary_search(&hash(FNV_OF_NOTHING, path)).is_ok();
        let mut found = Vec::new();
        for path in &all {
            assert_eq!(is_among(path), is_there(&object, path), "{path}");
            if is_among(path) {
                found.push(path.as_str());
            }
        }
        found.sort_unstable();
        let expected = [
            "", ".", "..a", "a", "a.", "a..a", "a.b", "a.b.", "a.b.c", "a.b.c.d",
        ];
        assert_eq!(found, expected);
    }
}
