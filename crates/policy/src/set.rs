//! The policies of a tenant under the operator's, ready to be asked: immutable, and shared by all decisions.

use crate::base::BasePolicies;
use crate::compile::{Candidate, CompiledPolicy, Compiler, Registry, TenantPermits};
use crate::condition;
use crate::diagnostics::{Diagnostic, Diagnostics};
use crate::entry::Entry;
use crate::index::Index;
use crate::read_set::{Member, ReadSet};
use crate::ruling::PolicyId;
use crate::statement::Statement;
use crate::tenant::{Mode, TenantPolicy};
use crate::together::{self, Sides};
use crate::vocabulary::{Action, Rule, Vocabulary};
use canon::Digest;
use model::{AgentId, SlashFreeName};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// Policies that were validated against a registry. Cloning shares everything.
#[derive(Clone)]
pub struct PolicySet {
    pub(crate) contents: Arc<Contents>,
}

/// What a policy set is made of.
pub(crate) struct Contents {
    pub(crate) vocabulary: Arc<Vocabulary>,
    /// The tenant's policies, by the numbers that `index` knows them by.
    pub(crate) rules: Vec<TenantRule>,
    index: Index,
    /// The numbers in `index` of each action's sides.
    numbers: Vec<[Box<[u32]>; 2]>,
    /// What is tried beside what is enforced.
    pub(crate) trials: Vec<Trial>,
    digest: Digest,
    text: Arc<str>,
    /// What any of the conditions looks at.
    pub(crate) reads: ReadSet,
    warnings: Vec<Diagnostic>,
    /// Kept as long as this set is, so that the compiler still knows them when one of them changes.
    pub(crate) policies: Vec<Arc<CompiledPolicy>>,
}

/// A tenant's policy, and where it counts.
#[derive(Debug)]
pub(crate) struct TenantRule {
    pub(crate) rule: Rule,
    pub(crate) presence: Presence,
}

/// Where a policy counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Everywhere.
    Always,
    /// Wherever this trial, which has the same name and would take its place, does not count.
    Without(usize),
    /// Wherever this trial counts, which it belongs to.
    With(usize),
}

/// A named policy that is tried.
#[derive(Debug)]
pub(crate) struct Trial {
    /// For whom it counts; for nobody if it is a shadow.
    agents: Arc<BTreeSet<AgentId>>,
}

/// Whose policies count.
#[derive(Debug, Clone, Copy)]
pub(crate) enum World<'a> {
    /// What is in force for this agent.
    InForce(&'a AgentId),
    /// What would be in force if everything on trial were enforced.
    Promoted,
}

impl PolicySet {
    /// These policies for this registry, as new ones, or everything that is wrong with them. [`Compiler`] does the same
    /// for many sets.
    pub fn compile(
        base: &BasePolicies,
        tenant: &[TenantPolicy],
        registry: Registry<'_>,
    ) -> Result<Self, Diagnostics> {
        let candidate = Candidate {
            policies: tenant,
            registry,
            permits: TenantPermits::Allowed,
        };
        Compiler::new(base.clone()).compile_new(candidate, None)
    }

