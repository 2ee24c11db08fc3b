//! One question before the policies: which of them it is about, and whether their conditions hold.

use crate::annotations::PolicyEffect;
use crate::comparison::{self, WrittenBytes};
use crate::condition::Condition;
use crate::context::{CallerAttributes, Facts, Principal, UserTeams};
use crate::evaluate::{Asked, Excess, Failure, holds};
use crate::like::{self, UserTags};
use crate::parameters::{ParameterRules, Parameters};
use crate::question::{Question, Unanswerable};
use crate::read_set::{Member, ReadSet};
use crate::set::{Contents, Presence, TenantRule, World};
use crate::statement::Statement;
use crate::vocabulary::{Action, Rule};
use cedar_policy_core::evaluator::{EvaluationError, Evaluator};
use model::AgentId;
use std::rc::Rc;

/// To look up what names a team, wherever policies may be, and to make it a parent, is as much work as so many steps, for
/// each team of whoever a case is of.
const TEAM_STEPS: u64 = 512;
/// To find a policy, to look at it, and to add up what its condition takes is as much work as so many steps, whether it
/// is evaluated then or not.
const FOUND_STEPS: u64 = 64;
/// To see whether it is about an obligation, and to have that done with others, is as much as so many, in each ruling. Of a
/// policy that is found all are counted: of advice they are looked at before anybody knows whether it applies.
const OBLIGATION_STEPS: u64 = 32;
/// To see whether a policy holds, but for its condition, is as much as so many.
const EVALUATED_STEPS: u64 = 64;
/// To rule with one that holds, in the order of ids, is as much as so many, in each ruling that is made of what was
/// evaluated.
const RULED_STEPS: u64 = 64;
/// To evaluate a part of a condition is as much as so many.
const PART_STEPS: u64 = 32;

