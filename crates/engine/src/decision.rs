//! The bytes of a decision: the body of its ledger entry, and the answer to the caller.
//!
//! The answer is made in two steps. Everything but the receipt is written when the ask has been judged; the receipt is
//! sealed on by `apply`, so that there is no answer without a place in the chain.

use crate::approvals::counted_sources;
use crate::ask::{Ask, Mode};
use crate::budgets::cost::BudgetPart;
use crate::budgets::{entries, shown};
use crate::delegation;
use crate::entry_kind::EntryKind;
use crate::facts::Facts;
use crate::judge::Judgement;
use crate::proposal::{ProposedEntry, Wording};
use crate::provenance::Provenance;
use crate::recorded_parameters::recorded_parameters;
use crate::salt::Salt;
use crate::snapshot::TenantSnapshot;
use canon::{Canonical, Digest, ObjectWriter};
use ledger::receipt::{Receipt, SealedBatch};
use model::approval::Request;
use model::{
    Agent, Approval, ApprovalId, ApprovalStatus, ApprovalTerms, DecisionId, Estimate, Name, Timestamp, Usage,
};
use policy::Obligation;
use serde::Serialize;
use std::sync::Arc;
use store::ContentRow;

/// Room for the body of most entries.
const BODY_BYTES: usize = 1_280;

/// A decision with everything its records tell.
pub struct Decided<'a> {
    /// Its id.
    pub id: DecisionId,
    /// The ask.
    pub ask: &'a Ask,
    /// Who asked.
    pub agent: &'a Agent,
    /// What was found.
    pub judgement: &'a Judgement,
    /// The policies and the directory it was found by.
    pub tenant: &'a TenantSnapshot,
    /// The approval that people are asked for, if they are.
    pub approval: Option<&'a Approval>,
    /// What budgets have to do with it, if anything.
    pub budget: Option<&'a BudgetPart>,
    /// When it was found.
    pub now: Timestamp,
    /// What keeps its body from being guessed when it is erased.
    pub salt: Salt,
}

/// What would be decided, and what a decision rests on. It has an answer, and nothing of it can be recorded.
pub struct DryRun<'a> {
    /// The ask.
    pub ask: &'a Ask,
    /// Who asked.
    pub agent: &'a Agent,
    /// What was found.
    pub judgement: &'a Judgement,
    /// The policies and the directory it was found by.
    pub tenant: &'a TenantSnapshot,
    /// What budgets have to do with it, if anything.
    pub budget: Option<&'a BudgetPart>,
    /// When it was found.
    pub now: Timestamp,
}

/// An answer that lacks its receipt. It cannot be sent.
pub struct UnsealedAnswer {
    text: String,
    /// SHA-256 of the text, taken off the sequencer.
    digest: Digest,
}

#[derive(Serialize)]
struct AnswerBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_id: Option<DecisionId>,
    decision: &'static str,
    reason_code: &'static str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_message: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    would_have: Option<WouldHaveBody<'a>>,
    matched_policies: &'a [String],
    obligations: &'a [Obligation],
    #[serde(skip_serializing_if = "Option::is_none")]
    risk_level: Option<&'static str>,
    trust: TrustBody,
    action_hash: Digest,
    policy: PolicyBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalBody<'a>>,
    #[serde(flatten)]
    budget: Option<shown::AnswerPart<'a>>,
}

/// What an answer says about an approval: the one that people are asked for, the one that was used, or, of a dry run,
/// the one that would be used or who would be asked.
#[derive(Serialize, Default)]
struct ApprovalBody<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<ApprovalId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'static str>,
    #[serde(flatten)]
    terms: Option<&'a ApprovalTerms>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

#[derive(Serialize)]
struct WouldHaveBody<'a> {
    decision: &'static str,
    reason_code: &'static str,
    reason: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    agent_message: Option<&'a str>,
    matched_policies: &'a [String],
}

#[derive(Serialize)]
struct TrustBody {
    claimed: &'static str,
    effective: &'static str,
}

#[derive(Serialize)]
struct PolicyBody {
    revision: u64,
    digest: Digest,
}

