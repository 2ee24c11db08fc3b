//! `/v1/rules`: what is done about an agent when the ledger shows too much of something. None is there unless a tenant puts one.

use super::{Upserted, change_at_once, deleted, facts, new_name, page, put, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, PageQuery, Query, Refusal, TenantCaller, conditions};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use engine::EntryKind;
use model::rule::{COUNT, Effect, Trigger, WINDOW_SECONDS};
use model::{Directory, Name, Noun, Rule, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The most rules of a tenant: each is looked at whenever its ledger has grown.
const RULES_MAX: usize = 32;

/// What a PUT says.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RuleBody {
    trigger: Trigger,
    effect: Effect,
    #[serde(default = "one")]
    count: u32,
    #[serde(default = "a_minute")]
    window_seconds: u32,
    #[serde(default = "yes")]
    enabled: bool,
}

const fn one() -> u32 {
    1
}

const fn a_minute() -> u32 {
    60
}

const fn yes() -> bool {
    true
}

/// A rule as callers see it.
#[derive(Debug, Serialize)]
pub struct RuleView {
    name: Name,
    trigger: Trigger,
    count: u32,
    window_seconds: u32,
    effect: Effect,
    enabled: bool,
    since: Timestamp,
}

impl From<&Rule> for RuleView {
    fn from(rule: &Rule) -> Self {
        Self {
            name: rule.name.clone(),
            trigger: rule.trigger,
            count: rule.count,
            window_seconds: rule.window_seconds,
            effect: rule.effect,
            enabled: rule.enabled,
            since: rule.since,
        }
    }
}

/// `PUT /v1/rules/{name}`: a rule that changes begins to count anew.
pub async fn put_rule(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    Json(body): Json<RuleBody>,
) -> Result<Upserted<RuleView>, Refusal> {
    let name: Name = new_name(&name)?;
    body.check()?;
    change_at_once(&gateway, &caller, |directory, now| {
        let known = directory.rules.get(&name);
        conditions::check_new(&headers, known.is_some())?;
        if let Some(same) = known.filter(|known| body.is_same(known)) {
            return Ok(Plan::nothing(Upserted::Known(RuleView::from(&**same))));
        }
        if known.is_none() && directory.rules.len() >= RULES_MAX {
            let detail = format!("a tenant has at most {RULES_MAX} rules; delete one first");
            return Err(Refusal::new(Code::Conflict, detail));
        }
        let rule = body.rule(&name, now);
        let view = RuleView::from(&rule);
        let noun = Noun::Rule(Arc::new(rule));
        let facts = facts(&view);
        let answer = Upserted::of(view, known.is_none());
        Ok(put(EntryKind::RulePut, noun, facts, answer))
    })
    .await
}

/// `GET /v1/rules`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<LargePage, Refusal> {
    let tenant = read(&gateway, &caller)?;
    page::<_, _, RuleView>(&tenant.directory.rules, &query, |_| true)
}

/// `GET /v1/rules/{name}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Json<RuleView>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let rule = find(&tenant.directory, &name)?;
    Ok(Json(RuleView::from(&**rule)))
}

/// `DELETE /v1/rules/{name}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<StatusCode, Refusal> {
    change_at_once(&gateway, &caller, |directory, _| {
        let rule = find(directory, &name)?;
        let noun = Noun::Rule(Arc::clone(rule));
        Ok(deleted(EntryKind::RuleDeleted, noun, &RuleView::from(&**rule)))
    })
    .await
}

impl RuleBody {
    fn check(&self) -> Result<(), Refusal> {
        for (member, value, range) in [
            ("count", self.count, COUNT),
            ("window_seconds", self.window_seconds, WINDOW_SECONDS),
        ] {
            if !range.contains(&value) {
                let detail = format!("`{member}` is from {} to {}", range.start(), range.end());
                return Err(Refusal::new(Code::InvalidField, detail));
            }
        }
        Ok(())
    }

    fn is_same(&self, known: &Rule) -> bool {
        let ours = (
            self.trigger,
            self.effect,
            self.count,
            self.window_seconds,
            self.enabled,
        );
        ours == (
            known.trigger,
            known.effect,
            known.count,
            known.window_seconds,
            known.enabled,
        )
    }

    fn rule(&self, name: &Name, now: Timestamp) -> Rule {
        Rule {
            name: name.clone(),
            trigger: self.trigger,
            count: self.count,
            window_seconds: self.window_seconds,
            effect: self.effect,
            enabled: self.enabled,
            since: now,
            fired: BTreeMap::new(),
            fired_tools: BTreeMap::new(),
            counted_through: 0,
        }
    }
}

fn find<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<Rule>, Refusal> {
    let rule = directory.rules.get(name);
    rule.ok_or_else(|| Refusal::not_found("rule", name))
}
