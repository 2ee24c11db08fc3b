//! `/v1/teams`: the teams that agents and users belong to. A team that somebody is in cannot be deleted.

use super::{Upserted, change, change_at_once, deleted, facts, new_name, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, PageQuery, Query, Refusal, TenantCaller, conditions};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use engine::EntryKind;
use model::{Attributes, Directory, Name, Noun, Team};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What a PUT says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TeamBody {
    #[serde(default)]
    attributes: Attributes,
}

/// A team as callers see it.
#[derive(Debug, Serialize)]
pub struct TeamView {
    name: Name,
    attributes: Attributes,
}

impl From<&Team> for TeamView {
    fn from(team: &Team) -> Self {
        Self {
            name: team.name.clone(),
            attributes: team.attributes.clone(),
        }
    }
}

/// `PUT /v1/teams/{team}`
pub async fn put_team(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<TeamBody>,
) -> Result<Upserted<TeamView>, Refusal> {
    let name: Name = new_name(&name)?;
    // Policies look at what a team is, and less of it may be less that is allowed.
    change_at_once(&gateway, &caller, |directory, _| {
        let known = directory.teams.get(&name);
        conditions::check_new(&headers, known.is_some())?;
        let team = Arc::new(Team {
            name: name.clone(),
            attributes: body.attributes.clone(),
            // They have a route of their own, and are not taken away by a PUT that does not speak of them.
            quotas: known.map_or_else(Vec::new, |team| team.quotas.clone()),
        });
        let view = TeamView::from(&*team);
        if known == Some(&team) {
            return Ok(Plan::nothing(Upserted::Known(view)));
        }
        let noun = Noun::Team(Arc::clone(&team));
        let facts = facts(&view);
        Ok(put(
            EntryKind::TeamPut,
            noun,
            facts,
            Upserted::of(view, known.is_none()),
        ))
    })
    .await
}

/// `GET /v1/teams`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, TeamView>(&tenant.directory.teams, &query, |_| true)
}

/// `GET /v1/teams/{team}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Json<TeamView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let team = find(&tenant.directory, &name)?;
    Ok(Json(TeamView::from(&**team)))
}

/// `DELETE /v1/teams/{team}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    change(&gateway, &caller, |directory, _| {
        let team = find(directory, &name)?;
        check_empty(directory, &team.name)?;
        let noun = Noun::Team(Arc::clone(team));
        Ok(deleted(EntryKind::TeamDeleted, noun, &TeamView::from(&**team)))
    })
    .await
}

pub(super) fn find<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<Team>, Refusal> {
    directory
        .teams
        .get(name)
        .ok_or_else(|| Refusal::not_found("team", name))
}

/// A team with members stays: policies that speak of it would mean something else for them.
fn check_empty(directory: &Directory, team: &Name) -> Result<(), Refusal> {
    let (agents, users) = (directory.agents_in(team), directory.users_in(team));
    if agents + users == 0 {
        return Ok(());
    }
    let detail = format!("{agents} agents and {users} users are in the team `{team}`; move them first");
    Err(Refusal::new(Code::Conflict, detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_team_without_attributes_needs_no_members_in_its_body() {
        assert!(
            serde_json::from_str::<TeamBody>("{}")
                .unwrap()
                .attributes
                .is_empty()
        );
        assert!(serde_json::from_str::<TeamBody>(r#"{"members":[]}"#).is_err());
    }
}
