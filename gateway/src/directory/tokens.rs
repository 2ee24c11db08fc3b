//! `/v1/agents/{id}/tokens`: what agents sign in with. Several may work at once, so that they can be rotated without a gap.

use super::{EXPIRED_FOR_MS, change, change_at_once, check_future, facts, find_agent, read};
use crate::changes::Plan;
use crate::gateway::Gateway;
use crate::http::{Code, Created, Json, OptionalJson, Page, PageQuery, Query, Refusal, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use engine::EntryKind;
use model::standing::RevokedForGood;
use model::{AgentId, AgentToken, Directory, Noun, Secret, SecretKind, Timestamp, TokenId, Write};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;

/// The most tokens of one agent that may work at once. A rotation needs two; more than this is a leak of the caller's.
const LIVE_TOKENS_MAX: usize = 32;

/// What a POST says; it may be left out.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    expires_at: Option<Timestamp>,
}

/// A token as callers see it.
#[derive(Debug, Clone, Serialize)]
pub struct TokenView {
    id: TokenId,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
}

/// A token that was just made, with its secret.
#[derive(Serialize)]
pub struct NewTokenView {
    #[serde(flatten)]
    view: TokenView,
    token: String,
}

impl From<&AgentToken> for TokenView {
    fn from(token: &AgentToken) -> Self {
        Self {
            id: token.id,
            created_at: token.created_at,
            expires_at: token.expires_at,
        }
    }
}

/// `POST /v1/agents/{id}/tokens`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(agent): Path<String>,
    OptionalJson(body): OptionalJson<NewToken>,
) -> Result<Created<NewTokenView>, Refusal> {
    let secret = Secret::mint(SecretKind::AgentToken, &*gateway.entropy);
    let created = change(&gateway, &caller, |directory, now| {
        let agent = find_agent(directory, &agent)?;
        check_future(body.expires_at, now)?;
        let token = AgentToken {
            id: TokenId::new(now, &*gateway.entropy),
            agent: agent.id,
            digest: secret.digest(),
            created_at: now,
            expires_at: body.expires_at,
        };
        mint(directory, token)
    });
    let view = created.await?;
    let token = secret.reveal().to_owned();
    Ok(Created(NewTokenView { view, token }))
}

/// `GET /v1/agents/{id}/tokens`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(agent): Path<String>,
    Query(query): Query<PageQuery>,
) -> Result<Json<Page<TokenView>>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let agent = find_agent(&tenant.directory, &agent)?.id;
    let after = query.after::<TokenId>()?;
    let tokens = tenant
        .directory
        .tokens_of(agent)
        .filter(|token| after.is_none_or(|after| after < token.id));
    let page = Page::of(
        tokens,
        query.limit()?,
        |token| token.id.to_string(),
        |token| TokenView::from(&**token),
    );
    Ok(Json(page))
}

/// `DELETE /v1/agents/{id}/tokens/{token_id}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path((agent, token)): Path<(String, String)>,
) -> Result<StatusCode, Refusal> {
    change_at_once(&gateway, &caller, |directory, _| {
        let agent = find_agent(directory, &agent)?.id;
        let found = token
            .parse::<TokenId>()
            .ok()
            .and_then(|id| directory.tokens.get(&id));
        // Another agent's token is not found here, or the path would say something that is not so.
        let found = found.filter(|token| token.agent == agent);
        let found = found.ok_or_else(|| Refusal::not_found("token", &token))?;
        Ok(remove(found, StatusCode::NO_CONTENT))
    })
    .await
}

/// Takes a token away.
pub(crate) fn remove<T>(token: &Arc<AgentToken>, answer: T) -> Plan<T> {
    Plan::Change {
        kind: EntryKind::TokenDeleted,
        facts: about(token.agent, &TokenView::from(&**token)),
        writes: vec![Write::Delete(Noun::Token(Arc::clone(token)))],
        answer,
    }
}