#[cfg(test)]
thread_local! {
    /// How many policies were looked at on this thread.
    static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A question that is asked for one principal, and the policies that can be about it.
pub(crate) struct Case<'s> {
    pub(crate) known: Known<'s>,
    /// None where they would take more than the question has fuel for.
    found: Vec<(&'s Rule, Presence)>,
    agent: AgentId,
    steps: Steps,
    pub(crate) asked: Asked,
}

/// How many steps the patterns of the policies that are found take at most, how much of an ask their comparisons go
/// through, and how much there is of their conditions.
#[derive(Default)]
struct Steps {
    /// Of those that look at texts of the ask.
    asked: Sums,
    /// Of all others. However long an ask is, they take as many: nothing that is written in one keeps them from being
    /// evaluated.
    registered: Sums,
    /// The parts of all conditions but the operator's.
    parts: Sums,
    /// How many conditions these are.
    conditions: Sums,
    /// How many bytes the comparisons of all conditions but the operator's go through at most.
    compared_bytes: Sums,
    /// How many conditions have such comparisons.
    comparing: Sums,
    /// How long what the caller has written is.
    written: WrittenBytes,
}

/// What is on trial is not counted with what is in force, so that it changes no answer.
#[derive(Default)]
struct Sums {
    in_force: u64,
    promoted: u64,
    /// Of what this agent has a canary in the place of. It is evaluated only to be shown.
    nowhere: u64,
}

impl Steps {
    fn of(found: &[(&Rule, Presence)], known: &Known<'_>, question: &Question<'_>) -> Self {
        let mut steps = Self {
            written: WrittenBytes::of(question, known.parameters()),
            ..Self::default()
        };
        for (rule, presence) in found {
            let Some(condition) = &rule.condition else {
                continue;
            };
            let counts = counts(known.contents, *presence, &question.agent.id);
            steps.parts.add(u64::from(condition.parts), counts);
            steps.conditions.add(u64::from(condition.parts > 0), counts);
            if condition.comparisons.are_any() {
                let bytes = condition.comparisons.bytes(condition.reads, steps.written);
                steps.compared_bytes.add(bytes, counts);
                steps.comparing.add(1, counts);
            }
            if !condition.likes.are_any() {
                continue;
            }
            let sums = if like::looks_at_the_ask(condition.reads) {
                &mut steps.asked
            } else {
                &mut steps.registered
            };
            let user_tags = &known.made.user_tags;
            let of_patterns = condition.likes.steps(condition.reads, question, user_tags);
            sums.add(of_patterns, counts);
        }
        steps
    }

    /// How many steps it is, about, to evaluate so many policies that were found, of which these are the sums, and to
    /// make so many rulings of that.
    fn all(&self, policies: usize, rulings: u64) -> u64 {
        [
            self.asked.all(),
            self.registered.all(),
            self.parts.all().saturating_mul(PART_STEPS),
            self.compared_bytes.all() / 2,
            (policies as u64).saturating_mul(EVALUATED_STEPS + RULED_STEPS * rulings),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// Whether a policy counts in force for this agent, and if everything on trial were enforced.
fn counts(contents: &Contents, presence: Presence, agent: &AgentId) -> [bool; 2] {
    [World::InForce(agent), World::Promoted].map(|world| contents.counts(presence, world))
}

impl Sums {
    fn add(&mut self, more: u64, [in_force, promoted]: [bool; 2]) {
        if in_force {
            self.in_force = self.in_force.saturating_add(more);
        }
        if promoted {
            self.promoted = self.promoted.saturating_add(more);
        }
        if !in_force && !promoted {
            self.nowhere = self.nowhere.saturating_add(more);
        }
    }

    /// Half at least of everything that is evaluated: what counts in both worlds is in both sums, and what counts in one
    /// of them only may be evaluated, too.
    fn all(&self) -> u64 {
        self.in_force.max(self.promoted).saturating_add(self.nowhere)
    }

    /// The sums that what counts there is held against, in force and if everything on trial were enforced. What counts
    /// in one of them only has that sum in both.
    const fn of(&self, counts: [bool; 2]) -> [u64; 2] {
        match counts {
            [true, true] => [self.in_force, self.promoted],
            [true, false] => [self.in_force; 2],
            [false, true] => [self.promoted; 2],
            [false, false] => [self.nowhere; 2],
        }
    }
}

/// What is known of a question whoever asks it: its action, the parameters, the caller's attributes, and the teams of
/// its user. To read and to make them may take long, so that is done once, and all cases of the question share them.
#[derive(Clone)]
pub(crate) struct Known<'s> {
    pub(crate) contents: &'s Contents,
    action: &'s Action,
    made: Rc<Made<'s>>,
}

/// What is made of a question once.
struct Made<'s> {
    parameters: Parameters<'s>,
    attributes: CallerAttributes,
    user_teams: UserTeams,
    user_tags: UserTags,
}

impl<'s> Known<'s> {
    /// The action and the parameters of this question, if they are valid; `None` if no policy can know the action.
    pub(crate) fn read(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, |rules| {
            rules.read(question.parameters, question.fuel)
        })
    }

    /// The action and the parameters of this question, if these have the types that policies rely on; `None` if no
    /// policy can know the action.
    pub(crate) fn read_types(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, |rules| rules.read_types(question.parameters))
    }

    /// The action of this question where nobody knows the parameters; `None` if no policy can know the action. What
    /// policies see of the parameters is nothing, so whoever evaluates one that looks at them is told a lie:
    /// [`Case::reads`] says whether there is one.
    pub(crate) fn blind(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, ParameterRules::unknown)
    }

    /// [`Self::blind`] for policies that look at no parameters, also where none can be checked.
    pub(crate) fn unseen(
        contents: &'s Contents,
        question: &Question<'_>,
    ) -> Result<Option<Self>, Unanswerable> {
        Self::with(contents, question, |rules| Ok(rules.unseen()))
    }

    fn with(
        contents: &'s Contents,
        question: &Question<'_>,
        parameters: impl FnOnce(&'s ParameterRules) -> Result<Parameters<'s>, Unanswerable>,
    ) -> Result<Option<Self>, Unanswerable> {
        let (tool, action) = (question.tool.name.as_str(), question.action.name.as_str());
        let Some(action) = contents.vocabulary.action(tool, action) else {
            return Ok(None);
        };
        let made = Made {
            parameters: parameters(&action.parameters)?,
            attributes: CallerAttributes::default(),
            user_teams: UserTeams::default(),
            user_tags: UserTags::default(),
        };
        Ok(Some(Self {
            contents,
            action,
            made: Rc::new(made),
        }))
    }

    /// The parameters.
    pub(crate) fn parameters(&self) -> &Parameters<'s> {
        &self.made.parameters
    }

    /// The policies that can be about this question, which has these facts for this principal, on this side of its
    /// action; none where there is less fuel than it takes to look at them.
    fn policies(
        &self,
        facts: &Facts<'_>,
        (question, principal): (&Question<'_>, Principal<'_>),
        mutates: bool,
    ) -> Vec<(&'s Rule, Presence)> {
        // A question may have some dozens of cases, and the first of them has used it up.
        let steps = TEAM_STEPS.saturating_mul(principal.team_count(question.agent) as u64);
        if question.fuel.is_some_and(|fuel| !fuel.take(steps)) {
            return Vec::new();
        }
        let (contents, action) = (self.contents, self.action);
        let vocabulary = &*contents.vocabulary;
        let base = facts.find(&vocabulary.base_index, &action.base[usize::from(mutates)]);
        let own = facts.find(contents.index(), contents.numbers(action, mutates));
        let count = base.count() + own.count();
        let steps = FOUND_STEPS.saturating_mul(count as u64);
        if question.fuel.is_some_and(|fuel| !fuel.take(steps)) {
            return Vec::new();
        }
        let mut found = Vec::with_capacity(count);
        for number in base.numbers() {
            found.push((&vocabulary.base_rules[number as usize], Presence::Always));
        }
        for number in own.numbers() {
            let TenantRule { rule, presence } = &contents.rules[number as usize];
            found.push((rule, *presence));
        }
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + found.len());
        let obligations = found
            .iter()
            .map(|(rule, _)| rule.statement.annotations.obligations.len() as u64);
        let steps = OBLIGATION_STEPS * contents.rulings();
        let steps = steps.saturating_mul(obligations.sum());
        if question.fuel.is_some_and(|fuel| !fuel.take(steps)) {
            return Vec::new();
        }
        found.retain(|(rule, _)| {
            let annotations = &rule.statement.annotations;
            let is_advice = annotations.effect == PolicyEffect::Advice;
            rule.statement.is_about(principal.kind())
                // Most asks carry nothing that advice is about, and then it is not asked for.
                && (!is_advice || self.parameters().may_concern(&annotations.obligations))
        });
        found
    }
}

