//! Judging one ask against one snapshot, in this order: claims, the provenance token, trust, standing, delegators, the
//! tool, policy, what the run has seen, the approval.
//!
//! What a caller claims can only make the outcome stricter. Nothing is recorded here, and no limit is counted.

use crate::approvals::with_approval;
use crate::ask::{Ask, Mode};
use crate::delegation::{self, DEPTH_MAX, Delegator};
use crate::provenance::{self, Provenance, ProvenanceError};
use crate::snapshot::TenantSnapshot;
use model::approval::Unusable;
use model::{
    Agent, Approval, ApprovalId, ApprovalTerms, EffectiveTrust, Name, ReasonCode, Risk, RunTaint, SourceRule,
    Standing, StoppedRun, TaintRule, Timestamp, Tool, ToolAction, Trust, Usage, Verdict,
};
use policy::{
    Approvers, Explanation, Fuel, Obligation, Question, Ruling, Rulings, RunFacts, Unanswerable, UserFacts,
};
use std::sync::Arc;

/// What was found, and everything that led to it.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// The verdict and its reason in one word.
    pub reason: ReasonCode,
    /// The reason in a sentence, for people.
    pub explanation: String,
    /// What the agent is told to do next.
    pub agent_message: Option<String>,
    /// The policies that determined the verdict, sorted.
    pub matched: Vec<String>,
    /// What must be done when the action is carried out.
    pub obligations: Vec<Obligation>,
    /// Who would have to approve.
    pub approval: Option<ApprovalTerms>,
    /// The policies that could not be evaluated.
    pub errors: Vec<String>,
    /// The registered risk of the action; absent if the action is not registered.
    pub risk: Option<Risk>,
    /// What the claimed trust counts as.
    pub trust: EffectiveTrust,
    /// Whether the action counts as one that changes something.
    pub mutates: bool,
    /// Why the agent is to be frozen, if it is.
    pub quarantine: Option<String>,
    /// What would have been found if everything on trial were enforced, where it is something else.
    pub shadow: Option<Box<Judgement>>,
    /// Whether policies were asked.
    pub policies_asked: bool,
    /// Whether the agent has a grant for the tool. Policies are asked about some tools that it has none for.
    pub granted: bool,
    /// The paths of the parameters that obligations want redacted; `None` if no policy has said so or the contrary.
    pub redact: Option<Vec<String>>,
    /// What would have been said to an ask that was only to be observed.
    pub would_have: Option<Box<WouldHave>>,
    /// The reason and the policies that were found at first, where people or budgets have made something else of it and the
    /// reason of that does not tell.
    pub ruling: Option<Box<RulingSummary>>,
    /// The approval that this uses up.
    pub spends_approval: Option<ApprovalId>,
    /// The least trusted source that the run has seen, this ask included; absent if that is not kept.
    pub run_worst: Option<Trust>,
    /// What a signed token said about the source, if one came along.
    pub provenance: Option<Box<Provenance>>,
    /// How much was used of what the ask counts against, if policies look at that.
    pub usage: Option<Arc<Usage>>,
}

/// What is known of an ask beside the snapshot: looked up before it is judged.
#[derive(Debug, Clone, Copy, Default)]
pub struct LookedUpFacts<'a> {
    /// The approval that it names, if the tenant has it.
    pub approval: Option<&'a Approval>,
    /// What its run has seen, if that is kept and there was anything.
    pub run: Option<&'a RunTaint>,
    /// How much is used of what it counts against. Where policies look at that, it has to be there.
    pub usage: Option<&'a Arc<Usage>>,
    /// How much work it may be; none is whatever it takes. Where it is used up, what was found is nothing
    /// ([`Fuel::is_used_up`]).
    pub fuel: Option<&'a Fuel>,
    /// Nobody knows the parameters yet, only that they will fit the action's schema: what depends on them is denied,
    /// and what a token says of content counts for nothing.
    pub parameters_unknown: bool,
}

/// What policies say to an ask, in short.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulingSummary {
    /// The verdict and its reason.
    pub reason: ReasonCode,
    /// The policies that determined it, sorted.
    pub matched: Vec<String>,
}

