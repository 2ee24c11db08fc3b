//! What is odd about a candidate: only what is proven, and only what the candidate changes.

use crate::ask::Ask;
use crate::diff::Sets;
use crate::directions::{Prepared, check_can_be_sent};
use crate::fallible::can_fail;
use crate::level::{self, Level};
use crate::model;
use crate::plainer::plainer;
use crate::prover::{Open, Session};
use crate::question::{Kind, Pair, grounds};
use crate::report::{Actions, Finding};
use cedar_policy_core::ast::Expr;
use cedar_policy_symcc::{CompiledPolicySet, always_denies_asserts, implies_asserts};
use policy::{ActionSide, Effect, Part};
use std::collections::BTreeSet;
use std::iter;

/// The most forbids of which those are picked out that shadow a permit: each costs a question.
const FORBIDS_MAX: usize = 32;

/// What was found.
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
    /// Whether everything was looked at.
    pub(crate) are_complete: bool,
}

/// The kinds that are known well enough to ask about.
type Kinds<'k, 's> = [(&'k Kind<'k>, Prepared<'s>)];

/// What was prepared to be asked in the name of agents, or of users.
pub(crate) struct Crowd<'c, 's> {
    pub(crate) pair: &'c Pair<'s>,
    pub(crate) kinds: Vec<(&'c Kind<'c>, Prepared<'s>)>,
    /// Whether these are all kinds: otherwise nothing can be said of all asks that a policy is about.
    pub(crate) is_whole: bool,
}

/// Looks for everything that can be odd: for agents, and where something is said of all asks, for users as well.
pub(crate) async fn find(
    sets: &Sets<'_>,
    agents: &Crowd<'_, '_>,
    users: &Crowd<'_, '_>,
    session: &mut Session<'_>,
) -> Findings {
    let Crowd {
        pair,
        ref kinds,
        is_whole,
    } = *agents;
    let mut hunt = Hunt {
        sets,
        pair,
        session,
        kinds,
        found: Findings {
            all: Vec::new(),
            are_complete: is_whole,
        },
    };
    hunt.always_denied().await;
    for number in hunt.pair.added.clone() {
        let id = hunt.pair.after.id(number);
        if id.is_base() {
            continue;
        }
        if !hunt.has_time().await {
            break;
        }
        let error = hunt.error(number).await;
        hunt.note(error);
        if is_whole {
            let never = hunt.never_matches(number, users).await;
            hunt.note(never.map(|never| {
                never.then(|| Finding::NeverMatches {
                    policy: id.to_string(),
                })
            }));
        }
    }
    if is_whole {
        for number in hunt.perhaps_shadowed() {
            if !hunt.has_time().await {
                break;
            }
            let shadowed = hunt.shadowed(number, users).await;
            hunt.note(shadowed);
        }
    }
    hunt.found
}

struct Hunt<'h, 't, 's> {
    sets: &'h Sets<'h>,
    pair: &'h Pair<'s>,
    session: &'h mut Session<'t>,
    kinds: &'h Kinds<'h, 's>,
    found: Findings,
}

impl Hunt<'_, '_, '_> {
    fn note(&mut self, found: Result<Option<Finding>, Open>) {
        match found {
            Ok(finding) => self.found.all.extend(finding),
            Err(_) => self.found.are_complete = false,
        }
    }

    /// Whether there is time left. If there is none, not everything is looked at.
    async fn has_time(&mut self) -> bool {
        let has_time = self.session.pause().await.is_ok();
        self.found.are_complete &= has_time;
        has_time
    }

    /// The actions of which no ask gets through, as they are registered.
    async fn always_denied(&mut self) {
        let mut denied: Vec<&ActionSide> = Vec::new();
        for (kind, prepared) in self.kinds {
            let registered: Vec<_> = kind
                .sides
                .iter()
                .filter(|side| self.is_registered(side))
                .collect();
            if registered.is_empty() {
                continue;
            }
            let asserts = || always_denies_asserts(prepared.after_not_denied());
            match self.session.find(asserts).await {
                Ok(None) => denied.extend(registered),
                Ok(Some(_)) => {}
                Err(_) => self.found.are_complete = false,
            }
        }
        if !denied.is_empty() {
            let actions = Actions::of(denied);
            self.found.all.push(Finding::AlwaysDenies { actions });
        }
    }

    /// Whether it is the side that the registry says.
    fn is_registered(&self, side: &ActionSide) -> bool {
        let tool = self.sets.registry.tools.get(&side.tool);
        let action = tool.and_then(|tool| tool.actions.get(&side.action));
        action.is_some_and(|action| action.mutates_state == side.mutates)
    }

    /// An ask that this policy fails for.
    async fn error(&mut self, number: usize) -> Result<Option<Finding>, Open> {
        let (pair, kinds) = (self.pair, self.kinds);
        let id = pair.after.id(number);
        for (kind, prepared, part) in about(pair, kinds, number) {
            if !can_fail(&part.condition) {
                continue;
            }
            let [every, not_failing] = prepared.failing(&part, self.session).await?;
            let asserts = || implies_asserts(&every, &not_failing);
            let Some(model) = self.session.find(asserts).await? else {
                continue;
            };
            let fails = |ask: &Ask| {
                let ruling = ask.put(self.sets.after, self.sets.registry);
                ruling.is_some_and(|ruling| ruling.errors.iter().any(|error| error.policy == *id))
            };
            let ask = model::ask(&model, &kind.ground.side(), self.sets.now).filter(fails);
            let ask = ask.ok_or_else(|| Open::Beyond("no ask is like the model".to_owned()))?;
            let ask = plainer(ask, self.sets.now, fails);
            check_can_be_sent(&ask)?;
            return Ok(Some(Finding::CanError {
                policy: id.to_string(),
                ask: ask.shown(&[part]),
            }));
        }
        Ok(None)
    }

    /// Whether no ask satisfies this policy, although there are actions that it is about.
    async fn never_matches(&mut self, number: usize, users: &Crowd<'_, '_>) -> Result<bool, Open> {
        let (pair, kinds) = (self.pair, self.kinds);
        if self.is_satisfied(pair, kinds, number).await? != Some(false) {
            return Ok(false);
        }
        let id = pair.after.id(number);
        let added = &users.pair.added;
        let Some(number) = added.iter().find(|number| users.pair.after.id(**number) == id) else {
            return Ok(true);
        };
        if !users.is_whole {
            return Err(Open::NoTimeLeft);
        }
        let theirs = self.is_satisfied(users.pair, &users.kinds, *number).await?;
        Ok(theirs != Some(true))
    }

    /// Whether an ask of one of these kinds satisfies this policy; `None` if it is about none of them.
    async fn is_satisfied<'p>(
        &mut self,
        pair: &Pair<'p>,
        kinds: &Kinds<'_, 'p>,
        number: usize,
    ) -> Result<Option<bool>, Open> {
        let mut is_satisfied = None;
        for (_, prepared, part) in about(pair, kinds, number) {
            let single = prepared.satisfying(&part, self.session).await?;
            let satisfying = self.session.find(|| always_denies_asserts(&single)).await?;
            if satisfying.is_some() {
                return Ok(Some(true));
            }
            is_satisfied = Some(false);
        }
        Ok(is_satisfied)
    }

    /// The tenant's permits that forbids may override altogether because of the change: each that the candidate adds,
    /// and, if it adds a forbid, each older one that applies to no action but those that the change is about.
    fn perhaps_shadowed(&mut self) -> BTreeSet<usize> {
        let (pair, mut permits) = (self.pair, BTreeSet::new());
        let is_permit = |part: &Part<'_>| matches!(part.effect, Effect::Permit | Effect::RequireApproval);
        let mut adds_forbid = false;
        for (kind, _) in self.kinds {
            for number in kind.after.numbers() {
                let part = pair.after.part(&kind.after, number);
                let part = part.expect("the slice has its own numbers");
                adds_forbid |= part.effect == Effect::Forbid && pair.added.contains(&number);
                if is_permit(&part) && !part.id.is_base() {
                    permits.insert(number);
                }
            }
        }
        let added: BTreeSet<_> = pair.added.iter().copied().collect();
        let mut old: BTreeSet<_> = permits.difference(&added).copied().collect();
        if adds_forbid {
            for ground in grounds(self.sets.registry) {
                if self.session.check().is_err() {
                    self.found.are_complete = false;
                    old.clear();
                }
                if old.is_empty() {
                    break;
                }
                if !pair.is_about(&ground) {
                    let elsewhere = pair.after.slice(old.iter().copied(), &ground);
                    for number in elsewhere.numbers() {
                        old.remove(&number);
                    }
                }
            }
        } else {
            old.clear();
        }
        let new = permits.intersection(&added).copied();
        old.into_iter().chain(new).collect()
    }

    /// Whether forbids deny everything that this permit permits, to agents and to users, and which.
    async fn shadowed(&mut self, number: usize, users: &Crowd<'_, '_>) -> Result<Option<Finding>, Open> {
        let id = self.pair.after.id(number);
        let (pair, kinds) = (self.pair, self.kinds);
        let Some(mut by) = self.shadow(pair, kinds, number).await? else {
            return Ok(None);
        };
        // Where no agent satisfies it, nothing is in a shadow.
        if by.is_empty() {
            return Ok(None);
        }
        let theirs = &users.pair.after;
        for number in theirs.all().filter(|number| theirs.id(*number) == id) {
            if !users.is_whole {
                return Err(Open::NoTimeLeft);
            }
            if self.is_about_more(number, users)? {
                return Ok(None);
            }
            match self.shadow(users.pair, &users.kinds, number).await? {
                Some(more) => by.extend(more),
                None => return Ok(None),
            }
        }
        Ok(Some(Finding::Shadowed {
            policy: id.to_string(),
            by: by.into_iter().collect(),
        }))
    }

    /// Whether this policy is about users who ask for what the difference between the sets, for users, is not about.
    /// What it permits to them was not looked at.
    fn is_about_more(&self, number: usize, users: &Crowd<'_, '_>) -> Result<bool, Open> {
        for ground in grounds(self.sets.registry) {
            self.session.check()?;
            let slice = users.pair.after.slice(iter::once(number), &ground);
            if !slice.is_empty() && !users.pair.is_about(&ground) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The forbids that deny everything that this permit permits in these kinds; `None` if something gets through.
    async fn shadow<'p>(
        &mut self,
        pair: &Pair<'p>,
        kinds: &Kinds<'_, 'p>,
        number: usize,
    ) -> Result<Option<BTreeSet<String>>, Open> {
        let mut by = BTreeSet::new();
        for (_, prepared, permit) in about(pair, kinds, number) {
            let single = prepared.satisfying(&permit, self.session).await?;
            let satisfying = self.session.find(|| always_denies_asserts(&single)).await?;
            if satisfying.is_none() {
                continue;
            }
            let after = prepared.after().iter();
            let forbids = after.filter(|part| part.effect == Effect::Forbid).cloned();
            let forbids: Vec<_> = forbids.collect();
            if !self.denied(prepared, &permit, &forbids).await? {
                return Ok(None);
            }
            let needed = self.needed(prepared, &permit, forbids).await?;
            by.extend(needed.iter().map(|forbid| forbid.id.to_string()));
        }
        Ok(Some(by))
    }

    /// Whether these forbids deny whatever this permit permits.
    async fn denied(
        &mut self,
        prepared: &Prepared<'_>,
        permit: &Part<'_>,
        forbids: &[Part<'_>],
    ) -> Result<bool, Open> {
        let parts = [std::slice::from_ref(permit), forbids].concat();
        let set = Level::NotDenied.plain(&parts, &prepared.known);
        let set = prepared.stage.compile(&set, self.session).await?;
        let let_through = self.session.find(|| always_denies_asserts(&set)).await?;
        Ok(let_through.is_none())
    }

    /// Of these forbids, which together deny whatever this permit permits, some that do, and of which none can be left out.
    async fn needed<'p>(
        &mut self,
        prepared: &Prepared<'_>,
        permit: &Part<'_>,
        mut forbids: Vec<Part<'p>>,
    ) -> Result<Vec<Part<'p>>, Open> {
        if forbids.len() > FORBIDS_MAX {
            return Ok(forbids);
        }
        let mut place = 0;
        while place < forbids.len() {
            let left_out = forbids.remove(place);
            if !self.denied(prepared, permit, &forbids).await? {
                forbids.insert(place, left_out);
                place += 1;
            }
        }
        Ok(forbids)
    }
}

