//! `/v1/keys`: the API keys of a tenant, and the operators' own.
//!
//! An admin makes keys of its own tenant, an operator those of any tenant and of operators. An operator's key belongs to
//! no tenant and lives in the system tenant; an operator who names no tenant works on those. A key's `user` need not be
//! registered as a user: who may sign in and on whose behalf agents act are two lists.

pub(crate) mod operators;

use super::{check_future, check_in_use, facts, page, put};
use crate::changes::{Force, Order, Plan};
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, Page, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::{
    ApiKey, DeletedKey, Directory, KeyId, Name, Noun, Role, Secret, SecretKind, TenantId, Timestamp, Write,
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::sync::Arc;

/// What a POST says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewKey {
    name: Name,
    role: Role,
    user: Option<Name>,
    expires_at: Option<Timestamp>,
    tenant: Option<String>,
}

/// A key as callers see it.
#[derive(Debug, Serialize)]
pub struct KeyView {
    id: KeyId,
    name: Name,
    role: Role,
    user: Option<Name>,
    /// Absent for an operator's.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<TenantId>,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// A key that was just made, with its secret.
#[derive(Serialize)]
pub struct NewKeyView {
    #[serde(flatten)]
    view: KeyView,
    key: String,
}

impl From<&ApiKey> for KeyView {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id,
            name: key.name.clone(),
            role: key.role,
            user: key.user.clone(),
            tenant: (key.tenant != TenantId::SYSTEM).then_some(key.tenant),
            created_at: key.created_at,
            expires_at: key.expires_at,
        }
    }
}

/// `POST /v1/keys`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Json(body): Json<NewKey>,
) -> Result<Created<NewKeyView>, Refusal> {
    let tenant = tenant_of(&gateway, &caller, &body)?;
    check_future(body.expires_at, gateway.clock.now())?;
    let secret = Secret::mint(SecretKind::ApiKey, &*gateway.entropy);
    let plan = |directory: &Directory, now| {
        check_reachable(directory)?;
        let key = Arc::new(ApiKey {
            id: KeyId::new(now, &*gateway.entropy),
            tenant,
            name: body.name.clone(),
            role: body.role,
            user: body.user.clone(),
            digest: secret.digest(),
            created_at: now,
            expires_at: body.expires_at,
        });
        let view = KeyView::from(&*key);
        let facts = facts(&view);
        Ok(put(EntryKind::KeyCreated, Noun::Key(key), facts, view))
    };
    let view = gateway
        .change_by(caller.holder.by(), Force::No, tenant, plan)
        .await?;
    if body.role == Role::Operator {
        operators::tell_of_end(&gateway);
    }
    let key = secret.reveal().to_owned();
    Ok(Created(NewKeyView { view, key }))
}

/// `GET /v1/keys`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<KeyView>>, Refusal> {
    let tenant = gateway.tenant(caller.tenant)?;
    check_reachable(&tenant.directory)?;
    page(&tenant.directory.keys, &query, |_| true).map(Json)
}

/// `DELETE /v1/keys/{id}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    let plan = |directory: &Directory, now| {
        check_reachable(directory)?;
        let key = id.parse::<KeyId>().ok().and_then(|id| directory.keys.get(&id));
        let key = key.ok_or_else(|| Refusal::not_found("key", &id))?;
        check_not_last(directory, key, now)?;
        Ok(deletion(directory, key, now))
    };
    let deleted = gateway
        .change_in(Order::AtOnce, caller.holder.by(), Force::No, caller.tenant, plan)
        .await?;
    // Nobody but operators has keys there.
    if caller.tenant == TenantId::SYSTEM {
        operators::tell_of_end(&gateway);
    }
    Ok(deleted)
}

/// Deletes a key together with all others of its secret, which would leave the secret working. Gateways that were started
/// together have recorded the operator key that they brought along once each. Of an operator's key the digest stays: no start may install it again.
fn deletion(directory: &Directory, key: &Arc<ApiKey>, now: Timestamp) -> Plan<StatusCode> {
    let twins = || {
        let others = directory.keys.values();
        others.filter(|other| other.digest == key.digest && other.id != key.id)
    };
    let mut facts = facts(&KeyView::from(&**key));
    if twins().next().is_some() {
        facts["twins"] = twins().map(|twin| json!(twin.id)).collect();
    }
    let deleted = std::iter::once(key).chain(twins());
    let mut writes: Vec<_> = deleted
        .map(|key| Write::Delete(Noun::Key(Arc::clone(key))))
        .collect();
    if key.role == Role::Operator {
        writes.push(Write::Put(Noun::DeletedKey(Arc::new(DeletedKey {
            digest: key.digest,
            deleted_at: now,
        }))));
    }
    Plan {
        kind: EntryKind::KeyDeleted,
        facts,
        writes,
        answer: StatusCode::NO_CONTENT,
    }
}

/// Keys are the one thing that the system tenant has for those who can reach it.
fn check_reachable(directory: &Directory) -> Result<(), Refusal> {
    if directory.tenant.id == TenantId::SYSTEM {
        Ok(())
    } else {
        check_in_use(&directory.tenant)
    }
}