impl DryRun<'_> {
    /// The answer: no decision was made, so it has no id and no receipt.
    pub fn answer(&self) -> String {
        self.write_answer(None, None)
    }

    /// The answer: of the decision with this id, for which people are asked for this approval, if they are, or of none.
    fn write_answer(&self, decision_id: Option<DecisionId>, approval: Option<&Approval>) -> String {
        let judgement = self.judgement;
        let body = AnswerBody {
            decision_id,
            decision: judgement.verdict().as_str(),
            reason_code: judgement.reason.as_str(),
            reason: &judgement.explanation,
            agent_message: judgement.agent_message.as_deref(),
            mode: mode(self.ask),
            would_have: judgement.would_have.as_deref().map(|would_have| WouldHaveBody {
                decision: would_have.reason.verdict().as_str(),
                reason_code: would_have.reason.as_str(),
                reason: &would_have.explanation,
                agent_message: would_have.agent_message.as_deref(),
                matched_policies: &would_have.matched,
            }),
            matched_policies: &judgement.matched,
            obligations: &judgement.obligations,
            risk_level: judgement.risk.map(model::Risk::as_str),
            trust: TrustBody {
                claimed: judgement.trust.claimed.as_str(),
                effective: judgement.trust.level.as_str(),
            },
            action_hash: self.ask.action.digest,
            policy: PolicyBody {
                revision: self.tenant.revision,
                digest: self.tenant.policies.digest(),
            },
            approval: self.approval_body(approval),
            budget: self.budget.map(BudgetPart::answer_part),
        };
        serde_json::to_string(&body).expect("strings and numbers always serialize")
    }

    /// What is said about an approval: this one, if people are asked for it.
    fn approval_body<'b>(&'b self, asked: Option<&'b Approval>) -> Option<ApprovalBody<'b>> {
        // A dry run uses nothing up.
        let status = match self.ask.mode {
            Mode::DryRun => ApprovalStatus::Approved,
            Mode::Enforce | Mode::Observe => ApprovalStatus::Spent,
        };
        let used = self.judgement.spends_approval.map(|id| ApprovalBody {
            id: Some(id),
            status: Some(status.as_str()),
            ..ApprovalBody::default()
        });
        let terms = || {
            self.judgement.approval.as_ref().map(|terms| ApprovalBody {
                id: asked.map(|approval| approval.id),
                status: asked.map(|approval| approval.status.as_str()),
                terms: Some(terms),
                expires_at: asked.map(|approval| approval.expires_at),
            })
        };
        used.or_else(terms)
    }
}

