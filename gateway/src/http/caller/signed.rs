//! Callers who show a token of an issuer that their tenant has registered (JWT) in place of one that the gateway has made.
//!
//! A token is verified when it is seen first; after that it is looked up by its digest. What was looked up is held against the
//! directory every time: with a key that was taken away, or an issuer who was deleted, nothing was signed. No network is used.

use super::{AgentCaller, AgentCredential, Caller, Person, named_tenant, not_deleted, unknown_credential};
use crate::gateway::Gateway;
use crate::generations::Generations;
use crate::http::refusal::{Code, Refusal};
use crate::locks::lock;
use axum::http::HeaderMap;
use canon::Digest;
use engine::{Delegation, Snapshot, TenantSnapshot, delegation};
use model::{Directory, Issuer, IssuerTerms, Name, Purpose, Role, TenantId, Timestamp, User};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use tokens::{Claims, LEEWAY_SECONDS, PublicKey, TokenError, UnverifiedToken};

/// The claim that every token of provenance has, and nobody's identity needs.
const SOURCE_TRUST: &str = "source_trust";
/// Why nobody signs in with a token whose issuer is nobody's, or not that of the tenant that is named.
const UNKNOWN_ISSUER: &str =
    "no tenant, or not the one that is named, has registered the issuer to sign anybody in";
/// Tokens in each of two generations.
const GENERATION_MAX: usize = 4_096;

/// A token that was verified: whom it names, and by whose word.
#[derive(Debug)]
pub struct SignedIn {
    tenant: TenantId,
    /// The issuer as it was registered when the token was verified, without its keys: tokens that nobody shows again are
    /// remembered, too, and each would hold the keys that its issuer had then.
    issuer: Arc<IssuerTerms>,
    /// What the token calls the key that has signed it, if anything.
    key_id: Option<String>,
    key: PublicKey,
    /// Who shows it.
    name: Name,
    /// In whose name, if it is delegated: those between, the nearest first, and last whom the token is about.
    for_whom: Vec<Name>,
    valid_from: Option<Timestamp>,
    expires_at: Timestamp,
}

impl SignedIn {
    /// What the tenant calls the issuer.
    pub fn issued_by(&self) -> &Name {
        &self.issuer.name
    }

    /// Whether the token is still worth something: its time has not passed nor is yet to come, its issuer stands as it
    /// did, and has the key still, whatever keys are beside it.
    pub fn is_good(&self, tenant: &TenantSnapshot, now: Timestamp) -> bool {
        let known = tenant.issuers.named(&self.issuer.name);
        let verifies =
            known.is_some_and(|known| known.still_verifies(&self.issuer, self.key_id.as_deref(), &self.key));
        let leeway = LEEWAY_SECONDS * 1_000;
        // A clock that was ahead when the token was verified may have been set right.
        let has_begun = self.valid_from.is_none_or(|from| from <= now.plus_millis(leeway));
        verifies && has_begun && now < self.expires_at.plus_millis(leeway)
    }
}

/// What is looked up: the digest of a token, and the tenant that the request names, if it names one. What a token was
/// worth in a tenant that was named says nothing about a request that names none, nor about one that names another.
type Shown = (Digest, Option<TenantId>);

/// Tokens that were verified lately.
#[derive(Default)]
pub struct SignIns {
    /// Held for one look-up at a time and never across an `await`.
    generations: Mutex<Generations<Shown, Arc<SignedIn>, GENERATION_MAX>>,
}

impl SignIns {
    fn find(&self, shown: &Shown) -> Option<Arc<SignedIn>> {
        lock(&self.generations).get(shown).cloned()
    }

