//! From texts to a [`PolicySet`]: parsed, validated as strictly as Cedar can, and remembered.

use crate::annotations::PolicyEffect;
use crate::base::BasePolicies;
use crate::cache::{Recent, WeakCache};
use crate::condition;
use crate::diagnostics::{Diagnostic, Diagnostics, Findings, GATHERED_MAX};
use crate::like;
use crate::nobody;
use crate::obligations;
use crate::parameters::{self, ParameterRules};
use crate::parse::{self, Parsed};
use crate::ruling::PolicyId;
use crate::schema;
use crate::set::PolicySet;
use crate::statement::Statement;
use crate::tenant::{LINKED_BYTES_MAX, LINKS_MAX, TenantPolicy};
use crate::text;
use crate::validate::undeclared::Span;
use crate::validate::{self, TOLD_MAX, Validated, Validator};
use crate::vocabulary::{self, Vocabulary};
use amounts::{AMOUNTS, CHECKS, CHECKS_MAX, TOO_WIDE, amounts};
use canon::Digest;
use cedar_policy::Schema;
use imbl::OrdMap;
use model::{AttributeType, Name, SlashFreeName, Tool, ToolAction};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

mod amounts;
mod hidden;
mod unseen;
mod weight;

/// How many schemas a compiler keeps for the next change: of the registries whose policies are being worked on.
const SCHEMAS_MAX: usize = 8;
/// How many bytes they take together, as they are estimated, where the newest does not take more alone: that of a
/// registry with thousands of actions has tens of millions, and each change of a tool makes another one.
const SCHEMAS_BYTES_MAX: usize = 64 << 20;

/// What a tenant has registered, as far as policies may speak of it.
#[derive(Debug, Clone, Copy)]
pub struct Registry<'a> {
    /// Its tools.
    pub tools: &'a OrdMap<SlashFreeName, Arc<Tool>>,
    /// The context attributes that callers may send, and their types.
    pub attributes: &'a BTreeMap<Name, AttributeType>,
}

/// What a tenant wants to have in force.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// All of its policies.
    pub policies: &'a [TenantPolicy],
    /// What they may speak of.
    pub registry: Registry<'a>,
    /// Whether the operator lets tenants permit anything.
    pub permits: TenantPermits,
}

/// Whether tenants may permit what the base policies do not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TenantPermits {
    /// They may; what the base policies forbid stays forbidden.
    #[default]
    Allowed,
    /// They may not: all they can write is a `forbid`, and advice.
    Forbidden,
}

/// Compiles policies under the operator's base policies. It remembers what is in use, so that a change to one policy of a
/// thousand compiles one, and so that tenants with equal tools share what is equal.
///
/// Compiling takes milliseconds to seconds. It blocks nobody, but has no place on a thread that answers asks.
#[derive(Debug)]
pub struct Compiler {
    base: BasePolicies,
    parameter_rules: WeakCache<Digest, ParameterRules>,
    vocabularies: WeakCache<Digest, Vocabulary>,
    /// Large, and needed only when something is validated.
    schemas: Recent<Digest, Schema>,
    /// By the policy and the vocabulary that it was validated against.
    policies: WeakCache<[Digest; 2], CompiledPolicy>,
}

/// Whether policies are in force already.
#[derive(Clone, Copy)]
enum Stage<'a> {
    InForce,
    /// Somebody wants to put them in force in the place of these, if there are any, as long as it goes on.
    New {
        before: Option<Candidate<'a>>,
        goes_on: GoesOn<'a>,
    },
}

/// Says, between parts of what takes long, whether it goes on.
pub(crate) type GoesOn<'a> = &'a dyn Fn() -> bool;

/// A policy, or what is wrong with it.
type Compiled = Result<Arc<CompiledPolicy>, Diagnostics>;

/// A policy with which nothing is wrong, or nothing but that nobody puts it in force.
type Sound<'p> = (&'p TenantPolicy, Arc<CompiledPolicy>);

