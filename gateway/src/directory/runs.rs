//! `/v1/runs`: stopping one run and nothing else. A run is whatever its agents call one in `trace.run_id`; those that nobody
//! stopped are not listed.

use super::standing::{ReasonBody, facts_of};
use super::{change_at_once, new_name, page, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use engine::EntryKind;
use model::run::{FROZEN_RUNS_MAX, REVOKED_RUNS_MAX};
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
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, RunView>(&tenant.directory.runs, &query, |_| true)
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
    check_room(directory, &after.standing)?;
    let facts = facts_of(json!({"run_id": run_id}), &after.standing, reason);
    // One that may go on need not be remembered.
    let is_active = after.standing.is_active();
    let noun = Noun::Run(Arc::new(after));
    let write = if is_active {
        Write::Delete(noun)
    } else {
        Write::Put(noun)
    };
    Ok(Plan::Change {
        kind,
        facts,
        answer: view,
        writes: vec![write],
    })
}

/// Refuses to stop one run more than may be stopped like that. What is revoked makes no room again, so it takes none
/// from what is frozen.
fn check_room(directory: &Directory, standing: &Standing) -> Result<(), Refusal> {
    let (alike, most, detail) = match standing {
        Standing::Active => return Ok(()),
        Standing::Frozen { .. } => (
            directory.frozen_runs(),
            FROZEN_RUNS_MAX,
            format!("{FROZEN_RUNS_MAX} runs are frozen already; unfreeze or revoke some that have ended"),
        ),
        Standing::Revoked { .. } => (
            directory.revoked_runs(),
            REVOKED_RUNS_MAX,
            format!("{REVOKED_RUNS_MAX} runs are revoked already, and stay so; freeze this one"),
        ),
    };
    if alike < most {
        return Ok(());
    }
    Err(Refusal::new(Code::Conflict, detail))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::TenantId;

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn name(number: usize) -> Name {
        Name::new(&format!("run-{number}")).unwrap()
    }

    /// A tenant in which so many runs were stopped like this.
    fn directory(count: usize, standing: &Standing) -> Directory {
        let tenant = json!({"id": TenantId::SYSTEM, "name": "acme", "settings": {}, "bucket": null,
            "status": "active", "created_at": NOW});
        let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        for number in 0..count {
            let run = StoppedRun {
                run_id: name(number),
                standing: standing.clone(),
            };
            directory.apply(&Write::Put(Noun::Run(Arc::new(run))));
        }
        directory
    }

    /// Whether a run may be stopped like this, or what is said.
    fn stop(directory: &Directory, run: usize, how: StandingChange) -> Result<(), Code> {
        let planned = plan(directory, (&name(run), "odd"), how, EntryKind::RunFrozen, NOW);
        planned.map(drop).map_err(|refusal| refusal.code())
    }

    #[test]
    fn as_many_runs_are_frozen_as_may_be_whatever_is_revoked() {
        let revoked = directory(FROZEN_RUNS_MAX, &Standing::Active.revoke("odd", NOW));
        for how in [StandingChange::Freeze, StandingChange::Revoke] {
            assert_eq!(stop(&revoked, FROZEN_RUNS_MAX, how), Ok(()));
        }
        let frozen = directory(FROZEN_RUNS_MAX, &Standing::Active.freeze("odd", NOW).unwrap());
        assert_eq!(
            stop(&frozen, FROZEN_RUNS_MAX, StandingChange::Freeze),
            Err(Code::Conflict)
        );
        for (run, how) in [
            (0, StandingChange::Freeze),
            (0, StandingChange::Unfreeze),
            (0, StandingChange::Revoke),
            (FROZEN_RUNS_MAX, StandingChange::Revoke),
        ] {
            assert_eq!(stop(&frozen, run, how), Ok(()), "{run} {how:?}");
        }
    }

    #[test]
    fn what_is_revoked_has_a_bound_of_its_own() {
        let revoked = directory(REVOKED_RUNS_MAX, &Standing::Active.revoke("odd", NOW));
        assert_eq!(
            stop(&revoked, REVOKED_RUNS_MAX, StandingChange::Revoke),
            Err(Code::Conflict)
        );
        assert_eq!(stop(&revoked, REVOKED_RUNS_MAX, StandingChange::Freeze), Ok(()));
    }
}
