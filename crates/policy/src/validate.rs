//! Strict validation of one policy against the schema of a registry.
//!
//! Cedar validates every policy against every action. Here a policy meets only the actions that its scope admits, and one
//! of them where it looks at nothing in which they differ: that is the same and takes a thousandth of the time.

use crate::compile::GoesOn;
use crate::diagnostics::{Diagnostic, Severity};
use crate::facts::{self, TYPES};
use crate::parse::Parsed;
use crate::read_set::{Member, ReadSet};
use crate::statement::Statement;
use cedar_policy::Schema;
use cedar_policy_core::ast::{ActionConstraint, EntityUID, Template};
use cedar_policy_core::validator::typecheck::Typechecker;
use cedar_policy_core::validator::types::{RequestEnv, Type};
use cedar_policy_core::validator::{
    ValidationMode, Validator as Cedar, ValidatorSchema, confusable_string_checks,
};
use found::Found;
use hierarchy::{LOOKED_AT_MAX, LOOKED_AT_PER_PART};
use names::Ids;
use std::cell::{Cell, OnceCell};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use undeclared::{Span, Test};
use widths::{COMPARED_PER_PART, Widths};

mod found;
mod hierarchy;
pub(crate) mod named;
mod names;
pub(crate) mod undeclared;
mod widths;

const MODE: ValidationMode = ValidationMode::Strict;

/// The members of the context that have a type of their own for each action, which is made of its parameters.
const OF_THE_PARAMETERS: [Member; 2] = [Member::Input, Member::Sources];

/// What differs between actions: what they are, and their parameters.
const OF_THE_ACTION: ReadSet = ReadSet::ACTION
    .union(ReadSet::member(OF_THE_PARAMETERS[0]))
    .union(ReadSet::member(OF_THE_PARAMETERS[1]));

/// How many findings of one kind are told of one policy. More would help nobody, and to find the place of each in a long
/// text takes time.
pub(crate) const TOLD_MAX: usize = 64;

const IMPOSSIBLE: &str = "the policy can never match: no ask satisfies its scope and its conditions together";

/// Validates policies against one schema.
pub(crate) struct Validator<'s> {
    schema: &'s ValidatorSchema,
    typechecker: Typechecker<'s>,
    /// What an ask for each action looks like.
    asks: Vec<RequestEnv<'s>>,
    /// Whether they differ in nothing but the action and its parameters, as they do in every registry's schema.
    alike: bool,
    /// The places in `asks` of an action, or of the actions in a group.
    members: HashMap<&'s EntityUID, Vec<usize>>,
    /// The names of the members that parameters of any action have, once somebody has asked.
    in_parameters: OnceCell<HashSet<&'s str>>,
    /// How wide the types of each ask are, once somebody has asked.
    widths: OnceCell<Vec<Widths>>,
    /// How many asks' actions may be looked at for one `in`.
    looked_at_max: usize,
    /// The ids of all actions and groups, once somebody has asked.
    ids: OnceCell<Ids<'s>>,
    /// How long they are together.
    ids_bytes: usize,
    /// How many pairs of letters may still be compared to say which action may have been meant.
    letters_left: Cell<usize>,
    /// How many may be to say which member, before no more asks are looked at.
    member_letters_left: Cell<usize>,
    /// Whether it goes on, if there is somebody to be asked.
    goes_on: Option<GoesOn<'s>>,
}

/// What validation found.
#[derive(Debug, Default)]
pub(crate) struct Validated {
    pub(crate) errors: Vec<Diagnostic>,
    /// Why nobody puts it in force: it can never match, is wrong for users only, tests for what nothing has, asks for
    /// what is not known of what it names, has too long a name, or an `in` that goes through too much. It keeps nothing
    /// from starting.
    pub(crate) unfit: Vec<Diagnostic>,
    pub(crate) warnings: Vec<Diagnostic>,
    /// The tests for members that something has which the policy is about.
    pub(crate) declared: HashSet<Span>,
    /// The policies of which not all was looked for that is wrong for users, by their ids.
    pub(crate) more_for_users: HashSet<String>,
}

/// The tests for members in the conditions of a policy.
#[derive(Default)]
struct Tests {
    /// Those for what something has that the policy is about.
    declared: HashSet<Span>,
    /// What to tell of the others.
    undeclared: Vec<Diagnostic>,
}