    /// The set of these policies. Their names differ but for one on trial beside one that is enforced.
    pub(crate) fn new<'a>(
        vocabulary: Arc<Vocabulary>,
        policies: Vec<Arc<CompiledPolicy>>,
        modes: impl Iterator<Item = (&'a SlashFreeName, &'a Mode)> + Clone,
    ) -> Self {
        let (trials, places) = trials(modes.clone());
        let mut rules = Vec::new();
        let mut index = Index::default();
        for (policy, (name, mode)) in policies.iter().zip(modes) {
            let presence = match (places.get(name), mode.is_trial()) {
                (None, _) => Presence::Always,
                (Some(trial), false) => Presence::Without(*trial),
                (Some(trial), true) => Presence::With(*trial),
            };
            for statement in &policy.statements {
                let number = u32::try_from(rules.len()).expect("four billion policies fit into no memory");
                index.add(number, &statement.scope);
                let rule = Rule::whole(statement);
                rules.push(TenantRule { rule, presence });
            }
        }
        let warnings = policies.iter().flat_map(|policy| policy.warnings());
        let numbers = numbers(&vocabulary, &index);
        let warnings = warnings
            .chain(condition::warnings(&rules))
            .chain(together::warnings(&rules, &index, &sides(&vocabulary, &numbers)));
        let text = text(&vocabulary, &rules, &trials);
        let contents = Contents {
            digest: Digest::of(text.as_bytes()),
            text: text.into(),
            numbers,
            reads: reads(&vocabulary, &rules),
            warnings: vocabulary.warnings.iter().cloned().chain(warnings).collect(),
            vocabulary,
            rules,
            index,
            trials,
            policies,
        };
        Self {
            contents: Arc::new(contents),
        }
    }

    /// SHA-256 of the canonical JSON of all policies that are in force: an array of an array for each, in the order of
    /// their ids. It holds the id and the text; and for a link or a canary an object, with the `values` of the slots and
    /// the ids of the agents that the `canary` is for. A canary without policies that takes the place of some is there with its
    /// name and an empty text.
    pub fn digest(&self) -> Digest {
        self.contents.digest
    }

    /// The digest of the base policies among them.
    pub fn base_digest(&self) -> Digest {
        self.contents.vocabulary.base.digest()
    }

    /// The text that the digest is of.
    pub fn text(&self) -> &Arc<str> {
        &self.contents.text
    }

    /// Whether any of the policies looks at the run of an ask: then somebody has to keep what runs have seen.
    pub fn looks_at_runs(&self) -> bool {
        self.contents.reads.intersects(ReadSet::member(Member::Run))
    }

    /// Whether any of the policies looks at how much is used: then somebody has to look that up for every ask.
    pub fn looks_at_usage(&self) -> bool {
        self.contents.reads.intersects(ReadSet::member(Member::Usage))
    }

    /// What is not wrong with the policies but odd, such as one that has nothing to do yet.
    pub fn warnings(&self) -> &[Diagnostic] {
        &self.contents.warnings
    }

    /// Those of them that say what is wrong with policies for users only. Asks for a user may be denied because such a
    /// policy fails.
    pub fn wrong_for_users(&self) -> impl Iterator<Item = &Diagnostic> {
        self.warnings().iter().filter(|warning| warning.is_for_users)
    }

    /// Those of them that say that policies are too much together. Asks that are about all of these may be denied,
    /// because the longest fail or more is wanted than an ask may have.
    pub fn too_much_together(&self) -> impl Iterator<Item = &Diagnostic> {
        self.warnings().iter().filter(|warning| warning.is_together)
    }

    /// The ids of all policies, sorted.
    pub fn policy_ids(&self) -> Vec<&PolicyId> {
        let base = self.contents.vocabulary.base.policies.iter();
        let base = base.map(|parsed| &parsed.statement);
        let tenant = self
            .contents
            .policies
            .iter()
            .flat_map(|policy| &policy.statements);
        let ids: BTreeSet<_> = base.chain(tenant).map(|statement| &statement.id).collect();
        ids.into_iter().collect()
    }

    /// Whether anything counts for some agents only.
    pub fn has_canaries(&self) -> bool {
        self.contents.trials.iter().any(|trial| !trial.agents.is_empty())
    }

    /// Whether anything is tried beside what is enforced.
    pub(crate) fn has_trials(&self) -> bool {
        !self.contents.trials.is_empty()
    }
}

impl Contents {
    /// Where the policies that can be about this are looked up.
    pub(crate) fn numbers(&self, action: &Action, mutates: bool) -> &[u32] {
        &self.numbers[action.number][usize::from(mutates)]
    }

    pub(crate) const fn index(&self) -> &Index {
        &self.index
    }

    /// For whom a policy counts.
    pub(crate) fn mode(&self, presence: Presence) -> Mode {
        match presence {
            Presence::Always | Presence::Without(_) => Mode::Enforced,
            Presence::With(trial) if self.trials[trial].agents.is_empty() => Mode::Shadow,
            Presence::With(trial) => Mode::Canary(Arc::clone(&self.trials[trial].agents)),
        }
    }

    /// How many rulings are made of a question: where something is on trial, what would come of that is one of its own.
    pub(crate) fn rulings(&self) -> u64 {
        if self.trials.is_empty() { 1 } else { 2 }
    }

    /// Whether a policy counts in this world.
    pub(crate) fn counts(&self, presence: Presence, world: World<'_>) -> bool {
        let is_tried = |trial: usize| match world {
            World::InForce(agent) => self.trials[trial].agents.contains(agent),
            World::Promoted => true,
        };
        match presence {
            Presence::Always => true,
            Presence::Without(trial) => !is_tried(trial),
            Presence::With(trial) => is_tried(trial),
        }
    }
}

impl std::fmt::Debug for PolicySet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PolicySet({})", self.contents.digest)
    }
}

