//! For whom policies are asked: the agent and the user for whom it acts, and both again as the action is registered,
//! where the caller claims that a read changes something. All of them have to be allowed. What comes of the policies
//! for one of them is in `findings`.

use crate::annotations::PolicyEffect;
use crate::case::{Case, Evaluated, Known};
use crate::evaluate::Failure;
use crate::parameters::Parameters;
use crate::question::{Fact, Question, Unanswerable};
use crate::read_set::{Member, ReadSet};
use crate::ruling::{OBLIGATIONS_MAX, Obligation, Ruling, Rulings};
use crate::set::{PolicySet, World};
use findings::unknown_action;
use model::{ReasonCode, Verdict};
use std::collections::BTreeSet;

pub(crate) mod findings;

/// A ruling where nobody knows the parameters. Whoever combines several counts together what they may ask for.
#[derive(Debug, Clone)]
pub struct Blind<'s> {
    /// Obligations that only name parameters are left out of it.
    pub ruling: Ruling,
    /// What may have to be done if it is no denial, whatever the parameters are.
    wanted: BTreeSet<&'s Obligation>,
}

impl PolicySet {
    /// The answer of the policies to this question: what they say to the agent, and to the user for whom it acts.
    pub fn rule(&self, question: &Question<'_>) -> Result<Ruling, Unanswerable> {
        self.rule_known(Known::read(&self.contents, question)?, question)
    }

    /// [`Self::rule`] where the parameters were read already; `known` is `None` where no policy can know the action.
    pub(crate) fn rule_known(
        &self,
        known: Option<Known<'_>>,
        question: &Question<'_>,
    ) -> Result<Ruling, Unanswerable> {
        let registered = question.as_registered();
        let rulings = self.rule_in_force(known, question, registered.as_ref())?;
        Ok(rulings.ruling)
    }

    /// What [`Self::rule_blind`] says, for whoever asks for one agent alone.
    pub fn rule_without_parameters(&self, question: &Question<'_>) -> Result<Option<Ruling>, Unanswerable> {
        Ok(self.rule_blind(question)?.map(|blind| blind.ruling))
    }

    /// The ruling where only the schema of the parameters is known; `None` if it could depend on their values.
    /// Obligations that only name parameters, such as what is to be redacted, are left out; where there could be more than
    /// an ask may have, it could depend on them. If the caller claims more than is registered, a denial of either form is
    /// enough. If parameters cannot be checked against the schema at all, the question cannot be answered, as it could
    /// not with any.
    pub fn rule_blind(&self, question: &Question<'_>) -> Result<Option<Blind<'_>>, Unanswerable> {
        let Some(known) = Known::blind(&self.contents, question)? else {
            return Ok(Blind::known(unknown_action(), []));
        };
        let unknown = unknown_without(known.parameters(), question);
        let case = Case::open(known, question, ReadSet::default())?;
        let claimed = blind_for_both(&case, question, unknown)?;
        let Some(registered) = question.as_registered() else {
            return Ok(claimed);
        };
        let again = case.again(&registered, ReadSet::default())?;
        let as_registered = blind_for_both(&again, &registered, unknown)?;
        Ok(Blind::with_claim_if_known(as_registered, claimed))
    }

    /// What forbids this whatever the caller has written: the answer of those policies alone that look neither at
    /// parameters nor at attributes, if it is that of a `forbid`. What is claimed leads around none of them.
    pub fn forbids_whatever_is_written(
        &self,
        question: &Question<'_>,
    ) -> Result<Option<Ruling>, Unanswerable> {
        let world = World::InForce(&question.agent.id);
        for question in [Some(*question), question.as_registered()].into_iter().flatten() {
            let Some(known) = Known::unseen(&self.contents, &question)? else {
                return Ok(None);
            };
            let case = Case::open(known, &question, ReadSet::default())?;
            let case = case.without_what_is_written(&question);
            let evaluated = case.evaluate(|presence| self.contents.counts(presence, world));
            let ruling = case.ruling(&evaluated, world);
            if ruling.reason == ReasonCode::PolicyForbids {
                return Ok(Some(ruling));
            }
        }
        Ok(None)
    }

    /// Whether the answer to this question could depend on this.
    pub fn depends_on(&self, fact: Fact, question: &Question<'_>) -> Result<bool, Unanswerable> {
        let wanted = match fact {
            Fact::Run => ReadSet::member(Member::Run),
            Fact::Usage => ReadSet::member(Member::Usage),
            Fact::TeamTags => ReadSet::TEAM,
        };
        if !self.contents.reads.intersects(wanted) {
            return Ok(false);
        }
        let world = World::InForce(&question.agent.id);
        let Some(known) = Known::blind(&self.contents, question)? else {
            return Ok(false);
        };
        let case = Case::open(known, question, ReadSet::default())?;
        let depends = |case: &Case<'_>| {
            let reads = case.reads(|presence| self.contents.counts(presence, world));
            reads.intersects(wanted)
        };
        let others = other_cases(&case, question)?;
        Ok(depends(&case) || others.iter().any(depends))
    }

