//! Adds up what a plan takes for a value, as validation goes through both.

use super::choice::Choice;
use super::plan::{Node, Parts, Plan};
use serde_json::Value;
use std::collections::HashMap;

/// What it takes to find what was found before.
const FOUND: usize = 192;
/// What it takes to come to a value, here as well.
const VISIT: usize = 48;
/// Validation remembers what it found for an array or object where that took following sixteen references that lead
/// back. Whatever took fewer, it does again. That all of them take as much as the largest is not to be feared; if they
/// did, it would take twice the time.
const FORGOTTEN: usize = 8;

impl Plan {
    /// How many steps this value takes, if they are no more than that.
    pub(super) fn steps(&self, value: &Value, steps_max: usize, alternatives: Alternatives) -> Option<usize> {
        let mut spending = Spending {
            plan: self,
            spent: 0,
            steps_max,
            alternatives,
            open: vec![0; self.nodes.len()],
            known: HashMap::new(),
        };
        spending.go_through(0, value)?;
        Some(spending.spent)
    }
}

/// Which of the alternatives are gone through that are told apart by a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Alternatives {
    /// The one that the word says: as it is when a value is checked.
    Chosen,
    /// All: as it is when errors are collected.
    All,
}

struct Spending<'p> {
    plan: &'p Plan,
    spent: usize,
    steps_max: usize,
    alternatives: Alternatives,
    /// How often each node was linked to on the way here.
    open: Vec<usize>,
    /// What a node takes for an array or object that validation comes to again.
    known: HashMap<(usize, *const Value), Known>,
}

#[derive(Clone, Copy)]
struct Known {
    again: usize,
    largest: usize,
}

/// The steps of the way between two references that lead back.
#[derive(Clone, Copy, Default)]
struct Stretch {
    /// Of the one that this is in, so far.
    steps: usize,
    /// The most of those that begin further down.
    largest: usize,
}

impl Stretch {
    fn join(&mut self, inner: Self, times: usize) {
        self.steps = self.steps.saturating_add(inner.steps.saturating_mul(times));
        self.largest = self.largest.max(inner.largest);
    }
}

impl<'p> Spending<'p> {
    fn go_through(&mut self, number: usize, value: &Value) -> Option<Stretch> {
        let plan: &'p Plan = self.plan;
        let node = &plan.nodes[number];
        let steps = node.own.for_value(value).saturating_add(VISIT);
        self.spend(steps)?;
        let mut stretch = Stretch { steps, largest: 0 };
        self.follow_links(node, value, &mut stretch)?;
        for choice in &node.choices {
            self.choose(choice, value, &mut stretch)?;
        }
        match value {
            Value::Array(items) => self.visit_items(node, items, &mut stretch)?,
            Value::Object(members) if !(node.named.is_empty() && node.each.is_empty()) => {
                for (name, member) in members {
                    let named = node.named.get(name);
                    self.visit_parts(named.into_iter().chain([&node.each]), member, &mut stretch)?;
                }
            }
            Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        Some(stretch)
    }

    fn choose(&mut self, choice: &Choice, value: &Value, stretch: &mut Stretch) -> Option<()> {
        match value {
            Value::Object(members) if self.alternatives == Alternatives::Chosen => {
                let word = members.get(&choice.member).and_then(Value::as_str);
                if let Some(number) = word.and_then(|word| choice.nodes.get(word)) {
                    self.visit_times(*number, 1, value, stretch)?;
                }
            }
            _ => {
                for number in choice.nodes.values() {
                    self.visit_times(*number, 1, value, stretch)?;
                }
            }
        }
        Some(())
    }

    fn follow_links(&mut self, node: &Node, value: &Value, stretch: &mut Stretch) -> Option<()> {
        let may_be_known = value.is_array() || value.is_object();
        for (number, times) in &node.linked {
            let is_back = self.open[*number] > 0 && node.remembered.contains(number);
            self.open[*number] += 1;
            if is_back && may_be_known {
                for _ in 0..*times {
                    stretch.join(self.come_back_to(*number, value)?, 1);
                }
            } else {
                self.visit_times(*number, *times, value, stretch)?;
            }
            self.open[*number] -= 1;
        }
        Some(())
    }

    /// Goes through what validation remembers, or may have to go through again.
    fn come_back_to(&mut self, number: usize, value: &Value) -> Option<Stretch> {
        let key = (number, std::ptr::from_ref(value));
        let known = if let Some(known) = self.known.get(&key) {
            let known = *known;
            self.spend(known.again)?;
            known
        } else {
            let before = self.spent;
            let stretch = self.go_through(number, value)?;
            let largest = stretch.largest.max(stretch.steps);
            let again = largest.saturating_mul(FORGOTTEN).min(self.spent - before);
            let known = Known {
                again: again.saturating_add(FOUND),
                largest,
            };
            self.known.insert(key, known);
            known
        };
        Some(Stretch {
            steps: FOUND,
            largest: known.largest,
        })
    }

    fn visit_items(&mut self, node: &Node, items: &[Value], stretch: &mut Stretch) -> Option<()> {
        let reached = if node.each.is_empty() {
            node.listed.len()
        } else {
            items.len()
        };
        for (place, item) in items.iter().take(reached).enumerate() {
            let listed = node.listed.get(place);
            self.visit_parts(listed.into_iter().chain([&node.each]), item, stretch)?;
        }
        Some(())
    }

    fn visit_parts<'n>(
        &mut self,
        parts: impl Iterator<Item = &'n Parts>,
        value: &Value,
        stretch: &mut Stretch,
    ) -> Option<()> {
        for (number, times) in parts.flatten() {
            self.visit_times(*number, *times, value, stretch)?;
        }
        Some(())
    }

    fn visit_times(
        &mut self,
        number: usize,
        times: usize,
        value: &Value,
        stretch: &mut Stretch,
    ) -> Option<()> {
        let before = self.spent;
        let inner = self.go_through(number, value)?;
        let once = self.spent - before;
        self.spend(once.saturating_mul(times - 1))?;
        stretch.join(inner, times);
        Some(())
    }

    /// Takes these steps; none if that is too many.
    fn spend(&mut self, steps: usize) -> Option<()> {
        self.spent = self.spent.saturating_add(steps);
        (self.spent <= self.steps_max).then_some(())
    }
}