impl Decided<'_> {
    /// All of its records.
    pub fn word(&self) -> Wording {
        let answer = self.answer();
        Wording {
            entry: self.entry(&answer),
            answer,
            reason: self.judgement.reason,
        }
    }

    /// The answer without its receipt.
    pub fn answer(&self) -> UnsealedAnswer {
        let text = self.found().write_answer(Some(self.id), self.approval);
        UnsealedAnswer {
            digest: Digest::of(text.as_bytes()),
            text,
        }
    }

    /// What it rests on.
    const fn found(&self) -> DryRun<'_> {
        DryRun {
            ask: self.ask,
            agent: self.agent,
            judgement: self.judgement,
            tenant: self.tenant,
            budget: self.budget,
            now: self.now,
        }
    }

    /// The approval that people are asked for, if they have to be.
    pub fn approval_to_ask_for(&self, id: ApprovalId) -> Option<Approval> {
        let (ask, judgement, agent) = (self.ask, self.judgement, self.agent);
        let terms = judgement.approval.clone()?;
        let (tool, action) = (ask.action.tool.as_str(), ask.action.action.as_str());
        let request = Request {
            decision_id: self.id,
            agent: agent.id,
            agent_name: agent.name.clone(),
            tool: ask.action.tool.clone(),
            action: ask.action.action.clone(),
            resource: ask.action.resource.clone(),
            action_hash: ask.action.digest,
            parameters: Some(ask.action.parameters.clone()),
            estimate: ask.estimate.clone(),
            reason: judgement.explanation.clone(),
            matched_policies: judgement.matched.clone(),
            policy_digest: self.tenant.policies.digest(),
            risk_level: judgement.risk,
            definition: self.tenant.facts.definition(tool, action),
            claimed_trust: judgement.trust.claimed,
            effective_trust: judgement.trust.level,
            sources: counted_sources(ask, judgement),
            run_id: ask.run().cloned(),
            run_worst: judgement.run_worst,
            user: ask.user.clone(),
            owner: agent.owner.clone(),
            team: agent.team.clone(),
            delegators: delegation::shown_to_people(self.tenant, agent, ask),
        };
        let settings = &self.tenant.directory.tenant.settings;
        let expires_at = settings.approvals.expires_at(self.now);
        Some(Approval::new(id, request, terms, self.now, expires_at))
    }

    /// What was looked at to find it; `None` if no policy was asked.
    fn facts(&self) -> Option<Facts<'_>> {
        let facts = || Facts::of(self.tenant, self.agent, self.ask);
        self.judgement.policies_asked.then(facts).flatten()
    }

    /// What the entry names by its digest, as far as it is not known to be stored: the policies, and what they looked at.
    pub fn contents(&self, is_stored: impl Fn(&Digest) -> bool) -> Vec<ContentRow> {
        let policies = &self.tenant.policies;
        let facts = self.facts();
        let mut contents = facts.map_or(Vec::new(), |facts| facts.records(&is_stored));
        if !is_stored(&policies.digest()) {
            // Until a commit has it every ask names it, and it may be long: the set's own text, and no copy.
            let text: Arc<[u8]> = Arc::clone(policies.text()).into();
            contents.push(ContentRow {
                tenant: self.agent.tenant,
                digest: policies.digest(),
                bytes: bytes::Bytes::from_owner(text),
            });
        }
        contents
    }

    /// The entry that tells the whole story. It names the answer by digest, so that a changed receipt is noticed.
    pub fn entry(&self, answer: &UnsealedAnswer) -> ProposedEntry {
        ProposedEntry::new(EntryKind::Decision, self.body(*answer.digest()))
    }

    /// The members stand in canonical order.
    fn write_approval(&self, body: &mut ObjectWriter) {
        let found = self.found();
        let Some(stated) = found.approval_body(self.approval) else {
            return;
        };
        body.object("approval", |approval| {
            if let Some(terms) = stated.terms {
                also(approval, terms);
                exclude_owner(approval, terms);
            }
            if let Some(expires_at) = stated.expires_at {
                approval.string("expires_at", &expires_at.to_string());
            }
            optional(
                approval,
                "group",
                stated.terms.and_then(|terms| terms.group.as_deref()),
            );
            if let Some(id) = stated.id {
                approval.string("id", &id.to_string());
            }
            if let Some(terms) = stated.terms {
                approval.unsigned("quorum", u64::from(terms.quorum));
            }
            optional(approval, "status", stated.status);
        });
    }

    /// That the tool was a trap, if it was: what it becomes later says nothing about whoever asked for it now.
    fn write_trap(&self, body: &mut ObjectWriter) {
        let tool = self.tenant.directory.tools.get(self.ask.action.tool.as_str());
        if tool.is_some_and(|tool| tool.is_canary()) {
            body.boolean("canary", true);
        }
    }

    /// The members stand in canonical order, which is that of their names.
    fn body(&self, answer: Digest) -> Canonical {
        let (ask, judgement) = (self.ask, self.judgement);
        let recorded = recorded_parameters(&self.tenant.directory.tenant.settings, ask, judgement);
        let facts = self.facts();
        let mut body = ObjectWriter::with_capacity(BODY_BYTES);
        if !ask.act.is_empty() {
            body.strings("act", ask.act.iter().map(Name::as_str));
        }
        body.string("action", ask.action.action.as_str());
        body.digest("action_hash", &ask.action.digest);
        body.string("agent", &self.agent.id.to_string());
        body.digest("answer_hash", &answer);
        self.write_approval(&mut body);
        if let Some(attributes) = &ask.attributes {
            body.canonical("attributes", attributes);
        }
        if let Some(part) = self.budget {
            entries::balances(&mut body, &part.balances);
        }
        self.write_trap(&mut body);
        if ask.contains_sensitive_data {
            body.boolean("contains_sensitive_data", true);
        }
        body.string("decision", judgement.verdict().as_str());
        body.string("decision_id", &self.id.to_string());
        if let Some(facts) = &facts {
            facts.write_delegators(&mut body);
        }
        name(&mut body, "environment", self.agent.environment.as_ref());
        write_estimate(&mut body, ask.estimate.as_ref());
        if let Some(facts) = &facts {
            facts.write(&mut body);
        }
        if !judgement.granted {
            body.boolean("granted", false);
        }
        body.string("judged_at", &self.now.to_string());
        strings(&mut body, "matched_policies", &judgement.matched);
        optional(&mut body, "mode", mode(ask));
        body.boolean("mutates_state", judgement.mutates);
        let obligations: Vec<_> = judgement.obligations.iter().map(ToString::to_string).collect();
        strings(&mut body, "obligations", &obligations);
        if let Some(recorded) = &recorded {
            body.canonical("parameters", &recorded.parameters);
        }
        name(&mut body, "parent_run_id", ask.parent_run_id.as_ref());
        body.digest("policy_digest", &self.tenant.policies.digest());
        strings(&mut body, "policy_errors", &judgement.errors);
        body.string("reason", &judgement.explanation);
        body.string("reason_code", judgement.reason.as_str());
        strings(
            &mut body,
            "redacted",
            recorded.as_ref().map_or(&[], |recorded| &recorded.redacted),
        );
        name(&mut body, "request_id", ask.request_id.as_ref());
        if let Some(held) = self.budget.and_then(|part| part.reservation.as_ref()) {
            entries::reservation(&mut body, held);
        }
        optional(&mut body, "resource", ask.action.resource.as_deref());
        body.unsigned("revision", self.tenant.revision);
        optional(&mut body, "risk_level", judgement.risk.map(model::Risk::as_str));
        if let Some(found) = judgement.ruling.as_deref() {
            body.object("ruling", |ruling| {
                strings(ruling, "matched_policies", &found.matched);
                ruling.string("reason_code", found.reason.as_str());
            });
        }
        name(&mut body, "run_id", ask.run_id.as_ref());
        optional(
            &mut body,
            "run_worst",
            judgement.run_worst.map(model::Trust::as_str),
        );
        self.salt.write(&mut body);
        shadow(&mut body, judgement);
        sources(&mut body, ask);
        body.string("tool", ask.action.tool.as_str());
        name(&mut body, "trace_id", ask.trace_id.as_ref());
        body.object("trust", |trust| {
            trust.string("claimed", judgement.trust.claimed.as_str());
            trust.string("effective", judgement.trust.level.as_str());
            if let Some(provenance) = &judgement.provenance {
                trust.object("provenance", |told| write_provenance(told, provenance));
            }
            if judgement.trust.signed {
                trust.boolean("signed", true);
            }
            optional(
                trust,
                "worst_source",
                ask.sources.worst().map(model::Trust::as_str),
            );
        });
        write_usage(&mut body, judgement.usage.as_deref());
        name(&mut body, "user", ask.user.as_ref());
        if let Some(facts) = &facts {
            facts.write_user_teams(&mut body);
        }
        would_have(&mut body, judgement);
        body.finish()
    }
}

