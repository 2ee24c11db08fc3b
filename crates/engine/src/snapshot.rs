//! The snapshot: everything a decision may look at, immutable, with a revision a tenant.
//!
//! It is replaced whole. Making the next one copies a few paths of persistent maps, not the maps.

use crate::facts::FactDigests;
use crate::issuers::Issuers;
use crate::request_keys::RequestKeys;
use canon::Digest;
use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use model::{AgentId, Directory, KeyId, Name, Noun, TenantId, TokenId, Tool, Write};
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

    /// This tenant after these steps, at the revision that they lead to. Its policies are those from before them.
    #[must_use]
    pub fn after(&self, writes: &[Write], revision: u64) -> Self {
        let mut after = Self {
            revision,
            ..self.clone()
        };
        for write in writes {
            after.facts.apply(&after.directory, write);
            after.directory.apply(write);
            after.issuers.apply(write);
            after.request_keys.apply(write);
        }
        after
    }

    /// Whether policies that were compiled for one of these directories of a tenant are those of the other: nothing
    /// differs that they are compiled from. Whoever changes no more than that keeps the policies that are there, and
    /// may do so while all are compiled anew.
    pub fn compile_alike(one: &Directory, other: &Directory) -> bool {
        one.tenant.settings.of_policies() == other.tenant.settings.of_policies()
            && one.policies == other.policies
            && differ_in_standing_only(one, other)
    }

    /// Whether policies compiled for one of these two states of a tenant serve the other. A deleted tenant has none, so
    /// any two deleted states agree.
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

/// Whether tools differ in their standing at most, which no policy is compiled against: a freeze has none of that to
/// wait for. It says what may differ, and not what may not, so that whatever a tool gets later is compiled.
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

/// What was there and what is there now of all nouns of a kind that are not the same.
fn changes<K: Ord, V: PartialEq>(
    before: &OrdMap<K, Arc<V>>,
    after: &OrdMap<K, Arc<V>>,
    noun: fn(Arc<V>) -> Noun,
) -> impl Iterator<Item = (Option<Noun>, Option<Noun>)> {
    let noun = move |value: &Arc<V>| Some(noun(Arc::clone(value)));
    before.diff(after).map(move |change| match change {
        DiffItem::Add(_, new) => (None, noun(new)),
        DiffItem::Update {
            old: (_, old),
            new: (_, new),
        } => (noun(old), noun(new)),
        DiffItem::Remove(_, old) => (noun(old), None),
    })
}

/// All tenants, and whose each secret is. Cloning shares everything.
#[derive(Clone)]
pub struct Snapshot {
    /// What the policies of all tenants were compiled with, the base policies among them.
    compiler: Arc<Compiler>,
    tenants: OrdMap<TenantId, Arc<TenantSnapshot>>,
    credentials: imbl::HashMap<Digest, Credential>,
    /// The issuers that sign agents or people in, by their `iss`: the tenant, and what it calls them. One without a
    /// name was deleted.
    sign_in: OrdMap<Name, imbl::OrdSet<(TenantId, Option<Name>)>>,
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

    /// Remembers the tenants of a snapshot as they are there, where nothing has changed that policies are compiled
    /// from. Whoever looks at the same tenants again has to compare no more than their revisions, and those of before
    /// are let go.
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

    /// The tenants of a snapshot whose policies were not compiled for what they are compiled from there. One that has
    /// only changed what policies are not compiled from, such as its users, is none of them: it might change those
    /// without rest.
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
            tenants: OrdMap::new(),
            credentials: imbl::HashMap::new(),
            sign_in: OrdMap::new(),
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

    /// The tenants that have registered somebody with this `iss` to sign agents or people in, or had and deleted it;
    /// those that were deleted themselves are among them. One may come twice.
    pub fn tenants_of_issuer(&self, issuer: &str) -> impl Iterator<Item = TenantId> {
        let registered = self.sign_in.get(issuer).into_iter().flatten();
        registered.map(|(tenant, _)| *tenant)
    }