    fn remember(&self, shown: Shown, signed_in: Arc<SignedIn>) {
        lock(&self.generations).insert(shown, signed_in);
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
    let no_id = || refuse(&"the header `Countersign-Tenant` is not the id of a tenant (`tnt_…`)");
    let named = named_tenant(headers).map(|named| tenant_id(named).ok_or_else(no_id));
    let named = named.transpose()?;
    let shown = (digest, named);
    let known = gateway.sign_ins.find(&shown).filter(|known| {
        let tenant = not_deleted(snapshot, known.tenant);
        tenant.is_some_and(|tenant| known.is_good(tenant, now))
    });
    let signed_in = if let Some(known) = known {
        known
    } else {
        let verified = Arc::new(verify(snapshot, named, text, now)?);
        gateway.sign_ins.remember(shown, Arc::clone(&verified));
        verified
    };
    gateway.check_current_for(signed_in.tenant)?;
    let tenant = not_deleted(snapshot, signed_in.tenant).ok_or_else(unknown_credential)?;
    caller(&tenant.directory, signed_in)
}

/// The tenant of this id, in the one spelling that ids have.
fn tenant_id(text: &str) -> Option<TenantId> {
    let id: Option<TenantId> = text.parse().ok();
    id.filter(|id| id.to_string() == text)
}

/// The token, verified by the one issuer that it can be from. What is wrong with it, but for its form, is told to those
/// only who show one that a registered key has signed: which issuers and keys tenants have is nobody else's business.
fn verify(
    snapshot: &Snapshot,
    named: Option<TenantId>,
    text: &str,
    now: Timestamp,
) -> Result<SignedIn, Refusal> {
    let token = UnverifiedToken::parse(text).map_err(|error| refuse(&error))?;
    let issuer = token.issuer().unwrap_or_default();
    let tenant = tenant_of(snapshot, named, issuer).map_err(|why| refuse_stranger(issuer, &why))?;
    let purposes = [Purpose::Agents, Purpose::People].into_iter();
    let registered = purposes.filter_map(|purpose| tenant.issuers.find(purpose, issuer));
    let (mut verified, mut refused, mut is_signed) = (None, None, false);
    for registered in registered {
        // One issuer may sign for agents and for people, but not for one audience.
        let claims =
            match registered.verify(UnverifiedToken::parse(text).map_err(|error| refuse(&error))?, now) {
                Ok(claims) => claims,
                Err(error) => {
                    is_signed |= error.is_of_signed_token();
                    refused = Some(more_telling(refused, error));
                    continue;
                }
            };
        if verified.is_some() {
            let detail = "the token is for the audience of agents and for that of people; get one for either";
            return Err(Refusal::new(Code::InvalidToken, detail));
        }
        let (name, for_whom) = named_in(&claims, &registered.noun)?;
        verified = Some(SignedIn {
            tenant: tenant.directory.tenant.id,
            issuer: Arc::clone(&registered.terms),
            key_id: claims.key_id().map(str::to_owned),
            key: claims.key().clone(),
            name,
            for_whom,
            valid_from: claims.valid_from(),
            expires_at: claims.expires_at(),
        });
    }
    verified.ok_or_else(|| match refused {
        Some(error) if is_signed => refuse(&error),
        Some(error) => refuse_stranger(issuer, &error),
        None => refuse_stranger(issuer, &UNKNOWN_ISSUER),
    })
}

/// Which of these is wrong with a token: one issuer that has this `iss` is not meant by it, and then says less than the
/// one that is.
fn more_telling(before: Option<TokenError>, error: TokenError) -> TokenError {
    // The audience is looked at after the signature, and the time after the audience.
    let told = |error: &TokenError| match error {
        TokenError::Audience => 0,
        TokenError::Expired { .. } | TokenError::NotYet { .. } => 2,
        _ => 1,
    };
    match before {
        Some(before) if told(&before) >= told(&error) => before,
        _ => error,
    }
}

/// Whom a token names by the registered claim: who shows it, and in whose name.
fn named_in(claims: &Claims, issuer: &Issuer) -> Result<(Name, Vec<Name>), Refusal> {
    if claims.optional_text(SOURCE_TRUST) != Ok(None) {
        // Agents show such tokens in what they ask, and `sub` in them is whom they are for and not who shows them.
        let detail = "the token says where content came from (`source_trust`), and a token of provenance signs nobody in";
        return Err(Refusal::new(Code::InvalidToken, detail));
    }
    let claim = issuer.claim.as_ref().map_or("sub", Name::as_str);
    let subject = claims.name(claim).map_err(|error| refuse(&error))?;
    let actors = claims.actors(claim).map_err(|error| refuse(&error))?;
    if !actors.is_empty() && issuer.purpose == Purpose::People {
        // Somebody who acts for a person is not that person: what people do here, they do themselves.
        let detail =
            "the token says that somebody acts for the person (`act`), and people sign in themselves";
        return Err(Refusal::new(Code::InvalidToken, detail));
    }
    let names = actors.into_iter().chain([subject]);
    let names =
        names.map(|name| Name::new(name).map_err(|error| refuse(&format!("the claim `{claim}`: {error}"))));
    let mut names: Vec<_> = names.collect::<Result<_, _>>()?;
    let for_whom = names.split_off(1);
    Ok((names.remove(0), for_whom))
}

/// The tenant that has registered the issuer: the named one, or the only one that has or ever had. If there is none,
/// why.
fn tenant_of<'s>(
    snapshot: &'s Snapshot,
    named: Option<TenantId>,
    issuer: &str,
) -> Result<&'s Arc<TenantSnapshot>, &'static str> {
    let tenants: BTreeSet<TenantId> = snapshot
        .tenants_of_issuer(issuer)
        .filter(|tenant| named.is_none_or(|named| named == *tenant))
        .collect();
    // One that was deleted, or has deleted the issuer, counts: what it has stopped does not go on in another tenant.
    match (tenants.len(), tenants.first()) {
        (1, Some(only)) => not_deleted(snapshot, *only).ok_or(UNKNOWN_ISSUER),
        (0, _) => Err(UNKNOWN_ISSUER),
        _ => Err("several tenants have or had registered the issuer, and none is named"),
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
        let person = Person {
            user,
            signed_in,
            needed: &[],
        };
        return Ok(Caller::Person(Arc::new(person)));
    }
    let agent = directory.agent_called(&signed_in.name);
    let agent = agent.ok_or_else(|| unregistered("an agent"))?;
    let delegation = delegation(directory, &signed_in.for_whom);
    let deep = delegation.agents.len();
    if deep > delegation::DEPTH_MAX {
        return Err(engine::Refusal::DelegationTooDeep(deep).into());
    }
    Ok(Caller::Agent(AgentCaller {
        tenant: signed_in.tenant,
        agent: Arc::clone(agent),
        delegation,
        credential: AgentCredential::Signed(signed_in),
        signed_by: None,
    }))
}