/// The kinds that this policy of the candidate is about, and what it is there.
fn about<'k, 's>(
    pair: &'k Pair<'s>,
    kinds: &'k Kinds<'_, 's>,
    number: usize,
) -> impl Iterator<Item = (&'k Kind<'k>, &'k Prepared<'s>, Part<'s>)> {
    kinds.iter().filter_map(move |(kind, prepared)| {
        let part = pair.after.part(&kind.after, number)?;
        Some((*kind, prepared, part))
    })
}

impl Prepared<'_> {
    /// The asks that satisfy this policy, as a formula.
    async fn satisfying(&self, part: &Part<'_>, session: &Session<'_>) -> Result<CompiledPolicySet, Open> {
        let satisfying = level::satisfying(&part.condition, &self.known);
        self.stage.compile(&satisfying, session).await
    }

    /// All asks, and what this policy does not fail for, as formulas.
    async fn failing(&self, part: &Part<'_>, session: &Session<'_>) -> Result<[CompiledPolicySet; 2], Open> {
        let every = level::satisfying(&Expr::val(true), &self.known);
        let not_failing = level::not_failing(&part.condition);
        let every = self.stage.compile(&every, session).await?;
        Ok([every, self.stage.compile(&not_failing, session).await?])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Desk, NOW, mine, patient};
    use crate::prover::{Bounds, Prover};
    use ::model::SourceRule;
    use policy::Principals;
    use std::path::PathBuf;
    use std::time::Duration;

    #[tokio::test]
    async fn policies_that_there_is_no_time_to_look_at_are_not_gone_through() {
        let desk = Desk::bare();
        let permit = "@id(\"a\") permit (principal, action, resource) when { context.sensitive };";
        let [before, after] = ["", permit].map(|text| desk.compile(&[mine(text)]));
        let sets = Sets {
            before: &before,
            after: &after,
            registry: desk.registry(),
            sources: SourceRule::Parameter,
            body_bytes_max: 256 << 10,
            now: NOW,
        };
        let pairs = [Principals::Agents, Principals::Users]
            .map(|who| Pair::new(before.slicer(who), after.slicer(who), sets.body_bytes_max));
        // Of no kinds there is no question, which would be left open by itself.
        let [agents, users] = pairs.each_ref().map(|pair| Crowd {
            pair,
            kinds: Vec::new(),
            is_whole: true,
        });
        for (all, are_complete) in [(Duration::ZERO, false), (patient().all, true)] {
            let bounds = Bounds { all, ..patient() };
            let prover = Prover::new(PathBuf::from("cvc5"), 1, bounds);
            let turn = prover.turn().unwrap();
            let found = find(&sets, &agents, &users, &mut turn.session()).await;
            assert_eq!((found.all.len(), found.are_complete), (0, are_complete));
        }
    }
}
