//! Approvals in the course of an ask: what a judgement becomes when people have approved, and how an approval changes in a
//! batch.

use crate::ask::Ask;
use crate::delegation;
use crate::entry_kind::EntryKind;
use crate::judge::{Circumstances, Judgement, Refusal, RulingSummary};
use crate::proposal::ProposedEntry;
use crate::provenance::Provenance;
use crate::snapshot::TenantSnapshot;
use canon::ObjectWriter;
use model::approval::{Delegator, Origin, Unusable, Vote, VoteError, Voter};
use model::{Approval, ApprovalId, ReasonCode, Sources, Timestamp, Verdict};

/// How an approval changes, beside being asked for and spent, which decisions do.
#[derive(Debug)]
pub struct ApprovalChange {
    /// Which.
    pub id: ApprovalId,
    /// How.
    pub step: Step,
}

/// How an approval changes.
#[derive(Debug)]
pub enum Step {
    /// A person approves it.
    Approve(Ballot),
    /// A person rejects it.
    Reject(Ballot),
    /// Its time is over.
    Expire,
}

/// What a person says.
#[derive(Debug)]
pub struct Ballot {
    /// Who.
    pub voter: Voter,
    /// Why.
    pub reason: String,
    /// What the person has signed in with.
    pub with: VotedWith,
}

/// What a person has signed in with to vote.
#[derive(Debug)]
pub enum VotedWith {
    /// A key.
    Key(model::KeyId),
    /// A token of this issuer.
    Issuer(model::Name),
}

/// Why an approval does not change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApprovalConflict {
    /// There is none.
    #[error("there is no such approval")]
    Missing,
    /// The vote does not count.
    #[error(transparent)]
    Vote(#[from] VoteError),
    /// It is not what it was when the ask was judged, which has to be judged again.
    #[error("the approval has changed")]
    Moved,
    /// Its time is not over, or somebody else has said so already.
    #[error("the approval has not expired, or that is known")]
    NotOverdue,
}

impl ApprovalChange {
    /// The approval afterwards, and the entry that tells of it.
    pub(crate) fn apply_to(
        &self,
        approval: &Approval,
        now: Timestamp,
    ) -> Result<(Approval, ProposedEntry), ApprovalConflict> {
        let (after, kind) = match &self.step {
            Step::Approve(ballot) => (
                approval.approve(&ballot.voter, &ballot.reason, now)?,
                EntryKind::ApprovalApproved,
            ),
            Step::Reject(ballot) => (
                approval.reject(&ballot.voter, &ballot.reason, now)?,
                EntryKind::ApprovalRejected,
            ),
            Step::Expire => (
                approval.expire(now).ok_or(ApprovalConflict::NotOverdue)?,
                EntryKind::ApprovalExpired,
            ),
        };
        let entry = self.entry(kind, &after);
        Ok((after, entry))
    }

    /// The members stand in canonical order. The digest of the action stands in the entry of the decision, with which
    /// it can be erased: this one stays, and nothing in it keeps a digest from being guessed.
    fn entry(&self, kind: EntryKind, after: &Approval) -> ProposedEntry {
        let mut body = ObjectWriter::new();
        body.string("agent", &after.request.agent.to_string());
        body.string("approval", &after.id.to_string());
        if let Step::Approve(ballot) | Step::Reject(ballot) = &self.step {
            body.object("by", |by| {
                match &ballot.with {
                    VotedWith::Key(key) => by.string("key", &key.to_string()),
                    VotedWith::Issuer(issuer) => by.string("issuer", issuer.as_str()),
                };
                by.string("role", model::Role::Approver.as_str());
                by.strings("teams", ballot.voter.teams.iter().map(model::Name::as_str));
                by.string("user", ballot.voter.user.as_str());
            });
        }
        body.string("decision_id", &after.request.decision_id.to_string());
        if let Step::Approve(ballot) | Step::Reject(ballot) = &self.step {
            body.string("reason", &ballot.reason);
        }
        body.string("status", after.status.as_str());
        ProposedEntry::new(kind, body.finish())
    }
}

