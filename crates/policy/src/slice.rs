//! What policies say about one action, as bare conditions: for whoever reasons about all asks at once instead of one.
//!
//! A slice comes from the same scopes, guards and canaries that a question meets, but by another way than the index, so
//! that what is concluded from slices can be checked with questions.

use crate::annotations::PolicyEffect;
use crate::condition::Condition;
use crate::context::{Groups, Side};
use crate::evaluate::Asked;
use crate::facts::{self, TYPES};
use crate::guard::{Left, Split};
use crate::read_set::{Member, ReadSet};
use crate::ruling::{Obligation, PolicyId};
use crate::set::{Contents, PolicySet, Presence};
use crate::statement::Statement;
use crate::tenant::Mode;
use cedar_policy_core::ast::{EntityType, Expr, PrincipalOrResource, Var};
use model::{AgentId, Name, SlashFreeName, Tool, ToolAction};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

mod too_much;

pub use too_much::TooMuch;

/// What differs between the asks for different actions that count as the same, beside the action itself.
const OF_ONE_ACTION: ReadSet = ReadSet::ACTION
    .union(ReadSet::PARAMETERS)
    .union(ReadSet::member(Member::Sources))
    .union(ReadSet::member(Member::Tool));

/// An action as asks name it, and whether the asks count as changing something.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionSide {
    /// The tool.
    pub tool: SlashFreeName,
    /// Its action.
    pub action: Name,
    /// Whether they count as changing something: the registry says so, or the caller claims so.
    pub mutates: bool,
}

/// Whose asks are reasoned about: those of agents, or the same for the users for whom agents act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Principals {
    /// Agents.
    Agents,
    /// Users.
    Users,
}

impl Principals {
    /// The name of their type.
    pub const fn type_name(self) -> &'static str {
        match self {
            Self::Agents => facts::AGENT,
            Self::Users => facts::USER,
        }
    }

    fn kind(self) -> &'static EntityType {
        match self {
            Self::Agents => &TYPES.agent,
            Self::Users => &TYPES.user,
        }
    }
}

/// What a policy does when its condition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It denies.
    Forbid,
    /// It requires approval.
    RequireApproval,
    /// It allows.
    Permit,
    /// It adds obligations to whatever the verdict is.
    Advise,
}

/// A set of policies, ready to be cut into slices.
pub struct Slicer<'s> {
    rules: Vec<Sliceable<'s>>,
}

/// A policy that can count for somebody.
struct Sliceable<'s> {
    statement: &'s Arc<Statement>,
    /// For whom it counts, if not for everybody.
    canary: Option<Expr>,
    split: Option<Split>,
    /// Whether what the action decides is cut off before anything is asked. Of a tenant's policy it never is.
    is_settled: bool,
}

/// The policies that can be about one side of an action. Equal slices of one set say the same.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Slice(Vec<(usize, Cut)>);

/// How much of a policy's condition is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Cut {
    /// What is behind the part that the action decides, which holds.
    Rest,
    /// All of it.
    Whole,
}

/// One policy of a slice.
#[derive(Debug, Clone)]
pub struct Part<'s> {
    /// Its id.
    pub id: &'s PolicyId,
    /// What it does.
    pub effect: Effect,
    /// When it does: for every ask of this side it holds, or fails, exactly where the policy does.
    pub condition: Expr,
    reads: ReadSet,
    may_fail_with_long_texts: bool,
}

/// A side of an action of a registry, and what is known of all its asks.
pub struct Ground<'r> {
    pub(crate) tool: &'r Tool,
    pub(crate) action: &'r ToolAction,
    pub(crate) mutates: bool,
    side: Side,
    known: Asked,
}

impl<'r> Ground<'r> {
    /// The ground of this side.
    pub fn of(tool: &'r Tool, action: &'r ToolAction, mutates: bool) -> Self {
        let [reading, mutating] = Side::both(tool, action, &mut Groups::default());
        let side = if mutates { mutating } else { reading };
        let known = side.known(tool, action);
        Self {
            tool,
            action,
            mutates,
            side,
            known,
        }
    }

    /// Which side it is.
    pub fn side(&self) -> ActionSide {
        ActionSide {
            tool: self.tool.name.clone(),
            action: self.action.name.clone(),
            mutates: self.mutates,
        }
    }
}

