//! Whether one of two sets allows anything that the other one does not, kind by kind.

use crate::ask::Ask;
use crate::diff::Sets;
use crate::level::{self, Level};
use crate::model;
use crate::plainer::plainer;
use crate::prover::{Open, Session, open};
use crate::question::{Kind, Pair};
use crate::report::{Actions, Answer, Answered, Direction, Example, Unproven};
use crate::shape::{entities, puts_actions_into_records, straight, weight};
use crate::stage::Stage;
use ::model::Verdict;
use cedar_policy_core::ast::Expr;
use cedar_policy_symcc::{CompiledPolicySet, implies_asserts};
use policy::{ActionSide, Effect, Part, Principals};
use std::collections::{BTreeSet, HashSet};

/// How large the formulas of the policies about one action may be together, in terms, each by itself and all as plain
/// sets: making them takes some microseconds for each, and cannot be broken off.
const WEIGHT_MAX: u64 = 200_000;

/// How many entities these policies may name, or take out of records and choices: a formula says for every two of them
/// what follows from their being in each other.
const ENTITIES_MAX: usize = 150;

/// Which way an ask fares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Better with the candidate.
    More,
    /// Worse.
    Less,
}

/// A kind, ready to be asked about.
pub(crate) struct Prepared<'s> {
    pub(crate) stage: Stage,
    /// What is known of every ask.
    pub(crate) known: Vec<Expr>,
    /// The policies of both sets, those of the candidate last.
    pub(crate) all: Vec<Part<'s>>,
    before_count: usize,
    /// Both sets at each level, what is in force first; and again as they are where patterns fail, if they may.
    levels: Vec<(World, [CompiledPolicySet; 2])>,
}

/// A permit whose pattern fails on a text that is too long permits nothing. Both cases are put to the solver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum World {
    /// No pattern fails: permits permit what their conditions say.
    Sound,
    /// Patterns fail: permits that have them for texts of asks permit nothing.
    Failing,
}

impl<'s> Prepared<'s> {
    /// The sets as formulas, if there is time for them.
    pub(crate) async fn new(
        sets: &Sets<'_>,
        pair: &Pair<'s>,
        (kind, principals): (&Kind<'_>, Principals),
        session: &Session<'_>,
    ) -> Result<Self, Open> {
        session.pause().await?;
        let (before, after) = (pair.before.parts(&kind.before), pair.after.parts(&kind.after));
        let all = [&before[..], &after[..]].concat();
        check_size([&before, &after], session.bounds().policies_max)?;
        for parts in [&before, &after] {
            level::check(parts).map_err(|why| Open::Beyond(why.to_string()))?;
        }
        let known = policy::asks::known(&kind.ground, &all, principals, sets.sources);
        let stage = Stage::set(sets.registry, (&kind.ground.side(), principals), all.iter());
        let stage = stage.map_err(|diagnostics| Open::Fault(diagnostics.to_string()))?;
        // Where nothing asks for approval, what is not denied is allowed.
        let levels = if all.iter().any(|part| part.effect == Effect::RequireApproval) {
            &Level::ALL[..]
        } else {
            &Level::ALL[..1]
        };
        let before_count = before.len();
        let mut compiled = Vec::new();
        for (world, sets) in worlds(kind, [before, after]) {
            for level in levels {
                let [before, after] = sets.each_ref().map(|parts| level.plain(parts, &known));
                let before = stage.compile(&before, session).await?;
                let after = stage.compile(&after, session).await?;
                compiled.push((world, [before, after]));
            }
        }
        Ok(Self {
            levels: compiled,
            stage,
            known,
            before_count,
            all,
        })
    }

    /// The policies of the candidate.
    pub(crate) fn after(&self) -> &[Part<'s>] {
        &self.all[self.before_count..]
    }

    /// The candidate, as what it does not deny.
    pub(crate) fn after_not_denied(&self) -> &CompiledPolicySet {
        let (_, [_, after]) = &self.levels[0];
        after
    }
}

impl World {
    /// Why what was found in this world shows nothing, if in the first one this is why. An ask that a solver finds
    /// hardly ever has long texts.
    fn of_unconfirmed(self, why: Open) -> Open {
        let message = "a permit with patterns may fail for texts as long as an ask may have, and what it covers is not covered then";
        match self {
            Self::Sound => why,
            Self::Failing => Open::Beyond(message.to_owned()),
        }
    }
}

/// Both sets, and if patterns in them may fail, what is left of both where they do.
fn worlds<'s>(kind: &Kind<'_>, sets: [Vec<Part<'s>>; 2]) -> Vec<(World, [Vec<Part<'s>>; 2])> {
    if kind.may_fail == [false; 2] || !sets.iter().flatten().any(may_come_to_nothing) {
        return vec![(World::Sound, sets)];
    }
    let left = sets.each_ref().map(|parts| {
        let left = parts.iter().filter(|part| !may_come_to_nothing(part));
        left.cloned().collect()
    });
    vec![(World::Sound, sets), (World::Failing, left)]
}