/// What kind of thing no ask can satisfy.
enum Idle {
    /// No action that is registered is in its scope, but one could be.
    NothingRegistered,
    /// Not as actions are registered. But an ask may claim to change something, and that moves it among the mutations.
    OnlyByClaim,
    /// Nothing ever will.
    Impossible,
}

impl<'s> Validator<'s> {
    pub(crate) fn new(schema: &'s Schema) -> Self {
        let schema: &ValidatorSchema = schema.as_ref();
        let mut asks: Vec<_> = schema.unlinked_request_envs(MODE).collect();
        // Cedar has them in the order of hashes. Which action a finding names must not depend on chance.
        asks.sort_by_key(|ask| (ask.action_entity_uid(), ask.principal_entity_type()));
        let mut members: HashMap<&EntityUID, Vec<usize>> = HashMap::new();
        for (place, ask) in asks.iter().enumerate() {
            let uid = ask.action_entity_uid().expect("every action is declared");
            members.entry(uid).or_default().push(place);
        }
        for group in schema.action_ids() {
            let inside = group.descendants().filter_map(|action| members.get(action));
            let inside: Vec<_> = inside.flatten().copied().collect();
            members.entry(group.name()).or_default().extend(inside);
        }
        Self {
            schema,
            typechecker: Typechecker::new(schema, MODE),
            alike: asks.iter().all(|ask| alike(ask, &asks[0])),
            asks,
            looked_at_max: LOOKED_AT_MAX,
            ids_bytes: members.keys().map(|uid| names::compared_bytes(uid)).sum(),
            members,
            in_parameters: OnceCell::new(),
            widths: OnceCell::new(),
            ids: OnceCell::new(),
            letters_left: Cell::new(names::LETTERS_MAX),
            member_letters_left: Cell::new(usize::MAX),
            goes_on: None,
        }
    }

    /// One that gives up where it takes long to say which members may have been meant by misspelt ones. What it does
    /// not get to is wrong, so it is for new policies: what is in force was looked through before.
    pub(crate) fn of_new(self) -> Self {
        Self {
            member_letters_left: Cell::new(names::MEMBER_LETTERS_MAX),
            ..self
        }
    }

    /// One that asks between the parts of its work whether it goes on. What it does not get to is wrong.
    pub(crate) fn in_parts(self, goes_on: GoesOn<'s>) -> Self {
        Self {
            goes_on: Some(goes_on),
            ..self
        }
    }

    /// Whether it goes on.
    pub(crate) fn goes_on(&self) -> bool {
        self.goes_on.is_none_or(|goes_on| goes_on())
    }

