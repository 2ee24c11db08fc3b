//! In whose name an agent asks: other agents, and the user for whom all of them act. Each of them has to be allowed what is
//! asked, as if it asked itself, so naming somebody can only take away.
//!
//! Names come from the token that the agent has signed in with, or from the ask. Who is behind them is what the directory says.
//! Users are principals of policies and are asked about in the crate `policy`.

use crate::ask::Ask;
use crate::judge::Refusal;
use crate::snapshot::TenantSnapshot;
use canon::ObjectWriter;
use model::approval;
use model::{Agent, Name, ReasonCode, Standing, Team, Tool, Verdict};
use policy::{Blind, Fact, PolicySet, Question, ReadQuestion, Ruling, Rulings, Unanswerable};

/// How many agents there may be in whose name another one asks. Each costs as much as an ask, but for its parameters,
/// and longer chains are loops.
pub const DEPTH_MAX: usize = 8;

/// What a signed token says about in whose name its bearer asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Delegation {
    /// The agents, the nearest first.
    pub agents: Vec<Name>,
    /// The user.
    pub user: Option<Name>,
}

impl Delegation {
    /// Whether the bearer asks in its own name only.
    pub fn is_empty(&self) -> bool {
        self.agents.is_empty() && self.user.is_none()
    }
}

impl Ask {
    /// The ask in the name of those whom the token of its sender names, too. It is another ask than the same without
    /// them: what was answered to one is no answer to the other. Where its chain begins with that of the token, it says
    /// the same, and may go on.
    pub fn delegated(self, by: &Delegation) -> Result<Self, Refusal> {
        if by.is_empty() {
            return Ok(self);
        }
        if let (Some(signed), Some(claimed)) = (&by.user, &self.user)
            && signed != claimed
        {
            return Err(Refusal::UserMismatch {
                signed: signed.to_string(),
            });
        }
        let mut whole = ObjectWriter::new();
        whole.strings("act", by.agents.iter().map(Name::as_str));
        whole.digest("ask", &self.digest);
        whole.string_or_null("user", by.user.as_ref().map(Name::as_str));
        let act = if self.act.starts_with(&by.agents) {
            self.act
        } else {
            by.agents.iter().cloned().chain(self.act).collect()
        };
        Ok(Self {
            digest: whole.finish().digest(),
            act,
            user: by.user.clone().or(self.user),
            ..self
        })
    }
}

/// An agent in whose name another one asks.
#[derive(Debug, Clone, Copy)]
pub struct Delegator<'t> {
    pub(crate) agent: &'t Agent,
    pub(crate) team: Option<&'t Team>,
    /// Whether it may use the tool that is asked for.
    pub(crate) granted: bool,
}

/// The agents in whose name this is asked, but for the one that asks, each once and in the order of their ids, so that the
/// answer does not depend on that of the chain; or else the first name under which no agent is registered.
pub(crate) fn delegators<'t>(
    tenant: &'t TenantSnapshot,
    agent: &Agent,
    ask: &Ask,
) -> Result<Vec<Delegator<'t>>, Name> {
    let directory = &tenant.directory;
    let mut found: Vec<Delegator<'t>> = Vec::new();
    for name in &ask.act {
        let delegator = directory.agent_called(name).ok_or_else(|| name.clone())?;
        if delegator.id == agent.id || found.iter().any(|known| known.agent.id == delegator.id) {
            continue;
        }
        let team = delegator.team.as_ref();
        found.push(Delegator {
            agent: delegator,
            team: team
                .and_then(|team| directory.teams.get(team))
                .map(|team| &**team),
            granted: delegator.tools.includes(ask.action.tool.as_str()),
        });
    }
    found.sort_by_key(|delegator| delegator.agent.id);
    Ok(found)
}

