//! Callers who show a token of an issuer that their tenant has registered (JWT) in place of one that the gateway has made.
//!
//! A token is verified when it is seen first; after that it is looked up by its digest. What was looked up is held against the
//! directory every time: an issuer whose keys were replaced, or who was deleted, has signed nothing. No network is used.

use super::{AgentCaller, AgentCredential, COUNTERSIGN_TENANT, Caller, Person, unknown_credential};
use crate::gateway::Gateway;
use crate::http::refusal::{Code, Refusal};
use axum::http::HeaderMap;
use canon::Digest;
use engine::{Snapshot, TenantSnapshot};
use model::{Agent, AgentId, Directory, Issuer, Name, Purpose, TenantId, Timestamp};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use tokens::{LEEWAY_SECONDS, UnverifiedToken};

/// Tokens in each of two generations. When the young one is full it becomes the old one, which is dropped.
const GENERATION_MAX: usize = 4_096;

/// A token that was verified: whom it names, and by whose word.
#[derive(Debug)]
pub struct SignedIn {
    tenant: TenantId,
    /// The issuer as it was registered when the token was verified.
    issuer: Arc<Issuer>,
    /// What the registered claim says.
    name: Name,
    expires_at: Timestamp,
}

impl SignedIn {
    /// What the tenant calls the issuer.
    pub fn issued_by(&self) -> &Name {
        &self.issuer.name
    }

    /// Whether the token is still worth something.
    pub fn is_good(&self, directory: &Directory, now: Timestamp) -> bool {
        let known = directory.issuers.get(&self.issuer.name);
        let is_same = known.is_some_and(|known| Arc::ptr_eq(known, &self.issuer) || *known == self.issuer);
        is_same && now < self.expires_at.plus_millis(LEEWAY_SECONDS * 1_000)
    }
}

/// Tokens that were verified lately, by their digest.
#[derive(Default)]
pub struct SignIns {
    /// Held for one look-up at a time and never across an `await`.
    generations: Mutex<Generations>,
}

#[derive(Default)]
struct Generations {
    young: HashMap<Digest, Arc<SignedIn>>,
    old: HashMap<Digest, Arc<SignedIn>>,
}

impl SignIns {
    fn find(&self, token: &Digest) -> Option<Arc<SignedIn>> {
        let generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let found = generations.young.get(token);
        found.or_else(|| generations.old.get(token)).cloned()
    }

    fn remember(&self, token: Digest, signed_in: Arc<SignedIn>) {
        let mut generations = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        if generations.young.len() >= GENERATION_MAX {
            generations.old = std::mem::take(&mut generations.young);
        }
        generations.young.insert(token, signed_in);
    }
}

/// Whether this could be such a token: three parts with dots between them. What the gateway has made has none.
pub(super) fn is_token(secret: &str) -> bool {
    secret.bytes().filter(|byte| *byte == b'.').count() == 2
}

/// Who shows this token.
pub(super) fn sign_in(
    gateway: &Gateway,
    snapshot: &Snapshot,
    headers: &HeaderMap,
    (text, digest): (&str, Digest),
) -> Result<Caller, Refusal> {
    let now = gateway.clock.now();
    let named = headers.get(COUNTERSIGN_TENANT);
    let named = named.map(|value| value.to_str().unwrap_or_default());
    let known = gateway.sign_ins.find(&digest).filter(|known| {
        let tenant = in_use(snapshot, known.tenant);
        let is_meant = named.is_none_or(|named| named == known.tenant.to_string());
        is_meant && tenant.is_some_and(|tenant| known.is_good(&tenant.directory, now))
    });
    let signed_in = if let Some(known) = known {
        known
    } else {
        let verified = Arc::new(verify(snapshot, named, text, now)?);
        gateway.sign_ins.remember(digest, Arc::clone(&verified));
        verified
    };
    let tenant = in_use(snapshot, signed_in.tenant).ok_or_else(unknown_credential)?;
    caller(&tenant.directory, signed_in)
}

fn in_use(snapshot: &Snapshot, tenant: TenantId) -> Option<&Arc<TenantSnapshot>> {
    let tenant = snapshot.tenant(tenant);
    tenant.filter(|tenant| tenant.directory.tenant.deleted_at.is_none())
}

