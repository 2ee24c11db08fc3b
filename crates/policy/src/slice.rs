//! The policies that one action can meet, found when they are compiled: Cedar would look at every policy of a set, also
//! at those that are about another action. Principals and resources are not indexed.

use crate::annotations::Role;
use crate::context::Member;
use crate::split::{Known, Left, Split};
use crate::statement::Statement;
use std::collections::HashMap;
use std::sync::Arc;

/// Policies that a question is put to.
#[derive(Default)]
pub(crate) struct Slice {
    /// Those that decide.
    pub(crate) rules: cedar_policy::PolicySet,
    /// Those that advise. They stand apart, because Cedar would let them permit.
    pub(crate) advice: cedar_policy::PolicySet,
    /// The members of the context that any of them looks at. Others need not be made.
    members: u32,
}

impl Slice {
    /// Every policy as it was written.
    pub(crate) fn whole(statements: &[Statement]) -> Self {
        let mut slice = Self::default();
        for statement in statements {
            slice.add(statement, &statement.cedar, u32::MAX);
        }
        slice
    }

    fn add(&mut self, statement: &Statement, policy: &cedar_policy::Policy, members: u32) {
        let set = if statement.notes.role == Role::Advice {
            &mut self.advice
        } else {
            &mut self.rules
        };
        set.add(policy.clone())
            .expect("ids were made distinct when the texts were parsed");
        self.members |= members;
    }

    /// Whether any of its policies looks at this member of the context.
    pub(crate) const fn looks_at(&self, member: Member) -> bool {
        self.members & member.bit() != 0
    }
}

/// Hands out slices. Actions that leave the same of every policy share one.
pub(crate) struct Slicer<'s> {
    policies: Vec<(&'s Statement, Split)>,
    slices: HashMap<Vec<Left>, Arc<Slice>>,
}

impl<'s> Slicer<'s> {
    pub(crate) fn new(statements: &'s [Statement]) -> Self {
        Self {
            policies: statements
                .iter()
                .map(|statement| (statement, Split::of(statement)))
                .collect(),
            slices: HashMap::new(),
        }
    }

    /// What this action leaves of the policies.
    pub(crate) fn slice(&mut self, known: &Known<'_>) -> Arc<Slice> {
        let left: Vec<Left> = self.policies.iter().map(|(_, split)| split.left(known)).collect();
        let policies = &self.policies;
        let slice = self.slices.entry(left).or_insert_with_key(|left| {
            let mut slice = Slice::default();
            for ((statement, split), left) in policies.iter().zip(left) {
                match left {
                    Left::Nothing => {}
                    Left::Rest => slice.add(statement, &split.rest, split.members),
                    Left::Whole => slice.add(statement, &split.whole, u32::MAX),
                }
            }
            Arc::new(slice)
        });
        Arc::clone(slice)
    }
}
