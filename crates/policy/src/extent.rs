//! How much there is to check in a JSON Schema once its references are followed: what bounds the time that one ask can cost.
//!
//! When a schema is brought in, every way through it is gone, so that it can be compiled and need not be checked for
//! long whatever comes; when an ask comes, `spending` adds up what `cost` says of each keyword for the values that meet
//! it. Nothing is validated. How much memory the validator takes is estimated on the same walk.

use crate::diagnostics::Diagnostic;
use crate::fuel::Fuel;
use jsonschema::{Draft, ReferencingError, Registry, Uri, uri};
use model::directory::VALUE_BYTES;
use place::Place;
use plan::Plan;
use serde_json::{Map, Value};
use spending::Alternatives;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

mod choice;
mod cost;
mod names;
mod pattern;
mod place;
mod plan;
mod spending;

/// The most subschemas, each counted as often as ways lead to it: far more than people write, and few enough to compile
/// and check.
const SUBSCHEMAS_MAX: usize = 10_000;
/// The most subschemas inside one another, and the most of those about one and the same value. A schema that refers to itself
/// repeats the latter at each level of the parameters, and validation needs the stack for them.
const DEPTH_MAX: usize = 256;
const LAYERS_MAX: usize = 32;
/// The most ways in which references may write one subschema, because the validator compiles it for each: by the way to
/// it, by its name, with `#` behind that, and by an anchor.
const SPELLINGS_MAX: usize = 4;
/// The most bytes of pointers to subschemas that the validator may keep: it writes each of them out. Two thousand
/// properties with names of thirty bytes take half of it at most.
const POINTERS_BYTES_MAX: usize = 16 << 20;
/// How many bytes longer a pointer is that is kept for a keyword of a subschema, with what is kept beside it.
const KEYWORD_BYTES: usize = 32;
/// The most bytes that the validator may copy of what is no subschema, such as `enum`: it does so for each way there.
/// A list of six hundred short names for a thousand properties takes three quarters of it.
const COPIES_BYTES_MAX: usize = 64 << 20;
/// How often the validator goes through what leads back to itself under one name, until all of it is known.
const ROUNDS_MAX: usize = 8;
/// The most errors that may be collected to say what is wrong.
const ERRORS_MAX: usize = 1 << 15;
/// What it takes to make one of them.
const ERROR_STEPS: usize = 512;
/// The most steps that the check of one ask's parameters may take: some tens of milliseconds, and at the very worst some hundred.
const STEPS_MAX: usize = 1 << 28;
/// What a schema is known as that gives itself no name.
const BASE: &str = "json-schema:///";

/// How much there is to check.
#[derive(Debug, Default)]
pub(crate) struct Extent {
    subschemas: usize,
    /// Those of them within alternatives: if none of these fits, the errors of all are collected.
    alternatives: usize,
    /// How many alternatives are inside one another: what is in them is checked once for each before errors are collected.
    nesting: usize,
    /// Whether it refers to itself, so that the parameters decide how often it is gone through.
    is_recursive: bool,
    /// How many bytes of pointers the validator keeps.
    pointers_bytes: usize,
    /// How many bytes the validator copies beyond one copy of the whole.
    copied_bytes: usize,
    /// What it takes to check a value.
    plan: Plan,
}

/// Why there is no extent.
#[derive(Debug)]
pub(crate) enum Fault {
    /// Checking would have no bound.
    Unbounded(Diagnostic),
    /// A reference leads nowhere.
    Reference(Box<ReferencingError>),
}

impl From<ReferencingError> for Fault {
    fn from(error: ReferencingError) -> Self {
        Self::Reference(Box::new(error))
    }
}

