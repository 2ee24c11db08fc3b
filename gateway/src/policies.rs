//! `/v1/policies`: a tenant's policies. The most dangerous change there is, so it is made like every other one: on a copy,
//! compiled whole before anything is written, recorded with who did it and what it was before, in force when the call
//! returns.

pub mod checks;
pub mod diff;
pub mod explain;
pub mod format;
mod keeping;
pub mod one_each;
mod preconditions;
mod reading;
pub mod reload;
pub mod replace;
pub mod replay;
pub mod trials;

use crate::changes::Plan;
use crate::directory::{change, facts, new_name, page, read};
use crate::gateway::Gateway;
use crate::http::{Code, Json, LargePage, Location, PageQuery, Query, Refusal, SetJson, TenantCaller};
use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use engine::EntryKind;
use keeping::Changing;
use model::{
    AgentId, Directory, Noun, Policy, PolicyLink, PolicyMode, PolicyText, PolicyVersion, SlashFreeName,
    Timestamp, Write,
};
use preconditions::{tag, tag_of_set};
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Names that are parts of paths here.
const RESERVED: [&str; 8] = [
    "diff", "format", "reload", "replay", "schema", "try", "validate", "versions",
];

/// The slots that a template can have.
const SLOTS: [&str; 2] = ["?principal", "?resource"];

/// The longest description, in bytes: some paragraphs. It is kept with every version and read with every list.
const DESCRIPTION_BYTES_MAX: usize = 4 << 10;

/// What a new version says, and for whom it counts.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// A policy is named by its path, and a body may say so again.
    #[serde(default)]
    name: Option<SlashFreeName>,
    cedar: Arc<str>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default, deserialize_with = "reading::links")]
    links: Vec<PolicyLink>,
    #[serde(default)]
    mode: ModeWord,
    /// The agents of a canary.
    #[serde(default)]
    agents: Option<BTreeSet<AgentId>>,
}

/// A mode in one word.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ModeWord {
    /// For everybody.
    #[default]
    Enforced,
    /// For nobody.
    Shadow,
    /// For some agents.
    Canary,
}

/// A draft with its name, which no path says.
#[derive(Debug, Clone, Deserialize)]
#[serde(try_from = "Draft")]
pub struct NamedDraft {
    name: SlashFreeName,
    draft: Draft,
}

/// A policy as it is shown: its newest version, and which versions are in use.
#[derive(Debug, Serialize)]
pub struct PolicyView {
    name: SlashFreeName,
    version: u64,
    cedar: Arc<str>,
    description: Option<String>,
    links: Links,
    /// The version that counts for everybody.
    enforced: Option<u64>,
    trial: Option<TrialView>,
    updated_at: Option<Timestamp>,
}

/// The links of a version. They may be thousands, and are not copied to be shown.
#[derive(Debug)]
struct Links(Option<Arc<PolicyVersion>>);

impl Serialize for Links {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let links = self.0.as_ref().map(|version| version.text.links.as_slice());
        links.unwrap_or_default().serialize(serializer)
    }
}

#[derive(Debug, Serialize)]
struct TrialView {
    version: u64,
    mode: ModeWord,
    #[serde(skip_serializing_if = "Option::is_none")]
    agents: Option<BTreeSet<AgentId>>,
}

/// A policy with the version as its entity tag.
pub struct Tagged {
    status: StatusCode,
    view: PolicyView,
}

impl Tagged {
    fn ok(view: PolicyView) -> Self {
        Self {
            status: StatusCode::OK,
            view,
        }
    }

    fn made(view: PolicyView) -> Self {
        Self {
            status: StatusCode::CREATED,
            view,
        }
    }
}

impl IntoResponse for Tagged {
    fn into_response(self) -> Response {
        let tag = HeaderValue::from_str(&tag(self.view.version)).expect("digits are visible ASCII");
        (self.status, [(header::ETAG, tag)], Json(self.view)).into_response()
    }
}

/// A page of the policies of a set with the entity tag of all of it.
pub struct TaggedSet<P> {
    tag: String,
    page: P,
}

impl<P: IntoResponse> IntoResponse for TaggedSet<P> {
    fn into_response(self) -> Response {
        let tag = HeaderValue::from_str(&self.tag).expect("a digest is visible ASCII");
        ([(header::ETAG, tag)], self.page).into_response()
    }
}

impl From<&Policy> for PolicyView {
    fn from(policy: &Policy) -> Self {
        let newest = policy.newest();
        Self {
            name: policy.name.clone(),
            version: policy.version(),
            cedar: newest.map_or_else(Arc::default, |newest| Arc::clone(&newest.text.cedar)),
            description: newest.and_then(|newest| newest.text.description.clone()),
            links: Links(newest.cloned()),
            enforced: policy.enforced,
            trial: policy.trial.as_ref().map(|trial| TrialView {
                version: trial.version,
                mode: match trial.agents {
                    Some(_) => ModeWord::Canary,
                    None => ModeWord::Shadow,
                },
                agents: trial.agents.clone(),
            }),
            updated_at: newest.map(|newest| newest.created_at),
        }
    }
}