    /// Puts a tenant in place of what was known of it, with the credentials in its directory and no others. Those that
    /// are the same stay as they are: there may be a hundred thousand, where one user has changed.
    pub fn insert(&mut self, tenant: TenantSnapshot) {
        let (id, after) = (tenant.directory.tenant.id, &tenant.directory);
        let known = self.tenants.get(&id).map(|known| known.directory.clone());
        let before = known.unwrap_or_else(|| Directory::new(Arc::clone(&after.tenant)));
        let tokens = changes(&before.tokens, &after.tokens, Noun::Token);
        let keys = changes(&before.keys, &after.keys, Noun::Key);
        let issuers = changes(&before.issuers, &after.issuers, Noun::Issuer);
        let former = changes(&before.former_issuers, &after.former_issuers, Noun::FormerIssuer);
        let (gone, new): (Vec<_>, Vec<_>) = tokens.chain(keys).chain(issuers).chain(former).unzip();
        for noun in gone.iter().flatten() {
            self.remove_credential(id, noun);
        }
        for noun in new.iter().flatten() {
            self.add_credential(id, noun);
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
        let mut after = before.after(writes, before.revision + 1);
        after.policies = policies.unwrap_or(after.policies);
        for write in writes {
            match write {
                Write::Put(noun) => self.add_credential(tenant, noun),
                Write::Delete(noun) => self.remove_credential(tenant, noun),
            }
        }
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
            Noun::Issuer(issuer) if issuer.purpose.signs_in() => {
                self.add_issuer(&issuer.issuer, (tenant, Some(issuer.name.clone())));
            }
            Noun::FormerIssuer(former) => self.add_issuer(&former.issuer, (tenant, None)),
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
            Noun::Issuer(issuer) => {
                self.remove_issuer(&issuer.issuer, &(tenant, Some(issuer.name.clone())));
            }
            Noun::FormerIssuer(former) => self.remove_issuer(&former.issuer, &(tenant, None)),
            _ => {}
        }
    }

    fn add_issuer(&mut self, issuer: &Name, called: (TenantId, Option<Name>)) {
        self.sign_in.entry(issuer.clone()).or_default().insert(called);
    }

