//! `POST /v1/runs/{run_id}/observations`: a runtime says that a run has read something, which asks have not told yet. It can only
//! make the run less trusted.

use crate::changes;
use crate::directory::new_name;
use crate::gateway::Gateway;
use crate::http::{AgentCaller, Code, Created, Json, Refusal};
use crate::recording::ATTEMPTS_MAX;
use crate::sequencer::CommitStatus;
use axum::Extension;
use axum::extract::{Path, State};
use canon::{Digest, ObjectWriter};
use engine::proposal::Intent;
use engine::runs::Sighting;
use engine::{Conflict, EntryKind, Proposal, ProposedEntry, Salt};
use model::{Name, Timestamp, Trust};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// The longest note, in bytes.
const NOTE_BYTES_MAX: usize = 1_024;

/// What was read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Observation {
    /// How far its source is trusted.
    source_trust: Trust,
    /// What it was, for people.
    note: Option<String>,
    /// The run that started this one.
    parent_run_id: Option<Name>,
}

/// Where it stands in the ledger, and what the run counts as from now on.
#[derive(Debug, Serialize)]
pub struct Observed {
    run_id: Name,
    worst: Trust,
    seq: u64,
    at: Timestamp,
    hash: Digest,
}

/// Records what a run has seen.
pub async fn observe(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<AgentCaller>,
    Path(run_id): Path<String>,
    Json(observation): Json<Observation>,
) -> Result<Created<Observed>, Refusal> {
    let run_id = new_name(&run_id)?;
    if observation
        .note
        .as_ref()
        .is_some_and(|note| note.len() > NOTE_BYTES_MAX)
    {
        let detail = format!("`note` has at most {NOTE_BYTES_MAX} bytes");
        return Err(Refusal::new(Code::InvalidField, detail));
    }
    gateway.observe(&caller, run_id, &observation).await.map(Created)
}

impl Observation {
    /// The members stand in canonical order.
    fn entry(&self, caller: &AgentCaller, run_id: &Name, salt: Salt) -> ProposedEntry {
        let mut body = ObjectWriter::new();
        body.string("agent", &caller.agent.id.to_string());
        if let Some(note) = &self.note {
            body.string("note", note);
        }
        if let Some(parent) = &self.parent_run_id {
            body.string("parent_run_id", parent.as_str());
        }
        body.string("run_id", run_id.as_str());
        salt.write(&mut body);
        body.string("source_trust", self.source_trust.as_str());
        ProposedEntry::new(EntryKind::RunObserved, body.finish())
    }
}

impl Gateway {
    /// Whoever was frozen or revoked tells of what it has read all the same, as with an ask that it is denied: it only
    /// takes trust away, and what it has read is still in the runs that go on. But then it does so no oftener than it
    /// may ask: to freeze an agent is to stop it. Of one that may act, what was not told for want of a token would
    /// leave its run looser than it is.
    async fn check_rate(&self, caller: &AgentCaller) -> Result<(), Refusal> {
        let tenant = self.tenant(caller.tenant)?;
        let agent = caller.refresh(&tenant, self.clock.now())?;
        if agent.standing.is_active() && tenant.directory.tenant.standing.is_active() {
            return Ok(());
        }
        self.pass_buckets(caller).await
    }

    async fn observe(
        &self,
        caller: &AgentCaller,
        run_id: Name,
        observation: &Observation,
    ) -> Result<Observed, Refusal> {
        self.check_rate(caller).await?;
        let parent = observation.parent_run_id.as_ref();
        for _ in 0..ATTEMPTS_MAX {
            let permit = self.look_ups.acquire(caller.tenant).await?;
            let tenant = self.tenant(caller.tenant)?;
            caller.refresh(&tenant, self.clock.now())?;
            let before = self.family(caller.tenant, &run_id, parent).await?;
            drop(permit);
            let before = before.map(|run| run.worst);
            let seen = observation.source_trust.worse_of(Trust::TrustedInternalUnsigned);
            let sighting = Sighting {
                run_id: run_id.clone(),
                parent: parent.cloned(),
                seen,
                judged_with: before,
            };
            let salt = Salt::new(&*self.entropy);
            let observed = Intent::Observation(observation.entry(caller, &run_id, salt), sighting);
            match self.sequencer.record(Proposal::of(&tenant, observed)).await? {
                CommitStatus::Recorded(proof) => {
                    return Ok(Observed {
                        run_id,
                        worst: before.map_or(seen, |before| before.worse_of(seen)),
                        seq: proof.head().seq,
                        at: proof.at(),
                        hash: proof.head().hash,
                    });
                }
                CommitStatus::Conflict(Conflict::DirectoryMoved { .. } | Conflict::RunMoved) => {}
                CommitStatus::Repeated(_) | CommitStatus::Conflict(_) => return Err(changes::unexpected()),
            }
        }
        Err(Refusal::contended())
    }
}
