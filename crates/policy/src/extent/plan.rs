//! What a schema takes for the values at each place: all that it says of one value together, and where to go on for
//! what is inside.

use super::choice::{self, Choice};
use super::cost::Cost;
use super::place::{self, Place};
use super::{Fault, LAYERS_MAX, too_deep};
use jsonschema::{ReferencingError, Registry, Uri};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// A schema with everything that applies to the same value put together.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) nodes: Vec<Node>,
}

/// What applies to one value.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) own: Cost,
    /// What applies to the same value and is referred to from within itself.
    pub(super) linked: Parts,
    /// Those of them for which validation remembers what it found, where it comes back from here.
    pub(super) remembered: BTreeSet<usize>,
    /// What applies to the same value if a word in it says so.
    pub(super) choices: Vec<Choice>,
    /// What applies to the members with these names.
    pub(super) named: HashMap<String, Parts>,
    /// What applies to the items at these places.
    pub(super) listed: Vec<Parts>,
    /// What may apply to any member or item.
    pub(super) each: Parts,
}

/// Nodes, and how often each is gone through.
pub(super) type Parts = BTreeMap<usize, usize>;

impl Node {
    /// What is gone on to from here.
    fn next(&self) -> impl Iterator<Item = usize> {
        let inner = self.named.values().chain(&self.listed);
        let parts = inner.chain([&self.each, &self.linked]).flat_map(Parts::keys);
        let chosen = self.choices.iter().flat_map(|choice| choice.nodes.values());
        parts.chain(chosen).copied()
    }
}

impl Plan {
    /// The plan of this schema, in which references lead back to these subschemas. Going through it must come to an end
    /// where no value is gone into.
    pub(super) fn of<'s>(
        registry: &'s Registry<'s>,
        root: Place<'s>,
        loops: &HashSet<*const Value>,
        has_one_base: bool,
    ) -> Result<Self, Fault> {
        let mut making = Making {
            registry,
            loops,
            known: HashMap::new(),
            costs: HashMap::new(),
            of_names: HashMap::new(),
            places: Vec::new(),
            names: HashMap::new(),
            is_marking: false,
        };
        let mut plan = Self::default();
        making.node_of(root);
        while let Some(place) = making.places.get(plan.nodes.len()).cloned() {
            let mut node = Node::default();
            making.check(&place, &mut node)?;
            plan.nodes.push(node);
        }
        // What notes what was looked at remembers nothing, and what has two names is compiled under each. Where
        // references are relative to several, it is compiled for each sequence of those that the way comes through.
        let remembers = has_one_base && !making.is_marking;
        let names = making.names.iter().filter(|_| remembers);
        for (target, _) in names.filter(|(_, names)| names.len() == 1) {
            plan.remember(*target);
        }
        Ok(plan)
    }

    /// Notes from where validation remembers what it found for this node.
    ///
    /// It does so where a reference leads to what was not yet compiled as a whole when the reference was. That is sure
    /// only if nothing on the way around can be come to but through this node: then it is the first of them to be
    /// compiled, and the last to be finished.
    fn remember(&mut self, target: usize) {
        let inside = self.reached(target, None);
        let outside = self.reached(0, Some(target));
        let leads_back: Vec<usize> = inside
            .into_iter()
            .filter(|node| self.nodes[*node].linked.contains_key(&target))
            .collect();
        if leads_back.iter().any(|node| outside.contains(node)) {
            return;
        }
        for node in leads_back {
            self.nodes[node].remembered.insert(target);
        }
    }

    /// What can be come to from here without going through that.
    fn reached(&self, start: usize, without: Option<usize>) -> HashSet<usize> {
        let mut reached = HashSet::new();
        let mut pending = vec![start];
        while let Some(node) = pending.pop() {
            if Some(node) != without && reached.insert(node) {
                pending.extend(self.nodes[node].next());
            }
        }
        reached
    }
}

