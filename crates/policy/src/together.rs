//! What there is too much of in a tenant's policies together, each of which is right alone: obligations, groups that
//! approve, and patterns for what is registered. It does not depend on what is asked, so it is told when policies are
//! written, and not only by the asks that are denied for it.
//!
//! Only policies about all principals, or all of a type, and every resource are added up, by the actions in their
//! scopes: others may never be about the same ask. Whether those are, their conditions say, so this stops nothing. What
//! the operator's policies want comes on top, and is not added up here. How long conditions are together is in
//! `condition`.

use crate::annotations::PolicyEffect;
use crate::condition::{Condition, WORLDS};
use crate::diagnostics::Diagnostic;
use crate::facts::TYPES;
use crate::index::Index;
use crate::like::STEPS_MAX;
use crate::ruling::{GROUPS_MAX, OBLIGATIONS_MAX, Obligation};
use crate::set::{Presence, TenantRule};
use crate::vocabulary::Rule;
use std::collections::{BTreeMap, HashMap, HashSet};

/// What is said of each kind of which there is too much, and what to do about it.
const SAID: [[&str; 2]; 3] = [
    [
        "the policies about an action want more than 64 things to be done beside what is to be redacted, and this is one of them: an ask that all of them apply to is denied",
        "make one obligation of several, or keep the policies apart by their scopes",
    ],
    [
        "the policies about an action want more than 64 groups to approve it, and this is one of them: an ask that all of them apply to is denied",
        "name fewer groups, or keep the policies apart by their scopes",
    ],
    [
        "the policies about an action have more patterns about names and tags than there is time for where these are as long as they may be, and this is one of them: there all of these fail",
        "shorten the patterns, compare with `==`, or keep the policies apart by their scopes",
    ],
];

/// How often obligations and groups are put together in vain, because several policies want the same, before they are
/// not looked for any more. It takes a while where there is much, and there may be thousands of actions.
const IN_VAIN_MAX: usize = 64;
/// How many policies and obligations are looked at, a policy once for each action that its scope lists. Nothing bounds
/// these lists, so the rest is left out: some tenth of a second is spent.
const LOOKED_AT_MAX: usize = 1 << 20;

/// What some policies want together, with the number of the first policy that wants it: of each no more than is needed
/// to know that it is too much.
#[derive(Default)]
struct Wanted<'r> {
    obligations: BTreeMap<&'r Obligation, u32>,
    groups: BTreeMap<&'r str, u32>,
    /// How many steps the patterns take at most that look at nothing of the ask, of policies about agents and of those
    /// about users: each ask has them apart.
    steps: [u64; 2],
    /// The first policy that has any.
    first_with_patterns: [Option<u32>; 2],
}

impl<'r> Wanted<'r> {
    /// What these policies want that count, in the order of their numbers, as far as so much may be looked at.
    fn of(rules: &'r [TenantRule], numbers: &[u32], counts: fn(Presence) -> bool, left: &mut usize) -> Self {
        let mut all = Self::default();
        for number in numbers {
            let TenantRule { rule, presence } = &rules[*number as usize];
            let obligations = rule.statement.annotations.obligations.as_slice();
            *left = left.saturating_sub(1 + obligations.len());
            if *left == 0 {
                break;
            }
            if counts(*presence) {
                all.add(*number, rule);
            }
        }
        all
    }

    fn add(&mut self, number: u32, rule: &'r Rule) {
        let annotations = &rule.statement.annotations;
        // What is forbidden is denied in any case.
        if annotations.effect != PolicyEffect::Forbid {
            let obligations = annotations.obligations.as_slice().iter();
            for obligation in obligations.filter(|obligation| !obligation.is_redaction()) {
                note(&mut self.obligations, obligation, number, OBLIGATIONS_MAX);
            }
        }
        if let PolicyEffect::Approval(terms) = &annotations.effect
            && let Some(group) = &terms.group
        {
            note(&mut self.groups, group.as_str(), number, GROUPS_MAX);
        }
        if let Some(condition) = &rule.condition {
            let steps = steps(condition);
            for (kind, principal) in [&TYPES.agent, &TYPES.user].into_iter().enumerate() {
                if steps > 0 && rule.statement.is_about(principal) {
                    self.steps[kind] = self.steps[kind].saturating_add(steps);
                    self.first_with_patterns[kind].get_or_insert(number);
                }
            }
        }
    }

    /// The obligations and groups of these and of others together.
    fn and(mut self, other: &Self) -> Self {
        for (obligation, number) in &other.obligations {
            note(&mut self.obligations, *obligation, *number, OBLIGATIONS_MAX);
        }
        for (group, number) in &other.groups {
            note(&mut self.groups, *group, *number, GROUPS_MAX);
        }
        self
    }