    /// What is wrong with this policy, and what is odd about it.
    pub(crate) fn validate(&self, parsed: &Parsed) -> Validated {
        let template = &parsed.template;
        let unknown = Cedar::validate_entity_types(self.schema, template)
            .chain(Cedar::validate_enum_entity(self.schema, template))
            .take(TOLD_MAX)
            .map(|error| finding(parsed, Severity::Error, &error));
        let mut errors: Vec<_> = unknown.chain(self.unknown_actions(parsed)).collect();
        let mut warnings: Vec<_> = confusable_string_checks(std::iter::once(template))
            .take(TOLD_MAX)
            .map(|warning| finding(parsed, Severity::Warning, &warning))
            .collect();
        let admitted = self.admitted(&parsed.statement.scope.action);
        let asks = self.asks_for(parsed, &admitted);
        let checked = checked(template, &admitted);
        let names_unknown = !errors.is_empty();
        let (mut of_agents, mut of_users) = (Found::default(), Found::default());
        let mut too_large = names::too_long(parsed);
        too_large.extend(self.too_wide(parsed));
        // Types are not checked where that would take more memory than there is.
        let types_of: &[&RequestEnv<'_>] = if too_large.is_empty() { &asks[..] } else { &[] };
        let mut satisfiable = !too_large.is_empty();
        let (mut is_given_up, mut is_broken_off) = (false, false);
        let written = names::widest_written(parsed);
        for ask in types_of {
            let is_of_a_user = ask.principal_entity_type() == Some(&TYPES.user);
            let found = if is_of_a_user {
                &mut of_users
            } else {
                &mut of_agents
            };
            if found.is_enough() {
                continue;
            }
            is_given_up = self.member_letters_left.get() == 0;
            is_broken_off = !is_given_up && !self.goes_on();
            if is_given_up || is_broken_off {
                break;
            }
            let types = self.typechecker.typecheck_by_single_request_env(&checked, ask);
            self.take_member_letters(&types, ask, written);
            satisfiable |= found.add(parsed, types);
        }
        errors.extend(of_agents.into_diagnostics(parsed, names_unknown));
        errors.extend(is_given_up.then(|| given_up(parsed)));
        errors.extend(is_broken_off.then(|| broken_off().about(&parsed.statement.id)));
        let more_for_users = of_users.is_enough().then(|| parsed.statement.id.to_string());
        let of_users = of_users.into_diagnostics(parsed, names_unknown);
        let mut unfit = Vec::new();
        let is_about_agents = parsed.statement.is_about(&TYPES.agent);
        if errors.is_empty() && is_about_agents && may_be_in_force_unvalidated(&parsed.statement) {
            unfit = of_users.into_iter().map(Diagnostic::for_users).collect();
        } else {
            errors.extend(of_users);
        }
        if errors.is_empty() && unfit.is_empty() && !satisfiable {
            let (severity, said) = self.idle(parsed, admitted.is_empty()).told(parsed);
            match severity {
                Severity::Error => unfit.push(said),
                Severity::Warning => warnings.push(said),
            }
        }
        let tests = self.tests(parsed, &asks, admitted.is_empty());
        unfit.extend(tests.undeclared);
        unfit.extend(named::findings(parsed));
        unfit.extend(too_large);
        Validated {
            errors: once_a_place(errors),
            unfit: once_a_place(unfit),
            warnings: once_a_place(warnings),
            declared: tests.declared,
            more_for_users: more_for_users.into_iter().collect(),
        }
    }

    /// How much there is to check in this policy: every part of its conditions, and what is looked through and compared
    /// for it, for every ask that it has to be validated for. One whose scope admits none is done with that.
    pub(crate) fn checks(&self, parsed: &Parsed) -> usize {
        let admitted = self.admitted(&parsed.statement.scope.action);
        let places = self.places_for(parsed, &admitted);
        if admitted.is_empty() {
            return places.len();
        }
        let conditions = parsed.template.non_scope_constraints();
        let parts = conditions.map_or(0, |conditions| conditions.subexpressions().count());
        let compared = conditions.map_or(0, |conditions| self.compared(conditions, &places));
        let checked = checked(&parsed.template, &admitted).condition();
        let looked_at: usize = checked.subexpressions().map(|part| self.looked_at(part)).sum();
        let parts = 1 + parts + looked_at / LOOKED_AT_PER_PART;
        let checks = places.len().saturating_mul(parts);
        checks.saturating_add(compared / COMPARED_PER_PART)
    }

    /// The tests of a policy for members that one of these asks has, and those for members that none has. They are the
    /// asks that the policy is validated for. What cannot be told yet is in neither.
    fn tests(&self, parsed: &Parsed, asks: &[&RequestEnv<'s>], nothing_admitted: bool) -> Tests {
        let mut tests = Tests::default();
        let conditions = parsed.template.non_scope_constraints();
        let Some(conditions) = conditions.filter(|_| !asks.is_empty()) else {
            return tests;
        };
        let is_known = |test: &Test<'_>| {
            let names = || undeclared::names_in_parameters(&self.asks);
            test.names_only(self.in_parameters.get_or_init(names))
        };
        let scope = &parsed.statement.scope.action;
        // An action that is in the scope one day, or by a claim, has parameters of its own.
        let may_be_registered = |test: &Test<'_>| nothing_admitted && test.is_of_parameters();
        let may_be_claimed =
            |test: &Test<'_>| test.is_of_parameters() && admits_claims(scope) && is_known(test);
        // INVARIANT: where nothing is admitted, `checks` counts no parts, so no more tests are held against all asks
        // than are told.
        for test in conditions.subexpressions().filter_map(Test::of) {
            if may_be_registered(&test) {
                continue;
            }
            let fails = asks.iter().all(|ask| test.always_fails(self.schema, ask));
            if !fails || may_be_claimed(&test) {
                tests.declared.extend(test.span());
                continue;
            }
            tests.undeclared.push(test.told(parsed));
            if tests.undeclared.len() == TOLD_MAX {
                break;
            }
        }
        tests
    }

    /// The places of the asks for actions that this scope is about.
    fn admitted(&self, scope: &ActionConstraint) -> BTreeSet<usize> {
        let within = |action: &EntityUID| self.members.get(action).into_iter().flatten().copied();
        match scope {
            ActionConstraint::Any => (0..self.asks.len()).collect(),
            // Asks are for actions, never for a group of them.
            ActionConstraint::Eq(action) => within(action)
                .filter(|place| self.asks[*place].action_entity_uid() == Some(action))
                .collect(),
            ActionConstraint::In(actions) => {
                // A list may name a group of thousands of actions as often as its text has room for.
                let named: HashSet<&EntityUID> = actions.iter().map(|action| &**action).collect();
                let mut admitted = BTreeSet::new();
                for action in named {
                    admitted.extend(within(action));
                }
                admitted
            }
        }
    }

    /// The asks that a policy has to be validated for, if its scope is about these.
    fn asks_for(&self, parsed: &Parsed, admitted: &BTreeSet<usize>) -> Vec<&RequestEnv<'s>> {
        let places = self.places_for(parsed, admitted).into_iter();
        places.map(|place| &self.asks[place]).collect()
    }