/// The mode, where the answer is not what was found.
fn mode(ask: &Ask) -> Option<&'static str> {
    (ask.mode == Mode::Observe).then_some("observe")
}

/// What the ask said it may cost.
fn write_estimate(body: &mut ObjectWriter, estimate: Option<&Estimate>) {
    if let Some(Estimate { amount, unit }) = estimate {
        body.object("estimate", |member| {
            // As a string: an amount may be larger than a JSON number can hold exactly.
            member.string("amount", &amount.to_string());
            member.string("unit", unit.as_str());
        });
    }
}

/// How much was used, as policies saw it.
fn write_usage(body: &mut ObjectWriter, usage: Option<&Usage>) {
    if let Some(usage) = usage {
        let usage = canon::of(usage).expect("it is numbers under fixed names");
        body.canonical("usage", usage.as_str());
    }
}

/// Which token it was, who signed it, and what it said. The members stand in canonical order.
fn write_provenance(told: &mut ObjectWriter, provenance: &Provenance) {
    told.string("expires_at", &provenance.expires_at.to_string());
    told.string("issuer", &provenance.issuer);
    optional(told, "key", provenance.key_id.as_deref());
    told.string("level", provenance.level.as_str());
    let parameters = &provenance.parameters;
    optional(told, "parameter", parameters.first().map(String::as_str));
    if parameters.len() > 1 {
        told.strings("parameters", parameters);
    }
    told.string("registered_as", provenance.registered_as.as_str());
    name(told, "subject", provenance.subject.as_ref());
    told.digest("token", &provenance.token);
}

