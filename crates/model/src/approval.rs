//! Approvals: what people are asked before one action of one agent, and what they have said.
//!
//! An approval is for one agent, the user for whom it acts, and one action hash, once, until it expires. What it covers never
//! changes; people vote, and it is spent. Every change is a method that returns the changed approval. Whether an approval is
//! enough for what policy asks at the moment of its use is not decided here, but by whoever judges the ask again.

use crate::amount::Estimate;
use crate::id::{AgentId, ApprovalId, DecisionId};
use crate::name::{Name, SlashFreeName};
use crate::sources::Sources;
use crate::time::Timestamp;
use crate::tool::Risk;
use crate::trust::Trust;
use canon::Digest;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap};

/// How much the votes of an approval take together, by [`Vote::bytes`], when one more that approves is refused: all of
/// them are read whenever somebody votes on it or it is used. This is room for some hundreds of people in twenty teams
/// each, or for thirteen in as many teams as a person can be in, with the longest names and reasons.
const VOTES_BYTES_MAX: usize = 1 << 20;
/// What a text of a vote takes beside its letters.
const TEXT_BYTES: usize = 32;

/// Who has to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalTerms {
    /// The team that approvers are in; anybody who may approve if absent. Where there are several teams it is the first by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// How many different people have to, of that team if there is one.
    pub quorum: u32,
    /// The other teams that have to approve as well, by name. Whoever is in several counts for each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub also: Vec<GroupQuorum>,
    /// Whether those who answer for the agent, its owner and its team, do not count, nor those who answer for an agent
    /// in whose name it asks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub exclude_owner: bool,
}

/// How many different people of one team have to approve.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupQuorum {
    /// The team.
    pub group: String,
    /// How many of it.
    pub quorum: u32,
}

/// What people are asked to approve, as they are shown it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The decision that asked for it.
    pub decision_id: DecisionId,
    /// The agent that may use it.
    pub agent: AgentId,
    /// What people call the agent.
    pub agent_name: Name,
    /// The tool.
    pub tool: SlashFreeName,
    /// The action.
    pub action: Name,
    /// What it is done to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource: Option<String>,
    /// The digest that the action must have when it is asked for again.
    pub action_hash: Digest,
    /// The canonical parameters. They go when the approval can no longer be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<String>,
    /// What the ask said it may cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
    /// Why approval is asked for.
    pub reason: String,
    /// The policies that ask for it.
    pub matched_policies: Vec<String>,
    /// The digest of the policies that were in force.
    pub policy_digest: Digest,
    /// The registered risk of the action.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub risk_level: Option<Risk>,
    /// The digest of the registered definition of the action; absent in what earlier versions have stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Digest>,
    /// How far the caller said that the source is trusted.
    pub claimed_trust: Trust,
    /// What that counted as.
    pub effective_trust: Trust,
    /// Where single parameters came from, as it counted: [`Sources::counted`]. They go with the parameters.
    #[serde(default, skip_serializing_if = "Sources::is_empty")]
    pub sources: Sources,
    /// The run it is part of: of an ask that names only who started it, that one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Name>,
    /// The least trusted source that the run had seen, the ask included; absent if that is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_worst: Option<Trust>,
    /// For whom the agent acts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Name>,
    /// The person or group that answers for the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// The team of the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<Name>,
    /// The other agents in whose name it asks, in the order of their ids.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub delegators: Vec<Delegator>,
}

/// An agent in whose name another one asks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delegator {
    /// Its id.
    pub id: AgentId,
    /// What people call it.
    pub name: Name,
    /// The person or group that answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Name>,
    /// Its team.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub team: Option<Name>,
}

/// What one person has said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// Who.
    pub user: Name,
    /// The teams of that person at the time.
    pub teams: BTreeSet<Name>,
    /// Whether it was approved; otherwise rejected.
    pub approves: bool,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// How far an approval has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalStatus {
    /// It waits for people.
    Pending,
    /// Enough people have approved, and it can be used.
    Approved,
    /// Somebody has rejected it.
    Rejected,
    /// Nobody used it in time.
    Expired,
    /// It was used.
    Spent,
}

