//! One question before the policies: which of them it is about, and whether their conditions hold.

use crate::annotations::Role;
use crate::context::{Facts, Principal};
use crate::evaluate::{Asked, Failure, holds};
use crate::like;
use crate::looks::{Looks, Member};
use crate::parameters::{Parameters, Rules};
use crate::question::{Question, Unanswerable};
use crate::set::{Contents, Presence, TenantRule, World};
use crate::statement::Statement;
use crate::vocabulary::{Action, Rule};
use cedar_policy_core::evaluator::Evaluator;
use model::AgentId;
use std::rc::Rc;

/// A question that is asked for one principal, and the policies that can be about it.
pub(crate) struct Case<'s> {
    pub(crate) known: Known<'s>,
    found: Vec<(&'s Rule, Presence)>,
    agent: AgentId,
    steps: Steps,
    pub(crate) asked: Asked,
}

/// How many steps the patterns of the policies that are found take at most.
#[derive(Default)]
struct Steps {
    /// Of those that look at texts of the ask.
    asked: Sums,
    /// Of all others. However long an ask is, they take as many: whoever asks has no say in whether they can be evaluated.
    registered: Sums,
}

/// What is on trial is not counted with what is in force, so that it changes no answer.
#[derive(Default)]
struct Sums {
    in_force: u64,
    promoted: u64,
}

impl Steps {
    fn of(found: &[(&Rule, Presence)], contents: &Contents, question: &Question<'_>) -> Self {
        let mut steps = Self::default();
        for (rule, presence) in found {
            let condition = rule.condition.as_ref();
            let Some(condition) = condition.filter(|condition| condition.likes.are_any()) else {
                continue;
            };
            let sums = if like::looks_at_the_ask(condition.looks) {
                &mut steps.asked
            } else {
                &mut steps.registered
            };
            let more = condition.likes.steps(condition.looks, question);
            if contents.counts(*presence, World::Promoted) {
                sums.promoted = sums.promoted.saturating_add(more);
            }
            if contents.counts(*presence, World::InForce(&question.agent.id)) {
                sums.in_force = sums.in_force.saturating_add(more);
            }
        }
        steps
    }
}

/// What is known of a question whoever asks it: its action, and the parameters. To read them may take long, so that is done once, and all
/// cases of the question share them.
#[derive(Clone)]
pub(crate) struct Known<'s> {
    pub(crate) contents: &'s Contents,
    action: &'s Action,
    pub(crate) parameters: Rc<Parameters<'s>>,
}

impl<'s> Known<'s> {
    /// The action and the parameters of this question, if they are valid; `None` if no policy can know the action.
    pub(crate) fn read(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, |rules| rules.read(question.parameters))
    }

    /// The same where the parameters need only have the types that policies rely on.
    pub(crate) fn read_types(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, |rules| rules.read_types(question.parameters))
    }

    /// The same where nobody knows the parameters. What policies see of them is nothing, so whoever evaluates one that
    /// looks at them is told a lie: [`Case::looks`] says whether there is one.
    pub(crate) fn blind(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, Rules::unknown)
    }

    fn with(
        contents: &'s Contents,
        question: &Question<'_>,
        parameters: impl FnOnce(&'s Rules) -> Result<Parameters<'s>, Unanswerable>,
    ) -> Result<Option<Self>, Unanswerable> {
        let (tool, action) = (question.tool.name.as_str(), question.action.name.as_str());
        let Some(action) = contents.vocabulary.action(tool, action) else {
            return Ok(None);
        };
        let parameters = Rc::new(parameters(&action.parameters)?);
        Ok(Some(Self {
            contents,
            action,
            parameters,
        }))
    }
}

impl<'s> Case<'s> {
    /// The case of the agent that asks this. `looks` is made in any case, also where no policy looks at it.
    ///
    /// INVARIANT: what is known is of this question, or of one that differs in nothing but who asks and what is claimed. Whoever asks the
    /// same for several agents has a [`ReadQuestion`](crate::ReadQuestion), which sees to that.
    pub(crate) fn open(
        known: Known<'s>,
        question: &Question<'_>,
        looks: Looks,
    ) -> Result<Self, Unanswerable> {
        Self::with(known, (question, Principal::Agent), looks)
    }

    /// The case of the same agent where the same is asked in another way.
    pub(crate) fn again(&self, question: &Question<'_>, looks: Looks) -> Result<Self, Unanswerable> {
        Self::open(self.known.clone(), question, looks)
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
        Self::with(self.known.clone(), (question, Principal::User(user)), looks).map(Some)
    }

    fn with(
        known: Known<'s>,
        (question, principal): (&Question<'_>, Principal<'_>),
        looks: Looks,
    ) -> Result<Self, Unanswerable> {
        let (contents, action, parameters) = (known.contents, known.action, &*known.parameters);
        let vocabulary = &*contents.vocabulary;
        let mutates = question.mutates || action.mutates;
        let side = &action.sides[usize::from(mutates)];
        let facts = Facts::new((question, principal), side, parameters, &vocabulary.attributes)?;
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
            agent: question.agent.id,
            steps: Steps::of(&found, contents, question),
            known,
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

    /// The case without the policies that look at what the caller has written, which does not fit this, its question. The others have the time that
    /// those would take.
    pub(crate) fn without_what_is_written(mut self, question: &Question<'_>) -> Self {
        let written = Looks::PARAMETERS.and(Looks::member(Member::Attributes));
        self.found.retain(|(rule, _)| {
            let condition = rule.condition.as_ref();
            condition.is_none_or(|condition| !condition.looks.at(written))
        });
        self.steps = Steps::of(&self.found, self.known.contents, question);
        self
    }

    /// Whether the conditions of these policies hold.
    pub(crate) fn evaluate(&self, wanted: impl Fn(Presence) -> bool) -> Vec<Evaluated<'s>> {
        let evaluator = self.asked.evaluator();
        let wanted = self.found.iter().filter(|(_, presence)| wanted(*presence));
        wanted
            .map(|(rule, presence)| Evaluated {
                statement: &rule.statement,
                presence: *presence,
                outcome: self.outcome(&evaluator, rule, *presence),
            })
            .collect()
    }

    fn outcome(&self, evaluator: &Evaluator<'_>, rule: &Rule, presence: Presence) -> Result<bool, Failure> {
        let condition = rule.condition.as_ref();
        let patterns = condition.filter(|condition| condition.likes.are_any());
        if patterns.is_some_and(|condition| !self.is_in_time(condition.looks, presence)) {
            return Err(Failure::Patterns);
        }
        holds(evaluator, condition).map_err(Failure::Cedar)
    }

    /// Whether the patterns of conditions that look at the like of this and count where this does can be evaluated in time.
    fn is_in_time(&self, looks: Looks, presence: Presence) -> bool {
        let (sums, most) = if like::looks_at_the_ask(looks) {
            (&self.steps.asked, like::STEPS_MAX)
        } else {
            (&self.steps.registered, like::REGISTERED_STEPS_MAX)
        };
        let is_in_force = self.known.contents.counts(presence, World::InForce(&self.agent));
        let steps = if is_in_force { sums.in_force } else { sums.promoted };
        steps <= most
    }

    /// How many policies are looked at.
    #[cfg(test)]
    pub(crate) const fn width(&self) -> usize {
        self.found.len()
    }
}

/// A policy that the question is about, and whether its condition holds.
pub(crate) struct Evaluated<'s> {
    pub(crate) statement: &'s Statement,
    pub(crate) presence: Presence,
    pub(crate) outcome: Result<bool, Failure>,
}