    /// The answer of the policies alone, to this side of the action alone: whether the parameters are valid is not
    /// asked, only whether they have the types that policies rely on; and of a read that is said to change something,
    /// not whether it may be read.
    pub fn rule_by_types(&self, question: &Question<'_>) -> Result<Ruling, Unanswerable> {
        let known = Known::read_types(&self.contents, question)?;
        Ok(self.rule_in_force(known, question, None)?.ruling)
    }

    /// The answer of the policies, with its shadow: what it would be if everything on trial were enforced. Where
    /// nothing is on trial, there is none, and it costs what [`Self::rule`] does.
    pub fn rule_with_shadow(&self, question: &Question<'_>) -> Result<Rulings, Unanswerable> {
        self.rule_known_with_shadow(Known::read(&self.contents, question)?, question)
    }

    /// [`Self::rule_with_shadow`] where the parameters were read already; `known` is `None` where no policy can know
    /// the action.
    pub(crate) fn rule_known_with_shadow(
        &self,
        known: Option<Known<'_>>,
        question: &Question<'_>,
    ) -> Result<Rulings, Unanswerable> {
        let registered = question.as_registered();
        if !self.has_trials() {
            return self.rule_in_force(known, question, registered.as_ref());
        }
        let Some(known) = known else {
            let (ruling, shadow) = (unknown_action(), Some(unknown_action()));
            return Ok(Rulings { ruling, shadow });
        };
        let worlds = [World::InForce(&question.agent.id), World::Promoted];
        let counts = |presence| worlds.iter().any(|world| self.contents.counts(presence, *world));
        for_everybody(known, question, registered.as_ref(), |case| {
            let evaluated = case.evaluate(counts);
            let [ruling, promoted] = worlds.map(|world| case.ruling(&evaluated, world));
            Rulings {
                ruling,
                shadow: Some(promoted),
            }
        })
    }

    /// The answer of the policies in force, without a shadow. `registered` is the question as the action is registered,
    /// if that has to be allowed, too.
    fn rule_in_force(
        &self,
        known: Option<Known<'_>>,
        question: &Question<'_>,
        registered: Option<&Question<'_>>,
    ) -> Result<Rulings, Unanswerable> {
        let Some(known) = known else {
            return Ok(Rulings::plain(unknown_action()));
        };
        let world = World::InForce(&question.agent.id);
        for_everybody(known, question, registered, |case| {
            let evaluated = case.evaluate(|presence| self.contents.counts(presence, world));
            Rulings::plain(case.ruling(&evaluated, world))
        })
    }
}

impl<'s> Blind<'s> {
    /// This ruling, where it is known how it ends: what is not denied would be, if all of this had to be done and were
    /// too much.
    fn known(ruling: Ruling, wanted: impl IntoIterator<Item = &'s Obligation>) -> Option<Self> {
        let mut all = BTreeSet::new();
        if ruling.verdict() != Verdict::Deny {
            for obligation in wanted {
                all.insert(obligation);
                if all.len() > OBLIGATIONS_MAX {
                    return None;
                }
            }
        }
        Some(Self { ruling, wanted: all })
    }

    /// Both of them as one ruling, which `combine` makes of theirs; `None` where it is not known how that ends.
    #[must_use]
    pub fn combine(self, other: Self, combine: impl FnOnce(Ruling, Ruling) -> Ruling) -> Option<Self> {
        let ruling = combine(self.ruling, other.ruling);
        Self::known(ruling, self.wanted.into_iter().chain(other.wanted))
    }

    /// [`Ruling::with_claim`] where either of them may depend on what nobody knows, and is `None` then. One that denies
    /// is enough: whatever the other one were, it is denied, if maybe for another reason.
    #[must_use]
    pub fn with_claim_if_known(registered: Option<Self>, claimed: Option<Self>) -> Option<Self> {
        match (registered, claimed) {
            (Some(registered), Some(claimed)) => registered.combine(claimed, Ruling::with_claim),
            (registered, claimed) => registered
                .or(claimed)
                .filter(|known| known.ruling.verdict() == Verdict::Deny),
        }
    }
}