impl ApprovalStatus {
    /// Every status.
    pub const ALL: [Self; 5] = [
        Self::Pending,
        Self::Approved,
        Self::Rejected,
        Self::Expired,
        Self::Spent,
    ];

    /// The word of the API.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Rejected => "rejected",
            Self::Expired => "expired",
            Self::Spent => "spent",
        }
    }

    /// Whether anything can still become of it.
    pub const fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }
}

/// An approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: ApprovalId,
    /// What it covers.
    pub request: Request,
    /// Who has to approve.
    pub terms: ApprovalTerms,
    /// How far it has come. One that nobody has looked at since it expired may still say otherwise: [`Self::status_at`].
    pub status: ApprovalStatus,
    /// What people have said, in order.
    pub votes: Vec<Vote>,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// From when on it cannot be used.
    pub expires_at: Timestamp,
    /// The decision that used it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spent_by: Option<DecisionId>,
}

/// Who votes: the person behind a key, as the directory knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Voter {
    /// The person.
    pub user: Name,
    /// The teams the person is in.
    pub teams: BTreeSet<Name>,
    /// The agents that are called like the person, or were. A token that names one of them does not tell which.
    pub agents: Vec<AgentId>,
}

/// Where what is asked for comes from, as far as people are shown it.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// What the caller said of the call.
    pub claimed: Trust,
    /// What that counts as.
    pub trust: Trust,
    /// Where single parameters came from, as it counts: [`Sources::counted`].
    pub sources: &'a Sources,
    /// The least trusted source that the run has seen, the ask included; absent if that is not kept.
    pub run_worst: Option<Trust>,
}

/// Why a vote does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VoteError {
    /// It is over.
    #[error("the approval is {} already; the agent has to ask again", .0.as_str())]
    Over(ApprovalStatus),
    /// The agent acts for this person, or for an agent that has or had the same name, or it has or had that itself.
    #[error(
        "the agent acts for `{0}`, or for an agent that is or was called so, or is or was called so itself, \
         and whoever that is cannot vote on it; somebody else has to"
    )]
    OwnRequest(Name),
    /// The voter is in no group that is asked.
    #[error("{}", not_in_group(user, groups))]
    NotInGroup {
        /// Who.
        user: Name,
        /// Where they would have to be, in one of them.
        groups: Vec<String>,
    },
    /// The voter answers for the agent.
    #[error(
        "`{0}` answers for the agent or for one in whose name it asks, and the policy wants somebody else to vote"
    )]
    OwnerExcluded(Name),
    /// The voter has said the same before.
    #[error("`{0}` has voted already, and everybody counts once")]
    VotedBefore(Name),
    /// There is no room for another vote that approves.
    #[error(
        "no more votes are kept that approve this: with their reasons and the voters' teams they take the room that \
         there is; if they are not enough, reject it, and have the policy ask for fewer people"
    )]
    Full,
}

/// What a voter is told who is in none of the groups.
fn not_in_group(user: &Name, groups: &[String]) -> String {
    if let [group] = groups {
        return format!("`{user}` is not in the team `{group}`, whose members vote on this");
    }
    let groups = groups.join("`, `");
    format!("`{user}` is in none of the teams `{groups}`, whose members vote on this")
}

/// Why an agent cannot use an approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// It is another agent's.
    #[error("it is not this agent's")]
    Foreign,
    /// It is for another action, or for other parameters.
    #[error("it is for another action, resource or parameters")]
    OtherAction,
    /// The agent acted for somebody else, or for nobody, when people were asked.
    #[error("it is for what is done for another user")]
    OtherUser,
    /// Not enough people have approved yet.
    #[error("it waits for people to approve")]
    Pending,
    /// Somebody has rejected it.
    #[error("it was rejected")]
    Rejected,
    /// It came too late.
    #[error("it has expired")]
    Expired,
    /// It was used before.
    #[error("it was used before, and an approval is for one action once")]
    Spent,
}

impl ApprovalTerms {
    /// The teams that have to approve; none if anybody may who may approve.
    pub fn groups(&self) -> impl Iterator<Item = &str> {
        self.each().filter_map(|(group, _)| group)
    }