impl Extent {
    /// The extent of this schema, or why it cannot be checked in a time with a bound.
    pub(crate) fn of(schema: &Value) -> Result<Self, Fault> {
        let draft = Draft::default().detect(schema);
        // INVARIANT: the validator knows the schema by the same name and begins with the schema itself, so references
        // lead to the same places there and here.
        let base = uri::from_str(draft.create_resource_ref(schema).id().unwrap_or(BASE))?;
        let registry = Registry::new().draft(draft).add(base.as_str(), schema);
        let registry = registry.and_then(jsonschema::RegistryBuilder::prepare)?;
        let root = Place::new(schema, base.into(), draft);
        let repeated = names::repeated(&root, &registry);
        let mut walk = Walk {
            registry: &registry,
            open: Vec::new(),
            loops: HashSet::new(),
            anchors: place::anchors(root.schema),
            readings: HashMap::new(),
            anchored: HashSet::new(),
            written: HashMap::new(),
            copied_bytes: 0,
            has_marked: false,
            repeated,
            extent: Self::default(),
        };
        walk.visit(&root, Stand::default())?;
        let is_recursive = !walk.loops.is_empty();
        // INVARIANT: the walk came to an end within its bounds, so that of the plan does, too: it goes no other ways,
        // but for names, and for these it has bounds of its own.
        let plan = Plan::of(&registry, root, &walk.loops, walk.has_one_base())?;
        Ok(Self {
            is_recursive,
            copied_bytes: walk.copied_again(schema),
            plan,
            ..walk.extent
        })
    }

    /// How many bytes the validator takes that can be many in it: pointers, what is copied more than once, and these patterns
    /// where the program of each may have so many bytes.
    pub(crate) fn weight<'p>(
        &self,
        patterns: impl IntoIterator<Item = &'p str>,
        program_bytes_max: usize,
    ) -> usize {
        let patterns = patterns.into_iter();
        let patterns = patterns.map(|pattern| pattern::bytes(pattern, program_bytes_max));
        let bytes = self.pointers_bytes.saturating_add(self.copied_bytes);
        patterns.fold(bytes, usize::saturating_add)
    }

    /// Whether this value can be checked in time, and with the fuel that there is.
    pub(crate) fn can_check(&self, value: &Value, fuel: Option<&Fuel>) -> bool {
        let steps_max = fuel.map_or(STEPS_MAX, |fuel| STEPS_MAX.min(fuel.check_steps()));
        let steps = self.plan.steps(value, steps_max, Alternatives::Chosen);
        // What would take too long in any case is found out with all the fuel gone.
        fuel.is_none_or(|fuel| fuel.take_for_check(steps.unwrap_or(usize::MAX))) && steps.is_some()
    }

    /// Whether it takes little to say what is wrong with this value, and no more than there is fuel for.
    pub(crate) fn can_tell(&self, value: &Value, fuel: Option<&Fuel>) -> bool {
        let errors = self.alternatives.saturating_mul(count(value));
        if self.is_recursive || errors > ERRORS_MAX {
            return false;
        }
        let again = STEPS_MAX / (self.nesting + 1);
        let steps_max = fuel.map_or(again, |fuel| again.min(fuel.check_steps()));
        let steps = self.plan.steps(value, steps_max, Alternatives::All);
        let all = steps.map_or(usize::MAX, |steps| steps + errors * ERROR_STEPS);
        fuel.is_none_or(|fuel| fuel.take_for_check(all)) && steps.is_some()
    }
}

/// The values in a value. The depth is bounded by that of the request's body.
fn count(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(values) => values.iter().map(count).sum(),
        Value::Object(members) => members.values().map(count).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    };
    1 + inner
}

/// How many bytes a copy of a value takes. The depth is bounded by that of the request's body.
fn copied_bytes(value: &Value) -> usize {
    let inner: usize = match value {
        Value::Array(values) => values.iter().map(copied_bytes).sum(),
        Value::Object(members) => {
            let members = members.iter();
            members
                .map(|(name, value)| name.len() + copied_bytes(value))
                .sum()
        }
        Value::String(text) => text.len(),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_BYTES + inner
}

/// Where the walk stands.
#[derive(Clone, Copy, Default)]
struct Stand {
    depth: usize,
    /// How many values it has gone into.
    level: usize,
    /// How many subschemas it has gone into since, all about one value.
    layers: usize,
    /// How many alternatives it is within.
    nesting: usize,
    /// How many bytes the pointer to here has. Behind a reference it is the one to what is named.
    pointer: usize,
}

impl Stand {
    fn into_subschema(self, is_same_value: bool) -> Self {
        Self {
            depth: self.depth + 1,
            level: self.level + usize::from(!is_same_value),
            layers: if is_same_value { self.layers + 1 } else { 0 },
            ..self
        }
    }

    fn under(self, word: &str, is_same_value: bool) -> Self {
        Self {
            nesting: self.nesting + usize::from(word == "anyOf" || word == "oneOf"),
            ..self.into_subschema(is_same_value)
        }
    }

    /// So many bytes of a pointer further in.
    fn further(self, bytes: usize) -> Self {
        Self {
            pointer: self.pointer + bytes,
            ..self
        }
    }
}

/// A subschema on the way to where the walk stands.
struct Open<'s> {
    place: Place<'s>,
    /// The level at which it was entered.
    level: usize,
    /// The keyword for which it is gone through again, if it is.
    marked: Option<&'static str>,
}