impl TryFrom<Draft> for NamedDraft {
    type Error = &'static str;

    fn try_from(mut draft: Draft) -> Result<Self, Self::Error> {
        // As `serde` says it of every other member.
        let name = draft.name.take().ok_or("missing field `name`")?;
        Ok(Self { name, draft })
    }
}

impl Draft {
    /// A policy is not renamed, and what is meant for another one is not written over this one.
    fn check_named(&self, path: &SlashFreeName) -> Result<(), Refusal> {
        match self.name.as_ref().filter(|name| *name != path) {
            Some(name) => Err(invalid(format!("`name` is `{name}`, and the path says `{path}`"))),
            None => Ok(()),
        }
    }

    fn text(&self) -> PolicyText {
        PolicyText {
            cedar: Arc::clone(&self.cedar),
            description: self.description.clone(),
            links: self.links.clone(),
        }
    }

    /// For whom it counts. The agents of a canary have to be there.
    fn mode(&self, directory: &Directory) -> Result<PolicyMode, Refusal> {
        match (self.mode, &self.agents) {
            (ModeWord::Enforced, None) => Ok(PolicyMode::Enforced),
            (ModeWord::Shadow, None) => Ok(PolicyMode::Shadow),
            (ModeWord::Canary, Some(agents)) if !agents.is_empty() => {
                match agents.iter().find(|agent| !directory.agents.contains_key(*agent)) {
                    Some(agent) => Err(invalid(format!("`agents`: there is no agent `{agent}`"))),
                    None => Ok(PolicyMode::Canary(agents.clone())),
                }
            }
            (ModeWord::Canary, _) => Err(invalid("`agents` says for whom a `canary` counts".to_owned())),
            (_, Some(_)) => Err(invalid("`agents` goes with the mode `canary` only".to_owned())),
        }
    }

    /// A value for a slot that Cedar does not have would be lost without a word.
    fn check_slots(&self) -> Result<(), Refusal> {
        let mut slots = self.links.iter().flat_map(|link| link.values.keys());
        match slots.find(|slot| !SLOTS.contains(&slot.as_str())) {
            Some(slot) => Err(invalid(format!(
                "`links`: there is no slot `{slot}`, only `{}` and `{}`",
                SLOTS[0], SLOTS[1]
            ))),
            None => Ok(()),
        }
    }

    /// One that the policy has already stays as long as it is.
    fn check_description(&self, before: Option<&Policy>) -> Result<(), Refusal> {
        let known = before.and_then(Policy::newest);
        let known = known.and_then(|newest| newest.text.description.as_ref());
        let new = self.description.as_ref().filter(|new| known != Some(new));
        match new.map(String::len) {
            Some(bytes) if bytes > DESCRIPTION_BYTES_MAX => Err(invalid(format!(
                "`description` has at most {DESCRIPTION_BYTES_MAX} bytes, this one has {bytes}"
            ))),
            _ => Ok(()),
        }
    }

    /// The policy with this draft as its newest version; a new one if there was none.
    fn applied(
        &self,
        directory: &Directory,
        name: &SlashFreeName,
        now: Timestamp,
    ) -> Result<Policy, Refusal> {
        let mode = self.mode(directory)?;
        self.check_slots()?;
        let before = directory.policies.get(name.as_str());
        self.check_description(before.map(|before| &**before))?;
        Ok(match before {
            Some(before) => before.with_version(self.text(), mode, now),
            None => Policy::new(name.clone(), self.text(), mode, now),
        })
    }
}

fn invalid(detail: String) -> Refusal {
    Refusal::new(Code::InvalidField, detail)
}

/// A name that a path gives to a policy, which can have it.
fn policy_name(text: &str) -> Result<SlashFreeName, Refusal> {
    check_reserved(text).map_err(|detail| Refusal::new(Code::InvalidParameter, detail))?;
    new_name(text)
}

/// Refuses a name that a body gives to a policy, which cannot have it.
fn check_name(name: &SlashFreeName) -> Result<(), Refusal> {
    check_reserved(name.as_str()).map_err(|detail| invalid(format!("`name`: {detail}")))
}

fn check_reserved(name: &str) -> Result<(), String> {
    if RESERVED.contains(&name) {
        return Err(format!(
            "a policy cannot be called `{name}`, which is part of a path here"
        ));
    }
    Ok(())
}

/// The policy with this name that is not deleted.
fn find<'d>(directory: &'d Directory, name: &str) -> Result<&'d Arc<Policy>, Refusal> {
    let policy = directory.policies.get(name);
    policy
        .filter(|policy| policy.deleted_at.is_none())
        .ok_or_else(|| Refusal::not_found("policy", name))
}