/// In whose name these let an agent ask. The last one is whom the token is about: an agent that is or was called so, or
/// else a person. Where both are, it is in the name of both, because nobody can tell.
fn delegation(directory: &Directory, for_whom: &[Name]) -> Delegation {
    let Some((subject, between)) = for_whom.split_last() else {
        return Delegation::default();
    };
    let is_agent = directory.agent_called(subject).is_some();
    let is_person = !is_agent || directory.users.contains_key(subject);
    Delegation {
        agents: between
            .iter()
            .chain(is_agent.then_some(subject))
            .cloned()
            .collect(),
        user: is_person.then(|| subject.clone()),
    }
}

impl Person {
    /// The tenant whose issuer has signed the person in.
    pub fn tenant(&self) -> TenantId {
        self.signed_in.tenant
    }

    /// The person at a route that takes one of these roles.
    pub(super) fn at_route_for(&self, needed: &'static [Role]) -> Self {
        Self {
            user: Arc::clone(&self.user),
            signed_in: Arc::clone(&self.signed_in),
            needed,
        }
    }

    /// Whether the route lets the person in as registered now.
    pub(super) fn is_let_in_as(&self, user: &User) -> bool {
        self.needed.iter().any(|role| user.roles.contains(role))
    }
}

/// The one answer to a token that no registered key has signed. The log says why: whoever sets an issuer up looks there.
fn refuse_stranger(issuer: &str, why: &dyn Display) -> Refusal {
    // As fields both are quoted: a stranger has written them.
    tracing::debug!(
        issuer,
        why = why.to_string(),
        "no registered key has signed the token of a request"
    );
    let detail = "no registered issuer has signed this token; where several tenants have or had registered one, name yours with the header `Countersign-Tenant: tnt_…`";
    Refusal::new(Code::InvalidToken, detail)
}

fn refuse(error: &impl ToString) -> Refusal {
    Refusal::new(Code::InvalidToken, error.to_string())
}
