//! The snapshot: everything a decision may look at, immutable, with a revision a tenant.
//!
//! It is replaced whole. Making the next one copies a few paths of persistent maps, not the maps.

use crate::facts::FactDigests;
use crate::issuers::Issuers;
use crate::request_keys::RequestKeys;
use canon::Digest;
use model::{AgentId, Directory, Issuer, KeyId, Name, Noun, TenantId, TokenId, Tool, Write};
use policy::{Compiler, PolicySet};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One tenant in a snapshot.
#[derive(Clone)]
pub struct TenantSnapshot {
    /// Everything it has registered.
    pub directory: Directory,
    /// Its policies with the base policies, compiled against its tools.
    pub policies: Arc<PolicySet>,
    /// How many changes its directory has seen.
    pub revision: u64,
    /// What the records of its nouns are called.
    pub facts: FactDigests,
    /// Its issuers, with their keys.
    pub issuers: Issuers,
    /// The keys of its agents that sign their requests.
    pub request_keys: RequestKeys,
}

impl TenantSnapshot {
    /// A tenant with this directory, whose policies were compiled against it.
    pub fn new(directory: Directory, policies: Arc<PolicySet>, revision: u64) -> Self {
        Self {
            facts: FactDigests::of(&directory),
            issuers: Issuers::of(&directory),
            request_keys: RequestKeys::of(&directory),
            directory,
            policies,
            revision,
        }
    }

    /// Whether policies that were compiled for one of these directories of a tenant are those of the other: nothing differs that they are
    /// compiled from. Whoever changes no more than that keeps the policies that are there, and may do so while all are compiled anew.
    pub fn compile_alike(one: &Directory, other: &Directory) -> bool {
        one.tenant.settings.of_policies() == other.tenant.settings.of_policies()
            && one.policies == other.policies
            && differ_in_standing_only(one, other)
    }

    /// The same of this tenant now and at another time. For one that was deleted nothing is compiled, whatever it had.
    pub fn compiles_as(&self, other: &Self) -> bool {
        let is_deleted = |snapshot: &Self| snapshot.directory.tenant.deleted_at.is_some();
        match (is_deleted(self), is_deleted(other)) {
            (true, true) => true,
            (false, false) => {
                self.revision == other.revision || Self::compile_alike(&self.directory, &other.directory)
            }
            _ => false,
        }
    }
}

/// Whether tools differ in their standing at most, which no policy is compiled against: a freeze has none of that to wait for. It says what
/// may differ, and not what may not, so that whatever a tool gets later is compiled.
fn differ_in_standing_only(one: &Directory, other: &Directory) -> bool {
    let (ours, theirs) = (&one.tools, &other.tools);
    let mut pairs = ours.values().zip(theirs.values());
    let is_alike = |(our, their): (&Arc<Tool>, &Arc<Tool>)| {
        Arc::ptr_eq(our, their) || our.with_standing(their.standing.clone()) == **their
    };
    ours.ptr_eq(theirs) || (ours.len() == theirs.len() && pairs.all(is_alike))
}

/// What a secret stands for. Whether it still works is asked of the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// An agent's token.
    Agent {
        /// Its tenant.
        tenant: TenantId,
        /// The agent.
        agent: AgentId,
        /// The token.
        token: TokenId,
    },
    /// An API key.
    Key {
        /// Its tenant; the system tenant for an operator's.
        tenant: TenantId,
        /// The key.
        key: KeyId,
    },
}

/// All tenants, and whose each secret is. Cloning shares everything.
#[derive(Clone)]
pub struct Snapshot {
    /// What the policies of all tenants were compiled with, the base policies among them.
    compiler: Arc<Compiler>,
    tenants: imbl::OrdMap<TenantId, Arc<TenantSnapshot>>,
    credentials: imbl::HashMap<Digest, Credential>,
    /// The issuers that sign agents or people in, by their `iss`: the tenant, and what it calls them.
    sign_in: imbl::OrdMap<Name, imbl::OrdSet<(TenantId, Name)>>,
}