/// Whether the newest version of one says what the newest of the other says, for the same agents.
fn says_the_same(before: &Policy, after: &Policy) -> bool {
    let texts = [before, after].map(|policy| policy.newest().map(|newest| &newest.text));
    let use_of = |policy: &Policy| {
        let newest = policy.version();
        let trial = policy.trial.as_ref().filter(|trial| trial.version == newest);
        (
            policy.enforced == Some(newest),
            trial.map(|trial| trial.agents.clone()),
        )
    };
    before.deleted_at.is_none() && texts[0] == texts[1] && use_of(before) == use_of(after)
}

/// A plan that puts a policy, and what is answered.
fn plan<T>(kind: EntryKind, policy: Policy, answer: impl FnOnce(PolicyView) -> T) -> Plan<T> {
    let view = PolicyView::from(&policy);
    let writes = vec![Write::Put(Noun::Policy(Arc::new(policy)))];
    plan_writes(kind, view, writes, answer)
}

/// A plan that puts a policy with one more version, of which as much is kept as there is room for.
fn plan_version<T>(
    kind: EntryKind,
    directory: &Directory,
    policy: Policy,
    answer: impl FnOnce(PolicyView) -> T,
) -> Result<Plan<T>, Refusal> {
    let view = PolicyView::from(&policy);
    let changing = Changing {
        directory,
        put: vec![policy],
        gone: Vec::new(),
    };
    Ok(plan_writes(kind, view, changing.writes()?, answer))
}

/// A plan that puts a policy by these writes, told by its view.
fn plan_writes<T>(
    kind: EntryKind,
    view: PolicyView,
    writes: Vec<Write>,
    answer: impl FnOnce(PolicyView) -> T,
) -> Plan<T> {
    Plan::Change {
        kind,
        facts: facts(&view),
        writes,
        answer: answer(view),
    }
}

/// `GET /v1/policies`
pub async fn list(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Query(query): Query<PageQuery>,
) -> Result<TaggedSet<LargePage>, Refusal> {
    let tenant = read(&gateway, &caller)?;
    let directory = &tenant.directory;
    let page = page::<_, _, PolicyView>(&directory.policies, &query, |policy| policy.deleted_at.is_none());
    Ok(TaggedSet {
        page: page?,
        tag: tag_of_set(directory.digest_of_policies()),
    })
}

/// `POST /v1/policies`
pub async fn create(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    headers: HeaderMap,
    SetJson(NamedDraft { name, draft }, _room): SetJson<NamedDraft>,
) -> Result<(Location, Tagged), Refusal> {
    preconditions::check_none(&headers)?;
    check_name(&name)?;
    // What is called so already can be read, and can stand in a set.
    if matches!(name.as_str(), "." | "..") {
        return Err(invalid(format!(
            "`name`: `{name}` cannot stand in the path of an address; take another name"
        )));
    }
    let created = change(&gateway, &caller, |directory, now| {
        if find(directory, name.as_str()).is_ok() {
            let detail = format!("there is a policy `{name}` already; PUT makes a new version of it");
            return Err(Refusal::new(Code::Conflict, detail));
        }
        let policy = draft.applied(directory, &name, now)?;
        plan_version(EntryKind::PolicyPut, directory, policy, Tagged::made)
    });
    let policy = created.await?;
    Ok((Location::of("/v1/policies", &name), policy))
}

/// `GET /v1/policies/{name}`
pub async fn get(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
) -> Result<Tagged, Refusal> {
    let tenant = read(&gateway, &caller)?;
    find(&tenant.directory, &name).map(|policy| Tagged::ok(PolicyView::from(&**policy)))
}

/// `PUT /v1/policies/{name}`: a new version, unless the newest says the same for the same agents.
pub async fn put(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
    SetJson(draft, _room): SetJson<Draft>,
) -> Result<Tagged, Refusal> {
    let name = policy_name(&name)?;
    draft.check_named(&name)?;
    change(&gateway, &caller, |directory, now| {
        let before = directory.policies.get(name.as_str()).map(|policy| &**policy);
        preconditions::check(&headers, before)?;
        let after = draft.applied(directory, &name, now)?;
        match before.filter(|policy| policy.deleted_at.is_none()) {
            Some(before) if says_the_same(before, &after) => Ok(Plan::nothing(Tagged::ok(before.into()))),
            Some(_) => plan_version(EntryKind::PolicyPut, directory, after, Tagged::ok),
            None => plan_version(EntryKind::PolicyPut, directory, after, Tagged::made),
        }
    })
    .await
}

/// `DELETE /v1/policies/{name}`
pub async fn delete(
    State(gateway): State<Arc<Gateway>>,
    Extension(caller): Extension<TenantCaller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<StatusCode, Refusal> {
    change(&gateway, &caller, |directory, now| {
        let before = find(directory, &name)?;
        preconditions::check(&headers, Some(before))?;
        let after = before.deleted(now);
        Ok(plan(EntryKind::PolicyDeleted, after, |_| StatusCode::NO_CONTENT))
    })
    .await
}