/// A named policy that was validated.
#[derive(Debug)]
pub(crate) struct CompiledPolicy {
    pub(crate) statements: Vec<Arc<Statement>>,
    pub(crate) warnings: Vec<Diagnostic>,
    /// Why nobody puts it in force, because parts of it can never match, test for what nothing has, ask for what is not
    /// known of what they name, are wrong for users only, are too long, go through too much or take too long. One that
    /// is keeps nothing from starting.
    pub(crate) unfit: Vec<Diagnostic>,
    /// The tests for members that something has which it is about.
    pub(crate) declared: HashSet<Span>,
    /// Those of its policies of which not all was looked for that is wrong for users, by their ids.
    pub(crate) more_for_users: HashSet<String>,
    /// How much there was to validate.
    pub(crate) checks: usize,
}

impl Compiler {
    /// A compiler under these base policies.
    pub fn new(base: BasePolicies) -> Self {
        Self {
            base,
            parameter_rules: WeakCache::default(),
            vocabularies: WeakCache::default(),
            schemas: Recent::new(SCHEMAS_MAX, SCHEMAS_BYTES_MAX),
            policies: WeakCache::default(),
        }
    }

    /// The base policies.
    pub const fn base(&self) -> &BasePolicies {
        &self.base
    }

    /// These policies, which are in force, or everything that is wrong with them. Whatever is only asked of new ones is
    /// not asked of them, so that nobody's policies are lost, nor is the start of a gateway.
    pub fn compile(&self, candidate: Candidate<'_>) -> Result<PolicySet, Diagnostics> {
        self.compile_for(candidate, Stage::InForce)
    }

    /// Like [`Self::compile`], with the bounds that hold for new policies: there may not be too much of them, nor may
    /// their links make too much of them, and none may be there that can never match, tests for a member that nothing
    /// has, asks for what is not known of what it names, is wrong for users, has too long a name, pattern, path or
    /// condition, an `in` that goes through too much, or too much of a text within `if`s. Nor may the schemas of the
    /// registry take too much memory, or give policies too many types to look at. What was so before, with what is in
    /// force now, does not stand in the way of other changes.
    pub fn compile_new(
        &self,
        candidate: Candidate<'_>,
        before: Option<Candidate<'_>>,
    ) -> Result<PolicySet, Diagnostics> {
        self.compile_new_while(candidate, before, &|| true)
    }

    /// Like [`Self::compile_new`], for whoever lets others come in between, or does not need it any more before the
    /// end. `goes_on` is asked on this thread, before each policy and each kind of ask that one is validated for. Once
    /// it says no, policies are refused without being looked at, and nothing is remembered of those.
    pub fn compile_new_while(
        &self,
        candidate: Candidate<'_>,
        before: Option<Candidate<'_>>,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<PolicySet, Diagnostics> {
        let in_force = before.map_or(&[][..], |before| before.policies);
        check_texts(candidate.policies, in_force)?;
        check_links(candidate.policies, in_force)?;
        self.check_weight(candidate.registry, before.map(|before| before.registry))?;
        self.compile_for(candidate, Stage::New { before, goes_on })
    }

    fn compile_for(&self, candidate: Candidate<'_>, stage: Stage<'_>) -> Result<PolicySet, Diagnostics> {
        let registry = vocabulary::digest(candidate.registry);
        let vocabulary = self.vocabulary(registry, candidate.registry).map_err(|wrong| {
            // What can be told without a vocabulary is told as well.
            let unread = candidate
                .policies
                .iter()
                .filter_map(|policy| parsed(policy).err());
            let mut findings = Findings::default();
            findings.extend(unread.flat_map(|found| found.0));
            Diagnostics([wrong.0, findings.into_diagnostics().0].concat())
        })?;
        let mut faults = Findings::default();
        faults.extend(name_faults(candidate.policies));
        let mut sound = Vec::with_capacity(candidate.policies.len());
        for (policy, compiled) in candidate
            .policies
            .iter()
            .zip(self.validated(registry, candidate, stage, CHECKS_MAX)?)
        {
            match compiled {
                Ok(compiled) => sound.push((policy, compiled)),
                Err(found) => faults.extend(found.0),
            }
        }
        let policies: Vec<_> = sound.iter().map(|(_, compiled)| Arc::clone(compiled)).collect();
        if candidate.permits == TenantPermits::Forbidden {
            let statements = policies.iter().flat_map(|policy| &policy.statements);
            faults.extend(statements.filter_map(|statement| permit_fault(statement)));
        }
        if let Stage::New { before, .. } = stage {
            self.tell_newly_unfit(&sound, before, &mut faults);
            let hidden = before.map(|before| hidden::findings(candidate, &policies, before));
            let hidden = at_other_places(faults.told(), hidden.unwrap_or_default());
            faults.extend(hidden);
            faults.extend(self.too_much(&sound, candidate.registry, before));
        }
        if !faults.is_empty() {
            return Err(faults.into_diagnostics());
        }
        let modes = candidate
            .policies
            .iter()
            .map(|policy| (&policy.name, &policy.mode));
        Ok(PolicySet::new(vocabulary, policies, modes))
    }

