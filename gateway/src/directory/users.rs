//! `/v1/users`: the people on whose behalf agents act, or who answer for them, and what those may do here whom a registered
//! issuer signs in.

use super::{Upserted, change_at_once, deleted, facts, new_name, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, PageQuery, Query, Refusal, TenantCaller, conditions};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use engine::EntryKind;
use model::{Attributes, Directory, Name, Noun, Role, User};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The most teams of a user. Each decision that is made for one names them all, for good.
const TEAMS_MAX: usize = 256;

/// What a PUT says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserBody {
    #[serde(default)]
    teams: BTreeSet<Name>,
    #[serde(default)]
    attributes: Attributes,
    #[serde(default)]
    roles: BTreeSet<Role>,
}

/// A user as callers see one.
#[derive(Debug, Serialize)]
pub struct UserView {
    name: Name,
    teams: BTreeSet<Name>,
    attributes: Attributes,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    roles: BTreeSet<Role>,
}

impl From<&User> for UserView {
    fn from(user: &User) -> Self {
        Self {
            name: user.name.clone(),
            teams: user.teams.clone(),
            attributes: user.attributes.clone(),
            roles: user.roles.clone(),
        }
    }
}

/// `PUT /v1/users/{user}`
pub async fn put_user(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<UserBody>,
) -> Result<Upserted<UserView>, Refusal> {
    if body.roles.contains(&Role::Operator) {
        let detail = "`roles`: operators sign in with keys, and belong to no tenant";
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    let user = Arc::new(User {
        name: new_name(&name)?,
        teams: body.teams,
        attributes: body.attributes,
        roles: body.roles,
    });
    change_at_once(&gateway, &caller, |directory, _| {
        let known = directory.users.get(&user.name);
        conditions::check_new(&headers, known.is_some())?;
        check_teams(directory, &user)?;
        let view = UserView::from(&*user);
        if known == Some(&user) {
            return Ok(Plan::nothing(Upserted::Known(view)));
        }
        let noun = Noun::User(Arc::clone(&user));
        let facts = facts(&view);
        Ok(put(
            EntryKind::UserPut,
            noun,
            facts,
            Upserted::of(view, known.is_none()),
        ))
    })
    .await
}

/// `GET /v1/users`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, UserView>(&tenant.directory.users, &query, |_| true)
}

/// `GET /v1/users/{user}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Json<UserView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let user = find(&tenant.directory, &name)?;
    Ok(Json(UserView::from(&**user)))
}

/// `DELETE /v1/users/{user}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    change_at_once(&gateway, &caller, |directory, _| {
        let user = find(directory, &name)?;
        let noun = Noun::User(Arc::clone(user));
        Ok(deleted(EntryKind::UserDeleted, noun, &UserView::from(&**user)))
    })
    .await
}

fn find<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<User>, Refusal> {
    directory
        .users
        .get(name)
        .ok_or_else(|| Refusal::not_found("user", name))
}

fn check_teams(directory: &Directory, user: &User) -> Result<(), Refusal> {
    let count = user.teams.len();
    if count > TEAMS_MAX {
        let detail = format!("`teams`: a user is in {TEAMS_MAX} teams at most, this one is in {count}");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    match user
        .teams
        .iter()
        .find(|team| !directory.teams.contains_key(team.as_str()))
    {
        Some(team) => Err(Refusal::new(
            Code::InvalidField,
            format!("`teams`: there is no team `{team}`"),
        )),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_that_is_named_twice_is_one_team() {
        let body: UserBody = serde_json::from_str(r#"{"teams":["a","a"]}"#).unwrap();
        assert_eq!(body.teams.len(), 1);
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        assert!(serde_json::from_str::<UserBody>(r#"{"teams":[""]}"#).is_err());
    }
}