/// The token, verified by the one issuer that it can be from.
fn verify(snapshot: &Snapshot, named: Option<&str>, text: &str, now: Timestamp) -> Result<SignedIn, Refusal> {
    let issuer = UnverifiedToken::parse(text).map_err(|error| refuse(&error))?;
    let issuer = issuer.issuer().unwrap_or_default();
    let tenant = tenant_of(snapshot, named, issuer)?;
    let purposes = [Purpose::Agents, Purpose::People].into_iter();
    let registered = purposes.filter_map(|purpose| tenant.issuers.find(purpose, issuer));
    let mut verdict = Err(unknown_issuer());
    for registered in registered {
        // One issuer may sign for agents and for people, but not for one audience.
        let claims =
            match registered.verify(UnverifiedToken::parse(text).map_err(|error| refuse(&error))?, now) {
                Ok(claims) => claims,
                Err(error) => {
                    verdict = verdict.map_err(|_| refuse(&error));
                    continue;
                }
            };
        if verdict.is_ok() {
            let detail = "the token is for the audience of agents and for that of people; get one for either";
            return Err(Refusal::new(Code::InvalidToken, detail));
        }
        let claim = registered.noun.claim.as_ref().map_or("sub", Name::as_str);
        let name = claims.text(claim).map_err(|error| refuse(&error))?;
        verdict = Ok(SignedIn {
            tenant: tenant.directory.tenant.id,
            issuer: Arc::clone(&registered.noun),
            name: Name::new(name).map_err(|error| refuse(&format!("the claim `{claim}`: {error}")))?,
            expires_at: claims.expires_at(),
        });
    }
    verdict
}

/// The tenant that has registered the issuer: the named one, or the only one.
fn tenant_of<'s>(
    snapshot: &'s Snapshot,
    named: Option<&str>,
    issuer: &str,
) -> Result<&'s Arc<TenantSnapshot>, Refusal> {
    let tenants: BTreeSet<TenantId> = snapshot
        .tenants_of_issuer(issuer)
        .filter(|tenant| named.is_none_or(|named| named == tenant.to_string()))
        .collect();
    let mut tenants = tenants.into_iter().filter_map(|tenant| in_use(snapshot, tenant));
    match (tenants.next(), tenants.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let detail = "several tenants have registered this issuer; name yours with the header `Countersign-Tenant: tnt_…`";
            Err(Refusal::new(Code::InvalidToken, detail))
        }
        (None, _) => Err(unknown_issuer()),
    }
}

/// Whom the token names, as the directory knows them now.
fn caller(directory: &Directory, signed_in: Arc<SignedIn>) -> Result<Caller, Refusal> {
    let unregistered = |what| {
        let detail = format!("the token names {what} that is not registered");
        Refusal::new(Code::InvalidToken, detail)
    };
    if signed_in.issuer.purpose == Purpose::People {
        let user = directory.users.get(&signed_in.name).cloned();
        let user = user.ok_or_else(|| unregistered("a person"))?;
        let person = Person { user, signed_in };
        return Ok(Caller::Person(Arc::new(person)));
    }
    let agent = agent_called(directory, &signed_in.name).ok_or_else(|| unregistered("an agent"))?;
    Ok(Caller::Agent(AgentCaller {
        tenant: signed_in.tenant,
        agent: Arc::clone(agent),
        credential: AgentCredential::Signed(signed_in),
    }))
}

/// The agent with this id or name. An id comes first: nobody takes it by choosing a name.
fn agent_called<'d>(directory: &'d Directory, called: &Name) -> Option<&'d Arc<Agent>> {
    let id = called.as_str().parse::<AgentId>().ok();
    let by_id = id.and_then(|id| directory.agents.get(&id));
    by_id.or_else(|| directory.agent_named(called.as_str()))
}

impl Person {
    /// The tenant whose issuer has signed the person in.
    pub fn tenant(&self) -> TenantId {
        self.signed_in.tenant
    }
}

fn unknown_issuer() -> Refusal {
    let detail = "no tenant has registered the issuer of this token to sign anybody in";
    Refusal::new(Code::InvalidToken, detail)
}

fn refuse(error: &impl ToString) -> Refusal {
    Refusal::new(Code::InvalidToken, error.to_string())
}
