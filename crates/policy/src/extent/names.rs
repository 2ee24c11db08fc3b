//! The names that subschemas give themselves: what is referred to by one has to have it alone.
//!
//! Which one a reference means would be a matter of their order, and validation may mix what is in both.

use super::BASE;
use super::place::{self, Place};
use jsonschema::Registry;
use serde_json::Value;
use std::collections::{HashMap, HashSet};

/// The names, as far as they are gone through.
struct Names<'s> {
    /// The schema that has each.
    first: HashMap<String, &'s Value>,
    /// Those that another one has as well.
    repeated: HashSet<String>,
}

/// The names that are given to two different subschemas, or to one and the whole. Copies of one schema may have one
/// name: what is written with types of a program repeats them wherever they are used.
pub(super) fn repeated<'s>(root: &Place<'s>, registry: &Registry<'s>) -> HashSet<String> {
    let base = root.base();
    let of_root = [BASE, place::without_fragment(base.as_str())];
    let mut names = Names {
        first: HashMap::from(of_root.map(|name| (name.to_owned(), root.schema))),
        repeated: HashSet::new(),
    };
    collect(root, registry, &mut names);
    names.repeated
}

/// The depth is bounded by that of the request's body.
fn collect<'s>(place: &Place<'s>, registry: &Registry<'s>, names: &mut Names<'s>) {
    let Some(members) = place.schema.as_object() else {
        return;
    };
    // What its version of JSON Schema has no keyword for may have a name that is none, and is not known by it.
    let Ok(place) = place.entered(registry) else {
        return;
    };
    if let Some(name) = place.name() {
        let first = *names.first.entry(name.to_owned()).or_insert(place.schema);
        if first != place.schema {
            names.repeated.insert(name.to_owned());
        }
    }
    for (word, value) in members {
        for subschema in place::all_subschemas(word, value) {
            collect(&place.at(subschema), registry, names);
        }
    }
}