/// Puts a new token in place and clears away those of the agent that have expired long ago, which nobody else would. An
/// agent that was revoked gets none.
pub(crate) fn mint(directory: &Directory, token: AgentToken) -> Result<Plan<TokenView>, Refusal> {
    let agent = directory.agents.get(&token.agent);
    if agent.is_some_and(|agent| agent.standing.is_revoked()) {
        return Err(RevokedForGood.into());
    }
    let now = token.created_at;
    let (expired, live): (Vec<_>, Vec<_>) = directory
        .tokens_of(token.agent)
        .partition(|token| token.has_expired(now));
    if live.len() >= LIVE_TOKENS_MAX {
        let detail = format!("this agent has {LIVE_TOKENS_MAX} tokens that work; delete one of them first");
        return Err(Refusal::new(Code::Conflict, detail));
    }
    let expired = cleared_away(expired, now);
    let view = TokenView::from(&token);
    let mut facts = about(token.agent, &view);
    facts["expired"] = json!(expired.iter().map(|token| token.id).collect::<Vec<_>>());
    let mut writes = vec![Write::Put(Noun::Token(Arc::new(token)))];
    writes.extend(
        expired
            .into_iter()
            .map(|token| Write::Delete(Noun::Token(Arc::clone(token)))),
    );
    Ok(Plan::Change {
        kind: EntryKind::TokenCreated,
        facts,
        writes,
        answer: view,
    })
}

/// Those of an agent's expired tokens that are cleared away, the first to end first. Not those that have just expired:
/// this clock may be ahead. No more of these are good yet than may work at once, and these end last. Once the clock is set
/// right, up to twice as many may work as that; then none is made until there are fewer.
fn cleared_away(mut expired: Vec<&Arc<AgentToken>>, now: Timestamp) -> Vec<&Arc<AgentToken>> {
    let long_ago = now.plus_millis(-EXPIRED_FOR_MS);
    expired.sort_by_key(|token| token.expires_at);
    let too_many = expired.len().saturating_sub(LIVE_TOKENS_MAX);
    let expired = expired.into_iter().enumerate();
    expired
        .filter(|(place, token)| *place < too_many || token.has_expired(long_ago))
        .map(|(_, token)| token)
        .collect()
}

fn about(agent: AgentId, view: &TokenView) -> Value {
    let mut facts = facts(view);
    facts["agent"] = json!(agent);
    facts
}

#[cfg(test)]
mod tests {
    use super::*;
    use canon::Digest;

    const AGENT: AgentId = AgentId::from_bytes([7; 16]);

    fn token(id: u8, expires_at: Option<i64>) -> AgentToken {
        AgentToken {
            id: TokenId::from_bytes([id; 16]),
            agent: AGENT,
            digest: Digest::of(&[id]),
            created_at: Timestamp::from_millis(1_000),
            expires_at: expires_at.map(Timestamp::from_millis),
        }
    }

    fn directory(tokens: impl IntoIterator<Item = AgentToken>) -> Directory {
        let tenant = json!({"id": model::TenantId::from_bytes([1; 16]), "name": "acme", "settings": {}, "bucket": null,
            "status": "active", "created_at": "1970-01-01T00:00:00.000Z"});
        let mut directory = Directory::new(Arc::new(serde_json::from_value(tenant).unwrap()));
        for token in tokens {
            directory.apply(&Write::Put(Noun::Token(Arc::new(token))));
        }
        directory
    }

    #[test]
    fn the_bound_counts_only_tokens_that_work() {
        let max = u8::try_from(LIVE_TOKENS_MAX).unwrap();
        let full = directory((1..=max).map(|id| token(id, None)));
        assert_eq!(mint(&full, token(99, None)).err().unwrap().code(), Code::Conflict);
        let expired = directory((1..=max).map(|id| token(id, (id == 1).then_some(1_000))));
        assert!(mint(&expired, token(99, None)).is_ok());
    }

    #[test]
    fn a_new_token_clears_the_expired_ones_away_and_says_so() {
        let long_ago = 1_000 - EXPIRED_FOR_MS;
        let ends = [(1, long_ago), (2, long_ago + 1), (3, 1_001)];
        let tokens = ends.map(|(id, end)| token(id, Some(end)));
        let plan = mint(&directory(tokens), token(4, None)).unwrap();
        assert_eq!(plan.writes().len(), 2);
        assert_eq!(plan.facts()["expired"], json!([TokenId::from_bytes([1; 16])]));
        assert!(
            !plan.facts().to_string().contains("sha256"),
            "nothing of the secret is recorded"
        );
    }

    #[test]
    fn no_more_tokens_are_kept_that_have_just_expired_than_may_work_at_once() {
        let max = u8::try_from(LIVE_TOKENS_MAX).unwrap();
        // The first that were made end last.
        let tokens = (1..=max + 2).map(|id| token(id, Some(1_000 - i64::from(id))));
        let plan = mint(&directory(tokens), token(99, None)).unwrap();
        let cleared_away = [max + 2, max + 1].map(|id| TokenId::from_bytes([id; 16]));
        assert_eq!(plan.facts()["expired"], json!(cleared_away));
    }
}