struct Walk<'s> {
    registry: &'s Registry<'s>,
    /// The way here.
    open: Vec<Open<'s>>,
    /// What references lead back to.
    loops: HashSet<*const Value>,
    /// How many bytes the pointers have to what an anchor may name.
    anchors: HashMap<*const Value, usize>,
    /// How each subschema is read.
    readings: HashMap<*const Value, Reading>,
    /// What was referred to by an anchor and is where it has to be.
    anchored: HashSet<*const Value>,
    /// The ways in which references have written each subschema.
    written: HashMap<*const Value, HashSet<Arc<Uri<String>>>>,
    /// How many bytes the validator copies of what is no subschema.
    copied_bytes: usize,
    /// Whether anything is gone through again to know what was looked at.
    has_marked: bool,
    /// The names that different subschemas have.
    repeated: HashSet<String>,
    extent: Extent,
}

/// What the references of a subschema are relative to, and whether validation tells alternatives in it apart by a word.
type Reading = (Arc<Uri<String>>, bool);

impl<'s> Walk<'s> {
    fn visit(&mut self, place: &Place<'s>, stand: Stand) -> Result<(), Fault> {
        self.count(stand)?;
        let Some(members) = place.schema.as_object() else {
            return self.keep_pointers(place, stand.pointer, 0);
        };
        let place = place.entered(self.registry)?;
        self.note(&place)?;
        self.keep_pointers(&place, stand.pointer, members.len() + place::listed(members))?;
        self.copy(&place, members)?;
        self.enter(&place, stand, None);
        for (word, value) in members {
            let (is_same_value, subschemas) = place::parts(word, value);
            let inside = stand.under(word, is_same_value);
            for (bytes, subschema) in subschemas {
                self.visit(&place.at(subschema), inside.further(bytes))?;
            }
        }
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            self.follow(reference, &place, stand)?;
        }
        for word in place::MARKING {
            if members.contains_key(word) {
                self.mark(&place, members, stand, word)?;
            }
        }
        self.open.pop();
        if members.contains_key("$dynamicRef") || members.contains_key("$recursiveRef") {
            return depending_on_the_way();
        }
        Ok(())
    }

    /// Notes how this subschema is read. There is one plan for each, so it may be read in one way only.
    fn note(&mut self, place: &Place<'s>) -> Result<(), Fault> {
        let reading = (place.base(), choice::is_looked_for(place.draft()));
        let known = self.readings.entry(place.schema);
        if *known.or_insert_with(|| reading.clone()) == reading {
            return Ok(());
        }
        unbounded("has a subschema that is read in two ways, by the way that leads to it")
    }

    /// Whether all references are relative to one name.
    fn has_one_base(&self) -> bool {
        let mut bases = self.readings.values().map(|(base, _)| base);
        let first = bases.next();
        bases.all(|base| Some(base) == first)
    }

    fn enter(&mut self, place: &Place<'s>, stand: Stand, marked: Option<&'static str>) {
        self.open.push(Open {
            place: place.clone(),
            level: stand.level,
            marked,
        });
    }

    /// Goes through what is compiled once more for this keyword, to know which members or items a schema looks at. For
    /// that, references are followed also to what is open, and only not to what is gone through for the same already; and
    /// pointers go on from where these are.
    fn mark(
        &mut self,
        place: &Place<'s>,
        members: &'s Map<String, Value>,
        stand: Stand,
        marking: &'static str,
    ) -> Result<(), Fault> {
        self.has_marked = true;
        self.count(stand)?;
        self.keep_pointers(place, stand.pointer, 0)?;
        self.enter(place, stand, Some(marking));
        for (word, value) in members {
            let (is_same_value, subschemas) = place::parts(word, value);
            let (checks, marks) = place::marks(word);
            let inside = stand.under(word, is_same_value);
            for (bytes, subschema) in subschemas {
                let inner = place.at(subschema);
                let inside = inside.further(bytes);
                if checks {
                    self.visit(&inner, inside)?;
                }
                if marks {
                    self.mark_within(&inner, inside, marking)?;
                }
            }
        }
        if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
            let target = place.target(reference, self.registry)?;
            let is_target = |open: &Open<'_>| std::ptr::eq(open.place.schema, target.schema);
            let mut marked = self.open.iter().filter(|open| open.marked == Some(marking));
            if !marked.any(is_target) {
                self.mark_within(&target, stand.into_subschema(true), marking)?;
            }
        }
        self.open.pop();
        Ok(())
    }

    fn mark_within(&mut self, place: &Place<'s>, stand: Stand, marking: &'static str) -> Result<(), Fault> {
        match place.schema.as_object() {
            Some(members) => self.mark(&place.entered(self.registry)?, members, stand, marking),
            None => Ok(()),
        }
    }

    fn count(&mut self, stand: Stand) -> Result<(), Fault> {
        let Extent {
            subschemas,
            alternatives,
            nesting,
            ..
        } = &mut self.extent;
        *subschemas += 1;
        *nesting = stand.nesting.max(*nesting);
        if stand.nesting > 0 {
            *alternatives += 1;
        }
        if *subschemas > SUBSCHEMAS_MAX {
            return unbounded(&format!(
                "comes to more than {SUBSCHEMAS_MAX} subschemas with its references followed"
            ));
        }
        if stand.depth > DEPTH_MAX || stand.layers > LAYERS_MAX {
            return too_deep();
        }
        Ok(())
    }

    /// Adds what the validator keeps of the pointer to a subschema: one for that itself and two for each keyword in it, or
    /// name that lists others, and as many whole names with the pointer in them where the schema has given itself a name.
    fn keep_pointers(&mut self, place: &Place<'s>, pointer: usize, keywords: usize) -> Result<(), Fault> {
        let each = KEYWORD_BYTES + pointer + place.name_bytes(pointer);
        let all = each.saturating_mul(1 + 2 * keywords);
        let bytes = &mut self.extent.pointers_bytes;
        *bytes = bytes.saturating_add(all);
        if *bytes > POINTERS_BYTES_MAX {
            return unbounded(&format!(
                "takes more than {POINTERS_BYTES_MAX} bytes for the pointers to its subschemas, each written out: shorten its `$id`, or the names that have many subschemas inside them"
            ));
        }
        Ok(())
    }

    /// How much is copied beyond one copy of this whole schema. What is under one name is compiled once however often it is
    /// referred to, and some times where it leads back to itself; under several names, once for each way through them.
    fn copied_again(&self, schema: &Value) -> usize {
        let own = copied_bytes(schema);
        let again = self.copied_bytes.saturating_sub(own);
        match (self.has_one_base() && !self.has_marked, self.loops.is_empty()) {
            (true, true) => 0,
            (true, false) => again.min(own.saturating_mul(ROUNDS_MAX)),
            (false, _) => again,
        }
    }

    /// Adds what the validator copies of a subschema each time that it compiles it. What is only gone through again, to
    /// know what was looked at, is not copied, but what is compiled for that is.
    fn copy(&mut self, place: &Place<'s>, members: &Map<String, Value>) -> Result<(), Fault> {
        for (word, value) in members {
            if place.is_copied(word, value) {
                let bytes = word.len() + copied_bytes(value);
                self.copied_bytes = self.copied_bytes.saturating_add(bytes);
            }
        }
        if self.copied_bytes > COPIES_BYTES_MAX {
            return unbounded(&format!(
                "takes more than {COPIES_BYTES_MAX} bytes for what is no subschema in it, such as `enum`, copied for each way that leads there: shorten what is referred to often"
            ));
        }
        Ok(())
    }

    fn follow(&mut self, reference: &str, place: &Place<'s>, stand: Stand) -> Result<(), Fault> {
        // What has the name is asked before it is looked up: where there are two, it may not be found.
        let name = place.resolved(reference, self.registry)?;
        self.check_name(&name)?;
        let target = place.target(reference, self.registry)?;
        self.check_name(&target.base())?;
        self.note(&target)?;
        self.check_anchor(reference, &target)?;
        let written = self.written.entry(target.schema).or_default();
        written.extend(target.reference());
        if written.len() > SPELLINGS_MAX {
            return unbounded(&format!(
                "refers to one subschema in more than {SPELLINGS_MAX} ways of writing"
            ));
        }
        let pointer = place::pointer_bytes(reference, target.schema, &self.anchors);
        // What is named is kept beside each reference to it, also where it was compiled before.
        self.keep_pointers(&target, pointer, 0)?;
        let stand = Stand { pointer, ..stand };
        match self.entered_at(&target) {
            None => self.visit(&target, stand.into_subschema(true)),
            Some(level) if level < stand.level => {
                self.loops.insert(target.schema);
                Ok(())
            }
            Some(_) => unbounded(&format!(
                "refers to itself by `{reference}` without going into a value"
            )),
        }
    }

    /// The level at which was entered what a reference leads back to, if it does. Where the way from there has come
    /// through other names, validation compiles it once more for these, and stops only at the very same reference.
    fn entered_at(&self, target: &Place<'s>) -> Option<usize> {
        let is_target = |open: &Open<'_>| open.place.is_again(target);
        let last = self.open.iter().rposition(is_target)?;
        let (way, level) = (&self.open[last..], self.open[last].level);
        let is_under_one_name = way.iter().all(|open| open.place.has_base_of(target));
        // What is only gone through again has not been referred to for the validator.
        let is_same_reference = |open: &Open<'_>| {
            open.marked.is_none() && is_target(open) && open.place.is_referred_to_as(target)
        };
        (is_under_one_name || self.open.iter().any(is_same_reference)).then_some(level)
    }

    /// Refuses a reference to what is in one of several subschemas with this name.
    fn check_name(&self, name: &Uri<String>) -> Result<(), Fault> {
        let name = place::without_fragment(name.as_str());
        if self.repeated.contains(name) {
            return unbounded(&format!(
                "refers to what is in a subschema with the name `{name}`, and has more than one with it"
            ));
        }
        Ok(())
    }

    /// Refuses a reference by an anchor that validation may read otherwise than it is read here, or cannot find its way
    /// to: it takes for one what differs in `%`, it follows dynamic anchors by the way, and it counts on that an anchor
    /// is inside of what has the name before it.
    fn check_anchor(&mut self, reference: &str, target: &Place<'s>) -> Result<(), Fault> {
        let Some(anchor) = place::anchor(reference) else {
            return Ok(());
        };
        if anchor.contains('%') {
            return unbounded(&format!("refers by an anchor with `%` in it, `{reference}`"));
        }
        if target.schema.get("$dynamicAnchor").and_then(Value::as_str) == Some(anchor) {
            return depending_on_the_way();
        }
        if self.anchored.insert(target.schema) && !holds(target.resource(self.registry)?, target.schema) {
            return unbounded(&format!(
                "refers by `{reference}` to what is not inside of the subschema with that name"
            ));
        }
        Ok(())
    }
}

/// Whether this very part is somewhere in a value.
fn holds(whole: &Value, part: &Value) -> bool {
    std::ptr::eq(whole, part)
        || match whole {
            Value::Array(values) => values.iter().any(|value| holds(value, part)),
            Value::Object(members) => members.values().any(|value| holds(value, part)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
        }
}

fn depending_on_the_way<T>() -> Result<T, Fault> {
    unbounded("has a reference whose target depends on the way to it, and only `$ref` is followed")
}

fn too_deep<T>() -> Result<T, Fault> {
    unbounded(&format!(
        "goes deeper than {DEPTH_MAX} subschemas, or {LAYERS_MAX} about one value, with its references followed"
    ))
}

fn unbounded<T>(message: &str) -> Result<T, Fault> {
    Err(Fault::Unbounded(Diagnostic::error(message)))
}

#[cfg(test)]
mod tests;