/// What would have been said to an ask that was only to be observed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WouldHave {
    /// The verdict and its reason.
    pub reason: ReasonCode,
    /// The reason in a sentence.
    pub explanation: String,
    /// What the agent would have been told to do.
    pub agent_message: Option<String>,
    /// The policies that would have determined it, sorted.
    pub matched: Vec<String>,
    /// Who would have had to approve.
    pub approval: Option<ApprovalTerms>,
}

impl Judgement {
    /// Allow, deny or require approval.
    pub const fn verdict(&self) -> Verdict {
        self.reason.verdict()
    }

    /// What would be said if the ask were enforced.
    pub fn enforced_verdict(&self) -> Verdict {
        let would_have = self.would_have.as_deref();
        would_have
            .map_or(self.reason, |would_have| would_have.reason)
            .verdict()
    }

    /// What was found at first, to be kept where something else becomes of it.
    pub(crate) fn found_first(&self) -> RulingSummary {
        let found = || RulingSummary {
            reason: self.reason,
            matched: self.matched.clone(),
        };
        self.ruling.as_deref().cloned().unwrap_or_else(found)
    }

    /// How long what it says is: what goes by how policies are written, and not by the ask.
    pub(crate) fn bytes(&self) -> usize {
        let shadow = self.shadow.as_deref();
        let shadow = shadow.into_iter().flat_map(|shadow| &shadow.matched);
        let listed = self.matched.iter().chain(&self.errors).chain(shadow);
        let said = [Some(&self.explanation), self.agent_message.as_ref()];
        let texts = listed.chain(said.into_iter().flatten());
        let obligations = self.obligations.iter().map(Obligation::bytes);
        texts.map(String::len).sum::<usize>() + obligations.sum::<usize>()
    }

    /// The obligations that keep something out of records.
    pub(crate) fn redactions(&self) -> Vec<Obligation> {
        let redactions = self.obligations.iter();
        let redactions = redactions.filter(|obligation| obligation.is_redaction());
        redactions.cloned().collect()
    }

    fn without_quarantine(mut self) -> Self {
        self.quarantine = None;
        self.obligations
            .retain(|obligation| *obligation != Obligation::QuarantineAgent);
        self
    }

    /// An allow, whatever was found, that tells what it was. Nothing comes of it: nobody is asked to approve, what
    /// people approved is not used up, and nobody is quarantined. Other obligations stay, because the action will be
    /// carried out.
    pub(crate) fn observed(self) -> Self {
        // What people approved is allowed once: an allow that does not use it up is none of theirs.
        let is_allowed = self.verdict() == Verdict::Allow && self.reason != ReasonCode::ApprovalGranted;
        let would_have = WouldHave {
            reason: self.reason,
            explanation: self.explanation,
            agent_message: self.agent_message,
            matched: self.matched.clone(),
            approval: self.approval,
        };
        Self {
            reason: if is_allowed {
                self.reason
            } else {
                ReasonCode::Observed
            },
            explanation: if is_allowed {
                would_have.explanation.clone()
            } else {
                "the ask is only observed; `would_have` tells what would have been answered".to_owned()
            },
            agent_message: None,
            matched: if is_allowed { self.matched } else { Vec::new() },
            approval: None,
            would_have: Some(Box::new(would_have)),
            spends_approval: None,
            ..self
        }
        .without_quarantine()
    }

    /// Leaves out a shadow that says nothing else. Where policies have not the last word, it does not matter which they are.
    fn compare_shadow(&mut self) {
        let says_the_same = |shadow: &Self| {
            let are_others = self.reason.is_ruling() && shadow.matched != self.matched;
            shadow.reason == self.reason && !are_others
        };
        if self.shadow.as_deref().is_some_and(says_the_same) {
            self.shadow = None;
        }
    }

    /// One that says this and nothing else.
    fn bare(reason: ReasonCode, explanation: impl Into<String>, trust: EffectiveTrust) -> Self {
        Self {
            reason,
            explanation: explanation.into(),
            agent_message: None,
            matched: Vec::new(),
            obligations: Vec::new(),
            approval: None,
            errors: Vec::new(),
            risk: None,
            trust,
            mutates: true,
            quarantine: None,
            shadow: None,
            policies_asked: false,
            granted: true,
            redact: None,
            would_have: None,
            ruling: None,
            spends_approval: None,
            run_worst: None,
            provenance: None,
            usage: None,
        }
    }
}

