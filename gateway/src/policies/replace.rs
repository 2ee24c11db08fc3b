//! `PUT /v1/policies`: a whole set in place of another, in one commit.

use super::{NamedDraft, PolicyView, check_name, says_the_same};
use crate::changes::Plan;
use crate::directory::{change, facts};
use crate::gateway::Gateway;
use crate::http::{Code, Json, Page, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::State;
use engine::EntryKind;
use model::{Directory, Noun, Policy, Timestamp, Write};
use serde::Deserialize;
use std::collections::BTreeSet;
use std::sync::Arc;

/// A set of policies.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetBody {
    policies: Vec<NamedDraft>,
}

/// What a set makes of a directory.
struct Replaced {
    set: Vec<Arc<Policy>>,
    writes: Vec<Write>,
}

impl SetBody {
    /// A directory with this set in place of its own: what a candidate is judged by is what a PUT of it would put in force.
    pub(super) fn applied_to(&self, directory: &Directory, now: Timestamp) -> Result<Directory, Refusal> {
        let mut after = directory.clone();
        for write in self.replace(directory, now)?.writes {
            after.apply(&write);
        }
        Ok(after)
    }

    /// What is not named is deleted. A policy that says what it said before keeps its version.
    fn replace(&self, directory: &Directory, now: Timestamp) -> Result<Replaced, Refusal> {
        let names = self.names()?;
        let mut writes = Vec::new();
        let mut set = Vec::with_capacity(self.policies.len());
        for named in &self.policies {
            let (name, draft) = named.clone().split();
            let after = draft.applied(directory, &name, now)?;
            let before = directory.policies.get(name.as_str());
            if let Some(before) = before.filter(|before| says_the_same(before, &after)) {
                set.push(Arc::clone(before));
                continue;
            }
            let after = Arc::new(after);
            writes.push(Write::Put(Noun::Policy(Arc::clone(&after))));
            set.push(after);
        }
        let gone = directory.policies.values();
        let gone = gone.filter(|policy| policy.deleted_at.is_none() && !names.contains(policy.name.as_str()));
        writes.extend(gone.map(|policy| Write::Put(Noun::Policy(Arc::new(policy.deleted(now))))));
        Ok(Replaced { set, writes })
    }

    fn names(&self) -> Result<BTreeSet<&str>, Refusal> {
        let mut names = BTreeSet::new();
        for named in &self.policies {
            check_name(&named.name)?;
            if !names.insert(named.name.as_str()) {
                let detail = format!("`policies`: `{}` stands in the set twice", named.name);
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
    SetJson(body): SetJson<SetBody>,
) -> Result<Json<Page<PolicyView>>, Refusal> {
    let replaced = change(&gateway, &caller, |directory, now| {
        let Replaced { set, writes } = body.replace(directory, now)?;
        let items: Vec<_> = set.iter().map(|policy| PolicyView::from(&**policy)).collect();
        Ok(Plan {
            kind: EntryKind::PoliciesReplaced,
            facts: serde_json::json!({ "policies": facts(&items) }),
            writes,
            answer: items,
        })
    });
    Ok(Json(Page {
        items: replaced.await?,
        next_cursor: None,
    }))
}
