//! `/v1/runs`: stopping one run and nothing else. A run is whatever its agents call one in `trace.run_id`; those that nobody
//! stopped are not listed.

use super::standing::{ReasonBody, told};
use super::{change_at_once, new_name, page, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Json, Page, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use model::run::STOPPED_RUNS_MAX;
use model::{Directory, Name, Noun, Standing, StandingChange, StoppedRun, Timestamp, Write};
use serde::Serialize;
use serde_json::json;
use std::sync::Arc;

/// A run and whether it may go on.
#[derive(Debug, Serialize)]
pub struct RunView {
    run_id: Name,
    #[serde(flatten)]
    standing: Standing,
}

impl From<&StoppedRun> for RunView {
    fn from(run: &StoppedRun) -> Self {
        Self {
            run_id: run.run_id.clone(),
            standing: run.standing.clone(),
        }
    }
}

type ByAdmin = (State<Arc<Gateway>>, Extension<TenantCaller>, Path<String>);

/// `POST /v1/runs/{run_id}/freeze`
pub async fn freeze(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<RunView>, Refusal> {
    change_run(by, StandingChange::Freeze, EntryKind::RunFrozen, body).await
}

/// `POST /v1/runs/{run_id}/unfreeze`
pub async fn unfreeze(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<RunView>, Refusal> {
    change_run(by, StandingChange::Unfreeze, EntryKind::RunUnfrozen, body).await
}

/// `POST /v1/runs/{run_id}/revoke`
pub async fn revoke(by: ByAdmin, body: Json<ReasonBody>) -> Result<Json<RunView>, Refusal> {
    change_run(by, StandingChange::Revoke, EntryKind::RunRevoked, body).await
}

/// `GET /v1/runs`: those that were stopped, by name.
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<RunView>>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page(&tenant.directory.runs, &query, |_| true).map(Json)
}

async fn change_run(
    (State(gateway), Extension(caller), Path(run_id)): ByAdmin,
    how: StandingChange,
    kind: EntryKind,
    Json(body): Json<ReasonBody>,
) -> Result<Json<RunView>, Refusal> {
    let run_id = new_name(&run_id)?;
    let reason = body.into_reason();
    let changed = change_at_once(&gateway, &caller, |directory, now| {
        plan(directory, (&run_id, &reason), how, kind, now)
    });
    changed.await.map(Json)
}

fn plan(
    directory: &Directory,
    (run_id, reason): (&Name, &str),
    how: StandingChange,
    kind: EntryKind,
    now: Timestamp,
) -> Result<Plan<RunView>, Refusal> {
    let before = directory.runs.get(run_id);
    let standing = before.map_or(Standing::Active, |run| run.standing.clone());
    let after = StoppedRun {
        run_id: run_id.clone(),
        standing: standing.after(how, reason, now)?,
    };
    let view = RunView::from(&after);
    if after.standing == standing {
        return Ok(Plan::nothing(view));
    }
    if before.is_none() && directory.runs.len() >= STOPPED_RUNS_MAX {
        let detail = format!("{STOPPED_RUNS_MAX} runs are stopped already; unfreeze some that have ended");
        return Err(Refusal::new(Code::Conflict, detail));
    }
    let facts = told(json!({"run_id": run_id}), &after.standing, reason);
    // One that may go on need not be remembered.
    let is_active = after.standing.is_active();
    let noun = Noun::Run(Arc::new(after));
    let write = if is_active {
        Write::Delete(noun)
    } else {
        Write::Put(noun)
    };
    Ok(Plan {
        kind,
        facts,
        answer: view,
        writes: vec![write],
    })
}