    /// Their places.
    fn places_for(&self, parsed: &Parsed, admitted: &BTreeSet<usize>) -> Vec<usize> {
        let mut places: Vec<_> = if admitted.is_empty() {
            // A scope that admits nothing may have slips of its own.
            (0..self.asks.len()).collect()
        } else {
            admitted.iter().copied().collect()
        };
        let is_about = |place: &usize| is_about(&parsed.statement, &self.asks[*place]);
        // Where it is about no such principal, Cedar says so.
        if places.iter().any(is_about) {
            places.retain(is_about);
        }
        // Where the scope admits nothing, Cedar does not get to the conditions.
        if self.one_for_all(parsed) || self.alike && admitted.is_empty() {
            let mut seen = BTreeSet::new();
            places.retain(|place| seen.insert(self.asks[*place].principal_entity_type()));
        }
        places
    }

    /// Whether what can be told of a policy's conditions for one ask holds for every other.
    fn one_for_all(&self, parsed: &Parsed) -> bool {
        let condition = parsed.statement.condition.as_ref();
        let differs = condition.is_some_and(|condition| condition.reads.intersects(OF_THE_ACTION));
        self.alike && !differs
    }

    fn idle(&self, parsed: &Parsed, nothing_admitted: bool) -> Idle {
        let scope = &parsed.statement.scope.action;
        let condition = parsed.statement.condition.as_ref();
        let asks_for_action = condition.is_some_and(|condition| condition.reads.intersects(ReadSet::ACTION));
        match scope {
            _ if self.asks.is_empty() => Idle::NothingRegistered,
            // The conditions fail for an ask in the scope, and so for one that a claim would move into it.
            _ if !nothing_admitted && self.one_for_all(parsed) => Idle::Impossible,
            ActionConstraint::Eq(_) if nothing_admitted => Idle::Impossible,
            _ if admits_claims(scope) => Idle::OnlyByClaim,
            _ if nothing_admitted => Idle::NothingRegistered,
            _ if asks_for_action => Idle::OnlyByClaim,
            _ => Idle::Impossible,
        }
    }
}

impl Idle {
    fn told(&self, parsed: &Parsed) -> (Severity, Diagnostic) {
        let (severity, message, help) = match self {
            Self::NothingRegistered => (
                Severity::Warning,
                "no action that is registered is in the policy's scope, so it has nothing to do yet",
                "register a tool with such an action, or change the scope",
            ),
            Self::OnlyByClaim => (
                Severity::Warning,
                "no action is registered that could satisfy the policy; an ask could that claims to change something",
                "register a tool with such an action, or change the scope and the conditions",
            ),
            Self::Impossible => (
                Severity::Error,
                IMPOSSIBLE,
                "asks are from an `Agent` or for a `User`, both in a `Team`, for one action (a group is written `action in`), and on a `Resource`",
            ),
        };
        let found = Diagnostic::error(message)
            .with_help(help)
            .about(&parsed.statement.id);
        let found = found.at(parsed.statement.place());
        match severity {
            Severity::Error => (severity, found),
            Severity::Warning => (severity, found.into_warning()),
        }
    }
}