impl<'s> Case<'s> {
    /// The case of the agent that asks this. What `reads` names is made in any case, also where no policy reads it.
    ///
    /// INVARIANT: what is known is of this question, or of one that differs in nothing but who asks and what is
    /// claimed. Whoever asks the same for several agents has a [`ReadQuestion`](crate::ReadQuestion), which sees to
    /// that.
    pub(crate) fn open(
        known: Known<'s>,
        question: &Question<'_>,
        reads: ReadSet,
    ) -> Result<Self, Unanswerable> {
        Self::with(known, (question, Principal::Agent), reads)
    }

    /// The case of the same agent where the same is asked in another way.
    pub(crate) fn again(&self, question: &Question<'_>, reads: ReadSet) -> Result<Self, Unanswerable> {
        Self::open(self.known.clone(), question, reads)
    }

    /// The case of the user for whom the same is asked; `None` if it is asked for nobody.
    pub(crate) fn of_user(
        &self,
        question: &Question<'_>,
        reads: ReadSet,
    ) -> Result<Option<Self>, Unanswerable> {
        let Some(user) = question.user else {
            return Ok(None);
        };
        Self::with(self.known.clone(), (question, Principal::User(user)), reads).map(Some)
    }

    fn with(
        known: Known<'s>,
        (question, principal): (&Question<'_>, Principal<'_>),
        reads: ReadSet,
    ) -> Result<Self, Unanswerable> {
        let (contents, action, parameters) = (known.contents, known.action, known.parameters());
        let vocabulary = &*contents.vocabulary;
        let mutates = question.mutates || action.mutates;
        let side = &action.sides[usize::from(mutates)];
        let attributes = known
            .made
            .attributes
            .of(question.attributes, &vocabulary.attributes)?;
        let facts = Facts::new((question, principal), side, parameters, attributes);
        let mut found = known.policies(&facts, (question, principal), mutates);
        let steps = Steps::of(&found, &known, question);
        let needed = steps.all(found.len(), contents.rulings());
        let has_fuel = question.fuel.is_none_or(|fuel| fuel.take(needed));
        let reads = if has_fuel {
            let conditions = found.iter().filter_map(|(rule, _)| rule.condition.as_ref());
            conditions.fold(reads, |reads, condition| reads.union(condition.reads))
        } else {
            found.clear();
            // What nobody evaluates is not made.
            ReadSet::default()
        };
        Ok(Self {
            agent: question.agent.id,
            asked: facts.ask(reads, &known.made.user_teams),
            steps,
            known,
            found,
        })
    }