/// Why an ask is not judged at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The ask names another agent than the credential.
    #[error("`agent.id` is not the agent that this token belongs to; leave it out or send your own")]
    AgentMismatch,
    /// The ask names another user than the credential.
    #[error("`user.id` is not `{signed}`, for whom this token says that the agent acts; leave it out")]
    UserMismatch {
        /// For whom the token says that it acts.
        signed: String,
    },
    /// There are more agents in whose name it is asked than are looked at.
    #[error("it is asked in the name of {0} agents, and may be in that of {DEPTH_MAX}")]
    DelegationTooDeep(usize),
    /// The ask names another environment than the agent is registered for.
    #[error("this agent is registered for the environment `{registered}` and may not act in `{claimed}`")]
    EnvironmentNotAllowed {
        /// Where the agent may act.
        registered: String,
        /// Where it says it is.
        claimed: String,
    },
    /// The tenant does not permit observing.
    #[error("`mode` `observe` is not permitted in this tenant; use `enforce` or `dry_run`")]
    ObserveNotPermitted,
    /// The agent cannot use the approval that it names.
    #[error("{}", unusable(approval, *why))]
    ApprovalNotUsable {
        /// Which.
        approval: String,
        /// Why; `None` if there is none.
        why: Option<Unusable>,
    },
    /// The token that says where the content came from is not good.
    #[error("`context.provenance`: {0}")]
    Provenance(#[source] ProvenanceError),
    /// A context attribute has another type than the tenant declared.
    #[error("`context.attributes` member `{name}`: {detail}")]
    MistypedAttribute {
        /// Which.
        name: String,
        /// What it should be.
        detail: String,
    },
}

/// What an agent is told about an approval that it cannot use. Another agent's does not exist.
fn unusable(approval: &str, why: Option<Unusable>) -> String {
    match why {
        None | Some(Unusable::Foreign) => {
            format!(
                "there is no approval `{approval}` that this agent could use; ask again without `approval_id`"
            )
        }
        Some(Unusable::Pending) => {
            format!(
                "the approval `{approval}` cannot be used: {}; try again then",
                Unusable::Pending
            )
        }
        Some(why) => {
            format!("the approval `{approval}` cannot be used: {why}; ask again without `approval_id`")
        }
    }
}

/// Judges one ask.
pub fn judge(
    tenant: &TenantSnapshot,
    agent: &Agent,
    ask: &Ask,
    facts: &LookedUpFacts<'_>,
    now: Timestamp,
) -> Result<Judgement, Refusal> {
    check_claims(tenant, agent, ask)?;
    let circumstances = Circumstances::new(tenant, agent, ask, facts, now)?;
    let mut found = circumstances.judge_by_policy()?;
    found.provenance = circumstances.provenance.clone().map(Box::new);
    let mut found = match (&ask.approval_id, facts.approval) {
        (Some(_), Some(approval)) => {
            let heard = |found| with_approval(found, approval, &circumstances);
            let shadow = found.shadow.take().map(|shadow| {
                Box::new(Judgement {
                    risk: found.risk,
                    provenance: found.provenance.clone(),
                    ..*shadow
                })
            });
            // Where it would have been a refusal, the shadow stays what it was before people were listened to.
            found.shadow = shadow.map(|shadow| heard(Judgement::clone(&shadow)).map_or(shadow, Box::new));
            heard(found)?
        }
        (Some(named), None) if found.verdict() != Verdict::Deny => {
            return Err(Refusal::ApprovalNotUsable {
                approval: named.to_string(),
                why: None,
            });
        }
        _ => found,
    };
    found.compare_shadow();
    Ok(match ask.mode {
        Mode::Enforce | Mode::DryRun => found,
        Mode::Observe if is_contained(tenant, agent, ask) => found.without_quarantine(),
        Mode::Observe => found.observed(),
    })
}