/// The policy as Cedar checks it for asks that its scope admits. It says nothing of their action then, and Cedar, which
/// looks through all that the scope names, would find that out for each ask again.
fn checked(template: &Template, admitted: &BTreeSet<usize>) -> Template {
    let action = if admitted.is_empty() {
        template.action_constraint().clone()
    } else {
        ActionConstraint::Any
    };
    Template::new_shared(
        template.id().clone(),
        template.loc().cloned(),
        Arc::clone(template.annotations_arc()),
        template.effect(),
        template.principal_constraint().clone(),
        action,
        template.resource_constraint().clone(),
        template.non_scope_constraints_arc().cloned(),
    )
}

/// What Cedar found in this policy. Where it does not say in which part, it is about all of it.
fn finding(parsed: &Parsed, severity: Severity, found: &dyn miette::Diagnostic) -> Diagnostic {
    let text = parsed.statement.loc.as_ref().map_or("", |loc| &*loc.src);
    let found = Diagnostic::from_cedar(text, severity, found).about(&parsed.statement.id);
    let place = found.place.or_else(|| parsed.statement.place());
    found.at(place)
}

/// Whether an ask comes into this scope by claiming to change something.
fn admits_claims(scope: &ActionConstraint) -> bool {
    let mutate = facts::action(facts::MUTATE);
    matches!(scope, ActionConstraint::In(actions) if actions.iter().any(|action| **action == mutate))
}

/// Whether a policy is about such asks, as far as the types of principal and resource tell.
fn is_about(policy: &Statement, ask: &RequestEnv<'_>) -> bool {
    ask.principal_entity_type()
        .is_none_or(|principal| policy.is_about(principal))
}

/// Whether a policy can be in force that was not validated for users. Which policies are about them as well was not
/// always told as it is now: whatever looks at what only agents have, or at the whole context, was about agents.
fn may_be_in_force_unvalidated(policy: &Statement) -> bool {
    policy.condition.as_ref().is_some_and(|condition| {
        condition.reads.intersects(ReadSet::OF_AN_AGENT) || condition.reads.contains(ReadSet::ALL)
    })
}

/// Whether two asks differ in nothing but the principal, the action and its parameters.
fn alike(one: &RequestEnv<'_>, other: &RequestEnv<'_>) -> bool {
    let (Type::Record { attrs, .. }, Type::Record { attrs: others, .. }) =
        (one.context_type(), other.context_type())
    else {
        return false;
    };
    let is_common = |name: &str| OF_THE_PARAMETERS.iter().all(|member| member.as_str() != name);
    let members = attrs.iter().filter(|(name, _)| is_common(name));
    one.resource_type() == other.resource_type()
        && members.eq(others.iter().filter(|(name, _)| is_common(name)))
}

fn too_deep(parsed: &Parsed) -> Diagnostic {
    Diagnostic::error("the policy is nested too deeply to be validated")
        .with_help("take it apart into several policies")
        .about(&parsed.statement.id)
        .at(parsed.statement.place())
}

/// That somebody has said that it does not go on.
pub(crate) fn broken_off() -> Diagnostic {
    Diagnostic::error("the policy is not looked through to its end, because nobody waits for that any more")
}

fn given_up(parsed: &Parsed) -> Diagnostic {
    Diagnostic::error("the policy is not looked through to its end, because too many members are misspelt")
        .with_help("mend what is told of this policy and of the others first")
        .about(&parsed.statement.id)
        .at(parsed.statement.place())
}

/// What is found in several ways is told once.
fn once_a_place(mut found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    found.sort_by(|one, other| {
        let key = |finding: &Diagnostic| finding.place.map(|place| (place.offset, place.length));
        key(one)
            .cmp(&key(other))
            .then_with(|| one.message.cmp(&other.message))
    });
    found.dedup_by_key(|finding| finding.place);
    found
}

#[cfg(test)]
mod tests;