    /// How many obligations and groups there are.
    fn counts(&self) -> [usize; 2] {
        [self.obligations.len(), self.groups.len()]
    }

    /// The first policy that wants an obligation, and that names a group, where there are too many of them.
    fn too_many(&self) -> [Option<u32>; 2] {
        let [obligations, groups] = are_too_many(self.counts());
        let first = |is_so: bool, policies: Option<&u32>| policies.copied().filter(|_| is_so);
        [
            first(obligations, self.obligations.values().min()),
            first(groups, self.groups.values().min()),
        ]
    }
}

/// Whether so many obligations, and so many groups, are too many.
const fn are_too_many([obligations, groups]: [usize; 2]) -> [bool; 2] {
    [obligations > OBLIGATIONS_MAX, groups > GROUPS_MAX]
}

/// How many steps the patterns of this condition take at most, if they look at nothing of the ask.
fn steps(condition: &Condition) -> u64 {
    if condition.likes.are_any() && !condition.has_patterns_for_asks() {
        condition.likes.steps_at_most(condition.reads, 0)
    } else {
        0
    }
}

/// Notes what this policy wants, unless there are more than `most` already.
fn note<T: Ord>(all: &mut BTreeMap<T, u32>, wanted: T, number: u32, most: usize) {
    if all.len() > most {
        return;
    }
    let first = all.entry(wanted).or_insert(number);
    *first = number.min(*first);
}

/// An action as policies are about it.
#[derive(Clone, Copy)]
pub(crate) struct Sides<'a> {
    /// Its numbers in the index, as one that changes nothing and as one that changes something.
    pub(crate) numbers: &'a [Box<[u32]>; 2],
    /// Whether it is registered as changing something, and so is never asked about as one that does not.
    pub(crate) mutates: bool,
}

impl<'a> Sides<'a> {
    /// Those that an ask may be about. A read may be claimed to be a change, and is ruled as both then.
    fn asked(self) -> &'a [Box<[u32]>] {
        if self.mutates {
            &self.numbers[1..]
        } else {
            self.numbers
        }
    }
}

