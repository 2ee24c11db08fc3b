//! `/v1/tenants`: an operator makes, changes and deletes tenants. The system tenant is not among them.
//!
//! A deleted tenant's credentials stop working and its ledger stays; for this API it is gone.

use super::{facts, is_in_use, only_in_use, put};
use crate::changes::{By, Force, ForceQuery, Order, Plan};
use crate::gateway::Gateway;
use crate::http::page::write_items;
use crate::http::{Code, Created, Json, KeyCaller, LargePage, Location, PageQuery, Query, Refusal};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::{Directory, Name, Noun, Settings, Standing, Tenant, TenantId, Timestamp, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// What a POST says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewTenant {
    name: Name,
    #[serde(default)]
    settings: Settings,
}

/// What a PATCH says. Members of `settings` replace those of the same name; `null` takes one away.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantPatch {
    #[serde(default, deserialize_with = "canon::sent")]
    name: Option<Name>,
    #[serde(default, deserialize_with = "canon::foreign")]
    settings: Map<String, Value>,
}

impl TenantPatch {
    /// Most settings make asks stricter or looser and are no matter of policies, so they wait for none that are compiled.
    fn order(&self) -> Order {
        let of_policies = |name: &str| self.settings.contains_key(name);
        if Settings::OF_POLICIES.into_iter().any(of_policies) {
            Order::InTurn
        } else {
            Order::AtOnce
        }
    }
}

/// A tenant as operators see it.
#[derive(Debug, Serialize)]
pub struct TenantView {
    id: TenantId,
    name: Name,
    settings: Settings,
    #[serde(flatten)]
    standing: Standing,
    created_at: Timestamp,
}

impl From<&Tenant> for TenantView {
    fn from(tenant: &Tenant) -> Self {
        Self {
            id: tenant.id,
            name: tenant.name.clone(),
            settings: tenant.settings.clone(),
            standing: tenant.standing.clone(),
            created_at: tenant.created_at,
        }
    }
}

/// `POST /v1/tenants`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    Json(body): Json<NewTenant>,
) -> Result<(Location, Created<TenantView>), Refusal> {
    let now = gateway.clock.now();
    let tenant = Arc::new(Tenant {
        id: TenantId::new(now, &*gateway.entropy),
        name: body.name,
        settings: checked(body.settings)?,
        standing: Standing::Active,
        limits: model::LimitTerms::default(),
        created_at: now,
        deleted_at: None,
    });
    gateway.create_tenant_by(By::Key(caller.key()), &tenant).await?;
    let view = TenantView::from(&*tenant);
    Ok((Location::of("/v1/tenants", view.id), Created(view)))
}

/// `GET /v1/tenants`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let after = query.after::<TenantId>()?;
    let limit = query.limit()?;
    let snapshot = Arc::clone(&gateway.snapshot.load());
    Ok(LargePage::new(move |text| {
        let tenants = snapshot.tenants().map(|(_, tenant)| &tenant.directory.tenant);
        let is_listed =
            |tenant: &&Arc<Tenant>| after.is_none_or(|after| after < tenant.id) && is_in_use(tenant);
        write_items(
            text,
            tenants.filter(is_listed),
            limit,
            |tenant| tenant.id.to_string(),
            |tenant| TenantView::from(&**tenant),
        )
    }))
}

/// `GET /v1/tenants/{id}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Path(id): Path<String>,
) -> Result<Json<TenantView>, Refusal> {
    let tenant = find(&gateway, &id)?;
    // Operators are let in by what the system tenant says, and this is of another one.
    gateway.check_current_for(tenant.id)?;
    Ok(Json(TenantView::from(&*tenant)))
}

/// `PATCH /v1/tenants/{id}`
pub async fn patch(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    Path(id): Path<String>,
    Query(query): Query<ForceQuery>,
    Json(body): Json<TenantPatch>,
) -> Result<Json<TenantView>, Refusal> {
    let force = query.by(&caller.holder())?;
    let changed = change_one_with(&gateway, &caller, &id, (body.order(), force), |directory, _| {
        let before = &directory.tenant;
        let after = Arc::new(Tenant {
            name: body.name.clone().unwrap_or_else(|| before.name.clone()),
            settings: merge(&before.settings, &body.settings)?,
            ..(**before).clone()
        });
        let view = TenantView::from(&*after);
        if after == *before {
            return Ok(Plan::nothing(view));
        }
        let facts = facts(&view);
        Ok(put(EntryKind::TenantUpdated, Noun::Tenant(after), facts, view))
    });
    changed.await.map(Json)
}

/// `DELETE /v1/tenants/{id}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<KeyCaller>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refusal> {
    change_one_at_once(&gateway, &caller, &id, |directory, now| {
        let after = Arc::new(Tenant {
            deleted_at: Some(now),
            ..(*directory.tenant).clone()
        });
        Ok(Plan::Change {
            kind: EntryKind::TenantDeleted,
            facts: json!({"id": after.id, "name": after.name, "deleted_at": now}),
            writes: vec![Write::Put(Noun::Tenant(after))],
            answer: StatusCode::NO_CONTENT,
        })
    })
    .await
}