    /// Tells what keeps these policies from being put in force, without what was said of the same ones before, as they were
    /// in force.
    fn tell_newly_unfit(&self, policies: &[Sound<'_>], before: Option<Candidate<'_>>, faults: &mut Findings) {
        let unfit: Vec<_> = policies
            .iter()
            .filter(|(_, found)| !found.unfit.is_empty())
            .map(|(policy, found)| (digest(policy), found))
            .collect();
        if unfit.is_empty() {
            return;
        }
        let digests = unfit.iter().map(|(digest, _)| *digest).collect();
        let known = before.map(|before| self.compiled_of(before, &digests));
        let known = known.unwrap_or_default();
        for (digest, found) in unfit {
            let was_said = |finding: &&Diagnostic| {
                let Some(known) = known.get(&digest) else {
                    return false;
                };
                // What a policy in force tests for may be registered later, so only what was there must not go.
                finding.is_of_undeclared && !known.has_declared(finding)
                    || known.unfit.iter().any(|known| known.is_same_as(finding))
                    || finding.is_for_users && known.has_more_for_users(finding)
            };
            faults.extend(found.unfit.iter().filter(|finding| !was_said(finding)).cloned());
        }
    }

    /// What there is too much of in these policies, if there is more of it than there was before.
    fn too_much(
        &self,
        policies: &[Sound<'_>],
        registry: Registry<'_>,
        before: Option<Candidate<'_>>,
    ) -> Vec<Diagnostic> {
        let now = amounts(policies);
        if now
            .iter()
            .zip(AMOUNTS)
            .all(|(amount, (_, bound, _))| *amount <= bound)
        {
            return Vec::new();
        }
        let in_force = self.in_force(before);
        let mut were = amounts(&in_force);
        let [.., checks] = &mut were;
        *checks = self.checks_before(before, registry, CHECKS_MAX);
        let all = now.into_iter().zip(AMOUNTS).zip(were);
        let exceeded = all.filter(|((amount, (_, bound, _)), before)| amount > bound.max(before));
        let faults = exceeded.map(|((amount, (what, bound, help)), _)| {
            Diagnostic::error(format!("the set has {amount} {what}, and may have {bound}")).with_help(help)
        });
        faults.collect()
    }

    /// Those of these policies that have these digests. What cannot be compiled was not in force.
    fn compiled_of(
        &self,
        candidate: Candidate<'_>,
        digests: &HashSet<Digest>,
    ) -> HashMap<Digest, Arc<CompiledPolicy>> {
        let same = candidate
            .policies
            .iter()
            .filter(|policy| digests.contains(&digest(policy)));
        let same: Vec<TenantPolicy> = same.cloned().collect();
        let candidate = Candidate {
            policies: &same,
            ..candidate
        };
        let compiled = self.policies(
            vocabulary::digest(candidate.registry),
            candidate,
            usize::MAX,
            None,
        );
        let compiled = same.iter().zip(compiled.into_iter().flatten());
        compiled
            .filter_map(|(policy, compiled)| Some((digest(policy), compiled.ok()?)))
            .collect()
    }

    /// Why no parameters of this action can be checked against its schema, if that is so: its asks are denied, and a change
    /// should not bring it in.
    pub fn unbounded(&self, tool: &SlashFreeName, action: &ToolAction) -> Option<Diagnostic> {
        let rules = self
            .parameter_rules
            .get(parameters::digest(action), || ParameterRules::of(action))
            .ok()?;
        let fault = rules.fault()?.clone();
        Some(vocabulary::of_schema(tool, &action.name, fault))
    }

    fn vocabulary(&self, digest: Digest, registry: Registry<'_>) -> Result<Arc<Vocabulary>, Diagnostics> {
        self.vocabularies.get(digest, || {
            let schema = self.schema(digest, registry)?;
            Vocabulary::new(&self.base, registry, &schema, &self.parameter_rules)
        })
    }

    fn schema(&self, digest: Digest, registry: Registry<'_>) -> Result<Arc<Schema>, Diagnostics> {
        self.schemas.get(digest, || schema::weighed(registry))
    }

    /// These policies as they were in force. What cannot be compiled was not.
    fn in_force<'p>(&self, before: Option<Candidate<'p>>) -> Vec<Sound<'p>> {
        let Some(before) = before else {
            return Vec::new();
        };
        let compiled = self.policies(vocabulary::digest(before.registry), before, usize::MAX, None);
        let compiled = before.policies.iter().zip(compiled.into_iter().flatten());
        compiled
            .filter_map(|(policy, compiled)| Some((policy, compiled.ok()?)))
            .collect()
    }