/// Whether somebody or something in this ask was taken out of service. That is no policy that one could try out: it holds for
/// asks that are only to be observed, too, and for those that were allowed before and come again.
fn is_contained(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> bool {
    let tool = tenant.directory.tools.get(ask.action.tool.as_str());
    !may_act(tenant, agent, ask) || tool.is_some_and(|tool| !tool.standing.is_active())
}

/// Whether an allow of this ask may be given again: nobody and nothing in it was taken out of service, its action is
/// still registered and granted, and the definition is none that waits to be accepted. What is missing or waits keeps
/// nobody from observing.
///
/// INVARIANT: where this is false, an ask that is not only observed is denied or refused. What is recorded beside an
/// earlier allow is never a second one.
pub fn may_repeat_allow(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> bool {
    let is_there = || {
        let name = ask.action.tool.as_str();
        let tool = tenant.directory.tools.get(name);
        let action = tool.and_then(|tool| tool.actions.get(&ask.action.action));
        action.is_some_and(|action| action.held.is_none())
            && agent.tools.includes(name)
            && delegation::may_use(tenant, ask)
    };
    !is_contained(tenant, agent, ask) && (ask.mode == Mode::Observe || is_there())
}

/// An ask with everything that it is judged by.
pub(crate) struct Circumstances<'a> {
    pub(crate) tenant: &'a TenantSnapshot,
    pub(crate) agent: &'a Agent,
    pub(crate) ask: &'a Ask,
    facts: &'a LookedUpFacts<'a>,
    /// What the token that came along says, verified.
    provenance: Option<Provenance>,
    trust: EffectiveTrust,
    /// The least trusted source that the run has seen, the ask included; absent if that is not kept.
    run_worst: Option<Trust>,
    pub(crate) now: Timestamp,
}

impl<'a> Circumstances<'a> {
    /// Derives how far the ask and its run are trusted. An ask whose token is not good is refused.
    fn new(
        tenant: &'a TenantSnapshot,
        agent: &'a Agent,
        ask: &'a Ask,
        facts: &'a LookedUpFacts<'a>,
        now: Timestamp,
    ) -> Result<Self, Refusal> {
        let provenance = provenance::verified(tenant, agent, ask, facts, now);
        let provenance = provenance.map_err(Refusal::Provenance)?;
        let trust = effective_trust(tenant, ask, provenance.as_ref());
        let is_kept = ask.run().is_some() && keeps_runs(tenant);
        let run_worst = is_kept.then(|| {
            let own = worst_source(ask, trust, provenance.as_ref());
            facts.run.map_or(own, |run| run.worst.worse_of(own))
        });
        Ok(Self {
            tenant,
            agent,
            ask,
            facts,
            provenance,
            trust,
            run_worst,
            now,
        })
    }

    /// What is found before people are listened to, whatever the mode of the ask is.
    fn judge_by_policy(&self) -> Result<Judgement, Refusal> {
        let run_worst = self.run_worst;
        let mut judgement = self.before_run_taint()?;
        // The run has seen it, whatever is answered.
        judgement.run_worst = run_worst;
        let rule = self.tenant.directory.tenant.settings.run_taint;
        if let Some(shadow) = judgement.shadow.take() {
            let mutates = judgement.mutates;
            let shadow = Judgement {
                mutates,
                run_worst,
                ..*shadow
            };
            judgement.shadow = Some(Box::new(tainted(shadow, rule)));
        }
        Ok(tainted(judgement, rule))
    }

    /// The judgement before the tenant's run-taint rule is applied.
    fn before_run_taint(&self) -> Result<Judgement, Refusal> {
        let Self { tenant, ask, .. } = *self;
        if let Some(denial) = self.standing_denial() {
            return Ok(denial);
        }
        let delegators = match self.delegators() {
            Ok(delegators) => delegators,
            Err(denial) => return Ok(*denial),
        };
        let name = ask.action.tool.as_str();
        let found = tenant.directory.tools.get(name).map(|tool| &**tool);
        let Some((tool, action)) = found.and_then(|tool| Some((tool, tool.actions.get(&ask.action.action)?)))
        else {
            // Whoever asks a trap for what it does not have has touched it all the same.
            let trapped = found.and_then(|tool| {
                let each = tool.actions.values();
                trapped_by_each(each.map(|action| trapped(tenant, &self.question(tool, action))))
            });
            let explanation = format!("`{name}` has no registered action `{}`", ask.action.action);
            let unknown = || Judgement::bare(ReasonCode::UnknownTool, explanation, self.trust);
            return Ok(trapped.unwrap_or_else(unknown));
        };
        // A trap is granted to nobody, and whoever touches it is to meet the policy about traps.
        let denial = if tool.is_canary() {
            None
        } else {
            tool_denial(self.agent, tool, action, self.trust)
        };
        let mut judgement = if let Some(denial) = denial {
            denial
        } else {
            let question = self.question(tool, action);
            if self.facts.parameters_unknown {
                rule_without_parameters(tenant, &delegators, &question)?
            } else {
                rule(tenant, &delegators, &question)?
            }
        };
        judgement.risk = Some(action.risk);
        judgement.mutates = action.mutates_state || ask.claims_mutation;
        if judgement.policies_asked && tenant.policies.looks_at_usage() {
            judgement.usage = self.facts.usage.cloned();
        }
        Ok(judgement)
    }

    /// Why the tenant, the agent or the run may not act, if so.
    fn standing_denial(&self) -> Option<Judgement> {
        let standing = &self.tenant.directory.tenant.standing;
        if let Standing::Frozen { reason, .. } | Standing::Revoked { reason, .. } = standing {
            let explanation = format!("the tenant is {}: {reason}", standing.as_str());
            return Some(Judgement::bare(ReasonCode::TenantFrozen, explanation, self.trust));
        }
        let (reason, explanation) = match &self.agent.standing {
            Standing::Active => return self.run_denial(),
            Standing::Frozen { reason, .. } => {
                (ReasonCode::AgentFrozen, format!("the agent is frozen: {reason}"))
            }
            Standing::Revoked { reason, .. } => (
                ReasonCode::AgentRevoked,
                format!("the agent is revoked: {reason}"),
            ),
        };
        Some(Judgement::bare(reason, explanation, self.trust))
    }

    fn run_denial(&self) -> Option<Judgement> {
        let run = stopped_run(self.tenant, self.ask)?;
        let reason = match &run.standing {
            Standing::Active => return None,
            Standing::Frozen { reason, .. } | Standing::Revoked { reason, .. } => reason,
        };
        let explanation = format!("the run `{}` is {}: {reason}", run.run_id, run.standing.as_str());
        Some(Judgement::bare(ReasonCode::RunFrozen, explanation, self.trust))
    }

    /// Those in whose name it is asked, if something may be done in the name of each; or else the denial.
    fn delegators(&self) -> Result<Vec<Delegator<'a>>, Box<Judgement>> {
        let denial = |(reason, explanation)| Box::new(Judgement::bare(reason, explanation, self.trust));
        let delegators = delegation::delegators(self.tenant, self.agent, self.ask)
            .map_err(|name| denial((ReasonCode::UnknownPrincipal, unknown_principal(&name))))?;
        match delegation::standing_denial(&delegators) {
            Some(found) => Err(denial(found)),
            None => Ok(delegators),
        }
    }

    /// What policies are asked about this action.
    fn question<'q>(&'q self, tool: &'q Tool, action: &'q ToolAction) -> Question<'q> {
        let Self { agent, ask, .. } = *self;
        let directory = &self.tenant.directory;
        Question {
            agent,
            team: agent
                .team
                .as_ref()
                .and_then(|team| directory.teams.get(team))
                .map(|team| &**team),
            user: ask.user.as_ref().map(|name| UserFacts {
                id: name.as_str(),
                registered: directory.users.get(name).map(|user| &**user),
                teams: Some(&directory.teams),
            }),
            tool,
            action,
            mutates: action.mutates_state || ask.claims_mutation,
            resource: ask.action.resource.as_deref(),
            parameters: &ask.action.parameters,
            trust: self.trust,
            contains_sensitive_data: ask.contains_sensitive_data,
            attributes: ask.attributes.as_deref(),
            run: ask.run().map(|run| RunFacts {
                id: run.as_str(),
                worst: self.run_worst.unwrap_or(self.trust.level),
            }),
            usage: self.facts.usage.map(|usage| &**usage),
            sources: Some(&ask.sources),
            vouched: self.provenance.as_ref().and_then(Provenance::vouched),
            now: self.now,
            fuel: self.facts.fuel,
        }
    }
}