/// A tenant that is in use.
pub(super) fn find(gateway: &Gateway, id: &str) -> Result<Arc<Tenant>, Refusal> {
    let snapshot = gateway.snapshot.load();
    let tenant = id.parse().ok().and_then(|id| snapshot.tenant(id));
    let tenant = tenant
        .map(|tenant| &tenant.directory.tenant)
        .filter(|tenant| is_in_use(tenant));
    tenant.cloned().ok_or_else(|| Refusal::not_found("tenant", id))
}

/// Changes a tenant itself, in the name of an operator, for what may take something away before it does harm, and has
/// nothing compiled.
pub(super) async fn change_one_at_once<T>(
    gateway: &Gateway,
    caller: &KeyCaller,
    id: &str,
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> Result<T, Refusal> {
    change_one_with(gateway, caller, id, (Order::AtOnce, Force::No), plan).await
}

/// Changes a tenant itself, in the name of an operator, when it is its turn in this order, perhaps with force.
async fn change_one_with<T>(
    gateway: &Gateway,
    caller: &KeyCaller,
    id: &str,
    (order, force): (Order, Force),
    plan: impl Fn(&Directory, Timestamp) -> Result<Plan<T>, Refusal>,
) -> Result<T, Refusal> {
    let (by, id) = (By::Key(caller.key()), find(gateway, id)?.id);
    gateway.change_in(order, by, force, id, only_in_use(plan)).await
}

/// The settings with these members in place of their own.
fn merge(before: &Settings, members: &Map<String, Value>) -> Result<Settings, Refusal> {
    let mut merged = match facts(before) {
        Value::Object(members) => members,
        _ => Map::new(),
    };
    for (name, value) in members {
        if value.is_null() {
            check_known(name)?;
            merged.remove(name);
        } else {
            merged.insert(name.clone(), value.clone());
        }
    }
    read_settings(&merged)
}

/// Refuses to take away what never was a setting: it would look as if it had worked.
fn check_known(name: &str) -> Result<(), Refusal> {
    let alone = Map::from_iter([(name.to_owned(), Value::Null)]);
    match read_settings(&alone) {
        Err(refusal) if refusal.code() == Code::UnknownField => Err(refusal),
        _ => Ok(()),
    }
}

fn read_settings(members: &Map<String, Value>) -> Result<Settings, Refusal> {
    // In its place, so that an error names the field as the caller knows it.
    #[derive(Deserialize)]
    struct Place {
        settings: Settings,
    }
    checked(canon::read::<Place>(&json!({"settings": members}).to_string())?.settings)
}

/// Refuses settings that contradict each other.
fn checked(settings: Settings) -> Result<Settings, Refusal> {
    match settings.contradiction() {
        Some(detail) => Err(Refusal::new(
            Code::InvalidField,
            format!("`settings.redact` {detail}"),
        )),
        None => Ok(settings),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(members: Value) -> Result<Value, Code> {
        let before = json!({"context_attributes": {"region": "String"}});
        let before: Settings = serde_json::from_value(before).unwrap();
        let Value::Object(members) = members else {
            panic!("settings are an object")
        };
        merge(&before, &members)
            .map(|settings| facts(&settings))
            .map_err(|refusal| refusal.code())
    }

    #[test]
    fn a_setting_is_replaced_kept_or_taken_away() {
        assert_eq!(
            merged(json!({})),
            Ok(json!({"context_attributes": {"region": "String"}}))
        );
        let replaced = json!({"context_attributes": {"level": "Long"}});
        assert_eq!(merged(replaced.clone()), Ok(replaced));
        assert_eq!(merged(json!({"context_attributes": null})), Ok(json!({})));
    }

    #[test]
    fn parameters_are_named_only_where_some_are_kept() {
        for contradiction in [
            json!({"redact": ["/card"]}),
            json!({"parameters": "clear", "redact": ["/card"]}),
            json!({"parameters": "redacted", "redact": ["card"]}),
            json!({"parameters": "all"}),
        ] {
            assert_eq!(
                merged(contradiction.clone()),
                Err(Code::InvalidField),
                "{contradiction}"
            );
        }
        let kept = json!({"parameters": "redacted", "redact": ["/card"]});
        let with = json!({"context_attributes": null, "parameters": "redacted", "redact": ["/card"]});
        assert_eq!(merged(with), Ok(kept));
    }

    #[test]
    fn what_is_no_setting_can_neither_be_set_nor_taken_away() {
        assert_eq!(merged(json!({"colour": "red"})), Err(Code::UnknownField));
        assert_eq!(merged(json!({"colour": null})), Err(Code::UnknownField));
        assert_eq!(
            merged(json!({"context_attributes": {"level": "Float"}})),
            Err(Code::InvalidField)
        );
    }
}
