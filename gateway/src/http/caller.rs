//! Who is calling: found by the credential alone, never by what the request says about itself.
//!
//! Every route names the [`Access`] it gives. The layer here checks it before the handler runs and hands over a
//! caller that only it can make.

mod shown;
mod signature;
mod signed;

pub(crate) use shown::holder_in;
pub use shown::{CallerId, ShownCredential};
pub use signature::Nonces;
pub use signed::{SignIns, SignedIn};

use super::once;
use super::refusal::{Code, Refusal};
use crate::changes::By;
use crate::gateway::Gateway;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use canon::Digest;
use engine::{Credential, Delegation, SigningKeys, Snapshot, TenantSnapshot};
use model::{Agent, ApiKey, Name, Role, Secret, TenantId, Timestamp, TokenId, User};
use signature::SignedBy;
use std::sync::Arc;

/// By which an operator says which tenant is meant, and others can say that they mean their own.
pub const COUNTERSIGN_TENANT: HeaderName = HeaderName::from_static("countersign-tenant");

/// Whom a route lets in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everybody, without a credential.
    Public,
    /// Whoever has a credential that works.
    Anybody,
    /// Agents.
    Agent,
    /// Operators, for no tenant in particular.
    Operator,
    /// Keys of a tenant with one of these roles, and operators who name a tenant.
    Roles(&'static [Role]),
    /// Keys of a tenant with one of these roles, and operators, who may name a tenant: without one they are in the
    /// system tenant.
    RolesOrOperator(&'static [Role]),
    /// Agents, and those whom [`Access::Roles`] lets in.
    AgentOrRoles(&'static [Role]),
}

impl Access {
    /// Whether agents are let in.
    const fn is_of_agents(self) -> bool {
        matches!(self, Self::Anybody | Self::Agent | Self::AgentOrRoles(_))
    }
}

/// A caller whose credential works.
#[derive(Debug, Clone)]
pub enum Caller {
    /// An agent.
    Agent(AgentCaller),
    /// A person or a program with an API key.
    Key(KeyCaller),
    /// A person with a token of a registered issuer.
    Person(Arc<Person>),
}

/// An agent whose token works. Whether it may act is another question.
#[derive(Debug, Clone)]
pub struct AgentCaller {
    /// Its tenant.
    pub tenant: TenantId,
    /// The agent as it was when the request came.
    pub agent: Arc<Agent>,
    /// In whose name its token lets it ask.
    pub delegation: Delegation,
    credential: AgentCredential,
    /// The key that has signed its request, if it had to.
    signed_by: Option<Arc<SignedBy>>,
}

/// What an agent has shown.
#[derive(Debug, Clone)]
enum AgentCredential {
    /// A token that the gateway has made.
    Token(TokenId),
    /// A token of a registered issuer.
    Signed(Arc<SignedIn>),
}

/// A person whom a registered issuer has signed in. What the person may do is in the directory.
#[derive(Debug)]
pub struct Person {
    /// The person, as registered when the request came.
    pub user: Arc<User>,
    /// By whose word.
    pub signed_in: Arc<SignedIn>,
    /// The roles of which the route takes one; none before it was looked at which route it is.
    needed: &'static [Role],
}

/// Whose roles open doors.
#[derive(Debug, Clone)]
pub enum Holder {
    /// The holder of an API key.
    Key(Arc<ApiKey>),
    /// A person with a token of a registered issuer.
    Person(Arc<Person>),
}

/// The holder of an API key that works.
#[derive(Debug, Clone)]
pub struct KeyCaller {
    key: Arc<ApiKey>,
}

/// Somebody who may act in a tenant.
#[derive(Debug, Clone)]
pub struct TenantCaller {
    tenant: TenantId,
    holder: Holder,
}

impl Holder {
    /// Whether a role opens doors for this caller.
    pub fn has(&self, role: Role) -> bool {
        match self {
            Self::Key(key) => key.role == role,
            Self::Person(person) => person.user.roles.contains(&role),
        }
    }

    /// The person, if it is known who it is.
    pub fn user(&self) -> Option<&Name> {
        match self {
            Self::Key(key) => key.user.as_ref(),
            Self::Person(person) => Some(&person.user.name),
        }
    }

    /// In whose name something changes.
    pub fn by(&self) -> By<'_> {
        match self {
            Self::Key(key) => By::Key(key),
            Self::Person(person) => By::Person(person),
        }
    }

    fn tenant(&self) -> TenantId {
        match self {
            Self::Key(key) => key.tenant,
            Self::Person(person) => person.tenant(),
        }
    }
}

impl By<'_> {
    /// Refuses if the credential was deleted, has expired, or has lost the roles that the route takes, or if its tenant
    /// was deleted. It is checked again when the change is made, because minutes may lie between the head of a request
    /// and its body.
    pub fn check(self, snapshot: &Snapshot, now: Timestamp) -> Result<(), Refusal> {
        let works = match self {
            Self::Key(key) => not_deleted(snapshot, key.tenant).is_some_and(|tenant| {
                let key = tenant.directory.keys.get(&key.id);
                key.is_some_and(|key| !key.has_expired(now))
            }),
            Self::Person(person) => not_deleted(snapshot, person.tenant()).is_some_and(|tenant| {
                let user = tenant.directory.users.get(&person.user.name);
                let is_let_in = user.is_some_and(|user| person.is_let_in_as(user));
                is_let_in && person.signed_in.is_good(tenant, now)
            }),
            Self::Unstored(_)
            | Self::Rule(_)
            | Self::Setting(_)
            | Self::File(_)
            | Self::Signal(_)
            | Self::Gateway
            | Self::Start => true,
        };
        if works { Ok(()) } else { Err(unknown_credential()) }
    }
}