/// Where the caller says that parameters came from.
fn sources(body: &mut ObjectWriter, ask: &Ask) {
    if !ask.sources.is_empty() {
        // In the order of members, which is that of UTF-16 and not the one in which pointers are kept.
        let sources = canon::of(&ask.sources).expect("it is words under names that differ");
        body.canonical("sources", sources.as_str());
    }
}

/// What policies on trial would have said.
fn shadow(body: &mut ObjectWriter, judgement: &Judgement) {
    if let Some(shadow) = &judgement.shadow {
        body.object("shadow", |member| {
            member.string("decision", shadow.reason.verdict().as_str());
            strings(member, "matched_policies", &shadow.matched);
            member.string("reason_code", shadow.reason.as_str());
        });
    }
}

/// What would have been said to an ask that was only to be observed.
fn would_have(body: &mut ObjectWriter, judgement: &Judgement) {
    if let Some(would_have) = &judgement.would_have {
        body.object("would_have", |member| {
            approval(member, would_have.approval.as_ref());
            member.string("decision", would_have.reason.verdict().as_str());
            strings(member, "matched_policies", &would_have.matched);
            member.string("reason", &would_have.explanation);
            member.string("reason_code", would_have.reason.as_str());
        });
    }
}

/// Who would have to approve, if anybody.
fn approval(object: &mut ObjectWriter, terms: Option<&ApprovalTerms>) {
    if let Some(terms) = terms {
        object.object("approval", |approval| {
            also(approval, terms);
            exclude_owner(approval, terms);
            optional(approval, "group", terms.group.as_deref());
            approval.unsigned("quorum", u64::from(terms.quorum));
        });
    }
}

/// The groups that have to approve beside the first one, if there are any.
fn also(approval: &mut ObjectWriter, terms: &ApprovalTerms) {
    if !terms.also.is_empty() {
        approval.objects("also", &terms.also, |also, other| {
            also.string("group", &other.group);
            also.unsigned("quorum", u64::from(other.quorum));
        });
    }
}

/// That the owner and the team of the agent do not count, where it is so.
fn exclude_owner(approval: &mut ObjectWriter, terms: &ApprovalTerms) {
    if terms.exclude_owner {
        approval.boolean("exclude_owner", true);
    }
}

fn name(object: &mut ObjectWriter, key: &str, name: Option<&Name>) {
    optional(object, key, name.map(Name::as_str));
}

fn optional(object: &mut ObjectWriter, key: &str, value: Option<&str>) {
    if let Some(value) = value {
        object.string(key, value);
    }
}

/// An empty list is left out: most are.
fn strings(object: &mut ObjectWriter, key: &str, values: &[String]) {
    if !values.is_empty() {
        object.strings(key, values.iter().map(String::as_str));
    }
}

/// Room for the receipt of an answer that was committed with some dozens of others.
const RECEIPT_BYTES: usize = 960;

impl UnsealedAnswer {
    /// SHA-256 of the answer without its receipt.
    pub const fn digest(&self) -> &Digest {
        &self.digest
    }

    /// How long it is.
    pub const fn bytes(&self) -> usize {
        self.text.len()
    }

    /// The answer with its receipt, as it is the one at `index` of a batch: the exact bytes that are stored and sent.
    pub fn seal(&self, batch: &SealedBatch, index: usize, receipt: &Receipt<'_>) -> bytes::Bytes {
        let mut text = String::with_capacity(self.text.len() + RECEIPT_BYTES);
        text.push_str(&self.text[..self.text.len() - 1]);
        text.push_str(",\"receipt\":");
        batch.write_receipt(index, receipt, &mut text);
        text.push('}');
        text.into()
    }
}