/// The judgement of an ask that names an approval. It is an allow if people have approved exactly this action, at no
/// more than the cost and the risk that they were shown, from no worse a source, as it was defined then and in the name
/// of the same agents, and if their votes are enough for what policy asks now.
///
/// A denial stays one, and the approval is kept. What policy permits without an approval spends it all the same: it is for
/// this action once.
pub(crate) fn with_approval(
    mut judgement: Judgement,
    approval: &Approval,
    circumstances: &Circumstances<'_>,
) -> Result<Judgement, Refusal> {
    let Circumstances {
        tenant,
        agent,
        ask,
        now,
        ..
    } = *circumstances;
    if judgement.verdict() == Verdict::Deny {
        return Ok(judgement);
    }
    match approval.check_use(agent.id, ask.user.as_ref(), &ask.action.digest, now) {
        Ok(()) => {}
        Err(Unusable::Rejected) => return Ok(refused(judgement, ReasonCode::ApprovalRejected, approval)),
        Err(Unusable::Expired) => return Ok(refused(judgement, ReasonCode::ApprovalExpired, approval)),
        Err(why) => {
            return Err(Refusal::ApprovalNotUsable {
                approval: approval.id.to_string(),
                why: Some(why),
            });
        }
    }
    if let Some(terms) = &judgement.approval {
        let agents = delegation::answered_for(tenant, agent, ask);
        let users = &tenant.directory.users;
        let votes = approval.counted(terms, &agents, |user| users.get(user).map(|user| &user.teams));
        let is_covered = !is_approved_by_a_namesake(approval, &agents, tenant)
            && is_as_shown(approval, &judgement, tenant, ask)
            && approval.covers_delegators(&delegation::shown_to_people(tenant, agent, ask));
        let Some(votes) = votes.filter(|_| is_covered) else {
            return Ok(judgement);
        };
        judgement.ruling = other_ruling(&judgement);
        judgement.reason = ReasonCode::ApprovalGranted;
        judgement.explanation = granted(&votes);
        judgement.agent_message = None;
        judgement.approval = None;
    }
    judgement.spends_approval = Some(approval.id);
    Ok(judgement)
}

/// Whether what is asked for is what people were shown, or better: its cost, its risk, its definition and where it comes from.
fn is_as_shown(approval: &Approval, judgement: &Judgement, tenant: &TenantSnapshot, ask: &Ask) -> bool {
    let (tool, action) = (ask.action.tool.as_str(), ask.action.action.as_str());
    let origin = Origin {
        claimed: judgement.trust.claimed,
        trust: judgement.trust.level,
        sources: &counted_sources(ask, judgement),
        run_worst: judgement.run_worst,
    };
    approval.covers_cost(ask.estimate.as_ref())
        && approval.covers_risk(judgement.risk)
        && approval.covers_definition(tenant.facts.definition(tool, action))
        && approval.covers_origin(origin)
}

/// Where the parameters of an ask come from, as people are shown it.
pub(crate) fn counted_sources(ask: &Ask, judgement: &Judgement) -> Sources {
    let vouched = judgement.provenance.as_deref().and_then(Provenance::vouched);
    ask.sources.counted(judgement.trust, vouched)
}

/// Whether one of those who have approved is called like the agent that asks now, or like one in whose name it does:
/// nobody can tell which of the two has voted.
fn is_approved_by_a_namesake(approval: &Approval, agents: &[Delegator], tenant: &TenantSnapshot) -> bool {
    let mut approvals = approval.votes.iter().filter(|vote| vote.approves);
    approvals.any(|vote| {
        let mut namesakes = tenant.directory.agents_called(&vote.user);
        namesakes.any(|namesake| agents.iter().any(|agent| agent.id == namesake.id))
    })
}

/// What was found before people were listened to, if it was not that policies have them asked: the reason would not tell.
fn other_ruling(judgement: &Judgement) -> Option<Box<RulingSummary>> {
    (judgement.reason != ReasonCode::PolicyRequiresApproval).then(|| Box::new(judgement.found_first()))
}

/// Names those whose votes counted.
fn granted(votes: &[&Vote]) -> String {
    let people: Vec<_> = votes.iter().map(|vote| format!("`{}`", vote.user)).collect();
    format!("approved by {}", people.join(", "))
}

/// A denial, because people have not approved or it is too late.
fn refused(judgement: Judgement, reason: ReasonCode, approval: &Approval) -> Judgement {
    let rejection = approval.votes.iter().find(|vote| !vote.approves);
    let explanation = match (reason, rejection) {
        (ReasonCode::ApprovalRejected, Some(vote)) => format!("`{}` rejected it: {}", vote.user, vote.reason),
        (ReasonCode::ApprovalRejected, None) => "it was rejected".to_owned(),
        _ => format!("the approval expired at {}", approval.expires_at),
    };
    Judgement {
        ruling: other_ruling(&judgement),
        reason,
        explanation,
        agent_message: None,
        approval: None,
        ..judgement
    }
}
