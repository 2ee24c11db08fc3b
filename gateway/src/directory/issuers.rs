//! `/v1/issuers`: who may sign tokens for this tenant, for what, and with which keys.
//!
//! Keys are brought along, never fetched: what a decision rests on is in the directory and in the ledger. They are replaced by
//! PATCH, or by a file of the operator's; while both the old and the new one are in the set, tokens of both are good.

mod files;

pub use files::{Complaints, Files, ReadFiles, check_folder};

use super::{change, change_at_once, deleted, facts, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, Location, Page, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::issuer::{DEFAULT_AUDIENCE, DEFAULT_CLAIM};
use model::{Directory, Issuer, Name, Noun, Purpose, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use tokens::KeySet;

/// The most issuers of a tenant. They are looked through for every token that was not seen before.
const ISSUERS_MAX: usize = 32;

/// What a POST says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerBody {
    #[serde(deserialize_with = "model::name::new_segment")]
    name: Name,
    purpose: Purpose,
    issuer: Name,
    audience: Option<Name>,
    jwks: Value,
    claim: Option<Name>,
}

/// What a PATCH says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IssuerPatch {
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
        let view = IssuerView::from(&*issuer);
        let noun = Noun::Issuer(Arc::clone(&issuer));
        let facts = facts(&view);
        Ok(put(EntryKind::IssuerCreated, noun, facts, view))
    });
    let view = created.await?;
    Ok((Location::of("/v1/issuers", &view.name), Created(view)))
}

/// `GET /v1/issuers`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<IssuerView>>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page(&tenant.directory.issuers, &query, |_| true).map(Json)
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
    change_at_once(&gateway, &caller, |directory, _| {
        let issuer = find(directory, &name)?;
        let noun = Noun::Issuer(Arc::clone(issuer));
        Ok(deleted(
            EntryKind::IssuerDeleted,
            noun,
            &IssuerView::from(&**issuer),
        ))
    })
    .await
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
