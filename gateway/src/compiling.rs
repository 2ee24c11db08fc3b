//! From the nouns of a tenant to what it is judged by: its policies handed to the policy crate, and compiled; and what is
//! odd about them then. Whether a change is welcome is not decided here.

use engine::{Snapshot, TenantSnapshot};
use model::{Directory, Policy, PolicyLink, PolicyText, Settings, SlashFreeName, Tenant, TenantId};
use policy::{
    Candidate, Compiler, Diagnostic, Diagnostics, Link, Mode, PolicySet, Registry, SlotValues, TenantPermits,
    TenantPolicy,
};
use std::fmt;
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
    compile_new_while(compiler, directory, before, &|| true)
}

/// Compiles them as [`compile_new`] does, as long as it goes on, which is asked between the parts of it.
pub fn compile_new_while(
    compiler: &Compiler,
    directory: &Directory,
    before: Option<&Directory>,
    goes_on: &dyn Fn() -> bool,
) -> Result<PolicySet, Diagnostics> {
    let before = before.map(|before| (before, policies(before)));
    let before = before
        .as_ref()
        .map(|(directory, policies)| candidate(directory, policies));
    compiler.compile_new_while(candidate(directory, &policies(directory)), before, goes_on)
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
        let mode = trial
            .agents
            .map_or(Mode::Shadow, |agents| Mode::Canary(Arc::new(agents)));
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

/// What is odd about policies that are in force: they keep nobody from starting.
pub struct Oddity {
    /// Whose policies they are; `None` if it is so of the operator's for every tenant.
    tenant: Option<TenantId>,
    /// The first policy of which it is so, of the operator's with the place in the file.
    policy: String,
    /// How many more findings are like it.
    more: usize,
    what: &'static str,
}

/// All that is odd about a tenant's policies, each once.
pub fn oddities(snapshot: &TenantSnapshot) -> impl Iterator<Item = Oddity> {
    let all = [
        wrong_for_users(snapshot),
        too_much(snapshot),
        testing_in_vain(snapshot),
    ];
    all.into_iter().flatten()
}

/// All that is odd about the operator's policies whichever tenant they are asked for, each once.
pub fn base_oddities(snapshot: &Snapshot) -> impl Iterator<Item = Oddity> {
    let base = snapshot.compiler().base();
    let sets = snapshot.tenants().map(|(_, tenant)| &*tenant.policies);
    let nobody = "names what nobody can ever be";
    let unknown = "asks for what is not known of what it names, and may let pass what it should not";
    let unseen = "tests for what it sees of no tenant, and may let pass what it should not";
    let all = [
        Oddity::of_base(base.naming_nobody().iter(), nobody),
        Oddity::of_base(base.asking_in_vain().iter(), unknown),
        Oddity::of_base(base.tests_in_vain(sets).into_iter(), unseen),
    ];
    all.into_iter().flatten()
}

/// That policies of a tenant are wrong for users, if some are. They are right for agents and stay, and deny asks for
/// users by failing.
pub fn wrong_for_users(snapshot: &TenantSnapshot) -> Option<Oddity> {
    let what = "is wrong for users, and asks for them may be denied for that";
    Oddity::of(snapshot, snapshot.policies.wrong_for_users(), what)
}

/// That a tenant's policies are too much together, if they are. All stay, and asks that all are about may be denied:
/// the longest fail, or more is wanted than an ask may have.
fn too_much(snapshot: &TenantSnapshot) -> Option<Oddity> {
    let what = "is too much, alone or together with others, and asks may be denied for that";
    Oddity::of(snapshot, snapshot.policies.too_much_together(), what)
}

/// That policies of a tenant test for what they do not see, if some do. An earlier version may have let them see it:
/// then what they say of that has gone out of effect.
fn testing_in_vain(snapshot: &TenantSnapshot) -> Option<Oddity> {
    let directory = &snapshot.directory;
    // Nobody is judged by the policies of a deleted tenant.
    if directory.tenant.deleted_at.is_some() {
        return None;
    }
    let policies = policies(directory);
    let found = snapshot.policies.tests_in_vain(candidate(directory, &policies));
    let what = "tests for what it does not see, and may let pass what it should not";
    Oddity::of(snapshot, found.iter(), what)
}

impl Oddity {
    fn of<'d>(
        snapshot: &TenantSnapshot,
        mut found: impl Iterator<Item = &'d Diagnostic>,
        what: &'static str,
    ) -> Option<Self> {
        let first = found.next()?;
        Some(Self {
            tenant: Some(snapshot.directory.tenant.id),
            policy: first.policy.clone().unwrap_or_default(),
            more: found.count(),
            what,
        })
    }

    fn of_base<'d>(mut found: impl Iterator<Item = &'d Diagnostic>, what: &'static str) -> Option<Self> {
        let first = found.next()?;
        let policy = first.policy.as_deref().unwrap_or_default();
        // No call about policies shows the operator where it is.
        let policy = first.place.map_or_else(
            || policy.to_owned(),
            |place| format!("{policy}:{}:{}", place.line, place.column),
        );
        Some(Self {
            tenant: None,
            policy,
            more: found.count(),
            what,
        })
    }

    /// Says it in the log.
    pub fn tell(&self) {
        let Self {
            tenant, policy, more, ..
        } = self;
        let tenant = tenant.map(tracing::field::display);
        tracing::warn!(tenant, policy, more, "{self}");
    }

    /// How many more findings are like it.
    pub const fn more(&self) -> usize {
        self.more
    }
}

impl fmt::Display for Oddity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            tenant, policy, what, ..
        } = self;
        match tenant {
            Some(tenant) => write!(f, "the policy {policy} of {tenant} {what}"),
            None => write!(f, "the operator's policy {policy} {what}"),
        }
    }
}