impl AgentCaller {
    /// The agent as it is now, if its token still works, its tenant was not deleted and the key is still its own that
    /// has signed the request.
    pub fn refresh(&self, tenant: &TenantSnapshot, now: Timestamp) -> Result<Arc<Agent>, Refusal> {
        let directory = &tenant.directory;
        let works = match &self.credential {
            AgentCredential::Token(token) => {
                let token = directory.tokens.get(token);
                token.is_some_and(|token| !token.has_expired(now))
            }
            AgentCredential::Signed(signed_in) => signed_in.is_good(tenant, now),
        };
        let works = works && directory.tenant.deleted_at.is_none();
        let agent = directory.agents.get(&self.agent.id).filter(|_| works);
        let agent = agent.ok_or_else(unknown_credential)?;
        if let Some(keys) = tenant.request_keys.of_agent(agent.id) {
            signature::check_key(self.signed_by.as_deref(), keys)?;
        }
        Ok(Arc::clone(agent))
    }

    /// Whether the token still works, and whether this gateway can tell: for answers that take long.
    pub fn check(&self, gateway: &Gateway) -> Result<(), Refusal> {
        gateway.check_current()?;
        gateway.check_current_for(self.tenant)?;
        let tenant = gateway.tenant(self.tenant)?;
        self.refresh(&tenant, gateway.clock.now()).map(drop)
    }

    /// What the tenant calls the issuer whose token the agent has shown; none if it was one that the gateway has made.
    pub fn issuer(&self) -> Option<&Name> {
        match &self.credential {
            AgentCredential::Token(_) => None,
            AgentCredential::Signed(signed_in) => Some(signed_in.issued_by()),
        }
    }
}

/// In the tenant that the key is of.
impl From<&KeyCaller> for TenantCaller {
    fn from(caller: &KeyCaller) -> Self {
        Self {
            tenant: caller.key.tenant,
            holder: caller.holder(),
        }
    }
}

impl KeyCaller {
    /// The key.
    pub fn key(&self) -> &ApiKey {
        &self.key
    }