/// The policies of tenants compiled under other base policies, to take the place of those in a snapshot all at once.
#[derive(Clone)]
pub struct Recompiled {
    compiler: Arc<Compiler>,
    /// With the tenant that they were compiled for, as it was.
    policies: BTreeMap<TenantId, (Arc<TenantSnapshot>, Arc<PolicySet>)>,
}

impl Recompiled {
    /// Nothing yet, to be compiled with this compiler.
    pub fn new(compiler: Arc<Compiler>) -> Self {
        Self {
            compiler,
            policies: BTreeMap::new(),
        }
    }

    /// What they are compiled with.
    pub const fn compiler(&self) -> &Arc<Compiler> {
        &self.compiler
    }

    /// Adds the policies of a tenant, compiled for its directory as it is here.
    pub fn insert(&mut self, tenant: Arc<TenantSnapshot>, policies: Arc<PolicySet>) {
        self.policies
            .insert(tenant.directory.tenant.id, (tenant, policies));
    }

    /// Remembers the tenants of a snapshot as they are there, where nothing has changed that policies are compiled from. Whoever looks at the same
    /// tenants again has to compare no more than their revisions, and those of before are let go.
    pub fn note(&mut self, snapshot: &Snapshot) {
        for (id, (before, _)) in &mut self.policies {
            if let Some(now) = snapshot.tenants.get(id)
                && before.revision != now.revision
                && before.compiles_as(now)
            {
                *before = Arc::clone(now);
            }
        }
    }

    /// The tenants of a snapshot whose policies were not compiled for what they are compiled from there. One that has only changed what
    /// policies are not compiled from, such as its users, is none of them: it might change those without rest.
    pub fn missing<'s>(&self, snapshot: &'s Snapshot) -> impl Iterator<Item = &'s Arc<TenantSnapshot>> {
        let tenants = snapshot.tenants.iter();
        tenants.filter_map(|(id, tenant)| {
            let known = self.policies.get(id);
            known
                .is_none_or(|(before, _)| !before.compiles_as(tenant))
                .then_some(tenant)
        })
    }
}

impl Snapshot {
    /// A snapshot without tenants, whose policies are compiled with this compiler.
    pub fn new(compiler: Arc<Compiler>) -> Self {
        Self {
            compiler,
            tenants: imbl::OrdMap::new(),
            credentials: imbl::HashMap::new(),
            sign_in: imbl::OrdMap::new(),
        }
    }

    /// What the policies in it were compiled with.
    pub const fn compiler(&self) -> &Arc<Compiler> {
        &self.compiler
    }

    /// The digest of the base policies.
    pub fn base_digest(&self) -> Digest {
        self.compiler.base().digest()
    }

    /// Puts the policies of all tenants in place of those that are there, and with them the base policies. None may be
    /// [missing](Recompiled::missing): a snapshot never mixes what was compiled under different base policies.
    pub fn recompile(&mut self, recompiled: &Recompiled) {
        debug_assert!(recompiled.missing(self).next().is_none());
        self.compiler = Arc::clone(&recompiled.compiler);
        for (id, (_, policies)) in &recompiled.policies {
            if let Some(tenant) = self.tenants.get(id) {
                let after = TenantSnapshot {
                    policies: Arc::clone(policies),
                    ..TenantSnapshot::clone(tenant)
                };
                self.tenants.insert(*id, Arc::new(after));
            }
        }
    }

    /// One tenant.
    pub fn tenant(&self, id: TenantId) -> Option<&Arc<TenantSnapshot>> {
        self.tenants.get(&id)
    }

    /// How many changes a tenant's directory has seen; 0 if it is not there.
    pub fn revision(&self, id: TenantId) -> u64 {
        self.tenants.get(&id).map_or(0, |tenant| tenant.revision)
    }

    /// Every tenant, by id.
    pub fn tenants(&self) -> impl Iterator<Item = (&TenantId, &Arc<TenantSnapshot>)> {
        self.tenants.iter()
    }