/// The trials, and which name has which.
fn trials<'a>(
    modes: impl Iterator<Item = (&'a SlashFreeName, &'a Mode)>,
) -> (Vec<Trial>, HashMap<&'a SlashFreeName, usize>) {
    let (mut trials, mut places) = (Vec::new(), HashMap::new());
    for (name, mode) in modes {
        let agents = match mode {
            Mode::Enforced => continue,
            Mode::Shadow => Arc::default(),
            Mode::Canary(agents) => Arc::clone(agents),
        };
        places.insert(name, trials.len());
        trials.push(Trial { agents });
    }
    (trials, places)
}

fn numbers(vocabulary: &Vocabulary, index: &Index) -> Vec<[Box<[u32]>; 2]> {
    let actions = vocabulary.actions.values().flat_map(HashMap::values);
    let mut numbers: Vec<_> = actions
        .map(|action| {
            let of = |side: usize| index.action(action.sides[side].position()).as_slice().into();
            (action.number, [of(0), of(1)])
        })
        .collect();
    numbers.sort_unstable_by_key(|(number, _)| *number);
    numbers.into_iter().map(|(_, numbers)| numbers).collect()
}

/// The sides of each action, of which these are the numbers in the index.
fn sides<'n>(vocabulary: &Vocabulary, numbers: &'n [[Box<[u32]>; 2]]) -> Vec<Sides<'n>> {
    let sides = numbers.iter().map(|numbers| Sides {
        numbers,
        mutates: false,
    });
    let mut sides: Vec<_> = sides.collect();
    for action in vocabulary.actions.values().flat_map(HashMap::values) {
        sides[action.number].mutates = action.mutates;
    }
    sides
}

fn text(vocabulary: &Vocabulary, rules: &[TenantRule], trials: &[Trial]) -> String {
    let base = vocabulary.base.policies.iter();
    let base = base.map(|parsed| (&*parsed.statement, None));
    let tenant = rules
        .iter()
        .filter_map(|TenantRule { rule, presence }| match presence {
            Presence::With(trial) => {
                let agents = &*trials[*trial].agents;
                (!agents.is_empty()).then_some((&*rule.statement, Some(agents)))
            }
            Presence::Always | Presence::Without(_) => Some((&*rule.statement, None)),
        });
    let gone = displaced(rules, trials);
    let gone = gone.map(|(statement, agents)| (statement.id.parts().0, &**agents));
    text_of(base.chain(tenant), gone)
}

/// The policies that are enforced and have nothing in their place for the agents of a canary, and these agents.
pub(crate) fn displaced<'s>(
    rules: &'s [TenantRule],
    trials: &'s [Trial],
) -> impl Iterator<Item = (&'s Statement, &'s Arc<BTreeSet<AgentId>>)> {
    let with = rules.iter().filter_map(|rule| match rule.presence {
        Presence::With(trial) => Some(trial),
        Presence::Always | Presence::Without(_) => None,
    });
    let with: HashSet<_> = with.collect();
    let without = rules.iter().filter_map(move |rule| match rule.presence {
        Presence::Without(trial) if !with.contains(&trial) => {
            Some((&*rule.rule.statement, &trials[trial].agents))
        }
        _ => None,
    });
    without.filter(|(_, agents)| !agents.is_empty())
}

/// The digest of these policies, each with the agents of its canary if it is one.
pub(crate) fn digest_of<'a>(
    policies: impl Iterator<Item = (&'a Statement, Option<&'a BTreeSet<AgentId>>)>,
) -> Digest {
    Digest::of(text_of(policies, std::iter::empty()).as_bytes())
}

fn text_of<'a>(
    policies: impl Iterator<Item = (&'a Statement, Option<&'a BTreeSet<AgentId>>)>,
    gone: impl Iterator<Item = (&'a str, &'a BTreeSet<AgentId>)>,
) -> String {
    // What is enforced comes before the canary that would take its place; one without policies is known by its name alone.
    let mut sorted: BTreeMap<_, _> = policies
        .map(|(statement, canary)| {
            (
                (statement.id.as_str(), canary.is_some()),
                Entry::of(statement, canary),
            )
        })
        .collect();
    sorted.extend(gone.map(|(name, agents)| ((name, true), Entry::of_nothing(name, agents))));
    let text = serde_json::to_string(&sorted.values().collect::<Vec<_>>());
    text.expect("strings have no fallible serializers")
}

fn reads(vocabulary: &Vocabulary, rules: &[TenantRule]) -> ReadSet {
    let own = rules.iter().map(|rule| &rule.rule);
    let conditions = own
        .chain(&vocabulary.base_rules)
        .filter_map(|rule| rule.condition.as_ref());
    conditions.fold(ReadSet::default(), |reads, condition| {
        reads.union(condition.reads)
    })
}