    /// Each policy, validated against the registry with this digest, or what is wrong with it. For new ones there is a
    /// bound, unless what was in force before took more.
    fn validated(
        &self,
        registry: Digest,
        candidate: Candidate<'_>,
        stage: Stage<'_>,
        checks_max: usize,
    ) -> Result<Vec<Compiled>, Diagnostics> {
        let Stage::New { before, goes_on } = stage else {
            return self.policies(registry, candidate, usize::MAX, None);
        };
        let compiled = self.policies(registry, candidate, checks_max, Some(goes_on))?;
        let is_too_wide = |finding: &Diagnostic| finding.help.as_deref() == Some(TOO_WIDE);
        let found = compiled.iter().filter_map(|compiled| compiled.as_ref().err());
        if !found.flat_map(|found| &found.0).any(is_too_wide) {
            return Ok(compiled);
        }
        let before = self.checks_before(before, candidate.registry, checks_max);
        if before <= checks_max {
            return Ok(compiled);
        }
        self.policies(registry, candidate, before, Some(goes_on))
    }

    /// How much there was to validate in what was in force. If that is above the bound, how much there is of it under this
    /// registry, if that is more: otherwise no tool could be added. That is counted, and not validated.
    fn checks_before(
        &self,
        before: Option<Candidate<'_>>,
        registry: Registry<'_>,
        checks_max: usize,
    ) -> usize {
        let [.., checks] = amounts(&self.in_force(before));
        let Some(before) = before.filter(|_| checks > checks_max) else {
            return checks;
        };
        let Ok(schema) = self.schema(vocabulary::digest(registry), registry) else {
            return checks;
        };
        let validator = Validator::new(&schema);
        let parsed = before.policies.iter().flat_map(parsed).flatten();
        let now = parsed.map(|parsed| validator.checks(&parsed));
        now.fold(0, usize::saturating_add).max(checks)
    }

    /// Compiles with this bound on validation. What is known already is neither validated again nor counted. What is
    /// wrong with those that cannot be compiled is told as [`Findings`] gather it, so that no more is held meanwhile; what
    /// keeps others from being put in force is held whole, because it is compared with what was said of them before.
    fn policies(
        &self,
        registry: Digest,
        candidate: Candidate<'_>,
        checks_max: usize,
        goes_on: Option<GoesOn<'_>>,
    ) -> Result<Vec<Compiled>, Diagnostics> {
        let keys = candidate.policies.iter().map(|policy| [digest(policy), registry]);
        let keys: Vec<_> = keys.collect();
        let known: Option<Vec<_>> = keys.iter().map(|key| self.policies.find(key).map(Ok)).collect();
        if let Some(known) = known {
            return Ok(known);
        }
        let schema = self.schema(registry, candidate.registry)?;
        let validator = Validator::new(&schema);
        let is_bounded = checks_max < usize::MAX;
        let validator = if is_bounded { validator.of_new() } else { validator };
        let validator = match goes_on {
            Some(goes_on) => validator.in_parts(goes_on),
            None => validator,
        };
        let mut left = checks_max;
        let mut found = 0;
        let compiled = candidate.policies.iter().zip(keys).map(|(policy, key)| {
            let make = || CompiledPolicy::new(policy, &validator, &mut left);
            self.policies.get(key, make).map_err(|Diagnostics(mut findings)| {
                if found >= GATHERED_MAX {
                    findings.truncate(1);
                    findings.shrink_to_fit();
                }
                found += findings.len();
                Diagnostics(findings)
            })
        });
        Ok(compiled.collect())
    }
}

