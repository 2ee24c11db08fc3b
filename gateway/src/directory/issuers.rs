//! `/v1/issuers`: who may sign tokens for this tenant, for what, and with which keys.
//!
//! Keys are brought along, never fetched: what a decision rests on is in the directory and in the ledger. They are replaced by
//! PATCH, or by a file of the operator's; while both the old and the new one are in the set, tokens of both are good.

mod files;

pub use files::{Complaints, Files, KeysDue, ReadFiles, check_folder};

use super::{change, change_at_once, facts, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, LargePage, Location, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::issuer::{DEFAULT_AUDIENCE, DEFAULT_CLAIM};
use model::{Directory, FormerIssuer, Issuer, Name, Noun, Purpose, Timestamp, Write};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use tokens::KeySet;

/// The most issuers of a tenant. They are looked through for every token that was not seen before.
const ISSUERS_MAX: usize = 32;
/// The most deleted issuers whose `iss` is remembered. Of more the oldest is forgotten: by then an admin has registered
/// and deleted many others.
const FORMER_ISSUERS_MAX: usize = 8 * ISSUERS_MAX;

/// What a POST says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerBody {
    #[serde(deserialize_with = "model::name::new_segment")]
    name: Name,
    purpose: Purpose,
    issuer: Name,
    audience: Option<Name>,
    #[serde(deserialize_with = "canon::foreign")]
    jwks: Value,
    claim: Option<Name>,
}

/// What a PATCH says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerPatch {
    #[serde(deserialize_with = "canon::foreign")]
    jwks: Value,
}

/// An issuer as callers see it.
#[derive(Debug, Serialize)]
pub struct IssuerView {
    name: Name,
    purpose: Purpose,
    issuer: Name,
    audience: Name,
    jwks: Arc<Value>,
    claim: Option<Name>,
    created_at: Timestamp,
}

impl From<&Issuer> for IssuerView {
    fn from(issuer: &Issuer) -> Self {
        Self {
            name: issuer.name.clone(),
            purpose: issuer.purpose,
            issuer: issuer.issuer.clone(),
            audience: issuer.audience.clone(),
            jwks: Arc::clone(&issuer.jwks),
            claim: issuer.claim.clone(),
            created_at: issuer.created_at,
        }
    }
}

/// `POST /v1/issuers`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Json(body): Json<IssuerBody>,
) -> Result<(Location, Created<IssuerView>), Refusal> {
    let issuer = Arc::new(new_issuer(body, gateway.clock.now())?);
    let created = change(&gateway, &caller, |directory, _| {
        check_free(directory, &issuer)?;
        Ok(creation(directory, &issuer))
    });
    let view = created.await?;
    Ok((Location::of("/v1/issuers", &view.name), Created(view)))
}

/// `GET /v1/issuers`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, IssuerView>(&tenant.directory.issuers, &query, |_| true)
}

/// `GET /v1/issuers/{name}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Json<IssuerView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let issuer = find(&tenant.directory, &name)?;
    Ok(Json(IssuerView::from(&**issuer)))
}

/// `PATCH /v1/issuers/{name}`: other keys. Who it is and what its tokens are for never changes: that is another issuer.
pub async fn patch(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Json(body): Json<IssuerPatch>,
) -> Result<Json<IssuerView>, Refusal> {
    check_keys(&body.jwks)?;
    let jwks = Arc::new(body.jwks);
    change_at_once(&gateway, &caller, |directory, _| {
        let known = find(directory, &name)?;
        let issuer = known.with_keys(Arc::clone(&jwks));
        let view = IssuerView::from(&issuer);
        if issuer == **known {
            return Ok(Plan::nothing(Json(view)));
        }
        let noun = Noun::Issuer(Arc::new(issuer));
        let facts = facts(&view);
        Ok(put(EntryKind::IssuerUpdated, noun, facts, Json(view)))
    })
    .await
}

/// `DELETE /v1/issuers/{name}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    change_at_once(&gateway, &caller, |directory, now| {
        let issuer = find(directory, &name)?;
        Ok(deletion(directory, issuer, now))
    })
    .await
}

/// Puts a new issuer in place. What stayed of one with its `iss` has nothing more to say.
fn creation(directory: &Directory, issuer: &Arc<Issuer>) -> Plan<IssuerView> {
    let view = IssuerView::from(&**issuer);
    let mut writes = vec![Write::Put(Noun::Issuer(Arc::clone(issuer)))];
    if issuer.purpose.signs_in()
        && let Some(former) = directory.former_issuers.get(&issuer.issuer)
    {
        let former = Noun::FormerIssuer(Arc::clone(former));
        writes.push(Write::Delete(former));
    }
    Plan::Change {
        kind: EntryKind::IssuerCreated,
        facts: facts(&view),
        writes,
        answer: view,
    }
}

/// Takes an issuer away. The `iss` of one for agents or people stays this tenant's: another tenant that has
/// registered it, or does, is not the only one, and gets no tokens that name no tenant.
fn deletion(directory: &Directory, issuer: &Arc<Issuer>, now: Timestamp) -> Plan<StatusCode> {
    let mut writes = vec![Write::Delete(Noun::Issuer(Arc::clone(issuer)))];
    if issuer.purpose.signs_in() {
        let known = &directory.former_issuers;
        let is_full = known.len() >= FORMER_ISSUERS_MAX && !known.contains_key(&issuer.issuer);
        let oldest = known.values().min_by_key(|former| former.deleted_at);
        if let Some(oldest) = oldest.filter(|_| is_full) {
            let oldest = Noun::FormerIssuer(Arc::clone(oldest));
            writes.push(Write::Delete(oldest));
        }
        let former = FormerIssuer {
            issuer: issuer.issuer.clone(),
            deleted_at: now,
        };
        writes.push(Write::Put(Noun::FormerIssuer(Arc::new(former))));
    }
    Plan::Change {
        kind: EntryKind::IssuerDeleted,
        facts: facts(&IssuerView::from(&**issuer)),
        writes,
        answer: StatusCode::NO_CONTENT,
    }
}