/// The rulings for the agent and for the user for whom it acts: for this question, combined with those for
/// `registered`, the question as the action is registered, if that has to be allowed, too. `rule` rules on one case.
fn for_everybody(
    known: Known<'_>,
    question: &Question<'_>,
    registered: Option<&Question<'_>>,
    rule: impl Fn(&Case<'_>) -> Rulings,
) -> Result<Rulings, Unanswerable> {
    let case = Case::open(known, question, ReadSet::default())?;
    let claimed = for_both(&case, question, &rule)?;
    let Some(registered) = registered else {
        return Ok(claimed);
    };
    let again = case.again(registered, ReadSet::default())?;
    let as_registered = for_both(&again, registered, &rule)?;
    Ok(as_registered.combine(claimed, Ruling::with_claim))
}

/// The rulings for the agent together with those for the user for whom it acts, who is asked about also where the agent
/// is denied: what is to be redacted for the user is to be redacted in the record of a denial.
fn for_both(
    case: &Case<'_>,
    question: &Question<'_>,
    rule: impl Fn(&Case<'_>) -> Rulings,
) -> Result<Rulings, Unanswerable> {
    let rulings = rule(case);
    let Some(user) = case.of_user(question, ReadSet::default())? else {
        return Ok(rulings);
    };
    let whose = whose(question);
    Ok(rulings.combine(rule(&user), |agents, users| agents.and(users, &whose)))
}

/// The ruling for the agent and for the user for whom it acts where nobody knows this; `None` if it could depend on it.
fn blind_for_both<'s>(
    case: &Case<'s>,
    question: &Question<'_>,
    unknown: ReadSet,
) -> Result<Option<Blind<'s>>, Unanswerable> {
    let world = World::InForce(&question.agent.id);
    let Some(agents) = blind(case, world, unknown) else {
        return Ok(None);
    };
    if agents.ruling.verdict() == Verdict::Deny {
        return Ok(Some(agents));
    }
    let Some(user) = case.of_user(question, ReadSet::default())? else {
        return Ok(Some(agents));
    };
    let users = blind(&user, world, unknown);
    Ok(users.and_then(|users| agents.combine(users, |agents, users| agents.and(users, &whose(question)))))
}

/// The ruling of one case where nobody knows this; `None` if it could depend on it.
fn blind<'s>(case: &Case<'s>, world: World<'_>, unknown: ReadSet) -> Option<Blind<'s>> {
    let counts = |presence| case.known.contents.counts(presence, world);
    if case.reads(counts).intersects(unknown) {
        return None;
    }
    let evaluated = case.evaluate(counts);
    // Advice that fails denies, but only where the ask has something that it is about. Where it has not, there is more
    // room for all others.
    let may_differ = |one: &Evaluated<'_>| match one.outcome(world) {
        Err(Failure::Excess(_)) => true,
        Err(Failure::Cedar(_)) => one.statement.annotations.effect == PolicyEffect::Advice,
        Ok(_) => false,
    };
    if evaluated.iter().any(may_differ) {
        return None;
    }
    let ruling = case.ruling(&evaluated, world);
    let holding = evaluated
        .iter()
        .filter(|one| matches!(one.outcome(world), Ok(true)));
    let wanted = holding.flat_map(|one| one.statement.annotations.obligations.as_slice());
    // Of many names of credentials most are of no parameter that the action takes.
    let parameters = case.known.parameters();
    let wanted = wanted.filter(|obligation| {
        let path = obligation.parameter();
        path.is_none_or(|path| parameters.can_have(path))
    });
    Blind::known(ruling, wanted)
}

/// The cases beside that of the agent, in which it has to be allowed, too: that of the user for whom it acts, and both
/// again as the action is registered. Most questions have none.
fn other_cases<'s>(case: &Case<'s>, question: &Question<'_>) -> Result<Vec<Case<'s>>, Unanswerable> {
    let reads = ReadSet::default();
    let mut others: Vec<_> = case.of_user(question, reads)?.into_iter().collect();
    if let Some(registered) = question.as_registered() {
        others.push(case.again(&registered, reads)?);
        others.extend(case.of_user(&registered, reads)?);
    }
    Ok(others)
}

/// What nobody knows of a question without its parameters: also the sources of those that are declared, where one is
/// named that is not. It may have been sent, or it was not and counts for all.
fn unknown_without(parameters: &Parameters<'_>, question: &Question<'_>) -> ReadSet {
    let sources = question.sources;
    match sources.and_then(|sources| sources.of_none(|name| parameters.declares(name))) {
        Some(_) if parameters.declared().next().is_some() => {
            ReadSet::PARAMETERS.union(ReadSet::member(Member::Sources))
        }
        _ => ReadSet::PARAMETERS,
    }
}

/// In whose name it is asked, in words.
pub(crate) fn whose(question: &Question<'_>) -> String {
    let id = question.user.map_or("", |user| user.id);
    format!("for the user `{id}`")
}

#[cfg(test)]
pub(crate) mod tests;
