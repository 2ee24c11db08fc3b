//! `PUT /v1/policies`: a whole set in place of another, in one commit.

use super::keeping::Changing;
use super::preconditions::{check_set, tag_of_set};
use super::{Draft, PolicyView, TaggedSet, check_name, reading, says_the_same};
use crate::changes::{DroppedAside, Plan};
use crate::directory::{change, facts};
use crate::gateway::Gateway;
use crate::http::{Code, Json, Page, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use axum::http::HeaderMap;
use engine::EntryKind;
use model::policy::digest_of_set;
use model::{Directory, Noun, Policy, SlashFreeName, Timestamp, Write};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set of policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    #[serde(deserialize_with = "reading::policies")]
    policies: Vec<(SlashFreeName, Draft)>,
}

/// What a set makes of a directory.
struct Replaced<'d> {
    set: Vec<Arc<Policy>>,
    changing: Changing<'d>,
}

impl SetBody {
    /// A directory with this set in place of its own: what a candidate is judged by is what a PUT of it would put in force.
    pub(super) fn applied_to(&self, directory: &Directory, now: Timestamp) -> Result<Directory, Refusal> {
        let mut after = directory.clone();
        let Changing { put, gone, .. } = self.replace(directory, now)?.changing;
        let gone = gone.into_iter().map(|(policy, at)| policy.deleted(at));
        for policy in put.into_iter().chain(gone) {
            after.apply(&Write::Put(Noun::Policy(Arc::new(policy))));
        }
        Ok(after)
    }

    /// What is not named is deleted. A policy that says what it said before keeps its version.
    fn replace<'d>(&self, directory: &'d Directory, now: Timestamp) -> Result<Replaced<'d>, Refusal> {
        let names = self.names()?;
        let mut put = Vec::new();
        let mut set = Vec::with_capacity(self.policies.len());
        for (name, draft) in &self.policies {
            let after = draft.applied(directory, name, now)?;
            let before = directory.policies.get(name.as_str());
            if let Some(before) = before.filter(|before| says_the_same(before, &after)) {
                set.push(Arc::clone(before));
                continue;
            }
            put.push(after.clone());
            set.push(Arc::new(after));
        }
        let gone = directory.policies.values();
        let gone = gone.filter(|policy| policy.deleted_at.is_none() && !names.contains(policy.name.as_str()));
        let gone = gone.map(|policy| (Policy::clone(policy), now)).collect();
        let changing = Changing { directory, put, gone };
        Ok(Replaced { set, changing })
    }

    fn names(&self) -> Result<BTreeSet<&str>, Refusal> {
        let mut names = BTreeSet::new();
        for (name, _) in &self.policies {
            check_name(name)?;
            if !names.insert(name.as_str()) {
                let detail = format!("`policies`: `{name}` stands in the set twice");
                return Err(Refusal::new(Code::InvalidField, detail));
            }
        }
        Ok(names)
    }
}

/// Replaces the tenant's set whole.
pub async fn replace(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    headers: HeaderMap,
    SetJson(body, _room): SetJson<SetBody>,
) -> Result<TaggedSet<Json<Page<PolicyView>>>, Refusal> {
    let body = DroppedAside::new(body);
    change(&gateway, &caller, |directory, now| {
        check_set(&headers, directory)?;
        let Replaced { mut set, changing } = body.replace(directory, now)?;
        let items: Vec<_> = set.iter().map(|policy| PolicyView::from(&**policy)).collect();
        set.sort_by_cached_key(|policy| policy.name.clone());
        let facts = serde_json::json!({ "policies": facts(&items) });
        let answer = TaggedSet {
            tag: tag_of_set(digest_of_set(&set)),
            page: Json(Page {
                items,
                next_cursor: None,
            }),
        };
        let writes = changing.writes()?;
        // Every policy says what it said before, and none is gone.
        if writes.is_empty() {
            return Ok(Plan::nothing(answer));
        }
        Ok(Plan::Change {
            kind: EntryKind::PoliciesReplaced,
            facts,
            writes,
            answer,
        })
    })
    .await
}