impl CompiledPolicy {
    /// The policy, if no more of it has to be validated than is left, of which that is taken.
    fn new(
        policy: &TenantPolicy,
        validator: &Validator<'_>,
        checks_left: &mut usize,
    ) -> Result<Self, Diagnostics> {
        let broken_off = || validate::broken_off().about(&policy.name);
        if !validator.goes_on() {
            return Err(broken_off().into());
        }
        let parsed = parsed(policy)?;
        let counted = parsed
            .iter()
            .map(|parsed| validator.goes_on().then(|| validator.checks(parsed)));
        let checks: Option<usize> = counted.sum();
        let checks = checks.ok_or_else(broken_off)?;
        *checks_left = checks_left.checked_sub(checks).ok_or_else(|| too_wide(policy))?;
        let mut all = Validated::default();
        for statement in &parsed {
            let found = validator.validate(statement);
            all.errors.extend(found.errors);
            all.unfit.extend(found.unfit);
            all.warnings.extend(found.warnings);
            all.declared.extend(found.declared);
            all.more_for_users.extend(found.more_for_users);
            if all.errors.len() >= TOLD_MAX {
                break;
            }
        }
        let Validated {
            errors,
            mut unfit,
            mut warnings,
            declared,
            more_for_users,
        } = all;
        warnings.extend(nobody::warnings(&parsed));
        unfit.extend(parsed.iter().filter_map(like::fault));
        unfit.extend(parsed.iter().filter_map(condition::fault));
        unfit.extend(parsed.iter().filter_map(obligations::fault));
        if !errors.is_empty() {
            return Err(Diagnostics([errors, unfit].concat()));
        }
        Ok(Self {
            statements: parsed.into_iter().map(|parsed| parsed.statement).collect(),
            warnings,
            unfit,
            declared,
            more_for_users,
            checks,
        })
    }

    /// Whether something had the member that the test at the place of this finding is for.
    fn has_declared(&self, finding: &Diagnostic) -> bool {
        finding
            .place
            .is_some_and(|place| self.declared.contains(&place.span()))
    }

    /// Whether so much is wrong for users only with the policy that this finding is about that not all of it was looked
    /// for: what is told depends on which actions there are.
    fn has_more_for_users(&self, finding: &Diagnostic) -> bool {
        let policy = finding.policy.as_ref();
        policy.is_some_and(|policy| self.more_for_users.contains(policy))
    }

    /// What whoever has it in force should know.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = Diagnostic> {
        let unfit = self.unfit.iter().cloned().map(Diagnostic::into_warning);
        self.warnings.iter().cloned().chain(unfit)
    }
}

/// What of this was not found already at the same place of the same policy.
fn at_other_places(known: &[Diagnostic], found: Vec<Diagnostic>) -> Vec<Diagnostic> {
    let mut new: Vec<Diagnostic> = Vec::new();
    for finding in found {
        let place = |known: &Diagnostic| known.policy == finding.policy && known.place == finding.place;
        if !known.iter().chain(&new).any(place) {
            new.push(finding);
        }
    }
    new
}

/// That the policy cannot be validated, because it and those before it would take too long.
fn too_wide(policy: &TenantPolicy) -> Diagnostics {
    let message = format!("with this policy the set has more than {CHECKS_MAX} {CHECKS}");
    Diagnostic::error(message)
        .with_help(TOO_WIDE)
        .about(&policy.name)
        .into()
}