    /// Each team that has to approve and how many of it; or how many people, if no team is named.
    fn each(&self) -> impl Iterator<Item = (Option<&str>, u32)> {
        let also = self.also.iter();
        let also = also.map(|also| (Some(also.group.as_str()), also.quorum));
        std::iter::once((self.group.as_deref(), self.quorum)).chain(also)
    }
}

/// Whether somebody in these teams is in the group, if one is named.
fn is_in(group: Option<&str>, teams: &BTreeSet<Name>) -> bool {
    group.is_none_or(|group| teams.contains(group))
}

impl Request {
    /// Takes off it what people are shown only while something can still become of it.
    fn close(&mut self) {
        self.parameters = None;
        self.sources = Sources::default();
    }

    /// The least trusted source that people were told of: what the run had seen or, where that was not kept, what the ask said.
    fn worst_shown(&self) -> Trust {
        let of_ask = || {
            let worst = self.sources.worst();
            worst.map_or(self.effective_trust, |worst| self.effective_trust.worse_of(worst))
        };
        self.run_worst.unwrap_or_else(of_ask)
    }
}

impl Vote {
    /// How much it takes, about: its texts, and what goes with each.
    fn bytes(&self) -> usize {
        let texts = [self.user.as_str(), self.reason.as_str()].into_iter();
        let texts = texts.chain(self.teams.iter().map(Name::as_str));
        texts.map(|text| text.len() + TEXT_BYTES).sum()
    }
}

impl Delegator {
    /// Whether somebody in these teams owns it, is in the group that does, or in its team.
    fn is_answered_for_by(&self, user: &Name, teams: &BTreeSet<Name>) -> bool {
        answers_for((self.owner.as_ref(), self.team.as_ref()), user, teams)
    }
}

/// Whether somebody in these teams is the owner of an agent, is in the group that owns it, or in its team.
fn answers_for((owner, team): (Option<&Name>, Option<&Name>), user: &Name, teams: &BTreeSet<Name>) -> bool {
    let owns = |owner: &Name| owner == user || teams.contains(owner);
    owner.is_some_and(owns) || team.is_some_and(|team| teams.contains(team))
}

impl Approval {
    /// What a decision asks people for.
    pub fn new(
        id: ApprovalId,
        request: Request,
        terms: ApprovalTerms,
        requested_at: Timestamp,
        expires_at: Timestamp,
    ) -> Self {
        Self {
            id,
            request,
            terms,
            status: ApprovalStatus::Pending,
            votes: Vec::new(),
            requested_at,
            expires_at,
            spent_by: None,
        }
    }