impl PolicySet {
    /// What the set says to these principals, ready to be cut into slices. Canaries are for agents: whether one counts for a user
    /// is not told by who the user is, so they are left out there.
    pub fn slicer(&self, principals: Principals) -> Slicer<'_> {
        let contents = &*self.contents;
        let base = contents.vocabulary.base();
        let base = base.map(|(statement, is_settled)| (statement, Presence::Always, is_settled));
        let own = contents
            .rules
            .iter()
            .map(|rule| (&rule.rule.statement, rule.presence, false));
        let mut crowds = Crowds {
            contents,
            of_trials: HashMap::new(),
        };
        let rules = base.chain(own).filter_map(|(statement, presence, is_settled)| {
            if !statement.is_about(principals.kind()) {
                return None;
            }
            let canary = match crowds.of(presence) {
                Crowd::Everybody => None,
                Crowd::Those(condition) => Some(condition),
                Crowd::Nobody => return None,
            };
            Some(Sliceable {
                statement,
                canary,
                split: statement.condition.as_ref().and_then(Split::of),
                is_settled,
            })
        });
        Slicer {
            rules: rules.collect(),
        }
    }
}

/// For whom a policy counts.
enum Crowd {
    Everybody,
    Those(Expr),
    Nobody,
}

/// For whom the policies of a set count.
struct Crowds<'s> {
    contents: &'s Contents,
    /// That somebody is an agent of a canary, and that somebody is none, by the trial. All of its policies share these: it
    /// may have many agents, and many policies.
    of_trials: HashMap<usize, [Expr; 2]>,
}

impl Crowds<'_> {
    fn of(&mut self, presence: Presence) -> Crowd {
        let (trial, is_with) = match presence {
            Presence::Always => return Crowd::Everybody,
            Presence::Without(trial) => (trial, false),
            Presence::With(trial) => (trial, true),
        };
        match self.contents.mode(Presence::With(trial)) {
            Mode::Canary(agents) => {
                let conditions = self.of_trials.entry(trial).or_insert_with(|| {
                    let is_one = is_one(&agents);
                    [is_one.clone(), Expr::not(is_one)]
                });
                Crowd::Those(conditions[usize::from(!is_with)].clone())
            }
            Mode::Enforced | Mode::Shadow if is_with => Crowd::Nobody,
            Mode::Enforced | Mode::Shadow => Crowd::Everybody,
        }
    }
}

fn is_one(agents: &BTreeSet<AgentId>) -> Expr {
    let agents = agents.iter().map(ToString::to_string);
    let agents = agents.map(|agent| Expr::val(facts::agent(&agent)));
    Expr::contains(Expr::set(agents), Expr::var(Var::Principal))
}

impl<'s> Slicer<'s> {
    /// The policies that this set has and the other one has not, whatever they are called: by what they do, and when. Of
    /// advice that `can_fail` that depends on its obligations, too: it fails only for asks that these are about.
    pub fn not_in(&self, other: &Self, can_fail: impl Fn(&Expr) -> bool) -> Vec<usize> {
        let theirs = other.rules.iter().map(|rule| rule.meaning(&can_fail));
        let theirs: HashSet<_> = theirs.collect();
        let mine = self.rules.iter().enumerate();
        mine.filter(|(_, rule)| !theirs.contains(&rule.meaning(&can_fail)))
            .map(|(number, _)| number)
            .collect()
    }

    /// The id of a policy that [`Self::not_in`] named.
    pub fn id(&self, number: usize) -> &'s PolicyId {
        &self.rules[number].statement.id
    }

    /// Those of these policies that can be about this side.
    pub fn slice(&self, among: impl Iterator<Item = usize>, ground: &Ground<'_>) -> Slice {
        let cut = among.filter_map(|number| Some((number, self.rules[number].cut(ground)?)));
        Slice(cut.collect())
    }

    /// All policies.
    pub fn all(&self) -> std::ops::Range<usize> {
        0..self.rules.len()
    }

    /// The policies of a slice of this set.
    pub fn parts(&self, slice: &Slice) -> Vec<Part<'s>> {
        let parts = slice.0.iter();
        parts
            .map(|(number, cut)| self.rules[*number].part(*cut))
            .collect()
    }

    /// One policy as a part, if the slice has it.
    pub fn part(&self, slice: &Slice, number: usize) -> Option<Part<'s>> {
        let found = slice.0.iter().find(|(other, _)| *other == number);
        found.map(|(number, cut)| self.rules[*number].part(*cut))
    }
}

impl Slice {
    /// The numbers of its policies.
    pub fn numbers(&self) -> impl Iterator<Item = usize> {
        self.0.iter().map(|(number, _)| *number)
    }