struct Making<'s> {
    registry: &'s Registry<'s>,
    loops: &'s HashSet<*const Value>,
    /// The number of the node for each subschema that has one.
    known: HashMap<*const Value, usize>,
    costs: HashMap<*const Value, Cost>,
    /// What each subschema is for the name of a member.
    of_names: HashMap<*const Value, OfName>,
    /// Where the nodes begin, in the order of their numbers.
    places: Vec<Place<'s>>,
    /// As what the nodes are referred to that refer to themselves.
    names: HashMap<usize, HashSet<Name<'s>>>,
    is_marking: bool,
}

/// A subschema for the name of a member, with all that applies to the same name.
#[derive(Clone, Copy)]
struct OfName {
    cost: Cost,
    /// How many subschemas there are inside one another below it.
    layers: usize,
}

impl OfName {
    fn add_inner(&mut self, inner: &Self) {
        self.cost.add_all(&inner.cost);
        self.layers = self.layers.max(inner.layers + 1);
    }
}

/// A reference and what it is to be read with.
type Name<'s> = (Arc<Uri<String>>, &'s str);

impl<'s> Making<'s> {
    fn node_of(&mut self, place: Place<'s>) -> usize {
        let number = self.places.len();
        let known = *self.known.entry(place.schema).or_insert(number);
        if known == number {
            self.places.push(place);
        }
        known
    }

    fn own_cost(&mut self, schema: &Value) -> Cost {
        let known = self.costs.entry(std::ptr::from_ref(schema));
        *known.or_insert_with(|| Cost::of_schema(schema))
    }

    /// Adds what validation goes through here to see whether a value is valid. What is referred to from within itself
    /// is added as a node of its own, everything else as if it stood here.
    fn check(&mut self, place: &Place<'s>, node: &mut Node) -> Result<(), Fault> {
        node.own.add_all(&self.own_cost(place.schema));
        let Some(members) = place.schema.as_object() else {
            return Ok(());
        };
        let place = place.entered(self.registry)?;
        for (word, value) in members {
            self.check_keyword((word.as_str(), value), &place, node)?;
        }
        if let Some((reference, target)) = self.referenced(members, &place)? {
            if self.loops.contains(&std::ptr::from_ref(target.schema)) {
                let number = self.node_of(target);
                self.names
                    .entry(number)
                    .or_default()
                    .insert((place.base(), reference));
                add(&mut node.linked, number);
            } else {
                self.check(&target, node)?;
            }
        }
        if place::is_marking(members) {
            self.is_marking = true;
            self.mark(&place, members, node)?;
        }
        Ok(())
    }

