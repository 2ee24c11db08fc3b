//! `POST /v1/approvals/{id}/approve` and `/reject`: a person says yes or no, once, with a reason.

use super::Shown;
use crate::directory::standing::ReasonBody;
use crate::gateway::Gateway;
use crate::http::{Code, Holder, Json, Refusal, TenantCaller};
use crate::reader::{Reader, in_place};
use crate::sequencer::CommitStatus;
use axum::Extension;
use axum::extract::{Path, State};
use engine::approvals::{ApprovalChange, ApprovalConflict, Ballot, Step, VotedWith};
use engine::proposal::Intent;
use engine::{Conflict, Proposal, TenantSnapshot};
use model::approval::{VoteError, Voter};
use model::{ApprovalId, Role};
use std::sync::Arc;

/// A person approves.
pub async fn approve(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Json(body): Json<ReasonBody>,
) -> Result<Json<Shown>, Refusal> {
    gateway.vote(&caller, &id, body, Step::Approve).await.map(Json)
}

/// A person rejects.
pub async fn reject(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(id): Path<String>,
    Json(body): Json<ReasonBody>,
) -> Result<Json<Shown>, Refusal> {
    gateway.vote(&caller, &id, body, Step::Reject).await.map(Json)
}

impl Gateway {
    async fn vote(
        &self,
        caller: &TenantCaller,
        text: &str,
        body: ReasonBody,
        step: fn(Ballot) -> Step,
    ) -> Result<Shown, Refusal> {
        let reason = body.into_reason();
        let id: ApprovalId = text.parse().map_err(|_| Refusal::not_found("approval", text))?;
        let by = caller.holder().by();
        let voting = self.record_current(Some(by), |snapshot| {
            let tenant = crate::gateway::tenant(snapshot, caller.tenant())?;
            let ballot = Ballot {
                voter: voter(caller, tenant)?,
                reason: reason.clone(),
                with: voted_with(caller.holder()),
            };
            let change = ApprovalChange {
                id,
                step: step(ballot),
            };
            Ok(Proposal::of(tenant, Intent::Approval(change)))
        });
        let recorded = voting.await?;
        self.approval_waiters.notify(caller.tenant());
        if let CommitStatus::Conflict(Conflict::Approval(conflict)) = recorded {
            return Err(refusal(&conflict, text));
        }
        // It waits in line with all who read the store, however long that takes: the vote was recorded.
        let permit = self
            .reads
            .acquire_for_part(Reader::from(caller).fairness_key())
            .await;
        // The vote stands, but whoever gave it may not read any more. What this gateway does not know yet is no reason
        // to answer that with 503.
        by.check(&self.snapshot.load_full(), self.clock.now())?;
        let (store, tenant) = (Arc::clone(&self.store), caller.tenant());
        let look = async move { store.approval(tenant, id).await };
        let approval = in_place(permit, look).await??;
        let approval = approval.ok_or_else(|| Refusal::not_found("approval", text))?;
        Ok(Shown::of(approval, Reader::from(caller), self.clock.now()))
    }
}

fn voted_with(holder: &Holder) -> VotedWith {
    match holder {
        Holder::Key(key) => VotedWith::Key(key.id),
        Holder::Person(person) => VotedWith::Issuer(person.signed_in.issued_by().clone()),
    }
}

/// The person behind a credential. Only a person can vote, and only in that role: an operator's key opens every door but this.
fn voter(caller: &TenantCaller, tenant: &TenantSnapshot) -> Result<Voter, Refusal> {
    if !caller.holder().has(Role::Approver) {
        let detail = "votes are given in the role `approver`";
        return Err(Refusal::new(Code::Forbidden, detail));
    }
    let Some(user) = caller.holder().user() else {
        let detail =
            "this key does not say who holds it, so nobody knows whose vote it is; make one with `user`";
        return Err(Refusal::new(Code::Forbidden, detail));
    };
    let registered = tenant.directory.users.get(user);
    Ok(Voter {
        user: user.clone(),
        teams: registered.map(|user| user.teams.clone()).unwrap_or_default(),
        agents: tenant
            .directory
            .agents_called(user)
            .map(|agent| agent.id)
            .collect(),
    })
}

fn refusal(conflict: &ApprovalConflict, id: &str) -> Refusal {
    let code = match conflict {
        ApprovalConflict::Missing => return Refusal::not_found("approval", id),
        ApprovalConflict::Vote(VoteError::Over(_) | VoteError::VotedBefore(_) | VoteError::Full)
        | ApprovalConflict::Moved
        | ApprovalConflict::NotOverdue => Code::Conflict,
        ApprovalConflict::Vote(
            VoteError::OwnRequest(_) | VoteError::NotInGroup { .. } | VoteError::OwnerExcluded(_),
        ) => Code::NotAnApprover,
    };
    Refusal::new(code, conflict.to_string())
}