fn parsed(policy: &TenantPolicy) -> Result<Vec<Parsed>, Diagnostics> {
    if policy.links.len() > LINKS_MAX {
        let message = format!(
            "the policy has {} links, and may have {LINKS_MAX}",
            policy.links.len()
        );
        return Err(Diagnostic::error(message).about(&policy.name).into());
    }
    parse::parse(policy.name.as_str(), &policy.cedar, &policy.links)
}

/// What Cedar might take long to read is refused, unless it was there before.
fn check_texts(policies: &[TenantPolicy], before: &[TenantPolicy]) -> Result<(), Diagnostics> {
    let faults = policies.iter().filter_map(|policy| {
        let fault = text::check_ifs(&policy.cedar).err()?;
        let is_same = |known: &TenantPolicy| known.name == policy.name && known.cedar == policy.cedar;
        (!before.iter().any(is_same)).then(|| fault.about(&policy.name))
    });
    let faults: Vec<_> = faults.take(TOLD_MAX).collect();
    if faults.is_empty() {
        Ok(())
    } else {
        Err(Diagnostics(faults))
    }
}

/// What the links make of these policies is bounded, unless these were there before and were as much.
fn check_links(policies: &[TenantPolicy], before: &[TenantPolicy]) -> Result<(), Diagnostics> {
    // No template is longer than the text that it is in, so most sets need not be read for this.
    let at_most = |policy: &TenantPolicy| policy.links.len().saturating_mul(policy.cedar.len());
    if policies.iter().map(at_most).sum::<usize>() <= LINKED_BYTES_MAX {
        return Ok(());
    }
    let linked: Vec<_> = linked_bytes(policies).collect();
    let bytes: usize = linked.iter().map(|(bytes, _)| bytes).sum();
    let Some((_, largest)) = linked.iter().max().filter(|_| bytes > LINKED_BYTES_MAX) else {
        return Ok(());
    };
    if bytes <= linked_bytes(before).map(|(bytes, _)| bytes).sum() {
        return Ok(());
    }
    let message = format!(
        "the policies of all links have {bytes} bytes with the texts of their templates, and may have {LINKED_BYTES_MAX}"
    );
    let help = "shorten the templates, or write what is for many as one policy about a team";
    Err(Diagnostic::error(message).with_help(help).about(largest).into())
}

fn linked_bytes(policies: &[TenantPolicy]) -> impl Iterator<Item = (usize, &SlashFreeName)> {
    let linked = policies.iter().filter(|policy| !policy.links.is_empty());
    linked.map(|policy| (parse::linked_bytes(&policy.cedar, &policy.links), &policy.name))
}

/// What is the same for equal policies, whatever their modes.
fn digest(policy: &TenantPolicy) -> Digest {
    let TenantPolicy {
        name, cedar, links, ..
    } = policy;
    Digest::of(json!([name, cedar, links]).to_string().as_bytes())
}

/// A name stands for one policy that is enforced, and for one on trial at most.
fn name_faults(policies: &[TenantPolicy]) -> Vec<Diagnostic> {
    let mut names = BTreeSet::new();
    let mut faults = Vec::new();
    for TenantPolicy { name, mode, .. } in policies {
        let fault = if name.as_str() == PolicyId::BASE {
            "the name `base` is the operator's"
        } else if names.insert((name, mode.is_trial())) {
            continue;
        } else if mode.is_trial() {
            "the name is used more than once for a policy on trial"
        } else {
            "the name is used more than once"
        };
        faults.push(Diagnostic::error(fault).about(name));
    }
    faults
}

fn permit_fault(statement: &Statement) -> Option<Diagnostic> {
    match statement.annotations.effect {
        PolicyEffect::Forbid | PolicyEffect::Advice => None,
        PolicyEffect::Permit | PolicyEffect::Approval(_) => Some(
            Diagnostic::error("the operator does not let tenants permit anything")
                .with_help("write a `forbid`, or ask the operator for a base policy that permits it")
                .about(&statement.id)
                .at(statement.place()),
        ),
    }
}

#[cfg(test)]
mod tests;
