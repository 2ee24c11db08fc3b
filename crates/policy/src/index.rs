//! Policies by their scope: which of them can be about a principal, an action and a resource, without looking at the
//! others. What is found is exact but for the types after `is`, see [`Scope::admits_types`].
//!
//! Every way in which a scope names an entity gets a number. A policy is kept under its three numbers, 0 where it is about
//! everything; a question looks under the few combinations of the numbers of what it is about.

use crate::statement::Scope;
use cedar_policy_core::ast::{ActionConstraint, EntityReference, EntityUID, PrincipalOrResourceConstraint};
use std::collections::HashMap;

/// Stands for every entity.
const ANY: u32 = 0;

/// Policies, which the index knows by numbers, by their scope.
#[derive(Debug, Default)]
pub(crate) struct Index {
    actions: HashMap<EntityUID, Named>,
    /// Principals and resources. It is often empty, and then nothing is hashed to look there.
    others: HashMap<EntityUID, Named>,
    last: u32,
    /// By action, principal and resource.
    policies: HashMap<[u32; 3], Vec<u32>>,
}

/// The numbers of an entity; [`ANY`] where no scope names it in this way.
#[derive(Debug, Default, Clone, Copy)]
struct Named {
    /// As `== it`.
    is: u32,
    /// As `in it`.
    within: u32,
}

/// The policies that are found for a question, in lists as the index keeps them: how many there are is known before any
/// of them is looked at.
#[derive(Debug)]
pub(crate) struct Found<'i>(Vec<&'i [u32]>);

impl Found<'_> {
    /// How many there are at most: one about several actions is counted as often as they hold.
    pub(crate) fn count(&self) -> usize {
        self.0.iter().copied().map(<[u32]>::len).sum()
    }

    /// Their numbers, each once, in ascending order.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        let mut numbers = self.0.concat();
        // A policy about several actions is found as often as they hold.
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// An entity of a question, and everything that it is in.
#[derive(Clone, Copy)]
pub(crate) struct Position<'a> {
    pub(crate) entity: &'a EntityUID,
    pub(crate) ancestors: &'a [EntityUID],
}

impl Index {
    /// Adds a policy. Their numbers rise.
    pub(crate) fn add(&mut self, policy: u32, scope: &Scope) {
        match &scope.action {
            ActionConstraint::Any => self.add_under(ANY, policy, scope),
            ActionConstraint::Eq(action) => {
                let number = number(&mut self.actions, &mut self.last, action, true);
                self.add_under(number, policy, scope);
            }
            ActionConstraint::In(actions) => {
                for action in actions {
                    let number = number(&mut self.actions, &mut self.last, action, false);
                    self.add_under(number, policy, scope);
                }
            }
        }
    }

    /// Adds a policy that is about what has this number among its actions', whatever its scope says about actions.
    pub(crate) fn add_under(&mut self, action: u32, policy: u32, scope: &Scope) {
        let key = [
            action,
            self.anchor(&scope.principal),
            self.anchor(&scope.resource),
        ];
        let policies = self.policies.entry(key).or_default();
        // `in [a, a]` names an action twice.
        if policies.last() != Some(&policy) {
            policies.push(policy);
        }
    }

    /// A number that no scope gives.
    pub(crate) fn unused_number(&mut self) -> u32 {
        self.last += 1;
        self.last
    }

    /// The numbers under which policies about this action can be, [`ANY`] first.
    pub(crate) fn action(&self, position: Position<'_>) -> Numbers {
        Numbers::of(&self.actions, position)
    }

    /// The policies whose scope is about these.
    pub(crate) fn find(&self, actions: &[u32], principal: Position<'_>, resource: Position<'_>) -> Found<'_> {
        let principals = Numbers::of(&self.others, principal);
        let resources = Numbers::of(&self.others, resource);
        let mut found = Vec::new();
        for action in actions {
            for principal in principals.as_slice() {
                for resource in resources.as_slice() {
                    if let Some(policies) = self.policies.get(&[*action, *principal, *resource]) {
                        found.push(policies.as_slice());
                    }
                }
            }
        }
        Found(found)
    }

    /// The policies whose scope is about all principals and resources, or all of a type, by the numbers of what actions
    /// it names, each number once. Their own numbers rise.
    pub(crate) fn about_everybody(&self) -> impl Iterator<Item = (u32, &[u32])> {
        let policies = self.policies.iter();
        policies.filter_map(|([action, principal, resource], policies)| {
            let is_about_all = *principal == ANY && *resource == ANY;
            is_about_all.then_some((*action, policies.as_slice()))
        })
    }

    fn anchor(&mut self, constraint: &PrincipalOrResourceConstraint) -> u32 {
        let (uid, exactly) = match constraint {
            PrincipalOrResourceConstraint::Eq(EntityReference::EUID(uid)) => (uid, true),
            PrincipalOrResourceConstraint::In(EntityReference::EUID(uid))
            | PrincipalOrResourceConstraint::IsIn(_, EntityReference::EUID(uid)) => (uid, false),
            _ => return ANY,
        };
        number(&mut self.others, &mut self.last, uid, exactly)
    }
}