    fn check_keyword(
        &mut self,
        (word, value): (&str, &'s Value),
        place: &Place<'s>,
        node: &mut Node,
    ) -> Result<(), Fault> {
        match (word, value) {
            ("properties", Value::Object(named)) => {
                for (name, subschema) in named {
                    let number = self.node_of(place.at(subschema));
                    add(node.named.entry(name.clone()).or_default(), number);
                }
            }
            ("prefixItems" | "items", Value::Array(listed)) => {
                node.listed
                    .resize_with(node.listed.len().max(listed.len()), Parts::new);
                for (parts, subschema) in node.listed.iter_mut().zip(listed) {
                    add(parts, self.node_of(place.at(subschema)));
                }
            }
            ("anyOf" | "oneOf", Value::Array(alternatives)) => {
                let Some((member, words)) = choice::deciding(alternatives, place.draft()) else {
                    return self.check_all((word, value), place, node);
                };
                let nodes = words.into_iter().zip(alternatives);
                let nodes =
                    nodes.map(|(word, alternative)| (word.to_owned(), self.node_of(place.at(alternative))));
                node.choices.push(Choice {
                    nodes: nodes.collect(),
                    member: member.to_owned(),
                });
            }
            ("propertyNames", subschema) => {
                let of_name = self.of_name(&place.at(subschema), 0)?;
                node.own.add_for_names(&of_name.cost);
            }
            _ => return self.check_all((word, value), place, node),
        }
        Ok(())
    }

    fn check_all(
        &mut self,
        (word, value): (&str, &'s Value),
        place: &Place<'s>,
        node: &mut Node,
    ) -> Result<(), Fault> {
        let (is_same_value, subschemas) = place::subschemas(word, value);
        for subschema in subschemas {
            let inner = place.at(subschema);
            if is_same_value {
                self.check(&inner, node)?;
            } else {
                add(&mut node.each, self.node_of(inner));
            }
        }
        Ok(())
    }

    /// What a name takes that has to satisfy this. A name is a text, which has no members, no items and no names of its
    /// own: only what is about the name itself counts, once for each way to it, and no way leads back. But references
    /// are followed where the walk has stopped, so what was found is remembered, and how far they go is bounded here,
    /// whatever of it was found before.
    fn of_name(&mut self, place: &Place<'s>, layers: usize) -> Result<OfName, Fault> {
        let known = self.of_names.get(&std::ptr::from_ref(place.schema)).copied();
        if layers + known.map_or(0, |known| known.layers) > LAYERS_MAX {
            return too_deep();
        }
        if let Some(known) = known {
            return Ok(known);
        }
        let mut of_name = OfName {
            cost: self.own_cost(place.schema),
            layers: 0,
        };
        if let Some(members) = place.schema.as_object() {
            let place = place.entered(self.registry)?;
            for (word, value) in members {
                let (is_same_value, subschemas) = place::subschemas(word, value);
                for subschema in subschemas.into_iter().filter(|_| is_same_value) {
                    of_name.add_inner(&self.of_name(&place.at(subschema), layers + 1)?);
                }
            }
            if let Some((_, target)) = self.referenced(members, &place)? {
                of_name.add_inner(&self.of_name(&target, layers + 1)?);
            }
        }
        self.of_names.insert(place.schema, of_name);
        Ok(of_name)
    }

    /// Adds what validation goes through here to know which members and items this schema looks at. It checks
    /// alternatives again for that, and those in them once more.
    fn mark(
        &mut self,
        place: &Place<'s>,
        members: &'s Map<String, Value>,
        node: &mut Node,
    ) -> Result<(), Fault> {
        node.own.add_all(&Cost::of_marking(members));
        for (word, value) in members {
            let (_, subschemas) = place::subschemas(word, value);
            let checks = matches!(word.as_str(), "allOf" | "anyOf" | "oneOf" | "if");
            let (_, marks) = place::marks(word);
            let goes_on = matches!(
                word.as_str(),
                "contains" | "unevaluatedProperties" | "unevaluatedItems"
            );
            for subschema in subschemas {
                let inner = place.at(subschema);
                if checks {
                    self.check(&inner, node)?;
                }
                if marks {
                    self.mark_within(&inner, node)?;
                }
                if goes_on {
                    add(&mut node.each, self.node_of(inner));
                }
            }
        }
        match self.referenced(members, place)? {
            Some((_, target)) => self.mark_within(&target, node),
            None => Ok(()),
        }
    }

    fn mark_within(&mut self, place: &Place<'s>, node: &mut Node) -> Result<(), Fault> {
        match place.schema.as_object() {
            Some(members) => self.mark(&place.entered(self.registry)?, members, node),
            None => Ok(()),
        }
    }

    fn referenced(
        &self,
        members: &'s Map<String, Value>,
        place: &Place<'s>,
    ) -> Result<Option<(&'s str, Place<'s>)>, ReferencingError> {
        let Some(reference) = members.get("$ref").and_then(Value::as_str) else {
            return Ok(None);
        };
        let target = place.target(reference, self.registry)?;
        Ok(Some((reference, target)))
    }
}

fn add(parts: &mut Parts, node: usize) {
    *parts.entry(node).or_default() += 1;
}
