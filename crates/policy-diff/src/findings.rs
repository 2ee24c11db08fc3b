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

impl<'s> Hunt<'_, '_, 's> {
    fn note(&mut self, found: Result<Option<Finding>, Open>) {
        match found {
            Ok(finding) => self.found.all.extend(finding),
            Err(_) => self.found.are_complete = false,
        }
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
            let asserts = always_denies_asserts(prepared.after_not_denied());
            match self.session.find(&asserts).await {
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

    /// The kinds that this policy of the candidate is about, and what it is there.
    fn about(&self, number: usize) -> impl Iterator<Item = (&Kind<'_>, &Prepared<'s>, Part<'s>)> {
        about(self.pair, self.kinds, number)
    }

    /// An ask that this policy fails for.
    async fn error(&mut self, number: usize) -> Result<Option<Finding>, Open> {
        let fallible = self
            .about(number)
            .filter(|(_, _, part)| can_fail(&part.condition));
        let queries =
            fallible.map(|(kind, prepared, part)| Ok((kind.ground.side(), prepared.failing(&part)?, part)));
        let queries = queries.collect::<Result<Vec<_>, Open>>()?;
        let id = self.pair.after.id(number);
        for (side, [every, not_failing], part) in queries {
            let Some(model) = self.session.find(&implies_asserts(&every, &not_failing)).await? else {
                continue;
            };
            let fails = |ask: &Ask| {
                let ruling = ask.put(self.sets.after, self.sets.registry);
                ruling.is_some_and(|ruling| ruling.errors.iter().any(|error| error.policy == *id))
            };
            let ask = model::ask(&model, &side, self.sets.now).filter(fails);
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
        let queries = satisfying(self.about(number))?;
        if queries.is_empty() || self.any_satisfies(&queries).await? {
            return Ok(false);
        }
        let id = self.pair.after.id(number);
        let added = &users.pair.added;
        let Some(number) = added.iter().find(|number| users.pair.after.id(**number) == id) else {
            return Ok(true);
        };
        if !users.is_whole {
            return Err(Open::NoTimeLeft);
        }
        let queries = satisfying(about(users.pair, &users.kinds, *number))?;
        Ok(!self.any_satisfies(&queries).await?)
    }

    async fn any_satisfies(&mut self, queries: &[CompiledPolicySet]) -> Result<bool, Open> {
        for query in queries {
            if self.session.find(&always_denies_asserts(query)).await?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
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
            let single = prepared.satisfying(&permit)?;
            let satisfying = self.session.find(&always_denies_asserts(&single)).await?;
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
        let set = prepared.stage.compile(&set)?;
        Ok(self.session.find(&always_denies_asserts(&set)).await?.is_none())
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

/// The asks that satisfy a policy, for each of these kinds.
fn satisfying<'k, 's: 'k>(
    about: impl Iterator<Item = (&'k Kind<'k>, &'k Prepared<'s>, Part<'s>)>,
) -> Result<Vec<CompiledPolicySet>, Open> {
    about
        .map(|(_, prepared, part)| prepared.satisfying(&part))
        .collect()
}

impl Prepared<'_> {
    /// The asks that satisfy this policy, as a formula.
    fn satisfying(&self, part: &Part<'_>) -> Result<CompiledPolicySet, Open> {
        self.stage
            .compile(&level::satisfying(&part.condition, &self.known))
    }

    /// All asks, and what this policy does not fail for, as formulas.
    fn failing(&self, part: &Part<'_>) -> Result<[CompiledPolicySet; 2], Open> {
        let every = level::satisfying(&Expr::val(true), &self.known);
        let not_failing = level::not_failing(&part.condition);
        Ok([self.stage.compile(&every)?, self.stage.compile(&not_failing)?])
    }
}