/// The number of an entity that a scope names, a new one if none did before.
fn number(named: &mut HashMap<EntityUID, Named>, last: &mut u32, uid: &EntityUID, exactly: bool) -> u32 {
    let named = named.entry(uid.clone()).or_default();
    let number = if exactly { &mut named.is } else { &mut named.within };
    if *number == ANY {
        *last += 1;
        *number = *last;
    }
    *number
}

/// A few numbers. An agent is in one team at most and a resource in nothing, so that they seldom need the heap.
#[derive(Debug, Clone)]
pub(crate) enum Numbers {
    Few { numbers: [u32; 4], count: usize },
    Many(Vec<u32>),
}

impl Default for Numbers {
    /// Only [`ANY`].
    fn default() -> Self {
        Self::Few {
            numbers: [ANY; 4],
            count: 1,
        }
    }
}

impl Numbers {
    fn of(named: &HashMap<EntityUID, Named>, position: Position<'_>) -> Self {
        let mut numbers = Self::default();
        if let Some(named) = named.get(position.entity) {
            numbers.push(named.is);
            numbers.push(named.within);
        }
        for ancestor in position.ancestors {
            if let Some(named) = named.get(ancestor) {
                numbers.push(named.within);
            }
        }
        numbers
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        match self {
            Self::Few { numbers, count } => &numbers[..*count],
            Self::Many(numbers) => numbers,
        }
    }

    fn push(&mut self, number: u32) {
        match self {
            _ if number == ANY => {}
            Self::Few { numbers, count } if *count < numbers.len() => {
                numbers[*count] = number;
                *count += 1;
            }
            Self::Few { numbers, .. } => *self = Self::Many([&numbers[..], &[number]].concat()),
            Self::Many(numbers) => numbers.push(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts;

    fn scope(principal: &str, action: &str, resource: &str) -> Scope {
        let text = format!("permit ({principal}, {action}, {resource});");
        let template = cedar_policy_core::parser::parse_policy_or_template(None, &text);
        Scope::of(&template.unwrap())
    }

    /// What is found for the agent `a` in the team `t`, the action `x/y` in `read`, and this resource.
    fn found(index: &Index, resource: &str) -> Vec<u32> {
        let (agent, teams) = (facts::agent("a"), [facts::team("t")]);
        let (action, groups) = (facts::action("x/y"), [facts::action("read")]);
        let actions = index.action(Position {
            entity: &action,
            ancestors: &groups,
        });
        let principal = Position {
            entity: &agent,
            ancestors: &teams,
        };
        let resource = facts::resource(resource);
        let resource = Position {
            entity: &resource,
            ancestors: &[],
        };
        let found = index.find(actions.as_slice(), principal, resource);
        let numbers = found.numbers();
        assert!(found.count() >= numbers.len());
        numbers
    }

    #[test]
    fn a_policy_is_found_by_what_its_scope_is_about_and_only_once() {
        let mut index = Index::default();
        for (number, (principal, action, resource)) in (0..).zip([
            ("principal", "action", "resource"),
            (
                "principal == Agent::\"a\"",
                "action == Action::\"x/y\"",
                "resource == Resource::\"r\"",
            ),
            (
                "principal in Team::\"t\"",
                "action in Action::\"read\"",
                "resource in Resource::\"r\"",
            ),
            (
                "principal is Agent in Team::\"t\"",
                "action in [Action::\"read\", Action::\"x/y\"]",
                "resource",
            ),
            ("principal == Team::\"t\"", "action", "resource"),
            ("principal", "action == Action::\"read\"", "resource"),
            ("principal == Agent::\"b\"", "action", "resource"),
            ("principal", "action in [Action::\"mutate\"]", "resource"),
            (
                "principal in Agent::\"a\"",
                "action in [Action::\"x/y\", Action::\"x/y\"]",
                "resource",
            ),
        ]) {
            index.add(number, &scope(principal, action, resource));
        }
        assert_eq!(found(&index, "r"), [0, 1, 2, 3, 8]);
        assert_eq!(found(&index, "other"), [0, 3, 8]);
    }

    #[test]
    fn more_numbers_than_usual_are_kept_too() {
        let mut numbers = Numbers::default();
        (1..20).for_each(|number| numbers.push(number));
        numbers.push(ANY);
        assert_eq!(numbers.as_slice(), (0..20).collect::<Vec<_>>());
    }
}