/// Which tenant the new key belongs to, if the caller may make such a key there.
fn tenant_of(gateway: &Gateway, caller: &TenantCaller, body: &NewKey) -> Result<TenantId, Refusal> {
    let is_operator = caller.holder.has(Role::Operator);
    if body.role == Role::Operator && !is_operator {
        return Err(Refusal::new(
            Code::Forbidden,
            "only an operator makes keys for operators",
        ));
    }
    // An operator who named no tenant in the header is in the system tenant.
    let by_header = (caller.tenant != TenantId::SYSTEM).then_some(caller.tenant);
    let by_body = body
        .tenant
        .as_deref()
        .map(|id| super::tenants::find(gateway, id))
        .transpose()?;
    let by_body = by_body.map(|tenant| tenant.id);
    match (body.role, by_header, by_body) {
        (Role::Operator, None, None) => Ok(TenantId::SYSTEM),
        (Role::Operator, ..) => Err(Refusal::new(
            Code::InvalidField,
            "`role`: the key of an operator belongs to no tenant; name none",
        )),
        (_, Some(tenant), Some(other)) if tenant != other && is_operator => Err(Refusal::new(
            Code::InvalidField,
            "`tenant`: it is another than the header `Countersign-Tenant` names",
        )),
        // Somebody else's tenant does not exist for this caller.
        (_, Some(tenant), Some(other)) if tenant != other => {
            Err(Refusal::not_found("tenant", &other.to_string()))
        }
        (_, Some(tenant), _) | (_, None, Some(tenant)) => Ok(tenant),
        (_, None, None) => {
            let detail =
                "an operator names the tenant of a key with `tenant` or the header `Countersign-Tenant`";
            Err(Refusal::new(Code::TenantRequired, detail))
        }
    }
}

/// Without an operator's key that works, only whoever starts a gateway could make one again. Those that are left may all have an end: of that the log
/// warns.
fn check_not_last(directory: &Directory, key: &ApiKey, now: Timestamp) -> Result<(), Refusal> {
    let works = |other: &ApiKey| {
        other.digest != key.digest && other.role == Role::Operator && !other.has_expired(now)
    };
    if key.role != Role::Operator || directory.keys.values().any(|other| works(other)) {
        return Ok(());
    }
    let detail = format!(
        "`{}` is the last key of an operator that works; make another one first",
        key.id
    );
    Err(Refusal::new(Code::Conflict, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;

    fn key(id: u8, expires_at: Option<Timestamp>) -> ApiKey {
        ApiKey {
            id: KeyId::from_bytes([id; 16]),
            tenant: TenantId::SYSTEM,
            name: Name::new("first").unwrap(),
            role: Role::Operator,
            user: None,
            digest: Digest::of(&[id]),
            created_at: Timestamp::from_millis(0),
            expires_at,
        }
    }

    #[test]
    fn a_view_has_nothing_of_the_secret() {
        let view = facts(&KeyView::from(&key(1, None)));
        let members: Vec<_> = view.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(members.len(), 6, "{members:?}");
        assert!(!view.to_string().contains("sha256"));
    }

    fn system(keys: &[ApiKey]) -> Directory {
        let tenant = json!({"id": TenantId::SYSTEM, "name": "system", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        for key in keys {
            directory.apply(&Write::Put(Noun::Key(Arc::new(key.clone()))));
        }
        directory
    }

    #[test]
    fn an_expired_key_does_not_make_another_one_dispensable() {
        let now = Timestamp::from_millis(10);
        let mut directory = system(&[key(1, None), key(2, Some(now))]);
        assert_eq!(
            check_not_last(&directory, &key(1, None), now).unwrap_err().code(),
            Code::Conflict
        );
        directory.apply(&Write::Put(Noun::Key(Arc::new(key(3, None)))));
        assert!(check_not_last(&directory, &key(1, None), now).is_ok());
    }

    #[test]
    fn a_key_goes_with_all_others_of_its_secret() {
        let (first, mut twin, other) = (key(1, None), key(2, None), key(3, None));
        twin.digest = first.digest;
        let mut directory = system(&[first.clone(), twin.clone()]);
        let now = Timestamp::from_millis(0);
        assert!(
            check_not_last(&directory, &first, now).is_err(),
            "one secret is left"
        );

        directory.apply(&Write::Put(Noun::Key(Arc::new(other.clone()))));
        assert!(check_not_last(&directory, &first, now).is_ok());
        let plan = deletion(&directory, &Arc::new(first.clone()), now);
        assert_eq!(plan.facts["twins"], json!([twin.id]));
        for write in &plan.writes {
            directory.apply(write);
        }
        assert_eq!(directory.keys.keys().collect::<Vec<_>>(), [&other.id]);
        let deleted = directory.deleted_keys.keys();
        assert_eq!(deleted.collect::<Vec<_>>(), [&first.digest]);
    }

    #[test]
    fn nothing_stays_of_a_key_that_no_gateway_is_started_with() {
        let mut auditors = key(1, None);
        auditors.role = Role::Auditor;
        let now = Timestamp::from_millis(0);
        let plan = deletion(&system(&[auditors.clone()]), &Arc::new(auditors), now);
        assert!(matches!(&plan.writes[..], [Write::Delete(Noun::Key(_))]));
    }
}
