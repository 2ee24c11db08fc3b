//! The versions of a policy: read back, rolled back to, promoted from a trial or taken out of it.

use super::{Tagged, find, plan, plan_version, preconditions};
use crate::directory::{change, read};
use crate::gateway::Gateway;
use crate::http::page::write_items;
use crate::http::{Code, Empty, Json, LargePage, OptionalJson, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::HeaderMap;
use engine::EntryKind;
use model::{Policy, PolicyMode, PolicyVersion};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// A version, and whether it is in use.
#[derive(Debug, Serialize)]
pub struct VersionView {
    #[serde(flatten)]
    version: Arc<PolicyVersion>,
    enforced: bool,
    on_trial: bool,
}

/// Which version to go back to.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rollback {
    version: u64,
}

/// `GET /v1/policies/{name}/versions`: the newest first; those that are no longer kept stand in the ledger.
pub async fn versions(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let before = query.after::<u64>()?;
    let tenant = read(&gateway, &caller)?;
    // Also of a policy that was deleted: this is how one finds what to bring back.
    let policies = &tenant.directory.policies;
    let policy = policies
        .get(name.as_str())
        .ok_or_else(|| Refusal::not_found("policy", &name))?;
    let (policy, limit) = (Arc::clone(policy), query.limit()?);
    Ok(LargePage::new(move |text| {
        let on_trial = policy.trial.as_ref().map(|trial| trial.version);
        let versions = policy.versions.iter().rev();
        write_items(
            text,
            versions.filter(|version| before.is_none_or(|before| version.version < before)),
            limit,
            |version| version.version.to_string(),
            |version| VersionView {
                version: Arc::clone(version),
                enforced: policy.enforced == Some(version.version),
                on_trial: on_trial == Some(version.version),
            },
        )
    }))
}

/// `POST /v1/policies/{name}/rollback`: a new version that says what an earlier one said, enforced.
pub async fn rollback(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<Rollback>,
) -> Result<Tagged, Refusal> {
    change(&gateway, &caller, |directory, now| {
        let policies = &directory.policies;
        let before = policies
            .get(name.as_str())
            .ok_or_else(|| Refusal::not_found("policy", &name))?;
        preconditions::check(&headers, Some(before))?;
        let version = before.find(body.version).ok_or_else(|| {
            let detail = format!("`version`: version {} of `{name}` is not kept", body.version);
            Refusal::new(Code::InvalidField, detail)
        })?;
        let after = before.with_version(version.text.clone(), PolicyMode::Enforced, now);
        plan_version(EntryKind::PolicyRolledBack, directory, after, Tagged::ok)
    })
    .await
}

/// `POST /v1/policies/{name}/promote`: what is on trial is enforced from now on.
pub async fn promote(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    _: OptionalJson<Empty>,
) -> Result<Tagged, Refusal> {
    end_trial(
        &gateway,
        &caller,
        &name,
        &headers,
        EntryKind::PolicyPromoted,
        Policy::promoted,
    )
    .await
}

/// `POST /v1/policies/{name}/revert`: nothing is on trial from now on.
pub async fn revert(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    _: OptionalJson<Empty>,
) -> Result<Tagged, Refusal> {
    end_trial(
        &gateway,
        &caller,
        &name,
        &headers,
        EntryKind::PolicyReverted,
        Policy::reverted,
    )
    .await
}

async fn end_trial(
    gateway: &Gateway,
    caller: &TenantCaller,
    name: &str,
    headers: &HeaderMap,
    kind: EntryKind,
    end: impl Fn(&Policy) -> Policy,
) -> Result<Tagged, Refusal> {
    change(gateway, caller, |directory, _| {
        let before = find(directory, name)?;
        preconditions::check(headers, Some(before))?;
        if before.trial.is_none() {
            let detail = format!("no version of `{name}` is on trial");
            return Err(Refusal::new(Code::Conflict, detail));
        }
        Ok(plan(kind, end(before), Tagged::ok))
    })
    .await
}