    /// The approval as storage keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).expect("an approval has only string keys")
    }

    /// The approval that was kept so.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// How far it has come at a time: what has not been used in time has expired, whether that was written down or not.
    pub fn status_at(&self, now: Timestamp) -> ApprovalStatus {
        if self.status.is_open() && self.expires_at <= now {
            ApprovalStatus::Expired
        } else {
            self.status
        }
    }

    /// The approval after a person approved: it can be used when enough different people have.
    pub fn approve(&self, voter: &Voter, reason: &str, now: Timestamp) -> Result<Self, VoteError> {
        let mut after = self.with_vote(voter, true, reason, now)?;
        if after.suffices(&after.terms, &[], |_| None) {
            after.status = ApprovalStatus::Approved;
        }
        Ok(after)
    }

    /// The approval after a person rejected it: one is enough, also when others have approved, until it is used.
    pub fn reject(&self, voter: &Voter, reason: &str, now: Timestamp) -> Result<Self, VoteError> {
        let mut after = self.with_vote(voter, false, reason, now)?;
        after.status = ApprovalStatus::Rejected;
        after.request.close();
        Ok(after)
    }

    fn with_vote(
        &self,
        voter: &Voter,
        approves: bool,
        reason: &str,
        now: Timestamp,
    ) -> Result<Self, VoteError> {
        let status = self.status_at(now);
        if !status.is_open() {
            return Err(VoteError::Over(status));
        }
        self.check_voter(voter)?;
        let mut before = self.votes.iter().filter(|vote| vote.user == voter.user);
        if before.any(|vote| vote.approves == approves) {
            return Err(VoteError::VotedBefore(voter.user.clone()));
        }
        let vote = Vote {
            user: voter.user.clone(),
            teams: voter.teams.clone(),
            approves,
            reason: reason.to_owned(),
            at: now,
        };
        // A rejection always finds room: it is the last vote.
        if approves && !self.has_room_for(&vote) {
            return Err(VoteError::Full);
        }
        let mut after = self.clone();
        after.votes.push(vote);
        Ok(after)
    }

    fn has_room_for(&self, vote: &Vote) -> bool {
        let taken: usize = self.votes.iter().map(Vote::bytes).sum();
        taken + vote.bytes() <= VOTES_BYTES_MAX
    }

    fn check_voter(&self, voter: &Voter) -> Result<(), VoteError> {
        let user = &voter.user;
        let is_asking = voter.agents.iter().any(|agent| self.is_asked_by(*agent));
        if self.request.user.as_ref() == Some(user) || is_asking {
            return Err(VoteError::OwnRequest(user.clone()));
        }
        if !self.terms.each().any(|(group, _)| is_in(group, &voter.teams)) {
            return Err(VoteError::NotInGroup {
                user: user.clone(),
                groups: self.terms.groups().map(str::to_owned).collect(),
            });
        }
        if self.terms.exclude_owner && self.answers_for_agent(user, &voter.teams) {
            return Err(VoteError::OwnerExcluded(user.clone()));
        }
        Ok(())
    }

    /// Whether this is the agent that asked, or one of those in whose name it did.
    fn is_asked_by(&self, agent: AgentId) -> bool {
        let mut delegators = self.request.delegators.iter();
        self.request.agent == agent || delegators.any(|known| known.id == agent)
    }

    /// Whether somebody answers for the agent, or for one of those in whose name it asked.
    fn answers_for_agent(&self, user: &Name, teams: &BTreeSet<Name>) -> bool {
        let Request {
            owner,
            team,
            delegators,
            ..
        } = &self.request;
        let mut delegators = delegators.iter();
        answers_for((owner.as_ref(), team.as_ref()), user, teams)
            || delegators.any(|delegator| delegator.is_answered_for_by(user, teams))
    }

    /// Whether the approvals so far satisfy `terms`: [`Self::counted`].
    pub fn suffices<'k>(
        &self,
        terms: &ApprovalTerms,
        agents: &[Delegator],
        teams_now: impl Fn(&Name) -> Option<&'k BTreeSet<Name>>,
    ) -> bool {
        self.counted(terms, agents, teams_now).is_some()
    }

    /// The approvals that count for `terms`, if they satisfy them. `agents` are the asking agent and its delegators as
    /// they are now, `teams_now` gives a person's teams now. With `exclude_owner`, nobody counts who answers for one of
    /// them: as they were when people were asked or as they are now, with the person's teams at the vote or now. For a
    /// group, its members at the time of the vote count.
    pub fn counted<'k>(
        &self,
        terms: &ApprovalTerms,
        agents: &[Delegator],
        teams_now: impl Fn(&Name) -> Option<&'k BTreeSet<Name>>,
    ) -> Option<Vec<&Vote>> {
        let answers_in = |user: &Name, teams: &BTreeSet<Name>| {
            let mut agents = agents.iter();
            self.answers_for_agent(user, teams) || agents.any(|agent| agent.is_answered_for_by(user, teams))
        };
        let answers = |vote: &Vote| {
            let now = teams_now(&vote.user);
            answers_in(&vote.user, &vote.teams) || now.is_some_and(|teams| answers_in(&vote.user, teams))
        };
        let is_asked = |vote: &Vote| terms.each().any(|(group, _)| is_in(group, &vote.teams));
        let counts =
            |vote: &&Vote| vote.approves && is_asked(vote) && !(terms.exclude_owner && answers(vote));
        let counted: Vec<_> = self.votes.iter().filter(counts).collect();
        // INVARIANT: nobody approves twice, so every vote is another person's.
        let (mut people, mut of_group) = (0, HashMap::<_, u32>::new());
        for vote in &counted {
            people += 1;
            for team in &vote.teams {
                *of_group.entry(team.as_str()).or_default() += 1;
            }
        }
        let of = |group: Option<&str>| {
            group.map_or(people, |group| of_group.get(group).copied().unwrap_or_default())
        };
        let is_enough = terms.each().all(|(group, quorum)| of(group) >= quorum);
        is_enough.then_some(counted)
    }

    /// Whether people were shown that it may cost this much. What costs less needs nobody else. What no longer says what it costs
    /// does: no budget would be looked at, and nothing held.
    pub fn covers_cost(&self, estimate: Option<&Estimate>) -> bool {
        match (&self.request.estimate, estimate) {
            (None, None) => true,
            (Some(shown), Some(estimate)) => shown.unit == estimate.unit && estimate.amount <= shown.amount,
            (None, Some(_)) | (Some(_), None) => false,
        }
    }

    /// Whether it comes from where people were shown that it does, or from somewhere better: the call, each parameter
    /// and what the run has seen. The run may be another one by now, or none.
    pub fn covers_origin(&self, now: Origin<'_>) -> bool {
        let shown = &self.request;
        let is_run_covered = now.run_worst.is_none_or(|seen| seen <= shown.worst_shown());
        // What is not named in `sources` is what was said of the call: the effective trust may have the worst of
        // `sources` in it. Signed is only what counts as that.
        let said =
            |claimed: Trust, counts: Trust| claimed.worse_of(counts.min(Trust::TrustedInternalUnsigned));
        let shown_sources = (&shown.sources, said(shown.claimed_trust, shown.effective_trust));
        let are_sources_covered = now
            .sources
            .are_no_worse_than(said(now.claimed, now.trust), shown_sources);
        now.trust <= shown.effective_trust && are_sources_covered && is_run_covered
    }

    /// Whether the action is registered with the risk that people were shown, or a lower one.
    pub fn covers_risk(&self, now: Option<Risk>) -> bool {
        let shown = self.request.risk_level;
        shown.is_none_or(|shown| now.is_some_and(|now| now <= shown))
    }

    /// Whether the definition of the action is the one that it had when people were asked, as far as that is known.
    pub fn covers_definition(&self, now: Option<Digest>) -> bool {
        self.request.definition.is_none_or(|shown| now == Some(shown))
    }

    /// Whether the agents in whose name it is done, in the order of their ids, are those that people were shown.
    pub fn covers_delegators(&self, now: &[Delegator]) -> bool {
        let shown = self.request.delegators.iter().map(|delegator| delegator.id);
        shown.eq(now.iter().map(|delegator| delegator.id))
    }

    /// Whether this agent can use it for this user and this action now.
    ///
    /// INVARIANT: whom it is done for does not change, because that decides who could not vote.
    pub fn check_use(
        &self,
        agent: AgentId,
        user: Option<&Name>,
        action_hash: &Digest,
        now: Timestamp,
    ) -> Result<(), Unusable> {
        if self.request.agent != agent {
            return Err(Unusable::Foreign);
        }
        match self.status_at(now) {
            _ if self.request.action_hash != *action_hash => Err(Unusable::OtherAction),
            _ if self.request.user.as_ref() != user => Err(Unusable::OtherUser),
            ApprovalStatus::Approved => Ok(()),
            ApprovalStatus::Pending => Err(Unusable::Pending),
            ApprovalStatus::Rejected => Err(Unusable::Rejected),
            ApprovalStatus::Expired => Err(Unusable::Expired),
            ApprovalStatus::Spent => Err(Unusable::Spent),
        }
    }

    /// The approval after a decision used it.
    #[must_use]
    pub fn spend(&self, decision: DecisionId) -> Self {
        let mut after = self.clone();
        after.status = ApprovalStatus::Spent;
        after.spent_by = Some(decision);
        after.request.close();
        after
    }

    /// The approval after its time; none if it is not over, or is already.
    pub fn expire(&self, now: Timestamp) -> Option<Self> {
        if !self.status.is_open() || self.status_at(now) != ApprovalStatus::Expired {
            return None;
        }
        let mut after = self.clone();
        after.status = ApprovalStatus::Expired;
        after.request.close();
        Some(after)
    }
}

#[cfg(test)]
mod tests;
