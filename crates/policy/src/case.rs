//! One question before the policies: which of them it is about, and whether their conditions hold.

use crate::annotations::Role;
use crate::context::{Facts, Principal};
use crate::evaluate::{Asked, holds};
use crate::looks::Looks;
use crate::parameters::Parameters;
use crate::question::{Question, Unanswerable};
use crate::set::{Contents, Presence, TenantRule};
use crate::statement::Statement;
use crate::vocabulary::{Action, Rule};
use cedar_policy_core::evaluator::EvaluationError;
use std::rc::Rc;

/// A question that is asked for one principal, and the policies that can be about it.
pub(crate) struct Case<'s> {
    pub(crate) contents: &'s Contents,
    action: &'s Action,
    pub(crate) parameters: Rc<Parameters<'s>>,
    found: Vec<(&'s Rule, Presence)>,
    pub(crate) asked: Asked,
}

impl<'s> Case<'s> {
    /// The case of the agent that asks this; `None` if no policy can know the action. `looks` is made in any case, also where
    /// no policy looks at it.
    pub(crate) fn open(
        contents: &'s Contents,
        question: &Question<'_>,
        looks: Looks,
    ) -> Result<Option<Self>, Unanswerable> {
        let Some(action) = action(contents, question) else {
            return Ok(None);
        };
        let parameters = action.parameters.read(question.parameters)?;
        Self::of_agent(contents, question, (action, parameters), looks)
    }

    /// The same where the parameters need only have the types that policies rely on.
    pub(crate) fn open_by_types(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        let Some(action) = action(contents, question) else {
            return Ok(None);
        };
        let parameters = action.parameters.read_types(question.parameters)?;
        Self::of_agent(contents, question, (action, parameters), Looks::default())
    }

    /// The same where nobody knows the parameters. What policies see of them is nothing, so whoever evaluates one that
    /// looks at them is told a lie: [`Self::looks`] says whether there is one.
    pub(crate) fn open_blind(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        let Some(action) = action(contents, question) else {
            return Ok(None);
        };
        let parameters = action.parameters.unknown();
        Self::of_agent(contents, question, (action, parameters), Looks::default())
    }

    fn of_agent(
        contents: &'s Contents,
        question: &Question<'_>,
        (action, parameters): (&'s Action, Parameters<'s>),
        looks: Looks,
    ) -> Result<Option<Self>, Unanswerable> {
        let known = (action, Rc::new(parameters));
        Self::with(contents, (question, Principal::Agent), known, looks).map(Some)
    }

    /// The case of the same agent where the same is asked in another way.
    pub(crate) fn again(&self, question: &Question<'_>, looks: Looks) -> Result<Self, Unanswerable> {
        let known = (self.action, Rc::clone(&self.parameters));
        Self::with(self.contents, (question, Principal::Agent), known, looks)
    }

    /// The case of the user for whom the same is asked; `None` if it is asked for nobody.
    pub(crate) fn of_user(
        &self,
        question: &Question<'_>,
        looks: Looks,
    ) -> Result<Option<Self>, Unanswerable> {
        let Some(user) = question.user else {
            return Ok(None);
        };
        let known = (self.action, Rc::clone(&self.parameters));
        Self::with(self.contents, (question, Principal::User(user)), known, looks).map(Some)
    }

    fn with(
        contents: &'s Contents,
        (question, principal): (&Question<'_>, Principal<'_>),
        (action, parameters): (&'s Action, Rc<Parameters<'s>>),
        looks: Looks,
    ) -> Result<Self, Unanswerable> {
        let vocabulary = &*contents.vocabulary;
        let mutates = question.mutates || action.mutates;
        let side = &action.sides[usize::from(mutates)];
        let facts = Facts::new((question, principal), side, &parameters, &vocabulary.attributes)?;
        let mut found = Vec::new();
        for number in facts.find(&vocabulary.base_index, &action.base[usize::from(mutates)]) {
            found.push((&vocabulary.base_rules[number as usize], Presence::Always));
        }
        for number in facts.find(contents.index(), contents.numbers(action, mutates)) {
            let TenantRule { rule, presence } = &contents.rules[number as usize];
            found.push((rule, *presence));
        }
        found.retain(|(rule, _)| {
            let notes = &rule.statement.notes;
            rule.statement.is_about(principal.kind())
                // Most asks carry nothing that advice is about, and then it is not asked for.
                && (notes.role != Role::Advice || parameters.may_concern(&notes.obligations))
        });
        let conditions = found.iter().filter_map(|(rule, _)| rule.condition.as_ref());
        let looks = conditions.fold(looks, |looks, condition| looks.and(condition.looks));
        let asked = facts.ask(looks);
        Ok(Self {
            contents,
            action,
            parameters,
            found,
            asked,
        })
    }

    /// What the conditions of these policies look at.
    pub(crate) fn looks(&self, wanted: impl Fn(Presence) -> bool) -> Looks {
        let wanted = self.found.iter().filter(|(_, presence)| wanted(*presence));
        let conditions = wanted.filter_map(|(rule, _)| rule.condition.as_ref());
        conditions.fold(Looks::default(), |looks, condition| looks.and(condition.looks))
    }

    /// Whether the conditions of these policies hold.
    pub(crate) fn evaluate(&self, wanted: impl Fn(Presence) -> bool) -> Vec<Evaluated<'s>> {
        let evaluator = self.asked.evaluator();
        let wanted = self.found.iter().filter(|(_, presence)| wanted(*presence));
        wanted
            .map(|(rule, presence)| Evaluated {
                statement: &rule.statement,
                presence: *presence,
                outcome: holds(&evaluator, rule.condition.as_ref()),
            })
            .collect()
    }

    /// How many policies are looked at.
    #[cfg(test)]
    pub(crate) const fn width(&self) -> usize {
        self.found.len()
    }
}

fn action<'s>(contents: &'s Contents, question: &Question<'_>) -> Option<&'s Action> {
    let (tool, action) = (question.tool.name.as_str(), question.action.name.as_str());
    contents.vocabulary.action(tool, action)
}

/// A policy that the question is about, and whether its condition holds.
pub(crate) struct Evaluated<'s> {
    pub(crate) statement: &'s Statement,
    pub(crate) presence: Presence,
    pub(crate) outcome: Result<bool, Box<EvaluationError>>,
}