/// The delegators as approvers are shown them; empty if one of them is not registered, because then nobody is asked.
pub(crate) fn shown_to_people(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> Vec<approval::Delegator> {
    let delegators = delegators(tenant, agent, ask).unwrap_or_default();
    delegators
        .iter()
        .map(|delegator| shown(delegator.agent))
        .collect()
}

/// The delegators and the asking agent, as they are now: whoever answered for one when people were asked may have changed.
pub(crate) fn answered_for(tenant: &TenantSnapshot, agent: &Agent, ask: &Ask) -> Vec<approval::Delegator> {
    let mut all = shown_to_people(tenant, agent, ask);
    all.push(shown(agent));
    all
}

fn shown(agent: &Agent) -> approval::Delegator {
    approval::Delegator {
        id: agent.id,
        name: agent.name.clone(),
        owner: agent.owner.clone(),
        team: agent.team.clone(),
    }
}

/// Whether no agent in whose name this is asked was taken out of service. Whoever is not registered never was.
pub(crate) fn may_act(tenant: &TenantSnapshot, ask: &Ask) -> bool {
    let mut agents = ask.act.iter().map(|name| tenant.directory.agent_called(name));
    agents.all(|agent| agent.is_none_or(|agent| agent.standing.is_active()))
}

/// Whether every agent in whose name this is asked has a grant for the tool. Whoever is not registered has none.
pub(crate) fn may_use(tenant: &TenantSnapshot, ask: &Ask) -> bool {
    let tool = ask.action.tool.as_str();
    let mut agents = ask.act.iter().map(|name| tenant.directory.agent_called(name));
    agents.all(|agent| agent.is_some_and(|agent| agent.tools.includes(tool)))
}

/// Why nothing may be done in the name of one of these, if so.
pub(crate) fn standing_denial(delegators: &[Delegator<'_>]) -> Option<(ReasonCode, String)> {
    delegators.iter().find_map(|delegator| {
        let (code, word, reason) = match &delegator.agent.standing {
            Standing::Active => return None,
            Standing::Frozen { reason, .. } => (ReasonCode::AgentFrozen, "frozen", reason),
            Standing::Revoked { reason, .. } => (ReasonCode::AgentRevoked, "revoked", reason),
        };
        let name = &delegator.agent.name;
        Some((
            code,
            format!("the agent `{name}`, in whose name it is asked, is {word}: {reason}"),
        ))
    })
}

/// The answer to a question that has to be allowed to each of these, too.
pub(crate) fn rule(
    policies: &PolicySet,
    question: &Question<'_>,
    delegators: &[Delegator<'_>],
) -> Result<Ruling, Unanswerable> {
    let question = policies.read(question)?;
    let rulings = rule_read(&question, delegators, |question| {
        question.rule().map(Rulings::plain)
    })?;
    Ok(rulings.ruling)
}

/// What [`rule`] says, with its shadow: what it would say if everything on trial were enforced.
pub(crate) fn rule_with_shadow(
    policies: &PolicySet,
    question: &Question<'_>,
    delegators: &[Delegator<'_>],
) -> Result<Rulings, Unanswerable> {
    // Most asks are in nobody else's name, and then nothing is kept for others.
    if delegators.is_empty() {
        return policies.rule_with_shadow(question);
    }
    rule_read_with_shadow(&policies.read(question)?, delegators)
}

/// `rule_with_shadow` for a question whose parameters were read already.
pub(crate) fn rule_read_with_shadow(
    question: &ReadQuestion<'_, '_>,
    delegators: &[Delegator<'_>],
) -> Result<Rulings, Unanswerable> {
    rule_read(question, delegators, ReadQuestion::rule_with_shadow)
}

/// The answer to a question whose parameters were read already, which has to be allowed to each of these, too. `ask`
/// asks it for one agent.
///
/// INVARIANT: what all of them are answered without the claim comes first, so that who is asked because of it, or
/// denied, takes nothing from what is asked for another one of them. For one alone the policies see to that themselves.
fn rule_read<'s, 'q>(
    question: &ReadQuestion<'s, 'q>,
    delegators: &[Delegator<'q>],
    ask: impl Fn(&ReadQuestion<'s, 'q>) -> Result<Rulings, Unanswerable>,
) -> Result<Rulings, Unanswerable> {
    let all = rule_each(question, delegators, &ask)?;
    let Some(registered) = question.as_registered().filter(|_| !delegators.is_empty()) else {
        return Ok(all);
    };
    let as_registered = rule_each(&registered, delegators, &ask)?;
    Ok(as_registered.combine(all, Ruling::with_claim))
}

/// The answer for the agent that asks, combined with that for each of these.
fn rule_each<'s, 'q>(
    question: &ReadQuestion<'s, 'q>,
    delegators: &[Delegator<'q>],
    ask: impl Fn(&ReadQuestion<'s, 'q>) -> Result<Rulings, Unanswerable>,
) -> Result<Rulings, Unanswerable> {
    let tool = question.question().tool;
    let mut all = ask(question)?;
    for delegator in delegators {
        let theirs = ask(&question.asked_by(delegator.agent, delegator.team))?;
        all = all.combine(theirs, |all, theirs| delegator.join(all, theirs, tool));
    }
    Ok(all)
}

/// `rule` where nobody knows the parameters; `None` if the answer could depend on them.
pub(crate) fn rule_without_parameters(
    policies: &PolicySet,
    question: &Question<'_>,
    delegators: &[Delegator<'_>],
) -> Result<Option<Ruling>, Unanswerable> {
    let all = rule_each_without_parameters(policies, question, delegators)?;
    let ruling = |blind: Blind<'_>| blind.ruling;
    // INVARIANT: without the claim first, as in `rule_read`.
    let Some(registered) = question.as_registered().filter(|_| !delegators.is_empty()) else {
        return Ok(all.map(ruling));
    };
    let as_registered = rule_each_without_parameters(policies, &registered, delegators)?;
    Ok(Blind::with_claim_if_known(as_registered, all).map(ruling))
}

fn rule_each_without_parameters<'s>(
    policies: &'s PolicySet,
    question: &Question<'_>,
    delegators: &[Delegator<'_>],
) -> Result<Option<Blind<'s>>, Unanswerable> {
    let Some(mut all) = policies.rule_blind(question)? else {
        return Ok(None);
    };
    for delegator in delegators {
        if all.ruling.verdict() == Verdict::Deny {
            break;
        }
        let Some(theirs) = policies.rule_blind(&delegator.asking(question))? else {
            return Ok(None);
        };
        let both = all.combine(theirs, |all, theirs| delegator.join(all, theirs, question.tool));
        let Some(both) = both else {
            return Ok(None);
        };
        all = both;
    }
    Ok(Some(all))
}

/// Whether the answer could depend on this.
pub(crate) fn depends_on(
    fact: Fact,
    policies: &PolicySet,
    question: &Question<'_>,
    delegators: &[Delegator<'_>],
) -> Result<bool, Unanswerable> {
    let mut depends = policies.depends_on(fact, question)?;
    for delegator in delegators {
        depends |= policies.depends_on(fact, &delegator.asking(question))?;
    }
    Ok(depends)
}

impl Delegator<'_> {
    /// The question as if this agent asked it.
    const fn asking<'q>(&'q self, question: &Question<'q>) -> Question<'q> {
        Question {
            agent: self.agent,
            team: self.team,
            ..*question
        }
    }

    /// The ruling for the others together with that for this agent, which is denied what it has no grant for, whatever policies
    /// permit.
    fn join(&self, others: Ruling, own: Ruling, tool: &Tool) -> Ruling {
        let whose = format!("for the agent `{}`", self.agent.name);
        let own = if self.granted || own.verdict() == Verdict::Deny {
            own
        } else {
            let explanation = format!("the agent has no grant for `{}`", tool.name);
            Ruling::denial(ReasonCode::ToolNotGranted, explanation).and(own, &whose)
        };
        others.and(own, &whose)
    }
}