/// What the caller says about itself must agree with what its credential says.
fn check_claims(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> Result<(), Refusal> {
    if ask.claimed_agent.is_some_and(|claimed| claimed != agent.id) {
        return Err(Refusal::AgentMismatch);
    }
    if let (Some(claimed), Some(registered)) = (&ask.claimed_environment, &agent.environment)
        && claimed != registered
    {
        return Err(Refusal::EnvironmentNotAllowed {
            registered: registered.to_string(),
            claimed: claimed.to_string(),
        });
    }
    if ask.act.len() > DEPTH_MAX {
        return Err(Refusal::DelegationTooDeep(ask.act.len()));
    }
    if ask.mode == Mode::Observe && !tenant.directory.tenant.settings.observe {
        return Err(Refusal::ObserveNotPermitted);
    }
    Ok(())
}

/// Whether a tenant has it kept what its runs have seen: it has a rule about that, or policies that look at runs.
pub fn keeps_runs(tenant: &TenantSnapshot) -> bool {
    tenant.directory.tenant.settings.run_taint != TaintRule::Off || tenant.policies.looks_at_runs()
}

/// The run of an ask ([`Ask::run`]), for what runs have seen, and its parent. If only `parent_run_id` is given, that is the
/// run, and its parent is not named.
pub fn run_and_parent(ask: &Ask) -> Option<(&Name, Option<&Name>)> {
    match (&ask.run_id, &ask.parent_run_id) {
        (Some(run), parent) => Some((run, parent.as_ref())),
        (None, parent) => parent.as_ref().map(|parent| (parent, None)),
    }
}

/// The least trusted source of an ask, of those of the call and of each parameter: what it shows to its run.
pub fn worst_source(ask: &Ask, trust: EffectiveTrust, provenance: Option<&Provenance>) -> Trust {
    let vouched = provenance.map(|provenance| provenance.level);
    let named = ask.sources.worst().max(vouched);
    named.map_or(trust.level, |worst| trust.level.worse_of(worst))
}

/// What becomes of a change in a run that has seen what is not trusted, by the rule of the tenant. It only makes it stricter.
fn tainted(judgement: Judgement, rule: TaintRule) -> Judgement {
    let is_tainted = judgement
        .run_worst
        .is_some_and(|worst| worst >= Trust::UntrustedExternal);
    if !is_tainted || !judgement.mutates || judgement.verdict() == Verdict::Deny {
        return judgement;
    }
    let worst = judgement.run_worst.map_or("", Trust::as_str);
    match rule {
        TaintRule::Approve if judgement.verdict() == Verdict::Allow => Judgement {
            reason: ReasonCode::RunTaintNeedsApproval,
            explanation: format!("the run has seen a source that is `{worst}`, so changes need approval"),
            agent_message: Some("Ask for approval, then retry with approval_id.".to_owned()),
            approval: Some(ApprovalTerms {
                group: None,
                quorum: 1,
                also: Vec::new(),
                exclude_owner: false,
            }),
            ..judgement
        },
        TaintRule::Off | TaintRule::Approve => judgement,
        TaintRule::Deny => Judgement {
            reason: ReasonCode::RunTainted,
            explanation: format!(
                "the run has seen a source that is `{worst}`, so it may not change anything"
            ),
            agent_message: None,
            approval: None,
            ..judgement
        },
    }
}

/// What the claimed level of a call counts as.
fn effective_trust(tenant: &TenantSnapshot, ask: &Ask, provenance: Option<&Provenance>) -> EffectiveTrust {
    let vouched = provenance.and_then(Provenance::vouched);
    let worst_source = match tenant.directory.tenant.settings.sources {
        SourceRule::Call => ask.sources.worst().max(vouched.map(|vouched| vouched.level)),
        SourceRule::Parameter => None,
    };
    match provenance {
        Some(provenance) if vouched.is_none() => {
            EffectiveTrust::signed(ask.claimed_trust, provenance.level, worst_source)
        }
        _ => EffectiveTrust::without_signature(ask.claimed_trust, worst_source),
    }
}

/// Whether the agent, everybody in whose name it asks, and its tenant may act at all.
fn may_act(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> bool {
    tenant.directory.tenant.standing.is_active()
        && agent.standing.is_active()
        && delegation::may_act(tenant, ask)
        && stopped_run(tenant, ask).is_none()
}

/// The run of an ask, or the one that it says started it, if that was stopped.
fn stopped_run<'t>(tenant: &'t TenantSnapshot, ask: &Ask) -> Option<&'t StoppedRun> {
    let named = [&ask.run_id, &ask.parent_run_id].into_iter().flatten();
    let stopped = named.filter_map(|run| tenant.directory.runs.get(run));
    stopped.map(|run| &**run).find(|run| !run.standing.is_active())
}