/// What to tell of a tenant's policies, which this index knows by their numbers, if these are all actions. Of each kind
/// one policy is named.
pub(crate) fn warnings(rules: &[TenantRule], index: &Index, actions: &[Sides<'_>]) -> Vec<Diagnostic> {
    let is_tried = rules.iter().any(|rule| rule.presence != Presence::Always);
    let worlds = WORLDS.into_iter().take(if is_tried { 2 } else { 1 });
    let found = worlds.map(|counts| too_much(rules, index, actions, counts));
    let [obligations, groups, patterns] = found.fold([None; 3], first_of_each);
    let told = [obligations, groups, patterns].into_iter().zip(SAID);
    let told = told.filter_map(|(number, [message, help])| {
        let statement = &rules[number? as usize].rule.statement;
        let found = Diagnostic::error(message)
            .with_help(help)
            .together()
            .into_warning();
        Some(found.about(&statement.id).at(statement.place()))
    });
    told.collect()
}

/// A policy of each kind of which there is too much for asks of some action, where these policies count.
fn too_much(
    rules: &[TenantRule],
    index: &Index,
    actions: &[Sides<'_>],
    counts: fn(Presence) -> bool,
) -> [Option<u32>; 3] {
    let mut wanted: Vec<(u32, &[u32])> = index.about_everybody().collect();
    // The same of them each time, should there be too many.
    wanted.sort_unstable_by_key(|(action, _)| *action);
    let mut left = LOOKED_AT_MAX;
    let wanted = wanted.into_iter();
    let wanted = wanted.map(|(action, policies)| (action, Wanted::of(rules, policies, counts, &mut left)));
    let mut search = Search {
        wanted: wanted.collect(),
        many: [None; 2],
        patterns: None,
        in_vain: 0,
    };
    let mut looked_at = HashSet::new();
    for action in actions {
        let sides = action.asked();
        // Most actions are named by no scope of their own.
        if !looked_at.insert(sides) {
            continue;
        }
        // What both sides of a claim want is done, and each of them is evaluated by itself.
        search.look_for_many(&joined(sides));
        for side in sides {
            search.look_for_patterns(side);
        }
    }
    let [obligations, groups] = search.many;
    [obligations, groups, search.patterns]
}

/// The numbers of these sides, each once.
fn joined(sides: &[Box<[u32]>]) -> Vec<u32> {
    let mut numbers: Vec<u32> = sides.iter().flat_map(|side| side.iter().copied()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// The look for what there is too much of.
struct Search<'r> {
    /// What is wanted, by the numbers that policies are kept under for the actions in their scopes.
    wanted: HashMap<u32, Wanted<'r>>,
    /// A policy of those that want too many obligations, and of those that name too many groups, once there are any.
    many: [Option<u32>; 2],
    /// A policy of those that have too many patterns, once there are any.
    patterns: Option<u32>,
    /// How often there seemed to be too many obligations or groups, of which several were the same.
    in_vain: usize,
}

impl<'r> Search<'r> {
    /// Looks for too many obligations and groups among what is wanted under these numbers.
    fn look_for_many(&mut self, numbers: &[u32]) {
        let counts = self.parts(numbers).map(Wanted::counts);
        let counts = counts.fold([0; 2], |sums: [usize; 2], counts| {
            [sums[0] + counts[0], sums[1] + counts[1]]
        });
        let mut unknown = are_too_many(counts).into_iter().zip(self.many);
        let may_be_new = unknown.any(|(are_too_many, known)| are_too_many && known.is_none());
        if !may_be_new || self.in_vain >= IN_VAIN_MAX {
            return;
        }
        let all = self.parts(numbers).fold(Wanted::default(), Wanted::and);
        let [obligations, groups] = all.too_many();
        let before = self.many;
        self.many = [before[0].or(obligations), before[1].or(groups)];
        self.in_vain += usize::from(self.many == before);
    }

    /// Looks for too many patterns among the policies under these numbers.
    fn look_for_patterns(&mut self, numbers: &[u32]) {
        if self.patterns.is_some() {
            return;
        }
        for kind in [0, 1] {
            let steps = self.parts(numbers).map(|part| part.steps[kind]);
            if steps.fold(0, u64::saturating_add) > STEPS_MAX {
                let firsts = self
                    .parts(numbers)
                    .filter_map(|part| part.first_with_patterns[kind]);
                self.patterns = firsts.min();
                return;
            }
        }
    }

    /// What is wanted under these numbers, of each.
    fn parts(&self, numbers: &[u32]) -> impl Iterator<Item = &Wanted<'r>> {
        let parts = numbers.iter();
        parts.filter_map(move |number| self.wanted.get(number))
    }
}

/// The first of both, of each kind.
fn first_of_each(ours: [Option<u32>; 3], theirs: [Option<u32>; 3]) -> [Option<u32>; 3] {
    [0, 1, 2].map(|kind: usize| [ours[kind], theirs[kind]].into_iter().flatten().min())
}

#[cfg(test)]
mod tests {
    use crate::rule::tests::{numbered, set};
    use crate::tenant::Mode;
    use crate::world::World;

    /// What is told of these policies, in two texts, because one has no room for all: which is named, and what of it.
    fn told(policies: &[String], mode: Mode) -> Vec<String> {
        told_in(&World::default(), policies, mode)
    }

    /// What is told of them where this is registered.
    fn told_in(world: &World, policies: &[String], mode: Mode) -> Vec<String> {
        let (some, others) = policies.split_at(policies.len() / 2);
        let [some, others] = [some, others].map(numbered);
        let texts = [
            ("mine", some.as_str(), mode.clone()),
            ("other", others.as_str(), mode),
        ];
        let set = set(world, "", &texts);
        let told = set.too_much_together();
        let told = told.map(|found| format!("{} {}", found.policy.as_deref().unwrap(), found.message));
        told.collect()
    }

    fn many(count: usize, policy: impl Fn(usize) -> String) -> Vec<String> {
        (0..count).map(policy).collect()
    }

    const ALL: &str = "(principal, action, resource)";
    const READING: &str = "(principal, action in Action::\"read\", resource)";
    const CHANGING: &str = "(principal, action in Action::\"mutate\", resource)";

    /// A world whose action is registered as a read.
    fn of_reads() -> World {
        World {
            registered_as_mutating: false,
            ..World::default()
        }
    }

    #[test]
    fn obligations_that_are_too_many_for_one_ask_are_told_when_they_are_written() {
        let advising = |scope: &'static str| {
            move |number: usize| format!("@decision(\"advise\") @obligation(\"o{number}\") permit {scope};")
        };
        assert_eq!(told(&many(64, advising(ALL)), Mode::Enforced).len(), 0);
        for mode in [Mode::Enforced, Mode::Shadow] {
            let found = told(&many(65, advising(ALL)), mode);
            assert_eq!(found.len(), 1);
            assert!(found[0].starts_with("mine/0 the policies about an action want more than 64 things"));
        }
        // Two scopes are about the same action, and a third one is about others.
        let all = many(40, advising(ALL));
        let others = |scope| many(65, advising(scope)).split_off(40);
        assert_eq!(
            told(&[&all[..], &others(CHANGING)[..]].concat(), Mode::Enforced).len(),
            1
        );
        // A read may be claimed to be a change, and what either wants is done then. A change is never asked as a read.
        let apart = [&all[..], &others(READING)[..12], &others(CHANGING)[12..]].concat();
        for policies in [apart, many(65, advising(READING))] {
            assert_eq!(told(&policies, Mode::Enforced).len(), 0);
            assert_eq!(told_in(&of_reads(), &policies, Mode::Enforced).len(), 1);
        }
        // Nothing is wrong with what is the same, is denied anyway, is only redacted, or is about somebody.
        for policy in [
            "@obligation(\"o\") permit (principal, action, resource);",
            "@obligation(\"o{}\") forbid (principal, action, resource);",
            "@decision(\"advise\") @obligation(\"redact:parameters.o{}\") permit (principal, action, resource);",
            "@obligation(\"o{}\") permit (principal in Team::\"t{}\", action, resource);",
        ] {
            let all = many(65, |number| policy.replace("{}", &number.to_string()));
            assert_eq!(told(&all, Mode::Enforced).len(), 0, "{policy}");
        }
    }

    #[test]
    fn policies_that_list_so_many_actions_that_it_takes_long_are_left_out() {
        let redactions = many(1_600, |number| format!("redact:parameters.p{number}")).join(",");
        let listing = |count: usize| {
            let actions = many(count, |number| format!("Action::\"x{number}\"")).join(", ");
            format!("@obligation(\"{redactions}\") permit (principal, action in [{actions}], resource);")
        };
        let advising = many(65, |number| {
            format!("@decision(\"advise\") @obligation(\"o{number}\") permit {CHANGING};")
        });
        for (count, is_told) in [(600, true), (700, false)] {
            let all = [vec![listing(count)], advising.clone()].concat();
            assert_eq!(told(&all, Mode::Enforced).len(), usize::from(is_told), "{count}");
        }
    }

    #[test]
    fn groups_that_are_too_many_for_one_ask_are_told_when_they_are_written() {
        let asking = |number: usize| {
            format!("@decision(\"require_approval\") @approvers(\"g{number}\") permit {ALL};")
        };
        assert_eq!(told(&many(64, asking), Mode::Enforced).len(), 0);
        let found = told(&many(65, asking), Mode::Enforced);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("mine/0 the policies about an action want more than 64 groups"));
    }

    #[test]
    fn patterns_that_are_too_many_for_long_names_and_tags_are_told_when_they_are_written() {
        let pattern = format!("*{}", "a".repeat(250));
        let plain = || format!("permit {ALL};");
        for (count, text, is_told) in [
            (1_000, "context.agent.name", false),
            (1_100, "context.agent.name", true),
            (250, "principal.getTag(\"x\")", false),
            (270, "principal.getTag(\"x\")", true),
            (1_100, "context.input.text", false),
        ] {
            let like = |_: usize| format!("forbid {ALL} when {{ {text} like \"{pattern}\" }};");
            let all = [vec![plain()], many(count, like)].concat();
            let found = told(&all, Mode::Enforced);
            assert_eq!(found.len(), usize::from(is_told), "{count} of {text}");
            assert!(
                !is_told || found[0].starts_with("mine/1 the policies about an action have more patterns")
            );
        }
    }

    #[test]
    fn patterns_of_reads_and_of_changes_are_not_added_up() {
        let pattern = &format!("*{}", "a".repeat(250));
        let like = |scope: &'static str| {
            move |_: usize| format!("forbid {scope} when {{ context.agent.name like \"{pattern}\" }};")
        };
        let apart = [many(600, like(READING)), many(600, like(CHANGING))].concat();
        assert_eq!(told_in(&of_reads(), &apart, Mode::Enforced).len(), 0);
        let agents = "(principal is Agent, action, resource)";
        let users = "(principal is User, action, resource)";
        let of_both = [many(600, like(agents)), many(600, like(users))].concat();
        assert_eq!(told_in(&of_reads(), &of_both, Mode::Enforced).len(), 0);
        let together = [many(600, like(READING)), many(600, like(ALL))].concat();
        assert_eq!(told_in(&of_reads(), &together, Mode::Enforced).len(), 1);
        assert_eq!(told(&together, Mode::Enforced).len(), 0);
    }
}
