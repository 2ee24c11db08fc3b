//! `/v1/keys`: the API keys of a tenant, and the operators' own.
//!
//! An admin makes keys of its own tenant, an operator those of any tenant and of operators. An operator's key belongs to
//! no tenant and lives in the system tenant; an operator who names no tenant works on those. A key's `user` need not be
//! registered as a user: who may sign in and on whose behalf agents act are two lists.

pub(crate) mod operators;

use super::{EXPIRED_FOR_MS, check_future, check_in_use, facts, page};
use crate::changes::{Force, Order, Plan};
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, LargePage, PageQuery, Query, Refusal, TenantCaller};
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

/// How many expired keys are cleared away at once, by whoever makes another one.
const EXPIRED_MAX: usize = 256;
/// Among how many keys of a tenant they are looked for, the oldest: a fraction of a millisecond.
const LOOKED_AT_MAX: usize = 4_096;

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
        Ok(creation(directory, key))
    };
    let view = gateway
        .change_by(caller.holder().by(), Force::No, tenant, plan)
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
) -> Result<LargePage, Refusal> {
    let tenant = gateway.tenant(caller.tenant())?;
    check_reachable(&tenant.directory)?;
    page::<_, _, KeyView>(&tenant.directory.keys, &query, |_| true)
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
        .change_in(
            Order::AtOnce,
            caller.holder().by(),
            Force::No,
            caller.tenant(),
            plan,
        )
        .await?;
    // Nobody but operators has keys there.
    if caller.tenant() == TenantId::SYSTEM {
        operators::tell_of_end(&gateway);
    }
    Ok(deleted)
}

/// Puts a new key in place and clears away those that have expired, which nobody else would, the oldest first.
fn creation(directory: &Directory, key: Arc<ApiKey>) -> Plan<KeyView> {
    let now = key.created_at;
    // Not those that have just expired: this clock may be ahead.
    let long_ago = now.plus_millis(-EXPIRED_FOR_MS);
    let oldest = directory.keys.values().take(LOOKED_AT_MAX);
    let expired = oldest.filter(|key| key.has_expired(long_ago));
    let expired: Vec<_> = expired.take(EXPIRED_MAX).collect();
    let view = KeyView::from(&*key);
    let mut facts = facts(&view);
    if !expired.is_empty() {
        facts["expired"] = expired.iter().map(|key| json!(key.id)).collect();
    }
    let mut writes = vec![Write::Put(Noun::Key(key))];
    for key in expired {
        writes.push(Write::Delete(Noun::Key(Arc::clone(key))));
        writes.extend(remembered(key, now));
    }
    Plan::Change {
        kind: EntryKind::KeyCreated,
        facts,
        writes,
        answer: view,
    }
}