fn unknown_principal(name: &Name) -> String {
    format!("`{name}`, in whose name it is asked, is no registered agent")
}

/// What is wrong with the tool, whatever policies say: of a trap they are asked first, of any other after this.
fn tool_denial(agent: &Agent, tool: &Tool, action: &ToolAction, trust: EffectiveTrust) -> Option<Judgement> {
    let (reason, explanation) = if !agent.tools.includes(tool.name.as_str()) {
        let explanation = format!("the agent has no grant for `{}`", tool.name);
        (ReasonCode::ToolNotGranted, explanation)
    } else if !tool.standing.is_active() {
        let explanation = format!("the tool `{}` is {}", tool.name, tool.standing.as_str());
        (ReasonCode::ToolQuarantined, explanation)
    } else if action.held.is_some() {
        let explanation = format!(
            "the definition of `{}/{}` has changed and waits for an admin to accept it",
            tool.name, action.name
        );
        (ReasonCode::ToolDefinitionChanged, explanation)
    } else {
        return None;
    };
    Some(Judgement::bare(reason, explanation, trust))
}

/// What policies say to an ask and everything that leads to it; `None` where no policy is asked, because the action is not
/// registered or the token that came along is not good. Standing, grants and held definitions are not looked at.
pub fn explain(
    tenant: &TenantSnapshot,
    agent: &Agent,
    ask: &Ask,
    facts: &LookedUpFacts<'_>,
    now: Timestamp,
) -> Option<Result<Explanation, Unanswerable>> {
    let tool = tenant.directory.tools.get(ask.action.tool.as_str())?;
    let action = tool.actions.get(&ask.action.action)?;
    let circumstances = Circumstances::new(tenant, agent, ask, facts, now).ok()?;
    let question = circumstances.question(tool, action);
    let explained = tenant.policies.read(&question).and_then(|question| {
        let explanation = question.explain()?;
        let rulings = match delegation::delegators(tenant, agent, ask) {
            Ok(delegators) if delegators.is_empty() => return Ok(explanation),
            Ok(delegators) => delegation::rule_read_with_shadow(&question, &delegators)?,
            Err(name) => {
                let ruling = Ruling::denial(ReasonCode::UnknownPrincipal, unknown_principal(&name));
                let shadow = explanation.shadow.as_ref().map(|_| ruling.clone());
                Rulings { ruling, shadow }
            }
        };
        Ok(for_all(explanation, rulings))
    });
    Some(explained)
}