    fn remove_issuer(&mut self, issuer: &Name, called: &(TenantId, Option<Name>)) {
        if let Some(registered) = self.sign_in.get_mut(issuer) {
            registered.remove(called);
            if registered.is_empty() {
                self.sign_in.remove(issuer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::{
        AgentToken, ApiKey, Attributes, FormerIssuer, Issuer, LimitTerms, Purpose, Role, Settings, Standing,
        Team, Tenant, Timestamp,
    };
    use policy::{BasePolicies, Registry};

    const TENANT: TenantId = TenantId::from_bytes([1; 16]);
    const BEGINNING: Timestamp = Timestamp::from_millis(0);

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn secret(number: u8) -> Digest {
        Digest::of(&[number])
    }

    fn token(number: u8, agent: u8, secret_number: u8) -> Noun {
        Noun::Token(Arc::new(AgentToken {
            id: TokenId::from_bytes([number; 16]),
            agent: AgentId::from_bytes([agent; 16]),
            digest: secret(secret_number),
            created_at: BEGINNING,
            expires_at: None,
        }))
    }

    fn key(number: u8) -> Noun {
        Noun::Key(Arc::new(ApiKey {
            id: KeyId::from_bytes([number; 16]),
            tenant: TENANT,
            name: name("key"),
            role: Role::Admin,
            user: None,
            digest: secret(number),
            created_at: BEGINNING,
            expires_at: None,
        }))
    }

    fn issuer(text: &str, issuer: &str) -> Noun {
        Noun::Issuer(Arc::new(Issuer {
            name: name(text),
            purpose: Purpose::Agents,
            issuer: name(issuer),
            audience: name("here"),
            jwks: Arc::new(serde_json::json!({"keys": []})),
            claim: Some(name("sub")),
            created_at: BEGINNING,
        }))
    }

    fn former(issuer: &str) -> Noun {
        Noun::FormerIssuer(Arc::new(FormerIssuer {
            issuer: name(issuer),
            deleted_at: BEGINNING,
        }))
    }

    fn team() -> Noun {
        Noun::Team(Arc::new(Team {
            name: name("crew"),
            attributes: Attributes::default(),
            quotas: Vec::new(),
        }))
    }

    /// The tenant as it is read from a store: it shares nothing with what was known of it.
    fn tenant(revision: u64, nouns: impl IntoIterator<Item = Noun>) -> TenantSnapshot {
        let mut directory = Directory::new(Arc::new(Tenant {
            id: TENANT,
            name: name("acme"),
            settings: Settings::default(),
            standing: Standing::Active,
            limits: LimitTerms::default(),
            created_at: BEGINNING,
            deleted_at: None,
        }));
        for noun in nouns {
            directory.apply(&Write::Put(noun));
        }
        let registry = Registry {
            tools: &directory.tools,
            attributes: &directory.tenant.settings.context_attributes,
        };
        let policies = PolicySet::compile(&BasePolicies::parse("").unwrap(), &[], registry).unwrap();
        TenantSnapshot::new(directory, Arc::new(policies), revision)
    }

    fn snapshot(tenant: TenantSnapshot) -> Snapshot {
        let compiler = Compiler::new(BasePolicies::parse("").unwrap());
        let mut snapshot = Snapshot::new(Arc::new(compiler));
        snapshot.insert(tenant);
        snapshot
    }

    #[test]
    fn the_credentials_of_a_tenant_stay_as_they_are_where_something_else_has_changed() {
        let nouns = || {
            let tokens = (0..200).map(|number| token(number, 1, number));
            tokens.chain([key(200), issuer("sso", "https://sso.example")])
        };
        let before = snapshot(tenant(1, nouns()));
        let mut after = before.clone();
        after.insert(tenant(2, nouns().chain([team()])));
        assert_eq!(after.revision(TENANT), 2);
        assert_eq!(after.tenant(TENANT).unwrap().directory.teams.len(), 1);
        assert!(after.credentials.ptr_eq(&before.credentials));
        assert!(after.sign_in.ptr_eq(&before.sign_in));
    }

    #[test]
    fn an_issuer_that_was_deleted_is_still_its_tenants() {
        let iss = "https://sso.example";
        let mut snapshot = snapshot(tenant(1, [issuer("sso", iss)]));
        let of_issuer = |snapshot: &Snapshot| snapshot.tenants_of_issuer(iss).collect::<Vec<_>>();
        let deleted = [Write::Delete(issuer("sso", iss)), Write::Put(former(iss))];
        snapshot.advance(TENANT, &deleted, None);
        assert_eq!(of_issuer(&snapshot), [TENANT]);
        // A name that is like the `iss` is no other one's.
        let again = [Write::Delete(former(iss)), Write::Put(issuer(iss, iss))];
        snapshot.advance(TENANT, &again, None);
        assert_eq!(of_issuer(&snapshot), [TENANT]);
        snapshot.advance(TENANT, &[Write::Delete(issuer(iss, iss))], None);
        assert!(of_issuer(&snapshot).is_empty() && snapshot.sign_in.is_empty());
    }

    #[test]
    fn the_credentials_of_a_tenant_are_those_in_its_directory() {
        let mut changed = snapshot(tenant(
            1,
            [
                token(1, 1, 1),
                token(2, 1, 2),
                token(3, 1, 3),
                token(6, 1, 6),
                key(7),
                key(8),
                issuer("gone", "https://gone.example"),
                issuer("sso", "https://before.example"),
                former("https://after.example"),
            ],
        ));
        let now = || {
            let nouns = [
                token(2, 1, 2),
                // Of another agent, and with the secret of one that is gone.
                token(3, 9, 3),
                token(5, 1, 6),
                key(8),
                issuer("sso", "https://after.example"),
                former("https://gone.example"),
            ];
            tenant(2, nouns)
        };
        changed.insert(now());
        let expected = snapshot(now());
        assert_eq!(changed.credentials, expected.credentials);
        assert_eq!(changed.sign_in, expected.sign_in);
        for gone in [1, 7] {
            assert_eq!(changed.credential(&secret(gone)), None);
        }
        let agent = |number: u8, agent: u8| Credential::Agent {
            tenant: TENANT,
            agent: AgentId::from_bytes([agent; 16]),
            token: TokenId::from_bytes([number; 16]),
        };
        for (number, found) in [(2, agent(2, 1)), (3, agent(3, 9)), (6, agent(5, 1))] {
            assert_eq!(changed.credential(&secret(number)), Some(found));
        }
    }
}