/// Deletes a key together with all others of its secret, which would leave the secret working. Gateways that were
/// started together have recorded the operator key that they brought along once each. A tenant's keys are made here,
/// each with a secret of its own, and are very many perhaps.
fn deletion(directory: &Directory, key: &Arc<ApiKey>, now: Timestamp) -> Plan<StatusCode> {
    let is_operators = directory.tenant.id == TenantId::SYSTEM;
    let twins = || {
        let others = is_operators.then(|| directory.keys.values());
        let others = others.into_iter().flatten();
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
    writes.extend(remembered(key, now));
    Plan::Change {
        kind: EntryKind::KeyDeleted,
        facts,
        writes,
        answer: StatusCode::NO_CONTENT,
    }
}

/// What stays of a key that goes: of an operator's the digest, so that no start installs it again.
fn remembered(key: &ApiKey, now: Timestamp) -> Option<Write> {
    let deleted = || DeletedKey {
        digest: key.digest,
        deleted_at: now,
    };
    (key.role == Role::Operator).then(|| Write::Put(Noun::DeletedKey(Arc::new(deleted()))))
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
    let is_operator = caller.holder().has(Role::Operator);
    if body.role == Role::Operator && !is_operator {
        return Err(Refusal::new(
            Code::Forbidden,
            "only an operator makes keys for operators",
        ));
    }
    // An operator who named no tenant in the header is in the system tenant.
    let by_header = (caller.tenant() != TenantId::SYSTEM).then_some(caller.tenant());
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

/// Without an operator's key that works, only whoever starts a gateway could make one again. Those that are left may
/// all have an end: of that the log warns.
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
        directory(TenantId::SYSTEM, keys)
    }

    fn directory(tenant: TenantId, keys: &[ApiKey]) -> Directory {
        let tenant = json!({"id": tenant, "name": "system", "settings": {}, "bucket": null,
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
        assert_eq!(plan.facts()["twins"], json!([twin.id]));
        for write in plan.writes() {
            directory.apply(write);
        }
        assert_eq!(directory.keys.keys().collect::<Vec<_>>(), [&other.id]);
        let deleted = directory.deleted_keys.keys();
        assert_eq!(deleted.collect::<Vec<_>>(), [&first.digest]);
    }

    #[test]
    fn a_new_key_clears_the_expired_ones_away_and_says_so() {
        let long_ago = Timestamp::from_millis(-EXPIRED_FOR_MS);
        let later = long_ago.plus_millis(1);
        let mut auditors = key(3, Some(long_ago));
        auditors.role = Role::Auditor;
        let mut directory = system(&[key(1, Some(long_ago)), key(2, Some(later)), auditors]);
        let plan = creation(&directory, Arc::new(key(4, None)));
        let ids = [1, 3].map(|id| KeyId::from_bytes([id; 16]));
        assert_eq!(plan.facts()["expired"], json!(ids));
        for write in plan.writes() {
            directory.apply(write);
        }
        let left = [2, 4].map(|id| KeyId::from_bytes([id; 16]));
        assert_eq!(directory.keys.keys().copied().collect::<Vec<_>>(), left);
        // No start installs an operator's again; an auditor's is none.
        let deleted: Vec<_> = directory.deleted_keys.keys().copied().collect();
        assert_eq!(deleted, [Digest::of(&[1])]);
    }

    #[test]
    fn the_keys_of_a_tenant_are_not_looked_through_for_others_of_a_secret() {
        let tenant = TenantId::from_bytes([1; 16]);
        let made = |id| ApiKey {
            tenant,
            role: Role::Admin,
            digest: Digest::of(b"one"),
            ..key(id, None)
        };
        let keys = directory(tenant, &[made(1), made(2)]);
        let plan = deletion(&keys, &Arc::new(made(1)), Timestamp::from_millis(0));
        assert_eq!((plan.writes().len(), plan.facts().get("twins")), (1, None));
    }

    /// So many keys with this end, in the order of their age.
    fn many(count: usize, expires_at: Option<Timestamp>) -> Vec<ApiKey> {
        let numbers = (0_u16..).take(count);
        let keys = numbers.map(|number| {
            let mut id = [0; 16];
            id[..2].copy_from_slice(&number.to_be_bytes());
            ApiKey {
                id: KeyId::from_bytes(id),
                ..key(1, expires_at)
            }
        });
        keys.collect()
    }

    #[test]
    fn of_very_many_expired_keys_the_oldest_are_cleared_away_first() {
        let long_ago = Timestamp::from_millis(-EXPIRED_FOR_MS);
        let expired = many(EXPIRED_MAX + 1, Some(long_ago));
        let mut directory = system(&expired);
        let plan = creation(&directory, Arc::new(key(200, None)));
        for write in plan.writes() {
            directory.apply(write);
        }
        let newest = expired[EXPIRED_MAX].id;
        let left: Vec<_> = directory.keys.keys().copied().collect();
        assert_eq!(left, [newest, KeyId::from_bytes([200; 16])]);
    }

    #[test]
    fn expired_keys_are_looked_for_among_the_oldest() {
        let mut keys = many(LOOKED_AT_MAX + 1, None);
        for place in [LOOKED_AT_MAX - 1, LOOKED_AT_MAX] {
            keys[place].expires_at = Some(Timestamp::from_millis(-EXPIRED_FOR_MS));
        }
        let plan = creation(&system(&keys), Arc::new(key(200, None)));
        assert_eq!(plan.facts()["expired"], json!([keys[LOOKED_AT_MAX - 1].id]));
    }

    #[test]
    fn nothing_stays_of_a_key_that_no_gateway_is_started_with() {
        let mut auditors = key(1, None);
        auditors.role = Role::Auditor;
        let now = Timestamp::from_millis(0);
        let plan = deletion(&system(&[auditors.clone()]), &Arc::new(auditors), now);
        assert!(matches!(plan.writes(), [Write::Delete(Noun::Key(_))]));
    }
}