/// An explanation for the one that asks, with what comes of it for all in whose name it does: what no longer is in the
/// ruling determines nothing.
fn for_all(mut explanation: Explanation, Rulings { ruling, shadow }: Rulings) -> Explanation {
    let for_user = explanation.for_user.iter_mut().map(|user| &mut user.policies);
    let as_registered = explanation.as_registered.iter_mut().flat_map(|registered| {
        let for_user = registered.for_user.iter_mut().map(|user| &mut user.policies);
        for_user.chain([&mut registered.policies])
    });
    let policies = [&mut explanation.policies].into_iter();
    for policy in policies.chain(for_user).chain(as_registered).flatten() {
        policy.determines &= ruling.matched.contains(&policy.id);
    }
    Explanation {
        ruling,
        shadow,
        ..explanation
    }
}

fn rule(
    tenant: &TenantSnapshot,
    delegators: &[Delegator<'_>],
    question: &Question<'_>,
) -> Result<Judgement, Refusal> {
    match delegation::rule_with_shadow(&tenant.policies, question, delegators) {
        Ok(Rulings { ruling, shadow }) => {
            let shadow = shadow.map(|ruling| Box::new(from_ruling(ruling, question)));
            Ok(Judgement {
                shadow,
                ..from_ruling(ruling, question)
            })
        }
        Err(unanswerable) => unanswered(tenant, question, unanswerable),
    }
}

/// `rule` where nobody knows the parameters: what could depend on them is denied.
fn rule_without_parameters(
    tenant: &TenantSnapshot,
    delegators: &[Delegator<'_>],
    question: &Question<'_>,
) -> Result<Judgement, Refusal> {
    match delegation::rule_without_parameters(&tenant.policies, question, delegators) {
        Ok(Some(ruling)) => Ok(from_ruling(ruling, question)),
        Ok(None) => {
            let explanation = "the answer depends on the parameters, which are not known";
            Ok(invalid_parameters(explanation.to_owned(), question.trust))
        }
        Err(unanswerable) => unanswered(tenant, question, unanswerable),
    }
}

fn unanswered(
    tenant: &TenantSnapshot,
    question: &Question<'_>,
    unanswerable: Unanswerable,
) -> Result<Judgement, Refusal> {
    if let Some(trapped) = trapped(tenant, question) {
        return Ok(trapped);
    }
    match unanswerable {
        Unanswerable::InvalidParameters { pointer, detail } => {
            let explanation = format!("`parameters{pointer}`: {detail}");
            Ok(invalid_parameters(explanation, question.trust))
        }
        Unanswerable::MistypedAttribute { name, detail } => Err(Refusal::MistypedAttribute { name, detail }),
    }
}

/// What policies say of a trap to whoever asks it for something that they cannot be asked about, if it gets its caller
/// quarantined.
fn trapped(tenant: &TenantSnapshot, question: &Question<'_>) -> Option<Judgement> {
    if !question.tool.is_canary() {
        return None;
    }
    let question = Question {
        attributes: None,
        ..*question
    };
    let ruling = tenant.policies.forbids_whatever_is_written(&question).ok()??;
    let judgement = from_ruling(ruling, &question);
    // They were asked about something else than is recorded: nobody can ask them again, and of the parameters they know nothing.
    judgement.quarantine.is_some().then_some(Judgement {
        policies_asked: false,
        redact: None,
        ..judgement
    })
}

/// The denial for an action that the trap does not have. It is given only if policies would quarantine the caller for
/// every action that it has; of those denials the one with the fewest matched policies is taken, because the others may
/// name policies about actions that nobody asked for.
fn trapped_by_each(each: impl Iterator<Item = Option<Judgement>>) -> Option<Judgement> {
    let each: Option<Vec<_>> = each.collect();
    each?.into_iter().min_by_key(|judgement| judgement.matched.len())
}

fn invalid_parameters(explanation: String, trust: EffectiveTrust) -> Judgement {
    Judgement {
        policies_asked: true,
        ..Judgement::bare(ReasonCode::InvalidParameters, explanation, trust)
    }
}

fn from_ruling(ruling: Ruling, question: &Question<'_>) -> Judgement {
    let Question {
        agent,
        tool,
        action,
        trust,
        ..
    } = *question;
    let granted = agent.tools.includes(tool.name.as_str());
    // A trap that policies let pass is a tool like any other.
    if ruling.reason.verdict() != Verdict::Deny
        && tool.is_canary()
        && let Some(denial) = tool_denial(agent, tool, action, trust)
    {
        return Judgement {
            policies_asked: true,
            granted,
            ..denial
        };
    }
    let redact = ruling.obligations.iter().filter_map(Obligation::parameter);
    let quarantine = ruling
        .obligations
        .contains(&Obligation::QuarantineAgent)
        .then(|| format!("quarantined: {}", without_user(&ruling.explanation, question)));
    Judgement {
        redact: (ruling.errors.is_empty() && !ruling.more_obligations)
            .then(|| redact.map(str::to_owned).collect()),
        agent_message: ruling.agent_message,
        matched: ruling.matched.iter().map(ToString::to_string).collect(),
        obligations: ruling.obligations,
        approval: ruling.approval.as_ref().map(Approvers::terms),
        errors: ruling
            .errors
            .iter()
            .map(|fault| format!("{}: {}", fault.policy, fault.message))
            .collect(),
        quarantine,
        policies_asked: true,
        granted,
        ..Judgement::bare(ruling.reason, ruling.explanation, trust)
    }
}

/// Why, without the name of the user: it stays with the agent, and in an entry that is never erased, and is told to
/// whoever asks after that. The decision has the name, and can be erased.
fn without_user(explanation: &str, question: &Question<'_>) -> String {
    match question.user {
        Some(user) => explanation.replace(&format!("for the user `{}`", user.id), "for the user"),
        None => explanation.to_owned(),
    }
}