fn new_issuer(body: IssuerBody, now: Timestamp) -> Result<Issuer, Refusal> {
    check_keys(&body.jwks)?;
    let plain = |text| Name::new(text).expect("a plain word is a name");
    let claim = match (body.purpose.signs_in(), body.claim) {
        (true, claim) => Some(claim.unwrap_or_else(|| plain(DEFAULT_CLAIM))),
        (false, None) => None,
        (false, Some(_)) => {
            let detail =
                "`claim` names who calls, which tokens of the purpose `provenance` do not say; leave it out";
            return Err(Refusal::new(Code::InvalidField, detail));
        }
    };
    Ok(Issuer {
        name: body.name,
        purpose: body.purpose,
        issuer: body.issuer,
        audience: body.audience.unwrap_or_else(|| plain(DEFAULT_AUDIENCE)),
        jwks: Arc::new(body.jwks),
        claim,
        created_at: now,
    })
}

/// Refuses keys that verify nothing, and secrets, of which nothing is told but the name of the member.
fn check_keys(jwks: &Value) -> Result<(), Refusal> {
    match KeySet::parse_new(jwks.to_string().as_bytes()) {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal::new(Code::InvalidField, format!("`jwks`: {error}"))),
    }
}

/// Refuses what could not be told apart from an issuer that is there.
fn check_free(directory: &Directory, new: &Issuer) -> Result<(), Refusal> {
    if directory.issuers.contains_key(&new.name) {
        let detail = format!(
            "there is an issuer `{}` already; replace its keys with PATCH",
            new.name
        );
        return Err(Refusal::new(Code::NameTaken, detail));
    }
    // A token that signs in an agent must not be one that signs in a person.
    let is_either =
        |known: &Issuer| known.purpose.signs_in() && new.purpose.signs_in() && known.audience == new.audience;
    let is_same = |known: &&Arc<Issuer>| {
        known.issuer == new.issuer && (known.purpose == new.purpose || is_either(known))
    };
    if let Some(known) = directory.issuers.values().find(is_same) {
        let (purpose, name) = (known.purpose.as_str(), &known.name);
        let detail = format!(
            "`{}` is registered for `{purpose}` as `{name}` already; one issuer is registered once for a purpose, and for \
             agents and people with different audiences",
            new.issuer
        );
        return Err(Refusal::new(Code::Conflict, detail));
    }
    if directory.issuers.len() >= ISSUERS_MAX {
        let detail = format!("a tenant has at most {ISSUERS_MAX} issuers; delete one first");
        return Err(Refusal::new(Code::Conflict, detail));
    }
    Ok(())
}

fn find<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<Issuer>, Refusal> {
    directory
        .issuers
        .get(name)
        .ok_or_else(|| Refusal::not_found("issuer", name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;
    use serde_json::json;

    fn directory() -> Directory {
        let tenant = json!({"id": TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()))
    }

    fn issuer(purpose: &str, iss: &str) -> Arc<Issuer> {
        let issuer = json!({"name": "idp", "purpose": purpose, "issuer": iss, "audience": "here", "jwks": {"keys": []},
            "created_at": "1970-01-01T00:00:00.000Z"});
        Arc::new(serde_json::from_value(issuer).unwrap())
    }

    /// Registers an issuer, and deletes it at this time.
    fn come_and_go(directory: &mut Directory, issuer: &Arc<Issuer>, at: usize) {
        let at = Timestamp::from_millis(i64::try_from(at).unwrap());
        for write in creation(directory, issuer).writes() {
            directory.apply(write);
        }
        assert!(!directory.former_issuers.contains_key(&issuer.issuer));
        for write in deletion(directory, issuer, at).writes() {
            directory.apply(write);
        }
        assert!(directory.issuers.is_empty());
    }

    #[test]
    fn of_very_many_deleted_issuers_the_one_that_was_deleted_first_is_forgotten() {
        let mut directory = directory();
        for number in 0..FORMER_ISSUERS_MAX {
            come_and_go(&mut directory, &issuer("agents", &format!("{number}")), number);
        }
        // One that was there before is deleted last now.
        come_and_go(&mut directory, &issuer("people", "0"), FORMER_ISSUERS_MAX);
        assert_eq!(directory.former_issuers.len(), FORMER_ISSUERS_MAX);
        come_and_go(&mut directory, &issuer("agents", "last"), FORMER_ISSUERS_MAX + 1);
        let former = &directory.former_issuers;
        assert_eq!(former.len(), FORMER_ISSUERS_MAX);
        let is_known = ["0", "1", "2", "last"].map(|iss| former.contains_key(iss));
        assert_eq!(is_known, [true, false, true, true]);
    }

    #[test]
    fn nothing_stays_of_an_issuer_that_signs_nobody_in() {
        let mut directory = directory();
        come_and_go(&mut directory, &issuer("provenance", "crm"), 1);
        assert!(directory.former_issuers.is_empty());
    }
}