/// Whether it may permit nothing although its condition holds. Whatever else fails denies, before and after: where the
/// sets differ in that, the ways that it could lead are left open.
fn may_come_to_nothing(part: &Part<'_>) -> bool {
    part.effect == Effect::Permit && part.may_fail_with_long_texts()
}

/// Refuses what would take the solver, or the making of its formulas, beyond all bounds.
fn check_size(sets: [&[Part<'_>]; 2], policies_max: usize) -> Result<(), Open> {
    let parts = || sets.into_iter().flatten();
    let weights = parts().map(|part| weight(&straight(&part.condition)));
    // Of what is allowed hardly more is written than of what is not denied, nor is it of what is left where patterns fail.
    let plain = || sets.map(|parts| Level::NotDenied.weight(parts));
    let entity_count = || {
        let all: HashSet<_> = parts().flat_map(|part| entities(&part.condition)).collect();
        all.len()
    };
    let message = if sets.iter().any(|parts| parts.len() > policies_max) {
        format!("more than {policies_max} policies are about it")
    } else if weights.fold(0, u64::saturating_add) > WEIGHT_MAX {
        "the policies about it make too large a formula; take long conditions apart".to_owned()
    } else if plain().into_iter().fold(0, u64::saturating_add) > WEIGHT_MAX {
        "the policies about it make too large a formula, as forbids and approvals that can fail are written again \
         beside permits, for each permit that can fail by itself; take arithmetic out of some"
            .to_owned()
    } else if parts().any(|part| puts_actions_into_records(&part.condition)) {
        "the policies about it put actions into records, which makes too large a formula; compare `action` itself"
            .to_owned()
    } else if entity_count() > ENTITIES_MAX {
        format!(
            "the policies about it name more than {ENTITIES_MAX} agents, teams, users and resources, with what they \
             take out of records and choices"
        )
    } else {
        return Ok(());
    };
    Err(Open::Beyond(message))
}

impl Stage {
    /// This set as a formula, if there is time left: making it cannot be broken off.
    pub(crate) async fn compile(
        &self,
        set: &cedar_policy::PolicySet,
        session: &Session<'_>,
    ) -> Result<CompiledPolicySet, Open> {
        session.pause().await?;
        CompiledPolicySet::compile(set, &self.environment, &self.schema).map_err(open)
    }
}

impl Way {
    /// The sets in the order in which the first allows what the second does not.
    const fn order(self, [before, after]: &[CompiledPolicySet; 2]) -> [&CompiledPolicySet; 2] {
        match self {
            Self::More => [after, before],
            Self::Less => [before, after],
        }
    }

    /// Whether there is anything to find in this world, if patterns of each set may fail or not. What fails never makes
    /// an answer better, so more is allowed only where something fails before, and less where something fails after.
    const fn is_looked_for(self, world: World, [before, after]: [bool; 2]) -> bool {
        match (world, self) {
            (World::Sound, _) => true,
            (World::Failing, Self::More) => before,
            (World::Failing, Self::Less) => after,
        }
    }

    /// Whether these verdicts, before and after, lead this way.
    pub(crate) fn leads(self, before: Verdict, after: Verdict) -> bool {
        match self {
            Self::More => goodness(after) > goodness(before),
            Self::Less => goodness(after) < goodness(before),
        }
    }
}

const fn goodness(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Deny => 0,
        Verdict::RequireApproval => 1,
        Verdict::Allow => 2,
    }
}

/// What is found out about one way, kind after kind.
pub(crate) struct Search {
    way: Way,
    examples: Vec<Example>,
    truncated: bool,
    unknown: Vec<Unproven>,
    /// The sides for which there is an example.
    shown: BTreeSet<ActionSide>,
    /// The sides of which nobody knows.
    open: BTreeSet<ActionSide>,
}

impl Search {
    pub(crate) const fn new(way: Way) -> Self {
        Self {
            way,
            examples: Vec::new(),
            truncated: false,
            unknown: Vec::new(),
            shown: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    /// Nobody knows about these.
    pub(crate) fn leave_open(&mut self, sides: &[ActionSide], why: &Open) {
        if sides.iter().all(|side| self.open.contains(side)) {
            return;
        }
        self.open.extend(sides.iter().cloned());
        self.unknown.push(Unproven {
            actions: Actions::of(sides),
            why: why.to_string(),
        });
    }

    /// Looks for asks of this kind that fare this way.
    pub(crate) async fn look(
        &mut self,
        sets: &Sets<'_>,
        session: &mut Session<'_>,
        kind: &Kind<'_>,
        prepared: &Prepared<'_>,
    ) {
        let mut found: Vec<Example> = Vec::new();
        let mut left_open = None;
        for (world, levels) in &prepared.levels {
            if !self.way.is_looked_for(*world, kind.may_fail) {
                continue;
            }
            let [better, worse] = self.way.order(levels);
            let model = session.find(|| implies_asserts(better, worse)).await;
            let example = match model {
                Ok(None) => continue,
                Ok(Some(model)) => model::ask(&model, &kind.ground.side(), sets.now)
                    .ok_or_else(unconfirmed)
                    .and_then(|ask| self.example(sets, (kind, prepared), ask))
                    .map_err(|why| world.of_unconfirmed(why)),
                Err(why) => Err(why),
            };
            match example {
                Ok(example) => {
                    let verdicts = |one: &Example| (one.before.decision, one.after.decision);
                    if found.iter().all(|other| verdicts(other) != verdicts(&example)) {
                        found.push(example);
                    }
                }
                Err(why) => left_open = left_open.or(Some(why)),
            }
        }
        if let Some(why) = left_open {
            self.leave_open(&kind.sides, &why);
        }
        if !found.is_empty() {
            self.shown.extend(kind.sides.iter().cloned());
        }
        let room = session.bounds().examples_max - self.examples.len();
        self.truncated |= found.len() > room;
        self.examples.extend(found.into_iter().take(room));
    }

    /// Looks whether asks of this kind fare this way for a user. Where they do, nobody knows whether they do for the agent that
    /// has to be allowed the same, so that is left open, unless it is shown for agents already.
    pub(crate) async fn look_at_users(
        &mut self,
        session: &mut Session<'_>,
        kind: &Kind<'_>,
        prepared: &Prepared<'_>,
    ) {
        let is_settled = |side| self.shown.contains(side) || self.open.contains(side);
        if kind.sides.iter().all(is_settled) {
            return;
        }
        for (world, levels) in &prepared.levels {
            if !self.way.is_looked_for(*world, kind.may_fail) {
                continue;
            }
            let [better, worse] = self.way.order(levels);
            let why = match session.find(|| implies_asserts(better, worse)).await {
                Ok(None) => continue,
                Ok(Some(_)) => world.of_unconfirmed(of_users()),
                Err(why) => why,
            };
            return self.leave_open(&kind.sides, &why);
        }
    }

    /// The ask as an example, or why it is none.
    fn example(
        &self,
        sets: &Sets<'_>,
        (kind, prepared): (&Kind<'_>, &Prepared<'_>),
        ask: Ask,
    ) -> Result<Example, Open> {
        let rulings = |ask: &Ask| {
            let before = ask.put(sets.before, sets.registry)?;
            Some((before, ask.put(sets.after, sets.registry)?))
        };
        let verdicts = |ask: &Ask| rulings(ask).map(|(before, after)| (before.verdict(), after.verdict()));
        let is_one = |ask: &Ask| verdicts(ask).is_some_and(|(before, after)| self.way.leads(before, after));
        // The user for whom it is asked may stand in the way.
        let alone = Ask {
            user: None,
            ..ask.clone()
        };
        let ask = [ask, alone].into_iter().find(is_one).ok_or_else(unconfirmed)?;
        let verdicts = verdicts(&ask).ok_or_else(unconfirmed)?;
        let ask = plainer(ask, sets.now, |ask| {
            rulings(ask).is_some_and(|(before, after)| (before.verdict(), after.verdict()) == verdicts)
        });
        check_can_be_sent(&ask)?;
        let (before, after) = rulings(&ask).ok_or_else(unconfirmed)?;
        Ok(Example {
            actions: Actions::of(&kind.sides),
            ask: ask.shown(&prepared.all),
            before: Answered::from(&before),
            after: Answered::from(&after),
        })
    }

    pub(crate) fn into_direction(self) -> Direction {
        let answer = match (self.examples.is_empty(), self.unknown.is_empty()) {
            (false, _) => Answer::Yes,
            (true, true) => Answer::No,
            (true, false) => Answer::Unknown,
        };
        Direction {
            answer,
            examples: self.examples,
            truncated: self.truncated,
            unknown: self.unknown,
        }
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.unknown.is_empty()
    }
}

pub(crate) fn of_users() -> Open {
    Open::Beyond("it may be another answer for a user for whom an agent acts".to_owned())
}

/// An ask that nobody can send shows nothing.
pub(crate) fn check_can_be_sent(ask: &Ask) -> Result<(), Open> {
    if ask.can_be_sent() {
        return Ok(());
    }
    let why = "the ask that was found has an integer that canonical JSON writes with other digits, and such asks are refused";
    Err(Open::Beyond(why.to_owned()))
}

/// What the solver found does not hold up before the real policies, so nobody knows.
fn unconfirmed() -> Open {
    Open::Beyond("the solver found an ask that the policies themselves do not see so".to_owned())
}