    /// What the conditions of these policies read.
    pub(crate) fn reads(&self, wanted: impl Fn(Presence) -> bool) -> ReadSet {
        let wanted = self.found.iter().filter(|(_, presence)| wanted(*presence));
        let conditions = wanted.filter_map(|(rule, _)| rule.condition.as_ref());
        conditions.fold(ReadSet::default(), |reads, condition| {
            reads.union(condition.reads)
        })
    }

    /// The case without the policies that look at what the caller has written, which does not fit this, its question.
    /// The others have the time that those would take.
    pub(crate) fn without_what_is_written(mut self, question: &Question<'_>) -> Self {
        let written = ReadSet::PARAMETERS.union(ReadSet::member(Member::Attributes));
        self.found.retain(|(rule, _)| {
            let condition = rule.condition.as_ref();
            condition.is_none_or(|condition| !condition.reads.intersects(written))
        });
        self.steps = Steps::of(&self.found, &self.known, question);
        self
    }

    /// Whether the conditions of these policies hold.
    pub(crate) fn evaluate(&self, wanted: impl Fn(Presence) -> bool) -> Vec<Evaluated<'s>> {
        let evaluator = self.asked.evaluator();
        let wanted = self.found.iter().filter(|(_, presence)| wanted(*presence));
        wanted
            .map(|&(rule, presence)| self.evaluated(&evaluator, rule, presence))
            .collect()
    }

    fn evaluated(&self, evaluator: &Evaluator<'_>, rule: &'s Rule, presence: Presence) -> Evaluated<'s> {
        let condition = rule.condition.as_ref();
        let excess = condition.map_or([None; 2], |condition| self.excess(condition, presence));
        let outcome = match excess {
            // Nobody asks what would come of it.
            [Some(_), Some(_)] => Ok(false),
            _ => holds(evaluator, condition),
        };
        Evaluated {
            statement: &rule.statement,
            presence,
            outcome,
            excess,
        }
    }

    /// Why this condition fails with all others that count where it does, if there is too much of them: in force, and
    /// if everything on trial were enforced.
    fn excess(&self, condition: &Condition, presence: Presence) -> [Option<Excess>; 2] {
        let counts = counts(self.known.contents, presence, &self.agent);
        let sums = |sums: &Sums| sums.of(counts);
        let (conditions, parts) = (sums(&self.steps.conditions), sums(&self.steps.parts));
        let steps = condition.likes.are_any().then(|| {
            if like::looks_at_the_ask(condition.reads) {
                sums(&self.steps.asked)
            } else {
                sums(&self.steps.registered)
            }
        });
        let compared = condition.comparisons.are_any().then(|| {
            let own = condition.comparisons.bytes(condition.reads, self.steps.written);
            let steps = &self.steps;
            (own, sums(&steps.comparing), sums(&steps.compared_bytes))
        });
        [0, 1].map(|world: usize| {
            if condition.is_too_much(conditions[world], parts[world]) {
                return Some(Excess::Parts);
            }
            let is_too_long = compared.is_some_and(|(own, comparing, bytes)| {
                comparison::is_too_much(own, comparing[world], bytes[world])
            });
            if is_too_long {
                return Some(Excess::Comparisons);
            }
            let is_too_long = steps.is_some_and(|steps| steps[world] > like::STEPS_MAX);
            is_too_long.then_some(Excess::Patterns)
        })
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
    /// What came of the condition.
    outcome: Result<bool, Box<EvaluationError>>,
    /// Why it fails all the same, if there is too much to evaluate: in force, and if everything on trial were enforced.
    excess: [Option<Excess>; 2],
}

impl Evaluated<'_> {
    /// Whether the condition holds in this world. If the policy counts in the other one only, it is told what comes of it there.
    pub(crate) fn outcome(&self, world: World<'_>) -> Result<bool, Failure<'_>> {
        let [in_force, promoted] = self.excess;
        let excess = match world {
            World::InForce(_) => in_force,
            World::Promoted => promoted,
        };
        match (excess, &self.outcome) {
            (Some(excess), _) => Err(Failure::Excess(excess)),
            (None, Ok(holds)) => Ok(*holds),
            (None, Err(error)) => Err(Failure::Cedar(error)),
        }
    }
}

#[cfg(test)]
mod tests;
