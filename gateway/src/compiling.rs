//! From the nouns of a tenant to what it is judged by: its policies handed to the policy crate, and compiled. Whether a
//! change is welcome is not decided here.

use engine::TenantSnapshot;
use model::{Directory, Policy, PolicyLink, PolicyText, Settings, SlashFreeName, Tenant};
use policy::{
    Candidate, Compiler, Diagnostics, Link, Mode, PolicySet, Registry, SlotValues, TenantPermits,
    TenantPolicy,
};
use std::sync::Arc;

/// The policies of a directory. Nobody is judged by those of a tenant that was deleted, and nobody can mend them any
/// more: it has none, whatever it had, so that no base policies ever fail to fit it.
pub fn compile(compiler: &Compiler, directory: &Directory) -> Result<PolicySet, Diagnostics> {
    if directory.tenant.deleted_at.is_some() {
        let mut nothing = Tenant::clone(&directory.tenant);
        nothing.settings = Settings::default();
        return compiler.compile(candidate(&Directory::new(Arc::new(nothing)), &[]));
    }
    compiler.compile(candidate(directory, &policies(directory)))
}

/// Compiles the policies of a directory that is to replace `before`, if there is one in force, with the bounds that
/// hold for new policies.
pub fn compile_new(
    compiler: &Compiler,
    directory: &Directory,
    before: Option<&Directory>,
) -> Result<PolicySet, Diagnostics> {
    let before = before.map(|before| (before, policies(before)));
    let before = before
        .as_ref()
        .map(|(directory, policies)| candidate(directory, policies));
    compiler.compile_new(candidate(directory, &policies(directory)), before)
}

/// All policies of a directory that count for anybody, or are tried out.
fn policies(directory: &Directory) -> Vec<TenantPolicy> {
    let policies = directory.policies.values();
    policies.flat_map(|policy| in_use(policy)).collect()
}

/// What these policies would be in place of a directory's own.
fn candidate<'a>(directory: &'a Directory, policies: &'a [TenantPolicy]) -> Candidate<'a> {
    let settings = &directory.tenant.settings;
    Candidate {
        policies,
        registry: registry(directory),
        permits: if settings.policies.may_permit {
            TenantPermits::Allowed
        } else {
            TenantPermits::Forbidden
        },
    }
}

/// What policies of this directory can speak of.
pub fn registry(directory: &Directory) -> Registry<'_> {
    Registry {
        tools: &directory.tools,
        attributes: &directory.tenant.settings.context_attributes,
    }
}

/// The versions of a policy that count for anybody, or are tried out.
fn in_use(policy: &Policy) -> impl Iterator<Item = TenantPolicy> {
    let enforced = policy.enforced.map(|version| (version, Mode::Enforced));
    let trial = policy.trial.clone().map(|trial| {
        let mode = trial.agents.map_or(Mode::Shadow, Mode::Canary);
        (trial.version, mode)
    });
    let in_use = enforced.into_iter().chain(trial);
    in_use.filter_map(|(version, mode)| Some(tenant_policy(&policy.name, &policy.find(version)?.text, mode)))
}

/// A policy in the words of the policy crate.
fn tenant_policy(name: &SlashFreeName, text: &PolicyText, mode: Mode) -> TenantPolicy {
    let slot = |link: &PolicyLink, slot: &str| link.values.get(slot).cloned();
    let links = text.links.iter().map(|link| Link {
        template: link.template.clone(),
        id: link.id.clone(),
        values: SlotValues {
            principal: slot(link, "?principal"),
            resource: slot(link, "?resource"),
        },
    });
    TenantPolicy {
        name: name.clone(),
        cedar: Arc::clone(&text.cedar),
        links: links.collect(),
        mode,
    }
}

/// Says that policies of a tenant are wrong for users, if some are. They are right for agents and stay, and deny asks
/// for users by failing.
pub fn tell_of_users(snapshot: &TenantSnapshot) {
    let tenant = snapshot.directory.tenant.id;
    let mut wrong = snapshot.policies.wrong_for_users();
    let Some(first) = wrong.next() else { return };
    let (policy, more) = (first.policy.as_deref().unwrap_or_default(), wrong.count());
    tracing::warn!(
        %tenant,
        policy,
        more,
        "the policy {policy} of {tenant} is wrong for users, and asks for them may be denied for that"
    );
}

/// Says that the conditions of a tenant's policies are too long together, if they are. The longest stay, and fail for
/// asks that all are about.
pub fn tell_of_long(snapshot: &TenantSnapshot) {
    let tenant = snapshot.directory.tenant.id;
    let mut long = snapshot.policies.too_much_together();
    let Some(first) = long.next() else { return };
    let (policy, more) = (first.policy.as_deref().unwrap_or_default(), long.count());
    tracing::warn!(
        %tenant,
        policy,
        more,
        "the policy {policy} of {tenant} is too long, alone or together with others, and asks may be denied for that"
    );
}