    /// What the secret with this digest stands for.
    pub fn credential(&self, digest: &Digest) -> Option<Credential> {
        self.credentials.get(digest).copied()
    }

    /// The tenants that have registered somebody with this `iss` to sign agents or people in. One may come twice.
    pub fn tenants_of_issuer(&self, issuer: &str) -> impl Iterator<Item = TenantId> {
        let registered = self.sign_in.get(issuer).into_iter().flatten();
        registered.map(|(tenant, _)| *tenant)
    }

    /// Puts a tenant in place of what was known of it, with the credentials in its directory and no others.
    pub fn insert(&mut self, tenant: TenantSnapshot) {
        let id = tenant.directory.tenant.id;
        if let Some(before) = self.tenants.get(&id).cloned() {
            for token in before.directory.tokens.values() {
                self.credentials.remove(&token.digest);
            }
            for key in before.directory.keys.values() {
                self.credentials.remove(&key.digest);
            }
            for issuer in before.directory.issuers.values() {
                self.remove_issuer(id, issuer);
            }
        }
        for token in tenant.directory.tokens.values() {
            self.add_credential(id, &Noun::Token(Arc::clone(token)));
        }
        for key in tenant.directory.keys.values() {
            self.add_credential(id, &Noun::Key(Arc::clone(key)));
        }
        for issuer in tenant.directory.issuers.values() {
            self.add_issuer(id, issuer);
        }
        self.tenants.insert(id, Arc::new(tenant));
    }

    /// Takes one step in one tenant, whose revision grows by one.
    ///
    /// `policies` are those compiled against the directory after the step, where the step makes a difference to them.
    /// A step in a tenant that is not there changes nothing.
    pub fn advance(&mut self, tenant: TenantId, writes: &[Write], policies: Option<Arc<PolicySet>>) {
        let Some(before) = self.tenants.get(&tenant) else {
            return;
        };
        let mut after = TenantSnapshot::clone(before);
        for write in writes {
            after.directory.apply(write);
            after.facts.apply(write);
            after.issuers.apply(write);
            after.request_keys.apply(write);
            match write {
                Write::Put(noun) => self.add_credential(tenant, noun),
                Write::Delete(noun) => self.remove_credential(tenant, noun),
            }
        }
        after.revision += 1;
        after.policies = policies.unwrap_or(after.policies);
        self.tenants.insert(tenant, Arc::new(after));
    }

    fn add_credential(&mut self, tenant: TenantId, noun: &Noun) {
        match noun {
            Noun::Token(token) => {
                let credential = Credential::Agent {
                    tenant,
                    agent: token.agent,
                    token: token.id,
                };
                self.credentials.insert(token.digest, credential);
            }
            Noun::Key(key) => {
                self.credentials
                    .insert(key.digest, Credential::Key { tenant, key: key.id });
            }
            Noun::Issuer(issuer) => self.add_issuer(tenant, issuer),
            _ => {}
        }
    }

    fn remove_credential(&mut self, tenant: TenantId, noun: &Noun) {
        match noun {
            Noun::Token(token) => {
                self.credentials.remove(&token.digest);
            }
            Noun::Key(key) => {
                self.credentials.remove(&key.digest);
            }
            Noun::Issuer(issuer) => self.remove_issuer(tenant, issuer),
            _ => {}
        }
    }

    fn add_issuer(&mut self, tenant: TenantId, issuer: &Issuer) {
        if issuer.purpose.signs_in() {
            let registered = self.sign_in.entry(issuer.issuer.clone()).or_default();
            registered.insert((tenant, issuer.name.clone()));
        }
    }

    fn remove_issuer(&mut self, tenant: TenantId, issuer: &Issuer) {
        if let Some(registered) = self.sign_in.get_mut(&issuer.issuer) {
            registered.remove(&(tenant, issuer.name.clone()));
            if registered.is_empty() {
                self.sign_in.remove(&issuer.issuer);
            }
        }
    }
}