    /// Whether nothing is in it.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Sliceable<'_> {
    /// What two policies have in common that do the same at the same time.
    fn meaning(&self, can_fail: impl Fn(&Expr) -> bool) -> (Effect, Expr, &[Obligation]) {
        let scope = &self.statement.scope;
        let condition = self.statement.condition.as_ref();
        let condition = condition.map_or(Expr::val(true), |condition| (*condition.expression).clone());
        let whole = Expr::and(scope.action.as_expr(), self.condition(condition));
        let effect = effect(&self.statement.annotations.effect);
        let obligations = match effect {
            Effect::Advise if can_fail(&whole) => self.statement.annotations.obligations.as_slice(),
            _ => &[],
        };
        (effect, whole, obligations)
    }

    /// Whether its scope is about this action.
    fn admits(&self, ground: &Ground<'_>) -> bool {
        self.statement.scope.admits_action(ground.side.position())
    }

    fn cut(&self, ground: &Ground<'_>) -> Option<Cut> {
        if !self.admits(ground) {
            return None;
        }
        match self.split.as_ref().map(|split| split.left(&ground.known)) {
            None | Some(Left::Whole) => Some(Cut::Whole),
            Some(Left::Rest(_)) => Some(Cut::Rest),
            Some(Left::Nothing) => None,
        }
    }

    /// What of it is evaluated, where so much of it is left.
    fn evaluated(&self, cut: Cut) -> Option<&Condition> {
        match (cut, &self.split) {
            (Cut::Rest, Some(split)) if self.is_settled => split.rest(),
            _ => self.statement.condition.as_ref(),
        }
    }

    /// What of it counts for asks of this side. What is not settled counts also where the action says that it cannot hold.
    fn counted(&self, ground: &Ground<'_>) -> Option<&Condition> {
        if self.is_settled {
            self.cut(ground).and_then(|cut| self.evaluated(cut))
        } else if self.admits(ground) {
            self.statement.condition.as_ref()
        } else {
            None
        }
    }

    /// What must hold, if the scope's action does.
    fn condition(&self, own: Expr) -> Expr {
        let scope = &self.statement.scope;
        let conditions = [
            scope.principal.as_expr(PrincipalOrResource::Principal),
            scope.resource.as_expr(PrincipalOrResource::Resource),
            self.canary.clone().unwrap_or(Expr::val(true)),
            own,
        ];
        let always = Expr::val(true);
        let conditions = conditions.into_iter().filter(|condition| *condition != always);
        conditions.reduce(Expr::and).unwrap_or(always)
    }
}

impl<'s> Sliceable<'s> {
    fn part(&self, cut: Cut) -> Part<'s> {
        let own: Option<&Condition> = match (cut, &self.split) {
            (Cut::Rest, Some(split)) => split.rest(),
            _ => self.statement.condition.as_ref(),
        };
        let evaluated = self.evaluated(cut);
        let may_fail_with_long_texts = evaluated.is_some_and(Condition::has_patterns_for_asks);
        let own = own.map_or(Expr::val(true), |condition| (*condition.expression).clone());
        let condition = self.condition(own);
        Part {
            id: &self.statement.id,
            effect: effect(&self.statement.annotations.effect),
            reads: ReadSet::of(&condition),
            condition,
            may_fail_with_long_texts,
        }
    }
}

impl Part<'_> {
    /// Whether it looks at anything in which actions differ that count as the same.
    pub const fn is_about_one_action(&self) -> bool {
        self.reads.intersects(OF_ONE_ACTION)
    }

    /// Whether it looks at the parameters of an ask, or at where they came from.
    pub const fn looks_at_parameters(&self) -> bool {
        self.reads
            .intersects(ReadSet::PARAMETERS.union(ReadSet::member(Member::Sources)))
    }

    /// Whether it fails for an ask whose texts are too long for the patterns of all policies about it.
    pub const fn may_fail_with_long_texts(&self) -> bool {
        self.may_fail_with_long_texts
    }

    pub(crate) const fn reads(&self) -> ReadSet {
        self.reads
    }
}

const fn effect(of_policy: &PolicyEffect) -> Effect {
    match of_policy {
        PolicyEffect::Forbid => Effect::Forbid,
        PolicyEffect::Approval(_) => Effect::RequireApproval,
        PolicyEffect::Permit => Effect::Permit,
        PolicyEffect::Advice => Effect::Advise,
    }
}

#[cfg(test)]
mod tests;