    /// Who it is.
    pub fn holder(&self) -> Holder {
        Holder::Key(Arc::clone(&self.key))
    }
}

impl TenantCaller {
    /// The tenant: the holder's own, or the one that an operator named. An operator's own is the system tenant.
    pub const fn tenant(&self) -> TenantId {
        self.tenant
    }

    /// Who it is.
    pub const fn holder(&self) -> &Holder {
        &self.holder
    }

    /// Whether the credential still works, and whether this gateway can tell: for answers that take long.
    pub fn check(&self, gateway: &Gateway) -> Result<(), Refusal> {
        gateway.check_current()?;
        gateway.check_current_for(self.tenant)?;
        let snapshot = gateway.snapshot.load();
        self.holder.by().check(&snapshot, gateway.clock.now())
    }
}

impl Caller {
    /// Whose roles open doors, one of these, if it is no agent.
    fn holder(&self, needed: &'static [Role]) -> Option<Holder> {
        match self {
            Self::Agent(_) => None,
            Self::Key(caller) => Some(caller.holder()),
            Self::Person(person) => Some(Holder::Person(Arc::new(person.at_route_for(needed)))),
        }
    }
}

/// Finds out who is calling and whether this route lets them in.
pub async fn layer(
    State((gateway, access)): State<(Arc<Gateway>, Access)>,
    request: Request,
    next: Next,
) -> Response {
    if access == Access::Public {
        return next.run(request).await;
    }
    match let_in(&gateway, access, request).await {
        Ok(request) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The agent that sends a request, as [`Access::Agent`] lets it in, and the request to read on.
pub async fn agent(gateway: &Gateway, request: Request) -> Result<(AgentCaller, Request), Refusal> {
    once::check(request.headers())?;
    gateway.check_current()?;
    let snapshot = gateway.snapshot.load();
    let Caller::Agent(mut caller) = identify(gateway, &snapshot, request.headers())? else {
        return Err(forbidden(Access::Agent));
    };
    let keys = signing_keys(&snapshot, &caller);
    drop(snapshot);
    let request = check_signature(gateway, &mut caller, keys, request).await?;
    own_tenant(caller.tenant, request.headers())?;
    Ok((caller, request))
}

/// A request whose caller this route lets in. Who it is goes with it.
async fn let_in(gateway: &Gateway, access: Access, mut request: Request) -> Result<Request, Refusal> {
    once::check(request.headers())?;
    gateway.check_current()?;
    let snapshot = gateway.snapshot.load();
    let mut caller = match caller_for(gateway, &snapshot, access, &mut request)? {
        Caller::Agent(caller) => caller,
        caller => {
            request.extensions_mut().insert(caller);
            return Ok(request);
        }
    };
    let keys = signing_keys(&snapshot, &caller);
    drop(snapshot);
    let mut request = check_signature(gateway, &mut caller, keys, request).await?;
    if !access.is_of_agents() {
        return Err(forbidden(access));
    }
    if access != Access::Anybody {
        own_tenant(caller.tenant, request.headers())?;
        request.extensions_mut().insert(caller.clone());
    }
    request.extensions_mut().insert(Caller::Agent(caller));
    Ok(request)
}

/// The request, if the agent has signed it or signs none. The caller remembers by which key: until its body has come,
/// that may have been taken away.
async fn check_signature(
    gateway: &Gateway,
    caller: &mut AgentCaller,
    keys: Option<Arc<SigningKeys>>,
    request: Request,
) -> Result<Request, Refusal> {
    let Some(keys) = keys else { return Ok(request) };
    let (request, signed_by) = signature::check(gateway, caller, &keys, request).await?;
    caller.signed_by = Some(Arc::new(signed_by));
    // The body may have taken a while, and some routes answer without looking again.
    caller.check(gateway)?;
    Ok(request)
}

/// The keys that have to have signed the requests of this agent, if it has any.
fn signing_keys(snapshot: &Snapshot, caller: &AgentCaller) -> Option<Arc<SigningKeys>> {
    let tenant = snapshot.tenant(caller.tenant)?;
    tenant.request_keys.of_agent(caller.agent.id).map(Arc::clone)
}

/// Who sends the request, if this route lets them in. Whether it lets agents in is looked at when they have signed, if
/// they have to: whoever has stolen a token is not told that it works.
fn caller_for(
    gateway: &Gateway,
    snapshot: &Snapshot,
    access: Access,
    request: &mut Request,
) -> Result<Caller, Refusal> {
    let caller = identify(gateway, snapshot, request.headers())?;
    match (&caller, access) {
        (Caller::Agent(_), _) | (_, Access::Anybody) => {}
        (Caller::Key(key), Access::Operator) if key.key.role == Role::Operator => {
            let key = key.clone();
            request.extensions_mut().insert(key);
        }
        (Caller::Key(_) | Caller::Person(_), Access::Roles(roles) | Access::AgentOrRoles(roles)) => {
            let holder = caller.holder(roles).ok_or_else(|| forbidden(access))?;
            let tenant = tenant_of(snapshot, &holder, roles, request.headers())?;
            gateway.check_current_for(tenant)?;
            request.extensions_mut().insert(TenantCaller { tenant, holder });
        }
        (Caller::Key(_) | Caller::Person(_), Access::RolesOrOperator(roles)) => {
            let holder = caller.holder(roles).ok_or_else(|| forbidden(access))?;
            let names_none = !request.headers().contains_key(COUNTERSIGN_TENANT);
            let tenant = if holder.has(Role::Operator) && names_none {
                TenantId::SYSTEM
            } else {
                tenant_of(snapshot, &holder, roles, request.headers())?
            };
            gateway.check_current_for(tenant)?;
            request.extensions_mut().insert(TenantCaller { tenant, holder });
        }
        _ => return Err(forbidden(access)),
    }
    Ok(caller)
}

/// The tenant of the agent with this token, if the token alone proves who asks: made by this gateway, for an agent that
/// does not sign its requests. `None` does not mean that the caller is refused.
pub fn tenant_of_agent(gateway: &Gateway, authorization: &[u8]) -> Option<TenantId> {
    gateway.check_current().ok()?;
    let secret = secret_in(std::str::from_utf8(authorization).ok()?)?;
    let snapshot = gateway.snapshot.load();
    let credential = snapshot.credential(&Digest::of(secret.as_bytes()))?;
    let Caller::Agent(caller) = holder_of(gateway, &snapshot, credential).ok()? else {
        return None;
    };
    signing_keys(&snapshot, &caller)
        .is_none()
        .then_some(caller.tenant)
}

fn identify(gateway: &Gateway, snapshot: &Snapshot, headers: &HeaderMap) -> Result<Caller, Refusal> {
    let secret = bearer(headers)?;
    let digest = Digest::of(secret.as_bytes());
    match snapshot.credential(&digest) {
        Some(credential) => holder_of(gateway, snapshot, credential),
        None if signed::is_token(secret) => signed::sign_in(gateway, snapshot, headers, (secret, digest)),
        None => Err(malformed_or_unknown(secret)),
    }
}

/// A tenant that is not deleted.
fn not_deleted(snapshot: &Snapshot, tenant: TenantId) -> Option<&Arc<TenantSnapshot>> {
    let tenant = snapshot.tenant(tenant);
    tenant.filter(|tenant| tenant.directory.tenant.deleted_at.is_none())
}

/// Who has this credential, if it works.
fn holder_of(gateway: &Gateway, snapshot: &Snapshot, credential: Credential) -> Result<Caller, Refusal> {
    let now = gateway.clock.now();
    let (Credential::Agent { tenant, .. } | Credential::Key { tenant, .. }) = credential;
    gateway.check_current_for(tenant)?;
    let directory = &not_deleted(snapshot, tenant)
        .ok_or_else(unknown_credential)?
        .directory;
    match credential {
        Credential::Agent { agent, token, .. } => {
            directory
                .tokens
                .get(&token)
                .filter(|token| !token.has_expired(now))
                .ok_or_else(unknown_credential)?;
            let agent = directory
                .agents
                .get(&agent)
                .cloned()
                .ok_or_else(unknown_credential)?;
            Ok(Caller::Agent(AgentCaller {
                tenant,
                agent,
                delegation: Delegation::default(),
                credential: AgentCredential::Token(token),
                signed_by: None,
            }))
        }
        Credential::Key { key, .. } => {
            let key = directory
                .keys
                .get(&key)
                .filter(|key| !key.has_expired(now))
                .cloned();
            Ok(Caller::Key(KeyCaller {
                key: key.ok_or_else(unknown_credential)?,
            }))
        }
    }
}

fn bearer(headers: &HeaderMap) -> Result<&str, Refusal> {
    let value = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    value.and_then(secret_in).ok_or_else(|| {
        Refusal::new(
            Code::InvalidToken,
            "send the header `Authorization: Bearer` and your credential",
        )
    })
}

/// The secret in the value of `Authorization` (RFC 6750, section 2.1).
fn secret_in(authorization: &str) -> Option<&str> {
    let (scheme, secret) = authorization.split_once(' ')?;
    let is_bearer = scheme.eq_ignore_ascii_case("bearer") && !secret.is_empty();
    is_bearer.then(|| secret.trim())
}

/// Tells a mistyped credential from one that does not work, without a word of it.
fn malformed_or_unknown(secret: &str) -> Refusal {
    match Secret::parse(secret) {
        Ok(_) => unknown_credential(),
        Err(error) => Refusal::new(Code::InvalidToken, error.to_string()),
    }
}

fn unknown_credential() -> Refusal {
    Refusal::new(
        Code::InvalidToken,
        "this credential is unknown, has expired or was deleted",
    )
}

fn forbidden(access: Access) -> Refusal {
    let wanted = match access {
        Access::Agent => "an agent's token".to_owned(),
        Access::Operator => "an operator's key".to_owned(),
        Access::Roles(roles) | Access::RolesOrOperator(roles) | Access::AgentOrRoles(roles) => {
            let roles: Vec<_> = roles.iter().map(|role| format!("`{}`", role.as_str())).collect();
            format!("a key with the role {}", roles.join(" or "))
        }
        Access::Public | Access::Anybody => "another credential".to_owned(),
    };
    Refusal::new(Code::Forbidden, format!("this takes {wanted}"))
}

fn tenant_of(
    snapshot: &Snapshot,
    caller: &Holder,
    roles: &'static [Role],
    headers: &HeaderMap,
) -> Result<TenantId, Refusal> {
    if caller.has(Role::Operator) {
        let Some(named) = named_tenant(headers) else {
            let detail = "an operator names the tenant with the header `Countersign-Tenant: tnt_…`";
            return Err(Refusal::new(Code::TenantRequired, detail));
        };
        let tenant = named
            .parse()
            .ok()
            .filter(|tenant| snapshot.tenant(*tenant).is_some());
        return tenant.ok_or_else(|| Refusal::not_found("tenant", named));
    }
    if !roles.iter().any(|role| caller.has(*role)) {
        return Err(forbidden(Access::Roles(roles)));
    }
    own_tenant(caller.tenant(), headers)
}

/// The caller's own tenant, unless it names somebody else's, which does not exist for it.
fn own_tenant(own: TenantId, headers: &HeaderMap) -> Result<TenantId, Refusal> {
    match named_tenant(headers) {
        Some(named) if named != own.to_string() => Err(Refusal::not_found("tenant", named)),
        _ => Ok(own),
    }
}

/// The tenant that a request names.
fn named_tenant(headers: &HeaderMap) -> Option<&str> {
    let named = headers.get(COUNTERSIGN_TENANT);
    named.map(|value| value.to_str().unwrap_or_default())
}
